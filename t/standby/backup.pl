# Promise: a base backup of the subscriber and the archive of its WAL restore a subscription
# with its position.  A copy that is only read leaves the slot alone, by the statements of the
# manual (doc/high_availability.md).  A copy that is restored to the end of the WAL takes the
# place of the subscriber.  One that is restored to an earlier moment misses what lies
# between, as the manual says.
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
		wal_level = replica
		max_wal_senders = 4));
$pair->create_accounts;
$subscriber->create_extension;
$pair->subscribe('tap');
$subscriber->enable_archiving;
$subscriber->restart;
$subscriber->wait_for_pool('tap');

my $rows = 0;

# Transactions that are applied then.
sub write_history
{
	my ($node, $count) = @_;
	$publisher->sql(
		join '',
		map {
			"BEGIN; UPDATE accounts SET balance = balance + 1 WHERE id = $_ % 20 + 1;
			INSERT INTO history (account, balance) SELECT id, balance FROM accounts WHERE id = $_ % 20 + 1; COMMIT;\n"
		} 1 .. $count);
	$rows += $count;
	$publisher->wait_applied;
	return;
}

sub rows_of
{
	my ($node) = @_;
	return $node->sql('SELECT count(*) FROM history');
}

sub chain_is_whole
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$node->sql(
			q(SELECT count(*) FROM accounts a
			WHERE balance <> (SELECT count(*) FROM history h WHERE h.account = a.id))
		),
		'0',
		$name);
}

# A copy that has been restored, and accepts changes.
sub restore
{
	my ($name, @conf) = @_;
	my $copy = PapplyNode->new($name);
	$copy->init_from_backup(
		$subscriber, 'backup',
		has_restoring => 1,
		standby => 0);
	$copy->append_conf(
		'postgresql.conf', join "\n",
		'archive_mode = off',
		"recovery_target_action = promote", @conf);
	$copy->start;
	$copy->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'the end of recovery does not come';
	return $copy;
}

sub wait_until_archived
{
	my $file =
	  $subscriber->sql('SELECT pg_walfile_name(pg_current_wal_insert_lsn())');
	$subscriber->sql('SELECT pg_switch_wal()');
	$subscriber->wait_until(
		"'$file' <= last_archived_wal FROM pg_stat_archiver",
		'nothing is archived');
	return;
}

write_history($subscriber, 100);
$subscriber->backup('backup');
write_history($subscriber, 100);
$subscriber->sql(q(SELECT pg_create_restore_point('moment')));
my $before = $rows;
write_history($subscriber, 100);
wait_until_archived();

### a copy to look into

sub slot_user
{
	return $publisher->sql(
		q(SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'tap')
	);
}
my $user = slot_user();
my $copy = restore(
	'copy',
	q(recovery_target_name = 'moment'),
	'max_logical_replication_workers = 0');
is(rows_of($copy), $before, 'a copy has what was applied at its moment');
chain_is_whole($copy, 'and nothing else');
my ($leave) =
  slurp_file("$FindBin::RealBin/../../doc/high_availability.md") =~
  /`(ALTER SUBSCRIPTION s DISABLE;[^`]*DROP SUBSCRIPTION s)`/
  or die 'no statements in the manual';
$copy->sql("$_;")
  for split /;\s*/, $leave =~ s/SUBSCRIPTION s\b/SUBSCRIPTION tap/gr;
$copy->adjust_conf('postgresql.conf', 'max_logical_replication_workers', 4);
$copy->restart;
write_history($subscriber, 100);
is(slot_user(), $user, 'it has never taken the slot');
is(rows_of($copy), $before, 'and gets no more changes');
$copy->log_is_clean;
unlike(
	slurp_file($copy->logfile),
	qr/logical replication apply worker for subscription/,
	'for there was no apply worker');
$copy->stop;

### in the place of the subscriber

$subscriber->stop;
my $successor = restore('successor');
$successor->wait_for_pool('tap');
write_history($successor, 100);
$publisher->wait_for_catchup('tap', 'flush');
PapplyPair->new($publisher, $successor)
  ->rows_equal($_, "$_ is equal when all WAL has been restored")
  for qw(accounts history);
chain_is_whole($successor, 'and each transaction was applied once');
$successor->log_is_clean;
$successor->stop;

my $late = restore('late', q(recovery_target_name = 'moment'));
$late->wait_for_pool('tap');
write_history($late, 100);
is( rows_of($late),
	$before + 100,
	'what was confirmed after the restored moment is not sent again');

finish($publisher, $late);
done_testing();
