//! Invalid listings, and the real listing of this test program.

use heeler_protocol::control::TestProgram;

use crate::{
    Adapter, AdapterInvocation, ClaimConfidence, DiscoveryTarget, ListingError, ListingOutput, by_name,
};

fn program(framework: Option<&str>) -> TestProgram {
    TestProgram {
        suite: "s".into(),
        path: "/p".into(),
        args: Vec::new(),
        tool_env: Vec::new(),
        env: Vec::new(),
        cwd: "/".into(),
        framework: framework.map(str::to_owned),
        test_arguments: std::collections::BTreeMap::new(),
        entries: Vec::new(),
        unbuilt: None,
        reproduction: Default::default(),
        resources: Default::default(),
    }
}

fn printed(stdout: &str) -> ListingOutput {
    ListingOutput { stdout: stdout.into(), code: Some(0), ..ListingOutput::default() }
}

fn written(file: &[u8]) -> ListingOutput {
    ListingOutput { file: Some(file.to_vec()), code: Some(0), ..ListingOutput::default() }
}

fn names(adapter: &str, outputs: &[ListingOutput]) -> Result<Vec<String>, ListingError> {
    let listing = by_name(adapter).unwrap().read_listing(&program(None), outputs)?;
    Ok(listing.tests.into_iter().map(|test| test.name).collect())
}

fn next_listing(adapter: &dyn Adapter, outputs: &[ListingOutput]) -> Option<AdapterInvocation> {
    adapter.next_listing(&program(None), outputs, std::path::Path::new("/"))
}

fn gtest() -> &'static dyn Adapter {
    by_name("gtest").unwrap()
}

#[test]
fn other_program_is_not_of_the_framework() {
    let garbage = printed("Hello. I ignore arguments.\n");
    for (adapter, outputs) in [
        ("gtest", vec![printed("")]),
        ("gtest", vec![garbage.clone()]),
        ("gtest", vec![printed("Suite.\n  A\nbut then something else\n")]),
        ("libtest", vec![printed(""), printed(""), printed("")]),
        ("libtest", vec![garbage.clone(), garbage.clone(), garbage.clone()]),
        ("libtest-plain", vec![printed("a: test\nnoise\n"), printed("")]),
    ] {
        let error = names(adapter, &outputs).unwrap_err();
        assert!(matches!(error, ListingError::NotThisFramework { .. }), "{adapter}: {error}");
    }
}

#[test]
fn death_while_listing_is_reported_with_output() {
    let dead = ListingOutput {
        stderr: [b"x".repeat(5000), b"\nno config\n".to_vec()].concat(),
        signal: Some(11),
        ..ListingOutput::default()
    };
    for adapter in ["gtest", "libtest"] {
        let error = names(adapter, std::slice::from_ref(&dead)).unwrap_err().to_string();
        assert!(error.contains("killed by signal 11") && error.ends_with("no config"), "{error}");
        assert!(error.len() < 2200);
    }
    let left = ListingOutput { code: Some(3), stdout: b"usage".to_vec(), ..ListingOutput::default() };
    let error = names("gtest", &[left]).unwrap_err().to_string();
    assert_eq!(error, "it exited with code 3; its output:\nusage");
}

#[test]
fn whole_listing_of_a_failed_process_is_valid() {
    let xml = b"<testsuites name=\"AllTests\"><testsuite name=\"A\"><testcase name=\"b\" /></testsuite></testsuites>";
    let left = |file: &[u8], code, signal| ListingOutput {
        file: Some(file.to_vec()),
        stderr: b"1 leaked mock object".to_vec(),
        code,
        signal,
        ..ListingOutput::default()
    };
    let read = |output: ListingOutput| gtest().read_listing(&program(None), &[output]);
    for (code, signal, end) in
        [(Some(1), None, "exited with code 1"), (None, Some(6), "was killed by signal 6")]
    {
        let listing = read(left(xml, code, signal)).unwrap();
        assert_eq!(listing.tests[0].name, "A.b");
        let failure = listing.failure.unwrap().to_string();
        assert!(failure.ends_with(&format!("{end}; its output:\n1 leaked mock object")), "{failure}");
        assert!(read(left(&xml[..xml.len() - 3], code, signal)).is_err());
    }
    // The program ran its tests instead.
    let report = std::str::from_utf8(xml).unwrap().replace("name=\"b\"", "name=\"b\" status=\"run\"");
    assert!(read(left(report.as_bytes(), Some(1), None)).is_err());
}

