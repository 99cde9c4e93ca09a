# shellcheck shell=bash
# connection.sh - how the subscriber reaches the publisher: --connection of all
# programs.
#
#   unix     a Unix socket
#   tcp      the loopback interface, with the congestion control of this machine
#   tls      the same, encrypted (TLS 1.3)
#   cable    a link between two network namespaces: MTU 1500, cubic
#
# The cost and the speed of a walsender depend on it: on loopback a segment is 64 kB
# and no timer matters, but users have a cable.  So that is the default if it is
# possible: network namespaces need root.
#
# --rtt-ms adds a round trip: tcp and tls also have such a link then, with the
# congestion control of this machine, and in its middle is a program that delays
# packets, in a third namespace (delay_link/).
#
# make_connection, which make_seed calls, creates what is needed; conninfo SERVER is
# how the other server connects.  Sessions of the benchmark itself use Unix sockets,
# from anywhere.  As root, TCP has network namespaces of its own, which no other
# process can reach and whose counters count nothing else; otherwise servers ask for
# a password.

CONNECTION=			# one of the above; empty = chosen by choose_connection
CONGESTION=-			# the congestion control, as the kernel names it
WANTED_CONNECTION=
declare -A NAMESPACE=() ADDRESS=()	# of publisher and subscriber
NAMESPACES=()			# made here
RTT_MS=				# empty = nothing in the middle; 0 = the program, without delay
RTT_US=0
PASSWORD=			# of both servers, for TCP, outside namespaces

CABLE_NETWORK=10.77.0.0/30	# no other process sees it

require_connection()
{
	case ${1-} in
		unix|tcp|tls|cable) ;;
		*) die "--connection is unix, tcp, tls or cable, not \"${1-}\"" ;;
	esac
}

