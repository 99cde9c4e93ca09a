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
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
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
exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note text);
	CREATE TABLE other (id int PRIMARY KEY);));

sub routed_messages
{
	return on_subscriber(
		q(SELECT routed_messages(oid) FROM pg_subscription WHERE subname = 'tap')
	);
}

# Three transactions, with changes of each kind
sub change
{
	my $id = $next++;
	on_publisher("INSERT INTO items VALUES ($id, 0), (-$id, 0)");
	on_publisher("UPDATE items SET v = 1 WHERE id = $id");
	on_publisher("DELETE FROM items WHERE id = -$id");
	wait_applied($publisher, $subscriber, 'tap');
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

### the extension is missing

# With streaming = parallel, the default from 18 on, PostgreSQL would start a
# parallel apply worker.
subscribe(
	$publisher, $subscriber, 'tap',
	with => 'streaming = on',
	no_pool => 1);
my $apply_pid = apply_pid($subscriber, 'tap');
nothing_is_routed('without the extension');
is(routed_messages(), '0', 'nor has been from the beginning');

### one writer is configured

create_extension($subscriber);
change();
nothing_is_routed('with one writer');
is( on_subscriber(
		'SELECT parallel_apply.reset_stats();
		SELECT state, reason FROM parallel_apply.subscriptions'
	),
	"\nnative|one writer is configured",
	'the view says so');
change();
is( on_subscriber(
		q(SELECT transactions, native_transactions, inserts, updates, deletes, lag_bytes
		FROM parallel_apply.subscriptions JOIN parallel_apply.subscription_stats USING (subid))
	),
	'3|3|2|1|1|0',
	'and counts what is applied');
is(asked(), 0, 'the publisher was asked nothing');

### writers, and back

# The core apply loop ends a transaction that it has begun.
my $lock =
  hold($publisher, 'LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE');
on_publisher(
	'BEGIN;' . item_rows(100) . 'INSERT INTO other VALUES (1); COMMIT');
wait_until(
	"EXISTS (SELECT FROM pg_locks WHERE relation = 'items'::regclass AND pid = $apply_pid)",
	'the transaction has not begun');
my $offset = -s $subscriber->logfile;
reload_with(
	$subscriber,
	'parallel_apply.writers_per_subscription = 2',
	'log_min_messages = debug2');
$subscriber->wait_for_log(qr/sending feedback/, $offset);
is(scalar(writer_pids($subscriber, 'tap')),
	0, 'no writer starts in the middle of a transaction');
$lock->query_safe('COMMIT');
$lock->quit;
wait_for_pool($subscriber, 'tap', 2);
reload_with($subscriber, 'log_min_messages = warning');
tables_equal('when the transaction has ended', @tables);
is(asked(), 1, 'the publisher is asked when writers start');
on_subscriber('SELECT parallel_apply.reset_stats()');
my $before = routed_messages();
change();
cmp_ok(routed_messages(), '>=', $before + 3 * 3, 'messages are routed then');
is( on_subscriber(
		'SELECT transactions - native_transactions FROM parallel_apply.subscription_stats'
	),
	3,
	'and writers know the definitions of before');

on_subscriber(q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
wait_for_pool($subscriber, 'tap', 0);
change();
nothing_is_routed('when writers have left');

on_subscriber(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));
wait_for_pool($subscriber, 'tap', 2);
change();
is(asked(), 1, 'once in a connection is enough');

on_subscriber('DROP EXTENSION parallel_apply');
wait_until(
	q(NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%')),
	'writers do not leave');
change();
nothing_is_routed('when the extension is dropped');
tables_equal('after all of that', @tables);
is(apply_pid($subscriber, 'tap'),
	$apply_pid, 'it was the same apply worker all the time');

### times and counters are only kept on request

reload_with(
	$subscriber,
	'parallel_apply.writers_per_subscription = 1',
	'parallel_apply.log_min_duration = 0');
change();
$offset = -s $subscriber->logfile;
change();
ok($subscriber->log_contains(qr/remote transaction \d+ of/, $offset),
	'transactions are logged if that is wanted');
reload_with($subscriber, 'parallel_apply.log_min_duration = -1');
change();
nothing_is_routed('if it is not');

finish($publisher, $subscriber);
done_testing();
