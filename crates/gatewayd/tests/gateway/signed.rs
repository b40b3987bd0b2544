//! Connections with signatures (TCP-MD5): a changed segment, or one that the gateway makes, would be dropped by its receiver.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use holdover_testbed::gateway::World;
use holdover_testbed::{Namespace, set_md5_key};
use socket2::{Domain, Socket, Type};

use crate::Test;
use crate::unmodified::Kind;

pub(crate) const TESTS: &[Test] = &[
    ("nothing_of_signed_connections_is_held_back", nothing_is_held_back),
    ("signed_connections_survive_absences_in_every_mode", absences),
];

const SIGNED: Kind = Kind {
    connect: connect_signed,
    count: |path| path.signed,
    faults: &["TcpExtTCPMD5Failure", "TcpExtTCPMD5NotFound"],
};

const SOON: Duration = Duration::from_secs(10);

/// A connection from a mobile host to the fixed host, with a key at both ends: the mobile host's end first.
pub(crate) fn connect_signed(world: &World, mobile: usize) -> io::Result<(TcpStream, TcpStream)> {
    let (fixed, near) = (world.fixed_address(), world.mobile_address(mobile));
    let listen = || TcpListener::bind(SocketAddr::new(fixed, 0));
    let listener = world.fixed().enter(listen).map_err(io::Error::other)??;
    set_md5_key(&listener, near)?;
    let at = listener.local_addr()?;
    let connect = || -> io::Result<Socket> {
        let domain = if at.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        set_md5_key(&socket, at.ip())?;
        socket.connect_timeout(&at.into(), SOON)?;
        Ok(socket)
    };
    let near = world.mobile(mobile).enter(connect).map_err(io::Error::other)??;
    Ok((near.into(), listener.accept()?.0))
}

// Claim: Segments with TCP-MD5 signatures are neither changed nor made, in any mode, also over absences and with transfers of
// which ACKs would be held back: no host drops a segment for its signature, and transfers are byte-exact. What comes for an
// absent mobile host is kept.
// Tests: `signed::absences`
fn nothing_is_held_back(_: &Namespace) {
    SIGNED.is_never_held_back();
}

fn absences(_: &Namespace) {
    SIGNED.survives_absences();
}
