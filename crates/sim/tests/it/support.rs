//! Small worlds, and an observer that records their events.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::cell::{CellConfig, Position};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_mobility::{Chain, Direction, LinkEvent, SegmentFilter, Verdict};
use holdover_sim::{
    Amount, Attachment, Beacons, Bulk, CellId, Dropped, FlowConfig, FlowId, Frame, LinkBetween, MobileHost, Movement,
    NodeConfig, NodeId, Observer, OnOff, Opener, Path, Place, RadioCell, Repeat, RequestResponse, Role, Sample,
    Selection, Stop, Traffic, WorldConfig, WorldEvent,
};
use holdover_tcp::{Config, Profile};
use holdover_wire::Packet;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn at_ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn host(name: &str) -> NodeConfig {
    NodeConfig { name: name.into(), role: Role::Host }
}

pub(crate) fn router(name: &str) -> NodeConfig {
    NodeConfig { name: name.into(), role: Role::Router }
}

/// A link of this many kilobits per second.
pub(crate) fn wire(kbps: u64, delay: Duration, queue_packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(kbps)),
        delay,
        queue_limit: QueueLimit::Packets(queue_packets),
        ..LinkConfig::default()
    }
}

pub(crate) fn link(name: &str, a: u32, b: u32, config: LinkConfig) -> LinkBetween {
    LinkBetween::wire(name, NodeId(a), NodeId(b), config)
}

pub(crate) fn flow(name: &str, from: u32, to: u32, traffic: Traffic) -> FlowConfig {
    let config = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: name.into(),
        from: NodeId(from),
        to: NodeId(to),
        start: Instant::ZERO,
        sender: Arc::clone(&config),
        receiver: config,
        traffic,
        ipv6: false,
    }
}

pub(crate) fn with_stack(flow: FlowConfig, config: Config) -> FlowConfig {
    let config = Arc::new(config);
    FlowConfig { sender: Arc::clone(&config), receiver: config, ..flow }
}

pub(crate) fn bulk_bytes(bytes: u64) -> Traffic {
    Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener: Opener::Sender })
}

pub(crate) fn bulk_for(time: Duration) -> Traffic {
    Traffic::Bulk(Bulk { amount: Amount::For(time), opener: Opener::Sender })
}

pub(crate) fn exchanges(count: u64, think: Duration) -> Traffic {
    Traffic::RequestResponse(RequestResponse {
        request: ByteCount(300),
        response: ByteCount(5_000),
        think,
        count: Some(count),
    })
}

pub(crate) fn bursts() -> Traffic {
    Traffic::OnOff(OnOff {
        datagram: ByteCount(200),
        rate: BitRate::from_kbps(200),
        mean_on: ms(500),
        mean_off: ms(500),
        shape: 1.2,
    })
}

/// Two hosts on a link.
pub(crate) fn pair(config: LinkConfig, flows: Vec<FlowConfig>, limit: Duration) -> WorldConfig {
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server")],
        links: vec![link("link", 0, 1, config)],
        flows,
        time_limit: Instant::ZERO + limit,
        ..WorldConfig::default()
    }
}

/// The nodes of [`cellular`].
pub(crate) const FIXED: u32 = 0;
pub(crate) const GATEWAY: NodeId = NodeId(1);
pub(crate) const MOBILE: u32 = 4;
pub(crate) const NEIGHBOUR: u32 = 5;

