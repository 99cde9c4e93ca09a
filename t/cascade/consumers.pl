# Promise: with logical_decoding = auto, writers apply several transactions together
# although the WAL is decoded, as long as no consumer may get what they apply; and one
# by one while one may.
#
# left and right subscribe to each other with origin = none, and right applies with
# two writers.  As in t/cascade/decoding.pl, a lock of the table gate blocks the older
# transaction, and the other writer is stopped until all that it could claim together
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
		max_wal_senders = 10
		max_replication_slots = 10
		wal_retrieve_retry_interval = '100ms'),
	subscriber_conf => q(
		wal_level = logical
		max_wal_senders = 10
		max_replication_slots = 10
		parallel_apply.writers_per_subscription = 2));
if ($left->pg_version < 16)
{
	$_->stop for $right, $left;
	plan skip_all =>
	  'the option origin of a subscription exists from PostgreSQL 16 on';
}
my $with = 'origin = none, copy_data = false';
my @tables = qw(gate hot quick);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE hot (id int PRIMARY KEY, v text);
	CREATE TABLE quick (id int PRIMARY KEY);
	CREATE TABLE own (id int PRIMARY KEY);
	INSERT INTO gate VALUES (1, 0);
	INSERT INTO hot SELECT i, 'v' FROM generate_series(1, 9) i;));
$right->create_extension;
$pair->subscribe('tap', with => $with);
$right->sql('CREATE PUBLICATION leftward FOR TABLE gate, hot, quick, own');
my $connstr = $right->connstr . ' dbname=postgres';
$left->sql(
	"CREATE SUBSCRIPTION leftward CONNECTION '$connstr' PUBLICATION leftward WITH ($with)"
);
$left->wait_for_subscription_sync($right, 'leftward');
$right->poll_query_until('postgres',
	'SELECT count(pid) = 2 FROM parallel_apply.writers')
  or die 'there are no two writers';
my $gate_lock = 'LOCK TABLE gate IN SHARE MODE';

# Apply that many transactions of one row behind the gate, and return how many of them
# are applied as one.
sub apply_behind
{
	my ($count) = @_;
	my $most;
	$pair->run_behind_gate(
		$gate_lock,
		'UPDATE gate SET n = n + 1',
		[ map { "UPDATE hot SET v = 'same $_' WHERE id = 2" } 1 .. $count ],
		sub {
			$most = $right->sql(
				'SELECT max(changes_received) FROM parallel_apply.writers');
		});
	return $most;
}

# The reason that is shown, and that advice() names
sub becomes
{
	my ($reason, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$right->strict_reason_becomes($reason, $what);
	return is(
		$right->sql(
			q(SELECT count(*), bool_and(evidence = strict_reason) FROM parallel_apply.advice('tap')
			CROSS JOIN parallel_apply.subscriptions WHERE topic = 'logical_decoding')),
		$reason eq '^$' ? '0|' : '1|t',
		'advice() says the same');
}

sub together
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	becomes('^$', "nothing is to be applied by itself $when");
	return several_together("several are applied together $when",
		sub { apply_behind(20) });
}

sub one_by_one
{
	my ($reason, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	becomes($reason, "the reason is shown $when");
	my $most = 0;
	for (1 .. 2)
	{
		my $count = apply_behind(20);
		$most = $count if $count > $most;
	}
	return is($most, 1, "each is applied by itself $when");
}

# Both writers have met the tables.
apply_behind(1) for 1 .. 2;
my $log = -s $right->logfile;

together('while the peer takes no origins');

# Nothing has come back.
$right->flush_wal;
$right->wait_for_catchup('leftward', 'replay');
is( $left->sql(
		q(SELECT count(*) FROM pg_stat_subscription_stats
		WHERE subname = 'leftward' AND apply_error_count > 0)),
	'0',
	'the peer has had no conflict');
$pair->rows_equal($_) for @tables;

# Detects: it is forgotten what the peer has wanted, once it is away.
sub disconnect
{
	$left->sql('ALTER SUBSCRIPTION leftward DISABLE');
	$right->wait_for_slot('leftward', 'false');
	return;
}

sub connect_again
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$left->sql('ALTER SUBSCRIPTION leftward ENABLE');
	$right->wait_for_slot('leftward', 'true');
	together("when the peer is connected again $when");
	return;
}

