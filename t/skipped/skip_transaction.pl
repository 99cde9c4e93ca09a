# Promise: skip_transaction() skips exactly the transaction that fails, and stores
# it in the same local transaction, so that its changes can be made by hand; with
# writers and without, of an ordinary, a streamed and a prepared transaction.
#
# REFRESH MATERIALIZED VIEW in an open transaction blocks the commit that stores;
# the apply worker is killed there.
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
	subscriber_conf => q(
		restart_after_crash = on
		max_prepared_transactions = 10));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE "Whole" (a int, b text, c bytea);
	ALTER TABLE "Whole" REPLICA IDENTITY FULL;
	CREATE TABLE emptied (id int PRIMARY KEY);
	CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
	CREATE TYPE pair AS (a int, b text);
	CREATE DOMAIN several AS int[];
	CREATE TABLE typed (id regtype, code char(4), PRIMARY KEY (id, code), v int);
	CREATE TABLE typed_whole (p pair, s several, b bit(3), c char(3), q "char");
	ALTER TABLE typed_whole REPLICA IDENTITY FULL;)
);
# The types of these differ.
$publisher->sql(
	q(CREATE TABLE wide (id bigint PRIMARY KEY);
	CREATE TABLE constrained (id int PRIMARY KEY, v int, vs int[]);));
$subscriber->sql(
	q(CREATE TABLE wide (id int PRIMARY KEY);
	CREATE FUNCTION is_small(int) RETURNS bool LANGUAGE plpgsql AS
		$$DECLARE how text = 'free'; BEGIN
			BEGIN PERFORM set_config('role', 'none', true);
			EXCEPTION WHEN insufficient_privilege THEN how = 'restricted'; END;
			RAISE NOTICE 'asked for % by %, %, search_path "%"', $1, current_user, how,
				current_setting('search_path');
			RETURN $1 < 10; END$$;
	CREATE DOMAIN small AS int CHECK (is_small(value));
	CREATE TABLE constrained (id int PRIMARY KEY, v small, vs small[]);
	CREATE ROLE designer;
	ALTER TABLE constrained OWNER TO designer;)
);
# Its owner is a role whose objects can be dropped.
$subscriber->safe_psql('postgres',
	'CREATE ROLE keeper SUPERUSER; SET ROLE keeper; CREATE EXTENSION parallel_apply'
);
$pair->subscribe('tap',
	with => 'disable_on_error = true, streaming = on, two_phase = on');
$subscriber->sql('CREATE ROLE watcher IN ROLE pg_monitor');
my @tables =
  ('items', '"Whole"', 'emptied', 'numbered', 'typed', 'typed_whole');
$publisher->sql(
	q(INSERT INTO items SELECT i, 0, 'it''s' FROM generate_series(1, 9) i;
	INSERT INTO "Whole" VALUES (1, NULL, '\x00ff'), (1, NULL, '\x00ff'), (2, 'b\c', NULL);
	INSERT INTO numbered (v) VALUES (1), (2);
	INSERT INTO emptied VALUES (1))
);
$publisher->wait_applied;

sub stored
{
	my ($columns) = @_;
	return $subscriber->sql(
		"SELECT $columns FROM parallel_apply.skipped_transactions ORDER BY id"
	);
}

# The statements of the manual, for number 1
my ($by_hand) = slurp_file("$FindBin::RealBin/../../doc/failures.md") =~
  /^ +(BEGIN;\n.*?COMMIT;)$/ms;
like(
	$by_hand,
	qr/skipped_changes\(1\).*forget\(1\)/s,
	'they are in the manual');

sub make_changes
{
	my ($id) = @_;
	return $subscriber->sql($by_hand =~ s/\(1\)/($id)/gr);
}

# Rows of items that the publisher has, and the subscriber has not
sub missing
{
	my $have = $subscriber->sql('SELECT array_agg(id) FROM items');
	return $publisher->sql(
		"SELECT string_agg(id::text, ' ' ORDER BY id) FROM items WHERE id <> ALL ('$have')"
	);
}

