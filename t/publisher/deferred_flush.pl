# Promise: a publisher without the library does not request flushes.  If it was not
# configured for sessions that wait for them when the stream began, flushes are
# deferred for some milliseconds.
#
# No timer helps: the walwriter is stopped, status messages and requests for replies come
# every hour, or never.  In most parts, deferred flushes are deferred for ever
# (src/test/selftest_wakes.c).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => <<~'CONF',
	autovacuum = off
	checkpoint_timeout = 1h
	wal_sender_timeout = 0
	CONF
	subscriber_conf => without_flushes());

plan skip_all => 'the library was made without SELFTEST=1'
  if !$subscriber->create_selftest_waits;
$pair->exec_both('CREATE TABLE history (id serial PRIMARY KEY, mode text)');
$subscriber->create_extension;
$pair->subscribe('tap');
$subscriber->wait_for_pool('tap');

my $walwriter = $subscriber->stop_walwriter;

# Commits of one session, one after the other.  Return the position after the last one.
sub commit
{
	my ($commits, $mode) = @_;
	my $is_late;
	$publisher->psql(
		'postgres',
		join(';',
			"SET synchronous_commit = $mode",
			("INSERT INTO history (mode) VALUES ('$mode')") x $commits),
		on_error_die => 1,
		timeout => $PostgreSQL::Test::Utils::timeout_default,
		timed_out => \$is_late);
	die 'a session does not get its flushes in time' if $is_late;
	return $publisher->sql('SELECT pg_current_wal_lsn()');
}

# The apply worker looks several times whether a flush is due.
sub look_for_flushes
{
	my $waits =
	  q(substring(selftest_waits(oid) FROM '\m64: (\d+)')::int FROM pg_subscription WHERE subname = 'tap');
	my $seen = $subscriber->sql("SELECT $waits");
	$subscriber->wait_until("$seen + 5 < $waits",
		'the apply worker does not look for flushes');
	return;
}

# Nothing is flushed for commits that no session waits for, or for another reason: no
# segment of WAL ends, and no page is evicted.
sub flushes_are_deferred
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->sql('SELECT pg_switch_wal()');
	my $lsn = $subscriber->sql('SELECT pg_current_wal_flush_lsn()');
	commit(20, 'remote_apply');
	look_for_flushes();
	return is($subscriber->sql('SELECT pg_current_wal_flush_lsn()'), $lsn,
		$name);
}

### a publisher on which sessions do not wait by default when the stream begins

$subscriber->reload_with('parallel_apply.selftest_defer_flushes = on');
$subscriber->connect_again('tap');
$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$publisher->wait_for_sync_state('tap', 'sync');
flushes_are_deferred('commits that no session waits for are not flushed');
$subscriber->reload_with('parallel_apply.selftest_defer_flushes = off');
$publisher->is_flushed('but they are after some time',
	commit(1, 'remote_apply'));

# Each would wait for the next status message of the subscriber otherwise.  Each session
# has its own limit of time.
commit(30, 'on') for 1 .. 10;
pass('a session that waits for its flushes gets them soon');

### the configuration of the publisher

$subscriber->reload_with('parallel_apply.selftest_defer_flushes = on');
$subscriber->connect_again('tap');
$publisher->wait_for_sync_state('tap', 'sync');
$publisher->is_flushed(
	'where sessions wait for flushes by default, each is at once',
	commit(20, 'remote_apply'));
$publisher->reload_with('synchronous_commit = remote_apply');
$subscriber->connect_again('tap');
$publisher->wait_for_sync_state('tap', 'sync');
flushes_are_deferred('but not if they wait for another event');

kill 'CONT', $walwriter;
$subscriber->reload_with('parallel_apply.selftest_defer_flushes = off');
$publisher->reload_with(q(synchronous_standby_names = ''));
$publisher->wait_applied;
$pair->tables_equal('at the end', 'history');
finish($publisher, $subscriber);
done_testing();
