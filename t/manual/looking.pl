# Promise: the commands of the manual for these tasks work as they are written
# there, and print what is written there: to find out what slows a subscription down,
# with each of three reasons forced, and to end that; to see rows that are missing;
# to see how far a copy is; to find triggers that leave something in their session;
# and to list views, functions and settings.  (first_weeks.pl says where the
# other tasks are.)
#
# Row locks of a session on the subscriber force the waits.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use ManualPages;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both('CREATE TABLE orders (id int PRIMARY KEY, amount int)');
$publisher->sql(
	'INSERT INTO orders SELECT i, 0 FROM generate_series(1, 300) i');
$subscriber->create_extension;
$pair->subscribe('s', publication => 'FOR TABLE orders');
run_manual_on($subscriber);

# Assert that advice() has that many rows of a topic.
sub advice_has
{
	my ($count, $topic, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT count(*) FROM parallel_apply.advice('s') WHERE topic = '$topic'",
			$count),
		$name);
	return;
}

### a trigger ##################################################################

my $page = 'doc/monitoring.md';
$subscriber->sql(
	q(CREATE TABLE audit (id int);
	CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO public.audit VALUES (NEW.id); RETURN NEW; END';
	CREATE TRIGGER audit BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION audit();
	ALTER TABLE orders ENABLE ALWAYS TRIGGER audit));
$publisher->sql(join '',
	map { "UPDATE orders SET amount = 1 WHERE id = $_;\n" } 1 .. 100);
$publisher->wait_applied('s');
$subscriber->wait_until(
	q(exclusive_table = 100 FROM parallel_apply.subscription_stats WHERE subname = 's'),
	'the transactions are not counted');
prints_what_is_written($page,
	'SELECT level, advice FROM parallel_apply.advice(\'s\') WHERE topic = \'exclusive_table\''
);
execute($page, 'SELECT parallel_apply.set_table_option(');
prints_what_is_written($page, 'SELECT relname, apply_mode');
advice_has(0, 'exclusive_table', 'the advice is gone');
$publisher->sql(join '',
	map { "UPDATE orders SET amount = 2 WHERE id = $_;\n" } 1 .. 100);
$publisher->wait_applied('s');
$subscriber->wait_until(
	q(transactions >= 200 FROM parallel_apply.subscription_stats WHERE subname = 's'),
	'the transactions are not counted');
is( $subscriber->sql(
		q(SELECT exclusive_table FROM parallel_apply.subscription_stats WHERE subname = 's')
	),
	100,
	'transactions are no longer applied alone');
is($subscriber->sql('SELECT count(*) FROM audit'),
	200, 'and fire the trigger all the same');

### a row that many transactions change ########################################

$subscriber->sql(q(SELECT parallel_apply.reset_stats('s')));
my $session = $subscriber->hold('SELECT FROM orders WHERE id = 1 FOR UPDATE');
$publisher->sql(
	"UPDATE orders SET amount = amount + 1 WHERE id = 1;\n" x 200);
$subscriber->wait_until(
	q(count(*) FILTER (WHERE state = 'waiting for lock') = 1
		AND count(*) FILTER (WHERE state = 'waiting for dependency') >= 1
	FROM parallel_apply.writers WHERE subname = 's'),
	'writers do not wait for the row');

### a lock of a local session ##################################################

prints_what_is_written($page, 'SELECT advice FROM');
prints_what_is_written($page, 'SELECT state, blocked_by');
is( $subscriber->sql(
		q(SELECT blocked_by FROM parallel_apply.writers WHERE state = 'waiting for lock')
	),
	'{' . $session->query_safe('SELECT pg_backend_pid()') . '}',
	'it is the session that holds the lock');
advice_has(0, 'publisher', 'the publisher is not blamed');
$session->release;
$publisher->wait_applied('s');
advice_has(0, 'lock', 'the advice is gone when the session has ended');
$subscriber->wait_until(
	q(EXISTS (SELECT FROM parallel_apply.hot_keys WHERE key IS NOT NULL)),
	'the waits are not counted');
prints_what_is_written($page, 'SELECT relname, cause, key');
$pair->rows_equal('orders');

### rows that are missing ######################################################

is($subscriber->sql('SELECT count(*) FROM parallel_apply.conflicts'),
	'0', 'no row is missing yet');
$subscriber->sql('DELETE FROM orders WHERE id IN (201, 202, 203)');
my $missing = 0;
for my $change (
	'UPDATE orders SET amount = 9 WHERE id = 201',
	'UPDATE orders SET amount = 9 WHERE id = 202',
	'DELETE FROM orders WHERE id = 203')
{
	$publisher->sql($change);
	$publisher->wait_applied('s');
	$missing++;
	$subscriber->wait_until(
		"sum(update_missing + delete_missing) = $missing FROM parallel_apply.conflicts",
		'a missing row is not counted');
}
prints_what_is_written($page, 'SELECT relname, update_missing');
prints_what_is_written($page,
	'SELECT level, advice FROM parallel_apply.advice(\'s\') WHERE topic = \'conflicts\''
);
is( $subscriber->sql(
		q(SELECT missing FROM parallel_apply.tables WHERE relname = 'orders')
	),
	'3',
	'parallel_apply.tables has the same number');
