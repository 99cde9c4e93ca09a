/* complain if script is sourced in psql, rather than via CREATE EXTENSION */
\echo Use "CREATE EXTENSION parallel_apply" to load this file. \quit

CREATE SCHEMA parallel_apply;
COMMENT ON SCHEMA parallel_apply IS
    'objects of the extension parallel_apply';

CREATE FUNCTION parallel_apply.writers(
    OUT subid oid,
    OUT writer integer,
    OUT pid integer,
    OUT state text,
    OUT remote_xid xid,
    OUT remote_lsn pg_lsn,
    OUT transactions bigint,
    OUT rows bigint,
    OUT prefetched bigint,
    OUT native_replays bigint,
    OUT retries bigint,
    OUT older_wins bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_writers';

COMMENT ON FUNCTION parallel_apply.writers() IS
    'processes that apply the subscriptions of this database';

CREATE VIEW parallel_apply.writers AS
    SELECT w.subid, s.subname, w.writer, w.pid, w.state, w.remote_xid,
           w.remote_lsn, w.transactions, w.rows, w.prefetched, w.native_replays,
           w.retries, w.older_wins
      FROM parallel_apply.writers() AS w
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) w.subid;

COMMENT ON VIEW parallel_apply.writers IS
    'processes that apply the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.writers.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.writers.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.writers.writer IS 'number of the writer, from 1';
COMMENT ON COLUMN parallel_apply.writers.pid IS 'process ID of the writer';
COMMENT ON COLUMN parallel_apply.writers.state IS
    'what the writer does: starting, idle, applying, or what it waits for';
COMMENT ON COLUMN parallel_apply.writers.remote_xid IS
    'transaction ID, on the publisher, of the transaction that it works on';
COMMENT ON COLUMN parallel_apply.writers.remote_lsn IS
    'position of that transaction''s commit in the publisher''s WAL';
COMMENT ON COLUMN parallel_apply.writers.transactions IS
    'remote transactions that the writer has committed';
COMMENT ON COLUMN parallel_apply.writers.rows IS
    'changed rows in these transactions';
COMMENT ON COLUMN parallel_apply.writers.prefetched IS
    'pages that storage was asked for ahead of their change';
COMMENT ON COLUMN parallel_apply.writers.native_replays IS
    'transactions that it gave to PostgreSQL''s own apply after a second failure';
COMMENT ON COLUMN parallel_apply.writers.retries IS
    'second attempts, after all older transactions were committed';
COMMENT ON COLUMN parallel_apply.writers.older_wins IS
    'roll-backs because the oldest transaction waited for a lock of this one';

CREATE FUNCTION parallel_apply.tables(
    OUT subid oid,
    OUT relation regclass,
    OUT sync_state "char",
    OUT class text,
    OUT reason text,
    OUT remedy text,
    OUT inserts bigint,
    OUT updates bigint,
    OUT deletes bigint,
    OUT waits bigint,
    OUT wait_time double precision,
    OUT missing bigint,
    OUT second_looks bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_tables';

COMMENT ON FUNCTION parallel_apply.tables() IS
    'tables that are subscribed in this database';

CREATE VIEW parallel_apply.tables AS
    SELECT t.subid, s.subname, t.relation,
           CASE t.sync_state
                WHEN 'i' THEN 'initialize' WHEN 'd' THEN 'copying'
                WHEN 'f' THEN 'copied' WHEN 's' THEN 'synchronized'
                WHEN 'r' THEN 'ready' ELSE t.sync_state::pg_catalog.text
           END AS sync_state,
           t.class, t.reason, t.remedy, t.inserts, t.updates, t.deletes, t.waits,
           t.wait_time, t.missing, t.second_looks
      FROM parallel_apply.tables() AS t
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) t.subid;

COMMENT ON VIEW parallel_apply.tables IS
    'tables that are subscribed in this database: how they are applied, and why';
COMMENT ON COLUMN parallel_apply.tables.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.tables.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.tables.relation IS 'the table';
COMMENT ON COLUMN parallel_apply.tables.sync_state IS
    'how far its first synchronization is: initialize, copying, copied, synchronized, ready';
COMMENT ON COLUMN parallel_apply.tables.class IS
    'how its changes are applied: parallel, serial (by a writer, alone) or native (by PostgreSQL itself)';
COMMENT ON COLUMN parallel_apply.tables.reason IS
    'why it is not parallel, and what else makes its changes slow';
COMMENT ON COLUMN parallel_apply.tables.remedy IS
    'what to do about each of the reasons';
COMMENT ON COLUMN parallel_apply.tables.inserts IS
    'rows inserted by writers, in transactions that are committed';
COMMENT ON COLUMN parallel_apply.tables.updates IS 'rows updated, likewise';
COMMENT ON COLUMN parallel_apply.tables.deletes IS 'rows deleted, likewise';
COMMENT ON COLUMN parallel_apply.tables.waits IS
    'times that a change waited for an older transaction that changed the same row';
COMMENT ON COLUMN parallel_apply.tables.wait_time IS
    'total time of these waits, in milliseconds';
COMMENT ON COLUMN parallel_apply.tables.missing IS
    'rows to update or delete that were not there';
COMMENT ON COLUMN parallel_apply.tables.second_looks IS
    'rows that were not there at first, and looked for again after all older transactions';

CREATE VIEW parallel_apply.table_options AS
    SELECT objoid::pg_catalog.regclass AS relation,
           pg_catalog.split_part(label, '=', 1) AS option,
           pg_catalog.split_part(label, '=', 2) AS value
      FROM pg_catalog.pg_seclabel
     WHERE provider OPERATOR(pg_catalog.=) 'parallel_apply'
       AND classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass;

COMMENT ON VIEW parallel_apply.table_options IS
    'what is declared about tables';
COMMENT ON COLUMN parallel_apply.table_options.relation IS 'the table';
COMMENT ON COLUMN parallel_apply.table_options.option IS 'name of the option';
COMMENT ON COLUMN parallel_apply.table_options.value IS 'its value';

CREATE FUNCTION parallel_apply.set_table_option("table" regclass, option text, value text)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_set_table_option';

COMMENT ON FUNCTION parallel_apply.set_table_option(regclass, text, text) IS
    'declares how changes of a table may be applied';

REVOKE ALL ON parallel_apply.table_options FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.set_table_option(regclass, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.writers() FROM PUBLIC;
REVOKE ALL ON parallel_apply.writers FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.tables() FROM PUBLIC;
REVOKE ALL ON parallel_apply.tables FROM PUBLIC;
GRANT USAGE ON SCHEMA parallel_apply TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.writers() TO pg_monitor;
GRANT SELECT ON parallel_apply.writers TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.tables() TO pg_monitor;
GRANT SELECT ON parallel_apply.tables TO pg_monitor;
GRANT SELECT ON parallel_apply.table_options TO pg_monitor;
