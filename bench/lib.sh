# shellcheck shell=bash
# lib.sh - common parts of the programs in bench/.
#
# A benchmark of catching up is: set_workload_sizes, bench_begin, make_seed, then
# per backlog start_publisher, make_backlog and one measure per configuration.  The
# others use parts of it.  The backlogs are in workloads.sh.  Everything is in one
# directory, $WORK, which is removed at exit, with both servers:
#
#   seed/         a loaded, stopped data directory; both servers begin as a copy
#   publisher/    one per backlog; its slot "base" stands before the backlog
#   subscriber/   a fresh copy of the seed for every run
#   src/ tree/    a copy of this repository, built, and a private server tree
#
# Every run gets a copy of the slot "base", so each applies the same backlog to the
# same data.

set -euo pipefail
export LC_ALL=C			# decimal points, and the same sorting everywhere
shopt -s inherit_errexit

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$REPO/bench/workloads.sh"
. "$REPO/bench/connection.sh"
DATABASE=bench
STALLED_AFTER_S=60		# without progress, end a benchmark after this time

# Settings of a benchmark; programs overwrite those that they offer as an option.
SCALE=				# these three: see workloads.sh; empty = chosen by the workload
TRANSACTIONS=
ROWS=
FROM=0				# transactions use the part of the data from here to SCALE
READ_DELAY_US=0			# subscriber, per page read; 0 = none
FLUSH_DELAY_US=0		# subscriber, per WAL flush; 0 = fsync is off
SHARED_BUFFERS=			# subscriber; empty = chosen by READ_DELAY_US
MAX_BATCH=			# parallel_apply.max_batch_transactions; empty = default
EXTRA_SETTINGS=()		# lines for the subscriber's postgresql.conf
PUBLISHER_SETTINGS=()		# the same for the publisher
NO_INDEX=			# the subscriber has no index on the table of "full"
RESULT_LINES=			# a file to which every result is appended as a JSON object
PHYSICAL=			# "physical": also a physical standby
SUBSCRIPTION_OPTIONS=		# more of CREATE SUBSCRIPTION ... WITH (...)
PUBLISHER_IS_DELAYED=		# the publisher has the subscriber's storage
SUBSCRIBER_PROGRAM=		# in place of postgres
PUBLISHER_PROGRAM=
NO_EXTENSION=			# a subscriber that preloads the library does not have it
NEEDED_PROGRAMS=()		# further ones, whose Debian packages have the same names
NATIVE_ONLY=			# measure the installed server, build nothing
INSTALLED=			# measure the installed extension, build nothing
SHOW_PROGRESS=			# a live line during each run
NATIVES=0			# configurations without writers; these two: see coalesce.sh
COALESCES=
PUBLISHER_APPLIES=		# it is a subscriber, too
WRITERS="2 4 8"			# numbers of writers to measure, in addition to native
ROUNDS=1			# how often all configurations are measured
IS_SEPARATE=			# publisher and subscriber have half of the processors each

RESULTS=()			# a line per run, columns: see add_result and measure
SEGMENTS=-			# of TCP, that the publisher has sent during a run
COUNTS_SYSCALLS=		# see start_counting_syscalls
PROFILES=				# see start_profile
PROFILE_HZ=1999			# samples per second of each processor
declare -A SESSION_IN SESSION_OUT CPU SLEEPS PEAK_KB SYSCALLS

