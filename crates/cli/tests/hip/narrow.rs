//! Paths that carry less than full packets, in the middle and at a host's own interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::daemon::{Host, Place, introduced, pair, tshark};
use crate::network::{Attachment, LTE_V6, Network, SERVER, WIFI};
use crate::talk::echoes;
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[
    ("a_narrow_path_is_discovered", a_narrow_path_is_discovered),
    ("a_narrow_interface_is_discovered", a_narrow_interface_is_discovered),
    ("full_packets_pass_a_link_of_1280_bytes_over_ipv4", full_packets_pass_a_link_of_1280_bytes_over_ipv4),
    ("full_packets_pass_a_link_of_1280_bytes_over_ipv6", full_packets_pass_a_link_of_1280_bytes_over_ipv6),
    ("full_packets_pass_a_link_of_900_bytes", full_packets_pass_a_link_of_900_bytes),
    ("long_hip_packets_pass_narrow_links", long_hip_packets_pass_narrow_links),
];

/// The file of a capture.
const CAPTURE: &str = "router.pcapng";
/// Far less than the seconds that a stalled transfer, or one that depends on timeouts, takes for this much data at 26 Mbit/s.
const SOON: Duration = Duration::from_secs(15);
const MUCH: u64 = 1_500_000;
/// Datagrams in each direction that leave in fragments.
const DATAGRAMS: usize = 600;

/// The two hosts and their network, with the mobile host attached there; packets that the router forwards are captured if `capture` is set.
fn attached(name: &str, attachment: &Attachment, via: &str, capture: bool) -> (Place, Network, [Host; 2]) {
    let place = Place::new(&format!("{name}-{via}-{}", attachment.link));
    let network = Network::new(capture.then(|| place.0.join(CAPTURE)).as_deref());
    network.attach(attachment);
    let addresses: [&[&str]; 2] = [&[attachment.address], &SERVER];
    let hosts = pair(&place, [&network.mobile, &network.server], addresses, via);
    (place, network, hosts)
}

/// Full segments in ESP exceed the MTU of a link between the hosts: the sender's TCP is told, in IPv6 and IPv4, and packets of every length
/// arrive then.
// Claim: Where a router carries less than full packets, programs are told, over IPv6 and IPv4, with and without UDP: transfers in
// both directions go on, and after the first 500 kB no packet is refused any more. So they are where the host's own interface
// carries less (tested over IPv4).
// Tests: `narrow::a_narrow_interface_is_discovered`, `path_mtu::tests::the_longest_inner_packet_fits_and_the_next_one_does_not`,
// `path_mtu::tests::errors_are_read_as_the_kernel_hands_them_out`, `path_mtu::a_router_that_reports_no_mtu`,
// `path_mtu::the_mtu_of_an_address_that_is_not_verified_yet`
fn a_narrow_path_is_discovered() {
    for (attachment, via) in [(WIFI, "udp"), (WIFI, "ip"), (LTE_V6, "udp"), (LTE_V6, "ip")] {
        for way in [Way::ToMobile, Way::FromMobile] {
            let (_place, network, [mut mobile, mut server]) = attached("narrow", &attachment, via, false);
            mobile.up("");
            server.up("");
            mobile.ok("ping server --count 1");
            // Inner packets have 1,400 bytes, 1,360 of them in ESP.
            network.set_mtu(1380);
            let transfer = Transfer::start(way, &network.mobile, &network.server, server.hit());
            transfer.wait_for_more(500_000);
            let sender = if way == Way::ToMobile { &server } else { &mobile };
            let too_big = || sender.status()["counters"]["too_big"].as_u64().unwrap();
            let told = too_big();
            transfer.wait_for_more(500_000);
            assert!(told > 0 && too_big() == told, "{way:?}, {via}, {}: {told}", attachment.address);
            transfer.end();
            // A program with IPv4 only gets the length of an IPv4 packet.
            let lsi: IpAddr = mobile.lsi_of("server").into();
            echoes(&network.mobile, &network.server, Ipv4Addr::UNSPECIFIED.into(), lsi);
            let told = network.mobile.enter(|| path_mtu(lsi)).unwrap();
            eprintln!("{way:?}, {via}, {}: IPv4 programs of the mobile host know {told}", attachment.address);
            assert!((1260..1400).contains(&told), "{told}");
        }
    }
}

