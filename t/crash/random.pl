# Promise: whatever the publisher's sessions do, and whichever process dies
# meanwhile, the parallel subscriber shows only prefixes of the publisher's commit
# order, and ends with the rows that PostgreSQL's own serial apply has.
#
# This is a short run of t/stress/stress.  No race is forced: it searches for races
# that are not known.  The seed comes from the clock unless SEED is set, and is printed.
# A seed that is skipped, since PostgreSQL alone cannot do it, is replaced by the
# next one.
use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $tries = 3;

# The servers of the other tests are not used: t/stress/stress has its own.
chomp(my $bindir = `pg_config --bindir`);
local $ENV{STRESS_BINDIR} = $bindir;
my @command = ($^X, "$FindBin::RealBin/../stress/stress");
push @command, 'SIZE=800' if !defined $ENV{SIZE};

my $seed = length($ENV{SEED} // '') ? $ENV{SEED} : time % 1_000_000;
my ($passed, $output, $error, @seeds, @not_skipped);
while ($tries-- > 0)
{
	($output, $error) = ('', '');
	$passed = IPC::Run::run([ @command, "SEED=$seed" ],
		'<', \undef, '>', \$output, '2>', \$error);
	@seeds = $output =~ /^(seed \d+: .*)$/mg;
	@not_skipped = grep { !/: skipped / } @seeds;
	last if @not_skipped || !@seeds;
	diag($_) foreach @seeds;
	$seed += @seeds;
}
plan skip_all => $seeds[-1] if @seeds && !@not_skipped;

# Each seed separately, then all: a run may have ended before its first seed.
like($_, qr/: passed, /,
	s/:.*//r . ' gives the snapshots and rows of serial apply')
  foreach @not_skipped;
ok($passed && @not_skipped > 0,
	't/stress/stress has run to its end and has found nothing');
$passed ? note($output) : diag("$output$error");
done_testing();
