# StressEvents.pm - what happens to the servers of the random test while transactions
# are applied: kills, crashes, a bad network, locks, DDL, settings.
#
# An event is a function of the run.  KILLS=0 omits the events that end or stop a
# process.
package StressEvents;

use strict;
use warnings;
use Exporter 'import';
use IO::Socket::UNIX;
use POSIX ();
use Workload;
use StressRun;
use StressVerify;

our @EXPORT =
  qw(draw_events event_names event_needs cause_event start_proxy stop_proxy);

my %calm = (
	lock_table => \&lock_tables,
	set_writers => \&set_writers,
	configure_writers => \&configure_writers,
	pause_apply => \&pause_apply,
	set_setting => \&set_setting,
	set_streaming => \&set_streaming,
	set_option => \&set_option,
	look_around => \&look_around,
	drop_extension => \&drop_extension,
	skip_and_replay => \&skip_and_replay,
	skip_prepared => \&skip_prepared,
	disable => \&disable_enable,
	verify => \&start_verification,
	rewrite => \&rewrite_tables,
	reindex => \&reindex,
	change_partitions => \&change_partitions,
	change_class => \&change_class,
	add_index => \&add_index,
	add_column => \&add_column,
	add_table => sub { add_table($_[0], 'added') });

my %kills = (
	kill_sync => \&kill_sync,
	terminate_writer => sub { terminate($_[0], writer_pid($_[0])) },
	kill_writer => sub { kill_nine($_[0], writer_pid($_[0])) },
	freeze_writer => \&freeze_writer,
	terminate_receiver => sub { terminate($_[0], receiver_pid($_[0])) },
	kill_receiver => sub { kill_nine($_[0], receiver_pid($_[0])) },
	freeze_receiver => \&freeze_receiver,
	kill_checkpointer => sub { kill_nine($_[0], checkpointer_pid($_[0])) },
	kill_postmaster => \&kill_postmaster,
	stop_immediate => sub { restart($_[0], 'parallel', 'immediate') },
	restart => sub { restart($_[0], 'parallel', 'fast') },
	terminate_walsender => \&terminate_walsender,
	kill_walsender => \&kill_walsender,
	freeze_walsender => \&freeze_walsender,
	crash_publisher => sub { restart($_[0], 'publisher', 'immediate') },
	restart_publisher => sub { restart($_[0], 'publisher', 'fast') },
	cut_network => \&cut_network,
	freeze_network => \&freeze_network);

# What an event needs: a proxy between parallel subscriber and publisher; a short
# timeout at both ends of the connection; a copy of tables, which PostgreSQL does
# not allow with two_phase; two_phase; to be the only one of its kind.
my %needs = (
	add_column => 'once',
	add_table => 'once',
	change_partitions => 'once',
	set_option => 'once',
	skip_and_replay => 'once',
	skip_prepared => 'once two_phase',
	cut_network => 'proxy',
	freeze_network => 'proxy short_timeout',
	freeze_receiver => 'short_timeout',
	freeze_walsender => 'short_timeout',
	kill_sync => 'once copy');

# --- the schedule ---------------------------------------------------------------

# Names of the events that can occur in some seed
sub event_names
{
	my ($kills) = @_;
	return sort(keys %calm, $kills ? keys %kills : ());
}

