use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const OTHER_ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

const OPTIONS: SilenceOptions =
    SilenceOptions { after: Duration::from_secs(1), every: Duration::from_millis(250), asks: true };

const STEP: Duration = Duration::from_millis(5);

/// A peer as the path sees it.
#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    heard_at: Option<Instant>,
    awaits_ack: bool,
    is_sent_again: bool,
    round_trip: Option<Duration>,
}

/// A detector, and its surroundings. Peers and routers answer as the fields say.
struct World {
    watch: SilenceWatch,
    now: Instant,
    began_at: Instant,
    traffic: Traffic,
    peers: Vec<Peer>,
    is_listening: bool,
    routers_answer: bool,
    peers_answer: bool,
    /// Actions, in milliseconds since [`Self::mark`].
    acts: Vec<(u64, Act)>,
}

fn connection(peer: usize) -> Connection {
    let address = |last: usize, port| SocketAddr::new(IpAddr::from([198, 51, 100, last as u8]), port);
    Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: address(peer + 1, 443) }
}

impl World {
    /// This many connections with 50 ms of round trip that have been answered, and a router that answers.
    fn new(peers: usize) -> Self {
        Self::behind(peers, &[ROUTER])
    }

    fn behind(peers: usize, routers: &[IpAddr]) -> Self {
        let now = Instant::from_secs(1000);
        let mut watch = SilenceWatch::new(now, OPTIONS);
        watch.handle_next_hops(&routers.iter().copied().collect(), routers.iter().copied());
        let mut world = Self {
            watch,
            now,
            began_at: now,
            traffic: Traffic { tcp_sent: 100, tcp_received: 100, others_received: 3 },
            peers: vec![Peer::default(); peers],
            is_listening: false,
            routers_answer: true,
            peers_answer: true,
            acts: Vec::new(),
        };
        world.run(300, |_, _| {});
        (0..peers).for_each(|peer| world.exchange(peer));
        world.run(1500, |_, _| {});
        world.mark();
        world
    }

    /// Restarts the time of actions.
    fn mark(&mut self) {
        self.began_at = self.now;
        self.acts.clear();
    }

    /// TCP sends data to a peer, which has not answered yet.
    fn send(&mut self, peer: usize) {
        self.traffic.tcp_sent += 1;
        let sent_before = std::mem::replace(&mut self.peers[peer].awaits_ack, true);
        self.peers[peer].is_sent_again = sent_before;
    }

    /// A packet of a peer arrives that acknowledges everything.
    fn receive(&mut self, peer: usize) {
        self.traffic.tcp_received += 1;
        let round_trip = Some(Duration::from_millis(50));
        self.peers[peer] = Peer { heard_at: Some(self.now), awaits_ack: false, is_sent_again: false, round_trip };
        self.is_listening = false;
    }

    fn exchange(&mut self, peer: usize) {
        self.send(peer);
        self.receive(peer);
    }

    /// Runs for so many milliseconds in steps of 5, and calls `what` in each.
    fn run(&mut self, millis: u64, mut what: impl FnMut(&mut Self, u64)) {
        let from = self.now;
        for step in 0..millis / STEP.as_millis() {
            what(self, step);
            if self.watch.poll_timeout() <= self.now {
                self.watch.handle_traffic(self.now, self.traffic, self.is_listening);
                self.apply();
            }
            self.now += STEP;
        }
        assert!(self.now.saturating_since(from) >= Duration::from_millis(millis - millis % 5));
    }

    fn apply(&mut self) {
        while let Some(act) = self.watch.poll_act() {
            self.acts.push((self.now.saturating_since(self.began_at).as_millis(), act));
            match act {
                Act::Survey => {
                    let survey = self.survey();
                    self.watch.handle_survey(self.now, &survey);
                }
                Act::Listen { .. } => self.is_listening = true,
                Act::AskNextHops { .. } if self.routers_answer => self.watch.handle_answer(self.now, ROUTER),
                Act::AskPeer(asked) if self.peers_answer => {
                    let peer = (0..self.peers.len()).find(|&peer| connection(peer) == asked).unwrap();
                    self.traffic.tcp_received += 1;
                    self.peers[peer].heard_at = Some(self.now);
                    self.is_listening = false;
                }
                Act::End => self.is_listening = false,
                Act::AskNextHops { .. } | Act::AskPeer(_) | Act::TellDown { .. } => {}
            }
        }
    }

