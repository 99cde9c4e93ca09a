# Promise: the commands of the manual for the first weeks work as they are written
# there, and print what is written there.  This file: to switch one subscription to
# parallel apply and back, and no other one; to configure it and others by a group, and
# to carry the configuration to another server; to look at it; to pause it; and to deal
# with a transaction that fails.
#
# Others are in files of their own: the rest of the quick start in quick_start.pl,
# alerts in alerts.pl, removal in removal.pl, what slows apply down, rows
# that are missing, and the list of functions and views in looking.pl; dump
# and restore, synchronous replication, wrong settings, restarts and crashes in
# servers.pl; servers that subscribe to each other in mesh.pl; recipes by goal in
# recipes.pl.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use ManualPages;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

### the setting of the quick start ##############################################

my ($setting) = join("\n", blocks_of('README.md')) =~
  /^(parallel_apply\.writers_per_subscription = 1) /m;
ok($setting, 'README.md: the setting');
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "$setting\n");

run_manual_on($subscriber);

### a busy subscription to parallel apply and back, and no other one ############

$pair->exec_both("CREATE TABLE $_ (id int PRIMARY KEY, amount int)")
  for 'orders', 'others';
$subscriber->sql('ALTER TABLE orders ADD CHECK (amount >= 0)');
$publisher->sql(
	'INSERT INTO orders SELECT i, 0 FROM generate_series(11, 19) i');
my $connstr = $publisher->connstr . ' dbname=postgres';
for ([ 's', 'orders' ], [ 'other', 'others' ])
{
	my ($name, $table) = @$_;
	$publisher->sql("CREATE PUBLICATION $name FOR TABLE $table");
	$subscriber->sql(
		"CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name WITH (disable_on_error = true, streaming = off)"
	);
	$subscriber->wait_for_subscription_sync($publisher, $name);
}
execute('README.md', 'CREATE EXTENSION');
execute('README.md', 'SELECT parallel_apply.alter_subscription_config(');
$subscriber->wait_for_pool('s', 4);
$subscriber->wait_until(
	q(count(*) = 1 FROM parallel_apply.subscriptions WHERE subname = 'other' AND reason = 'one writer is configured' AND lag IS NOT NULL),
	'other is not native');
$subscriber->wait_until(
	q(count(*) = 1 FROM parallel_apply.subscriptions WHERE subname = 's' AND state = 'parallel' AND lag IS NOT NULL),
	's is not parallel');
prints_what_is_written('README.md', 'SELECT subname, state, reason');

my $apply_pid = $subscriber->apply_pid('s');
execute_mentioned('README.md', 'SELECT parallel_apply.alter_');
$subscriber->wait_for_pool('s', 0);
$publisher->sql('INSERT INTO orders VALUES (20, 0)');
$publisher->wait_applied('s');
$pair->rows_equal('orders', 'PostgreSQL applies it again');
execute('README.md', 'SELECT parallel_apply.alter_subscription_config(');
$subscriber->wait_for_pool('s', 4);
is($subscriber->apply_pid('s'),
	$apply_pid, 'with the same apply worker all the time');

### to look at it ##############################################################

for my $what ('subscriptions', 'writers', 'advice()')
{
	like(
		execute('README.md', "SELECT * FROM parallel_apply.$what"),
		qr/\(\d+ rows?\)/,
		"README.md: $what");
}
for my $words (
	'SELECT state, reason',
	'SELECT relname, apply_mode',
	'SELECT lag, catch_up',
	'SELECT writer, state',
	'SELECT * FROM parallel_apply.advice(')
{
	like(
		execute_mentioned('doc/quick_start.md', $words),
		qr/\(\d+ rows?\)/,
		"doc/quick_start.md: $words ...");
}

### a group, and the configuration of another server ###########################

my $page = 'doc/configuration.md';
execute($page, $_)
  for map { "SELECT parallel_apply.$_" } 'create_group(',
  'add_subscription(group_name', 'alter_group_config(',
  'alter_subscription_config(subscription_name';
