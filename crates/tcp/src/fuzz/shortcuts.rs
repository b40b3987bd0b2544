//! Transfers over random paths, in which each arrival and each transmission happens twice, on two copies: with the shortcuts of a transfer
//! (`connection/both_ways.rs`), and step by step.

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_wire::{Flags, Segment, Seq, SeqRange, Unreachable, UserTimeout};

use super::check;
use super::input::{Input, lift_verbs};
use crate::config::{Config, Ecn, KeepAlive, MtuProbing, PathMtuConfig, RetryLimit};
use crate::connection::{AfterRetransmit, Connection, Opening};
use crate::ecn::EcnField;
use crate::profile::Profile;

static DATA: [u8; 4_000] = [b'x'; 4_000];

/// Probabilities of faults, and how much is tried beside.
#[derive(Clone, Copy)]
struct Odds {
    /// A packet is lost, late or out of order, and a reader is late.
    fault: f64,
    /// A packet that may be is marked (RFC 3168).
    mark: f64,
    /// A node on the path changes a segment.
    change: f64,
    /// The owner, the application or a router does something out of the ordinary.
    intervention: f64,
    /// The number of other segments or states that each arrival is tried with, on a copy.
    alternatives: usize,
}

const SMOOTH: Odds = Odds { fault: 0.0, mark: 0.0, change: 0.0, intervention: 0.0, alternatives: 2 };
const ROUGH: Odds = Odds { fault: 0.05, mark: 0.02, change: 0.005, intervention: 0.01, alternatives: 4 };

/// Two connections and the path between them.
struct Pair {
    now: Instant,
    rng: Rng,
    odds: Odds,
    /// Whether both ends send, and close.
    is_dialogue: bool,
    ends: [Connection; 2],
    /// When each segment arrives, and at which end.
    wire: Vec<(Instant, usize, Segment, EcnField)>,
    arrived: u32,
    predicted: u32,
}

