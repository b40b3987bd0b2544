//! The plots of a run, as SVG and PNG.

use std::path::Path;

use holdover_base::{Duration, Instant};
use holdover_sim::{FlowId, NodeId, WorldConfig};
use holdover_tcp::Reason;

use crate::draw::{Axis, Band, Chart, Curve, Figure, Ink, Kind, Mark, Unit, to_png, to_svg, to_svg_file};
use crate::error::RecordError;
use crate::part_file::Written;
use crate::path::{PathEdge, path_outages};
use crate::quantity::FileNames;
use crate::recorder::Record;
use crate::series::{Cut, FlowSeries, QueueSeries};

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The file name, without extension.
    pub name: String,
    /// The charts, one below the other.
    charts: Vec<Chart>,
}

impl Plot {
    fn new(name: String, chart: Chart) -> Self {
        Self { name, charts: vec![chart] }
    }

    /// The plot as an element of a page with [`crate::html`]'s style sheet.
    pub fn inline_svg(&self) -> String {
        to_svg(&self.draw())
    }

    /// Writes `NAME.svg` and `NAME.png` into `dir`.
    pub(crate) fn write(&self, dir: &Path, written: &Written) -> Result<(), RecordError> {
        std::fs::create_dir_all(dir).map_err(|error| RecordError::io(dir, error))?;
        let figure = self.draw();
        let svg = dir.join(format!("{}.svg", self.name));
        written.write(&svg, to_svg_file(&figure).as_bytes()).map_err(|error| RecordError::io(&svg, error))?;
        let path = dir.join(format!("{}.png", self.name));
        let png =
            to_png(&figure).map_err(|error| RecordError::Plot { path: path.clone(), reason: error.to_string() })?;
        written.write(&path, &png).map_err(|error| RecordError::io(&path, error))
    }

    fn draw(&self) -> Figure {
        Figure::stacked(self.charts.iter().map(Chart::draw))
    }
}

/// Flows of one run in the same axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Panel<'a> {
    /// The panel's title.
    pub title: &'a str,
    /// The flows and their names.
    pub flows: Vec<(FlowId, &'a str)>,
}

/// A kind of plot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PlotKind {
    /// Data sent, acknowledged, and retransmitted by reason.
    TimeSequence,
    /// The congestion window, ssthresh and the data outstanding.
    Window,
    /// The round-trip time and the retransmission timeout.
    Rtt,
    /// The application's goodput.
    Goodput,
    /// The number of packets queued in links.
    Queues,
}

impl PlotKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::TimeSequence, Self::Window, Self::Rtt, Self::Goodput, Self::Queues];

    /// The name of the plot's files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeSequence => "time-sequence",
            Self::Window => "window",
            Self::Rtt => "rtt",
            Self::Goodput => "goodput",
            Self::Queues => "queues",
        }
    }
}

/// The input of the plots of one variant.
#[derive(Clone, Copy, Debug)]
pub struct PlottedRun<'a> {
    /// The variant's name; empty if there is only one.
    pub variant: &'a str,
    /// The configuration of the run.
    pub config: &'a WorldConfig,
    /// The results of the run.
    pub record: &'a Record,
}