# The options of common_option
COMMON_USAGE=$(cat <<'USAGE'
  --writers "N N ..." numbers of writers to measure (default "2 4 8")
  --rounds N          repeat all configurations N times (default 1)
  --scale N           pgbench scale (default 50, or 1 where its tables are not used);
                      of tpcc: warehouses (default 10)
  --batch N           parallel_apply.max_batch_transactions (default: the extension's)
  --read-delay US     subscriber: microseconds per page read, shared_buffers = 64MB
  --flush-delay US    subscriber: microseconds per WAL flush, which else costs nothing
  --shared-buffers X  subscriber (default: 64MB with --read-delay, else up to 2GB)
  --set "NAME = X"    subscriber: one more line of postgresql.conf; may be repeated
  --with "NAME = X"   more options of CREATE SUBSCRIPTION ... WITH (...)
  --native-only       only PostgreSQL's own apply of the installed server; builds nothing
  --connection C      unix, tcp, tls or cable (the default where it can be had: connection.sh)
  --rtt-ms X          a round trip of X ms between publisher and subscriber; 0 = as the
                      base for others, with the program that delays, without delay
  --lines FILE        append each result to FILE, as a JSON object
USAGE
)

say() { printf '%s\n' "$@"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# ---------------------------------------------------------------- options

# common_option NAME [VALUE] ...: takes one option that all programs have, sets
# OPTION_WORDS to its number of words; ends the program if there is no such option.
common_option()
{
	OPTION_WORDS=2
	case $1 in
		--help) usage; exit ;;
		--native-only) NATIVE_ONLY=1 WRITERS='' OPTION_WORDS=1; return ;;
		--coalesce)
			declare -F choose_coalesce >/dev/null || die "has no --coalesce"
			choose_coalesce; OPTION_WORDS=1; return ;;
		--*) (( $# > 1 )) || { usage >&2; exit 2; } ;;
	esac
	case $1 in
		--writers) [[ -n $NATIVE_ONLY ]] || WRITERS=$2 ;;
		--rounds) ROUNDS=$2 ;;
		--scale) SCALE=$2 ;;
		--batch) MAX_BATCH=$2 ;;
		--read-delay) READ_DELAY_US=$2 ;;
		--flush-delay) FLUSH_DELAY_US=$2 ;;
		--shared-buffers) SHARED_BUFFERS=$2; return ;;
		--set) EXTRA_SETTINGS+=("$2"); return ;;
		--with) SUBSCRIPTION_OPTIONS=$2; return ;;
		--connection) require_connection "$2"; WANTED_CONNECTION=$2; return ;;
		--rtt-ms) require_rtt "$2"; return ;;
		--lines) RESULT_LINES=$(realpath -m "$2"); return ;;
		*) usage >&2; exit 2 ;;
	esac
	require_number "$@"
}

# require_number NAME VALUE ...
require_number()
{
	[[ ${2-} =~ ^[0-9]+(\ +[0-9]+)*$ ]] || die "$1 needs a number, not \"${2-}\""
}

# ---------------------------------------------------------------- begin and end

# PostgreSQL refuses to run as root: processes of a server run as postgres then.
# Only root has namespaces: IN_NAMESPACE, if not empty, is where a process runs.
as_owner()
{
	local -a there=()

	[[ -z ${IN_NAMESPACE-} ]] || there=(nsenter --net="/run/netns/$IN_NAMESPACE")
	if [[ $(id -u) == 0 ]]; then
		"${there[@]}" setpriv --reuid=postgres --regid=postgres --init-groups \
			env HOME="$WORK" USER=postgres LOGNAME=postgres "$@"
	else
		"$@"
	fi
}

# for_server publisher|subscriber: sets PIN, which begins the commands that a server
# and its clients are started with.  Where processes take turns, a wake-up of another
# processor takes longer than one of the same, and the scheduler's choice decides the
# result.  With IS_SEPARATE there is none, as with two machines.
for_server()
{
	local n

	PIN=()
	n=$(nproc)
	[[ -n $IS_SEPARATE ]] && (( n > 1 )) || return 0
	[[ $1 == subscriber ]] && PIN=(taskset -c "$(( n / 2 ))-$(( n - 1 ))") || PIN=(taskset -c "0-$(( n / 2 - 1 ))")
}

