//! **Asking the gateway.** A gateway, or the radio behind it, may fall silent while the carrier stays. The kernel asks it for a sign of
//! life only while something is sent, and after up to 40 s; and when it is silent, that it is back is noticed when something is sent
//! again. Both is too late to be of use. So it is asked when there is reason to:
//!
//! - TCP sends, and nothing at all comes in for a while (RFC 4861 section 7.3.1: no *forward progress*);
//! - what came in as a stream has stopped, which may be its end or the link's;
//! - the link is said to be down because the gateway does not answer: then until it does.
//!
//! Three questions in a row without an answer (RFC 4861 section 10, `MAX_UNICAST_SOLICIT`) say that the link is down, if nothing else
//! has come in meanwhile either. Some gateways answer no such question although they forward what is sent: the silence of one that has
//! never answered means nothing. So each is asked once when TCP is first seen at work: only to know whether it answers. Where there are
//! several, the link is down if none of them answers and each has before. Nor does it mean anything if a question could not be sent.
//!
//! While a link is idle, and while what is sent is answered, nothing is asked but that.
//!
//! The shell calls, every time that [`GatewayWatch::poll_timeout`] names: [`GatewayWatch::handle_answer`] for each that there was,
//! [`GatewayWatch::handle_held_down`] and [`GatewayWatch::handle_traffic`], then [`GatewayWatch::poll_act`] once; and
//! [`GatewayWatch::handle_failure`] if anything of this cannot be done.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use crate::config::{GatewayQuestions, Time};

/// The gateways of one interface.
#[derive(Clone, Debug)]
pub struct GatewayWatch {
    gateways: BTreeSet<IpAddr>,
    /// Those of them that have answered a question.
    answered: BTreeSet<IpAddr>,
    after: Duration,
    every: Duration,
    /// What had passed when it was looked at last.
    traffic: Option<Traffic>,
    look_at: Instant,
    /// When TCP was seen to be at work last.
    active_at: Option<Instant>,
    /// When something was seen to have come in last.
    heard_at: Instant,
    /// When something came in as a stream.
    stream_at: Option<Instant>,
    silence: Option<Silence>,
    phase: Phase,
    /// When it was asked last.
    asked_at: Option<Instant>,
    /// The same, even if the question could not be sent.
    tried_at: Option<Instant>,
    /// Three questions in a row were not answered by one that never has: its silence is no reason to ask any more.
    is_mute: bool,
    /// TCP is at work, and that is not known.
    is_to_be_met: bool,
    /// Some are being asked by the kernel that need not answer any more.
    is_to_be_taken_back: bool,
}

/// What has passed an interface since some time in the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// TCP packets, both ways.
    pub tcp_packets: u64,
    /// Packets of any kind that came in.
    pub received: u64,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Ask the gateways whose Ethernet address is known, at once and at that address.
    Ask,
    /// Ask the gateways whose Ethernet address is known, and everyone on the link for the others, unless that is being done.
    Seek,
    /// Those who have never answered need not any more.
    TakeBack,
    /// None of the gateways answers: the link is down.
    TellDown,
}

/// TCP sends, and nothing comes in.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Instant,
    /// What was sent is more than an acknowledgement of what had come in.
    wants_answer: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// There is no reason to ask.
    Calm,
    /// It is being asked.
    Asking {
        /// So many times so far.
        questions: u32,
        /// When it has had time to answer the last one.
        next_at: Instant,
    },
    /// The link is said to be down because it does not answer.
    HeldDown,
}

/// RFC 4861 section 10: `MAX_UNICAST_SOLICIT`.
const QUESTIONS: u32 = 3;

/// So often it is looked what has passed, while TCP is at work or the link is down.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// So often otherwise.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// TCP is at work for so long after its last packet.
const ACTIVE_FOR: Duration = Duration::from_secs(5);

/// What is sent later than this after something came in does not acknowledge it: the longest that an ACK may be delayed (RFC 9293
/// section 3.8.6.3).
const LONGEST_DELAYED_ACK: Duration = Duration::from_millis(500);

/// So many packets that come in between two looks are a stream: fewer may be somebody who types.
const STREAM_PACKETS: u64 = 8;

/// One that has answered no question is asked again after so long, while packets come in: it may answer by now.
const MEET_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// An answer that comes later than this after the last question is none to it: after 5 s the kernel asks by itself
/// (`delay_first_probe_time`, RFC 4861 section 10).
const LATEST_ANSWER: Duration = Duration::from_secs(3);

