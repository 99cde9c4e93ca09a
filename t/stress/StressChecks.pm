# StressChecks.pm - what is checked at the end of one seed of the random test; see
# StressSeed.pm.
package StressChecks;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Utils;
use StressRun;

our @EXPORT =
  qw(settle compare_rows check_indexes check_commit_order check_logs);

my $native = $ENV{PAPPLY_STRESS_NATIVE};
my $work = $ENV{TESTDIR};

# --- the end --------------------------------------------------------------------

# Wait until the last transaction has arrived, and is confirmed to the publisher.
sub settle
{
	my ($run) = @_;
	my $publisher = $run->{publisher};
	wait_for_sync($run);
	ask($run, $publisher, 'UPDATE sentinel SET n = n + 1');
	my $lsn = ask($run, $publisher, 'SELECT pg_current_wal_insert_lsn()');
	foreach my $node (subscribers($run))
	{
		my $name = subscription($run, $node);
		wait_until(
			$run,
			"last transaction on the $name subscriber",
			sub { ask($run, $node, 'SELECT n FROM sentinel') == 1 });
		foreach my $slot (subscriptions($run, $node))
		{
			wait_until(
				$run,
				"confirmation by subscription $slot",
				sub {
					ask($run, $publisher,
						"SELECT confirmed_flush_lsn >= '$lsn' FROM pg_replication_slots WHERE slot_name = '$slot'"
					) eq 't';
				});
		}
	}
	foreach my $node (nodes($run))
	{
		my $left = ask($run, $node, 'SELECT count(*) FROM pg_prepared_xacts');
		fail_seed($run,
			"$left prepared transactions are left on " . $node->name)
		  if $left != 0;
	}
	return;
}

sub compare_rows
{
	my ($run) = @_;
	my $workload = $run->{workload};
	ask($run, $run->{parallel},
		'UPDATE integer_key SET v = v + 1 WHERE id = (SELECT max(id) FROM integer_key)'
	) if $ENV{PAPPLY_STRESS_CORRUPT};

	my %sums = map { $_ => table_sums($run, $run->{$_}, $_ eq 'publisher') }
	  ('publisher', 'serial', 'parallel');
	foreach my $name ($workload->tables)
	{
		foreach my $node ('serial', 'parallel')
		{
			next if $sums{publisher}{$name} eq $sums{$node}{$name};
			compare(
				$run,
				"$name: publisher and $node",
				sorted_rows(
					$run, $run->{publisher},
					$workload->rows_query($name, 1)),
				sorted_rows(
					$run, $run->{$node}, $workload->rows_query($name, 0)));
		}
	}
	my %local = $workload->local_queries;
	foreach my $name (sort keys %local)
	{
		compare(
			$run,
			"$name: serial and parallel",
			map { sorted_rows($run, $_, $local{$name}) } subscribers($run));
	}
	return;
}

