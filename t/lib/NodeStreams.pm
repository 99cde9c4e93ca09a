# NodeStreams.pm - methods of PapplyNode.pm that concern streamed transactions: wait until they
# are applied in progress, or kept in files.
package NodeStreams;

use strict;
use warnings;
use Test::More import => [qw(ok)];

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

1;
