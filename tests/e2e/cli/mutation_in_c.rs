//! `heeler mutate --build` on a small C project with a makefile. Its test programs report only by their exit
//! codes.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;

use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

const MAKEFILE: &str = "all: calc_test text_test\n\
    calc_test text_test: %: tests/%.c calc.o\n\t$(CC) -Wall -Werror -o $@ $^\n\
    calc.o: calc.c calc.h\n\t$(CC) -Wall -Werror -c -o $@ $<\n";

const HEADER: &str = "int add(int a, int b);\nint is_small(int a);\nint count(int a);\nlong distance(const char *a, const char *b);\n\
    int unused(int a);\nint digits(const char *a);\nstatic inline int half(int a) {\n    return a / 2;\n}\n";

const SOURCE: &str = "#include \"calc.h\"\n\
    int add(int a, int b) {\n    return a + b;\n}\n\
    int is_small(int a) {\n    return a < 10;\n}\n\
    int count(int a) {\n    int rounds = 0;\n    while (a > 0) {\n        a -= 1;\n        rounds += 1;\n    }\n    return rounds;\n}\n\
    long distance(const char *a, const char *b) {\n    return b - a;\n}\n\
    int unused(int a) {\n    return a * 2;\n}\n\
    int digits(const char *a) {\n    int found = 0;\n    for (; *a; ++a) {\n        if (*a == ' ') continue;\n        \
    if (*a == ';')\n            break;\n        else\n            switch (*a) {\n            case '-': break;\n            \
    default: found += 1;\n            }\n    }\n    return found;\n}\n\
    #ifdef WITH_MORE\nint more(int a) {\n    return a - 3;\n}\n#endif\n";

const CALC_TEST: &str = "#include \"../calc.h\"\nint main(void) {\n    if (add(2, 3) != 5 || half(4) != 2) return 1;\n    if (!is_small(3)) return 2;\n    \
    if (digits(\"1 2;34\") != 2) return 4;\n    return count(4) == 4 ? 0 : 3;\n}\n";

const TEXT_TEST: &str = "#include \"../calc.h\"\nint main(void) {\n    const char *text = \"abc\";\n    return distance(text, text + 3) == 3 ? 0 : 1;\n}\n";

struct Project {
    world: TestWorld,
}

impl Project {
    fn new() -> Self {
        let project = Self { world: TestWorld::new() };
        fs::create_dir_all(project.path("tests")).unwrap();
        let files = [
            ("Makefile", MAKEFILE),
            ("calc.h", HEADER),
            ("calc.c", SOURCE),
            ("tests/calc_test.c", CALC_TEST),
            ("tests/text_test.c", TEXT_TEST),
        ];
        for (name, text) in files {
            fs::write(project.path(name), text).unwrap();
        }
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("project").join(name)
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        let mut command = self.world.heeler(&[&["mutate", "-j2", "--build", "make"], words].concat());
        command.current_dir(self.path(""));
        run_with_separate_outputs(command)
    }

    /// Returns the statuses of a source's mutants in a report, by line and replacement.
    fn statuses(&self, report: &str, source: &str) -> BTreeMap<String, String> {
        let report: Value = serde_json::from_str(&fs::read_to_string(self.path(report)).unwrap()).unwrap();
        let mutants = report["files"][source]["mutants"].as_array().unwrap();
        let entry = |mutant: &Value| {
            let line = mutant["location"]["start"]["line"].as_u64().unwrap();
            let name = format!("{line}: {}", mutant["replacement"].as_str().unwrap());
            (name, mutant["status"].as_str().unwrap().to_owned())
        };
        mutants.iter().map(entry).collect()
    }
}

