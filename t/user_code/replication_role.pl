# Promise: if a trigger sets session_replication_role, so that ordinary triggers
# fire and foreign keys are checked from then on, until the end of the transaction
# or of the session, the same changes are made as by PostgreSQL's own apply, which
# applies the same transactions in the database "serial".
#
# A writer does so where the role is set for the transaction.  To force races,
# transactions are applied while a row lock blocks the first of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Once a transaction may be applied by the apply worker, it is (see selftest_wakes.c).
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "parallel_apply.selftest_fast = on\n");
$subscriber->sql('CREATE DATABASE serial');
my @tables = qw(gate setters called summed parents children parts);
my $tables = q(
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE setters (id int PRIMARY KEY, what text);
	CREATE TABLE called (id int PRIMARY KEY, v int);
	CREATE TABLE summed (id int PRIMARY KEY, v int);
	CREATE TABLE parents (id int PRIMARY KEY););
$publisher->sql(
	$tables . q(CREATE TABLE children (id int PRIMARY KEY, parent int);
	CREATE TABLE parts (id int PRIMARY KEY, v int);
	INSERT INTO gate VALUES (1, 0);
	INSERT INTO parents SELECT generate_series(1, 20);
	INSERT INTO children SELECT i, i FROM generate_series(1, 20) i;));

# setters sets the role; all other tables have ordinary triggers.
$subscriber->safe_psql(
	$_,
	$tables
	  . q(CREATE TABLE children (id int PRIMARY KEY, parent int REFERENCES parents ON DELETE CASCADE);
	CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
	CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
	CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
	CREATE TABLE notes (n bigserial, what text, id int, v int);
	CREATE FUNCTION set_role() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.what = 'local' THEN
			PERFORM set_config('session_replication_role', 'origin', true);
		ELSIF NEW.what = 'session' THEN
			PERFORM set_config('session_replication_role', 'origin', false);
		ELSIF NEW.what = 'hidden' THEN
			PERFORM set_config('session_replication_role', 'local', false),
				set_config('session_replication_role', 'replica', true);
		ELSIF NEW.what = 'back' THEN
			PERFORM set_config('session_replication_role', 'replica', false);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER set_role AFTER INSERT ON setters FOR EACH ROW EXECUTE FUNCTION set_role();
	ALTER TABLE setters ENABLE ALWAYS TRIGGER set_role;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.notes (what, id, v) VALUES (concat_ws(' ', TG_TABLE_NAME, TG_WHEN, TG_OP),
			coalesce(NEW.id, OLD.id), (SELECT sum(v) FROM public.summed));
		RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
	END $$;
	CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON called
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON called
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON parts
		FOR EACH ROW EXECUTE FUNCTION note();)
) for qw(postgres serial);
$subscriber->create_extension;
$pair->subscribe('tap', publication => 'FOR ALL TABLES');
$pair->subscribe_serially;

# Ids of the rows that the calls insert
my $id = 0;

# A transaction that changes all tables
sub changes
{
	my ($from, $more) = ($id + 1, $id + 4);
	$id = $more;
	return qq(UPDATE summed SET v = v + 1;
		INSERT INTO summed SELECT i, 1 FROM generate_series($from, $more) i;
		INSERT INTO called SELECT i, 0 FROM generate_series($from, $more) i;
		UPDATE called SET v = v + 1 WHERE id = $from; DELETE FROM called WHERE id = $more;
		INSERT INTO parts VALUES ($from, 0), (100 + $from, 0);
		UPDATE parts SET id = id + 1 WHERE id IN ($from, 100 + $from);
		DELETE FROM parents WHERE id = (SELECT min(id) FROM parents););
}

sub set_role
{
	my ($what) = @_;
	$id++;
	return "INSERT INTO setters VALUES ($id, '$what');";
}

sub count_notes
{
	return $subscriber->sql('SELECT count(*) FROM notes');
}

sub state_becomes
{
	my ($state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			q(SELECT concat_ws(': ', state, reason) FROM parallel_apply.subscriptions
			WHERE subname = 'tap'),
			$state),
		$name);
}
my $native =
  'degraded: a function has set session_replication_role for the session';

