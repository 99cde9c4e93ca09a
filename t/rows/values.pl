# Promise: the text of a value becomes the publisher's value, both in the forms that
# writers parse themselves and in all forms that differ slightly from them.
#
# Both servers are compared with more digits than numbers need, and in one time
# zone.  The publisher sends times in several time zones.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pair, $publisher, $subscriber) = new_pair();
$pair->exec_both(
	q(CREATE DOMAIN age AS float8 CHECK (VALUE >= 0);
	CREATE TABLE numbers (id int PRIMARY KEY, f float8, short float4, a age, i int, n numeric);
	CREATE TABLE times (id int PRIMARY KEY, ts timestamp, tz timestamptz, d date,
		ts3 timestamp(3), tz0 timestamptz(0));)
);
$subscriber->create_extension;
$pair->subscribe('tap');

# Floats: with few digits and many, large and small, infinity and NaN
$publisher->sql(
	q(INSERT INTO numbers (id, f) SELECT row_number() OVER (), f::float8 FROM unnest('{0,-0,1,-1,0.5,-0.5,
		0.1,0.2,0.3,1.1,2.675,123456789012345,1234567890123456,-999999999999999,9007199254740993,
		99999999999999.9,0.000000000000001,0.00001,0.0001,1e15,1e16,1e22,1e23,1e100,1e-5,1e-100,
		4.9e-324,2.2250738585072014e-308,1.7976931348623157e308,123456.789e3,Infinity,-Infinity,NaN}'::text[]) f;
	INSERT INTO numbers SELECT 1000 + i, round((random() * 10 ^ (i % 12))::numeric, i % 9)::float8 * (1 - i % 2 * 2),
		random(), random(), i, random()::numeric FROM generate_series(1, 3000) i;
	INSERT INTO numbers (id, f) SELECT 5000 + i, random() * 10 ^ (i % 40 - 20) FROM generate_series(1, 1000) i;)
);

# Times: of all years, in time zones whose offset has hours, minutes or seconds
my $n = 0;
for my $zone (
	'UTC', 'Asia/Kolkata',
	'America/St_Johns', 'Europe/Berlin',
	'<+1530>-15:30')
{
	$n += 10000;
	$publisher->sql("ALTER DATABASE postgres SET timezone = '$zone'");
	$subscriber->restart_apply('tap');
	$subscriber->wait_for_pool('tap');
	$publisher->sql(
		qq(INSERT INTO times SELECT $n + row_number() OVER (), t::timestamp, t::timestamptz, t::timestamp::date,
			t::timestamp, t::timestamptz
		FROM unnest('{1970-01-01,2000-01-01,1999-12-31 23:59:59.999999,2000-02-29 12:00:00.5,1900-03-01,
			2024-02-29 00:00:00.000001,0001-01-02,0099-12-31,9999-12-30,10000-01-01,123456-07-08 09:10:11.12,
			4000-01-01 BC,0001-12-31 BC,infinity,-infinity,1880-05-05 05:05:05.05,2021-10-31 02:30}'::text[]) t;
		INSERT INTO times SELECT $n + 100 + i, t, t, t::date, t, t FROM generate_series(1, 1000) i,
			LATERAL (SELECT '1800-01-01'::timestamp + i * interval '100 days 1 hour 2 minutes 3.456789 s') x(t);)
	);
}
$publisher->sql(
	"ALTER DATABASE postgres RESET timezone; UPDATE numbers SET f = f + 1.25 WHERE id % 3 = 0"
);
$publisher->wait_applied;
$pair->rows_equal(
	'(SELECT id, float8send(f), float4send(short), float8send(a), i, n FROM numbers)',
	'numbers are equal in every bit');
$pair->rows_equal(
	'(SELECT id, timestamp_send(ts), timestamptz_send(tz), date_send(d), ts3, timestamptz_send(tz0) FROM times)',
	'times are equal in every bit');
is($subscriber->counter('fallbacks'),
	0, 'and writers have understood all of them');
finish($publisher, $subscriber, worker_terminated());
done_testing();
