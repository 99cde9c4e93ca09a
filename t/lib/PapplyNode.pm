# PapplyNode.pm - a node with what tests do on a publisher or a subscriber, and wait for.
# Statements go to database postgres unless a method has a parameter for another one.
#
# Nothing here sleeps.  Methods poll for the state that they need, and die if it is not
# reached within PG_TEST_TIMEOUT_DEFAULT seconds.
package PapplyNode;

use strict;
use warnings;
use parent 'SessionNode';
use IPC::Run ();
# Functions that are imported are methods, too, so import none that Cluster has.
use PostgreSQL::Test::Utils qw(append_to_file slurp_file system_or_bail);
use Test::More import => [qw(diag fail is like ok pass skip unlike)];
use Time::HiRes qw(time);

# What start_load() calls its sessions; without a name, they have that of the test.
my $load_name = 'load';

# No connection for replication ends since a process was stopped, or a machine stalled, for
# the default of a minute.  With 0 servers would behave differently: a walsender would look
# for replies after each message.
sub init
{
	my ($self, @options) = @_;
	$self->SUPER::init(@options);
	$self->append_conf('postgresql.conf',
		"wal_sender_timeout = '1h'\nwal_receiver_timeout = '1h'");
	return;
}

### statements, settings and sessions ###########################################

# Execute statements, and return what they print.
sub sql
{
	my ($self, $sql, @params) = @_;
	return $self->safe_psql('postgres', $sql, @params);
}

# Execute each of these statements in a transaction of its own.
sub commit_each
{
	my ($self, @sql) = @_;
	$self->sql(join '', map { "BEGIN; $_; COMMIT;\n" } @sql);
	return;
}