disconnect();
together('while the peer is away');

# Detects: something is known of a slot that nothing has used.
$right->restart;
$right->wait_for_pool('tap', 2);
apply_behind(1) for 1 .. 2;
one_by_one('slot "leftward" may decode', 'after a restart');
$right->wait_for_log(qr/each transaction of subscription "tap" is/, $log);
$right->wait_for_log(qr/because logical replication slot "leftward" may/,
	$log);
$log = -s $right->logfile;
connect_again('after a restart');
$right->wait_for_log(
	qr/several transactions of subscription "tap" may be applied/, $log);

# Detects: it is believed of a slot that has been moved by hand, or of another slot of that
# name.
disconnect();
together('before the slot is advanced');
$right->flush_wal;
$right->sql(
	q(SELECT pg_replication_slot_advance('leftward', pg_current_wal_flush_lsn()))
);
becomes('slot "leftward"', 'and when the slot has been advanced');
connect_again('after that');
disconnect();
becomes('^$', 'while the peer is away');
$right->sql(
	q(SELECT pg_drop_replication_slot('leftward');
	SELECT pg_create_logical_replication_slot('leftward', 'pgoutput');));
becomes('slot "leftward"', 'with a new slot of that name');
connect_again('with a new slot');

# Detects: a peer that takes what has an origin is taken for one that does not, also
# if the name of a publication looks like the option.  It would get all back, so it gets
# another table from here on.
$right->sql(
	q(ALTER PUBLICATION leftward SET TABLE own;
	CREATE PUBLICATION "p', origin 'none" FOR TABLE own;
	CREATE PUBLICATION ", origin 'none'" FOR TABLE own;));
foreach my $change (
	'SET (origin = any)',
	q(SET PUBLICATION leftward, "p', origin 'none", ", origin 'none'" WITH (refresh = false))
  )
{
	my $pid = $right->sql(
		q(SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'leftward')
	);
	$left->sql("ALTER SUBSCRIPTION leftward $change");
	$right->poll_query_until('postgres',
		"SELECT active_pid <> $pid FROM pg_replication_slots WHERE slot_name = 'leftward'"
	) or die 'the peer does not connect again';
	becomes('slot "leftward"', "the reason is shown after $change");
}
one_by_one('slot "leftward"', 'while the peer takes all origins');
$left->sql(
	q(ALTER SUBSCRIPTION leftward SET PUBLICATION leftward WITH (refresh = false);
	ALTER SUBSCRIPTION leftward SET (origin = none)));
together('when the peer takes no origins again');

# Detects: one slot that takes no origins hides another one.
$right->sql(
	q(SELECT pg_create_logical_replication_slot('other', 'pgoutput')));
one_by_one('slot "other"', 'with another slot');

# Some servers must be told that another plugin may be used.
my $libraries =
  $right->sql(q(SELECT current_setting('output_plugin_libraries', true)));
$right->reload_with(
	qq(output_plugin_libraries = '$libraries, "\$libdir/pgoutput"'))
  if $libraries ne '';

