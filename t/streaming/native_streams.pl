# Promise: a rollback of a subtransaction that was never sent does no harm.  A
# publisher from 18 on sends such a message if it has found the rollback before it
# decoded the changes, also to a subscription without streaming.  PostgreSQL's own
# apply and table synchronization crash on this message, again after each restart.
# The extension hides it from them.
#
# The walsender reads the transactions only after their end.  Publishers before 18
# do not send the message.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(publisher_conf => 'logical_decoding_work_mem = 64kB');
plan skip_all =>
  'a publisher that checks assertions crashes where it would send the message'
  if $publisher->pg_version >= 18
  && $publisher->sql('SHOW debug_assertions') eq 'on';
my $columns = '(id int PRIMARY KEY, v int NOT NULL, note text)';
$pair->exec_both(join ';',
	map { "CREATE TABLE $_ $columns" } qw(items late later));
$subscriber->create_extension;
$pair->subscribe('tap', publication => 'FOR TABLE items');
$publisher->sql(join ';',
	map { "INSERT INTO $_ VALUES (1, 0)" } qw(items late later));

# A transaction that is rolled back as a whole, and then one that is streamed, part
# of which is rolled back
sub roll_back
{
	my ($table) = @_;
	my $large =
	  "INSERT INTO $table SELECT i, 0, repeat('x', 100) FROM generate_series(1001, 3000) i;";
	my $streamed = $large =~ s/1001, 3000/3001, 5000/r;
	$publisher->sql(
		qq(BEGIN; UPDATE $table SET v = -1; SAVEPOINT a; $large ROLLBACK;));
	$publisher->sql(
		qq(BEGIN; UPDATE $table SET v = v + 1; $streamed SAVEPOINT a; $large
		ROLLBACK TO SAVEPOINT a; COMMIT;
		DELETE FROM $table WHERE id > 3000;));
	return;
}

# While the subscription is not connected; it gets that option, too.
sub roll_back_unattended
{
	my ($option) = @_;
	$subscriber->restart_apply(
		'tap',
		'ALTER SUBSCRIPTION tap DISABLE',
		sub {
			$publisher->poll_query_until('postgres',
				q(SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'tap')
			) or die 'the walsender does not end';
			roll_back('items');
			$subscriber->sql(
				"ALTER SUBSCRIPTION tap SET ($option); ALTER SUBSCRIPTION tap ENABLE"
			);
		});
	return;
}

my %new_table = ('streaming = on' => 'late', 'streaming = off' => 'later');
for my $option (sort keys %new_table)
{
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
	$subscriber->wait_for_pool('tap');
	roll_back_unattended($option);
	$subscriber->wait_for_pool('tap');
	$pair->tables_equal("after roll backs, with writers, $option", 'items');

	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$subscriber->wait_for_pool('tap', 0);
	roll_back_unattended($option);
	$pair->tables_equal("and with PostgreSQL's own apply", 'items');
	is($subscriber->counter('transactions'), 0, 'which applies all of that');

	my $table = $new_table{$option};
	my $copy = $subscriber->hold("INSERT INTO $table VALUES (1, -1)");
	$pair->begin_copy($table);
	roll_back($table);
	$copy->query_safe('ROLLBACK');
	$copy->quit;
	$subscriber->wait_until_ready;
	$pair->tables_equal('and with the synchronization of a table',
		'items', $table);
}

finish($publisher, $subscriber);
done_testing();
