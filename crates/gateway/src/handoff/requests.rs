//! Requests between supervisor hosts, or base stations, for the connections of mobile hosts, with retransmissions and limits.

use core::net::IpAddr;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::ControlMessage;

use super::message::{Body, Message};
use super::repeat::Repeat;

/// Parameters of handoffs between supervisor hosts, or base stations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandoffConfig {
    /// The other supervisor hosts or base stations. Messages of any other host are ignored.
    pub peers: Vec<IpAddr>,
    /// How long a message waits for its answer before it is repeated; doubled each time.
    pub retry: Duration,
    /// The most transmissions of a message.
    pub tries: u32,
    /// How long a connection that was handed on is remembered: its stragglers are dropped, and its record is kept
    /// unless its arrival was confirmed.
    pub keep: Duration,
}

impl HandoffConfig {
    /// With these peers; repeated after 200 ms, 400 ms and so on, seven times in all (12.6 s to the last), and
    /// remembered for 2 minutes (the maximum segment lifetime of RFC 9293 section 3.4.2).
    pub fn among(peers: Vec<IpAddr>) -> Self {
        Self { peers, retry: Duration::from_millis(200), tries: 7, keep: Duration::from_secs(120) }
    }

    fn repeat(&self, now: Instant) -> Repeat {
        Repeat::begin(now, self.retry, self.tries)
    }
}

/// Where a mobile host's connections are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whereabouts {
    /// Unknown: none of its packets has arrived here.
    Unknown,
    /// The peers were asked, and have not all answered.
    Asking,
    /// The peers' records have arrived.
    Settled,
    /// A peer requested them this long ago.
    Elsewhere {
        /// The elapsed time.
        since: Duration,
    },
}

/// An event for the owner of an [`RecordRequests`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A peer requests records: call [`RecordRequests::give`].
    Wanted { peer: IpAddr, mobile: IpAddr, id: u64 },
    /// A record has arrived.
    Given { record: Bytes },
    /// No more will arrive. If not every peer has answered, one of them may have the records.
    Concluded { mobile: IpAddr, is_complete: bool },
}

/// The protocol between supervisor hosts. Its owner calls [`Self::handle_message`], [`Self::ask`] and [`Self::handle_timeout`], then
/// [`Self::poll_event`] and [`Self::poll_message`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub(crate) struct RecordRequests {
    config: HandoffConfig,
    /// Makes simultaneous requests of different supervisor hosts distinct.
    salt: u16,
    last_id: u64,
    hosts: BTreeMap<IpAddr, Host>,
    /// Mobile hosts with pending requests to the peers.
    asking: BTreeSet<IpAddr>,
    /// The last answered request of each peer about each mobile host.
    answered: BTreeMap<(IpAddr, IpAddr), u64>,
    leaving: BTreeMap<IpAddr, Leaving>,
    events: VecDeque<Event>,
    messages: VecDeque<ControlMessage>,
}

/// The state of one mobile host.
#[derive(Clone, Debug)]
struct Host {
    /// The last request.
    id: u64,
    /// The indices of the records received in answer, of each peer.
    got: BTreeMap<IpAddr, BTreeSet<u16>>,
    state: State,
    /// When this was last used.
    used_at: Instant,
}

impl Host {
    /// Whether this record of a peer was received.
    fn has(&self, peer: IpAddr, index: u16) -> bool {
        self.got.get(&peer).is_some_and(|got| got.contains(&index))
    }
}

#[derive(Clone, Debug)]
enum State {
    Asking { unanswered: BTreeSet<IpAddr>, repeat: Repeat },
    Settled,
    Elsewhere { since: Instant },
}

/// Records that a peer has not confirmed.
#[derive(Clone, Debug)]
struct Leaving {
    to: IpAddr,
    id: u64,
    count: u16,
    records: BTreeMap<u16, Bytes>,
    /// The end of the records that were sent.
    sent_until: u16,
    repeat: Repeat,
    until: Instant,
}

/// The most records of one answer in flight, so that an answer of any length fits the queues on its way. The others
/// follow as these are confirmed.
const WINDOW: u16 = 64;

