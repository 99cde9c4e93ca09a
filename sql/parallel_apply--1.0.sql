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
GRANT USAGE ON SCHEMA parallel_apply TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.writers() TO pg_monitor;
GRANT SELECT ON parallel_apply.writers TO pg_monitor;
GRANT SELECT ON parallel_apply.table_options TO pg_monitor;
