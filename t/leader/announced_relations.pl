# Promise: when a pool starts, the core apply loop gets the definitions of
# tables again, since it need not know what it has received before.
#
# Each time there is no pool at first.  After the pool has started, the apply worker
# itself applies a transaction, as a leader transaction, on a slow machine, too
# (selftest_fast), or because its table is being synchronized.
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
		parallel_apply.leader_participation = on
		parallel_apply.selftest_fast = on));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE altered (id int PRIMARY KEY, v int);
	CREATE TABLE again (id int, v int);));
$subscriber->sql('CREATE UNIQUE INDEX ON again (v) WHERE v = 0');
$subscriber->create_extension;
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE items, altered, again',
	with => 'streaming = on, disable_on_error = on',
	no_pool => 1);
my $apply_pid = $subscriber->apply_pid('tap');

# Without a pool the core apply loop gets a stream with these statements that
# is rolled back; then a pool starts.
sub start_pool_after
{
	my ($sql) = @_;
	my $streamed = $pair->begin_streamed($sql);
	$streamed->query_safe('ROLLBACK');
	$streamed->quit;
	$publisher->sql('INSERT INTO again VALUES (100, 100)');
	$publisher->wait_applied;
	start_pool();
	return;
}

sub start_pool
{
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 2');
	$subscriber->wait_for_pool('tap', 2);
	return;
}

sub stop_pool
{
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$subscriber->wait_for_pool('tap', 0);
	return;
}

# Wait for the end of each, also in its writer, so that the next one is alone.
sub insert_alone
{
	my ($table, $values) = @_;
	for my $id (1 .. 10)
	{
		$publisher->sql("INSERT INTO $table VALUES (-$id, $values)");
		$subscriber->poll_query_until('postgres',
			"SELECT EXISTS (SELECT FROM $table WHERE id = -$id) OR EXISTS (SELECT FROM pg_subscription WHERE NOT subenabled)"
		) or die 'nothing is applied';
		$subscriber->wait_until_counted;
	}
	return;
}

# A table that was described in the stream only
start_pool_after(item_rows(2000));
insert_alone('items', "0, 'alone'");
is($subscriber->sql('SELECT subenabled FROM pg_subscription'),
	't', 'a table that was first seen in a stream is known');
$pair->tables_equal('after a stream without a pool was rolled back', 'items');

# A table with an additional column
stop_pool();
$publisher->sql('INSERT INTO altered VALUES (1, 1)');
$publisher->wait_applied;
$pair->exec_both('ALTER TABLE altered ADD COLUMN added int');
start_pool_after(
	'INSERT INTO altered SELECT i, i, i FROM generate_series(1000, 4000) i');
insert_alone('altered', '0, 7');
$pair->tables_equal('after a definition came in a stream', 'altered');
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT leader_transactions > 0 FROM parallel_apply.subscription_stats'
	),
	'the apply worker has applied some itself');

# A table that is copied again
stop_pool();
$publisher->sql('INSERT INTO again VALUES (1, 0)');
$publisher->wait_applied;
$publisher->sql('ALTER PUBLICATION tap DROP TABLE again');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->sql('TRUNCATE again');
my $copy = $subscriber->hold('INSERT INTO again VALUES (-1, 0)');
$pair->begin_copy('again');
start_pool();
$publisher->sql(
	"INSERT INTO again VALUES (2, 1);\nINSERT INTO items VALUES (0, 0, 'other')"
);
$publisher->wait_applied;
is($subscriber->sql('SELECT count(*) FROM again'), '0',
	'a change of a table that is copied again is left to its synchronization'
);
$copy->query_safe('ROLLBACK');
$copy->quit;
$subscriber->wait_for_subscription_sync($publisher, 'tap');
$pair->tables_equal('after it was copied again', 'again', 'items');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'by the same apply worker all the time');
finish($publisher, $subscriber);
done_testing();