    fn survey(&self) -> Survey {
        let heard = (0..self.peers.len()).filter(|&peer| self.peers[peer].heard_at.is_some());
        let recent = heard.clone().max_by_key(|&peer| self.peers[peer].heard_at);
        let unanswered = heard.filter(|&peer| self.peers[peer].awaits_ack).map(|peer| {
            let Peer { heard_at, is_sent_again, round_trip, .. } = self.peers[peer];
            Unanswered { connection: connection(peer), heard_at, round_trip, is_sent_again }
        });
        Survey {
            heard_at: self.peers.iter().filter_map(|peer| peer.heard_at).max(),
            recent: recent.map(connection),
            round_trip: Duration::from_millis(50),
            connections: self.peers.len() as u32,
            unanswered: unanswered.collect(),
            own_addresses: recent.map(|peer| connection(peer).local.ip()).into_iter().collect(),
        }
    }

    /// The time of the first such action, in milliseconds.
    fn first(&self, is_it: impl Fn(&Act) -> bool) -> Option<u64> {
        self.acts.iter().find(|(_, act)| is_it(act)).map(|&(at, _)| at)
    }

    fn count(&self, is_it: impl Fn(&Act) -> bool) -> usize {
        self.acts.iter().filter(|(_, act)| is_it(act)).count()
    }

    fn down_at(&self) -> Option<u64> {
        self.first(is_down)
    }

    /// No peer or router answers any more.
    fn cut(&mut self) {
        (self.routers_answer, self.peers_answer) = (false, false);
        self.mark();
    }
}

fn is_down(act: &Act) -> bool {
    matches!(act, Act::TellDown { .. })
}

fn is_question(act: &Act) -> bool {
    matches!(act, Act::AskNextHops { .. } | Act::AskPeer(_))
}

fn listens(act: &Act) -> bool {
    matches!(act, Act::Listen { .. })
}

/// An upload: a segment each 20 ms while it is answered; retransmissions after 0.3, 0.9, 2.1 s and so on when it is not.
fn upload(world: &mut World, step: u64, is_cut: bool) {
    let is_retransmission = [60, 180, 420, 900, 1860, 3780].contains(&step);
    if !is_cut && step.is_multiple_of(4) {
        world.exchange(0);
    } else if is_cut && (is_retransmission || step == 0) {
        world.send(0);
    }
}

#[test]
fn an_upload_that_is_cut_is_noticed_within_two_and_a_half_seconds() {
    let mut world = World::new(1);
    world.run(5000, |world, step| upload(world, step, false));
    assert_eq!(world.count(is_question), 0, "answered traffic is not probed");
    world.cut();
    world.run(4000, |world, step| upload(world, step, true));
    let (listens_at, down_at) = (world.first(listens).unwrap(), world.down_at().unwrap());
    assert!((200..=900).contains(&listens_at), "{listens_at}");
    assert!((1700..=2500).contains(&down_at), "{down_at}");
    assert_eq!(world.count(is_down), 1);
}

/// A key is struck, and the link is silent for half a second.
// Claim: Behind a next hop that answers probes the agent notices half a second of silence, and its end. A late ACK or a pause of
// a stream costs one probe of the next hop and none of the peer; a next hop that forwards and no longer answers is suspected
// once.
// Tests: `tests::a_late_ack_is_checked_once`, `tests::a_pause_of_a_stream_is_checked_without_its_peer`,
// `tests::a_router_that_stops_answering_is_suspected_once`
#[test]
fn the_end_of_half_a_second_is_noticed() {
    let mut world = World::new(1);
    world.run(1000, |world, step| upload(world, step, false));
    world.cut();
    world.send(0);
    world.run(500, |_, _| {});
    let listens_at = world.first(listens).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(listens_at <= 450, "{listens_at}");
    let asks_peer_at = world.first(|act| matches!(act, Act::AskPeer(_)));
    assert!(asks_peer_at.is_none_or(|at| at >= listens_at), "the next hop first: {:?}", world.acts);
    world.mark();
    world.routers_answer = true;
    world.run(100, |_, _| {});
    assert!(world.first(|act| *act == Act::End).is_some_and(|at| at <= 50), "{:?}", world.acts);
}

