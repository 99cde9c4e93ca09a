# Promise: parallel_apply.hot_keys, speedup_estimate and advice() show what
# transactions wait for, what more writers would gain, and what to do.  A row, a
# unique value or a barrier that transactions wait for is named, with exact numbers
# as long as there are few.  Values of a key are shown only to users who may read
# them.  Memory is bounded.  Following the advice gains what it says.
#
# A row lock that blocks the first transaction of a round forces waits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# As many writers as are needed to wait for more keys than are kept
my $many = 40;
my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_init => [ '--encoding=UTF8', '--no-locale' ],
	subscriber_conf => "max_worker_processes = 48\n"
	  . "parallel_apply.queue_size = 64kB\n"
	  . "parallel_apply.max_writers_per_subscription = 48\n"
	  . "parallel_apply.writers_per_subscription = 6\n"
	  . "parallel_apply.max_batch_transactions = 1\n");
$subscriber->create_extension;
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE accounts (id int PRIMARY KEY, balance int);
	CREATE TABLE codes (id int PRIMARY KEY, code text, CONSTRAINT code_once UNIQUE (code));
	CREATE TABLE whole (a int, b text); ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE TABLE long (k text PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	CREATE TABLE wide (id int PRIMARY KEY, t text);));
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0); INSERT INTO accounts SELECT generate_series(1, 100), 0;
	INSERT INTO codes VALUES (1, 'a'), (2, 'z'); INSERT INTO whole VALUES (1, NULL);
	INSERT INTO long VALUES (repeat('x', 200), 0); INSERT INTO audited VALUES (1, 0);)
);
$subscriber->sql(
	q(CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER audit_trg AFTER UPDATE ON audited FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE audited ENABLE REPLICA TRIGGER audit_trg;
	CREATE INDEX ON whole (a);
	CREATE ROLE looker IN ROLE pg_monitor;));
# Another database, where the tables have the same OIDs
$subscriber->sql('CREATE DATABASE other TEMPLATE postgres');
$pair->subscribe('tap');

# States of transactions: the first one is blocked, this many wait for another one.
sub wait_states
{
	my ($waiters) = @_;
	return join ', ', 'waiting for lock',
	  ('waiting for dependency') x $waiters;
}

# Wait until a query for hot keys has that result: they follow the commit.
sub hot_keys_become
{
	my ($columns, $where, $result, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT concat_ws('|', $columns) FROM parallel_apply.hot_keys WHERE $where",
			$result),
		$name);
	return;
}

# Wait until everything is applied, and counted.
sub wait_until_applied
{
	$publisher->wait_applied;
	$subscriber->wait_until_counted;
	return;
}

# What writers count later would be in the new statistics.
sub reset_stats
{
	my ($subscription) = @_;
	my $argument = defined $subscription ? "'$subscription'" : '';
	$subscriber->wait_until_counted;
	$subscriber->sql("SELECT parallel_apply.reset_stats($argument)");
	return;
}

is($subscriber->sql('SELECT count(*) FROM parallel_apply.hot_keys'),
	0, 'nothing has waited, no key is hot');

# One hot row
$pair->apply_behind_gate(
	wait_states(3),
	'transactions that change the same row wait for each other',
	('UPDATE accounts SET balance = balance + 1 WHERE id = 7') x 4);
hot_keys_become(
	'subname, cause, indexrelname, key, waits, max_error, wait_time > 0, last_wait > now() - interval $$1 hour$$',
	q(relid = 'accounts'::regclass AND key_hash IS NOT NULL),
	'tap|replica identity|7|3|0|t|t',
	'the hot row is found by its key');
hot_keys_become(
	'cause, key, waits',
	q(relid = 'accounts'::regclass AND key_hash IS NULL),
	'replica identity|3',
	'and its table');

is( $subscriber->safe_psql(
		'other', 'SELECT count(*) FROM parallel_apply.hot_keys'),
	0,
	'another database does not show it');
