//! Sessions over stream sockets in a poll loop: a request that ends with a delimiter, an answer, and bounds on size and
//! time of both.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use holdover_base::{Duration, Instant};
use rustix::event::PollFlags;

/// A listening socket.
pub trait Listener: AsFd {
    /// A connection to a caller.
    type Stream: Read + Write + AsFd;

    /// The next caller, with a non-blocking stream; `None` if there is none, or none with permission.
    fn accept(&self) -> io::Result<Option<Self::Stream>>;
}

/// The bounds of sessions.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The delimiter of a request.
    pub delimiter: &'static [u8],
    /// The longest request, delimiter included.
    pub request_bytes: usize,
    /// The most callers at a time.
    pub callers: usize,
    /// The longest time without progress.
    pub time: Duration,
    /// The most bytes queued for a follower; one that falls further behind is disconnected.
    pub backlog_bytes: usize,
}

/// A listener and its sessions.
pub struct Sessions<L: Listener> {
    listener: L,
    bounds: Bounds,
    next_id: u64,
    sessions: Vec<Session<L::Stream>>,
}

/// Identifies a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionId(u64);

struct Session<S> {
    id: SessionId,
    stream: S,
    stage: Stage,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    until: Instant,
    is_over: bool,
}

/// The stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Reading,
    /// The request is complete.
    Asked,
    /// The answer is complete.
    Answered,
    /// More answers may follow.
    Streaming,
}

/// Callers accepted per round: they may connect and disconnect faster than they are accepted, and there is other work
/// to do.
const ACCEPTED_AT_ONCE: usize = 16;

impl<L: Listener> Sessions<L> {
    /// Without callers.
    pub fn new(listener: L, bounds: Bounds) -> Self {
        Self { listener, bounds, next_id: 0, sessions: Vec::new() }
    }

    /// The descriptors to poll.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listener = (self.listener.as_fd(), PollFlags::IN);
        let sessions = self.sessions.iter().map(|session| (session.stream.as_fd(), session.interest()));
        std::iter::once(listener).chain(sessions)
    }

    /// Advances every session as far as possible, and returns complete requests.
    pub fn handle_ready(&mut self, now: Instant) -> Vec<(SessionId, Vec<u8>)> {
        let bounds = self.bounds;
        let requests = self.sessions.iter_mut().filter_map(|session| Some((session.id, session.advance(&bounds)?)));
        let mut requests = requests.collect();
        self.hang_up(now);
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.may_call() {
                break;
            }
            let Ok(Some(stream)) = self.listener.accept() else { break };
            self.add_caller(now, stream, &mut requests);
        }
        requests
    }

    /// Answers a request. If `has_more`, more answers may follow.
    pub fn answer(&mut self, now: Instant, id: SessionId, answer: &[u8], has_more: bool) {
        let bounds = self.bounds;
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.answer.extend_from_slice(answer);
            session.stage = if has_more { Stage::Streaming } else { Stage::Answered };
            session.until = now + bounds.time;
            session.advance(&bounds);
            session.is_over |= has_more && session.answer.len() - session.sent > bounds.backlog_bytes;
        }
        self.hang_up(now);
    }

    /// Whether the caller is still connected.
    pub fn is_there(&self, id: SessionId) -> bool {
        self.sessions.iter().any(|session| session.id == id)
    }

    /// Disconnects callers that are done or take too long.
    pub fn hang_up(&mut self, now: Instant) {
        self.sessions.retain(|session| !session.is_over && (session.stage == Stage::Streaming || now < session.until));
    }

    /// The next session timeout.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.iter().filter(|session| session.stage != Stage::Streaming).map(|session| session.until).min()
    }
}

impl<L: Listener> Sessions<L> {
    /// Whether one more caller can be accepted, or turned away for good. While all sessions have complete requests to
    /// be answered, the next caller waits.
    fn may_call(&self) -> bool {
        let is_any = |stage| self.sessions.iter().any(|session| session.stage == stage);
        self.sessions.len() < self.bounds.callers || is_any(Stage::Reading) || !is_any(Stage::Asked)
    }

