//! Calls that run as tasks: their handles, and results of ended tasks.

use std::{collections::VecDeque, time::Duration};

use heeler_protocol::mcp::{CallToolResult, TASK_POLL_INTERVAL_MS, Task, TaskStatus};
use tokio::time::Instant;

/// Number of ended tasks whose results are kept, about 16 KiB each. `get_failures` reads older runs from
/// disk.
const KEPT_TASKS: usize = 64;
/// How long the result of an ended task is kept. The time to live of tasks in progress already includes it.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// A call that runs as a task.
#[derive(Debug, Clone)]
pub(super) struct TaskHandle {
    pub(super) id: String,
    created_at: String,
    begun: Instant,
}

impl TaskHandle {
    pub(super) fn new(now: Instant) -> Self {
        Self { id: uuid::Uuid::new_v4().to_string(), created_at: timestamp(), begun: now }
    }

    /// Returns the task's state while it is in progress.
    pub(super) fn working(&self, message: String, now: Instant) -> Task {
        Task { status_message: Some(message), ..self.with_status(TaskStatus::Working, now) }
    }

    fn with_status(&self, status: TaskStatus, now: Instant) -> Task {
        let kept = now.duration_since(self.begun) + KEPT_FOR;
        Task {
            task_id: self.id.clone(),
            status,
            status_message: None,
            created_at: self.created_at.clone(),
            last_updated_at: timestamp(),
            ttl_ms: u64::try_from(kept.as_millis()).unwrap_or(u64::MAX),
            poll_interval_ms: TASK_POLL_INTERVAL_MS,
            result: None,
        }
    }
}

fn timestamp() -> String {
    heeler_run_store::wall_clock().to_string()
}

/// Ended tasks, oldest first.
#[derive(Debug, Default)]
pub(super) struct EndedTasks {
    tasks: VecDeque<(Instant, Task)>,
}

impl EndedTasks {
    /// Keeps the result of a task. A cancelled task has none.
    pub(super) fn add(
        &mut self,
        handle: &TaskHandle,
        is_cancelled: bool,
        result: CallToolResult,
        now: Instant,
    ) {
        let status = if is_cancelled { TaskStatus::Cancelled } else { TaskStatus::Completed };
        let result = (!is_cancelled).then(|| Task::result_of(result));
        self.tasks.push_back((now, Task { result, ..handle.with_status(status, now) }));
        if self.tasks.len() > KEPT_TASKS {
            self.tasks.pop_front();
        }
    }

    pub(super) fn find(&mut self, id: &str, now: Instant) -> Option<&Task> {
        self.tasks.retain(|(ended, _)| now.duration_since(*ended) < KEPT_FOR);
        self.tasks.iter().map(|(_, task)| task).find(|task| task.task_id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_tasks_are_kept_for_their_time_and_bounded_in_number() {
        let start = Instant::now();
        let mut ended = EndedTasks::default();
        let handles: Vec<_> = (0..=KEPT_TASKS).map(|_| TaskHandle::new(start)).collect();
        for (number, handle) in handles.iter().enumerate() {
            let now = start + Duration::from_secs(number as u64);
            ended.add(handle, number == 1, CallToolResult::text(number.to_string()), now);
        }
        let now = start + Duration::from_secs(KEPT_TASKS as u64);
        assert!(ended.find(&handles[0].id, now).is_none(), "there are too many");
        let cancelled = ended.find(&handles[1].id, now).unwrap();
        assert!(cancelled.status == TaskStatus::Cancelled && cancelled.result.is_none());
        let completed = ended.find(&handles[2].id, now).unwrap();
        assert_eq!((completed.status, completed.ttl_ms), (TaskStatus::Completed, 3_602_000));
        assert!(ended.find(&handles[2].id, start + Duration::from_secs(3602)).is_none());
        assert!(ended.find(&handles[3].id, start + Duration::from_secs(3602)).is_some());
        let working = handles[0].working("3 of 4 tests".to_owned(), now);
        assert_eq!(
            (working.status, working.status_message.as_deref()),
            (TaskStatus::Working, Some("3 of 4 tests"))
        );
    }
}
