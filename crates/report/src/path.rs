//! Outages of the path between two nodes: times at which no sequence of links that are up connects them.

use std::collections::BTreeSet;

use holdover_base::Instant;

/// A link between two nodes, and its outages.
#[derive(Clone, Debug)]
pub struct PathEdge<'a> {
    /// The nodes.
    pub ends: [&'a str; 2],
    /// The outages, in order and without overlaps.
    pub down: Vec<(Instant, Instant)>,
}

/// The times without a path from node `a` to node `b`, in order and without overlaps.
pub fn path_outages(edges: &[PathEdge<'_>], a: &str, b: &str) -> Vec<(Instant, Instant)> {
    let times: BTreeSet<Instant> =
        edges.iter().flat_map(|edge| &edge.down).flat_map(|&(down, up)| [down, up]).collect();
    // The current index into each link's list.
    let mut next = vec![0; edges.len()];
    let mut outages: Vec<(Instant, Instant)> = Vec::new();
    for (&from, &to) in times.iter().zip(times.iter().skip(1)) {
        let mut up = Vec::with_capacity(edges.len());
        for (edge, next) in edges.iter().zip(&mut next) {
            while edge.down.get(*next).is_some_and(|&(_, up)| up <= from) {
                *next += 1;
            }
            if edge.down.get(*next).is_none_or(|&(down, _)| from < down) {
                up.push(edge.ends);
            }
        }
        if !leads(&up, a, b) {
            match outages.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => outages.push((from, to)),
            }
        }
    }
    outages
}

/// Whether `links` connect `a` and `b`.
fn leads(links: &[[&str; 2]], a: &str, b: &str) -> bool {
    let mut reached = BTreeSet::from([a]);
    loop {
        let before = reached.len();
        for ends in links {
            if ends.iter().any(|end| reached.contains(end)) {
                reached.extend(ends);
            }
        }
        if reached.contains(b) || reached.len() == before {
            return reached.contains(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge<'a>(a: &'a str, b: &'a str, down: &[(u64, u64)]) -> PathEdge<'a> {
        let at = |&(from, to): &(u64, u64)| (Instant::from_secs(from), Instant::from_secs(to));
        PathEdge { ends: [a, b], down: down.iter().map(at).collect() }
    }

    /// A host with two links to a router, and a link elsewhere.
    #[test]
    fn a_path_is_down_when_no_way_is_left() {
        let edges = [
            edge("phone", "router", &[(10, 20), (50, 60)]),
            edge("phone", "router", &[(15, 30), (45, 70)]),
            edge("router", "server", &[(25, 27)]),
            edge("router", "elsewhere", &[(0, 100)]),
        ];
        let seconds = |(from, to): &(Instant, Instant)| (from.as_millis() / 1000, to.as_millis() / 1000);
        let found: Vec<_> = path_outages(&edges, "phone", "server").iter().map(seconds).collect();
        assert_eq!(found, [(15, 20), (25, 27), (50, 60)]);
        let one: Vec<_> = path_outages(&edges[1..], "phone", "server").iter().map(seconds).collect();
        assert_eq!(one, [(15, 30), (45, 70)]);
        assert_eq!(path_outages(&[], "phone", "server"), []);
    }
}
