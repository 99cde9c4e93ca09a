# StressVerify.pm - pg_verify_subscription compares the parallel subscriber with the
# publisher of the random test, while transactions are applied and processes are killed.
#
# A verification is a run of the program in the background; some are killed at a
# random moment.  It may be unable to compare a table, or anything, but never reports a
# row that differs, and leaves nothing on either server.
package StressVerify;

use strict;
use warnings;
use Exporter 'import';
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Utils;
use StressRun;
use Time::HiRes ();

our @EXPORT =
  qw(can_verify verification_results start_verification check_verifications end_verifications);

my $program = 'pg_verify_subscription';
my $work = $ENV{TESTDIR};

# A killed verification ends within this time, which is longer than one takes.
my $longest_life_ms = 600;

# Why the program may be unable to verify a subscription: a server restarts, apply is paused,
# stopped or stuck, still held for a killed verification, the extension is not there.
my @expected = (
	qr/could not connect to the (publisher|subscriber): /,
	qr/connection to the (publisher|subscriber) lost/,
	qr/server closed the connection unexpectedly/,
	qr/terminating connection/,
	qr/the connection is lost|no connection to the server/,
	qr/could not find a common position of both servers/,
	# too many transactions since the oldest one, as for any exported snapshot
	qr/could not create a replication slot on the publisher: ERROR: +initial slot snapshot too large/,
	qr/is paused by the session with process ID \d+|was ended by another session/,
	qr/cannot be verified: (it is disabled|it is paused|a transaction fails)/,
	qr/does not have extension "parallel_apply"/,
	qr/(schema|relation) "parallel_apply(\.\w+)?" does not exist/,
	qr/function parallel_apply\.\w+\(.*\) does not exist/,
	qr/does not have subscription|has no subscription/);

# The program was built, and the subscriber has what it needs.
sub can_verify
{
	my ($run) = @_;
	return !$run->{is_native} && -x "$ENV{STRESS_BINDIR}/$program";
}

# What a verification may have as its result
sub verification_results
{
	my ($run) = @_;
	return ('verified', 'not_verified', $run->{kills} ? 'killed' : ());
}

sub draw
{
	my ($run, @choices) = @_;
	return Workload::pick($run->{random}, @choices);
}

# One at a time, since a second one would be refused.
sub start_verification
{
	my ($run) = @_;
	return if !can_verify($run) || check_verifications($run);
	my $life_ms = $run->{kills}
	  && draw($run, 0, 1) ? 1 + $run->{random}->($longest_life_ms) : 0;
	my $node = $run->{parallel};
	my @command = (
		$program, '-h', $node->host, '-p',
		$node->port, '-d', 'postgres', '-j',
		draw($run, 1, 3));
	push @command, map { ('-T', $_) } $run->{workload}->unequal_tables;
	my $base = "$work/verify" . ++$run->{verifications_started};
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		delete $ENV{PGOPTIONS};
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', "$base.out");
		open(STDERR, '>', "$base.err");
		# The program has no handler for this signal.
		$SIG{ALRM} = 'DEFAULT';
		Time::HiRes::alarm($life_ms / 1000) if $life_ms;
		exec(@command) or POSIX::_exit(127);
	}
	$run->{verifications}{$pid} = $base;
	return;
}

# Check those that have ended.  Return the number of others.
sub check_verifications
{
	my ($run) = @_;
	foreach my $pid (sort keys %{ $run->{verifications} })
	{
		next if waitpid($pid, WNOHANG) == 0;
		check_verification($run, delete $run->{verifications}{$pid}, $?);
	}
	return scalar keys %{ $run->{verifications} };
}

sub check_verification
{
	my ($run, $base, $status) = @_;
	my $output = slurp_file("$base.out");
	my @errors = grep { /error: / } split(/\n/, slurp_file("$base.err"));
	my @differences =
	  grep { /: (missing on|differs in)/ } split(/\n/, $output);
	my $result = 'verified';
	if (WIFSIGNALED($status))
	{
		fail_seed($run, "$base: signal " . WTERMSIG($status))
		  if WTERMSIG($status) != POSIX::SIGALRM;
		$result = 'killed';
	}
	elsif (@errors)
	{
		$result = 'not_verified';
	}
	fail_seed($run,
		"$base: reports a difference: " . ($differences[0] // 'status 2'))
	  if @differences
	  || WIFEXITED($status) && WEXITSTATUS($status) == 2;
	fail_seed($run, "$base: status " . WEXITSTATUS($status))
	  if WIFEXITED($status) && WEXITSTATUS($status) > 2;
	foreach my $expected (@expected)
	{
		@errors = grep { !/$expected/ } @errors;
	}
	fail_seed($run, "$base: $_") foreach @errors;
	$run->{count}{verifications}{$result}++;
	return;
}

# Wait until all have ended, and nothing is left of them.  A session of a program that
# was killed ends when the server notices.
sub end_verifications
{
	my ($run) = @_;
	return if !can_verify($run);
	wait_until(
		$run,
		'end of a verification',
		sub { return !check_verifications($run) });
	my $left =
	  "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$program'";
	wait_until(
		$run,
		'end of what a verification has on the publisher',
		sub {
			ask($run, $run->{publisher},
				"SELECT ($left) + count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg_verify%'"
			) == 0;
		});
	wait_until(
		$run,
		'end of what a verification has on the subscriber',
		sub { ask($run, $run->{parallel}, $left) == 0 });
	return;
}

1;
