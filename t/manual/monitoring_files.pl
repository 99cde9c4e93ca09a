# Promise: the files in monitoring/ fit the server and each other.  A member of
# pg_monitor can run the queries, alert rules and dashboard use metrics that exist,
# and the one-line checks detect the faults that they name.
#
# If postgres_exporter, Prometheus and check_postgres are installed (make
# check-monitoring gets them), they are run with these files against the live
# subscriber, one of whose subscriptions has never had an apply worker.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use HTTP::Tiny;
use JSON::PP;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Programs;
use Test::More;

my $files = "$FindBin::RealBin/../../monitoring";
my $exporter = slurp_file("$files/postgres_exporter.yml");
my $rules = slurp_file("$files/prometheus_rules.yml");
my $dashboard = decode_json(slurp_file("$files/grafana_dashboard.json"));
my %check =
  slurp_file("$files/checks.sql") =~ /^-- (\w+): .*; \w+ \d+\n(SELECT .*)/mg;
is( join(' ', sort keys %check),
	'behind degraded disabled missing native stopped',
	'there are these checks');

### PostgreSQL ###############################################################

# A third subscription will find no worker slot.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf => "max_logical_replication_workers = 2\n");
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->create_extension;
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$pair->subscribe('tap');
$publisher->sql('CREATE PUBLICATION other');
$subscriber->sql(
	"CREATE SUBSCRIPTION other CONNECTION '$connstr' PUBLICATION other");
$subscriber->wait_for_pool('other');
$subscriber->sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');

sub as_monitor
{
	my ($sql) = @_;
	return $subscriber->sql($sql, extra_params => [ '-U', 'monitor' ]);
}

sub result_of
{
	my ($name) = @_;
	return as_monitor("SELECT result FROM ($check{$name}) AS checked");
}

# A lag of a moment, and a pool that is being started, are seen, too.
sub checks_become
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $checks = join ' UNION ALL ',
	  map { "SELECT '$_' AS name, result FROM ($check{$_}) AS checked" }
	  sort keys %check;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT string_agg(name || ' ' || result, ' ' ORDER BY name) FROM ($checks) AS results",
			$expected),
		$name);
	isnt(result_of($_), '', "a member of pg_monitor gets the result of $_")
	  for sort keys %check;
	return;
}

sub check_becomes
{
	my ($name, $result, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$subscriber->poll_query_until(
			'postgres',
			"SELECT result = $result FROM ($check{$name}) AS checked"),
		"the check sees $what");
}

sub insert_rows
{
	my ($from, $to) = @_;
	$publisher->sql(
		"INSERT INTO items SELECT i, 0 FROM generate_series($from, $to) i");
	$publisher->wait_applied;
	$subscriber->wait_until_counted;
	return;
}

insert_rows(1, 10);
checks_become('behind 0 degraded 0 disabled 0 missing 0 native 0 stopped 0',
	'the checks find nothing while all is well');

