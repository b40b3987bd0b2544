//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files of this process as far as possible without privileges, and returns it; `u64::MAX` if
/// there is no limit. If it cannot be raised it stays unchanged.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.unwrap_or(u64::MAX)
}

/// The most files that a process keeps open which could be opened anew on each use: an eighth of its limit, but at least 512 and at
/// most 16,384.
pub const fn most_kept(limit: u64) -> u64 {
    match limit / 8 {
        part if part < 512 => 512,
        part if part > 16_384 => 16_384,
        part => part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_limit_is_kept_open() {
        assert_eq!([1024, 4096, 65_536, 1 << 20, u64::MAX].map(most_kept), [512, 512, 8192, 16_384, 16_384]);
    }

    #[test]
    fn the_limit_is_that_of_the_kernel_afterwards() {
        let limit = raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), limit);
    }
}
