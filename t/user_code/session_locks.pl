# Promise: advisory locks that user code keeps for its session are kept by one
# session, the apply worker's, as with PostgreSQL's own apply.  It acquires them
# repeatedly, other sessions do not get them, and the transactions that need them
# are applied.
#
# Many transactions fire triggers that take such locks, so that several writers
# would have to take them.  Detects: a writer keeps the lock, another one waits for
# it, and nothing is applied any more; the lock is missing.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1));
my @tables = qw(gate keeping trying own concurrent checked plain released);

$pair->exec_both(
	join "\n",
	'CREATE TABLE gate (id int PRIMARY KEY, n int);',
	map { "CREATE TABLE $_ (id int PRIMARY KEY);" } @tables[ 1 .. $#tables ]);
$subscriber->sql(
	q(CREATE TABLE tried (id int, has_lock boolean);
	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_advisory_lock(TG_ARGV[0]::int); RETURN NEW; END$$;
	CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO public.tried VALUES (NEW.id, pg_try_advisory_lock(2)); RETURN NEW; END$$;
	CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_advisory_xact_lock(3); RETURN NEW; END$$;
	CREATE FUNCTION release() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_advisory_unlock_all(); RETURN NEW; END$$;
	CREATE FUNCTION check_and_keep() RETURNS boolean LANGUAGE sql AS
		$$SELECT pg_advisory_lock(5) IS NOT NULL$$;
	ALTER TABLE checked ADD CHECK (check_and_keep());
	CREATE TRIGGER code AFTER INSERT ON keeping FOR EACH ROW EXECUTE FUNCTION keep(1);
	CREATE TRIGGER code AFTER INSERT ON trying FOR EACH ROW EXECUTE FUNCTION try();
	CREATE TRIGGER code AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION own();
	CREATE TRIGGER code AFTER INSERT ON concurrent FOR EACH ROW EXECUTE FUNCTION keep(4);
	CREATE TRIGGER code AFTER INSERT ON released FOR EACH ROW EXECUTE FUNCTION release();
	ALTER TABLE keeping ENABLE ALWAYS TRIGGER code;
	ALTER TABLE trying ENABLE ALWAYS TRIGGER code;
	ALTER TABLE own ENABLE ALWAYS TRIGGER code;
	ALTER TABLE concurrent ENABLE ALWAYS TRIGGER code;
	ALTER TABLE released ENABLE ALWAYS TRIGGER code;));
$subscriber->create_extension;
$subscriber->sql(
	q(SELECT parallel_apply.set_table_option('concurrent', 'triggers', 'parallel'))
);
$pair->subscribe('tap');
$publisher->sql('INSERT INTO gate VALUES (1, 0)');

my $row = 0;

# This many transactions, each with a row of a table, arrive while the first one is
# blocked, with others between them.
sub insert_each
{
	my ($table, $count) = @_;
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		join '',
		"UPDATE gate SET n = n + 1;\n",
		map {
			$row++;
			"INSERT INTO $table VALUES ($row);\nINSERT INTO plain VALUES ($row);\n"
		} 1 .. $count);
	$subscriber->wait_for_state('waiting for lock');
	$gate->release;
	return;
}

# Assert which processes keep advisory locks: the apply worker, or none.
my $apply_worker = '^logical replication [a-z ]*worker$';
my $none = '^$';

sub holders_become
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			qq(SELECT coalesce(string_agg(DISTINCT backend_type, ', '), '') ~ '$expected'
			FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE locktype = 'advisory' AND granted)),
		$name);
}

# Locks of the transaction have no effect.
insert_each('own', 10);
$pair->tables_equal('with locks of transactions', @tables);
is($subscriber->fallbacks, '0',
	'writers apply what locks for its transaction');
unlike(
	slurp_file($subscriber->logfile),
	qr/WARNING:.*own a lock/,
	'and nothing is logged');

insert_each('keeping', 20);
$pair->tables_equal('with a lock that is kept', @tables);
holders_become($apply_worker, 'the apply worker keeps the lock');
is($subscriber->sql('SELECT pg_try_advisory_lock(1)'),
	'f', 'others do not get it');
cmp_ok($subscriber->fallbacks, '>=', 20,
	'which the core apply loop has taken');
my ($reports) = 0 + (() = slurp_file($subscriber->logfile) =~
	  /LOG:  apply worker of subscription "tap" keeps an advisory lock/g);
is($reports, 1, 'the log has one message');

insert_each('trying', 10);
$pair->tables_equal('with a lock that is tried', @tables);
is($subscriber->sql('SELECT count(*), bool_and(has_lock) FROM tried'),
	'10|t', 'it is had each time');

# A table whose triggers are applied concurrently
insert_each('concurrent', 20);
$pair->tables_equal('with concurrent triggers', @tables);
holders_become($apply_worker, 'no writer keeps a lock');

# Detects: writers run user code again, find another lock at the end, and the code is run
# a second time.
insert_each('released', 1);
$pair->tables_equal('with locks that are released', @tables);
holders_become($none, 'the apply worker has released its locks');
my $before = $subscriber->fallbacks;
insert_each('own', 10);
$pair->tables_equal('with locks of transactions again', @tables);
cmp_ok($subscriber->fallbacks - $before,
	'>=', 10, 'the apply worker still runs user code');

# The next apply worker has no locks.  The first concurrent triggers are queued at the
# same time.
$subscriber->connect_again('tap');
$before = $subscriber->fallbacks;
insert_each('own', 10);
$pair->tables_equal('with locks of transactions, after a restart', @tables);
is($subscriber->fallbacks, $before, 'writers apply them again');
insert_each('concurrent', 20);
$pair->tables_equal('with concurrent triggers again', @tables);

# A function
$subscriber->connect_again('tap');
insert_each('checked', 10);
$pair->tables_equal('with a lock of a CHECK constraint', @tables);
holders_become($apply_worker, 'the apply worker keeps it');

# The apply worker keeps it, and a writer needs it for a CHECK constraint.
$subscriber->sql(
	q(CREATE TRIGGER code AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION keep(5);
	ALTER TABLE plain ENABLE ALWAYS TRIGGER code;));
$publisher->sql('INSERT INTO plain VALUES (1000)');
$pair->tables_equal('with the same lock', 'plain');
$publisher->sql('INSERT INTO checked VALUES (1000)');
$pair->tables_equal('of the apply worker and a CHECK constraint', @tables);

finish($publisher, $subscriber);
done_testing();
