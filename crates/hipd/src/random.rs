//! The kernel's randomness (`getrandom(2)`).

use std::convert::Infallible;

use rand_core::{TryCryptoRng, TryRng};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The kernel's generator, which is fit for keys.
#[derive(Clone, Copy, Debug)]
pub struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        fill(&mut bytes);
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        fill(&mut bytes);
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        fill(out);
        Ok(())
    }
}

impl TryCryptoRng for SystemRandom {}

/// # Panics
/// If the kernel has no such system call: Linux has it since 3.17; keys must not be made without it.
fn fill(mut out: &mut [u8]) {
    while !out.is_empty() {
        match getrandom(&mut *out, GetRandomFlags::empty()) {
            Ok(filled) => out = &mut out[filled..],
            Err(Errno::INTR) => {}
            Err(errno) => panic!("getrandom(2): {errno}"),
        }
    }
}
