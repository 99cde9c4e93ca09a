# Promise: advice() has judgement.  A transaction that fails again and again does not
# make it speak of retries, however many transactions were committed before; a row that
# transactions wait for is named by its share of the time, not by the number of waits;
# fewer writers than configured are a warning, one writer by choice is none; rollbacks in
# favor of older transactions are told from second attempts; a table that waits to be
# copied names the setting that it waits for.  Each
# state but "parallel" has a reason, and the alert of doc/monitoring.md for states
# fires for a subscription without an apply worker, until it has one.
#
# A row of the subscriber makes a transaction fail; locks of a session force waits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# There are slots for the launcher, one apply worker and two writers; and for no
# second apply worker.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "max_worker_processes = 4\n"
	  . "max_logical_replication_workers = 1\n"
	  . "max_sync_workers_per_subscription = 0\n"
	  . "parallel_apply.max_batch_transactions = 1\n");
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	INSERT INTO gate VALUES (1, 0);
	CREATE TABLE others (id int PRIMARY KEY)));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE items, gate',
	with => 'copy_data = false');

# Wait until advice() has that many rows with a condition.
sub advice_becomes
{
	my ($count, $condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT count(*) FROM parallel_apply.advice('tap') WHERE $condition",
			$count),
		$name);
	return;
}

# Topics of advice() with a level other than info, in its order
sub topics
{
	return $subscriber->sql(
		q(SELECT string_agg(topic, ',' ORDER BY ordinality)
		FROM parallel_apply.advice('tap') WITH ORDINALITY WHERE level <> 'info')
	);
}

# Assert that each subscription is in its state for a reason; return the states.
sub states
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			q(SELECT count(*) FROM parallel_apply.subscriptions WHERE (state = 'parallel') <> (coalesce(reason, '') = ''))
		),
		'0',
		"there is a reason where the state is not parallel: $when");
	return $subscriber->sql(
		q(SELECT string_agg(subname || ' ' || state, ', ' ORDER BY subname) FROM parallel_apply.subscriptions)
	);
}

### fewer writers than configured, and one by choice ###########################

$subscriber->wait_until(
	q(state = 'degraded' FROM parallel_apply.subscriptions),
	'it does not show that there are too few slots');
advice_becomes(
	1,
	q(topic = 'max_worker_processes' AND level = 'warning' AND advice = 'only 2 of 4 writers run: raise "max_worker_processes" to at least 6, and restart the server'),
	'fewer writers than configured are a warning');
is(states('slots are missing'), 'tap degraded', 'and a state');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_until(q(state = 'native' FROM parallel_apply.subscriptions),
	'it is not native');
states('one writer is configured');
advice_becomes(0, q(level <> 'info'), 'one writer by choice is no warning');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 2)));
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions),
	'it is not parallel');
states('it is parallel');
advice_becomes(
	0,
	q(level <> 'info'),
	'as many writers as configured are no warning');

### a transaction that fails again and again ###################################

$publisher->sql(join '',
	map { "INSERT INTO items VALUES ($_, 0);\n" } 1 .. 120);
$publisher->wait_applied;
$subscriber->sql('DELETE FROM items WHERE id = 120');
$publisher->sql('DELETE FROM items WHERE id = 120');
$publisher->wait_applied;
my $stats = q(FROM parallel_apply.subscription_stats WHERE subname = 'tap');
$subscriber->wait_until("transactions = 121 $stats", 'they are not counted');
my $retries = $subscriber->sql("SELECT retries $stats");
$subscriber->sql('INSERT INTO items VALUES (1000, 0)');
$publisher->sql('INSERT INTO items VALUES (1000, 1)');
$subscriber->wait_until("errors > 12 AND failed_attempts > 24 $stats",
	'it does not fail again and again');
states('a transaction fails');
advice_becomes(
	0,
	q(topic IN ('retries', 'fallback', 'exclusive_table', 'hot_key', 'writers')),
	'a transaction that fails again and again is no reason for advice');
advice_becomes(
	1,
	q(topic = 'state' AND level = 'warning'),
	'but for a warning');
is( $subscriber->sql("SELECT transactions, retries, fallback_failure $stats"),
	"121|$retries|0", 'nor is it counted');
is(topics(), 'state,conflicts',
	'that comes before what is a reason for advice: a row that was missing');
$subscriber->sql('DELETE FROM items WHERE id = 1000');
$publisher->wait_applied;
$subscriber->wait_until(
	"transactions = 122 AND retries <= $retries + 1 $stats",
	'it is not counted when it is committed');
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$subscriber->wait_until(q(state = 'paused' FROM parallel_apply.subscriptions),
	'it is not paused');
is(topics(), 'state,conflicts', 'so does a pause, whatever its level');
$subscriber->sql(
	q(SELECT parallel_apply.resume('tap'); SELECT parallel_apply.reset_stats('tap'))
);
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions),
	'it is not resumed');
$pair->rows_equal('items');
advice_becomes(0, q(level <> 'info'), 'nothing remains of it');

### the weight of waits ########################################################

# If the row was deleted between two attempts, the pool is still the one whose writer
# has seen the violation, and which therefore waits for its turn.
$subscriber->forget_violations('tap');
$subscriber->wait_for_pool('tap', 2);
$subscriber->sql(q(SELECT parallel_apply.reset_stats('tap')));
$pair->apply_behind_gate(
	'waiting for lock, waiting for dependency',
	'a transaction waits for another one',
	('UPDATE items SET v = v + 1 WHERE id = 7') x 120);
