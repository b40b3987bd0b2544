//! Every packet of a peer in every state: the tables of RFC 7401 section 4.4.3, with sections 6.7 to 6.15.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_hip::codec::{Builder, HipPacket, Notification, NotifyType, PacketType, Parameter};
use holdover_hip::host::{Dropped, Event, Host, HostConfig, State};
use holdover_hip::identity::{Algorithm, Hit, KeyPair};
use holdover_wire::{Packet, Payload};

use crate::support::{address, key, seeded};

/// The host whose states are tested, and its peer.
const HOST: usize = 0;
const PEER: usize = 1;
const ADDRESSES: [&str; 2] = ["192.0.2.1", "198.51.100.2"];
/// The time that every packet takes. Puzzles' time stamps have ticks of 31 ms: an I2 counts as newer than an association if its R1 is.
const DELAY: Duration = Duration::from_millis(50);

/// A state, and how it was reached where that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum In {
    /// The host was restarted, and has lost the association that the peer has.
    Unassociated,
    /// Both hosts have begun an exchange, as in the next two; each has an R1 of the other on its way.
    I1Sent,
    /// The same, and the host has repeated its I1.
    I1SentAgain,
    I2Sent,
    R2Sent,
    Established,
    Closing,
    /// The peer has sent CLOSE.
    Closed,
    /// Both hosts have.
    BothClosed,
    /// The peer did not answer.
    EFailed,
}

impl In {
    const ALL: [Self; 10] = [
        Self::Unassociated,
        Self::I1Sent,
        Self::I1SentAgain,
        Self::I2Sent,
        Self::R2Sent,
        Self::Established,
        Self::Closing,
        Self::Closed,
        Self::BothClosed,
        Self::EFailed,
    ];

    const fn state(self) -> State {
        match self {
            Self::Unassociated => State::Unassociated,
            Self::I1Sent | Self::I1SentAgain => State::I1Sent,
            Self::I2Sent => State::I2Sent,
            Self::R2Sent => State::R2Sent,
            Self::Established => State::Established,
            Self::Closing => State::Closing,
            Self::Closed | Self::BothClosed => State::Closed,
            Self::EFailed => State::EFailed,
        }
    }
}

/// A packet of the peer with valid MACs and signatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    I1,
    R1,
    /// Of a later generation.
    NewerR1,
    /// In answer to an R1 that the host has just sent.
    I2,
    /// The one that the host has accepted, again.
    SameI2,
    R2,
    Update,
    Notify,
    Close,
    /// In answer to this host's CLOSE. In a state without one it is from a former association, or answers a CLOSE that this host has not
    /// sent.
    CloseAck,
}

impl Of {
    const fn kind(self) -> PacketType {
        match self {
            Self::I1 => PacketType::I1,
            Self::R1 | Self::NewerR1 => PacketType::R1,
            Self::I2 | Self::SameI2 => PacketType::I2,
            Self::R2 => PacketType::R2,
            Self::Update => PacketType::Update,
            Self::Notify => PacketType::Notify,
            Self::Close => PacketType::Close,
            Self::CloseAck => PacketType::CloseAck,
        }
    }
}

/// Which HIT of the two is greater.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Greater {
    Own,
    Peers,
    /// Either.
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Sends one packet, to the peer.
    Answer(PacketType),
    /// Accepts the packet, and sends nothing.
    Accept,
    Drop,
}

/// The association once all packets on their way have arrived, without any retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// Data passes in both directions.
    Data,
    /// There is none.
    Nothing,
}

