# Promise: pg_verify_subscription names each row that differs, and no other one, while both
# servers are in use; it says of each table that it cannot compare why; and whenever it is
# killed, nothing of it remains on either server.
#
# Rows are changed on the subscriber by local sessions.  The program is stopped where it waits:
# for a transaction of the publisher, for a lock that apply needs, and for a table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use Programs;
use VerifyProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'pg_verify_subscription was not built'
  unless is_installed('pg_verify_subscription');

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "max_wal_senders = 20\nmax_replication_slots = 20",
	subscriber_conf => 'parallel_apply.selftest_fast = on');

# What a column of each kind has, and another value that must be found.
my %kinds = (
	null_int => [ 'int', 'NULL', '0' ],
	empty_text => [ 'text', 'NULL', q('') ],
	toasted => [
		'text',
		q((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 3000) i)),
		q((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2999) i) || md5('x'))
	],
	scale => [ 'numeric', '1.0', '1.00' ],
	nan => [ 'float8', q('NaN'), q('Infinity') ],
	zero => [ 'float8', '0', q('-0') ],
	digits => [ 'float8', '0.1', '0.10000000000000002' ],
	numbers => [ 'int[]', q('{1,NULL}'), q('{1,0}') ],
	mood => [ 'mood', q('sad'), q('ok') ],
	name => [ 'short', q('a'), q('b') ],
	pair => [ 'pair', q((1, 'x')), q((1, NULL)) ],
	bytes => [ 'bytea', q('\x00ff'), q('\x00fe') ],
	moment =>
	  [ 'timestamptz', q('2024-01-01 00:00+02'), q('2024-01-01 00:00+01') ],
	document => [ 'jsonb', q('{"a": 1}'), q('{"a": 1.0}') ],
	span => [ 'interval', q('1 day'), q('24 hours') ],
	blanks => [ 'char(5)', q('a'), q('b') ],
	upper_case => [ 'text', q('a'), q('A') ]);
my @kinds = sort keys %kinds;

$pair->exec_both(
	q(CREATE TYPE mood AS ENUM ('sad', 'ok');
	CREATE DOMAIN short AS varchar(10);
	CREATE TYPE pair AS (a int, b text);
	CREATE TABLE kinds (id int PRIMARY KEY);));
$pair->exec_both(join '',
	map { "ALTER TABLE kinds ADD $_ $kinds{$_}[0];" } @kinds);
$pair->exec_both(
	q(CREATE TABLE large (id bigint PRIMARY KEY, v int);
	CREATE TABLE keyless (v text, w int);
	ALTER TABLE keyless REPLICA IDENTITY FULL;
	CREATE TABLE parts (id int, place int, v text, PRIMARY KEY (place, id)) PARTITION BY LIST (place);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
	CREATE TABLE filtered (id int PRIMARY KEY, v int);
	CREATE TABLE some_columns (id int PRIMARY KEY, v int, own int);
	CREATE TABLE empty (id int PRIMARY KEY);
	CREATE TABLE inserts (id int PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY);
	CREATE TABLE secret (id int PRIMARY KEY);
	CREATE TABLE changed_files (id int PRIMARY KEY);
	CREATE SCHEMA "Other";));

# Another order, another type with the same text, a column of its own, another collation
$publisher->sql(
	q(CREATE TABLE "Other"."Shape" (a text COLLATE "C", b int, g int GENERATED ALWAYS AS (b * 2) STORED,
		PRIMARY KEY (a, b))));
$subscriber->sql(
	q(CREATE TABLE "Other"."Shape" (own timestamptz DEFAULT now(), b bigint, g int, a varchar COLLATE "POSIX",
		PRIMARY KEY (b, a))));
