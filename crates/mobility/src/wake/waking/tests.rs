use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_wire::{Flags, Packet, Payload, Segment, Seq};

use super::*;
use crate::wake::{Wake, WakeConfig};
use crate::{LinkEvent, SegmentFilter as _};

const ROUND_TRIP: Duration = Duration::from_millis(50);
/// A message of 1 kB on a link of some 10 Mbit/s.
const SERVICE: Duration = Duration::from_millis(1);
/// An ICMP message, or an ACK.
const SHORT_SERVICE: Duration = Duration::from_micros(80);
/// In packets.
const QUEUE: usize = 75;
const RETRANSMISSION_TIMEOUT: Duration = Duration::from_millis(250);
const LATE_TIMEOUT: Duration = Duration::from_secs(4);
const MESSAGE: u32 = 1000;
const ANSWER: u32 = 40;

/// Clients that have each sent one message, which was acknowledged, before the link broke; and the link.
struct Crowd {
    wake: Wake,
    now: Instant,
    /// The clients whose kernel has a second message outstanding.
    outstanding: BTreeSet<u16>,
    /// How long peers take to answer after the cut.
    peers_take: Duration,
    /// When each packet in the link's queue has left it.
    queue: VecDeque<Instant>,
    /// Messages that found it full.
    dropped: u32,
    /// Messages of clients to their kernels.
    poked: Vec<u16>,
    /// Those whose peers got messages.
    peers_poked: BTreeSet<u16>,
    /// Messages to peers.
    messages: u32,
    /// Messages dropped by the link, and the times of their retransmissions.
    lost: BTreeSet<(Instant, u16)>,
    /// Clients whose first message is dropped elsewhere, and whose kernel's timer expires late.
    unlucky: BTreeSet<u16>,
    /// Clients whose peers' answers were lost in the cut: a message to the peer brings one.
    lost_answers: BTreeSet<u16>,
    /// How long those peers take for it.
    answers_take: Duration,
    /// Answers in flight.
    answers: BTreeSet<(Instant, u16)>,
    /// How many answers of its peer each client has received.
    answered: BTreeMap<u16, u32>,
    /// ACKs in flight.
    acks: BTreeMap<(Instant, u16), Seq>,
    /// When each client's second message was acknowledged.
    done: BTreeMap<u16, Instant>,
}

const PORT: u16 = 1024;

fn connection(client: u16) -> Connection {
    Connection { local: ([10, 0, 0, 1], PORT + client).into(), remote: ([10, 0, 0, 2], 80).into() }
}

impl Crowd {
    fn new(clients: u16) -> Self {
        let mut crowd = Self::connected(clients);
        crowd.now += Duration::from_secs(2);
        crowd.cut();
        crowd
    }

