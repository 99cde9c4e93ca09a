# Promise: failed_changes() shows the changes of exactly the transaction that fails,
# of any size, read from the publisher, to users who may read them.  Nothing of it
# remains on the publisher.
#
# No race is possible: the transaction fails as long as the subscriber has a CHECK
# constraint.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Slots for the subscription and a few copies
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10
		max_replication_slots = 4),
	subscriber_conf => q(
		max_prepared_transactions = 10
		wal_level = replica
		max_wal_senders = 5));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE "Other" (id int PRIMARY KEY, v int);)
);
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE items',
	with => 'disable_on_error = true, streaming = on, two_phase = on');
$publisher->sql(
	q(CREATE PUBLICATION "Second, one" FOR TABLE "Other";
	INSERT INTO items SELECT i, 0, 'it''s' FROM generate_series(1, 9) i;
	INSERT INTO "Other" VALUES (1, 1))
);
$subscriber->sql(q(CREATE ROLE watcher IN ROLE pg_monitor));
$publisher->wait_applied;

sub fails
{
	my ($sql) = @_;
	$subscriber->make_fault;
	$publisher->sql('UPDATE items SET note = note WHERE id = 8');
	$publisher->sql($sql);
	$publisher->sql('UPDATE items SET note = note WHERE id = 9');
	$subscriber->wait_until_failed;
	return;
}

sub skip_it
{
	my $id =
	  $subscriber->sql(q{SELECT parallel_apply.skip_transaction('tap')});
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->wait_applied;
	$subscriber->repair_fault;
	return $id;
}

# The changes that failed_changes() has shown are those that are skipped, stored and
# replayed.
sub is_shown
{
	my ($what, $count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $failed = $subscriber->numbered_statements(q{failed_changes('tap')});
	is(scalar(split /\n/, $failed), $count, "$what: all changes are shown");
	ok( $publisher->poll_query_until(
			'postgres',
			q(SELECT string_agg(slot_name, ' ') = 'tap' FROM pg_replication_slots)
		),
		"$what: no slot is left on the publisher");
	my $id = skip_it();
	is( $failed,
		$subscriber->numbered_statements("skipped_changes($id)"),
		"$what: they are those that are skipped");
	$subscriber->sql("CALL parallel_apply.replay($id)");
	$pair->rows_equal('items', "$what: they are those that were missing");
	return;
}

$subscriber->refuses(
	q{SELECT * FROM parallel_apply.failed_changes('tap')},
	qr/ERROR: +subscription "tap" has no failing transaction/,
	'while nothing fails there is nothing to show');
$subscriber->refuses(
	'SELECT * FROM parallel_apply.failed_changes(NULL)',
	qr/ERROR: +subscription name must not be null/,
	'a name is needed');

fails(
	q(BEGIN;
	INSERT INTO items VALUES (100, 1, 'a'), (101, -1, NULL);
	UPDATE items SET v = 5 WHERE id = 1;
	DELETE FROM items WHERE id = 2;
	COMMIT));
is( $subscriber->numbered_statements(q{failed_changes('tap')}),
	q(1|INSERT INTO public.items (id, v, note) VALUES ('100', '1', 'a');
2|INSERT INTO public.items (id, v, note) VALUES ('101', '-1', NULL);
3|UPDATE public.items SET id = '1', v = '5', note = 'it''s' WHERE id = '1'::integer;
4|DELETE FROM public.items WHERE id = '2'::integer;),
	'exactly the changes of the transaction that fails');
$subscriber->refuses(
	q{SET ROLE watcher; SELECT * FROM parallel_apply.failed_changes('tap')},
	qr/ERROR: +must be owner of subscription tap/,
	'they are for the owner');

# The slot of a call ends with its walsender, a moment after the call.
$publisher->poll_query_until('postgres',
	q(SELECT count(*) = 1 FROM pg_replication_slots))
  or die 'a slot is left';
$publisher->sql(
	q{SELECT pg_create_physical_replication_slot('in_the_way_' || i) FROM generate_series(1, 3) i}
);
$subscriber->refuses(
	q{SELECT * FROM parallel_apply.failed_changes('tap')},
	qr/ERROR: +could not get the transaction from the publisher: ERROR: +all replication slots are in use/,
	'a slot is needed');
$publisher->sql(
	q{SELECT pg_drop_replication_slot('in_the_way_' || i) FROM generate_series(1, 3) i}
);

# After a crash, which resets failed_transactions, the transaction fails again.  The
# subscription is still disabled then.
$subscriber->flush_wal;
$subscriber->stop('immediate');
$subscriber->start;
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
$subscriber->wait_until_failed;
is_shown('a transaction', 4);

# With several publications, and while the apply worker retries
$subscriber->sql(
	q(ALTER SUBSCRIPTION tap ADD PUBLICATION "Second, one" WITH (refresh = false);
	ALTER SUBSCRIPTION tap SET (disable_on_error = false)));
$subscriber->make_fault;
$publisher->sql('INSERT INTO items VALUES (110, -1)');
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions WHERE attempts >= 2',
	'it does not fail again');
