# Promise: what is decoded from a subscriber's WAL is what PostgreSQL's own apply
# would have written: each remote transaction by itself, its changes in their order,
# with its commit time, also where a slot is created while writers are applying.  No
# slot waits for a streamed transaction that has not ended.
#
# A -> B -> C.  B, the middle, applies with two writers.  C has no extension,
# numbers the changes as they arrive, and keeps commit times.  A lock of the table
# gate blocks transactions on B.  It needs no xid, so that slots wait only for
# writers.  The other writer is stopped until all transactions that it should claim
# together are queued.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $first, $middle) = new_pair(
	publisher_conf => q(
		track_commit_timestamp = on
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		parallel_apply.logical_decoding = slots
		parallel_apply.writers_per_subscription = 2
		parallel_apply.selftest_fast = on
		autovacuum = off));
my $last = new_plain('last', "track_commit_timestamp = on\n");

my $plain = q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE hot (id int PRIMARY KEY, v text);
	CREATE TABLE cold (id int PRIMARY KEY, v text);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text););
my $names = 'CREATE TABLE names (id int PRIMARY KEY, u int';
my $parted = 'CREATE TABLE parted (id int, side int, PRIMARY KEY (id, side))';
my @tables = qw(gate hot cold items names parted);
my $rows = q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO hot SELECT i, 'v' FROM generate_series(1, 9) i;
	INSERT INTO cold SELECT i, 'v' FROM generate_series(1, 9) i;
	INSERT INTO names SELECT i, i FROM generate_series(1, 9) i;);

$first->sql("$plain $names UNIQUE); $parted; $rows");
$middle->sql(
	"$plain $names); $parted PARTITION BY LIST (side);
	CREATE TABLE even PARTITION OF parted FOR VALUES IN (0);
	CREATE TABLE odd PARTITION OF parted FOR VALUES IN (1);");
$last->sql("$plain $names UNIQUE); $parted;");
$middle->sql(
	'CREATE PUBLICATION cascade FOR ALL TABLES WITH (publish_via_partition_root = true)'
);
$middle->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$middle->poll_query_until('postgres',
	'SELECT count(pid) = 2 FROM parallel_apply.writers')
  or die 'there are no two writers';

# A lock that a transaction waits for before it has an xid
my $gate_lock = 'LOCK TABLE gate IN SHARE MODE';

sub open_gate
{
	my ($session) = @_;
	$session->release;
	return;
}

# An older transaction, blocked at the gate, and then younger ones for the other
# writer
sub apply_behind
{
	my ($older, $younger, $look) = @_;
	$pair->run_behind_gate($gate_lock, "UPDATE gate SET n = n + 1; $older",
		$younger, $look);
	return;
}

sub start_creating_slot
{
	my ($name) = @_;
	my $session = $middle->background_psql('postgres', on_error_stop => 0);
	$session->query_until(qr/begins/, <<~"SQL");
		\\echo begins
		SELECT pg_create_logical_replication_slot('$name', 'pgoutput');
		SQL
	return $session;
}

# The number of rows of the largest transaction
sub most_decoded_rows
{
	my ($name) = @_;
	return $middle->sql(
		qq(SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n
			FROM pg_logical_slot_get_binary_changes('$name', NULL, NULL,
				'proto_version', '1', 'publication_names', 'cascade')
			WHERE chr(get_byte(data, 0)) IN ('I', 'U', 'D') GROUP BY xid::text) AS decoded)
	);
}

# Both writers have met the tables.
apply_behind("UPDATE hot SET v = 'met' WHERE id = 9",
	["UPDATE hot SET v = 'known' WHERE id = 9; UPDATE cold SET v = 'known'"]);
apply_behind(
	"UPDATE hot SET v = 'met' WHERE id = 9; UPDATE cold SET v = 'met'",
	["UPDATE hot SET v = 'known' WHERE id = 8"]);

# Return how many transactions, of one row each, were applied as one, and call $look
# meanwhile.  A writer that was slow claims fewer at a time for a while, so this is
# repeated until there are more than two.
sub transactions_together
{
	my ($look) = @_;
	my $most = 0;
	for (my $times = 0; $times < 20 && $most <= 2; $times++)
	{
		apply_behind(
			"UPDATE hot SET v = 'older' WHERE id = 2",
			[ map { "UPDATE hot SET v = 'same $_' WHERE id = 2" } 1 .. 20 ],
			sub {
				$most = $middle->sql(
					'SELECT max(changes_received) FROM parallel_apply.writers'
				);
				$look->() if $look && $most > 2;
			});
	}
	return $most;
}

