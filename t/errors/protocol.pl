# Promise: messages that a publisher must not send are an error of the apply worker,
# as without the extension.  Nothing of them is applied, nothing hangs, and no
# process crashes.
#
# The publisher sends the same messages on each connection (FakePublisher.pm).  So each
# error repeats until another publisher takes its place.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use FakePublisher
  qw($lsn begin_at commit data in_stream insert keepalive read_message relation
  send_message stream_abort stream_commit stream_start transaction truncate_tables);
use IO::Select;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The queue is small, so that a transaction is applied while it arrives.  What the apply worker
# says in the middle of one is not because there is nothing to read (see selftest_wakes.c).
# A writer is stopped while it waits for a lock, and must not be looking for a deadlock then:
# it would hold what every process needs.
my (undef, undef, $subscriber) = new_pair(
	subscriber_conf => q(
		parallel_apply.queue_size = 1MB
		parallel_apply.selftest_read_on = on
		deadlock_timeout = 1h
		wal_retrieve_retry_interval = '100ms'));
my $fake = FakePublisher->new($subscriber);
$subscriber->sql(
	q(CREATE TABLE items (id int PRIMARY KEY, note text);
	CREATE TABLE other (id int PRIMARY KEY, note text);
	CREATE TABLE keyless (id int, note text);
	CREATE TABLE many (id int PRIMARY KEY, note text);));
# More key columns than an index can have
my $key_columns = 33;
$subscriber->sql("ALTER TABLE many ADD column$_ text")
  for 3 .. $key_columns + 1;
