//! A TUN device between the kernel's sockets and an endpoint of this project.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_testbed::{
    Counters, Impairment, ImpairmentConfig, Namespace, Netlink, PacketEndpoint, Shell, ShellError, Stopped, Tun,
    TunConfig, TunDirection, TunError, sysctl,
};
use holdover_wire::{IcmpEcho, Packet, Payload, Udp};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;
use crate::echo::Echo;

pub(crate) const TESTS: &[Test] = &[
    ("udp_over_ipv4_mtu_576", |namespace| udp_echo(namespace, KERNEL_V4, 576)),
    ("udp_over_ipv4_mtu_1500", |namespace| udp_echo(namespace, KERNEL_V4, 1500)),
    ("udp_over_ipv6_mtu_1280", |namespace| udp_echo(namespace, KERNEL_V6, 1280)),
    ("udp_over_ipv6_mtu_1500", |namespace| udp_echo(namespace, KERNEL_V6, 1500)),
    ("icmp_over_ipv4", |namespace| icmp_echo(namespace, KERNEL_V4)),
    ("icmp_over_ipv6", |namespace| icmp_echo(namespace, KERNEL_V6)),
    ("a_fresh_device_is_silent", a_fresh_device_is_silent),
    ("deadlines_are_kept", deadlines_are_kept),
    ("total_loss_is_total", total_loss_is_total),
    ("corruption_is_noticed_by_both_sides", corruption_is_noticed_by_both_sides),
    ("a_device_that_is_down_takes_nothing", a_device_that_is_down_takes_nothing),
    ("the_kernel_refuses_packets_that_are_not_ip", the_kernel_refuses_packets_that_are_not_ip),
    ("a_capture_has_every_packet", a_capture_has_every_packet),
    ("the_application_has_its_turn_after_a_transmission", the_application_has_its_turn_after_a_transmission),
    ("a_waker_ends_the_sleep", a_waker_ends_the_sleep),
    ("an_endpoint_out_of_bounds_is_stopped", an_endpoint_out_of_bounds_is_stopped),
    ("a_panic_beside_the_loop_comes_out", a_panic_beside_the_loop_comes_out),
];

const KERNEL_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ENDPOINT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const KERNEL_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const ENDPOINT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

/// Longer than any of these takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(30);
const PATIENCE: StdDuration = StdDuration::from_secs(20);

fn tun(namespace: &Namespace, kernel: IpAddr, mtu: u32) -> (Tun, IpAddr) {
    let (endpoint, prefix_len) = if kernel.is_ipv4() { (ENDPOINT_V4, 24) } else { (ENDPOINT_V6, 64) };
    (Tun::open(namespace, &TunConfig::new("tun0", mtu).address(kernel, prefix_len)).unwrap(), endpoint)
}

