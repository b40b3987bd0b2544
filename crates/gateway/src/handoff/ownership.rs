//! Which node owns a mobile host: requests and answers with their retransmissions, by which at most one node at a time continues a connection.
//! The records of its connections may hold data that exists nowhere else (I-TCP).
//!
//! # Requests
//!
//! Requests about a mobile host are numbered, and the greatest number wins, like a ballot of Paxos with every node in the quorum. A node that
//! makes or answers a request *promises* to take no part in a request with a smaller number: it refuses such a request (*elsewhere*), and
//! takes no records of its own request if it has promised a greater one since. A node *owns* a mobile host when all its peers have answered its
//! request, and until it answers another one. It follows that
//!
//! - at most one node owns a mobile host;
//! - when all peers have answered, each of them has sent all records that it had, and none of them can receive any from an older request. So
//!   the newest record is here, or was lost.
//!
//! # Records
//!
//! The owner of a connection stops it, sends its record to the node whose request it answers, and keeps the record until all of the answer is
//! confirmed. If another request comes meanwhile, it sends the record again, marked as *doubtful*: the first node may have continued from it.
//! A node continues from a record that is not doubtful at once, as the sender was the connection's owner; and from a doubtful one when it
//! owns the mobile host, if no peer has sent a newer one.
//!
//! # How a request ends
//!
//! | [`Conclusion`] | why |
//! | --- | --- |
//! | `Complete` | all peers have answered: the mobile host is owned |
//! | `Incomplete` | a peer has not answered any repetition: it may have records, and nothing is known |
//! | `Outdated` | a peer has refused: the mobile host has moved on |
//!
//! A request that arrives with a greater number ends an own one, too ([`OwnershipEvent::Wanted`]).
//!
//! An incomplete request is repeated with its own number ([`Ownership::ask_again`]): nothing new is known, and a greater number would outbid a node
//! where the mobile host was noticed meanwhile. What has arrived of the answers is kept for that, as its sender does not send it again.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::ControlMessage;

use super::arriving::{Arrived, Arriving};
use super::config::HandoffConfig;
use super::message::{Body, Message};
use super::record_kinds::{Record, RecordKind};
use super::repeat::Repeat;
use super::sending::Sending;
use super::split_record::Piece;

/// Where a mobile host's connections are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whereabouts {
    /// Unknown: no request has succeeded.
    Unknown,
    /// The peers were asked, and have not all answered.
    Asking,
    /// This node owns the mobile host.
    Settled,
    /// A peer requested them this long ago.
    Elsewhere {
        /// The elapsed time.
        since: Duration,
    },
}

/// An event for the owner of an [`Ownership`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OwnershipEvent {
    /// A peer requests all records of a mobile host: call [`Ownership::give`]. The node does not own it any more.
    Wanted { peer: IpAddr, mobile: IpAddr, id: u64 },
    /// A record has arrived, also as bytes.
    Given { record: Record, bytes: Bytes, is_doubtful: bool },
    /// All of the last answer about this mobile host has arrived.
    Delivered { mobile: IpAddr },
    /// A request has ended.
    Concluded { mobile: IpAddr, conclusion: Conclusion },
}

/// How a request ended. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conclusion {
    Complete,
    Incomplete,
    Outdated {
        /// When the later request was made, as far as its number tells.
        by: Instant,
    },
}

/// The requests and answers of one node. Its user calls [`Self::handle_message`], [`Self::ask`] and [`Self::handle_timeout`], then
/// [`Self::poll_event`] and [`Self::poll_message`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Ownership {
    config: HandoffConfig,
    kind: RecordKind,
    /// Makes simultaneous requests of different nodes distinct.
    salt: u16,
    last_id: u64,
    hosts: BTreeMap<IpAddr, Host>,
    /// Mobile hosts with a request or an answer on its way, or an incomplete request.
    active: BTreeSet<IpAddr>,
    /// The greatest promise about a mobile host that was forgotten.
    forgotten: u64,
    events: VecDeque<OwnershipEvent>,
    messages: VecDeque<ControlMessage>,
}