/// Without a next hop, TCP's retransmission is the sign, after 250 ms: the peer gets a probe each 30 ms from then on.
// Claim: Without a next hop the agent notices half a second of silence by the host's own retransmission of a short segment, and
// its end; nothing is probed before the retransmission, and an ACK that is late after it makes the agent probe the peer.
// Tests: `tests::a_late_ack_without_a_next_hop_is_one_probe`
#[test]
fn the_end_of_half_a_second_is_noticed_without_a_next_hop() {
    let mut world = World::behind(1, &[]);
    world.run(1000, |world, step| upload(world, step, false));
    world.cut();
    world.run(500, |world, step| {
        if [0, 50].contains(&step) {
            world.send(0)
        }
    });
    let asked: Vec<u64> =
        world.acts.iter().filter(|(_, act)| matches!(act, Act::AskPeer(_))).map(|&(at, _)| at).collect();
    assert!(asked.first().is_some_and(|at| (250..=320).contains(at)), "{:?}", world.acts);
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 35), "{asked:?}");
    assert!(world.first(listens).is_some_and(|at| at <= 480), "{:?}", world.acts);
    world.mark();
    world.peers_answer = true;
    world.run(100, |_, _| {});
    assert!(world.first(|act| *act == Act::End).is_some_and(|at| at <= 100), "{:?}", world.acts);
    assert_eq!(world.count(is_down), 0);
}

/// The peer answers a probe at once, and the key, which it has by then, 300 ms after each retransmission.
#[test]
fn a_late_ack_without_a_next_hop_is_one_probe() {
    let mut world = World::behind(1, &[]);
    for _ in 0..20 {
        world.run(250, |world, step| {
            if step == 0 {
                world.send(0)
            }
        });
        assert_eq!(world.count(is_question), 0, "nothing before a retransmission: {:?}", world.acts);
        world.send(0);
        world.run(300, |_, _| {});
        world.receive(0);
        assert_eq!(world.count(is_question), 1, "{:?}", world.acts);
        world.run(500, |_, _| {});
        world.mark();
    }
}

/// Its host retransmits to no avail, while another peer sends.
#[test]
fn a_peer_that_is_gone_beside_one_that_sends_is_checked_once() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.run(5000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            world.send(0);
        }
        // Soon after each check has begun.
        if step % 60 == 20 {
            world.receive(1);
        }
    });
    let asked_at: Vec<u64> =
        world.acts.iter().filter(|(_, act)| matches!(act, Act::AskPeer(_))).map(|&(at, _)| at).collect();
    assert!(!asked_at.is_empty() && asked_at.iter().all(|at| *at < 400), "in the first check only: {:?}", world.acts);
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
}

/// Losses often precede a cut: a key is lost, another peer's packet ends the check, and then nothing arrives any more.
#[test]
fn a_cut_after_a_check_that_another_peer_has_ended_is_noticed() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.run(6000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            world.send(0);
        }
        if step == 75 {
            world.receive(1);
        }
    });
    assert!(world.first(|act| matches!(act, Act::AskPeer(_))).is_some_and(|at| at < 375), "{:?}", world.acts);
    assert!(world.first(listens).is_some_and(|at| (375..=2500).contains(&at)), "{:?}", world.acts);
    assert!(world.watch.is_silent(), "{:?}", world.acts);
}

