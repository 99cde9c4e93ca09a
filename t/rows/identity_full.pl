# Promise: rows of tables without a key, which the publisher sends as a whole
# (REPLICA IDENTITY FULL), are found by an index of the subscriber, and each is the
# row that PostgreSQL's own apply would change.
#
# A second database of the subscriber has the same tables and subscribes to the same
# publication, but has no extension.  Results are compared with it.  The server's
# scan counters show whether an index was used.  The comment of each part names the
# faults that it detects.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => "parallel_apply.writers_per_subscription = 4\n"
	  . "parallel_apply.max_batch_transactions = 3\n");
my $has_icu = `pg_config --configure` =~ /--with-icu/;
$subscriber->sql('CREATE DATABASE serial');

sub on_both_subscribers
{
	my ($sql) = @_;
	$subscriber->safe_psql($_, $sql) for qw(postgres serial);
	return;
}

# For each table: columns on the publisher; columns on the subscriber, where they
# differ; its index; whether the index can be used; a statement that changes the
# table.  Each table has rows k = 1 .. 40, in groups by g with some NULL, each row
# twice.
my %tables = (
	single => { index => '(g)' },
	descending => { index => '(g DESC NULLS FIRST)' },
	composite => { index => '(g, t, k)' },
	included => { index => '(g) INCLUDE (k)' },
	numbers => { index => '(n)' },
	hashed => { index => 'USING hash (g)' },
	partly => { index => '(t, lower(t), k)' },
	layout => {
		columns =>
		  'gone int, twice int GENERATED ALWAYS AS (k * 2) STORED, t text,'
		  . ' extra text, k int, gone2 text, n numeric, g int',
		then => 'ALTER TABLE layout DROP gone, DROP gone2',
		index => '(g, extra, k)'
	},
	generated => {
		columns =>
		  'g int, twice int GENERATED ALWAYS AS (k * 2) STORED, k int, t text, n numeric',
		index => '(g, twice, k)'
	},
	pattern => { index => '(t text_pattern_ops)' },
	image => {
		remote =>
		  'g int, k int, t text, n numeric, a amount DEFAULT ROW(1.0)',
		index => '(a record_image_ops)',
		unused => 1
	},
	expression => { index => '(lower(t), g)', unused => 1 },
	partial => { index => '(g) WHERE k > 0', unused => 1 },
	foreign_first => {
		columns => 'extra int, g int, k int, t text, n numeric',
		index => '(extra, g)',
		unused => 1
	},
	no_btree => { index => 'USING brin (g)', unused => 1 },
	not_comparable => {
		remote => 'j json, g int, k int, t text, n numeric',
		index => '(g)',
		unused => 1
	},
	not_valid => {
		index => '(g)',
		then => "UPDATE pg_index SET indisvalid = false
			WHERE indrelid = 'not_valid'::regclass",
		unused => 1
	});
if ($has_icu)
{
	my $columns = 'g int, k int, t text COLLATE nocase, n numeric';
	on_both_subscribers(
		q(CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false))
	);
	$tables{nocase} = { columns => $columns, index => '(t)' };
	$tables{other_collation} =
	  { columns => $columns, index => '(t COLLATE "C")', unused => 1 };
}

$publisher->sql('CREATE TYPE amount AS (n numeric)');
on_both_subscribers('CREATE TYPE amount AS (n numeric)');
foreach my $name (sort keys %tables)
{
	my $table = $tables{$name};
	my $remote = $table->{remote} // 'g int, k int, t text, n numeric';
	my $local = $table->{columns} // $remote;
	$publisher->sql(
		qq(CREATE TABLE $name ($remote); ALTER TABLE $name REPLICA IDENTITY FULL;
		INSERT INTO $name (g, k, t, n) SELECT nullif(k % 8, 0), k, nullif('t' || k % 3, 't0'), k / 2.0
			FROM generate_series(1, 40) k, generate_series(1, 2);)
	);
	on_both_subscribers(
		qq(CREATE TABLE $name ($local);
		CREATE INDEX ${name}_index ON $name $table->{index};)
		  . ($table->{then} // ''));
}
$publisher->sql(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	INSERT INTO gate VALUES (1, 0);
	CREATE TABLE parts (region text, v int, k int);
	ALTER TABLE parts REPLICA IDENTITY FULL;
	INSERT INTO parts SELECT chr(97 + k % 2), k % 5, k FROM generate_series(1, 40) k;
	CREATE TABLE later (g int, k int);
	ALTER TABLE later REPLICA IDENTITY FULL;
	INSERT INTO later SELECT k % 5, k FROM generate_series(1, 40) k;
	CREATE TABLE two_indexes (g int, k int);
	ALTER TABLE two_indexes REPLICA IDENTITY FULL;
	INSERT INTO two_indexes SELECT 1, k FROM generate_series(1, 40) k;)
);
on_both_subscribers(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE parts (k int, region text, v int) PARTITION BY LIST (region);
	CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
	CREATE TABLE parts_b (v int, gone int, k int, region text);
	ALTER TABLE parts_b DROP gone;
	ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
	CREATE INDEX parts_a_index ON parts_a (v);
	CREATE INDEX parts_b_index ON parts_b (k);
	CREATE TABLE later (g int, k int);
	CREATE TABLE two_indexes (g int, k int NOT NULL);
	CREATE INDEX many ON two_indexes (g);
	CREATE UNIQUE INDEX one ON two_indexes (k);)
);

