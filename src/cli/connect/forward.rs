//! `heeler connect forward`: the process that the judge starts as its client. Forwards the judge's requests
//! to the Heeler process that started the judge, and the answers back.

use std::{path::Path, time::Duration};

use heeler_server::listen;
use heeler_transport::local;
use tokio::{io::AsyncWriteExt as _, time::Instant};

use crate::cli::exit::{CliExitCode, CommandError};

/// Timeout for connecting; short, because the Heeler process listens before it starts the judge.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Forwards requests and answers until the answers end.
///
/// Cancel safe: no, because bytes in transit would be lost.
pub(super) async fn forward(socket: &Path) -> Result<CliExitCode, CommandError> {
    let judge = listen::standard_streams().await.map_err(CommandError::Listen)?;
    let connected = local::connect(socket, Instant::now() + CONNECT_LIMIT).await;
    let runner = connected.map_err(CommandError::Forward)?;
    let (mut from_judge, mut to_judge) = tokio::io::split(judge);
    let (mut answers, mut requests) = runner.into_split();
    // The judge needs nothing after the answers end, even if it is still writing.
    tokio::select! {
        biased;
        _ = async {
            // If one side is gone, the other side detects the end of this process.
            let _gone = tokio::io::copy(&mut answers, &mut to_judge).await;
            let _gone = to_judge.flush().await;
        } => {}
        () = async {
            let _gone = tokio::io::copy(&mut from_judge, &mut requests).await;
            let _gone = requests.shutdown().await;
            std::future::pending::<()>().await;
        } => {}
    }
    // The judge treats any other exit code as a failed run.
    Ok(CliExitCode::Success)
}
