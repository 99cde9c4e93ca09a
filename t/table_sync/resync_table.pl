# Promise: resync_table() has one table copied again while all others are applied; each change
# is in it once, with writers and without, and through crashes; sessions see either the rows from
# before or those of the copy.
#
# Most tables have no key, so a change that is applied twice, or in addition to the copy, shows
# as a row.  A row that a session locks on the subscriber stops apply within a transaction
# (table gate), or the copy (table loose).
use strict;
use warnings;
use FindBin;
use IPC::Run ();
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use Programs;
use VerifyProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'max_prepared_transactions = 2',
	subscriber_conf => <<~'CONF');
	fsync = on
	wal_level = logical
	max_prepared_transactions = 2
	autovacuum = off
	parallel_apply.writers_per_subscription = 3
	CONF

$pair->create_accounts;
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, v int);
	CREATE TABLE loose (n int, v text);
	CREATE TABLE parent (id int PRIMARY KEY, v text);
	CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
	CREATE TABLE root (id int, place int, v text, PRIMARY KEY (place, id)) PARTITION BY LIST (place);
	CREATE TABLE root_1 PARTITION OF root FOR VALUES IN (1);
	CREATE TABLE root_2 PARTITION OF root FOR VALUES IN (2);
	CREATE TABLE leaves (id int, place int, v text) PARTITION BY LIST (place);
	CREATE TABLE leaves_1 PARTITION OF leaves FOR VALUES IN (1);
	CREATE TABLE leaves_2 PARTITION OF leaves FOR VALUES IN (2);
	CREATE TABLE heir (w int) INHERITS (loose);
	ALTER TABLE loose REPLICA IDENTITY FULL; ALTER TABLE heir REPLICA IDENTITY FULL;
	ALTER TABLE leaves_1 REPLICA IDENTITY FULL; ALTER TABLE leaves_2 REPLICA IDENTITY FULL)
);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO loose SELECT i, 'x' FROM generate_series(1, 1000) i;
	INSERT INTO heir SELECT i, 'x', i FROM generate_series(1, 10) i;
	INSERT INTO parent SELECT i, 'x' FROM generate_series(1, 100) i;
	INSERT INTO child SELECT i, i FROM generate_series(1, 100) i;
	INSERT INTO root SELECT i, 1 + i % 2, 'x' FROM generate_series(1, 100) i;
	INSERT INTO leaves SELECT i, 1 + i % 2, 'x' FROM generate_series(1, 100) i;
	CREATE PUBLICATION tap_root FOR TABLE root WITH (publish_via_partition_root = true))
);
$subscriber->create_extension;
$pair->subscribe('tap',
	publication =>
	  'FOR TABLE accounts, history, gate, ONLY loose, ONLY heir, parent, child, leaves'
);
$subscriber->sql('ALTER SUBSCRIPTION tap ADD PUBLICATION tap_root');

my @tables = qw(accounts history gate loose heir parent child root leaves);

sub wait_until_ready
{
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	return;
}

# Change rows of the subscriber so that no change of the publisher repairs them.
sub damage
{
	$subscriber->sql("SET session_replication_role = replica; $_") for @_;
	return;
}

sub resync
{
	my ($table) = @_;
	$subscriber->sql("SELECT parallel_apply.resync_table('tap', '$table')");
	return;
}

# Have the rows truncated.
sub resync_fast
{
	my ($table) = @_;
	$subscriber->sql(
		"SELECT parallel_apply.resync_table('tap', '$table', truncate => true)"
	);
	return;
}

# The files of a table and of its partitions
sub files_of
{
	my ($table) = @_;
	return $subscriber->sql(
		"SELECT pg_relation_filenode(oid) FROM pg_class WHERE relkind = 'r' AND (oid = '$table'::regclass
			OR oid IN (SELECT relid FROM pg_partition_tree('$table'))) ORDER BY 1"
	);
}

sub count_on_subscriber
{
	my ($table) = @_;
	return $subscriber->sql("SELECT count(*) FROM $table");
}

sub state_of
{
	my ($table) = @_;
	return $subscriber->sql(
		"SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = '$table'::regclass"
	);
}

