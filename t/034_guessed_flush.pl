# Promise: a publisher without the library does not request flushes.  If it was not
# configured for sessions that wait for them when the stream began, flushes are
# deferred for some milliseconds.  If transactions repeatedly arrive just after a
# flush, the subscriber assumes a session that waits.  (selftest_guess() tests the
# details.)
#
# The walwriter, status messages and requests for replies come every ten seconds, or
# never.  The best of several rounds counts, because a busy machine makes a round
# slow.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $ROUNDS = 16;
my $COMMITS = 400;
my $HELD_S = 0.01;

my ($publisher, $subscriber) = new_pair(
	publisher_conf => <<~'CONF',
	wal_sender_timeout = 0
	CONF
	subscriber_conf => <<~'CONF');
	autovacuum = off
	wal_writer_delay = 10s
	wal_receiver_status_interval = 1h
	wal_receiver_timeout = 0
	parallel_apply.leader_participation = on
	parallel_apply.writers_per_subscription = 2
	CONF

exec_both('CREATE TABLE history (id serial PRIMARY KEY, mode text)');
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap');
reload_with($publisher, q(synchronous_standby_names = 'tap'));
wait_for_sync_state($publisher, 'tap', 'sync');

# Return the time of one session's commits, in seconds.
sub seconds_of_commits
{
	my ($mode, $commits) = @_;
	return seconds_of(
		$publisher,
		"SET synchronous_commit = $mode; INSERT INTO history (mode) VALUES ('$mode')",
		$commits);
}

# Is each of them fast enough in one of the rounds?
sub is_prompt
{
	my ($mode, $commits, $seconds, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @took;
	for (1 .. $ROUNDS)
	{
		push @took, seconds_of_commits($mode, $commits);
		return pass($name) if $took[-1] < $seconds * $commits;
	}
	return fail("$name: $commits took @took s");
}

# Flushes for commits that no session waits for.  Each flush is made by a writer,
# which is woken for it and sleeps again.  In the first rounds this may not be known
# yet.
sub flushes_are
{
	my ($wanted, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip '/proc is not that of Linux', 1 if !-r '/proc/self/status';
		my @rounds;
		for (1 .. $ROUNDS)
		{
			my $sleeps = sleeps_of_writers($subscriber, 'tap');
			my $seconds = seconds_of_commits('remote_apply', $COMMITS);
			$sleeps = sleeps_of_writers($subscriber, 'tap') - $sleeps;
			push @rounds, sprintf '%d in %.1f s', $sleeps, $seconds;
			return pass($name)
			  if $wanted eq 'held'
			  ? $sleeps < 0.5 * $COMMITS
			  : $sleeps > 0.75 * $COMMITS;
		}
		return fail("$name: writers woken for $COMMITS commits: @rounds");
	}
	return;
}

flushes_are('held', 'commits that no session waits for are flushed together');
my $lsn = on_publisher(
	q(SET synchronous_commit = remote_apply;
	INSERT INTO history (mode) VALUES ('last');
	SELECT pg_current_wal_lsn()));
$publisher->poll_query_until('postgres',
	"SELECT flush_lsn >= '$lsn' FROM pg_stat_replication WHERE application_name = 'tap'"
) or die 'a commit is not flushed';
pass('also the last one');

is_prompt(
	'on', 100,
	$HELD_S / 2,
	'a session that repeatedly waits for a flush gets it at once');
seconds_of_commits('local', 10000);
flushes_are('held', 'and later no session waits');

my $others = $publisher->background_psql('postgres');
$others->query_until(
	qr/started/, q(SET synchronous_commit = remote_apply;
	\echo started
	)
	  . "INSERT INTO history (mode) VALUES ('other');\n" x 5000
	  . "\\echo returned\n");
is_prompt('on', 10, 0.1, 'and soon while others do not');
$others->query_until(qr/returned/, '');
$others->quit;

### the configuration of the publisher

connect_again($subscriber, 'tap');
wait_for_sync_state($publisher, 'tap', 'sync');
flushes_are('at once',
	'where sessions wait for flushes by default, each is at once');
reload_with($publisher, 'synchronous_commit = remote_apply');
connect_again($subscriber, 'tap');
wait_for_sync_state($publisher, 'tap', 'sync');
flushes_are('held', 'but not if they wait for another event');

reload_with($publisher, q(synchronous_standby_names = ''));
wait_applied($publisher, $subscriber, 'tap');
tables_equal('at the end', 'history');
finish($publisher, $subscriber);
done_testing();
