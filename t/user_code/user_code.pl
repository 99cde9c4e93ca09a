# Promise: what user code does for its transaction ends with it: a setting, a role, a
# deferred trigger, the number and the notifications of the transaction.  A setting
# that it leaves in the session is found by all later transactions, and what it does
# outside of its transaction is done once.  Times of defaults do not decrease in commit
# order.
#
# PostgreSQL's own apply applies the same transactions in the database "serial", and
# both must have the same rows.  A local session's lock on a row of the table gate
# blocks the oldest transaction.  The other writer claims the younger ones together if
# it may, since it is stopped until all of them are queued.
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
		parallel_apply.writers_per_subscription = 2
		parallel_apply.selftest_fast = on
		timezone = 'UTC'
		autovacuum = off));

my $time = '2026-05-01 12:00:00';
my %tables = (
	gate => 'id int PRIMARY KEY, n int',
	plain => 'id int PRIMARY KEY, at text',
	generated => 'id int PRIMARY KEY, at text',
	checked => 'id int PRIMARY KEY, at text',
	late => 'id int PRIMARY KEY, at text',
	leaf => 'id int PRIMARY KEY, at text',
	routed => 'id int PRIMARY KEY, at text',
	ordered => 'id int PRIMARY KEY, at text',
	hashed => 'id int PRIMARY KEY, at text',
	excluded => 'id int PRIMARY KEY, at text',
	typed => 'id int PRIMARY KEY, at text',
	named => 'id int PRIMARY KEY, at text',
	called => 'id int PRIMARY KEY, at text',
	setting => 'id int PRIMARY KEY, at text',
	numbered => 'id int PRIMARY KEY',
	notifying => 'id int PRIMARY KEY',
	deferred => 'id int PRIMARY KEY, v int',
	login => 'id int PRIMARY KEY',
	taking => 'id int PRIMARY KEY',
	moved => 'id int PRIMARY KEY, u int',
	timed => 'id int PRIMARY KEY');
my @tables = sort keys %tables;
$publisher->sql("CREATE TABLE $_ ($tables{$_})") for @tables;
$publisher->sql(
	'INSERT INTO gate VALUES (1, 0); INSERT INTO moved VALUES (1, 1)');
$subscriber->sql('CREATE DATABASE serial');

# In both databases of the subscriber.  Texts are converted to times there, which depends
# on the time zone.
my $triggers = join "\n", map {
	"CREATE TRIGGER code AFTER INSERT ON $_ FOR EACH ROW EXECUTE FUNCTION do_$_();
	ALTER TABLE $_ ENABLE ALWAYS TRIGGER code;"
} qw(setting numbered notifying login taking);
my $is_named =
  $subscriber->pg_version >= 16
  ? q(pg_input_is_valid(at, 'public.at_in_tokyo'))
  : 'is_in_tokyo(at)';
