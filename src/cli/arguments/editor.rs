//! Arguments that an editor passes when it starts Heeler.

use clap::Args;

use super::ServedArguments;

/// Arguments of the hidden command to which `heeler [PROGRAM…] --server …` is translated.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct EditorArguments {
    #[command(flatten)]
    pub served: ServedArguments,
    /// Host on which the client listens.
    #[arg(long, default_value = "localhost")]
    pub client_host: String,
    /// Port on which the client listens.
    #[arg(long, required = true)]
    pub client_port: u16,
    /// Exit when this process has exited.
    #[arg(long, value_name = "PID")]
    pub exit_on_process_exit: Option<u32>,
    /// Have the client attach its debugger to each test.
    #[arg(long = "debug")]
    pub is_debug: bool,
    /// Accepted for compatibility; no banner is printed anyway.
    #[arg(long = "no-banner")]
    pub is_banner_off: bool,
    /// Print no colours.
    #[arg(long = "no-ansi")]
    pub is_ansi_off: bool,
    /// Enable logging.
    #[arg(long = "diagnostic")]
    pub is_diagnostic: bool,
    /// Log level: trace, debug, information, warning, error or critical.
    #[arg(long, value_name = "LEVEL")]
    pub diagnostic_verbosity: Option<String>,
    /// Unsupported options, for the log.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub ignored: Vec<String>,
}