impl Pair {
    /// The congestion window is a few segments of these buffers, which are copied again and again.
    fn new(config: Config, seed: u64, odds: Odds) -> Self {
        let opening = |local: &str, remote: &str| Opening {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            iss: Seq::new(u32::MAX - 20_000),
            timestamp_offset: u32::MAX - 2_000,
        };
        let mut config = config;
        config.mss = config.mss.min(160);
        config.send.fix_buffer(config.send.buffer_bytes.min(8_000));
        let config = Arc::new(config);
        let now = Instant::from_secs(1);
        let mut client = Connection::connect(now, Arc::clone(&config), opening("10.0.0.1:1000", "10.0.0.2:80"));
        let syn = client.poll_transmit(now).unwrap();
        let opening = opening("10.0.0.2:80", "10.0.0.1:1000");
        let server = Connection::accept_with_ecn(now, config, opening, &syn.segment, syn.ecn);
        let (rng, ends, wire) = (Rng::new(seed), [client, server], Vec::new());
        let mut pair = Self { now, rng, odds, is_dialogue: true, ends, wire, arrived: 0, predicted: 0 };
        pair.transmit(1);
        pair
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.rng.chance(0.1) || !self.step() {
                self.write();
            }
            if self.rng.chance(self.odds.intervention) {
                self.intervene();
            }
        }
    }

    /// The next arrival or deadline. Returns whether there is one.
    fn step(&mut self) -> bool {
        let deadlines = self.ends.iter().filter_map(|end| end.poll_timeout().map(|(at, _)| at));
        let arrivals = self.wire.iter().map(|&(at, ..)| at);
        let Some(next) = deadlines.chain(arrivals).min() else { return false };
        self.now = next.max(self.now);
        let due = self.wire.iter().position(|&(at, ..)| at <= self.now);
        if let Some((_, end, segment, ecn)) = due.map(|index| self.wire.remove(index)) {
            self.arrive(end, &segment, ecn);
        }
        for end in 0..2 {
            self.ends[end].handle_timeout(self.now);
            self.transmit(end);
        }
        true
    }

    /// An application writes or closes, sometimes.
    fn write(&mut self) {
        let end = usize::from(self.is_dialogue && self.rng.chance(0.1));
        let len = match self.rng.below(4) {
            0 => self.rng.below(200),
            _ => self.rng.below(DATA.len() as u64),
        };
        let data = Bytes::from_static(&DATA[..len as usize]);
        if self.rng.chance(self.odds.intervention) {
            self.ends[end].write_more(self.now, data);
        } else {
            self.ends[end].write(self.now, data);
        }
        if self.is_dialogue && self.rng.chance(0.01) {
            self.ends[end].shutdown_write();
        }
        self.transmit(end);
    }

    fn transmit(&mut self, end: usize) {
        while let Some(sent) = self.ends[end].poll_transmit_both_ways(self.now) {
            check(&self.ends[end]);
            let (mut segment, mut ecn) = (sent.segment, sent.ecn);
            if self.rng.chance(self.odds.change) {
                change(&mut self.rng, &self.ends[1 - end], &mut segment);
            }
            if ecn != EcnField::NotEct && self.rng.chance(self.odds.mark) {
                ecn = EcnField::Ce;
            }
            let delay = 10_000 + if self.rng.chance(self.odds.fault) { self.rng.below(30_000) } else { 0 };
            if !self.rng.chance(self.odds.fault) {
                self.wire.push((self.now + Duration::from_micros(delay), 1 - end, segment, ecn));
            }
        }
        while self.ends[end].poll_event().is_some() {}
    }

    fn arrive(&mut self, end: usize, segment: &Segment, ecn: EcnField) {
        for _ in 0..self.odds.alternatives {
            self.try_alternative(end, segment, ecn);
        }
        let connection = &mut self.ends[end];
        let (_, is_predicted) = connection.handle_segment_both_ways(self.now, segment, ecn);
        check(connection);
        self.arrived += 1;
        self.predicted += u32::from(is_predicted);
        // Some readers are late.
        if !self.rng.chance(4.0 * self.odds.fault) {
            while connection.read(self.now).is_some() {}
        }
    }

    /// Tries the same with the connection in another state, or with another segment.
    fn try_alternative(&mut self, end: usize, segment: &Segment, ecn: EcnField) {
        let mut now = self.now;
        let mut connection = self.ends[end].clone();
        for _ in 0..self.rng.below(4) {
            self.disturb(&mut now, &mut connection, segment, ecn);
        }
        let mut segment = segment.clone();
        if self.rng.chance(0.7) {
            change(&mut self.rng, &connection, &mut segment);
        }
        connection.handle_segment_both_ways(now, &segment, ecn);
        check(&connection);
        while connection.poll_transmit_both_ways(now).is_some() {}
    }

    /// Something happens to a copy before `segment` arrives: its next deadline passes (a probe or a keep-alive is under way then), its
    /// application writes, another segment comes first, or the owner intervenes.
    fn disturb(&mut self, now: &mut Instant, connection: &mut Connection, segment: &Segment, ecn: EcnField) {
        match self.rng.below(7) {
            0 => leave_a_keep_alive_unanswered(now, connection),
            1 | 2 => {
                if let Some((at, _)) = connection.poll_timeout() {
                    *now = at.max(*now);
                    connection.handle_timeout(*now);
                }
            }
            3 => {
                connection.write(*now, Bytes::from_static(&DATA[..self.rng.below(400) as usize]));
            }
            4 | 5 => {
                let mut first = segment.clone();
                change(&mut self.rng, connection, &mut first);
                connection.handle_segment_both_ways(*now, &first, ecn);
            }
            _ => intervene(*now, &mut self.rng, connection),
        }
        while connection.poll_transmit_both_ways(*now).is_some() {}
    }

    fn intervene(&mut self) {
        let end = self.rng.below(2) as usize;
        intervene(self.now, &mut self.rng, &mut self.ends[end]);
        self.transmit(end);
        // A verb that stops a connection is lifted soon.
        if self.rng.chance(0.5) {
            lift_verbs(self.now, &mut self.ends[end]);
        }
    }
}

