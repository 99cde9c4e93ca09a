/* complain if script is sourced in psql, rather than via CREATE EXTENSION */
\echo Use "CREATE EXTENSION parallel_apply" to load this file. \quit

CREATE SCHEMA parallel_apply;
COMMENT ON SCHEMA parallel_apply IS
    'objects of the extension parallel_apply';

CREATE FUNCTION parallel_apply.check_library_version(required_version text)
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_check_library_version';

COMMENT ON FUNCTION parallel_apply.check_library_version(text) IS
    'internal: raise an error if the loaded library is older than a version of the extension';

SELECT parallel_apply.check_library_version('1.0');

CREATE FUNCTION parallel_apply.version()
RETURNS text
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_version';

COMMENT ON FUNCTION parallel_apply.version() IS
    'returns the version of the library that the server has loaded';

CREATE FUNCTION parallel_apply.get_visibility(subid oid)
RETURNS boolean
LANGUAGE C STRICT STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_visibility';

COMMENT ON FUNCTION parallel_apply.get_visibility(oid) IS
    'internal: whether the views show a subscription to the current user';

CREATE FUNCTION parallel_apply.get_data_visibility(subid oid, schemaname name, relname name)
RETURNS boolean
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_data_visibility';

COMMENT ON FUNCTION parallel_apply.get_data_visibility(oid, name, name) IS
    'internal: whether the views show data of a table to the current user';

CREATE FUNCTION parallel_apply.get_writers(
    OUT subid oid,
    OUT writer integer,
    OUT pid integer,
    OUT state text,
    OUT remote_xid xid,
    OUT remote_lsn pg_lsn,
    OUT xact_start timestamptz,
    OUT changes_done bigint,
    OUT changes_received bigint,
    OUT blocked_by integer[],
    OUT transactions bigint,
    OUT rows bigint,
    OUT prefetched bigint,
    OUT fallbacks bigint,
    OUT retries bigint,
    OUT commit_order_aborts bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_writers';

COMMENT ON FUNCTION parallel_apply.get_writers() IS
    'internal: rows of the view "writers"';

CREATE VIEW parallel_apply.writers AS
    SELECT w.subid, s.subname, w.writer, w.pid, w.state, w.remote_xid,
           w.remote_lsn, w.xact_start, w.changes_done, w.changes_received, w.blocked_by,
           w.transactions, w.rows, w.prefetched, w.fallbacks, w.retries,
           w.commit_order_aborts
      FROM parallel_apply.get_writers() AS w
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) w.subid;

COMMENT ON VIEW parallel_apply.writers IS
    'processes that apply the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.writers.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.writers.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.writers.writer IS
    'number of the writer, beginning with 1. The apply worker has a row with number 0 while it '
    'applies a transaction itself; its counters are in "subscription_stats"';
COMMENT ON COLUMN parallel_apply.writers.pid IS 'process ID';
COMMENT ON COLUMN parallel_apply.writers.state IS
    'current state: "starting", "idle", "applying", or what the process waits for: '
    '"waiting for dependency", "waiting for prior commit", "waiting for data", '
    '"waiting for lock" or "waiting for leader"';
COMMENT ON COLUMN parallel_apply.writers.remote_xid IS
    'transaction ID, on the publisher, of the transaction that the process works on';
COMMENT ON COLUMN parallel_apply.writers.remote_lsn IS
    'position of the commit of that transaction in the publisher''s WAL';
COMMENT ON COLUMN parallel_apply.writers.xact_start IS
    'time at which the process started, or last restarted, to apply that transaction, or the '
    'batch that it belongs to. NULL for the apply worker of a subscription without writers';
COMMENT ON COLUMN parallel_apply.writers.changes_done IS
    'number of changes started since "xact_start"';
COMMENT ON COLUMN parallel_apply.writers.changes_received IS
    'number of changes of the transaction or batch that have been received so far. NULL for the '
    'apply worker';
COMMENT ON COLUMN parallel_apply.writers.blocked_by IS
    'IDs of the processes that it waits for: those that hold the lock, or the one whose commit '
    'is before its own';
COMMENT ON COLUMN parallel_apply.writers.transactions IS
    'number of remote transactions committed since the writer started';
COMMENT ON COLUMN parallel_apply.writers.rows IS 'number of rows changed in these transactions';
COMMENT ON COLUMN parallel_apply.writers.prefetched IS
    'number of pages prefetched for changes that followed';
COMMENT ON COLUMN parallel_apply.writers.fallbacks IS
    'number of transactions handed to the apply worker after a second failure';
COMMENT ON COLUMN parallel_apply.writers.retries IS
    'number of transactions tried again after everything older had committed. A few are normal';
COMMENT ON COLUMN parallel_apply.writers.commit_order_aborts IS
    'number of transactions aborted, to be applied again in their turn: because the oldest '
    'transaction waited for one of their locks or must not be applied alongside them, or because '
    'a local session waited for one of their locks before their turn to commit';

CREATE FUNCTION parallel_apply.get_table(
    subid oid,
    relid oid,
    sync_state "char",
    OUT apply_mode text,
    OUT findings text[],
    OUT reason text,
    OUT remedy text,
    OUT inserts bigint,
    OUT updates bigint,
    OUT deletes bigint,
    OUT waits bigint,
    OUT wait_time double precision,
    OUT missing bigint,
    OUT retried_lookups bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'papply_get_table';

COMMENT ON FUNCTION parallel_apply.get_table(oid, oid, "char") IS
    'internal: row of the view "tables"';

-- Sequences, which are subscribed from 19 on, are no tables.
CREATE VIEW parallel_apply.tables AS
    SELECT r.srsubid AS subid, s.subname, r.srrelid AS relid, n.nspname AS schemaname, c.relname,
           CASE r.srsubstate
                WHEN 'i' THEN 'initialize' WHEN 'd' THEN 'copying'
                WHEN 'f' THEN 'copied' WHEN 's' THEN 'synchronized'
                WHEN 'r' THEN 'ready' ELSE r.srsubstate::pg_catalog.text
           END AS sync_state,
           t.apply_mode, t.findings, t.reason, t.remedy, t.inserts, t.updates, t.deletes, t.waits,
           t.wait_time, t.missing, t.retried_lookups
      FROM pg_catalog.pg_subscription_rel AS r
      JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) r.srrelid
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) r.srsubid
      CROSS JOIN LATERAL parallel_apply.get_table(r.srsubid, r.srrelid, r.srsubstate) AS t
     WHERE c.relkind OPERATOR(pg_catalog.<>) 'S';

COMMENT ON VIEW parallel_apply.tables IS
    'subscribed tables of this database: how their changes are applied, and why';
COMMENT ON COLUMN parallel_apply.tables.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.tables.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.tables.relid IS
    'OID of the table: a partitioned table itself or its partitions, whichever is subscribed';
COMMENT ON COLUMN parallel_apply.tables.schemaname IS 'schema of the table';
COMMENT ON COLUMN parallel_apply.tables.relname IS 'name of the table';
COMMENT ON COLUMN parallel_apply.tables.sync_state IS
    'state of the initial synchronization: "initialize", "copying", "copied", "synchronized" or '
    '"ready"';
COMMENT ON COLUMN parallel_apply.tables.apply_mode IS
    'how its changes are applied: "parallel"; "exclusive", by a writer while nothing else is '
    'applied; or "native", by the apply worker';
COMMENT ON COLUMN parallel_apply.tables.findings IS
    'codes of the reasons in "reason", in the same order';
COMMENT ON COLUMN parallel_apply.tables.reason IS
    'why the table is not "parallel", and what else makes its changes slow: triggers and '
    'defaults by name, rows that are not found by an index, unique indexes whose values are not '
    'known beforehand, partitions that are foreign tables';
COMMENT ON COLUMN parallel_apply.tables.remedy IS
    'what to do about each of the reasons, in the same order';
COMMENT ON COLUMN parallel_apply.tables.inserts IS
    'number of rows inserted in committed transactions, while the subscription has writers';
COMMENT ON COLUMN parallel_apply.tables.updates IS
    'number of rows updated in committed transactions, while the subscription has writers';
COMMENT ON COLUMN parallel_apply.tables.deletes IS
    'number of rows deleted in committed transactions, while the subscription has writers';
COMMENT ON COLUMN parallel_apply.tables.waits IS
    'number of times that a change waited for an older transaction that had changed the same row';
COMMENT ON COLUMN parallel_apply.tables.wait_time IS 'total time of these waits, in milliseconds';
COMMENT ON COLUMN parallel_apply.tables.missing IS
    'number of rows to be updated or deleted that did not exist: the sum of "update_missing" and '
    '"delete_missing" in "conflicts"';
COMMENT ON COLUMN parallel_apply.tables.retried_lookups IS
    'number of rows that were not found at first and were looked up again after everything older '
    'had committed. A few are normal';

CREATE FUNCTION parallel_apply.get_conflicts(
    OUT subid oid,
    OUT relid oid,
    OUT insert_exists bigint,
    OUT update_origin_differs bigint,
    OUT update_exists bigint,
    OUT update_missing bigint,
    OUT delete_origin_differs bigint,
    OUT delete_missing bigint,
    OUT multiple_unique_conflicts bigint,
    OUT last_conflict text,
    OUT last_conflict_key text,
    OUT last_conflict_time timestamptz
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_conflicts';

COMMENT ON FUNCTION parallel_apply.get_conflicts() IS
    'internal: rows of the view "conflicts"';

CREATE VIEW parallel_apply.conflicts AS
    SELECT k.subid, s.subname, k.relid, n.nspname AS schemaname, c.relname,
           k.insert_exists, k.update_origin_differs, k.update_exists, k.update_missing,
           k.delete_origin_differs, k.delete_missing, k.multiple_unique_conflicts,
           k.last_conflict, k.last_conflict_key, k.last_conflict_time
      FROM parallel_apply.get_conflicts() AS k
      JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) k.relid
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) k.subid;

