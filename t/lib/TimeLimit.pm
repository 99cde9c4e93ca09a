# TimeLimit.pm - a test that hangs ends by itself, and says what its servers were waiting for.
# So does a wait that ends without success.
#
# Every wait of a test has a limit of its own (PG_TEST_TIMEOUT_DEFAULT), except for a
# statement that is executed.  The limit here is that of the whole test, in seconds: the
# environment variable PAPPLY_TEST_SECONDS.
package TimeLimit;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use Test::More ();

our @EXPORT_OK = qw(watch waits_of);

my $limit = $ENV{PAPPLY_TEST_SECONDS} // 900;
my %watched;

# The test ends as it does when it dies: servers are stopped.
$SIG{ALRM} = sub {
	report();
	die "the test has not ended within $limit s\n";
};
alarm $limit;

# Have a node's processes in the report.
sub watch
{
	my ($node) = @_;
	$watched{ $node->name } = $node;
	return;
}

# Say what the processes of all these nodes wait for.
sub report
{
	Test::More::note(waits_of($_)) for values %watched;
	return;
}

# Return what each process of a node waits for.  The server may not answer, so the list of
# the system comes first.
sub waits_of
{
	my ($node) = @_;
	my $text = 'processes of ' . $node->name . ":\n";
	my $postmaster = $node->{_pid} // 0;
	for my $directory (glob '/proc/[0-9]*')
	{
		my ($status, $wchan, $title) =
		  map { read_file("$directory/$_") } qw(stat wchan cmdline);
		my ($state, $parent) = $status =~ /\) (\S) (\d+)/ or next;
		next if $parent != $postmaster;
		$title =~ s/\0.*//s;
		$text .= "$title, state $state, in $wchan\n";
	}
	my $queries =
	  q(SELECT pid, backend_type, application_name, state, wait_event_type, wait_event,
		pg_blocking_pids(pid) AS blocked_by, left(query, 200) AS query FROM pg_stat_activity;
		SELECT 'TABLE ' || view FROM unnest('{subscriptions,writers}'::text[]) AS name,
		concat('parallel_apply.', name) AS view WHERE to_regclass(view) IS NOT NULL \gexec);
	my @psql =
	  ('timeout', '20', 'psql', '-X', '-d', $node->connstr('postgres'));
	IPC::Run::run(\@psql, '<', \$queries, '>&', \my $answer);
	return $text . $answer;
}

sub read_file
{
	my ($name) = @_;
	open my $file, '<', $name or return '';
	local $/ = undef;
	return <$file> // '';
}

1;
