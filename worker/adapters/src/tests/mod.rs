//! Tests of whole adapters: recorded outputs of real programs, and hostile outputs.

mod hostile;
mod hostile_catch2;
mod listing;
mod recorded;
mod unselected;

use heeler_protocol::control::ListedTest;

use super::{TranscriptEvent, TranscriptParser, by_name};

fn tests(names: impl IntoIterator<Item: Into<String>>) -> Vec<ListedTest> {
    names.into_iter().map(|name| ListedTest { name: name.into(), ..ListedTest::default() }).collect()
}

fn transcript(framework: &str, tests: &[ListedTest]) -> Box<dyn TranscriptParser + Send> {
    by_name(framework).unwrap().transcript_parser(&tests.iter().collect::<Vec<_>>())
}

/// Joins adjacent outputs, because chunk boundaries are arbitrary.
pub(crate) fn merge(events: Vec<TranscriptEvent>) -> Vec<TranscriptEvent> {
    let mut merged: Vec<TranscriptEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(TranscriptEvent::Output(before)), TranscriptEvent::Output(bytes)) => before.extend(bytes),
            (
                Some(TranscriptEvent::TestOutput { place, stream, bytes: before }),
                TranscriptEvent::TestOutput { place: other, stream: other_stream, bytes },
            ) if *place == other && *stream == other_stream => before.extend(bytes),
            (_, event) => merged.push(event),
        }
    }
    merged
}

/// Feeds the chunks and the end of the output to a new parser.
fn replay<'a>(
    framework: &str,
    tests: &[ListedTest],
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<TranscriptEvent>, Box<dyn TranscriptParser + Send>) {
    let mut transcript = transcript(framework, tests);
    let mut events = Vec::new();
    transcript.opening_request(&mut events);
    chunks.into_iter().for_each(|chunk| transcript.on_stdout(chunk, &mut events));
    transcript.on_output_end(&mut events);
    (merge(events), transcript)
}

/// Returns one line for each begin and end.
fn summary(events: &[TranscriptEvent]) -> Vec<String> {
    let line = |event: &TranscriptEvent| match event {
        TranscriptEvent::Begun { place } => Some(format!("begun {place}")),
        TranscriptEvent::Ended { place, verdict } => Some(format!("{} {place}", verdict.result.as_str())),
        TranscriptEvent::Output(_)
        | TranscriptEvent::ErrorOutput(_)
        | TranscriptEvent::TestOutput { .. }
        | TranscriptEvent::Paused { .. }
        | TranscriptEvent::Resumed { .. }
        | TranscriptEvent::Part { .. }
        | TranscriptEvent::TimeLimit { .. }
        | TranscriptEvent::File { .. }
        | TranscriptEvent::Confirmed => None,
    };
    events.iter().filter_map(line).collect()
}

fn output(events: &[TranscriptEvent]) -> String {
    let bytes = |event: &TranscriptEvent| match event {
        TranscriptEvent::Output(bytes) => Some(bytes.clone()),
        _ => None,
    };
    String::from_utf8_lossy(&events.iter().filter_map(bytes).collect::<Vec<_>>().concat()).into_owned()
}
