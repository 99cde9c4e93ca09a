# Promise: replay() applies a skipped and stored transaction once, as the apply
# worker would have done, with its origin and commit time.  Neither
# skip_transaction() nor replay() loses or repeats anything, whichever process is
# killed between two steps.  While a replay waits, the subscription can be altered,
# another transaction of it be skipped, and it can be dropped.
#
# A process stops in one of these places: at a row that a local session has locked;
# before the stored rows are removed, at CREATE INDEX in an open transaction; at the
# commit, in a deferred trigger that takes an advisory lock; after it, at a lock on
# pg_replication_origin.  While a transaction is being stored, it stops at another CREATE
# INDEX, which lets it read before.
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
		track_commit_timestamp = on
		max_prepared_transactions = 10),
	subscriber_conf => q(
		restart_after_crash = on
		track_commit_timestamp = on
		max_prepared_transactions = 10)
);
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE "Whole" (a int, b text, c bytea);
	ALTER TABLE "Whole" REPLICA IDENTITY FULL;
	CREATE TABLE emptied (id int PRIMARY KEY);
	CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
	CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (10);
	CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (10) TO (100);
	CREATE TABLE fired (id int PRIMARY KEY, v int);
	CREATE TYPE mood AS ENUM ('calm');
	CREATE TABLE moods (id int PRIMARY KEY, m mood))
);
$subscriber->create_extension;
$pair->subscribe('tap',
	with => 'disable_on_error = true, streaming = on, two_phase = on');
my @tables = ('items', '"Whole"', 'emptied', 'parts', 'fired', 'moods');
$publisher->sql(
	q(INSERT INTO items SELECT i, 0, 'it''s' FROM generate_series(1, 9) i;
	INSERT INTO "Whole" VALUES (1, NULL, '\x00ff'), (1, NULL, '\x00ff'), (2, 'b\c', NULL);
	INSERT INTO parts VALUES (1, 1), (2, 2);
	INSERT INTO emptied VALUES (1))
);
$subscriber->sql(
	q(CREATE TABLE log (id int, how text, who name, session name, role text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
	BEGIN
		INSERT INTO log VALUES (NEW.id, TG_NAME, current_user, session_user,
			current_setting('session_replication_role'));
		RETURN NEW;
	END $$;
	CREATE TRIGGER ordinary BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER replicated BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE fired ENABLE REPLICA TRIGGER replicated;
	CREATE FUNCTION at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(7);
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON emptied DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION at_gate();
	ALTER TABLE emptied ENABLE ALWAYS TRIGGER gate;
	CREATE ROLE keeper SUPERUSER LOGIN;
	CREATE ROLE watcher LOGIN;
	ALTER SUBSCRIPTION tap OWNER TO keeper)
);
$publisher->wait_applied;

sub stored
{
	return $subscriber->sql(
		'SELECT id FROM parallel_apply.skipped_transactions ORDER BY id');
}

# A transaction fails and is to be skipped.  Return its number.
sub request
{
	my ($sql) = @_;
	$subscriber->make_fault;
	$publisher->sql($sql);
	$subscriber->wait_until_failed;
	return $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
}

# The same, and it is skipped; a crash does not repeat that.
sub skip_it
{
	my ($sql) = @_;
	my $id = request($sql);
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_for_catchup('tap', 'flush');
	return $id;
}

sub replay
{
	my ($id) = @_;
	$subscriber->sql("CALL parallel_apply.replay($id)");
	return;
}

sub all_equal
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$what: $_ is equal on both sides") for @tables;
	is(stored(), '', "$what: nothing remains stored");
	is( $subscriber->sql(
			q(SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'parallel_apply%')
		),
		'0',
		"$what: and no other origin is left");
	return;
}

# Position and origin of the subscription
sub progress
{
	return $subscriber->sql(
		q(SELECT remote_lsn FROM pg_replication_origin_status
		JOIN pg_subscription ON external_id = 'pg_' || oid WHERE subname = 'tap')
	);
}

