# Workload.pm - a random workload for a publisher, made from a seed.
#
# A workload is: the settings drawn for this seed, tables of all the kinds that
# matter to an apply process, one SQL script for each publisher session, and
# the events which disturb the subscriber meanwhile.  The same seed gives the
# same scripts; only the interleaving of the sessions differs between runs.
#
# The scripts keep facts true in every snapshot that is a prefix of the
# publisher's commit order, see snapshot_query():
# - each transaction of session s sets session_counter of s to its number, and
#   adds that number to the insert-only table ledger;
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

# --- random numbers ---------------------------------------------------------

# A generator of its own, that of drand48(): rand() is used by other modules,
# too.  The checksum is for seeds that follow each other to have nothing else in
# common.
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

# Arguments: seed; transactions, number of all sessions together; kills, whether
# processes and servers may be killed; icu, whether ICU collations exist.
sub new
{
	my ($class, %arg) = @_;
	my $random = random_source("workload $arg{seed}");
	my $draw = sub { return pick($random, @_) };
	my %set = (
		sessions => $draw->(qw(2 3 4 5)),
		keys => $draw->(qw(6 40 300)),
		accounts => $draw->(qw(3 20 200)),
		length => $draw->(qw(short mixed mixed long)),
		mode => $draw->(qw(hot mixed wide wide)),
		start => $draw->(qw(live live backlog late)),
		statement_rollback => $draw->(qw(0 0 0 1)),
		isolation => $draw->(qw(read_committed mixed)),
		publisher_commit => $draw->(qw(on off)),
		streaming => $draw->(qw(off off on)),
		two_phase => $draw->(qw(off off on)),
		prepared => $draw->(qw(0 1)),
		binary => $draw->(qw(off on)),
		synchronous_commit => $draw->(qw(off on)),
		via_root => $draw->(qw(false true)),
		unique_index => $draw->(qw(plain expression partial generated)),
		commit_timestamp => $draw->(qw(off off off on)),
		deadlock_timeout => $draw->(qw(10ms 1s)),
		writers => $draw->(qw(2 4 4 4 7)),
		max_batch => $draw->(qw(1 3 32 32)),
		queue_size => $draw->(qw(64kB 256kB 32MB 32MB)),
		synchronous => $draw->(qw(0 1)));
	$set{prepared} = 1 if $set{two_phase} eq 'on';

	# The publisher may wait for the parallel subscriber; but not for one that
	# is not there yet, nor for the walwriter.
	$set{synchronous} = 0
	  if $set{start} ne 'live' || $set{synchronous_commit} eq 'off';
	$set{publisher_commit} = $draw->('on', 'remote_apply')
	  if $set{synchronous};
	my $self = bless { %arg, settings => \%set }, $class;
	$self->make_tables($random);
	$self->{events} = $self->make_events($random);
	return $self;
}

sub settings { my ($self) = @_; return $self->{settings}; }
sub events { my ($self) = @_; return @{ $self->{events} }; }

# Names of the tables to compare.
sub tables { my ($self) = @_; return sort keys %{ $self->{table} }; }

# An event has made this table, or changed its columns.
sub add_table
{
	my ($self, $name, $columns) = @_;
	$self->{table}{$name}{columns} = $columns;
	return;
}

# --- tables ------------------------------------------------------------------
#
# They stand at the end of this file.  A table begins in the first column with
# its name and its weight, that is how often its statements are taken; then:
#	ddl			on all servers; without it publisher and subscriber are set
#	publisher	on the publisher, after ddl
#	subscriber	on the subscribers, after ddl
#	fill		rows on the publisher before the subscription is created
#	columns		what to compare; equal values of different looks normalised
#	published	what follows the table's name in the publication
#	filter		which rows of the publisher are published
#	large		statements of a large transaction
#	-			a statement; a number: that many times as often
# "{kind}" in a statement draws a value, "{kind:x}" the same one for each x.

# Without comments, and each entry on one line.
my $tables_text = do { local $/; <DATA> }
  =~ s/^#.*\n//gmr =~ s/\n {8}/ /gr;