sub needs
{
	my ($name, $what) = @_;
	return grep { $_ eq $what } split(/ /, $needs{$name} // '');
}

# Does one of the run's events need that?
sub event_needs
{
	my ($run, $what) = @_;
	return scalar grep { needs($_->{name}, $what) } @{ $run->{events} };
}

# The events in the order of their times, each a hash: name; time, the fraction of
# the transactions after which it happens.  The wanted ones are among them, if they are
# possible, and there is always a verification.
sub draw_events
{
	my ($workload, $kills, $wanted) = @_;
	foreach (@$wanted)
	{
		die "there is no event $_\n" if !$calm{$_} && !$kills{$_};
	}
	my $random = Workload::random_source("schedule of $workload->{seed}");
	my $impossible =
	  $workload->settings->{two_phase} eq 'off' ? 'two_phase' : 'copy';
	my $draw = sub {
		return Workload::pick($random,
			grep { !needs($_, $impossible) } sort keys %{ $_[0] });
	};
	my @drawn = map { $draw->(\%calm) } (1 .. $random->(6));
	push @drawn, grep { !needs($_, $impossible) } @$wanted;
	push @drawn, map { $draw->(\%kills) } (1 .. 1 + $random->(5)) if $kills;
	push @drawn, ('verify') x (1 + $random->(3));

	# Events that wait for a timeout take seconds: one of them is enough.
	my (%seen, $frozen);
	@drawn = grep {
			 !(needs($_, 'once') && $seen{$_}++)
		  && !(needs($_, 'short_timeout') && $frozen++)
	} @drawn;
	return sort { $a->{time} <=> $b->{time} || $a->{name} cmp $b->{name} }
	  map { { name => $_, time => (5 + $random->(80)) / 100 } } @drawn;
}

sub cause_event
{
	my ($run, $event) = @_;
	my $cause = $calm{ $event->{name} } // $kills{ $event->{name} };
	$cause->($run);
	return;
}

sub draw
{
	my ($run, @choices) = @_;
	return Workload::pick($run->{random}, @choices);
}

# --- processes --------------------------------------------------------------------

# Return the process ID of a writer.  If no pool runs (one writer configured, or a
# restart), that of the receiver.
sub writer_pid
{
	my ($run) = @_;
	my @pids = split(/\n/, ask($run, $run->{parallel}, <<'SQL'));
SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'parallel_apply writer%' ORDER BY pid
SQL
	return @pids ? draw($run, @pids) : receiver_pid($run);
}

sub receiver_pid
{
	my ($run) = @_;
	my $leader = $run->{version} >= 16 ? 'AND leader_pid IS NULL' : '';
	return pid_of($run, $run->{parallel}, 'apply worker', <<"SQL");
SELECT pid FROM pg_stat_subscription WHERE subname = 'parallel' AND relid IS NULL $leader AND pid IS NOT NULL
SQL
}

sub checkpointer_pid
{
	my ($run) = @_;
	return pid_of($run, $run->{parallel}, 'checkpointer',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'}
	);
}

sub walsender_pid
{
	my ($run) = @_;
	return pid_of($run, $run->{publisher}, 'walsender',
		q{SELECT pid FROM pg_stat_replication WHERE application_name = 'parallel'}
	);
}

sub pid_of
{
	my ($run, $node, $what, $query) = @_;
	my $pid;
	wait_until($run, $what,
		sub { ($pid) = split(/\n/, ask($run, $node, $query)); return $pid });
	return $pid;
}

sub terminate
{
	my ($run, $pid) = @_;
	$run->{disturbed}{parallel} = 1;
	ask($run, $run->{parallel}, "SELECT pg_terminate_backend($pid)");
	return;
}

sub terminate_walsender
{
	my ($run) = @_;
	$run->{disturbed}{parallel} = 1;
	ask($run, $run->{publisher},
		'SELECT pg_terminate_backend(' . walsender_pid($run) . ')');
	return;
}

# The server restarts by itself.  Until then a reader may still see transactions
# that the crash loses, so wait for the message in its log; unless the process was about to
# exit by itself.  The postmaster has logged how a process ended when it answers a
# connection after that.
sub kill_nine
{
	my ($run, $pid, $node) = @_;
	$node //= $run->{parallel};
	my $offset = -s $node->logfile;
	$run->{disturbed}{parallel} = 1;
	return if kill('KILL', $pid) != 1;
	wait_until($run, 'end of a killed process', sub { !kill(0, $pid) });
	try_psql($node, 'SELECT 1');
	return
	  if PostgreSQL::Test::Utils::slurp_file($node->logfile, $offset) !~
	  /\(PID $pid\) was terminated by signal 9/;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/,
		$offset);
	$run->{floor} = 0 if $node == $run->{parallel};
	return;
}

