# Promise: the commands of doc/recipes.md work as they are written there, each recipe after
# the one before it, with a subscription that is made as the page says.
#
# The statements of a block are executed on the node that its comment names.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use ManualPages;
use PapplyTest;
use Programs qw(is_installed);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = 'doc/recipes.md';
my ($pair, $publisher, $subscriber) =
  new_pair(publisher_conf => "shared_preload_libraries = 'parallel_apply'\n");
my $conninfo = $publisher->connstr . ' dbname=postgres';
$publisher->sql(
	'CREATE TABLE orders (id int PRIMARY KEY, amount int CHECK (amount >= 0));
	INSERT INTO orders SELECT i, 0 FROM generate_series(1, 100) i');

### the subscription ###########################################################

my $position;
my %was_executed;

# Return what is printed last.
sub execute_block
{
	my ($block) = @_;
	my ($where, $commands) = $block =~ /\A-- on (.*)\n((?:.|\n)*)/
	  or die "it is not said where it is executed: $block";
	my @names = $where =~ /(publisher|subscriber|each server)/g;
	@names = ('publisher', 'subscriber') if $names[0] eq 'each server';
	$commands =~ s{host=publisher dbname=app}{$conninfo}g;
	$commands =~ s{'0/3A000158'}{'$position'}g if defined $position;
	my $printed;
	for my $name (@names)
	{
		run_manual_on($name eq 'publisher' ? $publisher : $subscriber);
		for my $command ($commands =~ /^([A-Z].*;)$/mg)
		{
			$printed = psql_prints($command);
			$position = $1
			  if $command =~ /pg_current_wal_lsn\(\);/
			  && $printed =~ m{(\w+/\w+)};
		}
	}
	$was_executed{$block} = 1;
	return $printed;
}

# Execute the blocks of the page that have these words.
sub execute_blocks_with
{
	my ($words) = @_;
	my @found = grep { /\Q$words\E/ && /\A--/ } blocks_of($page);
	cmp_ok(scalar(@found), '>=', 1, "$page: $words ...");
	my $printed;
	$printed = execute_block($_) for @found;
	return $printed;
}

execute_blocks_with('CREATE PUBLICATION p');
run_manual_on($subscriber);
run_program(
	$page, 'pg_dump',
	'host=publisher' => 'host='
	  . $publisher->host
	  . ' port='
	  . $publisher->port,
	app => 'postgres');
$subscriber->sql(
	'CREATE SUBSCRIPTION other CONNECTION $$$$ PUBLICATION p WITH (connect = false, enabled = false, create_slot = false, slot_name = NONE)'
);
execute_blocks_with('CREATE SUBSCRIPTION s');
$subscriber->wait_until_ready;
$subscriber->wait_for_pool('s');
$pair->rows_equal('orders', 'the table is copied');

### a transaction that fails ###################################################

$subscriber->sql(
	'ALTER TABLE orders ADD CONSTRAINT small CHECK (amount < 10)');
$publisher->sql('INSERT INTO orders VALUES (101, 10)');
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions',
	'nothing has failed');
like(
	execute_blocks_with('parallel_apply.failed_changes'),
	qr/INSERT INTO public\.orders .*101/,
	'the changes of the transaction that fails');
execute_blocks_with('parallel_apply.skip_transaction');
$publisher->wait_applied('s');
$subscriber->sql('ALTER TABLE orders DROP CONSTRAINT small');
execute_blocks_with('CALL parallel_apply.replay_transactions');
$pair->rows_equal('orders', 'it is applied after all');

### read what was written ######################################################

$publisher->sql('INSERT INTO orders VALUES (102, 1)');
execute_blocks_with('SELECT pg_current_wal_lsn();');
like(execute_blocks_with('parallel_apply.wait_for_lsn'),
	qr/^ t$/m, 'the position is reached');
$pair->rows_equal('orders', 'and what was written is seen');

### compare, and copy again ####################################################

SKIP:
{
	skip 'pg_verify_subscription was not built', 3
	  if !is_installed('pg_verify_subscription');
	like(
		run_program($page, 'pg_verify_subscription', app => 'postgres'),
		qr/^public\.orders: equal: 102 rows$/m,
		'the table is equal');
}
execute_blocks_with('parallel_apply.resync_table');
$subscriber->wait_until_ready;

### the others, in their order #################################################

$publisher->create_extension;
for my $block (grep { /\A--/ && !$was_executed{$_} } blocks_of($page))
{
	$subscriber->sql(
		q(SELECT parallel_apply.remove_subscription('seldom', 'other'), parallel_apply.drop_group('seldom'))
	) if $block =~ /DROP EXTENSION/;
	execute_block($block);
	$publisher->sql(
		'INSERT INTO orders (id, amount) SELECT max(id) + 1, 0 FROM orders');
	$publisher->wait_applied('s');
}
cmp_ok(scalar(keys %was_executed), '>=', 18, 'the page has commands');
is( $subscriber->sql(
		'SELECT count(*) FROM pg_extension WHERE extname = $$parallel_apply$$'
	),
	'0',
	'the last one leaves PostgreSQL alone');
$pair->rows_equal('orders');
finish($publisher, $subscriber, qr/violates check constraint "small"/,
	worker_terminated());
done_testing();
