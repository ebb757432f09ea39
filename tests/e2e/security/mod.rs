//! Other users of the machine, other users' runs, and the environment of tests.

mod copied_runs;
mod other_users;
mod test_environment;
