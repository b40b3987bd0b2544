//! A detector in a world of peers and routers.

use std::net::SocketAddr;

use super::super::*;

pub(super) const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
pub(super) const OTHER_ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

const OPTIONS: SilenceOptions =
    SilenceOptions { after: Duration::from_secs(1), every: Duration::from_millis(250), asks: true };

const STEP: Duration = Duration::from_millis(5);

/// A peer as the path sees it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Peer {
    pub(super) heard_at: Option<Instant>,
    pub(super) awaits_ack: bool,
    pub(super) is_sent_again: bool,
    pub(super) round_trip: Option<Duration>,
}

/// A detector, and its surroundings. Peers and routers answer as the fields say.
pub(super) struct World {
    pub(super) watch: SilenceWatch,
    pub(super) now: Instant,
    pub(super) began_at: Instant,
    pub(super) traffic: Traffic,
    pub(super) peers: Vec<Peer>,
    pub(super) is_listening: bool,
    pub(super) routers_answer: bool,
    pub(super) peers_answer: bool,
    /// Actions, in milliseconds since [`Self::mark`].
    pub(super) acts: Vec<(u64, Act)>,
}

pub(super) fn connection(peer: usize) -> Connection {
    let address = |last: usize, port| SocketAddr::new(IpAddr::from([198, 51, 100, last as u8]), port);
    Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: address(peer + 1, 443) }
}

impl World {
    /// This many connections with 50 ms of round trip that have been answered, and a router that answers.
    pub(super) fn new(peers: usize) -> Self {
        Self::behind(peers, &[ROUTER])
    }

    pub(super) fn behind(peers: usize, routers: &[IpAddr]) -> Self {
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
    pub(super) fn mark(&mut self) {
        self.began_at = self.now;
        self.acts.clear();
    }

    /// TCP sends data to a peer, which has not answered yet.
    pub(super) fn send(&mut self, peer: usize) {
        self.traffic.tcp_sent += 1;
        let sent_before = std::mem::replace(&mut self.peers[peer].awaits_ack, true);
        self.peers[peer].is_sent_again = sent_before;
    }

    /// A packet of a peer arrives that acknowledges everything.
    pub(super) fn receive(&mut self, peer: usize) {
        self.traffic.tcp_received += 1;
        let round_trip = Some(Duration::from_millis(50));
        self.peers[peer] = Peer { heard_at: Some(self.now), awaits_ack: false, is_sent_again: false, round_trip };
        self.is_listening = false;
    }

    pub(super) fn exchange(&mut self, peer: usize) {
        self.send(peer);
        self.receive(peer);
    }

    /// Runs for so many milliseconds in steps of 5, and calls `what` in each.
    pub(super) fn run(&mut self, millis: u64, mut what: impl FnMut(&mut Self, u64)) {
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
    pub(super) fn first(&self, is_it: impl Fn(&Act) -> bool) -> Option<u64> {
        self.acts.iter().find(|(_, act)| is_it(act)).map(|&(at, _)| at)
    }

    pub(super) fn count(&self, is_it: impl Fn(&Act) -> bool) -> usize {
        self.acts.iter().filter(|(_, act)| is_it(act)).count()
    }

    pub(super) fn down_at(&self) -> Option<u64> {
        self.first(is_down)
    }

    /// No peer or router answers any more.
    pub(super) fn cut(&mut self) {
        (self.routers_answer, self.peers_answer) = (false, false);
        self.mark();
    }
}

pub(super) fn is_down(act: &Act) -> bool {
    matches!(act, Act::TellDown { .. })
}

pub(super) fn is_question(act: &Act) -> bool {
    matches!(act, Act::AskNextHops { .. } | Act::AskPeer(_))
}

pub(super) fn listens(act: &Act) -> bool {
    matches!(act, Act::Listen { .. })
}

/// An upload: a segment each 20 ms while it is answered; retransmissions after 0.3, 0.9, 2.1 s and so on when it is not.
pub(super) fn upload(world: &mut World, step: u64, is_cut: bool) {
    let is_retransmission = [60, 180, 420, 900, 1860, 3780].contains(&step);
    if !is_cut && step.is_multiple_of(4) {
        world.exchange(0);
    } else if is_cut && (is_retransmission || step == 0) {
        world.send(0);
    }
}
