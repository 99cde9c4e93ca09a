# SessionNode.pm - a node of PostgreSQL::Test::Cluster that does not start psql and a
# backend for every statement, which would take most of the time of a test.
#
# psql(), and with it safe_psql() and every method of Cluster that calls them, keeps one
# psql with one session for each database.  poll_query_until() uses the same session
# and repeats its query after 5 to 50 ms.
#
# A script finds what it would find in a session of its own.  A script that changes
# its session (SET, a temporary table, an open transaction) ends the session.  A
# script that changes what sessions start with (settings of roles and databases, the
# configuration), or that concerns other sessions, ends all of them before.  Options
# and commands of psql get a psql of their own, as in Cluster.
package SessionNode;

use strict;
use warnings;
use parent 'PostgreSQL::Test::Cluster';
use IO::Handle;
use IPC::Open3 qw(open3);
# Do not import their functions, which would be methods here.
use PostgreSQL::Test::Utils ();
use Symbol qw(gensym);
use Test::More ();
use TimeLimit ();
use Time::HiRes qw(time usleep);

# Microseconds between two queries, which grow from the first number to the second
my ($first_pause, $longest_pause) = (5_000, 50_000);
my $mark = 'end of output';

# Bytes; a pipe takes this many at once.
my $longest_script = 60_000;

# What scripts may contain, by the first words of statements
my $start = qr/(?:^|;)\s*/m;
my $of_psql = qr/^\s*\\|\\(?:g|gx|gset|gexec|watch|;)\s*$/m;
my $leaves_traces =
  qr/${start}(?:SET(?!\s+LOCAL)|RESET|LISTEN|LOAD|PREPARE(?!\s+TRANSACTION)|DECLARE)\b|set_config|advisory|\bTEMP(?:ORARY)?\b/i;
my $begins = qr/${start}(?:BEGIN|START)\b/i;
my $ends = qr/\b(?:COMMIT|ROLLBACK)\s*;?\s*\z/i;
my $concerns_sessions =
  qr/\b(?:DATABASE|SYSTEM|TABLESPACE)\b|\bALTER\s+(?:ROLE|USER)\b|pg_reload_conf|pg_terminate_backend/i;

### sessions #################################################################

sub start_session
{
	my ($self, $dbname) = @_;
	my %session = (err => gensym);
	my @command = (
		$self->installed_command('psql'),
		'-XAtq', '-d', $self->connstr($dbname),
		'-f', '-', '-v', 'ON_ERROR_STOP=1');
	$session{pid} = open3(@session{ 'in', 'out', 'err' }, @command);
	$session{in}->autoflush;
	return \%session;
}

# Return the exit status of its psql.
sub end_session
{
	my ($session) = @_;
	local ($?, $!);
	local $SIG{PIPE} = 'IGNORE';
	# A child process of the test may have the input of psql open, too.
	print { $session->{in} } "\\q\n";
	close $session->{$_} for qw(in out err);
	waitpid $session->{pid}, 0;
	my $status = $?;
	return $status;
}

# Append to both outputs what can be read; return false at their end, or when the time is
# over.
sub read_some
{
	my ($session, $text, $end) = @_;
	my $ready = '';
	vec($ready, fileno($session->{$_}), 1) = 1 for qw(out err);
	my $rest = defined $end ? $end - time : undef;
	return 0 if defined $rest && $rest <= 0;
	return 1 if select($ready, undef, undef, $rest) <= 0;
	my $bytes = 0;
	for
	  my $stream (grep { vec($ready, fileno($session->{$_}), 1) } qw(out err))
	{
		$bytes +=
		  sysread($session->{$stream}, $text->{$stream}, 8192,
			length $text->{$stream}) // 0;
	}
	return $bytes > 0;
}

# Execute a script, and return its output as (out => ..., err => ...), with whole =>
# true if it was executed to its end.
sub ask
{
	my ($session, $script, $end) = @_;
	my %text = (out => '', err => '');
	my %is_whole;
	local $SIG{PIPE} = 'IGNORE';
	print { $session->{in} } "$script\n;\n\\echo $mark\n\\warn $mark\n";
	while (!$is_whole{out} || !$is_whole{err})
	{
		last if !read_some($session, \%text, $end);
		for my $stream (qw(out err))
		{
			$is_whole{$stream} ||= $text{$stream} =~ s/\n?^\Q$mark\E\n\z//m;
		}
	}
	my $is_whole = $is_whole{out} && $is_whole{err};
	chomp %text if !$is_whole;
	return (%text, whole => $is_whole);
}

# Return a session of the database, the present one if it is alive.  A child process, and
# a caller with another environment, has sessions of its own.
sub session_of
{
	my ($self, $dbname) = @_;
	local %ENV = $self->_get_env();
	my $key = join '|', $$, $dbname,
	  map { "$_=$ENV{$_}" } grep { /^PG/ } sort keys %ENV;
	my $session = $self->{papply_sessions}{$key};
	if (defined $session)
	{
		my %answer = ask($session, 'SELECT 1');
		end_session($session) if !$answer{whole};
		undef $session if !$answer{whole};
	}
	$session //= start_session($self, $dbname);
	$self->{papply_sessions}{$key} = $session;
	return ($session, $key);
}

# End the sessions of this process.
sub end_sessions_of
{
	my ($self) = @_;
	my $sessions = $self->{papply_sessions} // {};
	end_session(delete $sessions->{$_}) for grep { /^$$\|/ } keys %$sessions;
	return;
}

