# Promise: a change of the publisher produces the row that PostgreSQL's own apply
# would write.  Columns are matched by name, the subscriber's table may have more of
# them, and values of all kinds arrive as text and in binary, under the same
# settings and with the same privileges.
#
# Most parts need no race.  Where row filters and column lists change what a message
# says about a row, a lock blocks the first transaction, so that the states show
# whether dependencies are found nevertheless.  The comment of each part names the
# faults that it detects.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => "parallel_apply.writers_per_subscription = 8\n"
	  . "parallel_apply.max_batch_transactions = 1\n");

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE DOMAIN positive AS int CHECK (VALUE > 0);
	CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
	CREATE TYPE point3 AS (x int, y int, z text);
	CREATE TABLE kinds (id int PRIMARY KEY, n numeric, j jsonb, a int[], t text[][],
		d positive, m mood, p point3, b bytea, ts timestamptz, f float8, r int4range,
		u uuid, o bool, c char(5), v varchar(10), i interval);
	CREATE TABLE filtered (id int PRIMARY KEY, a int);
	ALTER TABLE filtered REPLICA IDENTITY FULL;)
);
$publisher->sql(
	qq(CREATE TABLE $_ (id int PRIMARY KEY, body text, views int);
	ALTER TABLE $_ ALTER body SET STORAGE EXTERNAL;)
) foreach qw(documents pages);
$subscriber->sql(
	q(CREATE FUNCTION measured(body text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN RETURN length(body); END';
	CREATE TABLE documents (size int GENERATED ALWAYS AS (measured(body)) STORED, body text,
		twice int GENERATED ALWAYS AS (views * 2) STORED, views int, id int PRIMARY KEY);
	CREATE TABLE pages (LIKE documents INCLUDING GENERATED, PRIMARY KEY (id)) PARTITION BY RANGE (id);
	CREATE TABLE pages_1 PARTITION OF pages FOR VALUES FROM (1) TO (3);
	CREATE TABLE pages_2 (id int NOT NULL, size int GENERATED ALWAYS AS (measured(body)) STORED,
		views int, twice int GENERATED ALWAYS AS (views * 2) STORED, body text);
	ALTER TABLE pages ATTACH PARTITION pages_2 FOR VALUES FROM (3) TO (100);)
);
$publisher->sql(
	q(CREATE TABLE columns (gone1 int, id int PRIMARY KEY, a text, gone2 text, b int, c numeric);
	ALTER TABLE columns DROP gone1, DROP gone2;
	CREATE TABLE generated (id int PRIMARY KEY, v int);
	CREATE TABLE listed (id int PRIMARY KEY, a int, secret text, b int);
	CREATE TABLE session (id int PRIMARY KEY, v int);
	CREATE TABLE restricted (id int PRIMARY KEY, v int);
	CREATE TABLE cut (id int PRIMARY KEY);)
);
$subscriber->sql(
	q(CREATE TABLE columns (c numeric(6, 1), gone3 int, b int, nothing text, id int PRIMARY KEY,
		constant int NOT NULL DEFAULT 42, gone4 text, a text);
	ALTER TABLE columns DROP gone3, DROP gone4;
	CREATE TABLE generated (twice_extra int GENERATED ALWAYS AS (extra * 2) STORED,
		v int, extra int DEFAULT 7, id int PRIMARY KEY,
		twice int GENERATED ALWAYS AS (v * 2) STORED);
	CREATE TABLE listed (b int, a int, id int PRIMARY KEY, secret text DEFAULT 'default');
	CREATE TABLE session (id int PRIMARY KEY, v int,
		role text DEFAULT current_setting('session_replication_role'),
		path text DEFAULT current_setting('search_path'),
		applied_by text DEFAULT current_user);
	CREATE TABLE restricted (id int PRIMARY KEY, v int);
	CREATE TABLE cut (id int PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE cut_1 PARTITION OF cut DEFAULT;
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE EXCEPTION 'an ordinary trigger has fired'; END$$;
	CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON session
		FOR EACH ROW EXECUTE FUNCTION refuse();
	CREATE TRIGGER refuse_all AFTER INSERT OR UPDATE OR DELETE ON session
		FOR EACH STATEMENT EXECUTE FUNCTION refuse();)
);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO filtered SELECT i, i FROM generate_series(1, 20) i;
	INSERT INTO listed SELECT i, i, 'secret', i FROM generate_series(1, 9) i;
	INSERT INTO restricted SELECT i, i FROM generate_series(1, 9) i;)
);

