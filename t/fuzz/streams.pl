# Promise: whatever a publisher sends, no process of the subscriber crashes or hangs, and a
# subscription that then gets what it should get applies it.
#
# The streams of a real publisher are recorded (Recording.pm), and sent with mutations
# (Mutation.pm) to several subscriptions, again and again (FuzzCycles.pm); one of them is
# applied by PostgreSQL's own apply, under the eyes of the library.  Where a process has
# crashed, the same cycles are repeated on a server without the library.  If that crashes, too,
# the fault is PostgreSQL's own.  The parsers get the same messages, with mutations of their
# own, at the end of a page that nothing follows (selftest_mutate()).
#
# Environment: SEED of the first cycle; FUZZ_SECONDS (300), half of them for the parsers, or
# CYCLES; SUBSCRIPTIONS (3).  With the seed of a cycle, the first cycle has its mutations.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin", "$FindBin::RealBin/../lib";
use FuzzCycles;
use PapplyNode;
use PapplyTest;
use PostgreSQL::Test::Utils;
use Recording qw(contents_query record schema);
use Test::More;
use TimeLimit qw(waits_of);
use Time::HiRes qw(time);

my $seed = $ENV{SEED} // int rand 1_000_000;
my $seconds = $ENV{FUZZ_SECONDS} // 300;
my $subscriptions = $ENV{SUBSCRIPTIONS} // 3;
my $patience = 2 * $PostgreSQL::Test::Utils::timeout_default;
my %count = map { $_ => 0 } qw(cycles messages applied error open whole);
note "SEED=$seed";

