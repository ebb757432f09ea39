//! What the messages about results say.

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