$pair->create_accounts;
$publisher->sql(
	'INSERT INTO kinds VALUES ' . join(
		', ',
		map {
			my $n = $_;
			"($n, " . join(', ', map { $kinds{$_}[1] } @kinds) . ')'
		} 0 .. $#kinds));
$publisher->sql(
	q(INSERT INTO large SELECT i, i % 7 FROM generate_series(1, 250000) i; ANALYZE large;
	INSERT INTO keyless SELECT 'row ' || i % 10, i % 10 FROM generate_series(1, 100) i;
	INSERT INTO parts SELECT i, 1 + i % 2, 'x' FROM generate_series(1, 100) i;
	INSERT INTO filtered SELECT i, i FROM generate_series(1, 100) i;
	INSERT INTO some_columns SELECT i, i, i FROM generate_series(1, 100) i;
	INSERT INTO "Other"."Shape" SELECT 'a"\' || i, i FROM generate_series(1, 100) i;
	INSERT INTO inserts VALUES (1); INSERT INTO secret VALUES (1); INSERT INTO changed_files VALUES (1);)
);

$subscriber->create_extension;
$publisher->sql(
	q(CREATE PUBLICATION tap_inserts FOR TABLE inserts WITH (publish = 'insert');
	CREATE PUBLICATION tap_root FOR TABLE parts WITH (publish_via_partition_root = true);)
);
$pair->subscribe(
	'tap',
	publication =>
	  q(FOR TABLE accounts, history, kinds, large, keyless, empty, secret, changed_files,
		filtered WHERE (v > 50), some_columns (id, v), "Other"."Shape"));
$subscriber->sql(
	'ALTER SUBSCRIPTION tap ADD PUBLICATION tap_inserts, tap_root');
$subscriber->wait_for_subscription_sync($publisher, 'tap');
$publisher->flush_wal;
$subscriber->wait_until_ready;

verifies_on($subscriber);

# Assert what it says of these tables, after statements on the subscriber, which others undo.
sub finds
{
	my ($name, $statements, $undo, $options, @lines) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql("SET session_replication_role = replica; $statements");
	my ($status, $out) = verify(@$options);
	is($out, join('', map { "$_\n" } @lines), "$name: it says what differs");
	is($status, 2, "$name: and exits with 2");
	$subscriber->sql("SET session_replication_role = replica; $undo");
	return;
}

my @unequal = ('-T', 'inserts');

### equal tables

{
	my ($status, $out, $err) = verify(@unequal, '-j', 2);
	is($status, 0, 'equal tables');
	like($out, qr/^public\.large: equal: 250000 rows$/m, 'which are named');
	like(
		$out,
		qr/^public\.filtered: equal: 50 rows$/m,
		'rows of the filter count');
	like($out, qr/^public\.parts: equal: 100 rows$/m, 'a root is one table');
	unlike($out, qr/parts_1/, 'and its partitions are none');
	like(
		$out,
		qr/^"Other"\."Shape": equal: 100 rows$/m,
		'other types, order and collation');
	like(
		$err,
		qr/apply was held for [\d.]+ ms/,
		'it says for how long apply was held');
	($status, $out) = verify('-t', 'inserts', '-t', 'public.empty');
	is($status, 1, 'a table that cannot be compared');
	is( $out,
		"public.empty: equal: 0 rows\npublic.inserts: not compared: its publication does not publish all operations, so equality cannot be expected\n",
		'is named with the reason');
}

### each kind of difference

my $number = 0;
for my $kind (@kinds)
{
	my $n = $number++;
	$subscriber->sql(
		"SET session_replication_role = replica; UPDATE kinds SET $kind = $kinds{$kind}[2] WHERE id = $n"
	);
}
{
	my ($status, $out) = verify('-t', 'kinds');
	is_deeply(
		[ sort grep { /differs in/ } split /\n/, $out ],
		[
			sort map { "public.kinds: ($_): differs in: $kinds[$_]" }
			  0 .. $#kinds
		],
		'a changed value of each kind is found, and nothing else');
	is($status, 2, 'and the exit status says so');
}

for my $id (1, 100000, 100001, 125000, 250000)
{
	finds(
		"row $id of a large table changed",
		"UPDATE large SET v = -1 WHERE id = $id",
		"UPDATE large SET v = id % 7 WHERE id = $id",
		[ '-t', 'large', '-j', 2 ],
		"public.large: ($id): differs in: v",
		'public.large: different: 250000 rows on publisher, 250000 on subscriber; 0 missing on subscriber, 0 missing on publisher, 1 differ'
	);
}
finds(
	'a lost row',
	'DELETE FROM large WHERE id = 250000',
	'INSERT INTO large VALUES (250000, 250000 % 7)',
	[ '-t', 'large', '--csv' ],
	'subscription,relation,result,key,detail',
	'tap,public.large,missing on subscriber,(250000),',
	'tap,public.large,different,,"250000 rows on publisher, 249999 on subscriber; 1 missing on subscriber, 0 missing on publisher, 0 differ"'
);
finds(
	'a row before the first',
	'INSERT INTO large VALUES (-5, NULL)',
	'DELETE FROM large WHERE id = -5',
	[ '-t', 'large', '--json', '--values' ],
	'{"subscription": "tap", "relation": "public.large", "result": "missing on publisher", "key": "(-5)", "subscriber": {"id": "-5", "v": null}}',
	'{"subscription": "tap", "relation": "public.large", "result": "different", "publisher_rows": 250000, "subscriber_rows": 250001, "missing_on_subscriber": 0, "missing_on_publisher": 1, "differing": 0}'
);
finds(
	'a row of a partition',
	'UPDATE parts SET v = NULL WHERE id = 3',
	q(UPDATE parts SET v = 'x' WHERE id = 3),
	[ '-t', 'parts', '--values' ],
	'public.parts: (2,3): differs in: v: v=x on publisher; v=NULL on subscriber',
	'public.parts: different: 100 rows on publisher, 100 on subscriber; 0 missing on subscriber, 0 missing on publisher, 1 differ'
);
# Without a key: a pair of rows replaced by another pair, which an exclusive or would not see
{
	my $twice = q(DELETE FROM keyless WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM keyless WHERE w = 1 LIMIT 2)); INSERT INTO keyless VALUES ('row 2', 2), ('row 2', 2););
	$subscriber->sql("SET session_replication_role = replica; $twice");
	my ($status, $out) = verify('-t', 'keyless', '--values');
	is($status, 2, 'a table without a key differs');
	is( () =
		  $out =~
		  /^public\.keyless: hash [0-9a-f]{16}: missing on subscriber: v=row 1, w=1$/gm,
		2,
		'lost rows are named');
	is( () =
		  $out =~
		  /^public\.keyless: hash [0-9a-f]{16}: missing on publisher: v=row 2, w=2$/gm,
		2,
		'and doubled ones');
	($status, $out) = verify('-t', 'keyless');
	unlike($out, qr/row 1/,
		'but values are not shown unless that is asked for');
	$subscriber->sql('TRUNCATE keyless');
	$subscriber->sql(
		q(INSERT INTO keyless SELECT 'row ' || i % 10, i % 10 FROM generate_series(1, 100) i)
	);
}

