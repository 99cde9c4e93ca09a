# Promise: a writer applies a streamed transaction before its end is known, and
# commits it in its place.  If that is impossible, the transaction is applied after
# its end.
#
# Each transaction ends when a writer has begun it, or has given it up: a writer that comes
# later, on a slow machine, finds nothing to do in progress.  Autovacuum would lock tables
# that must be free.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(logical_decoding_work_mem = 64kB),
	subscriber_conf => q(restart_after_crash = on
		autovacuum = off
		parallel_apply.selftest_fast = on));

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE history (n int, part int);
	CREATE TABLE twins (n int);
	ALTER TABLE twins REPLICA IDENTITY FULL;
	CREATE TABLE watched (id int PRIMARY KEY);
	CREATE TABLE emptied (id int PRIMARY KEY);
	CREATE TABLE altered (id int PRIMARY KEY, a int);
	CREATE TABLE widened (id int PRIMARY KEY);));
$subscriber->sql(
	q(ALTER TABLE altered ADD b text;
	ALTER TABLE widened ADD a int;
	CREATE TABLE seen (id int);
	CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN INSERT INTO public.seen VALUES (NEW.id); RETURN NEW; END';
	CREATE TRIGGER watch AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION see();
	ALTER TABLE watched ENABLE REPLICA TRIGGER watch;));
$subscriber->create_extension;
my $streaming =
  $subscriber->pg_version >= 16 ? 'streaming = parallel' : 'streaming = on';
$pair->subscribe('tap', with => $streaming);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO twins VALUES (1), (1);
	INSERT INTO emptied SELECT generate_series(1, 10);));

my @tables = qw(items gate history twins watched emptied altered widened);

# Streamed transactions so far: those that writers had applied at their end, and
# others
sub streams
{
	return $subscriber->sql(
		q(SELECT streamed_in_progress || ' in progress, ' || streamed_from_file || ' late'
		FROM parallel_apply.subscription_stats));
}

my ($in_progress, $late) = (0, 0);

sub streams_are
{
	my ($name, $more_in_progress, $more_late) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$in_progress += $more_in_progress;
	$late += $more_late;
	is(streams(), "$in_progress in progress, $late late", $name);
	$pair->rows_equal($_, "$_ is equal: $name") for @tables;
	return;
}

# Statistics are reset with the apply worker.
sub forget_streams
{
	$subscriber->wait_for_pool('tap');
	$subscriber->sql(q(SELECT parallel_apply.reset_stats('tap')));
	($in_progress, $late) = (0, 0);
	return;
}

# Wait for the end of one more, which writers have applied up to there.
sub wait_for_end
{
	$subscriber->wait_until(
		"streamed_in_progress = $in_progress + 1 FROM parallel_apply.subscription_stats",
		'it has not ended');
	return;
}

sub wait_for_none_in_progress
{
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) = 0 FROM parallel_apply.writers WHERE state <> 'idle')
	) or die 'writers are not idle';
	return;
}

### in commit order

# It is applied while it is open, concurrently with others, and is not visible.
my $streamed = $pair->begin_streamed(item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$publisher->sql('INSERT INTO history VALUES (1, 1)');
$publisher->wait_applied;
is( $subscriber->sql(
		'SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM history)'
	),
	'0|1',
	'a transaction that has not ended is applied and not visible');
$streamed->query_safe('COMMIT');
streams_are('a transaction that ends is committed', 1, 0);

# Its changes wait for transactions that were committed before they arrived, its
# commit waits for those that were committed before it.  Everything behind it waits
# for it.
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$streamed->query_safe('BEGIN;' . item_rows(1000));
$subscriber->wait_for_in_progress(500);
$publisher->sql("UPDATE gate SET n = n + 1");
$publisher->sql("INSERT INTO items VALUES (0, 0, 'older')");
$streamed->query_safe(
	"UPDATE items SET v = 1 WHERE id = 0; INSERT INTO gate VALUES (2, 0);"
	  . item_rows(1000));
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'changes wait for transactions that were committed before them');
$streamed->query_safe('COMMIT');
$publisher->sql('UPDATE items SET v = v + 1 WHERE id = ' . last_item());
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency, waiting for dependency',
	'younger transactions wait for it');
$lock->query_safe('COMMIT');
streams_are('the commit order is kept', 1, 0);

$lock->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
$streamed->query_safe(
	'BEGIN;' . item_rows(2000) . "INSERT INTO history VALUES (2, 1)");
