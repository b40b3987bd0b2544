//! The filter's part in silence of its link, which [`crate::silence`] detects, and copies of the host's own segments.
//!
//! The filter sees every packet of the host, so it counts them itself. It sees no next hops: peers alone are probed. Nor does it see sockets:
//! a connection counts as open until its packets end it.

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_filter::Connection;
use holdover_flow::{Flow, FlowTable as _};
use holdover_wire::{Packet, Segment};

use super::{InMemory, Wake};
use crate::silence::{Act, SilenceOptions, SilenceWatch, Surveyor, Traffic, comes_from_beyond};
use crate::wake::own_segments::{Beside, LONGEST_KEPT, OwnSegments, PeerProbe, SocketState};
use crate::wake::peer_probes::PeerProbes;
use crate::{Direction, Injected, LinkEvent};

/// The detector, and what it counts.
#[derive(Clone, Debug)]
pub(super) struct Detection {
    watch: SilenceWatch,
    traffic: Traffic,
    peer_probes: PeerProbes,
    /// The link is reported down: its silence is no news.
    is_down: bool,
}

/// The host's own segments, and packets made from them.
#[derive(Clone, Default, Debug)]
pub(super) struct OwnData {
    segments: OwnSegments,
    /// Whether segments are kept.
    is_kept: bool,
    ready: VecDeque<Injected>,
}

impl Detection {
    fn new(options: SilenceOptions) -> Self {
        let (mut watch, traffic) = (SilenceWatch::new(Instant::ZERO, options), Traffic::default());
        // It is at rest until the first packet.
        watch.handle_traffic(Instant::ZERO, traffic, true);
        Self { watch, traffic, peer_probes: PeerProbes::default(), is_down: false }
    }

    /// Counts a packet of TCP.
    fn note_tcp(&mut self, now: Instant, direction: Direction) {
        if self.watch.is_at_rest() {
            self.watch.handle_activity(now);
        }
        match direction {
            Direction::Outgoing => self.traffic.tcp_sent += 1,
            Direction::Incoming => self.traffic.tcp_received += 1,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_down && !self.watch.is_at_rest()).then(|| self.watch.poll_timeout())
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Down => self.is_down = true,
            LinkEvent::Up { .. } => {
                self.is_down = false;
                // The packets of the outage are no sign of another one.
                self.watch.handle_traffic(now, self.traffic, true);
            }
            LinkEvent::Fading { .. } | LinkEvent::Recovered => return,
        }
        self.watch.handle_link(now);
    }
}

impl OwnData {
    /// Keeps segments.
    fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Whether a packet of the host carries data that have passed before; `None` if it is none to be kept. To be called before the flow path
    /// handles the packet. A retransmission on a calm link may be the first sign of an outage.
    pub(super) fn may_keep(
        &self,
        direction: Direction,
        packet: &Packet,
        segment: &Segment,
        path: &InMemory,
        connection: Connection,
    ) -> Option<bool> {
        let is_short = direction == Direction::Outgoing && !segment.payload.is_empty();
        if !self.is_kept || !is_short || packet.wire_len() > LONGEST_KEPT {
            return None;
        }
        let is_again = path.flows.get(connection).is_some_and(|flow| flow.was_forwarded(segment.seq));
        (is_again || !path.link.is_calm()).then_some(is_again)
    }

    /// Keeps such a packet, which has passed, if it is the first unacknowledged segment.
    pub(super) fn note(&mut self, packet: &Packet, is_again: bool, flow: Option<&Flow>) {
        let first = flow.and_then(|flow| flow.half(Direction::Incoming).acked());
        if packet.tcp().is_some_and(|segment| first == Some(segment.seq)) {
            self.segments.note(packet, is_again);
        }
    }

    /// Forgets a segment that is acknowledged, unless copies of it may have left: later packets keep up with their TSval.
    pub(super) fn review(&mut self, connection: Connection, path: &InMemory) {
        if self.is_kept
            && path.link.is_calm()
            && let Some(flow) = path.flows.get(connection)
        {
            self.segments.review(connection, flow);
        }
    }

    fn handle_link(&mut self, event: LinkEvent) {
        if let LinkEvent::Up { moved, .. } = event {
            if moved {
                // From addresses that are gone.
                self.segments.clear();
            }
            self.segments.begin_return();
        }
    }

    fn send(&mut self, connection: Connection, mut injected: Injected) {
        self.segments.raise_timestamp(connection, &mut injected);
        self.ready.push_back(injected);
    }
}

