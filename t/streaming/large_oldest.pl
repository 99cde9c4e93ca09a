# Promise: a transaction larger than the queue is not given up for a change of
# catalogs that serial apply would not consider.  Another subscription is altered
# while the transaction is the oldest one and its beginning has been overwritten.
#
# One lock keeps it from being the oldest at first, another one keeps it from its
# end.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => q(parallel_apply.queue_size = '1MB'));
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE big (id int PRIMARY KEY, t text);));
$subscriber->create_extension;
$publisher->sql('INSERT INTO gate VALUES (1, 0), (2, 0)');
$pair->subscribe('tap');
$subscriber->sql(
	q(CREATE SUBSCRIPTION other CONNECTION 'dbname=none' PUBLICATION none WITH (connect = false))
);
my $first = $subscriber->hold('SELECT FROM gate WHERE id = 1 FOR UPDATE');
my $second = $subscriber->hold('SELECT FROM gate WHERE id = 2 FOR UPDATE');
$publisher->sql(
	q(UPDATE gate SET n = 1 WHERE id = 1;
	BEGIN; INSERT INTO big SELECT i, repeat('x', 1000) FROM generate_series(1, 5000) i;
	UPDATE gate SET n = 1 WHERE id = 2; COMMIT;));
$subscriber->wait_for_state('waiting for lock');
$subscriber->poll_query_until('postgres',
	q(SELECT count(*) >= 2 FROM parallel_apply.writers WHERE state <> 'idle'))
  or die 'it has not begun';
$first->query_safe('COMMIT');
$subscriber->poll_query_until('postgres',
	q(SELECT n = 1 FROM gate WHERE id = 1))
  or die 'the first one is not applied';
$subscriber->wait_for_state('waiting for lock');
$subscriber->sql(
	q(ALTER SUBSCRIPTION other SET (slot_name = NONE, binary = true)));
$second->query_safe('COMMIT');
$publisher->wait_applied;
$pair->rows_equal($_) for qw(gate big);
unlike(
	slurp_file($subscriber->logfile),
	qr/larger than the queue could not/,
	'it is applied at the first attempt');
$_->quit for $first, $second;
finish($publisher, $subscriber);
done_testing();
