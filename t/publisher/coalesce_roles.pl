# Promise: a publisher coalesces messages only for the roles and databases for which this
# has been switched on.  No other walsender, and no other process, uses a function of the
# library.  A walsender that another library may let wait for a standby sends everything
# that comes before that wait.
#
# Clients of this test connect as a subscriber does, and read what their walsender sends.
# A local session blocks the walsenders in the middle of a transaction by a lock on a
# catalog that they read for a table that they have not sent before.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalsenderClient;

my $setting = 'parallel_apply.coalesce_messages';

# No keepalives: they would flush the messages that are held back, as would a walsender that
# has lost its processor for a millisecond (selftest_fast).
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.selftest_fast = on
		autovacuum = off
		checkpoint_timeout = 1h
		wal_sender_timeout = 0));

# Functions of the library for tests, in a database.
sub create_functions
{
	my ($node, $db) = @_;
	my ($status) = $node->psql(
		$db,
		q(CREATE FUNCTION replaced_functions() RETURNS int
			LANGUAGE C AS '$libdir/parallel_apply', 'papply_selftest_replaced_functions';
		CREATE FUNCTION cover_messages() RETURNS void
			LANGUAGE C AS '$libdir/parallel_apply', 'papply_selftest_cover_messages'));
	return $status == 0;
}
plan skip_all => 'the library was made without SELFTEST=1'
  if !create_functions($publisher, 'postgres');
create_functions($subscriber, 'postgres');
$publisher->sql('CREATE DATABASE captured');
create_functions($publisher, 'captured');
$publisher->sql("CREATE ROLE $_ LOGIN REPLICATION") for qw(coalesced capture);

### functions of a walsender

sub connect_as
{
	my ($user, $dbname) = @_;
	return WalsenderClient->new($publisher, user => $user, dbname => $dbname);
}

# How many functions a new walsender replaces.
sub replaced_for
{
	my ($user, $dbname) = @_;
	my $client = connect_as($user, $dbname);
	my $count = $client->query('SELECT replaced_functions()');
	$client->close;
	return $count;
}

# How many functions a session of this role replaces.
sub replaced_in_session
{
	my ($user) = @_;
	return $publisher->sql('SELECT replaced_functions()',
		extra_params => [ '-U', $user ]);
}

# Switch the setting for the server.
sub set_server
{
	my ($value) = @_;
	$publisher->reload_with("$setting = $value");
	$publisher->poll_query_until('postgres',
		"SELECT current_setting('$setting') = '$value'")
	  or die 'the setting does not change';
	return;
}

is($subscriber->sql('SELECT replaced_functions()'),
	0, 'nothing is replaced on a subscriber');
is($subscriber->sql("SHOW $setting"), 'off', 'the setting is off by default');
is(replaced_for('coalesced'), 0, 'nor in a walsender, by default');

my $older = connect_as('coalesced');
$publisher->sql("ALTER ROLE coalesced SET $setting = on");
is(replaced_for('coalesced'),
	5, 'functions are replaced in walsenders of a role for which it is on');
is(replaced_for('capture'), 0, 'but not in those of other roles');
is(replaced_in_session('coalesced'),
	0, 'nor in a session of this role that is no walsender');
is($older->query('SELECT replaced_functions()'),
	0, 'nor in a walsender that was connected before');
$older->close;

$publisher->sql("ALTER DATABASE captured SET $setting = on");
is(replaced_for('capture', 'captured'), 5,
	'it can be on for a database, too');
is(replaced_for('capture'), 0, 'and is not for others');
$publisher->sql("ALTER ROLE capture IN DATABASE captured SET $setting = off");
is(replaced_for('capture', 'captured'),
	0, 'and off for a role in this database');
is(replaced_for('coalesced', 'captured'), 5, 'but for no other role');

set_server('on');
is(replaced_for($_->[0]), $_->[1], "on for the server: $_->[0]")
  for [ capture => 5 ], [ coalesced => 5 ];
