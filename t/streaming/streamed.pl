# Promise: writers apply streamed transactions, as one large transaction each, in
# their place in the commit order, when their end is known.
# (streams_in_progress.pl tests those that are applied before.)
#
# Nothing drains the pool: a transaction that was committed before, and is blocked
# by a lock, is still there while the streamed one is applied.  Several are streamed
# at a time, with subtransactions that were rolled back, definitions inside of them,
# and processes that exit in the middle.
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
	subscriber_conf => q(parallel_apply.queue_size = 4MB
		parallel_apply.streaming_apply = file));

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE history (n int, part int);
	CREATE TABLE first_seen (id int PRIMARY KEY, v int);
	CREATE TABLE altered (id int PRIMARY KEY, a int);
	CREATE TABLE emptied (id int PRIMARY KEY);));
$subscriber->sql('ALTER TABLE altered ADD b text');
$subscriber->create_extension;
my $streaming =
  $subscriber->pg_version >= 16 ? 'streaming = parallel' : 'streaming = on';
$pair->subscribe('tap', with => $streaming);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO emptied SELECT generate_series(1, 10);));

my @tables = qw(items gate history first_seen altered emptied);

# An older transaction waits for a lock; the streamed one is applied meanwhile, and
# the younger one behind it.
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
my $streamed = $pair->begin_streamed(item_rows(3000));
$publisher->sql('UPDATE gate SET n = n + 1');
$streamed->query_safe('COMMIT');
$publisher->sql('INSERT INTO history VALUES (2, 0)');
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for prior commit',
	'a streamed transaction is applied while an older one is held up');
is($subscriber->sql('SELECT count(*) FROM items'),
	'0', 'and is not visible before it');
$lock->query_safe('COMMIT');
$pair->tables_equal('after it', @tables);
$subscriber->counter_becomes('rows', '>= 3000',
	'a writer has applied the streamed transaction');

# A streamed transaction of which nothing is left has its turn as well.
$lock->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
my $other = $pair->begin_streamed('SAVEPOINT a;' . item_rows(1000));
$publisher->sql('UPDATE gate SET n = n + 1');
$other->query_safe('ROLLBACK TO SAVEPOINT a; COMMIT');
$other->quit;
$publisher->sql('INSERT INTO history VALUES (2, 1)');
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for prior commit',
	'a streamed transaction without a change waits for an older one');
$lock->query_safe('COMMIT');
$pair->tables_equal('after one without a change', @tables);

# A transaction that changes a row of the streamed one depends on it.
my $rows = 1000;
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'a transaction that writes the same row waits for the streamed one',
	'INSERT INTO history VALUES (3, 0)',
	item_rows($rows) . "UPDATE items SET v = 1 WHERE id = " . last_item(),
	"UPDATE items SET v = v + 1 WHERE id = " . last_item());
$pair->tables_equal('after a dependency', @tables);

