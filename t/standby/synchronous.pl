# Promise: with synchronous replication, a commit that has returned on the publisher
# is where the publisher says that it is.
#
# The subscription is a synchronous standby of the publisher, and the subscriber has
# a synchronous physical standby of its own.  A lock that blocks a writer, or a
# stopped standby, prolongs the time in which a premature confirmation would show.
# What was confirmed is checked after a crash, with apply disabled.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'max_prepared_transactions = 2',
	subscriber_conf => <<~'CONF');
	fsync = on
	max_prepared_transactions = 2
	wal_level = replica
	max_wal_senders = 4
	parallel_apply.max_batch_transactions = 1
	CONF

$pair->exec_both(
	q(CREATE TABLE history (id serial PRIMARY KEY, mode text,
		lsn pg_lsn DEFAULT pg_current_wal_insert_lsn());
	CREATE TABLE locked_a (id int PRIMARY KEY);
	CREATE TABLE locked_b (id int PRIMARY KEY);
	CREATE TABLE free (id int PRIMARY KEY);));
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = off, two_phase = on');

sub confirmed
{
	return $publisher->sql(
		q(SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'tap')
	);
}

### the publisher waits for the subscription

$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$publisher->wait_for_sync_state('tap', 'sync');

for my $mode (qw(off local remote_write on remote_apply))
{
	my $missing = 0;
	for my $i (1 .. 8)
	{
		my $id = $publisher->sql(
			"SET synchronous_commit = $mode; INSERT INTO history (mode) VALUES ('$mode') RETURNING id"
		);
		next if $mode ne 'remote_apply';
		$missing++
		  if $subscriber->sql("SELECT count(*) FROM history WHERE id = $id")
		  ne '1';
	}
	is( $missing, 0,
		"a commit with synchronous_commit = $mode returns"
		  . (
			$mode eq 'remote_apply'
			? ', and its row is visible on the subscriber'
			: ''));
}

# If each commit were flushed separately, as PostgreSQL's apply worker does before
# it confirms it with synchronous_commit = off, one client would need 20 seconds.
$publisher->pgbench(
	'--no-vacuum --client=1 --transactions=100',
	0,
	[qr{processed: 100/100}],
	[qr{^$}],
	'100 commits of one client wait for the flush on the subscriber',
	{
		'071_flush' =>
		  q(SET synchronous_commit = on; INSERT INTO history (mode) VALUES ('flush');)
	});
$publisher->pgbench(
	'--no-vacuum --client=8 --transactions=50',
	0,
	[qr{processed: 400/400}],
	[qr{^$}],
	'8 clients wait for their rows to be visible',
	{
		'071_apply' =>
		  q(SET synchronous_commit = remote_apply; INSERT INTO history (mode) VALUES ('apply');)
	});
is($subscriber->sql(q(SELECT count(*) FROM history WHERE mode = 'apply')),
	'400', 'and all of them are, when the last one has returned');

# A commit that is blocked on the subscriber is blocked on the publisher.
my $lock = $subscriber->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE locked_a IN ACCESS EXCLUSIVE MODE');
my $client = $publisher->background_psql('postgres');
my $client_pid = $client->query_safe('SELECT pg_backend_pid()');
$client->query_until(
	qr/started/, q(SET synchronous_commit = remote_apply;
	\echo started
	INSERT INTO locked_a VALUES (1);
	\echo returned
	));
my $client_waits =
  "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $client_pid";
ok( $publisher->poll_query_until('postgres', $client_waits),
	'a commit with remote_apply waits in SyncRep');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT count(*) = 1 FROM parallel_apply.writers WHERE state = 'waiting for lock')
	),
	'for a writer that waits for a lock');
# A walsender may have woken it for a moment.
ok($publisher->poll_query_until('postgres', $client_waits),
	'as long as that does');
$lock->query_safe('ROLLBACK');
$lock->quit;
$client->query_until(qr/returned/, '');
$client->quit;
is($subscriber->sql('SELECT count(*) FROM locked_a'),
	'1', 'and returns when its row is there');

$publisher->reload_with(q(synchronous_standby_names = ''));

### no confirmed commit is lost in a crash

# With one client, a row's lsn is not below the end of the previous commit.
sub crash_under_load
{
	my ($setting) = @_;
	$subscriber->set_synchronous_commit($setting);

	my $script = $publisher->basedir . "/071_crash_$setting";
	append_to_file($script,
		"INSERT INTO history (mode) VALUES ('$setting');\n");
	my $load = $publisher->start_load($script);
	$subscriber->poll_query_until('postgres',
		"SELECT count(*) > 300 FROM history WHERE mode = '$setting'")
	  or die 'the load is not applied';
	$subscriber->stop('immediate');
	$publisher->end_load($load);

	my $confirmed = confirmed();
	my $expected = $publisher->sql(
		"SELECT max(id) - 1 FROM history WHERE lsn <= '$confirmed'");
	cmp_ok($expected, '>', 0, 'something was confirmed');
	configure_and_start('max_logical_replication_workers = 0');
	is( $subscriber->sql(
			"SELECT count(*) FROM history WHERE id <= $expected"),
		$publisher->sql("SELECT count(*) FROM history WHERE id <= $expected"),
		"after a crash, synchronous_commit = $setting has all that was confirmed"
	);
	$subscriber->stop;
	configure_and_start('max_logical_replication_workers = 8');
	$publisher->wait_applied;
	$pair->rows_equal('history', 'and gets the rest when apply continues');
	return;
}