sub kill_walsender
{
	my ($run) = @_;
	$run->{disturbed}{serial} = 1;
	kill_nine($run, walsender_pid($run), $run->{publisher});
	return;
}

# Its children exit when they notice.  No new server can start before.
sub kill_postmaster
{
	my ($run) = @_;
	my $node = $run->{parallel};
	$run->{disturbed}{$_} = 1 foreach ('parallel', 'postmaster');
	my @children =
	  split(/\n/, ask($run, $node, 'SELECT pid FROM pg_stat_activity'));
	$node->kill9;
	wait_until(
		$run,
		'end of all processes of a killed server',
		sub { pause(); !kill(0, @children) });
	$node->start;
	$run->{floor} = 0;
	return;
}

sub restart
{
	my ($run, $name, $mode) = @_;
	$run->{disturbed}{parallel} = 1;
	$run->{disturbed}{serial} = 1 if $name eq 'publisher';
	$run->{$name}->stop($mode);
	$run->{$name}->start;
	$run->{floor} = 0 if $name eq 'parallel' && $mode eq 'immediate';
	return;
}

# --- freezing ---------------------------------------------------------------------

sub pause
{
	select(undef, undef, undef, 0.05);
	return;
}

# Stop processes (a negative number is a group) until that has happened, or cannot
# happen any more.
sub freeze
{
	my ($run, $pid, $has_happened) = @_;
	$run->{disturbed}{$_} = 1 foreach ('parallel', 'serial');
	my $end = time + 8;
	kill('STOP', $pid);
	pause() until $has_happened->() || time > $end;
	kill('CONT', $pid);
	return;
}

sub freeze_writer
{
	my ($run) = @_;
	my $rounds = 10;
	freeze($run, writer_pid($run), sub { return !$rounds-- });
	return;
}

# No query may run on the subscriber meanwhile: a stopped process may hold a lock.
sub freeze_receiver
{
	my ($run) = @_;
	freeze(
		$run,
		receiver_pid($run),
		sub {
			ask($run, $run->{publisher},
				q{SELECT count(*) FROM pg_stat_replication WHERE application_name = 'parallel'}
			) == 0;
		});
	return;
}

sub freeze_walsender
{
	my ($run) = @_;
	freeze($run, walsender_pid($run), receiver_timeout($run));
	return;
}

sub freeze_network
{
	my ($run) = @_;
	freeze($run, -$run->{proxy}, receiver_timeout($run));
	return;
}

sub receiver_timeout
{
	my ($run) = @_;
	my $log = $run->{parallel}->logfile;
	my $offset = -s $log;
	return sub {
		PostgreSQL::Test::Utils::slurp_file($log, $offset) =~
		  /terminating logical replication worker due to timeout/;
	};
}

# --- the network --------------------------------------------------------------------

# A proxy between two sockets, in a process group of its own that can be stopped.
# Return its leader, which accepts connections and ignores SIGTERM; SIGTERM ends the
# processes that copy data, one for each direction.  It ends both or none: the first one
# does not ignore it any more when it forks.
sub start_proxy
{
	my ($from, $to) = @_;
	my $pid = fork() // die "fork: $!";
	setpgrp($pid, $pid);
	return $pid if $pid;

	setpgrp(0, 0);
	$SIG{TERM} = $SIG{CHLD} = 'IGNORE';
	my $listener = IO::Socket::UNIX->new(Local => $from, Listen => 20);
	while (my $client = $listener && $listener->accept)
	{
		my $server = IO::Socket::UNIX->new(Peer => $to) or next;
		next if fork() // die "fork: $!";
		$SIG{TERM} = 'DEFAULT';
		copy_bytes(fork() ? ($client, $server) : ($server, $client));
	}
	POSIX::_exit(1);
}

sub copy_bytes
{
	my ($from, $to) = @_;
	$SIG{PIPE} = 'IGNORE';
	my $data;
	while (sysread($from, $data, 65536))
	{
		while (length $data)
		{
			my $written = syswrite($to, $data) or last;
			substr($data, 0, $written, '');
		}
		last if length $data;
	}
	shutdown($_, 2) foreach ($from, $to);
	POSIX::_exit(0);
}

