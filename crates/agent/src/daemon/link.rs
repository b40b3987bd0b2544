//! One interface: the signals about it, its engine, and the results.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_mobility::silence::SilenceWatch;
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, LinkEvent, WakeOutcome};

use crate::link_watch::kernel::REMEMBERED;
use crate::link_watch::wifi::WifiWatch;
use crate::link_watch::{Arbiter, Families, Family, LinkChange, LinkCondition, Signal, Source};
use crate::outcomes::{OutcomeLine, saved_s};
use crate::path_engine::{Attach, Counters, PathConnection, PathEngine, Retry};
use crate::status::{ActionLine, ConnectionStatus, LinkRecord, LinkStatus};
use holdover_host::clock::Utc;
use holdover_host::log::with_causes;

/// An interface of this machine.
pub(super) struct Link<E> {
    pub(super) name: Box<str>,
    /// Whether it may be an uplink.
    pub(super) is_eligible: bool,
    pub(super) path: Path<E>,
    pub(super) wifi: Option<WifiWatch>,
    pub(super) silence: Option<SilenceWatch>,
    /// The link is regarded as down because nothing arrives.
    pub(super) is_silent: bool,
    /// The pending probe of next hops.
    pub(super) question: Option<Question>,
    pub(super) arbiter: Arbiter,
    /// The addresses that this host has lost.
    absent: BTreeSet<IpAddr>,
    /// Whether the interface exists.
    is_there: bool,
    /// It exists again, and the signals that came with it are not handled yet.
    is_returning: bool,
    /// Its addresses were replaced while it was gone from the engine.
    has_moved: bool,
    /// Since when the engine has no interface, if it had one.
    gone_since: Option<Instant>,
    /// Since when it is in this state.
    since: Instant,
    down_since: Option<Instant>,
    record: LinkRecord,
    /// The last failure of the engine, and its time.
    trouble: Option<(Instant, String)>,
    done: BTreeMap<Connection, ActionRecord>,
}

/// The engine of an interface.
pub(super) enum Path<E> {
    /// None, as configured.
    LeftAlone,
    /// Attached.
    Attached(E),
    /// None, although there should be one.
    Failed { problem: String, retry_at: Option<Instant> },
}

/// A probe of every next hop of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// The own addresses to probe from.
    pub(super) from: BTreeSet<IpAddr>,
    /// To the broadcast address.
    pub(super) is_broadcast: bool,
}

/// The actions on a connection.
#[derive(Clone, Default, Debug)]
struct ActionRecord {
    actions: u64,
    /// The last action, or its outcome.
    last: Option<String>,
    saved_s: Option<f64>,
}

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// The mechanism's name in outcomes.
const WAKE: &str = "wake";

/// How long a refusal of the kernel is reported.
const TROUBLE_LASTS: Duration = Duration::from_secs(60);

/// The interval between attempts to attach an engine.
const RETRY: Duration = Duration::from_secs(10);

/// The interval between checks whether another agent has released the interface.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// The most closed connections whose actions are remembered.
const MOST_REMEMBERED: usize = 4096;

impl<E: PathEngine> Link<E> {
    pub(super) fn new(now: Instant, name: Box<str>) -> Self {
        Self {
            name,
            is_eligible: false,
            path: Path::LeftAlone,
            wifi: None,
            silence: None,
            is_silent: false,
            question: None,
            arbiter: Arbiter::new(),
            absent: BTreeSet::new(),
            is_there: true,
            is_returning: false,
            has_moved: false,
            gone_since: None,
            since: now,
            down_since: None,
            record: LinkRecord::default(),
            trouble: None,
            done: BTreeMap::new(),
        }
    }

    pub(super) fn is_managed(&self) -> bool {
        !matches!(self.path, Path::LeftAlone)
    }

    pub(super) fn engine(&mut self) -> Option<&mut E> {
        match &mut self.path {
            Path::Attached(engine) => Some(engine),
            Path::LeftAlone | Path::Failed { .. } => None,
        }
    }

