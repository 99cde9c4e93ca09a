# FakePublisher.pm - a publisher that is a process of the test with a socket.  It sends the
# same messages of the protocol, made by hand, on each connection.
package FakePublisher;

use strict;
use warnings;
use Exporter 'import';
use IO::Handle;
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(time);

our @EXPORT_OK =
  qw($lsn begin_at commit data in_stream insert keepalive read_message
  relation send_message send_together stream_abort stream_commit stream_start time_of transaction
  truncate_tables);

# Of the version of this node.
sub new
{
	my ($class, $node) = @_;
	return bless {
		version => $node->pg_version,
		directory => PostgreSQL::Test::Utils::tempdir_short(),
		owner => $$,
		# What it reports about itself, see connection.c; undef: no row
		settings => [ 'f', 'f', '0' ],
		# Its position, see skip_transactions.c; undef: no row
		position => '',
	  },
	  $class;
}

sub connstr
{
	my ($self) = @_;
	return "host=$self->{directory} port=5432 dbname=postgres user=tap";
}

# Begin to send these messages, after the end of those of before.  A function among them
# is called with the connection; a reference to a string is sent as it is.
sub start
{
	my ($self, @messages) = @_;
	my $path = "$self->{directory}/.s.PGSQL.5432";
	$self->stop;
	unlink $path;
	my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 5)
	  or die "no socket: $!";
	$self->{pid} = fork;
	return if $self->{pid};
	$SIG{PIPE} = 'IGNORE';
	eval {
		while (my $client = $listener->accept)
		{
			$client->autoflush(1);
			serve($self, $client, @messages);
			$client->close;
		}
	};
	POSIX::_exit(0);
}

sub stop
{
	my ($self) = @_;
	local $?;
	my $pid = delete $self->{pid} or return;
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return;
}

sub DESTROY
{
	my ($self) = @_;
	$self->stop if $self->{owner} == $$;
	return;
}

# The next message of the client; undef at the end of the connection
sub read_message
{
	my ($client, $head_bytes) = @_;
	my $message = '';
	return if ($client->read(my $head, $head_bytes) // 0) != $head_bytes;
	my $length = unpack('N', substr($head, -4)) - 4;
	return
	  if $length > 0 && ($client->read($message, $length) // 0) != $length;
	return (substr($head, 0, -4), $message);
}

sub frame
{
	my ($kind, $data) = @_;
	return $kind . pack('N', 4 + length $data) . $data;
}

sub send_message
{
	my ($client, $kind, $data) = @_;
	$client->print(frame($kind, $data));
	return;
}

# Send these references to strings in one piece.
sub send_together
{
	my ($client, @messages) = @_;
	$client->print(join '', map { frame('d', $$_) } @messages);
	return;
}

# The result of a query: one row of these values, or none, and that many columns
sub send_row
{
	my ($client, @values) = @_;
	send_columns($client, scalar @values);
	send_message($client, 'D', pack('n (N/a*)*', scalar @values, @values));
	send_message($client, 'C', "SELECT 1\0");
	send_message($client, 'Z', 'I');
	return;
}

sub send_no_row
{
	my ($client, $columns) = @_;
	send_columns($client, $columns);
	send_message($client, 'C', "SELECT 0\0");
	send_message($client, 'Z', 'I');
	return;
}

sub send_all
{
	my ($client, @messages) = @_;
	for my $message (@messages)
	{
		if (ref $message eq 'CODE')
		{
			$message->($client);
		}
		else
		{
			send_message($client, 'd',
				ref $message ? $$message : data($message));
		}
	}
	return;
}

sub send_columns
{
	my ($client, $columns) = @_;
	send_message($client, 'T',
			pack('n', $columns)
		  . pack('Z* N n N n N n', 'c', 0, 0, 25, -1, -1, 0) x $columns);
	return;
}

# One connection: answer the apply worker's requests, then send these messages, or
# call these functions.
sub serve
{
	my ($self, $client, @messages) = @_;
	read_message($client, 4) or return;
	send_message($client, 'R', pack('N', 0));
	send_message($client, 'S', "client_encoding\0UTF8\0");
	send_message($client, 'S', "server_version\0" . $self->{version} . "\0");
	send_message($client, 'Z', 'I');
	while (my ($kind, $message) = read_message($client, 5))
	{
		next if $kind ne 'Q';
		if ($message =~ /IDENTIFY_SYSTEM/)
		{
			send_row($client, '1', '1', '0/0', 'postgres');
		}
		elsif ($message =~ /START_REPLICATION/)
		{
			send_message($client, 'W', pack('C n', 0, 0));
			send_all($client, @messages);
		}
		else
		{
			my $answer =
				$message =~ /pg_settings/
			  ? $self->{settings}
			  : defined $self->{position} && [ $self->{position} ];
			$answer
			  ? send_row($client, @$answer)
			  : send_no_row($client, $message =~ /pg_settings/ ? 3 : 1);
		}
	}
	return;
}

### messages ###################################################################

# The position of the newest transaction
our $lsn = 0x1000000;

# A time in seconds since 1970, as the protocol has it
sub time_of
{
	return int(($_[0] - 946_684_800) * 1_000_000);
}

# A message of the output plugin, as it is sent at this time
sub data
{
	my ($message, $sent_at) = @_;
	return pack('a Q> Q> q>', 'w', 0, 0, $sent_at // 0) . $message;
}

# The publisher has decoded all WAL before that position.
sub keepalive
{
	my ($position, $requests_reply, $sent_at) = @_;
	return pack('a Q> q> C',
		'k', $position, $sent_at // time_of(time),
		$requests_reply);
}

sub relation
{
	my ($id, $name, $identity, @keys) = @_;
	@keys = (1, 0) if !@keys;
	my $n = 0;
	return pack('a N Z* Z* a n',
		'R', $id, 'public', $name, $identity, scalar @keys)
	  . join '', map {
		pack('C Z* N N', $_, ('id', 'note')[ $n++ ] // "column$n", 25, -1)
	  } @keys;
}

sub insert
{
	my ($id, @values) = @_;
	return pack(
		'a N a n (a N/a*)*',
		'I', $id, 'N',
		scalar @values,
		map { ('t', $_) } @values);
}

sub truncate_tables
{
	return pack('a N C N*', 'T', scalar @_, 0, @_);
}

sub begin_at
{
	my ($kind, $committed_at) = @_;
	$committed_at //= 0;
	$lsn += 100;
	return $kind eq 'b'
	  ? pack('a Q> Q> q> N Z*', 'b', $lsn, $lsn + 50, $committed_at, 700,
		'gid')
	  : pack('a Q> q> N', 'B', $lsn, $committed_at, 700);
}

sub commit
{
	my ($at, $flags) = @_;
	return pack('a C Q> Q> q>', 'C', $flags // 0, $at // $lsn, $lsn + 50, 0);
}

sub transaction
{
	my (@changes) = @_;
	return (begin_at('B'), @changes, commit());
}

# Messages of a streamed transaction have an xid after the kind.
sub in_stream
{
	my ($xid, @messages) = @_;
	return
	  map { substr($_, 0, 1) . pack('N', $xid) . substr($_, 1) } @messages;
}

sub stream_start
{
	my ($xid, $is_continued) = @_;
	return pack('a N C', 'S', $xid, $is_continued ? 0 : 1);
}

sub stream_abort
{
	my ($xid, $subxid) = @_;
	return pack('a N N', 'A', $xid, $subxid);
}

sub stream_commit
{
	$lsn += 100;
	return pack('a N C Q> Q> q>', 'c', $_[0], 0, $lsn, $lsn + 50, 0);
}

1;