COMMENT ON VIEW parallel_apply.conflicts IS
    'conflicts of the subscribed tables of this database';
COMMENT ON COLUMN parallel_apply.conflicts.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.conflicts.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.conflicts.relid IS 'OID of the table';
COMMENT ON COLUMN parallel_apply.conflicts.schemaname IS 'schema of the table';
COMMENT ON COLUMN parallel_apply.conflicts.relname IS 'name of the table';
COMMENT ON COLUMN parallel_apply.conflicts.insert_exists IS
    'number of rows to be inserted whose key exists in another row, which is an error. Each '
    'attempt of the apply worker counts';
COMMENT ON COLUMN parallel_apply.conflicts.update_origin_differs IS
    'number of updated rows that a local session or another origin had written. The change is '
    'applied. Counted only with "track_commit_timestamp"';
COMMENT ON COLUMN parallel_apply.conflicts.update_exists IS
    'number of rows to be updated whose new key exists in another row, which is an error. Each '
    'attempt of the apply worker counts';
COMMENT ON COLUMN parallel_apply.conflicts.update_missing IS
    'number of rows to be updated that did not exist. The change is skipped';
COMMENT ON COLUMN parallel_apply.conflicts.delete_origin_differs IS
    'number of deleted rows that a local session or another origin had written. The change is '
    'applied. Counted only with "track_commit_timestamp"';
COMMENT ON COLUMN parallel_apply.conflicts.delete_missing IS
    'number of rows to be deleted that did not exist. The change is skipped';
COMMENT ON COLUMN parallel_apply.conflicts.multiple_unique_conflicts IS
    'number of rows to be inserted or updated that violate several unique constraints, which is '
    'an error. Each attempt of the apply worker counts. Before PostgreSQL 18, the first '
    'constraint that is violated counts as "insert_exists" or "update_exists"';
COMMENT ON COLUMN parallel_apply.conflicts.last_conflict IS
    'type of the last conflict, which is the name of the column that counts it';
COMMENT ON COLUMN parallel_apply.conflicts.last_conflict_key IS
    'replica identity of its row, at most 127 bytes. NULL for users who may not read all columns '
    'and rows of the table';
COMMENT ON COLUMN parallel_apply.conflicts.last_conflict_time IS 'time of the last conflict';

