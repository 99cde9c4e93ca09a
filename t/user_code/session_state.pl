# Promise: later transactions find what user code leaves in its session as with
# PostgreSQL's own apply, which has one session, or fail with an error because it is
# missing.
#
# Triggers write the same as with PostgreSQL's own apply, which applies the same
# transactions in the database "serial".  Many transactions are queued when the
# first one may continue, so that several writers would apply them.
# session_locks.pl and session_settings.pl test locks, custom settings and
# temporary tables.  Detects: a trigger finds what its own writer has left there,
# which differs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1));
$subscriber->sql('CREATE DATABASE serial');

# How the trigger of each table obtains a value, v.  An error is a value, too.
my %code = (
	# does not depend on other transactions
	prepared =>
	  q(IF NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'p') THEN
			EXECUTE 'PREPARE p(int) AS SELECT $1 + 1';
		END IF;
		EXECUTE 'EXECUTE p(' || NEW.id || ')' INTO v;),
	listening => q(EXECUTE 'LISTEN channel';),
	notifying => q(PERFORM pg_notify('channel', NEW.id::text);),
	object =>
	  q(v := loread(lo_open(lo_create(100000 + NEW.id), x'60000'::int), 10);
		PERFORM lo_put(100000 + NEW.id, 0, NEW.id::text::bytea);),
	object_before =>
	  q(SELECT string_agg(convert_from(data, 'UTF8'), ' ' ORDER BY loid) INTO v
		FROM pg_largeobject WHERE loid > 100000;),
	path_of_function =>
	  q(PERFORM public.with_path(); v := current_setting('search_path');),
	number => q(v := nextval('public.numbers');),
	number_now =>
	  q(v := concat_ws(' ', nextval('public.numbers'), currval('public.numbers'), lastval());),
	# is left to one session
	seed => q(SET seed = 0.5;),
	random => q(v := random();),
	style => q(v := date '2001-02-03'; SET DateStyle = 'German';),
	path => q(v := current_setting('search_path');
		PERFORM set_config('search_path', 'public, pg_catalog', false);),
	role => q(v := current_user; SET ROLE other;),
	session_role => q(v := session_user; SET SESSION AUTHORIZATION other;),
	cached => q(v := nextval('public.cached_numbers');),
	cached_before => q(v := currval('public.cached_numbers');),
	# is missed
	number_before => q(v := currval('public.numbers');),
	last_number => q(v := lastval();));

# With connections of its own, which a session keeps.
my $has_neighbors = has_module('dblink') && has_module('postgres_fdw');
$code{linked} =
  q(IF NOT coalesce('c' = ANY (public.dblink_get_connections()), false) THEN
		PERFORM public.dblink_connect('c', 'dbname=elsewhere port=' || current_setting('port')
			|| ' host=' || split_part(current_setting('unix_socket_directories'), ',', 1));
	END IF;
	v := public.dblink_exec('c', format('INSERT INTO %I (what) VALUES (%s)', current_database(), NEW.id));)
  if $has_neighbors;
$code{foreign_table} =
  q(INSERT INTO public.elsewhere (what) VALUES (NEW.id);)
  if $has_neighbors;

my @tables = sort keys %code;
my $tables = join "\n",
  map { "CREATE TABLE $_ (id int PRIMARY KEY);" } 'plain', @tables;
my $gate = 'CREATE TABLE gate (id int PRIMARY KEY, n int);';
my $triggers = join "\n", map {
	qq(CREATE FUNCTION do_$_() RETURNS trigger LANGUAGE plpgsql AS \$\$
		DECLARE v text;
		BEGIN
			BEGIN $code{$_} EXCEPTION WHEN OTHERS THEN v := SQLERRM; END;
			INSERT INTO public.notes (what) VALUES (concat_ws(' ', TG_TABLE_NAME, NEW.id, v));
			RETURN NULL;
		END \$\$;
		CREATE TRIGGER code AFTER INSERT ON $_ FOR EACH ROW EXECUTE FUNCTION do_$_();
		ALTER TABLE $_ ENABLE ALWAYS TRIGGER code;)
} @tables;