sub stop_proxy
{
	my ($pid) = @_;
	kill('KILL', -$pid);
	waitpid($pid, 0);
	return;
}

# Data on the way is lost.
sub cut_network
{
	my ($run) = @_;
	$run->{disturbed}{parallel} = 1;
	kill('TERM', -$run->{proxy});
	return;
}

# --- locks, settings, DDL -------------------------------------------------------------

# Locks of sessions of the subscriber.  One of them stops the oldest transaction for
# a while, at a row.  Others, for a whole table, queue behind writers that have
# changed it and wait for their turn, and in front of the oldest transaction, which
# has to change it when it continues.
sub lock_tables
{
	my ($run) = @_;
	my $holder = hold_row($run);
	foreach my $round (1 .. 6)
	{
		my $table = draw($run, 'ledger', 'session_counter', 'journal',
			'account_a', 'integer_key', 'bulk');
		my $mode = draw($run, 'SHARE ROW EXCLUSIVE', 'ACCESS EXCLUSIVE');
		ask_for_lock($run, $run->{parallel},
			"BEGIN; LOCK TABLE $table IN $mode MODE; COMMIT");
	}
	waitpid($holder, 0);
	return;
}

# Lock a row, in a process of its own.
sub hold_row
{
	my ($run) = @_;
	my $pid = fork() // die "fork: $!";
	return $pid if $pid;
	open(STDIN, '<', '/dev/null');
	exec('psql', '-XAtq', '-d', $run->{parallel}->connstr('postgres'), '-c',
			'BEGIN; SELECT FROM session_counter WHERE session = 1 FOR UPDATE;'
		  . ' SELECT FROM generate_series(1, 4000000) OFFSET 3999999; COMMIT')
	  or POSIX::_exit(127);
}

sub set_parameter
{
	my ($run, $node, $name, $value) = @_;
	return if $run->{is_native};
	ask($run, $node, "ALTER SYSTEM SET parallel_apply.$name = $value");
	ask($run, $node, 'SELECT pg_reload_conf()');
	return;
}

sub set_writers
{
	my ($run) = @_;
	my @choices = (2, 3, 6, $run->{may_be_native} ? 1 : ());
	set_parameter($run, $run->{parallel}, 'writers_per_subscription',
		draw($run, @choices));
	return;
}

sub configure_writers
{
	my ($run) = @_;
	my $writers =
	  draw($run, 2, 3, 5, 'NULL', $run->{may_be_native} ? 1 : ());
	return if $run->{is_native};
	ask($run, $run->{parallel},
		"SELECT parallel_apply.alter_subscription_config('parallel', $writers)"
	);
	return;
}

# Nothing moves after drain().
sub pause_apply
{
	my ($run) = @_;
	return if $run->{is_native};
	my $total = 'SELECT sum(n) FROM session_counter';
	ask($run, $run->{parallel}, q(SELECT parallel_apply.pause('parallel')));
	my $drained = ask($run, $run->{parallel},
		q(SELECT parallel_apply.drain('parallel', '5 s')));
	my $before = ask($run, $run->{parallel}, $total);
	publisher_moves($run);
	my $moved = ask($run, $run->{parallel}, $total) != $before;
	ask($run, $run->{parallel}, q(SELECT parallel_apply.resume('parallel')));
	fail_seed($run, 'something was applied in a pause')
	  if $drained eq 't' && $moved;
	return;
}

# Settings that the other events do not change
sub set_setting
{
	my ($run) = @_;
	my ($name, @values) = @{
		draw(
			$run,
			[ 'max_batch_transactions', 1, 2, 32 ],
			[ 'leader_participation', 'on', 'off' ],
			[ 'streaming_apply', 'writer', 'file' ],
			[ 'queue_size', "'64kB'", "'1MB'" ],
			[ 'idle_writers_per_subscription', 1, 2, -1 ],
			[ 'max_writers_per_subscription', 2, 3, 8 ],
			[ 'log_min_duration', 0, -1 ])
	};
	set_parameter($run, $run->{parallel}, $name, draw($run, @values));
	switch_coalescing($run);
	return;
}

