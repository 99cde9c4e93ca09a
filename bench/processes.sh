# shellcheck shell=bash
# processes.sh - what the processes of a run cost: processor time, sleeps, system calls,
# a profile, TCP segments, private memory.  A part of lib.sh.
#
# They are summed by class of process, in the arrays CPU, SLEEPS, SYSCALLS and PEAK_KB.

SEGMENTS=-			# of TCP, that the publisher has sent during a run
PROFILE_HZ=1999			# samples per second of each processor
declare -A CPU SLEEPS PEAK_KB SYSCALLS

PROCESSES_SQL="SELECT CASE WHEN backend_type LIKE 'parallel_apply writer%' THEN 'writers'
		WHEN backend_type LIKE 'logical replication%worker' THEN 'apply'
		WHEN backend_type = 'walsender' THEN 'walsender'
		WHEN backend_type = 'walwriter' THEN 'walwriter'
		ELSE 'other' END, pid
	FROM pg_stat_activity WHERE backend_type <> 'client backend'"

# Class and process ID of the processes at work: all of the subscriber's except
# sessions, and the publisher's walsender, or all of them if it applies.  The
# subscriber's walsender is the reverse one.
list_processes()
{
	ask publisher "$PROCESSES_SQL $([[ -n $PUBLISHER_APPLIES ]] || echo "AND backend_type = 'walsender'")"
	PROCESSES=$REPLY
	ask subscriber "$PROCESSES_SQL"
	PROCESSES+=$'\n'${REPLY//walsender|/reverse|}
}

# sample_classes SUMS start|end COMMAND: SUMS[class] is the growth, between the two
# calls, of the value that COMMAND leaves in REPLY for a process ID, in all
# processes of a class.
sample_classes()
{
	local -n sums=$1
	local class pid sign=1

	[[ $2 == end ]] || { sums=([walsender]=0 [reverse]=0 [apply]=0 [writers]=0 [walwriter]=0 [other]=0); sign=-1; }
	list_processes
	while IFS='|' read -r class pid; do
		"$3" "$pid" || continue
		sums[$class]=$(( ${sums[$class]:-0} + sign * REPLY ))
	done <<<"${PROCESSES#$'\n'}"
}

# Clock ticks.  After the name in parentheses: state is field 0, utime 11, stime 12.
read_ticks()
{
	local stat
	local -a fields

	read -r stat 2>/dev/null <"/proc/$1/stat" || return
	read -r -a fields <<<"${stat##*) }"
	REPLY=$(( fields[11] + fields[12] ))
}

read_sleeps() { REPLY=$(sed -n 's/^voluntary_ctxt_switches:\s*//p' "/proc/$1/status" 2>/dev/null); }

# sample_cpu start|end: CPU[class] in clock ticks between the two.  Class machine is
# the whole machine, including the benchmark.
sample_cpu()
{
	local machine=${CPU[machine]:-0} sign=1
	local -a fields

	[[ $1 == end ]] || { machine=0; sign=-1; }
	read -r -a fields </proc/stat
	sample_classes CPU "$1" read_ticks
	CPU[machine]=$(( machine + sign * (fields[1] + fields[2] + fields[3] + fields[6] + fields[7] + fields[8]) ))
}

# sample_sleeps start|end: SLEEPS[class] is how often they went to sleep between the
# two.
sample_sleeps() { sample_classes SLEEPS "$1" read_sleeps; }

# sample_costs start|end: both.  The processor time is without that of this function.
sample_costs()
{
	[[ $1 == end ]] || sample_sleeps start
	sample_cpu "$1"
	[[ $1 == start ]] || sample_sleeps end
}

# list_processes, as soon as there are those that apply
await_processes()
{
	until list_processes; [[ $PROCESSES == *walsender* && $PROCESSES == *apply* && ( $writers == [01] || $PROCESSES == *writers* ) ]]; do
		ask subscriber "SELECT pg_sleep(0.002)"
	done
}

# start_counting_syscalls: of the present processes, by perf, from the moment that
# the last of them has begun.  end_counting_syscalls sets SYSCALLS[class], and
# SYSCALLS[transactions] to the number of transactions that were not yet applied at
# the beginning; SYSCALLS[class.sleeps] and SYSCALLS[class.wakes] are those that wait for
# a latch or socket, and those that wake a process.
start_counting_syscalls()
{
	local class

	await_processes
	for class in walsender apply writers; do
		[[ $PROCESSES == *"$class"* ]] || continue
		perf stat -x ' ' -e raw_syscalls:sys_enter,syscalls:sys_enter_epoll_wait,syscalls:sys_enter_kill -o "$WORK/perf.$class" \
			-p "$(sed -n "s/^$class|//p" <<<"$PROCESSES" | paste -s -d ,)" >"$WORK/perf.log" 2>&1 &
		echo $! >"$WORK/perf.$class.pid"
	done
	ask subscriber "SELECT greatest(max(pg_wal_lsn_diff(remote_lsn, '$BACKLOG_START')), 0) FROM pg_replication_origin_status"
	SYSCALLS=([transactions]=$(( BACKLOG - BACKLOG * REPLY / BACKLOG_BYTES )) [walsender]=0 [apply]=0 [writers]=0)
}

end_counting_syscalls()
{
	local class pid

	for class in walsender apply writers; do
		[[ -s $WORK/perf.$class.pid ]] || continue
		pid=$(<"$WORK/perf.$class.pid")
		kill -INT "$pid" || true
		wait "$pid" || true
		rm "$WORK/perf.$class.pid"
		SYSCALLS[$class]=$(sed -n 's/^\([0-9]\+\) .*raw_syscalls:sys_enter.*/\1/p' "$WORK/perf.$class")
		SYSCALLS[$class.sleeps]=$(sed -n 's/^\([0-9]\+\) .*sys_enter_epoll_wait.*/\1/p' "$WORK/perf.$class")
		SYSCALLS[$class.wakes]=$(sed -n 's/^\([0-9]\+\) .*sys_enter_kill.*/\1/p' "$WORK/perf.$class")
		[[ -n ${SYSCALLS[$class]} ]] || { cat "$WORK/perf.log" >&2; die "perf cannot count system calls here"; }
	done
}

# start_profile: where the time of all processors goes, by perf, from the moment that
# the last process at work has begun.  end_profile sets PROFILE to a report.
start_profile()
{
	await_processes
	perf record -q -a -e cpu-clock -F $PROFILE_HZ -o "$WORK/perf.data" >"$WORK/perf.log" 2>&1 &
	echo $! >"$WORK/perf.pid"
}

end_profile()
{
	local pid

	pid=$(<"$WORK/perf.pid")
	kill -INT "$pid" || true
	wait "$pid" || true
	list_processes
	PROFILE=$(perf script -i "$WORK/perf.data" -F pid,time,ip,sym,dso 2>>"$WORK/perf.log" | report_profile)
	rm "$WORK/perf.data" "$WORK/perf.pid"
	[[ -n $PROFILE ]] || { cat "$WORK/perf.log" >&2; die "perf cannot record a profile here"; }
}

# report_profile: of samples "PID TIME: ADDRESS FUNCTION (FILE)" on stdin, by class of
# process.  A processor that sleeps yields no samples.
report_profile()
{
	awk -v processes="$PROCESSES" -v processors="$(nproc)" -v hz=$PROFILE_HZ '
		BEGIN {
			n = split(processes, line, "\n")
			for (i = 1; i <= n; i++)
				if (split(line[i], field, "|") == 2)
					class_of[field[2]] = field[1]
		}
		{
			time = $2 + 0
			if (!samples++ || time < begin) begin = time
			if (time > end) end = time
			if ($1 == 0) next
			class = $1 in class_of ? class_of[$1] : "elsewhere"
			code = $NF
			gsub(/^\(|\)$/, "", code)
			sub(/.*\//, "", code)
			if (code ~ /^\[/) code = "kernel"
			sub(/\.so.*/, "", code)
			name = $4
			sub(/\+0x.*/, "", name)
			if (name == "[unknown]") name = "static functions"
			of_class[class]++; of_code[class, code]++; of_function[class, code ": " name]++
		}
		# most of what has a share of this class, at least 1 %, up to limit
		function largest(shares, class, limit,    key, part, best, text) {
			for (; limit > 0; limit--) {
				best = ""
				for (key in shares) {
					split(key, part, SUBSEP)
					if (part[1] == class && !(key in shown) && shares[key] >= of_class[class] / 100 && (best == "" || shares[key] > shares[best]))
						best = key
				}
				if (best == "") break
				shown[best]
				split(best, part, SUBSEP)
				text = text sprintf("%s%s %.1f", text == "" ? "" : ", ", part[2], 100 * shares[best] / of_class[class])
			}
			return text
		}
		END {
			if (end <= begin) exit
			printf "profile of %.1f s, percent of one processor of %d:", end - begin, processors
			idle = 100 * processors
			n = split("walsender apply writers walwriter other elsewhere", classes, " ")
			for (i = 1; i <= n; i++) {
				percent = 100 * of_class[classes[i]] / hz / (end - begin)
				idle -= percent
				printf " %s %.1f,", classes[i], percent
			}
			printf " idle %.1f\n", idle
			for (i = 1; i <= 3; i++)
				if (of_class[classes[i]]) {
					printf "%s, percent of its samples: %s\n", classes[i], largest(of_code, classes[i], 8)
					printf "    %s\n", largest(of_function, classes[i], 24)
				}
		}' | fold -s -w 120
}

# count_segments: those of the walsender's connection
count_segments()
{
	SEGMENTS=-
	[[ $CONNECTION != unix ]] && command -v ss >/dev/null || return 0
	SEGMENTS=$(socket_info publisher | field_of segs_out)
	SEGMENTS=${SEGMENTS:--}
}

# sample_memory PROCESSES: raises PEAK_KB[class] to the private memory of the
# largest process of a class.  Private memory is resident, without shared memory
# (shared buffers and the pool's queue) and without files.
sample_memory()
{
	local class pid resident shared kb

	while IFS='|' read -r class pid; do
		read -r _ resident shared _ 2>/dev/null <"/proc/$pid/statm" || continue
		kb=$(( (resident - shared) * PAGE_KB ))
		(( kb <= ${PEAK_KB[$class]:-0} )) || PEAK_KB[$class]=$kb
	done <<<"${1#$'\n'}"
}
PAGE_KB=$(( $(getconf PAGESIZE) / 1024 ))
