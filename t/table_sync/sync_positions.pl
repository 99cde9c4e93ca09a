# Promise: a table that is being synchronized gets each transaction once: from the
# synchronization worker up to a position that the apply worker determines, and from
# the apply worker after it.
#
# The apply worker has left a change of table first to the synchronization worker of
# that table, and is blocked at the end of that transaction by the worker of another
# table, second.  Meanwhile the copy of first is done, and its worker asks how far
# it has to go.  The apply worker also applies the next transaction, so that it
# answers between the two, but not before the end of the one that it skipped.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
my @tables = qw(gate stop first second);
$pair->exec_both("CREATE TABLE $_ (id int PRIMARY KEY, v int)") for @tables;
$publisher->sql("INSERT INTO $_ VALUES (1, 0)") for @tables;
$subscriber->create_extension;
$pair->subscribe('tap', publication => 'FOR TABLE gate, stop');
my $apply_pid = $subscriber->apply_pid('tap');

# This many processes of logical replication wait for a lock, and for the state of
# another one.
sub wait_for_waits
{
	my ($locks, $states, $condition) = @_;
	$condition //= 'true';
	$subscriber->poll_query_until(
		'postgres',
		qq(SELECT count(*) FILTER (WHERE wait_event_type = 'Lock') = $locks AND
			count(*) FILTER (WHERE wait_event = 'LogicalSyncStateChange') = $states AND
			bool_or($condition)
		FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%')
	) or die "not $locks wait for a lock and $states for a state";
	return;
}

# The copies wait for local sessions that have inserted the same rows.
my %copy;
for my $table (qw(first second))
{
	$copy{$table} = $subscriber->hold("INSERT INTO $table VALUES (1, -1)");
	$publisher->sql("ALTER PUBLICATION tap ADD TABLE $table");
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wake('tap');
	wait_for_waits(scalar(keys %copy), 0);
}

# Skipped changes move the origin, which survives a crash.
my $origin =
  q(SELECT remote_lsn FROM pg_replication_origin_status JOIN pg_subscription ON external_id = 'pg_' || oid);
my $lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
$publisher->sql('UPDATE first SET v = 1');
$publisher->wait_applied;
is($subscriber->sql("SELECT ($origin) > '$lsn'"),
	't', 'a new apply worker knows what was skipped');

# Two queued transactions for the apply worker, which stops in the first
my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
my $stop = $subscriber->hold('SELECT FROM stop FOR UPDATE');
$publisher->sql(
	q(UPDATE gate SET v = 1;
	BEGIN; UPDATE stop SET v = 1; INSERT INTO first VALUES (2, 0); UPDATE second SET v = 1; COMMIT;
	INSERT INTO first VALUES (3, 0);));
$lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
$subscriber->poll_query_until('postgres',
	"SELECT received_lsn >= '$lsn' FROM pg_stat_subscription WHERE pid = $apply_pid"
) or die 'the transactions are not received';
$gate->query_safe('ROLLBACK');
wait_for_waits(3, 0, "pid = $apply_pid AND wait_event_type = 'Lock'");

# At the end of the transaction it finds second copied, and waits for the worker of
# second, which has to apply that transaction.
$copy{second}->query_safe('ROLLBACK');
wait_for_waits(2, 1);
my $row = $subscriber->hold('SELECT FROM second FOR UPDATE');
$stop->query_safe('ROLLBACK');
wait_for_waits(2, 1,
	"pid = $apply_pid AND wait_event = 'LogicalSyncStateChange'");

# The other table is copied meanwhile.
$copy{first}->query_safe('ROLLBACK');
wait_for_waits(1, 2);
$row->query_safe('ROLLBACK');

$subscriber->wait_for_subscription_sync($publisher, 'tap');
$pair->tables_equal('after its synchronization', @tables);
is($subscriber->apply_pid('tap'),
	$apply_pid, 'by the same apply worker all the time');
$_->quit for $gate, $stop, $row, values %copy;

# What was confirmed as flushed is there after a crash.
$pair->exec_both('CREATE TABLE third (id int PRIMARY KEY, v int)');
$publisher->sql('INSERT INTO third VALUES (1, 0)');
my $copy = $subscriber->hold('INSERT INTO third VALUES (1, -1)');
$publisher->sql('ALTER PUBLICATION tap ADD TABLE third');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wake('tap');
wait_for_waits(1, 0);
$lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
$publisher->sql('UPDATE third SET v = 1');
$publisher->poll_query_until('postgres',
	"SELECT flush_lsn > '$lsn' FROM pg_stat_replication WHERE application_name = 'tap'"
) or die 'skipped changes are not confirmed';
$subscriber->stop('immediate');
$copy->quit;
$subscriber->append_conf('postgresql.conf',
	'max_logical_replication_workers = 0');
$subscriber->start;
is($subscriber->sql("SELECT ($origin) > '$lsn'"),
	't', 'and so does one after a crash');
$subscriber->append_conf('postgresql.conf',
	'max_logical_replication_workers = 8');
$subscriber->restart;
$subscriber->wait_for_subscription_sync($publisher, 'tap');
$pair->tables_equal('after a crash', @tables, 'third');
finish($publisher, $subscriber);
done_testing();