$publisher->sql("ALTER ROLE capture SET $setting = off");
is(replaced_for('capture'), 0, 'a role can be excluded');
set_server('off');
is(replaced_for('capture'), 0, 'off for the server: capture');
is(replaced_for('coalesced'), 5, 'off for the server: coalesced');

my ($status, undef, $errors) = $publisher->psql(
	'postgres',
	"ALTER ROLE capture SET $setting = on",
	extra_params => [ '-U', 'capture' ]);
isnt($status, 0, 'a role cannot switch it on by itself');
like($errors, qr/permission denied to set parameter/, 'and gets an error');
$publisher->sql("GRANT SET ON PARAMETER $setting TO capture");
$publisher->sql(
	"ALTER ROLE capture SET $setting = on",
	extra_params => [ '-U', 'capture' ]);
is(replaced_for('capture'), 5, 'unless it is granted to the role');
$publisher->sql("ALTER ROLE capture RESET $setting");
is(replaced_for('capture'), 0, 'a role that is reset has that of the server');

# A walsender follows a reload.
my $client = connect_as('capture');
for my $value ('on', 'off')
{
	set_server($value);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($client->query("SHOW $setting") ne $value)
	{
		die 'the walsender does not read the setting' if time > $end;
	}
	is( $client->query('SELECT replaced_functions()'),
		$value eq 'on' ? 5 : 0,
		"a walsender that waits for commands follows a reload: $value");
}
$client->close;

### two consumers of the same publication

my $tables = 2;
$pair->exec_both(
	join "\n",
	map {
		"CREATE TABLE known$_ (id serial PRIMARY KEY, note text);
		CREATE TABLE new$_ (id serial PRIMARY KEY, note text);"
	} 1 .. $tables);
$publisher->sql(
	'CREATE PUBLICATION tap FOR TABLE ' . join ', ',
	map { ("known$_", "new$_") } 1 .. $tables);

