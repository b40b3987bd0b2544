//! TCP Fast Open (RFC 7413) of flows.

use holdover_base::{Duration, Instant};
use holdover_sim::{NoObserver, World};
use holdover_tcp::{FastOpenConfig, Profile};

use crate::support::*;

const COOKIE: FastOpenConfig = FastOpenConfig { max_pending: 100, ..FastOpenConfig::OFF };
const NO_COOKIE: FastOpenConfig = FastOpenConfig { takes_without_cookie: true, sends_without_cookie: true, ..COOKIE };

/// How long two flows of this traffic take from their start, in ms, one a second after the other; each way takes 25 ms.
fn durations(fast_open: FastOpenConfig, traffic: holdover_sim::Traffic) -> [u64; 2] {
    let mut config = Profile::Linux6Cubic.config();
    config.fast_open = fast_open;
    let first = with_stack(flow("first", 0, 1, traffic), config.clone());
    let mut second = with_stack(flow("second", 0, 1, traffic), config);
    second.start = Instant::from_secs(1);
    let mut world = World::new(pair(wire(100_000, ms(25), 100), vec![first, second], secs(10))).expect("a valid world");
    world.run(&mut NoObserver);
    let report = world.report();
    [0, 1].map(|index| report[index].duration().as_millis())
}

/// An exchange takes two round trips, and one where the SYN carries the request: with a cookie the second time, without one each time.
// Claim: With `fast_open`, a flow's first data is in its SYN, with a cookie from the second connection to a server on.
// Tests: `fast_open::a_short_transfer_is_in_the_syn`
#[test]
fn an_exchange_saves_a_round_trip() {
    let exchange = exchanges(1, Duration::ZERO);
    assert_eq!(durations(FastOpenConfig::OFF, exchange), [100, 100]);
    assert_eq!(durations(COOKIE, exchange), [100, 50]);
    assert_eq!(durations(NO_COOKIE, exchange), [50, 50]);
}

#[test]
fn a_short_transfer_is_in_the_syn() {
    assert_eq!(durations(FastOpenConfig::OFF, bulk_bytes(1000)), [75, 75]);
    assert_eq!(durations(COOKIE, bulk_bytes(1000)), [75, 25]);
    // More than a SYN holds: the SYN has the first part, and the rest waits for the handshake.
    let long = bulk_bytes(100_000);
    let [off, cookie, none] = [FastOpenConfig::OFF, COOKIE, NO_COOKIE].map(|config| durations(config, long));
    assert_eq!((off[0], cookie[0]), (off[1], off[0]));
    assert!(cookie[1] <= off[1] && none[0] <= off[0], "{off:?} {cookie:?} {none:?}");
}