bench_begin()
{
	local name

	(( BASH_VERSINFO[0] >= 5 )) || die "needs bash 5 or later"
	[[ -z $COALESCES || -z $NATIVE_ONLY ]] || die "--coalesce needs the library, which --native-only does not build"
	# A server or a make in the environment must not have an effect here.
	for name in $(compgen -e PG); do
		[[ $name == PG_CONFIG ]] || unset "$name"
	done
	unset MAKEFLAGS MFLAGS MAKELEVEL

	trap bench_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	trap 'exit 141' PIPE
	choose_connection
	[[ $CONNECTION != tls ]] || NEEDED_PROGRAMS+=(openssl)
	install_missing_packages
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/parallel_apply.XXXXXX")
	(( ${#WORK} < 80 )) || die "TMPDIR is too long for a unix socket below it"
	mkdir "$WORK/socket"
	[[ -n ${BENCH_BUILT:-} ]] || mkdir "$WORK/src"
	[[ $(id -u) != 0 ]] || chown -R postgres: "$WORK"
	cd "$WORK"
	build
	MAJOR=$("$BIN/postgres" --version | grep -oE '[0-9]+' | head -n 1)
}

bench_end()
{
	local status=$? program

	trap '' INT TERM HUP PIPE
	trap - EXIT
	[[ -n ${WORK:-} ]] || { remove_connection; exit "$status"; }
	[[ -z ${CHILD:-} ]] || kill "$CHILD" 2>/dev/null || true
	for program in "$WORK"/*.pid; do
		end_program "$program"
	done
	stop_server subscriber immediate
	stop_server publisher immediate
	stop_server seed immediate
	wait
	remove_connection
	cd /
	if [[ $status != 0 && -n ${KEEP:-} ]]; then
		say "kept: $WORK" >&2
	else
		rm -rf "$WORK"
	fi
	exit "$status"
}

# start_program NAME COMMAND ...: in the background, as the owner of the servers,
# until bench_end or end_program FILE, with the file $WORK/NAME.pid
start_program()
{
	# shellcheck disable=SC2016  # the inner shell expands it
	as_owner bash -c 'echo $$ >"$0"; exec "$@"' "$WORK/$1.pid" "${@:2}" >"$WORK/$1.log" 2>&1 &
}

# end_program FILE
end_program()
{
	local pid start_s=$SECONDS

	[[ -s $1 ]] || return 0
	pid=$(<"$1")
	rm -f "$1"
	kill "$pid" 2>/dev/null || return 0
	while kill -0 "$pid" 2>/dev/null; do
		(( SECONDS - start_s < 10 )) || kill -KILL "$pid" 2>/dev/null || true
		read -r -t 0.05 <> <(:) || true
	done
}

require_free_mb()
{
	local free_mb

	free_mb=$(df -Pm "$WORK" | awk 'NR == 2 { print $4 }')
	(( free_mb >= $1 )) ||
		die "needs $1 MB free in $(dirname "$WORK"), there are $free_mb MB (TMPDIR chooses another place)"
}

available_memory_mb() { awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }

# ---------------------------------------------------------------- build

# Sets PG_CONFIG to one that can build extensions: as given, else the one in
# PATH, else the newest server's of a Debian machine.
find_pg_config()
{
	local candidate
	local -a candidates=("${PG_CONFIG:-pg_config}")

	[[ -n ${PG_CONFIG:-} ]] ||
		mapfile -t -O 1 candidates < <(compgen -G '/usr/lib/postgresql/*/bin/pg_config' | sort -rV)
	for candidate in "${candidates[@]}"; do
		[[ -x $("$candidate" --bindir 2>/dev/null)/postgres ]] || continue
		[[ -n $INSTALLED || -f $("$candidate" --pgxs) ]] || continue
		PG_CONFIG=$(realpath -s "$(command -v "$candidate")")
		export PG_CONFIG
		return 0
	done
	return 1
}

# as_root COMMAND ...: for apt-get
as_root()
{
	if [[ $(id -u) == 0 ]]; then
		"$@"
	else
		command -v sudo >/dev/null || die "needs root or sudo: $*"
		sudo "$@"
	fi
}

# install_packages NAME[=VERSION] ...: ends the program rather than change the server.
install_packages()
{
	local -a install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends)
	local upgraded

	command -v apt-get >/dev/null || die "missing here, and there is no apt-get: $*"
	say "Installing Debian packages: $*"
	as_root apt-get update -qq
	# An installed server is not changed: others may be using it.
	upgraded=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null | sed -n 's/^Inst \(postgresql-[^ ]*\) \[.*/\1/p') || true
	[[ -z $upgraded ]] || die "they would upgrade ${upgraded//$'\n'/, }: install them yourself"
	"${install[@]}" "$@" >/dev/null 2>&1 || "${install[@]}" "${@%%=*}" >/dev/null || die "could not install the packages"
}

install_missing_packages()
{
	local -a packages=()
	local major version program

	if [[ -n $INSTALLED ]]; then
		find_pg_config || die "found no PostgreSQL server"
		return
	fi
	if ! find_pg_config; then
		[[ -z ${PG_CONFIG:-} ]] || die "$PG_CONFIG has no server with development files"
		major=$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | cut -d/ -f5 | sort -n | tail -n 1) || true
		major=${major:-15}
		# Headers of the installed server, not of a later minor version
		version=$(dpkg-query -W -f '${Version}' "postgresql-$major" 2>/dev/null) || version=
		[[ -n $version ]] || packages+=("postgresql-$major")
		packages+=("postgresql-server-dev-$major${version:+=$version}")
	fi
	command -v "${CC:-gcc}" >/dev/null || packages+=(gcc libc6-dev)
	command -v make >/dev/null || packages+=(make)
	for program in "${NEEDED_PROGRAMS[@]}"; do
		command -v "$program" >/dev/null || packages+=("$program")
	done
	(( ${#packages[@]} > 0 )) || return 0

	install_packages "${packages[@]}"
	find_pg_config || die "found no PostgreSQL server with its development files"
}

# Sets BIN.  Everything is built in a copy, so the work tree stays as it is,
# regardless of its owner.  BENCH_BUILT is the directory of another benchmark that
# has built already and calls this one.
build()
{
	local program

	if [[ -n ${BENCH_BUILT:-} ]]; then
		ln -sfT "$BENCH_BUILT/src" "$WORK/src"
		BIN=$(<"$BENCH_BUILT/bin")
		return
	fi
	if [[ -n $INSTALLED ]]; then
		BIN=$("$PG_CONFIG" --bindir)
		return
	fi
	tar -C "$REPO" --exclude=./.git --exclude=./tmp_check --exclude='*.o' --exclude='*.so' \
		-cf - . | as_owner tar -C "$WORK/src" -xf -
	for program in read_delay delay_link; do
		as_owner make -s -C "$WORK/src/bench/$program" || die "could not build bench/$program"
	done
	if [[ -n $NATIVE_ONLY ]]; then
		BIN=$("$PG_CONFIG" --bindir)
		return
	fi
	say "Building parallel_apply for $("$PG_CONFIG" --version)"
	as_owner make -C "$WORK/src" -s -j2 all >"$WORK/build.log" 2>&1 ||
		{ tail -n 20 "$WORK/build.log" >&2; die "could not build parallel_apply"; }
	BIN=$(as_owner "$WORK/src/tools/private_tree" "$WORK/tree" 2>"$WORK/build.log" | tail -n 1) ||
		{ tail -n 20 "$WORK/build.log" >&2; die "could not make the private server tree"; }
	[[ -x $BIN/postgres ]] || die "the private server tree has no postgres"
	echo "$BIN" >"$WORK/bin"
}

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

# ---------------------------------------------------------------- data and backlog

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

	require_equal
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

# ---------------------------------------------------------------- processes

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

# ---------------------------------------------------------------- results

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
