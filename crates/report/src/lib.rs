//! The files that a run writes.
//!
//! - [`Recorder`] observes a run and writes captures, events and samples as they occur, so that its memory does not grow with the simulated
//!   time. Data for plots is thinned while recording ([`Series`]).
//! - [`ExportFormat`] are formats of other programs, written by the recorder for the same run.
//! - [`Record`] is the result of a run: every metric of every flow, the links, the files.
//! - [`Summary`] has the records of all variants of a scenario; it is `summary.json`.
//! - [`plots`] draws a record as SVG and PNG, and [`html`] combines everything on one page.
//! - [`Article`] is a page about one comparison, and [`plots::progress_of_flows`] its picture.
//! - [`Document`] is a page of sections, for the reproduction of a paper.
//! - [`figures`] draws the results of many runs, for sweeps and for comparison with published numbers.
//! - [`ResultsDir`] is the output directory.
//!
//! All files but the manifest are a function of the scenario and the seed: the same run writes the same bytes. Runs on real kernels
//! ([`KernelSummary`]) are not reproducible; they are recorded in the same way.

#![forbid(unsafe_code)]
// Writes files.
#![allow(clippy::disallowed_types)]

mod actions;
mod article;
mod captures;
mod differences;
mod digest;
mod document;
mod draw;
mod error;
mod events;
mod export;
pub mod figures;
pub mod html;
mod kernel;
mod links;
mod median;
mod metrics;
mod ownership;
mod part_file;
mod path;
pub mod plots;
mod quantity;
mod recorder;
mod results;
mod samples;
mod series;
mod summary;
mod table;
mod traffic;
mod words;

pub use actions::ActionMetrics;
pub use article::{Article, Table};
pub use captures::{CaptureFormat, CaptureLen, CaptureOptions};
pub use differences::{Difference, Measure};
pub use document::Document;
pub use error::RecordError;
pub use export::{ExportFormat, UnknownFormat};
pub use kernel::{HostCounters, KernelSummary, LatenessMetrics, Repetition};
pub use median::median;
pub use metrics::{
    CellMetrics, ConnectionMetrics, CpuMetrics, DirectionMetrics, ExchangeMetrics, FlowMetrics, LinkMetrics,
    MobileMetrics, OutageMetrics, QueueMetrics, ReconnectionMetrics, SenderMetrics, StatusName,
};
pub use ownership::NotOfARun;
pub use part_file::PartFile;
pub use path::{PathEdge, path_outages};
pub use recorder::{Record, Recorder, RecorderOptions};
pub use results::{Manifest, ResultsDir, ResultsError};
pub use series::{Cells, Cut, FlowSeries, Point, QueueSeries, Series};
pub use summary::{Summary, VariantSummary};
