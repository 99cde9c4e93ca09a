# Promise: after pg_upgrade of the subscriber, and then of the publisher, by the statements of
# the manual (doc/high_availability.md), apply continues with the transaction that comes next,
# and the options of subscriptions, groups and tables are kept.
#
# pgbench writes to the publisher all the time while the subscriber is upgraded.  What is
# lost, repeated or applied in another order would show in a chain of balances.
#
# OLD_SERVER is a directory with bin/ of an older major (make check-upgrade).  Without it,
# the upgrade is to the same major, which pg_upgrade does as well.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old_server = $ENV{OLD_SERVER};
my @options = defined $old_server ? (install_path => $old_server) : ();
chomp(my $new_bindir = `pg_config --bindir`);
my $old_bindir = defined $old_server ? "$old_server/bin" : $new_bindir;

# Whether the server has an option of columns, see tools/check_upgrade.
sub has_attver
{
	my ($bindir) = @_;
	chomp(my $real = `$bindir/pg_config --bindir`);
	return slurp_file("$real/postgres") =~ /pg_attver/;
}
plan skip_all =>
  'the new server does not accept what the old one dumps (pg_attver)'
  if has_attver($old_bindir) && !has_attver($new_bindir);

# The statements of the manual, by the line of comment that each block of them begins
# with; the subscription is s.
my $manual = slurp_file("$FindBin::RealBin/../../doc/high_availability.md");

sub statements
{
	my ($comment) = @_;
	my ($block) = $manual =~ /^    -- \Q$comment\E\n((?:    .*\n)+)/m
	  or die "no statements $comment in the manual";
	return $block =~ s/^    //gmr;
}

my $subscriber_conf = <<~'CONF';
	shared_preload_libraries = 'parallel_apply'
	max_worker_processes = 32
	CONF

# pg_upgrade demands that everything has been confirmed, what autovacuum has written as
# well.
my ($pair, $publisher, $subscriber) = new_pair(
	node_options => \@options,
	publisher_conf => 'autovacuum = off',
	subscriber_conf => $subscriber_conf);
my $old_major = $subscriber->pg_version->major;

