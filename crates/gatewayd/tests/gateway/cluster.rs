//! Gateways of a cluster with a real etcd.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use holdover_gatewayd::ClusterStatus;
use holdover_testbed::gateway::{Cut, Etcd, Site, Transfer};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_handoff_is_one_write_and_waiting_packets_follow", a_handoff_is_one_write),
    ("traffic_continues_without_the_store_and_the_owner_changes_once_it_is_back", without_the_store),
    ("a_gateway_cut_off_from_the_store_hands_over_hosts_of_another_owner", cut_off_from_the_store),
    ("another_gateway_takes_over_for_a_killed_one", another_gateway_takes_over),
    ("packets_of_a_stale_owner_go_to_the_present_one_once", a_stale_owner_is_fenced),
    ("a_mobile_host_that_moves_to_and_fro_is_written_once_for_each_move", to_and_fro),
    ("after_an_outage_the_gateway_that_hears_a_mobile_host_has_it", hears_after_an_outage),
    ("a_gateway_that_overhears_a_mobile_host_does_not_claim_it", overhears),
    ("a_mobile_host_that_arrives_with_broadcasts_only_is_probed", arrives_with_broadcasts),
    ("a_mobile_host_that_stays_away_is_forgotten_with_its_key", stays_away),
    ("many_keys_are_read_in_pages_and_adoption_leaves_room", many_keys),
    ("a_stop_during_a_handoff_loses_nothing", stop_during_a_handoff),
    ("users_of_the_store_have_to_know_their_password", with_a_password),
];

/// Routers, a mobile host at the first one, and etcd on the backbone.
pub(crate) struct Cluster {
    pub(crate) site: Site,
    store: Etcd,
}

/// The lease in these tests.
const LEASE: Duration = Duration::from_secs(3);

fn path(kind: &str, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("holdover-{kind}-{name}-{}", std::process::id()))
}

impl Cluster {
    pub(crate) fn new(name: &str, routers: u8) -> Self {
        let site = Site::new(routers, 1, holdover_base::Duration::ZERO, path("key", name)).unwrap();
        let store = Etcd::start(site.backbone(), Site::store_address(), path("etcd", name)).unwrap();
        Self { site, store }
    }

    pub(crate) fn start(&self, number: usize) -> Gateway {
        self.start_with(number, "")
    }

    /// The same with other sections in its configuration.
    pub(crate) fn start_with(&self, number: usize, sections: &str) -> Gateway {
        let sections = self.site.cluster(number, &format!("lease = \"{} s\"\n{sections}", LEASE.as_secs()));
        let gateway = Gateway::start(self.site.router(number), &sections);
        wait_for("a connection to the store", || {
            let cluster = cluster(&gateway);
            (cluster.connected && cluster.registered).then_some(())
        });
        gateway
    }

    pub(crate) fn mobile(&self) -> IpAddr {
        self.site.world().mobile_address(0)
    }

    /// How often the mobile host's key was written.
    pub(crate) fn writes(&self) -> u64 {
        let key = BASE64_STANDARD.encode(format!("/holdover/mobiles/{}", self.mobile()));
        let found = self.store.ask("v3/kv/range", Some(&serde_json::json!({ "key": key }))).unwrap();
        found["kvs"][0]["version"].as_str().map_or(0, |version| version.parse().unwrap())
    }

    /// Waits until a gateway owns the mobile host, by its own status.
    pub(crate) fn owned_by(&self, gateway: &Gateway) {
        wait_for("the owner", || (cluster(gateway).owned == 1).then_some(()));
    }
}

pub(crate) fn cluster(gateway: &Gateway) -> ClusterStatus {
    gateway.status().cluster.unwrap()
}

/// Datagrams from the fixed host that are numbered, and those that the mobile host has received.
pub(crate) struct Numbered {
    from: UdpSocket,
    into: UdpSocket,
    sent: u32,
    received: Vec<u32>,
}

