//! **Buffer blocking** (the thesis on Freeze-TCP, sections 4.6.3 to 4.6.6): a node in the path of all packets of a mobile host, such as a
//! gateway foreign agent, keeps one FIFO for each mobile host. When the host announces a disconnection (an ACK with a window of zero, as
//! Freeze-TCP sends it), TCP packets for it stay in the FIFO; when it registers, or sends a packet with an open window, they are released,
//! as many at a time as the *burst limit* allows. While the FIFO is not empty, arriving packets are appended to it and its head is
//! forwarded instead.
//!
//! Packets of other protocols pass. Nothing is answered, and nothing is rewritten except the flag of [`WarningSign::IpFlag`]: there is no
//! state for single connections, and the order is kept.
//!
//! # Where the thesis is silent
//!
//! - **The sign** is the window of zero itself, which the thesis allows where nothing is encrypted (section 4.6.2), or its flag in the IP
//!   header: [`BlockingBufferConfig::sign`]. With the flag, any packet of the host without it unblocks, as in figure 4.6.5.2-1. Encrypted
//!   packets always pass, as their protocol is ESP: the thesis buffers TCP (section 4.6.1).
//! - **The buffer** for a host that never returns is bounded: beyond [`BlockingBufferConfig::buffer_bytes`] arriving packets are dropped,
//!   and after [`BlockingBufferConfig::longest`] the oldest is dropped and the FIFO opens.
//! - **Registrations while packets pass** release nothing, as in the thesis (condition a requires the blocked state). After the loss of a
//!   first burst, the FIFO is therefore released only by ACKs of other packets, or by packets arriving from the wired side.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Verdict};
use holdover_wire::Packet;

use crate::fifo::{Entry, Fifo};
use crate::warning_sign::{Shown, WarningSign};

/// The parameters of the gateway. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockingBufferConfig {
    /// The sign of a predicted disconnection.
    pub sign: WarningSign,
    /// The number of packets released at once; `None` for all of them.
    pub burst_packets: Option<u32>,
    /// The most bytes in the FIFO of a host.
    pub buffer_bytes: usize,
    /// The longest time that a packet is kept.
    pub longest: Duration,
}

impl Default for BlockingBufferConfig {
    /// Two at once, as in all experiments of the thesis; 1 MB and 120 s, the longest that TCP waits between two tries.
    fn default() -> Self {
        let sign = WarningSign::default();
        Self { sign, burst_packets: Some(2), buffer_bytes: 1_000_000, longest: Duration::from_secs(120) }
    }
}

impl BlockingBufferConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        if self.burst_packets == Some(0) {
            return Some("it releases bursts of 0 packets");
        }
        (self.buffer_bytes == 0 || self.longest == Duration::ZERO).then_some("it keeps nothing")
    }
}

/// The filter of a gateway. See the [module](self).
#[derive(Debug)]
pub struct BlockingBuffer {
    config: BlockingBufferConfig,
    mobiles: BTreeMap<IpAddr, Mobile>,
    ready: VecDeque<Injected>,
    dropped: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

/// The packets of one mobile host.
#[derive(Clone, Default, Debug)]
struct Mobile {
    blocked: bool,
    packets: Fifo<Packet>,
}

impl BlockingBuffer {
    /// The name in scenario files.
    pub const NAME: &'static str = "blocking_buffer";

    /// A gateway without state.
    pub fn new(config: BlockingBufferConfig) -> Self {
        Self {
            config,
            mobiles: BTreeMap::new(),
            ready: VecDeque::new(),
            dropped: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn handle_from_fixed(&mut self, now: Instant, packet: &mut Packet) -> Verdict {
        let sign = self.config.sign;
        sign.mark(packet, false);
        let Some(mobile) = self.mobiles.get_mut(&packet.dst) else { return Verdict::Pass };
        if !mobile.blocked && mobile.packets.is_empty() {
            self.mobiles.remove(&packet.dst);
            return Verdict::Pass;
        }
        if !mobile.blocked {
            let head = mobile.packets.pop();
            self.ready.extend(head.map(|head| Injected { direction: Direction::Outgoing, packet: head.item }));
        }
        let len = packet.wire_len();
        if mobile.packets.bytes() as usize + len > self.config.buffer_bytes {
            return Verdict::Drop;
        }
        mobile.packets.push(now, len as u32, packet.clone());
        Verdict::Keep
    }

    fn handle_from_mobile(&mut self, now: Instant, packet: &mut Packet) {
        let Some(shown) = self.config.sign.take(packet) else { return };
        let connection = Connection::of(Direction::Incoming, packet);
        let action = |what| connection.map(|connection| Action { at: now, connection, mechanism: Self::NAME, what });
        match shown {
            Shown::Warning => {
                let mobile = self.mobiles.entry(packet.src).or_default();
                if !core::mem::replace(&mut mobile.blocked, true) {
                    self.actions.extend(action("blocked"));
                }
            }
            Shown::Working => {
                let Some(mobile) = self.mobiles.get_mut(&packet.src) else { return };
                if core::mem::take(&mut mobile.blocked) {
                    self.actions.extend(action("unblocked"));
                }
                release(&self.config, &mut mobile.packets, &mut self.ready);
            }
        }
    }

    fn handle_registration(&mut self, now: Instant, mobile: IpAddr) {
        let Some(mobile) = self.mobiles.get_mut(&mobile).filter(|mobile| mobile.blocked) else { return };
        mobile.blocked = false;
        let first = mobile.packets.front().and_then(|head| Connection::of(Direction::Outgoing, &head.item));
        release(&self.config, &mut mobile.packets, &mut self.ready);
        let action = |connection| Action { at: now, connection, mechanism: Self::NAME, what: "unblocked" };
        self.actions.extend(first.map(action));
    }
}

/// Releases as many as the burst limit allows.
fn release(config: &BlockingBufferConfig, fifo: &mut Fifo<Packet>, ready: &mut VecDeque<Injected>) {
    let most = config.burst_packets.map_or(usize::MAX, |most| most as usize);
    for Entry { item: mut packet, .. } in core::iter::from_fn(|| fifo.pop()).take(most) {
        config.sign.mark(&mut packet, true);
        ready.push_back(Injected { direction: Direction::Outgoing, packet });
    }
}

impl Mobile {
    /// When its oldest packet expires.
    fn expires_at(&self, longest: Duration) -> Option<Instant> {
        self.packets.front().map(|head| head.came_at + longest)
    }
}

impl SegmentFilter for BlockingBuffer {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        match direction {
            Direction::Outgoing if packet.tcp().is_none() => {
                self.config.sign.mark(packet, false);
                Verdict::Pass
            }
            Direction::Outgoing => self.handle_from_fixed(now, packet),
            Direction::Incoming => {
                self.handle_from_mobile(now, packet);
                Verdict::Pass
            }
        }
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        if matches!(presence, Presence::Present | Presence::Rebound) {
            self.handle_registration(now, mobile);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let longest = self.config.longest;
        for mobile in self.mobiles.values_mut() {
            while mobile.expires_at(longest).is_some_and(|at| at <= now) {
                self.dropped.extend(mobile.packets.pop().map(|head| head.item));
                // The sign that would unblock it may be lost: new packets pass.
                mobile.blocked = false;
            }
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        Stored { bytes: self.mobiles.values().map(|mobile| mobile.packets.bytes()).sum(), connections: 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.mobiles.values().filter_map(|mobile| mobile.expires_at(self.config.longest)).min()
    }
}
