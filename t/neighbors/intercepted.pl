# Promise: parallel_apply.tables and advice() report tables whose rows Citus or
# TimescaleDB keeps elsewhere, whether writers apply them or the apply worker, and
# an apply worker with writers warns once.  No other table is reported.
#
# Stand-ins have the names and the catalogs of these extensions, by which the tables
# are recognized.
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
my @tables = ('distributed', 'series', 'other.series', 'plain');
$pair->exec_both('CREATE SCHEMA other');
$pair->exec_both("CREATE TABLE $_ (id int PRIMARY KEY, v int)") for @tables;
# A schema or a table of these names is not enough, nor a catalog without such columns or
# one that is not a table.
$subscriber->sql(
	q(CREATE SCHEMA _timescaledb_catalog;
	CREATE TABLE _timescaledb_catalog.hypertable (id int PRIMARY KEY, schema_name name NOT NULL, table_name name NOT NULL);
	INSERT INTO _timescaledb_catalog.hypertable VALUES (1, 'public', 'series');
	CREATE SCHEMA citus;
	CREATE TABLE citus.pg_dist_partition (logicalrelid int NOT NULL, partmethod "char" NOT NULL);
	INSERT INTO citus.pg_dist_partition VALUES ('distributed'::regclass::oid::bigint, 'h');
	SET allow_system_table_mods = on;
	INSERT INTO pg_extension SELECT i, name, 10, 'citus'::regnamespace, false, '1'
		FROM (VALUES (99998, 'citus'), (99999, 'timescaledb')) t (i, name);
	ALTER TABLE citus.pg_dist_partition SET SCHEMA pg_catalog;
	ALTER EXTENSION citus ADD TABLE pg_dist_partition));
$pair->subscribe('tap');

my $warning = qr/WARNING:  queries do not find applied rows of table/;

# Another apply worker reads the catalogs.
sub apply_again
{
	my ($id) = @_;
	my $offset = -s $subscriber->logfile;
	$subscriber->connect_again('tap');
	$publisher->sql("INSERT INTO $_ VALUES ($id, 0)") for @tables;
	$publisher->wait_applied;
	return $offset;
}

sub found_tables
{
	return $subscriber->sql(
		q(SELECT string_agg(relid::regclass || ' ' || apply_mode || ': ' || reason || '; ' || remedy, E'\n' ORDER BY relid)
		FROM parallel_apply.tables WHERE 'intercepted_table' = ANY (findings))
	);
}

sub advice
{
	return $subscriber->sql(
		q(SELECT string_agg(advice, E'\n' ORDER BY advice) FROM parallel_apply.advice()
		WHERE topic = 'table' AND level = 'warning'));
}

my $offset = apply_again(1);
is(found_tables(), '', 'other catalogs have no effect');
unlike(slurp_file($subscriber->logfile, $offset),
	$warning, 'and there is no warning');
$subscriber->sql(
	q(ALTER TABLE _timescaledb_catalog.hypertable RENAME TO others;
	CREATE VIEW _timescaledb_catalog.hypertable AS TABLE _timescaledb_catalog.others;
	ALTER EXTENSION timescaledb ADD VIEW _timescaledb_catalog.hypertable));
apply_again(20);
is(found_tables(), '', 'nor has a view');
$subscriber->sql(
	q(ALTER EXTENSION timescaledb DROP VIEW _timescaledb_catalog.hypertable;
	DROP VIEW _timescaledb_catalog.hypertable;
	ALTER TABLE _timescaledb_catalog.others RENAME TO hypertable));

$subscriber->sql(
	q(ALTER EXTENSION timescaledb ADD TABLE _timescaledb_catalog.hypertable;
	SET allow_system_table_mods = on;
	DELETE FROM pg_dist_partition;
	ALTER TABLE pg_dist_partition ALTER logicalrelid TYPE regclass;
	INSERT INTO pg_dist_partition VALUES ('distributed', 'h')));
$offset = apply_again(2);

my $rest =
  "queries do not find applied rows, with or without writers; subscribe to an ordinary table with an ENABLE ALWAYS trigger that writes to this one";
my $found =
  "distributed parallel: it is a table of Citus: $rest\nseries parallel: it is a hypertable of TimescaleDB: $rest";
is(found_tables(), $found, 'the view names both tables');
my $advice = advice();
like(
	$advice,
	qr/^table distributed: it is a table of Citus: /m,
	'advice names one');
like(
	$advice,
	qr/^table series: it is a hypertable of TimescaleDB: /m,
	'and the other one');
unlike($advice, qr/plain|other/, 'and no other');

# Definitions change, and are read again.
$subscriber->sql("ALTER TABLE $_ SET (fillfactor = 90)") for @tables;
$publisher->sql("INSERT INTO $_ VALUES (3, 0)") for @tables;
$publisher->wait_applied;
my @warnings = slurp_file($subscriber->logfile, $offset) =~
  /$warning (.*)\n.*DETAIL:  (.*)\n.*HINT:  Subscribe to an ordinary/g;
is_deeply(
	\@warnings,
	[
		'"public.distributed"', 'It is a table of Citus.',
		'"public.series"', 'It is a hypertable of TimescaleDB.'
	],
	'each table is warned of once');

# A locked catalog is not waited for.
my $session = $subscriber->hold(
	'LOCK TABLE pg_dist_partition; LOCK TABLE _timescaledb_catalog.hypertable'
);
$subscriber->sql("ALTER TABLE $_ SET (fillfactor = 80)") for @tables;
$publisher->sql("INSERT INTO $_ VALUES (4, 0)") for @tables;
$publisher->wait_applied;
is(found_tables(), '', 'the view does not wait for the catalogs');
$session->release;
is(found_tables(), $found, 'it names the tables again');

# The apply worker applies alone.
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->poll_query_until('postgres',
	q(SELECT state = 'native' FROM parallel_apply.subscriptions))
  or die 'the pool does not stop';
is(found_tables(), $found, 'the view shows the same without writers');
like(advice(), qr/^table series: /m, 'and so does advice');

$pair->rows_equal($_) for @tables;
finish($publisher, $subscriber);
done_testing();
