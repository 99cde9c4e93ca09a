-- The views: who may look, and what they show of a server where nothing is
-- applied.
CREATE EXTENSION parallel_apply;
CREATE ROLE regress_papply_nobody;
CREATE ROLE regress_papply_monitor IN ROLE pg_monitor;

-- A subscription that does not run has a row, and says so.
SELECT count(*) FROM parallel_apply.subscriptions;
SET client_min_messages = error;
CREATE SUBSCRIPTION regress_papply_sub CONNECTION 'host=nowhere' PUBLICATION nothing
    WITH (connect = false, slot_name = NONE);
RESET client_min_messages;
SELECT subname, state, reason, pid, writers_wanted, writers_running, lag
  FROM parallel_apply.subscriptions;
SELECT subname, transactions, batch_size, last_error, stats_reset
  FROM parallel_apply.subscription_stats;
SELECT count(*) FROM parallel_apply.get_subscriptions();
SELECT count(*) FROM parallel_apply.get_subscription_stats();
SELECT count(*) FROM parallel_apply.writers;

-- Reset the counters of one subscription, or of all.
SELECT parallel_apply.reset_stats('regress_papply_sub');
SELECT parallel_apply.reset_stats(subscription_name => 'regress_papply_sub');
SELECT parallel_apply.reset_stats();
SELECT parallel_apply.reset_stats(NULL);
SELECT parallel_apply.reset_stats('regress_papply_other');

-- pg_monitor sees all, others what they own; neither may reset.
SET ROLE regress_papply_monitor;
SELECT subname, state FROM parallel_apply.subscriptions;
SELECT count(*) FROM parallel_apply.get_subscriptions();
SELECT subname, transactions FROM parallel_apply.subscription_stats;
SELECT count(*) FROM parallel_apply.get_subscription_stats();
SELECT parallel_apply.reset_stats('regress_papply_sub');
SET ROLE regress_papply_nobody;
SELECT count(*) FROM parallel_apply.subscriptions;
SELECT count(*) FROM parallel_apply.subscription_stats;
SELECT count(*) FROM parallel_apply.get_subscriptions();
SELECT parallel_apply.reset_stats();
RESET ROLE;

-- That can be granted.
GRANT EXECUTE ON FUNCTION parallel_apply.reset_stats(name) TO regress_papply_nobody;
SET ROLE regress_papply_nobody;
SELECT parallel_apply.reset_stats();
RESET ROLE;

-- Its names are found by their schemas only.
SET search_path = '';
SELECT count(*) FROM parallel_apply.subscriptions;
SELECT count(*) FROM parallel_apply.subscription_stats;
RESET search_path;

DROP SUBSCRIPTION regress_papply_sub;
DROP OWNED BY regress_papply_nobody;
DROP ROLE regress_papply_nobody, regress_papply_monitor;
DROP EXTENSION parallel_apply;