$subscriber->create_extension;
$subscriber->sql(
	'CREATE SUBSCRIPTION tap CONNECTION ' . "'" . $fake->connstr . "'" . "
	PUBLICATION tap WITH (connect = false, slot_name = tap, streaming = on);
	SET allow_system_table_mods = on;
	INSERT INTO pg_subscription_rel
		SELECT oid, table_name::regclass, 'r', NULL FROM pg_subscription,
			(VALUES ('items'), ('other'), ('keyless'), ('many')) t (table_name);");

### messages

my @items = (relation(1, 'items', 'd'), relation(2, 'other', 'd'));

# More than is published at once: a writer has begun the transaction.
sub large
{
	return map { insert(1, 1000 + $_, 'x' x 1000) } 1 .. 200;
}

### the tests

# Assert that these messages cause this error, and that nothing of them is applied.
sub is_refused
{
	my ($name, $error, @messages) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset = -s $subscriber->logfile;
	$fake->start(@messages);
	# twice: the first attempt leaves nothing behind that does harm
	ok( $subscriber->wait_for_log(
			qr/ERROR:  $error.*ERROR:  $error/s, $offset),
		"$name: an error");
	$fake->stop;
	is($subscriber->sql('SELECT count(*) FROM items'),
		0, "$name: nothing is applied");
	return;
}

my $malformed = qr/malformed logical replication message/;

$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
is_refused(
	'a change of a relation that was not described',
	qr/no relation map entry for remote relation ID 9/,
	@items, transaction(insert(9, 1, 'one')));
is_refused('a message that ends too early',
	$malformed, @items, begin_at('B'), substr(insert(1, 1, 'one'), 0, -1));
is_refused(
	'a definition that ends too early',
	qr/$malformed|invalid string in message/,
	substr($items[0], 0, 10));
is_refused(
	'more columns than a table has, the last one of which is the key',
	qr/logical replication target relation "public.items" is missing replicated columns/,
	relation(1, 'items', 'd', (0) x 40_000, 1),
	transaction(insert(1, 1, 'one')));

# Positions and flags that PostgreSQL's own apply checks
is_refused(
	'a commit of another position',
	$malformed, @items, begin_at('B'),
	insert(1, 1, 'one'),
	commit($lsn + 1));
is_refused(
	'a commit with a flag',
	$malformed, @items, begin_at('B'),
	insert(1, 1, 'one'),
	commit(undef, 1));
my $padding = "\0" x (2 * 1024 * 1024);
is_refused(
	'a commit that is larger than the queue',
	$malformed, @items, begin_at('B'),
	insert(1, 1, 'one'),
	commit() . $padding);
is_refused('a begin that is larger than the queue',
	$malformed, @items, begin_at('B') . $padding);
is_refused(
	'a transaction without a position',
	$malformed, @items,
	pack('a Q> q> N', 'B', 0, 0, 700),
	insert(1, 1, 'one'),
	commit(0));
is_refused(
	'a prepared transaction without a number',
	$malformed,
	@items,
	begin_at('b'),
	insert(1, 1, 'one'),
	pack('a C Q> Q> q> N Z*', 'P', 0, $lsn, $lsn + 50, 0, 0, 'gid'));

# Bytes that are not a character: views show what is before them.
$fake->start(@items, transaction(insert(1, "1\xf0", 'one')));
ok( $subscriber->poll_query_until(
		'postgres',
		'SELECT key, message FROM parallel_apply.failed_transactions',
		'(id)=(1)|invalid input syntax for type integer: "1'),
	'a value with bytes that are not a character is shown up to these');
$fake->stop;

# Messages out of order
is_refused('a change outside of a transaction',
	$malformed, @items, insert(1, 1, 'one'));
is_refused(
	'a transaction in another one',
	$malformed, @items, begin_at('B'),
	insert(1, 1, 'one'),
	transaction(insert(1, 2, 'two')));
is_refused(
	'a ROLLBACK PREPARED in a transaction that is being applied',
	$malformed,
	@items,
	begin_at('B'),
	large(),
	pack('a C Q> Q> q> q> N Z*', 'r', 0, $lsn, $lsn, 0, 0, 700, 'gid'));
is_refused(
	'a PREPARE of an ordinary transaction',
	$malformed,
	@items,
	begin_at('B'),
	insert(1, 1, 'one'),
	pack('a C Q> Q> q> N Z*', 'P', 0, $lsn, $lsn + 50, 0, 700, 'gid'));
is_refused(
	'a stream in another one',
	$malformed, stream_start(700), in_stream(700, @items),
	stream_start(701));
is_refused('a commit in a stream',
	$malformed, stream_start(700), in_stream(700, @items), commit());
is_refused('a stream without a number', $malformed, stream_start(0));
is_refused(
	'a change without a number in a stream',
	$malformed, stream_start(700),
	in_stream(700, @items),
	in_stream(0, insert(1, 1, 'one')));
is_refused(
	'a change in a stream that ends too early',
	$malformed,
	stream_start(700),
	in_stream(700, @items),
	substr((in_stream(700, insert(1, 1, 'one')))[0], 0, 7),
	'E',
	stream_commit(700));

sub stream_prepare
{
	$lsn += 100;
	return
	  pack('a C Q> Q> q> N Z*', 'p', 0, $lsn, $lsn + 50, 0, $_[0], 'gid');
}

# With writers, and by PostgreSQL's own apply, which would crash
sub unknown_streams_are_refused
{
	my ($how) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_refused("the commit of a stream that was not sent, $how",
		$malformed, stream_commit(700));
	is_refused("the PREPARE of a stream that was not sent, $how",
		$malformed, stream_prepare(700));
	is_refused(
		"a second commit of a stream, $how",
		$malformed, stream_start(700), in_stream(700, @items),
		'E', stream_commit(700), stream_commit(700));
	is_refused(
		"a transaction in a stream, $how",
		$malformed, stream_start(700), in_stream(700, @items),
		begin_at('B'), commit());
	is_refused(
		"the end of a prepared transaction in a stream, $how",
		$malformed,
		stream_start(700),
		in_stream(700, @items),
		pack('a C Q> Q> q> q> N Z*', 'r', 0, $lsn, $lsn, 0, 0, 700, 'gid'));
	return;
}

unknown_streams_are_refused('with writers');
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', 1)));
unknown_streams_are_refused('without writers');

# Between the BEGIN of a transaction and its changes, its position is to be skipped.
# PostgreSQL decides that at the BEGIN, and clears the position at the end.
{
	pipe my $signal, my $sender or die "no pipe: $!";
	my $begin = begin_at('B');
	my $position = sprintf '%X/%X', $lsn >> 32, $lsn & 0xFFFFFFFF;
	my $offset = -s $subscriber->logfile;
	my $inserts =
	  $subscriber->sql(
		'SELECT inserts FROM parallel_apply.subscription_stats');
	$fake->start(
		@items, $begin,
		sub { close $sender; readline $signal; return; },
		insert(1, 50, 'one'),
		insert(1, 51, 'two'), commit());
	close $signal;
	$subscriber->wait_until(
		'remote_xid IS NOT NULL FROM parallel_apply.writers WHERE writer = 0',
		'the transaction does not begin');
	$subscriber->sql("ALTER SUBSCRIPTION tap SKIP (lsn = '$position')");
	close $sender;
	ok( $subscriber->poll_query_until(
			'postgres',
			q(SELECT subskiplsn = '0/0' AND (SELECT count(*) FROM items) = 2 FROM pg_subscription)
		),
		'a transaction that has begun is not skipped, and its position is cleared'
	);
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT inserts - $inserts = 2 FROM parallel_apply.subscription_stats"
		),
		'its rows are counted');
	unlike(
		slurp_file($subscriber->logfile, $offset),
		qr/skip-LSN .* cleared|skipping transaction/,
		'it was the right position');
	$fake->stop;
	$subscriber->sql('DELETE FROM items');
}
$subscriber->sql(
	q(SELECT parallel_apply.alter_subscription_config('tap', NULL)));

