//! Dividing a connection's time among what it was spent on.
//!
//! The time of a connection is cut where its sender falls silent: between two departures of data that are further apart than
//! the path's round trip explains. Each silence has one cause at a time, judged by what the sender knew: was anything
//! outstanding, was the window open, was the link down, and what ended it. What is not silence is data on the move; of that, the
//! rounds after a silence in which less arrives than the connection had shown it can carry are slow start's.

use holdover_base::{Duration, Instant};
use holdover_wire::Flags;
use serde::Serialize;

use crate::conversation::{Conversation, Sighting};

/// What time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Opening the connection.
    Handshake,
    /// Data was on the move.
    Transfer,
    /// Data was on the move, but less than the path had been seen to carry.
    SlowStart,
    /// The link was down.
    Outage,
    /// The sender waited for its retransmission timer, with the link up as far as is known.
    RtoWait,
    /// The receiver's window was closed.
    ZeroWindow,
    /// Everything was acknowledged and the application sent nothing.
    Idle,
}

impl Cause {
    /// All causes, in the order of reports.
    pub const ALL: [Self; 7] =
        [Self::Handshake, Self::Transfer, Self::SlowStart, Self::Outage, Self::RtoWait, Self::ZeroWindow, Self::Idle];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Transfer => "transfer",
            Self::SlowStart => "slow start",
            Self::Outage => "outage",
            Self::RtoWait => "RTO wait",
            Self::ZeroWindow => "zero window",
            Self::Idle => "idle",
        }
    }
}

/// A time in which the link is known to have been down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Its beginning.
    pub down: Instant,
    /// Its end.
    pub up: Instant,
}

/// A stretch of a connection's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// What it was spent on.
    pub cause: Cause,
}

/// A connection's time, divided without gaps or overlaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The stretches, in order; neighbours have different causes.
    pub spans: Vec<Span>,
    /// The round-trip time that the capture shows at its place.
    pub rtt: Duration,
    /// Data segments sent again.
    pub retransmissions: u64,
}

impl Account {
    /// How long was spent on `cause` in all.
    pub fn total(&self, cause: Cause) -> Duration {
        let of_cause = self.spans.iter().filter(|span| span.cause == cause);
        of_cause.fold(Duration::ZERO, |sum, span| sum + span.to.saturating_since(span.from))
    }

    /// The whole time.
    pub fn whole(&self) -> Duration {
        match (self.spans.first(), self.spans.last()) {
            (Some(first), Some(last)) => last.to.saturating_since(first.from),
            _ => Duration::ZERO,
        }
    }
}

/// Divides the time of `conversation`; `outages` are those of the link, in order, as far as they are known.
pub fn account(conversation: &Conversation, outages: &[Outage]) -> Account {
    let rtt = round_trip(conversation);
    let mut ledger = Ledger { spans: Vec::new(), outages };
    let (departures, retransmissions) = departures(conversation);
    let Some(begin) = conversation.sightings.first().map(|sighting| sighting.at) else {
        return Account { spans: Vec::new(), rtt, retransmissions };
    };
    let end = conversation.sightings.last().map_or(begin, |sighting| sighting.at);
    let first_data = departures.first().map_or(end, |departure| departure.at);
    let established = established_at(conversation).unwrap_or(begin).min(first_data);
    ledger.book(begin, established, Cause::Handshake);
    ledger.book(established, first_data, Cause::Idle);
    // Silences up to two round trips are how a window's worth of data moves.
    let patience = rtt * 2 + Duration::from_millis(20);
    let mut sender = Sender::default();
    let mut sightings = conversation.sightings.iter().peekable();
    for (departure, next) in departures.iter().zip(departures.iter().skip(1).map(Some).chain([None])) {
        let until = next.map_or(end, |next| next.at);
        if until.saturating_since(departure.at) <= patience {
            ledger.book(departure.at, until, Cause::Transfer);
            continue;
        }
        while let Some(sighting) = sightings.next_if(|sighting| sighting.at <= departure.at) {
            sender.see(sighting);
        }
        // Within a silence the causes change where an ACK or a window does.
        let mut at = departure.at;
        while let Some(sighting) = sightings.next_if(|sighting| sighting.at < until) {
            if sighting.at > at {
                ledger.book(at, sighting.at, sender.waits_for(next));
                at = sighting.at;
            }
            sender.see(sighting);
        }
        ledger.book(at, until, sender.waits_for(next));
    }
    let spans = with_slow_start(ledger.spans, conversation, rtt);
    Account { spans, rtt, retransmissions }
}

