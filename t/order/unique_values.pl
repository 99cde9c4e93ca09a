# Promise: unique values that move from row to row arrive in commit order.  They are
# tracked where the message contains the value, and a second attempt corrects the
# result where only the subscriber knows that two changes conflict.
#
# A lock on the subscriber blocks the first transaction of each round.  A younger
# one that takes a value which the first is about to release either waits for it
# (tracked), or meets a violation, a lock or a missing row before its turn (missed),
# and its second attempt must succeed.  The comment of each round names the faults
# that it detects.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => "parallel_apply.writers_per_subscription = 8\n"
	  . "parallel_apply.max_batch_transactions = 1\n");
my @tables = qw(gate users pairs only_here deferred flags names ranges);

$pair->exec_both(
	q(CREATE TABLE gate (id int PRIMARY KEY, n int);
	CREATE TABLE users (id int PRIMARY KEY, email text UNIQUE, v int);
	CREATE TABLE pairs (id int PRIMARY KEY, a int, b text, UNIQUE (a, b));
	ALTER TABLE pairs REPLICA IDENTITY FULL;
	CREATE TABLE only_here (id int PRIMARY KEY, code text);
	ALTER TABLE only_here REPLICA IDENTITY FULL;
	CREATE TABLE deferred (id int PRIMARY KEY, pos int,
		UNIQUE (pos) DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE flags (id int PRIMARY KEY, kind text, active bool);
	CREATE TABLE names (id int PRIMARY KEY, name text);
	CREATE TABLE ranges (id int PRIMARY KEY, during int4range);)
);
$subscriber->sql(
	q(CREATE UNIQUE INDEX ON only_here (code);
	CREATE UNIQUE INDEX ON flags (kind) WHERE active;
	CREATE UNIQUE INDEX ON names (lower(name));
	ALTER TABLE ranges ADD EXCLUDE USING gist (during WITH &&);)
);
$publisher->sql(
	q(INSERT INTO gate VALUES (1, 0);
	INSERT INTO users SELECT i, 'user' || i, 0 FROM generate_series(1, 9) i;
	INSERT INTO pairs SELECT i, i, CASE WHEN i < 8 THEN 'b' END FROM generate_series(1, 9) i;
	INSERT INTO only_here SELECT i, 'code' || i FROM generate_series(1, 9) i;
	INSERT INTO deferred SELECT i, i FROM generate_series(1, 9) i;
	INSERT INTO flags SELECT i, 'kind' || i % 3, i <= 3 FROM generate_series(1, 9) i;
	INSERT INTO names SELECT i, 'name' || i FROM generate_series(1, 9) i;
	INSERT INTO ranges SELECT i, int4range(i * 10, i * 10 + 10) FROM generate_series(1, 9) i;)
);
$subscriber->create_extension;
$pair->subscribe('tap');

my $dependency = 'waiting for dependency';
my $turn = 'waiting for prior commit';

# Detects: unique indexes besides the identity not tracked; the new value of an
# UPDATE not recorded, or not looked up.  FULL sends the old value, but DELETE only
# the columns of the identity, so the last conflict is found while it is applied.
is( $pair->apply_behind_gate(
		behind_lock($dependency, $turn, $dependency, $turn),
		'a unique value that an older transaction writes is waited for',
		q(INSERT INTO users VALUES (10, 'user10', 1);
		UPDATE users SET email = 'new' WHERE id = 1),
		q(UPDATE users SET v = 2 WHERE id = 1),
		q(UPDATE users SET v = 2 WHERE id = 2),
		q(UPDATE users SET v = v + 1 WHERE id = 10),
		q(UPDATE users SET email = 'user30' WHERE id = 3)),
	0,
	'and then it is applied at its first attempt');

# The value that moves 1 -> 2 -> 3 is only in the new tuples.
cmp_ok(
	$pair->apply_behind_gate(
		behind_lock($turn, $dependency, $dependency),
		'the values that a message does not tell are no dependency',
		q(UPDATE users SET email = 'free' WHERE id = 4),
		q(UPDATE users SET email = 'user4' WHERE id = 5),
		q(UPDATE users SET email = 'free5' WHERE id = 5),
		q(INSERT INTO users VALUES (11, 'user4', 0))),
	'>=', 1,
	'but a second attempt sets them right');
$subscriber->forget_violations('tap');

# The transaction of the last change has itself written one of its keys.  It must
# wait for the other transaction nevertheless.
is( $pair->apply_behind_gate(
		behind_lock($dependency),
		'a row that the transaction has made itself takes a key that it waits for',
		q(DELETE FROM users WHERE id = 6),
		q(INSERT INTO users VALUES (60, 'user60', 0); UPDATE users SET id = 6 WHERE id = 60)
	),
	0,
	'and gets it at its first attempt');

# FULL sends the old values.  The dependency must come from the unique index, since
# no two of these rows are the same.  NULLs never conflict.
is( $pair->apply_behind_gate(
		behind_lock($dependency, $dependency, $turn, $turn),
		'unique values given up by an older transaction are waited for',
		q(UPDATE pairs SET a = 10 WHERE id = 1;
		DELETE FROM pairs WHERE id = 2;
		UPDATE pairs SET a = 88 WHERE id = 8),
		q(UPDATE pairs SET a = 1 WHERE id = 3),
		q(INSERT INTO pairs VALUES (20, 2, 'b')),
		q(INSERT INTO pairs VALUES (21, 8, NULL)),
		q(INSERT INTO pairs VALUES (22, 2, 'c'))),
	0,
	'and then they are free at the first attempt');

# The publisher has the unique indexes, the subscriber does not.
is( $pair->apply_behind_gate(
		behind_lock($dependency, $dependency, $turn),
		'an index that only the subscriber has is tracked as well',
		q(UPDATE only_here SET code = 'away' WHERE id = 1;
		DELETE FROM only_here WHERE id = 2),
		q(UPDATE only_here SET code = 'code1' WHERE id = 3),
		q(INSERT INTO only_here VALUES (20, 'code2')),
		q(UPDATE only_here SET code = 'code4x' WHERE id = 4)),
	0,
	'and needs no second attempt');

# An index that is created after the subscription is tracked from then on, by
# invalidation of the receiver's information about the table.
$subscriber->sql('CREATE UNIQUE INDEX only_here_new ON only_here (code, id)');
$subscriber->sql('DROP INDEX only_here_code_idx');
is( $pair->apply_behind_gate(
		behind_lock($turn, $dependency),
		'a dropped index is no longer tracked',
		q(UPDATE only_here SET code = 'away5' WHERE id = 5),
		q(UPDATE only_here SET code = 'code5' WHERE id = 6),
		q(UPDATE only_here SET code = 'code6' WHERE id = 5)),
	0,
	'and needs no second attempt');

# A deferrable constraint: positions are swapped within one transaction, and by two
# transactions.  The trigger of the constraint does not fire in replica mode.
is( $pair->apply_behind_gate(
		behind_lock($dependency, $dependency, $turn),
		'values of a deferrable constraint are tracked',
		q(UPDATE deferred SET pos = 3 - pos WHERE id <= 2),
		q(UPDATE deferred SET pos = 3 - pos WHERE id <= 2),
		q(UPDATE deferred SET pos = CASE id WHEN 1 THEN 3 ELSE 1 END WHERE id IN (1, 3)),
		q(UPDATE deferred SET pos = 13 - pos WHERE id IN (6, 7))),
	0,
	'and may be exchanged within a transaction');

# Conflicts that cannot be tracked: a partial index, an expression, an exclusion
# constraint.  The error of the first attempt must not be final, and the row must
# not be skipped.
cmp_ok(
	$pair->apply_behind_gate(
		behind_lock($turn, $turn),
		'a partial unique index is no dependency',
		q(UPDATE flags SET active = false WHERE id = 1),
		q(UPDATE flags SET active = true WHERE id = 4),
		q(UPDATE flags SET active = false WHERE id = 3)),
	'>=', 1,
	'but a violation of it leads to a second attempt');
cmp_ok(
	$pair->apply_behind_gate(
		behind_lock($turn, $dependency, $turn),
		'a unique index on an expression is no dependency',
		q(UPDATE names SET name = 'other' WHERE id = 1;
		DELETE FROM names WHERE id = 2),
		q(UPDATE names SET name = 'NAME1' WHERE id = 3),
		q(UPDATE names SET name = 'free3' WHERE id = 3),
		q(INSERT INTO names VALUES (20, 'NAME2'))),
	'>=',
	2,
	'but a violation of it leads to a second attempt');
cmp_ok(
	$pair->apply_behind_gate(
		behind_lock($turn, $turn, $turn),
		'an exclusion constraint is no dependency',
		q(UPDATE ranges SET during = int4range(200, 210) WHERE id = 1;
		DELETE FROM ranges WHERE id = 2),
		q(INSERT INTO ranges VALUES (20, int4range(12, 15))),
		q(UPDATE ranges SET during = int4range(22, 40) WHERE id = 3),
		q(UPDATE ranges SET during = int4range(85, 90) WHERE id = 8)),
	'>=',
	2,
	'but a violation of it leads to a second attempt');

is($subscriber->counter('fallbacks'),
	0, 'none of this had to be replayed by PostgreSQL itself');
$pair->rows_equal($_) for @tables;
finish($publisher, $subscriber);
done_testing();
