# Promise: if two servers with writers subscribe to each other with origin = none,
# changes from the other side carry its origin and are not sent back, whether a
# writer, a batch or PostgreSQL itself has applied them.
#
# Both sides write at the same time, each its own rows, and then rows of the other
# side.  Changes that are sent back would be applied again, which the counters of
# writers show.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $left, $right) = new_pair(
	publisher_conf => q(
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		parallel_apply.leader_participation = off
		autovacuum = off
		max_worker_processes = 32
		max_logical_replication_workers = 8
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		autovacuum = off
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		logical_decoding_work_mem = 64kB));
if ($left->pg_version < 16)
{
	$_->stop for $right, $left;
	plan skip_all =>
	  'the option origin of a subscription exists from PostgreSQL 16 on';
}

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, side text);
	CREATE TABLE hot (id int PRIMARY KEY, v int);
	CREATE TABLE cleared (id int PRIMARY KEY);));
$left->sql(
	'INSERT INTO hot VALUES (1, 0), (2, 0); INSERT INTO cleared VALUES (1)');
$_->create_extension for $left, $right;
$pair->subscribe('rightward', with => 'origin = none');
$right->sql('CREATE PUBLICATION leftward FOR ALL TABLES');
my $connstr = $right->connstr . ' dbname=postgres';
$left->sql(
	"CREATE SUBSCRIPTION leftward CONNECTION '$connstr' PUBLICATION leftward
	WITH (origin = none, copy_data = false)");
$left->wait_for_subscription_sync($right, 'leftward');
$left->wait_for_pool('leftward');

sub wait_for_both
{
	$left->wait_for_catchup('rightward', 'replay');
	$right->wait_for_catchup('leftward', 'replay');
	return;
}

sub all_is_equal
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->rows_equal($_, "$_ is equal on both sides $when")
	  for qw(items hot cleared);
	return;
}

# Transactions of one side with rows of its own
sub load
{
	my ($side, $first, $count) = @_;
	my $hot = $side eq 'left' ? 1 : 2;
	return join '', map {
		"BEGIN; INSERT INTO items VALUES ($_, 0, '$side');
		UPDATE hot SET v = v + $_ WHERE id = $hot; COMMIT;
		UPDATE items SET v = v + 1 WHERE id = $_;\n"
	} $first .. $first + $count - 1;
}

# Both sides at once
{
	my @loads = map { $_->background_psql('postgres') } $left, $right;
	$loads[0]
	  ->query_until(qr/begins/, "\\echo begins\n" . load('left', 1, 300));
	$loads[1]
	  ->query_until(qr/begins/, "\\echo begins\n" . load('right', 1001, 300));
	$_->quit for @loads;
	wait_for_both();
	all_is_equal('after a load on both');
	for my $node ($left, $right)
	{
		$node->poll_query_until('postgres',
			'SELECT sum(transactions) >= 600 FROM parallel_apply.writers')
		  or die 'the counters do not get there';
		is($node->counter('transactions'), '600',
			$node->name
			  . ' has applied what the other has done, and no more');
		is($node->counter('retries + fallbacks'),
			'0', 'at the first attempt');
	}
}

# Changes of rows that the other side has inserted
$left->sql(
	q(UPDATE items SET v = v + 10, side = 'left again' WHERE side = 'right'));
wait_for_both();
$right->sql(
	q(DELETE FROM items WHERE side = 'left' AND id % 2 = 0;
	UPDATE items SET v = v + 100 WHERE side = 'left again'));
wait_for_both();
all_is_equal('after rows have changed hands');

# Large transactions, which are streamed if that is the default, and transactions
# that PostgreSQL itself applies
$left->sql(
	q(INSERT INTO items SELECT i, 0, 'large' FROM generate_series(10001, 13000) i;
	TRUNCATE cleared; INSERT INTO cleared VALUES (2)));
wait_for_both();
$right->sql(
	q(UPDATE items SET v = v + 1 WHERE side = 'large';
	TRUNCATE cleared; INSERT INTO cleared VALUES (3)));
wait_for_both();
all_is_equal('after large transactions');
is( $left->sql(
		q(SELECT count(*), min(v), max(v) FROM items WHERE side = 'large')),
	'3000|1|1',
	'nothing was done twice');
is($right->sql('SELECT string_agg(id::text, $$ $$) FROM cleared'),
	'3', 'and TRUNCATE was not sent back');

# After a restart of both servers, each side continues where it was.
$_->restart for $left, $right;
$left->sql(load('left', 2001, 50));
$right->sql(load('right', 3001, 50));
wait_for_both();
all_is_equal('after a restart of both');

finish($left, $right,
	qr/FATAL: .*terminating .* due to administrator command/);
done_testing();
