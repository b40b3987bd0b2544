//! The decisions of the daemon, without sockets and clocks.
//!
//! The shell calls one of the `handle_*`, then [`Core::take_actions`], then reads the next deadlines:
//! [`Core::poll_timeout`] on the monotonic clock, which stops in sleep, and [`Core::poll_time`] in calendar time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_mobility::{Connection, LinkEvent};

use super::link::{Link, Path, Question};
use crate::config::{Config, Time};
use crate::control::{Refusal, SignalRequest};
use crate::link_watch::kernel::Change;
use crate::link_watch::schedule::ScheduleWatch;
use crate::link_watch::wifi::WifiWatch;
use crate::link_watch::{Dbm, LinkCondition, Signal, Source};
use crate::path_engine::{Attach, Counters, PathEngine as _};
use crate::status::{ActionLine, Status, UserTimeoutStatus};
use holdover_host::clock::Utc;

/// The state machine of the daemon.
pub(super) struct Core<A: Attach> {
    attach: A,
    config: Config,
    /// The interfaces named on the command line; empty if the configuration decides.
    named: Vec<String>,
    dry_run: bool,
    started: Instant,
    links: BTreeMap<Box<str>, Link<A::Engine>>,
    /// The addresses that this host has lost.
    absent: BTreeSet<IpAddr>,
    schedule: Option<ScheduleWatch>,
    wifi_due: Option<Instant>,
    actions: VecDeque<ActionLine>,
    /// Actions on connections, except those of engines.
    own_actions: Vec<ActionLine>,
}

/// The sources that can be disabled.
const KERNEL: [Source; 8] = [
    Source::Carrier,
    Source::Association,
    Source::Address,
    Source::Route,
    Source::Neighbour,
    Source::Lower,
    Source::Suspend,
    Source::Modem,
];

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// Actions kept for requests.
const MOST_ACTIONS: usize = 1000;

/// The most connections listed individually.
const MOST_CONNECTIONS: usize = 2000;

impl<A: Attach> Core<A> {
    pub(super) fn new(now: Instant, attach: A, config: Config, named: Vec<String>, dry_run: bool) -> Self {
        Self {
            attach,
            config,
            named,
            dry_run,
            started: now,
            links: BTreeMap::new(),
            absent: BTreeSet::new(),
            schedule: None,
            wifi_due: None,
            actions: VecDeque::new(),
            own_actions: Vec::new(),
        }
    }

    /// Applies another configuration and timetable. Engines are restarted if their options have changed.
    pub(super) fn configure(&mut self, now: Instant, utc: Utc, config: Config, schedule: Option<ScheduleWatch>) {
        let before = std::mem::replace(&mut self.config, config);
        // Withdraws the statements of the old timetable.
        if let Some(old) = self.schedule.take() {
            let interface = old.interface().map(str::to_owned);
            for event in [LinkEvent::Recovered, UP] {
                self.signal(now, interface.as_deref(), event, Source::Schedule);
            }
        }
        self.schedule = schedule;
        let is_other = before.wake != self.config.wake;
        for link in self.links.values_mut() {
            if is_other {
                link.path = Path::LeftAlone;
            }
            (link.wifi, link.silence) = (None, None);
            link.handle_signal(now, &Signal::new(now, &link.name.clone(), LinkEvent::Recovered, Source::Wifi));
            // Withdraws the objections of disabled sources.
            for source in KERNEL.into_iter().filter(|&source| !self.config.signals.believes(source)) {
                link.handle_signal(now, &Signal::new(now, &link.name.clone(), UP, source));
            }
        }
        for name in self.links.keys().cloned().collect::<Vec<_>>() {
            self.update_link(now, &name);
        }
        self.handle_time(now, utc);
    }

