# Promise: advice() does not warn of what was configured, nor of transactions that
# fail again and again; counters count transactions, not attempts; and figures of
# one view agree with those of another for rows of writers and of the apply worker.
#
# The first transaction fails as long as a row of the subscriber is in the way.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE alone (id int PRIMARY KEY, v int);
	CREATE TABLE chosen (id int PRIMARY KEY)));
$subscriber->sql(
	q(CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER alone BEFORE INSERT ON alone FOR EACH ROW EXECUTE FUNCTION pass();
	ALTER TABLE alone ENABLE ALWAYS TRIGGER alone)
);
$subscriber->create_extension;
$pair->subscribe('tap', publication => 'FOR TABLE items, alone');
$pair->subscribe('chosen', publication => 'FOR TABLE chosen');

# Assert that advice() for a subscription has no row with this condition.
sub no_advice
{
	my ($subscription, $condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$subscriber->sql(
			"SELECT topic, level, advice, evidence FROM parallel_apply.advice('$subscription') WHERE $condition"
		),
		'', $name);
}

# A counter may follow the commit.
sub figures_become
{
	my ($query, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($subscriber->poll_query_until('postgres', $query, $expected),
		$name);
}

### a subscription that is native on purpose ###################################

$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('chosen', 1)));
$subscriber->wait_for_pool('chosen', 0);
$subscriber->wait_until(
	q(count(*) = 1 FROM parallel_apply.subscriptions WHERE subname = 'chosen' AND state = 'native'),
	'it is not native');
$publisher->sql(join '',
	map { "INSERT INTO chosen VALUES ($_);\n" } 1 .. 120);
$publisher->wait_applied('chosen');
no_advice(
	'chosen',
	q(level <> 'info'),
	'there is no warning of what was chosen');
no_advice(
	'chosen',
	q(topic = 'writers'),
	'and no advice to have more writers');
is( $subscriber->sql(
		q(SELECT writers_wanted, writers_running FROM parallel_apply.subscriptions WHERE subname = 'chosen')
	),
	'0|0',
	'it wants no writers');
figures_become(
	q(SELECT transactions, native_transactions FROM parallel_apply.subscription_stats WHERE subname = 'chosen'),
	'120|120',
	'it has applied all of them alone');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('chosen', 2)));
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions WHERE subname = 'chosen'),
	'it is not parallel');
no_advice(
	'chosen',
	q(topic = 'fallback'),
	'nor is it blamed for that when it has writers');

### transactions that fail again and again #####################################

$subscriber->sql('INSERT INTO alone VALUES (1, 0)');
$publisher->sql('INSERT INTO alone VALUES (1, 1)');
$subscriber->wait_until(
	q(attempts >= 3 FROM parallel_apply.failed_transactions WHERE subname = 'tap'),
	'it does not fail again and again');
no_advice(
	'tap',
	q(topic IN ('retries', 'fallback', 'exclusive_table')),
	'attempts that fail are no reason for advice');
my $stats = q(FROM parallel_apply.subscription_stats WHERE subname = 'tap');
is($subscriber->sql("SELECT transactions, exclusive_table $stats"),
	'0|0', 'and are not counted as transactions');
$subscriber->sql('DELETE FROM alone WHERE id = 1');
$publisher->wait_applied;
$pair->rows_equal('alone');
figures_become(
	"SELECT transactions, exclusive_table $stats",
	'1|1',
	'it is counted when it is committed');
no_advice(
	'tap',
	q(topic IN ('retries', 'fallback')),
	'a single transaction is no reason for advice');

### figures ####################################################################

# By writers, and then by the apply worker
for my $participation ('off', 'on')
{
	$subscriber->reload_with(
		"parallel_apply.leader_participation = $participation");
	my $base = $participation eq 'on' ? 1000 : 0;
	$publisher->sql(join '',
		map { "INSERT INTO items VALUES ($base + $_, 0);\n" } 1 .. 200);
	$publisher->sql("UPDATE items SET v = 1 WHERE id > $base");
	$publisher->sql("DELETE FROM items WHERE id = $base + 1");
	$publisher->wait_applied;
}
$pair->rows_equal('items');
my $from_tables = q(FROM parallel_apply.tables WHERE subname = 'tap');
figures_become(
	"SELECT sum(inserts), sum(updates), sum(deletes) $from_tables",
	'401|400|2',
	'the rows of all tables are those of the publisher');
figures_become(
	"SELECT inserts, updates, deletes, transactions $stats",
	'401|400|2|405',
	'and so are those of the subscription');
is( $subscriber->sql(
		"SELECT leader_transactions <= native_transactions, native_transactions <= transactions, exclusive_table <= transactions $stats"
	),
	't|t|t',
	'no part is more than the whole');
no_advice(
	'tap',
	q(topic IN ('retries', 'fallback')),
	'what was applied by the apply worker is no reason for advice');

### figures of different moments ##############################################

# advice() asks for the number of processors after it has read the statistics of
# subscriptions, and before those of tables.  In between, more rows are applied.
$subscriber->sql(
	q(CREATE OR REPLACE FUNCTION parallel_apply.get_processors() RETURNS integer LANGUAGE plpgsql AS
	'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN 2; END';
	SELECT parallel_apply.reset_stats('tap')));
$publisher->sql('INSERT INTO alone VALUES (2, 0)');
$publisher->wait_applied;
my $alone = q(FROM parallel_apply.tables WHERE relname = 'alone');
figures_become(
	"SELECT t.inserts, s.inserts FROM parallel_apply.subscription_stats AS s, (SELECT inserts $alone) AS t WHERE s.subname = 'tap'",
	'1|1',
	'a row is counted');
my $lock = $subscriber->hold('SELECT pg_advisory_xact_lock(1)');
my $reader = $subscriber->background_psql('postgres');
$reader->query_until(qr/asked/,
	"\\echo asked\nSELECT evidence FROM parallel_apply.advice('tap') WHERE topic = 'exclusive_table';\n"
);
$subscriber->wait_until(
	q(count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted),
	'advice() does not ask for the number of processors');
$publisher->sql('INSERT INTO alone VALUES (3, 0), (4, 0)');
$publisher->wait_applied;
figures_become("SELECT inserts $alone", '3', 'then two more');
$lock->release;
like(
	$reader->query('SELECT 1'),
	qr/^3 of 3 changed rows; /m,
	'the changed rows are not more than all rows');
end_sessions($reader);
$pair->rows_equal('alone');

finish($publisher, $subscriber, duplicate_key('alone'),
	qr/terminating .* due to administrator command/);
done_testing();
