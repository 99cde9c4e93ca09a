# Promise: ALTER SUBSCRIPTION ... SKIP skips the named transaction, as in
# PostgreSQL's own apply, and writers apply the transactions before and after it.
#
# A skip LSN is set after an error, with a position that belongs to no transaction,
# and for a transaction that a writer has applied and that waits for its turn behind
# a lock, which PostgreSQL's own apply would not have begun.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		logical_decoding_work_mem = 64kB
		max_prepared_transactions = 10),
	subscriber_conf => q(max_prepared_transactions = 10));
$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int NOT NULL);
	CREATE TABLE items (id int PRIMARY KEY, v text);));
$subscriber->create_extension;
$pair->subscribe('tap',
	with => 'disable_on_error = true, streaming = on, two_phase = on');
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$publisher->wait_applied;

sub skips_nothing
{
	return $subscriber->sql("SELECT subskiplsn = '0/0' FROM pg_subscription");
}

# Only these rows of items are missing on the subscriber.
sub missing_are
{
	my ($name, @missing) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	my $have =
	  $subscriber->sql(
		'SELECT coalesce(string_agg(id::text, $$,$$), $$$$) FROM items');
	is( $publisher->sql(
			"SELECT string_agg(id::text, ' ' ORDER BY id) FROM items WHERE id <> ALL ('{$have}')"
		),
		"@missing",
		$name);
	return;
}

# An error that would repeat; the transactions after the skipped one are applied.
sub skip_after_error
{
	my ($what, $sql, @ids) = @_;
	my $offset = -s $subscriber->logfile;
	my $twice = $ids[0];
	$subscriber->wait_until_counted;
	my $inserts = $subscriber->sql(
		'SELECT inserts FROM parallel_apply.subscription_stats');
	$subscriber->sql("INSERT INTO items VALUES ($twice, 'local')");
	$publisher->sql("UPDATE gate SET n = n + 1; $sql");
	my $after = $twice * 10 + 5000;
	$publisher->sql(
		"INSERT INTO items SELECT i FROM generate_series($after, $after + 9) i"
	);
	$publisher->sql("UPDATE gate SET n = n + 1") for 1 .. 5;
	$subscriber->poll_query_until('postgres',
		'SELECT NOT subenabled FROM pg_subscription')
	  or die 'the subscription is not disabled';
	my $log = slurp_file($subscriber->logfile, $offset);
	$log =~
	  m/processing remote data for replication origin "pg_\d+" during message type "INSERT" for replication target relation "public.items" in transaction \d+, finished at ([[:xdigit:]]+\/[[:xdigit:]]+)/
	  or die 'no error in the log';
	my $lsn = $1;
	$subscriber->sql("DELETE FROM items WHERE id = $twice");
	$subscriber->sql(
		"ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn'); ALTER SUBSCRIPTION tap ENABLE"
	);
	missing_are("$what is skipped and nothing else", @ids);
	is(skips_nothing(), 't', 'the position is cleared');
	like(
		slurp_file($subscriber->logfile, $offset),
		qr/LOG: +logical replication completed skipping transaction at LSN $lsn/,
		'the log says so');
	$subscriber->wait_for_pool('tap');
	$subscriber->counter_becomes('transactions', '>= 6',
		'writers have applied the transactions after it');
	$subscriber->wait_until(
		"inserts - $inserts >= 10 FROM parallel_apply.subscription_stats",
		'the rows after it are not counted');
	is( $subscriber->sql(
			"SELECT inserts - $inserts FROM parallel_apply.subscription_stats"
		),
		'10',
		'its own changes are not counted');
	$publisher->sql(
		"DELETE FROM items WHERE id = ANY ('{" . join(',', @ids) . "}')");
	$publisher->wait_applied;
	return;
}

skip_after_error(
	'a transaction',
	'INSERT INTO items VALUES (1), (2), (3)',
	1, 2, 3);
skip_after_error(
	'a streamed transaction',
	q(INSERT INTO items SELECT i, repeat('x', 1000) FROM generate_series(10, 210) i),
	10 .. 210);
skip_after_error(
	'a prepared transaction',
	q(BEGIN; INSERT INTO items VALUES (300), (301); PREPARE TRANSACTION 'a';
	COMMIT PREPARED 'a'),
	300,
	301);

# A position that belongs to no transaction: the next transaction clears it, with a
# warning.
my $offset = -s $subscriber->logfile;
my $lsn = $publisher->sql(
	q(SELECT pg_current_wal_insert_lsn() FROM pg_logical_emit_message(false, 'none', 'of ours'))
);
$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
$publisher->sql("INSERT INTO items VALUES ($_)") for 400 .. 409;
missing_are('nothing is skipped with the position of nothing', '');
is(skips_nothing(), 't', 'the position is cleared');
like(
	slurp_file($subscriber->logfile, $offset),
	qr/WARNING: +skip-LSN of subscription "tap" cleared/,
	'the log says so');

# Set for a transaction that is applied, but not committed
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql(
	"UPDATE gate SET n = n + 1; INSERT INTO items VALUES (500);
	INSERT INTO items VALUES (501)");
$subscriber->states_become(
	'waiting for lock, waiting for prior commit, waiting for prior commit',
	'a transaction waits for its turn');
$lsn = $subscriber->sql(
	q(SELECT remote_lsn FROM parallel_apply.writers
	WHERE state = 'waiting for prior commit' ORDER BY remote_lsn LIMIT 1));
$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$lsn')");
$lock->query_safe('COMMIT');
missing_are('it is skipped', 500);
is(skips_nothing(), 't', 'the position is cleared');
$publisher->sql('DELETE FROM items WHERE id = 500');
$publisher->wait_applied;

$lock->quit;
$pair->rows_equal($_) for qw(gate items);
finish($publisher, $subscriber, duplicate_key('items'));
done_testing();
