# Promise: a publisher that preloads the library requests the flushes that a session
# waits for; the subscriber defers other flushes for 100 ms.
#
# No timer helps: the walwriter is stopped, status messages and requests for replies come
# every hour, or never, and flushes that no session is known to wait for are deferred for
# ever (src/test/selftest_wakes.c).  So a session that has to wait for such a flush does
# not return.  Sessions wait before the walsender sees their transaction: it is stopped
# until then.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => <<~'CONF',
	shared_preload_libraries = 'parallel_apply'
	parallel_apply.coalesce_messages = on
	wal_sender_timeout = 0
	max_prepared_transactions = 2
	CONF
	subscriber_conf => without_flushes() . <<~'CONF');
	fsync = on
	restart_after_crash = on
	wal_level = replica
	max_wal_senders = 2
	max_prepared_transactions = 2
	CONF

plan skip_all => 'the library was made without SELFTEST=1'
  if !$subscriber->create_selftest_waits;
$pair->exec_both('CREATE TABLE history (id serial PRIMARY KEY, mode text)');
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = off, two_phase = on');

# Another apply worker begins with two-phase commit.
$subscriber->wait_until(q(subtwophasestate = 'e' FROM pg_subscription),
	'two-phase commit is not enabled');
$subscriber->wait_for_pool('tap');
$publisher->sql(q(INSERT INTO history (mode) VALUES ('first')));
$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$publisher->wait_for_sync_state('tap', 'sync');

# A session that waits for a flush returns.  It executes the first statements before
# that.
sub returns
{
	my ($name, $before, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $walsender = $publisher->sql(
		q(SELECT pid FROM pg_stat_replication WHERE application_name = 'tap')
	);
	my $session = $publisher->background_psql('postgres');
	my $pid = $session->query_safe("$before; SELECT pg_backend_pid()");
	$publisher->stop_waiting($walsender, 'WalSenderWaitForWal');
	$session->query_until(qr/started/,
		"\\echo started\n$sql;\n\\echo returned\n");
	$publisher->poll_query_until('postgres',
		"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"
	) or die 'the session does not wait';
	kill 'CONT', $walsender;
	$session->query_until(qr/returned/, '');
	$session->quit;
	return pass($name);
}

# What the subscriber has flushed
sub flushed_lsn
{
	return $subscriber->sql('SELECT pg_current_wal_flush_lsn()');
}

my $insert = q(INSERT INTO history (mode) VALUES ('x'));
my $insert_applied = "SET synchronous_commit = remote_apply; $insert";

my $walwriter = $subscriber->stop_walwriter;
$subscriber->reload_with('parallel_apply.selftest_defer_flushes = on');

### no session waits

# The reload, and what was committed before it, may take effect late.
sub are_deferred
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $are_deferred;
	for (1 .. 20)
	{
		my $lsn = flushed_lsn();
		$publisher->sql(
			join ';',
			'SET synchronous_commit = remote_apply',
			($insert) x 100);
		$are_deferred = $lsn eq flushed_lsn();
		last if $are_deferred;
	}
	return ok($are_deferred, $name);
}
are_deferred('commits that no session waits for are not flushed');

$subscriber->reload_with('parallel_apply.selftest_defer_flushes = off');
my $last_lsn =
  $publisher->sql("$insert_applied; SELECT pg_current_wal_lsn()");
$publisher->is_flushed('but they are, without any other event', $last_lsn);
$subscriber->reload_with('parallel_apply.selftest_defer_flushes = on');

### a session waits

returns('a session that waits for a flush gets it',
	'SET synchronous_commit = on', $insert);
returns(
	'also for the second phase of a prepared transaction',
	"SET synchronous_commit = remote_apply; BEGIN; $insert; PREPARE TRANSACTION 'a'; SET synchronous_commit = on",
	q(COMMIT PREPARED 'a'));
returns(
	'also for a transaction that has nothing for the subscriber',
	"$insert_applied; SET synchronous_commit = on",
	q(COMMENT ON TABLE history IS 'x'));