# Draws no random number, so that a seed has the same events with and without it.
sub switch_coalescing
{
	my ($run) = @_;
	return if $run->{workload}->settings->{coalesce} eq 'absent';
	my $old =
	  ask($run, $run->{publisher}, 'SHOW parallel_apply.coalesce_messages');
	set_parameter($run, $run->{publisher}, 'coalesce_messages',
		$old eq 'on' ? 'off' : 'on');
	return;
}

# Each of these makes the apply worker restart, or read the subscription again.
sub set_option
{
	my ($run) = @_;
	my $alter = 'ALTER SUBSCRIPTION parallel';
	my $is_binary = $run->{workload}->settings->{binary} eq 'on';
	my @choices = (
		"$alter SET (synchronous_commit = off)",
		"$alter SET (synchronous_commit = on)",
		"$alter SKIP (lsn = 'FFFF/0')",
		"$alter RENAME TO renamed; ALTER SUBSCRIPTION renamed RENAME TO parallel",
		$is_binary ? ("$alter SET (binary = off)", "$alter SET (binary = on)")
		: (),
		$run->{version} >= 17
		? ( "$alter SET (run_as_owner = on)",
			"$alter SET (run_as_owner = off)")
		: ());
	$run->{disturbed}{parallel} = 1;
	ask($run, $run->{parallel}, draw($run, @choices));
	switch_coalescing($run);
	return;
}

# Read all that an operator may read; reset counters.
sub look_around
{
	my ($run) = @_;
	return if $run->{is_native};
	my $views = ask($run, $run->{parallel},
		q{SELECT viewname FROM pg_views WHERE schemaname = 'parallel_apply'});
	ask($run, $run->{parallel}, "SELECT * FROM $_")
	  foreach ((map { "parallel_apply.$_" } split(/\n/, $views)),
		'parallel_apply.advice()', 'parallel_apply.reset_stats()');
	return;
}

# With PostgreSQL's own apply, 'parallel' is not serial: triggers see less.
sub set_streaming
{
	my ($run) = @_;
	return
	  if $run->{is_native}
	  && !Workload::is_safe_for_native($run->{version});
	my $can_be_parallel = $run->{version} >= 16 && !$run->{may_be_native};
	my @choices = ('off', 'on', $can_be_parallel ? 'parallel' : ());
	my $streaming = draw($run, @choices);
	$run->{disturbed}{parallel} = 1;
	ask($run, $run->{parallel},
		"ALTER SUBSCRIPTION parallel SET (streaming = $streaming)");
	return;
}

sub drop_extension
{
	my ($run) = @_;
	return if $run->{is_native} || !$run->{may_be_native};
	ask($run, $run->{parallel}, 'DROP EXTENSION parallel_apply');
	publisher_moves($run);
	ask($run, $run->{parallel}, 'CREATE EXTENSION parallel_apply');
	return;
}

# Wait until the parallel subscriber has received something, or nothing is left.
sub publisher_moves
{
	my ($run) = @_;
	my $rounds = 10;
	my $total = 'SELECT sum(n) FROM session_counter';
	my $before = ask($run, $run->{parallel}, $total);
	wait_until($run, 'transactions',
		sub { ask($run, $run->{parallel}, $total) > $before || !$rounds-- });
	return;
}

# A worker that copies a table may wait for a transaction of the publisher that waits in
# its COMMIT for the subscriber, so only the apply worker has to end.
sub disable_enable
{
	my ($run) = @_;
	ask($run, $run->{parallel}, 'ALTER SUBSCRIPTION parallel DISABLE');
	wait_until(
		$run,
		'end of the disabled apply worker',
		sub {
			ask($run, $run->{parallel},
				"SELECT count(*) FROM pg_stat_subscription WHERE subname = 'parallel' AND pid IS NOT NULL AND relid IS NULL"
			) == 0;
		});
	ask($run, $run->{parallel}, 'ALTER SUBSCRIPTION parallel ENABLE');
	return;
}