/// The plots of one variant: flow by flow, then the queues. The time axis extends to `end`.
pub fn plots(run: &PlottedRun<'_>, kinds: &[PlotKind], end: Instant) -> Vec<Plot> {
    let series = &run.record.series;
    let mut names = FileNames::default();
    let several = series.flows().count() > 1;
    let mut plots = Vec::new();
    for (id, flow) in series.flows() {
        let name = run.config.flows[id.0 as usize].name.as_str();
        let file = |kind: PlotKind| if several { format!("{name}-{}", kind.name()) } else { kind.name().to_owned() };
        let title = |title: &str| {
            let flow = if several { format!(": {name}") } else { String::new() };
            let variant = if run.variant.is_empty() { String::new() } else { format!(" – {}", run.variant) };
            format!("{title}{flow}{variant}")
        };
        let bands = bands_of(run.record, run.config, id);
        let charts = [
            (PlotKind::TimeSequence, "Data, acknowledgments and retransmissions", time_sequence(flow)),
            (PlotKind::Window, "Congestion window", window(flow)),
            (PlotKind::Rtt, "Round-trip time and retransmission timeout", rtt(flow)),
            (PlotKind::Goodput, "Goodput", goodput(flow, end)),
        ];
        for (kind, caption, content) in charts {
            if let Some((axis, height, curves)) = content
                && kinds.contains(&kind)
            {
                let (title, end_s) = (title(caption), end.as_secs_f64());
                let chart = Chart { title, axis, end_s, height, curves, bands: bands.clone() };
                plots.push(Plot::new(names.unique(&file(kind)), chart));
            }
        }
    }
    if kinds.contains(&PlotKind::Queues) {
        plots.extend(queues(run, end).map(|chart| Plot::new(names.unique(PlotKind::Queues.name()), chart)));
    }
    plots
}

/// The progress of each variant's first flow, in one plot; `None` without data.
pub fn progress(runs: &[PlottedRun<'_>]) -> Option<Plot> {
    let mut curves = Vec::new();
    let mut name = "";
    for (index, run) in runs.iter().enumerate() {
        let Some((id, flow)) = run.record.series.flows().next() else { continue };
        name = run.config.flows[id.0 as usize].name.as_str();
        let points = received_over_time(flow);
        let label = if run.variant.is_empty() { name } else { run.variant };
        curves.push(Curve { width: 1.8, ..Curve::distinct(index, label, Kind::Line, points) });
    }
    let first = runs.first().filter(|_| !curves.is_empty())?;
    let same_outages = runs.iter().all(|run| run.record.series.meets_outages_of(&first.record.series));
    let (id, _) = first.record.series.flows().next()?;
    let end = runs.iter().map(|run| run.record.ended_at).max()?;
    let longest = runs.iter().max_by_key(|run| run.record.ended_at)?;
    let bands = if same_outages { bands_of(longest.record, longest.config, id) } else { Vec::new() };
    let chart = Chart {
        title: format!("Data received: {name}"),
        axis: Axis::new("read by the application", Unit::Bytes),
        end_s: end.as_secs_f64(),
        height: 280.0,
        curves,
        bands,
    };
    Some(Plot::new(PROGRESS.to_owned(), chart))
}

/// The progress of the flows of one run, in panels one below the other. Outages are those of each panel's first flow, labelled `outage`.
pub fn progress_of_flows(run: &PlottedRun<'_>, panels: &[Panel<'_>], outage: &str) -> Plot {
    let series = |id| run.record.series.flows().find(|(flow, _)| *flow == id).map(|(_, series)| series);
    let chart = |panel: &Panel<'_>| {
        let curves = (0..).zip(&panel.flows).filter_map(|(index, &(id, name))| {
            let mut points = received_over_time(series(id)?);
            // A completed flow stays at its last value.
            let most = points.last().map_or(0.0, |last| last.1);
            points.truncate(points.partition_point(|point| point.1 < most) + 1);
            Some(Curve { width: 2.2, ..Curve::distinct(index, name, Kind::Line, points) })
        });
        let bands = panel.flows.first().map_or(Vec::new(), |&(id, _)| bands_of(run.record, run.config, id));
        Chart {
            title: panel.title.to_owned(),
            axis: Axis::new("read by the application", Unit::Bytes),
            end_s: run.record.ended_at.as_secs_f64(),
            height: 170.0,
            curves: curves.collect(),
            bands: bands.into_iter().map(|band| Band { name: outage.to_owned(), ..band }).collect(),
        }
    };
    Plot { name: PROGRESS.to_owned(), charts: panels.iter().map(chart).collect() }
}

const PROGRESS: &str = "progress";

