# parallel_apply.hot_keys: what transactions wait for.
#
# The promise: a row, a unique value or a barrier that transactions wait for is
# found by name, with exact numbers as long as there are few; the values of a key
# are shown to those only who may read them; memory is bounded.  Waits are forced
# by a row lock that holds up the first transaction of a round.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# As many writers as it takes to wait for more keys than are kept.
my $many = 40;
my ($publisher, $subscriber) =
  new_pair(subscriber_conf => "max_worker_processes = 64\n"
	  . "parallel_apply.max_writers_per_subscription = 48\n"
	  . "parallel_apply.writers_per_subscription = 6\n"
	  . "parallel_apply.max_batch_transactions = 1\n");
create_extension($subscriber);
exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE accounts (id int PRIMARY KEY, balance int);
	CREATE TABLE codes (id int PRIMARY KEY, code text, CONSTRAINT code_once UNIQUE (code));
	CREATE TABLE whole (a int, b text); ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE TABLE long (k text PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);));
on_publisher(
	q(INSERT INTO gate VALUES (1, 0); INSERT INTO accounts SELECT generate_series(1, 100), 0;
	INSERT INTO codes VALUES (1, 'a'), (2, 'z'); INSERT INTO whole VALUES (1, NULL);
	INSERT INTO long VALUES (repeat('x', 200), 0); INSERT INTO audited VALUES (1, 0);)
);
on_subscriber(
	q(CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER audit_trg AFTER UPDATE ON audited FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE audited ENABLE REPLICA TRIGGER audit_trg;
	CREATE INDEX ON whole (a);
	CREATE ROLE looker IN ROLE pg_monitor;));
subscribe($publisher, $subscriber, 'tap');

# States of transactions: the first one is held up, so many wait for another one.
sub wait_states
{
	my ($waiters) = @_;
	return join ', ', 'waiting for lock',
	  ('waiting for dependency') x $waiters;
}

# Waits until a query for hot keys has that result: they come after the commit.
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

is(on_subscriber('SELECT count(*) FROM parallel_apply.hot_keys'),
	0, 'nobody has waited, nothing is hot');

# One hot row.
apply_behind_gate(
	$publisher,
	$subscriber,
	wait_states(3),
	'transactions that change the same row wait for each other',
	('UPDATE accounts SET balance = balance + 1 WHERE id = 7') x 4);
hot_keys_become(
	'subname, cause, index, key, waits, too_many, wait_time > 0, last_wait > now() - interval $$1 hour$$',
	q(relation = 'accounts'::regclass AND key_hash IS NOT NULL),
	'tap|replica identity|7|3|0|t|t',
	'the hot row is found by its key');
hot_keys_become(
	'cause, key, waits',
	q(relation = 'accounts'::regclass AND key_hash IS NULL),
	'replica identity|3',
	'and its table');

# A unique value that one row gives up and another one gets.
apply_behind_gate(
	$publisher,
	$subscriber,
	wait_states(1),
	'a unique value is waited for',
	q(UPDATE codes SET code = 'b' WHERE id = 1; UPDATE codes SET code = 'c' WHERE id = 1),
	q(UPDATE codes SET code = 'b' WHERE id = 2));
hot_keys_become(
	'cause, index, key, waits',
	q(relation = 'codes'::regclass AND key_hash IS NOT NULL),
	'unique index|code_once|b|1',
	'the unique index and the value are named');

# Of a row without a key, the one before the change.
apply_behind_gate(
	$publisher, $subscriber, wait_states(1),
	'a whole row is waited for',
	q(UPDATE whole SET b = 'x'),
	q(DELETE FROM whole));
hot_keys_become(
	'cause, key, waits',
	q(relation = 'whole'::regclass AND key_hash IS NOT NULL),
	'replica identity|1, x|1',
	'a row without a key has all its columns');

# Long values are cut off; NULL has a word.
apply_behind_gate(
	$publisher, $subscriber, wait_states(1),
	'a long key is waited for',
	('UPDATE long SET v = v + 1') x 2);
hot_keys_become(
	q(key = repeat('x', 127), waits),
	q(relation = 'long'::regclass AND key_hash IS NOT NULL),
	't|1', 'it is cut off');

# What follows a transaction that is applied alone waits for no key.
apply_behind_gate(
	$publisher,
	$subscriber,
	'waiting for lock, waiting for dependency, waiting for dependency',
	'everything waits for a transaction that is applied alone',
	'UPDATE audited SET v = 1',
	(   'UPDATE accounts SET balance = 0 WHERE id = 20',
		'UPDATE accounts SET balance = 0 WHERE id = 21'));
hot_keys_become(
	'index, key_hash, key, waits',
	q(relation = 'accounts'::regclass AND cause = 'barrier'),
	'2',
	'a barrier is a cause of its own, of the table that waited');

# Values are for those who may read the table.
my $as_looker =
  q(SET ROLE looker; SELECT coalesce(key, 'NULL') || ' ' || waits FROM parallel_apply.hot_keys
	WHERE relation = 'accounts'::regclass AND key_hash IS NOT NULL);
is(on_subscriber($as_looker),
	'NULL 3', 'who may not read the table sees no key');
on_subscriber('GRANT SELECT (id) ON accounts TO looker');
is(on_subscriber($as_looker), 'NULL 3', 'nor who may read a part of it');
on_subscriber('GRANT SELECT (balance) ON accounts TO looker');
is(on_subscriber($as_looker), '7 3', 'who may read all columns does');
on_subscriber('ALTER TABLE accounts ENABLE ROW LEVEL SECURITY');
is(on_subscriber($as_looker), 'NULL 3', 'unless rows are hidden from him');
on_subscriber(
	'ALTER TABLE accounts DISABLE ROW LEVEL SECURITY; GRANT SELECT ON accounts TO looker'
);
is(on_subscriber($as_looker), '7 3', 'rights are those of now');

# More keys than are kept; the hottest one stays.
reload_with($subscriber,
	'parallel_apply.writers_per_subscription = ' . ($many + 1));
wait_for_pool($subscriber, 'tap', $many + 1);
apply_behind_gate(
	$publisher,
	$subscriber,
	wait_states($many),
	"$many transactions wait for $many rows",
	'UPDATE accounts SET balance = 1 WHERE id BETWEEN 41 AND 40 + ' . $many,
	map { "UPDATE accounts SET balance = 2 WHERE id = 40 + $_" } 1 .. $many);
hot_keys_become(
	'sum(waits)',
	q(relation = 'accounts'::regclass AND key_hash IS NULL AND cause <> 'barrier'),
	3 + $many,
	'all waits of a table are counted');
is( on_subscriber(
		q(SELECT concat_ws('|', count(*), max(key) FILTER (WHERE waits - too_many > 2), sum(waits))
		FROM parallel_apply.hot_keys WHERE key_hash IS NOT NULL)),
	'32|7|' . (3 + $many + 3),
	'but only so many keys are kept: the hottest ones');

my (undef, undef, $error) = $subscriber->psql('postgres',
	'CREATE ROLE nobody; SET ROLE nobody; TABLE parallel_apply.hot_keys');
like($error, qr/permission denied/, 'not everybody may look');

rows_equal($publisher, $subscriber, $_)
  for qw(gate accounts codes whole long audited);
finish($publisher, $subscriber,
	qr/permission denied for schema parallel_apply/);
done_testing();
