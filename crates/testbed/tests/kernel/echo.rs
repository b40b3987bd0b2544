//! An endpoint that answers: ICMP echo requests and UDP datagrams of both families are returned to their source.

use std::collections::VecDeque;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_testbed::PacketEndpoint;
use holdover_wire::{IcmpEcho, Packet, Payload, Udp};

/// Answers packets to `address`, each answer `delay` after its request.
#[derive(Debug)]
pub(crate) struct Echo {
    address: IpAddr,
    delay: Duration,
    answers: VecDeque<(Instant, Packet)>,
    /// Answers that are due.
    ready: VecDeque<Packet>,
    /// Every packet to `address`, as it arrived.
    pub(crate) received: Vec<Packet>,
    /// The lateness of `handle_timeout`, for each answer; an early call is a failure of the shell.
    pub(crate) lateness: Vec<Duration>,
}

impl Echo {
    pub(crate) fn new(address: impl Into<IpAddr>, delay: Duration) -> Self {
        Self {
            address: address.into(),
            delay,
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            received: Vec::new(),
            lateness: Vec::new(),
        }
    }
}

impl PacketEndpoint for Echo {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        if packet.dst != self.address {
            return;
        }
        if let Some(answer) = answer(&packet) {
            self.answers.push_back((now + self.delay, answer));
        }
        self.received.push(packet);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.ready.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.answers.front().map(|(due, _)| *due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        let (due, _) = self.answers.front().expect("called for a deadline");
        self.lateness.push(now.checked_since(*due).expect("not before the deadline"));
        while let Some((_, answer)) = self.answers.pop_front_if(|(due, _)| *due <= now) {
            self.ready.push_back(answer);
        }
    }
}

fn answer(packet: &Packet) -> Option<Packet> {
    let payload = match &packet.payload {
        Payload::Udp(udp) => {
            Payload::Udp(Udp { src_port: udp.dst_port, dst_port: udp.src_port, payload: udp.payload.clone() })
        }
        Payload::IcmpEcho(echo) if !echo.reply => Payload::IcmpEcho(IcmpEcho { reply: true, ..echo.clone() }),
        _ => return None,
    };
    Some(Packet::new(packet.dst, packet.src, payload))
}
