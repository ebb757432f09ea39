//! The settings on the page about run buttons: each is read from the page, its placeholders are filled in as
//! the editor does, and the command runs exactly the test whose button was pressed.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;

use crate::{
    page_blocks::blocks,
    support::world::{FinishedCommand, TestWorld, run},
};

const SOURCE: &str = "
/// Adds.
///
/// ```
/// assert_eq!(demo::add(1, 2), 3);
/// ```
pub fn add(a: u8, b: u8) -> u8 { a + b }

/// ```
/// assert_eq!(demo::other(), 1);
/// ```
pub fn other() -> u8 { 1 }

#[cfg(test)]
mod tests {
    #[test]
    fn one() {}
    #[test]
    fn one_more() {}
    #[test]
    #[IGNORED = \"slow\"]
    fn left_out() {}
    mod deep {
        #[test]
        fn two() {}
    }
}
#[test]
fn outside() {}
";

/// Returns a world with the package `demo` beside another one, and with `cargo heeler`.
fn world() -> TestWorld {
    let world = TestWorld::new();
    for name in ["demo", "beside"] {
        fs::create_dir_all(world.path(&format!("{name}/src"))).unwrap();
        let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        world.write(&format!("{name}/Cargo.toml"), &manifest);
        world
            .write(&format!("{name}/src/lib.rs"), &SOURCE.replace("demo", name).replace("IGNORED", "ignore"));
    }
    world.write("Cargo.toml", "[workspace]\nmembers = [\"demo\", \"beside\"]\nresolver = \"2\"\n");
    fs::create_dir(world.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_cargo-heeler"), world.path("bin/cargo-heeler")).unwrap();
    let path = std::env::var("PATH").unwrap();
    world.env("PATH", &format!("{}:{path}", world.path("bin").display()));
    world
}

/// Returns the blocks of the page with this language.
fn settings(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/editors/run-buttons.md");
    let page = fs::read_to_string(page).unwrap();
    let fence = format!("```{language}");
    let found = blocks(&page).into_iter().filter(|block| block.fence == fence);
    found.map(|block| block.lines.join("\n")).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn words(list: &Value, fill: impl Fn(&str) -> String) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| fill(word.as_str().unwrap())).collect()
}

/// Runs a command, and checks that exactly these tests ran.
#[track_caller]
fn check(world: &TestWorld, dir: &str, words: &[String], names: &[&str]) -> FinishedCommand {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = world.command(Command::new(words[0]), &words[1..]);
    command.current_dir(world.path(dir));
    let ran = run(command).assert_code(0);
    let passed = ran.stdout.lines().filter(|line| line.trim_start().starts_with("PASS "));
    let passed: Vec<&str> = passed.collect();
    assert_eq!(passed.len(), names.len(), "{ran}");
    for name in names {
        assert!(passed.iter().any(|line| line.ends_with(name)), "{name} did not run: {ran}");
    }
    ran
}

#[test]
fn setting_of_rust_analyzer_runs_the_test_of_its_button() {
    let world = world();
    let blocks = settings("json");
    let setting = json(&blocks[0]);
    let command = &setting["rust-analyzer.runnables.test.overrideCommand"];
    for (name, exact, ignored, ran) in [
        ("tests::one", "--exact", "--include-ignored", &["tests::one"][..]),
        ("tests::left_out", "--exact", "--include-ignored", &["tests::left_out"]),
        ("tests::deep", "", "--include-ignored", &["tests::deep::two"]),
        ("tests", "", "", &["tests::one", "tests::one_more", "tests::deep::two"]),
    ] {
        let fill = |word: &str| match word {
            "${package}" => "demo".to_owned(),
            "${target_arg}" => "--lib".to_owned(),
            "${target}" => String::new(),
            "${test_name}" => name.to_owned(),
            "${exact}" => exact.to_owned(),
            "${include_ignored}" => ignored.to_owned(),
            word => word.to_owned(),
        };
        check(&world, ".", &words(command, fill), ran);
    }
}

#[test]
fn setting_of_rustrover_runs_the_test_of_its_configuration() {
    let world = world();
    let blocks = settings("xml");
    let (_, command) = blocks[0].split_once("name=\"command\" value=\"").unwrap();
    let command = command.split('"').next().unwrap();
    let command = command.replace("PACKAGE", "demo").replace("MODULE::TEST", "tests::one");
    let words: Vec<String> = ["cargo"].into_iter().chain(command.split(' ')).map(str::to_owned).collect();
    check(&world, ".", &words, &["tests::one"]);
}

#[test]
fn settings_of_zed_run_the_test_of_their_button() {
    let world = world();
    let blocks = settings("json");
    let tasks = json(&blocks[1]);
    let mut count = 0;
    for (tag, variable, value, ran) in [
        ("rust-test", "TEST_NAME", "one", &["tests::one"][..]),
        ("rust-test", "TEST_NAME", "left_out", &["tests::left_out"]),
        ("rust-mod-test", "TEST_FRAGMENT", "deep", &["tests::deep::two"]),
        ("rust-doc-test", "DOC_TEST_NAME", "add", &["src/lib.rs - add (line 4)"]),
    ] {
        let task = tasks.as_array().unwrap().iter().find(|task| task["tags"][0] == tag).unwrap();
        let variable = format!("$ZED_CUSTOM_RUST_{variable}");
        let fill = |word: &str| word.replace(&variable, value).replace("$ZED_CUSTOM_RUST_PACKAGE", "demo");
        let command =
            [vec![task["command"].as_str().unwrap().to_owned()], words(&task["args"], fill)].concat();
        assert_eq!(task["cwd"], "$ZED_CUSTOM_RUST_MANIFEST_DIRNAME");
        check(&world, "demo", &command, ran);
        count += 1;
    }
    assert_eq!(count, 4);
    // Zed's own tasks, with heeler run in place of test.
    for (words, ran) in [
        ("cargo heeler run -p demo -- --nocapture --include-ignored deep::two", "tests::deep::two"),
        ("cargo heeler run --doc -p demo -- --nocapture --include-ignored add", "src/lib.rs - add (line 4)"),
    ] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        check(&world, "demo", &words, &[ran]);
    }
}
