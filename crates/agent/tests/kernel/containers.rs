//! Containers: processes in a network namespace and a cgroup of their own, behind a router that translates addresses, with
//! the agent on the host.
//!
//! Each test is a process with its own process namespace: an agent that serves containers acts in every network namespace
//! of which it sees a process.

use std::io::{Write as _, stdin};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::sockets::find_cgroup2_mount;
use holdover_agent::status::ConnectionStatus;
use holdover_testbed::harness::skip;
use holdover_testbed::{Namespace, Netlink, sysctl};

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS};
use crate::other_process::{ARGUMENT, OtherProcess, ROLE};

pub(crate) const TESTS: &[Test] = &[
    ("rules_and_names_reach_a_namespace_with_a_cgroup", rules_and_names_reach_a_namespace_with_a_cgroup),
    ("rules_and_names_reach_a_container_of_crun", rules_and_names_reach_a_container_of_crun),
    ("containers_are_left_alone_by_default", containers_are_left_alone_by_default),
];

const LIMIT: Duration = Duration::from_secs(30);

/// As Docker numbers a container.
const NUMBER: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";

/// The container's end of the link to the host, and the host's.
const INSIDE: &str = "172.30.0.2";
const HOST: &str = "172.30.0.1";

const SERVER: &str = "192.0.2.1";
/// The host's address towards the server, which the container's connections get.
const OUTSIDE: &str = "192.0.2.7";

const OPEN_BEFORE: u16 = 7001;
const BY_CGROUP: u16 = 7002;
const EXEMPT: u16 = 7003;

// Claim: With containers served, a connection in another network namespace and cgroup, behind a translating host, gets its
// timeout: open before the agent, new, and by a rule for its cgroup; the status has its process and cgroup, and `leave_alone`
// exempts it where the host forwards it. The end restores it, and so does a reload without containers, and the namespace ends
// with the container.
fn rules_and_names_reach_a_namespace_with_a_cgroup(_: &Namespace) {
    play_in_a_process_namespace("namespace");
}

// Claim: A connection in a container of crun gets its timeout, too (`HOLDOVER_CRUN`; skipped where there is none).
fn rules_and_names_reach_a_container_of_crun(_: &Namespace) {
    if Crun::find().is_none() {
        return skip("crun is not installed (Debian: crun)");
    }
    play_in_a_process_namespace("crun");
}

// Claim: Without `[containers]`, connections of other namespaces keep their timeouts and have no name.
fn containers_are_left_alone_by_default(_: &Namespace) {
    play_in_a_process_namespace("default");
}

/// Runs a case in a copy of this program that sees its own processes only. They end with it.
fn play_in_a_process_namespace(case: &str) {
    let options = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let status = Command::new("unshare")
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, "containers")
        .env(ARGUMENT, case)
        .status();
    match status {
        Ok(status) => assert!(status.success(), "{case}: {status}"),
        Err(error) => skip(format!("unshare (util-linux) does not run: {error}")),
    }
}

/// The role of the copy.
pub(crate) fn play(case: &str) {
    let near = Namespace::current().unwrap();
    let cgroup = Cgroup::new(case);
    let launch = |cgroup: &Cgroup| match case {
        "crun" => Contained::by_crun(&Crun::find().expect("it was found before"), cgroup),
        _ => Contained::in_namespace(cgroup),
    };
    match case {
        "default" => nothing_is_done(&near, &cgroup, launch(&cgroup)),
        _ => rules_and_names_reach(&near, &cgroup, launch(&cgroup)),
    }
}

