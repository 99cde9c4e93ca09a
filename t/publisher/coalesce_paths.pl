# Promise: what a publisher coalesces also arrives over TLS, and from a standby
# that decodes.
#
# The subscriber is blocked until there is more than the sockets take, so that the
# walsender has to leave messages unsent and send them later.  coalesced_messages.pl
# shows that messages are held back and sent later.
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
		shared_preload_libraries = 'parallel_apply'
		parallel_apply.coalesce_messages = on
		listen_addresses = '127.0.0.1'
		# It could remove rows of catalogs that a slot of the standby needs.
		autovacuum = off
		logical_decoding_work_mem = 64kB),
	subscriber_conf => 'parallel_apply.queue_size = 4MB');
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, filling text);
	CREATE TABLE gate (id int PRIMARY KEY, v int NOT NULL);));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$subscriber->create_extension;

# Small transactions, one larger than any buffer, one that is streamed
sub make_changes
{
	my ($from) = @_;
	$publisher->sql(
		qq(DO \$\$
		BEGIN
			UPDATE gate SET v = v + 1;
			COMMIT;
			FOR i IN $from .. $from + 2999 LOOP
				INSERT INTO items VALUES (i, i % 7, repeat('x', i % 400));
				COMMIT;
			END LOOP;
			INSERT INTO items VALUES ($from + 3000, 0, (SELECT string_agg(md5(n::text), '')
				FROM generate_series(1, 60000) n));
			COMMIT;
			INSERT INTO items SELECT i, 0, 'large' FROM generate_series($from + 3001, $from + 9999) i;
			COMMIT;
			FOR i IN $from .. $from + 999 LOOP
				UPDATE items SET v = v + 1 WHERE id = i;
				COMMIT;
			END LOOP;
		END \$\$));
	return;
}

sub all_is_equal
{
	my ($how) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	my $lsn = $publisher->sql('SELECT pg_current_wal_lsn()');
	$subscriber->sql("SELECT parallel_apply.wait_for_lsn('tap', '$lsn')");
	$pair->rows_equal($_, "$_ is equal $how") for 'items', 'gate';
	return;
}

# Nothing is applied until all of that has been written.
sub arrives
{
	my ($from, $how) = @_;
	my $gate = $subscriber->hold('UPDATE gate SET v = v');
	make_changes($from);
	$gate->query_safe('ROLLBACK');
	$gate->quit;
	all_is_equal($how);
	make_changes($from + 10000);
	all_is_equal("$how, with nothing in the way");
	return;
}

### TLS

SKIP:
{
	my $reason = why_not_tls();
	skip $reason, 4 if $reason;
	$publisher->turn_tls_on;
	$pair->subscribe('tap', with => 'streaming = on');
	$pair->connect_by_tls('tap');
	$subscriber->wait_for_pool('tap');
	arrives(1, 'over TLS');
	$subscriber->sql('DROP SUBSCRIPTION tap');
	$publisher->sql('DROP PUBLICATION tap');
}

### a standby

# A slot of a standby begins at a list of running transactions, which its primary
# has to write.
sub list_running_until
{
	my ($condition) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($subscriber->sql("SELECT $condition") ne 't')
	{
		die "no $condition" if time > $end;
		$publisher->sql('SELECT pg_log_standby_snapshot()');
	}
	return;
}

SKIP:
{
	skip 'a standby decodes from 16 on', 4
	  if $publisher->pg_version->major < 16;
	my $standby = PapplyNode->new('standby');
	$publisher->backup('base');
	$standby->init_from_backup($publisher, 'base', has_streaming => 1);
	$standby->append_conf(
		'postgresql.conf', q(
		hot_standby_feedback = on
		ssl = off));
	$standby->start;
	$publisher->sql(
		'CREATE PUBLICATION tap FOR ALL TABLES; TRUNCATE items, gate; INSERT INTO gate VALUES (1, 0)'
	);
	$subscriber->sql('TRUNCATE items, gate');
	$publisher->wait_for_catchup($standby, 'replay');

	my $connstr = $standby->connstr . ' dbname=postgres';
	my $session = $subscriber->background_psql('postgres');
	$session->query_until(qr/begun/,
		"\\echo begun\nCREATE SUBSCRIPTION tap CONNECTION '$connstr' PUBLICATION tap WITH (streaming = on);\n"
	);
	list_running_until(
		q(count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel)
	);
	$session->quit;
	$subscriber->wait_for_pool('tap');
	arrives(1, 'from a standby');
	$subscriber->sql('DROP SUBSCRIPTION tap');
	$standby->stop;
}

finish($publisher, $subscriber, worker_terminated());
done_testing();
