//! The treatment of absent mobile hosts, by mode.

use std::thread::sleep;
use std::time::Duration;

use holdover_gatewayd::status::Status;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::process::Gateway;
use crate::watch::{Watched, Watcher};

pub(crate) const TESTS: &[Test] = &[
    ("freeze_shuts_the_window_answers_probes_and_reopens", freeze_shuts_the_window),
    ("buffer_freeze_keeps_packets_as_well", buffer_freeze_keeps_packets),
    ("m_tcp_shuts_the_window_and_keeps_packets", m_tcp_shuts_the_window),
    ("observe_changes_no_packet", observe_changes_no_packet),
    ("buffer_shows_no_more_than_the_mobile_host_has_said", buffer_is_honest),
    ("each_network_has_its_mode", each_network_has_its_mode),
    ("connections_without_room_for_details_pass", connections_without_room_pass),
    ("frozen_connections_outlive_the_fixed_hosts_limit", frozen_connections_outlive),
];

/// A download of the first mobile host over silent cuts of 0.7 and 3 s, byte-exact.
pub(crate) fn download_over_silent_cuts(world: &World, gateway: &Gateway) {
    let transfer = Transfer::start(world, 0, false).unwrap();
    for length in [700, 3000] {
        transfer.await_more(1_000_000).unwrap();
        world.set_cut(Cut::Silent, true).unwrap();
        gateway.says(world.mobile_address(0), "away");
        sleep(Duration::from_millis(length));
        let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
        eprintln!("cut of {length} ms: data {took:?} after the return");
    }
    transfer.await_more(1_000_000).unwrap();
    transfer.ends_exact().unwrap();
}

/// A download over two silent cuts. Returns the status, and the ACKs that the fixed host received.
fn download(sections: &str) -> (Status, Watched) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), sections);
    let watcher = Watcher::start(&world);
    download_over_silent_cuts(&world, &gateway);
    let status = gateway.status();
    let watched = watcher.ends();
    eprintln!("{watched:?} {:?} {:?}", status.woken, status.path);
    assert!(watched.acks > 100 && watched.of_mobile > 100, "{watched:?}");
    (status, watched)
}

#[track_caller]
fn is_frozen_twice(status: &Status, watched: &Watched) {
    let woken = &status.woken;
    assert!(woken.frozen >= 2 && woken.reopened >= 2, "{woken:?}");
    assert!(woken.answered >= 1 && status.path.probed >= woken.answered, "{status:?}");
    assert!(watched.shut >= watched.shut_by_mobile + woken.frozen, "{watched:?} {woken:?}");
}

// Claim: `freeze`, `buffer-freeze` and `m-tcp` on real kernels: the fixed host gets a window of zero in each of two silent cuts,
// its retransmissions are answered, the window is reopened, and the transfer is byte-exact. `observe` changes no packet. Each
// network has its mode.
// Tests: `modes::buffer_freeze_keeps_packets`, `modes::m_tcp_shuts_the_window`, `modes::observe_changes_no_packet`,
// `modes::each_network_has_its_mode`
fn freeze_shuts_the_window(_: &Namespace) {
    let (status, watched) = download("[mobiles]\nmode = \"freeze\"\n");
    is_frozen_twice(&status, &watched);
    assert_eq!((status.path.diverted, status.buffer.queued), (0, 0), "{status:?}");
}

fn buffer_freeze_keeps_packets(_: &Namespace) {
    let (status, watched) = download("[mobiles]\nmode = \"buffer-freeze\"\n");
    is_frozen_twice(&status, &watched);
    assert!(status.buffer.queued > 0 && status.buffer.queued == status.buffer.released, "{status:?}");
}

fn m_tcp_shuts_the_window(_: &Namespace) {
    let (status, watched) = download("[mobiles]\nmode = \"m-tcp\"\n");
    is_frozen_twice(&status, &watched);
    assert!(status.path.lowered > 0, "{status:?}");
}

fn observe_changes_no_packet(_: &Namespace) {
    let (status, watched) = download("[mobiles]\nmode = \"observe\"\n");
    let path = &status.path;
    assert_eq!((path.diverted, path.lowered, path.withheld, path.injected), (0, 0, 0, 0), "{status:?}");
    assert_eq!(watched.shut, watched.shut_by_mobile, "{watched:?}");
    assert_eq!(status.buffer.absences, 2, "{status:?}");
}

// Claim: In all modes, no ACK that reaches the fixed host acknowledges more than the mobile host has acknowledged by then,
// compared on both hosts' interfaces.
fn buffer_is_honest(_: &Namespace) {
    let (status, watched) = download("");
    assert_eq!(watched.shut, watched.shut_by_mobile, "{watched:?}");
    assert!(status.buffer.released > 0, "{status:?}");
}

fn each_network_has_its_mode(_: &Namespace) {
    let world = World::new(2).unwrap();
    let [frozen, _] = [0, 1].map(|number| world.mobile_address(number));
    let gateway = Gateway::start(world.router(), &format!("[mobiles.modes]\n\"{frozen}/32\" = \"freeze\"\n"));
    let transfers = [0, 1].map(|mobile| Transfer::start(&world, mobile, false).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    // Cuts the link of all of them.
    world.set_cut(Cut::Carrier, true).unwrap();
    let lines = [0, 1].map(|number| {
        gateway.says(world.mobile_address(number), "away");
        sleep(Duration::from_millis(300));
        gateway.mobile(world.mobile_address(number)).unwrap()
    });
    assert_eq!(lines.each_ref().map(|line| line.diverts), [false, true], "{lines:?}");
    world.set_cut(Cut::Carrier, false).unwrap();
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    let status = gateway.status();
    assert!(status.woken.frozen >= 1 && status.woken.reopened >= 1, "{status:?}");
}

// Claim: With `freeze`, `buffer-freeze` and `m-tcp` a download outlives an absence that is longer than the fixed host retransmits without an
// answer, and goes on after the return.
fn frozen_connections_outlive(_: &Namespace) {
    let modes = ["freeze", "buffer-freeze", "m-tcp"].map(|mode| {
        std::thread::spawn(move || {
            let world = World::new(1).unwrap();
            // Linux gives up after some 13 s.
            let limit = || std::fs::write("/proc/sys/net/ipv4/tcp_retries2", "5").unwrap();
            world.fixed().enter(limit).unwrap();
            let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
            let transfer = Transfer::start(&world, 0, false).unwrap();
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(Cut::Silent, true).unwrap();
            gateway.says(world.mobile_address(0), "away");
            sleep(Duration::from_secs(25));
            let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
            eprintln!("{mode}: data {took:?} after an absence of 25 s");
            transfer.await_more(1_000_000).unwrap();
            transfer.ends_exact().unwrap();
        })
    });
    // Both end before one's failure counts.
    let ended = modes.map(|mode| mode.join().is_ok());
    assert_eq!(ended, [true; 3]);
}

// Claim: Connections without room for details pass, and are counted.
fn connections_without_room_pass(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[hold_back]\nmost_connections = 64\nmost_detailed = 1\n");
    let transfers = [0; 4].map(|_| Transfer::start(&world, 0, false).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_millis(500));
    world.set_cut(Cut::Silent, false).unwrap();
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    let status = gateway.status();
    assert!(status.path.connections_full > 0 && status.path.detailed >= 1, "{status:?}");
}
