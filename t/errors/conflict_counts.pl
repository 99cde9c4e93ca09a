# Promise: parallel_apply.conflicts counts the conflicts of each table by the names of
# PostgreSQL 18, of writers and of the apply worker, and shows the last one with its key.  From 18
# on, the counts are those of pg_stat_subscription_stats.  Before 18, missing rows and
# rows of other origins are logged if parallel_apply.log_conflicts is on.
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
	  "track_commit_timestamp = on\nparallel_apply.log_conflicts = on");
my $is_counted_by_server = $subscriber->pg_version >= 18;
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, u int UNIQUE);
	CREATE TABLE guarded (id int PRIMARY KEY, v int);));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'disable_on_error = true');
$subscriber->sql(
	q(CREATE ROLE watcher IN ROLE pg_monitor; CREATE ROLE stranger;));
$publisher->sql(
	q(INSERT INTO items SELECT i, 0, i FROM generate_series(1, 50) i;
	INSERT INTO guarded SELECT i, 0 FROM generate_series(1, 50) i;));
$publisher->wait_applied;

my @types =
  qw(insert_exists update_origin_differs update_exists update_missing
  delete_origin_differs delete_missing multiple_unique_conflicts);
my %expected = map { $_ => 0 } @types;

# Assert that the table items has had these conflicts more, and what the last one was.
sub conflicts_become
{
	my ($what, $last, %more) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$expected{$_} += $more{$_} for keys %more;
	my $wanted = join ' ', map { $expected{$_} } @types;
	my $columns = join ', ', @types;
	ok( $subscriber->poll_query_until(
			'postgres',
			qq(SELECT concat_ws(' ', $columns, last_conflict, last_conflict_key)
			FROM parallel_apply.conflicts WHERE relname = 'items'),
			"$wanted $last"),
		"$what: conflicts are counted");
	return if !$is_counted_by_server;
	my $server_columns = join ', ', map { "confl_$_" } @types;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT concat_ws(' ', $server_columns) FROM pg_stat_subscription_stats WHERE subname = 'tap'",
			$wanted),
		"$what: the server counts the same");
	return;
}

# Assert that the log has this conflict since the offset, once.  PostgreSQL 19 has the
# identity in the same line.
sub is_logged
{
	my ($what, $offset, $type, $detail) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $log = slurp_file($subscriber->logfile, $offset);
	my @found = $log =~
	  /LOG:  conflict detected on relation "public\.items": conflict=$type\n.*DETAIL:  $detail.*(?:\n.*)?[rR]eplica identity \(id\)=\(\d+\)\./g;
	is(scalar @found, 1, "$what: $type is logged");
	return;
}

my $local_writer =
  qr/the row that was modified locally in transaction \d+ at /;

# Rows with these numbers are missing, or were written by another origin.
sub four_conflicts
{
	my ($what, $first) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @id = map { $first + $_ } 0 .. 3;
	my $offset = -s $subscriber->logfile;
	$subscriber->sql(
		"DELETE FROM items WHERE id IN ($id[0], $id[1]); UPDATE items SET v = 1 WHERE id IN ($id[2], $id[3])"
	);
	for my $sql (
		"UPDATE items SET v = 2 WHERE id = $id[0]",
		"DELETE FROM items WHERE id = $id[1]")
	{
		$publisher->sql($sql);
		$publisher->wait_applied;
	}
	conflicts_become(
		"$what, missing rows", "delete_missing (id)=($id[1])",
		update_missing => 1,
		delete_missing => 1);
	is_logged($what, $offset, 'update_missing',
		'Could not find the row to be updated[.:]');
	is_logged($what, $offset, 'delete_missing',
		'Could not find the row to be deleted[.:]');
	return @id;
}

sub other_origins
{
	my ($what, @id) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset = -s $subscriber->logfile;
	for my $sql (
		"DELETE FROM items WHERE id = $id[3]",
		"UPDATE items SET v = 2 WHERE id = $id[2]")
	{
		$publisher->sql($sql);
		$publisher->wait_applied;
	}
	conflicts_become(
		"$what, rows of another origin",
		"update_origin_differs (id)=($id[2])",
		update_origin_differs => 1,
		delete_origin_differs => 1);
	is_logged($what, $offset, 'update_origin_differs',
		"Updating $local_writer");
	is_logged($what, $offset, 'delete_origin_differs',
		"Deleting $local_writer");
	return;
}

