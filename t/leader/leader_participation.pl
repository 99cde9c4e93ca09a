# Promise: the apply worker itself applies a small transaction that is received
# while nothing else is in flight, as long as it keeps up.  Writers apply everything
# else.
#
# Writers apply all transactions for up to a second after a slow one, and anything
# may be slow on a busy machine.  Therefore the apply worker takes no account of time
# (selftest_fast) where this does not matter.  Whatever depends on time is repeated until
# it is seen.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# WAL of other origin than its changes would make a transaction look large.
my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "full_page_writes = off\nautovacuum = off",
	subscriber_conf => q(
		parallel_apply.leader_participation = on
		parallel_apply.selftest_fast = on));

$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE wide (id int PRIMARY KEY, t text);
	CREATE TABLE whole (id int PRIMARY KEY, v int);
	ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE TABLE slow (id int PRIMARY KEY, mb int);));
$publisher->sql(
	q(INSERT INTO slow VALUES (1, 0);
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i;
	INSERT INTO wide VALUES (0, '');
	INSERT INTO whole VALUES (1, 0);));
$subscriber->create_extension;
$pair->subscribe('tap');

# Return the numbers of transactions applied so far: (by the apply worker, by
# writers).
sub applied
{
	$publisher->wait_applied;
	my $counts = $subscriber->sql(
		q(SELECT leader_transactions, transactions - native_transactions
		FROM parallel_apply.subscription_stats));
	return split /\|/, $counts;
}

# Return how many transactions the apply worker and writers apply for these
# statements.
sub applied_of
{
	my ($sql) = @_;
	my @before = applied();
	$publisher->sql($sql);
	my @after = applied();
	return ($after[0] - $before[0], $after[1] - $before[1]);
}

sub is_leader_transaction
{
	my @applied = applied_of('UPDATE items SET v = v + 1');
	return "@applied" eq '1 0';
}

# Does one of several attempts have that result?  An attempt that returns undef
# could not be made at that moment, and does not count.
sub comes_true
{
	my ($name, $attempt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	for (my $times = 0; $times < 30 && time < $end;)
	{
		my $is = $attempt->();
		return pass($name) if $is;
		$times++ if defined $is;
	}
	return fail($name);
}

# Let the apply worker take no account of time, or as usual.
sub be_fast
{
	my ($is_on) = @_;
	$subscriber->reload_with("parallel_apply.selftest_fast = $is_on");
	return;
}

sub tables_are_equal
{
	$publisher->wait_applied;
	$pair->rows_equal($_) for qw(items slow wide whole);
	return;
}

### which process applies

# Show that writers apply certain transactions always, and not only because they
# apply everything after a slow one: a leader transaction just before and just
# after is not theirs.
sub writers_apply
{
	my ($name, $commit, $is_right) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return comes_true(
		$name,
		sub {
			return if !is_leader_transaction();
			my @before = applied();
			$commit->();
			my @after = applied();
			return $is_right->($after[0] - $before[0], $after[1] - $before[1])
			  && is_leader_transaction();
		});
}

my $by_writer = sub { "@_" eq '0 1' };

# The apply worker receives many of them together.  All take much longer than two
# milliseconds, and each takes less.
sub commit_many
{
	my $apply = $subscriber->apply_pid('tap');
	kill 'STOP', $apply;
	$publisher->sql(
		q(DO $$ BEGIN FOR i IN 1 .. 3000 LOOP
		UPDATE items SET v = v + 1; COMMIT; END LOOP; END $$));
	kill 'CONT', $apply;
	return;
}

# The apply worker waits for data before the end of the transaction.
sub commit_large
{
	$publisher->sql(
		q(INSERT INTO wide SELECT max(id) + i, repeat('x', 1000)
		FROM generate_series(1, 2000) i, wide GROUP BY i));
	return;
}

comes_true('a leader transaction is applied by the apply worker',
	\&is_leader_transaction);
# Three times in a row, since writers also apply transactions after a slow one.
be_fast('off');
my $in_a_row = 0;
comes_true(
	'writers apply most of many transactions that follow each other',
	sub {
		return if !is_leader_transaction();
		my @before = applied();
		commit_many();
		my @after = applied();
		my $is_right = $after[1] - $before[1] > $after[0] - $before[0];
		$in_a_row = $is_right ? $in_a_row + 1 : 0;
		return $in_a_row == 3;
	});
be_fast('on');
writers_apply('a large transaction is applied by a writer',
	\&commit_large, $by_writer);
tables_are_equal();

### while it arrives

# While a transaction that begins with that statement waits for the row of a local
# session, do that, and return what it returns.
sub while_one_waits
{
	my ($statement, $meanwhile) = @_;
	my $session =
	  $subscriber->hold('SELECT FROM items WHERE id = 1 FOR UPDATE');
	$publisher->sql($statement);
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) > 0 FROM pg_locks WHERE NOT granted))
	  or die 'no process waits for the lock';
	my $result = $meanwhile->();
	$session->release;
	return $result;
}