#[test]
fn listing_of_a_crashed_process_is_valid_when_it_is_whole() {
    for (adapter, file) in [("doctest", "doctest.list"), ("boost", "boost.dot"), ("catch2", "catch2.list")] {
        let bytes = super::recorded::read(file);
        let crashed = |bytes: &[u8]| {
            let output = ListingOutput { signal: Some(6), ..ListingOutput::default() };
            let output = match adapter {
                "boost" => ListingOutput { stderr: bytes.to_vec(), ..output },
                _ => ListingOutput { stdout: bytes.to_vec(), ..output },
            };
            by_name(adapter).unwrap().read_listing(&program(None), &[output])
        };
        let whole = crashed(&bytes).unwrap();
        let failure = whole.failure.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(failure.contains("was killed by signal 6"), "{adapter}: {failure}");
        let mut errors = 0;
        for cut in 0..bytes.len() {
            match crashed(&bytes[..cut]) {
                Ok(listing) => assert_eq!(listing.tests, whole.tests, "{adapter}, cut at {cut}"),
                Err(ListingError::Died { signal: Some(6), .. }) => errors += 1,
                Err(error) => panic!("{adapter}, cut at {cut}: {error}"),
            }
        }
        // Only a few bytes follow the last entry.
        assert!(errors + 200 > bytes.len(), "{adapter}: {errors} of {}", bytes.len());
    }
}

#[test]
fn truncated_listing_is_damaged() {
    let xml = b"<?xml version=\"1.0\"?><testsuites name=\"AllTests\"><testsuite name=\"A\"><testcase name=\"b\" /></testsuite></testsuites>";
    assert_eq!(names("gtest", &[written(xml)]).unwrap(), ["A.b"]);
    for cut in 0..xml.len() {
        let error = names("gtest", &[written(&xml[..cut])]).unwrap_err();
        assert!(matches!(error, ListingError::Damaged { .. }), "cut at {cut}: {error}");
    }
    let json = printed(
        "{ \"type\": \"suite\", \"event\": \"discovery\" }\n{ \"type\": \"test\", \"event\": \"discov",
    );
    assert!(matches!(names("libtest", &[json]).unwrap_err(), ListingError::Damaged { .. }));
}

#[test]
fn old_versions_are_listed_from_text() {
    let text = "Running main() from gtest_main.cc\nMath.\n  Add\n  DISABLED_Off\nTyped/0.  # TypeParam = int\n  Default\nInst/P.\n  Works/0  # GetParam() = \"a b\"\n";
    let tests = gtest().read_listing(&program(None), &[printed(text)]).unwrap().tests;
    let read: Vec<_> = tests
        .iter()
        .map(|test| (test.name.as_str(), test.display.as_deref(), test.skip.as_deref()))
        .collect();
    assert_eq!(
        read,
        [
            ("Math.Add", None, None),
            ("Math.DISABLED_Off", None, Some("disabled")),
            ("Typed/0.Default", Some("Typed/0.Default (int)"), None),
            ("Inst/P.Works/0", Some("Inst/P.Works/0 (\"a b\")"), None),
        ]
    );
}

