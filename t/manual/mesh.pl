# Promise: the commands of the manual make two servers, and then three, that subscribe to
# each other, while they are written to: each change arrives everywhere exactly once, also
# if servers and processes of two of them die, and each snapshot on each of them is a prefix
# of what each other one has committed.  A column is added and a server removed as the
# manual says, and conflicts are what it says.
#
# pgbench writes to each node all the time, to rows of that node only, so that there are
# no conflicts.  What is lost, applied twice or sent back shows in history, which has no
# key, and what is applied in another order in the balances there.  The transactions of a
# node are numbered in the order of their commits, by an advisory lock of this node only, so
# that they do not depend on each other where they are applied.  Meanwhile sessions of the
# load look for a number that is missing in their snapshot, or for a part of a transaction.
# Detects: a third node that begins to take from the second one before the position of the
# first one, which it has copied, or after it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use List::Util qw(shuffle);
use ManualPages;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = 'doc/mesh.md';
my @tables = qw(orders accounts history);
my $seed = length($ENV{SEED} // '') ? $ENV{SEED} : time % 1_000_000;
my %nodes = map { $_ => PapplyNode->new($_) } qw(n1 n2 n3);
my ($n1, $n2, $n3) = @nodes{qw(n1 n2 n3)};
plan skip_all =>
  'the option origin of a subscription exists from PostgreSQL 16 on'
  if $n1->pg_version < 16;

srand $seed;
note("SEED=$seed");

for my $node ($n1, $n2, $n3)
{
	$node->init(allows_streaming => 'logical');
	$node->append_conf('postgresql.conf', <<~'CONF');
		fsync = off
		shared_buffers = 32MB
		wal_writer_delay = 10ms
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.leader_participation = off
		parallel_apply.idle_writers_per_subscription = -1
		parallel_apply.reserved_worker_processes = 0
		parallel_apply.writers_per_subscription = 3
		max_worker_processes = 32
		max_logical_replication_workers = 10
		max_replication_slots = 20
		max_wal_senders = 20
		wal_retrieve_retry_interval = '100ms'
		track_functions = pl
		CONF
	$node->start;
}

### commands of the page #########################################################

sub connection { return $_[0]->connstr . ' dbname=postgres' }

# Execute a command on a node, with its connection strings and this position, and return
# what psql prints.
sub on
{
	my ($node, $words, $position) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($command) = printed($page, $words);
	$command =~ s/host=(n\d) dbname=app/connection($nodes{$1})/ge;
	$command =~ s/'POSITION'/'$position'/ if defined $position;
	run_manual_on($node);
	return psql_prints($command);
}

sub position_on
{
	my ($node, $words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($position) = on($node, $words) =~ m{^ *([0-9A-F]+/[0-9A-F]+)$}m;
	ok($position, 'it prints a position');
	return $position;
}

# What the page has as a query to be repeated until it returns 0
sub becomes_0_on
{
	my ($node, $words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($query) = printed($page, $words);
	$node->poll_query_until('postgres', $query =~ s/;$//r, '0')
	  or die 'the tables are not copied';
	return;
}

# Give a new node the schema of n1, its numbers and the publication.
sub prepare
{
	my ($name, $first) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $words =
	  q(pg_dump --schema-only --no-publications --no-subscriptions 'host=n1 dbname=app' | psql -X -v ON_ERROR_STOP=1 );
	run_manual_on($n1);
	run_program(
		$page,
		"${words}'host=$name",
		'host=n1 dbname=app' => connection($n1),
		"host=$name dbname=app" => connection($nodes{$name}));
	on($nodes{$name},
		"ALTER TABLE orders ALTER COLUMN id RESTART WITH $first");
	on($nodes{$name}, 'CREATE PUBLICATION mesh');
	return;
}

### loads ########################################################################

my $script = $n1->basedir . '/load';
append_to_file($script, <<~'SQL');
	\set id random(1, 20)
	BEGIN;
	UPDATE accounts SET balance = balance + 1 WHERE node = :node AND id = :id;
	INSERT INTO orders (amount) VALUES (:id);
	\if :id > 15
		DELETE FROM orders WHERE id = (SELECT min(id) FROM orders WHERE node = :node);
	\endif
	SELECT pg_advisory_xact_lock(0);
	INSERT INTO history SELECT node, id, balance, (SELECT coalesce(max(n), 0) + 1 FROM history WHERE node = :node)
		FROM accounts WHERE node = :node AND id = :id;
	COMMIT;
	SQL
my $looks = $n1->basedir . '/looks';
append_to_file($looks, 'SELECT look_at_histories();');

# Its error is in the log of the server.
my $look_at_histories =
  q(CREATE FUNCTION look_at_histories() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE wrong text;
	BEGIN
		SELECT string_agg(seen::text, ', ') INTO wrong FROM (
			SELECT node, count(*) AS transactions, max(n) AS last_one,
				(SELECT sum(balance) FROM accounts WHERE node = history.node) AS updates
			FROM history GROUP BY node) AS seen
		WHERE transactions <> last_one OR transactions <> updates;
		IF wrong IS NOT NULL THEN
			RAISE 'no prefix of the history of a node: %', wrong;
		END IF;
	END $$);

my %loads;

sub number_of { return $_[0]->name =~ /(\d)$/ ? $1 : die 'it has no number' }

sub begin_load
{
	my ($node) = @_;
	$loads{ $node->name } = $node->start_load(
		"$script\@19", '-f', "$looks\@1", '-c', 2, '-R', 200, '-D',
		'node=' . number_of($node),
		'--random-seed=' . int(rand(1_000_000)));
	return;
}

sub end_loads
{
	my (@of) = @_;
	$_->end_load(delete $loads{ $_->name }) for @of;
	return;
}

sub add_accounts
{
	my ($node) = @_;
	my $number = number_of($node);
	$node->sql(
		"INSERT INTO accounts SELECT $number, i, 0 FROM generate_series(1, 20) i"
	);
	return;
}

# Wait until each of these nodes has applied more of each other one.
sub wait_for_progress
{
	my (@all) = @_;
	for my $node (@all)
	{
		for my $number (map { number_of($_) } grep { $_ != $node } @all)
		{
			my $count = "count(*) FROM history WHERE node = $number";
			my $before = $node->sql("SELECT $count");
			$node->wait_until("(SELECT $count) > $before + 20",
				$node->name . " applies nothing of n$number any more");
		}
	}
	return;
}

### what must be right ###########################################################

sub wait_for_each_other
{
	my (@all) = @_;
	for my $publisher (@all)
	{
		$publisher->wait_for_catchup($_->name . '_from_' . $publisher->name,
			'replay')
		  for grep { $_ != $publisher } @all;
	}
	return;
}

# Assert that all nodes have the same rows, and that each change was made once.
sub all_are_equal
{
	my ($when, @all) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for_each_other(@all);
	for my $node (@all)
	{
		my $name = $node->name;
		if ($node != $all[0])
		{
			PapplyPair->new($all[0], $node)
			  ->rows_equal($_, "$_ of $name is equal $when")
			  for @tables;
		}
		is( $node->sql(
				q(SELECT count(*) FROM accounts a
				WHERE balance <> (SELECT count(*) FROM history h WHERE h.node = a.node AND h.id = a.id)
					OR balance <> (SELECT count(DISTINCT h.balance) FROM history h WHERE h.node = a.node AND h.id = a.id))
			),
			'0',
			"$name has each change once $when");
		is($node->sql('SELECT count(*) FROM parallel_apply.conflicts'),
			'0', "$name had no conflict $when");
	}
	return;
}

# Assert that apply has never failed.
sub none_has_failed
{
	my (@all) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $_->sql(
			'SELECT sum(apply_error_count) FROM pg_stat_subscription_stats'),
		'0',
		$_->name . ' had no error') for @all;
	return;
}

# Assert that a number of transactions of each node is what each other node applies.
sub each_applies_the_others
{
	my ($when, @all) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = 50;
	my %before;
	for my $node (@all)
	{
		$node->wait_until_counted;
		$before{ $node->name } = $node->counter('transactions');
	}
	$_->commit_each(('INSERT INTO orders (amount) VALUES (1)') x $count)
	  for @all;
	wait_for_each_other(@all);
	for my $node (@all)
	{
		$node->wait_until_counted;
		is( $node->counter('transactions') - $before{ $node->name },
			$count * (@all - 1),
			$node->name . " applies what the others do, and no more, $when");
	}
	return;
}

# Assert that nothing makes apply strict.
sub none_is_strict
{
	my ($when, @all) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $node (@all)
	{
		my $count = @all - 1;
		ok( $node->poll_query_until(
				'postgres',
				"SELECT count(*) = $count AND count(strict_reason) = 0 FROM parallel_apply.subscriptions WHERE state = 'parallel'"
			),
			$node->name . " may apply in batches $when");
	}
	return;
}

### two nodes ####################################################################

$n1->create_extension;
$n1->sql(
	q(CREATE TABLE orders (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, node int NOT NULL DEFAULT 0, amount int NOT NULL);
	CREATE TABLE accounts (node int, id int, balance int NOT NULL, PRIMARY KEY (node, id));
	CREATE TABLE history (node int, id int, balance int, n int);
	CREATE INDEX ON history (node, n);
	INSERT INTO orders (amount) SELECT i FROM generate_series(1, 500) i;));
$n1->sql($look_at_histories);
add_accounts($n1);
on($n1, 'ALTER TABLE orders ALTER COLUMN id SET INCREMENT');
begin_load($n1);
prepare('n2', 1002);
on($n1, 'CREATE PUBLICATION mesh');
on($n2, 'CREATE SUBSCRIPTION n2_from_n1');
becomes_0_on($n2, 'SELECT count(*) FROM pg_subscription_rel WHERE');
on($n1, 'CREATE SUBSCRIPTION n1_from_n2');
add_accounts($n2);
begin_load($n2);
$n1->wait_until('count(*) = 20 FROM accounts WHERE node = 2',
	'n1 does not get what n2 writes');
wait_for_progress($n1, $n2);
none_is_strict('between two nodes', $n1, $n2);
end_loads($n1, $n2);
all_are_equal('on two nodes', $n1, $n2);
each_applies_the_others('on two nodes', $n1, $n2);

### a third node #################################################################

begin_load($_) for $n1, $n2;
prepare('n3', 1003);
on($n3, 'CREATE SUBSCRIPTION n3_from_n2');
my $slot = position_on($n2, 'SELECT confirmed_flush_lsn');

# Then the slot has more than n3 may apply.
wait_for_progress($n1, $n2);
like(on($n1, "SELECT parallel_apply.wait_for_lsn('n1_from_n2'", $slot),
	qr/^ t$/m, 'n1 gets to the position of the slot');
on($n1, "SELECT parallel_apply.pause('n1_from_n2'");
like(on($n1, "SELECT parallel_apply.drain('n1_from_n2'"),
	qr/^ t$/m, 'n1 stands still');
my $copied = position_on($n1, 'SELECT o.remote_lsn');

# What n2 writes during the copy is not on n1, and on n3 only later.
my $written = 'count(*) FROM history WHERE node = 2';
my $paused_at = $n1->sql("SELECT $written");
$n2->wait_until("(SELECT $written) > $paused_at + 20",
	'n2 is not written to');
on($n3, 'CREATE SUBSCRIPTION n3_from_n1');
$n3->wait_for_log(qr/might copy data that had a different origin/);
becomes_0_on($n3, 'SELECT count(*) FROM pg_subscription_rel r JOIN');
is($n3->sql("SELECT $written"),
	$paused_at, 'n3 has of n2 what n1 had when it paused');
on($n3, 'SELECT pg_replication_origin_advance(', $copied);
on($n3, 'ALTER SUBSCRIPTION n3_from_n2 ENABLE');
on($n1, "SELECT parallel_apply.resume('n1_from_n2'");
on($n1, 'CREATE SUBSCRIPTION n1_from_n3');
on($n2, 'CREATE SUBSCRIPTION n2_from_n3');
add_accounts($n3);
begin_load($n3);
$_->wait_until('count(*) = 20 FROM accounts WHERE node = 3',
	'n3 is not applied')
  for $n1, $n2;
wait_for_progress($n1, $n2, $n3);
none_is_strict('between three nodes', $n1, $n2, $n3);

### a column #####################################################################

on($_, 'SELECT parallel_apply.pause(subname)') for $n1, $n2, $n3;
on($_, 'ALTER TABLE orders ADD COLUMN note') for $n1, $n2, $n3;
$_->sql(q(INSERT INTO orders (amount, note) VALUES (0, 'noted')))
  for $n1, $n2, $n3;
on($_, 'SELECT parallel_apply.resume(subname)') for $n1, $n2, $n3;
$_->wait_until(q(count(*) = 3 FROM orders WHERE note = 'noted'),
	'the new column does not arrive')
  for $n1, $n2, $n3;
wait_for_progress($n1, $n2, $n3);
end_loads($n1, $n2, $n3);
all_are_equal('on three nodes', $n1, $n2, $n3);
$_->wait_until('count(*) = 1 FROM pg_stat_user_functions WHERE calls > 0',
	$_->name . ' has not looked at the histories')
  for $n1, $n2, $n3;
each_applies_the_others('on three nodes', $n1, $n2, $n3);
none_has_failed($n1, $n2, $n3);

### removal ######################################################################

begin_load($_) for $n1, $n2;
my $end = position_on($n3, 'SELECT pg_current_wal_lsn()');
my $wait = "SELECT parallel_apply.wait_for_lsn('n1_from_n3'";
like(on($n1, $wait, $end), qr/^ t$/m, 'n1 has everything of n3');
is( $n2->sql((printed($page, $wait))[0] =~ s/n1_/n2_/r =~ s/POSITION/$end/r),
	't',
	'and so has n2');
on($n1, 'DROP SUBSCRIPTION n1_from_n3');
on($n2, 'DROP SUBSCRIPTION n2_from_n3');
on($n3, "DROP SUBSCRIPTION n3_from_$_") for qw(n1 n2);

for my $node ($n1, $n2, $n3)
{
	is( $node->sql(
			q(SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name ~ 'n3')
			|| ' ' || (SELECT count(*) FROM pg_subscription WHERE subname ~ 'n3'))
		),
		'0 0',
		$node->name . ' has nothing left of the removed node');
}
wait_for_progress($n1, $n2);

### processes and servers die ######################################################

my @events = shuffle(
	map {
		my $node = $_;
		map { [ $node, $_ ] } qw(server writer apply);
	} $n1,
	$n2);
for my $event (@events)
{
	my ($node, $what) = @$event;
	my $name = $node->name;
	my $subscription = $node == $n1 ? 'n1_from_n2' : 'n2_from_n1';
	note("$what of $name");
	if ($what eq 'server')
	{
		$node->stop('immediate');
		$node->start;
		end_loads($node);
		begin_load($node);
	}
	elsif ($what eq 'apply')
	{
		$node->restart_apply($subscription);
	}
	else
	{
		$node->wait_for_pool($subscription, 3);
		my ($pid) = shuffle($node->writer_pids($subscription));
		$node->restart_apply($subscription,
			"SELECT pg_terminate_backend($pid)");
	}
	wait_for_progress($n1, $n2);
}
none_is_strict('after all of that', $n1, $n2);
end_loads($n1, $n2);
all_are_equal("after crashes, SEED=$seed", $n1, $n2);
$_->wait_for_pool($_->name eq 'n1' ? 'n1_from_n2' : 'n2_from_n1', 3)
  for $n1, $n2;
each_applies_the_others('after crashes', $n1, $n2);
all_are_equal("in the end, SEED=$seed", $n1, $n2);

### a conflict #####################################################################

for my $node ($n1, $n2)
{
	$node->append_conf('postgresql.conf', 'track_commit_timestamp = on');
	$node->restart;
}
for my $node ($n1, $n2)
{
	ok( $node->poll_query_until(
			'postgres',
			q(SELECT count(*) = 1 FROM parallel_apply.subscriptions WHERE state = 'parallel' AND strict_reason ~ 'track_commit_timestamp')
		),
		$node->name . ' makes no batches with track_commit_timestamp');
}
on($_, 'SELECT parallel_apply.pause(subname)') for $n1, $n2;
$_->sql('UPDATE accounts SET balance = -'
	  . number_of($_)
	  . ' WHERE node = 1 AND id = 1')
  for $n1, $n2;
on($_, 'SELECT parallel_apply.resume(subname)') for $n1, $n2;
wait_for_each_other($n1, $n2);
for my $node ($n1, $n2)
{
	my $name = $node->name;
	is( $node->sql('SELECT balance FROM accounts WHERE node = 1 AND id = 1'),
		$node == $n1 ? '-2' : '-1',
		"$name has the value of the other node");
	ok( $node->poll_query_until(
			'postgres',
			q(SELECT update_origin_differs = 1 FROM parallel_apply.conflicts WHERE relname = 'accounts')
		),
		"$name counts the conflict");
	next if $node->pg_version < 18;
	ok( $node->poll_query_until(
			'postgres',
			q(SELECT confl_update_origin_differs = 1 FROM pg_stat_subscription_stats)
		),
		"and so does PostgreSQL on $name");
}
$n1->sql('UPDATE accounts SET balance = -3 WHERE node = 1 AND id = 1');
wait_for_each_other($n1, $n2);
PapplyPair->new($n1, $n2)
  ->rows_equal('accounts', 'the next update makes the nodes equal again');

# One key on two nodes, and the repair that the manual has for it: what a session with an
# origin does is not sent.
on($_, 'SELECT parallel_apply.pause(subname)') for $n1, $n2;
$_->sql('INSERT INTO accounts VALUES (8, 1, ' . number_of($_) . ')')
  for $n1, $n2;
on($_, 'SELECT parallel_apply.resume(subname)') for $n1, $n2;
$_->wait_until('count(*) = 1 FROM parallel_apply.failed_transactions',
	'the key is no conflict')
  for $n1, $n2;
run_manual_on($n2);
psql_prints(mentioned($page, 'SELECT pg_replication_origin_create(')
	  . '; DELETE FROM accounts WHERE node = 8;');
$n1->sql(q(SELECT parallel_apply.skip_transaction('n1_from_n2')));
wait_for_each_other($n1, $n2);
is($_->sql('SELECT balance FROM accounts WHERE node = 8'),
	'1', $_->name . ' has the row of n1')
  for $n1, $n2;

### a node is lost #################################################################

$n2->stop('immediate');
$n1->wait_until(
	q(NOT active FROM pg_replication_slots WHERE slot_name = 'n2_from_n1'),
	'the walsender does not end');
run_manual_on($n1);
psql_prints((printed($page, $_))[0] =~ s/n3/n2/gr)
  for 'ALTER SUBSCRIPTION n1_from_n3 DISABLE',
  'SELECT pg_drop_replication_slot(';
is( $n1->sql(
		'SELECT (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_replication_slots)'
	),
	'0',
	'nothing is left of a node that was lost');

finish(
	$n1, $n2, $n3,
	duplicate_key('accounts'),
	qr/FATAL: .*terminating .* due to administrator command/);
done_testing();
