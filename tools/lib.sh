# shellcheck shell=bash
# tools/lib.sh - common parts of tools/check and check_*: packages, a temporary
# directory, a build in it, TAP tests, other majors, and the counting.
#
# This file is sourced.  begin creates the directory, prepare_build a copy of the
# tree and a private server in it, finish ends with what has failed, how to run that
# again, the time, and "N passed, N failed", or "N passed, N failed, N skipped" if
# something that is missing here has not been run.
set -u -o pipefail
# The settings of a make that calls this script must not affect the makes below.
unset MAKEFLAGS MFLAGS MAKELEVEL PROFILE
export SELFTEST=1               # see the Makefile
# A server that starts or stops slowly is no failure.
export PGCTLTIMEOUT="${PGCTLTIMEOUT:-600}"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
pg_root=$top/tools/pg_root      # runs commands with other majors
# Not in the Makefile: a user's newer compiler, with more warnings, must not fail.
# The server's headers have unused parameters, mixed signs and short initializers.
strict='-Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers'
passed=0 failed=0 skipped=0
failures=()                     # see note_failure
jobs=()                         # see start_job

say() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
count() { passed=$((passed + $1)) failed=$((failed + $2)); }
count_matches() { grep -cE "$1" "$2" || true; }
# check NAME COMMAND...: one check
check() {
	local name=$1
	shift
	if "$@"; then
		echo "ok - $name"
		count 1 0
	else
		echo "not ok - $name"
		count 0 1
		note_failure "$name" "$(again)"
		return 1
	fi
}

# The command that runs this program, with these further words, again.
again() {
	local command
	command="make $(basename "$0" | tr _ -)${MAJOR:+ MAJOR=$MAJOR}${VARIANT:+ VARIANT=\"$VARIANT\"}${1:+ $1}"
	echo "${PG_ROOT_MAJOR:+${PAPPLY_ARCH:+PAPPLY_ARCH=$PAPPLY_ARCH }tools/pg_root $PG_ROOT_MAJOR }$command"
}

# note_failure WHAT COMMAND: finish repeats it.
note_failure() { failures+=("$1" "$2"); }

# skip_part WHAT WHY: it cannot be run here.  For a newcomer that is no failure; continuous
# integration must notice it.
skip_part() {
	if [ "${CI-}" ]; then
		echo "not ok - $1: $2"
		count 0 1
		note_failure "$1: $2" "$(again)"
	else
		echo "skip - $1: $2"
		skipped=$((skipped + 1))
	fi
}

### what is missing ##########################################################

# Debian's pg_config in PATH speaks for a server only with its -dev package.
is_complete() {
	[ -e "$("$1" --pgxs 2>/dev/null)" ] && [ -e "$("$1" --includedir-server)/postgres.h" ]
}

# Sets PG_CONFIG, and missing to Debian packages.
find_missing() {
	local major
	missing=()
	have make || missing+=(make)
	have gcc || missing+=(gcc libc6-dev)
	have prove || missing+=(perl)
	perl -MIPC::Run -e1 2>/dev/null || missing+=(libipc-run-perl)
	if [ -z "${PG_ROOT_MAJOR-}" ]; then
		have bzip2 || missing+=(bzip2)
		have perltidy || missing+=(perltidy)
		have pg_bsd_indent || missing+=(pg-bsd-indent)
	fi
	[ -z "${PG_CONFIG-}" ] || return 0
	PG_CONFIG=pg_config
	is_complete pg_config && return
	major=$(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | cut -d/ -f5 | sort -n | tail -1)
	major=${major:-15}
	PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config
	is_complete "$PG_CONFIG" && return
	# Client, server and headers of one version, where the archive still has it.
	local version=$(dpkg-query -W -f '${Version}' "postgresql-$major" 2>/dev/null)
	[ "$version" ] || missing+=("postgresql-$major")
	missing+=("postgresql-server-dev-$major${version:+=$version}")
}

