# Promise: the commands of doc/schema_changes.md work in the order in which they are written
# there, while the publisher writes: no transaction fails, and the tables are equal.
#
# The commands of a block are executed on the node that its comment names.  Before each one,
# rows are written that have to be applied with the definition of before.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use ManualPages qw(blocks_of);
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both('CREATE TABLE orders (id int PRIMARY KEY, amount int)');
$subscriber->create_extension;
$pair->subscribe('s', publication => 'FOR TABLE orders');
my $publication =
  $publisher->sql('SELECT pubname FROM pg_publication LIMIT 1');

my $session;
my $position;
my $id = 0;

# Rows of the present definition, which are not waited for
sub write_rows
{
	my $columns = $publisher->sql(
		q(SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'orders'::regclass AND attnum > 1 AND NOT attisdropped)
	);
	my $values = join ', ', (1) x split /, /, $columns;
	$publisher->sql(
		join '',
		map {
				"INSERT INTO orders (id, $columns) VALUES ("
			  . ++$id
			  . ", $values);\n"
		} 1 .. 20);
	return;
}

# Execute statements one by one, as psql does.  The last position that is printed replaces
# the one of the page.
sub execute_on
{
	my ($node, $commands) = @_;
	$commands =~ s{'0/3A000158'}{'$position'}g if defined $position;
	$commands =~ s/\bPUBLICATION p\b/PUBLICATION $publication/g;
	for my $command ($commands =~ /^([A-Z].*;)/mg)
	{
		write_rows() if !$session;
		$session = $node->background_psql('postgres', on_error_die => 1)
		  if $command eq 'BEGIN;';
		my $printed =
			$session && $node == $publisher
		  ? $session->query_safe($command)
		  : $node->sql($command);
		$position = $printed if $command =~ /pg_current_wal_lsn/;
		is($printed, 't', $command) if $command =~ /wait_for_lsn|drain/;
		$subscriber->wait_until(
			q(bool_and(srsubstate = 'r') FROM pg_subscription_rel),
			'a table is not copied')
		  if $command =~ /REFRESH/;
		if ($command eq 'COMMIT;')
		{
			$session->quit;
			undef $session;
		}
	}
	return;
}

my $blocks = 0;
for my $block (blocks_of('doc/schema_changes.md'))
{
	my ($where, $commands) = $block =~ /\A-- on the (.*)\n((?:.|\n)*)/
	  or die "it is not said where it is executed: $block";
	my @nodes =
	  map { $_ eq 'publisher' ? $publisher : $subscriber }
	  $where =~ /(publisher|subscriber)/g;
	execute_on($_, $commands) for @nodes;
	$blocks++;
}
cmp_ok($blocks, '>=', 12, 'the page has commands');
write_rows();
$publisher->wait_applied('s');
$pair->rows_equal('orders');
is( $subscriber->sql('SELECT count(*) FROM orders'),
	$publisher->sql("SELECT $id"),
	'all rows are there');
is( $subscriber->sql(
		q(SELECT string_agg(attname || ' ' || atttypid::regtype, ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped)
	),
	'id integer, total bigint',
	'the table has its new definition');
finish($publisher, $subscriber);
done_testing();
