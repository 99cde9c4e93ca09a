# StressSeed.pm - one seed of the random test, in a process of its own.
#
# The following is checked:
# - facts inside every snapshot of the parallel subscriber, and that it shows a
#   prefix of the publisher's commit order, which is read from a separate
#   replication slot afterwards;
# - that snapshots go back only when the subscriber crashed;
# - in the end, all rows of publisher, serial and parallel subscriber, and that no
#   prepared transaction is left;
# - that the subscribers' logs have no error without a cause.
#
# Standard output gets lines for the user, and for stress "count KIND CLASS
# NUMBER"; its head describes the kinds.  A class that is possible and has not occurred
# is reported with 0.
package StressSeed;

use strict;
use warnings;

my $report;

BEGIN
{
	# PostgreSQL::Test::Utils sends standard output to its own log, and names
	# that and others after the program.
	$0 = 'stress';
	open($report, '>&', \*STDOUT) or die $!;
	$report->autoflush(1);
}

use File::Basename qw(basename);
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use StressChecks;
use StressEvents;
use StressRun;
use StressVerify;
use Workload;

my $native = $ENV{PAPPLY_STRESS_NATIVE};
my $work = $ENV{TESTDIR};

# Columns of parallel_apply.writers, and of parallel_apply.subscription_stats, that
# are counted
my @writer_ways =
  ('transactions', 'rows', 'fallbacks', 'retries', 'commit_order_aborts');
my @subscription_ways = ('streamed_in_progress', 'streamed_from_file');
my @ways = (@writer_ways, @subscription_ways);

my %local_isolation = (
	committed => 'read committed',
	repeatable => 'repeatable read',
	serializable => 'serializable');

# Return the exit status of the process: 0 passed, 1 failed, 77 skipped.
sub run
{
	my ($seed, $size, $kills) = @_;
	my $started = time;
	local $SIG{TERM} = sub { die "stopped by a signal\n" };
	local $SIG{INT} = $SIG{TERM};

	# SQL for all sessions except the apply workers, which other servers would have
	# to restart.
	local $ENV{PGOPTIONS} =
	  '-c default_transaction_isolation=read\\ committed';
	my $run = new_run($seed, $size, $kills);
	my $fine = eval {
		start_servers($run);
		run_workload($run);
		settle($run);
		end_verifications($run);
		compare_rows($run);
		check_indexes($run);
		check_commit_order($run);
		1;
	};
	$run->{is_stopped} = !$fine && $@ =~ /stopped by a signal/;
	$run->{is_skipped} = failed_assertion($run);
	$run->{is_skipped} //= native_fault($run) if !@{ $run->{failures} };
	if (!$run->{is_stopped} && !$run->{is_skipped})
	{
		fail_seed($run, $@) if !$fine;
		eval { check_logs($run); 1 } or fail_seed($run, $@);
	}
	my @left = (@{ $run->{pids} }, keys %{ $run->{verifications} });
	kill 'KILL', @left;
	waitpid($_, 0) foreach @left;
	stop_proxy($run->{proxy}) if $run->{proxy};
	$_->teardown_node foreach nodes($run);
	report_seed($run, time - $started);
	return 77 if $run->{is_skipped};
	return $run->{is_stopped} || @{ $run->{failures} } ? 1 : 0;
}