# A session that needs no catalog any more after this query
my $observer = $publisher->background_psql('postgres');
my $blocked =
  q(SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_publication_rel'::regclass);
$observer->query_safe($blocked);

sub wait_until_blocked
{
	my ($count) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($observer->query_safe($blocked) != $count)
	{
		die 'the walsenders do not wait for the catalog' if time > $end;
	}
	return;
}

# A client of this role that has begun to replicate, after these queries.
sub start_client
{
	my ($user, @queries) = @_;
	$publisher->sql(
		"SELECT pg_create_logical_replication_slot('$user', 'pgoutput')");
	my $consumer =
	  WalsenderClient->new($publisher, user => $user, name => $user);
	$consumer->query($_) for @queries;
	$consumer->start_replication(
		"SLOT $user LOGICAL 0/0 (proto_version '1', publication_names 'tap')"
	);
	return $consumer;
}

sub walsenders
{
	return split /\n/, $publisher->sql('SELECT pid FROM pg_stat_replication');
}

sub end_clients
{
	$_->close for @_;
	$publisher->poll_query_until('postgres',
		'SELECT count(*) = 0 FROM pg_stat_replication')
	  or die 'a walsender does not end';
	$publisher->sql(
		'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots'
	);
	return;
}

sub insert
{
	my ($table, $note) = @_;
	return "INSERT INTO $table (note) VALUES ('$note');";
}

# Send a transaction of two changes to these clients, whose walsenders are blocked before
# the second one.  Return whether the first client has received nothing of it then.  All
# of it arrives in the end.
sub is_held_back
{
	my (@clients) = @_;
	$publisher->sql(insert('known1', 'known'));
	for (@clients)
	{
		$_->arrives('known.*C') or die 'nothing arrives';
		$_->forget;
	}
	my @pids = walsenders();
	$publisher->stop_waiting($_, 'WalSender%') for @pids;
	$publisher->sql('BEGIN;'
		  . insert('known1', 'first')
		  . insert('new1', 'second')
		  . 'COMMIT;');
	my $lock = $publisher->hold('LOCK pg_publication_rel');
	kill 'CONT', @pids;
	wait_until_blocked(scalar @clients);
	my $is_held = $clients[0]->arrived !~ /first/;

	for (@clients[ 1 .. $#clients ])
	{
		$_->arrives('first') or die 'a change is held back';
	}
	$lock->release;
	$_->arrives('first.*second.*C')
	  or die 'a transaction is lost'
	  for @clients;
	return $is_held;
}

{
	my @clients = map { start_client($_) } qw(coalesced capture);
	ok(is_held_back(@clients),
		'messages for the role are coalesced, those for the other are sent at once'
	);
	end_clients(@clients);
}

### a library that lets the walsender wait for a standby

# Behind a backlog, the first of two transactions would stay for the second one.  The other
# library waits before it puts that.
sub goes_before_the_wait
{
	my ($name, @queries) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $consumer = start_client('coalesced', @queries);
	$publisher->sql(insert('known2', 'known'));
	$consumer->arrives('known.*C') or die 'nothing arrives';
	$consumer->forget;
	my ($pid) = walsenders();
	$publisher->stop_waiting($pid, 'WalSender%');
	# The second record is not published.  It keeps the positions apart.
	my $lsn = $publisher->sql(
		insert('known2', 'before') . 'SELECT pg_current_wal_insert_lsn()');
	$publisher->sql(
		q(SELECT pg_logical_emit_message(false, 'tap', 'between')));
	$publisher->sql(insert('known2', 'behind'));
	$publisher->sql(
		"INSERT INTO known2 (note) SELECT md5(i::text) FROM generate_series(1, 2000) i"
	);
	my $end = $publisher->sql(
		insert('known2', 'last') . 'SELECT pg_current_wal_insert_lsn()');
	$publisher->sql(
		q(SELECT pg_create_physical_replication_slot('standby', true)));
	$publisher->sql("SELECT pg_replication_slot_advance('standby', '$lsn')");
	kill 'CONT', $pid;
	$publisher->poll_query_until('postgres',
		"SELECT wait_event ~* '^extension' FROM pg_stat_activity WHERE pid = $pid"
	) or die 'the walsender does not wait for the standby';
	ok($consumer->arrives('before.*C'), $name);
	unlike($consumer->arrived, qr/behind/, 'what the standby lacks waits');
	$publisher->sql("SELECT pg_replication_slot_advance('standby', '$end')");
	ok($consumer->arrives('behind.*C.*last.*C'), 'and is sent then');
	end_clients($consumer);
	return;
}

goes_before_the_wait('nothing is kept below functions of another library',
	'SELECT cover_messages()');
$publisher->sql("GRANT SET ON PARAMETER $setting TO coalesced");
$publisher->sql("ALTER ROLE coalesced RESET $setting");
goes_before_the_wait(
	'nor if they were there first',
	'SELECT cover_messages()',
	"SET $setting = on");
$publisher->sql("ALTER ROLE coalesced SET $setting = on");
$observer->quit;

### a subscription

$subscriber->create_extension;
$publisher->sql('GRANT SELECT ON ALL TABLES IN SCHEMA public TO coalesced');
my $connstr = $publisher->connstr . ' dbname=postgres user=coalesced';
$subscriber->sql(
	"CREATE SUBSCRIPTION tap CONNECTION '$connstr' PUBLICATION tap");
$subscriber->wait_for_pool('tap');
$subscriber->wait_until_ready;
$publisher->sql(
	insert("known$_", 'replicated') . insert("new$_", 'replicated'))
  for 1 .. $tables;
$publisher->wait_applied;
is($publisher->sql('SELECT DISTINCT usename FROM pg_stat_replication'),
	'coalesced', 'a subscription connects as the role');
$pair->rows_equal($_) for map { ("known$_", "new$_") } 1, $tables;
finish($publisher, $subscriber, qr/permission denied to set parameter/);
done_testing();
