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
    'roll-backs because the oldest transaction or a session waited for a lock of this one';

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
    OUT native_replays_lone bigint,
    OUT streamed_early bigint,
    OUT streamed_late bigint,
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
                THEN 'synchronizing' ELSE p.state END AS state,
           CASE WHEN n.tables OPERATOR(pg_catalog.>) 0
                     AND p.state OPERATOR(pg_catalog.=) 'parallel'
                THEN pg_catalog.format('%s of its tables are not ready', n.tables)
                ELSE p.reason END AS reason,
           p.writers_wanted,
           coalesce(w.writers, 0)::integer AS writers_running,
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
           p.native_replays_lone, p.streamed_early, p.streamed_late,
           p.dependency_waits, p.turn_waits, p.data_waits, p.replay_waits,
           p.lock_waits, p.apply_time, p.dependency_wait_time,
           p.turn_wait_time, p.data_wait_time, p.replay_wait_time,
           p.lock_wait_time, p.last_error_at, p.last_error, p.stats_reset
      FROM pg_catalog.pg_subscription AS s
      LEFT JOIN parallel_apply.subscriptions() AS p ON p.subid OPERATOR(pg_catalog.=) s.oid
      LEFT JOIN (
            SELECT r.subid, pg_catalog.count(*) AS writers FROM parallel_apply.writers() AS r
             GROUP BY r.subid) AS w ON w.subid OPERATOR(pg_catalog.=) s.oid
      LEFT JOIN LATERAL (
            SELECT pg_catalog.count(*) AS tables FROM pg_catalog.pg_subscription_rel AS r
              JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) r.srrelid
             WHERE r.srsubid OPERATOR(pg_catalog.=) s.oid
               AND r.srsubstate OPERATOR(pg_catalog.<>) 'r'
               AND c.relkind OPERATOR(pg_catalog.<>) 'S') AS n ON true
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

COMMENT ON VIEW parallel_apply.subscriptions IS
    'what the subscriptions of this database do and have done';
COMMENT ON COLUMN parallel_apply.subscriptions.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.pid IS 'process ID of the apply worker';
COMMENT ON COLUMN parallel_apply.subscriptions.state IS
    'who applies: parallel, native, stopping, paused, synchronizing, or not running';
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
    'roll-backs because the oldest transaction or a session waited for a lock of a younger one';
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
    'transactions left to PostgreSQL''s own apply because a table was being synchronized';
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
COMMENT ON COLUMN parallel_apply.subscriptions.native_replays_lone IS
    'small transactions that the apply worker itself applied because nothing else was to be done';
COMMENT ON COLUMN parallel_apply.subscriptions.streamed_early IS
    'streamed transactions that a writer was applying when their end came';
COMMENT ON COLUMN parallel_apply.subscriptions.streamed_late IS
    'streamed transactions that were applied after their end';
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

CREATE FUNCTION parallel_apply.writer_gain(
    OUT subid oid,
    OUT num_writers integer,
    OUT gain double precision,
    OUT transactions bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_writer_gain';

COMMENT ON FUNCTION parallel_apply.writer_gain() IS
    'what numbers of writers would gain for this database''s subscriptions';

CREATE VIEW parallel_apply.writer_gain AS
    SELECT g.subid, s.subname, g.num_writers, g.gain, g.transactions
      FROM parallel_apply.writer_gain() AS g
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) g.subid;

COMMENT ON VIEW parallel_apply.writer_gain IS
    'what numbers of writers would gain at best, estimated from what transactions depend on';
COMMENT ON COLUMN parallel_apply.writer_gain.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.writer_gain.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.writer_gain.num_writers IS 'number of writers';
COMMENT ON COLUMN parallel_apply.writer_gain.gain IS
    'how many times as fast as one writer they would be at best';
COMMENT ON COLUMN parallel_apply.writer_gain.transactions IS
    'remote transactions that this was estimated from';

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

CREATE FUNCTION parallel_apply.find_subscription(subscription name)
RETURNS oid
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_find_subscription';

COMMENT ON FUNCTION parallel_apply.find_subscription(name) IS
    'OID of a subscription of this database';

CREATE FUNCTION parallel_apply.processors()
RETURNS integer
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_processors';

COMMENT ON FUNCTION parallel_apply.processors() IS
    'number of processors of this server';

