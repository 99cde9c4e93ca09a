# Promise: the commands of the manual for these tasks work as they are written
# there, and print what is written there: to dump a subscriber, and restore it on a
# server with the library and on one without; to make a subscription a synchronous
# standby; to get a setting or an argument wrong; to restart the server, end a
# writer, or kill one; and to switch over to the subscriber.  (first_weeks.pl says where the other tasks are.)
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use ManualPages;
use PapplyTest;
use Programs qw(is_installed);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# There are slots for five writers besides the launcher and two apply workers.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf =>
	  "restart_after_crash = on\nmax_worker_processes = 8\nmax_logical_replication_workers = 4\nmax_sync_workers_per_subscription = 1\n"
  );
$pair->exec_both(
	'CREATE TABLE orders (id int PRIMARY KEY, amount int); CREATE SEQUENCE numbers; CREATE SEQUENCE unused'
);
$pair->exec_both('CREATE TABLE others (id int PRIMARY KEY)');
$subscriber->create_extension;
$pair->subscribe('s', publication => 'FOR TABLE orders');
$subscriber->sql(
	q(SELECT parallel_apply.set_table_option('orders', 'triggers', 'parallel'))
);
run_manual_on($subscriber);

sub apply_continues
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->sql(
		'INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 0 FROM orders');
	$publisher->wait_applied('s');
	$pair->rows_equal('orders', "orders is equal on both sides $when");
	return;
}

apply_continues('at first');

### wrong settings and arguments ###############################################

my $page = 'doc/configuration.md';
run_manual_on($publisher);
prints_what_is_written($page, 'CREATE EXTENSION');
run_manual_on($subscriber);
prints_what_is_written($page, $_)
  for 'ALTER SYSTEM SET parallel_apply.writers_per_subscription = 0',
  q(SELECT parallel_apply.alter_subscription_config('s', 65)),
  q(SELECT parallel_apply.add_subscription('nosuch', 's')),
  q(SELECT parallel_apply.pause('nosuch'));
is($subscriber->sql('SHOW parallel_apply.writers_per_subscription'),
	'4', 'the setting is unchanged');
$subscriber->wait_for_pool('s', 4);
prints_what_is_written($page,
	q(SELECT parallel_apply.alter_subscription_config('s', 20)));
$subscriber->wait_until(
	q(state = 'degraded' AND writers_running = 6 FROM parallel_apply.subscriptions WHERE subname = 's'),
	'it does not show that there are too few worker slots');
prints_what_is_written($page, 'SELECT state, reason');
apply_continues('with fewer writers than configured');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('s', NULL)));
$subscriber->wait_until(
	q(state = 'parallel' AND writers_running = 4 FROM parallel_apply.subscriptions WHERE subname = 's'),
	'the state does not recover');

# A line of postgresql.conf that is wrong
$subscriber->reload_with('parallel_apply.queue_size = nonsense');
$subscriber->wait_for_log(
	qr/LOG:  invalid value for parameter "parallel_apply.queue_size": "nonsense"/
);
is($subscriber->sql('SHOW parallel_apply.queue_size'),
	'32MB', 'a wrong line of the file is ignored');
$subscriber->reload_with('parallel_apply.queue_size = 32MB');

### dump and restore ###########################################################

# The server waits only some seconds for sessions that are about to exit.
sub drop_database
{
	my ($node) = @_;
	$node->end_sessions_of;
	$node->wait_until(
		q(count(*) = 0 FROM pg_stat_activity WHERE datname = 'app'),
		'a session does not end');
	$node->sql('DROP DATABASE app');
	return;
}

$subscriber->sql(
	q(SELECT parallel_apply.create_group('reporting', 3);
	SELECT parallel_apply.add_subscription('reporting', 's')));
$subscriber->wait_for_pool('s', 3);
$subscriber->sql(q(SELECT parallel_apply.pause('s')));
my $export = 'SELECT parallel_apply.export_config()';
my $configuration = $subscriber->sql($export);
my $dump = $subscriber->basedir . '/app.dump';
run_program($page, 'pg_dump -Fc', 'app.dump' => $dump, app => 'postgres');
$subscriber->sql('CREATE DATABASE app');
run_program($page, 'pg_restore -d', 'app.dump' => $dump);
is($subscriber->safe_psql('app', $export),
	$configuration,
	'with the library, groups, options and the pause are restored');
