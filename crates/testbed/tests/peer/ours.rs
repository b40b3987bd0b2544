//! The project's TCP and the kernel's, in situations that a plain transfer does not meet.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::{ByteCount, Duration, Instant};
use holdover_tcp::{
    Config, Connection, ConnectionError, ConnectionId, Endpoint, EndpointConfig, Event, Profile, Reason, State, Timer,
};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{
    Congestion, Counters, Impairment, ImpairmentConfig, KernelListener, KernelStream, Namespace, PacketEndpoint, Shell,
    SocketError, SocketOptions, Stopped, TcpInfo, TcpState, Tun, TunConfig, TunDirection, Waker, sysctl,
};
use holdover_wire::{Packet, Segment};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("the_kernel_refuses_our_connection", the_kernel_refuses_our_connection),
    ("we_refuse_the_kernels_connection", we_refuse_the_kernels_connection),
    ("the_kernel_takes_our_reset", the_kernel_takes_our_reset),
    ("we_take_the_kernels_reset", we_take_the_kernels_reset),
    ("half_closed_by_the_kernel", half_closed_by_the_kernel),
    ("half_closed_by_us", half_closed_by_us),
    ("closed_by_both_at_once", closed_by_both_at_once),
    ("opened_by_both_at_once", opened_by_both_at_once),
    ("the_kernels_reader_pauses", the_kernels_reader_pauses),
    ("our_reader_pauses", our_reader_pauses),
    ("our_window_shrinks_over_data_in_flight", our_window_shrinks_over_data_in_flight),
    ("the_user_timeout_option_does_no_harm", the_user_timeout_option_does_no_harm),
    ("the_kernels_unreachable_takes_our_backoff_back", the_kernels_unreachable_takes_our_backoff_back),
    ("the_kernel_takes_data_in_our_syn", the_kernel_takes_data_in_our_syn),
    ("we_take_data_in_the_kernels_syn", we_take_data_in_the_kernels_syn),
];

/// `tcp_info`: data in the SYN was taken.
const TCPI_OPT_SYN_DATA: u8 = 32;

const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 5001;
/// Longer than any of these takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(30);

fn options() -> SocketOptions {
    SocketOptions { io_timeout: LIMIT, ..SocketOptions::new(Congestion::Cubic) }
}

fn config() -> Config {
    Profile::Linux6Cubic.config()
}

fn open(namespace: &Namespace) -> Tun {
    Tun::open(namespace, &TunConfig::new("tun0", 1500).address(KERNEL, 24)).unwrap()
}

fn endpoint() -> Endpoint {
    Endpoint::new(EndpointConfig { addresses: vec![OURS], secret: [7; 16] })
}

/// Our side of a test: an endpoint with one connection, and what it sent.
struct Ours {
    endpoint: Endpoint,
    id: Option<ConnectionId>,
    events: Vec<Event>,
    /// Why each segment was sent, and when.
    sent: Vec<(Instant, Reason, Segment)>,
    states: Vec<State>,
}

impl Ours {
    fn connect(config: Config, to: SocketAddr) -> Self {
        let mut endpoint = endpoint();
        let id = endpoint.connect(Instant::ZERO, Arc::new(config), None, to).unwrap();
        Self { endpoint, id: Some(id), events: Vec::new(), sent: Vec::new(), states: Vec::new() }
    }

    fn listen(config: Config) -> Self {
        let mut endpoint = endpoint();
        endpoint.listen(PORT, Arc::new(config), 1).unwrap();
        Self { endpoint, id: None, events: Vec::new(), sent: Vec::new(), states: Vec::new() }
    }

