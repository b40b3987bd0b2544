//! The packets in which Linux keeps written data that was not sent (`tcp_sendmsg_locked`).
//!
//! A packet takes as many full segments as a device takes at once, and at most half of the peer's largest window. A new one is begun only
//! while less is queued than the send buffer's size; one that was begun is filled in any case. A packet that is filled while it is the next
//! to leave sends as much as a burst may have, and makes room for more. Once half of the peer's largest window was written since the last
//! time, the packet at the end is pushed (`forced_push`): its last segment has PSH, whatever is written behind it.

use std::collections::VecDeque;

use holdover_tcp::Connection;
use holdover_wire::Seq;

/// The most bytes that Linux passes to a device at once: 64 KiB without room for headers (`sk_gso_max_size`).
const MAX_PACKET: u32 = 65_535 - 320;
/// A peer whose window is not larger is trusted with all of it (Linux `TCP_MSS_DEFAULT`).
const SMALL_WINDOW: u32 = 536;
/// Marks of PSH kept for retransmissions.
const MAX_MARKS: usize = 64;

/// The packets of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct SendBuffers {
    /// The unsent bytes of each packet.
    packets: VecDeque<usize>,
    len: usize,
    /// Whether the packet at the end is pushed.
    is_pushed: bool,
    /// Bytes written since a packet was pushed.
    since_push: usize,
    /// Where packets end that were pushed.
    marks: VecDeque<Seq>,
}

/// The state of a packet to which data was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// The packet has room.
    No,
    /// The packet is full.
    Yes,
    /// The full packet is the next to leave.
    Head,
    /// The full packet is pushed.
    Pushed,
}

impl SendBuffers {
    /// Segments have left: `unsent` bytes are left.
    fn follow(&mut self, unsent: usize) {
        while self.len > unsent {
            let Some(first) = self.packets.front_mut() else { break };
            let gone = (self.len - unsent).min(*first);
            *first -= gone;
            self.len -= gone;
            if *first == 0 {
                self.packets.pop_front();
            }
        }
        // Data of other calls.
        if self.len < unsent {
            self.packets.push_back(unsent - self.len);
            self.len = unsent;
        }
    }

    /// How many bytes the packet at the end has room for; `None` if a new one has to be begun.
    pub(super) fn room(&mut self, connection: &Connection) -> Option<usize> {
        self.follow(connection.unsent_len());
        self.packets.back().map(|last| goal(connection).saturating_sub(*last)).filter(|&room| room > 0)
    }

    /// Begins a packet, and returns its size.
    pub(super) fn begin(&mut self, connection: &Connection) -> usize {
        if core::mem::take(&mut self.is_pushed) {
            self.marks.push_back(connection.snd_nxt() + connection.unsent_len() as u32);
            if self.marks.len() > MAX_MARKS {
                self.marks.pop_front();
            }
        }
        self.packets.push_back(0);
        goal(connection)
    }

    /// `len` bytes were added to the packet at the end.
    pub(super) fn add(&mut self, connection: &Connection, len: usize) -> Filled {
        let last = self.packets.back_mut().map_or(0, |last| {
            *last += len;
            *last
        });
        self.len += len;
        self.since_push += len;
        if last < goal(connection) {
            Filled::No
        } else if self.since_push > connection.max_snd_wnd() as usize / 2 {
            self.note_push();
            Filled::Pushed
        } else if self.packets.len() == 1 {
            Filled::Head
        } else {
            Filled::Yes
        }
    }

    /// The packet at the end is pushed: there is too much, or a call has ended.
    pub(super) fn note_push(&mut self) {
        self.is_pushed = true;
        self.since_push = 0;
    }

    /// A call begins: with room in the buffer, the push of the previous call is over.
    pub(super) fn resume(&mut self, connection: &Connection) {
        if self.room(connection).is_some() {
            self.is_pushed = false;
        }
    }

    /// Whether a segment that ends at `end` is the last one of a packet that was pushed.
    pub(super) fn is_pushed_at(&self, end: Seq) -> bool {
        self.marks.contains(&end)
    }
}

/// The size of a packet (Linux `tcp_xmit_size_goal`).
fn goal(connection: &Connection) -> usize {
    let segment = connection.snd_mss().max(1);
    let window = connection.max_snd_wnd();
    let share = match window {
        0 => MAX_PACKET,
        1..=SMALL_WINDOW => window,
        _ => window / 2,
    };
    let segments = MAX_PACKET.min(share) / segment;
    (segments.max(1) * segment) as usize
}