$subscriber->wait_for_in_progress(1500);
$publisher->sql("UPDATE gate SET n = n + 1 WHERE id = 1");
$publisher->sql('INSERT INTO history VALUES (3, 1)');
$streamed->query_safe('ROLLBACK');
$lock->query_safe('COMMIT');
streams_are('a rolled back transaction leaves nothing', 0, 0);
wait_for_none_in_progress();

# Two at a time, and a definition that changes in one of them
$streamed->query_safe(
	'BEGIN; INSERT INTO altered SELECT i, i FROM generate_series(1, 3000) i;'
);
my $other = $pair->begin_streamed(item_rows(2000));
$subscriber->wait_for_in_progress(1000, 2);
$streamed->query_safe(
	q(ALTER TABLE altered ADD b text;
	INSERT INTO altered SELECT i, i, 'new' FROM generate_series(3001, 6000) i;));
$other->query_safe(item_rows(2000));
$publisher->sql('INSERT INTO history VALUES (4, 1)');
$streamed->query_safe('COMMIT');
$publisher->sql(q(UPDATE altered SET b = 'old' WHERE id <= 100));
$other->query_safe('COMMIT');
streams_are('two at a time', 2, 0);

# Streamed transactions never occupy more than half of the writers.
$streamed->query_safe('BEGIN;' . item_rows(1000));
$other->query_safe('BEGIN;' . item_rows(1000));
$subscriber->wait_for_in_progress(500, 2);
my $third = $pair->begin_streamed(item_rows(1000));
$_->query_safe('COMMIT') for $third, $streamed, $other;
$third->quit;
streams_are('three at a time', 2, 1);

# A subtransaction that is rolled back before anything of it was sent leaves
# nothing.  One that was sent must be skipped.
$streamed->query_safe(
	'BEGIN; SAVEPOINT a; INSERT INTO history VALUES (5, 2); ROLLBACK TO SAVEPOINT a;'
	  . item_rows(2000));
$subscriber->wait_for_in_progress(1000);
$streamed->query_safe('COMMIT');
streams_are('nothing of a subtransaction was sent', 1, 0);
$streamed->query_safe(
	'BEGIN;' . item_rows(2000) . 'SAVEPOINT a;' . item_rows(2000));
$subscriber->wait_for_in_progress(3000);
$streamed->query_safe(
	'ROLLBACK TO SAVEPOINT a;' . item_rows(2000) . 'COMMIT');
streams_are('a part of it was rolled back', 0, 1);

# The changes of such a subtransaction stay in the file as long as its writer, which
# is stopped here, may read them; they are not applied.  Then the space is released.
foreach my $last ('commit', 'chunk')
{
	$streamed->query_safe(
		'BEGIN;' . item_rows(2000) . 'SAVEPOINT a;' . item_rows(5000));
	$subscriber->wait_for_in_progress(6000);
	my $writer = $subscriber->stop_in_progress_writer;
	my $bytes = $subscriber->spooled_bytes;
	$streamed->query_safe('ROLLBACK TO SAVEPOINT a;' . item_rows(2000));
	$subscriber->wait_for_spooled('> ' . ($bytes + 200_000),
		'the file of a writer loses its end');
	if ($last eq 'chunk')
	{
		$streamed->query_safe('SAVEPOINT b;' . item_rows(2000));
		# Most of the 11,000 rows, of some 250 bytes each, of which the last 2,000
		# are removed
		my $more = $subscriber->wait_for_spooled('> 2650000',
			'a second subtransaction is not streamed');
		$streamed->query_safe('ROLLBACK TO SAVEPOINT b');
		$publisher->sql('INSERT INTO history VALUES (6, 3)');
		$subscriber->wait_until(
			q(count(*) > 0 FROM history WHERE n = 6),
			'the rollback has not been received');
		kill 'CONT', $writer;
		wait_for_none_in_progress();
		$streamed->query_safe(item_rows(500));
		$subscriber->wait_for_spooled('< ' . ($more - 100_000),
			'the space of a subtransaction is not given back later');
	}
	else
	{
		# The next changes are a subtransaction as well, which begins where the
		# other one ended.
		$streamed->query_safe('ROLLBACK TO SAVEPOINT a;' . item_rows(2000));
		$subscriber->wait_for_spooled('> ' . ($bytes + 600_000),
			'the end of the transaction is not streamed');
	}
	$streamed->query_safe('COMMIT');
	if ($last eq 'commit')
	{
		$subscriber->poll_query_until('postgres',
			'SELECT queue_transactions > 0 FROM parallel_apply.subscriptions')
		  or die 'the transaction does not end';
		kill 'CONT', $writer;
	}
	streams_are("a part of it was rolled back behind its writer, $last", 0,
		1);
}

