# Promise: applications may use PgBouncer in transaction pooling mode on both servers, for
# all functions and views of the extension: none of them depends on the session of
# another one.  PgBouncer refuses a subscription before its version 1.23.
#
# PgBouncer has two connections to each server.  Open transactions occupy one after the
# other, so that two statements of a client are executed in different sessions.
#
# It needs PgBouncer (make check-neighbors).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Programs;
use Test::More;

plan skip_all => 'needs PgBouncer (make check-neighbors gets it)'
  unless is_installed('pgbouncer');
my ($version) = `pgbouncer --version` =~ /^PgBouncer (\d+\.\d+)/
  or die 'the version of PgBouncer is unknown';
note("PgBouncer $version");

my ($pair, $publisher, $subscriber) = new_pair();
$pair->create_accounts;
$pair->exec_both('CREATE TABLE items (id int PRIMARY KEY, v int)');
$subscriber->create_extension;
$pair->subscribe('tap', with => 'disable_on_error = true');

# Start PgBouncer before a server.  Return a node whose methods connect by it.
sub pooled
{
	my ($node) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $conf = $node->basedir . '/pgbouncer.ini';
	my $users = $node->basedir . '/users';
	my $user = getpwuid($<);
	append_to_file($users, qq("$user" ""\n));
	append_to_file($conf, <<~"CONF");
		[databases]
		* = host=@{[ $node->host ]} port=@{[ $node->port ]}
		[pgbouncer]
		listen_port = $port
		listen_addr =
		unix_socket_dir = @{[ $node->host ]}
		auth_type = trust
		auth_file = $users
		pool_mode = transaction
		default_pool_size = 2
		CONF
	start_program('pgbouncer_' . $node->name, 'pgbouncer', $conf);
	my $pooled = bless { %$node, _port => $port, papply_sessions => {} },
	  ref $node;
	$pooled->poll_query_until('postgres', q(SELECT true))
	  or die 'PgBouncer does not answer';
	return $pooled;
}

my ($to_publisher, $to_subscriber) = map { pooled($_) } $publisher,
  $subscriber;

sub ask
{
	my ($sql) = @_;
	return $to_subscriber->sql($sql);
}

# Execute two functions in different sessions, and assert that they are.
sub executed_apart
{
	my ($first, $second, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $one = $to_subscriber->hold('SELECT 1');
	my $pid = ask("SELECT pg_backend_pid() FROM $first");
	my $other = $to_subscriber->hold('SELECT 1');
	end_transaction($one);
	isnt(ask("SELECT pg_backend_pid() FROM $second"), $pid, $name);
	end_transaction($other);
	return;
}

# PgBouncer would close the connection of a client that leaves a transaction open.
sub end_transaction
{
	my ($session) = @_;
	$session->release;
	return;
}

### applications on both sides ###############################################

my @views = split /\n/, ask(
	q(SELECT relname FROM pg_class
	WHERE relnamespace = 'parallel_apply'::regnamespace AND relkind = 'v' ORDER BY 1)
);
cmp_ok(scalar(@views), '>', 5, 'there are views');

sub is_readable
{
	my ($view) = @_;
	my ($status) =
	  $to_subscriber->psql('postgres', "SELECT * FROM parallel_apply.$view");
	return $status == 0;
}

my $load = $to_publisher->start_accounts_load(300);
$to_subscriber->wait_for_progress;
is(join(' ', grep { !is_readable($_) } @views),
	'', 'all views can be read while transactions are applied');
executed_apart(
	q(parallel_apply.pause('tap')),
	q(parallel_apply.drain('tap')),
	'one session pauses apply, another one waits for what was received');
my $count = ask('SELECT count(*) FROM history');
my $lsn = $to_publisher->sql(
	'INSERT INTO items VALUES (1, 0) RETURNING pg_current_wal_insert_lsn()');
is(ask("SELECT parallel_apply.wait_for_lsn('tap', '$lsn', '100 ms')"),
	'f', 'a third one waits in vain for what comes later');
is(ask('SELECT count(*) FROM history'), $count, 'nothing is applied');
is(ask(q(SELECT state FROM parallel_apply.subscriptions)),
	'paused', 'the state says why');
executed_apart(
	q(parallel_apply.resume('tap')),
	"parallel_apply.wait_for_lsn('tap', '$lsn', '10 min')",
	'one session resumes it, another one waits for a position');
is(ask('SELECT count(*) FROM items'), 1, 'after which its row is there');
$publisher->end_load($load);
$pair->accounts_are_equal('after a load that was pooled');

### a transaction that fails #################################################

ask('INSERT INTO items VALUES (2, 0)');
$to_publisher->sql('INSERT INTO items VALUES (2, 1)');
$subscriber->wait_until_failed;
is(ask(q(SELECT count(*) FROM parallel_apply.failed_changes('tap'))),
	1, 'a failed transaction is shown');
my $id = ask(q(SELECT parallel_apply.skip_transaction('tap')));
ask('ALTER SUBSCRIPTION tap ENABLE');
$publisher->wait_applied;
is(ask("SELECT count(*) FROM parallel_apply.skipped_changes($id)"),
	1, 'skipped, and stored');
ask('DELETE FROM items WHERE id = 2');
ask("CALL parallel_apply.replay($id)");
$pair->rows_equal('items', 'and replayed');

### configuration ############################################################

ask(q(SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel'))
);
ask(q(SELECT parallel_apply.create_group('reporting', 3)));
ask(q(SELECT parallel_apply.add_subscription('reporting', 'tap')));
$to_subscriber->wait_for_pool('tap', 3);
pass('a group has as many writers as one session has declared');
ask(q(SELECT parallel_apply.remove_subscription('reporting', 'tap')));
ask(q(SELECT parallel_apply.drop_group('reporting')));
like(ask('SELECT parallel_apply.export_config()'),
	qr/set_table_option/, 'options of tables are exported');

### a subscription ###########################################################

my $connstr = $to_publisher->connstr . ' dbname=postgres';
my ($status, $out, $err) = $subscriber->psql('postgres',
	"CREATE SUBSCRIPTION pooled CONNECTION '$connstr' PUBLICATION tap WITH (copy_data = false)"
);
if ($version < 1.23)
{
	like(
		$err,
		qr/could not connect to the publisher: .*FATAL: +unsupported startup parameter: replication/,
		'a subscription cannot connect by PgBouncer');
}
else
{
	is($status, 0,
		'a subscription can connect by a PgBouncer that has replication connections'
	);
	$subscriber->wait_for_pool('pooled');
	$subscriber->sql('DROP SUBSCRIPTION pooled');
}

SessionNode::end_sessions_of($_) for $to_publisher, $to_subscriber;
ok(stop_program("pgbouncer_$_"), "PgBouncer before the $_ ends")
  for 'subscriber', 'publisher';
finish($publisher, $subscriber, duplicate_key('items'),
	qr/FATAL: +(unsupported startup parameter: replication|terminating logical replication worker)/
);
done_testing();
