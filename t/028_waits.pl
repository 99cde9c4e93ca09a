# Promise: a waiting process is woken by the event that it waits for, and does nothing
# until then.
#
# A process that waits also checks its condition after some time, so that a lost wake-up
# costs only time.  Here no process does so (src/test/selftest_wakes.c): a lost wake-up
# stops everything.  Before each event that must wake a process, all processes are at
# rest, which those that poll never are.  059_wakes.pl has the wake-ups of streamed
# transactions and of PostgreSQL's own apply.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
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
  if !create_selftest_waits();
my @tables = qw(gate hot rows small);

exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE rows (id serial PRIMARY KEY, t text);
	CREATE TABLE small (id serial PRIMARY KEY);));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'streaming = on');
on_publisher('INSERT INTO gate VALUES (1, 0); INSERT INTO hot VALUES (1, 0)');
wait_applied($publisher, $subscriber, 'tap');
let_receiver_sleep('on');
my $end_of_silence = silence_publisher();
becomes_quiet('no process does anything without work');

# A local session prevents changes of gate.
sub close_gate
{
	return hold($subscriber, 'SELECT FROM gate FOR UPDATE');
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
on_publisher(
	q(BEGIN; UPDATE gate SET n = n + 1; UPDATE hot SET n = n + 1; COMMIT;
	UPDATE hot SET n = n + 1; INSERT INTO small DEFAULT VALUES;));
states_become(
	$subscriber,
	'waiting for lock, waiting for dependency, waiting for prior commit',
	'transactions wait');
becomes_quiet('nor behind a lock');
open_gate($gate);
tables_equal('when transactions have waited for each other', @tables);

# Many that wait for their turns, and for rows
$gate = close_gate();
on_publisher(
	join '',
	map { "BEGIN; $_; COMMIT;\n" } 'UPDATE gate SET n = n + 1',
	map {
			$_ % 3 == 0 ? insert_rows(100)
		  : $_ % 3 == 1 ? 'INSERT INTO small DEFAULT VALUES'
		  : 'UPDATE hot SET n = n + 1'
	} 1 .. 400);
wait_for_state($subscriber, 'waiting for lock');
open_gate($gate);
tables_equal('when many have', @tables);

### the apply worker

# A transaction of many times the size of the queue, which the apply worker has in a
# file: only the writer that makes space wakes it.
reload_with($subscriber, 'parallel_apply.streaming_apply = file');
$gate = close_gate();
on_publisher(
	'BEGIN; UPDATE gate SET n = n + 1;' . insert_rows(50_000) . 'COMMIT');
wait_for_state($subscriber, 'waiting for lock');
becomes_quiet('nor behind a queue that is full');
cmp_ok(on_subscriber('SELECT queue_bytes FROM parallel_apply.subscriptions'),
	'>', 200_000, 'it is full');
open_gate($gate);
tables_equal('when there was space again', @tables);
reload_with($subscriber, 'parallel_apply.streaming_apply = writer');

# Sessions of the publisher wait until a transaction is applied, or flushed.
let_receiver_sleep('off');
reload_with($publisher, q(synchronous_standby_names = 'tap'));
connect_again($subscriber, 'tap');
wait_for_sync_state($publisher, 'tap', 'sync');
let_receiver_sleep('on');
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
	wait_for_state($subscriber, 'waiting for lock');
	becomes_quiet("nor while a session waits for a commit with $mode");
	my $release_flushes = $mode eq 'on' ? hold_flushes($subscriber) : sub { };
	open_gate($gate);
	if ($mode eq 'on')
	{
		wait_until(
			q(count(*) = 1 FROM pg_stat_activity
			WHERE backend_type LIKE 'parallel_apply writer%' AND wait_event = 'WALWrite'),
			'no writer flushes');
		becomes_quiet('nor while a writer flushes');
	}
	$release_flushes->();
	$session->query_until(qr/returned/, '');
	$session->quit;
	pass("a session returns from a commit with $mode");
}
reload_with($publisher, q(synchronous_standby_names = ''));
$end_of_silence->();
tables_equal('when sessions have waited', @tables);

### waits that last

on_subscriber(q(SELECT parallel_apply.pause('tap')));
on_publisher('INSERT INTO small DEFAULT VALUES');
wait_until(q(state = 'paused' FROM parallel_apply.subscriptions),
	'it is not paused');
becomes_quiet('nor in a pause');
on_subscriber(q(SELECT parallel_apply.resume('tap')));
tables_equal('after a pause', @tables);

my $streamed = begin_streamed(item_rows(2000));
wait_for_early(1500);
wait_for_state($subscriber, 'waiting for data');
becomes_quiet('nor with a stream that does not continue');
$streamed->query_safe('COMMIT');
$streamed->quit;
tables_equal('after a stream', @tables, 'items');

finish($publisher, $subscriber);
done_testing();
