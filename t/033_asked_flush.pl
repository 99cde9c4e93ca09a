# Promise: a publisher that preloads the library requests the flushes that a session
# waits for; the subscriber defers other flushes for 100 ms.
#
# No timer helps: the walwriter, status messages and requests for replies come every
# ten seconds, or never.  Durations are compared with the time that has passed, and
# the best of several rounds counts, because a busy machine makes a round slow.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $ROUNDS = 8;
my $HELD_S = 0.1;

my ($publisher, $subscriber) = new_pair(
	publisher_conf => <<~'CONF',
	shared_preload_libraries = 'parallel_apply'
	parallel_apply.coalesce_messages = on
	wal_sender_timeout = 0
	max_prepared_transactions = 2
	CONF
	subscriber_conf => <<~'CONF');
	fsync = on
	autovacuum = off
	wal_writer_delay = 10s
	wal_receiver_status_interval = 1h
	wal_receiver_timeout = 0
	restart_after_crash = on
	wal_level = replica
	max_wal_senders = 2
	max_prepared_transactions = 2
	parallel_apply.leader_participation = on
	parallel_apply.writers_per_subscription = 2
	CONF

exec_both('CREATE TABLE history (id serial PRIMARY KEY, mode text)');
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap',
	with => 'streaming = off, two_phase = on');
reload_with($publisher, q(synchronous_standby_names = 'tap'));
wait_for_sync_state($publisher, 'tap', 'sync');

sub insert
{
	my ($mode) = @_;
	return
	  "SET synchronous_commit = $mode; INSERT INTO history (mode) VALUES ('$mode')";
}

# Each flush is made by a writer, which is woken for it.
sub sleeps_for_commits
{
	my ($commits) = @_;
	my $sleeps = sleeps_of_writers($subscriber, 'tap');
	my $seconds = seconds_of($publisher, insert('remote_apply'), $commits);
	return (sleeps_of_writers($subscriber, 'tap') - $sleeps, $seconds);
}

