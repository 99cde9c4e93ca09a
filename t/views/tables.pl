# Promise: parallel_apply.tables shows how each subscribed table is applied, why,
# what to do about it, and what was counted.  This is what writers do, before and
# after the advice is followed.  Counters are exact, and tables for which there is
# no place are applied like any other.
#
# A row lock forces a wait; a row that the copy of a table collides with keeps the
# table unsynchronized.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$subscriber->create_extension;

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE plain (id int PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	CREATE TABLE declared (id int PRIMARY KEY, v int);
	CREATE TABLE whole (a int, b int); ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE TABLE log (a int);
	CREATE TABLE users (id int PRIMARY KEY, email text);
	CREATE TABLE odd (id int PRIMARY KEY, a text, b text, r int4range);
	CREATE TABLE late (id int PRIMARY KEY);
	CREATE TABLE "Wo'rd" (id int PRIMARY KEY);));
$publisher->sql(
	q(CREATE TABLE numbered (id int PRIMARY KEY);
	CREATE TABLE keyless (id int PRIMARY KEY);
	CREATE TABLE parts (id int PRIMARY KEY, v int);
	CREATE TABLE noted (id int PRIMARY KEY);
	INSERT INTO gate VALUES (1, 0); INSERT INTO late VALUES (1);));
$subscriber->sql(
	q(CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TABLE numbered (id int PRIMARY KEY, "N" bigserial);
	CREATE TABLE keyless (id int);
	CREATE TABLE parts (id int, v int) PARTITION BY RANGE (id);
	CREATE TABLE parts_here PARTITION OF parts (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (100);
	CREATE FOREIGN DATA WRAPPER dummy; CREATE SERVER elsewhere FOREIGN DATA WRAPPER dummy;
	CREATE FOREIGN TABLE parts_there PARTITION OF parts
		FOR VALUES FROM (100) TO (200) SERVER elsewhere;
	CREATE TABLE noted (id int PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE noted_1 PARTITION OF noted FOR VALUES FROM (0) TO (100);
	CREATE UNIQUE INDEX u_email ON users (email);
	CREATE UNIQUE INDEX u_lower ON odd (lower(a));
	CREATE UNIQUE INDEX u_some ON odd (b) WHERE a IS NOT NULL;
	ALTER TABLE odd ADD CONSTRAINT apart EXCLUDE USING gist (r WITH &&);
	ALTER TABLE odd ADD extra text; CREATE UNIQUE INDEX u_extra ON odd (extra);
	CREATE TRIGGER audit_trg AFTER INSERT OR UPDATE ON audited
		FOR EACH ROW EXECUTE FUNCTION nothing();
	CREATE TRIGGER audit_trg AFTER INSERT OR UPDATE ON declared
		FOR EACH ROW EXECUTE FUNCTION nothing();
	CREATE TRIGGER "Note" AFTER INSERT ON noted_1 FOR EACH ROW EXECUTE FUNCTION nothing();
	CREATE TRIGGER t AFTER INSERT ON "Wo'rd" FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE audited ENABLE REPLICA TRIGGER audit_trg;
	ALTER TABLE declared ENABLE ALWAYS TRIGGER audit_trg;
	ALTER TABLE noted_1 ENABLE ALWAYS TRIGGER "Note";
	ALTER TABLE "Wo'rd" ENABLE ALWAYS TRIGGER t;));
$pair->subscribe(
	'tap',
	publication =>
	  q(FOR TABLE gate, plain, audited, declared, whole, log, users, odd, numbered,
		keyless, parts, noted, "Wo'rd"));

# The code of each reason, by its words
my %code_of = (
	'fires in replica mode' => 'replica_trigger',
	'which is not published, has a default' => 'unpublished_default',
	'the table is exclusive if the publisher' => 'possible_default',
	'reads the whole table' => 'no_usable_index',
	'UPDATE and DELETE fail' => 'no_replica_identity',
	'has a cache' => 'sequence_cache',
	'is a foreign table' => 'foreign_partition',
	'is not in the replica identity' => 'index_not_in_identity',
	'another session has locked it' => 'locked',
	'another session has locked an index' => 'index_locked');

sub codes_of
{
	my ($reasons) = @_;
	return join ',', map {
		my $reason = $_;
		map { $code_of{$_} } grep { $reason =~ /$_/ } keys %code_of
	} split /; /, $reasons;
}

# Assert what the view shows for a table: apply mode, findings, reason and remedy.
sub explained
{
	my ($table, $mode, $reason, $remedy, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			qq(SELECT concat_ws('|', apply_mode, array_to_string(findings, ','),
				coalesce(reason, '-'), coalesce(remedy, '-'))
			FROM parallel_apply.tables WHERE relid = '$table'::regclass)),
		join('|', $mode, codes_of($reason), $reason, $remedy),
		$name);
	return;
}

# Wait until columns of a table have these values: counters follow the commit.
sub counters_become
{
	my ($table, $columns, $values, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT concat_ws(' ', $columns) FROM parallel_apply.tables
			WHERE relid = '$table'::regclass", $values),
		$name);
	return;
}

sub declare
{
	my ($table) = @_;
	return q(if it uses only the row, declare that: )
	  . "SELECT parallel_apply.set_table_option('$table', 'triggers', 'parallel')";
}

my $publish =
  'publish the column, or give it a default without that function';
my $index_of =
  'create an index of table public.%s that begins with a published column, preferably a unique one on columns that are NOT NULL';

# Before the first change of any of them
explained('plain', 'parallel', '-', '-', 'an ordinary table has no finding');
explained(
	'audited',
	'exclusive',
	'trigger audit_trg of table public.audited fires in replica mode',
	declare('public.audited'),
	'a trigger makes a table exclusive');
explained(
	'noted',
	'exclusive',
	'trigger "Note" of table public.noted_1 fires in replica mode',
	declare('public.noted'),
	'one of a partition makes its root exclusive, and that is what to declare'
);
explained(
	qq("Wo''rd"), 'exclusive',
	q(trigger t of table public."Wo'rd" fires in replica mode),
	declare(q(public."Wo''rd")),
	'names are quoted');
explained(
	'numbered',
	'parallel',
	'column "N" has a default with volatile function nextval(regclass): the table is exclusive if the publisher does not send that column, which is known from the first change on',
	$publish,
	'the columns that the publisher sends are not known before its first change'
);
explained(
	'whole',
	'parallel',
	'it has no key and no usable index: every UPDATE and DELETE, if there are any, reads the whole table',
	sprintf($index_of, 'whole'),
	'nor what its replica identity is');
explained(
	'users',
	'parallel',
	'unique index u_email is not in the replica identity: a transaction that takes over one of its values may be tried again',
	'if there are many retries, on the publisher: ALTER TABLE public.users REPLICA IDENTITY FULL',
	'a unique index in addition to the key');

# The remedy is a statement, as the view gives it.
$subscriber->sql(
	$subscriber->sql(
		q(SELECT substring(remedy FROM 'SELECT .*') FROM parallel_apply.tables
	WHERE relid = 'declared'::regclass)));
explained('declared', 'parallel', '-', '-',
	'a table whose triggers are declared');

$publisher->sql(
	q(INSERT INTO plain SELECT generate_series(1, 10), 0;
	INSERT INTO audited VALUES (1, 1); INSERT INTO declared VALUES (1, 1);
	INSERT INTO whole VALUES (1, 1), (2, 2); INSERT INTO log VALUES (1);
	INSERT INTO users VALUES (1, 'a'); INSERT INTO odd VALUES (1, 'a', 'b', '[1,1]');
	INSERT INTO numbered VALUES (1), (2); INSERT INTO keyless VALUES (1);
	INSERT INTO parts VALUES (1, 1); INSERT INTO noted VALUES (1);
	UPDATE whole SET b = 3 WHERE a = 1;));
$publisher->wait_applied;
explained('plain', 'parallel', '-', '-', 'all is well with it after changes');
explained('log', 'parallel', '-', '-',
	'and with a table that gets INSERTs only');
explained(
	'numbered',
	'exclusive',
	'column "N", which is not published, has a default with volatile function nextval(regclass)',
	$publish,
	'the default of a column that is not sent makes a table exclusive');
$subscriber->sql('ALTER SEQUENCE "numbered_N_seq" CACHE 5');
explained(
	'numbered',
	'exclusive',
	'column "N", which is not published, has a default with volatile function nextval(regclass); '
	  . 'sequence public."numbered_N_seq" has a cache: once it is used, PostgreSQL\'s own apply applies all transactions that run triggers or such defaults',
	"$publish; ALTER SEQUENCE public.\"numbered_N_seq\" CACHE 1",
	'a sequence with a cache is reported');
$subscriber->sql('ALTER SEQUENCE "numbered_N_seq" CACHE 1');
explained(
	'whole',
	'parallel',
	'replica identity FULL without usable index: every UPDATE and DELETE reads the whole table',
	sprintf($index_of, 'whole'),
	'rows without a key and an index');
explained(
	'keyless',
	'parallel',
	'it has neither replica identity nor primary key: UPDATE and DELETE fail',
	q(add a primary key on the columns of the publisher's replica identity),
	'a key that only the publisher has');
explained(
	'parts',
	'parallel',
	q(partition public.parts_there is a foreign table: its changes fail, as with PostgreSQL's own apply),
	'replace it with a local table, or do not publish its rows',
	'a partition that is a foreign table');
is( $subscriber->sql(
		q(SELECT string_agg(split_part(r, ':', 1), '|' ORDER BY r COLLATE "C")
		FROM parallel_apply.tables, unnest(string_to_array(reason, '; ')) AS r
		WHERE relid = 'odd'::regclass)),
	join('|',
		'exclusion constraint apart is not tracked',
		'unique index u_extra has a column that is not published and is not tracked',
		'unique index u_lower has an expression and is not tracked',
		'unique index u_some is partial and is not tracked'),
	'indexes whose values are not known');
is( $subscriber->sql(
		q(SELECT string_agg(code, ',' ORDER BY code COLLATE "C") FROM parallel_apply.tables, unnest(findings) AS code
		WHERE relid = 'odd'::regclass)),
	'exclusion_constraint,untracked_index,untracked_index,untracked_index',
	'each with its code');

# The advice of the view helps.
$subscriber->sql(
	q(CREATE INDEX ON whole (a); ALTER TABLE keyless ADD PRIMARY KEY (id);
	ALTER TABLE numbered ALTER "N" SET DEFAULT 0;));
$publisher->sql('ALTER TABLE users REPLICA IDENTITY FULL');
$publisher->sql(
	q(UPDATE users SET email = 'b'; UPDATE whole SET b = 4 WHERE a = 2;
	UPDATE keyless SET id = 2; INSERT INTO numbered VALUES (3);));
$publisher->wait_applied;
explained($_, 'parallel', '-', '-', "$_ has no reason left")
  for qw(whole keyless numbered users);

# Counters.  The second transaction waits for the first one, once.
counters_become(
	'plain',
	'inserts, updates, deletes, waits, wait_time, missing, retried_lookups',
	'10 0 0 0 0 0 0',
	'rows that were inserted are counted');
$pair->apply_behind_gate(
	'waiting for lock, waiting for dependency',
	'a transaction waits for the one that changed the row before',
	'UPDATE plain SET v = 1 WHERE id <= 3',
	'DELETE FROM plain WHERE id = 1; UPDATE plain SET v = 2 WHERE id = 2');
counters_become(
	'plain',
	'inserts, updates, deletes, waits, wait_time > 0, missing, retried_lookups',
	'10 4 1 1 t 0 0',
	'the wait is counted, and what was changed');
counters_become('gate', 'inserts, updates, deletes, waits',
	'0 1 0 0', 'others did not wait');

$subscriber->sql('DELETE FROM plain WHERE id IN (4, 5)');
$publisher->sql(
	'UPDATE plain SET v = 5 WHERE id = 4; DELETE FROM plain WHERE id IN (5, 6)'
);
$publisher->wait_applied;
counters_become(
	'plain',
	'inserts, updates, deletes, missing, retried_lookups',
	'10 4 2 2 2',
	'rows that are not there were looked for twice, and are no changes');

# Waits do not count twice if the transaction is rolled back and repeated.
{
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	my $retries = $subscriber->counter('retries');
	$publisher->sql(
		'BEGIN; UPDATE plain SET v = 6 WHERE id = 4; UPDATE gate SET n = n + 1; COMMIT'
	);
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->sql(
		q(SELECT pg_cancel_backend(pid) FROM parallel_apply.writers WHERE state = 'waiting for lock')
	);
	$subscriber->wait_until(
		"sum(retries) = $retries + 2 FROM parallel_apply.writers",
		'it is not tried again');
	$gate->release;
	$publisher->wait_applied;
	counters_become(
		'plain', 'missing',
		'3', 'missing rows count when their transaction is committed');
}
counters_become('audited', 'inserts', 1,
	'changes of an exclusive table are counted');
counters_become('parts', 'inserts', 1,
	'those of a partitioned table at its root');
counters_become('parts_here', 'count(*)', 0,
	'and its partitions are not subscribed');

# Changes that are rolled back do not count: the first attempt finds the value
# taken.
my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql(
	q(BEGIN; UPDATE gate SET n = n + 1; UPDATE odd SET a = 'z'; COMMIT;
	BEGIN; INSERT INTO odd VALUES (2, 'a', 'c', '[2,2]'); COMMIT;));
$subscriber->states_become('waiting for lock, waiting for prior commit',
	'a transaction that took a value too early waits to be tried again');
$gate->release;
$publisher->wait_applied;
counters_become('odd', 'inserts, updates', '2 1', 'it counts once');

# Another session has a lock on the table: the view does not wait.
my $lock = $subscriber->hold('LOCK TABLE plain, audited');
explained(
	'plain',
	'parallel',
	'another session has locked it, so not everything is known',
	'query the view again',
	'a table that is locked is not waited for');
explained(
	'audited', 'exclusive',
	'another session has locked it, so not everything is known',
	'query the view again',
	'its triggers are known');
$lock->release;

# A table that is locked and not synchronized
$pair->exec_both('CREATE TABLE unready (id int PRIMARY KEY)');
$lock = $subscriber->hold('LOCK TABLE unready IN SHARE ROW EXCLUSIVE MODE');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE unready');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$lock->query_safe('LOCK TABLE unready');
is( $subscriber->sql(
		q(SELECT apply_mode, 'not_synchronized' = ANY (findings) FROM parallel_apply.tables WHERE relname = 'unready')
	),
	'native|t',
	'a table that is locked while it is copied is left to the apply worker');
$lock->release;
# The server would complain of a table that is removed while it becomes ready.
$subscriber->wait_until_ready;
$publisher->sql('ALTER PUBLICATION tap DROP TABLE unready');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');

# The same for an index that is needed for rows without a key, and for a table
# before its first change
$lock =
  $subscriber->hold(q(REINDEX INDEX whole_a_idx; REINDEX INDEX "Wo'rd_pkey"));
{
	local $ENV{PGOPTIONS} = '-c lock_timeout=10s';
	explained(
		'whole',
		'parallel',
		'another session has locked an index of it, so not everything is known',
		'query the view again',
		'an index that is locked is not waited for');
	explained(
		qq("Wo''rd"),
		'exclusive',
		q(trigger t of table public."Wo'rd" fires in replica mode; )
		  . 'another session has locked an index of it, so not everything is known',
		declare(q(public."Wo''rd")) . '; query the view again',
		'nor that of the key');
}
$lock->release;

# A row keeps the copy of a new table waiting.
my $row = $subscriber->hold('INSERT INTO late VALUES (1)');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE late');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT concat_ws('|', subname, sync_state, apply_mode, findings, reason)
		FROM parallel_apply.tables WHERE relid = 'late'::regclass),
		'tap|copying|native|{not_synchronized}|it is not synchronized yet'),
	'a table that is being synchronized is native');