### what cannot be compared

{
	$publisher->sql(
		q(CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
		REVOKE SELECT ON secret FROM reader; ALTER TABLE empty ENABLE ROW LEVEL SECURITY)
	);
	my ($status, $out) = verify('-t', 'secret', '-t', 'empty', '--publisher',
		$publisher->connstr('postgres') . ' user=reader');
	is($status, 1, 'tables that may not be read');
	like(
		$out,
		qr/^public\.secret: not compared: publisher: permission denied for table secret$/m,
		'no rights');
	like(
		$out,
		qr/^public\.empty: not compared: publisher: query would be affected by row-level security/m,
		'row security');
	$publisher->sql('ALTER TABLE empty DISABLE ROW LEVEL SECURITY');

	$publisher->sql('INSERT INTO late VALUES (1)');
	my $lock = $subscriber->hold('INSERT INTO late VALUES (1)');
	$pair->begin_copy('late');
	($status, $out) = verify('-t', 'late');
	is( $out,
		"public.late: not compared: it is being synchronized\n",
		'a table that is being copied');
	$lock->query_safe('ROLLBACK');
	$lock->quit;
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	$publisher->sql(
		'CREATE TABLE unknown (id int PRIMARY KEY); ALTER PUBLICATION tap ADD TABLE unknown'
	);
	($status, $out) = verify('-t', 'unknown');
	like(
		$out,
		qr/^public\.unknown: not compared: it is published, but not a table of the subscription/,
		'a table that the subscription does not have');
	$publisher->sql('DROP TABLE unknown');

	$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
	($status, $out, my $err) = verify();
	is($status, 1, 'a paused subscription');
	like($err, qr/subscription "tap" cannot be verified: it is paused/,
		'is an error');
	$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
	($status, $out, $err) = verify('--subscription', 'nothing');
	like(
		$err,
		qr/does not have subscription "nothing"/,
		'a subscription that does not exist');
	($status, $out, $err) =
	  verify('--publisher', $subscriber->connstr('postgres'));
	like($err, qr/does not have replication slot "tap"/, 'another server');
	($status, $out, $err) = verify('-d', 'template1');
	like(
		$err,
		qr/does not have extension "parallel_apply"/,
		'a database without the extension');
}

### under load

$pair->under_load(
	sub {
		$subscriber->wait_for_progress;
		for (1 .. 4)
		{
			my ($status, $out, $err) =
			  verify('-t', 'accounts', '-t', 'history');
			is($status, 0, 'nothing differs under load') or diag($out, $err);
		}
	});

### killed

