//! `real-bulk` and `real-link`: links of the simulator between kernels of this machine.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as WallInstant;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, LinkBetween, NoObserver, NodeConfig, NodeId, OnOff, Opener, Role, Traffic, WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::world::{RealOptions, RealWorld};
use holdover_testbed::{Congestion, KernelListener, KernelStream, Namespace, Netlink, SocketOptions};
use serde::Serialize;

type Failed = Box<dyn Error + Send + Sync>;

/// Measurements of links between kernels.
#[derive(Debug, Serialize)]
pub(super) struct RealLink {
    /// The rate that it was to have.
    pub(super) configured_bits_per_second: f64,
    /// The rate at which datagrams came through.
    pub(super) bits_per_second: f64,
    /// The median of the one-way delay in excess of the configured one.
    pub(super) delay_error_median_s: f64,
    /// Its 99th percentile.
    pub(super) delay_error_p99_s: f64,
    /// Its maximum.
    pub(super) delay_error_max_s: f64,
}

/// Bulk TCP between two kernels over a link of 100 Gbit/s, and over a veth pair: bits per second each.
pub(super) fn bulk() -> Result<(f64, f64), Failed> {
    const BYTES: u64 = 2_000_000_000;
    let link = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(100_000)),
        queue_limit: QueueLimit::Packets(100_000),
        ..LinkConfig::default()
    };
    let traffic = Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(BYTES)), opener: Opener::Sender });
    let mut world = RealWorld::new(pair(link, Some(traffic)), &RealOptions::default())?;
    world.run(&mut NoObserver, |_| true)?;
    let over_link = world.world().report()[0].goodput_bps();
    drop(world);
    Ok((over_link, veth(BYTES)?))
}

/// The error of a link of 10 Mbit/s and 20 ms: of its delay, by datagrams that have it to themselves, and of its rate, by as many
/// as it carries.
pub(super) fn link() -> Result<RealLink, Failed> {
    let rate = BitRate::from_mbps(10);
    let link = LinkConfig {
        rate: Rate::Fixed(rate),
        delay: Duration::from_millis(20),
        queue_limit: QueueLimit::Packets(50),
        ..LinkConfig::default()
    };
    let mut errors = delay_errors(&link, rate)?;
    errors.sort_unstable();
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize].as_secs_f64();
    let bits_per_second = carried(link)?;
    Ok(RealLink {
        configured_bits_per_second: 1e7,
        bits_per_second,
        delay_error_median_s: at(0.5),
        delay_error_p99_s: at(0.99),
        delay_error_max_s: at(1.0),
    })
}

/// The delays of datagrams on an idle link in excess of the configured one.
fn delay_errors(link: &LinkConfig, rate: BitRate) -> Result<Vec<Duration>, Failed> {
    const COUNT: usize = 2000;
    const LEN: usize = 1000;
    let expected = link.delay + rate.transmission_time(ByteCount(LEN as u64 + 28));
    let options = RealOptions { external: [NodeId(0), NodeId(1)].into(), ..RealOptions::default() };
    let mut world = RealWorld::new(pair(link.clone(), None), &options)?;
    let [sender, receiver] = [NodeId(0), NodeId(1)].map(|node| world.namespace(node).cloned());
    let (Some(sender), Some(receiver)) = (sender, receiver) else { return Err("the hosts have no kernels".into()) };
    let to = SocketAddr::new(NodeId(1).address(false), 5000);
    let start = WallInstant::now();
    let listening = receiver.enter(|| UdpSocket::bind(to))??;
    listening.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let receiving = std::thread::spawn(move || {
        let mut errors = Vec::with_capacity(COUNT);
        let mut buffer = [0; LEN];
        while errors.len() < COUNT && listening.recv(&mut buffer).is_ok() {
            let sent = u64::from_be_bytes(buffer[..8].try_into().unwrap_or_default());
            let took = Duration::from(start.elapsed()).as_nanos().saturating_sub(sent);
            errors.push(Duration::from_nanos(took.saturating_sub(expected.as_nanos())));
        }
        ends.store(true, Ordering::Relaxed);
        errors
    });
    let from = SocketAddr::new(NodeId(0).address(false), 0);
    let sending = sender.spawn_inside(move || -> std::io::Result<()> {
        let socket = UdpSocket::bind(from)?;
        let mut buffer = [0; LEN];
        for _ in 0..COUNT {
            std::thread::sleep(std::time::Duration::from_millis(2));
            buffer[..8].copy_from_slice(&Duration::from(start.elapsed()).as_nanos().to_be_bytes());
            socket.send_to(&buffer, to)?;
        }
        Ok(())
    })?;
    world.run(&mut NoObserver, |_| !is_over.load(Ordering::Relaxed))?;
    sending.join().map_err(|_| "the sender panicked")???;
    let errors = receiving.join().map_err(|_| "the receiver panicked")?;
    if errors.len() < COUNT { Err("datagrams were lost on an idle link".into()) } else { Ok(errors) }
}

