# Promise: with other libraries preloaded before parallel_apply and after it, rows
# are the same as with PostgreSQL's own apply in another database, and so are the
# statements that pg_stat_statements counts.  Values of citext are equal keys even
# if their case differs.
#
# The libraries are those of contrib.  With NEIGHBORS=1 (make check-neighbors) there
# are others as well, which must be installed: libraries to preload, types in keys
# and exclusion constraints, output plugins of the publisher, and pg_repack and
# pg_partman running on subscribed tables.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'there are no contrib modules'
  unless has_module('pg_stat_statements') && has_module('citext');
my $all = $ENV{NEIGHBORS};

my @libraries = ('pg_stat_statements', 'auto_explain');
push @libraries,
  qw(pgaudit pg_cron pg_partman_bgw pg_stat_kcache pg_wait_sampling pg_qualstats set_user pglogical)
  if $all;
my $conf = <<~'CONF';
	pg_stat_statements.track = all
	auto_explain.log_min_duration = 0
	auto_explain.log_nested_statements = on
	auto_explain.log_analyze = on
	CONF
$conf .= <<~'CONF' if $all;
	cron.database_name = postgres
	pg_qualstats.sample_rate = 1
	CONF

sub preloaded_with
{
	return "shared_preload_libraries = '" . join(',', @_) . "'";
}

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => preloaded_with('parallel_apply'),
	subscriber_conf => $conf
	  . preloaded_with(@libraries, 'parallel_apply') . "\n");
$subscriber->create_extension;
$subscriber->sql('CREATE DATABASE serial');

# Execute on the publisher and in both databases of the subscriber.
sub exec_everywhere
{
	my ($sql) = @_;
	$pair->exec_both($sql);
	$subscriber->safe_psql('serial', $sql);
	return;
}

# A table with its transactions, each of which is run with $i from 1 to 60.  Rows of
# most are replaced by equal ones with another spelling.
my %transactions = (
	plain => [
		'CREATE TABLE plain (id int PRIMARY KEY, v int)',
		'INSERT INTO plain VALUES ($i % 7, $i) ON CONFLICT (id) DO UPDATE SET v = $i'
	],
	audited => [
		'CREATE TABLE audited (id int PRIMARY KEY, v int); CREATE TABLE audit (id int, v int)',
		'INSERT INTO audited VALUES ($i + $base, 0)',
		'UPDATE audited SET v = $i WHERE id = $i + $base'
	],
	names => [
		'CREATE TABLE names (name citext PRIMARY KEY, v int)',
		'DELETE FROM names WHERE name = (\'NAME\' || $i % 3)::citext',
		'INSERT INTO names VALUES (CASE $i % 2 WHEN 0 THEN \'Name\' ELSE \'nAME\' END || ($i % 3), $i)'
	],
	aliases => [
		'CREATE TABLE aliases (id int PRIMARY KEY, name citext UNIQUE)',
		'DELETE FROM aliases WHERE name = (\'ALIAS\' || $i % 3)::citext',
		'INSERT INTO aliases VALUES ($i + $base, CASE $i % 2 WHEN 0 THEN \'Alias\' ELSE \'aLIAS\' END || ($i % 3))'
	],
	taken => [
		'CREATE TABLE taken (id int PRIMARY KEY, name citext, EXCLUDE USING hash (name WITH =))',
		'DELETE FROM taken WHERE name = (\'TAKEN\' || $i % 3)::citext',
		'INSERT INTO taken VALUES ($i + $base, CASE $i % 2 WHEN 0 THEN \'Taken\' ELSE \'tAKEN\' END || ($i % 3))'
	]);
my @extensions = ('citext');

if ($all)
{
	push @extensions, 'hll', 'postgis';
	$transactions{places} = [
		'CREATE TABLE places (at geometry PRIMARY KEY, area geometry, EXCLUDE USING gist (area WITH &&))',
		'DELETE FROM places WHERE at = ST_Point($i % 3, 0)',
		'INSERT INTO places VALUES (ST_Point($i % 3, 0), ST_MakeEnvelope(10 * ($i % 3), 0, 10 * ($i % 3) + 5, 5))',
		'UPDATE places SET area = ST_Translate(area, 0, $i) WHERE at = ST_Point($i % 3, 0)'
	];
	$transactions{visitors} = [
		'CREATE TABLE visitors (day int PRIMARY KEY, seen hll)',
		'INSERT INTO visitors VALUES ($i + $base, hll_empty())',
		'UPDATE visitors SET seen = hll_add(seen, hll_hash_integer($i)) WHERE day = $i + $base'
	];
}
my @tables = sort keys %transactions;
exec_everywhere("CREATE EXTENSION $_") for @extensions;
# PostGIS cannot be created while everything is audited.
$subscriber->reload_with('pgaudit.log = all', 'pgaudit.log_parameter = on')
  if $all;
