//! Probes of mobile hosts on interfaces without Ethernet (WireGuard, PPP, raw IP) by ICMP echo (RFC 792, RFC 4443), with
//! the gateway's own address.
//!
//! A host may answer no echo requests. So each one is tried while it is present, less and less often; only the silence
//! of one that has answered before counts.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, BorrowedFd};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_host::icmp_socket::{Icmp, IcmpSocket};
use holdover_wire::IcmpEcho;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::icmp_errors::icmp_message;
use crate::path::MARK;

/// The sockets, and the state of each host.
#[derive(Debug)]
pub(super) struct Echo {
    /// For IPv4 and IPv6; `None` if the kernel refuses one.
    sockets: [Option<IcmpSocket>; 2],
    /// Identifier and data of each request and its answer.
    token: [u8; TOKEN],
    sequence: u16,
    hosts: BTreeMap<IpAddr, Host>,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    /// When the first request was sent since the host's last packet.
    asked_since: Option<Instant>,
    /// The longest time that the last answers took; `None` before the first one.
    answers_within: Option<Duration>,
    /// When it is tried again.
    try_at: Instant,
    tries: u32,
}

/// The identifier, and the data of a request.
const TOKEN: usize = 2 + 8;

/// The pause after the first trial of a host that has not answered; it doubles with each, up to the second one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// A host is tried while it was heard in this time.
const PRESENT: Duration = Duration::from_secs(1);

/// Types of ICMP and ICMPv6 echo replies.
const TYPES: [u8; 2] = [0, 129];

/// Bytes of a message: its header, the data that all have, and the time of the request.
const MESSAGE: usize = 8 + 8 + 8;

/// Answers that took longer count as lost.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

impl Echo {
    /// In the calling thread's network namespace, on one interface.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let mut token = [0; TOKEN];
        getrandom(&mut token[..], GetRandomFlags::empty())?;
        Ok(Self { sockets: sockets(interface), token, sequence: 0, hosts: BTreeMap::new() })
    }

    /// The interface was replaced by another one of the same name.
    pub(super) fn reopen(&mut self, interface: &str) {
        self.sockets = sockets(interface);
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().flatten().map(|socket| socket.as_fd())
    }

    /// Sends a request to a host that was heard last at `heard_at`.
    pub(super) fn ask(&mut self, now: Instant, mobile: IpAddr, heard_at: Option<Instant>) {
        let Some(socket) = &self.sockets[Icmp::of(mobile).index()] else { return };
        self.sequence = self.sequence.wrapping_add(1);
        let Some(message) = request(mobile, self.token, self.sequence, now) else { return };
        if let Err(error) = socket.send(&message, mobile) {
            tracing::trace!(%error, %mobile, "cannot send an echo request");
        }
        let unknown = Host { asked_since: None, answers_within: None, try_at: now, tries: 0 };
        let host = self.hosts.entry(mobile).or_insert(unknown);
        host.asked_since = host.asked_since.filter(|since| heard_at.is_none_or(|at| at < *since)).or(Some(now));
    }

    /// Whether a host has not answered for twice its usual time: on a long path the first answers are still on their way.
    pub(super) fn is_overdue(&self, now: Instant, mobile: IpAddr) -> bool {
        let host = self.hosts.get(&mobile);
        let times = host.and_then(|host| Some((host.asked_since?, host.answers_within?)));
        times.is_none_or(|(since, within)| now.saturating_since(since) >= within + within)
    }

    /// Tries a present host that has not answered yet, if that is due.
    pub(super) fn try_out(&mut self, now: Instant, mobile: IpAddr, heard_at: Option<Instant>) {
        let is_present = heard_at.is_some_and(|at| now.saturating_since(at) <= PRESENT);
        let is_due = self.hosts.get(&mobile).is_none_or(|host| host.answers_within.is_none() && host.try_at <= now);
        if !is_present || !is_due {
            return;
        }
        self.ask(now, mobile, heard_at);
        if let Some(host) = self.hosts.get_mut(&mobile) {
            let pause = Duration::from_nanos(FIRST_PAUSE.as_nanos() << host.tries.min(16));
            (host.try_at, host.tries) = (now + pause.min(LONGEST_PAUSE), host.tries.saturating_add(1));
        }
    }

    /// The usual time of a host's answers; `None` if it has never answered.
    pub(super) fn answers_within(&self, mobile: IpAddr) -> Option<Duration> {
        self.hosts.get(&mobile)?.answers_within
    }

    /// Reads answers.
    pub(super) fn handle_ready(&mut self, now: Instant) {
        for family in 0..TYPES.len() {
            while let Some((from, asked_at)) = self.receive(family) {
                if let Some(host) = self.hosts.get_mut(&from) {
                    host.note_answer(now, asked_at);
                }
            }
        }
    }

    /// The host of the next answer, and the time of its request.
    fn receive(&self, family: usize) -> Option<(IpAddr, Instant)> {
        let socket = self.sockets[family].as_ref()?;
        loop {
            // Another process may receive the same errors; the socket stays usable.
            let (bytes, from) = socket.receive().ok()?;
            if let (Some(asked_at), Some(from)) = (answer(family, self.token, &bytes), from) {
                return Some((from, asked_at));
            }
        }
    }

    pub(super) fn forget(&mut self, mobile: IpAddr) {
        self.hosts.remove(&mobile);
    }
}