# Lock a row of table loose, so that its copy waits in its transaction.
sub hold_copy
{
	return $subscriber->hold('SELECT FROM loose WHERE n = 11 FOR UPDATE');
}

sub wait_for_copy
{
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks JOIN pg_stat_subscription USING (pid)
		WHERE NOT granted AND relid = 'loose'::regclass),
		'the copy does not wait');
	return;
}

# Open a transaction on the publisher, so that no copy gets as far as that.
sub hold_slot
{
	return $publisher->hold('SELECT txid_current()');
}

sub wait_for_slot_creation
{
	$publisher->wait_until(
		q(count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND query LIKE 'CREATE_REPLICATION_SLOT%'),
		'the creation of a slot does not wait');
	return;
}

# Start a call in a session of its own, which is returned.
sub begin_resync
{
	my ($table) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/begun/,
		"\\echo begun\nSELECT parallel_apply.resync_table('tap', '$table');\n"
	);
	return $session;
}

sub wait_for_lock_of
{
	my ($table, $who) = @_;
	$subscriber->wait_until(
		"count(*) > 0 FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted",
		"$who does not wait for $table");
	return;
}

sub set_writers
{
	my ($writers) = @_;
	$subscriber->sql(
		"SELECT parallel_apply.alter_subscription_config('tap', $writers)");
	$subscriber->wait_for_pool('tap', $writers > 1 ? $writers : 0);
	return;
}

wait_until_ready();

### what it does, and what sessions see

{
	damage(
		'DELETE FROM ONLY loose WHERE n <= 10; UPDATE ONLY loose SET v = NULL WHERE n = 20; INSERT INTO loose VALUES (-1)'
	);
	my $lock = hold_copy();
	my $old_rows = $subscriber->sql('SELECT sum(n) FROM ONLY loose');
	resync('loose');
	wait_for_copy();
	is(state_of('loose'), 'd', 'the table is being copied');
	is($subscriber->sql('SELECT sum(n) FROM ONLY loose'),
		$old_rows, 'sessions see the old rows until the copy has ended');
	$publisher->sql('UPDATE gate SET v = v + 1');
	$publisher->wait_applied;
	$pair->rows_equal('gate', 'and other tables are applied');
	$lock->release;
	$publisher->sql(q(INSERT INTO loose VALUES (2000, 'later')));
	wait_until_ready();
	$publisher->sql(q(INSERT INTO loose VALUES (2001, 'ready')));
	$pair->tables_equal('after it', @tables);
	is(count_on_subscriber('heir'),
		'10', 'a table that inherits from it is not touched');
	is( $subscriber->sql(
			q(SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'pg\_%\_%')
		),
		'0',
		'no replication origin remains');
}

### each way of applying, in the middle of a transaction

