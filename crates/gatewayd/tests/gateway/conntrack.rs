//! Strict connection tracking at both hosts and on the gateway's router: what does not fit a connection is dropped, as on
//! routers that translate addresses. A segment of the gateway that did not fit would never arrive.

use std::thread::sleep;
use std::time::Duration;

use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::hosts::set;
use crate::nft;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("nothing_is_invalid_with_buffer", |_| nothing_is_invalid("buffer")),
    ("nothing_is_invalid_with_m_tcp", |_| nothing_is_invalid("m-tcp")),
    ("nothing_is_invalid_with_freeze", |_| nothing_is_invalid("freeze")),
    ("nothing_is_invalid_with_buffer_freeze", |_| nothing_is_invalid("buffer-freeze")),
    ("nothing_is_invalid_with_split", |_| nothing_is_invalid("split")),
];

/// Between the fixed host and the router: ACKs are held back of transfers with so much in flight.
const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

/// Drops what connection tracking finds invalid, before it is routed.
const STRICT: &str = "
    counter fitting { }
    counter refused { }
    chain arriving {
        type filter hook prerouting priority filter
        ct state established counter name fitting
        ct state invalid counter name refused drop
    }";

/// A namespace with strict connection tracking, and what else its table contains.
pub(crate) fn be_strict(namespace: &Namespace, chains: &str) {
    nft::load(namespace, &format!("{STRICT}\n{chains}"));
    set(namespace, "net.netfilter.nf_conntrack_tcp_be_liberal", "0");
}

/// No packet was dropped there, of many.
#[track_caller]
pub(crate) fn has_refused_nothing(namespace: &Namespace) {
    let [fitting, refused] = ["fitting", "refused"].map(|counter| nft::packets(namespace, counter));
    assert!(fitting > 200 && refused == 0, "{}: {refused} refused, {fitting} fit", namespace.name());
}

/// Transfers of the first mobile host over a silent cut and a lost carrier: they go on, byte-exact.
pub(crate) fn over_absences(world: &World, gateway: &Gateway, transfers: [Transfer; 2], length: Duration) {
    let mobile = world.mobile_address(0);
    for cut in [Cut::Silent, Cut::Carrier] {
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
        world.set_cut(cut, true).unwrap();
        gateway.says(mobile, "away");
        sleep(length);
        let took = transfers[0].resumes(|| world.set_cut(cut, false).unwrap()).unwrap();
        eprintln!("{cut:?} cut of {length:?}: data of the first transfer {took:?} after the return");
        gateway.says(mobile, "present");
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    }
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
}

// Claim: With strict connection tracking (nf_conntrack_tcp_be_liberal = 0, `ct state invalid drop`) at both hosts and on the
// gateway's router, a download and an upload over absences of 3 s go on, byte-exact, with `buffer`, `m-tcp`, `freeze`,
// `buffer-freeze` and `split`, and no packet is found invalid anywhere. Needs `nft`.
fn nothing_is_invalid(mode: &str) {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    let places = [world.fixed(), world.router(), world.mobile(0)];
    places.into_iter().for_each(|place| be_strict(place, ""));
    let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
    let transfers = [false, true].map(|is_upload| Transfer::start(&world, 0, is_upload).unwrap());
    over_absences(&world, &gateway, transfers, Duration::from_secs(3));
    places.into_iter().for_each(has_refused_nothing);
    let status = gateway.status();
    // It has changed segments, or made some.
    let has_held = status.path.lowered + status.path.withheld > 0;
    assert!(has_held || !["buffer", "m-tcp"].contains(&mode), "{mode}: {status:?}");
    if let Some(split) = status.split {
        assert_eq!((split.total, split.unanswered, split.reset), (2, 0, 0), "{split:?}");
        return;
    }
    assert!(mode == "buffer" || status.woken.frozen > 0 && status.path.injected > 0, "{mode}: {status:?}");
}