$subscriber->wait_until_counted;
$subscriber->safe_psql('other', 'SELECT parallel_apply.reset_stats()');
is( $subscriber->sql(
		q(SELECT s.updates > 0, t.updates > 0 FROM parallel_apply.subscription_stats s
		JOIN parallel_apply.tables t USING (subid) WHERE t.relname = 'accounts')
	),
	't|t',
	'and resets no statistics of this one');

# A unique value that one row releases and another one gets
$pair->apply_behind_gate(
	wait_states(1),
	'a unique value is waited for',
	q(UPDATE codes SET code = 'b' WHERE id = 1; UPDATE codes SET code = 'c' WHERE id = 1),
	q(UPDATE codes SET code = 'b' WHERE id = 2));
hot_keys_become(
	'cause, indexrelname, key, waits',
	q(relid = 'codes'::regclass AND key_hash IS NOT NULL),
	'unique index|code_once|b|1',
	'the unique index and the value are named');

# For a row without a key, its columns before the change
$pair->apply_behind_gate(
	wait_states(1),
	'a whole row is waited for',
	q(UPDATE whole SET b = 'x'),
	q(DELETE FROM whole));
hot_keys_become(
	'cause, key, waits',
	q(relid = 'whole'::regclass AND key_hash IS NOT NULL),
	'replica identity|1, x|1',
	'a row without a key has all its columns');

# Long values are cut off; NULL has a word.
$pair->apply_behind_gate(
	wait_states(1),
	'a long key is waited for',
	('UPDATE long SET v = v + 1') x 2);
hot_keys_become(
	q(key = repeat('x', 127), waits),
	q(relid = 'long'::regclass AND key_hash IS NOT NULL),
	't|1', 'it is cut off');

# Not within a character
$publisher->sql(q(INSERT INTO long VALUES (repeat('ä', 100), 0)));
$pair->apply_behind_gate(
	wait_states(1),
	'a long key of other characters is waited for',
	(q(UPDATE long SET v = v + 1 WHERE k LIKE 'ä%')) x 2);
hot_keys_become(
	'waits',
	q(relid = 'long'::regclass AND key_hash IS NOT NULL AND key = repeat('ä', 63)),
	'1',
	'nor does a part of a character remain');

# Transactions behind one that is applied alone wait for no key.
$pair->apply_behind_gate(
	'waiting for lock, waiting for dependency, waiting for dependency',
	'everything waits for a transaction that is applied alone',
	'UPDATE audited SET v = 1',
	(   'UPDATE accounts SET balance = 0 WHERE id = 20',
		'UPDATE accounts SET balance = 0 WHERE id = 21'));
hot_keys_become(
	'indexrelname, key_hash, key, waits',
	q(relid = 'accounts'::regclass AND cause = 'barrier'),
	'2',
	'a barrier is a cause of its own, of the table that waited');

# Values are shown to users who may read the table.
my $as_looker =
  q(SET ROLE looker; SELECT coalesce(key, 'NULL') || ' ' || waits FROM parallel_apply.hot_keys
	WHERE relid = 'accounts'::regclass AND key_hash IS NOT NULL);
is($subscriber->sql($as_looker),
	'NULL 3', 'a user without access to the table sees no key');
$subscriber->sql('GRANT SELECT (id) ON accounts TO looker');
is($subscriber->sql($as_looker),
	'NULL 3', 'nor does a user with access to a part of it');
$subscriber->sql('GRANT SELECT (balance) ON accounts TO looker');
is($subscriber->sql($as_looker),
	'7 3', 'a user with access to all columns does');
$subscriber->sql('ALTER TABLE accounts ENABLE ROW LEVEL SECURITY');
is($subscriber->sql($as_looker), 'NULL 3', 'unless rows are hidden from him');
$subscriber->sql(
	'ALTER TABLE accounts DISABLE ROW LEVEL SECURITY; GRANT SELECT ON accounts TO looker'
);
is($subscriber->sql($as_looker), '7 3', 'rights are those of now');

# More keys than are kept; the hottest one stays.
$subscriber->reload_with(
	'parallel_apply.writers_per_subscription = ' . ($many + 1));
