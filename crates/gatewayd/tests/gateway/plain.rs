//! Hosts whose TCP lacks options, and links that come and go often.

use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::hosts::set;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("without_timestamps_transfers_go_on", |_| without(&["tcp_timestamps"])),
    ("without_sack_transfers_go_on", |_| without(&["tcp_sack"])),
    ("without_window_scaling_transfers_go_on", |_| without(&["tcp_window_scaling"])),
    ("without_any_option_transfers_go_on", |_| without(&["tcp_timestamps", "tcp_sack", "tcp_window_scaling"])),
    ("a_link_that_comes_and_goes_loses_nothing", |_| comes_and_goes()),
];

/// Between the fixed host and the router.
const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

// Claim: With mobile hosts that use no timestamps (as Windows by default), no SACK, no window scaling, or none of these, downloads and
// uploads go on over silent cuts of 2 s, byte-exact, with `buffer`, `m-tcp` and `buffer-freeze`, and with `buffer` new data come within
// 1.5 s of the return.
fn without(options: &[&str]) {
    for mode in ["buffer", "m-tcp", "buffer-freeze"] {
        let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
        options.iter().for_each(|option| set(world.mobile(0), &format!("net.ipv4.{option}"), "0"));
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        for is_upload in [false, true] {
            let transfer = Transfer::start(&world, 0, is_upload).unwrap();
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(Cut::Silent, true).unwrap();
            sleep(Duration::from_secs(2));
            let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
            eprintln!("without {options:?}, {mode}, upload {is_upload}: data {took:?} after the return");
            assert!(mode != "buffer" || took < Duration::from_millis(1500), "upload {is_upload}: {took:?}");
            transfer.await_more(1_000_000).unwrap();
            transfer.ends_exact().unwrap();
        }
        let status = gateway.status();
        assert_eq!((status.waiting, status.away), (0, 0), "{mode}: {status:?}");
    }
}

// Claim: A link that is silently cut twenty times for 50 to 1,000 ms, with pauses of 50 to 500 ms, costs a download and an upload no
// byte with `buffer`, `m-tcp`, `freeze` and `buffer-freeze`; both go on, within 5 s after the last cut except with `freeze`, which
// keeps no packets: there by their senders' timers. Nothing is left behind.
fn comes_and_goes() {
    for mode in ["buffer", "m-tcp", "freeze", "buffer-freeze"] {
        let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let transfers = [false, true].map(|is_upload| Transfer::start(&world, 0, is_upload).unwrap());
        transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
        for number in 0..20 {
            world.set_cut(Cut::Silent, true).unwrap();
            sleep(Duration::from_millis([50, 1000, 250, 400, 600][number % 5]));
            world.set_cut(Cut::Silent, false).unwrap();
            sleep(Duration::from_millis([500, 50, 150, 300][number % 4]));
        }
        let began = Instant::now();
        let waits = transfers.each_ref().map(|transfer| {
            transfer.await_more(500_000).unwrap();
            began.elapsed()
        });
        eprintln!("{mode}: download and upload go on {waits:?} after the last return");
        assert!(mode == "freeze" || waits[1] < Duration::from_secs(5), "{mode}: {waits:?}");
        transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
        gateway.says(world.mobile_address(0), "present");
        let status = gateway.status();
        assert_eq!((status.waiting, status.away), (0, 0), "{mode}: {status:?}");
    }
}