/// The state of one mobile host.
#[derive(Debug)]
struct Host {
    /// The greatest request that was made or answered, and whether it is an own one.
    promised: u64,
    is_own: bool,
    state: State,
    /// The answer to the promised request.
    answer: Option<Answer>,
    /// When this was last used.
    used_at: Instant,
}

#[derive(Debug)]
enum State {
    /// No request has succeeded.
    Unknown,
    Asking(Request),
    /// The request was incomplete, and may be repeated.
    Incomplete(Request),
    /// The answers are kept for confirmations to be repeated.
    Owned(BTreeMap<IpAddr, Arriving>),
    Elsewhere {
        since: Instant,
    },
}

/// An own request.
#[derive(Debug)]
struct Request {
    unanswered: BTreeSet<IpAddr>,
    answers: BTreeMap<IpAddr, Arriving>,
    /// When it was made, or the latest piece of an answer has arrived.
    progressed_at: Instant,
    repeat: Repeat,
}

#[derive(Debug)]
struct Answer {
    to: IpAddr,
    count: u16,
    sending: Sending,
}

impl Answer {
    /// The messages with the pieces that are due.
    fn messages(&mut self, now: Instant, id: u64, mobile: IpAddr) -> Vec<ControlMessage> {
        let Self { to, count, sending } = self;
        let messages = sending.take_due(now).into_iter().map(|(index, piece)| {
            let body = Body::Give { index, count: *count, record: piece.emit() };
            ControlMessage { peer: *to, payload: Message { id, mobile, body }.emit() }
        });
        messages.collect()
    }
}

/// When a request was made, if the clocks of the nodes agree and its number is not above its time because of a greater one before it.
pub(crate) const fn time_of(id: u64) -> Instant {
    Instant::from_micros(id >> 16)
}

/// The most mobile hosts with nothing on its way that are remembered. The one unused for longest is evicted first.
const MOST_HOSTS: usize = 10_000;

