//! The extension for tasks, `io.modelcontextprotocol/tasks`: a slow call immediately returns a handle, and
//! the client polls the task until it has the result.

use serde::{Deserialize, Serialize};

use super::{CallToolResult, Era, EraResult, ResultCaching};

/// Name of the extension in the capabilities of both sides.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Poll interval that clients should use.
pub const TASK_POLL_INTERVAL_MS: u64 = 1_000;

/// State of a task. A failed call is `completed`, with an error as its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    Working,
    Completed,
    Cancelled,
}

/// A task, with the result of its call after completion.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_id: String,
    pub status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// Time in ISO 8601.
    pub created_at: String,
    pub last_updated_at: String,
    /// How long the task is kept after its creation.
    pub ttl_ms: u64,
    pub poll_interval_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<EraResult<CallToolResult>>,
}

impl Task {
    /// Returns a call's result in the form used in a task.
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

/// Parameters of methods about a task.
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
