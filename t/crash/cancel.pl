# Promise: if writers are canceled repeatedly, at any point, no transaction is lost
# and none is applied twice.
#
# A canceled process stops when it logs a message.  With one message for each
# transaction, this includes the one after the commit.  Rows without a key show what
# is applied twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(subscriber_conf => <<~'CONF');
	parallel_apply.log_min_duration = 0
	parallel_apply.max_batch_transactions = 1
	CONF
my $transactions = 2000;

$pair->exec_both(
	q(CREATE TABLE history (n int);
	CREATE TABLE gate (id int PRIMARY KEY, n int)));
$publisher->sql('INSERT INTO gate VALUES (1, 0)');
$subscriber->create_extension;
$pair->subscribe('tap');

# They wait behind a lock until all are queued.
my $lock = $subscriber->hold('SELECT FROM gate FOR UPDATE');
$publisher->sql('UPDATE gate SET n = n + 1');
$publisher->sql(
	join('', map { "INSERT INTO history VALUES ($_);\n" } 1 .. $transactions)
);
$subscriber->wait_for_state('waiting for prior commit');
my $cancels = $subscriber->background_psql('postgres', on_error_stop => 0);

# A writer may have exited when it is canceled, for which the server raises a
# warning.
$cancels->query_until(qr/begun/, <<~"SQL");
	SET client_min_messages = error;
	\\echo begun
	DO \$\$ BEGIN
		WHILE (SELECT count(*) < $transactions FROM history) LOOP
			PERFORM pg_cancel_backend(pid) FROM parallel_apply.writers
				WHERE state = 'applying';
			COMMIT;
		END LOOP;
	END \$\$;
	SQL
$lock->release;
$cancels->query_safe('SELECT 1');
$cancels->quit;
$publisher->wait_applied;
$pair->rows_equal('history', 'nothing is lost, and nothing is applied twice');

finish($publisher, $subscriber, qr/canceling statement due to user request/);
done_testing();
