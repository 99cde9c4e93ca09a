# Promise: the number of writers follows the settings at any time, and a lack of
# worker slots costs speed and nothing else.  Each subscription has a pool of its
# own.  A database without the extension has none.
#
# A load of single transactions runs all the time.  A chain of balances shows that
# none of them is lost or repeated.
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

sub configure
{
	my (%settings) = @_;
	$subscriber->append_conf('postgresql.conf',
		join "\n", map { "$_ = $settings{$_}" } sort keys %settings);
	$subscriber->reload;
	return;
}

### reload

my $apply_pid = $subscriber->apply_pid('tap');
$subscriber->wait_for_pool('tap', 4);
$pair->under_load(
	sub {
		# Columns: configured writers, maximum, the lesser of the two
		for ([ 2, 8, 2 ], [ 6, 8, 6 ], [ 6, 3, 3 ], [ 1, 3, 0 ], [ 4, 64, 4 ])
		{
			my ($writers, $max, $effective) = @$_;
			configure(
				'parallel_apply.writers_per_subscription' => $writers,
				'parallel_apply.max_writers_per_subscription' => $max);
			$subscriber->wait_for_pool('tap', $effective);
			$subscriber->wait_for_progress;
			is(scalar($subscriber->writer_pids('tap')), $effective,
				"$writers writers, at most $max: "
				  . ($effective || "PostgreSQL's own apply"));
		}
	});
$pair->accounts_are_equal('after all of these numbers');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'with the same apply worker all the time');

# A setting that the extension does not have is an error, at a reload as well.
my $log_offset = -s $subscriber->logfile;
configure('parallel_apply.writers_per_subscription' => 65);
$subscriber->wait_for_log(
	qr/65 is outside the valid range for parameter "parallel_apply.writers_per_subscription"/,
	$log_offset);
is(scalar($subscriber->writer_pids('tap')),
	4, 'a value out of range changes nothing');
configure('parallel_apply.writers_per_subscription' => 4);

### several subscriptions and databases

$pair->exec_both('CREATE DATABASE plain');
$pair->exec_both('CREATE TABLE plain (id int PRIMARY KEY)', 'plain');
$pair->exec_both('CREATE TABLE second (id int PRIMARY KEY)');
$pair->subscribe(
	'plain',
	db => 'plain',
	no_pool => 1);
$pair->subscribe(
	'second',
	publication => 'FOR TABLE second',
	with => 'streaming = off');
$subscriber->wait_for_pool('second', 4);
$subscriber->sql(
	'ALTER SUBSCRIPTION tap REFRESH PUBLICATION WITH (copy_data = false)');
$publisher->safe_psql('plain', "INSERT INTO plain VALUES ($_)") for 1 .. 5;
$publisher->wait_for_catchup('plain');
$pair->rows_equal('plain',
	'a database without the extension is replicated as ever', 'plain');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_stat_activity
		WHERE datname = 'plain' AND backend_type LIKE 'parallel_apply writer%')),
	'0',
	'and has no writers');
is( $subscriber->sql(
		'SELECT subname, count(*) FROM parallel_apply.writers GROUP BY subname ORDER BY subname'
	),
	"second|4\ntap|4",
	'each subscription has writers of its own');
$subscriber->create_extension('plain');
$subscriber->wait_for_pool('plain', 4, 'plain');
is( $subscriber->safe_psql(
		'plain', 'SELECT DISTINCT subname FROM parallel_apply.writers'),
	'plain',
	'and each database shows its own');

$subscriber->safe_psql('plain', 'DROP SUBSCRIPTION plain');

### too few worker slots

sub restart_with
{
	my ($max_worker_processes) = @_;
	$subscriber->append_conf('postgresql.conf',
		"max_worker_processes = $max_worker_processes");
	$log_offset = -s $subscriber->logfile;
	$subscriber->restart;
	return;
}

sub missing_writers
{
	my ($running) = @_;
	return
	  qr/WARNING:  could not start all writers of subscription "tap"\n.*DETAIL:  $running of 4 writers are running\.\n.*HINT:  .*"max_worker_processes"/;
}

# The launcher, one apply worker with four writers, and the other one with two
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
restart_with(9);
$subscriber->wait_for_pool('second', 4);
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$pair->under_load(
	sub {
		$subscriber->wait_for_pool('tap', 2);
		$subscriber->wait_for_progress;
		is(scalar($subscriber->writer_pids('tap')),
			2, 'there are as many writers as slots for them');
		$apply_pid = $subscriber->apply_pid('tap');
		$subscriber->sql('DROP SUBSCRIPTION second');
		$subscriber->wait_for_pool('tap', 4);
		$subscriber->wait_for_progress;
	});
$pair->accounts_are_equal(
	'with fewer writers than wanted, and then with all');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'slots that become free are used without a restart');
like(slurp_file($subscriber->logfile, $log_offset),
	missing_writers(2),
	'the log shows what is missing, and a hint the reason');
is( () =
	  slurp_file($subscriber->logfile, $log_offset) =~
	  /could not start all writers/g,
	1,
	'and says it once');
$subscriber->wait_for_log(
	qr/LOG:  parallel apply of subscription "tap" has recovered\n.*DETAIL:  All 4 writers are running/,
	$log_offset);
