# Promise: conflicts are reported as PostgreSQL's own apply reports them, with the
# same messages in the same order, each once, and with the same statistics.  The
# model is a subscription to the same publication in a database without the
# extension.
#
# Before 18 these conflicts are missing rows, at DEBUG1, and unique violations.
# From 18 on, rows that another origin has written are reported as well, and all of
# them are counted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf =>
	  "track_commit_timestamp = on\nlog_min_messages = debug1");
my $is_counted = $subscriber->pg_version >= 18;
my @databases = qw(postgres serial);
my @tables = qw(items plain parted wide gate);

my $schema = q(
	CREATE TABLE items (id int PRIMARY KEY, v int, u int UNIQUE, w int UNIQUE, note text);
	ALTER TABLE items ALTER note SET STORAGE EXTERNAL;
	CREATE TABLE plain (a int, b text);
	ALTER TABLE plain REPLICA IDENTITY FULL;
	CREATE TABLE wide (id int PRIMARY KEY, v int, note text);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL););
my $parted = 'CREATE TABLE parted (id int PRIMARY KEY, v int)';

$publisher->sql("$schema $parted;");
$publisher->sql(
	q(INSERT INTO items SELECT i, 0, i, i, repeat('x', 3000) FROM generate_series(1, 60) i;
	INSERT INTO plain SELECT i, 'b' || i FROM generate_series(1, 60) i;
	INSERT INTO parted SELECT i, 0 FROM generate_series(1, 60) i;
	INSERT INTO wide SELECT i, 0, repeat('y', 400) FROM generate_series(1, 1500) i;
	INSERT INTO gate VALUES (1, 0);));

# Execute the same statements in both databases of the subscriber.
sub on_both
{
	my ($sql) = @_;
	$subscriber->safe_psql($_, $sql) for @databases;
	return;
}

