# Promise: user code notices no lock of a younger transaction, even if the code was
# unknown when that transaction began.
#
# A trigger takes the first job that is not locked, or records whether it got a
# lock.  It is created after the transaction that fires it, and a younger one that
# has locked the first job, have been applied.  The younger one waits for its turn,
# since the older one waits for a local session's lock on a row of the table gate.
# Detects: the trigger runs concurrently with the younger transaction, and takes the
# second job.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'logical_decoding_work_mem = 64kB',
	subscriber_conf => q(
		log_min_messages = debug1
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1));
my @tables = qw(gate jobs orders late);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE jobs (id int PRIMARY KEY, n int);
	CREATE TABLE orders (id int PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY);));
$subscriber->sql(
	q(CREATE TABLE taken (id int, job int);
	CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.taken SELECT NEW.id, j.id
			FROM public.jobs j ORDER BY j.id LIMIT 1 FOR UPDATE SKIP LOCKED;
		RETURN NEW;
	END $$;));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE gate, jobs, orders',
	with => 'streaming = on');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO jobs VALUES (1, 0), (2, 0);));

my $lock = 'waiting for lock';
my $turn = 'waiting for prior commit';

sub create_trigger
{
	$subscriber->sql(
		q(CREATE TRIGGER take AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION take();
		ALTER TABLE orders ENABLE ALWAYS TRIGGER take;));
	return;
}

# Assert that the order with that number has taken the first job; and drop the
# trigger.
sub takes_first_job
{
	my ($order, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->tables_equal($name, @tables);
	is($subscriber->sql("SELECT job FROM taken WHERE id = $order"),
		'1', "it takes the first job, $name");
	$subscriber->sql('DROP TRIGGER take ON orders');
	return;
}

# By a writer
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO orders VALUES (1)',
		'UPDATE jobs SET n = n + 1 WHERE id = 1');
	$subscriber->states_become("$lock, $turn",
		'a younger transaction has locked a job');
	create_trigger();
	$gate->release;
	takes_first_job(1, 'where a writer fires a new trigger');
	is($subscriber->counter('fallbacks'), '0', 'without the core apply loop');
}

# By the core apply loop, because the subscription has changed
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $second =
	  $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1 WHERE id = 1',
		'UPDATE gate SET n = n + 1 WHERE id = 2; INSERT INTO orders VALUES (2)',
		'UPDATE jobs SET n = n + 1 WHERE id = 1');
	$subscriber->states_become("$lock, $lock, $turn",
		'a younger transaction has locked a job behind two');
	create_trigger();
	$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = '7F000000/0')));
	$_->query_safe('COMMIT') for $second, $gate;
	$_->quit for $second, $gate;
	takes_first_job(2,
		'where the core apply loop fires it because a writer was refused');
	is($subscriber->counter('fallbacks'), '1', 'with the core apply loop');
}

# Nothing younger is applied with what a writer was refused, even if it runs no user code.
# The apply worker waits for a local session, which has waited for the writer.
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $second =
	  $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
	$publisher->commit_each(
		(map { "UPDATE gate SET n = n + 1 WHERE id = $_" } 1, 2),
		'UPDATE jobs SET n = n + 1 WHERE id = 1');
	$subscriber->states_become("$lock, $lock, $turn",
		'a younger transaction has locked a job again');
	$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = '7F000001/0')));
	my $third = $subscriber->background_psql('postgres');
	$third->query_until(qr/begins/,
		"BEGIN;\n\\echo begins\nLOCK TABLE gate IN EXCLUSIVE MODE;\n");
	my $waiting =
	  q(count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type);
	$subscriber->wait_until("$waiting = 'client backend'",
		'the session does not wait');
	$_->query_safe('COMMIT') for $second, $gate;
	$subscriber->wait_until(
		"$waiting LIKE 'logical replication%worker'",
		'the apply worker does not wait for the session');
	is( $subscriber->sql(
			'SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED'),
		'1',
		'the younger transaction is rolled back');
	$third->query_safe('COMMIT');
	$_->quit for $second, $gate, $third;
	$pair->tables_equal('after a transaction that a writer was refused',
		@tables);
}

# By the core apply loop, because a table is being synchronized; it has already
# begun.
{
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE late');
	my $copy = $publisher->hold('SELECT pg_current_xact_id()');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_until(
		q(srsubstate = 'd' FROM pg_subscription_rel WHERE srrelid = 'late'::regclass),
		'the copy does not begin');
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $second =
	  $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1 WHERE id = 1',
		'INSERT INTO late VALUES (1); UPDATE gate SET n = n + 1 WHERE id = 2;
		INSERT INTO orders VALUES (3)',
		'UPDATE jobs SET n = n + 1 WHERE id = 1');
	$subscriber->states_become(
		"$lock, $turn",
		'a younger transaction has locked a job behind one that is for the core apply loop'
	);
	$gate->query_safe('COMMIT');
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity
		WHERE backend_type LIKE 'logical replication%worker' AND wait_event_type = 'Lock'
		AND pid IN (SELECT pid FROM pg_stat_subscription WHERE relid IS NULL)),
		'the core apply loop does not wait');
	create_trigger();
	$second->query_safe('COMMIT');
	$_->quit for $gate, $second;
	$subscriber->wait_until('count(*) = 1 FROM taken WHERE id = 3',
		'the trigger does not fire');
	$copy->release;
	$subscriber->wait_until_ready;
	takes_first_job(3,
		'where the core apply loop has begun before there is one');
}