$subscriber->wait_for_pool('tap', $many + 1);
$pair->apply_behind_gate(
	wait_states($many),
	"$many transactions wait for $many rows",
	'UPDATE accounts SET balance = 1 WHERE id BETWEEN 41 AND 40 + ' . $many,
	map { "UPDATE accounts SET balance = 2 WHERE id = 40 + $_" } 1 .. $many);
hot_keys_become(
	'sum(waits)',
	q(relid = 'accounts'::regclass AND key_hash IS NULL AND cause <> 'barrier'),
	3 + $many,
	'all waits of a table are counted');
is( $subscriber->sql(
		q(SELECT concat_ws('|', count(*), max(key) FILTER (WHERE waits - max_error > 2), sum(waits))
		FROM parallel_apply.hot_keys WHERE key_hash IS NOT NULL)),
	'32|7|' . (3 + $many + 4),
	'but only a limited number of keys is kept: the hottest ones');

# The advice: level and text of a topic, shortened to what matters
sub advised
{
	my ($topic, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(
		$subscriber->sql(
			"SELECT concat_ws('|', level, advice, evidence) FROM parallel_apply.advice('tap') WHERE topic = '$topic'"
		),
		$pattern, $name);
	return;
}

sub not_advised
{
	my ($topic, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			"SELECT count(*) FROM parallel_apply.advice('tap') WHERE topic = '$topic'"
		),
		0, $name);
	return;
}

$subscriber->wait_until_counted;
advised(
	'exclusive_table',
	qr/transactions that change table audited are applied alone: trigger audit_trg of table public\.audited fires .* Remedy: .*set_table_option.*\|1 of \d+ changed rows; 1 of \d+ transactions/,
	'the trigger that serializes is named, with what it costs');

# One hot row
reset_stats('tap');
is( $subscriber->sql(
		q(SELECT (SELECT count(*) FROM parallel_apply.hot_keys), (SELECT sum(inserts + updates + waits) FROM parallel_apply.tables),
			(SELECT count(*) FROM parallel_apply.speedup_estimate))
	),
	'0|0|0',
	'reset_stats() forgets keys, counters and the estimate at once');
$pair->apply_behind_gate(
	wait_states($many),
	'all writers wait for one row for a moment',
	('UPDATE accounts SET balance = balance + 1 WHERE id = 7') x 99);
$subscriber->wait_until(
	'sum(waits) > 20 FROM parallel_apply.hot_keys WHERE key_hash IS NOT NULL',
	'the waits are not counted');
not_advised('hot_key', 'from fewer than 100 transactions nothing follows');
reset_stats('tap');
$pair->apply_behind_gate(
	wait_states($many),
	'all writers wait for one row',
	('UPDATE accounts SET balance = balance + 1 WHERE id = 7') x 150);
is( $subscriber->sql(
		q(SELECT string_agg(round(speedup::numeric, 1) || ' ' || transactions, ',' ORDER BY num_writers)
		FROM parallel_apply.speedup_estimate WHERE num_writers IN (1, 4, 64))),
	'1.0 150,1.0 150,1.0 150',
	'no number of writers gains anything');
advised(
	'writers',
	qr/^notice\|more writers do not help: almost every transaction depends on the one before it\|.*the dependencies of 150 transactions: 1\.0 with 2,/,
	'nor is it advised to have more');

# What this role reads about the hot row
sub hot_key_advice
{
	my ($role) = @_;
	return $subscriber->sql(
		"SET ROLE $role; SELECT level || '|' || advice FROM parallel_apply.advice() WHERE topic = 'hot_key'"
	);
}

# The part of the time that writers have waited becomes smaller, and no longer worth a word,
# if the machine stalls afterwards.  Then they have to wait again.
$subscriber->sql('REVOKE SELECT ON accounts FROM looker');
my @reported;
for my $attempt (1 .. 10)
{
	$subscriber->wait_until_counted;
	@reported = map { hot_key_advice($_) } qw(none looker);
	last if !grep { $_ eq '' } @reported;
	reset_stats();
	$pair->apply_behind_gate(
		wait_states($many),
		'all writers wait for one row once more',
		('UPDATE accounts SET balance = balance + 1 WHERE id = 7') x 150);
}
like(
	$reported[0],
	qr/^warning\|[\d.]+ % of the time of its writers is spent in waits for one row of table accounts: key \(7\); /,
	'the hot row is named');
