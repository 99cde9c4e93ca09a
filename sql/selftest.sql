-- Unit tests of the modules that need no second process, by the functions of
-- src/test/selftest.c.  Run by `make check`; they are in no ordinary library.
\set VERBOSITY terse

CREATE FUNCTION selftest_awake() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_awake';
CREATE FUNCTION selftest_dependency(seed int, bits int, keys int, steps int) RETURNS bigint
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_dependency';
CREATE FUNCTION selftest_exclusive() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_exclusive';
CREATE FUNCTION selftest_leader_policy() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_leader_policy';
CREATE FUNCTION selftest_rates() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_rates';
CREATE FUNCTION selftest_sleep() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_sleep';
CREATE FUNCTION selftest_status(kind "char", length int, ahead int DEFAULT 0) RETURNS boolean
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_status';
CREATE FUNCTION selftest_feedback(is_idle boolean, has_standby boolean) RETURNS text
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_feedback';
CREATE FUNCTION selftest_gate() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_gate';
CREATE FUNCTION selftest_watch() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_watch';
CREATE FUNCTION selftest_idle() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_idle';
CREATE FUNCTION selftest_message(message bytea) RETURNS text
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_message';
CREATE FUNCTION selftest_mutate(message bytea, seed int, times int) RETURNS int
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_mutate';
CREATE FUNCTION selftest_omits_origins(command text, slot_name text) RETURNS boolean
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_omits_origins';
CREATE FUNCTION selftest_pace(capacity int, messages int, behind_ms int, skew_s int,
    later_capacity int DEFAULT 0) RETURNS bigint
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_pace';
CREATE FUNCTION selftest_pace_window(round_trip_us int, mb_per_s int, segment_bytes int) RETURNS int
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_pace_window';
CREATE FUNCTION selftest_prepared(count int, keys int) RETURNS int
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_prepared';
CREATE FUNCTION selftest_queue(seed int, size_kb int, steps int) RETURNS text
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_queue';
CREATE FUNCTION selftest_queue_oversize() RETURNS void
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_queue_oversize';
CREATE FUNCTION selftest_registry(changes int) RETURNS int
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_registry';
CREATE FUNCTION selftest_row_keys(tab regclass, message bytea) RETURNS bigint[]
    LANGUAGE C STRICT AS '$libdir/parallel_apply', 'papply_selftest_row_keys';

-- A tuple of the protocol; '<toast>' is an unchanged value.
CREATE FUNCTION tup(VARIADIC columns text[]) RETURNS bytea LANGUAGE sql AS $$
    SELECT int2send(cardinality(columns)::int2) || coalesce(string_agg(
        CASE WHEN c IS NULL THEN 'n'::bytea
             WHEN c = '<toast>' THEN 'u'::bytea
             ELSE 't'::bytea || int4send(octet_length(c)) || convert_to(c, 'UTF8') END,
        ''::bytea ORDER BY n), ''::bytea)
    FROM unnest(columns) WITH ORDINALITY AS u(c, n) $$;
CREATE FUNCTION ins(new_tuple bytea) RETURNS bytea LANGUAGE sql AS $$
    SELECT 'I'::bytea || int4send(16385) || 'N'::bytea || new_tuple $$;
CREATE FUNCTION upd(old_tuple bytea, new_tuple bytea, tag text DEFAULT 'K') RETURNS bytea LANGUAGE sql AS $$
    SELECT 'U'::bytea || int4send(16385) || coalesce(tag::bytea || old_tuple, ''::bytea)
        || 'N'::bytea || new_tuple $$;
CREATE FUNCTION del(old_tuple bytea, tag text DEFAULT 'K') RETURNS bytea LANGUAGE sql AS $$
    SELECT 'D'::bytea || int4send(16385) || tag::bytea || old_tuple $$;

--
-- dependency
--

-- As many entries as keys: every answer is the exact one.
SELECT seed, selftest_dependency(seed, 10, 1024, 20000) AS greater
  FROM generate_series(1, 5) AS seed;
-- Keys share entries: answers may be greater, and are never less.
SELECT seed, selftest_dependency(seed, 4, 1000, 20000) > 0 AS has_greater
  FROM generate_series(1, 5) AS seed;
-- One entry for all of them.
SELECT selftest_dependency(1, 0, 10, 1000) > 0 AS has_greater;

-- The list of relations in their versions does not grow with the number of definitions.
SELECT selftest_registry(0) AS places, selftest_registry(100000) AS after_changes;

