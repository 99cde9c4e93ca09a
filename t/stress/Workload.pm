# Workload.pm - a random workload for a publisher, made from a seed.
#
# A workload is: the settings drawn for this seed, tables of all the kinds that
# matter to an apply process (workload.tables), and the transactions of each
# publisher session.  The same seed gives the same transactions; only the
# interleaving of the sessions differs between runs.
#
# Transactions keep facts true in every snapshot that is a prefix of the
# publisher's commit order, see snapshot_query():
# - each transaction of session s sets session_counter of s to its number, and
#   adds that number to the insert-only table ledger, with the classes that the
#   transaction belongs to (see StressSeed.pm);
# - in "hot" workloads it also counts in the one row of commit_counter, as its
#   last statement, so that every transaction depends on the one before;
# - the sum of all balances of account_a and account_b stays the same;
# - each child has its parent.
# Every template of a table is one statement or stays right when it fails in
# part, because a session may roll back single statements.

package Workload;

use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use File::Basename qw(dirname);

# --- random numbers ---------------------------------------------------------

# A separate generator, that of drand48(), since other modules use rand(), too.  The
# checksum makes consecutive seeds independent.
sub random_source
{
	my ($name) = @_;
	my $state = hex(substr(md5_hex($name), 0, 8)) << 16 | 0x330e;
	return sub {
		my ($bound) = @_;
		use integer;
		$state = ($state * 25214903917 + 11) & ((1 << 48) - 1);
		return (($state >> 17) * $bound) >> 31;
	};
}

sub pick
{
	my ($random, @choices) = @_;
	return $choices[ $random->(scalar @choices) ];
}

# --- settings ---------------------------------------------------------------

# Drawn in this order
my @choices = (
	sessions => '2 3 4 5',
	keys => '6 40 300',
	accounts => '3 20 200',
	length => 'short mixed mixed long',
	mode => 'hot mixed wide wide',
	start => 'live live backlog late',
	statement_rollback => '0 0 0 1',
	isolation => 'read_committed mixed',
	publisher_commit => 'on off',
	streaming => 'off on parallel',
	stream_each => '0 0 1',
	origin => '0 0 1',
	two_phase => 'off off on',
	prepared => '0 1',
	binary => 'off on',
	synchronous_commit => 'off on',
	via_root => 'false true',
	unique_index =>
	  'plain expression partial generated exclusion deferrable deferred',
	full_index => 'none btree hash several',
	triggers => 'exclusive parallel',
	local_isolation => 'committed committed repeatable serializable',
	commit_timestamp => 'off off off on',
	deadlock_timeout => '10ms 1s',
	writers => '2 4 4 4 7',
	idle_writers => '-1 -1 1 2',
	max_batch => '1 3 32 32',
	leader_participation => 'on on off',
	streaming_apply => 'writer writer file',
	queue_size => '64kB 256kB 32MB 32MB',
	worker_processes => '30 30 30 30 30 9',
	synchronous => '0 1',
	subscriptions => '1 1 2');

# Drawn after everything else of a workload: whether the publisher has the library,
# and whether it sends messages together.
my @last_choices = (coalesce => 'absent absent on on on off');

# "name=value" of all settings that can be drawn with this major
sub possible_settings
{
	my ($self) = @_;
	my @possible;
	my @left = (@choices, @last_choices);
	while (my ($name, $values) = splice(@left, 0, 2))
	{
		push @possible, map { "$name=$_" } split(/ /, $values);
	}
	@possible = grep { $_ ne 'streaming=parallel' } @possible
	  if $self->{version} < 16;
	@possible = grep { $_ ne 'full_index=hash' } @possible
	  if $self->{version} >= 16;
	@possible = grep { $_ ne 'stream_each=1' } @possible
	  if !can_stream_each($self->{version});
	return @possible;
}

# Streaming each change separately is a setting from 17 on.  19rc1 then cannot
# decode TRUNCATE ("could not map filenumber"), whatever the subscriber is.
sub can_stream_each
{
	my ($version) = @_;
	return $version == 17 || $version == 18;
}