sub create_extension
{
	my ($self, $db) = @_;
	$self->safe_psql($db // 'postgres', 'CREATE EXTENSION parallel_apply');
	return;
}

# Wait until an SQL condition, or the rest of a query after SELECT, is true.
sub wait_until
{
	my ($self, $condition, $or) = @_;
	$self->poll_query_until('postgres', "SELECT $condition") or die $or;
	return;
}

# Assert that a statement is refused with this error.
sub refuses
{
	my ($self, $sql, $error, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rc, $out, $err) = $self->psql('postgres', $sql);
	like($err, $error, $name);
	return;
}

# Return the sum of a column of parallel_apply.writers.
sub counter
{
	my ($self, $column, $db) = @_;
	return $self->safe_psql($db // 'postgres',
		"SELECT coalesce(sum($column), 0) FROM parallel_apply.writers");
}

# Assert that this sum gets to satisfy a condition, such as '> 0'.  A writer counts
# transactions and rows, and what it has rolled back, a moment after others see that.
sub counter_becomes
{
	my ($self, $column, $condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$self->poll_query_until(
			'postgres',
			"SELECT coalesce(sum($column), 0) $condition FROM parallel_apply.writers"
		),
		$name);
}

# Wait until a replication slot is in use ('true'), or not ('false').
sub wait_for_slot
{
	my ($self, $slot, $is_active) = @_;
	$self->wait_until(
		"active = $is_active FROM pg_replication_slots WHERE slot_name = '$slot'",
		"active of slot $slot is not $is_active");
	return;
}

# Assert that the reason why each transaction of the subscription tap is applied by itself
# gets to match that; '^$' if there is none.
sub strict_reason_becomes
{
	my ($self, $reason, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$self->poll_query_until(
			'postgres',
			"SELECT coalesce(strict_reason, '') ~ '$reason' FROM parallel_apply.subscriptions WHERE subname = 'tap'"
		),
		$name);
}

# Wait until the writers of all subscriptions are idle: then they have counted, in all
# views, what they have applied.
sub wait_until_counted
{
	my ($self) = @_;
	$self->wait_until(
		q(count(*) = 0 FROM parallel_apply.writers WHERE writer > 0 AND state <> 'idle'),
		'the writers do not become idle');
	return;
}

# Append lines to postgresql.conf, and reload.
sub reload_with
{
	my ($self, @lines) = @_;
	$self->append_conf('postgresql.conf', join "\n", @lines);
	$self->reload;
	return;
}

# Open a transaction with these statements in a local session, which is returned.
# Its locks are held until its release(), or until it executes COMMIT or ends.  A row that
# it locks need not have been applied yet.
sub hold
{
	my ($self, $sql, $db) = @_;
	$db //= 'postgres';
	while ($sql =~ /FROM (\w+(?: WHERE [^;]+?)?) FOR UPDATE/g)
	{
		$self->poll_query_until($db, "SELECT EXISTS (SELECT FROM $1)")
		  or die "there is no row to lock: $1";
	}
	my $session = $self->background_psql($db, on_error_stop => 0);
	$session->query_safe("BEGIN; $sql");
	return $session;
}

# Flush what writers have committed, which they leave to others, and what transactions that
# are open have written: a standby or a subscriber does not get it before.
sub flush_wal
{
	my ($self) = @_;
	$self->sql(q(SELECT pg_logical_emit_message(true, 'flush', '')));
	return;
}

# Insert that many rows into a table history (n int, part int), each in a transaction of
# its own.  It has no key: a transaction that was lost, repeated or applied in another
# order shows.
sub make_history
{
	my ($self, $count, $db) = @_;
	my ($first, $last) = $self->next_history($count);
	$self->safe_psql($db // 'postgres',
		join '',
		map { "INSERT INTO history VALUES ($_, 0);\n" } $first .. $last);
	return;
}

# Return the number of its last row, and the first and the last number of that many more
# rows, which the caller inserts.
sub last_history
{
	my ($self) = @_;
	return $self->{last_history} // 0;
}

sub next_history
{
	my ($self, $count) = @_;
	my $first = $self->last_history + 1;
	$self->{last_history} = $self->last_history + $count;
	return ($first, $self->{last_history});
}

# Prevent every flush of WAL; return a function that permits it again, or undef
# if the library was made without SELFTEST=1.  New sessions may have to read catalogs, but
# do not flush.
sub hold_flushes
{
	my ($self) = @_;
	my ($status) = $self->psql(
		'postgres',
		q(CREATE OR REPLACE FUNCTION hold_flush(bigint) RETURNS void LANGUAGE C
		AS 'parallel_apply', 'papply_selftest_hold_flush'));
	return if $status != 0;

	my $release = $self->background_psql('postgres');
	$release->query_safe('SELECT pg_advisory_lock(1)');
	my $holder = $self->background_psql('postgres');
	$holder->query_until(qr/started/,
		"\\echo started\nSELECT hold_flush(1);\n");
	$self->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)
	) or die 'flushing is not held back';
	return sub {
		$release->query_safe('SELECT pg_advisory_unlock(1)');
		$_->quit for $release, $holder;
	};
}

# Stop the background writer of a publisher, which writes WAL from time to time: the
# subscriber gets a keepalive then, which wakes what should have been woken before.  A test
# needs autovacuum = off, too.  Return a function that ends this.
sub silence
{
	my ($self) = @_;
	my $pid = $self->sql(
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer')
	);
	$self->stop_waiting($pid, 'BgWriter%');
	return sub { kill 'CONT', $pid };
}

# Restarts a node, which listens on 127.0.0.1, with a certificate.
sub turn_tls_on
{
	my ($self) = @_;
	my $directory = $self->data_dir;
	system_or_bail(
		qw(openssl req -new -x509 -nodes -days 2 -subj /CN=localhost -newkey rsa:2048),
		'-out' => "$directory/server.crt",
		'-keyout' => "$directory/server.key");
	chmod 0600, "$directory/server.key";
	$self->append_conf('pg_hba.conf',
		"hostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust"
	);
	$self->append_conf('postgresql.conf', 'ssl = on');
	$self->restart;
	return;
}

### replication #################################################################