# run_apt WORD...: as root, with its command and each package that it gets and installs
run_apt() {
	local root=''
	[ "$(id -u)" = 0 ] || root='sudo -n'
	echo "\$ ${root:+sudo }apt-get $*"
	$root env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" 2>&1 | tee -a "$tmp/apt.log" |
		grep --line-buffered -E '^(Get:|Setting up |E: )'
	return "${PIPESTATUS[0]}"
}

install_missing() {
	local how="apt-get update; apt-get install --no-install-recommends ${missing[*]}"
	echo "missing: ${missing[*]}"
	if ! have apt-get; then
		echo "cannot install them without apt-get; these are their names in Debian"
	elif [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
		echo "cannot install them: that needs root, or sudo without a password.  As root: $how"
	else
		run_apt update
		run_apt install --no-install-recommends "${missing[@]}" ||
			run_apt install --no-install-recommends "${missing[@]%%=*}" ||
			echo "could not install them.  When Debian's archive can be reached: $how"
	fi
}

### packages of other programs ##############################################

download_packages() {
	apt-get -q -y install --download-only --no-install-recommends -o Debug::NoLocking=1 \
		-o Dir::Cache::archives="$tmp/packages" "$@" >>"$tmp/apt.log" 2>&1
}

# unpack_packages DIR PACKAGE...: print which, as Debian has them, and those that they
# depend on and that are not installed.
unpack_packages() {
	local dir=$1 deb
	shift
	mkdir -p "$tmp/packages/partial" "$dir/usr/bin"
	download_packages "$@" || {
		apt-get -q update >>"$tmp/apt.log" 2>&1
		download_packages "$@" || return
	}
	for deb in "$tmp/packages"/*.deb; do
		[ -e "$deb" ] || continue
		dpkg-deb -x "$deb" "$dir" || return
		dpkg-deb -W --showformat '${Package} ${Version}\n' "$deb"
	done
}

# need_packages DIR PACKAGE...: the same; nothing is tested without them.
need_packages() {
	say "packages"
	check "Debian's packages can be had" unpack_packages "$@" || {
		tail -n 5 "$tmp/apt.log"
		finish
	}
}

### a temporary directory #####################################################

as_user() { "$@"; }
if [ "$(id -u)" = 0 ]; then
	as_user() {
		setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
	}
fi

# start_job COMMAND...: start it in the background, with its number in job.  A
# signal to this script ends it with everything that it started: unlike for a
# command in the foreground, a shell reacts to signals while it waits for the job.
start_job() {
	set -m
	{ "$@"; } </dev/null &
	job=$!
	set +m
	jobs[$job]=$job
}

run_job() {
	local status
	start_job "$@"
	wait "$job"
	status=$?
	unset "jobs[$job]"
	return "$status"
}

stop_and_clean() {
	local pidfile job dir program
	for job in "${jobs[@]}"; do
		kill -TERM -- "-$job" && wait "$job"
	done 2>/dev/null
	# Servers of interrupted tests
	for pidfile in $(find "$tmp" -name postmaster.pid 2>/dev/null); do
		dir=$(dirname "$pidfile")
		program=$(cut -d ' ' -f 1 "$dir/postmaster.opts")
		as_user "$(dirname "$program")/pg_ctl" -s -m immediate -D "$dir" stop
	done
	if [ "${KEEP-}" ] && [ "$failed" -gt 0 ]; then
		echo "kept: $tmp"
	else
		rm -rf -- "$tmp"
	fi
}

finish() {
	local rest=''
	trap - EXIT
	stop_and_clean
	if [ ${#failures[@]} -gt 0 ]; then
		say "failed"
		printf '%s\n    again: %s\n' "${failures[@]}"
	fi
	[ "$skipped" = 0 ] || rest=", $skipped skipped"
	printf '\n%d min %d s\n%d passed, %d failed%s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$passed" "$failed" "$rest"
	[ "$failed" -eq 0 ]
	exit
}

# Sets tmp, a directory that is removed at exit, and installs what is missing.
begin() {
	# Sockets are made below it, and their paths may have 107 bytes: hence /tmp.
	tmp=$(mktemp -d "${PAPPLY_TMP:-/tmp}/papply.XXXXXX") || exit 1
	trap stop_and_clean EXIT
	trap 'exit 130' INT TERM HUP
	find_missing
	if [ ${#missing[@]} -gt 0 ]; then
		say "packages"
		install_missing
	fi
	if ! is_complete "$PG_CONFIG" || ! have make || ! have gcc; then
		check "PostgreSQL with its development files, make and a C compiler are there" false
		finish
	fi
	export PG_CONFIG
}

# copy_tree DIR [FROM]: copy the tree, as it is now, or a copy of it into a new directory.
copy_tree() {
	mkdir "$1"
	tar -C "${2:-$top}" -c --exclude=./.git --exclude='*.o' --exclude='*.so' --exclude='./bin/*/pg_verify_subscription' --exclude='*_selftest' --exclude=./tmp_check . |
		tar -x -C "$1"
}

# build_into DIR: the current directory, with a copy of the server, whose programs are in bin.
build_into() {
	check "builds without warnings" run_job as_user make -s -j2 all PROFILE="$strict" || finish
	bin=$(as_user tools/private_tree "$1" | tail -n 1)
	check "installs into a private copy of the server" test -x "$bin/postgres" || finish
	as_user mv "$bin/initdb" "$bin/initdb.server"
	as_user cp tools/initdb "$bin/initdb"
}

# Sets src, the copy of the tree and current directory; bin, of the private server
# with the extension; pgxs and pg_regress, of the installed one.
prepare_build() {
	src=$tmp/src
	copy_tree "$src"
	[ "$(id -u)" != 0 ] || chown -R postgres: "$tmp"
	cd "$src" || exit 1
	export HOME=$tmp TMPDIR=$tmp LANG=C.UTF-8
	say "build with $("$PG_CONFIG" --version)"
	build_into "$tmp/root"
	pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
	pg_regress=$pgxs/src/test/regress/pg_regress
}

# add_counts FILE: the counts that a check has printed last
add_counts() {
	local counts
	counts=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed(, [0-9]+ skipped)?$/\1 \2/p' "$1" | tail -n 1)
	# shellcheck disable=SC2086
	count ${counts:-0 1}
}

### TAP tests ################################################################

# The failures of a file, the end of its output, and errors in the logs of its
# servers
show_tap_logs() {
	local logs=$1 name
	shift
	for name in "$@"; do
		name=$(basename "$name" .pl)
		say "regress_log_$name"
		grep -B 40 -A 12 'not ok ' "$logs/regress_log_$name" | head -n 150
		echo "..."
		tail -n 80 "$logs/regress_log_$name"
		grep -HE '(ERROR|FATAL|PANIC|TRAP|WARNING|signal [0-9]+)' "$logs/${name}_"*.log 2>/dev/null |
			sed "s|^$logs/||" | tail -n 30
	done | cut -c 1-400
}

# Why tests were skipped, and how many times
show_skipped() {
	grep -qisE '# skip' "$1"/regress_log_* || return 0
	say "skipped"
	grep -ohiE '# skip.*' "$1"/regress_log_* | sort | uniq -c
}

# nothing_is_skipped DIR FILE: it has been run, with all of its tests.
nothing_is_skipped() {
	local log=$1/tmp_check/log/regress_log_$2
	grep -qs '^\[.*ok 1 ' "$log" && ! grep -qis '# skip' "$log"
}

# How many TAP files run at a time: they wait more than they compute.
default_jobs() {
	local processors
	processors=$(nproc)
	echo $((processors < 6 ? processors + 2 : 8))
}

prove_files() {
	as_user env -u INITDB_TEMPLATE PATH="$bin:$PATH" PERL5LIB="$pgxs/src/test/perl${PERL5LIB:+:$PERL5LIB}" \
		TESTDIR="$dir" TESTDATADIR="${logs%/log}" TESTLOGDIR="$logs" \
		PG_REGRESS="$pg_regress" PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-120}" \
		prove --jobs "${JOBS:-$(default_jobs)}" --timer "$@" 2>&1 | tee "$tmp/prove.out" | show_progress $#
	return "${PIPESTATUS[0]}"
}