like(
	$reported[1],
	qr/that with key hash /,
	'but not to those who may not read the table');

# A setting that limits the writers; and an independent load
not_advised('max_writers_per_subscription', 'no setting limits the writers');
$subscriber->reload_with('parallel_apply.max_writers_per_subscription = 4');
$subscriber->wait_for_pool('tap', 4);
advised(
	'max_writers_per_subscription',
	qr/^notice\|.*raise "parallel_apply\.max_writers_per_subscription"\|41 writers configured by setting, 4 allowed/,
	'the setting that limits is named');
reset_stats();
$publisher->sql('INSERT INTO accounts VALUES (1000, 0)');
wait_until_applied();
advised(
	'writers',
	qr/^info\|too few transactions were applied by writers .*the dependencies of 1 transactions/,
	'of one transaction nothing follows');
reset_stats();
$publisher->sql(join '',
	map { "INSERT INTO accounts VALUES ($_, 0);\n" } 1001 .. 1200);
wait_until_applied();
is( $subscriber->sql(
		q(SELECT string_agg(round(speedup::numeric, 1)::text, ',' ORDER BY num_writers)
		FROM parallel_apply.speedup_estimate WHERE num_writers IN (1, 2, 4, 8))),
	'1.0,2.0,4.0,8.0',
	'independent transactions gain as much as there are writers');
my $processors = $subscriber->sql('SELECT parallel_apply.get_processors()');
advised(
	'writers',
	qr/^info\|transactions would allow \d+ writers, but this server does not: it has $processors processors and \d+ free worker processes, and "parallel_apply\.max_writers_per_subscription" is 4\. More writers/,
	'but no more than are allowed are advised');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 2)));
$subscriber->wait_for_pool('tap', 2);

sub pretend_processors
{
	my ($number) = @_;
	$subscriber->sql(
		"CREATE OR REPLACE FUNCTION parallel_apply.get_processors() RETURNS integer LANGUAGE sql RETURN $number"
	);
	return;
}
pretend_processors(2);
advised(
	'writers',
	qr/^info\|transactions would allow \d+ writers, but this server does not: it has 2 processors/,
	'nor more than there are processors');
pretend_processors(8);
advised(
	'writers',
	qr/^info\|it keeps up with 2 writers; 4 would apply a backlog up to 2\.0 times as fast\|/,
	'nor any without a backlog');
my $row_lock =
  $subscriber->hold('SELECT FROM accounts WHERE id = 1000 FOR UPDATE');
$publisher->sql('UPDATE accounts SET balance = 1 WHERE id = 1000');
$subscriber->wait_until(
	q(lag >= '1 s' FROM parallel_apply.subscriptions WHERE subname = 'tap'),
	'the subscription is not behind');
not_advised('writers', 'nor with one that is due to a lock');
$row_lock->release;
wait_until_applied();
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$subscriber->wait_until(q(state = 'paused' FROM parallel_apply.subscriptions),
	'it is not paused');
not_advised('writers', 'nor during a pause');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
$subscriber->wait_until(
	q(state = 'parallel' FROM parallel_apply.subscriptions),
	'it is not resumed');

# A part of the queue is full, and the publisher not to blame.
my @stopped = split /\n/,
  $subscriber->sql('SELECT pid FROM parallel_apply.writers WHERE writer > 0');
$subscriber->stop_idle_writers(@stopped);
$publisher->sql(
	join '',
	map { "INSERT INTO wide VALUES ($_, repeat('x', 5000));\n" } 1001 .. 1004
);
$subscriber->wait_until(
	q(lag >= '1 s' FROM parallel_apply.subscriptions WHERE subname = 'tap'),
	'there is no backlog');
