# Promise: user code that runs when changes are applied (triggers that fire in
# replica mode, and volatile defaults of columns that are not published) finds what
# it would find in PostgreSQL's own apply.
#
# A subscriber without the extension gets the same transactions.  Triggers record
# what they read, count or receive, in the order in which they fired.  To force
# races, the transactions are queued while a row lock blocks the first of them.
# Writers apply all of them; none is left to PostgreSQL's own apply.  Only a table
# whose triggers are declared parallel is changed concurrently with others.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use PapplyTest;

# The queue is small, so that larger transactions are applied while they arrive.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "parallel_apply.queue_size = 64kB\n");
my $serial = new_plain('serial', "wal_retrieve_retry_interval = '100ms'\n");

my @published =
  qw(gate items audited filtered stamped orders docs picky numbered safe plain deputy parts);
my $tables = q(
	CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE items (id int PRIMARY KEY, v int);
	CREATE TABLE audited (id int PRIMARY KEY, v int);
	CREATE TABLE filtered (id int PRIMARY KEY, v int);
	CREATE TABLE stamped (id int PRIMARY KEY, v int);
	CREATE TABLE orders (id int PRIMARY KEY, v int);
	CREATE TABLE docs (id int PRIMARY KEY, title text, body text);
	ALTER TABLE docs ALTER body SET STORAGE EXTERNAL;
	CREATE TABLE picky (id int PRIMARY KEY);
	CREATE TABLE safe (id int PRIMARY KEY, v int);
	CREATE TABLE plain (id int PRIMARY KEY);
	CREATE TABLE deputy (id int PRIMARY KEY, v int););
$publisher->sql(
	$tables . q(CREATE TABLE numbered (id int PRIMARY KEY);
	CREATE TABLE parts (id int PRIMARY KEY, v int, t text);));

# Triggers write into notes; n is the order in which they did.
my $triggers = q(
	CREATE TABLE numbered (id int PRIMARY KEY, n bigserial);
	CREATE TABLE notes (n bigserial, what text, id int, seen text);
	CREATE TABLE stamps (n bigserial, id int, txid bigint DEFAULT txid_current(),
		began timestamptz DEFAULT now(), stamped timestamptz DEFAULT clock_timestamp(),
		statement timestamptz DEFAULT statement_timestamp());
	CREATE TABLE open (id int);
	CREATE FUNCTION total() RETURNS text STABLE LANGUAGE sql AS
		$$SELECT sum(v) || ' in ' || count(*) FROM public.items$$;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.notes (what, id, seen) VALUES (concat_ws(' ', TG_NAME, TG_WHEN, TG_OP),
			coalesce(NEW.id, OLD.id), concat_ws(', ', public.total(), current_setting('search_path'),
				current_user, current_setting('session_replication_role'),
				current_setting('application_name'), NEW, OLD));
		RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
	END $$;
	CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON audited
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER audit_before BEFORE INSERT OR UPDATE OR DELETE ON audited
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER audit_some AFTER UPDATE ON audited
		FOR EACH ROW WHEN (NEW.v > OLD.v) EXECUTE FUNCTION note();

	CREATE FUNCTION filter() RETURNS trigger STABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF OLD.id % 5 = 0 OR NEW.id % 5 = 0 THEN RETURN NULL; END IF;
		IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
		NEW.v := (SELECT sum(v) FROM public.items);
		RETURN NEW;
	END $$;
	CREATE TRIGGER filter BEFORE INSERT OR UPDATE OR DELETE ON filtered
		FOR EACH ROW EXECUTE FUNCTION filter();

	CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO public.stamps (id) VALUES (NEW.id); RETURN NULL; END$$;
	CREATE TRIGGER stamp AFTER INSERT ON stamped FOR EACH ROW EXECUTE FUNCTION stamp();

	CREATE CONSTRAINT TRIGGER check_late AFTER INSERT OR UPDATE OR DELETE ON orders
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();

	CREATE TRIGGER body AFTER UPDATE OF body ON docs FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER title AFTER UPDATE OF title ON docs FOR EACH ROW EXECUTE FUNCTION note();

	CREATE FUNCTION pick() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NOT EXISTS (SELECT FROM public.open) THEN RAISE EXCEPTION 'not open'; END IF;
		UPDATE public.items SET v = v WHERE id = (
			SELECT id FROM public.items WHERE id <= NEW.id ORDER BY id DESC LIMIT 1 FOR UPDATE NOWAIT);
		INSERT INTO public.notes (what, id) SELECT 'not locked', id FROM public.items
			ORDER BY id FOR UPDATE SKIP LOCKED;
		RETURN NULL;
	END $$;
	CREATE TRIGGER pick AFTER INSERT ON picky FOR EACH ROW EXECUTE FUNCTION pick();

	CREATE TRIGGER safe AFTER UPDATE ON safe FOR EACH ROW EXECUTE FUNCTION note();

	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE EXCEPTION 'a trigger for statements has fired'; END$$;
	CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON plain EXECUTE FUNCTION refuse();

	CREATE FUNCTION rebuild() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE 'CREATE INDEX ON public.items (v)';
		TRUNCATE public.filtered;
		RETURN NULL;
	END $$;
	CREATE TRIGGER rebuild AFTER INSERT ON deputy FOR EACH ROW EXECUTE FUNCTION rebuild();

	CREATE TABLE parts (id int PRIMARY KEY, v int, t text) PARTITION BY RANGE (id);
	CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
	CREATE TABLE parts2 (gone int, t text, v int, id int NOT NULL);
	ALTER TABLE parts2 DROP gone;
	ALTER TABLE parts ATTACH PARTITION parts2 FOR VALUES FROM (100) TO (200);
	CREATE TABLE parts3 PARTITION OF parts FOR VALUES FROM (200) TO (300);
	CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON parts
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE TRIGGER after AFTER INSERT OR UPDATE OF t OR DELETE ON parts
		FOR EACH ROW EXECUTE FUNCTION note();
	CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON parts
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();

	INSERT INTO open VALUES (1);
	ALTER TABLE audited ENABLE REPLICA TRIGGER audit;
	ALTER TABLE audited ENABLE ALWAYS TRIGGER audit_before;
	ALTER TABLE audited ENABLE ALWAYS TRIGGER audit_some;
	ALTER TABLE filtered ENABLE REPLICA TRIGGER filter;
	ALTER TABLE stamped ENABLE ALWAYS TRIGGER stamp;
	ALTER TABLE orders ENABLE ALWAYS TRIGGER check_late;
	ALTER TABLE docs ENABLE ALWAYS TRIGGER body;
	ALTER TABLE docs ENABLE ALWAYS TRIGGER title;
	ALTER TABLE picky ENABLE REPLICA TRIGGER pick;
	ALTER TABLE safe ENABLE REPLICA TRIGGER safe;
	ALTER TABLE plain ENABLE ALWAYS TRIGGER refuse;
	ALTER TABLE deputy ENABLE REPLICA TRIGGER rebuild;);
