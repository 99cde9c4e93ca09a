# Promise: each alert of doc/monitoring.md, as written there, names the subscription
# while the fault exists, and does not after it has ended.  A subscription that is
# left to the apply worker on purpose is never named.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The alert waits for a minute; a moment is enough here.
my %alert = slurp_file("$FindBin::RealBin/../../doc/monitoring.md") =~
  /^ +-- alert: (\w+)\n((?: +.*\n)+)/mg;
$alert{behind} =~ s/'60 s'/'200 ms'/ or die 'the limit is another one';
is(join(' ', sort keys %alert),
	'behind state', 'the alerts are in the manual');

# There are slots for six writers in addition to the launcher and two apply workers,
# and for four while tables are synchronized.
my ($pair, $publisher, $subscriber) =
  new_pair(subscriber_conf =>
		"max_worker_processes = 9\nmax_logical_replication_workers = 4\n"
	  . "max_sync_workers_per_subscription = 1\n");
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->create_extension;
$pair->exec_both("CREATE TABLE $_ (id int PRIMARY KEY, v int)")
  for 'items', 'chosen';
$publisher->sql('CREATE PUBLICATION chosen FOR TABLE chosen');
$subscriber->sql(
	"CREATE SUBSCRIPTION chosen CONNECTION '$connstr' PUBLICATION chosen WITH (enabled = false, create_slot = false, slot_name = 'chosen', connect = false)"
);
$publisher->sql(
	q(SELECT count(*) FROM pg_create_logical_replication_slot('chosen', 'pgoutput'))
);
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('chosen', 1);
	ALTER SUBSCRIPTION chosen ENABLE; ALTER SUBSCRIPTION chosen REFRESH PUBLICATION)
);
$pair->subscribe('tap', publication => 'FOR TABLE items');
$subscriber->wait_until_ready;

# Wait until the alert names these subscriptions.
sub alert_becomes
{
	my ($kind, $names, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT coalesce(string_agg(subname, ',' ORDER BY subname), 'none') FROM ($alert{$kind}) AS alert",
			$names || 'none'),
		"$kind: $name");
	return;
}

sub all_is_well
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied($_) for 'tap', 'chosen';
	alert_becomes($_, '', $name) for sort keys %alert;
	state_advice_becomes('', $name);
	return;
}

# Wait until this is the level of what advice() says about the state, or until it is silent.
sub state_advice_becomes
{
	my ($level, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT coalesce(min(level), '') FROM parallel_apply.advice('tap') WHERE topic = 'state'),
			$level),
		"advice() of the state: $name");
	return;
}

sub lag
{
	return $subscriber->sql(
		q(SELECT extract(epoch FROM lag) FROM parallel_apply.subscriptions WHERE subname = 'tap')
	);
}

# The lag keeps growing while nothing is applied.
sub lag_grows
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	alert_becomes('behind', 'tap', $name);
	my $lag = lag();
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT extract(epoch FROM lag) > $lag + 0.5 FROM parallel_apply.subscriptions WHERE subname = 'tap'"
		),
		"$name, and its lag grows");
	return;
}

all_is_well('there is no fault');

# An error that repeats
$subscriber->sql('INSERT INTO items VALUES (1, 0)');
$publisher->sql('INSERT INTO items VALUES (1, 1)');
alert_becomes('state', 'tap', 'a transaction fails again and again');
lag_grows('while it fails');
is( $subscriber->notice_of_wait('tap'),
	'A transaction fails: see parallel_apply.failed_transactions.',
	'which a function that waits for it says');
my $lock = $subscriber->hold('LOCK TABLE items');
$subscriber->wait_until(
	q(count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass),
	'it is not tried again');
is( $subscriber->sql(
		q(SELECT state, pid IS NULL FROM parallel_apply.subscriptions WHERE subname = 'tap')
	),
	'failing|f',
	'another attempt does not change that');
my $reason =
  q(SELECT reason FROM parallel_apply.subscriptions WHERE subname = 'tap');
my $error = $subscriber->sql($reason);
my ($lsn) = slurp_file($subscriber->logfile) =~ m{finished at (\S+)};
$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
is( $subscriber->sql($reason),
	"the transaction that finishes at $lsn is to be skipped: $error",
	'nor does skipping, which is shown until it is done');
