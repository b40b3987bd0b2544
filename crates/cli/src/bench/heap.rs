//! How many bytes of the heap are in use, from the C library's own accounts: the program needs no allocator that counts.

/// Bytes in use, including the allocator's overhead for each block. Walks the allocator's lists, so that it is not for inner loops.
#[cfg(target_env = "gnu")]
pub(super) fn in_use() -> u64 {
    // SAFETY: mallinfo2(3) takes nothing and returns a value.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Other C libraries keep no accounts: the resident pages of the process, which freed blocks may keep.
#[cfg(not(target_env = "gnu"))]
pub(super) fn in_use() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    resident.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: The benchmark's figure of memory in use follows allocations.
    #[test]
    fn allocations_are_counted() {
        let before = in_use();
        // Other tests allocate and free meanwhile, far less than this.
        let block = std::hint::black_box(vec![1_u8; 256 << 20]);
        let after = in_use();
        assert!((7 << 25..9 << 25).contains(&(after - before)), "{before} {after}");
        drop(block);
        assert!(in_use() < before + (1 << 25));
    }
}
