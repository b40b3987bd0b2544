//! Reports to the gateway in the path of a link's packets ([`holdover_mobility::registration`]): that the link fades, is cut, and is back.
//!
//! What is reported is what the mechanisms have been told, for every address of the interface. A report that cannot leave, as the link is cut
//! already, is repeated; the link's return replaces it.

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
use crate::link_watch::LinkState;
use crate::link_watch::kernel::Interfaces;

/// Reports, if that is configured.
#[derive(Debug, Default)]
pub(super) struct GatewayReports(Option<Reports>);

#[derive(Debug)]
struct Reports {
    interface: String,
    gateway: SocketAddr,
    socket: Option<Socket>,
    registrant: Registrant,
    /// What was last reported of each address.
    reported: BTreeMap<IpAddr, Outlook>,
    was_refused: bool,
}

/// How a link is, and when it will be cut if that is foreseen.
type Outlook = (LinkState, Option<Instant>);

/// The gateway cannot be told anything.
#[derive(Debug, thiserror::Error)]
enum GatewayError {
    #[error("the key cannot be read")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl GatewayReports {
    /// Begins. What is wrong with the key is told by the log: the agent's own work does not depend on it.
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
                tracing::error!(file = %file.display(), problem, "the gateway is not told of the link: [gateway] key_file");
                Self(None)
            }
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_ref()?.socket.as_ref()?.as_fd())
    }

    /// Answers have come.
    pub(super) fn handle_ready(&mut self, now: Instant) {
        if let Some(reports) = &mut self.0 {
            reports.handle_ready(now);
        }
    }

    /// Reports what has changed, and what was not answered.
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

/// Whether packets for an address pass a gateway.
fn is_reported(address: IpAddr) -> bool {
    let is_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    !is_local && !address.is_loopback()
}

impl Reports {
    fn note(&mut self, now: Instant, outlook: Outlook, addresses: &[IpAddr]) {
        let presence = match outlook {
            (LinkState::Up, _) => Presence::Present,
            (LinkState::Fading, cut_at) => Presence::Fading { lead: cut_at.map(|at| at.saturating_since(now)) },
            (LinkState::Down, _) => Presence::Away,
        };
        let is_down = outlook.0 == LinkState::Down;
        let registrant = &mut self.registrant;
        // A link that is cut may have lost its addresses with that; others have been taken away.
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
            // The socket is bound to an interface that may be gone, with another one of its name in its place.
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
            tracing::debug!(gateway = %self.gateway, "the gateway has noted how the link is");
        }
        if after.refused > before.refused && !std::mem::replace(&mut self.was_refused, true) {
            tracing::warn!(gateway = %self.gateway, "the gateway does not hear this host's key about this address");
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

/// A socket whose datagrams leave by this interface.
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
        reports.note(now, (LinkState::Up, None), &[former]);
        assert_eq!(datagrams(&mut reports, now), 1);
        // The address goes with the link.
        reports.note(now, (LinkState::Down, None), &[]);
        assert_eq!(reports.reported[&former].0, LinkState::Down);
        assert_eq!(datagrams(&mut reports, now), 1, "that it is away");
        // The link is back with another one.
        reports.note(now, (LinkState::Up, None), &[next]);
        assert!(reports.reported.keys().eq([&next]));
        assert_eq!(datagrams(&mut reports, now), 1);
        assert_eq!(datagrams(&mut reports, now + Duration::from_secs(3600)), 1, "the former one is not reported again");
    }
}
