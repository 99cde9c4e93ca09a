# Promise: defaults of columns that are not published, which writers keep prepared,
# follow the objects that they use, and an error while they are prepared is
# reported.  Defaults with functions that may read other transactions make their
# table serial, so that they find what PostgreSQL's own apply finds.  The search for
# such functions calls none of them.
#
# A transaction is received while a row lock blocks an older one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
my @exclusive =
  qw(by_function by_operator by_domain by_argument by_transaction by_identity
  by_assigned by_xid8 by_assigned_xid8 by_snapshot by_old_snapshot);
my %reader = (
	by_table => q{table_to_xml('batches', true, false, '')},
	by_table_schema =>
	  q{table_to_xml_and_xmlschema('batches', true, false, '')},
	by_schema => q{schema_to_xml('public', true, false, '')},
	by_schema_schema =>
	  q{schema_to_xml_and_xmlschema('public', true, false, '')},
	by_database => q{database_to_xml(true, false, '')},
	by_database_schema => q{database_to_xml_and_xmlschema(true, false, '')});
$reader{by_type} = q{pg_input_is_valid('1', 'batch')}
  if $subscriber->pg_version >= 16;
$reader{by_json} = q{JSON_VALUE('1', '$' RETURNING batch)}
  if $subscriber->pg_version >= 17;
push @exclusive, sort keys %reader;
my @parallel = qw(by_server in_domain inside);
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE batches (id int PRIMARY KEY);)
);
$publisher->sql(
	q(CREATE TABLE called (id int PRIMARY KEY);
	CREATE TABLE checked (id int PRIMARY KEY);
	CREATE TABLE failing (id int PRIMARY KEY);
	CREATE TABLE of_domain (id int PRIMARY KEY);
	CREATE TABLE calling (id int PRIMARY KEY, v int);
	INSERT INTO calling VALUES (1, 0);
	INSERT INTO gate VALUES (1, 0);));
$publisher->sql("CREATE TABLE $_ (id int PRIMARY KEY)")
  for @exclusive, @parallel;
$subscriber->sql(
	q(CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1';
	CREATE TABLE called (id int PRIMARY KEY, extra int DEFAULT f());
	CREATE DOMAIN d AS int;
	CREATE TABLE checked (id int PRIMARY KEY, extra d DEFAULT 1);
	CREATE TABLE failing (id int PRIMARY KEY, extra int);
	CREATE DOMAIN e AS int DEFAULT 1;
	CREATE TABLE of_domain (id int PRIMARY KEY, extra e);
	CREATE DOMAIN c AS int;
	CREATE TABLE calling (id int PRIMARY KEY, v int, extra c DEFAULT 1);
	CREATE FUNCTION call() RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN RAISE ''called by %'', current_user; END';
	CREATE FUNCTION last_batch() RETURNS int LANGUAGE sql STABLE AS
		'SELECT max(id) FROM public.batches';
	CREATE FUNCTION batch_after(int) RETURNS int LANGUAGE sql STABLE AS
		'SELECT min(id) FROM public.batches WHERE id > $1';
	CREATE OPERATOR |> (rightarg = int, function = batch_after);
	CREATE DOMAIN batch AS int CHECK (value <= last_batch());
	CREATE DOMAIN unchecked AS int;
	CREATE TABLE by_function (id int PRIMARY KEY, extra int DEFAULT coalesce(last_batch(), 0) + 0);
	CREATE TABLE by_operator (id int PRIMARY KEY, extra int DEFAULT |> 1);
	CREATE TABLE by_domain (id int PRIMARY KEY, extra batch DEFAULT 1);
	CREATE FUNCTION same(int DEFAULT last_batch()) RETURNS int LANGUAGE sql IMMUTABLE AS
		'SELECT $1';
	CREATE TABLE by_argument (id int PRIMARY KEY, extra int DEFAULT same());
	CREATE TABLE by_transaction (id int PRIMARY KEY, extra bigint DEFAULT txid_current());
	CREATE TABLE by_assigned (id int PRIMARY KEY, extra bigint DEFAULT txid_current_if_assigned());
	CREATE TABLE by_xid8 (id int PRIMARY KEY, extra xid8 DEFAULT pg_current_xact_id());
	CREATE TABLE by_assigned_xid8 (id int PRIMARY KEY, extra xid8 DEFAULT pg_current_xact_id_if_assigned());
	CREATE TABLE by_snapshot (id int PRIMARY KEY, extra pg_snapshot DEFAULT pg_current_snapshot());
	CREATE TABLE by_old_snapshot (id int PRIMARY KEY, extra txid_snapshot DEFAULT txid_current_snapshot());
	CREATE TABLE by_identity (id int PRIMARY KEY, extra int GENERATED ALWAYS AS IDENTITY);
	CREATE TABLE in_domain (id int PRIMARY KEY, extra unchecked DEFAULT 1);
	CREATE DOMAIN hidden AS int;
	CREATE TABLE inside (id int PRIMARY KEY, extra int DEFAULT 1::hidden);
	CREATE TABLE by_server (id int PRIMARY KEY, extra timestamptz DEFAULT now(),
		who text DEFAULT current_user, port text DEFAULT current_setting('port'));)
);
$subscriber->sql(
	"CREATE TABLE $_ (id int PRIMARY KEY, extra text DEFAULT CASE WHEN false THEN $reader{$_}::text END)"
) for sort keys %reader;
$subscriber->create_extension;
$pair->subscribe('tap', with => 'disable_on_error = true');

