# Promise: triggers of later transactions find what a trigger leaves in its session,
# a setting or a temporary table.  All of it is in one session, that of the apply
# worker.
#
# Triggers write the same as with PostgreSQL's own apply, which applies the same
# transactions in the database "serial".  Many transactions are queued when the
# first one may continue, so that several writers would apply them.  Detects: each
# writer has a session of its own, with what its own triggers have left there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair(
	subscriber_conf => q(
		parallel_apply.writers_per_subscription = 4
		parallel_apply.max_batch_transactions = 1));
$subscriber->sql('CREATE DATABASE serial');

# What the trigger of each table does with a value.  A session that has set it for a
# transaction has an empty value afterwards; a session that has not has none.
my %code = (
	kept => q(PERFORM set_config('app.value', NEW.id::text, false);),
	hidden => q(PERFORM set_config('app.value', NEW.id::text, false);
		PERFORM set_config('app.value', 'local', true);),
	local => q(PERFORM set_config('app.value', NEW.id::text, true);),
	caught => q(BEGIN
			PERFORM set_config('app.value', NEW.id::text, false);
			RAISE 'no';
		EXCEPTION WHEN raise_exception THEN NULL;
		END;),
	cleared => q(RESET app.value;),
	temporary => q(CREATE TEMPORARY TABLE IF NOT EXISTS old (id int);
		INSERT INTO old VALUES (NEW.id);
		PERFORM set_config('app.value', (SELECT sum(id) FROM old)::text, true);));
my @tables = sort keys %code;
my $tables = join "\n",
  map { "CREATE TABLE $_ (id int PRIMARY KEY);" } 'plain', @tables;
my $gate = 'CREATE TABLE gate (id int PRIMARY KEY, n int);';
my $triggers = join "\n", map {
	qq(CREATE FUNCTION do_$_() RETURNS trigger LANGUAGE plpgsql AS \$\$
		DECLARE before text := nullif(current_setting('app.value', true), '');
		BEGIN
			$code{$_}
			INSERT INTO public.notes (what) VALUES (concat_ws(' ', TG_TABLE_NAME, NEW.id,
				coalesce(before, 'none'), current_setting('app.value', true)));
			RETURN NULL;
		END \$\$;
		CREATE TRIGGER code AFTER INSERT ON $_ FOR EACH ROW EXECUTE FUNCTION do_$_();
		ALTER TABLE $_ ENABLE ALWAYS TRIGGER code;)
} @tables;

$publisher->sql("$gate $tables");
$subscriber->safe_psql($_,
	"$gate $tables CREATE TABLE notes (n bigserial, what text); $triggers")
  for qw(postgres serial);
$subscriber->create_extension;
$pair->subscribe('tap');
$pair->subscribe_serially;
$publisher->sql('INSERT INTO gate VALUES (1, 0)');

# Insert rows into these tables, each in a transaction, while the first one is
# blocked.
sub insert_into
{
	my (@rows) = @_;
	$pair->insert_behind_gate(
		sub {
			# the apply worker, if it keeps a setting
			$subscriber->wait_until(
				q(count(*) > 0 FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND backend_type <> 'client backend'),
				'nothing waits for the lock');
		},
		@rows);
	return;
}

sub same_as_serial
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pair->tables_equal($when, 'gate', 'plain', @tables);
	$pair->wait_for_both;
	my $notes = q(SELECT string_agg(what, E'\n' ORDER BY n) FROM notes);
	is( $subscriber->sql($notes),
		$subscriber->safe_psql('serial', $notes),
		"triggers have found the same $when");
	return;
}

# Detects: a setting for the transaction, or one that was rolled back, is taken for
# one of the session.
insert_into(('local', 'caught') x 10);
same_as_serial('with settings of transactions');
is($subscriber->fallbacks, 0, 'writers apply what sets for its transaction');

insert_into(('kept', 'local') x 10);
same_as_serial('with settings of the session');
cmp_ok($subscriber->fallbacks, '>=', 20,
	'the apply worker applies what finds them');
my $log = slurp_file($subscriber->logfile);
is( () =
	  $log =~
	  /LOG:  apply worker of subscription "tap" keeps a setting or a temporary table/g,
	1,
	'the log says so once');

insert_into('cleared');
same_as_serial('when the setting is back');
my $before = $subscriber->fallbacks;
insert_into(('local') x 10);
same_as_serial('after that');
is($subscriber->fallbacks - $before,
	10, 'writers apply again what runs no user code');

# Writers run user code again.  Detects: a setting that another value hides until the end
# of the transaction is not noticed.
$subscriber->connect_again('tap');
insert_into(('hidden', 'local') x 10, 'cleared');
same_as_serial('with settings that are hidden');

# Several changes in a transaction, one of which leaves a setting
$publisher->sql(
	join "\n",
	map {
		my ($id, $other) = ($pair->next_id, $pair->next_id);
		"BEGIN; INSERT INTO plain VALUES ($id); INSERT INTO kept VALUES ($id);
		INSERT INTO local VALUES ($id); INSERT INTO kept VALUES ($other); COMMIT;"
	} 1 .. 10);
insert_into('cleared');
same_as_serial('with several changes');

# A new apply worker leaves user code to writers again.  Detects: a temporary table is not
# noticed.
$subscriber->connect_again('tap');
insert_into(('temporary') x 10);
same_as_serial('with a temporary table');

finish($publisher, $subscriber);
done_testing();
