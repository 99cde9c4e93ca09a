# Promise: if partitions are created or dropped, or must not be written to, while
# changes of their table are applied, the messages are PostgreSQL's own, and no row
# is lost or put into the wrong partition.
#
# A lock on the row of gate blocks a transaction that has read the set of partitions
# until the set has changed.  The comment of each part names the faults that it
# detects.
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
	  . "max_locks_per_transaction = 256\n");

$pair->exec_both(q(CREATE TABLE gate (id int PRIMARY KEY, n int);));
$publisher->sql(
	q(CREATE TABLE lists (id int, region text, v int, PRIMARY KEY (id, region));
	CREATE TABLE rights (id int, region text, v int, PRIMARY KEY (id, region));
	CREATE TABLE fired (id int, region text, v int, PRIMARY KEY (id, region));
	CREATE TABLE abroad (id int PRIMARY KEY, region text);
	CREATE TABLE spying (id int PRIMARY KEY);
	CREATE TABLE many (id int PRIMARY KEY, v int);
	INSERT INTO many SELECT i, 0 FROM generate_series(1, 2500) i;
	INSERT INTO gate VALUES (1, 0);
	INSERT INTO lists SELECT i, chr(97 + i % 2), i FROM generate_series(1, 20) i;
	INSERT INTO lists VALUES (21, 'q', 21), (22, 'q', 22);
	INSERT INTO rights SELECT i, 'a', i FROM generate_series(1, 9) i;)
);
for my $table (qw(lists rights fired))
{
	$subscriber->sql(
		qq(CREATE TABLE $table (id int, region text, v int, PRIMARY KEY (id, region))
			PARTITION BY LIST (region);
		CREATE TABLE ${table}_a PARTITION OF $table FOR VALUES IN ('a');
		CREATE TABLE ${table}_b (v int, id int NOT NULL, region text NOT NULL);
		ALTER TABLE $table ATTACH PARTITION ${table}_b FOR VALUES IN ('b');)
	);
}
$subscriber->sql(
	q(CREATE TABLE lists_rest PARTITION OF lists DEFAULT;
	CREATE TABLE abroad (id int, region text) PARTITION BY LIST (region);
	CREATE TABLE abroad_a PARTITION OF abroad FOR VALUES IN ('a');
	CREATE FOREIGN DATA WRAPPER dummy; CREATE SERVER dummy FOREIGN DATA WRAPPER dummy;
	CREATE FOREIGN TABLE abroad_x PARTITION OF abroad DEFAULT SERVER dummy;
	CREATE ROLE landlord;
	CREATE TABLE spied (who text);
	GRANT INSERT ON spied TO landlord;
	CREATE FUNCTION note_user() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.spied SELECT current_user
			WHERE current_setting('session_replication_role') = 'replica';
		RETURN 0;
	END $$;
	CREATE FUNCTION spy() RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$BEGIN RETURN public.note_user(); END$$;
	CREATE TABLE spying (id int) PARTITION BY RANGE ((id + spy()));
	CREATE TABLE spying_1 PARTITION OF spying DEFAULT;
	CREATE TABLE many (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
	DO $$ BEGIN FOR i IN 0 .. 2500 LOOP
		IF i % 50 = 0 THEN
			EXECUTE format('CREATE TABLE many_%s PARTITION OF many
				FOR VALUES FROM (%s) TO (%s) PARTITION BY LIST (id)', i / 50, i, i + 50);
		END IF;
		EXECUTE format('CREATE TABLE many_%s_%s PARTITION OF many_%s FOR VALUES IN (%s)',
			i / 50, i % 50, i / 50, i);
	END LOOP; END $$;
	ALTER TABLE spying OWNER TO landlord;
	ALTER TABLE spying_1 OWNER TO landlord;)
);
$subscriber->create_extension;
$pair->subscribe('tap');

my @tables = qw(lists rights fired);

sub all_equal
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->rows_equal($_, "$_ is equal on both sides $name") for @tables;
	return;
}

# Assert that the rows of lists are in these partitions.
sub rows_are_in
{
	my ($where, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$subscriber->sql(
			"SELECT DISTINCT tableoid::regclass FROM lists WHERE $where ORDER BY 1"
		),
		$expected,
		$name);
}

# One transaction of the publisher that has the table open when it is blocked, and
# statements of a local session meanwhile
sub apply_around
{
	my ($before, $after, $meanwhile) = @_;
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		"BEGIN; $before; UPDATE gate SET n = n + 1; $after; COMMIT");
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->sql($meanwhile);
	$lock->release;
	$publisher->wait_applied;
	return;
}

# Detects: a row put into the default partition although another one has been
# created for it, or searched in the wrong one.
apply_around(
	q(UPDATE lists SET v = 100 WHERE id = 1),
	q(INSERT INTO lists VALUES (30, 'n', 30); UPDATE lists SET region = 'n' WHERE id = 2),
	q(CREATE TABLE lists_n (LIKE lists);
	ALTER TABLE lists ATTACH PARTITION lists_n FOR VALUES IN ('n')));