# Origin and time of the commit that wrote a row
sub commit_of
{
	my ($id) = @_;
	return $subscriber->sql(
		"SELECT o.roname = 'pg_' || s.oid, extract(epoch FROM c.timestamp)
		FROM items, pg_subscription s, pg_xact_commit_timestamp_origin(items.xmin) c
		JOIN pg_replication_origin o ON o.roident = c.roident
		WHERE id = $id AND subname = 'tap'"
	);
}

sub commit_time
{
	my ($id) = @_;
	return $publisher->sql(
		"SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM items WHERE id = $id"
	);
}

### as the apply worker ########################################################

# The transactions after it do not change the same rows.
my $id = skip_it(
	'BEGIN;' . all_kinds_of_changes() . q(
	INSERT INTO emptied VALUES (5);
	INSERT INTO parts VALUES (3, 3), (11, 11);
	UPDATE parts SET id = 12 WHERE id = 1;
	INSERT INTO fired VALUES (1, 1);
	COMMIT)
);
$publisher->sql('UPDATE items SET v = 5 WHERE id = 5');
$publisher->wait_applied;

$subscriber->refuses(
	"CALL parallel_apply.replay($id)",
	qr/ERROR: +new row for relation "items" violates check constraint "positive".*DETAIL: +Failing row contains \(1, -1.*CONTEXT: +processing remote data for replication origin "pg_\d+" during message type "UPDATE"/s,
	'a fault that remains fails again, and the session gets the error');
is(stored(), $id, 'and leaves it stored');
is($subscriber->sql('SELECT count(*) FROM items WHERE id >= 100'),
	'0', 'and nothing applied');
$subscriber->refuses(
	"BEGIN; CALL parallel_apply.replay($id); COMMIT",
	qr/ERROR: +replay\(\) cannot run inside a transaction block/,
	'it has its own transaction');
$subscriber->refuses(
	"SET ROLE watcher; CALL parallel_apply.replay($id)",
	qr/ERROR: +must be owner of subscription tap/,
	'it is for the owner of the subscription');
$subscriber->refuses(
	'CALL parallel_apply.replay(77)',
	qr/ERROR: +skipped transaction 77 does not exist/,
	'a transaction that does not exist cannot be replayed');
$subscriber->refuses(
	'CALL parallel_apply.replay(NULL)',
	qr/ERROR: +number of a skipped transaction must not be null/,
	'there must be a number');
$subscriber->repair_fault;

$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$subscriber->wait_until(
	q(count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication %worker'),
	'the apply worker does not end');
my $before = progress();
replay($id);
is(progress(), $before, 'the origin stays where it is');
$subscriber->stop('immediate');
$subscriber->start;
is(progress(), $before, 'after recovery, too');
is( commit_of(100),
	't|' . commit_time(100),
	'the commit has the origin and the time of the remote one');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$publisher->sql('INSERT INTO fired VALUES (2, 2)');
$publisher->wait_applied;
my $columns = 'how, who, session, role FROM log WHERE id =';
is( $subscriber->sql("SELECT $columns 1"),
	$subscriber->sql("SELECT $columns 2"),
	'triggers fire as for the apply worker, in a session of the owner');
is($subscriber->sql('SELECT how, session, role FROM log WHERE id = 1'),
	'replicated|keeper|replica', 'those that fire for it');
all_equal('a transaction');
like(
	slurp_file($subscriber->logfile),
	qr/LOG: +skipped transaction \d+ of subscription "tap", finished at [[:xdigit:]]+\/[[:xdigit:]]+, is replayed/,
	'the log says so');

# A row that is missing meanwhile is not an error.
$id = skip_it(
	'BEGIN; UPDATE items SET v = -v WHERE id = 5; INSERT INTO items VALUES (103, 0); COMMIT'
);
$subscriber->repair_fault;
$publisher->sql('DELETE FROM items WHERE id = 5');
$publisher->wait_applied;
replay($id);
all_equal('a missing row');

# While the apply worker runs, and applies transactions
$id = skip_it('INSERT INTO items VALUES (104, -1)');
$subscriber->repair_fault;
$publisher->sql('UPDATE items SET v = 8 WHERE id = 8');
replay($id);
$publisher->sql('UPDATE items SET v = 9 WHERE id IN (9, 104)');
all_equal('alongside the apply worker');

$id = skip_it(
	q(INSERT INTO items SELECT i, CASE i WHEN 1500 THEN -1 END, repeat('x', 200) FROM generate_series(1000, 1999) i)
);
$subscriber->repair_fault;
replay($id);
all_equal('a large transaction');

### prepared transactions ######################################################

$id =
  skip_it(
	q(BEGIN; INSERT INTO items VALUES (200, -1); PREPARE TRANSACTION 'a'));
$subscriber->repair_fault;
my $not_yet =
  qr/ERROR: +transaction with number $id cannot be replayed yet.*DETAIL: +It has not been skipped, or it is prepared/s;
$subscriber->refuses("CALL parallel_apply.replay($id)",
	$not_yet, 'a prepared transaction cannot be replayed');
$publisher->sql(q(COMMIT PREPARED 'a'));
$publisher->wait_applied;
replay($id);
all_equal('a prepared transaction');

$id =
  skip_it(
	q(BEGIN; INSERT INTO items VALUES (201, -1); PREPARE TRANSACTION 'b'));
$subscriber->repair_fault;
$publisher->sql(q(ROLLBACK PREPARED 'b'));
$publisher->wait_applied;
$subscriber->refuses(
	"CALL parallel_apply.replay($id)",
	qr/ERROR: +skipped transaction $id does not exist/,
	'a transaction that was rolled back cannot be replayed');
all_equal('a prepared transaction rolled back');

### a transaction that is too large #############################################

$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '64kB'));
my $fails_for_its_size =
  q(count(*) = 1 FROM parallel_apply.failed_transactions, pg_subscription
	WHERE message LIKE '%is not skipped because it is too large to be stored' AND NOT subenabled);