$_->sql($tables . $triggers) for $subscriber, $serial;

$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE ' . join(', ', @published),
	with => 'copy_data = false');
$pair->subscribe_serially(server => $serial, with => 'copy_data = false');
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i;
	INSERT INTO safe SELECT i, 0 FROM generate_series(1, 20) i;));
$publisher->wait_applied;

# Behind the gate: triggers of all kinds, between changes that they read
my @history;
for my $i (1 .. 60)
{
	my $item = 1 + $i * 7 % 20;
	push @history, "UPDATE items SET v = v + $i WHERE id = $item";
	push @history,
	  "INSERT INTO audited VALUES ($i, 0); INSERT INTO items VALUES (100 + $i, 1);
		UPDATE audited SET v = v + $i % 3 WHERE id BETWEEN $i - 3 AND $i"
	  if $i % 3 == 0;
	push @history, "INSERT INTO numbered VALUES ($i)";
	push @history,
	  "UPDATE items SET v = v + 1 WHERE id = 4; INSERT INTO filtered VALUES ($i, 0);
		UPDATE items SET v = v + 1 WHERE id = 5; UPDATE filtered SET v = 0 WHERE id = $i - 1;
		DELETE FROM filtered WHERE id = $i - 7"
	  if $i % 2;
	push @history,
	  "UPDATE items SET v = v - 1 WHERE id = 2; DELETE FROM audited WHERE id = $i - 12"
	  if $i % 4 == 0;
	push @history,
	  "INSERT INTO orders VALUES ($i, 0); UPDATE items SET v = v + 1 WHERE id = 1;
		UPDATE orders SET v = v + 1 WHERE id = $i - 2; UPDATE items SET v = v + 1 WHERE id = 3"

	  if $i % 2;
	push @history, "INSERT INTO stamped VALUES ($i, 1), (1000 + $i, 2)"
	  if $i % 3;
	push @history, "INSERT INTO picky VALUES ($i); UPDATE items SET v = v + 1"
	  if $i % 10 == 0;
}
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit, waiting for dependency',
	'a transaction with triggers waits for its turn, and all younger ones wait for it',
	'',
	'INSERT INTO audited VALUES (0, 0)',
	'UPDATE items SET v = v + 1 WHERE id = 20');