rows_are_in("region = 'n'", 'lists_n',
	'rows go to a partition that is attached meanwhile');
apply_around(
	q(UPDATE lists SET v = 100 WHERE id = 3),
	q(DELETE FROM lists WHERE id = 21; UPDATE lists SET v = 100 WHERE id = 22),
	q(CREATE TABLE lists_q (LIKE lists);
	INSERT INTO lists_q SELECT * FROM lists_rest WHERE region = 'q';
	DELETE FROM lists_rest WHERE region = 'q';
	ALTER TABLE lists ATTACH PARTITION lists_q FOR VALUES IN ('q')));
all_equal('after partitions were attached');
rows_are_in("region = 'q'", 'lists_q', 'and rows are found in it');

# Detects: state of a partition kept after a change of its columns, its index, or
# itself.
$publisher->sql(
	q(BEGIN; UPDATE lists SET v = v + 1; ALTER TABLE lists REPLICA IDENTITY FULL;
	UPDATE lists SET v = v + 1; COMMIT));
$publisher->wait_applied;
$subscriber->sql(
	q(BEGIN; ALTER TABLE lists DETACH PARTITION lists_n; ALTER TABLE lists_n RENAME TO old_n;
	CREATE TABLE lists_n (v int, region text NOT NULL, id int NOT NULL, gone int);
	ALTER TABLE lists_n DROP gone;
	INSERT INTO lists_n SELECT v, region, id FROM old_n; DROP TABLE old_n;
	ALTER TABLE lists ATTACH PARTITION lists_n FOR VALUES IN ('n'); COMMIT;
	ALTER TABLE lists ADD w int;)
);
$publisher->sql(
	q(ALTER TABLE lists ADD w int; UPDATE lists SET v = v + 1, w = v;
	UPDATE lists SET region = 'a' WHERE region = 'n' AND id < 10;
	UPDATE lists SET region = 'n' WHERE region = 'b' AND id < 10;
	ALTER TABLE lists DROP v; UPDATE lists SET w = w + 1;));
$publisher->wait_applied;
$subscriber->sql(q(ALTER TABLE lists DROP v));
$publisher->sql(q(UPDATE lists SET w = w + 1, id = id + 100));
$publisher->wait_applied;
all_equal('after changes of columns and partitions');
is($subscriber->counter('fallbacks'), 0, 'and writers have done it all');

# Detects: a lock on one partition blocks rows of another one.
my $lock = $subscriber->hold('LOCK TABLE lists_a IN SHARE MODE');
$publisher->sql(
	q(INSERT INTO lists VALUES (200, 'a', 0); INSERT INTO lists VALUES (200, 'b', 0);
	UPDATE lists SET region = 'q' WHERE id = 200 AND region = 'b')
);
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'a locked partition is waited for, as a locked table');
$lock->release;
$publisher->wait_applied;

# A change that is refused with a message, and applied once the cause is removed
sub check_refused
{
	my ($change, $message, $remedy, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset = -s $subscriber->logfile;
	$publisher->sql($change);
	ok($subscriber->wait_for_log(qr/ERROR:  $message/, $offset),
		"PostgreSQL's own message tells of $name");
	$subscriber->sql($remedy);
	$publisher->wait_applied;
	all_equal("after a remedy for $name");
	return;
}

check_refused(
	q(INSERT INTO rights VALUES (10, 'c', 0)),
	qr/no partition of relation "rights" found for row/,
	q(CREATE TABLE rights_c PARTITION OF rights FOR VALUES IN ('c')),
	'a row that belongs to no partition');
check_refused(
	q(UPDATE rights SET region = 'd' WHERE id = 1),
	qr/no partition of relation "rights" found for row/,
	q(CREATE TABLE rights_d PARTITION OF rights FOR VALUES IN ('d')),
	'one that moves to where there is none');
check_refused(
	q(INSERT INTO abroad VALUES (1, 'a'); INSERT INTO abroad VALUES (2, 'x')),
	qr/foreign-data wrapper "dummy" has no handler/,
	q(BEGIN; DROP FOREIGN TABLE abroad_x; CREATE TABLE abroad_x PARTITION OF abroad DEFAULT; COMMIT),
	'a partition that is a foreign table');
$pair->rows_equal('abroad');

# Detects: a row put into a partition that is being detached.  The reader keeps the command
# between its two transactions, of which the first one ends while a transaction is blocked.
{
	my $offset = -s $subscriber->logfile;
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	my $reader = $subscriber->hold('SELECT FROM rights_d');
	my $session = $subscriber->background_psql('postgres');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET n = n + 1; INSERT INTO rights VALUES (30, 'd', 0); COMMIT)
	);
	$subscriber->wait_for_state('waiting for lock');
	$session->query_until(qr/begun/,
		"\\echo begun\nALTER TABLE rights DETACH PARTITION rights_d CONCURRENTLY;\n\\echo detached\n"
	);
	$subscriber->wait_until(
		q(inhdetachpending FROM pg_inherits WHERE inhrelid = 'rights_d'::regclass),
		'the partition is not being detached');
	$gate->release;
	ok( $subscriber->wait_for_log(
			qr/ERROR:  no partition of relation "rights" found for row/,
			$offset),
		'a partition that is being detached gets no row');
	$reader->release;
	$session->query_until(qr/detached/, '');
	$session->quit;
	$subscriber->sql(
		q(ALTER TABLE rights ATTACH PARTITION rights_d FOR VALUES IN ('d')));
	$publisher->wait_applied;
	all_equal('after it has been attached again');
}