impl GatewayWatch {
    /// Nothing is known of the gateways. `None` if the configuration wants nothing to be asked.
    pub fn new(now: Instant, config: &GatewayQuestions, gateways: BTreeSet<IpAddr>) -> Option<Self> {
        let (Time(after), Time(every)) = (config.after, config.every);
        config.ask.then(|| Self {
            gateways,
            answered: BTreeSet::new(),
            after: after.max(LOOK_EVERY),
            every: every.max(LOOK_EVERY),
            traffic: None,
            look_at: now,
            active_at: None,
            heard_at: now,
            stream_at: None,
            silence: None,
            phase: Phase::Calm,
            asked_at: None,
            is_mute: false,
            tried_at: None,
            is_to_be_met: false,
            is_to_be_taken_back: false,
        })
    }

    /// So much has passed until now.
    pub fn handle_traffic(&mut self, now: Instant, traffic: Traffic) {
        let Some(before) = self.traffic.replace(traffic) else {
            self.heard_at = now;
            return;
        };
        // An interface that was made anew counts from 0.
        let received = traffic.received.checked_sub(before.received).unwrap_or(traffic.received);
        let passed = traffic.tcp_packets != before.tcp_packets;
        if passed {
            self.active_at = Some(now);
        }
        if received > 0 {
            self.heard_at = now;
            self.silence = None;
            let is_unknown = match self.tried_at {
                None => true,
                Some(tried_at) => self.is_mute && now.saturating_since(tried_at) >= MEET_AGAIN_AFTER,
            };
            self.is_to_be_met |= passed && is_unknown;
            if passed && received >= STREAM_PACKETS {
                self.stream_at = Some(now);
            }
        } else if passed {
            // Sent, since nothing came in.
            let is_recent = now.saturating_since(self.heard_at) < self.after;
            let silence = self
                .silence
                .get_or_insert(Silence { since: if is_recent { self.heard_at } else { now }, wants_answer: false });
            silence.wants_answer |= now.saturating_since(self.heard_at) > LONGEST_DELAYED_ACK;
        }
    }

    /// A gateway has answered.
    pub fn handle_answer(&mut self, now: Instant, gateway: IpAddr) {
        if self.asked_at.is_some_and(|asked_at| now.saturating_since(asked_at) <= LATEST_ANSWER) {
            self.answered.insert(gateway);
            self.is_mute = false;
        }
        if self.is_waiting() {
            // The others need not.
            self.is_to_be_taken_back = self.gateways.len() > 1;
            self.calm(now);
        }
    }

    /// Whether one of the gateways has answered a question: if it is silent now, the kernel may well find out.
    pub fn has_answered(&self, gateway: IpAddr) -> bool {
        self.answered.contains(&gateway)
    }

    /// Whether the link is said to be down because no gateway answers.
    pub fn handle_held_down(&mut self, now: Instant, is_held_down: bool) {
        match (is_held_down, self.phase) {
            (true, Phase::Calm | Phase::Asking { .. }) => self.phase = Phase::HeldDown,
            (false, Phase::HeldDown) => {
                // Not for an answer: packets, or a command, have overruled it.
                self.is_to_be_taken_back = true;
                self.calm(now);
            }
            _ => {}
        }
    }

    /// It cannot be seen what has passed, or a question could not be sent: that there is no answer means nothing.
    pub fn handle_failure(&mut self, now: Instant) {
        self.asked_at = None;
        self.is_to_be_taken_back |= self.is_waiting();
        if let Phase::Asking { .. } = self.phase {
            self.calm(now);
        }
        self.look_at = now + self.look_every(now);
    }

    /// Whether the kernel has been told to ask, and there is no answer yet.
    pub const fn is_waiting(&self) -> bool {
        !matches!(self.phase, Phase::Calm)
    }

    /// What is to be done now.
    pub fn poll_act(&mut self, now: Instant) -> Option<Act> {
        let act = self.decide(now);
        self.look_at = now + self.look_every(now);
        act
    }

    /// When to look again.
    pub const fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    fn decide(&mut self, now: Instant) -> Option<Act> {
        if std::mem::take(&mut self.is_to_be_taken_back) && !self.is_waiting() {
            return Some(Act::TakeBack);
        }
        match self.phase {
            // The kernel then asks once a second, three times; what is asked for while it does changes nothing.
            Phase::HeldDown => Some(Act::Seek),
            Phase::Calm => self.has_reason(now).then(|| self.ask(now, 0)),
            Phase::Asking { .. } if self.has_heard_since_asked() => {
                self.calm(now);
                Some(Act::TakeBack)
            }
            Phase::Asking { next_at, .. } if now < next_at => None,
            Phase::Asking { questions, .. } if questions < QUESTIONS => Some(self.ask(now, questions)),
            Phase::Asking { .. } => Some(self.judge(now)),
        }
    }

