-- The settings: what pg_settings says of them, and what they do not take.

SELECT name, setting, unit, context, vartype, boot_val, min_val,
       CASE WHEN unit = 'kB' THEN '' ELSE max_val END AS max_val, source
  FROM pg_settings WHERE name LIKE 'parallel\_apply.%' ORDER BY name;
-- Where addresses have 32 bits, the limit of sizes is that of the server.
SELECT name, max_val FROM pg_settings
 WHERE name LIKE 'parallel\_apply.%' AND unit = 'kB' AND max_val NOT IN ('2097151',
       CASE name WHEN 'parallel_apply.queue_size' THEN '16777216' ELSE '2147483647' END);
-- Descriptions are sentences.
SELECT name, short_desc, extra_desc
  FROM pg_settings WHERE name LIKE 'parallel\_apply.%' ORDER BY name;
SELECT name FROM pg_settings
 WHERE name LIKE 'parallel\_apply.%' AND short_desc !~ '^[A-Z][a-z]+s .*\.$';

-- A reload changes them, and nothing else does.
SET parallel_apply.writers_per_subscription = 2;
ALTER DATABASE contrib_regression SET parallel_apply.writers_per_subscription = 2;

-- Out of range, or not a number.  The range is in the table above; how the
-- server words it depends on its version.
\set VERBOSITY sqlstate
ALTER SYSTEM SET parallel_apply.logical_decoding = true_enough;
ALTER SYSTEM SET parallel_apply.max_batch_transactions = 0;
ALTER SYSTEM SET parallel_apply.max_batch_transactions = 1001;
ALTER SYSTEM SET parallel_apply.max_writers_per_subscription = 0;
ALTER SYSTEM SET parallel_apply.max_writers_per_subscription = 65;
ALTER SYSTEM SET parallel_apply.idle_writers_per_subscription = -2;
ALTER SYSTEM SET parallel_apply.idle_writers_per_subscription = 65;
ALTER SYSTEM SET parallel_apply.queue_size = '63kB';
ALTER SYSTEM SET parallel_apply.queue_size = '17GB';
ALTER SYSTEM SET parallel_apply.queue_size = 'much';
ALTER SYSTEM SET parallel_apply.reserved_worker_processes = -1;
ALTER SYSTEM SET parallel_apply.streaming_apply = on;
ALTER SYSTEM SET parallel_apply.writer_idle_timeout = '-1s';
ALTER SYSTEM SET parallel_apply.writers_per_subscription = 0;
ALTER SYSTEM SET parallel_apply.writers_per_subscription = 65;
ALTER SYSTEM SET parallel_apply.writers_per_subscription = -1;
\set VERBOSITY default

-- The prefix is ours: a name that is spelled wrong is an error.
SET parallel_apply.writers = 4;

-- What is in range is taken, with units.
ALTER SYSTEM SET parallel_apply.queue_size = '64MB';
ALTER SYSTEM SET parallel_apply.max_batch_transactions = 1;
ALTER SYSTEM SET parallel_apply.writers_per_subscription = 64;
SELECT name, setting, applied, error FROM pg_file_settings
 WHERE name LIKE 'parallel\_apply.%' ORDER BY name;
ALTER SYSTEM RESET ALL;
