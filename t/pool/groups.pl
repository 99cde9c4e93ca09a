# Promise: the number of writers follows what is configured for a subscription or
# its group when that is committed.  What is rolled back has no effect.  The
# configuration belongs to the subscription, and is dumped with it.
#
# A load of single transactions runs all the time.  None of them may be lost or
# repeated, and the apply worker remains the same.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();

$pair->create_accounts;
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = off');

sub call
{
	my ($call) = @_;
	return $subscriber->sql("SELECT parallel_apply.$call");
}

### changes

my $apply_pid = $subscriber->apply_pid('tap');
call(q(create_group('reporting', 6)));
$pair->under_load(
	sub {
		for (
			[ q(add_subscription('reporting', 'tap')), 6 ],
			[ q(alter_group_config('reporting', 3)), 3 ],
			[ q(alter_subscription_config('tap', 5)), 5 ],
			[ q(alter_subscription_config('tap', 1)), 0 ],
			[ q(alter_group_config('reporting', 2)), 0 ],
			[ q(alter_subscription_config('tap', NULL)), 2 ],
			[ q(alter_group_config('reporting', NULL)), 4 ],
			[ q(alter_group_config('reporting', 1)), 0 ],
			[ q(remove_subscription('reporting', 'tap')), 4 ])
		{
			my ($call, $writers) = @$_;
			call($call);
			$subscriber->wait_for_pool('tap', $writers);
			$subscriber->wait_for_progress;
			ok(1, "$call: " . ($writers || "PostgreSQL's own apply"));
		}

		my $session = $subscriber->hold(
			q(SELECT parallel_apply.alter_subscription_config('tap', 7)));
		$subscriber->wait_for_progress;
		is(scalar($subscriber->writer_pids('tap')),
			4, 'an uncommitted change has no effect');
		$session->query_safe('ROLLBACK');
		$session->quit;
		$subscriber->wait_for_progress;
		is(scalar($subscriber->writer_pids('tap')),
			4, 'nor does a change that was rolled back');
	});
$pair->accounts_are_equal('after all of these changes');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'with the same apply worker all the time');

# The apply worker is idle; DROP SERVER and SECURITY LABEL are the server's
# commands.
call(q(add_subscription('reporting', 'tap')));
$subscriber->wait_for_pool('tap', 0);
$subscriber->sql('DROP SERVER parallel_apply_reporting');
$subscriber->wait_for_pool('tap', 4);
$subscriber->sql(
	q(SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION tap IS 'writers=3'));
$subscriber->wait_for_pool('tap', 3);
is($subscriber->apply_pid('tap'),
	$apply_pid, 'a server or label that is changed by hand counts as well');

### two sessions

sub waits_for_lock
{
	my ($sql) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/begun/, "\\echo begun\n$sql;\n");
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'object')
	) or die "$sql does not wait";
	return $session;
}

call(q(create_group('reporting', 6)));
my $first = $subscriber->hold(
	q(SELECT parallel_apply.add_subscription('reporting', 'tap')));
my $second = waits_for_lock(q(SELECT parallel_apply.drop_group('reporting')));
$first->query_safe('COMMIT');
$second->query('SELECT 1');
like(
	$second->{stderr},
	qr/cannot drop group "reporting" because it has subscriptions/,
	'a group is not dropped while a subscription becomes a member');
$second->quit;

$first->query_safe(
	q(BEGIN; SELECT parallel_apply.alter_subscription_config('tap', 2)));
$second = waits_for_lock(
	q(SELECT parallel_apply.remove_subscription('reporting', 'tap')));
$first->release;
$second->query_safe('SELECT 1');
$second->quit;
is( $subscriber->sql(
		'SELECT group_name, num_writers FROM parallel_apply.subscription_config'
	),
	'|2',
	'two changes of one subscription both count');

### rename, dump and restore

call(q(add_subscription('reporting', 'tap')));
$subscriber->sql('ALTER SUBSCRIPTION tap RENAME TO renamed');
$publisher->sql('UPDATE accounts SET balance = balance');
$publisher->wait_applied('renamed');
$subscriber->wait_for_pool('renamed', 2);
call(q(alter_subscription_config('renamed', NULL)));
$subscriber->wait_for_pool('renamed', 6);
call(q(create_group('archive')));
call(q(create_group('a, "b"', 7)));
$subscriber->sql(
	"CREATE SUBSCRIPTION other CONNECTION 'dbname=nowhere' PUBLICATION nothing
		WITH (connect = false, slot_name = NONE);
	SELECT parallel_apply.alter_subscription_config('other', 9),
		parallel_apply.add_subscription('a, \"b\"', 'other')");

my $config = q(SELECT * FROM parallel_apply.groups ORDER BY group_name;
	SELECT subname, group_name, num_writers, source
	FROM parallel_apply.subscription_config ORDER BY subname);
my $dump = $subscriber->basedir . '/dump.sql';
$subscriber->command_ok(
	[ 'pg_dump', '-f', $dump, $subscriber->connstr('postgres') ],
	'pg_dump of the database with its groups');
$subscriber->sql('CREATE DATABASE restored');
$subscriber->command_ok(
	[
		'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
		$subscriber->connstr('restored')
	],
	'its restore into another one');
is( $subscriber->safe_psql('restored', $config),
	$subscriber->sql($config),
	'has all groups, and the configuration of each subscription');
is( $subscriber->safe_psql(
		'restored',
		'SELECT group_name, source FROM parallel_apply.subscription_config ORDER BY subname'
	),
	qq(a, "b"|subscription\nreporting|group),
	'by its name');
$subscriber->safe_psql('restored',
	"ALTER SUBSCRIPTION $_ DISABLE; ALTER SUBSCRIPTION $_ SET (slot_name = NONE);"
	  . "DROP SUBSCRIPTION $_")
  for qw(renamed other);
$subscriber->sql('DROP SUBSCRIPTION other');

$pair->rows_equal('accounts');
finish($publisher, $subscriber,
	qr/cannot drop group "reporting"|connection to client lost/);
done_testing();
