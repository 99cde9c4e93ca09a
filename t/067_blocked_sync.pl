# Promise: the receiver does not wait forever for a worker that synchronizes a
# table.
#
# While it waits for one to catch up nothing is received, and the last transaction
# of the native loop does not count as committed.  Each time that worker waits,
# directly or indirectly, for a writer that waits for just this.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(publisher_conf => q(logical_decoding_work_mem = 64kB));
exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE jobs (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE total (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE late (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE later (id int PRIMARY KEY, n int NOT NULL);));
my @tables = qw(gate items jobs total);
on_subscriber(
	q(CREATE FUNCTION touch_total() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN UPDATE public.total SET n = n WHERE id = 1; RETURN NEW; END$$;
	CREATE TRIGGER touch AFTER INSERT ON late FOR EACH ROW WHEN (NEW.id > 2) EXECUTE FUNCTION touch_total();
	ALTER TABLE late ENABLE ALWAYS TRIGGER touch;
	CREATE FUNCTION touch_job() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN UPDATE public.jobs SET n = n WHERE id = 2; RETURN NEW; END$$;
	CREATE TRIGGER touch AFTER INSERT ON later FOR EACH ROW WHEN (NEW.id > 2) EXECUTE FUNCTION touch_job();
	ALTER TABLE later ENABLE ALWAYS TRIGGER touch;));
create_extension($subscriber);
subscribe(
	$publisher, $subscriber, 'tap',
	publication => 'FOR TABLE ' . join(', ', @tables),
	with => 'streaming = on, disable_on_error = on');
on_publisher("INSERT INTO $_ VALUES (1, 0), (2, 0)")
  for qw(gate jobs total late later);
wait_applied($publisher, $subscriber, 'tap');
my $apply_pid = apply_pid($subscriber, 'tap');

# For a writer that applies a streamed transaction, and waits for data
{
	my $copy = hold($subscriber, 'INSERT INTO late VALUES (1, -1)');
	begin_copy('late');
	on_publisher('INSERT INTO late VALUES (3, 0)');
	wait_applied($publisher, $subscriber, 'tap');
	my $streamed =
	  begin_streamed('UPDATE total SET n = n + 1;' . item_rows(2000));
	wait_for_early(1500);
	$copy->query_safe('ROLLBACK');
	$copy->quit;
	wait_until(
		q(count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')),
		'the synchronization worker waits forever');
	$streamed->query_safe('COMMIT');
	$streamed->quit;
	tables_equal(
		'after a synchronization that needed a row of a streamed one',
		@tables, 'late');
}

# For a local session, which waits for a writer that applies a streamed transaction
{
	my $copy = hold($subscriber, 'INSERT INTO later VALUES (1, -1)');
	begin_copy('later');
	on_publisher('INSERT INTO later VALUES (3, 0)');
	wait_applied($publisher, $subscriber, 'tap');
	my $streamed =
	  begin_streamed('UPDATE total SET n = n + 1;' . item_rows(2000));
	wait_for_early(1500);
	my $local = hold($subscriber, 'SELECT FROM jobs WHERE id = 2 FOR UPDATE');
	$local->query_until(qr/start/,
		"\\echo start\nUPDATE total SET n = n; COMMIT;\n");
	wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Lock'),
		'the local session does not wait');
	$copy->query_safe('ROLLBACK');
	wait_until(
		q(count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')),
		'the synchronization worker waits forever');
	$streamed->query_safe('COMMIT');
	$_->quit for $copy, $local, $streamed;
	tables_equal(
		'after a synchronization that needed a row of such a session',
		@tables, qw(late later));
}

is(apply_pid($subscriber, 'tap'),
	$apply_pid, 'by the same apply worker all the time');
nothing_is_left_open($subscriber);
finish($publisher, $subscriber);
done_testing();
