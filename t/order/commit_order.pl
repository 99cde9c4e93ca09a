# Promise: transactions become visible on the subscriber in the order in which they
# were committed on the publisher, however long an older one is blocked, one by one
# or in batches.  They carry the publisher's commit times where commit times are
# kept.
#
# Local sessions lock rows that some transactions have to update, so that younger
# ones are applied before older ones.  While the locks are held, the test checks
# what must not be visible.  A reader that takes one snapshot after the other checks
# all states in between.  The comment of each part names the faults that it detects.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'track_commit_timestamp = on',
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1
		parallel_apply.selftest_fast = on
		autovacuum = off
		# A transaction that requests it waits forever.
		wal_level = replica
		max_wal_senders = 2
		synchronous_standby_names = 'missing'
		synchronous_commit = local));
my @tables = qw(gate odd even balance);

# Transaction n of a history inserts n into one of two tables, so that the rows of
# any snapshot must be 1 to n.
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE odd (n int PRIMARY KEY);
	CREATE TABLE even (n int PRIMARY KEY);
	CREATE VIEW history AS SELECT n FROM odd UNION ALL SELECT n FROM even;
	CREATE TABLE balance (id int PRIMARY KEY, n int);)
);
$publisher->sql(
	q(INSERT INTO gate SELECT i, 0 FROM generate_series(1, 5) i;
	INSERT INTO balance SELECT i, 100 FROM generate_series(1, 40) i;)
);
$subscriber->create_extension;
$pair->subscribe('tap');

sub set
{
	my ($setting) = @_;
	$subscriber->append_conf('postgresql.conf', $setting);
	$subscriber->reload;
	return;
}

sub visible
{
	return $subscriber->sql(
		'SELECT coalesce(max(n), 0) || \' of \' || count(*) FROM history');
}

# Return an INSERT into the history; every 20th transaction passes a gate, 1 to 5.
sub history_sql
{
	my ($first, $last) = @_;
	my $sql = '';
	for my $n ($first .. $last)
	{
		my $table = $n % 2 ? 'odd' : 'even';
		my $pass =
		  $n % 20 == 0
		  ? 'UPDATE gate SET n = n + 1 WHERE id = ' . $n / 20 % 5 . '+ 1;'
		  : '';
		$sql .=
			"BEGIN; $pass INSERT INTO $table VALUES ($n);"
		  . " UPDATE balance SET n = n - 1 WHERE id = $n % 40 + 1;"
		  . " UPDATE balance SET n = n + 1 WHERE id = ($n + 20) % 40 + 1; COMMIT;\n";
	}
	return $sql;
}

# Detects: no wait for the turn; a wait for a dependency before the changes that
# have none; states that are not shown.
my $lock = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
$publisher->sql(
	q(BEGIN; INSERT INTO odd VALUES (1); UPDATE gate SET n = 1 WHERE id = 1; COMMIT;
	INSERT INTO even VALUES (2);
	BEGIN; INSERT INTO odd VALUES (3); UPDATE balance SET n = n - 1 WHERE id = 1; COMMIT;
	BEGIN; INSERT INTO even VALUES (4); UPDATE balance SET n = n + 1 WHERE id = 1; COMMIT;
	INSERT INTO odd VALUES (5);)
);
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for prior commit, waiting for dependency',
	'younger transactions wait for their turn or their dependency while the oldest waits for a lock'
);
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_locks JOIN parallel_apply.writers USING (pid)
		WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted)
	),
	'4',
	'all of them have changed rows already');
is(visible(), '0 of 0', 'and none of it is visible');
is($subscriber->sql('SELECT n FROM balance WHERE id = 1'),
	'100', 'nor is a change of a row');
is( $subscriber->sql(
		q(SELECT count(*) FROM parallel_apply.writers w
		WHERE remote_xid IS NOT NULL AND remote_lsn IS NOT NULL)
	),
	'4',
	'the view tells which remote transactions they are');
$lock->release;
$publisher->wait_applied;
is(visible(), '5 of 5', 'all are visible when the lock has gone');
is($subscriber->counter('retries + commit_order_aborts'),
	'0', 'and all of them at their first attempt');

# At each gate, exactly the older transactions are visible.  Detects: commits in the
# order in which transactions were received or finished, instead of the commit
# order.
my @locks =
  map {
	$subscriber->hold("SELECT FROM gate WHERE id = $_ % 5 + 1 FOR UPDATE")
  } 1 .. 5;
$publisher->sql(history_sql(6, 110));
for my $gate (1 .. 5)
{
	my $older = $gate * 20 - 1;
	$subscriber->poll_query_until('postgres',
		"SELECT max(n) >= $older FROM history")
	  or die "transaction $older has not been applied";
	$subscriber->states_become(
		'waiting for lock, ' . join(', ', ('waiting for prior commit') x 3),
		"the next transactions are applied behind gate $gate");
	is( visible(),
		"$older of $older",
		"gate $gate shows the older transactions and no younger one");
	my $lock = shift @locks;
	$lock->release;
}
$publisher->wait_applied;
is(visible(), '110 of 110', 'all are visible behind the last gate');

