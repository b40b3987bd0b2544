//! Gateways of a cluster beside the daemons that change routes: keepalived (VRRP) towards mobile hosts, bird (OSPF) towards the rest of the
//! network. The configuration of keepalived is that of docs/guide/gateway.md without process tracking, which needs the initial network
//! namespace (the kernel's proc connector); those of bird follow the guide.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdover_host::Process;
use holdover_host::process::{LogTo, find};
use holdover_testbed::gateway::{Cut, MOBILE_FACING, Transfer, World};
use holdover_testbed::{Namespace, Netlink, Route};

use crate::Test;
use crate::cluster::{Cluster, Numbered, cluster};
use crate::handoff::wait_for;

pub(crate) const OSPF: &[Test] = &[("ospf_brings_packets_to_another_gateway_when_one_is_dead", with_bird)];
pub(crate) const VRRP: &[Test] = &[
    ("vrrp_brings_mobile_hosts_to_another_gateway_when_one_is_dead", with_keepalived),
    ("keepalived_accepts_the_guides_configuration", keepalived_accepts_the_recipe),
];

/// Finds bird: named by `HOLDOVER_BIRD`, or in `PATH` or `/usr/sbin`.
pub(crate) fn find_bird() -> Result<PathBuf, String> {
    find("HOLDOVER_BIRD", "bird", "bird2")
}

/// Finds keepalived: named by `HOLDOVER_KEEPALIVED`, or in `PATH` or `/usr/sbin`.
pub(crate) fn find_keepalived() -> Result<PathBuf, String> {
    find("HOLDOVER_KEEPALIVED", "keepalived", "keepalived")
}

/// A daemon in the foreground, with a directory of its own. Both end with this value.
struct Daemon {
    process: Process,
    directory: PathBuf,
}

impl Daemon {
    /// `arguments`: `{}` is the directory, in which `config` is the configuration.
    fn start(namespace: &Namespace, program: PathBuf, name: &str, config: &str, arguments: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-{name}-{}", std::process::id()));
        holdover_testbed::gateway::make_directory(&directory).unwrap();
        std::fs::write(directory.join("config"), config).unwrap();
        let mut command = Command::new(program);
        let place = directory.display().to_string();
        command.args(arguments.iter().map(|argument| argument.replace("{}", &place)));
        Self { process: Process::start(namespace, command, LogTo::Nothing).unwrap(), directory }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// OSPF on these interfaces, with their costs; `kernel` are options of the kernel's table.
fn bird(namespace: &Namespace, name: &str, id: u8, kernel: &str, interfaces: &[(&str, &str)]) -> Daemon {
    let interface = |(name, options): &(&str, &str)| format!("interface \"{name}\" {{ hello 1; dead 3; {options} }};");
    let interfaces: Vec<String> = interfaces.iter().map(interface).collect();
    let config = format!(
        "router id 10.4.0.{id};\nprotocol device {{ }}\nprotocol kernel {{ ipv4 {{ {kernel} }}; }}\n\
         protocol ospf v2 {{ ipv4 {{ import all; export none; }}; area 0 {{ {} }}; }}\n",
        interfaces.join(" ")
    );
    let arguments = ["-f", "-c", "{}/config", "-s", "{}/socket", "-P", "{}/pid"];
    Daemon::start(namespace, find_bird().unwrap(), &format!("bird-{name}"), &config, &arguments)
}

/// The first gateway dies with its machine: OSPF brings its mobile hosts' packets to the other one, which keeps them.
// Claim: A gateway dies with its machine: OSPF (bird) brings the packets of its mobile hosts to the other one, which keeps and
// releases them; VRRP (keepalived) brings the mobile host to it, which claims it with one write.
// Tests: `routing::with_keepalived`
fn with_bird(_: &Namespace) {
    let cluster = Cluster::new("bird", 2);
    let (site, world) = (&cluster.site, cluster.site.world());
    let mobile = cluster.mobile();
    // The fixed host's address on the way to the mobile host.
    let way = || {
        let connect = || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((mobile, 9))?;
            socket.local_addr()
        };
        world.fixed().enter(connect).unwrap().unwrap().ip().to_string()
    };
    let both = [("eth0", ""), ("eth1", "")];
    let _fixed = bird(world.fixed(), "fixed", 200, "export all;", &both);
    let _second = bird(site.router(1), "second", 2, "", &[("fix0", ""), (MOBILE_FACING, "stub; cost 20;")]);
    wait_for("OSPF's way by the second router", || (way() == "10.3.1.2").then_some(()));
    let bird_of_first = bird(world.router(), "first", 1, "", &[("fix0", ""), (MOBILE_FACING, "stub; cost 10;")]);
    wait_for("OSPF's way by the first router", || (way() == "10.1.0.2").then_some(()));
    let (mut first, other) = (cluster.start(0), cluster.start(1));
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    cluster.owned_by(&first);
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    first.kill();
    drop(bird_of_first);
    let began = Instant::now();
    wait_for("OSPF's way by the second router", || (way() == "10.3.1.2").then_some(()));
    eprintln!("OSPF has changed the route after {:?}", began.elapsed());
    let mut datagrams = Numbered::new(site);
    wait_for("its packets to be kept", || {
        datagrams.send(1);
        std::thread::sleep(Duration::from_millis(50));
        (other.status().waiting > 0).then_some(())
    });
    cluster.owned_by(&other);
    assert_eq!(self::cluster(&other).counters.taken_over, 1);
    site.move_to(0, 1, false).unwrap();
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
}

/// The configuration of keepalived in the guide, for the interface of the tests.
fn recipe() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/gateway.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let block = guide.split("```").find(|block| block.contains("vrrp_instance ")).expect("the recipe");
    assert!(block.contains("interface wlan0\n"), "{block}");
    block.replace("wlan0", MOBILE_FACING)
}