# What the publisher says about itself
foreach my $answer (
	[ 'fewer columns', qr/invalid query response/, 'f', 'f' ],
	[ 'another type', qr/invalid input syntax/, 'f', 'f', 'soon' ])
{
	my ($what, $error, @settings) = @$answer;
	local $fake->{settings} = \@settings;
	is_refused("settings of $what", $error, @items);
}

# A stored transaction has a row with fewer columns than its relation, behind the one that
# fails.  The publisher does not say where it is.
$subscriber->sql(q(INSERT INTO items VALUES (60, 'local')));
my @failing =
  (@items, transaction(insert(1, 60, 'one'), insert(1, 61)));
$fake->start(@failing);
$subscriber->wait_until(
	'count(*) = 1 FROM parallel_apply.failed_transactions',
	'the transaction does not fail');
$subscriber->refuses(
	q(CALL parallel_apply.skip_transactions('tap', 1)),
	qr/invalid input syntax for type pg_lsn/,
	'a position that is none is an error');
{
	local $fake->{position} = undef;
	$fake->start(@failing);
	$subscriber->sql(q(CALL parallel_apply.skip_transactions('tap', 1)));
}
my $stored =
  $subscriber->sql('SELECT id FROM parallel_apply.skipped_transactions');
ok($stored, 'without an answer it waits for nothing more');
$fake->stop;
$subscriber->refuses("SELECT * FROM parallel_apply.skipped_changes($stored)",
	$malformed, 'a row with fewer columns is not shown');
$subscriber->sql("SELECT parallel_apply.forget($stored); DELETE FROM items");

# A change outside of a transaction follows one that is stored.
$subscriber->sql(q(INSERT INTO items VALUES (60, 'local')));
my @skipped = (@items, transaction(insert(1, 60, 'one')));
my $finish_lsn = sprintf '%X/%X', $lsn >> 32, $lsn & 0xFFFFFFFF;
$fake->start(@skipped);
$subscriber->wait_until(
	"count(*) = 1 FROM parallel_apply.failed_transactions WHERE finish_lsn = '$finish_lsn'",
	'the transaction does not fail');
$stored = $subscriber->sql(q(SELECT parallel_apply.skip_transaction('tap')));
my $skipped_at = -s $subscriber->logfile;
$fake->start(@skipped, insert(1, 62, 'one'));
ok( $subscriber->wait_for_log($malformed, $skipped_at),
	'a change that follows a stored transaction is an error');
$fake->stop;
$subscriber->sql("SELECT parallel_apply.forget($stored); DELETE FROM items");

# In the middle of a transaction that a writer applies, the publisher requests a
# reply, and then sends messages without end until it gets one with that position.
# The messages take no space in the queue.
{
	my $answer = "$fake->{directory}/answer";
	my $question = $lsn + 50;
	my $ask = sub {
		my ($client) = @_;
		my $type = data(pack('a N Z* Z*', 'Y', 1, 'public', 'mood'));
		my $types = ('d' . pack('N', 4 + length $type) . $type) x 1000;
		my $end = time + 2 * $PostgreSQL::Test::Utils::timeout_default;
		send_message($client, 'd', keepalive($question, 1));
		while (time < $end)
		{
			$client->print($types) or return;
			next if !IO::Select->new($client)->can_read(0);
			my ($kind, $message) = read_message($client, 5) or return;
			next if $kind ne 'd' || $message !~ /^r/;
			next if unpack('x Q>', $message) < $question;
			append_to_file($answer, 'there is one');
			return;
		}
	};
	$fake->{settings}[0] = 't';
	$fake->start($items[0], begin_at('B'),
		(map { insert(1, $_, 'x' x 100) } 1000 .. 2000), $ask);
	ok( $subscriber->poll_query_until(
			'postgres', "SELECT size > 0 FROM pg_stat_file('$answer', true)"),
		'a publisher that asks gets a reply, though messages never end');
	$fake->stop;
	$fake->{settings}[0] = 'f';
}

# Correct messages are applied.  So is what follows the rollback of a stream that was not
# sent.  The publisher does not say what it needs.
$fake->{settings} = undef;
$fake->start(
	@items,
	pack('a N N', 'A', 701, 701),
	relation(3, 'keyless', 'f', 1, 1),
	transaction(
		insert(1, 1, 'one'), insert(2, 1, 'one'), insert(3, 1, 'one')),
	stream_start(700),
	in_stream(700, @items, insert(1, 2, 'two')),
	'E',
	stream_commit(700),
	transaction(truncate_tables(2, 3), insert(3, 3, 'three')));
