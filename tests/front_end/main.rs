//! A second protocol on the shared scheduler. Its front end (`lines`) uses only what the server crate offers
//! to every front end. The watchdog and the workers are real.
#![expect(clippy::unwrap_used, reason = "a test that can't go on ends here")]

mod lines;

use std::{collections::BTreeMap, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use heeler_config::{CommandLineSettings, Config, ResolvedSettings};
use heeler_protocol::control::TestProgram;
use heeler_server::{
    discovery::ProgramSource,
    listen::{FrontEnd as _, SessionCommand, SessionEnd, SessionOptions},
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions, SchedulerTask},
};
use lines::LineFrontEnd;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the line protocol, with the server in this process.
struct LineClient {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    session: JoinSet<SessionEnd>,
    commands: mpsc::Sender<SessionCommand>,
    scheduler: SchedulerTask,
}

/// Outcome of each test in a run, by uid.
type Outcomes = BTreeMap<String, String>;

impl LineClient {
    fn start(dir: &Path) -> Self {
        symlink(env!("CARGO_BIN_EXE_heeler-fake"), dir.join("json-lines")).unwrap();
        let config = Config::without_file(dir);
        let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
        let program = TestProgram {
            suite: "fake".to_owned(),
            path: dir.join("json-lines").as_path().into(),
            cwd: dir.into(),
            framework: Some("json-lines".to_owned()),
            ..TestProgram::default()
        };
        let sources = vec![ProgramSource { program, config_suite: None }];
        let options = SessionOptions::new(Arc::new(settings), sources);
        let (handle, scheduler) = SchedulerHandle::start(SchedulerOptions {
            program: env!("CARGO_BIN_EXE_heeler").into(),
            slots: 2,
            machine: None,
            worker_stdout: WorkerStdout::Discarded,
            has_concurrent_runs: true,
            starts_workers_early: false,
            upcoming_run: None,
        });
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (commands, receiver) = mpsc::channel(4);
        let mut session = JoinSet::new();
        session.spawn(LineFrontEnd.serve(Box::new(theirs), options, handle, receiver));
        let (read, writer) = tokio::io::split(ours);
        Self { lines: BufReader::new(read).lines(), writer, session, commands, scheduler }
    }

    async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn next_line(&mut self) -> String {
        timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap().unwrap()
    }

    /// Reads messages until the end of a run. Each test must end once, and not begin after its end.
    async fn outcomes(&mut self, run: &str) -> Outcomes {
        let mut outcomes = Outcomes::new();
        loop {
            let line = self.next_line().await;
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().unwrap_or_default();
            match (word(), word()) {
                ("log", _) => {}
                ("begin", of) => {
                    assert_eq!(of, run);
                    let uid = word();
                    assert!(!outcomes.contains_key(uid), "it begins after its end: {line}");
                }
                ("end", of) => {
                    assert_eq!(of, run);
                    let uid = word().to_owned();
                    let outcome = line.split(&format!("{uid} ")).nth(1).unwrap().to_owned();
                    assert_eq!(outcomes.insert(uid, outcome), None, "{line}");
                }
                ("over", of) => {
                    assert_eq!((of, word()), (run, outcomes.len().to_string().as_str()));
                    return outcomes;
                }
                _ => panic!("{line}"),
            }
        }
    }

    async fn exit(mut self) {
        self.commands.send(SessionCommand::Exit).await.unwrap();
        let end = timeout(PATIENCE, self.session.join_next()).await.unwrap().unwrap();
        assert_eq!(end.unwrap(), SessionEnd::Exit);
        self.scheduler.join(PATIENCE).await;
    }
}

#[tokio::test]
async fn second_protocol_gets_typed_results_and_the_end_of_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = LineClient::start(dir.path());
    client.send("run first").await;
    let outcomes = client.outcomes("first").await;
    assert_eq!(outcomes.len(), 64);
    for (uid, outcome) in &outcomes {
        let expected = if uid == "fake::t05" { "failed actual 1 expected 2" } else { "passed" };
        assert_eq!(outcome, expected, "{uid}");
    }
    // An unknown uid gets a result, too, although no worker sends it.
    client.send("run second fake::t01 fake::none").await;
    let outcomes = client.outcomes("second").await;
    assert_eq!(outcomes.keys().map(String::as_str).collect::<Vec<_>>(), ["fake::none", "fake::t01"]);
    assert_eq!(outcomes["fake::t01"], "passed");
    assert!(outcomes["fake::none"].starts_with("not"), "{outcomes:?}");
    client.exit().await;
}
