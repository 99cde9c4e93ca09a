# Promise: skip_transactions() skips and stores the transactions that fail, one after the
# other, until none of those fails that the publisher had at the beginning, or as many as
# permitted are skipped; replay_transactions() applies them in their order.  Whatever ends
# them loses nothing.
#
# CREATE INDEX in an open transaction blocks the commit that stores; a lock on a catalog that
# the output function of a value reads blocks the walsender between two transactions.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'max_prepared_transactions = 10',
	subscriber_conf => 'max_prepared_transactions = 10');
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TYPE mood AS ENUM ('calm');
	CREATE TABLE moods (id int PRIMARY KEY, m mood))
);
$subscriber->create_extension;
$pair->subscribe('tap', with => 'two_phase = on');
$subscriber->sql('CREATE ROLE watcher LOGIN');
$publisher->sql('INSERT INTO items VALUES (1, 0), (2, 0)');
$publisher->wait_applied;

my $last_id = 10;

# Statements of that many transactions that fail.  All update the same row, so the order in
# which they are replayed shows.  A transaction that does not fail follows each.
sub failing
{
	my ($count) = @_;
	return map {
		$last_id++;
		(   "INSERT INTO items VALUES ($last_id, -1); UPDATE items SET v = $last_id WHERE id = 1",
			'UPDATE items SET v = v + 1 WHERE id = 2')
	} 1 .. $count;
}

sub wait_until_failing
{
	$subscriber->wait_until(
		'count(*) = 1 FROM parallel_apply.failed_transactions',
		'nothing fails');
	return;
}

# That many transactions fail.
sub fail_in_a_row
{
	my ($count) = @_;
	$subscriber->make_fault;
	$publisher->commit_each(failing($count));
	wait_until_failing();
	return;
}

sub stored
{
	return $subscriber->sql(
		'SELECT count(*) FROM parallel_apply.skipped_transactions');
}

# Call skip_transactions().  Return how many transactions it has reported.
sub skip_them
{
	my ($arguments) = @_;
	my ($status, undef, $error) = $subscriber->psql('postgres',
		"CALL parallel_apply.skip_transactions('tap', $arguments)");
	is($status, 0,
		"skip_transactions() with $arguments ends without an error")
	  or diag($error);
	my @reported = $error =~
	  /NOTICE: +transaction \d+ of subscription "tap", finished at [[:xdigit:]]+\/[[:xdigit:]]+, is skipped/g;
	return scalar @reported;
}

sub call_fails
{
	my ($arguments, $error, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->refuses("CALL parallel_apply.skip_transactions($arguments)",
		$error, $name);
	return;
}

# Call it in a session that does not wait.
sub begin_to_skip
{
	my ($arguments) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/called/,
		"\\echo called\nCALL parallel_apply.skip_transactions('tap', $arguments);\n"
	);
	return $session;
}

# Wait until there is no walsender that still has the slot, then lock what it reads for a
# transaction that has a mood.
sub hold_moods
{
	$publisher->wait_until(
		q(NOT active FROM pg_replication_slots WHERE slot_name = 'tap'),
		'the walsender does not end');
	return $publisher->hold('LOCK TABLE pg_enum IN ACCESS EXCLUSIVE MODE');
}

sub wait_until_held
{
	$publisher->wait_until(
		q(count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'pg_enum'::regclass),
		'the walsender does not wait');
	return;
}

sub replay_them
{
	$subscriber->repair_fault;
	$subscriber->sql(q(CALL parallel_apply.replay_transactions('tap')));
	return;
}

sub all_equal
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$what: $_ is equal on both sides")
	  for 'items', 'moods';
	is(stored(), '0', "$what: nothing remains stored");
	return;
}

### what is refused ############################################################

call_fails(
	q('tap', 5),
	qr/ERROR: +subscription "tap" has no failing transaction/,
	'nothing is skipped while nothing fails');
call_fails(
	q('tap', 0),
	qr/ERROR: +maximum number of transactions must be greater than zero/,
	'the number must be positive');
call_fails(
	q('tap', NULL),
	qr/ERROR: +maximum number of transactions must not be null/,
	'there must be a number');
foreach
  my $call (q(skip_transactions('tap', 5)), q(replay_transactions('tap')))
{
	$subscriber->refuses(
		"SET ROLE watcher; CALL parallel_apply.$call",
		qr/ERROR: +must be owner of subscription tap/,
		"$call is for the owner of the subscription");
	$subscriber->refuses(
		"BEGIN; CALL parallel_apply.$call",
		qr/ERROR: +\w+\(\) cannot run inside a transaction block/,
		"$call has its own transactions");
}
$subscriber->sql(q(CALL parallel_apply.replay_transactions('tap')));

### twenty in a row ############################################################