my $conf = <<'CONF';
max_prepared_transactions = 20
wal_retrieve_retry_interval = '1ms'
restart_after_crash = on
CONF
my (undef, $publisher, $subscriber) = new_pair(
	publisher_conf =>
	  "max_prepared_transactions = 5\nlogical_decoding_work_mem = 64kB\n",
	subscriber_conf => "$conf
		parallel_apply.queue_size = 1MB
		parallel_apply.writers_per_subscription = 3\n");
my @recordings = record($publisher);
my $contents = $publisher->sql(contents_query());
my %of_kind;
$of_kind{ substr($_, 25, 1) }++ for map { @$_ } @recordings;
is( join('', sort keys %of_kind),
	join('', sort split //, 'BCORYIUDTMbPKrSEcAp'),
	'the recording has all kinds of messages');
note 'messages: ' . join ' ', map { "$_ $of_kind{$_}" } sort keys %of_kind;

### cycles

sub pause
{
	select(undef, undef, undef, 0.2);
	return;
}

# Create a subscription, and begin its cycles.
sub subscribe
{
	my ($node, $name, %options) = @_;
	$node->sql("CREATE DATABASE $name");
	$node->safe_psql($name, schema());
	my $cycles = FuzzCycles->new(
		node => $node,
		name => $name,
		recordings => \@recordings,
		contents => $contents,
		step => $subscriptions,
		%options);
	$node->create_extension($name) if exists $options{writers};
	$node->safe_psql(
			$name, "CREATE SUBSCRIPTION $name CONNECTION '"
		  . $cycles->{fake}->connstr . "'
		PUBLICATION fuzz WITH (connect = false, slot_name = $name, streaming = on);
		SET allow_system_table_mods = on;
		INSERT INTO pg_subscription_rel SELECT s.oid, c.oid, 'r', NULL
			FROM pg_subscription s, pg_class c
			WHERE subname = '$name' AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
	);
	$node->safe_psql($name,
		"SELECT parallel_apply.alter_subscription_config('$name', $options{writers})"
	) if $options{writers};
	$node->safe_psql($name, "ALTER SUBSCRIPTION $name ENABLE");
	return $cycles;
}

# Note what a subscription has reported; return how many cycles have ended.
sub follow
{
	my ($cycles) = @_;
	my $ended = 0;
	for my $line ($cycles->news)
	{
		note "$cycles->{name}: $line" if $line =~ /^lost/;
		my ($what, undef, undef, $messages, @outcomes) = split / /, $line;
		$cycles->{current} = $line if $what eq 'begin';
		next if $what ne 'end';
		$ended++;
		$count{cycles}++;
		$count{messages} += $messages;
		$count{$_}++ for @outcomes;
		fail("$cycles->{name}: $cycles->{current}: $line")
		  if $line =~ /wrong|open whole|error whole/;
	}
	$cycles->{moved} = time if $ended > 0;
	return $ended;
}

# Return what a log says about a crash since the last call.
sub crash_of
{
	my ($node) = @_;
	my $log = slurp_file($node->logfile, $node->{fuzz_offset} // 0);
	$node->{fuzz_offset} += length $log;
	return join "\n",
	  $log =~ /^.*(?:terminated by signal|PANIC|TRAP:|runtime error).*$/mg;
}

my $plain;

# Does a server without the library crash by the same cycle?
sub is_own
{
	my ($line) = @_;
	my (undef, $number, $of_cycle) = split / /, $line;
	if (!$plain)
	{
		$plain = new_plain('plain', $conf);
	}
	crash_of($plain);
	my $name = 'again' . ++$count{again};
	my $cycles = subscribe($plain, $name, seed => $of_cycle);
	my $end = time + $patience;
	pause() until follow($cycles) || time > $end;
	pause();
	my $crash = crash_of($plain);
	$plain->poll_query_until('postgres', 'SELECT true');
	$cycles->stop;
	$plain->safe_psql($name, "ALTER SUBSCRIPTION $name DISABLE");
	note "without the library: $crash";
	return $crash ne '';
}

sub examine
{
	my ($crash, @all) = @_;
	my @current = map { $_->{current} } @all;
	my $own = grep { is_own($_) } @current;
	note "$crash\n" . join "\n", map { "$_->{name}: $_->{current}" } @all;
	$count{own} += $own > 0;
	ok($own, 'what crashes a process also crashes it without the library');
	return;
}

my @all =
  map {
	subscribe(
		$subscriber, "fuzz$_",
		seed => $seed + $_ - 1,
		writers => $_ == 3 ? 1 : undef)
  } 1 .. $subscriptions;
my $end = time + $seconds / 2;
$_->{moved} = time for @all;
while (time < $end && $count{cycles} < ($ENV{CYCLES} // ~0))
{
	pause();
	follow($_) for @all;
	if (my $crash = crash_of($subscriber))
	{
		examine($crash, @all);
		$_->{moved} = time for @all;
	}
	for my $cycles (grep { time - $_->{moved} > $patience } @all)
	{
		fail("$cycles->{name} makes no progress: $cycles->{current}");
		note waits_of($subscriber);
		$end = 0;
	}
}
note join ', ', map { "$_: $count{$_}" } sort keys %count;
cmp_ok($count{whole}, '>', 0, 'subscriptions work between mutated streams');

# What remains when all have ended
$_->stop for @all;
$subscriber->safe_psql($_->{name}, "ALTER SUBSCRIPTION $_->{name} DISABLE")
  for @all;
my $workers =
  q(SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'replication.* worker|parallel_apply');
$end = time + $patience;
while ($subscriber->sql($workers) > 0 && time < $end)
{
	$_->forget_prepared for @all;
	pause();
}
is($subscriber->sql($workers), 0, 'all workers end');
is(crash_of($subscriber), '', 'no process crashes in the end');
my @left = glob $subscriber->data_dir . '/base/pgsql_tmp/*';
is("@left", '', 'no file of a streamed transaction is left');

### parsers

SKIP:
{
	my ($status) = $subscriber->psql(
		'postgres',
		q(CREATE FUNCTION selftest_mutate(message bytea, seed int, times int) RETURNS int
		LANGUAGE C STRICT AS 'parallel_apply', 'papply_selftest_mutate'));
	skip 'the library was made without SELFTEST=1', 1 if $status != 0;
	my %longest;
	for (map { @$_ } @recordings)
	{
		my $message = substr $_, 25;
		my $kind = substr $message, 0, 1;
		$longest{$kind} = $message
		  if length $message < 500
		  && length $message > length($longest{$kind} // '');
	}
	my $parsed = 0;
	my $end = time + $seconds / 2;
	my $times = 20_000;
	while (time < $end)
	{
		for my $message (values %longest)
		{
			$seed++;
			$subscriber->sql("SELECT selftest_mutate('\\x"
				  . unpack('H*', $message)
				  . "', $seed % 1000000000, $times)");
			$parsed += $times;
		}
	}
	note "$parsed messages parsed";
	is(crash_of($subscriber), '', 'parsers read nothing beyond a message');
}
$plain->stop if $plain;
$subscriber->stop;
$publisher->stop;
done_testing();