$subscriber->sql(
	q(SET session_replication_role = replica; INSERT INTO orders VALUES (201, 9), (202, 9))
);
execute($page, 'SELECT parallel_apply.reset_stats(');
$publisher->sql('UPDATE orders SET amount = 10 WHERE id = 201');
$publisher->wait_applied('s');
advice_has(0, 'conflicts', 'nothing is missing after the repair');
is($subscriber->sql('SELECT count(*) FROM parallel_apply.conflicts'),
	'0', 'and nothing is counted');
$pair->rows_equal('orders');

### how far a copy is ##########################################################

# A trigger keeps the copy from its end.
$pair->exec_both('CREATE TABLE refunds (id int PRIMARY KEY)');
$publisher->sql('INSERT INTO refunds VALUES (1), (2)');
$subscriber->sql(
	q(CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
	CREATE TRIGGER gate BEFORE INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION gate();
	ALTER TABLE refunds ENABLE ALWAYS TRIGGER gate));
$session = $subscriber->hold('SELECT pg_advisory_xact_lock(1)');
my $publication =
  $publisher->sql('SELECT pubname FROM pg_publication LIMIT 1');
$publisher->sql("ALTER PUBLICATION $publication ADD TABLE refunds");
$subscriber->sql('ALTER SUBSCRIPTION s REFRESH PUBLICATION');
$subscriber->wait_until(q(count(*) = 1 FROM pg_stat_progress_copy),
	'the copy does not begin');
like(
	execute($page, 'SELECT subname, relname, sync_state'),
	qr/^ s +\| refunds +\| copying +\| +0 \| \d+ bytes\n\(1 row\)/m,
	'the table that is being copied, and how far that is');
$session->release;
$subscriber->wait_until_ready;
like(execute($page, 'SELECT subname, relname, sync_state'),
	qr/\(0 rows\)/, 'and nothing when it is complete');

### triggers that leave something in their session #############################

my %code = (
	cursor => q(EXECUTE 'declare c cursor with hold for select 1'),
	seeded => 'PERFORM setseed(0.5)',
	process => 'PERFORM pg_backend_pid()',
	not_named =>
	  'PERFORM mysetseed(); PERFORM prepared_before; PERFORM thread_hold');
$subscriber->sql(
	qq(CREATE FUNCTION $_() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN $code{$_}; RETURN NULL; END\$\$;
	CREATE TRIGGER $_ AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION $_();
	ALTER TABLE orders ENABLE REPLICA TRIGGER $_)) for sort keys %code;
$subscriber->sql(
	'CREATE TRIGGER local AFTER INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION cursor()'
);
my $found = execute('doc/restrictions.md', 'SELECT tgrelid::regclass');
is( join(' ', sort $found =~ /^ orders +\| (\w+) +\|/mg),
	'cursor seeded',
	'triggers that apply fires and whose text has such a name');
like($found, qr/\(2 rows\)/, 'and no others');

### views, functions and settings ##############################################

$page = 'doc/views.md';
my $manual = join "\n",
  map { slurp_file($_) } glob "$FindBin::RealBin/../../doc/*.md";

# Return the rows of a list that psql prints, as arrays of cells.
sub list
{
	my ($command) = @_;
	return map {
		[ map { s/^\s+|\s+$//gr } split /\|/ ]
	  }
	  grep { /\|/ && !/^ +(Schema|Column|Parameter) / && !/^ +\|/ }
	  split /\n/, execute($page, $command);
}

my @views = list('\dv+ parallel_apply.*');
is( join(' ',
		grep { $manual !~ /`parallel_apply\.$_`/ } map { $_->[1] } @views),
	'',
	'the views are those of the manual');
cmp_ok(scalar(@views), '>=', 12, 'and all of them are listed');
is(join(' ', map { $_->[1] } grep { $_->[-1] eq '' } @views),
	'', 'each has a description');
my @functions = list('\df+ parallel_apply.*');
cmp_ok(scalar(@functions), '>', 20, 'functions are listed');
is(join(' ', map { $_->[1] } grep { $_->[-1] eq '' } @functions),
	'', 'each has a description');
my @settings = grep { $_->[0] =~ /^parallel_apply/ }
  list('SELECT name, setting, unit, short_desc FROM pg_settings');
is(join(' ', grep { $manual !~ /`\Q$_\E`/ } map { $_->[0] } @settings),
	'', 'settings are those of the manual');
cmp_ok(scalar(@settings), '>=', 10, 'and all of them are listed');
my @columns = grep { @$_ > 3 } list('\d+ parallel_apply.subscriptions');
is(join(' ', map { $_->[0] } grep { $_->[-1] eq '' } @columns),
	'', 'each column has a description');

finish($publisher, $subscriber);
done_testing();
