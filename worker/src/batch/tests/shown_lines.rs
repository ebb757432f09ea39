//! Live test output.

use super::*;
use heeler_protocol::control::{OutputDisplay, OutputForm};

fn shown_by(display: OutputDisplay) -> BatchHarness {
    BatchHarness::with_lease(WorkerLease { output_display: display, ..lease(3) })
}

#[test]
fn plain_output_is_shown_as_it_comes_and_tests_begin_on_lines_of_their_own() {
    let mut bench = shown_by(OutputDisplay::Shown(OutputForm::default()));
    bench.chunk(1, [output("[framework] runs\n\nset-up\n"), begun(0), output("half ")], "");
    bench.chunk(2, [output("a line")], "");
    bench.chunk(3, [passed(0), begun(1)], "");
    bench.chunk(4, [passed(1)], "complaint\n");
    bench.finish(5, exit(0), COMPLETE);
    assert_eq!(
        bench.batch.take_shown().text(),
        "set-up\n!       START  A.t0\nhalf a line\n!       START  A.t1\ncomplaint\n"
    );
}

#[test]
fn shown_lines_have_the_name_of_their_writer() {
    let mut bench = shown_by(OutputDisplay::Shown(OutputForm { has_prefix: true, has_suite: true }));
    bench.chunk(1, [output("[framework] runs\n\nset-up\n"), begun(0), output("one\ntwo")], "");
    bench.chunk(2, [output(" and more\nopen")], "error\n");
    bench.chunk(3, [passed(0)], "");
    bench.finish(5, signal(9), INCOMPLETE);
    assert_eq!(
        bench.batch.take_shown().text(),
        "suite | set-up\n!       START  suite A.t0\nsuite A.t0 | one\n!suite A.t0 | error\n\
         suite A.t0 | two and more\nsuite A.t0 | open\n"
    );
}

#[test]
fn nothing_is_shown_unasked() {
    let mut bench = shown_by(OutputDisplay::Hidden);
    bench.chunk(1, [begun(0), output("one\n"), passed(0)], "two\n");
    assert!(bench.batch.take_shown().is_empty());
}