$subscriber->create_extension;
$pair->subscribe('tap',
	publication =>
	  'FOR TABLE gate, kinds, columns, generated, documents, pages, session, restricted, cut,'
	  . ' listed (id, a), filtered WHERE (a > 10)');

sub is_on_subscriber
{
	my ($sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($subscriber->sql($sql), $expected, $name);
}

sub apply_changes
{
	my ($sql) = @_;
	$publisher->sql($sql);
	$publisher->wait_applied;
	return;
}

# Detects: columns matched by number instead of by name; a default where the
# publisher sends a value, or none where it does not; a local value lost in an
# UPDATE; the publisher's type modifier instead of the subscriber's.
sub check_columns
{
	my ($format) = @_;
	apply_changes(
		q(DELETE FROM columns;
		INSERT INTO columns VALUES (1, 'one', 10, 1.10), (2, NULL, 20, 2.26), (3, 'three', 30, NULL);)
	);
	$subscriber->sql(
		q(UPDATE columns SET nothing = 'local', constant = 43 WHERE id = 2));
	apply_changes(
		q(BEGIN; UPDATE columns SET a = 'two' WHERE id = 2; DELETE FROM columns WHERE id = 3; COMMIT;
		UPDATE columns SET b = NULL, id = 10 WHERE id = 1;)
	);
	is_on_subscriber(
		q(SELECT id, a, b, c, constant, nothing FROM columns ORDER BY id),
		"2|two|20|2.3|43|local\n10|one||1.1|42|",
		"columns are found by name, the others keep their defaults or values, $format"
	);
	return;
}

# INSERT and UPDATE compute different generated columns, since an UPDATE does not
# compute those that depend on other columns.  Detects: state of one used for the
# other.
sub check_generated
{
	my ($format) = @_;
	apply_changes(
		q(DELETE FROM generated;
		INSERT INTO generated VALUES (1, 1);
		BEGIN; INSERT INTO generated VALUES (2, 2); UPDATE generated SET v = 20 WHERE id = 2; COMMIT;
		BEGIN; UPDATE generated SET v = 10 WHERE id = 1; INSERT INTO generated VALUES (3, 3);
		UPDATE generated SET v = 30 WHERE id = 3; INSERT INTO generated VALUES (4, 4); COMMIT;)
	);
	is_on_subscriber(
		q(SELECT id, v, twice, extra, twice_extra FROM generated ORDER BY id),
		join("\n",
			'1|10|20|7|14', '2|20|40|7|14', '3|30|60|7|14', '4|4|8|7|14'),
		"generated columns are computed by INSERT and UPDATE of one transaction, $format"
	);
	return;
}

# A large value that an UPDATE leaves alone is not sent, and what is generated from it
# is not computed again: a function that has changed shows whether it is.  UPDATEs of
# one transaction send different columns.  Detects: all published columns count as
# updated; an UPDATE computes the columns of the one before; the columns of the root
# taken for those of a partition.
sub check_generated_from_unchanged
{
	my ($format) = @_;
	my $define = 'CREATE OR REPLACE FUNCTION measured(body text) RETURNS int'
	  . ' LANGUAGE plpgsql IMMUTABLE AS';
	$subscriber->sql("$define 'BEGIN RETURN length(body); END'");
	apply_changes(
		qq(DELETE FROM $_; INSERT INTO $_ SELECT i, repeat('x', 5000 + i), 0 FROM generate_series(1, 4) i;)
	) foreach qw(documents pages);
	$subscriber->sql("$define 'BEGIN RETURN -length(body); END'");
	apply_changes(
		qq(BEGIN; UPDATE $_ SET views = 1 WHERE id = 1; UPDATE $_ SET body = repeat('y', 6000) WHERE id = 2;
		UPDATE $_ SET views = 3 WHERE id = 3; UPDATE $_ SET views = 4, body = repeat('z', 7000) WHERE id = 4;
		UPDATE $_ SET views = 5 WHERE id = 2; UPDATE $_ SET views = 6 WHERE id = 4;
		INSERT INTO $_ VALUES (5, repeat('z', 8000), 7);
		UPDATE $_ SET views = 8 WHERE id = 5; COMMIT;)
	) foreach qw(documents pages);
	is_on_subscriber(
		"SELECT id, size, twice, length(body) FROM $_ ORDER BY id",
		join("\n",
			'1|5001|2|5001', '2|-6000|10|6000', '3|5003|6|5003',
			'4|-7000|12|7000', '5|-8000|16|8000'),
		"$_: an UPDATE computes what is generated from columns that were sent, $format"
	) foreach qw(documents pages);
	return;
}

# Detects: wrong input or receive function; a value that is longer than the message
# says; a value of the local row taken for one that was sent.
sub check_kinds
{
	my ($format) = @_;
	apply_changes(
		q(DELETE FROM kinds;
		INSERT INTO kinds VALUES (1, 123456789012345678901234567890.0001, '{"a": [1, null, "x"]}',
			'{1,NULL,3}', '{{a,"b,c"},{"",NULL}}', 5, 'happy', '(1,,"a ""quoted"" text")', '\x00ff10',
			'2024-02-29 12:34:56.789012+05:30', 0.1::float8 + 0.2, int4range(3, 7),
			'00000000-0000-0000-0000-0000000000ff', true, 'ab', 'varchar', '1 year 2 days 03:04:05.6'),
			(2, 'NaN', 'null', '{}', '{}', NULL, NULL, NULL, '', 'infinity', '-Infinity', 'empty',
			NULL, false, '', '', '-1 mon');
		INSERT INTO kinds (id) VALUES (3);
		UPDATE kinds SET n = 1.50, j = '[]', a = a || 4, d = 6, m = 'ok', p.y = 2, b = b || '\x01',
			f = 'NaN', c = 'abcde', v = repeat('x', 10) WHERE id = 1;
		UPDATE kinds SET c = 'edcba', v = repeat('y', 10) WHERE id = 1;
		UPDATE kinds SET n = NULL, t = '{{x}}' WHERE id = 2;
		UPDATE kinds SET d = 1, o = NOT o WHERE id = 3;)
	);
	$pair->rows_equal('kinds',
		"values of all kinds are equal on both sides, $format");
	return;
}

# A column list: the other columns keep the subscriber's values.  A row filter: an
# UPDATE arrives as INSERT or DELETE, with the dependencies of the row.
sub check_publication
{
	my ($format) = @_;
	my $dependency = 'waiting for dependency';
	my $turn = 'waiting for prior commit';
	my $reset =
	  q(DELETE FROM filtered; INSERT INTO filtered SELECT i, i FROM generate_series(1, 20) i;
		DELETE FROM listed; INSERT INTO listed SELECT i, i, 'secret', i FROM generate_series(1, 9) i;
	);
	apply_changes($reset);
	is( $pair->apply_behind_gate(
			join(', ',
				'waiting for lock', $dependency, $dependency,
				$turn, $dependency, $dependency),
			"a row filter does not hide a dependency, $format",
			q(UPDATE filtered SET a = 100 WHERE id = 1;
			UPDATE filtered SET a = 2 WHERE id = 12;
			UPDATE listed SET a = 10, b = 10 WHERE id = 1),
			q(UPDATE filtered SET a = 101 WHERE id = 1),
			q(UPDATE filtered SET a = 102 WHERE id = 12),
			q(UPDATE filtered SET a = 103 WHERE id = 13),
			q(UPDATE filtered SET a = 3 WHERE id = 13),
			q(UPDATE listed SET id = 11 WHERE id = 1)),
		0,
		"and each is applied at its first attempt, $format");
	is_on_subscriber(
		q(SELECT count(*), sum(id), sum(a) FROM filtered),
		$publisher->sql(
			q(SELECT count(*), sum(id), sum(a) FROM filtered WHERE a > 10)),
		"the rows that match the filter are there, $format");
	is_on_subscriber(
		q(SELECT count(*), sum(id), sum(a), min(secret), max(secret), count(b) FROM listed),
		'9|55|54|default|default|0',
		"the listed columns are there and no others, $format");
	return;
}

# Detects: a wrong session_replication_role, search_path or user in a writer.
sub check_session
{
	my ($format, $user) = @_;
	apply_changes(
		q(DELETE FROM session; INSERT INTO session VALUES (1, 1), (2, 2);
		UPDATE session SET v = 10 WHERE id = 1; DELETE FROM session WHERE id = 2;)
	);
	is_on_subscriber(
		q(SELECT id, v, role, path, applied_by FROM session),
		qq(1|10|replica||$user),
		"no ordinary trigger fires, search_path is empty, and the user is the owner, $format"
	);
	return;
}

my $superuser = $subscriber->sql('SELECT current_user');
foreach my $format ('as text', 'in binary')
{
	if ($format eq 'in binary')
	{
		$subscriber->restart_apply('tap',
			'ALTER SUBSCRIPTION tap SET (binary = on)');
		$subscriber->wait_for_pool('tap', 8);
	}
	check_columns($format);
	check_generated($format);
	check_generated_from_unchanged($format);
	check_kinds($format);
	check_publication($format);
	check_session($format, $superuser);
	is($subscriber->counter('fallbacks'),
		0, "none of this had to be replayed by PostgreSQL itself, $format");
}

# Columns are added and dropped while the subscription is applied.  Detects: an
# outdated column map in a writer.
$subscriber->sql(
	q(ALTER TABLE columns DROP COLUMN constant, DROP COLUMN b, ADD COLUMN b int,
		ADD COLUMN later text DEFAULT 'later')
);
apply_changes(
	q(INSERT INTO columns VALUES (20, 'twenty', 200, 20); UPDATE columns SET b = 21 WHERE id = 2;)
);
$publisher->sql(
	q(ALTER TABLE columns DROP COLUMN c, ADD COLUMN nothing text));
apply_changes(
	q(INSERT INTO columns (id, b, a, nothing) VALUES (21, 210, 'new', 'something');)
);
is_on_subscriber(
	q(SELECT id, a, b, c, nothing, later FROM columns WHERE id <> 10 ORDER BY id),
	join("\n",
		'2|two|21|2.3|local|later', '20|twenty|200|20.0||later',
		'21|new|210||something|later'),
	'columns may be added and dropped on both sides');
is($subscriber->counter('fallbacks'),
	0, 'and the writers know of it themselves');

# The owner is not a superuser, as in PostgreSQL's own test.  Detects: writers run
# as the wrong user, do not check privileges, or do not report which one is missing.
$subscriber->sql(
	q(CREATE ROLE applier SUPERUSER LOGIN;
	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO applier;
	REVOKE UPDATE ON restricted FROM applier;)
);
if ($subscriber->pg_version >= 16)
{
	$subscriber->restart_apply('tap',
		'ALTER SUBSCRIPTION tap SET (run_as_owner = true, password_required = false)'
	);
	$subscriber->wait_for_pool('tap', 8);
}

# The owner changes while a transaction waits for its turn, before the apply worker
# notices.
{
	my $apply = $subscriber->apply_pid('tap');
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		'UPDATE gate SET n = n + 1; INSERT INTO session VALUES (3, 3)');
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit',
		'a transaction is applied as the old owner');
	$subscriber->stop_waiting($apply,
		'Extension,ParallelApplyWork,LogicalApplyMain');
	$subscriber->restart_apply(
		'tap',
		'ALTER SUBSCRIPTION tap OWNER TO applier; ALTER ROLE applier NOSUPERUSER;',
		sub {
			$lock->query_safe('COMMIT');
			$subscriber->wait_for_state('waiting for leader');
			kill 'CONT', $apply;
		});
	$lock->quit;
	$publisher->wait_applied;
	is_on_subscriber(
		'SELECT applied_by FROM session WHERE id = 3',
		'applier',
		'and once more as the new one');
}
$subscriber->wait_for_pool('tap', 8);
check_session('with an ordinary owner', 'applier');