# From 18 on, a publisher may report the rollback of a subtransaction of which it
# has sent nothing, for example because it has changed nothing that is published;
# and also without streaming, for a transaction that needs more than
# logical_decoding_work_mem.  PostgreSQL's own apply crashes on that, if the library
# is not preloaded.
sub is_safe_for_native
{
	my ($version) = @_;
	return $version < 18;
}

# The role with which a subscriber without the library connects, so that it gets all
# transactions at their end, from memory.
sub native_user_sql
{
	return q{CREATE ROLE native SUPERUSER LOGIN;
ALTER ROLE native SET logical_decoding_work_mem = '1GB'};
}

# Arguments: seed; transactions, the number of all sessions together; version of the
# server; icu and citext, whether it has these.
sub new
{
	my ($class, %arg) = @_;
	my $random = random_source("workload $arg{seed}");
	my %set = draw_settings($random, @choices);
	$set{prepared} = 1 if $set{two_phase} eq 'on';
	$set{streaming} = 'on'
	  if $set{streaming} eq 'parallel' && $arg{version} < 16;
	$set{stream_each} = 0
	  if $set{streaming} eq 'off' || !can_stream_each($arg{version});

	# A prepared transaction may make the next one fail to serialize, which is then
	# repeated until its COMMIT PREPARED, also in serial apply.
	$set{local_isolation} = 'repeatable'
	  if $set{two_phase} eq 'on' && $set{local_isolation} eq 'serializable';

	# PostgreSQL's own apply would use it, and not find a NULL.
	$set{full_index} = 'btree'
	  if $set{full_index} eq 'hash' && $arg{version} >= 16;

	# The publisher may wait for the parallel subscriber, but not for one that does
	# not exist yet, nor for the walwriter.
	$set{synchronous} = 0
	  if $set{start} ne 'live' || $set{synchronous_commit} eq 'off';
	$set{publisher_commit} = pick($random, 'on', 'remote_apply')
	  if $set{synchronous};
	my $self = bless { %arg, settings => \%set }, $class;
	$self->read_tables;
	$self->weigh_tables($random);
	%set = (%set, draw_settings($random, @last_choices));
	return $self;
}

sub draw_settings
{
	my ($random, @left) = @_;
	my %set;
	while (my ($name, $values) = splice(@left, 0, 2))
	{
		$set{$name} = pick($random, split(/ /, $values));
	}
	return %set;
}

sub settings { my ($self) = @_; return $self->{settings}; }

# Names of the tables that are compared with the publisher's
sub tables
{
	my ($self) = @_;
	return grep { $self->{table}{$_}{columns} } sort keys %{ $self->{table} };
}

# Names of the tables that may change in some seed
sub all_tables
{
	my ($self) = @_;
	return grep { !/^commit_counter$/ } @{ $self->{all_tables} };
}

# Classes of transactions that may occur with these settings
sub transaction_classes
{
	my ($self) = @_;
	return (
		'hot', 'large',
		'large_rolled_back_part', 'prepared',
		'prepared_large', 'repeatable_read',
		'rollback_prepared', 'rollback_prepared_large',
		'rolled_back_part', 'streamed');
}

# Note that an event has created this table, or changed its columns.
sub add_table
{
	my ($self, $name, $columns) = @_;
	$self->{table}{$name}{columns} = $columns;
	return;
}

# --- tables -----------------------------------------------------------------

