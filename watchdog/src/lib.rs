//! Heeler's watchdog: ancestor of all workers, guards of test processes, finisher of runs.
