//! `heeler mutate --build` on a small C++ library with a header, built with make and CMake. One test program
//! uses GoogleTest, the other reports by its exit code.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;

use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("../../fixtures/mutation/cpp/", $name)))
    };
}

/// The library, its tests and two build files. The makefile does not track header dependencies.
const FILES: [(&str, &str); 7] = [
    fixture!("Makefile"),
    fixture!("CMakeLists.txt"),
    fixture!("src/calc.hpp"),
    fixture!("src/calc.cc"),
    fixture!("src/orphan.hpp"),
    fixture!("tests/calc_test.cc"),
    fixture!("tests/scale_check.cc"),
];

const EXPECTED: [(&str, &str); 30] = [
    // One of the template's types does not support subtraction.
    ("calc.hpp a + b → a - b", "CompileError"),
    ("calc.hpp a - b → a + b", "Killed"),
    ("calc.hpp is_small → { return true; }", "Killed"),
    ("calc.hpp is_small → { return false; }", "Killed"),
    // No test calls the function with 10.
    ("calc.hpp a < 10 → a <= 10", "Survived"),
    ("calc.hpp a < 10 → a >= 10", "Killed"),
    // The preprocessor removes the first line and keeps the second.
    ("calc.hpp a * 2 → a / 2", "Ignored"),
    ("calc.hpp a * 3 → a / 3", "Killed"),
    ("calc.hpp a % 4 → a * 4", "NoCoverage"),
    ("calc.hpp first + 5 → first - 5", "Killed"),
    ("calc.hpp count_ += 1; → ", "Killed"),
    ("calc.hpp count_ += 1 → count_ -= 1", "Killed"),
    ("calc.hpp Counter::twice a * 2 → a / 2", "Killed"),
    ("calc.hpp count_ > 5 → count_ >= 5", "Survived"),
    ("calc.hpp count_ > 5 → count_ <= 5", "Killed"),
    ("calc.cc a > 0 → false", "Killed"),
    ("calc.cc a > 0 → a >= 0", "Killed"),
    ("calc.cc a > 0 → a <= 0", "Killed"),
    ("calc.cc a -= 1; → ", "Timeout"),
    ("calc.cc a -= 1 → a += 1", "Timeout"),
    ("calc.cc found += 1; → ", "Killed"),
    ("calc.cc found += 1 → found -= 1", "Killed"),
    ("calc.cc \"hello \" + name → \"hello \" - name", "CompileError"),
    ("calc.cc greet → { return \"\"; }", "Killed"),
    ("calc.cc first → { return 0; }", "Killed"),
    ("calc.cc !values → true", "Killed"),
    // The mutant kills the test process.
    ("calc.cc !values → false", "Killed"),
    ("calc.cc !values → values", "Killed"),
    // No source includes this header.
    ("orphan.hpp a - 7 → a + 7", "NoCoverage"),
    ("orphan.hpp orphan → { return 0; }", "NoCoverage"),
];

struct Project {
    world: TestWorld,
}

