# Promise: a change that cannot be applied leaves exactly the same in the log, in
# the statistics and in the tables as on a server without the extension.
#
# Such a server is the model.  It subscribes to the same publication, and each fault
# is made on both servers.  Everything that their apply workers and writers have
# logged since then is compared, without the numbers of processes, of local
# transactions and of the origin.  The only additional messages are those of the
# pool's start and end.  No race is forced: each error disables the subscription,
# and what follows waits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $logging =
  "log_line_prefix = '%b| '\nwal_retrieve_retry_interval = '100ms'\n";
my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => $logging);
my $plain = new_plain('plain', $logging);
my @subscribers = ($plain, $subscriber);
my $major = int $subscriber->pg_version;
my @tables = qw(history items named parts watched unkeyed parent typed);

sub on_both
{
	my ($sql) = @_;
	$_->sql($sql) for @subscribers;
	return;
}

my $schema = q(CREATE TABLE history (n int);
	CREATE TABLE items (id int PRIMARY KEY, v int, note text);
	CREATE TABLE named (id int PRIMARY KEY, name text);
	CREATE TABLE watched (id int PRIMARY KEY, v int);
	CREATE TABLE unkeyed (id int PRIMARY KEY, v int);
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE seen (id int PRIMARY KEY););
$publisher->sql(
	"$schema
	CREATE TABLE parts (id int PRIMARY KEY, v int);
	CREATE TABLE typed (id int PRIMARY KEY, v text);
	INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i;
	INSERT INTO unkeyed VALUES (1, 0), (2, 0);
	INSERT INTO parent VALUES (1);");
on_both(
	"$schema
	ALTER TABLE named ADD UNIQUE (name);
	CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
	CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
	CREATE TABLE typed (id int PRIMARY KEY, v int);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		\$\$ BEGIN RAISE EXCEPTION 'row % is refused', NEW.id USING HINT = 'Try another.'; END \$\$;"
);
$subscriber->create_extension;
$pair->subscribe('tap', with => 'disable_on_error = on, streaming = off');
my $connstr = $publisher->connstr . ' dbname=postgres application_name=plain';
$plain->sql(
	"CREATE SUBSCRIPTION tap CONNECTION '$connstr' PUBLICATION tap
	WITH (slot_name = plain, disable_on_error = on, streaming = off)");
$plain->wait_for_subscription_sync($publisher, 'plain');

my $applier =
  $major < 16
  ? 'logical replication worker'
  : 'logical replication apply worker';

# The processes of logical replication whose messages are compared
sub log_since
{
	my ($node, $offset) = @_;
	my @entries;
	my $is_kept = 0;
	for my $line (split /\n/, slurp_file($node->logfile, $offset))
	{
		$line =~ s/origin "pg_\d+"/origin "pg_N"/;
		$line =~ s/\(PID \d+\)/(PID N)/;
		$line =~ s/modified in transaction \d+/modified in transaction N/;
		my ($process, $text) = $line =~ /^([^|\t]*)\| (.*)/;
		if (defined $process)
		{
			# A detail goes with its message.
			$is_kept =
			  $process =~ /^(logical replication|parallel_apply|postmaster)/
			  && $text !~
			  /LOG:  parallel apply of subscription "tap" has (started|stopped)/
			  if $text !~ /^(DETAIL|HINT|CONTEXT):/;
			# Messages below ERROR come from whichever process applies the
			# transaction.
			$process = $applier if $process =~ /^parallel_apply writer/;
			push @entries, "$process: $text" if $is_kept;
		}
		elsif ($is_kept)
		{
			$entries[-1] .= "\n$line";
		}
	}
	return @entries;
}

sub offsets
{
	return map { -s $_->logfile } @subscribers;
}

# Compare what both servers have logged, and return it.
sub same_log
{
	my ($name, @offsets) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($model, $log) =
	  map { join "\n", log_since($subscribers[$_], $offsets[$_]) } 0, 1;
	is($log, $model, "$name: the log is that of a plain server");
	return $model;
}

sub same_statistics
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $sql =
	  q(SELECT to_jsonb(s) - 'subid' - 'stats_reset' FROM pg_stat_subscription_stats s);
	my $model = $subscribers[0]->sql($sql);
	return ok(
		$subscribers[1]->poll_query_until('postgres', $sql, $model),
		"$name: the statistics become those of a plain server");
}

sub wait_for_both
{
	$publisher->wait_for_catchup($_, 'replay') for 'tap', 'plain';
	return;
}

# Wait until there are no other workers of logical replication: what they log, and their
# statistics, come before they are gone.
sub wait_for_workers
{
	my ($count) = @_;
	for my $node (@subscribers)
	{
		$node->wait_until(
			qq(count(*) = $count FROM pg_stat_activity
			WHERE backend_type LIKE 'logical replication%worker'),
			'a worker does not end');
	}
	return;
}

# The apply workers of a disabled subscription have exited.  The next ones must not find
# that the slot is still in use, which they would log.
sub wait_for_ends
{
	wait_for_workers(0);
	$publisher->wait_until(
		'count(*) = 0 FROM pg_replication_slots WHERE active',
		'a walsender does not end');
	return;
}

# Execute ALTER SUBSCRIPTION, and whatever else has to be done while there is no
# apply worker.
sub alter_subscriptions
{
	my ($sql) = @_;
	on_both('ALTER SUBSCRIPTION tap DISABLE');
	$_->wake('tap') for @subscribers;
	wait_for_ends();
	my @offsets = offsets();
	on_both("$sql; ALTER SUBSCRIPTION tap ENABLE;");
	$subscribers[$_]
	  ->wait_for_log(qr/worker for subscription "tap" has started/,
		$offsets[$_])
	  for 0, 1;
	return;
}

my $n = 0;

# Faulty changes between two good transactions, both of which are committed in the
# end.  $repair is a list of statements for both subscribers; SKIP is one of them.
sub fails_alike
{
	my ($name, $faults, $change, $error, $repair) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	on_both($faults) if $faults;
	my @offsets = offsets();
	$n += 3;
	$publisher->sql(
		sprintf 'INSERT INTO history VALUES (%d);'
		  . 'BEGIN; INSERT INTO history VALUES (%d); %s; COMMIT;'
		  . 'INSERT INTO history VALUES (%d);',
		$n - 2,
		$n - 1,
		$change,
		$n);
	for my $i (0, 1)
	{
		$subscribers[$i]->wait_for_log(
			qr/subscription "tap" has been disabled (due to|because of) an error/,
			$offsets[$i]);
	}
	wait_for_ends();
	my $log = same_log($name, @offsets);
	like($log, qr/ERROR:  $error/, "$name: which is this error");
	same_statistics($name);

	@offsets = offsets();
	my ($lsn) = $log =~ m{finished at ([0-9A-F]+/[0-9A-F]+)};
	$repair =~ s/SKIP/ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')/;
	on_both("$repair; ALTER SUBSCRIPTION tap ENABLE;");
	wait_for_both();
	same_log("$name, after repair", @offsets);
	return;
}

# Missing rows; from 18 on, they are logged and counted.
wait_for_workers(1);
{
	on_both('DELETE FROM items WHERE id IN (18, 19)');
	my @offsets = offsets();
	$publisher->sql(
		'UPDATE items SET v = 1 WHERE id BETWEEN 17 AND 20;
		DELETE FROM items WHERE id = 18;');
	wait_for_both();
	my $log = same_log('missing rows', @offsets);
	is( scalar(() = $log =~ /conflict=(update|delete)_missing/g),
		$major < 18 ? 0 : 3,
		'missing rows: which are mentioned from 18 on');
}

my $exists =
  $major < 18
  ? 'duplicate key value violates unique constraint'
  : 'conflict detected on relation';

fails_alike(
	'duplicate primary key',
	'INSERT INTO items VALUES (101, 0)',
	'INSERT INTO items VALUES (100, 0), (101, 0)',
	qr/$exists "(items_pkey|public\.items)"/,
	'DELETE FROM items WHERE id = 101');
fails_alike(
	'duplicate key, skipped',
	'INSERT INTO items VALUES (103, 0)',
	'INSERT INTO items VALUES (102, 0), (103, 0)',
	qr/$exists "(items_pkey|public\.items)"/,
	'SKIP');
fails_alike(
	'duplicate key that is gone, skipped',
	'INSERT INTO items VALUES (104, 0)',
	'INSERT INTO items VALUES (104, 1)',
	qr/$exists "(items_pkey|public\.items)"/,
	'DELETE FROM items WHERE id = 104; SKIP');
fails_alike(
	'duplicate unique value of an update',
	q(INSERT INTO named VALUES (1, 'one')),
	q(INSERT INTO named VALUES (2, 'two'); UPDATE named SET name = 'one' WHERE id = 2),
	qr/$exists "(named_name_key|public\.named)"/,
	'SKIP');
fails_alike(
	'check violation',
	'ALTER TABLE items ADD CONSTRAINT small CHECK (v < 1000)',
	'UPDATE items SET v = 1000 WHERE id = 1',
	qr/new row for relation "items" violates check constraint "small"/,
	'ALTER TABLE items DROP CONSTRAINT small');
fails_alike(
	'violation of not null',
	'ALTER TABLE items ALTER v SET NOT NULL',
	'INSERT INTO items VALUES (105, NULL)',
	qr/null value in column "v" of relation "items" violates not-null constraint/,
	'ALTER TABLE items ALTER v DROP NOT NULL');
fails_alike(
	'missing table',
	'ALTER TABLE items RENAME TO hidden',
	'DELETE FROM items WHERE id = 2',
	qr/logical replication target relation "public.items" does not exist/,
	'ALTER TABLE hidden RENAME TO items');
fails_alike(
	'missing columns',
	'ALTER TABLE items RENAME v TO w; ALTER TABLE items RENAME note TO remark',
	'UPDATE items SET v = 2 WHERE id = 3',
	qr/logical replication target relation "public.items" is missing replicated columns: "v", "note"/,
	'ALTER TABLE items RENAME w TO v; ALTER TABLE items RENAME remark TO note'
);
fails_alike(
	'value of another type',
	'',
	q(INSERT INTO typed VALUES (1, '1'), (2, 'many')),
	qr/invalid input syntax for type integer: "many"/,
	'ALTER TABLE typed ALTER v TYPE text');
fails_alike(
	'value of another type for a row that is not there',
	'DELETE FROM typed; ALTER TABLE typed ALTER v TYPE int USING v::int',
	q(UPDATE typed SET v = 'few' WHERE id = 2),
	qr/invalid input syntax for type integer: "few"/,
	q(ALTER TABLE typed ALTER v TYPE text; INSERT INTO typed VALUES (1, '1'), (2, 'many'))
);
fails_alike(
	'missing partition',
	'',
	'INSERT INTO parts VALUES (1, 1), (100, 1)',
	qr/no partition of relation "parts" found for row/,
	'CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (100) TO (1000)');
fails_alike(
	'exception of a trigger',
	'CREATE TRIGGER refuse BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION refuse();
	ALTER TABLE watched ENABLE REPLICA TRIGGER refuse',
	'INSERT INTO watched VALUES (1, 1)',
	qr/row 1 is refused/,
	'DROP TRIGGER refuse ON watched');
fails_alike(
	'exception at commit',
	'CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON watched DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION refuse();
	ALTER TABLE watched ENABLE REPLICA TRIGGER refuse',
	'INSERT INTO watched VALUES (2, 2), (3, 3)',
	qr/row 2 is refused/,
	'DROP TRIGGER refuse ON watched');
fails_alike(
	'missing key',
	'ALTER TABLE unkeyed DROP CONSTRAINT unkeyed_pkey',
	'UPDATE unkeyed SET v = 1 WHERE id = 1',
	qr/logical replication target relation "public.unkeyed" has neither REPLICA IDENTITY index nor PRIMARY KEY/,
	'ALTER TABLE unkeyed ADD PRIMARY KEY (id)');
fails_alike(
	'key that is not sent',
	'ALTER TABLE unkeyed DROP CONSTRAINT unkeyed_pkey, ADD PRIMARY KEY (id, v)',
	'UPDATE unkeyed SET v = 2 WHERE id = 1',
	qr/publisher did not send replica identity column expected by the logical replication target relation "public.unkeyed"/,
	'ALTER TABLE unkeyed DROP CONSTRAINT unkeyed_pkey, ADD PRIMARY KEY (id)');
fails_alike(
	'view',
	'ALTER TABLE seen RENAME TO hidden; CREATE VIEW seen AS SELECT * FROM hidden',
	'INSERT INTO seen VALUES (1)',
	qr/cannot use relation "public.seen" as logical replication target/,
	'DROP VIEW seen; ALTER TABLE hidden RENAME TO seen');
fails_alike(
	'truncation of a referenced table',
	'CREATE TABLE child (id int REFERENCES parent)',
	'TRUNCATE parent',
	qr/cannot truncate a table referenced in a foreign key constraint/,
	'DROP TABLE child');

# A skip LSN that is not the one of the next transaction
{
	my @offsets = offsets();
	on_both(q(ALTER SUBSCRIPTION tap SKIP (lsn = 'FF/0')));
	$publisher->sql(
		'INSERT INTO history VALUES (0); INSERT INTO history VALUES (0);');
	wait_for_both();
	my $log = same_log('another transaction to be skipped', @offsets);
	like(
		$log,
		qr/skip-LSN of subscription "tap" cleared/,
		'another transaction to be skipped: which is a warning');
}

# Binary values, which are sent after a reconnection
alter_subscriptions(
	'ALTER TABLE items ALTER v TYPE bigint; ALTER SUBSCRIPTION tap SET (binary = on)'
);
fails_alike(
	'binary value of another type',
	'',
	'INSERT INTO items VALUES (106, 1)',
	$major < 16
	? qr/insufficient data left in message/
	: qr/insufficient data left in message|incorrect binary data format/,
	'ALTER TABLE items ALTER v TYPE int');

# An owner who is not a superuser
my $owner_options =
  $major < 16
  ? ''
  : 'ALTER SUBSCRIPTION tap SET (password_required = false, run_as_owner = true);';
alter_subscriptions(
	"CREATE ROLE applier SUPERUSER LOGIN;
	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO applier;
	$owner_options
	ALTER SUBSCRIPTION tap OWNER TO applier;
	ALTER ROLE applier NOSUPERUSER");
fails_alike(
	'missing privilege',
	'REVOKE UPDATE ON items FROM applier',
	'UPDATE items SET v = 3 WHERE id = 4',
	qr/permission denied for table items/,
	'GRANT UPDATE ON items TO applier');
fails_alike(
	'row-level security',
	'ALTER TABLE items ENABLE ROW LEVEL SECURITY',
	'UPDATE items SET v = 4 WHERE id = 4',
	qr/user "applier" cannot replicate into relation with row-level security enabled: "items"/,
	'ALTER TABLE items DISABLE ROW LEVEL SECURITY');
if ($major >= 16)
{
	alter_subscriptions('ALTER SUBSCRIPTION tap SET (run_as_owner = false)');
	fails_alike(
		'table of another owner',
		'',
		'UPDATE items SET v = 5 WHERE id = 4',
		qr/role "applier" cannot SET ROLE to "\w+"/,
		'ALTER TABLE items OWNER TO applier; ALTER TABLE history OWNER TO applier'
	);
}

# An error that repeats is reported in the same way each time.
{
	alter_subscriptions(
		'ALTER SUBSCRIPTION tap SET (disable_on_error = off)');
	on_both('INSERT INTO items VALUES (107, 0)');
	my @offsets = offsets();
	$publisher->sql('INSERT INTO items VALUES (107, 0)');
	my @logs;
	for my $i (0, 1)
	{
		$subscribers[$i]
		  ->wait_for_log(qr/(ERROR: +($exists).*){3}/s, $offsets[$i]);
		# Whether the next apply worker starts before the last one, or its walsender,
		# is gone is a matter of luck, on a plain server as well.
		my %seen = map { $_ => 1 }
		  grep {
			!/ERROR: .*(replication origin .* is already|replication slot .* is) active/
		  } log_since($subscribers[$i], $offsets[$i]);
		push @logs, join "\n", sort keys %seen;
	}
	is($logs[1], $logs[0],
		'an error that comes again: the log is that of a plain server');
	on_both('DELETE FROM items WHERE id = 107');
	wait_for_both();
}

PapplyPair->new($plain, $subscriber)
  ->rows_equal($_, "$_ is that of a plain server in the end")
  for @tables;
finish($publisher, $plain, $subscriber,
	qr/^logical replication (apply )?worker\| ERROR:  /);
done_testing();