# Does each B-tree index have an entry for each row?  Needs amcheck.
sub check_indexes
{
	my ($run) = @_;
	my $node = $run->{parallel};
	return
	  if !ask($run, $node,
		q(SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck')
	  );
	ask($run, $node, 'CREATE EXTENSION amcheck');
	my $checked = ask(
		$run, $node, q(SELECT relname, bt_index_check(oid, true) FROM pg_class
		WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
			AND oid IN (SELECT indexrelid FROM pg_index WHERE indisvalid)
			AND relkind = 'i' AND relnamespace = 'public'::regnamespace));
	fail_seed($run, 'no index was checked') if $checked eq '';
	return;
}

# Number and checksum of the rows of each table
sub table_sums
{
	my ($run, $node, $on_publisher) = @_;
	my @queries = map {
		my $rows = $run->{workload}->rows_query($_, $on_publisher);
		"SELECT '$_', count(*) || ' ' || md5(string_agg(md5(r), '' ORDER BY r COLLATE \"C\")) FROM ($rows) AS t"
	} $run->{workload}->tables;
	return {
		map { split(/\|/, $_, 2) }
		  split(/\n/, ask($run, $node, join(' UNION ALL ', @queries)))
	};
}

sub sorted_rows
{
	my ($run, $node, $query) = @_;
	return ask($run, $node,
		"SELECT left(r, 200) || md5(r) FROM ($query) AS t ORDER BY r COLLATE \"C\""
	);
}

sub compare
{
	my ($run, $what, $a, $b) = @_;
	return if $a eq $b;
	my %count;
	$count{$_}++ foreach split(/\n/, $a);
	$count{$_}-- foreach split(/\n/, $b);
	my @differ = grep { $count{$_} != 0 } sort keys %count;
	my $more = @differ > 10 ? sprintf("\n    and %d more", @differ - 10) : '';
	splice(@differ, 10) if @differ > 10;
	push @{ $run->{failures} },
		"$what differ; rows of the first (+) and the second (-) alone:"
	  . join('', map { sprintf("\n    %+d %s", $count{$_}, $_) } @differ)
	  . $more;
	return;
}

# Decode the publisher's transactions again, for their classes and the commit order.
# Bytes of a change: kind, relation (4), then of an insert 'N', number of columns
# (2), and of each column 't', its length (4) and its text; an update may have 'K',
# the old key, or 'O', the old row, before 'N'.  Of a TRUNCATE: kind, number of
# relations (4), flags.
my $decoding = <<'SQL';
CREATE TEMP TABLE decoded AS
 SELECT position, xid::text, chr(get_byte(data, 0)) AS kind, data,
  CASE WHEN chr(get_byte(data, 0)) IN ('I', 'U', 'D')
   THEN coalesce(pg_partition_root(relid), relid)::text END AS relation
 FROM pg_logical_slot_get_binary_changes('commit_order', NULL, NULL, 'proto_version', '1',
  'publication_names', '{publications}') WITH ORDINALITY AS change (lsn, xid, data, position),
 CAST(('x' || encode(substr(data, 2, 4), 'hex'))::bit(32)::int::oid AS regclass) AS relid;
SELECT 'ledger', encode(data, 'hex') FROM decoded
 WHERE kind = 'I' AND relation = 'ledger' ORDER BY position;
SELECT 'tables', relation, count(DISTINCT xid) FROM decoded WHERE relation IS NOT NULL GROUP BY 2;
SELECT 'changes', class, count(DISTINCT xid) FROM decoded, unnest(ARRAY[
  CASE WHEN kind = 'U' AND get_byte(data, 5) = ascii('K') THEN 'key_update' END,
  CASE WHEN kind = 'U' AND get_byte(data, 5) = ascii('O') THEN 'update_of_full' END,
  CASE WHEN kind = 'D' AND get_byte(data, 5) = ascii('O') THEN 'delete_of_full' END,
  CASE WHEN kind = 'U' AND relation = 'toasted' AND length(data) < 1000 THEN 'unchanged_toast' END,
  CASE WHEN kind = 'U' AND relation = 'toast_unique' AND length(data) < 1000
   THEN 'unchanged_toast_unique' END,
  CASE WHEN kind = 'U' AND relation = 'toast_key' AND length(data) < 4000 THEN 'unchanged_toast_key' END,
  CASE WHEN kind = 'T' THEN 'truncate' END,
  CASE WHEN kind = 'T' AND get_byte(data, 4) > 1 THEN 'truncate_several' END,
  CASE WHEN kind = 'T' AND get_byte(data, 5) & 1 = 1 THEN 'truncate_cascade' END,
  CASE WHEN kind = 'T' AND get_byte(data, 5) & 2 = 2 THEN 'truncate_restart_identity' END
 ]) AS class WHERE class IS NOT NULL GROUP BY 2;
SQL
my @change_classes = $decoding =~ /THEN '(\w+)' END/g;

# Every snapshot must show a prefix of the commit order whose length is the sum of
# its numbers.
sub check_commit_order
{
	my ($run) = @_;
	my @numbers = (0) x $run->{workload}->settings->{sessions};
	my $total = 0;
	my %prefix = (join(',', @numbers) => 0);
	foreach my $hex (decode_transactions($run))
	{
		my ($session, $n, $hot, $classes) = tuple_columns(pack('H*', $hex));
		next if $n == 0;
		$numbers[ $session - 1 ] = $n;
		$prefix{ join(',', @numbers) } = ++$total;
		$run->{count}{transactions}{$_}++ foreach split(/ /, $classes);
	}
	die "commit order of $total transactions, but $run->{total} were made\n"
	  if $total != $run->{total};
	foreach my $vector (
		sort { $run->{vectors}{$a} <=> $run->{vectors}{$b} }
		keys %{ $run->{vectors} })
	{
		fail_seed($run,
			"a snapshot showed $vector, which is no prefix of the commit order"
		) if !defined $prefix{$vector};
	}
	return;
}

# Count classes; return the inserts into the ledger in their order.
sub decode_transactions
{
	my ($run) = @_;
	my $publications = $run->{workload}->publications;
	my $streamed = ask($run, $run->{publisher},
		"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = 'parallel'"
	);
	$run->{count}{tables} =
	  { map { $_ => 0 } $run->{workload}->all_tables };
	$run->{count}{changes} = { map { $_ => 0 } @change_classes };
	$run->{count}{transactions} =
	  { map { $_ => 0 } $run->{workload}->transaction_classes };
	$run->{count}{transactions}{streamed} = $streamed || 0;
	my @inserts;
	my $rows = ask($run, $run->{publisher},
		$decoding =~ s/\{publications\}/$publications/r);

	foreach (split(/\n/, $rows))
	{
		my ($kind, $class, $count) = split(/\|/);
		push @inserts, $class if $kind eq 'ledger';
		$run->{count}{$kind}{$class} = $count if defined $count;
	}
	return @inserts;
}

sub tuple_columns
{
	my ($insert) = @_;
	my ($count, $rest) = unpack('x6 n a*', $insert);
	my @columns;
	foreach (1 .. $count)
	{
		my $kind = substr($rest, 0, 1, '');
		push @columns, $kind eq 't' ? unpack('N/a', $rest) : '';
		substr($rest, 0, 4 + length $columns[-1], '') if $kind eq 't';
	}
	return @columns;
}

# --- logs -----------------------------------------------------------------------

my @always_expected = (
	qr/terminating (connection|logical replication worker|background worker .*|walsender process) due to administrator command/,
	qr/PID \d+ is not a PostgreSQL (backend|server) process/,
	qr/canceling statement due to lock timeout/,
	qr/could not (fetch|receive) .* from (the )?publisher: ERROR:  deadlock detected/,
	# What concerns a verification is in its own output.
	qr/ pg_verify_subscription (ERROR|FATAL): /,
	# A statement of this test, which repeats it (ask())
	qr/ stress ERROR:  deadlock detected/,
	qr/ERROR:  canceling autovacuum task/,
	qr/WARNING:  skip-LSN of subscription "parallel" cleared/,
	qr/ERROR:  new row for relation "refused(_prepared)?" violates check constraint "not_negative"/,
	qr/ERROR:  subscription "\w+" has no failing transaction/,
	qr/could not create replication slot .*: ERROR:  initial slot snapshot too large/,
	qr/could not drop replication slot "pg_\d+_sync_\d+_\d+" .* does not exist/,
	qr/the database system is (starting up|shutting down|in recovery mode|not yet accepting connections)/
);

# A connection that ended, and the next one that began too early
my @connection_lost = (
	qr/replication (slot "\w+" is active|origin with ID \d+ is already active) for PID/,
	qr/could not (receive data from WAL stream|send data to WAL stream|send end-of-streaming message|receive end-of-streaming|connect to the publisher|start WAL streaming|create replication slot|drop replication slot|receive data|fetch table info)/,
	qr/connection to server .* failed|server closed the connection/,
	qr/terminating (logical replication worker|walsender process) due to (\w+ )?timeout/,
	qr/(could not start initial contents copy|table copy could not|the publisher) .*/
);

my $of_session =
  qr/duplicate key|conflicting key value|deadlock detected|transaction is aborted|lock timeout|could not serialize|moved to another partition|lost the account|foreign key|prepared transaction with identifier|savepoint "\w+" does not exist|terminating connection|the database system is|cached plan must not change|replication origin/;

# Triggers of several tables count in the same rows, so the copy of one table and
# changes of another one may conflict, as with PostgreSQL's own apply.  Return the errors
# of that kind: those of workers that synchronize a table, and of other workers meanwhile.
sub met_by_synchronization
{
	my ($log) = @_;
	my (%is_running, %is_sync, @met);
	foreach my $line (split /\n/, $log)
	{
		if ($line =~
			/\[(\d+)\] LOG: +logical replication table synchronization worker .* has started/
		  )
		{
			$is_running{$1} = $is_sync{$1} = 1;
		}
		elsif ($line =~
			/\[(\d+)\] LOG: +logical replication table synchronization worker .* has finished|\(PID (\d+)\) (?:exited|was terminated)/
		  )
		{
			delete $is_running{ $1 // $2 };
		}
		elsif ($line =~
			/database system was (?:shut down|interrupted|not properly)/)
		{
			%is_running = ();
		}
		elsif ($line =~ /\[(\d+)\] ERROR: +could not serialize access/
			&& (%is_running || $is_sync{$1}))
		{
			push @met, $line;
		}
	}
	return @met;
}

sub check_logs
{
	my ($run) = @_;
	foreach my $node (subscribers($run))
	{
		my $name = subscription($run, $node);
		my @expected = (
			@always_expected, $run->{disturbed}{$name} ? @connection_lost : ()
		);

		push @expected,
		  qr/could not start all writers|out of background worker slots/
		  if $run->{workload}->settings->{worker_processes} < 30;

		# Triggers that count in the same rows
		push @expected, qr/deadlock detected|could not serialize access/
		  if $run->{workload}->settings->{subscriptions} > 1;

		# Without a postmaster, no process waits for the exit of the writers.
		push @expected, qr/cannot reset replication origin .* still in use/
		  if $run->{disturbed}{postmaster};

		# To enable two_phase, PostgreSQL's own apply worker restarts by itself, and
		# the new one may begin before the old one has released the origin.
		push @expected, $connection_lost[0]
		  if $run->{workload}->settings->{two_phase} eq 'on';
		my $log = slurp_file($node->logfile);
		my @lines = grep {
			/(ERROR|FATAL|PANIC|TRAP): |terminated by signal (?!9\b)|WARNING:  (?!terminating)/
		} split(/\n/, $log);
		foreach my $expected (@expected)
		{
			@lines = grep { !/$expected/ } @lines;
		}

		my %is_met = map { $_ => 1 } met_by_synchronization($log);
		@lines = grep { !$is_met{$_} } @lines;
		fail_seed($run, 'log of ' . $node->name . ": $_") foreach @lines;
		fail_seed($run, 'no pool has started')
		  if !$native
		  && $name eq 'parallel'
		  && $log !~ /parallel apply of subscription "\w+" has started/;
	}

	# The errors in the publisher's log are those of its sessions.
	fail_seed($run, "log of the publisher: $_")
	  foreach grep { /PANIC: |TRAP: |terminated by signal (?!9\b)/ }
	  split(/\n/, slurp_file($run->{publisher}->logfile));
	foreach my $file (glob("$work/session*.err"))
	{
		my @lines = grep { /(ERROR|FATAL): / && !/$of_session/ }
		  split(/\n/, slurp_file($file));
		fail_seed($run, "publisher session: $_") foreach @lines;
	}
	return;
}

1;
