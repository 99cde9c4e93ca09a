# A streamed transaction that is applied early is the youngest of all: it holds up
# nothing that serial apply would not wait for, whatever locks it has or waits for.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(publisher_conf => q(logical_decoding_work_mem = 64kB));

exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE history (n int);
	CREATE TABLE twins (n int);
	ALTER TABLE twins REPLICA IDENTITY FULL;));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'streaming = on');
on_publisher(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO twins VALUES (1), (1);));

my @tables = qw(items gate history twins);

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
	return on_subscriber("SELECT $column FROM parallel_apply.subscriptions");
}

# A transaction that waits for a lock of ours is rolled back: what comes after it gets
# on at once.
my $streamed = $publisher->background_psql('postgres');
$streamed->set_query_timer_restart;
my $lock = hold($subscriber, 'SELECT FROM gate WHERE id = 1 FOR UPDATE');
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 5 WHERE id = 2; UPDATE gate SET n = 5 WHERE id = 1;'
	  . item_rows(2000));
wait_for_state($subscriber, 'waiting for lock');
$streamed->query_safe('ROLLBACK');
on_publisher('UPDATE gate SET n = 9 WHERE id = 2');
becomes_true('n = 9 FROM gate WHERE id = 2',
	'what was rolled back leaves its locks, though it waits for one');
is(value_of('errors'), '0', 'a rollback of the publisher is no error');

# The same when apply is paused ...
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 6 WHERE id = 2; UPDATE gate SET n = 6 WHERE id = 1;'
	  . item_rows(2000));
wait_for_state($subscriber, 'waiting for lock');
on_subscriber(q(SELECT parallel_apply.pause('tap')));
on_subscriber(
	q(SET lock_timeout = '30s'; SELECT FROM gate WHERE id = 2 FOR UPDATE));
pass('a pause takes its locks, though it waits for one');
on_subscriber(q(SELECT parallel_apply.resume('tap')));

# ... and the pool stops.
$streamed->query_safe('ROLLBACK;');
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 7 WHERE id = 1;' . item_rows(2000));
wait_for_state($subscriber, 'waiting for lock');
reload_with($subscriber, 'parallel_apply.writers_per_subscription = 1');
wait_for_pool($subscriber, 'tap', 0);
on_publisher('INSERT INTO history VALUES (1)');
becomes_true('count(*) = 1 FROM history',
	'a pool that stops does not wait for a lock');
$lock->query_safe('COMMIT');
$streamed->query_safe('COMMIT');
tables_equal('after the pool has stopped', @tables);
reload_with($subscriber, 'parallel_apply.writers_per_subscription = 4');
on_publisher('INSERT INTO history VALUES (2)');
wait_for_pool($subscriber, 'tap', 4);

# Two of them, one of which waits for the other, and ends first.
$streamed->query_safe(
	'BEGIN; DELETE FROM twins WHERE ctid = (SELECT min(ctid) FROM twins);'
	  . item_rows(3000));
wait_for_early(2000);
my $first = $publisher->background_psql('postgres');
$first->set_query_timer_restart;
$first->query_safe(
	'BEGIN; DELETE FROM twins WHERE ctid = (SELECT max(ctid) FROM twins);'
	  . item_rows(3000));
wait_for_state($subscriber, 'waiting for lock');
$first->query_safe('COMMIT');
on_publisher('INSERT INTO history VALUES (3)');
becomes_true('count(*) = 1 FROM history WHERE n = 3',
	'one that has ended does not wait for one that has not');
$streamed->query_safe('COMMIT');
tables_equal('after two that changed equal rows', @tables);

# The subscription changes: it need not go on to its end to notice it.
$streamed->query_safe('BEGIN;' . item_rows(2000));
wait_for_early(1500);
on_subscriber('ALTER SUBSCRIPTION tap SET (synchronous_commit = local)');
my $late = value_of('streamed_late');
$streamed->query_safe(item_rows(2000));
becomes_true(
	q(count(*) = 0 FROM parallel_apply.writers WHERE state <> 'idle'),
	'it is given up when the subscription changes');
$streamed->query_safe('COMMIT');
tables_equal('after the subscription has changed', @tables);
is(value_of('streamed_late'), $late + 1, 'it was applied after its end');

# Of writers that have nothing to do, one stays beside it.
my $early = value_of('streamed_early');
$streamed->query_safe('BEGIN;' . item_rows(2000));
wait_for_early(1500);
reload_with(
	$subscriber,
	'parallel_apply.min_writers_per_subscription = 1',
	'parallel_apply.writer_idle_timeout = 0');
$subscriber->poll_query_until('postgres',
	'SELECT count(pid) < 4 FROM parallel_apply.writers')
  or die 'no writer leaves';
$streamed->query_safe(item_rows(2000));
wait_for_early(3000);
on_publisher('INSERT INTO history VALUES (4)');
wait_applied($publisher, $subscriber, 'tap');
$streamed->query_safe('COMMIT');
tables_equal('after writers have left', @tables);
is(value_of('streamed_early'),
	$early + 1, 'it was applied early, beside one that stayed');

$_->quit for $streamed, $first, $lock;
finish($publisher, $subscriber);
done_testing();
