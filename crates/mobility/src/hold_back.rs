//! **Holding back.** A sender that has had a timeout is woken by an ACK of *new* data, and by little else; but when the link breaks without
//! a warning, everything has been acknowledged already, and the host has no new ACK to send. So while data flows, the ACK of the last few
//! whole segments is withheld, a few milliseconds' worth. Whenever the link breaks, there is a new ACK to send when it is back
//! ([`crate::release`] describes how).
//!
//! The cost is a window that is smaller by the segments held, and a round trip that is longer by as many. Four whole segments are enough
//! (one fails for cuts shorter than the RTO, when the tail loss probe has used its slot); more let the sender start faster, as slow start
//! begins with one segment for each that is acknowledged.
//!
//! Nothing is held back:
//! - in the first 150 kB, for about a second after link-up, and for a while after the sender has waited for held ACKs (the *flush*);
//! - beyond an eighth of the receiver's window, or of the sender's data in flight, as far as that can be estimated from the bytes
//!   acknowledged in a round trip: a small window would starve;
//! - beyond 2 Gbit/s;
//! - from an ACK that repeats the last one or carries SACK blocks: loss recovery depends on them;
//! - from SYN, FIN and RST, and after the sender's FIN.
//!
//! If no newer ACK arrives within 40 ms, held ACKs are flushed: the sender may be waiting for them. So requests and answers are not
//! delayed, and the sender's RTO hardly grows (Linux's own ACK may be as late as that).
//!
//! The same is done for incoming ACKs: those that the host's own TCP has not been shown wake it as soon as the link is back.
//!
//! The decision is made for every packet, so it is part of the flow path: `hold_back` in `crates/flow/c/decisions.h`.

use holdover_base::Duration;
use holdover_flow::Half;

/// How much is held back, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldBackConfig {
    /// The number of whole segments. More let a sender start faster after an outage: an eighth of a round trip's worth
    /// on fast links.
    pub segments: u8,
    /// Nothing is held before this many bytes have been acknowledged.
    pub after_bytes: u64,
    /// Nothing is held for this long after link-up.
    pub pause: Duration,
    /// Held ACKs are flushed if no newer ACK arrives for this long.
    pub flush: Duration,
}

impl Default for HoldBackConfig {
    /// Four segments after the first 150 kB, with a pause of 1 s and a flush after 40 ms: tested on Linux 6.18.
    fn default() -> Self {
        Self { segments: 4, after_bytes: 150_000, pause: Duration::from_secs(1), flush: Duration::from_millis(40) }
    }
}

impl From<HoldBackConfig> for holdover_flow::HoldBack {
    fn from(config: HoldBackConfig) -> Self {
        let HoldBackConfig { segments, after_bytes, pause, flush } = config;
        Self { segments, after_bytes, pause, flush }
    }
}

/// The name in scenario files.
pub(crate) const NAME: &str = "hold_back";

/// After a flush, this multiple of the held segments must be acknowledged before anything is held again.
const RECOVERY_FACTOR: u64 = 4;

/// After the sender has waited for held ACKs: the acknowledged bytes from which holding may resume.
pub(crate) fn resume_after_flush(half: Half<'_>, held: u32) -> u64 {
    half.bytes_acked() + u64::from(held) * RECOVERY_FACTOR
}