    /// Collects the events; the first connection that is accepted becomes the test's.
    fn hear(&mut self) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            assert_eq!(*self.id.get_or_insert(id), id, "one connection only");
            self.events.push(event);
        }
        if let Some(state) = self.get().map(Connection::state)
            && self.states.last() != Some(&state)
        {
            self.states.push(state);
        }
    }

    fn has(&self, event: Event) -> bool {
        self.events.contains(&event)
    }

    fn get(&self) -> Option<&Connection> {
        self.endpoint.connection(self.id?)
    }

    fn connection(&mut self) -> &mut Connection {
        let id = self.id.expect("there is a connection");
        self.endpoint.connection_mut(id).expect("it was not released")
    }

    fn sent_for(&self, reason: Reason) -> impl Iterator<Item = &(Instant, Reason, Segment)> {
        self.sent.iter().filter(move |(_, sent_for, _)| *sent_for == reason)
    }

    /// Writes what fits, and closes at the end.
    fn pump(&mut self, now: Instant, source: &mut Source) {
        if self.get().is_none_or(|connection| !connection.state().may_send()) {
            return;
        }
        while source.remaining() > 0 && self.connection().write_room() > 0 {
            let chunk = source.peek(8192);
            let written = self.connection().write(now, chunk.clone().into());
            source.advance(&chunk[..written]);
        }
        if source.remaining() == 0 {
            self.connection().shutdown_write();
        }
    }

    fn drain(&mut self, now: Instant, sink: &mut Sink) {
        if self.id.is_some() {
            while let Some(chunk) = self.connection().read(now) {
                sink.take(&chunk);
            }
        }
    }
}

impl PacketEndpoint for Ours {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.endpoint.handle_packet(now, &packet);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let outgoing = self.endpoint.poll_transmit(now)?;
        if let Some(segment) = outgoing.packet.tcp() {
            self.sent.push((now, outgoing.reason, segment.clone()));
        }
        Some(outgoing.packet)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }
}

/// Runs `ours` beside `kernel_side`, then on its own until `is_done`.
fn run<T: Send>(
    shell: &mut Shell<'_>,
    ours: &mut Ours,
    mut turn: impl FnMut(Instant, &mut Ours),
    kernel_side: impl FnOnce() -> T + Send,
    mut is_done: impl FnMut(&Ours) -> bool,
) -> T {
    let mut listening_turn = |now, ours: &mut Ours| {
        ours.hear();
        turn(now, ours);
        ours.hear();
    };
    let result = match shell.run_beside(ours, LIMIT, &mut listening_turn, kernel_side).unwrap() {
        Stopped::ByApplication(result) => result,
        Stopped::AtDeadline => panic!("the kernel's side did not come to an end: {:?}", ours.get()),
    };
    let stopped = shell.run(ours, LIMIT, |now, ours| {
        listening_turn(now, ours);
        if is_done(ours) { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.unwrap(), Stopped::ByApplication(()), "our side did not come to an end: {:?}", ours.get());
    result
}

/// Runs `body` while our side is woken again and again, so that it can act at a time although nothing arrives.
fn ticking(waker: &Waker, body: impl FnOnce()) {
    let is_through = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_through.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(5));
                waker.wake();
            }
        });
        // A panic must end the other thread, too.
        let _through = SetOnDrop(&is_through);
        body();
    });
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn is_over(ours: &Ours) -> bool {
    ours.get().is_some_and(|connection| matches!(connection.state(), State::Closed | State::TimeWait))
}