CREATE FUNCTION parallel_apply.get_subscriptions(
    OUT subid oid,
    OUT pid integer,
    OUT state text,
    OUT reason text,
    OUT strict_reason text,
    OUT queue_bytes bigint,
    OUT queue_transactions bigint,
    OUT max_bytes bigint,
    OUT max_transactions bigint,
    OUT received_lsn pg_lsn,
    OUT dispatched_lsn pg_lsn,
    OUT committed_lsn pg_lsn,
    OUT flushed_lsn pg_lsn,
    OUT lag_bytes bigint,
    OUT lag interval,
    OUT apply_rate double precision,
    OUT catch_up interval
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_subscriptions';

COMMENT ON FUNCTION parallel_apply.get_subscriptions() IS
    'internal: rows of the view "subscriptions", and the capacity of their queues';

CREATE FUNCTION parallel_apply.get_subscription_options(
    subid oid,
    OUT group_name name,
    OUT num_writers integer,
    OUT writers_wanted integer,
    OUT source text,
    OUT paused boolean
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
AS 'MODULE_PATHNAME', 'papply_get_subscription_options';

COMMENT ON FUNCTION parallel_apply.get_subscription_options(oid) IS
    'internal: row of the view "subscription_config"';

CREATE VIEW parallel_apply.subscriptions AS
    SELECT s.oid AS subid,
           s.subname,
           p.pid,
           CASE WHEN u.is_standby THEN 'standby'
                WHEN NOT s.subenabled AND s.subdisableonerr
                     AND p.state OPERATOR(pg_catalog.=) 'failing' THEN 'disabled by error'
                WHEN NOT s.subenabled THEN 'disabled'
                WHEN k.is_bypassed THEN 'degraded'
                WHEN p.state IS NULL AND u.is_started THEN 'disconnected'
                WHEN p.state IS NULL THEN 'not running'
                WHEN n.tables OPERATOR(pg_catalog.>) 0
                     AND p.state OPERATOR(pg_catalog.=) ANY ('{parallel,native}')
                THEN 'synchronizing' ELSE p.state END AS state,
           CASE WHEN u.is_standby
                THEN 'the server is a standby: its primary applies the subscription'
                WHEN NOT s.subenabled AND p.state OPERATOR(pg_catalog.=) 'failing'
                THEN pg_catalog.format('the subscription is disabled, after an error: %s%s', k.skip, p.reason)
                WHEN NOT s.subenabled THEN 'the subscription is disabled'
                WHEN k.is_bypassed
                THEN 'the apply worker does not use parallel_apply, although the library is loaded'
                WHEN p.state IS NULL AND u.is_started
                THEN 'the apply worker is connecting to the publisher'
                WHEN p.state IS NULL THEN 'no apply worker is running'
                WHEN n.tables OPERATOR(pg_catalog.>) 0
                     AND p.state OPERATOR(pg_catalog.=) 'parallel'
                THEN pg_catalog.format(CASE WHEN n.tables OPERATOR(pg_catalog.=) 1 THEN '%s of its tables is not ready'
                                            ELSE '%s of its tables are not ready' END, n.tables)
                WHEN p.state OPERATOR(pg_catalog.=) 'failing'
                THEN pg_catalog.format('%s%s', k.skip, p.reason)
                ELSE p.reason END AS reason,
           o.writers_wanted,
           coalesce(w.writers, 0)::integer AS writers_running,
           p.strict_reason, p.queue_bytes, p.queue_transactions, p.received_lsn,
           p.dispatched_lsn, p.committed_lsn, p.flushed_lsn, p.lag_bytes,
           CASE WHEN NOT u.is_standby THEN p.lag END AS lag, p.apply_rate, p.catch_up
      FROM pg_catalog.pg_subscription AS s
      CROSS JOIN LATERAL parallel_apply.get_subscription_options(s.oid) AS o
      LEFT JOIN parallel_apply.get_subscriptions() AS p ON p.subid OPERATOR(pg_catalog.=) s.oid
      LEFT JOIN (
            SELECT r.subid, pg_catalog.count(*) AS writers FROM parallel_apply.get_writers() AS r
             WHERE r.writer OPERATOR(pg_catalog.>) 0
             GROUP BY r.subid) AS w ON w.subid OPERATOR(pg_catalog.=) s.oid
      LEFT JOIN LATERAL (
            SELECT pg_catalog.count(*) AS tables FROM pg_catalog.pg_subscription_rel AS r
              JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) r.srrelid
             WHERE r.srsubid OPERATOR(pg_catalog.=) s.oid
               AND r.srsubstate OPERATOR(pg_catalog.<>) 'r'
               AND c.relkind OPERATOR(pg_catalog.<>) 'S') AS n ON true
      CROSS JOIN LATERAL (
            SELECT pg_catalog.pg_is_in_recovery() AS is_standby,
                   pg_catalog.count(a.pid) OPERATOR(pg_catalog.>) 0 AS is_started,
                   pg_catalog.count(a.received_lsn) OPERATOR(pg_catalog.>) 0 AS is_running
              FROM pg_catalog.pg_stat_get_subscription(NULL) AS a
             WHERE a.subid OPERATOR(pg_catalog.=) s.oid AND a.relid IS NULL) AS u
      CROSS JOIN LATERAL (
            SELECT CASE WHEN s.subskiplsn OPERATOR(pg_catalog.<>) '0/0'
                        THEN pg_catalog.format('the transaction that finishes at %s is to be skipped: ', s.subskiplsn)
                        END AS skip,
                   -- an apply worker that exits after an error is still listed by the server
                   p.pid IS NULL AND u.is_running AND coalesce(p.state, '') OPERATOR(pg_catalog.<>) 'failing'
                   AS is_bypassed) AS k
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
       AND parallel_apply.get_visibility(s.oid);

COMMENT ON VIEW parallel_apply.subscriptions IS
    'state of the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.subscriptions.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscriptions.pid IS
    'process ID of the apply worker. NULL if none is running';
COMMENT ON COLUMN parallel_apply.subscriptions.state IS
    'current state: "parallel", "native", "synchronizing", "paused", "starting", "stopping", '
    '"degraded", "failing", "disabled by error", "disconnected", "disabled", '
    '"not running" or, on a standby, "standby"';
COMMENT ON COLUMN parallel_apply.subscriptions.reason IS
    'why the state is not "parallel"; the message of the error if it is "failing" or '
    '"disconnected", and whether the transaction is to be skipped. NULL if the state is "parallel"';
COMMENT ON COLUMN parallel_apply.subscriptions.writers_wanted IS
    'configured number of writers; 0 if the apply worker is to apply alone';
COMMENT ON COLUMN parallel_apply.subscriptions.writers_running IS
    'number of running writers, which is less while idle writers have exited '
    '("parallel_apply.idle_writers_per_subscription")';
COMMENT ON COLUMN parallel_apply.subscriptions.strict_reason IS
    'why each transaction of the publisher is applied by itself: which slot or standby may decode '
    'what is applied, or which setting forbids batches. NULL if there is no reason';
COMMENT ON COLUMN parallel_apply.subscriptions.queue_bytes IS
    'size of the transactions in the queue, in bytes: what is received and not committed';
COMMENT ON COLUMN parallel_apply.subscriptions.queue_transactions IS
    'number of transactions in the queue';
COMMENT ON COLUMN parallel_apply.subscriptions.received_lsn IS
    'last position received, in the publisher''s WAL';
COMMENT ON COLUMN parallel_apply.subscriptions.dispatched_lsn IS
    'position in the publisher''s WAL up to which everything is in the queue, or committed';
COMMENT ON COLUMN parallel_apply.subscriptions.committed_lsn IS
    'position in the publisher''s WAL up to which everything is committed';
COMMENT ON COLUMN parallel_apply.subscriptions.flushed_lsn IS
    'position in the publisher''s WAL up to which everything is committed and flushed';
COMMENT ON COLUMN parallel_apply.subscriptions.lag_bytes IS
    'bytes of the publisher''s WAL that are received and not committed';
COMMENT ON COLUMN parallel_apply.subscriptions.lag IS
    'time since the oldest transaction that is not committed was committed on the publisher. '
    'What the publisher has not sent yet counts from its newest transaction that was received. '
    'While apply fails or no apply worker is running, time since the publisher''s '
    'commit of the transaction that is due, or since everything received was last committed. '
    'NULL on a standby';
COMMENT ON COLUMN parallel_apply.subscriptions.apply_rate IS
    'remote transactions committed per second, over the last seconds';
COMMENT ON COLUMN parallel_apply.subscriptions.catch_up IS
    'estimate of the time until there is no lag, assuming that the publisher remains as busy. '
    'NULL while the lag grows';

CREATE FUNCTION parallel_apply.get_subscription_stats(
    OUT subid oid,
    OUT transactions bigint,
    OUT native_transactions bigint,
    OUT inserts bigint,
    OUT updates bigint,
    OUT deletes bigint,
    OUT truncates bigint,
    OUT batches bigint,
    OUT failed_attempts bigint,
    OUT retries bigint,
    OUT commit_order_aborts bigint,
    OUT errors bigint,
    OUT exclusive_table bigint,
    OUT exclusive_truncate bigint,
    OUT exclusive_fallback bigint,
    OUT refetches bigint,
    OUT pool_stops bigint,
    OUT fallback_sync bigint,
    OUT fallback_table bigint,
    OUT fallback_message bigint,
    OUT fallback_failure bigint,
    OUT fallback_subscription bigint,
    OUT fallback_no_writer bigint,
    OUT leader_transactions bigint,
    OUT streamed_in_progress bigint,
    OUT streamed_from_file bigint,
    OUT dependency_waits bigint,
    OUT commit_order_waits bigint,
    OUT data_waits bigint,
    OUT leader_waits bigint,
    OUT lock_waits bigint,
    OUT apply_time double precision,
    OUT dependency_wait_time double precision,
    OUT commit_order_wait_time double precision,
    OUT data_wait_time double precision,
    OUT leader_wait_time double precision,
    OUT lock_wait_time double precision,
    OUT last_error_time timestamp with time zone,
    OUT last_error text,
    OUT stats_reset timestamp with time zone
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_subscription_stats';

COMMENT ON FUNCTION parallel_apply.get_subscription_stats() IS
    'internal: rows of the view "subscription_stats"';

CREATE VIEW parallel_apply.subscription_stats AS
    SELECT s.oid AS subid, s.subname,
           p.transactions, p.native_transactions, p.inserts, p.updates, p.deletes,
           p.truncates, p.batches,
           (p.transactions OPERATOR(pg_catalog.-) p.native_transactions)::double precision
               OPERATOR(pg_catalog./) NULLIF(p.batches, 0)::double precision AS batch_size,
           p.failed_attempts, p.retries, p.commit_order_aborts, p.errors, p.exclusive_table,
           p.exclusive_truncate, p.exclusive_fallback, p.refetches, p.pool_stops,
           p.fallback_sync, p.fallback_table, p.fallback_message, p.fallback_failure,
           p.fallback_subscription, p.fallback_no_writer, p.leader_transactions,
           p.streamed_in_progress, p.streamed_from_file, p.dependency_waits,
           p.commit_order_waits, p.data_waits, p.leader_waits, p.lock_waits,
           p.apply_time, p.dependency_wait_time, p.commit_order_wait_time,
           p.data_wait_time, p.leader_wait_time, p.lock_wait_time, p.last_error_time,
           p.last_error, p.stats_reset
      FROM pg_catalog.pg_subscription AS s
      LEFT JOIN parallel_apply.get_subscription_stats() AS p ON p.subid OPERATOR(pg_catalog.=) s.oid
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
       AND parallel_apply.get_visibility(s.oid);

COMMENT ON VIEW parallel_apply.subscription_stats IS
    'cumulative statistics of the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.subscription_stats.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_stats.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_stats.transactions IS
    'number of remote transactions committed. A prepared transaction counts as two: PREPARE '
    'TRANSACTION, and its end';
COMMENT ON COLUMN parallel_apply.subscription_stats.native_transactions IS
    'number of the "transactions" that PostgreSQL''s own apply committed';
COMMENT ON COLUMN parallel_apply.subscription_stats.inserts IS
    'number of rows inserted in committed transactions';
COMMENT ON COLUMN parallel_apply.subscription_stats.updates IS
    'number of rows updated in committed transactions';
COMMENT ON COLUMN parallel_apply.subscription_stats.deletes IS
    'number of rows deleted in committed transactions';
COMMENT ON COLUMN parallel_apply.subscription_stats.truncates IS
    'number of TRUNCATE commands in committed transactions';
COMMENT ON COLUMN parallel_apply.subscription_stats.batches IS
    'number of local transactions that writers committed, each for one or more remote '
    'transactions';
COMMENT ON COLUMN parallel_apply.subscription_stats.batch_size IS
    'average number of remote transactions in a local transaction of a writer';
COMMENT ON COLUMN parallel_apply.subscription_stats.failed_attempts IS
    'number of attempts of writers that failed. The transactions are tried again, in the end by '
    'the apply worker';
COMMENT ON COLUMN parallel_apply.subscription_stats.retries IS
    'number of transactions that were tried again after everything older had committed. They are '
    'counted when they are committed, so one that fails again and again does not count';
COMMENT ON COLUMN parallel_apply.subscription_stats.commit_order_aborts IS
    'number of transactions aborted, to be applied again in their turn: because the oldest '
    'transaction waited for one of their locks or must not be applied alongside them, or because '
    'a local session waited for one of their locks before their turn to commit';
COMMENT ON COLUMN parallel_apply.subscription_stats.errors IS
    'number of errors of the apply worker, in a transaction or of the connection, unless '
    '"log_min_messages" keeps them out of the log. Those of writers count as "failed_attempts"';
COMMENT ON COLUMN parallel_apply.subscription_stats.exclusive_table IS
    'number of transactions that were applied while nothing else was, because of triggers or '
    'defaults of a table';
COMMENT ON COLUMN parallel_apply.subscription_stats.exclusive_truncate IS
    'number of transactions that were applied while nothing else was, because of TRUNCATE';
COMMENT ON COLUMN parallel_apply.subscription_stats.exclusive_fallback IS
    'number of transactions that were applied while nothing else was, by the apply worker, '
    'because their rows are not known';
COMMENT ON COLUMN parallel_apply.subscription_stats.refetches IS
    'number of transactions fetched again because they are larger than the queue, and applied '
    'then. One that fails again does not count';
COMMENT ON COLUMN parallel_apply.subscription_stats.pool_stops IS
    'number of times that parallel apply was stopped';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_sync IS
    'number of transactions applied by the apply worker because a table was being synchronized';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_table IS
    'number of transactions applied by the apply worker because they change a relation that is '
    'not a table, or any table while the apply worker keeps a setting or a temporary table, or a '
    'table with user code after that has left something in its session';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_message IS
    'number of transactions applied by the apply worker because a message is larger than the '
    'queue, or is not handled by writers';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_failure IS
    'number of transactions applied by the apply worker because a writer failed twice';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_subscription IS
    'number of transactions applied by the apply worker because of SKIP, a disabled subscription '
    'or a new owner';
COMMENT ON COLUMN parallel_apply.subscription_stats.fallback_no_writer IS
    'number of transactions applied by the apply worker because no writer could be started';
COMMENT ON COLUMN parallel_apply.subscription_stats.leader_transactions IS
    'number of small transactions that the apply worker applied while the writers were idle';
COMMENT ON COLUMN parallel_apply.subscription_stats.streamed_in_progress IS
    'number of streamed transactions that a writer applied while they arrived';
COMMENT ON COLUMN parallel_apply.subscription_stats.streamed_from_file IS
    'number of streamed transactions applied from a file after their end';
COMMENT ON COLUMN parallel_apply.subscription_stats.dependency_waits IS
    'number of times that writers were "waiting for dependency": for an older transaction that '
    'changed the same row';
COMMENT ON COLUMN parallel_apply.subscription_stats.commit_order_waits IS
    'number of times that writers were "waiting for prior commit": for all older transactions to '
    'commit';
COMMENT ON COLUMN parallel_apply.subscription_stats.data_waits IS
    'number of times that writers were "waiting for data": for the rest of a large transaction';
COMMENT ON COLUMN parallel_apply.subscription_stats.leader_waits IS
    'number of times that writers were "waiting for leader": for the apply worker';
COMMENT ON COLUMN parallel_apply.subscription_stats.lock_waits IS
    'estimated number of waits for locks: processes found waiting for one, checked once a '
    'second. A wait of the apply worker counts once for each second that it has lasted; without '
    'writers, it may also be one for the server''s own parallel apply workers';
COMMENT ON COLUMN parallel_apply.subscription_stats.apply_time IS
    'time that writers worked on transactions, without waits for each other, in milliseconds';
COMMENT ON COLUMN parallel_apply.subscription_stats.dependency_wait_time IS
    'total time of "dependency_waits", in milliseconds';
COMMENT ON COLUMN parallel_apply.subscription_stats.commit_order_wait_time IS
    'total time of "commit_order_waits", in milliseconds';
COMMENT ON COLUMN parallel_apply.subscription_stats.data_wait_time IS
    'total time of "data_waits", in milliseconds';
COMMENT ON COLUMN parallel_apply.subscription_stats.leader_wait_time IS
    'total time of "leader_waits", in milliseconds';
COMMENT ON COLUMN parallel_apply.subscription_stats.lock_wait_time IS
    'total time of "lock_waits", in milliseconds: estimated for writers, measured for the apply '
    'worker';
COMMENT ON COLUMN parallel_apply.subscription_stats.last_error_time IS
    'time of the last of the "errors"';
COMMENT ON COLUMN parallel_apply.subscription_stats.last_error IS
    'message of the last of the "errors", as PostgreSQL logs it, which may quote a value';
COMMENT ON COLUMN parallel_apply.subscription_stats.stats_reset IS
    'time at which these statistics were last reset';

CREATE FUNCTION parallel_apply.reset_stats(subscription_name name DEFAULT NULL)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_reset_stats';

COMMENT ON FUNCTION parallel_apply.reset_stats(name) IS
    'resets the statistics of a subscription: its counters and those of its tables, its '
    'conflicts, hot keys and estimated speedup. Without an argument, those of all subscriptions '
    'of this database';

CREATE FUNCTION parallel_apply.get_failed_transactions(
    OUT subid oid,
    OUT remote_xid xid,
    OUT commit_time timestamptz,
    OUT finish_lsn pg_lsn,
    OUT first_failure timestamptz,
    OUT last_failure timestamptz,
    OUT attempts bigint,
    OUT sqlstate text,
    OUT message text,
    OUT change bigint,
    OUT detail text,
    OUT context text,
    OUT schemaname name,
    OUT relname name,
    OUT operation text,
    OUT key text
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_failed_transactions';

COMMENT ON FUNCTION parallel_apply.get_failed_transactions() IS
    'internal: rows of the view "failed_transactions"';

CREATE VIEW parallel_apply.failed_transactions AS
    SELECT f.subid, s.subname, f.remote_xid, f.commit_time, f.finish_lsn, f.first_failure,
           f.last_failure, f.attempts, f.sqlstate, f.message, f.change, f.detail,
           f.context, f.schemaname, f.relname, f.operation, f.key
      FROM parallel_apply.get_failed_transactions() AS f
      JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) f.subid;

COMMENT ON VIEW parallel_apply.failed_transactions IS
    'transactions that subscriptions have failed to apply, until they are applied or skipped';
COMMENT ON COLUMN parallel_apply.failed_transactions.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.failed_transactions.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.failed_transactions.remote_xid IS
    'transaction ID on the publisher';
COMMENT ON COLUMN parallel_apply.failed_transactions.commit_time IS
    'time at which the transaction was committed, or prepared, on the publisher';
COMMENT ON COLUMN parallel_apply.failed_transactions.finish_lsn IS
    'position of its commit, or PREPARE TRANSACTION, in the publisher''s WAL, for ALTER '
    'SUBSCRIPTION ... SKIP (lsn = ...)';
COMMENT ON COLUMN parallel_apply.failed_transactions.first_failure IS 'time of the first failure';
COMMENT ON COLUMN parallel_apply.failed_transactions.last_failure IS 'time of the last failure';
COMMENT ON COLUMN parallel_apply.failed_transactions.attempts IS
    'number of failures. A subscription that is not disabled by an error tries again every '
    '"wal_retrieve_retry_interval"';
COMMENT ON COLUMN parallel_apply.failed_transactions.sqlstate IS 'error code of the last failure';
COMMENT ON COLUMN parallel_apply.failed_transactions.message IS 'error message of the last failure';
COMMENT ON COLUMN parallel_apply.failed_transactions.change IS
    'which of the changes of the transaction failed: 1 is the first one';
COMMENT ON COLUMN parallel_apply.failed_transactions.detail IS 'detail of the error message';
COMMENT ON COLUMN parallel_apply.failed_transactions.context IS
    'where the error occurred: functions and statements that were being executed, and the message '
    'of the publisher; at most 511 bytes';
COMMENT ON COLUMN parallel_apply.failed_transactions.schemaname IS
    'schema of the table that the failed change belongs to';
COMMENT ON COLUMN parallel_apply.failed_transactions.relname IS 'name of that table';
COMMENT ON COLUMN parallel_apply.failed_transactions.operation IS
    'INSERT, UPDATE, DELETE, or another message of the publisher that failed, such as COMMIT '
    'where a deferred constraint is violated';
COMMENT ON COLUMN parallel_apply.failed_transactions.key IS
    'replica identity of the row, at most 255 bytes';

CREATE FUNCTION parallel_apply.get_kept(relation name)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_get_kept';

COMMENT ON FUNCTION parallel_apply.get_kept(name) IS
    'internal: rows of kept_transactions or kept_messages, which REFRESH MATERIALIZED VIEW leaves as they are';

CREATE MATERIALIZED VIEW parallel_apply.kept_transactions AS
    SELECT * FROM parallel_apply.get_kept('kept_transactions') AS k(
        id bigint, subid oid, remote_xid xid, commit_time timestamptz, finish_lsn pg_lsn,
        first_failure timestamptz, last_failure timestamptz, attempts bigint, sqlstate text,
        message text, change bigint, detail text, context text, schemaname name,
        relname name, operation text, key text);
CREATE UNIQUE INDEX kept_transactions_id ON parallel_apply.kept_transactions (id);

COMMENT ON MATERIALIZED VIEW parallel_apply.kept_transactions IS
    'internal: storage for transactions that are to be skipped, or have been';

CREATE MATERIALIZED VIEW parallel_apply.kept_messages AS
    SELECT * FROM parallel_apply.get_kept('kept_messages') AS k(
        id bigint, number integer, message bytea);
CREATE UNIQUE INDEX kept_messages_id_number ON parallel_apply.kept_messages (id, number);

COMMENT ON MATERIALIZED VIEW parallel_apply.kept_messages IS
    'internal: storage for messages of skipped transactions';

CREATE FUNCTION parallel_apply.skip_transaction(subscription_name name, keep boolean DEFAULT true)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_skip_transaction';

COMMENT ON FUNCTION parallel_apply.skip_transaction(name, boolean) IS
    'skips the transaction that a subscription fails to apply, and stores it. Returns the number '
    'under which it is stored, or NULL if "keep" is false: nothing is stored then';

CREATE PROCEDURE parallel_apply.skip_transactions(subscription_name name, max integer, keep boolean DEFAULT true)
LANGUAGE C
AS 'MODULE_PATHNAME', 'papply_skip_transactions';

COMMENT ON PROCEDURE parallel_apply.skip_transactions(name, integer, boolean) IS
    'skips the transaction that a subscription fails to apply, the next one that fails, and so on, '
    'and stores them, until "max" have been skipped or none fails any more. If "keep" is false, '
    'nothing is stored';

CREATE FUNCTION parallel_apply.failed_changes(subscription_name name, OUT number bigint, OUT statement text)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_get_failed_changes';

COMMENT ON FUNCTION parallel_apply.failed_changes(name) IS
    'returns the changes of the transaction that a subscription fails to apply, as SQL '
    'statements. The publisher sends them';

CREATE FUNCTION parallel_apply.forget(id bigint)
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_forget';

COMMENT ON FUNCTION parallel_apply.forget(bigint) IS
    'removes a transaction that was skipped and stored';

CREATE PROCEDURE parallel_apply.replay(id bigint)
LANGUAGE C
AS 'MODULE_PATHNAME', 'papply_replay';

COMMENT ON PROCEDURE parallel_apply.replay(bigint) IS
    'applies a transaction that was skipped and stored, as the apply worker would have done, and '
    'removes it';

CREATE PROCEDURE parallel_apply.replay_transactions(subscription_name name)
LANGUAGE C
AS 'MODULE_PATHNAME', 'papply_replay_transactions';

COMMENT ON PROCEDURE parallel_apply.replay_transactions(name) IS
    'applies all transactions of a subscription that were skipped and stored, in the order of their '
    'commits, and removes them. It stops at the first that fails';

CREATE FUNCTION parallel_apply.skipped_changes(id bigint, OUT number bigint, OUT statement text)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_get_skipped_changes';

COMMENT ON FUNCTION parallel_apply.skipped_changes(bigint) IS
    'returns the changes of a transaction that was skipped and stored, as SQL statements';

CREATE VIEW parallel_apply.skipped_transactions WITH (security_barrier) AS
    SELECT k.id, k.subid, s.subname, k.remote_xid, k.commit_time, k.finish_lsn,
           k.first_failure, k.last_failure, k.attempts, k.sqlstate, k.message, k.change,
           m.changes,
           CASE WHEN r.may_see THEN k.detail END AS detail,
           CASE WHEN r.may_see THEN k.context END AS context,
           CASE WHEN r.may_see THEN k.schemaname END AS schemaname,
           CASE WHEN r.may_see THEN k.relname END AS relname,
           CASE WHEN r.may_see THEN k.operation END AS operation,
           CASE WHEN r.may_see THEN k.key END AS key
      FROM parallel_apply.kept_transactions AS k
      JOIN (SELECT id, pg_catalog.count(*) FILTER (
                       WHERE pg_catalog.get_byte(message, 0)
                             OPERATOR(pg_catalog.=) ANY ('{73,85,68,84}'::integer[])) AS changes
              FROM parallel_apply.kept_messages GROUP BY id) AS m
        ON m.id OPERATOR(pg_catalog.=) k.id
      CROSS JOIN LATERAL (
           SELECT parallel_apply.get_data_visibility(k.subid, k.schemaname, k.relname) AS may_see) AS r
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) k.subid
     WHERE k.subid OPERATOR(pg_catalog.<>) 0 AND parallel_apply.get_visibility(k.subid);

COMMENT ON VIEW parallel_apply.skipped_transactions IS
    'transactions that were skipped and stored';
COMMENT ON COLUMN parallel_apply.skipped_transactions.id IS
    'number of the transaction, for skipped_changes(), replay() and forget()';
COMMENT ON COLUMN parallel_apply.skipped_transactions.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.skipped_transactions.subname IS
    'name of the subscription. NULL if it was dropped while the library was not loaded, and '
    'after "pg_upgrade"';
COMMENT ON COLUMN parallel_apply.skipped_transactions.remote_xid IS
    'transaction ID on the publisher';
COMMENT ON COLUMN parallel_apply.skipped_transactions.commit_time IS
    'time at which the transaction was committed, or prepared, on the publisher';
COMMENT ON COLUMN parallel_apply.skipped_transactions.finish_lsn IS
    'position of its commit, or PREPARE TRANSACTION, in the publisher''s WAL';
COMMENT ON COLUMN parallel_apply.skipped_transactions.first_failure IS 'time of the first failure';
COMMENT ON COLUMN parallel_apply.skipped_transactions.last_failure IS
    'time of the last failure before skip_transaction() was called';
COMMENT ON COLUMN parallel_apply.skipped_transactions.attempts IS
    'number of failures before skip_transaction() was called';
COMMENT ON COLUMN parallel_apply.skipped_transactions.sqlstate IS 'error code of the last failure';
COMMENT ON COLUMN parallel_apply.skipped_transactions.message IS
    'error message of the last failure';
COMMENT ON COLUMN parallel_apply.skipped_transactions.change IS
    'which of the changes of the transaction failed: 1 is the first one';
COMMENT ON COLUMN parallel_apply.skipped_transactions.changes IS
    'number of changes of the transaction';
COMMENT ON COLUMN parallel_apply.skipped_transactions.detail IS 'detail of the error message';
COMMENT ON COLUMN parallel_apply.skipped_transactions.context IS
    'where the error occurred: functions and statements that were being executed, and the message '
    'of the publisher; at most 511 bytes';
COMMENT ON COLUMN parallel_apply.skipped_transactions.schemaname IS
    'schema of the table that the failed change belongs to';
COMMENT ON COLUMN parallel_apply.skipped_transactions.relname IS 'name of that table';
COMMENT ON COLUMN parallel_apply.skipped_transactions.operation IS
    'INSERT, UPDATE, DELETE, or another message of the publisher that failed, such as COMMIT '
    'where a deferred constraint is violated';
COMMENT ON COLUMN parallel_apply.skipped_transactions.key IS
    'replica identity of the row, at most 255 bytes';

CREATE FUNCTION parallel_apply.get_hot_keys(
    OUT subid oid,
    OUT relid oid,
    OUT cause text,
    OUT indexrelid oid,
    OUT key_hash integer,
    OUT key text,
    OUT waits bigint,
    OUT max_error bigint,
    OUT wait_time double precision,
    OUT last_wait timestamptz
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_hot_keys';

COMMENT ON FUNCTION parallel_apply.get_hot_keys() IS
    'internal: rows of the view "hot_keys"';

CREATE VIEW parallel_apply.hot_keys AS
    SELECT k.subid, s.subname, k.relid, n.nspname AS schemaname, c.relname, k.cause,
           k.indexrelid, i.relname AS indexrelname, k.key_hash, k.key, k.waits,
           k.max_error, k.wait_time, k.last_wait
      FROM parallel_apply.get_hot_keys() AS k
      JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) k.relid
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      LEFT JOIN pg_catalog.pg_class AS i ON i.oid OPERATOR(pg_catalog.=) k.indexrelid
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) k.subid;