# A walsender uses that slot, without the option and with it.
{
	my $options = q(proto_version '1', publication_names 'leftward');
	my $client = WalsenderClient->new($right);
	$client->start_replication("SLOT other LOGICAL 0/0 ($options)");
	becomes('slot "other"', 'and while it is used without the option');
	$client->close;
	$right->wait_for_slot('other', 'false');
	$client = WalsenderClient->new($right);
	$client->start_replication(
		"SLOT other LOGICAL 0/0 ($options, origin 'none')");
	becomes('^$', 'but not while it is used with the option');
	$client->close;
	$right->wait_for_slot('other', 'false');
	becomes('^$', 'nor after that');

	# Detects: the last consumer but one is believed, where the last one has left the slot
	# at the same place.
	$client = WalsenderClient->new($right);
	$client->start_replication("SLOT other LOGICAL 0/0 ($options)");
	becomes('slot "other"', 'and when it is used without the option again');
	$client->close;
	$right->wait_for_slot('other', 'false');
	becomes('slot "other"', 'also after that');

	# Detects: a command that cannot be read as a whole is believed.
	$client = WalsenderClient->new($right);
	my $spaces = ' ' x 2000;
	$client->start_replication(
		"SLOT other LOGICAL 0/0 ($options, origin 'none'$spaces)");
	becomes('slot "other"', 'a command that is cut off does not count');
	$client->close;
	$right->wait_for_slot('other', 'false');
	$client = WalsenderClient->new($right);
	$client->query('SET track_activities = off');
	$client->start_replication(
		"SLOT other LOGICAL 0/0 ($options, origin 'none')");
	becomes('slot "other"', 'nor one that is not shown');
	$client->close;
	$right->wait_for_slot('other', 'false');

	# Detects: what was wanted of a slot is believed of one that has got its place in memory,
	# and its position, with another name or another plugin.
	$client = WalsenderClient->new($right);
	$client->start_replication(
		"SLOT other LOGICAL 0/0 ($options, origin 'none')");
	$client->close;
	$right->wait_for_slot('other', 'false');
	becomes('^$', 'the last consumer of the slot took no origins');
	$right->sql(
		q(SELECT pg_copy_logical_replication_slot('other', 'kept');
		SELECT pg_drop_replication_slot('other');
		SELECT pg_copy_logical_replication_slot('kept', 'another');));
	becomes('slot "another"', 'a copy of the slot has had no consumer');
	$right->sql(
		q(SELECT pg_drop_replication_slot('another');
		SELECT pg_copy_logical_replication_slot('kept', 'other', false, '$libdir/pgoutput');)
	);
	becomes('slot "other"', 'nor has one with that name');
	$right->sql(
		q(SELECT pg_drop_replication_slot('other');
		SELECT pg_drop_replication_slot('kept');));
}

# Detects: the last command of a session is believed of a temporary slot, which the
# session keeps between its commands, or of another slot of the session.
{
	my $client = WalsenderClient->new($right);
	$client->query(
		'CREATE_REPLICATION_SLOT "kept" TEMPORARY LOGICAL "pgoutput"');
	becomes('slot "kept"', 'with a temporary slot');
	my $other = $right->sql(
		q(SELECT slot_name FROM pg_create_logical_replication_slot('other', 'pgoutput'))
	);
	$client->start_replication(
		q(SLOT "other" LOGICAL 0/0 (proto_version '1', publication_names 'leftward', origin 'none'))
	);
	becomes('slot "kept"', 'although its session uses another one');
	$client->close;
	$right->wait_for_slot('other', 'false');
	$right->sql(q(SELECT pg_drop_replication_slot('other')));
}
becomes('^$', 'a temporary slot goes with its session');

# Detects: a session is believed that has ended the command, but keeps the slot.
{
	my $client = WalsenderClient->new($right);
	$client->query(
		'CREATE_REPLICATION_SLOT "kept" TEMPORARY LOGICAL "pgoutput"');
	$client->start_replication(
		q(SLOT "kept" LOGICAL 0/0 (proto_version '1', publication_names 'leftward', origin 'none'))
	);
	becomes('^$', 'nor while its command is executed');
	$client->forget;
	$client->send_message('c', '');
	$client->arrives('<Z>') or die 'the command does not end';
	becomes('slot "kept"', 'but when the command has ended');
	$client->close;
	becomes('^$', 'and not without its session');
}

