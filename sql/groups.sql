-- Configuration of groups and subscriptions: functions, rights, errors.
-- The subscriptions have no publisher; that apply workers follow is for TAP.

CREATE EXTENSION parallel_apply;
SET client_min_messages = error;
CREATE SUBSCRIPTION one CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE);
CREATE SUBSCRIPTION two CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE);
RESET client_min_messages;
CREATE VIEW config AS
    SELECT subname, group_name, num_writers, writers_wanted, source, paused
      FROM parallel_apply.subscription_config ORDER BY subname;
CREATE VIEW groups AS TABLE parallel_apply.groups ORDER BY group_name;

-- Nothing is configured.
TABLE config;
TABLE groups;

-- The subscription, then its group, then the setting.
SELECT parallel_apply.create_group(group_name := 'reporting', num_writers := 6);
SELECT parallel_apply.create_group('archive');
SELECT parallel_apply.add_subscription(group_name := 'reporting', subscription_name := 'one');
SELECT parallel_apply.add_subscription('archive', 'two');
TABLE groups;
TABLE config;
SELECT parallel_apply.alter_subscription_config(subscription_name := 'one', num_writers := 2);
SELECT parallel_apply.alter_subscription_config('two', 1);
TABLE config;
SELECT parallel_apply.alter_group_config(group_name := 'reporting', num_writers := 7);
SELECT parallel_apply.alter_group_config('archive', 3);
TABLE config;
SELECT parallel_apply.alter_subscription_config('one', NULL);
SELECT parallel_apply.alter_subscription_config('two', NULL);
TABLE config;
SELECT parallel_apply.alter_group_config('reporting', NULL);
SELECT parallel_apply.alter_group_config('reporting', NULL);
SELECT parallel_apply.alter_group_config('archive', 3);
TABLE config;
SELECT parallel_apply.remove_subscription(group_name := 'archive', subscription_name := 'two');
TABLE config;

-- A maximum limits all of them.
SELECT parallel_apply.alter_subscription_config('one', 9);
SELECT parallel_apply.alter_group_config('archive', 64);
SELECT parallel_apply.create_group('huge', 10);
TABLE config;
TABLE groups;
SELECT parallel_apply.drop_group('huge');

-- Several times by one statement, and nothing by one that is rolled back.
SELECT parallel_apply.alter_subscription_config('one', n) FROM generate_series(1, 3) AS n;
BEGIN;
SELECT parallel_apply.create_group('gone', 5);
SELECT parallel_apply.add_subscription('gone', 'two');
TABLE config;
SAVEPOINT s;
SELECT parallel_apply.remove_subscription('gone', 'two');
SELECT parallel_apply.alter_subscription_config('two', NULL);
SELECT parallel_apply.drop_group('gone');
SAVEPOINT t;
SELECT parallel_apply.alter_subscription_config('two', NULL);
TABLE groups;
ROLLBACK TO s;
TABLE config;
ROLLBACK;
TABLE config;
TABLE groups;
BEGIN READ ONLY;
SELECT parallel_apply.create_group('gone', 5);
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.drop_group('reporting');
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.alter_group_config('reporting', 5);
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.add_subscription('reporting', 'two');
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.remove_subscription('reporting', 'one');
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.alter_subscription_config('one', 5);
ROLLBACK;

-- It follows the subscription, and goes with it.
ALTER SUBSCRIPTION one RENAME TO uno;
TABLE config;
DROP SUBSCRIPTION uno;
SELECT count(*) FROM pg_shseclabel WHERE provider = 'parallel_apply';
SELECT parallel_apply.drop_group('reporting');
SET client_min_messages = error;
CREATE SUBSCRIPTION one CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE);
RESET client_min_messages;
TABLE config;

-- It is a security label, which can be set as well.
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION one IS 'writers=5';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'paused=off,writers=2,group=a, "b",writers=3=';
TABLE config;
-- One that is set in another way, and is not valid, has no effect.
UPDATE pg_shseclabel SET label = 'writers=6,paused=yes'
 WHERE provider = 'parallel_apply' AND objoid = (SELECT oid FROM pg_subscription WHERE subname = 'one');