# Detects: a slot that is created while a batch has no xid yet decodes the batch.
my $creator;
my $most_together = transactions_together(
	sub {
		my $aborts = $middle->counter('commit_order_aborts');
		$creator = start_creating_slot('meanwhile');
		$middle->poll_query_until(
			'postgres',
			q(SELECT confirmed_flush_lsn IS NOT NULL AND NOT active
			FROM pg_replication_slots WHERE slot_name = 'meanwhile')
		) or die 'slot meanwhile is not created';
		$middle->counter_becomes(
			'commit_order_aborts',
			'= ' . ($aborts + 1),
			'a slot does not wait for a batch that has begun before, which is rolled back'
		);
	});
cmp_ok($most_together, '>', 2,
	'without a slot, transactions are applied together');
$creator->quit;
$middle->flush_wal;
is(most_decoded_rows('meanwhile'), 2,
	'and decodes one transaction at a time, of which the oldest has two changes'
);

# A streamed transaction on the middle server, or the slot behind it
sub drop_slot
{
	my ($name) = @_;
	$middle->poll_query_until('postgres',
		"SELECT NOT active FROM pg_replication_slots WHERE slot_name = '$name'"
	) or die "slot $name is active";
	$middle->sql("SELECT pg_drop_replication_slot('$name')");
	return;
}

# Detects: more of it is applied while it waits for data, or for a lock.
foreach my $waits ('data', 'lock')
{
	drop_slot($waits eq 'data' ? 'meanwhile' : 'data');
	my $gate = $middle->hold($gate_lock);
	my $session = $pair->begin_streamed(item_rows(1500));
	$middle->wait_for_in_progress(1000);
	if ($waits eq 'lock')
	{
		$session->query_safe('UPDATE gate SET n = n + 1;' . item_rows(1500));
		$middle->wait_for_state('waiting for lock');
	}
	my $slot = start_creating_slot($waits);
	ok( $middle->poll_query_until(
			'postgres',
			"SELECT count(*) = 1 FROM pg_replication_slots
			WHERE slot_name = '$waits' AND NOT active AND confirmed_flush_lsn IS NOT NULL"
		),
		"a slot does not wait for a streamed transaction that waits for $waits"
	);
	open_gate($gate);
	$session->release;
	$slot->quit;
	$pair->tables_equal("when it has ended, after it had waited for $waits",
		'items', 'gate');
}

# Detects: it is begun although there is a slot, of this database or another one.
foreach my $database ('this', 'another')
{
	if ($database eq 'another')
	{
		drop_slot('lock');
		$middle->sql('CREATE DATABASE other');
		$middle->safe_psql('other',
			q(SELECT pg_create_logical_replication_slot('other', 'pgoutput'))
		);
	}
	my $column =
	  'SELECT streamed_from_file FROM parallel_apply.subscription_stats';
	my $late = $middle->sql($column);
	my $session = $pair->begin_streamed(item_rows(3000));
	$session->release;
	$first->wait_applied;
	$late++;
	ok( $middle->poll_query_until('postgres', $column, $late),
		"with a slot of $database database, it is applied after its end");
}

# A slot of another database decodes nothing of this one.
cmp_ok(transactions_together(), '>', 2,
	'with a slot of another database, transactions are applied together');

# The cascade
my $connstr = $middle->connstr . ' dbname=postgres';
$last->sql(
	"CREATE SUBSCRIPTION cascade CONNECTION '$connstr' PUBLICATION cascade");