sub wait_until_disabled
{
	$subscriber->poll_query_until('postgres',
		'SELECT NOT subenabled FROM pg_subscription')
	  or die 'there was no error';
	return;
}

# Each table has been changed, so that its defaults are prepared.
$publisher->sql("INSERT INTO $_ VALUES (1)")
  for qw(called checked failing of_domain);
$publisher->wait_applied;

$subscriber->sql(
	q(CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 2')
);
$publisher->sql("INSERT INTO called VALUES ($_)") for 2 .. 5;
$publisher->wait_applied;
is( $subscriber->sql(
		q(SELECT string_agg(extra::text, ' ' ORDER BY id) FROM called)),
	'1 2 2 2 2',
	'a function that is replaced is called from then on');

sub insert_of_domain
{
	my (@ids) = @_;
	$publisher->sql(
		join('', map { "INSERT INTO of_domain VALUES ($_);\n" } @ids));
	$publisher->wait_applied;
	return;
}
insert_of_domain(2 .. 20);
$subscriber->sql('ALTER DOMAIN e SET DEFAULT 2');
insert_of_domain(21 .. 40);
is($subscriber->sql('SELECT max(id) FROM of_domain WHERE extra = 1'),
	'20', 'a default of a domain that is changed counts from then on');

# A domain gets a constraint that the default of a table violates, until it is dropped.
sub constraint_counts
{
	my ($domain, $constraint, $condition, $table, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql(
		"ALTER DOMAIN $domain ADD CONSTRAINT $constraint CHECK ($condition) NOT VALID"
	);
	my $log_offset = -s $subscriber->logfile;
	$publisher->sql("INSERT INTO $table VALUES (2)");
	wait_until_disabled();
	like(
		slurp_file($subscriber->logfile, $log_offset),
		qr/ERROR: +value for domain public.$domain violates check constraint "$constraint"/,
		$name);
	$subscriber->sql(
		"ALTER DOMAIN $domain DROP CONSTRAINT $constraint; ALTER SUBSCRIPTION tap ENABLE"
	);
	$publisher->wait_applied;
	$subscriber->wait_for_pool('tap');
	return;
}
constraint_counts('d', 'large', 'value > 5', 'checked',
	'a constraint that is added to a domain counts');

# Planning of this default always fails.
$publisher->sql('INSERT INTO failing VALUES (2)');
$publisher->wait_applied;
$subscriber->sql('ALTER TABLE failing ALTER extra SET DEFAULT 1 / 0');
my $offset = -s $subscriber->logfile;
$publisher->sql('INSERT INTO failing VALUES (3)');
wait_until_disabled();
like(
	slurp_file($subscriber->logfile, $offset),
	qr/ERROR: +division by zero/,
	'a default that cannot be prepared is an error');
$subscriber->sql(
	'ALTER TABLE failing ALTER extra SET DEFAULT 7; ALTER SUBSCRIPTION tap ENABLE'
);
$publisher->wait_applied;
is($subscriber->sql('SELECT extra FROM failing WHERE id = 3'),
	'7', 'until it is mended');

# Which defaults make a table exclusive depends on the columns that the
# publisher sends.
$publisher->sql('INSERT INTO batches VALUES (1)');
$publisher->sql("INSERT INTO $_ VALUES (1)") for @exclusive, @parallel;
$publisher->wait_applied;

sub class_is
{
	my ($table, $class, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$subscriber->sql(
			qq(SELECT concat_ws(': ', apply_mode, substring(reason FROM ' with (.*)'))
			FROM parallel_apply.tables WHERE relid = '$table'::regclass)),
		$class,
		$name);
}
class_is(
	'by_function',
	'exclusive: stable function last_batch()',
	'a stable function of the user makes a table exclusive');
class_is(
	'by_operator',
	'exclusive: stable function batch_after(integer)',
	'so does one behind an operator');
class_is(
	'by_domain',
	'exclusive: stable function last_batch()',
	'and one in a constraint of a domain');
class_is(
	'by_argument',
	'exclusive: stable function last_batch()',
	'and one that is the default of an argument');
my %number = (
	by_transaction => 'txid_current',
	by_assigned => 'txid_current_if_assigned',
	by_xid8 => 'pg_current_xact_id',
	by_assigned_xid8 => 'pg_current_xact_id_if_assigned',
	by_snapshot => 'pg_current_snapshot',
	by_old_snapshot => 'txid_current_snapshot');
class_is(
	$_,
	"exclusive: stable function $number{$_}()",
	"the number or snapshot of the local transaction does: $number{$_}()"
) for sort keys %number;
class_is(
	'by_identity',
	'exclusive: volatile function nextval(regclass)',
	'an identity column does');

for my $table (sort keys %reader)
{
	my ($function) =
	  $table eq 'by_json' ? 'last_batch' : $reader{$table} =~ /(\w+)/;
	is( $subscriber->sql(
			qq{SELECT apply_mode = 'exclusive' AND reason LIKE '% with stable function $function(%'
			FROM parallel_apply.tables WHERE relid = '$table'::regclass}),
		't',
		"a function of the server that may read tables does: $reader{$table}"
	);
}
class_is('by_server', 'parallel',
	'other stable functions of the server do not');
class_is('in_domain', 'parallel', 'nor does a domain that asks nothing');

# The expression has been prepared with the constraints of that time.
constraint_counts('hidden', 'larger', 'value > 1', 'inside',
	'a constraint that is added to a domain counts within a default');

# A snapshot that is older than the change does not see changes of its own
# transaction.
$publisher->sql(
	q(BEGIN; INSERT INTO batches VALUES (2); INSERT INTO by_function VALUES (2);
	INSERT INTO by_operator VALUES (2); INSERT INTO by_argument VALUES (2); COMMIT;)
);
$publisher->wait_applied;
is( $subscriber->sql(
		q(SELECT concat_ws(' ', a.extra, b.extra, c.extra)
		FROM by_function a, by_operator b, by_argument c
		WHERE a.id = 2 AND b.id = 2 AND c.id = 2)),
	'2 2 2',
	'a stable function sees earlier changes of its transaction');

# An evaluation that is too early does not see the blocked transaction.
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit',
	'a transaction with such a default waits for its turn',
	'INSERT INTO batches VALUES (3)',
	'INSERT INTO by_function VALUES (3)');
is($subscriber->sql('SELECT extra FROM by_function WHERE id = 3'),
	'3', 'and it sees what was committed before');

# The second attempt of a writer would also be right, but the receiver makes it
# unnecessary.
for my $domain ([ 'unchecked', 'in_domain', 4 ], [ 'hidden', 'inside', 5 ])
{
	my ($type, $table, $id) = @$domain;
	$subscriber->sql(
		"ALTER DOMAIN $type ADD CONSTRAINT late CHECK (value < last_batch()) NOT VALID"
	);
	is( $pair->apply_behind_gate(
			'waiting for lock, waiting for prior commit',
			"a table becomes exclusive with a domain: $table",
			"INSERT INTO batches VALUES ($id)",
			"INSERT INTO $table VALUES ($id)"),
		'0',
		'and is not tried before');
	class_is(
		$table,
		'exclusive: stable function last_batch()',
		'as the view says');
}

# An immutable function in a domain constraint is called when the constraint is
# planned.  An UPDATE needs no default, and a session that monitors calls no
# function of other users.
$subscriber->sql(
	'ALTER DOMAIN c ADD CONSTRAINT calling CHECK (value > call()) NOT VALID');
$publisher->sql('UPDATE calling SET v = 1');
$publisher->wait_applied;
is($subscriber->sql('SELECT v FROM calling'),
	'1', 'what only an INSERT may call does not stop an UPDATE');
class_is('calling', 'parallel',
	'and is not called when a user reads the view');

# Only the server's evaluation of these defaults would not end.
$subscriber->sql(
	q(CREATE DOMAIN endless AS int;
	ALTER TABLE calling ADD again endless, ALTER again SET DEFAULT 1;
	ALTER DOMAIN endless ADD CHECK (value::int::endless > 0) NOT VALID;
	CREATE FUNCTION endless(int DEFAULT 1) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	CREATE OR REPLACE FUNCTION endless(int DEFAULT endless()) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	ALTER TABLE calling ADD more int, ALTER more SET DEFAULT endless())
);
$publisher->sql('UPDATE calling SET v = 2');
$publisher->wait_applied;
is($subscriber->sql('SELECT v FROM calling'),
	'2', 'nor do a domain and a function that use themselves');
class_is('calling', 'parallel', 'and the view can be read');

for my $table (qw(called checked failing of_domain calling batches),
	@exclusive, @parallel)
{
	is( $subscriber->sql("SELECT array_agg(id ORDER BY id) FROM $table"),
		$publisher->sql("SELECT array_agg(id ORDER BY id) FROM $table"),
		"$table has the same rows on both sides");
}
finish(
	$publisher,
	$subscriber,
	qr/ERROR: +value for domain public.(d|hidden) violates check constraint "larger?"/,
	qr/ERROR: +division by zero/);
done_testing();
