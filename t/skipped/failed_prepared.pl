# Promise: a transaction that fails at its PREPARE is shown, skipped, stored and
# replayed like any other, as a streamed one, too.  It is replayed with the time of its
# COMMIT PREPARED, and its ROLLBACK PREPARED leaves nothing of it, whenever the server
# crashes.  One that is too large to be stored is not skipped, and fails before all of it
# has been received.
#
# A transaction fails as long as the subscriber has a CHECK constraint.  The end of a
# prepared transaction stops after each of its two local commits, since these wait for a
# synchronous standby that does not exist.
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
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10),
	subscriber_conf => q(
		track_commit_timestamp = on
		wal_level = replica
		max_wal_senders = 5
		max_prepared_transactions = 10));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int DEFAULT 0, note text);
	CREATE TABLE others (id int PRIMARY KEY)));
$subscriber->create_extension;
$pair->subscribe('tap',
	with =>
	  'disable_on_error = true, streaming = on, two_phase = on, synchronous_commit = on'
);
$subscriber->wait_until(q(subtwophasestate = 'e' FROM pg_subscription),
	'two_phase is not enabled');
my $insert_many =
  q(INSERT INTO items SELECT i, CASE i WHEN 1500 THEN -1 END, repeat('x', 200) FROM generate_series(1000, 1999) i);

sub fails
{
	my ($changes) = @_;
	$subscriber->make_fault;
	$publisher->sql("BEGIN; $changes; PREPARE TRANSACTION 'it'");
	$subscriber->wait_until_failed;
	return;
}

sub request
{
	return $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
}

# It is skipped, and prepared without its changes.
sub skip_it
{
	my ($changes) = @_;
	fails($changes);
	my $id = request();
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	is($subscriber->sql('SELECT count(*) FROM pg_prepared_xacts'),
		'1', 'it is prepared');
	return $id;
}

sub nothing_is_left
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			'SELECT (SELECT count(*) FROM parallel_apply.kept_transactions WHERE subid <> 0),
			(SELECT count(*) FROM parallel_apply.kept_messages),
			(SELECT count(*) FROM pg_prepared_xacts)'),
		'0|0|0',
		"$what: nothing is left");
	return;
}

# Commit times of a row on both nodes
sub commit_time_is_equal
{
	my ($what, $id) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $sql =
	  "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM items WHERE id = $id";
	my $expected = $publisher->sql($sql);
	is( $subscriber->sql(
			'SELECT extract(epoch FROM commit_time) FROM parallel_apply.skipped_transactions'
		),
		$expected,
		"$what: the time of its COMMIT PREPARED is shown");
	my $stored =
	  $subscriber->sql('SELECT id FROM parallel_apply.skipped_transactions');
	$subscriber->sql("CALL parallel_apply.replay($stored)");
	is($subscriber->sql($sql), $expected, "$what: and is that of the replay");
	$pair->rows_equal('items', "$what: all of it is there");
	nothing_is_left($what);
	return;
}

sub is_shown
{
	my ($what, $changes, $row, $count) = @_;
	fails($changes);
	is( $subscriber->sql(
			'SELECT relname, operation, key FROM parallel_apply.failed_transactions'
		),
		"items|INSERT|(id)=($row)",
		"$what: the view shows the change that fails");
	my $shown = $subscriber->numbered_statements(q{failed_changes('tap')});
	is(scalar(split /\n/, $shown), $count, "$what: all changes are shown");
	my $id = request();
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	is($subscriber->numbered_statements("skipped_changes($id)"),
		'', "$what: nothing is stored before its end");
	$publisher->sql(q(COMMIT PREPARED 'it'));
	$publisher->wait_applied;
	is($subscriber->numbered_statements("skipped_changes($id)"),
		$shown, "$what: what was shown is stored");
	commit_time_is_equal($what, $row);
	$publisher->sql('DELETE FROM items');
	$publisher->wait_applied;
	return;
}

sub is_rolled_back
{
	my ($what) = @_;
	skip_it('INSERT INTO items VALUES (1, -1)');
	$publisher->sql(q(ROLLBACK PREPARED 'it'));
	$publisher->wait_applied;
	nothing_is_left("$what, rolled back");
	return;
}

