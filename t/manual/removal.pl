# Promise: after the steps of doc/operation.md, as written there, nothing of the
# extension is left: neither in the catalogs, nor in a dump, nor in the data
# directory.  A subscription that was paused is resumed, with a warning.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($chapter) = slurp_file("$FindBin::RealBin/../../doc/operation.md") =~
  /^## Removing it\n(.*?)^## /ms;
my @statements = $chapter =~ /^ {7}(DROP .*;)$/mg;
my ($file) = $chapter =~ m{^ {7}rm .*/(pg_stat/\S+)$}m;
is(scalar(@statements), 1, 'the manual has the statement');

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY);
	CREATE TABLE others (id int PRIMARY KEY)));
$publisher->sql('INSERT INTO items VALUES (1)');
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	publication => 'FOR TABLE items',
	with => 'streaming = off');
$pair->subscribe('paused', publication => 'FOR TABLE others');

sub dump_of_subscriber
{
	my $is_done = IPC::Run::run(
		[
			'pg_dump', '--schema-only', '-d', $subscriber->connstr('postgres')
		],
		'>',
		\my $dump,
		'2>',
		\my $error);
	die "pg_dump: $error" if !$is_done;
	return $dump;
}

$subscriber->sql(
	q(SELECT parallel_apply.create_group('g', 3);
	SELECT parallel_apply.add_subscription('g', 'tap');
	SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
	SELECT parallel_apply.pause('paused')));
like(dump_of_subscriber(), qr/parallel_apply/,
	'a dump has its configuration');
my $apply_pid = $subscriber->apply_pid('tap');

$publisher->sql('INSERT INTO others VALUES (1)');
my ($status, undef, $messages) =
  $subscriber->psql('postgres', $statements[0]);
is($status, 0, $statements[0]);
for my $expected (
	'WARNING:  apply of subscription "paused" is paused and will be resumed',
	'NOTICE:  configuration of 2 subscriptions is removed',
	'NOTICE:  options of 1 table are removed')
{
	like($messages, qr/\Q$expected\E\n?/, $expected);
}
$publisher->wait_applied('paused');
$pair->rows_equal('others', 'what was held by the pause is applied');
is( $subscriber->sql(
		q(SELECT (SELECT count(*) FROM pg_seclabel) + (SELECT count(*) FROM pg_shseclabel)
		+ (SELECT count(*) FROM pg_foreign_server) + (SELECT count(*) FROM pg_foreign_data_wrapper)
		+ (SELECT count(*) FROM pg_namespace WHERE nspname ~ 'parallel_apply'))
	),
	'0',
	'no label, group or schema is left');
unlike(dump_of_subscriber(), qr/parallel_apply/,
	'nothing of it is in a dump');
$publisher->sql('INSERT INTO items VALUES (2)');
$publisher->wait_applied;
$pair->rows_equal('items');
is($subscriber->apply_pid('tap'),
	$apply_pid, 'the apply worker is the same all the time');

# A rollback keeps all of it.
$subscriber->create_extension;
$subscriber->wait_for_pool('tap');
$subscriber->sql(
	q(SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
	SELECT parallel_apply.alter_subscription_config('tap', 3);
	BEGIN; DROP EXTENSION parallel_apply CASCADE; ROLLBACK));
is( $subscriber->sql(
		q(SELECT num_writers FROM parallel_apply.subscription_config WHERE subname = 'tap')
	),
	'3',
	'a rolled back DROP EXTENSION keeps the configuration');
$subscriber->wait_for_pool('tap', 3);

# A transaction is skipped while the extension is being dropped.  That waits for the lock
# of a relation of the extension, which is gone then.
{
	$subscriber->sql(
		q(ALTER SUBSCRIPTION tap SET (disable_on_error = true);
		ALTER TABLE items ADD CONSTRAINT positive CHECK (id > 0)));
	$publisher->sql('INSERT INTO items VALUES (-1)');
	$subscriber->wait_until_failed;
	my $drop =
	  $subscriber->hold(
		"SET LOCAL client_min_messages = error; $statements[0]");
	my $offset = -s $subscriber->logfile;
	my $skip = $subscriber->background_psql('postgres', on_error_stop => 0);
	$skip->query_until(qr/skips/,
		"\\echo skips\nSELECT parallel_apply.skip_transaction('tap');\n");
	$subscriber->wait_until(
		q(count(*) > 0 FROM pg_locks WHERE NOT granted AND relation =
			(SELECT oid FROM pg_class WHERE relname = 'kept_transactions')),
		'skip_transaction() does not wait');
	$drop->release;
	$subscriber->wait_for_log(
		qr/ERROR: +extension "parallel_apply" does not exist/, $offset);
	$skip->quit;
	$subscriber->sql(
		q(ALTER TABLE items DROP CONSTRAINT positive;
		ALTER SUBSCRIPTION tap ENABLE));
	$publisher->wait_applied;
	$pair->rows_equal('items', 'nothing is skipped without the extension');
	$subscriber->create_extension;
	$subscriber->wait_for_pool('tap');
}

# An apply worker starts while the extension is being dropped.  It does not wait for the locks
# of the relations of the extension, which are gone then.
{
	my $drop =
	  $subscriber->hold(
		"SET LOCAL client_min_messages = error; $statements[0]");
	$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
	$subscriber->wait_until(
		q(pid IS NULL FROM pg_stat_subscription WHERE subname = 'tap'),
		'the apply worker does not end');
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	$publisher->sql('INSERT INTO items VALUES (5)');
	$publisher->wait_applied;
	$drop->release;
	$publisher->sql('INSERT INTO items VALUES (4)');
	$publisher->wait_applied;
	$pair->rows_equal('items',
		'an apply worker that starts meanwhile applies alone');
}

# The library
$subscriber->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$subscriber->adjust_conf('postgresql.conf', $_, undef)
  for map { "parallel_apply.$_" }
  qw(leader_participation idle_writers_per_subscription reserved_worker_processes);
$subscriber->restart;
ok(-e $subscriber->data_dir . "/$file", "$file exists");
unlink $subscriber->data_dir . "/$file" or die "$file: $!";
$publisher->sql('INSERT INTO items VALUES (3)');
$publisher->wait_applied;
$pair->rows_equal('items', 'the server replicates without the library');
unlike(dump_of_subscriber(), qr/parallel_apply/,
	'nothing of it is in a dump');

finish(
	$publisher,
	$subscriber,
	qr/terminating .* due to administrator command/,
	qr/ERROR:  (new row for relation "items" violates|extension "parallel_apply" does not exist)/
);
done_testing();
