# Promise: in a cascade A -> B -> C, where B applies with several writers, C gets
# the transactions of A, each as a whole or not at all, in their order.  This is so
# with one transaction at a time, and with batches if B is configured to use them.
# C, which has writers as well, ends with the same rows.  t/cascade/decoding.pl tests
# what else is decoded as if PostgreSQL's own apply had written it.
#
# A third server, `ordered`, subscribes to B without the extension and numbers the
# rows as they arrive: PostgreSQL's own apply takes B's transactions in the order of
# B's commits.  B publishes all tables, and none of them may be the extension's,
# which `ordered` does not have.  A locked row of gate blocks writers of B, so that
# younger transactions are applied before older ones.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $first, $middle) = new_pair(
	subscriber_conf => q(
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		parallel_apply.writers_per_subscription = 4));
my @tables = qw(gate history balance);

# These servers are no pair: their publisher is another one.
sub add_subscriber
{
	my ($name, $conf) = @_;
	my $node = PapplyNode->new($name);
	$node->init;
	$node->append_conf('postgresql.conf',
		"fsync = off\nmax_worker_processes = 16\n$conf");
	$node->start;
	return $node;
}

my $last = add_subscriber(
	'last', q(shared_preload_libraries = 'parallel_apply'
		parallel_apply.leader_participation = off));
my $ordered = add_subscriber('ordered', '');

my $schema = q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE history (n int, part int, PRIMARY KEY (n, part));
	CREATE TABLE balance (id int PRIMARY KEY, n int););
$_->sql($schema) for $first, $middle, $last, $ordered;
$ordered->sql(
	'ALTER TABLE history ADD COLUMN arrived int GENERATED ALWAYS AS IDENTITY'
);
$first->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO balance SELECT i, 100 FROM generate_series(1, 10) i;));
$_->create_extension for $middle, $last;
$pair->subscribe('tap');
PapplyPair->new($middle, $last)->subscribe('cascade');
my $connstr = $middle->connstr . ' dbname=postgres';
$ordered->sql(
	"CREATE SUBSCRIPTION ordered CONNECTION '$connstr' PUBLICATION cascade");
$ordered->wait_for_subscription_sync($middle, 'ordered');

my $n = 0;

# Each transaction has two rows of history, with other statements between them.
sub transactions
{
	my ($count) = @_;
	my $sql = '';
	for (1 .. $count)
	{
		$n++;
		$sql .= "BEGIN; INSERT INTO history VALUES ($n, 1);
			UPDATE balance SET n = n - 1 WHERE id = $n % 10 + 1;
			UPDATE balance SET n = n + 1 WHERE id = $n * 7 % 10 + 1;
			INSERT INTO history VALUES ($n, 2); COMMIT;\n";
	}
	return $sql;
}

sub wait_for_all
{
	$first->wait_applied;
	$middle->flush_wal;
	$middle->wait_for_catchup($_, 'replay') for 'cascade', 'ordered';
	return;
}

for my $batch (1, 32)
{
	$middle->reload_with(
		"parallel_apply.max_batch_transactions = $batch",
		'parallel_apply.logical_decoding = ' . ($batch == 1 ? 'auto' : 'off')
	);
	my $gate = $middle->hold('SELECT FROM gate FOR UPDATE');
	$first->sql(transactions(5));
	wait_for_all();
	$first->sql('UPDATE gate SET n = n + 1');
	# It must be alone: the others would depend on the rest of its batch.
	$middle->wait_for_state('waiting for lock');
	$first->sql(transactions(300));
	$middle->wait_for_state('waiting for prior commit');
	$middle->flush_wal;
	$middle->wait_for_catchup($_, 'replay') for 'cascade', 'ordered';
	is( $last->sql('SELECT max(n) FROM history'),
		$n - 300,
		"transactions that wait for their turn have not reached the last server, with batches of $batch"
	);
	$gate->release;

	# The same with a transaction that PostgreSQL itself applies, and a large one
	$first->sql(transactions(20)
		  . 'BEGIN; TRUNCATE gate; INSERT INTO gate VALUES (1, 0); COMMIT;'
		  . "INSERT INTO history SELECT i, 0 FROM generate_series(1, 5000) i;"
		  . transactions(20)
		  . 'DELETE FROM history WHERE part = 0;'
		  . transactions(20));
	wait_for_all();
	for my $table (@tables)
	{
		$pair->rows_equal($table,
			"$table is equal on the middle server, with batches of $batch");
		PapplyPair->new($first, $last)
		  ->rows_equal($table,
			"$table is equal on the last server, with batches of $batch");
	}
	is( $ordered->sql(
			q(SELECT count(*) FROM (SELECT (n, part) <=
				lag((n, part)) OVER (ORDER BY arrived) AS is_late FROM history) h
			WHERE is_late)
		),
		'0',
		"and all has arrived in the order of the first server's commits, with batches of $batch"
	);
}

# Local rows of the middle server reach the last one, and do not return to the
# first.
$middle->sql('INSERT INTO history VALUES (0, 0)');
wait_for_all();
is($last->sql('SELECT count(*) FROM history WHERE n = 0'),
	'1', 'a local transaction of the middle server is applied by the last');
is($first->sql('SELECT count(*) FROM history WHERE n = 0'),
	'0', 'and the first has nothing of it');
PapplyPair->new($middle, $last)->rows_equal($_) for @tables;

$_->log_is_clean for $ordered, $last;
$_->stop for $ordered, $last;
finish($first, $middle);
done_testing();
