# Promise: every change and every commit that a writer makes carries the
# subscription's replication origin, so that a subscriber that is itself a publisher
# can tell which changes came from elsewhere, and the origin's position is that of
# the last remote commit.  No other session moves the position while the
# subscription is applied: the server refuses that, or, with 15, the receiver
# notices and corrects it.
#
# The subscriber's own WAL is decoded to check this.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "wal_level = logical\n");
$pair->exec_both('CREATE TABLE t (id int PRIMARY KEY, v text);'
	  . 'CREATE TABLE gate (id int PRIMARY KEY, n int)');
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$subscriber->create_extension;
$pair->subscribe('sub');
my $can_decode = has_module('test_decoding');
$subscriber->sql(
	q(SELECT pg_create_logical_replication_slot('decode', 'test_decoding')))
  if $can_decode;

$publisher->sql("INSERT INTO t VALUES ($_, 'new')") for 1 .. 20;
$publisher->sql("UPDATE t SET v = 'changed' WHERE id <= 10");
$publisher->sql('DELETE FROM t WHERE id = 20');
$publisher->wait_applied('sub');
$subscriber->sql(q(INSERT INTO t VALUES (1000, 'local')));

# Changes of rows, in commit order.  Peeking does not consume them.
sub decoded
{
	my ($only_local) = @_;
	return $subscriber->sql(
		qq(
		SELECT count(*) FROM pg_logical_slot_peek_changes('decode', NULL, NULL,
			'only-local', '$only_local') WHERE data LIKE 'table public.t:%'));
}

SKIP:
{
	skip 'the server has no test_decoding', 2 if !$can_decode;
	is(decoded('off'), 32, 'all changes are in the WAL of the subscriber');
	is(decoded('on'), 1,
		'those of writers are known to have come from elsewhere');
}

my $end = $publisher->sql('SELECT pg_current_wal_lsn()');
is( $subscriber->sql(
		qq(
		SELECT remote_lsn <= '$end' AND remote_lsn > '0/0'
		  FROM pg_replication_origin_status WHERE external_id LIKE 'pg_%')),
	't',
	'the position of the origin is one of the publisher');

$subscriber->sql('DELETE FROM t WHERE id = 1000');
$pair->rows_equal('t');

# Forward: the next apply worker would skip what the publisher commits next.
my $row = 0;

sub move_origin
{
	my $lsn = $publisher->sql(q(SELECT pg_current_wal_lsn() + 10000000));
	return $subscriber->psql('postgres',
		"SELECT pg_replication_origin_advance(roname, '$lsn') FROM pg_replication_origin"
	);
}

sub insert_row
{
	$row++;
	$publisher->sql("INSERT INTO t VALUES (2000 + $row, 'after')");
	return;
}

# $begin is called before, $end after it.
sub origin_stays
{
	my ($when, $begin, $end) = @_;
	my $offset = -s $subscriber->logfile;
	my $worker = $subscriber->apply_pid('sub');
	$begin->();
	my ($result, undef, $stderr) = move_origin();
	if ($subscriber->pg_version >= 16)
	{
		like(
			$stderr,
			qr/is already active/,
			"the server lets no session move the origin $when");
	}
	else
	{
		is($result, 0, "the server lets a session move the origin $when");
	}
	$end->();
	if ($subscriber->pg_version < 16)
	{
		$subscriber->wait_for_log(
			qr/(FATAL|WARNING): +replication origin of subscription "sub" was moved from/,
			$offset);
		$subscriber->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM pg_stat_subscription WHERE pid <> $worker"
		) or die 'there is no other apply worker';
	}
	insert_row();
	$subscriber->restart_apply('sub');
	insert_row();
	$publisher->wait_applied('sub');
	$pair->rows_equal('t', "and nothing is left out $when");
	return;
}

origin_stays('when nothing is in flight', sub { }, sub { });

# The receiver does not check while something is in flight.
my $lock;
origin_stays(
	'when a transaction waits',
	sub {
		$subscriber->wait_for_pool('sub');
		$lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
		$publisher->sql('UPDATE gate SET n = n + 1');
		$subscriber->wait_for_state('waiting for lock');
	},
	sub {
		$lock->release;
	});

# From here on, no process checks.
origin_stays(
	'just before writers leave',
	sub {
		$subscriber->wait_for_pool('sub');
		$lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
		$publisher->sql('UPDATE gate SET n = n + 1');
		$subscriber->wait_for_state('waiting for lock');
	},
	sub {
		$subscriber->sql('ALTER SUBSCRIPTION sub DISABLE');
		$subscriber->poll_query_until('postgres',
			q(SELECT pid IS NULL FROM pg_stat_subscription WHERE subname = 'sub')
		) or die 'the apply worker does not end';
		$lock->release;
		$subscriber->sql('ALTER SUBSCRIPTION sub ENABLE');
	});
$pair->rows_equal('gate');
finish(
	$publisher,
	$subscriber,
	qr/FATAL:  replication origin of subscription "sub" was moved/,
	qr/FATAL:  terminating .* due to administrator command/);
done_testing();