pass('and that all are there again');

# The launcher and the apply worker
restart_with(2);
$pair->under_load(sub { $subscriber->wait_for_progress for 1 .. 2; });
$pair->accounts_are_equal('with no slot for any writer');
is(scalar($subscriber->writer_pids('tap')),
	0, "without writers, PostgreSQL's own apply continues");
like(slurp_file($subscriber->logfile, $log_offset),
	missing_writers(0), 'and the log shows why there are none');

# The launcher, the apply worker with its writers, and then another worker of the
# server, in the same database or in another one, which finds one slot free for two
configure('parallel_apply.reserved_worker_processes' => 1);
restart_with(7);
$subscriber->wait_for_pool('tap', 4);
$pair->exec_both('CREATE TABLE third (id int PRIMARY KEY)');
$publisher->sql('INSERT INTO third VALUES (1)');
$pair->subscribe(
	'third',
	publication => 'FOR TABLE third',
	no_pool => 1);
$pair->rows_equal('third',
	'another subscription gets the slots that it needs, to copy tables as well'
);
$pair->under_load(sub { $subscriber->wait_for_progress });
$pair->accounts_are_equal('with fewer writers after that');
$subscriber->wait_for_log(
	qr/WARNING:  could not start all writers of subscription "tap"/,
	$log_offset);

# The last writer.  The apply worker remains, also where it would start parallel apply
# workers if it had been told not to use writers.
$subscriber->sql('ALTER SUBSCRIPTION third DISABLE');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (streaming = parallel)')
  if $subscriber->pg_version >= 16;
restart_with(4);
$subscriber->wait_for_pool('tap', 1);
$apply_pid = $subscriber->apply_pid('tap');
$subscriber->sql('ALTER SUBSCRIPTION third ENABLE');
$subscriber->wait_for_pool('tap', 0);
$publisher->sql('INSERT INTO third VALUES (2)');
$publisher->wait_applied('third');
$pair->rows_equal('third', 'also if it is that of the last writer');
$pair->under_load(sub { $subscriber->wait_for_progress });
$pair->accounts_are_equal('with no writer after that');
$subscriber->sql('DROP SUBSCRIPTION third');
$subscriber->wait_for_pool('tap', 1);
is($subscriber->apply_pid('tap'),
	$apply_pid,
	'which the same apply worker starts when there is a slot again');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (streaming = off)');

restart_with(32);
$subscriber->wait_for_pool('tap', 4);

### a different number of writers

configure('parallel_apply.writers_per_subscription' => 3);
$subscriber->wait_for_log(
	qr/LOG:  parallel apply of subscription "tap" was resized to 3 writers/,
	$log_offset);
$subscriber->wait_for_pool('tap', 3);
configure('parallel_apply.writers_per_subscription' => 4);
$subscriber->wait_for_pool('tap', 4);
pass('another number of writers is logged');

### a queue that the server cannot allocate

# A limit on the size of files applies to shared memory as well.
sub limit_files
{
	my ($limit) = @_;
	return IPC::Run::run([ 'prlimit', "--pid=$apply_pid", "--fsize=$limit:" ],
		'>', \my $out, '2>', \my $err);
}

SKIP:
{
	configure('parallel_apply.writers_per_subscription' => 1);
	$subscriber->wait_for_pool('tap', 0);
	$apply_pid = $subscriber->apply_pid('tap');
	skip 'until prlimit works and shared memory is made of files', 6
	  unless $subscriber->sql('SHOW dynamic_shared_memory_type') eq 'posix'
	  && limit_files(64 * 1024 * 1024);

	$log_offset = -s $subscriber->logfile;
	configure(
		'parallel_apply.queue_size' => '128MB',
		'parallel_apply.writers_per_subscription' => 4);
	$subscriber->wait_for_log(
		qr/WARNING:  could not create the queue of subscription "tap"\n.*DETAIL:  PostgreSQL's own apply continues.*\n.*HINT:  .*"parallel_apply.queue_size"/,
		$log_offset);
	$pair->under_load(sub { $subscriber->wait_for_progress });
	$pair->accounts_are_equal('without shared memory for a queue');
	is(scalar($subscriber->writer_pids('tap')), 0, 'and without writers');

	# It has warned of something else.
	$log_offset = -s $subscriber->logfile;
	configure(
		'parallel_apply.queue_size' => '64kB',
		'parallel_apply.reserved_worker_processes' => 32);
	configure('parallel_apply.writers_per_subscription' => 3);
	$subscriber->wait_for_log(
		qr/WARNING:  could not start all writers of subscription "tap"/,
		$log_offset);
	configure('parallel_apply.reserved_worker_processes' => 1);
	$subscriber->wait_for_pool('tap', 3);
	$subscriber->wait_for_log(
		qr/LOG:  parallel apply of subscription "tap" has recovered/,
		$log_offset);
	$pair->under_load(sub { $subscriber->wait_for_progress });
	$publisher->wait_applied;
	$pair->rows_equal('history',
		'with a smaller queue the writers start again');
	is($subscriber->apply_pid('tap'), $apply_pid, 'to the same apply worker');
}

finish(
	$publisher, $subscriber,
	qr/connection to client lost/,
	qr/terminating .* due to administrator command/);
done_testing();