#[test]
fn programs_that_were_built_before_are_built_again_with_mutants() {
    let project = Project::new();
    let words = ["--test", "calc_test", "--test", "text_test", "--json", "../report.json"];
    let make = std::process::Command::new("make").current_dir(project.path("")).status().unwrap();
    assert!(make.success());
    let ran = project.mutate(&words).assert_code(0);
    let statuses = project.statuses("../report.json", "calc.c");
    assert_eq!(statuses["3: a - b"], "Killed", "{ran}");
}

#[test]
fn mutants_of_a_project_in_c_end_in_every_possible_way() {
    let project = Project::new();
    let words = ["--test", "calc_test", "--test", "text_test", "--json", "../report.json"];
    let ran = project.mutate(&words).assert_code(0);
    let statuses = project.statuses("../report.json", "calc.c");
    for (name, status) in [
        ("3: a - b", "Killed"),
        // No test calls the function with 10.
        ("6: a <= 10", "Survived"),
        ("6: a >= 10", "Killed"),
        ("11: a += 1", "Timeout"),
        // Pointers cannot be added.
        ("17: b + a", "CompileError"),
        ("20: a / 2", "NoCoverage"),
        ("25: break;", "Killed"),
        ("27: continue;", "Killed"),
        ("38: a + 3", "Ignored"),
    ] {
        assert_eq!(
            statuses.get(name).map(String::as_str),
            Some(status),
            "{name} of {statuses:#?}\n{}",
            ran.stderr
        );
    }
    assert!(!statuses.contains_key("30: continue;"), "a switch is no loop: {statuses:#?}");
    let in_header = project.statuses("../report.json", "calc.h");
    assert_eq!(in_header["8: a * 2"], "Killed", "{in_header:#?}");
    assert!(
        !project.path("calc.o").exists() && !project.path("calc_test").exists(),
        "the project is only read"
    );

    // Changing one function keeps the verdicts of the others.
    fs::write(project.path("calc.c"), SOURCE.replace("a * 2", "a * 3")).unwrap();
    let again = project.mutate(&words).assert_code(0);
    assert!(
        again.stderr.contains("31 verdicts from earlier runs"),
        "the verdicts of other functions are kept: {}",
        again.stderr
    );
}

#[test]
fn mistakes_of_the_user_are_one_error() {
    let project = Project::new();
    let missing = project.mutate(&["--test", "no_test"]).assert_code(4);
    assert!(missing.stderr.contains("no_test"), "{}", missing.stderr);
    let none = project.mutate(&[]).assert_code(5);
    assert!(none.stderr.contains("--build also needs --ctest DIR or --test PROGRAM"), "{}", none.stderr);
    fs::write(project.path("calc.c"), "int add(int a, int b) { return a + ; }\n").unwrap();
    let broken = project.mutate(&["--test", "calc_test"]).assert_code(4);
    assert!(broken.stderr.contains("expected expression"), "{}", broken.stderr);
    assert!(broken.stderr.contains("calc.c:1)"), "{}", broken.stderr);
    fs::write(project.path("calc.c"), SOURCE).unwrap();
    fs::write(project.path("Makefile"), "all:\n\t/usr/bin/gcc -o calc_test calc.c tests/calc_test.c\n")
        .unwrap();
    let other = project.mutate(&["--test", "calc_test"]).assert_code(4);
    assert!(other.stderr.contains("with cc, gcc, c99, c11, c++ or g++ from PATH"), "{}", other.stderr);
    fs::write(project.path("Makefile"), "all:\n\t@echo nothing to do >&2; exit 3\n").unwrap();
    let failed = project.mutate(&["--test", "calc_test"]).assert_code(4);
    assert!(failed.stderr.contains("nothing to do"), "{}", failed.stderr);
    fs::write(project.path("Makefile"), MAKEFILE).unwrap();
    fs::write(project.path("calc.c"), SOURCE.replace("a + b", "a + b + 1")).unwrap();
    let red = project.mutate(&["--test", "calc_test", "--test", "text_test"]).assert_code(2);
    assert!(red.stderr.contains("calc_test"), "{}", red.stderr);
}
