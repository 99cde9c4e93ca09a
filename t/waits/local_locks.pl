# Promise: local sessions may lock rows and tables, or change tables, while
# transactions are applied.  A writer that needs a locked object waits, which is
# visible; other transactions are applied meanwhile, up to their turn.  When the
# lock is released, everything continues, with nothing repeated and nothing lost.
#
# Each time a local transaction keeps its lock as long as the test needs it, or
# waits itself for a writer that a locked row of gate has stopped.  The comment of
# each part names the faults that it detects.
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
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1
		deadlock_timeout = 100ms
		autovacuum = off));
my @tables = qw(gate other wide);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE other (id int PRIMARY KEY, n int);
	CREATE TABLE wide (id int PRIMARY KEY, n int, t text);));
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO other SELECT i, 0 FROM generate_series(1, 9) i;
	INSERT INTO wide SELECT i, 0, 'text' FROM generate_series(1, 100) i;));
$subscriber->create_extension;
$pair->subscribe('tap');

my $id = 100;
my $lock = 'waiting for lock';
my $turn = 'waiting for prior commit';

sub attempts
{
	return $subscriber->counter('retries + commit_order_aborts + fallbacks');
}

sub tables_are_equal
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$subscriber->wait_until_counted;
	$pair->rows_equal($_, "$_ is equal on both sides $when")
	  for 'gate', 'other';
	$pair->rows_equal(
		'(SELECT id, n::int, t FROM wide)',
		"wide is equal on both sides $when");
	return;
}

# Does a local session wait for a lock?
my $waits =
  q(SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE NOT granted AND backend_type = 'client backend');

# Start a local session that will wait for a lock of a writer.
sub start_waiting
{
	my ($sql) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/begins/, "\\echo begins\n$sql;\n");
	$subscriber->poll_query_until('postgres', $waits)
	  or die "$sql does not wait";
	return $session;
}

# A local transaction locks a table and changes it.  Detects: transactions that do
# not touch it are blocked before they are applied, by the receiver or by their
# writers; one that waits is treated as failed.
for my $statement (
	'LOCK TABLE wide IN SHARE MODE',
	'CREATE INDEX wide_n ON wide (n)',
	'ALTER TABLE wide ADD COLUMN local int DEFAULT 7',
	'ALTER TABLE wide ALTER n TYPE bigint',
	'CREATE UNIQUE INDEX wide_t ON wide (id, t)',
	'ALTER TABLE wide ADD CHECK (n < 1000)')
{
	$subscriber->wait_for_state('idle', 4);
	my $attempts = attempts();
	my $session = $subscriber->hold($statement);
	$id += 10;
	$publisher->commit_each(
		"INSERT INTO wide VALUES ($id, 1, 'new')",
		"INSERT INTO other VALUES ($id, 1)",
		"UPDATE other SET n = n + 1 WHERE id = 1",
		"DELETE FROM wide WHERE id = $id - 10");
	$subscriber->states_become("$lock, $turn, $turn, $lock",
		"only transactions that need the table wait for $statement");
	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT count(*) FROM parallel_apply.writers w JOIN pg_stat_activity a USING (pid)
			WHERE w.state = 'waiting for lock' AND a.wait_event_type = 'Lock'
			AND a.query LIKE 'public.wide %' AND pg_blocking_pids(pid) <> '{}'),
			'2'),
		'and pg_stat_activity shows what they wait for');
	is($subscriber->sql("SELECT count(*) FROM other WHERE id = $id"),
		'0', 'nothing overtakes them');
	$session->release;
	tables_are_equal("after $statement");
	is(attempts(), $attempts, 'and each was applied at its first attempt');
}

