# ManualPages.pm - commands of the manual, and what the pages say that they print.
#
# A command is taken from its page by the words that it begins with, so a command
# that is missing or written twice fails the test.  It is executed as a user would:
# SQL by psql, on the subscriber unless another node is named.
package ManualPages;

use strict;
use warnings;
use Exporter 'import';
use FindBin;
use IPC::Run;
use PapplyTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  run_manual_on blocks_of printed mentioned psql_prints execute execute_mentioned
  prints_what_is_written run_program);

my $node;

# Execute the commands on this node from here on.
sub run_manual_on
{
	($node) = @_;
	return;
}

# Return the indented blocks of a page, which are its commands and their output.
sub blocks_of
{
	my ($page) = @_;
	my $text = slurp_file("$FindBin::RealBin/../../$page");
	return map { s/^ {4}//mgr } $text =~ /((?:^ {4}.*\n)+)/mg;
}

# Return the command of a page that begins with these words, and the output that
# follows it, if the page has any.  A program has its own line; a statement ends
# with a semicolon or a backslash command of psql.
sub printed
{
	my ($page, $words) = @_;
	my $end = $words =~ /^(?:[A-Z]|\\)/ ? qr/(?:.|\n)*?(?:;|\\g\w+)/ : qr/.*/;
	$end = qr/.*/ if $words =~ /^\\/;
	my @blocks = blocks_of($page);
	my @found;
	for my $i (0 .. $#blocks)
	{
		my $next = $blocks[ $i + 1 ] // '';
		$next = ''
		  if $next !~ /^(-\[ RECORD| +\w+|(ERROR|WARNING|NOTICE): )/;
		push @found, [ $_, $next ]
		  for $blocks[$i] =~ /^(\Q$words\E$end)(?: +--.*)?$/mg;
	}
	is(scalar(@found), 1, "$page: $words ...")
	  or die 'the page does not have the command once';
	return @{ $found[0] };
}

# Return a command in the text of a page that begins with these words.
sub mentioned
{
	my ($page, $words) = @_;
	my $text = slurp_file("$FindBin::RealBin/../../$page");
	my @found = $text =~ /`(\Q$words\E[^`]*)`/g;
	is(scalar(@found), 1, "$page: `$words ...`")
	  or die 'the page does not have the command once';
	return $found[0];
}

### running them ###############################################################

# Return what psql prints, as a user sees it, and whether it succeeds.
sub psql
{
	my ($input) = @_;
	my $is_done = IPC::Run::run(
		[
			'psql', '-X',
			'-v', 'ON_ERROR_STOP=1',
			'-P', 'pager=off',
			'-d', $node->connstr('postgres')
		],
		'<',
		\"$input\n",
		'>',
		\my $out,
		'2>',
		\my $messages);
	return ($is_done, $out, $messages);
}

# The same where it has to succeed
sub psql_prints
{
	my ($input) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($is_done, $out, $messages) = psql($input);
	ok($is_done, "it is executed: $input") or diag($messages);
	return $out;
}

sub execute
{
	my ($page, $words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return psql_prints((printed($page, $words))[0]);
}

sub execute_mentioned
{
	my ($page, $words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return psql_prints(mentioned($page, $words));
}

# Times, positions, process and transaction IDs vary, and so does the width of
# columns.
sub without_values
{
	my ($output) = @_;
	$output =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*[+-]\d\d/TIME/g;
	$output =~ s/\b\d\d:\d\d:\d\d(\.\d+)?/INTERVAL/g;
	$output =~ s/^(remote_xid|attempts)( +\| )\d+/$1$2NUMBER/mg;
	$output =~ s/\{\d+\}|session on \w+: \K\d+/PID/g;
	$output =~ s/-{2,}(?=[+\n])/-/g;
	$output =~ s/^-\[ RECORD 1 \].*/-[ RECORD 1 ]/mg;
	$output =~ s/^\(\d+ rows?\)\n//mg;
	$output =~ s/[ \t]+/ /g;
	$output =~ s/ $//mg;
	return $output =~ s/\n+\z//r;
}

# Execute a command of a page; what it prints, and the messages that it causes, are
# what the page has.
sub prints_what_is_written
{
	my ($page, $words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($command, $expected) = printed($page, $words);
	my ($is_done, $output, $messages) = psql($command);
	isnt($expected, '', 'the page has its output');
	$messages =~ s/^psql:\S+ (?=[A-Z]+: )//mg;
	$messages =~ s/^CONTEXT: .*//ms;    # from 18 on
	if ($expected =~ /^[A-Z]+: /)
	{
		is($is_done ? 'done' : 'error',
			$expected =~ /^ERROR: /m ? 'error' : 'done', $command);
		$output = $messages;
	}
	else
	{
		ok($is_done, "it is executed: $command") or diag($messages);
	}
	is( without_values($output),
		without_values($expected),
		"$page: what $words ... prints");
	return;
}

# Execute a program of a page with these replacements, for the node.
sub run_program
{
	my ($page, $words, %replaced) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($command) = printed($page, $words);
	for my $word (keys %replaced)
	{
		$command =~ s/(?<![\w.])\Q$word\E(?![\w.])/$replaced{$word}/g
		  or die "\"$command\" does not have $word";
	}
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATA} = $node->data_dir;
	local $ENV{PGDATABASE} = 'postgres';
	local $ENV{PGAPPNAME};
	delete $ENV{PGAPPNAME};
	my $is_done = IPC::Run::run([ 'sh', '-c', $command ],
		'<', \undef, '>', \my $out, '2>', \my $messages);
	ok($is_done, "it is executed: $command") or diag($messages);
	return $out;
}

1;
