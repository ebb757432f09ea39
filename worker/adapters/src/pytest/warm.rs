//! The dialogue with an interpreter that is forked for tests when it has loaded pytest, or has collected them.

use heeler_protocol::control::{ForkPoint, OsText};

use crate::{
    WarmDialogue, WarmReport,
    json_reports::{lines::ReportLineReader, message},
};

#[derive(Default)]
pub(super) struct WarmInterpreter {
    lines: ReportLineReader,
}

impl WarmDialogue for WarmInterpreter {
    fn opening_request(&self, point: ForkPoint) -> Vec<u8> {
        message::warm(point)
    }

    fn fork_request(&self, guard: &[OsText], environment: &[(OsText, Option<OsText>)]) -> Option<Vec<u8>> {
        message::fork(guard, environment)
    }

    fn on_channel(&mut self, chunk: &[u8]) -> Vec<WarmReport> {
        let reports = self.lines.read(chunk).into_iter().flatten();
        let reason = |report: &message::ReportLine| report.text("reason").unwrap_or_default();
        let answers = reports.filter_map(|report| match report.kind() {
            "warm" => Some(WarmReport::Ready),
            "cold" => Some(WarmReport::Unforkable(reason(&report))),
            "forked" => {
                let pid = report.member("pid").as_i64().and_then(|pid| i32::try_from(pid).ok());
                Some(pid.map_or_else(|| WarmReport::Refused("no id".to_owned()), WarmReport::Forked))
            }
            "refused" => Some(WarmReport::Refused(reason(&report))),
            _ => None,
        });
        answers.collect()
    }

    fn closing_request(&self) -> Vec<u8> {
        message::stop()
    }
}