    /// Sets the addresses that this host has lost, for the present engine and later ones.
    pub(super) fn handle_absent(&mut self, now: Instant, absent: &BTreeSet<IpAddr>) {
        if self.absent != *absent {
            self.absent.clone_from(absent);
            if let Some(engine) = self.engine() {
                engine.handle_absent(now, absent);
            }
        }
    }

    /// The interface is gone. One with the same name and addresses may follow soon: a modem after a reset, a tunnel.
    pub(super) fn leave(&mut self, now: Instant) {
        (self.is_there, self.is_returning, self.has_moved, self.wifi) = (false, false, false, None);
        self.gone_since.get_or_insert(now);
        self.arbiter = Arbiter::new();
        if self.is_managed() {
            tracing::info!(interface = &*self.name, "the interface is gone; its connections are kept for a while");
        }
        let change = LinkChange::of_both(LinkEvent::Down);
        if let Some(engine) = self.engine() {
            engine.handle_link(now, change);
        }
        self.note(now, change);
    }

    /// The interface exists.
    pub(super) fn appear(&mut self, is_eligible: bool) {
        self.is_returning = !self.is_there && self.gone_since.is_some();
        (self.is_there, self.is_eligible) = (true, is_eligible);
    }

    /// Whether it has returned since the last call; the signals that came with it are handled.
    pub(super) fn take_returned(&mut self) -> bool {
        std::mem::take(&mut self.is_returning)
    }

    /// Whether the interface does not exist and its state is no longer kept.
    pub(super) fn is_over(&self) -> bool {
        !self.is_there && !matches!(self.path, Path::Attached(_))
    }

    /// Attaches or detaches, as configured and possible.
    pub(super) fn update_attachment<A: Attach<Engine = E>>(
        &mut self,
        now: Instant,
        is_wanted: bool,
        attach: &mut A,
        config: &WakeConfig,
    ) {
        let is_gone = self.gone_since.is_some() && self.is_managed();
        match (is_wanted && self.is_there, self.is_managed()) {
            // Before its first signals it has no known state, and would count as up.
            (true, true) if self.is_returning => {}
            (true, true) if is_gone => self.attach_again(now, attach, config),
            (true, false) => self.attach(now, attach, config),
            // An interface that is not named is managed once it has a route; until then the known state is kept.
            (false, true) if !is_gone => {
                self.path = Path::LeftAlone;
                tracing::info!(interface = &*self.name, "detached");
            }
            _ => {}
        }
    }

    /// Attaches the engine to the new interface of the same name.
    fn attach_again<A: Attach<Engine = E>>(&mut self, now: Instant, attach: &mut A, config: &WakeConfig) {
        self.gone_since = None;
        let Path::Attached(engine) = &mut self.path else { return };
        if let Err(error) = attach.attach_again(engine) {
            tracing::info!(interface = &*self.name, problem = with_causes(&error), "attached anew");
            self.path = Path::LeftAlone;
            self.attach(now, attach, config);
            return;
        }
        tracing::info!(interface = &*self.name, "attached again");
        let families = self.arbiter.down().others();
        if !families.is_empty() {
            let event = LinkEvent::Up { symmetric: false, moved: std::mem::take(&mut self.has_moved) };
            // Its move was noted when it was signalled.
            self.note(now, LinkChange { families, event: UP });
            self.hand_over(now, LinkChange { families, event }, &"the interface exists again");
        }
    }

