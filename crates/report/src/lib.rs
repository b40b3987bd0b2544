//! The files that a run writes.
//!
//! - [`Recorder`] listens to a run and writes captures, events and samples as they happen, so that its memory does not grow
//!   with the time that is simulated. What plots need is thinned out on the way ([`Series`]).
//! - [`ExportFormat`] are formats of other programs in which a recorder writes the same run.
//! - [`Record`] is what is known when the run has ended: every metric of every flow, the links, the files.
//! - [`Summary`] has the records of all variants of a scenario; it is `summary.json`.
//! - [`plots`] draws a record as SVG and PNG, and [`html`] puts everything on one page.
//! - [`Article`] is a page about one comparison, and [`plots::progress_of_flows`] its picture.
//! - [`Document`] is a page of sections, for a paper that was reproduced.
//! - [`figures`] draws what many runs came to, for sweeps and beside published numbers.
//! - [`ResultsDir`] is the directory that all of it goes to.
//!
//! All files but the manifest are a function of the scenario and the seed: the same run writes the same bytes. Runs on real
//! kernels ([`KernelSummary`]) are no function of anything; they are recorded in the same way.

#![forbid(unsafe_code)]
// Files are written here.
#![allow(clippy::disallowed_types)]

mod article;
mod captures;
mod document;
mod draw;
mod events;
mod export;
pub mod figures;
pub mod html;
mod kernel;
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

pub use article::{Article, Table};
pub use captures::{CaptureFormat, CaptureLen, CaptureOptions};
pub use document::Document;
pub use export::{ExportFormat, UnknownFormat};
pub use kernel::{Difference, HostCounters, KernelSummary, LatenessMetrics, Measure, Repetition};
pub use metrics::{
    CellMetrics, ConnectionMetrics, CpuMetrics, DirectionMetrics, ExchangeMetrics, FlowMetrics, LinkMetrics,
    MobileMetrics, OutageMetrics, QueueMetrics, ReconnectionMetrics, StatusName,
};
pub use part_file::PartFile;
pub use path::{PathEdge, path_outages};
pub use recorder::{Record, RecordError, Recorder, RecorderOptions};
pub use results::{Manifest, ResultsDir, ResultsError};
pub use series::{Cells, Cut, FlowSeries, Point, QueueSeries, Series};
pub use summary::{Summary, VariantSummary};
