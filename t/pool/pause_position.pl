# Promise: pause() with a position stops apply at exactly the state of the publisher at this
# position, for ordinary, streamed and prepared transactions, with writers and without, across
# a restart of the apply worker; and ends with the session that has called it.
#
# The publisher writes all transactions while the subscription is paused before the first one.
# The positions between them are then reached one after the other, and the tables must show
# what was committed before each, and nothing more.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		max_prepared_transactions = 20
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		max_prepared_transactions = 20
		max_logical_replication_workers = 4));

$pair->exec_both(
	q(CREATE TABLE marks (id int PRIMARY KEY);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE own (id int)));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE marks, items',
	with => 'two_phase = on, streaming = on');
$subscriber->wait_until(
	q(subtwophasestate = 'e' FROM pg_subscription WHERE subname = 'tap'),
	'two_phase is not enabled');

sub lsn { return $publisher->sql('SELECT pg_current_wal_insert_lsn()'); }

sub marks
{
	return $subscriber->sql(
		q(SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM marks WHERE id > 0)
	);
}

sub prepared
{
	return $subscriber->sql('SELECT count(*) FROM pg_prepared_xacts');
}

# Wait until a new apply worker has received everything and waits for more.
sub wait_until_received
{
	my ($lsn) = @_;
	$publisher->wait_until(
		"count(*) = 1 AND bool_and(state = 'streaming' AND sent_lsn > '$lsn') FROM pg_stat_replication",
		'the new apply worker is sent nothing');
	$subscriber->wait_until(
		"wait_event IN ('Extension', 'LogicalApplyMain') FROM pg_stat_activity WHERE pid = "
		  . $subscriber->apply_pid('tap'),
		'the new apply worker does not become idle');
	return;
}

# Return a session that has paused the subscription at this position.
sub new_session
{
	return $subscriber->background_psql('postgres', on_error_stop => 0);
}

sub pause_in
{
	my ($session, $lsn, $timeout) = @_;
	my $position = defined $lsn ? "'$lsn'" : 'NULL';
	my $more = defined $timeout ? ", '$timeout'" : '';
	$session->{stderr} = '';
	return $session->query(
		"SELECT parallel_apply.pause('tap', $position$more)");
}

sub applies_again
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	return $pair->rows_equal('marks', $name);
}

my $begins_at = lsn();

### every kind of transaction, with writers and without

