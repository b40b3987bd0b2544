//! The kernel's ESP in BEET mode (`ip xfrm`) as the peer of ours, with keys given by hand. It needs a kernel with ESP and `ip` of iproute2:
//! `.ci/kernel-esp` runs it on Debian's kernels.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use holdover_hip::esp::{EspKeys, EspSuite, GcmProvider, Inbound, Outbound};
use holdover_hip::identity::Hit;
use holdover_hipd::gcm::RING;
use holdover_hipd::random::SystemRandom;
use holdover_testbed::{Namespace, Netlink};
use holdover_wire::{Packet, Payload, Udp};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Test;

pub(crate) const TESTS: &[Test] =
    &[("the_kernels_esp_is_a_peer_of_the_data_plane", the_kernels_esp_is_a_peer_of_the_data_plane)];

const LINK: &str = "esp0";
const PORTS: [u16; 2] = [2000, 3000];
const TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel's number for ESP.
const ESP: i32 = 50;

/// The addresses of both ends.
#[derive(Clone, Copy)]
struct Outer {
    kernel: IpAddr,
    ours: IpAddr,
}

impl Outer {
    /// Over either IP version.
    fn both() -> [Self; 2] {
        let outer = |kernel: &str, ours: &str| Self { kernel: kernel.parse().unwrap(), ours: ours.parse().unwrap() };
        [outer("192.0.2.1", "192.0.2.2"), outer("fd00:5::1", "fd00:5::2")]
    }

    const fn prefix_len(self) -> u8 {
        if self.ours.is_ipv4() { 24 } else { 64 }
    }

    /// Source and destination.
    const fn of(self, is_to_us: bool) -> [IpAddr; 2] {
        if is_to_us { [self.kernel, self.ours] } else { [self.ours, self.kernel] }
    }

    /// The bytes before ESP in what a raw socket reads: Linux removes the header of IPv6 only.
    fn header_len(self, packet: &[u8]) -> usize {
        if self.ours.is_ipv4() { usize::from(packet[0] & 0xf) * 4 } else { 0 }
    }
}

fn hits() -> [Hit; 2] {
    ["2001:25::1", "2001:25::2"].map(|hit| Hit(hit.parse().unwrap()))
}

/// Keys, their SPI, and the implementation of AES-GCM at our end.
#[derive(Clone, Copy)]
struct Key {
    suite: EspSuite,
    spi: u32,
    gcm: GcmProvider,
}

impl Key {
    fn keys(self) -> EspKeys {
        let bytes = |len: usize, first: u32| (0..len as u32).map(|at| (first + at * 7) as u8).collect::<Vec<u8>>();
        EspKeys {
            suite: self.suite,
            encryption: bytes(self.suite.encryption_len(), self.spi).into(),
            authentication: bytes(self.suite.authentication_len(), self.spi + 99).into(),
        }
    }

    /// The algorithms of `ip xfrm state`.
    fn words(self) -> String {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold("0x".to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let keys = self.keys();
        if self.suite == EspSuite::Aes128Gcm16 {
            return format!("aead rfc4106(gcm(aes)) {} 128", hex(&keys.encryption));
        }
        let cipher = if self.suite == EspSuite::NullHmacSha256 { "ecb(cipher_null)" } else { "cbc(aes)" };
        let key = if keys.encryption.is_empty() { String::new() } else { hex(&keys.encryption) };
        format!("enc {cipher} {key:?} auth-trunc hmac(sha256) {} 128", hex(&keys.authentication))
    }
}

/// A security association of the kernel, to us or from us, behind this sequence number.
fn state(outer: Outer, key: Key, is_to_us: bool, number: u64) -> String {
    let ([src, dst], [own, other]) = (outer.of(is_to_us), if is_to_us { [0, 1] } else { [1, 0] });
    let hits = hits();
    let (low, high) = (number as u32, (number >> 32) as u32);
    let replay = if is_to_us { "oseq" } else { "seq" };
    format!(
        "xfrm state add src {src} dst {dst} proto esp spi {:#x} reqid 1 mode beet replay-window 128 replay-{replay} {low:#x} \
         replay-{replay}-hi {high:#x} flag esn {} sel src {} dst {}",
        key.spi,
        key.words(),
        hits[own],
        hits[other]
    )
}

fn policy(outer: Outer, is_to_us: bool) -> String {
    let [src, dst] = outer.of(is_to_us);
    let ([own, other], direction) = if is_to_us { ([0, 1], "out") } else { ([1, 0], "in") };
    let hits = hits();
    format!(
        "-6 xfrm policy add src {} dst {} dir {direction} tmpl src {src} dst {dst} proto esp reqid 1 mode beet",
        hits[own], hits[other]
    )
}

/// `ip` with these words, where "" is an empty one.
fn ip(words: &str) -> Result<(), String> {
    let words = words.split_whitespace().map(|word| if word == "\"\"" { "" } else { word.trim_matches('"') });
    let output = Command::new("ip").args(words.clone()).output().map_err(|error| format!("ip: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {error}", words.collect::<Vec<_>>().join(" "))) }
}

