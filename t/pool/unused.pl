# Promise: if one writer is configured, or the extension is not installed in the
# database, the core apply loop gets each message as it arrived, and nothing is
# asked of the publisher.  Views show such a subscription nevertheless.  Writers
# start and stop between two transactions, without a new connection.
#
# The receiver counts the messages that it routes, as it does for writers
# (src/test/selftest_routed.c).  A lock on a catalog that the walsender reads for a
# table that it has not sent before stops it in the middle of a transaction.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "log_statement = all\nwal_sender_timeout = 0",
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 1
		wal_receiver_status_interval = 1s
		wal_receiver_timeout = 0));
my ($is_without_selftest) = $subscriber->psql(
	'postgres',
	q(CREATE FUNCTION routed_messages(subid oid) RETURNS bigint
		LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_routed_messages')
);
plan skip_all => 'the library was made without SELFTEST=1'
  if $is_without_selftest;

my $question = qr/parallel_apply\.coalesce_messages/;
my @tables = qw(items other);
my $next = 1001;
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE other (id int PRIMARY KEY);));

sub routed_messages
{
	return $subscriber->sql(
		q(SELECT routed_messages(oid) FROM pg_subscription WHERE subname = 'tap')
	);
}

# Three transactions, with changes of each kind
sub change
{
	my $id = $next++;
	$publisher->sql("INSERT INTO items VALUES ($id, 0), (-$id, 0)");
	$publisher->sql("UPDATE items SET v = 1 WHERE id = $id");
	$publisher->sql("DELETE FROM items WHERE id = -$id");
	$publisher->wait_applied;
	return;
}

sub asked
{
	return scalar(() = slurp_file($publisher->logfile) =~ /$question/g);
}

# None of the messages of these transactions is routed.
sub nothing_is_routed
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = routed_messages();
	change();
	is(routed_messages(), $before, "$when no message is routed");
	return;
}

# The apply worker notices a reload at some time.  Return whether transactions are logged,
# or are not, after one of the next changes.
sub becomes_logged
{
	my ($is_wanted) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $end)
	{
		my $offset = -s $subscriber->logfile;
		change();
		my $is_logged =
		  $subscriber->log_contains(qr/remote transaction \d+ of/, $offset);
		return 1 if !!$is_logged == !!$is_wanted;
	}
	return 0;
}

### the extension is missing

# With streaming = parallel, the default from 18 on, PostgreSQL would start a
# parallel apply worker.
$pair->subscribe(
	'tap',
	with => 'streaming = on',
	no_pool => 1);
my $apply_pid = $subscriber->apply_pid('tap');
nothing_is_routed('without the extension');
is(routed_messages(), '0', 'nor has been from the beginning');

### one writer is configured

$subscriber->create_extension;
change();
nothing_is_routed('with one writer');
is( $subscriber->sql(
		'SELECT parallel_apply.reset_stats();
		SELECT state, reason FROM parallel_apply.subscriptions'
	),
	"\nnative|one writer is configured",
	'the view says so');
change();
# The publisher may just have sent a position at which nothing is committed.
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT transactions, native_transactions, inserts, updates, deletes, lag_bytes
		FROM parallel_apply.subscriptions JOIN parallel_apply.subscription_stats USING (subid)),
		'3|3|2|1|1|0'),
	'and counts what is applied');
is(asked(), 0, 'the publisher was asked nothing');

### writers, and back

# The core apply loop ends a transaction that it has begun.
my $lock =
  $publisher->hold('LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
$publisher->sql(
	'BEGIN;' . item_rows(100) . 'INSERT INTO other VALUES (1); COMMIT');
$subscriber->wait_until(
	"EXISTS (SELECT FROM pg_locks WHERE relation = 'items'::regclass AND pid = $apply_pid)",
	'the transaction has not begun');
my $offset = -s $subscriber->logfile;
$subscriber->reload_with('parallel_apply.writers_per_subscription = 2',
	'log_min_messages = debug2');
$subscriber->wait_for_log(qr/sending feedback/, $offset);
is(scalar($subscriber->writer_pids('tap')),
	0, 'no writer starts in the middle of a transaction');
$lock->release;
$subscriber->wait_for_pool('tap', 2);
$subscriber->reload_with('log_min_messages = warning');
$pair->tables_equal('when the transaction has ended', @tables);
$subscriber->sql('SELECT parallel_apply.reset_stats()');
my $before = routed_messages();
change();
is(asked(), 1, 'the publisher is asked when writers start');
cmp_ok(routed_messages(), '>=', $before + 3 * 3, 'messages are routed then');
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT transactions - native_transactions FROM parallel_apply.subscription_stats',
		'3'),
	'and writers know the definitions of before');

$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
change();
nothing_is_routed('when writers have left');

$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
$subscriber->wait_for_pool('tap', 2);
change();
is(asked(), 1, 'once in a connection is enough');

$subscriber->sql('DROP EXTENSION parallel_apply');
$subscriber->wait_until(
	q(NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%')),
	'writers do not leave');
change();
nothing_is_routed('when the extension is dropped');
$pair->tables_equal('after all of that', @tables);
is($subscriber->apply_pid('tap'),
	$apply_pid, 'it was the same apply worker all the time');

### times and counters are only kept on request

$subscriber->reload_with(
	'parallel_apply.writers_per_subscription = 1',
	'parallel_apply.log_min_duration = 0');
ok(becomes_logged(1), 'transactions are logged if that is wanted');
$subscriber->reload_with('parallel_apply.log_min_duration = -1');
ok(becomes_logged(0), 'and are not if it is not');
nothing_is_routed('then');

finish($publisher, $subscriber);
done_testing();
