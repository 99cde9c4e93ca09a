# shellcheck shell=bash
# report.sh - results: the columns of a run, lines of JSON, what they were measured on.
# A part of lib.sh.

RESULTS=()			# a line per run, columns: see add_result and measure

# Of a class of processes
cpu_seconds() { awk -v t="${CPU[$1]:-0}" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f", t / hz }'; }
# cpu_us_per CLASS N: its microseconds for each of N transactions
cpu_us_per() { awk -v t="${CPU[$1]:-0}" -v hz="$(getconf CLK_TCK)" -v n="$2" 'BEGIN { printf "%.1f", t * 1e6 / hz / n }'; }
sleeps_per() { per "${SLEEPS[$1]:-0}" "$2"; }
syscalls_per_transaction() { per "${SYSCALLS[$1]:--}" "${SYSCALLS[transactions]:-0}"; }
per() { awk -v x="$1" -v n="$2" 'BEGIN { if (x == "-" || n <= 0) print "-"; else printf "%.2f", x / n }'; }
peak_mb() { awk -v kb="${PEAK_KB[$1]:-0}" 'BEGIN { printf "%.1f", kb / 1024 }'; }

# ratio_of VALUE BASE; "-" without a base
ratio_of() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }'; }

# add_result COUNTERS; the column "equal" follows after the check.  Ratio is to the
# native run before it.
add_result()
{
	local seconds tps ratio

	CPU[elsewhere]=$(( CPU[machine] - CPU[walsender] - CPU[apply] - CPU[writers] - CPU[walwriter] - CPU[other] ))
	seconds=$(awk -v us="$ELAPSED_US" 'BEGIN { printf "%.2f", us / 1e6 }')
	tps=$(awk -v n="$BACKLOG" -v us="$ELAPSED_US" 'BEGIN { x = n * 1e6 / us; printf x < 1000 ? "%.1f" : "%d", x }')
	[[ $LABEL != native ]] || NATIVE_US=$ELAPSED_US
	ratio=$([[ -n ${NATIVE_US:-} ]] && ratio_of "$NATIVE_US" "$ELAPSED_US" || echo -)
	RESULTS+=("${LABEL// /_} $seconds $tps $ratio \
$(cpu_seconds walsender) $(cpu_seconds apply) $(cpu_seconds writers) $(cpu_seconds walwriter) $(cpu_seconds other) $(cpu_seconds elsewhere) \
$(peak_mb apply) $(peak_mb writers) \
$(sleeps_per walsender "$BACKLOG") $(sleeps_per apply "$BACKLOG") $(sleeps_per writers "$BACKLOG") $(per "$SEGMENTS" "$BACKLOG") \
$(syscalls_per_transaction walsender) $(syscalls_per_transaction apply) $(syscalls_per_transaction writers) ${1//|/ }")
}

# add_result_line NAME VALUE ...: one JSON object, flat, in RESULT_LINES; all of
# them have the connection.
add_result_line()
{
	local line='' value

	[[ -n $RESULT_LINES ]] || return 0
	set -- "$@" connection "$CONNECTION" congestion "$CONGESTION" ${RTT_MS:+rtt_ms "$RTT_MS"}
	while (( $# > 0 )); do
		value=$2
		[[ $value =~ ^-?(0|[1-9][0-9]*)(\.[0-9]+)?$ ]] || value="\"${value//[\"\\]/}\""
		[[ $2 != - ]] || value=null
		line+="${line:+, }\"$1\": $value"
		shift 2
	done
	echo "{$line}" >>"$RESULT_LINES"
}

# ---------------------------------------------------------------- where they come from

# A caller may know it where there is no git: BENCH_COMMIT.
describe_commit() { echo "${BENCH_COMMIT-$(git -C "$REPO" describe --always --dirty 2>/dev/null || echo unknown)}"; }

postgresql_version() { "$BIN/postgres" --version | sed 's/^postgres (PostgreSQL) //'; }
processor_name() { sed -n 's/^model name\s*: //p' /proc/cpuinfo | sort -u | head -n 1 | grep . || uname -m; }
memory_gb() { awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo; }
system_name() { (. /etc/os-release && echo "$PRETTY_NAME, Linux $(uname -r)"); }
