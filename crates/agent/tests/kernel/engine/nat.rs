//! A router that translates addresses between the phone and the server. The test's own namespace is the router's.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration as StdDuration;

use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_mobility::Direction;
use holdover_testbed::harness::skip;
use holdover_testbed::{Congestion, ImpairmentConfig, Namespace, Netlink, Route, sysctl};

use super::process::EngineThread;
use super::traffic::{Kind, Traffic};
use crate::wire::{INTERFACE, Wire};

/// The phone's interface; the router's to it is `inside0`.
const PHONE_INTERFACE: &str = "phone0";
const PHONE: &str = "10.8.0.2";
const INSIDE: &str = "10.8.0.1";

const OUTAGE: StdDuration = StdDuration::from_secs(3);
const RESUMED_WITHIN: Duration = Duration::from_millis(500);

const MASQUERADE: &str = "\
table ip nat {
  chain out {
    type nat hook postrouting priority 100
    oifname \"tun0\" masquerade
  }
}
";

// Claim: Behind a router that translates addresses, and on such a router's outside interface: after an outage of 3 s a download
// and an upload resume within 500 ms, and are exact. Needs `nft`.
// Tests: `nat::a_router_wakes_the_phones_behind_it`
pub(crate) fn a_phone_behind_a_router_is_woken(router: &Namespace) {
    is_woken(router, |_router, phone| EngineThread::attach(phone, PHONE_INTERFACE, EngineOptions::default()));
}

/// As on an LTE router: the connections are forwarded, and their addresses are translated before the engine sees them.
pub(crate) fn a_router_wakes_the_phones_behind_it(router: &Namespace) {
    is_woken(router, |router, _phone| EngineThread::attach(router, INTERFACE, EngineOptions::default()));
}

fn is_woken(router: &Namespace, attach: impl FnOnce(&Namespace, &Namespace) -> EngineThread) {
    let impairment = ImpairmentConfig { delay: Duration::from_millis(10), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(router, &impairment);
    if !translate() {
        return;
    }
    let phone = join_phone(router);
    let engine = attach(router, &phone);
    let kinds = Direction::BOTH.map(|way| Kind::bulk(Congestion::Cubic, way));
    let traffic = phone.enter(|| Traffic::start(&phone, &wire.far, &kinds)).unwrap();
    let resumed = traffic.resume_after_outages(&wire, &engine, OUTAGE, RESUMED_WITHIN);
    eprintln!("the later of upload and download: {resumed:?} after the link was up");
    assert!(resumed.last() < Some(&RESUMED_WITHIN), "{resumed:?}");
    traffic.finish();
}

/// Makes the router, in whose namespace the calling thread is, masquerade. Prints the reason if that is not possible
/// here.
fn translate() -> bool {
    let started = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut nft) = started else {
        skip("nft is not installed (Debian: nftables)");
        return false;
    };
    nft.stdin.take().expect("it is piped").write_all(MASQUERADE.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
    true
}

fn join_phone(router: &Namespace) -> Namespace {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let phone = Namespace::new("phone").unwrap();
    let mut netlink = Netlink::open(router).unwrap();
    netlink.add_veth("inside0", PHONE_INTERFACE, &phone).unwrap();
    netlink.set_up("inside0").unwrap();
    netlink.add_address("inside0", address(INSIDE), 24).unwrap();
    sysctl::set(router, "net.ipv4.ip_forward", "1").unwrap();
    let configure = || {
        let mut netlink = Netlink::open(&phone).unwrap();
        netlink.set_up(PHONE_INTERFACE).unwrap();
        netlink.add_address(PHONE_INTERFACE, address(PHONE), 24).unwrap();
        let all = Route {
            destination: (address("0.0.0.0"), 0),
            next_hop: Some(address(INSIDE)),
            link: PHONE_INTERFACE.to_owned(),
            source: None,
        };
        netlink.add_route(&all).unwrap();
    };
    phone.enter(configure).unwrap();
    phone
}