/// A row of the tables; the last field is the reason if it deviates from them, or goes beyond them.
type Row = (In, Of, Greater, What, State, Then, &'static str);

const BY_SECTION_6_8: &str = "tables 7 and 8 process it; section 6.8, step 2: SHOULD be dropped in any other state than I1-SENT and \
    I2-SENT. The host has sent no I1 since, so that the R1 is late or a replay, and would open again what was closed";
const REPORTED: &str = "ANYOTHER is dropped; section 6.13 leaves it open. The owner is informed, and the state stays";
const SAME_I2: &str = "a replay, or delayed: its R1 was sent before the association was made (section 6.9, step 1)";
const NO_ICMP: &str = "the optional ICMP message is not sent";
const NO_RULES: &str = "table 9 names no packets: the peer reaches this host, and may open an association at once";

/// All rows.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Table 2.
    (In::Unassociated, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::Unassociated, Then::Data, ""),
    (In::Unassociated, Of::R1, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, ""),
    (In::Unassociated, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::Unassociated, Of::R2, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, ""),
    (In::Unassociated, Of::Update, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, NO_ICMP),
    (In::Unassociated, Of::Notify, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, ""),
    (In::Unassociated, Of::Close, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, NO_ICMP),
    (In::Unassociated, Of::CloseAck, Greater::Any, What::Drop, State::Unassociated, Then::Nothing, ""),
    // Table 3, and section 6.7, step 3. Where the own I1 is the one that counts, it is on its way, or its R1 is.
    (In::I1Sent, Of::I1, Greater::Own, What::Answer(PacketType::R1), State::I1Sent, Then::Data, ""),
    (In::I1Sent, Of::I1, Greater::Peers, What::Drop, State::I1Sent, Then::Data, ""),
    (In::I1SentAgain, Of::I1, Greater::Own, What::Answer(PacketType::R1), State::I1Sent, Then::Data, ""),
    (In::I1SentAgain, Of::I1, Greater::Peers, What::Answer(PacketType::R1), State::I1Sent, Then::Data,
        "dropped by table 3; the peer may be unreachable for this host's I1, as behind a translator"),
    (In::I1Sent, Of::R1, Greater::Any, What::Answer(PacketType::I2), State::I2Sent, Then::Data, ""),
    (In::I1Sent, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::I1Sent, Of::R2, Greater::Any, What::Drop, State::I1Sent, Then::Data, ""),
    (In::I1Sent, Of::Update, Greater::Any, What::Drop, State::I1Sent, Then::Data, ""),
    (In::I1Sent, Of::Notify, Greater::Any, What::Drop, State::I1Sent, Then::Data, ""),
    (In::I1Sent, Of::Close, Greater::Any, What::Drop, State::I1Sent, Then::Data, ""),
    (In::I1Sent, Of::CloseAck, Greater::Any, What::Drop, State::I1Sent, Then::Data, ""),
    // Table 4.
    (In::I2Sent, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::I2Sent, Then::Data, ""),
    (In::I2Sent, Of::R1, Greater::Any, What::Drop, State::I2Sent, Then::Data,
        "the table sends I2; section 6.8, step 8: MAY, if its generation is later"),
    (In::I2Sent, Of::NewerR1, Greater::Any, What::Answer(PacketType::I2), State::I2Sent, Then::Data, ""),
    (In::I2Sent, Of::I2, Greater::Own, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::I2Sent, Of::I2, Greater::Peers, What::Drop, State::I2Sent, Then::Data, ""),
    (In::I2Sent, Of::R2, Greater::Any, What::Accept, State::Established, Then::Data, ""),
    (In::I2Sent, Of::Update, Greater::Any, What::Drop, State::I2Sent, Then::Data, ""),
    (In::I2Sent, Of::Notify, Greater::Any, What::Accept, State::I2Sent, Then::Data,
        "ANYOTHER is dropped; the errors of an I2 arrive in this state (section 6.9.1), and the owner is informed"),
    (In::I2Sent, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::I2Sent, Of::CloseAck, Greater::Any, What::Drop, State::I2Sent, Then::Data, ""),
    // Table 5. The peer is the initiator.
    (In::R2Sent, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::R1, Greater::Any, What::Drop, State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::SameI2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::R2, Greater::Any, What::Drop, State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::Update, Greater::Any, What::Answer(PacketType::Update), State::Established, Then::Data, ""),
    (In::R2Sent, Of::Notify, Greater::Any, What::Accept, State::R2Sent, Then::Data, ""),
    (In::R2Sent, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::R2Sent, Of::CloseAck, Greater::Any, What::Drop, State::R2Sent, Then::Data, ""),
    // Table 6.
    (In::Established, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::Established, Then::Data, ""),
    (In::Established, Of::R1, Greater::Any, What::Drop, State::Established, Then::Data, ""),
    (In::Established, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::Established, Of::SameI2, Greater::Any, What::Answer(PacketType::R2), State::Established, Then::Data,
        "the table has a new association; a replay is answered as in R2-SENT, and replaces nothing"),
    (In::Established, Of::R2, Greater::Any, What::Drop, State::Established, Then::Data, ""),
    (In::Established, Of::Update, Greater::Any, What::Answer(PacketType::Update), State::Established, Then::Data, ""),
    (In::Established, Of::Notify, Greater::Any, What::Accept, State::Established, Then::Data, ""),
    (In::Established, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::Established, Of::CloseAck, Greater::Any, What::Drop, State::Established, Then::Data, ""),
    // Table 7.
    (In::Closing, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::Closing, Then::Data, ""),
    (In::Closing, Of::R1, Greater::Any, What::Drop, State::Closing, Then::Nothing, BY_SECTION_6_8),
    (In::Closing, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::Closing, Of::SameI2, Greater::Any, What::Drop, State::Closing, Then::Nothing, SAME_I2),
    (In::Closing, Of::R2, Greater::Any, What::Drop, State::Closing, Then::Nothing, ""),
    (In::Closing, Of::Update, Greater::Any, What::Drop, State::Closing, Then::Nothing, ""),
    (In::Closing, Of::Notify, Greater::Any, What::Accept, State::Closing, Then::Nothing, REPORTED),
    (In::Closing, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::Closing, Of::CloseAck, Greater::Any, What::Accept, State::Unassociated, Then::Nothing, ""),
    // Table 8.
    (In::Closed, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::Closed, Then::Data, ""),
    (In::Closed, Of::R1, Greater::Any, What::Drop, State::Closed, Then::Nothing, BY_SECTION_6_8),
    (In::Closed, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, ""),
    (In::Closed, Of::SameI2, Greater::Any, What::Drop, State::Closed, Then::Nothing, SAME_I2),
    (In::Closed, Of::R2, Greater::Any, What::Drop, State::Closed, Then::Nothing, ""),
    (In::Closed, Of::Update, Greater::Any, What::Drop, State::Closed, Then::Nothing, ""),
    (In::Closed, Of::Notify, Greater::Any, What::Accept, State::Closed, Then::Nothing, REPORTED),
    (In::Closed, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::Closed, Of::CloseAck, Greater::Any, What::Drop, State::Closed, Then::Nothing, ""),
    (In::BothClosed, Of::Close, Greater::Any, What::Answer(PacketType::CloseAck), State::Closed, Then::Nothing, ""),
    (In::BothClosed, Of::CloseAck, Greater::Any, What::Accept, State::Unassociated, Then::Nothing, ""),
    // Table 9.
    (In::EFailed, Of::I1, Greater::Any, What::Answer(PacketType::R1), State::EFailed, Then::Data, NO_RULES),
    (In::EFailed, Of::R1, Greater::Any, What::Drop, State::EFailed, Then::Nothing, ""),
    (In::EFailed, Of::I2, Greater::Any, What::Answer(PacketType::R2), State::R2Sent, Then::Data, NO_RULES),
    (In::EFailed, Of::R2, Greater::Any, What::Drop, State::EFailed, Then::Nothing, ""),
    (In::EFailed, Of::Update, Greater::Any, What::Drop, State::EFailed, Then::Nothing, ""),
    (In::EFailed, Of::Notify, Greater::Any, What::Drop, State::EFailed, Then::Nothing, ""),
    (In::EFailed, Of::Close, Greater::Any, What::Drop, State::EFailed, Then::Nothing, NO_ICMP),
    (In::EFailed, Of::CloseAck, Greater::Any, What::Drop, State::EFailed, Then::Nothing, ""),
];

