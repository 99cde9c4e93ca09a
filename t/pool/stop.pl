# Promise: writers exit with their apply worker, whatever ends it, and leave neither
# a process nor an error behind: ALTER SUBSCRIPTION ... DISABLE, DROP SUBSCRIPTION,
# DROP DATABASE, DROP EXTENSION, the shutdown of the server.
#
# Each time a writer waits for a row that a local session has locked, in the middle
# of a transaction, and younger ones wait for their turn.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The queue is small, so that a test can fill it.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf =>
	  "parallel_apply.queue_size = 64kB\nwal_receiver_status_interval = 1s");
my $connstr = $publisher->connstr;

# The same in two databases
for my $db ('postgres', 'other')
{
	if ($db ne 'postgres')
	{
		$_->sql("CREATE DATABASE $db") for $publisher, $subscriber;
	}
	$pair->exec_both(
		q(CREATE TABLE history (n int, part int);
		CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
		CREATE TABLE bell (id int PRIMARY KEY);), $db);
	$publisher->safe_psql($db, 'INSERT INTO gate VALUES (1, 0)');
	$subscriber->create_extension($db);
	$pair->subscribe("tap_$db", db => $db);
}

# Return the session that blocks the writers of a database.
sub block_writers
{
	my ($db) = @_;
	$subscriber->wait_for_pool("tap_$db", 4, $db);
	my $session = $subscriber->hold('SELECT n FROM gate FOR UPDATE', $db);
	my $n = $publisher->last_history;
	$publisher->safe_psql(
		$db,
		"BEGIN; INSERT INTO history VALUES ($n, 1); UPDATE gate SET n = n + 1;
		INSERT INTO history VALUES ($n, 2); COMMIT;");
	$publisher->make_history(50, $db);
	$subscriber->wait_for_state('waiting for lock', 1, $db);
	$subscriber->wait_for_state('waiting for prior commit', 3, $db);
	return $session;
}

# No process is left, in pg_stat_activity and in pg_locks.
sub writers_are_gone
{
	my ($name, $db) = @_;
	my $pattern = 'parallel_apply writer%';
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity
			WHERE (backend_type LIKE '$pattern' OR application_name LIKE '$pattern')
			AND datname = '$db'"),
		$name);
}

sub tables_are_equal
{
	my ($when, $db) = @_;
	$publisher->wait_applied("tap_$db");
	$pair->rows_equal($_, "$_ is equal on both sides $when", $db)
	  for 'history', 'gate';
	return;
}

sub rows_of_history
{
	return $subscriber->sql('SELECT count(*) FROM history');
}

# ALTER SUBSCRIPTION ... DISABLE, with more transactions than the queue can hold
{
	my $session = block_writers('postgres');
	$publisher->make_history(1000);
	my $rows = rows_of_history();
	$subscriber->sql('ALTER SUBSCRIPTION tap_postgres DISABLE');
	$subscriber->wake('tap_postgres');
	writers_are_gone('writers are gone when the subscription is disabled',
		'postgres');
	$session->quit;
	is(rows_of_history(), $rows,
		'a disabled subscription applies nothing more');
	$subscriber->sql('ALTER SUBSCRIPTION tap_postgres ENABLE');
	tables_are_equal('when the subscription is enabled again', 'postgres');
}

