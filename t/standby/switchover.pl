# Promise: after a switch-over of a subscriber to its standby, and back, apply continues on the
# server that was promoted, and each transaction is applied exactly once, even if the former
# primary still runs and occupies the slot.
#
# pgbench writes to the publisher all the time, except while both servers run.  What is
# lost, repeated or applied in another order would show in a chain of balances.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $first) = new_pair(
	subscriber_conf => q(
		wal_level = replica
		wal_log_hints = on
		wal_keep_size = 1GB
		max_wal_senders = 4
		max_worker_processes = 20
		parallel_apply.writers_per_subscription = 3));
$pair->create_accounts;
$first->create_extension;
$pair->subscribe('tap');
my $load;

# Some transactions of the load are applied.
sub continues
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { $node->wait_for_progress; 1 }, $name);
}

# A server that is stopped becomes a standby of another one, and has what that one has
# committed.
sub follow
{
	my ($node, $primary) = @_;
	my $connstr = $primary->connstr;
	$node->append_conf('postgresql.conf',
		"primary_conninfo = '$connstr application_name=" . $node->name . "'");
	$node->set_standby_mode;
	$node->start;
	$primary->flush_wal;
	$primary->wait_for_catchup($node);
	return;
}

# The old primary ends as it should, and the standby takes over.
sub switch_over
{
	my ($old, $new) = @_;
	$old->stop('fast');
	$new->promote;
	$new->wait_for_pool('tap');
	return;
}

### max_worker_processes

$first->backup('backup');
my $second = PapplyNode->new('second');
$second->init_from_backup($first, 'backup', has_streaming => 1);
$second->start;
$load = $publisher->start_accounts_load(300);
continues($first, 'a standby follows');
$first->wait_for_catchup($second);

my $offset = -s $second->logfile;
$first->append_conf('postgresql.conf', 'max_worker_processes = 24');
$first->restart;
$second->wait_for_log(
	qr/max_worker_processes = 20 is a lower setting than on the primary server, where its value was 24/,
	$offset);
ok( $second->poll_query_until(
		'postgres', q(SELECT pg_get_wal_replay_pause_state() = 'paused')),
	'recovery pauses when max_worker_processes is raised on the primary first'
);
$second->stop;
$second->append_conf('postgresql.conf', 'max_worker_processes = 24');
$second->start;
continues($second, 'and resumes when the standby has as many');

### switchover and back

switch_over($first, $second);
continues($second, 'apply continues on the standby after a switchover');
follow($first, $second);
continues($first, 'of which the former primary is the standby');

switch_over($second, $first);
continues($first, 'and back');
$publisher->end_load($load);
$pair->accounts_are_equal('after both');
follow($second, $first);

### two primaries

# Not a transaction is applied by the old one that the new one would need.
$offset = -s $second->logfile;
$second->promote;
$second->wait_for_log(qr/replication slot "tap" is active for PID \d+/,
	$offset);
ok(1, 'the slot is not free for a new primary as long as the old one runs');
$first->stop('fast');
$second->wait_for_pool('tap');
$load = $publisher->start_accounts_load(300);
continues($second, 'then apply continues there');

# Before 16, pg_rewind takes the timeline from the source's control file, which has the
# new one after the first checkpoint.
$second->sql('CHECKPOINT');

# The configuration of the other server comes along.
my $conf = slurp_file($first->data_dir . '/postgresql.conf');
command_ok(
	[
		'pg_rewind', '-D',
		$first->data_dir, '--no-sync',
		'--source-server', $second->connstr('postgres')
	],
	'pg_rewind');
unlink $first->data_dir . '/postgresql.conf' or die;
append_to_file($first->data_dir . '/postgresql.conf', $conf);
follow($first, $second);
continues($first, 'makes the former primary a standby');
$publisher->end_load($load);
PapplyPair->new($publisher, $second)->accounts_are_equal('in the end');
$second->flush_wal;
$second->wait_for_catchup($first);
$pair->rows_equal('history', 'on the standby, too');

$first->stop;

# That a server has ended is noticed by those that are connected with it.
finish($publisher, $second,
	qr/FATAL: .*(could not (connect to the primary|(receive data from|send data to) WAL stream|start WAL streaming|send end-of-streaming)|terminating (walreceiver process|logical replication worker))/
);
done_testing();
