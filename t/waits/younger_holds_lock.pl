# Promise: a younger transaction that waits for its turn may hold a lock that an
# older one needs.  The lock manager does not know of turns, so it cannot detect
# this deadlock.  The younger transaction is rolled back and repeated, which only a
# counter shows.
#
# A local session's lock on a row of the table gate blocks a transaction before it
# needs what a younger one locks meanwhile, either through a unique index on an
# expression, which is not tracked as a dependency, or through local sessions.  Only
# one order of the transactions is free of errors and gives the same rows.  The
# comment of each part names the faults that it detects.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
		subscriber_conf => "parallel_apply.writers_per_subscription = 4\n"
	  . "parallel_apply.max_batch_transactions = 1\n"
	  . "parallel_apply.selftest_fast = on\n"
	  . "deadlock_timeout = 100ms\n"
	  . "autovacuum = off\n");
my @tables = qw(gate names items late);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE names (id int PRIMARY KEY, name text);
	CREATE TABLE items (id int PRIMARY KEY, n int);
	CREATE TABLE late (id int PRIMARY KEY);)
);
$subscriber->sql(
	q(CREATE UNIQUE INDEX names_lower ON names (lower(name));
	CREATE FUNCTION is_not_writer() RETURNS boolean LANGUAGE sql AS $$
	SELECT backend_type NOT LIKE 'parallel_apply writer%'
	FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid() $$;)
);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO names SELECT i, 'name' || i FROM generate_series(1, 9) i;
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 9) i;)
);
$subscriber->create_extension;
$pair->subscribe('tap');

my $lock = 'waiting for lock';
my $turn = 'waiting for prior commit';
my $dependency = 'waiting for dependency';

# Transactions of the publisher, the first of which has to pass the gate
sub start_behind_gate
{
	my ($states, $name, $older, @younger) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->commit_each("UPDATE gate SET n = n + 1 WHERE id = 1; $older",
		@younger);
	$subscriber->states_become(join(', ', @$states), $name);
	return $gate;
}

# Assert that all are applied, and that this number of transactions was rolled back
# for it.
sub ends_well
{
	my ($commit_order_aborts, $victims, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$_ is equal on both sides after $name")
	  for @tables;
	is($subscriber->counter('commit_order_aborts') - $commit_order_aborts,
		$victims, "as many transactions as had to gave way to $name");
	return;
}

# The younger transaction, which waits for its turn, has inserted a value that the
# older one inserts and deletes.  Detects: no process checks whether the oldest
# transaction waits.
my $commit_order_aborts = 0;
my $gate = start_behind_gate(
	[ $lock, $dependency, $turn ],
	'a younger transaction has inserted what an older one is about to insert',
	q(INSERT INTO names VALUES (10, 'short-lived')),
	q(DELETE FROM names WHERE id = 10),
	q(INSERT INTO names VALUES (11, 'Short-Lived')));
$gate->query_safe('COMMIT');
ends_well($commit_order_aborts, 1,
	'a transaction that needs the turn holder\'s lock');
$gate->quit;

# The same, but the younger one waits for a dependency in the middle of its changes.
# Detects: only transactions that wait for their turn check it.
$commit_order_aborts = $subscriber->counter('commit_order_aborts');
$gate = start_behind_gate(
	[ $lock, $dependency, $dependency ],
	'a younger transaction waits for a dependency with the value inserted',
	q(INSERT INTO names VALUES (20, 'another'); UPDATE items SET n = 1 WHERE id = 1),
	q(DELETE FROM names WHERE id = 20),
	q(INSERT INTO names VALUES (21, 'Another'); UPDATE items SET n = n * 10 WHERE id = 1)
);
$gate->query_safe('COMMIT');
ends_well($commit_order_aborts, 1,
	'a transaction that needs the lock of one with a dependency');
$gate->quit;

# The oldest waits for a local session, which waits for a younger writer.  Detects:
# only direct blockers are considered.  The local session is not the victim either;
# the younger transaction overwrites its change, as in serial apply.
$commit_order_aborts = $subscriber->counter('commit_order_aborts');
my $local = start_behind_gate(
	[ $lock, $turn ],
	'a younger transaction has changed a row that a local session wants',
	q(UPDATE items SET n = 2 WHERE id = 2),
	q(UPDATE items SET n = 3 WHERE id = 3));
$local->query_until(qr/wants row/,
	"\\echo wants row\nUPDATE items SET n = -3 WHERE id = 3;\nCOMMIT;\n");
ends_well($commit_order_aborts, 1, 'one that waits for a local session');
$local->query_safe('SELECT 1');
is($subscriber->sql('SELECT n FROM items WHERE id IN (2, 3) ORDER BY id'),
	"2\n3", 'the local session came in between, and has made its change');
$local->quit;

# A chain: the oldest waits for a younger writer, which waits in the lock manager
# for an even younger one, which waits for its turn.  Detects: the first of them,
# which cannot check anything, is expected to roll back instead of the last one; a
# transaction rolls back for which only another younger one waits.
$commit_order_aborts = $subscriber->counter('commit_order_aborts');
$gate = $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
my $first = start_behind_gate(
	[ $lock, $lock, $turn ],
	'a younger transaction waits for another lock with the value inserted',
	q(INSERT INTO names VALUES (40, 'chained'); DELETE FROM names WHERE id = 40),
	q(INSERT INTO names VALUES (41, 'Chained'); UPDATE gate SET n = n + 1 WHERE id = 2;
		INSERT INTO names VALUES (42, 'tail'); DELETE FROM names WHERE id = 42),
	q(INSERT INTO names VALUES (43, 'Tail')));

# The second continues up to the value that the third has inserted.
$gate->query_safe('COMMIT');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT count(*) = 1 FROM parallel_apply.writers a, parallel_apply.writers b
		WHERE b.pid = ANY (pg_blocking_pids(a.pid)))
	),
	'one writer waits for a lock of another');
