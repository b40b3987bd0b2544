//! Handoff: buffered packets of a mobile host at another gateway are sent there, and those from other gateways are
//! stored.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_gateway::divert::Loss;
use holdover_host::{Offload, clock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Engine;
use crate::cluster::{Admission, Evidence};
use crate::config::Waiting;
use crate::handoff::{Event, Handoff, HandoffCounters, LONGEST_PACKET};
use crate::network::destination;
use crate::packet_files::Stored;

/// How long the end of the daemon waits for confirmations of other gateways.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(500);

impl Engine {
    /// Readable when another gateway has sent a datagram.
    pub(crate) fn handoff_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.handoff.as_ref().map(Handoff::descriptor)
    }

    pub(crate) fn handoffs(&self) -> Option<HandoffCounters> {
        self.handoff.as_ref().map(Handoff::counters)
    }

    /// Handles datagrams of other gateways.
    pub(crate) fn handle_handoff(&mut self, now: Instant) {
        let Self { handoff, cluster, .. } = self;
        let Some(handoff) = handoff else { return };
        handoff.handle_ready(now, &mut |mobile, epoch, peer| match cluster {
            Some(cluster) => cluster.ownership.handle_peer_claim(now, mobile, epoch, peer),
            None => Admission::Admitted,
        });
    }

    /// A mobile host is here, by a packet or a command at `heard_at`: requests its packets from the other gateways.
    pub(crate) fn claim(&mut self, now: Instant, address: IpAddr, heard_at: Instant) -> Result<(), String> {
        if !self.serves(address) {
            return Err(format!("{address} is no mobile host behind {}: [mobiles] networks", self.interface.name));
        }
        let mobile = self.path.host_of(address);
        let is_clustered = self.claim_in_cluster(now, mobile, Evidence::Heard(heard_at));
        let handoff = self.handoff.as_mut().ok_or("there are no other gateways: [handoff]")?;
        self.attachments.note_here(mobile);
        self.moves.note_here(mobile);
        if !is_clustered {
            tracing::info!(%mobile, "claimed from the other gateways");
            handoff.claim_from_all(now, mobile);
        }
        Ok(())
    }

    /// Handles requests of other gateways.
    pub(super) fn serve_handoffs(&mut self, now: Instant) {
        if let Some(handoff) = &mut self.handoff {
            handoff.handle_timeout(now);
        }
        while let Some(event) = self.handoff.as_mut().and_then(Handoff::poll_event) {
            match event {
                Event::Claimed { mobile } => {
                    tracing::info!(%mobile, "moved to another gateway");
                    self.attachments.note_moved(now, mobile, &mut self.diverter);
                }
                Event::RecordsWanted { transfer } => {
                    let seen = self.path.seen(transfer.0);
                    self.moves.note_wanted(transfer, seen);
                }
                Event::Records { mobile, bytes, are_last } => self.take_in_records(now, mobile, bytes, are_last),
                Event::RecordsLost { mobile, records } => {
                    tracing::info!(%mobile, records, "another gateway does not get to know connections");
                }
                Event::Packet { mobile, bytes } => self.take_in(now, mobile, &bytes),
                Event::Done { mobile, packets } => tracing::info!(%mobile, packets, "arrived from another gateway"),
                Event::Lost { mobile, peer, packets } => {
                    tracing::info!(%mobile, %peer, packets, "a gateway does not answer");
                }
                Event::Offered { mobile, epoch, peer } => {
                    let own =
                        self.cluster.as_ref().and_then(|cluster| cluster.ownership.answer_to_offer(mobile, epoch));
                    if let (Some(own), Some(handoff)) = (own, &mut self.handoff) {
                        handoff.claim(now, mobile, own, peer);
                    }
                }
                Event::Inquired { mobile, peer } => {
                    if let Some(handoff) = &mut self.handoff
                        && self.attachments.handle_inquiry(now, mobile, &self.diverter)
                    {
                        handoff.answer_inquiry(mobile, peer);
                    }
                    self.look_at = now;
                }
                Event::NotThere { mobile } => self.probe_overheard(mobile),
                Event::Refused { mobile } => {
                    tracing::info!(%mobile, "another gateway knows a later owner");
                    if let Some(cluster) = &mut self.cluster {
                        cluster.ownership.handle_refusal();
                    }
                }
            }
        }
        self.hand_connections_on(now);
        self.see_off(now);
        self.attachments.expire(now, self.config.presence.forget_after.0);
    }

    /// Drops the state of mobile hosts that have moved once their packets are sent; until then, offers these.
    fn see_off(&mut self, now: Instant) {
        let Some(handoff) = &mut self.handoff else { return };
        let ownership = self.cluster.as_ref().map(|cluster| &cluster.ownership);
        for mobile in self.attachments.see_off(now, &mut self.diverter, ownership, handoff) {
            self.forget_path(mobile);
        }
    }

    /// Drops the state of a mobile host in the path.
    pub(super) fn forget_path(&mut self, mobile: IpAddr) {
        if self.moves.forget(mobile) {
            // Its last packets have begun new entries.
            self.path.forget_connections(mobile);
        }
        self.path.forget(mobile);
        self.prober.ask_now(mobile);
        self.behind.forget(mobile);
        if let Some(echo) = &mut self.echo {
            echo.forget(mobile);
        }
        if let Some(waker) = &mut self.waker {
            waker.forget(mobile);
        }
    }

    /// The daemon ends: waits until other gateways have confirmed the packets handed on to them. Unconfirmed packets are stored again for
    /// the next process, before those that still wait; that process offers them to the other gateways.
    pub(crate) fn finish_handoffs(&mut self) {
        let until = clock::now() + CONFIRMED_WITHIN;
        loop {
            let now = clock::now();
            let Some(handoff) = self.handoff.as_ref().filter(|handoff| !handoff.is_confirmed() && now < until) else {
                break;
            };
            let at = handoff.poll_timeout().map_or(until, |at| at.min(until));
            let patience = Timespec { tv_sec: 0, tv_nsec: at.saturating_since(now).as_nanos() as _ };
            // After an interruption the next round checks again.
            let _ = poll(&mut [PollFd::new(&handoff.descriptor(), PollFlags::IN)], Some(&patience));
            self.handle_handoff(clock::now());
            // Claims may have come.
            let now = clock::now();
            self.path.begin_turn(now);
            self.serve_handoffs(now);
            self.inject(now);
        }
        let unconfirmed = self.handoff.as_mut().map(Handoff::take_unconfirmed).unwrap_or_default();
        if !unconfirmed.is_empty() {
            let packets = unconfirmed.values().map(Vec::len).sum::<usize>();
            tracing::info!(packets, "kept packets that other gateways have not confirmed");
        }
        let now = clock::now();
        for (mobile, packets) in unconfirmed {
            let packets: Vec<(Offload, &[u8])> = packets.iter().filter_map(|bytes| split_offload(bytes)).collect();
            if let Err(error) = self.packet_files.prepend(mobile, now, &packets) {
                tracing::warn!(%error, %mobile, packets = packets.len(), "cannot store packets");
            }
        }
    }

    /// A packet has arrived from the mobile host's former gateway.
    pub(super) fn take_in(&mut self, now: Instant, mobile: IpAddr, bytes: &[u8]) {
        let Some((offload, packet)) = split_offload(bytes) else { return };
        let is_for_it = destination(packet).is_some_and(|address| self.path.host_of(address) == mobile);
        if !is_for_it || !self.serves(mobile) {
            return;
        }
        let Self { packet_files, diverter, .. } = self;
        let stored = diverter.handle_packet(now, mobile, packet.len() as u32, || {
            let appended = packet_files.append(mobile, now, offload, packet);
            appended.inspect_err(|error| tracing::warn!(%error, %mobile, "cannot store a packet")).ok()
        });
        if let Err(loss) = stored {
            tracing::trace!(?loss, %mobile, "dropped a packet");
        }
    }

    /// Whether packets that wait for mobile hosts of other gateways are dropped.
    pub(super) fn drops_waiting(&self) -> bool {
        self.config.handoff.waiting == Waiting::Drop
    }

    /// Drops all packets that wait for a mobile host, which has moved to another gateway.
    pub(super) fn drop_waiting(&mut self, now: Instant, mobile: IpAddr) {
        let waiting = self.diverter.status(mobile).map_or(0, |status| status.waiting);
        self.diverter.discard(now, mobile, Loss::Moved);
        self.discard();
        if let Some(handoff) = &mut self.handoff {
            handoff.note_dropped(waiting as u64);
        }
    }

    /// Hands the next packet to the gateway to which its mobile host has moved. Returns whether there was room.
    pub(super) fn hand_on(&mut self, mobile: IpAddr, stored: Stored) -> bool {
        let Some(handoff) = &mut self.handoff else { return false };
        match self.packet_files.read(mobile, stored, &mut self.packet) {
            Ok(offload) if self.packet.len() <= LONGEST_PACKET => {
                handoff.hand_on(self.advanced_at, mobile, [&offload.to_bytes()[..], &self.packet].concat())
            }
            Ok(_) | Err(_) => {
                self.unsendable.refused += 1;
                true
            }
        }
    }
}

/// A packet between gateways: its offload header, and the rest.
fn split_offload(bytes: &[u8]) -> Option<(Offload, &[u8])> {
    let (offload, packet) = bytes.split_at_checked(Offload::LEN)?;
    Some((Offload::from_bytes(offload), packet))
}