# Subtransactions, nested and rolled back, and definitions that first arrive in one
# that is rolled back
$streamed->query_safe(
		'BEGIN;'
	  . item_rows(1000)
	  . 'SAVEPOINT a;'
	  . item_rows(1000)
	  . 'INSERT INTO first_seen SELECT i, 0 FROM generate_series(1, 1000) i;
	SAVEPOINT b; UPDATE items SET v = 5; DELETE FROM gate; RELEASE SAVEPOINT b;'
	  . item_rows(1000)
	  . 'ROLLBACK TO SAVEPOINT a;'
	  . item_rows(1000)
	  . 'INSERT INTO first_seen SELECT i, 1 FROM generate_series(500, 1500) i;
	SAVEPOINT c; UPDATE items SET v = v + 2 WHERE id % 2 = 0; RELEASE SAVEPOINT c;
	COMMIT;');
$publisher->sql('UPDATE first_seen SET v = v + id');
$pair->tables_equal('after subtransactions', @tables);

# Rolled back changes free their space in the end: in the middle, at the beginning,
# with nested ones, and with more changes behind them.
foreach my $begin (item_rows(2000), '')
{
	$streamed->query_safe("BEGIN; $begin SAVEPOINT a;" . item_rows(5000));
	my $least = $begin eq '' ? 0 : 400_000;
	$subscriber->wait_for_spooled('> ' . ($least + 1_000_000),
		'a subtransaction is not streamed');
	$streamed->query_safe('ROLLBACK TO SAVEPOINT a;');
	# The server does not hurry to write the end of a subtransaction.
	$publisher->sql(q(SELECT pg_logical_emit_message(true, '', '')));
	my $bytes = $subscriber->wait_for_spooled('< ' . ($least + 500_000),
		'a subtransaction that was rolled back takes space');
	cmp_ok($bytes, '>=', $least, 'and nothing else is gone');
	$streamed->query_safe(item_rows(1000)
		  . 'SAVEPOINT b;'
		  . item_rows(1000)
		  . 'SAVEPOINT c; UPDATE items SET v = 6;'
		  . 'RELEASE SAVEPOINT c;'
		  . item_rows(1000)
		  . 'ROLLBACK TO SAVEPOINT b; SAVEPOINT d;'
		  . item_rows(1000)
		  . 'RELEASE SAVEPOINT d;'
		  . item_rows(1000)
		  . 'COMMIT;');
	$pair->tables_equal('after subtransactions that were cut off', @tables);
}

# A definition that changes within the transaction, and TRUNCATE
$streamed->query_safe(
	'BEGIN; INSERT INTO altered SELECT i, i FROM generate_series(1, 1000) i;'
	  . item_rows(1000)
	  . q(ALTER TABLE altered ADD b text;
	INSERT INTO altered SELECT i, i, 'new' FROM generate_series(1001, 2000) i;
	TRUNCATE emptied; INSERT INTO emptied SELECT generate_series(20, 2000); COMMIT;)
);
$publisher->sql(q(UPDATE altered SET b = 'old' WHERE id <= 100));
$pair->tables_equal('after DDL and TRUNCATE in a streamed transaction',
	@tables);

# Two at a time, one of them rolled back as a whole, and others between them
$other = $pair->begin_streamed(item_rows(1000));
$streamed->query_safe('BEGIN;' . item_rows(1000));
$publisher->sql("INSERT INTO history VALUES ($_, 1)") for 1 .. 5;
$other->query_safe(item_rows(1000) . 'UPDATE gate SET n = n + 1');
$streamed->query_safe(item_rows(1000));
$other->query_safe('COMMIT');
$publisher->sql('UPDATE gate SET n = n * 2');
$streamed->query_safe('ROLLBACK');
$publisher->sql('UPDATE items SET v = v + 1');
$pair->tables_equal('after two at a time', @tables);
is($subscriber->counter('fallbacks'), 0, 'no writer has given up');

# The connection is lost in the middle of one.
$other = $pair->begin_streamed(item_rows(1000));
$subscriber->restart_apply('tap');
$other->query_safe(item_rows(1000) . 'UPDATE gate SET n = n + 1; COMMIT');
$pair->tables_equal('after the apply worker was terminated in the middle',
	@tables);

# The pool stops in the middle of one, and starts in the middle of another.  Each is
# completed by the side that began it.
$other = $pair->begin_streamed(item_rows(1000));
$subscriber->append_conf('postgresql.conf',
	'parallel_apply.writers_per_subscription = 1');
$subscriber->reload;
$subscriber->wait_for_pool('tap', 0);
$other->query_safe(item_rows(1000) . 'UPDATE gate SET n = n + 1; COMMIT');
$pair->tables_equal('after the pool has stopped in the middle', @tables);

$other = $pair->begin_streamed(item_rows(1000));
$subscriber->append_conf('postgresql.conf',
	'parallel_apply.writers_per_subscription = 4');
$subscriber->reload;
$publisher->sql('INSERT INTO history VALUES (4, 0)');
$publisher->wait_applied;
# The apply worker restarts where the server has parallel apply workers of its own.
$subscriber->wait_for_pool('tap', $subscriber->pg_version >= 16 ? 4 : 0);
$other->query_safe(item_rows(1000) . 'UPDATE gate SET n = n + 1; COMMIT');
$subscriber->wait_for_pool('tap');
$pair->tables_equal('after the pool has started again', @tables);

# An error in one is PostgreSQL's own, and the transaction is fetched again.
my $offset = -s $subscriber->logfile;
my $twice = last_item() + 1500;
$subscriber->sql("INSERT INTO items VALUES ($twice, 0)");
$streamed->query_safe('BEGIN;' . item_rows(2000) . 'COMMIT');
$publisher->sql('INSERT INTO history VALUES (5, 0)');
$subscriber->wait_for_log(duplicate_key('items'), $offset);
$subscriber->sql("DELETE FROM items WHERE id = $twice");
$pair->tables_equal('after an error in a streamed transaction', @tables);

$subscriber->no_spool_is_left;

end_sessions($streamed, $other, $lock);
finish($publisher, $subscriber, worker_terminated(), duplicate_key('items'));
done_testing();
