// Test cases that print what Catch2 reports: end markers, begin markers of others, the end of the document.
#ifdef V3
#include "catch_amalgamated.hpp"
#else
#include <catch2/catch.hpp>
#endif
#include <unistd.h>

#include <cstdio>

TEST_CASE("prints its own pass and fails") {
  std::printf("    <OverallResult success=\"true\" skips=\"0\" durationInSeconds=\"9\"/>\n  </TestCase>\n");
  CHECK(1 == 2);
}
TEST_CASE("prints the begin of the next and fails") {
  std::printf("  <TestCase name=\"prints half an element\" filename=\"forging.cc\" line=\"19\">\n");
  CHECK(2 == 3);
}
TEST_CASE("prints half an element") {
  std::printf("<Expression success=\"false\"");
  std::printf("<Section name=\"");
  std::printf("<OverallResult success=\"true\">\n<StdOut>\n");
  CHECK(true);
}
TEST_CASE("prints the end of the document") {
  std::printf("  <OverallResultsCases successes=\"9\" failures=\"0\"/>\n</Catch2TestRun>\n</Catch>\n");
  CHECK(true);
}
TEST_CASE("prints a pass and leaves") {
  std::printf("    <OverallResult success=\"true\" skips=\"0\"/>\n  </TestCase>\n");
  std::fflush(stdout);
  _exit(0);
}
TEST_CASE("never begins") {}