# The oldest transaction uses the table, and so does one that comes after the local
# session.  Detects: the younger one is let in before the session, or waits for its
# turn with the session's lock requested, or uses the previous definition.
for my $statement (
	'ALTER TABLE wide ADD COLUMN another text',
	'ALTER TABLE wide DROP COLUMN local',
	'ALTER TABLE wide ALTER n TYPE int',
	'VACUUM FULL wide',
	'REINDEX TABLE wide')
{
	$subscriber->wait_for_state('idle', 4);
	my $attempts = attempts();
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$id += 10;
	$publisher->commit_each(
		"INSERT INTO wide VALUES ($id, 1, 'older'); UPDATE gate SET n = n + 1 WHERE id = 1;
		UPDATE wide SET n = 2 WHERE id = $id");
	$subscriber->wait_for_state($lock);
	my $session = start_waiting($statement);
	$publisher->commit_each(
		"INSERT INTO wide VALUES ($id + 1, 1, 'younger')",
		'UPDATE other SET n = n + 1 WHERE id = 2');
	$subscriber->states_become("$lock, $lock, $turn",
		"a younger transaction waits behind $statement");
	$gate->query_safe('COMMIT');
	$session->quit;
	$gate->quit;
	tables_are_equal("after $statement came in between");
	is(attempts(), $attempts, 'and each was applied at its first attempt');
}

# A local session does not wait for a transaction that is waiting for its turn.
# That transaction is rolled back, and takes its locks again only in its turn.
# Detects: the session waits until the oldest transaction is committed.
{
	my $soon =
	  "SET lock_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'";
	my $commit_order_aborts = $subscriber->counter('commit_order_aborts');
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1 WHERE id = 1',
		'UPDATE other SET n = n + 1 WHERE id = 7');
	$subscriber->states_become("$lock, $turn",
		'a transaction has locked a row before its turn');
	$subscriber->sql("$soon; UPDATE other SET n = n WHERE id = 7");
	pass('a session gets its row');
	$subscriber->sql('SELECT FROM other WHERE id = 7 FOR UPDATE NOWAIT');
	pass('which is not locked again');
	$subscriber->states_become("$lock, $turn", 'it waits for its turn');
	$subscriber->counter_becomes(
		'commit_order_aborts',
		"= $commit_order_aborts + 1",
		'and is counted once');

	# The transaction is itself waiting for a lock, of a row or a table.  Another
	# writer finds it.
	my $row = $subscriber->hold('SELECT FROM other WHERE id = 9 FOR UPDATE');
	my $table = $subscriber->hold('LOCK TABLE wide IN SHARE MODE');
	$publisher->commit_each(
		'UPDATE other SET n = 6 WHERE id = 6; UPDATE other SET n = 9 WHERE id = 9',
		'UPDATE wide SET n = 5 WHERE id = 5');
	$subscriber->states_become("$lock, $turn, $lock, $lock",
		'two transactions wait for locks before their turn');
	$subscriber->sql("$soon; UPDATE other SET n = n WHERE id = 6");
	pass('a session gets the row of one that waits for a lock');
	$subscriber->sql("$soon; BEGIN; LOCK TABLE wide IN SHARE MODE; COMMIT");
	pass('and a lock of the table that another one waits for');
	$subscriber->states_become("$lock, $turn, $turn, $turn",
		'all three wait for their turn');
	$subscriber->counter_becomes(
		'commit_order_aborts',
		"= $commit_order_aborts + 3",
		'and each is counted once');
	end_sessions($row, $table, $gate);
	tables_are_equal('after sessions did not wait');
	is($subscriber->counter('commit_order_aborts') - $commit_order_aborts,
		3, 'nor was one counted later');
}

