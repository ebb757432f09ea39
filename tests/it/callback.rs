//! The callback port: the processes that connect to it, and clients of every behaviour. Whatever the client
//! does, the run completes correctly, and the log has the proof level.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::support::{
    books::{Books, Delivery},
    listener::Behaviour,
    recorder::On,
    server::Server,
    uids,
    world::World,
};

const CASES: usize = 200;

/// Deadlines short enough for a test.
const IMPATIENT: &str = "[profile.default]\njobs = 2\nstall-timeout = \"500ms\"\ndrain-timeout = \"300ms\"\nconnect-timeout = \"1s\"\n";

fn world(cases: usize) -> (World, Vec<String>) {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &cases.to_string());
    world.write("heeler.toml", IMPATIENT);
    let names: Vec<String> = (0..cases).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    (world, selected)
}

/// Runs everything with a client whose connections behave so, and ends the session with `exit`.
fn run(cases: usize, delivery: Delivery, choose: impl Fn(usize) -> Behaviour + Send + 'static) -> Books {
    let (world, selected) = world(cases);
    let mut server = Server::with_callback(&world, &["big"], choose);
    let run = server.run(None);
    let books = server.finish_as(&run, &selected, delivery);
    books.all("passed");
    assert!(books.answer.get("error").is_none(), "{}", books.answer);
    assert_eq!(server.exit(), Some(0));
    books
}

fn proof_levels(books: &Books) -> BTreeSet<&str> {
    let levels = books.log.iter().filter_map(|log| log.split_once("with proof level \""));
    levels.map(|(_, level)| level.trim_end_matches('"')).collect()
}