# For the transaction: earlier changes in it, and the next transaction, are not
# affected.
$publisher->sql(
	join('',
		map { "BEGIN; $_ COMMIT;\n" } changes(),
		changes() . set_role('local') . changes(),
		changes()));
$pair->same_as_serial('with a role for the transaction', @tables, 'notes');
cmp_ok(count_notes(), '>', 0, 'ordinary triggers fire then');
is($subscriber->counter('fallbacks'), '0', 'and a writer has applied it');

# The same in a batch, or concurrently with others, where the trigger allows it; the
# following transactions are not affected.
$subscriber->sql(
	q(SELECT parallel_apply.set_table_option('setters', 'triggers', 'parallel'))
);
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit',
	'a transaction that only sets the role is applied concurrently',
	'', set_role('local'));
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit',
	'but one with more changes waits for its turn',
	'UPDATE summed SET v = v + 5 WHERE id = 1',
	set_role('local') . 'INSERT INTO called VALUES (' . ++$id . ', 0)');
{
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql(
		join('',
			map { "BEGIN; $_ COMMIT;\n" } 'UPDATE gate SET n = n + 1;',
			set_role('local'), changes(), changes()));
	$subscriber->wait_for_state('waiting for lock');
	$gate->release;
}
$pair->same_as_serial('in batches', @tables, 'notes');
is($subscriber->counter('fallbacks'), '0', 'and writers have applied it');

# For the session, which ordinary transactions that were applied in progress do
# not know
for my $what (qw(session hidden))
{
	$pair->apply_behind_gate(
		'waiting for lock, waiting for prior commit, waiting for prior commit',
		"transactions are applied concurrently with one that sets the role, $what",
		set_role($what),
		'INSERT INTO summed VALUES (' . ++$id . ', 1)',
		'INSERT INTO called VALUES (' . ++$id . ', 1)');
	state_becomes($native, "then all is left to PostgreSQL's own apply");
	$publisher->sql(changes());
	$pair->same_as_serial("with a role for the session, $what",
		@tables, 'notes');
	is($subscriber->sql("SELECT count(*) FROM notes WHERE id = $id - 4"),
		'2', 'transactions that had been applied fire triggers, too');
	$publisher->sql(changes() . set_role('back') . changes());
	$publisher->sql(changes());
	state_becomes('parallel', 'and writers are back when the role is');
	$subscriber->wait_for_pool('tap');
	$pair->same_as_serial('when the role is back', @tables, 'notes');
}

# In a transaction that the apply worker applies itself
$subscriber->reload_with('parallel_apply.leader_participation = on');
my $by_leader =
  q(SELECT sum(leader_transactions) FROM parallel_apply.subscription_stats);
$publisher->sql('UPDATE gate SET n = n + 1');
$publisher->wait_applied;
my $before = $subscriber->sql($by_leader);
do
{
	$publisher->sql('UPDATE gate SET n = n + 1');
	$publisher->wait_applied;
} until $subscriber->sql($by_leader) > $before;
$publisher->sql(set_role('session'));
state_becomes($native, 'a session that the apply worker sets is its own');
$publisher->sql(changes());
$pair->same_as_serial('with a role that the apply worker has set',
	@tables, 'notes');

# Another apply worker has another session.
$subscriber->restart_apply('tap');
my $serial = $subscriber->apply_pid('serial');
{
	$subscriber->sql("SELECT pg_terminate_backend($serial)");
	$subscriber->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_subscription WHERE subname = 'serial' AND pid <> $serial"
	) or die 'the serial apply worker does not start again';
}
state_becomes('parallel', 'the role ends with the session');
my $notes = count_notes();
$publisher->sql(changes());
$pair->same_as_serial('after another start', @tables, 'notes');
is(count_notes(), $notes, 'without ordinary triggers');

SKIP:
{
	skip q(PostgreSQL's own apply leaves partitions open in this version), 1
	  if slurp_file($subscriber->logfile) =~
	  /\[$serial\] WARNING: .*(leak|not closed)/;
	$subscriber->nothing_is_left_open;
}
finish($publisher, $subscriber, worker_terminated());
done_testing();