$id = request(
	q(INSERT INTO items SELECT i, -1, repeat('x', 200) FROM generate_series(5000, 5999) i)
);
$before = progress();
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->wait_until($fails_for_its_size, 'it does not fail');
is(progress(), $before, 'what is too large to be stored is not skipped');
is(stored(), '', 'and nothing of it is stored');
$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '1MB'));
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$publisher->wait_applied;
is(stored(), $id, 'it is when the setting allows it');
$subscriber->repair_fault;
replay($id);
all_equal('a transaction that was too large');

$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '64kB'));
request(
	q(INSERT INTO items SELECT i, -1, repeat('x', 200) FROM generate_series(6000, 6999) i)
);
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->wait_until($fails_for_its_size, 'it does not fail');
$subscriber->sql(
	q(SELECT parallel_apply.skip_transaction('tap', keep => false);
	ALTER SUBSCRIPTION tap ENABLE)
);
$publisher->wait_applied;
$subscriber->repair_fault;
$publisher->sql('DELETE FROM items WHERE id >= 6000');
all_equal('one that is not to be stored');
$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '1GB'));

### a skip that is withdrawn when it has begun #################################

# The apply worker has got the beginning of the transaction when it has opened its file.
sub begin_to_skip
{
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->wait_until(
		q(EXISTS (SELECT FROM pg_ls_tmpdir(), pg_stat_subscription WHERE subname = 'tap'
		AND name LIKE 'pgsql_tmp' || pid || '.%')),
		'the apply worker has not begun to skip');
	return;
}

# The walsender stops between two changes, at the catalog that the output function of the
# second one reads.  It has no writers, or else the whole transaction would be in the queue before.
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
request(
	q(BEGIN; INSERT INTO items VALUES (202, -1); INSERT INTO moods VALUES (1, 'calm'); COMMIT)
);
my $enums = $publisher->hold('LOCK TABLE pg_enum IN ACCESS EXCLUSIVE MODE');
begin_to_skip();
$subscriber->sql(
	q(SELECT parallel_apply.skip_transaction('tap', keep => false)));
$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = NONE)));
$enums->release;
$subscriber->wait_until_failed;
is(stored(), '', 'a transaction whose skip is withdrawn is not stored');
$subscriber->repair_fault;
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
all_equal('and not lost: it is applied');