fn udp_socket(kernel: IpAddr, endpoint: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((kernel, 0)).unwrap();
    socket.connect(SocketAddr::from((endpoint, 7))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams up to the MTU are returned whole; one byte more is fragmented by the kernel.
fn udp_echo(namespace: &Namespace, kernel: IpAddr, mtu: u32) {
    let (tun, endpoint) = tun(namespace, kernel, mtu);
    assert_eq!(Netlink::open(namespace).unwrap().link("tun0").unwrap().mtu, mtu);
    let largest = mtu as usize - if kernel.is_ipv4() { 28 } else { 48 };
    let mut echo = Echo::new(endpoint, Duration::ZERO);
    let mut shell = Shell::new(&tun).unwrap();
    let kernel_side = || {
        let socket = udp_socket(kernel, endpoint);
        for len in [0, 1, 100, largest] {
            let data: Vec<u8> = (0..len).map(|index| index as u8).collect();
            socket.send(&data).unwrap();
            let mut answer = vec![0; 2000];
            let answer_len = socket.recv(&mut answer).unwrap();
            assert!(answer[..answer_len] == data, "{len} bytes went out, {answer_len} came back");
        }
        socket.send(&vec![0; largest + 1]).unwrap();
    };
    assert_eq!(shell.run_beside(&mut echo, LIMIT, |_, _| {}, kernel_side).unwrap(), Stopped::ByApplication(()));

    assert_eq!(echo.received.len(), 6);
    assert_eq!(echo.received[3].wire_len(), mtu as usize);
    let fragments = &echo.received[4..];
    assert!(fragments.iter().all(|packet| matches!(packet.payload, Payload::Fragment(_))), "{fragments:?}");
    let counters = shell.counters();
    assert_eq!((counters.packets_from_kernel, counters.packets_to_kernel, counters.unparsable), (6, 4, 0));
    assert_eq!(counters.bytes_from_kernel, echo.received.iter().map(|packet| packet.wire_len() as u64).sum::<u64>());
}

fn icmp_echo(namespace: &Namespace, kernel: IpAddr) {
    let (tun, endpoint) = tun(namespace, kernel, 1500);
    sysctl::set(namespace, "net.ipv4.ping_group_range", "0 0").unwrap();
    let (domain, protocol, request, reply) = match kernel {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let mut echo = Echo::new(endpoint, Duration::from_millis(1));
    let mut shell = Shell::new(&tun).unwrap();
    let kernel_side = || {
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(&SocketAddr::from((endpoint, 0)).into()).unwrap();
        for seq in 0..3 {
            // Type, code, checksum and identifier (the kernel fills in both), sequence number, data.
            socket.send(&[request, 0, 0, 0, 0, 0, 0, seq, b'p', b'i', b'n', b'g']).unwrap();
            let mut answer = [0; 100];
            let len = std::io::Read::read(&mut &socket, &mut answer).unwrap();
            assert_eq!((answer[0], &answer[6..len]), (reply, &[0, seq, b'p', b'i', b'n', b'g'][..]));
        }
    };
    assert_eq!(shell.run_beside(&mut echo, LIMIT, |_, _| {}, kernel_side).unwrap(), Stopped::ByApplication(()));
    let seqs: Vec<_> = echo
        .received
        .iter()
        .map(|packet| match &packet.payload {
            Payload::IcmpEcho(IcmpEcho { reply: false, seq, .. }) => *seq,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seqs, [0, 1, 2]);
}

/// No router solicitation, no duplicate address detection: only the test's packets cross the device. (Linux still sends
/// multicast listener reports for the address's own group.)
fn a_fresh_device_is_silent(namespace: &Namespace) {
    let config = TunConfig::new("tun0", 1500).address(KERNEL_V4, 24).address(KERNEL_V6, 64);
    let tun = Tun::open(namespace, &config).unwrap();
    let socket = UdpSocket::bind((KERNEL_V6, 0)).expect("the address is usable at once");
    drop(socket);
    let mut listener = Listener::default();
    Shell::new(&tun)
        .unwrap()
        .run(&mut listener, Duration::from_millis(1500), |_, _| ControlFlow::<()>::Continue(()))
        .unwrap();
    assert_eq!(listener.0, []);
}

/// Records packets other than multicast listener reports.
#[derive(Debug, Default)]
struct Listener(Vec<Packet>);

impl PacketEndpoint for Listener {
    fn handle_packet(&mut self, _: Instant, packet: Packet) {
        let all_mldv2_routers: IpAddr = "ff02::16".parse().unwrap();
        if packet.dst != all_mldv2_routers {
            self.0.push(packet);
        }
    }
    fn poll_transmit(&mut self, _: Instant) -> Option<Packet> {
        None
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
    fn handle_timeout(&mut self, _: Instant) {}
}

/// Each answer is due at a time after its request that is not a multiple of a clock tick; `Echo` fails on an early call.
fn deadlines_are_kept(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
    let delay = Duration::from_nanos(2_345_678);
    let mut echo = Echo::new(endpoint, delay);
    let mut shell = Shell::new(&tun).unwrap();
    let kernel_side = || {
        let socket = udp_socket(KERNEL_V4, endpoint);
        for _ in 0..20 {
            let start = std::time::Instant::now();
            socket.send(b"x").unwrap();
            socket.recv(&mut [0; 9]).unwrap();
            assert!(start.elapsed() >= delay.into());
        }
    };
    shell.run_beside(&mut echo, LIMIT, |_, _| {}, kernel_side).unwrap();
    assert_eq!(echo.lateness.len(), 20);
    // Ten times the wait itself is a broken timer, not a slow machine.
    assert!(echo.lateness.iter().min().unwrap() < &(delay * 10), "{:?}", echo.lateness);
}

fn total_loss_is_total(namespace: &Namespace) {
    for direction in [TunDirection::FromKernel, TunDirection::ToKernel] {
        let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
        let mut echo = Echo::new(endpoint, Duration::ZERO);
        let loss = Impairment::new(ImpairmentConfig { loss: 1.0, ..Default::default() }, 1).unwrap();
        let mut shell = Shell::new(&tun).unwrap().with_impairment(direction, loss);
        let kernel_side = || {
            let socket = udp_socket(KERNEL_V4, endpoint);
            socket.set_read_timeout(Some(StdDuration::from_millis(100))).unwrap();
            socket.send(b"x").unwrap();
            socket.recv(&mut [0; 9]).unwrap_err().kind()
        };
        let result = shell.run_beside(&mut echo, LIMIT, |_, _| {}, kernel_side).unwrap();
        assert_eq!(result, Stopped::ByApplication(std::io::ErrorKind::WouldBlock));
        assert_eq!(shell.impairment(direction).counters().lost, 1);
        assert_eq!(echo.received.len(), usize::from(direction == TunDirection::ToKernel));
    }
}

/// Every bit of a UDP packet over IPv4 is under a checksum, or the kernel could not find the packet at all.
fn corruption_is_noticed_by_both_sides(namespace: &Namespace) {
    const PACKETS: u64 = 200;
    for direction in [TunDirection::FromKernel, TunDirection::ToKernel] {
        let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
        let before = Counters::read(namespace).unwrap();
        let mut echo = Echo::new(endpoint, Duration::ZERO);
        let corrupt = Impairment::new(ImpairmentConfig { corrupt: 1.0, ..Default::default() }, 1).unwrap();
        let mut shell = Shell::new(&tun).unwrap().with_impairment(direction, corrupt);
        let kernel_side = || {
            let socket = udp_socket(KERNEL_V4, endpoint);
            for _ in 0..PACKETS {
                socket.send(b"data").unwrap();
            }
            socket.set_read_timeout(Some(StdDuration::from_millis(200))).unwrap();
            socket.recv(&mut [0; 9]).unwrap_err().kind()
        };
        let result = shell.run_beside(&mut echo, LIMIT, |_, _| {}, kernel_side).unwrap();
        assert_eq!(result, Stopped::ByApplication(std::io::ErrorKind::WouldBlock), "no datagram came through");
        let counters = shell.counters();
        let counted = Counters::read(namespace).unwrap().since(&before);
        let (unparsable, handed_over) = match direction {
            TunDirection::FromKernel => (PACKETS, 0),
            TunDirection::ToKernel => (0, PACKETS),
        };
        assert_eq!((counters.unparsable, counters.packets_to_kernel), (unparsable, handed_over), "{counted:?}");
        let noticed = counted.get("IpInHdrErrors").unwrap()
            + counted.get("UdpInCsumErrors").unwrap()
            + counted.get("IpExtInTruncatedPkts").unwrap()
            + counted.get("IpExtInCsumErrors").unwrap()
            + counters.not_ip as i64;
        assert_eq!(noticed > 0, direction == TunDirection::ToKernel, "{counted:?}");
    }
}

fn a_device_that_is_down_takes_nothing(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
    Netlink::open(namespace).unwrap().set_down("tun0").unwrap();
    let packet = Packet::new(endpoint, KERNEL_V4, Udp::default()).emit().unwrap();
    assert!(matches!(tun.send(&packet), Err(TunError::Down { .. })));
    let mut talker = Talker { packet: Some(Packet::new(endpoint, KERNEL_V4, Udp::default())), deadline: None };
    let mut shell = Shell::new(&tun).unwrap();
    shell.run(&mut talker, Duration::from_millis(5), |_, _| ControlFlow::<()>::Continue(())).unwrap();
    assert_eq!(shell.counters().dropped_while_down, 1);
}

fn the_kernel_refuses_packets_that_are_not_ip(namespace: &Namespace) {
    let (tun, _) = tun(namespace, KERNEL_V4, 1500);
    for bytes in [&[][..], &[0x55; 40]] {
        assert!(matches!(tun.send(bytes), Err(TunError::NotIp)), "{bytes:?}");
    }
    assert!(tun.recv(&mut [0; 1500]).unwrap().is_none());
}

/// Sends one packet, optionally with a deadline that never advances.
#[derive(Debug)]
struct Talker {
    packet: Option<Packet>,
    deadline: Option<Instant>,
}

impl PacketEndpoint for Talker {
    fn handle_packet(&mut self, _: Instant, _: Packet) {}
    fn poll_transmit(&mut self, _: Instant) -> Option<Packet> {
        self.packet.take()
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.deadline
    }
    fn handle_timeout(&mut self, _: Instant) {}
}

/// The next two tests end only at the limit if the loop sleeps when it must not.
fn the_application_has_its_turn_after_a_transmission(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
    let mut talker = Talker { packet: Some(Packet::new(endpoint, KERNEL_V4, Udp::default())), deadline: None };
    let mut shell = Shell::new(&tun).unwrap();
    let is_sent = |_, talker: &mut Talker| match talker.packet {
        Some(_) => ControlFlow::Continue(()),
        None => ControlFlow::Break(()),
    };
    assert_eq!(shell.run(&mut talker, LIMIT, is_sent).unwrap(), Stopped::ByApplication(()));
    assert!(shell.clock().now() < Instant::ZERO + LIMIT);
}

fn a_waker_ends_the_sleep(namespace: &Namespace) {
    let (tun, _) = tun(namespace, KERNEL_V4, 1500);
    let mut talker = Talker { packet: None, deadline: None };
    let mut shell = Shell::new(&tun).unwrap();
    let (waker, turns) = (shell.waker(), AtomicU32::new(0));
    let stopped = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The loop has completed a round, and sleeps or is about to sleep.
            while turns.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            waker.wake();
        });
        let second_turn = |_, _: &mut Talker| match turns.fetch_add(1, Ordering::SeqCst) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        shell.run(&mut talker, LIMIT, second_turn).unwrap()
    });
    assert_eq!(stopped, Stopped::ByApplication(()));
    assert!(shell.clock().now() < Instant::ZERO + LIMIT);
}

fn an_endpoint_out_of_bounds_is_stopped(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 576);
    let run = |mut talker: Talker| {
        Shell::new(&tun).unwrap().run(&mut talker, LIMIT, |_, _| ControlFlow::<()>::Continue(())).unwrap_err()
    };
    let udp = |len: usize| Udp { payload: vec![0; len].into(), ..Udp::default() };
    let too_long = Packet::new(endpoint, KERNEL_V4, udp(549));
    assert!(matches!(
        run(Talker { packet: Some(too_long), deadline: None }),
        ShellError::ExceedsMtu { len: 577, mtu: 576 }
    ));
    let mixed = Packet::new(endpoint, KERNEL_V6, udp(1));
    assert!(matches!(run(Talker { packet: Some(mixed), deadline: None }), ShellError::Emit { .. }));
    let stuck = Talker { packet: None, deadline: Some(Instant::ZERO) };
    assert!(matches!(run(stuck), ShellError::Livelock { deadline: Instant::ZERO }));
}

