//! Tests of whole runs through the display: logs as text, the live view through a small terminal emulator.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use heeler_core::Outcome;
use heeler_protocol::mtp::LogLevel;

use super::{
    sample_events::{TestEvent, begun, count_all, of_outcome, passed, results_of_every_kind, show_all},
    style::ColourMode,
    *,
};
use heeler_report::RunSummary;

/// The written bytes, and the number of writes.
#[derive(Clone, Default)]
struct SharedSink(Arc<Mutex<(Vec<u8>, usize)>>);

impl SharedSink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Write for SharedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.lock().unwrap();
        inner.0.extend_from_slice(bytes);
        inner.1 += usize::from(!bytes.is_empty());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Emulates the terminal features that the display uses; returns all lines, including those scrolled away.
fn emulate_terminal(bytes: &str, columns: usize) -> String {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut rest = bytes;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        match char {
            '\n' => (row, column) = (row + 1, 0),
            '\r' => column = 0,
            '\u{1b}' => {
                let end = rest.find(|char: char| char.is_ascii_alphabetic()).unwrap();
                match (&rest[1..end], &rest[end..=end]) {
                    (up, "A") => row -= up.parse::<usize>().unwrap(),
                    ("", "K") => rows[row].truncate(column),
                    ("", "J") => {
                        rows.truncate(row + 1);
                        rows[row].truncate(column);
                    }
                    (_, "m" | "h" | "l") => {}
                    other => panic!("the terminal does not know {other:?}"),
                }
                rest = &rest[end + 1..];
            }
            char => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                    rows.resize(rows.len().max(row + 1), Vec::new());
                }
                let cells = &mut rows[row];
                cells.resize(cells.len().max(column + 1), ' ');
                cells[column] = char;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    let lines: Vec<String> =
        rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect();
    lines.join("\n")
}

fn head(tests: usize) -> RunHead {
    RunHead { run: "7f0c2a11-2f4e".into(), tests, programs: 1, workers: 2, filtered: 3, ..RunHead::default() }
}

fn end() -> SummaryExtras {
    SummaryExtras {
        duration: Duration::from_millis(7312),
        files: vec![("JUnit report".into(), "target/junit.xml".into())],
        ..SummaryExtras::default()
    }
}

fn options(kind: DisplayKind) -> DisplayOptions {
    DisplayOptions { root: "/w".into(), ..DisplayOptions::new(kind, ColourMode::Off) }
}

/// Displays all events at one point in time, and returns the output.
fn display_output(options: DisplayOptions, head: &RunHead, changes: &[TestEvent]) -> String {
    let sink = SharedSink::default();
    let now = Instant::now();
    let mut display = RunDisplay::new(options, Box::new(sink.clone()));
    let mut summary = RunSummary::new(Some(head.tests));
    display.begin(head, now);
    show_all(&mut display, changes, now);
    count_all(&mut summary, changes);
    display.end(&summary, &end()).unwrap();
    sink.text()
}

