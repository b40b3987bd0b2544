//! A flood of SYNs without answers, while all connections continue: which of them stay in the table of connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use holdover_base::Rng;
use holdover_gatewayd::bench::count_runs;
use holdover_testbed::gateway::Crowd;
use holdover_wire::{Flags, Packet, Segment, Seq};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::Failed;
use super::connections::Connections;
use super::daemon::Daemon;

/// The sender of the SYNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flooder {
    /// The fixed host's side, from random addresses, to mobile hosts, which drop them.
    FixedSide,
    /// Mobile hosts, to random addresses that no host has.
    MobileHosts,
}

impl Flooder {
    pub(super) const ALL: [Self; 2] = [Self::FixedSide, Self::MobileHosts];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::FixedSide => "the fixed side",
            Self::MobileHosts => "mobile hosts",
        }
    }
}

/// The effect of a flood.
#[derive(Debug, Serialize)]
pub(super) struct FloodCost {
    pub(super) flooder: Flooder,
    pub(super) syns: u64,
    pub(super) syns_per_second: f64,
    /// Connections of the table when the flood ends.
    pub(super) table: usize,
    /// Established connections, and how many of them are in the table when the flood ends.
    pub(super) established: usize,
    pub(super) kept: usize,
    /// TCP packets of connections that are not in the table.
    pub(super) without_room: u64,
    /// The mean run time of the gateway's programs per packet, of the flood or of the connections.
    pub(super) program_nanoseconds: f64,
    /// The daemon's share of one processor.
    pub(super) daemon_share: f64,
}

/// SYNs per second, as far as the machine can send them.
const RATE: u64 = 50_000;
const LASTS: Duration = Duration::from_secs(10);
/// The ports to which the SYNs go: mobile hosts drop packets to these.
const FIRST_PORT: u16 = 61_000;
/// The ports of the senders.
const PORTS: u64 = 30_000;

/// Measures the effect of one flood.
///
/// # Errors
/// A connection ends, or the kernel refuses.
pub(super) fn measure(
    crowd: &Crowd,
    daemon: &mut Daemon,
    connections: &mut Connections,
    flooder: Flooder,
) -> Result<FloodCost, Failed> {
    crowd.block_ports_from(FIRST_PORT);
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
    let raw = crowd.fixed().enter(open)??;
    let counting = count_runs()?;
    let mut random = Rng::new(1);
    let full = daemon.status()?.path.connections_full;
    let (usage, spent) = (daemon.tables.usage()?, daemon.processor_time()?);
    let (began, mut syns) = (Instant::now(), 0);
    while began.elapsed() < LASTS {
        // Each pass sends the SYNs that are due at the flood's rate, then messages on a part of the connections.
        let due = (began.elapsed().as_secs_f64() * RATE as f64) as u64;
        for _ in 0..due.saturating_sub(syns) {
            let syn = syn(&mut random, crowd.count(), flooder);
            match flooder {
                Flooder::FixedSide => {
                    let to = SocketAddr::new(syn.dst, 0);
                    // A queue on the way may be full.
                    let _ = raw.send_to(&syn.emit()?, &to.into());
                }
                Flooder::MobileHosts => crowd.send_from(syn.src, &syn.emit()?)?,
            }
        }
        syns = syns.max(due);
        connections.talk(Duration::from_millis(500))?;
    }
    let lasted = began.elapsed().as_secs_f64();
    let (after, daemon_time) = (daemon.tables.usage()?, daemon.processor_time()? - spent);
    let table = daemon.tables.connections()?;
    drop(counting);
    let ends = connections.ends()?;
    let runs = (after.runs - usage.runs).max(1);
    Ok(FloodCost {
        flooder,
        syns,
        syns_per_second: syns as f64 / lasted,
        table: table.len(),
        established: ends.len(),
        kept: ends.iter().filter(|ends| table.contains(ends)).count(),
        without_room: daemon.status()?.path.connections_full - full,
        program_nanoseconds: (after.run_time - usage.run_time).as_nanos() as f64 / runs as f64,
        daemon_share: daemon_time.as_secs_f64() / lasted,
    })
}

/// A SYN between a mobile host and an address of the network for benchmarks (RFC 2544).
fn syn(random: &mut Rng, hosts: u32, flooder: Flooder) -> Packet {
    let mobile = IpAddr::from(Crowd::address(random.below(u64::from(hosts)) as u32));
    let [_, b, c, d] = (random.below(1 << 17) as u32).to_be_bytes();
    let other = IpAddr::from(Ipv4Addr::new(198, 18 | b, c, d));
    let [src_port, dst_port] = [1024 + random.below(PORTS) as u16, FIRST_PORT + random.below(4000) as u16];
    let (src, dst) = match flooder {
        Flooder::FixedSide => (other, mobile),
        Flooder::MobileHosts => (mobile, other),
    };
    let segment = Segment {
        src_port,
        dst_port,
        seq: Seq::new(random.below(1 << 32) as u32),
        flags: Flags::SYN,
        window: u16::MAX,
        ..Segment::default()
    };
    Packet::new(src, dst, segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_comes_from_one_side_and_goes_to_blocked_ports() {
        let mut random = Rng::new(7);
        for _ in 0..1000 {
            let down = syn(&mut random, 500, Flooder::FixedSide);
            let up = syn(&mut random, 500, Flooder::MobileHosts);
            for (stranger, mobile, packet) in [(down.src, down.dst, &down), (up.dst, up.src, &up)] {
                let (IpAddr::V4(stranger), IpAddr::V4(mobile)) = (stranger, mobile) else { panic!("IPv6") };
                assert!(stranger.octets()[0] == 198 && [18, 19].contains(&stranger.octets()[1]), "{stranger}");
                assert!((Crowd::address(0)..=Crowd::address(499)).contains(&mobile), "{mobile}");
                assert!(packet.tcp().is_some_and(|segment| segment.dst_port >= FIRST_PORT));
            }
        }
    }
}