$publisher->sql(
	"$gate $tables CREATE TABLE defaults (id int PRIMARY KEY);
	CREATE TABLE identity (id int PRIMARY KEY);");
$subscriber->sql('CREATE ROLE other SUPERUSER');
$subscriber->safe_psql(
	$_,
	"$gate $tables
	CREATE TABLE notes (n bigserial, what text);
	CREATE SEQUENCE numbers;
	CREATE SEQUENCE cached_numbers CACHE 10;
	CREATE TABLE defaults (id int PRIMARY KEY, n serial);
	CREATE TABLE identity (id int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY (CACHE 10));
	CREATE FUNCTION with_path() RETURNS int LANGUAGE sql SET search_path = public AS 'SELECT 1';
	$triggers") for qw(postgres serial);
if ($has_neighbors)
{
	my ($host, $port) = ($subscriber->host, $subscriber->port);
	$subscriber->sql('CREATE DATABASE elsewhere');
	for my $db (qw(postgres serial))
	{
		$subscriber->safe_psql('elsewhere',
			"CREATE TABLE $db (n bigserial, what int)");
		$subscriber->safe_psql(
			$db,
			"CREATE EXTENSION dblink; CREATE EXTENSION postgres_fdw;
			CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw
				OPTIONS (host '$host', port '$port', dbname 'elsewhere');
			CREATE USER MAPPING FOR CURRENT_USER SERVER elsewhere;
			CREATE FOREIGN TABLE elsewhere (what int) SERVER elsewhere OPTIONS (table_name '$db');"
		);
	}
}
$subscriber->create_extension;
# with streaming = parallel, the default of 18, the apply worker would restart with each pool
$pair->subscribe('tap', with => 'streaming = off');
$pair->subscribe_serially;
$publisher->sql('INSERT INTO gate VALUES (1, 0)');

# Insert rows into these tables, each in a transaction, while the first one is
# blocked.
sub insert_into
{
	my (@rows) = @_;
	my $transactions = 1 + 2 * @rows;
	$pair->insert_behind_gate(
		sub {
			$subscriber->wait_for_state('waiting for lock');
			$subscriber->wait_until(
				"queue_transactions = $transactions FROM parallel_apply.subscriptions",
				'the transactions are not received');
		},
		@rows);
	$pair->wait_for_both;
	return;
}

# What triggers have written since the last call
sub notes
{
	my ($db) = @_;
	return $subscriber->safe_psql(
		$db // 'postgres',
		q(WITH gone AS (DELETE FROM notes RETURNING *)
		SELECT string_agg(what, E'\n' ORDER BY n) FROM gone));
}

sub same_as_serial
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(notes(), notes('serial'), $name);
	return;
}

# A new apply worker has an empty session.
sub begin_again
{
	$subscriber->connect_again('tap');
	$subscriber->safe_psql('serial', 'ALTER SUBSCRIPTION serial DISABLE');
	$subscriber->poll_query_until('postgres',
		q(SELECT pid IS NULL FROM pg_stat_subscription WHERE subname = 'serial')
	) or die 'the apply worker of serial does not end';
	$subscriber->safe_psql('serial', 'ALTER SUBSCRIPTION serial ENABLE');
	return;
}

### what writers do

my @listeners = map { $subscriber->background_psql($_) } qw(postgres serial);
$_->query_safe('LISTEN channel') for @listeners;
for my $table (
	qw(prepared listening notifying object object_before path_of_function number number_now)
  )
{
	insert_into(($table) x 8);
	same_as_serial("the same with $table");
}
my @heard =
  map { [ $_->query_safe('SELECT 1') =~ /payload "(\d+)"/g ] } @listeners;
is(scalar @{ $heard[0] }, 8, 'each notification is there');
is_deeply(@heard, 'and they are in order');
end_sessions(@listeners);

SKIP:
{
	skip 'no dblink and postgres_fdw', 3 if !$has_neighbors;
	for my $table (qw(linked foreign_table))
	{
		insert_into(($table) x 8);
		same_as_serial("the same with $table");
	}
	my ($found, $expected) = map {
		$subscriber->safe_psql('elsewhere',
			"SELECT string_agg(what::text, ' ' ORDER BY n) FROM $_")
	} qw(postgres serial);
	is($found, $expected, 'and in the other database');
}

insert_into(('defaults') x 8);
is( $subscriber->sql(
		q(SELECT string_agg(n::text, ' ' ORDER BY id) FROM defaults)),
	'1 2 3 4 5 6 7 8',
	'numbers of a default are in order');
is($subscriber->fallbacks, 0, 'writers apply all of that');

### what is left to one session

# A setting of the server; SET seed is noticed, setseed() is not.
for my $rows (
	[ 'seed', ('random') x 7 ],
	[ ('style') x 8 ],
	[ ('path') x 8 ],
	[ ('role') x 8 ],
	[ ('session_role') x 8 ])
{
	my $before = $subscriber->fallbacks;
	insert_into(@$rows);
	same_as_serial("the same with $rows->[0]");
	cmp_ok($subscriber->fallbacks - $before,
		'>=', 7, "the apply worker applies what finds it");
	begin_again();
}

# Writers lose the numbers that they have fetched before they leave the sequence to
# the apply worker.
my $before = $subscriber->fallbacks;
insert_into(('cached', 'cached_before') x 8);
my @numbers = map { / (\d+)$/ } split /\n/, notes();
is(scalar @numbers, 16, 'each has a number of the sequence with a cache');
is_deeply(
	\@numbers,
	[ map { ($numbers[0] + $_) x 2 } 0 .. 7 ],
	'numbers of a sequence with a cache are in order, and found again');
notes('serial');
cmp_ok($subscriber->fallbacks - $before,
	'>=', 16, 'the apply worker gets them');

# Detects: the writers of another pool fetch numbers before they leave the sequence to the
# apply worker.
for my $writers (1, 4)
{
	$subscriber->reload_with(
		"parallel_apply.writers_per_subscription = $writers");
	$subscriber->wait_for_pool('tap', $writers > 1 ? $writers : 0);
}
insert_into(('cached') x 2);
is_deeply(
	[ map { / (\d+)$/ } split /\n/, notes() ],
	[ map { $numbers[-1] + $_ } 1 .. 2 ],
	'it gets them after another pool has started, too');
notes('serial');
is( (   () =
		  slurp_file($subscriber->logfile) =~
		  /LOG:  a trigger or column default of subscription "tap" uses sequence "cached_numbers"/g
	),
	1,
	'the log says so once');

begin_again();
insert_into(('identity') x 8);
is( $subscriber->sql(
		q(SELECT string_agg((n - first)::text, ' ' ORDER BY id) FROM identity,
		(SELECT min(n) AS first FROM identity) m)
	),
	'0 1 2 3 4 5 6 7',
	'numbers of an identity column with a cache are in order');

# A sequence that gets a cache after all writers have looked for one
begin_again();
insert_into(('number') x 40);
same_as_serial('the same with more numbers');
$subscriber->sql('ALTER SEQUENCE numbers CACHE 10');
insert_into(('number') x 8);
@numbers = map { / (\d+)$/ } split /\n/, notes();
is_deeply(
	\@numbers,
	[ map { $numbers[0] + $_ } 0 .. 7 ],
	'numbers of a sequence that has got a cache are in order');
$subscriber->sql('ALTER SEQUENCE numbers CACHE 1');
notes('serial');

# TRUNCATE ... RESTART IDENTITY takes no number.
begin_again();
$before = $subscriber->fallbacks;
$publisher->sql('TRUNCATE identity RESTART IDENTITY');
insert_into(('number') x 8);
is($subscriber->fallbacks, $before,
	'transactions after a TRUNCATE are left to writers');
notes($_) for qw(postgres serial);

### what is missed

# Many errors, but no number of another transaction.  Writers and the apply worker
# evaluate each of them.
insert_into(('number', 'number_before', 'last_number') x 8);
my $notes = notes();
is( (   () =
		  $notes =~
		  /^(number_before|last_number) \d+ (currval|lastval) .* is not yet defined in this session$/gm
	),
	16,
	'the last number of an earlier transaction is missed') or diag $notes;
notes('serial');
for my $table (qw(number number_before last_number))
{
	$publisher->sql("INSERT INTO $table VALUES (" . $pair->next_id . ')');
	$publisher->wait_applied;
}
$notes = notes();
is((() = $notes =~ /is not yet defined in this session$/gm),
	2, 'in the apply worker, too')
  or diag $notes;

$pair->tables_equal('in the end', 'gate', 'plain', @tables);
finish($publisher, $subscriber);
done_testing();
