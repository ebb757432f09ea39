//! The operating system, as Heeler uses it: processes, groups, pidfds, signals, run directories.
