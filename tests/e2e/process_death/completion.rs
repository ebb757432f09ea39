//! The watchdog is killed while it completes a run, and its successor continues from the same point. The
//! client receives each result and the completion once, and then the response.

use std::time::Duration;

use super::{first_moments::world, wait_stopped_at};
use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{ExpectedDelivery, RequestedRun},
    process::{ProcessRole, signal},
    server::TestServer,
};

/// Points that a watchdog passes, in this order, when it finishes a run over its own connection.
const POINTS: [&str; 5] =
    ["watchdog.finish", "watchdog.due", "watchdog.announced", "watchdog.completed", "watchdog.confirmed"];

/// Waits for the response; checks that every result and the completion arrived once.
#[track_caller]
fn check_received_once(server: TestServer<'_>, run: &RequestedRun, selected: &[String]) {
    server.finish_as(run, selected, ExpectedDelivery::Once).assert_all("passed");
    let events = server.recorder.events();
    assert_eq!(events.iter().filter(|event| event.is_completion_of(&run.run_id)).count(), 1);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn watchdog_killed_at_any_point_of_a_finish_completes_the_run_once() {
    for is_listening in [true, false] {
        for point in POINTS {
            let (world, selected) = world(&format!("{point}:1:stop"));
            let mut server = TestServer::with_optional_callback(&world, &["big"], is_listening);
            let run = server.run(None);
            if is_listening || !["watchdog.announced", "watchdog.confirmed"].contains(&point) {
                let watchdog = wait_stopped_at(&world, point);
                signal(watchdog, "KILL");
            }
            check_received_once(server, &run, &selected);
        }
    }
}

#[test]
fn watchdog_killed_while_the_client_handles_its_completion_completes_the_run_once() {
    let (world, selected) = world("");
    // The client responds to the barrier that follows the completion long after it has read the completion.
    let delayed = ListenerBehaviour::RespondsAfter(Duration::from_millis(300));
    let mut server = TestServer::with_callback(&world, &["big"], move |_| delayed);
    let run = server.run(None);
    server.recorder.wait("the completion", |events| {
        events.iter().any(|event| event.is_completion_of(&run.run_id)).then_some(())
    });
    signal(server.processes(ProcessRole::Watchdog)[0], "KILL");
    check_received_once(server, &run, &selected);
}

#[test]
fn results_that_a_killed_watchdog_has_relayed_are_not_relayed_again() {
    for point in ["watchdog.due", "watchdog.completed"] {
        let (world, _) = world(&format!("{point}:1:stop"));
        let mut server = TestServer::initialized(&world, &["big"]);
        // No program lists these tests, so the watchdog sends their results. They need more frames than it
        // sends before it waits for an acknowledgement.
        let selected: Vec<String> = (0..3_000).map(|number| format!("big::Unknown.Case{number}")).collect();
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        signal(wait_stopped_at(&world, point), "KILL");
        server.finish_as(&run, &selected, ExpectedDelivery::Once).assert_all("error");
        let events = server.recorder.events();
        assert_eq!(events.iter().filter(|event| event.is_completion_of(&run.run_id)).count(), 1);
        assert_eq!(server.exit(), Some(0));
    }
}
