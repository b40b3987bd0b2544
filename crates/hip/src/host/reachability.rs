//! Whether the path that data takes still works, without I/O and without packets: which paths are to be tested and when, and which one data
//! takes.
//!
//! A path is an address of this host and one of the peer. It can stop working while neither host moves: a translator loses a binding, or
//! something on the way begins to drop packets. So data without an answer starts a test, as the Send timer of RFC 5534 section 4 does for
//! multihomed hosts; the test is an UPDATE with an echo request (RFC 8046 section 5.4), and the answer has to come back on the same path.
//!
//! - Nothing has come back on the path for [`PathCheckConfig::after`] since data was sent: it is tested, after half a second also the other
//!   paths between verified addresses, that through a relay included, and once more a second later.
//! - Two and a half seconds after the first test it counts as silent. Data takes the first other path that has answered.
//! - If none has, it is tested every ten seconds while data is sent, with three of the others in turn. The first that answers is used; its
//!   answer is an indicator of connectivity for the layers above.
//! - A path that was left is tested again after 30 s, then at intervals that double up to ten minutes, and is used again if it answers. If it
//!   fails soon afterwards, the interval continues to double: a path that comes and goes is not used in turns with another one.
//!
//! If a path has carried nothing since a host has moved, and the answer to a repeated announcement, or to a check, arrives on another one,
//! data takes that without a test, until something arrives on the first one.
//!
//! Data in one direction is answered by nothing. Each answered test then doubles the time until the next one, up to
//! [`PathCheckConfig::after_at_most`]. Without data nothing is sent.

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

/// An address of this host, and one of the peer.
pub(super) type Between = (IpAddr, IpAddr);

/// When paths are tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathCheckConfig {
    /// How long data is sent without anything from the peer on the path before it is tested.
    pub after: Duration,
    /// The same at most, if tests are answered and nothing else is.
    pub after_at_most: Duration,
}

impl Default for PathCheckConfig {
    /// Three seconds, longer than a round trip and a delayed ACK; and fifteen, the interval of keep-alives (RFC 9028 section 4.10).
    fn default() -> Self {
        Self { after: Duration::from_secs(3), after_at_most: Duration::from_secs(15) }
    }
}

/// The first tests of a round: the time from each to the next, and from the last to the verdict.
const FIRST_TESTS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(1)];
/// The time between tests while no path answers.
const TEST_EVERY: Duration = Duration::from_secs(10);
/// Tests continue for this long after data: a TCP retransmits every two minutes at least (`TCP_RTO_MAX` of Linux).
const TEST_AFTER_DATA: Duration = Duration::from_secs(130);
/// The most other paths that are tested.
const MOST_OTHERS: usize = 3;
/// The time until a path that was left is tested again: doubled with each failure, and limited.
const RETURN_AFTER: Duration = Duration::from_secs(30);
const RETURN_AFTER_AT_MOST: Duration = Duration::from_secs(600);
/// A path that was left and has worked for this long since counts as one that has never failed.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The most paths on which something has arrived that are remembered.
const MOST_HEARD: usize = 16;
/// The most IDs of a test that are remembered.
const MOST_IDS: usize = 4;

/// See the module's documentation.
#[derive(Clone, Default, Debug)]
pub(super) struct Reachability {
    /// The path of the last data.
    used: Option<Between>,
    sent_at: Instant,
    /// The first data on this path since the peer was heard on it.
    unanswered_since: Option<Instant>,
    /// Tests of this path since the peer's last data on it.
    answered_tests: u32,
    /// No path answers, and since when.
    lost_since: Option<Instant>,
    round: Option<Round>,
    detour: Option<Detour>,
    /// Failures of the usual path, and when it was used again.
    failures: u32,
    returned_at: Option<Instant>,
    /// The paths on which something has arrived since addresses have changed, before the first data as well.
    heard: Vec<Between>,
    /// The next of the other paths to be tested while none answers.
    next_other: usize,
    change: Option<PathState>,
}

/// Tests in progress.
#[derive(Clone, Debug)]
struct Round {
    /// That of the path in use is the first one, if it is suspected.
    tests: Vec<Test>,
    /// How often they were sent.
    sent: usize,
    at: Instant,
    /// Whether the path that was left is tested while data takes another one.
    is_return: bool,
}

/// A test of a path.
#[derive(Clone, Debug)]
struct Test {
    between: Between,
    nonce: Option<[u8; 16]>,
    ids: Vec<u32>,
    is_answered: bool,
}

/// Data takes another path than usual.
#[derive(Clone, Copy, Debug)]
struct Detour {
    usual: Between,
    taken: Between,
    return_at: Instant,
    /// The detour began without a test of the usual path: any packet that arrives there ends it.
    is_presumed: bool,
}

/// A change, for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    /// This path is silent, or presumed to be. Data takes the other one, if there is one.
    Silent { between: Between, instead: Option<Between>, is_presumed: bool },
    /// This path answers again. No path had answered for that time; or, without a time, data had taken another one.
    Answers { between: Between, after: Option<Duration> },
}