# Wait until everything that is committed on this publisher is visible to a
# subscription, by default tap.
sub wait_applied
{
	my ($self, $name) = @_;
	$self->wait_for_catchup($name // 'tap', 'replay');
	return;
}

# Wait until subscription tap has received everything that this publisher has written,
# also for transactions that are open.
sub wait_received
{
	my ($self) = @_;
	$self->flush_wal;
	$self->wait_for_catchup('tap', 'write');
	return;
}

# Wait until the publisher has sent everything, and has received a reply some time
# later: the apply worker has seen it, though it may not have applied it.  Return
# the position.
sub wait_for_answer
{
	my ($self, $name) = @_;
	my ($now, $lsn) = split /\|/,
	  $self->sql('SELECT now(), pg_current_wal_insert_lsn()');
	$self->poll_query_until(
		'postgres',
		"SELECT sent_lsn >= '$lsn' AND reply_time > timestamptz '$now' + interval '1.5 s'
		FROM pg_stat_replication WHERE application_name = '$name'"
	) or die 'the subscriber does not answer';
	return $lsn;
}

# Assert that subscription tap reports that this position has been flushed.
sub is_flushed
{
	my ($self, $name, $lsn) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$self->poll_query_until(
			'postgres',
			"SELECT flush_lsn >= '$lsn' FROM pg_stat_replication WHERE application_name = 'tap'"
		),
		$name);
}

# Assert that nothing that ends at this position is confirmed by subscription tap.
sub is_not_confirmed
{
	my ($self, $end, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$self->sql(
			"SELECT confirmed_flush_lsn < '$end' FROM pg_replication_slots WHERE slot_name = 'tap'"
		),
		't', $name);
}

# Wait until a standby or subscription has this state for the node's synchronous
# commits.
sub wait_for_sync_state
{
	my ($self, $name, $state) = @_;
	$self->poll_query_until('postgres',
		"SELECT sync_state = '$state' FROM pg_stat_replication WHERE application_name = '$name'"
	) or die "$name did not become $state";
	return;
}

# Wait until all tables of the database's subscriptions are ready.
sub wait_until_ready
{
	my ($self, $db) = @_;
	$self->poll_query_until(
		$db // 'postgres',
		q(SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate <> 'r')
	) or die 'tables did not become ready';
	return;
}

### the apply worker ############################################################

# FROM and WHERE for a subscription's leader apply worker, once it has a process
sub from_leader
{
	my ($self, $name) = @_;
	my $is_leader = $self->pg_version >= 16 ? 'AND leader_pid IS NULL' : '';
	return
	  "FROM pg_stat_subscription WHERE subname = '$name' AND relid IS NULL AND pid IS NOT NULL $is_leader";
}

# Call a function that has one transaction applied, and waits until the publisher knows.
# Return whether the apply worker itself has applied it.
sub leader_applies
{
	my ($self, $apply) = @_;
	my $count =
	  q(SELECT leader_transactions FROM parallel_apply.subscription_stats WHERE subname = 'tap');
	my $before = $self->sql($count);
	$apply->();
	return $self->sql($count) > $before;
}

# Stop a process while it waits for this event, or for one of several that are separated by
# commas.  Elsewhere it could hold a lock that others need, also this query: if there is no
# answer for a while, it may continue.
sub stop_waiting
{
	my ($self, $pid, $event) = @_;
	my $waits =
	  "SELECT wait_event ILIKE ANY ('{$event}') FROM pg_stat_activity WHERE pid = $pid";
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $patience = 1;
	while (time < $end && $self->poll_query_until('postgres', $waits))
	{
		my ($session, $key) = $self->session_of('postgres');
		kill 'STOP', $pid;
		my %answer = SessionNode::ask($session, $waits, time + $patience);
		return if $answer{whole} && $answer{out} eq 't';
		kill 'CONT', $pid;
		next if $answer{whole};
		SessionNode::end_session(delete $self->{papply_sessions}{$key});
		$patience *= 2;
	}
	die "process $pid is always busy";
}

# Return the process ID of the only writer that is idle, or becomes so.  One that waits for
# a lock shows another state while it looks for a deadlock.
sub idle_writer
{
	my ($self) = @_;
	my $idle =
	  q(FROM parallel_apply.writers WHERE writer > 0 AND state = 'idle');
	$self->wait_until("count(*) = 1 $idle", 'there is not one idle writer');
	return $self->sql("SELECT pid $idle");
}