# A small transaction is not put into the queue, since each of its changes is applied as
# soon as it is there.  Does the apply worker wait for the lock of that row while the queue
# has not the others, which have 8,000 bytes at least?  Undefined if another process waits.
sub starts_before_its_end
{
	return if !is_leader_transaction();
	my $waiting = while_one_waits(
		q(BEGIN; UPDATE items SET v = v + 1 WHERE id = 1;
		INSERT INTO wide SELECT max(id) + i, repeat('y', 1000)
		FROM generate_series(1, 8) i, wide GROUP BY i; COMMIT),
		sub {
			$subscriber->sql(
				q(SELECT (SELECT count(*) FROM pg_locks l, pg_stat_subscription s
				WHERE NOT granted AND l.pid = s.pid), queue_bytes < 8000
				FROM parallel_apply.subscriptions));
		});
	$publisher->wait_applied;
	my ($is_leader, $starts) = split /\|/, $waiting;
	return $is_leader ? $starts eq 't' || 0 : undef;
}

comes_true('a small transaction is applied while it arrives',
	\&starts_before_its_end);
tables_are_equal();

### local locks

# These transactions arrive while one waits for a local session.  Return the same as
# applied() when all have been applied.
sub applied_after_slow_one
{
	my (@statements) = @_;
	while_one_waits(
		'UPDATE items SET v = v + 1 WHERE id = 1',
		sub { $publisher->sql($_) foreach @statements; });
	return applied();
}

# The apply worker waits for a lock like PostgreSQL's own.  What arrives meanwhile
# is not lost, and what arrives later is for writers.
my $apply = $subscriber->apply_pid('tap');
be_fast('off');
comes_true(
	'after one that was slow, writers get the next one',
	sub {
		my @before = applied();
		my @after =
		  applied_after_slow_one('UPDATE items SET v = v + 1 WHERE id = 2');
		my @next = applied_of('UPDATE items SET v = v + 1 WHERE id = 3');
		return $after[0] > $before[0] && $next[1] == 1;
	});
is($subscriber->apply_pid('tap'), $apply, 'the apply worker is the same');
tables_are_equal();

### how long writers apply everything

$subscriber->sql(
	q(ALTER TABLE slow ADD CHECK (md5(repeat('x', mb * 1000000)) <> '')));
my $source = $publisher->background_psql('postgres');
my $target = $subscriber->background_psql('postgres');

# Commit that on the publisher; return whether the apply worker applies it.
sub commits_leader_transaction
{
	my ($statement) = @_;
	my $counts = q(SELECT transactions, leader_transactions
		FROM parallel_apply.subscription_stats);
	my @before = split /\|/, $target->query_safe($counts);
	my @after = @before;
	$source->query_safe($statement);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($after[0] == $before[0])
	{
		die 'it is not applied' if time > $end;
		@after = split /\|/, $target->query_safe($counts);
	}
	return $after[1] > $before[1];
}

# An attempt in which the machine stalls says nothing.
comes_true(
	'after one that was slow by some milliseconds, not for a second',
	sub {
		return if !commits_leader_transaction('UPDATE items SET v = v + 1');
		my $end = time + 0.9;
		return if !commits_leader_transaction('UPDATE slow SET mb = 3');
		my $is_leader_transaction = 0;
		$is_leader_transaction =
		  commits_leader_transaction('UPDATE items SET v = v + 1')
		  while !$is_leader_transaction && time < $end;
		return $is_leader_transaction && time < $end ? 1 : undef;
	});
be_fast('on');
tables_are_equal();

### SKIP

# While the walsender is stopped, read the position of the transaction.
$publisher->sql(
	q(SELECT pg_create_logical_replication_slot('peek', 'pgoutput')));
my $is_wrong = 0;

