# Promise: a publisher that preloads the library sends the messages of a transaction
# together, and behind a backlog those of several transactions, but holds nothing
# back while it has nothing to decode.
#
# A client of this test reads what a walsender sends.  A local session blocks the
# walsender in the middle of a transaction by a lock on a catalog that the walsender
# reads for a table, or for a type, that it has not seen before.  Messages that have
# arrived by then were sent; the others were held back.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WalsenderClient;

# No keepalives: they would flush the messages that are held back.  No images of catalog
# pages whose hints change: what is to be decoded together must be in one page of WAL.
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		autovacuum = off
		max_prepared_transactions = 2
		wal_log_hints = off
		wal_sender_timeout = 0));
$pair->exec_both(
	join "\n",
	map {
		"CREATE TYPE mood$_ AS ENUM ('sad', 'ok');
		CREATE TABLE known$_ (id serial PRIMARY KEY, note text);
		CREATE TABLE new$_ (id serial PRIMARY KEY, note text);
		CREATE TABLE typed$_ (id serial PRIMARY KEY, note text, mood mood$_ DEFAULT 'ok');
		CREATE TABLE parent$_ (id serial, note text) PARTITION BY LIST (id);
		CREATE TABLE partition$_ PARTITION OF parent$_ DEFAULT;
		CREATE TABLE unpublished$_ (id serial PRIMARY KEY, note text);"
	} 1 .. 30);
$publisher->sql(
	'CREATE PUBLICATION client FOR TABLE ' . join ', ',
	map { ("known$_", "new$_", "typed$_", "parent$_") } 1 .. 30);

### the client

my $client;

sub arrived
{
	return $client->arrived;
}

sub arrives
{
	my ($what) = @_;
	return $client->arrives($what);
}

# Connect with this START_REPLICATION.
sub connect_client
{
	my ($command) = @_;
	$client->close if $client;
	$publisher->poll_query_until('postgres',
		q(SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'tap_client')
	) or die 'the walsender does not end';
	$client = WalsenderClient->new($publisher);
	$client->start_replication($command);
	return;
}

# A session that needs no catalog any more after this query
my $observer;

# Wait until the walsender waits for a catalog.
sub wait_until_blocked
{
	my ($catalog) = @_;
	my $sql =
	  qq(SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '$catalog'::regclass);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($observer->query_safe($sql) != 1)
	{
		die "the walsender does not wait for $catalog" if time > $end;
	}
	return;
}

### the tables that the walsender meets

# Begin a test with tables of its own: known, new and so on with this number.  The
# walsender has met the first one.
my $number = 0;

sub begin_test
{
	$number++;
	$publisher->sql(
		"INSERT INTO known$number (note) VALUES ('known $number')");
	arrives("known $number.*C") or die "known $number does not arrive";
	$client->forget;
	return;
}

sub insert_into
{
	my ($kind, @notes) = @_;
	return map { "INSERT INTO $kind$number (note) VALUES ('$_');" } @notes;
}

# The walsender of the client
sub walsender_pid
{
	return $publisher->sql(
		q(SELECT pid FROM pg_stat_replication WHERE application_name = 'tap_client')
	);
}

# In seconds
sub pass_time
{
	my ($seconds) = @_;
	my $end = time + $seconds;
	$observer->query_safe('SELECT 1') while time < $end;
	return;
}

# Stop the walsender while it waits for WAL, where it holds no lock.  Return its pid.
sub stop_walsender
{
	my $walsender = walsender_pid();
	$publisher->stop_waiting($walsender, 'WalSenderWaitForWal');
	return $walsender;
}

# Return sessions that have locked these catalogs, after the transactions have been
# decoded up to the first lock.  The walsender has waited for it for much longer
# than a millisecond.
sub run_behind_locks
{
	my ($catalogs, @transactions) = @_;
	my $walsender = stop_walsender();
	$publisher->sql(join "\n", map { "BEGIN; $_ COMMIT;" } @transactions);
	my @sessions = map { $publisher->hold("LOCK $_") } @$catalogs;
	kill 'CONT', $walsender;
	wait_until_blocked($catalogs->[0]);
	pass_time(0.01);
	return @sessions;
}

sub end_session
{
	my ($session) = @_;
	$session->release;
	return;
}

# SQL for a condition on pg_stat_activity and pg_stat_replication
sub of_walsender
{
	my ($condition) = @_;
	return
	  qq(SELECT count(*) = 1 FROM pg_stat_replication JOIN pg_stat_activity USING (pid)
		WHERE pg_stat_replication.application_name = 'tap_client' AND $condition);
}