COMMENT ON VIEW parallel_apply.hot_keys IS
    'rows and unique values that transactions wait for';
COMMENT ON COLUMN parallel_apply.hot_keys.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.hot_keys.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.hot_keys.relid IS 'OID of the table whose changes had to wait';
COMMENT ON COLUMN parallel_apply.hot_keys.schemaname IS 'schema of the table';
COMMENT ON COLUMN parallel_apply.hot_keys.relname IS 'name of the table';
COMMENT ON COLUMN parallel_apply.hot_keys.cause IS
    '"replica identity" or "unique index" if an older transaction had the same key, "barrier" if '
    'an older transaction is applied exclusively';
COMMENT ON COLUMN parallel_apply.hot_keys.indexrelid IS
    'OID of the unique index. NULL for other causes';
COMMENT ON COLUMN parallel_apply.hot_keys.indexrelname IS
    'name of the unique index. NULL for other causes';
COMMENT ON COLUMN parallel_apply.hot_keys.key_hash IS
    'hash of the key, which tells the keys of an index apart. NULL in the row for all of them '
    'together';
COMMENT ON COLUMN parallel_apply.hot_keys.key IS
    'values of the key, at most 127 bytes. NULL for users who may not read all columns and rows '
    'of the table';
COMMENT ON COLUMN parallel_apply.hot_keys.waits IS
    'number of times that a change waited for the key';
