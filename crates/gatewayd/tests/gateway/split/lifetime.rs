//! Split connections when the daemon starts, stops, hangs and is killed.

use std::io::{self, Read as _, Write as _};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_host::Requests;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::World;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::process::Signal;

use super::{SOON, SPLIT, becomes, connected, is_reset, split, talks};
use crate::process::Gateway;

/// Rules of policy routes by mark in the router, of both families, and tables of nf_tables.
fn left_behind(world: &World) -> Vec<String> {
    let rules = || {
        let mut requests = Requests::open().unwrap();
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            for answer in requests.request(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP).unwrap() {
                let RouteNetlinkMessage::NewRule(rule) = answer else { continue };
                let marks = rule.attributes.iter().filter(|attribute| matches!(attribute, RuleAttribute::FwMark(_)));
                found.extend(marks.map(|mark| format!("{family:?} {mark:?}")));
            }
        }
        found
    };
    world.router().enter(rules).unwrap()
}

// Claim: `kill -9` resets both ends of split connections, and new ones pass at once; the next process splits again, or removes
// what is left. While the daemon hangs, new ones pass. Told to stop, it waits for those that are open, splits no others, and
// resets the rest after the time. Connections older than the daemon go on.
// Tests: `lifetime::hangs`, `lifetime::told_to_stop`, `lifetime::older`
pub(super) fn killed(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), SPLIT);
    assert_eq!(left_behind(&world).len(), 2);
    let (mut idle, mut idle_far) = connected(&world);
    talks(&mut idle, &mut idle_far);
    let (mut busy, mut busy_far) = connected(&world);
    busy.write_all(&[1; 100_000]).unwrap();
    busy_far.read_exact(&mut [0]).unwrap();
    gateway.kill();
    is_reset(&mut idle);
    is_reset(&mut idle_far);
    is_reset(&mut busy);
    // What had arrived may still be read.
    let error = busy_far.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    let began = Instant::now();
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    gateway.restart();
    talks(&mut near, &mut far);
    assert_eq!(split(&gateway).total, 0, "it has passed");
    let (mut new, mut new_far) = connected(&world);
    talks(&mut new, &mut new_far);
    assert_eq!((split(&gateway).total, left_behind(&world).len()), (1, 2));
    // The next start without the mode removes what is left.
    gateway.kill();
    assert_eq!(left_behind(&world).len(), 2);
    gateway.replace(SPLIT, "[mobiles]\nmode = \"buffer\"\n");
    gateway.restart();
    assert_eq!(left_behind(&world), [] as [String; 0]);
    talks(&mut near, &mut far);
}

pub(super) fn hangs(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), SPLIT);
    let (mut old, mut old_far) = connected(&world);
    talks(&mut old, &mut old_far);
    gateway.hang();
    // The programs notice it after 1.5 s; a SYN that was diverted before is repeated 1 s later. What the daemon had begun to
    // connect would stand still, as every split connection does.
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    gateway.signal(Signal::CONT);
    talks(&mut old, &mut old_far);
    talks(&mut near, &mut far);
    let status = becomes(&gateway, "passed", |status| status.unsplit.daemon_away > 0);
    assert_eq!(status.open, 1, "{status:?}");
}

pub(super) fn told_to_stop(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), &format!("{SPLIT}[split]\ndrain = \"30 s\"\n"));
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    gateway.signal(Signal::TERM);
    let status = becomes(&gateway, "still open", |status| status.open == 1);
    assert!(!status.stopped, "{status:?}");
    sleep(Duration::from_millis(500));
    talks(&mut near, &mut far);
    let (mut new, mut new_far) = connected(&world);
    talks(&mut new, &mut new_far);
    assert_eq!(split(&gateway).total, 1, "new ones pass");
    drop((near, far));
    assert!(gateway.ends(SOON));
    assert_eq!(left_behind(&world), [] as [String; 0]);
    talks(&mut new, &mut new_far);

    // One that does not end is reset after the time.
    gateway.replace("30 s", "1 s");
    gateway.restart();
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    gateway.signal(Signal::TERM);
    assert!(gateway.ends(SOON));
    is_reset(&mut near);
    is_reset(&mut far);
}

pub(super) fn older(_: &Namespace) {
    let world = World::new(1).unwrap();
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    let gateway = Gateway::start(world.router(), SPLIT);
    talks(&mut near, &mut far);
    far.write_all(b"last").unwrap();
    drop(far);
    let mut last = Vec::new();
    near.read_to_end(&mut last).unwrap();
    assert_eq!((last.as_slice(), split(&gateway).total), (&b"last"[..], 0));
}
