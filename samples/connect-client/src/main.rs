//! A client under test of Connect's conformance suite. Reads a request, makes the call, writes the answer,
//! and repeats. Options make it misbehave in one case, to see how Heeler treats the others:
//!
//! ```console
//! $ heeler connect run -- connect-client --crash-at 'Basic/…/unary/success'
//! ```

// The generated modules define a module `connectrpc`, which hides the crate of the same name.
::connectrpc::include_generated!("conformance.rs");

mod answer;
mod call;
mod misbehaviour;
mod stream;
mod transport;

use std::io::{Read, Write};

use buffa::Message as _;
use misbehaviour::Misbehaviour;

/// The messages of the conformance suite.
pub(crate) mod suite {
    pub(crate) use super::connectrpc::conformance::v1::__buffa::oneof;
    pub(crate) use super::connectrpc::conformance::v1::*;
}

fn main() {
    // JSON encodes `Any` values with their type names, which this registry resolves.
    let mut types = buffa::type_registry::TypeRegistry::new();
    connectrpc::conformance::v1::register_types(&mut types);
    buffa_types::register_wkt_types(&mut types);
    buffa::type_registry::set_type_registry(types);
    let misbehaviour = Misbehaviour::from_arguments(std::env::args().skip(1)).unwrap_or_else(|problem| {
        eprintln!("connect-client: {problem}");
        std::process::exit(2)
    });
    // One thread is enough, because cases run one at a time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has what a runtime needs");
    while let Some(request) = read_message(&mut std::io::stdin().lock()) {
        let request = suite::ClientCompatRequest::decode_from_slice(&request).expect("a request");
        misbehaviour.apply(&request.test_name);
        let answer = runtime.block_on(answer::answer(request));
        write_message(&mut std::io::stdout().lock(), &answer.encode_to_vec());
    }
}

/// Reads a length-prefixed message; `None` at the end of the input.
fn read_message(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    input.read_exact(&mut message).expect("the whole message");
    Some(message)
}

fn write_message(output: &mut impl Write, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("answers are small").to_be_bytes();
    let written = output.write_all(&length).and_then(|()| output.write_all(message));
    written.and_then(|()| output.flush()).expect("the suite reads");
}
