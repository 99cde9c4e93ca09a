-- Installation: what the extension brings, who may use it, and that it goes
-- without a trace.

CREATE EXTENSION parallel_apply SCHEMA public;
CREATE EXTENSION parallel_apply;
SELECT e.extname, e.extversion, n.nspname, e.extrelocatable,
       obj_description(e.oid, 'pg_extension') AS description
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'parallel_apply';

-- Its objects have a schema of their own, which goes with it; it cannot be moved.
ALTER EXTENSION parallel_apply SET SCHEMA public;

-- Every object, with its comment.
\pset format unaligned
SELECT kind, name, comment FROM (
    SELECT 1, 'schema', nspname::text, obj_description(oid, 'pg_namespace')
      FROM pg_namespace WHERE nspname = 'parallel_apply'
    UNION ALL
    SELECT 2, 'function', oid::regprocedure::text, obj_description(oid, 'pg_proc')
      FROM pg_proc WHERE pronamespace = 'parallel_apply'::regnamespace
    UNION ALL
    SELECT 3, CASE relkind WHEN 'v' THEN 'view' WHEN 'r' THEN 'table' ELSE relkind::text END,
           oid::regclass::text, obj_description(oid, 'pg_class')
      FROM pg_class WHERE relnamespace = 'parallel_apply'::regnamespace AND relkind <> 'i'
    UNION ALL
    SELECT 4, 'foreign-data wrapper', fdwname, obj_description(oid, 'pg_foreign_data_wrapper')
      FROM pg_foreign_data_wrapper WHERE fdwname = 'parallel_apply'
    ) AS objects(sort, kind, name, comment)
 ORDER BY sort, name;
SELECT a.attrelid::regclass AS relation, a.attname, format_type(a.atttypid, a.atttypmod) AS type,
       col_description(a.attrelid, a.attnum) AS comment
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'parallel_apply'::regnamespace AND c.relkind <> 'i' AND a.attnum > 0
 ORDER BY a.attrelid, a.attnum;
\pset format aligned

-- All of them belong to the extension.
SELECT p.oid::regprocedure::text AS stranger FROM pg_proc p
 WHERE pronamespace = 'parallel_apply'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
UNION ALL
SELECT c.oid::regclass::text FROM pg_class c
 WHERE relnamespace = 'parallel_apply'::regnamespace AND relkind <> 'i' AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e');

-- Functions say how they behave.
SELECT oid::regprocedure AS function, proisstrict, provolatile, proparallel, prosecdef
  FROM pg_proc WHERE pronamespace = 'parallel_apply'::regnamespace ORDER BY oid::regprocedure::text;

-- A server without subscriptions has no writers.
SELECT count(*) FROM parallel_apply.writers;

-- PUBLIC may look, and sees what it owns; pg_monitor sees all.
CREATE ROLE regress_papply_nobody;
CREATE ROLE regress_papply_monitor IN ROLE pg_monitor;
SET ROLE regress_papply_nobody;
SELECT count(*) FROM parallel_apply.writers;
SELECT count(*) FROM parallel_apply.get_writers();
SET ROLE regress_papply_monitor;
SELECT count(*) FROM parallel_apply.writers;
SELECT count(*) FROM parallel_apply.get_writers();
SELECT count(*) FROM parallel_apply.table_options;
SELECT parallel_apply.set_table_option('pg_class', 'triggers', 'exclusive');
DROP VIEW parallel_apply.writers;
CREATE VIEW parallel_apply.mine AS SELECT 1;
RESET ROLE;
SELECT r.rolname,
       has_schema_privilege(r.oid, 'parallel_apply', 'USAGE') AS usage,
       has_schema_privilege(r.oid, 'parallel_apply', 'CREATE') AS "create",
       has_function_privilege(r.oid, 'parallel_apply.get_writers()', 'EXECUTE') AS execute,
       has_table_privilege(r.oid, 'parallel_apply.writers', 'SELECT') AS "select",
       has_table_privilege(r.oid, 'parallel_apply.writers', 'INSERT, UPDATE, DELETE') AS change
  FROM pg_roles r WHERE r.rolname LIKE 'regress\_papply\_%' ORDER BY r.rolname;

-- Nothing of it is published, not even by a publication of all tables.
CREATE PUBLICATION regress_papply_all FOR ALL TABLES;
SELECT count(*) FROM pg_publication_tables;
DROP PUBLICATION regress_papply_all;

-- Only a superuser creates it.
DROP EXTENSION parallel_apply;
SET ROLE regress_papply_monitor;
CREATE EXTENSION parallel_apply;
RESET ROLE;
DROP ROLE regress_papply_nobody, regress_papply_monitor;

-- Nothing is left, and it can come back.
SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'parallel%';
SELECT count(*) FROM pg_proc WHERE probin LIKE '%parallel_apply%';
SELECT count(*) FROM pg_class WHERE relname LIKE '%writers%';
SELECT count(*) FROM pg_foreign_data_wrapper WHERE fdwname LIKE 'parallel%';
CREATE EXTENSION parallel_apply;
DROP EXTENSION parallel_apply;
