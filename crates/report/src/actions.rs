//! Actions of mechanisms in a run, counted by node, mechanism and action.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdover_base::Instant;
use holdover_filter::Action;
use holdover_sim::NodeId;
use serde::{Deserialize, Serialize};

use crate::draw::escape;
use crate::quantity::{count, significant};

/// The number of times that a mechanism of a node did something, and when first and last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ActionMetrics {
    /// The host or router.
    pub node: String,
    /// The mechanism, by its name in scenario files.
    pub mechanism: String,
    /// The action: `froze`, `handed on`, `took over`.
    pub action: String,
    /// The number of times.
    pub count: u64,
    /// The time of the first one.
    pub first_at_s: f64,
    /// The time of the last one.
    pub last_at_s: f64,
}

/// Counts actions during a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionCounts(BTreeMap<(NodeId, &'static str, &'static str), Count>);

#[derive(Clone, Copy, Debug)]
struct Count {
    times: u64,
    first_at: Instant,
    last_at: Instant,
}

impl ActionCounts {
    pub(crate) fn note(&mut self, at: Instant, node: NodeId, action: &Action) {
        let new = Count { times: 0, first_at: at, last_at: at };
        let counted = self.0.entry((node, action.mechanism, action.what)).or_insert(new);
        counted.times += 1;
        counted.last_at = at;
    }

    /// By node in the scenario's order, then by mechanism; the actions of each in the order in which they were first done.
    pub(crate) fn metrics<'a>(&self, name: impl Fn(NodeId) -> &'a str) -> Vec<ActionMetrics> {
        let mut counted: Vec<_> = self.0.iter().collect();
        counted.sort_by_key(|((node, mechanism, _), count)| (*node, *mechanism, count.first_at));
        let metrics = counted.into_iter().map(|((node, mechanism, action), count)| ActionMetrics {
            node: name(*node).to_owned(),
            mechanism: (*mechanism).to_owned(),
            action: (*action).to_owned(),
            count: count.times,
            first_at_s: count.first_at.as_secs_f64(),
            last_at_s: count.last_at.as_secs_f64(),
        });
        metrics.collect()
    }
}

/// The table of a variant's actions; nothing if there are none.
pub(crate) fn table(html: &mut String, actions: &[ActionMetrics]) {
    if actions.is_empty() {
        return;
    }
    html.push_str(
        "<details><summary>Actions of mechanisms</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>node</th>\
         <th>mechanism</th><th>action</th><th>times</th><th>first</th><th>last</th></tr></thead>\n<tbody>\n",
    );
    for done in actions {
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{} s</td><td>{} s</td></tr>",
            escape(&done.node),
            escape(&done.mechanism),
            escape(&done.action),
            count(done.count),
            significant(done.first_at_s),
            significant(done.last_at_s),
        );
    }
    html.push_str("</tbody>\n</table></div>\n</details>\n");
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use holdover_filter::Connection;

    use super::*;

    fn action(mechanism: &'static str, what: &'static str) -> Action {
        let end = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
        Action { at: Instant::ZERO, connection: Connection { local: end, remote: end }, mechanism, what }
    }

    #[test]
    fn actions_are_counted_by_node_and_mechanism_in_the_order_of_their_first_time() {
        let mut counts = ActionCounts::default();
        let done = [(5_000, 1, "took over"), (6_500, 1, "released"), (4_000, 0, "handed on"), (9_000, 1, "took over")];
        for (at_ms, node, what) in done {
            counts.note(Instant::from_millis(at_ms), NodeId(node), &action("m_tcp", what));
        }
        let metrics = counts.metrics(|node| ["base <1>", "base 2"][node.0 as usize]);
        let seen: Vec<_> =
            metrics.iter().map(|done| (&*done.node, &*done.action, done.count, done.last_at_s)).collect();
        assert_eq!(
            seen,
            [("base <1>", "handed on", 1, 4.0), ("base 2", "took over", 2, 9.0), ("base 2", "released", 1, 6.5)]
        );
        let mut html = String::new();
        table(&mut html, &metrics);
        let row =
            "<tr><th scope=\"row\">base 2</th><td>m_tcp</td><td>took over</td><td>2</td><td>5 s</td><td>9 s</td></tr>";
        assert!(html.contains(row) && html.contains("base &lt;1&gt;"), "{html}");
        html.clear();
        table(&mut html, &[]);
        assert_eq!(html, "");
    }
}