/// A fixed host, a gateway and two base stations, whose cells of 40 m touch at x = 40 m; a mobile host with the given movement, and one
/// that stays in the second cell.
pub(crate) fn cellular(movement: Movement, attachment: Attachment) -> WorldConfig {
    let cell = |name: &str, base, x_m| RadioCell {
        name: name.into(),
        base: NodeId(base),
        cell: CellConfig { position: Position { x_m, y_m: 0.0 }, ..CellConfig::wavelan(40.0, QueueLimit::Packets(20)) },
        beacons: Some(Beacons::default()),
    };
    let mobile = |node, movement, attachment| MobileHost {
        node: NodeId(node),
        movement,
        attachment,
        selection: Selection::default(),
        prediction: None,
    };
    let stays = Movement::Path(Path { stops: vec![stop(70.0, 0)], ..line(&[70.0], 1.0, 0) });
    WorldConfig {
        seed: 1,
        nodes: vec![
            host("fixed"),
            router("gateway"),
            router("base-1"),
            router("base-2"),
            host("mobile"),
            host("neighbour"),
        ],
        links: vec![
            link("wan", FIXED, GATEWAY.0, wire(1_500, ms(20), 50)),
            link("lan-1", GATEWAY.0, 2, wire(10_000, ms(2), 50)),
            link("lan-2", GATEWAY.0, 3, wire(10_000, ms(2), 50)),
        ],
        cells: vec![cell("cell-1", 2, 0.0), cell("cell-2", 3, 80.0)],
        mobiles: vec![mobile(MOBILE, movement, attachment.clone()), mobile(NEIGHBOUR, stays, attachment)],
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

pub(crate) fn stop(x_m: f64, pause_ms: u64) -> Stop {
    Stop { position: Position { x_m, y_m: 0.0 }, pause: ms(pause_ms) }
}

/// A path along the first axis.
pub(crate) fn line(xs_m: &[f64], speed_m_per_s: f64, depart_ms: u64) -> Path {
    let stops = xs_m.iter().map(|&x_m| stop(x_m, 0)).collect();
    Path { stops, depart_at: at_ms(depart_ms), speed_m_per_s, repeat: Repeat::Once }
}

pub(crate) const CELL_1: CellId = CellId(0);
pub(crate) const CELL_2: CellId = CellId(1);

/// Records all reports as a hash, and events in full.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Log {
    /// FNV-1a over the text of all reports.
    pub(crate) hash: u64,
    pub(crate) lines: u64,
    pub(crate) events: Vec<(Instant, WorldEvent)>,
    pub(crate) drops: Vec<(Instant, Dropped)>,
    pub(crate) samples: Vec<(Instant, FlowId, Sample)>,
    /// Packets by interface and direction.
    pub(crate) packets: std::collections::BTreeMap<Place, u64>,
    /// The first hundred packets.
    pub(crate) first_packets: Vec<(Instant, Place)>,
    latest: Instant,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            events: Vec::new(),
            drops: Vec::new(),
            samples: Vec::new(),
            packets: std::collections::BTreeMap::new(),
            first_packets: Vec::new(),
            latest: Instant::ZERO,
        }
    }
}

impl Log {
    fn note(&mut self, at: Instant, what: std::fmt::Arguments<'_>) {
        assert!(at >= self.latest, "told of {at} after {}", self.latest);
        self.latest = at;
        self.lines += 1;
        writeln!(self, "{at} {what}").expect("hashing does not fail");
    }

    /// The times of the events that `picks` selects, in milliseconds.
    pub(crate) fn when(&self, picks: impl Fn(&WorldEvent) -> bool) -> Vec<f64> {
        self.events.iter().filter(|(_, event)| picks(event)).map(|(at, _)| at.as_secs_f64() * 1e3).collect()
    }
}

impl std::fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.hash = text.bytes().fold(self.hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Ok(())
    }
}

impl Observer for Log {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        self.note(at, format_args!("{place:?} {:?} {:?} {}", frame.reason, frame.tunnel, frame.observed()));
        *self.packets.entry(place).or_default() += 1;
        if self.first_packets.len() < 100 {
            self.first_packets.push((at, place));
        }
    }

    fn dropped(&mut self, at: Instant, why: Dropped, frame: &Frame) {
        self.note(at, format_args!("{why:?} {}", frame.observed()));
        self.drops.push((at, why));
    }

    fn event(&mut self, at: Instant, event: &WorldEvent) {
        self.note(at, format_args!("{event:?}"));
        self.events.push((at, event.clone()));
    }

    fn sample(&mut self, at: Instant, flow: FlowId, sample: &Sample) {
        self.note(at, format_args!("{flow:?} {sample:?}"));
        self.samples.push((at, flow, *sample));
    }
}

/// Records the link events reported to a host.
#[derive(Clone, Default, Debug)]
pub(crate) struct Notes(Arc<Mutex<Vec<(u64, LinkEvent)>>>);

impl Notes {
    pub(crate) fn heard(&self) -> Vec<(u64, LinkEvent)> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        chain.push(Box::new(self.clone()));
        chain
    }
}

impl SegmentFilter for Notes {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        self.0.lock().unwrap().push((now.as_millis(), event));
    }
}