# A transaction that may not begin before its turn, although it runs no user code, has the
# time of its claim, as the next one does: now() does not decrease.
{
	$pair->exec_both('CREATE TABLE stamped (id int PRIMARY KEY)');
	$subscriber->sql('ALTER TABLE stamped ADD at timestamptz DEFAULT now()');
	$publisher->sql('INSERT INTO gate VALUES (3, 0)');
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE stamped');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_until_ready;
	my @gates =
	  map { $subscriber->hold("SELECT FROM gate WHERE id = $_ FOR UPDATE") }
	  1 .. 3;
	my $update = 'UPDATE gate SET n = n + 1 WHERE id';
	$publisher->commit_each(
		"$update = 1; INSERT INTO orders VALUES (4); $update = 2",
		"UPDATE jobs SET n = n + 1 WHERE id = 1; $update = 3");
	$subscriber->states_become("$lock, $lock",
		'a younger transaction has locked a job');
	create_trigger();
	$gates[0]->release;
	$subscriber->states_become("$lock, $turn", 'and is rolled back');
	$publisher->sql('INSERT INTO stamped VALUES (1)');
	$subscriber->states_become("$lock, $turn, $turn",
		'another one does not begin');
	$gates[1]->release;
	$subscriber->states_become("$lock, $turn", 'the first one has committed');
	$publisher->sql('INSERT INTO stamped VALUES (2)');
	$subscriber->states_become("$lock, $turn, $turn", 'the last one begins');
	$gates[2]->release;
	takes_first_job(4, 'while others may not begin');
	is( $subscriber->sql(
			'SELECT a.at <= b.at FROM stamped a, stamped b WHERE a.id = 1 AND b.id = 2'
		),
		't',
		'now() does not decrease');
}

# The transaction before it has committed, but still has its locks (selftest_commit.c).
# One that begins then waits for it, whether a writer or the apply worker applies it, and
# is woken.
$pair->exec_both(
	q(CREATE TABLE plain (id int PRIMARY KEY);
	CREATE TABLE takers (id int PRIMARY KEY);));
$subscriber->sql(
	q(CREATE FUNCTION hold_commit(int) RETURNS bool LANGUAGE C IMMUTABLE
		AS 'parallel_apply', 'papply_selftest_hold_commit';
	ALTER TABLE plain ADD CHECK (hold_commit(id) IS NOT NULL);
	CREATE TABLE got (id int, lock bool);
	CREATE FUNCTION take_lock() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			LOCK TABLE public.plain IN EXCLUSIVE MODE NOWAIT;
			INSERT INTO public.got VALUES (NEW.id, true);
		EXCEPTION WHEN lock_not_available THEN
			INSERT INTO public.got VALUES (NEW.id, false);
		END;
		RETURN NEW;
	END $$;
	CREATE TRIGGER take AFTER INSERT ON takers FOR EACH ROW EXECUTE FUNCTION take_lock();
	ALTER TABLE takers ENABLE ALWAYS TRIGGER take;));
$publisher->sql('ALTER PUBLICATION tap ADD TABLE plain, takers');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
# The apply worker and writers know the tables.
$publisher->sql(
	'INSERT INTO takers VALUES (0); INSERT INTO plain VALUES (0)');
$publisher->wait_applied;
$subscriber->create_selftest_waits;
my $file = $subscriber->data_dir . '/hold_commit';
for my $process ('writer', 'apply worker')
{
	my $id = $process eq 'writer' ? 1 : 2;
	$subscriber->reload_with('parallel_apply.selftest_sleep = 10min');
	append_to_file($file, '');
	$publisher->sql("INSERT INTO plain VALUES ($id)");
	$subscriber->wait_until("max(id) = $id FROM plain", 'it is not visible');
	$subscriber->reload_with(
		'parallel_apply.leader_participation = on',
		'parallel_apply.selftest_fast = on',
		'parallel_apply.selftest_receiver_sleeps = on'
	) if $process ne 'writer';
	$publisher->sql("INSERT INTO takers VALUES ($id)");
	$subscriber->wait_until(
		'queue_transactions = 1 FROM parallel_apply.subscriptions',
		"the $process does not wait");
	$subscriber->becomes_quiet("nothing wakes a writer before", 64);
	unlink $file or die "$file: $!";
	$pair->tables_equal("after a commit that the $process has waited for",
		@tables, 'plain', 'takers');
	is($subscriber->sql("SELECT lock FROM got WHERE id = $id"),
		't', 'its locks are released before the trigger runs');
}

# The same where the apply worker has to apply a streamed transaction that a writer has
# failed to apply before its end.
$pair->exec_both(
	'CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text)');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE items');
$subscriber->reload_with(
	'parallel_apply.leader_participation = off',
	'parallel_apply.selftest_receiver_sleeps = off',
	'parallel_apply.selftest_sleep = 0');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
$subscriber->make_fault;
my $streamed = $pair->begin_streamed(
	item_rows(2000) . 'INSERT INTO items VALUES (0, -1);' . item_rows(2000));
ok( $subscriber->wait_for_log(qr/is rolled back: new row/),
	'a writer fails to apply a streamed transaction');
$subscriber->repair_fault;
$subscriber->reload_with(
	'parallel_apply.selftest_receiver_sleeps = on',
	'parallel_apply.selftest_sleep = 10min');
$streamed->query_safe('INSERT INTO takers VALUES (3)');
append_to_file($file, '');
$publisher->sql('INSERT INTO plain VALUES (3)');
$subscriber->wait_until('max(id) = 3 FROM plain', 'it is not visible');
$streamed->release;
$publisher->wait_for_catchup('tap', 'sent');
$subscriber->becomes_quiet("nothing happens while a writer has its locks",
	64);
unlink $file or die "$file: $!";
$pair->tables_equal('after a commit that a streamed one has waited for',
	@tables, 'plain', 'takers', 'items');
is($subscriber->sql('SELECT lock FROM got WHERE id = 3'),
	't', 'its locks are released before the trigger runs');

finish($publisher, $subscriber);
done_testing();