SELECT subname, num_writers FROM parallel_apply.subscription_config WHERE subname = 'one';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION one IS 'writers=5';
SELECT parallel_apply.alter_subscription_config('two', 64);
SELECT objname, label FROM pg_seclabels WHERE provider = 'parallel_apply' ORDER BY objname;
SELECT parallel_apply.alter_subscription_config('one', NULL);
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS NULL;
SELECT objname, label FROM pg_seclabels WHERE provider = 'parallel_apply' ORDER BY objname;
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS '';
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=0';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=65';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=4294967297';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=+4';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=4,';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=4 ';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'writers=';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'paused=yes';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'paused=o,writers=2';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'group=';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'group=a123456789b123456789c123456789d123456789e12345678';
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION two IS 'triggers=parallel';
CREATE PUBLICATION nothing;
SECURITY LABEL FOR parallel_apply ON PUBLICATION nothing IS 'writers=4';
DROP PUBLICATION nothing;
\set VERBOSITY default
TABLE config;

-- A group is a server, which can be changed as such.
SELECT parallel_apply.create_group('a, "b"', 2);
SELECT parallel_apply.add_subscription('a, "b"', 'one');
SELECT srvname, srvoptions FROM pg_foreign_server ORDER BY srvname;
ALTER SERVER "parallel_apply_a, ""b""" OPTIONS (SET num_writers '3');
TABLE config;
ALTER SERVER "parallel_apply_a, ""b""" OPTIONS (SET num_writers '65');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER "parallel_apply_a, ""b""" OPTIONS (SET num_writers '1_0');
ALTER SERVER "parallel_apply_a, ""b""" OPTIONS (ADD host 'here');
\echo :LAST_ERROR_SQLSTATE
CREATE FOREIGN TABLE nothing (id int) SERVER "parallel_apply_a, ""b""" OPTIONS (num_writers '3');
ALTER SERVER "parallel_apply_a, ""b""" OPTIONS (DROP num_writers);
TABLE config;
DROP SERVER "parallel_apply_a, ""b""";
TABLE config;
SELECT parallel_apply.create_group('a, "b"', 5);
TABLE config;
CREATE FOREIGN DATA WRAPPER regress_papply_other;
CREATE SERVER parallel_apply_other FOREIGN DATA WRAPPER regress_papply_other OPTIONS (num_writers '3');
CREATE SERVER other FOREIGN DATA WRAPPER parallel_apply;
TABLE groups;
SELECT parallel_apply.add_subscription('other', 'two');
SELECT parallel_apply.create_group('other');
\echo :LAST_ERROR_SQLSTATE
DROP SERVER other;
DROP FOREIGN DATA WRAPPER regress_papply_other CASCADE;

-- Misuse of groups.
SELECT parallel_apply.create_group('archive', 4);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.create_group(NULL, 4);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.create_group('', 4);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.create_group('a123456789b123456789c123456789d123456789e12345678', 4);
SELECT parallel_apply.create_group('a123456789b123456789c123456789d123456789e1234567', 4);
SELECT parallel_apply.drop_group('a123456789b123456789c123456789d123456789e1234567');
SELECT parallel_apply.create_group('zero', 0);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.create_group('many', 65);
SELECT parallel_apply.alter_group_config('archive', -1);
SELECT parallel_apply.alter_group_config('nothing', 1);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.alter_group_config(NULL, 1);
SELECT parallel_apply.drop_group('nothing');
SELECT parallel_apply.drop_group(NULL);
SELECT parallel_apply.drop_group('a, "b"');
\echo :LAST_ERROR_SQLSTATE

