# Promise: an operator sees what happens: which writer does what or waits for what,
# how much was done, and how far the subscription is.  The publisher gets true
# positions: none is confirmed before everything up to it is committed.
#
# Locks of a session on the subscriber hold the states: the first transaction waits
# for the lock, the others for it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	parallel_apply.max_batch_transactions = 1
	wal_receiver_status_interval = 1s
	CONF

$pair->exec_both(
	q(CREATE TABLE locked (id int PRIMARY KEY, v int);
	CREATE TABLE free (id int PRIMARY KEY, v int);
	CREATE TABLE counted (id int PRIMARY KEY, v int);));
$publisher->sql('CREATE TABLE unpublished (v text)');
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE locked, free, counted',
	with => 'streaming = off');
$subscriber->wait_for_pool('tap', 4);

my $writers = q(parallel_apply.writers WHERE subname = 'tap');
my $standby = q(pg_stat_replication WHERE application_name = 'tap');

sub poll
{
	my ($node, $query, $name, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', $query, $expected), $name);
}

# Commit a transaction on the publisher; return its id and the end of its commit.
sub commit
{
	my ($sql) = @_;
	my $xid = $publisher->sql(
		"BEGIN; $sql; SELECT pg_current_xact_id()::xid; COMMIT");
	return ($xid, $publisher->sql('SELECT pg_current_wal_insert_lsn()'));
}

### names

is( $subscriber->sql(
		q(SELECT w.writer, w.subname, w.state, w.remote_xid IS NULL, w.remote_lsn IS NULL
		FROM parallel_apply.writers w
		JOIN pg_subscription s ON s.oid = w.subid
		JOIN pg_stat_activity a ON a.pid = w.pid
			AND a.datname = current_database()
			AND a.backend_type = 'parallel_apply writer'
			AND a.application_name = format('parallel_apply writer %s:%s', s.oid, w.writer)
		ORDER BY w.writer)),
	join("\n", map { "$_|tap|idle|t|t" } 1 .. 4),
	'each writer is in pg_stat_activity by its name, and idle');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%'
		AND state = 'idle' AND query = '')),
	'4',
	'and shows no table while it does nothing');

### states

my $before_lsn = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
my $lock = $subscriber->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');

my ($lock_xid, $lock_lsn) = commit('INSERT INTO locked VALUES (1, 1)');
my ($turn_xid, $turn_lsn) = commit('INSERT INTO free VALUES (1, 1)');
my ($row_xid, $row_lsn) = commit('UPDATE free SET v = 2 WHERE id = 1');
poll(
	$subscriber,
	"SELECT string_agg(remote_xid || ' ' || state, ', ' ORDER BY remote_lsn) FROM $writers AND state <> 'idle'",
	'writers wait for the lock, for their turn, and for an older transaction with the same row',
	"$lock_xid waiting for lock, $turn_xid waiting for prior commit, $row_xid waiting for dependency"
);
is( $subscriber->sql(
		"SELECT array_agg(remote_lsn > '$before_lsn' AND remote_lsn < CASE remote_xid
			WHEN '$lock_xid' THEN '$lock_lsn' WHEN '$turn_xid' THEN '$turn_lsn'
			ELSE '$row_lsn' END::pg_lsn ORDER BY writer)
		FROM $writers AND remote_xid IS NOT NULL"),
	'{t,t,t}',
	'remote_lsn is where the transaction was committed on the publisher');
poll(
	$subscriber,
	"SELECT string_agg(a.wait_event_type, ',' ORDER BY w.remote_lsn)
	FROM (SELECT * FROM $writers) w JOIN pg_stat_activity a USING (pid)
	WHERE remote_xid IS NOT NULL",
	'pg_stat_activity shows the lock wait and the waits of the extension',
	'Lock,Extension,Extension');
