# PapplyNode.pm - a node with what tests do on a publisher or a subscriber, and wait for:
# here statements, settings and positions, in NodeProcesses.pm and other modules the rest.
# Statements go to database postgres unless a method has a parameter for another one.
#
# Nothing here sleeps.  Methods poll for the state that they need, and die if it is not
# reached within PG_TEST_TIMEOUT_DEFAULT seconds.
package PapplyNode;

use strict;
use warnings;
use parent
  qw(NodeProcesses NodeStreams NodeWaits NodeLoads NodeChecks SessionNode);
# Functions that are imported are methods, too, here and in these modules, so import none
# that Cluster has.
use PostgreSQL::Test::Utils qw(system_or_bail);
use Test::More import => [qw(is like ok)];

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

# Have each row that is inserted into one of these tables take the first row of table jobs
# that is not locked, so that it notices the locks of other transactions; table taken shows
# which one.
sub make_takers
{
	my ($self, @tables) = @_;
	$self->sql(
		join "\n",
		q(CREATE TABLE taken (id int, job int);
		CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO public.taken SELECT NEW.id, j.id FROM public.jobs j ORDER BY j.id LIMIT 1 FOR UPDATE SKIP LOCKED;
			RETURN NEW;
		END $$;),
		map {
			"CREATE TRIGGER take AFTER INSERT ON $_ FOR EACH ROW EXECUTE FUNCTION take();
			ALTER TABLE $_ ENABLE ALWAYS TRIGGER take;"
		} @tables);
	return;
}

# Have each row of table slow (door int PRIMARY KEY) take until there is a row with its door
# in table open_doors.
sub make_doors
{
	my ($self) = @_;
	$self->sql(
		q(CREATE TABLE open_doors (door int);
		CREATE FUNCTION pass_door(wanted int) RETURNS bool LANGUAGE plpgsql AS $$BEGIN
			LOOP EXIT WHEN EXISTS (SELECT FROM public.open_doors WHERE door = wanted); END LOOP;
			RETURN true; END$$;
		ALTER TABLE slow ADD CHECK (pass_door(door));));
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

# Return what wait_for_lsn() says about why a subscription does not advance.
sub notice_of_wait
{
	my ($self, $name) = @_;
	for my $seconds (3, 15, 60)
	{
		my (undef, undef, $notice) = $self->psql('postgres',
			"SELECT parallel_apply.wait_for_lsn('$name', 'FFFFFFFF/0', '$seconds s')"
		);
		return $1
		  if $notice =~
		  /NOTICE:  still waiting for subscription "$name"\nDETAIL:  (.*)/;
	}
	return '';
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
	# The apply worker then starts again for two_phase, and updates the subscription.
	$self->poll_query_until(
		$db // 'postgres',
		q(SELECT count(*) = 0 FROM pg_subscription WHERE subenabled AND subtwophasestate = 'p')
	) or die 'two_phase is not enabled';
	return;
}

1;