$subscriber->sql('ALTER SUBSCRIPTION tap SKIP (lsn = NONE)');
$lock->release;
$subscriber->sql('DELETE FROM items WHERE id = 1');
all_is_well('the conflict is resolved');

# The same with disable_on_error; then the transaction is skipped.
$subscriber->sql('ALTER SUBSCRIPTION tap SET (disable_on_error = true)');
my $offset = -s $subscriber->logfile;
$subscriber->sql('INSERT INTO items VALUES (2, 0)');
$publisher->sql('INSERT INTO items VALUES (2, 0)');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT state || ': ' || (reason ~ '^the subscription is disabled, after an error: .*(duplicate key|conflict detected)')
		FROM parallel_apply.subscriptions WHERE subname = 'tap'),
		'disabled by error: true'),
	'a subscription that was disabled by an error says so');
state_advice_becomes('warning', 'it is disabled by an error');
alert_becomes('state', 'tap', 'and so does the alert of states');
lag_grows('while it is disabled by an error');
($lsn) = slurp_file($subscriber->logfile, $offset) =~ m{finished at (\S+)};
$subscriber->sql(
	q(SELECT parallel_apply.skip_transaction('tap', keep => false)));
like(
	$subscriber->sql($reason),
	qr/^the subscription is disabled, after an error: the transaction that finishes at $lsn is to be skipped: (duplicate key|conflict detected)/,
	'a skip is shown that waits for the subscription to be enabled');
is( $subscriber->sql(
		q(SELECT level, advice FROM parallel_apply.advice('tap') WHERE topic = 'state')
	),
	'warning|an error has disabled it, and the transaction is to be skipped: enable it',
	'and advice() says that it has to be');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
all_is_well('the transaction is skipped');

# Disabled by hand, with nothing to apply
$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
lag_grows('while it is disabled');
alert_becomes('state', '', 'that it is disabled is no fault');
state_advice_becomes('notice', 'it is disabled');
$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
all_is_well('it is enabled');

# No connection
$subscriber->sql(
	'ALTER SUBSCRIPTION tap CONNECTION $$host=/nowhere dbname=postgres$$');
alert_becomes('state', 'tap', 'there is no publisher');
state_advice_becomes('warning', 'there is no publisher');
lag_grows('while there is no publisher');
is( $subscriber->notice_of_wait('tap'),
	'It is disconnected: see parallel_apply.subscriptions.',
	'which a function that waits for it says');
$subscriber->sql("ALTER SUBSCRIPTION tap CONNECTION '$connstr'");
all_is_well('there is a publisher');

# Fewer writers than are configured, and more than there are slots for
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 8)));
alert_becomes('state', 'tap', 'not all writers could be started');
ok( $subscriber->poll_query_until(
		'postgres',
		q(SELECT state, reason, writers_wanted, writers_running < 8 FROM parallel_apply.subscriptions WHERE subname = 'tap'),
		'degraded|not all writers could be started|8|t'),
	'and the state and the reason say so');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 3)));
all_is_well('fewer are configured');

# Paused, with a transaction that waits
$subscriber->sql(q(SELECT parallel_apply.pause('tap')));
$publisher->sql('INSERT INTO items VALUES (3, 0)');
lag_grows('while it is paused');
alert_becomes('state', '', 'that it is paused is no fault');
state_advice_becomes('notice', 'it is paused');
$subscriber->sql(q(SELECT parallel_apply.resume('tap')));
all_is_well('it is resumed');

# Native by configuration, and busy
$publisher->sql('INSERT INTO chosen SELECT generate_series(1, 1000), 0');
all_is_well('the other one is applied by the apply worker');
is( $subscriber->sql(
		q(SELECT state, reason, writers_wanted FROM parallel_apply.subscriptions WHERE subname = 'chosen')
	),
	'native|one writer is configured|0',
	'and says that this is configured');

$subscriber->sql('DELETE FROM items WHERE id = 2');
$publisher->sql('DELETE FROM items WHERE id = 2');
$publisher->wait_applied;
$pair->rows_equal($_) for 'items', 'chosen';
finish($publisher, $subscriber, duplicate_key('items'),
	qr/could not connect to the publisher/);
done_testing();
