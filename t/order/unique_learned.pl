# Promise: a writer learns from unique violations.  Where transactions pass a value
# from row to row, the number of batches that are rolled back is bounded.
#
# The rows of seats form a chain: each transaction releases the value that the next
# one takes, and its messages contain only the value that its row gets.  Such
# transactions have no key in common, so writers apply them concurrently.  A locked
# row of the table gate blocks the first one, before it releases its value, until all of
# them are queued.  So the other writers cannot have the values of the next ones.  Batches
# are as large as they may be, on a slow machine as well (see selftest_wakes.c).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rows = 3000;
my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 3
		parallel_apply.selftest_fast = on
		parallel_apply.max_batch_transactions = 10));
my @tables = qw(gate seats notes);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE seats (id int PRIMARY KEY, place int UNIQUE);
	CREATE TABLE notes (id int PRIMARY KEY, place int);));
$publisher->sql(
	qq(INSERT INTO gate VALUES (1, 0);
	INSERT INTO seats SELECT i, i FROM generate_series(1, $rows) i;));
$subscriber->create_extension;
$pair->subscribe('tap');

sub value_of
{
	my ($column) = @_;
	return $subscriber->sql(
		"SELECT $column FROM parallel_apply.subscription_stats");
}

# Each row moves up one place, beginning with the last one.
sub move_up
{
	my ($name) = @_;
	my $errors = value_of('failed_attempts');
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		"BEGIN; UPDATE gate SET n = n + 1;
		UPDATE seats SET place = place + 1 WHERE id = $rows; COMMIT;");
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql(
		qq(DO \$\$ BEGIN
			FOR i IN REVERSE $rows - 1 .. 1 LOOP
				UPDATE seats SET place = place + 1 WHERE id = i;
				COMMIT;
			END LOOP;
		END \$\$));
	$subscriber->wait_until(
		"queue_transactions = $rows FROM parallel_apply.subscriptions",
		'the transactions are not received');
	$lock->release;
	$pair->tables_equal($name, @tables);
	$errors = value_of('failed_attempts') - $errors;
	note("$errors errors $name");
	return $errors;
}

# The writers fail before they have learned, and each again after 256 changes, 512 and
# so on.  If all three had equal shares, each would fail twice the second time; 7 is the
# limit for any shares.  Detects: each batch fails, or each one that begins while another
# is applied.
my $errors = move_up('after many have moved');
cmp_ok($errors, '>', 0, 'values that messages do not contain conflict');
cmp_ok($errors, '<=', 15, 'but few times');
cmp_ok(value_of('batch_size'), '>', 1, 'and batches are formed');
cmp_ok(move_up('after they have moved again'),
	'<=', 7, 'even fewer times later');
is(value_of('fallback_failure'),
	0, 'and nothing is left to the core apply loop');

# Other tables are applied concurrently as before.
{
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		q(UPDATE gate SET n = n + 1; INSERT INTO notes VALUES (1, 1);));
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit',
		'another table is applied before its turn');
	is( $subscriber->sql(
			q(SELECT count(*) FROM pg_locks l JOIN parallel_apply.writers w USING (pid)
			WHERE relation = 'notes'::regclass AND state = 'waiting for prior commit')
		),
		'1',
		'and its row is there already');
	$lock->release;
	$pair->tables_equal('in the end', @tables);
}

finish($publisher, $subscriber);
done_testing();
