//! The filter's part in silence of its link, which [`crate::silence`] detects, and copies of the host's own segments.
//!
//! The filter sees every packet of the host, so it counts them itself. It sees no next hops: peers alone are probed. Nor does it see sockets:
//! a connection counts as open until its packets end it.

use std::collections::VecDeque;
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::Connection;
use holdover_flow::{Flow, FlowTable as _};
use holdover_wire::{Flags, Packet, Segment};

use super::{InMemory, Wake};
use crate::silence::{Act, SilenceOptions, SilenceWatch, Surveyor, Traffic, comes_from_beyond};
use crate::wake::own_segments::{Beside, LONGEST_KEPT, LONGEST_SHORT, OwnSegments, PeerProbe, SocketState};
use crate::wake::peer_probes::PeerProbes;
use crate::{Direction, Injected, LinkEvent};

/// The detector, and what it counts.
#[derive(Clone, Debug)]
pub(super) struct Detection {
    watch: SilenceWatch,
    traffic: Traffic,
    peer_probes: PeerProbes,
    /// Link-down is reported: silence is not detected.
    is_down: bool,
}

/// The host's own segments, and packets made from them.
#[derive(Clone, Debug)]
pub(super) struct OwnCopies {
    segments: OwnSegments,
    /// Whether segments are kept.
    is_kept: bool,
    ready: VecDeque<Injected>,
}

/// A transmission of a segment of the host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transmission {
    /// The first.
    First,
    /// A retransmission.
    Again,
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
            LinkEvent::Down => {
                self.is_down = true;
                self.watch.handle_link(now);
            }
            LinkEvent::Up { .. } => self.handle_up(now),
            LinkEvent::Fading { .. } | LinkEvent::Recovered => {}
        }
    }

    /// The link is up, or a path over it is.
    fn handle_up(&mut self, now: Instant) {
        self.is_down = false;
        // The packets of the outage are no sign of another one.
        self.watch.handle_traffic(now, self.traffic, true);
        self.watch.handle_link(now);
    }

    /// Packets arrive over a link that is reported down: it is up.
    pub(super) fn handle_arrivals(&mut self, now: Instant) {
        if self.is_down {
            self.handle_up(now);
        }
    }
}

impl Default for OwnCopies {
    fn default() -> Self {
        Self { segments: OwnSegments::of_any_stack(), is_kept: false, ready: VecDeque::new() }
    }
}

impl OwnCopies {
    /// Keeps segments.
    fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The transmission that a packet is, if it is to be kept: of a segment of the host's while the link is not calm, and of a short one again. A
    /// retransmission on a calm link may be the first sign of an outage. To be called before the flow path handles the packet.
    pub(super) fn to_be_kept(
        &self,
        direction: Direction,
        packet: &Packet,
        segment: &Segment,
        path: &InMemory,
        connection: Connection,
    ) -> Option<Transmission> {
        let has_data = direction == Direction::Outgoing && !segment.payload.is_empty();
        let longest = if path.link.is_calm() { LONGEST_SHORT } else { LONGEST_KEPT };
        if !self.is_kept || !has_data || packet.wire_len() > longest {
            return None;
        }
        if path.flows.get(connection).is_some_and(|flow| flow.was_forwarded(segment.seq)) {
            return Some(Transmission::Again);
        }
        (!path.link.is_calm()).then_some(Transmission::First)
    }

    /// Notes a packet that the host has sent: keeps the `transmission`, if it is one of the first unacknowledged segment. Drops what is kept of
    /// an earlier connection with these addresses and ports, and of one that the host resets.
    pub(super) fn note(
        &mut self,
        connection: Connection,
        packet: &Packet,
        transmission: Option<Transmission>,
        path: &InMemory,
    ) {
        if !self.is_kept {
            return;
        }
        let Some((flow, segment)) = path.flows.get(connection).zip(packet.tcp()) else { return };
        if segment.flags.contains(Flags::SYN) || flow.is_over() {
            return self.segments.forget(connection);
        }
        if let Some(transmission) = transmission
            && flow.half(Direction::Incoming).acked() == Some(segment.seq)
        {
            self.segments.note(packet, transmission == Transmission::Again);
        }
    }

    /// Forgets a segment that is acknowledged, unless copies of it may have left: later packets keep up with their TSval.
    pub(super) fn review(&mut self, connection: Connection, path: &InMemory) {
        if self.is_kept
            && let Some(flow) = path.flows.get(connection)
            && (path.link.is_calm() || flow.is_over())
        {
            self.segments.review(connection, flow);
        }
    }

    /// The outage is over, or an outage of the path to a peer.
    pub(super) fn begin_return(&mut self) {
        self.segments.begin_return();
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
        // The segments are kept when the host moves: a connection whose address is gone is of no use to anyone, with or without copies.
        if matches!(event, LinkEvent::Up { .. }) {
            self.own.begin_return();
        }
        if let Some(detection) = &mut self.detection {
            detection.handle_link(now, event);
        }
    }

    /// An event of the path to one peer. Its return shows that the link is up: a host that moves learns of it in this way only.
    pub(super) fn note_peer(&mut self, now: Instant, peer: &[IpAddr], event: LinkEvent) {
        if !matches!(event, LinkEvent::Up { .. }) {
            return;
        }
        self.own.segments.begin_return_of(peer);
        if let Some(detection) = &mut self.detection {
            detection.handle_up(now);
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
        // The controller notes no silence while the path to some peer is down.
        let is_listening = control.silent_since().is_some() || !control.link.is_up();
        detection.watch.handle_traffic(now, detection.traffic, is_listening);
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
                    // Otherwise the packet that arrived has ended it.
                    if control.silent_since().is_some() {
                        own.begin_return();
                        control.end_silence(now, path);
                    }
                }
                // The filter has no next hops and no arbiter.
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

impl OwnCopies {
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

#[cfg(test)]
mod tests;