# show_progress FILES: copy what prove prints.  A line below it, on a terminal, says how many
# files of how many have ended.
show_progress() {
	local line ended=0 wrong=0
	[ -t 1 ] || { cat; return; }
	printf '0 of %d files' "$1"
	while IFS= read -r line; do
		printf '\r\e[K%s\n' "$line"
		case $line in
			'['*'] t/'*) ended=$((ended + 1)) ;;&
			'['*'] t/'*Dubious* | '['*'] t/'*Failed*) wrong=$((wrong + 1)) ;;
		esac
		[ "$ended" = "$1" ] ||
			printf '%d of %d files, %d failed, %d:%02d' "$ended" "$1" "$wrong" $((SECONDS / 60)) $((SECONDS % 60))
	done
}

# The line of FILE where its first test failed, or where it ended, and what it said, from
# its log
first_failure() {
	local log=$1 file=$2 place name
	name=$(sed -nE 's/^.*not ok [0-9]+ - //p' "$log" | head -n 1)
	[ "$name" ] || name=$(grep -E " at .* line [0-9]+\.?$|^the test has not ended" "$log" | tail -n 1)
	place=$(grep -oE "at $file line [0-9]+" "$log" | head -n 1)
	echo "$file${place:+, line ${place##* }}: ${name:-it ended early}" | cut -c 1-300
}