-- Keys of prepared transactions: those that fit, of one and of all.
SELECT keys, selftest_prepared(40, keys) AS known
  FROM unnest(ARRAY[1, 1000, 65536, 65537]) AS keys;

--
-- messages
--

SELECT selftest_message('B'::bytea || int8send(4294967297) || int8send(-5) || int4send(42));
SELECT selftest_message('C'::bytea || '\x00'::bytea || int8send(255) || int8send(256) || int8send(7));
SELECT selftest_message(ins(tup('1', NULL, '<toast>', '', 'long enough')));
SELECT selftest_message(ins(tup(VARIADIC '{}')));
SELECT selftest_message(upd(NULL, tup('1', 'a')));
SELECT selftest_message(upd(tup('1', NULL), tup('2', 'a')));
SELECT selftest_message(upd(tup('1', 'b'), tup('2', 'a'), 'O'));
SELECT selftest_message(del(tup('1', NULL)));
SELECT selftest_message(del(tup('1', 'b'), 'O'));

-- Columns are sent as text or binary; others do not exist.
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(1::int2) || 'b'::bytea || int4send(2) || 'xy'::bytea);
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(1::int2) || 'x'::bytea || int4send(2) || 'xy'::bytea);

-- Malformed: nothing at all, no tuple, the wrong tuple, no second tuple.
SELECT selftest_message('');
SELECT selftest_message('I'::bytea || int4send(1));
SELECT selftest_message('I'::bytea || int4send(1) || 'K'::bytea || tup('1') || 'N'::bytea || tup('1'));
SELECT selftest_message('D'::bytea || int4send(1) || 'N'::bytea || tup('1'));
SELECT selftest_message('U'::bytea || int4send(1) || 'K'::bytea || tup('1'));
SELECT selftest_message('U'::bytea || int4send(1) || 'K'::bytea || tup('1') || 'K'::bytea || tup('1'));
-- More columns than a table can have; fewer than announced; lengths that lie.
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send((-1)::int2) || 'n'::bytea);
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(2::int2) || 'n'::bytea);
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(1::int2) || 't'::bytea || int4send(3) || 'xy'::bytea);
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(1::int2) || 't'::bytea || int4send(-1) || 'xy'::bytea);
SELECT selftest_message('I'::bytea || int4send(1) || 'N'::bytea || int2send(1::int2) || 't'::bytea || int4send(2147483647) || 'xy'::bytea);
\set VERBOSITY sqlstate
SELECT selftest_message('');
\set VERBOSITY terse

-- No part of a message is a message, and whatever is changed in one, nothing
-- behind its end is read: the page after it cannot be.
SELECT message, sum(selftest_mutate(bytes, seed, 2000)) AS accepted
  FROM (VALUES
      ('begin', 'B'::bytea || int8send(1) || int8send(2) || int4send(3)),
      ('commit', 'C'::bytea || '\x00'::bytea || int8send(1) || int8send(2) || int8send(3)),
      ('insert', ins(tup('1', NULL, '<toast>', '', repeat('x', 300)))),
      ('update', upd(tup('1', NULL), tup('2', '<toast>'))),
      ('delete', del(tup('1', 'b'), 'O')),
      ('prepare', 'P'::bytea || '\x00'::bytea || int8send(1) || int8send(2) || int8send(3) || int4send(4)),
      ('stream commit', 'c'::bytea || int4send(4) || '\x00'::bytea || int8send(1) || int8send(2) || int8send(3)),
      ('truncate', 'T'::bytea || int4send(2) || '\x00'::bytea || int4send(3) || int4send(4)),
      ('relation', 'R'::bytea || int4send(1) || 'public'::bytea || '\x00'::bytea)) AS m(message, bytes),
      generate_series(1, 5) AS seed
 GROUP BY message ORDER BY message;
-- The same for a command, which ends anywhere.
SELECT selftest_mutate('START_REPLICATION SLOT "tap" LOGICAL 0/0 (origin ''none'')', 1, 20000) > 0 AS accepted;

--
-- row keys
--

