# Promise: every change and every commit that a writer makes carries the
# subscription's replication origin, so that a subscriber that is a publisher
# itself can tell what came from elsewhere, and the origin's position is that of
# the last remote commit.  Forced by decoding the subscriber's own WAL.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) =
  new_pair(subscriber_conf => "wal_level = logical\n");
exec_both('CREATE TABLE t (id int PRIMARY KEY, v text)');
create_extension($subscriber);
subscribe($publisher, $subscriber, 'sub');
$subscriber->safe_psql('postgres',
	q(SELECT pg_create_logical_replication_slot('decode', 'test_decoding')));

$publisher->safe_psql('postgres', "INSERT INTO t VALUES ($_, 'new')")
  for 1 .. 20;
$publisher->safe_psql('postgres',
	"UPDATE t SET v = 'changed' WHERE id <= 10");
$publisher->safe_psql('postgres', 'DELETE FROM t WHERE id = 20');
wait_applied($publisher, $subscriber, 'sub');
$subscriber->safe_psql('postgres', q(INSERT INTO t VALUES (1000, 'local')));

# Changes of rows, in the order of commits; peeking leaves them there.
sub decoded
{
	my ($only_local) = @_;
	return $subscriber->safe_psql(
		'postgres', qq(
		SELECT count(*) FROM pg_logical_slot_peek_changes('decode', NULL, NULL,
			'only-local', '$only_local') WHERE data LIKE 'table public.t:%'));
}

is(decoded('off'), 32, 'all changes are in the WAL of the subscriber');
is(decoded('on'), 1,
	'those of writers are known to have come from elsewhere');

my $end = $publisher->safe_psql('postgres',
	q(SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'sub')
);
is( $subscriber->safe_psql(
		'postgres', qq(
		SELECT remote_lsn <= '$end' AND remote_lsn > '0/0'
		  FROM pg_replication_origin_status WHERE external_id LIKE 'pg_%')),
	't',
	'the position of the origin is one of the publisher');

$subscriber->safe_psql('postgres', 'DELETE FROM t WHERE id = 1000');
rows_equal($publisher, $subscriber, 't');
finish($publisher, $subscriber);
done_testing();
