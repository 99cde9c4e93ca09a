# shellcheck shell=bash
# measure.sh - a backlog, and the runs that catch up with it: their times, and the
# comparison of both servers after each.  A part of lib.sh.

# ---------------------------------------------------------------- the backlog

# make_backlog WORKLOAD: what the subscriber will have to catch up with.  BACKLOG is
# its size in transactions or, if it is only one, in rows; BACKLOG_UNIT says which.
# The marker is the last transaction; BACKLOG_END is before it, so a subscriber that
# is past BACKLOG_END has applied everything.
make_backlog()
{
	ask publisher "$(publisher_changes "$1")"
	ask publisher "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'base'"
	BACKLOG_START=$REPLY
	if is_one_transaction "$1"; then
		say "Making a backlog of one transaction with $ROWS rows ($1)"
		BACKLOG=$ROWS BACKLOG_UNIT=rows/s
		# Nothing is applied while the walsender decodes the transaction and keeps
		# it in files.
		STALLED_AFTER_S=$(( STALLED_AFTER_S + ROWS / 50000 ))
		ask publisher "$(one_transaction "$1")"
	else
		say "Making a backlog of $TRANSACTIONS transactions ($1)"
		BACKLOG_UNIT=tps
		run_transactions "$1"
	fi
	ask publisher "SELECT pg_current_wal_insert_lsn()"
	BACKLOG_END=$REPLY
	ask publisher "INSERT INTO bench_marker VALUES (1)"
	ask publisher "SELECT pg_wal_lsn_diff('$BACKLOG_END', '$BACKLOG_START')"
	BACKLOG_BYTES=$REPLY
	ask publisher "$CHECKSUM_SQL"
	PUBLISHER_CHECKSUM=$REPLY
}

# run_transactions WORKLOAD: by pgbench or sysbench; sets BACKLOG to their number.
run_transactions()
{
	local clients=4 options first_xid

	ask publisher "SELECT pg_current_xact_id()"
	first_xid=$REPLY
	BACKLOG=$(( (TRANSACTIONS + clients - 1) / clients * clients ))
	if is_sysbench "$1"; then
		PGOPTIONS='-c synchronous_commit=off' run_sysbench publisher "$1" run --time=0 --events=$BACKLOG
	else
		options=$(TRANSACTIONS=$BACKLOG workload_options "$1" $clients)
		# shellcheck disable=SC2086  # options are words
		PGOPTIONS='-c synchronous_commit=off' TRANSACTIONS=$BACKLOG \
			run_pgbench publisher $clients -t $(( BACKLOG / clients )) $options
	fi
	has_silent_transactions "$1" || return 0
	ask_written publisher "$first_xid"
	BACKLOG=$REPLY
	(( BACKLOG > 0 )) || die "the backlog has nothing to replicate"
}

# run_pgbench SERVER CLIENTS OPTION ...: its output is in the file pgbench.SERVER.
run_pgbench()
{
	for_server "$1"
	"${PIN[@]}" "$BIN/pgbench" -h "$WORK/socket/$1" -U postgres -n -M prepared -c "$2" -j $(( $2 < 2 ? 1 : 2 )) \
		-D from="$FROM" -D scale="$SCALE" -D rows="$ROWS" -D transactions="$TRANSACTIONS" --random-seed=1 \
		"${@:3}" "$DATABASE" >"$WORK/pgbench.$1" 2>&1 ||
		{ cat "$WORK/pgbench.$1" >&2; die "pgbench failed"; }
}

