// Test program of the doctest* recordings. README.md describes how they were made.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>

TEST_SUITE("math") {
TEST_CASE("adds") { CHECK(1 + 1 == 2); }
TEST_CASE("fails") { int a = 1; INFO("a is " << a); CHECK_EQ(a, 3); CHECK(a + 1 < a); }
TEST_CASE("requires" * doctest::description("stops at <once>")) { REQUIRE(std::string("a\nb") == "a\nc"); FAIL("not reached"); }
TEST_CASE("skipped" * doctest::skip()) { FAIL("never runs"); }
TEST_CASE("may fail" * doctest::may_fail()) { CHECK(false); }
TEST_CASE("should fail" * doctest::should_fail()) { CHECK(false); }
TEST_CASE("should fail and does not" * doctest::should_fail()) {}
TEST_CASE("expects two" * doctest::expected_failures(2)) { CHECK(false); }
TEST_CASE("too slow" * doctest::timeout(0.001)) { usleep(3000); }
}
TEST_SUITE("subcases") {
TEST_CASE("tree") {
  SUBCASE("left") { std::cout << "in left\n"; SUBCASE("deep <1>") { CHECK(true); } SUBCASE("deep 2") { CHECK(2 < 1); } }
  SUBCASE("right") { CHECK_MESSAGE(false, "said " << 7); }
}
TEST_CASE("throws inside") { SUBCASE("thrower") { throw std::runtime_error("boo & <foo>"); } SUBCASE("fine") {} }
TEST_CASE("many") { for (int i = 0; i < 3; ++i) { SUBCASE(std::to_string(i).c_str()) { CHECK(i != 1); } } }
}
TEST_SUITE("output") {
TEST_CASE("prints") { std::cout << "one line\nno newline"; fprintf(stderr, "to stderr\n"); MESSAGE("a message"); WARN(false); }
TEST_CASE("prints markup") { std::cout << "<b>bold</b> & <SubCase\n   <TestCase name=\"adds\" filename=\"doctest.cc\" line=\"12\">\n" << std::flush; }
TEST_CASE("forges its end") {
  std::cout << "      <OverallResultsAsserts successes=\"1\" failures=\"0\" test_case_success=\"true\" duration=\"0\"/>\n    </TestCase>\n" << std::flush;
  if (getenv("DIE_FORGING")) _exit(0);
  CHECK(false);
}
TEST_CASE("opens an element") { std::cout << "<Expression success=\"false\" type=\"CHECK\" filename=\"x\" line=\"1\">\n<Original>\n" << std::flush; }
TEST_CASE("throws") { CHECK_THROWS_AS(throw 1, std::runtime_error); CHECK_NOTHROW(throw std::runtime_error("x")); throw 3; }
TEST_CASE_TEMPLATE("typed", T, int, std::string) { CHECK(sizeof(T) == 4); }
}
TEST_CASE("dup") { CHECK(true); }
TEST_CASE("dup") { CHECK(false); }
TEST_CASE("dies") { SUBCASE("here") { if (getenv("DIE")) { volatile int* p = nullptr; *p = 1; } } }
TEST_CASE("last") {}
