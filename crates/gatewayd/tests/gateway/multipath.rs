//! Connections of Multipath TCP (RFC 8684), whose windows count from the DATA_ACK in an option.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use holdover_testbed::Namespace;
use holdover_testbed::gateway::World;
use holdover_testbed::harness::skip;
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;
use crate::unmodified::Kind;

pub(crate) const TESTS: &[Test] = &[
    ("nothing_of_multipath_connections_is_held_back", nothing_is_held_back),
    ("multipath_connections_survive_absences_in_every_mode", absences),
];

const MULTIPATH: Kind = Kind {
    connect,
    count: |path| path.multipath,
    faults: &["MPTcpExtMPCapableFallbackACK", "MPTcpExtMPCapableFallbackSYNACK", "MPTcpExtDSSNotMatching"],
};

const SOON: Duration = Duration::from_secs(10);

fn connect(world: &World, mobile: usize) -> io::Result<(TcpStream, TcpStream)> {
    let at = SocketAddr::new(world.fixed_address(), 0);
    let open = || Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::MPTCP));
    let listen = || -> io::Result<Socket> {
        let listener = open()?;
        listener.bind(&at.into())?;
        listener.listen(1)?;
        Ok(listener)
    };
    let listener = world.fixed().enter(listen).map_err(io::Error::other)??;
    let at = listener.local_addr()?;
    let connect = || -> io::Result<Socket> {
        let socket = open()?;
        socket.connect_timeout(&at, SOON)?;
        Ok(socket)
    };
    let near = world.mobile(mobile).enter(connect).map_err(io::Error::other)??;
    Ok((near.into(), listener.accept()?.0.into()))
}

fn is_missing() -> bool {
    !std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|enabled| enabled.trim() == "1")
}

// Claim: Segments of multipath TCP are neither changed nor made, in any mode, also over absences and with transfers of which ACKs
// would be held back; no connection falls back to TCP. What comes for an absent mobile host is kept.
// Tests: `multipath::absences`
fn nothing_is_held_back(_: &Namespace) {
    if is_missing() {
        return skip("this kernel has no MPTCP");
    }
    MULTIPATH.is_never_held_back();
}

fn absences(_: &Namespace) {
    if is_missing() {
        return skip("this kernel has no MPTCP");
    }
    MULTIPATH.survives_absences();
}
