//! The dialogue with an interpreter that is forked for tests after it has loaded pytest or collected the
//! tests.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_pieces_and_anything_else_is_left_out() {
        let text = concat!(
            "{\"k\":\"hello\",\"v\":1,\"fence\":\"a\"}\n{\"k\":\"warm\"}\nno answer\n",
            "{\"k\":\"forked\",\"pid\":7}\n{\"k\":\"forked\",\"pid\":-99999999999}\n",
            "{\"k\":\"refused\",\"reason\":\"b\"}\n{\"k\":\"cold\",\"reason\":\"c\"}\n"
        );
        let mut interpreter = WarmInterpreter::default();
        let answers: Vec<_> =
            text.as_bytes().chunks(5).flat_map(|chunk| interpreter.on_channel(chunk)).collect();
        let refused = |reason: &str| WarmReport::Refused(reason.to_owned());
        let cold = WarmReport::Unforkable("c".to_owned());
        let expected = [WarmReport::Ready, WarmReport::Forked(7), refused("no id"), refused("b"), cold];
        assert_eq!(answers, expected);
    }

    #[test]
    fn request_for_a_fork_has_text_only() {
        let interpreter = WarmInterpreter::default();
        let guard = ["/h".into(), "__guard".into()];
        let request = |value: &[u8]| {
            interpreter
                .fork_request(&guard, &[("A".into(), Some(OsText::from(value.to_vec()))), ("B".into(), None)])
        };
        let expected =
            "{\"env\":[[\"A\",\"1\"],[\"B\",null]],\"guard\":[\"/h\",\"__guard\"],\"k\":\"fork\"}\n";
        assert_eq!(String::from_utf8(request(b"1").unwrap()).unwrap(), expected);
        assert_eq!(request(b"\xff"), None);
    }
}
