# SPDX-License-Identifier: MIT
# What perl does under test: hashes, text, closures, processes and threads.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

sub report { printf "%s %s\n", $_[0], substr sha256_hex($_[1]), 0, 16 }

my %table;
for my $i (0 .. 60_000) {
    push @{ $table{ "key " . $i % 7001 } }, $i x ($i % 5);
}
report "hash", join ",", map { "$_=" . join "", @{ $table{$_} } } sort keys %table;

my $text = join " ", map { "word" . $_ % 977 } 1 .. 100_000;
(my $changed = $text) =~ s/word(\d+)/"<" . reverse($1) . ">"/ge;
my %seen;
$seen{$1}++ while $changed =~ /<(\d*)>/g;
report "text", join ",", map { "$_$seen{$_}" } sort keys %seen;

my @closures = map { my $n = $_; sub { $n++ . "x" x ($n % 100) } } 1 .. 5000;
my $made = "";
for my $round (1 .. 10) { $made = sha256_hex($made . $_->()) for @closures }
report "closures", $made;

my $sum = 0;
for my $n (1 .. 8) {
    open my $child, "-|" or exec $^X, "-e", "print join '', map { \$_ x 3 } 1 .. $n * 1000";
    local $/;
    $sum += length <$child>;
    close $child or die "a child ended badly: $?";
}
report "processes", $sum;

if (eval { require threads; 1 }) {
    my @threads;
    for my $n (1 .. 6) {
        push @threads, threads->create(sub { length join "", 1 .. $n * 5000 });
    }
    report "threads", join ",", map { $_->join } @threads;
}

my $line = "";
for my $i (1 .. 200_000) { $line .= chr(32 + $i % 90) }
report "pack", unpack("%32C*", $line) . sprintf("%s", pack("N*", map { $_ * 3 } 1 .. 50_000));