impl Host {
    /// The host has answered the request sent at `asked_at`, a time that the answer repeats.
    fn note_answer(&mut self, now: Instant, asked_at: Instant) {
        let took = now.saturating_since(asked_at);
        if asked_at > now || took > LONGEST_ANSWER {
            return;
        }
        // A peak decays by an eighth with each answer.
        let former = self.answers_within.map_or(0, |within| within.as_nanos() / 8 * 7);
        self.answers_within = Some(took.max(Duration::from_nanos(former)));
    }
}

/// For IPv4 and IPv6: for answers only. The programs do not divert the daemon's own packets, which have its mark.
fn sockets(interface: &str) -> [Option<IcmpSocket>; 2] {
    Icmp::BOTH.map(|icmp| {
        let opened = IcmpSocket::open(icmp, Some(TYPES[icmp.index()])).and_then(|socket| socket.on(interface, MARK));
        opened.inspect_err(|error| tracing::warn!(%error, "cannot probe by ICMP echo")).ok()
    })
}

/// An echo request of this time.
fn request(mobile: IpAddr, token: [u8; TOKEN], seq: u16, at: Instant) -> Option<Bytes> {
    let payload = [&token[2..], &at.as_nanos().to_be_bytes()].concat().into();
    let echo = IcmpEcho { reply: false, id: u16::from_be_bytes([token[0], token[1]]), seq, payload };
    let own = if mobile.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    icmp_message(own, mobile, echo)
}

/// The time of the request that a message answers; `None` for other messages.
fn answer(family: usize, token: [u8; TOKEN], bytes: &[u8]) -> Option<Instant> {
    let header = if family == 0 { usize::from(bytes.first()? & 15) * 4 } else { 0 };
    let message = bytes.get(header..)?;
    let is_answer =
        *message.first()? == TYPES[family] && message.get(4..6)? == &token[..2] && message.get(8..16)? == &token[2..];
    let at = message.get(16..MESSAGE)?.try_into().map(u64::from_be_bytes).ok()?;
    is_answer.then_some(Instant::from_nanos(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN_BYTES: [u8; TOKEN] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

    const MOBILES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

    fn answered(family: usize, token: [u8; TOKEN], at: Instant) -> Vec<u8> {
        let mut message = request(MOBILES[family], token, 7, at).unwrap().to_vec();
        message[0] = TYPES[family];
        let header = if family == 0 { vec![0x45; 20] } else { Vec::new() };
        [header, message].concat()
    }

    #[test]
    fn an_answer_is_known_by_its_token() {
        let at = Instant::from_millis(123_456);
        for family in [0, 1] {
            let bytes = answered(family, TOKEN_BYTES, at);
            assert_eq!(answer(family, TOKEN_BYTES, &bytes), Some(at));
            for cut in 0..bytes.len() {
                assert_eq!(answer(family, TOKEN_BYTES, &bytes[..cut]), None, "{cut}");
            }
            assert_eq!(answer(family, [0; TOKEN], &bytes), None);
            assert_eq!(answer(family, TOKEN_BYTES, &request(MOBILES[family], TOKEN_BYTES, 7, at).unwrap()), None);
        }
    }

    #[test]
    fn the_checksum_of_a_request_is_right() {
        let message = request(MOBILES[0], TOKEN_BYTES, 0xfffe, Instant::from_nanos(u64::MAX)).unwrap();
        let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff);
    }

    fn echo(mobile: IpAddr) -> Echo {
        let host = Host { asked_since: None, answers_within: None, try_at: Instant::ZERO, tries: 0 };
        Echo { sockets: [None, None], token: TOKEN_BYTES, sequence: 0, hosts: [(mobile, host)].into() }
    }

    #[test]
    fn a_host_that_never_answers_is_tried_less_and_less_often() {
        let mobile = IpAddr::from([10, 0, 0, 1]);
        let mut echo = echo(mobile);
        let mut tries = Vec::new();
        for s in 0..5000 {
            let now = Instant::from_secs(s);
            let before = echo.hosts[&mobile].tries;
            echo.try_out(now, mobile, Some(now));
            if echo.hosts[&mobile].tries > before {
                tries.push(s);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095]);
        assert_eq!(echo.answers_within(mobile), None);
        echo.try_out(Instant::from_secs(9000), mobile, Some(Instant::from_secs(8998)));
        assert_eq!(echo.hosts[&mobile].tries, 13, "it is not heard");
    }

    #[test]
    fn the_longest_answer_counts_and_decays_and_two_of_them_are_waited_for() {
        let mobile = IpAddr::from([10, 0, 0, 1]);
        let mut echo = echo(mobile);
        let at = Instant::from_millis;
        let host = echo.hosts.get_mut(&mobile).unwrap();
        host.note_answer(at(9000), at(9001));
        host.note_answer(at(90_000), at(9000));
        assert_eq!(host.answers_within, None, "from the future, or too late");
        host.note_answer(at(9080), at(9000));
        assert_eq!(host.answers_within, Some(Duration::from_millis(80)));
        host.note_answer(at(9080), at(9072));
        assert_eq!(host.answers_within, Some(Duration::from_millis(70)));
        assert!(echo.is_overdue(at(9200), mobile), "nothing was asked");
        echo.hosts.get_mut(&mobile).unwrap().asked_since = Some(at(10_000));
        assert!(!echo.is_overdue(at(10_139), mobile) && echo.is_overdue(at(10_140), mobile));
    }
}