    /// Attaches an engine.
    fn attach<A: Attach<Engine = E>>(&mut self, now: Instant, attach: &mut A, config: &WakeConfig) {
        (self.trouble, self.gone_since) = (None, None);
        self.path = match attach.attach(&self.name, config) {
            Ok(mut engine) => {
                tracing::info!(interface = &*self.name, "attached");
                engine.handle_absent(now, &self.absent);
                let families = self.arbiter.down();
                if !families.is_empty() {
                    engine.handle_link(now, LinkChange { families, event: LinkEvent::Down });
                }
                Path::Attached(engine)
            }
            Err(error) => {
                let problem = with_causes(&error);
                let is_new = !matches!(&self.path, Path::Failed { problem: known, .. } if *known == problem);
                let retry = attach.retry(&error);
                if is_new && retry == Retry::Never {
                    tracing::error!(interface = &*self.name, problem, "not attached");
                } else if is_new {
                    tracing::error!(interface = &*self.name, problem, "cannot attach; trying again");
                }
                let retry_at = match retry {
                    Retry::Soon => Some(now + RETRY_SOON),
                    Retry::Later => Some(now + RETRY),
                    Retry::Never => None,
                };
                Path::Failed { problem, retry_at }
            }
        };
    }

    /// Handles a signal of a source.
    pub(super) fn handle_signal(&mut self, now: Instant, signal: &Signal) {
        let changes = self.arbiter.handle_signal(now, signal);
        tracing::trace!(interface = &*self.name, source = %signal.source, event = %signal.event, changes = changes.len());
        self.tell(now, &changes, &signal.source);
    }

    /// Handles deadlines.
    pub(super) fn handle_timeout<A: Attach<Engine = E>>(&mut self, now: Instant, attach: &mut A, config: &WakeConfig) {
        if self.arbiter.poll_timeout().is_some_and(|at| at <= now) {
            let changes = self.arbiter.handle_timeout(now);
            self.tell(now, &changes, &"no cut");
        }
        match &mut self.path {
            Path::Attached(engine) if engine.poll_timeout().is_some_and(|at| at <= now) => {
                engine.handle_timeout(now);
                self.handle_packets_while_down(now);
            }
            Path::Failed { retry_at: Some(retry_at), .. } if *retry_at <= now => self.attach(now, attach, config),
            _ => {}
        }
        self.check_silence(now);
        if self.gone_since.is_some_and(|since| since + REMEMBERED <= now) {
            (self.path, self.gone_since) = (Path::LeftAlone, None);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let path = match &self.path {
            Path::LeftAlone => None,
            Path::Attached(engine) => engine.poll_timeout(),
            Path::Failed { retry_at, .. } => *retry_at,
        };
        let forgotten_at = self.gone_since.map(|since| since + REMEMBERED);
        let look_at = self.poll_silence();
        path.into_iter().chain(self.arbiter.poll_timeout()).chain(forgotten_at).chain(look_at).min()
    }

    /// The descriptor of the engine is readable.
    pub(super) fn handle_ready(&mut self, now: Instant) {
        if let Some(engine) = self.engine() {
            engine.handle_ready(now);
            self.handle_packets_while_down(now);
        }
    }

    /// Handles packets that arrive over a link that is regarded as down.
    fn handle_packets_while_down(&mut self, now: Instant) {
        let contradicted = self.engine().map_or(Families::NONE, |engine| engine.contradicts_down());
        let families = self.arbiter.handle_packets(contradicted);
        if !families.is_empty() {
            let change = LinkChange { families, event: UP };
            tracing::info!(
                interface = &*self.name, event = %change, because = "packets arrive over the link", "link"
            );
            self.is_silent = false;
            self.note(now, change);
        }
        self.handle_end_of_silence(now);
    }

    pub(super) fn tell(&mut self, now: Instant, changes: &[LinkChange], because: &dyn std::fmt::Display) {
        for &change in changes {
            self.note(now, change);
            self.hand_over(now, change, because);
        }
    }

    fn hand_over(&mut self, now: Instant, change: LinkChange, because: &dyn std::fmt::Display) {
        if self.is_managed() {
            tracing::info!(interface = &*self.name, event = %change, because = %because, "link");
        }
        // An engine not yet attached to the new interface would send, and resolve next hops, on the former one.
        if self.gone_since.is_some() {
            self.has_moved |= matches!(change.event, LinkEvent::Up { moved: true, .. });
        } else if let Some(engine) = self.engine() {
            engine.handle_link(now, change);
        }
        self.forget_silence(now, change.event);
    }

    pub(super) fn note(&mut self, now: Instant, LinkChange { families, event }: LinkChange) {
        self.since = now;
        let is_whole = families.are_both() || self.state() == LinkCondition::Down;
        match event {
            LinkEvent::Fading { .. } => self.record.warnings += 1,
            LinkEvent::Recovered => self.record.false_warnings += 1,
            LinkEvent::Down if !is_whole => self.record.family_outages += 1,
            LinkEvent::Down if self.down_since.is_none() => {
                self.record.outages += 1;
                self.down_since = Some(now);
            }
            LinkEvent::Down => {}
            LinkEvent::Up { moved, .. } => {
                if let Some(since) = self.down_since.take() {
                    let outage = now.saturating_since(since);
                    self.record.last_outage_s = outage.as_secs_f64();
                    self.record.down_s += outage.as_secs_f64();
                }
                self.record.moves += u64::from(moved);
            }
        }
    }

    /// The actions of the engine since the last call.
    pub(super) fn take_actions(&mut self, now: Instant, utc: Utc) -> Vec<ActionLine> {
        let Path::Attached(engine) = &mut self.path else { return Vec::new() };
        let trouble = engine.poll_trouble();
        let actions: Vec<Action> = std::iter::from_fn(|| engine.poll_action()).collect();
        if let Some(trouble) = trouble {
            self.note_trouble(now, trouble);
        }
        let Path::Attached(engine) = &mut self.path else { return Vec::new() };
        let outcomes: Vec<WakeOutcome> = std::iter::from_fn(|| engine.poll_outcome()).collect();
        let saved = |outcome: &WakeOutcome| saved_s(outcome, engine.alternative_at(outcome.connection));
        let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| (outcome, saved(&outcome))).collect();
        let mut lines: Vec<ActionLine> =
            actions.into_iter().map(|action| self.note_action((now, utc), action)).collect();
        for (outcome, saved_s) in outcomes {
            lines.extend(self.note_outcome((now, utc), &outcome, saved_s));
        }
        lines
    }