// Claim: Every packet of a peer in every state of an association, for both orders of the HITs: the answer, the state afterwards, and
// whether data passes then, as the tables of RFC 7401 section 4.4.3 have it, with a reason for each deviation.
// Tests: `states::data_opens_an_association_in_every_state_without_one`, `states::after_a_close_in_i2_sent`,
// `states::an_i2_after_one_that_was_accepted`, `states::an_i2_that_was_kept_does_not_replace_an_association_in_use`
#[test]
fn every_packet_in_every_state() {
    for kind in PacketType::ALL {
        for state in In::ALL.map(In::state) {
            for greater in [Greater::Own, Greater::Peers] {
                let is_it = |row: &&Row| row.0.state() == state && row.1.kind() == kind;
                let has_row = TABLE.iter().filter(is_it).any(|row| row.2 == Greater::Any || row.2 == greater);
                assert!(has_row, "no row for {kind} in {state}, {greater:?}");
            }
        }
    }
    for &(start, packet, greater, ..) in TABLE {
        let rows = TABLE.iter().filter(|row| (row.0, row.1) == (start, packet));
        let others: Vec<Greater> = rows.map(|row| row.2).collect();
        assert!(
            others == [Greater::Any] || others == [Greater::Own, Greater::Peers],
            "{start:?} {packet:?} {greater:?}"
        );
    }
    for greater in [Greater::Own, Greater::Peers] {
        let past = Past::new(greater);
        for &row in TABLE.iter().filter(|row| row.2 == Greater::Any || row.2 == greater) {
            check(&past, row);
        }
    }
}

