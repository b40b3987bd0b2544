//! Transfers between hosts of a [`World`](super::World), whose bytes are checked on arrival.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::{World, WorldError};

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
    sender: Option<JoinHandle<std::io::Result<u64>>>,
    receiver: Option<JoinHandle<()>>,
}

/// The byte at an offset of every transfer.
fn byte_at(place: u64) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

fn send(mut to: TcpStream, is_sending: &AtomicBool, pause: Duration) -> std::io::Result<u64> {
    let mut sent = 0;
    while is_sending.load(Ordering::SeqCst) {
        let chunk: Vec<u8> = (sent..sent + 8000).map(byte_at).collect();
        to.write_all(&chunk)?;
        sent += chunk.len() as u64;
        sleep(pause);
    }
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
        if buffer[..read].iter().enumerate().any(|(at, &byte)| byte != byte_at(place + at as u64)) {
            return Err(format!("wrong bytes from offset {place} on"));
        }
        place += read as u64;
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
        let sender = std::thread::spawn({
            let is_sending = Arc::clone(&is_sending);
            move || send(from, &is_sending, pause)
        });
        let receiver = std::thread::spawn({
            let (received, wrong) = (Arc::clone(&received), Arc::clone(&wrong));
            move || *wrong.lock().unwrap_or_else(PoisonError::into_inner) = receive(into, &received).err()
        });
        Self { received, is_sending, wrong, sender: Some(sender), receiver: Some(receiver) }
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
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
