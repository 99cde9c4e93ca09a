# Recording.pm - what a publisher sends for a workload that has every kind of message, as
# strings for Mutation.pm, and the tables that it leads to.
package Recording;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(record schema contents_query);

# Both servers have these tables.
my $tables = <<'SQL';
CREATE TYPE mood AS ENUM ('calm', 'cross');
CREATE DOMAIN small AS int CHECK (VALUE < 100000);
CREATE TABLE plain (id int PRIMARY KEY, v text, n small, m mood, a int[], f float8, t timestamptz);
CREATE TABLE wide (id int PRIMARY KEY, body text, note text);
ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
CREATE TABLE whole (id int, v text, d date);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE indexed (a int NOT NULL, b text NOT NULL, c int UNIQUE);
CREATE UNIQUE INDEX indexed_key ON indexed (b, a);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_key;
CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (50);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (50) TO (100000);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE watched (id int PRIMARY KEY, v text);
SQL

# Only the subscriber has these.
my $of_subscriber = <<'SQL';
ALTER TABLE plain ADD local text DEFAULT 'here', ADD UNIQUE (v);
CREATE TABLE log (id int);
CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN INSERT INTO public.log VALUES (NEW.id); RETURN NEW; END';
CREATE TRIGGER log_it AFTER INSERT OR UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION log_it();
ALTER TABLE watched ENABLE ALWAYS TRIGGER log_it;
SQL

my @tables = qw(plain wide whole indexed parts parent watched);

# Each is a transaction.  The first one makes what is applied independent of what was there.
my @workload = (
	"TRUNCATE @{[join ', ', @tables]} RESTART IDENTITY",
	q(INSERT INTO plain SELECT i, 'v' || i, i, 'calm', ARRAY[i, NULL], i / 4.0,
		timestamptz '2020-01-01 UTC' + i * interval '1 s' FROM generate_series(1, 40) i),
	(   map {
			"INSERT INTO plain (id, v) VALUES (100 + $_, 'single $_');
			UPDATE plain SET n = $_, m = 'cross' WHERE id = $_;
			DELETE FROM plain WHERE id = 100 + $_ - 1"
		} 1 .. 10),
	'UPDATE plain SET id = id + 1000 WHERE id BETWEEN 20 AND 25',
	q(INSERT INTO wide SELECT i, repeat(md5(i::text), 100), 'note' FROM generate_series(1, 5) i),
	q(UPDATE wide SET note = 'other'; DELETE FROM wide WHERE id = 5),
	q(INSERT INTO whole SELECT i, nullif('w' || i, 'w3'), date '2020-01-01' + i
		FROM generate_series(1, 10) i),
	q(UPDATE whole SET v = 'changed' WHERE id < 4; DELETE FROM whole WHERE id = 10),
	q(INSERT INTO indexed SELECT i, 'b' || i, i FROM generate_series(1, 10) i),
	q(UPDATE indexed SET c = -c; UPDATE indexed SET b = 'new' WHERE a = 1;
		DELETE FROM indexed WHERE a = 2),
	q(INSERT INTO parts SELECT i * 10, 'p' FROM generate_series(1, 9) i),
	q(UPDATE parts SET id = 60 + id / 10 WHERE id = 40; DELETE FROM parts WHERE id = 10),
	q(INSERT INTO parent VALUES (1), (2)),
	q(INSERT INTO watched VALUES (1, 'one'); UPDATE watched SET v = 'two'),
	q(SELECT pg_logical_emit_message(true, 'prefix', 'content')),
	q(SELECT pg_logical_emit_message(false, 'prefix', 'content')),

	# streamed, with parts rolled back
	q(INSERT INTO plain (id, v) SELECT i, i || repeat('s', 600) FROM generate_series(2000, 2040) i;
		SAVEPOINT a;
		INSERT INTO whole SELECT i, repeat('rolled back', 60), NULL FROM generate_series(1, 80) i;
		UPDATE wide SET note = 'rolled back';
		ROLLBACK TO a;
		SAVEPOINT b;
		INSERT INTO indexed SELECT i, repeat('streamed', 60), i FROM generate_series(100, 140) i;
		RELEASE b;
		UPDATE plain SET v = v || '!' WHERE id > 2000),
	q(INSERT INTO wide SELECT i, repeat(md5(i::text), 100), 'streamed' FROM generate_series(10, 40) i),
	q(TRUNCATE parent; INSERT INTO parent SELECT generate_series(1, 10);
		INSERT INTO wide SELECT i, repeat(md5(i::text), 100), NULL FROM generate_series(50, 80) i),
	q(DELETE FROM plain WHERE id > 2000));

# PREPARE and what ends it; the second one is streamed.
my @prepared = (
	[ q(INSERT INTO plain (id, v) VALUES (3000, 'prepared')), 'COMMIT' ],
	[
		q(INSERT INTO wide SELECT i, repeat(md5(i::text), 100), NULL FROM generate_series(100, 130) i),
		'COMMIT'
	],
	[ q(UPDATE whole SET v = 'never'), 'ROLLBACK' ]);

sub schema { return $tables . $of_subscriber; }

# What has been published of all tables
sub contents_query
{
	return 'SELECT concat_ws(chr(10), ' . join(
		', ',
		map {
			my $row = $_ eq 'plain' ? 'ROW(id, v, n, m, a, f, t)' : 't';
			"(SELECT md5(string_agg(r, ',' ORDER BY r)) FROM (SELECT $row\::text FROM $_ t) t (r))"
		} @tables) . ')';
}

# Execute the workload, and return its streams, with values in text and in binary format:
# references to lists of messages.
sub record
{
	my ($node) = @_;
	my $protocol = $node->pg_version >= 16 ? 4 : 3;
	my $n = 0;
	$node->sql($tables);
	$node->sql(
		q(CREATE PUBLICATION fuzz FOR ALL TABLES WITH (publish_via_partition_root = true))
	);
	$node->sql(
		q(SELECT pg_create_logical_replication_slot('fuzz', 'pgoutput', false, true);
		SELECT pg_replication_origin_create('elsewhere')));
	$node->commit_each(@workload);
	$node->safe_psql(
		'postgres',
		q(SELECT pg_replication_origin_session_setup('elsewhere');
		BEGIN;
		SELECT pg_replication_origin_xact_setup('0/ABCD', now());
		INSERT INTO plain (id, v) VALUES (4000, 'from elsewhere');
		COMMIT), on_error_stop => 0);
	for my $prepared (@prepared)
	{
		my $gid = 'gid' . ++$n;
		$node->sql("BEGIN; $prepared->[0]; PREPARE TRANSACTION '$gid'");
		$node->sql('INSERT INTO plain (id, v) VALUES ('
			  . (5000 + $n)
			  . ", 'between $n')");
		$node->sql("$prepared->[1] PREPARED '$gid'");
	}
	return map {
		[
			map {
				my ($lsn, $hex) = split /\|/;
				my ($high, $low) = map { hex } split m{/}, $lsn;
				my $position = $high << 32 | $low;
				pack('a Q> Q> q>', 'w', $position, $position, 0)
				  . pack('H*', $hex)
			} split /\n/,
			$node->sql(
				"SELECT lsn, encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('fuzz',
				NULL, NULL, 'proto_version', '$protocol', 'publication_names', 'fuzz',
				'streaming', 'on', 'two_phase', 'on', 'messages', 'on', 'binary', '$_')")
		]
	} qw(off on);
}

1;
