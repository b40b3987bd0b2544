//! Proportional rate reduction (RFC 6937): how much is sent during a recovery.

/// The state of a reduction.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Prr {
    pub(crate) prior_cwnd: u32,
    pub(crate) delivered: u32,
    pub(crate) out: u32,
}

impl Prr {
    pub(crate) fn start(&mut self, cwnd: u32) {
        *self = Self { prior_cwnd: cwnd, delivered: 0, out: 0 };
    }

    /// The window after an ACK that delivered `delivered` segments (RFC 6937 section 3, with Linux's choice between its two
    /// bounds: slow start as long as retransmissions get through).
    pub(crate) fn window(&mut self, in_flight: u32, ssthresh: u32, delivered: u32, progress: bool) -> u32 {
        self.delivered += delivered;
        let room = i64::from(ssthresh) - i64::from(in_flight);
        let quota = if room < 0 {
            let target = u64::from(ssthresh) * u64::from(self.delivered);
            target.div_ceil(u64::from(self.prior_cwnd.max(1))) as i64 - i64::from(self.out)
        } else {
            let conserve = i64::from(self.delivered) - i64::from(self.out);
            let quota = conserve.max(i64::from(delivered)) + i64::from(progress);
            quota.min(room)
        };
        // The retransmission that begins recovery is always sent.
        let quota = quota.max(i64::from(self.out == 0));
        in_flight + quota.max(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937 section 3: while more is in flight than ssthresh, sending goes at ssthresh / prior cwnd of the deliveries.
    #[test]
    fn rfc6937_3_sends_in_proportion_to_what_arrives() {
        let mut prr = Prr::default();
        prr.start(20);
        let (mut in_flight, mut sent) = (19, 0);
        for _ in 0..9 {
            in_flight -= 1;
            let quota = prr.window(in_flight, 10, 1, false) - in_flight;
            prr.out += quota;
            in_flight += quota;
            sent += quota;
        }
        assert_eq!(sent, 5);
    }

    /// RFC 6937 section 3: below ssthresh it grows back, not beyond.
    #[test]
    fn rfc6937_3_slow_start_part_stops_at_ssthresh() {
        let mut prr = Prr::default();
        prr.start(20);
        prr.delivered = 12;
        prr.out = 6;
        assert_eq!(prr.window(2, 10, 1, true), 10);
        prr.out = 13;
        assert_eq!(prr.window(2, 10, 1, true), 4);
        assert_eq!(prr.window(2, 10, 1, false), 4, "what was delivered may be sent again");
    }
}
