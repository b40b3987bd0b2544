//! Who asks whom for the connections of which mobile host, when again, and until when.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::ControlMessage;

use super::message::{Body, Message};

/// How a supervisor host hands connections on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandoffConfig {
    /// The other supervisor hosts. Messages of anybody else are not taken.
    pub peers: Vec<IpAddr>,
    /// How long a message waits for its answer before it is repeated; doubled each time.
    pub retry: Duration,
    /// How often a message is sent at most.
    pub tries: u32,
    /// How long a connection that was handed on is remembered: its stragglers are dropped, and its record is kept if nobody has said that
    /// it has arrived.
    pub keep: Duration,
}

impl HandoffConfig {
    /// Among these, repeated after 200 ms, 400 ms and so on, seven times in all (12.6 s to the last), and remembered for 2 minutes (the
    /// maximum segment lifetime of RFC 9293 section 3.4.2).
    pub fn among(peers: Vec<IpAddr>) -> Self {
        Self { peers, retry: Duration::from_millis(200), tries: 7, keep: Duration::from_secs(120) }
    }
}

/// What is known of where a mobile host's connections are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Nothing: its packets have not come here.
    Unknown,
    /// The peers were asked, and have not all answered.
    Asking,
    /// What the peers had is here.
    Settled,
    /// A peer has asked for them so long ago.
    Elsewhere {
        /// How long.
        since: Duration,
    },
}

/// What the owner of an [`Exchange`] has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A peer asks: [`Exchange::give`] is due.
    Wanted { peer: IpAddr, mobile: IpAddr, id: u64 },
    /// A record has come.
    Given { record: Bytes },
    /// No more will come. If not every peer has answered, one of them may have what was asked for.
    Concluded { mobile: IpAddr, is_complete: bool },
}

/// The protocol between supervisor hosts. Its owner calls [`Self::handle_message`], [`Self::ask`] and [`Self::handle_timeout`], then
/// [`Self::poll_event`] and [`Self::poll_message`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Exchange {
    config: HandoffConfig,
    /// Makes questions of different supervisor hosts at the same time different.
    salt: u16,
    last_id: u64,
    hosts: BTreeMap<IpAddr, Host>,
    /// Those of them about which the peers are asked.
    asking: BTreeSet<IpAddr>,
    /// The last question of each peer about each mobile host that was answered.
    answered: BTreeMap<(IpAddr, IpAddr), u64>,
    leaving: BTreeMap<IpAddr, Leaving>,
    events: VecDeque<Event>,
    messages: VecDeque<ControlMessage>,
}

/// What is known of one mobile host.
#[derive(Clone, Debug)]
struct Host {
    /// The last question.
    id: u64,
    /// The records that answered it: whose, and which.
    got: BTreeSet<(IpAddr, u16)>,
    state: State,
    /// When this was last of use.
    used_at: Instant,
}

#[derive(Clone, Debug)]
enum State {
    Asking { unanswered: BTreeSet<IpAddr>, repeat: Repeat },
    Settled,
    Elsewhere { since: Instant },
}

/// Records that a peer has not said to have.
#[derive(Clone, Debug)]
struct Leaving {
    to: IpAddr,
    id: u64,
    count: u16,
    records: BTreeMap<u16, Bytes>,
    repeat: Repeat,
    until: Instant,
}

/// When a message is sent again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    at: Option<Instant>,
    pause: Duration,
    left: u32,
}

impl Repeat {
    fn begin(now: Instant, config: &HandoffConfig) -> Self {
        let mut repeat = Self { at: None, pause: config.retry, left: config.tries.saturating_sub(1) };
        repeat.at = Some(now + repeat.pause);
        repeat
    }

    /// The time has come. Returns whether the message is sent once more; if not, nobody waits for an answer any more.
    fn is_due_again(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            self.at = None;
            return false;
        }
        (self.left, self.pause) = (self.left - 1, self.pause * 2);
        self.at = Some(now + self.pause);
        true
    }

    fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}

/// So many mobile hosts are remembered of which nothing is under way. The one that was not heard of for longest is forgotten first.
const MOST_HOSTS: usize = 10_000;

impl Exchange {
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

    pub(crate) fn standing(&self, now: Instant, mobile: IpAddr) -> Standing {
        match self.hosts.get(&mobile).map(|host| &host.state) {
            None => Standing::Unknown,
            Some(State::Asking { .. }) => Standing::Asking,
            Some(State::Settled) => Standing::Settled,
            Some(State::Elsewhere { since }) => Standing::Elsewhere { since: now.saturating_since(*since) },
        }
    }

    /// Asks all peers for the connections of a mobile host.
    pub(crate) fn ask(&mut self, now: Instant, mobile: IpAddr) {
        if matches!(self.standing(now, mobile), Standing::Asking) {
            return;
        }
        // Microseconds, so that numbers go on growing if this node starts anew.
        let id = ((now.as_nanos() / 1_000) << 16 | u64::from(self.salt)).max(self.last_id.saturating_add(1));
        self.last_id = id;
        let unanswered: BTreeSet<IpAddr> = self.config.peers.iter().copied().collect();
        for &peer in &unanswered {
            self.say(peer, Message { id, mobile, body: Body::Ask });
        }
        let repeat = Repeat::begin(now, &self.config);
        let state = State::Asking { unanswered, repeat };
        self.hosts.insert(mobile, Host { id, got: BTreeSet::new(), state, used_at: now });
        self.asking.insert(mobile);
        self.conclude_if_answered(mobile);
        self.forget_the_oldest();
    }

