//! The daemon, and its use of resources.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use holdover_gatewayd::bench::Tables;
use holdover_gatewayd::status::Status;
use holdover_testbed::gateway::{Crowd, GatewayProcess, MOBILE_FACING};

use super::Failed;
use crate::command_support::scratch_directory;
use crate::gateway_command::daemon;

/// A gateway in mode `buffer`.
#[derive(Debug)]
pub(super) struct Daemon {
    process: GatewayProcess,
    id: u32,
    pub(super) tables: Tables,
    router: holdover_host::Namespace,
}

/// Memory of the gateway, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Memory {
    /// Resident in the process.
    pub(super) process: u64,
    /// Maps in the kernel.
    pub(super) maps: u64,
}

/// The interval between queries to the gateway.
const ASK_EVERY: Duration = Duration::from_millis(20);

impl Daemon {
    /// # Errors
    /// It does not start.
    pub(super) fn start(crowd: &Crowd) -> Result<Self, Failed> {
        let directory = scratch_directory("gateway-hosts");
        let sections = "[mobiles]\nmode = \"buffer\"\n[programs]\npinned = false\n";
        let mut process = GatewayProcess::start(crowd.router(), directory, sections, daemon)?;
        let id = process.process().map(|process| process.id()).ok_or("the daemon has ended")?;
        let tables = Tables::of(id)?;
        Ok(Self { process, id, tables, router: crowd.router().clone() })
    }

    /// # Errors
    /// It does not answer.
    pub(super) fn status(&self) -> Result<Status, Failed> {
        Ok(holdover_transfers::gateway::status(&self.process)?)
    }

    /// Waits until its status satisfies a condition, and returns the status and the time that this took.
    ///
    /// # Errors
    /// The status is not reached in time.
    pub(super) fn await_status(
        &self,
        patience: Duration,
        wanted: &str,
        is_so: impl Fn(&Status) -> bool,
    ) -> Result<(Status, Duration), Failed> {
        let began = Instant::now();
        loop {
            let status = self.status()?;
            let passed = began.elapsed();
            if is_so(&status) {
                return Ok((status, passed));
            }
            if passed > patience {
                let Status { mobiles, away, waiting, .. } = status;
                return Err(format!(
                    "the gateway does not {wanted} within {} s: {mobiles} mobile hosts, {away} away, {waiting} packets waiting",
                    patience.as_secs()
                )
                .into());
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// The processor time of all of its threads so far.
    pub(super) fn processor_time(&self) -> io::Result<Duration> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.id))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += text.split_whitespace().next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanos))
    }

    pub(super) fn memory(&self) -> io::Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        let process = kilobytes.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0) * 1024;
        Ok(Memory { process, maps: self.tables.usage()?.map_bytes })
    }

    /// Packets that were dropped on the router's interfaces: diverted ones for which the daemon's device had no room, and others at the
    /// mobile-facing interface.
    pub(super) fn dropped(&self) -> Result<[u64; 2], Failed> {
        let text = self.router.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let of = |is_it: &dyn Fn(&str) -> bool| text.lines().filter_map(|line| dropped(line, is_it)).sum();
        Ok([of(&|name| name.starts_with("hgw")), of(&|name| name == MOBILE_FACING)])
    }
}

/// Packets that an interface has dropped instead of sending them, by a line of /proc/net/dev.
fn dropped(line: &str, is_it: &dyn Fn(&str) -> bool) -> Option<u64> {
    let (name, counters) = line.split_once(':')?;
    // Eight counters of received packets come first, then bytes, packets, errors and drops of sent ones.
    if is_it(name.trim()) { counters.split_whitespace().nth(11)?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_sent_packets() {
        let line = "  hgw3: 1 2 3 4 5 6 7 8 90 100 110 120 13 14 15 16";
        assert_eq!(dropped(line, &|name| name == "hgw3"), Some(120));
        assert_eq!(dropped(line, &|name| name == "mob0"), None);
        assert_eq!(dropped("Inter-| Receive", &|_| true), None);
    }
}
