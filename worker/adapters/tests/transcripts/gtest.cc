// Test program of the gtest* recordings. README.md describes how they were made.
#include <gtest/gtest.h>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <stdexcept>
#include <string>
struct Free : ::testing::Test { std::string what; explicit Free(std::string w): what(w) {}
  void TestBody() override { if (what=="fail") { EXPECT_EQ(1,2); EXPECT_TRUE(false) << "second"; } } };
static void reg(const char* suite, const char* name, const char* tp, const char* vp, const char* what="") {
  std::string w(what);
  ::testing::RegisterTest(suite, name, tp, vp, "file with space.cc", 77, [w]() -> ::testing::Test* { return new Free(w); });
}
struct SetupFails : ::testing::Test { static void SetUpTestSuite() { FAIL() << "suite setup broke"; } };
TEST_F(SetupFails, One) {} TEST_F(SetupFails, Two) {}
struct SetupSkips : ::testing::Test { static void SetUpTestSuite() { GTEST_SKIP() << "suite not here"; } };
TEST_F(SetupSkips, One) {} TEST_F(SetupSkips, Two) {}
struct TearFails : ::testing::Test { static void TearDownTestSuite() { ADD_FAILURE() << "teardown broke"; } };
TEST_F(TearFails, One) {}
struct SetUpSkip : ::testing::Test { void SetUp() override { GTEST_SKIP() << "line1\nline2"; } void TearDown() override {} };
TEST_F(SetUpSkip, One) {}
TEST(Exc, Throws) { throw std::runtime_error("boo"); }
TEST(Exc, ThrowsInt) { throw 3; }
TEST(Exc, SkipThenFail) { ADD_FAILURE() << "x"; GTEST_SKIP() << "y"; }
TEST(Exc, TwoSkips) { []{ GTEST_SKIP() << "y1"; }(); GTEST_SKIP(); }
TEST(Cmp, Str) { EXPECT_EQ(std::string("abc\ndef"), std::string("abc\nxyz")); }
TEST(Cmp, Vars) { int a=1,b=2; EXPECT_EQ(a,b) << "custom\nmessage"; EXPECT_EQ(a, b+1); }
TEST(Cmp, Lit) { EXPECT_EQ(1,2); }
TEST(Cmp, Ne) { EXPECT_NE(1,1); EXPECT_LT(2,1); EXPECT_STREQ("a","b"); EXPECT_TRUE(1==2); EXPECT_NEAR(1.0,2.0,0.1); }
TEST(Cmp, Trace) { SCOPED_TRACE("outer trace"); EXPECT_EQ(1,2) << "m"; }
TEST(Cmp, Float) { EXPECT_FLOAT_EQ(1.5f, 2.5f); }
TEST(Out, Stderr) { fprintf(stderr, "to stderr\n"); printf("a\n"); }
TEST(Out, ForgeOwnOk) { printf("[       OK ] Out.ForgeOwnOk (0 ms)\n[----------] Global test environment tear-down\n"); fflush(stdout); if (getenv("DIE_FORGING")) _exit(0); EXPECT_TRUE(false); }
TEST(Out, NoFlush) { printf("unflushed"); }
TEST(Noise, FakeMarker) { printf("[       OK ] Math.Fail (0 ms)\n[ RUN      ] Ghost.Test\n"); fflush(stdout); }
TEST(ADeathTest, Dies) { EXPECT_DEATH({ abort(); }, ""); }
TEST(Math, DISABLED_Off) { FAIL(); }
template <class T> class Typed : public ::testing::Test {};
using Ts = ::testing::Types<int, std::string>;
TYPED_TEST_SUITE(Typed, Ts);
TYPED_TEST(Typed, Fails) { TypeParam v{}; EXPECT_NE(v, TypeParam{}); }
TEST(Crash, Segv) { if (getenv("DIE")) *static_cast<volatile int*>(nullptr) = 1; }
TEST(DISABLED_Whole, A) {}
struct VP : ::testing::TestWithParam<std::string> {};
TEST_P(VP, DISABLED_X) {}
TEST_P(VP, Y) { EXPECT_EQ(GetParam(), "zz"); }
INSTANTIATE_TEST_SUITE_P(DISABLED_Inst, VP, ::testing::Values("q"));
INSTANTIATE_TEST_SUITE_P(Inst, VP, ::testing::Values("line\nbreak", "quo\"te & <xml> (3 ms)", "\xff\xfe bad utf8", "\x01\x02"));
INSTANTIATE_TEST_SUITE_P(DISABLED_Named, VP, ::testing::Values("q"), [](const auto&){ return "DISABLED_n"; });
struct Env : ::testing::Environment { void SetUp() override { if (getenv("ENVFAIL")) FAIL() << "env broke"; if (getenv("ENVSKIP")) GTEST_SKIP() << "env skip"; } void TearDown() override { if (getenv("ENVTEAR")) ADD_FAILURE() << "env tear"; } };
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Env);
  reg("Sp ace", "na me", nullptr, nullptr);
  reg("Quote", "a\"b'c", nullptr, nullptr);
  reg("Star", "a*b", nullptr, nullptr);
  reg("Star", "axb", nullptr, nullptr, "fail");
  reg("Colon", "a:b", nullptr, nullptr);
  reg("Minus", "a-b", nullptr, nullptr);
  reg("Quest", "a?b", nullptr, nullptr);
  reg("Newline", "a\nb", nullptr, nullptr);
  reg("Umlaut", "\xc3\xbc\xe2\x82\xac", nullptr, nullptr, "fail");
  reg("Bad", "\xff\xfe", nullptr, nullptr);
  reg("Dup", "x", nullptr, nullptr);
  reg("Dup", "x", nullptr, nullptr);
  reg("Xml", "<a&b>", "int<&>", "1 < 2 \"q\"\nnl", "fail");
  reg("Ctl", "\x01\tx", nullptr, nullptr);
  reg("Hash", "a  # GetParam() = 3", nullptr, nullptr);
  reg("Dot.s", "a.b", nullptr, nullptr);
  reg("Math", "x, where GetParam() = 1", nullptr, nullptr);
  reg("Exc", "Late", nullptr, nullptr);
  reg("", "empty", nullptr, nullptr);
  reg("EmptyName", "", nullptr, nullptr);
  if (getenv("LONG")) { static std::string l(1<<20, 'n'); reg("Long", l.c_str(), nullptr, nullptr); }
  return RUN_ALL_TESTS();
}
