# Promise: what a consumer that takes changes with an origin gets from the WAL of a
# subscriber is, transaction by transaction, what PostgreSQL's own apply writes, also if
# the consumer comes or goes during a backlog.  Its slot, and the copy of a table, wait
# for nothing that PostgreSQL's own apply would not have begun.
#
# right applies what left writes twice: in database postgres with two writers, and in
# database serial by PostgreSQL's own apply, which is the model; slots count in their own
# database only.  Database below of left subscribes to what right has applied.  Changes
# are compared as pgoutput sends them, with commit times.
#
# As in t/cascade/decoding.pl, a lock of the table gate blocks the oldest transaction before
# it has an xid, and the other writer is stopped until all that it could claim together
# are queued.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalsenderClient;

my ($pair, $left, $right) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		wal_retrieve_retry_interval = '100ms'),
	subscriber_conf => q(
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		parallel_apply.writers_per_subscription = 2
		parallel_apply.selftest_fast = on
		autovacuum = off));
my $has_origins = $left->pg_version >= 16;
my @tables = qw(gate second_gate hot cold items parted);
my $gate_lock = 'LOCK TABLE gate IN SHARE MODE';

my $plain = join '',
  map { "CREATE TABLE $_;" } 'gate (id int PRIMARY KEY, n int)',
  'second_gate (id int PRIMARY KEY, n int)',
  'hot (id int PRIMARY KEY, v text)', 'cold (id int PRIMARY KEY, v text)',
  'items (id int PRIMARY KEY, v int, note text)';
my $parted = 'CREATE TABLE parted (id int, side int, PRIMARY KEY (id, side))';
$left->sql('CREATE DATABASE below');
$right->sql('CREATE DATABASE serial');
$left->safe_psql($_, "$plain $parted") for qw(postgres below);
$left->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO second_gate VALUES (1, 0);
	INSERT INTO hot SELECT i, 'v' FROM generate_series(1, 9) i;
	INSERT INTO cold SELECT i, 'v' FROM generate_series(1, 9) i;));
foreach my $database (qw(postgres serial))
{
	$right->safe_psql(
		$database, "$plain $parted PARTITION BY LIST (side);
		CREATE TABLE even PARTITION OF parted FOR VALUES IN (0);
		CREATE TABLE odd PARTITION OF parted FOR VALUES IN (1);
		CREATE PUBLICATION applied FOR TABLE "
		  . join(', ', @tables) . ' WITH (publish_via_partition_root = true)'
	);
}
$right->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$pair->subscribe_serially(with => 'streaming = on');
$right->wait_until_ready('serial');
$right->wait_for_pool('tap', 2);
$right->safe_psql('serial',
	q(SELECT pg_create_logical_replication_slot('model', 'pgoutput')));

### consumers ####################################################################

# Connect a consumer to a slot, which is created before; with origin 'none', it does not
# count.
sub connect_consumer
{
	my ($slot, $origin) = @_;
	my $client = WalsenderClient->new($right);
	$client->query(qq(CREATE_REPLICATION_SLOT "$slot" LOGICAL "pgoutput"));
	$origin = $has_origins ? ", origin '$origin'" : '';
	$client->start_replication(
		qq(SLOT "$slot" LOGICAL 0/0 (proto_version '1', publication_names 'applied'$origin))
	);
	return $client;
}

# The slot still counts after that.
sub disconnect
{
	my ($client, $slot) = @_;
	$client->close;
	$right->wait_for_slot($slot, 'false');
	return;
}

sub drop_slot
{
	my ($slot) = @_;
	$right->sql("SELECT pg_drop_replication_slot('$slot')");
	return;
}

# Return the transactions that a slot has since the last call, each with the time of its
# commit and its changes.
sub stream
{
	my ($database, $slot) = @_;
	$right->flush_wal;
	return split /\n/, $right->safe_psql($database, <<~"SQL");
		SELECT ltrim(string_agg(CASE kind
			WHEN 'B' THEN E'\\nbegin ' || encode(substr(data, 10, 8), 'hex')
			WHEN 'C' THEN 'commit ' || encode(substr(data, 19, 8), 'hex')
			ELSE kind || ' ' || ('x' || encode(substr(data, 2, 4), 'hex'))::bit(32)::int::oid::regclass
				|| ' ' || replace(encode(substr(data, 6), 'escape'), E'\\n', '\\012') END, ', ' ORDER BY n), E'\\n')
		FROM (SELECT chr(get_byte(data, 0)) AS kind, data, n
			FROM pg_logical_slot_get_binary_changes('$slot', NULL, NULL,
				'proto_version', '1', 'publication_names', 'applied') WITH ORDINALITY AS c (lsn, xid, data, n)) AS decoded
		WHERE kind IN ('B', 'C', 'I', 'U', 'D')
		SQL
}

# Let the model begin here.
sub begin_streams
{
	$pair->wait_for_both;
	stream('serial', 'model');
	return;
}

