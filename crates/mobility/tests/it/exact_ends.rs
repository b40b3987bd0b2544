//! With true or false link events, every byte delivered is correct, and no ACK exceeds the data that a TCP has.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_tcp::{Connection, Endpoint, EndpointConfig, Profile, RetryLimit};
use holdover_wire::Packet;
use proptest::prelude::*;

use crate::support::*;

const BYTES: usize = 300_000;
const PORT: u16 = 80;
const DELAY: Duration = Duration::from_millis(25);

/// The byte at a position of the stream: nearby parts of the stream differ.
fn stream_byte(position: usize) -> u8 {
    ((position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// An event of the link, true or false.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The link breaks, whatever events are reported.
    Breaks,
    /// The link works.
    Works,
    /// A link event is reported to the mobile host, true or false.
    Said(LinkEvent),
}

struct Transfer {
    now: Instant,
    /// The mobile host, and its server.
    ends: [Endpoint; 2],
    chain: Chain,
    /// The packets in flight to each end, with their times of arrival.
    under_way: [VecDeque<(Instant, Packet)>; 2],
    works: bool,
    loss: f64,
    rng: Rng,
    /// The index of the sender of data.
    sender: usize,
    written: usize,
    read: usize,
}

fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, end as u8 + 1])
}

/// Data begins this many bytes before the sequence number wraps around.
const BEFORE_THE_WRAP: u32 = 100_000;

impl Transfer {
    fn new(mechanisms: &Mechanisms, profile: Profile, sender: usize, loss: f64, seed: u64) -> Self {
        let start = |now: Instant| {
            let endpoint = |end| Endpoint::new(EndpointConfig { addresses: vec![address(end)], secret: [7; 16] });
            let mut config = profile.config();
            // Retransmissions into a dead link that is reported as working must not end the connection.
            config.limits.r2 = RetryLimit::Never;
            config.limits.syn_retries = u32::MAX;
            let config = Arc::new(config);
            let mut ends = [endpoint(0), endpoint(1)];
            ends[1 - sender].listen(PORT, Arc::clone(&config), 1).expect("a listener");
            let remote = SocketAddr::new(address(1 - sender), PORT);
            ends[sender].connect(now, config, None, remote).expect("a connection");
            ends
        };
        // The clock for initial sequence numbers ticks every 4 µs (RFC 9293 section 3.4.1).
        let isn = tcp(&mut start(Instant::ZERO)[sender]).expect("a connection").snd_una();
        let ticks = 0_u32.wrapping_sub(BEFORE_THE_WRAP).wrapping_sub(isn.value());
        let now = Instant::ZERO + Duration::from_micros(u64::from(ticks) * 4);
        let mut ends = start(now);
        let isn = tcp(&mut ends[sender]).expect("a connection").snd_una();
        assert_eq!(isn.value().wrapping_add(BEFORE_THE_WRAP), 0);
        Self {
            now,
            ends,
            chain: mechanisms.chain(),
            under_way: [VecDeque::new(), VecDeque::new()],
            works: true,
            loss,
            rng: Rng::new(seed),
            sender,
            written: 0,
            read: 0,
        }
    }

    /// Runs until all data is read and acknowledged, or for ten hours: slow progress is allowed.
    fn run(&mut self, plan: &[(u64, Happening)]) -> bool {
        let start = self.now;
        let mut plan: VecDeque<_> = plan.iter().map(|(at, what)| (start + ms(*at), *what)).collect();
        self.serve();
        while !(plan.is_empty() && self.read == BYTES && self.is_acknowledged()) {
            let arrivals = self.under_way.iter().filter_map(|queue| queue.front().map(|(at, _)| *at));
            let timers = self.ends.iter().filter_map(Endpoint::poll_timeout).chain(self.chain.poll_timeout());
            let Some(next) = arrivals.chain(timers).chain(plan.front().map(|(at, _)| *at)).min() else { return false };
            self.now = self.now.max(next);
            if self.now.saturating_since(start) > Duration::from_secs(36_000) {
                return false;
            }
            while let Some((_, what)) = plan.pop_front_if(|(at, _)| *at <= self.now) {
                self.happens(what);
            }
            for end in 0..2 {
                while let Some((_, packet)) = self.under_way[end].pop_front_if(|(at, _)| *at <= self.now) {
                    self.arrives(end, packet);
                }
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            self.chain.handle_timeout(self.now);
            self.chain.steer(self.now, &mut self.ends[0]);
            self.serve();
        }
        true
    }

    fn is_acknowledged(&mut self) -> bool {
        tcp(&mut self.ends[self.sender]).is_some_and(|tcp| tcp.send_queue_len() == 0)
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Breaks => self.works = false,
            Happening::Works => self.works = true,
            Happening::Said(event) => {
                self.chain.handle_link(self.now, event);
                self.chain.steer(self.now, &mut self.ends[0]);
            }
        }
    }

