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
	subscriber_conf => q(
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
$pair->subscribe('tap', publication => 'FOR TABLE gate, jobs, orders');
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

finish($publisher, $subscriber);
done_testing();
