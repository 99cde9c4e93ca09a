# A publisher from 18 on says that a subtransaction was rolled back, though it has sent
# nothing of it, if it has found the rollback before it decoded the changes.
# PostgreSQL's own apply and table synchronisation crash on that, and go on doing so.
# They are not told.
#
# The walsender comes to the transactions only after their end.  Publishers before 18
# do not say that.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(publisher_conf => 'logical_decoding_work_mem = 64kB');
exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE late (id int PRIMARY KEY, v int NOT NULL, note text);));
create_extension($subscriber);
subscribe(
	$publisher, $subscriber, 'tap',
	publication => 'FOR TABLE items',
	with => 'streaming = on');
on_publisher(q(INSERT INTO late VALUES (1, 0)));

# Rolled back as a whole; then one that is streamed, and of which a part is left out.
sub roll_back
{
	my ($table) = @_;
	my $large =
	  "INSERT INTO $table SELECT i, 0, repeat('x', 100) FROM generate_series(1001, 3000) i;";
	my $streamed = $large =~ s/1001, 3000/3001, 5000/r;
	on_publisher(
		qq(BEGIN; UPDATE $table SET v = -1; SAVEPOINT a; $large ROLLBACK;));
	on_publisher(
		qq(BEGIN; UPDATE $table SET v = v + 1; $streamed SAVEPOINT a; $large
		ROLLBACK TO SAVEPOINT a; DELETE FROM $table WHERE id BETWEEN 3001 AND 4999; COMMIT;
		DELETE FROM $table WHERE id = 5000;));
	return;
}

sub roll_back_unattended
{
	restart_apply(
		$subscriber,
		'tap',
		'ALTER SUBSCRIPTION tap DISABLE',
		sub {
			$publisher->poll_query_until('postgres',
				q(SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'tap')
			) or die 'the walsender does not end';
			roll_back('items');
			on_subscriber('ALTER SUBSCRIPTION tap ENABLE');
		});
	return;
}

on_publisher('INSERT INTO items VALUES (1, 0)');
roll_back_unattended();
wait_for_pool($subscriber, 'tap');
tables_equal('after roll backs, with writers', 'items');

reload_with($subscriber, 'parallel_apply.writers_per_subscription = 1');
wait_for_pool($subscriber, 'tap', 0);
roll_back_unattended();
tables_equal("and with PostgreSQL's own apply", 'items');
is(counter($subscriber, 'transactions'), 0, 'which applies all of that');

my $copy = hold($subscriber, 'INSERT INTO late VALUES (1, -1)');
begin_copy('late');
roll_back('late');
$copy->query_safe('ROLLBACK');
wait_until_ready($subscriber);
tables_equal('and with the synchronisation of a table', 'items', 'late');

$copy->quit;
finish($publisher, $subscriber);
done_testing();
