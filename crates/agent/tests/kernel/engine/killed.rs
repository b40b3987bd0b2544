//! SIGKILL at any moment.

use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_base::{Duration, Rng};
use holdover_testbed::{ImpairmentConfig, Namespace};

use super::process::Tally;
use super::traffic::{Kind, Traffic};
use crate::other_process::OtherProcess;
use crate::wire::Wire;

/// The number of cycles, unless set in the environment.
const CYCLES: u64 = 30;
const CYCLES_VARIABLE: &str = "HOLDOVER_KILLS";

/// The rest after the last kill takes a second or two. A sender left with a closed window would wait for ever; one that
/// has backed off, for its RTO, which no outage here lets grow beyond a few seconds.
const FINISHED_WITHIN: Duration = Duration::from_secs(30);

// Claim: Killed (SIGKILL) at any moment among random link events, losses and real outages, and restarted, repeatedly: every
// stream is exact, and after the last kill all of them end. 30 kills by default; `HOLDOVER_KILLS=1000` in the environment sets as
// many, which take 20 minutes.
pub(crate) fn killed_at_any_moment_it_leaves_nothing_frozen(near: &Namespace) {
    let cycles =
        std::env::var(CYCLES_VARIABLE).map_or(CYCLES, |value| value.parse().expect("HOLDOVER_KILLS is a number"));
    let impairment = ImpairmentConfig { loss: 0.005, delay: Duration::from_millis(8), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(near, &impairment);
    let traffic = Traffic::start(near, &wire.far, &Kind::various());
    let mut rng = Rng::new(7);
    let mut tally = Tally::default();
    for seed in 0..cycles {
        let engine = OtherProcess::engine(Some(seed));
        let mut lives = |most| sleep(StdDuration::from_millis(rng.below(most)));
        lives(60);
        // The link really breaks as well, independently of the engine's events.
        wire.cut(seed % 3 == 0);
        lives(60);
        wire.cut(false);
        lives(60);
        sleep(StdDuration::from_millis(20));
        tally = tally.plus(engine.kill_engine());
    }
    let received = traffic.received();
    let took = traffic.finish();
    eprintln!("{cycles} kills, {received} bytes until the last one, {tally:?}, finished in {took}");
    assert!(took < FINISHED_WITHIN, "{took}");
    assert!(tally.withheld >= cycles && tally.lowered >= cycles && tally.injected > 0, "it handled packets: {tally:?}");
}
