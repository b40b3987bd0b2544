//! Bit errors on links and in radio cells: long frames suffer more than short ones.

use crate::common::{Named, Seen, World};
use holdover_base::{BitRate, Duration, Instant};
use holdover_link::cell::{Cell, CellConfig, CellEvent, Hop, Motion, Position, StationId};
use holdover_link::{Arq, BitErrorBursts, BitErrors, DropCause, Dwell, Link, LinkConfig, Loss, QueueLimit, Rate};

const N: u32 = 20_000;

fn link(bit_errors: BitErrors) -> LinkConfig {
    LinkConfig { rate: Rate::Fixed(BitRate::from_mbps(10)), bit_errors, ..LinkConfig::default() }
}

/// Sends `N` frames of `len` bytes; returns for each whether it arrives, and whether it is damaged.
fn outcomes(config: &LinkConfig, len: u32) -> Vec<Option<bool>> {
    let mut world = World::new(config);
    let mut fates = vec![None; N as usize];
    for name in 0..N {
        world.send(Instant::from_millis(2 * u64::from(name)), name, len);
        for seen in world.take() {
            if let Seen::Delivered { name, corrupted, .. } = seen {
                fates[name as usize] = Some(corrupted);
            }
        }
    }
    world.run_until(Instant::from_secs(1_000));
    for seen in world.take() {
        if let Seen::Delivered { name, corrupted, .. } = seen {
            fates[name as usize] = Some(corrupted);
        }
    }
    fates
}

fn damaged(fates: &[Option<bool>]) -> f64 {
    fates.iter().filter(|fate| **fate == Some(true)).count() as f64 / fates.len() as f64
}

/// Four standard errors of a share of `p` among `n`.
fn tolerance(p: f64, n: u32) -> f64 {
    4.0 * (p * (1.0 - p) / f64::from(n)).sqrt()
}

// Claim: A frame of n bits survives independent bit errors with the nth power of a bit's probability of survival; in bursts, with
// the share and the length of the bad states, by time or by bits. Radio cells retransmit damaged frames up to the retry limit.
// Tests: `bursts_in_time_damage_consecutive_frames`, `a_cell_sends_damaged_frames_again_up_to_the_retry_limit`,
// `each_station_hears_a_broadcast_or_not`
#[test]
fn long_frames_are_damaged_more_often_than_short_ones() {
    let rate = 1e-5_f64;
    for (len, overhead_bytes) in [(1_500, 0), (40, 0), (40, 1_460)] {
        let config = LinkConfig { overhead_bytes, ..link(BitErrors::Independent(rate)) };
        let bits = 8 * (len + overhead_bytes);
        let expected = 1.0 - (1.0 - rate).powi(bits as i32);
        let found = damaged(&outcomes(&config, len));
        assert!((found - expected).abs() < tolerance(expected, N), "{len} bytes: {found} against {expected}");
    }
}

#[test]
fn bursts_in_time_damage_consecutive_frames() {
    let dwell = Dwell::Time { good: Duration::from_millis(900), bad: Duration::from_millis(100) };
    let bursts = BitErrorBursts { good: 0.0, bad: 1e-3, dwell };
    let fates = outcomes(&link(BitErrors::GilbertElliott(bursts)), 1_500);
    let bad: Vec<bool> = fates.iter().map(|fate| *fate == Some(true)).collect();
    let runs = bad.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    let damaged = bad.iter().filter(|&&bad| bad).count() as f64;
    // A frame every 2 ms: some 50 in each bad state, which is also the spread of the exponential distribution; 40
    // states.
    let mean = damaged / runs;
    assert!((mean - 50.0).abs() < 4.0 * 50.0 / runs.sqrt(), "{mean} in a row, {runs} times");
    assert!((20.0..65.0).contains(&runs), "{runs}");
}

#[test]
fn bit_errors_do_not_change_other_draws() {
    let lossy = |bit_errors| LinkConfig { loss: Loss::Independent(0.05), corrupt: 0.02, ..link(bit_errors) };
    let (without, with) = (outcomes(&lossy(BitErrors::None), 500), outcomes(&lossy(BitErrors::Independent(1e-5)), 500));
    for (without, with) in without.iter().zip(&with) {
        assert_eq!(without.is_none(), with.is_none(), "the same frames are lost");
        assert!(*without != Some(true) || *with == Some(true), "frames damaged without are damaged with");
    }
    assert!(damaged(&with) > damaged(&without) + 0.02);
    assert_eq!(with, outcomes(&lossy(BitErrors::Independent(1e-5)), 500), "the seed decides");
}

