# Promise: if the pool stops while a table is being copied, a change that
# PostgreSQL's own apply has left to the synchronization of the table, in the pool's
# place, is not lost.
#
# The copy waits for a local session, and so does a transaction of the pool, which
# is still to be applied when the copy has begun.  The publisher is stopped from
# then on, so that no message tells the apply worker its position.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE late (id int PRIMARY KEY, v int NOT NULL);));
$subscriber->create_extension;
$publisher->sql(
	'INSERT INTO gate VALUES (1, 0); INSERT INTO late VALUES (1, 0)');
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE gate',
	with => 'streaming = off');
my $copy = $subscriber->hold('INSERT INTO late VALUES (1, -1)');
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1');
$subscriber->wait_for_state('waiting for lock');
$pair->begin_copy('late');
$publisher->sql('CREATE TABLE filler AS SELECT generate_series(1, 200000)');
$publisher->sql(
	q(BEGIN; UPDATE gate SET n = n + 1; INSERT INTO late VALUES (2, 2); COMMIT)
);
my $lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
$subscriber->poll_query_until('postgres',
	"SELECT received_lsn >= '$lsn' FROM pg_stat_subscription WHERE subname = 'tap' AND relid IS NULL"
) or die 'the transaction is not received';
my $walsender = $publisher->sql(
	q(SELECT pid FROM pg_stat_replication WHERE application_name = 'tap'));
$publisher->stop_waiting($walsender, 'WalSender%');
$subscriber->sql('DROP EXTENSION parallel_apply');
my $offset = -s $subscriber->logfile;
$lock->query_safe('COMMIT');
$subscriber->wait_for_log(
	qr/parallel apply of subscription "tap" has stopped/, $offset);
$copy->query_safe('ROLLBACK');
$subscriber->poll_query_until('postgres',
	q(SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's'))
) or die 'the table did not become ready';
kill 'CONT', $walsender;
$publisher->sql('INSERT INTO late VALUES (3, 3)');
$publisher->wait_applied;
$pair->rows_equal($_) for qw(gate late);
$_->quit for $lock, $copy;
finish($publisher, $subscriber);
done_testing();