# The row is removed by a session that has not committed yet, for the skip of another
# subscription.
my $connstr = $publisher->connstr . ' dbname=postgres';
$publisher->sql(
	'CREATE TABLE spare (id int PRIMARY KEY); CREATE PUBLICATION spare FOR TABLE spare'
);
$subscriber->sql(
	"CREATE TABLE spare (id int PRIMARY KEY); INSERT INTO spare VALUES (1);
	CREATE SUBSCRIPTION spare CONNECTION '$connstr' PUBLICATION spare
		WITH (copy_data = false, disable_on_error = true)");
$publisher->sql('INSERT INTO spare VALUES (1)');
$subscriber->wait_until(
	q(NOT subenabled FROM pg_subscription WHERE subname = 'spare'),
	'the other subscription does not fail');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->make_fault;
$publisher->sql(
	q(BEGIN; INSERT INTO items VALUES (203, -1); INSERT INTO moods VALUES (2, 'calm'); COMMIT)
);
my $tap_is = q(FROM pg_subscription WHERE subname = 'tap');
$subscriber->wait_until("NOT subenabled $tap_is", 'it does not fail');
$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$enums = $publisher->hold('LOCK TABLE pg_enum IN ACCESS EXCLUSIVE MODE');
begin_to_skip();
$subscriber->sql('ALTER SUBSCRIPTION tap SKIP (lsn = NONE)');
my $other_skip =
  $subscriber->hold(q(SELECT parallel_apply.skip_transaction('spare')));
$enums->release;
$subscriber->wait_until(
	q(count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'parallel_apply.kept_transactions'::regclass),
	'the apply worker does not wait for the other session');
$other_skip->query_safe('COMMIT');
$other_skip->quit;
$subscriber->wait_until("NOT subenabled $tap_is",
	'it is skipped although that was withdrawn');
is(stored(), '', 'a transaction whose row is removed is not stored');
$subscriber->sql('DROP SUBSCRIPTION spare; DROP TABLE spare');
$publisher->sql('DROP PUBLICATION spare; DROP TABLE spare');
$subscriber->repair_fault;
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
all_equal('and not lost, either');

### a session that does not wait ###############################################

# Call replay() in a separate session, and wait until its process waits there.
# Return the session and the process.
sub replay_until
{
	my ($number, $where) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/called/,
		"\\echo called\nCALL parallel_apply.replay($number);\n");
	my $from =
	  q(FROM pg_stat_activity a WHERE backend_type = 'parallel_apply replay');
	$subscriber->wait_until(
		"count(*) = 1 $from AND EXISTS (SELECT FROM pg_locks l
		WHERE l.pid = a.pid AND NOT granted AND $where)",
		"the replay does not wait for $where");
	return ($session, $subscriber->sql("SELECT pid $from"));
}

$id = skip_it('UPDATE items SET v = -v - 1 WHERE id IN (6, 7)');
$subscriber->repair_fault;
my $holder = $subscriber->hold('SELECT * FROM items WHERE id = 7 FOR UPDATE');
my ($session, $pid) = replay_until($id, q(locktype = 'transactionid'));
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL%')
);
$subscriber->wait_until(
	q(count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'parallel_apply replay'),
	'the replay does not end');
end_sessions($holder, $session);
is(stored(), $id, 'a canceled replay leaves the transaction stored');
is( $subscriber->sql(
		'SELECT count(*) FROM items WHERE id IN (6, 7) AND v < 0'),
	'0',
	'and nothing of it is applied');
replay($id);
all_equal('after a cancel');

### what users can do meanwhile ################################################

# Statements that lock the subscription.  The timeout only ends the test if they wait.
my $not_for_ever =
  "SET lock_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'";

sub can_do
{
	my ($sql, $what) = @_;
	my ($status, undef, $error) =
	  $subscriber->psql('postgres', "$not_for_ever; $sql");
	is("$status $error", '0 ', "while a replay waits: $what");
	return;
}

$id = skip_it(
	'BEGIN; INSERT INTO items VALUES (300, -1); UPDATE items SET v = v WHERE id = 7; COMMIT'
);
$subscriber->repair_fault;
$holder = $subscriber->hold('SELECT * FROM items WHERE id = 7 FOR UPDATE');
($session, $pid) = replay_until($id, q(locktype = 'transactionid'));
can_do(q(SELECT parallel_apply.pause('tap')), 'pause()');
can_do(q(SELECT parallel_apply.resume('tap')), 'resume()');
can_do(q(SELECT parallel_apply.alter_subscription_config('tap', 3)),
	'alter_subscription_config()');
