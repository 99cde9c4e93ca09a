# Promise: while a subscription is paused, nothing more of it is applied, by writers
# or by PostgreSQL's own apply, after the transactions that have begun are
# committed.  The connection stays, and neither side times out.  A new apply worker
# is paused as well.  A session that waits for a position, or for everything
# received, gets the right answer.
#
# The publisher has sent the transactions, and the subscriber has replied since, so
# they are known to have arrived.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => 'logical_decoding_work_mem = 64kB',
	subscriber_conf => 'wal_receiver_status_interval = 1s');

$pair->create_accounts;
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE marks (id int PRIMARY KEY);
	CREATE TABLE late (id int PRIMARY KEY)));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE accounts, history, gate, marks',
	with => 'streaming = on');

sub call
{
	my ($call) = @_;
	return $subscriber->sql("SELECT parallel_apply.$call");
}

sub lsn { return $publisher->sql('SELECT pg_current_wal_lsn()'); }

# Insert marks on the publisher, and return the position after them.
sub mark
{
	my (@ids) = @_;
	$publisher->sql(join '', map { "INSERT INTO marks VALUES ($_);" } @ids);
	return lsn();
}

sub marks
{
	return $subscriber->sql(
		q(SELECT string_agg(id::text, ',' ORDER BY id) FROM marks)) // '';
}

# Assert that the publisher hears from the subscriber at least this many seconds later.
sub wait_for_answers
{
	my ($seconds) = @_;
	my $now = $publisher->sql('SELECT now()');
	$publisher->poll_query_until(
		'postgres',
		"SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'tap'
			AND reply_time > timestamptz '$now' + interval '$seconds s'"
	) or die 'the subscriber does not answer';
	return;
}

# Does the connection outlive a pause that is longer than both timeouts, which only their
# replies prevent?  If the machine stalls for as long as the timeouts, there is another
# attempt with longer ones.
sub is_patient
{
	my $is_patient;
	for my $seconds (2, 10, 50)
	{
		set_timeouts("${seconds}s", '10min');
		my $apply_pid = $subscriber->apply_pid('tap');
		my $offset = -s $subscriber->logfile;
		wait_for_answers(1.1 * $seconds);
		$is_patient = $subscriber->apply_pid('tap') eq $apply_pid
		  && slurp_file($subscriber->logfile, $offset) !~ /timeout/;
		last if $is_patient;
	}
	set_timeouts('1h', '1s');
	return $is_patient;
}

# An apply worker asks for the publisher's timeout when it connects.
sub set_timeouts
{
	my ($timeout, $status_interval) = @_;
	$publisher->reload_with("wal_sender_timeout = $timeout");
	$subscriber->reload_with("wal_receiver_timeout = $timeout",
		"wal_receiver_status_interval = $status_interval");
	$subscriber->restart_apply('tap');
	return;
}

sub pause
{
	my $offset = -s $subscriber->logfile;
	call(q(pause('tap')));
	$subscriber->wait_for_log(
		qr/LOG:  apply of subscription "tap" has been paused/, $offset);
	return;
}

# Return what a function says.
sub notices_of
{
	my ($call) = @_;
	my (undef, undef, $notices) =
	  $subscriber->psql('postgres', "SELECT parallel_apply.$call");
	return $notices;
}

my $next = 1;

sub check_pause
{
	my ($how) = @_;
	my ($before, $during) = ($next, $next + 1);
	$next += 2;

	is(call("wait_for_lsn('tap', '" . mark($before) . "')"),
		't', "$how: a position is waited for");
	like(marks(), qr/\b$before$/, 'and then is visible');
	$publisher->sql(
		'CREATE TABLE unpublished (id int); DROP TABLE unpublished');
	is(call("wait_for_lsn('tap', '" . lsn() . "')"),
		't', 'also one without anything for the subscription');

	my $count;
	$pair->under_load(
		sub {
			$subscriber->wait_for_progress;
			call(q(pause('tap')));
			is(call(q(drain('tap'))), 't',
				'drain() waits for received transactions');
			$count = $subscriber->sql('SELECT count(*) FROM history');
		});
	my $lsn = mark($during);
	ok(is_patient(), "$how: the connection outlives a pause");
	is($subscriber->sql('SELECT count(*) FROM history'),
		$count, "$how: nothing is applied while it is paused");
	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT state = 'paused' AND lag > '1 s' FROM parallel_apply.subscriptions)
		),
		'and the lag can be seen');
	is(call("wait_for_lsn('tap', '$lsn', '100 ms')"), 'f',
		'a wait times out');
	like(
		notices_of("wait_for_lsn('tap', '$lsn', '2 s')"),
		qr/still waiting for subscription "tap"\nDETAIL:  It is paused/,
		'but not without a word');

	if ($how eq 'with writers')
	{
		my $offset = -s $subscriber->logfile;
		$subscriber->restart_apply('tap');
		$subscriber->wait_for_log(qr/"tap" has been paused/, $offset);
		wait_for_answers(0.5);
		is($subscriber->sql('SELECT count(*) FROM history'),
			$count, 'a new apply worker is paused');
	}
	call(q(resume('tap')));
	is(call("wait_for_lsn('tap', '$lsn')"), 't', 'apply continues');
	$subscriber->poll_query_until('postgres',
		q(SELECT state <> 'paused' AND lag = '0' FROM parallel_apply.subscriptions)
	) or die 'there still is a lag';
	like(marks(), qr/\b$during$/, 'with the transactions of the meantime');
	$pair->accounts_are_equal("after a pause: $how");
	return;
}

check_pause('with writers');
call(q(alter_subscription_config('tap', 1)));
$subscriber->wait_for_pool('tap', 0);
check_pause("PostgreSQL's own apply");

