# Promise: a sleeping writer is woken by the event that it waits for.
#
# A writer also checks its condition after some time, so that a lost wakeup is hard
# to notice.  Here that time is an hour (src/test/selftest_wakes.c), and what no
# process wakes a writer for does not happen.  The apply worker checks after up to a
# second, which is measured here.  028_waits.pl measures how fast other processes
# are woken.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
	publisher_conf => q(
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		logical_decoding_work_mem = 64kB
		wal_sender_timeout = 0),
	subscriber_conf => q(
		parallel_apply.queue_size = 64kB
		parallel_apply.selftest_sleep = 1h
		parallel_apply.log_min_duration = 0
		log_min_messages = debug1
		wal_receiver_timeout = 0));
my ($is_without_selftest) =
  $subscriber->psql('postgres', 'SHOW parallel_apply.selftest_sleep');
plan skip_all => 'the library was made without SELFTEST=1'
  if $is_without_selftest;

exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	ALTER TABLE items ALTER note SET STORAGE EXTERNAL;
	CREATE TABLE other (id int PRIMARY KEY);
	CREATE TABLE orders (id int PRIMARY KEY);
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE refused (id int PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY);));
on_subscriber(
	q(CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT backend_type LIKE 'parallel_apply writer%' FROM pg_stat_activity
			WHERE pid = pg_backend_pid()) THEN
			RAISE 'a writer is refused';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON refused FOR EACH ROW EXECUTE FUNCTION refuse();
	ALTER TABLE refused ENABLE ALWAYS TRIGGER refuse;
	CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER order_trg AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE orders ENABLE ALWAYS TRIGGER order_trg;));
create_extension($subscriber);
subscribe(
	$publisher, $subscriber, 'tap',
	with => 'streaming = on',
	publication => 'FOR TABLE items, other, orders, gate, refused');
my @tables = qw(items other orders gate refused);
on_publisher(item_rows(1) . 'INSERT INTO gate VALUES (1, 0)');
tables_equal('at the beginning', @tables);

# The rest of a transaction that is applied while it arrives.  The walsender has to
# look up whether a table is published, which a local session prevents.
my $lock =
  hold($publisher, 'LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
on_publisher(
	'BEGIN;' . item_rows(100) . 'INSERT INTO other VALUES (1); COMMIT');
wait_for_state($subscriber, 'waiting for data');
$lock->query_safe('COMMIT');
$lock->quit;
tables_equal('when the rest has come', @tables);

# More of a streamed transaction, up to its last change: a value larger than the
# publisher's buffer is sent at once.
my $streamed = begin_streamed(item_rows(1000));
wait_for_early(500);
$publisher->wait_for_catchup('tap', 'write');
wait_for_state($subscriber, 'waiting for data');
$streamed->query_safe(
	item_rows(999) . q(INSERT INTO items VALUES (0, 0, repeat('x', 100000))));
wait_for_early(2000);

# Its end, which gets a place in the queue only when other transactions leave it:
# there are as many as the queue can hold, and the first of them waits for a lock.
my $queued = q(queue_transactions FROM parallel_apply.subscriptions);
my $slots = 128;
$lock = hold($subscriber, 'LOCK TABLE other IN SHARE MODE');
on_publisher(join '',
	map { 'INSERT INTO other VALUES (' . (10 + $_) . ");\n" } 1 .. $slots);
wait_until("$slots = $queued", 'the queue does not get full');
my $offset = -s $subscriber->logfile;
$streamed->query_safe('COMMIT');
$subscriber->wait_for_log(qr/finished processing the STREAM COMMIT command/,
	$offset);
wait_for_state($subscriber, 'waiting for data');
is(on_subscriber("SELECT $queued"), $slots, 'its end has come too early');
$lock->query_safe('COMMIT');
$lock->quit;
tables_equal('when a streamed transaction has ended', @tables);

# A transaction that has to be alone waits until a younger one is rolled back, whose
# process is stopped.
$streamed->query_safe('BEGIN;' . item_rows(1000));
wait_for_early(500);
my $from =
  q(FROM parallel_apply.writers WHERE remote_lsn IS NULL AND state = 'waiting for data');
wait_until("count(*) = 1 $from", 'no process waits for data');
my $pid = on_subscriber("SELECT pid $from");
kill 'STOP', $pid;
on_publisher('INSERT INTO orders VALUES (1)');
wait_for_state($subscriber, 'waiting for prior commit');
kill 'CONT', $pid;
tables_equal('when a younger one was rolled back', @tables);
$streamed->query_safe('COMMIT');
$streamed->quit;

# The apply worker is woken for a transaction that a writer cannot apply, and, when
# everything older is committed, for one that no writer claims, since its table is
# being copied.  The library of the publisher reports that no session waits for a
# flush, so nothing else wakes it.  There are some younger transactions, since it is
# also woken when a quarter of all is committed.  Return how long that transaction
# takes, in milliseconds.
my $id = 1000;

sub replay_time
{
	my ($table) = @_;
	$id += 10;
	my $gate = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
	on_publisher(
		join ";\n",
		'UPDATE gate SET n = n + 1',
		map { "INSERT INTO $_ VALUES (" . $id++ . ')' } $table,
		('other') x 8);
	wait_for_state($subscriber, 'waiting for lock');
	wait_until("10 = $queued", 'not all are received');
	my $log_offset = -s $subscriber->logfile;
	$gate->query_safe('COMMIT');
	$gate->quit;
	wait_applied($publisher, $subscriber, 'tap');
	my $log = slurp_file($subscriber->logfile, $log_offset);
	my @seconds = map { /(\d+):(\d+):(\d+\.\d+)/; 3600 * $1 + 60 * $2 + $3 }
	  grep { /LOG: +remote transaction/ } split /\n/, $log;
	return 1000 * ($seconds[1] - $seconds[0]);
}

sub is_replayed_soon
{
	my ($name, $table) = @_;
	my @ms = sort { $a <=> $b } map { replay_time($table) } 1 .. 7;
	note "@ms ms";
	cmp_ok($ms[3], '<', 40, $name);
	return;
}

is_replayed_soon('the apply worker is woken by a writer that gives up',
	'refused');
on_publisher('INSERT INTO late VALUES (0)');
my $copied = hold($subscriber, 'INSERT INTO late VALUES (0)');
begin_copy('late');
is_replayed_soon('the apply worker is woken when its turn has come', 'late');
$copied->query_safe('ROLLBACK');
$copied->quit;
wait_until_ready($subscriber);
tables_equal('in the end', @tables, 'late');

finish($publisher, $subscriber);
done_testing();
