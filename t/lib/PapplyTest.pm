# PapplyTest.pm - a publisher and a subscriber with parallel_apply, and common
# functions of the tests.  It is based on PostgreSQL::Test::Cluster, whose methods
# are used for everything else.
#
# Nothing here sleeps.  Functions poll for the state that they need, and die if it
# is not reached within PG_TEST_TIMEOUT_DEFAULT seconds.
package PapplyTest;

use strict;
use warnings;
use Exporter 'import';
use PapplyNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(
  has_module indexes_are_complete new_pair create_extension exec_both on_publisher on_subscriber subscribe subscribe_serially wait_for_pool wait_applied wait_for_answer
  rows_equal tables_equal item_rows last_item wait_for_early writer_pids apply_pid restart_apply forget_violations connect_again counter hold hold_flushes end_sessions create_selftest_waits let_receiver_sleep becomes_quiet silence_publisher wait_for_state memory_of memory_of_waiting
  begin_streamed spooled_bytes wait_for_spooled no_spool_is_left begin_copy wait_until wait_until_ready reload_with wait_for_sync_state set_synchronous_commit
  wait_until_failed states_become apply_behind_gate apply_quick_ones run_behind_gate why_not_tls turn_tls_on connect_by_tls numbered_statements duplicate_key
  subscriber_refuses create_accounts start_load start_accounts_load end_load under_load wait_for_progress accounts_are_equal log_is_clean nothing_is_left_open
  finish);

# The nodes of the latest new_pair
my @pair;