fn check(past: &Past, row: Row) {
    let (start, of, _, what, after, then, why) = row;
    let mut pair = past.reach(start);
    let name = format!("{of:?} in {start:?}, greater HIT: {:?}; {why}", past.greater);
    assert_eq!(pair.state(HOST), start.state(), "{name}");
    let packet = past.packet(&mut pair, start, of);
    assert_eq!(kind_of(&packet), of.kind(), "{name}");
    assert_eq!(pair.state(HOST), start.state(), "{name}: before the packet");
    pair.events.clear();
    let flying = pair.flying.len();
    let result = pair.give(HOST, &packet);
    let sent: Vec<PacketType> = pair.flying.iter().skip(flying).map(|(_, packet)| kind_of(packet)).collect();
    let expected = if let What::Answer(kind) = what { vec![kind] } else { Vec::new() };
    // A host that has not sent CLOSE awaits no echo.
    let is_unasked = of == Of::CloseAck && matches!(result, Err(Dropped::Value { .. }));
    let is_refused = is_unasked || matches!(result, Err(Dropped::State { .. } | Dropped::Stale));
    assert_eq!(
        (sent, result.is_ok(), is_refused),
        (expected, what != What::Drop, what == What::Drop),
        "{name}: {result:?}"
    );
    assert_eq!(pair.state(HOST), after, "{name}");
    let has_informed = pair.events.iter().any(|event| matches!(event, Event::Notified { .. }));
    assert_eq!(has_informed, of == Of::Notify && what == What::Accept, "{name}");
    let ends =
        matches!(after, State::Closed | State::Unassociated) && start.state() != after && start != In::BothClosed;
    let has_ended = pair.events.iter().any(|event| matches!(event, Event::Closed { .. }));
    assert_eq!(has_ended, ends, "{name}: {:?}", pair.events);
    pair.settle();
    match then {
        Then::Data => assert_eq!([pair.data(HOST), pair.data(PEER)], [true; 2], "{name}: {:?}", pair.states()),
        Then::Nothing => assert!(!pair.data(HOST), "{name}: {:?}", pair.states()),
    }
    // Data shows that R2 has arrived.
    assert_eq!(pair.state(HOST) == State::Established, then == Then::Data, "{name}: {:?}", pair.states());
}

/// RFC 7401 section 4.4.3, tables 2, 7 and 8: data that needs an association. Table 8 stays in CLOSED, where an R1 is accepted; here the I1
/// leads to I1-SENT, the only state besides I2-SENT in which one is (section 6.8, step 2).
#[test]
fn data_opens_an_association_in_every_state_without_one() {
    for greater in [Greater::Own, Greater::Peers] {
        let past = Past::new(greater);
        for start in [In::Unassociated, In::Closing, In::Closed, In::BothClosed, In::EFailed] {
            let mut pair = past.reach(start);
            pair.connect(HOST);
            assert_eq!(pair.state(HOST), State::I1Sent, "{start:?}");
            assert_eq!(pair.flying.back().map(|(_, packet)| kind_of(packet)), Some(PacketType::I1), "{start:?}");
            pair.settle();
            assert_eq!([pair.data(HOST), pair.data(PEER)], [true; 2], "{start:?}: {:?}", pair.states());
        }
    }
}