# Detects: a trigger that fires in replica mode ignored because only one partition
# has it.
$subscriber->sql(
	q(CREATE TABLE log (id bigserial, line text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO public.log (line) VALUES (concat_ws(' ', TG_OP, OLD.id, NEW.id)); RETURN NEW; END$$;
	CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON fired_b FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE fired_b ENABLE REPLICA TRIGGER note;)
);
$publisher->sql(
	q(INSERT INTO fired VALUES (1, 'a', 1); INSERT INTO fired VALUES (2, 'b', 2), (3, 'b', 3);
	UPDATE fired SET v = 0; UPDATE fired SET region = 'b' WHERE id = 1;
	DELETE FROM fired WHERE id = 2;
	UPDATE fired SET region = 'a' WHERE id = 3;)
);
$publisher->wait_applied;
is( $subscriber->sql(q(SELECT string_agg(line, ', ' ORDER BY id) FROM log)),
	join(', ',
		'INSERT 2',
		'INSERT 3',
		'UPDATE 2 2',
		'UPDATE 3 3',
		'INSERT 1',
		'DELETE 2',
		'DELETE 3'),
	'triggers of a partition fire, in the right order');
all_equal('with triggers of a partition');

# From 16 on, functions in a partition key run with the privileges of the table's
# owner, also when the key is read for the first time.
$publisher->sql('INSERT INTO spying VALUES (1), (2)');
$publisher->wait_applied;
is( $subscriber->sql('SELECT string_agg(DISTINCT who, $$, $$) FROM spied'),
	$subscriber->pg_version >= 16
	? 'landlord'
	: $subscriber->sql('SELECT current_user'),
	'functions of a partition key are called as the owner of the table');

# All partitions of a table in one transaction: few stay open, and not all are
# cached.
{
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		'BEGIN; UPDATE many SET v = 1; UPDATE gate SET n = n + 1; COMMIT');
	my $memory = $subscriber->memory_of_waiting;
	my ($open) = $memory =~
	  /parallel_apply scan: [^\n]*\n[^\n]*; (\d+) more child contexts/;
	my ($kept) = $memory =~
	  /parallel_apply target: [^\n]*\n[^\n]*; (\d+) more child contexts/;
	ok(defined $open && $open < 256,
		'a writer has some hundred partitions open');
	ok(defined $kept && $kept < 2250, 'and remembers some thousand');
	$gate->release;
	$publisher->wait_applied;
	$pair->rows_equal('many');
}

# Privileges are those of the partitions, not of the root, and those for the
# operations on each partition.
my $as_owner =
  $subscriber->pg_version >= 16
  ? 'ALTER SUBSCRIPTION tap SET (run_as_owner = true, password_required = false);'
  : '';
$subscriber->restart_apply(
	'tap',
	qq(BEGIN; CREATE ROLE applier SUPERUSER LOGIN; $as_owner
	GRANT SELECT, INSERT, UPDATE, DELETE ON gate TO applier;
	GRANT SELECT, INSERT, DELETE ON rights_a, rights_b, rights_c TO applier;
	ALTER TABLE rights ENABLE ROW LEVEL SECURITY;
	ALTER SUBSCRIPTION tap OWNER TO applier; ALTER ROLE applier NOSUPERUSER; COMMIT;)
);
$subscriber->wait_for_pool('tap', 4);
$publisher->sql(
	q(INSERT INTO rights VALUES (20, 'a', 0), (21, 'b', 0);
	UPDATE rights SET region = 'b' WHERE id = 20; DELETE FROM rights WHERE id = 2)
);
$publisher->wait_applied;
is($subscriber->counter('fallbacks'),
	0, 'moving a row requires the privileges to delete and to insert');
check_refused(
	q(UPDATE rights SET v = 1 WHERE id = 3),
	qr/permission denied for table rights_a/,
	'GRANT UPDATE ON rights_a TO applier',
	'a missing privilege');
$subscriber->sql('ALTER TABLE rights_b ENABLE ROW LEVEL SECURITY');
check_refused(
	q(DELETE FROM rights WHERE id = 21),
	qr/user "applier" cannot replicate into relation with row-level security enabled: "rights_b"/,
	'ALTER TABLE rights_b DISABLE ROW LEVEL SECURITY',
	'row-level security');

$subscriber->nothing_is_left_open;
finish(
	$publisher,
	$subscriber,
	qr/permission denied for table rights/,
	qr/cannot replicate into relation with row-level security enabled/,
	qr/no partition of relation "rights" found for row/,
	qr/foreign-data wrapper "dummy" has no handler/);
done_testing();
