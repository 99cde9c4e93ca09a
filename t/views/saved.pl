# Promise: the statistics of subscriptions and of tables survive a restart of the server,
# also if it does not succeed at once, and nothing else: not an immediate shutdown, after which the server recovers, and they
# are not read from a file of another version or a damaged one.
#
# The subscription is disabled while they are compared, so that nothing is counted then.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$subscriber->create_extension;
$pair->subscribe('tap');
my $saved = $subscriber->data_dir . '/pg_stat/parallel_apply.stat';

my $counters = q(concat_ws(' ', s.transactions, s.stats_reset,
	t.inserts, t.updates, t.deletes, t.missing,
	c.update_missing, c.last_conflict, c.last_conflict_time)
	FROM parallel_apply.subscription_stats s
	JOIN parallel_apply.tables t USING (subid)
	LEFT JOIN parallel_apply.conflicts c USING (subid, relid));

sub counters
{
	return $subscriber->sql("SELECT $counters");
}

# Apply three INSERTs, and an UPDATE and a DELETE of which the second finds no row.  When
# they are counted, end the apply worker.  Return the counters.
sub count_changes
{
	my $rounds =
	  $subscriber->sql('SELECT inserts / 3 + 1 FROM parallel_apply.tables');
	$publisher->sql(
		q(INSERT INTO items SELECT (SELECT coalesce(max(id), 0) FROM items) + i, 0
			FROM generate_series(1, 3) i;
		UPDATE items SET v = v + 1 WHERE id = (SELECT max(id) FROM items);));
	$publisher->wait_applied;
	$subscriber->sql(
		'DELETE FROM items WHERE id = (SELECT max(id) FROM items)');
	$publisher->sql(
		'DELETE FROM items WHERE id = (SELECT max(id) FROM items)');
	$subscriber->wait_until(
		"inserts = 3 * $rounds AND updates = $rounds AND missing = $rounds
		FROM parallel_apply.tables",
		'the changes are not counted: ' . counters());
	$publisher->wait_applied;
	$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
	$subscriber->wait_until('pid IS NULL FROM parallel_apply.subscriptions',
		'the apply worker does not exit');
	return counters();
}

# The launcher may miss a wakeup while it waits for a page of pg_subscription that an I/O worker
# reads, as after a start of the server (18 and later), and would sleep for three minutes then.
sub enable
{
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'LogicalLauncherMain'),
		'the launcher is not waiting');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$subscriber->wait_for_pool('tap');
	return;
}

# Stop the server, change the file from this byte on, and start the server.
sub restart_with_changed_file
{
	my ($position, $bytes) = @_;
	$subscriber->stop;
	open my $file, '+<:raw', $saved or die "$saved: $!\n";
	seek $file, $position, 0 or die "$saved: $!\n";
	print $file $bytes or die "$saved: $!\n";
	close $file or die "$saved: $!\n";
	my $offset = -s $subscriber->logfile;
	$subscriber->start;
	return slurp_file($subscriber->logfile, $offset);
}

# Assert that no change has been counted.
sub nothing_is_counted
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $subscriber->sql(
			q(SELECT concat_ws(' ', count(transactions), (SELECT count(*) FROM parallel_apply.conflicts),
				(SELECT concat_ws(' ', inserts, updates, deletes, missing) FROM parallel_apply.tables))
			FROM parallel_apply.subscription_stats)),
		'0 0 0 0 0 0',
		$why);
	return;
}

my $before = count_changes();
like(
	$before,
	qr/^\d+ .* 3 1 0 1 0 delete_missing /,
	'changes and conflicts of the table are counted');
$subscriber->restart;
is(counters(), $before, 'a restart of the server keeps all counters');
enable();
$before = count_changes();
like(
	$before,
	qr/^\d+ .* 6 2 0 2 0 delete_missing /,
	'the next apply worker continues them');
$subscriber->restart;
$subscriber->restart;
is(counters(), $before, 'two restarts of the server keep them');

# A start fails after the statistics were read.
$subscriber->stop;
my $hba = $subscriber->data_dir . '/pg_hba.conf';
my $access = slurp_file($hba);
$subscriber->append_conf('pg_hba.conf', 'no such type of connection');
ok(!$subscriber->start(fail_ok => 1), 'the server does not start');
unlink $hba or die "$hba: $!\n";
$subscriber->append_conf('pg_hba.conf', $access);
$subscriber->start;
is(counters(), $before, 'a start that fails keeps them, too');

# The first bytes are the version of the file.
like(
	restart_with_changed_file(0, 'XXXX'),
	qr/LOG:  ignoring file "pg_stat\/parallel_apply.stat" of another version/,
	'a file of another version is ignored, and the log says so');
nothing_is_counted('and nothing is read from it');
ok(!-e $saved, 'and it is removed');

enable();
count_changes();
like(
	restart_with_changed_file(8, 'XXXX'),
	qr/LOG:  ignoring file "pg_stat\/parallel_apply.stat" of another version/,
	'so is one whose records have another size');
nothing_is_counted('and nothing is read from that');

enable();
count_changes();
like(
	restart_with_changed_file(500, 'X'),
	qr/LOG:  ignoring invalid data in file "pg_stat\/parallel_apply.stat"/,
	'a file with a changed byte is ignored, and the log says so');
nothing_is_counted('and nothing is read from it');

enable();
count_changes();
$subscriber->stop('immediate');
$subscriber->start;
nothing_is_counted('an immediate shutdown resets the counters');
ok(!-e $saved, 'and no file remains');

$pair->rows_equal('items');
finish($publisher, $subscriber,
	qr/FATAL: +(terminating .* due to administrator command|could not load .*pg_hba.conf)/
);
done_testing();
