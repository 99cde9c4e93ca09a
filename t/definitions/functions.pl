# Promise: writers keep prepared expressions with functions of defaults, domains,
# constraints and indexes, and successful permission checks, across transactions.
# They notice that a function is replaced, or that the owner of the subscription may
# no longer call it, as PostgreSQL's own apply would, in each writer, and also in a
# transaction that has called it and waits for its turn.  The same is true of domains,
# enums and composite types, wherever they are nested, of text search configurations and
# dictionaries, and of the names of roles, and of objects in values.  The creation of a function or type that a
# table does not use has no effect.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $writers = 4;
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "parallel_apply.max_batch_transactions = 1\n"
	  . "default_text_search_config = 'public.ours'\n");
my @by_json = $subscriber->pg_version >= 17 ? 'by_json' : ();
my @tables = qw(called checked indexed constrained);
$publisher->sql(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE plain (id int PRIMARY KEY, v int);
	CREATE TABLE called (id int PRIMARY KEY);
	CREATE TABLE checked (id int PRIMARY KEY, v int DEFAULT 1);
	CREATE TABLE indexed (id int PRIMARY KEY, v int DEFAULT 1);
	CREATE TABLE constrained (id int PRIMARY KEY, v int DEFAULT 1);
	INSERT INTO gate VALUES (1, 0);));

# Columns with names of objects.  Another object gets the name.
my %named = (
	of_relation => [
		'regclass',
		'public.namesake',
		'ALTER INDEX namesake RENAME TO former; CREATE INDEX namesake ON fresh (id)'
	],
	of_relations => [
		'regclass[]',
		'{public.namesakes}',
		'ALTER INDEX namesakes RENAME TO formers; CREATE INDEX namesakes ON fresh (id)'
	],
	of_function => [
		'regproc',
		'public.namesake',
		'ALTER FUNCTION namesake RENAME TO former; CREATE FUNCTION namesake() RETURNS int LANGUAGE sql RETURN 2'
	],
	of_operator => [
		'regoper',
		'public.##',
		'DROP OPERATOR ## (NONE, int); CREATE OPERATOR ## (rightarg = int, function = twice)'
	],
	of_type => [
		'regtype', 'public.same',
		'ALTER DOMAIN same RENAME TO former; CREATE DOMAIN same AS int'
	],
	of_role => [
		'regrole', 'namesake',
		'ALTER ROLE namesake RENAME TO former; CREATE ROLE namesake'
	],
	of_schema => [
		'regnamespace', 'namesake',
		'ALTER SCHEMA namesake RENAME TO former; CREATE SCHEMA namesake'
	],
	of_collation => [
		'regcollation',
		'public.namesake',
		'ALTER COLLATION namesake RENAME TO former; CREATE COLLATION namesake FROM "C"'
	],
	of_config => [
		'regconfig',
		'public.namesake',
		'ALTER TEXT SEARCH CONFIGURATION namesake RENAME TO formerly; CREATE TEXT SEARCH CONFIGURATION namesake (COPY = simple)'
	]);

# Columns of types that are altered.  The value on the publisher has another type.
my %typed = (
	of_domain => [ 'small', '-5' ],
	of_array => [ 'small[]', '{-5}' ],
	of_nested => [ 'tiny', '-5' ],
	of_composite => [ 'triple', '(-5)' ],
	of_range => [ 'span', '[-5,0]' ],
	of_enum => [ 'mood', 'sad' ],
	of_enums => [ 'mood[]', '{sad}' ],
	of_pair => [ 'pair', '(1,2)' ],
	of_pairs => [ 'pairs[]', '{"(1,2)"}' ]);
$publisher->sql(
	"CREATE TABLE $_ (id int PRIMARY KEY, v text DEFAULT '$typed{$_}[1]')")
  for sort keys %typed;
$publisher->sql(
	"CREATE TABLE $_ (id int PRIMARY KEY, v text DEFAULT '$named{$_}[1]')")
  for sort keys %named;
$publisher->sql("CREATE TABLE $_ (id int PRIMARY KEY)")
  for qw(by_domain by_enum by_search by_user by_role fresh fresher),
  @by_json;
$publisher->sql(
	"CREATE TABLE $_ (id int PRIMARY KEY, v text DEFAULT 'the running')")
  for qw(searched found);

