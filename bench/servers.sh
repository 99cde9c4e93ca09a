# shellcheck shell=bash
# servers.sh - both servers and what runs in them: start and stop, sessions with them, their
# settings and data, the subscription.  A part of lib.sh, which says what is where.

declare -A SESSION_IN SESSION_OUT	# of open_session

# ---------------------------------------------------------------- servers and sessions

# sql SERVER ARGUMENT...: one psql call, unaligned
sql()
{
	local server=$1
	shift
	"$BIN/psql" -XAtq -v ON_ERROR_STOP=1 -U postgres -h "$WORK/socket/$server" -d "$DATABASE" "$@"
}

start_server()
{
	local server=$1 IN_NAMESPACE=${NAMESPACE[${1/seed/publisher}]-}
	local -a program=()
	shift

	as_owner mkdir -p "$WORK/socket/$server"
	[[ $server != subscriber || -z $SUBSCRIBER_PROGRAM ]] || program=(-p "$SUBSCRIBER_PROGRAM" -t 300)
	[[ $server != publisher || -z $PUBLISHER_PROGRAM ]] || program=(-p "$PUBLISHER_PROGRAM" -t 300)
	for_server "$server"
	as_owner "${PIN[@]}" env "$@" "$BIN/pg_ctl" -D "$WORK/$server" -l "$WORK/$server.log" -s -w start \
		"${program[@]}" -o "-k '$WORK/socket/$server'" ||
		{ tail -n 20 "$WORK/$server.log" >&2; die "could not start the $server"; }
}

# stop_server SERVER [MODE]; does nothing if it does not run.
stop_server()
{
	close_session "$1"
	[[ -f $WORK/$1/postmaster.pid ]] || return 0
	as_owner "$BIN/pg_ctl" -D "$WORK/$1" -s -w -m "${2:-fast}" stop || true
}

# A psql that stays, because a process per sample would be part of the result
open_session()
{
	local server=$1 in out

	rm -f "$WORK/$server".{in,out}
	mkfifo "$WORK/$server".{in,out}
	sql "$server" <"$WORK/$server.in" >"$WORK/$server.out" &
	exec {in}>"$WORK/$server.in" {out}<"$WORK/$server.out"
	SESSION_IN[$server]=$in
	SESSION_OUT[$server]=$out
}

close_session()
{
	local in=${SESSION_IN[$1]:-} out=${SESSION_OUT[$1]:-}

	[[ -n $in ]] || return 0
	exec {in}>&- {out}<&-
	unset "SESSION_IN[$1]" "SESSION_OUT[$1]"
}

lost_session()
{
	tail -n 20 "$WORK/$1.log" >&2
	die "lost the session with the $1"
}

# ask SERVER SQL: the answer is in REPLY.
ask()
{
	local line

	[[ -n ${SESSION_IN[$1]:-} ]] || open_session "$1"
	printf '%s;\n\\echo .\n' "$2" >&"${SESSION_IN[$1]}"
	REPLY=
	while read -r line <&"${SESSION_OUT[$1]}" || lost_session "$1"; do
		[[ $line != . ]] || return 0
		REPLY+=${REPLY:+$'\n'}$line
	done
}

# wait_for SERVER SQL VALUE: until this is the answer
wait_for()
{
	local start_s=$SECONDS

	until ask "$1" "$2"; [[ $REPLY == "$3" ]]; do
		(( SECONDS - start_s < STALLED_AFTER_S )) || die "waited in vain for $3 from: $2"
		ask "$1" "SELECT pg_sleep(0.02)"
	done
}

