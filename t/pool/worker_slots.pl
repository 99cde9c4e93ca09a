# Promise: with the default settings of the server and of the extension, except for a
# shorter time after which idle writers exit, two subscriptions leave worker slots free.
# The busy one gets writers, idle writers exit, parallel queries find workers, and a third
# subscription starts at once.  If more workers start at once than there are free slots,
# writers exit, the others get slots at the server's next attempt, and the writers come
# back afterwards.  Enabled subscriptions without an apply worker get their slots from idle
# writers, and so do subscriptions that have work and lack writers.  Writers that have work
# stay.
#
# A lock on a row of the first transaction causes the backlog: its writer waits for
# the lock, and the other writers for their turn.  None of them exits meanwhile, so
# locks in all subscriptions are certain to leave no slot to other workers.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
for my $table ('busy', 'quiet', 'third', 'fourth', 'fifth')
{
	$pair->exec_both("CREATE TABLE $table (id int PRIMARY KEY, v int)");
	$publisher->sql(
		"INSERT INTO $table SELECT i, 0 FROM generate_series(1, 20) AS i");
}
$subscriber->create_extension;

# The other files need more worker slots and writers that stay.
my @defaults = split /\n/, $subscriber->sql(
	q(SELECT name || ' = ' || quote_literal(concat(boot_val, unit)) FROM pg_settings
	WHERE name IN ('max_worker_processes', 'max_logical_replication_workers',
		'max_sync_workers_per_subscription', 'max_parallel_workers',
		'max_parallel_workers_per_gather')
		OR name ~ '^parallel_apply\..*(worker|writer)')
);
$subscriber->append_conf('postgresql.conf',
	join("\n", @defaults, "parallel_apply.writer_idle_timeout = '100ms'\n"));
$subscriber->restart;
is($subscriber->sql('SHOW max_worker_processes'),
	'8', 'there are as many worker slots as by default');

# Return the number of workers that a parallel query gets, two at most.
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
			'postgres', "SELECT workers_launched()::int >= $count"),
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

sub make_backlog
{
	my ($table) = @_;
	$publisher->sql(join '',
		map { "UPDATE $table SET v = v + 1 WHERE id = $_;\n" } 1 .. 20);
	return;
}

make_backlog('busy');
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
# Of which subscription, and how many, depends on how long the copy of the table took.
$subscriber->wait_for_log(
	qr/LOG:  \d writers? of subscription "(busy|quiet)" exits?\n.*DETAIL:  .*"parallel_apply.reserved_worker_processes"/,
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

# For some time after a burst of work, although its writers exit
my $end = $subscriber->sql('SELECT clock_timestamp()');
$subscriber->wait_until(
	"clock_timestamp() > '$end'::timestamptz + interval '6 s'",
	'time does not pass');
# With which the apply worker looks again
$publisher->sql('UPDATE busy SET v = v + 1 WHERE id = 1');
$publisher->wait_applied('busy');
is( $subscriber->sql(
		q(SELECT state FROM parallel_apply.subscriptions WHERE subname = 'busy')
	),
	'degraded',
	'the lack of writers is still shown');

# Which two have a writer depends on who was first.
my $set_config = 'SELECT parallel_apply.alter_subscription_config';
$subscriber->wait_until(
	'count(*) = 2 AND count(DISTINCT subname) = 2 FROM parallel_apply.writers WHERE pid IS NOT NULL',
	'there are no two subscriptions with a writer');
pass('of three subscriptions, two keep their last writer');
my $without = $subscriber->sql(
	'SELECT subname FROM pg_subscription WHERE subname NOT IN (SELECT subname FROM parallel_apply.writers WHERE pid IS NOT NULL)'
);
my ($giver) = grep { $_ ne $without } 'busy', 'quiet';
$subscriber->sql("$set_config('$giver', 1)");
$subscriber->wait_for_pool($without, 1);
pass('the third one gets that of one that is configured to have none');
$subscriber->sql("$set_config('$giver', NULL)");
$subscriber->sql('DROP SUBSCRIPTION third');

### more workers at once than there are slots for

# By default the server has no more than four apply and synchronization workers.
$subscriber->append_conf('postgresql.conf',
	'max_logical_replication_workers = 8');
$subscriber->restart;
my @tables = ('busy', 'quiet');
my @locks =
  map { $subscriber->hold("SELECT FROM $_ WHERE id = 1 FOR UPDATE") } @tables;
$subscriber->wait_for_pool($_) for @tables;
make_backlog($_) for @tables;
$subscriber->wait_until(
	q(count(*) = 3 FROM parallel_apply.writers WHERE state LIKE 'waiting for %'),
	'not all slots for writers are occupied');

my @new = ('fourth', 'fifth');
$offset = -s $subscriber->logfile;
for my $name (@new)
{
	$publisher->sql("CREATE PUBLICATION $name FOR TABLE $name");
	$subscriber->sql("CREATE SUBSCRIPTION $name CONNECTION '"
		  . $publisher->connstr
		  . " dbname=postgres' PUBLICATION $name");
}
$subscriber->wait_for_log(qr/out of background worker slots/, $offset);
pass('a worker that copies a table finds no slot');
$subscriber->wait_for_log(
	qr/LOG:  \d writers? of subscription "(busy|quiet)" exits?/, $offset);
$_->query_safe('COMMIT') for @locks;
end_sessions(@locks);
for my $name (@new)
{
	$subscriber->wait_for_subscription_sync($publisher, $name);
	$pair->rows_equal($name, "$name gets that of a writer");
}
$publisher->wait_applied($_) for @tables;
$pair->rows_equal($_) for @tables;
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT count(*) < 2 FROM parallel_apply.writers WHERE writer > 0'),
	'there are no more writers than the reserve allows');