is( $subscriber->numbered_statements(q{failed_changes('tap')}),
	q(1|INSERT INTO public.items (id, v, note) VALUES ('110', '-1', NULL);),
	'an enabled subscription shows it, too');
$subscriber->repair_fault;
$publisher->wait_applied;
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');

# A publisher that answers with what is no message
fails('INSERT INTO items VALUES (120, -1)');
my $peek = 'pg_catalog.pg_logical_slot_peek_binary_changes';
my $types = 'name, pg_lsn, integer, VARIADIC text[]';
my $failed_xid =
  $subscriber->sql(
	'SELECT remote_xid FROM parallel_apply.failed_transactions');
$publisher->sql("ALTER FUNCTION $peek ($types) RENAME TO as_it_was");
for my $data ([ 'no message', 'NULL' ], [ 'an empty message', q('') ])
{
	my ($what, $value) = @$data;
	$publisher->sql(
		"CREATE OR REPLACE FUNCTION $peek ($types, lsn OUT pg_lsn, xid OUT xid, data OUT bytea)
		RETURNS SETOF record LANGUAGE sql AS
		\$\$SELECT '0/0'::pg_lsn, '$failed_xid'::xid, CAST($value AS bytea)\$\$");
	$subscriber->refuses(
		q{SELECT * FROM parallel_apply.failed_changes('tap')},
		qr/ERROR: +malformed logical replication message/,
		"$what is an error");
}
$publisher->sql(
	"DROP FUNCTION $peek ($types); ALTER FUNCTION pg_catalog.as_it_was ($types) RENAME TO pg_logical_slot_peek_binary_changes"
);
is_shown('a publisher that answers again', 1);

# More than is fetched at a time, and streamed
fails(
	q(INSERT INTO items SELECT i, CASE i WHEN 1500 THEN -1 END, repeat('x', 200) FROM generate_series(1000, 3500) i)
);
is_shown('a streamed transaction', 2501);

fails(q(BEGIN; INSERT INTO items VALUES (200, -1); PREPARE TRANSACTION 'a'));
my $shown = $subscriber->numbered_statements(q{failed_changes('tap')});
is( $shown,
	q(1|INSERT INTO public.items (id, v, note) VALUES ('200', '-1', NULL);),
	'a transaction that fails when it is prepared');
my $id = skip_it();
$publisher->sql(q(COMMIT PREPARED 'a'));
$publisher->wait_applied;
is($subscriber->numbered_statements("skipped_changes($id)"),
	$shown, 'it is the same when it is skipped and committed');
$subscriber->sql("CALL parallel_apply.replay($id)");

# A publisher that is not running
fails('INSERT INTO items VALUES (300, -1)');
$publisher->stop('fast');
$subscriber->refuses(
	q{SELECT * FROM parallel_apply.failed_changes('tap')},
	qr/ERROR: +could not connect to the publisher/,
	'the publisher is needed');
$publisher->start;
is_shown('a transaction of a publisher that was down', 1);

# What is stored reaches a physical standby, and is in no dump and no publication.
fails('INSERT INTO items VALUES (400, -1)');
$id = skip_it();
$subscriber->backup('stored');
my $standby = PapplyNode->new('standby');
$standby->init_from_backup($subscriber, 'stored', has_streaming => 1);
$standby->start;
is( $standby->sql(
		"SELECT changes, statement FROM parallel_apply.skipped_transactions, parallel_apply.skipped_changes($id)"
	),
	q(1|INSERT INTO public.items (id, v, note) VALUES ('400', '-1', NULL);),
	'a physical standby has what is stored');
my ($rc, $out, $err) =
  $standby->psql('postgres', "CALL parallel_apply.replay($id)");
like(
	$err,
	qr/ERROR: +cannot execute replay\(\) in a read-only transaction/,
	'and does not replay it');
$subscriber->sql("CALL parallel_apply.replay($id)");
$subscriber->flush_wal;
$subscriber->wait_for_catchup($standby);
is($standby->sql('SELECT count(*) FROM parallel_apply.kept_messages'),
	'0', 'nor has it any more what is replayed');
$standby->stop;
$pair->rows_equal('items');

fails('INSERT INTO items VALUES (401, -1)');
$id = skip_it();
my ($dump) =
  run_command([ 'pg_dump', '-d', $subscriber->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS parallel_apply/,
	'it is dumped');
unlike($dump, qr/kept_/, 'but what is stored is not');
$subscriber->sql('CREATE PUBLICATION everything FOR ALL TABLES');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_publication_tables WHERE schemaname = 'parallel_apply')
	),
	'0',
	'nor is it published');
$subscriber->sql('DROP PUBLICATION everything');
$subscriber->sql("CALL parallel_apply.replay($id)");
$pair->rows_equal('items', 'all of it is there in the end');

finish(
	$publisher,
	$subscriber,
	qr/ERROR:  new row for relation "items" violates check constraint "positive"/,
	qr/ERROR:  (subscription "tap" has no failing|subscription name must|must be owner|could not get the transaction|all replication slots|malformed logical replication message|the publisher does not send|could not connect to the publisher)/,
	qr/could not receive data from WAL stream/);
done_testing();