impl Reachability {
    /// The addresses of a host have changed, so all knowledge of the paths is outdated.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Addresses have changed, but neither the usual path nor the one that data takes instead: data stays there. Tests of paths that are gone,
    /// and a silence of all paths, are outdated.
    pub(super) fn keep_detour(&mut self) {
        if self.lost_since.is_some() {
            self.reset();
        }
        (self.round, self.unanswered_since) = (None, None);
    }

    /// The peer prefers another one of its addresses, and has the same ones as before: what is known of the paths remains valid, but another one
    /// is the usual one.
    pub(super) fn rebase(&mut self, usual: Between) {
        self.round.take_if(|round| round.is_return);
        self.detour.take_if(|detour| detour.taken == usual);
        self.detour.iter_mut().for_each(|detour| detour.usual = usual);
    }

    /// The path of data, given the usual one. `is_there` says whether a path is between verified addresses still.
    pub(super) fn route(&mut self, usual: Between, is_there: impl Fn(Between) -> bool) -> Between {
        match self.detour {
            Some(detour) if detour.usual == usual && is_there(detour.taken) => detour.taken,
            Some(_) => {
                self.reset();
                usual
            }
            None => usual,
        }
    }

    /// The path of the last data since addresses have changed.
    pub(super) const fn used(&self) -> Option<Between> {
        self.used
    }

    /// The usual path, and the other one that data takes because tests of the usual one were not answered.
    pub(super) fn detour(&self) -> Option<(Between, Between)> {
        self.detour.filter(|detour| !detour.is_presumed).map(|detour| (detour.usual, detour.taken))
    }

    /// Data is sent on a path.
    pub(super) fn note_sent(&mut self, now: Instant, between: Between) {
        if self.used != Some(between) {
            // No path has answered yet, whichever data takes.
            let lost_since = self.lost_since;
            self.use_path(between);
            self.lost_since = lost_since;
        }
        self.sent_at = now;
        self.unanswered_since.get_or_insert(now);
        if self.round.is_some() {
            return;
        }
        if self.lost_since.is_some() {
            // Without data for long, the tests have ended.
            self.round =
                Some(Round { tests: vec![Test::new(between)], sent: FIRST_TESTS.len(), at: now, is_return: false });
        } else if let Some(detour) = self.detour.filter(|detour| detour.return_at <= now) {
            self.round = Some(Round { tests: vec![Test::new(detour.usual)], sent: 0, at: now, is_return: true });
        }
    }

    /// An authentic packet of the peer arrived on a path: data of it, or another packet.
    pub(super) fn note_heard(&mut self, now: Instant, between: Between, is_data: bool) {
        if !self.heard.contains(&between) {
            if self.heard.len() >= MOST_HEARD {
                self.heard.remove(0);
            }
            self.heard.push(between);
        }
        if self.detour.take_if(|detour| detour.is_presumed && detour.usual == between).is_some() {
            self.use_path(between);
            self.change = Some(PathState::Answers { between, after: None });
        }
        if self.used != Some(between) {
            return;
        }
        if is_data {
            self.answered_tests = 0;
        }
        self.note_alive(now, between);
    }

    fn note_alive(&mut self, now: Instant, between: Between) {
        self.unanswered_since = None;
        self.round.take_if(|round| !round.is_return);
        if let Some(since) = self.lost_since.take() {
            self.change = Some(PathState::Answers { between, after: Some(now.saturating_since(since)) });
        }
    }

    /// The answer to a test arrived on this path; `false` if there is no such test.
    pub(super) fn note_answer(&mut self, now: Instant, nonce: &[u8], between: Between) -> bool {
        let Some(round) = &mut self.round else { return false };
        let is_it = |test: &&mut Test| test.between == between && test.nonce.is_some_and(|it| it[..] == *nonce);
        let Some(test) = round.tests.iter_mut().find(is_it) else { return false };
        test.is_answered = true;
        // Another acknowledgement of them is a replay.
        test.ids.clear();
        if round.is_return {
            self.round = None;
            self.detour = None;
            self.returned_at = Some(now);
            self.use_path(between);
            self.change = Some(PathState::Answers { between, after: None });
        } else if self.used == Some(between) {
            self.answered_tests = self.answered_tests.saturating_add(1);
            self.note_alive(now, between);
        } else if let (Some(used), Some(_)) = (self.used, self.lost_since) {
            self.change_to(now, used, between);
        }
        true
    }

    /// This path works, unlike the usual one, it seems. Data takes it if the usual one has carried nothing since addresses have changed.
    pub(super) fn divert(&mut self, now: Instant, usual: Between, between: Between) {
        let has_worked = self.heard.contains(&usual);
        if has_worked || self.detour.is_some() || between == usual || self.used.is_some_and(|used| used != usual) {
            return;
        }
        self.change_to(now, usual, between);
        self.detour.iter_mut().for_each(|detour| detour.is_presumed = true);
        self.change = Some(PathState::Silent { between: usual, instead: Some(between), is_presumed: true });
    }

