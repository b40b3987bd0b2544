//! Notices to the controller.

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction};
use holdover_wire::Seq;

use crate::layout::{
    self, NOTICE_ARRIVED, NOTICE_CUT, NOTICE_HEARD, NOTICE_HELD, NOTICE_INCOMING, NOTICE_OPENED, NOTICE_PROBED,
    NOTICE_QUEUED, NOTICE_STALLED,
};
use crate::{ffi, key};

/// An event that the controller has to handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An ACK is held, the first one: it is to be flushed if no newer one arrives.
    Held,
    /// One byte of an ACK was shown, the first after a long silence: the rest is to be flushed after [`CUT_FLUSH`].
    Cut,
    /// An ACK up to this number was withheld because a cut is predicted.
    Stalled(Seq),
    /// An ACK up to this number waits behind those that are being clocked out.
    Queued(Seq),
    /// The sender was shown an unchanged ACK: those of a stall are obsolete.
    Opened,
    /// The sender probes a window that is shut by order (RFC 9293 section 3.8.6.1): the receiver has acknowledged up to
    /// here. Nothing has answered yet; while the link is down the probe is withheld.
    Probed(Seq),
    /// The receiver has sent an ACK up to this number, which ends [`UntilHeard`](crate::WindowLimit::UntilHeard); or an ACK of something new,
    /// which ends [`UntilAcked`](crate::WindowLimit::UntilAcked).
    Heard(Seq),
}

/// The time between one byte of an ACK and the rest of it ([`Notice::Cut`]).
pub const CUT_FLUSH: Duration = Duration::from_nanos(layout::CUT_FLUSH as u64);

/// A report of the kernel programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Something about a half.
    Notice(Connection, Direction, Notice),
    /// A packet of this connection has arrived over a link that is down, or after silence.
    Incoming(Connection),
    /// A packet of this connection has arrived while arrivals are reported
    /// ([`LinkState::awaits_packets`](crate::LinkState::awaits_packets)).
    Arrived(Connection),
}

/// A notice in the format of the kernel programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoticeRecord(layout::Notice);

impl Notice {
    /// `None` if `kind` is unknown.
    pub(crate) fn of(kind: u8, ack: u32) -> Option<Self> {
        let ack = Seq::new(ack);
        match u32::from(kind) {
            NOTICE_HELD => Some(Self::Held),
            NOTICE_CUT => Some(Self::Cut),
            NOTICE_STALLED => Some(Self::Stalled(ack)),
            NOTICE_QUEUED => Some(Self::Queued(ack)),
            NOTICE_OPENED => Some(Self::Opened),
            NOTICE_PROBED => Some(Self::Probed(ack)),
            NOTICE_HEARD => Some(Self::Heard(ack)),
            _ => None,
        }
    }
}

impl NoticeRecord {
    /// Parses a notice; `None` if there are too few bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        ffi::notice_from_bytes(bytes).map(Self)
    }

    /// The time of the packet that caused it.
    pub fn at(&self) -> Instant {
        Instant::from_nanos(self.0.at)
    }

    /// The report; `None` if its kind is unknown.
    pub fn report(&self) -> Option<Report> {
        let connection = self.0.key.connection();
        match u32::from(self.0.kind) {
            NOTICE_INCOMING => Some(Report::Incoming(connection)),
            NOTICE_ARRIVED => Some(Report::Arrived(connection)),
            _ => Notice::of(self.0.kind, self.0.ack)
                .map(|notice| Report::Notice(connection, key::from_raw(self.0.direction), notice)),
        }
    }
}