/// Data leaving the sender.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Instant,
    again: bool,
}

fn departures(conversation: &Conversation) -> (Vec<Departure>, u64) {
    let mut highest = 0;
    let mut retransmissions = 0;
    let mut departures = Vec::new();
    for sighting in conversation.sightings.iter().filter(|sighting| sighting.from_sender && sighting.len > 0) {
        let end = sighting.offset + u64::from(sighting.len);
        let again = sighting.offset < highest;
        highest = highest.max(end);
        retransmissions += u64::from(again);
        departures.push(Departure { at: sighting.at, again });
    }
    (departures, retransmissions)
}

/// What the sender knew, as far as the capture shows.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    highest: u64,
    acked: u64,
    window: Option<u32>,
}

impl Sender {
    fn see(&mut self, sighting: &Sighting) {
        if sighting.from_sender {
            self.highest = self.highest.max(sighting.offset + u64::from(sighting.len));
        } else if sighting.offset >= self.acked {
            self.acked = sighting.offset;
            self.window = Some(sighting.window);
        }
    }

    /// What a silence that `next` ends is spent on.
    fn waits_for(&self, next: Option<&Departure>) -> Cause {
        if self.window == Some(0) {
            return Cause::ZeroWindow;
        }
        if self.highest <= self.acked {
            return Cause::Idle;
        }
        match next {
            Some(departure) if departure.again => Cause::RtoWait,
            // New data ended it: an ACK had been on its way, or there was none to wait for.
            Some(_) => Cause::Transfer,
            None => Cause::Transfer,
        }
    }
}

/// Spans in the making: outages are cut out of whatever is booked, except that nothing was wanted of the link while idle.
struct Ledger<'a> {
    spans: Vec<Span>,
    outages: &'a [Outage],
}

impl Ledger<'_> {
    fn book(&mut self, from: Instant, to: Instant, cause: Cause) {
        if cause == Cause::Idle {
            return push(&mut self.spans, Span { from, to, cause });
        }
        let mut at = from;
        for outage in self.outages {
            let (down, up) = (outage.down.max(at).min(to), outage.up.max(at).min(to));
            push(&mut self.spans, Span { from: at, to: down, cause });
            push(&mut self.spans, Span { from: down, to: up, cause: Cause::Outage });
            at = up;
        }
        push(&mut self.spans, Span { from: at, to, cause });
    }
}

/// Appends a span, joined with the one before if the cause is the same.
fn push(spans: &mut Vec<Span>, span: Span) {
    if span.from >= span.to {
        return;
    }
    match spans.last_mut() {
        Some(last) if last.cause == span.cause && last.to == span.from => last.to = span.to,
        _ => spans.push(span),
    }
}

/// When the handshake was over: the first segment with ACK and without SYN.
fn established_at(conversation: &Conversation) -> Option<Instant> {
    conversation.sightings.iter().any(|sighting| sighting.flags.contains(Flags::SYN)).then_some(())?;
    let done = |sighting: &&Sighting| sighting.flags.contains(Flags::ACK) && !sighting.flags.contains(Flags::SYN);
    conversation.sightings.iter().find(done).map(|sighting| sighting.at)
}