# Return (publisher, subscriber), running.  Options: publisher_conf and
# subscriber_conf, lines for postgresql.conf; subscriber_init, options of the
# subscriber's initdb; name, for a second pair in a test; node_options, for new().
sub new_pair
{
	my (%opt) = @_;
	my $suffix = defined $opt{name} ? "_$opt{name}" : '';

	my @node_options = @{ $opt{node_options} // [] };
	my $publisher = PapplyNode->new("publisher$suffix", @node_options);
	$publisher->init(allows_streaming => 'logical');
	# Cluster's 1 MB of shared buffers would make bulk tests slow.
	$publisher->append_conf('postgresql.conf', <<~'CONF');
		fsync = off
		shared_buffers = 32MB
		max_connections = 40
		CONF
	$publisher->append_conf('postgresql.conf', $opt{publisher_conf} // '');

	my $subscriber = PapplyNode->new("subscriber$suffix", @node_options);
	$subscriber->init(extra => $opt{subscriber_init} // []);
	# Writers apply single transactions, too, and stay, unless a test requests
	# otherwise.
	$subscriber->append_conf('postgresql.conf', <<~'CONF');
		fsync = off
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.leader_participation = off
		parallel_apply.idle_writers_per_subscription = -1
		parallel_apply.reserved_worker_processes = 0
		max_worker_processes = 32
		max_logical_replication_workers = 8
		max_sync_workers_per_subscription = 2
		wal_retrieve_retry_interval = '100ms'
		CONF
	$subscriber->append_conf('postgresql.conf', $opt{subscriber_conf} // '');

	for my $node ($publisher, $subscriber)
	{
		# The modules of 18 set it on nodes of any version.
		$node->adjust_conf('postgresql.conf', 'autovacuum_worker_slots',
			undef)
		  if @node_options && $node->pg_version < 18;
		$node->start;
	}
	@pair = ($publisher, $subscriber);
	return @pair;
}

# Does the server have that contrib module?
sub has_module
{
	my ($name) = @_;
	chomp(my $directory = `pg_config --pkglibdir`);
	return -e "$directory/$name.so";
}

# Assert that each B-tree index of the tables in a node's database "postgres" has an entry
# for each row, and is in order.  Needs amcheck.
sub indexes_are_complete
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip 'the server has no amcheck', 1 if !has_module('amcheck');
		my ($status, $checked, $error) = $node->psql(
			'postgres', q(CREATE EXTENSION IF NOT EXISTS amcheck;
			SELECT relname, bt_index_check(oid, true) FROM pg_class
			WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
				AND relkind = 'i' AND relnamespace = 'public'::regnamespace;)
		);
		ok($status == 0 && $checked ne '',
			'indexes have all rows on ' . $node->name)
		  or diag("$error");
	}
	return;
}

sub create_extension
{
	my ($node, $db) = @_;
	$node->safe_psql($db // 'postgres', 'CREATE EXTENSION parallel_apply');
	return;
}

# Execute the same statements on both nodes of the latest pair.
sub exec_both
{
	my ($sql, $db) = @_;
	$_->safe_psql($db // 'postgres', $sql) for @pair;
	return;
}

# Execute statements on one node of the latest pair; return what they print.
sub on_publisher
{
	my ($sql) = @_;
	return $pair[0]->safe_psql('postgres', $sql);
}

sub on_subscriber
{
	my ($sql) = @_;
	return $pair[1]->safe_psql('postgres', $sql);
}

# Create a publication and a subscription of that name, and wait until all tables
# are ready and the pool runs.  Options: publication, default 'FOR ALL TABLES';
# with, options of the subscription such as 'streaming = on'; db; no_pool, where
# none is expected.
sub subscribe
{
	my ($publisher, $subscriber, $name, %opt) = @_;
	my $db = $opt{db} // 'postgres';
	my $publication = $opt{publication} // 'FOR ALL TABLES';
	my $with = defined $opt{with} ? "WITH ($opt{with})" : '';
	my $connstr = $publisher->connstr . " dbname=$db";

	$publisher->safe_psql($db, "CREATE PUBLICATION $name $publication");
	$subscriber->safe_psql($db,
		"CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name $with"
	);
	$subscriber->wait_for_subscription_sync($publisher, $name, $db);
	# Transactions that change a table which is being synchronized are not left to
	# the pool.
	wait_until_ready($subscriber, $db);
	wait_for_pool($subscriber, $name, undef, $db) unless $opt{no_pool};
	return;
}

# The model in tests that compare: the database "serial" of the subscriber, which
# does not have the extension, subscribes to publication tap.  Option with as of
# subscribe.
sub subscribe_serially
{
	my ($publisher, $subscriber, %opt) = @_;
	my $with = defined $opt{with} ? "WITH ($opt{with})" : '';
	my $connstr = $publisher->connstr . ' dbname=postgres';

	$subscriber->safe_psql('serial',
		"CREATE SUBSCRIPTION serial CONNECTION '$connstr' PUBLICATION tap $with"
	);
	$subscriber->wait_for_subscription_sync($publisher, 'serial', 'serial');
	return;
}

# Wait until all tables of the database's subscriptions are ready.
sub wait_until_ready
{
	my ($subscriber, $db) = @_;
	$subscriber->poll_query_until(
		$db // 'postgres',
		q(SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r')
	) or die 'tables did not become ready';
	return;
}

# Wait until the subscription has that many writers, or any; 0 for no pool.
sub wait_for_pool
{
	my ($subscriber, $name, $writers, $db) = @_;
	my $wanted = defined $writers ? "= $writers" : '> 0';
	$subscriber->poll_query_until(
		$db // 'postgres',
		"SELECT count(pid) $wanted FROM parallel_apply.writers WHERE subname = '$name' AND writer > 0"
	) or die "subscription $name did not get $wanted writers";
	return;
}

# Make another apply worker connect, which asks the publisher for its settings.
# These statements are executed before it starts.
sub connect_again
{
	my ($subscriber, $name, $statements) = @_;
	$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION $name DISABLE");
	$subscriber->poll_query_until('postgres',
		"SELECT pid IS NULL FROM pg_stat_subscription WHERE subname = '$name'"
	) or die "the apply worker of $name does not end";
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%')
	) or die 'the pool did not stop';
	$subscriber->safe_psql('postgres',
		($statements // '') . "; ALTER SUBSCRIPTION $name ENABLE");
	wait_for_pool($subscriber, $name);
	return;
}

# Wait until everything that is committed on the publisher is visible on the
# subscriber.
sub wait_applied
{
	my ($publisher, $subscriber, $name) = @_;
	$publisher->wait_for_catchup($name, 'replay');
	return;
}

# Wait until the publisher has sent everything, and has received a reply some time
# later: the apply worker has seen it, though it may not have applied it.  Return
# the position.
sub wait_for_answer
{
	my ($publisher, $name) = @_;
	my ($now, $lsn) = split /\|/,
	  $publisher->safe_psql('postgres',
		'SELECT now(), pg_current_wal_insert_lsn()');
	$publisher->poll_query_until(
		'postgres',
		"SELECT sent_lsn >= '$lsn' AND reply_time > timestamptz '$now' + interval '1.5 s'
		FROM pg_stat_replication WHERE application_name = '$name'"
	) or die 'the subscriber does not answer';
	return $lsn;
}

# Assert that a table has the same rows on both nodes.
sub rows_equal
{
	my ($publisher, $subscriber, $table, $name, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $sql = qq(SELECT count(*) || ' rows, ' || coalesce(md5(string_agg(
		whole_row::text, E'\\n' ORDER BY whole_row::text COLLATE "C")), '-') FROM $table whole_row);
	my ($want, $have) =
	  map { $_->safe_psql($db // 'postgres', $sql) } $publisher, $subscriber;
	is($have, $want, $name // "$table is equal on both sides") and return 1;
	show_difference($publisher, $subscriber, $table, $db);
	return 0;
}

# Assert the same for tables, when subscription tap has applied everything.
sub tables_equal
{
	my ($when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_applied(@pair, 'tap');
	rows_equal(@pair, $_, "$_ is equal on both sides $when") for @tables;
	return;
}

# Show which rows differ at this moment; a delay may have been the reason.
sub show_difference
{
	my ($publisher, $subscriber, $table, $db) = @_;
	my %count;
	for my $node ($publisher, $subscriber)
	{
		my $rows = $node->safe_psql($db // 'postgres',
			"SELECT whole_row::text FROM $table whole_row");
		$count{$_} += $node == $publisher ? 1 : -1 for split /\n/, $rows;
	}
	my @missing = sort grep { $count{$_} > 0 } keys %count;
	my @surplus = sort grep { $count{$_} < 0 } keys %count;
	diag(   "$table a moment later: "
		  . @missing
		  . ' rows are missing, '
		  . @surplus
		  . ' are too many, such as '
		  . join(' ', grep { defined } @missing[ 0 .. 4 ], @surplus[ 0 .. 4 ])
	);
	return;
}

# Process IDs of a subscription's writers, in the order of their numbers
sub writer_pids
{
	my ($subscriber, $name, $db) = @_;
	return split /\n/,
	  $subscriber->safe_psql(
		$db // 'postgres',
		"SELECT pid FROM parallel_apply.writers WHERE subname = '$name' AND writer > 0 ORDER BY writer"
	  );
}

# FROM and WHERE for a subscription's leader apply worker, once it has a process
sub from_leader
{
	my ($subscriber, $name) = @_;
	my $is_leader =
	  $subscriber->pg_version >= 16 ? 'AND leader_pid IS NULL' : '';
	return
	  "FROM pg_stat_subscription WHERE subname = '$name' AND relid IS NULL AND pid IS NOT NULL $is_leader";
}

# Process ID of a subscription's leader apply worker; waits until there is one.  It
# may end between two queries.
sub apply_pid
{
	my ($subscriber, $name) = @_;
	my $from = from_leader($subscriber, $name);
	my $pid = '';
	while ($pid eq '')
	{
		$subscriber->poll_query_until('postgres', "SELECT count(*) = 1 $from")
		  or die "there is no apply worker of $name";
		$pid = $subscriber->safe_psql('postgres', "SELECT pid $from");
	}
	return $pid;
}

# Wait until another apply worker has replaced the present one.  These statements
# end it; without any, it is terminated.
sub restart_apply
{
	my ($subscriber, $name, $statements, $then) = @_;
	my $old = apply_pid($subscriber, $name);
	$subscriber->safe_psql('postgres',
		$statements // "SELECT pg_terminate_backend($old)");
	$then->() if $then;
	$subscriber->poll_query_until('postgres',
			"SELECT count(*) = 1 "
		  . from_leader($subscriber, $name)
		  . " AND pid <> $old")
	  or die "the apply worker of $name does not start again";
	return;
}

# Replace the writers, some of which have learned from a violation to wait for their
# turn.
sub forget_violations
{
	my ($subscriber, $name) = @_;
	my $binary = $subscriber->safe_psql('postgres',
		"SELECT CASE WHEN subbinary THEN 'off' ELSE 'on' END FROM pg_subscription WHERE subname = '$name'"
	);
	restart_apply($subscriber, $name,
		"ALTER SUBSCRIPTION $name SET (binary = $binary)");
	wait_for_pool($subscriber, $name);
	return;
}

# Return the sum of a column of parallel_apply.writers.
sub counter
{
	my ($subscriber, $column, $db) = @_;
	return $subscriber->safe_psql($db // 'postgres',
		"SELECT coalesce(sum($column), 0) FROM parallel_apply.writers");
}

# Open a transaction with these statements in a local session, which is returned.
# Its locks are held until it executes COMMIT or ends.
sub hold
{
	my ($node, $sql, $db) = @_;
	my $session =
	  $node->background_psql($db // 'postgres', on_error_stop => 0);
	$session->query_safe("BEGIN; $sql");
	return $session;
}

# Prevent every flush of WAL on a node; return a function that permits it again, or undef
# if the library was made without SELFTEST=1.  New sessions may have to read catalogs, but
# do not flush.
sub hold_flushes
{
	my ($node) = @_;
	my ($status) = $node->psql(
		'postgres',
		q(CREATE OR REPLACE FUNCTION hold_flush(bigint) RETURNS void LANGUAGE C
		AS 'parallel_apply', 'papply_selftest_hold_flush'));
	return if $status != 0;

	my $release = $node->background_psql('postgres');
	$release->query_safe('SELECT pg_advisory_lock(1)');
	my $holder = $node->background_psql('postgres');
	$holder->query_until(qr/started/,
		"\\echo started\nSELECT hold_flush(1);\n");
	$node->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)
	) or die 'flushing is not held back';
	return sub {
		$release->query_safe('SELECT pg_advisory_unlock(1)');
		end_sessions($release, $holder);
	};
}

# Create a function of src/test/selftest_wakes.c on the subscriber.  Return false if the
# library was made without SELFTEST=1.
sub create_selftest_waits
{
	my ($status) = $pair[1]->psql(
		'postgres',
		q(CREATE FUNCTION selftest_waits(oid) RETURNS text LANGUAGE C
		AS 'parallel_apply', 'papply_selftest_waits'));
	return $status == 0;
}

# Let the apply worker sleep until it is woken, or as usual.
sub let_receiver_sleep
{
	my ($is_on) = @_;
	reload_with($pair[1], "parallel_apply.selftest_receiver_sleeps = $is_on");
	return;
}

# Stop the background writer of the publisher, which writes WAL from time to time: the
# subscriber gets a keepalive then, which wakes what should have been woken before.  A test
# needs autovacuum = off, too.  Return a function that ends this.
sub silence_publisher
{
	my $pid = on_publisher(
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer')
	);
	kill 'STOP', $pid;
	return sub { kill 'CONT', $pid };
}

# Assert that the apply worker and the writers of subscription tap come to rest.  A
# process that does not sleep, or is woken all the time, has more and more waits.
my ($QUIET_READINGS, $MAX_WAITS) = (1000, 1000);

sub becomes_quiet
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my (%first, %last);
	my $same = 0;
	while ($same < $QUIET_READINGS)
	{
		my %waits = on_subscriber(
			q(SELECT selftest_waits(oid) FROM pg_subscription WHERE subname = 'tap')
		) =~ /(\d+): (\d+)/g;
		%first = %waits if !%first;
		my @new = grep { $waits{$_} != ($last{$_} // 0) } keys %waits;
		my @busy =
		  grep { $waits{$_} - ($first{$_} // 0) > $MAX_WAITS } keys %waits;
		return fail("$name: process @busy does not come to rest") if @busy;
		return fail("$name: processes @new wait again") if time > $end;
		$same = @new ? 0 : $same + 1;
		%last = %waits;
	}
	return pass($name);
}

# End sessions of hold().
sub end_sessions
{
	my (@sessions) = @_;
	$_->quit for @sessions;
	return;
}

# Return SQL for that many more rows of a table items (id, v, note), 1000 of which
# exceed the minimum of logical_decoding_work_mem; and the ID of the last one.
my $last_item = 0;

sub item_rows
{
	my ($count) = @_;
	my ($from, $to) = ($last_item + 1, $last_item + $count);
	$last_item = $to;
	return
	  "INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series($from, $to) i;";
}

sub last_item
{
	return $last_item;
}

# Wait until this many writers (1) have applied this many changes of streamed
# transactions that have not ended.
sub wait_for_early
{
	my ($changes, $writers) = @_;
	$writers //= 1;
	$pair[1]->poll_query_until(
		'postgres',
		qq(SELECT count(*) = $writers FROM parallel_apply.writers
		WHERE remote_xid IS NOT NULL AND remote_lsn IS NULL AND changes_done >= $changes)
	) or die "no $writers writers have applied $changes changes early";
	return;
}

# Wait until an SQL condition, or the rest of a query after SELECT, is true on the
# subscriber.
sub wait_until
{
	my ($condition, $or) = @_;
	$pair[1]->poll_query_until('postgres', "SELECT $condition") or die $or;
	return;
}

# Wait until a transaction has failed and disabled its subscription.
sub wait_until_failed
{
	wait_until(
		q(count(*) = 1 FROM parallel_apply.failed_transactions, pg_subscription WHERE NOT subenabled),
		'nothing has failed');
	return;
}

# Assert that the files of streamed transactions have been removed while the apply
# worker that created them is running.  They are in a directory of its process.
sub no_spool_is_left
{
	my ($subscriber) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM pg_ls_dir('base/pgsql_tmp', true, false) d,
			pg_ls_dir('base/pgsql_tmp/' || d, true, false) f)),
		'no temporary file is left');
}

# Publish one more table, whose copy then waits for a local session.
sub begin_copy
{
	my ($table) = @_;
	on_publisher("ALTER PUBLICATION tap ADD TABLE $table");
	on_subscriber('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	wait_until(
		q(count(*) = 1 FROM pg_stat_activity
		WHERE backend_type LIKE 'logical replication%' AND wait_event_type = 'Lock'),
		'the copy does not wait');
	return;
}

# Return a session of the publisher in a transaction with these statements that is
# being streamed to subscription tap.
sub begin_streamed
{
	my ($sql) = @_;
	my $streamed = q(FROM pg_stat_replication_slots WHERE slot_name = 'tap');
	my $before = on_publisher("SELECT stream_count $streamed");
	my $session = hold($pair[0], $sql);
	$pair[0]->poll_query_until('postgres',
		"SELECT stream_count > $before $streamed")
	  or die 'nothing is streamed';
	return $session;
}

# Return the bytes of all files in which the subscriber keeps streamed transactions.
my $spooled = q(
	(SELECT coalesce(sum((pg_stat_file('base/pgsql_tmp/' || d || '/' || f, true)).size), 0)
	FROM pg_ls_dir('base/pgsql_tmp', true, false) AS d,
		pg_ls_dir('base/pgsql_tmp/' || d, true, false) AS f WHERE d LIKE '%.fileset'));

sub spooled_bytes
{
	return on_subscriber("SELECT $spooled");
}

# Wait until they satisfy a condition, such as '> 1000'; return them.
sub wait_for_spooled
{
	my ($condition, $or) = @_;
	wait_until("$spooled $condition", $or);
	return spooled_bytes();
}

# Append lines to postgresql.conf, and reload.
sub reload_with
{
	my ($node, @lines) = @_;
	$node->append_conf('postgresql.conf', join "\n", @lines);
	$node->reload;
	return;
}

# Make a node wait for a standby or subscription only as long as its settings say.
sub wait_for_sync_state
{
	my ($node, $name, $state) = @_;
	$node->poll_query_until('postgres',
		"SELECT sync_state = '$state' FROM pg_stat_replication WHERE application_name = '$name'"
	) or die "$name did not become $state";
	return;
}

# Set options of subscription tap; a new apply worker is certain to use them.
sub set_synchronous_commit
{
	my ($subscriber, $setting) = @_;
	connect_again($subscriber, 'tap',
		"ALTER SUBSCRIPTION tap SET (synchronous_commit = $setting)");
	return;
}

# Wait until that many writers are in a state of parallel_apply.writers.
sub wait_for_state
{
	my ($subscriber, $state, $writers, $db) = @_;
	$writers //= 1;
	$subscriber->poll_query_until(
		$db // 'postgres',
		"SELECT count(*) >= $writers FROM parallel_apply.writers WHERE state = '$state' AND writer > 0"
	) or die "there were no $writers writers $state";
	return;
}

# Return what pg_log_backend_memory_contexts() logs for a process.
sub memory_of
{
	my ($subscriber, $pid) = @_;
	my $offset = -s $subscriber->logfile;
	$subscriber->safe_psql('postgres',
		"SELECT pg_log_backend_memory_contexts($pid)");
	$subscriber->wait_for_log(qr/Grand total: \d+ bytes/, $offset);
	return slurp_file($subscriber->logfile, $offset);
}

# The same for the writer that waits for a lock
sub memory_of_waiting
{
	my ($subscriber) = @_;
	wait_for_state($subscriber, 'waiting for lock');
	return memory_of(
		$subscriber,
		$subscriber->safe_psql(
			'postgres',
			"SELECT pid FROM parallel_apply.writers WHERE state = 'waiting for lock'"
		));
}

# Assert that the writers that are not idle get into these states, given in commit
# order and separated by commas.
sub states_become
{
	my ($subscriber, $states, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			q(SELECT string_agg(state, ', ' ORDER BY remote_lsn)
			FROM parallel_apply.writers WHERE state <> 'idle' AND writer > 0),
			$states),
		$name);
}

# Assert that transactions of the publisher get into these states while the first of
# them is blocked on the subscriber, before its changes, by a lock on the row of the
# table gate (id int PRIMARY KEY, n int).  Then all are applied.  Return how often a
# transaction had to be repeated.
sub apply_behind_gate
{
	my ($publisher, $subscriber, $states, $name, @transactions) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $tries = counter($subscriber, 'retries + commit_order_aborts');
	my $lock = hold($subscriber, 'SELECT FROM gate FOR UPDATE');
	$transactions[0] = "UPDATE gate SET n = n + 1; $transactions[0]";
	$publisher->safe_psql('postgres',
		join('', map { "BEGIN; $_; COMMIT;\n" } @transactions));
	states_become($subscriber, $states, $name);
	$lock->query_safe('COMMIT');
	$lock->quit;
	wait_applied($publisher, $subscriber, 'tap');
	return counter($subscriber, 'retries + commit_order_aborts') - $tries;
}

# Have many fast transactions applied: a writer that has waited for a lock claims
# one transaction at a time until then.  They insert into the table quick (id int
# PRIMARY KEY).
sub apply_quick_ones
{
	on_publisher(
		q(DO $$ DECLARE base int := (SELECT count(*) FROM quick);
		BEGIN
			FOR i IN 1 .. 400 LOOP
				INSERT INTO quick VALUES (base + i);
				COMMIT;
			END LOOP;
		END $$)
	);
	wait_applied(@pair, 'tap');
	return;
}

# Return what failed_changes() or skipped_changes(), called like that, says.
sub numbered_statements
{
	my ($call) = @_;
	return on_subscriber(
		"SELECT number, statement FROM parallel_apply.$call ORDER BY number");
}

# Why there can be no encrypted connections, or ''.
sub why_not_tls
{
	return 'without openssl there is no certificate'
	  if system('openssl version >/dev/null 2>&1') != 0;
	return 'the server was built without TLS'
	  if `pg_config --configure` !~ /--with-(?:ssl=)?openssl/;
	return '';
}

# Restarts a node, which listens on 127.0.0.1, with a certificate.
sub turn_tls_on
{
	my ($node) = @_;
	my $directory = $node->data_dir;
	system_or_bail(
		qw(openssl req -new -x509 -nodes -days 2 -subj /CN=localhost -newkey rsa:2048),
		'-out' => "$directory/server.crt",
		'-keyout' => "$directory/server.key");
	chmod 0600, "$directory/server.key";
	$node->append_conf('pg_hba.conf',
		"hostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust"
	);
	$node->append_conf('postgresql.conf', 'ssl = on');
	$node->restart;
	return;
}

# Have a subscription connect to the publisher by an encrypted connection.
sub connect_by_tls
{
	my ($publisher, $subscriber, $subscription) = @_;
	my $port = $publisher->port;
	on_subscriber(
		"ALTER SUBSCRIPTION $subscription CONNECTION 'host=127.0.0.1 port=$port dbname=postgres sslmode=require'"
	);
	$publisher->poll_query_until('postgres',
		'SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)'
	) or die 'the walsender does not use TLS';
	return;
}

# For two writers: one applies $older, which must change the table gate, until a
# local session with the lock $gate_lock blocks it there.  The other one finds all
# of @$younger in the queue, since it is stopped until they are there.  Calls $look
# when both writers wait.  Then all are applied.  Return how often a transaction had
# to be repeated.
sub run_behind_gate
{
	my ($gate_lock, $older, $younger, $look) = @_;
	my $subscriber = $pair[1];
	apply_quick_ones();
	my $tries = counter($subscriber, 'retries + commit_order_aborts');
	my $session = hold($subscriber, $gate_lock);
	on_publisher("BEGIN; $older; COMMIT;");
	wait_for_state($subscriber, 'waiting for lock');
	my $other = on_subscriber(
		q(SELECT pid FROM parallel_apply.writers WHERE state <> 'waiting for lock')
	);
	kill 'STOP', $other;
	on_publisher(join '', map { "BEGIN; $_; COMMIT;\n" } @$younger);
	my $queued = 1 + @$younger;
	wait_until(
		"queue_transactions >= $queued FROM parallel_apply.subscriptions",
		'the younger transactions are not received');
	kill 'CONT', $other;
	wait_until(
		q(count(*) = 2 FROM parallel_apply.writers WHERE state LIKE 'waiting for %'),
		'the other writer does not wait');
	$look->() if $look;
	$session->query_safe('COMMIT');
	$session->quit;
	wait_applied(@pair, 'tap');
	return counter($subscriber, 'retries + commit_order_aborts') - $tries;
}

# Create tables on both nodes of the latest pair, for under_load: a chain of
# balances, which shows transactions that were lost, repeated or applied in another
# order.
sub create_accounts
{
	exec_both(
		q(CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
		CREATE TABLE history (id serial PRIMARY KEY, account int, balance int);)
	);
	on_publisher(
		'INSERT INTO accounts SELECT i, 0 FROM generate_series(1, 20) i');
	return;
}

# Start pgbench with a script and options, until end_load(load).
sub start_load
{
	my ($publisher, $script, @options) = @_;
	return IPC::Run::start(
		[
			'pgbench', '-n', '-T', '60',
			@options, '-f', $script, '-h',
			$publisher->host, '-p', $publisher->port, 'postgres'
		],
		'<',
		\undef,
		'>',
		\my $out,
		'2>',
		\my $err);
}

sub end_load
{
	my ($load) = @_;
	$load->signal('TERM');
	$load->finish;
	return;
}

# A load of single transactions on the publisher, with a rate per second, until
# end_load(load).
sub start_accounts_load
{
	my ($publisher, $rate, @options) = @_;
	my $script = $publisher->basedir . '/load';
	append_to_file($script, <<~'SQL') unless -e $script;
		\set id random(1, 20)
		BEGIN;
		UPDATE accounts SET balance = balance + 1 WHERE id = :id;
		INSERT INTO history (account, balance) SELECT id, balance FROM accounts WHERE id = :id;
		COMMIT;
		SQL
	return start_load($publisher, $script, '-c', 2, '-R', $rate, @options);
}

# Run such a load on the publisher until the sub is done.
sub under_load
{
	my ($sub) = @_;
	my $load = start_accounts_load($pair[0], 1000);
	$sub->();
	end_load($load);
	return;
}

# Wait until more transactions of the load have been applied by a node, by default
# the subscriber.
sub wait_for_progress
{
	my ($node) = @_;
	$node //= $pair[1];
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM history');
	$node->poll_query_until('postgres',
		"SELECT count(*) > $count + 50 FROM history")
	  or die 'nothing is applied any more';
	return;
}

# Assert that a subscription has applied the load, each transaction once: tap of the
# latest pair, unless others are given.
sub accounts_are_equal
{
	my ($when, $from, $to, $subscription) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$from //= $pair[0];
	$to //= $pair[1];
	wait_applied($from, $to, $subscription // 'tap');
	rows_equal($from, $to, $_, "$_ is equal on both sides $when")
	  for qw(accounts history);
	is( $to->safe_psql(
			'postgres',
			q(SELECT count(*) FROM accounts a
			WHERE balance <> (SELECT count(*) FROM history h WHERE h.account = a.id))
		),
		'0',
		"and each change was made once $when");
	return;
}

# Assert that the subscriber refuses a statement with this error.
sub subscriber_refuses
{
	my ($sql, $error, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc, $out, $err) = $pair[1]->psql('postgres', $sql);
	like($err, $error, $name);
	return;
}

# The log message for a row that exists already; from 18 on it is a conflict.
sub duplicate_key
{
	my ($table) = @_;
	return
	  qr/ERROR: +(duplicate key value violates unique constraint "${table}_pkey"|conflict detected on relation "public\.$table": conflict=insert_exists)/;
}

# An apply worker may begin before its predecessor has released the origin.  This
# race exists in PostgreSQL without the extension, too.  The worker is started
# again.
my $origin_is_active =
  qr/ERROR:  replication origin with ID \d+ is already active for PID \d+/;

# A session of the test that has just ended may not have exited when its server is
# restarted.
my $session_is_ended =
  qr/\.pl FATAL:  terminating connection due to administrator command/;

# A walsender may be sending when its subscriber disconnects.
my $client_is_lost = qr/FATAL: +connection to client lost/;

# An apply worker that starts again may come before the walsender of the last one has ended.
my $slot_is_active =
  qr/ERROR: +(could not start WAL streaming: ERROR: +)?replication slot "\w+" is active for PID/;

# Or connecting again while the server restarts.  A backend that is terminated during
# authentication logs a timeout.
my $is_restarting =
  qr/FATAL:  (the database system is (shutting down|starting up|not yet accepting connections)|canceling authentication due to timeout)/;

# Where a publisher was stopped, its subscriber may have been at any step of a connection:
# whatever it was about to do, libpq says why it could not.
my $publisher_is_lost =
  qr/ERROR: +(.* )?(could not (connect to the publisher|start WAL streaming|receive data from WAL stream|send data to WAL stream|send end-of-streaming message|receive database system identifier)|could not .*: (server closed the connection unexpectedly|no connection to the server|FATAL: ))/;

# Asserts that a node's log has no error but those that match.
sub log_is_clean
{
	my ($node, @allowed) = @_;
	push @allowed, $publisher_is_lost if $node->has_lost_another;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = grep { / (ERROR|FATAL|PANIC):  / } split /\n/,
	  slurp_file($node->logfile);
	for my $allowed (
		$origin_is_active, $session_is_ended, $client_is_lost,
		$is_restarting, $slot_is_active, @allowed)
	{
		@found = grep { $_ !~ $allowed } @found;
	}
	return is(join("\n", @found),
		'', 'no unexpected error in the log of ' . $node->name);
}

# Asserts that the server has not complained of relations, snapshots or pins that
# were left open at the end of a transaction.
sub nothing_is_left_open
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return unlike(
		slurp_file($node->logfile),
		qr/WARNING: .*leak/,
		'nothing is left open');
}

# The end of a test: finish(nodes and patterns).  The logs of these nodes are
# clean but for errors that match the patterns, and the nodes stop, in the
# opposite order.
sub finish
{
	my @nodes = grep { ref ne 'Regexp' } @_;
	my @allowed = grep { ref eq 'Regexp' } @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	log_is_clean($_, @allowed) for @nodes;
	$_->stop for reverse @nodes;
	return;
}

1;
