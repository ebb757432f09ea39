//! Messages about results.

use crate::support::world::TestWorld;

#[cfg(target_arch = "x86_64")]
#[test]
fn crash_at_unknown_address_names_none() {
    let world = TestWorld::with_gtest("addresses");
    let ran = world.run(&["run", "addresses", "-j1"]).assert_code(2);
    ran.assert_stdout("crashed with SIGSEGV (at address 0x18)");
    ran.assert_stdout("crashed with SIGSEGV; also crashes in isolation");
    assert!(!ran.stdout.contains("at address 0x0"), "{ran}");
    let runs = world.path(".heeler/runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let dump = run.join("evidence/addresses.Addresses.NonCanonical.dmp");
    let text = world.run(&["dump", dump.to_str().unwrap()]).assert_code(0);
    assert!(text.stdout.contains("SIGSEGV") && !text.stdout.contains("at address"), "{text}");
}

#[test]
fn values_of_configured_variables_are_shown_on_request_only() {
    let world = TestWorld::with_gtest("kinds");
    let suite = "[[suite]]\nname = \"s\"\nprograms = [\"kinds\"]\nenv = { TOKEN = \"s3cret\" }\n";
    world.write("heeler.toml", suite);
    let failing = ["run", "-E", "test(=Math.Fail)", "--junit", "a.xml", "--report", "ctrf=b.json"];
    let hidden = world.run(&failing).assert_code(2);
    hidden.assert_stdout("TOKEN=\"${TOKEN?hidden, see --show-env}\" ./kinds");
    for text in [&hidden.stdout, &hidden.stderr, &world.read("a.xml"), &world.read("b.json")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    let shown = world.run(&[&failing[..], &["--show-env"]].concat()).assert_code(2);
    shown.assert_stdout("TOKEN=s3cret ./kinds");
    assert!(world.read("a.xml").contains("TOKEN=s3cret"));
    world.write("heeler.toml", &format!("[profile.default]\nshow-env = true\n{suite}"));
    world.run(&failing).assert_code(2).assert_stdout("TOKEN=s3cret ./kinds");
}