# What the last run_pgbench of a server has printed; no rate if no transaction ended
pgbench_transactions() { sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$WORK/pgbench.$1"; }
pgbench_tps() { sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$WORK/pgbench.$1"; }

# ask_written SERVER XID: how many of the transactions since this one have written
# something and committed
ask_written()
{
	ask "$1" "SELECT count(*)
		FROM generate_series($2 + 1, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) xid
		WHERE pg_xact_status(xid::text::xid8) = 'committed'"
}

# checksum_sql TABLE ...: count and order-independent checksum of every table.
# Hashing the values of a row takes a third of the time of hashing its text.
checksum_sql()
{
	local table separator="SET parallel_setup_cost = 0; "

	for table; do
		printf '%s' "${separator}SELECT '$table', count(*), sum(hash_record_extended(whole_row, 0)) FROM $table whole_row"
		separator=" UNION ALL "
	done
	printf ' ORDER BY 1'	# parallel workers come in any order
}

# ---------------------------------------------------------------- one run

# measure_physical: one run of a physical standby, to which the backlog is sent as WAL; adds
# a line to RESULTS as measure does.
measure_physical()
{
	local start_us

	LABEL=physical
	start_standby "primary_conninfo = ''"
	# Its WAL is sent to the standby from the beginning of the seed; it has replayed
	# its own.
	ask subscriber "ALTER SYSTEM SET primary_conninfo = '$(conninfo publisher | sed "s/'/''/g") application_name=bench'"
	sample_costs start
	PEAK_KB=()
	begin_delays
	start_us=${EPOCHREALTIME/./}
	ask subscriber "SELECT pg_reload_conf()"
	until ask subscriber "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '$BACKLOG_END') > 0"; [[ $REPLY == t ]]; do
		ELAPSED_US=$(( ${EPOCHREALTIME/./} - start_us ))
		(( ELAPSED_US < 10 * STALLED_AFTER_S * 1000000 )) || die "the standby does not catch up"
		ask subscriber "SELECT pg_sleep(0.02)"
	done
	ELAPSED_US=$(( ${EPOCHREALTIME/./} - start_us ))
	sample_costs end
	SEGMENTS=- SYSCALLS=()
	add_result "-|-|-"
	end_delays
	require_equal
	RESULTS[-1]+=" yes"
	stop_server subscriber immediate
}

# LABEL: the name of a configuration
set_label()
{
	LABEL="$(number_of_writers "$1") writers"
	[[ $1 != 0 ]] || LABEL=native
	[[ $1 != 0g ]] || LABEL="native gathered"
	[[ $1 != *s ]] || LABEL+=" strict"
	[[ $1 != *off ]] || LABEL+=" off"
}

# From here to there, reads and flushes of the subscriber are slow.
begin_delays() { (( READ_DELAY_US + FLUSH_DELAY_US == 0 )) || : >"$WORK/slow"; }
end_delays() { rm -f "$WORK/slow"; }

# measure WRITERS: one run; adds a line to RESULTS, fails if the servers are not
# equal afterwards.  0 writers = PostgreSQL's own apply, without the extension
measure()
{
	local writers start_us

	writers=$(number_of_writers "$1")
	set_label "$1"
	start_subscriber "$1"
	sample_costs start
	PEAK_KB=()
	begin_delays
	start_us=${EPOCHREALTIME/./}
	ask subscriber "ALTER SUBSCRIPTION bench ENABLE"
	[[ -z $COUNTS_SYSCALLS ]] || start_counting_syscalls
	[[ -z $PROFILES ]] || start_profile
	wait_until_applied "$writers" "$start_us"
	sample_costs end
	[[ -z $COUNTS_SYSCALLS ]] || end_counting_syscalls
	[[ -z $PROFILES ]] || end_profile
	count_segments
	check_connection
	sample_memory "$PROCESSES"
	ask subscriber "$( (( writers > 0 )) && echo "SELECT coalesce(sum(fallbacks), 0), coalesce(sum(retries), 0), coalesce(sum(commit_order_aborts), 0) FROM parallel_apply.writers" || echo "SELECT '-', '-', '-'")"
	add_result "$REPLY"
	end_delays

	"$COMPARE"
	RESULTS[-1]+=" yes"
	check_log "$1"
	stop_server subscriber immediate
	drop_run_slot
}

# insert_marker [SERVER]: a transaction that waits for no standby, after all others of
# this server, by default the publisher
MARKER=0
insert_marker()
{
	MARKER=$(( MARKER + 1 ))
	ask "${1-publisher}" "INSERT INTO bench_marker VALUES ($MARKER)"
}

# wait_for_marker [SERVER [MARKER]]: until the subscriber, of any kind, or the server
# has the last marker, or this one, however long that takes; ends the program if its
# WAL does not advance meanwhile.
wait_for_marker()
{
	local server=${1-subscriber} marker=${2-$MARKER} last_reply='' moved_s=$SECONDS

	until ask "$server" "SELECT count(*) FROM bench_marker WHERE n = $marker"; (( REPLY > 0 )); do
		ask "$server" "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END"
		if [[ $REPLY != "$last_reply" ]]; then
			last_reply=$REPLY
			moved_s=$SECONDS
		elif (( SECONDS - moved_s > STALLED_AFTER_S )); then
			tail -n 20 "$WORK/$server.log" >&2
			die "no progress of \"$LABEL\" for $STALLED_AFTER_S s"
		fi
		ask "$server" "SELECT pg_sleep(0.02)"
	done
}

# prepare_run WORKLOAD: data in shared buffers (unless storage is slow), vacuumed, and a
# checkpoint
prepare_run()
{
	local server

	for server in publisher subscriber; do
		ask $server "SELECT pg_is_in_recovery()"
		[[ $REPLY == t ]] || ask $server "VACUUM $(join_tables "$1")"
		(( READ_DELAY_US > 0 )) || warm_up $server
	done
	insert_marker
	wait_for_marker
	ask publisher "CHECKPOINT"
	ask subscriber "CHECKPOINT"
}

# Both servers at the same time
compare_servers()
{
	local compared_by

	sql publisher -c "$CHECKSUM_SQL" >"$WORK/publisher.sum" &
	compared_by=$!
	ask subscriber "$CHECKSUM_SQL"
	wait $compared_by || die "could not compare the servers"
	PUBLISHER_CHECKSUM=$(<"$WORK/publisher.sum")
	require_equal "$REPLY"
}

# require_equal [CHECKSUM]: ends the program unless the subscriber, whose checksum
# is this one or is computed, holds the rows of the publisher.
require_equal()
{
	if (( $# > 0 )); then REPLY=$1; else ask subscriber "$CHECKSUM_SQL"; fi
	if [[ $REPLY != "$PUBLISHER_CHECKSUM" ]]; then
		diff <(echo "$PUBLISHER_CHECKSUM") <(echo "$REPLY") >&2 || true
		die "publisher and subscriber are DIFFERENT after \"$LABEL\" (table|rows|checksum)"
	fi
}

# Its makefile needs the headers of libpq.
has_program() { [[ -x $BIN/pg_verify_subscription ]]; }

# verify_subscription OPTION ...: pg_verify_subscription, where the subscriber is; its process ID is
# in the file $WORK/program.
verify_subscription()
{
	local IN_NAMESPACE=${NAMESPACE[subscriber]-}

	# shellcheck disable=SC2016  # the inner shell expands it
	as_owner bash -c 'echo $$ >"$0"; exec "$@"' "$WORK/program" "$BIN/pg_verify_subscription" -h "$WORK/socket/subscriber" -U postgres -d "$DATABASE" \
		--subscription=bench "$@"
}

# check_log CONFIGURATION [SERVER]: a pool that did not start, a mode that was not meant,
# or errors that a restart corrected, are no result.
check_log()
{
	local writers server=${2-subscriber}

	writers=$(number_of_writers "$1")
	if (( writers > 1 )); then
		grep -q "has started with $writers writers" "$WORK/$server.log" ||
			{ tail -n 20 "$WORK/$server.log" >&2; die "no pool of $writers writers has started"; }
		check_mode "$1" "$server"
	fi
	if grep -E '(ERROR|FATAL|PANIC|WARNING|TRAP):|was terminated by signal' "$WORK/$server.log" >&2; then
		die "the $server's log has errors after \"$LABEL\""
	fi
}

# check_mode CONFIGURATION SERVER: of the present subscription.  By default, nothing decodes what
# writers apply here, unless the settings of the caller say so.
check_mode()
{
	ask "$2" "SELECT coalesce(max(strict_reason), '') FROM parallel_apply.subscriptions"
	if [[ $1 == *s ]]; then
		[[ -n $REPLY ]] || die "\"$LABEL\" was not in strict mode"
	elif (( ${#EXTRA_SETTINGS[@]} == 0 )); then
		[[ -z $REPLY ]] || die "\"$LABEL\" was in strict mode: $REPLY"
	fi
}

# The walsender notices that the subscriber is gone when it reads or writes next.
drop_run_slot()
{
	until ask publisher "SELECT active FROM pg_replication_slots WHERE slot_name = 'run'"; [[ $REPLY == f ]]; do
		ask publisher "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'run'"
		ask publisher "SELECT pg_sleep(0.1)"
	done
	ask publisher "SELECT pg_drop_replication_slot('run')"
}

# Watches the replication origin: its position is of committed transactions only.
# Sets ELAPSED_US.  Progress in transactions is proportional to the WAL of the
# backlog, since a transaction may be applied with others in one commit.  In a large
# transaction, the subscriber's own WAL shows the progress.
wait_until_applied()
{
	local writers=$1 start_us=$2
	local now_us bytes last_reply='' moved_us=$start_us shown_us=$start_us shown_bytes=0 sampled_us=0

	PROGRESS=(0:0)

	while true; do
		ask subscriber "SELECT greatest(max(pg_wal_lsn_diff(remote_lsn, '$BACKLOG_START')), 0), pg_current_wal_insert_lsn()
			FROM pg_replication_origin_status"
		bytes=${REPLY%|*}
		now_us=${EPOCHREALTIME/./}
		(( bytes <= BACKLOG_BYTES )) || break
		if [[ $REPLY != "$last_reply" ]]; then
			last_reply=$REPLY
			moved_us=$now_us
		elif (( now_us - moved_us > STALLED_AFTER_S * 1000000 )); then
			tail -n 20 "$WORK/subscriber.log" >&2
			die "no progress in \"$LABEL\" for $STALLED_AFTER_S s"
		fi
		if [[ -n $SHOW_PROGRESS ]] && (( now_us - shown_us >= SHOW_EVERY_US )); then
			show_progress "$writers" "$bytes" $(( (bytes - shown_bytes) * 1000000 / (now_us - shown_us) ))
			shown_us=$now_us
			shown_bytes=$bytes
		fi
		note_progress $(( now_us - start_us )) "$bytes"
		if (( now_us - sampled_us >= SAMPLE_EVERY_US )); then
			ask subscriber "$PROCESSES_SQL"
			sample_memory "$REPLY"
			sampled_us=$now_us
		fi
		# Not sleep: a process each time would affect the result.
		ask subscriber "SELECT pg_sleep(0.02)"
	done
	ELAPSED_US=$(( now_us - start_us ))
	PROGRESS+=($(( ELAPSED_US / 1000 )):"$BACKLOG")
	[[ -z $SHOW_PROGRESS || ! -t 1 ]] || printf '\r\033[K'
}

# PROGRESS is a list of MILLISECONDS:TRANSACTIONS, at intervals of at least this time.
PROGRESS_EVERY_MS=100

# note_progress US BYTES
note_progress()
{
	local ms=$(( $1 / 1000 )) last=${PROGRESS[-1]}

	(( ms - ${last%:*} < PROGRESS_EVERY_MS )) || PROGRESS+=("$ms:$(( $2 * BACKLOG / BACKLOG_BYTES ))")
}

# On a terminal one line in place, elsewhere a plain line now and then
if [[ -t 1 ]]; then SHOW_EVERY_US=250000; else SHOW_EVERY_US=4000000; fi

# How often the memory of all processes is read: it costs a millisecond.
SAMPLE_EVERY_US=250000

# show_progress WRITERS BYTES BYTES_PER_SECOND
show_progress()
{
	local line states

	if (( $1 > 0 )); then
		ask subscriber "SELECT string_agg(format('%s %s', n, state), ', ' ORDER BY n DESC, state)
			FROM (SELECT count(*) AS n, state FROM parallel_apply.writers GROUP BY state) s"
		states=$REPLY
	else
		ask subscriber "SELECT coalesce(wait_event, 'applying') FROM pg_stat_activity
			WHERE backend_type LIKE 'logical replication%worker'"
		states="1 $REPLY"
	fi
	printf -v line '  %-11s %7d / %d   %6d/s   %s' "$LABEL" \
		$(( $2 * BACKLOG / BACKLOG_BYTES )) "$BACKLOG" $(( $3 * BACKLOG / BACKLOG_BYTES )) "$states"
	if [[ -t 1 ]]; then
		printf '\r\033[K%s' "${line:0:${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}-1}"
	else
		say "$line"
	fi
}
