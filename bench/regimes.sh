# shellcheck shell=bash
# regimes.sh - common parts of the repetitions of published measurements, in
# addition to lib.sh: the choice of a regime, a result file that names its origin,
# and a plan of steps with its progress.
#
# A regime determines where the time is spent, since two processors cannot show what
# many would do:
#
#   memory    all data in shared buffers, nothing is injected: processors
#   storage   a page read takes 0.5 ms, shared buffers are small
#   flush     a WAL flush takes 2 ms, and the subscription waits for its own
#
# A program calls regime_option for its options, choose_regime, bench_begin,
# begin_result; then plan N and for each of the N steps begin_step, progress,
# end_step, add_point.

REGIME=
MINUTES=15			# no step begins after this time
QUICK=				# small and short: to see that everything runs
MANAGES_RESULT=1		# without --result and --lines there is a result file, too
RESULT_FILE=

# The options of regime_option
REGIME_USAGE=$(cat <<'USAGE'
  --regime NAME       memory, storage (0.5 ms per page read) or flush (2 ms per WAL flush)
  --minutes N         begin nothing after N minutes (default 15)
  --quick             small and short: to see that everything runs, not for numbers
  --result FILE       a new result file (default bench-results/PROGRAM-REGIME-TIME.jsonl)
USAGE
)

# regime_option NAME [VALUE] ...: like common_option, to which it passes other
# options
regime_option()
{
	OPTION_WORDS=2
	case $1 in
		--quick) QUICK=1 OPTION_WORDS=1; return ;;
		--regime|--minutes|--result) (( $# > 1 )) || { usage >&2; exit 2; } ;;
	esac
	case $1 in
		--regime) REGIME=$2 ;;
		--minutes) require_number "$@"; MINUTES=$2 ;;
		--result) RESULT_FILE=$(realpath -m "$2") ;;
		*) common_option "$@" ;;
	esac
}

# choose_regime WHOSE: sets the delays of the regime, unless they are given; REGIME,
# if a delay is given; and REGIME_TITLE.  WHOSE says which server has the storage.
choose_regime()
{
	if [[ -z $REGIME ]]; then
		REGIME=memory
		(( FLUSH_DELAY_US == 0 )) || REGIME=flush
		(( READ_DELAY_US == 0 )) || REGIME=storage
	fi
	case $REGIME in
		memory)
			(( READ_DELAY_US + FLUSH_DELAY_US == 0 )) || die "the regime memory has no delays"
			REGIME_TITLE="in memory, no latency injected" ;;
		storage)
			(( READ_DELAY_US > 0 )) || READ_DELAY_US=500
			REGIME_TITLE="storage: $READ_DELAY_US us injected per page read ($1)" ;;
		flush)
			(( FLUSH_DELAY_US > 0 )) || FLUSH_DELAY_US=2000
			REGIME_TITLE="flush: $FLUSH_DELAY_US us injected per WAL flush ($1)" ;;
		*) usage >&2; exit 2 ;;
	esac
	[[ $REGIME == memory ]] || (( READ_DELAY_US == 0 || FLUSH_DELAY_US == 0 )) || REGIME_TITLE="$REGIME_TITLE; both delays"
}

# ---------------------------------------------------------------- result file

# begin_result PROGRAM NAME VALUE ...: the head of a result file: versions, machine,
# and these settings.  If --lines was given, measurements are written there, without
# a head.
begin_result()
{
	local program=$1

	shift
	[[ -z $RESULT_LINES ]] || return 0
	if [[ -z $RESULT_FILE ]]; then
		[[ -n $MANAGES_RESULT ]] || return 0
		RESULT_FILE=$START_DIRECTORY/bench-results/$program-$REGIME-$(date -u +%Y%m%dT%H%M%S).jsonl
	fi
	mkdir -p "$(dirname "$RESULT_FILE")"
	: >"$RESULT_FILE"
	RESULT_LINES=$RESULT_FILE
	add_result_line record run program "$program" time "$(date -u +%Y-%m-%dT%H:%MZ)" \
		commit "$(describe_commit)" postgresql "$(postgresql_version)" \
		processors "$(nproc)" processor "$(processor_name)" memory_gb "$(memory_gb)" system "$(system_name)" \
		load_before "$(cut -d' ' -f1 /proc/loadavg)" \
		regime "$REGIME" title "$REGIME_TITLE" read_delay_us "$READ_DELAY_US" flush_delay_us "$FLUSH_DELAY_US" \
		quick "${QUICK:-0}" "$@"
	say "Results: $RESULT_FILE"
}
START_DIRECTORY=$PWD

# ---------------------------------------------------------------- steps and progress

# plan N: the number of steps, of about the same length
plan()
{
	STEPS=$1 STEPS_DONE=0 STEPS_LEFT_OUT=0
	PLAN_START_S=$SECONDS
	TOLD_S=$SECONDS
}

# begin_step: false if there is no time for it
begin_step()
{
	(( SECONDS < MINUTES * 60 )) && return 0
	STEPS_LEFT_OUT=$(( STEPS_LEFT_OUT + 1 ))
	return 1
}

# progress TEXT: on a terminal one line in place, elsewhere a line now and then
progress()
{
	local estimate='' bar line

	(( STEPS_DONE == 0 )) ||
		estimate=", about $(( ((SECONDS - PLAN_START_S) * (STEPS - STEPS_DONE) / STEPS_DONE + 59) / 60 )) min left"
	if [[ -t 2 ]]; then
		printf -v bar '%*s' $(( STEPS_DONE * 20 / STEPS )) ''
		printf -v line '[%-20s] %d of %d%s: %s' "${bar// /#}" "$STEPS_DONE" "$STEPS" "$estimate" "$1"
		printf '\r\033[K%s' "${line:0:${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}-1}" >&2
	elif (( SECONDS - TOLD_S >= 60 )); then
		TOLD_S=$SECONDS
		say "# $STEPS_DONE of $STEPS$estimate: $1" >&2
	fi
}

# end_step: before a line of the table
end_step()
{
	STEPS_DONE=$(( STEPS_DONE + 1 ))
	[[ ! -t 2 ]] || printf '\r\033[K' >&2
}

# The end of a program's output
end_plan()
{
	(( STEPS_LEFT_OUT == 0 )) || say "" "$STEPS_LEFT_OUT of $STEPS measurements were left out, the $MINUTES minutes being over."
	[[ -z $RESULT_FILE ]] || say "" "Results: $RESULT_FILE"
}