fn with_delay(shell: Shell<'_>, delay: Duration) -> Shell<'_> {
    let link = || Impairment::new(ImpairmentConfig { delay, ..Default::default() }, 1).unwrap();
    shell.with_impairment(TunDirection::FromKernel, link()).with_impairment(TunDirection::ToKernel, link())
}

/// The kernel connects, sends all of `source` and waits for our side to close; our side is woken all the while.
fn connect_and_send(namespace: &Namespace, waker: &Waker, source: &mut Source) -> TcpInfo {
    let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
    ticking(waker, || {
        source.write_to(&mut stream).unwrap();
        stream.shutdown_write().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    stream.tcp_info().unwrap()
}

fn assert_equal(source: &Source, sink: &Sink) {
    assert_eq!(source.remaining(), 0);
    assert_eq!(source.digest(), sink.digest(), "differing from byte {:?}", sink.first_difference());
}

fn the_kernel_refuses_our_connection(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    run(&mut shell, &mut ours, |_, _| {}, || (), is_over);
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Refused));
    assert_eq!(ours.sent.len(), 1, "a SYN and nothing else: {:?}", ours.sent);
}

fn we_refuse_the_kernels_connection(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut endpoint = endpoint();
    let connecting = || KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap_err();
    let stopped = shell.run_beside(&mut endpoint, LIMIT, |_, _| {}, connecting).unwrap();
    let Stopped::ByApplication(error) = stopped else { panic!("no answer") };
    assert!(
        matches!(&error, SocketError::Failed { call: "connect", source } if source.kind() == ErrorKind::ConnectionRefused),
        "{error:?}"
    );
}

fn the_kernel_takes_our_reset(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let before = Counters::read(namespace).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let has_accepted = AtomicBool::new(false);
    let turn = |_, ours: &mut Ours| {
        if ours.has(Event::Connected) && has_accepted.load(Ordering::SeqCst) {
            ours.connection().abort();
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        has_accepted.store(true, Ordering::SeqCst);
        waker.wake();
        let error = stream.read(&mut [0]).unwrap_err().kind();
        (error, stream.tcp_info().unwrap().tcpi_state)
    };
    let (error, state) = run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_eq!((error, state), (ErrorKind::ConnectionReset, TcpState::Closed));
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Aborted));
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert_eq!(counted.get("TcpEstabResets"), Some(1));
    assert_eq!(counted.get("TcpExtTCPChallengeACK"), Some(0), "at its left edge");
}

fn we_take_the_kernels_reset(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours::listen(config());
    let kernel_side = || {
        let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
        stream.write_all(b"before the reset").unwrap();
        stream.abort().unwrap();
    };
    run(&mut shell, &mut ours, |_, _| {}, kernel_side, is_over);
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Reset));
    assert!(ours.has(Event::Closed) && !ours.has(Event::PeerClosed), "{:?}", ours.events);
}

/// The kernel closes its side at once; ours goes on for as long as it likes.
fn half_closed_by_the_kernel(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(5));
    let mut ours = Ours::listen(config());
    let (mut source, mut sink) = (Source::new(1, 500_000), Sink::new(1));
    let turn = |now, ours: &mut Ours| {
        if ours.has(Event::PeerClosed) {
            ours.pump(now, &mut source);
        }
    };
    let kernel_side = || {
        let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
        stream.shutdown_write().unwrap();
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.ends_with(&[State::CloseWait, State::LastAck, State::Closed]), "{:?}", ours.states);
    assert_eq!(ours.get().unwrap().error(), None);
}

/// The same the other way round.
fn half_closed_by_us(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(5));
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(2, 500_000), Sink::new(2));
    let turn = |now, ours: &mut Ours| {
        if ours.has(Event::Connected) {
            ours.connection().shutdown_write();
        }
        ours.drain(now, &mut sink);
    };
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "our side has closed");
        assert_eq!(stream.tcp_info().unwrap().tcpi_state, TcpState::CloseWait);
        source.write_to(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.ends_with(&[State::FinWait1, State::FinWait2, State::TimeWait]), "{:?}", ours.states);
}

/// The FINs cross on the way, which takes longer than either side needs to close.
fn closed_by_both_at_once(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(300));
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let has_closed = AtomicBool::new(false);
    let turn = |_, ours: &mut Ours| {
        if has_closed.load(Ordering::SeqCst) {
            ours.connection().shutdown_write();
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let stream = listener.accept(LIMIT).unwrap();
        stream.shutdown_write().unwrap();
        has_closed.store(true, Ordering::SeqCst);
        waker.wake();
        loop {
            if stream.tcp_info().unwrap().tcpi_state == TcpState::Closed {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    let passed = [State::FinWait1, State::Closing, State::TimeWait];
    assert!(ours.states.ends_with(&passed), "{:?}", ours.states);
}

/// The SYNs cross on the way (RFC 9293 section 3.5, figure 7). Data then goes both ways.
fn opened_by_both_at_once(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(300));
    let mut ours = Ours { id: None, ..Ours::listen(config()) };
    ours.endpoint.unlisten(PORT);
    let (our_address, kernel_address) = (SocketAddr::new(OURS, PORT), SocketAddr::new(KERNEL, 6001));
    let (mut source, mut sink) = (Source::new(3, 100_000), Sink::new(3));
    let has_begun = AtomicBool::new(false);
    let turn = |now, ours: &mut Ours| {
        // When the kernel's SYN is on its way.
        if ours.id.is_none() && has_begun.load(Ordering::SeqCst) {
            let id = ours.endpoint.connect(now, Arc::new(config()), Some(our_address), kernel_address).unwrap();
            ours.id = Some(id);
        }
        if ours.has(Event::Connected) {
            ours.pump(now, &mut source);
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let options = SocketOptions { local: Some(kernel_address), ..options() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                has_begun.store(true, Ordering::SeqCst);
                waker.wake();
            });
            let mut stream = KernelStream::connect(namespace, our_address, &options, LIMIT).unwrap();
            sink.read_from(&mut stream).unwrap();
        });
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.starts_with(&[State::SynSent, State::SynReceived, State::Established]), "{:?}", ours.states);
}