CREATE FUNCTION parallel_apply.queues(
    OUT subid oid,
    OUT max_bytes bigint,
    OUT max_transactions bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_queues';

COMMENT ON FUNCTION parallel_apply.queues() IS
    'what the queues of this database''s subscriptions can hold';

-- The first statement complains of a subscription that does not exist.  What is
-- "much" and "little" is said in README.
CREATE FUNCTION parallel_apply.advice(
    subscription name DEFAULT NULL,
    OUT subname name,
    OUT topic text,
    OUT level text,
    OUT advice text,
    OUT evidence text
)
RETURNS SETOF record
LANGUAGE sql CALLED ON NULL INPUT VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
SELECT parallel_apply.find_subscription(subscription);

WITH s AS MATERIALIZED (
    SELECT v.subid, v.subname, v.state, v.reason, v.writers_wanted, v.writers_running,
           v.queue_bytes, v.lag, v.transactions, v.retries,
           v.native_transactions - v.native_replays_lone AS left_transactions,
           v.older_wins, v.drains_serial_table, v.drains_truncate, v.drains_refetch,
           v.drains_native, v.native_replays_sync, v.native_replays_table,
           v.native_replays_message, v.native_replays_failure, v.last_error,
           v.inserts + v.updates + v.deletes AS rows,
           c.effective_writers, c.source,
           CASE c.source WHEN 'subscription' THEN c.num_writers
                WHEN 'group' THEN (SELECT g.num_writers FROM parallel_apply.groups AS g
                                    WHERE g.group_name = c.group_name)
                ELSE current_setting('parallel_apply.writers_per_subscription')::integer
           END AS configured_writers,
           q.max_bytes, v.queue_transactions,
           greatest(v.queue_bytes::float8 / q.max_bytes,
                    v.queue_transactions::float8 / q.max_transactions) AS queue_fill
      FROM parallel_apply.subscriptions AS v
      JOIN parallel_apply.subscription_config AS c USING (subid)
      LEFT JOIN parallel_apply.queues() AS q USING (subid)
     WHERE advice.subscription IS NULL OR v.subname = advice.subscription
), busy AS (
    SELECT w.subid, count(*) FILTER (WHERE w.state NOT IN ('idle', 'waiting for data')) AS writers
      FROM parallel_apply.writers AS w
     GROUP BY w.subid
), worker_processes AS (
    SELECT count(*) AS used, current_setting('max_worker_processes')::integer AS all
      FROM pg_stat_activity
     WHERE backend_type NOT IN ('client backend', 'autovacuum launcher', 'autovacuum worker',
           'walsender', 'walreceiver', 'checkpointer', 'background writer', 'walwriter', 'startup',
           'archiver', 'logger', 'slotsync worker', 'io worker', 'walsummarizer',
           'standalone backend')
), gain AS (
    SELECT s.subid, max(g.transactions) AS transactions, max(g.gain) AS best,
           max(g.gain) FILTER (WHERE g.num_writers <= s.effective_writers) AS have,
           max(g.gain) FILTER (WHERE g.num_writers <= 2 * s.effective_writers) AS twice,
           string_agg(format('%s with %s', round(g.gain::numeric, 1), g.num_writers), ', '
                      ORDER BY g.num_writers)
               FILTER (WHERE g.num_writers IN (2, 4, 8, 16, 32)) AS list
      FROM s JOIN parallel_apply.writer_gain AS g USING (subid)
     GROUP BY s.subid
), enough AS (
    SELECT g.subid, min(w.num_writers) AS writers
      FROM gain AS g JOIN parallel_apply.writer_gain AS w USING (subid)
     WHERE w.gain >= 0.9 * g.best
     GROUP BY g.subid
), waits AS (
    SELECT k.subid, sum(k.waits) AS waits
      FROM parallel_apply.hot_keys AS k
     WHERE k.key_hash IS NULL AND k.cause <> 'barrier'
     GROUP BY k.subid
), hottest AS (
    SELECT DISTINCT ON (k.subid) k.*
      FROM parallel_apply.hot_keys AS k
     WHERE k.key_hash IS NOT NULL
     ORDER BY k.subid, k.waits - k.too_many DESC
), changed_tables AS (
    SELECT t.*, t.inserts + t.updates + t.deletes AS changes
      FROM parallel_apply.tables AS t
), rows(subname, topic, level, advice, evidence) AS (
    SELECT s.subname, 'state', 'warning',
           CASE s.state
                WHEN 'not running' THEN 'it is not applied: see whether it is enabled, and its error'
                WHEN 'paused' THEN 'it is paused: parallel_apply.resume() lets it go on'
                ELSE 'it is applied by PostgreSQL itself: ' || coalesce(s.reason, 'not in parallel')
           END,
           'state ' || s.state || coalesce('; last error: ' || s.last_error, '')
      FROM s WHERE s.state IN ('not running', 'paused', 'native', 'stopping')
    UNION ALL
    SELECT s.subname, 'state', 'notice',
           'tables are being synchronized: transactions that change them are left to PostgreSQL''s own apply',
           s.reason
      FROM s WHERE s.state = 'synchronizing'
    UNION ALL
    SELECT s.subname, 'max_worker_processes', 'warning',
           format('only %s of %s writers run: raise "max_worker_processes"',
                  s.writers_running, s.writers_wanted),
           format('%s of %s worker processes of the server are in use', p.used, p.all)
      FROM s, worker_processes AS p
     WHERE s.writers_running < s.writers_wanted AND s.writers_wanted > 1 AND p.used >= p.all
    UNION ALL
    SELECT s.subname, 'max_writers_per_subscription', 'notice',
           'it has fewer writers than configured: raise "parallel_apply.max_writers_per_subscription"',
           format('%s writers configured by %s, %s allowed', s.configured_writers, s.source,
                  s.effective_writers)
      FROM s WHERE s.configured_writers > s.effective_writers
    UNION ALL
    SELECT s.subname, 'writers',
           CASE WHEN g.best < 1.5 AND g.transactions >= 100 THEN 'notice' ELSE 'info' END,
           CASE WHEN g.transactions IS NULL OR g.transactions < 100
                THEN 'too few transactions were applied by writers to tell what more of them would gain'
                WHEN g.best < 1.5
                THEN 'more writers do not help: almost every transaction depends on the one before it'
                WHEN g.twice < 1.25 * g.have
                THEN format('more writers do not help: transactions depend on each other; %s are enough',
                            least(e.writers, s.effective_writers))
                ELSE format('more writers can help: %s would apply up to %s times as fast as the %s that it has; '
                            'beyond the %s processors of this server only where rows are read from storage',
                            e.writers, round((g.best / g.have)::numeric, 1), s.effective_writers,
                            parallel_apply.processors())
           END,
           format('estimated gain over one writer, from what %s transactions depend on: %s',
                  coalesce(g.transactions, 0), coalesce(g.list, 'none'))
      FROM s LEFT JOIN gain AS g USING (subid) LEFT JOIN enough AS e USING (subid)
    UNION ALL
    SELECT s.subname, 'hot key', 'warning',
           format('%s %% of all waits are for one %s of table %s: %s; more writers do not help with it. '
                  'Spread it over several rows, or change it in fewer and shorter transactions',
                  round(100.0 * (h.waits - h.too_many) / w.waits),
                  CASE h.cause WHEN 'unique index' THEN 'value of unique index ' || h.index
                               ELSE 'row' END,
                  h.relation,
                  coalesce('key (' || h.key || ')', 'that with key hash ' || h.key_hash)),
           format('%s of %s waits, %s ms', h.waits - h.too_many, w.waits, round(h.wait_time::numeric))
      FROM s JOIN hottest AS h USING (subid) JOIN waits AS w USING (subid)
     WHERE w.waits >= 10 AND h.waits - h.too_many >= 0.2 * w.waits
    UNION ALL
    SELECT s.subname, 'serial table',
           CASE WHEN s.drains_serial_table >= 0.05 * s.transactions THEN 'warning' ELSE 'notice' END,
           format('transactions that change table %s are applied alone: %s. Remedy: %s',
                  t.relation, t.reason, t.remedy),
           format('%s of %s changed rows; %s of %s transactions were applied alone because of such tables',
                  t.changes, s.rows, s.drains_serial_table, s.transactions)
      FROM s JOIN changed_tables AS t USING (subid)
     WHERE t.class = 'serial' AND t.changes IS DISTINCT FROM 0
    UNION ALL
    SELECT s.subname, 'table', 'warning',
           format('table %s: %s. Remedy: %s', t.relation, t.reason, t.remedy),
           format('%s rows updated, %s deleted', t.updates, t.deletes)
      FROM s JOIN changed_tables AS t USING (subid)
     WHERE t.class = 'parallel'
       AND (t.reason ~ 'foreign table'
            OR t.reason ~ 'reads the table|fail' AND t.updates + t.deletes IS DISTINCT FROM 0)
    UNION ALL
    SELECT s.subname, 'truncate', 'notice',
           'many transactions with TRUNCATE, each of which is applied alone: delete rows instead, or truncate less often',
           format('%s of %s transactions', s.drains_truncate, s.transactions)
      FROM s WHERE s.drains_truncate > 10 AND s.drains_truncate >= 0.05 * s.transactions
    UNION ALL
    SELECT s.subname, 'native', 'notice',
           'many transactions are left to PostgreSQL''s own apply',
           format('%s of %s transactions; tables being synchronized %s, tables %s, messages %s, second failures %s',
                  s.left_transactions, s.transactions, s.native_replays_sync,
                  s.native_replays_table, s.native_replays_message, s.native_replays_failure)
      FROM s WHERE s.state = 'parallel' AND s.left_transactions > 10
       AND s.left_transactions >= 0.1 * s.transactions
    UNION ALL
    SELECT s.subname, 'retries', 'notice',
           'many transactions are tried again: see unique indexes in parallel_apply.tables, and local sessions that lock rows',
           format('%s second attempts and %s roll-backs in favour of older ones, of %s transactions',
                  s.retries, s.older_wins, s.transactions)
      FROM s WHERE s.retries + s.older_wins > 10
       AND s.retries + s.older_wins >= 0.02 * s.transactions
    UNION ALL
    SELECT s.subname, 'queue_size', 'warning',
           'transactions larger than the queue had to be fetched again: raise "parallel_apply.queue_size"',
           format('%s times; it is %s', s.drains_refetch, current_setting('parallel_apply.queue_size'))
      FROM s WHERE s.drains_refetch > 0
    UNION ALL
    SELECT s.subname, 'limit', 'info',
           'the queue is full: what limits is applying, not the publisher. '
           'A larger "parallel_apply.queue_size" would only be filled later',
           format('%s transactions, %s of %s', s.queue_transactions,
                  pg_size_pretty(s.queue_bytes), pg_size_pretty(s.max_bytes))
      FROM s WHERE s.queue_fill >= 0.9
    UNION ALL
    SELECT s.subname, 'publisher', 'notice',
           'the publisher, which decodes one transaction after the other, or the network is the limit: '
           'writers have little to do although it is behind; more of them do not help, '
           'but to preload "parallel_apply" on the publisher may',
           format('%s behind, %s in the queue, %s of %s writers busy', s.lag,
                  pg_size_pretty(s.queue_bytes), coalesce(b.writers, 0), s.writers_running)
      FROM s LEFT JOIN busy AS b USING (subid)
     WHERE s.state = 'parallel' AND s.lag > interval '5 seconds'
       AND s.queue_fill < 0.1 AND 2 * coalesce(b.writers, 0) <= s.writers_running
    UNION ALL
    SELECT s.subname, 'lock', 'warning',
           format('a writer waits for a lock of a local session: %s', string_agg(a.pid::text, ', ' ORDER BY a.pid)),
           string_agg(format('process %s is %s since %s', a.pid, coalesce(a.state, '?'),
                             date_trunc('second', a.state_change)), '; ' ORDER BY a.pid)
      FROM s JOIN parallel_apply.writers AS w USING (subid)
      JOIN pg_stat_activity AS a ON a.pid = ANY (w.blocked_by)
     WHERE w.state = 'waiting for lock' AND a.backend_type = 'client backend'
     GROUP BY s.subid, s.subname
)
SELECT r.subname, r.topic, r.level, r.advice, r.evidence
  FROM rows AS r
 ORDER BY r.subname, array_position('{warning,notice,info}'::text[], r.level), r.topic;
END;

COMMENT ON FUNCTION parallel_apply.advice(name) IS
    'what limits a subscription, or all of this database, and what would help';

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
REVOKE ALL ON FUNCTION parallel_apply.writer_gain() FROM PUBLIC;
REVOKE ALL ON parallel_apply.writer_gain FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.find_subscription(name) FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.processors() FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.queues() FROM PUBLIC;
REVOKE ALL ON FUNCTION parallel_apply.advice(name) FROM PUBLIC;
GRANT USAGE ON SCHEMA parallel_apply TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.subscriptions() TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.writers() TO pg_monitor;
GRANT SELECT ON parallel_apply.subscriptions TO pg_monitor;
GRANT SELECT ON parallel_apply.writers TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.tables() TO pg_monitor;
GRANT SELECT ON parallel_apply.tables TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.hot_keys() TO pg_monitor;
GRANT SELECT ON parallel_apply.hot_keys TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.writer_gain() TO pg_monitor;
GRANT SELECT ON parallel_apply.writer_gain TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.find_subscription(name) TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.processors() TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.queues() TO pg_monitor;
GRANT EXECUTE ON FUNCTION parallel_apply.advice(name) TO pg_monitor;
GRANT SELECT ON parallel_apply.table_options TO pg_monitor;