$row->query_safe('ROLLBACK');
$row->quit;
$subscriber->wait_for_subscription_sync($publisher, 'tap');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT concat_ws('|', sync_state, apply_mode, coalesce(reason, '-'))
		FROM parallel_apply.tables WHERE relid = 'late'::regclass),
		'ready|parallel|-'),
	'and parallel afterwards');

# More tables than there are places
my $tables = 1050;
$pair->exec_both(
	"CREATE SCHEMA many; DO \$\$ BEGIN FOR i IN 1 .. $tables LOOP
		EXECUTE format('CREATE TABLE many.t%s (id int)', i); END LOOP; END \$\$");
$pair->subscribe(
	'many',
	publication => 'FOR TABLES IN SCHEMA many',
	with => 'copy_data = off');
my $log_offset = -s $subscriber->logfile;
$publisher->sql(
	"DO \$\$ BEGIN FOR i IN 1 .. $tables LOOP
		EXECUTE format('INSERT INTO many.t%s VALUES (1)', i); END LOOP; END \$\$");
$publisher->wait_applied('many');
ok( $subscriber->poll_query_until(
		'postgres',
		"SELECT sum(inserts) > 1000 AND sum(inserts) = count(inserts) AND count(*) = $tables
		AND count(*) > count(inserts) FROM parallel_apply.tables WHERE subname = 'many'"
	),
	'tables without a place have no counters, all others have theirs');
my @warnings = slurp_file($subscriber->logfile, $log_offset) =~
  /WARNING:  statistics of table "many\.t\d+" and others are not kept/g;
is(@warnings, 1, 'the log has one warning');
$pair->rows_equal('many.t1050', 'such a table is applied');
$subscriber->sql('DROP SUBSCRIPTION many');
$pair->exec_both('CREATE TABLE newest (id int PRIMARY KEY)');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE newest');
$subscriber->sql(
	'ALTER SUBSCRIPTION tap REFRESH PUBLICATION WITH (copy_data = off)');
$publisher->sql(
	'INSERT INTO newest VALUES (1); DELETE FROM plain WHERE id = 4');
$publisher->wait_applied;
counters_become('newest', 'inserts', 1,
	'places of a subscription that is dropped are used again');
is( $subscriber->sql(
		'SELECT count(*) FROM parallel_apply.tables WHERE inserts IS NULL'),
	'0',
	'and no table is without counters');

# Privileges
$subscriber->sql(
	'CREATE ROLE outsider; CREATE ROLE looker IN ROLE pg_monitor');
is( $subscriber->sql(
		'SET ROLE outsider; SELECT count(*) FROM parallel_apply.tables'),
	'0',
	'other users see none');
is( $subscriber->sql(
		'SET ROLE looker; SELECT count(*) > 10 FROM parallel_apply.tables'),
	't',
	'but a member of pg_monitor');

$pair->rows_equal($_) for qw(gate plain whole users late newest);
finish($publisher, $subscriber, worker_terminated());
done_testing();