fn rules_and_names_reach(near: &Namespace, cgroup: &Cgroup, mut inside: Contained) {
    let (_lan, _servers) = join(near, &inside);
    inside.connects_to(OPEN_BEFORE);
    let pattern = format!("{}/*.scope", cgroup.name);
    let config = |is_enabled| {
        format!(
            "[containers]\nenabled = {is_enabled}\n\
             [user_timeouts]\nbuilt_in = false\nrestore_on_exit = true\ncgroup = \"{}\"\n\
             [[flow]]\nremote_port = {OPEN_BEFORE}\nfail_fast = \"30 s\"\n\
             [[flow]]\nremote_port = {BY_CGROUP}\ncgroup = \"{pattern}\"\nfail_fast = \"40 s\"\n\
             [[flow]]\nremote_port = {EXEMPT}\ncgroup = \"{pattern}\"\nleave_alone = true\n",
            cgroup.directory.display()
        )
    };
    let agent = agent(near, &config(true));
    inside.has_timeout(OPEN_BEFORE, 30_617);
    inside.connects_to(BY_CGROUP);
    inside.has_timeout(BY_CGROUP, 40_617);
    inside.connects_to(EXEMPT);

    // Connections of the host itself are not the container's.
    let own = TcpStream::connect((SERVER, BY_CGROUP)).unwrap();
    let is_translated = |one: &ConnectionStatus| one.local.ip().to_string() == OUTSIDE;
    let mut last = Vec::new();
    let is_named = agent_says(|| {
        inside.send();
        (&own).write_all(b"x").unwrap();
        last = agent.status().connections;
        let own = last.iter().find(|one| one.local == own.local_addr().unwrap());
        let theirs = |port| last.iter().find(|one| one.remote.port() == port && one.container.is_some());
        let (before, exempt) = (theirs(OPEN_BEFORE)?, theirs(EXEMPT)?);
        let of_cgroup = theirs(BY_CGROUP)?;
        let all = [before, exempt, of_cgroup];
        let name = all.iter().all(|one| one.container.as_deref().is_some_and(|name| name.ends_with(&cgroup.leaf())));
        let is_right = name && all.iter().all(|one| is_translated(one) && one.process == before.process);
        let rule = of_cgroup.user_timeout.as_ref().and_then(|given| given.rule.as_deref()) == Some("flow rule 2");
        (is_right && rule && exempt.left_alone && !before.left_alone && own?.container.is_none()).then_some(())
    });
    assert!(is_named, "{last:#?}");
    assert!(last.iter().any(|one| one.container.is_some() && one.process.is_some()), "{last:#?}");
    let status = agent.status();
    let containers = status.containers.expect("they are served");
    assert_eq!((containers.namespaces, containers.problem), (1, None));

    // Containers that are not served any more get their timeouts back.
    agent.reload(&config(false));
    inside.has_timeout(OPEN_BEFORE, 0);
    inside.has_timeout(BY_CGROUP, 0);
    agent.reload(&config(true));
    inside.has_timeout(OPEN_BEFORE, 30_617);
    inside.has_timeout(BY_CGROUP, 40_617);

    drop(agent);
    inside.has_timeout(OPEN_BEFORE, 0);
    inside.has_timeout(BY_CGROUP, 0);
    // The namespace ends with the container: the agent has kept nothing of it open.
    drop(inside);
    assert!(agent_says(|| crate::iproute::can_ip("link show dev box0").err().map(drop)), "box0 is still there");
}

fn nothing_is_done(near: &Namespace, cgroup: &Cgroup, mut inside: Contained) {
    let (_lan, _servers) = join(near, &inside);
    inside.connects_to(OPEN_BEFORE);
    let directory = cgroup.directory.display();
    let rules = format!("[user_timeouts]\ncgroup = \"{directory}\"\n[[flow]]\nfail_fast = \"30 s\"\n");
    let agent = agent(near, &rules);
    inside.connects_to(BY_CGROUP);
    inside.send();
    // A connection of this namespace that was made later has been handled.
    let own = TcpStream::connect((SERVER, BY_CGROUP)).unwrap();
    assert!(agent_says(|| agent
        .status()
        .connections
        .iter()
        .any(|one| one.local == own.local_addr().unwrap())
        .then_some(())));
    let status = agent.status();
    assert_eq!(status.containers, None);
    assert!(status.connections.iter().all(|one| one.container.is_none()), "{status:#?}");
    for port in [OPEN_BEFORE, BY_CGROUP] {
        assert_eq!(inside.timeout_of(port), 0, "{port}");
    }
}

/// Asks again until there is an answer; whether there was one.
fn agent_says(mut ask: impl FnMut() -> Option<()>) -> bool {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        if ask().is_some() {
            return true;
        }
        sleep(Duration::from_millis(50));
    }
    false
}