$subscriber->poll_query_until(
	'postgres',
	q(SELECT string_agg(note, ' ' ORDER BY note) = 'one three two' FROM
		(SELECT * FROM items UNION ALL SELECT * FROM other UNION ALL SELECT * FROM keyless) t)
) or die 'correct messages are not applied';
is($subscriber->counter('fallbacks'), 0, 'writers apply correct messages');

# A change whose key is not known waits for everything older, and everything younger
# waits for it.  Detects: either of them is applied concurrently.
$fake->stop;
my $gate = $subscriber->hold(q(INSERT INTO items VALUES (10, 'local')));
$fake->start(
	@items,
	relation(4, 'many', 'd', (1) x $key_columns, 0),
	transaction(insert(1, 10, 'ten')),
	transaction(insert(4, 1, ('x') x $key_columns)),
	transaction(insert(2, 10, 'ten')));
$subscriber->states_become(
	'waiting for lock, waiting for dependency, waiting for dependency',
	'a change with too long a key waits, and is waited for');
$gate->query_safe('ROLLBACK');
$gate->quit;
$subscriber->wait_until(
	'(SELECT count(*) FROM many) = 1 AND (SELECT count(*) FROM other WHERE id = 10) = 1',
	'changes behind one with too long a key are not applied');

# A subtransaction that began after one that is rolled back is rolled back with it, even if
# the publisher reports that later.  Detects: what has been written since then is lost, or
# the file is truncated in the middle of a message.
$fake->stop;
$fake->start(
	stream_start(710),
	in_stream(711, @items, insert(1, 20, 'first')),
	in_stream(712, insert(1, 21, 'second')),
	'E',
	stream_abort(710, 711),
	stream_start(710, 'continued'),
	in_stream(710, @items, insert(2, 22, 'x' x 5000)),
	'E',
	stream_abort(710, 712),
	stream_start(710, 'continued'),
	in_stream(710, insert(2, 23, 'fourth')),
	'E',
	stream_commit(710));
$subscriber->wait_until('count(*) = 2 FROM other WHERE id IN (22, 23)',
	'changes behind a subtransaction that is rolled back are not applied');
is($subscriber->sql('SELECT count(*) FROM items WHERE id IN (20, 21)'),
	'0', 'nothing is left of the subtransactions');

# A message that only PostgreSQL's own apply knows comes while a writer applies a streamed
# transaction.  The writer is stopped, so that the apply worker has to wait until it has
# rolled back, and is woken by nothing else.  Detects: it is not woken.
SKIP:
{
	skip 'the library was made without SELFTEST=1', 1
	  if !$subscriber->create_selftest_waits;
	$subscriber->sql(
		q(CREATE FUNCTION routed_messages(subid oid) RETURNS bigint
		LANGUAGE C STRICT AS 'parallel_apply', 'papply_selftest_routed_messages'));
	my $row =
	  $subscriber->hold(q(SELECT FROM other WHERE id = 10 FOR UPDATE));
	my $unknown = qr/ERROR:  invalid logical replication message type/;
	my $offset = -s $subscriber->logfile;
	pipe my $signal, my $sender or die "no pipe: $!";
	$fake->stop;
	$fake->start(
		stream_start(700),
		in_stream(700, $items[1], 'U' . substr(insert(2, 10, 'new'), 1)),
		'E',
		sub { close $sender; readline $signal; return; },
		'Z');
	close $signal;
	$subscriber->states_become('waiting for lock',
		'a writer applies a streamed transaction');
	$subscriber->let_receiver_sleep('on');
	my $writer = $subscriber->sql(
		q(SELECT pid FROM parallel_apply.writers WHERE state = 'waiting for lock')
	);
	my $waits =
	  q((SELECT split_part(selftest_waits(oid), ',', 1) FROM pg_subscription));
	my $routed = '(SELECT routed_messages(oid) FROM pg_subscription)';
	my ($waits_before, $routed_before) =
	  split /\|/, $subscriber->sql("SELECT $waits, $routed");
	kill 'STOP', $writer;
	close $sender;
	$subscriber->wait_until(
		"$routed > $routed_before AND $waits <> '$waits_before'",
		'the apply worker does not wait');
	kill 'CONT', $writer;
	ok( $subscriber->wait_for_log($unknown, $offset),
		'the apply worker is woken when a streamed transaction is rolled back'
	);
	$row->quit;
}

unlike(
	slurp_file($subscriber->logfile),
	qr/terminated by signal/,
	'no process has crashed');
$fake->stop;
$subscriber->stop;
done_testing();
