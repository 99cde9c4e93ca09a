# Promise: pg_verify_subscription keeps to --max-rate; with --chunk-snapshots it takes new
# snapshots between two ranges, and no row that moves meanwhile is a difference; Ctrl-C ends it
# at any time, and what it does on the servers; it says what explains differences, and for what
# it waits.
#
# A lock on the subscriber stops the program in the first range of a table, whose snapshots it
# has, and the apply worker, too.  What changes meanwhile shows in the next snapshots.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use Programs;
use VerifyProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'pg_verify_subscription was not built'
  unless is_installed('pg_verify_subscription');

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => "max_wal_senders = 20\nmax_replication_slots = 20",
	subscriber_conf => 'parallel_apply.selftest_fast = on');

$pair->exec_both(
	q(CREATE TABLE moving (id int PRIMARY KEY, v int NOT NULL DEFAULT 0);
	CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE plain (id int PRIMARY KEY, v int);
	CREATE TABLE identified (a int NOT NULL UNIQUE, v int);
	ALTER TABLE identified REPLICA IDENTITY USING INDEX identified_a_key;
	CREATE TABLE shared (id int PRIMARY KEY);
	CREATE TABLE "Emptied 2" (id int PRIMARY KEY);
	CREATE TABLE z_altered (id int PRIMARY KEY);
	CREATE TABLE z_emptied (id int PRIMARY KEY);));
$publisher->sql(
	q(INSERT INTO moving SELECT i FROM generate_series(1, 300) i; ANALYZE moving;
	INSERT INTO plain VALUES (1, 1); INSERT INTO identified VALUES (7, 1);
	INSERT INTO shared VALUES (1); INSERT INTO "Emptied 2" VALUES (1);
	INSERT INTO z_altered VALUES (1); INSERT INTO z_emptied VALUES (1);)
);
$subscriber->create_extension;
$pair->subscribe('tap',
	publication =>
	  'FOR TABLE items, plain, identified, shared, moving, "Emptied 2", z_altered, z_emptied'
);

verifies_on($subscriber);

# Assert that a running program gets to print that.
sub says
{
	my ($program, $messages, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);
	return ok(pump_until($program, $timer, $messages, $pattern), $name);
}

# Call a function while the first of several ranges of table moving is being compared.  Each has
# snapshots of its own.  Return exit status, output and messages.
my @in_chunks = ('--max-rate', 100, '--chunk-snapshots', '0.00001');

sub between_ranges
{
	my ($sub, @options) = @_;
	my $gate = $subscriber->hold('LOCK TABLE moving');
	my ($program, $out, $err) =
	  start_verify('-t', 'moving', @in_chunks, @options);
	wait_for_its_lock($subscriber);
	$sub->();
	$gate->release;
	my $status = end_verify($program, $out, $err);
	return ($status, $$out, $$err);
}

### a limit, and progress

{
	my $began = time;
	my ($status, $out, $err) =
	  verify('-t', 'moving', '-P', '--max-rate', 100);
	is($out, "public.moving: equal: 300 rows\n", 'with a limit');
	cmp_ok(time - $began, '>=', 2, 'rows are not read faster than it says');
	like(
		$err,
		qr/^0 of 1 tables, [12]00 of about \d+ rows \(\d+%\), \d+ rows per second, about 0:00:0\d left$/m,
		'progress is shown');
	like(
		$err,
		qr/^1 of 1 tables, 300 of about 300 rows \(100%\), \d+ rows per second, about 0:00:00 left$/m,
		'also at the end');
}

### new snapshots between ranges

