//! Silence of a link: connects the traffic counters with the detector and the engine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_mobility::LinkEvent;
use holdover_mobility::silence::{Act, SilenceOptions, SilenceWatch};

use super::link::{Link, Path, Question};
use crate::link_watch::{Families, LinkChange, LinkCondition, Source};
use crate::path_engine::PathEngine;

const UP: LinkChange = LinkChange::of_both(LinkEvent::Up { symmetric: false, moved: false });

impl<E: PathEngine> Link<E> {
    /// Starts or stops detecting silence.
    pub(super) fn watch_for_silence(&mut self, now: Instant, options: Option<SilenceOptions>) {
        match options {
            Some(options) if self.silence.is_none() => self.silence = Some(SilenceWatch::new(now, options)),
            Some(_) => {}
            None => self.silence = None,
        }
        if self.is_silent && self.silence.as_ref().is_none_or(|silence| !silence.is_silent()) {
            self.is_silent = false;
            self.note(now, UP);
        }
    }

    /// Sets the next hops that can be probed now, and those that are known to answer.
    pub(super) fn handle_next_hops(&mut self, next_hops: &BTreeSet<IpAddr>, known: impl IntoIterator<Item = IpAddr>) {
        if let Some(silence) = &mut self.silence {
            silence.handle_next_hops(next_hops, known);
        }
    }

    /// A next hop has answered.
    pub(super) fn handle_next_hop_answer(&mut self, now: Instant, next_hop: IpAddr) {
        if let Some(silence) = &mut self.silence {
            silence.handle_answer(now, next_hop);
            self.act_on_silence(now);
        }
    }

    /// The pending probe of next hops.
    pub(super) fn take_question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// The time of the next check.
    pub(super) fn poll_silence(&self) -> Option<Instant> {
        let silence = self.silence.as_ref().filter(|_| self.is_watched())?;
        Some(silence.poll_timeout())
    }

    /// Checks the traffic, if due.
    pub(super) fn check_silence(&mut self, now: Instant) {
        if self.poll_silence().is_none_or(|at| at > now) {
            return;
        }
        let Path::Attached(engine) = &self.path else { return };
        let is_down = self.arbiter.state() == LinkCondition::Down;
        let (traffic, is_listening) = (engine.traffic(), engine.is_silent() || is_down);
        if let Some(silence) = &mut self.silence {
            silence.handle_traffic(now, traffic, is_listening);
            self.act_on_silence(now);
        }
    }

    /// Packets have ended a silence.
    pub(super) fn handle_end_of_silence(&mut self, now: Instant) {
        let is_over = self.engine().is_some_and(|engine| !engine.is_silent());
        if is_over && self.is_silent && self.arbiter.state() != LinkCondition::Down {
            self.is_silent = false;
            tracing::info!(interface = &*self.name, event = %UP, because = "packets arrive again", "link");
            self.note(now, UP);
        }
    }

    /// Another source, which may know better, has reported an event.
    pub(super) fn forget_silence(&mut self, now: Instant, event: LinkEvent) {
        let is_link_change = matches!(event, LinkEvent::Down | LinkEvent::Up { .. });
        // The kernel's own neighbour state is part of the same outage, and changes only while packets are sent.
        let is_part = event == LinkEvent::Down && self.is_watched();
        if is_link_change && !is_part {
            self.is_silent = false;
            if let Some(silence) = &mut self.silence {
                silence.handle_link(now);
            }
        }
    }

    /// Silence is not probed while another source reports the link down; the kernel's own neighbour probes are too rare
    /// to wait for.
    fn is_watched(&self) -> bool {
        let mut objections = self.arbiter.objections();
        let is_up = self.arbiter.state() != LinkCondition::Down;
        matches!(self.path, Path::Attached(_)) && (is_up || objections.all(|source| source == Source::Neighbour))
    }

    fn act_on_silence(&mut self, now: Instant) {
        while let Some(act) = self.silence.as_mut().and_then(|silence| silence.poll_act()) {
            let Path::Attached(engine) = &mut self.path else { return };
            tracing::trace!(interface = &*self.name, ?act, "silence");
            match act {
                Act::Survey => {
                    let survey = engine.survey();
                    if let Some(silence) = &mut self.silence {
                        silence.handle_survey(now, &survey);
                    }
                }
                Act::Listen { since } => engine.handle_silence(now, since),
                Act::AskNextHops { is_broadcast } => {
                    let from = self.silence.as_ref().map(SilenceWatch::own_addresses).unwrap_or_default();
                    self.question = Some(Question { from, is_broadcast });
                }
                Act::AskPeer(connection) => engine.ask_peer(now, connection),
                Act::TellDown { since } => {
                    let silent_s = now.saturating_since(since).as_secs_f64();
                    self.is_silent = true;
                    tracing::info!(interface = &*self.name, event = %LinkEvent::Down, because = "silence", silent_s, "link");
                    self.note(now, LinkChange::of_both(LinkEvent::Down));
                }
                Act::End => {
                    engine.end_silence(now);
                    if self.is_silent {
                        let families = self.arbiter.handle_packets(Families::BOTH);
                        let changes = (!families.is_empty()).then_some(LinkChange { families, ..UP });
                        self.tell(now, changes.as_slice(), &"the next hop answers");
                    }
                    self.handle_end_of_silence(now);
                }
            }
        }
    }
}
