//! One thread pool in this process for work with many independent pieces, such as the journals of a run. The
//! pool is built at its first use. A process that forks without exec, such as the fork server, must stay
//! single-threaded and must not use it. A process that traces others may use it, because only the tracing
//! thread makes ptrace requests.

use std::sync::{Mutex, OnceLock, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

/// Maximum number of threads. The work also reads files, which more threads would not speed up.
const MAX_THREADS: usize = 8;

/// Calls `work` for every item, on several cores if available, and returns the results in item order. Blocks
/// until all are done, so do not call it on a thread that runs other asynchronous tasks. May be called within
/// `work`.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
    match pool().filter(|_| items.len() > 1) {
        Some(pool) => pool.install(|| items.into_par_iter().map(work).collect()),
        None => items.into_iter().map(work).collect(),
    }
}

/// Like [`map`], for work during a run, whose tests need the cores more. Uses only idle cores, or only the
/// calling thread if at most one core is idle. Items are taken in order, so put the longest first.
pub fn map_on_idle_cores<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
    let threads = idle_cores().min(items.len());
    let Some(pool) = (threads > 1).then(pool).flatten() else { return items.into_iter().map(work).collect() };
    let queue = Mutex::new(items.into_iter().enumerate());
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = |_| {
        let results = std::iter::from_fn(take).map(|(place, item)| (place, work(item)));
        results.collect::<Vec<_>>()
    };
    let mut results: Vec<_> = pool.install(|| (0..threads).into_par_iter().flat_map_iter(work_off).collect());
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Returns the number of cores that no other thread is using; 1 if unknown. `RAYON_NUM_THREADS` takes
/// precedence.
fn idle_cores() -> usize {
    if let Some(threads) = wished_threads() {
        return threads;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    running_threads(&text).map_or(1, |running| (cores + 1).saturating_sub(running).clamp(1, cores))
}

/// Returns the number of running or runnable threads, from `/proc/loadavg`.
fn running_threads(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// Returns the number of threads. Half of the cores are left to a run in progress.
fn thread_count(cores: usize) -> usize {
    cores.div_ceil(2).clamp(2, MAX_THREADS).min(cores)
}

/// Returns the pool; `None` on a single core, or if no threads can be started. `RAYON_NUM_THREADS` sets the
/// number of threads.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let build = || {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = wished_threads().unwrap_or_else(|| thread_count(cores())).min(MAX_THREADS);
        let builder =
            ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("heeler-cpu-{n}"));
        (threads > 1).then(|| builder.build().ok()).flatten()
    };
    POOL.get_or_init(build).as_ref()
}

fn wished_threads() -> Option<usize> {
    std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok()
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
    fn results_on_idle_cores_are_in_the_order_of_the_items() {
        let squares = map_on_idle_cores((0..1000_u64).collect(), |number| number * number);
        assert!(
            squares.len() == 1000
                && squares.iter().zip(0..).all(|(square, number)| *square == number * number)
        );
        assert_eq!(map_on_idle_cores(Vec::<u8>::new(), |one| one), []);
        assert_eq!(running_threads("0.50 0.40 0.30 3/214 4711\n"), Some(3));
        assert_eq!(running_threads(""), None);
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
