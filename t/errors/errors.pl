# Promise: an error of a remote transaction is PostgreSQL's own.  Its message, its
# counter, disable_on_error and SKIP are as without the extension, all older
# transactions are committed and no younger one is.  What is no error in PostgreSQL
# is none here, and a transaction that fails only once is repeated without any
# report.
#
# Locked rows of gate stop writers where it matters, so that several transactions
# are queued behind the one that fails, or a batch is formed of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
my @tables = qw(items history gate);

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE history (n int, part int);
	CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE missing (id int PRIMARY KEY, v int);));
$publisher->sql(
	q(
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i;
	INSERT INTO gate SELECT i, 0 FROM generate_series(1, 4) i;));
$subscriber->create_extension;
$pair->subscribe('tap');

# Each row in a transaction of its own

sub error_count
{
	return $subscriber->sql(
		q(SELECT apply_error_count FROM pg_stat_subscription_stats
		WHERE subname = 'tap'));
}

# A transaction that fails, between others.  It has the given statements and a mark.
# $error is what the log must contain, $repair is called afterwards with the log and
# the previous number of errors.
sub fails
{
	my ($name, $sql, $error, $repair) = @_;
	my $offset = -s $subscriber->logfile;
	# An apply worker that has failed reports its error before it is gone.
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker'),
		'an apply worker that has failed does not end');
	my $errors = error_count();

	$publisher->make_history(20);
	my $first = $publisher->last_history;
	$publisher->sql(
		"BEGIN; INSERT INTO history VALUES ($first, 1); $sql COMMIT;");
	$publisher->make_history(20);
	$subscriber->wait_for_log($error, $offset);
	my $log = slurp_file($subscriber->logfile, $offset);
	like(
		$log,
		qr/CONTEXT: +processing remote data for replication origin "pg_\d+" during message type "\w+".* in transaction \d+, finished at /,
		"$name: the context is that of PostgreSQL's own apply");
	$subscriber->poll_query_until('postgres',
		"SELECT apply_error_count > $errors FROM pg_stat_subscription_stats WHERE subname = 'tap'"
	);
	cmp_ok(error_count(), '>', $errors, "$name: the error is counted");
	is( $subscriber->sql(
			"SELECT max(n), count(*) FILTER (WHERE n = $first AND part = 1) FROM history"
		),
		"$first|0",
		"$name: older transactions are committed, it and younger ones are not"
	);
	$repair->($log, $errors);
	$pair->tables_equal("after repair of a $name", @tables);
	return;
}

$subscriber->sql('INSERT INTO items VALUES (1001, 0)');
fails(
	'unique violation',
	'INSERT INTO items VALUES (1001, 1);',
	duplicate_key('items'),
	sub { $subscriber->sql('DELETE FROM items WHERE id = 1001') });

$subscriber->sql('ALTER TABLE items ADD CONSTRAINT small CHECK (v < 1000)');
fails(
	'check violation',
	'UPDATE items SET v = 1000 WHERE id = 1;',
	qr/ERROR: +new row for relation "items" violates check constraint "small"/,
	sub { $subscriber->sql('ALTER TABLE items DROP CONSTRAINT small') });

$subscriber->sql('ALTER TABLE missing RENAME TO hidden');
fails(
	'missing table',
	'INSERT INTO missing VALUES (1, 1);',
	qr/ERROR: +logical replication target relation "public.missing" does not exist/,
	sub { $subscriber->sql('ALTER TABLE hidden RENAME TO missing') });
$pair->rows_equal('missing');

$publisher->sql('ALTER TABLE items ADD COLUMN extra int');
fails(
	'missing column',
	'UPDATE items SET extra = 1 WHERE id = 2;',
	qr/ERROR: +logical replication target relation "public.items" is missing replicated column: "extra"/,
	sub { $subscriber->sql('ALTER TABLE items ADD COLUMN extra int') });

