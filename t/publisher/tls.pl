# Promise: over TLS the apply worker reads several records at once, and waits for the
# socket only if OpenSSL has nothing left that it has read ahead.
#
# It also reads again after some milliseconds, so nothing would be lost otherwise.  The
# self test makes it abort instead.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $reason = why_not_tls();
plan skip_all => $reason if $reason;

my ($pair, $publisher, $subscriber) = new_pair(
	publisher_conf => q(
		listen_addresses = '127.0.0.1'
		wal_sender_timeout = 0
		logical_decoding_work_mem = 64kB),
	subscriber_conf => q(
		log_min_messages = debug1
		wal_receiver_timeout = 0
		parallel_apply.queue_size = 256kB));
$pair->exec_both(
	q(CREATE TABLE items (id int PRIMARY KEY, v text);
	CREATE TABLE gate (id int PRIMARY KEY, v int NOT NULL);));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$publisher->turn_tls_on;
$subscriber->create_extension;
$pair->subscribe('tap', with => 'streaming = on');
$pair->connect_by_tls('tap');
$subscriber->wait_for_pool('tap');

# Assert that the apply worker has turned reading ahead on, or off, that often.  Others may
# see before that whether there are writers.
sub is_turned
{
	my ($word, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $message = qr/reading ahead of TLS records is $word/;
	$subscriber->wait_for_log(qr/(?:$message.*){$count}/s);
	my $log = slurp_file($subscriber->logfile);
	return is(scalar(() = $log =~ /$message/g), $count, $name);
}

# Rows of up to 40 kB, a transaction each.  A record has at most 16 kB.
sub insert_rows
{
	my ($count) = @_;
	$publisher->sql(
		qq(DO \$\$
		DECLARE
			base int := (SELECT count(*) FROM items);
		BEGIN
			FOR i IN base + 1 .. base + $count LOOP
				INSERT INTO items VALUES (i, repeat(md5(i::text), (i * 397) % 1280));
				COMMIT;
			END LOOP;
		END \$\$));
	return;
}

sub all_is_equal
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$publisher->wait_applied;
	$pair->tables_equal($when, 'items', 'gate');
	return;
}

is_turned('on', 1, 'the apply worker reads ahead');

### while there are writers

insert_rows(300);
all_is_equal('after rows of many sizes');

# The first record of a message contains 16 kB.  If the second one is short, OpenSSL
# reads it along with the first one, and the end of the transaction with both.
for (my $length = 16200; $length <= 16500; $length += 10)
{
	$publisher->sql(
		"INSERT INTO items SELECT max(id) + 1, repeat('x', $length) FROM items"
	);
	$publisher->wait_applied;
}
all_is_equal('after messages of two records');
$publisher->sql('UPDATE items SET v = v || v');
all_is_equal('after a streamed transaction');

### when they leave

my $gate = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET v = v + 1');
insert_rows(300);
$subscriber->reload_with('parallel_apply.writers_per_subscription = 1');
$gate->release;
$subscriber->wait_until(q(state = 'native' FROM parallel_apply.subscriptions),
	'the writers do not leave');
all_is_equal('after the writers have left');
is_turned('off', 1, 'the apply worker does not read ahead without writers');
insert_rows(100);
all_is_equal('without writers');

### and come back

$subscriber->reload_with('parallel_apply.writers_per_subscription = 4');
$subscriber->wait_for_pool('tap');
is_turned('on', 2, 'it does so again with writers');
insert_rows(100);
all_is_equal('when the writers are back');

### the connection ends

$publisher->restart;
insert_rows(100);
all_is_equal('after a restart of the publisher');
is_turned('on', 3, 'each connection is read ahead');

finish($publisher, $subscriber,
	qr/ERROR: +could not (receive data from|connect to)|FATAL: .*connection|could not connect/
);
done_testing();
