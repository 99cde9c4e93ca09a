-- One-line checks of the subscriptions of a database, for members of pg_monitor.  Each has
-- the value in the column result, and what it is about in the column about, as in
--   check_postgres --action=custom_query --valtype=integer --critical=1 --query="..."
-- A check of the lag says nothing while the lag is unknown, hence the check "stopped".

-- behind: the largest lag in seconds; warning 60
SELECT coalesce(ceil(extract(epoch FROM max(lag)))::bigint, 0) AS result, string_agg(format('%s: %s', subname, lag), ', ' ORDER BY lag DESC) AS about FROM parallel_apply.subscriptions

-- stopped: number of subscriptions for which nothing is applied; critical 1
SELECT count(*) AS result, string_agg(format('%s: %s', subname, state), ', ' ORDER BY subname) AS about FROM parallel_apply.subscriptions WHERE state IN ('failing', 'disconnected', 'not running')

-- disabled: number of subscriptions that were disabled after an error; critical 1
SELECT count(*) AS result, string_agg(subname, ', ' ORDER BY subname) AS about FROM parallel_apply.subscriptions WHERE state = 'disabled by error'

-- degraded: number of subscriptions that lack writers; warning 1
SELECT count(*) AS result, string_agg(format('%s: %s of %s', subname, writers_running, writers_wanted), ', ' ORDER BY subname) AS about FROM parallel_apply.subscriptions WHERE state = 'degraded'

-- native: percentage of transactions applied by the apply worker although writers were there; warning 50
SELECT coalesce(max(100 * fallbacks / nullif(transactions, 0)), 0) AS result, string_agg(subname, ', ' ORDER BY subname) FILTER (WHERE fallbacks > transactions / 2) AS about FROM parallel_apply.subscriptions JOIN parallel_apply.subscription_stats USING (subid, subname) CROSS JOIN LATERAL (SELECT fallback_sync + fallback_table + fallback_message + fallback_failure + fallback_subscription + fallback_no_writer) AS f(fallbacks) WHERE writers_wanted > 0

-- missing: number of rows to be updated or deleted that did not exist; warning 1
SELECT coalesce(sum(missing), 0) AS result, string_agg(DISTINCT format('%I.%I', schemaname, relname), ', ') FILTER (WHERE missing > 0) AS about FROM parallel_apply.tables
