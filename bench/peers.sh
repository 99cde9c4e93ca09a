# shellcheck shell=bash
# peers.sh - other replication systems that bench/sustainable measures for
# comparison, from the Debian packages of this release, set up as their manuals say.
#
# fetch_peers NAME ... gets what is needed; connect_peer NAME sets one up between
# the running publisher and a new subscriber, whose tables are equal;
# disconnect_peer ends its programs.  Packages are unpacked into the private server
# tree and not installed, which could upgrade the server, too; nothing of them
# remains.
#
# Tables are those of pgbench and the marker.  Systems that copy rows by their key
# get one for pgbench_history and bench_marker, on both sides.

PEERS=(pglogical slony londiste)
PEER_TABLES=(pgbench_{accounts,branches,tellers,history} bench_marker)
PEER_VERSIONS=			# for the head of a result file
PEER_RUNS=()			# files with the process ids of their programs

# fetch_peers NAME ...
fetch_peers()
{
	local name major
	local -a packages=()

	PEER_ROOT=${BIN%"$("$PG_CONFIG" --bindir)"}
	major=$("$BIN/postgres" --version | grep -oE '[0-9]+' | head -n 1)
	for name; do
		case $name in
			pglogical) packages+=("postgresql-$major-pglogical") ;;
			slony) packages+=("postgresql-$major-slony1-2" slony1-2-bin) ;;
			londiste) packages+=("postgresql-$major-"{pgq3,pgq-node,londiste-sql} pgqd python3-{londiste,pgq,skytools,psycopg2}) ;;
		esac
	done
	[[ " $* " != *" londiste "* || -x /usr/bin/python3 ]] || die "londiste needs the package python3"
	say "Fetching Debian packages, to unpack them into the private server tree: ${packages[*]}"
	mkdir -p "$WORK/packages"
	(
		cd "$WORK/packages"
		apt-get download -qq "${packages[@]}" >"$WORK/apt.log" 2>&1 || {
			as_root apt-get update -qq >"$WORK/apt.log" 2>&1 || true
			apt-get download -qq "${packages[@]}" >"$WORK/apt.log" 2>&1
		}
		for name in *.deb; do
			dpkg -x "$name" "$PEER_ROOT"
		done
	) || { cat "$WORK/apt.log" >&2; die "could not fetch the packages"; }
	PEER_VERSIONS=$(cd "$WORK/packages" && printf '%s\n' *.deb | sed 's/_[^_]*$//; s/_/ /' | paste -s -d ';')
	PEER_VERSIONS=${PEER_VERSIONS//;/, }
}

# peer_settings NAME: lines for postgresql.conf on both servers, if it needs any
peer_settings()
{
	[[ $1 == pglogical ]] || return 0
	echo "shared_preload_libraries = 'pglogical'"
	[[ $REGIME != flush ]] || echo "pglogical.synchronous_commit = on"
}

# connect_peer NAME: its programs run along with the subscriber.
connect_peer()
{
	local IN_NAMESPACE=${NAMESPACE[subscriber]-}

	copy_seed subscriber
	start_subscriber_server < <(peer_settings "$1")
	# It has all tables, including those without a key, which it would not allow to
	# be updated.
	ask publisher "DROP PUBLICATION bench"
	ask subscriber "DROP PUBLICATION bench"
	"connect_$1"
}

# disconnect_peer NAME: ends the programs that were started for it.
disconnect_peer()
{
	local file

	for file in "${PEER_RUNS[@]}"; do
		end_program "$file"
	done
	PEER_RUNS=()
}

# ---------------------------------------------------------------- pglogical

connect_pglogical()
{
	local server table

	for server in publisher subscriber; do
		ask $server "SET client_min_messages = warning"
		ask $server "CREATE EXTENSION pglogical"
		ask $server "SELECT pglogical.create_node('$server', '$(conninfo $server)')"
	done
	for table in "${PEER_TABLES[@]}"; do
		ask publisher "SELECT pglogical.replication_set_add_table(CASE WHEN EXISTS (SELECT FROM pg_index
				WHERE indrelid = '$table'::regclass AND indisprimary) THEN 'default' ELSE 'default_insert_only' END, '$table')"
	done
	ask subscriber "SELECT pglogical.create_subscription('bench', '$(conninfo publisher)',
		synchronize_structure := false, synchronize_data := false)"
	wait_for subscriber "SELECT status FROM pglogical.show_subscription_status('bench')" replicating
}

# Keys for the tables without one
add_keys()
{
	local server

	for server in publisher subscriber; do
		ask $server "ALTER TABLE pgbench_history ADD COLUMN id bigserial PRIMARY KEY"
		ask $server "ALTER TABLE bench_marker ADD PRIMARY KEY (n)"
	done
}

