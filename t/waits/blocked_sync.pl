# Promise: the receiver does not wait forever for a worker that synchronizes a
# table.
#
# While it waits for one to catch up nothing is received, and the last transaction
# of the core apply loop does not count as committed.  Each time that worker
# waits, directly or indirectly, for a writer that waits for just this.
#
# Nor does the core apply loop fail because of what a writer has locked, while it applies
# the transactions with changes of that table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(logical_decoding_work_mem = 64kB),
	subscriber_conf => q(autovacuum = off));
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE total (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE late (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE later (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE latest (id int PRIMARY KEY);
	CREATE TABLE orders (id int PRIMARY KEY);));
my @tables = qw(gate items jobs total orders);
$subscriber->sql(
	q(CREATE FUNCTION lock_job(job int) RETURNS boolean LANGUAGE plpgsql AS
		$$BEGIN PERFORM FROM public.jobs WHERE id = job FOR UPDATE NOWAIT; RETURN true; END$$;
	ALTER TABLE orders ADD CHECK (lock_job(id));
	CREATE FUNCTION touch_total() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN UPDATE public.total SET n = n WHERE id = 1; RETURN NEW; END$$;
	CREATE TRIGGER touch AFTER INSERT ON late FOR EACH ROW WHEN (NEW.id > 2) EXECUTE FUNCTION touch_total();
	ALTER TABLE late ENABLE ALWAYS TRIGGER touch;
	CREATE FUNCTION touch_job() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN UPDATE public.jobs SET n = n WHERE id = 2; RETURN NEW; END$$;
	CREATE TRIGGER touch AFTER INSERT ON later FOR EACH ROW WHEN (NEW.id > 2) EXECUTE FUNCTION touch_job();
	ALTER TABLE later ENABLE ALWAYS TRIGGER touch;));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE ' . join(', ', @tables),
	with => 'streaming = on, disable_on_error = on');
$publisher->sql("INSERT INTO $_ VALUES (1, 0), (2, 0)")
  for qw(gate jobs total late later);
$publisher->wait_applied;
my $apply_pid = $subscriber->apply_pid('tap');

# For a writer that applies a streamed transaction, and waits for data
{
	my $copy = $subscriber->hold('INSERT INTO late VALUES (1, -1)');
	$pair->begin_copy('late');
	$publisher->sql('INSERT INTO late VALUES (3, 0)');
	$publisher->wait_applied;
	my $streamed =
	  $pair->begin_streamed('UPDATE total SET n = n + 1;' . item_rows(2000));
	$subscriber->wait_for_in_progress(1500);
	$copy->query_safe('ROLLBACK');
	$copy->quit;
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')),
		'the synchronization worker waits forever');
	$streamed->release;
	$pair->tables_equal(
		'after a synchronization that needed a row of a streamed one',
		@tables, 'late');
}

# For a local session, which waits for a writer that applies a streamed transaction
{
	my $copy = $subscriber->hold('INSERT INTO later VALUES (1, -1)');
	$pair->begin_copy('later');
	$publisher->sql('INSERT INTO later VALUES (3, 0)');
	$publisher->wait_applied;
	my $streamed =
	  $pair->begin_streamed('UPDATE total SET n = n + 1;' . item_rows(2000));
	$subscriber->wait_for_in_progress(1500);
	my $local = $subscriber->hold('SELECT FROM jobs WHERE id = 2 FOR UPDATE');
	$local->query_until(qr/start/,
		"\\echo start\nUPDATE total SET n = n; COMMIT;\n");
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Lock'),
		'the local session does not wait');
	$copy->query_safe('ROLLBACK');
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')),
		'the synchronization worker waits forever');
	$streamed->query_safe('COMMIT');
	$_->quit for $copy, $local, $streamed;
	$pair->tables_equal(
		'after a synchronization that needed a row of such a session',
		@tables, qw(late later));
}

# For nothing: user code of the core apply loop finds a lock of a younger transaction.
# The definitions are known before, and no invalidation comes in between.
{
	my $copy = $subscriber->hold('INSERT INTO latest VALUES (1)');
	$publisher->sql('INSERT INTO latest VALUES (1)');
	$pair->begin_copy('latest');
	$publisher->sql(
		q(INSERT INTO latest VALUES (2); INSERT INTO orders VALUES (2);
		UPDATE gate SET n = n + 1; UPDATE jobs SET n = n + 1));
	$publisher->wait_applied;
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(UPDATE gate SET n = n + 1 WHERE id = 1;
		BEGIN; INSERT INTO latest VALUES (3); INSERT INTO orders VALUES (1); COMMIT;
		UPDATE jobs SET n = n + 1 WHERE id = 1;));
	$subscriber->states_become('waiting for lock, waiting for prior commit',
		'the younger one has locked what the core apply loop wants');
	$gate->release;
	$pair->tables_equal(
		'after one that the core apply loop has applied alone', @tables);
	$copy->query_safe('ROLLBACK');
	$copy->quit;
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$pair->tables_equal('after the copy', @tables, 'latest');
}

is($subscriber->apply_pid('tap'),
	$apply_pid, 'by the same apply worker all the time');
$subscriber->nothing_is_left_open;
finish($publisher, $subscriber);
done_testing();
