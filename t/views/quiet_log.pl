# Promise: administrative actions leave no line of a writer in the log, and none
# that looks like an accident: a change of the number of writers, DISABLE, a restart
# of the publisher, DROP EXTENSION, and the shutdown of the server, with writers
# that are idle and with writers that wait for a lock and for each other.
# PostgreSQL's own apply worker logs a FATAL error and exits with code 1 when the
# server is shut down, which stays as it is.  Each start and stop of a pool states
# its reason.
#
# Every line of the log begins with the type of its process.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		log_line_prefix = '%m [%p] <%b> '
		parallel_apply.max_batch_transactions = 1
		parallel_apply.writers_per_subscription = 6));
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)');
$subscriber->create_extension;
# With streaming = parallel, the apply worker restarts, and logs it, when a pool
# starts or stops.
$pair->subscribe('tap', with => 'streaming = off');
$publisher->sql(
	'INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i');
$publisher->wait_applied;

# A local session that one writer waits for, while all others wait for that writer
sub block_writers
{
	my $session =
	  $subscriber->hold('SELECT FROM items WHERE id = 1 FOR UPDATE');
	$publisher->sql(
		"DO \$\$BEGIN FOR i IN 1..20 LOOP UPDATE items SET v = v + 1 WHERE id = i; COMMIT; END LOOP; END\$\$"
	);
	$subscriber->wait_until(
		q(count(*) FILTER (WHERE state = 'waiting for lock') = 1
			AND count(*) FILTER (WHERE state = 'waiting for prior commit') >= 3
		FROM parallel_apply.writers), 'the writers do not wait');
	return $session;
}

# Wait until the six writers have started, and the log has the message.
sub wait_for_start
{
	my ($offset) = @_;
	$subscriber->wait_for_log(
		qr/parallel apply of subscription "tap" has started .*\n.*DETAIL:  .*\n/,
		$offset);
	$subscriber->wait_for_pool('tap', 6);
	return;
}

# Assert what was logged since that position: nothing of writers, and these messages
# of the apply worker, each with its DETAIL.
sub log_has
{
	my ($offset, $when, @messages) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $log = slurp_file($subscriber->logfile, $offset);
	is( join(
			"\n",
			grep {
				/<parallel_apply writer>|parallel_apply writer.*exited|will restart because/
			} split /\n/,
			$log),
		'',
		"$when: no writer has left a line");
	my @found = $log =~
	  /LOG:  parallel apply of subscription "tap" (.*\n.*DETAIL:  .*)\n/g;
	s/\n.*DETAIL:  /: / for @found;
	is(join("\n", @found), join("\n", @messages), "$when: and why");
	return;
}

my $continues = 'has stopped: The apply worker continues alone because';
my $exits = 'has stopped: The apply worker exits.';
my $shutdown = 'has stopped: The server is shutting down.';
my $setting =
  'The number of writers is that of "parallel_apply.writers_per_subscription".';
my $started = "has started with 6 writers: $setting";

wait_for_start(0);
log_has(0, 'a start', $started);

{
	my $offset = -s $subscriber->logfile;
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 3');
	$subscriber->wait_for_pool('tap', 3);
	$subscriber->sql(
		q(SELECT parallel_apply.alter_subscription_config('tap', 4)));
	$subscriber->wait_for_pool('tap', 4);
	$subscriber->sql(
		q(SELECT parallel_apply.create_group('g', 5);
		BEGIN; SELECT parallel_apply.alter_subscription_config('tap', NULL);
		SELECT parallel_apply.add_subscription('g', 'tap'); COMMIT));
	$subscriber->wait_for_pool('tap', 5);
	$subscriber->sql(
		q(SELECT parallel_apply.remove_subscription('g', 'tap')));
	$subscriber->wait_for_pool('tap', 3);
	log_has(
		$offset,
		'a resize',
		"was resized to 3 writers: $setting",
		'was resized to 4 writers: The number of writers is configured for the subscription.',
		'was resized to 5 writers: The number of writers is configured for the group of the subscription.',
		"was resized to 3 writers: $setting");
}

{
	my $offset = -s $subscriber->logfile;
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
	$subscriber->wait_for_pool('tap', 0);
	$subscriber->wait_for_log(qr/"tap" has stopped/, $offset);
	log_has($offset, 'one writer', "$continues one writer is configured.");
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 6');
	wait_for_start($offset);
}

{
	my $offset = -s $subscriber->logfile;
	$subscriber->sql('DROP EXTENSION parallel_apply CASCADE');
	$subscriber->wait_for_log(qr/"tap" has stopped/, $offset);
	$subscriber->create_extension;
	wait_for_start($offset);
	log_has(
		$offset,
		'DROP EXTENSION',
		"$continues the extension is not installed in this database.",
		$started);
}

# Actions that end the apply worker, with writers that are idle, and with others
# that are not
for my $how ('idle', 'blocked')
{
	my $begin = sub {
		return ($how eq 'blocked' ? block_writers() : undef,
			-s $subscriber->logfile);
	};
	my ($session, $offset) = $begin->();
	$subscriber->connect_again('tap');
	wait_for_start($offset);
	log_has($offset, "$how: DISABLE and ENABLE", $exits, $started);
	end_sessions($session) if $session;
	$pair->tables_equal("$how: after DISABLE and ENABLE", 'items');

	($session, $offset) = $begin->();
	# A publisher that is shut down waits for blocked transactions.
	$publisher->stop($session ? 'immediate' : 'fast');
	$publisher->start;
	wait_for_start($offset);
	log_has($offset, "$how: a restart of the publisher", $exits, $started);
	end_sessions($session) if $session;
	$pair->tables_equal("$how: after a restart of the publisher", 'items');

	for my $time (1 .. 3)
	{
		($session, $offset) = $begin->();
		$subscriber->restart;
		wait_for_start($offset);
		log_has($offset, "$how: restart $time", $shutdown, $started);
		$session->quit if $session;
		$pair->tables_equal("$how: after restart $time", 'items');
	}
}

# A writer that is terminated individually is logged, as by PostgreSQL.
{
	my $offset = -s $subscriber->logfile;
	my ($pid) = $subscriber->writer_pids('tap');
	$subscriber->sql("SELECT pg_terminate_backend($pid)");
	$subscriber->wait_for_log(
		qr/<parallel_apply writer> FATAL:  terminating background worker/,
		$offset);
	$subscriber->wait_for_log(qr/writer 1 has ended unexpectedly/, $offset);
	wait_for_start($offset);
	pass('a writer that is terminated individually is reported');
}

finish(
	$publisher,
	$subscriber,
	qr/<logical replication \w+(?: worker)?> (?:ERROR|FATAL):/,
	qr/FATAL: +terminating (?:connection|background worker "parallel_apply writer"|logical replication worker) .*due to administrator command/
);
done_testing();