{
	my ($status, $out, $err) = between_ranges(
		sub {
			# from a range that was compared to one that was not, and back
			$publisher->sql(
				q(UPDATE moving SET id = 1000 WHERE id = 50; UPDATE moving SET id = 1001 WHERE id = 51;
				UPDATE moving SET id = 0 WHERE id = 250; UPDATE moving SET v = 1 WHERE id IN (1, 300);
				DELETE FROM moving WHERE id = 99));
		},
		'-v');
	is( $out,
		"public.moving: equal: 301 rows\n",
		'each range is compared in one state, whatever happens to others');
	is(() = $err =~ /: continuing at position/g,
		3, 'a new state is taken after each range');
	like(
		$err,
		qr/have held back VACUUM on both servers for at most \d/,
		'it says for how long VACUUM was held back');
}
{
	my ($status, $out) = between_ranges(
		sub {
			$pair->exec_both('ALTER TABLE z_altered ADD c int');
			$publisher->sql(
				q(UPDATE z_altered SET c = 1; TRUNCATE z_emptied));
			$publisher->wait_applied;
			$subscriber->sql(
				'SET session_replication_role = replica; UPDATE z_altered SET c = 2'
			);
		},
		'-t',
		'z_altered',
		'-t',
		'z_emptied');
	like(
		$out,
		qr/^public\.z_altered: \(1\): differs in: c$/m,
		'a table is compared with a column that it did not have at the beginning'
	);
	like(
		$out,
		qr/^public\.z_emptied: equal: 0 rows$/m,
		'and as it is after TRUNCATE');
	$publisher->sql('UPDATE z_altered SET c = 3');
}
{
	my ($status, $out) = between_ranges(
		sub {
			$publisher->sql(
				q(ALTER PUBLICATION tap DROP TABLE moving, plain; ALTER PUBLICATION tap ADD TABLE moving WHERE (v >= 0))
			);
		},
		'-t',
		'plain');
	is($status, 1, 'the definition of a table changes in the middle');
	like(
		$out,
		qr/^public\.moving: not compared: its definition, or what is published of it, was changed in the meantime$/m,
		'which is named');
	($status, $out) = verify('-t', 'plain');
	is( $out,
		"public.plain: not compared: it is not published\n",
		'a table that is not published any more');
	$publisher->sql(
		'ALTER PUBLICATION tap DROP TABLE moving; ALTER PUBLICATION tap ADD TABLE moving, plain'
	);
}

# Apply is blocked when a new state is due.
{
	my $gate = $subscriber->hold('LOCK TABLE moving');
	my $blocker = $subscriber->hold('LOCK TABLE plain');
	my ($program, $out, $err) = start_verify('-t', 'moving', @in_chunks);
	wait_for_its_lock($subscriber);
	$publisher->sql('UPDATE plain SET v = 4');
	$gate->release;
	says(
		$program, $err,
		qr/ does not come to rest within \d+ ms; trying again/,
		'it waits for apply');
	$blocker->release;
	is(end_verify($program, $out, $err), 0, 'and continues');
}

# Another session holds apply when a new state is due.  Detects: the program ends.
{
	my $gate = $subscriber->hold('LOCK TABLE moving');
	my ($program, $out, $err) = start_verify('-t', 'moving', @in_chunks);
	wait_for_its_lock($subscriber);
	my $other = $subscriber->background_psql('postgres');
	$other->query_safe(q(SELECT parallel_apply.pause('tap', NULL)));
	$gate->release;
	says(
		$program,
		$err,
		qr/could not hold apply of subscription "tap": .* is paused by the session with process ID \d+; trying again/,
		'it waits for a pause of another session');
	$other->quit;
	is(end_verify($program, $out, $err), 0, 'and continues after it');
}

# Rows move all the time
{
	my $script = $publisher->basedir . '/moves';
	append_to_file($script, <<~'SQL');
		\set a random(1, 300)
		\set b random(1, 300)
		UPDATE moving SET id = :b WHERE id = :a AND NOT EXISTS (SELECT FROM moving WHERE id = :b);
		DELETE FROM moving WHERE id = :b;
		INSERT INTO moving VALUES (:b) ON CONFLICT (id) DO UPDATE SET v = moving.v + 1;
		INSERT INTO moving VALUES (:a) ON CONFLICT (id) DO UPDATE SET v = moving.v + 1;
		SQL
	my $load = $publisher->start_load($script, '-c', 1, '-R', 300);
	for (1 .. 3)
	{
		my ($status) = verify('-t', 'moving', '-j', 2, @in_chunks);
		is($status, 0, 'no row that moves is a difference');
	}
	$publisher->end_load($load);
}

