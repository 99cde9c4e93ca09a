# Promise: a waiting process is woken by the event that it waits for, and does nothing
# until then.
#
# A process that waits also checks its condition after some time, so that a lost wake-up
# costs only time.  Here no process does so (src/test/selftest_wakes.c): a lost wake-up
# stops everything.  Before each event that must wake a process, all processes are at
# rest, which those that poll never are.  wakes.pl has the wake-ups of streamed
# transactions and of PostgreSQL's own apply.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		autovacuum = off
		checkpoint_timeout = 1h
		logical_decoding_work_mem = 64kB
		wal_sender_timeout = 0),
	subscriber_conf => q(
		parallel_apply.queue_size = 256kB
		parallel_apply.max_batch_transactions = 1
		parallel_apply.selftest_sleep = 1h
		wal_receiver_timeout = 0
		wal_receiver_status_interval = 1h));
plan skip_all => 'the library was made without SELFTEST=1'
  if !$subscriber->create_selftest_waits;
my @tables = qw(gate hot rows small);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE rows (id serial PRIMARY KEY, t text);
	CREATE TABLE small (id serial PRIMARY KEY);));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$publisher->sql(
	'INSERT INTO gate VALUES (1, 0); INSERT INTO hot VALUES (1, 0)');
$publisher->wait_applied;
$subscriber->let_receiver_sleep('on');
my $end_of_silence = $publisher->silence;
$subscriber->becomes_quiet('no process does anything without work');

# A local session prevents changes of gate.
sub close_gate
{
	return $subscriber->hold('SELECT FROM gate FOR UPDATE');
}

# Rolled back, since a commit would need a flush.
sub open_gate
{
	my ($gate) = @_;
	$gate->query_safe('ROLLBACK');
	$gate->quit;
	return;
}

sub insert_rows
{
	my ($count) = @_;
	return "INSERT INTO rows (t) SELECT 'x' FROM generate_series(1, $count);";
}

### writers

my $gate = close_gate();
$publisher->sql(
	q(BEGIN; UPDATE gate SET n = n + 1; UPDATE hot SET n = n + 1; COMMIT;
	UPDATE hot SET n = n + 1; INSERT INTO small DEFAULT VALUES;));
$subscriber->states_become(
	'waiting for lock, waiting for dependency, waiting for prior commit',
	'transactions wait');
$subscriber->becomes_quiet('nor behind a lock');
open_gate($gate);
$pair->tables_equal('when transactions have waited for each other', @tables);

# Many that wait for their turns, and for rows
$gate = close_gate();
$publisher->commit_each(
	'UPDATE gate SET n = n + 1',
	map {
			$_ % 3 == 0 ? insert_rows(100)
		  : $_ % 3 == 1 ? 'INSERT INTO small DEFAULT VALUES'
		  : 'UPDATE hot SET n = n + 1'
	} 1 .. 400);
$subscriber->wait_for_state('waiting for lock');
open_gate($gate);
$pair->tables_equal('when many have', @tables);

### the apply worker

# A transaction of many times the size of the queue, which the apply worker has in a
# file: only the writer that makes space wakes it.
$subscriber->reload_with('parallel_apply.streaming_apply = file');
$gate = close_gate();
$publisher->sql(
	'BEGIN; UPDATE gate SET n = n + 1;' . insert_rows(50_000) . 'COMMIT');
$subscriber->wait_for_state('waiting for lock');
$subscriber->becomes_quiet('nor behind a queue that is full');
cmp_ok(
	$subscriber->sql('SELECT queue_bytes FROM parallel_apply.subscriptions'),
	'>', 200_000, 'it is full');
open_gate($gate);
$pair->tables_equal('when there was space again', @tables);
$subscriber->reload_with('parallel_apply.streaming_apply = writer');

# Sessions of the publisher wait until a transaction is applied, or flushed.
$subscriber->let_receiver_sleep('off');
$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$subscriber->connect_again('tap');
$publisher->wait_for_sync_state('tap', 'sync');
$subscriber->let_receiver_sleep('on');
for my $mode (qw(remote_apply on))
{
	$gate = close_gate();
	my $session = $publisher->background_psql('postgres');
	$session->query_until(qr/started/, <<~"SQL");
		SET synchronous_commit = $mode;
		\\echo started
		UPDATE gate SET n = n + 1;
		\\echo returned
		SQL
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->becomes_quiet(
		"nor while a session waits for a commit with $mode");
	my $release_flushes = $mode eq 'on' ? $subscriber->hold_flushes : sub { };
	open_gate($gate);
	if ($mode eq 'on')
	{
		$subscriber->wait_until(
			q(count(*) = 1 FROM pg_stat_activity
			WHERE backend_type LIKE 'parallel_apply writer%' AND wait_event = 'WALWrite'),
			'no writer flushes');
		$subscriber->becomes_quiet('nor while a writer flushes');
	}
	$release_flushes->();
	$session->query_until(qr/returned/, '');
	$session->quit;
	pass("a session returns from a commit with $mode");
}
$publisher->reload_with(q(synchronous_standby_names = ''));
$end_of_silence->();
$pair->tables_equal('when sessions have waited', @tables);

### waits that last

$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$publisher->sql('INSERT INTO small DEFAULT VALUES');
$subscriber->wait_until(q(state = 'paused' FROM parallel_apply.subscriptions),
	'it is not paused');
$subscriber->becomes_quiet('nor in a pause');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
$pair->tables_equal('after a pause', @tables);

my $streamed = $pair->begin_streamed(item_rows(2000));
$subscriber->wait_for_in_progress(1500);
$subscriber->wait_for_state('waiting for data');
$subscriber->becomes_quiet('nor with a stream that does not continue');
$streamed->release;
$pair->tables_equal('after a stream', @tables, 'items');

finish($publisher, $subscriber);
done_testing();