# From 18 on, the index of an identity need not be a btree.
my $has_spans = $subscriber->pg_version >= 18;
if ($has_spans)
{
	my $spans =
	  'CREATE TABLE spans (id int4range, during int4range, v int, PRIMARY KEY (id, during WITHOUT OVERLAPS));';
	$publisher->sql(
		"$spans INSERT INTO spans SELECT int4range(i, i + 1), '[1,5)', i FROM generate_series(1, 4) i"
	);
	on_both_subscribers($spans);
}

# In 18, not all rows need a key.
my $has_null_keys = int $subscriber->pg_version == 18;
if ($has_null_keys)
{
	$publisher->sql(
		q(CREATE TABLE keyless (id int, v int);
		ALTER TABLE keyless REPLICA IDENTITY FULL;
		INSERT INTO keyless VALUES (NULL, 1), (2, 2);)
	);
	on_both_subscribers(
		q(CREATE TABLE keyless (id int, v int);
		CREATE UNIQUE INDEX keyless_id ON keyless (id);)
	);
}

$subscriber->create_extension;
$pair->subscribe('tap');
$pair->subscribe_serially;

# Scans of an index of the subscriber, or sequential scans of a table
sub scans
{
	my ($table, $index) = @_;
	return $subscriber->sql(
		$index
		? "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '$index'"
		: "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = '$table'"
	);
}

