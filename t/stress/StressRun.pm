# StressRun.pm - the common parts of one seed of the random test: its servers,
# queries, waits, and failures.
#
# A run is a hash: seed, size, version; workload, a Workload; publisher, serial and
# parallel, nodes; failures, texts; floor, the number of transactions that every
# later snapshot must show; disturbed, for each subscription whether its connection
# has been disturbed; and private members of the modules.
package StressRun;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT =
  qw(fail_seed nodes subscribers subscription subscriptions alter_subscriptions
  wait_for_sync try_psql ask ask_for_lock wait_until stuck patience);

# Seconds without a new transaction or an answer that are a failure
my $patience = $ENV{PG_TEST_TIMEOUT_DEFAULT} || 90;
my $native = $ENV{PAPPLY_STRESS_NATIVE};

sub patience { return $patience; }

# Keep the first three failures of a kind: more of them add no information.
sub fail_seed
{
	my ($run, $text) = @_;
	my $kind = substr($text =~ s/\d//gr, 0, 45);
	push @{ $run->{failures} }, $text if ++$run->{failed}{$kind} <= 3;
	return;
}

sub nodes
{
	my ($run) = @_;
	return grep { defined } @{$run}{ 'parallel', 'serial', 'publisher' };
}

sub subscribers
{
	my ($run) = @_;
	return grep { defined } @{$run}{ 'serial', 'parallel' };
}

# The name of a node's first subscription
sub subscription
{
	my ($run, $node) = @_;
	return $node == $run->{parallel} ? 'parallel' : 'serial';
}

# The names of all subscriptions
sub subscriptions
{
	my ($run, $node) = @_;
	my %publications =
	  $run->{workload}->subscriptions(subscription($run, $node));
	return sort keys %publications;
}

sub alter_subscriptions
{
	my ($run, $what) = @_;
	foreach my $node (subscribers($run))
	{
		ask($run, $node, "ALTER SUBSCRIPTION $_ $what")
		  foreach subscriptions($run, $node);
	}
	return;
}

sub wait_for_sync
{
	my ($run) = @_;
	my $waiting =
	  q{SELECT (SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r')
 + (SELECT count(*) FROM pg_subscription WHERE subtwophasestate = 'p')};
	foreach my $node (subscribers($run))
	{
		wait_until(
			$run,
			'table synchronization',
			sub { ask($run, $node, $waiting) == 0 });
	}
	return;
}

# --- asking and waiting ---------------------------------------------------------

# Return psql's exit status, 2 when the connection ended, and output and error.
sub try_psql
{
	my ($node, $sql, %options) = @_;
	my ($output, $error) = ('', '');
	my $status = eval {
		$node->psql(
			'postgres', $sql,
			stdout => \$output,
			stderr => \$error,
			timeout => $patience,
			%options);
	};

	# psql may end before it has read all of a long script.
	die $@ if !defined $status && $@ !~ /Broken pipe/;
	return ($status // 2, $output, $error);
}

# Return the answer of a node that may be about to restart.  The statement may fail
# because of other sessions.
sub ask
{
	my ($run, $node, $sql) = @_;
	my $end = time + $patience;
	while (1)
	{
		my $is_late = 0;
		my ($status, $output, $error) =
		  try_psql($node, $sql, timed_out => \$is_late);
		stuck($run, $node->name . " does not answer: $sql") if $is_late;
		return $output if $status == 0;
		die $node->name . ": $error in $sql\n"
		  if $status != 2 && $error !~ /deadlock detected/ || time > $end;
	}
}

# The same for a statement that locks a table.  While a prepared transaction holds a
# lock on that table, its COMMIT PREPARED may come behind a transaction that waits
# behind this statement.  Serial apply would hang as well.
sub ask_for_lock
{
	my ($run, $node, $sql) = @_;
	return ask($run, $node, $sql)
	  if $run->{workload}->settings->{two_phase} eq 'off';
	wait_until(
		$run,
		"lock for $sql",
		sub {
			my ($status, $output, $error) =
			  try_psql($node, "SET lock_timeout = '300ms'; $sql");
			die "$error in $sql\n"
			  if $status == 3 && $error !~ /due to lock timeout/;
			return $status == 0;
		});
	return;
}

sub wait_until
{
	my ($run, $what, $condition) = @_;
	my $end = time + $patience;
	until ($condition->())
	{
		stuck($run, "no $what") if time > $end;
	}
	return;
}

# What the servers report about blocked processes
my $tables_not_ready =
  q{SELECT srrelid::regclass, srsubstate, srsublsn FROM pg_subscription_rel WHERE srsubstate <> 'r'};
my %state_query = (
	publisher => [
		'SELECT * FROM pg_stat_replication',
		'SELECT slot_name, active, restart_lsn, confirmed_flush_lsn FROM pg_replication_slots',
		'SELECT pid, wait_event, state, left(query, 80) FROM pg_stat_activity WHERE datname IS NOT NULL'
	],
	serial => [ $tables_not_ready, 'SELECT * FROM pg_stat_subscription' ],
	parallel => [
		$tables_not_ready,
		'SELECT pid, backend_type, application_name, wait_event_type, wait_event, state, backend_xid,'
		  . ' pg_blocking_pids(pid), left(query, 80) FROM pg_stat_activity WHERE datname IS NOT NULL',
		'SELECT * FROM pg_stat_subscription',
		'SELECT * FROM pg_locks WHERE NOT granted',
		'SELECT * FROM pg_prepared_xacts',
		$native ? () : ('SELECT * FROM parallel_apply.writers')
	]);

sub stuck
{
	my ($run, $what) = @_;
	my $text = "stuck: $what";
	foreach my $name (grep { $run->{$_} } sort keys %state_query)
	{
		foreach my $sql (@{ $state_query{$name} })
		{
			my (undef, $output, $error) =
			  try_psql($run->{$name}, $sql, extra_params => ['-x']);
			$output =~ s/\n(?!\n)(?!\z)/; /g;
			$text .= "\n    $name: $sql\n$output$error";
		}
	}
	die "$text\n";
}

1;