    /// Whether no path answers.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost_since.is_some()
    }

    /// Whether an acknowledgement with one of these IDs is awaited.
    pub(super) fn awaits(&self, acks: &[u32]) -> bool {
        let tests = self.round.iter().flat_map(|round| &round.tests);
        tests.flat_map(|test| &test.ids).any(|id| acks.contains(id))
    }

    /// The next deadline of [`Self::handle_timeout`].
    pub(super) fn poll_timeout(&self, config: &PathCheckConfig) -> Option<Instant> {
        match &self.round {
            Some(round) => Some(round.at),
            None if self.lost_since.is_some() => None,
            None => self.unanswered_since.map(|since| since + self.patience(config)),
        }
    }

    fn patience(&self, config: &PathCheckConfig) -> Duration {
        config.after.saturating_shl(self.answered_tests).min(config.after_at_most)
    }

    /// Handles a deadline: returns the paths to test. `others` are all further paths between verified addresses, the best ones first.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        config: &PathCheckConfig,
        others: impl Fn(Between) -> Vec<Between>,
    ) -> Vec<Between> {
        if self.poll_timeout(config).is_none_or(|at| at > now) {
            return Vec::new();
        }
        let Some(used) = self.used else { return Vec::new() };
        let round = self.round.get_or_insert_with(|| Round {
            tests: vec![Test::new(used)],
            sent: 0,
            at: now,
            is_return: false,
        });
        if round.sent >= FIRST_TESTS.len() {
            if round.is_return {
                self.round = None;
                self.postpone_return(now);
                return Vec::new();
            }
            if let Some(other) = round.tests.iter().find(|test| test.is_answered).map(|test| test.between) {
                self.change_to(now, used, other);
                return Vec::new();
            }
            if self.lost_since.is_none() {
                self.lost_since = Some(self.unanswered_since.unwrap_or(now));
                self.change = Some(PathState::Silent { between: used, instead: None, is_presumed: false });
            }
            if now.saturating_since(self.sent_at) >= TEST_AFTER_DATA {
                self.round = None;
                return Vec::new();
            }
        }
        if round.sent > 0 && !round.is_return {
            let others = others(used);
            if self.lost_since.is_some() && others.len() > MOST_OTHERS {
                round.tests.retain(|test| test.between == used);
                round
                    .tests
                    .extend(others.iter().cycle().skip(self.next_other).take(MOST_OTHERS).copied().map(Test::new));
                self.next_other = (self.next_other + MOST_OTHERS) % others.len();
            } else {
                let known: Vec<Between> = round.tests.iter().map(|test| test.between).collect();
                let new = others.into_iter().filter(|it| !known.contains(it));
                let room = (1 + MOST_OTHERS).saturating_sub(known.len());
                round.tests.extend(new.take(room).map(Test::new));
            }
        }
        round.at = now + FIRST_TESTS.get(round.sent).copied().unwrap_or(TEST_EVERY);
        round.sent = round.sent.saturating_add(1);
        round.tests.iter().filter(|test| !test.is_answered).map(|test| test.between).collect()
    }

    /// A test of this path is sent with this ID. Returns its nonce: that of its first transmission.
    pub(super) fn note_test(&mut self, between: Between, id: u32, nonce: [u8; 16]) -> [u8; 16] {
        let tests = self.round.iter_mut().flat_map(|round| &mut round.tests);
        let Some(test) = tests.into_iter().find(|test| test.between == between) else { return nonce };
        if test.ids.len() >= MOST_IDS {
            test.ids.remove(0);
        }
        test.ids.push(id);
        *test.nonce.get_or_insert(nonce)
    }

    /// The last change that was not taken yet.
    pub(super) fn take_change(&mut self) -> Option<PathState> {
        self.change.take()
    }

    fn use_path(&mut self, between: Between) {
        // The tests before this one have tried the first others.
        self.next_other = MOST_OTHERS;
        (self.used, self.unanswered_since, self.answered_tests) = (Some(between), None, 0);
        (self.round, self.lost_since) = (None, None);
    }

    /// The path in use is silent, and another one answers.
    fn change_to(&mut self, now: Instant, used: Between, other: Between) {
        let usual = self.detour.map_or(used, |detour| detour.usual);
        self.use_path(other);
        self.change = Some(PathState::Silent { between: used, instead: Some(other), is_presumed: false });
        if other == usual {
            (self.detour, self.returned_at) = (None, Some(now));
            return;
        }
        if self.detour.is_none() && self.returned_at.is_none_or(|at| now.saturating_since(at) >= FORGET_AFTER) {
            self.failures = 0;
        }
        self.detour = Some(Detour { usual, taken: other, return_at: now, is_presumed: false });
        self.postpone_return(now);
    }

    fn postpone_return(&mut self, now: Instant) {
        let wait = RETURN_AFTER.saturating_shl(self.failures).min(RETURN_AFTER_AT_MOST);
        self.failures = self.failures.saturating_add(1);
        self.detour.iter_mut().for_each(|detour| detour.return_at = now + wait);
    }
}

impl Test {
    const fn new(between: Between) -> Self {
        Self { between, nonce: None, ids: Vec::new(), is_answered: false }
    }
}

#[cfg(test)]
mod tests;