# A publisher that checks assertions crashes where a transaction that was spilled to disk is
# cleaned up and, from 18 on, where others send the rollback of a subtransaction that was
# never sent; sessions and subscribers may fail then.
sub failed_assertion
{
	my ($run) = @_;
	return undef if !defined $run->{publisher};
	return slurp_file($run->{publisher}->logfile) =~
	  /TRAP: (?:failed Assert|FailedAssertion)\("(?:rbtxn_is_streamed\(|txn->final_lsn != InvalidXLogRecPtr)/
	  ? 'an assertion of the publisher fails'
	  : undef;
}

# Return why PostgreSQL itself could not continue, forever or for a while, or undef.
# The publisher may be unable to decode a change, whatever the subscriber is; from
# 18 on it may crash when it reads WAL for a new slot and a subtransaction was
# rolled back.  A worker that has synchronized a table drops its slot, and then
# commits that the table is synchronized (process_syncing_tables_for_sync() in
# tablesync.c).  After a crash in between, or one that loses this commit, there is no
# slot any more for the rest of the table.
sub native_fault
{
	my ($run) = @_;
	return undef if !defined $run->{serial};
	my $log = slurp_file($run->{publisher}->logfile);
	return 'the publisher cannot decode a change'
	  if $log =~
	  /ERROR:  (could not map file(node|number) .* to relation OID|unexpected duplicate for tablespace \d+, relfile(node|number))/;
	return 'the publisher cannot create a slot'
	  if !Workload::is_safe_for_native($run->{version})
	  && $log =~
	  /by signal 11: .*\n.*Failed process was running: CREATE_REPLICATION_SLOT/;
	return 'PostgreSQL has lost in a crash that a table was synchronized'
	  if slurp_file($run->{parallel}->logfile) =~
	  /ERROR:  could not start WAL streaming: ERROR:  replication slot "pg_\d+_sync_\d+_\d+" does not exist/;
	return undef;
}

sub new_run
{
	my ($seed, $size, $kills) = @_;
	my ($version) = `pg_config --version` =~ /(\d+)/;
	my $share = `pg_config --sharedir` =~ s/\n//r;
	my $workload = Workload->new(
		seed => $seed,
		transactions => $size,
		version => $version,
		icu => scalar(`pg_config --configure` =~ /--with-icu/),
		citext => -e "$share/extension/citext.control");
	my $set = $workload->settings;
	my @wanted = split(/,/, $ENV{PAPPLY_STRESS_EVENTS} // '');

	# PostgreSQL's own apply worker, when it restarts, confirms the position where
	# it starts, though the last asynchronous commits of its predecessor may not be
	# flushed yet.  A crash of the server at that moment loses them.
	$set->{synchronous_commit} = 'on' if $native && $kills;
	$set->{coalesce} = 'absent' if $native;
	return {
		seed => $seed,
		size => $size,
		kills => $kills,
		version => $version,
		workload => $workload,
		is_native => $native,
		random => Workload::random_source("events of $seed"),
		may_be_native => $set->{streaming} ne 'parallel',
		events => [ draw_events($workload, $kills, \@wanted) ],
		pids => [],
		failures => [],
		verifications => {},
		vectors => {},
		floor => 0,
		seen => 0,
		snapshots => 0,
		count => {}
	};
}

# --- the report ---------------------------------------------------------------

sub report_seed
{
	my ($run, $seconds) = @_;
	my $failed = @{ $run->{failures} } > 0;
	my $set = $run->{workload}->settings;
	my $result =
		$run->{is_stopped} ? 'stopped'
	  : $run->{is_skipped} ? "skipped ($run->{is_skipped})"
	  : $failed ? 'FAILED'
	  : 'passed';
	my $ways = count_ways($run);
	my @done = map { $_->{name} } grep { $_->{is_done} } @{ $run->{events} };
	printf $report
	  "seed %d: %s, %d of %d transactions, %d snapshots, %d s; writers: %s; %s\n",
	  $run->{seed}, $result, $run->{total} // $run->{seen}, $run->{size},
	  $run->{snapshots}, $seconds,
	  join(', ', map { "$ways->{$_} $_" } @ways), "@done" || 'no events';
	$run->{count}{events} = { map { $_ => 0 } event_names($run->{kills}) };
	$run->{count}{events}{$_}++ foreach @done;
	$run->{count}{settings} =
	  { map { $_ => 0 } $run->{workload}->possible_settings };
	$run->{count}{settings}{"$_=$set->{$_}"} = 1 foreach keys %$set;
	$run->{count}{ways} = $ways if !$native;
	$run->{count}{verifications}{$_} //= 0
	  foreach can_verify($run) ? verification_results($run) : ();

	foreach my $kind (sort keys %{ $run->{count} })
	{
		my $classes = $run->{count}{$kind};
		print $report "count $kind $_ $classes->{$_}\n"
		  foreach sort keys %$classes;
	}
	return if !$failed;
	print $report '  settings: ',
	  join(' ', map { "$_=$set->{$_}" } sort keys %$set), "\n";
	print $report "  failure: $_\n"
	  foreach map { s/\n+\z//r } @{ $run->{failures} };
	keep_cores($run);
	return;
}

# Core files, if the shell's limits let servers write them; with the backtrace if
# gdb is installed.
sub keep_cores
{
	my ($run) = @_;
	foreach my $core (map { glob($_->data_dir . '/core*') } nodes($run))
	{
		my $name = basename($core);
		system( "gdb -batch -ex 'bt full' $ENV{STRESS_BINDIR}/postgres $core"
			  . " > $work/backtrace.$name 2>&1") == 0
		  or system('cp', $core, $work);
	}
	return;
}

# Counters of writers are lost when they exit, so they are read repeatedly.  A
# subscription's counters remain, so the last ones count.
my $ways_query =
  $native
  ? ''
  : 'SELECT pid, '
  . join(', ', @writer_ways, ('0') x @subscription_ways)
  . ' FROM parallel_apply.writers WHERE pid IS NOT NULL UNION ALL SELECT -subid::bigint, '
  . join(', ', ('0') x @writer_ways, @subscription_ways)
  . ' FROM parallel_apply.subscription_stats;';

sub note_ways
{
	my ($run, $row) = @_;
	my ($pid, @numbers) = split(/\|/, $row);
	$run->{writers}{$pid} = \@numbers;
	return;
}

sub count_ways
{
	my ($run) = @_;
	my %sum = map { $_ => 0 } @ways;
	foreach my $numbers (values %{ $run->{writers} })
	{
		$sum{ $ways[$_] } += $numbers->[$_] foreach (0 .. $#ways);
	}
	return \%sum;
}

# --- servers ------------------------------------------------------------------

sub start_servers
{
	my ($run) = @_;
	my $set = $run->{workload}->settings;
	my $timeout = event_needs($run, 'short_timeout') ? '4s' : '60s';
	my %processes = (
		publisher => 30,
		serial => 30,
		parallel => $set->{worker_processes});
	foreach my $name ('publisher', 'serial', 'parallel')
	{
		my $node = $run->{$name} =
		  PostgreSQL::Test::Cluster->new("$name$run->{seed}");
		$node->init(allows_streaming => 'logical');
		$node->append_conf('postgresql.conf', <<"CONF");
log_statement = none
log_replication_commands = off
restart_after_crash = on
max_connections = 50
max_wal_senders = 40
max_replication_slots = 100
max_worker_processes = $processes{$name}
max_logical_replication_workers = 10
max_prepared_transactions = 20
max_wal_size = 512MB
shared_buffers = 32MB
wal_retrieve_retry_interval = 100ms
CONF
	}
	my $work_mem = $set->{streaming} eq 'off' ? '64MB' : '64kB';
	$run->{publisher}->append_conf('postgresql.conf', <<"CONF");
logical_decoding_work_mem = $work_mem
deadlock_timeout = 50ms
wal_sender_timeout = $timeout
CONF
	$run->{publisher}->append_conf('postgresql.conf',
		'debug_logical_replication_streaming = immediate')
	  if $set->{stream_each};
	$run->{publisher}->append_conf('postgresql.conf',
		<<"CONF") if $set->{coalesce} ne 'absent';
shared_preload_libraries = 'parallel_apply'
parallel_apply.coalesce_messages = $set->{coalesce}
CONF
	$run->{parallel}->append_conf('postgresql.conf', <<"CONF");
deadlock_timeout = $set->{deadlock_timeout}
track_commit_timestamp = $set->{commit_timestamp}
default_transaction_isolation = '$local_isolation{$set->{local_isolation}}'
wal_receiver_timeout = $timeout
CONF
	$run->{parallel}->append_conf('postgresql.conf', <<"CONF") if !$native;
shared_preload_libraries = 'parallel_apply'
parallel_apply.max_writers_per_subscription = 8
parallel_apply.writers_per_subscription = $set->{writers}
parallel_apply.idle_writers_per_subscription = $set->{idle_writers}
parallel_apply.writer_idle_timeout = 50ms
parallel_apply.max_batch_transactions = $set->{max_batch}
parallel_apply.queue_size = $set->{queue_size}
parallel_apply.leader_participation = $set->{leader_participation}
parallel_apply.streaming_apply = $set->{streaming_apply}
CONF
	$_->start foreach nodes($run);
	$run->{publisher}->safe_psql('postgres', $_)
	  foreach $run->{workload}->publisher_schema,
	  Workload::native_user_sql();
	$_->safe_psql('postgres', $run->{workload}->subscriber_schema)
	  foreach subscribers($run);
	$run->{parallel}->safe_psql('postgres',
		'CREATE EXTENSION parallel_apply;' . $run->{workload}->extension_sql)
	  if !$native;
	return;
}

# The publisher is asked for its tables, while sessions may truncate them.
sub create_subscription
{
	my ($node, $sql) = @_;
	my ($result, $stderr);
	do
	{
		($result, undef, $stderr) = $node->psql('postgres', $sql);
	} while ($result != 0 && $stderr =~ /ERROR: +deadlock detected/);
	die "$sql: $stderr" if $result != 0;
	return;
}

# The parallel subscriber connects through a proxy, if an event needs one.
sub subscribe
{
	my ($run) = @_;
	my $publisher = $run->{publisher};
	my %host = (serial => $publisher->host, parallel => $publisher->host);
	if (event_needs($run, 'proxy'))
	{
		my $socket = '.s.PGSQL.' . $publisher->port;
		$host{parallel} = PostgreSQL::Test::Utils::tempdir_short();
		$run->{proxy} = start_proxy("$host{parallel}/$socket",
			$publisher->host . "/$socket");
	}
	foreach my $node (subscribers($run))
	{
		my $name = subscription($run, $node);
		my $is_native = $native || $name eq 'serial';
		my $options = $run->{workload}->subscription_options($is_native);
		my $connstr =
		  "host=$host{$name} port=" . $publisher->port . ' dbname=postgres';
		$connstr .= ' user=native'
		  if $is_native && !Workload::is_safe_for_native($run->{version});
		my %publications = $run->{workload}->subscriptions($name);
		create_subscription($node,
			"CREATE SUBSCRIPTION $_ CONNECTION '$connstr' PUBLICATION $publications{$_} WITH ($options)"
		) foreach sort keys %publications;
	}
	wait_for_sync($run);

	# The state of a synchronized table survives a crash, though the subscription
	# may commit asynchronously.
	ask($run, $_, 'CHECKPOINT') foreach subscribers($run);
	return;
}

# --- the sessions ---------------------------------------------------------------

sub start_sessions
{
	my ($run) = @_;
	foreach my $session (1 .. $run->{workload}->settings->{sessions})
	{
		my $pid = fork() // die "fork: $!";
		if ($pid == 0)
		{
			$SIG{TERM} = 'DEFAULT';
			eval { run_session($run, $session); 1 } or warn $@;
			POSIX::_exit(0);
		}
		push @{ $run->{pids} }, $pid;
	}
	return;
}

# When the publisher crashes, continue after the transaction that was interrupted,
# which may have been committed or not.  The script prints a line as soon as it is
# connected, and after each transaction.
sub run_session
{
	my ($run, $session) = @_;
	my @left = $run->{workload}->session_transactions($session);
	my $base = "$work/session$session";
	my $part = 0;
	while (@left)
	{
		open(my $script, '>', "$base.sql") or die "$base.sql: $!";
		print $script join("\\echo .\n",
			$run->{workload}->session_start($session),
			@left, '');
		close $script;
		my $status =
		  system('psql -XAtq -d "'
			  . $run->{publisher}->connstr('postgres')
			  . "\" -f $base.sql <&- >$base.out 2>>$base.err");
		my $lines = () = slurp_file("$base.out") =~ /^\.$/mg;
		return if $status == 0;
		splice(@left, 0, $lines);
		rename("$base.sql", "$base." . ++$part . '.sql') if $lines > 0;
	}
	return;
}

sub sessions_alive
{
	my ($run) = @_;
	$run->{pids} = [ grep { waitpid($_, WNOHANG) == 0 } @{ $run->{pids} } ];
	return @{ $run->{pids} } > 0;
}

sub publisher_total
{
	my ($run) = @_;
	return ask($run, $run->{publisher}, 'SELECT sum(n) FROM session_counter');
}

# --- the workload ---------------------------------------------------------------

sub run_workload
{
	my ($run) = @_;
	my $start = $run->{workload}->settings->{start};

	if ($start eq 'late')
	{
		start_sessions($run);
		wait_until(
			$run,
			'the first transactions',
			sub {
				publisher_total($run) > $run->{size} / 5
				  || !sessions_alive($run);
			});
	}
	subscribe($run);
	$run->{publisher}->safe_psql('postgres', $_)
	  foreach $run->{workload}->subscribed_sql;
	start_sessions($run) if $start ne 'late';
	if ($start eq 'backlog')
	{
		alter_subscriptions($run, 'DISABLE');
		waitpid($_, 0) foreach splice(@{ $run->{pids} });
		alter_subscriptions($run, 'ENABLE');
	}
	watch_until_applied($run);
	return;
}

# Take snapshots until everything is applied; start events when their time is
# reached.  The total of the publisher is final when no session runs and no event is
# left: a crash loses asynchronous commits.
sub watch_until_applied
{
	my ($run) = @_;
	my $last_progress = time;
	my @events = @{ $run->{events} };
	my $final;
	while (1)
	{
		$final = publisher_total($run)
		  if !defined $final && !sessions_alive($run);
		my $before = $run->{seen};
		take_snapshots($run);
		check_verifications($run);
		$last_progress = time if $run->{seen} != $before;

		my $is_applied = defined $final && $run->{seen} == $final;
		if (@events
			&& (   $is_applied
				|| $run->{seen} >= $events[0]{time} * $run->{size}))
		{
			my $event = shift @events;
			cause_event($run, $event);
			undef $final;
			$event->{is_done} = 1;
			$last_progress = time;
			next;
		}
		last if $is_applied;
		stuck($run,
			"$run->{seen} transactions have arrived, of "
			  . publisher_total($run))
		  if time - $last_progress > patience();
		die
		  "more transactions on the parallel subscriber than on the publisher\n"
		  if defined $final && $run->{seen} > $final;
	}
	$run->{total} = $final;
	return;
}

# A crash may interrupt this; the next call will succeed.
sub take_snapshots
{
	my ($run) = @_;
	my $workload = $run->{workload};
	my (undef, $output, $error) =
	  try_psql($run->{parallel},
		$workload->snapshot_query x 10 . $ways_query);
	fail_seed($run, "reader: $error")
	  if $error =~ /ERROR/
	  && $error !~ /"parallel_apply\.\w+" does not exist/;
	foreach my $row (split(/\n/, $output))
	{
		my $columns = $row =~ tr/|//;
		if ($columns == @ways)
		{
			note_ways($run, $row);
			next;
		}
		my $fault =
		  $columns == 6 ? $workload->snapshot_fault($row) : 'not a snapshot';
		fail_seed($run, "snapshot: $fault: $row") if $fault;
		my ($vector) = split(/\|/, $row);
		my $total = 0;
		$total += $_ foreach split(/,/, $vector);
		fail_seed($run,
			"snapshot: back from $run->{floor} transactions to $vector")
		  if $total < $run->{floor};
		$run->{vectors}{$vector} = $total;
		$run->{floor} = $run->{seen} = $total;
		$run->{snapshots}++;
	}
	return;
}

1;
