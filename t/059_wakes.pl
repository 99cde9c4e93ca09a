# A writer that sleeps is woken by what it waits for.
#
# It looks by itself after some time as well, so that a lost wake-up is hard to notice:
# here that time is an hour (src/test/selftest_wakes.c), and what nobody wakes a writer for
# does not happen.  028_waits.pl measures how soon others are woken.
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
		logical_decoding_work_mem = 64kB
		wal_sender_timeout = 0),
	subscriber_conf => q(
		parallel_apply.queue_size = 64kB
		parallel_apply.selftest_sleep = 1h
		wal_receiver_timeout = 0));
my ($is_without_selftest) =
  $subscriber->psql('postgres', 'SHOW parallel_apply.selftest_sleep');
plan skip_all => 'the library was made without SELFTEST=1'
  if $is_without_selftest;

exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE other (id int PRIMARY KEY);
	CREATE TABLE orders (id int PRIMARY KEY);));
on_subscriber(
	q(CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER order_trg AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing();
	ALTER TABLE orders ENABLE ALWAYS TRIGGER order_trg;));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'streaming = on');
my @tables = qw(items other orders);
on_publisher(item_rows(1));
tables_equal('at the beginning', @tables);

# The rest of a transaction that is applied while it arrives.  The walsender has to look up
# whether a table is published, which a local session does not let it.
my $lock =
  hold($publisher, 'LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
on_publisher(
	'BEGIN;' . item_rows(100) . 'INSERT INTO other VALUES (1); COMMIT');
wait_for_state($subscriber, 'waiting for data');
$lock->query_safe('COMMIT');
$lock->quit;
tables_equal('when the rest has come', @tables);

# More of a streamed transaction, and its end.
my $streamed = begin_streamed(item_rows(1000));
wait_for_early(500);
$publisher->wait_for_catchup('tap', 'write');
wait_for_state($subscriber, 'waiting for data');
$streamed->query_safe(item_rows(1000));
wait_for_early(1500);
$publisher->wait_for_catchup('tap', 'write');
wait_for_state($subscriber, 'waiting for data');
$streamed->query_safe('COMMIT');
tables_equal('when a streamed transaction has ended', @tables);

# What has to be alone waits until a younger one is rolled back, whose process is stopped.
$streamed->query_safe('BEGIN;' . item_rows(1000));
wait_for_early(500);
my $from =
  q(FROM parallel_apply.writers WHERE remote_lsn IS NULL AND state = 'waiting for data');
wait_until("count(*) = 1 $from", 'nobody waits for data');
my $pid = on_subscriber("SELECT pid $from");
kill 'STOP', $pid;
on_publisher('INSERT INTO orders VALUES (1)');
wait_for_state($subscriber, 'waiting for turn');
kill 'CONT', $pid;
tables_equal('when a younger one was rolled back', @tables);
$streamed->query_safe('COMMIT');
$streamed->quit;
tables_equal('in the end', @tables);

finish($publisher, $subscriber);
done_testing();
