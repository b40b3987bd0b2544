//! One host's view of paths that come and go.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(50);

fn path(number: u8) -> Between {
    ([192, 0, 2, 1].into(), [198, 51, 100, number].into())
}

/// The path of a packet, and the echo request that it is.
type Flying = (u8, Option<[u8; 16]>);

/// Paths 0 (the usual one), 1 and 2. Each is down in some intervals, in milliseconds.
struct World {
    now: Instant,
    config: PathCheckConfig,
    machine: Reachability,
    down: [Vec<(u64, u64)>; 3],
    /// Arrivals by time: data of the peer, or the answer to a test.
    flying: BTreeMap<(Instant, u64), Flying>,
    count: u64,
    tests: Vec<(Instant, u8)>,
    /// The path of data at each change.
    taken: Vec<(Instant, u8)>,
    changes: Vec<(Instant, PathState)>,
    /// Whether data is answered by data.
    is_answered: bool,
}

impl World {
    fn new(down: [Vec<(u64, u64)>; 3]) -> Self {
        Self {
            now: Instant::from_secs(1),
            config: PathCheckConfig::default(),
            machine: Reachability::default(),
            down,
            flying: BTreeMap::new(),
            count: 0,
            tests: Vec::new(),
            taken: Vec::new(),
            changes: Vec::new(),
            is_answered: true,
        }
    }

    fn is_up(&self, number: u8) -> bool {
        let ms = self.now.saturating_since(Instant::from_secs(1)).as_millis();
        !self.down[usize::from(number)].iter().any(|&(from, to)| (from..to).contains(&ms))
    }

    fn fly(&mut self, number: u8, nonce: Option<[u8; 16]>) {
        if self.is_up(number) {
            self.count += 1;
            self.flying.insert((self.now + RTT, self.count), (number, nonce));
        }
    }

    fn send(&mut self) {
        let between = self.machine.route(path(0), |_| true);
        let number = (0..3).find(|number| path(*number) == between).unwrap();
        if self.taken.last().is_none_or(|(_, last)| *last != number) {
            self.taken.push((self.now, number));
        }
        self.machine.note_sent(self.now, between);
        if self.is_answered {
            self.fly(number, None);
        }
    }

    fn taken(&self) -> Vec<u8> {
        self.taken.iter().map(|(_, number)| *number).collect()
    }

