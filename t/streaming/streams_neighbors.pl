# Promise: transactions that are applied concurrently with a streamed one that is
# applied in progress neither wait for it nor lose their work because of it, and
# the rows are those of serial apply.
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
	subscriber_conf => 'log_min_messages = debug1');

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE stamped (id int PRIMARY KEY, v int NOT NULL);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE twins (n int);
	ALTER TABLE twins REPLICA IDENTITY FULL;
	CREATE TABLE slow (door int PRIMARY KEY);));
$subscriber->sql(
	q(ALTER TABLE stamped ADD seen timestamptz DEFAULT now();
	CREATE TABLE unrelated (id int);));
$subscriber->make_doors;
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');

my @tables = qw(items gate twins slow);

sub value_of
{
	my ($column) = @_;
	return $subscriber->sql(
		"SELECT $column FROM parallel_apply.subscription_stats");
}

sub is_seen
{
	my ($from_where, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres', "SELECT count(*) = 1 FROM $from_where"),
		$name);
}

# A default that is the current time follows the commit order.
my $late = value_of('streamed_from_file');
my $streamed = $pair->begin_streamed(
	item_rows(1000) . 'INSERT INTO stamped VALUES (1, 0);' . item_rows(2000));
$subscriber->wait_for_log(
	qr/is rolled back: cannot evaluate a default of table "stamped"/);
$publisher->sql('INSERT INTO stamped VALUES (2, 0)');
$publisher->wait_applied;
$streamed->query_safe('COMMIT');
$pair->tables_equal('after defaults', @tables);
is($subscriber->sql('SELECT array_agg(id ORDER BY seen) FROM stamped'),
	'{2,1}', 'the time of a default follows the commit order');
is(value_of('streamed_from_file'), $late + 1, 'it is applied after its end');
my $in_progress = value_of('streamed_in_progress');
$streamed->query_safe('BEGIN;'
	  . item_rows(2000)
	  . 'UPDATE stamped SET v = 1; DELETE FROM stamped WHERE id = 2; COMMIT');
$pair->tables_equal('without defaults', @tables);
is( value_of('streamed_in_progress'),
	$in_progress + 1,
	'such rows are changed and deleted in progress');
is($subscriber->sql('SELECT id, v FROM stamped'),
	'1|1', 'the table with a default has the rows of the publisher');

# It waits for data, and holds only the locks of its changes.
$streamed->query_safe('BEGIN;' . item_rows(2000));
$subscriber->wait_for_in_progress(1500);
$publisher->wait_received;
$subscriber->wait_for_state('waiting for data');
$subscriber->sql(
	"SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
	CREATE INDEX CONCURRENTLY ON unrelated (id);");
pass('an index is created concurrently meanwhile');
$in_progress = value_of('streamed_in_progress');
$streamed->query_safe(item_rows(1000) . 'COMMIT');
$pair->tables_equal('after an index was created', @tables);
is( value_of('streamed_in_progress'),
	$in_progress + 1,
	'it continues with a new snapshot');

# Changes of other subscriptions and of other tables have no effect on it.
my $replays = value_of('fallback_subscription');
($in_progress, $late) =
  map { value_of($_) } qw(streamed_in_progress streamed_from_file);
$streamed->query_safe('BEGIN;' . item_rows(2000));
$subscriber->wait_for_in_progress(1500);
$pair->exec_both('CREATE TABLE added (id int)');
$subscriber->sql(
	q(CREATE SUBSCRIPTION other CONNECTION '' PUBLICATION p WITH (connect = false, slot_name = NONE);
	ALTER SUBSCRIPTION tap REFRESH PUBLICATION WITH (copy_data = false);));
$streamed->query_safe(item_rows(2000));
$subscriber->wait_for_in_progress(3500);
$subscriber->sql('DROP SUBSCRIPTION other');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after other subscriptions have changed', @tables);
is( value_of('streamed_in_progress'),
	$in_progress + 1,
	'it continues when others are changed');
is(value_of('streamed_from_file'), $late, 'and is not given up');
is(value_of('fallback_subscription'),
	$replays, 'nor applied again when it commits');

# Its rows take long.  After each of them it checks whether an older transaction
# waits for it, which does not happen on the publisher: there the two delete
# different rows.
$publisher->sql('INSERT INTO twins VALUES (1), (1)');
$publisher->wait_applied;
$streamed->query_safe(
		'BEGIN; DELETE FROM twins WHERE ctid = (SELECT min(ctid) FROM twins);'
	  . 'INSERT INTO slow VALUES (1), (2);'
	  . item_rows(2000));
is_seen(
	q(pg_stat_activity WHERE query LIKE '%slow%' AND backend_type LIKE 'parallel_apply writer%'),
	'a row takes long');
$publisher->sql(
	'DELETE FROM twins WHERE ctid = (SELECT max(ctid) FROM twins)');
is_seen(
	q(pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '200 ms'),
	'an older transaction waits for it');
$subscriber->sql('INSERT INTO open_doors VALUES (1)');
is_seen('twins', 'before the next row, it is rolled back for the older one');
$subscriber->sql('INSERT INTO open_doors VALUES (2)');
$streamed->query_safe('COMMIT');
$pair->tables_equal('after an older one had to wait', @tables);

# A row is missing when it has ended and is still being applied.  It need not be
# applied again, but searches for the row again in its turn.
$publisher->sql('INSERT INTO gate VALUES (1, 0), (2, 0), (3, 0)');
$publisher->wait_applied;
$subscriber->sql('DELETE FROM gate WHERE id = 3');
my @locks =
  map { $subscriber->hold("SELECT FROM gate WHERE id = $_ FOR UPDATE") } 1, 2;
my $failures = value_of('fallback_failure');
$in_progress = value_of('streamed_in_progress');
$streamed->query_safe(
	'BEGIN; UPDATE gate SET n = 1 WHERE id = 1; DELETE FROM gate WHERE id = 3;'
	  . item_rows(3000));
$subscriber->wait_for_state('waiting for lock');
$publisher->sql('UPDATE gate SET n = 1 WHERE id = 2');
$subscriber->wait_for_state('waiting for lock', 2);
$streamed->query_safe('COMMIT');
is_seen(
	"parallel_apply.subscription_stats WHERE streamed_in_progress = $in_progress + 1",
	'it has ended');
$locks[0]->query_safe('COMMIT');
$subscriber->states_become(
	'waiting for lock, waiting for prior commit',
	'a row is missing: it waits for its turn');
$locks[1]->query_safe('COMMIT');
$pair->tables_equal('after a row was missing', @tables);
is(value_of('fallback_failure'), $failures, 'it is not applied again');

$_->quit for $streamed, @locks;
finish($publisher, $subscriber);
done_testing();
