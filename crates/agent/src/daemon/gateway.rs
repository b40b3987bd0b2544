//! Reports to the gateway in the path of a link's packets ([`holdover_mobility::registration`]): the link fades, is
//! down, is up.
//!
//! The reports follow the signals to the mechanisms, for every address of the interface. A report that cannot be sent
//! because the link is already down is repeated; link-up replaces it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_host::log::with_causes;
use holdover_mobility::registration::{Key, KeyError, LENGTH, Registrant};
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::GatewayTable;
use crate::link_watch::LinkCondition;
use crate::link_watch::kernel::Interfaces;

/// Reports, if configured.
#[derive(Debug, Default)]
pub(super) struct GatewayReports(Option<Reports>);

#[derive(Debug)]
struct Reports {
    interface: String,
    gateway: SocketAddr,
    socket: Option<Socket>,
    registrant: Registrant,
    /// The last report for each address.
    reported: BTreeMap<IpAddr, Outlook>,
    was_refused: bool,
}

/// The state of a link, and the time of its predicted cut.
type Outlook = (LinkCondition, Option<Instant>);

/// Reports cannot be sent.
#[derive(Debug, thiserror::Error)]
enum GatewayError {
    #[error("cannot read the key")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl GatewayReports {
    /// Starts. A problem with the key is logged: the agent works without reports.
    pub(super) fn start(config: &GatewayTable, dry_run: bool) -> Self {
        let (Some(interface), Some(gateway), Some(file)) = (&config.interface, config.address, &config.key_file) else {
            return Self(None);
        };
        if dry_run {
            return Self(None);
        }
        match registrant(file) {
            Ok(registrant) => Self(Some(Reports {
                interface: interface.clone(),
                gateway,
                socket: None,
                registrant,
                reported: BTreeMap::new(),
                was_refused: false,
            })),
            Err(error) => {
                let problem = with_causes(&error);
                tracing::error!(file = %file.display(), problem, "cannot report to the gateway: [gateway] key_file");
                Self(None)
            }
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_ref()?.socket.as_ref()?.as_fd())
    }

    /// Handles answers.
    pub(super) fn handle_ready(&mut self, now: Instant) {
        if let Some(reports) = &mut self.0 {
            reports.handle_ready(now);
        }
    }

    /// Sends reports about changes, and repeats those without an answer.
    pub(super) fn report(
        &mut self,
        now: Instant,
        outlook: impl FnOnce(&str) -> Option<Outlook>,
        interfaces: &Interfaces,
    ) {
        let Some(reports) = &mut self.0 else { return };
        if let Some(outlook) = outlook(&reports.interface) {
            let addresses: Vec<IpAddr> =
                interfaces.addresses(&reports.interface).filter(|&address| is_reported(address)).collect();
            reports.note(now, outlook, &addresses);
        }
        reports.send(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.as_ref()?.registrant.poll_timeout()
    }
}

/// Whether packets to an address pass a gateway.
fn is_reported(address: IpAddr) -> bool {
    let is_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    !is_local && !address.is_loopback()
}

impl Reports {
    fn note(&mut self, now: Instant, outlook: Outlook, addresses: &[IpAddr]) {
        let presence = match outlook {
            (LinkCondition::Up, _) => Presence::Present,
            (LinkCondition::Fading, cut_at) => Presence::Fading { lead: cut_at.map(|at| at.saturating_since(now)) },
            (LinkCondition::Down, _) => Presence::Away,
        };
        let is_down = outlook.0 == LinkCondition::Down;
        let registrant = &mut self.registrant;
        // A link that is down may have lost its addresses by going down. Addresses lost while it is up were removed.
        self.reported.retain(|address, _| {
            let stays = is_down || addresses.contains(address);
            if !stays {
                registrant.forget(*address);
            }
            stays
        });
        let lost: Vec<IpAddr> = self.reported.keys().filter(|address| !addresses.contains(address)).copied().collect();
        for &address in addresses.iter().chain(&lost) {
            if self.reported.insert(address, outlook) != Some(outlook) {
                self.registrant.report(now, address, presence);
            }
        }
    }

    fn send(&mut self, now: Instant) {
        while let Some(datagram) = self.registrant.poll_transmit(now) {
            if self.socket.is_none() {
                self.socket = open(&self.interface, self.gateway)
                    .inspect_err(|error| tracing::debug!(%error, "no socket for the gateway"))
                    .ok();
            }
            let Some(socket) = &self.socket else { continue };
            // The socket is bound to an interface that may have been replaced by another one of its name.
            let is_gone = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
            if socket.send_to(&datagram, &SockAddr::from(self.gateway)).is_err_and(|error| is_gone(&error)) {
                self.socket = None;
            }
        }
    }

    fn handle_ready(&mut self, now: Instant) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; LENGTH + 1];
        let before = self.registrant.counters();
        loop {
            match io::Read::read(&mut &*socket, &mut buffer) {
                Ok(len) => self.registrant.handle_datagram(now, &buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ICMP errors about earlier reports: the next one may get through.
                Err(_) => {}
            }
        }
        let after = self.registrant.counters();
        if after.noted > before.noted {
            tracing::debug!(gateway = %self.gateway, "the gateway has accepted the report");
        }
        if after.refused > before.refused && !std::mem::replace(&mut self.was_refused, true) {
            tracing::warn!(gateway = %self.gateway, "the gateway does not accept this host's key for this address");
        }
    }
}

fn registrant(file: &Path) -> Result<Registrant, GatewayError> {
    let key = Key::from_text(&std::fs::read_to_string(file)?)?;
    let mut first = [0; 8];
    let filled = getrandom(&mut first[..], GetRandomFlags::empty()).map_err(io::Error::from)?;
    if filled < first.len() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Registrant::new(key, u64::from_ne_bytes(first)))
}

/// A socket that sends on this interface.
fn open(interface: &str, gateway: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(gateway), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;

    use super::*;

    #[test]
    fn addresses_that_were_lost_with_the_link_are_reported_until_it_is_back() {
        let key = Key::from_text(&"0123456789abcdef".repeat(4)).unwrap();
        let mut reports = Reports {
            interface: "wlan0".to_owned(),
            gateway: SocketAddr::from(([10, 0, 0, 1], 4786)),
            socket: None,
            registrant: Registrant::new(key, 1),
            reported: BTreeMap::new(),
            was_refused: false,
        };
        let [former, next] = [7, 8].map(|last| IpAddr::from([10, 0, 0, last]));
        let now = Instant::from_secs(1);
        let datagrams =
            |reports: &mut Reports, now| std::iter::from_fn(|| reports.registrant.poll_transmit(now)).count();
        reports.note(now, (LinkCondition::Up, None), &[former]);
        assert_eq!(datagrams(&mut reports, now), 1);
        // The address is lost with the link.
        reports.note(now, (LinkCondition::Down, None), &[]);
        assert_eq!(reports.reported[&former].0, LinkCondition::Down);
        assert_eq!(datagrams(&mut reports, now), 1, "the report of link-down");
        // The link is up with another address.
        reports.note(now, (LinkCondition::Up, None), &[next]);
        assert!(reports.reported.keys().eq([&next]));
        assert_eq!(datagrams(&mut reports, now), 1);
        assert_eq!(datagrams(&mut reports, now + Duration::from_secs(3600)), 1, "the former one is not reported again");
    }
}
