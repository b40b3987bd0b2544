//! Observes a run and records its events.

use std::fs;
use std::path::{Path, PathBuf};

use holdover_base::Instant;
use holdover_sim::{
    CellId, Dropped, DroppedBy, Ending, FlowId, Frame, LinkId, Medium, NodeId, Observer, Place, Sample, Traffic, World,
    WorldConfig, WorldEvent,
};

use crate::actions::{ActionCounts, ActionMetrics};
use crate::captures::{CaptureOptions, Captures};
use crate::error::RecordError;
use crate::events::{EventLog, medium_name};
use crate::export::{ExportFormat, Exports};
use crate::metrics::{CellMetrics, CpuMetrics, FlowMetrics, LinkMetrics, MobileMetrics};
use crate::part_file::Written;
use crate::samples::SampleTable;
use crate::series::{Cut, Series};
use crate::traffic::{Owners, Ways};

/// The outputs of a recorder besides samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecorderOptions {
    /// Capture settings; `None` disables captures.
    pub captures: Option<CaptureOptions>,
    /// Whether events are written.
    pub events: bool,
    /// Whether events include every packet at every interface.
    pub packets_in_events: bool,
    /// The number of flows to plot, counted from the first.
    pub plotted_flows: usize,
    /// Additional export formats.
    pub exports: Vec<ExportFormat>,
}

impl Default for RecorderOptions {
    /// Captures and events, without packets among the events; plots of four flows; no exports.
    fn default() -> Self {
        Self {
            captures: Some(CaptureOptions::default()),
            events: true,
            packets_in_events: false,
            plotted_flows: 4,
            exports: Vec::new(),
        }
    }
}

/// Observes a run and writes captures, events and samples into one directory as they occur.
///
/// Until [`Recorder::finish`], and after an interruption, file names end in `.part`. An error (such as a full disk) ends the writing and is
/// returned by [`Recorder::finish`]; a caller that wants to stop the run early polls [`Recorder::error`].
#[derive(Debug)]
pub struct Recorder {
    dir: PathBuf,
    written: Written,
    config: WorldConfig,
    captures: Option<Captures>,
    events: Option<EventLog>,
    samples: SampleTable,
    exports: Exports,
    series: Series,
    owners: Owners,
    ways: Ways,
    received: Vec<u64>,
    actions: ActionCounts,
    error: Option<RecordError>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Record {
    /// The reason for its end: `all-done`, `time-limit` or `idle`.
    pub ending: &'static str,
    /// The time of its end.
    pub ended_at: Instant,
    /// The number of events handled.
    pub events: u64,
    /// All flows.
    pub flows: Vec<FlowMetrics>,
    /// All links.
    pub links: Vec<LinkMetrics>,
    /// All radio cells.
    pub cells: Vec<CellMetrics>,
    /// All mobile hosts.
    pub mobiles: Vec<MobileMetrics>,
    /// All routers with processing delay.
    pub cpus: Vec<CpuMetrics>,
    /// The actions of mechanisms.
    pub actions: Vec<ActionMetrics>,
    /// Captures that reached their size limit and lack later packets.
    pub cut_captures: Vec<String>,
    /// The series for plots.
    pub series: Series,
}

impl Recorder {
    /// Begins to record the run of the world described by `config` into `dir`, which is created if needed.
    /// For a run's results, use [`crate::ResultsDir::recorder`].
    pub fn create(dir: &Path, config: &WorldConfig, options: &RecorderOptions) -> Result<Self, RecordError> {
        Self::noting(dir, config, options, &Written::default())
    }

    /// As [`Recorder::create`]; each complete file is recorded in `written`.
    pub(crate) fn noting(
        dir: &Path,
        config: &WorldConfig,
        options: &RecorderOptions,
        written: &Written,
    ) -> Result<Self, RecordError> {
        let captures = match &options.captures {
            Some(captures) => {
                let dir = dir.join("captures");
                make_dir(&dir)?;
                Some(Captures::create(&dir, config, captures.clone(), written.clone())?)
            }
            None => {
                make_dir(dir)?;
                None
            }
        };
        let log = || EventLog::create(dir.join("events.jsonl"), options.packets_in_events, written);
        let events = options.events.then(log).transpose()?;
        Ok(Self {
            captures,
            events,
            samples: SampleTable::create(dir.join("samples.csv"), written)?,
            exports: Exports::create(dir, &options.exports, written)?,
            series: Series::new(config, options.plotted_flows),
            owners: Owners::default(),
            ways: Ways::default(),
            received: vec![0; config.flows.len()],
            actions: ActionCounts::default(),
            error: None,
            dir: dir.to_owned(),
            written: written.clone(),
            config: config.clone(),
        })
    }