# All writers had the privileges that are revoked here.
$pair->apply_behind_gate(
	join(', ', 'waiting for lock', ('waiting for prior commit') x 7),
	'all writers may insert into a table',
	map { "INSERT INTO restricted VALUES (10 + $_, 0)" } 1 .. 8);
$subscriber->sql('REVOKE INSERT ON restricted FROM applier');

# A change that is refused with a message, and applied once the cause is removed
sub check_refused
{
	my ($change, $message, $remedy, $name) = @_;
	my $offset = -s $subscriber->logfile;
	$publisher->sql(
		"$change; INSERT INTO session VALUES (nextval('ids'), 0)");
	ok($subscriber->wait_for_log(qr/ERROR:  $message/, $offset),
		"PostgreSQL's own message tells of $name");
	$subscriber->sql($remedy);
	$publisher->wait_applied;
	$pair->rows_equal('restricted',
		"apply continues once the cause is removed, for $name");
	return;
}

$publisher->sql('CREATE SEQUENCE ids START 100');
check_refused(
	'INSERT INTO restricted VALUES (100, 0)',
	qr/permission denied for table restricted/,
	'GRANT INSERT ON restricted TO applier',
	'a privilege that was taken away');
check_refused(
	'UPDATE restricted SET v = 100 WHERE id = 1',
	qr/permission denied for table restricted/,
	'GRANT UPDATE ON restricted TO applier',
	'a missing privilege');