    fn connected(clients: u16) -> Self {
        let now = Instant::from_secs(100);
        let mut crowd = Self {
            wake: Wake::new(WakeConfig::all()),
            now,
            outstanding: BTreeSet::new(),
            peers_take: Duration::ZERO,
            queue: VecDeque::new(),
            dropped: 0,
            poked: Vec::new(),
            peers_poked: BTreeSet::new(),
            messages: 0,
            lost: BTreeSet::new(),
            unlucky: BTreeSet::new(),
            lost_answers: BTreeSet::new(),
            answers_take: Duration::ZERO,
            answers: BTreeSet::new(),
            answered: BTreeMap::new(),
            acks: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        for client in 0..clients {
            let syn = Segment { flags: Flags::SYN, ..Segment::default() };
            crowd.pass(client, Direction::Outgoing, syn);
            crowd.now += ROUND_TRIP;
            let answer = Segment { flags: Flags::SYN | Flags::ACK, ack: Seq::new(1), ..Segment::default() };
            crowd.pass(client, Direction::Incoming, answer);
            crowd.send(client, Seq::new(1));
            crowd.now += ROUND_TRIP;
            crowd.acknowledge(client, Seq::new(1 + MESSAGE));
        }
        crowd
    }

    fn cut(&mut self) {
        self.wake.handle_link(self.now, LinkEvent::Down);
        self.now += Duration::from_secs(7);
    }

    fn pass(&mut self, client: u16, direction: Direction, segment: Segment) {
        let (local, remote) = (connection(client).local, connection(client).remote);
        let (from, to) = if direction == Direction::Outgoing { (local, remote) } else { (remote, local) };
        let segment = Segment { src_port: from.port(), dst_port: to.port(), window: 60_000, ..segment };
        let mut packet = Packet::new(from.ip(), to.ip(), segment);
        let _ = self.wake.handle_packet(self.now, direction, &mut packet);
    }

    fn send(&mut self, client: u16, seq: Seq) {
        let payload = Bytes::from_static(&[0; MESSAGE as usize]);
        self.pass(
            client,
            Direction::Outgoing,
            Segment { seq, ack: self.answers_end(client, false), flags: Flags::ACK, payload, ..Segment::default() },
        );
    }

    /// The end of the peer's data that have arrived, or that it has sent.
    fn answers_end(&self, client: u16, are_lost_ones_included: bool) -> Seq {
        let lost = u32::from(are_lost_ones_included && self.lost_answers.contains(&client));
        Seq::new(1 + ANSWER * (self.answered.get(&client).unwrap_or(&0) + lost))
    }

    fn acknowledge(&mut self, client: u16, ack: Seq) {
        let seq = self.answers_end(client, true);
        self.pass(client, Direction::Incoming, Segment { seq, ack, flags: Flags::ACK, ..Segment::default() });
    }

    /// The link is up, and the kernel reports that these clients have sent something in vain.
    fn come_back(&mut self, outstanding: impl Iterator<Item = u16>) {
        self.come_back_after(outstanding, 0);
    }

    /// The same; the kernel's queue for the next hop had the messages of the last `queued` clients.
    fn come_back_after(&mut self, outstanding: impl Iterator<Item = u16>, queued: usize) {
        let reported: Vec<u16> = outstanding.collect();
        let (waiting, queued) = reported.split_at(reported.len() - queued);
        self.outstanding = waiting.iter().copied().collect();
        self.wake.handle_link(self.now, LinkEvent::Up { symmetric: false, moved: false });
        for &client in queued {
            self.send(client, Seq::new(1 + MESSAGE));
            self.cross(client);
        }
        self.run(10);
        let connections = reported.into_iter().map(|client| (connection(client), OwnData::Sent));
        let Wake { control, path, .. } = &mut self.wake;
        control.wake_outstanding(self.now, connections, path);
    }

    /// The next answer of the peer to the first message arrives, and is acknowledged.
    fn answer(&mut self, client: u16) {
        let (seq, ack) = (self.answers_end(client, false), Seq::new(1 + MESSAGE));
        let payload = Bytes::from_static(&[0; ANSWER as usize]);
        let answer = Segment { seq, ack, flags: Flags::ACK, payload, ..Segment::default() };
        self.pass(client, Direction::Incoming, answer);
        let flags = Flags::ACK;
        self.pass(client, Direction::Outgoing, Segment { seq: ack, ack: seq + ANSWER, flags, ..Segment::default() });
        *self.answered.entry(client).or_default() += 1;
    }

    /// Runs so many milliseconds: a poked client sends its message, again only if the timer is far off; the link queues and drops.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.wake.handle_timeout(self.now);
            while let Some((connection, made)) = self.wake.control.poll_transmit() {
                let client = connection.local.port() - PORT;
                let is_poke = matches!(made.packet.payload, Payload::IcmpError(_));
                if made.direction == Direction::Outgoing {
                    self.peers_poked.extend(is_poke.then_some(client));
                    let left_at = self.transmit(SHORT_SERVICE);
                    self.messages += u32::from(is_poke);
                    let answered_at = left_at.map(|at| at + ROUND_TRIP + self.answers_take);
                    let has_answer = is_poke && self.lost_answers.contains(&client);
                    self.answers.extend(answered_at.filter(|_| has_answer).map(|at| (at, client)));
                    continue;
                }
                if !is_poke {
                    continue;
                }
                self.poked.push(client);
                let was_lost = self.lost.len();
                self.lost.retain(|&(at, other)| other != client || at < self.now + LATE_TIMEOUT / 2);
                if self.outstanding.remove(&client) || self.lost.len() < was_lost {
                    self.send(client, Seq::new(1 + MESSAGE));
                    self.cross(client);
                }
            }
            while let Some(&(at, client)) = self.lost.first()
                && at <= self.now
            {
                self.lost.pop_first();
                self.cross(client);
            }
            while let Some((&(at, client), &ack)) = self.acks.first_key_value()
                && at <= self.now
            {
                self.acks.pop_first();
                self.acknowledge(client, ack);
                self.done.insert(client, self.now);
            }
            while let Some(&(at, client)) = self.answers.first()
                && at <= self.now
            {
                self.answers.pop_first();
                if self.lost_answers.remove(&client) {
                    self.answer(client);
                }
            }
            self.now += Duration::from_millis(1);
        }
    }

    fn cross(&mut self, client: u16) {
        if self.unlucky.remove(&client) {
            self.lost.insert((self.now + LATE_TIMEOUT, client));
            return;
        }
        if let Some(left_at) = self.transmit(SERVICE) {
            self.acks.insert((left_at + ROUND_TRIP + self.peers_take, client), Seq::new(1 + 2 * MESSAGE));
        } else {
            self.dropped += 1;
            self.lost.insert((self.now + RETRANSMISSION_TIMEOUT, client));
        }
    }

    /// Sends a packet; returns when it has left, if the queue had room.
    fn transmit(&mut self, service: Duration) -> Option<Instant> {
        self.queue.retain(|&at| at > self.now);
        if self.queue.len() >= QUEUE {
            return None;
        }
        let left_at = self.queue.back().copied().unwrap_or(self.now) + service;
        self.queue.push_back(left_at);
        Some(left_at)
    }
}

