//! Descriptions of events.

use std::collections::BTreeMap;

use crate::metrics::{FlowMetrics, OutageMetrics, StatusName};
use crate::quantity::{bit_rate, bytes, counted, moment, percent, seconds, significant};
use crate::summary::{Summary, VariantSummary};

/// The findings of a run, a paragraph each, in order.
pub(crate) fn what_happened(summary: &Summary) -> Vec<String> {
    let mut paragraphs = outages(summary);
    let several_flows = summary.variants.iter().any(|variant| variant.flows.len() > 1);
    for variant in &summary.variants {
        // With more flows, only the table describes them.
        const DESCRIBED: usize = 4;
        let flows = variant.flows.iter().take(DESCRIBED);
        paragraphs.extend(flows.map(|flow| flow_story(variant, flow, summary, several_flows)));
    }
    paragraphs.extend(comparison(summary));
    paragraphs
}

/// The outages, stated once if they were the same for all variants.
fn outages(summary: &Summary) -> Vec<String> {
    let of = |variant: &VariantSummary| -> Vec<String> {
        let links = variant.links.iter().map(|link| (format!("The link {}", link.link), "was down", &link.outages));
        let mobiles = variant.mobiles.iter().map(|mobile| (mobile.node.clone(), "was cut off", &mobile.outages));
        let hit = links.chain(mobiles).filter(|(_, _, outages)| outages.count > 0);
        hit.map(|(subject, verb, outages)| format!("{subject} {verb} {}.", outage_times(outages))).collect()
    };
    let mut by_story: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for variant in &summary.variants {
        by_story.entry(of(variant)).or_default().push(&variant.variant);
    }
    let Some(first) = summary.variants.first() else { return Vec::new() };
    if by_story.len() == 1 {
        let story = of(first);
        return if story.is_empty() { vec!["No link went down.".to_owned()] } else { story };
    }
    // A longer variant met more of the same outages.
    let longest = summary.variants.iter().max_by(|a, b| a.ended_at_s.total_cmp(&b.ended_at_s)).unwrap_or(first);
    let mut story = of(longest);
    story.push(format!(
        "This is what {} met; variants that ended earlier, or that change the links, met others.",
        longest.variant
    ));
    story
}

fn outage_times(outages: &OutageMetrics) -> String {
    const LISTED: u64 = 4;
    if outages.count <= LISTED && outages.first_s.len() as u64 == outages.count {
        let times = outages.first_s.iter().map(|&(from, to)| format!("from {} to {}", moment(from), moment(to)));
        return list(&times.collect::<Vec<_>>());
    }
    let lengths = match (outages.shortest_s, outages.longest_s) {
        (Some(shortest), Some(longest)) if (longest - shortest) > 0.001 * longest => {
            format!(", between {} and {} each time", seconds(shortest), seconds(longest))
        }
        (Some(_), Some(longest)) => format!(", {} each time", seconds(longest)),
        _ => String::new(),
    };
    format!("{} in all{lengths}", counted(outages.count, "time") + ", " + &seconds(outages.total_s))
}

fn flow_story(variant: &VariantSummary, flow: &FlowMetrics, summary: &Summary, several_flows: bool) -> String {
    let subject = match (summary.variants.len() > 1, several_flows) {
        (true, true) => format!("{}, {}", variant.variant, flow.flow),
        (true, false) => variant.variant.clone(),
        (false, _) => flow.flow.clone(),
    };
    let mut story = format!("{subject}: {}.", outcome(flow));
    for sentence in [idle_times(flow), repetitions(flow)].into_iter().flatten() {
        story.push(' ');
        story.push_str(&sentence);
    }
    story
}