    /// Handles a change reported by the kernel. Call [`Self::handle_returned`] after all pending changes.
    pub(super) fn handle_change(&mut self, now: Instant, change: Change) {
        match change {
            Change::Appeared { interface, is_eligible } => {
                let link = self.links.entry(interface.clone()).or_insert_with(|| Link::new(now, interface.clone()));
                link.handle_absent(now, &self.absent);
                link.appear(is_eligible);
                self.update_link(now, &interface);
            }
            Change::Disappeared { interface } => {
                if let Some(link) = self.links.get_mut(&interface) {
                    link.leave(now);
                }
                self.remove_gone_links();
            }
            Change::Signal(signal) => self.handle_signal(now, &signal),
        }
    }

    /// Attaches engines to interfaces that exist again: all changes that came with them are handled.
    pub(super) fn handle_returned(&mut self, now: Instant) {
        let returned = self.links.values_mut().filter_map(|link| link.take_returned().then(|| link.name.clone()));
        for interface in returned.collect::<Vec<_>>() {
            self.update_link(now, &interface);
        }
    }

    /// Sets the addresses that this host has lost.
    pub(super) fn handle_absent(&mut self, now: Instant, absent: &BTreeSet<IpAddr>) {
        self.absent.clone_from(absent);
        for link in self.links.values_mut() {
            link.handle_absent(now, absent);
        }
    }

    /// Handles the end of a sleep of this length.
    pub(super) fn handle_sleep(&mut self, now: Instant, slept: Duration) {
        tracing::info!(slept_s = slept.as_secs_f64(), "the machine has slept");
        for event in [LinkEvent::Down, UP] {
            self.signal(now, None, event, Source::Suspend);
        }
    }

    /// Handles an announcement of sleep: it is about to begin, may begin now, or is cancelled.
    pub(super) fn handle_sleep_foreseen(&mut self, now: Instant, event: LinkEvent) {
        tracing::info!(event = event.to_string(), "announcement of sleep");
        // Including links that are not managed now: they may be afterwards.
        for interface in self.links.keys().cloned().collect::<Vec<_>>() {
            self.handle_signal(now, &Signal::new(now, &interface, event, Source::Suspend));
        }
    }

    /// Handles a command about a link; returns the links affected.
    pub(super) fn handle_command(&mut self, now: Instant, command: &SignalRequest) -> Result<Vec<String>, Refusal> {
        let event = command.to_event()?;
        let links = self.managed_links();
        if links.is_empty() && command.interface.is_none() {
            return Err(Refusal::NoLinks);
        }
        let heard = match &command.interface {
            Some(interface) if links.contains(interface) => vec![interface.clone()],
            Some(interface) => return Err(Refusal::NoSuchLink { interface: interface.clone(), links }),
            None => links,
        };
        self.signal(now, command.interface.as_deref(), event, Source::Command);
        Ok(heard)
    }

    /// Handles the passing of calendar time.
    pub(super) fn handle_time(&mut self, now: Instant, utc: Utc) {
        let Some(schedule) = &mut self.schedule else { return };
        let events = schedule.handle_time(utc);
        let interface = schedule.interface().map(str::to_owned);
        for event in events {
            self.signal(now, interface.as_deref(), event, Source::Schedule);
        }
    }

    /// Handles the Wi-Fi level of an interface; `None` if it is not associated.
    pub(super) fn handle_level(&mut self, now: Instant, interface: &str, level: Option<Dbm>) {
        let watch = self.links.get_mut(interface).and_then(|link| link.wifi.as_mut());
        if let Some(event) = watch.and_then(|watch| watch.handle_level(now, level)) {
            self.signal(now, Some(interface), event, Source::Wifi);
        }
    }

    /// The driver of a Wi-Fi interface misses beacons, or gets no acknowledgements.
    pub(super) fn handle_losses(&mut self, now: Instant, interface: &str) {
        let watch = self.links.get_mut(interface).and_then(|link| link.wifi.as_mut());
        if let Some(event) = watch.and_then(WifiWatch::handle_losses) {
            self.signal(now, Some(interface), event, Source::Wifi);
        }
    }