sub check_positions
{
	my ($writers) = @_;
	my $how = $writers > 1 ? 'with writers' : 'with one writer';
	$publisher->sql('TRUNCATE marks, items');
	$publisher->wait_applied;
	$subscriber->sql(
		"SELECT parallel_apply.alter_subscription_config('tap', $writers)");
	$subscriber->wait_for_pool('tap', $writers > 1 ? $writers : 0);

	# Detects: a pause that ends with the apply worker.  Its position is within the commit record
	# of this transaction, and the new apply worker begins at the end of that record.
	$publisher->sql('INSERT INTO marks VALUES (0)');
	$publisher->wait_applied;
	my $session = new_session();
	is(pause_in($session), 't', "$how: it pauses where it is");
	$subscriber->restart_apply('tap');
	$subscriber->wait_until(
		q(state = 'paused' FROM parallel_apply.subscriptions),
		"$how: a new apply worker does not pause");

	# Each step is a position, what it must show, and how many transactions are prepared.
	my @steps;
	my $shown = '';
	my $add = sub {
		my ($mark, $prepared) = @_;
		$shown .= ($shown eq '' ? '' : ',') . $mark if $mark;
		push @steps, [ lsn(), $shown, $prepared ];
	};
	my $large = $publisher->hold(
		q(INSERT INTO marks VALUES (3);
		INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series(1, 3000) i)
	);
	$publisher->sql('INSERT INTO marks VALUES (1)');
	$add->(1, 0);
	$publisher->sql('INSERT INTO own VALUES (1)');
	$add->(undef, 0);
	$publisher->sql('INSERT INTO marks VALUES (2)');
	$add->(2, 0);
	$large->query_safe('COMMIT');
	$large->quit;
	$add->(3, 0);
	$publisher->sql(
		"BEGIN; INSERT INTO marks VALUES (5); PREPARE TRANSACTION 'p'");
	$add->(undef, 1);
	$publisher->sql('INSERT INTO marks VALUES (4)');
	$add->(4, 1);
	$publisher->sql("COMMIT PREPARED 'p'");
	$add->(5, 0);
	$publisher->sql(
		q(BEGIN; INSERT INTO marks VALUES (-1);
		INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series(3001, 6000) i;
		PREPARE TRANSACTION 'q'));
	$add->(undef, 1);
	$publisher->sql("ROLLBACK PREPARED 'q'; INSERT INTO marks VALUES (6)");
	$add->(6, 0);
	$publisher->sql('INSERT INTO marks VALUES (7)');

	foreach my $n (0 .. $#steps)
	{
		my ($lsn, $expected, $prepared) = @{ $steps[$n] };
		is(pause_in($session, $lsn), 't', "$how: position $n is reached");
		is(marks(), $expected, "$how: it shows what was committed before");
		is(prepared(), $prepared, "$how: and what was prepared");
		if ($n == 3)
		{
			$subscriber->restart_apply('tap');
			wait_until_received($lsn);
			is(pause_in($session, $lsn),
				't', "$how: a new apply worker is paused");
			is(marks(), $expected, "$how: at the same position");
			is($subscriber->sql('SELECT count(*) FROM items'),
				3000, "$how: with the streamed transaction");
		}
	}
	is($subscriber->sql('SELECT state FROM parallel_apply.subscriptions'),
		'paused', "$how: the view shows the pause");
	is(pause_in($session, $steps[2][0]), '',
		"$how: a position can be passed");
	like(
		$session->{stderr},
		qr/ERROR:  subscription "tap" has passed position/,
		"$how: and that is an error");
	applies_again("$how: the error ends the pause");
	is(pause_in($session, $begins_at),
		'', "$how: also for an idle subscription");
	like($session->{stderr}, qr/has passed position/, 'which says so');
	$session->quit;
	return;
}

check_positions(4);
check_positions(1);
$subscriber->sql("SELECT parallel_apply.alter_subscription_config('tap', 4)");
$subscriber->wait_for_pool('tap', 4);

### a position that has no transaction

{
	my $session = new_session();
	$publisher->sql('INSERT INTO own VALUES (2)');
	is(pause_in($session, lsn()),
		't', 'a position is reached that has no transaction');
	my $gate = $subscriber->hold('LOCK TABLE marks');
	$publisher->sql('INSERT INTO marks VALUES (8)');
	my $lsn = lsn();
	is(pause_in($session, $lsn, '10 ms'), 'f', 'a timeout is one');
	$gate->release;
	is(pause_in($session, $lsn), 't', 'but the position is reached later');
	$session->quit;
}

### how a pause ends

sub is_held
{
	my ($mark, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->sql("INSERT INTO marks VALUES ($mark)");
	$publisher->wait_for_answer('tap');
	return unlike(marks(), qr/\b$mark\b/, $name);
}

{
	my $session = new_session();
	my $other = new_session();
	is(pause_in($session), 't', 'a session pauses');
	is_held(10, 'nothing is applied');
	is(pause_in($other), '', 'another one cannot');
	like(
		$other->{stderr},
		qr/ERROR:  subscription "tap" is paused by the session with process ID \d+/,
		'which says which session does');
	my $wait =
	  "SELECT parallel_apply.wait_for_lsn('tap', '" . lsn() . "', '2 s')";
	like(
		($subscriber->psql('postgres', $wait))[2],
		qr/still waiting for subscription "tap"\nDETAIL:  A session pauses it/,
		'those who wait are told');
	$other->quit;
	$session->quit;
	applies_again('the end of the session ends the pause');
}

{
	my $session = new_session();
	is(pause_in($session), 't', 'a session pauses');
	my $backend = $session->query('SELECT pg_backend_pid()');
	$subscriber->sql("SELECT pg_terminate_backend($backend)");
	applies_again('the end of the server process ends the pause');
	eval { $session->quit };
}

{
	my $session = new_session();
	is(pause_in($session), 't', 'a session pauses');
	my $lsn = lsn();
	$publisher->sql('INSERT INTO marks VALUES (13)');
	$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
	applies_again('resume() of another session ends the pause');
	is(pause_in($session, $lsn), '', 'and the session gets to know');
	like($session->{stderr}, qr/has passed position/, 'by an error');
	$session->quit;
}

# A transaction beyond the position is all that arrives.
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 2)));
$subscriber->wait_for_pool('tap', 2);
$publisher->wait_applied;
$subscriber->let_receiver_sleep('on');
{
	my $session = new_session();
	my $lsn = $publisher->sql('SELECT pg_current_wal_insert_lsn() + 8');
	$session->query_until(qr/begun/,
		"\\echo begun\nSELECT parallel_apply.pause('tap', '$lsn');\n\\echo reached\n"
	);
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%apply.pause%'
		AND wait_event_type = 'Extension'),
		'the call does not wait');
	$publisher->sql('INSERT INTO marks VALUES (59)');
	$session->query_until(qr/reached/, '');
	pass('a transaction that is held shows that the position is reached');
	$session->quit;
}
$subscriber->let_receiver_sleep('off');
applies_again('what was held is applied');

