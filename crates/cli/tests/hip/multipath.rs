//! TCP options that Holdover does not know, between real kernels.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};

use holdover_testbed::harness::skip;
use holdover_testbed::{Counters, Namespace};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;
use crate::daemon::{PATIENCE, Place, pair};
use crate::network::{Network, SERVER, WIFI};

pub(crate) const TESTS: &[Test] =
    &[("multipath_connections_do_not_fall_back_to_tcp", multipath_connections_do_not_fall_back_to_tcp)];

const PORT: u16 = 7009;
const BYTES: usize = 300_000;

/// MPTCP (RFC 8684) falls back to plain TCP if its option is removed on the path: on a SYN, or on any segment with data.
fn multipath_connections_do_not_fall_back_to_tcp() {
    if !std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|enabled| enabled.trim() == "1") {
        return skip("this kernel has no MPTCP");
    }
    let (place, network) = (Place::new("multipath"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    server.up("");
    let lsi: IpAddr = mobile.peer()["lsi"].as_str().unwrap().parse().unwrap();
    // The server's programs use the same version, or the other one.
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let cases = [(any[0], lsi), (any[1], IpAddr::from(server.hit())), (server.hit().into(), lsi)];
    for (listen, address) in cases {
        transfer(&network, (listen, PORT).into(), (address, PORT).into());
    }
    let counted = |namespace: &Namespace, name: &str| {
        let counters = namespace.enter(|| Counters::read(namespace).unwrap()).unwrap();
        counters.get(&format!("MPTcpExt{name}"))
    };
    let expected = Some(cases.len() as i64);
    assert_eq!(counted(&network.mobile, "MPCapableSYNACKRX"), expected);
    assert_eq!(counted(&network.server, "MPCapableSYNRX"), expected);
    assert_eq!(counted(&network.server, "MPCapableACKRX"), expected);
    for fallback in ["MPCapableFallbackACK", "MPCapableFallbackSYNACK", "DSSNotMatching", "DataCsumErr"] {
        let counted = [&network.mobile, &network.server].map(|namespace| counted(namespace, fallback).unwrap_or(0));
        assert_eq!(counted, [0, 0], "{fallback}");
    }
}

/// Bytes there and back, on a connection of MPTCP.
fn transfer(network: &Network, listen: SocketAddr, address: SocketAddr) {
    let open = |at: SocketAddr| {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let listen = || {
        let listener = open(listen);
        listener.set_reuse_address(true).unwrap();
        listener.bind(&listen.into()).unwrap();
        listener.listen(1).unwrap();
        listener
    };
    let listener = network.server.enter(listen).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut stream = network
        .mobile
        .enter(|| {
            let stream = open(address);
            stream.connect_timeout(&address.into(), PATIENCE).unwrap();
            stream
        })
        .unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    assert!(came == sent, "{} bytes", came.len());
    echo.join().unwrap();
}
