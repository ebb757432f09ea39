// One test for each common outcome: passed, failed, crashed.
#include <gtest/gtest.h>

__attribute__((noinline)) static int follow(volatile int* place) { return *place; }

TEST(Samples, Passes) { EXPECT_EQ(1 + 1, 2); }

TEST(Samples, Fails) { EXPECT_EQ(1 + 1, 3); }

TEST(Samples, Crashes) { EXPECT_EQ(follow(nullptr), 0); }

TEST(Samples, PassesAfterTheCrash) { EXPECT_EQ(2 + 2, 4); }
