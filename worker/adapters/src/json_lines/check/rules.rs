//! The rules for programs that report as JSON lines. Each rule belongs to a section of the specification.

/// Defines the rules: name, section of the specification, and text.
macro_rules! check_rules {
    ($($name:ident = $id:literal, $section:literal, $text:literal;)+) => {
        /// A rule of the specification.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum CheckRule {
            $(#[doc = $text] $name,)+
        }

        impl CheckRule {
            /// All rules, in reporting order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the name of the rule, for messages and programs.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)+ }
            }

            /// Returns the anchor of the rule's section in the specification.
            #[must_use]
            pub fn section(self) -> &'static str {
                match self { $(Self::$name => $section,)+ }
            }

            /// Returns the text of the rule.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

check_rules! {
    Start = "start", "start", "the process answers its first request";
    TwoProcesses = "two-processes", "start", "two processes work at the same time";
    Carrier = "carrier", "carriers", "reports are written to the channel that HEELER_CHANNEL names";
    AtOnce = "at-once", "lines", "reports are flushed at once, not when the process exits";
    Json = "json", "lines", "each report is a JSON object on its own line";
    LineLength = "line-length", "lines", "no report is longer than 1 MiB";
    JoinedRequests = "joined-requests", "lines", "requests that arrive together are each answered";
    CutRequests = "cut-requests", "lines", "a request that arrives in pieces is answered";
    LongRequests = "long-requests", "lines", "a request of 256 KiB is answered";
    SlowReader = "slow-reader", "lines", "no report is lost if Heeler reads slowly";
    Hello = "hello", "versions", "\"hello\" is the first report, sent once, with an offered version";
    LaterVersion = "later-version", "versions", "a request with a newer version is answered in a supported one";
    UnknownMembers = "unknown-members", "unknown-words", "unknown members of requests are ignored";
    UnknownRequests = "unknown-requests", "unknown-words", "unknown requests are ignored";
    ReportsOnRequest = "reports-on-request", "order", "reports are sent only for the open request";
    Listed = "listed", "listing", "a listing ends with one \"listed\"";
    TestMembers = "test-members", "listing", "each listed test has an id and members of the right types";
    UniqueIds = "unique-ids", "listing", "no id is listed twice";
    StableListing = "stable-listing", "listing", "each process lists the same tests in the same order";
    BeginEnd = "begin-end", "running", "each test begins once and then ends once";
    PartInTest = "part-in-test", "running", "parts, output and files belong to a running test";
    ReportMembers = "report-members", "results", "reports of a run have members of the right types";
    AllTests = "all-tests", "running", "every requested test is reported before \"done\"";
    Done = "done", "running", "a run is answered by one \"done\" after all its tests have ended";
    Selection = "selection", "running", "only requested tests run, and \"i\" is the index in the request";
    RequestOrder = "request-order", "running", "\"i\" follows the order of the request, not of the listing";
    NoTests = "no-tests", "running", "a request without tests is answered by \"done\"";
    NextRequest = "next-request", "running", "a process answers several requests, one after the other";
    UnknownTest = "unknown-test", "running", "an unlisted id fails or is ignored, and the other tests run";
    Fence = "fence", "outputs", "fences are written to both outputs, counted from 1";
    Stop = "stop", "end", "after \"stop\", the process exits with code 0";
    EndOfInput = "end-of-input", "end", "the process exits at the end of its input";
}

/// How a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    /// The broken rule.
    pub rule: CheckRule,
    /// Last message sent to the process before the violation.
    pub sent: String,
    /// The message that was received.
    pub came: String,
    /// The expected message.
    pub expected: String,
}

/// Result of the check for a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleFinding {
    /// The rule was tested and is followed.
    Kept,
    /// The rule is broken.
    Broken {
        /// The first violation.
        first: BrokenRule,
        /// Number of conversations that broke the rule.
        times: usize,
    },
    /// The rule was not tested.
    NotTried {
        /// Reason, for the report.
        reason: String,
    },
}

/// A rule and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleResult {
    /// The rule.
    pub rule: CheckRule,
    /// Result of the check.
    pub finding: RuleFinding,
}