/// The least time from data sent once to the first ACK that covers it, or that of the handshake.
fn round_trip(conversation: &Conversation) -> Duration {
    let mut waiting: Option<(u64, Instant)> = None;
    let mut highest = 0;
    let mut least = Duration::MAX;
    let mut syn_at: Option<Instant> = None;
    for sighting in &conversation.sightings {
        let is_syn = sighting.flags.contains(Flags::SYN);
        match (sighting.from_sender, syn_at) {
            (true, None) if is_syn => syn_at = Some(sighting.at),
            (false, Some(sent)) if is_syn => least = least.min(sighting.at.saturating_since(sent)),
            _ => {}
        }
        if sighting.from_sender && sighting.len > 0 {
            let end = sighting.offset + u64::from(sighting.len);
            if sighting.offset < highest {
                // Karn: nothing is learnt while something was sent twice.
                waiting = None;
            } else if waiting.is_none() {
                waiting = Some((end, sighting.at));
            }
            highest = highest.max(end);
        } else if let Some((end, sent)) = waiting
            && !sighting.from_sender
            && sighting.offset >= end
        {
            least = least.min(sighting.at.saturating_since(sent));
            waiting = None;
        }
    }
    if least == Duration::MAX { Duration::from_millis(100) } else { least.max(Duration::from_micros(100)) }
}

/// Of the transfer after each silence, the rounds in which less was acknowledged than nine tenths of a good round are slow
/// start's. A good round is the connection's ninth decile.
fn with_slow_start(spans: Vec<Span>, conversation: &Conversation, rtt: Duration) -> Vec<Span> {
    let rounds = Rounds::of(conversation, rtt);
    let mut result = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let after_silence = index == 0 || spans[index - 1].cause != Cause::Transfer;
        if span.cause != Cause::Transfer || !after_silence {
            push(&mut result, *span);
            continue;
        }
        let full_from = rounds.full_from(span.from, span.to);
        push(&mut result, Span { to: full_from, cause: Cause::SlowStart, ..*span });
        push(&mut result, Span { from: full_from, ..*span });
    }
    result
}

/// Bytes acknowledged in each round trip.
struct Rounds {
    begin: Instant,
    length: Duration,
    acked: Vec<u64>,
    good: u64,
}

impl Rounds {
    /// At most this many rounds are kept; longer captures have longer ones.
    const MOST: u64 = 1 << 16;

    fn of(conversation: &Conversation, rtt: Duration) -> Self {
        let begin = conversation.sightings.first().map_or(Instant::ZERO, |sighting| sighting.at);
        let end = conversation.sightings.last().map_or(begin, |sighting| sighting.at);
        let length = rtt.max(end.saturating_since(begin) / Self::MOST).max(Duration::from_micros(100));
        let count = (end.saturating_since(begin).as_nanos() / length.as_nanos()) as usize + 1;
        let mut acked = vec![0; count];
        let mut highest = 0;
        for sighting in conversation.sightings.iter().filter(|sighting| !sighting.from_sender) {
            let round = (sighting.at.saturating_since(begin).as_nanos() / length.as_nanos()) as usize;
            if sighting.offset > highest {
                acked[round.min(count - 1)] += sighting.offset - highest;
                highest = sighting.offset;
            }
        }
        let mut busy: Vec<u64> = acked.iter().copied().filter(|&bytes| bytes > 0).collect();
        busy.sort_unstable();
        let good = busy.get(busy.len() * 9 / 10).copied().unwrap_or(0);
        Self { begin, length, acked, good }
    }

