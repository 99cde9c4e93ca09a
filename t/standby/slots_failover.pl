# Promise: if the publisher crashes, and its standby takes over with the slot of the
# subscription (PostgreSQL 17 and later), apply continues with the settings of the manual
# (doc/high_availability.md), and each transaction is applied exactly once.
#
# pgbench writes to the publisher until it crashes.  What the standby has not received is
# lost; because of synchronized_standby_slots, the subscriber cannot have it, either.  The
# test forces that: the standby stops receiving, and the publisher commits more.
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
		parallel_apply.writers_per_subscription = 3
		wal_receiver_status_interval = 1s));
if ($publisher->pg_version < 17)
{
	plan skip_all => 'failover slots need PostgreSQL 17';
}
$pair->create_accounts;
$subscriber->create_extension;
$pair->subscribe('tap');

# The settings of the manual.
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$publisher->poll_query_until('postgres',
	q(SELECT active_pid IS NULL FROM pg_replication_slots WHERE slot_name = 'tap')
) or die 'the slot does not become free';
$subscriber->sql('ALTER SUBSCRIPTION tap SET (failover = true)');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->wait_for_pool('tap');
$publisher->sql(q(SELECT pg_create_physical_replication_slot('standby')));
$publisher->backup('backup');
my $standby = PapplyNode->new('standby');
$standby->init_from_backup($publisher, 'backup', has_streaming => 1);
my $connstr = $publisher->connstr;
$standby->append_conf('postgresql.conf', <<~"CONF");
	primary_conninfo = '$connstr dbname=postgres application_name=standby'
	primary_slot_name = 'standby'
	sync_replication_slots = on
	hot_standby_feedback = on
	CONF
$standby->start;
$publisher->reload_with(q(synchronized_standby_slots = 'standby'));

my $load = $publisher->start_accounts_load(300);
$subscriber->wait_for_progress;
ok( $standby->poll_query_until(
		'postgres',
		q(SELECT synced AND NOT temporary AND failover FROM pg_replication_slots WHERE slot_name = 'tap')
	),
	'the slot is on the standby');
$subscriber->wait_for_progress;

# The crash.
my $receiver = $standby->sql('SELECT pid FROM pg_stat_wal_receiver');
$standby->stop_waiting($receiver, 'WalReceiverMain');
my $count = $publisher->sql('SELECT count(*) FROM history');
$publisher->poll_query_until('postgres',
	"SELECT count(*) > $count + 200 FROM history")
  or die 'nothing is written any more';
$publisher->kill9;
$load->finish;    # it has lost its connections
my $last = $subscriber->sql('SELECT coalesce(max(id), 0) FROM history');
kill $_, $receiver for 'TERM', 'CONT';
$standby->poll_query_until('postgres',
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $receiver")
  or die 'the WAL receiver does not end';

$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'the end of recovery does not come';
cmp_ok($standby->sql('SELECT max(id) FROM history'),
	'>=', $last, 'the subscriber is not ahead of the standby');
$connstr = $standby->connstr;
$subscriber->sql(
	"ALTER SUBSCRIPTION tap CONNECTION '$connstr dbname=postgres'");
$standby->sql(
	q(
	UPDATE accounts SET balance = balance + 1;
	INSERT INTO history (account, balance) SELECT id, balance FROM accounts;));
$subscriber->wait_for_pool('tap');
PapplyPair->new($standby, $subscriber)
  ->accounts_are_equal('after the failover');
$subscriber->counter_becomes('transactions', '>= 1', 'by writers');

finish($standby, $subscriber,
	qr/could not (receive|connect|send|fetch)|terminating walreceiver process/
);
done_testing();
