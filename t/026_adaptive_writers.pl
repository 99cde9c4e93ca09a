# Promise: idle writers exit, down to idle_writers_per_subscription, and are started
# again when the remaining ones cannot keep up.
#
# A lock on a row of the first transaction causes the backlog: its writer waits for
# the lock, and the other writers for their turn.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	parallel_apply.max_batch_transactions = 1
	parallel_apply.writers_per_subscription = 4
	parallel_apply.idle_writers_per_subscription = 1
	CONF

exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$publisher->safe_psql('postgres',
	'INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) AS i');
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap');
wait_for_pool($subscriber, 'tap', 4);

sub backlog_brings_writers_back
{
	my ($value) = @_;
	my $session =
	  hold($subscriber, 'SELECT FROM items WHERE id = 1 FOR UPDATE');

	$publisher->safe_psql(
		'postgres',
		join('',
			map { "UPDATE items SET v = $value WHERE id = $_;\n" } 1 .. 20));
	wait_for_pool($subscriber, 'tap', 4);
	ok(1, "a backlog brings all writers back ($value)");
	$session->query_safe('COMMIT');
	$session->quit;
	wait_applied($publisher, $subscriber, 'tap');
	rows_equal($publisher, $subscriber, 'items');
	return;
}

### no load

my $offset = -s $subscriber->logfile;
my $apply = apply_pid($subscriber, 'tap');
reload_with($subscriber, "parallel_apply.writer_idle_timeout = '10ms'");
wait_for_pool($subscriber, 'tap', 1);
ok(1, 'without work all but one leave');
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT state, reason IS NULL, writers_wanted, writers_running FROM parallel_apply.subscriptions',
		'parallel|t|4|1'),
	'which is no reason for an alarm, although more are configured');
on_publisher('UPDATE items SET v = 1');
wait_applied($publisher, $subscriber, 'tap');
rows_equal($publisher, $subscriber, 'items');

### writers return

backlog_brings_writers_back($_) for 2 .. 3;
wait_for_pool($subscriber, 'tap', 1);
ok(1, 'and they leave again');

reload_with($subscriber, 'parallel_apply.idle_writers_per_subscription = 3');
backlog_brings_writers_back(4);
wait_for_pool($subscriber, 'tap', 3);
ok(1, 'as many stay as are configured to');
### the first claim of a new writer

# It knows no duration of transactions yet, so it claims one; the rest is for the
# others.
reload_with(
	$subscriber,
	'parallel_apply.idle_writers_per_subscription = 1',
	'parallel_apply.max_batch_transactions = 32');
wait_for_pool($subscriber, 'tap', 1);
my $session = hold($subscriber, 'SELECT FROM items WHERE id = 1 FOR UPDATE');
on_publisher('UPDATE items SET v = 5 WHERE id = 1');
wait_for_state($subscriber, 'waiting for lock');
on_publisher(join "\n",
	map { "UPDATE items SET v = 5 WHERE id = $_;" } 2 .. 20);
wait_for_state($subscriber, 'waiting for prior commit', 3);
is( on_subscriber(
		'SELECT count(*) FROM (SELECT FROM items FOR UPDATE SKIP LOCKED) AS free'
	),
	20 - 1 - 3,
	'each of three new writers takes one transaction');
$session->query_safe('COMMIT');
$session->quit;
wait_applied($publisher, $subscriber, 'tap');
rows_equal($publisher, $subscriber, 'items');

is(apply_pid($subscriber, 'tap'),
	$apply, 'the apply worker is the same all the time');
unlike(slurp_file($subscriber->logfile, $offset),
	qr/WARNING/, 'nothing of it is worth a warning');

finish($publisher, $subscriber);
done_testing();