sub all_equal
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$what: $_ is equal on both sides") for @tables;
	is(stored('id'), '', "$what: nothing remains stored");
	return;
}

# Statements on the publisher that make a transaction fail, and one after it
sub fails
{
	my ($sql) = @_;
	$subscriber->make_fault;
	$publisher->sql($sql);
	$publisher->sql(q(UPDATE items SET v = v + 1 WHERE id = 5));
	$subscriber->wait_until_failed;
	return;
}

# Wait until a process waits for that lock.
sub waits_for
{
	my ($lock) = @_;
	$subscriber->wait_until(
		"count(*) = 1 FROM pg_locks WHERE NOT granted AND $lock",
		"nothing waits for $lock");
	return;
}

sub overcomes
{
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	return;
}

my $last_id = 0;

sub skips_and_stores
{
	my ($what, $sql, $missing, $changes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset = -s $subscriber->logfile;
	fails($sql);
	my $xid = $subscriber->sql(
		'SELECT remote_xid FROM parallel_apply.failed_transactions');
	my $id =
	  $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	cmp_ok($id, '>', $last_id, "$what: its number has not been used");
	$last_id = $id;
	is(stored('id'), '', "$what: nothing is stored before it is skipped");
	overcomes();
	is(missing(), $missing,
		"$what: it is skipped, and what follows is applied");
	is(stored('id, subname, remote_xid, changes, relname'),
		"$id|tap|$xid|$changes|items", "$what: it is stored");
	like(
		slurp_file($subscriber->logfile, $offset),
		qr/LOG: +skipped transaction $xid of subscription "tap", finished at [[:xdigit:]]+\/[[:xdigit:]]+, is stored with number $id/,
		"$what: the log says so");
	return $id;
}

sub test_all
{
	my ($how) = @_;
	my $id = skips_and_stores(
		"$how, a transaction",
		'BEGIN;'
		  . all_kinds_of_changes() . q(
		INSERT INTO numbered (v) VALUES (7);
		UPDATE numbered SET v = v + 1 WHERE id <= 3;
		COMMIT),
		'100 101 102',
		13);
	is( $subscriber->sql(
			"SELECT string_agg(statement, ' ' ORDER BY number) FROM parallel_apply.skipped_changes($id) WHERE number <= 6"
		),
		q(INSERT INTO public.items (id, v, note) VALUES ('100', '1', E'it''s \\\\ a "quote"');)
		  . q( INSERT INTO public.items (id, v, note) VALUES ('101', NULL, NULL);)
		  . q( UPDATE public.items SET id = '1', v = '-1', note = 'it''sx' WHERE id = '1'::integer;)
		  . q( UPDATE public.items SET id = '2', v = '-1', note = 'it''sx' WHERE id = '2'::integer;)
		  . q( UPDATE public.items SET id = '102', v = '0', note = 'it''s' WHERE id = '3'::integer;)
		  . q( DELETE FROM public.items WHERE id = '4'::integer;),
		"$how: the changes as statements");
	$subscriber->sql(
		'REFRESH MATERIALIZED VIEW parallel_apply.kept_transactions;
		REFRESH MATERIALIZED VIEW parallel_apply.kept_messages');
	$subscriber->refuses(
		"REFRESH MATERIALIZED VIEW parallel_apply.$_ WITH NO DATA",
		qr/ERROR: +cannot remove the data of "$_".*DETAIL: +Skipped transactions are stored in it/s,
		"$how: REFRESH does not empty $_"
	) for qw(kept_transactions kept_messages);
	$subscriber->refuses(
		"DELETE FROM parallel_apply.$_",
		qr/ERROR: +cannot change materialized view "$_"/,
		"$how: nor does DELETE") for qw(kept_transactions kept_messages);
	is(stored('id'), $id, "$how: REFRESH leaves it as it is");
	is( $subscriber->sql(
			"SET ROLE watcher; SELECT relname, key, operation, message IS NULL FROM parallel_apply.skipped_transactions"
		),
		'|||f',
		"$how: who may not read the table sees no data");

	# The transaction after it has not waited.
	$publisher->sql('UPDATE items SET v = 10 WHERE id = 2');
	$publisher->wait_applied;
	make_changes($id);
	$publisher->sql(
		'UPDATE items SET v = 10 WHERE id = 2; DELETE FROM items WHERE id >= 100'
	);
	all_equal("$how, changes made by hand");
	$publisher->sql(
		q(INSERT INTO items VALUES (3, 0, 'it''s'), (4, 0, 'it''s');
		INSERT INTO "Whole" VALUES (1, NULL, '\x00ff'), (2, 'b\c', NULL);
		DELETE FROM "Whole" WHERE b = 'one of them';
		INSERT INTO emptied VALUES (1);
		UPDATE items SET v = 0, note = 'it''s'));

	$id = skips_and_stores(
		"$how, a streamed transaction",
		q(INSERT INTO items SELECT i, CASE i WHEN 1500 THEN -1 END, repeat('x', 200) FROM generate_series(1000, 1999) i),
		join(' ', 1000 .. 1999),
		1000);
	make_changes($id);
	all_equal("$how, a streamed transaction");

	$id = skips_and_stores(
		"$how, a prepared transaction",
		q(BEGIN; INSERT INTO items VALUES (200, -1); PREPARE TRANSACTION 'a'; COMMIT PREPARED 'a'),
		200,
		1);
	make_changes($id);
	all_equal("$how, a prepared transaction");

	# It is not visible before its end.
	$subscriber->make_fault;
	$publisher->sql(
		q(BEGIN; INSERT INTO items VALUES (201, -1); PREPARE TRANSACTION 'b')
	);
	$subscriber->wait_until_failed;
	$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	overcomes();
	is(stored('id'), '', "$how: a prepared transaction is not shown");
	is($subscriber->sql('SELECT count(*) FROM pg_prepared_xacts'),
		'1', "$how: it is prepared");
	$publisher->sql(q(ROLLBACK PREPARED 'b'));
	all_equal("$how, a prepared transaction rolled back");

	# Not stored
	fails('INSERT INTO items VALUES (300, -1)');
	is( $subscriber->sql(
			q(SELECT parallel_apply.skip_transaction('tap') > 0)),
		't',
		"$how: there is a number");
	is( $subscriber->sql(
			'SELECT count(*) FROM parallel_apply.kept_transactions'),
		'1',
		"$how: nothing is left of the one that was rolled back");
	is( $subscriber->sql(
			q(SELECT parallel_apply.skip_transaction('tap', keep => false))),
		'',
		"$how: and none");
	overcomes();
	is(missing(), '300', "$how: it is skipped");
	is(stored('id'), '', "$how: and not stored");
	$publisher->sql('DELETE FROM items WHERE id >= 200');
	all_equal("$how, not stored");

	# It is not lost by another skip: while the apply worker reads a catalog, just after
	# the commit, or waits in the next transaction.
	fails('INSERT INTO items VALUES (350, -1)');
	$id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	my $gate = $subscriber->hold(
		'CREATE INDEX kept_gate ON parallel_apply.kept_messages (id)');
	my $row =
	  $subscriber->hold('SELECT * FROM items WHERE id = 5 FOR UPDATE');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	waits_for(
		q(relation = 'parallel_apply.kept_messages'::regclass AND mode = 'RowExclusiveLock')
	);
	$subscriber->sql(
		'SET allow_system_table_mods = on; UPDATE pg_subscription_rel SET srsublsn = srsublsn'
	);
	my $catalog = $subscriber->hold(
		'LOCK TABLE pg_subscription_rel IN ACCESS EXCLUSIVE MODE');
	$gate->query_safe('ROLLBACK');
	waits_for(q(relation = 'pg_subscription_rel'::regclass));
	my $again =
	  q(SELECT parallel_apply.skip_transaction('tap', keep => false));
	$subscriber->refuses(
		$again,
		qr/ERROR: +skip WAL location .* must be greater than origin LSN/,
		"$how: what was just stored is not removed by another skip");
	$catalog->release;
	waits_for(q(locktype = 'transactionid'));
	$subscriber->refuses(
		$again,
		qr/ERROR: +subscription "tap" has no failing transaction/,
		"$how: nor is it failing when the next one is applied");
	$row->release;
	end_sessions($gate);
	$publisher->wait_applied;
	$subscriber->repair_fault;
	is(stored('id, changes'), "$id|1", "$how: it is stored");
	make_changes($id);
	all_equal("$how, skipped again");
	$publisher->sql('DELETE FROM items WHERE id >= 200');
	$publisher->wait_applied;

	# An error while it is being stored leaves all of it to be skipped.
	fails('INSERT INTO items VALUES (360, -1), (361, 1)');
	$id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	$gate = $subscriber->hold(
		'CREATE INDEX kept_gate ON parallel_apply.kept_messages (id)');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	waits_for(
		q(relation = 'parallel_apply.kept_messages'::regclass AND mode = 'RowExclusiveLock')
	);
	my $apply_pid = $subscriber->apply_pid('tap');
	$subscriber->sql("SELECT pg_cancel_backend($apply_pid)");
	$subscriber->wait_until('NOT subenabled FROM pg_subscription',
		"$how: the error does not disable the subscription");
	end_sessions($gate);
	is( $subscriber->sql(
			"SELECT f.finish_lsn = s.subskiplsn, pg_replication_origin_progress('pg_' || s.oid, false) < f.finish_lsn
			FROM parallel_apply.failed_transactions f, pg_subscription s"),
		't|t',
		"$how: an error while it is stored does not pass over it");
	is(stored('id'), '', "$how: and stores nothing");
	overcomes();
	is(missing(), '360 361', "$how: it is skipped again");
	is(stored('id, changes'), "$id|2", "$how: and stored as a whole");
	make_changes($id);
	all_equal("$how, an error while it is stored");
	$publisher->sql('DELETE FROM items WHERE id >= 200');
	$publisher->wait_applied;

	# Another transaction comes first.
	fails('INSERT INTO items VALUES (400, -1)');
	$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	my $offset = -s $subscriber->logfile;
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication %worker'),
		'the apply worker does not end');
	$subscriber->sql(
		q(SELECT pg_replication_origin_advance('pg_' || s.oid, finish_lsn + 1)
		FROM pg_subscription s, parallel_apply.failed_transactions));
	overcomes();
	like(
		slurp_file($subscriber->logfile, $offset),
		qr/WARNING: +skip-LSN of subscription "tap" cleared/,
		"$how: another one comes first, and the log says so");
	is(missing(), '400', "$how: it is applied");
	is(stored('id'), '', "$how: and nothing is stored");
	$publisher->sql('DELETE FROM items WHERE id >= 200');
	all_equal("$how, another one");
	return;
}

$subscriber->refuses(
	q(SELECT parallel_apply.skip_transaction('tap')),
	qr/ERROR: +subscription "tap" has no failing transaction/,
	'nothing is skipped while nothing fails');
$subscriber->refuses(
	'SELECT parallel_apply.forget(7)',
	qr/ERROR: +skipped transaction 7 does not exist/,
	'a transaction that does not exist cannot be forgotten');

is( $subscriber->sql(
		q{SELECT count(*) FROM parallel_apply.get_kept('writers') AS k(id int)}
	),
	'0',
	'get_kept() reads no other relation');

test_all('writers');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
test_all('one writer');

# A subscription that stays enabled retries, and meets the transaction.
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = false)');
$subscriber->make_fault;
$publisher->sql('INSERT INTO items VALUES (450, -1)');
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions WHERE attempts >= 2',
	'it does not fail again');