is( $subscriber->sql(
		"SELECT a.state, a.query = 'public.free ' || w.remote_lsn FROM (SELECT * FROM $writers) w
		JOIN pg_stat_activity a USING (pid) WHERE w.remote_xid = '$turn_xid'"),
	'active|t',
	'and the table whose rows are changed, with the position of the commit');

### positions while something is blocked

poll(
	$publisher,
	"SELECT write_lsn >= '$row_lsn' FROM $standby",
	'the publisher gets the received position');
is( $publisher->sql(
		"SELECT flush_lsn < '$lock_lsn', replay_lsn < '$lock_lsn' FROM $standby"
	),
	't|t',
	'but neither flush nor replay of a transaction that waits for a lock');
is( $publisher->sql(
		"SELECT confirmed_flush_lsn < '$lock_lsn' FROM pg_replication_slots WHERE slot_name = 'tap'"
	),
	't',
	'nor does its slot get beyond it');
poll(
	$subscriber,
	"SELECT received_lsn >= '$row_lsn' FROM pg_stat_subscription WHERE subname = 'tap' AND relid IS NULL",
	'pg_stat_subscription shows what was received');
is($subscriber->sql('SELECT count(*) FROM free'),
	'0', 'no transaction overtakes the one that waits');

$lock->release;
$publisher->wait_applied;
poll(
	$publisher,
	"SELECT flush_lsn >= '$row_lsn' AND replay_lsn >= '$row_lsn' FROM $standby",
	'all positions reach the end when the lock is released');
poll(
	$subscriber,
	"SELECT latest_end_lsn >= '$row_lsn' FROM pg_stat_subscription WHERE subname = 'tap' AND relid IS NULL",
	'pg_stat_subscription shows what was reported');
poll(
	$subscriber,
	"SELECT count(*) FROM $writers AND state = 'idle' AND remote_xid IS NULL AND remote_lsn IS NULL",
	'all writers are idle again',
	'4');
is( $subscriber->sql(
		"SELECT last_msg_send_time > now() - interval '1 minute'
		AND last_msg_receipt_time > now() - interval '1 minute'
		AND latest_end_time > now() - interval '1 minute'
		FROM pg_stat_subscription WHERE subname = 'tap' AND relid IS NULL"),
	't',
	'the times in pg_stat_subscription are those of the last messages');

### positions without load

my (undef, $unpublished_lsn) =
  commit(
	q(INSERT INTO unpublished SELECT repeat('x', 1000) FROM generate_series(1, 1000))
  );
poll(
	$publisher,
	"SELECT confirmed_flush_lsn >= '$unpublished_lsn' FROM pg_replication_slots WHERE slot_name = 'tap'",
	'the slot follows WAL that has nothing for the subscription');

### counters

my ($transactions, $rows) =
  map { $subscriber->counter($_) } qw(transactions rows);
is("$transactions $rows", '3 3', 'what was done so far is counted');
my $log_offset = -s $subscriber->logfile;
my $sql = '';
$sql .= "INSERT INTO counted VALUES ($_, 0);\n" for 1 .. 30;
$sql .= "UPDATE counted SET v = v + 1 WHERE id = $_;\n" for 1 .. 20;
$sql .= "DELETE FROM counted WHERE id = $_;\n" for 1 .. 10;
$sql .= 'INSERT INTO counted SELECT i, i FROM generate_series(101, 200) i;';
$publisher->sql($sql);
$publisher->wait_applied;
poll(
	$subscriber,
	"SELECT sum(transactions) FROM $writers",
	'each transaction is counted once',
	$transactions + 61);
poll(
	$subscriber,
	"SELECT sum(rows) FROM $writers",
	'and each of the rows changed in them',
	$rows + 160);
is( $subscriber->sql(
		"SELECT sum(fallbacks), sum(commit_order_aborts) FROM $writers"),
	'0|0',
	'nothing went wrong');
poll(
	$subscriber,
	q(SELECT format('%s %s %s', n_tup_ins, n_tup_upd, n_tup_del)
	FROM pg_stat_user_tables WHERE relname = 'counted'),
	'pg_stat_user_tables counts the applied rows',
	'130 20 10');
$pair->rows_equal($_) for qw(locked free counted);

### privileges

$subscriber->sql(
	'CREATE ROLE monitor IN ROLE pg_monitor; CREATE ROLE outsider;');
is( $subscriber->sql(
		'SET ROLE monitor; SELECT count(*), count(subname), count(pid) FROM parallel_apply.writers'
	),
	'4|4|4',
	'a member of pg_monitor sees all writers');
is( $subscriber->sql(
		'SET ROLE outsider; SELECT count(*) FROM parallel_apply.writers'),
	'0',
	'others do not');

### names that a change of settings affects

# In a trigger, or after a reload that a writer has noticed when it applies what
# follows
$subscriber->sql(
	q(CREATE TABLE names (name text);
	CREATE FUNCTION named() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.names VALUES (current_setting('application_name'));
		PERFORM set_config('application_name', 'trigger', true);
		RETURN NEW;
	END $$;
	CREATE TRIGGER named BEFORE UPDATE ON free FOR EACH ROW EXECUTE FUNCTION named();
	ALTER TABLE free ENABLE ALWAYS TRIGGER named;));
my $named =
  q(SELECT bool_and(a.application_name = format('parallel_apply writer %s:%s', w.subid, w.writer)) FROM parallel_apply.writers w
	JOIN pg_stat_activity a USING (pid) WHERE w.state = 'idle' HAVING count(*) = 4);
$publisher->sql('UPDATE free SET v = 3');
$publisher->wait_applied;
poll($subscriber, $named, 'a trigger does not take its name from a writer');
$subscriber->reload_with("application_name = 'reloaded'");
do
{
	$publisher->sql('UPDATE free SET v = v + 1');
	$publisher->wait_applied;
} until $subscriber->sql(
	q(SELECT count(*) > 0 FROM names WHERE name = 'reloaded')) eq 't';
poll($subscriber, $named, 'nor does a reload');

### log

my @pids = ($subscriber->apply_pid('tap'), $subscriber->writer_pids('tap'));
my $pids = join '|', @pids;
is( join("\n",
		grep { /\[($pids)\]/ } split /\n/,
		slurp_file($subscriber->logfile, $log_offset)),
	'',
	'neither apply worker nor writers log anything while transactions are applied'
);

$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
poll(
	$subscriber,
	q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%'),
	'the writers leave when the subscription is disabled');
poll(
	$subscriber,
	'SELECT count(*) FROM parallel_apply.writers',
	'the view is empty then', '0');
$subscriber->wait_for_log(
	qr/parallel apply of subscription "tap" has stopped/);
is( join("\n",
		slurp_file($subscriber->logfile) =~
		  /LOG:  (parallel apply of subscription .*)/g),
	qq(parallel apply of subscription "tap" has started with 4 writers\n)
	  . 'parallel apply of subscription "tap" has stopped',
	'the log has one line for the start of the pool, and one for its end');

finish($publisher, $subscriber);
done_testing();
