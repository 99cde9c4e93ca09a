# NodeWaits.pm - methods of PapplyNode.pm that count the waits of processes.  They need a
# library made with SELFTEST=1 (src/test/selftest_wakes.c).
package NodeWaits;

use strict;
use warnings;
use PostgreSQL::Test::Utils ();
use Test::More import => [qw(fail pass)];
use Time::HiRes qw(time);

# Create a function of src/test/selftest_wakes.c on a subscriber.  Return false if the
# library was made without SELFTEST=1.
sub create_selftest_waits
{
	my ($self) = @_;
	my ($status) = $self->psql(
		'postgres',
		q(CREATE FUNCTION selftest_waits(oid) RETURNS text LANGUAGE C
		AS 'parallel_apply', 'papply_selftest_waits'));
	return $status == 0;
}

# Return how often the apply worker (64) and the writers of subscription tap have
# waited, by process.
sub waits
{
	my ($self) = @_;
	return $self->count_waits =~ /(\d+): (\d+)/g;
}

# Return two numbers of sleeps of the apply worker that are not the apply loop's: long ones,
# and others that were ended by time.
sub own_sleeps
{
	my ($self) = @_;
	return $self->count_waits =~ /long: (\d+), timeouts: (\d+)/;
}

sub count_waits
{
	my ($self) = @_;
	return $self->sql(
		q(SELECT selftest_waits(oid) FROM pg_subscription WHERE subname = 'tap')
	);
}

# Let the apply worker sleep until it is woken, or as usual.
sub let_receiver_sleep
{
	my ($self, $is_on) = @_;
	$self->reload_with("parallel_apply.selftest_receiver_sleeps = $is_on");
	return;
}

# Assert that the apply worker and the writers of subscription tap come to rest, all but
# these.  A process that does not sleep, or is woken all the time, has more and more waits.
# Between two readings it has time for that, also where there is one processor.
my ($QUIET_READINGS, $MAX_WAITS, $PAUSE_SECONDS) = (300, 1000, 0.001);

sub becomes_quiet
{
	my ($self, $name, @others) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my (%first, %last);
	my $same = 0;
	while ($same < $QUIET_READINGS)
	{
		my %waits = $self->waits;
		delete @waits{@others};
		%first = %waits if !%first;
		my @new = grep { $waits{$_} != ($last{$_} // 0) } keys %waits;
		my @busy =
		  grep { $waits{$_} - ($first{$_} // 0) > $MAX_WAITS } keys %waits;
		return fail("$name: process @busy does not come to rest") if @busy;
		return fail("$name: processes @new wait again")
		  if @new && time > $end;
		$same = @new ? 0 : $same + 1;
		%last = %waits;
		select(undef, undef, undef, $PAUSE_SECONDS);
	}
	return pass($name);
}

1;
