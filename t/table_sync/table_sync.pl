# Promise: while tables are being synchronized, only transactions that change one of
# them are left to PostgreSQL's own apply, which decides what to do with such a
# change.
#
# A local session that has inserted one of its rows blocks the copy of a table.
# Meanwhile there are transactions that change other tables, this one, and both.  A
# lock on an older transaction shows that the pool is not drained.
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
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE late (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE later (id int PRIMARY KEY, v int NOT NULL);));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE gate, items',
	with => 'streaming = on');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO late SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO later SELECT i, 0 FROM generate_series(1, 100) i;));

sub all_is_equal
{
	my ($when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$_ is equal $when")
	  for qw(gate items late), @tables;
	return;
}

# Small transactions, and one that is streamed; each changes all its tables.
sub change
{
	my (@tables) = @_;
	my $sql = '';
	for my $i (1 .. 20)
	{
		$sql .= 'BEGIN;';
		$sql .= "UPDATE $_ SET v = v + 1 WHERE id % 20 = $i % 20;"
		  for @tables;
		$sql .= 'COMMIT;';
	}
	$publisher->sql($sql);
	$publisher->sql('BEGIN;'
		  . join('', map { "UPDATE $_ SET v = v + 1;" x 10 } @tables)
		  . 'COMMIT;');
	return;
}

# The copy waits for a local session.
my $copy = $subscriber->hold('INSERT INTO late VALUES (1, -1)');
$pair->begin_copy('late');
$publisher->wait_applied;

# A writer counts a transaction after its commit, and before it is idle.
$subscriber->wait_for_state('idle', 4);
my $done = $subscriber->counter('transactions');
my $pid = $subscriber->apply_pid('tap');
change('items');
$publisher->wait_applied;
$subscriber->counter_becomes('transactions', "= $done + 21",
	'writers apply transactions of other tables during a copy');

change('late');
change('items', 'late');
$publisher->wait_applied;
$subscriber->wait_for_state('idle', 4);
is($subscriber->counter('transactions') - $done,
	21, 'and leave those of the table alone');
is($subscriber->sql('SELECT count(*) FROM late'),
	'0', 'whose changes are left to its own synchronization');
$pair->rows_equal('items', 'but not what such a transaction does elsewhere');
is( $subscriber->sql(
		q(SELECT t.updates, s.updates = sum(a.updates)
		FROM parallel_apply.subscription_stats s, parallel_apply.tables t, parallel_apply.tables a
		WHERE t.relid = 'late'::regclass GROUP BY t.updates, s.updates)),
	'0|t',
	'changes that are left to it are not counted');

# Behind a transaction that waits, and before others that are applied
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql(
	q(UPDATE gate SET n = n + 1;
	UPDATE late SET v = v + 1 WHERE id = 1;
	UPDATE items SET v = v + 1 WHERE id = 1;
	BEGIN; UPDATE items SET v = v + 1 WHERE id = 2; UPDATE late SET v = v + 1; COMMIT;
	UPDATE items SET v = v * 2 WHERE id = 2;));
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'the pool is not drained for a table that is being copied');
$lock->query_safe('COMMIT');
$publisher->wait_applied;
$pair->rows_equal('items', 'items are equal after that');

# The copy ends while all of them are changed.
$copy->query_safe('ROLLBACK');
change('late', 'items') for 1 .. 5;
$subscriber->wait_until_ready;
change('late');
all_is_equal('after the copy');

# Two more at the same time, one of which existed before, with transactions all the
# time
$publisher->sql('ALTER PUBLICATION tap ADD TABLE later');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
change('later', 'items', 'late') for 1 .. 5;
$subscriber->wait_until_ready;
change('later', 'late');
all_is_equal('after another table', 'later');
$subscriber->wait_for_state('idle', 4);
$done = $subscriber->counter('transactions');
change('later', 'late');
all_is_equal('in the end', 'later');
$subscriber->counter_becomes('transactions', "= $done + 21",
	'writers apply all of them when all are ready');
is($subscriber->apply_pid('tap'),
	$pid, 'by the same apply worker all the time');

# Removed from the publication behind a transaction that has changed it and waits.
# PostgreSQL's own apply, which would not have begun the transaction, skips the
# change.
$lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql(
	q(UPDATE gate SET n = n + 1; UPDATE later SET v = -1 WHERE id = 1));
$subscriber->states_become('waiting for lock, waiting for prior commit',
	'a transaction waits');
$publisher->sql('ALTER PUBLICATION tap DROP TABLE later');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$lock->query_safe('COMMIT');
$publisher->wait_applied;
is($subscriber->sql('SELECT count(*) FROM later WHERE v = -1'),
	'0', 'a change of a table that was removed meanwhile is left out');

# Added again
$subscriber->sql('TRUNCATE later');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE later');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
change('later');
all_is_equal('after a table was removed and added', 'later');

$_->quit for $lock, $copy;
finish($publisher, $subscriber);
done_testing();
