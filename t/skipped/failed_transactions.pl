# Promise: a transaction that a subscription fails to apply has a row in
# parallel_apply.failed_transactions from its first failure on, until it is applied
# or skipped, with writers and without.  Its data is visible only to users who may
# read the table.
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
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10),
	subscriber_conf => q(max_prepared_transactions = 10));
$pair->exec_both(
	q(CREATE TABLE items (id int, part text, v int, PRIMARY KEY (part, id));
	CREATE TABLE others (id int PRIMARY KEY);));
# A table that is partitioned on the subscriber only, and one that is not published
$publisher->sql('CREATE TABLE parts (id int PRIMARY KEY, v int)');
$subscriber->sql(
	q(CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts (CHECK (v > 0)) DEFAULT;
	CREATE TABLE secrets (code text, v int CHECK (v > 0));));
$subscriber->create_extension;
$pair->subscribe('tap',
	with => 'disable_on_error = true, streaming = on, two_phase = on');
$subscriber->sql(
	q(CREATE ROLE watcher IN ROLE pg_monitor;
	CREATE ROLE reader IN ROLE pg_monitor;
	GRANT SELECT ON items, parts TO reader)
);

# A check that only the subscriber has; adding it makes the fault, dropping it
# removes the fault.
my $fault =
  'ALTER TABLE items ADD CONSTRAINT positive CHECK (v > 0) NOT VALID';
my $repair = 'ALTER TABLE items DROP CONSTRAINT positive';

sub failed
{
	my ($columns, $role) = @_;
	return $subscriber->sql(($role ? "SET ROLE $role; " : '')
		. "SELECT $columns FROM parallel_apply.failed_transactions WHERE subname = 'tap'"
	);
}

sub is_overcome
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	ok( $subscriber->poll_query_until(
			'postgres',
			'SELECT count(*) = 0 FROM parallel_apply.failed_transactions'),
		$name);
	return;
}

# The key of a row of items, as the publisher sends it.  A value in binary format is
# shown like one of type bytea.
my $is_binary = 0;

sub key_of
{
	my ($id) = @_;
	my $values =
	  $is_binary
	  ? sprintf('\x%08x, \x%s', $id, unpack 'H*', 'a, b')
	  : "$id, a, b";
	return "(id, part)=($values)";
}

# The second change of that transaction fails.
sub fails
{
	my ($what) = @_;
	$subscriber->sql($fault);
	my ($xid, $after) = split /\|/, $publisher->sql(
		q(BEGIN; INSERT INTO others SELECT coalesce(max(id), 0) + 1 FROM others;
		INSERT INTO items SELECT coalesce(max(id), 0) + 1, 'a, b', -7 FROM items;
		INSERT INTO items SELECT max(id) + 1, 'a', 1 FROM items;
		SELECT pg_current_xact_id(), pg_current_wal_insert_lsn(); COMMIT));
	my $id = $publisher->sql('SELECT max(id) - 1 FROM items');
	my $key = key_of($id);
	$subscriber->wait_until_failed;
	is( failed(
			'remote_xid, attempts, sqlstate, message, change, schemaname, relname, operation, key'
		),
		qq($xid|1|23514|new row for relation "items" violates check constraint "positive"|2|public|items|INSERT|$key),
		"$what: the view shows what has failed");
	is( failed(
			qq(finish_lsn >= '$after' AND finish_lsn < pg_lsn '$after' + 1000000,
			detail LIKE 'Failing row contains ($id, a, b, -7)%', context ~ '^processing remote data .*"INSERT"',
			commit_time < first_failure, first_failure = last_failure)),
		't|t|t|t|t',
		"$what: where and when");
	is( failed(
			'message IS NULL, detail, context, schemaname, relname, operation, key',
			'watcher'),
		'f||||||',
		"$what: who may not read the table sees no data");
	is(failed('detail IS NULL, context IS NULL, relname, key', 'reader'),
		"f|f|items|$key", "$what: who may read it sees them");
	$subscriber->sql(
		'ALTER TABLE items RENAME TO renamed; CREATE TABLE items (id int);
		GRANT SELECT ON items TO watcher');
	is(failed('detail, context, relname, key', 'watcher'),
		'|||', "$what: nor who may read another one that has its name");
	$subscriber->sql('DROP TABLE items; ALTER TABLE renamed RENAME TO items');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->wait_until(
		'count(*) = 1 FROM parallel_apply.failed_transactions, pg_subscription WHERE attempts = 2 AND NOT subenabled',
		'it does not fail again');
	is(failed('remote_xid, first_failure < last_failure'),
		"$xid|t",
		"$what: it is the same transaction, and the second attempt");
	return;
}

sub is_repaired
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql($repair);
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	is_overcome("$what: the row goes when the transaction is applied");
	return;
}

