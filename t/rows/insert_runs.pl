# Promise: INSERTs of a transaction or batch are applied together, with the same result
# as PostgreSQL's own apply.
#
# Serial apply is a second subscription, in a database without the extension, whose
# tables have the same definitions.  Rows that were applied together have the same
# cmin, which shows the runs, and where there must be none.  The comment of each
# part names the faults that it detects.  There are batches on a slow machine, too (see
# selftest_wakes.c).
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
		max_prepared_transactions = 10
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		max_prepared_transactions = 10
		parallel_apply.queue_size = 256kB
		parallel_apply.selftest_fast = on
		parallel_apply.writers_per_subscription = 2));

my @tables =
  qw(gate plain other defined narrow parts counted checked numbers latecomers doubts audited);

$publisher->sql(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE plain (id int PRIMARY KEY, v int, note text);
	CREATE TABLE other (id int PRIMARY KEY, v int);
	CREATE TABLE defined (gone int, id int PRIMARY KEY, a int, b text, f float8, ts timestamptz, n numeric, x bytea);
	ALTER TABLE defined DROP gone;
	CREATE TABLE narrow (v int);
	CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k));
	CREATE TABLE counted (id int PRIMARY KEY, n int);
	CREATE TABLE checked (id int PRIMARY KEY, v int);
	CREATE TABLE numbers (id int PRIMARY KEY, v int);
	CREATE TABLE latecomers (id int PRIMARY KEY, v int);
	CREATE TABLE doubts (id int PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	ALTER TABLE narrow REPLICA IDENTITY FULL;
	INSERT INTO gate VALUES (1, 0), (2, 0);)
);

# The same in the database of the pool and in that of serial apply
my $definitions = q(
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE plain (id int PRIMARY KEY, v int, note text);
	CREATE UNIQUE INDEX plain_note ON plain (lower(note)) WHERE note LIKE 'name%';
	CREATE TABLE other (id int PRIMARY KEY, v int);
	CREATE TABLE defined (x bytea, gone int, n numeric(12, 3), ts timestamptz, f float8,
		constant text NOT NULL DEFAULT repeat('d', 30), twice int GENERATED ALWAYS AS (a * 2) STORED,
		b varchar(20000), id int PRIMARY KEY, gone2 text, a int NOT NULL CHECK (a > -5),
		long text GENERATED ALWAYS AS (b || 'generated') STORED,
		placed boolean GENERATED ALWAYS AS (tableoid <> 0) STORED,
		CONSTRAINT later UNIQUE (n) DEFERRABLE INITIALLY DEFERRED,
		CONSTRAINT no_two EXCLUDE USING gist (int4range(a, a, '[]') WITH &&) WHERE (a > 1000000));
	ALTER TABLE defined DROP gone, DROP gone2;
	CREATE INDEX defined_twice ON defined (twice, (a + 1)) WHERE a % 2 = 0;
	CREATE INDEX defined_b ON defined USING hash (b);
	CREATE TABLE narrow (v int);
	ALTER TABLE narrow REPLICA IDENTITY FULL;
	CREATE TABLE parts (id int, k int, v text, placed boolean GENERATED ALWAYS AS (tableoid <> 0) STORED,
		PRIMARY KEY (id, k)) PARTITION BY RANGE (k);
	CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10) PARTITION BY HASH (id);
	CREATE TABLE parts1a PARTITION OF parts1 FOR VALUES WITH (modulus 2, remainder 0);
	CREATE TABLE parts1b (v text, gone int, k int NOT NULL, id int NOT NULL,
		placed boolean GENERATED ALWAYS AS (tableoid <> 0) STORED, CHECK (id <> -1));
	ALTER TABLE parts1b DROP gone;
	ALTER TABLE parts1 ATTACH PARTITION parts1b FOR VALUES WITH (modulus 2, remainder 1);
	CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
	CREATE TABLE parts3 PARTITION OF parts DEFAULT;
	CREATE TABLE counted (id int PRIMARY KEY, n int);
	CREATE FUNCTION count_rows() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM public.counted); END';
	ALTER TABLE counted ADD CHECK (n = count_rows());
	CREATE TABLE checked (id int PRIMARY KEY, v int CHECK (v < 1000));
	CREATE FUNCTION count_numbers() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM public.numbers); END';
	CREATE DOMAIN number AS int CHECK (VALUE = count_numbers());
	CREATE TABLE numbers (id int PRIMARY KEY, v number);
	CREATE FUNCTION count_latecomers() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM public.latecomers); END';
	CREATE DOMAIN latecomer AS int;
	CREATE TABLE latecomers (id int PRIMARY KEY, v latecomer);
	CREATE FUNCTION is_fine(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
	CREATE DOMAIN doubtful AS int;
	CREATE TABLE doubts (id int PRIMARY KEY, v doubtful);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	CREATE TABLE audit (id int, rows bigint);
	CREATE FUNCTION write_audit() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.audit SELECT NEW.id,
			(SELECT count(*) FROM public.audited) + (SELECT count(*) FROM public.other);
		RETURN NEW;
	END $$;
	CREATE TRIGGER audit BEFORE INSERT ON audited FOR EACH ROW EXECUTE FUNCTION write_audit();
	ALTER TABLE audited ENABLE ALWAYS TRIGGER audit;);
