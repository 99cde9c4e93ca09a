# NodeChecks.pm - methods of PapplyNode.pm that assert what must be right in the end of a
# test: complete indexes, a log without unexpected errors.
package NodeChecks;

use strict;
use warnings;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More import => [qw(diag is ok skip unlike)];

# Assert that each B-tree index of the tables in a node's database "postgres" has an entry
# for each row, and is in order.  Needs amcheck.
sub indexes_are_complete
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
  SKIP:
	{
		skip 'the server has no amcheck', 1
		  if $self->sql(
			q(SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck')
		  ) == 0;
		my ($status, $checked, $error) = $self->psql(
			'postgres', q(CREATE EXTENSION IF NOT EXISTS amcheck;
			SELECT relname, bt_index_check(oid, true) FROM pg_class
			WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
				AND relkind = 'i' AND relnamespace = 'public'::regnamespace;)
		);
		ok($status == 0 && $checked ne '',
			'indexes have all rows on ' . $self->name)
		  or diag("$error");
	}
	return;
}

# Asserts that the server has not complained of relations, snapshots or pins that
# were left open at the end of a transaction.
sub nothing_is_left_open
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return unlike(
		slurp_file($self->logfile),
		qr/WARNING: .*(leak|not closed)/,
		'nothing is left open');
}

# An apply worker may begin before its predecessor has released the origin.  This
# race exists in PostgreSQL without the extension, too.  The worker is started
# again.
my $origin_is_active =
  qr/ERROR:  replication origin with ID \d+ is already active/;

# A session of the test that has just ended may not have exited when its server is
# restarted.
my $session_is_ended =
  qr/\.pl FATAL:  terminating connection due to administrator command/;

# A walsender may be sending when its subscriber disconnects.
my $client_is_lost = qr/FATAL: +connection to client lost/;

# An apply worker that starts again may come before the walsender of the last one has ended.
my $slot_is_active =
  qr/ERROR: +(could not start WAL streaming: ERROR: +)?replication slot "\w+" is active for PID/;

# Or connecting again while the server restarts.  A backend that is terminated during
# authentication logs a timeout.
my $is_restarting =
  qr/FATAL:  (the database system is (shutting down|starting up|not yet accepting connections)|canceling authentication due to timeout)/;

# Where a publisher was stopped, its subscriber may have been at any step of a connection:
# whatever it was about to do, libpq says why it could not.
my $publisher_is_lost =
  qr/ERROR: +(.* )?(could not (connect to the publisher|start WAL streaming|receive data from WAL stream|send data to WAL stream|send end-of-streaming message|receive database system identifier)|could not .*: (server closed the connection unexpectedly|no connection to the server|FATAL: ))/;

# Autovacuum gives way to a session that waits for its lock.
my $autovacuum_is_canceled = qr/ERROR: +canceling autovacuum task/;

# Asserts that a node's log has no error but those that match.
sub log_is_clean
{
	my ($self, @allowed) = @_;
	push @allowed, $publisher_is_lost if $self->has_lost_another;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = grep { / (ERROR|FATAL|PANIC):  / } split /\n/,
	  slurp_file($self->logfile);
	for my $allowed ($origin_is_active, $session_is_ended, $client_is_lost,
		$is_restarting, $slot_is_active, $autovacuum_is_canceled, @allowed)
	{
		@found = grep { $_ !~ $allowed } @found;
	}
	return is(join("\n", @found),
		'', 'no unexpected error in the log of ' . $self->name);
}

1;
