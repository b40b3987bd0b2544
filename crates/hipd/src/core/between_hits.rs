//! Packets in ESP between the HITs of their hosts, in place of their addresses.
//!
//! In BEET mode the checksums of inner packets cover the HITs, which are not in the packet (RFC 7402 section 3.2 and appendix B). A program
//! that decrypts a capture, as Wireshark does, sums over the outer addresses, and calls the checksums wrong. ESP does not cover the outer
//! addresses: with the HITs there, the same packets decrypt alike, and their checksums are right.

use std::collections::BTreeMap;

use holdover_hip::codec::{HipPacket, Parameter};
use holdover_hip::identity::Hit;
use holdover_wire::{Packet, Payload};
use serde::Serialize;

use super::encapsulation::{Carried, open};

/// See the module's documentation. It learns the hosts of each SPI from the HIP packets before.
#[derive(Clone, Default, Debug)]
pub struct BetweenHits {
    /// Source and destination of packets with an SPI, by the announcements (ESP_INFO) of the destination. None was verified.
    ends: BTreeMap<u32, (Hit, Hit)>,
    counts: BetweenHitsCounts,
}

/// What was in a capture.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct BetweenHitsCounts {
    /// HIP packets.
    pub hip: u64,
    /// Packets in ESP that have the HITs now.
    pub esp: u64,
    /// Packets in ESP of which no HIP packet has announced the SPI.
    pub unknown: u64,
    /// Fragments: they are not reassembled.
    pub fragments: u64,
}

impl BetweenHits {
    /// The counters.
    pub const fn counts(&self) -> BetweenHitsCounts {
        self.counts
    }

    /// Takes the next packet. Returns it with the HITs as addresses if it is one in ESP, in UDP or not, between known hosts.
    pub fn take(&mut self, packet: Packet) -> Option<Packet> {
        let packet = match &packet.payload {
            Payload::Fragment(_) => {
                self.counts.fragments += 1;
                return None;
            }
            Payload::Udp(udp) => match open(&packet, udp) {
                Carried::Hip(packet) | Carried::Esp(packet) => packet,
                Carried::KeepAlive | Carried::Nothing => return None,
            },
            _ => packet,
        };
        if let Payload::Esp(esp) = &packet.payload {
            let spi = esp.first_chunk().map(|spi| u32::from_be_bytes(*spi));
            let Some((src, dst)) = spi.and_then(|spi| self.ends.get(&spi)) else {
                self.counts.unknown += 1;
                return None;
            };
            self.counts.esp += 1;
            return Some(Packet { src: src.0.into(), dst: dst.0.into(), received: None, ..packet });
        }
        let hip = HipPacket::parse(&packet).ok()?.packet;
        self.counts.hip += 1;
        for parameter in &hip.parameters {
            if let Parameter::EspInfo(info) = parameter
                && info.new_spi != 0
            {
                self.ends.insert(info.new_spi, (hip.receiver, hip.sender));
            }
        }
        None
    }
}
