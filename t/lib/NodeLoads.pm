# NodeLoads.pm - methods of PapplyNode.pm that run a load or another program in the background,
# and wait for what it does.
package NodeLoads;

use strict;
use warnings;
use IPC::Run ();
use PostgreSQL::Test::Utils qw(append_to_file);

# What start_load() calls its sessions; without a name, they have that of the test.
my $load_name = 'load';

# Start a program, whose output is of no interest.
sub start_command
{
	my (@command) = @_;
	return IPC::Run::start(\@command, '<', \undef, '>', \my $out, '2>',
		\my $err);
}

# Start pgbench with a script and options, until end_load(load).
sub start_load
{
	my ($self, $script, @options) = @_;
	local $ENV{PGAPPNAME} = $load_name;
	return start_command(qw(pgbench -n -T 86400),
		@options, '-f', $script, '-h', $self->host, '-p', $self->port,
		'postgres');
}

# Begin to stop the server; its finish() says whether it has stopped.
sub begin_stop
{
	my ($self, $mode) = @_;
	return start_command('pg_ctl', '-D', $self->data_dir, '-m', $mode, '-t',
		$PostgreSQL::Test::Utils::timeout_default, 'stop');
}

# End the load.  Its sessions may still be committing when pgbench has exited, so wait for
# them; those of a connection pooler stay.
sub end_load
{
	my ($self, $load) = @_;
	$load->signal('TERM');
	$load->finish;
	$self->wait_until(
		"count(*) = 0 FROM pg_stat_activity WHERE application_name = '$load_name' AND state <> 'idle'",
		'sessions of the load do not end');
	return;
}

# A load of single transactions on the publisher, with a rate per second, until
# end_load(load).
sub start_accounts_load
{
	my ($self, $rate, @options) = @_;
	my $script = $self->basedir . '/load';
	append_to_file($script, <<~'SQL') unless -e $script;
		\set id random(1, 20)
		BEGIN;
		UPDATE accounts SET balance = balance + 1 WHERE id = :id;
		INSERT INTO history (account, balance) SELECT id, balance FROM accounts WHERE id = :id;
		COMMIT;
		SQL
	return $self->start_load($script, '-c', 2, '-R', $rate, @options);
}

# Wait until more transactions of the load have been applied.
sub wait_for_progress
{
	my ($self) = @_;
	my $count = $self->sql('SELECT count(*) FROM history');
	$self->poll_query_until('postgres',
		"SELECT count(*) > $count + 50 FROM history")
	  or die 'nothing is applied any more';
	return;
}

1;