    /// Advances to a time, with everything that happens until then.
    fn run_until(&mut self, end: Instant) {
        for _ in 0..100_000 {
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.machine.poll_timeout(&self.config);
            let Some(next) = arrival.into_iter().chain(deadline).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (number, nonce)) = self.flying.pop_first().unwrap();
                match nonce {
                    Some(nonce) => _ = self.machine.note_answer(self.now, &nonce, path(number)),
                    None => self.machine.note_heard(self.now, path(number), true),
                }
            } else {
                let others = |used: Between| (0..3).map(path).filter(|it| *it != used).collect();
                for between in self.machine.handle_timeout(self.now, &self.config, others) {
                    self.count += 1;
                    let nonce =
                        self.machine.note_test(between, self.count as u32, u128::from(self.count).to_be_bytes());
                    let number = (0..3).find(|number| path(*number) == between).unwrap();
                    self.tests.push((self.now, number));
                    self.fly(number, Some(nonce));
                }
            }
            self.changes.extend(self.machine.take_change().map(|change| (self.now, change)));
        }
        panic!("livelock at {}", self.now);
    }

    /// Sends data at intervals.
    fn talk_for(&mut self, time: Duration, interval: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.send();
            self.run_until(self.now + interval);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HALF: Duration = Duration::from_millis(500);

#[test]
fn a_path_that_works_is_not_tested() {
    let mut world = World::new([vec![], vec![], vec![]]);
    world.talk_for(SECOND * 1000, HALF);
    // A pause, and the last data before it.
    world.run_until(world.now + SECOND * 1000);
    assert_eq!((world.tests.len(), world.taken(), world.changes.len()), (0, vec![0], 0));
}

/// As with measurements that are sent by UDP and never answered.
#[test]
fn data_in_one_direction_is_tested_less_and_less() {
    let mut world = World::new([vec![(600_000, 700_000)], vec![], vec![]]);
    world.is_answered = false;
    world.talk_for(SECOND * 600, HALF);
    let times: Vec<u64> = world.tests.iter().map(|(at, _)| at.as_millis() / 1000).take(5).collect();
    assert_eq!(times, [4, 10, 23, 38, 54]);
    assert_eq!(world.taken(), [0]);
    world.talk_for(SECOND * 20, HALF);
    assert_eq!(world.taken(), [0, 1], "the next test finds that it is silent");
}

#[test]
fn data_takes_another_path_and_returns() {
    let mut world = World::new([vec![(10_000, 20_000)], vec![], vec![]]);
    world.talk_for(SECOND * 60, HALF);
    let [(_, 0), (left, 1), (back, 0)] = world.taken[..] else { panic!("{:?}", world.taken) };
    let at = |instant: Instant| instant.saturating_since(Instant::from_secs(1)).as_millis();
    assert!((15_000..16_500).contains(&at(left)), "{left}");
    assert!((45_000..47_500).contains(&at(back)), "{back}");
    let [(_, PathState::Silent { between, instead, is_presumed: false }), (_, PathState::Answers { after, .. })] =
        world.changes[..]
    else {
        panic!("{:?}", world.changes)
    };
    assert_eq!((between, instead, after), (path(0), Some(path(1)), None));
}

#[test]
fn a_path_that_is_alone_is_tested_until_it_answers() {
    let cut = vec![(10_000, 100_000)];
    let mut world = World::new([cut.clone(), cut.clone(), cut]);
    world.talk_for(SECOND * 10, HALF);
    // Data that is retransmitted once in two minutes is enough.
    world.send();
    world.run_until(world.now + SECOND * 110);
    assert_eq!(world.taken(), [0]);
    let [(_, PathState::Silent { instead: None, .. }), (at, PathState::Answers { after: Some(_), .. })] =
        world.changes[..]
    else {
        panic!("{:?}", world.changes)
    };
    let after = at.saturating_since(Instant::from_secs(101));
    assert!(after <= SECOND * 10 + RTT, "{after}");
}

#[test]
fn without_data_nothing_is_tested() {
    let cut = vec![(10_000, 2_000_000)];
    let mut world = World::new([cut.clone(), cut.clone(), cut]);
    world.talk_for(SECOND * 11, HALF);
    world.run_until(world.now + SECOND * 200);
    let count = world.tests.len();
    world.run_until(world.now + SECOND * 500);
    assert_eq!(world.tests.len(), count);
    // The next data is a reason again, once in ten seconds.
    world.talk_for(SECOND * 100, SECOND);
    assert!(world.tests.len() <= count + 10 * 3 + 3, "{}", world.tests.len() - count);
    assert!(world.tests.len() > count + 20);
}

#[test]
fn moves_make_former_tests_void() {
    let mut world = World::new([vec![(0, 2_000_000)], vec![], vec![]]);
    world.talk_for(SECOND * 10, HALF);
    assert_eq!(world.taken(), [0, 1]);
    world.machine.reset();
    world.send();
    assert_eq!(world.taken(), [0, 1, 0]);
    // Another usual path is used at once.
    world.talk_for(SECOND * 10, HALF);
    assert_eq!(world.machine.route(path(2), |_| true), path(2));
}

#[test]
fn answers_count_on_their_own_path_alone_and_once() {
    let mut machine = Reachability::default();
    let config = PathCheckConfig::default();
    let at = Instant::from_secs(1);
    machine.note_sent(at, path(0));
    let due = machine.poll_timeout(&config).unwrap();
    assert_eq!(machine.handle_timeout(due, &config, |_| vec![path(1)]), [path(0)]);
    let nonce = machine.note_test(path(0), 7, [7; 16]);
    assert!(machine.awaits(&[7]) && !machine.awaits(&[8]));
    assert!(!machine.note_answer(due, &nonce, path(1)), "it came on another path");
    assert!(!machine.note_answer(due, &[8; 16], path(0)));
    assert!(machine.note_answer(due, &nonce, path(0)));
    assert!(!machine.awaits(&[7]) && !machine.note_answer(due, &nonce, path(0)));
}

fn cuts(longest_ms: u64, most: usize) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((1..longest_ms, 1..longest_ms), 0..most).prop_map(|lengths| {
        let mut at = 0;
        let cut = |(up, down)| {
            let from = at + up;
            at = from + down;
            (from, at)
        };
        lengths.into_iter().map(cut).collect()
    })
}