advised(
	'writers',
	qr/^info\|more writers can help: 4 would apply up to 2\.0 times as fast as the 2 that it has\|/,
	'but with one of changes that writers have not begun to apply');
kill 'CONT', @stopped;
wait_until_applied();
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
$subscriber->wait_for_pool('tap', 4);
advised(
	'writers',
	qr/^info\|transactions would allow \d+ writers, but this server does not: it has 8 processors .* is 4\./,
	'when it has as many as were advised, it is not advised again');
is( $subscriber->sql(
		q(SELECT count(*) FROM parallel_apply.advice('tap') WHERE level = 'warning')
	),
	0,
	'nothing else is wrong');

# Rows that are found by a sequential scan, and many TRUNCATEs
$subscriber->sql('DROP INDEX whole_a_idx');
$publisher->sql("INSERT INTO whole VALUES (2, 'y')");
wait_until_applied();
is( $subscriber->sql(
		q(SELECT count(*) FROM parallel_apply.advice('tap') WHERE topic = 'table')
	),
	0,
	'where rows are only inserted, none has to be found');
$publisher->sql("UPDATE whole SET b = 'z';" . 'TRUNCATE long;' x 10);
wait_until_applied();
not_advised('truncate', 'ten TRUNCATEs are not many');
$publisher->sql('TRUNCATE long;' x 2);
wait_until_applied();
advised(
	'table',
	qr/^warning\|table whole: replica identity FULL without usable index: .* Remedy: create an index/,
	'a table that is read for each change is named');
advised(
	'truncate',
	qr/^notice\|.*\|12 of \d+ transactions/,
	'many TRUNCATEs are told');

# Two hot rows in turn: two writers are enough.
reset_stats();
$publisher->sql(
	join '',
	map {
		'UPDATE accounts SET balance = 1 WHERE id = ' . ($_ % 2 + 1) . ";\n"
	} 1 .. 200);
wait_until_applied();
advised(
	'writers',
	qr/^info\|more writers do not help: transactions depend on each other; 2 are enough\|.*2\.0 with 2, 2\.0 with 4,/,
	'as many writers as there are hot rows are enough');
not_advised('truncate', 'there are no TRUNCATEs any more');

# Rows that are missing, and rows larger than the queue can hold
$subscriber->sql(
	q(SELECT parallel_apply.reset_stats(); DELETE FROM accounts WHERE id > 1000)
);
$publisher->sql(join '',
	map { "UPDATE accounts SET balance = 1 WHERE id = $_;\n" } 1001 .. 1012);
wait_until_applied();
not_advised('retries', 'there is no advice about a dozen transactions');
$publisher->sql(join '',
	map { "UPDATE accounts SET balance = 1 WHERE id = $_;\n" } 1 .. 90);
wait_until_applied();
advised(
	'retries',
	qr/^notice\|many transactions are tried again: .*\|12 second attempts and 0 rollbacks .* of 102 transactions/,
	'second attempts are told');
$publisher->sql(join '',
	map { "INSERT INTO wide VALUES ($_, repeat('x', 50000));\n" } 1 .. 12);
wait_until_applied();
advised(
	'fallback',
	qr/^notice\|many transactions are left to PostgreSQL's own apply\|12 of 114 transactions; .* messages 12, second failures 0/,
	'transactions that are left to PostgreSQL are reported, and why');

$publisher->sql('DELETE FROM accounts WHERE id > 1000');
wait_until_applied();

sub wait_until_behind
{
	$subscriber->wait_until(q(lag > '5 s' FROM parallel_apply.subscriptions),
		'the subscription is not behind');
	return;
}

# A change that takes long without a lock: the process is busy until the test ends
# it.
$subscriber->sql(
	q(CREATE TABLE may_end ();
	CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM public.may_end) LOOP
		END LOOP;
		RETURN NEW;
	END $$;
	CREATE TRIGGER take_long BEFORE INSERT ON audited FOR EACH ROW EXECUTE FUNCTION take_long();
	ALTER TABLE audited ENABLE ALWAYS TRIGGER take_long));
