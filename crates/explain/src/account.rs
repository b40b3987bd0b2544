//! Attributes a connection's time to causes.
//!
//! The time of a connection is divided at silences of its sender: gaps between two departures of data that are longer than the path's round
//! trip explains. At any time a silence has one cause, judged by the sender's knowledge: whether data was outstanding, whether the window
//! was open, whether the path was down, and what ended the silence. The remaining time is transfer, which [`crate::rounds`] divides further
//! by its limiting factor.

use holdover_base::{Duration, Instant};

use crate::conversation::{Conversation, Place};
use crate::evidence::{EndedBy, Silence, Wait};
use crate::outages::Outage;
use crate::rounds::with_limits;
use crate::spans::{Cause, Span, push};

/// A connection's time, divided without gaps or overlaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The intervals in order; neighbours have different causes.
    pub spans: Vec<Span>,
}

impl Account {
    /// The total time of `cause`.
    pub fn total(&self, cause: Cause) -> Duration {
        let of_cause = self.spans.iter().filter(|span| span.cause == cause);
        of_cause.fold(Duration::ZERO, |sum, span| sum + span.to.saturating_since(span.from))
    }

    /// The total time.
    pub fn whole(&self) -> Duration {
        match (self.spans.first(), self.spans.last()) {
            (Some(first), Some(last)) => last.to.saturating_since(first.from),
            _ => Duration::ZERO,
        }
    }
}

/// Attributes the time of `conversation`; `outages` are those of its path, given or inferred, in order and without
/// overlaps.
pub fn account(conversation: &Conversation, outages: &[Outage]) -> Account {
    let (begin, end) = (conversation.begin, conversation.end);
    let mut ledger = Ledger { spans: Vec::new(), outages };
    let first_data = conversation.first_data.unwrap_or(end);
    let established = conversation.established.unwrap_or(begin).min(first_data);
    ledger.book(begin, established, Cause::Handshake);
    ledger.book(established, first_data, Cause::Idle);
    let mut at = first_data;
    for silence in &conversation.evidence.silences {
        if silence.len() <= conversation.patience() || silence.from < at {
            continue;
        }
        ledger.book(at, silence.from, Cause::Transfer);
        book_silence(&mut ledger, conversation, silence);
        at = silence.to;
    }
    ledger.book(at, end, Cause::Transfer);
    Account { spans: with_limits(ledger.spans, conversation) }
}

fn book_silence(ledger: &mut Ledger<'_>, conversation: &Conversation, silence: &Silence) {
    let waited = conversation.sender_waited(silence) || fell_into_outage(conversation, silence, ledger.outages);
    let ends = silence.waits.iter().skip(1).map(|(at, _)| *at).chain([silence.to]);
    for (&(from, wait), to) in silence.waits.iter().zip(ends) {
        let from = from.max(silence.from);
        let cause = match (wait, silence.ended_by) {
            (Wait::Window, _) => Cause::ZeroWindow,
            (Wait::Nothing, _) if waited => Cause::RtoWait,
            (Wait::Nothing, _) => Cause::Idle,
            (Wait::Acknowledgment, EndedBy::Again | EndedBy::Hole) => Cause::RtoWait,
            (Wait::Acknowledgment, _) if waited => Cause::RtoWait,
            // Ended by new data: an ACK was on its way, or none was awaited.
            (Wait::Acknowledgment, EndedBy::New | EndedBy::End) => Cause::Transfer,
        };
        ledger.book(from, to, cause);
    }
}

/// Whether a silence begins as the path fails and outlasts the outage; away from the sender this is not idle time.
fn fell_into_outage(conversation: &Conversation, silence: &Silence, outages: &[Outage]) -> bool {
    let patience = conversation.patience();
    conversation.place != Place::Sender
        && outages.iter().any(|outage| {
            outage.down <= silence.from + patience && silence.from <= outage.down + patience && silence.to >= outage.up
        })
}

/// Builds spans and replaces outages within them, except within idle time, which does not use the path.
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
        let first = self.outages.partition_point(|outage| outage.up <= from);
        for outage in self.outages[first..].iter().take_while(|outage| outage.down < to) {
            let (down, up) = (outage.down.max(at).min(to), outage.up.max(at).min(to));
            push(&mut self.spans, Span { from: at, to: down, cause });
            push(&mut self.spans, Span { from: down, to: up, cause: Cause::Outage });
            at = up;
        }
        push(&mut self.spans, Span { from: at, to, cause });
    }
}

#[cfg(test)]
mod tests;