my $id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$publisher->wait_applied;
is(stored('id, changes'), "$id|1",
	'an enabled subscription continues by itself');
$subscriber->repair_fault;
make_changes($id);
all_equal('enabled');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');

# The apply worker is killed just before the commit,
fails('INSERT INTO items VALUES (500, -1), (501, 1)');
$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
my $session =
  $subscriber->hold('REFRESH MATERIALIZED VIEW parallel_apply.kept_messages');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->wait_until(
	q(count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'parallel_apply.kept_messages'::regclass),
	'the apply worker does not wait');
my $pid = $subscriber->apply_pid('tap');
kill 'KILL', $pid;
$subscriber->poll_query_until('postgres',
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid")
  or die 'the server does not come back';
$publisher->wait_applied;
is(missing(), '500 501', 'after a crash before the commit it is skipped');
is(stored('changes'), '2', 'and stored once');
$subscriber->repair_fault;
eval { $session->quit };

# and again after it.
$subscriber->stop('immediate');
$subscriber->start;
is(stored('changes'), '2', 'a crash after the commit leaves it stored');
$id = stored('id');
make_changes($id);
all_equal('after crashes');

# Rows of types whose literals must have a type to be compared
$publisher->sql(
	q(INSERT INTO typed VALUES ('int4', 'a', 1), ('text', 'a', 1);
	INSERT INTO typed_whole VALUES ('(1,x)', '{1,2}', '101', 'a', 'q'), (NULL, NULL, NULL, NULL, NULL))
);
$publisher->wait_applied;
$id = skips_and_stores(
	'types',
	q(BEGIN; INSERT INTO items VALUES (700, -1);
	UPDATE typed SET v = 2 WHERE v = 1 AND id = 'int4'::regtype; DELETE FROM typed WHERE v = 1;
	UPDATE typed_whole SET b = '111' WHERE c = 'a'; DELETE FROM typed_whole WHERE c IS NULL; COMMIT),
	700,
	5);
make_changes($id);
all_equal('types');

# What the apply worker does not change: tables that inherit, and tables that only
# the subscriber has, for which TRUNCATE ... CASCADE fails.
$subscriber->sql(
	q(CREATE TABLE notes (id int REFERENCES emptied);
	INSERT INTO notes SELECT id FROM emptied;
	CREATE TABLE items_heir () INHERITS (items);
	CREATE TABLE whole_heir () INHERITS ("Whole");
	CREATE TABLE emptied_heir () INHERITS (emptied);
	INSERT INTO items_heir VALUES (6, 0), (7, 0);
	INSERT INTO whole_heir VALUES (3, 'three', NULL);
	INSERT INTO emptied_heir VALUES (2)));
$publisher->sql(q(INSERT INTO "Whole" VALUES (3, 'three', NULL)));
$publisher->wait_applied;
$id = skips_and_stores(
	'what is not changed',
	q(BEGIN; INSERT INTO items VALUES (710, -1);
	UPDATE items SET v = 1 WHERE id = 7; DELETE FROM items WHERE id = 6;
	DELETE FROM "Whole" WHERE a = 3; TRUNCATE emptied CASCADE; COMMIT),
	710,
	5);
is( $subscriber->sql(
		"SELECT statement FROM parallel_apply.skipped_changes($id) WHERE number = 5"
	),
	'TRUNCATE ONLY public.emptied;',
	'TRUNCATE does not cascade');
is($subscriber->sql('SELECT count(*) FROM notes, emptied'),
	'2', 'a table of the subscriber keeps its rows');
$subscriber->sql('DROP TABLE notes');
make_changes($id);
is( $subscriber->sql(
		'SELECT string_agg(id || v::text, $$ $$ ORDER BY id), (SELECT count(*) FROM whole_heir),
		(SELECT count(*) FROM emptied_heir) FROM items_heir'),
	'60 70|1|1',
	'tables that inherit keep their rows');
$subscriber->sql('DROP TABLE items_heir, whole_heir, emptied_heir');
$publisher->sql('INSERT INTO emptied VALUES (1)');
all_equal('what is not changed');
$publisher->sql('DELETE FROM items WHERE id >= 700');
$publisher->wait_applied;

# Binary values.  The apply worker and skipped_changes() read them alike.
$subscriber->sql('ALTER SUBSCRIPTION tap SET (binary = true)');
fails('INSERT INTO wide VALUES (7)');
$id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
overcomes();
$subscriber->refuses(
	"SELECT * FROM parallel_apply.skipped_changes($id)",
	qr/ERROR: +incorrect binary data format in column "id"/,
	'a value of another length is an error');
$subscriber->sql("SELECT parallel_apply.forget($id)");

# A superuser who looks at the changes calls no function with his privileges.
$id = skips_and_stores(
	'a domain',
	q(BEGIN; INSERT INTO items VALUES (701, -1); INSERT INTO constrained VALUES (1, 77, '{5}'); COMMIT),
	701,
	2);
my (undef, $out, $err) = $subscriber->psql('postgres',
	"SELECT statement FROM parallel_apply.skipped_changes($id) WHERE number = 2"
);
is( $out,
	q(INSERT INTO public.constrained (id, v, vs) VALUES ('1', '77', '{5}');),
	'a violation of a constraint is no error');
is_deeply(
	[ $err =~ /NOTICE: +(.*)/g ],
	[
		'asked for 5 by designer, restricted, search_path "pg_catalog, pg_temp"'
	],
	'constraints within an array ask with the privileges of the owner, and find no functions of the user'
);
$subscriber->sql("SELECT parallel_apply.forget($id)");
$publisher->sql('DELETE FROM items WHERE id >= 700');
$publisher->wait_applied;
$subscriber->sql('ALTER SUBSCRIPTION tap SET (binary = false)');

# A table is renamed, and another one has its name, which another user may read.
fails('INSERT INTO items VALUES (800, -1)');
$id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
overcomes();
$subscriber->sql('GRANT SELECT ON items TO watcher');
my $as_watcher = 'SET ROLE watcher; SELECT';
my $key =
  'concat(key, relname, detail) FROM parallel_apply.skipped_transactions';
my $statement = "statement FROM parallel_apply.skipped_changes($id)";
like($subscriber->sql("$as_watcher $key"),
	qr/^\(id\)=\(800\)items/, 'who may read the table sees data');
$subscriber->sql(
	q(ALTER TABLE items RENAME TO renamed; CREATE TABLE items (LIKE renamed INCLUDING ALL);
	GRANT SELECT ON items TO watcher));
is($subscriber->sql("$as_watcher $key"),
	'', 'but not who may read another one that has its name');
$subscriber->refuses(
	"$as_watcher $statement",
	qr/ERROR: +permission denied for table public.items/,
	'nor its changes');
like(
	$subscriber->sql("SELECT $statement"),
	qr/INSERT INTO public.items .*'800'/,
	'which a superuser sees');
$subscriber->refuses(
	"CALL parallel_apply.replay($id)",
	qr/ERROR: +table "items" is not synchronized/,
	'and it does not get them');
$subscriber->sql('DROP TABLE items; ALTER TABLE renamed RENAME TO items');
like($subscriber->sql("$as_watcher $statement"),
	qr/'800'/, 'the right one has its name again');
$subscriber->sql("CALL parallel_apply.replay($id)");
all_equal('renamed');
$publisher->sql('DELETE FROM items WHERE id = 800');
$publisher->wait_applied;

# Stored transactions are dropped with their subscription.
fails('INSERT INTO items VALUES (600, -1)');
$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$subscriber->refuses(
	'DROP EXTENSION parallel_apply CASCADE',
	qr/ERROR: +cannot drop extension "parallel_apply" because a transaction is to be skipped and stored/,
	'DROP EXTENSION does not keep it from being stored');
$subscriber->refuses(
	'DROP OWNED BY keeper CASCADE',
	qr/ERROR: +cannot drop extension "parallel_apply" because a transaction is to be skipped and stored/,
	'neither does DROP OWNED of its owner');
overcomes();
is(stored('changes'), '1', 'another one is stored');
$subscriber->refuses(
	'DROP EXTENSION parallel_apply',
	qr/ERROR: +cannot drop extension "parallel_apply" because skipped transactions are stored.*HINT: +Use parallel_apply.forget\(\) to remove them, or DROP ... CASCADE/s,
	'DROP EXTENSION does not remove it');
$subscriber->refuses(
	'DROP OWNED BY watcher, keeper',
	qr/ERROR: +cannot drop extension "parallel_apply" because skipped transactions are stored/,
	'neither does DROP OWNED of its owner');
# While a session holds the lock that they would wait for
$session = $subscriber->hold(
	'REFRESH MATERIALIZED VIEW parallel_apply.kept_transactions');
$subscriber->refuses(
	"SET lock_timeout = '1ms'; SET ROLE watcher; $_",
	qr/ERROR: +(must be owner of extension parallel_apply|permission denied to drop objects)/,
	"who does not own the extension waits for nothing: $_")
  for 'DROP EXTENSION parallel_apply',
  'DROP OWNED BY keeper';
$session->release;
$subscriber->sql(
	q(DROP OWNED BY watcher;
	BEGIN; DROP OWNED BY keeper CASCADE; ROLLBACK;
	BEGIN; DROP EXTENSION parallel_apply CASCADE; ROLLBACK));
# DROP SUBSCRIPTION locks the subscription before what is stored, as all others do.
$session = $subscriber->hold(q(COMMENT ON SUBSCRIPTION tap IS 'it'));
my $drop = $subscriber->background_psql('postgres', on_error_stop => 0);
$drop->query_until(qr/called/, "\\echo called\nDROP SUBSCRIPTION tap;\n");
waits_for(q(locktype = 'object' AND mode = 'AccessExclusiveLock'));
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_locks WHERE mode = 'RowExclusiveLock'
		AND relation = 'parallel_apply.kept_transactions'::regclass)),
	'0',
	'DROP SUBSCRIPTION locks the subscription first');
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DROP SUB%')
);
end_sessions($session, $drop);
# The origin of a replay that a crash has left behind
my $origin =
  "'parallel_apply_replay_' || oid FROM pg_subscription WHERE subname = 'tap'";
