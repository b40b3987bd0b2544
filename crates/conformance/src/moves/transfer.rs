//! One connection whose bytes are all checked.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_testbed::{Namespace, NamespaceError};
use socket2::{Domain, Protocol, Socket, Type};

use super::place::{KEY, KEY_EVERY, Use, WITHOUT_ECHO};

/// The longest wait of a call, after which it looks whether the transfer is to end.
const TURN: Duration = Duration::from_millis(100);
/// To open the connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// When data came, and how much there was then.
pub(super) type Arrivals = Vec<(Instant, u64)>;

/// A transfer failed, other than by silence.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("{what}")]
    Failed { what: &'static str, source: io::Error },
    #[error("byte {at} is {found}, and was {sent}")]
    Byte { at: u64, found: u8, sent: u8 },
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// A transfer under way. The mobile host has opened the connection.
pub(super) struct Transfer {
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    amount: u64,
    pub(super) began_at: Instant,
    sender: JoinHandle<Result<(), TransferError>>,
    receiver: JoinHandle<Result<Arrivals, TransferError>>,
    /// As a server's, it stays open: Linux accepts further subflows of an MPTCP connection by the socket that listens.
    _listener: Socket,
}

/// The options of the sockets of both ends.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SocketOptions {
    pub(super) is_multipath: bool,
    /// `TCP_USER_TIMEOUT`.
    pub(super) user_timeout: Option<Duration>,
}

/// The byte at a place of the stream: its period fits no power of two.
fn byte(at: u64) -> u8 {
    (at % 251) as u8 ^ (at / 251) as u8
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    move |source| TransferError::Failed { what, source }
}

fn open(address: SocketAddr, is_multipath: bool) -> io::Result<Socket> {
    let protocol = if is_multipath { Protocol::MPTCP } else { Protocol::TCP };
    Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))
}

impl Transfer {
    /// Opens the connection and starts.
    pub(super) fn start(
        usage: Use,
        amount: u64,
        [mobile, server]: [&Namespace; 2],
        address: SocketAddr,
        options: SocketOptions,
    ) -> Result<Self, TransferError> {
        let listener = server.enter(|| {
            let listener = open(address, options.is_multipath)?;
            listener.bind(&SocketAddr::new(any(address.ip()), address.port()).into())?;
            listener.listen(1)?;
            listener.set_read_timeout(Some(PATIENCE)).map(|()| listener)
        })?;
        let listener = listener.map_err(failed("listening"))?;
        let connected = mobile.enter(|| {
            let socket = open(address, options.is_multipath)?;
            socket.connect_timeout(&address.into(), PATIENCE).map(|()| socket)
        })?;
        let connected = ready(connected.map_err(failed("connecting"))?, options)?;
        let accepted = ready(listener.accept().map_err(failed("accepting"))?.0, options)?;
        let (is_over, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (from, to) = if usage == Use::Download { (accepted, connected) } else { (connected, accepted) };
        let began_at = Instant::now();
        let counted = (Arc::clone(&is_over), Arc::clone(&received));
        let (sender, receiver) = if usage == Use::Keys {
            let echoes = from.try_clone().map_err(failed("duplicating a socket"))?;
            let over = Arc::clone(&is_over);
            let mut shown = to.try_clone().map_err(failed("duplicating a socket"))?;
            let keys = Arc::clone(&received);
            let echo = move || {
                let pass = |bytes: &[u8]| write(&mut shown, bytes, &over);
                receive(to, amount, &(Arc::clone(&over), Arc::default()), pass).map(drop)
            };
            let over = Arc::clone(&is_over);
            let strike = move || {
                let echo = std::thread::spawn(echo);
                let struck = strike(from, amount, &keys, &over);
                over_or(echo.join()).and(struck)
            };
            (std::thread::spawn(strike), std::thread::spawn(move || receive(echoes, amount, &counted, |_| Ok(()))))
        } else {
            let over = Arc::clone(&is_over);
            let send = std::thread::spawn(move || send(from, amount, &over));
            (send, std::thread::spawn(move || receive(to, amount, &counted, |_| Ok(()))))
        };
        Ok(Self { is_over, received, amount, began_at, sender, receiver, _listener: listener })
    }

    /// Whether every byte has arrived, or nothing more will.
    pub(super) fn is_complete(&self) -> bool {
        self.received.load(Ordering::Relaxed) >= self.amount || self.receiver.is_finished()
    }

    /// Whether the connection has failed at its sender, whose thread waits for [`Self::end`] otherwise.
    pub(super) fn is_broken(&self) -> bool {
        self.sender.is_finished()
    }

    /// Ends it, wherever it is.
    ///
    /// # Errors
    /// A byte was another one than sent.
    pub(super) fn end(self) -> Result<Arrivals, TransferError> {
        self.is_over.store(true, Ordering::Relaxed);
        let (sent, received) = (over_or(self.sender.join()), over_or(self.receiver.join()));
        match sent {
            // A wrong byte of a key at the server.
            Err(error @ TransferError::Byte { .. }) => Err(error),
            // The sender fails if the connection does; what has arrived is the result.
            Ok(()) | Err(_) => received,
        }
    }
}

/// All addresses of this IP version.
const fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The result of a thread; its panic continues here.
fn over_or<T>(joined: std::thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ready(socket: Socket, options: SocketOptions) -> Result<TcpStream, TransferError> {
    // MPTCP sockets refuse the option, also with a value of 0.
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout).map_err(failed("a socket's options"))?;
    }
    let stream = TcpStream::from(OwnedFd::from(socket));
    let set = stream.set_read_timeout(Some(TURN)).and_then(|()| stream.set_write_timeout(Some(TURN)));
    set.and_then(|()| stream.set_nodelay(true)).map_err(failed("a socket's options"))?;
    Ok(stream)
}