impl Leaving {
    /// The end of the records that may be in flight.
    fn window_end(&self) -> u16 {
        let first = self.records.first_key_value();
        first.map_or(self.count, |(&first, _)| first.saturating_add(WINDOW).min(self.count))
    }

    /// The messages with the unconfirmed records in `range`.
    fn messages(&self, mobile: IpAddr, range: Range<u16>) -> Vec<ControlMessage> {
        let records = self.records.range(range);
        let messages = records.map(|(&index, record)| {
            let body = Body::Give { index, count: self.count, record: record.clone() };
            ControlMessage { peer: self.to, payload: Message { id: self.id, mobile, body }.emit() }
        });
        messages.collect()
    }
}

/// The salt of a node with this secret.
pub(crate) const fn salt_of(secret: [u8; 16]) -> u16 {
    u16::from_be_bytes([secret[0], secret[15]])
}

/// The most mobile hosts without anything in flight that are remembered. The one unused for longest is evicted first.
const MOST_HOSTS: usize = 10_000;

impl RecordRequests {
    pub(crate) fn new(config: HandoffConfig, salt: u16) -> Self {
        Self {
            config,
            salt,
            last_id: 0,
            hosts: BTreeMap::new(),
            asking: BTreeSet::new(),
            answered: BTreeMap::new(),
            leaving: BTreeMap::new(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// How long a connection that was handed on is remembered.
    pub(crate) fn keep(&self) -> Duration {
        self.config.keep
    }

    pub(crate) fn whereabouts(&self, now: Instant, mobile: IpAddr) -> Whereabouts {
        match self.hosts.get(&mobile).map(|host| &host.state) {
            None => Whereabouts::Unknown,
            Some(State::Asking { .. }) => Whereabouts::Asking,
            Some(State::Settled) => Whereabouts::Settled,
            Some(State::Elsewhere { since }) => Whereabouts::Elsewhere { since: now.saturating_since(*since) },
        }
    }

    /// Requests the connections of a mobile host from all peers.
    pub(crate) fn ask(&mut self, now: Instant, mobile: IpAddr) {
        if matches!(self.whereabouts(now, mobile), Whereabouts::Asking) {
            return;
        }
        // Microseconds, so that numbers keep growing after a restart of this node.
        let id = ((now.as_nanos() / 1_000) << 16 | u64::from(self.salt)).max(self.last_id.saturating_add(1));
        self.last_id = id;
        let unanswered: BTreeSet<IpAddr> = self.config.peers.iter().copied().collect();
        for &peer in &unanswered {
            self.say(peer, Message { id, mobile, body: Body::Ask });
        }
        let repeat = self.config.repeat(now);
        let state = State::Asking { unanswered, repeat };
        self.hosts.insert(mobile, Host { id, got: BTreeMap::new(), state, used_at: now });
        self.asking.insert(mobile);
        self.conclude_if_answered(mobile);
        self.forget_the_oldest();
    }

    /// Hands these records to the peer that requested them. They must not be used here from now on.
    pub(crate) fn give(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, records: Vec<Bytes>) {
        self.answered.insert((peer, mobile), id);
        let is_asking = self.asking.contains(&mobile);
        if is_asking && records.is_empty() && self.hosts.get(&mobile).is_some_and(|host| host.id > id) {
            // The peer's request is older: the mobile host has come here since.
            return self.say(peer, Message { id, mobile, body: Body::None });
        }
        let before = self.hosts.get(&mobile);
        let (own_id, got) = before.map_or((0, BTreeMap::new()), |host| (host.id, host.got.clone()));
        let state = State::Elsewhere { since: now };
        self.hosts.insert(mobile, Host { id: own_id, got, state, used_at: now });
        self.asking.remove(&mobile);
        self.forget_the_oldest();
        if records.is_empty() {
            return self.say(peer, Message { id, mobile, body: Body::None });
        }
        let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
        let records: BTreeMap<u16, Bytes> = (0..count).zip(records).collect();
        let repeat = self.config.repeat(now);
        let until = now + self.config.keep;
        let mut leaving = Leaving { to: peer, id, count, records, sent_until: 0, repeat, until };
        leaving.sent_until = leaving.window_end();
        self.messages.extend(leaving.messages(mobile, 0..leaving.sent_until));
        self.leaving.insert(mobile, leaving);
    }

    /// Takes back the unconfirmed records of a mobile host.
    pub(crate) fn take_back(&mut self, mobile: IpAddr) -> Vec<Bytes> {
        self.leaving.remove(&mobile).map_or(Vec::new(), |leaving| leaving.records.into_values().collect())
    }

    /// Handles a message of a peer. Returns whether it is valid, and from one of the peers.
    pub(crate) fn handle_message(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let peer = message.peer;
        let Ok(message) = Message::parse(&message.payload) else { return false };
        if !self.config.peers.contains(&peer) {
            return false;
        }
        let Message { id, mobile, body } = message;
        match body {
            Body::Ask => self.handle_question(peer, mobile, id),
            Body::None | Body::Elsewhere { .. } => self.note_answer(now, peer, mobile, id, None),
            Body::Give { index, count, record } => {
                let is_asked = self.hosts.get(&mobile).is_some_and(|host| host.id == id);
                if is_asked {
                    self.note_answer(now, peer, mobile, id, Some((index, count, record)));
                    let is_taken = self.hosts.get(&mobile).is_some_and(|host| host.has(peer, index));
                    if is_taken {
                        self.say(peer, Message { id, mobile, body: Body::Taken { index } });
                    }
                }
            }
            Body::Taken { index } => self.handle_taken(now, peer, mobile, id, index),
        }
        true
    }

    fn handle_question(&mut self, peer: IpAddr, mobile: IpAddr, id: u64) {
        // Later requests from here get higher numbers, independent of clocks.
        self.last_id = self.last_id.max(id);
        if let Some(leaving) = self.leaving.get(&mobile).filter(|leaving| (leaving.to, leaving.id) == (peer, id)) {
            return self.messages.extend(leaving.messages(mobile, 0..leaving.window_end()));
        }
        match self.answered.get(&(peer, mobile)) {
            Some(&last) if id < last => {}
            Some(&last) if id == last => self.say(peer, Message { id, mobile, body: Body::None }),
            // The request is late: all peers have answered a request from here since.
            _ if self.is_settled_since(mobile, id) => self.say(peer, Message { id, mobile, body: Body::None }),
            _ => self.events.push_back(Event::Wanted { peer, mobile, id }),
        }
    }

    /// Whether the mobile host has come here after the request `id`.
    fn is_settled_since(&self, mobile: IpAddr, id: u64) -> bool {
        self.hosts.get(&mobile).is_some_and(|host| host.id > id && matches!(host.state, State::Settled))
    }

    /// Handles the confirmation of a record: the next ones follow.
    fn handle_taken(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, index: u16) {
        let leaving = self.leaving.get_mut(&mobile).filter(|leaving| (leaving.to, leaving.id) == (peer, id));
        let Some(leaving) = leaving else { return };
        leaving.records.remove(&index);
        let next = leaving.sent_until..leaving.window_end();
        if leaving.records.is_empty() {
            self.leaving.remove(&mobile);
        } else if !next.is_empty() {
            leaving.sent_until = next.end;
            leaving.repeat = self.config.repeat(now);
            self.messages.extend(leaving.messages(mobile, next));
        }
    }

    /// Whether a request has to wait for the answer to this host's own, older one: then the mobile host has moved on,
    /// and its records have to follow.
    pub(crate) fn has_to_wait(&self, mobile: IpAddr, id: u64) -> bool {
        self.asking.contains(&mobile) && self.hosts.get(&mobile).is_some_and(|host| host.id < id)
    }

    /// Whether the peers were asked later than by the request `id`, and have not all answered.
    pub(crate) fn is_asking_since(&self, mobile: IpAddr, id: u64) -> bool {
        self.asking.contains(&mobile) && self.hosts.get(&mobile).is_some_and(|host| host.id > id)
    }

    /// Handles an answer: that the peer has nothing, or one of its records.
    fn note_answer(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, record: Option<(u16, u16, Bytes)>) {
        let Some(host) = self.hosts.get_mut(&mobile).filter(|host| host.id == id) else { return };
        let State::Asking { unanswered, .. } = &mut host.state else { return };
        host.used_at = now;
        match record {
            None => {
                unanswered.remove(&peer);
            }
            Some((index, count, record)) => {
                let got = host.got.entry(peer).or_default();
                if got.insert(index) {
                    self.events.push_back(Event::Given { record });
                }
                if got.len() == usize::from(count) {
                    unanswered.remove(&peer);
                }
            }
        }
        self.conclude_if_answered(mobile);
    }

    fn conclude_if_answered(&mut self, mobile: IpAddr) {
        let Some(host) = self.hosts.get_mut(&mobile) else { return };
        if let State::Asking { unanswered, .. } = &host.state
            && unanswered.is_empty()
        {
            host.state = State::Settled;
            self.asking.remove(&mobile);
            self.events.push_back(Event::Concluded { mobile, is_complete: true });
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut again = Vec::new();
        let mut given_up = Vec::new();
        for &mobile in &self.asking {
            if let Some(host) = self.hosts.get_mut(&mobile)
                && let State::Asking { unanswered, repeat } = &mut host.state
                && repeat.is_due(now)
            {
                if repeat.is_due_again(now) {
                    again.extend(unanswered.iter().map(|&peer| (peer, host.id, mobile)));
                } else {
                    given_up.push(mobile);
                }
            }
        }
        for (peer, id, mobile) in again {
            self.say(peer, Message { id, mobile, body: Body::Ask });
        }
        for mobile in given_up {
            // The next packet triggers another request.
            self.hosts.remove(&mobile);
            self.asking.remove(&mobile);
            self.events.push_back(Event::Concluded { mobile, is_complete: false });
        }
        let Self { leaving, messages, .. } = self;
        leaving.retain(|&mobile, leaving| {
            if leaving.repeat.is_due(now) && leaving.repeat.is_due_again(now) {
                messages.extend(leaving.messages(mobile, 0..leaving.window_end()));
            }
            leaving.until > now
        });
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn poll_message(&mut self) -> Option<ControlMessage> {
        self.messages.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let asking = self.asking.iter().filter_map(|mobile| match &self.hosts.get(mobile)?.state {
            State::Asking { repeat, .. } => repeat.at,
            _ => None,
        });
        let leaving =
            self.leaving.values().map(|leaving| leaving.repeat.at.map_or(leaving.until, |at| at.min(leaving.until)));
        asking.chain(leaving).min()
    }

    /// Bytes of records that are not confirmed.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.leaving.values().flat_map(|leaving| leaving.records.values()).map(Bytes::len).sum()
    }

    fn say(&mut self, peer: IpAddr, message: Message) {
        self.messages.push_back(ControlMessage { peer, payload: message.emit() });
    }

    /// Bounds the table. An evicted host is asked for again with its next packet.
    fn forget_the_oldest(&mut self) {
        if self.hosts.len() <= MOST_HOSTS {
            return;
        }
        let idle = self.hosts.iter().filter(|(mobile, _)| !self.asking.contains(mobile));
        if let Some((&oldest, _)) = idle.min_by_key(|(_, host)| host.used_at) {
            self.hosts.remove(&oldest);
            self.answered.retain(|(_, mobile), _| *mobile != oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 101));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 102));

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn requests() -> RecordRequests {
        RecordRequests::new(HandoffConfig::among(vec![PEER, OTHER]), 1)
    }

    fn hears(requests: &mut RecordRequests, millis: u64, peer: IpAddr, id: u64, body: Body) -> Vec<Event> {
        let payload = Message { id, mobile: MOBILE, body }.emit();
        assert!(requests.handle_message(at(millis), &ControlMessage { peer, payload }));
        core::iter::from_fn(|| requests.poll_event()).collect()
    }

    fn sent(requests: &mut RecordRequests) -> Vec<(IpAddr, Message)> {
        let messages = core::iter::from_fn(|| requests.poll_message());
        messages.map(|message| (message.peer, Message::parse(&message.payload).expect("a message"))).collect()
    }

    fn bodies(requests: &mut RecordRequests) -> Vec<Body> {
        sent(requests).into_iter().map(|(_, message)| message.body).collect()
    }

    fn records() -> Vec<Bytes> {
        vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")]
    }

    fn give(index: u16) -> Body {
        Body::Give { index, count: 2, record: records()[usize::from(index)].clone() }
    }

    /// A repeated request gets the same records; confirmed ones are not sent again; an older request is not answered.
    #[test]
    fn records_are_sent_until_they_are_taken() {
        let mut old = requests();
        let wanted = Event::Wanted { peer: PEER, mobile: MOBILE, id: 7 };
        assert_eq!(hears(&mut old, 0, PEER, 7, Body::Ask), [wanted]);
        old.give(at(0), PEER, MOBILE, 7, records());
        assert_eq!(bodies(&mut old), [give(0), give(1)]);
        assert_eq!(hears(&mut old, 10, PEER, 7, Body::Ask), []);
        assert_eq!(bodies(&mut old), [give(0), give(1)]);
        assert_eq!(hears(&mut old, 20, PEER, 7, Body::Taken { index: 0 }), []);
        assert_eq!(old.poll_timeout(), Some(at(200)));
        old.handle_timeout(at(200));
        assert_eq!(bodies(&mut old), [give(1)]);
        assert_eq!(hears(&mut old, 210, OTHER, 7, Body::Taken { index: 1 }), [], "it was for another peer");
        assert_eq!(old.take_back(MOBILE), [records()[1].clone()]);
        // Everything is confirmed, or taken back: the same request gets nothing, and an older one gets no answer.
        hears(&mut old, 220, PEER, 7, Body::Ask);
        assert_eq!(bodies(&mut old), [Body::None]);
        assert_eq!(hears(&mut old, 230, PEER, 6, Body::Ask), []);
        assert_eq!(bodies(&mut old), []);
        assert_eq!(old.whereabouts(at(230), MOBILE), Whereabouts::Elsewhere { since: Duration::from_millis(230) });
    }

    /// Of a long answer, a window is in flight: a confirmation of its first record lets the next one follow.
    #[test]
    fn a_long_answer_is_sent_in_a_window() {
        let mut old = requests();
        let count = 3 * WINDOW;
        let record = |index: u16| Bytes::copy_from_slice(&index.to_be_bytes());
        hears(&mut old, 0, PEER, 7, Body::Ask);
        old.give(at(0), PEER, MOBILE, 7, (0..count).map(record).collect());
        let index = |body: Body| match body {
            Body::Give { index, count: of, record: content } if of == count && content == record(index) => index,
            body => panic!("{body:?}"),
        };
        let indices = |old: &mut RecordRequests| bodies(old).into_iter().map(index).collect::<Vec<u16>>();
        assert_eq!(indices(&mut old), Vec::from_iter(0..WINDOW));
        assert_eq!(old.stored_bytes(), usize::from(count) * 2);
        // A gap at the beginning holds the window back, and only the gap is repeated.
        for taken in 1..WINDOW {
            hears(&mut old, 10, PEER, 7, Body::Taken { index: taken });
        }
        assert!(indices(&mut old).is_empty());
        old.handle_timeout(at(200));
        assert_eq!(indices(&mut old), [0]);
        hears(&mut old, 210, PEER, 7, Body::Taken { index: 0 });
        assert_eq!(indices(&mut old), Vec::from_iter(WINDOW..2 * WINDOW));
        assert_eq!(old.poll_timeout(), Some(at(410)), "the time begins again");
        for taken in WINDOW..count {
            hears(&mut old, 220, PEER, 7, Body::Taken { index: taken });
        }
        assert_eq!(indices(&mut old), Vec::from_iter(2 * WINDOW..count));
        assert_eq!((old.poll_timeout(), old.stored_bytes()), (None, 0));
    }

    /// A request that arrives after a later one from here was answered by all does not take anything away.
    #[test]
    fn a_late_request_takes_nothing_away() {
        let mut here = requests();
        here.ask(at(1), MOBILE);
        let own = sent(&mut here)[0].1.id;
        for peer in [PEER, OTHER] {
            hears(&mut here, 2, peer, own, Body::None);
        }
        assert_eq!(here.whereabouts(at(2), MOBILE), Whereabouts::Settled);
        assert_eq!(hears(&mut here, 3, PEER, own - 1, Body::Ask), []);
        assert_eq!(bodies(&mut here), [Body::None]);
        assert_eq!(hears(&mut here, 4, PEER, own + 1, Body::Ask).len(), 1);
    }

    /// Records arrive twice and out of order, and each counts once. The request ends when all have answered.
    #[test]
    fn a_question_is_answered_when_all_have_answered() {
        let mut new = requests();
        new.ask(at(1), MOBILE);
        let asked = sent(&mut new);
        assert_eq!(asked.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [PEER, OTHER]);
        let id = asked[0].1.id;
        assert_eq!(new.whereabouts(at(1), MOBILE), Whereabouts::Asking);
        assert_eq!(hears(&mut new, 10, PEER, id, give(1)), [Event::Given { record: records()[1].clone() }]);
        assert_eq!(hears(&mut new, 11, PEER, id, give(1)), [], "once");
        assert_eq!(bodies(&mut new), [Body::Taken { index: 1 }, Body::Taken { index: 1 }]);
        assert_eq!(hears(&mut new, 12, OTHER, id, Body::None), []);
        new.handle_timeout(at(201));
        assert_eq!(sent(&mut new).iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [PEER], "one of two is missing");
        assert_eq!(hears(&mut new, 210, PEER, id - 1, give(0)), [], "of an older question");
        let concluded = Event::Concluded { mobile: MOBILE, is_complete: true };
        assert_eq!(hears(&mut new, 220, PEER, id, give(0)), [Event::Given { record: records()[0].clone() }, concluded]);
        assert_eq!(new.poll_timeout(), None);
        // A lost confirmation is repeated.
        bodies(&mut new);
        assert_eq!(hears(&mut new, 500, PEER, id, give(0)), []);
        assert_eq!(bodies(&mut new), [Body::Taken { index: 0 }]);
    }

    /// Of two that ask about the same mobile host, the younger request waits for the answer to the older one.
    #[test]
    fn the_younger_question_waits_and_the_older_one_does_not() {
        let mut first = requests();
        first.ask(at(1), MOBILE);
        let own = sent(&mut first)[0].1.id;
        let younger = own + 1;
        assert_eq!(hears(&mut first, 5, PEER, younger, Body::Ask).len(), 1);
        assert!(first.has_to_wait(MOBILE, younger) && !first.has_to_wait(MOBILE, own - 1));
        // The older one gets its answer, and the own request continues.
        assert_eq!(hears(&mut first, 6, OTHER, own - 1, Body::Ask).len(), 1);
        first.give(at(6), OTHER, MOBILE, own - 1, Vec::new());
        assert_eq!(bodies(&mut first), [Body::None]);
        assert_eq!(first.whereabouts(at(6), MOBILE), Whereabouts::Asking);
        // The next own request is younger than all received ones, independent of the clock.
        assert_eq!(hears(&mut first, 7, PEER, u64::MAX - 5, Body::Ask).len(), 1);
        first.give(at(7), PEER, MOBILE, u64::MAX - 5, records());
        sent(&mut first);
        first.ask(at(8), MOBILE);
        assert_eq!(sent(&mut first)[0].1.id, u64::MAX - 4);
    }

    #[test]
    fn an_unanswered_request_is_given_up() {
        let mut new = requests();
        new.ask(at(0), MOBILE);
        let mut asked = sent(&mut new).len();
        let mut now = Instant::ZERO;
        while let Some(due) = new.poll_timeout() {
            now = due;
            new.handle_timeout(now);
            asked += sent(&mut new).len();
        }
        assert_eq!((asked, now), (2 * 7, at(25_400)));
        assert_eq!(new.poll_event(), Some(Event::Concluded { mobile: MOBILE, is_complete: false }));
        assert_eq!(new.whereabouts(now, MOBILE), Whereabouts::Unknown);
        let alone = RecordRequests::new(HandoffConfig::among(Vec::new()), 1);
        let mut alone = RecordRequests { last_id: u64::MAX, ..alone };
        alone.ask(at(0), OWN);
        assert_eq!(
            alone.poll_event(),
            Some(Event::Concluded { mobile: OWN, is_complete: true }),
            "there are no peers to ask"
        );
    }
}
