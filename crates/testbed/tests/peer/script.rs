//! Experiments: a scripted peer that decides about every packet, and the subject it is tried on.
//!
//! The subject is the kernel, in wall-clock time, or the project's TCP with a profile, in virtual time; the same script runs
//! with both, so that what is found out about the kernel can be held against the profile.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{Endpoint, EndpointConfig, Event, Profile};
use holdover_testbed::{Congestion, KernelStream, Namespace, PacketEndpoint, Shell, SocketOptions, Tun, TunConfig};
use holdover_wire::{
    Flags, IcmpError, Packet, Payload, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Unreachable,
};

const SUBJECT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SCRIPT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 9;
/// The first byte that the script may send.
const ISS: Seq = Seq::new(1_000_000);
/// What follows the SYN of the script.
pub(crate) const FIRST_BYTE: Seq = Seq::new(1_000_001);
/// The timestamp clock does not begin at 0, which would look like no timestamp.
const FIRST_TIMESTAMP: u32 = 5_000;

/// Who is tried.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// The kernel, from inside this namespace.
    Kernel(&'a Namespace),
    /// The project's TCP.
    Ours(Profile),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(_) => f.write_str("kernel"),
            Self::Ours(profile) => profile.fmt(f),
        }
    }
}

/// What the subject's application does: it connects, writes so many bytes at such times after that, and reads what comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Application {
    pub(crate) writes: Vec<(Duration, usize)>,
    /// Whether each write goes out by itself, without Nagle.
    pub(crate) nodelay: bool,
}

/// A segment of the subject, as it left.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) segment: Segment,
}

/// What the script is told.
pub(crate) enum Happening<'a> {
    /// A segment came, other than a SYN that the wire has answered.
    Segment(&'a Segment),
    /// An alarm that the script set.
    Alarm,
}

/// The script's end of the connection: what came, and the means to answer.
pub(crate) struct Wire {
    pub(crate) now: Instant,
    /// Everything that the subject has sent.
    pub(crate) seen: Vec<Seen>,
    /// Everything that the script has sent, as it reached the subject.
    pub(crate) sent: Vec<Seen>,
    /// How long the answer to a SYN takes.
    pub(crate) rtt: Duration,
    /// Whether data that the script sends is pushed.
    pub(crate) push: bool,
    /// How many SYNs are left unanswered.
    pub(crate) ignored_syns: u32,
    /// Whether SACK is offered.
    pub(crate) sack: bool,
    /// The window that is advertised, in bytes.
    pub(crate) window: u32,
    /// The next byte that the script expects, and that it sends.
    pub(crate) rcv_nxt: Seq,
    pub(crate) snd_nxt: Seq,
    /// The timestamp that is echoed: by default the latest that came with the next byte expected.
    pub(crate) echo: u32,
    subject_port: u16,
    out: BTreeMap<(Instant, u64), Packet>,
    alarms: BTreeSet<(Instant, u64)>,
    count: u64,
}

/// The shift of every window that the script advertises.
const WINDOW_SCALE: u8 = 7;

impl Wire {
    fn new() -> Self {
        Self {
            now: Instant::ZERO,
            seen: Vec::new(),
            sent: Vec::new(),
            rtt: Duration::from_millis(50),
            push: false,
            ignored_syns: 0,
            sack: true,
            window: 1 << 20,
            rcv_nxt: Seq::default(),
            snd_nxt: FIRST_BYTE,
            echo: 0,
            subject_port: 0,
            out: BTreeMap::new(),
            alarms: BTreeSet::new(),
            count: 0,
        }
    }

    /// Segments with data, retransmissions included.
    pub(crate) fn data(&self) -> Vec<&Seen> {
        self.seen.iter().filter(|seen| !seen.segment.payload.is_empty()).collect()
    }

    /// Acknowledges everything below `to`, `after` from now; with these SACK blocks.
    pub(crate) fn ack_after(&mut self, after: Duration, to: Seq, sack: &[SeqRange]) {
        let mut segment = self.segment(Flags::ACK);
        segment.ack = to;
        segment.options.sack = sack.iter().copied().collect::<SackBlocks>();
        self.send_after(after, segment);
    }

    /// Sends `len` bytes of new data, `after` from now.
    pub(crate) fn write_after(&mut self, after: Duration, len: usize) {
        let mut segment = self.segment(if self.push { Flags::ACK | Flags::PSH } else { Flags::ACK });
        segment.payload = Bytes::from(vec![b'x'; len]);
        self.snd_nxt += len as u32;
        self.send_after(after, segment);
    }