/// The ends of the variants' time axes: the same for all, unless one took so much longer that the others would be unreadable.
pub fn time_axis_ends(ends: &[Instant]) -> Vec<Instant> {
    let longest = ends.iter().copied().max().unwrap_or(Instant::ZERO);
    let shortest = ends.iter().copied().min().unwrap_or(Instant::ZERO);
    let together = longest.as_nanos() / 2 <= shortest.as_nanos();
    ends.iter().map(|&end| if together { longest } else { end }).collect()
}

type Content = Option<(Axis, f32, Vec<Curve>)>;

/// The outages of a flow: times without a path of links between its ends, or with one end a mobile host that is cut off. If their sum does
/// not match the flow's outage time (a host may stay with a link that is down while another is up), all outages it may have crossed. With
/// more than one kind, each is named.
fn bands_of(record: &Record, config: &WorldConfig, id: FlowId) -> Vec<Band> {
    let series = &record.series;
    let flow = &config.flows[id.0 as usize];
    let node = |node: NodeId| config.nodes[node.0 as usize].name.as_str();
    let seconds = |(from, to): (Instant, Instant)| (from.as_secs_f64(), to.as_secs_f64());
    let bands = series.outages().filter_map(|(cut, times)| {
        let name = match cut {
            Cut::Link(link) => format!("{} down", config.links[link.0 as usize].name),
            Cut::Host(host) if host == flow.from || host == flow.to => format!("{} cut off", node(host)),
            Cut::Host(_) => return None,
        };
        let times_s: Vec<(f64, f64)> = times.map(seconds).collect();
        (!times_s.is_empty()).then_some(Band { name, times_s })
    });
    let bands: Vec<Band> = bands.collect();
    if bands.len() <= 1 && !has_other_ways(config) {
        return bands;
    }
    if let Some(times_s) = path_bands(record, config, id) {
        let same = bands.iter().find(|band| band.times_s == times_s);
        let name = same
            .map_or_else(|| format!("no way from {} to {}", node(flow.from), node(flow.to)), |band| band.name.clone());
        return if times_s.is_empty() { Vec::new() } else { vec![Band { name, times_s }] };
    }
    match bands.len() {
        0 | 1 => bands,
        _ => {
            // Bands of the same colour cannot be distinguished, so they share one name.
            let times_s = bands.into_iter().flat_map(|band| band.times_s).collect();
            vec![Band { name: "a link or host is cut off".to_owned(), times_s }]
        }
    }
}

/// Whether there are more links than a tree has.
fn has_other_ways(config: &WorldConfig) -> bool {
    config.links.len() >= config.nodes.len()
}

/// The times without a path between the ends, if their sum matches the flow's outage time.
fn path_bands(record: &Record, config: &WorldConfig, id: FlowId) -> Option<Vec<(f64, f64)>> {
    let flow = &config.flows[id.0 as usize];
    if config.mobiles.iter().any(|mobile| mobile.node == flow.from || mobile.node == flow.to) {
        return None;
    }
    let node = |node: NodeId| config.nodes[node.0 as usize].name.as_str();
    let edges: Vec<PathEdge<'_>> = record
        .series
        .outages()
        .filter_map(|(cut, times)| match cut {
            Cut::Link(link) => {
                let link = &config.links[link.0 as usize];
                Some(PathEdge { ends: [node(link.a), node(link.b)], down: times.collect() })
            }
            Cut::Host(_) => None,
        })
        .collect();
    let outages = path_outages(&edges, node(flow.from), node(flow.to));
    let measured = record.flows.get(id.0 as usize)?;
    let (begin, end) = (measured.started_at_s, measured.started_at_s + measured.duration_s);
    let times_s: Vec<(f64, f64)> = outages.iter().map(|(down, up)| (down.as_secs_f64(), up.as_secs_f64())).collect();
    let within: f64 = times_s.iter().map(|(down, up)| (up.min(end) - down.max(begin)).max(0.0)).sum();
    ((within - measured.outage_s).abs() <= 0.01 + measured.outage_s * 0.01).then_some(times_s)
}