impl Ownership {
    /// A node that takes records of this kind.
    pub(crate) fn new(config: HandoffConfig, kind: RecordKind, salt: u16) -> Self {
        Self {
            config,
            kind,
            salt,
            last_id: 0,
            hosts: BTreeMap::new(),
            active: BTreeSet::new(),
            forgotten: 0,
            events: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// How long records that were sent are kept.
    pub(crate) fn keep(&self) -> Duration {
        self.config.keep
    }

    pub(crate) fn whereabouts(&self, now: Instant, mobile: IpAddr) -> Whereabouts {
        match self.hosts.get(&mobile).map(|host| &host.state) {
            None | Some(State::Unknown | State::Incomplete(_)) => Whereabouts::Unknown,
            Some(State::Asking(_)) => Whereabouts::Asking,
            Some(State::Owned(_)) => Whereabouts::Settled,
            Some(State::Elsewhere { since }) => Whereabouts::Elsewhere { since: now.saturating_since(*since) },
        }
    }

    /// The number of the request by which this node owns a mobile host; 0 if it does not.
    pub(crate) fn owned_by(&self, mobile: IpAddr) -> u64 {
        self.hosts.get(&mobile).filter(|host| matches!(host.state, State::Owned(_))).map_or(0, |host| host.promised)
    }

    /// When the own request about a mobile host was made, or the latest piece of an answer has arrived; `None` without a request.
    pub(crate) fn progressed_at(&self, mobile: IpAddr) -> Option<Instant> {
        match &self.hosts.get(&mobile)?.state {
            State::Asking(request) => Some(request.progressed_at),
            _ => None,
        }
    }

    /// A number that is not below that of any request so far, as far as this node knows.
    pub(crate) fn number_at(&self, now: Instant) -> u64 {
        self.number_of(now).max(self.last_id)
    }

    /// Whether records of a mobile host are on their way to a peer.
    pub(crate) fn is_giving(&self, mobile: IpAddr) -> bool {
        let answer = self.hosts.get(&mobile).and_then(|host| host.answer.as_ref());
        answer.is_some_and(|answer| !answer.sending.is_given_up())
    }

    /// Requests the records of a mobile host from all peers. It is owned only when all of them have answered, also if it was owned before.
    pub(crate) fn ask(&mut self, now: Instant, mobile: IpAddr) {
        let id = self.number_of(now).max(self.last_id.saturating_add(1));
        self.ask_with(now, mobile, id);
    }

    /// Requests the records again of a mobile host that was last noticed here at `since`: with the number of the request that was incomplete, or
    /// with that of `since` if this node has promised none that is greater.
    pub(crate) fn ask_again(&mut self, now: Instant, mobile: IpAddr, since: Instant) {
        let number = self.number_of(since);
        let Some(host) = self.hosts.get_mut(&mobile) else { return self.ask(now, mobile) };
        match core::mem::replace(&mut host.state, State::Unknown) {
            State::Incomplete(mut request) => {
                request.progressed_at = now;
                request.repeat = Repeat::begin(now, self.config.retry, self.config.tries);
                let ask = Message { id: host.promised, mobile, body: Body::Ask }.emit();
                let messages = request.unanswered.iter().map(|&peer| ControlMessage { peer, payload: ask.clone() });
                self.messages.extend(messages);
                (host.state, host.used_at) = (State::Asking(request), now);
                self.active.insert(mobile);
            }
            _ if number > host.promised => self.ask_with(now, mobile, number),
            _ => self.ask(now, mobile),
        }
    }

    /// An incomplete request is not repeated.
    pub(crate) fn give_up(&mut self, mobile: IpAddr) {
        if let Some(host) = self.hosts.get_mut(&mobile).filter(|host| matches!(host.state, State::Incomplete(_))) {
            host.state = State::Unknown;
            self.active.remove(&mobile);
        }
    }

    /// The number of a request that is made at this time. Microseconds, so that numbers keep growing after a restart of this node.
    fn number_of(&self, at: Instant) -> u64 {
        (at.as_nanos() / 1_000) << 16 | u64::from(self.salt)
    }

    fn ask_with(&mut self, now: Instant, mobile: IpAddr, id: u64) {
        self.last_id = self.last_id.max(id);
        let unanswered: BTreeSet<IpAddr> = self.config.peers.iter().copied().collect();
        for &peer in &unanswered {
            self.say(peer, Message { id, mobile, body: Body::Ask });
        }
        let repeat = Repeat::begin(now, self.config.retry, self.config.tries);
        let state = State::Asking(Request { unanswered, answers: BTreeMap::new(), progressed_at: now, repeat });
        self.hosts.insert(mobile, Host { promised: id, is_own: true, state, answer: None, used_at: now });
        self.active.insert(mobile);
        self.conclude_if_answered(mobile);
        self.forget_the_oldest();
    }

    /// Answers the request of [`OwnershipEvent::Wanted`]. The records must not be used here from now on.
    pub(crate) fn give(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, pieces: Vec<Piece>) {
        let config = &self.config;
        let Some(host) = self.hosts.get_mut(&mobile).filter(|host| host.promised == id && !host.is_own) else { return };
        if pieces.is_empty() {
            return self.say(peer, Message { id, mobile, body: Body::None });
        }
        let count = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
        let mut answer = Answer { to: peer, count, sending: Sending::new(now, pieces, config.retry, config.tries) };
        self.messages.extend(answer.messages(now, id, mobile));
        host.answer = Some(answer);
        self.active.insert(mobile);
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
            Body::Ask => self.handle_question(now, peer, mobile, id),
            Body::None => self.note_answered(now, peer, mobile, id),
            Body::Elsewhere { newest } => {
                self.last_id = self.last_id.max(newest);
                if self.request_mut(mobile, id).is_some() {
                    self.conclude(now, mobile, Conclusion::Outdated { by: time_of(newest) });
                }
            }
            Body::Give { index, count, record } => self.handle_piece(now, peer, mobile, id, (index, count), &record),
            Body::Taken { index } => self.handle_taken(now, peer, mobile, id, index),
        }
        true
    }

    fn handle_question(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        // Later requests from here get higher numbers, independent of clocks.
        self.last_id = self.last_id.max(id);
        let forgotten = self.forgotten;
        let unknown = || Host { promised: forgotten, is_own: true, state: State::Unknown, answer: None, used_at: now };
        let host = self.hosts.entry(mobile).or_insert_with(unknown);
        host.used_at = now;
        if id > host.promised {
            (host.promised, host.is_own, host.answer) = (id, false, None);
            host.state = State::Elsewhere { since: now };
            self.active.remove(&mobile);
            self.events.push_back(OwnershipEvent::Wanted { peer, mobile, id });
            return self.forget_the_oldest();
        }
        if id < host.promised || host.is_own {
            let newest = host.promised;
            return self.say(peer, Message { id, mobile, body: Body::Elsewhere { newest } });
        }
        match host.answer.as_mut().filter(|answer| answer.to == peer) {
            Some(answer) => {
                answer.sending.handle_question(now);
                self.messages.extend(answer.messages(now, id, mobile));
                self.active.insert(mobile);
            }
            // There was nothing, or all of it has arrived.
            None => self.say(peer, Message { id, mobile, body: Body::None }),
        }
    }

    fn request_mut(&mut self, mobile: IpAddr, id: u64) -> Option<&mut Request> {
        let host = self.hosts.get_mut(&mobile).filter(|host| host.promised == id && host.is_own)?;
        match &mut host.state {
            State::Asking(request) => Some(request),
            _ => None,
        }
    }

    /// A peer has nothing, or has sent all.
    fn note_answered(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        let Some(request) = self.request_mut(mobile, id) else { return };
        // A peer that has begun to send has something.
        if !request.answers.contains_key(&peer) {
            request.unanswered.remove(&peer);
            self.touch(now, mobile);
            self.conclude_if_answered(mobile);
        }
    }

    fn handle_piece(
        &mut self,
        now: Instant,
        peer: IpAddr,
        mobile: IpAddr,
        id: u64,
        (index, count): (u16, u16),
        piece: &Bytes,
    ) {
        let begun = Repeat::begin(now, self.config.retry, self.config.tries);
        let Some(host) = self.hosts.get_mut(&mobile).filter(|host| host.promised == id && host.is_own) else { return };
        match &mut host.state {
            State::Asking(request) if request.unanswered.contains(&peer) => {
                let answer = request.answers.entry(peer).or_insert_with(|| Arriving::new(self.kind, count));
                if !answer.has(index, count) {
                    let Ok(arrived) = answer.take(index, count, piece) else { return };
                    // A long answer is on its way.
                    (request.progressed_at, request.repeat) = (now, begun);
                    let given = arrived.map(|Arrived { record, bytes, is_doubtful }| OwnershipEvent::Given {
                        record,
                        bytes,
                        is_doubtful,
                    });
                    self.events.extend(given);
                    if answer.is_complete() {
                        request.unanswered.remove(&peer);
                    }
                }
            }
            State::Asking(Request { answers, .. }) | State::Owned(answers)
                if answers.get(&peer).is_some_and(|answer| answer.has(index, count)) => {}
            _ => return,
        }
        self.say(peer, Message { id, mobile, body: Body::Taken { index } });
        self.touch(now, mobile);
        self.conclude_if_answered(mobile);
    }

    /// Handles the confirmation of a piece: the next ones follow.
    fn handle_taken(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64, index: u16) {
        let Some(host) = self.hosts.get_mut(&mobile).filter(|host| host.promised == id && !host.is_own) else { return };
        let Some(answer) = host.answer.as_mut().filter(|answer| answer.to == peer) else { return };
        answer.sending.handle_taken(now, index);
        host.used_at = now;
        if answer.sending.is_empty() {
            host.answer = None;
            self.active.remove(&mobile);
            self.events.push_back(OwnershipEvent::Delivered { mobile });
        } else {
            self.messages.extend(answer.messages(now, id, mobile));
            self.active.insert(mobile);
        }
    }

    fn touch(&mut self, now: Instant, mobile: IpAddr) {
        if let Some(host) = self.hosts.get_mut(&mobile) {
            host.used_at = now;
        }
    }

    fn conclude_if_answered(&mut self, mobile: IpAddr) {
        let Some(host) = self.hosts.get_mut(&mobile) else { return };
        if let State::Asking(request) = &mut host.state
            && request.unanswered.is_empty()
        {
            let answers = core::mem::take(&mut request.answers);
            host.state = State::Owned(answers);
            self.active.remove(&mobile);
            self.events.push_back(OwnershipEvent::Concluded { mobile, conclusion: Conclusion::Complete });
        }
    }

    /// Ends a request without success: its pieces that arrive from now on are not confirmed.
    fn conclude(&mut self, now: Instant, mobile: IpAddr, conclusion: Conclusion) {
        let Some(host) = self.hosts.get_mut(&mobile) else { return };
        host.state = match conclusion {
            Conclusion::Outdated { .. } => State::Elsewhere { since: now },
            Conclusion::Incomplete | Conclusion::Complete => {
                match core::mem::replace(&mut host.state, State::Unknown) {
                    State::Asking(request) => State::Incomplete(request),
                    other => other,
                }
            }
        };
        if !host.is_active() {
            self.active.remove(&mobile);
        }
        self.events.push_back(OwnershipEvent::Concluded { mobile, conclusion });
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut given_up = Vec::new();
        let Self { hosts, active, messages, .. } = self;
        for &mobile in active.iter() {
            let Some(Host { promised: id, state, answer, .. }) = hosts.get_mut(&mobile) else { continue };
            if let State::Asking(Request { unanswered, repeat, .. }) = state
                && repeat.is_due(now)
            {
                if repeat.is_due_again(now) {
                    let ask = Message { id: *id, mobile, body: Body::Ask }.emit();
                    messages.extend(unanswered.iter().map(|&peer| ControlMessage { peer, payload: ask.clone() }));
                } else {
                    given_up.push(mobile);
                }
            }
            if let Some(answer) = answer {
                answer.sending.handle_timeout(now);
                messages.extend(answer.messages(now, *id, mobile));
            }
        }
        for mobile in given_up {
            self.conclude(now, mobile, Conclusion::Incomplete);
        }
        let Self { hosts, active, .. } = self;
        active.retain(|mobile| hosts.get(mobile).is_some_and(Host::is_active));
    }

    pub(crate) fn poll_event(&mut self) -> Option<OwnershipEvent> {
        self.events.pop_front()
    }

    pub(crate) fn poll_message(&mut self) -> Option<ControlMessage> {
        self.messages.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.active.iter().filter_map(|mobile| self.hosts.get(mobile)?.deadline()).min()
    }

    /// Bytes of records that have arrived in part.
    pub(crate) fn stored_bytes(&self) -> usize {
        let requests = self.active.iter().filter_map(|mobile| match &self.hosts.get(mobile)?.state {
            State::Asking(request) | State::Incomplete(request) => Some(request),
            _ => None,
        });
        requests.flat_map(|request| request.answers.values()).map(Arriving::stored_bytes).sum()
    }

    fn say(&mut self, peer: IpAddr, message: Message) {
        self.messages.push_back(ControlMessage { peer, payload: message.emit() });
    }

    /// Bounds the table. An evicted host is asked for again with its next packet, and requests as old as its promise are refused.
    fn forget_the_oldest(&mut self) {
        if self.hosts.len() <= MOST_HOSTS {
            return;
        }
        let idle = self.hosts.iter().filter(|(mobile, _)| !self.active.contains(mobile));
        if let Some((&oldest, host)) = idle.min_by_key(|(_, host)| host.used_at) {
            self.forgotten = self.forgotten.max(host.promised);
            self.hosts.remove(&oldest);
        }
    }
}

impl Host {
    fn is_active(&self) -> bool {
        matches!(self.state, State::Incomplete(_)) || self.deadline().is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        let asking = match &self.state {
            State::Asking(request) => request.repeat.at,
            _ => None,
        };
        let answer = self.answer.as_ref().and_then(|answer| answer.sending.poll_timeout());
        asking.into_iter().chain(answer).min()
    }
}

#[cfg(test)]
mod tests;
