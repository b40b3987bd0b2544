//! Single messages sent in an outage: a keystroke, or the answer to an earlier request. No ACK of such connections is
//! held.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_host::clock;
use holdover_mobility::LinkEvent;
use holdover_testbed::{Congestion, ImpairmentConfig, KernelStream, Lateness, Namespace, SocketOptions};

use super::process::{EngineThread, UP};
use crate::wire::{FAR, FAR_V6, INTERFACE, Wire};

/// Without the agent the next attempt is 6 s after the first: an RTO of at least 200 ms has doubled five times.
const OUTAGE: StdDuration = StdDuration::from_millis(3500);
/// The round trip is 20 ms.
const ARRIVES_WITHIN: Duration = Duration::from_millis(300);
/// On a busy machine an outage may be noticed late: then the test is repeated, if the machine was indeed late.
const ATTEMPTS: usize = 3;

/// Data of the near host: its own TCP is poked. Data of the far host: the far TCP is poked, over the link.
pub(crate) fn what_was_said_in_an_outage_arrives_at_once(near: &Namespace) {
    let impairment = ImpairmentConfig { delay: Duration::from_millis(10), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(near, &impairment);
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    for (port, to) in [(5001, FAR), (5002, FAR_V6)] {
        let to = (to.parse::<IpAddr>().unwrap(), port).into();
        let (mut ours, mut theirs) = wire.connect_with(near, to, &SocketOptions::new(Congestion::Cubic));
        for _ in 0..3 {
            tell(&mut ours, &mut theirs);
            tell(&mut theirs, &mut ours);
        }
        for is_near in [true, false] {
            let mut took = Vec::new();
            for _ in 0..ATTEMPTS {
                let lateness = Lateness::watch();
                wire.cut(true);
                engine.link(LinkEvent::Down);
                sleep(StdDuration::from_millis(100));
                let (from, at) = if is_near { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
                from.write_all(b"x").unwrap();
                sleep(OUTAGE);
                wire.cut(false);
                let up_at = clock::now();
                engine.link(UP);
                at.read_exact(&mut [0]).unwrap();
                took.push(clock::now().saturating_since(up_at));
                // A few round trips reset the RTO after the outage.
                for _ in 0..20 {
                    tell(&mut ours, &mut theirs);
                    tell(&mut theirs, &mut ours);
                }
                if took.last().is_some_and(|&after| after < ARRIVES_WITHIN) || !lateness.is_excuse() {
                    break;
                }
            }
            eprintln!("to {to}, near {is_near}: arrived {took:?} after the link was up");
            assert!(took.last().is_some_and(|&after| after < ARRIVES_WITHIN), "to {to}, near {is_near}: {took:?}");
        }
    }
}

fn tell(from: &mut KernelStream, at: &mut KernelStream) {
    from.write_all(b"y").unwrap();
    at.read_exact(&mut [0]).unwrap();
}