    /// Logs no more than one failure in a while.
    fn note_trouble(&mut self, now: Instant, trouble: String) {
        if !self.has_trouble(now) {
            tracing::warn!(interface = &*self.name, trouble, "the kernel has refused a call");
        }
        self.trouble = Some((now, trouble));
    }

    fn has_trouble(&self, now: Instant) -> bool {
        self.trouble.as_ref().is_some_and(|(at, _)| now.saturating_since(*at) < TROUBLE_LASTS)
    }

    /// The record of a connection.
    fn done(&mut self, now: Instant, connection: Connection) -> &mut ActionRecord {
        if self.done.len() >= MOST_REMEMBERED && !self.done.contains_key(&connection) {
            self.forget_old_actions(now);
        }
        self.done.entry(connection).or_default()
    }

    /// Counts an outcome; `None` if it is not reported.
    fn note_outcome(
        &mut self,
        (now, utc): (Instant, Utc),
        outcome: &WakeOutcome,
        saved_s: Option<f64>,
    ) -> Option<ActionLine> {
        let connection = outcome.connection;
        self.record.outcomes.count(outcome, saved_s);
        let line = OutcomeLine::of(outcome, now)?;
        let done = self.done(now, connection);
        done.last = Some(line.to_string());
        if let Some(saved_s) = saved_s {
            *done.saved_s.get_or_insert(0.0) += saved_s;
        }
        tracing::debug!(interface = &*self.name, %connection, outcome = %line, saved_s, "outcome");
        Some(ActionLine {
            time: utc.0.as_secs_f64(),
            interface: self.name.to_string(),
            local: connection.local,
            remote: connection.remote,
            mechanism: WAKE.to_owned(),
            what: line.to_string(),
            outcome: Some(line),
            saved_s,
        })
    }

