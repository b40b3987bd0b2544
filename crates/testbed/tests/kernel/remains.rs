//! Nothing is left behind: not in the process, not on the host, not in the kernel, not after a panic.
//!
//! The removal of a namespace cannot be observed directly. But a veth pair is removed when the namespace of either end is: the end in a
//! second namespace, the witness, shows when the kernel has removed the first.

use std::collections::BTreeSet;
use std::fs;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use holdover_testbed::{Namespace, Netlink, Tun, TunConfig};

use crate::{Test, spawn};

pub(crate) const TESTS: &[Test] = &[
    ("a_namespace_goes_with_its_thread", a_namespace_goes_with_its_thread),
    ("a_namespace_goes_after_a_panic", a_namespace_goes_after_a_panic),
    ("a_handle_keeps_a_namespace", a_handle_keeps_a_namespace),
    ("a_device_goes_with_its_handle", a_device_goes_with_its_handle),
];

/// The kernel removes namespaces in the background.
const PATIENCE: Duration = Duration::from_secs(30);

fn a_namespace_goes_with_its_thread(witness: &Namespace) {
    let outer = witness.clone();
    spawn("short", move |namespace| connect(namespace, &outer)).join().unwrap();
    wait_until_gone(witness);
}

fn a_namespace_goes_after_a_panic(witness: &Namespace) {
    let outer = witness.clone();
    let thread = spawn("panicking", move |namespace| {
        let _tun = Tun::open(namespace, &TunConfig::new("tun0", 1500)).unwrap();
        connect(namespace, &outer);
        // Behaves like a panic, without the report on the terminal.
        resume_unwind(Box::new("on purpose"));
    });
    assert_eq!(thread.join().unwrap_err().downcast_ref(), Some(&"on purpose"));
    wait_until_gone(witness);
}

/// The witness also detects that a namespace stays.
fn a_handle_keeps_a_namespace(witness: &Namespace) {
    let outer = witness.clone();
    let handle = spawn("kept", move |namespace| {
        connect(namespace, &outer);
        namespace.clone()
    })
    .join()
    .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_connected(witness));
    drop(handle);
    wait_until_gone(witness);
}

fn a_device_goes_with_its_handle(namespace: &Namespace) {
    let tun = Tun::open(namespace, &TunConfig::new("tun0", 1500)).unwrap();
    let mut netlink = Netlink::open(namespace).unwrap();
    assert!(netlink.link("tun0").is_ok());
    drop(tun);
    // A process that another test forks now has a copy of the descriptor until it executes its program.
    let start = Instant::now();
    while netlink.link("tun0").is_ok() {
        assert!(start.elapsed() < PATIENCE, "the device is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn connect(namespace: &Namespace, witness: &Namespace) {
    Netlink::open(namespace).unwrap().add_veth("inner", "outer", witness).unwrap();
}

fn is_connected(witness: &Namespace) -> bool {
    Netlink::open(witness).unwrap().links().unwrap().iter().any(|link| link.name == "outer")
}

fn wait_until_gone(witness: &Namespace) {
    let start = Instant::now();
    while is_connected(witness) {
        assert!(start.elapsed() < PATIENCE, "the namespace is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Traces that the tests could leave in this process and on the host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// The network namespaces of this process's threads.
    namespaces: BTreeSet<String>,
    /// Open descriptors of namespaces and of TUN devices.
    descriptors: BTreeSet<String>,
    /// The host's interfaces.
    interfaces: BTreeSet<String>,
}

impl Surroundings {
    pub(crate) fn look() -> Self {
        let targets = |folder: &str, link: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .filter_map(|entry| fs::read_link(entry.path().join(link)).ok())
                .map(|target| target.to_string_lossy().into_owned())
                .collect::<BTreeSet<_>>()
        };
        let is_ours = |target: &String| target.starts_with("net:[") || target == "/dev/net/tun";
        let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        Self {
            namespaces: targets("/proc/self/task", "ns/net"),
            descriptors: targets("/proc/self/fd", "").into_iter().filter(is_ours).collect(),
            interfaces: interfaces.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
        }
    }

    /// Compares with the current state; joined threads may take a moment to vanish from `/proc`.
    pub(crate) fn compare_soon(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let now = Self::look();
            if now == *self {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("before {self:?}, now {now:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
