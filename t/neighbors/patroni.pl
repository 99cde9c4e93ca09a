# Promise: a subscriber that is a cluster of Patroni applies in parallel, and each
# transaction exactly once, when its members are restarted for another
# max_worker_processes in the order of the manual (doc/high_availability.md), after a
# switchover, and after the leader and its Patroni were killed.
#
# pgbench writes to the publisher during each of these steps.  What is lost, repeated or
# applied in another order shows in a chain of balances.  The standby is synchronous, so
# that a failover loses nothing.
#
# It needs Patroni and etcd (make check-patroni).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use HTTP::Tiny;
use JSON::PP;
use MIME::Base64 qw(encode_base64);
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Programs;
use Test::More;

plan skip_all => 'needs Patroni and etcd (make check-patroni gets them)'
  unless is_installed('patroni') && is_installed('etcd');

my ($pair, $publisher, $one) = new_pair(
	subscriber_conf => q(
		wal_level = replica
		max_wal_senders = 4
		max_worker_processes = 20
		parallel_apply.writers_per_subscription = 3));
my $two = PapplyNode->new('two');
my $user = getpwuid($<);
my ($etcd_port, $peer_port, %rest_port) = (
	PostgreSQL::Test::Cluster::get_free_port(),
	PostgreSQL::Test::Cluster::get_free_port(),
	map { $_ => PostgreSQL::Test::Cluster::get_free_port() } $one->name,
	$two->name);

END
{
	local $?;
	kill_programs();
	kill_servers($_) for grep { defined } $one, $two;
}

### processes ################################################################