# Remove comments, and put each entry on one line.
sub read_tables
{
	my ($self) = @_;
	my $file = dirname(__FILE__) . '/workload.tables';
	open(my $in, '<', $file) or die "$file: $!";
	my $text = do { local $/; <$in> }
	  =~ s/^#.*\n//gmr =~ s/\n {8}/ /gr;
	my $table;
	foreach my $line (grep { length } split(/\n/, $text))
	{
		if (my ($name, $weight) = $line =~ /^(\w+) (\d+)$/)
		{
			push @{ $self->{order} }, $name;
			$table = $self->{table}{$name} = { weight => $weight };
			next;
		}
		my ($what, $sql) = $line =~ /^    (\w+|-) (.*)$/
		  or die "not understood: $line";
		my $times = $what eq '-' ? 1 : $what =~ /^\d+$/ ? $what : 0;
		push @{ $table->{statements} }, ($sql) x $times if $times;
		push @{ $table->{large} }, $sql if $what eq 'large';
		$table->{$what} = $sql if !$times && $what ne 'large';
	}
	return;
}

# Some tables are not changed in this seed, others often.
sub weigh_tables
{
	my ($self, $random) = @_;
	$self->{all_tables} = [ @{ $self->{order} } ];
	foreach my $name (@{ $self->{order} })
	{
		my $table = $self->{table}{$name};
		$table->{weight} *= pick($random, 0, 1, 1, 5);
		$table->{weight} = 0 if !$self->is_fulfilled($table->{used});
		delete $self->{table}{$name} if !$self->is_fulfilled($table->{needs});
	}
	$self->{order} = [ grep { $self->{table}{$_} } @{ $self->{order} } ];
	return;
}

