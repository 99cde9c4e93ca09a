# Promise: writers execute PREPARE, COMMIT PREPARED and ROLLBACK PREPARED, each in
# its turn.
#
# The model is the publisher, with its tables and its prepared transactions.  A lock
# on a row that an older transaction needs forces the order, and processes are
# killed between PREPARE and what follows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		max_prepared_transactions = 20
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		max_prepared_transactions = 20
		parallel_apply.selftest_fast = on));

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, u int UNIQUE);
	CREATE TABLE history (id int PRIMARY KEY, v int);
	CREATE TABLE fired (id int PRIMARY KEY);));
$subscriber->sql(
	q(CREATE TABLE log (line bigserial, id int, pid int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO public.log (id, pid) VALUES (NEW.id, pg_backend_pid()); RETURN NEW; END$$;
	CREATE TRIGGER note AFTER INSERT ON fired FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE fired ENABLE ALWAYS TRIGGER note;));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'two_phase = on, streaming = on');
$subscriber->poll_query_until('postgres',
	q(SELECT subtwophasestate = 'e' FROM pg_subscription WHERE subname = 'tap')
) or die 'two_phase is not enabled';
$subscriber->wait_for_pool('tap');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO items SELECT i, 0, i FROM generate_series(1, 100) i;));

sub prepare
{
	my ($name, $sql) = @_;
	return "BEGIN; $sql; PREPARE TRANSACTION '$name';\n";
}

# A prepared transaction has another name on the subscriber, with its xid.
sub all_is_equal
{
	my ($when, $prepared) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$_ is equal $when") for qw(gate items history);
	is($subscriber->sql('SELECT count(*) FROM pg_prepared_xacts'),
		$prepared, "$prepared prepared transactions are there $when");
	return;
}

sub tries
{
	return $subscriber->counter('fallbacks + retries');
}

# A prepared transaction is invisible, and its rows are locked.
$publisher->wait_applied;
$subscriber->wait_until_counted;
my $tries = tries();
my $done = $subscriber->counter('transactions');
$publisher->sql(
		prepare('a', 'UPDATE items SET v = 1 WHERE id <= 10')
	  . prepare('b', 'INSERT INTO history VALUES (1, 1)')
	  . prepare(
		'empty', q(SELECT pg_logical_emit_message(true, 'none', 'of ours'))));
all_is_equal('after PREPARE', 3);
is($subscriber->sql('SELECT count(*) FROM items WHERE v = 1'),
	'0', 'a prepared transaction is not visible');
is( $subscriber->sql(
		q(SELECT count(*) FROM (SELECT FROM items FOR UPDATE SKIP LOCKED) s)),
	'90',
	'but locked');
$publisher->sql(
	q(COMMIT PREPARED 'a'; UPDATE items SET v = v + 1; ROLLBACK PREPARED 'b';
	COMMIT PREPARED 'empty'; INSERT INTO history VALUES (1, 2);));
all_is_equal('after COMMIT PREPARED and ROLLBACK PREPARED', 0);
$subscriber->wait_until_counted;
is($subscriber->counter('transactions') - $done,
	8, 'all of them were applied by writers');
is(tries(), $tries, 'at the first attempt');

# Each of them waits for everything older, in its turn.  Transactions that need the
# rows of a prepared transaction depend on its COMMIT PREPARED.
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1;'
	  . prepare('c', 'UPDATE items SET v = 10 WHERE id = 1')
	  . q(COMMIT PREPARED 'c'; UPDATE items SET v = v * 2 WHERE id = 1;));
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for prior commit, waiting for dependency',
	'PREPARE and COMMIT PREPARED wait for their turn, others for their rows');
is($subscriber->sql('SELECT count(*) FROM pg_prepared_xacts'),
	'0', 'nothing is prepared before its turn');
$lock->query_safe('COMMIT');
all_is_equal('after waiting', 0);
is(tries(), $tries, 'nothing had to be tried again');

# Its rows are those of its COMMIT PREPARED, even if it was prepared long before.
$publisher->sql(prepare('k', 'UPDATE items SET v = 20 WHERE id = 2'));
all_is_equal('before its rows are wanted', 1);
$lock->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
$publisher->sql(
	q(UPDATE gate SET n = n + 1; COMMIT PREPARED 'k';
	UPDATE items SET v = v * 2 WHERE id = 2; UPDATE items SET v = v * 2 WHERE id = 3;)
);
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency, waiting for prior commit',
	'only transactions that need the rows of a prepared transaction wait for its end'
);
$lock->query_safe('COMMIT');
all_is_equal('after waiting for its rows', 0);