# Without a request for a flush, each time would take $HELD_S.
sub returns_soon
{
	my ($sql, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @seconds;
	for (1 .. $ROUNDS)
	{
		push @seconds, seconds_of($publisher, $sql, 10);
		return pass($name) if $seconds[-1] < 5 * $HELD_S;
	}
	return fail("$name: 10 times took @seconds s");
}

### no session waits

SKIP:
{
	skip '/proc is not that of Linux', 1 if !-r '/proc/self/status';
	my @rounds;
	my $is_held;
	for (1 .. $ROUNDS)
	{
		my ($sleeps, $seconds) = sleeps_for_commits(400);
		push @rounds, sprintf '%d in %.1f s', $sleeps, $seconds;
		$is_held = $sleeps < 50 + 4 * $seconds / $HELD_S;
		last if $is_held;
	}
	ok($is_held, 'commits that no session waits for are flushed together')
	  or diag("writers woken for 400 commits: @rounds");
}

# The walwriter would take its delay for each but the first.
my $start = time;
for (1 .. 3)
{
	my $lsn = on_publisher(
		q(SET synchronous_commit = remote_apply;
		INSERT INTO history (mode) VALUES ('last');
		SELECT pg_current_wal_lsn()));
	$publisher->poll_query_until('postgres',
		"SELECT flush_lsn >= '$lsn' FROM pg_stat_replication WHERE application_name = 'tap'"
	) or die 'a commit is not flushed';
}
cmp_ok(time - $start, '<', 15, 'but they are, without any other event');

### a session waits

returns_soon(insert('on'),
	'a session that waits for a flush gets it at once');
returns_soon(
	"BEGIN; DELETE FROM history WHERE id % 100 = 0; PREPARE TRANSACTION 'a'; SET synchronous_commit = on; COMMIT PREPARED 'a'; SET synchronous_commit = remote_apply",
	'also for the second phase of a prepared transaction');
returns_soon(
	insert('remote_apply')
	  . "; SET synchronous_commit = on; COMMENT ON TABLE history IS 'x'",
	'also for a transaction that has nothing for the subscriber');

my $others = $publisher->background_psql('postgres');
$others->query_until(
	qr/started/, q(SET synchronous_commit = remote_apply;
	\echo started
	)
	  . "INSERT INTO history (mode) VALUES ('other');\n" x 2000
	  . "\\echo returned\n");
returns_soon(insert('on'), 'also while other sessions do not wait');
$others->query_until(qr/returned/, '');
$others->quit;

### not where other servers depend on it

SKIP:
{
	skip '/proc is not that of Linux', 1 if !-r '/proc/self/status';
	my $client = IPC::Run::start(
		[
			$subscriber->installed_command('pg_receivewal'), '--no-loop',
			'--directory' => $subscriber->basedir,
			'--dbname' => $subscriber->connstr
		],
		'>' => '/dev/null',
		'2>' => '/dev/null');
	$subscriber->poll_query_until('postgres',
		q(SELECT state = 'streaming' FROM pg_stat_replication))
	  or die 'no client receives the WAL';
	my $is_flushed;
	for (1 .. $ROUNDS)
	{
		my ($sleeps, $seconds) = sleeps_for_commits(400);
		$is_flushed = $sleeps > 10 * $seconds / $HELD_S;
		last if $is_flushed;
	}
	ok($is_flushed,
		'if the subscriber sends WAL itself, all are flushed at once');
	$client->kill_kill;
}

# A walsender that has begun with the setting keeps asking after a reload.  The next one
# does not ask, which its subscription knows.
reload_with($publisher, 'parallel_apply.coalesce_messages = off');
$publisher->poll_query_until('postgres',
	q(SELECT current_setting('parallel_apply.coalesce_messages') = 'off'))
  or die 'the setting is not read';
returns_soon(insert('on'),
	'a walsender that gathers no more still asks for flushes');
connect_again($subscriber, 'tap');
wait_for_sync_state($publisher, 'tap', 'sync');
returns_soon(insert('on'),
	'a session gets its flush at once where the walsender does not ask');
reload_with($publisher, 'parallel_apply.coalesce_messages = on');

# The apply worker itself commits synchronously in this case; writers do not.
reload_with($subscriber, 'parallel_apply.leader_participation = off');
set_synchronous_commit($subscriber, 'on');
wait_for_sync_state($publisher, 'tap', 'sync');
returns_soon(insert('remote_apply'),
	'and if the subscription commits synchronously');

reload_with($publisher, q(synchronous_standby_names = ''));
wait_applied($publisher, $subscriber, 'tap');

### a pool that stops

# Everything that the pool has committed is flushed when it stops: PostgreSQL's own
# apply does not know of these commits, and confirms all that was received before.
# No other process flushes: the walwriter is stopped until the crash, and two of
# three writers are stopped until the pool is closed; the third one exits after its
# commit.  Detects: the last transaction is lost.
set_synchronous_commit($subscriber, 'off');
reload_with($subscriber, 'parallel_apply.writers_per_subscription = 3');
wait_for_pool($subscriber, 'tap', 3);
my @others = (writer_pids($subscriber, 'tap'))[ 0, 1 ];
my $walwriter = on_subscriber(
	q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'));
kill 'STOP', $walwriter, @others;
my $lock = hold($subscriber, 'LOCK TABLE history IN SHARE MODE');
my $end = on_publisher(insert('local') . '; SELECT pg_current_wal_lsn()');
wait_for_state($subscriber, 'waiting for lock');
reload_with($subscriber, 'parallel_apply.writers_per_subscription = 2');
wait_until('writers_wanted = 2 FROM parallel_apply.subscriptions',
	'the third writer need not leave');
reload_with($subscriber, 'parallel_apply.writers_per_subscription = 1');
wait_until(q(state = 'stopping' FROM parallel_apply.subscriptions),
	'the pool does not stop');
my $receiver = apply_pid($subscriber, 'tap');
$lock->query_safe('COMMIT');
$lock->quit;
wait_until(
	"wait_event ILIKE 'BgWorkerShutdown' FROM pg_stat_activity WHERE pid = $receiver",
	'the pool is not closed');
kill 'CONT', @others;
wait_for_pool($subscriber, 'tap', 0);
$publisher->poll_query_until('postgres',
	"SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'tap'"
) or die 'the last transaction is not confirmed';
my $log_offset = -s $subscriber->logfile;
kill $_, $walwriter for 'QUIT', 'CONT';
$subscriber->wait_for_log(qr/database system is ready to accept connections/,
	$log_offset);
tables_equal('after a crash behind the end of the pool', 'history');
finish($publisher, $subscriber,
	qr/FATAL: +the database system is (in recovery mode|not yet accepting)/);
done_testing();
