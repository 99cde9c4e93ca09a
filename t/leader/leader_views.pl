# Promise: a transaction that the apply worker itself applies is shown like those of
# writers, with the lock that it waits for and the session that holds it.  advice()
# names them, with a pool and without.
#
# A row lock of a session on the subscriber blocks the transaction.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(
	subscriber_conf => "parallel_apply.writers_per_subscription = 2\n");
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	INSERT INTO items SELECT generate_series(1, 10), 0));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'copy_data = false');
$subscriber->wait_for_pool('tap', 2);

# Assert what is shown while the apply worker waits for that session.
sub leader_is_shown
{
	my ($session, $xid, $how) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $blocker = $session->query_safe('SELECT pg_backend_pid()');
	$subscriber->wait_until(
		q(count(*) = 1 FROM parallel_apply.writers WHERE writer = 0 AND state = 'waiting for lock'),
		'the apply worker does not wait for the lock');
	is( $subscriber->sql(
			q(SELECT subname, pid, remote_xid, changes_done, blocked_by, remote_lsn > '0/0',
				coalesce(xact_start BETWEEN now() - interval '10 min' AND clock_timestamp(), true)
			FROM parallel_apply.writers WHERE writer = 0)),
		join('|',
			'tap', $subscriber->apply_pid('tap'),
			$xid, 1, "{$blocker}", 't', 't'),
		"$how: the transaction of the apply worker, and what it waits for");
	like(
		$subscriber->sql(
			q(SELECT advice FROM parallel_apply.advice('tap') WHERE topic = 'lock')
		),
		qr/^apply waits for a lock of a local session on items: $blocker$/,
		"$how: the session is named");
	$subscriber->wait_until(
		"lag > interval '5.1 s' FROM parallel_apply.subscriptions",
		'it does not get behind');
	is( $subscriber->sql(
			q(SELECT count(*) FROM parallel_apply.advice('tap') WHERE topic = 'publisher')
		),
		'0',
		"$how: the publisher is not blamed");
	return;
}

sub update
{
	my ($id) = @_;
	return $publisher->sql(
		"BEGIN; UPDATE items SET v = v + 1 WHERE id = $id; SELECT pg_current_xact_id()::xid; COMMIT"
	);
}

# Assert that the one wait of the apply worker since the statistics were reset is
# counted: for each second of the clock that began during it, with its time.
sub wait_is_counted
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			q(SELECT lock_waits >= 2 AND lock_wait_time > 2000 AND abs(lock_wait_time - 1000 * lock_waits) < 1000
			FROM parallel_apply.subscription_stats)),
		$name);
}

# The apply worker waits.  Assert that this is counted while it lasts, and only once.
sub wait_counts_meanwhile
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql('SELECT parallel_apply.reset_stats()');
	$subscriber->wait_until(
		'lock_waits >= 2 AND lock_wait_time > 2000 FROM parallel_apply.subscription_stats',
		"not so: $name");
	return is(
		$subscriber->sql(
			q(SELECT lock_wait_time < 1000 * extract(epoch FROM clock_timestamp() - stats_reset)
			FROM parallel_apply.subscription_stats)),
		't',
		$name);
}

# The apply worker waits.  Let it wait for some seconds in which no one looks.
sub let_it_wait_unseen
{
	$subscriber->sql('SELECT parallel_apply.reset_stats()');
	my $reset_at = $subscriber->sql('SELECT clock_timestamp()');
	$subscriber->wait_until(
		"clock_timestamp() > '$reset_at'::timestamptz + interval '3 s'",
		'the wait is not long');
	return;
}

# Have both attempts of a writer to apply the transaction fail.
sub writer_gives_up
{
	my $before = $subscriber->counter('retries + fallbacks');
	for my $attempt (1, 2)
	{
		$subscriber->wait_for_state('waiting for lock');
		$subscriber->sql(
			q(SELECT pg_cancel_backend(pid) FROM parallel_apply.writers
			WHERE state = 'waiting for lock' AND writer > 0));
		$subscriber->wait_until(
			"sum(retries) + sum(fallbacks) = $before + $attempt FROM parallel_apply.writers",
			'the attempt does not end');
	}
	return;
}