#[test]
fn a_link_with_arq_delivers_everything() {
    let dwell = Dwell::Bits { good: 60_000.0, bad: 24_000.0 };
    let bursts = BitErrorBursts { good: 1e-6, bad: 1e-4, dwell };
    let config = LinkConfig { arq: Some(Arq::default()), ..link(BitErrors::GilbertElliott(bursts)) };
    let fates = outcomes(&config, 1_500);
    assert!(fates.iter().all(|fate| *fate == Some(false)));
}

const ANN: StationId = StationId(1);
const BOB: StationId = StationId(2);

struct Counted {
    received: u32,
    dropped: Vec<(Instant, DropCause)>,
    cell: Cell<Named>,
}

/// Sends frames of 1000 bytes in a cell with two stations near its base, one after the other.
fn in_a_cell(bit_errors: BitErrors, frames: u32, hop: impl Fn(Named) -> Hop<Named>) -> Counted {
    let config = CellConfig { bit_errors, ..CellConfig::wavelan(40.0, QueueLimit::Unlimited) };
    let mut cell = Cell::new(config, 1).unwrap();
    for station in [ANN, BOB] {
        cell.join(Instant::ZERO, station, Motion::at_rest(Position { x_m: 10.0, y_m: 0.0 })).unwrap();
    }
    let mut counted = Counted { received: 0, dropped: Vec::new(), cell };
    for name in 0..frames {
        counted.cell.handle_packet(Instant::ZERO, hop(Named { name, len: 1000 }));
    }
    while let Some((at, _)) = counted.cell.poll_timeout() {
        counted.cell.handle_timeout(at);
        while counted.cell.poll_deliver(at).is_some() {
            counted.received += 1;
        }
        while let Some(event) = counted.cell.poll_event() {
            if let CellEvent::Dropped { at, cause, .. } = event {
                counted.dropped.push((at, cause));
            }
        }
    }
    counted
}

/// The bit error rate at which a data frame around 1000 bytes is damaged with probability `p`.
fn rate_for(p: f64) -> f64 {
    let bits = 8.0 * (1000.0 + f64::from(CellConfig::wavelan(40.0, QueueLimit::Unlimited).dcf.header_bytes));
    1.0 - (1.0 - p).powf(1.0 / bits)
}

#[test]
fn a_cell_sends_damaged_frames_again_up_to_the_retry_limit() {
    let p = 0.5_f64;
    let frames = 5_000;
    for hop in [|frame| Hop::Down { to: ANN, frame }, |frame| Hop::Up { from: ANN, frame }] {
        let counted = in_a_cell(BitErrors::Independent(rate_for(p)), frames, hop);
        let limit = counted.cell.config().dcf.retry_limit;
        let lost = p.powi(limit as i32);
        let share = counted.dropped.len() as f64 / f64::from(frames);
        assert!((share - lost).abs() < tolerance(lost, frames), "{share} against {lost}");
        assert!(counted.dropped.iter().all(|(_, cause)| *cause == DropCause::BitErrors));
        assert_eq!(counted.received + counted.dropped.len() as u32, frames);
        // The share of damaged attempts.
        let damaged = counted.cell.statistics(Instant::ZERO).damaged as f64;
        let attempts = damaged + f64::from(counted.received);
        assert!((damaged / attempts - p).abs() < tolerance(p, attempts as u32), "{}", damaged / attempts);
    }
}

#[test]
fn a_damaged_exchange_takes_the_time_of_the_standard() {
    let counted = in_a_cell(BitErrors::Independent(1.0), 1, |frame| Hop::Down { to: ANN, frame });
    let dcf = CellConfig::wavelan(40.0, QueueLimit::Unlimited).dcf;
    let attempt = |failures| {
        dcf.difs() + dcf.mean_backoff(failures) + dcf.until_data_received(1000) + dcf.sifs + dcf.slot + dcf.plcp
    };
    let all = (0..dcf.retry_limit).fold(Duration::ZERO, |sum, failures| sum + attempt(failures));
    assert_eq!(counted.dropped, [(Instant::ZERO + all, DropCause::BitErrors)]);
}

#[test]
fn each_station_hears_a_broadcast_or_not() {
    let p = 0.3;
    let counted = in_a_cell(BitErrors::Independent(rate_for(p)), 5_000, |frame| Hop::Broadcast { frame });
    let share = counted.dropped.len() as f64 / 10_000.0;
    assert!((share - p).abs() < tolerance(p, 10_000), "{share}");
    assert_eq!(counted.received + counted.dropped.len() as u32, 10_000);
    let statistics = counted.cell.statistics(Instant::from_secs(1_000)).down;
    let (entered, left) = (
        statistics.offered.packets + statistics.duplicated.packets,
        statistics.delivered.packets + statistics.dropped.total().packets + statistics.under_way,
    );
    assert_eq!(entered, left);
}