### writers

is($subscriber->sql('SELECT count(*) FROM parallel_apply.conflicts'),
	'0', 'there is no row without conflicts');
my @id = four_conflicts('writers', 1);
other_origins('writers', @id);
is( $subscriber->sql(
		q(SELECT missing FROM parallel_apply.tables WHERE relname = 'items')),
	'2',
	'the view of tables counts missing rows');
is( $subscriber->sql(
		q{SELECT evidence LIKE '1 updates, 1 deletes; the last conflict at %: update_origin_differs of key (id)=(3)'
		FROM parallel_apply.advice('tap') WHERE topic = 'conflicts'}),
	't',
	'advice() names the table');
is( $subscriber->sql(
		q(SET ROLE watcher; SELECT last_conflict, last_conflict_key, last_conflict_time <= now()
		FROM parallel_apply.conflicts)),
	'update_origin_differs||t',
	'who may not read the table sees no key');
is( $subscriber->sql(
		q(SET ROLE stranger; SELECT count(*) FROM parallel_apply.conflicts)),
	'0',
	'other users see no row');

# Twice in a transaction that is rolled back: a conflict of it counts once.
my $attempts = $subscriber->counter('retries + fallbacks');
my $lock = $subscriber->hold('SELECT FROM guarded WHERE id = 1 FOR UPDATE');
$publisher->sql(
	'BEGIN; DELETE FROM items WHERE id = 1; UPDATE guarded SET v = 1 WHERE id = 1; COMMIT'
);
$subscriber->wait_for_state('waiting for lock');
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM parallel_apply.writers WHERE state = 'waiting for lock')
);
$subscriber->wait_until(
	"sum(retries + fallbacks) > $attempts FROM parallel_apply.writers",
	'it is not tried again');
end_sessions($lock);
$publisher->wait_applied;
conflicts_become(
	'a second attempt',
	'delete_missing (id)=(1)',
	delete_missing => 1);

# A value in binary format is shown like one of type bytea.
$subscriber->restart_apply('tap',
	'ALTER SUBSCRIPTION tap SET (binary = true)');
$subscriber->wait_for_pool('tap');
$subscriber->sql('DELETE FROM items WHERE id = 50');
$publisher->sql('DELETE FROM items WHERE id = 50');
conflicts_become(
	'values in binary format',
	'delete_missing (id)=(\x00000032)',
	delete_missing => 1);
$subscriber->restart_apply('tap',
	'ALTER SUBSCRIPTION tap SET (binary = false)');
$subscriber->wait_for_pool('tap');

### violations