impl Numbered {
    pub(crate) fn new(site: &Site) -> Self {
        let world = site.world();
        let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
        let into = world.mobile(0).enter(bind(world.mobile_address(0))).unwrap();
        let from = world.fixed().enter(bind(world.fixed_address())).unwrap();
        into.set_nonblocking(true).unwrap();
        // A test reads between other work: the kernel would drop what does not fit meanwhile.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&into, 64 << 20).unwrap();
        Self { from, into, sent: 0, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, count: u32) {
        for _ in 0..count {
            self.from.send_to(&self.sent.to_be_bytes(), self.into.local_addr().unwrap()).unwrap();
            self.sent += 1;
        }
    }

    /// The mobile host sends a packet, where it is now.
    pub(crate) fn call(&self) {
        self.into.send_to(b"here", self.from.local_addr().unwrap()).unwrap();
    }

    fn receive(&mut self) {
        let mut buffer = [0; 16];
        while let Ok(4) = self.into.recv(&mut buffer) {
            self.received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
    }

    /// Waits until all have arrived, each once.
    #[track_caller]
    pub(crate) fn all_arrive_once(&mut self) {
        wait_for("all datagrams", || {
            self.receive();
            (self.received.len() >= self.sent as usize).then_some(())
        });
        sleep(Duration::from_millis(300));
        self.receive();
        let mut sorted = self.received.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..self.sent).collect::<Vec<_>>());
    }
}

fn a_handoff_is_one_write(_: &Namespace) {
    let cluster = Cluster::new("one", 2);
    let Cluster { site, .. } = &cluster;
    let world = site.world();
    let first = cluster.start(0);
    let other = cluster.start(1);
    let mobile = cluster.mobile();
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&first);
    assert_eq!(cluster.writes(), 1);
    assert_eq!(first.mobile(mobile).unwrap().owner.as_deref(), Some("a"));
    let mut datagrams = Numbered::new(site);
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    datagrams.send(200);
    wait_for("packets that wait", || (first.status().waiting >= 200).then_some(()));
    site.move_to(0, 1, true).unwrap();
    let began = Instant::now();
    wait_for("what has waited", || {
        datagrams.receive();
        (datagrams.received.len() >= 200).then_some(())
    });
    eprintln!("what waited at the first gateway came by the second one after {:?}", began.elapsed());
    datagrams.all_arrive_once();
    assert_eq!(datagrams.received, (0..200).collect::<Vec<_>>(), "in order");
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    cluster.owned_by(&other);
    wait_for("the end of the handoff", || first.mobile(mobile).is_none().then_some(()));
    assert_eq!(cluster.writes(), 2, "one write for the handoff");
    assert_eq!(first.status().handoff.unwrap().connections_left, 1);
    let (first, other) = (self::cluster(&first), self::cluster(&other));
    assert_eq!((first.counters.lost, first.owned, first.elsewhere), (1, 0, 1), "{first:?}");
    assert_eq!((other.counters.won, other.counters.fenced, other.owned), (1, 0, 1), "{other:?}");
    assert!(first.epoch == other.epoch && first.gateways[0].alive, "{first:?}");
}

