//! Other users of the machine, and the environment of tests.

mod other_users;
mod test_environment;
