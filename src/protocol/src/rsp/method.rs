//! Names of requests and notifications.

/// Requests of the client that Heeler fulfils.
pub const REGISTER: &str = "server/registerClientCapabilities";
pub const SERVER_TYPES: &str = "server/getServerTypes";
pub const SERVER_HANDLES: &str = "server/getServerHandles";
pub const SERVER_STATE: &str = "server/getServerState";
pub const LAUNCH_MODES: &str = "server/getLaunchModes";
pub const OPTIONAL_LAUNCH_ATTRIBUTES: &str = "server/getOptionalLaunchAttributes";
pub const REQUIRED_LAUNCH_ATTRIBUTES: &str = "server/getRequiredLaunchAttributes";
pub const OPTIONAL_ATTRIBUTES: &str = "server/getOptionalAttributes";
pub const REQUIRED_ATTRIBUTES: &str = "server/getRequiredAttributes";
pub const START: &str = "server/startServerAsync";
pub const STOP: &str = "server/stopServerAsync";
pub const JOBS: &str = "server/getJobs";
pub const CANCEL_JOB: &str = "server/cancelJob";

/// Requests that get an empty result.
pub const DOWNLOADABLE_RUNTIMES: &str = "server/listDownloadableRuntimes";
pub const DEPLOYABLES: &str = "server/getDeployables";
pub const SERVER_ACTIONS: &str = "server/listServerActions";
pub const DISCOVERY_PATHS: &str = "server/getDiscoveryPaths";
pub const FIND_SERVER_BEANS: &str = "server/findServerBeans";

/// Requests that Heeler rejects with a status.
pub const CREATE_SERVER: &str = "server/createServer";
pub const CREATE_SERVER_WORKFLOW: &str = "server/createServerWorkflow";
pub const DOWNLOAD_RUNTIME: &str = "server/downloadRuntime";
pub const EXECUTE_ACTION: &str = "server/executeServerAction";
pub const SERVER_AS_JSON: &str = "server/getServerAsJson";
pub const UPDATE_SERVER: &str = "server/updateServer";
pub const LAUNCH_COMMAND: &str = "server/getLaunchCommand";
pub const DEPLOYMENT_OPTIONS: &str = "server/listDeploymentOptions";

/// Requests that Heeler rejects, and whose result is the status itself.
pub const REFUSED_WITH_STATUS: [&str; 9] = [
    "server/addDeployable",
    "server/addDiscoveryPath",
    "server/deleteServer",
    "server/publish",
    "server/publishAsync",
    "server/removeDeployable",
    "server/removeDiscoveryPath",
    "server/serverStartedByClient",
    "server/serverStartingByClient",
];

/// Notifications of the client.
pub const SHUTDOWN: &str = "server/shutdown";
pub const DISCONNECT: &str = "server/disconnectClient";

/// Notification of either side.
pub const CANCEL: &str = "$/cancelRequest";

/// Notifications of the server.
pub const STATE_CHANGED: &str = "client/serverStateChanged";
pub const PROCESS_CREATED: &str = "client/serverProcessCreated";
pub const PROCESS_TERMINATED: &str = "client/serverProcessTerminated";
pub const OUTPUT_APPENDED: &str = "client/serverProcessOutputAppended";
pub const JOB_ADDED: &str = "client/jobAdded";
pub const JOB_CHANGED: &str = "client/jobChanged";
pub const JOB_REMOVED: &str = "client/jobRemoved";
