# WalsenderClient.pm - a replication connection whose messages a test reads one by one.
#
# What the walsender holds back has not arrived; a client with a thread or process of its
# own would not show that.
package WalsenderClient;

use strict;
use warnings;
use FakePublisher;
use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils ();

# Connect to a publisher, before replication.  Options: user, dbname; name, the
# application_name; replication, 'true' for a standby's connection.
sub new
{
	my ($class, $publisher, %option) = @_;
	my $path = $publisher->host . '/.s.PGSQL.' . $publisher->port;
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!";
	my $self = bless { socket => $socket, buffer => '', received => '' },
	  $class;
	$self->send_message(
		'',
		pack('N', 3 << 16) . join "\0",
		user => $option{user} // $ENV{PGUSER} // scalar getpwuid($<),
		database => $option{dbname} // 'postgres',
		replication => $option{replication} // 'database',
		application_name => $option{name} // 'tap_client',
		# A warning would be sent at once, with the messages that are held back.
		client_min_messages => 'error',
		'', '');
	$self->arrives('<Z>') or die 'the publisher does not answer';
	return $self;
}

sub send_message
{
	my ($self, $kind, $data) = @_;
	$self->{socket}->syswrite(FakePublisher::frame($kind, $data));
	return;
}

# Return everything that has arrived since forget(), without a wait: the contents of 'd'
# messages, joined, and the kinds of all others.
sub arrived
{
	my ($self) = @_;
	my $socket = $self->{socket};
	while (IO::Select->new($socket)->can_read(0))
	{
		$socket->sysread($self->{buffer}, 65536, length $self->{buffer})
		  or die 'the publisher has ended the connection';
	}
	while (length $self->{buffer} >= 5)
	{
		my ($kind, $length) = unpack('a N', $self->{buffer});
		last if length $self->{buffer} < 1 + $length;
		my $message =
		  substr(substr($self->{buffer}, 0, 1 + $length, ''), 5);
		die "the publisher says: $message" if $kind eq 'E';
		$self->{answer} = $message if $kind eq 'D';
		$self->{received} .= $kind eq 'd' ? $message : "<$kind>";
	}
	return $self->{received};
}

# Wait until that has arrived.
sub arrives
{
	my ($self, $what) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($self->arrived !~ /$what/s && time < $end)
	{
		IO::Select->new($self->{socket})->can_read(1);
	}
	return $self->arrived =~ /$what/s;
}

sub forget
{
	my ($self) = @_;
	$self->{received} = '';
	return;
}

# Run statements, and return the first column of the last row.
sub query
{
	my ($self, $sql) = @_;
	$self->forget;
	delete $self->{answer};
	$self->send_message('Q', "$sql\0");
	$self->arrives('<Z>') or die "the publisher does not answer: $sql";
	return undef if !defined $self->{answer};
	return unpack 'x2 N/a', $self->{answer};
}

# The command begins after START_REPLICATION.
sub start_replication
{
	my ($self, $command) = @_;
	$self->send_message('Q', "START_REPLICATION $command\0");
	$self->arrives('<W>') or die 'nothing is replicated';
	return;
}

# End the connection, and wait until its process has exited.
sub close
{
	my ($self) = @_;
	my $socket = $self->{socket};
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	$socket->shutdown(1);
	while (time < $end)
	{
		last
		  if IO::Select->new($socket)->can_read(1)
		  && !$socket->sysread(my $rest, 65536);
	}
	$socket->close;
	return;
}

1;