$subscriber->sql('CREATE DATABASE serial');
$subscriber->safe_psql($_, $definitions) for qw(postgres serial);
$subscriber->create_extension;
$pair->subscribe('tap', with => 'two_phase = on');
$pair->subscribe_serially(with => 'two_phase = on');
$subscriber->wait_for_pool('tap');

# Assert that both subscriptions have the same rows in these tables.
sub both_equal
{
	my ($when, @which) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied($_) for qw(tap serial);
	for my $table (@which)
	{
		my $sql = qq(SELECT count(*) || ' rows, ' || coalesce(md5(string_agg(
			t::text, E'\\n' ORDER BY t::text COLLATE "C")), '-') FROM $table t);
		is( $subscriber->sql($sql),
			$subscriber->safe_psql('serial', $sql),
			"$table is what serial apply makes of it $when");
	}
	return;
}

# Return how many rows of a table satisfy the condition, and how many runs they came
# in.
sub runs
{
	my ($table, $condition) = @_;
	return $subscriber->sql(
		"SELECT count(*) || ' rows in ' || count(DISTINCT (xmin::text, cmin::text)) FROM $table WHERE $condition"
	);
}

sub tries
{
	return $subscriber->counter('fallbacks + retries + commit_order_aborts');
}

# Execute each of these statements in a transaction of its own, while the subscriber is blocked
# by a local session in an older transaction, until it has received all of them.
sub commit_behind_gate
{
	my (@statements) = @_;
	my $count = @statements;
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 1');
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql(join '', @statements);
	$subscriber->wait_until(
		"queue_transactions > $count FROM parallel_apply.subscriptions",
		'the transactions are not received');
	$gate->quit;
	return;
}

# Runs within a transaction, of each kind of table that can have them
$publisher->sql(
	q(INSERT INTO plain SELECT i, i, 'note' FROM generate_series(1, 1000) i;
	INSERT INTO defined SELECT i, i, repeat('b', i), i / 3.0, now(), i / 7.0, '\x00ff'
		FROM generate_series(1, 300) i;
	INSERT INTO narrow SELECT 1 FROM generate_series(1, 200);
	INSERT INTO parts SELECT i, i % 25, 'p' || i FROM generate_series(1, 400) i;)
);
both_equal('after runs', @tables);
is(runs('plain', 'true'), '1000 rows in 4', 'rows come in runs of 256');
is(runs('narrow', 'true'), '200 rows in 1', 'also without a key');
like(
	runs('defined', 'true'),
	qr/^300 rows in [1-9]$/,
	'and with generated columns and defaults');
is(runs('parts', 'true'), '400 rows in 2', 'and to several partitions');
is( $subscriber->sql(
		q(SET enable_seqscan = off; SELECT count(*) FROM plain WHERE id BETWEEN 1 AND 1000)
	),
	'1000',
	'they are found by their index');

# Runs over the transactions of a batch, behind one that waits for a lock
{
	commit_behind_gate(map { "INSERT INTO plain VALUES ($_, 0, 'single');\n" }
		  2001 .. 2300);
	both_equal('after small transactions', 'gate', 'plain');
	my ($runs) = runs('plain', "note = 'single'") =~ /^300 rows in (\d+)$/;
	cmp_ok($runs, '<', 300, 'runs go over transactions of a batch');
}