sub walsender_has
{
	return $publisher->sql(of_walsender(@_)) eq 't';
}

sub wait_until_walsender
{
	my ($condition) = @_;
	$publisher->poll_query_until('postgres', of_walsender($condition))
	  or die "the walsender has not: $condition";
	return;
}

# A walsender that loses its processor for a millisecond sends what it holds, and decodes
# no further.  Let it take no account of time, or as usual.
sub be_fast
{
	my ($is_on) = @_;
	$publisher->reload_with("parallel_apply.selftest_fast = $is_on");
	return;
}

# Assert that the note "kept", of the first of several transactions, does not arrive
# before the walsender meets the table new, and arrives then.
sub stays
{
	my ($name, $transactions) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	be_fast('on');
	begin_test();
	my ($lock) = run_behind_locks(['pg_publication_rel'], $transactions->());
	unlike(arrived(), qr/kept/, $name);
	end_session($lock);
	ok(arrives('kept.*after.*C'), 'and it is sent in the end');
	be_fast('off');
	return;
}

$observer = $publisher->background_psql('postgres');
$publisher->sql(
	"SELECT pg_create_logical_replication_slot('client', 'pgoutput')");
connect_client(
	"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client')"
);

### in a transaction

stays(
	'a change stays until its transaction is decoded',
	sub { join '', insert_into('known', 'kept'), insert_into('new', 'after') }
);

# The setting is read again.
{
	$publisher->reload_with('parallel_apply.coalesce_messages = off');
	begin_test();
	my ($lock) = run_behind_locks(
		['pg_publication_rel'], join '',
		insert_into('known', 'at once'),
		insert_into('new', 'after all'));
	ok(arrives('at once'),
		'each change is sent separately if the setting is off');
	end_session($lock);
	ok(arrives('after all.*C'), 'and so is what follows');
	$publisher->reload_with('parallel_apply.coalesce_messages = on');
}

# Messages that would fill the buffer are not held back.  A walsender that loses its
# processor sends some of them earlier; less than 8 kB, the last seven at most, stay.
{
	begin_test();
	my ($lock) = run_behind_locks(
		['pg_publication_rel'], join '',
		insert_into('known', map { "row $_" . 'x' x 1000 } 1 .. 9),
		insert_into('new', 'small'));
	ok(arrives('row 2x'),
		'rows of 8 kB are sent before their transaction is decoded');
	end_session($lock);
	ok(arrives('row 9x.*small.*C'), 'and the rest of it in the end');
}

# Messages that were held back for long are sent with the next change.
{
	begin_test();
	my ($table, $type) = run_behind_locks(
		[qw(pg_publication_rel pg_type)],
		join '',
		insert_into('known', 'early'),
		insert_into('new', 'late'),
		insert_into('typed', 'last'));
	end_session($table);
	wait_until_blocked('pg_type');
	ok(arrives('early'),
		'messages that were held back for long are sent with the next change'
	);
	end_session($type);
	ok(arrives('late.*last.*C'), 'and the rest of it in the end');
}

### behind a backlog

# Enough that transactions wait for others
sub backlog
{
	return
	  "INSERT INTO known$number (note) SELECT md5(i::text) FROM generate_series(1, 2000) i;";
}

stays(
	'behind a backlog a transaction stays for the next one',
	sub {
		insert_into('known', 'kept'), insert_into('new', 'after'), backlog();
	});

{
	begin_test();
	my ($lock) = run_behind_locks(
		['pg_publication_rel'],
		insert_into('known', 'kept'),
		insert_into('new', 'after'));
	ok(arrives('kept.*C'), 'without a backlog it is sent when it is decoded');
	end_session($lock);
	ok(arrives('after.*C'), 'and so is the next one');
}

