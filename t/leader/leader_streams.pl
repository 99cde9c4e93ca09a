# Promise: the apply worker applies no transaction itself while a writer still holds locks
# of a streamed transaction that has been rolled back, or that it has begun to apply since
# the other one began.
#
# Its triggers would notice these locks, which they would not with PostgreSQL's own apply.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The apply worker applies leader transactions on a slow machine, too
# (selftest_fast).
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "logical_decoding_work_mem = 64kB\nautovacuum = off",
	subscriber_conf => q(
		autovacuum = off
		parallel_apply.leader_participation = on
		parallel_apply.selftest_fast = on));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY);
	CREATE TABLE plain (id int PRIMARY KEY)));
$pair->exec_both("CREATE TABLE orders_$_ (id int PRIMARY KEY)") for 1 .. 5;

# An order takes the first job that is not locked.
$subscriber->make_takers('orders', map { "orders_$_" } 1 .. 5);
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$publisher->sql(
	'INSERT INTO jobs VALUES (1, 0), (2, 0); INSERT INTO plain VALUES (0)');
$publisher->wait_applied;

my $order = 0;

# Make orders, one after another, until the apply worker has applied one itself.  It would
# do so with the next one, too, but for a stream.
sub make_leader_order
{
	my $count =
	  'SELECT leader_transactions FROM parallel_apply.subscription_stats';
	my $before = $subscriber->sql($count);
	for (1 .. 100)
	{
		$order++;
		$publisher->sql("INSERT INTO orders VALUES ($order)");
		$publisher->wait_applied;
		return if $subscriber->sql($count) > $before;
	}
	die 'the apply worker applies no transaction itself';
}

my $streamed = $publisher->background_psql('postgres');
for (1 .. 5)
{
	make_leader_order();
	$streamed->query_safe(
		'BEGIN; UPDATE jobs SET n = n + 1 WHERE id = 1;' . item_rows(3000));
	$subscriber->wait_for_in_progress(2000);
	my $writer = $subscriber->stop_in_progress_writer;
	$streamed->query_safe('ROLLBACK');
	$order++;
	$publisher->sql("INSERT INTO orders VALUES ($order)");
	$subscriber->wait_until(
		qq((SELECT queue_transactions = 1 FROM parallel_apply.subscriptions)
		OR EXISTS (SELECT FROM taken WHERE id = $order)),
		'the order has not come');
	kill 'CONT', $writer;
	$publisher->wait_applied;
}

# A writer takes the streamed transaction after another one has begun in the queue, and
# before its change that fires a trigger arrives: the walsender waits for a lock on a
# catalog when it first decodes a change of a table.
my $catalog = $publisher->background_psql('postgres');
my $pids =
  q(SELECT string_agg(pid::text, ' ') FROM parallel_apply.writers WHERE pid IS NOT NULL);
for (1 .. 5)
{
	make_leader_order();
	my @writers = split ' ', $subscriber->sql($pids);
	kill 'STOP', @writers;
	$streamed->query_safe(
		'BEGIN; UPDATE jobs SET n = n + 1 WHERE id = 1;' . item_rows(3000));
	$subscriber->wait_for_spooled('> 0', 'no stream has come');
	$catalog->query_safe('BEGIN; LOCK TABLE pg_publication_rel');
	$order++;
	my $lsn = $publisher->sql(
		"BEGIN; INSERT INTO plain VALUES ($order); INSERT INTO orders_$_ VALUES ($order);
		SELECT pg_current_wal_insert_lsn(); COMMIT");
	$publisher->wait_until(
		q(EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'pg_publication_rel'::regclass)),
		'the walsender does not wait');
	$subscriber->wait_until(
		'(SELECT queue_transactions = 1 FROM parallel_apply.subscriptions)',
		'the transaction has not begun');
	kill 'CONT', @writers;
	$subscriber->wait_for_in_progress(2000);
	my $writer = $subscriber->stop_in_progress_writer;
	$catalog->query_safe('COMMIT');
	$subscriber->wait_until(
		qq((SELECT received_lsn >= '$lsn' FROM parallel_apply.subscriptions)
		OR EXISTS (SELECT FROM taken WHERE id = $order)),
		'the order has not come');
	kill 'CONT', $writer;
	$streamed->query_safe('ROLLBACK');
	$publisher->wait_applied;
}
$catalog->quit;
$streamed->quit;
is($subscriber->sql('SELECT DISTINCT job FROM taken'),
	'1', 'every trigger has found the first job');
is($subscriber->sql('SELECT count(*) FROM taken'),
	$order, 'and each has fired');
$pair->tables_equal('after streams that were rolled back',
	qw(items jobs orders));
finish($publisher, $subscriber);
done_testing();