### what changes after the snapshots

{
	my $gate = $subscriber->hold('LOCK TABLE plain');
	my ($program, $out, $err) = start_verify('-t', 'plain', '-t', 'shared');
	wait_for_its_lock($subscriber);
	$subscriber->sql(
		'SET session_replication_role = replica; DELETE FROM shared');
	$gate->release;
	end_verify($program, $out, $err);
	like(
		$$out,
		qr/^public\.shared: equal: 1 rows$/m,
		'what changes after the snapshots is no difference');
	$subscriber->sql(
		'SET session_replication_role = replica; INSERT INTO shared VALUES (1)'
	);
}

# The table that is locked leaves the subscription: REFRESH PUBLICATION would wait for it
# otherwise.  Detects: the program keeps locks of the subscriber's catalogs while it compares.
{
	my $gate = $subscriber->hold('LOCK TABLE plain');
	my ($program, $out, $err) = start_verify('-t', 'plain');
	wait_for_its_lock($subscriber);
	$publisher->sql('ALTER PUBLICATION tap DROP TABLE plain');
	my ($status) = $subscriber->psql('postgres',
		q(SET lock_timeout = '20s'; ALTER SUBSCRIPTION tap REFRESH PUBLICATION)
	);
	is($status, 0,
		'a table can leave the subscription while tables are compared');
	$gate->release;
	is(end_verify($program, $out, $err), 0, 'and is compared as it was');
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE plain');
	$subscriber->sql(
		'ALTER SUBSCRIPTION tap REFRESH PUBLICATION WITH (copy_data = false)'
	);
	$subscriber->wait_until_ready;
}

### Ctrl-C

sub no_session_remains
{
	my ($node, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $node->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pg_verify_subscription')
		),
		"$when: no session remains on the " . $node->name);
	return;
}

sub interrupt
{
	my ($when, $program, $out, $err) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$program->signal('INT');
	is(end_verify($program, $out, $err), 1, "$when: it is canceled");
	like($$err, qr/: canceled; /, "$when: and says so");
	no_session_remains($_, $when) for $publisher, $subscriber;
	return;
}