fn agent(near: &Namespace, config: &str) -> Agent {
    Agent::start_with(near, "containers", NO_BUS, &[INTERFACE], config)
}

/// Connects the host to a network with a server, and the container to the host, which translates its address.
fn join(near: &Namespace, inside: &Contained) -> (Lan, Vec<TcpListener>) {
    let lan = Lan::new(near, "192.0.2.", 24);
    Netlink::open(near).unwrap().set_up("lo").unwrap();
    let bind = |port| TcpListener::bind((SERVER, port)).unwrap();
    let servers = lan.gateway.enter(|| [OPEN_BEFORE, BY_CGROUP, EXEMPT].map(bind).into()).unwrap();
    ip(&format!("link add box0 type veth peer name eth0 netns {}", inside.pid()));
    ip(&format!("address add {HOST}/24 dev box0"));
    ip("link set box0 up");
    let within = Namespace::of_process(inside.pid()).unwrap();
    within
        .enter(|| {
            ip(&format!("address add {INSIDE}/24 dev eth0"));
            ip("link set eth0 up");
            ip(&format!("route add default via {HOST}"));
        })
        .unwrap();
    sysctl::set(near, "net.ipv4.ip_forward", "1").unwrap();
    let rules = format!(
        "table ip nat {{ chain out {{ type nat hook postrouting priority 100; oifname \"{INTERFACE}\" masquerade; }}; }}"
    );
    let loaded = Command::new("nft").arg(rules).status().expect("nft is needed (Debian: nftables)");
    assert!(loaded.success());
    (lan, servers)
}

/// A cgroup (v2) with one for the container in it. Removed on drop.
struct Cgroup {
    directory: PathBuf,
    /// Its path from the root of the hierarchy.
    name: String,
}

impl Cgroup {
    fn new(case: &str) -> Self {
        let id = Namespace::current().unwrap().id().to_string();
        let number: String = id.chars().filter(char::is_ascii_digit).collect();
        let name = format!("/holdover-test-{case}-{number}");
        let directory = find_cgroup2_mount().unwrap().join(&name[1..]);
        std::fs::create_dir(&directory).unwrap();
        Self { directory, name }
    }

    /// The directory of the container's, made now.
    fn of_container(&self) -> PathBuf {
        let directory = self.directory.join(format!("docker-{NUMBER}.scope"));
        std::fs::create_dir(&directory).unwrap();
        directory
    }