# Reads "file status failed" from stdin, and prints the unexpected ones: all but a
# file without a failed assertion that waited in vain for what matches
# expected_stop.
unexpected_faults() {
	local file status wrong
	while read -r file status wrong; do
		if [ "${expected_stop-}" ] && [ "$wrong" = 0 ] && grep -qE \
			"timed out waiting for .*match: .*($expected_stop)" "$logs/regress_log_$(basename "$file" .pl)"; then
			echo "stopped where expected: $file" >&2
		else
			echo "$file $status $wrong"
		fi
	done
}

# run_tap DIR FILE...: logs are written to DIR/tmp_check/log.  The caller's current
# directory and PERL5LIB are those of the tests.
run_tap() {
	local dir=$1 logs=$1/tmp_check/log bad total wrong dead file log
	shift
	if ! have prove || ! perl -MIPC::Run -e1 2>/dev/null ||
		[ ! -e "$pgxs/src/test/perl/PostgreSQL/Test/Cluster.pm" ]; then
		skip_part "TAP tests" "prove, IPC::Run (Debian: libipc-run-perl) or PostgreSQL::Test::Cluster is missing"
		return
	fi
	as_user mkdir -p "$logs"
	run_job prove_files "$@"
	bad=$?
	# The end of the report has "Files=2, Tests=30, ...", and the report before it
	# has, for each file with a fault, "t/pool/basic.pl (Wstat: 256 Tests: 9 Failed:
	# 1)".  A file that died without a failed assertion counts as one.
	sed -nE 's/^(t\/\S+) +\(Wstat: ([0-9]+).* Failed: ([0-9]+)\)$/\1 \2 \3/p' \
		"$tmp/prove.out" | awk '$2 || $3' >"$tmp/all_faults"
	unexpected_faults <"$tmp/all_faults" >"$tmp/faults"
	total=$(sed -nE 's/^Files=[0-9]+, Tests=([0-9]+),.*/\1/p' "$tmp/prove.out")
	wrong=$(awk '{ n += $3 } END { print n + 0 }' "$tmp/faults")
	dead=$(awk '!$3' "$tmp/faults" | wc -l)
	# No such line: all further testing stopped, because a server did.
	if grep -q '^FAILED--Further testing stopped' "$tmp/prove.out" ||
		{ [ "$bad" -ne 0 ] && [ ! -s "$tmp/all_faults" ]; }; then
		dead=$((dead + 1))
		for log in $(grep -l 'Bail out!' "$logs"/regress_log_*); do
			ls t/{,*/}"${log##*/regress_log_}.pl" 2>/dev/null
		done >>"$tmp/faults"
	fi
	count $((${total:-0} - wrong)) $((wrong + dead))
	while read -r file _; do
		note_failure "$(first_failure "$logs/regress_log_$(basename "$file" .pl)" "$file")" "$(again "TESTS=$file")"
	done <"$tmp/faults"
	show_skipped "$logs"
	show_tap_logs "$logs" $(cut -d' ' -f1 "$tmp/faults")
}