{
	my $open = $publisher->hold('INSERT INTO plain VALUES (-1)');
	my $pid = $publisher->sql(
		q(SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction')
	);
	my ($program, $out, $err) = start_verify('-t', 'plain');
	says(
		$program,
		$err,
		qr/waiting for transaction \d+ of the publisher, of the process with ID $pid, /,
		'it says for which transaction the slot waits');
	interrupt('while the slot waits', $program, $out, $err);
	is( $publisher->sql(
			q(SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg_verify%')
		),
		0,
		'no slot remains, although the transaction has not ended');
	$open->query_safe('ROLLBACK');
	$open->quit;
}
{
	my $gate = $subscriber->hold('LOCK TABLE plain');
	my ($program, $out, $err) = start_verify('-t', 'plain');
	wait_for_its_lock($subscriber);
	interrupt('while it compares', $program, $out, $err);
	$gate->release;
}

### a table that is altered while the slot waits

# Detects: a column that both sides have since then is not compared.
{
	my $open = $publisher->hold('INSERT INTO plain VALUES (-1)');
	my ($program, $out, $err) = start_verify('-t', 'z_altered');
	wait_for_its_lock($publisher);
	$pair->exec_both('ALTER TABLE z_altered ADD d int');
	$publisher->sql('UPDATE z_altered SET d = 1');
	$publisher->wait_applied;
	$subscriber->sql(
		'SET session_replication_role = replica; UPDATE z_altered SET d = 2');
	$open->query_safe('ROLLBACK');
	$open->quit;
	end_verify($program, $out, $err);
	like(
		$$out,
		qr/^public\.z_altered: \(1\): differs in: d$/m,
		'a table is compared with a column that is added while the slot waits'
	);
	$publisher->sql('UPDATE z_altered SET d = 3');
}

### a transaction before the position waits

{
	my $open = $publisher->hold('INSERT INTO plain VALUES (-1)');
	my $blocker = $subscriber->hold('LOCK TABLE items');
	my ($program, $out, $err) = start_verify('-t', 'plain');
	wait_for_its_lock($publisher);
	$publisher->sql('INSERT INTO items VALUES (100, 0)');
	$open->query_safe('ROLLBACK');
	$open->quit;
	says(
		$program,
		$err,
		qr/: the slot or apply took too long, .*; trying again/,
		'apply is not held for as long as a transaction before the position waits'
	);
	$blocker->release;
	is(end_verify($program, $out, $err),
		0, 'and the tables are compared afterwards');
}

### timeouts of a role

# All sessions of the publisher are idle for longer than the role permits, and all that can
# wait there do: outside of transactions while apply does not come to rest, for a transaction,
# and in transactions while the subscriber's table is locked.
{
	my @timeouts = qw(statement_timeout lock_timeout idle_session_timeout);
	push @timeouts, 'transaction_timeout' if $publisher->pg_version >= 17;
	$publisher->sql(
		join '',
		'CREATE ROLE hasty LOGIN SUPERUSER;',
		q(ALTER ROLE hasty SET idle_in_transaction_session_timeout = '1ms';),
		map { "ALTER ROLE hasty SET $_ = '500ms';" } @timeouts);
	my $open = $publisher->hold('INSERT INTO plain VALUES (-1)');
	my $blocker = $subscriber->hold('LOCK TABLE items');
	my $gate = $subscriber->hold('LOCK TABLE plain');
	$publisher->sql('INSERT INTO items VALUES (200, 0)');
	my ($program, $out, $err) = start_verify('-t', 'plain', '--publisher',
		$publisher->connstr('postgres') . ' user=hasty');
	says(
		$program, $err,
		qr/ does not come to rest within \d+ ms; trying again/,
		'a role has timeouts, and the program waits for apply');
	$blocker->release;
	says(
		$program, $err,
		qr/waiting for transaction/,
		'its walsender for a transaction');
	$open->query_safe('ROLLBACK');
	$open->quit;
	$publisher->wait_until(
		q(count(*) > 0 FROM pg_stat_activity
		WHERE application_name = 'pg_verify_subscription' AND now() - xact_start > '1s'),
		'its transactions end');
	$gate->release;
	is(end_verify($program, $out, $err),
		0, 'and no session is ended by a timeout');
}

### texts

# Detects: the reason for which rows differ is not named, or one that depends on a setting is.
{
	my $padded = 'CREATE TABLE padded (id int PRIMARY KEY, r regclass, v';
	$publisher->sql(
		"$padded char(5)); INSERT INTO padded VALUES (1, 'pg_class', 'a');
		ALTER PUBLICATION tap ADD TABLE padded; ALTER ROLE hasty SET quote_all_identifiers = on"
	);
	$subscriber->sql(
		"$padded char(6)); ALTER SUBSCRIPTION tap REFRESH PUBLICATION");
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	my ($status, $out) = verify('-t', 'padded', '--publisher',
		$publisher->connstr('postgres') . ' user=hasty');
	like(
		$out,
		qr/^public\.padded: \(1\): differs in: v$/m,
		'a column is named that differs in blanks only');
	$publisher->sql('ALTER PUBLICATION tap DROP TABLE padded');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
}

### keys, and tables of several subscriptions

{
	$subscriber->sql(
		'SET session_replication_role = replica; UPDATE identified SET v = 2'
	);
	my ($status, $out) = verify('-t', 'identified');
	like(
		$out,
		qr/^public\.identified: \(7\): differs in: v$/m,
		'a row is named by its replica identity');
	$publisher->sql('UPDATE identified SET v = 3');

	$publisher->sql('CREATE PUBLICATION other FOR TABLE shared');
	my $connstr = $publisher->connstr . ' dbname=postgres';
	$subscriber->sql(
		"CREATE SUBSCRIPTION other CONNECTION '$connstr' PUBLICATION other WITH (copy_data = false)"
	);
	$subscriber->wait_for_subscription_sync($publisher, 'other');
	$subscriber->wait_until_ready;
	($status, $out) = verify('-t', 'shared', '--csv');
	is( $out,
		join("\n",
			'subscription,relation,result,key,detail',
			'other,public.shared,not compared,,"it is a table of subscription tap, too"',
			'tap,public.shared,not compared,,"it is a table of subscription other, too"',
			''),
		'all subscriptions are verified, and a table of two is named');
	$subscriber->sql('DROP SUBSCRIPTION other');
}

### skipped transactions

{
	$subscriber->make_fault;
	my ($status, $out, $err) = verify('-t', 'items');
	is($status, 0, 'nothing is skipped');
	unlike($err, qr/skipped/, 'or listed');
	$publisher->sql(
		q(BEGIN; INSERT INTO items VALUES (5, -1); UPDATE plain SET v = 9; TRUNCATE z_altered, "Emptied 2"; COMMIT)
	);
	$subscriber->wait_until(
		'count(*) = 1 FROM parallel_apply.failed_transactions',
		'nothing fails');
	($status, $out, $err) = verify('-t', 'items');
	is($status, 1, 'a subscription that fails');
	like(
		$err,
		qr/subscription "tap" cannot be verified: a transaction fails: see the view parallel_apply.failed_transactions/,
		'is an error');
	my $id =
	  $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
	$publisher->wait_applied;
	($status, $out, $err) = verify('-T', 'moving');
	is($status, 2, 'what was skipped differs');
	like(
		$err,
		qr/has skipped transaction \d+ of the publisher, committed at .*, with \d changes; it is stored with number $id$/m,
		'the transaction is listed');
	is_deeply(
		[ $out =~ /^public\.(.*): different: .*skipped.* number $id$/gm ],
		[ '"Emptied 2"', 'items', 'plain', 'z_altered' ],
		'and what it explains');
	$subscriber->repair_fault;
	$subscriber->sql("CALL parallel_apply.replay($id)");
	($status, $out, $err) = verify();
	is($status, 0, 'after a replay nothing differs');
}

### a commit of the publisher that waits for the subscriber

# The program has compared the subscriber's rows, and waits for the lock of a transaction on
# the publisher, whose COMMIT waits until the subscriber has applied its TRUNCATE.  Detects:
# apply waits for the program.
{
	$publisher->sql('ANALYZE items; ANALYZE plain');
	$publisher->reload_with(q(synchronous_standby_names = 'tap'));
	my $gate = $subscriber->hold('LOCK TABLE items');
	my ($program, $out, $err) = start_verify('-t', 'items', '-t', 'plain');
	wait_for_its_lock($subscriber);
	my $session = $publisher->hold(
		q(SET LOCAL synchronous_commit = remote_apply; LOCK TABLE plain));
	$gate->release;
	wait_for_its_lock($publisher);
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE relation = 'plain'::regclass AND granted AND state = 'idle in transaction'),
		'the program has not read the rows of the subscriber');
	$session->query_until(qr/committing/,
		"\\echo committing\nTRUNCATE plain; INSERT INTO plain VALUES (1, 1); COMMIT;\n"
	);
	ok( $publisher->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM pg_locks WHERE relation = 'plain'::regclass AND mode = 'AccessExclusiveLock')
		),
		'a commit that waits for the subscriber does not wait for the program'
	);
	is(end_verify($program, $out, $err), 1, 'which says');
	like(
		$$out,
		qr/^public\.plain: not compared: it was truncated or rewritten on the (publisher|subscriber) in the meantime$/m,
		'that the table was truncated');
	$session->quit;
	$publisher->reload_with(q(synchronous_standby_names = ''));
}