require_rtt()
{
	[[ ${1-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--rtt-ms needs a number, not \"${1-}\""
	RTT_MS=$1
	RTT_US=$(awk -v ms="$1" 'BEGIN { printf "%.0f", ms * 1000 }')
}

# choose_connection: before anything is created
choose_connection()
{
	local why=''

	CONNECTION=${WANTED_CONNECTION:-cable}
	[[ -z $RTT_MS || $CONNECTION != unix ]] || die "a Unix socket has no --rtt-ms"
	[[ -n $RTT_MS || $CONNECTION == cable ]] || return 0
	if [[ $(id -u) != 0 ]]; then
		why="needs root"
	elif ! try_namespace; then
		why="needs network namespaces and the programs ip and nsenter"
	fi
	[[ -z $why || -z $RTT_MS ]] || die "--rtt-ms $why"
	[[ -z $why ]] || { CONNECTION=tcp; say "Connection: no cable, but tcp: $why"; }
}

# Are network namespaces permitted?
try_namespace()
{
	local name=papply-$$-try permitted=

	command -v ip >/dev/null && command -v nsenter >/dev/null && ip netns add "$name" 2>/dev/null || return 1
	NAMESPACES+=("$name")
	! ip -n "$name" link add cable type veth peer name cable2 2>/dev/null || permitted=1
	remove_connection
	[[ -n $permitted ]]
}

# make_connection: does nothing if it has been called.
make_connection()
{
	[[ $CONNECTION != unix && -z ${ADDRESS[publisher]-} ]] || return 0
	if [[ $CONNECTION == cable || -n $RTT_MS ]]; then
		lay_cable
	else
		make_loopback
	fi
	[[ $CONNECTION != tls ]] ||
		as_owner openssl req -x509 -newkey rsa:2048 -noenc -days 30 -subj /CN=parallel_apply \
			-keyout "$WORK/server.key" -out "$WORK/server.crt" 2>"$WORK/openssl.log" ||
		{ cat "$WORK/openssl.log" >&2; die "could not make a certificate"; }
}

# make_namespace SERVER: sets NAMESPACE.
make_namespace()
{
	local name=papply-$$-$1

	ip netns add "$name" || die "could not make a network namespace"
	NAMESPACES+=("$name")
	NAMESPACE[$1]=$name
	ip -n "$name" link set lo up
}

# Publisher and subscriber are the two ends.
lay_cable()
{
	local server

	make_namespace publisher
	make_namespace subscriber
	ADDRESS=([publisher]=10.77.0.1 [subscriber]=10.77.0.2)
	if [[ -z $RTT_MS ]]; then
		join publisher cable subscriber cable
	else
		make_namespace middle
		join publisher cable middle publisher
		join subscriber cable middle subscriber
		start_delay_link
	fi
	for server in publisher subscriber; do
		ip -n "${NAMESPACE[$server]}" address add "${ADDRESS[$server]}/30" dev cable
		[[ $CONNECTION != cable ]] || use_cubic "${NAMESPACE[$server]}"
	done
}

# join NAMESPACE DEVICE NAMESPACE DEVICE: creates both devices.
join()
{
	ip link add "$2" netns "${NAMESPACE[$1]}" mtu 1500 type veth \
		peer name "$4" netns "${NAMESPACE[$3]}" mtu 1500 || die "could not make a pair of network devices"
	ip -n "${NAMESPACE[$1]}" link set "$2" up
	ip -n "${NAMESPACE[$3]}" link set "$4" up
}

# Half of the round trip each way.  It is not root, but has the capabilities for
# network devices that it needs.
start_delay_link()
{
	nsenter --net="/run/netns/${NAMESPACE[middle]}" \
		setpriv --reuid=postgres --regid=postgres --init-groups --inh-caps=-all,+net_raw,+net_admin --ambient-caps=+net_raw,+net_admin \
		"$WORK/src/bench/delay_link/delay_link" publisher subscriber $(( RTT_US / 2 )) >"$WORK/delay_link.log" 2>&1 &
	echo $! >"$WORK/delay_link.pid"
}

# use_cubic NAMESPACE: by the route, since in a namespace not every setting is permitted.
use_cubic()
{
	ip -n "$1" route replace $CABLE_NETWORK dev cable proto kernel scope link congctl cubic 2>/dev/null ||
		nsenter --net="/run/netns/$1" sysctl -qw net.ipv4.tcp_congestion_control=cubic 2>/dev/null || true
}

# Addresses that only this run has: there are 2^24 on the loopback interface, and at
# most 2^22 processes.
make_loopback()
{
	local server n=$(( $$ * 4 ))

	for server in publisher subscriber; do
		n=$(( n + 1 ))
		ADDRESS[$server]=127.$(( n >> 16 & 255 )).$(( n >> 8 & 255 )).$(( n & 255 ))
	done
	if [[ $(id -u) == 0 ]] && try_namespace; then
		make_namespace publisher
		NAMESPACE[subscriber]=${NAMESPACE[publisher]}
		return
	fi
	PASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	# A server that listens on all addresses has the port on these, too.
	PGPORT=5432
	while (exec 3<>"/dev/tcp/${ADDRESS[publisher]}/$PGPORT") 2>/dev/null; do
		PGPORT=$(( PGPORT + 1 ))
	done
	export PGPORT
}

remove_connection()
{
	local name

	for name in "${NAMESPACES[@]}"; do
		ip netns delete "$name" || true
	done
	NAMESPACES=()
}

# connection_settings SERVER: lines for postgresql.conf.
connection_settings()
{
	echo "listen_addresses = '${ADDRESS[$1]-}'"
	[[ $CONNECTION != tls ]] || cat <<-CONF
		ssl = on
		ssl_cert_file = '$WORK/server.crt'
		ssl_key_file = '$WORK/server.key'
		ssl_min_protocol_version = 'TLSv1.3'
	CONF
}

# connection_hba: the whole pg_hba.conf.  Unix sockets are in a private directory.
connection_hba()
{
	local database network=127.0.0.0/8 method=trust

	[[ ${ADDRESS[publisher]-} != 10.* ]] || network=$CABLE_NETWORK
	[[ -z $PASSWORD ]] || method=scram-sha-256
	for database in all replication; do
		echo "local $database all trust"
		[[ $CONNECTION == unix ]] || echo "host $database all $network $method"
	done
}

# conninfo SERVER: how the other one connects.
conninfo()
{
	local host=$WORK/socket/$1 more=''

	if [[ $CONNECTION != unix ]]; then
		host=${ADDRESS[$1]}
		more=" sslmode=$([[ $CONNECTION == tls ]] && echo require || echo disable)${PGPORT:+ port=$PGPORT}${PASSWORD:+ password=$PASSWORD}"
	fi
	echo "host=$host user=postgres dbname=$DATABASE$more"
}

# socket_info SERVER: what the kernel reports about the connections of this server
# to the publisher's port, a line for each
socket_info()
{
	local -a there=()
	local end=dst

	[[ $1 != publisher ]] || end=src
	[[ -z ${NAMESPACE[$1]-} ]] || there=(nsenter --net="/run/netns/${NAMESPACE[$1]}")
	"${there[@]}" ss -tinOH state established $end "${ADDRESS[publisher]}:${PGPORT:-5432}"
}

# field_of NAME: the number after "NAME:" in the first line of socket_info on stdin
field_of() { sed -n "s/.* $1:\([0-9.]*\).*/\1/p" | head -n 1; }

# name_congestion: sets CONGESTION to that of a connection from the subscriber's
# side to the seed, which listens where the publisher will.
name_congestion()
{
	local -a there=()
	local info start_s=$SECONDS rtt

	[[ $CONNECTION != unix ]] || return 0
	[[ -z ${NAMESPACE[subscriber]-} ]] || there=(nsenter --net="/run/netns/${NAMESPACE[subscriber]}")
	# shellcheck disable=SC2016  # the inner shell expands it
	"${there[@]}" bash -c 'exec 3<>"/dev/tcp/$0/$1" && read -r -t 60 <&3' "${ADDRESS[publisher]}" "${PGPORT:-5432}" &
	CHILD=$!
	CONGESTION=$(</proc/sys/net/ipv4/tcp_congestion_control)
	if command -v ss >/dev/null; then
		until info=$(socket_info subscriber); [[ -n $info ]]; do
			(( SECONDS - start_s < 10 )) || die "no connection to ${ADDRESS[publisher]}"
			read -r -t 0.05 <> <(:) || true
		done
		CONGESTION=$(grep -oE '[a-z_]+ wscale' <<<"$info" | head -n 1 | cut -d' ' -f1)
		rtt=$(field_of rtt <<<"$info")
		awk -v rtt="$rtt" -v wanted="${RTT_MS:-0}" 'BEGIN { exit !(rtt >= wanted) }' || die "a round trip takes $rtt ms instead of $RTT_MS ms"
	fi
	kill $CHILD
	wait $CHILD || true
	CHILD=
}

# For the head of a program's output
connection_title()
{
	local way=loopback

	[[ -z $RTT_MS ]] || way="MTU 1500, a round trip of $RTT_MS ms"
	case $CONNECTION in
		unix) echo "unix: a Unix socket" ;;
		tcp) echo "tcp: $way, $CONGESTION" ;;
		tls) echo "tls: TLS 1.3, $way, $CONGESTION" ;;
		cable) echo "cable: two network namespaces, ${way/loopback/MTU 1500}, $CONGESTION" ;;
	esac
}

# check_connection [SERVER]: the present walsender uses it, by default the publisher's.
check_connection()
{
	local found=unix

	ask "${1-publisher}" "SELECT client_addr IS NULL, ssl, version FROM pg_stat_replication JOIN pg_stat_ssl USING (pid) LIMIT 1"
	case $REPLY in
		t*) ;;
		f\|t\|TLSv1.3) found=tls ;;
		f\|f*) found=tcp ;;
		*) found="\"$REPLY\"" ;;
	esac
	[[ ${CONNECTION/cable/tcp} == "$found" ]] || die "the walsender's connection is not $CONNECTION, but $found"
}
