# Promise: a publisher that requests a reply gets it before wal_sender_timeout
# expires, whatever the subscriber is doing, and keeps its connection.
#
# The timeout is much shorter than the transactions, whose rows are slow on the
# subscriber: a trigger waits for each.  If the machine stalls for that long, there is
# another attempt, with times that are a multiple.  Nothing but the timeout determines
# when the subscriber replies (see selftest_wakes.c).  The publisher preloads the library,
# so that replies for which a session waits for a flush are deferred until the flush.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		wal_receiver_timeout = 10min
		wal_receiver_status_interval = 10min
		parallel_apply.selftest_silent = on
		parallel_apply.queue_size = 256MB
		parallel_apply.streaming_apply = file));
my $slow_rows = 2000;

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE slow (id serial PRIMARY KEY, t text);));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');

# Set the timeout in seconds.  A row takes as many milliseconds.
my $timeout = 0;

sub slow_function
{
	return
	  qq(CREATE OR REPLACE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS \$\$
	DECLARE began_at timestamptz := clock_timestamp();
	BEGIN
		WHILE clock_timestamp() < began_at + interval '$timeout ms' LOOP END LOOP;
		RETURN NEW;
	END \$\$;);
}

sub set_timeout
{
	my ($seconds) = @_;
	return if $timeout == $seconds;
	$timeout = $seconds;
	$publisher->reload_with("wal_sender_timeout = ${timeout}s");
	$subscriber->connect_again('tap', slow_function());
	return;
}

$subscriber->sql(
	slow_function() . q(
	CREATE TRIGGER be_slow BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION be_slow();
	ALTER TABLE slow ENABLE ALWAYS TRIGGER be_slow;)
);
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = off');

# A publisher without a reply ends its walsender.
sub is_patient
{
	my ($name, $sub) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is_patient;
	for my $seconds (1, 5, 25)
	{
		set_timeout($seconds);
		$subscriber->wait_for_pool('tap');
		my $offset = -s $publisher->logfile;
		$sub->();
		$publisher->wait_applied;
		$is_patient = slurp_file($publisher->logfile, $offset) !~
		  /due to replication timeout/;
		last if $is_patient;
	}
	return ok($is_patient, $name);
}

# More than a socket holds
sub insert_slow_rows
{
	$publisher->sql(
		"INSERT INTO slow (t) SELECT repeat('x', 8000) FROM generate_series(1, $slow_rows)"
	);
	return;
}

# PostgreSQL's own apply handles the next transaction then, and forgets this
# position.
sub skip_elsewhere
{
	$subscriber->sql(q(ALTER SUBSCRIPTION tap SKIP (lsn = 'FFFFFFFF/0')));
	return;
}

sub insert_behind_skip
{
	skip_elsewhere();
	insert_slow_rows();
	return;
}

is_patient('while it applies a transaction that still comes',
	\&insert_behind_skip);

is_patient(
	'while it applies one that was received before',
	sub {
		my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
		$publisher->sql('UPDATE gate SET n = n + 1');
		insert_slow_rows();
		$publisher->wait_received;
		skip_elsewhere();
		$lock->release;
	});

# Most of it is not in the queue when a writer begins to apply it.
$subscriber->reload_with('parallel_apply.queue_size = 1MB');
$subscriber->restart_apply('tap',
	'ALTER SUBSCRIPTION tap SET (streaming = on)');
is_patient('while it applies one that was streamed', \&insert_behind_skip);

### while nothing is read


# Long enough for the timeout to expire several times
sub wait_for_replies
{
	my $began_at = $publisher->sql('SELECT clock_timestamp()');
	$publisher->poll_query_until('postgres',
		"SELECT reply_time > timestamptz '$began_at' + 2.5 * interval '$timeout s' FROM pg_stat_replication WHERE application_name = 'tap'"
	) or die 'there is no reply';
	return;
}
is_patient(
	'while the subscription is paused',
	sub {
		$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
		$publisher->sql('UPDATE gate SET n = n + 1');
		wait_for_replies();
		$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
	});

# A file with more than the queue holds is read at the end of its transaction, whose
# writer waits for a lock.
is_patient(
	'while a streamed transaction is read from its file',
	sub {
		my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
		my $streamed = $pair->begin_streamed(
			q(UPDATE gate SET n = n + 1;
			INSERT INTO slow (t) SELECT repeat('x', 8000) FROM generate_series(1, 500))
		);
		$streamed->query_safe('COMMIT');
		$subscriber->wait_for_state('waiting for lock');
		wait_for_replies();
		$lock->query_safe('COMMIT');
		$_->quit for $lock, $streamed;
	});

$pair->tables_equal('at the end', qw(gate slow));
finish($publisher, $subscriber,
	qr/ERROR: +could not (receive data from|send data to) WAL stream/);
done_testing();
