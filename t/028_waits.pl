# Promise: a waiting process is woken by the event that it waits for, not by the
# next timeout, and uses no processor until then.
#
# A lost wakeup costs only time, since every waiting process checks its condition
# now and then; a process that polls all the time costs only processor time.
# Therefore waits of many transactions are measured: the median is a fraction of the
# shortest timeout, 30 ms, even if the machine is busy now and then.  Processes that
# are blocked for a second, by a lock of a session on the subscriber or because they
# are idle, must use hardly any processor time.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use POSIX ();
use Time::HiRes qw(time);

my ($publisher, $subscriber) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		wal_sender_timeout = 0),
	subscriber_conf => q(
		parallel_apply.queue_size = 256kB
		parallel_apply.max_batch_transactions = 1
		parallel_apply.log_min_duration = 0
		wal_receiver_timeout = 0
		wal_receiver_status_interval = 1h
		wal_writer_delay = 10s));
my @tables = qw(gate hot rows small);

exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE rows (id serial PRIMARY KEY, t text);
	CREATE TABLE small (id serial PRIMARY KEY);));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'streaming = on');
on_publisher('INSERT INTO gate VALUES (1, 0); INSERT INTO hot VALUES (1, 0)');
wait_applied($publisher, $subscriber, 'tap');

### wakeups

# The median of some times, in milliseconds
use constant SOON_MS => 15;

sub median
{
	my (@values) = sort { $a <=> $b } @_;
	return $values[ @values / 2 ];
}

sub is_soon
{
	my ($name, @ms) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	note 'median of ', scalar @ms, ': ', median(@ms) // 'none', ' ms';
	cmp_ok(scalar @ms, '>=', 10, "$name: there are waits enough");
	cmp_ok(median(@ms) // SOON_MS, '<', SOON_MS, "$name: they end at once");
	return;
}

# Return how long transactions waited for this state.  Many of them are queued when
# the first one may continue.
sub waits_of
{
	my ($what, @transactions) = @_;
	my $offset = -s $subscriber->logfile;
	my $gate = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
	on_publisher(join '',
		map { "BEGIN; $_; COMMIT;\n" } 'UPDATE gate SET n = n + 1',
		@transactions);
	wait_for_state($subscriber, 'waiting for lock');
	$gate->query_safe('COMMIT');
	$gate->quit;
	wait_applied($publisher, $subscriber, 'tap');
	my $log = slurp_file($subscriber->logfile, $offset);
	return grep { $_ > 0 } $log =~ /(\d+\.\d+) ms for $what/g;
}

sub insert_rows
{
	my ($count) = @_;
	return "INSERT INTO rows (t) SELECT 'x' FROM generate_series(1, $count)";
}

is_soon(
	'turns',
	waits_of(
		'prior commits',
		map { $_ % 2 ? insert_rows(100) : 'INSERT INTO small DEFAULT VALUES' }
		  1 .. 400));

# A transaction of many times the size of the queue: its writer waits for data each
# time that the apply worker waits for space, which would check again after 100 ms.
reload_with($subscriber, 'parallel_apply.streaming_apply = file');
on_subscriber(q(SELECT parallel_apply.reset_stats('tap')));
on_publisher(insert_rows(50_000));
wait_applied($publisher, $subscriber, 'tap');
my ($times, $wait_ms) = split /\|/,
  on_subscriber(
	'SELECT data_waits, data_wait_time FROM parallel_apply.subscription_stats'
  );
note "$wait_ms ms in $times waits";
cmp_ok(
	$wait_ms, '<',
	50 * ($times + 1),
	'the apply worker is woken when there is space in the queue');
reload_with($subscriber, 'parallel_apply.streaming_apply = writer');

# Commits that the publisher waits for
sub commit_times
{
	my ($mode, $sql) = @_;
	my $session = $publisher->background_psql('postgres');
	$session->query_safe("SET synchronous_commit = $mode");
	my @ms = map {
		my $begin = time;
		$session->query_safe($sql);
		1000 * (time - $begin);
	} 1 .. 40;
	$session->quit;
	return @ms;
}

reload_with($publisher, q(synchronous_standby_names = 'tap'));
connect_again($subscriber, 'tap');
wait_for_sync_state($publisher, 'tap', 'sync');
for my $mode (qw(on remote_apply))
{
	is_soon("commits with $mode",
		commit_times($mode, 'INSERT INTO small DEFAULT VALUES'));
}
reload_with($publisher, q(synchronous_standby_names = ''));

### processor time

# Seconds of processor time that a process has used
sub processor_time
{
	my ($pid) = @_;
	my ($times) = slurp_file("/proc/$pid/stat") =~ /^.*\) (.*)/;
	my ($user, $system) = (split / /, $times)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# The apply worker and writers need no more than a fifth of a processor each.
sub no_process_is_busy
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip 'no /proc', 1 if !-e "/proc/$$/stat";
		my @pids =
		  (apply_pid($subscriber, 'tap'), writer_pids($subscriber, 'tap'));
		my $begin = time;
		my %used = map { $_ => processor_time($_) } @pids;
		my $now = on_publisher('SELECT clock_timestamp()');
		$publisher->poll_query_until('postgres',
			"SELECT clock_timestamp() > timestamptz '$now' + interval '1 s'")
		  or die 'the time does not pass';
		$used{$_} = processor_time($_) - $used{$_} for @pids;
		my $limit = 0.2 * (time - $begin);
		is( join(', ',
				map { "$_: $used{$_} s" } grep { $used{$_} > $limit } @pids),
			'',
			"no process is busy $name");
	}
	return;
}

tables_equal('after waits', @tables);
no_process_is_busy('without work');

my $lock = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
on_publisher(
	q(BEGIN; UPDATE gate SET n = n + 1; UPDATE hot SET n = n + 1; COMMIT;
	UPDATE hot SET n = n + 1; INSERT INTO small DEFAULT VALUES;));
states_become(
	$subscriber,
	'waiting for lock, waiting for dependency, waiting for prior commit',
	'transactions wait');
no_process_is_busy('behind a lock');
on_publisher(insert_rows(20000));
no_process_is_busy('behind a queue that is full');
on_subscriber(q(SELECT parallel_apply.pause('tap')));
$lock->query_safe('COMMIT');
$lock->quit;
on_publisher('INSERT INTO small DEFAULT VALUES');
$subscriber->poll_query_until('postgres',
	q(SELECT state = 'paused' FROM parallel_apply.subscriptions))
  or die 'it is not paused';
no_process_is_busy('in a pause');
on_subscriber(q(SELECT parallel_apply.resume('tap')));
tables_equal('after a pause', @tables);

my $streamed = begin_streamed(item_rows(2000));
wait_for_early(1500);
wait_for_state($subscriber, 'waiting for data');
no_process_is_busy('with a stream that does not continue');
$streamed->query_safe('COMMIT');
$streamed->quit;
tables_equal('after a stream', @tables, 'items');

finish($publisher, $subscriber);
done_testing();
