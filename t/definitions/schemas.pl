# Promise: if a schema is renamed on the subscriber, all processes continue to change
# the same tables, as PostgreSQL's own apply does, also if another schema gets the former name.
#
# PostgreSQL's own apply applies the same transactions in the database "serial".
# Detects: a process that meets a table later than others looks it up by its name on the
# publisher, and changes another table or none.
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
		parallel_apply.writers_per_subscription = 2
		parallel_apply.max_batch_transactions = 1
		parallel_apply.selftest_fast = on
		autovacuum = off));
my $tables = q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, v int););
$publisher->sql($tables);
$subscriber->sql('CREATE DATABASE serial');
$subscriber->safe_psql($_, $tables) for qw(postgres serial);
$subscriber->create_extension;
$pair->subscribe('tap');
$pair->subscribe_serially;
$publisher->sql('INSERT INTO gate VALUES (1, 0)');

my $row = 0;

sub rows
{
	my ($count) = @_;
	return map { $row++; "INSERT INTO app.t VALUES ($row, 0)" } 1 .. $count;
}

sub same_as_serial
{
	my ($when, $table) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->wait_for_both;
	my $sql = "SELECT string_agg(t::text, ' ' ORDER BY id) FROM $table t";
	my $expected = $publisher->sql(
		"SELECT string_agg(t::text, ' ' ORDER BY id) FROM app.t t");
	is($subscriber->sql($sql), $expected, "all rows are there $when");
	is($subscriber->safe_psql('serial', $sql),
		$expected, "with PostgreSQL's own apply, too");
	return;
}

# Each of the writers applies a transaction while the first one is blocked.
sub apply_by_each
{
	my ($writers, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->apply_behind_gate(
		join(', ',
			'waiting for lock',
			('waiting for prior commit') x ($writers - 1)),
		$name,
		rows($writers));
	return;
}

sub is_applied_by_apply_worker
{
	return $subscriber->leader_applies(
		sub { $publisher->sql($_) for rows(1); $publisher->wait_applied; });
}

# Have the apply worker itself apply some rows.  It reads a setting a moment later.
sub apply_by_apply_worker
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = 0;
	$subscriber->reload_with('parallel_apply.leader_participation = on');
	for (1 .. 1000)
	{
		$count++ if is_applied_by_apply_worker();
		last if $count == 2;
	}
	is($count, 2, 'the apply worker has applied rows');
	$subscriber->reload_with('parallel_apply.leader_participation = off');
	for (1 .. 1000)
	{
		last if !is_applied_by_apply_worker();
	}
	return;
}

sub rename_schema
{
	my ($from, $to) = @_;
	$subscriber->safe_psql($_, "ALTER SCHEMA $from RENAME TO $to")
	  for qw(postgres serial);
	return;
}

apply_by_each(2, 'both writers know the table');

# Other writers, which do not know it, and the apply worker come later.
rename_schema('app', 'app_old');
$subscriber->safe_psql($_,
	'CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, v int)')
  for qw(postgres serial);
$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
$subscriber->wait_for_pool('tap', 4);
apply_by_each(4, 'all writers have a row');
is($subscriber->fallbacks, 0, 'each has committed it');
apply_by_apply_worker();
same_as_serial('in the renamed schema', 'app_old.t');
is($subscriber->sql('SELECT count(*) FROM app.t'),
	'0', 'and none in the other one');

# A table of the renamed schema changes, so that all look it up again.  PostgreSQL's own
# apply would now look for the former name, and is not compared any more.
$subscriber->sql('ALTER TABLE app_old.t ADD w int');
apply_by_each(4, 'all writers have a row of the changed table');
apply_by_apply_worker();
is( $subscriber->sql(
		"SELECT string_agg(id::text, ' ' ORDER BY id) FROM app_old.t"),
	$publisher->sql(
		"SELECT string_agg(id::text, ' ' ORDER BY id) FROM app.t"),
	'all rows are there after a change of the table');

# The next apply worker finds the new schema by its name.
$subscriber->connect_again('tap');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
apply_by_each(4, 'all writers have a row of the new table');
$publisher->wait_applied;
is( $subscriber->sql(
		"SELECT string_agg(id::text, ' ' ORDER BY id) FROM app.t"),
	$publisher->sql(
		"SELECT string_agg(id::text, ' ' ORDER BY id) FROM app.t"),
	'the new table has been copied, and gets the changes');

# A table moves to another schema on the publisher, and the apply worker has yet to apply an
# older change, since a writer is refused when the subscription changes.
$subscriber->safe_psql($_,
	'CREATE SCHEMA moved; CREATE TABLE moved.t (id int PRIMARY KEY, v int)')
  for qw(postgres serial);
$publisher->sql('CREATE SCHEMA moved');
{
	my ($older) = rows(1);
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1',
		$older,
		'ALTER TABLE app.t SET SCHEMA moved',
		'INSERT INTO moved.t VALUES (0, 0)');
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit',
		'the older change waits for its turn');
	$subscriber->wait_until(
		'queue_transactions = 3 FROM parallel_apply.subscriptions',
		'the younger change does not arrive');
	$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = '7F000000/0')));
	$lock->release;
	$publisher->wait_applied;
	is($subscriber->sql("SELECT count(*) FROM app.t WHERE id = $row"),
		'1', 'a change from before the table moved goes to where it was');
	is($subscriber->sql('SELECT count(*) FROM moved.t'),
		'0', 'and nothing to where it is now, which is not subscribed');
	cmp_ok(
		$subscriber->sql(
			'SELECT fallback_subscription FROM parallel_apply.subscription_stats'
		),
		'>', 0,
		'the apply worker has applied it');
}

finish($publisher, $subscriber);
done_testing();
