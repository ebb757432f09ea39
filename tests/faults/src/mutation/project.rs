//! The project: C functions whose mutants are killed, survive, hang or are not covered.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command, sync::Mutex};

use serde_json::Value;

use crate::heeler_process::heeler;

/// Status of each mutant, by location and replacement.
pub(crate) type Verdicts = BTreeMap<String, String>;

/// Verdicts of runs without faults, by the number of functions in the project.
static KNOWN: Mutex<BTreeMap<usize, Verdicts>> = Mutex::new(BTreeMap::new());

/// Writes the project.
pub(crate) fn write(dir: &Path, functions: usize) {
    let (mut source, mut header, mut makefile) = (String::new(), String::new(), String::new());
    for n in 0..functions {
        writeln!(
            source,
            "int f{n}(int a) {{\n    int sum = {n};\n    while (a > 0) {{\n        a -= 1;\n        sum += 2;\n    }}\n    \
             if (sum > 100) return 0;\n    return sum;\n}}\nint unused{n}(int a) {{\n    return a + 1;\n}}"
        )
        .unwrap();
        writeln!(header, "int f{n}(int a);").unwrap();
        let test = format!("#include \"lib.h\"\nint main(void) {{ return f{n}(3) == {} ? 0 : 1; }}\n", n + 6);
        fs::write(dir.join(format!("t{n}_test.c")), test).unwrap();
        write!(makefile, " t{n}_test").unwrap();
    }
    let makefile = format!("all:{makefile}\n%_test: %_test.c lib.o\n\t$(CC) -o $@ $^\nlib.o: lib.c lib.h\n");
    for (name, text) in [("lib.c", source), ("lib.h", header), ("Makefile", makefile)] {
        fs::write(dir.join(name), text).unwrap();
    }
}

/// Returns the command that tests the mutants of the project in this directory.
pub(crate) fn mutate(dir: &Path, mark: &str, jobs: usize, report: &str) -> Command {
    let mut command = heeler(dir, mark);
    command.args(["mutate", "--build", "make", "--test", "*_test", "--json", report, "-j"]);
    command.arg(jobs.to_string());
    command
}

/// Returns the verdicts of a project without faults.
pub(crate) fn verdicts_without_faults(functions: usize) -> Verdicts {
    let mut known = KNOWN.lock().unwrap();
    if let Some(verdicts) = known.get(&functions) {
        return verdicts.clone();
    }
    let dir = tempfile::Builder::new().prefix("hf-calm-").tempdir().unwrap();
    for name in ["tmp", "run", "home"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    write(dir.path(), functions);
    let mark = format!("{}-calm-{functions}", std::process::id());
    let output = mutate(dir.path(), &mark, 2, "m.json").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a run without faults: {errors}");
    let verdicts = read(&dir.path().join("m.json")).unwrap();
    for status in ["Killed", "Survived", "Timeout", "NoCoverage"] {
        assert!(verdicts.values().any(|one| one == status), "none is {status}: {verdicts:#?}");
    }
    known.insert(functions, verdicts.clone());
    verdicts
}

/// Reads the verdicts of a report; `None` if the report can't be read.
pub(crate) fn read(path: &Path) -> Option<Verdicts> {
    let report: Value = serde_json::from_slice(&fs::read(path).ok()?).expect("a report is whole");
    let mut verdicts = Verdicts::new();
    for (name, file) in report["files"].as_object().unwrap() {
        for mutant in file["mutants"].as_array().unwrap() {
            let place = format!("{name}:{} {}", mutant["location"]["start"], mutant["replacement"]);
            verdicts.insert(place, mutant["status"].as_str().unwrap().to_owned());
        }
    }
    Some(verdicts)
}