$publisher->commit_each(@history);
$pair->same_as_serial('in a mixed load', 'items', 'filtered', 'notes');
is( $subscriber->sql('SELECT count(*) FROM stamps') > 0
	  && $subscriber->sql(
		q(SELECT count(*) FROM (
			SELECT txid, lag(txid) OVER w AS txid_before, began, lag(stamped) OVER w AS before
			FROM stamps WINDOW w AS (ORDER BY n)) s
		WHERE txid < txid_before OR txid <> txid_before AND began <= before)),
	'0',
	'transactions begin when everything older is committed');
my $groups = q(SELECT string_agg(id || ':' || txid, ' ' ORDER BY n) FROM (
	SELECT n, id, dense_rank() OVER (ORDER BY txid) AS txid FROM stamps) s);
is( $subscriber->sql($groups),
	$serial->sql($groups),
	'each has a transaction of its own');
is($subscriber->sql('SELECT count(*) FROM stamps WHERE statement < began'),
	0, 'and each change its time');

# Column triggers: a large value that is not sent is not updated.
$publisher->commit_each(
	q(INSERT INTO docs SELECT i, 't', repeat('x', 4000) FROM generate_series(1, 3) i),
	q(UPDATE docs SET title = 'u'),
	q(UPDATE docs SET body = repeat('y', 4000) WHERE id = 1),
	q(UPDATE docs SET title = 'v', body = 'z' WHERE id = 2),
	q(UPDATE docs SET title = 'w'));
$pair->same_as_serial('with triggers for columns', 'docs', 'notes');
is($subscriber->sql("SELECT count(*) FROM notes WHERE what LIKE 'body %'"),
	'3', 'a trigger for a column fires when the column was sent');

# Partitions: a trigger that only one of them has, and then triggers of the table
my $batch = 0;
for my $sql (
	'ALTER TABLE parts2 ENABLE ALWAYS TRIGGER after',
	'ALTER TABLE parts ENABLE ALWAYS TRIGGER before; ALTER TABLE parts ENABLE REPLICA TRIGGER after;
	ALTER TABLE parts ENABLE REPLICA TRIGGER late',
	'ALTER TABLE parts DISABLE TRIGGER before; ALTER TABLE parts1 DISABLE TRIGGER USER;
	ALTER TABLE parts2 DISABLE TRIGGER USER; ALTER TABLE parts3 DISABLE TRIGGER after'
  )
{
	$_->sql($sql) for $subscriber, $serial;
	$publisher->commit_each(
		"INSERT INTO parts SELECT i * 10 + $batch, 0, 'x' FROM generate_series(0, 29) i;
			UPDATE items SET v = v + 1",
		"UPDATE parts SET v = v + 1, t = 'y' WHERE id % 20 = $batch",
		"UPDATE items SET v = v + 1",
		"UPDATE parts SET id = (id + 105) % 300 WHERE id % 50 = $batch",
		"DELETE FROM parts WHERE id % 30 = $batch");
	$pair->same_as_serial('with triggers of partitions', 'parts', 'notes');
	$batch++;
}

# Statement triggers do not fire, and are no reason to wait.
$pair->apply_behind_gate(
	'waiting for lock, waiting for prior commit',
	'a table with a trigger for statements is changed in parallel',
	'',
	'INSERT INTO plain VALUES (1); UPDATE items SET v = 0 WHERE id = 1');

# A transaction that begins before its turn begins again in its turn when it meets a
# trigger.  Detects: the code sees a start before the end of an older transaction.
{
	$subscriber->sql(
		'CREATE TRIGGER stamp AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION stamp()'
	);
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1; INSERT INTO stamped VALUES (2001, 1)',
		'UPDATE items SET v = v + 1 WHERE id = 1; INSERT INTO plain VALUES (2002)'
	);
	$subscriber->states_become('waiting for lock, waiting for dependency',
		'a transaction has begun');
	$subscriber->sql('ALTER TABLE plain ENABLE ALWAYS TRIGGER stamp');
	$gate->release;
	$publisher->wait_applied;
	is( $subscriber->sql(
			q(SELECT new.began > old.stamped FROM stamps old, stamps new
			WHERE old.id = 2001 AND new.id = 2002)),
		't',
		'its trigger fires in one that began in its turn');
	$subscriber->sql('DROP TRIGGER stamp ON plain');
}

