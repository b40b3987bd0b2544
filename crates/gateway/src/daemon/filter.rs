//! The gateway's daemon as a filter of a router: flows and queues in memory.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::Instant;
use holdover_filter::{
    Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Verdict, WakeOutcome,
};
use holdover_flow::Rules;
use holdover_wire::{Flags, Packet};

use super::{DaemonConfig, Mode, ThesisConfig, is_redundant, rules};
use crate::divert::{Course, Diverter, DiverterConfig, Source};
use crate::flow_path::{FlowPath, Treatment};
use crate::prefixes::Prefixes;
use crate::warning_sign::Shown;

/// The filter. See the [module](super).
#[derive(Debug)]
pub struct GatewayDaemon {
    /// `None` in the other modes.
    thesis: Option<ThesisConfig>,
    /// Its packets follow packets released in the same call, as in the daemon.
    path: FlowPath,
    courses: BTreeMap<IpAddr, Course>,
    diverter: Diverter<Packet>,
    released: VecDeque<Injected>,
    dropped: VecDeque<Packet>,
}

impl GatewayDaemon {
    /// The name in scenario files.
    pub const NAME: &'static str = "gateway";

    /// A filter without state.
    pub fn new(config: DaemonConfig) -> Self {
        let DaemonConfig { mode, holds_back, drops_duplicates, buffer, thesis, prefixes } = config;
        let buffer = DiverterConfig { diverts: mode.diverts() && buffer.diverts, ..buffer };
        let mut daemon = Self::with_treatment(mode.treatment(holds_back, drops_duplicates), rules(), buffer, prefixes);
        daemon.thesis = (mode == Mode::Thesis).then_some(thesis);
        daemon.diverter.set_others(mode.diversion(thesis));
        daemon
    }

    pub(crate) fn with_treatment(
        treatment: Treatment,
        rules: Rules,
        buffer: DiverterConfig,
        prefixes: Prefixes,
    ) -> Self {
        Self {
            thesis: None,
            path: FlowPath::new(Self::NAME, treatment, rules, prefixes),
            courses: BTreeMap::new(),
            diverter: Diverter::new(buffer),
            released: VecDeque::new(),
            dropped: VecDeque::new(),
        }
    }

    /// Keeps a packet for a mobile host that is absent, or for which others still wait.
    fn divert(&mut self, now: Instant, packet: &Packet) -> Verdict {
        let mobile = self.path.host_of(packet.dst);
        let course = self.courses.get(&mobile).copied().unwrap_or(Course::Pass);
        // Scenarios have no rules for single connections.
        if !course.diverts(None, packet.carries_tcp()) {
            return Verdict::Pass;
        }
        let len = u32::try_from(packet.wire_len()).unwrap_or(u32::MAX);
        match self.diverter.handle_packet(now, mobile, len, || Some(packet.clone())) {
            Ok(()) => Verdict::Keep,
            Err(_) => Verdict::Drop,
        }
    }

    /// Handles a packet from a mobile host, and its sign.
    fn hear(&mut self, now: Instant, packet: &mut Packet) {
        let mobile = self.path.host_of(packet.src);
        match self.thesis.and_then(|thesis| thesis.sign.take(packet)) {
            Some(Shown::Warning) => self.diverter.handle_warning(now, mobile),
            Some(Shown::Working) => self.diverter.handle_working(now, mobile),
            None => self.diverter.handle_heard(now, mobile),
        }
    }

    /// Handles deadlines, and the consequences of everything handled before.
    fn advance(&mut self, now: Instant) {
        self.diverter.handle_timeout(now);
        while let Some((mobile, standing)) = self.diverter.poll_change() {
            self.path.with(mobile, |controller, flows| controller.handle_standing(now, standing, flows));
        }
        self.set_courses(now);
        self.release(now);
        // The released packet may have been the last.
        self.set_courses(now);
        self.dropped.extend(core::iter::from_fn(|| self.diverter.poll_discarded()).map(|(_, packet, _)| packet));
    }

    fn set_courses(&mut self, now: Instant) {
        while let Some((mobile, course)) = self.diverter.poll_course() {
            self.courses.insert(mobile, course);
            if course == Course::Pass {
                self.diverter.handle_settled(now, mobile, true);
            }
        }
    }