can_do(q(SELECT parallel_apply.alter_subscription_config('tap', NULL)),
	'alter_subscription_config() again');
can_do('ALTER SUBSCRIPTION tap DISABLE', 'ALTER SUBSCRIPTION ... DISABLE');
can_do('ALTER SUBSCRIPTION tap ENABLE', 'ALTER SUBSCRIPTION ... ENABLE');

$subscriber->sql(
	'ALTER TABLE fired ADD CONSTRAINT small CHECK (v < 100) NOT VALID');
$publisher->sql('INSERT INTO fired VALUES (3, 100)');
$subscriber->wait_until_failed;
can_do(q(SELECT parallel_apply.skip_transaction('tap')),
	'skip_transaction()');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$publisher->wait_for_catchup('tap', 'flush');
my $later = $subscriber->sql(
	"SELECT id FROM parallel_apply.skipped_transactions WHERE id <> $id");
$subscriber->sql('ALTER TABLE fired DROP CONSTRAINT small');
my ($second) = replay_until($later, "locktype = 'object' AND a.pid <> $pid");
is($subscriber->sql('SELECT count(*) FROM fired WHERE id = 3'),
	'0', 'another transaction is not replayed meanwhile');
$holder->release;
$_->query_safe('SELECT 1') foreach $session, $second;
end_sessions($session, $second);
all_equal('two replays, one after the other');

$id = skip_it(
	'BEGIN; INSERT INTO items VALUES (302, -1); INSERT INTO emptied VALUES (302); COMMIT'
);
$subscriber->repair_fault;
$holder = $subscriber->hold('SELECT pg_advisory_xact_lock(7)');
($session) = replay_until($id, q(locktype = 'advisory'));
can_do('ALTER SUBSCRIPTION tap DISABLE; ALTER SUBSCRIPTION tap ENABLE;',
	'in a deferred trigger');
$holder->release;
$session->query_safe('SELECT 1');
end_sessions($session);
all_equal('a replay that has waited in a deferred trigger');

### locks of the session #######################################################

# The session holds a lock that the replay waits for, but the server finds no deadlock.
sub deadlocks
{
	my ($sql, $what) = @_;
	my (undef, undef, $error) = $subscriber->psql(
		'postgres',
		"SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'; $sql",
		on_error_stop => 0);
	like(
		$error,
		qr/ERROR: +the replay waits for a lock that this session holds.*HINT: +Call the procedure before the transaction reads/s,
		$what);
	return;
}

# A local session waits in between.
sub deadlocks_behind
{
	my ($number, $sql, $what) = @_;
	my $caller = $subscriber->background_psql('postgres', on_error_stop => 0);
	$caller->query_safe(
		"SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'; $sql"
	);
	my $waiting =
	  $subscriber->hold('SELECT * FROM items WHERE id = 7 FOR UPDATE');
	$waiting->query_until(qr/waiting/,
		"\\echo waiting\nSELECT pg_advisory_xact_lock(8);\n");
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted),
		'the session does not wait');
	$caller->query("CALL parallel_apply.replay($number)");
	like($caller->{stderr},
		qr/ERROR: +the replay waits for a lock that this session holds/,
		$what);
	end_sessions($caller, $waiting);
	return;
}

$id = skip_it(
	'BEGIN; INSERT INTO items VALUES (303, -1); UPDATE items SET v = v WHERE id = 7; TRUNCATE emptied; COMMIT'
);
$subscriber->repair_fault;
my $call = "CALL parallel_apply.replay($id)";
deadlocks("DO \$\$ BEGIN PERFORM count(*) FROM emptied; $call; END \$\$",
	'a table that was read is to be emptied');
deadlocks("DO \$\$ BEGIN LOCK TABLE items IN SHARE MODE; $call; END \$\$",
	'a table that was locked is to be changed');
deadlocks_behind(
	$id,
	'SELECT pg_advisory_lock(8)',
	'the replay waits for another session, which waits for this one');
