//! Event log as JSON lines: one object per line, in the order of occurrence.

use std::io::{self, Write};
use std::path::PathBuf;

use holdover_base::Instant;
use holdover_sim::{
    CellId, Dropped, DroppedBy, FlowId, Frame, LinkId, Medium, NodeId, Place, Transit, WorldConfig, WorldEvent,
};
use holdover_tcp::Reason;
use serde_json::{Map, Value, json};

use crate::error::RecordError;
use crate::part_file::{PartFile, Written};
use crate::series::is_repetition;
use crate::traffic::Owner;

/// Writes `events.jsonl`.
#[derive(Debug)]
pub(crate) struct EventLog {
    path: PathBuf,
    out: PartFile,
    with_packets: bool,
}

impl EventLog {
    pub(crate) fn create(path: PathBuf, with_packets: bool, written: &Written) -> Result<Self, RecordError> {
        let out = written.create(&path).map_err(|error| RecordError::io(&path, error))?;
        Ok(Self { path, out, with_packets })
    }

    pub(crate) fn event(&mut self, at: Instant, event: &WorldEvent, config: &WorldConfig) -> Result<(), RecordError> {
        let (name, fields) = describe_event(event, config);
        self.write(at, name, fields)
    }

    /// Handles a packet at an interface. It is written if packets are wanted; retransmissions and probes always are, at their sender.
    pub(crate) fn packet(
        &mut self,
        at: Instant,
        place: Place,
        owner: Option<Owner>,
        frame: &Frame,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        let flow = owner.map(|owner| &config.flows[owner.flow.0 as usize]);
        let is_sent = place.transit == Transit::Out
            && flow
                .zip(owner)
                .is_some_and(|(flow, owner)| place.node == if owner.forward { flow.from } else { flow.to });
        let repeats = is_sent && frame.reason.is_some_and(is_repetition);
        if !self.with_packets && !repeats {
            return Ok(());
        }
        let name = match frame.reason {
            Some(Reason::LossProbe | Reason::WindowProbe | Reason::KeepAlive) if repeats => "probe",
            _ if repeats => "retransmission",
            _ => "packet",
        };
        let mut fields = describe(owner, frame, config);
        fields.insert("node".into(), config.nodes[place.node.0 as usize].name.as_str().into());
        if self.with_packets {
            fields.insert(kind_of(place.medium).into(), medium_name(place.medium, config).into());
            let direction = if place.transit == Transit::Out { "out" } else { "in" };
            fields.insert("direction".into(), direction.into());
        }
        self.write(at, name, Value::Object(fields))
    }

    /// A packet was dropped by the link, cell or node called `by`.
    pub(crate) fn dropped(
        &mut self,
        at: Instant,
        by: &str,
        why: Dropped,
        owner: Option<Owner>,
        frame: &Frame,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        let mut fields = describe(owner, frame, config);
        let kind = match why.by() {
            DroppedBy::Medium(medium) => kind_of(medium),
            DroppedBy::Node(_) => "node",
        };
        fields.insert(kind.into(), by.into());
        fields.insert("cause".into(), why.name().into());
        self.write(at, "packet-dropped", Value::Object(fields))
    }

    /// Writes a line. `fields` is an object; the keys after the first two are sorted.
    fn write(&mut self, at: Instant, name: &str, fields: Value) -> Result<(), RecordError> {
        self.try_write(at, name, &fields).map_err(|error| RecordError::io(&self.path, error))
    }

    fn try_write(&mut self, at: Instant, name: &str, fields: &Value) -> io::Result<()> {
        // Nanosecond resolution: all nine decimals.
        write!(self.out, "{{\"t_s\":{at},\"event\":\"{name}\"")?;
        for (key, value) in fields.as_object().into_iter().flatten() {
            write!(self.out, ",\"{key}\":{value}")?;
        }
        self.out.write_all(b"}\n")
    }

    pub(crate) fn finish(self) -> Result<(), RecordError> {
        let path = self.path;
        self.out.commit().map_err(|error| RecordError::io(&path, error))
    }
}

fn kind_of(medium: Medium) -> &'static str {
    match medium {
        Medium::Link(_) => "link",
        Medium::Cell(_) => "cell",
    }
}

