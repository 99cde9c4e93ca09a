# Promise: a streamed transaction that is applied in progress is the youngest of
# all.  It blocks nothing that serial apply would not block, whatever locks it
# holds or waits for.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(publisher_conf => q(logical_decoding_work_mem = 64kB));

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE history (n int);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY, note text);
	CREATE TABLE urgent (id int PRIMARY KEY);
	CREATE TABLE plain (id int PRIMARY KEY);
	CREATE TABLE twins (n int);
	ALTER TABLE twins REPLICA IDENTITY FULL;));

# Code that notices locks of others: an order takes the first job that is not
# locked, and an urgent one uses NOWAIT.
$subscriber->make_takers('orders');
$subscriber->sql(
	q(CREATE FUNCTION take_at_once() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.taken SELECT NEW.id, j.id FROM public.jobs j ORDER BY j.id LIMIT 1 FOR UPDATE NOWAIT;
		RETURN NEW;
	END $$;
	CREATE TRIGGER take AFTER INSERT ON urgent FOR EACH ROW EXECUTE FUNCTION take_at_once();
	ALTER TABLE urgent ENABLE ALWAYS TRIGGER take;));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO twins VALUES (1), (1);
	INSERT INTO jobs VALUES (1, 0), (2, 0), (3, 0);));

my @tables = qw(items gate history twins jobs orders urgent plain);

# For a statement that must not wait for long
my $soon =
  "SET lock_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'";

sub becomes_true
{
	my ($condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($subscriber->poll_query_until('postgres', "SELECT $condition"),
		$name);
}

sub value_of
{
	my ($column) = @_;
	return $subscriber->sql(
		"SELECT $column FROM parallel_apply.subscription_stats");
}

# A transaction that waits for a lock of this test is rolled back, so that following
# ones continue at once.
my $streamed = $publisher->background_psql('postgres');
my $lock = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 5 WHERE id = 2; UPDATE gate SET n = 5 WHERE id = 1;'
	  . item_rows(2000));
$subscriber->wait_for_state('waiting for lock');
$streamed->query_safe('ROLLBACK');
$publisher->sql('UPDATE gate SET n = 9 WHERE id = 2');
becomes_true('n = 9 FROM gate WHERE id = 2',
	'a rolled back transaction releases its locks, though it waits for one');
is(value_of('errors'), '0', 'a rollback of the publisher is no error');

# The same when apply is paused ...
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 6 WHERE id = 2; UPDATE gate SET n = 6 WHERE id = 1;'
	  . item_rows(2000));
$subscriber->wait_for_state('waiting for lock');
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$subscriber->sql("$soon; SELECT FROM gate WHERE id = 2 FOR UPDATE");
pass('a pause takes its locks, though it waits for one');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));

# ... and the pool stops.
$streamed->query_safe('ROLLBACK;');
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 7 WHERE id = 1;' . item_rows(2000));
$subscriber->wait_for_state('waiting for lock');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 0);
$publisher->sql('INSERT INTO history VALUES (1)');
becomes_true('count(*) = 1 FROM history',
	'a pool that stops does not wait for a lock');
$lock->query_safe('COMMIT');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after the pool has stopped', @tables);
$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
$publisher->sql('INSERT INTO history VALUES (2)');
$subscriber->wait_for_pool('tap', 4);

# A transaction that has ended is rolled back for a local session, though it waits
# for a lock itself.
$lock->query_safe('BEGIN; SELECT FROM gate WHERE id = 1 FOR UPDATE');
my $row = $subscriber->hold('SELECT FROM jobs WHERE id = 3 FOR UPDATE');
$streamed->query_safe(
	'BEGIN; UPDATE jobs SET n = 9 WHERE id = 2; UPDATE jobs SET n = 9 WHERE id = 3;'
	  . item_rows(2000));
$subscriber->wait_for_state('waiting for lock');
$publisher->sql('UPDATE gate SET n = 3 WHERE id = 1');
$subscriber->wait_for_state('waiting for lock', 2);
$streamed->query_safe('COMMIT');
becomes_true(q(queue_transactions = 2 FROM parallel_apply.subscriptions),
	'a streamed transaction has ended');
$subscriber->sql("$soon; UPDATE jobs SET n = n WHERE id = 2");
pass('a session gets a row of a streamed transaction that waits for a lock');
end_sessions($row);
$lock->query_safe('COMMIT');
$pair->tables_equal('after a session did not wait', @tables);

