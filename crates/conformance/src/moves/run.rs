//! One run: hosts on their network, what carries the connection, and the move.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration as WallDuration, Instant};

use holdover_base::{ByteCount, Duration};
use holdover_host::sysctl::SysctlError;
use holdover_link::{LinkConfig, Loss, QueueLimit, Rate};
use holdover_testbed::access::{AccessError, AccessLink, AccessNetwork, Attachment};
use holdover_testbed::{Lateness, NamespaceError};
use holdover_transfers::NetPath;
use serde::{Deserialize, Serialize};

use super::exchange::{Packets, Seen};
use super::kinds::{OVERLAP, RENDEZVOUS, SERVER, SERVER_V6};
use super::means::{
    Directory, HipHost, MeansError, WireGuardGo, allow_multipath, change_endpoint, server_in_tunnel, start_wireguard,
};
use super::place::{KEY, KEYS, Means, Place, Use};
use super::transfer::{Arrivals, SocketOptions, Transfer, TransferError};
use super::{Machine, MovesGrid};
use crate::grid;

/// The time that the link takes for a transfer's data, without headers.
pub(super) const TRANSFER_TIME: Duration = Duration::from_secs(6);
/// From the beginning of the connection to the move: the losses of slow start's overshoot, whose recovery alone is a pause of 160 ms, are
/// repaired by then.
pub(super) const MOVES_AFTER: WallDuration = WallDuration::from_millis(3000);
/// The timeout of an exchange without a connection.
const EXCHANGE_PATIENCE: WallDuration = WallDuration::from_secs(20);
/// The pause between two such exchanges.
const PAUSE: WallDuration = WallDuration::from_millis(100);
const POLL_EVERY: WallDuration = WallDuration::from_millis(5);
pub(super) const PORT: u16 = 5001;
/// The seed of the losses of the next run.
static NEXT_SEED: AtomicU64 = AtomicU64::new(1);
/// The hosts.
pub(super) const MOBILE: usize = 0;
pub(super) const FIXED: usize = 1;
const THIRD: usize = 2;
/// Their links, in the order of [`links`].
const LINKS_OF_MOBILE: Range<usize> = 0..2;
pub(super) const LINKS_OF_SERVER: Range<usize> = 2..4;

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From the new address to the end of the exchange.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) exchange: Option<Duration>,
    /// From the new address to the first new data; in a make before break the longest pause.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) first_data: Option<Duration>,
    /// From the beginning to the last byte.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) total: Option<Duration>,
    /// Bytes that arrived, all compared with those sent.
    pub(super) received: u64,
    /// Of many moves, in nanoseconds.
    pub(super) exchanges: Vec<Option<u64>>,
    /// See [`Lateness`].
    #[serde(with = "holdover_transfers::nanos")]
    pub(super) lateness: Duration,
    pub(super) tries: u32,
}

