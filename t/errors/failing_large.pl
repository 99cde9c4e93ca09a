# Promise: a transaction that fails after many changes is not applied again and again: a
# writer tries once, then PostgreSQL's own apply, which reports the error.  From then on, each
# attempt is one of PostgreSQL's own apply alone, as without the extension.
#
# The subscriber counts the rows that were inserted, whether or not they were rolled back.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'logical_decoding_work_mem = 64kB',
	subscriber_conf => q(
		log_min_messages = debug1
		parallel_apply.queue_size = 1MB
		autovacuum = off));
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text DEFAULT repeat('x', 100));
	CREATE TABLE names (id int PRIMARY KEY, name text);)
);
$subscriber->sql('CREATE UNIQUE INDEX ON names (lower(name))');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0); INSERT INTO names VALUES (1, 'a')));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'disable_on_error = true, streaming = on');

my $rows = 20000;
my $last = 0;

# Rows after the one that violates the check.  With them the publisher does not keep
# that one back until the end of the transaction
my $rest = 2000;

# Statements for a transaction that fails
sub failing_rows
{
	my ($first, $bad) = ($last + 1, $last + $rows - $rest);
	$last += $rows;
	return
	  "UPDATE gate SET n = n + 1; INSERT INTO items SELECT i, CASE WHEN i = $bad THEN -1 ELSE 0 END FROM generate_series($first, $last) i";
}

sub send_failing_rows
{
	$subscriber->wait_for_pool('tap', 4);
	$publisher->sql('BEGIN; ' . failing_rows() . '; COMMIT');
	return;
}

sub inserted
{
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_stat_activity
		WHERE backend_type LIKE 'logical replication %worker' OR backend_type = 'parallel_apply writer'),
		'the processes of the subscription do not end');
	return $subscriber->sql(
		q(SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'items'));
}

sub refetches
{
	return $subscriber->sql(
		'SELECT refetches FROM parallel_apply.subscription_stats');
}

# Run a step in which the transaction fails, and assert how many times it was applied as
# far as the row that fails.  A writer may not have inserted the last rows before that.
sub is_applied
{
	my ($attempts, $name, $step) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
	my $before = inserted();
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$step->();
	$subscriber->wait_until_failed;
	my $applied = (inserted() - $before) / ($rows - $rest);
	ok( abs($applied - $attempts) < 0.3,
		"$name: it is applied $attempts times") or diag($applied);
	return;
}

# Let the writers start while the subscriber has received a part of a transaction.
sub let_writers_start
{
	$subscriber->wait_for_spooled('> 0', 'nothing is streamed');
	my $walsender = $publisher->sql('SELECT pid FROM pg_stat_replication');
	kill 'STOP', $walsender;
	$subscriber->wait_for_pool('tap', 4);
	kill 'CONT', $walsender;
	return;
}

# Assert that it fails once more; call $before once the apply worker may have begun.
sub fails_again
{
	my ($name, $before) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset;
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	is_applied(
		1,
		"$name, again",
		sub {
			$offset = -s $subscriber->logfile;
			$before->() if $before;
			$subscriber->wait_until(
				q(count(*) = 1 FROM pg_locks JOIN pg_stat_subscription USING (pid) WHERE NOT granted),
				'the apply worker does not wait for the lock');
			$lock->release;
			$subscriber->wait_for_log(
				qr/subscription "tap" has been disabled/, $offset);
		});
	unlike(
		slurp_file($subscriber->logfile, $offset),
		qr/remote transaction \d+ is rolled back/,
		"$name, again: no writer tries to apply it");
	return;
}

sub is_repaired
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->repair_fault;
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$pair->rows_equal('items', "$name: it is applied in the end");
	$subscriber->make_fault;
	return;
}

### streamed while it is in progress

