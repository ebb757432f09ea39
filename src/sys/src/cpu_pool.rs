//! One pool of threads in this process for work that consists of many independent pieces, such as the journals
//! of a run. It is built at its first use, so that a process which never has such work stays as it is: a
//! process that forks without an exec must stay single-threaded and may not use it.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

/// Maximum number of threads: what is mapped here reads files too, which more threads do not make faster.
const MAX_THREADS: usize = 8;

/// Calls `work` for every item, on several cores where there are some, and returns the results in the order of
/// the items. Blocks until all are done, so it must not be called on a thread that runs asynchronous tasks of
/// others. May be called within `work`.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
    match pool().filter(|_| items.len() > 1) {
        Some(pool) => pool.install(|| items.into_par_iter().map(work).collect()),
        None => items.into_iter().map(work).collect(),
    }
}

/// Returns the number of threads: half of the cores are left to a run that is in progress.
fn thread_count(cores: usize) -> usize {
    cores.div_ceil(2).clamp(2, MAX_THREADS).min(cores)
}

/// Returns the pool; `None` on a single core, and where no threads can be started. The variable that all users
/// of rayon know sets the number of threads.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let build = || {
        let wished = std::env::var("RAYON_NUM_THREADS").ok().and_then(|number| number.parse().ok());
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = wished.unwrap_or_else(|| thread_count(cores())).min(MAX_THREADS);
        let builder =
            ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("heeler-cpu-{n}"));
        (threads > 1).then(|| builder.build().ok()).flatten()
    };
    POOL.get_or_init(build).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let squares = map((0..10_000_u64).collect(), |number| number * number);
        assert!(squares.iter().zip(0..).all(|(square, number)| *square == number * number));
        assert_eq!(map(Vec::<u8>::new(), |one| one), []);
    }

    #[test]
    fn work_may_map_again() {
        let sums =
            map(vec![10_u32, 20, 30], |count| map((0..count).collect(), |one| one).iter().sum::<u32>());
        assert_eq!(sums, [45, 190, 435]);
    }

    #[test]
    fn half_of_the_cores_and_at_least_two_threads_are_used() {
        assert_eq!([1, 2, 3, 8, 64].map(thread_count), [1, 2, 2, 4, 8]);
    }
}