/// A run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MovesError {
    #[error("the network")]
    Access(#[from] AccessError),
    #[error("what carries the connection")]
    Means(#[from] MeansError),
    #[error("the connection")]
    Transfer(#[from] TransferError),
    #[error("the namespace")]
    Namespace(#[from] NamespaceError),
    #[error("a setting of the kernel")]
    Sysctl(#[from] SysctlError),
    #[error("the machine is too busy")]
    TooBusy,
}

/// Makes a run. It is made again if it `misses` a bound and the machine was late meanwhile by [`Lateness::EXCUSE`] or more.
pub(super) fn run(
    place: Place,
    grid: &MovesGrid,
    machine: &Machine,
    misses: impl Fn(&Run) -> bool,
) -> Result<Run, MovesError> {
    let is_spoiled = |run: &Run| place.usage != Use::Exchange && run.lateness >= Lateness::EXCUSE && misses(run);
    let once = |tries| {
        let mut run = World::new(place, grid)?.run(&machine.lateness)?;
        run.tries = tries;
        Ok::<_, MovesError>(Some(run))
    };
    grid::counted(once, is_spoiled)?.ok_or(MovesError::TooBusy)
}

/// Fields are dropped in this order: daemons before their network and their files.
struct World {
    place: Place,
    hip: Vec<HipHost>,
    _wireguard: Option<WireGuardGo>,
    network: AccessNetwork,
    directory: Directory,
    packets: Packets,
    /// Where the server's program listens.
    server: SocketAddr,
}

impl World {
    fn new(place: Place, grid: &MovesGrid) -> Result<Self, MovesError> {
        let kind = place.kind();
        let (directory, packets) = (Directory::new(grid.directory)?, Packets::default());
        let names = ["mobile", "server", "rendezvous"];
        let links = links(place.path, kind.loss);
        let network = AccessNetwork::new(&names, &links, next_seed(), packets.observer())?;
        network.attach(MOBILE, &kind.ends[0])?;
        network.attach(FIXED, &SERVER)?;
        network.attach(FIXED, &SERVER_V6)?;
        network.attach(THIRD, &RENDEZVOUS)?;
        let outside = if kind.ends[0].address.is_ipv4() { SERVER.address } else { SERVER_V6.address };
        let mut world = Self {
            place,
            hip: Vec::new(),
            _wireguard: None,
            network,
            directory,
            packets,
            server: (outside, PORT).into(),
        };
        let namespaces = [world.network.host(MOBILE), world.network.host(FIXED)];
        match place.means {
            Means::Plain => {}
            Means::Hip | Means::HipWithoutWake => world.start_hip(&grid.programs.holdover)?,
            Means::WireGuardGo => {
                let daemons = WireGuardGo::start(&grid.programs.wireguard_go, &world.directory, namespaces, outside)?;
                world._wireguard = Some(daemons);
                world.server = (server_in_tunnel(), PORT).into();
            }
            Means::WireGuard => {
                start_wireguard(namespaces, outside)?;
                world.server = (server_in_tunnel(), PORT).into();
            }
            Means::Multipath => {
                allow_multipath(namespaces, outside)?;
                change_endpoint(namespaces[0], kind.ends[0].address, true)?;
            }
        }
        Ok(world)
    }

    fn start_hip(&mut self, program: &Path) -> Result<(), MovesError> {
        let kind = self.place.kind();
        let has_server = kind.server_to.is_some();
        let third = if has_server {
            Some(HipHost::new(program, &self.directory, "rendezvous", &[RENDEZVOUS.address], Some("rendezvous"))?)
        } else {
            None
        };
        let mut mobile = HipHost::new(program, &self.directory, "mobile", &[kind.ends[0].address], None)?;
        let mut server = HipHost::new(program, &self.directory, "server", &[SERVER.address, SERVER_V6.address], None)?;
        if let Some(third) = &third {
            third.introduce(&mobile)?;
            third.introduce(&server)?;
        }
        mobile.introduce(&server)?;
        let has_mechanisms = self.place.means == Means::Hip;
        if let Some(mut third) = third {
            third.up(self.network.host(THIRD), has_mechanisms)?;
            self.hip.push(third);
        }
        server.up(self.network.host(FIXED), has_mechanisms)?;
        mobile.up(self.network.host(MOBILE), has_mechanisms)?;
        mobile.wait_for("server", "no association", |peer| peer.state == "ESTABLISHED")?;
        if has_server {
            for host in [&mut mobile, &mut server] {
                host.wait_for("rendezvous", "not registered", |peer| !peer.services.is_empty())?;
            }
        }
        self.server = (IpAddr::V6(server.hit()?), PORT).into();
        self.hip.extend([server, mobile]);
        Ok(())
    }

    fn run(self, machine: &Lateness) -> Result<Run, MovesError> {
        if self.place.usage == Use::Exchange {
            return self.exchange_again_and_again(machine);
        }
        let place = self.place;
        let amount = match place.usage {
            Use::Keys => KEYS * KEY,
            _ => ByteCount(place.path.amount(TRANSFER_TIME).0).0,
        };
        let hosts = [self.network.host(MOBILE), self.network.host(FIXED)];
        let options = SocketOptions { is_multipath: place.means == Means::Multipath, ..SocketOptions::default() };
        let transfer = Transfer::start(place.usage, amount, hosts, self.server, options)?;
        sleep((transfer.began_at + MOVES_AFTER).saturating_duration_since(Instant::now()));
        let moved_at = self.move_once()?;
        let give_up_at = moved_at + place.patience().into();
        while !transfer.is_complete() && Instant::now() < give_up_at {
            sleep(POLL_EVERY);
        }
        let began_at = transfer.began_at;
        let arrivals = transfer.end()?;
        let received = arrivals.last().map_or(0, |(_, bytes)| *bytes);
        let ended_at = arrivals.last().filter(|_| received == amount).map(|(at, _)| *at);
        let exchange = self.exchange_end(moved_at).map(|at| (at - moved_at).into());
        let first_data = match place.kind().gap {
            Some(_) => {
                let packets = self.packets.since(moved_at);
                first_data(&arrivals, &packets, &self.receivers_links(), |seen| self.is_of_the_new_path(seen))
            }
            None => longest_pause(&arrivals, moved_at).map(|pause| moved_at + pause),
        };
        let first_data = first_data.map(|at| Duration::from(at - moved_at));
        let until = first_data.map_or_else(Instant::now, |first| moved_at + first.into());
        Ok(Run {
            exchange: exchange.filter(|_| place.means.is_hip()),
            first_data,
            total: ended_at.map(|at| (at - began_at).into()),
            received,
            exchanges: Vec::new(),
            lateness: machine.worst_between(moved_at, until),
            tries: 1,
        })
    }

    /// Moves the host, and the server if it moves; when the new address was there.
    fn move_once(&self) -> Result<Instant, MovesError> {
        let kind = self.place.kind();
        let [from, to] = &kind.ends;
        if let Some(gap) = kind.gap {
            self.detach(from)?;
            if kind.server_to.is_some() {
                self.network.detach(FIXED, &SERVER)?;
            }
            sleep(gap.into());
        }
        let moved_at = Instant::now();
        self.attach(to)?;
        if let Some(server_to) = &kind.server_to {
            self.network.attach(FIXED, server_to)?;
        }
        if kind.gap.is_none() {
            sleep(OVERLAP.into());
            self.detach(from)?;
        }
        Ok(moved_at)
    }

    fn attach(&self, attachment: &Attachment) -> Result<(), MovesError> {
        self.network.attach(MOBILE, attachment)?;
        if self.place.means == Means::Multipath {
            change_endpoint(self.network.host(MOBILE), attachment.address, true)?;
        }
        Ok(())
    }

    fn detach(&self, attachment: &Attachment) -> Result<(), MovesError> {
        if self.place.means == Means::Multipath {
            change_endpoint(self.network.host(MOBILE), attachment.address, false)?;
        }
        Ok(self.network.detach(MOBILE, attachment)?)
    }

    /// The links of the receiver of data.
    fn receivers_links(&self) -> Range<usize> {
        if self.place.usage == Use::Upload { LINKS_OF_SERVER } else { LINKS_OF_MOBILE }
    }

    /// Whether a packet to the receiver of data came from, or to, the mobile host's new address. Packets that it sent from the former one
    /// may still arrive after the move.
    fn is_of_the_new_path(&self, seen: &Seen) -> bool {
        let to = &self.place.kind().ends[1];
        match self.place.usage {
            Use::Upload => seen.from == outside(to),
            _ => links(self.place.path, self.place.kind().loss)[seen.link].name == to.link,
        }
    }

    /// When all hosts that have moved were verified where they are.
    fn exchange_end(&self, start: Instant) -> Option<Instant> {
        let kind = self.place.kind();
        let mobile = self.packets.verified(outside(&kind.ends[1]), &LINKS_OF_SERVER, start)?;
        let Some(server_to) = &kind.server_to else { return Some(mobile) };
        Some(self.packets.verified(server_to.address, &LINKS_OF_MOBILE, start)?.max(mobile))
    }

    /// Moves there and back without a connection.
    fn exchange_again_and_again(self, machine: &Lateness) -> Result<Run, MovesError> {
        let kind = self.place.kind();
        let gap = kind.gap.unwrap_or_default();
        let (mut exchanges, start) = (Vec::new(), Instant::now());
        for number in 0..kind.moves as usize {
            let [from, to] = [&kind.ends[number % 2], &kind.ends[1 - number % 2]];
            self.detach(from)?;
            sleep(gap.into());
            let moved_at = Instant::now();
            self.attach(to)?;
            let verified = || self.packets.verified(outside(to), &LINKS_OF_SERVER, moved_at);
            while verified().is_none() && moved_at.elapsed() < EXCHANGE_PATIENCE {
                sleep(POLL_EVERY);
            }
            let took = verified().map(|at| (at - moved_at).as_nanos());
            exchanges.push(took.map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX)));
            sleep(PAUSE);
        }
        let lateness = machine.worst_between(start, Instant::now());
        Ok(Run { exchange: None, first_data: None, total: None, received: 0, exchanges, lateness, tries: 1 })
    }
}

pub(super) fn next_seed() -> u64 {
    NEXT_SEED.fetch_add(1, Ordering::Relaxed)
}

/// When the receiver's program first got data that a packet of the new path had brought: the last packet before it on the receiver's
/// links was one. `packets` are those of all hosts since the move, in order.
fn first_data(
    arrivals: &Arrivals,
    packets: &[Seen],
    receivers_links: &Range<usize>,
    is_new: impl Fn(&Seen) -> bool,
) -> Option<Instant> {
    let received: Vec<&Seen> = packets.iter().filter(|seen| receivers_links.contains(&seen.link)).collect();
    let brought_by = |at: Instant| received[..received.partition_point(|seen| seen.at <= at)].last().copied();
    arrivals.iter().map(|(at, _)| *at).find(|&at| brought_by(at).is_some_and(&is_new))
}

/// From the move on, while both addresses are there and after that.
fn longest_pause(arrivals: &Arrivals, moved_at: Instant) -> Option<WallDuration> {
    let over_at = moved_at + OVERLAP.into();
    // Silence that lasts is not a pause.
    arrivals.iter().find(|(at, _)| *at >= over_at)?;
    let pauses = arrivals.windows(2).filter(|pair| pair[1].0 >= moved_at);
    pauses.map(|pair| pair[1].0 - pair[0].0.max(moved_at)).max()
}

/// An address as others see it.
fn outside(attachment: &Attachment) -> IpAddr {
    match attachment.address {
        IpAddr::V4(address) if address.octets()[..2] == [192, 168] => {
            Ipv4Addr::new(10, address.octets()[2], 0, 1).into()
        }
        address => address,
    }
}

/// The links of the hosts: two of the mobile one with the path's rate and queue, and the others without limits.
pub(super) fn links(path: NetPath, loss: Loss) -> Vec<AccessLink> {
    let access = LinkConfig {
        rate: Rate::Fixed(path.rate),
        delay: path.delay,
        queue_limit: QueueLimit::Packets(path.queue),
        loss,
        ..LinkConfig::default()
    };
    let v4 = |second| (IpAddr::from(Ipv4Addr::new(10, second, 0, 0)), 16);
    let v6 = |second| (IpAddr::from(Ipv6Addr::new(0xfd00, second, 0, 0, 0, 0, 0, 0)), 64);
    let link = |host, name, number: u8| AccessLink {
        host,
        name,
        networks: vec![v4(number), v6(u16::from(number))],
        translator: None,
        config: LinkConfig::default(),
    };
    let mobile = |name, number: u8| AccessLink {
        translator: Some((Ipv4Addr::new(192, 168, number, 0), 24, Ipv4Addr::new(10, number, 0, 1))),
        config: access.clone(),
        ..link(MOBILE, name, number)
    };
    vec![mobile("wifi", 1), mobile("lte", 2), link(FIXED, "wan", 9), link(FIXED, "other", 8), link(THIRD, "fixed", 7)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2));

    #[test]
    fn data_that_was_under_way_is_not_the_first_after_a_move() {
        let moved_at = Instant::now();
        let after = |millis| moved_at + WallDuration::from_millis(millis);
        let seen = |millis, from| Seen::data(after(millis), LINKS_OF_SERVER.start, from);
        let old = Ipv4Addr::new(10, 1, 0, 2).into();
        // An ACK reaches the mobile host before the server's program has read.
        let ack = Seen::data(after(81), LINKS_OF_MOBILE.start, SERVER.address);
        let packets = [seen(3, old), seen(25, NEW), seen(26, old), seen(80, NEW), ack];
        let is_new = |seen: &Seen| seen.from == NEW;
        let arrivals: Arrivals =
            [(2, 10), (4, 20), (27, 30), (82, 40), (90, 50)].map(|(millis, bytes)| (after(millis), bytes)).to_vec();
        assert_eq!(first_data(&arrivals, &packets, &LINKS_OF_SERVER, is_new), Some(after(82)));
        assert_eq!(first_data(&arrivals[..3].to_vec(), &packets, &LINKS_OF_SERVER, is_new), None);
        assert_eq!(first_data(&arrivals, &[], &LINKS_OF_SERVER, is_new), None);
    }

    #[test]
    fn a_pause_ends() {
        let moved_at = Instant::now();
        let [early, overlap] = [WallDuration::from_millis(30), OVERLAP.into()];
        let mut arrivals: Arrivals = vec![(moved_at, 1), (moved_at + early, 2)];
        assert_eq!(longest_pause(&arrivals, moved_at), None);
        arrivals.push((moved_at + overlap, 3));
        assert_eq!(longest_pause(&arrivals, moved_at), Some(overlap - early));
    }
}
