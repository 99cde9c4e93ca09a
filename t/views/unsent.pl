# Promise: the lag includes what the publisher has not sent.  If the publisher or the
# network is the limit, all that was received is soon committed, but what is sent is old
# when it is sent.  Then the lag is that of the newest transaction, with and without
# writers, until the publisher says that it has sent all, or is silent for ten seconds.  The
# clocks of the servers may differ.  While a new connection waits for the first message, the
# lag of before counts.
#
# The publisher is a fake, whose messages have the times that the test wants.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use FakePublisher
  qw(begin_at commit data insert keepalive relation send_together time_of);
use IO::Handle;
use IO::Select;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my (undef, undef, $subscriber) = new_pair();
$subscriber->sql('CREATE TABLE items (id int PRIMARY KEY, note text)');
$subscriber->create_extension;
my $publisher = FakePublisher->new($subscriber);
$subscriber->sql(
		q(CREATE SUBSCRIPTION tap CONNECTION ')
	  . $publisher->connstr
	  . q(' PUBLICATION tap WITH (connect = false, slot_name = tap);
	SET allow_system_table_mods = on;
	INSERT INTO pg_subscription_rel
		SELECT oid, 'items'::regclass, 'r', NULL FROM pg_subscription;)
);

my $view = 'parallel_apply.subscriptions';
# It shows that a keepalive has been received
my $keepalive_lsn = 0x7000000;

# A transaction with these changes that was committed $age seconds before it is sent, where
# the clock of the publisher is slow by $slow seconds.
sub transaction_of_age
{
	my ($age, $slow, @changes) = @_;
	my $now = time - $slow;
	my @messages =
	  (begin_at('B', time_of($now - $age)), @changes, commit());
	return map { \data($_, time_of($now)) } @messages;
}

# Have the publisher send an empty transaction of that age, and another message, each second
# until continue_sending(): a slow test is no silence.
my ($signals, $sender);

sub empty_transactions
{
	my ($age, $slow, @messages) = @_;
	return sub {
		my ($client) = @_;
		do
		{
			send_together($client, transaction_of_age($age, $slow),
				@messages);
		} while (!IO::Select->new($signals)->can_read(1));
		wait_for_test();
		return;
	};
}

sub wait_for_test
{
	sysread $signals, my $signal, 1;
	return;
}

sub continue_sending
{
	syswrite $sender, '.';
	return;
}

sub received
{
	return sprintf "received_lsn = '0/%X'", @_;
}

# Assert that the lag gets between $least and $most seconds while all that was received is
# committed, and under a condition.
sub lag_becomes
{
	my ($least, $most, $name, $condition) = @_;
	$condition //= 'true';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT queue_transactions = 0 AND (SELECT count(*) FROM items) = 1 AND $condition
				AND lag BETWEEN interval '$least s' AND interval '$most s' FROM $view"
		),
		$name);
	return;
}

for my $writers (2, 1)
{
	my $name = $writers == 1 ? 'one writer' : "$writers writers";
	my $state = $writers == 1 ? 'native' : 'parallel';
	$subscriber->sql(
		"TRUNCATE items; SELECT parallel_apply.alter_subscription_config('tap', $writers)"
	);
	pipe $signals, $sender or die "no pipe: $!";

	$publisher->start(
		relation(1, 'items', 'd'),
		transaction_of_age(600, 0, insert(1, 1, 'x')),
		empty_transactions(600, 0),
		empty_transactions(300, 0),
		empty_transactions(300, 0, \keepalive($keepalive_lsn, 1)),
		\keepalive($keepalive_lsn, 0),
		\&wait_for_test,
		empty_transactions(
			0, 100, \keepalive($keepalive_lsn + 1, 1, time_of(time - 100))),
		\&wait_for_test);
	$subscriber->sql('ALTER SUBSCRIPTION tap ENABLE');
	lag_becomes(600, 900, "$name: the age of what was sent is a lag");
	$subscriber->wait_until("state = '$state' FROM $view",
		"the state is not $state");
	$subscriber->wait_until(
		q(count(*) = 1 FROM parallel_apply.advice('tap') WHERE topic = 'publisher'),
		'advice() does not say that the publisher is the limit'
	) if $writers > 1;
	is( $subscriber->sql(
			q(SELECT count(*) FROM parallel_apply.advice('tap') WHERE topic = 'writers')
		),
		'0',
		"$name: nor does it speak of more writers");
	continue_sending();
	lag_becomes(300, 599, "$name: a newer transaction reduces it");
	continue_sending();
	lag_becomes(
		300, 599,
		"$name: a publisher that wants a reply may have more",
		received($keepalive_lsn));
	continue_sending();
	lag_becomes(0, 0, "$name: one that waits for new WAL has no more");
	continue_sending();
	lag_becomes(
		0, 0,
		"$name: what is sent at once is not old, whatever the clocks are",
		received($keepalive_lsn + 1));

	# A new connection, in which nothing comes at first
	$publisher->start(
		\&wait_for_test, \keepalive($keepalive_lsn, 0),
		\&wait_for_test, empty_transactions(600, 0),
		\&wait_for_test);
	$subscriber->wait_until(
		"state = '$state' AND lag > interval '0.1 s' FROM $view",
		'a new connection hides the lag');
	my $before = $subscriber->sql("SELECT lag FROM $view");
	ok( $subscriber->poll_query_until(
			'postgres',
			"SELECT lag > interval '$before' + interval '0.1 s' FROM $view"),
		"$name: without a first message, the lag of before grows");
	continue_sending();
	lag_becomes(0, 0, "$name: until there is one");
	if ($writers > 1)
	{
		continue_sending();
		lag_becomes(600, 900, 'the publisher sends something old');
		is( $subscriber->sql(
				q(SELECT level FROM parallel_apply.advice('tap') WHERE topic = 'publisher')
			),
			'notice',
			'which advice() says');
		continue_sending();
		lag_becomes(0, 0, 'and is silent');
	}
	$subscriber->sql('ALTER SUBSCRIPTION tap DISABLE');
	$subscriber->wait_until("pid IS NULL FROM $view",
		'the apply worker does not end');
}

$publisher->stop;
$subscriber->log_is_clean(
	qr/could not (connect to the publisher|receive data from WAL stream|send data to WAL stream)/
);
$subscriber->stop;
done_testing();