# Some that the apply worker has chosen
$subscriber->reload_with(
	'parallel_apply.leader_participation = on',
	'parallel_apply.selftest_fast = on');
while (
	$subscriber->sql(
		'SELECT leader_transactions FROM parallel_apply.subscription_stats')
	< 2)
{
	update(4);
	$publisher->wait_applied;
}
$subscriber->reload_with(
	'parallel_apply.leader_participation = off',
	'parallel_apply.selftest_fast = off');

# A transaction that its writer has given up
my $session = $subscriber->hold('SELECT FROM items WHERE id = 1 FOR UPDATE');
my $xid = update(1);
writer_gives_up();
leader_is_shown($session, $xid, 'after two attempts of a writer');
$subscriber->reload_with('parallel_apply.leader_participation = on');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT advice ~ 'turn off "parallel_apply.leader_participation"$'
		FROM parallel_apply.advice('tap') WHERE topic = 'lock')),
	'the setting that lets it wait for such locks is named, if it is on and often does'
);
$subscriber->reload_with('parallel_apply.leader_participation = off');
is( $subscriber->sql(
		'SELECT writers_running FROM parallel_apply.subscriptions'),
	2,
	'it does not count as a writer');
is( $subscriber->sql(
		'SELECT fallback_failure FROM parallel_apply.subscription_stats'),
	0,
	'the fallback does not count yet');
wait_counts_meanwhile('its wait for the lock is counted while it lasts');
$session->query_safe('COMMIT');
$publisher->wait_applied;
is( $subscriber->sql(
		'SELECT fallback_failure FROM parallel_apply.subscription_stats'),
	1,
	'but when it is committed');
wait_is_counted('its wait for the lock is counted, like one of a writer');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT updates FROM parallel_apply.tables WHERE relname = 'items'),
		1),
	'its rows are counted as those of writers are');
is( $subscriber->sql(
		'SELECT count(*) FROM parallel_apply.writers WHERE writer = 0'),
	0,
	'then it is shown no more');

# A wait that ends with the process, and at which no one has looked
$session->query_safe('BEGIN; SELECT FROM items WHERE id = 3 FOR UPDATE');
update(3);
writer_gives_up();
$subscriber->wait_until(
	q(count(*) = 1 FROM parallel_apply.writers WHERE writer = 0 AND state = 'waiting for lock'),
	'the apply worker does not wait for the lock');
$subscriber->reload_with('parallel_apply.leader_participation = on');
$subscriber->wait_until(
	"current_setting('parallel_apply.leader_participation') = 'on'",
	'the setting is not changed');
is( $subscriber->sql(
		q(SELECT advice LIKE '%leader_participation%' FROM parallel_apply.advice('tap') WHERE topic = 'lock')
	),
	'f',
	'it is not named where most of these transactions are left to it');
$subscriber->reload_with('parallel_apply.leader_participation = off');
let_it_wait_unseen();
$subscriber->restart_apply('tap');
is( $subscriber->sql(
		'SELECT lock_waits >= 2 AND lock_wait_time > 2000 FROM parallel_apply.subscription_stats'
	),
	't',
	'a wait that ended with the apply worker is counted, too');
$session->query_safe('COMMIT');
$publisher->wait_applied;
$pair->rows_equal('items');

# The same without writers
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
$session->query_safe('BEGIN; SELECT FROM items WHERE id = 2 FOR UPDATE');
leader_is_shown($session, update(2), 'without writers');
wait_counts_meanwhile('its wait is counted without writers, too');
let_it_wait_unseen();
$session->release;
$publisher->wait_applied;
wait_is_counted('and when it has ended');
$pair->rows_equal('items');
finish($publisher, $subscriber,
	qr/terminating .* due to administrator command/);
done_testing();
