# Promise: pages of later changes are prefetched where storage is slow, and only
# there.  Whatever happens to the tables meanwhile, the rows are the same.
#
# bench/read_delay delays every page read of the subscriber, whose shared_buffers
# are a fraction of the tables.  The changes of each part are at random places, and
# have every kind of key.  While tables are changed, a lock on the row of gate
# blocks the first transaction: writers have read ahead in the following ones,
# which are still to be applied.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $delay = "$FindBin::RealBin/../../bench/read_delay";
delete local @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL)};
plan skip_all => 'until a compiler is there'
  if system('make', '-s', '-C', $delay) != 0;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		shared_buffers = 2MB
		autovacuum = off
		maintenance_io_concurrency = 50
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 5));

# Keys: name, columns, and their values for the number i.  The long ones make an
# index of several levels.
my %keys = (
	by_int => [ 'k int PRIMARY KEY', 'i' ],
	by_text => [ 'k text PRIMARY KEY', q(md5(i::text) || repeat('x', 450)) ],
	by_pair => [ 'a int, b numeric, PRIMARY KEY (b, a)', 'i % 7, i / 7.0' ],
	by_uuid => [ 'k uuid PRIMARY KEY', 'md5(i::text)::uuid' ],
	rebuilt => [ 'k int PRIMARY KEY', 'i' ],
	rewritten => [ 'k int PRIMARY KEY', 'i' ],
	replaced => [ 'k int PRIMARY KEY', 'i' ],
	cured => [ 'k text PRIMARY KEY', 'i::text' ],
	checked => [ 'k int PRIMARY KEY', 'i' ],
	missing => [ 'k int PRIMARY KEY', 'i' ]);
my @tables = sort keys %keys;
my $rows = 2000;

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE second_gate (id int PRIMARY KEY, n int);
	CREATE TABLE backward (k int NOT NULL, i int, v int, pad text);
	CREATE UNIQUE INDEX backward_key ON backward (k DESC);
	ALTER TABLE backward REPLICA IDENTITY USING INDEX backward_key;
	CREATE TABLE parts (k int PRIMARY KEY, i int, v int, pad text) PARTITION BY RANGE (k);
	CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
	CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (1000) TO (100000);)
	  . join '',
	map { "CREATE TABLE $_ (i int, v int, pad text, $keys{$_}[0]);\n" }
	  @tables);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0); INSERT INTO second_gate VALUES (1, 0);)
	  . join '',
	map {
		"INSERT INTO $_ SELECT i, 0, repeat('x', 500), $keys{$_}[1] FROM generate_series(1, $rows) i;\n"
	} @tables);
$publisher->sql(
	"INSERT INTO $_ SELECT i, i, 0, repeat('x', 500) FROM generate_series(1, $rows) i;"
) for 'backward', 'parts';
push @tables, 'backward', 'parts';
my %key_of = map { $_ => 'k::text' } @tables;
$key_of{by_pair} = q(concat(a, ' ', b));
# The publisher finds rows by other columns than those that it sends as the key.
$publisher->sql(join '', map { "CREATE INDEX ON $_ (i);\n" } @tables);
# Until the tables are "cured", some values of the publisher are invalid on the
# subscriber.
$subscriber->sql('ALTER TABLE cured ALTER k TYPE int USING k::int');
# A key whose conversion leaves a trace
$subscriber->sql(
	q(CREATE TABLE checks (k int);
	CREATE FUNCTION note(k int) RETURNS boolean LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO public.checks VALUES (k); RETURN true; END';
	CREATE DOMAIN noted AS int CHECK (note(VALUE));
	ALTER TABLE checked ALTER k TYPE noted;));
$subscriber->create_extension;
$pair->subscribe('tap');

sub start_subscriber
{
	my ($delay_us) = @_;
	$subscriber->stop;
	local $ENV{LD_PRELOAD} = "$delay/read_delay.so";
	local $ENV{READ_DELAY_US} = $delay_us;
	$subscriber->start;
	$subscriber->wait_for_pool('tap', 4);
	return;
}

my $position = 0;

# This many transactions, each of which changes every one of these tables
sub transactions
{
	my ($n, @of) = @_;
	return map {
		$position = ($position + 617) % $rows + 1;
		join '; ', map { "UPDATE $_ SET v = v + 1 WHERE i = $position" } @of;
	} 1 .. $n;
}

sub all_equal
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $all = join ' UNION ALL ',
	  map { "SELECT '$_', i::int, v, pad, $key_of{$_} FROM $_" } @tables;
	$publisher->wait_applied;
	return $pair->rows_equal("($all)",
		"all tables are equal on both sides $when");
}

