//! Counters of sent segments by reason and of received segments by disposition.

use holdover_base::ByteCount;

use crate::on_demand::OnDemand;

macro_rules! counted_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// All of them, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in reports and captures.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

counted_enum! {
    /// Why a segment was sent.
    Reason {
        /// A SYN, first or again.
        Syn = "syn",
        /// A SYN and ACK, first or again.
        SynAck = "syn-ack",
        /// New data within both windows.
        NewData = "new-data",
        /// New data on one of the first two duplicate ACKs (RFC 3042).
        LimitedTransmit = "limited-transmit",
        /// The retransmission timer ran out (RFC 6298 section 5).
        Timeout = "timeout",
        /// The first segment repaired when recovery begins (RFC 5681 section 3.2).
        FastRetransmit = "fast-retransmit",
        /// A further segment that was declared lost.
        LossRecovery = "loss-recovery",
        /// A tail loss probe (RFC 8985 section 7).
        LossProbe = "loss-probe",
        /// New data in a segment larger than the others, a probe of the path MTU (RFC 4821).
        MtuProbe = "mtu-probe",
        /// The owner requested a retransmission.
        Requested = "requested-retransmit",
        /// A probe of a zero window (RFC 9293 section 3.8.6.1).
        WindowProbe = "window-probe",
        /// Less than a full segment, because the window stayed small (RFC 9293 section 3.8.6.2.1).
        SillyWindowOverride = "silly-window-override",
        /// A probe of an idle peer.
        KeepAlive = "keep-alive",
        /// An ACK whose delay ran out.
        DelayedAck = "delayed-ack",
        /// An ACK for every second full segment, or at once in quick-ACK mode.
        Ack = "ack",
        /// An ACK at once for data out of order (RFC 5681 section 4.2).
        DuplicateAck = "duplicate-ack",
        /// An ACK for data that had already arrived.
        DuplicateData = "duplicate-data-ack",
        /// An ACK that fills all or part of a gap.
        GapFilled = "gap-filled-ack",
        /// A window update: the reader has made room.
        WindowUpdate = "window-update",
        /// An ACK for a segment outside the window, or that could be forged (RFC 9293 section 3.10.7.4, RFC 5961).
        ChallengeAck = "challenge-ack",
        /// The ACK of the peer's FIN.
        FinAck = "fin-ack",
        /// The last ACK of the handshake.
        HandshakeAck = "handshake-ack",
        /// The owner requested ACKs.
        RequestedAck = "requested-ack",
        /// A reset.
        Reset = "reset",
    }
}

counted_enum! {
    /// How an arriving segment was handled.
    Disposition {
        /// It was processed.
        Accepted = "accepted",
        /// Its timestamp is older than one already seen (PAWS, RFC 7323 section 5).
        PawsRejected = "paws-rejected",
        /// All of it had already arrived.
        DuplicateData = "duplicate-data",
        /// It lies outside the receive window.
        OutsideWindow = "outside-window",
        /// A RST in the window, but not at its left edge: challenged (RFC 5961 section 3.2).
        ResetChallenged = "reset-challenged",
        /// A RST that ended the connection.
        ResetAccepted = "reset-accepted",
        /// A SYN on a synchronized connection: challenged (RFC 5961 section 4.2).
        SynChallenged = "syn-challenged",
        /// A SYN in the window of a handshake that another SYN began: back to LISTEN (RFC 9293 section 3.10.7.4, fourth).
        HandshakeAbandoned = "handshake-abandoned",
        /// In SYN-RECEIVED: an ACK without data, where the handshake is to end with data (Linux `TCP_DEFER_ACCEPT`).
        HandshakeDeferred = "handshake-deferred",
        /// It carries no ACK where one is required.
        NoAck = "no-ack",
        /// It acknowledges data never sent.
        AckOfUnsentData = "ack-of-unsent-data",
        /// It acknowledges too old data (RFC 5961 section 5.2).
        AckTooOld = "ack-too-old",
        /// In SYN-SENT or SYN-RECEIVED: an ACK that does not fit the SYN.
        UnacceptableHandshakeAck = "unacceptable-handshake-ack",
        /// In SYN-SENT: neither SYN nor RST, or a RST without ACK.
        NotASyn = "not-a-syn",
        /// Data behind the peer's FIN.
        AfterFin = "data-after-fin",
        /// Data for a receiver that has gone: answered by a reset.
        ReceiverGone = "receiver-gone",
        /// Data out of order that found no room.
        ReassemblyFull = "reassembly-full",
        /// No connection and no listener: answered by a reset, unless it was one.
        NoConnection = "no-connection",
        /// A segment without SYN at a listener.
        NotForListener = "not-for-listener",
        /// The connection is closed already.
        Closed = "closed",
        /// The listener's backlog is full.
        BacklogFull = "backlog-full",
    }
}

