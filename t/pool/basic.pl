# Promise: a pool of writers applies an ordinary subscription as soon as the
# extension is installed, and PostgreSQL itself does so as soon as the extension is
# dropped.  Neither needs a restart, and no transaction is lost or repeated.
#
# No race is forced.  Each change of configuration is made while transactions are
# being applied, and the tables must be equal after each.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
my @tables = qw(accounts branches history);

$pair->exec_both(
	q(CREATE TABLE branches (bid int PRIMARY KEY, balance int NOT NULL, filler text);
	CREATE TABLE accounts (aid int PRIMARY KEY, bid int NOT NULL REFERENCES branches,
		balance int NOT NULL);
	CREATE TABLE history (hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aid int,
		delta int, mtime timestamptz DEFAULT clock_timestamp());));
$publisher->sql(
	q(INSERT INTO branches SELECT i, 0, repeat('x', 100) FROM generate_series(1, 10) i;
	INSERT INTO accounts SELECT i, i % 10 + 1, 0 FROM generate_series(1, 1000) i;)
);

# Many small transactions that change the same rows: inserts, updates, deletes
sub make_changes
{
	my ($seed) = @_;
	my $sql = '';
	for my $i (1 .. 200)
	{
		my $aid = ($seed * 7919 + $i * 104729) % 1000 + 1;
		my $branch = $aid % 10 + 1;
		$sql .=
		  "BEGIN; UPDATE accounts SET balance = balance + $i WHERE aid = $aid;"
		  . " UPDATE branches SET balance = balance + $i WHERE bid = $branch;"
		  . " INSERT INTO history (aid, delta) VALUES ($aid, $i); COMMIT;\n";
		$sql .=
			"DELETE FROM accounts WHERE aid = $aid;\n"
		  . "INSERT INTO accounts VALUES ($aid, $branch, -$i);\n"
		  if $i % 20 == 0;
	}
	$sql .= "DELETE FROM history WHERE hid % 5 = 0;\n";
	$publisher->sql($sql);
	return;
}

$subscriber->create_extension;
# Where streaming = parallel is the default, it depends on whether a pool exists,
# and a change of it takes a new connection.
$pair->subscribe('tap', with => 'streaming = off');
$pair->tables_equal('after the initial copy', @tables);
my $apply_pid = $subscriber->apply_pid('tap');

$subscriber->wait_for_pool('tap', 4);
is(scalar($subscriber->writer_pids('tap')),
	4, 'the pool has the default number of writers');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT count(*) FROM parallel_apply.writers w JOIN pg_stat_activity a USING (pid)
		WHERE a.application_name = format('parallel_apply writer %s:%s', w.subid, w.writer)
		AND a.backend_type = 'parallel_apply writer'),
		'4'),
	'pg_stat_activity shows each writer by its name');

make_changes(1);
$pair->tables_equal('after changes applied by the pool', @tables);
cmp_ok($subscriber->counter('transactions'),
	'>=', 200, 'the writers have applied them');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'the apply worker is still the same');

# The extension is dropped and created again.
$subscriber->sql('DROP EXTENSION parallel_apply');
make_changes(2);
$pair->tables_equal('without the extension', @tables);
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%')
	),
	'the writers are gone with the extension');
ok( $subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has stopped/),
	'the log says that the pool has stopped');

$subscriber->create_extension;
make_changes(3);
$subscriber->wait_for_pool('tap', 4);
make_changes(4);
$pair->tables_equal('with the extension again', @tables);
cmp_ok($subscriber->counter('transactions'),
	'>', 0, 'the pool is back at work');

# The number of writers follows a reload, and the connection stays.
sub set_writers
{
	my ($writers) = @_;
	$subscriber->append_conf('postgresql.conf',
		"parallel_apply.writers_per_subscription = $writers");
	$subscriber->reload;
	return;
}

$apply_pid = $subscriber->apply_pid('tap');
set_writers(1);
make_changes(5);
$subscriber->wait_for_pool('tap', 0);
make_changes(6);
$pair->tables_equal('with one writer, which is PostgreSQL itself', @tables);

set_writers(3);
make_changes(7);
$subscriber->wait_for_pool('tap', 3);
make_changes(8);
$pair->tables_equal('with three writers', @tables);
is($subscriber->apply_pid('tap'),
	$apply_pid, 'a change of settings does not restart the apply worker');

# The extension cannot work without the library, and reports that.
my $plain = PapplyNode->new('plain');
$plain->init;
$plain->start;
my ($status, $stdout, $stderr) =
  $plain->psql('postgres', 'CREATE EXTENSION parallel_apply');
isnt($status, 0, 'CREATE EXTENSION fails where the library is not preloaded');
like(
	$stderr,
	qr/ERROR: +"parallel_apply" must be loaded via "shared_preload_libraries"\n.*HINT: /s,
	'and a hint tells how to load it');

finish($publisher, $subscriber);
$plain->stop;
done_testing();
