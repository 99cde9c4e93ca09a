# Promise: if another library has replaced the functions by which an apply worker calls
# parallel_apply, views and advice() show that the worker does not use it.
#
# A setting of libraries made with SELFTEST=1 does what such a library would do.
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

if ($subscriber->psql('postgres',
		'SHOW parallel_apply.selftest_server_functions') != 0)
{
	plan skip_all => 'the library was made without SELFTEST=1';
}

sub state_of
{
	return $subscriber->sql(
		q(SELECT state || ': ' || reason FROM parallel_apply.subscriptions));
}

# Another apply worker has received something.
sub insert_after_restart
{
	my ($setting, $id) = @_;
	$subscriber->append_conf('postgresql.conf',
		"parallel_apply.selftest_server_functions = $setting");
	$subscriber->restart;
	$publisher->sql("INSERT INTO items VALUES ($id)");
	$publisher->wait_applied;
	return;
}

insert_after_restart('on', 1);
is( state_of(),
	'degraded: the apply worker does not use parallel_apply, although the library is loaded',
	'the view shows that functions are replaced');
like(
	$subscriber->sql(
		q(SELECT level || ' ' || evidence FROM parallel_apply.advice() WHERE topic = 'state')
	),
	qr/^warning .*does not use parallel_apply/,
	'and so does advice()');
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$subscriber->wait_until(
	q(pid IS NULL FROM pg_stat_subscription WHERE subname = 'tap'),
	'the apply worker does not end');
like(state_of(), qr/^disabled: /, 'but not without an apply worker');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');

insert_after_restart('off', 2);
$subscriber->wait_for_pool('tap');
unlike(state_of() // '',
	qr/degraded/, 'nor if the apply worker uses the library');
$pair->tables_equal('in the end', 'items');
finish($publisher, $subscriber, worker_terminated());
done_testing();
