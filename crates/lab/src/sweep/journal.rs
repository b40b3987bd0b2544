//! The content of a sweep's journal: the sweep's identity, and each run. Only the same sweep continues a journal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use holdover_report::FlowMetrics;
use holdover_sim::{GatewayMechanisms, LinkBetween, LinkId, World};
use serde::{Deserialize, Serialize};

use crate::journal;

/// A difference between two sweeps.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Difference {
    /// The earlier runs were made by another version of Holdover.
    #[error("its runs were made by version {was}, this is {is}")]
    Version {
        /// The journal's version.
        was: String,
        /// The present version.
        is: String,
    },
    /// The seeds differ.
    #[error("its seed is {was}, the scenario's is {is}")]
    Seed {
        /// The journal's seed.
        was: u64,
        /// The scenario's seed.
        is: u64,
    },
    /// The scenarios differ.
    #[error("its scenario has `{was}` where there is `{is}` now")]
    Scenario {
        /// The first differing line of the journal's scenario.
        was: String,
        /// The corresponding line of the present scenario.
        is: String,
    },
    /// A file named by the scenario has changed.
    #[error("the file {name} that the scenario names has changed")]
    File {
        /// Its name in the scenario.
        name: String,
    },
}

/// The identity of a sweep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The version of Holdover.
    pub version: String,
    /// The scenario's seed.
    pub seed: u64,
    /// The scenario, including changes by the command line.
    pub scenario: String,
    /// The hashes of the files that it names.
    pub files: BTreeMap<String, String>,
}

/// A finished run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The number of the point, from 0.
    pub point: usize,
    /// The name of the variant.
    pub variant: String,
    /// The number of the replication, from 0.
    pub run: u32,
    /// The seed.
    pub seed: u64,
    /// The reason for the run's end: `all-done`, `time-limit` or `idle`.
    pub ending: String,
    /// The time of its end, in virtual time.
    pub ended_at_s: f64,
    /// All metrics of all flows.
    pub flows: Vec<FlowMetrics>,
    /// The traffic of each link.
    pub links: Vec<LinkTraffic>,
    /// The stored state of each router with mechanisms.
    pub routers: Vec<RouterState>,
}

/// Transmissions of a link in both directions, with those that did not arrive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkTraffic {
    /// Its name.
    pub link: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The most that the mechanisms of a router have stored at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RouterState {
    /// Its name.
    pub router: String,
    /// Bytes of packets and of the buffers of terminated connections.
    pub bytes: u64,
    /// Connections with state.
    pub connections: u64,
}

impl LinkTraffic {
    pub(super) fn of_world(world: &World) -> Vec<Self> {
        let of_link = |(id, link): (u32, &LinkBetween)| {
            let [there, back] = world.link_statistics(LinkId(id))?.map(|direction| direction.transmitted());
            let (packets, bytes) = (there.packets + back.packets, there.bytes + back.bytes);
            Some(Self { link: link.name.clone(), packets, bytes })
        };
        (0..).zip(&world.config().links).filter_map(of_link).collect()
    }
}

impl RouterState {
    pub(super) fn of_world(world: &World) -> Vec<Self> {
        let config = world.config();
        let of_router = |gateway: &GatewayMechanisms| {
            let stored = world.most_stored(gateway.node)?;
            let router = config.nodes[gateway.node.0 as usize].name.clone();
            Some(Self { router, bytes: stored.bytes, connections: stored.connections })
        };
        config.gateways.iter().filter_map(of_router).collect()
    }
}

impl Header {
    /// The header of the journal at `path`, if there is one.
    pub fn read(path: &Path) -> Option<Self> {
        let mut line = Vec::new();
        BufReader::new(File::open(path).ok()?).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    }

    fn compare(&self, was: &Self) -> Result<(), Difference> {
        if was.version != self.version {
            return Err(Difference::Version { was: was.version.clone(), is: self.version.clone() });
        }
        if was.seed != self.seed {
            return Err(Difference::Seed { was: was.seed, is: self.seed });
        }
        if was.scenario != self.scenario {
            let (was, is) = first_difference(&was.scenario, &self.scenario);
            return Err(Difference::Scenario { was, is });
        }
        let changed = |(name, print): &(&String, &String)| was.files.get(*name) != Some(*print);
        match self.files.iter().find(changed) {
            Some((name, _)) => Err(Difference::File { name: name.clone() }),
            None => Ok(()),
        }
    }
}

impl journal::Header for Header {
    fn agrees_with(&self, was: &Self) -> Result<(), String> {
        self.compare(was).map_err(|difference| difference.to_string())
    }
}

/// The first differing line of each.
fn first_difference(was: &str, is: &str) -> (String, String) {
    let same = was.lines().zip(is.lines()).take_while(|(was, is)| was == is).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("the end of the file").to_owned();
    (line(was), line(is))
}
