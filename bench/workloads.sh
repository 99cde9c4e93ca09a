# shellcheck shell=bash
# workloads.sh - the kinds of backlogs: tables, sizes, pgbench scripts.
#
# A workload is a name from WORKLOADS or a file with a pgbench script.  Its default
# sizes are in set_workload_sizes, its tables in workload_tables, and its
# transactions in workload_options (many transactions, by pgbench), one_transaction
# (a single one) or run_sysbench.  A new workload is a line in each of these.  Small
# tables are in every seed; others only in that of their workload, see other_tables.
#
# set_workload_sizes sets the following, unless the caller has:
#   SCALE          of pgbench: 100000 accounts, 16 MB each; of tpcc: warehouses
#                  Transactions use the accounts, branches, tellers and warehouses
#                  above FROM, which is 0, and two servers have different ones.
#   TRANSACTIONS   size of the backlog; of a workload of one transaction, 1
#   ROWS           rows of that one transaction, of the table of "full" or of
#                  "indexes", or of each table of sysbench

WORKLOADS=(tpcb simple insert1 coded update1 hot zipf delete full rows1000 insert2m update500k tpcc indexes
	sysbench_{update_index,update_non_index,write_only,insert,delete})
ROWS_PER_DELETE=10
ROWS_PER_INSERT=1000			# of rows1000
SYSBENCH_TABLES=4
WORDS=50000				# of "indexes"

is_one_transaction() { [[ $1 == insert2m || $1 == update500k ]]; }
is_sysbench() { [[ $1 == sysbench_* ]]; }

# has_silent_transactions WORKLOAD: do some transactions write nothing or roll back,
# so that they are not replicated?
has_silent_transactions() { is_sysbench "$1" || [[ $1 == tpcc ]]; }

# need_programs WORKLOAD: add the programs of this workload to NEEDED_PROGRAMS.
need_programs() { ! is_sysbench "$1" || NEEDED_PROGRAMS+=(sysbench); }

# require_modules WORKLOAD: ends the program unless the server has the extensions that
# the tables of this workload need.
require_modules()
{
	[[ $1 != indexes || -f $("$PG_CONFIG" --sharedir)/extension/pg_trgm.control ]] ||
		die "workload indexes needs pg_trgm, a contrib module of PostgreSQL, for this server;" \
			"Debian's postgresql-MAJOR has it, other distributions have postgresql-contrib"
}

# set_workload_sizes WORKLOAD
set_workload_sizes()
{
	local scale=1 transactions=200000 rows=0

	case $1 in
		insert1|coded|hot)	;;
		delete)		transactions=100000 ;;
		full)		transactions=40000 rows=10000 ;;
		rows1000)	transactions=500 ;;
		insert2m)	transactions=1 rows=2000000 ;;
		tpcc)		transactions=40000 scale=10 ;;
		indexes)	transactions=40000 rows=50000 ;;
		sysbench_write_only|sysbench_delete) transactions=100000 rows=1000000 ;;
		sysbench_*)	rows=1000000 ;;
		update500k)	transactions=1 rows=500000 scale=$(( (${ROWS:-500000} + 99999) / 100000 )) ;;
		*)		scale=50 ;;
	esac
	# With a delay everything takes longer.
	(( READ_DELAY_US + FLUSH_DELAY_US == 0 || transactions < 20000 )) || transactions=20000
	SCALE=${SCALE:-$scale}
	TRANSACTIONS=${TRANSACTIONS:-$transactions}
	ROWS=${ROWS:-$rows}
	[[ $1 != update500k ]] || (( ROWS <= 100000 * SCALE )) || die "$ROWS rows need --scale $scale"
}

# workload_space_mb WORKLOAD: upper limit of the space that its servers need: three
# copies of the data and its WAL (seed, publisher, subscriber), WAL of two servers,
# and the files in which the walsender and the subscriber keep a large transaction.
workload_space_mb()
{
	local bytes_per_transaction=3072 data_mb=$(( 16 * SCALE ))

	case $1 in
		tpcc)		bytes_per_transaction=16000 data_mb=$(( 120 * SCALE + 50 )) ;;
		sysbench_*)	bytes_per_transaction=6000 data_mb=$(( SYSBENCH_TABLES * ROWS / 3500 + 16 )) ;;
		indexes)	bytes_per_transaction=30000 data_mb=$(( ROWS / 200 + 16 )) ;;
		rows1000)	bytes_per_transaction=$(( ROWS_PER_INSERT * 1500 )) ;;
		delete)		bytes_per_transaction=$(( ROWS_PER_DELETE * 1000 )) ;;
		insert2m|update500k) bytes_per_transaction=$(( ROWS * 1200 )) ;;
	esac
	echo $(( 3 * (data_mb + 500) + TRANSACTIONS * bytes_per_transaction / 1048576 ))
}

