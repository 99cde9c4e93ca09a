# Promise: the apply worker applies no transaction itself while a writer still holds locks
# of a streamed transaction that has been rolled back.
#
# Its triggers would notice these locks, which they would not with PostgreSQL's own apply.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The apply worker applies lone transactions on a slow machine, too (selftest_fast).
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "logical_decoding_work_mem = 64kB\nautovacuum = off",
	subscriber_conf => q(
		parallel_apply.leader_participation = on
		parallel_apply.selftest_fast = on));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY)));

# An order takes the first job that is not locked.
$subscriber->sql(
	q(CREATE TABLE taken (id int, job int);
	CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.taken SELECT NEW.id, j.id FROM public.jobs j ORDER BY j.id LIMIT 1 FOR UPDATE SKIP LOCKED;
		RETURN NEW;
	END $$;
	CREATE TRIGGER take AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION take();
	ALTER TABLE orders ENABLE ALWAYS TRIGGER take;));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$publisher->sql('INSERT INTO jobs VALUES (1, 0), (2, 0)');
$publisher->wait_applied;

my $order = 0;

# Return how many of several orders, one after another, the apply worker has applied.
sub lone_orders
{
	my $count =
	  'SELECT leader_transactions FROM parallel_apply.subscription_stats';
	my $before = $subscriber->sql($count);
	for (1 .. 20)
	{
		$order++;
		$publisher->sql("INSERT INTO orders VALUES ($order)");
		$publisher->wait_applied;
	}
	return $subscriber->sql($count) - $before;
}

my $streamed = $publisher->background_psql('postgres');
my $lone = 0;
for (1 .. 5)
{
	$lone += lone_orders();
	$streamed->query_safe(
		'BEGIN; UPDATE jobs SET n = n + 1 WHERE id = 1;' . item_rows(3000));
	$subscriber->wait_for_early(2000);
	my $writer = $subscriber->stop_early_writer;
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
$streamed->quit;
cmp_ok($lone, '>', 0, 'the apply worker applies small transactions');
is($subscriber->sql('SELECT DISTINCT job FROM taken'),
	'1', 'every trigger has found the first job');
is($subscriber->sql('SELECT count(*) FROM taken'),
	$order, 'and each has fired');
$pair->tables_equal('after streams that were rolled back',
	qw(items jobs orders));
finish($publisher, $subscriber);
done_testing();