for my $writers (3, 1)
{
	my $how = $writers > 1 ? 'with writers' : 'with one writer';
	set_writers($writers);

	# The apply worker knows the table to be ready, and gets a change while it is copied.
	$publisher->sql("INSERT INTO loose VALUES (6000, 'known')");
	$publisher->wait_applied;
	my $lock = hold_copy();
	resync('loose');
	wait_for_copy();
	$publisher->sql("INSERT INTO loose VALUES (6001, 'meanwhile')");
	$publisher->wait_applied;
	$lock->release;
	wait_until_ready();
	$pair->tables_equal("$how: a change during the copy", @tables);

	# The table is known to be ready; a transaction waits before it changes it.
	$publisher->sql("INSERT INTO loose VALUES (3000, 'known')");
	$publisher->wait_applied;
	damage("DELETE FROM ONLY loose WHERE n % 3 = 0");
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; UPDATE gate SET v = v + 1; INSERT INTO loose SELECT i, 'before' FROM generate_series(4000, 4010) i; COMMIT)
	);
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted),
		'apply does not wait for the gate');
	resync('loose');
	$gate->release;
	wait_until_ready();
	$publisher->sql("DELETE FROM loose WHERE n = 4003");
	$pair->tables_equal("$how: a transaction that was about to change it",
		@tables);

	# A transaction has changed it, and waits.
	damage("DELETE FROM ONLY loose WHERE n % 3 = 0");
	$gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		q(BEGIN; INSERT INTO loose SELECT i, 'before' FROM generate_series(5000, 5010) i; UPDATE gate SET v = v + 1; COMMIT)
	);
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted),
		'apply does not wait for the gate');
	my $session = begin_resync('loose');
	wait_for_lock_of('loose', 'the call');
	$gate->release;
	like($session->query('SELECT 1'), qr/^1$/m, "$how: the call returns");
	$session->quit;
	wait_until_ready();
	$pair->tables_equal("$how: a transaction that had changed it", @tables);

	# In a transaction block, an apply worker that starts before its end must not get to
	# know the table as it was.
	$publisher->sql("INSERT INTO parent VALUES (200 + $writers, 'x')");
	$publisher->wait_applied;
	damage("DELETE FROM parent WHERE id % 3 = 0");
	my $block = $subscriber->hold(
		"SELECT parallel_apply.resync_table('tap', 'parent')");
	$publisher->sql(
		"BEGIN; INSERT INTO parent VALUES (300 + $writers, 'x'); UPDATE gate SET v = v + 1; COMMIT"
	);
	wait_for_lock_of('parent', 'apply');
	$block->release;
	wait_until_ready();
	$publisher->sql(
		"UPDATE parent SET v = 'after' WHERE id = 300 + $writers");
	$pair->tables_equal("$how: in a transaction block", @tables);

	# And one that is rolled back has no effect.
	$block = $subscriber->hold(
		"SELECT parallel_apply.resync_table('tap', 'parent')");
	$block->query_safe('ROLLBACK');
	$block->quit;
	is(state_of('parent'), 'r', "$how: a ROLLBACK has no effect");
	$subscriber->apply_pid('tap');

	# Under load, at any moment
	$pair->under_load(
		sub {
			for my $round (1 .. 3)
			{
				$subscriber->wait_for_progress;
				damage(
					"DELETE FROM accounts WHERE id = $round; UPDATE accounts SET balance = -1 WHERE id = 10"
				);
				resync('accounts');
				wait_until_ready();
			}
		});
	$pair->accounts_are_equal("$how, under load");
}
set_writers(3);

### crashes

for my $moment ('right after the call', 'during the copy')
{
	damage("DELETE FROM ONLY loose WHERE n % 5 = 0");
	my $rows = $subscriber->sql('SELECT count(*) FROM ONLY loose');
	my $lock = hold_copy();
	my $slot = $moment eq 'during the copy' ? undef : hold_slot();
	resync('loose');
	if (!$slot)
	{
		wait_for_copy();
		$slot = hold_slot();
	}
	$subscriber->stop('immediate');
	$subscriber->start;
	wait_for_slot_creation();
	is($subscriber->sql('SELECT count(*) FROM ONLY loose'),
		$rows, "a crash $moment: the old rows are still there");
	$slot->release;
	wait_until_ready();
	$pair->tables_equal("after a crash $moment", @tables);
	eval { $lock->quit };
}
{
	damage("DELETE FROM ONLY loose WHERE n % 5 = 0");
	my $lock = hold_copy();
	resync('loose');
	wait_for_copy();
	my $pid = $subscriber->sql(
		q(SELECT pid FROM pg_stat_subscription WHERE relid = 'loose'::regclass)
	);
	$subscriber->sql("SELECT pg_terminate_backend($pid)");
	$subscriber->wait_until(
		"count(*) = 1 FROM pg_stat_subscription WHERE relid = 'loose'::regclass AND pid <> $pid",
		'no other worker copies');
	$lock->release;
	wait_until_ready();
	$pair->tables_equal('after another worker has copied', @tables);
}

# A session that does not wait for its commit: apply confirms what it leaves out because of
# the state of the table, so that must not be lost.
{
	my $pid = $subscriber->stop_walwriter;
	damage("DELETE FROM ONLY loose WHERE n % 5 = 0");
	my $slot = hold_slot();
	$subscriber->sql(
		q(SET synchronous_commit = off; SELECT parallel_apply.resync_table('tap', 'loose'))
	);
	$subscriber->stop('immediate');
	kill 'CONT', $pid;
	$subscriber->start;
	like(state_of('loose'), qr/[id]/, 'the commit of the call was flushed');
	$slot->release;
	wait_until_ready();
	$pair->tables_equal('after it', @tables);
}

