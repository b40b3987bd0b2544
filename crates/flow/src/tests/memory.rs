//! Which packets begin and end the flows of a table in memory.

use holdover_filter::Table;

use super::*;
use crate::{FlowsBetween, HostFlows};

const SYN: Flags = Flags::SYN;
const SYN_ACK: Flags = Flags::SYN.union(Flags::ACK);
const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags::FIN.union(Flags::ACK);
const RST: Flags = Flags::RST;

/// A table, of a host or between two hosts.
enum Flows {
    Host(HostFlows),
    Between(FlowsBetween),
}

struct OneConnection {
    flows: Flows,
    now: Instant,
}

impl OneConnection {
    fn at_host() -> Self {
        Self { flows: Flows::Host(HostFlows::default()), now: Instant::from_secs(1) }
    }

    fn between() -> Self {
        Self { flows: Flows::Between(FlowsBetween::default()), now: Instant::from_secs(1) }
    }

    /// Passes a packet. Returns whether it belongs to a flow.
    fn pass(&mut self, mut packet: Packet) -> bool {
        self.now += Duration::from_millis(1);
        let (link, rules) = (Link::new(&LinkState::default()), Rules::default());
        let environment = Environment { now: self.now, link: &link, rules: &rules };
        let direction = if packet.dst == MOBILE { Direction::Outgoing } else { Direction::Incoming };
        let form = Form::of(packet.tcp().unwrap());
        let handled = match &mut self.flows {
            Flows::Host(flows) => flows.handle_packet(connection(), environment, direction, &mut packet, form),
            Flows::Between(flows) => {
                flows.handle_packet(connection(), environment, direction, &mut packet, form, |_, (), _| {})
            }
        };
        handled.is_some()
    }

    /// The near end sends.
    fn send(&mut self, flags: Flags, seq: u32, ack: u32) -> bool {
        self.pass(packet(true, flags, (seq, ack), 500, 0))
    }

    /// The far end sends.
    fn receive(&mut self, flags: Flags, seq: u32, ack: u32) -> bool {
        self.pass(packet(false, flags, (seq, ack), 500, 0))
    }

    fn flow(&self) -> Option<&Flow> {
        match &self.flows {
            Flows::Host(flows) => flows.get(connection()),
            Flows::Between(flows) => flows.get(connection()),
        }
    }

    fn began_at(&self) -> Option<Instant> {
        self.flow().map(Flow::began_at)
    }

    fn live(&self) -> usize {
        match &self.flows {
            Flows::Host(flows) => flows.live().count(),
            Flows::Between(flows) => flows.live().count(),
        }
    }

    /// The near end opens the connection.
    fn open(mut self) -> Self {
        assert!(self.send(SYN, 99, 0) && self.receive(SYN_ACK, 999, 100) && self.send(ACK, 100, 1000));
        self
    }

    /// Both ends close.
    fn close(&mut self) {
        assert!(self.send(FIN, 100, 1000) && self.receive(FIN, 1000, 101) && self.send(ACK, 101, 1001));
        assert_eq!((self.live(), self.flow().unwrap().is_over()), (0, true));
    }
}

// Claim: A SYN from either side changes nothing of a connection that is open: its ends ignore it (RFC 5961 section 4).
// Tests: `tests::memory::a_syn_of_the_peer_is_set_aside_until_the_host_answers`
#[test]
fn a_syn_on_an_open_connection_is_unseen_between_its_ends() {
    let mut t = OneConnection::between().open();
    let before = *t.flow().unwrap();
    for flags in [SYN, SYN_ACK] {
        assert!(!t.send(flags, 5000, 0) && !t.receive(flags, 5000, 0), "{flags:?}");
    }
    assert_eq!(*t.flow().unwrap(), before);
    t.close();
    assert!(t.send(SYN, 5000, 0));
    assert!(t.began_at() > Some(before.began_at()) && t.live() == 1);
    assert_eq!(t.flow().unwrap().half(Direction::Incoming).acked(), None);
}

#[test]
fn a_retransmitted_syn_begins_nothing_and_another_one_does() {
    for mut t in [OneConnection::at_host(), OneConnection::between()] {
        assert!(t.send(SYN, 99, 0));
        let first = t.began_at();
        assert!(t.send(SYN, 99, 0) && t.began_at() == first);
        assert!(t.send(SYN, 77, 0) && t.began_at() > first);
    }
    let mut t = OneConnection::between();
    assert!(t.receive(SYN, 99, 0) && t.live() == 0, "the near end has not answered");
    let first = t.began_at();
    assert!(t.receive(SYN, 99, 0) && t.began_at() == first);
    assert!(t.receive(SYN, 77, 0) && t.began_at() > first);
    assert!(t.send(SYN_ACK, 5, 78) && t.live() == 1);
}

#[test]
fn a_reset_of_an_unknown_connection_leaves_nothing() {
    for mut t in [OneConnection::at_host(), OneConnection::between()] {
        assert!(!t.send(RST, 99, 0) && !t.receive(RST, 99, 0));
        assert_eq!(t.began_at(), None);
    }
}

#[test]
fn a_connection_that_is_older_than_the_table_is_learnt() {
    let mut t = OneConnection::at_host();
    assert!(!t.receive(ACK, 999, 100), "anyone can send it");
    assert!(t.send(ACK, 100, 1000) && t.live() == 1);
    let mut t = OneConnection::between();
    assert!(t.receive(ACK, 999, 100) && t.live() == 0);
    assert!(t.send(ACK, 100, 1000) && t.live() == 1);
}

