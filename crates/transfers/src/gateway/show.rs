//! The demo: the same transfers over the same outages, with and without the gateway, side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::{GatewayProcess, MakeCommand, Transfer, World};

use super::between::between_gateways;
use super::case::{
    ALL_BYTES, BEFORE_BYTES, Case, DemoError, Incident, Outcome, ROUND_TRIP, Way, await_bytes, go_on_unless,
    sleep_until,
};

/// Runs one outage in all four variants at once. `directory` is for the daemons' files and must exist; `cluster` is
/// the number of gateways that agree in a store, if there is one. Ends early once `stop` is true, and cleans up in any
/// case.
///
/// # Errors
/// The kernel refuses, a transfer does not end properly, or the demo was stopped.
pub fn run(
    case: Case,
    cluster: Option<u8>,
    directory: &Path,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>, DemoError> {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let ways = ways.map(|(is_upload, has_gateway)| Way { is_upload, has_gateway });
    let outcomes = std::thread::scope(|scope| {
        let threads = ways.map(|way| {
            let place = directory.join(format!("{}-{}", way.is_upload, way.has_gateway));
            scope.spawn(move || match case.incident {
                Incident::None | Incident::Killed => transfer(case, way, place, command, stop),
                _ => between_gateways(case, way, cluster, &place, command, stop),
            })
        });
        threads.map(|thread| thread.join().unwrap_or(Err(DemoError::Panicked)))
    });
    // A daemon that is interrupted at the same time is no failure.
    go_on_unless(stop)?;
    outcomes.into_iter().collect()
}

fn transfer(
    case: Case,
    way: Way,
    directory: PathBuf,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Outcome, DemoError> {
    let world = World::with_round_trip(1, ROUND_TRIP)?;
    let mut gateway = match way.has_gateway {
        true => Some(GatewayProcess::start(world.router(), directory, "", command)?),
        false => None,
    };
    let began = Instant::now();
    let transfer = Transfer::start(&world, 0, way.is_upload)?;
    await_bytes(&transfer, BEFORE_BYTES, stop)?;
    let returns_at = Instant::now() + Duration::from_millis(case.cut_ms);
    world.set_cut(case.cut, true)?;
    // The link is restored in time, whether or not the next daemon runs.
    let first_data = std::thread::scope(|scope| {
        let killed = gateway.as_mut().filter(|_| case.incident == Incident::Killed).map(|gateway| {
            scope.spawn(move || {
                sleep_until(Instant::now() + returns_at.saturating_duration_since(Instant::now()) / 2, stop)?;
                gateway.kill();
                gateway.restart()?;
                Ok::<_, DemoError>(())
            })
        });
        sleep_until(returns_at, stop)?;
        let mut made_whole = Ok(());
        let first_data = transfer.resumes_unless(stop, || made_whole = world.set_cut(case.cut, false))?;
        made_whole?;
        killed.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join).map_err(|_| DemoError::Panicked)??;
        Ok::<_, DemoError>(first_data)
    })?;
    await_bytes(&transfer, ALL_BYTES.saturating_sub(transfer.received()), stop)?;
    let total = began.elapsed();
    transfer.ends_exact()?;
    Ok(Outcome { case, way, first_data_s: first_data.as_secs_f64(), total_s: total.as_secs_f64() })
}
