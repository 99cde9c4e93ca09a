# Promise: a script that shares its session with others (PapplyNode.pm) has the
# result, the exit status and the session state that it would have in a session of
# its own.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyNode;
use PostgreSQL::Test::Utils;
use Test::More;
use TimeLimit;

my $node = PapplyNode->new('node');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\n");
$node->start;

sub query
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}
my $pid = 'SELECT pg_backend_pid()';

is(query($pid), query($pid), 'scripts share a session');
is(query("SELECT 1; SELECT NULL; SELECT 'a\n\nb'"),
	"1\n\na\n\nb", 'a script prints what it would print alone');
is(query(''), '', 'also if that is nothing');

# Errors
my ($status, $out, $err) = $node->psql('postgres',
	'CREATE TABLE kept (i int); SELECT 2; SELECT 1/0; CREATE TABLE never (i int)'
);
is($status, 3, 'an error gives the exit status of psql');
is($out, '2', 'the output before it');
like($err, qr/ERROR:  division by zero/, 'and the message');
is(query(q(SELECT to_regclass('kept'), to_regclass('never'))),
	'kept|', 'and ends the script');
($status, $out, $err) =
  $node->psql('postgres', q(DO $$ BEGIN RAISE WARNING 'be warned'; END $$));
is($status, 0, 'a warning does not end it');
like($err, qr/WARNING:  be warned\z/, 'but is printed');
ok(!eval { query('SELECT 1/0'); 1 }, 'safe_psql dies of an error');
like($@, qr/^error running SQL: .*division by zero/s, 'and says which');

# What scripts leave behind
my %leaves = (
	'SET work_mem = 1000' => 'SHOW work_mem',
	q(SELECT set_config('work_mem', '1000', false)) => 'SHOW work_mem',
	'CREATE TEMP TABLE gone (i int)' => q(SELECT to_regclass('gone')),
	'SELECT pg_advisory_lock(1)' =>
	  q(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
	'BEGIN; CREATE TABLE gone (i int)' => q(SELECT to_regclass('gone')),
	'PREPARE gone AS SELECT 1' =>
	  'SELECT count(*) FROM pg_prepared_statements');
for my $script (sort keys %leaves)
{
	my $before = query($leaves{$script});
	query($script);
	ok($node->poll_query_until('postgres', $leaves{$script}, $before),
		"nothing is left of: $script");
}

# What sessions begin with
query(q(ALTER DATABASE postgres SET work_mem = '2MB'));
is(query('SHOW work_mem'), '2MB', 'a setting of the database is there');
query('ALTER DATABASE postgres RESET work_mem');
$node->append_conf('postgresql.conf', "work_mem = '3MB'\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SHOW work_mem', '3MB'),
	'and one of the configuration');
query('CREATE DATABASE other TEMPLATE postgres');
is($node->safe_psql('other', 'SELECT count(*) FROM kept'),
	'0', 'sessions are not in the way of a copy of their database');
query('DROP DATABASE other');

# The statistics of a script are reported when it has ended.
query('INSERT INTO kept VALUES (1), (2)');
is( query(
		q(SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'kept')),
	'2',
	'statistics are up to date');

# A background session whose timer expired while the session was idle
sub idle_session
{
	my ($session) = @_;
	$session->query_safe('SELECT 1');
	$session->{timeout}->end_time(time - 1);
	return $session;
}
my $idle = idle_session($node->background_psql('postgres'));
is(eval { $idle->query_safe('SELECT 2') } // $@,
	'2', 'an idle session answers after its timer has run out');
ok(eval { idle_session($idle)->quit; 1 }, 'and ends') or diag($@);

# A test that hangs
my $holder = $node->hold('SELECT pg_advisory_lock(1)');
my $blocked = $node->background_psql('postgres');
$blocked->query_until(qr/blocked/,
	"\\echo blocked\nSELECT pg_advisory_lock(1);\n");
$node->wait_until(
	q(count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)
);
my $seconds = alarm 0;
alarm $seconds;
ok($seconds > 0, 'a test has a time limit');
ok(!eval { kill 'ALRM', $$; query('SELECT 1'); 1 }, 'and dies then');
like($@, qr/the test has not ended within \d+ s/, 'with this reason');
like(
	TimeLimit::waits_of($node),
	qr/client backend [^\n]* Lock +\| advisory .*pg_advisory_lock/,
	'having said what each process waits for');
$_->quit for $holder, $blocked;

# Sessions that were terminated
my $old = query($pid);
kill 'TERM', $old;
isnt(query($pid), $old, 'a terminated session is replaced');
$old = query($pid);
$node->restart;
isnt(query($pid), $old, 'and one of a server that was stopped');
$node->stop;
is($node->psql('postgres', 'SELECT 1'), 2, 'no server gives the status, too');
unlike(
	slurp_file($node->logfile),
	qr/FATAL: (?!.*due to administrator command)/,
	'and the log has no trace of them');
done_testing();