    fn arrives(&mut self, end: usize, mut packet: Packet) {
        if !self.works || self.rng.chance(self.loss) {
            return;
        }
        if end == 0 {
            let verdict = self.chain.handle_packet(self.now, Direction::Incoming, &mut packet);
            if verdict == Verdict::Pass {
                self.ends[0].handle_packet(self.now, &packet);
                self.chain.steer(self.now, &mut self.ends[0]);
            }
        } else {
            self.ends[1].handle_packet(self.now, &packet);
        }
        self.serve();
    }

    /// Serves applications and TCPs until nothing changes any more.
    fn serve(&mut self) {
        loop {
            self.applications();
            let mut moves = false;
            while let Some(Injected { direction, packet }) = self.chain.poll_transmit() {
                moves = true;
                match direction {
                    Direction::Outgoing => self.departs(0, packet),
                    Direction::Incoming => {
                        self.assert_honest(1, &packet);
                        self.ends[0].handle_packet(self.now, &packet);
                        self.chain.steer(self.now, &mut self.ends[0]);
                    }
                }
            }
            for end in 0..2 {
                while let Some(out) = self.ends[end].poll_transmit(self.now) {
                    moves = true;
                    let mut packet = out.packet;
                    let passes = end == 1
                        || self.chain.handle_packet(self.now, Direction::Outgoing, &mut packet) == Verdict::Pass;
                    if passes {
                        self.departs(end, packet);
                    }
                }
                while self.ends[end].poll_event().is_some() {}
            }
            if !moves {
                return;
            }
        }
    }

    fn departs(&mut self, end: usize, packet: Packet) {
        self.assert_honest(end, &packet);
        if self.works && !self.rng.chance(self.loss) {
            self.under_way[1 - end].push_back((self.now + DELAY, packet));
        }
    }

    /// Asserts that the TCP of `end` has the data that its packet acknowledges.
    fn assert_honest(&mut self, end: usize, packet: &Packet) {
        let has = tcp(&mut self.ends[end]).map(|tcp| tcp.rcv_nxt());
        if let (Some(segment), Some(has)) = (packet.tcp().filter(|_| packet.src == address(end)), has)
            && segment.flags.contains(holdover_wire::Flags::ACK)
        {
            assert!(segment.ack.le(has), "{segment:?} of a TCP that has all up to {has}");
        }
    }

    fn applications(&mut self) {
        if let Some(tcp) = tcp(&mut self.ends[self.sender]).filter(|tcp| tcp.state().is_synchronized()) {
            let len = tcp.write_room().min(BYTES - self.written);
            let data: Bytes = (self.written..self.written + len).map(stream_byte).collect();
            self.written += tcp.write(self.now, data);
        }
        if let Some(tcp) = tcp(&mut self.ends[1 - self.sender]) {
            while let Some(data) = tcp.read(self.now) {
                let is_right = data.iter().enumerate().all(|(index, byte)| *byte == stream_byte(self.read + index));
                assert!(is_right, "among the {} bytes from {} on", data.len(), self.read);
                self.read += data.len();
            }
        }
    }
}

fn tcp(end: &mut Endpoint) -> Option<&mut Connection> {
    let id = end.connections().next().map(|(id, _)| id)?;
    end.connection_mut(id)
}

fn happening() -> impl Strategy<Value = Happening> {
    let lead = proptest::option::of((0_u64..1_000).prop_map(ms));
    let up = (any::<bool>(), any::<bool>()).prop_map(|(symmetric, moved)| LinkEvent::Up { symmetric, moved });
    let event = prop_oneof![
        lead.prop_map(|lead| LinkEvent::Fading { lead }),
        Just(LinkEvent::Recovered),
        Just(LinkEvent::Down),
        up
    ];
    prop_oneof![1 => Just(Happening::Breaks), 2 => Just(Happening::Works), 5 => event.prop_map(Happening::Said)]
}

/// Events up to 2 s apart; finally the link works, and is reported as working.
fn plan() -> impl Strategy<Value = Vec<(u64, Happening)>> {
    let happenings = proptest::collection::vec((0_u64..2_000, happening()), 0..16);
    (happenings, any::<bool>()).prop_map(|(happenings, moved)| {
        let mut at = 200;
        let mut plan: Vec<(u64, Happening)> = happenings
            .into_iter()
            .map(|(after, what)| {
                at += after;
                (at, what)
            })
            .collect();
        plan.push((at + 100, Happening::Works));
        plan.push((at + 100, Happening::Said(LinkEvent::Up { symmetric: false, moved })));
        plan
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_right_whatever_is_reported_about_the_link(
        mechanisms in crate::exact::mechanisms(),
        plan in plan(),
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        sender in 0_usize..2,
        loss in prop_oneof![Just(0.0), 0.0..0.05],
        seed in any::<u64>(),
    ) {
        let mut transfer = Transfer::new(&mechanisms, profile, sender, loss, seed);
        let is_complete = transfer.run(&plan);
        prop_assert!(is_complete, "{} of {BYTES} bytes at {}", transfer.read, transfer.now);
    }
}