is(stored(), $id, 'the transaction remains stored');
is($subscriber->sql('SELECT count(*) FROM items WHERE id = 303'),
	'0', 'and nothing of it is applied');
$subscriber->sql(
	q(DO $$
	DECLARE number bigint;
	BEGIN
		PERFORM count(*) FROM items;
		FOR number IN SELECT id FROM parallel_apply.skipped_transactions LOOP
			CALL parallel_apply.replay(number);
		END LOOP;
	END $$)
);
all_equal('a replay in a loop, after locks that do no harm');

### crashes ####################################################################

my %victim = (
	'the process of the replay' => sub { return $_[0] },
	'the apply worker' => sub { return $subscriber->apply_pid('tap') },
	'a writer' => sub { return ($subscriber->writer_pids('tap'))[0] },
	'the server' => undef);

# Kill the victim, or stop the server at once, and wait until it is up again.
sub crash
{
	my ($victim, $replay_pid) = @_;
	if ($victim ne 'the server')
	{
		my $process = $victim{$victim}->($replay_pid)
		  // die "there is no process: $victim";
		my $offset = -s $subscriber->logfile;
		kill 'KILL', $process;
		$subscriber->wait_for_log(
			qr/all server processes terminated; reinitializing/, $offset);
	}
	else
	{
		$subscriber->stop('immediate');
		$subscriber->start;
	}
	$subscriber->poll_query_until('postgres', 'SELECT true')
	  or die 'the server does not come back';
	$subscriber->wait_for_pool('tap');
	return;
}

# Each row of emptied passes the gate of the commit, with a number for each
# transaction.
my $number = 2000;

# Crash while a transaction is being replayed.  The place is determined by
# statements of a local session, and by what the process then waits for.
sub crash_in_replay
{
	my ($victim, $when, $hold, $where, $is_committed, $then) = @_;
	my $what = "$victim is killed $when";
	$number++;
	my $transaction = skip_it(
		"BEGIN; INSERT INTO items VALUES ($number, -1); UPDATE items SET v = -v - 1 WHERE id = 7;
		INSERT INTO emptied VALUES ($number); COMMIT"
	);
	$subscriber->repair_fault;
	$subscriber->wait_for_pool('tap');
	my $local = $subscriber->hold($hold);
	my ($caller, $process) = replay_until($transaction, $where);
	my $second = $then ? $then->($local) : undef;
	crash($victim, $process);
	eval { $_->quit } foreach grep { defined } ($local, $caller, $second);
	is( stored(),
		$is_committed ? '' : $transaction,
		"$what: it is stored unless it is applied");
	is( $subscriber->sql("SELECT count(*) FROM items WHERE id = $number"),
		$is_committed ? '1' : '0',
		"$what: all or nothing is applied");

	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM pg_replication_origin WHERE roname LIKE 'parallel_apply%')
		),
		"$what: no other origin is left");
	$transaction = skip_it("INSERT INTO items VALUES (-$number, -1)")
	  if $is_committed;
	$subscriber->repair_fault if $is_committed;
	replay($transaction);
	all_equal($what);
	return;
}

foreach my $victim (sort keys %victim)
{
	crash_in_replay(
		$victim,
		'between two changes',
		'SELECT * FROM items WHERE id = 7 FOR UPDATE',
		q(locktype = 'transactionid'), 0);
	crash_in_replay(
		$victim,
		'before the stored rows are removed',
		'CREATE INDEX kept_gate ON parallel_apply.kept_transactions (subid)',
		q(relation = 'parallel_apply.kept_transactions'::regclass),
		0);
	crash_in_replay(
		$victim,
		'before the commit',
		'SELECT pg_advisory_lock(7)',
		q(locktype = 'advisory'), 0);
	crash_in_replay(
		$victim,
		'after the commit',
		'SELECT pg_advisory_lock(7)',
		q(locktype = 'advisory'),
		1,
		sub {
			my ($gate) = @_;
			my $catalog = $subscriber->hold(
				'LOCK TABLE pg_replication_origin IN SHARE MODE');
			$gate->query_safe('SELECT pg_advisory_unlock(7)');
			$subscriber->wait_until(
				q(count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'pg_replication_origin'::regclass),
				'the replay does not drop its origin');
			return $catalog;
		});
}

