# Definitions of tables for which there is no dynamic shared memory are no error of the
# subscription: PostgreSQL's own apply, which needs none, goes on.
#
# All tables are changed in one transaction, and a limit on the size of files, which holds for
# shared memory, too, keeps the apply worker from getting more.  The subscriber's
# WAL files, and its log, are smaller than that.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair(
	subscriber_init => ['--wal-segsize=1'],
	subscriber_conf =>
	  "max_wal_size = 64MB\nmin_wal_size = 8MB\nparallel_apply.queue_size = 256kB"
);
my $tables = 60;

# A definition of 40 kB each.
exec_both(
	qq(DO \$\$ BEGIN
		FOR i IN 1 .. $tables LOOP
			EXECUTE format('CREATE TABLE wide_%s (id int PRIMARY KEY, %s)', i,
				(SELECT string_agg(format('%s int', rpad('column_' || j || '_', 60, 'x')), ', ')
				FROM generate_series(1, 550) j));
		END LOOP;
	END \$\$;
	CREATE TABLE history (n int PRIMARY KEY)));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'disable_on_error = true');
my $apply_pid = apply_pid($subscriber, 'tap');

SKIP:
{
	skip 'until prlimit works and shared memory is made of files',
	  4
	  unless $subscriber->safe_psql('postgres',
		'SHOW dynamic_shared_memory_type') eq 'posix'
	  && IPC::Run::run([ 'prlimit', "--pid=$apply_pid", '--fsize=1048576:' ],
		'>', \my $out, '2>', \my $err);

	on_publisher(
		qq(DO \$\$ BEGIN
			FOR i IN 1 .. $tables LOOP
				EXECUTE format('INSERT INTO wide_%s (id) VALUES (1)', i);
			END LOOP;
		END \$\$;
		INSERT INTO history VALUES (1)));
	$subscriber->wait_for_log(
		qr/FATAL: +could not resize shared memory segment/);
	wait_applied($publisher, $subscriber, 'tap');
	rows_equal($publisher, $subscriber, $_,
		"$_ is equal on both sides without memory")
	  for 'history', 'wide_1', "wide_$tables";
	is( on_subscriber(
			'SELECT state, reason FROM parallel_apply.subscriptions'),
		'native|no shared memory for the queue',
		"it is applied by PostgreSQL's own apply");
}

finish($publisher, $subscriber,
	qr/FATAL: +could not resize shared memory segment/);
done_testing();
