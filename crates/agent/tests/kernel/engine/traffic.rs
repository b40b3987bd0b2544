//! Connections over the wire, with verifiable data both ways.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration as StdDuration;

use holdover_base::{ByteCount, Duration, Instant};
use holdover_host::clock;
use holdover_mobility::{Direction, LinkEvent};
use holdover_testbed::matrix::{Digest, Sink, Source};
use holdover_testbed::{Congestion, KernelListener, KernelStream, Lateness, Namespace, SocketOptions, sysctl};

use super::process::{EngineThread, UP};
use crate::wire::{FAR, FAR_V6, LIMIT, NEAR, NEAR_V6, Wire};

/// The longest wait of a read or write: far more than any connection of these tests has to wait.
const STUCK: Duration = Duration::from_secs(120);

/// How a connection is opened, and the directions of its data.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) congestion: Congestion,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) ipv6: bool,
    /// From the near side, from the far side.
    pub(crate) ways: Vec<Direction>,
    /// Whether data is sent at full speed, into a receive buffer of so many bytes, or at 1 MB/s.
    pub(crate) bulk: Option<ByteCount>,
    /// Whether segments carry signatures (TCP-MD5).
    pub(crate) is_signed: bool,
}

/// The addresses of the near and of the far side, of IPv4 and of IPv6.
pub(crate) type Sides = [[&'static str; 2]; 2];

/// Connections under load.
pub(crate) struct Traffic {
    pub(crate) streams: Vec<Stream>,
    is_over: Arc<AtomicBool>,
}

/// One direction of a connection.
pub(crate) struct Stream {
    pub(crate) name: String,
    received: Arc<AtomicU64>,
    /// The time of the last receipt, in ns; and of the first after `mark`.
    first_after: Arc<[AtomicU64; 2]>,
    writer: JoinHandle<Digest>,
    reader: JoinHandle<Sink>,
}

impl Kind {
    /// A bulk transfer one way, with all options, and buffers of the kernel's choice.
    pub(crate) fn bulk(congestion: Congestion, way: Direction) -> Self {
        Self {
            congestion,
            timestamps: true,
            sack: true,
            ipv6: false,
            ways: vec![way],
            bulk: Some(ByteCount(64 * 1024)),
            is_signed: false,
        }
    }

    /// Each congestion control, with and without timestamps and SACK, over IPv4 and IPv6, both ways.
    pub(crate) fn various() -> Vec<Self> {
        use Congestion::{Bbr, Cubic, Reno};
        let all = [
            (Cubic, true, true, false, true),
            (Reno, false, true, true, false),
            (Bbr, true, false, false, false),
            (Cubic, false, false, true, false),
            (Reno, true, true, true, true),
            (Bbr, false, true, false, false),
        ];
        let kind = |(congestion, timestamps, sack, ipv6, is_bulk): (Congestion, bool, bool, bool, bool)| Self {
            congestion,
            timestamps,
            sack,
            ipv6,
            ways: Direction::BOTH.to_vec(),
            bulk: is_bulk.then_some(ByteCount(32 * 1024)),
            is_signed: false,
        };
        all.map(kind).into()
    }

    fn options(&self, peer: IpAddr) -> SocketOptions {
        let md5_peer = self.is_signed.then_some(peer);
        SocketOptions { io_timeout: STUCK, recv_buffer: self.bulk, md5_peer, ..SocketOptions::new(self.congestion) }
    }
}

impl Traffic {
    /// How long after outages of this length the last of the streams resumes: one outage, or several until it resumes
    /// within `soon`.
    pub(crate) fn resume_after_outages(
        &self,
        wire: &Wire,
        engine: &EngineThread,
        outage: StdDuration,
        soon: Duration,
    ) -> Vec<Duration> {
        Lateness::repeat_until_below(soon, || {
            self.wait_for(1_000_000);
            wire.cut(true);
            engine.link(LinkEvent::Down);
            sleep(outage);
            wire.cut(false);
            let up_at = clock::now();
            self.streams.iter().for_each(|stream| stream.watch_from(up_at));
            engine.link(UP);
            let after = |stream: &Stream| stream.first_after().saturating_since(up_at);
            self.streams.iter().map(after).max().expect("there are streams")
        })
    }

    /// Opens the connections from `near`, in which the calling thread must be, to `far` over a [`Wire`], and starts them.
    pub(crate) fn start(near: &Namespace, far: &Namespace, kinds: &[Kind]) -> Self {
        Self::between(near, far, [[NEAR, FAR], [NEAR_V6, FAR_V6]], kinds)
    }

    /// The same with other addresses of both sides.
    pub(crate) fn between(near: &Namespace, far: &Namespace, sides: Sides, kinds: &[Kind]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut streams = Vec::new();
        for (number, kind) in kinds.iter().enumerate() {
            let on = |is_on: bool| if is_on { "1" } else { "0" };
            sysctl::set(near, "net.ipv4.tcp_timestamps", on(kind.timestamps)).unwrap();
            sysctl::set(near, "net.ipv4.tcp_sack", on(kind.sack)).unwrap();
            let (ours, theirs) = connect((near, far), sides, kind, 2000 + number as u16);
            for &way in &kind.ways {
                let (from, to) = if way == Direction::Outgoing { (&ours, &theirs) } else { (&theirs, &ours) };
                let seed = 2 * number as u64 + u64::from(way == Direction::Outgoing);
                let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
                streams.push(Stream::start(format!("{kind:?} {way:?}"), ends, seed, kind.bulk.is_some(), &is_over));
            }
        }
        Self { streams, is_over }
    }

    /// Bytes received in all streams.
    pub(crate) fn received(&self) -> u64 {
        self.streams.iter().map(Stream::received).sum()
    }

    /// Waits for at least so many more bytes in each stream.
    pub(crate) fn wait_for(&self, bytes: u64) {
        let deadline = clock::now() + LIMIT;
        let before: Vec<u64> = self.streams.iter().map(Stream::received).collect();
        let arrived = |number: usize| self.streams[number].received() - before[number];
        for (number, stream) in self.streams.iter().enumerate() {
            while arrived(number) < bytes {
                if clock::now() >= deadline {
                    let others: Vec<u64> = (0..before.len()).map(arrived).collect();
                    panic!(
                        "{}: {} of {bytes} bytes arrive, and {others:?} in all streams",
                        stream.name,
                        arrived(number)
                    );
                }
                sleep(StdDuration::from_millis(2));
            }
        }
    }

    /// Each stream sends some more, and ends: everything must arrive unchanged. Returns how long that takes.
    pub(crate) fn finish(self) -> Duration {
        let began = clock::now();
        self.is_over.store(true, Ordering::SeqCst);
        for stream in self.streams {
            let name = stream.name;
            let sent = stream.writer.join().unwrap_or_else(|_| panic!("{name}: the sender is stuck"));
            let sink = stream.reader.join().unwrap_or_else(|_| panic!("{name}: the receiver is stuck"));
            assert_eq!(sink.first_difference(), None, "{name}");
            assert_eq!(sink.digest(), sent, "{name}");
        }
        clock::now().saturating_since(began)
    }
}

impl Stream {
    fn start(name: String, ends: [KernelStream; 2], seed: u64, is_bulk: bool, is_over: &Arc<AtomicBool>) -> Self {
        let [from, to] = ends;
        let received = Arc::new(AtomicU64::new(0));
        let first_after = Arc::new([AtomicU64::new(u64::MAX), AtomicU64::new(0)]);
        let writer = std::thread::spawn({
            let is_over = Arc::clone(is_over);
            move || write(from, seed, is_bulk, &is_over)
        });
        let reader = std::thread::spawn({
            let (received, first_after) = (Arc::clone(&received), Arc::clone(&first_after));
            move || read(to, seed, &received, &first_after)
        });
        Self { name, received, first_after, writer, reader }
    }

    /// Bytes received.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Notes the first receipt after `at`.
    pub(crate) fn watch_from(&self, at: Instant) {
        self.first_after[1].store(0, Ordering::SeqCst);
        self.first_after[0].store(at.as_nanos(), Ordering::SeqCst);
    }

    /// Waits for it.
    pub(crate) fn first_after(&self) -> Instant {
        let deadline = clock::now() + LIMIT;
        loop {
            match self.first_after[1].load(Ordering::SeqCst) {
                0 => assert!(clock::now() < deadline, "{}: nothing arrives", self.name),
                nanos => return Instant::from_nanos(nanos),
            }
            sleep(StdDuration::from_millis(1));
        }
    }
}

fn connect(
    (near, far): (&Namespace, &Namespace),
    sides: Sides,
    kind: &Kind,
    port: u16,
) -> (KernelStream, KernelStream) {
    let parse = |address: &str| -> IpAddr { address.parse().unwrap() };
    let [ours, theirs] = sides[usize::from(kind.ipv6)].map(parse);
    let to = SocketAddr::new(theirs, port);
    let listener = far.enter(|| KernelListener::bind(far, to, &kind.options(ours)).unwrap()).unwrap();
    let ours = KernelStream::connect(near, to, &kind.options(theirs), LIMIT).unwrap();
    (ours, listener.accept(LIMIT).unwrap())
}

fn write(mut to: KernelStream, seed: u64, is_bulk: bool, is_over: &AtomicBool) -> Digest {
    let mut source = Source::new(seed, u64::MAX);
    let put = |source: &mut Source, to: &mut KernelStream| {
        let bytes = source.peek(8 * 1024);
        to.write_all(&bytes).unwrap();
        source.advance(&bytes);
    };
    while !is_over.load(Ordering::SeqCst) {
        put(&mut source, &mut to);
        if !is_bulk {
            sleep(StdDuration::from_millis(8));
        }
    }
    (0..8).for_each(|_| put(&mut source, &mut to));
    to.shutdown_write().unwrap();
    source.digest()
}

fn read(mut from: KernelStream, seed: u64, received: &AtomicU64, first_after: &[AtomicU64; 2]) -> Sink {
    let mut sink = Sink::new(seed);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let len = from.read(&mut buffer).unwrap();
        let now = clock::now().as_nanos();
        if len == 0 {
            return sink;
        }
        let [mark, first] = first_after;
        if now >= mark.load(Ordering::SeqCst) {
            // Only the first one counts.
            let _ = first.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
        }
        sink.take(&buffer[..len]);
        received.fetch_add(len as u64, Ordering::SeqCst);
    }
}
