//! One run: two hosts with an association, a transfer, and the cuts.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration as WallDuration, Instant};

use holdover_base::{ByteCount, Duration};
use holdover_host::sysctl;
use holdover_link::Loss;
use holdover_testbed::access::{AccessNetwork, Attachment};
use serde::{Deserialize, Serialize};

use super::machine::Connected;
use super::{Cell, DisconnectionsGrid, Machine, PATH, USER_TIMEOUT, Variant};
use crate::moves::exchange::Packets;
use crate::moves::kinds::{LTE, SERVER, WIFI};
use crate::moves::means::{Directory, HipHost};
use crate::moves::place::Use;
use crate::moves::run::{FIXED, LINKS_OF_SERVER, MOBILE, MovesError, PORT, links, next_seed};
use crate::moves::transfer::{Arrivals, SocketOptions, Transfer};

const POLL_EVERY: WallDuration = WallDuration::from_millis(20);
/// As the paper's sender: Reno, and nine retransmissions. See the page for what Linux makes of the number.
const STACK: [(&str, &str); 2] = [("net.ipv4.tcp_congestion_control", "reno"), ("net.ipv4.tcp_retries2", "9")];

/// How a transfer ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetTime {
    /// The time of the transfer without that of disconnections, in seconds.
    Completed(f64),
    /// The connection failed.
    Aborted,
    /// The measurement ended first.
    Unfinished,
}

impl NetTime {
    /// Of a transfer that was completed.
    pub const fn seconds(self) -> Option<f64> {
        match self {
            Self::Completed(seconds) => Some(seconds),
            Self::Aborted | Self::Unfinished => None,
        }
    }
}

/// For a table.
impl fmt::Display for NetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(seconds) => write!(f, "{seconds:.1}"),
            Self::Aborted => f.write_str("aborts"),
            Self::Unfinished => f.write_str("unfinished"),
        }
    }
}

/// What both worlds measure of a transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transferred {
    /// Its end.
    pub net_time: NetTime,
    /// From each return of a network to the first new data, in seconds; without those that the next cut, or the end, came before.
    pub idle_s: Vec<f64>,
}

/// A run of a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The transfer.
    pub transferred: Transferred,
    /// From each new address to the end of the exchange, in seconds; `None` if the next cut, or the end, came first.
    pub exchanges_s: Vec<Option<f64>>,
    /// Bytes that arrived, all compared with those sent.
    pub received: u64,
    /// See [`Lateness`](holdover_testbed::Lateness).
    #[serde(with = "holdover_transfers::nanos")]
    pub lateness: Duration,
}

/// A disconnection that is over.
#[derive(Clone, Copy, Debug)]
struct Move {
    cut_at: Instant,
    moved_at: Instant,
    to: &'static Attachment,
}

/// Two hosts with an association. Fields are dropped in this order: daemons before their network and their files.
pub(super) struct World {
    _mobile: HipHost,
    server: HipHost,
    network: AccessNetwork,
    _directory: Directory,
    packets: Packets,
}

impl World {
    pub(super) fn new(grid: &DisconnectionsGrid, variant: Variant) -> Result<Self, MovesError> {
        let (directory, packets) = (Directory::new(grid.directory)?, Packets::default());
        let names = ["mobile", "server", "rendezvous"];
        let network = AccessNetwork::new(&names, &links(PATH, Loss::None), next_seed(), packets.observer())?;
        network.attach(MOBILE, &WIFI)?;
        network.attach(FIXED, &SERVER)?;
        for host in [network.host(MOBILE), network.host(FIXED)] {
            host.enter(|| STACK.into_iter().try_for_each(|(name, value)| sysctl::set(host, name, value)))??;
        }
        let mut mobile = HipHost::new(&grid.holdover, &directory, "mobile", &[WIFI.address], None)?;
        let mut server = HipHost::new(&grid.holdover, &directory, "server", &[SERVER.address], None)?;
        mobile.introduce(&server)?;
        let is_default = variant == Variant::Trigger;
        server.up(network.host(FIXED), is_default)?;
        mobile.up(network.host(MOBILE), is_default)?;
        mobile.wait_for("server", "no association", |peer| peer.state == "ESTABLISHED")?;
        Ok(Self { _mobile: mobile, server, network, _directory: directory, packets })
    }