my $definitions = qq(
	CREATE ROLE limited; GRANT ALL ON SCHEMA public TO limited;
	CREATE FUNCTION in_tokyo(s text) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS
		\$\$BEGIN PERFORM set_config('timezone', 'Asia/Tokyo', true); RETURN s::timestamptz; END\$\$;
	CREATE FUNCTION is_in_tokyo(s text) RETURNS boolean LANGUAGE sql AS
		\$\$SELECT set_config('timezone', 'Asia/Tokyo', true) IS NOT NULL\$\$;
	CREATE TABLE gate ($tables{gate});
	CREATE TABLE plain (id int PRIMARY KEY, at timestamptz, who text DEFAULT current_user);
	CREATE TABLE generated (id int PRIMARY KEY, at text, t timestamptz GENERATED ALWAYS AS (in_tokyo(at)) STORED);
	CREATE TABLE checked (id int PRIMARY KEY, at text CHECK (is_in_tokyo(at)));
	CREATE TABLE late ($tables{late});
	CREATE TABLE root (id int, at text) PARTITION BY RANGE (in_tokyo(at));
	CREATE TABLE leaf PARTITION OF root (PRIMARY KEY (id)) FOR VALUES FROM ('2000-01-01') TO (MAXVALUE);
	CREATE TABLE routed (id int, at text) PARTITION BY RANGE (id);
	CREATE TABLE routed_on PARTITION OF routed FOR VALUES FROM (1) TO (MAXVALUE)
		PARTITION BY RANGE (in_tokyo(at));
	CREATE TABLE routed_to PARTITION OF routed_on FOR VALUES FROM ('2000-01-01') TO (MAXVALUE);
	CREATE FUNCTION order_in_tokyo(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		\$\$BEGIN PERFORM public.in_tokyo('2000-01-01'); RETURN \$1 - \$2; END\$\$;
	CREATE FUNCTION hash_in_tokyo(int, bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
		\$\$BEGIN PERFORM public.in_tokyo('2000-01-01'); RETURN \$1; END\$\$;
	CREATE FUNCTION same_in_tokyo(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
		\$\$BEGIN PERFORM public.in_tokyo('2000-01-01'); RETURN \$1 = \$2; END\$\$;
	CREATE OPERATOR === (leftarg = int, rightarg = int, function = same_in_tokyo, commutator = ===);
	CREATE OPERATOR CLASS ordered_ops FOR TYPE int USING btree AS
		OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 order_in_tokyo(int, int);
	CREATE OPERATOR CLASS hashed_ops FOR TYPE int USING hash AS
		OPERATOR 1 =, FUNCTION 2 hash_in_tokyo(int, bigint);
	CREATE OPERATOR CLASS excluded_ops FOR TYPE int USING btree AS
		OPERATOR 3 ===, FUNCTION 1 btint4cmp(int, int);
	CREATE TABLE ordered (id int PRIMARY KEY, at text);
	CREATE INDEX ON ordered (id ordered_ops);
	CREATE TABLE hashed (id int, at text) PARTITION BY HASH (id hashed_ops);
	CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	CREATE TABLE excluded (id int PRIMARY KEY, at text, EXCLUDE (id excluded_ops WITH ===));
	CREATE TYPE mood AS ENUM ('$time');
	CREATE FUNCTION order_moods(mood, mood) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		\$\$BEGIN PERFORM public.in_tokyo('2000-01-01'); RETURN enum_cmp(\$1, \$2); END\$\$;
	CREATE OPERATOR CLASS mood_ops DEFAULT FOR TYPE mood USING btree AS
		OPERATOR 1 < (anyenum, anyenum), OPERATOR 3 = (anyenum, anyenum), FUNCTION 1 order_moods(mood, mood);
	CREATE TYPE moods AS (mood mood);
	CREATE TABLE typed (id int PRIMARY KEY, at mood, moods moods GENERATED ALWAYS AS (ROW(at)::moods) STORED);
	CREATE INDEX ON typed (moods, id);
	CREATE DOMAIN at_in_tokyo AS text CHECK (is_in_tokyo(value));
	CREATE TABLE named (id int PRIMARY KEY, at text CHECK ($is_named));
	CREATE TABLE called (id int PRIMARY KEY, at timestamptz,
		CHECK (set_config('timezone', 'Asia/Tokyo', true) IS NOT NULL));
	CREATE TABLE setting (id int PRIMARY KEY, at timestamptz);
	CREATE TABLE numbered ($tables{numbered});
	CREATE TABLE numbers (xid bigint);
	CREATE TABLE notifying ($tables{notifying});
	CREATE TABLE deferred ($tables{deferred});
	CREATE TABLE seen (id int, v int);
	CREATE TABLE login ($tables{login});
	CREATE TABLE taking ($tables{taking});
	CREATE TABLE taken (n serial, id int);
	CREATE TABLE moved (id int PRIMARY KEY, u int UNIQUE, at timestamptz DEFAULT now());
	CREATE TABLE timed (id int PRIMARY KEY, at timestamptz DEFAULT now());
	CREATE FUNCTION do_setting() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		PERFORM set_config('timezone', 'Asia/Tokyo', true), set_config('role', 'limited', true);
		RETURN NULL; END\$\$;
	CREATE FUNCTION do_numbered() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		INSERT INTO public.numbers SELECT txid_current(); RETURN NULL; END\$\$;
	CREATE FUNCTION do_notifying() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		PERFORM pg_notify('changed', ''); RETURN NULL; END\$\$;
	CREATE FUNCTION do_deferred() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		INSERT INTO public.seen SELECT id, v FROM public.deferred WHERE id = NEW.id; RETURN NULL; END\$\$;
	CREATE CONSTRAINT TRIGGER code AFTER INSERT OR UPDATE ON deferred
		INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION do_deferred();
	ALTER TABLE deferred ENABLE ALWAYS TRIGGER code;
	CREATE FUNCTION do_login() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		IF NEW.id = 1 THEN PERFORM set_config('timezone', 'Asia/Tokyo', false);
		ELSE RESET timezone; END IF;
		RETURN NULL; END\$\$;
	CREATE FUNCTION do_taking() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN
		INSERT INTO public.taken (id) VALUES (NEW.id);
		CREATE TEMPORARY TABLE scratch (id int) ON COMMIT DROP;
		RETURN NULL; END\$\$;
	$triggers);
$subscriber->safe_psql('postgres', $definitions);
$definitions =~ s/CREATE ROLE limited;//;
$subscriber->safe_psql('serial', $definitions);
$subscriber->create_extension;
$subscriber->sql(
	"SELECT parallel_apply.set_table_option('$_', 'triggers', 'parallel')")
  for qw(setting numbered notifying deferred);
$pair->subscribe('tap');
$pair->subscribe_serially;

# Have the transactions claimed together, if they may be.
sub apply_together
{
	my ($prepare, @transactions) = @_;
	$pair->run_behind_gate(
		'SELECT FROM gate FOR UPDATE',
		'UPDATE gate SET n = n + 1',
		\@transactions, undef, $prepare);
	$pair->wait_for_both;
	return;
}

sub same_as_serial
{
	my ($name, @columns) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (@columns)
	{
		my $sql =
		  "SELECT string_agg(t::text, ' ' ORDER BY t) FROM (SELECT $_) t";
		is( $subscriber->sql($sql),
			$subscriber->safe_psql('serial', $sql),
			"$name: $_");
	}
	return;
}

my $row = 0;

sub rows
{
	return map { $row++; "INSERT INTO $_ VALUES ($row, '$time')" } @_;
}

# Settings for the transaction.  Detects: they last as long as a batch.
apply_together(undef, rows(('generated', 'plain') x 4));
same_as_serial('function of a generated column',
	'* FROM plain', '* FROM generated');
apply_together(undef, rows(('checked', 'plain') x 4));
same_as_serial('function of a CHECK', '* FROM plain');
apply_together(undef, rows(('leaf', 'plain') x 4));
same_as_serial('function of the partition key of the parent', '* FROM plain');
apply_together(undef, rows(('routed', 'plain') x 4));
same_as_serial('function of the partition key of a partition',
	'* FROM plain');
apply_together(undef, rows(('hashed', 'plain') x 4));
same_as_serial('function of an operator class of a partition key',
	'* FROM plain');

# INSERTs are deferred, until a row is updated.
for (
	[ 'ordered', 'an operator class of an index' ],
	[ 'excluded', 'an operator of an exclusion constraint' ],
	[ 'named', 'a type that a text names' ],
	[ 'typed', 'the default operator class of a type' ])
{
	my ($table, $what) = @$_;
	apply_together(
		undef,
		map {
			my ($insert, $plain) = rows($table, 'plain');
			("$insert; UPDATE $table SET id = -id WHERE id > 0", $plain)
		} 1 .. 4);
	same_as_serial("function of $what", '* FROM plain');
}
apply_together(undef, rows(('called', 'plain') x 4));
same_as_serial('volatile function of the server', '* FROM plain');
apply_together(undef, rows(('setting', 'plain') x 4));
same_as_serial('trigger that is declared parallel',
	'* FROM plain', '* FROM setting');

# The receiver takes them for members of a batch, and the table changes.  Detects: writers
# rely on the receiver.
$subscriber->safe_psql('serial',
	'ALTER TABLE late ADD CHECK (is_in_tokyo(at))');
apply_together(
	sub { $subscriber->sql('ALTER TABLE late ADD CHECK (is_in_tokyo(at))') },
	rows(('late', 'plain') x 4));
same_as_serial('function that comes late', '* FROM plain');

# Detects: several remote transactions have the same number.
apply_together(undef, map { "INSERT INTO numbered VALUES ($_)" } 1 .. 8);
same_as_serial('number', 'count(DISTINCT xid) FROM numbers');

# Detects: equal notifications become one, because they are of one local transaction.
my $listener = $subscriber->background_psql('postgres');
$listener->query_safe('LISTEN changed');
apply_together(undef, map { "INSERT INTO notifying VALUES ($_)" } 1 .. 8);
my $heard = $listener->query_safe('SELECT 1');
is(scalar(() = $heard =~ /Asynchronous notification "changed"/g),
	8, 'each transaction notifies');
end_sessions($listener);

# Detects: a deferred trigger sees what a younger transaction has changed.
apply_together(
	undef,
	'INSERT INTO deferred VALUES (1, 1)',
	map { "UPDATE deferred SET v = $_" } 2 .. 8);
same_as_serial('deferred trigger', '* FROM seen');

# The second transaction fails as long as the first one has not given up a unique value,
# and begins again after the third one has begun.  Detects: its time is that of its last
# attempt.
$subscriber->reload_with(
	'parallel_apply.writers_per_subscription = 3',
	'parallel_apply.max_batch_transactions = 1');
$subscriber->wait_for_pool('tap', 3);
my $start = $subscriber->sql('SELECT clock_timestamp()');
is( $pair->apply_behind_gate(
		'waiting for lock, waiting for prior commit, waiting for prior commit',
		'the third transaction has begun',
		'UPDATE moved SET u = 5 WHERE id = 1',
		'INSERT INTO moved VALUES (2, 1)',
		'INSERT INTO timed VALUES (1)'),
	'1',
	'the second one begins again');
is( $subscriber->sql(
		"SELECT m.at <= t.at, m.at > '$start' FROM moved m, timed t WHERE m.id = 2"
	),
	't|t',
	'but its time is not later');

# Detects: transactions that run no user code do not find a setting of the session.
# They are in the queue when it is made.
my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1');
$publisher->commit_each('INSERT INTO login VALUES (1)', rows(('plain') x 4));
$subscriber->wait_until(
	"queue_transactions >= 6 FROM parallel_apply.subscriptions WHERE subname = 'tap'",
	'the transactions are not received');
$gate->release;
$pair->wait_for_both;
same_as_serial('setting of the session', '* FROM plain');
$publisher->sql('INSERT INTO login VALUES (2)');
$pair->wait_for_both;
$publisher->commit_each(rows(('plain') x 4));
$pair->wait_for_both;
same_as_serial('setting of the session that has ended', '* FROM plain');

# Detects: a writer runs the code of each transaction before the apply worker does.
$publisher->commit_each(map { "INSERT INTO taking VALUES ($_)" } 1 .. 8);
$pair->wait_for_both;
same_as_serial('temporary table', 'id, n FROM taken');

for my $table (@tables)
{
	my $columns = join ', ', map { /^(\w+)/ } split /, /, $tables{$table};
	next if $columns =~ /at/;
	is( $subscriber->sql(
			"SELECT array_agg(($columns)::text ORDER BY id) FROM $table"),
		$publisher->sql(
			"SELECT array_agg(($columns)::text ORDER BY id) FROM $table"),
		"$table has the same rows on both sides");
}
finish($publisher, $subscriber);
done_testing();
