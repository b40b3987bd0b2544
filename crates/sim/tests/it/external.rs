//! A host whose TCP is elsewhere. Here, elsewhere is another endpoint of this project, so that the world can be compared with one that
//! contains that endpoint.

use core::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_link::{Outage, Outages};
use holdover_sim::{
    ConnectionReport, End, Ending, FlowId, FlowReport, FlowStatus, NoObserver, NodeId, ShellCommand, SocketEvent,
    World, WorldConfig,
};
use holdover_tcp::{ConnectionId, Endpoint, EndpointConfig, Event};

use crate::support::{at_ms, bulk_bytes, bulk_for, bursts, exchanges, flow, ms, pair, secs, wire};

const CLIENT: NodeId = NodeId(0);

/// The client's TCP and its single application, which only executes commands.
struct Elsewhere {
    world: World,
    endpoint: Endpoint,
    connection: Option<ConnectionId>,
    to_write: u64,
    until: Option<Instant>,
    shuts_down: bool,
    datagrams: u64,
}

impl Elsewhere {
    fn new(config: WorldConfig) -> Self {
        let mut world = World::new(config).expect("a valid world");
        assert!(world.set_external(CLIENT));
        let addresses = vec![CLIENT.address(false)];
        let endpoint = Endpoint::new(EndpointConfig { addresses, secret: [7; 16] });
        Self { world, endpoint, connection: None, to_write: 0, until: None, shuts_down: false, datagrams: 0 }
    }

    fn run(mut self) -> (Ending, FlowReport, u64) {
        let mut now = Instant::ZERO;
        loop {
            let ending = self.world.run_to(now, &mut NoObserver);
            self.endpoint.handle_timeout(now);
            while self.apply(now) | self.act(now) {}
            if let Some(ending) = ending.or_else(|| self.world.run_to(now, &mut NoObserver)) {
                if let Some(connection) = self.connection.and_then(|id| self.endpoint.connection(id)) {
                    let (counters, snd_mss) = (connection.counters().clone(), connection.snd_mss());
                    self.world.set_connection_report(FlowId(0), End::From, ConnectionReport { counters, snd_mss });
                }
                return (ending, self.world.report().remove(0), self.datagrams);
            }
            let deadlines =
                [self.world.next_deadline(), self.endpoint.poll_timeout(), self.until.filter(|&at| at > now)];
            let limit = self.world.config().time_limit;
            now = deadlines.into_iter().flatten().min().map_or(limit, |at| at.clamp(now, limit));
        }
    }

    /// Executes the world's commands. Returns whether there were any.
    fn apply(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(command) = self.world.poll_shell_command() {
            any = true;
            match command {
                ShellCommand::Deliver { node, frame, .. } => {
                    assert_eq!(node, CLIENT);
                    self.endpoint.handle_packet(now, frame.packet());
                    self.world.take_back(frame);
                }
                ShellCommand::Connect { local, remote, .. } => {
                    let config = Arc::clone(&self.world.config().flows[0].sender);
                    let local = Some(SocketAddr::new(local, 0));
                    self.connection = self.endpoint.connect(now, config, local, remote).ok();
                }
                ShellCommand::Write { bytes, until, .. } => (self.to_write, self.until) = (bytes, until),
                ShellCommand::Shutdown { .. } => self.shuts_down = true,
                ShellCommand::Datagram { local, remote, len, .. } => {
                    self.datagrams += 1;
                    let payload = Bytes::from(vec![0; len]);
                    let udp = holdover_wire::Udp { src_port: local.port(), dst_port: remote.port(), payload };
                    let packet = holdover_wire::Packet::new(local.ip(), remote.ip(), udp);
                    self.world.handle_interface(now, CLIENT, None, packet, &mut NoObserver);
                }
                ShellCommand::Sample { .. } => {}
                other => panic!("no kernel is attached to the link: {other:?}"),
            }
        }
        any
    }

    /// The application writes and reads, and the endpoint sends. Returns whether anything changed.
    fn act(&mut self, now: Instant) -> bool {
        let mut any = false;
        let flow = FlowId(0);
        let tell = |world: &mut World, event| world.handle_socket_event(now, flow, End::From, event, &mut NoObserver);
        while let Some((id, event)) = self.endpoint.poll_event() {
            any = true;
            match event {
                Event::Connected => tell(&mut self.world, SocketEvent::Connected),
                Event::Readable => {
                    let connection = self.endpoint.connection_mut(id).expect("it has an event");
                    let mut read = 0;
                    while let Some(chunk) = connection.read(now) {
                        read += chunk.len() as u64;
                    }
                    tell(&mut self.world, SocketEvent::Read(read));
                }
                Event::PeerClosed => tell(&mut self.world, SocketEvent::PeerClosed),
                Event::Closed => {
                    let error = self.endpoint.connection(id).and_then(|connection| connection.error());
                    if let Some(error) = error {
                        tell(&mut self.world, SocketEvent::Failed(error));
                    }
                }
                _ => {}
            }
        }
        if let Some(connection) = self.connection.and_then(|id| self.endpoint.connection_mut(id)) {
            if self.until.is_some_and(|until| now >= until) {
                self.to_write = 0;
            }
            while self.to_write > 0 {
                let piece = Bytes::from(vec![0; self.to_write.min(1 << 16) as usize]);
                let taken = connection.write(now, piece) as u64;
                self.to_write -= taken;
                if taken == 0 {
                    break;
                }
            }
            if self.shuts_down && self.to_write == 0 {
                self.shuts_down = false;
                connection.shutdown_write();
            }
        }
        while let Some(out) = self.endpoint.poll_transmit(now) {
            any = true;
            self.world.handle_interface(now, CLIENT, None, out.packet, &mut NoObserver);
        }
        any
    }
}