-- Misuse of subscriptions.
SELECT parallel_apply.add_subscription('nothing', 'one');
SELECT parallel_apply.add_subscription('archive', 'nothing');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.add_subscription(NULL, 'one');
SELECT parallel_apply.add_subscription('archive', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.add_subscription('archive', 'one');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.add_subscription('a, "b"', 'one');
SELECT parallel_apply.remove_subscription('archive', 'one');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.remove_subscription('archive', 'two');
SELECT parallel_apply.remove_subscription('', 'two');
SELECT parallel_apply.remove_subscription(NULL, 'two');
SELECT parallel_apply.remove_subscription('a, "b"', 'nothing');
SELECT parallel_apply.alter_subscription_config('nothing', 1);
SELECT parallel_apply.alter_subscription_config(NULL, 1);
SELECT parallel_apply.alter_subscription_config('one', 0);
SELECT parallel_apply.alter_subscription_config('one', 65);
\echo :LAST_ERROR_SQLSTATE
TABLE config;

-- Pauses are part of the configuration, and of the transaction.
SELECT parallel_apply.pause(subscription_name := 'two');
SELECT parallel_apply.pause('two');
TABLE config;
SELECT objname, label FROM pg_seclabels WHERE provider = 'parallel_apply' ORDER BY objname;
BEGIN;
SELECT parallel_apply.resume('two');
ROLLBACK;
SELECT parallel_apply.alter_subscription_config('two', 3);
TABLE config;
SELECT parallel_apply.resume(subscription_name := 'two');
SELECT parallel_apply.alter_subscription_config('two', NULL);
TABLE config;
SELECT parallel_apply.pause('nothing');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.pause(NULL);
SELECT parallel_apply.resume('nothing');
BEGIN READ ONLY;
SELECT parallel_apply.pause('two');
ROLLBACK;
BEGIN READ ONLY;
SELECT parallel_apply.resume('two');
ROLLBACK;

-- Nothing has been received, and nothing will.
BEGIN READ ONLY;
SELECT parallel_apply.drain('two'), parallel_apply.wait_for_lsn('two', '0/0');
SELECT parallel_apply.wait_for_lsn(subscription_name := 'two', lsn := '0/1', timeout := '0');
SELECT parallel_apply.wait_for_lsn('two', '0/1', '10 ms');
COMMIT;
-- The timeout is that of the second statement only.
SET LOCAL statement_timeout = 10\; SELECT parallel_apply.wait_for_lsn('two', '0/1', '1 month');
\echo :LAST_ERROR_SQLSTATE
SET LOCAL statement_timeout = 10\; SELECT parallel_apply.wait_for_lsn('two', '0/1', '1000000 years');
SET LOCAL statement_timeout = 10\; SELECT parallel_apply.wait_for_lsn('two', '0/1');
SELECT parallel_apply.wait_for_lsn('two', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.wait_for_lsn('nothing', '0/0');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.wait_for_lsn(NULL, '0/0');
SELECT parallel_apply.wait_for_lsn('two', '0/1', '-1 ms');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.drain('nothing');
SELECT parallel_apply.drain(NULL);
SELECT parallel_apply.drain('two', '-1 day');

-- Subscriptions of another database have nothing to do with these.
CREATE DATABASE regress_papply_other;
SELECT current_database() AS here \gset
\c regress_papply_other
CREATE EXTENSION parallel_apply;
SET client_min_messages = error;
CREATE SUBSCRIPTION two CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE);
CREATE SUBSCRIPTION three CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, slot_name = NONE);
RESET client_min_messages;
TABLE parallel_apply.groups;
SELECT parallel_apply.alter_subscription_config('one', 3);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.alter_subscription_config('two', 3);
SELECT parallel_apply.create_group('archive', 2);
SELECT parallel_apply.add_subscription('archive', 'three');
SELECT subname, num_writers, group_name, writers_wanted
  FROM parallel_apply.subscription_config ORDER BY subname;
\c :here
TABLE config;
SELECT parallel_apply.drop_group('archive');