### rows that take long to fetch

# Only when rows are fetched, a value is converted by itself, which takes for as long as the
# gate is held.  Detects: all pairs keep their locks while the rows of one of them are fetched.
{
	$pair->exec_both(
		q(CREATE TYPE slow AS ENUM ('a', 'b'); CREATE TABLE slowly (v slow)));
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE slowly');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->wait_applied;
	$subscriber->wait_until_ready;
	$subscriber->sql(
		q(INSERT INTO slowly VALUES ('b');
		CREATE FUNCTION pg_catalog.concat(public.slow) RETURNS text LANGUAGE plpgsql
			SET lock_timeout = 0
		AS $$
		BEGIN
			PERFORM pg_advisory_xact_lock(1);
			RETURN $1::text;
		END $$)
	);
	my $gate = $subscriber->hold('SELECT pg_advisory_xact_lock(1)');
	my $blocker = $subscriber->hold('LOCK TABLE plain');
	my ($program, $out, $err) =
	  start_verify('-j', 2, '-t', 'plain', '-t', 'slowly');
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted),
		'the program does not fetch rows');
	my ($status) = $publisher->psql('postgres',
		q(SET lock_timeout = '20s'; BEGIN; LOCK TABLE plain; COMMIT));
	is($status, 0, 'another table can be locked while rows are fetched');
	$blocker->release;
	says(
		$program, $out,
		qr/^public\.plain: equal: 1 rows$/m,
		'and is compared');
	$gate->release;
	is(end_verify($program, $out, $err), 2, 'the rows that were fetched');
	like(
		$$out,
		qr/^public\.slowly: hash \w+: missing on publisher$/m,
		'are compared, too');
	$publisher->sql('ALTER PUBLICATION tap DROP TABLE slowly');
	$subscriber->sql(
		'ALTER SUBSCRIPTION tap REFRESH PUBLICATION; DROP FUNCTION pg_catalog.concat(slow)'
	);
}

