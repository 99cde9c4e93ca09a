# Promise: a publisher without the library does not request flushes.  If it was not
# configured for sessions that wait for them when the stream began, flushes are
# deferred for some milliseconds.
#
# The walwriter, status messages and requests for replies come every hour, or never.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $ROUNDS = 16;
my $COMMITS = 400;

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

# Commits of one session, one after the other
sub commit
{
	my ($commits, $mode) = @_;
	seconds_of(
		$publisher,
		"SET synchronous_commit = $mode; INSERT INTO history (mode) VALUES ('$mode')",
		$commits);
	return;
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
			commit($COMMITS, 'remote_apply');
			push @rounds, sleeps_of_writers($subscriber, 'tap') - $sleeps;
			return pass($name)
			  if $wanted eq 'held'
			  ? $rounds[-1] < 0.5 * $COMMITS
			  : $rounds[-1] > 0.75 * $COMMITS;
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

# Each would wait for the walwriter otherwise.
commit(300, 'on');
pass('a session that waits for its flushes gets them soon');

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
