# What goes on beside a streamed transaction that is applied early need not wait for
# it, nor does it lose its work to that, and its rows are what serial apply makes of them.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
	publisher_conf => q(logical_decoding_work_mem = 64kB),
	subscriber_conf => 'log_min_messages = debug1');

exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE stamped (id int PRIMARY KEY, v int NOT NULL);));
on_subscriber(
	q(ALTER TABLE stamped ADD seen timestamptz DEFAULT now();
	CREATE TABLE unrelated (id int);));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'streaming = on');

my @tables = qw(items);

sub value_of
{
	my ($column) = @_;
	return on_subscriber("SELECT $column FROM parallel_apply.subscriptions");
}

# A default that is the time follows the commit order.
my $late = value_of('streamed_late');
my $streamed = begin_streamed(
	item_rows(1000) . 'INSERT INTO stamped VALUES (1, 0);' . item_rows(2000));
$subscriber->wait_for_log(
	qr/is rolled back: a default of table "stamped" is not evaluated/);
on_publisher('INSERT INTO stamped VALUES (2, 0)');
wait_applied($publisher, $subscriber, 'tap');
$streamed->query_safe('COMMIT');
tables_equal('after defaults', @tables);
is(on_subscriber('SELECT array_agg(id ORDER BY seen) FROM stamped'),
	'{2,1}', 'the time of a default follows the commit order');
is(value_of('streamed_late'), $late + 1, 'it is applied after its end');
my $early = value_of('streamed_early');
$streamed->query_safe('BEGIN;'
	  . item_rows(2000)
	  . 'UPDATE stamped SET v = 1; DELETE FROM stamped WHERE id = 2; COMMIT');
tables_equal('without defaults', @tables);
is(value_of('streamed_early'),
	$early + 1, 'such rows are changed and deleted early');
is(on_subscriber('SELECT id, v FROM stamped'),
	'1|1', 'the table with a default has the rows of the publisher');

# It waits for data, and holds nothing but what it has locked.
$streamed->query_safe('BEGIN;' . item_rows(2000));
wait_for_early(1500);
$publisher->wait_for_catchup('tap', 'write');
wait_for_state($subscriber, 'waiting for data');
on_subscriber(
	q(SET statement_timeout = '30s';
	CREATE INDEX CONCURRENTLY ON unrelated (id);));
pass('an index is created concurrently beside it');
$early = value_of('streamed_early');
$streamed->query_safe(item_rows(1000) . 'COMMIT');
tables_equal('after an index was created', @tables);
is(value_of('streamed_early'), $early + 1, 'it goes on with a new snapshot');

$streamed->quit;
finish($publisher, $subscriber);
done_testing();
