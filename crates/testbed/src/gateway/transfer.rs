//! Transfers between hosts of a [`World`](super::World), whose bytes are checked on arrival.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_base::Rng;

use super::{World, WorldError};
use crate::SocketError;
use crate::socket::tcp_info;

/// The limit for anything but waiting, on a slow machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// Nothing arrived in time.
    #[error("transfer stuck after {received} bytes; {}", fault.as_deref().unwrap_or("no error"))]
    Stuck {
        /// Bytes so far.
        received: u64,
        /// The receiver's error.
        fault: Option<String>,
    },
    /// It ended with an error, or with other bytes than were sent.
    #[error("{0}")]
    Wrong(String),
}

/// A transfer of some 4 MB/s.
#[derive(Debug)]
pub struct Transfer {
    received: Arc<AtomicU64>,
    is_sending: Arc<AtomicBool>,
    wrong: Arc<Mutex<Option<String>>>,
    from: Arc<TcpStream>,
    sender: Option<JoinHandle<std::io::Result<u64>>>,
    receiver: Option<JoinHandle<()>>,
}

/// The bytes of every transfer: these again and again. Their number is prime, so that no lost or repeated piece of a stream, such as a
/// window or a power of two, leaves the same bytes.
fn pattern() -> &'static [u8] {
    const LEN: usize = 65_521;
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut rng = Rng::new(1);
        (0..LEN).map(|_| rng.below(256) as u8).collect()
    });
    &PATTERN
}

/// The part of the pattern at an offset of a transfer: at most `len` bytes. Pieces are copied and compared as a whole, as tests without
/// optimisation transfer gigabytes.
fn piece(offset: u64, len: usize) -> &'static [u8] {
    let pattern = pattern();
    let rest = &pattern[(offset % pattern.len() as u64) as usize..];
    &rest[..len.min(rest.len())]
}

fn send(mut to: &TcpStream, is_sending: &AtomicBool, pause: Duration) -> std::io::Result<u64> {
    let mut sent = 0;
    while is_sending.load(Ordering::SeqCst) {
        let end = sent + 8000;
        while sent < end {
            let piece = piece(sent, (end - sent) as usize);
            to.write_all(piece)?;
            sent += piece.len() as u64;
        }
        sleep(pause);
    }
    to.shutdown(Shutdown::Write)?;
    Ok(sent)
}

fn receive(mut from: TcpStream, received: &AtomicU64) -> Result<(), String> {
    let mut buffer = [0; 65_536];
    let mut place = 0;
    loop {
        let read = from.read(&mut buffer).map_err(|error| error.to_string())?;
        if read == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let expected = piece(place, rest.len());
            if !rest.starts_with(expected) {
                return Err(format!("wrong bytes from offset {place} on"));
            }
            place += expected.len() as u64;
            rest = &rest[expected.len()..];
        }
        received.store(place, Ordering::SeqCst);
    }
}

impl Transfer {
    /// Starts to send: from the fixed host to a mobile host, or in the other direction.
    ///
    /// # Errors
    /// The hosts do not connect.
    pub fn start(world: &World, mobile: usize, is_upload: bool) -> Result<Self, WorldError> {
        Self::start_paced(world, mobile, is_upload, Duration::from_millis(2))
    }

    /// The same, with 8,000 bytes after each pause of this length.
    ///
    /// # Errors
    /// The hosts do not connect.
    pub fn start_paced(world: &World, mobile: usize, is_upload: bool, pause: Duration) -> Result<Self, WorldError> {
        let listener = world.fixed().enter(|| TcpListener::bind(SocketAddr::new(world.fixed_address(), 0)))??;
        let to = listener.local_addr()?;
        let near = world.mobile(mobile).enter(|| TcpStream::connect(to))??;
        let (far, _) = listener.accept()?;
        let (from, into) = if is_upload { (near, far) } else { (far, near) };
        Ok(Self::between(from, into, pause))
    }