# Other prepared transactions that end meanwhile are not confused with it.  They lock
# another table, so that the constraint can be changed.
sub others_are_left_alone
{
	my ($what) = @_;
	$publisher->sql(
		q(BEGIN; INSERT INTO others VALUES (1); PREPARE TRANSACTION 'first'));
	fails('INSERT INTO items VALUES (2, -1)');
	my $id = request();
	$publisher->sql(
		q(BEGIN; INSERT INTO others VALUES (3); PREPARE TRANSACTION 'second';
		ROLLBACK PREPARED 'first'; COMMIT PREPARED 'second'));
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	is( $subscriber->sql(
			'SELECT count(*) FROM parallel_apply.kept_transactions'),
		'1',
		"$what: the end of another prepared transaction leaves it alone");
	$publisher->sql(q(COMMIT PREPARED 'it'));
	$publisher->wait_applied;
	is( $subscriber->numbered_statements("skipped_changes($id)"),
		q(1|INSERT INTO public.items (id, v, note) VALUES ('2', '-1', NULL);),
		"$what: and it is stored by its own");
	commit_time_is_equal("$what, with others", 2);
	$pair->rows_equal('others');
	$publisher->sql('DELETE FROM items; DELETE FROM others');
	$publisher->wait_applied;
	return;
}

### with writers and without ###################################################

foreach my $how ('writers', 'one writer')
{
	if ($how eq 'one writer')
	{
		$subscriber->sql(
			q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
		$subscriber->wait_for_pool('tap', 0);
	}
	is_shown($how, 'INSERT INTO items VALUES (1, 0), (2, -1)', 2, 2);
	is_shown("$how, a streamed one", $insert_many, 1500, 1000);
	is_rolled_back($how);
	others_are_left_alone($how);
}
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
$subscriber->wait_for_pool('tap');

### sessions that want to lock what is stored ##################################

# A session waits for the prepared transaction, and the apply worker must not wait behind
# it.  Return that session.
sub begin_vacuum
{
	my ($relation) = @_;
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/called/,
		"\\echo called\nVACUUM FULL parallel_apply.$relation;\n");
	$subscriber->wait_until(
		"count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'parallel_apply.$relation'::regclass",
		'VACUUM does not wait');
	return $session;
}

sub ends_before
{
	my ($relation, $end) = @_;
	my $id = skip_it('INSERT INTO items VALUES (1, -1)');
	my $session = begin_vacuum($relation);
	$publisher->sql("$end PREPARED 'it'");
	$publisher->wait_applied;
	$session->query_safe('SELECT 1');
	end_sessions($session);
	my $what = "$end PREPARED while VACUUM FULL waits for $relation";

	if ($end eq 'ROLLBACK')
	{
		is( $subscriber->sql(
				'SELECT count(*) FROM parallel_apply.skipped_transactions'),
			'0',
			"$what: nothing is stored");
		return;
	}
	return commit_time_is_equal($what, 1) if $relation eq 'kept_messages';
	$subscriber->sql("CALL parallel_apply.replay($id)");
	$pair->rows_equal('items', "$what: it can be replayed");
	nothing_is_left($what);
	return;
}

foreach my $relation ('kept_messages', 'kept_transactions')
{
	ends_before($relation, 'COMMIT');
	$publisher->sql('DELETE FROM items');
	$publisher->wait_applied;
	ends_before($relation, 'ROLLBACK');
}

# Also after the apply worker has been started again
skip_it('INSERT INTO items VALUES (1, -1)');
$subscriber->refuses(
	"SET lock_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'; DROP EXTENSION parallel_apply",
	qr/ERROR: +cannot drop extension "parallel_apply" because a skipped transaction is being stored or removed.*HINT: +Try again later/s,
	'DROP EXTENSION does not wait for it either');
my $vacuum = begin_vacuum('kept_messages');
$subscriber->restart_apply('tap');
$publisher->sql(q(COMMIT PREPARED 'it'));
$publisher->wait_applied;
$vacuum->query_safe('SELECT 1');
end_sessions($vacuum);
commit_time_is_equal('a new apply worker', 1);
$publisher->sql('DELETE FROM items');
$publisher->wait_applied;

### crashes at the end #########################################################

$subscriber->sql('CREATE TABLE committed (id int)');