/// Of two peers that have not answered, the one that was heard last is probed, for as long as the farther one's answer takes.
#[test]
fn a_check_without_a_next_hop_waits_for_the_farthest_peer() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.peers[1].round_trip = Some(Duration::from_millis(600));
    world.exchange(0);
    world.run(20, |_, _| {});
    world.traffic.tcp_received += 1;
    world.peers[1].heard_at = Some(world.now);
    world.run(2000, |_, _| {});
    world.mark();
    world.run(560, |world, step| {
        if step % 50 == 0 {
            (0..2).for_each(|peer| world.send(peer));
        }
    });
    let asked = world.acts.iter().filter_map(|(_, act)| if let Act::AskPeer(peer) = act { Some(*peer) } else { None });
    assert_eq!(asked.collect::<std::collections::BTreeSet<_>>(), [connection(1)].into(), "{:?}", world.acts);
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
}

#[test]
fn a_late_ack_is_checked_once() {
    let mut world = World::new(1);
    for _ in 0..20 {
        world.send(0);
        // A peer that delays its ACKs by 500 ms.
        world.run(500, |_, _| {});
        world.receive(0);
        world.run(500, |_, _| {});
    }
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!(world.count(is_question) <= 20, "{:?}", world.acts);
    let others = world.count(|act| !matches!(act, Act::Survey | Act::AskNextHops { .. }));
    assert_eq!(others, 0, "{:?}", world.acts);
}

#[test]
fn a_pause_of_a_stream_is_checked_without_its_peer() {
    let mut world = World::new(1);
    for _ in 0..10 {
        world.run(500, |world, step| {
            if step % 2 == 0 {
                world.exchange(0)
            }
        });
        world.run(900, |_, _| {});
    }
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!((10..=20).contains(&world.count(is_question)), "{:?}", world.acts);
    assert_eq!(world.count(|act| matches!(act, Act::AskPeer(_))), 0, "{:?}", world.acts);
}

/// A station in power save has its answers at the next beacon.
#[test]
fn answers_that_take_a_while_are_waited_for() {
    assert_eq!(suspicion::ask_every(None), Duration::from_millis(100));
    assert_eq!(suspicion::ask_every(Some(Duration::from_millis(100))), Duration::from_millis(100));
    assert_eq!(suspicion::ask_every(Some(Duration::from_millis(15))), Duration::from_millis(60));
    assert_eq!(suspicion::ask_every(Some(Duration::from_micros(300))), Duration::from_millis(30));
}

/// It forwards, and answers no probes: once it has been found out, it is not believed.
#[test]
fn a_router_that_stops_answering_is_suspected_once() {
    let mut world = World::new(1);
    world.routers_answer = false;
    for _ in 0..50 {
        world.send(0);
        world.run(700, |_, _| {});
        world.receive(0);
        world.run(1000, |_, _| {});
    }
    assert_eq!((world.count(listens), world.count(is_down)), (1, 0), "{:?}", world.acts);
    // It is met again, every minute at most.
    assert!(world.count(is_question) <= 4 + 2 + 2, "{:?}", world.acts);
    world.routers_answer = true;
    world.run(60_000, |world, step| {
        if step % 20 == 0 {
            world.exchange(0)
        }
    });
    world.mark();
    world.cut();
    world.send(0);
    world.run(1000, |_, _| {});
    assert!(world.first(listens).is_some_and(|at| at <= 800), "it is believed again: {:?}", world.acts);
}

#[test]
fn the_answer_of_a_router_that_was_silent_ends_it() {
    let mut world = World::new(1);
    world.cut();
    world.run(20_000, |world, step| upload(world, step, true));
    assert!(world.watch.is_silent());
    world.mark();
    world.routers_answer = true;
    world.run(200, |_, _| {});
    let ends = world.first(|act| *act == Act::End).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(ends <= 60, "{ends} ms after its return");
    assert!(!world.watch.is_silent());
}

#[test]
fn a_silence_of_two_seconds_ends_with_the_routers_answer_too() {
    let mut world = World::new(1);
    world.cut();
    world.run(1800, |world, step| upload(world, step, true));
    world.mark();
    world.routers_answer = true;
    world.run(300, |_, _| {});
    let ends = world.first(|act| *act == Act::End).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(ends <= 110, "{ends} ms after its return");
}