is( $subscriber->safe_psql(
		'app',
		'SELECT writers_wanted, source, paused FROM parallel_apply.subscription_config'
	),
	'3|group|t',
	'and have their effect');
is( $subscriber->safe_psql(
		'app',
		q(SELECT subenabled FROM pg_subscription
		WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = 'app'))
	),
	'f',
	'the restored subscription is disabled');
$subscriber->safe_psql('app',
	'ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
drop_database($subscriber);
$subscriber->sql(q(SELECT parallel_apply.resume('s')));

my $list = $subscriber->basedir . '/app.list';
$publisher->sql('CREATE DATABASE app');
run_manual_on($publisher);
run_program(
	$page,
	'pg_restore -l',
	'app.dump' => $dump,
	'app.list' => $list);
run_program(
	$page,
	'pg_restore --exit-on-error',
	'app.dump' => $dump,
	'app.list' => $list);
is( $publisher->safe_psql(
		'app',
		q(SELECT (SELECT count(*) FROM orders) > 0, (SELECT count(*) FROM pg_subscription),
			(SELECT count(*) FROM pg_seclabel) + (SELECT count(*) FROM pg_foreign_server))
	),
	't|1|0',
	'without the library, the rest is restored');
$publisher->safe_psql('app',
	'ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
drop_database($publisher);
run_manual_on($subscriber);
apply_continues('after the dump');

### a synchronous standby ######################################################

$page = 'doc/guarantees.md';
run_manual_on($publisher);
execute($page, 'ALTER SYSTEM SET synchronous_standby_names');
execute($page, 'SELECT pg_reload_conf()');
run_manual_on($subscriber);
my $old = $subscriber->apply_pid('s');
execute($page, 'ALTER SUBSCRIPTION s DISABLE');
$subscriber->wait_until(
	q(count(*) = 0 FROM pg_stat_activity WHERE backend_type ~ 'parallel_apply writer|logical replication (apply )?worker'),
	'the subscription does not stop');
execute($page, 'ALTER SUBSCRIPTION s ENABLE');
isnt($subscriber->apply_pid('s'),
	$old, 'the subscription has connected again');
$subscriber->wait_for_pool('s', 3);
$publisher->wait_for_sync_state('s', 'sync');
run_manual_on($publisher);
prints_what_is_written($page, 'SELECT application_name');

for my $id (101 .. 103)
{
	$publisher->sql(
		"SET synchronous_commit = remote_apply; INSERT INTO orders VALUES ($id, 0)"
	);
	is($subscriber->sql("SELECT count(*) FROM orders WHERE id = $id"),
		'1', 'a commit that has returned is visible on the subscriber');
}

# A pause, which the manual warns of
$subscriber->sql(q(SELECT parallel_apply.pause('s')));
my $session = $publisher->background_psql('postgres');
$session->query_until(qr/begun/,
	"\\echo begun\nINSERT INTO orders VALUES (104, 0);\n");
$publisher->poll_query_until('postgres',
	q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ~ '104')
) or die 'the commit does not wait';
is($subscriber->sql('SELECT count(*) FROM orders WHERE id = 104'),
	'0', 'a commit waits while the subscription is paused');
$subscriber->sql(q(SELECT parallel_apply.resume('s')));
$session->quit;
apply_continues('with a synchronous standby');
$publisher->sql(
	'ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()');

### restarts and crashes #######################################################

$page = 'doc/operation.md';
run_manual_on($subscriber);
$subscriber->wait_until(
	q(state = 'parallel' AND writers_running = 3 AND lag = interval '0' FROM parallel_apply.subscriptions),
	'the subscription is not in its normal state');
my $offset = -s $subscriber->logfile;
run_program($page, 'pg_ctl', logfile => $subscriber->logfile);
$subscriber->wait_until(
	q(state = 'parallel' AND writers_running = 3 AND lag = interval '0' FROM parallel_apply.subscriptions),
	'the subscription does not start again');
prints_what_is_written($page, 'SELECT state, writers_running');
apply_continues('after a restart');
unlike(
	slurp_file($subscriber->logfile, $offset),
	qr/FATAL: +terminating background worker "parallel_apply|parallel_apply writer.*exited with exit code|has ended unexpectedly/,
	'no writer is reported');

my @pids = $subscriber->writer_pids('s');
$old = $subscriber->apply_pid('s');
$offset = -s $subscriber->logfile;
execute($page, 'SELECT pg_terminate_backend(');
$subscriber->wait_for_log(
	qr/will restart because writer 1 has ended unexpectedly/, $offset);
$subscriber->wait_until(
	"writers_running = 3 AND state = 'parallel' AND pid <> $old FROM parallel_apply.subscriptions",
	'the writer does not come back');
isnt(($subscriber->writer_pids('s'))[0], $pids[0], 'it is another process');
apply_continues('after the end of a writer');

$offset = -s $subscriber->logfile;
run_program($page, 'kill -9');
$subscriber->wait_for_log(
	qr/background worker "parallel_apply writer[^"]*" \(PID \d+\) was terminated by signal 9.*all server processes terminated; reinitializing.*database system is ready to accept connections/s,
	$offset);