fn time_sequence(flow: &FlowSeries) -> Content {
    let points = |cells: &crate::series::Cells| -> Vec<(f64, f64)> {
        cells.points().map(|point| (point.at.as_secs_f64(), point.value as f64)).collect()
    };
    let mut sent = points(&flow.new_data);
    // Data returned and sent again does not decrease the value.
    let mut most = 0.0;
    sent.retain(|&(_, value)| {
        let ahead = value >= most;
        most = value.max(most);
        ahead
    });
    if sent.is_empty() {
        return None;
    }
    let mut curves = vec![
        Curve { width: 1.6, dashed: true, ..Curve::new("acknowledged", Ink::Ack, Kind::Steps, points(&flow.acks)) },
        Curve { width: 1.6, ..Curve::new("new data", Ink::Data, Kind::Steps, sent) },
    ];
    // The most frequent first, so that rare ones are drawn on top.
    let mut again: Vec<_> = flow.retransmissions.iter().collect();
    again.sort_by_key(|(_, cells)| std::cmp::Reverse(cells.count()));
    for (&reason, cells) in again {
        let (ink, mark, name) = repetition_style(reason);
        let name = format!("{name} ({})", crate::quantity::count(cells.count()));
        curves.push(Curve::new(name, ink, Kind::Marks(mark), points(cells)));
    }
    Some((Axis::new("position in the stream", Unit::Bytes), 340.0, curves))
}

fn repetition_style(reason: Reason) -> (Ink, Mark, &'static str) {
    match reason {
        Reason::Timeout => (Ink::Timeout, Mark::Cross, "timeout"),
        Reason::FastRetransmit => (Ink::FastRetransmit, Mark::Triangle, "fast retransmit"),
        Reason::LossRecovery => (Ink::LossRecovery, Mark::Dot, "loss recovery"),
        Reason::LossProbe => (Ink::Probe, Mark::Diamond, "tail loss probe"),
        Reason::Requested => (Ink::Requested, Mark::Square, "requested retransmit"),
        Reason::WindowProbe => (Ink::Quiet, Mark::Plus, "zero-window probe"),
        Reason::KeepAlive => (Ink::Quiet, Mark::Plus, "keep-alive"),
        other => (Ink::Quiet, Mark::Plus, other.name()),
    }
}

fn window(flow: &FlowSeries) -> Content {
    let over_time = |value: fn(&holdover_sim::Sample) -> f64| -> Vec<(f64, f64)> {
        flow.samples().iter().map(|(at, sample)| (at.as_secs_f64(), value(sample))).collect()
    };
    let in_flight = over_time(|sample| f64::from(sample.unacked.saturating_sub(sample.sacked)));
    if in_flight.is_empty() {
        return None;
    }
    let ssthresh = over_time(|sample| sample.snd_ssthresh.map_or(f64::NAN, f64::from));
    let curves = vec![
        Curve { width: 1.0, ..Curve::new("outstanding (unacked less sacked)", Ink::Ack, Kind::FilledSteps, in_flight) },
        Curve {
            dashed: true,
            width: 1.3,
            fits: false,
            ..Curve::new("ssthresh", Ink::FastRetransmit, Kind::Steps, ssthresh)
        },
        Curve { width: 1.7, ..Curve::new("cwnd", Ink::Data, Kind::Steps, over_time(|s| f64::from(s.snd_cwnd))) },
    ];
    Some((Axis::new("window", Unit::Segments), 220.0, curves))
}

fn rtt(flow: &FlowSeries) -> Content {
    let over_time = |value: fn(&holdover_sim::Sample) -> Duration| -> Vec<(f64, f64)> {
        let known = |span: Duration| if span.is_zero() { f64::NAN } else { span.as_secs_f64() };
        flow.samples().iter().map(|(at, sample)| (at.as_secs_f64(), known(value(sample)))).collect()
    };
    if flow.samples().is_empty() {
        return None;
    }
    let curves = vec![
        Curve {
            width: 1.5,
            dashed: true,
            ..Curve::new("RTO", Ink::Timeout, Kind::Steps, over_time(|sample| sample.rto))
        },
        Curve { width: 1.7, ..Curve::new("smoothed RTT", Ink::Data, Kind::Steps, over_time(|sample| sample.rtt)) },
    ];
    let axis = Axis::new("time, logarithmic", Unit::Seconds).logarithmic();
    Some((axis, 190.0, curves))
}