$subscriber->wait_until(
	q(sum(waits) > 0 FROM parallel_apply.hot_keys WHERE key_hash IS NOT NULL),
	'the wait is not counted');
# Writers count waits after their commits.
$subscriber->wait_until(
	q(bool_and(state = 'idle') FROM parallel_apply.writers WHERE writer > 0),
	'writers do not become idle');
my $waits = q(SELECT count(*), sum(waits) FROM parallel_apply.hot_keys);
my $before = $subscriber->sql($waits);

# The share is that of the time of all writers that are configured.  With many of them,
# however slow the machine was, the time soon passes of which the waits were hardly any.
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 32)));
advice_becomes(
	0,
	q(topic = 'hot_key'),
	'a row that costs hardly any of the time is not named');
is($subscriber->sql($waits), $before, 'however often it was waited for');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 2)));
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions),
	'it is not parallel again');
$pair->rows_equal($_) for 'items', 'gate';

### rollbacks in favor of older transactions ##################################

# A unique index that is not tracked: the older transaction needs the value that the younger
# one has inserted.
$subscriber->sql(
	q(CREATE UNIQUE INDEX items_once ON items ((v + 0)) WHERE v > 5000;
	SELECT parallel_apply.reset_stats('tap')));
foreach my $v (5001 .. 5012)
{
	$pair->apply_behind_gate(
		'waiting for lock, waiting for prior commit',
		"a younger transaction has inserted $v",
		"INSERT INTO items VALUES (-$v, $v); DELETE FROM items WHERE id = -$v",
		"INSERT INTO items VALUES ($v, $v)");
}
$publisher->sql(join '',
	map { "INSERT INTO items VALUES ($_, 0);\n" } 2001 .. 2080);
$publisher->wait_applied;
advice_becomes(
	1,
	q(topic = 'retries' AND level = 'notice' AND advice ~ '^many transactions are rolled back in favor of older ones'
		AND evidence = '12 second attempts and 12 rollbacks in favor of older ones, of 104 transactions'),
	'rollbacks in favor of older transactions are named as such');
$pair->rows_equal($_) for 'items', 'gate';

### no apply worker ############################################################

my ($alert) = slurp_file("$FindBin::RealBin/../../doc/monitoring.md") =~
  /^ +-- alert: state\n((?: +.*\n)+)/m;
my $connstr = $publisher->connstr . ' dbname=postgres';
$publisher->sql('CREATE PUBLICATION other FOR TABLE others');
$subscriber->sql(
	"CREATE SUBSCRIPTION other CONNECTION '$connstr' PUBLICATION other WITH (copy_data = false);
	SELECT parallel_apply.alter_subscription_config('other', 2)"
);
ok( $subscriber->poll_query_until(
		'postgres',
		"SELECT string_agg(subname || ' ' || state, ',') FROM ($alert) AS alert",
		'other not running'),
	'the alert fires for a subscription without an apply worker');
is( $subscriber->sql(
		q(SELECT level, evidence FROM parallel_apply.advice('other') WHERE topic = 'state')
	),
	'warning|state not running: no apply worker is running',
	'and advice() warns of that');
is( $subscriber->notice_of_wait('other'),
	'No apply worker is running: see parallel_apply.subscriptions.',
	'so does a function that waits for it');
my (undef, undef, $notice) = $subscriber->psql('postgres',
	q(SELECT parallel_apply.wait_for_lsn('other', 'FFFFFFFF/0', '1 s')));
is($notice, '', 'but not at once, since one may be about to start');
is( states('no worker could be started'),
	'other not running, tap parallel',
	'and no other one');
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions WHERE subname = 'other'),
	'it does not start when there is a slot');
is($subscriber->sql("SELECT count(*) FROM ($alert) AS alert"),
	'0', 'it ends when there is a slot');
states('one is disabled');
$publisher->sql('INSERT INTO others VALUES (1)');
$publisher->wait_applied('other');
$pair->rows_equal('others');

### no worker to copy a table ##################################################

my $waits_for_worker = q(topic = 'max_logical_replication_workers');
$pair->exec_both('CREATE TABLE copied (id int PRIMARY KEY)');
$publisher->sql(
	'INSERT INTO copied VALUES (1); ALTER PUBLICATION other ADD TABLE copied'
);
$subscriber->reload_with('max_sync_workers_per_subscription = 1');
is( $subscriber->sql(
		"SELECT count(*) FROM parallel_apply.advice() WHERE $waits_for_worker"
	),
	'0',
	'nothing waits to be copied');
$subscriber->sql('ALTER SUBSCRIPTION other REFRESH PUBLICATION');
is( $subscriber->sql(
		"SELECT level, evidence FROM parallel_apply.advice('other') WHERE $waits_for_worker"
	),
	'warning|1 tables wait; 1 of 1 logical replication workers run, 0 of which copy tables of the subscription',
	'a table that waits for a logical replication worker is a warning');
$subscriber->sql('ALTER SUBSCRIPTION other DISABLE');
$subscriber->append_conf('postgresql.conf',
	"max_logical_replication_workers = 2\nmax_worker_processes = 8");
$subscriber->restart;
$subscriber->sql('ALTER SUBSCRIPTION other ENABLE');
$subscriber->wait_for_subscription_sync($publisher, 'other');
is( $subscriber->sql(
		"SELECT count(*) FROM parallel_apply.advice() WHERE $waits_for_worker"
	),
	'0',
	'which ends with enough workers');
$pair->rows_equal($_) for 'others', 'copied';

finish($publisher, $subscriber, duplicate_key('items'),
	qr/FATAL:  terminating logical replication worker due to administrator command/
);
done_testing();