### partitioned tables, keys and triggers

damage(
	'DELETE FROM root WHERE id < 50; UPDATE leaves SET v = NULL WHERE id = 2; DELETE FROM leaves WHERE id = 3'
);
resync($_) for qw(root leaves_1 leaves_2);
wait_until_ready();
$pair->tables_equal('partitioned', @tables);

$subscriber->sql(
	q(CREATE TABLE removed (name text, id int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO public.removed VALUES (TG_NAME, OLD.id); RETURN OLD; END$$;
	CREATE TRIGGER plain AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER always AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE parent ENABLE ALWAYS TRIGGER always;));
damage('DELETE FROM parent WHERE id = 5');
$subscriber->sql('TRUNCATE removed');
my $parents = count_on_subscriber('parent');
resync('parent');
wait_until_ready();
$pair->tables_equal('with foreign keys', @tables);
is($subscriber->sql('SELECT name, count(*) FROM removed GROUP BY name'),
	"always|$parents", 'triggers fire as for what is applied');

# A trigger that keeps rows
$subscriber->sql(
	q(CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER keep BEFORE DELETE ON parent FOR EACH ROW WHEN (OLD.id = 7) EXECUTE FUNCTION keep();
	ALTER TABLE parent ENABLE ALWAYS TRIGGER keep));
my $offset = -s $subscriber->logfile;
resync('parent');
$subscriber->wait_for_log(
	qr/ERROR:  rows of table "parent" remain before it is copied again/,
	$offset);
is( count_on_subscriber('parent'),
	$parents + 1,
	'rows that remain make the copy fail');
$subscriber->sql('DROP TRIGGER keep ON parent');
wait_until_ready();
$pair->tables_equal('after that', @tables);

### rows that are truncated

for my $table ('loose', 'root', 'leaves_1', 'child')
{
	my $files = files_of($table);
	damage("DELETE FROM ONLY $table; INSERT INTO $table VALUES (1, 1)");
	resync_fast($table);
	wait_until_ready();
	$pair->tables_equal("$table was truncated", @tables);
	isnt(files_of($table), $files, "$table has new files");
}
is(count_on_subscriber('heir'),
	'10', 'a table that inherits from it is not truncated');
{
	my $rows = count_on_subscriber('loose');
	my $files = files_of('loose');
	my $reader = $subscriber->hold('SELECT FROM loose');
	damage('DELETE FROM ONLY loose WHERE n % 5 = 0');
	resync_fast('loose');
	wait_for_lock_of('loose', 'the copy');
	my $slot = hold_slot();
	$subscriber->stop('immediate');
	$subscriber->start;
	wait_for_slot_creation();
	is(files_of('loose'), $files,
		'a crash while it waits for readers: the old rows are still there');
	$slot->release;
	wait_until_ready();
	$pair->tables_equal('after it', @tables);
	is(count_on_subscriber('loose'), $rows, 'all of them');
	isnt(files_of('loose'), $files, 'and they were truncated');
	eval { $reader->quit };
}

### servers that subscribe to this one

SKIP:
{
	skip 'without test_decoding there is no other subscriber', 1
	  if !has_module('test_decoding');
	$subscriber->sql(
		q(SELECT pg_create_logical_replication_slot('local_changes', 'test_decoding'))
	);
	resync('loose');
	wait_until_ready();
	resync_fast('loose');
	wait_until_ready();
	is( $subscriber->sql(
			q(SELECT count(*) FROM pg_logical_slot_get_changes('local_changes', NULL, NULL, 'only-local', '1')
			WHERE data LIKE 'table %')
		),
		'0',
		'nothing is sent to a server that does not want what was replicated');
	$subscriber->sql(q(SELECT pg_drop_replication_slot('local_changes')));
}

### a subscription that does not run

$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
damage('DELETE FROM ONLY loose WHERE n % 7 = 0');
resync('loose');
is(state_of('loose'), 'i', 'a disabled subscription copies it later');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
wait_until_ready();
$pair->tables_equal('when it is enabled', @tables);

$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
damage('DELETE FROM ONLY loose WHERE n % 7 = 0');
resync('loose');
$publisher->sql('INSERT INTO loose VALUES (7000)');
$subscriber->wait_until(
	q(srsubstate NOT IN ('i', 'd') FROM pg_subscription_rel WHERE srrelid = 'loose'::regclass),
	'the table is not copied');
pass('a paused subscription copies it');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
wait_until_ready();
$pair->tables_equal('after the pause', @tables);

# One that fails because of the table, and continues when it is copied again
$subscriber->sql(q(INSERT INTO parent VALUES (900, 'in the way')));
$publisher->sql('INSERT INTO parent VALUES (900)');
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions',
	'nothing fails');