sub skip_next
{
	my $position = q(SELECT substr(encode(data, 'hex'), 3, 16)
		FROM pg_logical_slot_get_binary_changes('peek', NULL, NULL,
			'proto_version', '1', 'publication_names', 'tap')
		WHERE get_byte(data, 0) = ascii('B') ORDER BY lsn DESC LIMIT 1);
	my $walsender = $publisher->sql('SELECT pid FROM pg_stat_replication');
	$publisher->stop_waiting($walsender, 'WalSenderWaitForWal');
	my $found = eval {
		$source->query_safe('UPDATE items SET v = -1 WHERE id = 1');
		my $lsn = $source->query_safe($position);
		$lsn =~ s/^0*([0-9a-f]+)([0-9a-f]{8})$/$1\/$2/;
		$target->query_safe("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
		1;
	};
	my $error = $@;
	kill 'CONT', $walsender;
	die $error if !$found;
	return;
}

comes_true(
	'a leader transaction is skipped',
	sub {
		my @before = applied();
		skip_next();
		my @after = applied();
		$is_wrong ||=
		  $subscriber->sql('SELECT v FROM items WHERE id = 1') eq '-1';
		$publisher->sql('UPDATE items SET v = 0 WHERE id = 1');
		return "$after[0] $after[1]" eq ($before[0] + 1) . " $before[1]";
	});
ok(!$is_wrong, 'and so is one of writers');
is($subscriber->apply_pid('tap'), $apply, 'the apply worker is the same');
$_->quit for $source, $target;
tables_are_equal();

### errors

# As with PostgreSQL's own apply, the worker exits, retries, and continues when that
# transaction is skipped.
$subscriber->sql('INSERT INTO items VALUES (100, 0)');
my $offset = -s $subscriber->logfile;
my $error = duplicate_key('items');
$publisher->sql('INSERT INTO items VALUES (100, 1)');
$subscriber->wait_for_log($error, $offset);
$subscriber->wait_for_log(qr/finished at ([0-9A-F]+\/[0-9A-F]+)/, $offset);
my ($lsn) = slurp_file($subscriber->logfile, $offset) =~
  /transaction \d+,? finished at ([0-9A-F]+\/[0-9A-F]+)/;
$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
$subscriber->wait_for_pool('tap');
$publisher->wait_applied;
is($subscriber->sql('SELECT v FROM items WHERE id = 100'),
	0, 'the failing transaction was skipped');
$publisher->sql('UPDATE items SET v = 2 WHERE id = 100');
tables_are_equal();

### user code

# What a trigger leaves in the session of the apply worker is noted, although the change
# that fires it is never in the queue.  So the apply worker fires this trigger from then
# on, even among many transactions.
$pair->exec_both('CREATE TABLE coded (id int PRIMARY KEY, seen text)');
$subscriber->sql(
	q(CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		NEW.seen := current_setting('app.left', true);
		IF NEW.id >= 0 THEN PERFORM set_config('app.left', 'left', false); END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER leave BEFORE INSERT ON coded FOR EACH ROW EXECUTE FUNCTION leave();
	ALTER TABLE coded ENABLE ALWAYS TRIGGER leave;
	ALTER SUBSCRIPTION tap REFRESH PUBLICATION;));
$subscriber->wait_until_ready;
my $fired = 0;
comes_true(
	'a leader transaction fires a trigger',
	sub {
		$fired++;
		my @applied = applied_of(
			q(BEGIN; UPDATE items SET v = v + 1;
			INSERT INTO coded SELECT count(*) FROM coded; COMMIT));
		return "@applied" eq '1 0';
	});
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT exclusive_table FROM parallel_apply.subscription_stats',
		$fired),
	'and is counted as one of such a table');
be_fast('off');
applied_after_slow_one(map { "INSERT INTO coded VALUES (-$_)" } 1 .. 8);
is( $subscriber->sql(
		q(SELECT string_agg(DISTINCT seen, ' ') FROM coded WHERE id < 0)),
	'left',
	'the apply worker fires it from then on');
is( $subscriber->sql(
		q(SELECT count(*) FROM coded WHERE id < 0 AND seen IS NULL)),
	0, 'always');
tables_are_equal();

# So is what a trigger leaves that is created while the apply worker waits for the lock of
# its table, which it has found to have none.
$pair->exec_both('CREATE TABLE recoded (id int PRIMARY KEY, seen text)');
$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
$subscriber->wait_until_ready;
my $recoded = 0;

# Begin with another apply worker, in whose session nothing has been left.  Return whether
# it applies the next transaction.
sub begin_again
{
	be_fast('on');
	$subscriber->connect_again('tap');
	return is_leader_transaction();
}

# Insert a row behind a session that creates the trigger.  Undefined if a writer waits.
sub is_recoded
{
	$subscriber->sql('DROP TRIGGER IF EXISTS behind ON recoded');
	return if !begin_again();
	my $session = $subscriber->hold(
		q(CREATE TRIGGER behind BEFORE INSERT ON recoded FOR EACH ROW EXECUTE FUNCTION leave();
		ALTER TABLE recoded ENABLE ALWAYS TRIGGER behind));
	$publisher->sql('INSERT INTO recoded VALUES (' . ++$recoded . ')');
	$subscriber->poll_query_until('postgres',
		q(SELECT count(*) > 0 FROM pg_locks WHERE NOT granted))
	  or die 'no process waits for the lock';
	my $is_leader = $subscriber->sql(
		q(SELECT count(*) FROM pg_locks l JOIN pg_stat_subscription s USING (pid) WHERE NOT granted)
	);
	$session->query_safe('COMMIT');
	$session->quit;
	be_fast('off');
	applied_after_slow_one(
		map { 'INSERT INTO recoded VALUES (-' . ++$recoded . ')' } 1 .. 8);
	return $is_leader ? 1 : undef;
}

