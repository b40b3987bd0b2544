//! The TCP connections of all mobile hosts, both ends in this thread.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::Crowd;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Socket, Type};

use super::Failed;

/// The bytes of a message.
pub(super) const MESSAGE: usize = 64;

/// The port of the fixed host.
const PORT: u16 = 5001;

/// The bound on the time to open a connection.
const OPENS_WITHIN: Duration = Duration::from_secs(20);

/// The connections, in the order of their mobile hosts.
#[derive(Debug)]
pub(super) struct Connections {
    fixed: Vec<TcpStream>,
    mobile: Vec<TcpStream>,
    /// Watches the mobile hosts' ends; the data of an event is the connection's number.
    epoll: OwnedFd,
    /// Bytes that were sent to each mobile host's end and have not arrived.
    missing: Vec<usize>,
    missing_in_all: usize,
    /// The next connection that carries a message.
    turn: usize,
}

impl Connections {
    /// Opens this many connections of each mobile host.
    ///
    /// # Errors
    /// One of them is not opened in time.
    pub(super) fn open(crowd: &Crowd, of_each: u32) -> Result<Self, Failed> {
        let bind = || TcpListener::bind(SocketAddr::new(Crowd::FIXED.into(), PORT));
        let listener = crowd.fixed().enter(bind)??;
        let to = listener.local_addr()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let open = || -> Result<[Vec<TcpStream>; 2], Failed> {
            let [mut fixed, mut mobile] = [Vec::new(), Vec::new()];
            for host in 0..crowd.count() {
                for _ in 0..of_each {
                    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                    let address = Crowd::address(host);
                    socket.bind(&SocketAddr::new(address.into(), 0).into())?;
                    socket
                        .connect_timeout(&to.into(), OPENS_WITHIN)
                        .map_err(|error| format!("mobile host {address} cannot connect: {error}"))?;
                    let far = TcpStream::from(socket);
                    let (near, _) = listener.accept()?;
                    for stream in [&far, &near] {
                        stream.set_nodelay(true)?;
                        stream.set_nonblocking(true)?;
                    }
                    epoll::add(&epoll, &far, epoll::EventData::new_u64(mobile.len() as u64), epoll::EventFlags::IN)?;
                    mobile.push(far);
                    fixed.push(near);
                }
            }
            Ok([fixed, mobile])
        };
        let [fixed, mobile] = crowd.mobiles().enter(open)??;
        let missing = vec![0; mobile.len()];
        Ok(Self { fixed, mobile, epoll, missing, missing_in_all: 0, turn: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.fixed.len()
    }

    /// Both ends of each: the fixed host's, then the mobile host's.
    pub(super) fn ends(&self) -> Result<Vec<(SocketAddr, SocketAddr)>, Failed> {
        self.fixed.iter().map(|fixed| Ok((fixed.local_addr()?, fixed.peer_addr()?))).collect()
    }

    /// The fixed host sends this many bytes on each connection, few enough for one write.
    pub(super) fn send_to_all(&mut self, bytes: usize) -> Result<(), Failed> {
        (0..self.len()).try_for_each(|number| self.send(number, bytes))
    }

    fn send(&mut self, number: usize, bytes: usize) -> Result<(), Failed> {
        let sent = self.fixed[number].write(&vec![0; bytes])?;
        if sent < bytes {
            return Err(format!("a socket takes {sent} of {bytes} bytes").into());
        }
        self.missing[number] += bytes;
        self.missing_in_all += bytes;
        Ok(())
    }

    /// Receives until all data has arrived. Returns the time that this took.
    pub(super) fn receive_all(&mut self, patience: Duration) -> Result<Duration, Failed> {
        let began = Instant::now();
        while self.missing_in_all > 0 {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let without = self.missing.iter().filter(|missing| **missing > 0).count();
                let (bytes, all) = (self.missing_in_all, self.len());
                return Err(format!(
                    "{bytes} bytes have not arrived within {} s, on {without} of {all} connections",
                    patience.as_secs()
                )
                .into());
            }
            self.receive(left.min(Duration::from_secs(1)))?;
        }
        Ok(began.elapsed())
    }

    /// Each connection in its turn carries a message, for so long that all would carry one in `period`: a part of them in a hundredth of it.
    pub(super) fn talk(&mut self, period: Duration) -> Result<(), Failed> {
        const PARTS: u32 = 100;
        let ends_at = Instant::now() + period / PARTS;
        for _ in 0..self.len().div_ceil(PARTS as usize) {
            self.turn = (self.turn + 1) % self.len();
            self.send(self.turn, MESSAGE)?;
        }
        loop {
            let left = ends_at.saturating_duration_since(Instant::now());
            self.receive(left)?;
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Waits for data, and receives all that has arrived.
    fn receive(&mut self, wait: Duration) -> Result<(), Failed> {
        let mut ready = Vec::with_capacity(1024);
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&wait))?;
        let mut buffer = [0; 1 << 16];
        for event in ready {
            let number = event.data.u64() as usize;
            match self.mobile[number].read(&mut buffer) {
                Ok(0) => return Err("a connection has ended".into()),
                Ok(len) => {
                    self.missing[number] = self.missing[number].saturating_sub(len);
                    self.missing_in_all = self.missing_in_all.saturating_sub(len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
