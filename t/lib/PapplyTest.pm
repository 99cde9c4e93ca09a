# PapplyTest.pm - the servers of a test, and its common functions.  The servers are nodes of
# PostgreSQL::Test::Cluster with more methods (PapplyNode.pm), in pairs (PapplyPair.pm).
package PapplyTest;

use strict;
use warnings;
use Exporter 'import';
use PapplyNode;
use PapplyPair;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  all_kinds_of_changes behind_lock duplicate_key end_sessions finish has_module item_rows last_item new_pair
  new_plain several_together why_not_tls without_flushes worker_terminated);

# Return a pair of running servers, and both nodes: (pair, publisher, subscriber).
# Options: publisher_conf and subscriber_conf, lines for postgresql.conf; subscriber_init,
# options of the subscriber's initdb; node_options, for new() of both.
sub new_pair
{
	my (%opt) = @_;
	my @node_options = @{ $opt{node_options} // [] };
	my $publisher = PapplyNode->new('publisher', @node_options);
	$publisher->init(allows_streaming => 'logical');
	# Cluster's 1 MB of shared buffers would make bulk tests slow.  WAL of an open
	# transaction is not sent before it is flushed: a WAL writer that sleeps may need 25
	# times its delay.
	$publisher->append_conf('postgresql.conf', <<~'CONF');
		fsync = off
		shared_buffers = 32MB
		wal_writer_delay = 10ms
		max_connections = 40
		CONF
	$publisher->append_conf('postgresql.conf', $opt{publisher_conf} // '');

	my $subscriber = PapplyNode->new('subscriber', @node_options);
	$subscriber->init(extra => $opt{subscriber_init} // []);
	# Writers apply single transactions, too, and stay, unless a test requests
	# otherwise.
	$subscriber->append_conf('postgresql.conf', <<~'CONF');
		fsync = off
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.leader_participation = off
		parallel_apply.idle_writers_per_subscription = -1
		parallel_apply.reserved_worker_processes = 0
		max_worker_processes = 32
		max_logical_replication_workers = 8
		max_sync_workers_per_subscription = 2
		wal_retrieve_retry_interval = '100ms'
		CONF
	$subscriber->append_conf('postgresql.conf', $opt{subscriber_conf} // '');

	for my $node ($publisher, $subscriber)
	{
		# The modules of 18 set it on nodes of any version.
		$node->adjust_conf('postgresql.conf', 'autovacuum_worker_slots',
			undef)
		  if @node_options && $node->pg_version < 18;
		$node->start;
	}
	return (PapplyPair->new($publisher, $subscriber), $publisher,
		$subscriber);
}

# Return lines for a subscriber that flushes nothing and answers nothing, unless something asks it to.
sub without_flushes
{
	return <<~'CONF';
		shared_buffers = 32MB
		autovacuum = off
		bgwriter_lru_maxpages = 0
		checkpoint_timeout = 1h
		wal_receiver_status_interval = 1h
		wal_receiver_timeout = 0
		parallel_apply.leader_participation = on
		parallel_apply.writers_per_subscription = 2
		CONF
}

# Return a running server without the library, with these lines in its postgresql.conf.
sub new_plain
{
	my ($name, $conf) = @_;
	my $node = PapplyNode->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', "fsync = off\n$conf");
	$node->start;
	return $node;
}

# End sessions of hold().
sub end_sessions
{
	my (@sessions) = @_;
	$_->quit for @sessions;
	return;
}

# Return SQL for that many more rows of a table items (id, v, note), 1000 of which
# exceed the minimum of logical_decoding_work_mem; and the ID of the last one.
my $last_item = 0;

sub item_rows
{
	my ($count) = @_;
	my ($from, $to) = ($last_item + 1, $last_item + $count);
	$last_item = $to;
	return
	  "INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series($from, $to) i;";
}

sub last_item
{
	return $last_item;
}

# Return SQL for changes of all kinds of tables items (id, v, note), "Whole" (a, b), which has no
# key, and emptied.  A row gets a negative v, which make_fault() does not allow.
sub all_kinds_of_changes
{
	return q(
		INSERT INTO items VALUES (100, 1, 'it''s \ a "quote"'), (101, NULL, NULL);
		UPDATE items SET v = -v - 1, note = note || 'x' WHERE id IN (1, 2);
		UPDATE items SET id = 102 WHERE id = 3;
		DELETE FROM items WHERE id = 4;
		UPDATE "Whole" SET b = 'one of them' WHERE ctid = (SELECT min(ctid) FROM "Whole" WHERE a = 1);
		DELETE FROM "Whole" WHERE a = 2;
		TRUNCATE emptied;
	);
}

# Assert that more than two transactions are applied as one: $apply applies a backlog, and
# returns how many were.  A writer that was slow claims fewer at a time for a while, so it
# is repeated.
sub several_together
{
	my ($name, $apply) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $most = 0;
	for (my $times = 0; $times < 20 && $most <= 2; $times++)
	{
		$most = $apply->();
	}
	return cmp_ok($most, '>', 2, $name);
}

# Does the server have that contrib module?
sub has_module
{
	my ($name) = @_;
	chomp(my $directory = `pg_config --pkglibdir`);
	return -e "$directory/$name.so";
}

# Why there can be no encrypted connections, or ''.
sub why_not_tls
{
	return 'without openssl there is no certificate'
	  if system('openssl version >/dev/null 2>&1') != 0;
	return 'the server was built without TLS'
	  if `pg_config --configure` !~ /--with-(?:ssl=)?openssl/;
	return '';
}

# Return the states of transactions (see states_become), the first of which waits for a
# lock.
sub behind_lock
{
	my (@others) = @_;
	return join(', ', 'waiting for lock', @others);
}

# The log message for a row that exists already; from 18 on it is a conflict.
sub duplicate_key
{
	my ($table) = @_;
	return
	  qr/ERROR: +(duplicate key value violates unique constraint "${table}_pkey"|conflict detected on relation "public\.$table": conflict=insert_exists)/;
}

# The log message of an apply worker that pg_terminate_backend() has ended.
sub worker_terminated
{
	return
	  qr/FATAL: +terminating logical replication worker due to administrator command/;
}

# The end of a test: finish(nodes and patterns).  The logs of these nodes are
# clean but for errors that match the patterns, and the nodes stop, in the
# opposite order.
sub finish
{
	my @nodes = grep { ref ne 'Regexp' } @_;
	my @allowed = grep { ref eq 'Regexp' } @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->log_is_clean(@allowed) for @nodes;
	$_->stop for reverse @nodes;
	return;
}

1;