    fn note_action(&mut self, (now, utc): (Instant, Utc), action: Action) -> ActionLine {
        let Action { connection, mechanism, what, .. } = action;
        let done = self.done(now, connection);
        done.actions += 1;
        done.last = Some(format!("{mechanism}: {what}"));
        // A dry run reports its intentions only.
        if what.starts_with("would") {
            tracing::info!(interface = &*self.name, %connection, mechanism, what, "dry run");
        } else {
            tracing::debug!(interface = &*self.name, %connection, mechanism, what, "action");
        }
        ActionLine {
            time: utc.0.as_secs_f64(),
            interface: self.name.to_string(),
            local: connection.local,
            remote: connection.remote,
            mechanism: mechanism.to_owned(),
            what: what.to_owned(),
            outcome: None,
            saved_s: None,
        }
    }

    /// Makes room: forgets the actions on connections that the engine does not know any more, or else all.
    fn forget_old_actions(&mut self, now: Instant) {
        let known: BTreeSet<Connection> = self.in_path(now).into_iter().map(|(connection, _)| connection).collect();
        self.done.retain(|connection, _| known.contains(connection));
        if self.done.len() >= MOST_REMEMBERED {
            self.done.clear();
        }
    }

    pub(super) fn counters(&self) -> Counters {
        match &self.path {
            Path::Attached(engine) => engine.counters(),
            Path::LeftAlone | Path::Failed { .. } => Counters::default(),
        }
    }

    /// The state of the link, by all sources.
    pub(super) fn state(&self) -> LinkCondition {
        if self.is_silent { LinkCondition::Down } else { self.arbiter.state() }
    }

    /// The IP versions that are down while the other is up.
    fn families_down(&self) -> Vec<Family> {
        let is_partly = self.state() != LinkCondition::Down;
        self.arbiter.down().iter().filter(|_| is_partly).collect()
    }

    pub(super) fn status(&self, now: Instant) -> LinkStatus {
        let mut record = self.record.clone();
        // The current outage counts.
        record.down_s += self.down_since.map_or(0.0, |since| now.saturating_since(since).as_secs_f64());
        LinkStatus {
            interface: self.name.to_string(),
            state: self.state(),
            state_s: now.saturating_since(self.since).as_secs_f64(),
            families_down: self.families_down(),
            objections: self.arbiter.objections().chain(self.is_silent.then_some(Source::Silence)).collect(),
            problem: match &self.path {
                Path::Attached(_) if self.gone_since.is_some() => Some("the interface is gone".to_owned()),
                Path::Failed { problem, .. } => Some(problem.clone()),
                Path::LeftAlone | Path::Attached(_) => None,
            },
            trouble: self.trouble.as_ref().filter(|_| self.has_trouble(now)).map(|(_, trouble)| trouble.clone()),
            next_cut_s: None,
            record,
            counters: self.counters(),
        }
    }

    /// The connections in the path, and whether they are exempt.
    pub(super) fn in_path(&mut self, now: Instant) -> Vec<(Connection, bool)> {
        let known = self.engine().map(|engine| engine.connections(now)).unwrap_or_default();
        known.into_iter().map(|known| (known.connection, known.is_exempt)).collect()
    }

    pub(super) fn connections(&mut self, now: Instant) -> Vec<ConnectionStatus> {
        let Path::Attached(engine) = &mut self.path else { return Vec::new() };
        let known = engine.connections(now);
        known.into_iter().map(|known| self.describe(&known)).collect()
    }

    fn describe(&self, known: &PathConnection) -> ConnectionStatus {
        let done = self.done.get(&known.connection).cloned().unwrap_or_default();
        ConnectionStatus {
            interface: self.name.to_string(),
            local: known.connection.local,
            remote: known.connection.remote,
            process: None,
            container: None,
            bytes_sent: known.bytes_sent,
            bytes_received: known.bytes_received,
            idle_s: known.idle.map(Duration::as_secs_f64),
            round_trip_ms: known.round_trip.map(|time| time.as_secs_f64() * 1e3),
            held_bytes: known.held_bytes,
            rto_ms: None,
            backoff: None,
            user_timeout: None,
            left_alone: known.is_exempt,
            actions: done.actions,
            last_action: done.last,
            saved_s: done.saved_s,
        }
    }
}