/// A node on the path changes a segment to `connection`.
fn change(rng: &mut Rng, connection: &Connection, segment: &mut Segment) {
    let bits = rng.next_u32();
    let options = &mut segment.options;
    match bits % 15 {
        0 => segment.window = 0,
        1 => segment.window = (bits >> 16) as u16,
        2 => segment.flags ^= Flags::ECE,
        3 => segment.flags ^= Flags::CWR,
        4 => segment.flags ^= Flags::PSH,
        5 => {
            segment.flags |= Flags::URG;
            segment.urgent = (bits >> 24) as u16;
        }
        6 => segment.flags |= Flags::FIN,
        7 => options.timestamps = None,
        8 => {
            if let Some(timestamps) = &mut options.timestamps {
                timestamps.val = timestamps.val.wrapping_sub(bits >> 30);
                timestamps.ecr = timestamps.ecr.wrapping_sub(bits >> 24);
            }
        }
        9 => options.user_timeout = UserTimeout::from_duration(Duration::from_secs(u64::from(bits >> 24))),
        10 => {
            let start = connection.snd_una() + (bits >> 22);
            options.sack = [SeqRange::new(start, start + (bits >> 16 & 0x3ff))].into_iter().collect();
        }
        11 => segment.seq = segment.seq - (bits >> 30),
        12 => segment.ack = connection.snd_nxt() + (bits >> 30) - 1,
        // The fields of ECN, also of RFC 9768, are cleared.
        13 => segment.flags &= Flags::ACK | Flags::PSH,
        _ => segment.payload = Bytes::from_static(&DATA[..(bits >> 21) as usize]),
    }
}

/// The idle time of a keep-alive passes, and the owner has it off again before there is an answer.
fn leave_a_keep_alive_unanswered(now: &mut Instant, connection: &mut Connection) {
    let mut config = Config::clone(connection.config());
    let idle = Duration::from_secs(2);
    config.limits.keep_alive = Some(KeepAlive { idle, interval: Duration::from_secs(1), probes: 9 });
    connection.reconfigure(*now, Arc::new(config.clone()));
    *now += idle;
    connection.handle_timeout(*now);
    while connection.poll_transmit_both_ways(*now).is_some() {}
    config.limits.keep_alive = None;
    connection.reconfigure(*now, Arc::new(config));
}

/// The owner steers a connection, the application does something rare, or a router reports something.
fn intervene(now: Instant, rng: &mut Rng, connection: &mut Connection) {
    let bits = rng.next_u64();
    let bytes = bits.to_be_bytes();
    match rng.below(18) {
        0 => connection.mark_urgent(),
        1 => connection.set_cork(bits & 2 != 0),
        2 => connection.send_keep_alive(),
        3 => connection.set_user_timeout(now, (bits & 2 != 0).then_some(Duration::from_secs(100)), true),
        4 => {
            let mut config = Config::clone(connection.config());
            let keep_alive = KeepAlive { idle: Duration::from_secs(2), interval: Duration::from_secs(1), probes: 9 };
            config.limits.keep_alive = (bits & 2 != 0).then_some(keep_alive);
            connection.reconfigure(now, Arc::new(config));
        }
        5 => {
            let quoted = connection.snd_una();
            let mtu = u32::from(bytes[1]) * 4;
            let kinds = [Unreachable::PacketTooBig { mtu }, Unreachable::Host, Unreachable::Port];
            connection.handle_icmp(now, kinds[usize::from(bytes[2]) % 3], quoted);
        }
        6 => connection.set_path_mtu(u32::from(bytes[1]) * 2),
        7 => connection.advertise_user_timeout(Some(Duration::from_secs(200 + u64::from(bytes[1])))),
        8 | 9 => {
            let start = connection.snd_una() + u32::from(bytes[1]) * 2;
            let range = SeqRange::new(start, start + u32::from(bytes[2]) * 2);
            if bits & 2 != 0 {
                connection.note_held_by_peer(range);
            } else {
                connection.presume_lost(now, range, AfterRetransmit::Keep);
            }
        }
        10 if bytes[1] < 64 => connection.close(now),
        10 if bytes[1] < 128 => connection.shutdown_write(),
        11 => {
            connection.set_cork(true);
            connection.write_more(now, Bytes::from_static(&DATA[..usize::from(bytes[1])]));
        }
        _ => Input::new(&bytes).verb(now, connection),
    }
}