#[test]
fn ignore_reason_may_contain_anything() {
    let entry = |name: &str, message: &str| {
        format!(
            "{{ \"type\": \"test\", \"event\": \"discovered\", \"name\": \"{name}\", \"ignore\": true, \"ignore_message\": \"{message}\", \"source_path\": \"src/l.rs\", \"start_line\": 7, \"start_col\": 1, \"end_line\": 7, \"end_col\": 2 }}\n"
        )
    };
    let json = format!(
        "noise\n{{ \"type\": \"suite\", \"event\": \"discovery\" }}\n{}{}{{ \"type\": \"suite\", \"event\": \"completed\", \"tests\": 2 }}\n",
        entry("a", "needs \"net\" }\nand \\ more"),
        entry("b", ""),
    );
    let listing = by_name("libtest").unwrap().read_listing(&program(None), &[printed(&json)]).unwrap();
    assert_eq!(listing.framework, "libtest");
    let read: Vec<_> =
        listing.tests.iter().map(|test| (test.name.as_str(), test.skip.as_deref(), test.line)).collect();
    assert_eq!(
        read,
        [("a", Some("ignored: needs \"net\" }\nand \\ more"), Some(7)), ("b", Some("ignored"), Some(7))]
    );
}

#[test]
fn program_refusing_json_runs_as_plain() {
    let libtest = by_name("libtest").unwrap();
    let refused = ListingOutput { code: Some(101), ..ListingOutput::default() };
    assert!(next_listing(libtest, std::slice::from_ref(&refused)).is_some());
    let outputs = [refused, printed("a: test\nb::c: test\nd: benchmark\n"), printed("b::c: test\n")];
    let listing = libtest.read_listing(&program(None), &outputs).unwrap();
    let read: Vec<_> = listing.tests.iter().map(|test| (test.name.as_str(), test.skip.as_deref())).collect();
    assert_eq!((listing.framework, read), ("libtest-plain", vec![("a", None), ("b::c", Some("ignored"))]));
}

#[test]
fn empty_listing_is_accepted_if_framework_is_named() {
    let configured = program(Some("libtest-plain"));
    let listing =
        by_name("libtest-plain").unwrap().read_listing(&configured, &[printed(""), printed("")]).unwrap();
    assert!(listing.tests.is_empty());
}

#[test]
fn test_program_lists_itself() {
    let libtest = by_name("libtest").unwrap();
    let image = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let target = DiscoveryTarget::Executable { image: &bytes };
    assert_eq!(libtest.claims(&target), ClaimConfidence::Likely);
    let listing = next_listing(libtest, &[]).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test may start a program without the host crate")]
    let mut command = std::process::Command::new(&image);
    command.args(listing.args.iter().map(heeler_protocol::control::OsText::as_os_str));
    for (name, value) in &listing.env {
        match value {
            Some(value) => command.env(name.as_os_str(), value.as_os_str()),
            None => command.env_remove(name.as_os_str()),
        };
    }
    let output = command.output().unwrap();
    let output = ListingOutput {
        stdout: output.stdout,
        stderr: output.stderr,
        code: output.status.code(),
        ..ListingOutput::default()
    };
    assert_eq!(next_listing(libtest, std::slice::from_ref(&output)), None);
    let listing = libtest.read_listing(&program(None), &[output]).unwrap();
    let own = "test_program_lists_itself";
    let found = listing.tests.iter().find(|test| test.name.ends_with(own)).unwrap();
    assert!(found.file.as_ref().unwrap().ends_with("listing.rs") && found.line.is_some());
}

#[test]
fn large_program_is_listed_in_one_pass() {
    let mut xml = String::from("<testsuites name=\"AllTests\"><testsuite name=\"S\">");
    for number in 0..20_000 {
        xml.push_str(&format!(
            "<testcase name=\"Case/{number}\" value_param=\"{number}\" file=\"f.cc\" line=\"3\" />"
        ));
    }
    xml.push_str("</testsuite></testsuites>");
    let tests = gtest().read_listing(&program(None), &[written(xml.as_bytes())]).unwrap().tests;
    assert_eq!(tests.len(), 20_000);
    assert_eq!(tests[19_999].display.as_deref(), Some("S.Case/19999 (19999)"));
}
