# Promise: a subscription has one slot of shared memory, with its counters and its hot
# keys.  It keeps them as long as it has an apply worker, and after that until all slots
# are taken.  A subscription that was dropped makes room first.  A slot that gets another
# subscription has nothing of the one before, which has then lost all of it.
#
# There are two slots, as many as apply workers.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	max_logical_replication_workers = 2
	parallel_apply.writers_per_subscription = 2
	parallel_apply.max_batch_transactions = 1
	CONF
$subscriber->create_extension;
$pair->exec_both(
	"CREATE TABLE of_$_ (id int PRIMARY KEY, v int); INSERT INTO of_$_ VALUES (0, 0), (1, 0)"
) for qw(first second third fourth);

sub begin
{
	my ($name) = @_;
	$pair->subscribe(
		$name,
		publication => "FOR TABLE of_$name",
		with => 'copy_data = off');
	$subscriber->wait_for_pool($name, 2);
	return;
}

# A transaction of this subscription waits for a row of another one.
sub wait_for_row
{
	my ($name) = @_;
	my $table = "of_$name";
	my $lock =
	  $subscriber->hold("SELECT FROM $table WHERE id = 0 FOR UPDATE");
	$publisher->sql(
		"BEGIN; UPDATE $table SET v = v + 1 WHERE id = 0;
		UPDATE $table SET v = v + 1 WHERE id = 1; COMMIT;
		BEGIN; UPDATE $table SET v = v + 1 WHERE id = 1; COMMIT;");
	$subscriber->states_become(
		'waiting for lock, waiting for dependency',
		"$name: a transaction waits for a row");
	$lock->release;
	$publisher->wait_applied($name);
	$subscriber->wait_until(
		"EXISTS (SELECT FROM parallel_apply.hot_keys WHERE subname = '$name')
		AND EXISTS (SELECT FROM parallel_apply.subscription_stats WHERE subname = '$name' AND updates >= 3)",
		'the wait and the changes are not counted');
	return;
}

# Assert that subscriptions have these changes and waits, and others nothing.
sub counted
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			q(SELECT string_agg(format('%s %s %s', subname, updates, waits), ', ' ORDER BY subname)
			FROM parallel_apply.subscription_stats LEFT JOIN
				(SELECT subid, sum(waits) AS waits FROM parallel_apply.hot_keys
				WHERE key_hash IS NOT NULL GROUP BY subid) k USING (subid)
			WHERE updates IS NOT NULL)),
		$expected,
		$name);
	return;
}

begin('first');
wait_for_row('first');
begin('second');
counted('first 3 1, second 0 ',
	'a second subscription has a slot of its own');
wait_for_row('second');
counted('first 3 1, second 3 1', 'each counts its own changes and waits');

$subscriber->sql('ALTER SUBSCRIPTION first DISABLE');
$subscriber->wait_until(
	q(pid IS NULL FROM parallel_apply.subscriptions WHERE subname = 'first'),
	'the apply worker does not exit');
$subscriber->sql('DROP SUBSCRIPTION second');
is( $subscriber->sql(
		q(SELECT string_agg(DISTINCT coalesce(subname, 'none'), ' ') FROM parallel_apply.hot_keys)
	),
	'first',
	'a subscription that was dropped is not shown');
begin('third');
counted(
	'first 3 1, third 0 ',
	'another one takes the slot of a subscription that was dropped, and begins at zero'
);
wait_for_row('third');
counted('first 3 1, third 3 1',
	'it takes nothing from a subscription without apply worker');

begin('fourth');
counted(
	'fourth 0 , third 3 1',
	'where no slot is free, one that has no apply worker loses its own, all of it'
);

# Its tables are counted elsewhere.
my $of_table =
  q(SELECT updates FROM parallel_apply.tables WHERE relname = 'of_first');
is($subscriber->sql($of_table), '3', 'but not the counters of its tables');
$subscriber->wait_until_counted;
$subscriber->sql('SELECT parallel_apply.reset_stats()');
is($subscriber->sql($of_table),
	'0', 'reset_stats() resets those of a subscription without a slot, too');
wait_for_row('third');
$subscriber->sql('DROP SUBSCRIPTION fourth');
$subscriber->sql('ALTER SUBSCRIPTION first ENABLE');
$subscriber->wait_for_pool('first', 2);
counted('first 0 , third 3 1', 'and later begins at zero');
wait_for_row('first');
counted('first 3 1, third 3 1', 'and counts again');

$pair->rows_equal("of_$_") for qw(first third);
finish($publisher, $subscriber,
	qr/FATAL: +terminating .* due to administrator command/);
done_testing();
