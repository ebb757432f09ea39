//! Other users of the machine, runs of others, and the environment of tests.

mod copied_runs;
mod other_users;
mod test_environment;
