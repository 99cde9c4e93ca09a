# Promise: idle writers exit, down to idle_writers_per_subscription, and are started
# again when the remaining ones cannot keep up.
#
# A lock on a row of the first transaction causes the backlog: its writer waits for
# the lock, and the other writers for their turn.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	parallel_apply.max_batch_transactions = 1
	parallel_apply.writers_per_subscription = 4
	parallel_apply.idle_writers_per_subscription = 1
	CONF

$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$publisher->sql(
	'INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) AS i');
$subscriber->create_extension;
$pair->subscribe('tap');
$subscriber->wait_for_pool('tap', 4);

sub backlog_brings_writers_back
{
	my ($value) = @_;
	my $session =
	  $subscriber->hold('SELECT FROM items WHERE id = 1 FOR UPDATE');

	$publisher->sql(
		join('',
			map { "UPDATE items SET v = $value WHERE id = $_;\n" } 1 .. 20));
	$subscriber->wait_for_pool('tap', 4);
	ok(1, "a backlog brings all writers back ($value)");
	$session->release;
	$publisher->wait_applied;
	$pair->rows_equal('items');
	return;
}

### no load

my $offset = -s $subscriber->logfile;
my $apply = $subscriber->apply_pid('tap');
$subscriber->reload_with("parallel_apply.writer_idle_timeout = '10ms'");
$subscriber->wait_for_pool('tap', 1);
ok(1, 'without work all but one leave');
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT state, reason IS NULL, writers_wanted, writers_running FROM parallel_apply.subscriptions',
		'parallel|t|4|1'),
	'which is no reason for an alarm, although more are configured');
$publisher->sql('UPDATE items SET v = 1');
$publisher->wait_applied;
$pair->rows_equal('items');

### writers return

backlog_brings_writers_back($_) for 2 .. 3;
$subscriber->wait_for_pool('tap', 1);
ok(1, 'and they leave again');

$subscriber->reload_with('parallel_apply.idle_writers_per_subscription = 3');
backlog_brings_writers_back(4);
$subscriber->wait_for_pool('tap', 3);
ok(1, 'as many stay as are configured to');
### the first claim of a new writer

# It knows no duration of transactions yet, so it claims one; the rest is for the
# others.
$subscriber->reload_with(
	'parallel_apply.idle_writers_per_subscription = 1',
	'parallel_apply.max_batch_transactions = 32');
$subscriber->wait_for_pool('tap', 1);
my $session = $subscriber->hold('SELECT FROM items WHERE id = 1 FOR UPDATE');
$publisher->sql('UPDATE items SET v = 5 WHERE id = 1');
$subscriber->wait_for_state('waiting for lock');
$publisher->sql(join "\n",
	map { "UPDATE items SET v = 5 WHERE id = $_;" } 2 .. 20);
$subscriber->wait_for_state('waiting for prior commit', 3);
is( $subscriber->sql(
		'SELECT count(*) FROM (SELECT FROM items FOR UPDATE SKIP LOCKED) AS free'
	),
	20 - 1 - 3,
	'each of three new writers takes one transaction');
$session->release;
$publisher->wait_applied;
$pair->rows_equal('items');

is($subscriber->apply_pid('tap'),
	$apply, 'the apply worker is the same all the time');
unlike(slurp_file($subscriber->logfile, $offset),
	qr/WARNING/, 'nothing of it is worth a warning');

finish($publisher, $subscriber);
done_testing();