/// Both ends of the data plane, and of the kernel's programs.
struct Ends {
    outer: Outer,
    raw: Socket,
    program: UdpSocket,
    outbound: Outbound,
    inbound: Inbound,
}

impl Ends {
    /// Data from the kernel's program, with the keys that these ends expect.
    fn receive(&mut self, text: &[u8]) {
        let [kernel, ours] = hits();
        self.program.send_to(text, (ours.0, PORTS[1])).unwrap();
        let mut buffer = vec![0; 4096];
        let len = std::io::Read::read(&mut &self.raw, &mut buffer).expect("ESP from the kernel");
        let header = self.outer.header_len(&buffer);
        let came = self.inbound.open(&buffer[header..len], 64, 0).unwrap();
        assert_eq!((came.src, came.dst), (kernel.0.into(), ours.0.into()));
        let Payload::Udp(udp) = &came.payload else { panic!("{came}") };
        assert_eq!((udp.src_port, udp.dst_port, &udp.payload[..]), (PORTS[0], PORTS[1], text));
    }

    /// Data to the kernel's program.
    fn send(&mut self, text: &[u8]) {
        let [kernel, ours] = hits();
        let udp = Udp { src_port: PORTS[1], dst_port: PORTS[0], payload: Bytes::copy_from_slice(text) };
        let inner = Packet::new(ours.0.into(), kernel.0.into(), udp);
        let esp = self.outbound.seal(&inner, &mut SystemRandom).unwrap();
        self.raw.send_to(&esp, &SockAddr::from(SocketAddr::from((self.outer.kernel, 0)))).unwrap();
        let mut buffer = vec![0; 4096];
        let (len, from) = self.program.recv_from(&mut buffer).expect("data of ours");
        assert_eq!((&buffer[..len], from), (text, SocketAddr::from((ours.0, PORTS[1]))));
    }
}

fn inbound(key: Key) -> Inbound {
    let [kernel, ours] = hits();
    Inbound::new(key.spi, key.keys(), key.gcm, ours, kernel)
}

fn outbound(key: Key) -> Outbound {
    let [kernel, ours] = hits();
    Outbound::new(key.spi, key.keys(), key.gcm, ours, kernel)
}

/// Brings the anti-replay window to a sequence number, by packets of our own with the kernel's keys.
fn advance(inbound: &mut Inbound, key: Key, number: u64) {
    let [kernel, ours] = hits();
    let inner = Packet::new(kernel.0.into(), ours.0.into(), Udp { src_port: 1, dst_port: 1, payload: Bytes::new() });
    // Half of the space of the lower half at a time, so that its upper half is known.
    for number in [number / 4, number / 2, number] {
        let outbound = Outbound::new(key.spi, key.keys(), key.gcm, kernel, ours);
        let esp = outbound.resumed_at(number).seal(&inner, &mut SystemRandom).unwrap();
        inbound.open(&esp, 64, 0).unwrap();
    }
}

/// Each suite, and AES-GCM by the implementation of the daemon as well.
fn suites() -> Vec<(EspSuite, &'static str, GcmProvider)> {
    let by_default = EspSuite::ALL.into_iter().map(|suite| (suite, "aes-gcm", GcmProvider::default()));
    by_default.chain([(EspSuite::Aes128Gcm16, "ring", RING)]).collect()
}

