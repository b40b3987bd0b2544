//! Keys of flows.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use holdover_filter::{Connection, Direction};

use crate::layout::{INCOMING, Key, OUTGOING};
use crate::prefix::mapped;

impl Key {
    /// The key of a connection.
    pub fn new(connection: Connection) -> Self {
        let Connection { local, remote } = connection;
        Self {
            local: octets(local.ip()),
            remote: octets(remote.ip()),
            local_port: local.port().to_be(),
            remote_port: remote.port().to_be(),
        }
    }

    /// The connection of this key.
    pub fn connection(&self) -> Connection {
        let address = |octets: [u8; 16], port| {
            let v6 = Ipv6Addr::from(octets);
            SocketAddr::new(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4), u16::from_be(port))
        };
        Connection { local: address(self.local, self.local_port), remote: address(self.remote, self.remote_port) }
    }
}

/// An address in the form of all records: IPv4 within IPv6, as `::ffff:192.0.2.1`.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    mapped(address).octets()
}

pub(crate) fn to_raw(direction: Direction) -> u8 {
    match direction {
        Direction::Outgoing => OUTGOING as u8,
        Direction::Incoming => INCOMING as u8,
    }
}

pub(crate) fn from_raw(direction: u8) -> Direction {
    if u32::from(direction) == OUTGOING { Direction::Outgoing } else { Direction::Incoming }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_connection() {
        for (local, remote) in [("192.0.2.1:80", "198.51.100.7:65535"), ("[2001:db8::1]:1", "[2001:db8::2]:443")] {
            let connection = Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            assert_eq!(Key::new(connection).connection(), connection);
        }
    }
}