# One name for each column of each query of the exporter
my %metric = (ALERTS => 1);
while ($exporter =~
	/^(\w+):\n  query: \|\n((?: {4}.*\n)+)  metrics:\n((?: {4}.*\n)+)/mg)
{
	my ($query, $sql, $metrics) = ($1, $2, $3);
	my @names = $metrics =~ /^ {4}- (\w+): \{usage: /mg;
	my @values = $metrics =~ /^ {4}- (\w+): \{usage: (?:GAUGE|COUNTER), /mg;
	$metric{"${query}_$_"} = 1 for @values;
	is( as_monitor(
			"SELECT string_agg(k, ' ') FROM json_object_keys((SELECT to_json(q) FROM ($sql) AS q LIMIT 1)) AS k"
		),
		join(' ', @names),
		"a member of pg_monitor gets the metrics $query");
}
is(scalar(grep { /^parallel_apply_(state|tables?|writer)_/ } keys %metric),
	6, 'with all queries');

my @expressions = map { $_->{expr} }
  map { @{ $_->{targets} } } @{ $dashboard->{panels} };
cmp_ok(scalar(@expressions), '>', 10, 'the dashboard has queries');
my %used = map { $_ => 1 }
  join(' ', $rules, @expressions) =~ /\b(parallel_apply_[a-z_]+)(?=[{\[ )])/g;
is(join(' ', grep { !$metric{$_} } sort keys %used),
	'', 'rules and dashboard use metrics that there are');

my $states = as_monitor(
	q(SELECT col_description('parallel_apply.subscriptions'::regclass, attnum)
	FROM pg_attribute WHERE attrelid = 'parallel_apply.subscriptions'::regclass AND attname = 'state')
);
is( join(' ',
		grep { $states !~ /\b\Q$_\E\b/ }
		map { split /\|/ } $rules =~ /\bstate=~?"([^"]+)"/g),
	'',
	'and states that there are');

# No publisher, and then no process: the lag is not known.
$subscriber->sql(
	q(ALTER SUBSCRIPTION other CONNECTION 'host=/nowhere dbname=postgres'));
check_becomes('stopped', 1, 'a subscription without apply worker');
$subscriber->sql("ALTER SUBSCRIPTION other CONNECTION '$connstr'");
check_becomes('stopped', 0, 'that it has one again');
$subscriber->wait_for_pool('other');
$subscriber->sql(
	"CREATE SUBSCRIPTION lost CONNECTION '$connstr' PUBLICATION other");
check_becomes('stopped', 1, 'a subscription without apply worker');
check_becomes('behind', 0, 'no lag of it, which is not known');

# A row that does not exist
$subscriber->sql('DELETE FROM items WHERE id = 1');
$publisher->sql('UPDATE items SET v = 1 WHERE id = 1');
$publisher->wait_applied;
check_becomes('missing', 1, 'a missing row');
$publisher->sql('DELETE FROM items WHERE id = 1');
$publisher->wait_applied;
check_becomes('missing', 2, 'another one');

# Not applied for a while
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$publisher->sql('INSERT INTO items VALUES (11, 0)');
ok( $subscriber->poll_query_until(
		'postgres', "SELECT result >= 1 FROM ($check{behind}) AS checked"),
	'the check sees a lag');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
insert_rows(12, 20);
check_becomes('behind', 0, 'no lag any more');

### other programs ###########################################################

SKIP:
{
	skip 'promtool is not installed (make check-monitoring gets it)', 2
	  unless is_installed('promtool');
	command_ok(
		[ 'promtool', 'check', 'rules', "$files/prometheus_rules.yml" ],
		'promtool accepts the alert rules');
	command_ok(
		[ 'promtool', 'test', 'rules', "$files/prometheus_rules_test.yml" ],
		'their unit tests pass');
}

# Return the value of a metric in the text that an exporter serves.
sub value_of
{
	my ($text, $name, $subscription) = @_;
	my ($value) =
	  $text =~ /^\Q$name\E\{[^}]*subname="$subscription"[^}]*\} (\S+)$/m;
	return $value;
}

my $port;

SKIP:
{
	skip
	  'prometheus-postgres-exporter is not installed (make check-monitoring gets it)',
	  5
	  unless is_installed('prometheus-postgres-exporter');
	$port = PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} =
		'host='
	  . $subscriber->host
	  . ' port='
	  . $subscriber->port
	  . ' user=monitor dbname=postgres sslmode=disable';
	start_program(
		'exporter',
		'prometheus-postgres-exporter',
		"--extend.query-path=$files/postgres_exporter.yml",
		'--disable-default-metrics',
		'--disable-settings-metrics',
		'--no-collector.database',
		'--no-collector.bgwriter',
		"--web.listen-address=127.0.0.1:$port");
	my $text = answer_of(
		"http://127.0.0.1:$port/metrics",
		sub { $_[0] =~ /^parallel_apply_/m }) // '';
	my %served = map { $_ => 1 } $text =~ /^(parallel_apply_\w+)\{/mg;
	is( join(' ', sort keys %served),
		join(' ', sort grep { /^parallel/ } keys %metric),
		'the exporter serves all metrics');
	like(
		$text,
		qr/^pg_exporter_last_scrape_error 0$/m,
		'and has met no error');
	is(value_of($text, 'parallel_apply_subscription_inserts_total', 'tap'),
		20, 'the value of a counter is right');
	is(value_of($text, 'parallel_apply_subscription_lag_seconds', 'lost'),
		'NaN', 'a lag that is not known is no number');
	like(
		$text,
		qr/^parallel_apply_state_current\{[^}]*state="not running",subname="lost"\} 1$/m,
		'the state says why');
}