    /// The last part of the container's path.
    fn leaf(&self) -> String {
        format!("{}/docker-{NUMBER}.scope", self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let began = Instant::now();
        // The kernel lets it go when the last process has been reaped.
        while std::fs::remove_dir(self.directory.join(format!("docker-{NUMBER}.scope"))).is_err()
            && began.elapsed() < Duration::from_secs(2)
        {
            sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// A process in a container, which connects on request. Killed on drop.
struct Contained {
    process: OtherProcess,
    pid: u32,
    /// Of crun, which needs it to the end.
    bundle: Option<PathBuf>,
}

impl Contained {
    /// In a namespace and a cgroup that this test makes.
    fn in_namespace(cgroup: &Cgroup) -> Self {
        let directory = cgroup.of_container();
        let mut command = Command::new("unshare");
        command.arg("--net").arg(std::env::current_exe().unwrap());
        command.env(ARGUMENT, &directory);
        Self::start(command)
    }

    /// In a container of crun.
    fn by_crun(crun: &Crun, cgroup: &Cgroup) -> Self {
        let bundle = std::env::temp_dir().join(format!("holdover-crun{}", cgroup.name.replace('/', "-")));
        std::fs::create_dir_all(bundle.join("rootfs")).unwrap();
        std::fs::write(bundle.join("config.json"), configuration()).unwrap();
        let mut command = crun.command_in(&cgroup.of_container());
        command.args(["--cgroup-manager=disabled", "--root"]).arg(bundle.join("state"));
        command.args(["run", "--bundle"]).arg(&bundle).arg("holdover-test");
        let mut this = Self::start(command);
        this.bundle = Some(bundle);
        this
    }

    fn start(mut command: Command) -> Self {
        command.env(ROLE, "contained");
        let process = OtherProcess::run(command, "ready");
        Self { process, pid: Self::id(), bundle: None }
    }

    /// The process itself, whichever started it: the one with a network namespace of its own.
    fn id() -> u32 {
        let own = Namespace::current().unwrap().id();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let inside = |pid: &u32| holdover_testbed::NamespaceId::of_process(*pid).is_ok_and(|id| id != own);
        pids.filter(inside).max().expect("it runs")
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn connects_to(&mut self, port: u16) {
        assert_eq!(self.process.ask(&format!("connect {port}")), "connected");
    }

    /// Sends a byte on each connection.
    fn send(&mut self) {
        assert_eq!(self.process.ask("send"), "sent");
    }

    /// The user timeout of a connection in milliseconds; 0 for none.
    fn timeout_of(&mut self, port: u16) -> u64 {
        self.process.ask(&format!("timeout {port}")).parse().unwrap()
    }

    #[track_caller]
    fn has_timeout(&mut self, port: u16, expected: u64) {
        let began = Instant::now();
        while self.timeout_of(port) != expected {
            assert!(began.elapsed() < LIMIT, "{} in place of {expected}", self.timeout_of(port));
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        self.process.ends();
        if let Some(bundle) = &self.bundle {
            let _ = std::fs::remove_dir_all(bundle);
        }
    }
}

/// The role of the process in the container.
pub(crate) fn contained(cgroup: &str) {
    if !cgroup.is_empty() {
        std::fs::write(Path::new(cgroup).join("cgroup.procs"), "0").unwrap();
    }
    println!("ready");
    let mut streams: Vec<(u16, TcpStream)> = Vec::new();
    for line in stdin().lines() {
        let line = line.unwrap();
        let (word, port) = line.split_once(' ').unwrap_or((&line, "0"));
        let port: u16 = port.parse().unwrap();
        match word {
            "connect" => {
                let server = SocketAddr::new(SERVER.parse().unwrap(), port);
                streams.push((port, TcpStream::connect(server).unwrap()));
                println!("connected");
            }
            "send" => {
                streams.iter().for_each(|(_, stream)| (&mut &*stream).write_all(b"x").unwrap());
                println!("sent");
            }
            _ => {
                let (_, stream) = streams.iter().find(|(to, _)| *to == port).unwrap();
                let timeout = socket2::SockRef::from(stream).tcp_user_timeout().unwrap();
                println!("{}", timeout.map_or(0, |timeout| timeout.as_millis()));
            }
        }
    }
}

/// `crun`, which need not be installed: `HOLDOVER_CRUN` is the root of an unpacked package.
struct Crun {
    root: PathBuf,
}

impl Crun {
    fn find() -> Option<Self> {
        let root = std::env::var_os("HOLDOVER_CRUN").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        root.join("usr/bin/crun").exists().then_some(Self { root })
    }

    /// crun, started in a cgroup. It does not support hierarchies of version 1 beside, and sees that of version 2 only.
    fn command_in(&self, cgroup: &Path) -> Command {
        let script = "echo 0 > \"$0/cgroup.procs\" && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(cgroup);
        command.arg(self.root.join("usr/bin/crun"));
        command.env("LD_LIBRARY_PATH", self.root.join("usr/lib/x86_64-linux-gnu"));
        command
    }
}

/// A container with this machine's libraries and the namespaces that containers usually have.
fn configuration() -> String {
    const PROGRAM: &str = "/program";
    let bind = |source: &Path, destination: &str| {
        let options = ["rbind", "ro"];
        serde_json::json!({ "destination": destination, "type": "bind", "source": source, "options": options })
    };
    let mut mounts = vec![
        serde_json::json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
        serde_json::json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }),
        bind(&std::env::current_exe().unwrap(), PROGRAM),
    ];
    let libraries = ["/usr", "/lib", "/lib64"].into_iter().filter(|directory| Path::new(directory).exists());
    mounts.extend(libraries.map(|directory| bind(Path::new(directory), directory)));
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| serde_json::json!({ "type": kind }));
    serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": [PROGRAM],
            "env": ["PATH=/usr/bin:/bin", format!("{ROLE}=contained"), format!("{ARGUMENT}=")],
            "cwd": "/",
        },
        "root": { "path": "rootfs" },
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
        },
    })
    .to_string()
}