$subscriber->sql('REVOKE SELECT ON restricted FROM applier');
check_refused(
	'UPDATE restricted SET v = 101 WHERE id = 1',
	qr/permission denied for table restricted/,
	'GRANT SELECT ON restricted TO applier',
	'a row that may be changed but not be looked for');
$subscriber->sql('GRANT TRUNCATE ON cut TO applier');
check_refused(
	'INSERT INTO cut VALUES (1); TRUNCATE cut',
	qr/permission denied for table cut_1/,
	'GRANT TRUNCATE ON cut_1 TO applier',
	'a partition that may not be truncated');
$subscriber->sql('ALTER TABLE restricted ENABLE ROW LEVEL SECURITY');
check_refused(
	'DELETE FROM restricted WHERE id = 2',
	qr/user "applier" cannot replicate into relation with row-level security enabled: "restricted"/,
	'ALTER ROLE applier BYPASSRLS',
	'row-level security');

# A privilege is revoked after a writer has used it: while its transaction, which
# changes row 3, waits for its turn, or after it has changed some rows of many.
sub check_revoked
{
	my ($transactions, $revoke, $message, $remedy, $name) = @_;

	# The writer that will wait has used the privilege before.
	$pair->apply_behind_gate(
		'waiting for lock, waiting for prior commit',
		"$name: it is used",
		'',
		'UPDATE restricted SET v = v + 1 WHERE id = 3');
	$subscriber->wait_for_state('idle', 8);

	my $sql = 'SELECT v FROM restricted WHERE id = 3';
	my $v = $subscriber->sql($sql);
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql($transactions);
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->wait_for_state('waiting for prior commit')
	  if $transactions !~ /BEGIN/;
	my $offset = -s $subscriber->logfile;
	$subscriber->sql($revoke);
	$lock->release;
	ok( $subscriber->wait_for_log(qr/ERROR:  $message/, $offset),
		"$name: an error, although the row had been changed");
	is($subscriber->sql($sql), $v, "$name: which is not to be seen");
	$subscriber->sql($remedy);
	$publisher->wait_applied;
	$pair->rows_equal('restricted',
		"$name: apply continues once the cause is removed");
	$subscriber->wait_for_pool('tap', 8);
	return;
}

