//! Events of a connection for its application or owner.

/// An event for the application or the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// Data can be read.
    Readable,
    /// There is room to write again.
    Writable,
    /// The peer has closed its side: no data follows the data that can be read.
    PeerClosed,
    /// The peer has announced urgent data (RFC 9293 section 3.8.5).
    Urgent,
    /// So many retransmissions of one segment have failed that the path may be broken (R1, RFC 9293 section 3.8.3).
    DeliveryTrouble,
    /// An ICMP error that may pass was received (RFC 9293 section 3.9.2.2).
    SoftError,
    /// The peer's user timeout option has changed the user timeout (RFC 5482).
    UserTimeoutChanged,
    /// All data and our FIN are acknowledged.
    AllAcknowledged,
    /// The connection is over: in good order, or with the error of [`Connection::error`](super::Connection::error).
    Closed,
}

impl Event {
    /// All events, in the order in which they are polled.
    const ALL: [Self; 10] = [
        Self::Connected,
        Self::UserTimeoutChanged,
        Self::Urgent,
        Self::Readable,
        Self::Writable,
        Self::PeerClosed,
        Self::SoftError,
        Self::DeliveryTrouble,
        Self::AllAcknowledged,
        Self::Closed,
    ];

    /// The place in [`Self::ALL`].
    const fn rank(self) -> u32 {
        match self {
            Self::Connected => 0,
            Self::UserTimeoutChanged => 1,
            Self::Urgent => 2,
            Self::Readable => 3,
            Self::Writable => 4,
            Self::PeerClosed => 5,
            Self::SoftError => 6,
            Self::DeliveryTrouble => 7,
            Self::AllAcknowledged => 8,
            Self::Closed => 9,
        }
    }
}

/// Events not yet polled, each at most once, by [`Event::rank`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct EventSet(u16);

impl EventSet {
    pub(super) fn insert(&mut self, event: Event) {
        self.0 |= 1 << event.rank();
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        if self.0 == 0 {
            return None;
        }
        let event = *Event::ALL.get(self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_polled_once_and_in_their_order() {
        let mut events = EventSet::default();
        for event in Event::ALL.into_iter().rev().chain(Event::ALL) {
            events.insert(event);
        }
        let polled: Vec<Event> = core::iter::from_fn(|| events.pop()).collect();
        assert_eq!(polled, Event::ALL);
    }
}
