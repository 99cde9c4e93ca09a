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
    OUT xact_age interval,
    OUT changes_done bigint,
    OUT changes_known bigint,
    OUT blocked_by integer[],
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
           w.remote_lsn, w.xact_age, w.changes_done, w.changes_known, w.blocked_by,
           w.transactions, w.rows, w.prefetched, w.native_replays, w.retries,
           w.older_wins
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
COMMENT ON COLUMN parallel_apply.writers.xact_age IS
    'time since it began to apply what it works on, or began anew';
COMMENT ON COLUMN parallel_apply.writers.changes_done IS
    'changes that it has begun since then';
COMMENT ON COLUMN parallel_apply.writers.changes_known IS
    'changes to be made, as far as they have been received';
COMMENT ON COLUMN parallel_apply.writers.blocked_by IS
    'processes that it waits for: holders of a lock, or whose commit is before its own';
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

CREATE FUNCTION parallel_apply.subscriptions(
    OUT subid oid,
    OUT pid integer,
    OUT state text,
    OUT reason text,
    OUT writers_wanted integer,
    OUT queue_bytes bigint,
    OUT queue_transactions bigint,
    OUT received_lsn pg_lsn,
    OUT dispatched_lsn pg_lsn,
    OUT committed_lsn pg_lsn,
    OUT flushed_lsn pg_lsn,
    OUT lag_bytes bigint,
    OUT lag interval,
    OUT apply_rate double precision,
    OUT catch_up interval,
    OUT transactions bigint,
    OUT native_transactions bigint,
    OUT inserts bigint,
    OUT updates bigint,
    OUT deletes bigint,
    OUT truncates bigint,
    OUT batches bigint,
    OUT retries bigint,
    OUT older_wins bigint,
    OUT errors bigint,
    OUT drains_serial_table bigint,
    OUT drains_truncate bigint,
    OUT drains_native bigint,
    OUT drains_refetch bigint,
    OUT drains_stop bigint,
    OUT native_replays_sync bigint,
    OUT native_replays_table bigint,
    OUT native_replays_message bigint,
    OUT native_replays_failure bigint,
    OUT native_replays_subscription bigint,
    OUT native_replays_no_writer bigint,
    OUT dependency_waits bigint,
    OUT turn_waits bigint,
    OUT data_waits bigint,
    OUT replay_waits bigint,
    OUT lock_waits bigint,
    OUT apply_time double precision,
    OUT dependency_wait_time double precision,
    OUT turn_wait_time double precision,
    OUT data_wait_time double precision,
    OUT replay_wait_time double precision,
    OUT lock_wait_time double precision,
    OUT last_error_at timestamp with time zone,
    OUT last_error text,
    OUT stats_reset timestamp with time zone
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_subscriptions';

COMMENT ON FUNCTION parallel_apply.subscriptions() IS
    'what the subscriptions of this database do and have done, since their apply workers started';

CREATE VIEW parallel_apply.subscriptions AS
    SELECT s.oid AS subid,
           s.subname,
           p.pid,
           CASE WHEN p.pid IS NULL THEN 'not running'
                WHEN n.tables OPERATOR(pg_catalog.>) 0
                     AND p.state OPERATOR(pg_catalog.=) ANY ('{parallel,native}')
                THEN 'synchronising' ELSE p.state END AS state,
           CASE WHEN n.tables OPERATOR(pg_catalog.>) 0
                     AND p.state OPERATOR(pg_catalog.=) 'parallel'
                THEN pg_catalog.format('%s of its tables are not ready', n.tables)
                ELSE p.reason END AS reason,
           p.writers_wanted,
           (SELECT pg_catalog.count(*) FROM parallel_apply.writers() AS w
             WHERE w.subid OPERATOR(pg_catalog.=) s.oid)::integer AS writers_running,
           p.queue_bytes, p.queue_transactions, p.received_lsn,
           p.dispatched_lsn, p.committed_lsn, p.flushed_lsn, p.lag_bytes,
           p.lag, p.apply_rate, p.catch_up, p.transactions,
           p.native_transactions, p.inserts, p.updates, p.deletes,
           p.truncates, p.batches,
           (p.transactions OPERATOR(pg_catalog.-) p.native_transactions)::double precision
               OPERATOR(pg_catalog./) NULLIF(p.batches, 0)::double precision AS batch_size,
           p.retries, p.older_wins, p.errors, p.drains_serial_table,
           p.drains_truncate, p.drains_native, p.drains_refetch,
           p.drains_stop, p.native_replays_sync, p.native_replays_table,
           p.native_replays_message, p.native_replays_failure,
           p.native_replays_subscription, p.native_replays_no_writer,
           p.dependency_waits, p.turn_waits, p.data_waits, p.replay_waits,
           p.lock_waits, p.apply_time, p.dependency_wait_time,
           p.turn_wait_time, p.data_wait_time, p.replay_wait_time,
           p.lock_wait_time, p.last_error_at, p.last_error, p.stats_reset
      FROM pg_catalog.pg_subscription AS s
      LEFT JOIN parallel_apply.subscriptions() AS p ON p.subid OPERATOR(pg_catalog.=) s.oid
      LEFT JOIN LATERAL (
            SELECT pg_catalog.count(*) AS tables FROM pg_catalog.pg_subscription_rel AS r
             WHERE r.srsubid OPERATOR(pg_catalog.=) s.oid
               AND r.srsubstate OPERATOR(pg_catalog.<>) 'r') AS n ON true
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

COMMENT ON VIEW parallel_apply.subscriptions IS
    'what the subscriptions of this database do and have done';
COMMENT ON COLUMN parallel_apply.subscriptions.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.pid IS 'process ID of the apply worker';
COMMENT ON COLUMN parallel_apply.subscriptions.state IS
    'who applies: parallel, native, stopping, paused, synchronising, or not running';
COMMENT ON COLUMN parallel_apply.subscriptions.reason IS 'why not in parallel';
COMMENT ON COLUMN parallel_apply.subscriptions.writers_wanted IS
    'writers that there shall be; 1 is PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.writers_running IS
    'writers that there are';
COMMENT ON COLUMN parallel_apply.subscriptions.queue_bytes IS 'bytes of the queue in use';
COMMENT ON COLUMN parallel_apply.subscriptions.queue_transactions IS
    'transactions in the queue';
COMMENT ON COLUMN parallel_apply.subscriptions.received_lsn IS
    'position in the publisher''s WAL that was received';
COMMENT ON COLUMN parallel_apply.subscriptions.dispatched_lsn IS
    'end of the last transaction that writers can apply';
COMMENT ON COLUMN parallel_apply.subscriptions.committed_lsn IS
    'position up to which everything is committed';
COMMENT ON COLUMN parallel_apply.subscriptions.flushed_lsn IS
    'position up to which everything is committed and flushed';
COMMENT ON COLUMN parallel_apply.subscriptions.lag_bytes IS
    'received and not committed, in bytes of the publisher''s WAL';
COMMENT ON COLUMN parallel_apply.subscriptions.lag IS
    'age of the oldest transaction that was received and is not committed';
COMMENT ON COLUMN parallel_apply.subscriptions.apply_rate IS
    'remote transactions per second, over the last seconds';
COMMENT ON COLUMN parallel_apply.subscriptions.catch_up IS
    'estimated time until there is no lag; null if it grows';
COMMENT ON COLUMN parallel_apply.subscriptions.transactions IS
    'remote transactions committed, by writers and by PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.native_transactions IS
    'of them, those committed by PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.inserts IS 'inserted rows';
COMMENT ON COLUMN parallel_apply.subscriptions.updates IS 'updated rows';
COMMENT ON COLUMN parallel_apply.subscriptions.deletes IS 'deleted rows';
COMMENT ON COLUMN parallel_apply.subscriptions.truncates IS 'TRUNCATE commands';
COMMENT ON COLUMN parallel_apply.subscriptions.batches IS 'local transactions of writers';
COMMENT ON COLUMN parallel_apply.subscriptions.batch_size IS
    'remote transactions in a local transaction of writers, on average';
COMMENT ON COLUMN parallel_apply.subscriptions.retries IS
    'second attempts, after all older transactions were committed';
COMMENT ON COLUMN parallel_apply.subscriptions.older_wins IS
    'roll-backs because the oldest transaction waited for a lock of a younger one';
COMMENT ON COLUMN parallel_apply.subscriptions.errors IS
    'errors of writers, which they put right, and of PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.drains_serial_table IS
    'transactions applied alone because of a table that is applied serially';
COMMENT ON COLUMN parallel_apply.subscriptions.drains_truncate IS
    'transactions applied alone because of a TRUNCATE';
COMMENT ON COLUMN parallel_apply.subscriptions.drains_native IS
    'transactions applied alone by PostgreSQL''s own apply because their rows are not known';
COMMENT ON COLUMN parallel_apply.subscriptions.drains_refetch IS
    'transactions larger than the queue, fetched again for PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.drains_stop IS
    'times that all writers stopped';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_sync IS
    'transactions left to PostgreSQL''s own apply because a table was being synchronised';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_table IS
    'the same, because writers do not handle a table';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_message IS
    'the same, because writers do not handle a message, or it was larger than the queue';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_failure IS
    'the same, because a writer failed twice';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_subscription IS
    'the same, because of SKIP, a disabled subscription or a new owner';
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_no_writer IS
    'the same, because no writer was there';
COMMENT ON COLUMN parallel_apply.subscriptions.dependency_waits IS
    'waits of writers for an older transaction with the same row';
COMMENT ON COLUMN parallel_apply.subscriptions.turn_waits IS
    'waits of writers for all older transactions';
COMMENT ON COLUMN parallel_apply.subscriptions.data_waits IS
    'waits of writers for the rest of a large transaction';
COMMENT ON COLUMN parallel_apply.subscriptions.replay_waits IS
    'waits of writers for PostgreSQL''s own apply';
COMMENT ON COLUMN parallel_apply.subscriptions.lock_waits IS
    'writers found waiting for a lock, looking once a second';
COMMENT ON COLUMN parallel_apply.subscriptions.apply_time IS
    'milliseconds that writers worked on transactions, without waits for each other';
COMMENT ON COLUMN parallel_apply.subscriptions.dependency_wait_time IS
    'milliseconds in dependency_waits';
COMMENT ON COLUMN parallel_apply.subscriptions.turn_wait_time IS
    'milliseconds in turn_waits';
COMMENT ON COLUMN parallel_apply.subscriptions.data_wait_time IS
    'milliseconds in data_waits';
COMMENT ON COLUMN parallel_apply.subscriptions.replay_wait_time IS
    'milliseconds in replay_waits';
COMMENT ON COLUMN parallel_apply.subscriptions.lock_wait_time IS
    'milliseconds that writers waited for locks, estimated from lock_waits';
COMMENT ON COLUMN parallel_apply.subscriptions.last_error_at IS 'time of the last error';
COMMENT ON COLUMN parallel_apply.subscriptions.last_error IS 'its message';
COMMENT ON COLUMN parallel_apply.subscriptions.stats_reset IS
    'since when there are counters';

CREATE FUNCTION parallel_apply.reset_stats(subscription name DEFAULT NULL)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_reset_stats';

COMMENT ON FUNCTION parallel_apply.reset_stats(name) IS
    'begins the counters of a subscription anew, or of all in this database';
CREATE FUNCTION parallel_apply.hot_keys(
    OUT subid oid,
    OUT relation regclass,
    OUT cause text,
    OUT index regclass,
    OUT key_hash integer,
    OUT key text,
    OUT waits bigint,
    OUT too_many bigint,
    OUT wait_time double precision,
    OUT last_wait timestamptz
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_hot_keys';

COMMENT ON FUNCTION parallel_apply.hot_keys() IS
    'keys that transactions of this database''s subscriptions wait for';

CREATE VIEW parallel_apply.hot_keys AS
    SELECT k.subid, s.subname, k.relation, k.cause, k.index, k.key_hash, k.key,
           k.waits, k.too_many, k.wait_time, k.last_wait
      FROM parallel_apply.hot_keys() AS k
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) k.subid;

COMMENT ON VIEW parallel_apply.hot_keys IS
    'what transactions wait for: indexes (key_hash is NULL), and the keys of each that are waited for most';
COMMENT ON COLUMN parallel_apply.hot_keys.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.hot_keys.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.hot_keys.relation IS
    'table whose changes had to wait';
COMMENT ON COLUMN parallel_apply.hot_keys.cause IS
    'replica identity or unique index, of which an older transaction had the same key; or barrier, a transaction that is applied alone';
COMMENT ON COLUMN parallel_apply.hot_keys.index IS
    'the unique index; NULL for other causes';
COMMENT ON COLUMN parallel_apply.hot_keys.key_hash IS
    'tells keys of an index apart; NULL for all of them together';
COMMENT ON COLUMN parallel_apply.hot_keys.key IS
    'values of the key, cut off after 127 bytes; NULL for those who may not read the table';
COMMENT ON COLUMN parallel_apply.hot_keys.waits IS
    'times that a change waited for it';
COMMENT ON COLUMN parallel_apply.hot_keys.too_many IS
    'at most so many of these waits were for keys that are not shown any more';
COMMENT ON COLUMN parallel_apply.hot_keys.wait_time IS
    'total time of the waits since the key is shown, in milliseconds';
COMMENT ON COLUMN parallel_apply.hot_keys.last_wait IS
    'when the last of them ended';

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

CREATE FUNCTION parallel_apply.pause(subscription name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_pause';

COMMENT ON FUNCTION parallel_apply.pause(name) IS
    'applies nothing more of a subscription, which stays connected';

CREATE FUNCTION parallel_apply.resume(subscription name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_resume';

COMMENT ON FUNCTION parallel_apply.resume(name) IS
    'ends a pause';

CREATE FUNCTION parallel_apply.wait_for_lsn(subscription name, lsn pg_lsn, timeout interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_wait_for_lsn';

COMMENT ON FUNCTION parallel_apply.wait_for_lsn(name, pg_lsn, interval) IS
    'waits until all up to a position of the publisher''s WAL is committed; false after the timeout';

CREATE FUNCTION parallel_apply.drain(subscription name, timeout interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_drain';

COMMENT ON FUNCTION parallel_apply.drain(name, interval) IS
    'waits until all that has been received is committed; false after the timeout';

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
REVOKE ALL ON FUNCTION parallel_apply.pause(name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.resume(name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.wait_for_lsn(name, pg_lsn, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.drain(name, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.subscription_options(oid) FROM PUBLIC;
REVOKE ALL ON parallel_apply.groups FROM PUBLIC;
REVOKE ALL ON parallel_apply.subscription_config FROM PUBLIC;
GRANT EXECUTE ON FUNCTION parallel_apply.wait_for_lsn(name, pg_lsn, interval) TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.drain(name, interval) TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.subscription_options(oid) TO pg_monitor;
GRANT SELECT ON parallel_apply.groups TO pg_monitor;
GRANT SELECT ON parallel_apply.subscription_config TO pg_monitor;

REVOKE ALL ON parallel_apply.table_options FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.set_table_option(regclass, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.reset_stats(name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.subscriptions() FROM PUBLIC;
REVOKE ALL ON parallel_apply.subscriptions FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.writers() FROM PUBLIC;
REVOKE ALL ON parallel_apply.writers FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.tables() FROM PUBLIC;
REVOKE ALL ON parallel_apply.tables FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.hot_keys() FROM PUBLIC;
REVOKE ALL ON parallel_apply.hot_keys FROM PUBLIC;
GRANT USAGE ON SCHEMA parallel_apply TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.subscriptions() TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.writers() TO pg_monitor;
GRANT SELECT ON parallel_apply.subscriptions TO pg_monitor;
GRANT SELECT ON parallel_apply.writers TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.tables() TO pg_monitor;
GRANT SELECT ON parallel_apply.tables TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.hot_keys() TO pg_monitor;
GRANT SELECT ON parallel_apply.hot_keys TO pg_monitor;
GRANT SELECT ON parallel_apply.table_options TO pg_monitor;