# A local session changes a row that a writer has found and waits to lock for a
# trigger.  Detects: a change of the old row version.
{
	my $tries = $subscriber->counter('retries + fallbacks');
	my $local = $subscriber->hold('SELECT FROM safe WHERE id = 5 FOR UPDATE');
	$publisher->sql('UPDATE safe SET v = v + 1 WHERE id = 5');
	$subscriber->wait_for_state('waiting for lock');
	$local->query_safe('UPDATE safe SET v = v WHERE id = 5; COMMIT');
	$local->quit;
	$publisher->wait_applied;
	is($subscriber->sql('SELECT v FROM safe WHERE id = 5'),
		'1', 'a row that a local session has changed is changed');
	is($subscriber->counter('retries + fallbacks'),
		$tries, 'at the first attempt');
}

# NOWAIT and SKIP LOCKED: a younger transaction has not locked anything yet.
my $retries = $pair->apply_behind_gate(
	'waiting for lock, waiting for dependency',
	'a younger transaction does not begin before a trigger has run',
	'INSERT INTO picky VALUES (15)',
	'UPDATE items SET v = v + 1');
is($retries, 0, 'and nothing has to be tried again');
$pair->same_as_serial('where it does not wait for locks', 'notes');

# A trigger executes DDL on tables that the transaction has changed.
$publisher->commit_each(
	'INSERT INTO items VALUES (300, 1); INSERT INTO filtered VALUES (301, 1);
		INSERT INTO deputy VALUES (1, 1);
		INSERT INTO items VALUES (301, 1); INSERT INTO filtered VALUES (302, 1)',
	'UPDATE items SET v = v + 1 WHERE id > 299');
$pair->same_as_serial('after DDL by a trigger', 'items', 'filtered');
is( $subscriber->sql(
		q(SELECT count(*) FROM pg_index WHERE indrelid = 'items'::regclass)),
	'2',
	'the index is there');