fn without_the_store(_: &Namespace) {
    let mut cluster = Cluster::new("away", 2);
    let (first, other) = (cluster.start(0), cluster.start(1));
    let mobile = cluster.mobile();
    let transfer = Transfer::start(cluster.site.world(), 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&first);
    cluster.store.kill();
    wait_for("the store's absence to be told", || {
        let clusters = [&first, &other].map(self::cluster);
        clusters.iter().all(|cluster| !cluster.connected && cluster.away_s.is_some()).then_some(())
    });
    // An owned mobile host is served without the store: an absence, and its return.
    cluster.site.world().set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    sleep(Duration::from_millis(500));
    let world = cluster.site.world();
    let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");
    transfer.await_more(500_000).unwrap();
    // Packets wait at the first gateway while the mobile host moves, and the connection resumes at once.
    let mut datagrams = Numbered::new(&cluster.site);
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    datagrams.send(50);
    wait_for("packets that wait", || (first.status().waiting >= 50).then_some(()));
    cluster.site.move_to(0, 1, true).unwrap();
    transfer.await_more(500_000).unwrap();
    sleep(LEASE);
    datagrams.receive();
    assert!(datagrams.received.is_empty(), "they wait for the owner to be agreed on: {:?}", datagrams.received);
    assert_eq!((self::cluster(&other).claimed, self::cluster(&other).owned), (1, 0));
    cluster.store.restart().unwrap();
    datagrams.all_arrive_once();
    cluster.owned_by(&other);
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!(cluster.writes(), 2);
    wait_for("both to be connected", || {
        [&first, &other].iter().all(|gateway| self::cluster(gateway).connected).then_some(())
    });
}

fn cut_off_from_the_store(_: &Namespace) {
    let cluster = Cluster::new("cut", 2);
    let Cluster { site, .. } = &cluster;
    let (first, other) = (cluster.start(0), cluster.start(1));
    let transfer = Transfer::start(site.world(), 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&first);
    let router = site.router(0);
    let cut = || Netlink::open(router).unwrap().add_unreachable(Site::store_address(), 32).unwrap();
    router.enter(cut).unwrap();
    wait_for("the end of its lease", || (!self::cluster(&other).gateways[0].alive).then_some(()));
    let alone = self::cluster(&first);
    assert!(!alone.connected && !alone.registered && alone.away_s.is_some() && alone.owned == 1, "{alone:?}");
    // It still serves its mobile host, and buffers packets while that is absent.
    transfer.await_more(500_000).unwrap();
    site.world().set_cut(Cut::Silent, true).unwrap();
    first.says(cluster.mobile(), "away");
    let mut datagrams = Numbered::new(site);
    datagrams.send(50);
    wait_for("packets that wait", || (first.status().waiting >= 50).then_some(()));
    site.move_to(0, 1, true).unwrap();
    cluster.owned_by(&other);
    datagrams.all_arrive_once();
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    // It learned that from the other gateway alone.
    let alone = self::cluster(&first);
    assert_eq!((alone.connected, alone.owned, alone.counters.lost), (false, 0, 1), "{alone:?}");
    assert_eq!(cluster.writes(), 2);
}

fn another_gateway_takes_over(_: &Namespace) {
    let cluster = Cluster::new("killed", 2);
    let Cluster { site, .. } = &cluster;
    let world = site.world();
    let mut first = cluster.start(0);
    let other = cluster.start(1);
    let mobile = cluster.mobile();
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&first);
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    first.kill();
    wait_for("the end of the lease", || (!self::cluster(&other).gateways[0].alive).then_some(()));
    // The network's routes follow, as with VRRP; the mobile host is still absent.
    site.route(0, 1).unwrap();
    let mut datagrams = Numbered::new(site);
    wait_for("its packets to be kept", || {
        datagrams.send(1);
        sleep(Duration::from_millis(50));
        (other.status().waiting > 0).then_some(())
    });
    datagrams.send(50);
    cluster.owned_by(&other);
    assert_eq!(self::cluster(&other).counters.taken_over, 1);
    let kept = other.status().waiting;
    assert!(kept >= 50, "{kept}");
    site.move_to(0, 1, true).unwrap();
    transfer.await_more(500_000).unwrap();
    wait_for("what was kept", || {
        datagrams.receive();
        (datagrams.received.len() >= 50).then_some(())
    });
    transfer.ends_exact().unwrap();
    assert_eq!(cluster.writes(), 2);
    // The first gateway's next process learns that the other one owns it.
    first.restart();
    wait_for("the next process", || {
        let cluster = self::cluster(&first);
        (cluster.connected && cluster.elsewhere == 1 && cluster.owned == 0).then_some(())
    });
    wait_for("its lease", || self::cluster(&other).gateways[0].alive.then_some(()));
}

