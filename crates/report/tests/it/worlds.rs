//! Worlds to record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, Loss, Outage, Outages, QueueLimit, Rate};
use holdover_report::{Record, Recorder, RecorderOptions};
use holdover_sim::{
    Amount, Bulk, FlowConfig, LinkBetween, NodeConfig, NodeId, Opener, Role, Traffic, World, WorldConfig,
};
use holdover_tcp::Profile;

/// A transfer from a fixed host through a router to a mobile one, whose wireless link loses packets and fails twice.
pub(crate) fn train(profile: Profile, seed: u64) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let at = Instant::from_secs;
    let wireless = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(2)),
        delay: Duration::from_millis(20),
        queue_limit: QueueLimit::Packets(30),
        loss: Loss::Independent(0.001),
        outages: Outages::List(vec![Outage { down: at(10), up: at(17) }, Outage { down: at(24), up: at(26) }]),
        ..LinkConfig::default()
    };
    let wired = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(100)),
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    let between = |name: &str, a, b, config: LinkConfig| LinkBetween::wire(name, NodeId(a), NodeId(b), config);
    let config = Arc::new(profile.config());
    WorldConfig {
        seed,
        nodes: vec![node("server", Role::Host), node("gateway", Role::Router), node("mobile", Role::Host)],
        links: vec![between("ethernet", 0, 1, wired), between("wifi", 1, 2, wireless)],
        flows: vec![FlowConfig {
            name: "download".into(),
            from: NodeId(0),
            to: NodeId(2),
            start: Instant::from_millis(500),
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(6_000_000)), opener: Opener::Receiver }),
            ipv6: false,
        }],
        time_limit: Instant::from_secs(120),
        sample_every: Some(Duration::from_millis(10)),
        ..WorldConfig::default()
    }
}

/// Records the run of `world` into `dir`.
pub(crate) fn record(world: WorldConfig, dir: &Path, options: &RecorderOptions) -> Record {
    let mut recorder = Recorder::create(dir, &world, options).expect("the directory can be written");
    let mut world = World::new(world).expect("a valid world");
    let ending = world.run(&mut recorder);
    recorder.finish(&world, ending).expect("the disk is not full")
}

/// An empty directory of this name below cargo's directory for tests.
pub(crate) fn empty_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("the target directory can be written");
    dir
}