fn outcome(flow: &FlowMetrics) -> String {
    if let Some(exchanges) = &flow.exchanges {
        let ending = match (flow.status, &flow.error) {
            (StatusName::Failed, Some(error)) => format!("; failed after {}: {error}", seconds(flow.duration_s)),
            (StatusName::Unfinished, _) if !flow.endless => {
                format!("; unfinished when the run ended after {}", seconds(flow.duration_s))
            }
            _ => String::new(),
        };
        return format!(
            "{} of request and answer, half of them within {}, 95 of 100 within {}, the longest {}{ending}",
            counted(exchanges.count, "exchange"),
            seconds(exchanges.median_s),
            seconds(exchanges.p95_s),
            seconds(exchanges.max_s)
        );
    }
    let amount = bytes(flow.bytes_received as f64);
    let rate = bit_rate(flow.goodput_bps);
    match flow.status {
        StatusName::Completed => {
            let ideal = match (flow.ideal_s, flow.ideal_share) {
                (Some(ideal), Some(share)) => {
                    format!("; a perfect sender would have needed {} ({})", seconds(ideal), percent(share))
                }
                _ => String::new(),
            };
            format!("{amount} arrived in {} ({rate}){ideal}", seconds(flow.duration_s))
        }
        StatusName::Failed => {
            let error = flow.error.as_deref().unwrap_or("connection failed");
            format!("failed after {} with {amount} received: {error}", seconds(flow.duration_s))
        }
        StatusName::Unfinished => {
            format!("{amount} had arrived when the run ended after {} ({rate})", seconds(flow.duration_s))
        }
    }
}

/// The idle times after reconnections.
fn idle_times(flow: &FlowMetrics) -> Option<String> {
    const LISTED: usize = 3;
    let returns = flow.reconnections.len();
    if returns == 0 {
        return None;
    }
    let without = flow.reconnections.iter().filter(|reconnection| reconnection.idle_s.is_none()).count();
    let times: Vec<f64> = flow.idle_times_s().collect();
    let mut text = match times.len() {
        0 => String::new(),
        1 if returns == 1 => format!("After the path was back it took {} until new data arrived.", seconds(times[0])),
        n if n <= LISTED && without == 0 => {
            let each: Vec<String> = times.iter().map(|&time| seconds(time)).collect();
            format!("After the path was back it took {} until new data arrived.", list(&each))
        }
        n => {
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let most = times.iter().copied().fold(0.0, f64::max);
            let mean = times.iter().sum::<f64>() / n as f64;
            format!(
                "After {} of the path it took {} to {} until new data arrived, {} in the mean.",
                counted(n as u64, "return"),
                seconds(least),
                seconds(most),
                seconds(mean)
            )
        }
    };
    if without > 0 {
        let separator = if text.is_empty() { "" } else { " " };
        let which = if without == returns {
            format!("After {} of the path", counted(without as u64, "return"))
        } else {
            format!("After {without} of its {returns} returns")
        };
        text.push_str(&format!("{separator}{which} no new data came before the next outage or the end."));
    }
    Some(text)
}

fn repetitions(flow: &FlowMetrics) -> Option<String> {
    let sender = flow.sender.as_ref()?;
    if sender.bytes_retransmitted == 0 && sender.timeouts == 0 {
        return Some("Nothing had to be sent twice.".to_owned());
    }
    let again = match flow.retransmitted_share() {
        Some(share) if share > 0.0 => {
            format!("{} ({}) were sent again", bytes(sender.bytes_retransmitted as f64), percent(share))
        }
        _ => "no data was sent again".to_owned(),
    };
    let timeouts = match sender.timeouts {
        0 => "The retransmission timer never ran out".to_owned(),
        1 => "The retransmission timer ran out once".to_owned(),
        2 => "The retransmission timer ran out twice".to_owned(),
        n => format!("The retransmission timer ran out {}", counted(n, "time")),
    };
    let undone = match sender.undos {
        0 => String::new(),
        n => format!(
            "; {} turned out to be spurious and {} undone",
            counted(n, "reduction"),
            if n == 1 { "was" } else { "were" }
        ),
    };
    Some(format!("{timeouts}, and {again}{undone}."))
}