fn a_stale_owner_is_fenced(_: &Namespace) {
    let cluster = Cluster::new("stale", 2);
    let Cluster { site, .. } = &cluster;
    let world = site.world();
    let mut first = cluster.start(0);
    let other = cluster.start(1);
    let mobile = cluster.mobile();
    let mut datagrams = Numbered::new(site);
    datagrams.call();
    cluster.owned_by(&first);
    world.set_cut(Cut::Silent, true).unwrap();
    first.says_after(mobile, "away", || datagrams.send(1));
    datagrams.send(100);
    wait_for("packets that wait", || (first.status().waiting >= 100).then_some(()));
    // The first gateway is killed and loses its lease; meanwhile the mobile host attaches to the other one.
    first.kill();
    wait_for("the end of the lease", || (!self::cluster(&other).gateways[0].alive).then_some(()));
    site.move_to(0, 1, true).unwrap();
    cluster.owned_by(&other);
    // The next process has the packets, but not the mobile host: it offers them to the owner.
    first.restart();
    wait_for("what the first one kept", || {
        datagrams.receive();
        (datagrams.received.len() >= 100).then_some(())
    });
    sleep(Duration::from_millis(300));
    datagrams.receive();
    let mut sorted = datagrams.received.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), datagrams.received.len(), "each once");
    wait_for("its files to be gone", || (first.files() == 0).then_some(()));
    assert_eq!(cluster.writes(), 2, "the first one did not write");
    // The key is overwritten in the store for an unknown gateway: the owner gives the mobile host up.
    let key = BASE64_STANDARD.encode(format!("/holdover/mobiles/{mobile}"));
    let value = BASE64_STANDARD.encode("{\"owner\":\"c\"}");
    cluster.store.ask("v3/kv/put", Some(&serde_json::json!({ "key": key, "value": value }))).unwrap();
    wait_for("the loss", || (self::cluster(&other).counters.lost == 1).then_some(()));
    assert_eq!(self::cluster(&other).owned, 0);
}

fn to_and_fro(_: &Namespace) {
    let cluster = Cluster::new("fro", 2);
    let Cluster { site, .. } = &cluster;
    let gateways = [cluster.start(0), cluster.start(1)];
    let transfer = Transfer::start(site.world(), 0, false).unwrap();
    transfer.await_more(200_000).unwrap();
    cluster.owned_by(&gateways[0]);
    for turn in 1..=6_usize {
        let (at, from) = (turn % 2, 1 - turn % 2);
        site.move_to(0, at, true).unwrap();
        transfer.await_more(200_000).unwrap();
        // Packets of a mobile host that has just left do not count for a second.
        cluster.owned_by(&gateways[at]);
        assert_eq!(cluster.writes(), 1 + turn as u64);
        wait_for("the former owner to know", || (self::cluster(&gateways[from]).owned == 0).then_some(()));
    }
    transfer.ends_exact().unwrap();
    let fenced: u64 = gateways.iter().map(|gateway| self::cluster(gateway).counters.fenced).sum();
    assert_eq!(fenced, 0);
}