# Many at a time, with rows and unique values that move from one to another
my $sql = '';
for my $i (1 .. 20)
{
	my ($x, $y) = ($i, $i + 40);
	$sql .= prepare("d$i",
		"UPDATE items SET u = -$x WHERE id = $x; UPDATE items SET v = v + 1, u = $x WHERE id = $y"
	);
	$sql .= "UPDATE gate SET n = n + 1;\n";
	$sql .=
	  $i % 5 == 0 ? "ROLLBACK PREPARED 'd$i';\n" : "COMMIT PREPARED 'd$i';\n";
	$sql .= "UPDATE items SET u = -$y, v = v * 2 WHERE id = $y;\n"
	  . "INSERT INTO history VALUES ($i + 100, (SELECT v FROM items WHERE id = $y));\n";
}
$publisher->sql($sql);
all_is_equal('after many', 0);

# Streamed and prepared
$publisher->sql(
	prepare('e',
		'INSERT INTO items SELECT i, 0, i FROM generate_series(1001, 5000) i')
	  . prepare(
		'f',
		'SAVEPOINT s; INSERT INTO history SELECT i, 0 FROM generate_series(1001, 5000) i; ROLLBACK TO s; INSERT INTO history SELECT i, 1 FROM generate_series(2001, 6000) i'
	  ));
all_is_equal('after streamed ones are prepared', 2);
$publisher->sql(
	q(COMMIT PREPARED 'f'; ROLLBACK PREPARED 'e'; UPDATE history SET v = v + 1 WHERE id % 7 = 0)
);
all_is_equal('after streamed ones are finished', 0);

# Processes exit between PREPARE and what follows.
for my $how ('the apply worker is terminated', 'the server is killed')
{
	$publisher->sql(
			prepare('g', 'UPDATE items SET v = v + 100 WHERE id <= 50')
		  . prepare('h', 'UPDATE items SET v = v + 1000 WHERE id > 50'));
	all_is_equal("before $how", 2);
	if ($how =~ /server/)
	{
		$subscriber->stop('immediate');
		$subscriber->start;
	}
	else
	{
		$subscriber->restart_apply('tap');
	}
	$publisher->sql(
		q(COMMIT PREPARED 'h'; UPDATE items SET v = v + 1 WHERE id > 60;
		ROLLBACK PREPARED 'g'; UPDATE items SET v = v * 2 WHERE id % 3 = 0;));
	all_is_equal("after $how", 0);
}

# Transactions that run user code, prepared ones among them.  The first writer that is free
# claims several of them together: there are two writers, and both are busy until all are
# there.  How many it claims does not depend on measured times (selftest_fast).  The server
# is killed when it has prepared two of them, and waits for a row in the next one.
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 2)));
$subscriber->wait_for_pool('tap', 2);
$lock->quit;
$lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
my $row = $subscriber->hold('SELECT FROM items WHERE id = 50 FOR UPDATE');
$publisher->sql(
	join '',
	"UPDATE gate SET n = n + 1;\n",
	"INSERT INTO fired VALUES (1);\n",
	"INSERT INTO fired VALUES (2);\n",
	prepare('s', 'INSERT INTO fired VALUES (3)'),
	prepare('t', 'INSERT INTO fired VALUES (4)'),
	"BEGIN; INSERT INTO fired VALUES (5); UPDATE items SET v = v + 1 WHERE id = 50; COMMIT;\n",
	"COMMIT PREPARED 't';\n",
	"INSERT INTO fired VALUES (6);\n");
$subscriber->wait_until(
	'queue_transactions = 8 FROM parallel_apply.subscriptions',
	'not all are received');
$subscriber->states_become('waiting for lock, waiting for prior commit',
	'both writers are busy');
$lock->query_safe('COMMIT');
$subscriber->wait_until('count(*) = 2 FROM pg_prepared_xacts',
	'they are not prepared');
$subscriber->wait_for_state('waiting for lock');
is( $subscriber->sql(
		q(SELECT string_agg(id::text, ' ' ORDER BY line) FROM log WHERE id > 0)
	),
	'1 2',
	'no prepared one is visible');
