-- What is configured, as calls that restore it on another server.
CREATE EXTENSION parallel_apply;
SELECT * FROM parallel_apply.export_config();

SET client_min_messages = error;
CREATE SUBSCRIPTION one CONNECTION 'host=nowhere' PUBLICATION nothing
    WITH (connect = false, slot_name = NONE);
CREATE SUBSCRIPTION "Two's" CONNECTION 'host=nowhere' PUBLICATION nothing
    WITH (connect = false, slot_name = NONE);
RESET client_min_messages;
CREATE TABLE "It's" (id int PRIMARY KEY);
SELECT parallel_apply.create_group('reporting', 6);
SELECT parallel_apply.create_group('a, "b"''c', NULL);
SELECT parallel_apply.add_subscription('reporting', 'one');
SELECT parallel_apply.alter_subscription_config('Two''s', 3);
SELECT parallel_apply.add_subscription('a, "b"''c', 'Two''s');
SELECT parallel_apply.pause('Two''s');
SELECT parallel_apply.set_table_option('"It''s"', 'triggers', 'parallel');
SELECT * FROM parallel_apply.export_config();
CREATE TABLE saved AS
    SELECT * FROM parallel_apply.export_config() WITH ORDINALITY AS c(call, n);

-- The other server: nothing is configured there.
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION one IS NULL;
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION "Two's" IS NULL;
SECURITY LABEL FOR parallel_apply ON TABLE "It's" IS NULL;
SET client_min_messages = warning;
DROP EXTENSION parallel_apply CASCADE;
CREATE EXTENSION parallel_apply;
RESET client_min_messages;
SELECT * FROM parallel_apply.export_config();

-- The calls restore it.
\o /dev/null
SELECT call FROM saved ORDER BY n \gexec
\o
SELECT s.call, c.call FROM saved AS s
  FULL JOIN parallel_apply.export_config() WITH ORDINALITY AS c(call, n) USING (n)
 WHERE s.call IS DISTINCT FROM c.call;
SELECT subname, group_name, num_writers, writers_wanted, source, paused
  FROM parallel_apply.subscription_config ORDER BY subname;

-- A group that does not exist has no effect, and would be an error there.
SECURITY LABEL FOR parallel_apply ON SUBSCRIPTION one IS 'group=gone';
SELECT * FROM parallel_apply.export_config() WHERE export_config LIKE '%one%';

-- pg_monitor may read it.
CREATE ROLE regress_papply_monitor IN ROLE pg_monitor;
CREATE ROLE regress_papply_nobody;
SET ROLE regress_papply_monitor;
SELECT count(*) FROM parallel_apply.export_config();
SET ROLE regress_papply_nobody;
SELECT count(*) FROM parallel_apply.export_config();
RESET ROLE;

DROP SUBSCRIPTION one;
DROP SUBSCRIPTION "Two's";
DROP TABLE "It's", saved;
DROP ROLE regress_papply_monitor, regress_papply_nobody;
SET client_min_messages = warning;
DROP EXTENSION parallel_apply CASCADE;