# Stop writers that are idle.  They may flush, too.
sub stop_idle_writers
{
	my ($self, @pids) = @_;
	my $event = $self->pg_version >= 17 ? 'ParallelApplyWork' : 'Extension';
	$self->stop_waiting($_, $event) for @pids;
	return;
}

# Stop the walwriter, and return its process ID.  Within a flush, it would hold a lock that
# all flushes need.
sub stop_walwriter
{
	my ($self) = @_;
	my $pid = $self->sql(
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'));
	$self->stop_waiting($pid, 'WalWriterMain');
	return $pid;
}

# Process ID of a subscription's leader apply worker; waits until there is one.  It
# may end between two queries.
sub apply_pid
{
	my ($self, $name) = @_;
	my $from = $self->from_leader($name);
	my $pid = '';
	while ($pid eq '')
	{
		$self->poll_query_until('postgres', "SELECT count(*) = 1 $from")
		  or die "there is no apply worker of $name";
		$pid = $self->sql("SELECT pid $from");
	}
	return $pid;
}

# Let the apply worker of a subscription, if there is one, look at the catalogs at once.
# PostgreSQL 15 does not wake it for ALTER SUBSCRIPTION, and it looks once a second.
sub wake
{
	my ($self, $name) = @_;
	my $pid = $self->sql('SELECT pid ' . $self->from_leader($name));
	kill 'USR1', $pid if $pid ne '';
	return;
}

# Wait until another apply worker has replaced the present one.  These statements
# end it; without any, it is terminated.
sub restart_apply
{
	my ($self, $name, $statements, $then) = @_;
	my $old = $self->apply_pid($name);
	$self->sql($statements // "SELECT pg_terminate_backend($old)");
	$self->wake($name);
	$then->() if $then;
	$self->poll_query_until('postgres',
			"SELECT count(*) = 1 "
		  . $self->from_leader($name)
		  . " AND pid <> $old")
	  or die "the apply worker of $name does not start again";
	return;
}

# Make another apply worker connect, which asks the publisher for its settings.
# These statements are executed before it starts.
sub connect_again
{
	my ($self, $name, $statements) = @_;
	$self->sql("ALTER SUBSCRIPTION $name DISABLE");
	$self->wake($name);
	$self->poll_query_until('postgres',
		"SELECT pid IS NULL FROM pg_stat_subscription WHERE subname = '$name'"
	) or die "the apply worker of $name does not end";
	$self->poll_query_until(
		'postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity, pg_subscription s WHERE subname = '$name'
		AND application_name LIKE 'parallel_apply writer ' || s.oid || ':%'"
	) or die 'the pool did not stop';
	$self->sql(($statements // '') . "; ALTER SUBSCRIPTION $name ENABLE");
	$self->wait_for_pool($name);
	return;
}

# Set options of subscription tap; a new apply worker is certain to use them.
sub set_synchronous_commit
{
	my ($self, $setting) = @_;
	$self->connect_again('tap',
		"ALTER SUBSCRIPTION tap SET (synchronous_commit = $setting)");
	return;
}

# Make transactions fail that set v of table items to a negative number: a check that
# only the subscriber has.
sub make_fault
{
	my ($self) = @_;
	$self->sql(
		'ALTER TABLE items ADD CONSTRAINT positive CHECK (v >= 0) NOT VALID');
	return;
}

sub repair_fault
{
	my ($self) = @_;
	$self->sql('ALTER TABLE items DROP CONSTRAINT positive');
	return;
}

# Return how many transactions the apply worker has applied since a writer could not, or
# since a table does not permit it.
sub fallbacks
{
	my ($self) = @_;
	return $self->sql(
		'SELECT fallback_failure + fallback_table FROM parallel_apply.subscription_stats'
	);
}

# Return what failed_changes() or skipped_changes(), called like that, says.
sub numbered_statements
{
	my ($self, $call) = @_;
	return $self->sql(
		"SELECT number, statement FROM parallel_apply.$call ORDER BY number");
}

# Wait until a transaction has failed and disabled its subscription.
sub wait_until_failed
{
	my ($self) = @_;
	$self->wait_until(
		q(count(*) = 1 FROM parallel_apply.failed_transactions, pg_subscription WHERE NOT subenabled),
		'nothing has failed');
	return;
}

### writers #####################################################################

# Wait until the subscription has that many writers, or any; 0 for no pool.
sub wait_for_pool
{
	my ($self, $name, $writers, $db) = @_;
	my $wanted = defined $writers ? "= $writers" : '> 0';
	$self->poll_query_until(
		$db // 'postgres',
		"SELECT count(pid) $wanted FROM parallel_apply.writers WHERE subname = '$name' AND writer > 0"
	) or die "subscription $name did not get $wanted writers";
	return;
}

# Process IDs of a subscription's writers, in the order of their numbers
sub writer_pids
{
	my ($self, $name, $db) = @_;
	return split /\n/,
	  $self->safe_psql(
		$db // 'postgres',
		"SELECT pid FROM parallel_apply.writers WHERE subname = '$name' AND writer > 0 ORDER BY writer"
	  );
}

# Replace the writers, some of which have learned from a violation to wait for their
# turn.
sub forget_violations
{
	my ($self, $name) = @_;
	my $binary = $self->sql(
		"SELECT CASE WHEN subbinary THEN 'off' ELSE 'on' END FROM pg_subscription WHERE subname = '$name'"
	);
	$self->restart_apply($name,
		"ALTER SUBSCRIPTION $name SET (binary = $binary)");
	$self->wait_for_pool($name);
	return;
}

# Wait until that many writers are in a state of parallel_apply.writers.
sub wait_for_state
{
	my ($self, $state, $writers, $db) = @_;
	$writers //= 1;
	$self->poll_query_until(
		$db // 'postgres',
		"SELECT count(*) >= $writers FROM parallel_apply.writers WHERE state = '$state' AND writer > 0"
	) or die "there were no $writers writers $state";
	return;
}

# Assert that the writers that are not idle get into these states, given in commit
# order and separated by commas.
sub states_become
{
	my ($self, $states, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$self->poll_query_until(
			'postgres',
			q(SELECT string_agg(state, ', ' ORDER BY remote_lsn)
			FROM parallel_apply.writers WHERE state <> 'idle' AND writer > 0),
			$states),
		$name);
}

# Return what pg_log_backend_memory_contexts() logs for a process.  Others may log something
# meanwhile, such as the end of a checkpoint.
sub memory_of
{
	my ($self, $pid) = @_;
	my $offset = -s $self->logfile;
	$self->sql("SELECT pg_log_backend_memory_contexts($pid)");
	$self->wait_for_log(qr/\[$pid\] [^\n]*Grand total: \d+ bytes/, $offset);
	return join '', grep { /\[$pid\] / } split /^/m,
	  slurp_file($self->logfile, $offset);
}

# The same for the writer that waits for a session that has locked a row.  Before it gets that
# far, it may have to wait for another lock.
sub memory_of_waiting
{
	my ($self) = @_;
	my $from = q(FROM parallel_apply.writers JOIN pg_locks USING (pid)
		WHERE locktype = 'transactionid' AND NOT granted);
	$self->wait_until("count(*) = 1 $from", 'no writer waits for a row');
	return $self->memory_of($self->sql("SELECT pid $from"));
}

### streamed transactions #######################################################

# Wait until this many writers (1) have applied this many changes of streamed
# transactions that have not ended.
sub wait_for_in_progress
{
	my ($self, $changes, $writers) = @_;
	$writers //= 1;
	$self->poll_query_until(
		'postgres',
		qq(SELECT count(*) = $writers FROM parallel_apply.writers
		WHERE remote_xid IS NOT NULL AND remote_lsn IS NULL AND changes_done >= $changes)
	  )
	  or die "no $writers writers have applied $changes changes in progress";
	return;
}

# Stop the writer that applies a transaction in progress, while it waits for more; return
# its process ID.  It must be asleep: what it checks from time to time takes
# locks that others need.
sub stop_in_progress_writer
{
	my ($self) = @_;
	my $from =
	  q(FROM parallel_apply.writers w JOIN pg_stat_activity a USING (pid) WHERE remote_lsn IS NULL
		AND w.state = 'waiting for data' AND wait_event_type = 'Extension');
	foreach (1 .. 1000)
	{
		$self->poll_query_until('postgres', "SELECT count(*) = 1 $from")
		  or last;
		my $pid = $self->sql("SELECT pid $from");
		next if $pid eq '';    # there was more, just then
		kill 'STOP', $pid;
		return $pid if $self->sql("SELECT pid $from") eq $pid;
		kill 'CONT', $pid;
	}
	die 'no process waits for data';
}

# Return the bytes of all files in which a subscriber keeps streamed transactions.
my $spooled = q(
	(SELECT coalesce(sum((pg_stat_file('base/pgsql_tmp/' || d || '/' || f, true)).size), 0)
	FROM pg_ls_dir('base/pgsql_tmp', true, false) AS d,
		pg_ls_dir('base/pgsql_tmp/' || d, true, false) AS f WHERE d LIKE '%.fileset'));

sub spooled_bytes
{
	my ($self) = @_;
	return $self->sql("SELECT $spooled");
}

# Wait until they satisfy a condition, such as '> 1000'; return them.
sub wait_for_spooled
{
	my ($self, $condition, $or) = @_;
	$self->wait_until("$spooled $condition", $or);
	return $self->spooled_bytes;
}

# Assert that the files of streamed transactions have been removed while the apply
# worker that created them is running.  They are in a directory of its process.
sub no_spool_is_left
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$self->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM pg_ls_dir('base/pgsql_tmp', true, false) d,
			pg_ls_dir('base/pgsql_tmp/' || d, true, false) f)),
		'no temporary file is left');
}

