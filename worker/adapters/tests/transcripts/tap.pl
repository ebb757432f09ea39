use strict;
use warnings;
use Test::More;

ok(1, 'passes');
is(1 + 1, 3, 'fails # not a directive');
subtest 'inner' => sub {
    plan tests => 2;
    ok(1, 'deep');
    subtest 'deeper' => sub { is_deeply([1, 2], [1, 3], 'lists'); done_testing() };
};
SKIP: {
    skip 'no network', 1;
}
TODO: {
    local $TODO = 'not done';
    ok(0, 'later');
}
print "okay, this is output\n";
done_testing();
