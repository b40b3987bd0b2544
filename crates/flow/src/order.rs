//! Orders: changes of a flow by the controller.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};
use holdover_wire::Seq;

use crate::layout::{
    self, Key, LIMIT_ALWAYS, LIMIT_NONE, LIMIT_UNTIL_ACKED, LIMIT_UNTIL_HEARD, ORDER_CLOCK, ORDER_COMPACT, ORDER_FLUSH,
    ORDER_FOLD, ORDER_FREE, ORDER_LEAVE_ALONE, ORDER_LIMIT_WINDOW, ORDER_RECORD, ORDER_REFRESH, ORDER_REOPENED,
    ORDER_SHOW, ORDER_WINDOW_SHIFT,
};
use crate::{ffi, key};

/// A change of a half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The sender was shown an ACK up to this number, and with it the receiver's window.
    Show(Seq),
    /// The same, by a flush of held ACKs: nothing is held until this many bytes have been acknowledged.
    Flush {
        /// The ACK.
        ack: Seq,
        /// The bytes.
        hold_from: u64,
    },
    /// The sender was shown the receiver's window.
    Reopened,
    /// Starts or stops recording the ACKs of a stall.
    Record(bool),
    /// Starts or stops clocking out recorded ACKs.
    Clock(bool),
    /// Replaces echoes of timestamps up to `stale` by `value`, which keeps counting from now.
    Refresh {
        /// The newest TSval before the outage.
        stale: u32,
        /// The sender's clock a round trip ago.
        value: u32,
        /// The rate of that clock.
        ticks_per_sec: u64,
    },
    /// The receiver's window shift, if it was unknown.
    WindowShift(u8),
    /// Limits the receiver's window as shown to the sender.
    LimitWindow(WindowLimit),
}

/// A limit of the window shown to a sender, in bytes; 0 shuts it. The right edge may move left of data in flight, which
/// RFC 9293 section 3.8.6 discourages: this is what closes the window at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowLimit {
    /// No limit.
    None,
    /// A permanent limit.
    Always(u32),
    /// A limit until the next ACK of the receiver, which passes unchanged.
    UntilHeard(u32),
    /// A limit until the receiver acknowledges something that the sender was not shown. That ACK passes unchanged.
    UntilAcked(u32),
}

/// An order as the flow path reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderRecord(pub(crate) layout::Order);

impl OrderRecord {
    /// An order for the half of a connection whose ACKs go in `direction`.
    pub fn new(now: Instant, connection: Connection, direction: Direction, order: Order) -> Self {
        let (kind, a, b, c) = match order {
            Order::Show(ack) => (ORDER_SHOW, ack.value(), 0, 0),
            Order::Flush { ack, hold_from } => (ORDER_FLUSH, ack.value(), 0, hold_from),
            Order::Reopened => (ORDER_REOPENED, 0, 0, 0),
            Order::Record(is_on) => (ORDER_RECORD, is_on.into(), 0, 0),
            Order::Clock(is_on) => (ORDER_CLOCK, is_on.into(), 0, 0),
            Order::Refresh { stale, value, ticks_per_sec } => (ORDER_REFRESH, stale, value, ticks_per_sec),
            Order::LimitWindow(limit) => {
                let (bytes, kind) = match limit {
                    WindowLimit::None => (0, LIMIT_NONE),
                    WindowLimit::Always(bytes) => (bytes, LIMIT_ALWAYS),
                    WindowLimit::UntilHeard(bytes) => (bytes, LIMIT_UNTIL_HEARD),
                    WindowLimit::UntilAcked(bytes) => (bytes, LIMIT_UNTIL_ACKED),
                };
                (ORDER_LIMIT_WINDOW, bytes, kind, 0)
            }
            Order::WindowShift(shift) => (ORDER_WINDOW_SHIFT, shift.into(), 0, 0),
        };
        let direction = key::to_raw(direction);
        let Self(order) = Self::of(kind, Key::new(connection));
        Self(layout::Order { direction, a, b, c, now: now.as_nanos(), ..order })
    }

    /// Exempts a flow, or ends the exemption.
    pub fn leave_alone(connection: Connection, is_exempt: bool) -> Self {
        let Self(order) = Self::of(ORDER_LEAVE_ALONE, Key::new(connection));
        Self(layout::Order { a: is_exempt.into(), ..order })
    }

    /// Folds predicted packets into the flow.
    pub fn fold(key: Key) -> Self {
        Self::of(ORDER_FOLD, key)
    }

    /// Folds one direction, and frees its prediction, which has this index.
    pub fn free_prediction(key: Key, number: u32) -> Self {
        let Self(order) = Self::of(ORDER_FREE, key);
        Self(layout::Order { direction: (number & 1) as u8, ..order })
    }

    /// Drops the details of a flow and keeps its entry, if nothing is held.
    pub fn compact(connection: Connection) -> Self {
        Self::of(ORDER_COMPACT, Key::new(connection))
    }

    /// The order as bytes for the kernel programs.
    pub fn to_bytes(self) -> impl AsRef<[u8]> {
        ffi::order_to_bytes(&self.0)
    }

    fn of(kind: u32, key: Key) -> Self {
        Self(layout::Order { kind: kind as u8, key, ..layout::Order::default() })
    }
}
