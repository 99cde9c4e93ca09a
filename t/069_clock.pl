# Promise: if the subscriber's clock is set, by an hour forward and back, delayed
# actions happen in time, neither at once nor an hour later.
#
# The subscriber runs with a library that shifts its time of day (shifted_clock.c).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
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
	"$FindBin::RealBin/../tools/shifted_clock.c") == 0
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
	publisher_conf => 'wal_sender_timeout = 1s',
	subscriber_conf => q(
		wal_receiver_timeout = 0
		parallel_apply.writers_per_subscription = 4
		parallel_apply.leader_participation = on
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
# timeout
sub begin_to_wait
{
	my ($timeout) = @_;
	my $lsn =
	  $publisher->sql(q(SELECT pg_current_wal_insert_lsn() + 16777216));
	my $session = $subscriber->background_psql('postgres');
	$session->query_until(qr/waiting/,
		"\\echo waiting\nSELECT 'returned ' || parallel_apply.wait_for_lsn('tap', '$lsn', '$timeout');\n"
	);
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid()
		AND query LIKE '%wait_for_lsn%' AND wait_event_type = 'Extension'),
		'the session does not wait');
	return $session;
}

sub returns
{
	my ($session, $answer, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $output = $session->query_until(qr/returned \w+/, '');
	$session->quit;
	return like($output, qr/returned $answer/, $name);
}

# Pause the subscription, with a transaction that waits, for longer than the
# publisher waits for a reply.  A machine that stalls does not reply, so there are
# several attempts.
sub is_patient
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is_patient;
	for (1 .. 3)
	{
		$subscriber->wait_for_pool('tap');
		my $offset = -s $publisher->logfile;
		$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
		insert();
		my $end = time + 2.5;
		$publisher->poll_query_until('postgres',
			"SELECT clock_timestamp() > to_timestamp($end)")
		  or die 'time does not pass';
		$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
		$publisher->wait_applied;
		$is_patient = slurp_file($publisher->logfile, $offset) !~
		  /due to replication timeout/;
		last if $is_patient;
	}
	return ok($is_patient, $name);
}

# Does the apply worker itself apply one of several transactions that come one at
# a time?  It does not apply one that seems to be old.
sub applies_lone
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count =
	  'SELECT leader_transactions FROM parallel_apply.subscription_stats';
	my $before = $subscriber->sql($count);
	for (1 .. 30)
	{
		insert();
		$publisher->wait_applied;
		return pass($name) if $subscriber->sql($count) > $before;
	}
	return fail($name);
}

### forward

my $session = begin_to_wait('30 min');
set_clock($HOUR);
cmp_ok(
	$subscriber->sql('SELECT extract(epoch FROM clock_timestamp())'),
	'>',
	time + $HOUR / 2,
	'the clock was set forward');
applies_lone('a transaction is as young as its publisher says');
is_patient('the publisher gets its answers after an hour that was none');
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

$session = begin_to_wait('1s');
set_clock(0);
returns($session, 'false',
	'a session that waits for a position while the clock is set back does not wait longer'
);
is_patient('the publisher gets its answers');
$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 1);
pass('writers without work leave');
$pair->tables_equal('after the clock was set back', 'items', 'gate');

finish($publisher, $subscriber,
	qr/ERROR: +could not (receive data from|send data to) WAL stream/);
done_testing();