# ---------------------------------------------------------------- slony

# run_slonik: reads the commands from stdin.  The program looks for its SQL files in
# /usr/share/slony1; in this copy the path is one below the current directory, of
# the same length.
run_slonik()
{
	local program=$PEER_ROOT/usr/bin/slonik

	perl -pi -e 's{/usr/share/slony}{.//////////slony}' "$program"
	{
		echo "cluster name = bench;"
		echo "node 1 admin conninfo = '$(conninfo publisher)';"
		echo "node 2 admin conninfo = '$(conninfo subscriber)';"
		cat
	} | (cd "$PEER_ROOT/usr/share" && as_owner "$program") >"$WORK/slonik.log" 2>&1 || { cat "$WORK/slonik.log" >&2; die "slonik failed"; }
}

# Its daemons look for new transactions every tenth of a second, which is more often
# than by default and reduces its waits.
connect_slony()
{
	local id=0 table

	add_keys
	run_slonik < <(
		echo "init cluster (id = 1, comment = 'publisher');"
		echo "create set (id = 1, origin = 1, comment = 'bench');"
		for table in "${PEER_TABLES[@]}"; do
			id=$(( id + 1 ))
			echo "set add table (set id = 1, origin = 1, id = $id, fully qualified name = 'public.$table', comment = '');"
		done
		echo "store node (id = 2, comment = 'subscriber', event node = 1);"
		echo "store path (server = 1, client = 2, conninfo = '$(conninfo publisher)');"
		echo "store path (server = 2, client = 1, conninfo = '$(conninfo subscriber)');"
	)
	start_program slon1 "$PEER_ROOT/usr/bin/slon" -s 100 bench "$(conninfo publisher)"
	start_program slon2 "$PEER_ROOT/usr/bin/slon" -s 100 bench "$(conninfo subscriber)"
	PEER_RUNS=("$WORK/slon1.pid" "$WORK/slon2.pid")
	run_slonik < <(echo "subscribe set (id = 1, provider = 1, receiver = 2, forward = no, omit copy = yes);")
	wait_for subscriber "SELECT count(*) FROM _bench.sl_subscribe WHERE sub_active" 1
}

# ---------------------------------------------------------------- londiste

# run_londiste SERVER ARGUMENT ...
run_londiste()
{
	as_owner env PYTHONPATH="$PEER_ROOT/usr/lib/python3/dist-packages" \
		/usr/bin/python3 "$PEER_ROOT/usr/bin/londiste" "$WORK/londiste-$1.ini" "${@:2}" >"$WORK/londiste.log" 2>&1 ||
		{ cat "$WORK/londiste.log" >&2; die "londiste failed: ${*:2}"; }
}

# Its ticker makes batches every tenth of a second, for the same reason.
connect_londiste()
{
	local server

	add_keys
	for server in publisher subscriber; do
		as_owner tee "$WORK/londiste-$server.ini" >/dev/null <<-INI
			[londiste]
			db = $(conninfo $server)
			queue_name = bench
			job_name = $server
			pidfile = $WORK/londiste-$server.own
			loop_delay = 0.1
		INI
	done
	as_owner tee "$WORK/pgqd.ini" >/dev/null <<-INI
		[pgqd]
		base_connstr = $(conninfo publisher | sed "s/ dbname=$DATABASE//")
		initial_database = $DATABASE
		database_list = $DATABASE
		pidfile = $WORK/pgqd.own
		check_period = 1
		ticker_period = 0.1
	INI
	run_londiste publisher create-root publisher "$(conninfo publisher)"
	run_londiste subscriber create-leaf subscriber "$(conninfo subscriber)" --provider="$(conninfo publisher)"
	ask publisher "SELECT pgq.set_queue_config('bench', 'ticker_max_lag', '100 milliseconds'),
		pgq.set_queue_config('bench', 'ticker_idle_period', '1 second')"
	start_program pgqd "$PEER_ROOT/usr/bin/pgqd" "$WORK/pgqd.ini"
	start_program londiste-worker1 env PYTHONPATH="$PEER_ROOT/usr/lib/python3/dist-packages" \
		/usr/bin/python3 "$PEER_ROOT/usr/bin/londiste" "$WORK/londiste-publisher.ini" worker
	start_program londiste-worker2 env PYTHONPATH="$PEER_ROOT/usr/lib/python3/dist-packages" \
		/usr/bin/python3 "$PEER_ROOT/usr/bin/londiste" "$WORK/londiste-subscriber.ini" worker
	PEER_RUNS=("$WORK"/{londiste-worker2,londiste-worker1,pgqd}.pid)
	run_londiste publisher add-table "${PEER_TABLES[@]}"
	run_londiste subscriber add-table --expect-sync "${PEER_TABLES[@]}"
}