/// A configuration with some of its settings changed, which does not give up.
fn changed(mut config: Config, rng: &mut Rng) -> Config {
    let bytes = rng.next_u64().to_be_bytes();
    let mut input = Input::new(&bytes);
    for _ in 0..2 {
        input.change(&mut config);
    }
    let needed = Config::window_scale_for(config.receive.max_buffer_bytes);
    config.window_scale = config.window_scale.map(|shift| shift.min(needed + 2));
    config.ecn =
        input.pick(&[Ecn::Off, Ecn::Off, config.ecn, config.ecn, config.ecn, Ecn::Request, Ecn::RequestAccurate]);
    config.receive.buffer_bytes = input.pick(&[1_000, 4_000, config.receive.buffer_bytes]);
    config.receive.max_buffer_bytes = config.receive.max_buffer_bytes.max(config.receive.buffer_bytes);
    config.user_timeout.changeable = true;
    config.limits.r2 = RetryLimit::Never;
    config.user_timeout.timeout = None;
    config
}

// Claim: For each profile, over smooth paths and rough ones, the shortcuts of a transfer (header prediction, and the choice in bulk) leave a
// connection exactly as the steps of RFC 9293 do.
#[test]
fn shortcuts_leave_what_the_steps_leave() {
    for (seed, profile) in (1..).zip(Profile::ALL) {
        for odds in [SMOOTH, ROUGH] {
            Pair::new(profile.config(), seed, odds).run(400);
        }
    }
}

// Claim: Shortcuts and steps agree also with other settings, while the owner of a connection steers it as mechanisms do, routers report errors and smaller
// MTUs, and nodes on the path mark and change segments.
#[test]
fn shortcuts_agree_with_interventions_and_settings() {
    let mut shares = Vec::new();
    for seed in 0..200 {
        let mut rng = Rng::split(seed, "settings");
        let profile = Profile::ALL[seed as usize % Profile::ALL.len()];
        let odds = if seed % 3 == 0 { Odds { intervention: 0.01, ..SMOOTH } } else { ROUGH };
        let mut pair = Pair::new(changed(profile.config(), &mut rng), seed, odds);
        pair.is_dialogue = seed % 2 == 0;
        pair.run(400);
        shares.push(f64::from(pair.predicted) / f64::from(pair.arrived.max(1)));
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean > 0.1, "few segments were predicted: {mean}");
}

#[test]
fn shortcuts_agree_without_options() {
    let linux = Profile::Linux6Cubic.config();
    for (seed, (sack, timestamps)) in (50..).zip([(false, true), (true, false), (false, false)]) {
        let config = Config { sack, timestamps: linux.timestamps.filter(|_| timestamps), ..linux.clone() };
        Pair::new(config, seed, ROUGH).run(400);
    }
}

#[test]
fn shortcuts_agree_with_mtu_probes() {
    let path_mtu = PathMtuConfig { probing: MtuProbing::Always, base_mss: 60, min_mss: 48, ..PathMtuConfig::LINUX };
    let config = Config { path_mtu, ..Profile::Linux6Cubic.config() };
    for (seed, odds) in [(60, SMOOTH), (61, ROUGH)] {
        Pair::new(config.clone(), seed, odds).run(400);
    }
}

/// Without faults nearly all segments of a transfer are predicted, or the shortcuts are of no use.
#[test]
fn a_transfer_is_predicted() {
    let mut pair = Pair::new(Profile::Linux6Cubic.config(), 1, SMOOTH);
    pair.is_dialogue = false;
    pair.run(400);
    assert!(pair.predicted * 10 > pair.arrived * 8, "{} of {}", pair.predicted, pair.arrived);
}
