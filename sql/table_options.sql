-- What users declare about tables: set_table_option() and SECURITY LABEL.

CREATE EXTENSION parallel_apply;
CREATE TABLE items (id int PRIMARY KEY);
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE VIEW view AS SELECT 1 AS id;

-- Only what is not the default is stored, once for each table.
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;
SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
SELECT parallel_apply.set_table_option('parts', 'triggers', 'parallel');
SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
SELECT parallel_apply.set_table_option('other', 'triggers', 'exclusive');
SELECT schemaname, relname, option, value FROM parallel_apply.table_options ORDER BY relname;
SELECT parallel_apply.set_table_option('items', 'triggers', 'exclusive');
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;

-- It is part of the transaction.
BEGIN;
SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'items'::regclass;
ROLLBACK;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;
BEGIN READ ONLY;
SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
ROLLBACK;

-- Several times by one statement.
SELECT parallel_apply.set_table_option('items', 'triggers', value)
  FROM (VALUES (1, 'parallel'), (2, 'exclusive'), (3, 'parallel')) v(n, value) ORDER BY n;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options ORDER BY relname;

-- A savepoint after one that changes nothing.
BEGIN;
SELECT parallel_apply.set_table_option('other', 'triggers', 'exclusive');
SAVEPOINT s;
SELECT parallel_apply.set_table_option('other', 'triggers', 'exclusive');
ROLLBACK;

-- It follows the table, and goes with it.
ALTER TABLE parts RENAME TO pieces;
SELECT parallel_apply.set_table_option('pieces', 'triggers', 'parallel');
SELECT schemaname, relname, option, value FROM parallel_apply.table_options ORDER BY relname;
DROP TABLE pieces;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;

-- It is a security label, which can be set as well.
SELECT objtype, objname, label FROM pg_seclabels WHERE provider = 'parallel_apply';
SECURITY LABEL FOR parallel_apply ON TABLE other IS 'triggers=parallel';
SECURITY LABEL FOR parallel_apply ON TABLE items IS 'triggers=exclusive';
SELECT schemaname, relname, option, value FROM parallel_apply.table_options ORDER BY relname;
SECURITY LABEL FOR parallel_apply ON TABLE items IS NULL;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;
SELECT parallel_apply.set_table_option('other', 'triggers', 'exclusive');
BEGIN;
SECURITY LABEL FOR parallel_apply ON TABLE items IS 'triggers=parallel';
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'items'::regclass
 ORDER BY mode;
ROLLBACK;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;
SECURITY LABEL FOR parallel_apply ON TABLE items IS 'parallel';
\echo :LAST_ERROR_SQLSTATE
SECURITY LABEL FOR parallel_apply ON TABLE items IS 'triggers=parallel ';
SECURITY LABEL FOR parallel_apply ON TABLE pg_class IS 'triggers=parallel';
\echo :LAST_ERROR_SQLSTATE
SECURITY LABEL FOR parallel_apply ON VIEW view IS 'triggers=parallel';
\echo :LAST_ERROR_SQLSTATE
SECURITY LABEL FOR parallel_apply ON VIEW view IS NULL;
SECURITY LABEL FOR parallel_apply ON COLUMN items.id IS 'triggers=parallel';
\echo :LAST_ERROR_SQLSTATE
SECURITY LABEL FOR parallel_apply ON SCHEMA public IS 'triggers=parallel';
SECURITY LABEL FOR parallel_apply ON SCHEMA public IS NULL;
SECURITY LABEL FOR parallel_apply ON ROLE pg_monitor IS 'triggers=parallel';
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;

-- Misuse.
SELECT parallel_apply.set_table_option('items', 'trigger', 'parallel');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('items', 'triggers', 'yes');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('items', 'triggers', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('items', NULL, 'exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option(NULL, 'triggers', 'exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('nothing', 'triggers', 'exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option(1, 'triggers', 'exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('view', 'triggers', 'exclusive');
\echo :LAST_ERROR_SQLSTATE
SELECT parallel_apply.set_table_option('pg_class', 'triggers', 'exclusive');
\echo :LAST_ERROR_SQLSTATE

-- The owner of a table may; other users may not.
CREATE ROLE regress_papply_owner;
GRANT CREATE ON SCHEMA public TO regress_papply_owner;
SET ROLE regress_papply_owner;
CREATE TABLE mine (id int PRIMARY KEY);
SELECT parallel_apply.set_table_option('mine', 'triggers', 'parallel');
SELECT parallel_apply.set_table_option('items', 'triggers', 'parallel');
SECURITY LABEL FOR parallel_apply ON TABLE items IS 'triggers=parallel';
SELECT schemaname, relname, option, value FROM parallel_apply.table_options;
SECURITY LABEL FOR parallel_apply ON TABLE mine IS NULL;
SECURITY LABEL FOR parallel_apply ON TABLE mine IS 'triggers=parallel';
RESET ROLE;
SELECT schemaname, relname, option, value FROM parallel_apply.table_options ORDER BY relname;

DROP TABLE items, other, mine;
DROP VIEW view;
REVOKE ALL ON SCHEMA public FROM regress_papply_owner;
DROP EXTENSION parallel_apply;
DROP ROLE regress_papply_owner;
