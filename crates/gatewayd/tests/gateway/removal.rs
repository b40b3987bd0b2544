//! The mobile-facing interface is removed and made again while transfers are under way.

use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::status::Status;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Transfer, World};
use rustix::process::Signal;

use crate::Test;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("transfers_survive_the_removal_of_the_interface", |_| survives(World::new(1).unwrap())),
    ("transfers_survive_the_removal_of_the_interface_without_ethernet", |_| {
        survives(World::without_ethernet(holdover_base::Duration::from_millis(20)).unwrap());
    }),
    ("the_daemon_reads_returns_and_removals_at_once", at_once),
    ("a_daemon_killed_after_a_removal_leaves_its_state", killed),
    ("split_connections_survive_the_removal_of_the_interface", split),
    ("without_its_interface_the_daemon_does_not_start", starts_with_its_interface),
];

const SOON: Duration = Duration::from_secs(20);

fn becomes(gateway: &Gateway, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let began = Instant::now();
    loop {
        let status = gateway.status();
        if is_so(&status) {
            return status;
        }
        assert!(began.elapsed() < SOON, "{what}: {status:?}");
        sleep(Duration::from_millis(10));
    }
}

/// A download and an upload, and the mobile host that is present.
fn start(world: &World) -> [Transfer; 2] {
    let transfers = [false, true].map(|is_upload| Transfer::start(world, 0, is_upload).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
    transfers
}

// Claim: The interface is removed and made again, with Ethernet and without, under an upload and a download: both go on, and the
// programs are attached to the new interface; a `kill -9` after that loses nothing. Notifications of several returns and removals
// may be read at once. Split connections stay open, none is reset, and connections that begin after the return are split. Without
// its interface the daemon does not start.
// Tests: `removal::at_once`, `removal::killed`, `removal::split`, `removal::starts_with_its_interface`
fn survives(mut world: World) {
    let gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let transfers = start(&world);
    for gap in [Duration::ZERO, Duration::from_millis(2500)] {
        let before = gateway.status();
        world.remove_mobile_facing().unwrap();
        if gap > Duration::ZERO {
            let gone = becomes(&gateway, "the interface is gone", |status| status.interface_gone);
            assert_eq!((gone.away, gone.mobiles), (1, 1), "{gone:?}");
        }
        sleep(gap);
        let back_at = Instant::now();
        world.add_mobile_facing().unwrap();
        for transfer in &transfers {
            transfer.await_more(500_000).unwrap();
        }
        eprintln!("removed for {gap:?}: both transfers go on {:?} after the return", back_at.elapsed());
        gateway.says(mobile, "present");
        let after = gateway.status();
        assert!(!after.interface_gone, "{after:?}");
        assert_eq!(after.buffer.absences, before.buffer.absences + 1, "{after:?}");
        // Packets pass the programs that are attached again, once those that waited have been released.
        while gateway.status().path.passed == before.path.passed {
            assert!(back_at.elapsed() < Duration::from_secs(10), "{:?}", gateway.status());
            sleep(Duration::from_millis(10));
        }
    }
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
}

/// The daemon reads the notifications of a return, of another removal and of the next return in one batch: those of the first return are
/// about an interface that is gone, and the last ones have the carrier.
fn at_once(_: &Namespace) {
    let mut world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let transfers = start(&world);
    world.remove_mobile_facing().unwrap();
    becomes(&gateway, "the interface is gone", |status| status.interface_gone);
    gateway.hang();
    world.add_mobile_facing().unwrap();
    world.remove_mobile_facing().unwrap();
    world.add_mobile_facing().unwrap();
    gateway.signal(Signal::CONT);
    becomes(&gateway, "the interface is back", |status| !status.interface_gone);
    for transfer in &transfers {
        transfer.await_more(500_000).unwrap();
    }
    gateway.says(mobile, "present");
    // The interface that is followed is the one that is there.
    world.remove_mobile_facing().unwrap();
    becomes(&gateway, "the interface is gone again", |status| status.interface_gone);
    world.add_mobile_facing().unwrap();
    for transfer in transfers {
        transfer.await_more(500_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}

/// After the interface has come back with another index, `kill -9` loses nothing either.
fn killed(_: &Namespace) {
    let mut world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    if !gateway.status().pinned {
        return eprintln!("programs are not pinned here");
    }
    let transfers = start(&world);
    world.remove_mobile_facing().unwrap();
    becomes(&gateway, "the interface is gone", |status| status.interface_gone);
    world.add_mobile_facing().unwrap();
    becomes(&gateway, "the interface is back", |status| !status.interface_gone);
    assert!(gateway.status().pinned);
    gateway.kill();
    sleep(Duration::from_millis(300));
    gateway.restart();
    assert!(gateway.status().taken_over);
    for transfer in transfers {
        transfer.await_more(500_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}

/// Both halves of the connections stay, and so do bytes that the gateway has acknowledged. Connections that begin after the return are split.
fn split(_: &Namespace) {
    let mut world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"split\"\n");
    let mobile = world.mobile_address(0);
    let counted = |gateway: &Gateway| gateway.status().split.unwrap();
    // The mobile host must be known before a connection to it can be split.
    let mut transfers = vec![Transfer::start(&world, 0, true).unwrap()];
    transfers[0].await_more(500_000).unwrap();
    for gap in [Duration::ZERO, Duration::from_millis(2500)] {
        let fresh = Transfer::start(&world, 0, false).unwrap();
        fresh.await_more(500_000).unwrap();
        transfers.push(fresh);
        let before = counted(&gateway);
        assert_eq!((before.total, before.open), (transfers.len() as u64, transfers.len() as u64), "{before:?}");
        world.remove_mobile_facing().unwrap();
        if gap > Duration::ZERO {
            becomes(&gateway, "the interface is gone", |status| status.interface_gone);
        }
        sleep(gap);
        let back_at = Instant::now();
        world.add_mobile_facing().unwrap();
        for transfer in &transfers {
            transfer.await_more(500_000).unwrap();
        }
        eprintln!(
            "removed for {gap:?}: {} split transfers go on {:?} after the return",
            transfers.len(),
            back_at.elapsed()
        );
        gateway.says(mobile, "present");
        let after = counted(&gateway);
        assert_eq!((after.total, after.reset), (before.total, before.reset), "{after:?}");
    }
    let opened = transfers.len() as u64 + 1;
    transfers.push(Transfer::start(&world, 0, false).unwrap());
    transfers.last().unwrap().await_more(500_000).unwrap();
    assert_eq!(counted(&gateway).total, opened);
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    assert_eq!(counted(&gateway).reset, 0);
}

fn starts_with_its_interface(_: &Namespace) {
    let mut world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"split\"\n");
    gateway.kill();
    world.remove_mobile_facing().unwrap();
    assert!(!gateway.try_restart(), "there is no interface");
    world.add_mobile_facing().unwrap();
    gateway.restart();
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
}