$subscriber->stop('immediate');
$subscriber->start;
$_->quit for $lock, $row;
all_is_equal('after transactions with user code', 1);
$pair->rows_equal('fired');
$publisher->sql(q(COMMIT PREPARED 's'; INSERT INTO fired VALUES (7)));
all_is_equal('after COMMIT PREPARED of one of them', 0);
$pair->rows_equal('fired');
is( $subscriber->sql(
		q(SELECT string_agg(id::text, ' ' ORDER BY line) FROM log WHERE id > 0)
	),
	'1 2 3 4 5 6 7',
	'triggers have fired once, in the order of the commits');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));

# Errors are PostgreSQL's own: a row that exists already, and a transaction that a
# user has finished by hand.
$subscriber->wait_for_pool('tap');
my $offset = -s $subscriber->logfile;
$subscriber->sql('INSERT INTO history VALUES (10000, 0)');
$publisher->sql(prepare('i', 'INSERT INTO history VALUES (10000, 1)')
	  . 'UPDATE gate SET n = n + 1;');
$subscriber->wait_for_log(duplicate_key('history'), $offset);
$subscriber->sql('DELETE FROM history WHERE id = 10000');
all_is_equal('after an error in PREPARE', 1);
$publisher->sql(q(COMMIT PREPARED 'i'));

$publisher->sql(prepare('j', 'INSERT INTO history VALUES (10001, 1)'));
$publisher->wait_applied;
my $name = $subscriber->sql('SELECT gid FROM pg_prepared_xacts');
like($name, qr/^pg_gid_\d+_\d+$/, 'names are those of PostgreSQL');
$subscriber->sql("ROLLBACK PREPARED '$name'");
$offset = -s $subscriber->logfile;
$publisher->sql(q(COMMIT PREPARED 'j'));
$subscriber->wait_for_log(
	qr/ERROR: +prepared transaction with identifier "$name" does not exist/,
	$offset);
$subscriber->sql(
	"BEGIN; INSERT INTO history VALUES (10001, 1); PREPARE TRANSACTION '$name'"
);
all_is_equal('after an error in COMMIT PREPARED', 0);

# The keys are not known for transactions that were prepared before the pool
# started, for those with too many keys, and for TRUNCATE, which has none.  Then
# everything waits for the COMMIT PREPARED.  Detects: a following transaction is
# tried, and waits for a lock.
my $gate = $subscriber->hold('COMMIT');

sub next_one_waits
{
	my ($prepared, $next, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$gate->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		"UPDATE gate SET n = n + 1; COMMIT PREPARED '$prepared'; $next;");
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit, waiting for dependency',
		"$name: the next transaction waits for it");
	$gate->query_safe('COMMIT');
	all_is_equal("after that, $name", 0);
	return;
}

$publisher->sql(prepare('l', 'UPDATE items SET v = v + 1 WHERE id = 5'));
all_is_equal('before the pool starts', 1);
$subscriber->restart_apply('tap');
$subscriber->wait_for_pool('tap');
next_one_waits(
	'l',
	'UPDATE items SET v = v * 2 WHERE id = 5',
	'it was prepared before the pool started');
$publisher->sql(prepare('m', 'TRUNCATE history'));
next_one_waits('m', 'INSERT INTO history VALUES (1, 1)', 'a TRUNCATE');
$publisher->sql(
	prepare(
		'n',
		'INSERT INTO items SELECT i, 0, i FROM generate_series(100001, 133000) i'
	));
next_one_waits(
	'n',
	'UPDATE items SET v = 1 WHERE id = 133000',
	'a transaction with many keys');

# What is held during a pause has not been received: the next apply worker gets it
# again.  Detects: its position is confirmed, so that it is lost.
$publisher->sql(prepare('o', 'UPDATE items SET v = v + 7 WHERE id = 6'));
all_is_equal('before a pause', 1);
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$subscriber->wait_until(q(state = 'paused' FROM parallel_apply.subscriptions),
	'it is not paused');
$publisher->sql(q(COMMIT PREPARED 'o'));
$publisher->wait_for_answer('tap');
$subscriber->restart_apply('tap');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
all_is_equal('after a pause', 0);

$gate->quit;
finish(
	$publisher,
	$subscriber,
	worker_terminated(),
	duplicate_key('history'),
	qr/ERROR: +prepared transaction with identifier "pg_gid_\d+_\d+" does not exist/,
	qr/ERROR: +could not (receive data from WAL stream|send data)/);
done_testing();
