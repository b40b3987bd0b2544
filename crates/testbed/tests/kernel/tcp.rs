//! Kernel sockets over the loopback interface: pinned congestion control, timeouts, `TCP_INFO` and counters.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use holdover_base::{ByteCount, Duration, Rng};
use holdover_testbed::{
    Congestion, Counters, KernelListener, KernelStream, Namespace, Netlink, SocketError, SocketOptions, TcpState, Tun,
    TunConfig,
};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("cubic_over_loopback", |namespace| transfer(namespace, Congestion::Cubic)),
    ("reno_over_loopback", |namespace| transfer(namespace, Congestion::Reno)),
    ("bbr_over_loopback", |namespace| transfer(namespace, Congestion::Bbr)),
    ("options_are_set", options_are_set),
    ("waiting_ends", waiting_ends),
    ("an_abort_is_a_reset", an_abort_is_a_reset),
];

/// Longer than any of these takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(30);
const BYTES: usize = 1 << 20;

/// One connection for each family; both sides send `BYTES` and compare the received bytes.
fn transfer(namespace: &Namespace, congestion: Congestion) {
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let before = Counters::read(namespace).unwrap();
        let options = SocketOptions::new(congestion);
        let listener = KernelListener::bind(namespace, (address, 0).into(), &options).unwrap();
        let connect_to = listener.local_addr().unwrap();
        let (client, server) = thread::scope(|scope| {
            let server = scope.spawn(|| exchange(listener.accept(LIMIT).unwrap(), 1, 2));
            let client = KernelStream::connect(namespace, connect_to, &options, LIMIT).unwrap();
            (exchange(client, 2, 1), server.join().unwrap())
        });
        for side in [&client, &server] {
            assert_eq!(side.congestion().unwrap(), congestion.name());
            let info = side.tcp_info().unwrap();
            assert_eq!(info.tcpi_state, TcpState::Established);
            assert!((1..65_536).contains(&info.tcpi_snd_mss), "{info:?}");
            assert!(info.tcpi_snd_cwnd >= 2, "{info:?}");
            assert!(info.tcpi_rtt > Duration::ZERO && info.tcpi_rtt < LIMIT, "{info:?}");
            assert!(info.tcpi_rto >= Duration::from_millis(200), "{info:?}");
            assert!(info.tcpi_bytes_received >= BYTES as u64, "{info:?}");
            assert!(info.tcpi_bytes_sent >= BYTES as u64, "{info:?}");
            assert!(info.tcpi_segs_out >= info.tcpi_data_segs_out, "{info:?}");
            assert_eq!(info.tcpi_options & 7, 7, "timestamps, SACK, window scale: {info:?}");
        }
        assert_eq!(client.peer_addr().unwrap(), connect_to);
        let mut client = client;
        server.shutdown_write().unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end of the stream");
        assert_eq!(client.tcp_info().unwrap().tcpi_state, TcpState::CloseWait);
        let counted = Counters::read(namespace).unwrap().since(&before);
        assert_eq!(counted.get("TcpActiveOpens"), Some(1));
        assert_eq!(counted.get("TcpPassiveOpens"), Some(1));
        let (octets, prefix) = if address.is_ipv6() { ("Ip6InOctets", "Ip6") } else { ("IpExtInOctets", "Ip") };
        assert!(counted.get(octets).unwrap() > 2 * BYTES as i64, "{counted:?}");
        assert!(counted.get(&format!("{prefix}InReceives")).unwrap() > 0, "{counted:?}");
        assert!(counted.iter().any(|(name, value)| name.starts_with("TcpExt") && value > 0), "{counted:?}");
    }
}

/// Sends the stream `seed` and expects the stream `peer_seed`. The connection stays open.
fn exchange(stream: KernelStream, seed: u64, peer_seed: u64) -> KernelStream {
    let mut receiver = stream.try_clone().unwrap();
    let mut sender = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&random_bytes(seed)).unwrap());
        let mut received = vec![0; BYTES];
        receiver.read_exact(&mut received).unwrap();
        assert!(received == random_bytes(peer_seed), "other bytes than were sent");
    });
    stream
}

fn random_bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..BYTES / 8).flat_map(|_| rng.next_u64().to_ne_bytes()).collect()
}

fn options_are_set(namespace: &Namespace) {
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    let options = SocketOptions {
        nodelay: true,
        user_timeout: Some(Duration::from_secs(7)),
        recv_buffer: Some(ByteCount(20_000)),
        send_buffer: Some(ByteCount(30_000)),
        max_segment: Some(700),
        local: Some("127.0.0.2:4000".parse().unwrap()),
        ..SocketOptions::new(Congestion::Cubic)
    };
    let plain = SocketOptions::new(Congestion::Reno);
    let listener = KernelListener::bind(namespace, (Ipv4Addr::LOCALHOST, 0).into(), &plain).unwrap();
    let client = KernelStream::connect(namespace, listener.local_addr().unwrap(), &options, LIMIT).unwrap();
    let server = listener.accept(LIMIT).unwrap();
    assert_eq!((client.congestion().unwrap().as_str(), server.congestion().unwrap().as_str()), ("cubic", "reno"));
    assert_eq!(server.peer_addr().unwrap(), options.local.unwrap());
    assert!(server.tcp_info().unwrap().tcpi_snd_mss <= 700);
    let socket = socket2::SockRef::from(&client);
    assert!(socket.tcp_nodelay().unwrap());
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(std::time::Duration::from_secs(7)));
    assert_eq!(socket.recv_buffer_size().unwrap(), 40_000, "the kernel doubles it");
    assert_eq!(socket.send_buffer_size().unwrap(), 60_000, "the kernel doubles it");
}

fn waiting_ends(namespace: &Namespace) {
    let short = Duration::from_millis(50);
    let mut options = SocketOptions::new(Congestion::Cubic);
    let config = TunConfig::new("tun0", 1500).address(Ipv4Addr::new(10, 0, 0, 1), 24);
    // No peer answers behind this device.
    let _tun = Tun::open(namespace, &config).unwrap();
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    let silent: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let connecting = KernelStream::connect(namespace, silent, &options, short);
    assert!(matches!(connecting, Err(SocketError::TimedOut { call: "connect", .. })), "{connecting:?}");

    let listener = KernelListener::bind(namespace, (Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
    let accepting = listener.accept(short);
    assert!(matches!(accepting, Err(SocketError::TimedOut { call: "accept", .. })), "{accepting:?}");

    options.io_timeout = short;
    let address = listener.local_addr().unwrap();
    let mut client = KernelStream::connect(namespace, address, &options, LIMIT).unwrap();
    let _server = listener.accept(LIMIT).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let too_much = vec![0; 64 << 20];
    assert_eq!(client.write_all(&too_much).unwrap_err().kind(), ErrorKind::TimedOut);

    drop(listener);
    let refused = KernelStream::connect(namespace, address, &options, LIMIT);
    assert!(
        matches!(&refused, Err(SocketError::Failed { call: "connect", source })
            if source.kind() == ErrorKind::ConnectionRefused),
        "{refused:?}"
    );
}

fn an_abort_is_a_reset(namespace: &Namespace) {
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    let options = SocketOptions::new(Congestion::Cubic);
    let listener = KernelListener::bind(namespace, (Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
    let client = KernelStream::connect(namespace, listener.local_addr().unwrap(), &options, LIMIT).unwrap();
    let mut server = listener.accept(LIMIT).unwrap();
    client.abort().unwrap();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.tcp_info().unwrap().tcpi_state, TcpState::Closed);
}