    /// Whether it is to be asked.
    fn has_reason(&self, now: Instant) -> bool {
        let is_unanswered =
            |silence: &Silence| silence.wants_answer && now.saturating_since(silence.since) >= self.after;
        // The last that came in belonged to the stream.
        let was_stream = self.stream_at.is_some_and(|at| self.heard_at.saturating_since(at) <= LOOK_EVERY * 2);
        let has_stopped = was_stream && now.saturating_since(self.heard_at) >= self.after;
        self.is_to_be_met || (!self.is_mute && (self.silence.as_ref().is_some_and(is_unanswered) || has_stopped))
    }

    fn ask(&mut self, now: Instant, questions: u32) -> Act {
        self.phase = Phase::Asking { questions: questions + 1, next_at: now + self.every };
        (self.asked_at, self.tried_at, self.is_to_be_met) = (Some(now), Some(now), false);
        Act::Ask
    }

    fn has_heard_since_asked(&self) -> bool {
        self.asked_at.is_some_and(|asked_at| self.heard_at > asked_at)
    }

    /// It has not answered.
    fn judge(&mut self, now: Instant) -> Act {
        self.calm(now);
        self.is_mute = !self.gateways.is_subset(&self.answered);
        if self.is_mute {
            return Act::TakeBack;
        }
        self.phase = Phase::HeldDown;
        Act::TellDown
    }

    /// It is not asked again before there is new reason to.
    fn calm(&mut self, now: Instant) {
        (self.phase, self.silence, self.stream_at, self.heard_at) = (Phase::Calm, None, None, now);
    }

