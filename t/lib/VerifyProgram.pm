# VerifyProgram.pm - pg_verify_subscription, as tests call it.
package VerifyProgram;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run;
use Test::More;

our @EXPORT =
  qw(verifies_on start_verify end_verify verify wait_for_its_lock);

my @command;

# Let the other functions call it for this subscriber.
sub verifies_on
{
	my ($subscriber) = @_;
	@command = (
		'pg_verify_subscription', '-h', $subscriber->host, '-p',
		$subscriber->port, '-d', 'postgres');
	return;
}

# Start the program; return it, and references to its output and its messages.
sub start_verify
{
	my ($out, $err) = ('', '');
	my $program =
	  IPC::Run::start([ @command, @_ ], '<', \undef, '>', \$out, '2>', \$err);
	return ($program, \$out, \$err);
}

# Wait until it ends; return its exit status.
sub end_verify
{
	my ($program, $out, $err) = @_;
	$program->finish;
	note("exit status ", $? >> 8, "\n$$out$$err");
	return $? >> 8;
}

# Run the program; return exit status, output and messages.
sub verify
{
	my ($program, $out, $err) = start_verify(@_);
	my $status = end_verify($program, $out, $err);
	return ($status, $$out, $$err);
}

# The program waits for a lock of this server.
sub wait_for_its_lock
{
	my ($node) = @_;
	$node->wait_until(
		q(count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND application_name = 'pg_verify_subscription'),
		'the program does not wait for a lock');
	return;
}

1;