### deadlocks

# The program waits for a session that has locked the second partition and then wants the
# first one, and is the victim: its server looks for deadlocks much earlier for it.  Where it
# has looked before the session had got that far, the session is the victim, and all is
# repeated.  In the first scene, the program reads the catalogs, in the second one a range.
# Detects: the program fails, or does not compare the table.
{
	my $parted =
	  q(CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
		CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20););
	$pair->exec_both($parted);
	$publisher->sql(
		q(INSERT INTO parted VALUES (1), (11); ALTER PUBLICATION tap SET (publish_via_partition_root);
		ALTER PUBLICATION tap ADD TABLE parted));
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	$subscriber->reload_with(q(deadlock_timeout = '300ms'));
}

# Have the program compare table parted.  Return whether it was the victim of a deadlock, and
# its exit status and output.
sub be_victim
{
	my ($in_range) = @_;
	my $offset = -s $subscriber->logfile;
	my ($gate, $program, $out, $err);
	my @tables = (qw(-t parted), $in_range ? qw(-t items) : ());
	if ($in_range)
	{
		$gate = $subscriber->hold('LOCK TABLE items');
		($program, $out, $err) = start_verify(@tables);
		wait_for_its_lock($subscriber);
	}
	my $session = $subscriber->hold(
		q(SET LOCAL deadlock_timeout = '10s'; LOCK TABLE parted_2));
	$gate->release if $in_range;
	($program, $out, $err) = start_verify(@tables) if !$in_range;
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND relation = 'parted_2'::regclass AND application_name = 'pg_verify_subscription'),
		'the program does not wait for the partition');
	$session->query('LOCK TABLE parted_1; COMMIT');
	$session->quit;
	my $status = end_verify($program, $out, $err);
	my $is_victim = $subscriber->log_contains(
		qr/pg_verify_subscription ERROR: +deadlock detected/, $offset);
	return ($is_victim, $status, $$out);
}
for my $in_range (0, 1)
{
	my ($is_victim, $status, $out);
	for (1 .. 10)
	{
		($is_victim, $status, $out) = be_victim($in_range);
		last if $is_victim;
	}
	ok($is_victim, 'the program is the victim of a deadlock');
	is($status, 0, 'and begins again');
	like($out, qr/^public\.parted: equal: 2 rows$/m, 'with the table');
}

### a partition whose root is published, too