    fn look_every(&self, now: Instant) -> Duration {
        let is_active = self.active_at.is_some_and(|at| now.saturating_since(at) < ACTIVE_FOR);
        if is_active || self.is_waiting() { LOOK_EVERY } else { IDLE_LOOK_EVERY }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER_GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// A watch, and the link that it looks at.
    struct World {
        watch: GatewayWatch,
        now: Instant,
        traffic: Traffic,
        is_held_down: bool,
    }

    impl World {
        /// Its gateway was asked once, and has answered.
        fn new() -> Self {
            let mut world = Self::mute();
            assert_eq!(world.look(0, 0), None);
            assert_eq!(world.look(5, 5), Some(Act::Ask));
            world.watch.handle_answer(world.now, GATEWAY);
            world
        }

        /// Its gateway answers no questions.
        fn mute() -> Self {
            Self::of([GATEWAY])
        }

        fn of<const COUNT: usize>(gateways: [IpAddr; COUNT]) -> Self {
            let config = GatewayQuestions { ask: true, ..Default::default() };
            let watch = GatewayWatch::new(Instant::from_secs(10), &config, gateways.into()).unwrap();
            let traffic = Traffic { tcp_packets: 100, received: 1000 };
            Self { watch, now: Instant::from_secs(10), traffic, is_held_down: false }
        }

        /// The next look, between which and the one before so many packets were sent, and came in.
        fn look(&mut self, sent: u64, received: u64) -> Option<Act> {
            self.now = self.watch.poll_timeout().max(self.now);
            self.traffic.tcp_packets += sent + received;
            self.traffic.received += received;
            self.watch.handle_held_down(self.now, self.is_held_down);
            self.watch.handle_traffic(self.now, self.traffic);
            let act = self.watch.poll_act(self.now);
            self.is_held_down |= act == Some(Act::TellDown);
            act
        }

        /// The same, again and again until so much time has passed: what was done, with the milliseconds after the beginning.
        fn looks(&mut self, millis: u64, sent: u64, received: u64) -> Vec<(u64, Act)> {
            let began = self.now;
            let mut acts = Vec::new();
            while self.now.saturating_since(began) < Duration::from_millis(millis) {
                let act = self.look(sent, received);
                acts.extend(act.map(|act| (self.now.saturating_since(began).as_nanos() / 1_000_000, act)));
            }
            acts
        }
    }

    fn kinds(acts: &[(u64, Act)]) -> Vec<Act> {
        acts.iter().map(|&(_, act)| act).collect()
    }

    #[test]
    fn an_upload_that_is_cut_is_noticed_within_three_seconds() {
        let mut world = World::new();
        assert_eq!(world.looks(5000, 50, 20), []);
        let acts = world.looks(3000, 1, 0);
        assert_eq!(kinds(&acts)[..4], [Act::Ask, Act::Ask, Act::Ask, Act::TellDown], "{acts:?}");
        let at: Vec<u64> = acts.iter().map(|&(at, _)| at).collect();
        assert_eq!(at[..4], [1000, 1500, 2000, 2500]);
        assert!(kinds(&acts)[4..].iter().all(|&act| act == Act::Seek), "{acts:?}");
        world.watch.handle_answer(world.now, GATEWAY);
        world.is_held_down = false;
        assert_eq!(world.looks(2000, 10, 10), []);
    }

    #[test]
    fn an_idle_link_and_one_that_answers_are_not_asked() {
        let mut world = World::new();
        assert_eq!(world.looks(60_000, 0, 0), []);
        assert_eq!(world.looks(60_000, 3, 2), []);
        // A stream that comes to its end is asked about once.
        assert_eq!(world.looks(5_000, 5, 20), []);
        assert_eq!(world.look(1, 0), None, "a delayed ACK");
        assert_eq!(world.looks(500, 0, 0), []);
        assert_eq!(world.look(0, 0), Some(Act::Ask));
        world.watch.handle_answer(world.now, GATEWAY);
        assert_eq!(world.looks(60_000, 0, 0), []);
    }

    #[test]
    fn the_last_acknowledgement_is_no_question() {
        let mut world = World::new();
        assert_eq!(world.looks(2000, 1, 2), []);
        assert_eq!(world.look(1, 0), None);
        assert_eq!(world.looks(60_000, 0, 0), []);
    }

    #[test]
    fn a_question_of_an_idle_link_is_given_time_for_its_answer() {
        let mut world = World::new();
        world.looks(30_000, 0, 0);
        assert_eq!(world.look(1, 0), None);
        assert_eq!(world.looks(750, 1, 0), []);
        assert_eq!(world.look(1, 0), Some(Act::Ask));
    }

    #[test]
    fn a_gateway_that_answers_no_question_is_never_called_down() {
        let mut world = World::mute();
        let mut acts = Vec::new();
        for _ in 0..20 {
            // A peer that thinks for a second and a half, one that is gone, the end of a stream, and an idle link.
            for (millis, sent, received) in
                [(1000, 5, 20), (1500, 1, 0), (1000, 5, 20), (5000, 1, 0), (1000, 5, 20), (10_000, 0, 0)]
            {
                acts.extend(kinds(&world.looks(millis, sent, received)));
            }
        }
        assert!(acts.contains(&Act::Ask) && !acts.contains(&Act::TellDown), "{acts:?}");
        // Each time that nothing comes of it the kernel is told so.
        assert_eq!(acts.last(), Some(&Act::TakeBack));
        // It is asked again once a minute, while packets come in; should it answer then, its silence means something.
        let began = world.now;
        while world.look(5, 20) != Some(Act::Ask) {
            assert!(world.now.saturating_since(began) <= MEET_AGAIN_AFTER);
        }
        world.watch.handle_answer(world.now, GATEWAY);
        world.looks(1000, 5, 20);
        assert!(kinds(&world.looks(4000, 1, 0)).contains(&Act::TellDown));
    }

    #[test]
    fn a_gateway_is_met_when_tcp_is_first_at_work() {
        let mut world = World::mute();
        // Something comes in that is not TCP.
        for _ in 0..10 {
            world.traffic.received += 1;
            assert_eq!(world.look(0, 0), None);
        }
        assert_eq!(world.look(1, 1), Some(Act::Ask));
        assert_eq!(world.look(1, 1), Some(Act::TakeBack));
        assert_eq!(world.looks(10_000, 1, 1), []);
    }

    #[test]
    fn a_stream_that_stops_and_a_gateway_that_does_so_too_is_a_cut() {
        let mut world = World::new();
        world.looks(2000, 5, 20);
        let acts = kinds(&world.looks(3000, 0, 0));
        assert_eq!(acts[..4], [Act::Ask, Act::Ask, Act::Ask, Act::TellDown]);
    }

    #[test]
    fn off_is_off() {
        let config = GatewayQuestions { ask: false, ..Default::default() };
        assert!(GatewayWatch::new(Instant::ZERO, &config, [GATEWAY].into()).is_none());
    }

    #[test]
    fn of_several_gateways_each_has_to_have_answered() {
        let mut world = World::of([GATEWAY, OTHER_GATEWAY]);
        world.look(0, 0);
        assert_eq!(world.look(5, 5), Some(Act::Ask));
        world.watch.handle_answer(world.now, GATEWAY);
        world.looks(2000, 5, 5);
        let acts = kinds(&world.looks(5000, 1, 0));
        assert!(acts.ends_with(&[Act::Ask, Act::TakeBack]) && !acts.contains(&Act::TellDown), "{acts:?}");
        world.watch.handle_answer(world.now, OTHER_GATEWAY);
        world.looks(2000, 5, 5);
        assert!(kinds(&world.looks(5000, 1, 0)).contains(&Act::TellDown));
    }

    #[test]
    fn a_question_that_could_not_be_sent_is_not_unanswered() {
        let mut world = World::new();
        world.looks(2000, 5, 5);
        for _ in 0..40 {
            if let Some(act) = world.look(1, 0) {
                assert_eq!(act, Act::Ask);
                world.watch.handle_failure(world.now);
                let next = world.watch.poll_timeout();
                assert!(next > world.now && !world.watch.is_waiting());
                assert_eq!(world.look(1, 0), Some(Act::TakeBack), "another gateway may have been asked");
            }
        }
    }

    #[test]
    fn who_is_overruled_while_the_link_is_down_may_say_so_again() {
        let mut world = World::new();
        world.looks(2000, 5, 5);
        assert!(kinds(&world.looks(3000, 1, 0)).contains(&Act::TellDown));
        // Packets come in all the same.
        world.is_held_down = false;
        assert_eq!(world.look(5, 5), Some(Act::TakeBack));
        assert_eq!(world.looks(2000, 5, 5), []);
        assert!(kinds(&world.looks(3000, 1, 0)).contains(&Act::TellDown));
        // An answer leaves nothing to be taken back.
        world.watch.handle_answer(world.now, GATEWAY);
        world.is_held_down = false;
        assert_eq!(world.looks(2000, 5, 5), []);
    }

    proptest! {
        /// Whatever passes: after the first question nothing is asked where nothing was sent since the last packet came in, unless that
        /// was one of a stream; the link is told to be down after three questions and nothing that came in only, of a gateway that
        /// has answered; and what is asked is not asked more often than twice a second.
        #[test]
        fn what_is_asked_has_a_reason(
            looks in prop::collection::vec((0..3u64, prop::sample::select(vec![0u64, 0, 0, 1, 20]), 0..8u32), 0..400)
        ) {
            let mut world = World::mute();
            let (mut questions, mut asked_at, mut has_sent, mut has_streamed) = (0, None, false, false);
            let (mut streamed_at, mut has_answered) = (Instant::ZERO, false);
            for (sent, received, what) in looks {
                let act = world.look(sent, received);
                if received > 0 {
                    (questions, has_sent) = (0, false);
                    streamed_at = if received >= STREAM_PACKETS { world.now } else { streamed_at };
                    has_streamed = world.now.saturating_since(streamed_at) <= LOOK_EVERY * 2;
                }
                has_sent |= sent > 0;
                match act {
                    Some(Act::Ask) => {
                        let has_been_long = |at| world.now.saturating_since(at) >= MEET_AGAIN_AFTER;
                        let is_first = asked_at.is_none_or(has_been_long);
                        prop_assert!(!world.is_held_down && (received == 0 || is_first));
                        // Who is being asked already is asked three times, whatever the reason was.
                        prop_assert!(has_sent || has_streamed || is_first || questions > 0);
                        let since = asked_at.map_or(Duration::from_secs(9), |at| world.now.saturating_since(at));
                        prop_assert!(since >= Duration::from_millis(500));
                        (questions, asked_at) = (questions + 1, Some(world.now));
                    }
                    Some(Act::TellDown) => {
                        prop_assert!(questions == 3 && received == 0 && has_answered);
                        questions = 0;
                    }
                    Some(Act::Seek) => prop_assert!(world.is_held_down),
                    Some(Act::TakeBack) => questions = 0,
                    None => {}
                }
                if what == 0 {
                    // An answer ends it all.
                    (questions, world.is_held_down) = (0, false);
                    has_answered |= asked_at.is_some_and(|at| world.now.saturating_since(at) <= LATEST_ANSWER);
                    world.watch.handle_answer(world.now, GATEWAY);
                    world.watch.handle_held_down(world.now, false);
                }
            }
        }
    }
}