/// The name and the fields of an event.
fn describe_event(event: &WorldEvent, config: &WorldConfig) -> (&'static str, Value) {
    let link = |id: LinkId| config.links[id.0 as usize].name.as_str();
    let flow = |id: FlowId| config.flows[id.0 as usize].name.as_str();
    let node = |id: NodeId| config.nodes[id.0 as usize].name.as_str();
    let in_cell = |id: NodeId, cell: CellId| json!({ "node": node(id), "cell": config.cells[cell.0 as usize].name });
    match *event {
        WorldEvent::LinkDown(id) => ("link-down", json!({ "link": link(id) })),
        WorldEvent::LinkUp(id) => ("link-up", json!({ "link": link(id) })),
        WorldEvent::LinkCarries(id) => ("link-carries", json!({ "link": link(id) })),
        WorldEvent::FamilyLost(id, families) => {
            let family = if families.has(true) { "ipv6" } else { "ipv4" };
            ("family-lost", json!({ "link": link(id), "family": family }))
        }
        WorldEvent::LinkAvoided(id) => ("link-avoided", json!({ "link": link(id) })),
        WorldEvent::LinkUsedAgain(id) => ("link-used-again", json!({ "link": link(id) })),
        WorldEvent::AccessLink(id, access) => ("access-link", json!({ "node": node(id), "link": access.map(link) })),
        WorldEvent::InRange(id, cell) => ("in-range", in_cell(id, cell)),
        WorldEvent::OutOfRange(id, cell) => ("out-of-range", in_cell(id, cell)),
        WorldEvent::BeaconHeard(id, cell) => ("beacon-heard", in_cell(id, cell)),
        WorldEvent::RegistrationRequested(id, cell, attempt) => {
            ("registration-requested", with(in_cell(id, cell), "attempt", attempt.into()))
        }
        WorldEvent::BindingChanged(id, cell) => ("binding-changed", in_cell(id, cell)),
        WorldEvent::Registered(id, cell) => ("registered", in_cell(id, cell)),
        WorldEvent::RegistrationExpired(id, at) => ("registration-expired", in_cell(id, at)),
        WorldEvent::BindingExpired(id) => ("binding-expired", json!({ "node": node(id) })),
        WorldEvent::Attached(id, cell) => ("attached", in_cell(id, cell)),
        WorldEvent::Fading(id, cell, lead) => {
            let lead = lead.map(holdover_base::Duration::as_secs_f64);
            ("fading", with(in_cell(id, cell), "lead_s", lead.into()))
        }
        WorldEvent::Recovered(id, cell) => ("recovered", in_cell(id, cell)),
        WorldEvent::ConnectivityLost(id) => ("connectivity-lost", json!({ "node": node(id) })),
        WorldEvent::ConnectivityBack { node: id, cell, moved } => {
            ("connectivity-back", with(in_cell(id, cell), "moved", moved.into()))
        }
        WorldEvent::LinkFading(id, lead) => ("fading", json!({ "node": node(id), "lead_s": lead.as_secs_f64() })),
        WorldEvent::Associated(id, peer) => ("associated", json!({ "node": node(id), "peer": node(peer) })),
        WorldEvent::AssociationFailed(id, peer) => {
            ("association-failed", json!({ "node": node(id), "peer": node(peer) }))
        }
        WorldEvent::AssociationClosed(id, peer) => {
            ("association-closed", json!({ "node": node(id), "peer": node(peer) }))
        }
        WorldEvent::ReaddressingStarted(id) => ("readdressing-started", json!({ "node": node(id) })),
        WorldEvent::Readdressed(id, peer) => ("readdressed", json!({ "node": node(id), "peer": node(peer) })),
        WorldEvent::ReaddressingFailed(id, peer) => {
            ("readdressing-failed", json!({ "node": node(id), "peer": node(peer) }))
        }
        WorldEvent::Mechanism(id, action) => {
            let connection = action.connection.to_string();
            let what = json!({ "node": node(id), "mechanism": action.mechanism, "what": action.what, "connection": connection });
            ("mechanism", what)
        }
        WorldEvent::FlowStarted(id) => ("flow-started", json!({ "flow": flow(id) })),
        WorldEvent::FlowConnected(id) => ("flow-connected", json!({ "flow": flow(id) })),
        WorldEvent::FlowResumed(id, idle) => {
            ("flow-resumed", json!({ "flow": flow(id), "idle_s": idle.as_secs_f64() }))
        }
        WorldEvent::Exchange(id, took) => ("exchange", json!({ "flow": flow(id), "took_s": took.as_secs_f64() })),
        WorldEvent::FlowCompleted(id) => ("flow-completed", json!({ "flow": flow(id) })),
        WorldEvent::FlowFailed(id, error) => ("flow-failed", json!({ "flow": flow(id), "error": error.to_string() })),
    }
}

/// `object` with one more entry.
fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
    object
}

/// The fields of a packet.
fn describe(owner: Option<Owner>, frame: &Frame, config: &WorldConfig) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(owner) = owner {
        fields.insert("flow".into(), config.flows[owner.flow.0 as usize].name.as_str().into());
    }
    if let Some(reason) = frame.reason {
        fields.insert("reason".into(), reason.name().into());
    }
    fields.insert("packet".into(), frame.observed().to_string().into());
    fields
}

/// The name of a link or cell.
pub(crate) fn medium_name(medium: Medium, config: &WorldConfig) -> &str {
    match medium {
        Medium::Link(link) => &config.links[link.0 as usize].name,
        Medium::Cell(cell) => &config.cells[cell.0 as usize].name,
    }
}
