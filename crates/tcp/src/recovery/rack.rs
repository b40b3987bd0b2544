//! RACK's clocks and its reordering window (RFC 8985 sections 5.2 and 6.2). `connection::rack` detects losses by them.

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

/// RACK's state (RFC 8985 section 5.2).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rack {
    /// When the most recently sent segment among the delivered ones was sent, its end, and its round-trip time.
    pub(crate) xmit_at: Instant,
    pub(crate) end_seq: Seq,
    pub(crate) rtt: Duration,
    /// Whether a delivery has moved it since losses were last detected.
    pub(crate) advanced: bool,
    /// The reordering window in quarters of the least RTT, and for how many recoveries it persists.
    pub(crate) steps: u8,
    pub(crate) persist: u8,
    /// A DSACK arrived: the window grows, once a round.
    pub(crate) dsack_seen: bool,
    pub(crate) dsack_round_end: Option<Seq>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            xmit_at: Instant::ZERO,
            end_seq: Seq::default(),
            rtt: Duration::ZERO,
            advanced: false,
            steps: 1,
            persist: 0,
            dsack_seen: false,
            dsack_round_end: None,
        }
    }
}

impl Rack {
    /// Recoveries without a DSACK after which the reordering window is back at its least (RFC 8985 section 7.2.2: 16).
    const PERSIST_RECOVERIES: u8 = 16;

    /// Whether a segment sent at `a`, ending at `a_end`, was sent after the other.
    pub(crate) fn sent_after(a: Instant, a_end: Seq, b: Instant, b_end: Seq) -> bool {
        a > b || (a == b && a_end.gt(b_end))
    }

    /// RFC 8985 section 6.2 step 2: takes note of a delivered segment.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        sent_at: Instant,
        end: Seq,
        retransmitted: bool,
        min_rtt: Option<Duration>,
    ) {
        let rtt = now.saturating_since(sent_at);
        // A retransmission acknowledged sooner than any round trip: it was the original that arrived.
        if retransmitted && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if Self::sent_after(sent_at, end, self.xmit_at, self.end_seq) {
            self.xmit_at = sent_at;
            self.end_seq = end;
        }
    }

    /// RFC 8985 section 6.2 step 4: the reordering window grows on a DSACK, once a round.
    pub(crate) fn adapt(&mut self, snd_una: Seq, snd_nxt: Seq) {
        if self.dsack_round_end.is_some_and(|end| snd_una.gt(end)) {
            self.dsack_round_end = None;
        }
        if core::mem::take(&mut self.dsack_seen) && self.dsack_round_end.is_none() {
            self.steps = self.steps.saturating_add(1);
            self.persist = Self::PERSIST_RECOVERIES;
            self.dsack_round_end = Some(snd_nxt);
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery has ended.
    pub(crate) fn recovery_ended(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8985 section 6.2: later transmissions win; a suspiciously quick retransmission does not count.
    #[test]
    fn rfc8985_6_2_the_latest_delivery_counts() {
        let mut rack = Rack::default();
        let at = Instant::from_millis;
        rack.on_delivered(at(100), at(50), Seq::new(10), false, None);
        rack.on_delivered(at(101), at(40), Seq::new(20), false, None);
        assert_eq!((rack.xmit_at, rack.end_seq), (at(50), Seq::new(10)));
        rack.on_delivered(at(102), at(101), Seq::new(5), true, Some(Duration::from_millis(50)));
        assert_eq!(rack.xmit_at, at(50));
        rack.on_delivered(at(152), at(101), Seq::new(5), true, Some(Duration::from_millis(50)));
        assert_eq!(rack.xmit_at, at(101));
    }

    #[test]
    fn the_reordering_window_grows_once_a_round_and_shrinks_after_sixteen_recoveries() {
        let mut rack = Rack::default();
        for _ in 0..2 {
            rack.dsack_seen = true;
            rack.adapt(Seq::new(1), Seq::new(100));
        }
        assert_eq!(rack.steps, 2);
        rack.dsack_seen = true;
        rack.adapt(Seq::new(101), Seq::new(200));
        assert_eq!(rack.steps, 3);
        (0..16).for_each(|_| rack.recovery_ended());
        rack.adapt(Seq::new(201), Seq::new(300));
        assert_eq!(rack.steps, 1);
    }
}