$publisher->sql('INSERT INTO audited VALUES (100)');
wait_until_behind();
not_advised('publisher',
	'a subscription that is behind with hardly anything in the queue, because of its own change'
);
$subscriber->sql('INSERT INTO may_end DEFAULT VALUES');
wait_until_applied();

# A session that has locked a row; then the queue is full.
my $session =
  $subscriber->hold('SELECT FROM accounts WHERE id = 7 FOR UPDATE');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$publisher->sql('UPDATE accounts SET balance = 0 WHERE id = 7');
$subscriber->wait_for_state('waiting for lock');
advised(
	'lock',
	qr/^warning\|apply waits for a lock of a local session on accounts: $pid\|process $pid has been idle in transaction since/,
	'a session that is in the way is named');
wait_until_behind();
not_advised('publisher', 'but not the publisher, which is not to blame');
$publisher->sql(
	'DO $$ BEGIN FOR i IN 1 .. 1000 LOOP UPDATE accounts SET balance = i WHERE id = 8; COMMIT; END LOOP; END $$'
);
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT level FROM parallel_apply.advice('tap') WHERE topic = 'limit'),
		'info'),
	'a full queue is reported');
$session->query_safe('COMMIT');
wait_until_applied();

# A writer that is canceled in a transaction larger than the queue
not_advised('queue_size', 'nothing had to be fetched twice');
$session->query_safe('BEGIN; SELECT FROM accounts WHERE id = 100 FOR UPDATE');
$publisher->sql(
	q(BEGIN; INSERT INTO wide SELECT 100 + i, repeat('y', 1000) FROM generate_series(1, 200) i;
	UPDATE accounts SET balance = 0 WHERE id = 100; COMMIT));
$subscriber->wait_for_state('waiting for lock');
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM parallel_apply.writers WHERE state = 'waiting for lock')
);
$session->release;
wait_until_applied();
advised(
	'queue_size',
	qr/^warning\|.*raise "parallel_apply\.queue_size"\|1 times; it is 64kB/,
	'a transaction that was fetched twice is reported');

# More writers than worker processes
$subscriber->reload_with(
	'parallel_apply.max_writers_per_subscription = 60',
	'parallel_apply.writers_per_subscription = 60');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT advice ~ 'only \d+ of 60 writers run: raise "max_worker_processes"'
		AND evidence ~ '^(\d+) of \1 worker' FROM parallel_apply.advice('tap')
		WHERE topic = 'max_worker_processes')),
	'worker processes that are missing are told');
not_advised('max_writers_per_subscription',
	'but not the setting that allows as many as are configured');

# A subscription that no process applies, or that does not exist
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT concat_ws('|', level, advice, evidence)
		FROM parallel_apply.advice('tap') WHERE topic = 'state'),
		'notice|it is not applied, and the publisher keeps its WAL|state disabled: the subscription is disabled'
	),
	'a disabled subscription is reported');
not_advised('writers', 'which no number of writers applies');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
my (undef, undef, $error) =
  $subscriber->psql('postgres',
	q(SELECT * FROM parallel_apply.advice('none')));
like(
	$error,
	qr/subscription "none" does not exist/,
	'one that does not exist is an error');

is( $subscriber->sql(
		'CREATE ROLE outsider; SET ROLE outsider; SELECT count(*) FROM parallel_apply.hot_keys'
	),
	'0',
	'not everybody sees them');

$pair->rows_equal($_) for qw(gate accounts codes whole long audited);

my $of_accounts =
  q(SELECT count(*) > 0 FROM parallel_apply.hot_keys WHERE relname = 'accounts');
is($subscriber->sql($of_accounts), 't', 'a table has hot keys');
$subscriber->sql('DROP TABLE accounts');
is($subscriber->sql($of_accounts), 'f', 'and none when it has been dropped');
reset_stats();
not_advised('queue_size',
	'nothing had to be fetched twice since the statistics were reset');
finish($publisher, $subscriber, qr/subscription "none" does not exist/);
done_testing();