$subscriber->make_fault;
is_applied(
	2,
	'streamed',
	sub {
		$subscriber->wait_for_pool('tap', 4);
		my $session = $pair->begin_streamed(failing_rows());
		ok( $subscriber->wait_for_log(
				qr/remote transaction \d+ is rolled back: new row/),
			'a writer fails to apply a transaction before its end');
		$session->release;
	});
fails_again('streamed');
is_repaired('streamed');

# This one is streamed again, since it was not received in part before.
$subscriber->wait_for_pool('tap', 4);
send_failing_rows();
$subscriber->wait_until_failed;
fails_again('streamed again', \&let_writers_start);
is_repaired('streamed again');

### received as a whole, in the queue or larger than it

$subscriber->sql('ALTER SUBSCRIPTION tap SET (streaming = off)');
my $refetches = refetches();
$subscriber->reload_with('parallel_apply.queue_size = 16MB');
$subscriber->restart;
is_applied(2, 'in the queue', \&send_failing_rows);
fails_again('in the queue');
is_repaired('in the queue');

# The error of a function
$subscriber->repair_fault;
$subscriber->sql(
	q(CREATE FUNCTION accept(v int) RETURNS bool LANGUAGE plpgsql AS
		$$BEGIN IF v < 0 THEN RAISE 'v is negative'; END IF; RETURN true; END$$;
	ALTER TABLE items ADD CONSTRAINT positive CHECK (accept(v)) NOT VALID));
is_applied(2, 'refused by a function', \&send_failing_rows);
is_repaired('refused by a function');
is(refetches(), $refetches, 'nothing was larger than the queue');

$subscriber->reload_with('parallel_apply.queue_size = 1MB');
$subscriber->restart;
is_applied(2, 'larger than the queue', \&send_failing_rows);
fails_again('larger than the queue');
is_repaired('larger than the queue');
is(refetches(), $refetches,
	'that it was fetched again is not due to its size');
is( $subscriber->sql(
		q(SELECT count(*) FROM parallel_apply.advice('tap') WHERE topic = 'queue_size')
	),
	'0',
	'nor does advice() say so');

### larger than the queue, and failed before its turn: what was read of it is kept until a
### writer reads it again

$subscriber->wait_for_pool('tap', 4);
$subscriber->create_selftest_waits;
my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->commit_each(
	'UPDATE gate SET n = n + 1; DELETE FROM names',
	"INSERT INTO names VALUES (2, 'A'); INSERT INTO items SELECT i, 0 FROM generate_series($last + 1, $last + $rows) i"
);
$last += $rows;
$subscriber->states_become(
	'waiting for lock, waiting for prior commit',
	'it has failed, since an older one is not committed');
my $pid = $subscriber->sql(
	q(SELECT pid FROM parallel_apply.writers WHERE state = 'waiting for prior commit')
);
kill 'STOP', $pid;
$subscriber->reload_with('parallel_apply.selftest_sleep = 10min');
$gate->release;
$subscriber->wait_until(
	'count(*) = 0 FROM names WHERE id = 1',
	'the older one is not committed');
$subscriber->becomes_quiet('the queue is full', 64);
kill 'CONT', $pid;
$subscriber->reload_with('parallel_apply.selftest_sleep = 0');
$publisher->wait_applied;
$pair->rows_equal($_, 'after it was applied again') for qw(items names);
is(refetches(), $refetches, 'it is not fetched again');

### a few changes: the second attempt may succeed, and costs little

$rows = 2500;
my $offset = -s $subscriber->logfile;
send_failing_rows();
$subscriber->wait_until_failed;
my $log = slurp_file($subscriber->logfile, $offset);
my $tried = () = $log =~ /remote transaction \d+ is rolled back: new row/g;
is($tried, 2, 'small: a writer tries twice to apply it');
is_repaired('small');

finish(
	$publisher,
	$subscriber,
	qr/new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  v is negative/,
	qr/a transaction larger than the queue could not be applied by a writer/,
	worker_terminated());

done_testing();