# Assert that what these statements send, and what is held back, is sent without
# another change.  Changes behind the first lock are not published, so the walsender
# sends nothing for them.  Then it meets a partition.
sub goes_in_time
{
	my ($name, $sql, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $walsender = stop_walsender();
	$publisher->sql(
		join "\n", $sql,
		map { "BEGIN; $_ COMMIT;" } insert_into('unpublished', 'x'),
		insert_into('parent', 'last'),
		backlog());
	my ($unpublished, $partition) =
	  map { $publisher->hold("LOCK $_") } qw(pg_publication_rel pg_inherits);
	kill 'CONT', $walsender;
	wait_until_blocked('pg_publication_rel');
	pass_time(0.01);
	end_session($unpublished);
	wait_until_blocked('pg_inherits');
	ok(arrives($what), $name);
	end_session($partition);
	ok(arrives('last.*C'), 'and the rest of it in the end');
	return;
}

begin_test();
goes_in_time(
	'messages that were held back for long are sent without another change',
	join('', 'BEGIN;', insert_into('known', 'early'), 'COMMIT;'),
	'early.*C');

### records that are decoded together

# The background writer would log running transactions.  Return its pid.
sub stop_background_writer
{
	my $writer = $publisher->sql(
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer')
	);
	$publisher->stop_waiting($writer, 'BgWriter%');
	return $writer;
}

# Return whether the walsender, while it decodes the commit of a transaction, has
# reported that it has decoded the first two changes.  It may send a keepalive after
# the first one.  All are in one page of WAL.
sub reports_each_record
{
	begin_test();
	$publisher->sql('SELECT pg_switch_wal()');
	my ($lock) = run_behind_locks(
		['pg_publication_rel'],
		join '',
		insert_into('known', 'first', 'second'),
		"INSERT INTO known$number (note) VALUES ('at ' || pg_current_wal_insert_lsn());",
		insert_into('new', 'last'));
	my $sent_lsn = $publisher->sql(
		q(SELECT sent_lsn FROM pg_stat_replication WHERE application_name = 'tap_client')
	);
	end_session($lock);
	arrives('last.*C') or die 'the transaction does not arrive';
	return $publisher->sql(
		"SELECT '$sent_lsn' >= substr(note, 4)::pg_lsn FROM known$number WHERE note LIKE 'at %'"
	) eq 't';
}

{
	be_fast('on');
	ok(!reports_each_record(),
		'records of a page of WAL are decoded together');
	be_fast('off');
	$publisher->reload_with('parallel_apply.coalesce_messages = off');
	ok(reports_each_record(),
		'each record is decoded separately if the setting is off');
	$publisher->reload_with('parallel_apply.coalesce_messages = on');
}

# Return the position behind its commit.
sub commit_of
{
	my ($session) = @_;
	end_session($session);
	return $publisher->sql('SELECT pg_current_wal_insert_lsn()');
}

# The records of two transactions that are not published, each of which takes long
# to decode.  The walsender checks for replies between their commits.
{
	begin_test();
	my $walsender = stop_walsender();
	$publisher->sql('SELECT pg_switch_wal()');
	my @sessions =
	  map { $publisher->hold(insert_into($_, 'x')) } qw(unpublished parent);
	my $lsn = commit_of($sessions[0]);
	end_session($sessions[1]);
	my @locks =
	  map { $publisher->hold("LOCK $_") } qw(pg_publication_rel pg_inherits);
	kill 'CONT', $walsender;
	wait_until_blocked('pg_publication_rel');
	pass_time(0.01);
	end_session($locks[0]);
	wait_until_blocked('pg_inherits');
	is( $observer->query_safe(
			"SELECT sent_lsn >= '$lsn' FROM pg_stat_replication WHERE application_name = 'tap_client'"
		),
		't',
		'it looks for replies when decoding has taken long');
	end_session($locks[1]);
	arrives('C') or die 'the transaction does not arrive';
}

# Assert that what a statement sends arrives although, in the same page of WAL, a commit
# follows whose decoding waits for a lock, and that this arrives afterwards.
sub goes_before_a_slow_commit
{
	my ($statement, $what, $name, $name_of_commit) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $walsender = stop_walsender();
	$publisher->sql('SELECT pg_switch_wal()');
	my $session = $publisher->hold(insert_into('new', 'after'));
	$publisher->sql($statement);
	end_session($session);
	my $lock = $publisher->hold('LOCK pg_publication_rel');
	kill 'CONT', $walsender;
	wait_until_blocked('pg_publication_rel');
	ok(arrives($what), $name);
	end_session($lock);
	return ok(arrives('after.*C'), $name_of_commit);
}

# COMMIT PREPARED, which does not end a transaction for the walsender, and then, in
# the same page of WAL, a commit that takes long
{
	$publisher->sql(
		q(SELECT pg_create_logical_replication_slot('prepares', 'pgoutput', false, true))
	);
	connect_client(
		"SLOT prepares LOGICAL 0/0 (proto_version '3', publication_names 'client', two_phase 'on')"
	);
	begin_test();
	$publisher->sql(
		join ' ', 'BEGIN;',
		insert_into('known', 'first'),
		q(PREPARE TRANSACTION 'both';));
	arrives('first.*P.*both') or die 'the first phase does not arrive';
	$client->forget;
	goes_before_a_slow_commit(
		q(COMMIT PREPARED 'both'),
		'K.*both',
		'without a backlog each message is sent',
		'and so is what follows');

	# The second phase of a prepared transaction, and a commit that is sent before
	# it
	for (
		[ 'COMMIT PREPARED', 'K.*both', '' ],
		[ 'ROLLBACK PREPARED', 'r.*both', '' ],
		[ 'COMMIT PREPARED', 'early.*C.*K.*both', 'early' ])
	{
		my ($command, $what, $before) = @$_;
		begin_test();
		$publisher->sql(
			join ' ', 'BEGIN;',
			insert_into('known', 'first'),
			q(PREPARE TRANSACTION 'both';));
		arrives('first.*P.*both') or die 'the first phase does not arrive';
		$client->forget;
		goes_in_time(
			"$command goes without another change"
			  . ($before ? ', with a commit before it' : ''),
			($before ? join('', insert_into('known', 'early')) : '')
			  . "$command 'both';",
			$what);
	}

	# The first phase
	begin_test();
	goes_in_time(
		'PREPARE TRANSACTION goes without another change',
		join(' ',
			'BEGIN;',
			insert_into('known', 'early'),
			q(PREPARE TRANSACTION 'both';)),
		'early.*P.*both');
	$publisher->sql(q(COMMIT PREPARED 'both'));
	arrives('K.*both') or die 'the second phase does not arrive';

	# The rollback of a streamed transaction
	$publisher->reload_with('logical_decoding_work_mem = 64kB');
	connect_client(
		"SLOT prepares LOGICAL 0/0 (proto_version '3', publication_names 'client', streaming 'on')"
	);
	begin_test();
	my $streamed = $publisher->hold(backlog());
	arrives('[[:xdigit:]]{32}') or die 'nothing is streamed';
	stop_walsender();
	$client->forget;
	$streamed->query_safe('ROLLBACK');
	$streamed->quit;
	goes_in_time('a roll back goes without another change', '', 'A(.{4})\1');
	connect_client(
		"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client')"
	);
	$publisher->sql(q(SELECT pg_drop_replication_slot('prepares')));
	$publisher->reload_with('logical_decoding_work_mem = 64MB');
}

# A commit, followed by a message that ends no transaction
{
	connect_client(
		"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client', messages 'true')"
	);
	begin_test();
	goes_in_time(
		'a commit goes without another change, with a message behind it',
		join('', insert_into('known', 'early'))
		  . q(SELECT pg_logical_emit_message(false, 'tap', 'told');),
		'early.*C.*told');

	# Without a backlog, a message that ends no transaction, and then, in the same
	# page of WAL, a commit that takes long
	begin_test();
	goes_before_a_slow_commit(
		q(SELECT pg_logical_emit_message(false, 'tap', 'at once')),
		'at once',
		'without a backlog a message alone is sent',
		'and so is a commit behind it');
	connect_client(
		"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client')"
	);
}

# Behind a backlog, a transaction of which nothing is published, with enough changes
# for the walsender to check for replies.  Without a timeout it sends no keepalive.
{
	begin_test();
	my ($unpublished, $partition) = run_behind_locks(
		[qw(pg_publication_rel pg_inherits)],
		insert_into('known', 'early'),
		"INSERT INTO unpublished$number (note) SELECT 'x' FROM generate_series(1, 200);"
		  . join('', insert_into('parent', 'last')),
		backlog());
	end_session($unpublished);
	wait_until_blocked('pg_inherits');
	ok(arrives('early.*C'),
		'messages are sent when the walsender checks for replies');
	end_session($partition);
	ok(arrives('last.*C'), 'and the rest of it in the end');
}

# The walsender does not wait for a record before it has reported the ones that it
# has decoded.  It may send a keepalive after the first one.
{
	my $writer = stop_background_writer();
	$publisher->sql(
		"INSERT INTO unpublished$number (note) VALUES ('first'), ('last')");
	my $lsn = $publisher->sql('SELECT pg_current_wal_flush_lsn()');
	wait_until_walsender("sent_lsn >= '$lsn'");
	kill 'CONT', $writer;
	ok(1, 'a waiting walsender has reported everything that is decoded');
}

# A session that creates a slot reads until the snapshot is complete.  The rest of
# that page belongs to the slot.
{
	my $older = $publisher->hold('SELECT pg_current_xact_id()');
	my $maker =
	  $publisher->background_psql('postgres', replication => 'database');
	$maker->query_until(qr/sent/,
		"\\echo sent\nCREATE_REPLICATION_SLOT made LOGICAL pgoutput (SNAPSHOT 'nothing');\n"
	);
	$publisher->poll_query_until(
		'postgres',
		q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'walsender'
			AND wait_event = 'transactionid')
	) or die 'no process waits for the older transaction';
	my $walsender = $publisher->sql(
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'
			AND wait_event = 'transactionid'));
	$publisher->stop_waiting($walsender, 'transactionid');
	end_session($older);

	# CHECKPOINT logs the running transactions: none.
	$number++;
	$publisher->sql('SELECT pg_switch_wal()');
	$publisher->sql(join "\n", insert_into('known', 'before'),
		'CHECKPOINT;', insert_into('known', 'in the slot'));
	kill 'CONT', $walsender;
	$maker->query_safe('SELECT 1');
	$maker->quit;
	my $changes = $publisher->sql(
		q(SELECT string_agg(encode(data, 'escape'), '') FROM pg_logical_slot_get_binary_changes(
			'made', NULL, NULL, 'proto_version', '1', 'publication_names', 'client'))
	);
	like(
		$changes,
		qr/in the slot/,
		'changes after the snapshot of a slot are in the slot');
	$publisher->sql(q(SELECT pg_drop_replication_slot('made')));
}