#[test]
fn a_syn_of_the_peer_is_set_aside_until_the_host_answers() {
    let mut t = OneConnection::at_host().open();
    let before = *t.flow().unwrap();
    let mut syn = packet(false, SYN, (5000, 0), 500, 0);
    holdover_filter::tcp_mut(&mut syn).unwrap().options.window_scale = Some(9);
    assert!(t.pass(syn));
    assert_eq!(*t.flow().unwrap(), before);
    assert!(t.send(ACK, 100, 1000) && t.began_at() == Some(before.began_at()), "a challenge ACK");
    // The host has restarted, and answers.
    assert!(t.send(SYN_ACK, 7000, 5001));
    let (began_at, flow) = (t.began_at(), t.flow().unwrap());
    assert!(began_at > Some(before.began_at()) && t.live() == 1);
    assert!(!flow.half(Direction::Incoming).lacks_window_shift(), "the SYN tells it");
    assert!(!t.receive(SYN, 5000, 0) && t.send(SYN_ACK, 7000, 5001), "retransmissions");
    assert!(t.receive(ACK, 5001, 7001) && t.send(ACK, 7001, 5001));
    assert_eq!(t.began_at(), began_at);
}

#[test]
fn the_host_alone_ends_its_flow() {
    let mut t = OneConnection::at_host().open();
    t.close();
    assert!(t.receive(SYN, 5000, 0), "set aside");
    assert!(t.flow().unwrap().is_over());
    assert!(!t.send(SYN_ACK, 7000, 1), "it answers another SYN, which was not seen");
    assert_eq!(t.began_at(), None);
}

#[test]
fn a_simultaneous_open_is_one_connection() {
    let mut t = OneConnection::at_host();
    assert!(t.send(SYN, 99, 0));
    let began_at = t.began_at();
    assert!(t.receive(SYN, 999, 0) && t.send(SYN_ACK, 99, 1000) && t.receive(SYN_ACK, 999, 100));
    assert_eq!(t.began_at(), began_at);
}

#[test]
fn an_inserted_flow_goes_on_and_a_removed_one_is_unknown() {
    let mut from = OneConnection::between().open();
    let flow = *from.flow().unwrap();
    let mut t = OneConnection::between();
    let Flows::Between(flows) = &mut t.flows else { unreachable!() };
    flows.insert(Instant::from_secs(1), connection(), flow);
    assert_eq!((t.live(), t.began_at()), (1, from.began_at()));
    assert!(!t.send(SYN, 5000, 0), "it is open");
    let Flows::Between(flows) = &mut from.flows else { unreachable!() };
    flows.remove(connection());
    assert_eq!((from.live(), from.began_at()), (0, None));
}

/// State of mechanisms that is not a flow begins with the same packets of a host's connection, and is live for as long.
#[test]
fn other_state_begins_and_ends_as_flows_of_a_host_do() {
    type Step = (Direction, Flags, u32, u32);
    let out = |flags, seq, ack| (Direction::Outgoing, flags, seq, ack);
    let back = |flags, seq, ack| (Direction::Incoming, flags, seq, ack);
    let opened = [out(SYN, 99, 0), back(SYN_ACK, 999, 100), out(ACK, 100, 1000)];
    let closed = [out(FIN, 100, 1000), back(FIN, 1000, 101), out(ACK, 101, 1001)];
    let reopened = [back(SYN, 5000, 0), out(SYN_ACK, 7000, 5001), back(ACK, 5001, 7001), out(ACK, 7001, 5001)];
    let scripts: [&[Step]; 8] = [
        &[],
        &[out(SYN, 99, 0), out(ACK, 100, 1000)],
        &[out(SYN, 77, 0), back(SYN_ACK, 6000, 78), out(ACK, 78, 6001)],
        &[back(SYN, 66, 0), out(ACK, 100, 1000), back(ACK, 1000, 100)],
        &[back(RST, 1000, 0), out(SYN, 77, 0), back(SYN_ACK, 6000, 78), out(ACK, 78, 6001)],
        &[back(RST, 900_000, 0), back(ACK, 1000, 100)],
        &[out(RST, 100, 0)],
        &[back(FIN, 1000, 100), out(ACK, 100, 1001)],
    ];
    for (script, is_closed, is_reopened) in scripts
        .iter()
        .flat_map(|script| [(script, false, false), (script, false, true), (script, true, false), (script, true, true)])
    {
        let mut flows = OneConnection::at_host();
        let mut table = Table::<Option<Instant>>::default();
        let end = closed.iter().filter(|_| is_closed).chain(reopened.iter().filter(|_| is_reopened));
        for &(direction, flags, seq, ack) in opened.iter().chain(script.iter()).chain(end) {
            let packet = packet(direction == Direction::Outgoing, flags, (seq, ack), 500, 0);
            let now = flows.now + Duration::from_millis(1);
            table.observe(now, direction, connection(), packet.tcp().unwrap()).value.get_or_insert(now);
            flows.pass(packet);
            let live = table.live().next().and_then(|(_, began_at)| *began_at);
            assert_eq!(flows.began_at().filter(|_| flows.live() == 1), live, "{flags:?} {direction:?} in {script:?}");
        }
    }
}
