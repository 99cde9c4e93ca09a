# Mutation.pm - messages that no publisher sends, made from those that it does send.
#
# A message is a string as it is in a CopyData message: a header of 25 bytes, then the
# message of the output plugin, whose first byte is its kind.  Which mutations are made is
# chosen by rand(), so that it depends on the seed only.
package Mutation;

use strict;
use warnings;
use Exporter 'import';
use FakePublisher qw(keepalive);

our @EXPORT_OK = qw(mutate);

my $header = 25;
my @kinds = qw(B C O R Y I U D T M b P K r S E c A p);

# Lengths, counts and numbers at which programs err, by their number of bytes
my %numbers = (
	1 => [ 0, 1, 0x7f, 0x80, 0xff ],
	2 => [ 0, 1, 2, 32, 33, 1600, 1664, 1665, 0x7fff, 0x8000, 0xffff ],
	4 => [
		0, 1, 2, 3,
		0xffff, 0x3ffffff, 0x3ffffffb, 0x3fffffff,
		0x40000000, 0x7ffffffc, 0x7fffffff, 0x80000000,
		0xfffffffc, 0xffffffff
	],
	8 => [ 0, 1, ~0 >> 1, ~0 ]);
my %template = (1 => 'C', 2 => 'n', 4 => 'N', 8 => 'Q>');

sub one_of
{
	my (@list) = @_;
	return $list[ rand @list ];
}

# An offset of that many bytes in a message, seldom in its header; undef if there is none
sub offset_in
{
	my ($message, $bytes) = @_;
	my $first = rand(20) < 1 ? 0 : $header;
	my $places = length($message) - $first - $bytes + 1;
	return $places > 0 ? $first + int rand $places : undef;
}

# Each gets the list of messages and a place in it, changes the list, and returns the
# details, or nothing if it cannot be done there.
my %mutations = (
	flip => sub {
		my ($list, $at) = @_;
		my $offset = offset_in($list->[$at], 1) // return;
		substr($list->[$at], $offset, 1) = chr rand 256;
		return "byte $offset";
	},
	number => sub {
		my ($list, $at) = @_;
		my $bytes = one_of(1, 2, 2, 4, 4, 4, 8);
		my $offset = offset_in($list->[$at], $bytes) // return;
		my $number = one_of(@{ $numbers{$bytes} });
		substr($list->[$at], $offset, $bytes) = pack $template{$bytes},
		  $number;
		return "$bytes bytes at $offset to $number";
	},
	step => sub {
		my ($list, $at) = @_;
		my $bytes = one_of(1, 2, 4);
		my $offset = offset_in($list->[$at], $bytes) // return;
		my $number = unpack $template{$bytes},
		  substr($list->[$at], $offset, $bytes);
		my $step = one_of(-2, -1, 1, 2);
		substr($list->[$at], $offset, $bytes) = pack $template{$bytes},
		  ($number + $step) % 2**(8 * $bytes);
		return "$bytes bytes at $offset by $step";
	},
	# The value that another message of the same kind has there
	graft => sub {
		my ($list, $at) = @_;
		my $kind = kind_of($list->[$at]);
		my $other = one_of(grep { kind_of($_) eq $kind } @$list);
		my $bytes = one_of(1, 4, 8);
		my $offset = offset_in($list->[$at], $bytes) // return;
		return if length $other < $offset + $bytes;
		substr($list->[$at], $offset, $bytes) =
		  substr($other, $offset, $bytes);
		return "$bytes bytes at $offset";
	},
	cut => sub {
		my ($list, $at) = @_;
		my $offset = offset_in($list->[$at], 0);
		substr($list->[$at], $offset) = '';
		return "to $offset bytes";
	},
	grow => sub {
		my ($list, $at) = @_;
		my $bytes = one_of(1, 2, 4, 100);
		$list->[$at] .= join '', map { chr rand 256 } 1 .. $bytes;
		return "by $bytes bytes";
	},
	kind => sub {
		my ($list, $at) = @_;
		return if length $list->[$at] <= $header;
		my $kind = one_of(@kinds);
		substr($list->[$at], $header, 1) = $kind;
		return "to $kind";
	},
	drop => sub {
		my ($list, $at) = @_;
		my $count = one_of(1, 1, 1, 2, 10);
		splice @$list, $at, $count;
		return "$count messages";
	},
	double => sub {
		my ($list, $at) = @_;
		splice @$list, $at, 0, $list->[$at];
		return 'once';
	},
	copy => sub {
		my ($list, $at) = @_;
		my $to = int rand @$list;
		splice @$list, $to, 0, $list->[$at];
		return "to $to";
	},
	move => sub {
		my ($list, $at) = @_;
		my $to = one_of($at + 1, int rand @$list) % @$list;
		splice @$list, $to, 0, splice @$list, $at, 1;
		return "to $to";
	},
	keepalive => sub {
		my ($list, $at) = @_;
		my $position = one_of(0, 1, int rand 2**40, ~0);
		splice @$list, $at, 0, keepalive($position, one_of(0, 1));
		return "of $position";
	});

sub kind_of
{
	my ($message) = @_;
	return length $message > $header ? substr($message, $header, 1) : '';
}

# Return a list with one to three mutations, and their description.
sub mutate
{
	my (@list) = @_;
	my @done;
	my $wanted = 1 + int rand 3;
	while (@done < $wanted)
	{
		# Rare kinds of messages as often as others
		my $kind = one_of(@kinds);
		my @places = grep { kind_of($list[$_]) eq $kind } 0 .. $#list;
		next if !@places;
		my $at = one_of(@places);
		my $name = one_of(sort keys %mutations);
		my $details = $mutations{$name}->(\@list, $at) // next;
		push @done, "$name $at ($kind) $details";
	}
	return (\@list, join '; ', @done);
}

1;