// Claim: Of many connections those with data outstanding are woken first, the slowest within twice the time that the data of all
// need on a link with a short queue; connections that go on by themselves are not poked.
// Tests: `wake::waking::tests::waking_many_takes_as_long_as_their_data`, `wake::waking::tests::resumed_connections_are_not_poked`
#[test]
fn connections_with_data_outstanding_come_first() {
    let mut crowd = Crowd::new(300);
    // By activity, these clients would be woken last.
    crowd.come_back(0..20);
    crowd.run(250);
    assert_eq!(crowd.done.len(), 20, "{:?}", crowd.outstanding);
}

/// The slowest is done within twice the time of all data, plus a few round trips in which the window opens.
#[test]
fn waking_many_takes_as_long_as_their_data() {
    let mut crowd = Crowd::new(1000);
    let back_at = crowd.now;
    crowd.come_back(0..1000);
    crowd.run(2_000 + 4 * ROUND_TRIP.as_millis());
    assert_eq!(crowd.outstanding.len(), 0);
    assert_eq!(crowd.done.len(), 1000);
    let last = crowd.done.values().max().map(|at| at.saturating_since(back_at));
    assert!(last.is_some_and(|last| last < Duration::from_millis(2_000)), "{last:?}");
}

// Claim: Many connections whose peers take longer to answer than before the cut are woken forty at a time after the first ones.
#[test]
fn peers_that_take_their_time_hold_up_the_others_little() {
    let mut crowd = Crowd::new(1000);
    crowd.peers_take = Duration::from_millis(60);
    let back_at = crowd.now;
    crowd.come_back(0..1000);
    crowd.run(6_000);
    assert_eq!(crowd.done.len(), 1000);
    let last = crowd.done.values().max().map(|at| at.saturating_since(back_at));
    assert!(last.is_some_and(|last| last < Duration::from_millis(4_000)), "{last:?}");
}

// Claim: When the last of many connections has had its turn, one whose message was lost before is tried again at once, and not after
// twice the longest time to an answer.
#[test]
fn what_was_lost_is_tried_again_when_no_other_connection_waits() {
    let mut crowd = Crowd::new(300);
    let back_at = crowd.now;
    crowd.unlucky = BTreeSet::from([40, 250, 299]);
    crowd.come_back(0..300);
    crowd.run(1_500);
    let took = |client: u16| crowd.done.get(&client).map(|&at| at.saturating_since(back_at));
    let others = (0..300).filter(|client| ![40, 250, 299].contains(client)).map(took);
    let last = others.max().flatten().expect("all are done");
    let within = last + QUEUED + ROUND_TRIP * 3 / 2;
    let unlucky = [40, 250, 299].map(took);
    assert!(unlucky.iter().all(|took| took.is_some_and(|took| took <= within)), "{unlucky:?}, the others {last}");
}

// Claim: Of many connections, the host's own data take the link: peers that wait for them get neither messages nor separate ACKs, and what
// the kernel's queue for the next hop has sent is not sent again. Of 1,000 uploads none is lost in a queue of 75 packets, and the slowest
// is done 1.25 times the time of their data after the return.
// Tests: `wake::waking::tests::what_the_kernel_has_sent_is_not_sent_again`
#[test]
fn messages_do_not_fill_the_queue_of_the_link() {
    let mut crowd = Crowd::new(1000);
    let back_at = crowd.now;
    crowd.come_back(0..1000);
    crowd.run(1_500);
    assert_eq!((crowd.done.len(), crowd.dropped), (1000, 0));
    let last = crowd.done.values().max().map(|at| at.saturating_since(back_at));
    assert!(last.is_some_and(|last| last < Duration::from_millis(1_250)), "{last:?}");
}

#[test]
fn what_the_kernel_has_sent_is_not_sent_again() {
    let mut crowd = Crowd::new(200);
    crowd.come_back_after(0..200, 60);
    crowd.run(500);
    assert!(crowd.poked.iter().all(|&client| client < 140), "{:?}", crowd.poked);
    assert_eq!((crowd.done.len(), crowd.dropped), (200, 0));
}

