# Promise: a sleeping writer is woken by the event that it waits for.
#
# A writer also checks its condition after some time, so that a lost wakeup is hard
# to notice.  Here that time is an hour (src/test/selftest_wakes.c), and what no
# process wakes a writer for does not happen.  The same holds for the apply worker in
# the last part.  waits.pl has more about both.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The WAL writer of the publisher wakes its walsender, so it should not run more often than
# by default.  The alarm of deadlock_timeout wakes a process even if its wait for a lock has
# ended long before.
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		wal_writer_delay = 200ms
		autovacuum = off
		checkpoint_timeout = 1h
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		logical_decoding_work_mem = 64kB
		wal_sender_timeout = 0),
	subscriber_conf => q(
		parallel_apply.queue_size = 64kB
		parallel_apply.selftest_sleep = 1h
		deadlock_timeout = 1h
		log_min_messages = debug1
		wal_receiver_timeout = 0));
plan skip_all => 'the library was made without SELFTEST=1'
  if !$subscriber->create_selftest_waits;

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	ALTER TABLE items ALTER note SET STORAGE EXTERNAL;
	CREATE TABLE other (id int PRIMARY KEY);
	CREATE TABLE orders (id int PRIMARY KEY);
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE refused (id int PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY);));
$subscriber->sql(
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
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	with => 'streaming = on',
	publication => 'FOR TABLE items, other, orders, gate, refused');
my @tables = qw(items other orders gate refused);
$publisher->sql(item_rows(1) . 'INSERT INTO gate VALUES (1, 0)');
$pair->tables_equal('at the beginning', @tables);

# The rest of a transaction that is applied while it arrives.  The walsender has to
# look up whether a table is published, which a local session prevents.
my $lock =
  $publisher->hold('LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
$publisher->sql(
	'BEGIN;' . item_rows(100) . 'INSERT INTO other VALUES (1); COMMIT');
$subscriber->wait_for_state('waiting for data');
$lock->release;
$pair->tables_equal('when the rest has come', @tables);

# More of a streamed transaction, up to its last change: a value larger than the
# publisher's buffer is sent at once.
my $streamed = $pair->begin_streamed(item_rows(1000));
$subscriber->wait_for_in_progress(500);
$publisher->wait_received;
$subscriber->wait_for_state('waiting for data');
$streamed->query_safe(
	item_rows(999) . q(INSERT INTO items VALUES (0, 0, repeat('x', 100000))));
$publisher->flush_wal;
$subscriber->wait_for_in_progress(2000);

# Its end, which gets a place in the queue only when other transactions leave it:
# there are as many as the queue can hold, and the first of them waits for a lock.
my $queued = q(queue_transactions FROM parallel_apply.subscriptions);
my $slots = 128;
$lock = $subscriber->hold('LOCK TABLE other IN SHARE MODE');
$publisher->sql(join '',
	map { 'INSERT INTO other VALUES (' . (10 + $_) . ");\n" } 1 .. $slots);
$subscriber->wait_until("$slots = $queued", 'the queue does not get full');
my $offset = -s $subscriber->logfile;
$streamed->query_safe('COMMIT');
$subscriber->wait_for_log(qr/finished processing the STREAM COMMIT command/,
	$offset);
$subscriber->wait_for_state('waiting for data');
is($subscriber->sql("SELECT $queued"), $slots, 'its end has come too early');
$lock->release;
$pair->tables_equal('when a streamed transaction has ended', @tables);

# A transaction that has to be alone waits until a younger one is rolled back, whose
# process is stopped.
$streamed->query_safe('BEGIN;' . item_rows(1000));
$subscriber->wait_for_in_progress(500);
$publisher->wait_received;
my $pid = $subscriber->stop_in_progress_writer;
$publisher->sql('INSERT INTO orders VALUES (1)');
$subscriber->wait_for_state('waiting for prior commit');
$subscriber->let_receiver_sleep('on');
my $end_of_silence = $publisher->silence;
$subscriber->becomes_quiet(
	'no process does anything while the younger one cannot be rolled back');
kill 'CONT', $pid;
$subscriber->wait_until('count(*) = 1 FROM orders',
	'the older one does not continue');
$end_of_silence->();
$subscriber->let_receiver_sleep('off');
$pair->tables_equal('when a younger one was rolled back', @tables);
$streamed->release;

# The apply worker is woken for a transaction that a writer cannot apply, and, when
# everything older is committed, for one that no writer claims, since its table is
# being copied.  The library of the publisher reports that no session waits for a
# flush, so nothing else wakes it.  There are some younger transactions, since it is
# also woken when a quarter of all is committed.  It is at rest before.
my $id = 1000;

sub is_replayed
{
	my ($name, $table) = @_;
	$id += 10;
	$subscriber->let_receiver_sleep('on');
	my $end_of_silence = $publisher->silence;
	my $next = 'FROM other WHERE id = ' . ($id + 1);
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		join ";\n",
		'UPDATE gate SET n = n + 1',
		map { "INSERT INTO $_ VALUES (" . $id++ . ')' } $table,
		('other') x 8);
	$subscriber->wait_for_state('waiting for lock');
	$subscriber->wait_until("10 = $queued", 'not all are received');
	$subscriber->becomes_quiet('no process does anything meanwhile');
	$gate->release;
	$subscriber->wait_until("count(*) = 1 $next", "not so: $name");
	$end_of_silence->();
	$subscriber->let_receiver_sleep('off');
	$publisher->wait_applied;
	return pass($name);
}

is_replayed('the apply worker is woken by a writer that gives up', 'refused');
$publisher->sql('INSERT INTO late VALUES (0)');
my $copied = $subscriber->hold('INSERT INTO late VALUES (0)');
$pair->begin_copy('late');
is_replayed('the apply worker is woken when its turn has come', 'late');
$copied->query_safe('ROLLBACK');
$copied->quit;
$subscriber->wait_until_ready;
$pair->tables_equal('in the end', @tables, 'late');

finish($publisher, $subscriber);
done_testing();