SKIP:
{
	skip
	  'prometheus or its exporter is not installed (make check-monitoring gets both)',
	  2 + @expressions
	  unless $port && is_installed('prometheus');
	my $home = PostgreSQL::Test::Utils::tempdir();
	my $web = PostgreSQL::Test::Cluster::get_free_port();
	append_to_file("$home/prometheus.yml", <<~"EOT");
		global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
		rule_files: ['$files/prometheus_rules.yml']
		scrape_configs:
		  - job_name: postgres
		    static_configs: [{targets: ['127.0.0.1:$port']}]
		EOT
	start_program(
		'prometheus',
		'prometheus',
		"--config.file=$home/prometheus.yml",
		"--storage.tsdb.path=$home/data",
		"--web.listen-address=127.0.0.1:$web");

	# Return the number of results of a query; -1 for an error.
	my $number_of = sub {
		my $answer = decode_json($_[0]);
		return $answer->{status} eq 'success'
		  ? scalar @{ $answer->{data}{result} }
		  : -1;
	};
	my $query_url = sub {
		return "http://127.0.0.1:$web/api/v1/query?"
		  . HTTP::Tiny->new->www_form_urlencode({ query => $_[0] });
	};
	for my $expression (@expressions)
	{
		$expression =~ s/\$__rate_interval/1m/g;
		$expression =~ s/\$\w+/.*/g;
		ok( answer_of(
				$query_url->($expression),
				sub { $number_of->($_[0]) > 0 }),
			"the dashboard shows $expression");
	}
	my $alert = answer_of(
		$query_url->('ALERTS{subname="lost"}'),
		sub { $number_of->($_[0]) > 0 });
	like($alert // '',
		qr/"ParallelApplyStopped"/,
		'there is an alert for the subscription without apply worker');
	my $loaded = answer_of("http://127.0.0.1:$web/api/v1/rules", sub { 1 })
	  // '';
	unlike($loaded, qr/"health":"err"/, 'no rule meets an error');
}

SKIP:
{
	skip 'check_postgres is not installed (make check-monitoring gets it)', 2
	  unless is_installed('check_postgres');
	my @check = (
		'check_postgres', '--action=custom_query',
		'--dbname=postgres', '--dbuser=monitor',
		'--host=' . $subscriber->host, '--port=' . $subscriber->port,
		'--valtype=integer', '--critical=1');
	command_checks_all(
		[ @check, "--query=$check{stopped}" ],
		2,
		[qr/CRITICAL.*lost: not running/],
		[qr/^$/],
		'check_postgres reports the subscription without apply worker');
	command_checks_all([ @check, "--query=$check{disabled}" ],
		0, [qr/ OK: /], [qr/^$/], 'and that there is no other fault');
}

### more faults ##############################################################

$subscriber->wait_until_counted;
$subscriber->sql(q(SELECT parallel_apply.reset_stats()));
check_becomes('missing', 0, 'no missing row after reset_stats()');

$subscriber->sql('DROP SUBSCRIPTION lost');
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');
my $offset = -s $subscriber->logfile;
$subscriber->sql('INSERT INTO items VALUES (21, 0)');
$publisher->sql('INSERT INTO items VALUES (21, 0)');
check_becomes('disabled', 1, 'a subscription that was disabled by an error');
my ($lsn) = slurp_file($subscriber->logfile, $offset) =~ m{finished at (\S+)};
$subscriber->sql(
	"ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn'); ALTER SUBSCRIPTION tap ENABLE"
);
$publisher->wait_applied;
check_becomes('disabled', 0, 'that it is enabled again');

$pair->rows_equal('items');
finish($publisher, $subscriber, duplicate_key('items'),
	qr/could not connect to the publisher/);
done_testing();
