//! Memory of this process, as reported by its allocator.

/// Returns the bytes currently allocated by all threads, including the allocator's overhead; `None` if the
/// allocator does not report them.
#[must_use]
pub fn allocated_bytes() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2 has no preconditions, and returns plain numbers.
        let found = unsafe { libc::mallinfo2() };
        // Large allocations are outside the arenas.
        Some(found.uordblks + found.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns freed memory to the system. Call this after work with a high memory peak, so that later work does
/// not add to it.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim has no preconditions, and does not move allocated memory.
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
