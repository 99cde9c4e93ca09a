# Programs.pm - programs other than PostgreSQL's that a test runs alongside its
# servers.  They are found in PATH and write to a file in the directory of the logs.
# Those that are still running at the end of the test are killed.
package Programs;

use strict;
use warnings;
use Exporter 'import';
use HTTP::Tiny;
use IPC::Run;
# Cluster's END, which removes the directories of the servers, comes after the one
# here.
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT =
  qw(is_installed start_program stop_program kill_program kill_programs answer_of);

my %running;

END
{
	local $?;
	kill_programs();
}

sub is_installed
{
	my ($program) = @_;
	return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

# Start a program under a name that is unique in the test, as those of its servers are:
# its output is in a file like theirs.
sub start_program
{
	my ($name, @command) = @_;
	my ($test) = $0 =~ m{([^/]+)\.pl$};
	my $log = "$PostgreSQL::Test::Utils::log_path/${test}_$name.log";
	die "$name is running" if $running{$name};
	$running{$name} =
	  IPC::Run::start(\@command, '<', \undef, '>>', $log, '2>&1');
	return;
}

# Have a program end.  Return whether it did so by itself, within a time that no program
# should need.
sub stop_program
{
	my ($name) = @_;
	my $program = delete $running{$name};
	return !$program->kill_kill(
		grace => $PostgreSQL::Test::Utils::timeout_default);
}

# End a program as a crash of its machine would.
sub kill_program
{
	my ($name) = @_;
	my $program = delete $running{$name};
	$program->signal('KILL');
	$program->finish;
	return;
}

sub kill_programs
{
	kill_program($_) for keys %running;
	return;
}

# Return the answer of a server once it is right; undef if it does not become right.
sub answer_of
{
	my ($url, $is_right) = @_;
	my $client = HTTP::Tiny->new(timeout => 10);
	my $answer;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$answer = $client->get($url);
		return $answer->{content}
		  if $answer->{success} && $is_right->($answer->{content});
		# Between two attempts
		select(undef, undef, undef, 0.1);
	}
	diag("$url: $answer->{status} $answer->{content}");
	return;
}

1;