exec_everywhere($transactions{$_}[0]) for @tables;
$subscriber->safe_psql(
	$_,
	q(CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.audit VALUES (new.id, new.v);
		RETURN NULL;
	END $$;
	CREATE TRIGGER note_change AFTER INSERT OR UPDATE ON audited
		FOR EACH ROW EXECUTE FUNCTION note_change();
	ALTER TABLE audited ENABLE ALWAYS TRIGGER note_change;)
) for 'postgres', 'serial';

$subscriber->sql('CREATE EXTENSION pg_stat_statements');
if ($all)
{
	$subscriber->sql("CREATE EXTENSION $_")
	  for
	  qw(pgaudit pg_cron pg_stat_kcache pg_wait_sampling pg_qualstats set_user pg_repack);
	$subscriber->sql('CREATE SCHEMA partman');
	$subscriber->sql('CREATE EXTENSION pg_partman SCHEMA partman');
}
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE ' . join ', ',
	@tables);
$pair->subscribe_serially;

my $base = 0;

sub run_transactions
{
	my @statements;
	for my $i (1 .. 60)
	{
		for my $table (@tables)
		{
			my (undef, @templates) = @{ $transactions{$table} };
			push @statements,
			  map { s/\$i/$i/gr =~ s/\$base/$base/gr } @templates;
		}
	}
	$base += 100;
	$publisher->sql(join '', map { "$_;\n" } @statements);
	return;
}

# The statements that were counted in a database, except those of this test
sub statements_of
{
	my ($db) = @_;
	return $subscriber->sql(
		"SELECT s.calls, s.rows, s.query FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
		WHERE d.datname = '$db' AND s.query !~ '(pg_stat_|parallel_apply|^SELECT .1\\M)' ORDER BY s.query"
	);
}

# All transactions wait until they are applied together.
sub compare_with_native
{
	my ($order) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$subscriber->wait_for_pool('tap');
	my $offset = -s $subscriber->logfile;
	$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
	$subscriber->sql(
		'SELECT count(*) FROM (SELECT pg_stat_statements_reset()) AS reset');
	run_transactions();
	$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
	$publisher->wait_applied($_) for 'tap', 'serial';
	my $counted = statements_of('postgres');
	is($counted, statements_of('serial'),
		"$order: the statements are counted that PostgreSQL's own apply counts"
	);
	like(
		$counted,
		qr/^120\|120\|INSERT INTO public.audit /m,
		"$order: those of a trigger");
	like(
		slurp_file($subscriber->logfile, $offset),
		qr/Query Text: INSERT INTO public.audit /,
		"$order: auto_explain logs them, too");

	for my $table (@tables, 'audit')
	{
		is( rows_of('postgres', $table),
			rows_of('serial', $table),
			"$order: $table is as by PostgreSQL's own apply");
	}
	$pair->rows_equal($_, "$order: $_ is equal on both sides") for @tables;
	$subscriber->counter_becomes('transactions', '> 60',
		"$order: writers have applied them");
	return;
}

sub rows_of
{
	my ($db, $table) = @_;
	return $subscriber->safe_psql($db,
		qq(SELECT string_agg(r::text, E'\\n' ORDER BY r::text COLLATE "C") FROM $table AS r)
	);
}

compare_with_native('after the others');
$subscriber->adjust_conf(
	'postgresql.conf',
	'shared_preload_libraries',
	"'" . join(',', 'parallel_apply', @libraries) . "'");
$subscriber->restart;
compare_with_native('before the others');

if ($all)
{
	run_output_plugins();
	$subscriber->safe_psql('serial', 'DROP SUBSCRIPTION serial');
	run_repack();
	run_partman();
}
finish($publisher, $subscriber,
	qr/FATAL: +terminating .* due to administrator command/);
