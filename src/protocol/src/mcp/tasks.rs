//! The extension for tasks, `io.modelcontextprotocol/tasks`: a call that takes long is answered with a handle
//! at once, and the client asks for the state of the task until it has the result.

use serde::{Deserialize, Serialize};

use super::{CallToolResult, Era, EraResult, ResultCaching};

/// Name of the extension in the capabilities of both sides.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Time between two questions for the state of a task that clients should keep.
pub const TASK_POLL_INTERVAL_MS: u64 = 1_000;

/// State of a task. A call that fails is `completed`, with a result that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    Working,
    Completed,
    Cancelled,
}

/// A task and, once it is completed, the result of its call.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_id: String,
    pub status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// In ISO 8601.
    pub created_at: String,
    pub last_updated_at: String,
    /// Time from the creation on for which the task is kept.
    pub ttl_ms: u64,
    pub poll_interval_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<EraResult<CallToolResult>>,
}

impl Task {
    /// Returns the result of a call as it is in a task.
    #[must_use]
    pub fn result_of(result: CallToolResult) -> EraResult<CallToolResult> {
        EraResult::new(result, Era::Modern, ResultCaching::Volatile)
    }
}

/// Result of a call that has become a task.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateTaskResult {
    result_type: &'static str,
    #[serde(flatten)]
    task: Task,
}

impl CreateTaskResult {
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { result_type: "task", task }
    }
}

/// Parameters of the methods about a task.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskParams {
    pub task_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(status: TaskStatus, result: Option<CallToolResult>) -> Task {
        Task {
            task_id: "t".to_owned(),
            status,
            status_message: None,
            created_at: "2026-07-28T00:00:00Z".to_owned(),
            last_updated_at: "2026-07-28T00:00:01Z".to_owned(),
            ttl_ms: 5,
            poll_interval_ms: TASK_POLL_INTERVAL_MS,
            result: result.map(Task::result_of),
        }
    }

    #[test]
    fn only_the_answer_to_a_call_is_marked_as_a_task() {
        let created = serde_json::to_value(CreateTaskResult::new(task(TaskStatus::Working, None))).unwrap();
        assert_eq!((&created["resultType"], &created["status"]), (&"task".into(), &"working".into()));
        assert!(created.get("result").is_none() && created["ttlMs"] == 5);
        let result = CallToolResult::text("x".to_owned());
        let ended =
            EraResult::new(task(TaskStatus::Completed, Some(result)), Era::Modern, ResultCaching::Volatile);
        let ended = serde_json::to_value(ended).unwrap();
        assert_eq!((&ended["resultType"], &ended["status"]), (&"complete".into(), &"completed".into()));
        assert_eq!(ended["result"]["content"][0]["text"], "x");
    }
}
