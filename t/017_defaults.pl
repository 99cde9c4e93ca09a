# Defaults of columns that are not published are kept prepared by writers: they
# follow what they are made of, and an error while they are prepared is an error.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($publisher, $subscriber) = new_pair();
on_publisher(
	q(CREATE TABLE called (id int PRIMARY KEY);
	CREATE TABLE checked (id int PRIMARY KEY);
	CREATE TABLE failing (id int PRIMARY KEY);));
on_subscriber(
	q(CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1';
	CREATE TABLE called (id int PRIMARY KEY, extra int DEFAULT f());
	CREATE DOMAIN d AS int;
	CREATE TABLE checked (id int PRIMARY KEY, extra d DEFAULT 1);
	CREATE TABLE failing (id int PRIMARY KEY, extra int);));
create_extension($subscriber);
subscribe($publisher, $subscriber, 'tap', with => 'disable_on_error = true');

sub wait_until_disabled
{
	$subscriber->poll_query_until('postgres',
		'SELECT NOT subenabled FROM pg_subscription')
	  or die 'there was no error';
	return;
}

# Each table has been changed, so that its defaults are prepared.
on_publisher("INSERT INTO $_ VALUES (1)") for qw(called checked failing);
wait_applied($publisher, $subscriber, 'tap');

on_subscriber(
	q(CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 2')
);
on_publisher("INSERT INTO called VALUES ($_)") for 2 .. 5;
wait_applied($publisher, $subscriber, 'tap');
is( on_subscriber(
		q(SELECT string_agg(extra::text, ' ' ORDER BY id) FROM called)),
	'1 2 2 2 2',
	'a function that is replaced is called from then on');

on_subscriber(
	'ALTER DOMAIN d ADD CONSTRAINT large CHECK (value > 5) NOT VALID');
my $offset = -s $subscriber->logfile;
on_publisher('INSERT INTO checked VALUES (2)');
wait_until_disabled();
like(
	slurp_file($subscriber->logfile, $offset),
	qr/ERROR: +value for domain public.d violates check constraint "large"/,
	'a constraint that is added to a domain counts');
on_subscriber(
	'ALTER DOMAIN d DROP CONSTRAINT large; ALTER SUBSCRIPTION tap ENABLE');
wait_applied($publisher, $subscriber, 'tap');
wait_for_pool($subscriber, 'tap');

# Planning this default fails, each time.
on_publisher('INSERT INTO failing VALUES (2)');
wait_applied($publisher, $subscriber, 'tap');
on_subscriber('ALTER TABLE failing ALTER extra SET DEFAULT 1 / 0');
$offset = -s $subscriber->logfile;
on_publisher('INSERT INTO failing VALUES (3)');
wait_until_disabled();
like(
	slurp_file($subscriber->logfile, $offset),
	qr/ERROR: +division by zero/,
	'a default that cannot be prepared is an error');
on_subscriber(
	'ALTER TABLE failing ALTER extra SET DEFAULT 7; ALTER SUBSCRIPTION tap ENABLE'
);
wait_applied($publisher, $subscriber, 'tap');
is(on_subscriber('SELECT extra FROM failing WHERE id = 3'),
	'7', 'until it is mended');

for my $table (qw(called checked failing))
{
	is( on_subscriber("SELECT array_agg(id ORDER BY id) FROM $table"),
		on_publisher("SELECT array_agg(id ORDER BY id) FROM $table"),
		"$table has the same rows on both sides");
}
finish(
	$publisher, $subscriber,
	qr/ERROR: +value for domain public.d violates check constraint "large"/,
	qr/ERROR: +division by zero/);
done_testing();