/// A CLOSE in I2-SENT: its keys stay for retransmissions, a move opens nothing again, and an R2 that arrives late is dropped.
#[test]
fn after_a_close_in_i2_sent() {
    let past = Past::new(Greater::Own);
    let mut pair = past.reach(In::I2Sent);
    let close = past.packet(&mut pair, In::I2Sent, Of::Close);
    let r2 = pair.last(PEER, PacketType::R2);
    let spis = pair.hosts[HOST].inbound_spis();
    for _ in 0..2 {
        pair.give(HOST, &close).unwrap();
        assert_eq!(pair.flying.pop_back().map(|(_, packet)| kind_of(&packet)), Some(PacketType::CloseAck));
        assert_eq!(pair.state(HOST), State::Closed);
    }
    let closed = pair.events.iter().filter(|event| matches!(event, Event::Closed { .. }));
    assert_eq!(closed.count(), 1);
    assert_eq!(pair.give(HOST, &r2), Err(Dropped::State { state: State::Closed }));
    pair.flying.clear();
    pair.hosts[HOST].set_locators(pair.now, &[address("192.0.2.99")]);
    pair.pass(Duration::from_secs(10));
    let sent = pair.flying.iter().filter(|(from, _)| *from == HOST).count();
    assert_eq!((pair.state(HOST), sent), (State::Closed, 0), "nothing is sent again");
    assert_eq!(pair.hosts[HOST].inbound_spis(), spis);
    pair.pass(Duration::from_secs(30 * 60));
    assert_eq!((pair.state(HOST), pair.hosts[HOST].inbound_spis()), (State::Unassociated, 0));
}

/// Two R1s of two generations arrive one after the other: the host has dropped the keys of its first I2 when the peer accepts it.
#[test]
fn an_i2_after_one_that_was_accepted() {
    let mut pair = Pair::new(Greater::Own);
    pair.connect(HOST);
    pair.arrive(HOST);
    // The R1 is late.
    pair.pass(Duration::from_secs(1));
    pair.now += Duration::from_secs(59);
    pair.arrive(HOST);
    assert_eq!(pair.flying.iter().map(|(_, packet)| kind_of(packet)).collect::<Vec<_>>(), [PacketType::R1; 2]);
    pair.settle();
    assert_eq!([pair.data(HOST), pair.data(PEER)], [true; 2], "{:?}", pair.states());
    let i2s = pair.sent.iter().filter(|(_, packet)| kind_of(packet) == PacketType::I2);
    assert_eq!(i2s.count(), 2);
}

/// An I2 that somebody on the path has kept: its R1 is newer than that of the association, whose initiator was restarted meanwhile and got an
/// older R1, of which it could not know better.
#[test]
fn an_i2_that_was_kept_does_not_replace_an_association_in_use() {
    let mut pair = Pair::new(Greater::Own);
    pair.connect(HOST);
    pair.arrive(HOST);
    pair.pass(Duration::from_secs(1));
    pair.now += Duration::from_secs(9);
    pair.arrive(HOST);
    let r1s: Vec<Packet> = pair.flying.drain(..).map(|(_, packet)| packet).collect();
    assert_eq!(r1s.iter().map(kind_of).collect::<Vec<_>>(), [PacketType::R1; 2]);
    pair.give(HOST, &r1s[1]).unwrap();
    let kept = pair.last(HOST, PacketType::I2);
    pair.flying.clear();
    pair.restart(Greater::Own, HOST);
    pair.connect(HOST);
    pair.flying.clear();
    pair.give(HOST, &r1s[0]).unwrap();
    pair.settle();
    assert_eq!([pair.data(HOST), pair.data(PEER)], [true; 2], "{:?}", pair.states());
    assert_eq!(pair.give(PEER, &kept), Err(Dropped::Stale));
    assert_eq!([pair.data(HOST), pair.data(PEER)], [true; 2], "{:?}", pair.states());
}

/// Both hosts, and packets that have not arrived.
struct Pair {
    now: Instant,
    hosts: [Host; 2],
    flying: VecDeque<(usize, Packet)>,
    /// All packets so far.
    sent: Vec<(usize, Packet)>,
    /// Those of the host under test.
    events: Vec<Event>,
}

