# Promise: a lack of dynamic shared memory for the definitions of tables is not an
# error of the subscription.  PostgreSQL's own apply needs none and continues.
#
# One transaction changes all tables.  A limit on the size of files, which applies
# to shared memory as well, keeps the apply worker from allocating more.  The
# subscriber's WAL files and its log are smaller than the limit, for which the log has no
# statements: on a slow machine a test polls often.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_init => ['--wal-segsize=1'],
	subscriber_conf =>
	  "max_wal_size = 64MB\nmin_wal_size = 8MB\nparallel_apply.queue_size = 256kB\n"
	  . "log_statement = none\n"
	  . 'parallel_apply.writers_per_subscription = 1');
my $tables = 60;

# Each definition has 40 kB.
$pair->exec_both(
	qq(DO \$\$ BEGIN
		FOR i IN 1 .. $tables LOOP
			EXECUTE format('CREATE TABLE wide_%s (id int PRIMARY KEY, %s)', i,
				(SELECT string_agg(format('%s int', rpad('column_' || j || '_', 60, 'x')), ', ')
				FROM generate_series(1, 550) j));
		END LOOP;
	END \$\$;
	CREATE TABLE history (n int PRIMARY KEY)));
$subscriber->create_extension;
$pair->subscribe(
	'tap',
	with => 'disable_on_error = true, streaming = off',
	no_pool => 1);

# Limit the size of the apply worker's files.  Returns false if that is impossible.
sub limit_memory
{
	return $subscriber->sql('SHOW dynamic_shared_memory_type') eq 'posix'
	  && IPC::Run::run(
		[
			'prlimit', '--pid=' . $subscriber->apply_pid('tap'),
			'--fsize=1048576:'
		],
		'>',
		\my $out,
		'2>',
		\my $err);
}

# The shared memory files of a process
sub shared_memory
{
	my ($pid) = @_;
	my $maps = "/proc/$pid/maps";
	return {} unless -r $maps;
	return { map { $_ => 1 }
		  slurp_file($maps) =~ m{(/dev/shm/PostgreSQL\.\d+)$}gm };
}

sub change_all_tables
{
	my ($id) = @_;
	$publisher->sql(
		qq(DO \$\$ BEGIN
			FOR i IN 1 .. $tables LOOP
				EXECUTE format('INSERT INTO wide_%s (id) VALUES ($id)', i);
			END LOOP;
		END \$\$;
		INSERT INTO history VALUES ($id)));
	return;
}

# Another program (systemd may do so) removes shared memory with definitions before
# writers have attached to it.  The writers fail, but the apply worker can still add
# definitions.
SKIP:
{
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
	$subscriber->wait_for_pool('tap', 4);
	my $lock = $subscriber->hold('LOCK TABLE history IN SHARE MODE');
	$publisher->sql('INSERT INTO history VALUES (-2)');
	$subscriber->wait_for_state('waiting for lock');
	$publisher->sql('TRUNCATE ' . join(', ', map { "wide_$_" } 1 .. $tables));
	$subscriber->wait_for_state('waiting for prior commit');
	my %files = %{ shared_memory($subscriber->apply_pid('tap')) };
	delete @files{ keys %{ shared_memory($_) } }
	  for $subscriber->writer_pids('tap');
	my $removed = unlink keys %files;
	$lock->quit;
	skip 'until shared memory is made of files', 2 unless $removed;

	$pair->exec_both('ALTER TABLE history ADD COLUMN extra int');
	$publisher->sql('INSERT INTO history VALUES (-3, 1)');
	$publisher->wait_applied;
	cmp_ok($subscriber->counter('fallbacks'),
		'>', 0, 'a writer has missed the definitions');
	$pair->rows_equal('history',
		'history is equal on both sides without them');
}
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$subscriber->wait_for_pool('tap', 0);

SKIP:
{
	skip 'until prlimit works and shared memory is made of files', 6
	  unless limit_memory();

	# Definitions that are known when writers start
	change_all_tables(0);
	$publisher->wait_applied;
	my $apply_pid = $subscriber->apply_pid('tap');
	$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
	$subscriber->wait_for_log(
		qr/WARNING: +could not create the queue of subscription "tap"/);
	$publisher->sql('INSERT INTO history VALUES (-1)');
	$publisher->wait_applied;
	is( $subscriber->sql(
			'SELECT state, reason, pid FROM parallel_apply.subscriptions'),
		"degraded|there is no shared memory for the queue|$apply_pid",
		'without memory for the definitions that are known writers do not start'
	);

	# Definitions that arrive while there are writers.  The next apply worker, which has
	# no limit, starts none for a minute.  A lock lets that last as long as the test looks.
	$subscriber->restart_apply('tap',
		'ALTER SUBSCRIPTION tap SET (binary = true)');
	$subscriber->wait_for_pool('tap');
	ok(limit_memory(), 'the next apply worker gets no more');
	my $lock = $subscriber->hold('LOCK TABLE history IN SHARE MODE');
	change_all_tables(1);
	$subscriber->wait_for_log(
		qr/FATAL: +could not resize shared memory segment/);
	$subscriber->wait_until(
		q(count(*) = 1 FROM pg_stat_subscription JOIN pg_locks USING (pid)
		WHERE NOT granted AND locktype = 'relation'),
		'no apply worker waits for the lock');
	is( $subscriber->sql(
			'SELECT state, reason FROM parallel_apply.subscriptions'),
		'degraded|there is no shared memory for the queue',
		"it is applied by PostgreSQL's own apply");
	$lock->release;
	$publisher->wait_applied;
	$pair->rows_equal($_, "$_ is equal on both sides without memory")
	  for 'history', 'wide_1', "wide_$tables";
}

$subscriber->nothing_is_left_open;
finish($publisher, $subscriber,
	qr/FATAL: +could not resize shared memory segment/);
done_testing();