sub rewrite_tables
{
	my ($run) = @_;
	ask_for_lock($run, $run->{parallel}, $_)
	  foreach ('VACUUM FULL integer_key', 'REINDEX TABLE wander', 'ANALYZE');

	# Binary values would have the length of the publisher's type.
	ask_for_lock($run, $run->{parallel},
		'ALTER TABLE evolving ALTER a TYPE bigint')
	  if $run->{workload}->settings->{binary} eq 'off';
	return;
}

sub reindex
{
	my ($run) = @_;
	ask($run, $run->{parallel}, $_)
	  foreach (
		'REINDEX TABLE CONCURRENTLY integer_key',
		'REINDEX TABLE CONCURRENTLY wander',
		'REINDEX TABLE CONCURRENTLY full_rows');
	ask_for_lock($run, $run->{parallel}, $_)
	  foreach ('CLUSTER account_a USING account_a_pkey', 'VACUUM FREEZE');
	return;
}

# Partitions are created and dropped; rows stay, or move to a new one.
sub change_partitions
{
	my ($run) = @_;
	ask_for_lock($run, $run->{parallel}, $_)
	  foreach (<<'SQL', <<'SQL', <<'SQL');
BEGIN;
ALTER TABLE dealt DETACH PARTITION dealt_0;
ALTER TABLE dealt ATTACH PARTITION dealt_0 FOR VALUES FROM (MINVALUE) TO (3);
COMMIT;
SQL
BEGIN;
LOCK TABLE dealt_2;
CREATE TABLE dealt_3 (v int, id int NOT NULL, u int);
WITH moved AS (DELETE FROM dealt_2 WHERE id BETWEEN 20 AND 29 RETURNING v, id, u)
INSERT INTO dealt_3 SELECT * FROM moved;
ALTER TABLE dealt ATTACH PARTITION dealt_3 FOR VALUES FROM (20) TO (30);
COMMIT;
SQL
CREATE TABLE spread_2 PARTITION OF spread FOR VALUES IN (6);
SQL
	ask($run, $run->{parallel},
		'ALTER TABLE spread DETACH PARTITION spread_2 CONCURRENTLY');
	return;
}

# A trigger is created and dropped, so that changes have to be applied alone for a
# while.
sub change_class
{
	my ($run) = @_;
	my $table = draw($run, 'ledger', 'integer_key', 'child', 'spread_1');
	ask_for_lock($run, $run->{parallel}, <<"SQL");
BEGIN;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER nothing BEFORE INSERT OR UPDATE ON $table FOR EACH ROW EXECUTE FUNCTION nothing();
ALTER TABLE $table ENABLE ALWAYS TRIGGER nothing;
COMMIT;
SQL
	publisher_moves($run);
	ask_for_lock($run, $run->{parallel}, 'DROP FUNCTION nothing() CASCADE');
	return;
}

# A unique index is created and dropped; the publisher's values satisfy it.
sub add_index
{
	my ($run) = @_;
	ask($run, $run->{parallel}, $_)
	  foreach (
		'CREATE UNIQUE INDEX CONCURRENTLY added_index ON hidden_unique (u, id)',
		'DROP INDEX CONCURRENTLY added_index');
	return;
}

sub add_column
{
	my ($run) = @_;
	my $alter = 'ALTER TABLE evolving ADD COLUMN added int DEFAULT 7';
	ask_for_lock($run, $_, $alter) foreach subscribers($run);
	ask($run, $run->{publisher}, $alter);
	ask($run, $run->{publisher},
		'UPDATE evolving SET added = id WHERE id % 2 = 0');
	$run->{workload}->add_table('evolving', 'id, a, added');
	return;
}