proptest! {
    /// Whatever the paths do: few tests, few changes, and data ends up on a path that works.
    #[test]
    fn tests_and_changes_are_bounded(
        down in [cuts(60_000, 20), cuts(60_000, 20), cuts(60_000, 20)],
        interval_ms in 50_u64..1500,
    ) {
        let mut world = World::new(down);
        let end = Instant::from_secs(1200);
        let mut up_since = [Some(world.now); 3];
        while world.now < end {
            world.talk_for(SECOND, Duration::from_millis(interval_ms));
            for number in 0..3 {
                let since = &mut up_since[usize::from(number)];
                *since = if world.is_up(number) { since.or(Some(world.now)) } else { None };
            }
            let down = &world.down;
            let now_ms = world.now.saturating_since(Instant::from_secs(1)).as_millis();
            let was_up_for = |number: u8, ms: u64| {
                !down[usize::from(number)].iter().any(|&(from, to)| from < now_ms && to > now_ms.saturating_sub(ms))
            };
            // A path that has worked for 30 s is found, and data takes one that has worked not long ago.
            let taken = world.taken.last().unwrap().1;
            let works = (0..3).any(|number| now_ms > 30_000 && was_up_for(number, 30_000));
            let has_worked = !down[usize::from(taken)]
                .iter()
                .any(|&(from, to)| from <= now_ms.saturating_sub(20_000) && to >= now_ms);
            prop_assert!(!works || has_worked, "at {now_ms} on {taken}: {:?}", down);
        }
        // Two tests in a second, over any minute.
        for (index, (at, _)) in world.tests.iter().enumerate() {
            let minute = world.tests[index..].iter().take_while(|(it, _)| *it < *at + SECOND * 60).count();
            prop_assert!(minute <= 120, "{minute} tests in a minute");
        }
        // From one change to the next there are three seconds of silence and a round of tests.
        for pair in world.taken.windows(2).skip(1) {
            prop_assert!(pair[1].0.saturating_since(pair[0].0) >= SECOND * 5, "{:?}", world.taken);
        }
    }

    /// The usual path comes and goes, and another one always works: they are not used in turns.
    #[test]
    fn a_path_that_comes_and_goes_is_used_less_and_less(down in cuts(40_000, 120), interval_ms in 50_u64..1500) {
        let mut world = World::new([down, vec![], vec![]]);
        world.talk_for(SECOND * 3600, Duration::from_millis(interval_ms));
        let returns = world.taken.iter().skip(1).filter(|(_, number)| *number == 0).count();
        prop_assert!(returns <= 11, "{returns} returns in an hour");
    }
}

#[test]
fn another_path_is_presumed_until_the_usual_one_works() {
    let now = Instant::from_secs(1);
    let mut machine = Reachability::default();
    machine.divert(now, path(0), path(1));
    assert_eq!(machine.route(path(0), |_| true), path(1));
    assert_eq!(
        machine.take_change(),
        Some(PathState::Silent { between: path(0), instead: Some(path(1)), is_presumed: true })
    );
    machine.note_sent(now, path(1));
    machine.note_heard(now + RTT, path(1), true);
    machine.note_heard(now + RTT, path(0), true);
    assert_eq!(machine.route(path(0), |_| true), path(0));
    assert_eq!(machine.take_change(), Some(PathState::Answers { between: path(0), after: None }));
    machine.divert(now + RTT, path(0), path(1));
    assert_eq!(machine.route(path(0), |_| true), path(0), "it has worked");
}

/// As on an idle association, whose peer's additional address answers only the second check.
#[test]
fn what_arrives_before_the_first_data_shows_the_usual_path() {
    let now = Instant::from_secs(1);
    let mut machine = Reachability::default();
    machine.note_heard(now, path(0), false);
    machine.divert(now + RTT, path(0), path(1));
    assert_eq!(machine.route(path(0), |_| true), path(0));
    assert_eq!(machine.take_change(), None);
    // A move makes it void.
    machine.reset();
    machine.divert(now + RTT, path(0), path(1));
    assert_eq!(machine.route(path(0), |_| true), path(1));
}

#[test]
fn another_usual_path_has_to_work_itself() {
    let now = Instant::from_secs(1);
    let mut machine = Reachability::default();
    machine.note_sent(now, path(0));
    machine.note_heard(now, path(0), true);
    machine.note_sent(now, path(2));
    machine.divert(now + RTT, path(2), path(1));
    assert_eq!(machine.route(path(2), |_| true), path(1));
}

#[test]
fn all_paths_are_tested_in_turn() {
    let config = PathCheckConfig::default();
    let mut machine = Reachability::default();
    let mut now = Instant::from_secs(1);
    let mut tested = BTreeMap::<u8, usize>::new();
    machine.note_sent(now, path(0));
    while let Some(at) = machine.poll_timeout(&config).filter(|at| *at < Instant::from_secs(60)) {
        now = at;
        machine.note_sent(now, path(0));
        for (_, host) in machine.handle_timeout(now, &config, |_| (1..9).map(path).collect()) {
            let IpAddr::V4(host) = host else { panic!("{host}") };
            *tested.entry(host.octets()[3]).or_default() += 1;
        }
    }
    assert!((0..9).all(|number| tested.contains_key(&number)), "{tested:?}");
    assert!(tested.values().sum::<usize>() <= 9 + 4 * 6, "{tested:?}");
}
