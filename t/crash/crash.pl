# Promise: whichever process dies (a writer, the apply worker, the subscriber's or
# the publisher's server), no transaction is lost and none is applied twice.
#
# Each time the writers are busy: a local session has locked the row of gate, one
# transaction has made half of its changes and waits for it, younger ones wait for
# their turn, and the publisher continues to write.  A transaction that is applied
# twice shows in history, which has no key.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		restart_after_crash = on
		# Whatever is not flushed is lost.
		wal_writer_delay = 10s
		wal_writer_flush_after = 2GB));
my @tables = qw(accounts history gate);

$pair->exec_both(
	q(CREATE TABLE accounts (aid int PRIMARY KEY, balance int NOT NULL);
	CREATE TABLE history (n int, part int);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);));
$publisher->sql(
	q(
	INSERT INTO accounts SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO gate VALUES (1, 0), (2, 0);
	CREATE PROCEDURE make_load(first int, last int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN first..last LOOP
			UPDATE accounts SET balance = balance + i WHERE aid = i * 7 % 100 + 1;
			INSERT INTO history VALUES (i, 0);
			COMMIT;
		END LOOP;
	END $$;));
$subscriber->create_extension;
$pair->subscribe('tap');

# Numbers of transactions, never used twice
my $n = 0;

sub make_load
{
	my ($count) = @_;
	$publisher->sql(sprintf('CALL make_load(%d, %d)', $n + 1, $n + $count));
	$n += $count;
	return;
}

# Return the session that holds the gate, with a transaction that waits for it in
# the middle of its changes, and younger ones that wait for that transaction.
sub block_writers
{
	$subscriber->wait_for_pool('tap');
	my $session =
	  $subscriber->hold('SELECT n FROM gate WHERE id = 1 FOR UPDATE');
	make_load(50);
	$publisher->sql(
		qq(BEGIN;
		INSERT INTO history VALUES ($n, 1);
		UPDATE gate SET n = n + 1 WHERE id = 1;
		INSERT INTO history VALUES ($n, 2);
		COMMIT;));
	make_load(50);
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->wait_for_state('waiting for prior commit');
	return $session;
}

# Transactions that continue while a process dies; quit() waits for their end.
sub begin_load
{
	my ($count) = @_;
	my $session = $publisher->background_psql('postgres');
	my $sql = sprintf("\\echo started\nCALL make_load(%d, %d);\n",
		$n + 1, $n + $count);
	$session->query_until(qr/started/, $sql);
	$n += $count;
	return $session;
}

sub pid_of_writer
{
	my ($state) = @_;
	return $subscriber->sql(
		"SELECT pid FROM parallel_apply.writers WHERE state = '$state' LIMIT 1"
	);
}

sub terminate
{
	my ($pid) = @_;
	is($subscriber->sql("SELECT pg_terminate_backend($pid)"),
		't', "process $pid is terminated");
	return;
}

# Wait until the server has reinitialized itself after a crash.
sub wait_for_reinitialization
{
	my ($offset) = @_;
	$subscriber->wait_for_log(qr/all server processes terminated/, $offset);
	$subscriber->poll_query_until('postgres', 'SELECT true')
	  or die 'the subscriber is not back';
	return;
}

# A writer, in the middle of a transaction and while it waits for its turn
for my $state ('waiting for lock', 'waiting for prior commit')
{
	my $session = block_writers();
	my $load = begin_load(500);
	my $offset = -s $subscriber->logfile;
	terminate(pid_of_writer($state));
	$subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has started/, $offset);
	ok( $subscriber->log_contains(
			qr/"tap" will restart because writer \d has ended unexpectedly/,
			$offset),
		'the log says why the apply worker restarts');
	$session->quit;
	$load->quit;
	$pair->tables_equal("after the end of a writer $state", @tables);
}

# The apply worker.  The gate: the old writers are gone before new ones start,
# although one of them waits for a lock that is not released.
{
	my $session = block_writers();
	my $load = begin_load(500);
	my $offset = -s $subscriber->logfile;
	my $writers = join ',', $subscriber->writer_pids('tap');
	terminate($subscriber->apply_pid('tap'));
	$subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has started/, $offset);
	like(
		slurp_file($subscriber->logfile, $offset),
		qr/"tap" has stopped.*"tap" has started/s,
		'one pool stops before the next one starts');
	is( $subscriber->sql(
			"SELECT count(*) FROM pg_stat_activity WHERE pid IN ($writers)"),
		'0',
		'the writers are gone with their apply worker');
	$subscriber->wait_for_state('waiting for lock');
	$session->quit;
	$load->quit;
	$pair->tables_equal('after the end of the apply worker', @tables);
}