# Large transactions: the first change with a trigger comes while the beginning is
# being applied, or has left the queue.
for my $rows (150, 3000)
{
	$publisher->commit_each(
		"INSERT INTO docs SELECT i, 'large', 'x' FROM generate_series($rows * 10, $rows * 11) i",
		"INSERT INTO items SELECT i, 1 FROM generate_series($rows * 10, $rows * 11) i;
			INSERT INTO audited VALUES ($rows, 0);
			UPDATE items SET v = v + 1 WHERE id = $rows * 10");
	$pair->same_as_serial("in a transaction of $rows rows",
		'items', 'audited', 'notes');
}

# A table is opened for each change that may run code.  The memory for that is
# freed.
{
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->commit_each(
		'INSERT INTO numbered SELECT generate_series(10001, 13000); UPDATE gate SET n = n + 1'
	);
	my ($bytes) =
	  $subscriber->memory_of_waiting =~ /TopTransactionContext: (\d+) total/;
	cmp_ok(
		$bytes, '<',
		1024 * 1024,
		'the memory of a transaction does not grow with its changes');
	$gate->release;
}

is($subscriber->counter('fallbacks'),
	'0', 'nothing was left to PostgreSQL itself');

# Writers know a partitioned table without triggers when one of its partitions gets
# one, and receive no invalidation for that.  Detects: the trigger does not fire.
$_->sql('ALTER TABLE parts DISABLE TRIGGER USER') for $subscriber, $serial;

# The apply worker notices that when it looks at the catalogs for another reason.
my $exclusive =
  'SELECT exclusive_table FROM parallel_apply.subscription_stats';
my $was_exclusive;
do
{
	$was_exclusive = $subscriber->sql($exclusive);
	$publisher->sql(
		'UPDATE parts SET v = v + 1 WHERE id = (SELECT min(id) FROM parts)');
	$publisher->wait_applied;
	$subscriber->wait_until_counted;
} until $subscriber->sql($exclusive) eq $was_exclusive;
$pair->apply_behind_gate(
	join(', ', 'waiting for lock', ('waiting for prior commit') x 3),
	'all writers know a partitioned table',
	map { "INSERT INTO parts VALUES ($_, 0, 'x')" } 114 .. 117);
$_->sql('ALTER TABLE parts2 ENABLE ALWAYS TRIGGER after')
  for $subscriber, $serial;
$publisher->commit_each(map { "UPDATE parts SET t = 'z' WHERE id = $_" }
	  114 .. 117);
$pair->same_as_serial('with a trigger that a partition has got',
	'parts', 'notes');

# An error in a trigger is reported as by PostgreSQL's own apply.
{
	my $offset = -s $subscriber->logfile;
	$_->sql('DELETE FROM open') for $subscriber, $serial;
	$publisher->commit_each(
		'UPDATE items SET v = 1',
		'INSERT INTO picky VALUES (17)',
		'UPDATE items SET v = 2');
	$subscriber->wait_for_log(qr/ERROR: +not open.*processing remote data/s,
		$offset);
	is($subscriber->sql('SELECT max(v) FROM items'),
		'1', 'transactions after an error are not applied');
	$_->sql('INSERT INTO open VALUES (1)') for $subscriber, $serial;
	$pair->same_as_serial('after an error', 'items', 'picky', 'notes');
	$subscriber->wait_for_pool('tap');
}

# Two transactions are applied concurrently if both wait for locks.
sub apply_safe
{
	my ($states, $name) = @_;
	my $lock = $subscriber->hold('SELECT FROM safe WHERE id = 2 FOR UPDATE');
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->commit_each(
		'UPDATE gate SET n = n + 1; UPDATE safe SET v = v + 1 WHERE id = 1');
	# Otherwise, one writer might claim both.
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql('UPDATE safe SET v = v + 1 WHERE id = 2');
	$subscriber->states_become($states, $name);
	$_->query_safe('COMMIT') for $gate, $lock;
	$_->quit for $gate, $lock;
	$pair->same_as_serial('with triggers of a table, whether declared or not',
		'safe');
	return;
}
apply_safe(
	'waiting for lock, waiting for prior commit',
	'triggers are exclusive by default');

# A user who may not declare it does not lock the table either.
{
	my $user = $subscriber->hold('LOCK TABLE safe IN ROW EXCLUSIVE MODE');
	my (undef, undef, $error) = $subscriber->psql(
		'postgres',
		q(CREATE ROLE stranger; GRANT USAGE ON SCHEMA parallel_apply TO stranger;
		GRANT EXECUTE ON FUNCTION parallel_apply.set_table_option TO stranger;
		SET ROLE stranger; SET lock_timeout = '5s';
		SELECT parallel_apply.set_table_option('safe', 'triggers', 'parallel')));
	like(
		$error,
		qr/must be owner of table safe/,
		'only its owner can declare the triggers of a table');
	$user->quit;
}
$subscriber->sql(
	q(SELECT parallel_apply.set_table_option('safe', 'triggers', 'parallel'))
);
apply_safe('waiting for lock, waiting for lock',
	'a table with parallel triggers is changed in parallel');
my $notes =
  q(SELECT count(*), count(DISTINCT id) FROM notes WHERE what LIKE 'safe %');
is($subscriber->sql($notes), '5|3', 'its triggers fire');
command_like(
	[
		'pg_dump', '--schema-only',
		'--dbname', $subscriber->connstr('postgres')
	],
	qr/^SECURITY LABEL FOR parallel_apply ON TABLE public\.safe IS 'triggers=parallel';$/m,
	'pg_dump dumps what is declared, by name');

# A trigger's actions on another server are committed there before the transaction
# is committed here.  They must not happen before its turn, since until then the
# transaction may be rolled back and repeated.
SKIP:
{
	skip 'the server has no postgres_fdw', 3 if !has_module('postgres_fdw');
	my ($host, $port) = ($serial->host, $serial->port);
	$serial->sql('CREATE TABLE sent (id int)');
	$subscriber->sql(
		qq(CREATE EXTENSION postgres_fdw;
		CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR PUBLIC SERVER elsewhere;
		CREATE FOREIGN TABLE sent (id int) SERVER elsewhere;
		CREATE FUNCTION send() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO public.sent VALUES (NEW.id); RETURN NULL; END';
		CREATE TRIGGER send AFTER UPDATE ON safe FOR EACH ROW EXECUTE FUNCTION send();
		ALTER TABLE safe ENABLE REPLICA TRIGGER send)
	);
	my $sent = q(SELECT string_agg(id::text, ' ') FROM sent);
	my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$publisher->sql('UPDATE gate SET n = n + 1');
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql('UPDATE safe SET v = v + 1 WHERE id = 3');
	$subscriber->states_become(
		'waiting for lock, waiting for prior commit',
		'a trigger has written to another server');
	is($serial->sql($sent), '', 'which has not committed before the turn');
	$gate->release;
	$publisher->wait_applied;
	is($serial->sql($sent), '3', 'but with it');
	$subscriber->sql('DROP TRIGGER send ON safe');
}
$subscriber->sql('SECURITY LABEL FOR parallel_apply ON TABLE safe IS NULL');
apply_safe('waiting for lock, waiting for prior commit',
	'and they are exclusive again');
$pair->same_as_serial('in the end', @published);

# An apply worker that restarts may be faster than the exit of the previous one.
finish(
	$publisher, $subscriber, $serial,
	qr/ERROR: +not open/,
	qr/ERROR: +must be owner of table safe/);
done_testing();