# From 16 on, the subscription does not have it.  Detects: it is reported as missing.
{
	$publisher->sql('CREATE PUBLICATION part FOR TABLE parted_1');
	$subscriber->sql(
		'ALTER SUBSCRIPTION tap ADD PUBLICATION part WITH (copy_data = false)'
	);
	$subscriber->wait_until_ready;
	my ($status, $out) = verify('-t', 'parted', '-t', 'parted_1');
	is($status, 0, 'a partition of which another publication has the root');
	my $subscribed = $subscriber->sql(
		q(SELECT count(*) FROM pg_subscription_rel WHERE srrelid = 'parted_1'::regclass)
	);
	is( $out,
		"public.parted: equal: 2 rows\n"
		  . "public.parted_1: equal: 1 rows\n" x $subscribed,
		'is compared if the subscription has it');
	$subscriber->sql('ALTER SUBSCRIPTION tap DROP PUBLICATION part');
}

### a table that is truncated between the snapshots and the definitions

# The program has its snapshots, and waits for a partition to load the definitions once more.
# Apply waits for a lock before TRUNCATE, so that only the publisher has truncated the table.
# Detects: rows are reported as missing that were truncated.
{
	$publisher->sql('TRUNCATE z_emptied; INSERT INTO z_emptied VALUES (1)');
	$publisher->wait_applied;
	my $open = $publisher->hold('INSERT INTO plain VALUES (-1)');
	my ($program, $out, $err) = start_verify('-t', 'z_emptied');
	wait_for_its_lock($publisher);
	my $blocker = $subscriber->hold('LOCK TABLE items');
	my $gate = $subscriber->hold('LOCK TABLE parted_2');
	$open->query_safe('ROLLBACK');
	$open->quit;
	wait_for_its_lock($subscriber);
	$publisher->sql(
		'BEGIN; INSERT INTO items VALUES (300, 0); TRUNCATE z_emptied; COMMIT'
	);
	$gate->release;
	end_verify($program, $out, $err);
	is( $$out,
		"public.z_emptied: not compared: it was truncated or rewritten on the publisher in the meantime\n",
		'the files of a table are those of before the snapshots');
	$blocker->release;
}

### rows that are equal, but not the same

# Without a key, apply changes the first row that is equal, which need not be the row that the
# publisher changed.  Detects: such a row is not reported.
{
	$pair->exec_both(
		'CREATE TABLE alike (v int, n numeric); ALTER TABLE alike REPLICA IDENTITY FULL'
	);
	$publisher->sql(
		'INSERT INTO alike VALUES (1, 1.0), (1, 1.00); ALTER PUBLICATION tap ADD TABLE alike'
	);
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->sql(q(UPDATE alike SET v = 2 WHERE n::text = '1.00'));
	$publisher->wait_applied;
	$subscriber->wait_until_ready;
	my ($status, $out) = verify('--values', '-t', 'alike');
	is($status, 2, 'a row that equals the one that was changed');
	like($out, qr/: missing on subscriber.*\b1\.0\b/, 'is reported');
	$publisher->sql('ALTER PUBLICATION tap DROP TABLE alike');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
}

### a database of another encoding

# The first of two letters in UTF-8 is the second one in KOI8-R.  Detects: the program
# takes the order of one server for that of the other.
{
	my @letters = ("\xd0\xb4", "\xd1\x86");
	for my $node ($publisher, $subscriber)
	{
		my $encoding = $node eq $publisher ? 'UTF8' : 'KOI8R';
		$node->sql(
			"CREATE DATABASE cyrillic TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'"
		);
		$node->safe_psql(
			'cyrillic', join '',
			q(SET client_encoding = 'UTF8';),
			map { qq(CREATE TABLE "$_" (id int PRIMARY KEY);) } @letters);
	}
	$subscriber->create_extension('cyrillic');
	$pair->subscribe('cyrillic', db => 'cyrillic');
	my ($status, $out) = verify('-d', 'cyrillic');
	is($status, 0, 'a subscriber with another encoding');
	is( $out,
		join('', map { qq(public."$_": equal: 0 rows\n) } @letters),
		'has the same tables');
	$subscriber->safe_psql('cyrillic', 'DROP SUBSCRIPTION cyrillic');
}

### a row filter that is the end of a statement and the beginning of others