    /// The error that ended the recording early, if any.
    pub fn error(&self) -> Option<&RecordError> {
        self.error.as_ref()
    }

    /// The bytes read by all applications as of the latest samples, for a progress bar.
    pub fn bytes_received(&self) -> u64 {
        self.received.iter().sum()
    }

    /// Ends the recording of `world`, whose run ended as `ending`, and gives all files their final names.
    pub fn finish(mut self, world: &World, ending: Ending) -> Result<Record, RecordError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let ended_at = world.now();
        let cut_captures = self.captures.take().map_or(Ok(Vec::new()), Captures::finish)?;
        self.events.take().map_or(Ok(()), EventLog::finish)?;
        self.samples.finish()?;
        self.exports.finish(ended_at, &self.config)?;
        for ((id, config), report) in (0..).zip(&self.config.flows).zip(world.report()) {
            if let Traffic::Bulk(_) = config.traffic {
                self.series.finish_bulk(FlowId(id), report.over_at(), report.bytes_received);
            }
        }
        let flows = FlowMetrics::of_world(world);
        let node_name = |node: NodeId| self.config.nodes[node.0 as usize].name.as_str();
        for outages in self.series.outages.values_mut() {
            outages.finish(ended_at);
        }
        let links = (0..).zip(&self.config.links).filter_map(|(id, link)| {
            let outages = self.series.outages.get(&Cut::Link(LinkId(id)))?;
            let names = [&link.name, node_name(link.a), node_name(link.b)];
            Some(LinkMetrics::new(names, outages, &world.link_statistics(LinkId(id))?, ended_at))
        });
        let cells = (0..).zip(&self.config.cells).filter_map(|(id, cell)| {
            let statistics = world.cell_statistics(CellId(id))?;
            Some(CellMetrics::new(&cell.name, node_name(cell.base), &statistics, ended_at))
        });
        let mobiles = self.config.mobiles.iter().filter_map(|mobile| {
            let outages = self.series.outages.get(&Cut::Host(mobile.node))?;
            Some(MobileMetrics::new(node_name(mobile.node), outages))
        });
        let cpus =
            self.config.cpus.iter().filter_map(|cpu| {
                Some(CpuMetrics::new(node_name(cpu.node), &world.cpu_statistics(cpu.node)?, ended_at))
            });
        let (links, cells, mobiles, cpus) = (links.collect(), cells.collect(), mobiles.collect(), cpus.collect());
        write_time_sequences(&self.dir, &self.config, &self.series, &self.written)?;
        let ending = match ending {
            Ending::AllDone => "all-done",
            Ending::TimeLimit => "time-limit",
            Ending::Idle => "idle",
        };
        Ok(Record {
            ending,
            ended_at,
            events: world.events(),
            flows,
            links,
            cells,
            mobiles,
            cpus,
            actions: self.actions.metrics(node_name),
            cut_captures,
            series: self.series,
        })
    }

    /// Keeps the first error.
    fn keep(&mut self, result: Result<(), RecordError>) {
        if let Err(error) = result
            && self.error.is_none()
        {
            self.error = Some(error);
        }
    }
}