    /// Adds a new caller. Without room, the oldest session that has not sent a request is closed, so that silent
    /// callers do not block others.
    fn add_caller(&mut self, now: Instant, stream: L::Stream, requests: &mut Vec<(SessionId, Vec<u8>)>) {
        let mut session = Session::new(SessionId(self.next_id), stream, now + self.bounds.time);
        self.next_id += 1;
        let request = session.advance(&self.bounds);
        if session.is_over {
            return;
        }
        if self.sessions.len() >= self.bounds.callers {
            let Some(silent) = self.sessions.iter().position(|session| session.stage == Stage::Reading) else { return };
            self.sessions.remove(silent);
        }
        requests.extend(request.map(|request| (session.id, request)));
        self.sessions.push(session);
    }
}

impl<S: Read + Write> Session<S> {
    fn new(id: SessionId, stream: S, until: Instant) -> Self {
        Self {
            id,
            stream,
            stage: Stage::Reading,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            until,
            is_over: false,
        }
    }

    fn interest(&self) -> PollFlags {
        // A caller that has closed its writing half still wants the answer: stop polling for input.
        let listens = matches!(self.stage, Stage::Reading | Stage::Streaming);
        let reads = if listens { PollFlags::IN } else { PollFlags::empty() };
        if self.sent < self.answer.len() { reads | PollFlags::OUT } else { reads }
    }

    /// Reads and writes as much as possible; returns the request when it is complete.
    fn advance(&mut self, bounds: &Bounds) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        self.write();
        let mut chunk = [0; 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.is_over |= matches!(self.stage, Stage::Reading | Stage::Streaming);
                    return None;
                }
                // Data after the request is ignored.
                Ok(_) if self.stage != Stage::Reading => {}
                Ok(read) => {
                    self.request.extend_from_slice(&chunk[..read]);
                    let end =
                        self.request.windows(bounds.delimiter.len()).position(|window| window == bounds.delimiter);
                    if let Some(end) = end.filter(|end| end + bounds.delimiter.len() <= bounds.request_bytes) {
                        self.stage = Stage::Asked;
                        let mut request = std::mem::take(&mut self.request);
                        request.truncate(end);
                        return Some(request);
                    }
                    if self.request.len() >= bounds.request_bytes {
                        self.is_over = true;
                        return None;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_over = true;
                    return None;
                }
            }
        }
    }

    fn write(&mut self) {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => self.is_over = true,
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
            if self.is_over {
                return;
            }
        }
        self.answer.clear();
        self.sent = 0;
        self.is_over |= self.stage == Stage::Answered;
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept(&self) -> io::Result<Option<TcpStream>> {
        none_if_blocking(Self::accept(self).and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        }))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn accept(&self) -> io::Result<Option<UnixStream>> {
        none_if_blocking(Self::accept(self).and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        }))
    }
}