# The whole postgresql.conf of a server; stdin has more lines of it.
write_conf()
{
	as_owner tee "$WORK/$1/postgresql.conf" >/dev/null < <(
		cat <<-CONF
			$(connection_settings "${1/seed/publisher}")
			wal_level = logical
			max_worker_processes = 100
			max_replication_slots = 20
			max_wal_senders = 20
			wal_retrieve_retry_interval = 500ms	# of a worker that restarts
			fsync = off				# nothing here outlives its run
			full_page_writes = off			# as between two checkpoints ...
			checkpoint_timeout = 1d			# ... of which there is none
			max_wal_size = 100GB
			autovacuum = off			# would fall into some runs only
			log_checkpoints = off
		CONF
		cat
	)
}

# Enough for all data when there is memory for both servers.
default_shared_buffers()
{
	local mb=$(( $(available_memory_mb) / 5 ))

	echo "$(( mb > 2048 ? 2048 : mb ))MB"
}

# ---------------------------------------------------------------- data

# make_seed WORKLOAD: data for it.  Only one copy of the tables is created.  Both
# servers start from it, which saves the initial table copy and gives equal data by
# definition.
make_seed()
{
	require_modules "$1"
	make_connection
	rm -rf "${WORK:?}/seed"
	case $1 in
		tpcc) say "Loading TPC-C, warehouses: $SCALE" ;;
		sysbench_*) say "Loading sysbench, $SYSBENCH_TABLES tables of $ROWS rows" ;;
		*) say "Loading pgbench, scale $SCALE" ;;
	esac
	as_owner "$BIN/initdb" -D "$WORK/seed" -U postgres -A trust -E UTF8 --no-locale -N >/dev/null
	# Its WAL is copied with it: enough for most runs, whose segments are then
	# recycled ones as in a server that has run for a while, and no more.
	printf '%s\n' "shared_buffers = 512MB" "min_wal_size = 400MB" "max_wal_size = 400MB" | write_conf seed
	connection_hba | as_owner tee "$WORK/seed/pg_hba.conf" >/dev/null
	start_server seed
	name_congestion
	say "Connection: $(connection_title)"
	DATABASE=postgres sql seed -c "CREATE DATABASE $DATABASE"
	"$BIN/pgbench" -h "$WORK/socket/seed" -U postgres -i -q -s "$(pgbench_scale "$1")" "$DATABASE" >/dev/null 2>&1 ||
		die "could not load pgbench"
	! is_sysbench "$1" || run_sysbench seed "$1" prepare
	sql seed <<-SQL
		CREATE EXTENSION pg_prewarm;
		$([[ -z $PASSWORD ]] || echo "ALTER ROLE postgres PASSWORD '$PASSWORD';")
		$(workload_tables "$1")
		CREATE TABLE bench_marker (n int);
		CREATE PUBLICATION bench FOR ALL TABLES;
		VACUUM ANALYZE;
	SQL
	stop_server seed
	# shellcheck disable=SC2046  # tables are words
	CHECKSUM_SQL=$(checksum_sql "${TABLES[@]}" $(other_tables "$1"))
}

# copy_seed SERVER: a new data directory, which replaces the previous one
copy_seed()
{
	stop_server "$1" immediate
	rm -rf "${WORK:?}/$1" "$WORK/$1.log"
	as_owner cp -a --reflink=auto "$WORK/seed" "$WORK/$1"
}

start_publisher()
{
	copy_seed publisher
	ENVIRONMENT=()
	if [[ -n $PUBLISHER_IS_DELAYED ]]; then
		write_conf publisher < <(storage_settings; printf '%s\n' "${PUBLISHER_SETTINGS[@]}")
		choose_environment
	else
		write_conf publisher < <(printf '%s\n' "shared_buffers = $(default_shared_buffers)" "${PUBLISHER_SETTINGS[@]}")
	fi
	start_server publisher "${ENVIRONMENT[@]}"
	ask publisher "SELECT pg_create_logical_replication_slot('base', 'pgoutput')"
}

# ---------------------------------------------------------------- the subscriber