sub make_tables
{
	my ($self, $random) = @_;
	my $table;
	foreach my $line (grep { length } split(/\n/, $tables_text))
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

	# No COLLATION without ICU.
	delete $self->{table}{nocase_key} if !$self->{icu};
	$self->{order} = [ grep { $self->{table}{$_} } @{ $self->{order} } ];

	# PostgreSQL may not decode ("could not map filenode") a TRUNCATE that was
	# under way when the slot was made.
	$self->{table}{truncated}{weight} = 0
	  if $self->{settings}{start} eq 'late';

	# With two_phase, serial apply waits for ever for a prepared transaction
	# when equal rows without a key are changed before its COMMIT PREPARED:
	# it may find the row that the prepared transaction has.
	if ($self->{settings}{two_phase} eq 'on')
	{
		$self->{table}{$_}{weight} = 0 foreach ('full_rows', 'full_toast');
	}

	# Some tables are left alone in this seed, others are busy.
	$self->{table}{$_}{weight} *= pick($random, 0, 1, 1, 4)
	  foreach $self->tables;
	return;
}

# --- SQL of the servers -----------------------------------------------------

# Functions of the publisher: what needs a value from a row that it has locked.
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
SQL

sub publisher_schema
{
	my ($self) = @_;
	my @sql;
	foreach my $name (@{ $self->{order} })
	{
		my $table = $self->{table}{$name};
		push @sql, grep { defined } @{$table}{ 'ddl', 'publisher', 'fill' };
	}
	my $tables = join(', ',
		map { "$_ " . ($self->{table}{$_}{published} // '') } $self->tables);
	push @sql,
	  $publisher_functions,
	  "CREATE PUBLICATION everything FOR TABLE $tables"
	  . " WITH (publish_via_partition_root = $self->{settings}{via_root})",
	  'CREATE PUBLICATION commit_order FOR TABLE ledger',
	  q{SELECT pg_create_logical_replication_slot('commit_order', 'pgoutput')};
	return $self->script(@sql);
}

sub subscriber_schema
{
	my ($self) = @_;
	my @sql;
	foreach my $name (@{ $self->{order} })
	{
		push @sql,
		  grep { defined } @{ $self->{table}{$name} }{ 'ddl', 'subscriber' };
	}
	return $self->script(@sql);
}

# A unique index that the publisher does not have, though the values are unique.
my %unique_index = (
	plain => 'CREATE UNIQUE INDEX ON hidden_unique (u)',
	expression => 'CREATE UNIQUE INDEX ON hidden_unique ((u * 2))',
	partial => 'CREATE UNIQUE INDEX ON hidden_unique (u) WHERE u > 0',
	generated => 'ALTER TABLE hidden_unique ADD COLUMN g bigint'
	  . ' GENERATED ALWAYS AS (u + 1) STORED UNIQUE');

sub script
{
	my ($self, @sql) = @_;
	my %value = (
		%{ $self->{settings} },
		unique_index => $unique_index{ $self->{settings}{unique_index} });
	my $script = join(";\n", @sql) . ';';
	$script =~ s/\{(keys|accounts|sessions|unique_index)\}/$value{$1}/g;
	return $script;
}

sub subscription_options
{
	my ($self) = @_;
	return join(', ',
		map { "$_ = $self->{settings}{$_}" }
		  ('streaming', 'two_phase', 'binary', 'synchronous_commit'));
}

# For the publisher, as soon as the subscriptions work.
sub subscribed_sql
{
	my ($self) = @_;
	return () if !$self->{settings}{synchronous};
	return (q{ALTER SYSTEM SET synchronous_standby_names = 'parallel'},
		'SELECT pg_reload_conf()');
}

# One row, seen by one snapshot: numbers of the sessions; rows and last number
# of each session in the ledger; hot counter, its rows and last number in the
# ledger; sum of balances; children without parent.
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

# Why a row of snapshot_query() cannot be a prefix, or undef.
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

# A query for one table that returns its rows as text, in any order.
sub rows_query
{
	my ($self, $name, $on_publisher) = @_;
	my $table = $self->{table}{$name};
	my $filter =
	  $on_publisher && $table->{filter} ? " WHERE $table->{filter}" : '';
	return "SELECT ROW($table->{columns})::text AS r FROM $name$filter";
}

# --- scripts of the sessions ------------------------------------------------

# The SQL of one publisher session, from 1.
sub session_script
{
	my ($self, $session) = @_;
	my $set = $self->{settings};
	my $writer = {
		random => random_source("session $session of $self->{seed}"),
		session => $session,
		serial => $session * 10_000_000
	};
	my @script = (
		"SET lock_timeout = '5s'",
		"SET synchronous_commit = $set->{publisher_commit}");
	my $script = join(";\n", @script) . ";\n";
	$script .= "\\set ON_ERROR_ROLLBACK on\n" if $set->{statement_rollback};

	my @bag = $self->statement_bag;
	my $count = int($self->{transactions} / $set->{sessions});
	$script .= $self->transaction($writer, \@bag) for (1 .. $count);
	return $script;
}

# Each statement as often as its weight says.
sub statement_bag
{
	my ($self) = @_;
	my @bag;
	foreach my $name ($self->tables)
	{
		my $table = $self->{table}{$name};
		push @bag, (@{ $table->{statements} // [] }) x $table->{weight};
	}
	return @bag ? @bag : @{ $self->{table}{integer_key}{statements} };
}

sub transaction
{
	my ($self, $writer, $bag) = @_;
	my $set = $self->{settings};
	my $random = $writer->{random};
	my $begin =
	  $set->{isolation} eq 'mixed' && $random->(4) == 0
	  ? 'BEGIN ISOLATION LEVEL REPEATABLE READ;'
	  : 'BEGIN;';
	my @lines = ($begin, $self->statements($writer, $bag));

	my $counter = $self->counter_statement($writer);
	if ($set->{mode} eq 'wide' && $random->(2))
	{
		splice(@lines, 1, 0, $counter);
	}
	else
	{
		push @lines, $counter;
	}
	push @lines, $self->transaction_end($writer);
	return join("\n", @lines) . "\n";
}

# Nobody may wait for a lock of a prepared transaction while its session waits
# for somebody: in between the session only appends to the journal.
sub transaction_end
{
	my ($self, $writer) = @_;
	my $random = $writer->{random};
	return ('ROLLBACK;') if $random->(20) == 0;
	return ('COMMIT;')
	  unless $self->{settings}{prepared} && $random->(8) == 0;

	my $gid = "'" . ++$writer->{serial} . "'";
	my $journal = $self->{table}{journal}{statements}[0];
	return (
		"PREPARE TRANSACTION $gid;",
		(map { $self->expand($writer, $journal) } (1 .. $random->(3))),
		($random->(6) ? "COMMIT PREPARED $gid;" : "ROLLBACK PREPARED $gid;"));
}

# The session counts itself.  The hot row is locked until the commit: its
# numbers are in commit order.
sub counter_statement
{
	my ($self, $writer) = @_;
	my $mode = $self->{settings}{mode};
	my $is_hot =
	  $mode eq 'hot' || ($mode eq 'mixed' && $writer->{random}->(4) == 0);
	my $own =
	  "UPDATE session_counter SET n = n + 1 WHERE session = $writer->{session} RETURNING n";
	return
	  "WITH own AS ($own) INSERT INTO ledger SELECT $writer->{session}, n FROM own;"
	  if !$is_hot;
	return
	  "WITH own AS ($own), hot AS (UPDATE commit_counter SET n = n + 1 RETURNING n)"
	  . " INSERT INTO ledger SELECT $writer->{session}, own.n, hot.n FROM own, hot;";
}

sub statements
{
	my ($self, $writer, $bag) = @_;
	my $random = $writer->{random};
	my @lines;
	return $self->expand($writer,
		pick($random, @{ $self->{table}{bulk}{large} }))
	  if $random->(60) == 0;

	my $count = $self->transaction_length($random);
	my @savepoints;
	for my $i (1 .. $count)
	{
		push @lines, $self->expand($writer, pick($random, @$bag));
		next if $random->(12) != 0;
		if (@savepoints && $random->(2))
		{
			my $name = pop @savepoints;
			push @lines,
			  ($random->(3) ? "ROLLBACK TO $name;" : "RELEASE $name;");
		}
		else
		{
			push @savepoints, "s$i";
			push @lines, "SAVEPOINT s$i;";
		}
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

my %value = (
	key => sub {
		my ($self, $w) = @_;
		return 1 + $w->{random}->($self->{settings}{keys});
	},
	account => sub {
		my ($self, $w) = @_;
		return 1 + $w->{random}->($self->{settings}{accounts});
	},
	session => sub { my ($self, $w) = @_; return $w->{session} },
	serial => sub { my ($self, $w) = @_; return $w->{serial} += 10 },
	few => sub { my ($self, $w) = @_; return $w->{random}->(6) },
	many => sub { my ($self, $w) = @_; return 100 + $w->{random}->(4000) },
	int => sub { my ($self, $w) = @_; return 1 + $w->{random}->(900) },
	word => sub {
		my ($self, $w) = @_;
		return q{'} . pick($w->{random}, @words) . q{'};
	},
	text => sub {
		my ($self, $w) = @_;
		return q{'} . (pick($w->{random}, @words) x $w->{random}->(9)) . q{'};
	},
	big => sub {
		my ($self, $w) = @_;
		return sprintf(
			q{repeat(md5('%d'), %d)},
			$w->{random}->(50),
			70 + $w->{random}->(200));
	},
	longkey => sub {
		my ($self, $w) = @_;
		return sprintf(q{repeat(md5('%d'), 70)}, $w->{random}->(8));
	},
	decimal => sub {
		my ($self, $w) = @_;
		return pick($w->{random}, '1', '1.0', '1.00', '2', '2.000', '3.5',
			'3.50', '-1e10', '0', '0.0',
			"'NaN'", '12345678901234567890.123456789');
	},
	float => sub {
		my ($self, $w) = @_;
		return pick(
			$w->{random}, '0', "'-0'", '0.1',
			'1e-7', "'NaN'", "'Infinity'", '3.25',
			'NULL');
	},
	json => sub {
		my ($self, $w) = @_;
		return pick(
			$w->{random}, q{'{}'},
			q{'[1, 2.0, null]'},
			q{'{"a": {"b": "c"}, "d": 1}'}, q{'"x"'});
	},
	mood => sub {
		my ($self, $w) = @_;
		return pick($w->{random}, "'sad'", "'ok'", "'happy'", 'NULL');
	},
	anycase => sub {
		my ($self, $w) = @_;
		return pick($w->{random}, "'ab'", "'AB'", "'Ab'", "'cd'", "'CD'",
			"'ef'", "'eF'");
	});

# A template with its values drawn, as lines that end with a semicolon.
sub expand
{
	my ($self, $writer, $template) = @_;
	my %named;
	$template =~ s{\{(\w+)(?::(\w+))?\}}{
		defined $2
		  ? ($named{"$1:$2"} //= $value{$1}->($self, $writer))
		  : $value{$1}->($self, $writer)}ge;
	return "$template;";
}

# --- events -----------------------------------------------------------------

# A list of [fraction of the transactions after which it comes, what to do].
sub make_events
{
	my ($self, $random) = @_;
	my @calm = (
		'lock_table', 'lock_table', 'set_writers', 'disable',
		'add_column', 'rewrite');
	push @calm, 'add_table' if $self->{settings}{two_phase} eq 'off';
	my @kills = (
		'terminate_writer', 'terminate_writer',
		'kill_writer', 'terminate_receiver',
		'kill_receiver', 'terminate_walsender',
		'stop_immediate', 'restart');
	my @events = map { pick($random, @calm) } (1 .. $random->(4));
	push @events, map { pick($random, @kills) } (1 .. 1 + $random->(5))
	  if $self->{kills};

	my %seen;
	@events = grep { !/^add_/ || !$seen{$_}++ } @events;
	my @timed = map { [ (5 + $random->(80)) / 100, $_ ] } @events;
	return [ sort { $a->[0] <=> $b->[0] } @timed ];
}

1;

__DATA__

# The tables of snapshot_query().

session_counter 0
    ddl CREATE TABLE session_counter (session int PRIMARY KEY, n bigint)
    fill INSERT INTO session_counter SELECT s, 0 FROM generate_series(1, {sessions}) s
    columns session, n

commit_counter 0
    ddl CREATE TABLE commit_counter (id int PRIMARY KEY, n bigint)
    fill INSERT INTO commit_counter VALUES (1, 0)
    columns id, n

sentinel 0
    ddl CREATE TABLE sentinel (id int PRIMARY KEY, n bigint)
    fill INSERT INTO sentinel VALUES (1, 0)
    columns id, n

ledger 0
    ddl CREATE TABLE ledger (session int, n bigint, total bigint)
    fill INSERT INTO ledger SELECT s, 0 FROM generate_series(1, {sessions}) s
    columns session, n, total

parent 2
    ddl CREATE TABLE parent (id int PRIMARY KEY, v int)
    fill INSERT INTO parent SELECT i, 0 FROM generate_series(1, {keys}) i
    columns id, v
    - INSERT INTO parent VALUES ({key}, {int}) ON CONFLICT DO NOTHING
    - UPDATE parent SET v = {int} WHERE id = {key}
    - DELETE FROM parent WHERE id = {key}

child 3
    ddl CREATE TABLE child (id int PRIMARY KEY, parent int NOT NULL REFERENCES parent ON
        DELETE CASCADE ON UPDATE CASCADE, v int)
    columns id, parent, v
    - INSERT INTO child SELECT {key}, id, {int} FROM parent ORDER BY abs(id - {key}), id
        LIMIT 1 ON CONFLICT DO NOTHING
    - UPDATE child SET v = v + 1 WHERE id = {key}
    - UPDATE child SET parent = p.id FROM (SELECT id FROM parent ORDER BY abs(id - {key}),
        id LIMIT 1) p WHERE child.id = {key}
    - DELETE FROM child WHERE id = {key}

account_a 4
    ddl CREATE TABLE account_a (id int PRIMARY KEY, balance bigint, note text)
    fill INSERT INTO account_a SELECT i, 1000, '' FROM generate_series(1, {accounts}) i
    columns id, balance, note
    - SELECT transfer('account_a', {account}, 'account_b', {account}, {int})
    - SELECT transfer('account_a', {account:a}, 'account_a', {account:b}, {int})
    - UPDATE account_a SET note = {text} WHERE id = {account}
    - SELECT reinsert('account_a', {account})

account_b 4
    ddl CREATE TABLE account_b (id int PRIMARY KEY, balance bigint, note text)
    fill INSERT INTO account_b SELECT i, 1000, '' FROM generate_series(1, {accounts}) i
    columns id, balance, note
    - SELECT transfer('account_b', {account}, 'account_a', {account}, {int})
    - SELECT transfer('account_b', {account:a}, 'account_b', {account:b}, {int})
    - UPDATE account_b SET note = {text} WHERE id = {account}
    - SELECT reinsert('account_b', {account})

# Tables with a primary key: of one or several columns, of types whose equality is
# not that of the bytes, changing keys, further unique columns.

integer_key 5
    ddl CREATE TABLE integer_key (id int PRIMARY KEY, v int, t text)
    fill INSERT INTO integer_key SELECT i, 0, 'x' FROM generate_series(1, {keys}) i
    columns id, v, t
    - INSERT INTO integer_key VALUES ({key}, {int}, {text}) ON CONFLICT DO NOTHING
    - INSERT INTO integer_key VALUES ({key}, {int}, {text}) ON CONFLICT (id) DO UPDATE SET v
        = integer_key.v + 1, t = excluded.t
    - UPDATE integer_key SET v = v + {int}, t = {text} WHERE id = {key}
    - UPDATE integer_key SET v = v + 1 WHERE id BETWEEN {key:a} AND {key:a} + 3
    - UPDATE integer_key SET id = {key:new} WHERE id = {key} AND NOT EXISTS (SELECT FROM
        integer_key WHERE id = {key:new})
    - DELETE FROM integer_key WHERE id = {key}
    - DELETE FROM integer_key WHERE id = {key:a}; INSERT INTO integer_key VALUES ({key:a},
        {int}, {text}) ON CONFLICT DO NOTHING

composite_key 3
    ddl CREATE TABLE composite_key (a int, b text, v int, PRIMARY KEY (b, a))
    columns a, b, v
    - INSERT INTO composite_key VALUES ({few}, {word}, {int}) ON CONFLICT DO NOTHING
    - UPDATE composite_key SET v = v + 1 WHERE b = {word}
    - UPDATE composite_key SET a = {few:n} WHERE a = {few} AND b = {word:w} AND NOT EXISTS
        (SELECT FROM composite_key WHERE a = {few:n} AND b = {word:w})
    - DELETE FROM composite_key WHERE a = {few} AND b = {word}

text_key 3
    ddl CREATE TABLE text_key (k text PRIMARY KEY, v int)
    columns k, v
    - INSERT INTO text_key VALUES ({text}, {int}) ON CONFLICT DO NOTHING
    - INSERT INTO text_key VALUES ({word}, {int}) ON CONFLICT (k) DO UPDATE SET v =
        excluded.v
    - UPDATE text_key SET k = {word:n} WHERE k = {word} AND NOT EXISTS (SELECT FROM text_key
        WHERE k = {word:n})
    - DELETE FROM text_key WHERE k = {word}

numeric_key 2
    ddl CREATE TABLE numeric_key (k numeric PRIMARY KEY, f float8 UNIQUE, v int)
    columns k, f + 0.0, v
    - INSERT INTO numeric_key VALUES ({decimal}, {float}, {int}) ON CONFLICT DO NOTHING
    - UPDATE numeric_key SET v = v + 1 WHERE k = {decimal}
    - UPDATE numeric_key SET f = NULL WHERE f = {float}
    - UPDATE numeric_key SET k = {decimal:n} WHERE k = {decimal} AND NOT EXISTS (SELECT FROM
        numeric_key WHERE k = {decimal:n} AND v < 0)
    - DELETE FROM numeric_key WHERE k = {decimal}

nocase_key 2
    ddl CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic =
        false); CREATE TABLE nocase_key (k text COLLATE nocase PRIMARY KEY, v int)
    columns k, v
    - INSERT INTO nocase_key VALUES ({anycase}, {int}) ON CONFLICT DO NOTHING
    - UPDATE nocase_key SET v = v + 1 WHERE k = {anycase}
    - UPDATE nocase_key SET k = upper(k) WHERE k = {anycase}
    - DELETE FROM nocase_key WHERE k = {anycase}

wander 5
    ddl CREATE TABLE wander (id int PRIMARY KEY, u int UNIQUE, w text, UNIQUE (w))
    columns id, u, w
    - INSERT INTO wander VALUES ({key}, {few}, {word}) ON CONFLICT DO NOTHING
    - UPDATE wander SET u = NULL WHERE u = {few:u}; UPDATE wander SET u = {few:u} WHERE id =
        {key}
    - UPDATE wander SET w = NULL WHERE w = {word}
    - DELETE FROM wander WHERE w = {word:w}; INSERT INTO wander VALUES ({key}, NULL,
        {word:w}) ON CONFLICT DO NOTHING
    - SELECT swap_wander({key}, {key})
    - DELETE FROM wander WHERE u = {few}

deferred 1
    ddl CREATE TABLE deferred (id int PRIMARY KEY, u int UNIQUE DEFERRABLE INITIALLY
        DEFERRED)
    fill INSERT INTO deferred SELECT i, i FROM generate_series(1, {keys}) i
    columns id, u
    - UPDATE deferred SET u = CASE id WHEN {key:a} THEN (SELECT u FROM deferred WHERE id =
        {key:b}) ELSE (SELECT u FROM deferred WHERE id = {key:a}) END WHERE id IN ({key:a},
        {key:b})

# Tables with another replica identity than the primary key, or none.

unique_identity 3
    ddl CREATE TABLE unique_identity (id int, u int NOT NULL, v int); CREATE UNIQUE INDEX
        unique_identity_u ON unique_identity (u); ALTER TABLE unique_identity REPLICA
        IDENTITY USING INDEX unique_identity_u
    columns id, u, v
    - INSERT INTO unique_identity VALUES ({int}, {key}, {int}) ON CONFLICT DO NOTHING
    - UPDATE unique_identity SET v = v + 1 WHERE u = {key}
    - UPDATE unique_identity SET u = {key:n} WHERE u = {key} AND NOT EXISTS (SELECT FROM
        unique_identity WHERE u = {key:n})
    - DELETE FROM unique_identity WHERE u = {key}

full_rows 3
    ddl CREATE TABLE full_rows (a int, b text, c numeric); ALTER TABLE full_rows REPLICA
        IDENTITY FULL
    columns a, b, trim_scale(c)
    - INSERT INTO full_rows VALUES ({few}, {word}, {decimal})
    - INSERT INTO full_rows SELECT {few}, NULL, {decimal} FROM generate_series(1, 3)
    - INSERT INTO full_rows VALUES (NULL, NULL, NULL)
    - UPDATE full_rows SET a = {few}, c = {decimal} WHERE ctid = (SELECT ctid FROM full_rows
        WHERE a = {few} LIMIT 1)
    - UPDATE full_rows SET b = {word} WHERE a = {few} AND b IS NULL
    - UPDATE full_rows SET a = {few} WHERE ctid = (SELECT ctid FROM full_rows WHERE a IS
        NULL LIMIT 1)
    - DELETE FROM full_rows WHERE a = {few}
    - DELETE FROM full_rows WHERE ctid = (SELECT ctid FROM full_rows WHERE a = {few} LIMIT
        1)

full_toast 1
    ddl CREATE TABLE full_toast (a int, big text, v int); ALTER TABLE full_toast ALTER big
        SET STORAGE EXTERNAL; ALTER TABLE full_toast REPLICA IDENTITY FULL
    columns a, big, v
    - INSERT INTO full_toast VALUES ({few}, {big}, {int})
    - UPDATE full_toast SET v = v + 1 WHERE a = {few}
    - UPDATE full_toast SET big = {big} WHERE a = {few}
    - DELETE FROM full_toast WHERE a = {few}

full_keyed 2
    ddl CREATE TABLE full_keyed (id int PRIMARY KEY, u int UNIQUE, v int)
    publisher ALTER TABLE full_keyed REPLICA IDENTITY FULL
    columns id, u, v
    - INSERT INTO full_keyed VALUES ({key}, {few}, {int}) ON CONFLICT DO NOTHING
    - UPDATE full_keyed SET v = v + 1 WHERE id = {key}
    - UPDATE full_keyed SET u = NULL WHERE u = {few:u}; UPDATE full_keyed SET u = {few:u}
        WHERE id = {key}
    - DELETE FROM full_keyed WHERE u = {few}

journal 4
    ddl CREATE TABLE journal (session int, n bigint, t text)
    columns session, n, t
    - INSERT INTO journal VALUES ({session}, {serial}, {text})
    - INSERT INTO journal SELECT {session}, {serial} + i, {word} FROM generate_series(1,
        {few}) i

# Tables whose point is in the values: types, TOAST, many rows.

typed 3
    ddl CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE TYPE pair AS (a int, b
        text); CREATE DOMAIN small AS int CHECK (VALUE < 1000); CREATE TABLE typed (id int
        PRIMARY KEY, n numeric, f float8, r real, ts timestamptz, d date, j jsonb, ints
        int[], words text[], raw bytea, yes boolean, m mood, p pair, s small)
    fill INSERT INTO typed (id) SELECT i FROM generate_series(1, {keys}) i
    columns id, n, f, r, ts, d, j, ints, words, raw, yes, m, p, s
    - INSERT INTO typed (id, n, f, j) VALUES ({key}, {decimal}, {float}, {json}) ON CONFLICT
        DO NOTHING
    - UPDATE typed SET n = {decimal}, f = {float}, r = {float} WHERE id = {key}
    - UPDATE typed SET j = {json}, ints = ARRAY[{int}, NULL, {int}] WHERE id = {key}
    - UPDATE typed SET words = ARRAY[{text}, {word}], raw = convert_to({text}, 'UTF8') WHERE
        id = {key}
    - UPDATE typed SET ts = timestamptz '2020-01-01' + {int} * interval '1.000001 s', d =
        date '1999-01-01' + {int} WHERE id = {key}
    - UPDATE typed SET yes = {few} > 3, m = {mood}, p = ({int}, {text}), s = {few} WHERE id
        = {key}
    - DELETE FROM typed WHERE id = {key}

toasted 2
    ddl CREATE TABLE toasted (id int PRIMARY KEY, v int, big text, other text); ALTER TABLE
        toasted ALTER big SET STORAGE EXTERNAL
    fill INSERT INTO toasted SELECT i, 0, repeat(md5(i::text), 90), 'x' FROM
        generate_series(1, 6) i
    columns id, v, big, other
    - INSERT INTO toasted VALUES ({few}, {int}, {big}, {big}) ON CONFLICT DO NOTHING
    - UPDATE toasted SET v = v + 1 WHERE id = {few}
    - UPDATE toasted SET big = {big} WHERE id = {few}
    - UPDATE toasted SET other = {big} WHERE id = {few}
    - UPDATE toasted SET id = {few:n} WHERE id = {few} AND NOT EXISTS (SELECT FROM toasted
        WHERE id = {few:n})
    - DELETE FROM toasted WHERE id = {few}

toast_key 2
    ddl CREATE TABLE toast_key (k text, id int, v int); ALTER TABLE toast_key ALTER k SET
        STORAGE EXTERNAL; ALTER TABLE toast_key ADD PRIMARY KEY (k)
    columns k, id, v
    - INSERT INTO toast_key VALUES ({longkey}, {few}, {int}) ON CONFLICT DO NOTHING
    - UPDATE toast_key SET v = v + 1 WHERE id = {few}
    - UPDATE toast_key SET k = {longkey:n} WHERE k = {longkey} AND NOT EXISTS (SELECT FROM
        toast_key WHERE k = {longkey:n})
    - DELETE FROM toast_key WHERE k = {longkey}

bulk 0
    ddl CREATE TABLE bulk (id int PRIMARY KEY, v int, filler text)
    columns id, v, filler
    large INSERT INTO bulk SELECT i, {int}, md5(i::text) FROM generate_series({int:a},
        {int:a} + {many}) i ON CONFLICT (id) DO UPDATE SET v = excluded.v
    large UPDATE bulk SET v = v + 1 WHERE id % 5 = {few}
    large DELETE FROM bulk WHERE id % 6 = {few}

# Tables which differ between publisher and subscriber, or which the pool may have to
# leave to PostgreSQL's own apply. The trigger of the subscriber reads another table:
# only serial apply gives the same history.

hidden_unique 4
    ddl CREATE TABLE hidden_unique (id int PRIMARY KEY, u bigint, v int)
    subscriber {unique_index}
    fill INSERT INTO hidden_unique SELECT i, i, 0 FROM generate_series(1, {keys}) i
    columns id, u, v
    - INSERT INTO hidden_unique VALUES ({serial:n}, {serial:n}, {int})
    2 SELECT swap_hidden({int}, {int})
    - SELECT hand_over_hidden({int}, {serial})
    - SELECT take_hidden({int}, {int})

reordered 2
    publisher CREATE TABLE reordered (id int PRIMARY KEY, a int, b text, c int)
    subscriber CREATE TABLE reordered (c int, extra text DEFAULT 'local', b text, other int
        DEFAULT 7, id int PRIMARY KEY, a int UNIQUE)
    columns id, a, b, c
    - INSERT INTO reordered VALUES ({serial:n}, {serial:n}, {text}, {int})
    - INSERT INTO reordered VALUES ({key:n}, -{key:n}, {text}, {int}) ON CONFLICT DO NOTHING
    - UPDATE reordered SET b = {text}, c = {int} WHERE id = {key}
    - DELETE FROM reordered WHERE id = {key}

generated 2
    ddl CREATE TABLE generated (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2)
        STORED, t text)
    columns id, a, g, t
    - INSERT INTO generated (id, a, t) VALUES ({key}, {int}, {text}) ON CONFLICT DO NOTHING
    - UPDATE generated SET a = {int} WHERE id = {key}
    - DELETE FROM generated WHERE id = {key}

filtered 1
    ddl CREATE TABLE filtered (id int PRIMARY KEY, v int, hidden text)
    columns id, v
    published (id, v) WHERE (id % 2 = 0)
    filter id % 2 = 0
    - INSERT INTO filtered VALUES ({key}, {int}, {text}) ON CONFLICT DO NOTHING
    - UPDATE filtered SET v = v + 1 WHERE id = {key}
    - UPDATE filtered SET id = {key:n} WHERE id = {key} AND NOT EXISTS (SELECT FROM filtered
        WHERE id = {key:n})
    - DELETE FROM filtered WHERE id = {key}

parted 1
    ddl CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY HASH (id); CREATE TABLE
        parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE
        parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1)
    columns id, v
    - INSERT INTO parted VALUES ({key}, {int}) ON CONFLICT DO NOTHING
    - UPDATE parted SET v = v + 1 WHERE id = {key}
    - UPDATE parted SET id = {key:n} WHERE id = {key} AND NOT EXISTS (SELECT FROM parted
        WHERE id = {key:n})
    - DELETE FROM parted WHERE id = {key}

triggered 1
    ddl CREATE TABLE triggered (id int PRIMARY KEY, v int)
    subscriber CREATE TABLE triggered_history (seq bigserial, id int, v int, seen numeric);
        CREATE FUNCTION note_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT
        INTO public.triggered_history (id, v, seen) SELECT new.id, new.v, sum(n) FROM
        public.session_counter; RETURN NULL; END $$; CREATE TRIGGER note_history AFTER
        INSERT OR UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION note_history(); ALTER
        TABLE triggered ENABLE ALWAYS TRIGGER note_history
    columns id, v
    - INSERT INTO triggered VALUES ({few}, {int}) ON CONFLICT DO NOTHING
    - UPDATE triggered SET v = {int} WHERE id = {few}
    - DELETE FROM triggered WHERE id = {few}

truncated 1
    ddl CREATE TABLE truncated (id int PRIMARY KEY, v int)
    columns id, v
    8 INSERT INTO truncated VALUES ({key}, {int}) ON CONFLICT DO NOTHING
    - UPDATE truncated SET v = v + 1 WHERE id = {key}
    - TRUNCATE truncated

evolving 2
    ddl CREATE TABLE evolving (id int PRIMARY KEY, a int)
    columns id, a
    - INSERT INTO evolving (id, a) VALUES ({key}, {int}) ON CONFLICT DO NOTHING
    - UPDATE evolving SET a = a + 1 WHERE id = {key}
    - DELETE FROM evolving WHERE id = {key}
