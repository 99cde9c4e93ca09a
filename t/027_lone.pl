# A small transaction that is received while there is nothing else to do is
# applied by the apply worker itself; everything else by writers.
#
# Writers get all of them for a second after a slow one, and anything may be slow
# on a busy machine.  So what depends on time is tried again until it was seen.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(subscriber_conf => 'parallel_apply.apply_lone_transactions = on');

exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE wide (id int PRIMARY KEY, t text);
	CREATE TABLE whole (id int PRIMARY KEY, v int);
	ALTER TABLE whole REPLICA IDENTITY FULL;));
on_publisher(
	q(INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i;
	INSERT INTO whole VALUES (1, 0);));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap');

# Applied so far: (by the apply worker as lone ones, by writers).
sub applied
{
	wait_applied($publisher, $subscriber, 'tap');
	my $counts = on_subscriber(
		q(SELECT native_replays_lone, transactions - native_transactions
		FROM parallel_apply.subscriptions));
	return split /\|/, $counts;
}

# How many the apply worker and writers apply of what that does on the publisher.
sub applied_of
{
	my ($sql) = @_;
	my @before = applied();
	on_publisher($sql);
	my @after = applied();
	return ($after[0] - $before[0], $after[1] - $before[1]);
}

# Does one of some attempts have that result?
sub comes_true
{
	my ($name, $attempt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 30)
	{
		return pass($name) if $attempt->();
	}
	return fail($name);
}

sub tables_are_equal
{
	wait_applied($publisher, $subscriber, 'tap');
	rows_equal($publisher, $subscriber, $_) for qw(items wide whole);
	return;
}

### who applies

comes_true(
	'a lone transaction is applied by the apply worker',
	sub { (applied_of('UPDATE items SET v = v + 1'))[0] == 1 });

# The apply worker is stopped while they come, so that it finds them together.
comes_true(
	'transactions that follow each other are all applied by writers',
	sub {
		my $apply = apply_pid($subscriber, 'tap');
		return 0 if (applied_of('UPDATE items SET v = v + 1'))[0] == 0;
		my @before = applied();
		kill 'STOP', $apply;
		on_publisher(join '',
			map { "UPDATE items SET v = $_ WHERE id = $_;\n" } 1 .. 20);
		kill 'CONT', $apply;
		my @after = applied();
		return $after[0] == $before[0] && $after[1] == $before[1] + 20;
	});

my @large = applied_of(
	q(INSERT INTO wide SELECT i, repeat('x', 1000) FROM generate_series(1, 200) i)
);
is("@large", '0 1', 'a large transaction is applied by a writer');
my @full = applied_of('UPDATE whole SET v = v + 1');
is("@full", '0 1',
	'a row that is not found by its identity is looked for by a writer');
tables_are_equal();

### local locks

# Held up by a lock, the apply worker waits like PostgreSQL's own; what comes
# meanwhile is not lost, and what comes after is for writers.
my $apply = apply_pid($subscriber, 'tap');
comes_true(
	'after one that was slow, writers get the next one',
	sub {
		my @before = applied();
		my $session =
		  hold($subscriber, 'SELECT FROM items WHERE id = 1 FOR UPDATE');
		on_publisher('UPDATE items SET v = v + 1 WHERE id = 1');
		$subscriber->poll_query_until('postgres',
			q(SELECT count(*) > 0 FROM pg_locks WHERE NOT granted))
		  or die 'nobody waits for the lock';
		on_publisher('UPDATE items SET v = v + 1 WHERE id = 2');
		$session->query_safe('COMMIT');
		$session->quit;
		my @after = applied();
		my @next = applied_of('UPDATE items SET v = v + 1 WHERE id = 3');
		return $after[0] > $before[0] && $next[1] == 1;
	});
is(apply_pid($subscriber, 'tap'), $apply, 'the apply worker is the same');
tables_are_equal();

### errors

# As with PostgreSQL's own apply: the worker ends, tries again, and goes on
# when that transaction is skipped.
on_subscriber('INSERT INTO items VALUES (100, 0)');
my $offset = -s $subscriber->logfile;
my $error = qr/duplicate key value violates unique constraint "items_pkey"/;
on_publisher('INSERT INTO items VALUES (100, 1)');
$subscriber->wait_for_log($error, $offset);
$subscriber->wait_for_log(qr/finished at ([0-9A-F]+\/[0-9A-F]+)/, $offset);
my ($lsn) = slurp_file($subscriber->logfile, $offset) =~
  /transaction \d+,? finished at ([0-9A-F]+\/[0-9A-F]+)/;
on_subscriber("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
wait_for_pool($subscriber, 'tap');
wait_applied($publisher, $subscriber, 'tap');
is(on_subscriber('SELECT v FROM items WHERE id = 100'),
	0, 'the failing transaction was skipped');
on_publisher('UPDATE items SET v = 2 WHERE id = 100');
tables_are_equal();

### off

reload_with($subscriber, 'parallel_apply.apply_lone_transactions = off');
comes_true(
	'with the setting off, writers apply lone transactions',
	sub { (applied_of('UPDATE items SET v = v + 1'))[1] == 1 });
my @off = applied_of('UPDATE items SET v = v + 1');
is("@off", '0 1', 'all of them');
tables_are_equal();

finish($publisher, $subscriber, duplicate_key('items'));
done_testing();