### a standby that must confirm first

# The walsender of a failover slot waits for a standby, whose slot this test
# advances, at the end of the WAL that the walsender knew when it last waited.
sub confirm_wal
{
	my ($lsn) = @_;
	$publisher->sql("SELECT pg_replication_slot_advance('standby', $lsn)");
	return;
}

# Repeat until the walsender waits for WAL, and not for the standby: queries may
# write WAL, too, which is flushed later.
sub confirm_all_wal
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $is_done = 0;
	while (!$is_done)
	{
		die 'the walsender does not wait for WAL' if time > $end;
		arrived();    # or it might wait for the client
		confirm_wal('pg_current_wal_flush_lsn()');
		$is_done = walsender_has(q(wait_event = 'WalSenderWaitForWal'));
	}
	return;
}

SKIP:
{
	skip 'slots fail over from PostgreSQL 17 on', 1
	  if $publisher->pg_version < 17;
	$publisher->sql(
		q(SELECT pg_create_physical_replication_slot('standby', true);
		SELECT pg_create_logical_replication_slot('failover', 'pgoutput', failover => true))
	);
	$publisher->reload_with(q(synchronized_standby_slots = 'standby'));
	$publisher->poll_query_until('postgres',
		q(SELECT current_setting('synchronized_standby_slots') = 'standby'))
	  or die 'the setting is not read';

	my $writer = stop_background_writer();
	$number++;
	$publisher->sql("INSERT INTO known$number (note) VALUES ('known')");
	confirm_wal('pg_current_wal_flush_lsn()');
	connect_client(
		"SLOT failover LOGICAL 0/0 (proto_version '1', publication_names 'client')"
	);
	arrives('known.*C') or die "known$number does not arrive";

	# A client that seems to have received everything gets no keepalive before each
	# wait, which would flush what is held back.
	$client->send_message('d', pack 'a Q> Q> Q> Q> C',
		'r', ~0 - 1, 0, 0, 0, 0);
	wait_until_walsender(q(write_lsn > pg_current_wal_lsn()));

	my $waits_for_standby = q(wait_event = 'WaitForStandbyConfirmation');
	my $sent = 0;
	my $tries = 4;
	for my $try (1 .. $tries)
	{
		confirm_all_wal();
		$publisher->sql(
			"INSERT INTO known$number (note) VALUES ('try $try')");
		wait_until_walsender($waits_for_standby);
		my $lsn = $publisher->sql('SELECT pg_current_wal_flush_lsn()');
		$publisher->sql(backlog());
		confirm_wal("'$lsn'");
		wait_until_walsender("sent_lsn >= '$lsn'");
		wait_until_walsender($waits_for_standby);
		$sent++ if arrived() =~ /try $try.*C/s;
	}
	kill 'CONT', $writer;
	is($sent, $tries,
		'behind a backlog it is sent before the walsender waits for a standby'
	);
	$publisher->reload_with(q(synchronized_standby_slots = ''));
}