impl Observer for Recorder {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        if self.error.is_some() {
            return;
        }
        let owner = self.owners.of(&frame.observed(), &self.config.flows);
        self.series.packet(at, place, owner, frame);
        if let Medium::Link(link) = place.medium {
            let forward = self.ways.note(place, link, frame, &self.config);
            self.series.link_packet(at, link, forward, place.transit);
        }
        let captured = self.captures.as_mut().map_or(Ok(()), |captures| captures.packet(at, place, frame));
        self.keep(captured);
        let log = |events: &mut EventLog| events.packet(at, place, owner, frame, &self.config);
        let logged = self.events.as_mut().map_or(Ok(()), log);
        self.keep(logged);
        let exported = self.exports.packet(at, place, owner, frame, &self.config);
        self.keep(exported);
    }

    fn dropped(&mut self, at: Instant, why: Dropped, frame: &Frame) {
        if self.error.is_some() {
            return;
        }
        if let Dropped::Lost(Medium::Link(link), cause) = why
            && let Some(forward) = self.ways.of(link, frame)
        {
            self.series.link_dropped(at, link, forward, cause);
        }
        let by = match why.by() {
            DroppedBy::Medium(medium) => medium_name(medium, &self.config),
            DroppedBy::Node(node) => &self.config.nodes[node.0 as usize].name,
        };
        let captured = self.captures.as_mut().map_or(Ok(()), |captures| captures.dropped(at, by, why, frame));
        let owner = self.owners.of(&frame.observed(), &self.config.flows);
        let log = |events: &mut EventLog| events.dropped(at, by, why, owner, frame, &self.config);
        let logged = self.events.as_mut().map_or(Ok(()), log);
        self.keep(captured.and(logged));
        self.exports.dropped(why, frame);
    }

    fn event(&mut self, at: Instant, event: &WorldEvent) {
        if self.error.is_some() {
            return;
        }
        let outages = &mut self.series.outages;
        match *event {
            WorldEvent::FlowStarted(flow) => self.owners.begin(flow),
            WorldEvent::LinkDown(link) => outages.entry(Cut::Link(link)).or_default().down(at),
            WorldEvent::LinkUp(link) => outages.entry(Cut::Link(link)).or_default().up(at),
            WorldEvent::ConnectivityLost(node) => outages.entry(Cut::Host(node)).or_default().down(at),
            WorldEvent::ConnectivityBack { node, .. } => outages.entry(Cut::Host(node)).or_default().up(at),
            WorldEvent::Mechanism(node, ref action) => self.actions.note(at, node, action),
            _ => {}
        }
        let logged = self.events.as_mut().map_or(Ok(()), |events| events.event(at, event, &self.config));
        self.keep(logged);
    }

    fn sample(&mut self, at: Instant, flow: FlowId, sample: &Sample) {
        if self.error.is_some() {
            return;
        }
        self.series.sample(at, flow, sample);
        let index = flow.0 as usize;
        self.received[index] = sample.bytes_received;
        let written = self.samples.write(at, &self.config.flows[index].name, sample);
        self.keep(written);
        let exported = self.exports.sample(at, flow, sample, &self.config);
        self.keep(exported);
    }
}

fn make_dir(dir: &Path) -> Result<(), RecordError> {
    fs::create_dir_all(dir).map_err(|error| RecordError::io(dir, error))
}

/// Writes the data of the time-sequence plots, `time-sequence.csv`: `position` is the number of the first byte sent, or
/// of the next byte that an ACK expects. The data is thinned; the captures are complete.
fn write_time_sequences(
    dir: &Path,
    config: &WorldConfig,
    series: &Series,
    written: &Written,
) -> Result<(), RecordError> {
    let path = dir.join("time-sequence.csv");
    let out = written.create(&path).map_err(|error| RecordError::io(&path, error))?;
    let mut out = csv::Writer::from_writer(out);
    let mut write = || {
        out.write_record(["t_s", "flow", "kind", "position"])?;
        for (id, flow) in series.flows() {
            let name = &config.flows[id.0 as usize].name;
            let again = flow.retransmissions.iter().map(|(reason, cells)| (reason.name(), cells));
            for (kind, cells) in [("new-data", &flow.new_data), ("ack", &flow.acks)].into_iter().chain(again) {
                for point in cells.points() {
                    out.write_record([&point.at.to_string(), name.as_str(), kind, &point.value.to_string()])?;
                }
            }
        }
        Ok(())
    };
    write().map_err(|error| RecordError::table(&path, error))?;
    let file = out.into_inner().map_err(|error| RecordError::io(&path, error.into_error()))?;
    file.commit().map_err(|error| RecordError::io(&path, error))
}