/// Our probes of the zero window are answered, and the transfer goes on when the reader does.
fn the_kernels_reader_pauses(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let small = SocketOptions { recv_buffer: Some(ByteCount(16_384)), ..options() };
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &small).unwrap();
    let before = Counters::read(namespace).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(4, 400_000), Sink::new(4));
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        // Long enough for three probes: after about 0.2, 0.6 and 1.4 s.
        std::thread::sleep(std::time::Duration::from_millis(1_700));
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, |now, ours| ours.pump(now, &mut source), kernel_side, is_over);
    assert_equal(&source, &sink);
    let probes: Vec<_> = ours.sent_for(Reason::WindowProbe).map(|(at, ..)| *at).collect();
    assert!((2..=4).contains(&probes.len()), "{probes:?}");
    let waits: Vec<_> = probes.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
    assert!(waits.is_sorted() && waits[0] >= Duration::from_millis(350), "each wait is twice the last: {waits:?}");
    assert_eq!(ours.get().unwrap().counters().timeouts, 0, "a closed window is no loss");
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert_eq!(counted.get("TcpExtTCPZeroWindowDrop"), Some(0));
    assert!(counted.get("TcpExtTCPToZeroWindowAdv").unwrap() >= 1, "{counted:?}");
}

/// The kernel probes our zero window, and goes on when our reader does.
fn our_reader_pauses(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let mut config = config();
    config.receive.max_buffer_bytes = config.receive.buffer_bytes;
    let mut ours = Ours::listen(config);
    let before = Counters::read(namespace).unwrap();
    let (mut source, mut sink) = (Source::new(5, 400_000), Sink::new(5));
    let mut closed_at = None;
    let turn = |now: Instant, ours: &mut Ours| {
        if ours.get().is_some_and(|connection| connection.readable_len() >= 60_000) {
            closed_at.get_or_insert(now);
        }
        if closed_at.is_some_and(|at| now.saturating_since(at) > Duration::from_millis(1_700)) {
            ours.drain(now, &mut sink);
            if ours.has(Event::PeerClosed) {
                ours.connection().shutdown_write();
            }
        }
    };
    let waker = shell.waker();
    let kernel_side = || connect_and_send(namespace, &waker, &mut source);
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert!(counted.get("TcpExtTCPWinProbe").unwrap() >= 2, "{counted:?}");
    assert_eq!(counted.get("TcpExtTCPTimeouts"), Some(0), "a closed window is no loss");
}

