# Promise: where transactions are serializable by default, a transaction counts as
# committed when it has released its predicate locks, which is after it has become
# visible.  Otherwise PostgreSQL's own apply might fail because of them.
#
# A trigger stops a transaction at this point (selftest_commit.c).
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
		default_transaction_isolation = serializable
		parallel_apply.leader_participation = off));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE held (id int PRIMARY KEY);));
$subscriber->create_extension;
$pair->subscribe('tap');
$publisher->sql(
	'INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i');
$publisher->wait_applied;

my ($result) = $subscriber->psql(
	'postgres',
	q(CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE C
	AS 'parallel_apply', 'papply_selftest_hold_commit'));
plan skip_all => 'the library was made without SELFTEST=1' if $result != 0;
$subscriber->sql(
	q(CREATE TRIGGER hold AFTER INSERT ON held FOR EACH ROW EXECUTE FUNCTION hold_commit();
	ALTER TABLE held ENABLE ALWAYS TRIGGER hold;));

my $file = $subscriber->data_dir . '/hold_commit';
append_to_file($file, '');
$publisher->sql(
	q(INSERT INTO held VALUES (1);
	UPDATE items SET v = 1 WHERE id = 1;));
$subscriber->wait_until('count(*) = 1 FROM held', 'it is not visible');
$subscriber->states_become('applying, waiting for dependency',
	'the next transaction waits for one that is visible');
is($subscriber->sql('SELECT v FROM items WHERE id = 1'),
	'0', 'and is not applied');
unlink $file or die "$file: $!";
$pair->tables_equal('when it has ended', 'items', 'held');

# The apply worker begins when it is notified that the writer's transaction is
# committed.
$subscriber->reload_with('parallel_apply.leader_participation = on');
$publisher->sql("UPDATE items SET v = v + 1 WHERE id <= $_") foreach 1 .. 100;
$publisher->sql(join ';',
	map { "UPDATE items SET v = v + 1 WHERE id > $_" } 1 .. 99);
$pair->tables_equal('after single transactions, and after many',
	'items', 'held');

finish($publisher, $subscriber);
done_testing();
