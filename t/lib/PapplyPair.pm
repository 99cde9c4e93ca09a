# PapplyPair.pm - a publisher and a subscriber, and what concerns both of them.
package PapplyPair;

use strict;
use warnings;
use Test::More;

sub new
{
	my ($class, $publisher, $subscriber) = @_;
	return bless { publisher => $publisher, subscriber => $subscriber },
	  $class;
}

sub nodes
{
	my ($self) = @_;
	return @{$self}{qw(publisher subscriber)};
}

# Execute the same statements on both nodes.
sub exec_both
{
	my ($self, $sql, $db) = @_;
	$_->safe_psql($db // 'postgres', $sql) for $self->nodes;
	return;
}

# Create a publication and a subscription of that name, and wait until all tables
# are ready and the pool runs.  Options: publication, default 'FOR ALL TABLES';
# with, options of the subscription such as 'streaming = on'; db; no_pool, where
# none is expected.
sub subscribe
{
	my ($self, $name, %opt) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my $db = $opt{db} // 'postgres';
	my $publication = $opt{publication} // 'FOR ALL TABLES';
	my $with = defined $opt{with} ? "WITH ($opt{with})" : '';
	my $connstr = $publisher->connstr . " dbname=$db";

	$publisher->safe_psql($db, "CREATE PUBLICATION $name $publication");
	$subscriber->safe_psql($db,
		"CREATE SUBSCRIPTION $name CONNECTION '$connstr' PUBLICATION $name $with"
	);
	$subscriber->wait_for_subscription_sync($publisher, $name, $db);
	# Transactions that change a table which is being synchronized are not left to
	# the pool.  The apply worker takes over a table when it has received as much as the
	# worker that has copied it.
	$publisher->flush_wal;
	$subscriber->wait_until_ready($db);
	$subscriber->wait_for_pool($name, undef, $db) unless $opt{no_pool};
	return;
}

# Subscribe to publication tap with the model of tests that compare, PostgreSQL's own
# serial apply: the database "serial" of the subscriber, or option server.  Neither has
# the extension.  Options with, as of subscribe, and publication, for other ones.
sub subscribe_serially
{
	my ($self, %opt) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my ($model, $db) =
	  $opt{server} ? ($opt{server}, 'postgres') : ($subscriber, 'serial');
	my $publication = $opt{publication} // 'tap';
	my $with = defined $opt{with} ? "WITH ($opt{with})" : '';
	my $connstr = $publisher->connstr . ' dbname=postgres';

	$model->safe_psql($db,
		"CREATE SUBSCRIPTION serial CONNECTION '$connstr' PUBLICATION $publication $with"
	);
	$model->wait_for_subscription_sync($publisher, 'serial', $db);
	@{$self}{qw(model model_db)} = ($model, $db);
	return;
}

# Wait until subscription tap and the model have applied everything.
sub wait_for_both
{
	my ($self) = @_;
	$self->{publisher}->wait_applied($_) for qw(tap serial);
	return;
}

# Execute statements on the publisher, and wait for that.
sub apply_to_both
{
	my ($self, $sql) = @_;
	$self->{publisher}->sql($sql);
	$self->wait_for_both;
	return;
}

# Return how many more of each row the first output has than the second one.
sub surplus_rows
{
	my ($found, $expected) = @_;
	my %surplus;
	$surplus{$_}++ for split /\n/, $found;
	$surplus{$_}-- for split /\n/, $expected;
	return %surplus;
}

# Assert that each table has the same rows, in the same partitions, as in the model
# when both have applied everything.
sub same_as_serial
{
	my ($self, $when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->wait_for_both;
	for my $table (@tables)
	{
		my $sql =
		  "SELECT tableoid::regclass || ' ' || whole_row::text FROM $table whole_row";
		my %surplus = surplus_rows($self->{subscriber}->sql($sql),
			$self->{model}->safe_psql($self->{model_db}, $sql));
		my @differ = map { $surplus{$_} > 0 ? "surplus: $_" : "missing: $_" }
		  grep { $surplus{$_} != 0 } sort keys %surplus;
		is(join("\n", grep { defined } @differ[ 0 .. 9 ]),
			'', "$table is as with serial apply, $when");
	}
	return;
}

# Assert that a table has the same rows on both nodes.
sub rows_equal
{
	my ($self, $table, $name, $db) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# The sum does not depend on the order of the rows, which need not be sorted.
	my $sql = qq(SELECT count(*) || ' rows, '
		|| coalesce(sum(hashtextextended(whole_row::text COLLATE "C", 0)), 0) FROM $table whole_row);
	my ($want, $have) =
	  map { $_->safe_psql($db // 'postgres', $sql) } $publisher, $subscriber;
	is($have, $want, $name // "$table is equal on both sides") and return 1;
	$self->show_difference($table, $db);
	return 0;
}

# Assert the same for tables, when subscription tap has applied everything.
sub tables_equal
{
	my ($self, $when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->{publisher}->wait_applied;
	$self->rows_equal($_, "$_ is equal on both sides $when") for @tables;
	return;
}

# Show which rows differ at this moment; a delay may have been the reason.
sub show_difference
{
	my ($self, $table, $db) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my $sql = "SELECT whole_row::text FROM $table whole_row";
	my %surplus =
	  surplus_rows(map { $_->safe_psql($db // 'postgres', $sql) } $subscriber,
		$publisher);
	my @missing = sort grep { $surplus{$_} < 0 } keys %surplus;
	my @surplus = sort grep { $surplus{$_} > 0 } keys %surplus;
	diag(   "$table a moment later: "
		  . @missing
		  . ' rows are missing, '
		  . @surplus
		  . ' are too many, such as '
		  . join(' ', grep { defined } @missing[ 0 .. 4 ], @surplus[ 0 .. 4 ])
	);
	return;
}

# Publish one more table, whose copy then waits for a local session.
sub begin_copy
{
	my ($self, $table) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	$publisher->sql("ALTER PUBLICATION tap ADD TABLE $table");
	$subscriber->sql('ALTER SUBSCRIPTION tap REFRESH PUBLICATION');
	$subscriber->wake('tap');
	$subscriber->wait_until(
		qq(count(*) = 1 FROM pg_stat_activity JOIN pg_stat_progress_copy USING (pid)
		WHERE relid = '$table'::regclass AND wait_event_type = 'Lock'),
		'the copy does not wait');
	return;
}

# Return a session of the publisher in a transaction with these statements that is
# being streamed to subscription tap.
sub begin_streamed
{
	my ($self, $sql) = @_;
	my $publisher = $self->{publisher};
	my $streamed = q(FROM pg_stat_replication_slots WHERE slot_name = 'tap');
	my $before = $publisher->sql("SELECT stream_count $streamed");
	my $session = $publisher->hold($sql);
	$publisher->flush_wal;
	$publisher->poll_query_until('postgres',
		"SELECT stream_count > $before $streamed")
	  or die 'nothing is streamed';
	return $session;
}

# Assert that transactions of the publisher get into these states while the first of
# them is blocked on the subscriber, before its changes, by a lock on the row of the
# table gate (id int PRIMARY KEY, n int).  Then all are applied.  Return how often a
# transaction had to be repeated.
sub apply_behind_gate
{
	my ($self, $states, $name, @transactions) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $tries = $subscriber->counter('retries + commit_order_aborts');
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	$transactions[0] = "UPDATE gate SET n = n + 1; $transactions[0]";
	$publisher->commit_each(@transactions);
	$subscriber->states_become($states, $name);
	$lock->release;
	$publisher->wait_applied;
	$publisher->wait_applied('serial') if $self->{model};
	return $subscriber->counter('retries + commit_order_aborts') - $tries;
}

# Return an id that no row has that insert_behind_gate() inserts.
sub next_id
{
	my ($self) = @_;
	return ++$self->{last_id};
}

# Insert new rows into these tables, which have a column id, each in a transaction that is
# followed by one for table plain.  The transaction before them is blocked on the subscriber,
# by a lock on the row of gate, until the function $wait returns.
sub insert_behind_gate
{
	my ($self, $wait, @tables) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
	my @inserts;
	for my $table (@tables)
	{
		my $id = $self->next_id;
		push @inserts, map { "INSERT INTO $_ (id) VALUES ($id)" } $table,
		  'plain';
	}
	$publisher->sql(join ";\n", 'UPDATE gate SET n = n + 1', @inserts);
	$wait->();
	$lock->release;
	return;
}

# Have a subscription connect to the publisher by an encrypted connection.
sub connect_by_tls
{
	my ($self, $subscription) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my $port = $publisher->port;
	$subscriber->sql(
		"ALTER SUBSCRIPTION $subscription CONNECTION 'host=127.0.0.1 port=$port dbname=postgres sslmode=require'"
	);
	$publisher->poll_query_until('postgres',
		'SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)'
	) or die 'the walsender does not use TLS';
	return;
}

# For two writers, with selftest_fast, so that they claim batches: one applies $older, which must change the table gate, until a
# local session with the lock $gate_lock blocks it there.  The other one finds all
# of @$younger in the queue, since it is stopped until they are there, and $prepare has been
# called.  Calls $look when both writers wait.  Then all are applied.  Return how often a
# transaction had to be repeated.
sub run_behind_gate
{
	my ($self, $gate_lock, $older, $younger, $look, $prepare) = @_;
	my ($publisher, $subscriber) = $self->nodes;
	my $tries = $subscriber->counter('retries + commit_order_aborts');
	my $session = $subscriber->hold($gate_lock);
	$publisher->sql("BEGIN; $older; COMMIT;");
	$subscriber->wait_for_state('waiting for lock');
	my $other = $subscriber->idle_writer;
	$subscriber->stop_idle_writers($other);
	$publisher->commit_each(@$younger);
	my $queued = 1 + @$younger;
	$subscriber->wait_until(
		"queue_transactions >= $queued FROM parallel_apply.subscriptions",
		'the younger transactions are not received');
	$prepare->() if $prepare;
	kill 'CONT', $other;
	$subscriber->wait_until(
		q(count(*) = 2 FROM parallel_apply.writers WHERE state LIKE 'waiting for %'),
		'the other writer does not wait');
	$look->() if $look;
	$session->release;
	$publisher->wait_applied;
	return $subscriber->counter('retries + commit_order_aborts') - $tries;
}

# Create tables on both nodes, for under_load: a chain of balances, which shows
# transactions that were lost, repeated or applied in another order.
sub create_accounts
{
	my ($self) = @_;
	$self->exec_both(
		q(CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
		CREATE TABLE history (id serial PRIMARY KEY, account int, balance int);)
	);
	$self->{publisher}
	  ->sql('INSERT INTO accounts SELECT i, 0 FROM generate_series(1, 20) i');
	return;
}

# Run a load that changes them on the publisher until the sub is done.
sub under_load
{
	my ($self, $sub) = @_;
	my $load = $self->{publisher}->start_accounts_load(1000);
	$sub->();
	$self->{publisher}->end_load($load);
	return;
}

# Assert that a subscription has applied the load, each transaction once: tap,
# unless another one is given.
sub accounts_are_equal
{
	my ($self, $when, $subscription) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->{publisher}->wait_applied($subscription);
	$self->rows_equal($_, "$_ is equal on both sides $when")
	  for qw(accounts history);
	is( $self->{subscriber}->sql(
			q(SELECT count(*) FROM accounts a
			WHERE balance <> (SELECT count(*) FROM history h WHERE h.account = a.id))
		),
		'0',
		"and each change was made once $when");
	return;
}

1;