# A pool closes before its writers could start, and then they cannot start:
# PostgreSQL itself applies what no writer has claimed.  They wait for a lock on
# pg_database, as any new session would.
{
	# With streaming = parallel, the default from 18 on, the apply worker would
	# restart to have writers, and could not connect.
	$subscriber->connect_again('tap_postgres',
		'ALTER SUBSCRIPTION tap_postgres SET (streaming = off)');

	my $seconds = $PostgreSQL::Test::Utils::timeout_default;
	my $watcher =
	  $subscriber->hold("SET statement_timeout = '${seconds}s'; COMMIT");
	my $until = sub {
		my ($condition) = @_;
		$watcher->query_safe(
			"DO \$\$ BEGIN LOOP EXIT WHEN (SELECT $condition FROM parallel_apply.get_subscriptions()
			WHERE subid = (SELECT oid FROM pg_subscription WHERE subname = 'tap_postgres'));
			END LOOP; END \$\$");
		return;
	};
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$until->("state = 'native'");
	my $session =
	  $subscriber->hold(
		'ALTER DATABASE postgres ALLOW_CONNECTIONS false; LOCK pg_database',
		'other');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
	$until->("state = 'parallel'");
	$publisher->make_history(10);
	$until->('queue_transactions > 0');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$until->("state = 'stopping'");
	$session->query_safe('COMMIT');
	$until->("state = 'native'");
	pass('a pool without writers ends when it closes');
	$session->query_safe('ALTER DATABASE postgres ALLOW_CONNECTIONS true');
	$_->quit for $watcher, $session;
	tables_are_equal('when writers could not start', 'postgres');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
}

# A closing pool accepts no more transactions.  Otherwise it would never be empty
# under load.
{
	my $session = block_writers('postgres');
	my $queued = 51;
	$subscriber->wait_until(
		"queue_transactions = $queued FROM parallel_apply.subscriptions",
		'not all are received');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$subscriber->wait_until(
		q(state = 'stopping' FROM parallel_apply.subscriptions),
		'the pool does not close');
	$publisher->make_history(10);
	$publisher->wait_for_answer('tap_postgres');
	is( $subscriber->sql(
			'SELECT queue_transactions FROM parallel_apply.subscriptions'),
		$queued,
		'a pool that closes takes nothing more');
	$session->quit;
	tables_are_equal('when a pool has closed', 'postgres');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
}

# DROP EXTENSION lets writers end what they have claimed; PostgreSQL itself applies
# the rest.
{
	my $session = block_writers('postgres');
	$subscriber->sql('DROP EXTENSION parallel_apply');
	$publisher->make_history(10);
	$session->quit;
	tables_are_equal('when the extension is dropped', 'postgres');
	writers_are_gone('writers are gone when the extension is dropped',
		'postgres');
	$subscriber->create_extension;
	$publisher->make_history(10);
}

# A change of the connection restarts the apply worker.
{
	my $session = block_writers('postgres');
	$subscriber->restart_apply('tap_postgres',
		"ALTER SUBSCRIPTION tap_postgres CONNECTION '$connstr dbname=postgres options=-crandom_page_cost=5'"
	);
	$subscriber->wait_for_state('waiting for lock');
	$session->quit;
	tables_are_equal('with another connection', 'postgres');
}

# Shutdown and start of the server
{
	my $session = block_writers('postgres');
	my $other = block_writers('other');
	$subscriber->stop('fast');
	pass('the server stops while writers wait');
	$subscriber->start;
	$_->quit for $session, $other;
	tables_are_equal('after a stop of the subscriber', $_)
	  for 'postgres', 'other';
	ok(!$subscriber->log_contains(qr/server process .* was terminated/),
		'nothing has crashed');
}

# DROP SUBSCRIPTION, in the database that is dropped then
{
	my $session = block_writers('other');
	my ($status, $stdout, $stderr) =
	  $subscriber->psql('postgres', 'DROP DATABASE other WITH (FORCE)');
	like(
		$stderr,
		qr/database "other" is being used by logical replication subscription/,
		'a database with a subscription cannot be dropped');
	$subscriber->safe_psql('other', 'DROP SUBSCRIPTION tap_other');
	is( $subscriber->sql(
			q(SELECT count(*) FROM pg_stat_activity WHERE datname = 'other' AND backend_type LIKE 'parallel_apply%')
		),
		'0',
		'writers are gone when DROP SUBSCRIPTION is done');
	$session->quit;
	# The server waits only some seconds for sessions that are about to exit.
	$subscriber->end_sessions_of;
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_stat_activity WHERE datname = 'other'),
		'a session does not end');
	is($subscriber->psql('postgres', 'DROP DATABASE other'),
		0, 'and the database can be dropped');
	is( $publisher->sql(
			q(SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'tap_other')
		),
		'0',
		'the replication slot is dropped');
}

