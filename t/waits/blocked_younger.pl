# Promise: an older transaction does not wait for whatever blocks a younger one.
#
# Each time the older one waits in the lock manager for a younger one, which is
# itself waiting there, for a local session or a prepared transaction, and therefore
# cannot notice that it has to roll back; or the older one fails because of rows of
# the younger one.  Serial apply would not have begun the younger one.
#
# A row that is only inserted may be put off, and nothing can wait for it then.  One that is
# updated has been inserted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10),
	subscriber_conf => q(
		max_prepared_transactions = 10
		parallel_apply.max_batch_transactions = 1));
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE names (id int PRIMARY KEY, name text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY);
	CREATE TABLE slow (door int PRIMARY KEY);));
my @tables = qw(gate items names jobs orders slow);

# The publisher does not have these.
$subscriber->sql(
	q(CREATE UNIQUE INDEX ON names (lower(name));
	CREATE FUNCTION lock_job(job int) RETURNS boolean LANGUAGE plpgsql AS
		$$BEGIN PERFORM FROM public.jobs WHERE id = job FOR UPDATE NOWAIT; RETURN true; END$$;
	ALTER TABLE orders ADD CHECK (lock_job(id));));
$subscriber->make_doors;
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE ' . join(', ', @tables),
	with => 'streaming = on, two_phase = on, disable_on_error = on');
$subscriber->poll_query_until('postgres',
	q(SELECT subtwophasestate = 'e' FROM pg_subscription))
  or die 'two_phase is not enabled';
$subscriber->wait_for_pool('tap');
$publisher->sql("INSERT INTO $_ VALUES (1, 0), (2, 0)") for qw(gate jobs);
$publisher->sql("INSERT INTO names VALUES (1, 'a')");
$publisher->wait_applied;
my $apply_pid = $subscriber->apply_pid('tap');

# For a row that a local session has locked
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $other = $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO names VALUES (20, 'x'); COMMIT;
		DELETE FROM names WHERE id = 20;
		BEGIN; INSERT INTO names VALUES (21, '-'); UPDATE names SET name = 'X' WHERE id = 21; UPDATE gate SET n = n + 1 WHERE id = 2; COMMIT;)
	);
	$subscriber->states_become(
		'waiting for lock, waiting for dependency, waiting for lock',
		'the younger one waits for a local session');
	$gate->query_safe('COMMIT');
	$subscriber->wait_until('n = 1 FROM gate WHERE id = 1',
		'the older one waits for the session, too');
	$other->query_safe('COMMIT');
	$_->quit for $gate, $other;
	$pair->tables_equal('after a younger one that waited for a session',
		@tables);
}

# For a prepared transaction, which is committed between the two
{
	$publisher->sql(
		q(BEGIN; DELETE FROM names WHERE id = 1; PREPARE TRANSACTION 'p'));
	$publisher->wait_applied;
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = n + 1; INSERT INTO names VALUES (30, 'y'); DELETE FROM names WHERE id = 30; COMMIT;
		COMMIT PREPARED 'p';
		BEGIN; INSERT INTO names VALUES (31, 'Y'); INSERT INTO names VALUES (10, 'A'); COMMIT;)
	);
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit, waiting for lock',
		'the younger one waits for a prepared transaction');
	$gate->release;
	$subscriber->wait_until('count(*) = 1 FROM names WHERE id = 10',
		'they wait for each other');
	$pair->tables_equal('after a younger one that waited for a prepared one',
		@tables);
}

# A streamed transaction that has not ended
{
	my $other = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $streamed =
	  $pair->begin_streamed(
		q(INSERT INTO names VALUES (41, '-'); UPDATE names SET name = 'Z' WHERE id = 41; UPDATE gate SET n = 1 WHERE id = 1;)
		  . item_rows(3000));
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql(
		q(INSERT INTO names VALUES (40, 'z'); DELETE FROM names WHERE id = 40; UPDATE gate SET n = 7 WHERE id = 2;)
	);
	$subscriber->wait_until('n = 7 FROM gate WHERE id = 2',
		'others wait for the streamed one');
	$streamed->query_safe('COMMIT');
	$other->query_safe('COMMIT');
	$_->quit for $streamed, $other;
	$pair->tables_equal('after a streamed one that waited for a session',
		@tables);
}

