# Promise: each synchronous mode waits for what it requires, for nothing more, and
# for no timer.
#
# remote_write requires that the commit is received; on, that it is flushed;
# remote_apply, that it is visible, and flushed as well if the subscription commits
# synchronously.  A table lock on the subscriber prevents visibility.  The lock
# under which WAL is flushed, held by a session there, prevents the flush and
# nothing else.  The process that would flush must not be the receiver, or one that
# is needed for applying.  Timers that could help are off, or as long as possible: a
# wait that relied on them would take minutes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "wal_sender_timeout = 0\n",
	subscriber_conf => <<~'CONF');
	fsync = on
	wal_writer_delay = 10s
	wal_receiver_status_interval = 1h
	wal_receiver_timeout = 0
	parallel_apply.writers_per_subscription = 2
	CONF

$pair->exec_both(
	q(CREATE TABLE history (id serial PRIMARY KEY, mode text);
	CREATE TABLE locked (id serial PRIMARY KEY, mode text);));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = off');
$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$publisher->wait_for_sync_state('tap', 'sync');

# Assert that commits of one client in that mode return in time.
sub commits_return
{
	my ($mode, $table, $commits, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $timed_out = 0;
	$publisher->psql(
		'postgres',
		"SET synchronous_commit = $mode;\n"
		  . "INSERT INTO $table (mode) VALUES ('$mode');\n" x $commits,
		on_error_die => 1,
		timeout => $PostgreSQL::Test::Utils::timeout_default,
		timed_out => \$timed_out);
	return ok(!$timed_out, $name);
}

# Assert that this many clients wait.  One that a walsender has woken may be about to wait
# again.
sub clients_are_waiting
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$publisher->poll_query_until(
			'postgres',
			"SELECT count(*) = $count FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"),
		$name);
}

# Clients that commit in these modes, and wait; one session for each
sub clients_wait
{
	my ($table, @modes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @clients = map { $publisher->background_psql('postgres') } @modes;
	for my $i (0 .. $#modes)
	{
		$clients[$i]->query_until(
			qr/started/, qq(SET synchronous_commit = $modes[$i];
			\\echo started
			INSERT INTO $table (mode) VALUES ('$modes[$i]');
			\\echo returned
			));
	}
	clients_are_waiting(scalar @modes, "waiting: @modes");
	return @clients;
}

sub clients_return
{
	my ($name, @clients) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->query_until(qr/returned/, '') for @clients;
	$_->quit for @clients;
	return clients_are_waiting(0, $name);
}

sub rows_visible
{
	my ($table, $rows, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($subscriber->sql("SELECT count(*) FROM $table"), $rows, $name);
}

### nothing is blocked

for my $setting (qw(on off))
{
	$subscriber->set_synchronous_commit($setting);
	$publisher->wait_for_sync_state('tap', 'sync');
	commits_return($_, 'history', 20,
		"subscription with synchronous_commit = $setting: commits with $_ return"
	) for qw(remote_write on remote_apply);
}
rows_visible('history', 120, 'all rows are visible then');

### nothing becomes visible

my $lock = $subscriber->hold('LOCK TABLE locked IN ACCESS EXCLUSIVE MODE');
my @clients = clients_wait('locked', 'on', 'remote_apply');
commits_return('remote_write', 'locked', 1,
	'receipt is enough for remote_write');
clients_are_waiting(2, 'and for no other session');
$lock->release;
clients_return('they return when it is applied', @clients);

### nothing is flushed

SKIP:
{
	my $release_flushes = $subscriber->hold_flushes;
	skip 'the library was made without SELFTEST=1', 12 if !$release_flushes;

	my $rows = 120;
	@clients = clients_wait('history', 'on');
	commits_return('remote_write', 'history', 5,
		'remote_write does not wait for a flush');
	commits_return('remote_apply', 'history', 5,
		'nor does remote_apply, if the subscription commits asynchronously');
	rows_visible('history', $rows + 11,
		'though the rows are visible, even those of a commit with on');
	clients_are_waiting(1, 'a commit with on still waits for it');
	$release_flushes->();
	clients_return('until that has happened', @clients);

	$subscriber->set_synchronous_commit('on');
	$publisher->wait_for_sync_state('tap', 'sync');
	$release_flushes = $subscriber->hold_flushes;
	@clients = clients_wait('history', 'on', 'remote_apply');
	commits_return('remote_write', 'history', 5,
		'a subscription that commits synchronously receives while it flushes'
	);
	clients_are_waiting(2, 'and the applied position is the flushed one');
	$release_flushes->();
	clients_return('both return after the flush', @clients);
	$subscriber->sql('DROP FUNCTION hold_flush');
}

$publisher->reload_with(q(synchronous_standby_names = ''));
$publisher->wait_applied;
$pair->rows_equal($_) for qw(history locked);
finish($publisher, $subscriber);
done_testing();