# A run continues after changes of other tables, which may have runs too, once the writer
# has met them.
{
	my $tries = tries();
	$publisher->sql(
		q(BEGIN;
		INSERT INTO other SELECT i, 0 FROM generate_series(1001, 1050) i;
		INSERT INTO plain VALUES (2500, 0, 'met');
		INSERT INTO narrow VALUES (8);
		DO $$ BEGIN FOR i IN 1001 .. 1050 LOOP
			UPDATE other SET v = i WHERE id = i;
			INSERT INTO plain VALUES (i + 1500, 0, 'mixed');
			INSERT INTO narrow VALUES (9);
			DELETE FROM other WHERE id = i AND i % 2 = 0;
		END LOOP; END $$;
		COMMIT;)
	);
	both_equal('after runs of two tables', 'plain', 'narrow', 'other');
	is(runs('plain', "note = 'mixed'"), '50 rows in 1', 'rows of one table');
	is(runs('narrow', 'v = 9'), '50 rows in 1', 'and of another one');
	is(tries(), $tries, 'and nothing had to be tried again');
}

# A run does not last long: a local session that inserts the same key waits for the
# transaction, as with PostgreSQL's own apply.
{
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		q(BEGIN;
		INSERT INTO plain VALUES (2600, 0, 'first');
		DO $$ BEGIN FOR i IN 1 .. 30 LOOP
			UPDATE other SET v = v + 1 WHERE id BETWEEN 1001 AND 1050;
		END LOOP; END $$;
		UPDATE gate SET n = n + 1 WHERE id = 1;
		COMMIT;)
	);
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->refuses(
		q(SET lock_timeout = '200ms'; INSERT INTO plain VALUES (2600, 0, 'second')),
		qr/canceling statement due to lock timeout/,
		'a local session waits for a row that was inserted some changes ago');
	$gate->release;
	both_equal('after a row and many changes', 'plain', 'other', 'gate');
}

# A change of the same table ends a run, because the same transaction must find its
# rows, and so does a change of a table with code that could see which rows exist.
{
	my $tries = tries();
	$publisher->sql(
		q(BEGIN;
		INSERT INTO plain SELECT i, 0, 'changed' FROM generate_series(3001, 3020) i;
		UPDATE plain SET v = v + 1 WHERE id BETWEEN 3005 AND 3015;
		INSERT INTO plain SELECT i, 0, 'changed' FROM generate_series(3021, 3040) i;
		DELETE FROM plain WHERE id BETWEEN 3010 AND 3030;
		INSERT INTO plain SELECT i, 0, 'again' FROM generate_series(3010, 3030) i;
		INSERT INTO other VALUES (1, 1);
		INSERT INTO plain VALUES (3100, 0, 'other');
		INSERT INTO other VALUES (2, 2);
		INSERT INTO parts VALUES (3001, 1, 'moved'), (3002, 1, 'moved'), (3003, 15, 'moved');
		UPDATE parts SET k = k + 5 WHERE v = 'moved';
		UPDATE parts SET k = 12 WHERE id = 3001;
		INSERT INTO parts VALUES (3004, 1, 'moved');
		DELETE FROM parts WHERE id = 3003;
		INSERT INTO narrow VALUES (7), (7), (8);
		DELETE FROM narrow WHERE v = 7;
		SAVEPOINT a;
		INSERT INTO plain VALUES (3101, 0, 'gone');
		ROLLBACK TO a;
		INSERT INTO plain VALUES (3102, 0, 'stays');
		COMMIT;
		INSERT INTO plain VALUES (3103, 0, 'one'), (3104, 0, 'two');
		UPDATE plain SET id = id + 10 WHERE id = 3103;
		INSERT INTO plain VALUES (3103, 0, 'three');
		UPDATE defined SET f = 0 WHERE id < 10;
		UPDATE parts SET v = 'p' WHERE id < 10;)
	);
	both_equal('after runs that end', @tables);
	is(tries(), $tries, 'and nothing had to be tried again');
	$publisher->sql(
		q(BEGIN;
		INSERT INTO other SELECT i, 0 FROM generate_series(11, 20) i;
		TRUNCATE other;
		INSERT INTO other SELECT i, 0 FROM generate_series(15, 25) i;
		COMMIT;
		BEGIN;
		INSERT INTO plain VALUES (3201, 0, 'before');
		TRUNCATE other;
		INSERT INTO plain VALUES (3202, 0, 'after');
		COMMIT;)
	);
	both_equal('after TRUNCATE', @tables);
}

# The definition of the table changes in the middle, on the publisher and on the
# subscriber.
$subscriber->safe_psql($_, 'ALTER TABLE other ADD w int DEFAULT 3')
  for qw(postgres serial);
$publisher->sql(
	q(BEGIN;
	INSERT INTO other VALUES (101, 1);
	ALTER TABLE other ADD w int;
	INSERT INTO other VALUES (102, 1, 2);
	ALTER TABLE other DROP v;
	INSERT INTO other VALUES (103, 2);
	COMMIT;)
);
both_equal('after changes of the definition', 'other');