sub configure_and_start
{
	my ($line) = @_;
	$subscriber->append_conf('postgresql.conf', $line);
	$subscriber->start;
	return;
}

crash_under_load($_) for qw(on off);

### the subscriber's own synchronous standby

$subscriber->backup('backup');
my $standby = PapplyNode->new('standby');
$standby->init_from_backup($subscriber, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf',
	"max_logical_replication_workers = 0\nwal_receiver_status_interval = 1");
$standby->start;
$subscriber->reload_with(q(synchronous_standby_names = 'standby'));
$subscriber->wait_for_sync_state('standby', 'sync');
$subscriber->set_synchronous_commit('remote_apply');
$publisher->reload_with(q(synchronous_standby_names = 'tap'));
$publisher->wait_for_sync_state('tap', 'sync');

my $missing = 0;
for my $i (1 .. 8)
{
	my $id = $publisher->sql(
		q(SET synchronous_commit = on; INSERT INTO history (mode) VALUES ('standby') RETURNING id)
	);
	$missing++
	  if $standby->sql("SELECT count(*) FROM history WHERE id = $id") ne '1';
}
is($missing, 0,
	'transactions that the publisher waited for are visible on the standby of the subscriber'
);
$publisher->reload_with(q(synchronous_standby_names = ''));

# Two transactions wait for locks when the one before them is confirmed.  Then the
# standby stops, and the first of the two is committed: it is flushed on the
# subscriber but not on the standby, and must not be confirmed.
$lock = $subscriber->background_psql('postgres');
my $lock_b = $subscriber->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE locked_a IN ACCESS EXCLUSIVE MODE');
$lock_b->query_safe('BEGIN; LOCK TABLE locked_b IN ACCESS EXCLUSIVE MODE');
$publisher->sql('INSERT INTO free VALUES (1)');
my $lsn_free = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
$publisher->sql('INSERT INTO locked_a VALUES (2)');
my $lsn_locked = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
$publisher->sql('INSERT INTO locked_b VALUES (2)');
$subscriber->poll_query_until('postgres',
	q(SELECT count(*) = 2 FROM parallel_apply.writers WHERE state = 'waiting for lock')
) or die 'the writers do not wait for locks';
$publisher->poll_query_until('postgres',
	"SELECT confirmed_flush_lsn >= '$lsn_free' FROM pg_replication_slots WHERE slot_name = 'tap'"
) or die 'the first transaction is not confirmed';
$standby->stop;
$lock->query_safe('ROLLBACK');
$lock->quit;
$subscriber->poll_query_until('postgres',
	'SELECT count(*) = 1 FROM locked_a WHERE id = 2')
  or die 'the second transaction is not applied';
my $local_lsn = $subscriber->sql('SELECT pg_current_wal_insert_lsn()');
$subscriber->poll_query_until('postgres',
	"SELECT pg_current_wal_flush_lsn() >= '$local_lsn'")
  or die 'the second transaction is not flushed';
# The apply worker continues: it waits for the standby, or receives the next
# transaction.
my $apply = $subscriber->apply_pid('tap');
$publisher->sql('INSERT INTO free VALUES (2)');
$subscriber->poll_query_until(
	'postgres',
	qq(SELECT EXISTS (SELECT FROM parallel_apply.writers WHERE state = 'waiting for prior commit')
	OR EXISTS (SELECT FROM pg_stat_activity WHERE pid = $apply AND wait_event = 'SyncRep'))
) or die 'the apply worker does not continue';
$publisher->is_not_confirmed($lsn_locked,
	'nothing is confirmed that the standby of the subscriber does not have');

$standby->start;
$lock_b->query_safe('ROLLBACK');
$lock_b->quit;
$publisher->wait_applied;
$subscriber->flush_wal;
$subscriber->wait_for_catchup('standby', 'replay');
$pair->rows_equal($_) for qw(history locked_a locked_b free);
PapplyPair->new($publisher, $standby)
  ->rows_equal($_, "$_ is equal on the standby")
  for qw(history locked_a locked_b free);

# The same for a transaction that is prepared
$subscriber->wait_until(q(subtwophasestate = 'e' FROM pg_subscription),
	'two_phase is not enabled');
$lock = $subscriber->hold('LOCK TABLE locked_a IN SHARE MODE');
$publisher->sql(
	q(BEGIN; INSERT INTO locked_a VALUES (3); PREPARE TRANSACTION 'a'));
$lsn_locked = $publisher->sql('SELECT pg_current_wal_insert_lsn()');
$subscriber->wait_for_state('waiting for lock');
$standby->stop;
$lock->query_safe('ROLLBACK');
$lock->quit;
$subscriber->wait_until('count(*) = 1 FROM pg_prepared_xacts',
	'nothing is prepared');
ok( $subscriber->poll_query_until(
		'postgres',
		"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $apply"
	),
	'the standby of the subscriber is waited for');
$publisher->is_not_confirmed($lsn_locked,
	'nor is a transaction that is prepared confirmed before');
$standby->start;
$publisher->sql(q(COMMIT PREPARED 'a'));
$publisher->wait_applied;
$pair->rows_equal('locked_a');

$standby->stop;
$subscriber->reload_with(q(synchronous_standby_names = ''));
finish(
	$publisher, $subscriber,
	qr/connection to client lost/,
	qr/terminating connection due to administrator command/);
done_testing();