done_testing();

# Other plugins of a publisher that preloads parallel_apply: a walsender sends what
# the SQL function returns.
sub run_output_plugins
{
	my %options = (
		wal2json => [],
		decoderbufs => [ 'debug-mode', '1' ]);
	# Newer minor versions accept only the output plugins that a setting lists.
	my $allowed =
	  $publisher->sql(
		q(SELECT current_setting('output_plugin_libraries', true)));
	if ($allowed ne '')
	{
		my $wanted = join ', ', $allowed, sort keys %options;
		$publisher->reload_with("output_plugin_libraries = '$wanted'");
		$publisher->poll_query_until('postgres',
			"SELECT current_setting('output_plugin_libraries') = '$wanted'")
		  or die 'the setting is not reloaded';
	}
	for my $plugin (sort keys %options)
	{
		$publisher->sql(
			"SELECT count(*) FROM pg_create_logical_replication_slot('$plugin', '$plugin')"
		);
	}
	run_transactions();
	$publisher->sql('INSERT INTO plain VALUES (1000, 0)');
	my $end = $publisher->sql('SELECT pg_current_wal_flush_lsn()');
	for my $plugin (sort keys %options)
	{
		my $options = join(', ',
			map { "'$_'" } $plugin,
			'NULL', 'NULL', @{ $options{$plugin} }) =~ s/'NULL'/NULL/gr;
		# A walsender has no search_path, which shows in the names of types.
		my $expected = $publisher->sql(
			"BEGIN; SET LOCAL search_path = ''; SELECT data FROM pg_logical_slot_peek_changes($options); COMMIT"
		);
		my @options = @{ $options{$plugin} };
		my ($sent, $messages) = run_command(
			[
				'pg_recvlogical',
				'-d',
				$publisher->connstr('postgres'),
				'-S',
				$plugin,
				'--start',
				'--no-loop',
				'-f',
				'-',
				'-E',
				$end,
				(@options ? ('-o', join '=', @options) : ())
			]);
		my @sent = split /\n/, $sent;
		my @expected = split /\n/, $expected;
		is_deeply(\@sent, \@expected, "$plugin sends what it decodes");
		$publisher->sql("SELECT pg_drop_replication_slot('$plugin')");
	}
	$publisher->sql('DELETE FROM plain WHERE id = 1000');
	$publisher->wait_applied($_) for 'tap', 'serial';
	return;
}

sub run_repack
{
	$pair->create_accounts;
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE accounts, history');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_until_ready;
	$pair->under_load(
		sub {
			$subscriber->wait_for_progress;
			for my $table ('accounts', 'history')
			{
				$subscriber->command_ok(
					[
						'pg_repack', '-d', 'postgres', '-h',
						$subscriber->host, '-p', $subscriber->port, '-t',
						$table
					],
					"pg_repack rewrites $table while it is changed");
				$subscriber->wait_for_progress;
			}
		});
	$pair->accounts_are_equal('after pg_repack');
	return;
}

sub run_partman
{
	my $table = 'CREATE TABLE events (id int PRIMARY KEY, v int)';
	$publisher->sql($table);
	$subscriber->sql("$table PARTITION BY RANGE (id)");
	$subscriber->sql(
		q(SELECT partman.create_parent('public.events', 'id', 'native', '100'))
	);
	$publisher->sql('ALTER PUBLICATION tap ADD TABLE events');
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wait_until_ready;
	for my $part (0 .. 9)
	{
		$publisher->sql(
			"INSERT INTO events SELECT i, 0 FROM generate_series($part * 100 + 1, $part * 100 + 100) i"
		);
		$publisher->sql(
			"UPDATE events SET v = v + 1 WHERE id % 10 = 0 AND id > $part * 100 - 50"
		);
		$publisher->wait_applied;
		$subscriber->sql(q(SELECT partman.run_maintenance('public.events')));
	}
	cmp_ok(
		$subscriber->sql(
			q(SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass)
		),
		'>', 10,
		'pg_partman has made partitions');
	is($subscriber->sql(q(SELECT count(*) FROM ONLY events_default)),
		'0', 'and no row is in another one');
	$pair->rows_equal('events');
	return;
}
