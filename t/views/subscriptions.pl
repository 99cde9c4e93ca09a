# Promise: parallel_apply.subscriptions and subscription_stats show exactly which
# process applies a subscription and why, how far it is, and what it has done, also
# without writers, and after the apply worker has exited.
#
# Locks of a session on the subscriber force waits; a row that the subscriber has
# and the publisher has not causes an error.
use strict;
use warnings;
use FindBin;
use IO::Socket::INET;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_init => [ '--encoding=UTF8', '--no-locale' ],
	subscriber_conf => <<~'CONF');
	parallel_apply.max_batch_transactions = 1
	wal_receiver_status_interval = 1s
	CONF
$pair->exec_both(
	q(CREATE TABLE counted (id int PRIMARY KEY, v int);
	CREATE TABLE locked (id int PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	CREATE TABLE emptied (id int PRIMARY KEY);));
$subscriber->sql(
	q(CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN RETURN NEW; END';
	CREATE FUNCTION fail() RETURNS bool LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION '%', repeat('ä', 300); END $$;
	CREATE TRIGGER audit_trg BEFORE INSERT ON audited
		FOR EACH ROW EXECUTE FUNCTION audit();
	ALTER TABLE audited ENABLE ALWAYS TRIGGER audit_trg;));
$subscriber->create_extension;

my $view = q(parallel_apply.subscriptions
	JOIN parallel_apply.subscription_stats USING (subid, subname) WHERE subname = 'tap');

sub poll
{
	my ($query, $name, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($subscriber->poll_query_until('postgres', $query, $expected),
		$name);
}

sub shown
{
	my ($columns) = @_;
	return $subscriber->sql("SELECT $columns FROM $view");
}

# Commit a transaction on the publisher; return the position after it.
sub commit
{
	my ($sql) = @_;
	$publisher->sql("BEGIN; $sql; COMMIT");
	return $publisher->sql('SELECT pg_current_wal_insert_lsn()');
}

# The queries of doc/monitoring.md for a terminal and for exporters
sub documented_queries
{
	my $text = slurp_file("$FindBin::RealBin/../../doc/monitoring.md");
	my @queries = $text =~ /<<'SQL'\n(.*?) \\watch/s;
	push @queries, $2
	  while $text =~ /^( +)(?:- )?query: \|\n((?:\1 +(?!metrics).*\n)+)/gm;
	return @queries;
}

### states

is($subscriber->sql('SELECT count(*) FROM parallel_apply.subscriptions'),
	'0', 'without subscriptions the view is empty');
my $connstr = $publisher->connstr . ' dbname=postgres';
$publisher->sql('CREATE PUBLICATION tap FOR ALL TABLES');
$subscriber->sql(
	"CREATE SUBSCRIPTION tap CONNECTION '$connstr' PUBLICATION tap
	WITH (connect = false, enabled = false, slot_name = 'tap', create_slot = false)"
);
is( shown(
		'subname, pid IS NULL, state, reason, lag IS NULL, transactions IS NULL'
	),
	'tap|t|disabled|the subscription is disabled|t|t',
	'a subscription without an apply worker is there, and says so');
$publisher->sql(
	"SELECT count(*) FROM pg_create_logical_replication_slot('tap', 'pgoutput')"
);

# A table cannot be synchronized while it is locked.
my $lock = $subscriber->hold('LOCK TABLE counted IN SHARE MODE');
my $other = $subscriber->hold('LOCK TABLE emptied IN SHARE MODE');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
poll(
	"SELECT state || ': ' || regexp_replace(reason, '[2-9]', 'n') FROM $view",
	'while tables are not synchronized, the view says so',
	'synchronizing: n of its tables are not ready');
$other->quit;
poll(
	"SELECT state || ': ' || reason FROM $view",
	'and of a single one, too',
	'synchronizing: 1 of its tables is not ready');
$lock->quit;
poll(
	"SELECT concat_ws(',', state, reason, writers_wanted, writers_running) FROM $view",
	'then it is applied in parallel',
	'parallel,4,4');
is( shown('pid'),
	$subscriber->apply_pid('tap'),
	'pid is that of the apply worker');

### counters

my $reset_at = -s $subscriber->logfile;
$subscriber->sql(q(SELECT parallel_apply.reset_stats('tap')));
is( shown(
		"transactions + native_transactions + inserts + batches + commit_order_waits,
		stats_reset BETWEEN now() - interval '1 minute' AND clock_timestamp()"
	),
	'0|t',
	'reset_stats resets the counters');
my $sql = '';
$sql .= "INSERT INTO counted VALUES ($_, 0);\n" for 1 .. 30;
$sql .= "UPDATE counted SET v = v + 1 WHERE id = $_;\n" for 1 .. 20;
$sql .= "DELETE FROM counted WHERE id = $_;\n" for 1 .. 10;
$sql .= 'INSERT INTO counted SELECT i, i FROM generate_series(101, 200) i;';
$sql .= 'TRUNCATE emptied; INSERT INTO audited VALUES (1, 1);';
$publisher->sql($sql);
$publisher->wait_applied;
poll(
	"SELECT concat_ws(' ', transactions, native_transactions, inserts, updates, deletes, truncates)
	FROM $view",
	'each transaction is counted once, and each of its changes by kind',
	'63 0 131 20 10 1');
poll(
	"SELECT concat_ws('|', batches, batch_size, errors, exclusive_truncate, exclusive_table, exclusive_fallback)
	FROM $view",
	'and what kept other transactions from being applied concurrently',
	'63|1|0|1|1|0');
poll("SELECT apply_time > 0 AND apply_rate > 0 FROM $view",
	'time and rate are measured');

### positions

my $lsn = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
poll(
	"SELECT received_lsn >= '$lsn' AND dispatched_lsn = received_lsn
		AND committed_lsn = received_lsn AND flushed_lsn = received_lsn
	FROM $view",
	'all positions are at the end when there is nothing to do');
poll(
	"SELECT lag_bytes, lag, catch_up, queue_bytes, queue_transactions FROM $view",
	'there is no lag, and the queue is empty',
	'0|00:00:00|00:00:00|0|0');

### waits

$lock = $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
my $lock_pid = $lock->query_safe('SELECT pg_backend_pid()');
my $lock_lsn = commit('INSERT INTO locked VALUES (1, 1), (11, 1), (12, 1)');
my $turn_lsn = commit('INSERT INTO counted VALUES (301, 1)');
my $row_lsn = commit('UPDATE counted SET v = 2 WHERE id = 301');
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'transactions wait for a lock, for their turn, and for a row');
poll(
	"SELECT received_lsn >= dispatched_lsn AND dispatched_lsn > '$turn_lsn'
		AND committed_lsn < '$lock_lsn' AND flushed_lsn < '$lock_lsn'
		AND queue_transactions = 3 AND queue_bytes > 0
		AND lag_bytes >= '$turn_lsn'::pg_lsn - '$lock_lsn'::pg_lsn
		AND lag BETWEEN interval '1 us' AND interval '10 min'
		AND catch_up IS NULL
	FROM $view",
	'the view shows what is received and not committed, and no end of it');
is( $subscriber->sql(
		q(SELECT string_agg(format('%s of %s', w.changes_done, w.changes_received), ', ' ORDER BY w.remote_lsn),
			bool_and(w.xact_start BETWEEN now() - interval '10 min' AND clock_timestamp())
		FROM parallel_apply.writers w WHERE w.remote_lsn IS NOT NULL)),
	'1 of 3, 1 of 1, 0 of 1|t',
	'and the view of writers how far each of them is');
is( $subscriber->sql(
		q(SELECT string_agg(array_to_string(w.blocked_by, ' '), ',' ORDER BY w.remote_lsn)
		FROM parallel_apply.writers w WHERE w.state <> 'idle')),
	$subscriber->sql(
		qq(SELECT concat_ws(',', '$lock_pid', string_agg(w.pid::text, ',' ORDER BY w.remote_lsn))
		FROM (SELECT * FROM parallel_apply.writers WHERE state <> 'idle' ORDER BY remote_lsn LIMIT 2) w)
	),
	'and whom each waits for: the holder of the lock, or the one before it');
for my $query (documented_queries())
{
	my ($name) = $query =~ /FROM (parallel_apply\.\w+)/;
	my ($status, $result, $error) = $subscriber->psql('postgres', $query);
	is("$status $error", '0 ', "doc/monitoring.md: a query of $name works");
	like($result, qr/\btap\b/, 'and shows the subscription');
}
poll("SELECT lock_waits > 0 AND lock_wait_time > 0 FROM $view",
	'waits for locks are seen from outside');
$lock->release;
$publisher->wait_applied;
poll(
	"SELECT dependency_waits = 1 AND commit_order_waits > 0 AND dependency_wait_time > 0
		AND commit_order_wait_time > 0 AND data_waits = 0 AND leader_waits = 0
	FROM $view",
	'waits for other writers are counted, with their time');
poll("SELECT lag = interval '0' AND queue_transactions = 0 FROM $view",
	'and there is no lag again');
poll(
	q(SELECT count(*) FROM parallel_apply.writers WHERE xact_start IS NULL
		AND changes_done IS NULL AND changes_received IS NULL AND blocked_by = '{}'),
	'and writers are idle, and wait for no process', '4');

### errors

$subscriber->sql('INSERT INTO counted VALUES (401, 1)');
$publisher->sql('INSERT INTO counted VALUES (401, 2)');
poll(
	"SELECT fallback_failure = 0 AND leader_waits > 0 AND errors > 2 AND retries = 0 AND failed_attempts > errors
		AND last_error_time > now() - interval '1 minute' AND state = 'failing' AND reason = last_error
		AND lag > interval '0'
	FROM $view",
	'an error of the apply worker is counted, and is the state of the subscription; attempts are no fallbacks'
);

# There may be another one in between: the slot may still be active when the next apply
# worker comes.
poll(
	qq(SELECT last_error ~ '^(duplicate key value violates unique constraint "counted_pkey"|conflict detected on relation "public.counted")'
	FROM $view),
	'and its message is there');
my $inserts = shown('inserts');
$subscriber->sql('DELETE FROM counted WHERE id = 401');
$publisher->wait_applied;
poll(
	"SELECT state = 'parallel' AND inserts = $inserts + 1 FROM $view",
	'counters survive the apply worker, and what failed does not count');

# PostgreSQL does not count it if the slot is still active, and apply cannot begin.
my $not_begun = () = slurp_file($subscriber->logfile, $reset_at) =~
  /ERROR: +could not start WAL streaming/g;
poll(
	qq(SELECT s.errors - c.apply_error_count = $not_begun FROM parallel_apply.subscription_stats s
		JOIN pg_stat_subscription_stats c USING (subid)),
	'an error counts once, as PostgreSQL counts it');

# A long message is cut off, but not within a character.
$subscriber->sql(
	q(ALTER TABLE counted ADD CONSTRAINT small CHECK (v < 10 OR fail()) NOT VALID)
);
$publisher->sql('INSERT INTO counted VALUES (402, 10)');
poll("SELECT last_error = repeat('ä', 127) FROM $view",
	'a message has whole characters');
$subscriber->sql('ALTER TABLE counted DROP CONSTRAINT small');
$publisher->wait_applied;

# The missing publisher is an error, each time; known positions stay.
$publisher->sql(q(SELECT pg_logical_emit_message(true, 'nothing', '')));
$lsn = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
poll(
	"SELECT committed_lsn >= '$lsn' FROM $view",
	'a position behind all transactions is reached');
my $errors = shown('errors');
$subscriber->sql(
	q(ALTER SUBSCRIPTION tap CONNECTION 'host=/nowhere dbname=postgres'));
poll(
	"SELECT errors >= $errors + 2 AND last_error ~ 'could not connect to the publisher'
		AND state = 'disconnected' AND reason = last_error AND lag > interval '0'
	FROM $view",
	'that there is no connection is counted, with its message');
is( $subscriber->sql(
		"SELECT parallel_apply.wait_for_lsn('tap', '$lsn', '0')"),
	't',
	'which is not forgotten');
$subscriber->sql("ALTER SUBSCRIPTION tap CONNECTION '$connstr'");
poll("SELECT state = 'parallel' FROM $view", 'until there is one');
$publisher->wait_applied;

# A publisher that accepts connections and does not answer
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
  or die "no socket: $!";
$subscriber->sql(
	q(CREATE SUBSCRIPTION silent CONNECTION 'host=127.0.0.1 dbname=postgres port=)
	  . $silent->sockport
	  . q(' PUBLICATION tap WITH (connect = false, slot_name = silent)));
$subscriber->sql('ALTER SUBSCRIPTION silent ENABLE');
$subscriber->wait_until(
	q(count(pid) = 1 FROM pg_stat_subscription WHERE subname = 'silent'),
	'it has no apply worker');
is( $subscriber->sql(
		q(SELECT state, reason FROM parallel_apply.subscriptions WHERE subname = 'silent')
	),
	'disconnected|the apply worker is connecting to the publisher',
	'a connection that takes long is none yet');
is( $subscriber->notice_of_wait('silent'),
	'Its apply worker is connecting to the publisher, or does not use parallel_apply.',
	'which a function that waits for it says, too');
$subscriber->sql(
	'ALTER SUBSCRIPTION silent DISABLE; ALTER SUBSCRIPTION silent SET (slot_name = NONE); DROP SUBSCRIPTION silent'
);
close $silent;

# From 16 on, a user who is not a superuser must have a password.  A worker that starts when
# the owner changes may have the role of the old one and the subscription of the new one;
# PostgreSQL's own apply has the same error then, and the next worker does not.
if ($subscriber->pg_version >= 16)
{
	$subscriber->sql(
		q(CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE postgres TO plain;
		ALTER SUBSCRIPTION tap OWNER TO plain));
	poll(
		"SELECT last_error ~ 'password is required' AND state = 'failing' FROM $view",
		'nor is it, if there is no password');
	like(
		$subscriber->sql(
			q(SELECT advice FROM parallel_apply.advice('tap') WHERE topic = 'state')
		),
		qr/, but not in a transaction/,
		'no transaction is to be skipped');
	is( $subscriber->notice_of_wait('tap'),
		'It is failing, but not in a transaction: see parallel_apply.subscriptions.',
		'which a function that waits for it says, too');
	$subscriber->sql('ALTER SUBSCRIPTION tap OWNER TO CURRENT_USER');
	poll("SELECT state = 'parallel' FROM $view", 'until none is wanted');
}

### sequences, from 19 on

if (int $subscriber->pg_version >= 19)
{
	# A sequence that differs here is never synchronized.  This has no effect on
	# tables.
	$publisher->sql(
		'CREATE SEQUENCE numbers; CREATE PUBLICATION sequences FOR ALL SEQUENCES'
	);
	$subscriber->sql('CREATE SEQUENCE numbers INCREMENT 2');
	my $offset = -s $subscriber->logfile;
	$subscriber->sql('ALTER SUBSCRIPTION tap ADD PUBLICATION sequences');
	$subscriber->wait_for_log(
		qr/sequence synchronization failed for subscription "tap"/, $offset);
	poll(
		"SELECT concat_ws(',', state, reason) FROM $view",
		'a sequence that is not synchronized is no table',
		'parallel');
	is( $subscriber->sql(
			q(SELECT count(*) FROM parallel_apply.tables WHERE relid = 'numbers'::regclass)
		),
		'0',
		'nor does the view of tables show it');
	$subscriber->restart_apply('tap',
		'ALTER SUBSCRIPTION tap DROP PUBLICATION sequences');
	$subscriber->wait_for_pool('tap');
}

### without writers

$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
poll(
	"SELECT concat_ws(',', state, reason, writers_wanted, writers_running) FROM $view",
	'PostgreSQL\'s own apply is shown with the reason',
	'native,one writer is configured,0,0');
is(shown('pool_stops'), '1', 'that the writers have stopped is counted');
$subscriber->sql('SELECT parallel_apply.reset_stats()');
$publisher->sql(
	'INSERT INTO counted VALUES (501, 1), (502, 1);
	UPDATE counted SET v = 2 WHERE id = 501; DELETE FROM counted WHERE id = 502;
	TRUNCATE emptied;');
$lsn = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
$publisher->wait_applied;
poll(
	"SELECT concat_ws(' ', transactions, native_transactions, inserts, updates, deletes, truncates, batches)
	FROM $view",
	'without writers, it is counted, too',
	'4 4 2 1 1 1 0');
poll(
	"SELECT received_lsn >= '$lsn' AND committed_lsn >= '$lsn' AND flushed_lsn >= '$lsn'
		AND lag_bytes = 0 AND lag = interval '0'
	FROM $view",
	'and positions are shown');
$lock = $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
$lsn = commit('INSERT INTO locked VALUES (2, 1)');
poll("SELECT lag > interval '0' AND committed_lsn < '$lsn' FROM $view",
	'and the lag of a transaction that waits');
$lock->release;
$publisher->wait_applied;

poll(
	"SELECT apply_rate = 0 FROM $view",
	'some seconds later the rate is zero');

### the end

$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
poll(
	"SELECT concat_ws(' ', state, reason, pid, lag > interval '0', transactions) FROM $view",
	'when the apply worker has ended, its counters stay, and the lag grows',
	'disabled the subscription is disabled t 5');
is(shown("committed_lsn >= '$lsn'"), 't', 'and its positions');

my $columns =
  q(state, transactions, inserts, updates, stats_reset, lag > interval '0');
my $before = shown($columns);
$subscriber->append_conf('postgresql.conf',
	'max_logical_replication_workers = 2');
$subscriber->restart;
is(shown($columns), $before, 'counters survive a restart of the server');

# There are two places for counters, as many as apply workers.
for my $other (qw(one two))
{
	$subscriber->sql(
		"CREATE SUBSCRIPTION $other CONNECTION '$connstr' PUBLICATION tap WITH (copy_data = false)"
	);
	poll(
		"SELECT pid IS NOT NULL FROM parallel_apply.subscriptions WHERE subname = '$other'",
		"subscription $other is there");
	$subscriber->sql("DROP SUBSCRIPTION $other");
}
is(shown($columns), $before, 'and others that are created and dropped');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$publisher->wait_applied;
poll("SELECT state = 'native' FROM $view", 'and continue');
$subscriber->stop;
my $saved = $subscriber->data_dir . '/pg_stat/parallel_apply.stat';
ok(-s $saved > 100, 'saved statistics are in a file');
truncate $saved, 100;
$subscriber->start;
ok(!-e $saved, 'which is gone when the server runs');
like(
	slurp_file($subscriber->logfile),
	qr/LOG:  ignoring invalid data in file "pg_stat\/parallel_apply.stat"/,
	'one that is damaged is ignored');
$publisher->wait_applied;

# The subscribing side connects to a publisher, from the apply worker.
$subscriber->sql(
	qq(CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		CREATE SUBSCRIPTION made CONNECTION '$connstr' PUBLICATION tap
		WITH (enabled = false, create_slot = false, slot_name = NONE, copy_data = false);
		RETURN NEW;
	END \$\$));
$publisher->sql('INSERT INTO audited VALUES (1001, 1)');
$publisher->wait_applied;
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_subscription WHERE subname = 'made')),
	'1',
	'a trigger may connect to a publisher');
$subscriber->sql('DROP SUBSCRIPTION made');

$pair->rows_equal($_) for qw(counted locked audited emptied);
finish(
	$publisher,
	$subscriber,
	duplicate_key('counted'),
	qr/ERROR:  ä/,
	qr/could not connect to the publisher/,
	qr/connection to client lost/,
	qr/ERROR: +password is required/,
	qr/ERROR: +role "plain" cannot SET ROLE/,
	qr/ERROR: +logical replication sequence synchronization failed/,
	qr/FATAL: +terminating .* due to administrator command/);
done_testing();