    /// When, within a transfer, a round first carries nine tenths of a good one; its end if none does.
    fn full_from(&self, from: Instant, to: Instant) -> Instant {
        let first = (from.saturating_since(self.begin).as_nanos() / self.length.as_nanos()) as usize;
        for (round, &bytes) in self.acked.iter().enumerate().skip(first) {
            let start = self.begin + self.length * round as u64;
            if start >= to {
                break;
            }
            if bytes * 10 >= self.good * 9 {
                return start.max(from);
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn sent(millis: u64, offset: u64) -> Sighting {
        Sighting { at: at(millis), from_sender: true, offset, len: 1000, window: 0, flags: Flags::ACK }
    }

    fn acked(millis: u64, offset: u64, window: u32) -> Sighting {
        Sighting { at: at(millis), from_sender: false, offset, len: 0, window, flags: Flags::ACK }
    }

    fn conversation(sightings: Vec<Sighting>) -> Conversation {
        Conversation {
            sender: "10.0.0.1:1".parse().unwrap(),
            receiver: "10.0.0.2:2".parse().unwrap(),
            sightings,
            bytes: 0,
            window_shift: Some(0),
        }
    }

    fn millis(account: &Account, cause: Cause) -> u64 {
        account.total(cause).as_millis()
    }

    /// A link that is down for 2 s; the sender's timer, not the link, ends the silence 1.5 s later.
    #[test]
    fn the_wait_after_an_outage_is_the_timers() {
        let account = account(
            &conversation(vec![
                sent(0, 0),
                acked(50, 1000, 9000),
                sent(50, 1000),
                sent(3600, 1000),
                acked(3650, 2000, 9000),
            ]),
            &[Outage { down: at(100), up: at(2100) }],
        );
        assert_eq!(millis(&account, Cause::Outage), 2000);
        assert_eq!(millis(&account, Cause::RtoWait), 50 + 1500);
        assert_eq!(account.retransmissions, 1);
        assert_eq!(account.rtt, Duration::from_millis(50));
    }

    #[test]
    fn a_closed_window_and_an_idle_application_are_told_apart() {
        let account = account(
            &conversation(vec![
                sent(0, 0),
                acked(50, 1000, 0),
                acked(1050, 1000, 9000),
                sent(1050, 1000),
                acked(1100, 2000, 9000),
                sent(3100, 2000),
                acked(3150, 3000, 9000),
            ]),
            &[],
        );
        assert_eq!(millis(&account, Cause::ZeroWindow), 1000);
        assert_eq!(millis(&account, Cause::Idle), 2000);
        assert_eq!(millis(&account, Cause::RtoWait), 0);
    }

    #[test]
    fn an_outage_while_nothing_was_wanted_of_the_link_costs_nothing() {
        let account = account(
            &conversation(vec![sent(0, 0), acked(50, 1000, 9000), sent(5000, 1000), acked(5050, 2000, 9000)]),
            &[Outage { down: at(1000), up: at(2000) }],
        );
        assert_eq!(millis(&account, Cause::Outage), 0);
        assert_eq!(millis(&account, Cause::Idle), 4950);
    }

    #[test]
    fn the_rounds_after_a_silence_that_carry_little_are_slow_start() {
        let mut sightings = Vec::new();
        let mut offset = 0;
        let mut time = 0;
        // Windows of 1, 2, 4, 8 segments and then 8 for 40 rounds of 50 ms.
        for window in [1, 2, 4].into_iter().chain([8; 40]) {
            sightings.extend((0..window).map(|n| sent(time, offset + n * 1000)));
            offset += window * 1000;
            sightings.push(acked(time + 50, offset, 60_000));
            time += 50;
        }
        let account = account(&conversation(sightings), &[]);
        let slow_start = millis(&account, Cause::SlowStart);
        assert!((150..=250).contains(&slow_start), "{slow_start}");
        assert_eq!(account.whole().as_millis(), time);
    }

    #[test]
    fn nothing_and_a_single_packet_are_accounts_too() {
        assert_eq!(account(&conversation(Vec::new()), &[]).spans, []);
        assert_eq!(account(&conversation(vec![sent(5, 0)]), &[]).whole(), Duration::ZERO);
    }

    proptest! {
        /// Whatever was seen, the spans cover the whole time once.
        #[test]
        fn every_instant_has_one_cause(
            steps in proptest::collection::vec((0_u64..3000, any::<bool>(), 0_u64..20, 0_u32..3), 1..60),
            outages in proptest::collection::vec((1_u64..4000, 1_u64..4000), 0..5),
        ) {
            let mut time = 0;
            let sightings: Vec<Sighting> = steps.into_iter().map(|(wait, from_sender, unit, window)| {
                time += wait;
                if from_sender { sent(time, unit * 1000) } else { acked(time, unit * 1000, window * 4000) }
            }).collect();
            let (begin, end) = (sightings[0].at, at(time));
            let mut down = 0;
            let outages: Vec<Outage> = outages.into_iter().map(|(gap, length)| {
                down += gap + length;
                Outage { down: at(down - length), up: at(down) }
            }).collect();
            let account = account(&conversation(sightings), &outages);
            let mut expected = begin;
            for span in &account.spans {
                prop_assert_eq!(span.from, expected);
                prop_assert!(span.to > span.from);
                expected = span.to;
            }
            prop_assert!(begin == end || expected == end);
        }
    }
}