# The processes of a server, which work in its data directory
sub processes_of
{
	my ($node) = @_;
	my $directory = $node->data_dir;
	return map { m{^/proc/(\d+)/} }
	  grep { (readlink($_) // '') eq $directory } glob('/proc/[0-9]*/cwd');
}

# Kill the postmaster first, which starts no other process then.
sub kill_servers
{
	my ($node) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';
	my ($postmaster) = -e $pidfile ? slurp_file($pidfile) =~ /^(\d+)$/m : ();
	my @pids = processes_of($node);
	kill 'KILL', grep { defined $postmaster && $_ == $postmaster } @pids;
	while (@pids = processes_of($node))
	{
		kill 'KILL', @pids;
		select(undef, undef, undef, 0.01);
	}
	return;
}

### the cluster ##############################################################

sub start_etcd
{
	my ($clients, $peers) =
	  map { "http://127.0.0.1:$_" } $etcd_port, $peer_port;
	start_program(
		'etcd', 'etcd',
		'--data-dir' => PostgreSQL::Test::Utils::tempdir(),
		'--unsafe-no-fsync',
		'--initial-cluster' => "default=$peers",
		'--listen-peer-urls' => $peers,
		'--initial-advertise-peer-urls' => $peers,
		'--listen-client-urls' => $clients,
		'--advertise-client-urls' => $clients);
	answer_of("$clients/health", sub { $_[0] =~ /true/ })
	  or die 'etcd does not answer';
	return;
}

# End the lease of the key of the leader, and of its member, at once.  It would last for an
# hour, so that no member loses its role because the machine is slow.
sub end_lease_of_leader
{
	my $url = "http://127.0.0.1:$etcd_port/v3";
	my $post = sub {
		my ($what, %content) = @_;
		my $answer = HTTP::Tiny->new->post("$url/$what",
			{ content => encode_json(\%content) });
		die "etcd, $what: $answer->{status} $answer->{content}"
		  if !$answer->{success};
		return decode_json($answer->{content});
	};
	my $leader = $post->(
		'kv/range', key => encode_base64('/service/subscriber/leader', ''));
	$post->('lease/revoke', ID => $leader->{kvs}[0]{lease});
	return;
}

sub configuration_of
{
	my ($node) = @_;
	return $node->basedir . '/patroni.yml';
}

sub start_member
{
	my ($node) = @_;
	my ($name, $port, $rest) =
	  ($node->name, $node->port, $rest_port{ $node->name });
	my $directory = $node->basedir;
	unlink configuration_of($node);
	append_to_file(configuration_of($node), <<~"YAML");
		scope: subscriber
		name: $name
		log: {dir: $directory}
		restapi: {listen: "127.0.0.1:$rest", connect_address: "127.0.0.1:$rest"}
		etcd3: {host: "127.0.0.1:$etcd_port"}
		bootstrap:
		  dcs:
		    ttl: 3600
		    loop_wait: 1
		    retry_timeout: 300
		    synchronous_mode: true
		    postgresql:
		      use_pg_rewind: true
		      parameters:
		        shared_preload_libraries: parallel_apply
		        max_worker_processes: 20
		postgresql:
		  listen: 127.0.0.1:$port
		  connect_address: 127.0.0.1:$port
		  data_dir: @{[ $node->data_dir ]}
		  pgpass: $directory/pgpass
		  authentication: {superuser: {username: $user}, replication: {username: $user}}
		  pg_hba: [local all all trust, host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
		  parameters: {unix_socket_directories: @{[ $node->host ]}, log_line_prefix: "%m [%p] %q%a "}
		YAML
	# It would be the name of all connections that the server makes.
	delete local $ENV{PGAPPNAME};
	start_program($name, 'patroni', configuration_of($node));
	return;
}

# Wait until a member's Patroni says that it has a role (primary, replica, synchronous).
sub wait_for_role
{
	my ($node, $role) = @_;
	answer_of("http://127.0.0.1:$rest_port{$node->name}/$role", sub { 1 })
	  or die $node->name . " is not $role";
	return;
}

sub wait_for_state_of
{
	my ($node, $what, $is_so) = @_;
	answer_of("http://127.0.0.1:$rest_port{$node->name}/patroni",
		sub { $is_so->(decode_json($_[0])) })
	  or die $node->name . " does not have $what";
	return;
}

sub patronictl_ok
{
	my ($name, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err);
	ok( IPC::Run::run(
			[ 'patronictl', '-c', configuration_of($one), @arguments ],
			'<', \undef, '>', \$out, '2>', \$err),
		$name) or diag("$out$err");
	return;
}

# The leader applies transactions that are made from here on, by writers.
sub continues
{
	my ($leader, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( $leader->poll_query_until(
			'postgres',
			q(SELECT state = 'parallel' FROM parallel_apply.subscriptions)),
		"$name is parallel");
	$leader->wait_for_pool('tap');
	ok(eval { $leader->wait_for_progress; 1 }, 'and apply continues');
	return;
}

# Run a step while the publisher is written to, and the leader of before, if there is one,
# applies that.  Then that member is the leader, and applies.
my $former_leader;

sub step
{
	my ($name, $leader, $sub) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $load = $publisher->start_accounts_load(300);
	$former_leader->wait_for_progress if defined $former_leader;
	$sub->();
	wait_for_role($leader, 'primary');
	continues($leader, $name);
	$publisher->end_load($load);
	PapplyPair->new($publisher, $leader)->accounts_are_equal("after $name");
	$former_leader = $leader;
	return;
}

# Change max_worker_processes, and restart the members in that order.
sub restart_with
{
	my ($value, @nodes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	patronictl_ok(
		"max_worker_processes = $value in the configuration of all members",
		'edit-config',
		'--force',
		'-q',
		'-p',
		"max_worker_processes=$value",
		'subscriber');
	for my $node (@nodes)
	{
		wait_for_state_of(
			$node,
			'the new configuration',
			sub { $_[0]{pending_restart} });
	}
	for my $node (@nodes)
	{
		patronictl_ok($node->name . ' is restarted',
			'restart', '--force', 'subscriber', $node->name);
		wait_for_state_of(
			$node,
			'been restarted',
			sub { $_[0]{state} eq 'running' && !$_[0]{pending_restart} });
		is($node->sql('SHOW max_worker_processes'),
			$value, 'with that setting');
		# The standby has to replay that the primary has fewer.
		wait_for_role($two, 'synchronous');
		$one->wait_for_catchup($two);
	}
	return;
}

### steps ####################################################################

# A subscriber that exists already becomes the first member.
$pair->create_accounts;
$one->create_extension;
$pair->subscribe('tap', with => 'synchronous_commit = on');
$one->stop;
start_etcd();
step(
	'the start of a cluster',
	$one,
	sub {
		start_member($one);
		wait_for_role($one, 'primary');
		start_member($two);
		wait_for_role($two, 'synchronous');
	});

step('a restart for more max_worker_processes',
	$one, sub { restart_with(24, $two, $one); });
step('a restart for fewer', $one, sub { restart_with(22, $one, $two); });

step(
	'a switchover',
	$two,
	sub {
		patronictl_ok(
			'patronictl switches over', 'switchover',
			'--force', '--candidate',
			'two', 'subscriber');
		wait_for_role($two, 'primary');
		wait_for_role($one, 'synchronous');
	});

step(
	'a failover',
	$one,
	sub {
		kill_program('two');
		kill_servers($two);
		end_lease_of_leader();
	});

step(
	'the return of the former leader',
	$one,
	sub {
		start_member($two);
		wait_for_role($two, 'synchronous');
	});
$one->wait_for_catchup($two);
PapplyPair->new($publisher, $two)
  ->rows_equal('history', 'and it has all rows as a standby');

### the end ##################################################################

ok(stop_program($_), "$_ ends") for 'two', 'subscriber', 'etcd';
is(join(' ', map { processes_of($_) } $one, $two),
	'', 'with the processes of its servers');

# What processes say that are connected with a server which ends or is killed; and a standby
# that tries to follow before Patroni has made its slot, or rewound it.
my $has_ended =
  qr/FATAL: +(could not (connect to the primary server|receive data from WAL stream|start WAL streaming|send end-of-streaming message to primary): |highest timeline \d+ of the primary is behind recovery timeline|terminating (walreceiver process|logical replication worker|connection) due to (administrator command|unexpected postmaster exit))/;
my $cannot_follow =
  qr/(two|subscriber) ERROR: +(replication slot "(two|subscriber)" does not exist|requested starting point \S+ on timeline \d+ is not in this server's history)/;
$_->log_is_clean($has_ended, $cannot_follow) for $one, $two;
finish($publisher);
done_testing();
