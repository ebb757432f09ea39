//! An editor-like client: runs all tests of the named programs. Usage: `cargo run --example editor --
//! build/unit_tests`. Ctrl-C cancels the run; the result of each test is printed in either case.

use std::time::Duration;

use heeler_client::{Client, ClientEvent, ClientOptions, RunAggregate, ServerCommand, TestRequest};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let heeler = std::env::var_os("HEELER").unwrap_or_else(|| "target/debug/heeler".into());
    let command = ServerCommand::new(heeler, std::env::args_os().skip(1));
    let (client, mut events) = Client::start(command, ClientOptions::default()).await?;
    let request = TestRequest::all();
    let run_id = request.run_id.clone();
    let mut tests = RunAggregate::default();
    let watch = async {
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(ClientEvent::Changes { changes, .. }) => {
                        for change in changes {
                            tests.apply(change);
                        }
                    }
                    Some(ClientEvent::Log { level, message, .. }) => eprintln!("{level:?}: {message}"),
                    // After this, no connection delivers anything more of the run.
                    Some(ClientEvent::Completed { .. }) | None => break,
                    Some(_) => {}
                },
                _ = tokio::signal::ctrl_c() => drop(client.cancel(&run_id).await),
            }
        }
    };
    let (result, ()) = tokio::join!(client.run(request), watch);
    for test in tests.tests() {
        let state = test.node.state.map_or("group", |state| state.as_str());
        println!("{state:10} {}", test.node.uid);
    }
    println!("{} passed of {}", tests.counts().passed, tests.counts().total());
    drop(events);
    client.exit(Instant::now() + Duration::from_secs(15)).await?;
    result?;
    Ok(())
}