#[test]
fn behind_a_router_that_answers_tcp_alone_says_so_and_later() {
    let mut world = World::new(3);
    world.peers_answer = false;
    world.run(6000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            (0..3).for_each(|peer| world.send(peer));
        }
    });
    let down_at = world.down_at().unwrap();
    assert!((2750..=3800).contains(&down_at), "{down_at}");
    // Its answers do not end the silence; the first packet does.
    world.mark();
    world.run(3000, |_, _| {});
    assert_eq!(world.first(|act| *act == Act::End), None);
    world.receive(1);
    world.run(500, |_, _| {});
    assert_eq!(world.count(|act| *act == Act::End), 1);
    assert!(!world.watch.is_silent());
}

#[test]
fn a_link_without_neighbours_is_told_by_tcp_alone() {
    let mut world = World::behind(1, &[]);
    world.peers_answer = false;
    world.run(6000, |world, step| upload(world, step, true));
    let down_at = world.down_at().unwrap();
    assert!((2750..=3800).contains(&down_at), "{down_at}");
    assert_eq!(world.count(|act| matches!(act, Act::AskNextHops { .. })), 0);
}

#[test]
fn a_download_that_is_cut_is_listened_for() {
    for routers in [&[ROUTER][..], &[]] {
        let mut world = World::behind(1, routers);
        world.run(3000, |world, step| {
            if step % 4 == 0 {
                world.exchange(0)
            }
        });
        world.cut();
        world.run(4000, |_, _| {});
        let listens_at = world.first(listens).unwrap_or_else(|| panic!("{:?}", world.acts));
        let expected = if routers.is_empty() { 1000..=2000 } else { 200..=900 };
        assert!(expected.contains(&listens_at), "{listens_at}");
        // A router's silence is certain; a peer may be gone itself.
        assert_eq!(world.down_at().is_some(), !routers.is_empty());
    }
}

#[test]
fn the_end_of_a_download_is_asked_about_once() {
    let mut world = World::new(1);
    world.run(3000, |world, step| {
        if step % 4 == 0 {
            world.exchange(0)
        }
    });
    world.mark();
    world.run(60_000, |_, _| {});
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!(world.count(is_question) <= 4, "{:?}", world.acts);
}

#[test]
fn a_server_that_takes_its_time_is_no_silence() {
    let mut world = World::new(1);
    for _ in 0..5 {
        // The request is acknowledged at once, and answered 10 s later.
        world.exchange(0);
        world.run(10_000, |_, _| {});
        world.receive(0);
        world.traffic.tcp_sent += 1;
        world.run(1000, |_, _| {});
    }
    assert_eq!((world.count(listens), world.count(is_down)), (0, 0), "{:?}", world.acts);
}

#[test]
fn one_peer_that_is_gone_is_no_silence_while_others_answer() {
    let mut world = World::new(3);
    world.run(60_000, |world, step| {
        upload(world, step, true);
        if step % 150 == 75 {
            world.exchange(1);
        }
    });
    assert_eq!(world.count(is_down), 0);
    assert_eq!(world.count(listens), 0);
}

#[test]
fn a_sleeping_peer_is_suspected_once() {
    // Retransmissions to the sleeping peer never end; other traffic flows every 7 s.
    let mut world = World::new(2);
    world.peers_answer = false;
    world.run(120_000, |world, step| {
        if step % 400 == 0 {
            world.send(0);
        }
        if step % 1400 == 300 {
            world.exchange(1);
        }
    });
    assert!(world.count(listens) <= 1, "{:?}", world.acts);
    assert_eq!(world.count(is_down), usize::from(world.count(listens) > 0 && world.down_at().is_some()));
}

#[test]
fn traffic_of_others_contradicts_what_tcp_says() {
    let mut world = World::new(2);
    world.peers_answer = false;
    world.run(20_000, |world, step| {
        upload(world, step, true);
        // QUIC flows.
        if step % 10 == 0 && world.is_listening {
            world.traffic.others_received += 1;
        }
    });
    assert_eq!(world.count(is_down), 0);
    assert_eq!(world.count(listens), 1, "the first TCP packet is of interest all the same");
}