CREATE TABLE keyed (id int PRIMARY KEY, u1 text UNIQUE, u2 text, u3 text, big text, UNIQUE (u2, u3));
CREATE TABLE keyed_too (LIKE keyed INCLUDING ALL);
CREATE TABLE whole (a text, b text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE whole_unique (a text, b text UNIQUE);
ALTER TABLE whole_unique REPLICA IDENTITY FULL;
CREATE TABLE by_two (a int NOT NULL, b int NOT NULL, c text, UNIQUE (a, b));
ALTER TABLE by_two REPLICA IDENTITY USING INDEX by_two_a_b_key;
CREATE TABLE nothing (a text);
CREATE TABLE strange (id int PRIMARY KEY, a text, b text);
CREATE UNIQUE INDEX ON strange (lower(a));
CREATE UNIQUE INDEX ON strange (b) WHERE a IS NOT NULL;
CREATE TABLE wide (id int PRIMARY KEY, a text);
DO $$ BEGIN FOR i IN 1 .. 20 LOOP CREATE UNIQUE INDEX ON wide (a); END LOOP; END $$;

-- One hash for each key that the row has, and the same ones each time.
WITH k AS (SELECT selftest_row_keys('keyed', ins(tup('1', 'a', 'b', 'c', 'x'))) AS h)
SELECT cardinality(h) AS hashes, cardinality(array(SELECT DISTINCT unnest(h))) AS different,
       h = selftest_row_keys('keyed', ins(tup('1', 'a', 'b', 'c', 'other'))) AS same_keys,
       h && selftest_row_keys('keyed', ins(tup('2', 'A', 'b', 'C', 'x'))) AS other_row,
       h && selftest_row_keys('keyed_too', ins(tup('1', 'a', 'b', 'c', 'x'))) AS other_table
  FROM k;

-- Each key counts for itself.
WITH k AS (SELECT selftest_row_keys('keyed', ins(tup('1', 'a', 'b', 'c', 'x'))) AS h)
SELECT h && selftest_row_keys('keyed', ins(tup('1', 'A', 'B', 'C', 'X'))) AS same_id,
       h && selftest_row_keys('keyed', ins(tup('2', 'a', 'B', 'C', 'X'))) AS same_u1,
       h && selftest_row_keys('keyed', ins(tup('2', 'A', 'b', 'c', 'X'))) AS same_u2_u3,
       h && selftest_row_keys('keyed', ins(tup('2', 'A', 'bc', '', 'X'))) AS shifted,
       h && selftest_row_keys('keyed', ins(tup('a', '1', 'c', 'b', 'X'))) AS swapped
  FROM k;

-- A unique key with NULL does not exist; NULL is no empty string.
SELECT cardinality(selftest_row_keys('keyed', ins(tup('1', NULL, 'b', 'c', 'x')))) AS without_u1,
       cardinality(selftest_row_keys('keyed', ins(tup('1', NULL, 'b', NULL, 'x')))) AS only_id,
       cardinality(selftest_row_keys('keyed', ins(tup('1', '', '', '', 'x')))) AS empty_strings,
       selftest_row_keys('whole', ins(tup(NULL, 'x')))
           = selftest_row_keys('whole', ins(tup('', 'x'))) AS null_is_empty,
       selftest_row_keys('whole', ins(tup(NULL, 'x')))
           = selftest_row_keys('whole', ins(tup('x', NULL))) AS null_elsewhere,
       selftest_row_keys('whole', ins(tup(NULL, 'x')))
           = selftest_row_keys('whole', ins(tup(NULL, 'x'))) AS null_is_null;

-- An update touches its old key and its new one; of other unique keys the old
-- value is not known.
WITH k AS (SELECT selftest_row_keys('keyed', upd(tup('1', NULL, NULL, NULL, NULL),
                                                 tup('2', 'a', 'b', 'c', 'x'))) AS h)
SELECT cardinality(h) AS hashes,
       h && selftest_row_keys('keyed', del(tup('1', NULL, NULL, NULL, NULL))) AS old_id,
       h @> selftest_row_keys('keyed', ins(tup('2', 'a', 'b', 'c', 'y'))) AS new_row
  FROM k;
SELECT selftest_row_keys('keyed', upd(NULL, tup('2', 'a', 'b', 'c', 'x')))
           = selftest_row_keys('keyed', ins(tup('2', 'a', 'b', 'c', 'x'))) AS key_unchanged,
       cardinality(selftest_row_keys('keyed', del(tup('1', NULL, NULL, NULL, NULL)))) AS of_delete;

-- FULL: the whole row is the key, and old values of unique keys are known.
WITH k AS (SELECT selftest_row_keys('whole_unique', upd(tup('1', 'x'), tup('1', 'y'), 'O')) AS h)
SELECT cardinality(h) AS hashes,
       h @> selftest_row_keys('whole_unique', del(tup('1', 'x'), 'O')) AS old_row,
       h @> selftest_row_keys('whole_unique', ins(tup('1', 'y'))) AS new_row,
       h && selftest_row_keys('whole_unique', ins(tup('2', 'x'))) AS old_unique,
       h && selftest_row_keys('whole_unique', ins(tup('2', 'z'))) AS other_row
  FROM k;

-- Unchanged TOAST comes from the old tuple; for the identity, what is nowhere
-- makes the keys incomplete (-1); another key is passed over.
SELECT selftest_row_keys('whole', upd(tup('1', 'big'), tup('2', '<toast>'), 'O'))
           = selftest_row_keys('whole', upd(tup('1', 'big'), tup('2', 'big'), 'O')) AS from_old,
       selftest_row_keys('whole', upd(NULL, tup('2', '<toast>'))) AS nowhere,
       (selftest_row_keys('whole', upd(tup('1', '<toast>'), tup('2', '<toast>'), 'O')))[1] AS nowhere_either,
       cardinality(selftest_row_keys('keyed', upd(NULL, tup('1', '<toast>', 'b', 'c', '<toast>')))) AS without_u1,
       (selftest_row_keys('keyed', upd(NULL, tup('<toast>', 'a', 'b', 'c', 'x'))))[1] AS no_identity;
-- Too few columns are no reason to read what is not there.
SELECT selftest_row_keys('by_two', ins(tup('1'))) AS too_few;

-- The identity is not hashed twice, and one over an index other than the
-- primary key counts as well.
SELECT cardinality(selftest_row_keys('by_two', ins(tup('1', '2', 'x')))) AS hashes,
       selftest_row_keys('by_two', ins(tup('1', '2', 'x')))
           = selftest_row_keys('by_two', ins(tup('1', '2', 'y'))) AS same,
       selftest_row_keys('by_two', ins(tup('1', '2', 'x')))
           = selftest_row_keys('by_two', ins(tup('12', '', 'x'))) AS shifted;

-- Without an identity a table gets inserts only, which touch no other row;
-- expression and partial indexes are not tracked; and not more than 15.
SELECT selftest_row_keys('nothing', ins(tup('1'))) AS nothing,
       cardinality(selftest_row_keys('strange', ins(tup('1', 'a', 'b')))) AS strange,
       cardinality(selftest_row_keys('wide', ins(tup('1', 'a')))) AS wide;

--
-- queue
--

-- More calls than there are pools: each gives its place back.
SELECT seed, selftest_queue(seed, 64, 300) FROM generate_series(1, 5) AS seed;
SELECT selftest_queue(6, 256, 300);
-- One transaction of many times the ring's size, and some that are left to the leader or exclusive.
SELECT selftest_queue_oversize();

--
-- commit order
--

-- Nothing is committed any more when the receiver has ended.
SELECT selftest_gate();

-- Who waits for the next commit watches for it before it sleeps, as long as that pays.
SELECT selftest_watch();

--
-- awake
--

-- No more writers are woken than can make anything faster, and all of them are
-- when that would hold something up.
SELECT selftest_awake();

--
-- exclusive
--

-- What must not be applied alongside an exclusive transaction, and what may.
SELECT selftest_exclusive();

--
-- feedback
--

-- Nothing is confirmed that is not flushed; and where commits are to be flushed,
-- nothing is applied before it is, on standbys as well.  Positions never go back:
-- a session for each.
\c -
SET synchronous_commit = off;
SELECT selftest_feedback(false, false);
\c -
SET synchronous_commit = off;
SELECT selftest_feedback(true, false);
\c -
SELECT selftest_feedback(false, false);
\c -
SELECT selftest_feedback(true, false);
\c -
SELECT selftest_feedback(true, true);

-- Nor what PostgreSQL's own apply is about to apply.
SELECT selftest_idle();

-- One that has read for long does not apply by itself.
SELECT selftest_leader_policy();
SELECT selftest_rates();

-- Where the receiver sleeps, until when, and which commit wakes it.
SELECT selftest_sleep();

-- Pauses in reading: long where the buffers hold much, about as long as it takes the
-- publisher to fill them where they hold less, and none when it has caught up.  Its clock
-- does not matter.  The publisher sends a message each 10 us.
SELECT skew_s, selftest_pace(100000, 100000000, 10000, skew_s) AS much,
    selftest_pace(1000, 100000000, 10000, skew_s) BETWEEN 8000 AND 21000 AS ten_ms,
    selftest_pace(100, 100000000, 10000, skew_s) BETWEEN 800 AND 2100 AS one_ms,
    selftest_pace(10, 100000000, 10000, skew_s) AS little,
    selftest_pace(1000, 100000000, 10000, skew_s, 100) BETWEEN 800 AND 2100 AS smaller_later
FROM unnest('{0,3600,-3600}'::int[]) skew_s;
SELECT selftest_pace(100000, 1000, 10000, 0) AS caught_up,
    selftest_pace(100000, 100000000, 20, 0) AS nearly,
    selftest_pace(100000, 100000000, 0, 0) AS keeps_up;
-- The window follows the round trip, or is left to the kernel.
SELECT selftest_pace_window(100, 50, 150) AS cable, selftest_pace_window(1000, 50, 150) AS building,
    selftest_pace_window(25000, 50, 150) AS far, selftest_pace_window(25000, 1, 150) AS far_at_first,
    selftest_pace_window(100, 50, 1448) AS coalesced;

-- A status message of another form would be one of another server, as would an apply loop
-- that knows more positions than it is given.
\c -
SELECT selftest_status('r', 34) AS status, selftest_status('p', 19) AS other;
SELECT selftest_status('r', 33);
SELECT selftest_status('r', 42);
SELECT selftest_status('r', 34, 1);

-- Commands of walsenders: only one that omits all origins, read to its end.
\c -
CREATE TEMP TABLE commands (n serial, omits boolean, command text);
INSERT INTO commands(omits, command) VALUES
    (true, $$START_REPLICATION SLOT "s" LOGICAL 0/16B3748 (proto_version '4', streaming 'parallel', origin 'none', publication_names '"p","q"', binary 'true')$$),
    (true, $$START_REPLICATION SLOT s LOGICAL A/0("proto_version" '1',"publication_names"'p',"origin"'NONE' ) ; $$),
    (true, $$ START_REPLICATION SLOT S LOGICAL 0/0 (Origin 'none')$$),
    (true, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none', publication_names '"it''s","a)b"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '4', origin 'any', publication_names '"p"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '4', publication_names '"p"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (publication_names '", origin ''none''"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (publication_names '"p'', origin ''none"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'any', publication_names '"p"", origin ''none'', x"')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 ("origin 'none'" 'x', "a"", origin 'none'" 'b')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 ("ORIGIN" 'none')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none''')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none', publication_names '"p"$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none', publication_names '"p"'$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none', )$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none') x$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 (origin)$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0 ()$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0/0$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL 0 (origin 'none')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICAL / (origin 'none')$$),
    (false, $$START_REPLICATION SLOT "t" LOGICAL 0/0 (origin 'none')$$),
    (false, $$START_REPLICATION SLOT "s LOGICAL 0/0 (origin 'none')$$),
    (false, $$START_REPLICATION SLOT "s" LOGICALLY 0/0 (origin 'none')$$),
    (false, $$START_REPLICATIONS SLOT "s" LOGICAL 0/0 (origin 'none')$$),
    (false, $$START_REPLICATION SLOTs LOGICAL 0/0 (origin 'none')$$),
    (false, $$START_REPLICATION SLOT "s" PHYSICAL 0/0 (origin 'none')$$),
    (false, $$CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (origin 'none')$$),
    (false, $$SELECT 1 /* START_REPLICATION SLOT "s" LOGICAL 0/0 (origin 'none') */$$),
    (false, 'START_REPLICATION'), (false, '');
SELECT command FROM commands WHERE selftest_omits_origins(command, 's') <> omits ORDER BY n;
-- Nor a part of one.
SELECT left(command, length) FROM commands, generate_series(0, length(command) - 1) length
WHERE omits AND selftest_omits_origins(left(command, length), 's')
    AND left(command, length) !~ '[);]\s*$';

DROP TABLE keyed, keyed_too, whole, whole_unique, by_two, nothing, strange, wide;
DROP FUNCTION selftest_watch, selftest_awake, selftest_dependency, selftest_exclusive, selftest_feedback, selftest_gate,
    selftest_idle, selftest_leader_policy, selftest_message, selftest_mutate, selftest_omits_origins, selftest_pace, selftest_pace_window, selftest_prepared, selftest_queue, selftest_queue_oversize,
    selftest_rates, selftest_registry, selftest_row_keys, selftest_sleep, selftest_status, tup, ins, upd, del;
