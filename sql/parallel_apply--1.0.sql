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

-- A group is a server of this wrapper, whose handler would read no table: it is
-- dumped and restored as such, and never replicated.
CREATE FUNCTION parallel_apply.group_validator(options text[], catalog oid)
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_group_validator';

COMMENT ON FUNCTION parallel_apply.group_validator(text[], oid) IS
    'checks options of a group; called by the server';

CREATE FOREIGN DATA WRAPPER parallel_apply
    NO HANDLER VALIDATOR parallel_apply.group_validator;

COMMENT ON FOREIGN DATA WRAPPER parallel_apply IS
    'what groups of subscriptions are kept as';

CREATE VIEW parallel_apply.groups AS
    SELECT pg_catalog.substr(s.srvname::pg_catalog.text, 16)::pg_catalog.name AS group_name,
           (SELECT o.option_value::pg_catalog.int4
              FROM pg_catalog.pg_options_to_table(s.srvoptions) AS o
             WHERE o.option_name OPERATOR(pg_catalog.=) 'num_writers') AS num_writers
      FROM pg_catalog.pg_foreign_server AS s
      JOIN pg_catalog.pg_foreign_data_wrapper AS w ON w.oid OPERATOR(pg_catalog.=) s.srvfdw
     WHERE w.fdwname OPERATOR(pg_catalog.=) 'parallel_apply'
       AND pg_catalog.starts_with(s.srvname::pg_catalog.text, 'parallel_apply_');

COMMENT ON VIEW parallel_apply.groups IS
    'groups of subscriptions';
COMMENT ON COLUMN parallel_apply.groups.group_name IS 'name of the group';
COMMENT ON COLUMN parallel_apply.groups.num_writers IS
    'number of writers that its subscriptions shall have; null: that of the setting';

CREATE FUNCTION parallel_apply.create_group(group_name name, num_writers integer DEFAULT NULL)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_create_group';

COMMENT ON FUNCTION parallel_apply.create_group(name, integer) IS
    'creates a group of subscriptions';

CREATE FUNCTION parallel_apply.drop_group(group_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_drop_group';

COMMENT ON FUNCTION parallel_apply.drop_group(name) IS
    'drops a group without subscriptions';

CREATE FUNCTION parallel_apply.alter_group_config(group_name name, num_writers integer)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_alter_group_config';

COMMENT ON FUNCTION parallel_apply.alter_group_config(name, integer) IS
    'sets the number of writers of a group''s subscriptions';

CREATE FUNCTION parallel_apply.add_subscription(group_name name, subscription_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_add_subscription';

COMMENT ON FUNCTION parallel_apply.add_subscription(name, name) IS
    'makes a subscription a member of a group';

CREATE FUNCTION parallel_apply.remove_subscription(group_name name, subscription_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_remove_subscription';

COMMENT ON FUNCTION parallel_apply.remove_subscription(name, name) IS
    'removes a subscription from its group';

CREATE FUNCTION parallel_apply.alter_subscription_config(subscription_name name, num_writers integer)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_alter_subscription_config';

COMMENT ON FUNCTION parallel_apply.alter_subscription_config(name, integer) IS
    'sets the number of writers of a subscription';

CREATE FUNCTION parallel_apply.subscription_options(
    subid oid,
    OUT group_name name,
    OUT num_writers integer,
    OUT effective_writers integer,
    OUT source text,
    OUT paused boolean
)
RETURNS record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_subscription_options';

COMMENT ON FUNCTION parallel_apply.subscription_options(oid) IS
    'configuration of a subscription of this database';

CREATE VIEW parallel_apply.subscription_config AS
    SELECT s.oid AS subid, s.subname, o.group_name, o.num_writers, o.effective_writers,
           o.source, o.paused
      FROM pg_catalog.pg_subscription AS s,
           LATERAL parallel_apply.subscription_options(s.oid) AS o
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

COMMENT ON VIEW parallel_apply.subscription_config IS
    'configuration of the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.subscription_config.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_config.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_config.group_name IS
    'group that it is in, or null';
COMMENT ON COLUMN parallel_apply.subscription_config.num_writers IS
    'number of writers configured for the subscription itself, or null';
COMMENT ON COLUMN parallel_apply.subscription_config.effective_writers IS
    'number of writers that it shall have; 1 is PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscription_config.source IS
    'where that number comes from, before its limit: subscription, group, or setting';
COMMENT ON COLUMN parallel_apply.subscription_config.paused IS
    'is nothing applied until resume()?';

REVOKE ALL ON FUNCTION parallel_apply.group_validator(text[], oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.create_group(name, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.drop_group(name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.alter_group_config(name, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.add_subscription(name, name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.remove_subscription(name, name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.alter_subscription_config(name, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.subscription_options(oid) FROM PUBLIC;
REVOKE ALL ON parallel_apply.groups FROM PUBLIC;
REVOKE ALL ON parallel_apply.subscription_config FROM PUBLIC;
GRANT EXECUTE ON FUNCTION parallel_apply.subscription_options(oid) TO pg_monitor;
GRANT SELECT ON parallel_apply.groups TO pg_monitor;
GRANT SELECT ON parallel_apply.subscription_config TO pg_monitor;

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