$subscriber->sql("DROP SUBSCRIPTION $_") for @new;
$subscriber->wait_for_pool($_) for @tables;
pass('the writers come back');
make_backlog($_) for @tables;
$publisher->wait_applied($_) for @tables;
$pair->rows_equal($_) for @tables;

### more subscriptions than there are free slots

# The launcher starts no apply worker before the writers have exited.
my @late = map { "late$_" } 1 .. 5;
$publisher->sql('CREATE PUBLICATION late FOR TABLE third');
$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = -1');
$subscriber->wait_for_pool($_) for @tables;
$subscriber->sql("CREATE SUBSCRIPTION $_ CONNECTION '"
	  . $publisher->connstr
	  . " dbname=postgres' PUBLICATION late WITH (enabled = false, copy_data = false)"
) for @late;
$subscriber->wait_until(
	q(count(*) = 3 FROM parallel_apply.writers WHERE pid IS NOT NULL),
	'not all slots for writers are occupied');
my $launcher = $subscriber->sql(
	q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'logical replication launcher')
);
$subscriber->stop_waiting($launcher, 'LogicalLauncherMain');
$offset = -s $subscriber->logfile;
$subscriber->sql(join ';', 'BEGIN',
	(map { "ALTER SUBSCRIPTION $_ ENABLE" } @late), 'COMMIT');
$subscriber->wait_until(
	q(count(*) = 0 FROM parallel_apply.writers WHERE pid IS NOT NULL),
	'writers occupy slots that apply workers need');
kill 'CONT', $launcher;
$subscriber->wait_until(
	'count(pid) = 7 FROM pg_stat_subscription WHERE relid IS NULL',
	'not all apply workers run');
unlike(
	slurp_file($subscriber->logfile, $offset),
	qr/out of background worker slots/,
	'each subscription finds a slot for its apply worker at once');
$subscriber->sql("DROP SUBSCRIPTION $_") for @late;
$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = 1');
$subscriber->wait_for_pool($_) for @tables;
make_backlog($_) for @tables;
$publisher->wait_applied($_) for @tables;
$pair->rows_equal($_) for @tables;

### idle writers of one subscription, and work of another one

# There are three slots for writers, and none exits for being idle.
$subscriber->reload_with("parallel_apply.writer_idle_timeout = '1h'");