/// The text without a block that begins with `head` and has none in it.
fn without_block(text: &str, head: &str) -> String {
    let (before, rest) = text.split_once(head).unwrap_or_else(|| panic!("no {head} in {text}"));
    let (_, after) = rest.split_once('}').unwrap();
    format!("{before}{after}")
}

/// VRRP's virtual address towards the mobile hosts.
fn keepalived(namespace: &Namespace, name: &str, priority: u8) -> Daemon {
    let config = without_block(&without_block(&recipe(), "vrrp_track_process holdover {"), "track_process {");
    assert!(config.contains("priority 150\n"), "{config}");
    let config = config.replace("priority 150\n", &format!("priority {priority}\n"));
    let arguments = ["-n", "-l", "-P", "-f", "{}/config", "-p", "{}/pid", "-r", "{}/vrrp"];
    Daemon::start(namespace, find_keepalived().unwrap(), &format!("keepalived-{name}"), &config, &arguments)
}

// Claim: keepalived accepts the configuration in the guide as it is, with the process that it tracks.
fn keepalived_accepts_the_recipe(_: &Namespace) {
    let world = World::new(1).unwrap();
    let directory = std::env::temp_dir().join(format!("holdover-recipe-{}", std::process::id()));
    holdover_testbed::gateway::make_directory(&directory).unwrap();
    let outcome = |name: &str, text: &str| {
        let file = directory.join(name);
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(find_keepalived().unwrap());
        command.arg("--config-test").arg("-f").arg(&file).stdin(Stdio::null());
        world.router().enter(move || command.output()).unwrap().unwrap()
    };
    let accepted = outcome("recipe", &recipe());
    // It would notice a mistake.
    let refused = outcome("mistake", &recipe().replace("virtual_router_id 51", "virtual_router_id 510"));
    let _ = std::fs::remove_dir_all(&directory);
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(!refused.status.success(), "{refused:?}");
}

/// Both routers are on the mobile hosts' segment. The first one dies with its machine: the mobile host's packets go to the other one.
fn with_keepalived(_: &Namespace) {
    let cluster = Cluster::new("keepalived", 2);
    let (site, world) = (&cluster.site, cluster.site.world());
    site.join_radios().unwrap();
    let settings = "[mobiles]\nexclude = [\"10.2.0.254/32\", \"10.2.0.1/32\", \"10.2.0.2/32\"]\n";
    let (mut first, other) = (cluster.start_with(0, settings), cluster.start_with(1, settings));
    let keepalived_of_first = keepalived(world.router(), "first", 150);
    let _second = keepalived(site.router(1), "second", 100);
    let has_address = |router: &Namespace| {
        let addresses = || Netlink::open(router).unwrap().addresses(MOBILE_FACING).unwrap();
        router.enter(addresses).unwrap().contains(&[10, 2, 0, 254].into())
    };
    wait_for("VRRP's first master", || (has_address(world.router()) && !has_address(site.router(1))).then_some(()));
    let by_virtual_address = || {
        let gateway = Some([10, 2, 0, 254].into());
        let route = Route { destination: ([0; 4].into(), 0), next_hop: gateway, link: "eth0".to_owned(), source: None };
        Netlink::open(world.mobile(0)).unwrap().replace_route(&route).unwrap();
    };
    world.mobile(0).enter(by_virtual_address).unwrap();
    let mut datagrams = Numbered::new(site);
    datagrams.call();
    cluster.owned_by(&first);
    first.kill();
    let down = || Netlink::open(world.router()).unwrap().set_down(MOBILE_FACING).unwrap();
    world.router().enter(down).unwrap();
    drop(keepalived_of_first);
    let began = Instant::now();
    wait_for("VRRP's next master", || has_address(site.router(1)).then_some(()));
    eprintln!("VRRP has moved the address after {:?}", began.elapsed());
    wait_for("the mobile host to be heard at the other router", || {
        datagrams.call();
        (self::cluster(&other).owned == 1).then_some(())
    });
    eprintln!("the other gateway owns the mobile host after {:?}", began.elapsed());
    // Towards the mobile host, the rest of the network follows as it does without VRRP.
    site.route(0, 1).unwrap();
    datagrams.send(20);
    datagrams.all_arrive_once();
    assert_eq!(cluster.writes(), 2);
}