{
	my $create =
	  'SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_publication_tables AS ';
	my $view =
	  $publisher->sql(q(SELECT pg_get_viewdef('pg_publication_tables')));
	my $filter =
	  'true))) hashes GROUP BY 1 ORDER BY 1; COMMIT; CREATE TABLE public.taken (); BEGIN;'
	  . ' SELECT * FROM (SELECT 1 AS rh WHERE ((true';
	my $is_replaced = (my $other_view = $view) =~
	  s/(pg_get_expr\([^()]*\))( AS rowfilter)/CASE WHEN c.relname = 'plain' THEN '$filter' ELSE $1 END$2/;
	ok($is_replaced, 'the publisher has another filter');
	$publisher->sql($create . $other_view);
	my ($status, $out) = verify('-t', 'plain');
	is($status, 1, 'a filter that is no expression');
	is($out,
		"public.plain: not compared: its row filter is not an expression\n",
		'is named');
	is($subscriber->sql(q(SELECT to_regclass('taken'))),
		'', 'and not executed');
	$publisher->sql($create . $view . 'DROP TABLE IF EXISTS taken');
	$subscriber->sql('DROP TABLE IF EXISTS taken');
}

### a user who is no superuser

SKIP:
{
	skip 'the owner of a subscription is a superuser before 16', 1
	  if $subscriber->pg_version < 16;
	$subscriber->sql(
		q(CREATE ROLE owner LOGIN IN ROLE pg_create_subscription; GRANT postgres TO owner WITH INHERIT FALSE;
		GRANT SELECT ON ALL TABLES IN SCHEMA public TO owner; REVOKE SELECT ON plain FROM owner;
		ALTER TABLE shared ENABLE ROW LEVEL SECURITY;
		ALTER SUBSCRIPTION tap SET (password_required = false); ALTER SUBSCRIPTION tap OWNER TO owner)
	);
	my ($status, $out) =
	  verify('-U', 'owner', '-T', 'moving', '--publisher',
		$publisher->connstr('postgres'));
	is($status, 1, 'tables of the subscriber that may not be read');
	like(
		$out,
		qr/^public\.plain: not compared: subscriber: permission denied for table plain$/m,
		'are named, for lack of rights');
	like(
		$out,
		qr/^public\.shared: not compared: subscriber: query would be affected by row-level security/m,
		'and for row security');
	$subscriber->sql('ALTER SUBSCRIPTION tap OWNER TO postgres');
}

SKIP:
{
	skip 'generated columns are not published before 18', 1
	  if $publisher->pg_version < 18;
	$publisher->sql(
		q(CREATE TABLE doubled (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED); INSERT INTO doubled VALUES (1);
		ALTER PUBLICATION tap SET (publish_generated_columns = stored); ALTER PUBLICATION tap ADD TABLE doubled)
	);
	$subscriber->sql(
		'CREATE TABLE doubled (id int PRIMARY KEY, g int); ALTER SUBSCRIPTION tap REFRESH PUBLICATION'
	);
	$subscriber->wait_for_subscription_sync($publisher, 'tap');
	$publisher->flush_wal;
	$subscriber->wait_until_ready;
	my ($status, $out) = verify('-t', 'doubled');
	is( $out,
		"public.doubled: equal: 1 rows\n",
		'a generated column that is published');
	$subscriber->sql(
		'SET session_replication_role = replica; UPDATE doubled SET g = 1');
	($status, $out) = verify('-t', 'doubled');
	like($out, qr/^public\.doubled: \(1\): differs in: g$/m, 'is compared');
}

$pair->tables_equal(
	'in the end', 'moving', 'items', 'plain',
	'identified', 'shared', '"Emptied 2"', 'z_altered',
	'z_emptied');
finish(
	$publisher,
	$subscriber,
	qr/violates check constraint "positive"/,
	qr/ERROR: +deadlock detected/,
	qr/is paused by the session with process ID/,
	qr/permission denied for table plain|affected by row-level security/,
	qr/canceling statement|connection to client lost|terminating connection|terminating logical replication worker/
);
done_testing();
