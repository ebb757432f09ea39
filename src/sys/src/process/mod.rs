//! Processes: ids and signals, exits, process trees, and the attributes of this process.

mod core_file;
mod exit_status;
mod id;
mod lifeline;
mod process_tree;
mod reserved_fds;
mod this_process;
mod tree_memory;

pub use core_file::core_file;
pub use exit_status::{ExitStatus, exit_text, has_children, reap_any, reap_child};
pub use id::{Pid, Signal};
pub use lifeline::{Lifeline, bind_to};
pub use process_tree::{
    ProcessStat, TreeSnapshot, children, command_line, descendants, execute_same_program, has_had_children,
    is_no_such_process, is_older_descendant, kill_child, kill_group, oom_kill_count, pidfd_open,
    pidfd_signal, signal_child, signal_child_of, signal_descendants, start_time_resolution,
    start_time_since_boot, stat, time_since_boot, working_directory,
};
pub use this_process::{
    ChildExits, become_subreaper, clear_parent_death_signal, effective_uid, exit_immediately,
    ignore_file_size_signal, ignore_terminal_signals, limit_memory, own_program_path, set_name,
    shared_program_path, wake_on_parent_exit,
};
pub use tree_memory::memory_above;

pub(crate) use exit_status::{WaitResult, wait_for, wait_for_any, wait4};
pub(crate) use process_tree::shown_command;
pub(crate) use this_process::kill_on_parent_exit;
