# Promise: remote transactions that take long are logged, with what they waited for,
# if parallel_apply.log_min_duration says so; and no others are.
#
# A lock of a session on the subscriber forces waits, and lets transactions queue for a
# batch.  How many a writer claims does not depend on measured times (selftest_fast).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	parallel_apply.log_min_duration = 0
	parallel_apply.max_batch_transactions = 1
	parallel_apply.selftest_fast = on
	log_lock_waits = off
	CONF
$pair->exec_both(
	q(CREATE TABLE locked (id int PRIMARY KEY, v int);
	CREATE TABLE free (id int PRIMARY KEY, v int);));
$subscriber->create_extension;
$pair->subscribe('tap');

# Settings that new processes are certain to have
sub configure
{
	my (%settings) = @_;
	$subscriber->reload_with(
		map { "parallel_apply.$_ = $settings{$_}" }
		  keys %settings);
	for (keys %settings)
	{
		$subscriber->poll_query_until('postgres',
			"SELECT setting = '$settings{$_}' FROM pg_settings WHERE name = 'parallel_apply.$_'"
		) or die "$_ did not change";
	}
	$subscriber->restart_apply('tap');
	return;
}

# Commit a transaction on the publisher; return its id.
sub commit
{
	my ($sql) = @_;
	return $publisher->sql(
		"BEGIN; $sql; SELECT pg_current_xact_id()::xid; COMMIT");
}

# Transactions that wait for a lock on a table, for their turn, and for a row
sub apply_slowly
{
	my ($n) = @_;
	my $lock =
	  $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
	$subscriber->sql('SELECT parallel_apply.reset_stats()');
	my @xids = (
		commit("INSERT INTO locked VALUES ($n, 1), ($n + 1, 1), ($n + 2, 1)"),
		commit("INSERT INTO free VALUES ($n, 1)"),
		commit("UPDATE free SET v = 2 WHERE id = $n"));
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit, waiting for dependency',
		'transactions wait for a lock, for their turn, and for a row');
	# What is logged is updated after this counter.
	$subscriber->wait_until(
		'lock_waits >= 2 FROM parallel_apply.subscription_stats',
		'the wait for the lock was not seen');
	$lock->release;
	$publisher->wait_applied;
	return @xids;
}

# Assert that a transaction is in the log, with these waits, which are regular
# expressions.
my $some = qr/(?!0\.000)\d+\.\d{3}/;
my $none = qr/0\.000/;

sub is_logged
{
	my ($xid, $changes, $dependency, $turn, $locks, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->wait_for_log(
		qr/LOG:  remote transaction $xid of subscription "tap" took .*\n.*DETAIL:  .*\n/
	);
	my $waits = join ', ', "$dependency ms for dependencies",
	  "$turn ms for prior commits", "$none ms for data",
	  "about $locks ms for locks";
	return like(
		slurp_file($subscriber->logfile),
		qr/LOG:  remote transaction $xid of subscription "tap" took $some ms\n.*DETAIL:  It finished at \S+ and has $changes changes?\. Waits: $waits\.\n/,
		$name);
}

### what is logged

my ($locked, $turn, $row) = apply_slowly(1);
is_logged($locked, 3, $none, $none, qr/[1-9]\d*/,
	'a wait for a lock is in the log');
is_logged($turn, 1, $none, $some, 0, 'and one for the turn');
is_logged($row, 1, $some, qr/\d+\.\d{3}/, 0, 'and one for the same row');
unlike(slurp_file($subscriber->logfile),
	qr/CONTEXT:/, 'without the context of a message');

# The time of a transaction that is rolled back and repeated begins at its first
# attempt.
{
	my $lock =
	  $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
	my $xid = commit('INSERT INTO locked VALUES (5, 1)');
	$subscriber->wait_for_state('waiting for lock');
	my $now = $subscriber->sql('SELECT clock_timestamp()');
	$subscriber->wait_until(
		"clock_timestamp() > timestamptz '$now' + interval '1 s'",
		'the time does not pass');
	$subscriber->sql(
		q(SELECT pg_cancel_backend(pid) FROM parallel_apply.writers WHERE state = 'waiting for lock')
	);
	$subscriber->wait_until('sum(retries) = 1 FROM parallel_apply.writers',
		'it is not tried again');
	$lock->release;
	$subscriber->wait_for_log(
		qr/LOG:  remote transaction $xid of subscription "tap" took [1-9]\d{3,}\.\d+ ms/
	);
	pass('both attempts count');
}

### batches

configure(max_batch_transactions => 32, writers_per_subscription => 2);
$subscriber->wait_for_pool('tap', 2);
my $lock = $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
commit('INSERT INTO locked VALUES (11, 1)');
$subscriber->wait_for_state('waiting for lock');
$publisher->sql(join '',
	map { "INSERT INTO free VALUES ($_, 1);" } 101 .. 300);
$subscriber->wait_for_state('waiting for prior commit');
$subscriber->wait_until(
	'queue_transactions = 201 FROM parallel_apply.subscriptions',
	'not all are received');
$lock->release;
$publisher->wait_applied;
$subscriber->wait_for_log(
	qr/LOG:  \d+ remote transactions up to \d+ of subscription "tap" took $some ms\n/
);
pass('a batch is in the log as one');

### without writers

configure(writers_per_subscription => 1);
$lock = $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
my $xid = commit('INSERT INTO locked VALUES (41, 1), (42, 1)');
$subscriber->wait_until(
	q(count(*) = 1 FROM parallel_apply.writers WHERE writer = 0 AND state = 'waiting for lock'),
	'the apply worker does not wait');
$lock->release;
$subscriber->wait_for_log(
	qr/LOG:  remote transaction $xid of subscription "tap" took $some ms\n.*DETAIL:  It finished at [0-9A-F]+\/[0-9A-F]+, has 2 changes, and was applied by the apply worker\. Waits: $some ms for locks\.\n/
);
pass("what PostgreSQL's own apply does is in the log, too");

### what is not logged

configure(
	log_min_duration => 600000,
	max_batch_transactions => 1,
	writers_per_subscription => 4);
$subscriber->wait_for_pool('tap', 4);
my $log_offset = -s $subscriber->logfile;
apply_slowly(51);
configure(log_min_duration => -1);
$subscriber->wait_for_pool('tap', 4);
apply_slowly(61);
unlike(
	slurp_file($subscriber->logfile, $log_offset),
	qr/remote transaction/,
	'nothing is logged below the limit, or without one');

$pair->rows_equal($_) for qw(locked free);
finish($publisher, $subscriber, qr/terminating logical replication worker/);
done_testing();
