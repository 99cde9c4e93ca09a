# NodeProcesses.pm - methods of PapplyNode.pm that concern apply workers and writers: wait for
# them, stop them, replace them.
package NodeProcesses;

use strict;
use warnings;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More import => [qw(ok)];
use Time::HiRes qw(time);

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

1;
