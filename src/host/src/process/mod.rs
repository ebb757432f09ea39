//! Processes: ids and signals, exits, process trees, and the attributes of this process.

mod core_file;
mod end;
mod family;
mod id;
mod own;
mod reserve;
mod tether;

pub use core_file::core_file;
pub use end::{RawExit, has_children, reap_any, reap_child};
pub use family::{
    Stat, children, command_line, descendants, kill_child, kill_group, memory_kills, pidfd_open,
    resident_bytes, signal_descendants, since_boot, start_tick, started_after_boot, stat,
};
pub use id::{Pid, Signal};
pub use own::{
    ChildEnds, become_subreaper, die_with_parent, effective_uid, ignore_terminal_signals, leave_at_once,
    named_image, outlive_parent, own_image, set_name, survive_full_files, wake_with_parent,
};
pub use tether::{Tether, tie};

pub(crate) use end::wait_for;
pub(crate) use family::pidfd_signal;