# Crash while a transaction is to be skipped, is being stored, or is stored.
sub crash_in_skip
{
	my ($victim) = @_;
	$number++;
	my $transaction = request("INSERT INTO items VALUES ($number, -1)");
	if ($victim eq 'the server')
	{
		$subscriber->stop('immediate');
		$subscriber->start;
		is(stored(), '',
			"$victim is killed before the skip: nothing is stored");
	}
	# The transaction comes when the apply worker has looked for stored ones, and has
	# writers: the walsender has to look up whether the table is published.
	my $catalog = $publisher->hold(
		'LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->wait_for_pool('tap');
	my $local =
	  $subscriber->hold(
		'CREATE INDEX kept_gate ON parallel_apply.kept_messages (id)');
	$catalog->release;
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock'
		AND relation = 'parallel_apply.kept_messages'::regclass),
		'the apply worker does not wait');
	crash($victim);
	eval { $local->quit };
	$publisher->wait_for_catchup('tap', 'flush');
	is(stored(), $transaction,
		"$victim is killed while it is stored: it is stored once");
	is( $subscriber->sql(
			"SELECT changes FROM parallel_apply.skipped_transactions"),
		'1',
		"$victim is killed while it is stored: with all changes");
	crash($victim);
	is(stored(), $transaction,
		"$victim is killed after that: it stays stored");
	$subscriber->repair_fault;
	replay($transaction);
	all_equal("$victim is killed during a skip");
	return;
}

crash_in_skip($_) foreach grep { !/replay/ } sort keys %victim;

### a subscription with another OID ###########################################

# pg_upgrade gives it one, up to PostgreSQL 18.
$id = skip_it('INSERT INTO items VALUES (305, -1)');
$subscriber->repair_fault;
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$subscriber->wait_until(
	q(count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication %worker'),
	'the apply worker does not end');
$subscriber->sql(
	'SET allow_system_table_mods = on; UPDATE pg_subscription SET oid = (oid::bigint + 1)::oid'
);
$subscriber->refuses(
	"CALL parallel_apply.replay($id)",
	qr/ERROR: +the subscription of skipped transaction $id does not exist.*HINT: +Use parallel_apply.skipped_changes\(\)/s,
	'a transaction of a subscription that does not exist is not replayed');
$subscriber->sql(
	'SET allow_system_table_mods = on; UPDATE pg_subscription SET oid = (oid::bigint - 1)::oid'
);
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
replay($id);
all_equal('a subscription that exists again');

### a subscription that is dropped meanwhile ###################################

$id = skip_it(
	'BEGIN; INSERT INTO items VALUES (301, -1); UPDATE items SET v = v WHERE id = 7; COMMIT'
);
$subscriber->repair_fault;
$holder = $subscriber->hold('SELECT * FROM items WHERE id = 7 FOR UPDATE');
($session) = replay_until($id, q(locktype = 'transactionid'));
$subscriber->sql("$not_for_ever; DROP SUBSCRIPTION tap");
$holder->release;
$session->query('SELECT 1');
like(
	$session->{stderr},
	qr/ERROR: +the subscription was dropped, or has another owner, since the call/,
	'a replay whose subscription is dropped fails');
end_sessions($session);
is($subscriber->sql('SELECT count(*) FROM items WHERE id = 301'),
	'0', 'and nothing of it is applied');
is(stored(), '', 'nothing remains stored');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'parallel_apply%')
	),
	'0',
	'and no origin is left');

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  (replay\(\) cannot run|must be owner of|skipped transaction \d+ does not exist|number of a skipped|transaction with number)/,
	duplicate_key('spare'),
	qr/ERROR:  canceling statement due to user request/,
	qr/ERROR:  new row for relation "fired" violates check constraint "small"/,
	qr/ERROR:  the (subscription (was dropped|of skipped)|replay waits for a lock)/,
	qr/ERROR:  transaction \d+ of subscription "tap" is not skipped because/,
	qr/(the database system is|terminating|could not receive data from WAL stream)/
);
done_testing();