# pgbench_scale WORKLOAD
pgbench_scale() { [[ $1 == tpcc ]] && echo 1 || echo "$SCALE"; }

# workload_tables WORKLOAD: SQL.  Tables of other workloads remain empty.
workload_tables()
{
	cat <<-SQL
		CREATE TABLE bench_insert (id bigserial PRIMARY KEY, delta int, filler text DEFAULT repeat('x', 84));
		CREATE TABLE bench_coded (LIKE bench_insert INCLUDING ALL);
		CREATE FUNCTION bench_code(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT \$1 % 1000';
		CREATE INDEX bench_coded_delta ON bench_coded (bench_code(delta));
		CREATE TABLE bench_hot (id int PRIMARY KEY, value int) WITH (fillfactor = 20);
		INSERT INTO bench_hot SELECT n, 0 FROM generate_series(1, 10) n;
		CREATE TABLE bench_delete (id int PRIMARY KEY, value int, filler text DEFAULT repeat('x', 84));
		CREATE TABLE bench_full (id int NOT NULL, value int, filler text DEFAULT repeat('x', 84)) WITH (fillfactor = 50);
		CREATE INDEX bench_full_id ON bench_full (id);
		ALTER TABLE bench_full REPLICA IDENTITY FULL;
		CREATE TABLE bench_narrow (id int PRIMARY KEY, value int, note text);
		-- Measurements of computers, with the columns that TimescaleDB's benchmark has.
		CREATE TABLE bench_cpu (time timestamptz NOT NULL, host text NOT NULL, cpu_usage float8,
			usage_user float8, usage_system float8, usage_idle float8, usage_nice float8, usage_iowait float8,
			usage_irq float8, usage_softirq float8, usage_steal float8, usage_guest float8, usage_guest_nice float8);
		CREATE INDEX bench_cpu_time ON bench_cpu (time);
		CREATE INDEX bench_cpu_host ON bench_cpu (host);
		CREATE INDEX bench_cpu_usage ON bench_cpu (cpu_usage);
	SQL
	case $1 in
		delete) echo "INSERT INTO bench_delete SELECT n, n FROM generate_series(1, $ROWS_PER_DELETE * $TRANSACTIONS) n;" ;;
		full) echo "INSERT INTO bench_full SELECT n, n FROM generate_series(1, $ROWS) n;" ;;
		tpcc) printf '\\set warehouses %s\n' "$SCALE"; cat "$REPO/bench/tpcc.sql" ;;
		indexes) indexes_tables ;;
	esac
}