fn a_capture_has_every_packet(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
    let mut echo = Echo::new(endpoint, Duration::ZERO);
    let file = SharedFile::default();
    let loss = Impairment::new(ImpairmentConfig { loss: 1.0, ..Default::default() }, 1).unwrap();
    let mut shell = Shell::new(&tun).unwrap().with_capture(file.clone()).unwrap();
    let exchange = || {
        let socket = udp_socket(KERNEL_V4, endpoint);
        socket.send(b"there and back").unwrap();
        socket.recv(&mut [0; 99]).unwrap();
    };
    shell.run_beside(&mut echo, LIMIT, |_, _| {}, exchange).unwrap();
    // Losses occur after the packet has crossed the device.
    let mut shell = shell.with_impairment(TunDirection::FromKernel, loss);
    let send = || assert_eq!(udp_socket(KERNEL_V4, endpoint).send(b"there").unwrap(), 5);
    shell.run_beside(&mut echo, LIMIT, |_, _| {}, send).unwrap();

    let captured: Vec<_> =
        captured(&file.0.lock().unwrap()).into_iter().map(|bytes| Packet::parse(bytes).unwrap()).collect();
    let summary: Vec<_> = captured
        .iter()
        .map(|packet| match &packet.payload {
            Payload::Udp(udp) => (packet.src, &udp.payload[..]),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(summary, [(KERNEL_V4, &b"there and back"[..]), (endpoint, b"there and back"), (KERNEL_V4, b"there")]);
    assert_eq!(captured[0], echo.received[0]);
}

/// A file in memory that can be read while a shell writes it.
#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The packets of a little-endian pcapng capture: block type and length, then (type 6) interface, two halves of the time,
/// captured and original length, data.
fn captured(mut file: &[u8]) -> Vec<Bytes> {
    let word = |bytes: &[u8], index: usize| u32::from_le_bytes(bytes[4 * index..][..4].try_into().unwrap()) as usize;
    let mut packets = Vec::new();
    while !file.is_empty() {
        let (block, rest) = file.split_at(word(file, 1));
        if word(block, 0) == 6 {
            packets.push(Bytes::copy_from_slice(&block[28..][..word(block, 5)]));
        }
        file = rest;
    }
    packets
}

fn a_panic_beside_the_loop_comes_out(namespace: &Namespace) {
    let (tun, endpoint) = tun(namespace, KERNEL_V4, 1500);
    let mut echo = Echo::new(endpoint, Duration::ZERO);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Shell::new(&tun).unwrap().run_beside(
            &mut echo,
            LIMIT,
            |_, _| {},
            || std::panic::resume_unwind(Box::new("on purpose")),
        )
    }));
    assert_eq!(result.map(drop).unwrap_err().downcast_ref(), Some(&"on purpose"));
}