-- Who may: superusers, and the owner of a subscription.
CREATE ROLE regress_papply_owner SUPERUSER;
CREATE ROLE regress_papply_nobody;
CREATE ROLE regress_papply_monitor IN ROLE pg_monitor;
ALTER SUBSCRIPTION two OWNER TO regress_papply_owner;
ALTER ROLE regress_papply_owner NOSUPERUSER;
SET ROLE regress_papply_nobody;
TABLE parallel_apply.groups;
SELECT subname, num_writers FROM parallel_apply.subscription_config ORDER BY subname;
SET ROLE regress_papply_monitor;
TABLE parallel_apply.groups;
SELECT subname, num_writers FROM parallel_apply.subscription_config ORDER BY subname;
SELECT parallel_apply.alter_subscription_config('two', 3);
SELECT parallel_apply.create_group('mine', 3);
SELECT parallel_apply.drop_group('a, "b"');
SELECT parallel_apply.alter_group_config('a, "b"', 3);
SELECT parallel_apply.add_subscription('a, "b"', 'two');
SELECT parallel_apply.remove_subscription('a, "b"', 'two');
SELECT parallel_apply.pause('two');
SELECT parallel_apply.resume('two');
SELECT parallel_apply.drain('one'), parallel_apply.wait_for_lsn('two', '0/0');
SET ROLE regress_papply_owner;
SELECT subname, num_writers FROM parallel_apply.subscription_config ORDER BY subname;
SELECT parallel_apply.alter_subscription_config('two', 3);
SELECT parallel_apply.add_subscription('a, "b"', 'two');
SELECT parallel_apply.remove_subscription('a, "b"', 'two');
SELECT parallel_apply.alter_subscription_config('one', 3);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.pause('two'), parallel_apply.resume('two'), parallel_apply.drain('two');
SELECT parallel_apply.wait_for_lsn('two', '0/0');
SELECT parallel_apply.pause('one');
SELECT parallel_apply.resume('one');
SELECT parallel_apply.drain('one');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.wait_for_lsn('one', '0/0');
SET ROLE regress_papply_nobody;
SELECT parallel_apply.pause('two');
SELECT parallel_apply.drain('two');
SELECT parallel_apply.alter_subscription_config('two', 4);
SELECT parallel_apply.add_subscription('a, "b"', 'two');
SELECT parallel_apply.remove_subscription('a, "b"', 'one');
SELECT parallel_apply.create_group('mine', 3);
SELECT parallel_apply.alter_group_config('a, "b"', 3);
SELECT parallel_apply.drop_group('a, "b"');
RESET ROLE;
GRANT EXECUTE ON FUNCTION parallel_apply.create_group, parallel_apply.alter_group_config,
    parallel_apply.drop_group TO regress_papply_nobody;
SET ROLE regress_papply_nobody;
SELECT parallel_apply.create_group('mine', 3);
SELECT parallel_apply.alter_group_config('mine', 4);
SELECT parallel_apply.drop_group('mine');
RESET ROLE;
TABLE config;

-- The options are removed with the extension.
DROP EXTENSION parallel_apply;
\echo :LAST_ERROR_SQLSTATE
SET client_min_messages = warning;
DROP EXTENSION parallel_apply CASCADE;
RESET client_min_messages;
SELECT s.subname, l.label FROM pg_shseclabel l
  JOIN pg_subscription s ON s.oid = l.objoid AND l.classoid = 'pg_subscription'::regclass
  JOIN pg_database d ON d.oid = s.subdbid AND d.datname = current_database()
 WHERE l.provider = 'parallel_apply' ORDER BY s.subname;
CREATE EXTENSION parallel_apply;
SELECT subname, group_name, num_writers, writers_wanted, source
  FROM parallel_apply.subscription_config ORDER BY subname;
DROP SUBSCRIPTION one;
DROP SUBSCRIPTION two;
DROP EXTENSION parallel_apply;
\c regress_papply_other
DROP SUBSCRIPTION two;
DROP SUBSCRIPTION three;
\c :here
SELECT count(*) FROM pg_shseclabel WHERE provider = 'parallel_apply';
DROP DATABASE regress_papply_other;
DROP ROLE regress_papply_owner, regress_papply_nobody, regress_papply_monitor;
