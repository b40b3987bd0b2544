//! Paths of which the gateway sees one direction: the other one goes around it, over a second link between the hosts. Nothing is
//! held for ever, and no sender is stopped.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::Standing;
use holdover_testbed::gateway::{Cut, MOBILE_FACING, Transfer, World};

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::{SOON, connect, join, route_from, set, transfer, unacknowledged};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("packets_of_mobile_hosts_go_around", |_| MODES.into_iter().for_each(|mode| transfers(mode, Around::FromMobile))),
    ("packets_to_mobile_hosts_go_around", |_| MODES.into_iter().for_each(|mode| transfers(mode, Around::ToMobile))),
    ("a_direction_leaves_during_transfers", |_| MODES.into_iter().for_each(a_direction_leaves)),
    ("what_was_withheld_of_an_upload_is_shown", |_| what_was_withheld_is_shown()),
];

const MODES: [&str; 3] = ["buffer", "m-tcp", "buffer-freeze"];

/// By way of the gateway. ACKs are held back of transfers with so much in flight.
const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

/// The second link.
const LINK: &str = "around0";
const FIXED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// The direction that the gateway does not see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Around {
    FromMobile,
    ToMobile,
}

/// A world whose hosts have a second link, and accept packets of each other on either.
fn world() -> World {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    join([(world.fixed(), LINK, FIXED), (world.mobile(0), LINK, MOBILE)]);
    for host in [world.fixed(), world.mobile(0)] {
        for interface in ["all", "eth0", LINK] {
            set(host, &format!("net.ipv4.conf.{interface}.rp_filter"), "0");
        }
    }
    world
}

/// Packets in a direction go around the gateway from now on, with the same addresses.
fn lead(world: &World, around: Around) {
    let (fixed, mobile) = (world.fixed_address(), world.mobile_address(0));
    match around {
        Around::FromMobile => route_from(world.mobile(0), (fixed, 32), FIXED, LINK, Some(mobile)),
        Around::ToMobile => route_from(world.fixed(), (mobile, 32), MOBILE, LINK, Some(fixed)),
    }
}

fn start(world: &World, mode: &str) -> Gateway {
    Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"))
}

// Claim: Transfers in both directions over a path of which the gateway sees one direction, from the beginning or from the middle
// on, go on over an absence of 1.5 s, byte-exact, with `buffer`, `m-tcp` and `buffer-freeze`, and at their ends all bytes are
// acknowledged. ACKs of an upload that were withheld during an absence by command are shown when it ends.
// Tests: `one_way::a_direction_leaves`, `one_way::what_was_withheld_is_shown`
fn transfers(mode: &str, around: Around) {
    let world = world();
    lead(&world, around);
    let gateway = start(&world, mode);
    let mobile = world.mobile_address(0);
    let (mut transfers, mut senders) = (Vec::new(), Vec::new());
    for is_upload in [false, true] {
        let (near, far) = connect(world.mobile(0), world.fixed(), world.fixed_address());
        let sender = if is_upload { &near } else { &far };
        senders.push(sender.try_clone().unwrap());
        transfers.push(transfer((near, far), is_upload));
    }
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(mobile, "away");
    sleep(Duration::from_millis(1500));
    world.set_cut(Cut::Carrier, false).unwrap();
    gateway.says(mobile, "present");
    let back_at = Instant::now();
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    eprintln!("{mode}, {around:?}: both go on within {:?}", back_at.elapsed());
    let status = gateway.status();
    assert!(status.path.tcp > 200, "{mode}, {around:?}: {status:?}");

    // They pause, and everything is acknowledged.
    transfers.iter().for_each(Transfer::stop);
    let stopped_at = Instant::now();
    while senders.iter().any(|sender| unacknowledged(sender) > 0) {
        assert!(stopped_at.elapsed() < SOON, "{mode}, {around:?}: {:?}", gateway.status());
        sleep(Duration::from_millis(1));
    }
    eprintln!("{mode}, {around:?}: all is acknowledged after {:?}", stopped_at.elapsed());
    drop(senders);
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    let status = gateway.status();
    assert_eq!((status.waiting, gateway.files()), (0, 0), "{mode}, {around:?}: {status:?}");
}

/// The gateway has seen both directions, and holds ACKs back, when the mobile host's packets take another path.
fn a_direction_leaves(mode: &str) {
    for around in [Around::FromMobile, Around::ToMobile] {
        let world = world();
        let gateway = start(&world, mode);
        let transfers = [false, true]
            .map(|is_upload| transfer(connect(world.mobile(0), world.fixed(), world.fixed_address()), is_upload));
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
        // Modes that freeze shut windows instead.
        if mode != "buffer-freeze" {
            wait_for("ACKs that are held back", || {
                let held = gateway.status().path;
                (held.lowered + held.withheld > 0).then_some(())
            });
        }
        lead(&world, around);
        let left_at = Instant::now();
        transfers.iter().for_each(|transfer| transfer.await_more(2_000_000).unwrap());
        eprintln!("{mode}, {around:?} from now on: 2 MB more both ways within {:?}", left_at.elapsed());
        transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    }
}

/// The mobile host's packets go around, so that the gateway does not hear it, and believes the command.
fn what_was_withheld_is_shown() {
    let world = world();
    lead(&world, Around::FromMobile);
    // The router does not ask for the mobile host meanwhile: it would hear the answer.
    for (name, value) in [("base_reachable_time_ms", "600000"), ("delay_first_probe_time", "600")] {
        set(world.router(), &format!("net.ipv4.neigh.{MOBILE_FACING}.{name}"), value);
    }
    let gateway = Gateway::start(world.router(), "[presence]\nsilence = false\n");
    let mobile = world.mobile_address(0);
    let transfer = transfer(connect(world.mobile(0), world.fixed(), world.fixed_address()), true);
    transfer.await_more(1_000_000).unwrap();
    gateway.report(mobile, Standing::Away).unwrap();
    gateway.says(mobile, "away");
    sleep(Duration::from_secs(1));
    let away = gateway.status();
    assert_eq!(gateway.mobile(mobile).unwrap().standing, "away");
    assert!(away.path.withheld > 0, "{away:?}");
    let took = transfer.resumes(|| gateway.report(mobile, Standing::Present).unwrap()).unwrap();
    let made = gateway.status().woken.packets - away.woken.packets;
    eprintln!("upload: data {took:?} after the return, {made} ACKs shown");
    assert!(made > 0, "{:?}", gateway.status());
    transfer.await_more(1_000_000).unwrap();
    transfer.ends_exact().unwrap();
}