fails('writers');
$subscriber->restart;
is(failed('attempts, relname'), '2|items',
	'a restart of the server keeps it');
is_repaired('writers');

# Skipping the transaction takes one more attempt.
fails('a transaction that is skipped');
my $lsn = failed('finish_lsn');
$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
$subscriber->sql($repair);
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is_overcome('the row goes when the transaction is skipped');
$publisher->sql(q(DELETE FROM items; DELETE FROM others));
$publisher->wait_applied;

# The same without writers
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
fails('one writer');
is_repaired('one writer');

# An UPDATE and a DELETE are named by their keys.
for my $case (
	[ 'UPDATE', q(UPDATE items SET v = -1 WHERE id = 1), 1 ],
	[ 'UPDATE', q(UPDATE items SET v = -1, id = 7 WHERE id = 1), 1 ],
	[ 'DELETE', q(DELETE FROM items WHERE id = 7), 7 ])
{
	my ($operation, $sql, $id) = @$case;
	$subscriber->sql(
		q(CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE 'refused' USING ERRCODE = 'PA001'; END$$;
		CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION refuse();
		ALTER TABLE items ENABLE ALWAYS TRIGGER refuse));
	$publisher->sql($sql);
	$subscriber->wait_until_failed;
	is( failed(
			q(sqlstate, message, change, detail, split_part(context, E'\n', 1), relname, operation, key)
		),
		qq(PA001|refused|1||PL/pgSQL function public.refuse() line 1 at RAISE|items|$operation|(id, part)=($id, a, b)),
		"$sql: the view says so");
	$subscriber->sql('DROP TRIGGER refuse ON items');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	is_overcome("$sql: and no more when it is applied");
}

# A trigger violates a constraint of a table that the reader may not read.
$subscriber->sql(
	q(CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO public.secrets VALUES ('078-05-1120', -1); RETURN NEW; END$$;
	CREATE TRIGGER tell BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION tell();
	ALTER TABLE items ENABLE ALWAYS TRIGGER tell));
$publisher->sql(q(INSERT INTO items VALUES (50, 'a, b', 1)));
$subscriber->wait_until_failed;
is( failed('message, detail, context, relname, key', 'reader'),
	'new row for relation "secrets" violates check constraint "secrets_v_check"|||items|(id, part)=(50, a, b)',
	'data of another table is not shown');
my $other_id =
  $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$subscriber->sql('DROP TRIGGER tell ON items');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is_overcome('a transaction whose trigger fails is skipped');
is( $subscriber->sql(
		'SET ROLE reader; SELECT detail, context, relname FROM parallel_apply.skipped_transactions'
	),
	'||items',
	'nor when the transaction is stored');
$subscriber->sql("CALL parallel_apply.replay($other_id)");

# Where an error names neither a table nor a function, its context does.
$subscriber->sql(
	q(CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END$$;
	CREATE TRIGGER audit BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION audit();
	ALTER TABLE items ENABLE ALWAYS TRIGGER audit));
$publisher->sql(q(INSERT INTO items VALUES (60, 'a, b', 1)));
$subscriber->wait_until_failed;
my $where =
  q(message, context LIKE '%PL/pgSQL function public.audit() line 1%');
is( failed($where, 'reader'),
	'relation "audit" does not exist|t',
	'the context names the function that fails');
my $audited_id =
  $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$subscriber->sql('DROP TRIGGER audit ON items');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is_overcome('a transaction whose trigger lacks a table is skipped');
is( $subscriber->sql(
		"SET ROLE reader; SELECT $where FROM parallel_apply.skipped_transactions"
	),
	'relation "audit" does not exist|t',
	'also when the transaction is stored');
$subscriber->sql("CALL parallel_apply.replay($audited_id)");

# A partition has the rows of its table.
$publisher->sql('INSERT INTO parts VALUES (1, -1)');
$subscriber->wait_until_failed;
is( failed('detail, relname', 'reader'),
	'Failing row contains (1, -1).|parts',
	'data of a partition is shown to who may read the table');
$subscriber->sql('ALTER TABLE parts_1 DROP CONSTRAINT parts_1_v_check');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is_overcome('a change of a partition is applied');

$subscriber->restart_apply('tap',
	'ALTER SUBSCRIPTION tap SET (binary = true)');
$is_binary = 1;
fails('values in binary format');
is_repaired('values in binary format');

$pair->rows_equal($_) for qw(items others parts);
finish($publisher, $subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"|ERROR:  refused|ERROR:  new row for relation "(secrets|parts_1)"|ERROR:  relation "audit" does not exist/
);
done_testing();