impl Project {
    fn new() -> Self {
        let project = Self { world: TestWorld::new() };
        for (name, text) in FILES {
            let path = project.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("project").join(name)
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        let mut command =
            self.world.heeler(&[&["mutate", "-j2", "--json", "../report.json"], words].concat());
        command.current_dir(self.path(""));
        run_with_separate_outputs(command)
    }

    /// Returns the report's mutants, keyed by their [`change`].
    fn mutants(&self) -> BTreeMap<String, Value> {
        let text = fs::read_to_string(self.world.path("report.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        let mut found = BTreeMap::new();
        for (path, file) in report["files"].as_object().unwrap() {
            assert_eq!(file["language"], "cpp");
            let lines: Vec<&str> = file["source"].as_str().unwrap().lines().collect();
            for mutant in file["mutants"].as_array().unwrap() {
                let name = path.rsplit('/').next().unwrap();
                found.insert(format!("{name} {}", change(mutant, &lines)), mutant.clone());
            }
        }
        found
    }

    /// Returns the name of the test that killed a mutant.
    fn killer(&self, mutant: &str) -> String {
        let text = fs::read_to_string(self.world.path("report.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        let id = &self.mutants()[mutant]["killedBy"][0];
        let files = report["testFiles"].as_object().unwrap().values();
        let mut tests = files.flat_map(|file| file["tests"].as_array().unwrap());
        let test = tests.find(|test| test["id"] == *id).unwrap();
        test["name"].as_str().unwrap().to_owned()
    }

    fn assert_statuses(&self, ran: &FinishedCommand) {
        let mutants = self.mutants();
        for (name, status) in EXPECTED {
            let found = mutants.get(name).unwrap_or_else(|| panic!("{name} of {:#?}", mutants.keys()));
            assert_eq!(found["status"], status, "{name}: {found:#}\n{}", ran.stderr);
        }
    }
}

/// Describes a mutant's change as source text. For a replaced function body, the original is the function's
/// name.
fn change(mutant: &Value, lines: &[&str]) -> String {
    let place =
        |end: &str, part: &str| usize::try_from(mutant["location"][end][part].as_u64().unwrap()).unwrap() - 1;
    let (line, replacement) = (lines[place("start", "line")], mutant["replacement"].as_str().unwrap());
    if mutant["mutatorName"] == "FunctionValue" {
        let head = line.split('(').next().unwrap();
        return format!("{} → {replacement}", head.rsplit(' ').next().unwrap());
    }
    let original = &line[place("start", "column")..place("end", "column")];
    let class = if line.contains("twice") { "Counter::twice " } else { "" };
    format!("{class}{original} → {replacement}")
}

#[test]
fn mutants_of_a_project_in_cpp_end_in_every_possible_way() {
    let project = Project::new();
    let words = ["--build", "make", "--test", "calc_test", "--test", "scale_check"];
    let ran = project.mutate(&words).assert_code(0);
    project.assert_statuses(&ran);
    let mutants = project.mutants();
    assert_eq!(project.killer("calc.cc greet → { return \"\"; }"), "calc_test::Calc.Greets");
    let covering = mutants["calc.hpp a - b → a + b"]["coveredBy"].as_array().unwrap();
    assert_eq!(covering.len(), 1, "only one test reaches it: {covering:?}");
    let reason = mutants["calc.hpp a * 2 → a / 2"]["statusReason"].as_str().unwrap();
    assert_eq!(reason, "not compiled: removed by the preprocessor");
    let words_of_compiler = mutants["calc.hpp a + b → a - b"]["statusReason"].as_str().unwrap();
    assert!(words_of_compiler.contains("operator-"), "{words_of_compiler}");
    assert!(!project.path("calc_test").exists(), "the project is only read");

    // The next build omits mutants that did not compile.
    let again = project.mutate(&words).assert_code(0);
    project.assert_statuses(&again);
    assert!(!again.stderr.contains("round 2"), "{}", again.stderr);

    // New mutants above the others renumber all of them. Without header dependencies, make would keep the old
    // objects.
    let header = fs::read_to_string(project.path("src/calc.hpp")).unwrap();
    let more = "namespace calc {\n\ninline int more(int a) { return a + a * 8; }\n";
    fs::write(project.path("src/calc.hpp"), header.replacen("namespace calc {\n", more, 1)).unwrap();
    let again = project.mutate(&words).assert_code(0);
    project.assert_statuses(&again);
}

#[test]
fn tests_of_frameworks_are_found_by_ctest_as_well() {
    let project = Project::new();
    let build = "cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build";
    let ran = project.mutate(&["--build", build, "--ctest", "build"]).assert_code(0);
    project.assert_statuses(&ran);
    assert!(project.killer("calc.cc greet → { return \"\"; }").ends_with("Calc.Greets"));
}

const LOW: &str = "#pragma once\ninline bool is_low(int a) {\n    return a < 10;\n}\n";
const DOCTEST: &str = "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n#include \"low.hpp\"\n\
    TEST_CASE(\"low\") { CHECK(is_low(3)); }\nTEST_CASE(\"other\") {}\n";
const BOOST: &str = "#define BOOST_TEST_MODULE low\n#include <boost/test/included/unit_test.hpp>\n#include \"low.hpp\"\n\
    BOOST_AUTO_TEST_CASE(high) { BOOST_TEST(!is_low(10)); }\nBOOST_AUTO_TEST_CASE(other) {}\n";

#[test]
fn tests_of_several_frameworks_kill_mutants_of_one_header() {
    let project = Project { world: TestWorld::new() };
    fs::create_dir(project.path("")).unwrap();
    let files = [("low.hpp", LOW), ("doctest_test.cc", DOCTEST), ("boost_test.cc", BOOST)];
    for (name, text) in files {
        fs::write(project.path(name), text).unwrap();
    }
    project.mutate(&["--build", "make doctest_test boost_test", "--test", "*_test"]).assert_code(0);
    for (mutant, killer) in [
        ("low.hpp is_low → { return false; }", "doctest_test::low"),
        ("low.hpp is_low → { return true; }", "boost_test::high"),
        ("low.hpp a < 10 → a <= 10", "boost_test::high"),
        ("low.hpp a < 10 → a >= 10", "doctest_test::low"),
    ] {
        let found = &project.mutants()[mutant];
        assert_eq!(found["coveredBy"].as_array().unwrap().len(), 2, "{found:#}");
        // Either test may kill the last mutant.
        let is_either = mutant.ends_with(">= 10");
        assert!(is_either || project.killer(mutant) == killer, "{mutant}: {}", project.killer(mutant));
        assert_eq!(found["status"], "Killed");
    }
}

#[test]
fn errors_of_the_sources_themselves_are_shown() {
    let project = Project::new();
    let words = ["--build", "make", "--test", "calc_test"];
    let header = fs::read_to_string(project.path("src/calc.hpp")).unwrap();
    fs::write(project.path("src/calc.hpp"), header.replace("return a < 10;", "return a < missing;")).unwrap();
    let broken = project.mutate(&words).assert_code(4);
    assert!(broken.stderr.contains("'missing' was not declared"), "{}", broken.stderr);
}

/// Code that the compiler evaluates: some of it must be constant, the rest might also be evaluated at run
/// time.
const EVALUATED: &str = r#"
constexpr int doubled(int a) { return a + a; }
constexpr int product(int n) {
  int value = 1;
  for (int i = 2; i <= n; ++i) value = value * i;
  return value;
}
struct Pair {
  int x, y;
  constexpr Pair(int a, int b) : x(a + 1), y(b - 1) {}
  constexpr int sum() const { return x + y; }
};
template <int Size> struct Buffer { char data[Size]; };
constexpr bool even(int a) { return a % 2 == 0; }
static_assert(doubled(2) == 4, "doubled");
const int other = 3 * 4;

int sized(int k) {
  const int size = product(3) + 2;
  int values[size];
  Buffer<doubled(4)> buffer;
  values[0] = k + size;
  buffer.data[0] = 1;
  return values[0] + buffer.data[0];
}

int local(int k) {
  const int five = 2 + 3;
  constexpr Pair pair(2, 3);
  if constexpr (even(4)) return k * five + pair.sum();
  return other;
}

int tested(int k) {
  const int seven = 2 + 5;
  const bool is_odd = k % 2 == 1;
  const auto more = [=](int a) { const int one = 3 - 2; return a + one; };
  const int unused = 6 - 2;
  (void)unused;
  return (is_odd ? seven : 0) + more(k);
}

int label(int k) {
  const int three = 1 + 2;
  switch (k) {
    case three: return 7;
    case doubled(5): return 8;
    default: return 9;
  }
}
"#;

const EVALUATED_TEST: &str = r#"
int sized(int), local(int), label(int), tested(int);
int main() {
  bool is_right = sized(1) == 10 && sized(2) == 11 && local(1) == 10 && local(3) == 20;
  is_right = is_right && tested(1) == 9 && tested(2) == 3;
  return is_right && label(3) == 7 && label(10) == 8 && label(0) == 9 ? 0 : 1;
}
"#;

#[test]
fn what_the_compiler_evaluates_breaks_no_build_and_survives_nowhere() {
    let project = Project { world: TestWorld::new() };
    fs::create_dir_all(project.path("test")).unwrap();
    fs::write(project.path("code.cc"), EVALUATED).unwrap();
    fs::write(project.path("test/main.cc"), EVALUATED_TEST).unwrap();
    let makefile = "check: code.cc test/main.cc\n\tg++ -std=c++17 -o check code.cc test/main.cc\n";
    fs::write(project.path("Makefile"), makefile).unwrap();
    let ran = project.mutate(&["--build", "make", "--test", "check"]).assert_code(0);
    assert!(!ran.stderr.contains("round 2"), "{}", ran.stderr);
    let mutants = project.mutants();
    // Mutants are ignored in code that is evaluated before the first test runs.
    for (name, status) in [
        ("code.cc product(3) + 2 → product(3) - 2", "Ignored"),
        ("code.cc 2 + 5 → 2 - 5", "Killed"),
        ("code.cc k % 2 → k * 2", "Killed"),
        ("code.cc 3 - 2 → 3 + 2", "Killed"),
        ("code.cc 6 - 2 → 6 + 2", "Survived"),
        ("code.cc a + a → a - a", "NoCoverage"),
        ("code.cc value * i → value / i", "NoCoverage"),
        ("code.cc a + 1 → a - 1", "NoCoverage"),
        ("code.cc 2 + 3 → 2 - 3", "Killed"),
        ("code.cc 1 + 2 → 1 - 2", "Ignored"),
        ("code.cc k + size → k - size", "Killed"),
        ("code.cc k * five → k / five", "Killed"),
    ] {
        let found = mutants.get(name).unwrap_or_else(|| panic!("{name} of {:#?}", mutants.keys()));
        assert_eq!(found["status"], status, "{name}: {found:#}\n{}", ran.stderr);
    }
    let survivors = mutants.iter().filter(|(_, mutant)| mutant["status"] == "Survived");
    let names: Vec<&String> = survivors.map(|(name, _)| name).collect();
    assert_eq!(names, ["code.cc 6 - 2 → 6 + 2"], "{}", ran.stderr);
    let is_other =
        |mutant: &&Value| ["CompileError", "Timeout"].contains(&mutant["status"].as_str().unwrap());
    assert_eq!(mutants.values().find(is_other), None, "{}", ran.stderr);
}
