# Promise: the parts of pg_verify_subscription that need no server build the right queries, find
# exactly the rows that differ, and write each value so that it can be read back.
#
# They are called by a program that builds with SELFTEST=1 install, and compared with a model
# in it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PapplyTest;
use Programs;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'the self test of pg_verify_subscription was not built'
  unless is_installed('pg_verify_subscription_selftest');

my ($out, $err) = run_command(['pg_verify_subscription_selftest']);
is($?, 0, 'the self test finds no fault');
is("$out$err", '', 'and prints none');
program_help_ok('pg_verify_subscription');
program_version_ok('pg_verify_subscription');
program_options_handling_ok('pg_verify_subscription');
done_testing();
