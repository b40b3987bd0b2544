//! All mobile hosts are absent, the fixed host sends to each, and they return within a second.

use std::time::{Duration, Instant};

use holdover_base::{BitRate, ByteCount};
use holdover_host::clock;
use holdover_testbed::gateway::{Crowd, Return};
use serde::Serialize;

use super::connections::Connections;
use super::daemon::Daemon;
use super::{Failed, PATIENCE};

/// The kind of absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Absence {
    /// The link loses all packets to and from the mobile hosts. On its return each host announces its address.
    SilentAnnounced,
    /// The same without announcements.
    Silent,
    /// The router's interface loses its carrier, which returns for all hosts at once. They announce nothing.
    Carrier,
}

impl Absence {
    pub(super) const ALL: [Self; 3] = [Self::SilentAnnounced, Self::Silent, Self::Carrier];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SilentAnnounced => "silent, announced",
            Self::Silent => "silent",
            Self::Carrier => "carrier",
        }
    }
}

/// One absence of all mobile hosts, and their return.
#[derive(Debug, Serialize)]
pub(super) struct ReturnCost {
    pub(super) absence: Absence,
    /// From the beginning of the absence until all hosts were known to be absent.
    pub(super) detected_s: f64,
    /// The daemon's share of one processor while all are known to be absent.
    pub(super) daemon_share: f64,
    /// The packets that wait at the gateway, for all hosts together, just before the first one returns.
    pub(super) waiting_packets: u64,
    pub(super) waiting_bytes: u64,
    /// The time that the link needs for these bytes.
    pub(super) waiting_link_s: f64,
    /// From a host's return to its first data: median, 99th percentile and maximum over the hosts.
    pub(super) first_data_median_s: f64,
    pub(super) first_data_p99_s: f64,
    pub(super) first_data_max_s: f64,
    /// From the return of the first host until all hosts have all data, and the time that the link needs for this data.
    pub(super) all_data_s: f64,
    pub(super) all_data_link_s: f64,
    /// The daemon's processor time in the same interval.
    pub(super) daemon_s: f64,
    /// Packets that the gateway discarded because of its limits.
    pub(super) discarded: u64,
    /// Packets that the full queues of the daemon's device and of the link dropped.
    pub(super) dropped_before_daemon: u64,
    pub(super) dropped_at_link: u64,
}

/// The data of the fixed host on each connection: ten segments, an initial window (RFC 6928).
const BYTES: usize = 14_480;

/// The time from the detection of the last absence to the first return.
const STAYS: Duration = Duration::from_secs(3);

/// All hosts return within this time.
const WITHIN: holdover_base::Duration = holdover_base::Duration::from_secs(1);

/// How long nothing happens before.
const QUIET: Duration = Duration::from_millis(1500);

/// Measures one absence.
///
/// # Errors
/// The gateway does not detect the absence, or the data do not arrive.
pub(super) fn measure(
    crowd: &Crowd,
    daemon: &mut Daemon,
    connections: &mut Connections,
    absence: Absence,
    link: BitRate,
) -> Result<ReturnCost, Failed> {
    std::thread::sleep(QUIET);
    daemon.await_status(PATIENCE, "take all mobile hosts for present", |status| {
        status.away == 0 && status.waiting == 0
    })?;
    let (before, dropped_before) = (daemon.status()?.buffer.lost(), daemon.dropped()?);
    let left_at = Instant::now();
    if absence == Absence::Carrier {
        crowd.set_carrier(false)?;
    } else {
        crowd.leave();
    }
    connections.send_to_all(BYTES)?;
    let hosts = u64::from(crowd.count());
    daemon.await_status(PATIENCE, "know that all mobile hosts are absent", |status| status.away >= hosts)?;
    let detected_s = left_at.elapsed().as_secs_f64();
    let (away_at, spent) = (Instant::now(), daemon.processor_time()?);
    std::thread::sleep(STAYS);
    let daemon_share = (daemon.processor_time()? - spent).as_secs_f64() / away_at.elapsed().as_secs_f64();
    let waiting = daemon.status()?;
    let spent = daemon.processor_time()?;
    let began = clock::now();
    match absence {
        Absence::SilentAnnounced => crowd.come_back(began, WITHIN, Return::Announced),
        Absence::Silent => crowd.come_back(began, WITHIN, Return::Silent),
        Absence::Carrier => {
            crowd.come_back(began, holdover_base::Duration::ZERO, Return::Silent);
            crowd.set_carrier(true)?;
        }
    }
    let all_data = connections.receive_all(PATIENCE)?;
    let daemon_time = daemon.processor_time()? - spent;
    let mut first = first_data(crowd)?;
    first.sort_by(f64::total_cmp);
    let of = |share: f64| first[((first.len() - 1) as f64 * share).round() as usize];
    let on_link = |bytes: u64| link.transmission_time(ByteCount(bytes)).as_secs_f64();
    let dropped = daemon.dropped()?;
    Ok(ReturnCost {
        absence,
        detected_s,
        daemon_share,
        waiting_packets: waiting.waiting,
        waiting_bytes: waiting.waiting_bytes,
        waiting_link_s: on_link(waiting.waiting_bytes),
        first_data_median_s: of(0.5),
        first_data_p99_s: of(0.99),
        first_data_max_s: of(1.0),
        all_data_s: all_data.as_secs_f64(),
        all_data_link_s: on_link((BYTES * connections.len()) as u64),
        daemon_s: daemon_time.as_secs_f64(),
        discarded: daemon.status()?.buffer.lost() - before,
        dropped_before_daemon: dropped[0] - dropped_before[0],
        dropped_at_link: dropped[1] - dropped_before[1],
    })
}

/// Seconds from the return of each host to its first data.
fn first_data(crowd: &Crowd) -> Result<Vec<f64>, Failed> {
    let of = |number| {
        let (there_from, data_at) = crowd.first_data(number)?;
        Some(data_at?.saturating_since(there_from).as_secs_f64())
    };
    let times = (0..crowd.count()).map(of).collect::<Option<Vec<f64>>>();
    times.filter(|times| !times.is_empty()).ok_or_else(|| "data came to a mobile host before its return".into())
}
