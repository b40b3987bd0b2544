//! qlog: one JSON text sequence (RFC 7464) for each end of a TCP flow.
//!
//! The file is a `QlogFileSeq` of draft-ietf-quic-qlog-main-schema-14. No draft defines events of TCP: the events follow a schema of
//! Holdover's own, with the namespace `tcp`, and take the names and fields of the corresponding QUIC events of
//! draft-ietf-quic-qlog-quic-events. Times and round trips are in milliseconds, windows in bytes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_sim::{FlowId, Frame, NodeId, Place, Sample, Transit, WorldConfig};
use holdover_tcp::RecoveryState;
use holdover_wire::{Flags, Segment};
use serde_json::{Map, Value, json};

use crate::error::RecordError;
use crate::part_file::{PartFile, Written};
use crate::quantity::FileNames;
use crate::samples::ca_state;
use crate::traffic::Owner;

/// The URI of the event schema.
const EVENTS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/qlog/tcp-1");

/// The qlog files of a run.
#[derive(Debug)]
pub(crate) struct Qlog {
    dir: PathBuf,
    written: Written,
    names: FileNames,
    ends: BTreeMap<(FlowId, NodeId), End>,
}

/// One end of a flow.
#[derive(Debug)]
struct End {
    path: PathBuf,
    out: PartFile,
    /// The largest segment payload of this end so far.
    segment_size: u64,
    metrics: Option<Map<String, Value>>,
    state: Option<RecoveryState>,
}

impl Qlog {
    pub(crate) fn new(dir: PathBuf, written: Written) -> Self {
        Self { dir, written, names: FileNames::default(), ends: BTreeMap::new() }
    }

    pub(crate) fn packet(
        &mut self,
        at: Instant,
        place: Place,
        owner: Owner,
        frame: &Frame,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        let Some(segment) = frame.packet().tcp() else { return Ok(()) };
        let flow = &config.flows[owner.flow.0 as usize];
        let (sender, receiver) = if owner.forward { (flow.from, flow.to) } else { (flow.to, flow.from) };
        let is_first = segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        if is_first && !self.ends.contains_key(&(owner.flow, sender)) {
            for (node, role) in [(sender, "client"), (receiver, "server")] {
                let end = self.begin(&flow.name, &config.nodes[node.0 as usize].name, role)?;
                self.ends.insert((owner.flow, node), end);
            }
        }
        let (node, name) = match place.transit {
            Transit::Out => (sender, "tcp:packet_sent"),
            Transit::In => (receiver, "tcp:packet_received"),
        };
        if place.node != node {
            return Ok(());
        }
        let Some(end) = self.ends.get_mut(&(owner.flow, node)) else { return Ok(()) };
        let mut data = Map::new();
        data.insert("header".into(), header(segment));
        let raw = json!({ "length": frame.packet().wire_len(), "payload_length": segment.payload.len() });
        data.insert("raw".into(), raw);
        if place.transit == Transit::Out {
            end.segment_size = end.segment_size.max(segment.payload.len() as u64);
            if let Some(reason) = frame.reason {
                data.insert("trigger".into(), reason.name().into());
            }
        }
        end.write(at, name, data)
    }

    pub(crate) fn sample(
        &mut self,
        at: Instant,
        flow: FlowId,
        sample: &Sample,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        let from = config.flows.get(flow.0 as usize).map(|config| config.from);
        let Some(end) = from.and_then(|from| self.ends.get_mut(&(flow, from))) else { return Ok(()) };
        if end.state != Some(sample.ca_state) {
            let mut data = Map::new();
            if let Some(old) = end.state {
                data.insert("old".into(), ca_state(old).into());
            }
            data.insert("new".into(), ca_state(sample.ca_state).into());
            end.state = Some(sample.ca_state);
            end.write(at, "tcp:congestion_state_updated", data)?;
        }
        let metrics = metrics(sample, end.segment_size);
        if end.metrics.as_ref() == Some(&metrics) {
            return Ok(());
        }
        end.metrics = Some(metrics.clone());
        end.write(at, "tcp:recovery_metrics_updated", metrics)
    }

    fn begin(&mut self, flow: &str, host: &str, role: &str) -> Result<End, RecordError> {
        let path = self.dir.join(format!("{}.sqlog", self.names.unique(&format!("{flow}-{host}"))));
        let out = self.written.create(&path).map_err(|error| RecordError::io(&path, error))?;
        let mut end = End { path, out, segment_size: 0, metrics: None, state: None };
        end.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("flow {flow} at {host}"),
            "description": concat!("holdover ", env!("CARGO_PKG_VERSION")),
            "trace": {
                "vantage_point": { "name": host, "type": role },
                "event_schemas": [EVENTS],
                "common_fields": {
                    "group_id": flow,
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
            },
        }))?;
        Ok(end)
    }

    pub(crate) fn finish(self) -> Result<(), RecordError> {
        for End { path, out, .. } in self.ends.into_values() {
            out.commit().map_err(|error| RecordError::io(&path, error))?;
        }
        Ok(())
    }
}

impl End {
    fn write(&mut self, at: Instant, name: &str, data: Map<String, Value>) -> Result<(), RecordError> {
        self.record(&json!({ "time": at.as_nanos() as f64 / 1e6, "name": name, "data": data }))
    }

    /// A record of a JSON text sequence (RFC 7464 section 2.2).
    fn record(&mut self, value: &Value) -> Result<(), RecordError> {
        writeln!(self.out, "\x1e{value}").map_err(|error| RecordError::io(&self.path, error))
    }
}

/// The TCP header, with sequence numbers as on the wire.
fn header(segment: &Segment) -> Value {
    let mut header = Map::new();
    let mut put = |name: &str, value: Value| header.insert(name.into(), value);
    put("flags", segment.flags.to_string().into());
    put("sequence_number", segment.seq.value().into());
    if segment.flags.contains(Flags::ACK) {
        put("acknowledgment_number", segment.ack.value().into());
    }
    put("window", segment.window.into());
    let options = &segment.options;
    if let Some(mss) = options.mss {
        put("mss", mss.into());
    }
    if let Some(shift) = options.window_scale {
        put("window_scale", shift.into());
    }
    if let Some(timestamps) = options.timestamps {
        put("timestamp", timestamps.val.into());
        put("timestamp_echo", timestamps.ecr.into());
    }
    if !options.sack.is_empty() {
        put("sack", options.sack.iter().map(|block| json!([block.start.value(), block.end.value()])).collect());
    }
    Value::Object(header)
}

/// Windows are segments times `segment_size`. Round trips are omitted before the first sample, and ssthresh while it is unlimited.
fn metrics(sample: &Sample, segment_size: u64) -> Map<String, Value> {
    let bytes = |segments: u32| Value::from(u64::from(segments) * segment_size);
    let millis = |span: Duration| Value::from(span.as_nanos() as f64 / 1e6);
    let mut metrics = Map::new();
    let mut put = |name: &str, value: Value| metrics.insert(name.into(), value);
    if sample.rtt > Duration::ZERO {
        put("smoothed_rtt", millis(sample.rtt));
        put("rtt_variance", millis(sample.rttvar));
    }
    put("retransmission_timeout", millis(sample.rto));
    put("congestion_window", bytes(sample.snd_cwnd));
    if let Some(ssthresh) = sample.snd_ssthresh {
        put("ssthresh", bytes(ssthresh));
    }
    let in_flight = sample.unacked.saturating_sub(sample.sacked);
    put("bytes_in_flight", bytes(in_flight));
    put("packets_in_flight", in_flight.into());
    metrics
}