# Detects: the options of a plugin that is not known are believed.
{
	$right->sql(
		q(SELECT pg_create_logical_replication_slot('other', '$libdir/pgoutput'))
	);
	my $client = WalsenderClient->new($right);
	$client->start_replication(
		q(SLOT other LOGICAL 0/0 (proto_version '1', publication_names 'leftward', origin 'none'))
	);
	$right->wait_for_slot('other', 'true');
	becomes('slot "other"', 'another plugin counts');
	$client->close;
	$right->wait_for_slot('other', 'false');
	$right->sql(q(SELECT pg_drop_replication_slot('other')));
}

# Detects: slots are not seen with "slots", or the standby.
$right->reload_with('parallel_apply.logical_decoding = slots');
becomes('slot "leftward"', 'with "slots", each slot counts');
$right->reload_with('parallel_apply.logical_decoding = on');
becomes('logical_decoding" is "on"', 'with "on", there need be none');
$right->reload_with('parallel_apply.logical_decoding = auto');
becomes('^$', 'with "auto", they do not');

# A standby counts when its feedback says that it has logical slots, or, without a
# slot here, if there is feedback.  Its slot begins at a list of running transactions.
{
	my $standby = PapplyNode->new('standby');
	$right->sql('CREATE PUBLICATION applied FOR TABLE gate, hot');
	$right->sql(q(SELECT pg_create_physical_replication_slot('standby')));
	$right->backup('base');
	$standby->init_from_backup($right, 'base', has_streaming => 1);
	$standby->append_conf(
		'postgresql.conf', q(
		shared_preload_libraries = ''
		hot_standby_feedback = on
		wal_receiver_status_interval = 1
		primary_slot_name = 'standby'));
	$standby->start;
	$right->poll_query_until('postgres',
		q(SELECT xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = 'standby')
	) or die 'there is no feedback';
	becomes('^$', 'a standby without logical slots does not count');

	my $creator = $standby->background_psql('postgres');
	$creator->query_until(qr/begins/,
		"\\echo begins\nSELECT pg_create_logical_replication_slot('below', 'pgoutput');\n"
	);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (
		$standby->sql(
			'SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL'
		) ne '1'
		&& time < $end)
	{
		$right->sql('SELECT pg_log_standby_snapshot()');
	}
	$creator->quit;
	one_by_one(
		'standby of replication slot "standby"',
		'while a standby has a logical slot');
	$right->flush_wal;
	$right->wait_for_catchup($standby, 'replay');
	is( $standby->sql(
			q(SELECT max(n) FROM (SELECT count(*) AS n
			FROM pg_logical_slot_get_binary_changes('below', NULL, NULL,
				'proto_version', '1', 'publication_names', 'applied')
			WHERE chr(get_byte(data, 0)) = 'U' GROUP BY xid::text) AS decoded)
		),
		'1',
		'which decodes one transaction at a time');
	$standby->sql(q(SELECT pg_drop_replication_slot('below')));
	together('when the slot of a standby is dropped');

	$standby->append_conf('postgresql.conf', q(primary_slot_name = ''));
	$standby->restart;
	becomes('standby of walsender',
		'a standby without a slot here may have some');
	$standby->append_conf('postgresql.conf', 'hot_standby_feedback = off');
	$standby->reload;
	becomes('^$', 'it does not count without feedback');
	$standby->stop;
	$right->sql(q(SELECT pg_drop_replication_slot('standby')));
}

# Commit times of rows are those of their own transactions.
$right->append_conf('postgresql.conf', 'track_commit_timestamp = on');
$right->restart;
$right->wait_for_pool('tap');
$left->poll_query_until('postgres',
	q(SELECT pid IS NOT NULL FROM pg_stat_subscription WHERE subname = 'leftward')
);
becomes('track_commit_timestamp', 'with commit times, each counts');

$left->wait_applied;
$right->flush_wal;
$right->wait_for_catchup('leftward', 'replay');
$pair->rows_equal($_, "$_ is equal on both sides in the end") for @tables;
finish(
	$left,
	$right,
	qr/FATAL: .*terminating .* due to administrator command/,
	qr/could not receive data from WAL stream|could not connect to the publisher|could not send end-of-streaming/
);
done_testing();