/// The window is taken back over data that is in flight: all of it is taken nevertheless, and nothing is lost when the
/// window opens again.
fn our_window_shrinks_over_data_in_flight(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(40));
    let mut ours = Ours::listen(config());
    let (mut source, mut sink) = (Source::new(6, 1 << 20), Sink::new(6));
    let (mut acked_at, mut shrunk_at) = (None, None);
    let mut opened = false;
    let turn = |now: Instant, ours: &mut Ours| {
        ours.drain(now, &mut sink);
        if acked_at.is_none() && sink.digest().len > 100_000 {
            acked_at = Some(now);
        }
        // While the ACKs of that data are on their way. They will make the kernel send before it sees the window close.
        if let Some(at) = acked_at.filter(|_| shrunk_at.is_none())
            && now.saturating_since(at) > Duration::from_millis(10)
        {
            shrunk_at = Some((now, ours.connection().rcv_nxt()));
            ours.connection().clamp_window(Some(0));
            ours.connection().send_acks(1);
        }
        if let Some((at, rcv_nxt)) = shrunk_at.filter(|_| !opened)
            && now.saturating_since(at) > Duration::from_millis(700)
        {
            opened = true;
            assert!(ours.connection().rcv_nxt().gt(rcv_nxt), "what was in flight has arrived");
            ours.connection().clamp_window(None);
            ours.connection().send_acks(1);
        }
        if ours.has(Event::PeerClosed) {
            ours.connection().shutdown_write();
        }
    };
    let waker = shell.waker();
    let kernel_side = || connect_and_send(namespace, &waker, &mut source);
    let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert!(opened, "the window was shrunk and opened");
    assert_equal(&source, &sink);
    assert_eq!(info.tcpi_probes, 0, "{info:?}");
}

/// RFC 5482: Linux does not know the option, and does not mind it, in SYNs and after.
fn the_user_timeout_option_does_no_harm(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut config = config();
    config.user_timeout.advertise = Some(Duration::from_secs(300));
    let mut ours = Ours::connect(config, SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(7, 200_000), Sink::new(7));
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        sink.read_from(&mut stream).unwrap();
        stream.tcp_info().unwrap()
    };
    let info = run(&mut shell, &mut ours, |now, ours| ours.pump(now, &mut source), kernel_side, is_over);
    assert_equal(&source, &sink);
    let with_option: Vec<_> = ours.sent.iter().filter(|(.., segment)| segment.options.user_timeout.is_some()).collect();
    assert_eq!(with_option.len(), 2, "the SYN and one segment after it: {with_option:?}");
    assert_eq!(with_option[0].1, Reason::Syn);
    assert_eq!(info.tcpi_options & 7, 7, "the other options are agreed on all the same");
}