$subscriber->wait_until(
	q(state = 'parallel' AND writers_running = 3 FROM parallel_apply.subscriptions),
	'the subscription does not start again');
apply_continues('after a crash');
is( $publisher->sql('SELECT count(*), count(DISTINCT id) FROM orders'),
	$subscriber->sql('SELECT count(*), count(DISTINCT id) FROM orders'),
	'nothing is lost, and nothing is applied twice');

### switching over to the subscriber ###########################################

$page = 'doc/high_availability.md';
$subscriber->append_conf('postgresql.conf',
	"wal_level = logical\nmax_wal_senders = 10");
$subscriber->restart;
apply_continues('after wal_level was changed');
$publisher->sql(q(SELECT setval('numbers', 41)));
run_manual_on($subscriber);
like(execute($page, 'SELECT srrelid'),
	qr/\(0 rows\)/, 'all tables are complete');
run_manual_on($publisher);
my ($position) =
  execute($page, 'SELECT pg_current_wal_lsn()') =~ m{(\w+/\w+)};
run_manual_on($subscriber);
my ($wait) =
  printed($page, q{SELECT parallel_apply.wait_for_lsn('s', 'POSITION', '5});
like(psql_prints($wait =~ s/POSITION/$position/r),
	qr/^ t$/m, 'the subscriber has everything');
SKIP:
{
	skip 'pg_verify_subscription was not built', 3
	  if !is_installed('pg_verify_subscription');
	like(
		run_program($page, 'pg_verify_subscription', app => 'postgres'),
		qr/^public\.orders: equal: \d+ rows$/m,
		'both sides are equal');
}
my ($statements) = printed($page, 'SELECT format(');
my $setval = $publisher->sql($statements);
is( $setval,
	q(SELECT setval('public.numbers', 141);),
	'one sequence has been used');
run_manual_on($subscriber);
psql_prints($setval);
is($subscriber->sql(q(SELECT nextval('numbers'))),
	'142', 'it continues on the other side');
execute($page, 'DROP SUBSCRIPTION s');
execute($page, 'CREATE PUBLICATION back');
run_manual_on($publisher);
my ($back) = printed($page, 'CREATE SUBSCRIPTION back');
my $conninfo = $subscriber->connstr . ' dbname=postgres';
psql_prints($back =~ s/host=subscriber dbname=app/$conninfo/r);
$subscriber->sql('INSERT INTO orders VALUES (1000, 1)');
$subscriber->wait_for_catchup('back');
$pair->rows_equal('orders', 'the old publisher follows the new one');

finish(
	$publisher,
	$subscriber,
	qr/"parallel_apply" must be loaded via "shared_preload_libraries"/,
	qr/0 is outside the valid range for parameter|number of writers must be|"nosuch" does not exist/,
	qr/invalid value for parameter "parallel_apply.queue_size"|configuration file .* contains errors/,
	qr/terminating .* due to administrator command|terminating connection because of crash/
);
done_testing();