# Two streamed transactions, one of which waits for the other, and ends first
$streamed->query_safe(
	'BEGIN; DELETE FROM twins WHERE ctid = (SELECT min(ctid) FROM twins);'
	  . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
my $first = $publisher->background_psql('postgres');
$first->query_safe(
	'BEGIN; DELETE FROM twins WHERE ctid = (SELECT max(ctid) FROM twins);'
	  . item_rows(3000));
$subscriber->wait_for_state('waiting for lock');
$first->query_safe('COMMIT');
$publisher->sql('INSERT INTO history VALUES (3)');
becomes_true('count(*) = 1 FROM history WHERE n = 3',
	'one that has ended does not wait for one that has not');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after two that changed equal rows', @tables);

# The subscription changes: the transaction notices that before its end, whether it
# is busy ...
$lock->query_safe('BEGIN; SELECT FROM gate WHERE id = 1 FOR UPDATE');
my $second_lock =
  $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
my $late = value_of('streamed_from_file');
$streamed->query_safe('BEGIN; UPDATE gate SET n = 8 WHERE id = 1;'
	  . item_rows(500)
	  . 'UPDATE gate SET n = 8 WHERE id = 2;'
	  . item_rows(2000));
$subscriber->wait_for_state('waiting for lock');
$publisher->wait_received;
$subscriber->sql('ALTER SUBSCRIPTION tap SET (synchronous_commit = local)');
$lock->query_safe('COMMIT');
becomes_true(
	q(count(*) = 0 FROM parallel_apply.writers WHERE state <> 'idle'),
	'it is given up when the subscription changes');
$second_lock->query_safe('COMMIT');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after the subscription has changed', @tables);
is(value_of('streamed_from_file'), $late + 1, 'it was applied after its end');

# ... or waits for data.
$streamed->query_safe('BEGIN;' . item_rows(2000));
$subscriber->wait_for_in_progress(1500);
$publisher->wait_received;
$subscriber->wait_for_state('waiting for data');
$late = value_of('streamed_from_file');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (synchronous_commit = off)');
becomes_true(
	q(count(*) = 0 FROM parallel_apply.writers WHERE state <> 'idle'),
	'it notices that while it waits for data');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after the subscription has changed', @tables);
is(value_of('streamed_from_file'), $late + 1, 'it was applied after its end');

# One of the idle writers stays available.
my $in_progress = value_of('streamed_in_progress');
$streamed->query_safe('BEGIN;' . item_rows(2000));
$subscriber->wait_for_in_progress(1500);
$subscriber->reload_with(
	'parallel_apply.idle_writers_per_subscription = 1',
	'parallel_apply.writer_idle_timeout = 0');
$subscriber->poll_query_until('postgres',
	'SELECT count(pid) < 4 FROM parallel_apply.writers')
  or die 'no writer leaves';
$streamed->query_safe(item_rows(2000));
$subscriber->wait_for_in_progress(3000);
$publisher->sql('INSERT INTO history VALUES (4)');
$publisher->wait_applied;
$streamed->query_safe('COMMIT');
$pair->tables_equal('after writers have left', @tables);
is( value_of('streamed_in_progress'),
	$in_progress + 1,
	'it was applied in progress, and one writer stayed available');

### user code that would notice its locks

# A new pool of four writers, with these settings
sub restart_pool
{
	my (@settings) = @_;
	$subscriber->reload_with(@settings,
		'parallel_apply.writers_per_subscription = 1');
	$subscriber->wait_for_pool('tap', 0);
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
	$subscriber->wait_for_pool('tap', 4);
	return;
}
restart_pool('parallel_apply.idle_writers_per_subscription = 4');

# Assert that all are applied, and that these have taken the first job, and forget
# them.
sub first_job_is_taken
{
	my ($name, @ids) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	is( $subscriber->sql(
			q(SELECT string_agg(id || ' takes ' || job, ', ' ORDER BY id) FROM taken)
		),
		join(', ', map { "$_ takes 1" } @ids),
		$name);
	$subscriber->sql('TRUNCATE taken');
	return;
}

# Assert that this many more streamed transactions were applied in progress,
# and late.
sub streams_are
{
	my ($more_in_progress, $more_late, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->tables_equal($name, @tables);
	$in_progress += $more_in_progress;
	$late += $more_late;
	is( value_of(
			q(streamed_in_progress || ' in progress, ' || streamed_from_file || ' late')
		),
		"$in_progress in progress, $late late",
		$name);
	return;
}
($in_progress, $late) =
  (value_of('streamed_in_progress'), value_of('streamed_from_file'));

# It is rolled back before such code runs, even if that takes long.
$streamed->query_safe(
	'BEGIN; UPDATE jobs SET n = 1 WHERE id = 1;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
my $stopped = $subscriber->stop_in_progress_writer;
$publisher->sql('INSERT INTO orders VALUES (1)');
$publisher->sql('INSERT INTO urgent VALUES (2)');
$subscriber->wait_for_state('waiting for prior commit');
kill 'CONT', $stopped;
first_job_is_taken('a trigger does not notice its locks', 1, 2);
$streamed->query_safe('COMMIT');
streams_are(0, 1, 'after a trigger');

# No streamed transaction is begun while such a transaction is in the queue.  One
# may begin when it is committed.
$lock->query_safe('BEGIN; SELECT FROM gate WHERE id = 1 FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 1');
$publisher->sql('INSERT INTO orders VALUES (3)');
$streamed->query_safe(
	'BEGIN; UPDATE jobs SET n = 2 WHERE id = 1;' . item_rows(2000));
$publisher->sql('INSERT INTO history VALUES (5)');
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'nothing is applied in progress while such a trigger is queued');
$lock->query_safe('COMMIT');
first_job_is_taken('a trigger finds what it would find', 3);
$streamed->query_safe(item_rows(2000));
$subscriber->wait_for_in_progress(2000);
$streamed->query_safe('COMMIT');
streams_are(1, 0, 'after it could begin');

# A streamed transaction has ended after another one, whose table gets such a
# trigger later.  It is rolled back too, and so is a second one that has not ended.
# The last rows may come behind the transaction with the trigger, and then depend on
# it, or before it.
$streamed->query_safe(
	'BEGIN; UPDATE jobs SET n = 3 WHERE id = 1;' . item_rows(2000));
$subscriber->wait_for_in_progress(1000);
$first->query_safe(
	'BEGIN; UPDATE jobs SET n = 3 WHERE id = 2;' . item_rows(2000));
$subscriber->wait_for_in_progress(1000, 2);
$lock->query_safe('BEGIN; SELECT FROM gate WHERE id = 1 FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 1');
$publisher->sql(
	'BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO plain VALUES (4); COMMIT'
);
$streamed->query_safe('COMMIT');
becomes_true(
	"streamed_in_progress = $in_progress + 1 FROM parallel_apply.subscription_stats",
	'one has ended');
becomes_true(
	q(string_agg(state, ', ' ORDER BY state) IN
		('waiting for data, waiting for dependency, waiting for dependency, waiting for lock',
		'waiting for data, waiting for dependency, waiting for lock, waiting for prior commit')
	FROM parallel_apply.writers),
	'it waits behind a table that has no trigger');
$subscriber->sql(
	q(CREATE TRIGGER take AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION take();
	ALTER TABLE plain ENABLE ALWAYS TRIGGER take;));
$lock->query_safe('COMMIT');
first_job_is_taken('a new trigger does not notice the locks of younger ones',
	4);
$first->query_safe('COMMIT');
streams_are(1, 1, 'after a new trigger');

# The same if the core apply loop has to apply the transaction, because a
# message is larger than the queue
restart_pool('parallel_apply.queue_size = 64kB');
$streamed->query_safe(
	'BEGIN; UPDATE jobs SET n = 4 WHERE id = 1;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$stopped = $subscriber->stop_in_progress_writer;
$publisher->sql(q(INSERT INTO orders VALUES (5, repeat('x', 100000))));
becomes_true('queue_transactions = 1 FROM parallel_apply.subscriptions',
	'a transaction has begun');
my $apply_pid = $subscriber->apply_pid('tap');
becomes_true(
	"wait_event = 'LogicalApplyMain' FROM pg_stat_activity WHERE pid = $apply_pid",
	'the core apply loop waits') for 1 .. 2;
kill 'CONT', $stopped;
first_job_is_taken('nor does a trigger in the core apply loop', 5);
$streamed->query_safe('COMMIT');
streams_are(0, 1, 'after the core apply loop');
is(value_of('fallback_message'), 1, 'a message was larger than the queue');

# The pool is about to stop, and a streamed transaction has ended, which is to be
# applied then.  Nothing of it is confirmed before.  It would be applied at once if
# there were not another one, whose process is stopped.  Detects: it is lost when
# the apply worker exits in the middle.
$lock->query_safe('BEGIN; SELECT FROM gate WHERE id = 1 FOR UPDATE');
$second_lock->query_safe('BEGIN; LOCK TABLE history IN SHARE MODE');
$first->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$stopped = $subscriber->stop_in_progress_writer;
$streamed->query_safe(
	'BEGIN;' . item_rows(1000) . 'INSERT INTO history VALUES (6)');
$publisher->sql('UPDATE gate SET n = 100 WHERE id = 1');
becomes_true(
	q(count(*) > 0 FROM parallel_apply.writers WHERE state = 'waiting for lock' AND remote_lsn IS NOT NULL),
	'an older one waits for a lock');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
becomes_true(q(state = 'stopping' FROM parallel_apply.subscriptions),
	'the pool is about to stop');
$streamed->query_safe('COMMIT');
my $end = $publisher->wait_for_answer('tap');
$lock->query_safe('COMMIT');
becomes_true('n = 100 FROM gate WHERE id = 1', 'the older one is committed');
kill 'CONT', $stopped;
becomes_true(
	q(count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE NOT granted AND relation = 'history'::regclass
	AND backend_type LIKE 'logical replication%'),
	q(PostgreSQL's own apply has begun with the streamed one));

# The walsender reads what the apply worker has sent before it sends more.
$publisher->flush_wal;
$publisher->wait_for_catchup('tap', 'sent');
is( $publisher->sql(
		"SELECT confirmed_flush_lsn < '$end' FROM pg_replication_slots WHERE slot_name = 'tap'"
	),
	't',
	'a transaction that has ended is not confirmed before it is applied');
is( $subscriber->sql(
		"SELECT received_lsn < '$end' FROM parallel_apply.subscriptions"),
	't',
	'nor is it received before it is read from its file');
$subscriber->restart_apply('tap');
$second_lock->query_safe('COMMIT');
$first->query_safe('COMMIT');
$pair->tables_equal('after the apply worker was terminated behind its end',
	@tables);

end_sessions($streamed, $first, $lock, $second_lock);
finish($publisher, $subscriber, worker_terminated());
done_testing();