# For nothing: its rows take long.  It is rolled back before the next row.
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = 9 WHERE id = 1; INSERT INTO names VALUES (50, 'w'); COMMIT;
		DELETE FROM names WHERE id = 50;
		BEGIN; INSERT INTO names VALUES (51, 'W'); INSERT INTO slow VALUES (1), (2); COMMIT;)
	);
	$subscriber->states_become(
		'waiting for lock, waiting for dependency, applying',
		'the younger one is being applied');
	$gate->release;
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '200 ms'),
		'the older one does not wait for it');
	$subscriber->sql('INSERT INTO open_doors VALUES (1)');
	$subscriber->wait_until('n = 9 FROM gate WHERE id = 1',
		'the older one waits until the younger one is applied');
	$subscriber->sql('INSERT INTO open_doors VALUES (2)');
	$pair->tables_equal('after a younger one whose rows took long', @tables);
}

# The only process that can notice this is a third writer, which applies what is younger, too.
# It has to roll back as well, since the older one also needs a row that this one has locked.
{
	$subscriber->sql(
		q(SELECT parallel_apply.alter_subscription_config('tap', 3)));
	$subscriber->wait_for_pool('tap', 3);
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $other = $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = 11 WHERE id = 1; INSERT INTO names VALUES (60, 'v'); DELETE FROM names; INSERT INTO orders VALUES (2); COMMIT;
		BEGIN; INSERT INTO names VALUES (61, '-'); UPDATE names SET name = 'V' WHERE id = 61; UPDATE gate SET n = n + 1 WHERE id = 2; COMMIT;
		BEGIN; UPDATE jobs SET n = n + 1 WHERE id = 2; INSERT INTO slow VALUES (3), (4); COMMIT;)
	);
	$subscriber->states_become('waiting for lock, waiting for lock, applying',
		'all writers apply something');
	$subscriber->stop_waiting($apply_pid,
		'Extension,ParallelApplyWork,LogicalApplyMain');
	$gate->release;
	$subscriber->wait_until(
		q(EXISTS (SELECT FROM pg_locks a, pg_locks b WHERE NOT a.granted AND NOT b.granted
		AND b.pid = ANY (pg_blocking_pids(a.pid)) AND a.waitstart < clock_timestamp() - interval '200 ms')),
		'the older one does not wait for a younger one');
	my $pid = $subscriber->sql(
		q(SELECT pid FROM parallel_apply.writers WHERE state = 'applying'));
	my $xid = $subscriber->sql(
		"SELECT backend_xid FROM pg_stat_activity WHERE pid = $pid");
	$subscriber->sql('INSERT INTO open_doors VALUES (3)');
	$subscriber->wait_until(
		"backend_xid IS DISTINCT FROM '$xid'::xid FROM pg_stat_activity WHERE pid = $pid",
		'the one that noticed it does not roll back');
	kill 'CONT', $apply_pid;
	$other->release;
	$subscriber->sql('INSERT INTO open_doors VALUES (4)');
	$pair->tables_equal('after one that noticed the wait', @tables);
	$subscriber->sql(
		q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
	$subscriber->wait_for_pool('tap', 4);
}

# The older one does not wait but fails, finally in the core apply loop.
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO orders VALUES (1); COMMIT;
		UPDATE jobs SET n = n + 1 WHERE id = 1;));
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit',
		'the younger one has locked what the older one wants');
	$gate->release;
	$pair->tables_equal('after one that failed for what a younger one held',
		@tables);
	cmp_ok($subscriber->counter('fallbacks'),
		'>', 0, 'which the core apply loop has done, alone');
}

is($subscriber->apply_pid('tap'),
	$apply_pid, 'by the same apply worker all the time');
$subscriber->nothing_is_left_open;
finish($publisher, $subscriber);
done_testing();