# A transaction fails in the end, when the apply worker applies it.
sub violation
{
	my ($last, $type, $local, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql($local);
	$publisher->sql($sql);
	$subscriber->wait_until_failed;
	conflicts_become("a violation by $sql", $last, $type => 1);
	$subscriber->sql('DELETE FROM items WHERE id > 1000');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->wait_until(
		'count(*) = 0 FROM parallel_apply.failed_transactions',
		'the failure is not overcome');
	$subscriber->wait_for_pool('tap');
	return;
}

# What a local session has inserted.
violation(
	'insert_exists (id)=(101)',
	'insert_exists',
	'INSERT INTO items VALUES (1001, 0, 101)',
	'INSERT INTO items VALUES (101, 0, 101)');
violation(
	'update_exists (id)=(101)',
	'update_exists',
	'INSERT INTO items VALUES (1002, 0, 102)',
	'UPDATE items SET u = 102 WHERE id = 101');
my $several =
  $is_counted_by_server ? 'multiple_unique_conflicts' : 'insert_exists';
violation(
	"$several (id)=(1003)",
	$several,
	'INSERT INTO items VALUES (1003, 0, 104), (1004, 0, 103)',
	'INSERT INTO items VALUES (1003, 0, 103)');

### the apply worker, while writers are idle

# On a slow machine, too (selftest_fast)
$subscriber->reload_with(
	'parallel_apply.leader_participation = on',
	'parallel_apply.selftest_fast = on');
$subscriber->restart_apply('tap');
$subscriber->wait_for_pool('tap');
my $by_leader =
  'leader_transactions FROM parallel_apply.subscription_stats WHERE subname = \'tap\'';

# Transactions that come alone, until one was applied by it.
sub wait_for_leader
{
	my $before = $subscriber->sql("SELECT $by_leader");
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	do
	{
		die 'the apply worker applies nothing itself' if time > $end;
		$publisher->sql('UPDATE guarded SET v = v + 1 WHERE id = 50');
		$publisher->wait_applied;
	} while ($subscriber->sql("SELECT $by_leader") == $before);
	return;
}

# Call a function with the number of the first of ten new rows, until the apply worker has
# applied as many transactions of it as it should.  It leaves one to writers if other
# processes of the publisher have written WAL in the middle of it.
my $new = 200;

sub leader_applies
{
	my ($count, $sub) = @_;
	for my $attempt (1 .. 20)
	{
		my $first = $new;
		$new += 10;
		$publisher->sql(
			"INSERT INTO items SELECT i, 0, i FROM generate_series($first, $new - 1) i"
		);
		$publisher->wait_applied;
		wait_for_leader();
		my $before = $subscriber->sql("SELECT $by_leader");
		my @result = $sub->($first);
		return @result
		  if $subscriber->sql("SELECT $by_leader") == $before + $count;
	}
	die "the apply worker does not apply $count transactions itself";
}

@id = leader_applies(2, sub { four_conflicts('the apply worker', @_) });
other_origins('the apply worker', @id) if $is_counted_by_server;

# Found and missing rows in one transaction; a row that a trigger suppresses is none.
$subscriber->sql(
	q(CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER suppress BEFORE UPDATE ON guarded FOR EACH ROW WHEN (NEW.id < 9) EXECUTE FUNCTION suppress();
	ALTER TABLE guarded ENABLE ALWAYS TRIGGER suppress;
	SELECT parallel_apply.set_table_option('guarded', 'triggers', 'parallel')));
leader_applies(
	1,
	sub {
		my ($first) = @_;
		my @id = map { $first + $_ } 0 .. 5;
		$subscriber->sql(
			"DELETE FROM items WHERE id IN ($id[1], $id[3], $id[5])");
		$publisher->sql(
			"BEGIN;
			UPDATE items SET v = v + 1 WHERE id = $id[0];
			UPDATE items SET v = v + 1 WHERE id = $id[1];
			UPDATE items SET v = v + 1 WHERE id = $id[2];
			DELETE FROM items WHERE id = $id[3];
			DELETE FROM items WHERE id = $id[4];
			UPDATE items SET v = v + 1 WHERE id = $id[5];
			UPDATE guarded SET v = v + 1 WHERE id = 7;
			COMMIT");
		$publisher->wait_applied;
		conflicts_become(
			'some of a transaction', "update_missing (id)=($id[5])",
			update_missing => 2,
			delete_missing => 1);
	});
is( $subscriber->sql(
		q(SELECT count(*) FROM parallel_apply.conflicts WHERE relname = 'guarded')
	),
	'0',
	'a suppressed change is not a missing row');

### one writer

$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
if ($is_counted_by_server)
{
	@id = four_conflicts('one writer', 31);
	other_origins('one writer', @id);
}

my $of_items =
  q(SELECT count(*) FROM parallel_apply.conflicts WHERE relname = 'items');
is($subscriber->sql($of_items), '1', 'a table has conflicts');
$subscriber->sql('DROP TABLE items');
is($subscriber->sql($of_items), '0', 'and none when it has been dropped');

$subscriber->sql(q(SELECT parallel_apply.reset_stats('tap')));
is($subscriber->sql('SELECT count(*) FROM parallel_apply.conflicts'),
	'0', 'conflicts are reset with the statistics');

finish(
	$publisher,
	$subscriber,
	duplicate_key('items'),
	qr/ERROR: +duplicate key value violates unique constraint "items_u_key"/,
	qr/ERROR: +conflict detected on relation "public\.items": conflict=(update_exists|multiple_unique_conflicts)/,
	qr/canceling statement due to user request/,
	worker_terminated());
done_testing();