### what cannot be applied before the end

# Begin one with this statement, and end it when its writer has given it up.
sub given_up
{
	my ($statement) = @_;
	$streamed->query_safe('BEGIN;' . item_rows(1000));
	$subscriber->wait_for_in_progress(500);
	$streamed->query_safe("$statement;" . item_rows(1000));
	wait_for_none_in_progress();
	$streamed->query_safe('COMMIT');
	return;
}

given_up('INSERT INTO watched SELECT generate_series(1, 2000)');
streams_are('a trigger would run', 0, 1);
is($subscriber->sql('SELECT count(*), count(DISTINCT id) FROM seen'),
	'2000|2000', 'it has run once for each row');
given_up(
	'TRUNCATE emptied; INSERT INTO emptied SELECT generate_series(20, 2000)');
streams_are('TRUNCATE', 0, 1);

# A row that the subscriber does not have.  An older transaction might still insert
# it as long as the streamed one is open.
$subscriber->sql('DELETE FROM items WHERE id = 1');
given_up('UPDATE items SET v = 7 WHERE id = 1');
$publisher->wait_applied;
$publisher->sql('DELETE FROM items WHERE id = 1');
streams_are('a row is missing', 0, 1);

# No older transaction can insert it once this one has ended and everything before
# it is committed.
$subscriber->sql('DELETE FROM items WHERE id = 2');
$lock->query_safe('BEGIN; LOCK TABLE items IN SHARE MODE');
$streamed->query_safe('BEGIN;'
	  . item_rows(1000)
	  . 'UPDATE items SET v = 7 WHERE id = 2;'
	  . item_rows(1000));
$subscriber->wait_for_state('waiting for lock');
$streamed->query_safe('COMMIT');
wait_for_end();
$lock->query_safe('COMMIT');
$publisher->wait_applied;
$publisher->sql('DELETE FROM items WHERE id = 2');
streams_are('a row is missing in its turn', 1, 0);
is( $subscriber->sql(
		'SELECT fallback_failure FROM parallel_apply.subscription_stats'),
	'0',
	'and nothing is applied again');