    /// Makes a transfer, and cuts it.
    pub(super) fn run<'a>(self, cell: Cell, machine: &'a Machine, connected: Connected<'a>) -> Result<Run, MovesError> {
        let hosts = [self.network.host(MOBILE), self.network.host(FIXED)];
        let user_timeout = (cell.variant == Variant::UserTimeout).then_some(USER_TIMEOUT);
        let options = SocketOptions { user_timeout, ..SocketOptions::default() };
        let address = (self.server.hit()?, PORT).into();
        let mut connected = Some(connected);
        let transfer = Transfer::start(Use::Upload, cell.amount.0, hosts, address, options)?;
        let began_at = transfer.began_at;
        let moves = self.cut(&transfer, cell, &mut connected, machine)?;
        wait(&transfer, began_at + cell.time_limit());
        let is_broken = transfer.is_broken();
        let arrivals = transfer.end()?;
        Ok(Run {
            transferred: Transferred {
                net_time: net_time(cell.amount, began_at, &moves, &arrivals, is_broken),
                idle_s: idle_times(&moves, &arrivals),
            },
            exchanges_s: self.exchanges(&moves),
            received: arrivals.last().map_or(0, |(_, bytes)| *bytes),
            lateness: machine.lateness.worst_between(began_at, Instant::now()),
        })
    }

    /// Cuts a transfer, and moves the mobile host to its other network after each cut, until the transfer is over. Returns the moves.
    fn cut<'a>(
        &self,
        transfer: &Transfer,
        cell: Cell,
        connected: &mut Option<Connected<'a>>,
        machine: &'a Machine,
    ) -> Result<Vec<Move>, MovesError> {
        let (mut moves, mut networks) = (Vec::new(), [&WIFI, &LTE]);
        let limit = cell.time_limit();
        for [cut, back] in cell.cuts.times().take_while(|[cut, _]| *cut < limit) {
            let [from, to] = networks;
            if wait(transfer, transfer.began_at + cut) {
                break;
            }
            let cut_at = Instant::now();
            self.network.detach(MOBILE, from)?;
            *connected = None;
            if wait(transfer, transfer.began_at + back) {
                break;
            }
            let moved_at = Instant::now();
            self.network.attach(MOBILE, to)?;
            *connected = Some(machine.connect());
            moves.push(Move { cut_at, moved_at, to });
            networks.reverse();
        }
        Ok(moves)
    }

    /// From each move to the end of its exchange, if that was before the next cut.
    fn exchanges(&self, moves: &[Move]) -> Vec<Option<f64>> {
        let took = |(it, next_cut): (&Move, Option<Instant>)| {
            let verified = self.packets.verified(it.to.address, &LINKS_OF_SERVER, it.moved_at);
            let verified = verified.filter(|at| next_cut.is_none_or(|next_cut| *at < next_cut));
            verified.map(|at| (at - it.moved_at).as_secs_f64())
        };
        with_next_cuts(moves).map(took).collect()
    }
}

/// Waits until `until`, or until the transfer is over. Returns whether it is.
fn wait(transfer: &Transfer, until: Instant) -> bool {
    loop {
        if transfer.is_complete() || transfer.is_broken() {
            return true;
        }
        match until.saturating_duration_since(Instant::now()) {
            WallDuration::ZERO => return false,
            left => sleep(left.min(POLL_EVERY)),
        }
    }
}

/// Each move, and the cut that ends the time on its network.
fn with_next_cuts(moves: &[Move]) -> impl Iterator<Item = (&Move, Option<Instant>)> {
    let cuts = moves.iter().skip(1).map(|it| Some(it.cut_at)).chain([None]);
    moves.iter().zip(cuts)
}

/// The time to the last byte without that of disconnections before it.
fn net_time(amount: ByteCount, began_at: Instant, moves: &[Move], arrivals: &Arrivals, is_broken: bool) -> NetTime {
    match arrivals.last() {
        Some((at, bytes)) if *bytes == amount.0 => {
            let before = moves.iter().filter(|it| it.moved_at <= *at);
            let disconnected: WallDuration = before.map(|it| it.moved_at - it.cut_at).sum();
            NetTime::Completed((*at - began_at - disconnected).as_secs_f64())
        }
        _ if is_broken => NetTime::Aborted,
        _ => NetTime::Unfinished,
    }
}

/// From each move to the first data after it, in seconds, if these were before the next cut.
fn idle_times(moves: &[Move], arrivals: &Arrivals) -> Vec<f64> {
    let idle = |(it, next_cut): (&Move, Option<Instant>)| {
        let (at, _) = arrivals.get(arrivals.partition_point(|(at, _)| *at <= it.moved_at))?;
        next_cut.is_none_or(|next_cut| *at < next_cut).then(|| (*at - it.moved_at).as_secs_f64())
    };
    with_next_cuts(moves).filter_map(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from 10 to 15 s, and from 20 to 25 s.
    fn moves(began_at: Instant) -> Vec<Move> {
        let after = |seconds| began_at + WallDuration::from_secs(seconds);
        [(10, 15, &LTE), (20, 25, &WIFI)]
            .map(|(cut, back, to)| Move { cut_at: after(cut), moved_at: after(back), to })
            .to_vec()
    }

    fn arrivals(began_at: Instant, of: &[(u64, u64)]) -> Arrivals {
        of.iter().map(|&(seconds, bytes)| (began_at + WallDuration::from_secs(seconds), bytes)).collect()
    }

    #[test]
    fn net_times_are_without_the_disconnections_before_the_end() {
        let began_at = Instant::now();
        let ended = |of: &[(u64, u64)], is_broken| {
            net_time(ByteCount(100), began_at, &moves(began_at), &arrivals(began_at, of), is_broken)
        };
        assert_eq!(ended(&[(9, 50), (27, 100)], false), NetTime::Completed(17.0));
        assert_eq!(ended(&[(9, 50), (18, 100)], false), NetTime::Completed(13.0));
        assert_eq!(ended(&[(9, 50), (27, 99)], true), NetTime::Aborted);
        assert_eq!(ended(&[(9, 50), (27, 99)], false), NetTime::Unfinished);
        assert_eq!(ended(&[], false), NetTime::Unfinished);
    }

    #[test]
    fn a_network_on_which_nothing_arrived_has_no_idle_time() {
        let began_at = Instant::now();
        let idle = |of: &[(u64, u64)]| idle_times(&moves(began_at), &arrivals(began_at, of));
        assert_eq!(idle(&[(9, 10), (17, 20), (26, 30)]), [2.0, 1.0]);
        assert_eq!(idle(&[(9, 10), (28, 20)]), [3.0], "nothing came before the second cut");
        assert_eq!(idle(&[(9, 10), (16, 20)]), [1.0]);
        assert!(idle(&[]).is_empty());
    }
}