#[test]
fn log_prints_each_result_and_failure_details() {
    insta::assert_snapshot!(display_output(options(DisplayKind::Plain), &head(10), &results_of_every_kind()), @r#"
         Running 10 tests of 1 program on 2 workers, 3 filtered out (run 7f0c2a11)
            PASS    0.004s   1/10  math::adds
            FAIL    0.075s   2/10  math::fails  src/math.rs:12
          stdout ────────
        checking 1
        ::error::forged
          stderr ────────
        panicked at src/math.rs:12:
        assertion `left == right` failed
          left: 1
         right: 2
           again $ ./core --exact math::fails

         SIGSEGV    0.412s   3/10  crash::null
        killed by SIGSEGV
           stack ────────
        #0 core::crash::null
        #1 main
        isolated also crashes in isolation
           again $ ./core --exact crash::null

          EXIT 0             4/10  exit::leaves
        the process left with code 0 under the test
           again $ ./core --exact exit::leaves

         TIMEOUT    1m 02s   5/10  hangs
        ran longer than 1m 00s
           again $ ./core --exact hangs

         FLAKY 2    1.200s   7/10  net::flaky
            FAIL             8/10  a name\nwith a newline
        Expected equality
        expected 3
          actual 4
           again $ ./core --exact "$(printf -- 'a name\nwith a newline')"

          EXIT 1            core (outside any test)
        left with code 1 after its last test
           again $ ./core --exact

    ────────────
         Slowest    1m 02s  hangs
                    1.200s  net::flaky
           Flaky    1.200s  net::flaky  (passed on attempt 2)
                 attempt 1 failed: no
         Not run 2 tests: core died 3 times before its first test
                 waits::one
                 waits::two
          EXIT 1            core (outside any test)
                 left with code 1 after its last test
                 $ ./core --exact
            FAIL    0.075s  math::fails  src/math.rs:12
                 assertion `left == right` failed · left: 1 · right: 2
                 $ ./core --exact math::fails
         SIGSEGV    0.412s  crash::null
                 killed by SIGSEGV
                 also crashes in isolation
                 $ ./core --exact crash::null
          EXIT 0            exit::leaves
                 the process left with code 0 under the test
                 $ ./core --exact exit::leaves
         TIMEOUT    1m 02s  hangs
                 ran longer than 1m 00s
                 $ ./core --exact hangs
            FAIL            a name\nwith a newline
                 Expected equality
                 $ ./core --exact "$(printf -- 'a name\nwith a newline')"
         Written JUnit report: target/junit.xml
         Summary 2 passed (1 flaky), 2 failed, 1 crashed, 1 exited early, 1 timed out, 2 not run, 1 skipped
          FAILED 5 of 10 tests and 1 program in 7.3s, 2 not run
    "#);
}

#[test]
fn github_groups_and_annotations_cannot_be_forged() {
    let text = display_output(options(DisplayKind::GitHub), &head(2), &results_of_every_kind()[..2]);
    insta::assert_snapshot!(text, @"
         Running 2 tests of 1 program on 2 workers, 3 filtered out (run 7f0c2a11)
            PASS    0.004s  1/2  math::adds
            FAIL    0.075s  2/2  math::fails  src/math.rs:12
    ::group::output of math::fails
          stdout ────────
        checking 1
        : :error::forged
          stderr ────────
        panicked at src/math.rs:12:
        assertion `left == right` failed
          left: 1
         right: 2
           again $ ./core --exact math::fails

    ::endgroup::
    ::error file=src/math.rs,title=FAIL core%3A%3Amath%3A%3Afails (defined at line 12)::assertion `left == right` failed%0A  left: 1%0A right: 2%0A$ ./core --exact math::fails
    ────────────
            FAIL    0.075s  math::fails  src/math.rs:12
                 assertion `left == right` failed · left: 1 · right: 2
                 $ ./core --exact math::fails
         Written JUnit report: target/junit.xml
         Summary 1 passed, 1 failed
          FAILED 1 of 2 tests in 7.3s
    ");
}

#[test]
fn github_annotations_are_limited() {
    let changes: Vec<TestEvent> =
        (0..60).map(|number| of_outcome(&format!("t{number}"), Outcome::Failed)).collect();
    let text = display_output(options(DisplayKind::GitHub), &head(60), &changes);
    let count = |what: &str| text.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!((count("::error "), count("::group::"), count("::endgroup::")), (50, 60, 60));
}

#[test]
fn brief_log_has_failures_and_counts_only() {
    let mut changes: Vec<TestEvent> = (0..199).map(|number| passed(&format!("t{number}"), 4000)).collect();
    changes.push(results_of_every_kind().remove(1));
    let text = display_output(options(DisplayKind::Plain).brief(), &head(200), &changes);
    assert!(text.len() < 800, "{text}");
    assert!(!text.contains("PASS ") && !text.contains("Slowest"), "{text}");
    assert_eq!(text.matches("math::fails  src/math.rs:12").count(), 1, "{text}");
    assert!(text.contains("Summary 199 passed, 1 failed"), "{text}");
}

#[test]
fn brief_log_hides_no_flaky_or_missing_test_and_no_warning() {
    let sink = SharedSink::default();
    let now = Instant::now();
    let mut display = RunDisplay::new(options(DisplayKind::Live).brief(), Box::new(sink.clone()));
    display.show_phase("Listing", "tests", now);
    display.begin(&head(10), now);
    display.log(LogLevel::Warning, "the disk is full");
    show_all(&mut display, &results_of_every_kind(), now);
    let mut summary = RunSummary::new(Some(10));
    count_all(&mut summary, &results_of_every_kind());
    let end = SummaryExtras { commands: vec!["heeler report 7f0c2a11".to_owned()], ..end() };
    display.end(&summary, &end).unwrap();
    let text = sink.text();
    for part in ["warning the disk is full", "FLAKY 2", "Not run 2 tests", "More heeler report 7f0c2a11\n"] {
        assert!(text.contains(part) || part == "FLAKY 2" && text.contains("Flaky "), "{part}: {text}");
    }
    assert!(!text.contains("Listing") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn output_of_a_build_begins_below_its_step() {
    let sink = SharedSink::default();
    let mut display = RunDisplay::new(options(DisplayKind::Live), Box::new(sink.clone()));
    display.show_build_step("Building", "the tests of herd", Instant::now());
    // The step is printed, not only drawn, and the cursor is below it.
    assert!(sink.text().contains("the tests of herd\n"), "{:?}", sink.text());
}

#[test]
fn live_view_is_below_the_log_and_removed() {
    let sink = SharedSink::default();
    let start = Instant::now();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut display = RunDisplay::new(options(DisplayKind::Live), Box::new(sink.clone()));
    let screen = || emulate_terminal(&sink.text(), 80);
    display.show_phase("Listing", "2 programs", start);
    assert_eq!(screen(), "     Listing 2 programs");
    let head = RunHead { programs: 2, ..head(12) };
    display.begin(&head, start);
    show_all(
        &mut display,
        &[begun("math::fails", 1), begun("net::connects_to_a_server_that_answers_so_late_that_all_sleep", 2)],
        at(100),
    );
    let mut summary = RunSummary::new(Some(12));
    let all = [results_of_every_kind(), vec![passed("last::a", 1), passed("last::b", 1)]].concat();
    for (place, change) in all.iter().enumerate() {
        let time = at(300 + 200 * place as u64);
        change.show(&mut display, time);
        change.count(&mut summary);
        if place == 2 {
            display.log(LogLevel::Warning, "the client reads slowly");
            show_all(&mut display, &[begun("last::a", 1)], at(800));
            display.tick(at(900));
            insta::assert_snapshot!(screen(), @"
             Running 12 tests of 2 programs on 2 workers, 3 filtered out (run 7f0c2a11)
                FAIL    0.075s   2/12  core math::fails  src/math.rs:12
              stdout ────────
            checking 1
            ::error::forged
              stderr ────────
            panicked at src/math.rs:12:
            assertion `left == right` failed
              left: 1
             right: 2
               again $ ./core --exact math::fails

             SIGSEGV    0.412s   3/12  core crash::null
            killed by SIGSEGV
               stack ────────
            #0 core::crash::null
            #1 main
            isolated also crashes in isolation
               again $ ./core --exact crash::null

             warning the client reads slowly
                 25% ━━━━━━━─────────────────────  3/12  0.9s, about 1s left
                     1 passed, 1 failed, 1 crashed
            worker 2      0.8s  core net::connects_to_a_serve…rs_so_late_that_all_sleep
            worker 1      0.1s  core last::a
            ");
        }
    }
    display.end(&summary, &end()).unwrap();
    let left = screen();
    assert!(!left.contains("worker 2") && !left.contains("%"), "{left}");
    assert!(left.ends_with("\n      FAILED 5 of 12 tests and 1 program in 7.3s, 2 not run\n"), "{left}");
}

#[test]
fn typed_lines_print_the_state_and_leave_no_copy_of_the_view() {
    let (sink, typed) = (SharedSink::default(), Arc::new(AtomicUsize::new(0)));
    let mut options = options(DisplayKind::Live);
    let source = Arc::clone(&typed);
    options.typed_lines = Box::new(move || source.swap(0, Ordering::Relaxed));
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut display = RunDisplay::new(options, Box::new(sink.clone()));
    display.begin(&head(3), now);
    show_all(&mut display, &[passed("a", 4), begun("b", 1)], at(1));
    let type_lines = |lines: usize| {
        // Imitates the terminal's echo.
        sink.clone().write_all("\n".repeat(lines).as_bytes()).unwrap();
        typed.store(lines, Ordering::Relaxed);
    };
    type_lines(2);
    display.tick(at(3));
    let text = emulate_terminal(&sink.text(), 80);
    let (state, view) = text.split_once("Running 1/3 (33%) in 3.0s: 1 passed; longest: b (2.0s)").unwrap();
    assert!(!state.contains("worker 1") && !state.contains("33%"), "{text}");
    assert_eq!((view.matches("worker 1").count(), view.matches("33%").count()), (2, 1), "{text}");
    // Lines typed just before the end leave no copy of the view either.
    type_lines(1);
    display.end(&RunSummary::new(Some(3)), &end()).unwrap();
    let text = emulate_terminal(&sink.text(), 80);
    assert!(!text.contains(" 33% "), "{text}");
}

#[test]
fn dropped_display_removes_its_live_view() {
    let sink = SharedSink::default();
    let now = Instant::now();
    let mut display = RunDisplay::new(options(DisplayKind::Live), Box::new(sink.clone()));
    display.begin(&head(2), now);
    show_all(&mut display, &[begun("a", 1)], now + Duration::from_secs(1));
    assert!(emulate_terminal(&sink.text(), 80).contains("worker 1"));
    drop(display);
    let left = emulate_terminal(&sink.text(), 80);
    assert_eq!(left, "     Running 2 tests of 1 program on 2 workers, 3 filtered out (run 7f0c2a11)\n");
}

#[test]
fn live_view_fits_a_terminal_of_any_size() {
    for columns in 1..100 {
        for rows in [1, 5, 24] {
            let sink = SharedSink::default();
            let now = Instant::now();
            let size = TerminalSize { columns, rows };
            let options = DisplayOptions { size: Box::new(move || size), ..options(DisplayKind::Live) };
            let mut display = RunDisplay::new(options, Box::new(sink.clone()));
            display.begin(&head(40), now);
            let before = sink.text().len();
            let many: Vec<TestEvent> =
                (0..20).map(|worker| begun(&format!("日本語{worker}"), worker)).collect();
            show_all(&mut display, &many, now + Duration::from_secs(1));
            let text = sink.text()[before..].replace('\r', "");
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() <= rows.saturating_sub(1).max(1), "{} lines on {rows} rows", lines.len());
            let widest = lines.iter().map(|line| style::text_columns(line)).max().unwrap();
            assert!(widest < columns.max(2), "{widest} of {columns} columns");
        }
    }
}

#[test]
fn narrow_terminal_shows_names_whole_and_cuts_commands() {
    let name = "a_name_that_is_longer_than_a_line_of_the_terminal";
    let output = |columns| {
        let size = TerminalSize { columns, rows: 24 };
        let options = DisplayOptions { size: Box::new(move || size), ..options(DisplayKind::Live) };
        display_output(options, &head(1), &[of_outcome(name, Outcome::Failed)])
    };
    let text = output(40);
    let summary = text.rsplit_once("────────────").unwrap().1;
    assert!(summary.contains(&format!("\n             {name}\n")), "{text}");
    let command = summary.lines().find(|line| line.contains("$ ")).unwrap();
    assert!(style::text_columns(command) < 40 && command.ends_with('…'), "{text}");
    let details = text.split_once("────────────").unwrap().0;
    assert!(details.contains(&format!("$ ./core --exact {name}\n")), "the whole command: {text}");
    assert!(output(70).contains("a_name_that_is_longer_…"), "{}", output(70));
    assert!(output(80).contains(&format!("  {name}\n")), "{}", output(80));
}

#[test]
fn live_view_is_redrawn_ten_times_a_second() {
    let sink = SharedSink::default();
    let start = Instant::now();
    let mut display = RunDisplay::new(options(DisplayKind::Live), Box::new(sink.clone()));
    display.begin(&head(5000), start);
    for number in 0..5000 {
        let now = start + Duration::from_millis(number);
        show_all(&mut display, &[of_outcome(&format!("t{number}"), Outcome::Failed)], now);
        display.tick(now);
    }
    assert!((45..=51).contains(&sink.writes()), "{}", sink.writes());
}

#[test]
fn status_levels_are_cumulative() {
    use heeler_config::StatusLevel::{All, Fail, None, Pass, Retry, Slow};
    let mut lines = Vec::new();
    for level in [None, Fail, Retry, Slow, Pass, All] {
        let options = DisplayOptions {
            status_level: Some(level),
            slow_after: Duration::from_millis(3),
            ..options(DisplayKind::Plain)
        };
        let changes = [
            of_outcome("a", Outcome::Failed),
            of_outcome("b", Outcome::Flaky),
            passed("c", 4),
            passed("d", 1),
            of_outcome("e", Outcome::Skipped),
        ];
        let text = display_output(options, &head(5), &changes);
        let (before, _) = text.split_once('─').unwrap();
        lines.push(before.lines().filter(|line| line.contains("/5  ")).count());
    }
    assert_eq!(lines, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn long_log_prints_progress_instead_of_passes() {
    let sink = SharedSink::default();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut display = RunDisplay::new(options(DisplayKind::Plain), Box::new(sink.clone()));
    display.begin(&head(1000), start);
    for number in 0..900 {
        let now = start + Duration::from_millis(10 * number);
        show_all(&mut display, &[passed(&format!("t{number}"), 10)], now);
        display.tick(now);
    }
    show_all(&mut display, &[begun("hangs", 2)], at(9));
    for seconds in 10..75 {
        display.tick(at(seconds));
    }
    insta::assert_snapshot!(sink.text(), @"
    Running 1,000 tests of 1 program on 2 workers, 3 filtered out (run 7f0c2a11)
    Running 201/1,000 (20%) in 2.0s, about 7s left: 201 passed
    Running 401/1,000 (40%) in 4.0s, about 5s left: 401 passed
    Running 601/1,000 (60%) in 6.0s, about 3s left: 601 passed
    Running 801/1,000 (80%) in 8.0s, about 1s left: 801 passed
    Running 900/1,000 (90%) in 10s: 900 passed
    Running 900/1,000 (90%) in 40s: 900 passed; longest: hangs (31s)
       SLOW >  1m 00s  hangs  (running in worker 2)
    ");
}

#[test]
fn verdict_is_in_the_last_line() {
    let last = |selected, changes: &[TestEvent]| {
        let text = display_output(options(DisplayKind::Plain), &head(selected), changes);
        text.lines().last().unwrap().to_owned()
    };
    let both = [passed("a", 1), of_outcome("b", Outcome::Skipped)];
    assert_eq!(last(2, &both), "      PASSED 1 test in 7.3s, 1 skipped");
    assert_eq!(last(0, &[]), " NOTHING RAN no test was selected");
    let cancelled = [passed("a", 1), of_outcome("b", Outcome::Cancelled)];
    assert_eq!(last(2, &cancelled), "   CANCELLED 1 of 2 tests did not finish, after 7.3s");
    assert_eq!(last(3, &both), "      FAILED results are missing or duplicated, after 7.3s");
    let (sink, mut summary) = (SharedSink::default(), RunSummary::new(Some(2)));
    count_all(&mut summary, &both);
    let mut display = RunDisplay::new(options(DisplayKind::Plain), Box::new(sink.clone()));
    display.end(&summary, &SummaryExtras { is_cancelled: true, ..end() }).unwrap();
    let text = sink.text();
    let ending = "   CANCELLED after all results: 1 test passed in 7.3s";
    assert_eq!(text.lines().last(), Some(ending), "its exit code is that of a cancelled run");
    let text = display_output(options(DisplayKind::Plain), &head(3), &[&both[..], &[begun("c", 1)]].concat());
    assert!(text.contains("BROKEN 3 tests selected, but 2 have an outcome"), "{text}");
    assert!(text.contains("core::c started but never ended"), "{text}");
}

#[test]
fn colours_mark_label_and_verdict() {
    let options = DisplayOptions { colour: ColourMode::On, ..options(DisplayKind::Plain) };
    let text = display_output(options, &head(2), &results_of_every_kind()[..2]);
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap().replace('\u{1b}', "^");
    assert_eq!(line("1/2"), "^[32;1m        PASS^[0m    0.004s  ^[2m1/2^[0m  ^[1mmath::adds^[0m");
    assert_eq!(line("checking"), "    ^[32mchecking^[0m 1^[0m");
    assert_eq!(line("1 of 2"), "^[31;1m      FAILED^[0m ^[31;1m1 of 2 tests in 7.3s^[0m");
}

#[test]
fn closed_pipe_is_returned_and_stops_writing() {
    struct ClosedPipe(SharedSink);
    impl Write for ClosedPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)?;
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = SharedSink::default();
    let now = Instant::now();
    let mut display = RunDisplay::new(options(DisplayKind::Plain), Box::new(ClosedPipe(sink.clone())));
    display.begin(&head(1), now);
    show_all(&mut display, &[passed("a", 1)], now);
    let error = display.end(&RunSummary::new(Some(1)), &end()).unwrap_err();
    assert_eq!((error.kind(), sink.writes()), (io::ErrorKind::BrokenPipe, 1));
}

#[test]
fn hundred_thousand_tests_are_displayed_in_little_text() {
    const TESTS: usize = 100_000;
    let began = Instant::now();
    for kind in [DisplayKind::Live, DisplayKind::Plain] {
        let sink = SharedSink::default();
        let mut display = RunDisplay::new(options(kind), Box::new(sink.clone()));
        let mut summary = RunSummary::new(Some(TESTS));
        display.begin(&head(TESTS), began);
        for number in 0..TESTS {
            let name = format!("test_{number}");
            let worker = 1 + u32::try_from(number % 8).unwrap();
            let pair = [begun(&name, worker), of_outcome(&name, Outcome::Passed)];
            let now = began + Duration::from_micros(number as u64 * 10);
            show_all(&mut display, &pair, now);
            count_all(&mut summary, &pair);
        }
        display.end(&summary, &end()).unwrap();
        assert!(
            emulate_terminal(&sink.text(), 80).ends_with("PASSED 100,000 tests in 7.3s\n"),
            "{}",
            sink.text()
        );
        assert!(sink.text().len() < 64 * 1024, "{} bytes", sink.text().len());
    }
}
