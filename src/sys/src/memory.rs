//! The memory of this process, as its allocator sees it.

/// Returns the bytes that are allocated now, by all threads, as the allocator has them: with what it adds to
/// each piece. `None` where it does not say.
#[must_use]
pub fn allocated_bytes() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no preconditions, and returns plain numbers.
        let found = unsafe { libc::mallinfo2() };
        // Large pieces are outside of its arenas.
        Some(found.uordblks + found.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns memory to the system that was freed: after work that needed much of it for a moment, so that what
/// follows does not come on top.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no preconditions; what is allocated stays where it is.
        let _anything = unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_bytes_are_those_of_this_process() {
        let before = allocated_bytes().expect("the tests run with glibc");
        let bytes = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(allocated_bytes().unwrap() >= before + (60 << 20));
        drop(bytes);
        return_freed_memory();
        assert!(allocated_bytes().unwrap() < before + (60 << 20));
    }
}