resync('parent');
wait_until_ready();
$pair->tables_equal('after a conflict', @tables);

### pg_verify_subscription --resync

SKIP:
{
	skip 'pg_verify_subscription was not built', 7
	  unless is_installed('pg_verify_subscription');

	damage(
		'DELETE FROM parent WHERE id = 50; UPDATE root SET v = NULL WHERE id = 1'
	);
	verifies_on($subscriber);
	my ($status, undef, $err) = verify('--resync');
	is($status, 2, 'pg_verify_subscription --resync: tables differ');
	for my $table ('parent', 'root')
	{
		like(
			$err,
			qr/^public\.$table is being copied again\n/m,
			"$table is copied again");
		like($err, qr/^public\.$table has been copied$/m, 'to the end');
	}
	unlike($err, qr/child/, 'but not a table that is equal');
	wait_until_ready();
	($status) = verify();
	is($status, 0, 'then all are equal');
}

### errors and rights

sub is_refused
{
	my ($arguments, $error, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->refuses("SELECT parallel_apply.resync_table($arguments)",
		$error, $name);
	return;
}

is_refused(
	"'nothing', 'loose'",
	qr/subscription "nothing" does not exist/,
	'an unknown subscription');
is_refused("NULL, 'loose'", qr/subscription name must not be null/, 'null');
is_refused("'tap', NULL", qr/relation must not be null/, 'null');
is_refused("'tap', 1", qr/relation with OID 1 does not exist/, 'no table');
is_refused(
	"'tap', 'removed'",
	qr/relation "removed" is not part of subscription "tap"\nHINT:  See "parallel_apply.tables"/,
	'another table');
is_refused(
	"'tap', 'root_1'",
	qr/relation "root_1" is not part of subscription "tap"/,
	'a partition of a table that is published as a whole');
is_refused(
	"'tap', 'parent', true",
	qr/cannot truncate table "parent", which a foreign key references\nHINT:  Have its rows deleted instead/,
	'TRUNCATE of a table that a foreign key references');
is_refused(
	"'tap', 'leaves'",
	qr/relation "leaves" is not part of subscription "tap"/,
	'a table whose partitions are published');
$subscriber->refuses(
	q(BEGIN READ ONLY; SELECT parallel_apply.resync_table('tap', 'loose')),
	qr/cannot execute resync_table\(\) in a read-only transaction/,
	'a read-only transaction');
{
	my $lock = hold_copy();
	resync('loose');
	is_refused(
		"'tap', 'loose'",
		qr/table "loose" is being synchronized\nHINT:  Wait until its "sync_state"/,
		'a table that is being synchronized');
	$lock->release;
	wait_until_ready();
}
$subscriber->sql(
	q(CREATE ROLE stranger; GRANT ALL ON ALL TABLES IN SCHEMA public TO stranger)
);
$subscriber->refuses(
	q(SET ROLE stranger; SELECT parallel_apply.resync_table('tap', 'loose')),
	qr/must be owner of subscription tap/,
	'a user who does not own the subscription');
for my $publication ('loose', 'leaves_1', 'leaves')
{
	$subscriber->sql(
		q(CREATE SUBSCRIPTION other CONNECTION 'dbname=x' PUBLICATION x
		WITH (connect = false, slot_name = NONE)));
	$subscriber->sql(
		"SET allow_system_table_mods = on; INSERT INTO pg_subscription_rel
		SELECT oid, '$publication'::regclass, 'r', NULL FROM pg_subscription WHERE subname = 'other'"
	);
	my $table = $publication eq 'leaves' ? 'leaves_1' : $publication;
	is_refused(
		"'tap', '$table'",
		qr/table "$table" is part of several subscriptions\nDETAIL:  Rows of subscription "other" would be removed/,
		"rows of another subscription: $publication");
	$subscriber->sql('DROP SUBSCRIPTION other');
}

SKIP:
{
	skip 'the owner of a subscription is a superuser before 16', 5
	  if $subscriber->pg_version < 16;
	$subscriber->sql(
		q(CREATE ROLE owner LOGIN IN ROLE pg_create_subscription; GRANT postgres TO owner WITH INHERIT FALSE;
		ALTER SUBSCRIPTION tap SET (password_required = false); ALTER SUBSCRIPTION tap OWNER TO owner)
	);
	$subscriber->refuses(
		q(SET ROLE owner; SELECT parallel_apply.resync_table('tap', 'loose')),
		qr/permission denied for table loose/,
		'the owner of the subscription who may not delete the rows');
	$subscriber->sql('GRANT DELETE ON loose TO owner');
	damage('DELETE FROM ONLY loose WHERE n % 7 = 0');
	$subscriber->sql(
		q(SET ROLE owner; SELECT parallel_apply.resync_table('tap', 'loose'))
	);
	wait_until_ready();
	$pair->tables_equal('by the owner', @tables);
	$subscriber->refuses(
		q(SET ROLE owner; SELECT parallel_apply.resync_table('tap', 'loose', true)),
		qr/permission denied for table loose/,
		'the owner of the subscription who may not truncate the table');
	$subscriber->sql(
		'GRANT TRUNCATE ON loose TO owner; REVOKE DELETE ON loose FROM owner'
	);
	$subscriber->sql(
		q(SET ROLE owner; SELECT parallel_apply.resync_table('tap', 'loose', true))
	);
	wait_until_ready();
	$pair->tables_equal('truncated by the owner', @tables);
	$subscriber->sql('ALTER SUBSCRIPTION tap OWNER TO postgres');
}

$publisher->sql(q(CREATE PUBLICATION two FOR TABLE gate));
$subscriber->sql('CREATE DATABASE two');
$subscriber->create_extension('two');
$subscriber->safe_psql('two',
	'CREATE TABLE gate (id int PRIMARY KEY, v int)');
$subscriber->safe_psql('two',
		q(CREATE SUBSCRIPTION two CONNECTION ')
	  . $publisher->connstr
	  . q( dbname=postgres' PUBLICATION two WITH (two_phase = on)));
$subscriber->poll_query_until('two',
	q(SELECT subtwophasestate = 'e' FROM pg_subscription WHERE subname = 'two')
) or die 'two_phase is not enabled';
like(
	(   $subscriber->psql(
			'two', q(SELECT parallel_apply.resync_table('two', 'gate'))))[2],
	qr/tables of subscription "two" cannot be copied while two_phase is enabled\nHINT:  Use ALTER/,
	'two_phase');
$subscriber->safe_psql('two', 'DROP SUBSCRIPTION two');

$pair->tables_equal('in the end', @tables);
finish(
	$publisher,
	$subscriber,
	qr/terminating logical replication worker due to administrator command/,
	qr/rows of table "parent" remain/,
	qr/table "\w+" is (being synchronized|part of several subscriptions)|is not part of subscription/,
	qr/must not be null|with OID 1 does not exist|read-only transaction|does not exist$/,
	qr/must be owner of subscription|permission denied for table|while two_phase is enabled|cannot truncate table/,
	qr/unexpected EOF|connection to client lost/,
	# A walsender does not know yet that its worker has crashed.
	qr/replication slot "pg_\d+_sync_\w+" already exists/,
	duplicate_key('parent'));
done_testing();