# Immutable functions, so that writers change the tables concurrently
$subscriber->sql(
	q(CREATE FUNCTION number() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END';
	CREATE FUNCTION extra() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN public.number(); END';
	CREATE FUNCTION is_good(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > 0; END';
	CREATE FUNCTION is_fine(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > 0; END';
	CREATE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';
	CREATE DOMAIN good AS int CHECK (is_good(value));
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE plain (id int PRIMARY KEY, v int CHECK (v > 0), at timestamptz DEFAULT now());
	CREATE TABLE called (id int PRIMARY KEY, extra int DEFAULT extra());
	CREATE TABLE checked (id int PRIMARY KEY, v good);
	CREATE TABLE indexed (id int PRIMARY KEY, v int);
	CREATE INDEX ON indexed (twice(v));
	CREATE TABLE constrained (id int PRIMARY KEY, v int CHECK (is_fine(v)));
	CREATE DOMAIN small AS int DEFAULT 1;
	CREATE DOMAIN tiny AS small;
	CREATE TYPE triple AS (x small);
	CREATE TYPE span AS RANGE (subtype = small);
	CREATE TYPE mood AS ENUM ('sad', 'happy');
	CREATE TYPE pair AS (x int, y int);
	CREATE DOMAIN pairs AS pair;
	CREATE TABLE by_domain (id int PRIMARY KEY, extra tiny);
	CREATE TABLE by_user (id int PRIMARY KEY, extra text DEFAULT current_user);
	CREATE TABLE fresh (id int PRIMARY KEY);
	CREATE TABLE fresher (id int PRIMARY KEY);
	CREATE TABLE by_enum (id int PRIMARY KEY, extra text DEFAULT ('sad'::mood)::text);
	CREATE TEXT SEARCH DICTIONARY plainly (TEMPLATE = simple);
	CREATE TEXT SEARCH CONFIGURATION ours (COPY = simple);
	ALTER TEXT SEARCH CONFIGURATION ours ALTER MAPPING FOR asciiword WITH plainly;
	CREATE TEXT SEARCH CONFIGURATION other (COPY = english);
	CREATE TABLE searched (id int PRIMARY KEY, v text,
		extra tsvector GENERATED ALWAYS AS (to_tsvector('ours', v)) STORED);
	CREATE TABLE found (id int PRIMARY KEY, v text);
	CREATE INDEX found_index ON found USING gin (to_tsvector('ours', v));
	CREATE TABLE by_search (id int PRIMARY KEY, extra text DEFAULT to_tsvector('the running'));
	CREATE ROLE caller;
	REVOKE EXECUTE ON FUNCTION extra(), is_good(int), is_fine(int), twice(int) FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION extra(), is_good(int), is_fine(int), twice(int) TO caller;
	CREATE ROLE applier SUPERUSER LOGIN;
	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO applier;)
);
$subscriber->sql("CREATE TABLE $_ (id int PRIMARY KEY, v $typed{$_}[0])")
  for sort keys %typed;
$subscriber->sql(
	q(CREATE INDEX namesake ON fresh (id);
	CREATE INDEX namesakes ON fresh (id);
	CREATE FUNCTION namesake() RETURNS int LANGUAGE sql RETURN 1;
	CREATE OPERATOR ## (rightarg = int, function = twice);
	CREATE DOMAIN same AS int;
	CREATE ROLE namesake;
	CREATE SCHEMA namesake;
	CREATE COLLATION namesake FROM "C";
	CREATE TEXT SEARCH CONFIGURATION namesake (COPY = simple);)
);
$subscriber->sql("CREATE TABLE $_ (id int PRIMARY KEY, v $named{$_}[0])")
  for sort keys %named;
my $oid = $subscriber->sql(q(SELECT 'caller'::regrole::oid));
$subscriber->sql(
	"CREATE TABLE by_role (id int PRIMARY KEY, extra text DEFAULT pg_get_userbyid($oid))"
);
$subscriber->sql(
	"CREATE TABLE $_ (id int PRIMARY KEY, extra int DEFAULT JSON_VALUE('5', '\$' RETURNING small))"
) for @by_json;
$subscriber->create_extension;
$pair->subscribe('tap');
my $options =
  $subscriber->pg_version >= 16
  ? 'ALTER SUBSCRIPTION tap SET (run_as_owner = true, password_required = false);'
  : '';

# In one transaction: each change would restart the apply worker.
$subscriber->restart_apply('tap',
	"BEGIN; $options ALTER SUBSCRIPTION tap OWNER TO applier; COMMIT");
$subscriber->wait_for_pool('tap', $writers);

my $id = 0;

sub insert_into
{
	my ($table) = @_;
	$id++;
	return "INSERT INTO $table (id) VALUES ($id)";
}

# All writers have prepared the table, since each has one of these transactions.
sub prepare_all
{
	my ($table, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $pair->apply_behind_gate(
			join(', ',
				'waiting for lock',
				('waiting for prior commit') x ($writers - 1)),
			$name,
			map { insert_into($table) } 1 .. $writers),
		'0',
		'and nothing is tried again');
	$subscriber->wait_for_state('idle', $writers);
	return;
}

# Execute statements of the subscriber while a transaction that has changed the
# table waits for its turn.  Return how often a transaction was repeated.
sub do_before_turn
{
	my ($change, $sql, $then) = @_;
	my $tries = $subscriber->counter('retries');
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql('UPDATE gate SET n = n + 1');
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql($change);
	$subscriber->wait_for_state('waiting for prior commit');
	$subscriber->sql($sql);
	$lock->release;
	$then->() if $then;
	$publisher->wait_applied;
	return $subscriber->counter('retries') - $tries;
}

sub extras
{
	return $subscriber->sql(
		'SELECT extra, count(*) FROM called GROUP BY extra ORDER BY extra');
}

# The function is redefined between transactions.
prepare_all('called', 'a default calls a function');
$subscriber->sql(
	q(CREATE OR REPLACE FUNCTION extra() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 2; END')
);
prepare_all('called', 'which is replaced');
is(extras(), "1|4\n2|4", 'each writer calls the new one');

# By a function that it calls itself
$subscriber->sql(
	q(CREATE OR REPLACE FUNCTION extra() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN public.number(); END';
	CREATE OR REPLACE FUNCTION number() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 3; END')
);
prepare_all('called', 'and so is one that it calls');
is(extras(), "1|4\n2|4\n3|4", 'which each writer notices');

# After it was called by an uncommitted transaction
do_before_turn(insert_into('called'),
	q(CREATE OR REPLACE FUNCTION number() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 4; END')
);
is(extras(), "1|4\n2|4\n3|4\n4|1",
	'a function that is replaced before the turn counts');

# A function that it does not call has no effect.
is( do_before_turn(
		'INSERT INTO plain VALUES (1, 1)',
		q(CREATE FUNCTION other() RETURNS int LANGUAGE sql AS 'SELECT 1')),
	'0',
	'a function that is created disturbs no table that calls none');

# A check that is replaced refuses what it has accepted before.
sub refused
{
	my ($table, $sql, $message, $remedy, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = "SELECT count(*) FROM $table";
	my $before = $subscriber->sql($count);
	my $offset = -s $subscriber->logfile;
	do_before_turn(
		insert_into($table),
		$sql,
		sub {
			ok( $subscriber->wait_for_log(qr/ERROR: +$message/, $offset),
				"$name: an error, although it had been called");
			is($subscriber->sql($count), $before, "$name: nothing is there");
			$subscriber->sql($remedy);
		});
	$subscriber->wait_for_pool('tap', $writers);
	return;
}

# The same when the change is known before the transaction
sub refused_at_once
{
	my ($table, $sql, $message, $remedy, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	prepare_all($table, "$name: it may be called");
	$subscriber->sql($sql);
	my $offset = -s $subscriber->logfile;
	$publisher->sql(insert_into($table));
	ok($subscriber->wait_for_log(qr/ERROR: +$message/, $offset),
		"$name: an error");
	$subscriber->sql($remedy);
	$publisher->wait_applied;
	$subscriber->wait_for_pool('tap', $writers);
	return;
}

my %function = (
	called => 'extra',
	checked => 'is_good',
	indexed => 'twice',
	constrained => 'is_fine');
my %violation = (
	checked => 'value for domain public.good violates check constraint',
	constrained =>
	  'new row for relation "constrained" violates check constraint');
for my $table (sort keys %violation)
{
	my $head =
	  "CREATE OR REPLACE FUNCTION $function{$table}(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS";
	refused(
		$table,
		"$head 'BEGIN RETURN false; END'",
		$violation{$table},
		"$head 'BEGIN RETURN true; END'",
		"a check of table $table that is replaced");
}

# Types that are altered before the turn
sub refused_by_type
{
	my ($alter, $remedy, $message, @of_type) = @_;
	refused($_, $alter, $message, $remedy, "$_: $alter") for @of_type;
	return;
}
refused_by_type(
	'ALTER DOMAIN small ADD CONSTRAINT positive CHECK (value > 0) NOT VALID',
	'ALTER DOMAIN small DROP CONSTRAINT positive',
	'value for domain public.(small|tiny) violates check constraint "positive"',
	qw(of_domain of_array of_nested of_composite of_range));
refused_by_type(
	q(ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'),
	q(ALTER TYPE mood RENAME VALUE 'bad' TO 'sad'),
	'invalid input value for enum public.mood: "sad"',
	qw(of_enum of_enums));
refused_by_type(
	'ALTER TYPE pair ADD ATTRIBUTE z int',
	'ALTER TYPE pair DROP ATTRIBUTE z',
	'malformed record literal',
	qw(of_pair of_pairs));

# The writer has closed the table and forgotten its types before: it was analyzed, another
# definition has changed, which the writer learns with the next table, and one more is
# prepared that it has not used before.
{
	prepare_all('of_range', 'any function may concern a range');
	my $between = $subscriber->hold('SELECT FROM plain FOR UPDATE');
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1', join ';',
		insert_into('of_domain'), 'UPDATE plain SET v = v + 1',
		insert_into('fresh'), insert_into('fresher'));
	$subscriber->states_become(
		'waiting for lock, waiting for lock',
		'a transaction has used the domain');
	$subscriber->sql(
		q(CREATE FUNCTION another() RETURNS int LANGUAGE sql AS 'SELECT 1';
		ANALYZE of_domain));
	$between->release;
	$subscriber->states_become('waiting for lock, waiting for prior commit',
		'and waits for its turn');
	my $offset = -s $subscriber->logfile;
	$subscriber->sql(
		'ALTER DOMAIN small ADD CONSTRAINT positive CHECK (value > 0) NOT VALID'
	);
	$lock->release;
	ok( $subscriber->wait_for_log(
			qr/ERROR: +value for domain public.small violates check constraint "positive"/,
			$offset),
		'a domain of a table that is forgotten counts');
	$subscriber->sql('ALTER DOMAIN small DROP CONSTRAINT positive');
	$publisher->wait_applied;
	$subscriber->wait_for_pool('tap', $writers);
}

# Defaults of such types
for (
	[ 'by_domain', 'ALTER DOMAIN tiny SET DEFAULT 2', '2' ],
	[ 'by_enum', q(ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'), 'bad' ],
	map { [ $_, 'ALTER DOMAIN small ADD CHECK (value < 5) NOT VALID', '' ] }
	@by_json)
{
	my ($table, $alter, $extra) = @$_;
	do_before_turn(insert_into($table), $alter);
	is($subscriber->sql("SELECT extra FROM $table"),
		$extra, "$table: $alter, before the turn");
}

# Names of roles
for ([ 'by_user', 'applier' ], [ 'by_role', 'caller' ])
{
	my ($table, $role) = @$_;
	do_before_turn(insert_into($table), "ALTER ROLE $role RENAME TO renamed");
	is($subscriber->sql("SELECT extra FROM $table"),
		'renamed', "$table: a role is renamed, before the turn");
	$subscriber->sql("ALTER ROLE renamed RENAME TO $role");
}

for my $table (sort keys %named)
{
	my ($type, $name, $alter) = @{ $named{$table} };
	do_before_turn(insert_into($table), $alter);
	is($subscriber->sql("SELECT v = '$name'::$type FROM $table"),
		't', "$table: the name of another object, before the turn");
}

# Text search, in a generated column, an index and a default
for (
	[
		'searched',
		q(ALTER TEXT SEARCH CONFIGURATION ours ALTER MAPPING FOR asciiword WITH english_stem),
		q('run':2)
	],
	[
		'searched',
		q(ALTER TEXT SEARCH CONFIGURATION ours DROP MAPPING FOR asciiword),
		''
	],
	[
		'searched',
		q(ALTER TEXT SEARCH CONFIGURATION ours ADD MAPPING FOR asciiword WITH plainly),
		q('running':2 'the':1)
	],
	[
		'searched',
		q(ALTER TEXT SEARCH DICTIONARY plainly (StopWords = english)),
		q('running':2)
	],
	[
		'by_search',
		q(BEGIN; ALTER TEXT SEARCH CONFIGURATION ours RENAME TO former;
		ALTER TEXT SEARCH CONFIGURATION other RENAME TO ours; COMMIT),
		q('run':2)
	])
{
	my ($table, $alter, $extra) = @$_;
	do_before_turn(insert_into($table), $alter);
	is($subscriber->sql("SELECT extra FROM $table WHERE id = $id"),
		$extra, "$table: $alter, before the turn");
}
do_before_turn(insert_into('found'),
	q(ALTER TEXT SEARCH DICTIONARY plainly (StopWords)));
is( $subscriber->sql(
		q(SET enable_seqscan = off; SELECT count(*) FROM found WHERE to_tsvector('former', v) @@ 'the')
	),
	'1',
	'an index has what is searched for now');

is( do_before_turn(
		insert_into('of_pair'),
		q(CREATE TEMP TABLE temporary (id int PRIMARY KEY, v mood CHECK (v <> 'bad')))
	),
	'0',
	'a temporary table disturbs no table with types of users');

# Privileges of a user who is no longer a superuser, and through a membership
for my $table (@tables)
{
	my $message = "permission denied for function $function{$table}";
	refused_at_once(
		$table, 'ALTER ROLE applier NOSUPERUSER',
		$message,
		'ALTER ROLE applier SUPERUSER',
		"$table, no superuser");
	$subscriber->sql(
		'ALTER ROLE applier NOSUPERUSER; GRANT caller TO applier');
	# From 16 on, the apply worker would start again by itself, in the middle of what
	# follows.
	$subscriber->restart_apply('tap');
	$subscriber->wait_for_pool('tap', $writers);
	refused_at_once(
		$table, 'REVOKE caller FROM applier',
		$message,
		'GRANT caller TO applier',
		"$table, no member");
	refused(
		$table, 'REVOKE caller FROM applier',
		$message,
		'GRANT caller TO applier',
		"$table, no member before the turn");
	refused(
		$table,
		"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM caller",
		$message,
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO caller",
		"$table, a right before the turn");
	$subscriber->sql(
		'ALTER ROLE applier SUPERUSER; REVOKE caller FROM applier');
}

# With run_as_owner = false, changes are made as the owner of the table, who may not
# call the functions.
if ($subscriber->pg_version >= 16)
{
	$subscriber->sql('CREATE ROLE holder');
	$subscriber->sql("ALTER TABLE $_ OWNER TO holder") for @tables;
	for my $table (@tables)
	{
		for my $refused (\&refused_at_once, \&refused)
		{
			$refused->(
				$table,
				'ALTER SUBSCRIPTION tap SET (run_as_owner = false)',
				"permission denied for function $function{$table}",
				'ALTER SUBSCRIPTION tap SET (run_as_owner = true)',
				"$table, as its owner");
		}
	}
}

# User code: a trigger, in transactions that are in the queue during the change
SKIP:
{
	skip 'subscriptions have run_as_owner from PostgreSQL 16 on', 2
	  if $subscriber->pg_version < 16;
	$subscriber->sql(
		q(ALTER TABLE plain OWNER TO holder;
		ALTER TABLE plain ADD user_name text;
		CREATE FUNCTION note_user() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN NEW.user_name = current_user; RETURN NEW; END';
		CREATE TRIGGER note_user BEFORE INSERT ON plain
			FOR EACH ROW EXECUTE FUNCTION note_user();
		ALTER TABLE plain ENABLE ALWAYS TRIGGER note_user;));
	for ([ 'false', 'holder' ], [ 'true', 'applier' ])
	{
		my ($option, $user) = @$_;
		my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
		my $first = $id + 1;
		$publisher->sql(
			join ";\n",
			'UPDATE gate SET n = n + 1',
			map { $id++; "INSERT INTO plain VALUES ($id, 1)" } 1 .. $writers);
		$subscriber->wait_for_state('waiting for lock');
		my $queued = 1 + $writers;
		$subscriber->wait_until(
			"$queued = queue_transactions FROM parallel_apply.subscriptions",
			'not all are received');
		$subscriber->sql(
			"ALTER SUBSCRIPTION tap SET (run_as_owner = $option)");
		$gate->release;
		$publisher->wait_applied;
		is( $subscriber->sql(
				"SELECT string_agg(DISTINCT user_name, ' ') FROM plain WHERE id >= $first"
			),
			$user,
			"with run_as_owner = $option, triggers run as $user");
	}
}

$publisher->wait_applied;
is( $subscriber->sql("SELECT array_agg(id ORDER BY id) FROM $_"),
	$publisher->sql("SELECT array_agg(id ORDER BY id) FROM $_"),
	"$_ has the same rows on both sides")
  for 'gate', 'plain', 'searched', 'found', 'by_search', 'by_user',
  'by_role', @by_json, @tables,
  sort keys %typed, keys %named;
$subscriber->nothing_is_left_open;
finish(
	$publisher,
	$subscriber,
	qr/ERROR: +permission denied for function/,
	qr/ERROR: +(value for domain public.\w+|new row for relation "constrained") violates check constraint/,
	qr/ERROR: +(invalid input value for enum|malformed record literal)/,
	worker_terminated());
done_testing();
