//! TCP connections between the hosts of a line, both ends in this thread.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::Line;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::Failed;

/// The bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 64;

/// The bound on all waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// The port of the fixed host, and of a proxy.
pub(super) const PORT: u16 = 5001;

/// Connections from the mobile host to the fixed host.
#[derive(Debug)]
pub(super) struct Streams {
    /// The fixed host's end of each, then the mobile host's.
    ends: [Vec<TcpStream>; 2],
    /// Has the number of a connection, doubled, and plus 1 for the mobile host's end.
    epoll: OwnedFd,
}

impl Streams {
    /// Opens connections to the fixed host, or through a proxy at the router's address.
    pub(super) fn open(line: &Line, through_proxy: bool, count: usize) -> Result<Self, Failed> {
        let bind = || TcpListener::bind(SocketAddr::new(Line::FIXED.into(), PORT));
        let listener = line.fixed().enter(bind)??;
        let address = if through_proxy { Line::ROUTER } else { Line::FIXED };
        let to = SocketAddr::new(address.into(), PORT);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let open = || -> Result<[Vec<TcpStream>; 2], std::io::Error> {
            let mut ends = [Vec::new(), Vec::new()];
            for number in 0..count {
                let mobile = connect(to)?;
                let (fixed, _) = listener.accept()?;
                for (side, stream) in [fixed, mobile].into_iter().enumerate() {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    let data = epoll::EventData::new_u64((number * 2 + side) as u64);
                    epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
                    ends[side].push(stream);
                }
            }
            Ok(ends)
        };
        let ends = line.mobile().enter(open)??;
        Ok(Self { ends, epoll })
    }

    /// Moves `bytes` to the mobile host, in equal parts on all connections, at most `at_once` in a write.
    pub(super) fn download(&mut self, bytes: u64, at_once: usize) -> Result<(), Failed> {
        let [senders, receivers] = &mut self.ends;
        let (zeros, mut buffer) = (vec![0; at_once], vec![0; 256 << 10]);
        let each = bytes / senders.len() as u64;
        let mut unsent = vec![each; senders.len()];
        let mut missing = each * senders.len() as u64;
        let mut ready = Vec::with_capacity(1024);
        while missing > 0 {
            let mut has_written = false;
            for (sender, left) in senders.iter_mut().zip(&mut unsent).filter(|(_, left)| **left > 0) {
                match sender.write(&zeros[..at_once.min(usize::try_from(*left)?)]) {
                    Ok(len) => {
                        *left -= len as u64;
                        has_written = true;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let patience = if has_written { Duration::ZERO } else { PATIENCE };
            wait(&self.epoll, &mut ready, patience)?;
            if ready.is_empty() && !has_written {
                return Err(format!("{missing} bytes have not arrived within {} s", PATIENCE.as_secs()).into());
            }
            for event in ready.drain(..) {
                let number = event.data.u64() as usize / 2;
                missing -= match receivers[number].read(&mut buffer) {
                    Ok(0) => return Err("a connection has ended".into()),
                    Ok(len) => len as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                    Err(error) => return Err(error.into()),
                };
            }
        }
        Ok(())
    }

    /// Each connection carries a message to the fixed host and one back, `times` times. The connections take turns.
    pub(super) fn exchange(&mut self, times: u64) -> Result<(), Failed> {
        let mut message = [0; MESSAGE_BYTES];
        let mut ready = Vec::with_capacity(1024);
        for _ in 0..times {
            for mobile in &mut self.ends[1] {
                mobile.write_all(&message)?;
            }
            let mut unanswered = self.ends[1].len();
            while unanswered > 0 {
                wait(&self.epoll, &mut ready, PATIENCE)?;
                if ready.is_empty() {
                    return Err(format!("{unanswered} messages unanswered after {} s", PATIENCE.as_secs()).into());
                }
                for event in ready.drain(..) {
                    let (number, side) = (event.data.u64() as usize / 2, event.data.u64() as usize % 2);
                    let stream = &mut self.ends[side][number];
                    stream.read_exact(&mut message)?;
                    match side {
                        0 => stream.write_all(&message)?,
                        _ => unanswered -= 1,
                    }
                }
            }
        }
        Ok(())
    }
}

/// A proxy may not listen yet.
fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(to) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

fn wait(epoll: &OwnedFd, ready: &mut Vec<epoll::Event>, patience: Duration) -> Result<(), Failed> {
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    ready.clear();
    epoll::wait(epoll, spare_capacity(ready), Some(&patience))?;
    Ok(())
}