# indexes_tables: SQL, of documents that are searched.  All values are functions of the
# row's number, and of the version of its text.  As in a language, the word of rank n
# has a share of nearly 1 / n, and frequent words are short.
indexes_tables()
{
	cat <<-SQL
		CREATE EXTENSION pg_trgm;
		CREATE TABLE bench_words (rank int PRIMARY KEY, word text NOT NULL);
		INSERT INTO bench_words
			SELECT n, s[n % 100] || CASE WHEN n < 100 THEN '' ELSE s[n / 100 % 100] END || CASE WHEN n < 10000 THEN '' ELSE s[n / 10000] END
			FROM generate_series(1, $WORDS) n,
				(SELECT ('[0:99]=' || array_agg(substr('bcdfghjklmnprstvwxyz', 1 + i % 20, 1) || substr('aeiou', 1 + i / 20, 1) ||
					substr('nrstlmk', 1 + i % 7, 1) ORDER BY i)::text)::text[] AS s FROM generate_series(0, 99) i) syllables;

		-- A number from 0 to below 1, and one from 1 to below n, with shares of 1 / n
		CREATE FUNCTION bench_uniform(bigint, bigint) RETURNS float8 LANGUAGE sql IMMUTABLE
			RETURN (hashint8extended(\$1, \$2) & 4294967295) / 4294967296::float8;
		CREATE FUNCTION bench_zipf(n int, bigint, bigint) RETURNS int LANGUAGE sql IMMUTABLE
			RETURN floor(n::float8 ^ bench_uniform(\$2, \$3));
		CREATE FUNCTION bench_text(id bigint, version bigint, words int) RETURNS text LANGUAGE sql STABLE
			RETURN (SELECT string_agg((SELECT word FROM bench_words WHERE rank = bench_zipf($WORDS, id * 100 + n, version)), ' ' ORDER BY n)
				FROM generate_series(1, words) n);
		CREATE FUNCTION bench_title(id bigint, version bigint) RETURNS text LANGUAGE sql STABLE RETURN bench_text(-id, version, 6);
		CREATE FUNCTION bench_body(id bigint, version bigint) RETURNS text LANGUAGE sql STABLE
			RETURN bench_text(id, version, (20 + id % 61)::int);

		CREATE TABLE bench_documents (id bigserial PRIMARY KEY, author int NOT NULL, category int NOT NULL, status text NOT NULL,
			price numeric(8,2) NOT NULL, views int NOT NULL, created timestamptz NOT NULL, changed timestamptz NOT NULL,
			title text NOT NULL, body text NOT NULL);
		CREATE FUNCTION bench_document(id bigint) RETURNS bench_documents LANGUAGE sql STABLE
			RETURN ROW(id, bench_zipf(5000, id, -1), bench_zipf(200, id, -2),
				(ARRAY['published', 'archived', 'draft', 'private', 'deleted', 'reviewed'])[bench_zipf(7, id, -3)],
				(1 + 999 * bench_uniform(id, -4))::numeric(8,2), 0, timestamptz '2026-01-01 00:00+00' + id * interval '1 minute',
				timestamptz '2026-01-01 00:00+00' + id * interval '1 minute', bench_title(id, 0), bench_body(id, 0))::bench_documents;
		INSERT INTO bench_documents SELECT d.* FROM generate_series(1, $ROWS) n, bench_document(n) d;
		ALTER SEQUENCE bench_documents_id_seq RESTART $(( ROWS + 1 ));
		CREATE INDEX bench_documents_words ON bench_documents USING gin (to_tsvector('english', body));
		CREATE INDEX bench_documents_trigrams ON bench_documents USING gin (title gin_trgm_ops);
		$(for columns in author "category, price" "status, created" price views created changed; do
			echo "CREATE INDEX bench_documents_${columns/, /_} ON bench_documents ($columns);"
		done)
	SQL
}

# publisher_changes WORKLOAD: SQL, for the publisher alone.  The indexes of "indexes"
# are those of the subscriber.
publisher_changes()
{
	[[ $1 != indexes ]] ||
		echo "DROP INDEX bench_documents_$(printf '%s\n' words trigrams author category_price status_created price views created changed | paste -s -d , | sed 's/,/, bench_documents_/g')"
}

# other_tables WORKLOAD: the tables that only its seed has
other_tables()
{
	case $1 in
		tpcc) echo warehouse district customer history new_order orders order_line item stock ;;
		indexes) echo bench_documents ;;
		sysbench_*) seq -s ' ' -f 'sbtest%g' $SYSBENCH_TABLES ;;
	esac
}

# The tables that are part of the checksum, with other_tables
TABLES=(pgbench_{accounts,branches,tellers,history} bench_{insert,coded,hot,delete,full,narrow,cpu,marker})

# join_tables WORKLOAD: all tables with its data, for SQL
join_tables()
{
	# shellcheck disable=SC2046  # tables are words
	printf '%s\n' "${TABLES[@]}" $(other_tables "$1") | paste -s -d ,
}

