# Promise: an older transaction does not wait for whatever blocks a younger one.
#
# Each time the older one waits in the lock manager for a younger one, which is
# itself waiting there, for a local session or a prepared transaction, and therefore
# cannot notice that it has to roll back; or the older one fails because of rows of
# the younger one.  Serial apply would not have begun the younger one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10),
	subscriber_conf => q(
		max_prepared_transactions = 10
		parallel_apply.max_batch_transactions = 1));
exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE names (id int PRIMARY KEY, name text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY);));
my @tables = qw(gate items names jobs orders);

# The publisher does not have these.
on_subscriber(
	q(CREATE UNIQUE INDEX ON names (lower(name));
	CREATE FUNCTION lock_job(job int) RETURNS boolean LANGUAGE plpgsql AS
		$$BEGIN PERFORM FROM public.jobs WHERE id = job FOR UPDATE NOWAIT; RETURN true; END$$;
	ALTER TABLE orders ADD CHECK (lock_job(id));));
create_extension($subscriber);
subscribe(
	$publisher, $subscriber, 'tap',
	publication => 'FOR TABLE ' . join(', ', @tables),
	with => 'streaming = on, two_phase = on, disable_on_error = on');
$subscriber->poll_query_until('postgres',
	q(SELECT subtwophasestate = 'e' FROM pg_subscription))
  or die 'two_phase is not enabled';
wait_for_pool($subscriber, 'tap');
on_publisher("INSERT INTO $_ VALUES (1, 0), (2, 0)") for qw(gate jobs);
on_publisher("INSERT INTO names VALUES (1, 'a')");
wait_applied($publisher, $subscriber, 'tap');
my $apply_pid = apply_pid($subscriber, 'tap');

# For a row that a local session has locked
{
	my $gate = hold($subscriber, 'SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $other = hold($subscriber, 'SELECT FROM gate WHERE id = 2 FOR UPDATE');
	on_publisher(
		q(BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO names VALUES (20, 'x'); COMMIT;
		DELETE FROM names WHERE id = 20;
		BEGIN; INSERT INTO names VALUES (21, 'X'); UPDATE gate SET n = n + 1 WHERE id = 2; COMMIT;)
	);
	states_become(
		$subscriber,
		'waiting for lock, waiting for dependency, waiting for lock',
		'the younger one waits for a local session');
	$gate->query_safe('COMMIT');
	wait_until('n = 1 FROM gate WHERE id = 1',
		'the older one waits for the session, too');
	$other->query_safe('COMMIT');
	$_->quit for $gate, $other;
	tables_equal('after a younger one that waited for a session', @tables);
}

# For a prepared transaction, which is committed between the two
{
	on_publisher(
		q(BEGIN; DELETE FROM names WHERE id = 1; PREPARE TRANSACTION 'p'));
	wait_applied($publisher, $subscriber, 'tap');
	my $gate = hold($subscriber, 'SELECT FROM gate WHERE id = 1 FOR UPDATE');
	on_publisher(
		q(BEGIN; UPDATE gate SET n = n + 1; INSERT INTO names VALUES (30, 'y'); DELETE FROM names WHERE id = 30; COMMIT;
		COMMIT PREPARED 'p';
		BEGIN; INSERT INTO names VALUES (31, 'Y'); INSERT INTO names VALUES (10, 'A'); COMMIT;)
	);
	states_become(
		$subscriber,
		'waiting for lock, waiting for prior commit, waiting for lock',
		'the younger one waits for a prepared transaction');
	$gate->query_safe('COMMIT');
	$gate->quit;
	wait_until('count(*) = 1 FROM names WHERE id = 10',
		'they wait for each other');
	tables_equal('after a younger one that waited for a prepared one',
		@tables);
}

# A streamed transaction that has not ended
{
	my $other = hold($subscriber, 'SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $streamed =
	  begin_streamed(
		q(INSERT INTO names VALUES (41, 'Z'); UPDATE gate SET n = 1 WHERE id = 1;)
		  . item_rows(3000));
	wait_for_state($subscriber, 'waiting for lock');
	on_publisher(
		q(INSERT INTO names VALUES (40, 'z'); DELETE FROM names WHERE id = 40; UPDATE gate SET n = 7 WHERE id = 2;)
	);
	wait_until('n = 7 FROM gate WHERE id = 2',
		'others wait for the streamed one');
	$streamed->query_safe('COMMIT');
	$other->query_safe('COMMIT');
	$_->quit for $streamed, $other;
	tables_equal('after a streamed one that waited for a session', @tables);
}

# The older one does not wait but fails, finally in the native loop.
{
	my $gate = hold($subscriber, 'SELECT FROM gate WHERE id = 1 FOR UPDATE');
	on_publisher(
		q(BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO orders VALUES (1); COMMIT;
		UPDATE jobs SET n = n + 1 WHERE id = 1;));
	states_become(
		$subscriber,
		'waiting for lock, waiting for prior commit',
		'the younger one has locked what the older one wants');
	$gate->query_safe('COMMIT');
	$gate->quit;
	tables_equal('after one that failed for what a younger one held',
		@tables);
	cmp_ok(counter($subscriber, 'fallbacks'),
		'>', 0, 'which the native loop has done, alone');
}

is(apply_pid($subscriber, 'tap'),
	$apply_pid, 'by the same apply worker all the time');
nothing_is_left_open($subscriber);
finish($publisher, $subscriber);
done_testing();
