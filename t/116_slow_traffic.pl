# Promise: where transactions come slowly, each of them wakes processes only a few times.
#
# The apply worker is woken by the transaction, and by the writer that has flushed it.  None
# of its sleeps is ended by time: a flush is not deferred, since there is no other commit
# that it could be shared with, and the apply loop does its housekeeping right after a
# transaction.  Where transactions come faster, they share flushes.  While a table is being
# synchronized, the apply loop sleeps by itself.
use strict;
use warnings;
use FindBin;
use List::Util qw(sum0);
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		autovacuum = off
		checkpoint_timeout = 1h
		wal_sender_timeout = 0),
	subscriber_conf => q(
		autovacuum = off
		checkpoint_timeout = 1h
		parallel_apply.leader_participation = on
		parallel_apply.selftest_sleep = 1h
		wal_receiver_timeout = 0));
plan skip_all => 'the library was made without SELFTEST=1'
  if !$subscriber->create_selftest_waits;
$pair->exec_both(
	'CREATE TABLE items (id serial PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY)');
$subscriber->create_extension;
$pair->subscribe('tap', publication => 'FOR TABLE items');
$subscriber->wait_for_pool('tap');
$publisher->sql('INSERT INTO items DEFAULT VALUES');
$publisher->wait_applied;

# Return how often the apply worker has waited, and all writers.
sub waits
{
	my %waits = $subscriber->waits;
	my $apply_waits = delete $waits{64};
	return ($apply_waits, sum0(values %waits));
}

# Wait until that many seconds have passed.
sub pass_time
{
	my ($seconds) = @_;
	my $now = $subscriber->sql('SELECT clock_timestamp()');
	$subscriber->wait_until(
		"clock_timestamp() > '$now'::timestamptz + interval '$seconds s'",
		'time stands still');
	return;
}

# A busy machine makes the apply worker sleep in the middle of a transaction as well, and
# may delay a transaction until a sleep ends.
{
	my ($waits, $timeouts);
	for (1 .. 5)
	{
		my ($before) = waits();
		my (undef, $timeouts_before) = $subscriber->own_sleeps;
		for (1 .. 10)
		{
			$publisher->sql('INSERT INTO items DEFAULT VALUES');
			pass_time(0.15);
		}
		$waits = ((waits())[0] - $before) / 10;
		$timeouts = ($subscriber->own_sleeps)[1] - $timeouts_before;
		note(
			"apply worker, 10 commits: $waits waits for each, $timeouts timeouts"
		);
		last if $waits < 3.5 && $timeouts <= 4;
	}
	cmp_ok($waits, '<', 3.5,
		'the apply worker waits for the next one, and for a flush');
	cmp_ok($timeouts, '<=', 4, '... but not until a time');
}

{
	my (undef, $before) = waits();
	$publisher->pgbench(
		'--no-vacuum --client=1 --transactions=300 --rate=300',
		0,
		[qr/actually processed: 300/],
		[qr/^$/],
		'commits',
		{ insert => 'INSERT INTO items DEFAULT VALUES' });
	$publisher->wait_applied;
	my $waits = ((waits())[1] - $before) / 300;
	note("waits for a commit: $waits of writers");
	cmp_ok($waits, '<', 0.7, 'fast ones share flushes');
}

# A worker that synchronizes a table wakes the apply worker, maybe in the middle of the apply
# loop's housekeeping.  A sleep that is not the apply loop's would not end then.
{
	my $copy = $subscriber->hold('INSERT INTO late VALUES (1)');
	my $apply_pid = $subscriber->apply_pid('tap');
	$publisher->sql('INSERT INTO late VALUES (1)');
	$pair->begin_copy('late');
	my $long_sleeps;
	for my $n (1 .. 3)
	{
		$publisher->sql('INSERT INTO items DEFAULT VALUES');
		$publisher->wait_applied;
		$subscriber->wait_until(
			"wait_event = 'LogicalApplyMain' FROM pg_stat_activity WHERE pid = $apply_pid",
			'the apply loop is not at rest');

		# The first one may have been received before the state of the table is read.
		$long_sleeps //= ($subscriber->own_sleeps)[0];
	}
	is(($subscriber->own_sleeps)[0], $long_sleeps,
		'the apply loop sleeps by itself while a table is being synchronized'
	);
	$copy->query_safe('ROLLBACK');
	$copy->quit;
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
}

# The apply loop asks a publisher that is silent whether it lives, before it gives up.
$subscriber->reload_with('wal_receiver_timeout = 2s');
my $apply_pid = $subscriber->apply_pid('tap');
$publisher->sql('INSERT INTO items DEFAULT VALUES');
pass_time(6);
is($subscriber->apply_pid('tap'),
	$apply_pid, 'a short timeout does not expire without traffic');

$pair->tables_equal('after slow traffic', qw(items late));
finish($publisher, $subscriber);
done_testing();