fail_in_a_row(20);
is(skip_them(100), '20', 'twenty are skipped with one call');
is(stored(), '20', 'and stored');
is($subscriber->sql('SELECT v FROM items WHERE id = 2'),
	'20', 'and what is behind them is applied when it returns');
replay_them();
all_equal('twenty');

### without waiting for the next attempt #######################################

SKIP:
{
	skip 'before PostgreSQL 16, the next attempt is made later', 5
	  if $subscriber->pg_version < 16;
	$subscriber->reload_with(q(wal_retrieve_retry_interval = '1h'));
	fail_in_a_row(3);
	is(skip_them(10), '3', 'after each skip, the next attempt comes at once');
	$subscriber->reload_with(q(wal_retrieve_retry_interval = '100ms'));
	replay_them();
	all_equal('at once');
}

### fewer than fail ############################################################

fail_in_a_row(5);
is(skip_them(2), '2', 'no more are skipped than permitted');
is(stored(), '2', 'and when it returns they are stored');
wait_until_failing();
is(skip_them(3), '3', 'the others are skipped by another call');
is(stored(), '5', 'and stored, too');

# One of them fails again.
my $third = $subscriber->sql(
	'SELECT id FROM parallel_apply.skipped_transactions ORDER BY id OFFSET 2 LIMIT 1'
);
my $row = $last_id - 2;
$subscriber->repair_fault;
$subscriber->sql(
	"ALTER TABLE items ADD CONSTRAINT positive CHECK (id <> $row) NOT VALID");
$subscriber->refuses(
	q(CALL parallel_apply.replay_transactions('tap')),
	qr/ERROR: +new row for relation "items" violates check constraint "positive"/,
	'a replay stops at the first that fails, with its error');
is( $subscriber->sql(
		'SELECT count(*), min(id) FROM parallel_apply.skipped_transactions'),
	"3|$third",
	'what was replayed before is removed, the others remain stored');
is($subscriber->sql("SELECT max(id) FROM items"),
	$row - 1, 'and only these are applied');
replay_them();
all_equal('fewer');

### between two attempts #######################################################

# The next one that fails is not sent before the first is skipped and stored.
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');
$subscriber->make_fault;
$publisher->sql('INSERT INTO items VALUES (3, -1)');
$subscriber->wait_until_failed;
$publisher->sql(
	q(BEGIN; INSERT INTO moods VALUES (1, 'calm'); INSERT INTO items VALUES (4, -1); COMMIT)
);
my $moods = hold_moods();
my $session = begin_to_skip(10);
$subscriber->wait_until(
	'(SELECT count(*) FROM parallel_apply.skipped_transactions) = 1
	AND (SELECT count(*) FROM parallel_apply.failed_transactions) = 0',
	'the first one is not skipped');
wait_until_held();
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'CALL%')
	),
	'1',
	'as long as something has not been sent, it does not end');
$moods->release;
$session->query('SELECT 1');
end_sessions($session);
is(stored(), '2', 'and skips what fails then');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = false)');
replay_them();
all_equal('between two attempts');

### prepared transactions ######################################################

$subscriber->make_fault;
$publisher->sql(
	q(BEGIN; INSERT INTO items VALUES (5, -1); PREPARE TRANSACTION 'a'));
$publisher->sql('INSERT INTO items VALUES (6, -1)');
wait_until_failing();
is(skip_them(10), '2', 'a prepared transaction and another one are skipped');
replay_them();
is($subscriber->sql('SELECT id FROM items WHERE id IN (5, 6)'),
	'6', 'the one that is prepared is not replayed');
$publisher->sql(q(COMMIT PREPARED 'a'));
$publisher->wait_applied;
$subscriber->sql(q(CALL parallel_apply.replay_transactions('tap')));
all_equal('prepared');

### a call that ends early #####################################################

fail_in_a_row(3);
my $holder = $subscriber->hold(
	'CREATE INDEX kept_gate ON parallel_apply.kept_messages (id)');
$session = begin_to_skip(10);
$subscriber->wait_until(
	q(count(*) = 1 FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock'
	AND relation = 'parallel_apply.kept_messages'::regclass),
	'the apply worker does not wait');
$subscriber->sql(
	q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL%')
);
$session->query('SELECT 1');
like(
	$session->{stderr},
	qr/NOTICE: +transaction \d+ .*is skipped and stored.*ERROR: +canceling statement due to user request/s,
	'it can be canceled');
end_sessions($session);
is(stored(), '0', 'before the transaction is stored');
$holder->query_safe('ROLLBACK');
$holder->quit;
$subscriber->wait_until(
	'(SELECT max(finish_lsn) FROM parallel_apply.failed_transactions)
	> (SELECT max(finish_lsn) FROM parallel_apply.skipped_transactions)',
	'the apply worker does not continue');