impl Pair {
    fn new(greater: Greater) -> Self {
        let flying = VecDeque::new();
        let hosts = [HOST, PEER].map(|index| fresh(greater, index, 1));
        let mut pair = Self { now: Instant::from_secs(1000), hosts, flying, sent: Vec::new(), events: Vec::new() };
        pair.introduce(HOST);
        pair.introduce(PEER);
        pair
    }

    fn introduce(&mut self, index: usize) {
        let peer = self.hosts[1 - index].hit();
        self.hosts[index].set_locators(self.now, &[address(ADDRESSES[index])]);
        self.hosts[index].add_peer(peer, &[address(ADDRESSES[1 - index])]);
    }

    /// The host loses all but its key; its puzzles' generations go on.
    fn restart(&mut self, greater: Greater, index: usize) {
        self.hosts[index] = fresh(greater, index, 1000);
        self.introduce(index);
    }

    fn fork(&self) -> Self {
        Self {
            now: self.now,
            hosts: [HOST, PEER].map(|index| self.hosts[index].fork().unwrap()),
            flying: self.flying.clone(),
            sent: self.sent.clone(),
            events: self.events.clone(),
        }
    }

    fn hit(&self, index: usize) -> Hit {
        self.hosts[index].hit()
    }

    fn state(&self, index: usize) -> State {
        self.hosts[index].state(self.hit(1 - index))
    }

    fn states(&self) -> [State; 2] {
        [self.state(HOST), self.state(PEER)]
    }

    fn connect(&mut self, index: usize) {
        let peer = self.hit(1 - index);
        self.hosts[index].connect(self.now, peer).unwrap();
        self.collect();
    }

    fn close(&mut self, index: usize) {
        let peer = self.hit(1 - index);
        self.hosts[index].close(self.now, peer).unwrap();
        self.collect();
    }

    fn collect(&mut self) {
        for index in [HOST, PEER] {
            while let Some(packet) = self.hosts[index].poll_transmit() {
                assert_eq!(packet.dst, address(ADDRESSES[1 - index]));
                self.flying.push_back((index, packet.clone()));
                self.sent.push((index, packet));
            }
            while let Some(event) = self.hosts[index].poll_event() {
                self.events.extend((index == HOST).then_some(event));
            }
        }
    }

    fn give(&mut self, to: usize, packet: &Packet) -> Result<(), Dropped> {
        self.now += DELAY;
        let result = self.hosts[to].handle_packet(self.now, packet);
        self.collect();
        result
    }

    /// The first packet on its way from a host arrives, whether it is accepted or not.
    fn arrive(&mut self, from: usize) {
        let index = self.flying.iter().position(|(sender, _)| *sender == from).unwrap();
        let (_, packet) = self.flying.remove(index).unwrap();
        let _ = self.give(1 - from, &packet);
    }

    /// The first packet of a kind on its way from a host, which does not arrive.
    fn take(&mut self, from: usize, kind: PacketType) -> Packet {
        let mut flying = self.flying.iter();
        let index = flying.position(|(sender, packet)| *sender == from && kind_of(packet) == kind).unwrap();
        self.flying.remove(index).unwrap().1
    }

    /// All packets arrive.
    fn settle(&mut self) {
        for _ in 0..50 {
            let Some(&(from, _)) = self.flying.front() else { return };
            self.arrive(from);
        }
        panic!("packets without end");
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        self.collect();
    }

    /// The last packet of a kind that a host has sent.
    fn last(&self, from: usize, kind: PacketType) -> Packet {
        let mut sent = self.sent.iter().rev();
        sent.find(|(sender, packet)| *sender == from && kind_of(packet) == kind).unwrap().1.clone()
    }

    /// Whether data passes from a host to the other.
    fn data(&mut self, from: usize) -> bool {
        let (src, dst) = (self.hit(from), self.hit(1 - from));
        let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
        let inner = Packet::new(src.0.into(), dst.0.into(), payload);
        let outer = self.hosts[from].seal(self.now, &inner);
        outer.is_ok_and(|outer| self.hosts[1 - from].open(self.now, &outer).is_ok())
    }
}

/// The host, or its peer, with the keys of this order.
fn fresh(greater: Greater, index: usize, r1_counter: u64) -> Host {
    let config = HostConfig { r1_counter, ..HostConfig::default() };
    Host::for_simulation(keys(greater, index), config, Box::new(seeded(r1_counter + index as u64)))
}

