# FuzzCycles.pm - a subscription whose publisher sends mutated streams.
#
# The publisher is a process with a socket (FakePublisher.pm).  Each connection of the apply
# worker is a cycle: it gets one of the recorded streams with the mutations of the cycle's
# seed, until it has applied that, has ended with an error, or waits for more.  Every tenth
# cycle has no mutation: all of it must be applied, and the tables be those of the publisher.
# The positions of each cycle are beyond those of the one before.
#
# The process reports each cycle by lines of a file: when it begins, with its seed and its
# mutations, and how it has ended.
package FuzzCycles;

use strict;
use warnings;
use FakePublisher qw(keepalive);
use IO::Select;
use Mutation qw(mutate);
use PostgreSQL::Test::Utils qw(append_to_file slurp_file);
use Recording qw(contents_query);
use Time::HiRes qw(time);

# One cycle of this number is not mutated.
my $whole_every = 10;

# Seconds that a cycle may last with mutations, and without
my ($shortest, $longest) = (0.5, $PostgreSQL::Test::Utils::timeout_default);

# Beyond the size of a recording
my $positions = 1 << 26;

# Where kinds of messages have positions
my %positions_at = (
	B => [1],
	b => [ 1, 9 ],
	c => [ 6, 14 ],
	map { $_ => [ 2, 10 ] } qw(C P K r p));

# Options: node, name (of subscription and database), recordings, contents (of the tables in
# the end), seed (of the first cycle), step (to that of the next one)
sub new
{
	my ($class, %options) = @_;
	my $fake = FakePublisher->new($options{node});
	my $self = bless {
		%options,
		fake => $fake,
		report => "$fake->{directory}/report",
		cycle => 0,
	}, $class;
	append_to_file($self->{report}, '');
	$fake->start(
		sub {
			my ($client) = @_;
			eval { cycle($self, $client); 1 }
			  or append_to_file($self->{report},
				'lost ' . $@ =~ s/\n.*//sr . "\n");
			$client->shutdown(2);
		});
	return $self;
}

sub stop
{
	my ($self) = @_;
	$self->{fake}->stop;
	return;
}

# Return the new lines of the report.
sub news
{
	my ($self) = @_;
	my $text = slurp_file($self->{report}, $self->{offset} // 0);
	$text =~ s/[^\n]*\z//;
	$self->{offset} += length $text;
	return split /\n/, $text;
}

# --- in the process of the publisher -----------------------------------------

sub sql
{
	my ($self, $sql) = @_;
	return $self->{node}->safe_psql($self->{name}, $sql);
}

sub shifted
{
	my ($messages, $by) = @_;
	return map {
		my $message = $_;
		for my $at (1, 9,
			map { 25 + $_ }
			@{ $positions_at{ substr($message, 25, 1) } // [] })
		{
			my $position = unpack 'Q>', substr($message, $at, 8);
			substr($message, $at, 8) = pack 'Q>', $position + $by
			  if $position > 0;
		}
		$message;
	} @$messages;
}

# Roll back prepared transactions, for whose locks others would wait forever.
sub forget_prepared
{
	my ($self) = @_;
	my $gids = sql($self,
		"SELECT gid FROM pg_prepared_xacts WHERE database = '$self->{name}'");
	sql($self, "ROLLBACK PREPARED '$_'") for split /\n/, $gids;
	return;
}

# Forget what an earlier cycle has left: prepared transactions, and a position that none has
# sent.  Return false if the apply worker has to begin again.
sub has_clean_start
{
	my ($self, $client, $first) = @_;
	forget_prepared($self);
	my $applied = sql($self, <<~SQL);
		SELECT coalesce(bool_or(remote_lsn - '0/0' > $first), false) FROM pg_replication_origin_status
			WHERE external_id = (SELECT 'pg_' || oid FROM pg_subscription WHERE subname = '$self->{name}')
		SQL
	return 1 if $applied ne 't';

	my $lsn = sprintf '%X/%X', $first >> 32, $first & 0xffffffff;
	sql($self, "ALTER SUBSCRIPTION $self->{name} DISABLE");
	$client->shutdown(2);
	$self->{node}->poll_query_until(
		$self->{name},
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '$self->{name}'
		AND backend_type ~ 'replication.* worker|parallel_apply'"
	) or die "a worker does not end\n";
	sql($self, "SELECT pg_replication_origin_advance('pg_' || oid, '$lsn')
		FROM pg_subscription WHERE subname = '$self->{name}'");
	sql($self, "ALTER SUBSCRIPTION $self->{name} ENABLE");
	return 0;
}

# Wait until the apply worker has confirmed that position, has ended, or does neither.
sub outcome
{
	my ($client, $position, $seconds) = @_;
	my $select = IO::Select->new($client);
	my $end = time + $seconds;
	my $received = '';
	FakePublisher::send_message($client, 'd', keepalive($position, 1));
	while (time < $end)
	{
		next if !$select->can_read(0.05);
		sysread($client, $received, 65536, length $received)
		  or return 'error';
		while (length $received >= 5)
		{
			my $length = 1 + unpack 'x N', $received;
			last if length $received < $length;
			my ($kind, $flushed) = unpack 'x5 a x8 Q>',
			  substr($received, 0, $length, '') . "\0" x 17;
			return 'applied' if $kind eq 'r' && $flushed >= $position;
		}
	}
	return 'open';
}

# The apply worker has applied all.  So do the tables have the right contents?
sub is_whole
{
	my ($self) = @_;
	my $contents = sql($self, contents_query());
	return $contents eq $self->{contents};
}

sub cycle
{
	my ($self, $client) = @_;
	my $number = $self->{cycle};
	my $first = $positions * ($number + 1);
	my $seed = $self->{seed} + $number * $self->{step};
	my $is_mutated = $number % $whole_every != $whole_every - 1;
	has_clean_start($self, $client, $first) or return;

	srand $seed;
	my $recording = $self->{recordings}[ rand @{ $self->{recordings} } ];
	my @messages = shifted($recording, $first);
	my $last = unpack 'x9 Q>', $messages[-1];
	my ($list, $mutations) =
	  $is_mutated ? mutate(@messages) : (\@messages, 'none');
	append_to_file($self->{report}, "begin $number $seed $mutations\n");
	$self->{cycle}++;

	$client->print(join '', map { FakePublisher::frame('d', $_) } @$list);
	my $outcome = outcome($client, $last, $is_mutated ? $shortest : $longest);
	forget_prepared($self) if $outcome eq 'open';
	$outcome .= is_whole($self) ? ' whole' : ' wrong' if !$is_mutated;
	append_to_file($self->{report},
		"end $number $seed " . scalar(@$list) . " $outcome\n");
	return;
}

1;