# drain() waits until the apply worker has noticed the pause.  What arrives while the apply
# worker sleeps, after the call of pause(), is not applied.
{
	my $mark = $next++;
	my $apply = $subscriber->apply_pid('tap');
	$subscriber->stop_waiting($apply, 'LogicalApplyMain');
	call(q(pause('tap')));
	is(call(q(drain('tap', '500 ms'))),
		'f', 'nothing is drained before the apply worker has seen the pause');
	my $lsn = mark($mark);
	$publisher->wait_for_catchup('tap', 'sent', $lsn);
	kill 'CONT', $apply;
	is(call(q(drain('tap'))), 't', 'but then');
	wait_for_answers(0.5);
	unlike(marks(), qr/\b$mark$/,
		'it sees the pause before it applies what has arrived');
	call(q(resume('tap')));
	is(call("wait_for_lsn('tap', '$lsn')"), 't', 'which is applied later');
}

### transactions that have begun are completed; a pool starts and stops

for my $writers (4, 1)
{
	call("alter_subscription_config('tap', $writers)");
	$subscriber->wait_for_pool('tap', $writers > 1 ? $writers : 0);
	my @marks = ($next .. $next + 2);
	$next += 3;
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		"BEGIN; INSERT INTO marks VALUES ($marks[0]); UPDATE gate SET n = n + 1; COMMIT"
	);
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted))
	  or die 'the transaction does not wait';
	call(q(pause('tap')));
	mark($marks[1]) if $writers == 1;
	$lock->release;
	is(call(q(drain('tap'))), 't', 'drained');
	mark($marks[1]) if $writers > 1;

	# larger than logical_decoding_work_mem
	$publisher->sql(
		"BEGIN; INSERT INTO marks VALUES ($marks[2]);
		INSERT INTO marks SELECT i FROM generate_series(1000000, 1002000) i;
		DELETE FROM marks WHERE id >= 1000000; COMMIT");
	call("alter_subscription_config('tap', 5 - $writers)");
	$subscriber->wait_for_pool('tap', $writers > 1 ? 0 : 4);
	wait_for_answers(0.5);
	like(marks(), qr/\b$marks[0]$/,
		"$writers: what has begun is ended, and nothing else when the pool comes or goes"
	);
	call(q(resume('tap')));
	is(call("wait_for_lsn('tap', '" . lsn() . "')"), 't', 'resumed');
	like(marks(), qr/\b$marks[0],$marks[1],$marks[2]$/, 'all is there');
}

### tables are copied during a pause

$publisher->sql(
	'INSERT INTO late VALUES (1); ALTER PUBLICATION tap ADD TABLE late');
pause();
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
mark($next++);
# Its worker would also apply what the apply worker has received when the copy is ready.
$subscriber->wait_until(
	q(srsubstate IN ('s', 'r') FROM pg_subscription_rel WHERE srrelid = 'late'::regclass),
	'the table is not copied');
is($subscriber->sql('SELECT count(*) FROM late'),
	1, 'a table is copied during a pause');
$publisher->sql('INSERT INTO late VALUES (2)');
is($subscriber->sql('SELECT count(*) FROM late'), 1, 'and no more');
call(q(resume('tap')));
is(call("wait_for_lsn('tap', '" . lsn() . "')"), 't', 'resumed');
$pair->rows_equal('late');

### without an apply worker

my $lsn = mark($next++);
mark($next++);
$publisher->wait_applied;
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
$subscriber->restart;
is(call("wait_for_lsn('tap', '$lsn', '100 ms')"),
	't', 'committed positions are known after a restart');
$lsn = mark($next++);
is(call("wait_for_lsn('tap', '$lsn', '100 ms')"), 'f', 'and what is not');
like(
	notices_of("wait_for_lsn('tap', '$lsn', '2 s')"),
	qr/^[^\n]*NOTICE:  still waiting for subscription "tap"\nDETAIL:  It is disabled\.$/,
	'a session that waits for a disabled subscription gets a NOTICE, once');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is(call("wait_for_lsn('tap', '$lsn')"), 't', 'until it is');

### without the extension, and without the subscription

pause();
$lsn = mark($next++);
(undef, undef, my $warning) =
  $subscriber->psql('postgres', 'DROP EXTENSION parallel_apply');
like(
	$warning,
	qr/WARNING:  apply of subscription "tap" is paused and will be resumed/,
	'DROP EXTENSION warns that it ends the pause');
$publisher->wait_applied;
$pair->rows_equal('marks', 'without the extension nothing is paused');
$subscriber->create_extension;
$lsn = mark($next++);
is(call("wait_for_lsn('tap', '$lsn')"),
	't', 'the pause does not come back with the extension');
pause();
$lsn = mark($next++);

my $waiting = $subscriber->background_psql('postgres', on_error_stop => 0);
$waiting->query_until(qr/begun/,
	"\\echo begun\nSELECT parallel_apply.wait_for_lsn('tap', '$lsn');\n");
$subscriber->poll_query_until(
	'postgres',
	q(SELECT count(*) = 1 FROM pg_stat_activity
	WHERE query LIKE '%wait_for_lsn%' AND wait_event_type = 'Extension')
) or die 'no session waits';
$pair->rows_equal($_) for qw(accounts history gate);
$subscriber->sql('DROP SUBSCRIPTION tap');
$waiting->query('SELECT 1');
like(
	$waiting->{stderr},
	qr/subscription was dropped during the wait/,
	'a session that waits for a subscription that is dropped gets an error');
$waiting->quit;

finish(
	$publisher,
	$subscriber,
	qr/connection to client lost|subscription was dropped/,
	qr/terminating logical replication worker due to timeout/,
	qr/terminating .* due to administrator command/);
done_testing();