$pair->create_accounts;
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$subscriber->create_extension;
$subscriber->sql(
	q(SELECT parallel_apply.create_group('reporting', 3);
	SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel')));
$pair->subscribe('s', with => 'disable_on_error = true');
$subscriber->sql(q(SELECT parallel_apply.add_subscription('reporting', 's')));
$subscriber->wait_for_pool('s', 3);

sub declared
{
	my ($node) = @_;
	return $node->sql(
		q(SELECT subname, group_name, num_writers, writers_wanted, source FROM parallel_apply.subscription_config;
		SELECT objname, label FROM pg_seclabels WHERE provider = 'parallel_apply' AND objtype = 'table';
		SELECT extversion, parallel_apply.version() FROM pg_extension WHERE extname = 'parallel_apply')
	);
}
my $declared = declared($subscriber);
like(
	$declared,
	qr/^s\|reporting\|.*\|group\nitems\|triggers=parallel$/m,
	'options are declared for a subscription, a group and a table');

# A cluster for pg_upgrade, which does not run.
sub new_cluster
{
	my ($old, $name, $conf) = @_;
	my $new = PapplyNode->new($name);
	my @extra;
	push @extra, '--no-data-checksums'
	  if $new->pg_version >= 18
	  && $old->sql('SHOW data_checksums') eq 'off';
	$new->init(allows_streaming => 'logical', extra => \@extra);
	$new->append_conf('postgresql.conf', "fsync = off\n$conf");
	return $new;
}

sub upgrade_command
{
	my ($old, $new, @more) = @_;
	return [
		'pg_upgrade', '--no-sync',
		@more, '-d',
		$old->data_dir, '-D',
		$new->data_dir, '-b',
		defined $old->install_path ? $old_bindir : $new_bindir, '-B',
		$new_bindir, '-s',
		$new->host, '-p',
		$old->port, '-P',
		$new->port
	];
}

# It leaves scripts in the current directory.
chdir $publisher->basedir or die;

### the subscriber

# A transaction that was skipped: the check is on the subscriber only.
$subscriber->sql('ALTER TABLE items ADD CHECK (v >= 0)');
$publisher->sql('INSERT INTO items VALUES (1, -1)');
$subscriber->wait_until_failed;
$subscriber->sql(
	q(SELECT parallel_apply.skip_transaction('s'); ALTER SUBSCRIPTION s ENABLE)
);
$publisher->wait_applied('s');

my $load = $publisher->start_accounts_load(200);

$subscriber->wait_for_progress;

my $new = new_cluster($subscriber, 'new_subscriber', '');
command_checks_all(
	upgrade_command($subscriber, $new, '--check'),
	1,
	[qr/missing required libraries|loadable libraries/],
	[],
	'pg_upgrade --check fails unless the new cluster preloads the library');
$new->append_conf('postgresql.conf', $subscriber_conf);
command_ok(upgrade_command($subscriber, $new, '--check'),
	'and passes if it does');

my $position;
if ($old_major < 17)
{
	$subscriber->sql(statements('on the old server'));
	$subscriber->wait_until(
		q(count(*) = 0 FROM pg_stat_subscription WHERE subname = 's' AND pid IS NOT NULL),
		'the apply worker does not end');
	$position =
	  $subscriber->sql(statements('on the old server, the position'));
}
$subscriber->stop;
command_ok(
	upgrade_command($subscriber, $new),
	'pg_upgrade upgrades the subscriber');
$publisher->wait_for_progress;
$new->start;

# Transactions come between ENABLE and REFRESH.
if ($old_major < 17)
{
	my ($enable, $refresh) =
	  statements('on the new server, with the position of the old one') =~
	  /^(.* ENABLE;\n)(.*)$/s;
	$new->sql($enable =~ s/POSITION/$position/r);
	$new->poll_query_until('postgres',
		q(SELECT state = 'paused' FROM parallel_apply.subscriptions))
	  or die 'the subscription is not paused';
	$publisher->wait_for_progress;
	$new->sql($_ . ';') for grep { /\S/ } split /;/, $refresh;
}
$new->wait_for_pool('s', 3);
is(declared($new), $declared, 'what is declared has come along');
$new->wait_for_progress;
$publisher->end_load($load);

PapplyPair->new($publisher, $new)
  ->accounts_are_equal('after the upgrade of the subscriber', 's');
$new->counter_becomes('transactions', '>= 50', 'by writers');

is( $new->sql(
		q(SELECT changes FROM parallel_apply.skipped_transactions;
		SELECT statement FROM parallel_apply.skipped_changes(1))
	),
	"1\nINSERT INTO public.items (id, v) VALUES ('1', '-1');",
	'the changes of a skipped transaction are still there');

### the publisher

# The end of a transaction that was rolled back may not be written yet.
my $lsn =
  $publisher->sql('SELECT pg_switch_wal(); SELECT pg_current_wal_lsn()') =~
  s/.*\n//r;
$publisher->poll_query_until('postgres',
	"SELECT bool_and(confirmed_flush_lsn >= '$lsn') FROM pg_replication_slots"
) or die 'not all is confirmed';
$new->sql('ALTER SUBSCRIPTION s DISABLE');
my $new_publisher = new_cluster($publisher, 'new_publisher', '');
$publisher->stop;
command_ok(
	upgrade_command($publisher, $new_publisher),
	'pg_upgrade upgrades the publisher');
$new_publisher->start;
$new_publisher->sql(statements('on the new publisher'))
  if $old_major < 17;
$new_publisher->sql(
	q(UPDATE accounts SET balance = balance + 1;
	INSERT INTO history (account, balance) SELECT id, balance FROM accounts)
);
$new->sql("ALTER SUBSCRIPTION s CONNECTION '"
	  . $new_publisher->connstr
	  . " dbname=postgres'; ALTER SUBSCRIPTION s ENABLE");
$new->wait_for_pool('s', 3);
PapplyPair->new($new_publisher, $new)
  ->accounts_are_equal('after the upgrade of the publisher', 's');

finish($new_publisher, $new);
done_testing();