# The same, and wait until their server processes have exited: for sessions of a database
# that is copied or dropped, the server itself waits only some seconds.
sub end_server_processes
{
	my ($self) = @_;
	my $sessions = $self->{papply_sessions} // {};
	my @pids;
	for my $key (grep { /^$$\|/ } keys %$sessions)
	{
		my %answer = ask($sessions->{$key}, 'SELECT pg_backend_pid()');
		push @pids, $answer{out} if $answer{whole};
	}
	end_sessions_of($self);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	for my $pid (@pids)
	{
		my $pause = $first_pause;
		pause(\$pause) while kill(0, $pid) && time < $end;
	}
	return;
}

# With the messages of Cluster
sub die_of
{
	my ($status, $error, $script) = @_;
	die "psql exited with signal $status: '$error'\n" if $status & 127;
	my $what =
		$status >> 8 == 3 ? 'error running SQL'
	  : $status >> 8 == 2 ? 'connection error'
	  : 'psql error';
	die "$what: '$error'\nwhile running psql with sql '$script'\n";
}

# Execute a script in the session of a database, and return the exit status that psql
# would have, and both outputs.
sub run_in_session
{
	my ($self, $dbname, $script) = @_;
	my ($session, $key) = session_of($self, $dbname);
	my %text = ask($session, $script);
	my $status = 0;
	if (  !$text{whole}
		|| $script =~ $leaves_traces
		|| $script =~ $begins && $script !~ $ends)
	{
		delete $self->{papply_sessions}{$key};
		$status = end_session($session);
		$status = 0 if $text{whole};
	}
	else
	{
		# The end of a session would report its statistics.
		ask($session, 'SELECT pg_stat_force_next_flush()');
	}
	chomp $text{err};
	return ($status, @text{ 'out', 'err' });
}

### methods of Cluster #########################################################

sub new
{
	my ($class, @arguments) = @_;
	my $self = $class->SUPER::new(@arguments);
	TimeLimit::watch($self);
	return $self;
}

sub psql
{
	my ($self, $dbname, $script, %params) = @_;
	my %is_known =
	  map { $_ => 1 } qw(stdout stderr on_error_die on_error_stop);
	if (   length $script > $longest_script
		|| $script =~ $of_psql
		|| $script =~ $concerns_sessions
		|| !($params{on_error_stop} // 1)
		|| grep { !$is_known{$_} } keys %params)
	{
		end_server_processes($self) if $script =~ $concerns_sessions;
		return $self->SUPER::psql($dbname, $script, %params);
	}
	my ($status, $out, $err) = run_in_session($self, $dbname, $script);
	${ $params{stdout} } = $out if ref $params{stdout};
	${ $params{stderr} } = $err if ref $params{stderr};
	die_of($status, $err, $script)
	  if $status & 127 || $status && $params{on_error_die};
	return wantarray ? ($status >> 8, $out, $err) : $status >> 8;
}

sub poll_query_until
{
	my ($self, $dbname, $query, $expected) = @_;
	return $self->SUPER::poll_query_until($dbname) if !defined $query;
	$expected //= 't';

	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $pause = $first_pause;
	my %text;
	while (time < $end)
	{
		my ($session, $key) = session_of($self, $dbname);
		%text = ask($session, $query, $end);
		return 1 if $text{out} eq $expected && $text{err} eq '';
		if (!$text{whole})
		{
			# A query that has not ended in time would keep psql from ending.
			kill 'KILL', $session->{pid} if time >= $end;
			end_session(delete $self->{papply_sessions}{$key});
			$pause = $longest_pause;
		}
		pause(\$pause);
	}
	Test::More::diag(
			"poll_query_until timed out executing this query:\n$query\n"
		  . "expecting this output:\n$expected\nlast actual query output:\n"
		  . "$text{out}\nwith stderr:\n$text{err}");
	TimeLimit::report();
	return 0;
}

# The timer of a session of Cluster begins with the session, and expires in one that
# is idle for long; the next query, or the end of the session, would then fail.
# Here each query has its own time, and so has the end.
sub background_psql
{
	my ($self, @parameters) = @_;
	my $session = $self->SUPER::background_psql(@parameters);
	$session->set_query_timer_restart;
	return bless $session, 'PapplySession';
}

sub wait_for_log
{
	my ($self, $regexp, $offset) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $pause = $first_pause;
	$offset //= 0;
	while (time < $end)
	{
		my $log =
		  PostgreSQL::Test::Utils::slurp_file($self->logfile, $offset);
		return $offset + length($log) if $log =~ m/$regexp/;
		pause(\$pause);
	}
	die "timed out waiting for match: $regexp";
}

# A long wait should use less processor time.
sub pause
{
	my ($pause) = @_;
	usleep($$pause);
	$$pause *= 1.2 if $$pause < $longest_pause;
	return;
}

# The names of the nodes that were stopped or restarted
my %was_stopped;

# A session that the server terminates leaves an error in its log, and an old session
# may not have the new configuration yet.
for my $method (qw(stop restart reload))
{
	my $of_cluster = "SUPER::$method";
	no strict 'refs';
	*{$method} = sub {
		my ($self, @arguments) = @_;
		end_sessions_of($self);
		$was_stopped{ $self->name } = 1 if $method ne 'reload';
		return $self->$of_cluster(@arguments);
	};
}

# Whether a server that this one is connected to may have stopped.
sub has_lost_another
{
	my ($self) = @_;
	return scalar grep { $_ ne $self->name } keys %was_stopped;
}

# A background session
package PapplySession;

use parent -norequire, 'PostgreSQL::Test::BackgroundPsql';

sub quit
{
	my ($self) = @_;
	$self->{timeout}->start;
	return $self->SUPER::quit;
}

# Commit the transaction that hold() has begun, and end the session.  Its locks are released
# when this returns; the server process of a session may end only after quit().
sub release
{
	my ($self) = @_;
	$self->query_safe('COMMIT');
	return $self->quit;
}

1;
