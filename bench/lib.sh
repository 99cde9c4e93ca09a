# shellcheck shell=bash
# lib.sh - common parts of the programs in bench/: settings and options, begin and end,
# the build.  It sources the others:
#
#   workloads.sh   the kinds of backlogs
#   connection.sh  how the subscriber reaches the publisher
#   servers.sh     both servers, their data, the subscription
#   measure.sh     a backlog and the runs that catch up with it
#   processes.sh   what the processes of a run cost
#   report.sh      results
#
# A benchmark of catching up is: set_workload_sizes, bench_begin, make_seed, then
# per backlog start_publisher, make_backlog and one measure per configuration.  The
# others use parts of it.  Everything is in one directory, $WORK, which is removed at
# exit, with both servers:
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
. "$REPO/bench/servers.sh"
. "$REPO/bench/measure.sh"
. "$REPO/bench/processes.sh"
. "$REPO/bench/report.sh"
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
COMPARE=require_equal		# how measure compares both servers in the end
NATIVES=0			# configurations without writers; these two: see coalesce.sh
COALESCES=
PUBLISHER_APPLIES=		# it is a subscriber, too
WRITERS="2 4 8"			# numbers of writers to measure, in addition to native
ROUNDS=1			# how often all configurations are measured
IS_SEPARATE=			# publisher and subscriber have half of the processors each
COUNTS_SYSCALLS=		# see start_counting_syscalls
PROFILES=			# see start_profile

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
