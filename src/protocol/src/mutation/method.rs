//! Names of requests and notifications.

/// Requests of 0.0.1-alpha.1.
pub const INITIALIZE: &str = "initialize";
pub const INSTRUMENT: &str = "instrument";
pub const MUTATE: &str = "mutate";

/// Notification of the server in 0.0.1-alpha.1.
pub const PROGRESS: &str = "progress";

/// Requests of 0.4.
pub const CONFIGURE: &str = "configure";
pub const DISCOVER: &str = "discover";
pub const MUTATION_TEST: &str = "mutationTest";

/// Notification of the server in 0.4.
pub const REPORT_PROGRESS: &str = "reportMutationTestProgress";

/// Notification of the client in both versions.
pub const CANCEL: &str = "$/cancelRequest";
