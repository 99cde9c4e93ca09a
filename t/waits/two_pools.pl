# Promise: writers of two subscriptions that change the same tables do not block
# each other forever, and a waiting writer does not block VACUUM.
#
# A local session holds rows until the cycle of waits is closed: the oldest
# transaction of each pool needs a row that a younger one of the other pool has
# changed, and the younger ones wait for their turn, which the lock manager does not
# see.  Detects: a search for blockers that ends at writers of another pool; index
# pages that stay pinned during a wait.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(
	subscriber_conf => "parallel_apply.writers_per_subscription = 2\n");
my $tables = q(
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE t (id int PRIMARY KEY, n int);
	INSERT INTO gate VALUES (1, 0), (2, 0);
	INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i;
);
$publisher->sql('CREATE DATABASE two');
$publisher->safe_psql($_, $tables) for 'postgres', 'two';
$subscriber->sql($tables);
$subscriber->create_extension;

for ([ 'one', 'postgres' ], [ 'two', 'two' ])
{
	my ($name, $db) = @$_;
	my $connstr = $publisher->connstr . " dbname=$db";

	$publisher->safe_psql($db, "CREATE PUBLICATION $name FOR ALL TABLES");
	$subscriber->sql(
		"CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name WITH (copy_data = false)"
	);
	$subscriber->wait_for_pool($name, 2);
}

# A writer that has used the index of t, and now waits for an older transaction
$publisher->sql('DELETE FROM t WHERE id > 900');
$publisher->wait_applied('one');
my $session = $subscriber->hold('SELECT * FROM gate FOR UPDATE');
$publisher->sql(
	'BEGIN; UPDATE gate SET n = 1 WHERE id = 1; UPDATE t SET n = 1 WHERE id = 7; COMMIT'
);
$subscriber->wait_for_state('waiting for lock');
$publisher->sql(
	'BEGIN; UPDATE t SET n = 1 WHERE id = 5; UPDATE t SET n = 1 WHERE id = 7; COMMIT'
);
$subscriber->wait_for_state('waiting for dependency');
my $seconds = $PostgreSQL::Test::Utils::timeout_default;
my ($ret, $out, $err) = $subscriber->psql('postgres',
	"SET statement_timeout = '${seconds}s'; VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) t"
);
is($err, '', 'VACUUM is not held up by a waiting writer');
$session->release;
$publisher->wait_applied('one');

# The cycle of waits
$session = $subscriber->hold('SELECT * FROM gate FOR UPDATE');
$publisher->sql(
	'BEGIN; UPDATE gate SET n = 2 WHERE id = 1; UPDATE t SET n = 2 WHERE id = 1; COMMIT; UPDATE t SET n = 2 WHERE id = 2'
);
$publisher->safe_psql('two',
	'BEGIN; UPDATE gate SET n = 2 WHERE id = 2; UPDATE t SET n = 2 WHERE id = 2; COMMIT; UPDATE t SET n = 2 WHERE id = 1'
);
$subscriber->wait_for_state('waiting for lock', 2);
$subscriber->wait_for_state('waiting for prior commit', 2);
$session->release;
$publisher->wait_applied($_) for 'one', 'two';
cmp_ok($subscriber->counter('commit_order_aborts'),
	'>', 0, 'a younger one gave way');

is($subscriber->sql('SELECT id, n FROM gate ORDER BY id'),
	"1|2\n2|2", 'both subscriptions are applied');
$pair->rows_equal('t');
finish($publisher, $subscriber);
done_testing();