/// The report of the single flow of `config`, with the client inside the world and elsewhere.
fn both(config: &WorldConfig) -> [(Ending, FlowReport); 2] {
    let mut world = World::new(config.clone()).expect("a valid world");
    let ending = world.run(&mut NoObserver);
    let (elsewhere, report, _) = Elsewhere::new(config.clone()).run();
    [(ending, world.report().remove(0)), (elsewhere, report)]
}

fn with_an_outage(traffic: holdover_sim::Traffic) -> WorldConfig {
    let mut link = wire(8_000, ms(20), 60);
    link.outages = Outages::List(vec![Outage { down: at_ms(1_500), up: at_ms(3_000) }]);
    pair(link, vec![flow("flow", 0, 1, traffic)], secs(60))
}

// Claim: A world with an external host equals the world in which that host's TCP is simulated.
// Tests: `external::exchanges_go_the_same_way`, `external::datagrams_are_sent_when_they_would_be`
#[test]
fn a_transfer_goes_the_same_way_wherever_its_tcp_is() {
    let [(home, at_home), (elsewhere, away)] = both(&with_an_outage(bulk_bytes(4_000_000)));
    assert_eq!((home, elsewhere), (Ending::AllDone, Ending::AllDone));
    assert_eq!((at_home.status, away.status), (FlowStatus::Completed, FlowStatus::Completed));
    assert_eq!(at_home.ideal, away.ideal);
    assert_eq!(at_home.outage, away.outage);
    assert_eq!(at_home.connected_at, away.connected_at);
    let sender = |report: &FlowReport| report.sender.clone().expect("it told");
    assert_eq!(sender(&away).bytes_sent.0, 4_000_000);
    assert!(sender(&away).timeouts > 0);
    assert_eq!(away.reconnections.len(), 1);
    let difference = away.duration().as_secs_f64() / at_home.duration().as_secs_f64();
    assert!((0.98..1.02).contains(&difference), "{} and {}", at_home.duration(), away.duration());
}

#[test]
fn exchanges_go_the_same_way() {
    let [(_, at_home), (_, away)] = both(&with_an_outage(exchanges(20, ms(100))));
    assert_eq!((away.status, away.exchanges.len()), (FlowStatus::Completed, 20));
    assert_eq!((at_home.exchanges, at_home.completed_at), (away.exchanges, away.completed_at));
}

#[test]
fn a_transfer_for_a_time_ends_in_time() {
    let [(_, at_home), (_, away)] = both(&with_an_outage(bulk_for(secs(6))));
    assert_eq!(away.status, FlowStatus::Completed);
    let difference = away.bytes_received as f64 / at_home.bytes_received as f64;
    assert!((0.95..1.05).contains(&difference), "{} and {}", at_home.bytes_received, away.bytes_received);
}

#[test]
fn datagrams_are_sent_when_they_would_be() {
    let config = pair(wire(1_000, ms(5), 50), vec![flow("bursts", 0, 1, bursts())], secs(20));
    let mut world = World::new(config.clone()).expect("a valid world");
    world.run(&mut NoObserver);
    let (ending, away, datagrams) = Elsewhere::new(config).run();
    assert_eq!(ending, Ending::TimeLimit);
    assert!(datagrams > 100, "{datagrams}");
    assert_eq!(world.report()[0].bytes_received, away.bytes_received);
}

#[test]
fn nothing_to_do_is_not_the_end() {
    let config = pair(wire(1_000, ms(5), 50), Vec::new(), secs(20));
    let mut world = World::new(config).expect("a valid world");
    assert!(!world.set_external(NodeId(9)));
    assert!(world.set_external(CLIENT));
    assert!(world.is_external(CLIENT) && !world.is_external(NodeId(1)));
    assert_eq!(world.run_to(at_ms(19_999), &mut NoObserver), None);
    assert_eq!(world.now(), at_ms(19_999));
    assert_eq!(world.run_to(at_ms(20_001), &mut NoObserver), Some(Ending::TimeLimit));
}
