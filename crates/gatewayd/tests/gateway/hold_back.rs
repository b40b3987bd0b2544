//! ACKs held back while a mobile host is present. In these tests the link has a round trip: a sender on a link without
//! delay never has 32 segments in flight, and for such senders nothing is held back.

use std::thread::sleep;
use std::time::Duration;

use holdover_gatewayd::status::Status;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("acks_of_a_download_are_held_back", |_| holds("buffer", false)),
    ("acks_of_an_upload_are_held_back", |_| holds("buffer", true)),
    ("acks_of_a_split_download_are_held_back", |_| holds("split", false)),
    ("acks_of_a_split_upload_are_held_back", |_| holds("split", true)),
    ("nothing_is_held_back_if_disabled", nothing_is_held),
];

/// Of the link. A transfer has some 110 segments in flight.
pub(crate) const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

/// Far beyond the first 150 kB, of which nothing is held.
const BULK: u64 = 2_000_000;

/// ACKs that were lowered, or withheld.
fn held(status: &Status) -> u64 {
    status.path.lowered + status.path.withheld
}

/// A transfer, and the status after [`BULK`], before the mobile host was ever away.
fn begins(world: &World, gateway: &Gateway, is_upload: bool) -> (Transfer, Status) {
    let transfer = Transfer::start(world, 0, is_upload).unwrap();
    transfer.await_more(BULK).unwrap();
    let status = gateway.status();
    assert_eq!((status.buffer.absences, status.away), (0, 0), "{status:?}");
    (transfer, status)
}

// Claim: Over a link with a round trip of 40 ms, ACKs of a download and of an upload are held back before the mobile host was
// ever away, with `buffer` and with `split`; after a silent absence of 2 s the held ACKs of downloads are released, and new data
// come within 1.5 s. With `[hold_back] enabled = false` none is held.
// Tests: `hold_back::nothing_is_held`
fn holds(mode: &str, is_upload: bool) {
    let world = World::without_ethernet(ROUND_TRIP).unwrap();
    let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
    let (transfer, present) = begins(&world, &gateway, is_upload);
    assert_eq!(present.split.as_ref().map_or(0, |split| split.total), u64::from(mode == "split"));
    assert!(held(&present) > 20, "{present:?}");

    // It is found silent only if it has answered before.
    let mobile = world.mobile_address(0);
    wait_for("an answer to an echo request", || gateway.mobile(mobile)?.answers_within_s);
    transfer.await_more(BULK).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    sleep(Duration::from_secs(2));
    let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    let woken = gateway.status().woken;
    eprintln!(
        "{mode}, upload: {is_upload}: data {took:?} after the return; {} ACKs held before, {woken:?}",
        held(&present)
    );
    // With new data in the buffer the transfer may go on by itself. The held ACKs of an upload were flushed into the broken
    // link, and are repeated.
    // Without the gateway the sender would wait for its timer: for up to as long as the absence, or longer.
    assert!(took < Duration::from_millis(1500), "{took:?}");
    transfer.await_more(BULK).unwrap();
    transfer.ends_exact().unwrap();
}

fn nothing_is_held(_: &holdover_testbed::Namespace) {
    for mode in ["buffer", "split"] {
        let world = World::without_ethernet(ROUND_TRIP).unwrap();
        let sections = format!("[mobiles]\nmode = \"{mode}\"\n[hold_back]\nenabled = false\n");
        let gateway = Gateway::start(world.router(), &sections);
        let (transfer, status) = begins(&world, &gateway, false);
        assert_eq!((held(&status), status.woken.released), (0, 0), "{mode}: {status:?}");
        transfer.ends_exact().unwrap();
    }
}
