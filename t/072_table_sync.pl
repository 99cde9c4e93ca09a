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
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(publisher_conf => q(logical_decoding_work_mem = 64kB));
exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE late (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE later (id int PRIMARY KEY, v int NOT NULL);));
create_extension($subscriber);
subscribe(
	$publisher, $subscriber, 'tap',
	publication => 'FOR TABLE gate, items',
	with => 'streaming = on');
on_publisher(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO late SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO later SELECT i, 0 FROM generate_series(1, 100) i;));

sub all_is_equal
{
	my ($when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_applied($publisher, $subscriber, 'tap');
	rows_equal($publisher, $subscriber, $_, "$_ is equal $when")
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
	on_publisher($sql);
	on_publisher('BEGIN;'
		  . join('', map { "UPDATE $_ SET v = v + 1;" x 10 } @tables)
		  . 'COMMIT;');
	return;
}

# The copy waits for a local session.
my $copy = hold($subscriber, 'INSERT INTO late VALUES (1, -1)');
begin_copy('late');
wait_applied($publisher, $subscriber, 'tap');

my $done = counter($subscriber, 'transactions');
my $pid = apply_pid($subscriber, 'tap');
change('items');
wait_applied($publisher, $subscriber, 'tap');
is(counter($subscriber, 'transactions') - $done,
	21, 'writers apply transactions of other tables during a copy');

change('late');
change('items', 'late');
wait_applied($publisher, $subscriber, 'tap');
is(counter($subscriber, 'transactions') - $done,
	21, 'and leave those of the table alone');
is(on_subscriber('SELECT count(*) FROM late'),
	'0', 'whose changes are left to its own synchronization');
rows_equal($publisher, $subscriber, 'items',
	'but not what such a transaction does elsewhere');

# Behind a transaction that waits, and before others that are applied
my $lock = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
on_publisher(
	q(UPDATE gate SET n = n + 1;
	UPDATE late SET v = v + 1 WHERE id = 1;
	UPDATE items SET v = v + 1 WHERE id = 1;
	BEGIN; UPDATE items SET v = v + 1 WHERE id = 2; UPDATE late SET v = v + 1; COMMIT;
	UPDATE items SET v = v * 2 WHERE id = 2;));
states_become(
	$subscriber,
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'the pool is not drained for a table that is being copied');
$lock->query_safe('COMMIT');
wait_applied($publisher, $subscriber, 'tap');
rows_equal($publisher, $subscriber, 'items', 'items are equal after that');

# The copy ends while all of them are changed.
$copy->query_safe('ROLLBACK');
change('late', 'items') for 1 .. 5;
wait_until_ready($subscriber);
change('late');
all_is_equal('after the copy');

# Two more at the same time, one of which existed before, with transactions all the
# time
on_publisher('ALTER PUBLICATION tap ADD TABLE later');
on_subscriber('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
change('later', 'items', 'late') for 1 .. 5;
wait_until_ready($subscriber);
change('later', 'late');
all_is_equal('after another table', 'later');
$done = counter($subscriber, 'transactions');
change('later', 'late');
all_is_equal('in the end', 'later');
is(counter($subscriber, 'transactions') - $done,
	21, 'writers apply all of them when all are ready');
is(apply_pid($subscriber, 'tap'),
	$pid, 'by the same apply worker all the time');

# Removed from the publication behind a transaction that has changed it and waits.
# PostgreSQL's own apply, which would not have begun the transaction, skips the
# change.
$lock = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
on_publisher(
	q(UPDATE gate SET n = n + 1; UPDATE later SET v = -1 WHERE id = 1));
states_become(
	$subscriber,
	'waiting for lock, waiting for prior commit',
	'a transaction waits');
on_publisher('ALTER PUBLICATION tap DROP TABLE later');
on_subscriber('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$lock->query_safe('COMMIT');
wait_applied($publisher, $subscriber, 'tap');
is(on_subscriber('SELECT count(*) FROM later WHERE v = -1'),
	'0', 'a change of a table that was removed meanwhile is left out');

# Added again
on_subscriber('TRUNCATE later');
on_publisher('ALTER PUBLICATION tap ADD TABLE later');
on_subscriber('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
wait_until_ready($subscriber);
change('later');
all_is_equal('after a table was removed and added', 'later');

$_->quit for $lock, $copy;
finish($publisher, $subscriber);
done_testing();