# Where transactions may be streamed in parallel, the apply worker starts again, and another
# subscription must not get its slot meanwhile.
sub stop_writers_of_quiet
{
	my $statement = "$set_config('quiet', 1)";
	my $starts_again = $subscriber->sql(
		q(SELECT substream::text = 'p' FROM pg_subscription WHERE subname = 'quiet')
	);
	if ($starts_again eq 't')
	{
		$subscriber->restart_apply('quiet', $statement);
	}
	else
	{
		$subscriber->sql($statement);
	}
	$subscriber->wait_for_pool('quiet', 0);
	return;
}

# Assert that a subscription that has work gets this many writers.
sub gets_writers
{
	my ($table, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session =
	  $subscriber->hold("SELECT FROM $table WHERE id = 1 FOR UPDATE");
	make_backlog($table);
	$subscriber->wait_for_pool($table, $count);
	pass($name);
	$session->release;
	$publisher->wait_applied($table);
	$pair->rows_equal($table);
	return;
}

stop_writers_of_quiet();
gets_writers('busy', 3, 'a subscription has all writers');
$subscriber->sql("$set_config('quiet', 4)");
$subscriber->wait_for_pool('quiet');
gets_writers('quiet', 2, 'one without writers gets those that are idle');
$subscriber->wait_for_pool('busy', 1);
pass('all but those that idle_writers_per_subscription promises');
gets_writers('busy', 2, 'they come back when there is work');
$subscriber->wait_for_pool('quiet', 1);
pass('from the subscription that is idle');

# A pool that starts with fewer writers than it wants does not lack any before it has work.
stop_writers_of_quiet();
$subscriber->sql("$set_config('busy', 2)");
gets_writers('busy', 2, 'there is one slot left');
$subscriber->sql("$set_config('quiet', 4)");
$subscriber->wait_for_pool('quiet', 1);
gets_writers('quiet', 2, 'a subscription that has one writer gets another');
$subscriber->wait_for_pool('busy', 1);
pass('from the other one');

### work of one subscription, and of another one

# Each of two writers gets a transaction.  Return the greatest of their numbers, their
# process IDs, and the session whose lock holds them up.
sub occupy_two
{
	my $session =
	  $subscriber->hold('SELECT FROM busy WHERE id = 1 FOR UPDATE');
	foreach my $id (1, 2)
	{
		$publisher->sql("UPDATE busy SET v = v + 1 WHERE id = $id");
		$subscriber->wait_until(
			"count(*) = $id FROM parallel_apply.writers WHERE subname = 'busy' AND state LIKE 'waiting for %'",
			"no writer has transaction $id");
	}
	my ($last, $pids) = split /\|/, $subscriber->sql(
		q(SELECT max(writer), string_agg(pid::text, ',' ORDER BY pid) FROM parallel_apply.writers
		WHERE subname = 'busy' AND state LIKE 'waiting for %'));
	return ($last, $pids, $session);
}

sub release_two
{
	my ($session) = @_;
	$session->release;
	$publisher->wait_applied('busy');
	$pair->rows_equal('busy');
	return;
}

$subscriber->reload_with('parallel_apply.leader_participation = off');
stop_writers_of_quiet();
$subscriber->sql("$set_config('busy', 4)");
gets_writers('busy', 3, 'a subscription has all writers again');

# The first idle one gets a transaction, but it may just have been flushing.  Only the last
# one exits.
my ($last, $pids, $session) = occupy_two();
foreach (1 .. 100)
{
	last if $last == 2;
	release_two($session);
	($last, $pids, $session) = occupy_two();
}
$subscriber->sql("$set_config('quiet', 4)");
$subscriber->wait_for_pool('quiet', 1);
pass('one without writers gets the one that is idle');
release_two($session);
(undef, my $same, $session) = occupy_two();
is($same, $pids, 'those that have transactions stay');
release_two($session);

finish($publisher, $subscriber,
	qr/terminating .* due to administrator command/);
done_testing();