const fn is_turn(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Writes all of it, unless the transfer is over.
fn write(stream: &mut TcpStream, mut bytes: &[u8], is_over: &AtomicBool) -> Result<(), TransferError> {
    while !bytes.is_empty() && !is_over.load(Ordering::Relaxed) {
        match stream.write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if is_turn(error.kind()) => {}
            Err(error) => return Err(failed("sending")(error)),
        }
    }
    Ok(())
}

fn send(mut stream: TcpStream, amount: u64, is_over: &AtomicBool) -> Result<(), TransferError> {
    const CHUNK: u64 = 16 << 10;
    let mut sent = 0;
    while sent < amount && !is_over.load(Ordering::Relaxed) {
        let end = (sent + CHUNK).min(amount);
        let chunk: Vec<u8> = (sent..end).map(byte).collect();
        write(&mut stream, &chunk, is_over)?;
        sent = end;
    }
    wait_until_over(is_over);
    Ok(())
}

/// Strikes keys. `echoed` counts the bytes of their echoes.
fn strike(mut stream: TcpStream, amount: u64, echoed: &AtomicU64, is_over: &AtomicBool) -> Result<(), TransferError> {
    let mut sent = 0;
    while sent < amount && !is_over.load(Ordering::Relaxed) {
        if sent - echoed.load(Ordering::Relaxed).min(sent) < WITHOUT_ECHO * KEY {
            let key: Vec<u8> = (sent..sent + KEY).map(byte).collect();
            write(&mut stream, &key, is_over)?;
            sent += KEY;
        }
        sleep(KEY_EVERY);
    }
    wait_until_over(is_over);
    Ok(())
}

/// The connection stays open until the measurement ends.
fn wait_until_over(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        sleep(TURN);
    }
}

/// Receives and checks `amount` bytes, and passes them on.
fn receive(
    mut stream: TcpStream,
    amount: u64,
    (is_over, received): &(Arc<AtomicBool>, Arc<AtomicU64>),
    mut pass: impl FnMut(&[u8]) -> Result<(), TransferError>,
) -> Result<Arrivals, TransferError> {
    let (mut at, mut arrivals, mut buffer) = (0_u64, Vec::new(), vec![0; 1 << 16]);
    while at < amount && !is_over.load(Ordering::Relaxed) {
        let len = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if is_turn(error.kind()) => continue,
            // The connection is gone; what has arrived is the result.
            Err(_) => break,
        };
        arrivals.push((Instant::now(), at + len as u64));
        for (place, &found) in (at..).zip(&buffer[..len]) {
            if found != byte(place) {
                return Err(TransferError::Byte { at: place, found, sent: byte(place) });
            }
        }
        at += len as u64;
        received.store(at, Ordering::Relaxed);
        pass(&buffer[..len])?;
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(sent: Result<(), TransferError>) -> Result<Arrivals, TransferError> {
        let transfer = Transfer {
            is_over: Arc::default(),
            received: Arc::default(),
            amount: KEY,
            began_at: Instant::now(),
            sender: std::thread::spawn(|| sent),
            receiver: std::thread::spawn(|| Ok(Vec::new())),
            _listener: open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false).unwrap(),
        };
        transfer.end()
    }

    #[test]
    fn a_damaged_key_is_an_error_and_a_broken_connection_is_not() {
        let damaged = ended(Err(TransferError::Byte { at: 3, found: 1, sent: 2 }));
        assert_eq!(damaged.unwrap_err().to_string(), "byte 3 is 1, and was 2");
        let broken = ended(Err(failed("sending")(ErrorKind::BrokenPipe.into())));
        assert!(broken.unwrap().is_empty());
    }
}
