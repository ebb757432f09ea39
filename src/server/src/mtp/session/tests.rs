//! Tests of a session with a client in memory.

use std::{sync::Arc, time::Duration};

use heeler_config::{CommandLineSettings, Config, ResolvedSettings};
use tokio::{io::AsyncWriteExt as _, sync::mpsc, time::timeout};

use super::ServerSession;
use crate::listen::{SessionEnd, SessionOptions};
use crate::pool::WorkerStdout;
use crate::scheduler::{SchedulerHandle, SchedulerOptions};

const PATIENCE: Duration = Duration::from_secs(60);

fn options(dir: &std::path::Path) -> SessionOptions {
    let text = "[profile.default]\nclient-stall-timeout = \"100ms\"\n";
    let config = Config::parse(&dir.join("heeler.toml"), text).unwrap();
    let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
    SessionOptions::new(Arc::new(settings), Vec::new())
}

fn scheduler() -> SchedulerHandle {
    let options = SchedulerOptions {
        program: "/nowhere".into(),
        slots: 1,
        machine: None,
        worker_stdout: WorkerStdout::Discarded,
        has_concurrent_runs: true,
        starts_workers_early: false,
        upcoming_run: None,
    };
    SchedulerHandle::start(options).0
}

/// A request that is answered with an error.
fn request(id: u32) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"unknown"}}"#);
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn client_that_reads_nothing_is_disconnected() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ours, theirs) = tokio::io::duplex(32);
    let (_commands, receiver) = mpsc::channel(1);
    let session = ServerSession::new(Box::new(theirs), options(dir.path()), scheduler(), receiver);
    let client = async {
        ours.write_all(&request(1)).await.unwrap();
        // The answer does not fit into the connection and stays queued.
        ours
    };
    let (end, _ours) = timeout(PATIENCE, async { tokio::join!(session.serve(), client) }).await.unwrap();
    assert_eq!(end, SessionEnd::Disconnected);
}