# workload_options WORKLOAD CLIENTS: options for pgbench; writes the script, if
# there is one.
workload_options()
{
	local script=$WORK/workload.sql

	case $1 in
		tpcc)	tpcc_script new_order :home, :from + 1, :scale, :seed
			tpcc_script payment :home, :from + 1, :scale, :seed
			tpcc_script delivery :home, :seed
			# Out of a hundred; the other eight only read
			echo "-f $WORK/new_order.sql@45 -f $WORK/payment.sql@43 -f $WORK/delivery.sql@4"
			return ;;
	esac
	case $1 in
		tpcb) builtin_script tpcb-like ;;
		simple) builtin_script simple-update ;;
		insert1) cat <<-'SQL' ;;
			\set delta random(-5000, 5000)
			INSERT INTO bench_insert (delta) VALUES (:delta);
		SQL
		coded) cat <<-'SQL' ;;
			\set delta random(-5000, 5000)
			INSERT INTO bench_coded (delta) VALUES (:delta);
		SQL
		update1) cat <<-'SQL' ;;
			\set aid random(1 + 100000 * :from, 100000 * :scale)
			\set delta random(-5000, 5000)
			UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
		SQL
		zipf) cat <<-'SQL' ;;
			\set aid random_zipfian(1 + 100000 * :from, 100000 * :scale, 1.2)
			\set delta random(-5000, 5000)
			UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
		SQL
		hot) cat <<-'SQL' ;;
			\set id random(1, 10)
			\set delta random(-5000, 5000)
			UPDATE bench_hot SET value = value + :delta WHERE id = :id;
		SQL
		# Each transaction has rows of its own: it is number (client + clients * n),
		# and these numbers are shuffled, since 1000003 is prime.
		delete) cat <<-SQL ;;
			\\set k 1 + (:client_id + $2 * :n) * 1000003 % :transactions
			\\set n :n + 1
			DELETE FROM bench_delete WHERE id IN ($(seq -s ', ' -f ':k + %g * :transactions' 0 $(( ROWS_PER_DELETE - 1 ))));
		SQL
		full) cat <<-'SQL' ;;
			\set id random(1, :rows)
			\set delta random(-5000, 5000)
			UPDATE bench_full SET value = value + :delta WHERE id = :id;
		SQL
		rows1000) cat <<-SQL ;;
			INSERT INTO bench_cpu SELECT clock_timestamp(), 'host_' || n$(printf ', round((random() * 100)::numeric, 2)%.0s' {1..11})
			FROM generate_series(1, $ROWS_PER_INSERT) n;
		SQL
		# Half of the transactions add a document, 30 % change figures, and 20 % its
		# text.  A client updates documents of its own, so rows do not depend on the
		# order in which clients commit.
		indexes) cat <<-SQL ;;
			\\set n :n + 1
			\\set kind random(1, 100)
			\\if :kind <= 50
				INSERT INTO bench_documents SELECT * FROM bench_document(nextval('bench_documents_id_seq'));
			\\elif :kind <= 80
				\\set id 1 + :client_id + $2 * (random_zipfian(1, :rows / $2, 1.2) - 1)
				\\set cents random(100, 99999)
				UPDATE bench_documents SET views = views + 1, price = :cents / 100.0 WHERE id = :id;
			\\else
				\\set id 1 + :client_id + $2 * random(0, :rows / $2 - 1)
				UPDATE bench_documents SET title = bench_title(:id, :n), body = bench_body(:id, :n), changed = created + :n * interval '1 hour'
				WHERE id = :id;
			\\endif
		SQL
		*)	cat "$1" ;;
	esac >"$script"
	echo "-f $script -D n=0"
}

# builtin_script NAME: that of pgbench, above FROM
builtin_script()
{
	"$BIN/pgbench" --show-script="$1" 2>&1 | sed 's/random(1, \([0-9]*\) \* :scale)/random(1 + \1 * :from, \1 * :scale)/'
}

# tpcc_script PROCEDURE ARGUMENT ...: writes it.  Procedures draw random numbers of
# their own, from the seed that pgbench gives them.
tpcc_script()
{
	cat >"$WORK/$1.sql" <<-SQL
		\set home random(1 + :from, :scale)
		\set seed random(0, 1000000000) / 1000000000.0
		CALL tpcc_$1(${*:2});
	SQL
}

# run_sysbench SERVER WORKLOAD COMMAND [OPTION]...: COMMAND is prepare or run.
run_sysbench()
{
	sysbench "oltp_${2#sysbench_}" --db-driver=pgsql --pgsql-host="$WORK/socket/$1" --pgsql-user=postgres \
		--pgsql-db="$DATABASE" --tables=$SYSBENCH_TABLES --table-size="$ROWS" --threads=4 --rand-seed=1 \
		"${@:4}" "$3" >"$WORK/sysbench.log" 2>&1 ||
		{ tail -n 20 "$WORK/sysbench.log" >&2; die "sysbench failed"; }
}

# one_transaction WORKLOAD: SQL.
one_transaction()
{
	local first=${2-1} last=${3-$ROWS}

	case $1 in
		insert2m) echo "INSERT INTO bench_narrow SELECT n, n % 1000, 'note ' || n FROM generate_series($first, $last) n" ;;
		update500k) echo "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid BETWEEN $first AND $last" ;;
	esac
}