### other clients

# Messages of another plugin are sent at once.
SKIP:
{
	skip 'the server has no test_decoding', 2 if !has_module('test_decoding');
	$publisher->sql(
		"SELECT pg_create_logical_replication_slot('other', 'test_decoding')"
	);
	connect_client('SLOT other LOGICAL 0/0');
	$number++;
	$publisher->sql(join '', insert_into('known', 'known'));
	arrives('known.*COMMIT') or die 'the first transaction does not arrive';
	my ($lock) = run_behind_locks(
		['pg_type'], join '',
		insert_into('known', 'at once'),
		insert_into('typed', 'after'));
	ok(arrives('at once'), 'messages of another plugin are sent at once');
	end_session($lock);
	ok(arrives('after.*COMMIT'), 'and so is what follows');
	connect_client(
		"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client')"
	);
	$publisher->sql(q(SELECT pg_drop_replication_slot('other')));
}

# A client that ends the copy while a commit waits for it: it is asked for nothing
# any more, since that would violate the protocol.  It seems to have received
# everything, see above.
{
	begin_test();
	$client->send_message('d', pack 'a Q> Q> Q> Q> C',
		'r', ~0 - 1, 1, 1, 0, 0);
	wait_until_walsender(q(write_lsn > pg_current_wal_lsn()));
	$publisher->reload_with(q(synchronous_standby_names = 'tap_client'));
	wait_until_walsender(q(sync_state = 'sync'));
	my $walsender = stop_walsender();
	my $session = $publisher->background_psql('postgres');
	$session->query_until(qr/sent/,
		"\\echo sent\nINSERT INTO unpublished1 (note) VALUES ('waits');\n");
	$publisher->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep')
	) or die 'the commit does not wait';
	$client->forget;
	$client->send_message('c', '');
	kill 'CONT', $walsender;
	ok(arrives('<c>.*<Z>'), 'a copy that the client ends is ended');
	unlike($client->arrived, qr/<c>[^<]/, 'nothing is asked behind its end');
	$publisher->reload_with(q(synchronous_standby_names = ''));
	$session->query_safe('SELECT 1');
	$session->quit;
	connect_client(
		"SLOT client LOGICAL 0/0 (proto_version '1', publication_names 'client')"
	);
}