# Sets ENVIRONMENT: that of a server whose storage may be slow
choose_environment()
{
	ENVIRONMENT=()
	(( READ_DELAY_US + FLUSH_DELAY_US == 0 )) ||
		ENVIRONMENT=(LD_PRELOAD="$WORK/src/bench/read_delay/read_delay.so"
			READ_DELAY_US="$READ_DELAY_US" FLUSH_DELAY_US="$FLUSH_DELAY_US"
			READ_DELAY_SWITCH="$WORK/slow")
}

# Settings for a server whose storage may be slow
storage_settings()
{
	local buffers=$SHARED_BUFFERS

	[[ -n $buffers ]] || buffers=$( (( READ_DELAY_US > 0 )) && echo 64MB || default_shared_buffers)
	echo "shared_buffers = $buffers"
	(( FLUSH_DELAY_US == 0 )) || printf '%s\n' 'fsync = on' 'wal_sync_method = fdatasync'
}

# start_subscriber_server: its data directory exists, stdin has more settings.
start_subscriber_server()
{
	write_conf subscriber < <(
		storage_settings
		cat
		(( ${#EXTRA_SETTINGS[@]} == 0 )) || printf '%s\n' "${EXTRA_SETTINGS[@]}"
	)
	choose_environment
	start_server subscriber "${ENVIRONMENT[@]}"
	# Storage without delay means that data is in memory: begin with it there.
	(( READ_DELAY_US > 0 )) || warm_up subscriber
}

# warm_up SERVER: reads all tables and indexes into its shared buffers.
warm_up()
{
	ask "$1" "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"
}

# A configuration is a number of writers: Ns in strict mode, Noff with
# parallel_apply.logical_decoding = off; 0 is without the extension, 0g see coalesce.sh.
number_of_writers() { echo "${1%%[a-z]*}"; }

# parallel_settings CONFIGURATION: lines for postgresql.conf
parallel_settings()
{
	local writers

	writers=$(number_of_writers "$1")
	(( writers > 0 )) || return 0
	echo "shared_preload_libraries = 'parallel_apply'"
	echo "parallel_apply.max_writers_per_subscription = $writers"
	echo "parallel_apply.writers_per_subscription = $writers"
	[[ $1 != *s ]] || echo "parallel_apply.logical_decoding = on"
	[[ $1 != *off ]] || echo "parallel_apply.logical_decoding = off"
	[[ -z $MAX_BATCH ]] || echo "parallel_apply.max_batch_transactions = $MAX_BATCH"
}

# start_parallel_server CONFIGURATION: a subscriber without a subscription
start_parallel_server()
{
	copy_seed subscriber
	start_subscriber_server < <(parallel_settings "$1")
	(( $(number_of_writers "$1") == 0 )) || [[ -n $NO_EXTENSION ]] || ask subscriber "CREATE EXTENSION parallel_apply"
}

# start_subscriber WRITERS [FUNCTION]: with a subscription that is not enabled,
# created after the function was called
start_subscriber()
{
	[[ -z $COALESCES ]] || set_coalescing "$1"
	start_parallel_server "$1"
	(( $# < 2 )) || "$2"
	[[ -z $NO_INDEX ]] || ask subscriber "DROP INDEX bench_full_id"
	ask publisher "SELECT pg_copy_logical_replication_slot('base', 'run')"
	ask subscriber "CREATE SUBSCRIPTION bench
		CONNECTION '$(conninfo publisher)' PUBLICATION bench
		WITH (slot_name = 'run', create_slot = false, copy_data = false, enabled = false${SUBSCRIPTION_OPTIONS:+, $SUBSCRIPTION_OPTIONS})"
}

# start_standby [SETTING]: a physical standby instead of the subscriber.  It also
# begins as a copy of the seed, and needs only the WAL that the publisher has
# written since.
start_standby()
{
	copy_seed subscriber
	as_owner touch "$WORK/subscriber/standby.signal"
	start_subscriber_server <<<"${1-"primary_conninfo = '$(conninfo publisher) application_name=bench'"}"
}
