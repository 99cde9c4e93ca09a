# Promise: the library and the SQL objects may have different versions, before ALTER
# EXTENSION UPDATE and before the restart with a new library.  What both know is
# shown in the right columns; anything else is an error with a hint.  Each version
# that can be installed can be updated, and then equals a newly installed one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY)');
$subscriber->create_extension;
$pair->subscribe('tap');
$publisher->sql('INSERT INTO items SELECT generate_series(1, 42)');
$publisher->wait_applied;

my $version = $subscriber->sql('SELECT parallel_apply.version()');
my $sql_version = $subscriber->sql(
	"SELECT extversion FROM pg_extension WHERE extname = 'parallel_apply'");
like($version, qr/^\Q$sql_version\E\.\d+$/,
	'a new extension has the first two parts of the version of the library');

# Return what psql prints on stderr when a statement fails.
sub error_of
{
	my ($sql, $db) = @_;
	my ($status, undef, $messages) =
	  $subscriber->psql($db // 'postgres', $sql);
	return $status == 0 ? 'no error' : $messages =~ s/^psql:<stdin>:\d+: //r;
}

# Functions with the columns that a script of another version defines
sub declare
{
	my ($name, $columns, $symbol, $returns) = @_;
	$subscriber->sql(
		"CREATE FUNCTION $name($columns) RETURNS $returns LANGUAGE C STRICT
		 AS '\$libdir/parallel_apply', '$symbol'");
	return;
}

### all versions that can be installed

sub objects_of
{
	my ($db) = @_;
	return $subscriber->safe_psql($db, <<~'SQL');
		SELECT pg_describe_object(d.classid, d.objid, 0), p.proacl, p.prosrc, p.prosqlbody IS NULL,
		       pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
		       c.relacl, CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END,
		       obj_description(d.objid, d.classid::regclass::name),
		       (SELECT array_agg(col_description(c.oid, a.attnum) ORDER BY a.attnum)
		          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
		  FROM pg_depend d
		  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
		  LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		  LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
		 WHERE e.extname = 'parallel_apply' ORDER BY 1
		SQL
}

sub read_all_views
{
	my ($db) = @_;
	my $views = $subscriber->safe_psql(
		$db,
		q(SELECT oid::regclass FROM pg_class
		   WHERE relnamespace = 'parallel_apply'::regnamespace AND relkind = 'v'));
	return error_of(join(";\n", map { "TABLE $_" } split /\n/, $views), $db);
}

my $expected = objects_of('postgres');
like(
	$expected,
	qr/^view parallel_apply\.subscriptions\|/m,
	'the extension has views');
my @versions = split /\n/,
  $subscriber->sql(
	q(SELECT version FROM pg_available_extension_versions WHERE name = 'parallel_apply')
  );
ok( (grep { $_ eq $sql_version } @versions),
	"version $sql_version can be installed");
for my $old (@versions)
{
	$subscriber->sql('CREATE DATABASE other');
	$subscriber->safe_psql('other',
		"CREATE EXTENSION parallel_apply VERSION '$old'");
	is(read_all_views('other'),
		'no error', "the views of version $old can be read");
	$subscriber->safe_psql('other', 'ALTER EXTENSION parallel_apply UPDATE');
	is(objects_of('other'),
		$expected, "after an update, version $old is as a new one");
	$subscriber->sql('DROP DATABASE other');
}

### other columns

declare('fewer', 'OUT state text, OUT pid int, OUT subid oid',
	'papply_get_subscriptions', 'SETOF record');
is( $subscriber->sql('SELECT subid, pid, state FROM fewer()'),
	$subscriber->sql(
		'SELECT subid, pid, state FROM parallel_apply.subscriptions'),
	'columns are where they belong, whatever their order and number');
declare(
	'fewer_stats',
	'OUT errors bigint, OUT inserts bigint',
	'papply_get_subscription_stats',
	'SETOF record');
# A writer counts what it has committed a moment after others see that.
ok( $subscriber->poll_query_until(
		'postgres', 'SELECT errors, inserts FROM fewer_stats()', '0|42'),
	'so are counters');
declare(
	'fewer_options',
	'subid oid, OUT paused bool, OUT writers_wanted int',
	'papply_get_subscription_options',
	'SETOF record');
is( $subscriber->sql(
		'SELECT paused, writers_wanted FROM pg_subscription s, fewer_options(s.oid)'
	),
	'f|4',
	'so are options');

declare(
	'later', 'OUT subid oid, OUT later_column bigint',
	'papply_get_writers', 'SETOF record');
declare(
	'another_type', 'OUT subid oid, OUT pid bigint',
	'papply_get_writers', 'SETOF record');
declare(
	'later_options',
	'subid oid, OUT paused bool, OUT later_column text',
	'papply_get_subscription_options',
	'SETOF record');

sub mismatch
{
	my ($function, $column, $type, $installed) = @_;
	return <<~"EOT";
		ERROR:  function $function does not match the library of extension "parallel_apply"
		DETAIL:  Library version $version does not provide column "$column" of type $type; the extension has version $installed.
		EOT
}

sub fails_with
{
	my ($sql, $message, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(error_of($sql) . "\n", $message, $name);
}

sub set_installed
{
	my ($to) = @_;
	$subscriber->sql(
		"UPDATE pg_extension SET extversion = '$to' WHERE extname = 'parallel_apply'"
	);
	return;
}

fails_with(
	'SELECT * FROM later()',
	mismatch('later()', 'later_column', 'bigint', $sql_version),
	'a column that the library does not know is an error');
fails_with(
	'SELECT * FROM another_type()',
	mismatch('another_type()', 'pid', 'bigint', $sql_version),
	'so is one of another type');
fails_with(
	'SELECT * FROM later_options(0)',
	mismatch('later_options(oid)', 'later_column', 'text', $sql_version),
	'and one of options');
set_installed('0.9');
fails_with(
	'SELECT * FROM later()',
	mismatch('later()', 'later_column', 'bigint', '0.9')
	  . "HINT:  Use ALTER EXTENSION parallel_apply UPDATE.\n",
	'an older extension has to be updated');
set_installed('99.0');
fails_with(
	'SELECT * FROM later()',
	mismatch('later()', 'later_column', 'bigint', '99.0')
	  . "HINT:  Restart the server after version 99.0 of the library has been installed.\n",
	'for a newer one the library has to be replaced');
set_installed($sql_version);

### a newer script

my $too_old = <<"EOT";
ERROR:  version 99.0 of extension "parallel_apply" requires a newer library
DETAIL:  The server has loaded library version $version.
HINT:  Restart the server after version 99.0 of the library has been installed.
EOT
is(error_of("SELECT parallel_apply.check_library_version('0.9')"),
	'no error', 'the library is new enough for an older script');
is(error_of("SELECT parallel_apply.check_library_version('$sql_version')"),
	'no error', 'and for its own');
fails_with("SELECT parallel_apply.check_library_version('99.0')",
	$too_old, 'and not for a newer one');

# In the directory of the server's extensions, under a name that only this test
# uses.
my ($share) = run_command([ 'pg_config', '--sharedir' ]);
my $script = "$share/extension/parallel_apply--$sql_version--99.0.sql";
END { unlink $script if defined $script; }
SKIP:
{
	skip "$share/extension is not writable", 4 unless -w "$share/extension";
	append_to_file($script, <<~'SQL');
		SELECT parallel_apply.check_library_version('99.0');
		CREATE FUNCTION parallel_apply.later() RETURNS void LANGUAGE C
		AS 'MODULE_PATHNAME', 'papply_later';
		SQL
	like(error_of("ALTER EXTENSION parallel_apply UPDATE TO '99.0'") . "\n",
		qr/^\Q$too_old\E/, 'a newer script has to wait for its library');
	is(objects_of('postgres'), $expected, 'and changes nothing until then');
	$subscriber->sql('CREATE DATABASE other');
	like(
		error_of("CREATE EXTENSION parallel_apply VERSION '99.0'", 'other')
		  . "\n",
		qr/^\Q$too_old\E/,
		'neither can it be installed');
	is( $subscriber->safe_psql(
			'other',
			"SELECT count(*) FROM pg_namespace WHERE nspname = 'parallel_apply'"
		),
		'0',
		'and nothing is left of the attempt');
}

finish(
	$publisher, $subscriber,
	qr/does not match the library of extension/,
	qr/requires a newer library/);
done_testing();