# Even if a writer does not react: the next pool waits until it is gone.
{
	my $session = block_writers();
	my $offset = -s $subscriber->logfile;
	my $writer = pid_of_writer('waiting for lock');
	my $apply_pid = $subscriber->apply_pid('tap');
	$subscriber->stop_waiting($writer, 'transactionid');
	$session->quit;
	terminate($apply_pid);
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT wait_event ILIKE 'BgWorkerShutdown' FROM pg_stat_activity WHERE pid = $apply_pid"
		),
		'the apply worker waits for a writer that does not react');
	make_load(50);
	unlike(
		slurp_file($subscriber->logfile, $offset),
		qr/"tap" has (started|stopped)/,
		'and no other one begins');
	kill 'CONT', $writer;
	$subscriber->wait_for_log(
		qr/"tap" has stopped.*parallel apply of subscription "tap" has started/s,
		$offset);
	$pair->tables_equal('after a writer did not react', @tables);
}

# The apply worker again, in the middle of a transaction that it applies itself,
# since the subscription does not know one of its tables, with changes before.
{
	$subscriber->wait_for_pool('tap');
	$pair->exec_both('CREATE TABLE unknown (n int)');
	my $session =
	  $subscriber->hold('SELECT n FROM gate WHERE id = 1 FOR SHARE');
	make_load(50);
	$publisher->sql(
		qq(BEGIN;
		INSERT INTO history VALUES ($n, 3);
		INSERT INTO unknown VALUES ($n);
		UPDATE gate SET n = $n WHERE id = 1;
		INSERT INTO history VALUES ($n, 4);
		COMMIT;));
	make_load(50);
	my $apply_pid = $subscriber->apply_pid('tap');
	$subscriber->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = $apply_pid"
	) or die 'the apply worker does not wait for the row';
	my $offset = -s $subscriber->logfile;
	terminate($apply_pid);
	$subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has started/, $offset);
	$session->quit;
	$pair->tables_equal('after the end of the apply worker in a fallback',
		@tables);
}

# An idle writer
{
	my $offset = -s $subscriber->logfile;
	$subscriber->wait_for_state('idle');
	terminate(pid_of_writer('idle'));
	$subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has started/, $offset);
	make_load(50);
	$pair->tables_equal('after the end of an idle writer', @tables);
}

# kill -9 of one of them crashes the server.
for my $process ('a writer', 'the apply worker')
{
	my $session = block_writers();
	my $load = begin_load(500);
	my $offset = -s $subscriber->logfile;
	my $pid =
	  $process eq 'a writer'
	  ? pid_of_writer('waiting for lock')
	  : $subscriber->apply_pid('tap');
	is(kill('KILL', $pid), 1, "$process is killed");
	wait_for_reinitialization($offset);
	$session->quit;
	$load->quit;
	$pair->tables_equal("after $process was killed", @tables);
}

# An immediate shutdown
{
	my $session = block_writers();
	my $load = begin_load(500);
	$subscriber->stop('immediate');
	$session->quit;
	make_load(50);
	$subscriber->start;
	$load->quit;
	$pair->tables_equal('after a crash of the subscriber', @tables);
}

# No lost transaction was confirmed: the server crashes after the publisher has
# learned that everything is applied, by the same apply worker, by the next one, by
# PostgreSQL's own apply after the pool, and by its next apply worker.
sub wait_for_next_worker
{
	my ($walsender) = @_;
	$publisher->poll_query_until('postgres',
		"SELECT count(flush_lsn) = 1 FROM pg_stat_replication WHERE pid <> $walsender"
	) or die 'the new apply worker says nothing';
	return;
}