fn keys(greater: Greater, index: usize) -> KeyPair {
    let mut pairs = [51, 52].map(|seed| key(Algorithm::Ed25519, seed));
    pairs.sort_by_key(KeyPair::hit);
    let [smaller, larger] = pairs;
    if (greater == Greater::Own) == (index == HOST) { larger } else { smaller }
}

/// An order of the HITs, and an association of the two that the host has lost.
struct Past {
    greater: Greater,
    pair: Pair,
}

impl Past {
    fn new(greater: Greater) -> Self {
        // The host has initiated it, so that the peer has sent R2.
        let mut pair = Pair::new(greater);
        pair.connect(HOST);
        pair.settle();
        assert!(pair.data(HOST) && pair.data(PEER));
        Self { greater, pair }
    }

    /// Both hosts, with the host in this state.
    fn reach(&self, start: In) -> Pair {
        match start {
            In::Unassociated => {
                let mut pair = self.pair.fork();
                pair.restart(self.greater, HOST);
                pair
            }
            In::I1Sent => {
                let mut pair = Pair::new(self.greater);
                // The one with the greater HIT begins; its I1 is answered before the other one begins.
                let first = if self.greater == Greater::Own { HOST } else { PEER };
                for index in [first, 1 - first] {
                    pair.connect(index);
                    let (_, i1) = pair.flying.pop_back().unwrap();
                    pair.give(1 - index, &i1).unwrap();
                }
                assert_eq!(pair.states(), [State::I1Sent; 2]);
                assert!(pair.flying.iter().all(|(_, packet)| kind_of(packet) == PacketType::R1));
                pair
            }
            In::I1SentAgain => {
                let mut pair = self.reach(In::I1Sent);
                pair.pass(Duration::from_secs(1));
                pair
            }
            In::I2Sent => {
                let mut pair = self.reach(In::I1Sent);
                pair.arrive(PEER);
                pair
            }
            In::R2Sent => {
                let mut pair = Pair::new(self.greater);
                pair.connect(PEER);
                [PEER, HOST, PEER].into_iter().for_each(|from| pair.arrive(from));
                pair
            }
            In::Established => {
                let mut pair = self.reach(In::R2Sent);
                pair.arrive(HOST);
                assert!(pair.data(PEER));
                pair
            }
            In::Closing => {
                let mut pair = self.reach(In::Established);
                pair.close(HOST);
                pair
            }
            In::Closed => {
                let mut pair = self.reach(In::Established);
                pair.close(PEER);
                pair.arrive(PEER);
                pair
            }
            In::BothClosed => {
                let mut pair = self.reach(In::Closing);
                pair.close(PEER);
                pair.arrive(PEER);
                pair
            }
            In::EFailed => {
                let mut pair = self.reach(In::Unassociated);
                pair.connect(HOST);
                while pair.state(HOST) == State::I1Sent {
                    pair.pass(Duration::from_secs(1));
                }
                pair.flying.clear();
                pair
            }
        }
    }

    /// The packet, which has not arrived. The peer goes on from the moment at which it has sent it.
    fn packet(&self, pair: &mut Pair, start: In, of: Of) -> Packet {
        match of {
            Of::I1 | Of::R1 | Of::NewerR1 | Of::I2 | Of::SameI2 => self.of_exchange(pair, start, of),
            Of::R2 | Of::Update | Of::Close | Of::CloseAck => self.of_association(pair, start, of),
            Of::Notify => notify(pair, self.greater),
        }
    }

