//! Which links lead from host to host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use holdover_explain::Outage;
use holdover_report::{PathEdge, Summary, VariantSummary, path_outages};

use super::Cuts;

/// The links of a run. Links from a mobile host to all base stations never go down; the run records separately when the
/// host is cut off.
pub(super) struct Network {
    edges: Vec<Edge>,
    mobiles: BTreeSet<String>,
}

struct Edge {
    /// The link; `None` between a mobile host and a base station.
    link: Option<String>,
    a: String,
    b: String,
    /// The names of its interfaces, as captures have them.
    interfaces: [String; 2],
}

impl Network {
    /// The network of the variant whose files are in `directory`, by the summary above it; `None` if there is none.
    pub(super) fn of_run(directory: &Path) -> Option<Self> {
        let directory = fs::canonicalize(directory).ok()?;
        let top = directory.ancestors().take(5).find(|above| above.join("summary.json").is_file())?;
        let summary: Summary = serde_json::from_slice(&fs::read(top.join("summary.json")).ok()?).ok()?;
        let relative = directory.strip_prefix(top).ok()?;
        let variant = summary.variants.iter().find(|variant| relative.starts_with(&variant.directory))?;
        Some(Self::of_variant(variant))
    }

    fn of_variant(variant: &VariantSummary) -> Self {
        // Interfaces of a host are numbered in the order of its links.
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut edges = Vec::with_capacity(variant.links.len());
        for link in &variant.links {
            let interfaces = [&link.a, &link.b].map(|host| format!("{host}-eth{}", next(&mut numbers, host)));
            edges.push(Edge { link: Some(link.link.clone()), a: link.a.clone(), b: link.b.clone(), interfaces });
        }
        let mobiles: BTreeSet<String> = variant.mobiles.iter().map(|mobile| mobile.node.clone()).collect();
        for mobile in &mobiles {
            let bases: BTreeSet<&String> = variant.cells.iter().map(|cell| &cell.base).collect();
            edges.extend(bases.into_iter().map(|base| Edge {
                link: None,
                a: mobile.clone(),
                b: base.clone(),
                interfaces: [String::new(), String::new()],
            }));
        }
        Self { edges, mobiles }
    }

    /// When no path led from host `a` to host `b`: no path of links that are up, or one of the two is mobile and cut
    /// off. Their own links count only if packets were seen on the interface.
    pub(super) fn outages(&self, a: &str, b: &str, seen: &BTreeSet<String>, cuts: &Cuts) -> Vec<Outage> {
        let is_used = |edge: &&Edge| {
            let own = [(&edge.a, &edge.interfaces[0]), (&edge.b, &edge.interfaces[1])];
            let mut own = own.iter().filter(|(host, _)| *host == a || *host == b);
            edge.link.is_none() || own.all(|(_, interface)| seen.contains(*interface))
        };
        let edges: Vec<&Edge> = self.edges.iter().filter(is_used).collect();
        let times = |outages: &[Outage]| outages.iter().map(|outage| (outage.down, outage.up)).collect();
        let of_link = |edge: &Edge| {
            edge.link.as_ref().and_then(|link| cuts.links.get(link)).map_or(Vec::new(), |cuts| times(cuts))
        };
        let mut path: Vec<PathEdge<'_>> =
            edges.iter().map(|edge| PathEdge { ends: [&edge.a, &edge.b], down: of_link(edge) }).collect();
        // A mobile host that is cut off: as if it were behind a link of its own that is down.
        let cut_off = |host: &str| if self.mobiles.contains(host) { cuts.hosts.get(host) } else { None };
        let mut ends = [a, b];
        for (end, own) in ends.iter_mut().zip(["own link of a", "own link of b"]) {
            if let Some(cuts) = cut_off(end) {
                path.push(PathEdge { ends: [own, *end], down: times(cuts) });
                *end = own;
            }
        }
        let outages = path_outages(&path, ends[0], ends[1]);
        outages.into_iter().map(|(down, up)| Outage { down, up }).collect()
    }
}

/// The number of the next interface of `host`.
fn next<'a>(numbers: &mut BTreeMap<&'a str, usize>, host: &'a str) -> usize {
    let number = numbers.entry(host).or_insert(0);
    *number += 1;
    *number - 1
}

#[cfg(test)]
mod tests {
    use holdover_base::Instant;

    use super::*;

    fn edge(link: &str, a: &str, b: &str) -> Edge {
        Edge {
            link: Some(link.to_owned()),
            a: a.to_owned(),
            b: b.to_owned(),
            interfaces: [format!("{a}-{link}"), format!("{b}-{link}")],
        }
    }

    fn outage(down: u64, up: u64) -> Outage {
        Outage { down: Instant::from_secs(down), up: Instant::from_secs(up) }
    }

    /// A host with two links to a router: its path is down when both are, or when the one that it uses is.
    #[test]
    fn a_path_is_down_when_no_way_is_left() {
        let edges =
            vec![edge("wifi", "phone", "router"), edge("lte", "phone", "router"), edge("net", "router", "server")];
        let network = Network { edges, mobiles: BTreeSet::new() };
        let mut cuts = Cuts::default();
        for (link, down, up) in [("wifi", 10, 20), ("lte", 15, 30), ("sky", 0, 100)] {
            cuts.push(true, link.to_owned(), outage(down, up));
        }
        let seen = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let both = seen(&["phone-wifi", "phone-lte", "server-net", "router-net", "router-wifi"]);
        assert_eq!(network.outages("phone", "server", &both, &cuts), [outage(15, 20)]);
        let wifi = seen(&["phone-wifi", "server-net"]);
        assert_eq!(network.outages("phone", "server", &wifi, &cuts), [outage(10, 20)]);
        cuts.push(true, "net".to_owned(), Outage { down: Instant::from_secs(40), up: Instant::FAR_FUTURE });
        let cut = Outage { down: Instant::from_secs(40), up: Instant::FAR_FUTURE };
        assert_eq!(network.outages("phone", "server", &wifi, &cuts), [outage(10, 20), cut]);
    }
}