# SKIP skips this one transaction.
$subscriber->sql('INSERT INTO items VALUES (1002, 0)');
fails(
	'transaction to be skipped',
	'INSERT INTO items VALUES (1003, 0), (1002, 1);',
	duplicate_key('items'),
	sub {
		my ($log) = @_;
		my $offset = -s $subscriber->logfile;
		my ($lsn) =
		  $log =~ /in transaction \d+, finished at ([0-9A-F]+\/[0-9A-F]+)/;
		$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
		$subscriber->wait_for_log(
			qr/logical replication completed skipping transaction at LSN $lsn/,
			$offset);
		$publisher->wait_applied;
		my $n = $publisher->last_history - 20;
		is( $subscriber->sql(
					"SELECT count(*) FROM items WHERE id > 1001"
				  . " UNION ALL SELECT count(*) FROM history WHERE part = 1 AND n = $n"
			),
			"1\n0",
			'nothing of the skipped transaction is there');
		is( $subscriber->sql(
				"SELECT subskiplsn = '0/0' FROM pg_subscription WHERE subname = 'tap'"
			),
			't',
			'nothing else will be skipped');
		$subscriber->sql(
			"UPDATE items SET v = 1 WHERE id = 1002;
			INSERT INTO items VALUES (1003, 0);
			INSERT INTO history VALUES ($n, 1);");
	});
$subscriber->wait_for_pool('tap');

# disable_on_error
$subscriber->sql(
	'ALTER SUBSCRIPTION tap SET (disable_on_error = true);
	INSERT INTO items VALUES (1004, 0);');
fails(
	'disabling error',
	'INSERT INTO items VALUES (1004, 1);',
	duplicate_key('items'),
	sub {
		my ($log, $errors) = @_;
		ok( $subscriber->poll_query_until(
				'postgres',
				"SELECT NOT subenabled FROM pg_subscription WHERE subname = 'tap'"
			),
			'the subscription is disabled');
		ok( $subscriber->poll_query_until(
				'postgres',
				"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%'"
			),
			'and its writers are gone');
		is(error_count(), $errors + 1, 'it has failed once');
		$subscriber->sql(
			'DELETE FROM items WHERE id = 1004;
			ALTER SUBSCRIPTION tap SET (disable_on_error = false);
			ALTER SUBSCRIPTION tap ENABLE;');
	});
$subscriber->wait_for_pool('tap', 4);

# All writers are busy when many transactions arrive.  These become batches, and one
# in the middle fails.
{
	my $session = $subscriber->hold('SELECT n FROM gate FOR UPDATE');
	$publisher->sql("UPDATE gate SET n = n + 1 WHERE id = $_") for 1 .. 4;
	$subscriber->wait_for_state('waiting for lock', 4);
	$subscriber->sql('INSERT INTO items VALUES (1005, 0)');
	$publisher->make_history(100);
	my $failing = $publisher->last_history;
	$publisher->sql(
		"BEGIN; INSERT INTO history VALUES ($failing, 1); INSERT INTO items VALUES (1005, 1); COMMIT;"
	);
	$publisher->make_history(100);

	my $offset = -s $subscriber->logfile;
	$session->quit;
	$subscriber->wait_for_log(duplicate_key('items'), $offset);
	is( $subscriber->sql(
			'SELECT max(n) FROM history UNION ALL SELECT sum(n) FROM gate'),
		"$failing\n4",
		'everything before it is committed where a transaction of a batch fails'
	);
	$subscriber->sql('DELETE FROM items WHERE id = 1005');
	$pair->tables_equal('after an error in a batch', @tables);
	$subscriber->wait_for_pool('tap', 4);
}

# From here on there are no errors.
my $clean_offset = -s $subscriber->logfile;
my $apply_pid = $subscriber->apply_pid('tap');

# Missing rows are ignored.
$subscriber->sql('DELETE FROM items WHERE id BETWEEN 11 AND 20');
$publisher->sql(
	'UPDATE items SET v = v + 1 WHERE id BETWEEN 10 AND 15;
	DELETE FROM items WHERE id BETWEEN 16 AND 21;
	UPDATE items SET v = v + 1 WHERE id BETWEEN 9 AND 22;');
$publisher->make_history(20);
$publisher->wait_applied;
is( $subscriber->sql(
		'SELECT count(*), sum(v) FROM items WHERE id BETWEEN 9 AND 22'),
	$publisher->sql(
		'SELECT count(*), sum(v) FROM items WHERE id IN (9, 10, 22)'),
	'updates and deletes of missing rows are ignored, their transactions are not'
);
$publisher->sql('DELETE FROM items WHERE id BETWEEN 11 AND 20');

# A transaction that is canceled once is repeated when everything older is
# committed.  It does not disable the subscription.
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');
for my $state ('waiting for lock', 'waiting for prior commit')
{
	my $retries = $subscriber->counter('retries');
	my $replays = $subscriber->counter('fallbacks');
	my $session =
	  $subscriber->hold('SELECT n FROM gate WHERE id = 1 FOR UPDATE');
	$publisher->make_history(20);
	my $n = $publisher->last_history;
	# Otherwise an older transaction might be the one that waits, which does not last.
	$subscriber->wait_until("max(n) = $n FROM history",
		'older transactions are not applied');
	$publisher->sql(
		"BEGIN; INSERT INTO history VALUES ($n, 1);
		UPDATE gate SET n = n + 1 WHERE id = 1; COMMIT;");
	$subscriber->wait_for_state('waiting for lock');
	$publisher->make_history(20);
	$subscriber->wait_for_state('waiting for prior commit');
	$subscriber->sql(
		"SELECT pg_cancel_backend(pid) FROM parallel_apply.writers
		WHERE state = '$state' ORDER BY remote_lsn LIMIT 1");
	if ($state eq 'waiting for lock')
	{
		$subscriber->poll_query_until('postgres',
			"SELECT sum(retries) > $retries FROM parallel_apply.writers")
		  or die 'the canceled transaction is not tried again';
		$subscriber->wait_for_state('waiting for lock');
	}
	$session->quit;
	$pair->tables_equal("after a writer $state was canceled", @tables);
	cmp_ok($subscriber->counter('retries'),
		'>', $retries, "a transaction canceled $state is tried once more");
	is($subscriber->counter('fallbacks'),
		$replays, 'and its writer succeeds then');
}

# A writer that fails twice leaves the transaction to PostgreSQL's own apply: this
# constraint fails in any other process.
{
	my $replays = $subscriber->counter('fallbacks');
	$subscriber->sql(
		q(CREATE FUNCTION is_not_writer() RETURNS boolean LANGUAGE sql AS $$
		SELECT backend_type NOT LIKE 'parallel_apply writer%'
		FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid() $$;
		ALTER TABLE items ADD CONSTRAINT native CHECK (v <> 77 OR is_not_writer());)
	);
	$publisher->make_history(20);
	$publisher->sql(
		'UPDATE items SET v = 77 WHERE id = 5; UPDATE items SET v = v + 1 WHERE id IN (5, 6);'
	);
	$publisher->make_history(20);
	$pair->tables_equal(
		'after a transaction that only PostgreSQL itself can do', @tables);
	is( $subscriber->counter('fallbacks'),
		$replays + 1,
		'a fallback is counted');
}

is($subscriber->apply_pid('tap'),
	$apply_pid, 'none of this has restarted the apply worker');
unlike(slurp_file($subscriber->logfile, $clean_offset),
	qr/ERROR|FATAL/, 'and none has left an error in the log');

finish(
	$publisher,
	$subscriber,
	duplicate_key('items'),
	qr/violates check constraint "small"/,
	qr/target relation "public.missing" does not exist/,
	qr/is missing replicated column: "extra"/);
done_testing();