pass('which it is nevertheless, and the next one fails');
is(skip_them(10), '2', 'that and the others are skipped by another call');
replay_them();
all_equal('canceled');

fail_in_a_row(2);
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
call_fails(
	q('tap', 10),
	qr/ERROR: +subscription "tap" is paused.*HINT: +Use parallel_apply.resume\(\)/s,
	'it ends with an error if the subscription is paused');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
call_fails(
	q('tap', 10),
	qr/ERROR: +subscription "tap" is disabled.*HINT: +Use ALTER SUBSCRIPTION ... ENABLE/s,
	'it does not enable a subscription that a user has disabled');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is(skip_them('10, keep => false'), '2', 'two are skipped, and not stored');
is(stored(), '0', 'nothing is stored');
$subscriber->repair_fault;
$publisher->sql('DELETE FROM items WHERE id > 2; UPDATE items SET v = 0');
all_equal('not stored');

# A transaction that cannot be skipped
$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '64kB'));
$subscriber->make_fault;
$publisher->commit_each(failing(1));
$publisher->sql(
	q(INSERT INTO items SELECT i, -1, repeat('x', 200) FROM generate_series(5000, 5999) i)
);
wait_until_failing();
call_fails(
	q('tap', 10),
	qr/NOTICE.*NOTICE.*ERROR: +could not skip transaction \d+ of subscription "tap": transaction \d+ .* is not skipped because it is too large to be stored/s,
	'it ends if a transaction fails in spite of the skip');
is(stored(), '1', 'and those before it are stored');
is(skip_them('1, keep => false'), '1', 'without storing it is skipped');
$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '1GB'));
replay_them();
$publisher->sql('DELETE FROM items WHERE id >= 5000');
all_equal('too large');

### no connection ############################################################

# Detects: another error hides the transaction that fails.
$subscriber->make_fault;
$publisher->commit_each(failing(2));
wait_until_failing();
my $connstr = $subscriber->sql('SELECT subconninfo FROM pg_subscription');
$subscriber->sql(
	q(ALTER SUBSCRIPTION tap CONNECTION 'host=/nowhere dbname=postgres'));
$subscriber->wait_until(
	q(state = 'disconnected' FROM parallel_apply.subscriptions),
	'the state does not become that without a connection');
my $first = $subscriber->sql(
	'SELECT finish_lsn FROM parallel_apply.failed_transactions');
ok($first, 'a transaction that fails is shown while there is no connection');
$subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
$subscriber->sql("ALTER SUBSCRIPTION tap CONNECTION '$connstr'");
$subscriber->wait_until(
	"count(*) = 1 FROM parallel_apply.subscriptions
		JOIN parallel_apply.failed_transactions USING (subname)
		WHERE state = 'failing' AND reason = message AND finish_lsn > '$first'",
	'the second does not fail');
is(skip_them(10), '1', 'what it was to skip then, it has skipped');
is(stored(), '2', 'both are stored');
replay_them();
all_equal('no connection');

### disabled by errors #########################################################

$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');
$subscriber->make_fault;
$publisher->commit_each(failing(3));
$subscriber->wait_until_failed;
is(skip_them(10), '3',
	'a subscription that errors disable is enabled each time');
is($subscriber->sql('SELECT subenabled FROM pg_subscription'),
	't', 'and in the end');
is(stored(), '3', 'its transactions are stored');
replay_them();
all_equal('disabled by errors');

$subscriber->make_fault;
$publisher->sql(
	q(BEGIN; INSERT INTO moods VALUES (2, 'calm'); INSERT INTO items VALUES (7, -1); COMMIT)
);
$subscriber->wait_until_failed;
$moods = hold_moods();
$session = begin_to_skip(10);
wait_until_held();
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$session->query('SELECT 1');
like(
	$session->{stderr},
	qr/ERROR: +subscription "tap" is disabled/,
	'it stays disabled if a user disables it meanwhile');
end_sessions($session);
$moods->release;
$subscriber->sql(
	'ALTER SUBSCRIPTION tap SET (disable_on_error = false); ALTER SUBSCRIPTION tap ENABLE'
);
$publisher->wait_applied;
is(stored(), '1', 'what it was to skip is stored when it is enabled');
replay_them();
all_equal('disabled by a user');

### one writer #################################################################

$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
fail_in_a_row(3);
is(skip_them(10), '3', 'one writer: all are skipped');
is(stored(), '3', 'one writer: and stored');
replay_them();
all_equal('one writer');

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  (subscription "tap" (has no failing|is paused|is disabled)|maximum number of|must be owner of|\w+\(\) cannot run inside)/,
	qr/ERROR:  canceling statement due to user request/,
	qr/ERROR:  (could not skip transaction|transaction \d+ of subscription "tap" is not skipped because)/,
	qr/(terminating|could not (receive data from WAL stream|connect to the publisher))/
);
done_testing();