# A reader takes snapshots all the time.  It finds a gap in the history, and money
# that is taken from one row and not yet added to the other.  All transactions are a backlog
# then, however slowly they arrive.
sub check_snapshots
{
	my ($first, $last, $name) = @_;
	my $lock = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		"BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO odd VALUES ($first); COMMIT;"
		  . history_sql($first + 1, $last));
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) = 4 FROM parallel_apply.writers WHERE state <> 'idle')
	) or die 'the writers have nothing to do';
	$subscriber->wait_until(
		"queue_transactions > $last - $first FROM parallel_apply.subscriptions",
		'there is no backlog');
	my $reader = $subscriber->background_psql('postgres');
	$reader->query_until(qr/reads/, <<~"SQL");
		\\echo reads
		DO \$\$
		DECLARE
			seen record;
			before int := 0;
		BEGIN
			LOOP
				SELECT (SELECT max(n) FROM history) AS last,
					(SELECT count(*) FROM history) AS rows,
					(SELECT sum(n) FROM balance) AS total INTO seen;
				ASSERT seen.last = seen.rows AND seen.total = 4000 AND seen.last >= before,
					format('history up to %s has %s rows, total %s', seen.last, seen.rows, seen.total);
				EXIT WHEN seen.last = $last;
				before := seen.last;
			END LOOP;
		END \$\$;
		\\echo 'has seen all'
		SQL
	$lock->release;
	like(
		$reader->query_until(qr/has seen all|ERROR/, ''),
		qr/has seen all/,
		"every snapshot is one of the publisher, with $name");
	is($reader->{stderr}, '', "and the reader has no complaint, with $name");
	$reader->quit;
	$publisher->wait_applied;
	return;
}

# Return the number of local transactions that have written these rows.
sub local_transactions
{
	my ($first, $last) = @_;
	return $subscriber->sql(
		"SELECT count(DISTINCT x) FROM (SELECT n, xmin::text x FROM odd
		UNION ALL SELECT n, xmin::text FROM even) h WHERE n BETWEEN $first AND $last"
	);
}

check_snapshots(111, 600, 'one transaction at a time');
is(local_transactions(111, 600),
	'490', 'without batches, each transaction is one on the subscriber, too');

# Detects: a batch that is committed before its turn; no batches at all.
set('parallel_apply.max_batch_transactions = 32');
check_snapshots(601, 1200, 'batches');
cmp_ok(local_transactions(601, 1200),
	'<', 600, 'a backlog is applied in batches of several transactions');
$pair->rows_equal($_) for @tables;

# A hot row: each transaction depends on the previous one, and most of these are in
# the same batch.  Detects: a batch that waits for itself.
$lock = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
my $hot = 'UPDATE balance SET n = n WHERE id = 1;';
$publisher->sql("BEGIN; UPDATE gate SET n = n + 1 WHERE id = 1; $hot COMMIT;"
	  . $hot x 300);
$subscriber->states_become(
	'waiting for lock, ' . join(', ', ('waiting for dependency') x 3),
	'batches wait for the transaction before them');
$lock->release;
$publisher->wait_applied;

# Detects: batches, which would give rows the commit time of another transaction;
# the time or the origin of the commit not set.
$subscriber->append_conf('postgresql.conf', 'track_commit_timestamp = on');
$subscriber->restart;
$subscriber->wait_for_pool('tap', 4);
check_snapshots(1201, 1300, 'commit timestamps');
is(local_transactions(1201, 1300),
	'100', 'there are no batches while commit timestamps are kept');
my $times =
  q(SELECT string_agg(n || ' ' || pg_xact_commit_timestamp(x), E'\n' ORDER BY n)
	FROM (SELECT n, xmin x FROM odd UNION ALL SELECT n, xmin FROM even) h WHERE n > 1200);
is( $subscriber->sql($times),
	$publisher->sql($times),
	'rows have the commit time of the publisher');
is( $subscriber->sql(
		q(SELECT count(*) FROM odd, pg_xact_commit_timestamp_origin(xmin) o
		JOIN pg_replication_origin r ON r.roident = o.roident
		JOIN pg_subscription s ON roname = 'pg_' || s.oid WHERE n > 1200)
	),
	'50',
	'and the origin of the subscription');

# A commit takes long although the transaction has its turn: it needs the lock of
# NOTIFY, which a local session holds while it waits for a standby that does not
# exist.  Detects: the next transaction gets its turn before the commit.
$subscriber->sql(
	q(CREATE FUNCTION tell(n int) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_notify('told', n::text);
		RETURN true;
	END $$;
	ALTER TABLE odd ADD CONSTRAINT tell CHECK (tell(n)) NOT VALID;)
);
my $notifier = $subscriber->background_psql('postgres');
$notifier->query_until(qr/notifies/, <<~'SQL');
	SET synchronous_commit = on;
	\echo notifies
	BEGIN;
	SELECT pg_logical_emit_message(true, 'told', 'a commit with WAL');
	NOTIFY told;
	COMMIT;
	SQL
$subscriber->poll_query_until(
	'postgres',
	q(SELECT count(*) = 1 FROM pg_locks WHERE granted
	AND locktype = 'object' AND classid = 'pg_database'::regclass AND objid = 0)
) or die 'the lock of NOTIFY is not taken';
$publisher->sql(
	q(BEGIN; INSERT INTO odd VALUES (1301); UPDATE balance SET n = n - 1 WHERE id = 1; COMMIT;
	INSERT INTO even VALUES (1302);
	UPDATE balance SET n = n + 1 WHERE id = 1;)
);
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'younger transactions wait while the oldest is about to commit');
is(visible(), '1300 of 1300', 'and none of them is visible');
$subscriber->wait_until(
	q(count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'),
	'the session does not wait for a standby');
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep')
);
$publisher->wait_applied;
$notifier->quit;

$pair->rows_equal($_, "$_ is equal on both sides in the end") for @tables;
finish($publisher, $subscriber, qr/FATAL:  terminating/);
done_testing();