    /// The same over an established connection.
    pub fn between(from: TcpStream, into: TcpStream, pause: Duration) -> Self {
        let (received, is_sending) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let wrong = Arc::new(Mutex::new(None));
        let from = Arc::new(from);
        let sender = std::thread::spawn({
            let (from, is_sending) = (Arc::clone(&from), Arc::clone(&is_sending));
            move || send(&from, &is_sending, pause)
        });
        let receiver = std::thread::spawn({
            let (received, wrong) = (Arc::clone(&received), Arc::clone(&wrong));
            move || *wrong.lock().unwrap_or_else(PoisonError::into_inner) = receive(into, &received).err()
        });
        Self { received, is_sending, wrong, from, sender: Some(sender), receiver: Some(receiver) }
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// How long the sender's retransmission timer still runs, if data is outstanding.
    ///
    /// # Errors
    /// The kernel refuses `TCP_INFO`.
    pub fn timer_left(&self) -> Result<Duration, SocketError> {
        let info = tcp_info(&*self.from)?;
        Ok(info.tcpi_rto.saturating_sub(info.tcpi_last_data_sent).into())
    }

    fn stuck(&self) -> TransferError {
        let fault = self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        TransferError::Stuck { received: self.received(), fault }
    }

    /// Waits until `bytes` more have arrived.
    ///
    /// # Errors
    /// They do not arrive within [`LIMIT`].
    pub fn await_more(&self, bytes: u64) -> Result<(), TransferError> {
        let (began, before) = (Instant::now(), self.received());
        while self.received() < before + bytes {
            if began.elapsed() > LIMIT {
                return Err(self.stuck());
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// How long after an action more bytes arrive.
    ///
    /// # Errors
    /// They do not arrive within [`LIMIT`].
    pub fn resumes(&self, done: impl FnOnce()) -> Result<Duration, TransferError> {
        self.resumes_unless(&AtomicBool::new(false), done)
    }

    /// The same, until `stop` is set.
    ///
    /// # Errors
    /// They do not arrive within [`LIMIT`], or before `stop` is set.
    pub fn resumes_unless(&self, stop: &AtomicBool, done: impl FnOnce()) -> Result<Duration, TransferError> {
        let before = self.received();
        done();
        let began = Instant::now();
        while self.received() <= before {
            if began.elapsed() > LIMIT || stop.load(Ordering::Relaxed) {
                return Err(self.stuck());
            }
            sleep(Duration::from_micros(200));
        }
        Ok(began.elapsed())
    }

    /// Stops sending, except for bytes already being written.
    pub fn stop(&self) {
        self.is_sending.store(false, Ordering::SeqCst);
    }

    /// Ends it: every byte must have arrived unchanged. Returns their number.
    ///
    /// # Errors
    /// Bytes are wrong or missing, or it does not end within [`LIMIT`].
    pub fn ends_exact(mut self) -> Result<u64, TransferError> {
        self.stop();
        let sent = self.sender.take().map(JoinHandle::join);
        let sent = match sent {
            Some(Ok(Ok(sent))) => sent,
            Some(Ok(Err(error))) => return Err(TransferError::Wrong(error.to_string())),
            Some(Err(_)) | None => return Err(TransferError::Wrong("the sender has panicked".to_owned())),
        };
        let began = Instant::now();
        while !self.receiver.as_ref().is_none_or(JoinHandle::is_finished) {
            if began.elapsed() > LIMIT {
                return Err(self.stuck());
            }
            sleep(Duration::from_millis(2));
        }
        if let Some(wrong) = self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(TransferError::Wrong(wrong));
        }
        if self.received() == sent { Ok(sent) } else { Err(self.stuck()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the receiver says of 200,000 bytes of a transfer, of which `len` are missing or repeated from an offset on.
    fn judged(from: u64, lost: u64, repeated: u64) -> (Result<(), String>, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (into, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            let mut write = |mut offset: u64, end: u64| {
                while offset < end {
                    let piece = piece(offset, (end - offset) as usize);
                    // The receiver closes at the first wrong byte.
                    if to.write_all(piece).is_err() {
                        return;
                    }
                    offset += piece.len() as u64;
                }
            };
            write(0, from);
            write(from + lost - repeated, 200_000);
        });
        let received = AtomicU64::new(0);
        let judged = receive(into, &received);
        sender.join().unwrap();
        (judged, received.into_inner())
    }

    #[test]
    fn a_lost_or_repeated_piece_is_noticed() {
        assert_eq!(judged(100_000, 0, 0), (Ok(()), 200_000));
        for len in [1, 1448, 8000, 65_536] {
            assert!(judged(100_000, len, 0).0.is_err(), "{len} bytes lost");
            assert!(judged(100_000, 0, len).0.is_err(), "{len} bytes repeated");
        }
    }
}