$subscriber->wait_for_pool('s', 0);
execute($page, q(SELECT parallel_apply.alter_subscription_config('s', NULL)));
$subscriber->wait_for_pool('s', 8);
my ($export) = join('', blocks_of($page)) =~ /^psql .*-c '(SELECT .*)'/m;
my $configuration = $subscriber->sql($export);
like(
	$configuration,
	qr/create_group\('reporting', 8\)/,
	'export_config() has the group');
$subscriber->sql(
	"DROP EXTENSION parallel_apply CASCADE; CREATE EXTENSION parallel_apply");
$subscriber->sql($configuration);
is($subscriber->sql($export),
	$configuration, 'what it returns restores the configuration');
$subscriber->wait_for_pool('s', 8);

### to pause and to wait #######################################################

$page = 'doc/functions.md';
execute($page, q(SELECT parallel_apply.pause('s')));
$publisher->sql('INSERT INTO orders VALUES (21, 0)');
like(execute($page, 'SELECT parallel_apply.drain('),
	qr/^ t$/m, 'the tables stand still');
is($subscriber->sql('SELECT count(*) FROM orders WHERE id = 21'),
	'0', 'nothing more is applied');
execute($page, q(SELECT parallel_apply.resume('s')));
my ($wait) = printed($page, 'SELECT parallel_apply.wait_for_lsn(');
my $lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
like(psql_prints($wait =~ s{'0/[0-9A-F]+', '30 s'}{'$lsn', '180 s'}r),
	qr/^ t$/m, 'a position is waited for');
$pair->rows_equal('orders');

### a transaction that fails ###################################################

$page = 'doc/failures.md';

sub make_it_fail
{
	$publisher->sql(
		q(BEGIN; INSERT INTO orders VALUES (1, -5);
		UPDATE orders SET amount = 7 WHERE id = 11; COMMIT));
	$subscriber->wait_until_failed;
	return;
}

sub repair
{
	$subscriber->sql(
		'ALTER TABLE orders DROP CONSTRAINT orders_amount_check');
	return;
}

make_it_fail();
prints_what_is_written($page, 'SELECT subname, remote_xid');
prints_what_is_written($page,
	'SELECT number, statement FROM parallel_apply.failed_changes');
prints_what_is_written($page, 'SELECT parallel_apply.skip_transaction(');
$subscriber->sql('ALTER SUBSCRIPTION s ENABLE');
$publisher->wait_applied('s');
prints_what_is_written($page, 'SELECT id, subname');
like(execute_mentioned($page, 'SELECT pg_size_pretty('),
	qr/^ \d+ kB$/m, 'how large what is stored is');
like(
	execute_mentioned($page, '\dm+'),
	qr/^ parallel_apply +\| kept_messages /m,
	'as psql lists it, too');
prints_what_is_written($page,
	'SELECT number, statement FROM parallel_apply.skipped_changes');
repair();
execute($page, 'CALL parallel_apply.replay(1)');
$pair->rows_equal('orders', 'the transaction is replayed');

# The same by hand
$publisher->sql('DELETE FROM orders WHERE id = 1');
$publisher->wait_applied('s');
$subscriber->sql('ALTER TABLE orders ADD CHECK (amount >= 0)');
make_it_fail();
execute($page, 'SELECT parallel_apply.skip_transaction(');
$subscriber->sql('ALTER SUBSCRIPTION s ENABLE');
$publisher->wait_applied('s');
repair();
my @by_hand = grep { /^BEGIN;/ } blocks_of($page);
is(scalar(@by_hand), 1, "$page: its changes by hand");

# Numbers are not used again, so this transaction has another one than in the page.
my $number =
  $subscriber->sql('SELECT id FROM parallel_apply.skipped_transactions');
psql_prints($by_hand[0] =~ s/\(1\)/($number)/gr);
$pair->rows_equal('orders', 'the changes are made by hand');
is( $subscriber->sql(
		'SELECT count(*) FROM parallel_apply.skipped_transactions'),
	'0',
	'and nothing is stored any more');

finish(
	$publisher, $subscriber,
	qr/violates check constraint "orders_amount_check"/,
	qr/terminating .* due to administrator command/);
done_testing();