# Assert that a slot has what the model has got since begin_streams() but the first
# transactions, and return how many these are.
sub is_as_the_model
{
	my ($slot, $without, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->wait_for_both;
	my @want = stream('serial', 'model');
	my @have = stream('postgres', $slot);
	splice @want, 0, $without;
	is(scalar @have, scalar @want, "$name, with as many transactions");
	my ($differs) =
	  grep { ($have[$_] // '') ne ($want[$_] // '') } 0 .. $#want;
	ok(!defined $differs, $name)
	  or diag(
		join "\n",
		"transaction $differs:",
		map { substr($_->[$differs] // 'none', 0, 1000) } \@have, \@want);
	return scalar @want;
}

### backlogs #####################################################################

my ($backlog, $rows) = (20, 2);
my $number = 0;

# Apply a transaction that is blocked at the gate, and a backlog behind it.  Return how
# many are applied as one while the gate is closed, before $meanwhile is called with this
# number.
sub apply_backlog
{
	my ($meanwhile, $prepare) = @_;
	my $most;
	$number++;
	begin_streams();
	$pair->run_behind_gate(
		$gate_lock,
		'UPDATE gate SET n = n + 1',
		[
			map {
				"UPDATE hot SET v = '$number $_' WHERE id = 2; UPDATE cold SET v = '$number $_' WHERE id = 2"
			} 1 .. $backlog
		],
		sub {
			$most = $right->sql(
				"SELECT max(changes_received) / $rows FROM parallel_apply.writers"
			);
			$meanwhile->($most) if $meanwhile;
		},
		$prepare);
	return $most;
}

# The same until more than two are applied as one
sub several_are_applied_together
{
	my ($when, $meanwhile) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return several_together(
		"several are applied together $when",
		sub {
			apply_backlog(sub { $meanwhile->() if $meanwhile && $_[0] > 2 });
		});
}

# Both writers have met the tables.
apply_backlog() for 1 .. 2;

### a consumer comes and goes ####################################################

# Detects: a writer asks for slots only when transactions are queued.
my ($early, $late, $other);
several_are_applied_together('without a consumer');
is(apply_backlog(undef, sub { $early = connect_consumer('early', 'any') }),
	1, 'each is applied by itself when a consumer has come before');
disconnect($early, 'early');
is( is_as_the_model(
		'early', 0, 'it gets all as if PostgreSQL had applied it'),
	1 + $backlog,
	'which is the oldest transaction and those behind it');
drop_slot('early');

# Detects: a batch that has begun before is committed.
several_are_applied_together('without it',
	sub { $late = connect_consumer('late', 'any') });
disconnect($late, 'late');
is( is_as_the_model(
		'late', 0, 'a consumer that comes during a batch does not get it'),
	1 + $backlog,
	'but each of its transactions');

# Detects: one that goes takes the other one with it.
$late = connect_consumer('other', 'any');
is(apply_backlog(sub { disconnect($late, 'other'); drop_slot('other'); }),
	1, 'each is applied by itself with two consumers');
is( is_as_the_model('late', 0, 'one that stays gets all when the other goes'),
	1 + $backlog,
	'from the first to the last');
is(apply_backlog(sub { drop_slot('late') }),
	1, 'each is applied by itself until the last one goes');

# The same slot shows what a consumer would have got without the rules.
SKIP:
{
	skip 'the option origin exists from PostgreSQL 16 on', 2 if !$has_origins;
	my $record = connect_consumer('record', 'none');
	several_are_applied_together('with a consumer that takes no origins');
	disconnect($record, 'record');
	$pair->wait_for_both;
	my $largest = 2 * $rows;
	ok( scalar(
			grep { (() = /, U /g) > $largest } stream('postgres', 'record')),
		'and would be decoded like that');
	drop_slot('record');
}

### other consumers ##############################################################

# A connection says what a standby would.  With "slots", only slots of this server count,
# and with "off", nothing does.
SKIP:
{
	skip 'a standby has logical slots from PostgreSQL 16 on', 7
	  if !$has_origins;
	my ($xid, $lsn) = split /\|/,
	  $right->sql('SELECT txid_current(), pg_current_wal_lsn()');
	$right->sql(q(SELECT pg_create_physical_replication_slot('standby')));
	foreach my $slot ('SLOT standby', '')
	{
		my $standby = WalsenderClient->new($right, replication => 'true');
		$standby->start_replication("$slot PHYSICAL $lsn");
		$standby->send_message('d', pack 'a q> N4', 'h', 0, $xid, 0, $xid, 0);
		foreach my $setting (qw(auto slots off))
		{
			$right->reload_with("parallel_apply.logical_decoding = $setting");
			$right->strict_reason_becomes(
				$setting eq 'auto' ? 'the standby of' : '^$',
				"a standby, $slot, with $setting");
		}
		$standby->close;
	}
	$right->sql(q(SELECT pg_drop_replication_slot('standby')));
	$right->reload_with('parallel_apply.logical_decoding = auto');

	# A connection that has a snapshot, as for the copy of a table, is no standby.
	my $copy = WalsenderClient->new($right);
	$copy->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$copy->query('SELECT 1');
	several_are_applied_together('while a subscription copies a table');
	$copy->close;
}

### slots and copies do not wait #################################################

# PostgreSQL's own apply has nothing open here: it would wait for the table, without an
# xid.  Detects: a slot, or a table copy, waits for what waits for its turn.
several_are_applied_together(
	'before a subscription is created',
	sub {
		my $open =
		  q(FROM parallel_apply.writers JOIN pg_locks USING (pid) WHERE locktype = 'transactionid' AND granted);
		$right->wait_until("count(*) > 0 $open",
			'no transaction is applied before its turn');
		my $connstr = $right->connstr . ' dbname=postgres';
		$left->safe_psql('below',
			"CREATE SUBSCRIPTION below CONNECTION '$connstr' PUBLICATION applied"
		);
		ok( $left->poll_query_until(
				'below',
				q(SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r')
			),
			'a subscription copies its tables while the oldest transaction is blocked'
		);
	});

# Here the oldest one has an xid.  When it has ended, the next one waits for another
# table, without an xid, and the one behind it has an xid.
{
	begin_streams();
	my @gates =
	  map { $right->hold("LOCK TABLE $_ IN SHARE MODE") }
	  qw(gate second_gate);
	$left->commit_each(
		q(UPDATE hot SET v = 'first' WHERE id = 1; UPDATE gate SET n = n + 1),
		'UPDATE second_gate SET n = n + 1',
		map { "UPDATE cold SET v = 'later' WHERE id = $_" } 1 .. 4);
	$right->states_become(behind_lock('waiting for lock'),
		'two transactions are blocked');
	my $creator = $right->background_psql('postgres', on_error_stop => 0);
	$creator->query_until(qr/begins/,
		"\\echo begins\nSELECT pg_create_logical_replication_slot('created', 'pgoutput');\n"
	);
	my $waits =
	  q(FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'transactionid' AND NOT granted AND query ~ 'created');
	ok( $right->poll_query_until('postgres', "SELECT count(*) = 1 $waits"),
		'a slot waits for a transaction that has changed something, as always'
	);
	$gates[0]->release;
	ok( $right->poll_query_until(
			'postgres',
			q(SELECT NOT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = 'created')
		),
		'but for none that has been begun before its turn');
	is( $right->sql(
			q(SELECT count(*) FROM parallel_apply.writers WHERE state = 'waiting for lock')
		),
		'1',
		'while an older one is still blocked');
	$creator->quit;
	$gates[1]->release;
	is( is_as_the_model(
			'created', 1, 'it gets all but what it has waited for'),
		5,
		'from the next transaction on');
	drop_slot('created');
}

### a cascade ####################################################################

# A slot that does not count records what the subscription below gets.  On PostgreSQL 15
# each slot counts.  Detects: changes are made in another order, or rows of one table, or
# one partition, together; a streamed transaction is decoded in parts.
{
	my $record = connect_consumer('record', 'none');
	begin_streams();
	my @younger;
	foreach my $i (1 .. 30)
	{
		my $id = $i % 9 + 1;
		push @younger,
		  join '; ', "UPDATE hot SET v = 'cascade $i' WHERE id = $id",
		  "UPDATE cold SET v = 'cascade $i' WHERE id = $id",
		  $i % 3 ? "INSERT INTO cold VALUES (1000 + $i, 'new')"
		  : "INSERT INTO parted SELECT 10 * $i + j, j % 2 FROM generate_series(1, 4) j",
		  $i % 5 ? "UPDATE hot SET v = v || 'again' WHERE id = $id"
		  : "DELETE FROM cold WHERE id > 1000; UPDATE parted SET id = -id WHERE id > 0";
	}
	$pair->run_behind_gate(
		$gate_lock,
		q(UPDATE gate SET n = n + 1; UPDATE cold SET v = 'older' WHERE id = 9),
		\@younger);
	$left->sql(item_rows(1500));
	$left->commit_each(
		"UPDATE items SET v = 1 WHERE id <= 10",
		'DELETE FROM items WHERE id <= 5');
	$pair->wait_for_both;
	disconnect($record, 'record');
	is( is_as_the_model(
			'record', 0,
			'a cascade gets what PostgreSQL would have applied'),
		1 + @younger + 3,
		'each transaction of the first server');
	drop_slot('record');
	$right->wait_for_catchup('below', 'replay');

	foreach my $table (@tables)
	{
		my $rows =
		  "SELECT string_agg(t::text, ' ' ORDER BY t) FROM $table AS t";
		is($left->safe_psql('below', $rows),
			$left->sql($rows), "$table is equal below");
	}
}

$pair->same_as_serial('in the end', @tables);
finish($left, $right);
done_testing();