#[test]
fn udp_that_is_only_sent_causes_no_action() {
    let mut world = World::new(2);
    world.cut();
    world.run(30_000, |_, _| {});
    assert_eq!(world.acts, []);
}

#[test]
fn acks_alone_want_no_answer() {
    let mut world = World::new(1);
    world.run(10_000, |world, step| {
        if step % 200 == 0 {
            world.traffic.tcp_sent += 1;
        }
    });
    assert_eq!((world.count(listens), world.count(is_down)), (0, 0));
}

#[test]
fn a_router_that_never_answers_proves_nothing() {
    let mut world = World::new(1);
    // It is not known to answer, and does not.
    world.watch.handle_next_hops(&[OTHER_ROUTER].into(), []);
    world.routers_answer = false;
    world.run(60_000, |world, step| {
        if step % 40 == 0 {
            world.exchange(0)
        }
    });
    assert_eq!(world.count(is_question), 1, "it is tested once a minute");
    world.peers_answer = false;
    world.mark();
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None);
    world.run(1000, |_, _| {});
    assert!(world.down_at().is_some(), "by TCP alone");
}

#[test]
fn several_routers_are_silent_when_all_of_them_are() {
    let mut world = World::behind(1, &[ROUTER, OTHER_ROUTER]);
    world.peers_answer = false;
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None, "one of them answers");
    let mut world = World::behind(1, &[ROUTER, OTHER_ROUTER]);
    world.cut();
    world.run(2800, |world, step| upload(world, step, true));
    assert!(world.down_at().is_some());
}

#[test]
fn another_router_is_another_network() {
    let mut world = World::new(1);
    world.cut();
    world.watch.handle_next_hops(&[OTHER_ROUTER].into(), []);
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None, "it is not known to answer");
}

#[test]
fn nothing_is_asked_where_that_is_not_wanted() {
    let mut world = World::new(1);
    world.watch.options.asks = false;
    world.cut();
    world.run(6000, |world, step| upload(world, step, true));
    assert_eq!(world.count(is_question), 0);
    assert!(world.down_at().is_some_and(|at| at >= 2750));
}

#[test]
fn a_link_that_is_down_for_another_reason_is_not_suspected() {
    let mut world = World::new(1);
    world.cut();
    world.run(2800, |world, step| upload(world, step, true));
    world.watch.handle_link(world.now);
    assert!(!world.watch.is_silent());
    world.mark();
    world.run(800, |_, _| {});
    assert_eq!(world.acts, []);
}

#[test]
fn questions_become_rare() {
    let mut world = World::new(1);
    world.cut();
    world.run(600_000, |world, step| upload(world, step, true));
    let within =
        |from: u64, to: u64| world.acts.iter().filter(|(at, act)| (from..to).contains(at) && is_question(act)).count();
    assert!(within(0, 20_000) < 900, "{}", within(0, 20_000));
    assert!(within(500_000, 600_000) < 120, "{}", within(500_000, 600_000));
}

#[test]
fn a_peer_is_asked_in_place_of_next_hops() {
    for (routers, most_ms) in [(&[] as &[IpAddr], 30), (&[ROUTER], 150)] {
        let mut world = World::behind(1, routers);
        world.cut();
        world.run(4000, |world, step| upload(world, step, true));
        let is_asked = |(at, act): &&(u64, Act)| *at >= 3000 && matches!(act, Act::AskPeer(_));
        let times: Vec<u64> = world.acts.iter().filter(is_asked).map(|&(at, _)| at).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest.is_some_and(|longest| (most_ms / 2..=most_ms).contains(&longest)), "{routers:?} {times:?}");
    }
}

/// A world whose link falls silent after a pause, `for_ms` after the next keystroke.
fn struck_after_a_pause(routers: &[IpAddr], pause_ms: u64, for_ms: u64) -> World {
    let mut world = World::behind(1, routers);
    world.run(pause_ms, |_, _| {});
    world.cut();
    world.mark();
    world.run(for_ms, |world, step| {
        if step == 0 {
            world.send(0)
        }
    });
    world
}

