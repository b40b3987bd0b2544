//! Asks resolvers, and waits for their answers.

use std::cell::Cell;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use domain::base::iana::{OptRcode, Rtype};
use rand_core::Rng as _;

use super::DomainName;
use super::config::{PATH, Resolvers};
use super::error::DnsError;
use super::message::{Query, Reading};
use crate::random::SystemRandom;

/// When a question is repeated first, unless the timeout is shorter; the interval is doubled from then on.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest answer that is read over UDP. Longer ones are truncated by servers that follow the question's limit.
const LONGEST_DATAGRAM: usize = 4096;

/// A stub resolver: asks the resolvers of the system, and blocks.
#[derive(Clone, Debug)]
pub struct Resolver {
    resolvers: Resolvers,
    /// The index of the one that has answered last. It is asked first, so that a silent one costs its timeout once.
    first: Cell<usize>,
}

/// The records of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The resolver that has answered.
    pub server: SocketAddr,
    /// It has validated the answer by DNSSEC, as it says.
    pub is_validated: bool,
    /// The data of each record; none if the name has no record of the type.
    pub records: Vec<Vec<u8>>,
}

impl Resolver {
    /// Asks these.
    pub const fn new(resolvers: Resolvers) -> Self {
        Self { resolvers, first: Cell::new(0) }
    }

    /// Whether the AD bit of this resolver reaches this host unchanged.
    pub fn is_trusted(&self, server: SocketAddr) -> bool {
        self.resolvers.trusts_ad || server.ip().is_loopback()
    }

    /// The records of a name, from the first resolver that answers.
    ///
    /// # Errors
    /// [`DnsError::NoSuchName`]; if none answers, the failure of the last one.
    pub fn look_up(&self, name: &DomainName, rtype: Rtype) -> Result<Answer, DnsError> {
        let (addresses, first) = (&self.resolvers.addresses, self.first.get());
        let mut failure = None;
        for _ in 0..self.resolvers.attempts {
            for index in (first..addresses.len()).chain(0..first) {
                let (server, name) = (addresses[index], name.clone());
                failure = Some(match self.ask(server, &name, rtype) {
                    Ok(Reading::Records { is_validated, data }) => {
                        self.first.set(index);
                        return Ok(Answer { server, is_validated, records: data });
                    }
                    Ok(Reading::NoSuchName) => {
                        self.first.set(index);
                        return Err(DnsError::NoSuchName { name });
                    }
                    Ok(Reading::Failed(code)) => DnsError::Failed { name, server, code },
                    Ok(Reading::Malformed | Reading::Truncated) => DnsError::Malformed { name, server },
                    Err(source) => DnsError::NoAnswer { name, server, source },
                });
            }
        }
        Err(failure.unwrap_or_else(|| DnsError::NoResolver { path: PATH.into() }))
    }

    fn ask(&self, server: SocketAddr, name: &DomainName, rtype: Rtype) -> io::Result<Reading> {
        match self.ask_once(server, name, rtype, true)? {
            // Servers without EDNS answer so (RFC 6891 section 6.2.2).
            Reading::Failed(OptRcode::FORMERR | OptRcode::NOTIMP) => self.ask_once(server, name, rtype, false),
            reading => Ok(reading),
        }
    }

    fn ask_once(&self, server: SocketAddr, name: &DomainName, rtype: Rtype, has_edns: bool) -> io::Result<Reading> {
        let query = || Query::new(SystemRandom.next_u32() as u16, name, rtype, has_edns);
        match self.over_udp(server, &query())? {
            Reading::Truncated => self.over_tcp(server, &query()),
            reading => Ok(reading),
        }
    }

    /// From a port that the kernel chooses at random. Other messages than answers to the question are ignored: the answer may follow.
    fn over_udp(&self, server: SocketAddr, query: &Query) -> io::Result<Reading> {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        let mut now = Instant::now();
        let deadline = now + self.resolvers.timeout;
        let mut interval = FIRST_INTERVAL.min(self.resolvers.timeout / 2);
        let mut buffer = [0; LONGEST_DATAGRAM];
        while now < deadline {
            socket.send(query.bytes())?;
            let repeat_at = deadline.min(now + interval);
            interval *= 2;
            while let Some(left) = left_until(repeat_at) {
                socket.set_read_timeout(Some(left))?;
                match socket.recv(&mut buffer) {
                    Ok(len) => {
                        if let Some(reading) = query.read(&buffer[..len]) {
                            return Ok(reading);
                        }
                    }
                    Err(error) if is_timeout(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            now = Instant::now();
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// With the length before each message (RFC 1035 section 4.2.2).
    fn over_tcp(&self, server: SocketAddr, query: &Query) -> io::Result<Reading> {
        let deadline = Instant::now() + self.resolvers.timeout;
        let mut stream = TcpStream::connect_timeout(&server, self.resolvers.timeout)?;
        stream.set_write_timeout(Some(self.resolvers.timeout))?;
        let len = (query.bytes().len() as u16).to_be_bytes();
        stream.write_all(&[&len, query.bytes()].concat())?;
        let mut len = [0; 2];
        read_exact(&mut stream, &mut len, deadline)?;
        let mut message = vec![0; u16::from_be_bytes(len).into()];
        read_exact(&mut stream, &mut message, deadline)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the answer over TCP is to another question");
        query.read(&message).ok_or_else(wrong)
    }
}

fn read_exact(stream: &mut TcpStream, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = left_until(deadline).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => buffer = &mut buffer[len..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left_until(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