is( $subscriber->counter('commit_order_aborts') - $commit_order_aborts,
	0,
	'which is no reason to roll it back, as the oldest does not wait for it');
$first->query_safe('COMMIT');
$publisher->wait_applied;
$pair->rows_equal($_, "$_ is equal on both sides after a chain of writers")
  for @tables;
cmp_ok($subscriber->counter('commit_order_aborts') - $commit_order_aborts,
	'>=', 1, 'the end of the chain gave way');
$_->quit for $gate, $first;

# PostgreSQL's own apply loop replays the oldest.  Detects: only writers are
# considered the oldest.  Its table has a constraint that fails in every writer, so
# that its writer gives it up after the younger one has been applied.
$commit_order_aborts = $subscriber->counter('commit_order_aborts');
$gate = start_behind_gate(
	[ $lock, $turn ],
	'a younger transaction has inserted what a fallback is about to insert',
	q(INSERT INTO late VALUES (1);
		INSERT INTO names VALUES (50, 'native'); DELETE FROM names WHERE id = 50),
	q(INSERT INTO names VALUES (51, 'Native')));
$subscriber->sql('ALTER TABLE late ADD CHECK (is_not_writer())');
$gate->query_safe('COMMIT');
ends_well($commit_order_aborts, 1, 'a fallback');
$gate->quit;
is($subscriber->counter('fallbacks'),
	1, 'the oldest was replayed by PostgreSQL itself');

# A batch holds the lock.  Detects: part of a batch lost, or applied twice, after a
# rollback.
$subscriber->reload_with(
	'parallel_apply.max_batch_transactions = 32',
	'parallel_apply.writers_per_subscription = 2');
$subscriber->wait_for_pool('tap', 2);
my $fallbacks = $subscriber->counter('fallbacks');
$commit_order_aborts = $subscriber->counter('commit_order_aborts');
my $most_changes;
$pair->run_behind_gate(
	'SELECT FROM gate WHERE id = 1 FOR UPDATE',
	q(UPDATE gate SET n = n + 1 WHERE id = 1;
		INSERT INTO names SELECT i, 'many' || i FROM generate_series(101, 120) i;
		DELETE FROM names WHERE id BETWEEN 101 AND 120),
	[
		map {
			"INSERT INTO names VALUES (2$_, 'MANY1$_'); UPDATE items SET n = n + 1 WHERE id = 1 + $_ % 9"
		} '01' .. '20'
	],
	sub {
		$most_changes = $subscriber->sql(
			'SELECT max(changes_received) FROM parallel_apply.writers');
	});
cmp_ok($most_changes, '>', 4,
	'a writer has claimed more than two transactions together');
$pair->rows_equal($_,
	"$_ is equal on both sides after a batch was rolled back")
  for @tables;
cmp_ok($subscriber->counter('commit_order_aborts') - $commit_order_aborts,
	'>=', 1, 'a batch gave way to the oldest');
is($subscriber->counter('fallbacks'),
	$fallbacks, 'nothing of it had to be replayed by PostgreSQL itself');
finish($publisher, $subscriber);
done_testing();
