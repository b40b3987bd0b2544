//! Exports of a run to formats of other programs: qlog, tcptrace's xplot files and the XML of ns-3's flow monitor.

mod flow_monitor;
mod qlog;
mod xplot;

use std::fs;
use std::path::Path;

use holdover_base::Instant;
use holdover_sim::{Dropped, FlowId, Frame, Place, Sample, WorldConfig};

use crate::error::RecordError;
use crate::part_file::Written;
use crate::traffic::Owner;
use flow_monitor::FlowMonitor;
use qlog::Qlog;
use xplot::Xplot;

/// An export format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExportFormat {
    /// qlog as a JSON text sequence (RFC 7464; draft-ietf-quic-qlog-main-schema), one file for each end of a TCP flow.
    Qlog,
    /// Time-sequence graphs for xplot as tcptrace draws them, one file for each direction of a TCP flow with data.
    Xplot,
    /// The XML of ns-3's flow monitor, one file for a run.
    FlowMonitor,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Qlog, Self::Xplot, Self::FlowMonitor];

    /// The name of the format and of its directory within a variant's directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qlog => "qlog",
            Self::Xplot => "xplot",
            Self::FlowMonitor => "flowmon",
        }
    }
}

impl core::str::FromStr for ExportFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

/// An unknown format name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown format \"{0}\": expected qlog, xplot or flowmon")]
pub struct UnknownFormat(String);

/// The most flows exported, counted from the first: the number of open files is limited.
const MAX_FLOWS: u32 = 64;

/// The exports of a run.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    qlog: Option<Qlog>,
    xplot: Option<Xplot>,
    flow_monitor: Option<FlowMonitor>,
}

impl Exports {
    /// Begins the exports of `formats` in directories below `dir`.
    pub(crate) fn create(dir: &Path, formats: &[ExportFormat], written: &Written) -> Result<Self, RecordError> {
        let mut exports = Self::default();
        for format in formats {
            let dir = dir.join(format.name());
            fs::create_dir_all(&dir).map_err(|error| RecordError::io(&dir, error))?;
            match format {
                ExportFormat::Qlog => exports.qlog = Some(Qlog::new(dir, written.clone())),
                ExportFormat::Xplot => exports.xplot = Some(Xplot::new(dir, written.clone())),
                ExportFormat::FlowMonitor => {
                    exports.flow_monitor = Some(FlowMonitor::new(dir.join("flowmon.xml"), written.clone()));
                }
            }
        }
        Ok(exports)
    }

    /// Handles a packet at an interface.
    pub(crate) fn packet(
        &mut self,
        at: Instant,
        place: Place,
        owner: Option<Owner>,
        frame: &Frame,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        if let Some(monitor) = &mut self.flow_monitor {
            monitor.packet(at, place, frame);
        }
        let Some(owner) = owner.filter(|owner| owner.flow.0 < MAX_FLOWS) else { return Ok(()) };
        if let Some(qlog) = &mut self.qlog {
            qlog.packet(at, place, owner, frame, config)?;
        }
        if let Some(xplot) = &mut self.xplot {
            xplot.packet(at, place, owner, frame, config)?;
        }
        Ok(())
    }

    /// Handles a dropped packet.
    pub(crate) fn dropped(&mut self, why: Dropped, frame: &Frame) {
        if let Some(monitor) = &mut self.flow_monitor {
            monitor.dropped(why, frame);
        }
    }

    /// Handles a sample of a flow's sender.
    pub(crate) fn sample(
        &mut self,
        at: Instant,
        flow: FlowId,
        sample: &Sample,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        match &mut self.qlog {
            Some(qlog) => qlog.sample(at, flow, sample, config),
            None => Ok(()),
        }
    }

    /// Ends the exports of a run that ended at `at`.
    pub(crate) fn finish(self, at: Instant, config: &WorldConfig) -> Result<(), RecordError> {
        self.qlog.map_or(Ok(()), Qlog::finish)?;
        self.xplot.map_or(Ok(()), Xplot::finish)?;
        self.flow_monitor.map_or(Ok(()), |monitor| monitor.finish(at, config))
    }
}