/// The MTU of a path as the kernel here knows it (`IP_MTU`).
fn path_mtu(address: IpAddr) -> i32 {
    use std::os::fd::AsRawFd as _;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((address, 9)).unwrap();
    let (mut mtu, mut len) = (0_i32, size_of::<i32>() as u32);
    // SAFETY: the kernel writes at most `len` bytes, which is the integer's length.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MTU, (&raw mut mtu).cast(), &raw mut len)
    };
    assert_eq!(result, 0);
    mtu
}

/// The host's own interface refuses them (`EMSGSIZE`), one by one or in runs.
fn a_narrow_interface_is_discovered() {
    for via in ["udp", "ip"] {
        let (_place, network, [mut mobile, mut server]) = attached("interface", &WIFI, via, false);
        let set_mtu = || Netlink::open(&network.mobile).unwrap().set_mtu(WIFI.link, 1380).unwrap();
        network.mobile.enter(set_mtu).unwrap();
        mobile.up("");
        server.up("");
        let transfer = Transfer::start(Way::FromMobile, &network.mobile, &network.server, server.hit());
        transfer.wait_for_more(500_000);
        let counts = || ["not_sent", "too_big"].map(|name| mobile.status()["counters"][name].as_u64().unwrap());
        let [refused, told] = counts();
        transfer.wait_for_more(500_000);
        assert!(refused > 0 && told > 0 && counts()[1] == told, "{via}: {refused} refused, {told} told");
        transfer.end();
    }
}

/// How many fragments a host has sent, and packets that the kernel has refused.
fn fragments(host: &Host) -> (u64, u64) {
    let counters = &host.status()["counters"];
    (counters["fragments"].as_u64().unwrap(), counters["not_sent"].as_u64().unwrap())
}

// Claim: Downloads and uploads of 1.5 MB pass a link of 1,280 bytes over IPv4 and IPv6, and one of 900 bytes over IPv4, with and
// without UDP, each in less than 15 s: in the middle and as the host's own interface. Once the path is known, TCP's segments leave whole,
// and 600 datagrams of 1,280 bytes in each direction in fragments: 590 arrive. Wireshark reassembles the fragments and finds no wrong checksum.
// Tests: `narrow::full_packets_pass_a_link_of_1280_bytes_over_ipv6`, `narrow::full_packets_pass_a_link_of_900_bytes`,
// `path_mtu::packets_of_1280_bytes_leave_in_fragments_where_they_have_to`,
// `fragment_ids::an_identification_comes_again_after_all_others`,
// `fragment_ids::those_of_one_destination_do_not_show_those_of_another`
fn full_packets_pass_a_link_of_1280_bytes_over_ipv4() {
    full_packets_pass(&WIFI, 1280);
}

fn full_packets_pass_a_link_of_1280_bytes_over_ipv6() {
    full_packets_pass(&LTE_V6, 1280);
}

fn full_packets_pass_a_link_of_900_bytes() {
    full_packets_pass(&WIFI, 900);
}

/// The link of the mobile host carries as little as other tunnels do, or less: full packets, of 1,280 bytes, are cut if they are TCP
/// segments, and else leave in fragments.
fn full_packets_pass(attachment: &Attachment, mtu: u32) {
    for (via, is_own) in [("udp", true), ("ip", true), ("udp", false), ("ip", false)] {
        let what = format!("{mtu} bytes, {via}, {}, own interface: {is_own}", attachment.address);
        let (place, network, [mut mobile, mut server]) = attached(&format!("fragments-{mtu}"), attachment, via, true);
        if is_own {
            let set_mtu = || Netlink::open(&network.mobile).unwrap().set_mtu(attachment.link, mtu).unwrap();
            network.mobile.enter(set_mtu).unwrap();
        }
        network.set_mtu(mtu as usize);
        mobile.up("");
        server.up("");
        for (way, sender) in [(Way::ToMobile, &server), (Way::FromMobile, &mobile)] {
            let start = Instant::now();
            let transfer = Transfer::start(way, &network.mobile, &network.server, server.hit());
            transfer.wait_for_more(MUCH);
            let took = start.elapsed();
            let (sent, refused) = fragments(sender);
            eprintln!("{what}, {way:?}: {took:.1?}, {sent} fragments, {refused} packets refused");
            assert!(took < SOON && sent < 200, "{what}, {way:?}: {took:?}, {sent} fragments");
            transfer.wait_for_more(MUCH);
            assert_eq!(fragments(sender).0, sent, "{what}, {way:?}: the path is known");
            transfer.end();
            assert!(fragments(sender).1 < 100, "{what}, {way:?}: {refused} packets were refused");
        }
        let ends = [(&network.mobile, &mobile), (&network.server, &server)];
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let before = fragments(from.1).0;
            let arrived = long_datagrams((from.0, from.1.hit()), (to.0, to.1.hit()));
            let sent = fragments(from.1).0 - before;
            assert!(arrived + 10 >= DATAGRAMS && sent >= 2 * DATAGRAMS as u64, "{what}: {arrived}, {sent} fragments");
        }
        drop((mobile, server));
        drop(network);
        if !is_own {
            check_fragments(&place, attachment.address.contains(':'), via);
        }
    }
}