for my $confirmer (
	'the pool',
	'the next pool',
	'PostgreSQL itself',
	'the next apply worker of PostgreSQL itself')
{
	$subscriber->wait_for_pool('tap');
	make_load(50);
	$publisher->wait_applied;
	my $offset = -s $subscriber->logfile;
	my $walsender = $publisher->sql('SELECT pid FROM pg_stat_replication');
	if ($confirmer eq 'the next pool')
	{
		# Commits between the two gates are not flushed yet.
		my $session = block_writers();
		my $next =
		  $subscriber->hold('SELECT n FROM gate WHERE id = 2 FOR UPDATE');
		$publisher->sql('UPDATE gate SET n = n + 1 WHERE id = 2');
		$session->quit;
		$subscriber->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM history WHERE n = $n")
		  or die 'the transactions before the gate are not applied';
		terminate($subscriber->apply_pid('tap'));
		$subscriber->wait_for_log(
			qr/parallel apply of subscription "tap" has started/, $offset);
		wait_for_next_worker($walsender);
		$subscriber->stop('immediate');
		$next->quit;
	}
	elsif ($confirmer =~ /PostgreSQL itself/)
	{
		$subscriber->append_conf('postgresql.conf',
			'parallel_apply.writers_per_subscription = 1');
		$subscriber->reload;
		$subscriber->wait_for_log(
			qr/parallel apply of subscription "tap" has stopped/, $offset);
		my $lsn = $publisher->lsn('write');
		# The next keepalive says that there is nothing after that.
		$publisher->flush_wal;
		$publisher->wait_for_catchup('tap', 'flush', $lsn);
		if ($confirmer =~ /next/)
		{
			# nothing flushes these commits before the next apply worker starts
			make_load(5);
			$subscriber->poll_query_until('postgres',
				"SELECT count(*) = 1 FROM history WHERE n = $n")
			  or die 'PostgreSQL itself has not applied the transactions';
			terminate($subscriber->apply_pid('tap'));
			wait_for_next_worker($walsender);
		}
	}
	$subscriber->stop('immediate');
	$subscriber->append_conf('postgresql.conf',
		'parallel_apply.writers_per_subscription = 4');
	$subscriber->start;
	make_load(50);
	$pair->tables_equal("after a crash when $confirmer has confirmed",
		@tables);
}

# The same for a small transaction that the apply worker itself has applied
{
	$subscriber->reload_with(
		'parallel_apply.leader_participation = on',
		'parallel_apply.selftest_fast = on');
	$subscriber->wait_for_pool('tap', 4);
	my $by_leader =
	  'SELECT leader_transactions FROM parallel_apply.subscription_stats';
	my $is_leader_transaction = 0;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (!$is_leader_transaction && time < $end)
	{
		my $before = $subscriber->sql($by_leader);
		make_load(1);
		$publisher->wait_applied;
		$is_leader_transaction = $subscriber->sql($by_leader) > $before;
	}
	ok($is_leader_transaction,
		'the apply worker has applied a transaction itself');
	$publisher->wait_for_catchup('tap', 'flush');
	$subscriber->stop('immediate');
	$subscriber->append_conf('postgresql.conf',
		'parallel_apply.leader_participation = off');
	$subscriber->start;
	make_load(50);
	$pair->tables_equal('after a crash when that was confirmed', @tables);
}

# The same for a fallback
{
	$subscriber->wait_for_pool('tap');
	$publisher->sql(
		qq(BEGIN;
		INSERT INTO history VALUES ($n, 5);
		INSERT INTO unknown VALUES ($n);
		COMMIT;));
	$publisher->wait_for_catchup('tap', 'flush');
	$subscriber->stop('immediate');
	$subscriber->start;
	make_load(50);
	$pair->tables_equal('after a crash when a fallback was confirmed',
		@tables);
}

{
	my $session = block_writers();
	my $apply_pid = $subscriber->apply_pid('tap');
	$publisher->stop('immediate');
	# The apply worker has received it, but writers have all of the transactions.
	$subscriber->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $apply_pid")
	  or die 'the apply worker has not noticed the end of the publisher';
	$publisher->start;
	make_load(50);
	$session->quit;
	$pair->tables_equal('after a crash of the publisher', @tables);
}

# A plain restart of both servers
{
	my $load = begin_load(500);
	$subscriber->restart;
	$load->quit;
	make_load(50);
	$publisher->restart;
	make_load(50);
	$pair->tables_equal('after a restart of both', @tables);
}

is( $subscriber->sql(
		q(SELECT count(*) FROM (SELECT 1 FROM history GROUP BY n, part HAVING count(*) > 1) d)
	),
	'0',
	'nothing was applied twice');

finish(
	$publisher,
	$subscriber,
	qr/FATAL: .*terminating .* due to administrator command/,
	qr/FATAL: +the database system is (starting up|shutting down|in recovery mode|not yet accepting connections)/
);
done_testing();