# A table with code that can see which rows exist takes no runs: a trigger, a check
# and a domain that count.
{
	my $replays = $subscriber->counter('fallbacks');
	$publisher->sql(
		q(INSERT INTO counted SELECT i, i FROM generate_series(0, 20) i;
		INSERT INTO numbers SELECT i, i FROM generate_series(0, 20) i;
		INSERT INTO audited SELECT i, i FROM generate_series(0, 20) i;
		BEGIN;
		INSERT INTO other VALUES (2001, 0), (2002, 0);
		INSERT INTO audited VALUES (21, 0);
		INSERT INTO other VALUES (2003, 0);
		COMMIT;)
	);
	both_equal('where rows are counted',
		qw(counted numbers audited audit other));
	is($subscriber->counter('fallbacks'),
		$replays, 'and no check has failed');
	is(runs('counted', 'true'), '21 rows in 21', 'there are no runs then');
}

# Nor does a table whose domain begins to count.
{
	my $replays = $subscriber->counter('fallbacks');
	$publisher->sql(
		'INSERT INTO latecomers SELECT i, i FROM generate_series(0, 20) i');
	both_equal('before rows are counted', 'latecomers');
	is(runs('latecomers', 'true'), '21 rows in 1', 'there is a run');
	$subscriber->safe_psql($_,
		'ALTER DOMAIN latecomer ADD CHECK (VALUE = count_latecomers()) NOT VALID'
	) for qw(postgres serial);
	$publisher->sql(
		'INSERT INTO latecomers SELECT i, i FROM generate_series(21, 40) i');
	both_equal('where rows are counted', 'latecomers');
	is($subscriber->counter('fallbacks'),
		$replays, 'and no check has failed');
}

# The receiver notices a new check of a domain, too, so transactions that call it are not
# tried in a batch.  The check is always true.
{
	$publisher->sql('INSERT INTO doubts VALUES (0, 0)');
	both_equal('before a domain has a check', 'doubts');
	$subscriber->safe_psql($_,
		'ALTER DOMAIN doubtful ADD CHECK (is_fine(VALUE)) NOT VALID')
	  for qw(postgres serial);
	my $failed =
	  'SELECT failed_attempts FROM parallel_apply.subscription_stats';
	my $before = $subscriber->sql($failed);
	commit_behind_gate(map { "INSERT INTO doubts VALUES ($_, $_);\n" }
		  1 .. 20);
	both_equal('where a domain has got a check', 'doubts', 'gate');
	is($subscriber->sql($failed), $before, 'and there is no batch');
}

# A row of a run violates a constraint.  The whole transaction fails, with the error
# of PostgreSQL's own apply, until the transaction is skipped or the cause is
# removed.
{
	my $offset = -s $subscriber->logfile;
	my $spoil = 'INSERT INTO plain VALUES (4050, -1)';
	$subscriber->safe_psql($_, $spoil) for qw(postgres serial);
	$publisher->sql(
		q(INSERT INTO plain SELECT i, 0, 'violation' FROM generate_series(4001, 4100) i;
		INSERT INTO plain VALUES (4101, 0, 'behind');)
	);
	$subscriber->wait_for_log(duplicate_key('plain'), $offset);
	is(runs('plain', 'id BETWEEN 4001 AND 4101'),
		'1 rows in 1', 'nothing of the transaction is there, nor behind it');
	$subscriber->safe_psql($_, 'DELETE FROM plain WHERE id = 4050')
	  for qw(postgres serial);
	both_equal('after a violation was repaired', 'plain');

	$offset = -s $subscriber->logfile;
	$subscriber->wait_for_pool('tap');
	$publisher->sql(
		q(INSERT INTO checked SELECT i, CASE i WHEN 50 THEN 1000 ELSE 0 END
		FROM generate_series(1, 100) i;)
	);
	my $violation =
	  qr/ERROR: +new row for relation "checked" violates check constraint "checked_v_check"/;
	for my $subscription ([ 'tap', 'postgres' ], [ 'serial', 'serial' ])
	{
		my ($name, $db) = @$subscription;
		my $origin = 'pg_'
		  . $subscriber->safe_psql($db,
			"SELECT oid FROM pg_subscription WHERE subname = '$name'");
		my $context =
		  qr/for replication origin "$origin".* in transaction \d+, finished at ([0-9A-F]+\/[0-9A-F]+)/;
		$subscriber->wait_for_log(qr/$violation.*?$context/s, $offset);
		my ($lsn) = slurp_file($subscriber->logfile, $offset) =~ $context;
		$subscriber->safe_psql($db,
			"ALTER SUBSCRIPTION $name SKIP (lsn = '$lsn')");
	}
	$publisher->sql('INSERT INTO checked VALUES (101, 0)');
	both_equal('after a violation was skipped', 'checked');
	is(runs('checked', 'true'),
		'1 rows in 1', 'the transaction was skipped whole');
}