// Claim: The kernel's ESP in BEET mode and the data plane exchange packets with each suite, and with both implementations of AES-GCM, over
// IPv4 and IPv6, in both directions, across sequence number 2^32 and changes of keys. On Linux 6.1 and 6.12 in virtual machines
// (`.ci/kernel-esp`).
fn the_kernels_esp_is_a_peer_of_the_data_plane() {
    let [kernel, ours] = ["kernel", "ours"].map(|name| Namespace::new(name).unwrap());
    let [own, other] = hits();
    kernel
        .enter(|| {
            let mut netlink = Netlink::open(&kernel).unwrap();
            netlink.add_veth(LINK, LINK, &ours).unwrap();
            netlink.set_up(LINK).unwrap();
            netlink.set_up("lo").unwrap();
            for outer in Outer::both() {
                netlink.add_address(LINK, outer.kernel, outer.prefix_len()).unwrap();
            }
            netlink.add_address("lo", own.0.into(), 128).unwrap();
        })
        .unwrap();
    ours.enter(|| {
        let mut netlink = Netlink::open(&ours).unwrap();
        netlink.set_up(LINK).unwrap();
        for outer in Outer::both() {
            netlink.add_address(LINK, outer.ours, outer.prefix_len()).unwrap();
        }
    })
    .unwrap();
    let run = |words: &str| kernel.enter(|| ip(words)).unwrap();
    let probe = Key { suite: EspSuite::Aes128Gcm16, spi: 0x1fff, gcm: GcmProvider::default() };
    if let Err(error) = run(&state(Outer::both()[0], probe, true, 0)) {
        let is_required = std::env::var_os("HOLDOVER_REQUIRE_XFRM").is_some_and(|value| value == "1");
        assert!(!is_required, "this kernel has no ESP: {error}");
        eprintln!("skipped: this kernel has no ESP (HOLDOVER_REQUIRE_XFRM=1 makes this a failure): {error}");
        return;
    }
    run(&format!("-6 route add {}/128 dev {LINK} src {}", other.0, own.0)).unwrap();
    let program = kernel.enter(|| bound(own.0)).unwrap();
    for outer in Outer::both() {
        run("xfrm state flush").unwrap();
        run("xfrm policy flush").unwrap();
        run(&policy(outer, true)).unwrap();
        run(&policy(outer, false)).unwrap();
        let domain = Domain::for_address(SocketAddr::from((outer.ours, 0)));
        let raw = ours.enter(|| Socket::new(domain, Type::RAW, Some(Protocol::from(ESP))).unwrap()).unwrap();
        raw.set_read_timeout(Some(TIMEOUT)).unwrap();
        exchange(outer, &raw, &program, &|words| run(words).unwrap());
    }
}

/// Data in both directions with each suite, one association after the other. `run` runs `ip` at the kernel's end.
fn exchange(outer: Outer, raw: &Socket, program: &UdpSocket, run: &dyn Fn(&str)) {
    let delete = |is_to_us: bool, key: Key| {
        let [src, dst] = outer.of(is_to_us);
        run(&format!("xfrm state delete src {src} dst {dst} proto esp spi {:#x}", key.spi));
    };
    let mut spi = 0x1000;
    // The keys before, and the ends that have them.
    let mut former: Option<([Key; 2], Ends)> = None;
    for (suite, by, gcm) in suites() {
        // In every second association the sequence numbers pass 2^32. Each takes the place of the one before.
        for number in [0, (1 << 32) - 8] {
            spi += 0x10;
            let [to_us, from_us] = [spi, spi + 1].map(|spi| Key { suite, spi, gcm });
            run(&state(outer, to_us, true, number));
            run(&state(outer, from_us, false, number));
            if let Some(([former_to_us, _], _)) = &former {
                // From here on the kernel sends with the new keys.
                delete(true, *former_to_us);
            }
            let mut inbound = inbound(to_us);
            if number > 0 {
                advance(&mut inbound, to_us, number - 1);
            }
            let (raw, program) = (raw.try_clone().unwrap(), program.try_clone().unwrap());
            let mut ends = Ends { outer, raw, program, outbound: outbound(from_us).resumed_at(number), inbound };
            for round in 0..20_usize {
                let text = vec![round as u8; 1 + round * 60];
                ends.receive(&text);
                ends.send(&text);
            }
            if let Some(([_, former_from_us], mut former)) = former.take() {
                // A packet with the former keys that was under way.
                former.send(b"late");
                delete(false, former_from_us);
            }
            former = Some(([to_us, from_us], ends));
            let (ours, by) = (outer.ours, if suite == EspSuite::Aes128Gcm16 { by } else { "" });
            eprintln!("{ours}: {suite:?} {by}: 20 packets in each direction from sequence number {number:#x} on");
        }
    }
}

fn bound(address: Ipv6Addr) -> UdpSocket {
    let socket = UdpSocket::bind((address, PORTS[0])).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}