# The oldest transaction wins.  On the publisher, the two delete different rows.
$streamed->query_safe(
	'BEGIN; DELETE FROM twins WHERE ctid = (SELECT min(ctid) FROM twins);'
	  . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
my $wins = $subscriber->counter('commit_order_aborts');
$publisher->sql(
	'DELETE FROM twins WHERE ctid = (SELECT max(ctid) FROM twins)');
$publisher->wait_applied;
$subscriber->counter_becomes('commit_order_aborts', "> $wins",
	'it is rolled back when an older one waits for it');
wait_for_none_in_progress();
$streamed->query_safe('COMMIT');
streams_are('an older one had to wait', 0, 1);

# Idle writers have exited.  One more is started for it.
$subscriber->reload_with(
	'parallel_apply.writer_idle_timeout = 10ms',
	'parallel_apply.idle_writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 1);
$subscriber->reload_with('parallel_apply.writer_idle_timeout = 10min');
$streamed->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$streamed->query_safe('COMMIT');
streams_are('only one writer was running', 1, 0);
$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = -1');

# Another apply worker is certain to use the setting.
$subscriber->reload_with('parallel_apply.streaming_apply = file');
$subscriber->connect_again('tap');
$streamed->query_safe('BEGIN;' . item_rows(3000) . 'COMMIT');
streams_are('it is turned off', 0, 1);
$subscriber->reload_with('parallel_apply.streaming_apply = writer');
$subscriber->connect_again('tap');

### between its end and its commit

# A transaction with these statements behind many rows has ended, and waits for an
# older one, which waits for a lock of this test.
sub end_behind_lock
{
	my ($sql) = @_;
	$lock->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
	$streamed->query_safe('BEGIN;' . item_rows(20000) . ($sql // ''));
	$subscriber->wait_for_in_progress(19000);
	$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 1');
	$subscriber->wait_for_state('waiting for lock');
	$streamed->query_safe('COMMIT');
	wait_for_end();
	return;
}

# The subscription changes: PostgreSQL's own apply applies it again, from its file,
# with the definitions of that time.
sub fallbacks
{
	return $subscriber->sql(
		'SELECT fallback_subscription FROM parallel_apply.subscription_stats'
	);
}
my $replays = fallbacks();
end_behind_lock('INSERT INTO widened SELECT generate_series(1, 1000);');
$publisher->sql(
	'ALTER TABLE widened ADD a int; INSERT INTO widened VALUES (0, 0);');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (synchronous_commit = local)');
$lock->query_safe('COMMIT');
streams_are('the subscription has changed', 1, 0);
cmp_ok(fallbacks(), '>', $replays, 'it was applied natively from its file');

# The next transaction, usually a small one, has the definition of its own time.
sub leader_transactions
{
	$publisher->wait_applied;
	return $subscriber->sql(
		'SELECT leader_transactions FROM parallel_apply.subscription_stats');
}
$subscriber->reload_with('parallel_apply.leader_participation = on');
for my $n (2001 .. 2200)
{
	$publisher->sql("INSERT INTO widened VALUES ($n, $n)");
	last if leader_transactions() > 0;
}
cmp_ok(leader_transactions(), '>', 0,
	'small transactions are applied by the leader');
$subscriber->reload_with('parallel_apply.leader_participation = off');
streams_are('newer definitions after older ones', 0, 0);

# An error is PostgreSQL's own: a local session inserts a row before the transaction
# is applied again.  The session does not wait for a transaction that has ended and
# waits for its turn.
my $offset = -s $subscriber->logfile;
end_behind_lock();
my $twice = last_item() - 1500;
my $limit = $PostgreSQL::Test::Utils::timeout_default;
$subscriber->sql(
	"SET lock_timeout = '${limit}s'; INSERT INTO items VALUES ($twice, 9)");
$lock->query_safe('COMMIT');
$subscriber->wait_for_log(duplicate_key('items'), $offset);
$subscriber->sql("DELETE FROM items WHERE id = $twice");
$pair->tables_equal('after an error', @tables);

### processes that exit in the middle

forget_streams();
$streamed->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$subscriber->restart_apply('tap');
$streamed->query_safe(item_rows(1000) . 'COMMIT');
$publisher->wait_applied;
$pair->rows_equal('items', 'the apply worker was terminated');

forget_streams();
$streamed->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
my $writer = $subscriber->sql(
	'SELECT pid FROM parallel_apply.writers WHERE remote_lsn IS NULL AND changes_done > 0 AND remote_xid IS NOT NULL'
);
$offset = -s $subscriber->logfile;
is(kill('KILL', $writer), 1, 'its writer is killed');
$subscriber->wait_for_log(qr/database system is ready to accept connections/,
	$offset);
$subscriber->wait_for_pool('tap');
$streamed->query_safe(item_rows(1000) . 'COMMIT');
$publisher->wait_applied;
$pair->rows_equal('items', 'its writer was killed');

# The pool stops, or no other writer is left: the transaction is applied after its
# end.
forget_streams();
$streamed->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 0);
$streamed->query_safe(item_rows(1000) . 'COMMIT');
$publisher->wait_applied;
$pair->rows_equal('items', 'the pool has stopped');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 3');
$subscriber->wait_for_pool('tap', 3);

# The third writer, which will exit, is the one that could apply what is in the queue.
foreach (1 .. 100)
{
	forget_streams();
	$streamed->query_safe('BEGIN;' . item_rows(2000));
	$other->query_safe('BEGIN;' . item_rows(2000));
	$subscriber->wait_for_in_progress(1000, 2);
	last
	  if $subscriber->sql(
		'SELECT max(writer) < 3 FROM parallel_apply.writers WHERE remote_xid IS NOT NULL'
	  ) eq 't';
	$_->query_safe('COMMIT') for $streamed, $other;
	$publisher->wait_applied;
}
$subscriber->reload_with('parallel_apply.writers_per_subscription = 2');
$publisher->sql('INSERT INTO history VALUES (6, 1)');
$publisher->wait_applied;
pass('queued transactions are applied with fewer writers');
$streamed->query_safe('COMMIT');
$other->query_safe('COMMIT');
$pair->tables_equal('with fewer writers', @tables);

# The other writers exit while it waits for transactions that no writer has claimed.
$lock = $subscriber->hold('COMMIT');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 2');
$subscriber->wait_for_pool('tap', 2);
$streamed->query_safe('BEGIN;' . item_rows(2000));
$subscriber->wait_for_in_progress(1000);
$lock->query_safe('BEGIN; SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 1');
$subscriber->wait_for_state('waiting for lock');
$publisher->sql("INSERT INTO history VALUES ($_, 3)") for 1 .. 3;
$streamed->query_safe(item_rows(1000));
$subscriber->wait_for_state('waiting for dependency');
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$lock->query_safe('COMMIT');
$subscriber->wait_for_pool('tap', 0);
$streamed->query_safe('COMMIT');
$pair->tables_equal('when the others left', @tables);

# The other writers exit when it has ended and waits for its turn.
$subscriber->reload_with('parallel_apply.writers_per_subscription = 2');
forget_streams();
end_behind_lock();
$publisher->sql("INSERT INTO history VALUES ($_, 4)") for 1 .. 3;
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$lock->query_safe('COMMIT');
$subscriber->wait_for_pool('tap', 0);
$pair->tables_equal('when the others left before its turn', @tables);
$subscriber->reload_with('parallel_apply.writers_per_subscription = 3');

# It holds no locks while apply is paused.
forget_streams();
$streamed->query_safe('BEGIN;' . item_rows(3000));
$subscriber->wait_for_in_progress(2000);
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
wait_for_none_in_progress();
$subscriber->sql('BEGIN; LOCK TABLE items NOWAIT; COMMIT');
pass('a table that it has changed can be locked');
$streamed->query_safe(item_rows(1000) . 'COMMIT');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
streams_are('apply was paused', 0, 1);

# A large value leaves nothing in the memory of the processes that it passes
# through, before the end of its transaction or after it.  It is not compressible,
# which might make it too small to be streamed.
$publisher->sql('ALTER TABLE items ALTER note SET STORAGE EXTERNAL');

sub processes_are_small
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	for
	  my $pid ($subscriber->writer_pids('tap'), $subscriber->apply_pid('tap'))
	{
		# A process may still be at the end of the transaction that others see.
		my $end = time + $PostgreSQL::Test::Utils::timeout_default;
		my $bytes;
		do
		{
			($bytes) =
			  $subscriber->memory_of($pid) =~ /Grand total: (\d+) bytes/;
		} until $bytes < 6_000_000 || time > $end;
		cmp_ok($bytes, '<', 6_000_000, $name);
	}
	return;
}

$streamed->query_safe(
	"BEGIN; INSERT INTO items VALUES (-1, 0, repeat('x', 8000000))");
$publisher->flush_wal;
$subscriber->wait_for_in_progress(1);
$streamed->query_safe('COMMIT');
processes_are_small('a value of a streamed transaction is forgotten');
$subscriber->reload_with('parallel_apply.streaming_apply = file');
$publisher->sql("UPDATE items SET note = repeat('y', 8000000) WHERE id = -1")
  for 1 .. 3;
processes_are_small('a value of a transaction in the queue is forgotten');
$pair->tables_equal('with a large value', @tables);

# A table moves to another schema in a streamed transaction, which the apply worker has to
# apply in the end, since its writer is refused when the subscription changes.  Each change
# goes to the table of its time.
$subscriber->reload_with('parallel_apply.streaming_apply = writer');
$pair->exec_both(
	q(CREATE TABLE place (id int, note text);
	ALTER TABLE place REPLICA IDENTITY FULL;
	CREATE SCHEMA moved;
	CREATE TABLE moved.place (LIKE place);
	ALTER TABLE moved.place REPLICA IDENTITY FULL;));
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
my $fallbacks = $subscriber->counter('fallbacks');
my $rows =
  q(INSERT INTO %s.place SELECT %d, repeat('x', 100) FROM generate_series(1, 2000););
$streamed->query_safe('BEGIN;'
	  . sprintf($rows, 'public', 1)
	  . 'ALTER TABLE moved.place RENAME TO former; ALTER TABLE place SET SCHEMA moved;'
	  . sprintf($rows, 'moved', 2));
$subscriber->wait_for_in_progress(3000);
$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = '7F000000/0')));
$streamed->query_safe('COMMIT');
$publisher->wait_applied;
is( $subscriber->sql(
		q(SELECT string_agg(concat_ws(' ', t, id, n), ', ' ORDER BY t, id)
		FROM (SELECT tableoid::regclass AS t, id, count(*) AS n FROM place GROUP BY 1, 2
			UNION ALL
			SELECT tableoid::regclass, id, count(*) FROM moved.place GROUP BY 1, 2) counts)
	),
	'place 1 2000, moved.place 2 2000',
	'each change goes to the table of its time');
cmp_ok($subscriber->counter('fallbacks'),
	'>', $fallbacks, 'the apply worker has applied it');

$subscriber->no_spool_is_left;

end_sessions($streamed, $other, $lock);
finish($publisher, $subscriber, duplicate_key('items'), worker_terminated(),);
done_testing();