comes_true('the apply worker fires a new trigger', \&is_recoded);
is( $subscriber->sql(
		q(SELECT count(*) FROM recoded WHERE id < 8 - (SELECT max(-id) FROM recoded) AND seen IS NULL)
	),
	0,
	'and fires it from then on');
tables_are_equal();

# So is what a function leaves, though writers may apply changes of its table concurrently:
# a default of another table, which runs no user code, finds it.
$pair->exec_both(
	q(CREATE TABLE checked (id int PRIMARY KEY);
	CREATE TABLE defaulted (id int PRIMARY KEY);));
$subscriber->sql(
	q(CREATE FUNCTION leaves(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		PERFORM set_config('app.checked', 'left', false);
		RETURN true;
	END $$;
	ALTER TABLE checked ADD CHECK (leaves(id));
	ALTER TABLE defaulted ADD seen text DEFAULT current_setting('app.checked', true);
	ALTER SUBSCRIPTION tap REFRESH PUBLICATION;));
$subscriber->wait_until_ready;
my $checked = 0;
comes_true(
	'a leader transaction calls a function of a table',
	sub {
		return if !begin_again();
		my @applied =
		  applied_of('INSERT INTO checked VALUES (' . ++$checked . ')');
		return "@applied" eq '1 0';
	});
be_fast('off');
applied_after_slow_one(map { "INSERT INTO defaulted VALUES ($_)" } 1 .. 8);
is( $subscriber->sql(
		q(SELECT string_agg(DISTINCT coalesce(seen, 'nothing'), ' ') FROM defaulted)
	),
	'left',
	'and all later transactions find what it has left');
tables_are_equal();

# A sequence with a cache is used by the apply worker from then on, which keeps the cache.
$pair->exec_both('CREATE TABLE numbered (id int PRIMARY KEY)');
$subscriber->sql(
	q(ALTER TABLE numbered ADD n int GENERATED BY DEFAULT AS IDENTITY (CACHE 10);
	ALTER SUBSCRIPTION tap REFRESH PUBLICATION));
$subscriber->wait_until_ready;
my $numbered = 0;
comes_true(
	'a leader transaction uses a cached sequence',
	sub {
		return if !begin_again();
		$offset = -s $subscriber->logfile;
		my @applied =
		  applied_of('INSERT INTO numbered VALUES (' . ++$numbered . ')');
		return "@applied" eq '1 0';
	});
$subscriber->wait_for_log(
	qr/uses sequence "numbered_n_seq", which has a cache/, $offset);
$publisher->sql("INSERT INTO numbered VALUES ($_)")
  foreach $numbered + 1 .. $numbered + 5;
$publisher->wait_applied;
is( $subscriber->sql(
		"SELECT max(n) - min(n) FROM numbered WHERE id >= $numbered"),
	'5',
	'and no later one throws away its cache');
tables_are_equal();

### rows without a key

# without the setting, for which the apply worker would apply everything
$subscriber->connect_again('tap');
be_fast('on');
writers_apply(
	'a row that is not found by its identity is looked for by a writer',
	sub { $publisher->sql('UPDATE whole SET v = v + 1') }, $by_writer);

# Once such a table is known, the apply worker waits for the end of a transaction, which
# may change it, before it begins to apply.
my $starts;
comes_true(
	'the apply worker waits for a lock',
	sub {
		$starts = starts_before_its_end();
		return defined $starts ? 1 : undef;
	});
is($starts, 0, 'from then on, a transaction is first received');
tables_are_equal();

### no leader transactions

# With this setting, which has been read when the pool has that number of writers;
# for longer than the effect of a slow transaction lasts.
sub none_is_leader_transaction
{
	my ($setting, $writers) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->reload_with($setting,
		"parallel_apply.writers_per_subscription = $writers");
	$subscriber->wait_for_pool('tap', $writers);
	my @sum = (0, 0);
	my $end = time + 3;
	while (time < $end)
	{
		my @applied = applied_of('UPDATE items SET v = v + 1');
		$sum[$_] += $applied[$_] for 0, 1;
	}
	is($sum[0], 0, "with $setting, none is applied by the apply worker");
	cmp_ok($sum[1], '>', 0, 'but by writers');
	return;
}

none_is_leader_transaction('parallel_apply.leader_participation = off', 2);
tables_are_equal();

finish($publisher, $subscriber, duplicate_key('items'));
done_testing();