my $younger =
  'UPDATE gate SET n = n + 1; UPDATE restricted SET v = v + 1 WHERE id = 3;';
check_revoked(
	$younger,
	'REVOKE UPDATE ON restricted FROM applier',
	qr/permission denied for table restricted/,
	'GRANT UPDATE ON restricted TO applier',
	'a right that is revoked');
check_revoked(
	$younger,
	'ALTER ROLE applier NOBYPASSRLS',
	qr/user "applier" cannot replicate into relation with row-level security enabled: "restricted"/,
	'ALTER ROLE applier BYPASSRLS',
	'a role that is altered');
check_revoked(
	q(BEGIN; UPDATE restricted SET v = v + 1 WHERE id = 3; UPDATE gate SET n = n + 1;
	INSERT INTO restricted SELECT i, i FROM generate_series(1001, 1200) i;
	UPDATE restricted SET v = v + 1 WHERE id = 4; COMMIT;),
	'REVOKE UPDATE ON restricted FROM applier',
	qr/permission denied for table restricted/,
	'GRANT UPDATE ON restricted TO applier',
	'a right that is revoked while it is used');

# A privilege through another role
$subscriber->sql(
	'REVOKE UPDATE ON restricted FROM applier;
	CREATE ROLE updaters; GRANT updaters TO applier;
	GRANT UPDATE ON restricted TO updaters;');
check_revoked(
	$younger,
	'REVOKE updaters FROM applier',
	qr/permission denied for table restricted/,
	'GRANT updaters TO applier',
	'a right of a role whose membership is revoked');
$subscriber->sql('REVOKE UPDATE ON restricted FROM updaters');

# The owner of a database is implicitly a member of a role.
my $other_owner = $subscriber->sql('SELECT current_user');
$subscriber->sql(
	'GRANT UPDATE ON restricted TO pg_database_owner;
	ALTER DATABASE postgres OWNER TO applier;');
check_revoked(
	$younger,
	qq(ALTER DATABASE postgres OWNER TO "$other_owner"),
	qr/permission denied for table restricted/,
	'ALTER DATABASE postgres OWNER TO applier',
	'a privilege of the owner of the database, who is another role');
if ($subscriber->pg_version >= 16)
{
	$subscriber->sql(
		'CREATE ROLE keeper; GRANT keeper TO applier;
		ALTER TABLE gate OWNER TO keeper; ALTER TABLE restricted OWNER TO keeper;
		ALTER SUBSCRIPTION tap SET (run_as_owner = false);');
	check_revoked(
		$younger,
		'REVOKE keeper FROM applier',
		qr/role "applier" cannot SET ROLE to "keeper"/,
		'GRANT keeper TO applier',
		'a membership that is revoked');
}

# What ALTER DATABASE and ALTER ROLE set counts when the apply worker starts again, also
# for writers that start before that; the configuration file counts at once.  Detects:
# writers have the settings of the catalogs, or those of the file when the apply worker
# started.
$publisher->sql(
	'CREATE TABLE zoned (id int PRIMARY KEY, at text);
	ALTER PUBLICATION tap ADD TABLE zoned');
$subscriber->sql(
	q(ALTER ROLE applier SUPERUSER;
	CREATE ROLE limited;
	CREATE TABLE zoned (id int PRIMARY KEY, at timestamptz, applied_by text DEFAULT current_user,
		app text DEFAULT current_setting('app.setting', true),
		style text DEFAULT current_setting('intervalstyle'));
	ALTER TABLE zoned OWNER TO applier;));
my $config = 'SELECT parallel_apply.alter_subscription_config';
$subscriber->sql("$config('tap', 2)");
$subscriber->connect_again(
	'tap',
	q(ALTER SUBSCRIPTION tap SET (binary = off);
	ALTER DATABASE postgres SET timezone = 'Asia/Tokyo';
	ALTER DATABASE postgres SET app.setting = 'first';)
);
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
$subscriber->sql(
	q(ALTER DATABASE postgres SET timezone = 'America/New_York';
	ALTER DATABASE postgres SET app.setting = 'second';
	ALTER ROLE applier SET role = 'limited';));
$subscriber->reload_with("intervalstyle = 'sql_standard'");
$subscriber->sql("$config('tap', 8)");
$subscriber->wait_for_pool('tap', 8);
my $fallbacks = $subscriber->counter('fallbacks');
$pair->apply_behind_gate(
	join(', ', 'waiting for lock', ('waiting for prior commit') x 7),
	'old and new writers have a row each',
	map { "INSERT INTO zoned VALUES ($_, '2026-05-01 12:00:00')" } 1 .. 8);
is_on_subscriber(
	q(SELECT at AT TIME ZONE 'UTC', applied_by, app, style, count(*) FROM zoned
		GROUP BY 1, 2, 3, 4),
	'2026-05-01 03:00:00|applier|first|sql_standard|8',
	'all have the settings of the apply worker');
is($subscriber->counter('fallbacks'),
	$fallbacks, 'and its role, which may change the table');

# A setting that is not valid any more keeps new writers from starting.  Others apply
# everything, and all start when the apply worker does.
$subscriber->sql("$config('tap', 2)");
$subscriber->sql(
	q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE former LOCATION '')
);
$subscriber->connect_again('tap',
	'ALTER ROLE applier RESET role; ALTER DATABASE postgres SET default_tablespace = former'
);
$subscriber->wait_for_pool('tap', 2);
$subscriber->sql('DROP TABLESPACE former');
my $log_position = -s $subscriber->logfile;
$subscriber->sql("$config('tap', 8)");
$subscriber->wait_for_log(
	qr/ERROR:  invalid value for parameter "default_tablespace".*\n.*\n.*HINT:  A writer begins with the settings of the apply worker/,
	$log_position);
$publisher->sql(
	"INSERT INTO zoned SELECT g, '2026-05-01' FROM generate_series(100, 120) g"
);
$publisher->wait_applied;
is_on_subscriber(
	'SELECT count(*) FROM zoned WHERE id >= 100',
	'21',
	'applied without the new writers');
$subscriber->connect_again('tap',
	'ALTER DATABASE postgres RESET default_tablespace');
$subscriber->wait_for_pool('tap', 8);

finish(
	$publisher,
	$subscriber,
	qr/permission denied for table (restricted|cut_1)/,
	qr/invalid value for parameter "default_tablespace"/,
	qr/cannot replicate into relation with row-level security enabled/,
	qr/role "applier" cannot SET ROLE to "keeper"/);
done_testing();
