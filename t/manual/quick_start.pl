# Promise: the quick start of README.md, as written there, switches the chosen
# subscription to parallel apply, and no other one.  Without the quick start's
# setting, CREATE EXTENSION switches all enabled subscriptions, and reports that, in the
# view at once, too.  The
# query of doc/quick_start.md keeps the libraries that are preloaded already.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($quick_start) =
  slurp_file("$FindBin::RealBin/../../README.md") =~
  /^## Quick start\n(.*?)^## /ms;
my ($setting) = $quick_start =~ /^ {4}(parallel_apply\.writers_per_\w+ = 1)/m;
my @statements = $quick_start =~ /^ {4}((?:CREATE|SELECT) .*;)$/mg;
ok($setting && @statements == 3,
	'the setting and the statements are in README.md');

my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "$setting\n");

my ($add_library) =
  slurp_file("$FindBin::RealBin/../../doc/quick_start.md") =~
  /^ {4}(SELECT 'ALTER SYSTEM .*? \\gexec)$/ms;
for (
	[
		'RESET shared_preload_libraries',
		'parallel_apply',
		'it is the only library'
	],
	[
		'SET shared_preload_libraries = plpgsql',
		'plpgsql, parallel_apply',
		'it is added to others'
	])
{
	my ($before, $after, $name) = @$_;
	$publisher->sql("ALTER SYSTEM $before");
	$publisher->restart;
	$publisher->sql($add_library);
	$publisher->restart;
	is($publisher->sql('SHOW shared_preload_libraries'), $after, $name);
}

my $connstr = $publisher->connstr . ' dbname=postgres';
for my $name ('s', 'other')
{
	$pair->exec_both("CREATE TABLE table_of_$name (id int PRIMARY KEY)");
	$publisher->sql("CREATE PUBLICATION $name FOR TABLE table_of_$name");
	$subscriber->sql(
		"CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name");
	$subscriber->wait_for_subscription_sync($publisher, $name);
}
my $created = <<~'EOT';
	NOTICE:  subscriptions "other", "s" will be applied in parallel
	HINT:  Use parallel_apply.alter_subscription_config(subscription_name, 1) to exclude a subscription.
	EOT

# Return what psql prints on stderr, without the prefix "psql:<stdin>:1: ".
sub messages_of
{
	my ($sql) = @_;
	my ($status, undef, $messages) = $subscriber->psql('postgres', $sql);
	is($status, 0, $sql);
	return $messages =~ s/^psql:\S+ //mgr;
}

sub states_are
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT string_agg(concat_ws(' ', subname, state, writers_running), ', ' ORDER BY subname)
			FROM parallel_apply.subscriptions),
			$expected),
		$name);
	return;
}

is(messages_of($_), '', 'it prints no message') for @statements;
states_are('other native 0, s parallel 4',
	'the subscription that was chosen is applied in parallel');

$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
states_are('other parallel 4, s parallel 4', 'all are, without the setting');

$subscriber->sql('DROP EXTENSION parallel_apply');
$subscriber->poll_query_until('postgres',
	q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'parallel_apply writer')
) or die 'the writers do not exit';
my $apply = $subscriber->apply_pid('s');
$subscriber->stop_waiting($apply, 'LogicalApplyMain');
is(messages_of('CREATE EXTENSION parallel_apply') . "\n",
	$created, 'CREATE EXTENSION names the subscriptions that it switches');
is( $subscriber->sql(
		q(SELECT state, reason FROM parallel_apply.subscriptions WHERE subname = 's')
	),
	'starting|writers are about to be started',
	'and they are about to be switched, even before their apply workers know'
);
kill 'CONT', $apply;
states_are('other parallel 4, s parallel 4', 'and it does');

# A subscription that is disabled or has one writer is not named.
$subscriber->sql(
	q(ALTER SUBSCRIPTION other DISABLE; DROP EXTENSION parallel_apply;
	SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION s IS 'writers=1'));
is(messages_of('CREATE EXTENSION parallel_apply'),
	'', 'others are not named: they are not switched');
$subscriber->sql(
	q(ALTER SUBSCRIPTION other ENABLE; DROP EXTENSION parallel_apply;
	SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION s IS 'writers=1'));
like(
	messages_of('CREATE EXTENSION parallel_apply'),
	qr/^NOTICE: +subscription "other" will be applied in parallel\n/,
	'a single one has its own words');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_proc WHERE proname = 'report_subscriptions')
	),
	'0',
	'no function is left of that');

$publisher->sql("INSERT INTO table_of_$_ VALUES (1)") for 's', 'other';
$publisher->wait_applied($_) for 's', 'other';
$pair->rows_equal("table_of_$_") for 's', 'other';
finish($publisher, $subscriber);
done_testing();