/// A user types after a minute, into an outage: its age counts from the keystroke.
#[test]
fn a_peer_is_asked_as_often_after_a_pause() {
    let world = struck_after_a_pause(&[], 60_000, 60_000);
    let asked = |from: u64, to: u64| {
        let is_asked = |(at, act): &&(u64, Act)| (from..to).contains(at) && matches!(act, Act::AskPeer(_));
        world.acts.iter().filter(is_asked).count()
    };
    assert!((25..=40).contains(&asked(2500, 3500)), "{}", asked(2500, 3500));
    assert!((20..=27).contains(&asked(20_000, 21_000)), "{}", asked(20_000, 21_000));
    assert!(asked(0, 60_000) < 1_350, "{}", asked(0, 60_000));
}

/// ... and so are next hops.
#[test]
fn next_hops_are_asked_as_often_after_a_pause() {
    let world = struck_after_a_pause(&[ROUTER], 420_000, 4_000);
    let is_asked = |(at, act): &&(u64, Act)| *at >= 3_000 && matches!(act, Act::AskNextHops { .. });
    let asked = world.acts.iter().filter(is_asked).count();
    assert!(asked >= 20, "{asked} questions in a second: {:?}", world.acts);
}

/// An event of a world.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Send(usize),
    Exchange(usize),
    Ack,
    Others,
    Wait(u64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..4usize).prop_map(Happening::Send),
        (0..4usize).prop_map(Happening::Exchange),
        Just(Happening::Ack),
        Just(Happening::Others),
        (5..900u64).prop_map(Happening::Wait),
        (5..30_000u64).prop_map(Happening::Wait),
    ]
}

fn happen(world: &mut World, happening: Happening) {
    match happening {
        Happening::Send(peer) => world.send(peer),
        Happening::Exchange(peer) => world.exchange(peer),
        Happening::Ack => world.traffic.tcp_sent += 1,
        Happening::Others => world.traffic.others_received += 1,
        Happening::Wait(millis) => world.run(millis, |_, _| {}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// While any peer is answered at least once in 0.9 s, nothing is ever suspected, whatever the others do: but once if the router no longer
    /// answers.
    #[test]
    fn one_that_is_answered_is_enough(
        happenings in prop::collection::vec(any_happening(), 1..60),
        has_router: bool,
        routers_answer: bool,
    ) {
        let mut world = World::behind(4, if has_router { &[ROUTER] } else { &[] });
        (world.routers_answer, world.peers_answer) = (routers_answer, false);
        for happening in happenings {
            if let Happening::Wait(millis) = happening {
                world.run(millis, |world, step| if step % 150 == 0 { world.exchange(3) });
            } else {
                happen(&mut world, happening);
            }
        }
        prop_assert_eq!(world.count(is_down), 0);
        prop_assert!(world.count(listens) <= usize::from(!routers_answer), "{:?}", world.acts);
    }

    /// A link that works except for peers that are gone is never down while its router and a probed peer answer.
    #[test]
    fn a_link_that_answers_is_never_down(
        happenings in prop::collection::vec(any_happening(), 1..60),
        has_router: bool,
    ) {
        let mut world = World::behind(4, if has_router { &[ROUTER] } else { &[] });
        happenings.into_iter().for_each(|happening| happen(&mut world, happening));
        prop_assert_eq!(world.count(is_down), 0);
    }

    /// After any history: a complete cut during transmission is noticed, and so is its end.
    #[test]
    fn a_cut_is_noticed_whatever_was_before(happenings in prop::collection::vec(any_happening(), 0..60)) {
        let mut world = World::new(4);
        happenings.into_iter().for_each(|happening| happen(&mut world, happening));
        // The peer exists when the cut comes.
        world.exchange(0);
        world.run(1000, |_, _| {});
        world.exchange(0);
        world.cut();
        world.run(5000, |world, step| upload(world, step, true));
        prop_assert!(world.is_listening);
        prop_assert!(world.watch.is_silent());
        world.mark();
        world.routers_answer = true;
        world.run(200, |_, _| {});
        prop_assert_eq!(world.count(|act| *act == Act::End), 1);
        prop_assert!(!world.watch.is_silent());
    }
}
