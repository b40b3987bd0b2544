//! The project's TCP with the kernel's, in situations beyond plain transfers.

// Claim: Refusals, resets both ways, half-close both ways, simultaneous open and close, readers that pause, a window that shrinks
// below data in flight, the user timeout option, ICMP errors of a router, data in SYNs (TCP Fast Open) both ways.

mod closing;
mod extensions;
mod opening;
mod window;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Connection, ConnectionId, Endpoint, EndpointConfig, Event, Profile, Reason, State};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{
    Congestion, Impairment, ImpairmentConfig, Namespace, PacketEndpoint, Shell, SocketOptions, Stopped, Tun, TunConfig,
    TunDirection, Waker,
};
use holdover_wire::{Packet, Segment};

use crate::Test;

/// All of them.
pub(crate) const TESTS: &[&[Test]] = &[opening::TESTS, closing::TESTS, window::TESTS, extensions::TESTS];

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

/// Our side of a test: an endpoint with one connection, and the segments that it has sent.
struct Ours {
    endpoint: Endpoint,
    id: Option<ConnectionId>,
    events: Vec<Event>,
    /// Each sent segment, with its time and reason.
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

    /// Collects the events; the first accepted connection becomes the test's.
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

    /// Writes data as far as it fits, and closes at the end.
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

/// Runs `ours` beside `kernel_side`, then alone until `is_done`.
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

/// Runs `body` while our side is woken repeatedly, so that it can act at a time without an arrival.
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

fn assert_equal(source: &Source, sink: &Sink) {
    assert_eq!(source.remaining(), 0);
    assert_eq!(source.digest(), sink.digest(), "differing from byte {:?}", sink.first_difference());
}
