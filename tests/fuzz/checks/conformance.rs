//! Suite files and configurations of Connect's conformance suite: whatever is accepted has cases whose
//! requests can be read back.

use std::collections::BTreeSet;

use heeler_connect_judge::{Configuration, Endpoint, expand, not_judged};
use heeler_protocol::connect::decode_request;

/// Input limit: cases are a multiple of what a suite writes down.
const SUITE_BYTES: usize = 8 << 10;

/// Checks a suite file; with a line of `---`, the text behind it is the configuration.
pub fn connect_suite(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(&bytes[..bytes.len().min(SUITE_BYTES)]) else { return };
    let (suite, configuration) = text.split_once("\n---\n").unwrap_or((text, ""));
    let Ok(configuration) = Configuration::parse(configuration) else { return };
    let Ok(cases) = expand([("suite.yaml", suite)], &configuration) else { return };
    assert!(!cases.is_empty(), "accepted without cases: {text}");
    let mut names = BTreeSet::new();
    for case in &cases {
        assert!(names.insert(case.name()), "{:?} twice", case.name());
        let endpoint =
            Endpoint { host: "h".to_owned(), port: 1, server_cert: Vec::new(), client_creds: None };
        let request =
            decode_request(&case.encoded_request(&endpoint)).expect("it was written by the library");
        assert_eq!(request.test_name, case.name());
        let _reason = not_judged(case);
    }
}