# Wait until a process of the subscriber waits for a standby.
sub wait_for_standby
{
	my ($which) = @_;
	$subscriber->wait_until(
		"count(*) = 1 FROM pg_stat_activity WHERE $which AND wait_event = 'SyncRep'",
		'there is no wait for a standby');
	return;
}

# Make all commits wait for a standby.  A session that commits again and again waits as
# soon as the server demands that; it is returned.
sub demand_standby
{
	$subscriber->reload_with(q(synchronous_standby_names = 'missing'));
	my $session =
	  $subscriber->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/called/, <<~'SQL');
	\echo called
	DO $$BEGIN LOOP INSERT INTO committed VALUES (1); COMMIT; END LOOP; END$$;
	SQL
	wait_for_standby(q(query LIKE 'DO%'));
	return $session;
}

# The server crashes when the apply worker has executed that many local commits for it.
sub crash_at
{
	my ($end, $commits) = @_;
	my $what = "$end, crash after local commit $commits";
	skip_it('INSERT INTO items VALUES (1, -1)');
	my $pid = $subscriber->apply_pid('tap');
	my $session = demand_standby();
	$publisher->sql("$end PREPARED 'it'");
	wait_for_standby("pid = $pid");
	if ($commits == 2)
	{
		my $offset = -s $subscriber->logfile;
		$subscriber->sql("SELECT pg_cancel_backend($pid)");
		$subscriber->wait_for_log(
			qr/canceling wait for synchronous replication/, $offset);
		wait_for_standby("pid = $pid");
	}
	$subscriber->stop('immediate');
	eval { $session->quit };
	$subscriber->append_conf('postgresql.conf',
		q(synchronous_standby_names = ''));
	$subscriber->start;
	$subscriber->wait_for_pool('tap');
	$publisher->wait_applied;
	return nothing_is_left($what) if $end eq 'ROLLBACK';
	commit_time_is_equal($what, 1);
	$publisher->sql('DELETE FROM items');
	$publisher->wait_applied;
	return;
}

foreach my $end ('COMMIT', 'ROLLBACK')
{
	crash_at($end, $_) foreach (1, 2);
}

### one that is too large ######################################################

sub is_refused
{
	my ($what, $changes) = @_;
	fails($changes);
	request();
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->wait_until(
		q(count(*) = 1 FROM parallel_apply.failed_transactions, pg_subscription
		WHERE message LIKE '%is not skipped because it is too large to be stored' AND NOT subenabled),
		"$what: it does not fail for its size");
	is( $subscriber->sql(
			'SELECT f.finish_lsn = s.subskiplsn, change < 400
			FROM parallel_apply.failed_transactions f, pg_subscription s'),
		't|t',
		"$what: it fails as soon as its size is known, and is still to be skipped"
	);
	is( $subscriber->sql(
			'SELECT (SELECT count(*) FROM parallel_apply.kept_messages),
			(SELECT count(*) FROM pg_prepared_xacts)'),
		'0|0',
		"$what: nothing is stored or prepared");
	$subscriber->reload_with(
		q(parallel_apply.max_stored_transaction_size = '1MB'));
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	return;
}

$subscriber->reload_with(
	q(parallel_apply.max_stored_transaction_size = '64kB'));
is_refused('a streamed one', $insert_many);
$publisher->sql(q(COMMIT PREPARED 'it'));
$publisher->wait_applied;
commit_time_is_equal('one that was too large', 1000);

### one that is not there any more #############################################

fails('INSERT INTO items VALUES (1, -1)');
$publisher->poll_query_until('postgres',
	'SELECT count(*) = 0 FROM pg_replication_slots WHERE active')
  or die 'the slot remains in use';
$publisher->sql(
	q(SELECT pg_replication_slot_advance('tap', pg_current_wal_insert_lsn()))
);
$subscriber->refuses(
	q{SELECT * FROM parallel_apply.failed_changes('tap')},
	qr/ERROR: +the publisher does not send the transaction that fails.*DETAIL: +It was applied, skipped or rolled back meanwhile/s,
	'a transaction that the publisher has no more cannot be shown');

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  transaction \d+ of subscription "tap" is not skipped because/,
	qr/ERROR:  (the publisher does not send the transaction|cannot drop extension)/,
	qr/(the database system is|terminating|could not receive data from WAL stream|canceling wait for synchronous)/
);
done_testing();
