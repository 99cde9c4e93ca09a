# Promise: replay() leaves out the changes of a table whose copy contains the skipped
# transaction, and of no other table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE cleared (id int PRIMARY KEY)));
$subscriber->create_extension;
$pair->subscribe('tap');
$publisher->sql('INSERT INTO cleared VALUES (1)');
$publisher->wait_applied;

# Transactions fail because tables are missing, and are skipped.  Then these tables exist.
sub skip_without
{
	my ($tables, @transactions) = @_;
	$publisher->sql($tables);
	$publisher->sql("BEGIN; $_; COMMIT") foreach @transactions;
	$subscriber->wait_until(
		'count(*) = 1 FROM parallel_apply.failed_transactions',
		'nothing fails');
	$subscriber->sql(q(CALL parallel_apply.skip_transactions('tap', 10)));
	is( $subscriber->sql(
			'SELECT count(*) FROM parallel_apply.skipped_transactions'),
		scalar @transactions,
		'transactions are skipped because tables are missing');
	$subscriber->sql($tables);
	return;
}

# Return what it reports.
sub replay_all
{
	my ($status, undef, $error) = $subscriber->psql('postgres',
		q(CALL parallel_apply.replay_transactions('tap')));
	is($status, 0, 'all are replayed') or diag($error);
	return join "\n", $error =~ /NOTICE: +skipped transaction \d+ (.*)/g;
}

sub refresh
{
	my ($with) = @_;
	$subscriber->sql(
		"ALTER SUBSCRIPTION tap REFRESH PUBLICATION WITH (copy_data = $with)"
	);
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	return;
}

### tables that were missing ###################################################

skip_without(
	q(CREATE TABLE copied (id int PRIMARY KEY, v int);
	CREATE TABLE "No key" (v int);
	CREATE TABLE emptied (id int PRIMARY KEY)),
	q(INSERT INTO copied VALUES (1, 1), (2, 1); INSERT INTO "No key" VALUES (1);
	INSERT INTO items VALUES (1, 1)),
	'UPDATE copied SET v = 2; DELETE FROM copied WHERE id = 2',
	'INSERT INTO items VALUES (2, 2); TRUNCATE emptied, cleared',
	'INSERT INTO emptied VALUES (5)',
	'TRUNCATE emptied',
	'INSERT INTO emptied VALUES (6)');
$publisher->sql('UPDATE copied SET v = 3');
refresh('true');
my $without = 'is replayed without its changes of';
is( replay_all(),
	join("\n",
		qq($without public.copied, public."No key"),
		"$without public.copied",
		("$without public.emptied") x 4),
	'it is reported which tables are left out');
$publisher->wait_applied;
$pair->rows_equal($_, "a copy contains them: $_ is equal on both sides")
  for 'items', 'cleared', 'copied', '"No key"', 'emptied';

### a table that is not copied #################################################

skip_without('CREATE TABLE late (id int PRIMARY KEY)',
	'INSERT INTO late VALUES (1)');
refresh('false');
is(replay_all(), '', 'without a copy, nothing is left out');
$pair->rows_equal('late', 'without a copy, it is applied');

### a table that is copied again ###############################################

sub skip_item
{
	my ($id) = @_;
	$subscriber->make_fault;
	$publisher->sql("INSERT INTO items VALUES ($id, -1)");
	$subscriber->wait_until(
		'count(*) = 1 FROM parallel_apply.failed_transactions',
		'nothing fails');
	$subscriber->sql(q(CALL parallel_apply.skip_transactions('tap', 1)));
	$subscriber->repair_fault;
	return;
}

skip_item(10);
$subscriber->sql(q(SELECT parallel_apply.resync_table('tap', 'items')));
$publisher->flush_wal;
$subscriber->wait_until_ready;
is( replay_all(),
	"$without public.items",
	'a table that was copied again is left out');
$publisher->wait_applied;
$pair->rows_equal('items', 'it is equal on both sides');

# Have tables become ready at the end of the transaction that is stored.
sub set_ready_at_end
{
	my $end = $subscriber->sql(
		q(SELECT encode(substr(message, 11, 8), 'hex') FROM parallel_apply.kept_messages
		WHERE get_byte(message, 0) = ascii('C')));
	my $lsn = substr($end, 0, 8) . '/' . substr($end, 8);
	$subscriber->sql(
		"SET allow_system_table_mods = on; UPDATE pg_subscription_rel SET srsublsn = '$lsn'
		WHERE srrelid = '$_'::regclass") foreach @_;
	return;
}

# If the transaction is the first one after the copy, the table becomes ready at its end.
skip_item(11);
set_ready_at_end('items');
is(replay_all(), '',
	'if the table became ready at its end, it is not left out');
$publisher->wait_applied;
$pair->rows_equal('items', 'and it is applied');

### a table that is being copied meanwhile #####################################

# The copies wait for rows of a local session.  They then get the transaction, too, and the
# table may become ready at its end.  A third copy has no worker yet.
$pair->exec_both(
	q(CREATE TABLE slow (id int PRIMARY KEY);
	CREATE TABLE slow_too (id int PRIMARY KEY)));
$publisher->sql(
	'INSERT INTO slow VALUES (1); INSERT INTO slow_too VALUES (1)');
my $holder = $subscriber->hold(
	'INSERT INTO slow VALUES (1); INSERT INTO slow_too VALUES (1)');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wake('tap');
$subscriber->wait_until(
	q(count(*) = 2 FROM pg_stat_activity JOIN pg_stat_progress_copy USING (pid)
	WHERE wait_event_type = 'Lock'),
	'the copies do not wait');
$pair->exec_both('CREATE TABLE third (id int PRIMARY KEY)');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->make_fault;
$publisher->sql(
	q(BEGIN; INSERT INTO slow VALUES (2); INSERT INTO items VALUES (12, -1);
	TRUNCATE third, cleared; TRUNCATE third; COMMIT));
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions',
	'nothing fails');
$subscriber->sql(q(CALL parallel_apply.skip_transactions('tap', 1)));
$subscriber->repair_fault;
my $id =
  $subscriber->sql('SELECT id FROM parallel_apply.skipped_transactions');
is( $subscriber->numbered_statements("skipped_changes($id)"),
	q(1|INSERT INTO public.items (id, v) VALUES ('12', '-1');)
	  . "\n2|TRUNCATE public.cleared;",
	'what a copy will contain is not stored');
$holder->query_safe('ROLLBACK');
end_sessions($holder);
$publisher->flush_wal;
$subscriber->wait_until_ready;
$publisher->sql('INSERT INTO third VALUES (3)');
$publisher->wait_applied;
set_ready_at_end('slow', 'third');
is(replay_all(), '', 'nothing else is left out');
$publisher->wait_applied;
$pair->rows_equal($_, "being copied: $_ is equal on both sides")
  for 'items', 'cleared', 'slow', 'slow_too', 'third';

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  logical replication target relation .* does not exist/,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  .*table synchronization|terminating/);
done_testing();
