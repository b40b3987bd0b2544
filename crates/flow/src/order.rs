//! What a controller changes in a flow.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};
use holdover_wire::Seq;

use crate::layout::{
    self, Key, LIMIT_ALWAYS, LIMIT_NONE, LIMIT_UNTIL_HEARD, ORDER_CLOCK, ORDER_COMPACT, ORDER_FLUSH, ORDER_FOLD,
    ORDER_FREE, ORDER_LEAVE_ALONE, ORDER_LIMIT_WINDOW, ORDER_RECORD, ORDER_REFRESH, ORDER_REOPENED, ORDER_SHOW,
    ORDER_WINDOW_SHIFT,
};
use crate::{ffi, key};

/// A change of a half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The sender was shown an ACK up to here, and with it the receiver's window.
    Show(Seq),
    /// The same, because held ACKs were to be flushed: nothing is held before so many bytes have been acknowledged.
    Flush {
        /// The ACK.
        ack: Seq,
        /// The bytes.
        hold_from: u64,
    },
    /// The sender was shown the receiver's window.
    Reopened,
    /// ACKs of a stall are recorded, or not any more.
    Record(bool),
    /// Recorded ACKs are clocked out, or not any more.
    Clock(bool),
    /// Echoes of timestamps that are not newer than `stale` are replaced by `value`, which counts on from now.
    Refresh {
        /// The newest TSval from before the outage.
        stale: u32,
        /// What the sender's clock said a round trip ago.
        value: u32,
        /// How fast it is.
        ticks_per_sec: u64,
    },
    /// The receiver's window shift, if it is not known.
    WindowShift(u8),
    /// How large a window of the receiver's the sender is shown.
    LimitWindow(WindowLimit),
}

/// The largest window that a sender is shown, in bytes; 0 shuts it. A window that becomes smaller may end before data that are under way,
/// which RFC 9293 section 3.8.6 discourages: that is what closes it at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowLimit {
    /// Any.
    None,
    /// No more than this.
    Always(u32),
    /// No more than this until the next ACK of the receiver, which passes as it is.
    UntilHeard(u32),
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
                };
                (ORDER_LIMIT_WINDOW, bytes, kind, 0)
            }
            Order::WindowShift(shift) => (ORDER_WINDOW_SHIFT, shift.into(), 0, 0),
        };
        let direction = key::to_raw(direction);
        let Self(order) = Self::of(kind, Key::new(connection));
        Self(layout::Order { direction, a, b, c, now: now.as_nanos(), ..order })
    }

    /// Leaves a flow alone, or not any more.
    pub fn leave_alone(connection: Connection, is_left_alone: bool) -> Self {
        let Self(order) = Self::of(ORDER_LEAVE_ALONE, Key::new(connection));
        Self(layout::Order { a: is_left_alone.into(), ..order })
    }

    /// Folds predicted packets into the flow.
    pub fn fold(key: Key) -> Self {
        Self::of(ORDER_FOLD, key)
    }

    /// The same for one direction, and frees its prediction, which has that number.
    pub fn free_prediction(key: Key, number: u32) -> Self {
        let Self(order) = Self::of(ORDER_FREE, key);
        Self(layout::Order { direction: (number & 1) as u8, ..order })
    }

    /// Keeps the entry of a flow only, without its details, if nothing is held.
    pub fn compact(connection: Connection) -> Self {
        Self::of(ORDER_COMPACT, Key::new(connection))
    }

    /// As the programs in the kernel read it.
    pub fn to_bytes(self) -> impl AsRef<[u8]> {
        ffi::order_to_bytes(&self.0)
    }

    fn of(kind: u32, key: Key) -> Self {
        Self(layout::Order { kind: kind as u8, key, ..layout::Order::default() })
    }
}