COMMENT ON COLUMN parallel_apply.hot_keys.max_error IS
    'maximum overestimate of "waits": at most this many of them belong to keys evicted from the '
    'list';
COMMENT ON COLUMN parallel_apply.hot_keys.wait_time IS
    'total time of these waits since the key entered the list, in milliseconds';
COMMENT ON COLUMN parallel_apply.hot_keys.last_wait IS 'time at which the last wait ended';

CREATE FUNCTION parallel_apply.get_speedup_estimate(
    OUT subid oid,
    OUT num_writers integer,
    OUT speedup double precision,
    OUT transactions bigint
)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_speedup_estimate';

COMMENT ON FUNCTION parallel_apply.get_speedup_estimate() IS
    'internal: rows of the view "speedup_estimate"';

CREATE VIEW parallel_apply.speedup_estimate AS
    SELECT g.subid, s.subname, g.num_writers, g.speedup, g.transactions
      FROM parallel_apply.get_speedup_estimate() AS g
      LEFT JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) g.subid;

COMMENT ON VIEW parallel_apply.speedup_estimate IS
    'upper bound of the speedup of more writers, estimated from the dependencies between transactions';
COMMENT ON COLUMN parallel_apply.speedup_estimate.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.speedup_estimate.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.speedup_estimate.num_writers IS 'number of writers';
COMMENT ON COLUMN parallel_apply.speedup_estimate.speedup IS
    'upper bound of the speedup of this number of writers over one, estimated from the '
    'dependencies between transactions. Processors and storage are not considered';
COMMENT ON COLUMN parallel_apply.speedup_estimate.transactions IS
    'number of transactions that this was estimated from: the first 1024 of each 8192, newer '
    'ones counting more. Most "leader_transactions" are not among them';

CREATE VIEW parallel_apply.table_options AS
    SELECT c.oid AS relid, n.nspname AS schemaname, c.relname,
           pg_catalog.split_part(l.label, '=', 1) AS option,
           pg_catalog.split_part(l.label, '=', 2) AS value
      FROM pg_catalog.pg_seclabel AS l
      JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.objoid
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE l.provider OPERATOR(pg_catalog.=) 'parallel_apply'
       AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass;

COMMENT ON VIEW parallel_apply.table_options IS
    'options of tables, which set_table_option() sets';
COMMENT ON COLUMN parallel_apply.table_options.relid IS 'OID of the table';
COMMENT ON COLUMN parallel_apply.table_options.schemaname IS 'schema of the table';
COMMENT ON COLUMN parallel_apply.table_options.relname IS 'name of the table';
COMMENT ON COLUMN parallel_apply.table_options.option IS 'name of the option: "triggers"';
COMMENT ON COLUMN parallel_apply.table_options.value IS
    'value of the option: "parallel" or "exclusive"';

CREATE FUNCTION parallel_apply.set_table_option(relation regclass, option text, value text)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_set_table_option';

COMMENT ON FUNCTION parallel_apply.set_table_option(regclass, text, text) IS
    'sets an option of a table: "triggers" to "parallel" or "exclusive"';

-- A group is a server of this wrapper, whose handler would read no table: it is
-- dumped and restored as such, and never replicated.
CREATE FUNCTION parallel_apply.group_validator(options text[], catalog oid)
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_group_validator';

COMMENT ON FUNCTION parallel_apply.group_validator(text[], oid) IS
    'internal: validates the options of a group';

CREATE FOREIGN DATA WRAPPER parallel_apply
    NO HANDLER VALIDATOR parallel_apply.group_validator;

COMMENT ON FOREIGN DATA WRAPPER parallel_apply IS
    'storage for subscription groups (each group is a foreign server); never accessed';

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
    'groups of subscriptions that share a number of writers';
COMMENT ON COLUMN parallel_apply.groups.group_name IS 'name of the group';
COMMENT ON COLUMN parallel_apply.groups.num_writers IS
    'number of writers of each member; NULL if that of the setting applies';

CREATE FUNCTION parallel_apply.create_group(group_name name, num_writers integer DEFAULT NULL)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_create_group';

COMMENT ON FUNCTION parallel_apply.create_group(name, integer) IS
    'creates a group of subscriptions of this database. Without a number of writers, the setting '
    'applies';

