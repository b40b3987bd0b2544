//! A TCP connection between hosts whose bytes are all checked.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;

use crate::daemon::PATIENCE;

/// For connections that captures are searched for.
const PORT: u16 = 5001;
/// Bytes that are written at a time, and from one to the next: 26 Mbit/s.
const CHUNK: usize = 16 << 10;
const EVERY: Duration = Duration::from_millis(5);

/// The byte at a place of the stream: its period fits no power of two.
fn byte(at: u64) -> u8 {
    (at % 251) as u8 ^ (at / 251) as u8
}

/// The direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToMobile,
    FromMobile,
}

/// A transfer that runs until it is stopped. The mobile host opens the connection.
pub(crate) struct Transfer {
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: Option<JoinHandle<u64>>,
    receiver: Option<JoinHandle<Vec<(Instant, u64)>>>,
}

impl Transfer {
    pub(crate) fn start(way: Way, mobile: &Namespace, server: &Namespace, hit: Ipv6Addr) -> Self {
        Self::between(way, mobile, hit.into(), server, (hit.into(), PORT))
    }

    /// The same where the server is known by another address than its own; with port 0 it chooses one.
    pub(crate) fn between(
        way: Way,
        mobile: &Namespace,
        known_as: IpAddr,
        server: &Namespace,
        listen: (IpAddr, u16),
    ) -> Self {
        let listener = server.enter(|| TcpListener::bind(listen).unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connecting = mobile.spawn_inside(move || TcpStream::connect((known_as, port))).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let connected = connecting.join().unwrap().unwrap().unwrap();
        let (from, to) = if way == Way::ToMobile { (accepted, connected) } else { (connected, accepted) };
        let (is_over, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let sender = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || send(from, &is_over)
        });
        let receiver = std::thread::spawn({
            let received = Arc::clone(&received);
            move || receive(to, &received)
        });
        Self { is_over, received, sender: Some(sender), receiver: Some(receiver) }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits for more data.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, bytes: u64) {
        let (target, patience) = (self.received() + bytes, Instant::now() + PATIENCE * 2);
        while self.received() < target {
            assert!(Instant::now() < patience, "stuck at {} bytes", self.received());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it; every byte has to arrive. When data came, and how much there was then.
    pub(crate) fn end(mut self) -> Vec<(Instant, u64)> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.take().unwrap().join().unwrap();
        let arrivals = self.receiver.take().unwrap().join().unwrap();
        assert_eq!(arrivals.last().map(|(_, bytes)| *bytes), Some(sent));
        arrivals
    }
}

/// The first data after `at`.
pub(crate) fn first_after(arrivals: &[(Instant, u64)], at: Instant) -> Instant {
    arrivals.iter().map(|(arrival, _)| *arrival).find(|arrival| *arrival >= at).expect("data came")
}

fn send(mut stream: TcpStream, is_over: &AtomicBool) -> u64 {
    stream.set_write_timeout(Some(PATIENCE * 3)).unwrap();
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        let chunk: Vec<u8> = (sent..sent + CHUNK as u64).map(byte).collect();
        stream.write_all(&chunk).unwrap();
        sent += CHUNK as u64;
        std::thread::sleep(EVERY);
    }
    sent
}

fn receive(mut stream: TcpStream, received: &AtomicU64) -> Vec<(Instant, u64)> {
    stream.set_read_timeout(Some(PATIENCE * 3)).unwrap();
    let (mut at, mut arrivals, mut buffer) = (0_u64, Vec::new(), vec![0; 1 << 16]);
    loop {
        let len = stream.read(&mut buffer).unwrap();
        if len == 0 {
            return arrivals;
        }
        for (offset, &found) in buffer[..len].iter().enumerate() {
            assert_eq!(found, byte(at + offset as u64), "byte {}", at + offset as u64);
        }
        at += len as u64;
        arrivals.push((Instant::now(), at));
        received.store(at, Ordering::Relaxed);
    }
}