fn none_if_blocking<S>(accepted: io::Result<S>) -> io::Result<Option<S>> {
    match accepted {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        delimiter: b"\n",
        request_bytes: 16,
        callers: 2,
        time: Duration::from_secs(5),
        backlog_bytes: 1 << 20,
    };

    fn sessions() -> (Sessions<TcpListener>, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (Sessions::new(listener, BOUNDS), address)
    }

    fn call(address: std::net::SocketAddr, text: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text).unwrap();
        stream
    }

    fn heard(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        // A reset ends it as well.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    /// Until a request arrives, or it is clear that none will; loopback delivers during the system call.
    fn requests(sessions: &mut Sessions<TcpListener>, now: Instant) -> Vec<(SessionId, Vec<u8>)> {
        for _ in 0..200 {
            let requests = sessions.handle_ready(now);
            if !requests.is_empty() {
                return requests;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Vec::new()
    }

    #[test]
    fn a_request_in_pieces_is_answered_once() {
        let (mut sessions, address) = sessions();
        let mut caller = call(address, b"how");
        assert_eq!(requests(&mut sessions, Instant::ZERO), []);
        caller.write_all(b" much?\nand more").unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        let asked = requests(&mut sessions, Instant::ZERO);
        let (id, request) = &asked[0];
        assert_eq!(request, b"how much?");
        // More than a socket's buffers hold.
        let answer = vec![b'x'; 8 << 20];
        let reader = std::thread::spawn(move || heard(caller));
        sessions.answer(Instant::ZERO, *id, &answer, false);
        while sessions.is_there(*id) {
            sessions.handle_ready(Instant::ZERO);
        }
        assert_eq!(reader.join().unwrap().len(), answer.len());
    }

    // Claim: Connections that send too much, are too slow or do not read are closed.
    // Tests: `session::idle_connections_make_room_for_new_ones`, `session::followers_are_disconnected_when_they_fall_behind`,
    // `tests::invalid_requests_are_answered_or_disconnected`
    #[test]
    fn oversized_and_slow_requests_are_disconnected() {
        let (mut sessions, address) = sessions();
        let talker = call(address, b"a request without an end");
        assert_eq!(requests(&mut sessions, Instant::ZERO), []);
        assert_eq!((heard(talker).as_str(), sessions.sessions.len()), ("", 0));
        let slow = call(address, b"well");
        let slow_too = call(address, b"well");
        assert_eq!(requests(&mut sessions, Instant::ZERO), []);
        assert_eq!(sessions.poll_timeout(), Some(Instant::from_secs(5)));
        sessions.hang_up(Instant::from_secs(5));
        assert_eq!((heard(slow), heard(slow_too)), (String::new(), String::new()));
    }

    #[test]
    fn idle_connections_make_room_for_new_ones() {
        let (mut sessions, address) = sessions();
        // The kernel accepts them in the order of their calls.
        let [first, second, third] = [(); 3].map(|()| call(address, b""));
        assert_eq!(requests(&mut sessions, Instant::ZERO), []);
        assert_eq!((heard(first).as_str(), sessions.sessions.len()), ("", 2));
        let who_asks = call(address, b"how?\n");
        let (id, request) = requests(&mut sessions, Instant::ZERO).remove(0);
        assert_eq!((heard(second).as_str(), request.as_slice()), ("", b"how?".as_slice()));
        sessions.answer(Instant::ZERO, id, b"so", false);
        assert_eq!((heard(who_asks).as_str(), sessions.sessions.len()), ("so", 1));
        drop(third);
    }

    #[test]
    fn connections_with_a_request_are_not_evicted() {
        let (mut sessions, address) = sessions();
        let callers = [(); 3].map(|()| call(address, b"how?\n"));
        let asked = requests(&mut sessions, Instant::ZERO);
        assert_eq!(asked.len(), 2);
        assert_eq!(sessions.handle_ready(Instant::ZERO), [], "the third caller waits for an answer to one of them");
        for (id, _) in asked {
            sessions.answer(Instant::ZERO, id, b"so", false);
        }
        let (id, _) = requests(&mut sessions, Instant::ZERO).remove(0);
        sessions.answer(Instant::ZERO, id, b"so", false);
        assert_eq!(callers.map(heard), ["so"; 3]);
        // Followers are not evicted either, and the wait for them is bounded.
        let followers = [(); 2].map(|()| call(address, b"go on\n"));
        for (id, _) in requests(&mut sessions, Instant::ZERO) {
            sessions.answer(Instant::ZERO, id, b"one", true);
        }
        let one_more = call(address, b"how?\n");
        assert_eq!(requests(&mut sessions, Instant::ZERO), []);
        assert_eq!(heard(one_more), "");
        drop(followers);
    }

    #[test]
    fn each_round_accepts_a_bounded_number_of_callers() {
        let (mut sessions, address) = sessions();
        (0..=ACCEPTED_AT_ONCE).for_each(|_| drop(call(address, b"")));
        sessions.handle_ready(Instant::ZERO);
        let left = || Listener::accept(&sessions.listener).unwrap().is_some();
        assert_eq!([left(), left()], [true, false], "one is left for the next round");
    }

    #[test]
    fn followers_are_disconnected_when_they_fall_behind() {
        let (mut sessions, address) = sessions();
        let caller = call(address, b"go on\n");
        let (id, _) = requests(&mut sessions, Instant::ZERO).remove(0);
        sessions.answer(Instant::ZERO, id, b"one\n", true);
        sessions.hang_up(Instant::from_secs(3600));
        assert!(sessions.is_there(id));
        let mut more = 0;
        while sessions.is_there(id) {
            sessions.answer(Instant::ZERO, id, &[b'x'; 1 << 16], true);
            more += 1;
            assert!(more < 1000, "nobody reads");
        }
        assert!(heard(caller).starts_with("one\n"));
    }
}