    /// Hands these to the peer that has asked. Nothing of them is to be used here from now on.
    pub(crate) fn give(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, records: Vec<Bytes>) {
        self.answered.insert((peer, mobile), id);
        let is_asking = self.asking.contains(&mobile);
        if is_asking && records.is_empty() && self.hosts.get(&mobile).is_some_and(|host| host.id > id) {
            // The peer's question is the older one: the mobile host has come here since.
            return self.say(peer, Message { id, mobile, body: Body::None });
        }
        let before = self.hosts.get(&mobile);
        let (own_id, got) = before.map_or((0, BTreeSet::new()), |host| (host.id, host.got.clone()));
        let state = State::Elsewhere { since: now };
        self.hosts.insert(mobile, Host { id: own_id, got, state, used_at: now });
        self.asking.remove(&mobile);
        self.forget_the_oldest();
        if records.is_empty() {
            return self.say(peer, Message { id, mobile, body: Body::None });
        }
        let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
        let records: BTreeMap<u16, Bytes> = (0..count).zip(records).collect();
        let repeat = Repeat::begin(now, &self.config);
        let leaving = Leaving { to: peer, id, count, records, repeat, until: now + self.config.keep };
        self.send_records(mobile, &leaving);
        self.leaving.insert(mobile, leaving);
    }

    /// Takes back the records of a mobile host that no peer has said to have.
    pub(crate) fn take_back(&mut self, mobile: IpAddr) -> Vec<Bytes> {
        self.leaving.remove(&mobile).map_or(Vec::new(), |leaving| leaving.records.into_values().collect())
    }

    /// A message of a peer. Returns whether it can be read, and is from one of the peers.
    pub(crate) fn handle_message(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let peer = message.peer;
        let Ok(message) = Message::parse(&message.payload) else { return false };
        if !self.config.peers.contains(&peer) {
            return false;
        }
        let Message { id, mobile, body } = message;
        match body {
            Body::Ask => self.handle_question(peer, mobile, id),
            Body::None => self.note_answer(now, peer, mobile, id, None),
            Body::Give { index, count, record } => {
                let is_asked = self.hosts.get(&mobile).is_some_and(|host| host.id == id);
                if is_asked {
                    self.note_answer(now, peer, mobile, id, Some((index, count, record)));
                    let is_taken = self.hosts.get(&mobile).is_some_and(|host| host.got.contains(&(peer, index)));
                    if is_taken {
                        self.say(peer, Message { id, mobile, body: Body::Taken { index } });
                    }
                }
            }
            Body::Taken { index } => {
                if let Some(leaving) =
                    self.leaving.get_mut(&mobile).filter(|leaving| (leaving.to, leaving.id) == (peer, id))
                {
                    leaving.records.remove(&index);
                    if leaving.records.is_empty() {
                        self.leaving.remove(&mobile);
                    }
                }
            }
        }
        true
    }

    fn handle_question(&mut self, peer: IpAddr, mobile: IpAddr, id: u64) {
        // What is asked here from now on is asked later, whatever the clocks say.
        self.last_id = self.last_id.max(id);
        if let Some(leaving) = self.leaving.get(&mobile).filter(|leaving| (leaving.to, leaving.id) == (peer, id)) {
            let leaving = leaving.clone();
            return self.send_records(mobile, &leaving);
        }
        match self.answered.get(&(peer, mobile)) {
            Some(&last) if id < last => {}
            Some(&last) if id == last => self.say(peer, Message { id, mobile, body: Body::None }),
            _ => self.events.push_back(Event::Wanted { peer, mobile, id }),
        }
    }

    /// Whether a question has to wait until the own one is answered, which is older: then the mobile host has gone on, and what comes here
    /// has to go there.
    pub(crate) fn has_to_wait(&self, mobile: IpAddr, id: u64) -> bool {
        self.asking.contains(&mobile) && self.hosts.get(&mobile).is_some_and(|host| host.id < id)
    }

    /// A peer has answered: that it has nothing, or with one of its records.
    fn note_answer(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, record: Option<(u16, u16, Bytes)>) {
        let Some(host) = self.hosts.get_mut(&mobile).filter(|host| host.id == id) else { return };
        let State::Asking { unanswered, .. } = &mut host.state else { return };
        host.used_at = now;
        match record {
            None => {
                unanswered.remove(&peer);
            }
            Some((index, count, record)) => {
                if host.got.insert((peer, index)) {
                    self.events.push_back(Event::Given { record });
                }
                if host.got.range((peer, 0)..=(peer, u16::MAX)).count() == usize::from(count) {
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
            // The next packet asks anew.
            self.hosts.remove(&mobile);
            self.asking.remove(&mobile);
            self.events.push_back(Event::Concluded { mobile, is_complete: false });
        }
        let mut due = Vec::new();
        self.leaving.retain(|&mobile, leaving| {
            if leaving.repeat.is_due(now) && leaving.repeat.is_due_again(now) {
                due.push((mobile, leaving.clone()));
            }
            leaving.until > now
        });
        for (mobile, leaving) in due {
            self.send_records(mobile, &leaving);
        }
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

    fn send_records(&mut self, mobile: IpAddr, leaving: &Leaving) {
        for (&index, record) in &leaving.records {
            let body = Body::Give { index, count: leaving.count, record: record.clone() };
            self.say(leaving.to, Message { id: leaving.id, mobile, body });
        }
    }

    fn say(&mut self, peer: IpAddr, message: Message) {
        self.messages.push_back(ControlMessage { peer, payload: message.emit() });
    }

    /// Bounds what is remembered. Whoever is forgotten is asked for again when a packet of his comes.
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