# With two_phase, PostgreSQL allows no copy: rows are inserted after the table was
# added.
sub add_table
{
	my ($run, $name, $meanwhile) = @_;
	my $publisher = $run->{publisher};
	my $fill =
	  "INSERT INTO $name SELECT i, 0 FROM generate_series(1, 20000) i";
	my $has_copy = $run->{workload}->settings->{two_phase} eq 'off';
	ask($run, $_, "CREATE TABLE $name (id int PRIMARY KEY, v int)")
	  foreach nodes($run);
	ask($run, $publisher, $fill) if $has_copy;
	ask($run, $publisher, "ALTER PUBLICATION everything ADD TABLE $name");
	alter_subscriptions($run,
		'REFRESH PUBLICATION'
		  . ($has_copy ? '' : ' WITH (copy_data = false)'));
	$meanwhile->() if $meanwhile;
	ask($run, $publisher, $fill) if !$has_copy;
	ask($run, $publisher, "UPDATE $name SET v = v + $_ WHERE id % 10 = $_")
	  foreach (1 .. 9);
	$run->{workload}->add_table($name, 'id, v');
	return;
}

# A transaction fails because of a constraint that only the parallel subscriber has.  It
# is skipped and stored, while later ones are applied, and replayed in the end.
sub skip_and_replay
{
	my ($run) = @_;
	return if $run->{is_native};
	skip_failing($run, 'refused', 'COMMIT');
	repair_and_replay($run, 'refused');
	return;
}

# It fails at its PREPARE.  When it has been rolled back, nothing of it is left.
sub skip_prepared
{
	my ($run) = @_;
	return if $run->{is_native};
	my $end = draw($run, 'COMMIT', 'ROLLBACK');
	skip_failing($run, 'refused_prepared', q(PREPARE TRANSACTION 'refused'));
	ask($run, $run->{publisher}, "$end PREPARED 'refused'");
	return repair_and_replay($run, 'refused_prepared') if $end eq 'COMMIT';
	wait_until(
		$run,
		'removal of a transaction that was rolled back',
		sub {
			ask($run, $run->{parallel},
				'SELECT count(*) FROM parallel_apply.kept_transactions WHERE subid <> 0'
			) == 0;
		});
	return;
}

sub skip_failing
{
	my ($run, $table, $end) = @_;
	my $node = $run->{parallel};
	my $rows = draw($run, 1, 7, 1000);
	my $from =
	  "FROM parallel_apply.failed_transactions WHERE relname = '$table'";
	$run->{disturbed}{parallel} = 1;
	add_table($run, $table);
	wait_for_sync($run);
	ask($run, $node,
		"ALTER TABLE $table ADD CONSTRAINT not_negative CHECK (v >= 0) NOT VALID"
	);
	# Its end does not wait for the standby, which cannot apply it.
	ask($run, $run->{publisher},
		"SET synchronous_commit = local; BEGIN; DELETE FROM $table WHERE id % $rows = 1;
		UPDATE $table SET v = -1 - v WHERE id % $rows = 0;
		INSERT INTO $table VALUES (-1, -1); $end");
	wait_until(
		$run,
		'transaction to skip',
		sub {
			my ($status, $output) = try_psql($node,
				"SELECT parallel_apply.skip_transaction(subname) $from");
			return $status == 0 && length $output;
		});
	return;
}

sub repair_and_replay
{
	my ($run, $table) = @_;
	my $node = $run->{parallel};
	my $id;
	wait_until(
		$run,
		'skipped transaction',
		sub {
			$id = ask($run, $node,
				'SELECT id FROM parallel_apply.skipped_transactions');
			return length $id;
		});
	ask($run, $node, "ALTER TABLE $table DROP CONSTRAINT not_negative");
	ask($run, $node, "CALL parallel_apply.replay($id)");
	return;
}

# The worker that synchronizes the new table, if it can be seen before it exits
sub kill_sync
{
	my ($run) = @_;
	my $query = <<'SQL';
SELECT (SELECT pid FROM pg_stat_subscription WHERE relid = 'added_killed'::regclass),
 (SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = 'added_killed'::regclass)
SQL
	add_table(
		$run,
		'added_killed',
		sub {
			my ($pid, $state);
			wait_until(
				$run,
				'table synchronization',
				sub {
					($pid, $state) =
					  split(/\|/, ask($run, $run->{parallel}, $query));
					return $pid || $state eq 'r';
				});
			kill_nine($run, $pid) if $pid;
		});
	return;
}

1;