/// RFC 6069: as long as the kernel, as a router without a route, says that the destination is unreachable, our
/// retransmissions do not back off.
fn the_kernels_unreachable_takes_our_backoff_back(namespace: &Namespace) {
    let behind: IpAddr = Ipv4Addr::new(10, 9, 0, 1).into();
    let tun = open(namespace);
    let open_behind = || Tun::open(namespace, &TunConfig::new("tun1", 1500).address(behind, 24)).unwrap();
    let mut behind_tun = Some(open_behind());
    sysctl::set(namespace, "net.ipv4.ip_forward", "1").unwrap();
    sysctl::set(namespace, "net.ipv4.icmp_ratelimit", "0").unwrap();
    let listener = KernelListener::bind(namespace, (behind, PORT).into(), &options()).unwrap();
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let mut ours = Ours::connect(config(), SocketAddr::new(behind, PORT));
    let (is_down, is_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut source, mut sink) = (Source::new(8, 1_000), Sink::new(8));
    let mut backoffs = Vec::new();
    let turn = |now, ours: &mut Ours| {
        if is_down.load(Ordering::SeqCst) {
            ours.pump(now, &mut source);
            if !is_up.load(Ordering::SeqCst) {
                backoffs.push(ours.get().unwrap().backoff());
            }
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        // The address goes with its interface. (It would stay with one that is merely down.)
        behind_tun = None;
        is_down.store(true, Ordering::SeqCst);
        waker.wake();
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        behind_tun = Some(open_behind());
        is_up.store(true, Ordering::SeqCst);
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    let timeouts: Vec<_> = ours.sent_for(Reason::Timeout).map(|(at, ..)| *at).collect();
    // Doubling from 0.2 s leaves room for three timeouts in 1.5 s.
    assert!(timeouts.len() >= 4, "{timeouts:?}");
    // A router sends five such errors at once, and then one in a second. On a machine that is late one may come in the same turn as
    // the timeout, and is not seen here then; that there were four timeouts says that it came.
    assert!(backoffs.windows(2).any(|pair| pair[1] < pair[0]), "{backoffs:?}");
    assert_eq!(ours.get().unwrap().deadline(Timer::Retransmit), None);
}

/// RFC 7413: the kernel gives us a cookie, and with it takes data that comes with the SYN; a cookie that it does not know it replaces.
fn the_kernel_takes_data_in_our_syn(namespace: &Namespace) {
    let tun = open(namespace);
    // Client, server, and every listener.
    sysctl::set(namespace, "net.ipv4.tcp_fastopen", "0x403").unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours { endpoint: endpoint(), id: None, events: Vec::new(), sent: Vec::new(), states: Vec::new() };
    for (attempt, in_syn, is_taken) in
        [("first", 0, false), ("with a cookie", 500, true), ("with a stale cookie", 500, false)]
    {
        if attempt == "with a stale cookie" {
            sysctl::set(namespace, "net.ipv4.tcp_fastopen_key", "1-2-3-4").unwrap();
        }
        let (mut source, mut sink) = (Source::new(11, 500), Sink::new(11));
        ours.id = None;
        ours.events.clear();
        let turn = |now, ours: &mut Ours| {
            if ours.id.is_none() {
                let to = SocketAddr::new(KERNEL, PORT);
                let data = source.peek(500);
                let opened = ours.endpoint.connect_fast_open(now, Arc::new(config()), None, to, data.clone().into());
                let (id, taken) = opened.unwrap();
                assert_eq!(taken, in_syn, "{attempt}");
                source.advance(&data[..taken]);
                ours.id = Some(id);
            }
            ours.pump(now, &mut source);
        };
        let kernel_side = || {
            let mut stream = listener.accept(LIMIT).unwrap();
            sink.read_from(&mut stream).unwrap();
            stream.tcp_info().unwrap()
        };
        let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
        assert_equal(&source, &sink);
        assert_eq!(info.tcpi_options & TCPI_OPT_SYN_DATA != 0, is_taken, "{attempt}: {info:?}");
        assert_eq!(ours.get().unwrap().syn_data_taken(), is_taken, "{attempt}");
        let id = ours.id.unwrap();
        ours.endpoint.withdraw(id);
    }
}

/// The same the other way round: our cookie, the kernel's data, and our answer before the handshake ends.
fn we_take_data_in_the_kernels_syn(namespace: &Namespace) {
    let tun = open(namespace);
    sysctl::set(namespace, "net.ipv4.tcp_fastopen", "1").unwrap();
    // The handshake's end is a while in coming.
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(20));
    let mut config = config();
    config.fast_open.max_pending = 5;
    let mut ours = Ours::listen(config);
    for (attempt, is_taken) in [("first", false), ("with a cookie", true)] {
        let (mut request, mut heard) = (Source::new(12, 300), Sink::new(12));
        let (mut answer, mut read) = (Source::new(13, 4_000), Sink::new(13));
        let mut is_answered_early = false;
        ours.id = None;
        ours.events.clear();
        let turn = |now, ours: &mut Ours| {
            ours.drain(now, &mut heard);
            let may_answer =
                ours.get().is_some_and(|connection| connection.was_early() || connection.state().may_send());
            if may_answer && heard.digest().len == 300 && answer.remaining() > 0 {
                let chunk = answer.peek(4_000);
                let written = ours.connection().write(now, chunk.clone().into());
                answer.advance(&chunk[..written]);
                ours.connection().shutdown_write();
                is_answered_early = ours.connection().state() == State::SynReceived;
            }
        };
        let kernel_side = || {
            let options = SocketOptions { fast_open_connect: true, ..options() };
            let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options, LIMIT).unwrap();
            request.write_to(&mut stream).unwrap();
            stream.shutdown_write().unwrap();
            read.read_from(&mut stream).unwrap();
            stream.tcp_info().unwrap()
        };
        let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
        assert_equal(&request, &heard);
        assert_equal(&answer, &read);
        assert_eq!(info.tcpi_options & TCPI_OPT_SYN_DATA != 0, is_taken, "{attempt}: {info:?}");
        let connection = ours.get().unwrap();
        assert_eq!((connection.syn_data_taken(), connection.was_early()), (is_taken, is_taken), "{attempt}");
        assert_eq!(is_answered_early, is_taken, "{attempt}");
        let id = ours.id.unwrap();
        ours.endpoint.withdraw(id);
    }
}