/// It is heard at the first gateway and moves on to the other one while the store is away: nobody has written yet.
// Claim: With a real etcd, on real kernels: a handoff is one write, and what waits follows, once and in order; without the store
// an absence, a return and a move go on, and the owner changes once it is back; a gateway that is cut off from the store goes on,
// and hands over to the one that has become the owner; packets for a mobile host of a gateway that was killed are kept and
// released by another one; what the killed one kept goes to the owner once; six moves to and fro are six writes; a wrong password
// is told; after an outage the gateway that hears a mobile host has it, with one write; a router that overhears broadcasts does
// not claim their sender; 2,500 keys are read, and half of the room is left to the gateway's own mobile hosts; a stop in the
// middle of a handoff loses nothing, and keeps the order.
// Tests: `cluster::overhears`, `cluster::many_keys`, `cluster::stop_during_a_handoff`, `cluster::a_handoff_is_one_write`,
// `cluster::without_the_store`, `cluster::cut_off_from_the_store`, `cluster::another_gateway_takes_over`,
// `cluster::a_stale_owner_is_fenced`, `cluster::to_and_fro`, `cluster::with_a_password`
fn hears_after_an_outage(_: &Namespace) {
    let mut cluster = Cluster::new("hears", 2);
    let gateways = [cluster.start(0), cluster.start(1)];
    cluster.store.kill();
    let is_away = |gateway: &Gateway| !self::cluster(gateway).connected;
    wait_for("the store's absence to be told", || gateways.iter().all(is_away).then_some(()));
    let datagrams = Numbered::new(&cluster.site);
    wait_for("a claim of each", || {
        datagrams.call();
        (self::cluster(&gateways[0]).claimed == 1).then_some(())
    });
    cluster.site.move_to(0, 1, true).unwrap();
    sleep(Duration::from_secs(3));
    assert_eq!(gateways.each_ref().map(|gateway| self::cluster(gateway).claimed), [1, 1]);
    cluster.store.restart().unwrap();
    let began = Instant::now();
    while began.elapsed() < LEASE * 2 {
        datagrams.call();
        sleep(Duration::from_millis(50));
    }
    cluster.owned_by(&gateways[1]);
    let [first, other] = gateways.each_ref().map(self::cluster);
    assert_eq!((cluster.writes(), first.counters.won, other.counters.won), (1, 0, 1), "{first:?} {other:?}");
    assert_eq!((first.claimed, first.elsewhere), (0, 1), "{first:?}");
}

