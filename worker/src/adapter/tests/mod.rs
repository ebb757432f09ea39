//! Tests of whole adapters: recorded outputs of real programs, and hostile outputs.

mod hostile;
mod listing;
mod recorded;

use wire::control::ListedTest;

use super::{Event, Transcript, by_name};

fn tests(names: impl IntoIterator<Item: Into<String>>) -> Vec<ListedTest> {
    names.into_iter().map(|name| ListedTest { name: name.into(), ..ListedTest::default() }).collect()
}

fn transcript(framework: &str, tests: &[ListedTest]) -> Box<dyn Transcript + Send> {
    by_name(framework).unwrap().transcript(&tests.iter().collect::<Vec<_>>())
}

/// Joins adjacent outputs: how output is cut into events has no meaning.
fn merge(events: Vec<Event>) -> Vec<Event> {
    let mut merged: Vec<Event> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(Event::Output(before)), Event::Output(bytes)) => before.extend(bytes),
            (_, event) => merged.push(event),
        }
    }
    merged
}

/// Feeds the chunks and the end of the output to a new transcript.
fn replay<'a>(
    framework: &str,
    tests: &[ListedTest],
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Box<dyn Transcript + Send>) {
    let mut transcript = transcript(framework, tests);
    let mut events = Vec::new();
    chunks.into_iter().for_each(|chunk| transcript.stdout(chunk, &mut events));
    transcript.end(&mut events);
    (merge(events), transcript)
}

/// Returns one line for each begin and end.
fn summary(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Begun { place } => Some(format!("begun {place}")),
        Event::Ended { place, verdict } => Some(format!("{} {place}", verdict.state.as_str())),
        Event::Output(_) => None,
    };
    events.iter().filter_map(line).collect()
}

fn output(events: &[Event]) -> String {
    let bytes = |event: &Event| match event {
        Event::Output(bytes) => Some(bytes.clone()),
        _ => None,
    };
    String::from_utf8_lossy(&events.iter().filter_map(bytes).collect::<Vec<_>>().concat()).into_owned()
}