CREATE FUNCTION parallel_apply.drop_group(group_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_drop_group';

COMMENT ON FUNCTION parallel_apply.drop_group(name) IS
    'drops a group that has no members';

CREATE FUNCTION parallel_apply.alter_group_config(group_name name, num_writers integer)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS 'MODULE_PATHNAME', 'papply_alter_group_config';

COMMENT ON FUNCTION parallel_apply.alter_group_config(name, integer) IS
    'sets the number of writers of all members of a group that have none of their own. NULL: the '
    'setting applies';

CREATE FUNCTION parallel_apply.add_subscription(group_name name, subscription_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_add_subscription';

COMMENT ON FUNCTION parallel_apply.add_subscription(name, name) IS
    'adds a subscription to a group. A subscription can be in one group';

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
    'sets the number of writers of a subscription. NULL: that of its group or of the setting '
    'applies';

CREATE FUNCTION parallel_apply.pause(subscription_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_pause';

COMMENT ON FUNCTION parallel_apply.pause(name) IS
    'pauses apply of a subscription, which stays connected. Once the call has committed, no '
    'further transaction is begun; what was received before is applied';

CREATE FUNCTION parallel_apply.pause(subscription_name name, at_lsn pg_lsn, timeout interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_pause_at';

COMMENT ON FUNCTION parallel_apply.pause(name, pg_lsn, interval) IS
    'pauses apply of a subscription at a position of the publisher''s WAL until the session ends, '
    'and waits until exactly what ended before it is committed. NULL: the position where the '
    'subscription is. Returns false if the timeout passes first; the pause remains';

CREATE FUNCTION parallel_apply.resume(subscription_name name)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_resume';

COMMENT ON FUNCTION parallel_apply.resume(name) IS
    'resumes apply of a subscription that was paused, also by another session';

CREATE FUNCTION parallel_apply.wait_for_lsn(subscription_name name, lsn pg_lsn, timeout interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_wait_for_lsn';

COMMENT ON FUNCTION parallel_apply.wait_for_lsn(name, pg_lsn, interval) IS
    'waits until everything up to a position of the publisher''s WAL is committed. On a standby '
    'of the subscriber, it also waits for the replay of that. Returns false if the timeout '
    'passes first';

CREATE FUNCTION parallel_apply.drain(subscription_name name, timeout interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_drain';

COMMENT ON FUNCTION parallel_apply.drain(name, interval) IS
    'waits until everything that has been received is committed. Returns false if the timeout '
    'passes first';

CREATE FUNCTION parallel_apply.resync_table(subscription_name name, relation regclass,
                                            truncate boolean DEFAULT false)
RETURNS void
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_resync_table';

COMMENT ON FUNCTION parallel_apply.resync_table(name, regclass, boolean) IS
    'has one table of a subscription copied again by PostgreSQL''s own table synchronization, '
    'which replaces its rows in one transaction, while all others are applied. If "truncate" '
    'is true, this takes less time, and sessions that use the table wait. Returns before '
    'that; the copy begins when the call has committed';

CREATE VIEW parallel_apply.subscription_config AS
    SELECT s.oid AS subid, s.subname, o.group_name, o.num_writers, o.writers_wanted,
           o.source, o.paused
      FROM pg_catalog.pg_subscription AS s,
           LATERAL parallel_apply.get_subscription_options(s.oid) AS o
     WHERE s.subdbid OPERATOR(pg_catalog.=)
           (SELECT d.oid FROM pg_catalog.pg_database AS d
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
       AND parallel_apply.get_visibility(s.oid);

COMMENT ON VIEW parallel_apply.subscription_config IS
    'configuration of the subscriptions of this database';
COMMENT ON COLUMN parallel_apply.subscription_config.subid IS 'OID of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_config.subname IS 'name of the subscription';
COMMENT ON COLUMN parallel_apply.subscription_config.group_name IS
    'group of the subscription. NULL if it is in none';
COMMENT ON COLUMN parallel_apply.subscription_config.num_writers IS
    'number of writers configured for the subscription itself. NULL if there is none';
COMMENT ON COLUMN parallel_apply.subscription_config.writers_wanted IS
    'resulting number of writers; 0 if the apply worker is to apply alone';
COMMENT ON COLUMN parallel_apply.subscription_config.source IS
    'where that number comes from: "subscription", "group" or "setting"';
COMMENT ON COLUMN parallel_apply.subscription_config.paused IS
    'whether apply is paused until resume()';

-- Written to be read by psql's \gexec, or as a script.
CREATE FUNCTION parallel_apply.export_config()
RETURNS SETOF text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
WITH calls(step, name, call) AS (
    SELECT 1, g.group_name::text,
           format('create_group(%L, %s)', g.group_name, coalesce(g.num_writers::text, 'NULL'))
      FROM parallel_apply.groups AS g
    UNION ALL
    SELECT 2, c.subname::text,
           format('alter_subscription_config(%L, %s)', c.subname, c.num_writers)
      FROM parallel_apply.subscription_config AS c
     WHERE c.num_writers IS NOT NULL
    UNION ALL
    SELECT 3, c.subname::text, format('add_subscription(%L, %L)', c.group_name, c.subname)
      FROM parallel_apply.subscription_config AS c
      JOIN parallel_apply.groups AS g ON g.group_name = c.group_name
    UNION ALL
    SELECT 4, c.subname::text, format('pause(%L)', c.subname)
      FROM parallel_apply.subscription_config AS c
     WHERE c.paused
    UNION ALL
    SELECT 5, format('%I.%I', o.schemaname, o.relname),
           format('set_table_option(%L, %L, %L)', format('%I.%I', o.schemaname, o.relname),
                  o.option, o.value)
      FROM parallel_apply.table_options AS o
)
SELECT format('SELECT parallel_apply.%s;', c.call)
  FROM calls AS c
 ORDER BY c.step, c.name;
END;

COMMENT ON FUNCTION parallel_apply.export_config() IS
    'returns the calls that restore the groups, and the options of subscriptions and tables, of '
    'this database on another server';

CREATE FUNCTION parallel_apply.find_subscription(subscription_name name)
RETURNS oid
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_find_subscription';

COMMENT ON FUNCTION parallel_apply.find_subscription(name) IS
    'internal: OID of a subscription of this database';

CREATE FUNCTION parallel_apply.get_processors()
RETURNS integer
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_processors';

COMMENT ON FUNCTION parallel_apply.get_processors() IS
    'internal: number of processors of this server';

CREATE FUNCTION parallel_apply.get_worker_processes()
RETURNS integer
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'papply_get_worker_processes';

COMMENT ON FUNCTION parallel_apply.get_worker_processes() IS
    'internal: number of background workers that run, without those of queries';

-- The first statement raises an error for a subscription that does not exist.
-- doc/advice.md explains the thresholds.
CREATE FUNCTION parallel_apply.advice(
    subscription_name name DEFAULT NULL,
    OUT subname name,
    OUT topic text,
    OUT level text,
    OUT advice text,
    OUT evidence text
)
RETURNS SETOF record
LANGUAGE sql CALLED ON NULL INPUT VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
SELECT parallel_apply.find_subscription(subscription_name);

WITH s AS MATERIALIZED (
    SELECT v.subid, v.subname, v.state, v.reason, v.writers_wanted, v.writers_running,
           v.queue_bytes, v.lag, v.strict_reason, n.transactions, n.retries,
           n.fallback_sync + n.fallback_table + n.fallback_message + n.fallback_failure
           + n.fallback_subscription + n.fallback_no_writer AS left_transactions,
           n.leader_transactions, n.commit_order_aborts, n.exclusive_table, n.exclusive_truncate, n.refetches,
           n.exclusive_fallback, n.fallback_sync, n.fallback_table,
           n.fallback_message, n.fallback_failure, n.last_error,
           n.inserts + n.updates + n.deletes AS rows,
           v.state IN ('failing', 'disabled by error', 'disconnected', 'not running', 'paused', 'disabled')
           AS is_stopped,
           1000 * extract(epoch FROM clock_timestamp()
                          - greatest(n.stats_reset, pg_postmaster_start_time())) AS clock_ms,
           greatest(c.writers_wanted, 1) AS target_writers, c.source,
           CASE c.source WHEN 'subscription' THEN c.num_writers
                WHEN 'group' THEN (SELECT g.num_writers FROM parallel_apply.groups AS g
                                    WHERE g.group_name = c.group_name)
                ELSE current_setting('parallel_apply.writers_per_subscription')::integer
           END AS configured_writers,
           q.max_bytes, v.queue_transactions,
           greatest(v.queue_bytes::float8 / q.max_bytes,
                    v.queue_transactions::float8 / q.max_transactions) AS queue_fill
      FROM parallel_apply.subscriptions AS v
      JOIN parallel_apply.subscription_stats AS n USING (subid)
      JOIN parallel_apply.subscription_config AS c USING (subid)
      LEFT JOIN parallel_apply.get_subscriptions() AS q USING (subid)
     WHERE advice.subscription_name IS NULL OR v.subname = advice.subscription_name
), busy AS (
    SELECT w.subid, count(*) FILTER (WHERE w.state NOT IN ('idle', 'waiting for data')) AS writers
      FROM parallel_apply.writers AS w
     WHERE w.writer > 0
     GROUP BY w.subid
), worker_processes AS (
    SELECT parallel_apply.get_worker_processes() AS used,
           current_setting('max_worker_processes')::integer AS all,
           current_setting('parallel_apply.reserved_worker_processes')::integer AS reserved
), limits AS (
    SELECT s.subid, l.setting, l.slots, l.processors,
           least(l.setting, s.writers_running + l.slots,
                 CASE WHEN l.reads_storage THEN l.setting ELSE l.processors END) AS writers
      FROM s CROSS JOIN LATERAL (
           SELECT current_setting('parallel_apply.max_writers_per_subscription')::integer AS setting,
                  (SELECT greatest(p.all - p.used - p.reserved, 0) FROM worker_processes AS p) AS slots,
                  parallel_apply.get_processors() AS processors,
                  (SELECT coalesce(sum(w.prefetched), 0) > 0 FROM parallel_apply.writers AS w
                    WHERE w.subid = s.subid) AS reads_storage) AS l
), gain AS (
    SELECT s.subid, max(g.transactions) AS transactions, max(g.speedup) AS best,
           max(g.speedup) FILTER (WHERE g.num_writers <= l.writers) AS possible,
           max(g.speedup) FILTER (WHERE g.num_writers <= s.target_writers) AS have,
           max(g.speedup) FILTER (WHERE g.num_writers <= 2 * s.target_writers) AS twice,
           string_agg(format('%s with %s', round(g.speedup::numeric, 1), g.num_writers), ', '
                      ORDER BY g.num_writers)
               FILTER (WHERE g.num_writers IN (2, 4, 8, 16, 32)) AS list
      FROM s JOIN parallel_apply.speedup_estimate AS g USING (subid) JOIN limits AS l USING (subid)
     GROUP BY s.subid
), enough AS (
    SELECT g.subid, min(w.num_writers) FILTER (WHERE w.speedup >= 0.9 * g.best) AS writers,
           min(w.num_writers) FILTER (WHERE w.speedup >= 0.9 * g.possible) AS possible_writers
      FROM gain AS g JOIN parallel_apply.speedup_estimate AS w USING (subid)
     GROUP BY g.subid
), hottest AS (
    SELECT DISTINCT ON (k.subid) k.*
      FROM parallel_apply.hot_keys AS k
     WHERE k.key_hash IS NOT NULL
     ORDER BY k.subid, k.wait_time DESC
), lock_waits AS MATERIALIZED (
    SELECT s.subid, s.subname, a.pid, a.state, a.state_change,
           -- of the lock itself, or of the row, whose locker the process waits for
           (SELECT min(l.relation::regclass::text) FROM pg_locks AS l
             WHERE l.pid = w.pid AND (NOT l.granted OR l.locktype = 'tuple')) AS relation,
           w.writer = 0 AND s.writers_running > 0 AND s.leader_transactions > s.left_transactions
           AND current_setting('parallel_apply.leader_participation')::boolean AS may_be_avoided
      FROM s JOIN parallel_apply.writers AS w USING (subid)
      JOIN pg_stat_activity AS a ON a.pid = ANY (w.blocked_by)
     WHERE w.state = 'waiting for lock'
       AND coalesce(a.backend_type, 'client backend') = 'client backend'
), sent_late AS MATERIALIZED (
    SELECT s.subid, s.subname, s.lag, s.queue_bytes, s.writers_running, coalesce(b.writers, 0) AS busy_writers
      FROM s LEFT JOIN busy AS b USING (subid)
     WHERE s.state = 'parallel' AND s.lag > interval '5 seconds'
       AND s.queue_fill < 0.1 AND 2 * coalesce(b.writers, 0) <= s.writers_running
       AND NOT EXISTS (SELECT FROM parallel_apply.writers AS w
                        WHERE w.subid = s.subid AND w.state <> 'waiting for data'
                          AND w.xact_start < clock_timestamp() - interval '1 second')
), changed_tables AS (
    SELECT t.*, t.inserts + t.updates + t.deletes AS changes
      FROM parallel_apply.tables AS t
), rows(subname, topic, level, advice, evidence) AS (
    SELECT s.subname, 'state',
           CASE WHEN s.state IN ('native', 'starting', 'stopping', 'standby') THEN 'info'
                WHEN s.state IN ('paused', 'synchronizing', 'disabled') THEN 'notice'
                ELSE 'warning' END,
           CASE s.state
                WHEN 'standby' THEN 'this server is a standby: ask its primary'
                WHEN 'disabled' THEN 'it is not applied, and the publisher keeps its WAL'
                WHEN 'paused' THEN 'it is not applied until parallel_apply.resume(), and the publisher keeps its WAL'
                WHEN 'failing' THEN
                     CASE WHEN EXISTS (SELECT FROM parallel_apply.failed_transactions AS f WHERE f.subid = s.subid)
                          THEN 'a transaction fails again and again: nothing is applied until that is resolved, '
                               'see "parallel_apply.failed_transactions", failed_changes() and skip_transaction()'
                          ELSE 'the apply worker fails again and again, but not in a transaction: resolve the error' END
                WHEN 'disabled by error' THEN
                     CASE WHEN EXISTS (SELECT FROM pg_subscription AS p WHERE p.oid = s.subid AND p.subskiplsn <> '0/0')
                          THEN 'an error has disabled it, and the transaction is to be skipped: enable it'
                          ELSE 'an error has disabled it: resolve the error or skip the transaction, then enable it, '
                               'see "parallel_apply.failed_transactions", failed_changes() and skip_transaction()' END
                WHEN 'disconnected' THEN 'there is no connection to the publisher'
                WHEN 'not running' THEN 'it has no apply worker: see "max_logical_replication_workers", "max_worker_processes" and the server log'
                WHEN 'degraded' THEN 'it has fewer writers than configured'
                WHEN 'synchronizing' THEN 'tables are being synchronized: transactions that change them are applied by the apply worker'
                WHEN 'starting' THEN 'its writers are being started'
                WHEN 'stopping' THEN 'its writers are being stopped'
                ELSE 'it is applied by the apply worker, as configured'
           END,
           format('state %s: %s', s.state, s.reason)
      FROM s WHERE s.state <> 'parallel'
    UNION ALL
    SELECT s.subname, 'max_worker_processes', 'warning',
           format('only %s of %s writers run: raise "max_worker_processes" to at least %s, and restart the server',
                  s.writers_running, s.writers_wanted,
                  p.used + p.reserved + s.writers_wanted - s.writers_running),
           format('%s of %s worker processes of the server are in use, and %s reserved', p.used, p.all,
                  p.reserved)
      FROM s, worker_processes AS p
     WHERE s.state = 'degraded' AND s.writers_running < s.writers_wanted AND p.used + p.reserved >= p.all
    UNION ALL
    SELECT s.subname, 'max_logical_replication_workers', 'warning',
           'tables wait to be copied until a logical replication worker ends: raise "max_logical_replication_workers", and restart the server',
           format('%s tables wait; %s of %s logical replication workers run, %s of which copy tables of the subscription',
                  w.tables, w.used, w.all, w.copying)
      FROM s CROSS JOIN LATERAL (
           SELECT count(p.pid) AS used,
                  count(p.relid) FILTER (WHERE p.subid = s.subid) AS copying,
                  (SELECT count(*) FROM pg_subscription_rel AS r
                    WHERE r.srsubid = s.subid AND r.srsubstate = 'i') AS tables,
                  current_setting('max_logical_replication_workers')::integer AS all
             FROM pg_stat_subscription AS p) AS w
     WHERE w.tables > 0 AND w.used >= w.all
       AND w.copying < current_setting('max_sync_workers_per_subscription')::integer
    UNION ALL
    SELECT s.subname, 'max_writers_per_subscription', 'notice',
           'it has fewer writers than configured: raise "parallel_apply.max_writers_per_subscription"',
           format('%s writers configured by %s, %s allowed', s.configured_writers, s.source,
                  s.target_writers)
      FROM s WHERE s.configured_writers > s.target_writers
    UNION ALL
    SELECT s.subname, 'writers',
           CASE WHEN g.best < 1.5 AND g.transactions >= 100 THEN 'notice' ELSE 'info' END,
           CASE WHEN g.transactions IS NULL OR g.transactions < 100
                THEN 'too few transactions were applied by writers to tell whether more writers would help'
                WHEN g.best < 1.5
                THEN 'more writers do not help: almost every transaction depends on the one before it'
                WHEN g.twice < 1.25 * g.have
                THEN format('more writers do not help: transactions depend on each other; %s are enough',
                            least(e.writers, s.target_writers))
                WHEN e.possible_writers <= s.target_writers OR g.possible < 1.25 * g.have
                THEN format('transactions would allow %s writers, but this server does not: it has %s processors and '
                            '%s free worker processes, and "parallel_apply.max_writers_per_subscription" is %s. '
                            'More writers than processors help if they wait, for example in functions of triggers',
                            e.writers, l.processors, l.slots, l.setting)
                WHEN s.lag IS NULL OR s.lag < interval '1 second'
                THEN format('it keeps up with %s writers; %s would apply a backlog up to %s times as fast',
                            s.target_writers, e.possible_writers, round((g.possible / g.have)::numeric, 1))
                ELSE format('more writers can help: %s would apply up to %s times as fast as the %s that it has',
                            e.possible_writers, round((g.possible / g.have)::numeric, 1), s.target_writers)
           END,
           format('estimated speedup over one writer, from the dependencies of %s transactions: %s',
                  coalesce(g.transactions, 0), coalesce(g.list, 'none'))
      FROM s JOIN limits AS l USING (subid) LEFT JOIN gain AS g USING (subid)
      LEFT JOIN enough AS e USING (subid)
     WHERE s.writers_wanted > 0 AND s.state <> 'standby' AND NOT s.is_stopped
       AND NOT EXISTS (SELECT FROM lock_waits AS w WHERE w.subid = s.subid)
       AND NOT EXISTS (SELECT FROM sent_late AS p WHERE p.subid = s.subid)
    UNION ALL
    SELECT s.subname, 'hot_key', 'warning',
           format('%s %% of the time of its writers is spent in waits for one %s of table %s: %s; more writers '
                  'do not help with it. '
                  'Spread it over several rows, or change it in fewer and shorter transactions',
                  round((100 * h.wait_time / (s.clock_ms * s.target_writers))::numeric, 1),
                  CASE h.cause WHEN 'unique index' THEN 'value of unique index ' || h.indexrelname
                               ELSE 'row' END,
                  h.relid::regclass,
                  coalesce('key (' || h.key || ')', 'that with key hash ' || h.key_hash)),
           format('%s waits, %s ms in all, in %s', h.waits - h.max_error, round(h.wait_time::numeric),
                  date_trunc('second', s.clock_ms * interval '1 ms'))
      FROM s JOIN hottest AS h USING (subid)
     WHERE s.transactions >= 100 AND h.wait_time >= 0.01 * s.clock_ms * s.target_writers
    UNION ALL
    SELECT s.subname, 'exclusive_table',
           CASE WHEN s.exclusive_table >= 0.05 * s.transactions THEN 'warning' ELSE 'notice' END,
           format('transactions that change table %s are applied alone: %s. Remedy: %s',
                  t.relid::regclass, t.reason, t.remedy),
           format('%s of %s changed rows; %s of %s transactions were applied alone because of such tables',
                  t.changes, greatest(s.rows, t.changes), s.exclusive_table, s.transactions)
      FROM s JOIN changed_tables AS t USING (subid)
     WHERE t.apply_mode = 'exclusive' AND t.changes IS DISTINCT FROM 0
    UNION ALL
    SELECT s.subname, 'table', 'warning',
           format('table %s: %s. Remedy: %s', t.relid::regclass, t.reason, t.remedy),
           format('%s rows updated, %s deleted', t.updates, t.deletes)
      FROM s JOIN changed_tables AS t USING (subid)
     WHERE 'intercepted_table' = ANY (t.findings)
        OR t.apply_mode = 'parallel'
       AND ('foreign_partition' = ANY (t.findings)
            OR t.findings && '{no_replica_identity,no_usable_index}'
               AND t.updates + t.deletes IS DISTINCT FROM 0)
    UNION ALL
    SELECT s.subname, 'conflicts', 'warning',
           format('rows of table %s to be updated or deleted did not exist: it differs from the publisher''s, '
                  'or local sessions change it', k.relid::regclass),
           format('%s updates, %s deletes; the last conflict at %s: %s%s', k.update_missing, k.delete_missing,
                  date_trunc('second', k.last_conflict_time), k.last_conflict,
                  coalesce(' of key ' || k.last_conflict_key, ''))
      FROM s JOIN parallel_apply.conflicts AS k USING (subid)
     WHERE k.update_missing + k.delete_missing > 0
    UNION ALL
    SELECT s.subname, 'truncate', 'notice',
           'many transactions with TRUNCATE, each of which is applied alone: delete rows instead, or truncate less often',
           format('%s of %s transactions', s.exclusive_truncate, s.transactions)
      FROM s WHERE s.transactions >= 100 AND s.exclusive_truncate > 10
       AND s.exclusive_truncate >= 0.05 * s.transactions
    UNION ALL
    SELECT s.subname, 'fallback', 'notice',
           'many transactions are left to PostgreSQL''s own apply',
           format('%s of %s transactions; tables being synchronized %s, tables %s, messages %s, second failures %s',
                  s.left_transactions, s.transactions, s.fallback_sync,
                  s.fallback_table, s.fallback_message, s.fallback_failure)
      FROM s WHERE s.state = 'parallel' AND s.transactions >= 100 AND s.left_transactions > 10
       AND s.left_transactions >= 0.1 * s.transactions
    UNION ALL
    SELECT s.subname, 'retries', 'notice',
           CASE WHEN 2 * s.commit_order_aborts >= s.retries -- which follow rollbacks, too
                THEN 'many transactions are rolled back in favor of older ones that are applied alone or wait for their locks, '
                     'or of local sessions: see apply modes and unique indexes in parallel_apply.tables'
                ELSE 'many transactions are tried again: see unique indexes in parallel_apply.tables, and local sessions that lock rows'
           END,
           format('%s second attempts and %s rollbacks in favor of older ones, of %s transactions',
                  s.retries, s.commit_order_aborts, s.transactions)
      FROM s WHERE s.transactions >= 100 AND greatest(s.retries, s.commit_order_aborts) > 10
       AND greatest(s.retries, s.commit_order_aborts) >= 0.02 * s.transactions
    UNION ALL
    SELECT s.subname, 'queue_size', 'warning',
           'transactions larger than the queue had to be fetched again: raise "parallel_apply.queue_size"',
           format('%s times; it is %s', s.refetches, current_setting('parallel_apply.queue_size'))
      FROM s WHERE s.refetches > 0 AND s.state NOT IN ('failing', 'disabled', 'disabled by error')
    UNION ALL
    SELECT s.subname, 'limit', 'info',
           'the queue is full: the subscriber is the limit, not the publisher. '
           'A larger "parallel_apply.queue_size" would only be full later',
           format('%s transactions, %s of %s', s.queue_transactions,
                  pg_size_pretty(s.queue_bytes), pg_size_pretty(s.max_bytes))
      FROM s WHERE s.queue_fill >= 0.9
    UNION ALL
    SELECT p.subname, 'publisher', 'notice',
           'the publisher, which decodes one transaction after the other, or the network is the limit: '
           'writers have little to do although the subscription is behind; more of them do not help, '
           'but "parallel_apply.coalesce_messages" on a publisher that preloads "parallel_apply" may',
           format('%s behind, %s in the queue, %s of %s writers busy', p.lag,
                  pg_size_pretty(p.queue_bytes), p.busy_writers, p.writers_running)
      FROM sent_late AS p
    UNION ALL
    SELECT s.subname, 'logical_decoding',
           CASE WHEN s.lag > interval '5 seconds' THEN 'notice' ELSE 'info' END,
           'each transaction is applied by itself, although several together would take less time: '
           'if nothing needs the changes of this subscription one by one, remove the reason, or set '
           '"parallel_apply.logical_decoding"',
           s.strict_reason
      FROM s WHERE s.strict_reason IS NOT NULL
    UNION ALL
    SELECT w.subname, 'lock', 'warning',
           format('apply waits for a lock of a local session%s: %s%s',
                  ' on ' || string_agg(DISTINCT w.relation, ', '), string_agg(DISTINCT w.pid::text, ', '),
                  CASE WHEN bool_or(w.may_be_avoided)
                       THEN '. The apply worker itself waits, and receives nothing: if this is often so, turn off '
                            '"parallel_apply.leader_participation"' END),
           string_agg(DISTINCT format('process %s has been %s since %s', w.pid, coalesce(w.state, '?'),
                             date_trunc('second', w.state_change)), '; ')
      FROM lock_waits AS w
     GROUP BY w.subid, w.subname
)
SELECT r.subname, r.topic, r.level, r.advice, r.evidence
  FROM rows AS r
 ORDER BY r.subname, r.topic = 'state' AND r.subname IN (SELECT s.subname FROM s WHERE s.is_stopped) DESC,
          array_position('{warning,notice,info}'::text[], r.level), r.topic;
END;

COMMENT ON FUNCTION parallel_apply.advice(name) IS
    'says what limits a subscription and what would help. Without an argument, it does so for '
    'all subscriptions of this database';

-- Subscriptions that this statement switches to parallel apply.
CREATE FUNCTION parallel_apply.report_subscriptions(names name[])
RETURNS void
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'papply_report_subscriptions';

SELECT parallel_apply.report_subscriptions(pg_catalog.array_agg(c.subname ORDER BY c.subname))
  FROM parallel_apply.subscription_config AS c
  JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) c.subid
 WHERE s.subenabled AND c.writers_wanted OPERATOR(pg_catalog.>) 1;

DROP FUNCTION parallel_apply.report_subscriptions(name[]);

-- A user sees the rows of the subscriptions that he may see, and changes those that
-- he owns: the functions check that.
GRANT USAGE ON SCHEMA parallel_apply TO PUBLIC;
GRANT SELECT ON parallel_apply.subscriptions, parallel_apply.subscription_stats,
    parallel_apply.writers, parallel_apply.tables, parallel_apply.failed_transactions,
    parallel_apply.skipped_transactions, parallel_apply.hot_keys,
    parallel_apply.speedup_estimate, parallel_apply.subscription_config,
    parallel_apply.groups, parallel_apply.table_options, parallel_apply.conflicts TO PUBLIC;
GRANT EXECUTE ON FUNCTION parallel_apply.get_visibility(oid),
    parallel_apply.get_data_visibility(oid, name, name), parallel_apply.get_subscriptions(),
    parallel_apply.get_subscription_options(oid), parallel_apply.get_subscription_stats(),
    parallel_apply.get_writers(), parallel_apply.get_table(oid, oid, "char"),
    parallel_apply.get_conflicts(), parallel_apply.get_failed_transactions(), parallel_apply.get_hot_keys(),
    parallel_apply.get_speedup_estimate(), parallel_apply.find_subscription(name),
    parallel_apply.get_processors(), parallel_apply.get_worker_processes(),
    parallel_apply.advice(name), parallel_apply.version(),
    parallel_apply.add_subscription(name, name),
    parallel_apply.remove_subscription(name, name),
    parallel_apply.alter_subscription_config(name, integer),
    parallel_apply.set_table_option(regclass, text, text),
    parallel_apply.pause(name), parallel_apply.pause(name, pg_lsn, interval), parallel_apply.resume(name),
    parallel_apply.resync_table(name, regclass, boolean),
    parallel_apply.wait_for_lsn(name, pg_lsn, interval),
    parallel_apply.drain(name, interval), parallel_apply.skip_transaction(name, boolean),
    parallel_apply.forget(bigint), parallel_apply.skipped_changes(bigint),
    parallel_apply.failed_changes(name) TO PUBLIC;
GRANT EXECUTE ON PROCEDURE parallel_apply.replay(bigint), parallel_apply.replay_transactions(name),
    parallel_apply.skip_transactions(name, integer, boolean) TO PUBLIC;

REVOKE ALL ON FUNCTION parallel_apply.check_library_version(text),
    parallel_apply.group_validator(text[], oid), parallel_apply.get_kept(name),
    parallel_apply.create_group(name, integer), parallel_apply.drop_group(name),
    parallel_apply.alter_group_config(name, integer), parallel_apply.reset_stats(name),
    parallel_apply.export_config() FROM PUBLIC;
REVOKE ALL ON parallel_apply.kept_transactions, parallel_apply.kept_messages FROM PUBLIC;
GRANT EXECUTE ON FUNCTION parallel_apply.export_config() TO pg_monitor;