/// Both routers are on one segment: what the mobile host sends to all is heard by both, and it uses one of them.
fn overhears(_: &Namespace) {
    let cluster = Cluster::new("overhears", 2);
    cluster.site.join_radios().unwrap();
    let (first, other) = (cluster.start(0), cluster.start(1));
    let datagrams = Numbered::new(&cluster.site);
    datagrams.into.set_broadcast(true).unwrap();
    let call_all = || datagrams.into.send_to(b"all", "10.2.0.255:9").unwrap();
    wait_for("both to hear it", || {
        datagrams.call();
        call_all();
        let has_heard = |gateway: &Gateway| gateway.mobile(cluster.mobile()).is_some();
        (has_heard(&first) && has_heard(&other)).then_some(())
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        datagrams.call();
        call_all();
        sleep(Duration::from_millis(20));
    }
    cluster.owned_by(&first);
    assert!(other.mobile(cluster.mobile()).unwrap().silent_s.unwrap() < 1.0, "it hears it all the time");
    let other = self::cluster(&other);
    assert_eq!((cluster.writes(), other.counters.won, other.claimed), (1, 0, 0), "{other:?}");
}

fn arrives_with_broadcasts(_: &Namespace) {
    let cluster = Cluster::new("broadcasts", 2);
    let Cluster { site, .. } = &cluster;
    let (first, other) = (cluster.start(0), cluster.start(1));
    let mut datagrams = Numbered::new(site);
    datagrams.into.set_broadcast(true).unwrap();
    datagrams.call();
    cluster.owned_by(&first);
    // Nothing is lost: the first gateway knows that it is away before something is sent to it.
    site.leave(0).unwrap();
    first.report(cluster.mobile(), holdover_gatewayd::control::Standing::Away).unwrap();
    wait_for("packets to be diverted", || first.mobile(cluster.mobile()).filter(|line| line.diverts));
    datagrams.send(20);
    wait_for("packets that wait", || (first.status().waiting >= 20).then_some(()));
    // The network's routes still lead to the first gateway, and the mobile host sends to nobody in particular.
    site.attach(0, 1).unwrap();
    let began = Instant::now();
    wait_for("what has waited", || {
        datagrams.into.send_to(b"all", "10.2.0.255:9").unwrap();
        datagrams.receive();
        sleep(Duration::from_millis(100));
        (datagrams.received.len() >= 20).then_some(())
    });
    eprintln!("what waited came {:?} after the first broadcast at the other gateway", began.elapsed());
    datagrams.all_arrive_once();
    cluster.owned_by(&other);
    assert_eq!(cluster.writes(), 2);
}

fn stays_away(_: &Namespace) {
    let cluster = Cluster::new("forgotten", 1);
    let Cluster { site, .. } = &cluster;
    let gateway = cluster.start_with(0, "[presence]\nforget_after = \"2 s\"\n[buffer]\nlongest = \"3 s\"\n");
    let mobile = cluster.mobile();
    let mut datagrams = Numbered::new(site);
    datagrams.call();
    cluster.owned_by(&gateway);
    site.world().set_cut(Cut::Silent, true).unwrap();
    gateway.says_after(mobile, "away", || datagrams.send(1));
    datagrams.send(10);
    let began = Instant::now();
    wait_for("packets that wait", || (gateway.status().waiting >= 10).then_some(()));
    wait_for("the end of its state", || gateway.mobile(mobile).is_none().then_some(()));
    let status = gateway.status();
    assert!(began.elapsed() >= Duration::from_secs(3) && status.buffer.aged >= 10, "what waits ages first: {status:?}");
    wait_for("the end of its key", || (cluster.writes() == 0).then_some(()));
    // The store answers a little later.
    wait_for("the answer of the store", || (self::cluster(&gateway).owned == 0).then_some(()));
    assert_eq!(gateway.files(), 0);
    // It comes back all the same.
    site.world().set_cut(Cut::Silent, false).unwrap();
    wait_for("its return", || {
        datagrams.call();
        (self::cluster(&gateway).owned == 1).then_some(())
    });
    assert_eq!(gateway.mobile(mobile).unwrap().standing, "present");
}

/// Mobile hosts of a gateway that is not registered.
fn many_keys(_: &Namespace) {
    const KEYS: u16 = 2500;
    let cluster = Cluster::new("many", 1);
    let Cluster { site, store } = &cluster;
    let value = BASE64_STANDARD.encode("{\"owner\":\"z\"}");
    let numbers: Vec<u16> = (0..KEYS).collect();
    for some in numbers.chunks(100) {
        let put = |number: &u16| {
            let [high, low] = number.to_be_bytes();
            let key = BASE64_STANDARD.encode(format!("/holdover/mobiles/10.2.{}.{low}", high + 1));
            serde_json::json!({ "request_put": { "key": key, "value": value } })
        };
        let puts: Vec<_> = some.iter().map(put).collect();
        store.ask("v3/kv/txn", Some(&serde_json::json!({ "success": puts }))).unwrap();
    }
    let settings = "[mobiles]\nnetworks = [\"10.2.0.0/16\"]\n[buffer]\nmost_mobiles = 1000\n";
    let gateway = Gateway::start(site.router(0), &site.cluster(0, settings));
    let found = wait_for("all keys", || {
        let found = self::cluster(&gateway);
        (found.elsewhere == u64::from(KEYS) && found.not_adopted > 0).then_some(found)
    });
    assert_eq!((found.adopted, found.not_adopted), (500, u64::from(KEYS) - 500), "{found:?}");
    // Its own mobile hosts have room, and are probed as soon as without the others.
    let transfer = Transfer::start(site.world(), 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&gateway);
    site.world().set_cut(Cut::Silent, true).unwrap();
    gateway.says(cluster.mobile(), "away");
    let took = transfer.resumes(|| site.world().set_cut(Cut::Silent, false).unwrap()).unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");
    transfer.ends_exact().unwrap();
}

fn stop_during_a_handoff(_: &Namespace) {
    const PACKETS: u64 = 10_000;
    let cluster = Cluster::new("stop", 2);
    let Cluster { site, .. } = &cluster;
    let mut first = cluster.start(0);
    let other = cluster.start(1);
    let mobile = cluster.mobile();
    let mut datagrams = Numbered::new(site);
    datagrams.call();
    cluster.owned_by(&first);
    site.world().set_cut(Cut::Silent, true).unwrap();
    first.says_after(mobile, "away", || datagrams.send(1));
    let lost_before = datagrams.sent - first.status().waiting as u32;
    for waiting in (500..=PACKETS).step_by(500) {
        datagrams.send(500);
        wait_for("packets that wait", || (first.status().waiting >= waiting).then_some(()));
    }
    // The other gateway cannot be reached in the middle of the handoff.
    let set = |is_up: bool| {
        let mut netlink = Netlink::open(site.backbone()).unwrap();
        if is_up { netlink.set_up("router1").unwrap() } else { netlink.set_down("router1").unwrap() }
    };
    site.move_to(0, 1, true).unwrap();
    wait_for("the handoff to begin", || (first.status().handoff.unwrap().packets_left > 0).then_some(()));
    site.backbone().enter(|| set(false)).unwrap();
    assert!(first.status().waiting > 0, "the handoff was over");
    first.signal(rustix::process::Signal::TERM);
    assert!(first.ends(Duration::from_secs(5)));
    first.restart();
    site.backbone().enter(|| set(true)).unwrap();
    let mut called_at = Instant::now();
    wait_for("all packets", || {
        // On a busy machine the lease of the other gateway may have ended meanwhile; it claims what it hears.
        if called_at.elapsed() > Duration::from_millis(500) {
            called_at = Instant::now();
            datagrams.call();
        }
        datagrams.receive();
        let mut arrived = datagrams.received.clone();
        arrived.sort_unstable();
        arrived.dedup();
        (arrived.len() as u32 >= datagrams.sent - lost_before).then_some(())
    });
    let mut arrived = BTreeSet::new();
    let order: Vec<u32> = datagrams.received.iter().copied().filter(|number| arrived.insert(*number)).collect();
    assert!(order.is_sorted(), "what was in flight comes before what still waited: {order:?}");
    // The confirmations of those in flight may have been lost.
    let twice = datagrams.received.len() as u32 - (datagrams.sent - lost_before);
    assert!(twice <= 16, "{twice}");
    drop(other);
}

fn with_a_password(_: &Namespace) {
    let cluster = Cluster::new("users", 1);
    let Cluster { site, store } = &cluster;
    let ask = |method: &str, body: serde_json::Value| store.ask(&format!("v3/auth/{method}"), Some(&body)).unwrap();
    ask("user/add", serde_json::json!({ "name": "root", "password": "s3cret" }));
    ask("role/add", serde_json::json!({ "name": "root" }));
    ask("user/grant", serde_json::json!({ "user": "root", "role": "root" }));
    ask("enable", serde_json::json!({}));
    let password = path("password", "users");
    for (text, connects) in [("s3cret\n", true), ("guess\n", false)] {
        std::fs::write(&password, text).unwrap();
        let settings = format!("user = \"root\"\npassword_file = {password:?}\n");
        let gateway = Gateway::start(site.router(0), &site.cluster(0, &settings));
        let found = wait_for("an answer", || {
            let cluster = self::cluster(&gateway);
            // On a busy machine the store may answer late.
            let is_refused = cluster.failure.as_ref().is_some_and(|failure| !failure.contains("timeout"));
            (cluster.connected || is_refused).then_some(cluster)
        });
        assert_eq!(found.connected, connects, "{found:?}");
        assert!(connects || found.failure.unwrap().contains("authentication failed"));
    }
    std::fs::remove_file(password).unwrap();
}