### waits, of libraries made with SELFTEST=1 ####################################

# Create a function of src/test/selftest_wakes.c on a subscriber.  Return false if the
# library was made without SELFTEST=1.
sub create_selftest_waits
{
	my ($self) = @_;
	my ($status) = $self->psql(
		'postgres',
		q(CREATE FUNCTION selftest_waits(oid) RETURNS text LANGUAGE C
		AS 'parallel_apply', 'papply_selftest_waits'));
	return $status == 0;
}

# Return how often the apply worker (64) and the writers of subscription tap have
# waited, by process.
sub waits
{
	my ($self) = @_;
	return $self->count_waits =~ /(\d+): (\d+)/g;
}

# Return two numbers of sleeps of the apply worker that are not the apply loop's: long ones,
# and others that were ended by time.
sub own_sleeps
{
	my ($self) = @_;
	return $self->count_waits =~ /long: (\d+), timeouts: (\d+)/;
}

sub count_waits
{
	my ($self) = @_;
	return $self->sql(
		q(SELECT selftest_waits(oid) FROM pg_subscription WHERE subname = 'tap')
	);
}

# Let the apply worker sleep until it is woken, or as usual.
sub let_receiver_sleep
{
	my ($self, $is_on) = @_;
	$self->reload_with("parallel_apply.selftest_receiver_sleeps = $is_on");
	return;
}

