# Promise: if the subscriber crashes and its synchronous standby takes over, the
# subscription continues there, with every transaction exactly once.  Everything
# that was reported to the publisher as flushed is on the standby, and what the
# standby does not have is sent again.
#
# The standby's WAL receiver is stopped, so that transactions are committed, visible
# and flushed on the subscriber, but not on the standby, when the apply worker is
# terminated or the postmaster killed.  Locked rows of gate block them until it is
# stopped, and block younger ones for longer.  A transaction that is applied twice
# shows in history, which has no key.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		wal_level = replica
		max_wal_senders = 4
		parallel_apply.max_batch_transactions = 1));
my @tables = qw(gate history balance);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE history (n int);
	CREATE TABLE balance (id int PRIMARY KEY, n int);));
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO balance SELECT i, 0 FROM generate_series(1, 10) i;));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'synchronous_commit = on');

$subscriber->backup('backup');
my $standby = PapplyNode->new('standby');
$standby->init_from_backup($subscriber, 'backup', has_streaming => 1);
$standby->start;
$subscriber->append_conf('postgresql.conf',
	q(synchronous_standby_names = 'standby'));
$subscriber->reload;
$subscriber->poll_query_until('postgres',
	q(SELECT sync_state = 'sync' FROM pg_stat_replication))
  or die 'the standby is not synchronous';

my $n = 0;

sub make_history
{
	my ($count) = @_;
	$publisher->sql(
		join '',
		map {
			"BEGIN; INSERT INTO history VALUES ($_);
			UPDATE balance SET n = n + $_ WHERE id = $_ % 10 + 1; COMMIT;\n"
		} $n + 1 .. $n + $count);
	$n += $count;
	return;
}

sub rows_of
{
	my ($node) = @_;
	return $node->sql('SELECT count(*) FROM history');
}

make_history(99);
my $lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
make_history(1);
$publisher->wait_applied;
is(rows_of($standby), 100, 'confirmed transactions are on the standby');
is($standby->sql("SELECT parallel_apply.wait_for_lsn('tap', '$lsn', '0')"),
	't', 'which knows how far it is');
is( $standby->sql(
		'SELECT state, reason, lag FROM parallel_apply.subscriptions'),
	'standby|the server is a standby: its primary applies the subscription|',
	'and that nothing is to be applied there');
is($standby->sql('SELECT topic, level FROM parallel_apply.advice()'),
	'state|info', 'which needs no advice');
my (undef, undef, $notice) = $standby->psql('postgres',
	q(SELECT parallel_apply.wait_for_lsn('tap', 'FFFFFFFF/0', '5 s')));
like(
	$notice,
	qr/^DETAIL: +A standby knows of no position after the last transaction that it has replayed\.$/m,
	'a wait for a later position says that it may not end');

# All of the following is in the queue when the standby stops receiving.
my @gates =
  map { $subscriber->hold("SELECT FROM gate WHERE id = $_ FOR UPDATE") } 1, 2;
my @ends;
for my $gate (1, 2)
{
	$publisher->sql("UPDATE gate SET n = n + 1 WHERE id = $gate");
	push @ends, $publisher->sql('SELECT pg_current_wal_insert_lsn()');
	make_history(100);
}
$lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
my $receiver = $standby->sql('SELECT pid FROM pg_stat_wal_receiver');

sub apply_waits_for_standby
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = "
			  . $subscriber->apply_pid('tap')),
		$name);
}

# Stop the standby, and let the oldest transactions that wait for a row continue.
# Return the end of the first of them, which is not confirmed.
sub commit_without_standby
{
	my ($rows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->poll_query_until('postgres',
		"SELECT received_lsn >= '$lsn' FROM pg_stat_subscription WHERE subname = 'tap'"
	) or die 'not all is received';
	$subscriber->wait_for_state('waiting for lock');
	$standby->stop_waiting($receiver, 'WalReceiverMain');
	my $end = shift @ends;
	my $gate = shift @gates;
	$gate->query_safe('ROLLBACK');
	$gate->quit;
	ok( $subscriber->poll_query_until(
			'postgres', "SELECT count(*) = $rows FROM history"),
		'transactions are visible on the subscriber');
	apply_waits_for_standby('the apply worker waits for the standby');
	$publisher->is_not_confirmed($end, 'and has not confirmed them');
	return $end;
}

# The origin, where another apply worker begins, is ahead of the standby.
my $first = commit_without_standby(200);
$subscriber->wait_for_state('waiting for lock');
$subscriber->wait_for_state('waiting for prior commit');
$subscriber->restart_apply('tap');
apply_waits_for_standby('another apply worker waits for it, too');
$publisher->is_not_confirmed($first, 'and does not confirm them');
is(rows_of($standby), 100, 'the standby has none of them');
my $end =
  $subscriber->sql(
	'SELECT max(remote_lsn) FROM pg_replication_origin_status');
kill 'CONT', $receiver;
ok( $publisher->poll_query_until(
		'postgres',
		"SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'tap'"
	),
	'until it has them');
ok( $standby->poll_query_until(
		'postgres', 'SELECT count(*) = 200 FROM history'),
	'which is so');

# The end of the postmaster ends the wait for the standby.
$first = commit_without_standby(300);
$subscriber->kill9;
$publisher->poll_query_until('postgres',
	q(SELECT count(*) = 0 FROM pg_stat_replication WHERE application_name = 'tap')
) or die 'the apply worker does not end';
$publisher->is_not_confirmed($first,
	'an apply worker without a server does not confirm them');

# So that it does not read what is still on its way.
kill $_, $receiver for 'TERM', 'CONT';
$standby->poll_query_until('postgres',
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $receiver")
  or die 'the WAL receiver does not end';
is(rows_of($standby), 200, 'the standby has none of them');
$standby->append_conf('postgresql.conf', q(synchronous_standby_names = ''));
$standby->promote;
$standby->wait_for_pool('tap');
make_history(100);
$publisher->wait_applied;
PapplyPair->new($publisher, $standby)
  ->rows_equal($_, "$_ is equal on the new server")
  for @tables;
is( $standby->sql('SELECT count(*), count(DISTINCT n), max(n) FROM history'),
	"$n|$n|$n", 'each transaction was applied once');
$standby->counter_becomes('transactions', '>= 200', 'by its writers');

# The same once more, by a crash of the new server
make_history(50);
$standby->stop('immediate');
make_history(50);
$standby->start;
$publisher->wait_applied;
PapplyPair->new($publisher, $standby)
  ->rows_equal($_, "$_ is equal after a crash of the new server")
  for @tables;

$publisher->log_is_clean(
	qr/FATAL|could not receive|replication slot "tap" is active/);
$standby->stop;
finish($publisher);
done_testing();