$subscriber->sql('CREATE DATABASE serial');
on_both(
	"$schema $parted PARTITION BY RANGE (id);
	CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (31);
	CREATE TABLE high PARTITION OF parted FOR VALUES FROM (31) TO (2000);
	ALTER TABLE items ADD COLUMN local int DEFAULT 7;");
$subscriber->create_extension;
$pair->subscribe('tap');
$pair->subscribe_serially;
$subscriber->wait_until_ready('serial');
my %oid = map {
	$_ =>
	  $subscriber->sql("SELECT oid FROM pg_subscription WHERE subname = '$_'")
} qw(tap serial);

# The copies of the table synchronization have origins of their own.
$publisher->sql(
	'UPDATE items SET v = 0; UPDATE plain SET b = b; UPDATE parted SET v = 0;
	UPDATE wide SET v = 0; UPDATE gate SET n = 0;');
$publisher->wait_applied($_) for qw(tap serial);
my $offset = -s $subscriber->logfile;

# Write the row as other origins.
$subscriber->sql(qq(SELECT pg_replication_origin_create('$_')))
  for qw(other gone);

sub on_both_as_origin
{
	my ($origin, $sql) = @_;
	on_both(
		"SELECT pg_replication_origin_session_setup('$origin'); $sql;
		SELECT pg_replication_origin_session_reset();");
	return;
}

# Return what the log says about conflicts of a subscription, without what cannot be
# the same.
sub reports
{
	my ($name) = @_;
	my ($pid, %record, @found);
	for my $line (split /\n/, slurp_file($subscriber->logfile, $offset))
	{
		if ($line =~ /^\d{4}-\S+ \S+ \S+ [^\[]*\[(\d+)\] .*?\b(\w+:  .*)/)
		{
			($pid, my $text) = ($1, $2);
			push @found, $record{$pid} = \(my $new = '')
			  if $text !~ /^(DETAIL|HINT|CONTEXT|STATEMENT):/;
			${ $record{$pid} } .= "$text\n" if $record{$pid};
		}
		elsif (defined $pid && $record{$pid})
		{
			${ $record{$pid} } .= "$line\n";
		}
	}
	my $wanted =
	  $is_counted
	  ? qr/conflict detected/
	  : qr/did not find row|duplicate key/;
	@found =
	  grep {
			!/is rolled back/
		  && /\A\w+: .*$wanted/
		  && /replication origin "pg_$oid{$name}"/
	  }
	  map { $$_ } @found;
	for (@found)
	{
		s/"pg_$oid{$name}"/own/;
		s/ in transaction \d+( at [\d:. -]+\+\d\d)?(?=[.:])/ in a transaction/g;
	}
	return @found;
}

sub statistics
{
	my ($name) = @_;
	return $subscriber->sql(
		qq(SELECT string_agg(key || ' ' || value, ', ' ORDER BY key)
		FROM pg_stat_subscription_stats s, jsonb_each_text(to_jsonb(s))
		WHERE subname = '$name' AND (key = 'apply_error_count' OR key LIKE 'confl_%'))
	);
}

# Assert that both have applied everything, that both have this number of new
# reports since the last call, and that they are the same; and that the statistics
# are the same.
sub reports_equal
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (@have, @want);
	$publisher->wait_applied($_) for qw(tap serial);
	@have = reports('tap');
	@want = reports('serial');
	is(scalar @want, $count, "$name: so much is reported");
	is_deeply(\@have, \@want, "$name: reports are the same");
	statistics_equal($name);
	$offset = -s $subscriber->logfile;
	return;
}

sub statistics_equal
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# Statistics arrive with a delay; each error and conflict in the log is counted.
	my $log = slurp_file($subscriber->logfile);
	my $errors = () = $log =~ /ERROR:  (?:conflict detected|duplicate key)/g;
	my $conflicts = () =
	  $log =~ /(?:LOG|ERROR):  conflict detected on relation/g;
	my $settled = q(SELECT
		(SELECT count(DISTINCT to_jsonb(s) - 'subid' - 'subname' - 'stats_reset') = 1
		FROM pg_stat_subscription_stats s));
	$settled .=
	  " AND (SELECT sum(apply_error_count) = $errors FROM pg_stat_subscription_stats)";
	$settled .= qq( AND (SELECT sum(value::int) = $conflicts
		FROM pg_stat_subscription_stats s, jsonb_each_text(to_jsonb(s))
		WHERE key LIKE 'confl_%')
	) if $is_counted;
	$subscriber->poll_query_until('postgres', $settled);
	is(statistics('tap'), statistics('serial'),
		"$name: statistics are the same");
	return;
}

# Rows of three kinds of other origins, and missing rows
sub make_conflicts
{
	my ($table, $key, $column) = @_;
	my $change = "UPDATE $table SET $column = -1 WHERE $key BETWEEN";
	on_both("$change 1 AND 5");
	on_both("$change 31 AND 35");
	on_both_as_origin('other', "$change 6 AND 10");
	on_both_as_origin('gone', "$change 11 AND 15");
	on_both("DELETE FROM $table WHERE $key BETWEEN 16 AND 20");
	return;
}

make_conflicts('items', 'id', 'v');
make_conflicts('parted', 'id', 'v');
on_both(
	'UPDATE plain SET b = b WHERE a <= 10; DELETE FROM plain WHERE a BETWEEN 16 AND 20'
);
$subscriber->sql("SELECT pg_replication_origin_drop('gone')");

# 4 + 2 + 2 + 2 of other origins, 3 missing; the rows belong to this origin
# afterwards.
$publisher->sql(
	q(UPDATE items SET v = 1 WHERE id = 1;
	UPDATE items SET id = 1002 WHERE id = 2;
	DELETE FROM items WHERE id = 3;
	UPDATE items SET v = 2 WHERE id IN (1, 4);
	BEGIN; UPDATE items SET v = 1 WHERE id = 6; UPDATE items SET v = 2 WHERE id = 6;
	DELETE FROM items WHERE id = 7; COMMIT;
	BEGIN; UPDATE items SET v = 1, note = 'short' WHERE id = 11; DELETE FROM items WHERE id = 12; COMMIT;
	UPDATE items SET v = 1 WHERE id = 16;
	DELETE FROM items WHERE id = 17;
	BEGIN; UPDATE items SET v = 3 WHERE id = 5; UPDATE items SET v = 3 WHERE id = 18;
	UPDATE items SET v = 3 WHERE id = 8; COMMIT;));
reports_equal($is_counted ? 13 : 3, 'a table with a primary key');

# 4 + 2 + 1 of other origins, of which one moves to another partition; 3 missing.
$publisher->sql(
	q(UPDATE parted SET v = 1 WHERE id IN (1, 31);
	UPDATE parted SET id = 1002 WHERE id = 2;
	DELETE FROM parted WHERE id = 3;
	BEGIN; UPDATE parted SET v = 1 WHERE id IN (6, 11); DELETE FROM parted WHERE id = 12; COMMIT;
	BEGIN; UPDATE parted SET v = 1 WHERE id IN (16, 17); DELETE FROM parted WHERE id = 18; COMMIT;)
);
reports_equal($is_counted ? 10 : 3, 'a partitioned table');

$publisher->sql(
	q(UPDATE plain SET b = 'new' WHERE a IN (1, 2, 16);
	DELETE FROM plain WHERE a IN (3, 17);));
reports_equal($is_counted ? 5 : 2, 'replica identity full');

# A transaction does not wait because of a row of another origin, but its report
# waits for its turn.
my $retries = $pair->apply_behind_gate(
	join(', ', 'waiting for lock', ('waiting for prior commit') x 3),
	'transactions with conflicts wait for their turn after their changes',
	'UPDATE items SET v = 9 WHERE id = 31',
	'UPDATE items SET v = 9 WHERE id = 32',
	'UPDATE items SET v = 9 WHERE id IN (33, 9)',
	'DELETE FROM items WHERE id = 34');
is($retries, 0, 'and none looks twice');
reports_equal($is_counted ? 5 : 0, 'transactions at the same time');

# More reports than are kept for the end of a transaction
on_both('UPDATE wide SET v = -1');
$publisher->sql('UPDATE wide SET v = 1');
reports_equal($is_counted ? 1500 : 0, 'many conflicts in a transaction');

# Errors.  disable_on_error makes each happen once.
$subscriber->sql("ALTER SUBSCRIPTION $_ SET (disable_on_error = true)")
  for 'tap';
$subscriber->safe_psql('serial',
	'ALTER SUBSCRIPTION serial SET (disable_on_error = true)');

sub fails
{
	my ($name, $count, $local, $remote) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	on_both($local);
	$publisher->sql($remote);
	$subscriber->poll_query_until('postgres',
		'SELECT count(*) = 0 FROM pg_subscription WHERE subenabled')
	  or die 'subscriptions are not disabled';
	my @want = reports('serial');
	my @have = reports('tap');

	# At DEBUG1, each attempt of a writer is reported.
	my %is_known;
	@have = grep { !$is_known{$_}++ } @have unless $is_counted;
	is_deeply(\@have, \@want, "$name: reports are the same");
	is(scalar @want, $count, "$name: so much is reported");
	statistics_equal($name);
	on_both("DELETE FROM items WHERE note = 'local'");
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->safe_psql('serial', 'ALTER SUBSCRIPTION serial ENABLE');
	$publisher->wait_applied($_) for qw(tap serial);
	$subscriber->wait_for_pool('tap');
	$offset = -s $subscriber->logfile;
	return;
}

fails(
	'insert_exists', 1,
	"INSERT INTO items VALUES (2001, 0, 2001, 2001, 'local')",
	"INSERT INTO items VALUES (2001, 1, 2002, 2002, 'remote')");
fails(
	'update_exists', 1,
	"INSERT INTO items VALUES (2003, 0, 2003, 2003, 'local')",
	'UPDATE items SET u = 2003 WHERE id = 40');
fails(
	'multiple_unique_conflicts',
	1,
	"INSERT INTO items VALUES (2004, 0, 2004, 2004, 'local'), (2005, 0, 2005, 2005, 'local')",
	"INSERT INTO items VALUES (2004, 1, 2005, 2006, 'remote')");
fails(
	'conflicts before an error',
	$is_counted ? 4 : 2,
	"INSERT INTO items VALUES (2007, 0, 2007, 2007, 'local');
	UPDATE items SET v = -1 WHERE id IN (35, 41);",
	"BEGIN; UPDATE items SET v = 9 WHERE id IN (35, 41); DELETE FROM items WHERE id = 19;
	INSERT INTO items VALUES (2007, 1, 2008, 2008, 'remote'); COMMIT;");

# The owner of the subscription may act for the owner of the root, but not for that of the
# partition.  PostgreSQL's own apply does not need it.
SKIP:
{
	skip 'the server reports conflicts from PostgreSQL 18 on', 1
	  if !$is_counted;
	$subscriber->restart_apply(
		'tap',
		q(CREATE ROLE root_owner; CREATE ROLE part_owner; CREATE ROLE applier SUPERUSER LOGIN; BEGIN;
		ALTER TABLE parted OWNER TO root_owner; ALTER TABLE low OWNER TO part_owner;
		GRANT ALL ON low TO root_owner; GRANT root_owner TO applier;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO applier;
		ALTER SUBSCRIPTION tap SET (password_required = false, run_as_owner = false);
		ALTER SUBSCRIPTION tap OWNER TO applier; ALTER ROLE applier NOSUPERUSER; COMMIT;
		DELETE FROM parted WHERE id = 21));
	$subscriber->wait_for_pool('tap');
	my $failed =
	  'SELECT failed_attempts FROM parallel_apply.subscription_stats';
	my $before = $subscriber->sql($failed);
	$publisher->sql(
		'UPDATE parted SET v = 5 WHERE id = 21; DELETE FROM parted WHERE id = 21'
	);
	$publisher->wait_applied;
	is($subscriber->sql($failed),
		$before, 'a conflict in a partition of another owner is no error');
	$subscriber->restart_apply('tap',
		q(ALTER SUBSCRIPTION tap OWNER TO postgres));
	$subscriber->sql(
		'ALTER TABLE low OWNER TO postgres; ALTER TABLE parted OWNER TO postgres'
	);
}

# Changes made only on the subscriber
$publisher->sql(
	"UPDATE items SET v = 0, note = 'end' WHERE id NOT BETWEEN 16 AND 20;
	DELETE FROM items WHERE id BETWEEN 16 AND 20;
	UPDATE parted SET v = 0 WHERE id NOT BETWEEN 16 AND 20;
	DELETE FROM parted WHERE id BETWEEN 16 AND 20;
	DELETE FROM plain WHERE a BETWEEN 16 AND 20 OR b = 'new';");
$publisher->wait_applied($_) for qw(tap serial);
on_both('ALTER TABLE items DROP COLUMN local');
for my $table (@tables)
{
	$pair->rows_equal($table);
	is( $subscriber->safe_psql('serial', "SELECT * FROM $table ORDER BY 1"),
		$publisher->sql("SELECT * FROM $table ORDER BY 1"),
		"and in the model");
}

finish($publisher, $subscriber,
	qr/conflict detected on relation|duplicate key value/);
done_testing();