impl Wake {
    /// Detects silence of the link, which no link event reports.
    #[must_use]
    pub fn detecting_silence(mut self, options: SilenceOptions) -> Self {
        self.detection = Some(Box::new(Detection::new(options)));
        self
    }

    /// Sends copies of the host's first unacknowledged segments.
    #[must_use]
    pub fn copying_own_data(mut self) -> Self {
        self.own.keep();
        self
    }

    /// A packet of TCP.
    pub(super) fn note_tcp(&mut self, now: Instant, direction: Direction) {
        if let Some(detection) = &mut self.detection {
            detection.note_tcp(now, direction);
        }
    }

    /// A packet that has no part in the mechanism.
    pub(super) fn note_other(&mut self, direction: Direction, packet: &Packet) {
        if let Some(detection) = &mut self.detection
            && direction == Direction::Incoming
            && self.control.silent_since().is_some()
            && comes_from_beyond(packet)
        {
            detection.traffic.others_received += 1;
        }
    }

    pub(super) fn note_link(&mut self, now: Instant, event: LinkEvent) {
        self.own.handle_link(event);
        if let Some(detection) = &mut self.detection {
            detection.handle_link(now, event);
        }
    }

    pub(super) fn detects_next_at(&self) -> Option<Instant> {
        self.detection.as_ref().and_then(|detection| detection.poll_timeout())
    }

    /// Reads the counters, if that is due.
    pub(super) fn detect(&mut self, now: Instant) {
        if self.detects_next_at().is_none_or(|at| at > now) {
            return;
        }
        let Self { control, path, detection: Some(detection), own } = self else { return };
        detection.watch.handle_traffic(now, detection.traffic, control.silent_since().is_some());
        while let Some(act) = detection.watch.poll_act() {
            match act {
                Act::Survey => {
                    let mut surveyor = Surveyor::default();
                    for (connection, flow) in path.flows.live() {
                        surveyor.note(connection, flow, || own.segments.is_sent_again(connection, flow));
                    }
                    detection.watch.handle_survey(now, &surveyor.finish());
                }
                Act::Listen { since } => {
                    detection.peer_probes = PeerProbes::default();
                    control.handle_silence(since, path);
                }
                Act::AskPeer(connection) => {
                    let Some(flow) = path.snapshot(connection).filter(|flow| !flow.is_over()) else { continue };
                    let release = detection.peer_probes.release(now, connection, &flow, control, &own.segments);
                    release.packets.into_iter().for_each(|injected| own.send(connection, injected));
                    if release.is_followed {
                        own.ask(now, connection, &flow);
                    }
                }
                Act::End => {
                    own.segments.begin_return();
                    control.end_silence(now, path);
                }
                // There are none here, and nobody is told.
                Act::AskNextHops { .. } | Act::TellDown { .. } => {}
            }
        }
    }

    /// The next packet: copies of the host's data go out before messages, and in place of probes.
    pub(super) fn next_packet(&mut self, now: Instant) -> Option<Injected> {
        let Self { control, path, own, .. } = self;
        if let Some(injected) = own.ready.pop_front() {
            return Some(injected);
        }
        let (connection, injected) = control.poll_transmit()?;
        let flow = path.flows.get(connection).filter(|_| own.segments.has(connection));
        let beside = flow.map_or(Beside::Nothing, |flow| {
            own.segments.beside(now, connection, &injected, flow, |_| SocketState::Open)
        });
        match beside {
            Beside::Nothing => own.send(connection, injected),
            Beside::Instead(packet) => own.ready.push_back(Injected { direction: Direction::Outgoing, packet }),
            Beside::Before(packet) => {
                own.ready.push_back(Injected { direction: Direction::Outgoing, packet });
                own.send(connection, injected);
            }
        }
        own.ready.pop_front()
    }
}

impl OwnData {
    /// Probes a peer by a packet that it answers.
    fn ask(&mut self, now: Instant, connection: Connection, flow: &Flow) {
        let packet = match self.segments.peer_probe(now, connection, flow, |_| SocketState::Open) {
            Some(PeerProbe::Copy(packet)) => Injected { direction: Direction::Outgoing, packet },
            Some(PeerProbe::KeepAlive(packet)) => {
                return self.send(connection, Injected { direction: Direction::Outgoing, packet });
            }
            None => return,
        };
        self.ready.push_back(packet);
    }
}
