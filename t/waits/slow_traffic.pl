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
use Time::HiRes qw(time);
use lib "$FindBin::RealBin/../lib";
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

# Repeat something until it has been true that often in a row.
sub comes_true
{
	my ($times, $what, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $count = 0;
	while ($count < $times && time < $end)
	{
		$count = $what->() ? $count + 1 : 0;
	}
	return is($count, $times, $name);
}

# A busy machine makes the apply worker sleep in the middle of a transaction as well, and
# may delay a transaction until a sleep ends.  So some transactions in a row must do
# without, not all of them.
comes_true(
	5,
	sub {
		my ($before) = waits();
		my (undef, $timeouts_before) = $subscriber->own_sleeps;
		$publisher->sql('INSERT INTO items DEFAULT VALUES');
		pass_time(0.3);
		my $waits = (waits())[0] - $before;
		my $timeouts = ($subscriber->own_sleeps)[1] - $timeouts_before;
		note("apply worker, a commit: $waits waits, $timeouts timeouts");
		return $waits <= 3 && $timeouts == 0;
	},
	'the apply worker waits for the next one, and for a flush, but not until a time'
);

# Their flushes are deferred until a time, which is some milliseconds, so that about six
# sleeps end by time while the apply loop does its housekeeping once, each 100 ms.  Without
# that, it is seldom more than one, but has been two.  On a busy machine, transactions may come
# slowly here, too.
my $attempt = 0;
comes_true(
	1,
	sub {
		my (undef, $before) = waits();
		my (undef, $timeouts_before) = $subscriber->own_sleeps;
		my $begin = time;
		$attempt++;
		$publisher->pgbench(
			'--no-vacuum --client=1 --transactions=150 --rate=300',
			0,
			[qr/actually processed: 150/],
			[qr/^$/],
			'commits',
			{ "insert$attempt" => 'INSERT INTO items DEFAULT VALUES' });
		$publisher->wait_applied;
		my $waits = ((waits())[1] - $before) / 150;
		my $timeouts = ($subscriber->own_sleeps)[1] - $timeouts_before;
		my $rounds = (time - $begin) / 0.1;
		note(
			"waits for a commit: $waits of writers; $timeouts timeouts, $rounds rounds"
		);
		return $waits < 0.7 && $timeouts > 3.5 * $rounds;
	},
	'fast ones share flushes');

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

# The apply loop asks a publisher that is silent whether it lives, before it gives up.  On a
# busy machine, the answer may be late.
$subscriber->reload_with('wal_receiver_timeout = 2s');
comes_true(
	1,
	sub {
		my $apply_pid = $subscriber->apply_pid('tap');
		$publisher->sql('INSERT INTO items DEFAULT VALUES');
		pass_time(6);
		return $subscriber->apply_pid('tap') == $apply_pid;
	},
	'a short timeout does not expire without traffic');
$subscriber->reload_with('wal_receiver_timeout = 0');

$pair->tables_equal('after slow traffic', qw(items late));
finish($publisher, $subscriber,
	qr/ERROR: +terminating logical replication worker due to timeout/);
done_testing();