$subscriber->sql(
	"SELECT pg_replication_origin_create(name) FROM (SELECT $origin) s (name)"
);
$subscriber->refuses(
	'DROP SUBSCRIPTION tap',
	qr/NOTICE: +1 skipped transaction of the subscription is removed, too/,
	'DROP SUBSCRIPTION says that it removes it');
is(stored('id'), '', 'and removes it');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'parallel_apply_replay_%')
	),
	'0',
	'along with the origin of a replay');

# A subscription is dropped while a transaction is prepared, which is then committed.
sub messages
{
	return $subscriber->sql(
		'SELECT count(DISTINCT id) FROM parallel_apply.kept_messages');
}

sub subscribe_again
{
	my $connstr = $publisher->connstr . ' dbname=postgres';
	$subscriber->sql(
		"CREATE SUBSCRIPTION tap CONNECTION '$connstr' PUBLICATION tap
		WITH (disable_on_error = true, two_phase = on, copy_data = false)");
	return;
}

subscribe_again();
fails(q(BEGIN; INSERT INTO items VALUES (602, -1); PREPARE TRANSACTION 'c'));
$id = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
overcomes();
$subscriber->sql('DROP SUBSCRIPTION tap');
my $gid = $subscriber->sql('SELECT gid FROM pg_prepared_xacts');
$subscriber->sql("COMMIT PREPARED '$gid'");
is(messages(), '1', 'a transaction without a subscription is stored');
is(stored('id'), '', 'but not shown');
$subscriber->sql('GRANT SELECT ON items TO watcher');
is( $subscriber->sql(
		"$as_watcher count(*) FROM parallel_apply.skipped_changes($id)"),
	'0',
	'neither are its changes');
$publisher->sql(q(ROLLBACK PREPARED 'c'));
subscribe_again();
fails('INSERT INTO items VALUES (603, -1)');
$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
is(messages(), '0', 'the next skip removes it');
overcomes();
is(messages(), '1', 'and is stored');

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  (incorrect binary data format|subscription "tap" has no failing|skipped transaction \d+ does not exist|skip WAL location|cannot drop extension|cannot (remove the data|change materialized view)|must be owner|permission denied (to drop|for table public.items)|table "items" is not synchronized)/,
	qr/ERROR:  canceling statement due to user request/,
	qr/(the database system is|terminating|could not receive data from WAL stream)/
);
done_testing();