# Assert that changes scan an index for each row, and not the table, or the
# opposite.  Each element is: whether the index is used, table, index, rows,
# statements.
sub indexes_are_used
{
	my (@changes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @before = map { [ scans($_->[1], $_->[2]), scans($_->[1]) ] } @changes;
	$pair->apply_to_both(join '', map { $_->[4] } @changes);
	foreach my $change (@changes)
	{
		my ($is_used, $table, $index, $rows) = @$change;
		my ($of_index, $of_table) = @{ shift @before };
		my ($from, $least) =
		  $is_used
		  ? (
			"idx_scan >= %s FROM pg_stat_user_indexes WHERE indexrelname = '$index'",
			$of_index + $rows)
		  : (
			"seq_scan >= %s FROM pg_stat_user_tables WHERE relname = '$table'",
			$of_table + $rows);
		ok( $subscriber->poll_query_until(
				'postgres', sprintf("SELECT $from", $least)),
			"$table: its rows are found "
			  . ($is_used ? "by $index" : 'without index'));
		cmp_ok(
			$is_used
			? scans($table) - $of_table
			: scans($table, $index) - $of_index,
			'<', $rows, "$table: and not in the other way");
	}
	return;
}

# Updates and deletes of duplicates and of rows with NULL keys, also several times
# in a transaction; each changes one row.
sub change
{
	my ($table, $g) = @_;
	my $one =
	  "ctid = (SELECT min(ctid) FROM $table WHERE g IS NOT DISTINCT FROM $g)";
	return qq(BEGIN; UPDATE $table SET t = t || 'x', n = n + 0.10 WHERE $one;
		UPDATE $table SET k = -k WHERE $one; DELETE FROM $table WHERE $one; COMMIT;
		DELETE FROM $table WHERE $one;
		UPDATE $table SET n = n * 1.00, k = k + 100 WHERE $one;
		UPDATE $table SET g = 9 WHERE $one;);
}

# Detects: an index that is not used, or that misses rows; a candidate not compared
# with the whole row; keys taken from the wrong columns; equality of another type.
sub first_change
{
	my ($table) = @_;
	my @groups = $table eq 'hashed' ? (1, 2) : ('NULL', 2, 'NULL');
	return [
		!$tables{$table}{unused}, $table,
		"${table}_index", 6 * @groups,
		join('', map { change($table, $_) } @groups)
	];
}
indexes_are_used(
	(map { first_change($_) } sort keys %tables),
	[
		1, 'two_indexes', 'one', 3,
		'UPDATE two_indexes SET g = 2 WHERE k IN (7, 8, 20);'
	],

	# Detects: the index of the wrong partition; the root's column numbers.
	[
		1,
		'parts_a',
		'parts_a_index',
		3,
		'UPDATE parts SET k = k + 100 WHERE k IN (2, 4); DELETE FROM parts WHERE k = 12;'
	],
	[
		1,
		'parts_b',
		'parts_b_index',
		3,
		q(UPDATE parts SET v = v + 1 WHERE k IN (1, 3); UPDATE parts SET region = 'b' WHERE k = 11;)
	]);
$pair->same_as_serial('where each partition has an index of its own',
	'parts');

# A hash index cannot find NULL.  The value of the subscriber equals that of the
# publisher, but is not identical to it.
$pair->apply_to_both(
	join('', map { change('hashed', $_) } qw(NULL 3))
	  . q(UPDATE numbers SET n = 1.0 WHERE n = 1));
on_both_subscribers(
	q(UPDATE numbers SET n = n::numeric(20, 5);
	UPDATE composite SET k = 1000 WHERE g = 3; DELETE FROM single WHERE g = 3;
	UPDATE image SET a = ROW(1.00) WHERE g = 3;
	UPDATE layout SET extra = 'local' WHERE k % 2 = 1;)
	  . (
		$has_icu
		? 'UPDATE nocase SET t = upper(t); UPDATE other_collation SET t = upper(t);'
		: ''));
$pair->apply_to_both(
	join(
		'',
		map {
			my $table = $_;
			map { change($table, $_) } qw(3 4 NULL)
		  }
		  sort keys %tables));
# From 16 on, serial apply uses indexes that do not find all rows: not those with
# NULL, with a value that is computed here, or with a value that is equal but not
# identical.
$pair->same_as_serial(
	'after changes of many kinds',
	grep {
			 $subscriber->pg_version < 16
		  || $_ !~ /^(hashed|generated|image|other_collation)$/
	  }
	  sort keys %tables);
for my $table (
	grep { $_ !~ /^(single|composite|numbers|layout)$/ }
	sort keys %tables)
{
	my $sql = "SELECT g, k, lower(t), n FROM $table ORDER BY 1, 2, 3, 4";
	is( $subscriber->sql($sql),
		$publisher->sql($sql),
		"$table has the rows of the publisher");
}

# Detects: an index that a writer does not notice, or that it continues to use.
sub later
{
	my ($is_used, $index, $first) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	indexes_are_used(
		[
			$is_used,
			'later',
			$index,
			4,
			"UPDATE later SET k = k + 100 WHERE k BETWEEN $first AND $first + 3"
		]);
	return;
}
on_both_subscribers('CREATE INDEX unusable ON later (lower(g::text))');
later(0, 'unusable', 1);
on_both_subscribers('CREATE INDEX CONCURRENTLY later_1 ON later (g)');
later(1, 'later_1', 5);
on_both_subscribers(
	'CREATE INDEX later_2 ON later (k, g); DROP INDEX later_1');
later(1, 'later_2', 9);
on_both_subscribers('ALTER TABLE later ALTER k TYPE bigint');
later(1, 'later_2', 13);
on_both_subscribers('DROP INDEX CONCURRENTLY later_2');
later(0, 'unusable', 17);
$pair->same_as_serial('while indexes come and go', 'later');

# A key that only overlaps belongs to another row, which must not be changed.
# Detects: the strategy number of equality in a btree used for any index.
if ($has_spans)
{
	on_both_subscribers(q{UPDATE spans SET during = '[1,10)' WHERE v <= 2});
	$pair->apply_to_both(
		'UPDATE spans SET v = v + 10 WHERE v IN (1, 3); DELETE FROM spans WHERE v IN (2, 4);'
	);
	$pair->same_as_serial('where keys overlap', 'spans');
}

# Detects: a row with a NULL key that is not found by an identity.
if ($has_null_keys)
{
	on_both_subscribers(
		q(ALTER TABLE keyless ADD CONSTRAINT keyed NOT NULL id NOT VALID;
		ALTER TABLE keyless REPLICA IDENTITY USING INDEX keyless_id;)
	);
	$pair->apply_to_both('UPDATE keyless SET id = 1, v = 11 WHERE v = 1');
	$pair->same_as_serial('where a key is NULL', 'keyless');
	$pair->rows_equal('keyless');
}

# Another session changes the row.  Detects: no wait for it, or no new search after
# the wait.
for my $end (qw(ROLLBACK COMMIT))
{
	my $session = $subscriber->hold(
		q(UPDATE single SET k = -1000 WHERE g = 5; DELETE FROM parts WHERE k = 20)
	);
	$publisher->sql(
		q(UPDATE single SET t = t || 'held' WHERE g = 5; UPDATE parts SET v = v + 1 WHERE k = 20)
	);
	$subscriber->states_become('waiting for lock, waiting for lock',
		"rows that others are changing are waited for, until $end");
	$session->query_safe($end);
	$session->quit;
	$pair->wait_for_both;
	next if $end eq 'COMMIT';
	$pair->same_as_serial("after $end", qw(single parts));
}
is( $subscriber->sql(
		q(SELECT count(*) FILTER (WHERE k = -1000) || ' ' || count(*) FILTER (WHERE t LIKE '%heldheld')
		FROM single WHERE g = 5)),
	$publisher->sql('SELECT count(*) FROM single WHERE g = 5') . ' 0',
	'a row that others have changed is not that of the publisher');

is($subscriber->counter('fallbacks'),
	0, 'nothing of this was replayed by PostgreSQL itself');
$pair->rows_equal($_) for qw(later two_indexes);
$subscriber->nothing_is_left_open;
finish($publisher, $subscriber);
done_testing();
