# Promise: with the default settings of the server and of the extension, two
# subscriptions leave worker slots free.  The busy one gets writers, idle writers exit,
# parallel queries find workers, and a third subscription starts at once.
#
# A lock on a row of the first transaction causes the backlog: its writer waits for
# the lock, and the other writers for their turn.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both("CREATE TABLE $_ (id int PRIMARY KEY, v int)")
  for 'busy', 'quiet', 'third';
$publisher->sql("INSERT INTO $_ SELECT i, 0 FROM generate_series(1, 20) AS i")
  for 'busy', 'quiet', 'third';
$subscriber->create_extension;

# The other files need more worker slots and writers that stay.
my @defaults = split /\n/, $subscriber->sql(
	q(SELECT name || ' = ' || quote_literal(concat(boot_val, unit)) FROM pg_settings
	WHERE name IN ('max_worker_processes', 'max_logical_replication_workers',
		'max_sync_workers_per_subscription', 'max_parallel_workers',
		'max_parallel_workers_per_gather')
		OR name ~ '^parallel_apply\..*(worker|writer)')
);
$subscriber->append_conf('postgresql.conf', join("\n", @defaults) . "\n");
$subscriber->restart;
is($subscriber->sql('SHOW max_worker_processes'),
	'8', 'there are as many worker slots as by default');

# Return the number of workers that a parallel query gets.
$subscriber->sql(
	q(CREATE TABLE big AS SELECT i FROM generate_series(1, 10000) AS i;
	CREATE FUNCTION workers_launched() RETURNS text LANGUAGE plpgsql
		SET parallel_setup_cost = 0
		SET parallel_tuple_cost = 0
		SET min_parallel_table_scan_size = 0
	AS $$
	DECLARE plan json;
	BEGIN
		EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) SELECT count(*) FROM big' INTO plan;
		RETURN substring(plan::text FROM '"Workers Launched": (\d+)');
	END $$)
);

sub queries_get_workers
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres', 'SELECT workers_launched()', $count),
		$name);
	return;
}

my $offset = -s $subscriber->logfile;
$pair->subscribe(
	$_,
	publication => "FOR TABLE $_",
	no_pool => 1) for 'busy', 'quiet';

### idle writers exit

for my $name ('busy', 'quiet')
{
	$subscriber->wait_for_pool($name, 1);
	pass("of the writers of $name, one stays while there is nothing to do");
}
queries_get_workers(2, 'a parallel query gets all workers that it wants');

### a busy subscription

my $lock = $subscriber->hold('SELECT FROM busy WHERE id = 1 FOR UPDATE');
$publisher->sql(join '',
	map { "UPDATE busy SET v = 1 WHERE id = $_;\n" } 1 .. 20);
$subscriber->wait_for_pool('busy', 2);
pass('the busy subscription gets all writers that there is room for');
$subscriber->wait_until(
	q(state = 'degraded' FROM parallel_apply.subscriptions WHERE subname = 'busy'),
	'the state does not show that there are fewer writers than configured');
queries_get_workers(2, 'a parallel query still gets all workers');

### a third subscription

my $third = -s $subscriber->logfile;
$pair->subscribe(
	'third',
	publication => 'FOR TABLE third',
	no_pool => 1);
$pair->rows_equal('third', 'a third subscription is synchronized');
$publisher->sql('UPDATE third SET v = 1');
$publisher->wait_applied('third');
$pair->rows_equal('third', 'and applied');
$subscriber->wait_for_log(
	qr/LOG:  a writer of subscription "busy" exits\n.*DETAIL:  .*"parallel_apply.reserved_worker_processes"/,
	$third);
pass('a writer exits to restore the reserve');
queries_get_workers(1, 'a parallel query still gets a worker');
unlike(
	slurp_file($subscriber->logfile, $offset),
	qr/out of background worker slots/,
	'no worker of the server has lacked a slot');

$lock->release;
$publisher->wait_applied('busy');
$pair->rows_equal('busy');
queries_get_workers(2, 'there are as many slots for queries as before');
is( () =
	  slurp_file($subscriber->logfile, $third) =~
	  /a writer of subscription "busy" exits/g,
	1,
	'a single writer of the busy subscription has exited for that');

finish($publisher, $subscriber);
done_testing();