# The client does not read.
{
	my $offset = -s $publisher->logfile;
	begin_test();
	$publisher->sql(
		"INSERT INTO known$number (note) SELECT repeat('x', 1000) FROM generate_series(1, 10000)"
	);
	wait_until_walsender(q(wait_event = 'WalSenderWriteData'));
	$publisher->reload_with(q(wal_sender_timeout = '1s'));
	ok( $publisher->wait_for_log(
			qr/terminating walsender process due to replication timeout/,
			$offset),
		'a client that does not read is given up after wal_sender_timeout');
	$publisher->reload_with('wal_sender_timeout = 0');
}

# Physical replication, in a connection to a database
{
	my $lsn =
	  $publisher->sql('SELECT pg_switch_wal(); SELECT pg_current_wal_lsn()');
	$publisher->sql("SELECT pg_create_physical_replication_slot('physical')");
	connect_client(
		'SLOT physical PHYSICAL ' . (split /\n/, $lsn)[-1] . ' TIMELINE 1');
	$publisher->sql("INSERT INTO known1 (note) VALUES ('physical')");
	wait_until_walsender(
		q(wait_event = 'WalSenderMain' AND sent_lsn >= pg_current_wal_lsn()));
	like(arrived(), qr/physical/, 'physical replication sends what it has');
}
$client->close;
$observer->quit;

# A subscription, with commits that wait for it
$pair->create_accounts;
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$publisher->reload_with(
	q(synchronous_standby_names = 'tap'),
	'synchronous_commit = remote_apply');
$publisher->wait_for_sync_state('tap', 'sync');
$pair->under_load(
	sub {
		$subscriber->wait_for_progress for 1 .. 5;
	});
$publisher->reload_with(q(synchronous_standby_names = ''));
$pair->accounts_are_equal('with commits that wait');
$pair->rows_equal("known$_") for 1 .. $number;
# A session of pgbench that ends while its commit waits may still try to answer.
finish($publisher, $subscriber, qr/connection to client lost/);
done_testing();