# A younger transaction with a run waits for an older one, and holds a value of a
# unique index that the older one needs.  It is rolled back, and its run with it.
$subscriber->wait_for_pool('tap');
{
	my $tries = $subscriber->counter('commit_order_aborts');
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN;
		UPDATE gate SET n = n + 1 WHERE id = 1;
		INSERT INTO plain VALUES (5001, 0, 'name');
		DELETE FROM plain WHERE id = 5001;
		UPDATE gate SET n = n + 1 WHERE id = 2;
		COMMIT;
		BEGIN;
		INSERT INTO plain VALUES (5002, 0, 'NAMELESS'), (5003, 0, 'name');
		UPDATE gate SET n = n * 2 WHERE id = 2;
		INSERT INTO plain VALUES (5004, 0, 'x'), (5005, 0, 'y');
		COMMIT;)
	);
	$subscriber->states_become(
		'waiting for lock, waiting for dependency',
		'the younger one waits, with a run behind it');
	$gate->quit;
	both_equal('after the older one has won', 'plain', 'gate');
	cmp_ok($subscriber->counter('commit_order_aborts'),
		'>', $tries, 'and the younger one has given way');
}

# Large transactions: more than the queue holds, large values between small ones,
# prepared, streamed, and in binary
sub load
{
	my ($from, $rows) = @_;
	my $to = $from + $rows - 1;
	return
	  "INSERT INTO plain SELECT i, i, 'load ' || i FROM generate_series($from, $to) i;\n"
	  . "INSERT INTO parts SELECT i, i % 40, repeat(i::text, 50) FROM generate_series($from, $to) i;\n"
	  . "INSERT INTO defined SELECT i, i, CASE WHEN i % 50 = 0 THEN repeat('b', 15000) ELSE 'b' END, i, NULL, i,"
	  . " CASE i % 60 WHEN 0 THEN (SELECT string_agg(sha256(g::text::bytea), '') FROM generate_series(1, 300) g) ELSE '' END"
	  . " FROM generate_series($from, $to) i;\n";
}
$publisher->sql('BEGIN;' . load(10001, 2000) . 'COMMIT;');
both_equal('after a large transaction', @tables);
$publisher->sql('BEGIN;' . load(20001, 300) . "PREPARE TRANSACTION 'p';");
$publisher->sql(
	"INSERT INTO plain VALUES (20000, 0, 'between'); COMMIT PREPARED 'p';");
both_equal('after a prepared transaction', @tables);
for my $subscription ([ 'tap', 'postgres' ], [ 'serial', 'serial' ])
{
	my ($name, $db) = @$subscription;
	$subscriber->restart_apply($name,
		"\\c $db\nALTER SUBSCRIPTION $name SET (streaming = on, binary = true)"
	);
}
$subscriber->wait_for_pool('tap');
$publisher->sql('BEGIN;' . load(30001, 1000) . 'COMMIT;');
$publisher->sql('BEGIN;' . load(40001, 10) . 'COMMIT;');
both_equal('after a streamed transaction, in binary', @tables);

# Every row is counted once.  Writers report some time later; those that have inserted
# the first rows were replaced.
my $inserted = q(n_tup_ins FROM pg_stat_user_tables WHERE relname = 'narrow');
my $first_rows = $subscriber->sql('SELECT count(*) FROM narrow');
$subscriber->wait_until("$first_rows <= $inserted",
	'the statistics lack the first rows');
my $before = $subscriber->sql("SELECT $inserted");
$publisher->sql(
	'INSERT INTO narrow SELECT i FROM generate_series(1, 100000) i');
both_equal('after many rows', 'narrow');
ok( $subscriber->poll_query_until(
		'postgres',
		"SELECT n_tup_ins - $before = 100000 FROM pg_stat_user_tables WHERE relname = 'narrow'"
	),
	'the statistics count every row');

$pair->rows_equal($_) for qw(gate plain narrow counted);
$subscriber->indexes_are_complete;
finish(
	$publisher,
	$subscriber,
	duplicate_key('plain'),
	qr/ERROR: +new row for relation "checked" violates check constraint/,
	qr/FATAL: +terminating logical replication worker due to/,
	qr/canceling statement due to lock timeout/);
done_testing();