    /// Calls the script with [`Happening::Alarm`].
    pub(crate) fn alarm_after(&mut self, after: Duration) {
        self.count += 1;
        self.alarms.insert((self.now + after, self.count));
    }

    /// An ICMP error that quotes `segment` of the subject.
    pub(crate) fn send_unreachable(&mut self, kind: Unreachable, segment: &Segment) {
        let quoted = Packet::new(SUBJECT, SCRIPT, segment.clone());
        let error = IcmpError::quoting_packet(kind, &quoted).unwrap();
        self.enqueue(Duration::ZERO, Packet::new(SCRIPT, SUBJECT, error));
    }

    /// A segment as the script would send it now; its timestamp is set when it leaves.
    fn segment(&self, flags: Flags) -> Segment {
        let timestamps = Some(Timestamps { val: 0, ecr: self.echo });
        Segment {
            src_port: PORT,
            dst_port: self.subject_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags,
            window: u16::try_from(self.window >> WINDOW_SCALE).unwrap_or(u16::MAX),
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            ..Segment::default()
        }
    }

    fn send_after(&mut self, after: Duration, mut segment: Segment) {
        if let Some(timestamps) = &mut segment.options.timestamps {
            timestamps.val = FIRST_TIMESTAMP + (self.now + after).as_millis() as u32;
        }
        self.enqueue(after, Packet::new(SCRIPT, SUBJECT, segment));
    }

    fn enqueue(&mut self, after: Duration, packet: Packet) {
        self.count += 1;
        self.out.insert((self.now + after, self.count), packet);
    }

    /// Notes a segment of the subject. Returns whether the script shall hear of it.
    fn note(&mut self, segment: &Segment) -> bool {
        self.seen.push(Seen { at: self.now, segment: segment.clone() });
        if segment.flags.contains(Flags::SYN) {
            if self.ignored_syns > 0 {
                self.ignored_syns -= 1;
                return false;
            }
            self.subject_port = segment.src_port;
            self.rcv_nxt = segment.seq + 1;
            self.echo = segment.options.timestamps.map_or(0, |timestamps| timestamps.val);
            let mut answer = self.segment(Flags::SYN | Flags::ACK);
            answer.seq = ISS;
            answer.options.mss = Some(1460);
            answer.options.window_scale = Some(WINDOW_SCALE);
            answer.options.sack_permitted = self.sack;
            answer.window = u16::try_from(self.window).unwrap_or(u16::MAX);
            self.send_after(self.rtt, answer);
            return false;
        }
        if segment.seq == self.rcv_nxt && !segment.payload.is_empty() {
            self.rcv_nxt += segment.payload.len() as u32;
            self.echo = segment.options.timestamps.map_or(self.echo, |timestamps| timestamps.val);
        }
        true
    }
}

/// The script as an endpoint of the shell.
struct Peer<F> {
    wire: Wire,
    script: F,
}

impl<F: FnMut(&mut Wire, Happening<'_>)> PacketEndpoint for Peer<F> {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.wire.now = now;
        if let Payload::Tcp(segment) = &packet.payload
            && self.wire.note(segment)
        {
            (self.script)(&mut self.wire, Happening::Segment(segment));
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.wire.out.first_entry().filter(|entry| entry.key().0 <= now)?.remove();
        if let Payload::Tcp(segment) = &packet.payload {
            self.wire.sent.push(Seen { at: now, segment: segment.clone() });
        }
        Some(packet)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let packet = self.wire.out.first_key_value().map(|((at, _), _)| *at);
        let alarm = self.wire.alarms.first().map(|(at, _)| *at);
        packet.into_iter().chain(alarm).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.wire.now = now;
        while self.wire.alarms.first().is_some_and(|(at, _)| *at <= now) {
            self.wire.alarms.pop_first();
            (self.script)(&mut self.wire, Happening::Alarm);
        }
    }
}