$last->wait_for_subscription_sync($middle, 'cascade');
$last->sql(
	q(CREATE SEQUENCE arrivals;
	CREATE FUNCTION number() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN NEW.arrived := nextval('public.arrivals'); RETURN NEW; END $$;
	DO $$ DECLARE t text; BEGIN
		FOREACH t IN ARRAY ARRAY['hot', 'cold', 'names', 'parted'] LOOP
			EXECUTE format('ALTER TABLE %I ADD arrived bigint', t);
			EXECUTE format('CREATE TRIGGER arrives BEFORE INSERT OR UPDATE ON %I
				FOR EACH ROW EXECUTE FUNCTION number()', t);
			EXECUTE format('ALTER TABLE %I ENABLE REPLICA TRIGGER arrives', t);
		END LOOP; END $$;)
);

sub wait_for_all
{
	$first->wait_applied;
	$middle->flush_wal;
	$middle->wait_for_catchup('cascade', 'replay');
	return;
}

# The order in which these rows of a table arrived on the last server
sub arrivals
{
	my ($sql) = @_;
	return $last->sql(
		"SELECT string_agg(what, ' ' ORDER BY arrived) FROM ($sql) AS a");
}

# The order of a row of the table hot and one of the table cold
sub arrivals_of
{
	my ($hot, $cold) = @_;
	return arrivals(
		"SELECT 'hot' AS what, arrived FROM hot WHERE id = $hot
		UNION ALL SELECT 'cold', arrived FROM cold WHERE id = $cold");
}

sub commit_times
{
	my ($node, $table) = @_;
	return $node->sql(
		"SELECT string_agg(id || ' ' || pg_xact_commit_timestamp(xmin), E'\\n' ORDER BY id) FROM $table"
	);
}

# This holds with a slot, and by default.
foreach my $setting ('slots', 'auto', 'on')
{
	$middle->reload_with("parallel_apply.logical_decoding = $setting");

	# Detects: a change is made after that of a younger transaction.  The last
	# server would refuse the younger one.
	my $fillers = 20;
	$first->sql('UPDATE names SET u = -id; UPDATE names SET u = id');
	apply_behind(
		'UPDATE names SET u = u WHERE id = 1',
		[
			'UPDATE names SET u = 100 WHERE id = 1',
			'UPDATE names SET u = 1 WHERE id = 2',
			map { "UPDATE cold SET v = '$setting $_' WHERE id = 1 + $_ % 9" }
			  1 .. $fillers
		]);

	# Detects: the changes of one transaction are made in another order.
	apply_behind(
		"UPDATE hot SET v = 'older' WHERE id = 3",
		[
			"UPDATE hot SET v = 'younger' WHERE id = 3; UPDATE cold SET v = 'younger' WHERE id = 3"
		]);
	wait_for_all();
	is( arrivals_of(3, 3),
		'hot cold',
		"with $setting, changes of a transaction are decoded in their order");

	# Detects: rows are inserted partition by partition.
	$first->sql('DELETE FROM parted; INSERT INTO parted '
		  . 'SELECT i, i % 2 FROM generate_series(1, 8) i');
	wait_for_all();
	is( arrivals('SELECT id::text AS what, arrived FROM parted'),
		'1 2 3 4 5 6 7 8',
		"with $setting, so are rows of a partitioned table");

	# Detects: rows of a table are inserted after changes of another one.
	$first->sql(
		qq(DELETE FROM cold WHERE id = 100;
		BEGIN;
		INSERT INTO cold VALUES (100, '$setting');
		UPDATE hot SET v = '$setting' WHERE id = 4;
		COMMIT;));
	wait_for_all();
	is(arrivals_of(4, 100),
		'cold hot',
		"with $setting, so are rows before changes of another table");

	# Detects: a transaction has the commit time of another one.
	is( commit_times($last, $_),
		commit_times($first, $_),
		"with $setting, commit times of $_ are those of the first server"
	) for qw(cold names);
	$pair->rows_equal($_, "with $setting, $_ is equal on the middle server")
	  for @tables;
}
# The tables of the last server have an additional column.
my %columns = (
	hot => 'id, v',
	cold => 'id, v',
	names => 'id, u',
	parted => 'id, side',
	items => 'id, v, note');
foreach my $table (sort keys %columns)
{
	my $sql =
	  "SELECT string_agg(ROW($columns{$table})::text, ' ' ORDER BY id) FROM $table";
	is($last->sql($sql), $first->sql($sql),
		"$table is equal on the last server");
}

# A user who states that nothing is decoded gets batches again.
$middle->reload_with('parallel_apply.logical_decoding = off');
cmp_ok(transactions_together(), '>', 2,
	'with off, transactions are applied together');
wait_for_all();
$pair->rows_equal($_) for @tables;

$last->log_is_clean;
$last->stop;
finish($first, $middle);
done_testing();
