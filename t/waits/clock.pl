# Promise: if the subscriber's clock is set, by an hour forward and back, delayed
# actions happen in time, neither at once nor an hour later.
#
# The subscriber runs with a library that shifts its time of day (shifted_clock.c).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $HOUR = 3600;

plan skip_all => 'LD_PRELOAD is as on Linux' if $^O ne 'linux';
my ($compiler) = split ' ', `pg_config --cc`;
my $directory = PostgreSQL::Test::Utils::tempdir();
my $library = "$directory/shifted_clock.so";
system($compiler // 'cc',
	'-shared', '-fPIC', '-O2', '-o', $library,
	"$FindBin::RealBin/../../tools/shifted_clock.c") == 0
  or plan skip_all => 'there is no compiler';

sub set_clock
{
	my ($seconds) = @_;
	open my $out, '+<', "$directory/shift" or die "$directory/shift: $!";
	syswrite $out, pack 'q', $seconds;
	close $out;
	return;
}

append_to_file("$directory/shift", pack 'q', 0);

# Delayed actions of PostgreSQL's own apply are not part of the test.
my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		wal_receiver_timeout = 0
		parallel_apply.writers_per_subscription = 4
		parallel_apply.leader_participation = on
		parallel_apply.selftest_fast = on
		parallel_apply.writer_idle_timeout = 100ms));
$subscriber->stop;
{
	local $ENV{SHIFTED_CLOCK} = "$directory/shift";
	local $ENV{LD_PRELOAD} = join ':', $library, $ENV{LD_PRELOAD} // ();
	$subscriber->start;
}

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE gate (id int PRIMARY KEY, n int);));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$subscriber->create_extension;
$pair->subscribe('tap');
$subscriber->wait_for_pool('tap', 4);

sub insert
{
	$publisher->sql(
		'INSERT INTO items SELECT coalesce(max(id), 0) + 1, 0 FROM items');
	return;
}

# A session that waits for a position that the subscriber does not reach, with this
# timeout in seconds.  It waits, or has already returned.
my $from_waiting = q(FROM pg_stat_activity WHERE pid <> pg_backend_pid()
	AND query LIKE '%wait_for_lsn%');

sub begin_to_wait
{
	my ($seconds) = @_;
	$subscriber->wait_until("count(*) = 0 $from_waiting",
		'an earlier session does not end');
	my $lsn =
	  $publisher->sql(q(SELECT pg_current_wal_insert_lsn() + 16777216));
	my $session = $subscriber->background_psql('postgres');
	$session->query_until(qr/waiting/,
		"\\echo waiting\nSELECT 'returned ' || parallel_apply.wait_for_lsn('tap', '$lsn', '$seconds s');\n"
	);
	$subscriber->wait_until(
		"count(*) = 1 $from_waiting AND (wait_event_type = 'Extension' OR state = 'idle')",
		'the session does not wait');
	return $session;
}

# Return a session that was waiting when the clock was set, and has a short timeout.  If
# the machine stalls for as long as the timeout, there is another attempt with a longer one.
sub wait_while_clock_is_set
{
	my ($before, $after) = @_;
	for my $seconds (1, 5, 25)
	{
		set_clock($before);
		my $session = begin_to_wait($seconds);
		set_clock($after);
		return $session
		  if $subscriber->sql("SELECT state $from_waiting") eq 'active';
		$session->quit;
	}
	die 'no session waits for long enough';
}

sub returns
{
	my ($session, $answer, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $output = $session->query_until(qr/returned \w+/, '');
	$session->quit;
	return like($output, qr/returned $answer/, $name);
}

# Set the clock, and pause the subscription, with a transaction that waits, for longer
# than the publisher waits for a reply.  Does the same apply worker continue?  If the
# machine stalls for as long as this timeout, there is another attempt with a longer one.
sub is_patient
{
	my ($before, $after, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is_patient;
	for my $seconds (1, 5, 25)
	{
		set_clock($before);
		set_timeout($seconds);

		# An apply worker asks for the publisher's timeout when it connects.
		my $offset = -s $publisher->logfile;
		$subscriber->connect_again('tap');
		my $apply_pid = $subscriber->apply_pid('tap');
		set_clock($after);
		my $log_end = -s $subscriber->logfile;
		$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
		$subscriber->wait_for_log(qr/"tap" has been paused/, $log_end);
		insert();
		my $end = time + 2.5 * $seconds;
		$publisher->poll_query_until('postgres',
			"SELECT clock_timestamp() > to_timestamp($end)")
		  or die 'time does not pass';
		$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
		$publisher->wait_applied;
		$is_patient = $subscriber->apply_pid('tap') eq $apply_pid
		  && slurp_file($publisher->logfile, $offset) !~
		  /due to replication timeout/;
		last if $is_patient;
	}
	set_timeout(60);
	return ok($is_patient, $name);
}

sub set_timeout
{
	my ($seconds) = @_;
	$publisher->reload_with("wal_sender_timeout = '${seconds}s'");
	$publisher->wait_until(
		"setting = '${seconds}000' FROM pg_settings WHERE name = 'wal_sender_timeout'",
		'settings are not read');
	return;
}

# Does the apply worker itself apply one of several transactions that come one at
# a time?  It does so on a slow machine, too (selftest_fast).
sub applies_leader_transaction
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 30)
	{
		return pass($name)
		  if $subscriber->leader_applies(
			sub { insert(); $publisher->wait_applied; });
	}
	return fail($name);
}

### forward

my $session = begin_to_wait(1800);
is_patient(0, $HOUR,
	'the publisher gets its answers after an hour that was none');
cmp_ok(
	$subscriber->sql('SELECT extract(epoch FROM clock_timestamp())'),
	'>',
	time + $HOUR / 2,
	'the clock was set forward');
applies_leader_transaction('a transaction is as young as its publisher says');
for (1 .. 2)
{
	insert();
	$publisher->sql('SELECT pg_switch_wal()');
}
insert();
returns($session, 'true',
	'and a session that waits for a position does not time out');
$pair->tables_equal('after the clock was set forward', 'items', 'gate');

### back

$session = wait_while_clock_is_set($HOUR, 0);
returns($session, 'false',
	'a session that waits for a position while the clock is set back does not wait longer'
);
is_patient($HOUR, 0, 'the publisher gets its answers');
$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 1);
pass('writers without work leave');
$pair->tables_equal('after the clock was set back', 'items', 'gate');

finish($publisher, $subscriber,
	qr/ERROR: +could not (receive data from|send data to) WAL stream/);
done_testing();