my $others = $publisher->background_psql('postgres');
$others->query_until(qr/started/,
		"SET synchronous_commit = remote_apply;\n\\echo started\n"
	  . "$insert;\n" x 2000
	  . "\\echo returned\n");
returns('also while other sessions do not wait',
	'SET synchronous_commit = on', $insert);
$others->query_until(qr/returned/, '');
$others->quit;

### the subscriber sends WAL itself

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
are_deferred('walsenders of the subscriber do not get each commit at once');
$client->kill_kill;
$subscriber->poll_query_until('postgres',
	q(SELECT count(*) = 0 FROM pg_stat_replication))
  or die 'a client still receives the WAL';

# A walsender that has begun with the setting keeps asking after a reload.  The next one
# does not ask, which its subscription knows.
$publisher->reload_with('parallel_apply.coalesce_messages = off');
$publisher->poll_query_until('postgres',
	q(SELECT current_setting('parallel_apply.coalesce_messages') = 'off'))
  or die 'the setting is not read';
returns('a walsender that coalesces no more still asks for flushes',
	'SET synchronous_commit = on', $insert);
$subscriber->connect_again('tap');
$publisher->wait_for_sync_state('tap', 'sync');
returns('a session gets its flush where the walsender does not ask',
	'SET synchronous_commit = on', $insert);
$publisher->reload_with('parallel_apply.coalesce_messages = on');

# The apply worker itself commits synchronously in this case; writers do not.
$subscriber->reload_with('parallel_apply.leader_participation = off');
$subscriber->set_synchronous_commit('on');
$publisher->wait_for_sync_state('tap', 'sync');
returns('and if the subscription commits synchronously',
	'SET synchronous_commit = remote_apply', $insert);

$publisher->reload_with(q(synchronous_standby_names = ''));
$publisher->wait_applied;
kill 'CONT', $walwriter;
$subscriber->reload_with('parallel_apply.selftest_defer_flushes = off');

### a pool that stops

# Everything that the pool has committed is flushed when it stops: PostgreSQL's own
# apply does not know of these commits, and confirms all that was received before.
# No other process flushes: the walwriter is stopped until the crash, and two of
# three writers are stopped until the pool is closed; the third one exits after its
# commit.  Detects: the last transaction is lost.
$subscriber->set_synchronous_commit('off');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 3');
$subscriber->wait_for_pool('tap', 3);
my @others = ($subscriber->writer_pids('tap'))[ 0, 1 ];
$subscriber->stop_idle_writers(@others);
$subscriber->stop_walwriter;
my $lock = $subscriber->hold('LOCK TABLE history IN SHARE MODE');
my $end = $publisher->sql(
	"SET synchronous_commit = local; $insert; SELECT pg_current_wal_lsn()");
$subscriber->wait_for_state('waiting for lock');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 2');
$subscriber->wait_until(
	'writers_wanted = 2 FROM parallel_apply.subscriptions',
	'the third writer need not leave');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$subscriber->wait_until(
	q(state = 'stopping' FROM parallel_apply.subscriptions),
	'the pool does not stop');
my $receiver = $subscriber->apply_pid('tap');
$lock->release;
$subscriber->wait_until(
	"wait_event ILIKE 'BgWorkerShutdown' FROM pg_stat_activity WHERE pid = $receiver",
	'the pool is not closed');
kill 'CONT', @others;
$subscriber->wait_for_pool('tap', 0);
$publisher->poll_query_until('postgres',
	"SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'tap'"
) or die 'the last transaction is not confirmed';
my $log_offset = -s $subscriber->logfile;
kill $_, $walwriter for 'QUIT', 'CONT';
$subscriber->wait_for_log(qr/database system is ready to accept connections/,
	$log_offset);
$pair->tables_equal('after a crash behind the end of the pool', 'history');
finish($publisher, $subscriber,
	qr/FATAL: +the database system is (in recovery mode|not yet accepting)/);
done_testing();
