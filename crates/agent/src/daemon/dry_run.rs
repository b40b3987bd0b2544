//! A dry run: an engine without programs that reports what it would do, connection by connection.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, LinkEvent};
use holdover_wire::TcpState;

use crate::link_watch::kernel::Interfaces;
use crate::link_watch::netlink::{Monitor, MonitorError};
use crate::link_watch::{Family, LinkChange};
use crate::path_engine::{Attach, Counters, PathConnection, PathEngine};
use crate::sockets::{SocketDiag, SocketDiagError, TcpSocket};

/// Engines that only report what they would do.
#[derive(Debug, Default)]
pub struct DryRun;

/// The dry-run engine of an interface.
pub struct DryEngine {
    interface: Box<str>,
    config: WakeConfig,
    sockets: SocketDiag,
    actions: VecDeque<Action>,
    /// Connections at link-down: those with data outstanding then would be woken.
    cut: Vec<TcpSocket>,
    /// Connections that would be exempt.
    left_alone: BTreeSet<Connection>,
}

impl Attach for DryRun {
    type Engine = DryEngine;
    type Error = SocketDiagError;

    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<DryEngine, SocketDiagError> {
        Ok(DryEngine {
            interface: interface.into(),
            config: *config,
            sockets: SocketDiag::open()?,
            actions: VecDeque::new(),
            cut: Vec::new(),
            left_alone: BTreeSet::new(),
        })
    }
}

impl DryEngine {
    /// The open connections from an address of the interface.
    fn open(&mut self) -> Vec<TcpSocket> {
        let addresses = addresses(&self.interface).unwrap_or_default();
        let mut sockets = self.sockets.connections().unwrap_or_default();
        sockets.retain(|socket| {
            let is_open = matches!(
                socket.info.tcpi_state,
                TcpState::Established | TcpState::CloseWait | TcpState::FinWait1 | TcpState::FinWait2
            );
            is_open && addresses.contains(&socket.connection.local.ip())
        });
        sockets
    }

    /// Connections for which it would act.
    fn served(&mut self) -> Vec<TcpSocket> {
        let mut sockets = self.open();
        sockets.retain(|socket| !self.left_alone.contains(&socket.connection));
        sockets
    }

    fn say(&mut self, now: Instant, connection: Connection, mechanism: &'static str, what: &'static str) {
        self.actions.push_back(Action { at: now, connection, mechanism, what });
    }
}

impl PathEngine for DryEngine {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn handle_link(&mut self, now: Instant, LinkChange { families, event }: LinkChange) {
        let is_meant = |socket: &TcpSocket| families.contains(Family::of_connection(socket.connection));
        match event {
            LinkEvent::Fading { .. } if self.config.ack_stall.is_some() => {
                for socket in self.served().into_iter().filter(is_meant) {
                    self.say(now, socket.connection, "ack_stall", "would hold its ACKs");
                }
            }
            LinkEvent::Down => {
                self.cut.retain(|socket| !is_meant(socket));
                let cut = self.served();
                self.cut.extend(cut.into_iter().filter(is_meant));
            }
            LinkEvent::Up { .. } => {
                let after = self.served();
                let (cut, others) = std::mem::take(&mut self.cut).into_iter().partition(is_meant);
                self.cut = others;
                for before in cut {
                    let Some(socket) = after.iter().find(|socket| socket.cookie == before.cookie) else { continue };
                    // A connection that was active when the link broke now waits for a timer.
                    let was_active = socket.send_queue > 0 || received_lately(&before);
                    let mechanism = if self.config.hold_back.is_some() { "hold_back" } else { "unreachable_poke" };
                    let what = if was_active { "would wake it" } else { "would let it rest" };
                    self.say(now, socket.connection, mechanism, what);
                }
            }
            LinkEvent::Fading { .. } | LinkEvent::Recovered => {}
        }
    }

    fn handle_ready(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn connections(&mut self, _: Instant) -> Vec<PathConnection> {
        let open = self.open();
        // Drop closed connections.
        let is_open: BTreeSet<Connection> = open.iter().map(|socket| socket.connection).collect();
        self.left_alone.retain(|connection| is_open.contains(connection));
        let known = open.into_iter().map(|socket| {
            let info = &socket.info;
            PathConnection {
                connection: socket.connection,
                bytes_sent: info.tcpi_bytes_sent,
                bytes_received: info.tcpi_bytes_received,
                idle: Some(info.tcpi_last_data_sent.min(info.tcpi_last_data_recv)),
                // The kernel has only the time of the last data sent, which for a receiver is long ago.
                round_trip: None,
                held_bytes: 0,
                is_exempt: self.left_alone.contains(&socket.connection),
            }
        });
        known.collect()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn leave_alone(&mut self, connection: Connection, alone: bool) {
        if alone {
            self.left_alone.insert(connection);
        } else {
            self.left_alone.remove(&connection);
        }
    }
}

/// Whether data arrived within the last second before the link broke.
fn received_lately(socket: &TcpSocket) -> bool {
    socket.info.tcpi_bytes_received > 0 && socket.info.tcpi_last_data_recv < Duration::from_secs(1)
}

fn addresses(interface: &str) -> Result<Vec<IpAddr>, MonitorError> {
    let mut interfaces = Interfaces::new();
    Monitor::open()?.take_snapshot(Instant::ZERO, &mut interfaces)?;
    Ok(interfaces.addresses(interface).collect())
}