    /// An interface has no Wi-Fi.
    pub(super) fn forget_wifi(&mut self, interface: &str) {
        if let Some(link) = self.links.get_mut(interface) {
            link.wifi = None;
        }
        if self.links.values().all(|link| link.wifi.is_none()) {
            self.wifi_due = None;
        }
    }

    /// The interfaces whose Wi-Fi level is to be measured now.
    pub(super) fn take_wifi_due(&mut self, now: Instant) -> Vec<Box<str>> {
        if self.wifi_due.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let Time(every) = self.config.signals.wifi.every;
        self.wifi_due = Some(now + every.max(Duration::from_millis(10)));
        self.links.values().filter(|link| link.wifi.is_some()).map(|link| link.name.clone()).collect()
    }

    /// An interface's engine is ready.
    pub(super) fn handle_ready(&mut self, now: Instant, interface: &str) {
        if let Some(link) = self.links.get_mut(interface) {
            link.handle_ready(now);
        }
    }

    /// Handles deadlines that have passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let config = self.config.wake.to_machine();
        for link in self.links.values_mut().filter(|link| link.poll_timeout().is_some_and(|at| at <= now)) {
            link.handle_timeout(now, &mut self.attach, &config);
        }
        self.remove_gone_links();
    }

    /// Removes interfaces that do not exist and whose state is no longer kept.
    fn remove_gone_links(&mut self) {
        self.links.retain(|_, link| !link.is_over());
    }

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.links.values().filter_map(Link::poll_timeout).chain(self.wifi_due).min()
    }

    /// The next time of the timetable.
    pub(super) fn poll_time(&self, utc: Utc) -> Option<Utc> {
        self.schedule.as_ref().and_then(|schedule| schedule.poll_time(utc))
    }

    /// The descriptors of the engines.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.links.values().filter_map(|link| match &link.path {
            Path::Attached(engine) => Some((&*link.name, engine.descriptor()?)),
            Path::LeftAlone | Path::Failed { .. } => None,
        })
    }

    /// Notes actions on connections that are not of engines.
    pub(super) fn note_actions(&mut self, actions: Vec<ActionLine>) {
        self.own_actions.extend(actions);
    }

    /// The actions since the last call.
    pub(super) fn take_actions(&mut self, now: Instant, utc: Utc) -> Vec<ActionLine> {
        let mut fresh = std::mem::take(&mut self.own_actions);
        fresh.extend(self.links.values_mut().flat_map(|link| link.take_actions(now, utc)));
        self.actions.extend(fresh.iter().cloned());
        let surplus = self.actions.len().saturating_sub(MOST_ACTIONS);
        self.actions.drain(..surplus);
        fresh
    }

    /// The connections in the path of all links, and whether they are exempt.
    pub(super) fn in_path(&mut self, now: Instant) -> Vec<(Connection, bool)> {
        self.links.values_mut().flat_map(|link| link.in_path(now)).collect()
    }

    /// Exempts connections, or ends exemptions.
    pub(super) fn leave_alone(&mut self, decisions: &[(Connection, bool)]) {
        for engine in self.links.values_mut().filter_map(Link::engine) {
            for &(connection, alone) in decisions.iter() {
                engine.leave_alone(connection, alone);
            }
        }
    }

    /// The last actions, oldest first.
    pub(super) fn actions(&self) -> impl Iterator<Item = &ActionLine> {
        self.actions.iter()
    }

    /// Sets the next hops of a link that can be probed, and those that are known to answer.
    pub(super) fn handle_next_hops(
        &mut self,
        interface: &str,
        next_hops: &BTreeSet<IpAddr>,
        known: impl IntoIterator<Item = IpAddr>,
    ) {
        if let Some(link) = self.links.get_mut(interface) {
            link.handle_next_hops(next_hops, known);
        }
    }

    /// A next hop has answered.
    pub(super) fn handle_next_hop_answer(&mut self, now: Instant, interface: &str, next_hop: IpAddr) {
        if let Some(link) = self.links.get_mut(interface) {
            link.handle_next_hop_answer(now, next_hop);
        }
    }

    /// The links whose next hops are to be probed now.
    pub(super) fn take_questions(&mut self) -> Vec<(Box<str>, Question)> {
        self.links.values_mut().filter_map(|link| Some((link.name.clone(), link.take_question()?))).collect()
    }

    /// The state of a link, and the time of its predicted cut.
    pub(super) fn outlook(&self, interface: &str) -> Option<(LinkCondition, Option<Instant>)> {
        let link = self.links.get(interface)?;
        Some((link.arbiter.state(), link.arbiter.foreseen_cut()))
    }

    /// The managed links.
    pub(super) fn managed_links(&self) -> Vec<String> {
        self.links.values().filter(|link| link.is_managed()).map(|link| link.name.to_string()).collect()
    }

    /// The state of everything.
    pub(super) fn status(&mut self, now: Instant, utc: Utc) -> Status {
        let next_cut = self.schedule.as_ref().and_then(|schedule| schedule.next_cut(utc));
        let next_cut_s = next_cut.map(|Utc(cut_at)| cut_at.saturating_since(utc.0).as_secs_f64());
        let of_schedule = self.schedule.as_ref().map(ScheduleWatch::interface);
        let mut links = Vec::new();
        let mut connections = Vec::new();
        for link in self.links.values_mut().filter(|link| link.is_managed()) {
            let is_scheduled = of_schedule.is_some_and(|name| name.is_none_or(|name| name == &*link.name));
            let mut status = link.status(now);
            status.next_cut_s = next_cut_s.filter(|_| is_scheduled);
            links.push(status);
            connections.extend(link.connections(now));
        }
        let connections_in_all = connections.len() as u64;
        let idle = |idle_s: Option<f64>| idle_s.unwrap_or(f64::INFINITY);
        connections.sort_by(|a, b| idle(a.idle_s).total_cmp(&idle(b.idle_s)));
        connections.truncate(MOST_CONNECTIONS);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running_s: now.saturating_since(self.started).as_secs_f64(),
            dry_run: self.dry_run,
            counters: links.iter().fold(Counters::default(), |sum, link| sum.and(link.counters)),
            links,
            connections,
            connections_in_all,
            user_timeouts: UserTimeoutStatus::default(),
            containers: None,
        }
    }

    /// Attaches to an interface or detaches from it, as configured.
    fn update_link(&mut self, now: Instant, interface: &str) {
        let config = self.config.wake.to_machine();
        let Some(link) = self.links.get_mut(interface) else { return };
        let is_wanted = if self.named.is_empty() {
            self.config.links.asks_for(interface).unwrap_or(link.is_eligible)
        } else {
            self.named.iter().any(|named| named == interface)
        };
        link.update_attachment(now, is_wanted, &mut self.attach, &config);
        if is_wanted && link.wifi.is_none() {
            link.wifi = self.config.signals.wifi.options().map(WifiWatch::new);
        } else if !is_wanted {
            link.wifi = None;
        }
        let options = self.config.signals.silence_options().filter(|_| is_wanted);
        link.watch_for_silence(now, options);
        let any_wifi = self.links.values().any(|link| link.wifi.is_some());
        self.wifi_due = any_wifi.then(|| self.wifi_due.unwrap_or(now));
    }

    /// Signals one link, or all managed links.
    fn signal(&mut self, now: Instant, interface: Option<&str>, event: LinkEvent, source: Source) {
        let names: Vec<Box<str>> = match interface {
            Some(interface) => vec![interface.into()],
            None => self.links.values().filter(|link| link.is_managed()).map(|link| link.name.clone()).collect(),
        };
        for interface in names {
            self.handle_signal(now, &Signal::new(now, &interface, event, source));
        }
    }

    fn handle_signal(&mut self, now: Instant, signal: &Signal) {
        let is_believed = self.config.signals.believes(signal.source);
        if let Some(link) = self.links.get_mut(&signal.interface).filter(|_| is_believed) {
            link.handle_signal(now, signal);
        }
    }
}

#[cfg(test)]
mod tests;