sub nothing_remains
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->sql(
		'INSERT INTO empty SELECT coalesce(max(id), 0) + 1 FROM empty');
	$publisher->wait_applied;
	$pair->rows_equal('empty', "$when: apply continues");
	for my $node ($publisher, $subscriber)
	{
		ok( $node->poll_query_until(
				'postgres',
				q(SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pg_verify_subscription')
			),
			"$when: no session remains on the " . $node->name);
	}
	is( $publisher->sql(
			q(SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg_verify%')
		),
		0,
		"$when: no slot remains");
	return;
}

sub kill_verify
{
	my ($program) = @_;
	$program->signal('KILL');
	$program->finish;
	return;
}

{
	my $open = $publisher->hold('INSERT INTO empty VALUES (-1)');
	my ($program) = start_verify('-t', 'kinds');
	wait_for_its_lock($publisher);
	$publisher->sql(
		'INSERT INTO empty SELECT coalesce(max(id), 0) + 1 FROM empty');
	$publisher->wait_applied;
	pass('apply continues while the slot waits for a transaction');
	kill_verify($program);
	$open->query_safe('ROLLBACK');
	$open->quit;
	nothing_remains('killed while the slot waits');
}
{
	my $gate = $subscriber->hold('LOCK TABLE accounts');
	$publisher->sql('UPDATE accounts SET balance = balance + 1 WHERE id = 1');
	my ($program) = start_verify('-t', 'kinds');
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%apply.pause%' AND wait_event_type = 'Extension'),
		'the pause does not wait');
	kill_verify($program);
	$gate->release;
	nothing_remains('killed while apply is held');
}
{
	my $gate = $subscriber->hold('LOCK TABLE kinds');
	my ($program) = start_verify('-t', 'kinds');
	wait_for_its_lock($subscriber);
	kill_verify($program);
	$gate->release;
	nothing_remains('killed while it compares');
}

# A server ends what the program waits for.
for my $end ('its walsender is terminated', 'the subscriber crashes')
{
	my $open = $publisher->hold('INSERT INTO empty VALUES (-1)');
	my ($program) = start_verify('-t', 'kinds');
	my $waits = q(FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND application_name = 'pg_verify_subscription');
	$publisher->wait_until("count(*) > 0 $waits", 'the slot does not wait');
	if ($end =~ /walsender/)
	{
		$publisher->sql("SELECT pg_terminate_backend(pid) $waits");
	}
	else
	{
		$subscriber->stop('immediate');
		$subscriber->start;
	}
	$open->query_safe('ROLLBACK');
	$open->quit;
	$program->finish;
	is($? >> 8, 1, "$end: the program cannot compare");
	nothing_remains($end);
}
$subscriber->wait_for_pool('tap');

### a table that is truncated meanwhile

{
	my $gate = $subscriber->hold('LOCK TABLE accounts');
	my ($program, $out) =
	  start_verify('-t', 'accounts', '-t', 'changed_files');
	wait_for_its_lock($subscriber);
	$publisher->sql('TRUNCATE changed_files');
	$publisher->wait_applied;
	$gate->release;
	$program->finish;
	like(
		$$out,
		qr/^public\.changed_files: not compared: it was truncated or rewritten on the (publisher|subscriber) in the meantime$/m,
		'a table that is truncated meanwhile is no difference');
}

### a user who is no superuser

SKIP:
{
	skip 'the owner of a subscription is a superuser before 16', 1
	  if $subscriber->pg_version < 16;
	$subscriber->sql(
		q(CREATE ROLE owner LOGIN IN ROLE pg_create_subscription; GRANT postgres TO owner WITH INHERIT FALSE;
		GRANT SELECT ON ALL TABLES IN SCHEMA public TO owner;
		ALTER SUBSCRIPTION tap SET (password_required = false); ALTER SUBSCRIPTION tap OWNER TO owner)
	);
	my ($status, $out, $err) = verify('-U', 'owner', '-t', 'large');
	like(
		$err,
		qr/subscription "tap" cannot be verified: you may not read its connection string/,
		'only superusers may read the connection string');
	($status) = verify('-U', 'owner', '-t', 'large', '--publisher',
		$publisher->connstr('postgres') . ' user=reader');
	is($status, 0, 'the owner may verify a subscription');
}

$subscriber->sql('SET session_replication_role = replica; '
	  . join('', map { "UPDATE kinds SET $_ = $kinds{$_}[1];" } @kinds));
$pair->tables_equal('in the end',
	qw(kinds large keyless accounts history empty));
finish(
	$publisher,
	$subscriber,
	qr/permission denied for table secret|affected by row-level security/,
	qr/canceling statement|connection to client lost|terminating connection/,
	qr/could not send end-of-streaming message|terminating background worker|another server process/
);
done_testing();