# Writers that have not started: they need a catalog that is locked.
{
	my $apply_pid = $subscriber->apply_pid('tap_postgres');
	my $session =
	  $subscriber->hold(
		'LOCK TABLE pg_subscription IN ACCESS EXCLUSIVE MODE');
	$subscriber->append_conf('postgresql.conf',
		'parallel_apply.writers_per_subscription = 6');
	$subscriber->reload;
	$subscriber->poll_query_until(
		'postgres',
		q(SELECT count(*) >= 2 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE NOT l.granted AND a.backend_type LIKE 'parallel_apply writer%')
	) or die 'no writer waits for the catalog';
	$subscriber->sql("SELECT pg_terminate_backend($apply_pid)");
	writers_are_gone('writers that have not started yet are gone, too',
		'postgres');
	$session->quit;
	$publisher->make_history(10);
	tables_are_equal('after that', 'postgres');
	$subscriber->wait_for_pool('tap_postgres', 6);
}

# A writer that has its turn waits for the lock that NOTIFY takes at the commit.  A
# local session holds it while it waits for a standby that does not exist.
sub ringing_writer
{
	my ($old) = @_;
	my $from = q(FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE NOT l.granted AND l.locktype = 'object' AND a.backend_type LIKE 'parallel_apply writer%');
	$subscriber->wait_until(
		"count(*) = 1 $from AND pid <> $old",
		'no writer waits for the lock of NOTIFY');
	return $subscriber->sql("SELECT pid $from");
}

{
	$subscriber->sql(
		q(CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql
		AS $$BEGIN NOTIFY bell; RETURN NULL; END$$;
		CREATE TRIGGER ring AFTER INSERT ON bell FOR EACH ROW EXECUTE FUNCTION ring();
		ALTER TABLE bell ENABLE ALWAYS TRIGGER ring;));
	$subscriber->append_conf('postgresql.conf',
		"wal_level = replica\nmax_wal_senders = 1\nsynchronous_commit = local\nsynchronous_standby_names = missing"
	);
	$subscriber->restart;
	$subscriber->wait_until(
		q(wait_event = 'CheckpointerMain' FROM pg_stat_activity WHERE backend_type = 'checkpointer'),
		'no process has noticed that there are synchronous standbys');
	my $session = $subscriber->background_psql('postgres');
	my $backend = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('SET synchronous_commit = on');
	$session->query_safe('BEGIN; CREATE TABLE local (); NOTIFY bell');
	$session->query_until(qr/begun/, "\\echo begun\nCOMMIT;\n");
	$subscriber->wait_until(
		"wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $backend",
		'the session does not wait for a standby');

	$subscriber->wait_for_pool('tap_postgres', 6);
	$publisher->sql('INSERT INTO bell VALUES (1)');
	my $writer = ringing_writer(0);
	$subscriber->sql("SELECT pg_terminate_backend($writer)");
	isnt(ringing_writer($writer), $writer,
		'a writer that waits in its commit can be terminated');
	$subscriber->sql('ALTER SUBSCRIPTION tap_postgres DISABLE');
	$subscriber->wake('tap_postgres');
	writers_are_gone('writers are gone when one waits in its commit',
		'postgres');
	$subscriber->sql("SELECT pg_cancel_backend($backend)");
	$subscriber->sql('ALTER SUBSCRIPTION tap_postgres ENABLE');
	$publisher->make_history(10);
	tables_are_equal('after that', 'postgres');
	$pair->rows_equal('bell');
	$session->quit;
}

$subscriber->sql('DROP SUBSCRIPTION tap_postgres');
writers_are_gone('no writer is left in the end', 'postgres');

finish(
	$publisher,
	$subscriber,
	qr/FATAL: .*terminating .* due to administrator command/,
	qr/FATAL: +database "postgres" is not currently accepting connections/,
	qr/database "other" is being used by logical replication subscription/);
done_testing();
