//! The demo's cases with several gateways.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::{Etcd, GatewayProcess, LIMIT, MakeCommand, Site, Transfer, WorldError, make_directory};

use super::case::{
    ALL_BYTES, BEFORE_BYTES, Case, DemoError, Incident, Outcome, ROUND_TRIP, Way, await_bytes, go_on_unless,
    sleep_until,
};
use super::status;

/// How long the others wait for a gateway that was killed.
const LEASE: Duration = Duration::from_secs(2);

/// After the lease: until the network's routes have changed.
const ROUTES_AFTER: Duration = Duration::from_secs(1);

/// The interval between the demo's checks of the gateways.
const NAP: Duration = Duration::from_millis(20);

/// The gateways of one variant, on the routers of a site, and their store.
struct Gateways {
    processes: Vec<GatewayProcess>,
    store: Option<Etcd>,
}

/// One transfer while its mobile host is away, in a network of several routers: two, or as many as the cluster has.
pub(super) fn between_gateways(
    case: Case,
    way: Way,
    cluster: Option<u8>,
    directory: &Path,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Outcome, DemoError> {
    make_directory(directory)?;
    let result = in_directory(case, way, cluster, directory, command, stop);
    // Its contents were removed by their owners.
    let _ = std::fs::remove_dir(directory);
    result
}

fn in_directory(
    case: Case,
    way: Way,
    cluster: Option<u8>,
    directory: &Path,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Outcome, DemoError> {
    let site = Site::new(cluster.unwrap_or(2), 1, ROUND_TRIP, directory.join("key"))?;
    let mut gateways = match way.has_gateway {
        true => Gateways::start(&site, cluster, directory, command, stop)?,
        false => Gateways { processes: Vec::new(), store: None },
    };
    let began = Instant::now();
    let transfer = Transfer::start(site.world(), 0, way.is_upload)?;
    await_bytes(&transfer, BEFORE_BYTES, stop)?;
    if case.incident == Incident::StoreAway
        && let Some(store) = &mut gateways.store
    {
        store.kill();
    }
    let left_at = Instant::now();
    let returns_at = left_at + Duration::from_millis(case.cut_ms);
    let comes_back_here = case.incident == Incident::StoreAway;
    if comes_back_here {
        site.world().set_cut(case.cut, true)?
    } else {
        site.leave(0)?
    }
    if case.incident == Incident::TakenOver {
        sleep_until(left_at + LEASE / 2, stop)?;
        if let Some(first) = gateways.processes.first_mut() {
            first.kill();
        }
        sleep_until(left_at + LEASE / 2 + LEASE + ROUTES_AFTER, stop)?;
        site.route(0, 1)?;
    }
    sleep_until(returns_at, stop)?;
    let mut moved = Ok(());
    let first_data = transfer.resumes_unless(stop, || {
        moved = if comes_back_here { site.world().set_cut(case.cut, false) } else { site.move_to(0, 1, true) };
    })?;
    moved?;
    await_bytes(&transfer, ALL_BYTES.saturating_sub(transfer.received()), stop)?;
    let total = began.elapsed();
    transfer.ends_exact()?;
    gateways.end(case, stop)?;
    Ok(Outcome { case, way, first_data_s: first_data.as_secs_f64(), total_s: total.as_secs_f64() })
}

impl Gateways {
    /// Starts them, and waits until those of a cluster know each other.
    fn start(
        site: &Site,
        cluster: Option<u8>,
        directory: &Path,
        command: MakeCommand,
        stop: &AtomicBool,
    ) -> Result<Self, DemoError> {
        let store = match cluster {
            Some(_) => Some(Etcd::start(site.backbone(), Site::store_address(), directory.join("etcd"))?),
            None => None,
        };
        let mut gateways = Self { processes: Vec::new(), store };
        for number in 0..usize::from(cluster.unwrap_or(2)) {
            go_on_unless(stop)?;
            let sections = match cluster {
                Some(_) => site.cluster(number, &format!("lease = \"{} s\"\n", LEASE.as_secs())),
                None => site.handoff(number, &[1 - number]),
            };
            let place = directory.join(format!("gateway-{}", Site::gateway_name(number)));
            gateways.processes.push(GatewayProcess::start(site.router(number), place, &sections, command)?);
        }
        if cluster.is_some() {
            gateways.await_cluster(stop)?;
        }
        Ok(gateways)
    }

    /// Waits until all are connected and know each other.
    fn await_cluster(&self, stop: &AtomicBool) -> Result<(), DemoError> {
        for process in &self.processes {
            let is_ready = || -> Result<bool, DemoError> {
                let Some(cluster) = status(process)?.cluster else { return Ok(true) };
                let alive = cluster.gateways.iter().filter(|gateway| gateway.alive).count();
                Ok(cluster.connected && cluster.registered && alive + 1 == self.processes.len())
            };
            let began = Instant::now();
            while !is_ready()? {
                if began.elapsed() > LIMIT {
                    return Err(WorldError::Daemon("no agreement with the others".to_owned()).into());
                }
                sleep_until(Instant::now() + NAP, stop)?;
            }
        }
        Ok(())
    }

    /// Starts the stopped gateway or store again, and waits until all agree: a cluster that does not recover is a
    /// failure.
    fn end(&mut self, case: Case, stop: &AtomicBool) -> Result<(), DemoError> {
        match (case.incident, &mut self.store, self.processes.first_mut()) {
            (Incident::StoreAway, Some(store), _) => store.restart()?,
            (Incident::TakenOver, _, Some(first)) => first.restart()?,
            _ => return Ok(()),
        }
        self.await_cluster(stop)
    }
}