/// The output of an overloaded link, in bits per second.
fn carried(link: LinkConfig) -> Result<f64, Failed> {
    let flood = OnOff {
        datagram: ByteCount(1000),
        rate: BitRate::from_mbps(15),
        mean_on: Duration::from_secs(1000),
        mean_off: Duration::ZERO,
        shape: 2.0,
    };
    let mut config = pair(link, Some(Traffic::OnOff(flood)));
    config.time_limit = Instant::from_secs(5);
    let mut world = RealWorld::new(config, &RealOptions::default())?;
    // The first second fills the queue.
    let mut marks: Vec<(Instant, u64)> = Vec::new();
    world.run(&mut NoObserver, |world| {
        let [forward, _] = world.link_statistics(holdover_sim::LinkId(0)).unwrap_or_default();
        marks.push((world.now(), forward.delivered.bytes));
        true
    })?;
    let first = marks.iter().find(|(at, _)| *at >= Instant::from_secs(1)).copied();
    let (Some(first), Some(last)) = (first, marks.last().copied()) else { return Err("the run was too short".into()) };
    Ok((last.1 - first.1) as f64 * 8.0 / last.0.saturating_since(first.0).as_secs_f64())
}

/// Bulk TCP over a veth pair: bits per second.
fn veth(bytes: u64) -> Result<f64, Failed> {
    let pair = VethPair::new()?;
    let (mut stream, mut peer) = pair.connect(5001)?;
    let start = WallInstant::now();
    let sending = std::thread::spawn(move || -> std::io::Result<()> {
        let zeros = vec![0; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            left -= stream.write(&zeros[..left.min(zeros.len() as u64) as usize])? as u64;
        }
        Ok(())
    });
    let mut buffer = vec![0; 256 << 10];
    let mut read = 0;
    while read < bytes {
        match peer.read(&mut buffer)? {
            0 => return Err("the connection over the veth pair ended early".into()),
            len => read += len as u64,
        }
    }
    let took = start.elapsed();
    sending.join().map_err(|_| "the sender panicked")??;
    Ok(bytes as f64 * 8.0 / took.as_secs_f64())
}

/// Two hosts with a kernel each, and a virtual Ethernet cable between them.
pub(super) struct VethPair {
    pub(super) one: Namespace,
    pub(super) other: Namespace,
}

impl VethPair {
    /// The interface of the first host.
    pub(super) const INTERFACE: &str = "veth0";
    const ADDRESSES: [[u8; 4]; 2] = [[10, 9, 0, 1], [10, 9, 0, 2]];

    pub(super) fn new() -> Result<Self, Failed> {
        let [one, other] = [Namespace::new("veth-one")?, Namespace::new("veth-other")?];
        let [here, there] = Self::ADDRESSES.map(std::net::IpAddr::from);
        let up = |namespace: &Namespace, name: &str, address| -> Result<(), Failed> {
            let mut netlink = Netlink::open(namespace)?;
            netlink.add_address(name, address, 24)?;
            Ok(netlink.set_up(name)?)
        };
        one.enter(|| -> Result<(), Failed> {
            Netlink::open(&one)?.add_veth(Self::INTERFACE, "veth1", &other)?;
            up(&one, Self::INTERFACE, here)
        })??;
        other.enter(|| up(&other, "veth1", there))??;
        Ok(Self { one, other })
    }

    /// A connection from the first host to the second.
    pub(super) fn connect(&self, port: u16) -> Result<(KernelStream, KernelStream), Failed> {
        let options = SocketOptions::new(Congestion::Cubic);
        let patience = Duration::from_secs(10);
        let address = SocketAddr::new(Self::ADDRESSES[1].into(), port);
        let listener = self.other.enter(|| KernelListener::bind(&self.other, address, &options))??;
        let stream = self.one.enter(|| KernelStream::connect(&self.one, address, &options, patience))??;
        Ok((stream, listener.accept(patience)?))
    }
}

fn pair(link: LinkConfig, traffic: Option<Traffic>) -> WorldConfig {
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    let stack = Arc::new(Profile::Linux6Cubic.config());
    let flow = |traffic| FlowConfig {
        name: "bulk".into(),
        from: NodeId(0),
        to: NodeId(1),
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: Arc::clone(&stack),
        traffic,
        ipv6: false,
    };
    WorldConfig {
        seed: 1,
        nodes: vec![host("sender"), host("receiver")],
        links: vec![LinkBetween::wire("link", NodeId(0), NodeId(1), link)],
        flows: traffic.into_iter().map(flow).collect(),
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}