    fn of_exchange(&self, pair: &mut Pair, start: In, of: Of) -> Packet {
        let is_open = matches!(start, In::I1Sent | In::I1SentAgain | In::I2Sent);
        match of {
            // Both R1s of an open exchange are on their way.
            Of::R1 if start == In::I1Sent => return pair.take(PEER, PacketType::R1),
            Of::I2 if is_open => {
                let r1 = pair.take(HOST, PacketType::R1);
                pair.give(PEER, &r1).unwrap();
                return pair.take(PEER, PacketType::I2);
            }
            Of::R1 if start == In::I2Sent => {}
            Of::R1 | Of::NewerR1 => {
                // In answer to an I1 of this host, by the peer after a restart.
                let mut other = pair.fork();
                other.restart(self.greater, PEER);
                other.restart(self.greater, HOST);
                other.connect(HOST);
                let i1 = other.last(HOST, PacketType::I1);
                other.give(PEER, &i1).unwrap();
                if of == Of::NewerR1 {
                    pair.hosts[PEER] = other.hosts[PEER].fork().unwrap();
                    pair.flying.clear();
                }
                return other.last(PEER, PacketType::R1);
            }
            Of::I1 | Of::I2 if !is_open => {
                pair.restart(self.greater, PEER);
                pair.connect(PEER);
                if of == Of::I2 {
                    let i1 = pair.last(PEER, PacketType::I1);
                    pair.give(HOST, &i1).unwrap();
                    let r1 = pair.last(HOST, PacketType::R1);
                    pair.give(PEER, &r1).unwrap();
                }
                // Nothing else of the exchange is on its way.
                pair.flying.retain(|(_, packet)| kind_of(packet) == PacketType::Close);
            }
            _ => {}
        }
        pair.last(PEER, of.kind())
    }

    fn of_association(&self, pair: &mut Pair, start: In, of: Of) -> Packet {
        match (start, of) {
            (In::I2Sent, Of::R2 | Of::Update | Of::Close) => {
                let i2 = pair.last(HOST, PacketType::I2);
                pair.give(PEER, &i2).unwrap();
                pair.flying.retain(|(_, packet)| kind_of(packet) == PacketType::R2);
                match of {
                    Of::R2 => _ = pair.flying.pop_front(),
                    _ => self.made_by_peer(pair, of),
                }
            }
            (_, Of::R2) => return self.pair.last(PEER, PacketType::R2),
            (In::Unassociated | In::I1Sent | In::I2Sent | In::EFailed, _) => {
                // Of the association that the host has lost.
                let mut past = self.pair.fork();
                self.made_by_peer(&mut past, of);
                return past.last(PEER, of.kind());
            }
            // It is repeated.
            (In::Closed | In::BothClosed, Of::Close) => {}
            (In::Closing | In::BothClosed, Of::CloseAck) => {
                let close = pair.last(HOST, PacketType::Close);
                pair.give(PEER, &close).unwrap();
                pair.flying.clear();
            }
            (In::Closed, _) | (_, Of::CloseAck) => {
                // From before the CLOSE, or in answer to one that this host has not sent.
                let mut other = self.reach(if start == In::Closed { In::Established } else { start });
                self.made_by_peer(&mut other, of);
                return other.last(PEER, of.kind());
            }
            _ => self.made_by_peer(pair, of),
        }
        pair.last(PEER, of.kind())
    }

    /// The peer sends an UPDATE or a CLOSE of its association, or answers a CLOSE; the packet is not on its way.
    fn made_by_peer(&self, pair: &mut Pair, of: Of) {
        if pair.state(PEER) == State::I2Sent {
            // With the R2 on its way.
            pair.arrive(HOST);
        }
        let (now, host) = (pair.now, pair.hit(HOST));
        match of {
            Of::Update => pair.hosts[PEER].rekey(now, host, false).unwrap(),
            Of::Close => pair.hosts[PEER].close(now, host).unwrap(),
            Of::CloseAck => {
                pair.close(HOST);
                pair.arrive(HOST);
            }
            _ => unreachable!("{of:?}"),
        }
        pair.collect();
        pair.flying.pop_back();
    }
}

fn notify(pair: &Pair, greater: Greater) -> Packet {
    let mut builder = Builder::new(PacketType::Notify, pair.hit(PEER), pair.hit(HOST));
    let notification = Notification { kind: NotifyType::INVALID_SYNTAX, data: Bytes::new() };
    builder.push(&Parameter::Notification(notification)).unwrap();
    let signature = keys(greater, PEER).sign(builder.covered(), &mut seeded(9));
    builder.push(&Parameter::HipSignature(signature)).unwrap();
    builder.finish(address(ADDRESSES[PEER]), address(ADDRESSES[HOST]))
}

fn kind_of(packet: &Packet) -> PacketType {
    HipPacket::parse(packet).unwrap().packet.kind
}