/// The fastest variant, if all have one flow and completed it.
fn comparison(summary: &Summary) -> Option<String> {
    let mut times: Vec<(&str, f64)> = Vec::new();
    for variant in &summary.variants {
        let [flow] = variant.flows.as_slice() else { return None };
        if flow.status != StatusName::Completed || flow.exchanges.is_some() {
            return None;
        }
        times.push((&variant.variant, flow.duration_s));
    }
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (&(fastest, least), &(slowest, most)) = (times.first()?, times.last()?);
    if times.len() < 2 || least <= 0.0 {
        return None;
    }
    if most / least < 1.01 {
        return Some(format!("All variants took about the same time, {} to {}.", seconds(least), seconds(most)));
    }
    Some(format!(
        "{fastest} was the fastest with {}; {slowest} took {} times as long.",
        seconds(least),
        significant(most / least)
    ))
}

/// `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{ConnectionMetrics, ReconnectionMetrics};

    fn flow(idle: &[Option<f64>]) -> FlowMetrics {
        let reconnection = |&idle_s: &Option<f64>| ReconnectionMetrics {
            up_at_s: 17.0,
            idle_s,
            idle_before_s: None,
            before: None,
            after: None,
        };
        FlowMetrics {
            flow: "download".into(),
            from: "server".into(),
            to: "mobile".into(),
            status: StatusName::Completed,
            endless: false,
            error: None,
            started_at_s: 0.0,
            connected_at_s: Some(0.05),
            completed_at_s: Some(34.0),
            duration_s: 34.0,
            outage_s: 7.0,
            net_duration_s: 27.0,
            ideal_s: Some(32.0),
            ideal_share: Some(32.0 / 34.0),
            bytes_received: 6_000_000,
            throughput_bps: 0.0,
            goodput_bps: 1_411_765.0,
            longest_pause_s: None,
            net_goodput_bps: 0.0,
            sender: Some(ConnectionMetrics {
                bytes_sent: 6_000_000,
                bytes_retransmitted: 60_000,
                timeouts: 5,
                undos: 1,
                ..ConnectionMetrics::default()
            }),
            receiver: None,
            reconnections: idle.iter().map(reconnection).collect(),
            readdressings_s: Vec::new(),
            exchanges: None,
        }
    }

    #[test]
    fn a_flow_is_described_with_its_idle_times_and_repetitions() {
        assert_eq!(
            outcome(&flow(&[])),
            "6 MB arrived in 34 s (1.41 Mbit/s); a perfect sender would have needed 32 s (94.1 %)"
        );
        assert_eq!(
            repetitions(&flow(&[])).unwrap(),
            "The retransmission timer ran out 5 times, and 60 kB (1 %) were sent again; \
             1 reduction turned out to be spurious and was undone."
        );
        assert_eq!(idle_times(&flow(&[])), None);
        assert_eq!(
            idle_times(&flow(&[Some(3.4)])).unwrap(),
            "After the path was back it took 3.4 s until new data arrived."
        );
        assert_eq!(
            idle_times(&flow(&[Some(3.4), Some(0.05)])).unwrap(),
            "After the path was back it took 3.4 s and 50 ms until new data arrived."
        );
        assert_eq!(
            idle_times(&flow(&[Some(1.0), Some(2.0), Some(6.0), Some(3.0), None])).unwrap(),
            "After 4 returns of the path it took 1 s to 6 s until new data arrived, 3 s in the mean. \
             After 1 of its 5 returns no new data came before the next outage or the end."
        );
        assert_eq!(
            idle_times(&flow(&[None])).unwrap(),
            "After 1 return of the path no new data came before the next outage or the end."
        );
    }

    #[test]
    fn outages_are_listed_while_they_are_few() {
        let mut outages = OutageMetrics {
            count: 2,
            total_s: 9.0,
            shortest_s: Some(2.0),
            longest_s: Some(7.0),
            first_s: vec![(10.0, 17.0), (24.0, 26.0)],
        };
        assert_eq!(outage_times(&outages), "from 10 s to 17 s and from 24 s to 26 s");
        outages.count = 12;
        assert_eq!(outage_times(&outages), "12 times, 9 s in all, between 2 s and 7 s each time");
    }
}