# Block transactions, and lock some tables, until the writers have read ahead in
# them, and f has changed the subscriber.
sub behind_gate
{
	my ($locks, $f, @transactions) = @_;

	# Writers read ahead in tables that they know, so each writer has to apply a
	# change of each table first.
	my $i = 1600;
	my @all = map { "$_; UPDATE part2 SET v = v + 1 WHERE i = " . $i++ }
	  transactions(4, grep { $_ ne 'parts' } @tables);
	$pair->apply_behind_gate(
		join(', ', 'waiting for lock', ('waiting for prior commit') x 3),
		'every writer has seen every table', @all);

	# They read ahead when they begin: the first gate lets the rest arrive.  There
	# are enough transactions in front of the second gate for three writers if each
	# of them claims five, and the one that waits for the first gate has claimed
	# four as well.
	my $arrival = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	my $change =
	  $subscriber->hold("SELECT FROM second_gate FOR UPDATE; $locks");
	$publisher->commit_each('UPDATE gate SET n = n + 1',
		transactions(19, 'by_int'));
	my $rest = $publisher->lsn('insert');
	$publisher->commit_each('UPDATE second_gate SET n = n + 1',
		@transactions);
	my $end = $publisher->lsn('insert');
	$subscriber->wait_for_state('waiting for prior commit', 3);
	$subscriber->poll_query_until('postgres',
		"SELECT received_lsn >= '$end' FROM pg_stat_subscription WHERE subname = 'tap' AND relid IS NULL"
	) or die 'not all was received';
	my $before = $subscriber->counter('prefetched');
	$arrival->release;
	$subscriber->poll_query_until('postgres',
		"SELECT count(*) = 3 FROM parallel_apply.writers WHERE state = 'waiting for prior commit' AND remote_lsn >= '$rest'"
	) or die 'the rest is not held up';
	cmp_ok($subscriber->counter('prefetched'),
		'>', $before, 'pages of blocked transactions were prefetched');
	$f->();
	$change->release;
	return;
}

### slow storage

start_subscriber(300);
$subscriber->sql('TRUNCATE checks');
$publisher->commit_each(transactions(80, @tables));
all_equal('after updates');
is( $subscriber->sql(
		'SELECT count(*), count(DISTINCT n) FROM (SELECT count(*) AS n FROM checks GROUP BY k) AS t'
	),
	'80|1',
	'a key whose domain has a check is converted by who changes its row only'
);
cmp_ok($subscriber->counter('prefetched'),
	'>', 100, 'pages of them were asked for');

my $before = $subscriber->counter('prefetched');
$publisher->sql("UPDATE $_ SET v = v + 1 WHERE i % 3 = 0")
  for 'by_int', 'by_text';
$publisher->sql(
	'DELETE FROM by_uuid WHERE i % 3 = 0; UPDATE by_pair SET b = b + 10000 WHERE i % 3 = 0;'
);
$publisher->sql(
	"INSERT INTO by_uuid SELECT i, 0, 'new', md5(i::text)::uuid FROM generate_series(10001, 10500) i"
);
all_equal('after large transactions');
cmp_ok(
	$subscriber->counter('prefetched'),
	'>',
	$before + 300,
	'pages of a large transaction are prefetched, too');

### tables change between the prefetch and the change

# As many as the writers claim before they are blocked
sub claimed
{
	return transactions(20, 'by_int');
}

behind_gate(
	'',
	sub {
		$subscriber->sql(
			q(REINDEX TABLE rebuilt;
			ALTER TABLE rewritten ALTER i TYPE bigint, ALTER k TYPE bigint;
			ALTER TABLE replaced DROP CONSTRAINT replaced_pkey;
			ALTER TABLE replaced ADD PRIMARY KEY (k);
			VACUUM FULL backward;
			DELETE FROM missing WHERE i % 2 = 0));
	},
	claimed(),
	transactions(30, qw(rebuilt rewritten replaced backward missing part1)));
$publisher->sql('DELETE FROM missing WHERE i % 2 = 0');
all_equal('after DDL in between');

### a key that cannot be converted yet

behind_gate(
	'',
	sub { $subscriber->sql('ALTER TABLE cured ALTER k TYPE text') },
	claimed(),
	"INSERT INTO cured VALUES (0, 0, '', 'no number')",
	q(UPDATE cured SET v = 1 WHERE k = 'no number'),
	transactions(20, 'cured', 'by_int'));
all_equal('after the type was cured');

### a table that another session has locked is skipped

behind_gate(
	'LOCK TABLE part2',
	sub { }, claimed(),
	('UPDATE part2 SET v = v + 1 WHERE i = 1500') x 9,
	transactions(10, qw(by_int by_text)));
all_equal('after a lock');

### in memory

SKIP:
{
	skip 'the server has no pg_prewarm', 2 if !has_module('pg_prewarm');
	$subscriber->sql(
		q(ALTER SYSTEM SET shared_buffers = '128MB'; CREATE EXTENSION pg_prewarm)
	);
	$subscriber->stop;
	$subscriber->start;
	$subscriber->wait_for_pool('tap', 4);
	$subscriber->sql(
		q(SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i'))
	);
	$publisher->commit_each(transactions(40, @tables));
	all_equal('in memory');
	is($subscriber->counter('prefetched'),
		'0', 'nothing is asked for in memory');
}

finish($publisher, $subscriber,
	qr/terminating .* due to administrator command/);
done_testing();