/// Sends [`DATAGRAMS`] of 1,280 bytes with their headers, slowly; returns how many arrive.
fn long_datagrams((from, src): (&Namespace, Ipv6Addr), (to, dst): (&Namespace, Ipv6Addr)) -> usize {
    let into = to.enter(|| UdpSocket::bind((dst, 9000)).unwrap()).unwrap();
    into.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let out = from.enter(|| UdpSocket::bind((src, 0)).unwrap()).unwrap();
    let receive = move || {
        let mut buffer = [0; 1500];
        let arriving = core::iter::from_fn(|| into.recv(&mut buffer).ok());
        arriving.filter(|&len| len == 1232).count()
    };
    let receiver = std::thread::spawn(receive);
    for _ in 0..DATAGRAMS {
        out.send_to(&[7; 1232], (dst, 9000)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    receiver.join().unwrap()
}

/// Checks Wireshark's view of the fragments in the capture.
fn check_fragments(place: &Place, is_v6: bool, via: &str) {
    let capture = place.0.join(CAPTURE);
    let version = if is_v6 { "ipv6" } else { "ip" };
    let count = |filter: &str| tshark(&capture, &["-Y", filter]).map(|found| found.lines().count());
    let Some(reassembled) = count(&format!("{version}.fragments")) else { return };
    assert!(reassembled > 1000, "{reassembled} packets were reassembled");
    // ESP in UDP has no dissector at this port, and is taken for this and that.
    let malformed = if via == "udp" { "hip and _ws.malformed" } else { "_ws.malformed" };
    let bad = format!(
        "{version}.fragment.error or {version}.fragment.overlap or {version}.fragment.multipletails or {malformed} or \
         udp.checksum.status == \"Bad\" or ip.checksum.status == \"Bad\""
    );
    assert_eq!(tshark(&capture, &["-Y", &bad]).unwrap(), "");
}

/// The packets of an exchange with RSA keys exceed 900 bytes: the first ones of a host, before it knows anything of the path.
fn long_hip_packets_pass_narrow_links() {
    for (via, is_own) in [("udp", true), ("ip", true), ("udp", false), ("ip", false)] {
        let place = Place::new(&format!("long-hip-{via}-{is_own}"));
        let network = Network::new(None);
        network.attach(&WIFI);
        let namespaces = [&network.mobile, &network.server];
        let hosts = [(0, "mobile"), (1, "server")].map(|(index, name)| {
            let host = Host::without_identity(&place, name, namespaces[index]);
            host.ok("keygen --algorithm rsa");
            host
        });
        let addresses: [&[&str]; 2] = [&[WIFI.address], &SERVER];
        let [mut mobile, mut server] = introduced(hosts, addresses, via);
        for (namespace, link) in [(&network.mobile, WIFI.link), (&network.server, "wan")] {
            if is_own {
                let set_mtu = || Netlink::open(namespace).unwrap().set_mtu(link, 600).unwrap();
                namespace.enter(set_mtu).unwrap();
            }
        }
        network.set_mtu(600);
        mobile.up("");
        server.up("");
        let start = Instant::now();
        mobile.ok("ping server --count 1");
        let took = start.elapsed();
        eprintln!("{via}, own interface: {is_own}: {took:.1?}, {:?}, {:?}", fragments(&mobile), fragments(&server));
        assert!(took < Duration::from_secs(3), "{via}, {is_own}: {took:?}");
        if is_own {
            // Of each host the first long packet, which its kernel refuses, leaves at once in fragments.
            let [(ours, lost), (theirs, lost_there)] = [fragments(&mobile), fragments(&server)];
            assert!(ours > 0 && theirs > 0 && lost == 0 && lost_there == 0, "{via}: {lost} and {lost_there} lost");
        }
    }
}