/// Counters of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// The common kinds, each [`Kind`] at its [`Kind::common_place`].
    common: [u32; Kind::COMMON],
    /// The other kinds that have occurred, in order; empty on a path without trouble.
    rare: OnDemand<Vec<(Kind, u32)>>,
    /// Data bytes sent for the first time.
    pub bytes_sent: ByteCount,
    /// Data bytes sent again.
    pub bytes_retransmitted: ByteCount,
    /// Data bytes the peer has acknowledged.
    pub bytes_acked: ByteCount,
    /// Data bytes received in order.
    pub bytes_received: ByteCount,
    /// Data bytes that had already been received when they arrived.
    pub bytes_duplicate: ByteCount,
    /// All segments sent.
    pub segments_sent: u64,
    /// All segments that arrived for this connection.
    pub segments_received: u64,
    /// Runs of the retransmission timer that ended in a retransmission.
    pub timeouts: u32,
    /// Times that recovery began by duplicate ACKs, SACK or RACK.
    pub recoveries: u32,
    /// Segments of ours that arrived, by ACK or SACK, the SYN included.
    pub delivered: u32,
    /// Timeouts or recoveries that turned out to be spurious and were undone.
    pub undos: u32,
}

impl Counters {
    /// How many segments were sent for `reason`. Saturates at 2^32 - 1; [`Self::segments_sent`] does not.
    pub fn sent(&self, reason: Reason) -> u32 {
        self.count(Kind::Sent(reason))
    }

    /// How many segments that arrived ended as `disposition`. Saturates at 2^32 - 1; [`Self::segments_received`] does not.
    pub fn received(&self, disposition: Disposition) -> u32 {
        self.count(Kind::Received(disposition))
    }

    /// Adds `count` segments sent for `reason` by another TCP; [`Self::segments_sent`] does not change.
    pub fn add_sent(&mut self, reason: Reason, count: u32) {
        for _ in 0..count {
            self.add_one(Kind::Sent(reason));
        }
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, reason: Reason) {
        self.add_one(Kind::Sent(reason));
        self.segments_sent += 1;
    }

    #[inline]
    pub(crate) fn count_received(&mut self, disposition: Disposition) {
        self.add_one(Kind::Received(disposition));
        self.segments_received += 1;
    }

    fn count(&self, kind: Kind) -> u32 {
        if let Some(place) = kind.common_place() {
            return self.common[place];
        }
        self.rare.binary_search_by_key(&kind, |&(kind, _)| kind).map_or(0, |index| self.rare[index].1)
    }

    #[inline]
    fn add_one(&mut self, kind: Kind) {
        match kind.common_place() {
            Some(place) => self.common[place] = self.common[place].saturating_add(1),
            None => self.add_one_rare(kind),
        }
    }

    fn add_one_rare(&mut self, kind: Kind) {
        let rare = self.rare.to_mut();
        match rare.binary_search_by_key(&kind, |&(kind, _)| kind) {
            Ok(index) => rare[index].1 = rare[index].1.saturating_add(1),
            Err(index) => rare.insert(index, (kind, 1)),
        }
    }
}

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Sent(Reason),
    Received(Disposition),
}

impl Kind {
    /// Number of counters in `common`.
    const COMMON: usize = 8;

    #[inline]
    const fn common_place(self) -> Option<usize> {
        match self {
            Self::Received(Disposition::Accepted) => Some(0),
            Self::Sent(Reason::Syn) => Some(1),
            Self::Sent(Reason::SynAck) => Some(2),
            Self::Sent(Reason::HandshakeAck) => Some(3),
            Self::Sent(Reason::NewData) => Some(4),
            Self::Sent(Reason::Ack) => Some(5),
            Self::Sent(Reason::DelayedAck) => Some(6),
            Self::Sent(Reason::KeepAlive) => Some(7),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_by_itself() {
        let mut counters = Counters::default();
        for (n, &reason) in Reason::ALL.iter().enumerate() {
            (0..=n).for_each(|_| counters.count_sent(reason));
        }
        for (n, &disposition) in Disposition::ALL.iter().enumerate().rev() {
            (0..=n).for_each(|_| counters.count_received(disposition));
        }
        assert!(Reason::ALL.iter().zip(1..).all(|(&reason, n)| counters.sent(reason) == n));
        assert!(Disposition::ALL.iter().zip(1..).all(|(&disposition, n)| counters.received(disposition) == n));
    }
}