### our tests ################################################################

# run_regress [NAME...]: all of them, or these; the first one creates the extension.
run_regress() {
	local out=$tmp/regress tests bad='' ok=0 wrong=0 name
	say "regression tests"
	tests=$(make -s -f - print 2>/dev/null <<<$'include Makefile\nprint: ; @echo $(REGRESS)')
	[ $# = 0 ] || tests=$(printf '%s\n' install "$@" | awk '!seen[$0]++')
	as_user mkdir "$out"
	# shellcheck disable=SC2086
	if ! as_user "$pg_regress" --inputdir="$src" --outputdir="$out" --bindir="$bin" \
		--temp-instance="$tmp/instance" --temp-config="$src/t/regress.conf" \
		--encoding=UTF8 --no-locale --dbname=contrib_regression $tests | tee "$tmp/regress.out"; then
		tail -n 100 "$out/regression.diffs" 2>/dev/null
		grep -hE '(ERROR|FATAL|PANIC|TRAP|signal)' "$out/log/"*.log 2>/dev/null | tail -n 20
		bad=1
	fi
	# "test install ... ok" up to 15, "ok 1 - install" since 16; nothing at all when
	# the server did not even start.
	ok=$(count_matches '^(test .* \.\.\. ok|ok [0-9]+ )' "$tmp/regress.out")
	wrong=$(count_matches '^(test .* \.\.\. FAILED|not ok [0-9]+ )' "$tmp/regress.out")
	for name in $(sed -nE 's/^(test ([^ ]+) .* FAILED|not ok [0-9]+ +- ([^ ]+) ).*/\2\3/p' "$tmp/regress.out"); do
		note_failure "sql/$name.sql: see the differences above" "$(again "TESTS=sql/$name.sql")"
	done
	if [ "$bad" ] && [ "$wrong" = 0 ]; then
		wrong=1
		note_failure "regression tests: the server did not start" "$(again)"
	fi
	count "$ok" "$wrong"
}

# run_named_tests DIR: the regression and TAP tests in TESTS; TAP tests write to DIR.
run_named_tests() {
	local regress=() files=() name
	for name in $TESTS; do
		case $name in
			sql/*--*) ;;        # TESTS="sql/*.sql" has installation scripts, too
			sql/*) regress+=("$(basename "$name" .sql)") ;;
			*) files+=("$name") ;;
		esac
	done
	[ ${#regress[@]} = 0 ] || run_regress "${regress[@]}"
	[ ${#files[@]} = 0 ] || run_own_tap "$1" "${files[@]}"
}

# run_own_tap DIR FILE...
run_own_tap() {
	local dir=$1
	shift
	say "TAP tests: $*"
	run_tap "$dir" "$@"
}

### other majors #############################################################

installed_major() { "$PG_CONFIG" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/'; }

# Can commands run with that major?  If not, print why.
can_run_major() {
	local why
	[ "$1" != "$(installed_major)" ] || return 0
	why=$("$pg_root" "$1" true </dev/null 2>&1) && return 0
	echo "skipped - PostgreSQL $1: ${why##*$'\n'}"
	return 1
}