# Conditions as in workload.tables, or undef
sub is_fulfilled
{
	my ($self, $conditions) = @_;
	foreach my $condition (split(/ /, $conditions // ''))
	{
		my ($what, $values) = split(/=/, $condition);
		if ($what =~ /^\d+$/)
		{
			return 0 if $self->{version} < $what;
			next;
		}
		return 0
		  if defined $values
		  ? !grep { $self->{settings}{$what} eq $_ } split(/,/, $values)
		  : !$self->{$what};
	}
	return 1;
}

# --- SQL of the servers -----------------------------------------------------

# Functions of the publisher, for changes that need a value from a row that they
# have locked
my $publisher_functions = <<'SQL';
CREATE FUNCTION transfer(a text, a_id int, b text, b_id int, amount int)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE done int;
BEGIN
	EXECUTE format('UPDATE %I SET balance = balance - $1 WHERE id = $2', a) USING amount, a_id;
	GET DIAGNOSTICS done = ROW_COUNT;
	IF done <> 1 THEN RAISE EXCEPTION 'lost the account'; END IF;
	EXECUTE format('UPDATE %I SET balance = balance + $1 WHERE id = $2', b) USING amount, b_id;
	GET DIAGNOSTICS done = ROW_COUNT;
	IF done <> 1 THEN RAISE EXCEPTION 'lost the account'; END IF;
END $$;
CREATE FUNCTION reinsert(a text, a_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE amount bigint;
BEGIN
	EXECUTE format('DELETE FROM %I WHERE id = $1 RETURNING balance', a) INTO amount USING a_id;
	IF amount IS NULL THEN RAISE EXCEPTION 'lost the account'; END IF;
	EXECUTE format('INSERT INTO %I VALUES ($1, $2)', a) USING a_id, amount;
END $$;
CREATE FUNCTION swap_wander(a int, b int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a_row wander; b_row wander;
BEGIN
	PERFORM FROM wander WHERE id IN (a, b) ORDER BY id FOR UPDATE;
	SELECT * INTO a_row FROM wander WHERE id = a;
	SELECT * INTO b_row FROM wander WHERE id = b;
	IF a = b OR a_row.id IS NULL OR b_row.id IS NULL THEN RETURN; END IF;
	UPDATE wander SET u = NULL, w = NULL WHERE id = a;
	UPDATE wander SET u = a_row.u, w = a_row.w WHERE id = b;
	UPDATE wander SET u = b_row.u, w = b_row.w WHERE id = a;
END $$;
CREATE FUNCTION pick_hidden(salt int) RETURNS int LANGUAGE sql AS
	'SELECT id FROM hidden_unique ORDER BY md5((id % 1000 + salt)::text), id LIMIT 1';
CREATE FUNCTION swap_hidden(a_salt int, b_salt int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a int = pick_hidden(a_salt); b int = pick_hidden(b_salt); a_u bigint; b_u bigint;
BEGIN
	PERFORM FROM hidden_unique WHERE id IN (a, b) ORDER BY id FOR UPDATE;
	SELECT u INTO a_u FROM hidden_unique WHERE id = a;
	SELECT u INTO b_u FROM hidden_unique WHERE id = b;
	IF a = b OR a_u IS NULL OR b_u IS NULL THEN RETURN; END IF;
	UPDATE hidden_unique SET u = -id, v = v + 1 WHERE id = a;
	UPDATE hidden_unique SET u = a_u WHERE id = b;
	UPDATE hidden_unique SET u = b_u WHERE id = a;
END $$;
CREATE FUNCTION hand_over_hidden(salt int, heir int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a int = pick_hidden(salt); old_u bigint;
BEGIN
	DELETE FROM hidden_unique WHERE id = a RETURNING u INTO old_u;
	IF old_u IS NOT NULL THEN INSERT INTO hidden_unique VALUES (heir, old_u, 0); END IF;
END $$;
CREATE FUNCTION take_hidden(a_salt int, b_salt int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a int = pick_hidden(a_salt); b int = pick_hidden(b_salt); old_u bigint;
BEGIN
	IF a = b THEN RETURN; END IF;
	DELETE FROM hidden_unique WHERE id = a RETURNING u INTO old_u;
	IF old_u IS NOT NULL THEN UPDATE hidden_unique SET u = old_u WHERE id = b; END IF;
END $$;
CREATE FUNCTION bulk_in_parts(first int, n int, new_v int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN first .. first + n LOOP
		BEGIN
			INSERT INTO bulk VALUES (i, new_v, 'part') ON CONFLICT (id) DO UPDATE SET v = new_v;
			IF i % 7 = new_v % 7 THEN RAISE EXCEPTION USING ERRCODE = 'P0042'; END IF;
		EXCEPTION WHEN SQLSTATE 'P0042' THEN
		END;
	END LOOP;
END $$;
SQL

sub publisher_schema
{
	my ($self) = @_;
	my $via_root = $self->{settings}{via_root};
	my @sql = (
		$self->table_sql('ddl', 'publisher', 'fill'),
		$publisher_functions,
		q{SELECT pg_replication_origin_create('elsewhere')},
		'CREATE PUBLICATION everything FOR TABLE '
		  . join(', ',
			map { "$_ " . ($self->{table}{$_}{published} // '') }
			  $self->tables)
		  . " WITH (publish_via_partition_root = $via_root)");
	foreach
	  my $name (grep { $self->{table}{$_}{operations} } @{ $self->{order} })
	{
		push @sql,
		  "CREATE PUBLICATION $name FOR TABLE $name WITH (publish = '$self->{table}{$name}{operations}')";
	}
	push @sql,
	  q{SELECT pg_create_logical_replication_slot('commit_order', 'pgoutput')};
	return $self->script(@sql);
}

sub subscriber_schema
{
	my ($self) = @_;
	return $self->script($self->table_sql('ddl', 'subscriber'));
}

# For a parallel subscriber with the extension
sub extension_sql
{
	my ($self) = @_;
	return $self->script($self->table_sql('extension'));
}

sub table_sql
{
	my ($self, @keys) = @_;
	my @sql;
	push @sql, grep { defined } @{ $self->{table}{$_} }{@keys}
	  foreach @{ $self->{order} };
	return @sql;
}

sub publications
{
	my ($self) = @_;
	return join(', ', 'everything', $self->more_publications);
}

# The statements of one table
sub more_publications
{
	my ($self) = @_;
	return grep { $self->{table}{$_}{operations} } @{ $self->{order} };
}

# The subscriptions of a subscriber, by their names: what they subscribe to
sub subscriptions
{
	my ($self, $name) = @_;
	return ($name => $self->publications)
	  if $self->{settings}{subscriptions} == 1;
	return (
		$name => 'everything',
		"${name}_more" => join(', ', $self->more_publications));
}

# A constraint that the publisher does not have, though its values satisfy it
my %unique_index = (
	plain => 'CREATE UNIQUE INDEX ON hidden_unique (u)',
	expression => 'CREATE UNIQUE INDEX ON hidden_unique ((u * 2))',
	partial => 'CREATE UNIQUE INDEX ON hidden_unique (u) WHERE u > 0',
	generated => 'ALTER TABLE hidden_unique ADD COLUMN g bigint'
	  . ' GENERATED ALWAYS AS (u + 1) STORED UNIQUE',
	exclusion => 'ALTER TABLE hidden_unique ADD EXCLUDE USING gist'
	  . q{ (int8range(u, u, '[]') WITH &&)},
	deferrable => 'ALTER TABLE hidden_unique ADD UNIQUE (u) DEFERRABLE',
	deferred =>
	  'ALTER TABLE hidden_unique ADD UNIQUE (u) DEFERRABLE INITIALLY DEFERRED'
);

# Indexes by which rows without a key may be found
my %full_index = (
	none => '',
	btree => 'CREATE INDEX ON full_rows (a)',
	hash => 'CREATE INDEX ON full_rows USING hash (b)',
	several =>
	  'CREATE INDEX ON full_rows (b, a); CREATE INDEX ON full_rows (c)');

sub script
{
	my ($self, @sql) = @_;
	my $set = $self->{settings};
	my %value = (
		%$set,
		unique_index => $unique_index{ $set->{unique_index} },
		full_index => $full_index{ $set->{full_index} });
	my $script = join(";\n", @sql) . ';';
	$script =~
	  s/\{(keys|accounts|sessions|triggers|unique_index|full_index)\}/$value{$1}/g;
	return $script;
}

# For a subscriber without the library.  With streaming = parallel it is not serial.
sub native_streaming
{
	my ($self) = @_;
	my $streaming = $self->{settings}{streaming};
	return 'off' if !is_safe_for_native($self->{version});
	return $streaming eq 'parallel' ? 'on' : $streaming;
}

sub subscription_options
{
	my ($self, $is_native) = @_;
	my %set = %{ $self->{settings} };
	$set{streaming} = $self->native_streaming if $is_native;
	return join(', ',
		map { "$_ = $set{$_}" }
		  ('streaming', 'two_phase', 'binary', 'synchronous_commit'));
}

# For the publisher, as soon as the subscriptions work
sub subscribed_sql
{
	my ($self) = @_;
	return () if !$self->{settings}{synchronous};
	return (q{ALTER SYSTEM SET synchronous_standby_names = 'parallel'},
		'SELECT pg_reload_conf()');
}

# One row, from one snapshot: numbers of the sessions; rows and last number of each
# session in the ledger; hot counter, its rows and last number in the ledger; sum of
# balances; children without parent.
sub snapshot_query
{
	return q{SELECT concat_ws('|',
 (SELECT string_agg(n::text, ',' ORDER BY session) FROM session_counter),
 (SELECT string_agg(rows || ':' || last, ',' ORDER BY session) FROM
  (SELECT session, count(*) - 1 AS rows, max(n) AS last FROM ledger GROUP BY session) AS s),
 (SELECT n FROM commit_counter), (SELECT count(total) || '|' || coalesce(max(total), 0) FROM ledger),
 (SELECT sum(balance) FROM (SELECT balance FROM account_a UNION ALL SELECT balance FROM account_b) AS s),
 (SELECT count(*) FROM child WHERE NOT EXISTS (SELECT FROM parent WHERE parent.id = child.parent)));
};
}

# Why a row of snapshot_query() cannot be a prefix, or undef
sub snapshot_fault
{
	my ($self, $row) = @_;
	my ($numbers, $ledger, $hot, $hot_rows, $hot_last, $balance, $orphans) =
	  split(/\|/, $row);
	my $expected = join(',', map { "$_:$_" } split(/,/, $numbers));
	return 'ledger and session_counter disagree' if $ledger ne $expected;
	return 'ledger and commit_counter disagree'
	  if $hot != $hot_rows || $hot != $hot_last;
	return 'money has been lost or won'
	  if $balance != 2000 * $self->{settings}{accounts};
	return 'children without parent' if $orphans != 0;
	return undef;
}

# A query for one table that returns its rows as text, in any order
sub rows_query
{
	my ($self, $name, $on_publisher) = @_;
	my $table = $self->{table}{$name};
	my $filter =
	  $on_publisher && $table->{filter} ? " WHERE $table->{filter}" : '';
	return "SELECT ROW($table->{columns})::text AS r FROM $name$filter";
}

# Queries whose rows must be the same on both subscribers, by table.  Copied rows
# arrive at different times on each of them; then there are no such queries.
sub local_queries
{
	my ($self) = @_;
	return () if $self->{settings}{start} eq 'late';
	return map { $_ => $self->{table}{$_}{local} }
	  grep { $self->{table}{$_}{local} } @{ $self->{order} };
}

# --- transactions of the sessions --------------------------------------------

# What a session begins with, also when it starts again after a crash: the end of
# the transactions that it left prepared
sub session_start
{
	my ($self, $session) = @_;
	my $set = $self->{settings};
	my $script = <<"SQL";
SET lock_timeout = '5s';
SET synchronous_commit = $set->{publisher_commit};
SELECT format('COMMIT PREPARED %L', gid) FROM pg_prepared_xacts WHERE gid LIKE 's$session-%' \\gexec
SQL
	$script .= "\\set ON_ERROR_ROLLBACK on\n" if $set->{statement_rollback};

	# Only one session at a time can have it.
	$script .= "SELECT pg_replication_origin_session_setup('elsewhere');\n"
	  if $set->{origin} && $session == 1;
	return $script;
}

# All transactions of one publisher session, from 1
sub session_transactions
{
	my ($self, $session) = @_;
	my $set = $self->{settings};
	my $writer = {
		random => random_source("session $session of $self->{seed}"),
		session => $session,
		serial => $session * 10_000_000,
		class => {}
	};
	my @bag = $self->statement_bag;
	my $count = int($self->{transactions} / $set->{sessions});
	return map { $self->transaction($writer, \@bag) } (1 .. $count);
}

# Each statement is listed as often as its weight says.
sub statement_bag
{
	my ($self) = @_;
	my @bag;
	foreach my $table (@{ $self->{table} }{ @{ $self->{order} } })
	{
		push @bag, (@{ $table->{statements} // [] }) x $table->{weight};
	}
	return @bag ? @bag : @{ $self->{table}{integer_key}{statements} };
}

# The classes are those of this transaction, except that the end of the previous
# transaction belongs to this one.
sub transaction
{
	my ($self, $writer, $bag) = @_;
	my $set = $self->{settings};
	my $random = $writer->{random};
	my $begin = 'BEGIN;';
	if ($set->{isolation} eq 'mixed' && $random->(4) == 0)
	{
		$begin = 'BEGIN ISOLATION LEVEL REPEATABLE READ;';
		$writer->{class}{repeatable_read} = 1;
	}
	my $is_large = $random->($set->{streaming} eq 'off' ? 60 : 40) == 0;
	my @lines =
		$is_large
	  ? $self->large_statements($writer, $bag)
	  : $self->statements($writer, $bag, $self->transaction_length($random));
	my @end = $self->transaction_end($writer, $is_large);

	my $counter = $self->counter_statement($writer);
	$writer->{class} = delete $writer->{next_class} // {};
	if ($set->{mode} eq 'wide' && $random->(2))
	{
		unshift @lines, $counter;
	}
	else
	{
		push @lines, $counter;
	}
	return join("\n", $begin, @lines, @end) . "\n";
}

# A publisher that finds a transaction rolled back while it streams it drops the
# rest of that chunk, but may send what follows, and PREPARE, for example an INSERT
# without the DELETE before it.  Any subscriber fails on that, PostgreSQL's own
# apply as well.
sub can_roll_back_prepared
{
	my ($self) = @_;
	my $set = $self->{settings};
	return $set->{two_phase} eq 'off' || $set->{streaming} eq 'off';
}

# No session may wait for a lock of a prepared transaction while that transaction's
# session waits for another one.  In between, the session only appends to the
# journal.
sub transaction_end
{
	my ($self, $writer, $is_large) = @_;
	my $random = $writer->{random};
	return ('ROLLBACK;') if $random->(20) == 0;
	return ('COMMIT;')
	  if !$self->{settings}{prepared} || $random->($is_large ? 3 : 8);

	my $gid = "'s$writer->{session}-" . ++$writer->{serial} . "'";
	my $journal = $self->{table}{journal}{statements}[0];
	my $is_rolled_back = $random->(6) == 0 && $self->can_roll_back_prepared;
	my $large = $is_large ? '_large' : '';
	$writer->{class}{"prepared$large"} = 1;
	$writer->{next_class}{"rollback_prepared$large"} = 1 if $is_rolled_back;
	return (
		"PREPARE TRANSACTION $gid;",
		(map { $self->expand($writer, $journal) } (1 .. $random->(3))),
		($is_rolled_back ? 'ROLLBACK' : 'COMMIT') . " PREPARED $gid;");
}

# The session counts itself.  The hot row is locked until the commit, so its numbers
# are in commit order.
sub counter_statement
{
	my ($self, $writer) = @_;
	my $mode = $self->{settings}{mode};
	my $is_hot =
	  $mode eq 'hot' || ($mode eq 'mixed' && $writer->{random}->(4) == 0);
	$writer->{class}{hot} = 1 if $is_hot;
	my $class = join(' ', sort keys %{ $writer->{class} });
	my $own =
	  "UPDATE session_counter SET n = n + 1 WHERE session = $writer->{session} RETURNING n";
	my $hot =
	  $is_hot
	  ? 'UPDATE commit_counter SET n = n + 1 RETURNING n'
	  : 'SELECT NULL::bigint AS n';
	return "WITH own AS ($own), hot AS ($hot)"
	  . " INSERT INTO ledger SELECT $writer->{session}, own.n, hot.n, '$class' FROM own, hot;";
}

# That many statements, with savepoints
sub statements
{
	my ($self, $writer, $bag, $count) = @_;
	my $random = $writer->{random};
	my (@lines, @savepoints);
	for my $i (1 .. $count)
	{
		push @lines, $self->expand($writer, pick($random, @$bag));
		next if $random->(12) != 0;
		if (@savepoints && $random->(2))
		{
			my $is_rolled_back = $random->(3);
			push @lines,
			  ($is_rolled_back ? 'ROLLBACK TO ' : 'RELEASE ')
			  . pop(@savepoints) . ';';
			$writer->{class}{rolled_back_part} = 1 if $is_rolled_back;
		}
		else
		{
			push @savepoints, "s$i";
			push @lines, "SAVEPOINT s$i;";
		}
	}
	return @lines;
}

# Large statements, some of them rolled back, between others
sub large_statements
{
	my ($self, $writer, $bag) = @_;
	my $random = $writer->{random};
	my @lines;
	$writer->{class}{large} = 1;
	for my $i (1 .. 1 + $random->(3))
	{
		my $large =
		  $self->expand($writer,
			pick($random, @{ $self->{table}{bulk}{large} }));
		my $is_rolled_back = $random->(3) == 0;
		$writer->{class}{large_rolled_back_part} = 1 if $is_rolled_back;
		push @lines,
		  $self->statements($writer, $bag, $random->(4)),
		  $is_rolled_back
		  ? ("SAVEPOINT l$i;", $large, "ROLLBACK TO l$i;")
		  : $large;
	}
	return @lines;
}

sub transaction_length
{
	my ($self, $random) = @_;
	my $length = $self->{settings}{length};
	my $dice = $random->(100);
	return $random->(4) if $length eq 'short' || $dice < 50;
	return 1 + $random->(12) if $dice < 90;
	return 1 + $random->(40) if $dice < 98 || $length ne 'long';
	return 1 + $random->(200);
}

# --- values -----------------------------------------------------------------

my @words = (
	'alpha', 'beta', 'gamma', 'delta', 'Ähre', '',
	' space', '日本', "it''s", 'a\\b', 'NULL');

# Values of which one is taken
my %constant = (
	decimal => [
		'1', '1.0', '1.00', '2', '2.000', '3.5', '3.50', '-1e10', '0', '0.0',
		"'NaN'", '12345678901234567890.123456789'
	],
	float =>
	  [ '0', "'-0'", '0.1', '1e-7', "'NaN'", "'Infinity'", '3.25', 'NULL' ],
	json => [
		q{'{}'}, q{'[1, 2.0, null]'},
		q{'{"a": {"b": "c"}, "d": 1}'}, q{'"x"'}
	],
	mood => [ "'sad'", "'ok'", "'happy'", 'NULL' ],
	feeling => [ "'sad'", "'ok'", "'happy'" ],
	span =>
	  [ "'1 day'", "'24 hours'", "'1 month'", "'30 days'", "'2 hours'" ],
	number => [ "'1'", "'1.0'", "'2'", "'[2.00]'", "'[2]'" ],
	anycase => [ "'ab'", "'AB'", "'Ab'", "'cd'", "'CD'", "'ef'", "'eF'" ],
	word => [ map { "'$_'" } @words ]);

# Numbers below a bound, the first number and the count; the name of a setting
# stands for itself.  {many} makes at most 2000 rows, with ON CONFLICT two changes
# each: a publisher up to 17 does not report the rollback of a subtransaction if its
# walsender was restarted in the middle of it and found more than 4096 changes of it
# on disk.
my %number = (
	key => [ 1, 'keys' ],
	account => [ 1, 'accounts' ],
	few => [ 0, 6 ],
	int => [ 1, 900 ],
	many => [ 100, 1900 ]);

my %made = (
	session => sub { my ($w) = @_; return $w->{session} },
	serial => sub { my ($w) = @_; return $w->{serial} += 10 },
	text => sub {
		my ($w) = @_;
		return q{'} . (pick($w->{random}, @words) x $w->{random}->(9)) . q{'};
	},
	big => sub {
		my ($w) = @_;
		return sprintf(
			q{repeat(md5('%d'), %d)},
			$w->{random}->(50),
			70 + $w->{random}->(200));
	},
	huge => sub {
		my ($w) = @_;
		return sprintf(
			q{repeat(md5('%d'), %d)},
			$w->{random}->(50),
			1500 + $w->{random}->(15000));
	},
	longkey => sub {
		my ($w) = @_;
		return sprintf(q{repeat(md5('%d'), 70)}, $w->{random}->(8));
	});

sub value
{
	my ($self, $w, $kind) = @_;
	return pick($w->{random}, @{ $constant{$kind} }) if $constant{$kind};
	return $made{$kind}->($w) if $made{$kind};
	my ($first, $count) = @{ $number{$kind} // die "no values of $kind" };
	return $first + $w->{random}->($self->{settings}{$count} // $count);
}

# A template with its values drawn, as lines that end with a semicolon
sub expand
{
	my ($self, $writer, $template) = @_;
	my %named;
	$template =~ s{\{(\w+)(?::(\w+))?\}}{
		defined $2
		  ? ($named{"$1:$2"} //= $self->value($writer, $1))
		  : $self->value($writer, $1)}ge;
	return "$template;";
}

1;