fn goodput(flow: &FlowSeries, end: Instant) -> Content {
    let received: Vec<u64> = flow.received().collect();
    if received.iter().all(|&bytes| bytes == 0) {
        return None;
    }
    // One second, unless the run is too short for it, or so long that its bins are longer already.
    let second = if end < Instant::from_secs(20) { 1 } else { 10 };
    let fine = flow.received_width() == Duration::from_millis(100);
    let merge = if fine { second } else { 1 };
    let width = flow.received_width() * merge as u64;
    let mut points = Vec::new();
    for (index, chunk) in (0_u64..).zip(received.chunks(merge)) {
        let bits = chunk.iter().sum::<u64>() as f64 * 8.0;
        points.push(((Instant::ZERO + width * index).as_secs_f64(), bits / width.as_secs_f64()));
    }
    let finish = (Instant::ZERO + width * points.len() as u64).min(end);
    points.push((finish.as_secs_f64(), points.last().map_or(0.0, |last| last.1)));
    let name = format!("read by the application, per {}", crate::quantity::duration(width));
    let curves = vec![Curve { width: 1.4, ..Curve::new(name, Ink::Data, Kind::FilledSteps, points) }];
    Some((Axis::new("goodput", Unit::BitsPerSecond), 170.0, curves))
}

/// The fullest queues, if any ever held more than a packet or two.
fn queues(run: &PlottedRun<'_>, end: Instant) -> Option<Chart> {
    const MOST: usize = 4;
    const WORTH_IT: u64 = 3;
    let fullest = |queue: &QueueSeries| queue.packets().map(|(_, packets)| packets).max().unwrap_or(0);
    let mut queues: Vec<(u64, &QueueSeries)> =
        run.record.series.queues().map(|queue| (fullest(queue), queue)).filter(|(most, _)| *most >= WORTH_IT).collect();
    queues.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
    queues.truncate(MOST);
    let first = run.config.flows.first().map(|_| FlowId(0));
    let bands = first.map_or(Vec::new(), |flow| bands_of(run.record, run.config, flow));
    let mut curves = Vec::new();
    for (index, (_, queue)) in queues.into_iter().enumerate() {
        let link = &run.config.links[queue.link.0 as usize];
        let (from, to) = if queue.forward { (link.a, link.b) } else { (link.b, link.a) };
        let node = |node: holdover_sim::NodeId| run.config.nodes[node.0 as usize].name.as_str();
        let wire = if queue.delay.is_some() { "" } else { ", those on the wire included" };
        let name = format!("{}: {} to {}{wire}", link.name, node(from), node(to));
        let points = queue.packets().map(|(at, packets)| (at.as_secs_f64(), packets as f64));
        curves.push(Curve { width: 1.4, ..Curve::distinct(index, name, Kind::Steps, points.collect()) });
    }
    let variant = if run.variant.is_empty() { String::new() } else { format!(" – {}", run.variant) };
    (!curves.is_empty()).then(|| Chart {
        title: format!("Packets queued or being sent{variant}"),
        axis: Axis::new("queue", Unit::Packets),
        end_s: end.as_secs_f64(),
        height: 170.0,
        curves,
        bands,
    })
}

/// The cumulative bytes read over time.
fn received_over_time(flow: &FlowSeries) -> Vec<(f64, f64)> {
    let mut sum = 0;
    let mut points = vec![(0.0, 0.0)];
    for (end, bytes) in (1_u64..).zip(flow.received()) {
        sum += bytes;
        points.push(((Instant::ZERO + flow.received_width() * end).as_secs_f64(), sum as f64));
    }
    points
}