# Assert that the apply worker and the writers of subscription tap come to rest.  A
# process that does not sleep, or is woken all the time, has more and more waits.
# Between two readings it has time for that, also where there is one processor.
my ($QUIET_READINGS, $MAX_WAITS, $PAUSE_SECONDS) = (300, 1000, 0.001);

sub becomes_quiet
{
	my ($self, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my (%first, %last);
	my $same = 0;
	while ($same < $QUIET_READINGS)
	{
		my %waits = $self->waits;
		%first = %waits if !%first;
		my @new = grep { $waits{$_} != ($last{$_} // 0) } keys %waits;
		my @busy =
		  grep { $waits{$_} - ($first{$_} // 0) > $MAX_WAITS } keys %waits;
		return fail("$name: process @busy does not come to rest") if @busy;
		return fail("$name: processes @new wait again")
		  if @new && time > $end;
		$same = @new ? 0 : $same + 1;
		%last = %waits;
		select(undef, undef, undef, $PAUSE_SECONDS);
	}
	return pass($name);
}

### loads #######################################################################

# Start pgbench with a script and options, until end_load(load).
sub start_load
{
	my ($self, $script, @options) = @_;
	local $ENV{PGAPPNAME} = $load_name;
	return IPC::Run::start(
		[
			'pgbench', '-n', '-T', '86400',
			@options, '-f', $script, '-h',
			$self->host, '-p', $self->port, 'postgres'
		],
		'<',
		\undef,
		'>',
		\my $out,
		'2>',
		\my $err);
}

# End the load.  Its sessions may still be committing when pgbench has exited, so wait for
# them; those of a connection pooler stay.
sub end_load
{
	my ($self, $load) = @_;
	$load->signal('TERM');
	$load->finish;
	$self->wait_until(
		"count(*) = 0 FROM pg_stat_activity WHERE application_name = '$load_name' AND state <> 'idle'",
		'sessions of the load do not end');
	return;
}

# A load of single transactions on the publisher, with a rate per second, until
# end_load(load).
sub start_accounts_load
{
	my ($self, $rate, @options) = @_;
	my $script = $self->basedir . '/load';
	append_to_file($script, <<~'SQL') unless -e $script;
		\set id random(1, 20)
		BEGIN;
		UPDATE accounts SET balance = balance + 1 WHERE id = :id;
		INSERT INTO history (account, balance) SELECT id, balance FROM accounts WHERE id = :id;
		COMMIT;
		SQL
	return $self->start_load($script, '-c', 2, '-R', $rate, @options);
}

# Wait until more transactions of the load have been applied.
sub wait_for_progress
{
	my ($self) = @_;
	my $count = $self->sql('SELECT count(*) FROM history');
	$self->poll_query_until('postgres',
		"SELECT count(*) > $count + 50 FROM history")
	  or die 'nothing is applied any more';
	return;
}

### what must be right in the end ###############################################

# Assert that each B-tree index of the tables in a node's database "postgres" has an entry
# for each row, and is in order.  Needs amcheck.
sub indexes_are_complete
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip 'the server has no amcheck', 1
		  if $self->sql(
			q(SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck')
		  ) == 0;
		my ($status, $checked, $error) = $self->psql(
			'postgres', q(CREATE EXTENSION IF NOT EXISTS amcheck;
			SELECT relname, bt_index_check(oid, true) FROM pg_class
			WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
				AND relkind = 'i' AND relnamespace = 'public'::regnamespace;)
		);
		ok($status == 0 && $checked ne '',
			'indexes have all rows on ' . $self->name)
		  or diag("$error");
	}
	return;
}

# Asserts that the server has not complained of relations, snapshots or pins that
# were left open at the end of a transaction.
sub nothing_is_left_open
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return unlike(
		slurp_file($self->logfile),
		qr/WARNING: .*leak/,
		'nothing is left open');
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

# Autovacuum gives way to a session that waits for its lock.
my $autovacuum_is_canceled = qr/ERROR: +canceling autovacuum task/;

# Asserts that a node's log has no error but those that match.
sub log_is_clean
{
	my ($self, @allowed) = @_;
	push @allowed, $publisher_is_lost if $self->has_lost_another;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = grep { / (ERROR|FATAL|PANIC):  / } split /\n/,
	  slurp_file($self->logfile);
	for my $allowed ($origin_is_active, $session_is_ended, $client_is_lost,
		$is_restarting, $slot_is_active, $autovacuum_is_canceled, @allowed)
	{
		@found = grep { $_ !~ $allowed } @found;
	}
	return is(join("\n", @found),
		'', 'no unexpected error in the log of ' . $self->name);
}

1;