    fn release(&mut self, now: Instant) {
        while let Some((mobile, packet)) = self.diverter.due(now) {
            let mut packet = packet.clone();
            if let Some(thesis) = self.thesis {
                thesis.sign.mark(&mut packet, true);
            }
            if self.is_acknowledged(&packet) {
                self.dropped.push_back(packet);
            } else {
                self.released.push_back(Injected { direction: Direction::Outgoing, packet });
            }
            self.diverter.handle_sent(now, mobile);
        }
    }

    /// Whether a packet carries data that its mobile host has acknowledged.
    fn is_acknowledged(&self, packet: &Packet) -> bool {
        let Some(segment) = packet.tcp() else { return false };
        if segment.payload.is_empty() || segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST) {
            return false;
        }
        let flow = Connection::of(Direction::Outgoing, packet).and_then(|connection| self.path.flow(connection));
        flow.is_some_and(|flow| is_redundant(flow, segment.seq + segment.seq_len()))
    }
}

#[cfg(test)]
impl GatewayDaemon {
    pub(crate) fn path_mut(&mut self) -> &mut FlowPath {
        &mut self.path
    }
}

impl SegmentFilter for GatewayDaemon {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        if direction == Direction::Outgoing
            && let Some(thesis) = self.thesis
        {
            thesis.sign.mark(packet, false);
        }
        let mut verdict = self.path.follow(now, direction, packet);
        match direction {
            Direction::Outgoing if verdict == Verdict::Pass => verdict = self.divert(now, packet),
            Direction::Outgoing => {}
            Direction::Incoming => self.hear(now, packet),
        }
        self.advance(now);
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        self.diverter.handle_report(now, self.path.host_of(mobile), Source::Station, presence);
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.path.handle_timeout(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.released.pop_front().or_else(|| self.path.poll_transmit())
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.path.poll_action()
    }

    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.path.poll_outcome()
    }

    fn stored(&self) -> Stored {
        let waiting = Stored { bytes: self.diverter.waiting_bytes(), connections: 0 };
        waiting + Stored::of_connections(self.path.live().map(|_| 0))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.path.poll_timeout().into_iter().chain(self.diverter.poll_timeout()).min()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Fragment, Payload, Segment, Udp};

    use super::*;

    const FIXED: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
    const MOBILE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 7));

    /// The verdict on a packet for a mobile host that is away.
    fn verdict_on(payload: impl Into<Payload>, mode: Mode) -> Verdict {
        let now = Instant::from_secs(1);
        let mut daemon = GatewayDaemon::new(DaemonConfig { mode, ..DaemonConfig::default() });
        daemon.handle_mobile(now, MOBILE, Presence::Away);
        daemon.handle_packet(now, Direction::Outgoing, &mut Packet::new(FIXED, MOBILE, payload))
    }

    fn fragment(protocol: u8) -> Payload {
        Payload::Fragment(Fragment { id: 1, offset: 8, more: false, protocol, payload: Bytes::from_static(&[7; 16]) })
    }

    // Claim: The modes that keep TCP packets only keep their fragments as well, and nothing of other protocols.
    #[test]
    fn fragments_are_kept_as_what_they_are_parts_of() {
        let segment = || Segment { src_port: 80, dst_port: 1000, flags: Flags::ACK, ..Segment::default() };
        let datagram = || Udp { src_port: 53, dst_port: 1000, payload: Bytes::new() };
        assert_eq!(verdict_on(segment(), Mode::Thesis), Verdict::Keep);
        assert_eq!(verdict_on(fragment(6), Mode::Thesis), Verdict::Keep);
        assert_eq!(verdict_on(fragment(17), Mode::Thesis), Verdict::Pass);
        assert_eq!(verdict_on(Payload::Udp(datagram()), Mode::Thesis), Verdict::Pass);
        for payload in [Payload::Tcp(segment()), fragment(6), fragment(17), Payload::Udp(datagram())] {
            assert_eq!(verdict_on(payload.clone(), Mode::Buffer), Verdict::Keep);
            assert_eq!(verdict_on(payload, Mode::Observe), Verdict::Pass);
        }
    }
}
