# Promise: the owner of a subscription sees its rows in the views, and nothing of
# other subscriptions.  Members of pg_read_all_stats see all subscriptions, other
# users none.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE TABLE tap (id int PRIMARY KEY, v int CHECK (v > 0));
	CREATE TABLE other (id int PRIMARY KEY, v int CHECK (v > 0));));
$publisher->sql("INSERT INTO $_ VALUES (1, 1)") for qw(tap other);
$subscriber->create_extension;

# Up to 15, the new owner must be a superuser.
my %owner = (tap => 'alice', other => 'bob');
$subscriber->sql(
	q(CREATE ROLE alice SUPERUSER LOGIN; CREATE ROLE bob SUPERUSER LOGIN;
	CREATE ROLE watcher IN ROLE pg_read_all_stats;
	CREATE ROLE stranger;));
my $more = $subscriber->pg_version >= 16 ? ', password_required = false' : '';
for my $name (sort keys %owner)
{
	$pair->subscribe(
		$name,
		publication => "FOR TABLE $name",
		with => "disable_on_error = true$more");
	$subscriber->restart_apply(
		$name,
		qq(ALTER TABLE $name OWNER TO $owner{$name};
		BEGIN; ALTER SUBSCRIPTION $name OWNER TO $owner{$name};
		ALTER ROLE $owner{$name} NOSUPERUSER; COMMIT;));
	$subscriber->wait_for_pool($name);
}

sub as
{
	my ($role, $sql) = @_;
	return $subscriber->sql("SET ROLE $role; $sql");
}

# The subscriptions of which each role sees rows
sub sees
{
	my ($view, $filter) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $sql =
	  "SELECT string_agg(DISTINCT subname, ' ' ORDER BY subname) FROM parallel_apply.$view";
	my %seen = map { $_ => as($_, $sql) } qw(alice bob stranger watcher);
	is( join(', ', map { "$_: $seen{$_}" } sort keys %seen),
		'alice: tap, bob: other, stranger: , watcher: other tap',
		"owners see their rows of $view");
	return;
}

# A change of each subscription that waits for another one
for my $name (sort keys %owner)
{
	my $at =
	  "FROM parallel_apply.writers WHERE subname = '$name' AND state =";
	my $lock = $subscriber->hold("SELECT FROM $name FOR UPDATE");
	$publisher->sql("UPDATE $name SET v = v + 1");
	$subscriber->wait_until(
		"count(*) = 1 $at 'waiting for lock'",
		'no writer waits for the lock');
	$publisher->sql("UPDATE $name SET v = v + 1");
	$subscriber->wait_until(
		"count(*) = 1 $at 'waiting for dependency'",
		'no writer waits for the other one');
	sees('advice()') if $name eq 'tap';
	is( as( 'alice',
			"SELECT count(*) FROM parallel_apply.advice() WHERE topic = 'lock'"
		),
		$name eq 'tap' ? '1' : '0',
		"only the owner of $name sees the local session that it waits for");
	$lock->release;
	$publisher->wait_applied($name);
}
$subscriber->wait_until(
	'count(DISTINCT subid) = 2 FROM parallel_apply.hot_keys',
	'the waits are not counted');
$subscriber->wait_until(
	'count(DISTINCT subid) = 2 FROM parallel_apply.speedup_estimate',
	'nothing is estimated');
sees($_)
  for qw(subscriptions subscription_stats subscription_config writers tables
  hot_keys speedup_estimate);
is( as( 'alice',
		'SELECT bool_and(key IS NOT NULL) FROM parallel_apply.hot_keys WHERE key_hash IS NOT NULL'
	),
	't',
	'an owner who also owns the table sees the key');

# pg_stat_activity hides from the owner what processes of others are.
is( as('alice', 'SELECT parallel_apply.get_worker_processes()'),
	$subscriber->sql(
		q(SELECT count(*) FROM pg_stat_activity
		WHERE backend_type LIKE 'logical replication %' OR backend_type = 'parallel_apply writer')
	),
	'an owner gets the advice of how many worker processes are in use');

# An owner can wait only for the subscription that it owns.
is(as('alice', q(SELECT parallel_apply.drain('tap'))),
	't', 'an owner may wait');
like(
	(   $subscriber->psql(
			'postgres', q(SET ROLE bob; SELECT parallel_apply.drain('tap')))
	)[2],
	qr/must be owner of subscription tap/,
	'not for another one');

# A transaction of each subscription that fails, and is skipped
$publisher->sql(
	"ALTER TABLE $_ DROP CONSTRAINT ${_}_v_check; INSERT INTO $_ VALUES (2, -1)"
) for sort keys %owner;
$subscriber->wait_until(
	'count(*) = 2 FROM pg_subscription WHERE NOT subenabled',
	'nothing has failed');
$subscriber->wait_until(
	'count(*) = 2 FROM parallel_apply.failed_transactions',
	'the failures are not shown');
sees('failed_transactions');
my %id;
for my $name (sort keys %owner)
{
	$id{$name} =
	  $subscriber->sql("SELECT parallel_apply.skip_transaction('$name')");
	$subscriber->sql("ALTER SUBSCRIPTION $name ENABLE");
	$publisher->wait_applied($name);
}
sees('skipped_transactions');
is( as( 'alice',
		"SELECT statement FROM parallel_apply.skipped_changes($id{tap})"),
	q(INSERT INTO public.tap (id, v) VALUES ('2', '-1');),
	'an owner sees what was skipped');
$subscriber->sql('GRANT SELECT ON tap TO bob');
for my $call ("skipped_changes($id{tap})", "forget($id{tap})")
{
	my (undef, undef, $error) = $subscriber->psql('postgres',
		"SET ROLE bob; SELECT parallel_apply.$call");
	like(
		$error,
		qr/must be owner of subscription tap/,
		"another one may not call $call");
}
as('alice', "SELECT parallel_apply.forget($id{tap})");
is( $subscriber->sql(
		'SELECT subname FROM parallel_apply.skipped_transactions'),
	'other',
	'an owner may forget it');

finish(
	$publisher, $subscriber,
	qr/must be owner of subscription tap/,
	qr/violates check constraint|terminating logical replication worker/);
done_testing();