/// Runs `script` against the subject for `span` and returns what was seen. `prepare` sets the wire up before.
pub(crate) fn run(
    subject: Subject<'_>,
    application: &Application,
    span: Duration,
    prepare: impl FnOnce(&mut Wire),
    script: impl FnMut(&mut Wire, Happening<'_>) + Send,
) -> Wire {
    let mut peer = Peer { wire: Wire::new(), script };
    prepare(&mut peer.wire);
    match subject {
        Subject::Kernel(namespace) => run_with_kernel(namespace, application, span, &mut peer),
        Subject::Ours(profile) => run_with_ours(profile, application, span, &mut peer),
    }
    peer.wire
}

fn run_with_kernel(namespace: &Namespace, application: &Application, span: Duration, peer: &mut impl PacketEndpoint) {
    let tun = Tun::open(namespace, &TunConfig::new("tun0", 1500).address(SUBJECT, 24)).unwrap();
    let mut shell = Shell::new(&tun).unwrap();
    let clock = shell.clock();
    let options = SocketOptions {
        nodelay: application.nodelay,
        io_timeout: Duration::from_millis(5),
        ..SocketOptions::new(Congestion::Cubic)
    };
    let until = |at: Instant| std::thread::sleep(at.saturating_since(clock.now()).into());
    let kernel_side = || {
        // Nobody may have answered; the experiment is about that.
        if let Ok(mut stream) = KernelStream::connect(namespace, SocketAddr::new(SCRIPT, PORT), &options, span) {
            let connected_at = clock.now();
            let mut reader = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut buffer = vec![0; 65_536];
                    while clock.now() < Instant::ZERO + span {
                        // Silence ends a read with an error, which says nothing here.
                        if matches!(reader.read(&mut buffer), Ok(0)) {
                            break;
                        }
                    }
                });
                for &(after, len) in &application.writes {
                    until(connected_at + after);
                    write(&mut stream, len, || clock.now() < Instant::ZERO + span);
                }
            });
            until(Instant::ZERO + span);
            stream.abort().unwrap();
        }
    };
    shell.run_beside(peer, span + Duration::from_secs(10), |_, _| {}, kernel_side).unwrap();
}

/// Writes `len` bytes, or as many as find room while `may_wait`.
fn write(stream: &mut KernelStream, len: usize, may_wait: impl Fn() -> bool) {
    let bytes = vec![b'x'; len];
    let mut written = 0;
    while written < len && may_wait() {
        match stream.write(&bytes[written..]) {
            Ok(len) => written += len,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    }
}

/// The most steps that an experiment in virtual time may take.
const STEP_CAP: u32 = 1_000_000;

fn run_with_ours(profile: Profile, application: &Application, span: Duration, peer: &mut impl PacketEndpoint) {
    let mut ours = Endpoint::new(EndpointConfig { addresses: vec![SUBJECT], secret: [1; 16] });
    let mut config = profile.config();
    config.send.nagle = !application.nodelay;
    // As on a host that has been up for a while: the clocks do not begin at 0.
    let mut now = Instant::ZERO;
    let end = now + span;
    let id = ours.connect(now, Arc::new(config), None, SocketAddr::new(SCRIPT, PORT)).unwrap();
    let mut writes: Vec<(Duration, usize)> = application.writes.iter().rev().copied().collect();
    let mut connected_at = None;
    for _ in 0..STEP_CAP {
        while let Some((_, event)) = ours.poll_event() {
            if event == Event::Connected {
                connected_at = Some(now);
            }
        }
        let due = |writes: &[(Duration, usize)]| Some(connected_at? + writes.last()?.0);
        while due(&writes).is_some_and(|at| at <= now) {
            let (_, len) = writes.pop().expect("one is due");
            let connection = ours.connection_mut(id).expect("it was not released");
            assert_eq!(connection.write(now, vec![b'x'; len].into()), len, "the buffer holds all of it");
        }
        if let Some(connection) = ours.connection_mut(id) {
            while connection.read(now).is_some() {}
        }
        let moved = exchange(now, &mut ours, peer);
        if moved.is_continue() {
            continue;
        }
        let next = [ours.poll_timeout(), peer.poll_timeout(), due(&writes)].into_iter().flatten().min();
        match next.filter(|next| *next <= end) {
            Some(next) => now = now.max(next),
            None => return,
        }
        if Endpoint::poll_timeout(&ours).is_some_and(|at| at <= now) {
            ours.handle_timeout(now);
        }
        if peer.poll_timeout().is_some_and(|at| at <= now) {
            peer.handle_timeout(now);
        }
    }
    panic!("livelock at {now}");
}

/// Carries packets both ways; goes on as long as any moved.
fn exchange(now: Instant, ours: &mut Endpoint, peer: &mut impl PacketEndpoint) -> ControlFlow<()> {
    let mut moved = ControlFlow::Break(());
    while let Some(outgoing) = ours.poll_transmit(now) {
        peer.handle_packet(now, outgoing.packet);
        moved = ControlFlow::Continue(());
    }
    while let Some(packet) = peer.poll_transmit(now) {
        Endpoint::handle_packet(ours, now, &packet);
        moved = ControlFlow::Continue(());
    }
    moved
}