// Claim: Of many connections with the host's data outstanding, those whose data may have been answered before the cut have their peers
// woken, too.
#[test]
fn a_peer_that_may_have_answered_is_woken() {
    let mut crowd = Crowd::connected(100);
    crowd.answer(30);
    crowd.now += Duration::from_secs(2);
    crowd.send(30, Seq::new(1 + MESSAGE));
    crowd.now += ROUND_TRIP / 2;
    crowd.cut();
    crowd.come_back(20..60);
    crowd.run(300);
    let woken: Vec<u16> = (20..60).filter(|client| crowd.peers_poked.contains(client)).collect();
    assert_eq!(woken, [30]);
}

// Claim: A segment of the peer that a router had kept does not end the attempts for a connection whose own data are outstanding.
#[test]
fn what_a_router_had_kept_does_not_end_the_attempts() {
    let mut crowd = Crowd::connected(100);
    crowd.answer(60);
    crowd.now += Duration::from_millis(1);
    // More recent ones come before it.
    (70..90).for_each(|client| crowd.answer(client));
    crowd.now += Duration::from_secs(2);
    crowd.cut();
    crowd.come_back(0..100);
    crowd.answer(60);
    crowd.run(500);
    assert!(crowd.done.contains_key(&60), "{:?} left", crowd.outstanding);
}

// Claim: If the ACK of the host's own data has a higher sequence number than has arrived, an answer of the peer was lost, and the peer is woken
// at once. Another peer, whose ACK does not, is not.
#[test]
fn a_peer_whose_answer_was_lost_is_woken() {
    for others in [0..0, 100..140, 100..400] {
        let mut crowd = Crowd::connected(400);
        crowd.lost_answers = BTreeSet::from([30]);
        crowd.now += Duration::from_secs(2);
        [30, 31].map(|client| crowd.send(client, Seq::new(1 + MESSAGE)));
        crowd.now += ROUND_TRIP / 2;
        crowd.cut();
        // The kernel repeats these messages by itself.
        crowd.come_back_after(others.clone().chain([30, 31]), 2);
        crowd.run(3 * ROUND_TRIP.as_millis());
        assert!(crowd.answered.contains_key(&30), "{others:?}");
        let are_many = others.len() > CROWD;
        assert!(!are_many || !crowd.peers_poked.contains(&31), "{others:?}");
    }
}

// Claim: A peer that has been woken is woken again only once its answer could have arrived.
#[test]
fn a_peer_that_was_woken_has_time_to_answer() {
    let mut crowd = Crowd::connected(1);
    (crowd.lost_answers, crowd.answers_take) = (BTreeSet::from([0]), Duration::from_millis(10));
    crowd.now += Duration::from_secs(2);
    crowd.answer(0);
    crowd.send(0, Seq::new(1 + MESSAGE));
    crowd.now += ROUND_TRIP / 2;
    crowd.cut();
    crowd.come_back(0..1);
    crowd.run(ROUND_TRIP.as_millis() - 15);
    let messages = crowd.messages;
    assert!(messages > 0 && crowd.done.is_empty(), "{messages} {:?}", crowd.done);
    crowd.run(40);
    assert!(crowd.done.contains_key(&0) && crowd.answered[&0] == 2);
    assert_eq!(crowd.messages, messages);
}

#[test]
fn resumed_connections_are_not_poked() {
    let mut crowd = Crowd::new(1);
    crowd.outstanding = BTreeSet::new();
    crowd.wake.handle_link(crowd.now, LinkEvent::Up { symmetric: false, moved: false });
    crowd.run(2);
    // The packet had waited for the next hop.
    crowd.send(0, Seq::new(1 + MESSAGE));
    let Wake { control, path, .. } = &mut crowd.wake;
    control.wake_outstanding(crowd.now, [(connection(0), OwnData::Sent)], path);
    crowd.wake.handle_timeout(crowd.now);
    let made: Vec<_> = std::iter::from_fn(|| crowd.wake.control.poll_transmit()).collect();
    assert!(made.iter().all(|(_, made)| made.direction == Direction::Outgoing), "{made:?}");
}

// Claim: Of many connections whose data may have been answered before the cut, the messages to their peers and their own data fit into a
// queue of 75 packets.
#[test]
fn messages_to_many_peers_fit_into_the_queue() {
    for clients in [12, 40, 80, 200, 1_000] {
        let mut crowd = Crowd::connected(clients);
        (0..clients).for_each(|client| crowd.answer(client));
        crowd.now += Duration::from_secs(2);
        for client in 0..clients {
            crowd.send(client, Seq::new(1 + MESSAGE));
        }
        crowd.now += ROUND_TRIP / 2;
        crowd.cut();
        crowd.come_back(0..clients);
        crowd.run(4 * u64::from(clients) + 1_000);
        assert_eq!(crowd.peers_poked.len(), usize::from(clients));
        assert_eq!((crowd.done.len(), crowd.dropped), (usize::from(clients), 0), "{clients} clients");
    }
}
