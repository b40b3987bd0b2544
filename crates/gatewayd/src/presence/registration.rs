//! Reports of mobile hosts about themselves, as datagrams: the state machine is [`holdover_mobility::registration`].

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use holdover_base::Instant;
use holdover_gateway::divert::Source;
use holdover_mobility::registration::{Key, KeyError, LENGTH, Registrar};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{ReportCounters, SourceReport};
use crate::config::RegistrationTable;
use crate::network::Network;

/// Receives reports of mobile hosts.
pub(super) struct Registration {
    socket: UdpSocket,
    registrar: Registrar,
    /// The addresses that each key may report about.
    addresses: Vec<Vec<Network>>,
}

/// A secret, or the socket that uses it, is not available.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Its content is invalid.
    #[error("{}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: KeyError,
    },
    /// It contains no valid shared key of gateways.
    #[error("{}: expected a line of 64 to 128 hexadecimal digits, as from `openssl rand -hex 32`", file.display())]
    SharedKey {
        /// The file.
        file: PathBuf,
    },
    /// Two hosts have the same key.
    #[error("{}: another mobile host has the same key; each needs its own", file.display())]
    Twice {
        /// The second file.
        file: PathBuf,
    },
    /// The token is too short.
    #[error("{}: expected a token of at least 16 characters", file.display())]
    Short {
        /// The file.
        file: PathBuf,
    },
    /// The address cannot be listened on.
    #[error("{section} listen = \"{address}\"")]
    Listen {
        /// The section of the configuration.
        section: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

/// Datagrams handled before other work gets its turn.
const BATCH: usize = 64;

impl Registration {
    /// `None` if it is not configured.
    pub(super) fn open(config: &RegistrationTable) -> Result<Option<Self>, SecretError> {
        let Some(address) = config.listen else { return Ok(None) };
        let mut registrar = Registrar::new();
        for host in &config.hosts {
            if !registrar.add(read_key(&host.key_file)?) {
                return Err(SecretError::Twice { file: host.key_file.clone() });
            }
        }
        let bind = || {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| SecretError::Listen { section: "[registration]", address, source })?;
        let addresses = config.hosts.iter().map(|host| host.addresses.clone()).collect();
        Ok(Some(Self { socket, registrar, addresses }))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn add_to(&self, counters: &mut ReportCounters) {
        let own = self.registrar.counters();
        counters.registered += own.noted;
        counters.challenged += own.challenged;
        counters.replayed += own.replayed;
        counters.refused += own.refused;
        counters.forged += own.forged;
    }

    pub(super) fn handle_ready(&mut self, now: Instant, may: &dyn Fn(IpAddr) -> bool, reports: &mut Vec<SourceReport>) {
        let mut buffer = [0; LENGTH + 1];
        for _ in 0..BATCH {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                // ICMP errors about earlier answers are reported here, too.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => continue,
                Err(_) => return,
            };
            let Some(nonce) = random() else { return };
            let addresses = &self.addresses;
            let speaks_for = |number: usize, address: IpAddr| {
                let own = addresses.get(number).is_some_and(|own| own.iter().any(|network| network.contains(address)));
                own && may(address)
            };
            let (answer, report) = self.registrar.handle_datagram(now, &buffer[..len], nonce, speaks_for);
            if let Some(answer) = answer {
                // The mobile host repeats unanswered reports.
                let _ = self.socket.send_to(&answer, from);
            }
            if let Some(report) = report {
                tracing::info!(mobile = %report.address, presence = %report.presence, "registered");
                reports.push(SourceReport::Mobile {
                    mobile: report.address,
                    source: Source::Registration,
                    presence: report.presence,
                });
            }
        }
    }
}

/// Random bytes of the kernel; `None` if it has none yet.
fn random() -> Option<[u8; 16]> {
    let mut nonce = [0; 16];
    let filled = getrandom(&mut nonce[..], GetRandomFlags::NONBLOCK).ok()?;
    (filled == nonce.len()).then_some(nonce)
}

fn read_key(file: &Path) -> Result<Key, SecretError> {
    let text = read_secret(file)?;
    Key::from_text(&text).map_err(|source| SecretError::Key { file: file.to_owned(), source })
}

/// Reads a file with a secret.
pub(crate) fn read_secret(file: &Path) -> Result<String, SecretError> {
    std::fs::read_to_string(file).map_err(|source| SecretError::Unreadable { file: file.to_owned(), source })
}