# A call that waits
for my $end ('cancel', 'resume')
{
	my $gate = $subscriber->hold('LOCK TABLE marks');
	my $mark = $end eq 'cancel' ? 60 : 62;
	$publisher->sql("INSERT INTO marks VALUES ($mark)");
	my $session = new_session();
	$session->query_until(qr/begun/,
			"\\echo begun\nSELECT parallel_apply.pause('tap', '"
		  . lsn()
		  . "');\n");
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%apply.pause%'
		AND wait_event_type = 'Extension'),
		'the call does not wait');
	$subscriber->sql(
		$end eq 'resume'
		? q(SELECT parallel_apply.resume('tap'))
		: q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%apply.pause%'
			AND wait_event_type = 'Extension'));
	$session->query('SELECT 1');
	like(
		$session->{stderr},
		$end eq 'resume'
		? qr/ERROR:  pause of subscription "tap" was ended by another session/
		: qr/ERROR:  canceling statement due to user request/,
		"a call that waits is ended: $end");
	$gate->release;
	$publisher->sql("INSERT INTO marks VALUES ($mark + 1)");
	applies_again("apply continues after that: $end");
	$session->quit;
}

### limits and rights

$subscriber->sql(
	join '',
	map {
		"CREATE SUBSCRIPTION s$_ CONNECTION 'dbname=x' PUBLICATION x WITH (connect = false, slot_name = NONE);"
	} 1 .. 5);
{
	my $session = new_session();
	$session->query_safe("SELECT parallel_apply.pause('s$_', '0/1', '0')")
	  for 1 .. 4;
	$session->query(q(SELECT parallel_apply.pause('s5', '0/1', '0')));
	like(
		$session->{stderr},
		qr/ERROR:  too many subscriptions are paused at a position\nHINT:  You might need to increase "max_logical_replication_workers"/,
		'the number of pauses is limited');
	$session->quit;
}
$subscriber->sql(join '', map { "DROP SUBSCRIPTION s$_;" } 1 .. 5);
$subscriber->sql('CREATE ROLE stranger');
$subscriber->refuses(
	q(SET ROLE stranger; SELECT parallel_apply.pause('tap', NULL)),
	qr/must be owner of subscription tap/,
	'a user who does not own the subscription cannot pause it');

$publisher->sql('INSERT INTO marks VALUES (100)');
$pair->tables_equal('in the end', qw(marks items));
finish(
	$publisher,
	$subscriber,
	qr/has passed position|is paused by the session|was ended by another session/,
	qr/canceling statement due to user request|must be owner of subscription/,
	qr/too many subscriptions are paused|terminating .* due to administrator command/
);
done_testing();