#[test]
fn each_worker_and_the_watchdog_dial_once_and_results_come_straight_from_them() {
    let (world, selected) = world(CASES);
    let mut server = Server::with_callback(&world, &["big"], |_| Behaviour::Normal);
    // Several runs of one session share the connections.
    for _ in 0..3 {
        let run = server.run(None);
        let books = server.finish(&run, &selected);
        books.all("passed").no_charges();
        assert!(books.results_on.values().all(|on| *on != On::Main), "{:?}", books.results_on);
        let workers: BTreeSet<_> = books.results_on.values().collect();
        assert!(!workers.contains(&books.completion_on) && books.completion_on != On::Main);
        assert!(proof_levels(&books).is_empty(), "{:?}", books.log);
    }
    let connections = server.callback().connections();
    assert!((2..=3).contains(&connections), "{connections} connections");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn the_attachments_end_before_the_completion_where_the_client_reads_them() {
    let (world, selected) = world(5);
    let mut server = Server::with_callback(&world, &["big"], |_| Behaviour::Normal);
    let run = server.run(None);
    server.finish(&run, &selected);
    let events = server.recorder.events();
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/attachments"))
        .filter(|params| params["attachments"].is_null())
        .collect();
    assert_eq!(ends.len(), 1);
}

#[test]
fn a_client_that_did_not_ask_for_attachments_gets_none() {
    let (world, selected) = world(5);
    let mut server = Server::ready(&world, &["big"]);
    let run = server.run(None);
    server.finish(&run, &selected);
    let events = server.recorder.events();
    assert_eq!(events.iter().filter_map(|event| event.params("testing/testUpdates/attachments")).count(), 0);
    assert!(events.iter().all(|event| event.on == On::Main));
}

#[test]
fn a_client_that_answers_the_barrier_with_a_result_is_as_good_as_any() {
    let books = run(CASES, Delivery::Once, |_| Behaviour::AnswersWithResult);
    assert!(proof_levels(&books).is_empty(), "{:?}", books.log);
}

#[test]
fn a_client_that_never_answers_is_proven_in_a_weaker_way_and_told_so() {
    let books = run(CASES, Delivery::AtLeastOnce, |_| Behaviour::NeverAnswers);
    let levels = proof_levels(&books);
    assert!(
        !levels.is_empty() && levels.is_subset(&BTreeSet::from(["closed", "delivered"])),
        "{:?}",
        books.log
    );
}

#[test]
fn a_client_that_never_reads_gets_everything_on_the_main_connection() {
    let books = run(20_000, Delivery::AtLeastOnce, |_| Behaviour::NeverReads);
    assert_eq!(books.completion_on, On::Main);
    assert!(books.log.iter().any(|log| log.contains("none") || log.contains("read")), "{:?}", books.log);
}

#[test]
fn a_client_that_reads_a_byte_a_second_gets_everything_on_the_main_connection() {
    let books = run(20_000, Delivery::AtLeastOnce, |_| Behaviour::OneByteASecond);
    assert_eq!(books.completion_on, On::Main);
}

#[test]
fn a_client_that_closes_in_the_middle_gets_the_rest_elsewhere() {
    // The first connection is a worker's.
    let books = run(2000, Delivery::AtLeastOnce, |number| match number {
        0 => Behaviour::ClosesAfter(2),
        _ => Behaviour::Normal,
    });
    assert_ne!(books.completion_on, On::Callback(0));
}

#[test]
fn a_client_that_closes_every_connection_gets_all_of_it_on_the_main_one() {
    let books = run(CASES, Delivery::AtLeastOnce, |_| Behaviour::ClosesAfter(1));
    assert_eq!(books.completion_on, On::Main);
}

#[test]
fn a_client_that_closes_instead_of_answering_loses_nothing() {
    run(CASES, Delivery::AtLeastOnce, |_| Behaviour::ClosesAtTheBarrier);
}

#[test]
fn a_client_that_ends_only_what_it_says_loses_nothing() {
    run(CASES, Delivery::AtLeastOnce, |_| Behaviour::HalfClosesAfter(1));
}

#[test]
fn a_client_that_leaves_a_connection_unread_gets_the_rest_elsewhere() {
    run(2000, Delivery::AtLeastOnce, |number| match number {
        0 => Behaviour::ResetsAfter(2),
        _ => Behaviour::Normal,
    });
}

#[test]
fn a_client_that_is_slow_to_read_or_to_answer_gets_everything_once() {
    let world_is_patient = "[profile.default]\njobs = 2\n";
    for behaviour in [
        Behaviour::PausesAfter(1, Duration::from_millis(300)),
        Behaviour::AnswersAfter(Duration::from_millis(300)),
    ] {
        let (world, selected) = world(CASES);
        world.write("heeler.toml", world_is_patient);
        let mut server = Server::with_callback(&world, &["big"], move |_| behaviour);
        let run = server.run(None);
        let books = server.finish(&run, &selected);
        assert!(proof_levels(books.all("passed")).is_empty(), "{:?}", books.log);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_port_where_nobody_listens_costs_no_result() {
    let (world, selected) = world(CASES);
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut server = Server::start(&world, &["big"]);
    server.initialize(serde_json::json!({"testing": {"callbackProvider": {"port": port}}}));
    let run = server.run(None);
    let books = server.finish_as(&run, &selected, Delivery::AtLeastOnce);
    books.all("passed");
    assert_eq!(books.completion_on, On::Main);
    assert!(books.log.iter().any(|log| log.contains(&port.to_string())), "{:?}", books.log);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn one_bad_connection_does_not_spoil_the_next_run() {
    let (world, selected) = world(CASES);
    let mut server = Server::with_callback(&world, &["big"], |number| match number {
        0 => Behaviour::ClosesAfter(1),
        _ => Behaviour::Normal,
    });
    for _ in 0..2 {
        let run = server.run(None);
        server.finish_as(&run, &selected, Delivery::AtLeastOnce).all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_secret_of_the_client_is_the_first_word_on_each_connection() {
    let (world, selected) = world(CASES);
    let mut server = Server::start(&world, &["big"]);
    let listener = crate::support::listener::Listener::new(server.recorder.clone(), |_| Behaviour::Normal);
    let provider = serde_json::json!({"port": listener.port, "token": "s3cret"});
    server.listener = Some(listener);
    server.initialize(serde_json::json!({"testing": {"callbackProvider": provider}}));
    let run = server.run(None);
    server.finish(&run, &selected).all("passed");
    let events = server.recorder.events();
    for number in 0..server.callback().connections() {
        let first =
            events.iter().filter(|event| event.on == On::Callback(number)).find_map(|event| event.message());
        let first = first.unwrap();
        assert_eq!(first["method"], "$/heeler/hello", "{first}");
        assert_eq!(first["params"]["token"], "s3cret");
        assert_ne!(first["params"]["from"], Value::Null);
    }
    assert_eq!(server.exit(), Some(0));
}