# CREATE INDEX CONCURRENTLY waits for transactions, but they do not wait for it.
# Detects: writers that keep it waiting for something younger than what they
# commit; an index that is not used for dependencies afterwards.
{
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	$id += 10;
	$publisher->commit_each(
		"UPDATE gate SET n = n + 1 WHERE id = 1; INSERT INTO other VALUES ($id, 1)",
		"INSERT INTO other VALUES ($id + 1, 1)");
	$subscriber->states_become("$lock, $turn", 'two writers have begun');
	my $session = start_waiting(
		'CREATE UNIQUE INDEX CONCURRENTLY wide_n_t ON wide (n, t) WHERE n > 100;
		CREATE UNIQUE INDEX CONCURRENTLY other_n ON other (n) WHERE false;
		REINDEX TABLE CONCURRENTLY other');
	$publisher->commit_each(
		"INSERT INTO wide VALUES ($id, 1, 'meanwhile')",
		"INSERT INTO other VALUES ($id + 2, 1)");
	$subscriber->states_become("$lock, $turn, $turn, $turn",
		'others are applied while an index is created concurrently');
	$gate->query_safe('COMMIT');
	$session->quit;
	$gate->quit;
	tables_are_equal('after an index was created concurrently');
	is( $subscriber->sql(
			'SELECT count(*) FROM pg_index WHERE NOT indisvalid'),
		'0',
		'which has succeeded');
}

# A long transaction takes new snapshots, and does not prevent the removal of old
# rows.
{
	$subscriber->wait_for_state('idle', 4);
	my $old = $subscriber->hold('SELECT pg_current_xact_id()');
	my $xid = $old->query_safe('SELECT pg_current_xact_id()');
	my @gates =
	  map { $subscriber->hold("SELECT FROM gate WHERE id = $_ FOR UPDATE") }
	  1, 2;
	$publisher->commit_each(
		"UPDATE gate SET n = n + 1 WHERE id = 1;
		INSERT INTO wide SELECT i, 0, 'x' FROM generate_series(1001, 1150) i;
		UPDATE gate SET n = n + 1 WHERE id = 2");
	my $horizon =
	  q(FROM pg_stat_activity a JOIN parallel_apply.writers w USING (pid)
		WHERE w.state = 'waiting for lock');
	$subscriber->wait_until(
		"count(*) = 1 $horizon AND a.backend_xmin = '$xid'::xid",
		'no writer has the old snapshot');
	$old->query_safe('COMMIT');
	$gates[0]->query_safe('COMMIT');
	$subscriber->wait_until(
		"count(*) = 1 $horizon AND changes_done = 152",
		'the writer does not come to the end');
	is($subscriber->sql("SELECT a.backend_xmin = '$xid'::xid $horizon"),
		'f', 'a long transaction has a new snapshot');
	$gates[1]->query_safe('COMMIT');
	$_->quit for $old, @gates;
	tables_are_equal('after a long transaction');
}

# A local session has changed a row, and commits.  Detects: its old version is
# found, with an error that it is gone.
{
	$subscriber->wait_for_state('idle', 4);
	my $attempts = attempts();
	my $session = $subscriber->hold('UPDATE other SET n = -1 WHERE id = 9');
	$publisher->commit_each('UPDATE other SET n = 9 WHERE id = 9');
	$subscriber->states_become($lock,
		'a writer waits for a row that is being changed');
	$session->release;
	tables_are_equal('after a row was changed');
	is(attempts(), $attempts, 'and the row of then is found at once');
}

# A deadlock with a local session, detected by a writer, which is the victim.
# Detects: an error in the log; a transaction that is lost.
{
	my $retries = $subscriber->counter('retries');
	my $gate = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
	my $session = $subscriber->hold(
		q(SET LOCAL deadlock_timeout = '1h'; UPDATE other SET n = -1 WHERE id = 3)
	);
	$publisher->commit_each(
		'UPDATE other SET n = 4 WHERE id = 4; UPDATE gate SET n = n + 1 WHERE id = 1;
		UPDATE other SET n = 3 WHERE id = 3',
		'UPDATE other SET n = n + 5 WHERE id = 5');
	$subscriber->states_become("$lock, $turn",
		'a writer has a row that a local session wants');
	$session->query_until(qr/wants/,
		"\\echo wants\nUPDATE other SET n = -2 WHERE id = 4;\nCOMMIT;\n");
	$subscriber->poll_query_until('postgres', $waits)
	  or die 'the local session does not wait';
	$gate->query_safe('COMMIT');
	$_->quit for $session, $gate;
	tables_are_equal('after a deadlock with a local session');
	cmp_ok($subscriber->counter('retries'),
		'>', $retries, 'its victim, a writer, has tried again');
	unlike(
		slurp_file($subscriber->logfile),
		qr/deadlock detected/,
		'and there is no error in the log');
}

# The same, detected by the local session
{
	my $session = $subscriber->hold(
		q(SET LOCAL deadlock_timeout = '1ms'; UPDATE other SET n = -1 WHERE id = 6)
	);
	$publisher->commit_each(
		'UPDATE other SET n = 7 WHERE id = 7; UPDATE other SET n = 6 WHERE id = 6',
		'UPDATE other SET n = n + 5 WHERE id = 5');
	$subscriber->states_become("$lock, $turn",
		'a writer wants a row that a local session has');
	$session->query('UPDATE other SET n = -2 WHERE id = 7; ROLLBACK');
	$session->quit;
	tables_are_equal('after a deadlock that a local session has found');
}

# The publisher is shut down, and gives up after some time without a reply, as it
# does with PostgreSQL's own apply, also while others wait for it, and a moment
# later.  If the machine stalls for as long as the timeouts, there is another attempt
# with longer ones.
my $timeout =
  qr/ERROR: +terminating logical replication worker due to timeout/;
{
	my $is_patient;
	for my $seconds (3, 15, 75)
	{
		my $offset = -s $subscriber->logfile;
		my $session =
		  $subscriber->hold('UPDATE other SET n = n WHERE id = 8');
		$publisher->reload_with("wal_sender_timeout = '${seconds}s'");
		$subscriber->reload_with(
			"wal_receiver_timeout = '" . 500 * $seconds . "ms'");
		$publisher->commit_each(
			"UPDATE other SET n = $seconds WHERE id = 8",
			'UPDATE other SET n = n + 5 WHERE id = 5');
		$subscriber->states_become("$lock, $turn",
			'a writer wants a row while the publisher is shut down');
		ok($publisher->stop('fast', fail_ok => 1),
			'which does not wait for it');
		$session->release;
		$publisher->stop('fast', fail_ok => 1);
		$publisher->start;
		tables_are_equal('after the publisher was shut down');
		$is_patient = slurp_file($subscriber->logfile, $offset) !~ $timeout;
		last if $is_patient;
	}
	ok($is_patient, 'and the apply worker does not give up before it');
	$subscriber->reload_with("wal_receiver_timeout = '1h'");
}

# A publisher that waits for a reply gets it as soon as possible.
{
	$publisher->reload_with('wal_sender_timeout = 0');
	$subscriber->reload_with('wal_receiver_status_interval = 0',
		'log_min_messages = debug2');
	$subscriber->wait_until(
		q(setting = 'debug2' FROM pg_settings WHERE name = 'log_min_messages'),
		'settings are not read');
	$subscriber->set_synchronous_commit('off');
	my $session = $subscriber->hold('UPDATE other SET n = n WHERE id = 8');
	$publisher->commit_each('UPDATE other SET n = 9 WHERE id = 8');
	$subscriber->states_become($lock, 'a writer wants a row');
	my $offset = -s $subscriber->logfile;
	my $stop = $publisher->begin_stop('fast');
	$subscriber->wait_for_log(
		qr/(?:(?>.*?sending feedback \(force 1\))){20}/s, $offset);
	$session->release;
	ok($stop->finish, 'a publisher is shut down when it can be answered');
	$publisher->stop('immediate', fail_ok => 1);
	$publisher->start;

	# a background worker that has just been forked would miss the signal
	$publisher->poll_query_until('postgres',
		q(SELECT state = 'streaming' FROM pg_stat_replication))
	  or die 'the subscriber does not return';
	$subscriber->reload_with('wal_receiver_status_interval = 10s',
		'log_min_messages = warning');
	tables_are_equal('after that');
}

$pair->rows_equal($_) for 'gate', 'other';
finish($publisher, $subscriber, qr/ERROR:  deadlock detected/, $timeout);
done_testing();
