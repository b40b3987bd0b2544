//! Reproducible randomness for simulated hosts and tests.

use core::convert::Infallible;

use holdover_base::Rng;
use rand_core::{TryCryptoRng, TryRng};

use crate::host::ForkableRng;

/// A generator whose output follows from its seed. The state machines take a [`CryptoRng`](rand_core::CryptoRng), so this
/// claims to be one, but the seed reveals every key: for simulated hosts and tests only.
#[derive(Clone, Debug)]
pub struct PredictableRng(Rng);

impl PredictableRng {
    /// From a generator of the simulation.
    pub fn new(rng: Rng) -> Self {
        Self(rng)
    }
}

impl TryRng for PredictableRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

impl TryCryptoRng for PredictableRng {}

impl ForkableRng for PredictableRng {
    fn fork(&self) -> Box<dyn ForkableRng> {
        Box::new(self.clone())
    }
}
