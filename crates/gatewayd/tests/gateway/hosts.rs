//! Hosts beyond those of a [`World`](holdover_testbed::gateway::World): their links, routes and connections.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use holdover_testbed::gateway::Transfer;
use holdover_testbed::{Namespace, Netlink, Route, sysctl};
use socket2::{Domain, Protocol, Socket, Type};

/// Generous, for a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// An end of a link: a namespace, an interface and its address.
pub(crate) type End<'a> = (&'a Namespace, &'a str, IpAddr);

/// Joins two namespaces by a veth pair, with addresses in a network of 24 bits.
pub(crate) fn join(ends: [End<'_>; 2]) {
    let [(near, near_name, _), (far, far_name, _)] = ends;
    near.enter(|| Netlink::open(near).unwrap().add_veth(near_name, far_name, far).unwrap()).unwrap();
    for (namespace, name, address) in ends {
        let configure = || {
            let mut netlink = Netlink::open(namespace).unwrap();
            netlink.set_up(name).unwrap();
            netlink.add_address(name, address, 24).unwrap();
        };
        namespace.enter(configure).unwrap();
    }
}

/// Routes packets for these destinations to a next hop.
pub(crate) fn route(namespace: &Namespace, destination: (IpAddr, u8), by: IpAddr, link: &str) {
    route_from(namespace, destination, by, link, None);
}

/// The same, with a source address for connections from here.
pub(crate) fn route_from(
    namespace: &Namespace,
    destination: (IpAddr, u8),
    by: IpAddr,
    link: &str,
    source: Option<IpAddr>,
) {
    let route = Route { destination, next_hop: Some(by), link: link.to_owned(), source };
    namespace.enter(|| Netlink::open(namespace).unwrap().replace_route(&route).unwrap()).unwrap();
}

/// Sets a kernel parameter of a namespace.
pub(crate) fn set(namespace: &Namespace, name: &str, value: &str) {
    namespace.enter(|| sysctl::set(namespace, name, value).unwrap()).unwrap();
}

/// A counter of a namespace's kernel, by the name that `nstat` prints.
pub(crate) fn counted(namespace: &Namespace, name: &str) -> i64 {
    let counters = namespace.enter(|| holdover_testbed::Counters::read(namespace).unwrap()).unwrap();
    counters.get(name).unwrap_or_else(|| panic!("this kernel does not count {name}"))
}

/// A connection from one host to an address of another: the client's end first.
pub(crate) fn connect(client: &Namespace, server: &Namespace, at: IpAddr) -> (TcpStream, TcpStream) {
    let listener = server.enter(|| TcpListener::bind((at, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let near = client.enter(|| TcpStream::connect_timeout(&to, SOON).unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// A transfer of some 4 MB/s over a connection: from the second of these ends to the first one, or, as an upload, in the other
/// direction.
pub(crate) fn transfer((near, far): (TcpStream, TcpStream), is_upload: bool) -> Transfer {
    let (from, into) = if is_upload { (near, far) } else { (far, near) };
    Transfer::between(from, into, Duration::from_millis(2))
}

/// A socket that sends IPv4 packets with the headers that it is given (`IPPROTO_RAW`), or receives those of another protocol.
pub(crate) fn raw(namespace: &Namespace, protocol: i32) -> Socket {
    namespace.enter(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(protocol))).unwrap()).unwrap()
}

/// Bytes that were written to a connection and that its peer has not acknowledged (SIOCOUTQ).
pub(crate) fn unacknowledged(stream: &TcpStream) -> i32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives during the call.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    bytes
}
