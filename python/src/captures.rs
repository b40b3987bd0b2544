//! Captures: where connections lost their time, and the behaviour of their link.

use std::fs::File;
use std::path::{Path, PathBuf};

use holdover_base::{Duration, Instant};
use holdover_explain::{
    Analysis, Capture, CaptureReadError, Captured, Cause, Certainty, Conversation, KnownOutages, LinkEstimator, Outage,
    account, outages_of_paths,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::failed;

/// Why a capture could not be used.
#[derive(Debug, thiserror::Error)]
enum CaptureError {
    #[error("{path}: {error}", path = path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{path}: {error}", path = path.display())]
    Read { path: PathBuf, error: CaptureReadError },
    #[error("{path}: {error}", path = path.display())]
    Trace { path: PathBuf, error: holdover_explain::LinkTraceError },
}

/// Takes all packets; a damaged place ends the capture if a packet came before it, and is returned.
fn read(path: &Path, mut take: impl FnMut(&Captured<'_>)) -> Result<Option<CaptureReadError>, CaptureError> {
    let file = File::open(path).map_err(|error| CaptureError::Io { path: path.to_owned(), error })?;
    let failed = |error| CaptureError::Read { path: path.to_owned(), error };
    let mut capture = Capture::new(file).map_err(failed)?;
    let mut packets: u64 = 0;
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => take(&packet),
            Ok(None) => return Ok(None),
            Err(error) if packets == 0 => return Err(failed(error)),
            Err(error) => return Ok(Some(error)),
        }
        packets += 1;
    }
}

/// When the first packet came, what was found, and where the capture is damaged.
type Found = (Instant, Vec<Conversation>, Option<CaptureReadError>);

fn conversations(path: &Path) -> Result<Found, CaptureError> {
    let mut analysis = Analysis::new();
    let damage = read(path, |packet| analysis.take(packet.at, packet.ip, packet.original_len))?;
    let first = analysis.first().unwrap_or(Instant::ZERO);
    Ok((first, analysis.finish(), damage))
}

/// One dictionary for each direction of each connection with data, and what is wrong with the capture's rest. `given` has the outages that are known beforehand, in seconds since the first
/// packet; with `only_given` there were no others.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    path: PathBuf,
    given: Vec<(f64, f64)>,
    only_given: bool,
) -> PyResult<(Vec<Py<PyDict>>, Option<String>)> {
    if let Some((from, to)) = given.iter().find(|(from, to)| !(0.0..1e9).contains(from) || !(from < to && *to < 1e9)) {
        return Err(PyValueError::new_err(format!("an outage from {from} s to {to} s cannot be")));
    }
    let read = py.detach(|| conversations(&path));
    let (first, conversations, damage) = read.map_err(|error| failed(py, error))?;
    let outage = |&(from, to): &(f64, f64)| {
        let at = |seconds| first + Duration::from_secs_f64(seconds);
        Outage { down: at(from), up: at(to) }
    };
    let given: Vec<Outage> = given.iter().map(outage).collect();
    let outages = outages_of_paths(&conversations);
    let record = conversations.iter().zip(outages).map(|(conversation, found)| {
        let found = if only_given { Vec::new() } else { found };
        one(py, first, conversation, &KnownOutages::new(given.clone(), found))
    });
    let damage = damage.map(|error| format!("{}: {error}; what came before counts", path.display()));
    Ok((record.collect::<PyResult<_>>()?, damage))
}

fn one(py: Python<'_>, first: Instant, conversation: &Conversation, known: &KnownOutages) -> PyResult<Py<PyDict>> {
    let since = |at: Instant| at.saturating_since(first).as_secs_f64();
    let account = account(conversation, &known.all());
    let is_within = |outage: &&Outage| outage.down < conversation.end && conversation.begin < outage.up;
    let given = known.given.iter().filter(is_within).map(|outage| (*outage, true));
    let found = known.found.iter().map(|found| (found.guess, found.certainty == Certainty::Sure));
    let end = |outage: &Outage| (outage.up != Instant::FAR_FUTURE).then(|| since(outage.up));
    let mut outages: Vec<(f64, Option<f64>, bool)> =
        given.chain(found).map(|(outage, is_sure)| (since(outage.down), end(&outage), is_sure)).collect();
    outages.sort_by(|one, other| one.0.total_cmp(&other.0));
    let spent = PyDict::new(py);
    for cause in Cause::ALL {
        spent.set_item(cause.name(), account.total(cause).as_secs_f64())?;
    }
    let record = PyDict::new(py);
    record.set_item("sender", conversation.sender.to_string())?;
    record.set_item("receiver", conversation.receiver.to_string())?;
    record.set_item("place", conversation.place.name())?;
    record.set_item("begin_s", since(conversation.begin))?;
    record.set_item("end_s", since(conversation.end))?;
    record.set_item("bytes", conversation.bytes)?;
    record.set_item("segments", conversation.segments)?;
    record.set_item("retransmissions", conversation.retransmissions)?;
    record.set_item("rtt_s", conversation.rtt().as_secs_f64())?;
    record.set_item("outages", outages)?;
    record.set_item("spent_s", spent)?;
    Ok(record.unbind())
}

/// The table of a link that does what the path of a capture's largest transfer did.
#[pyfunction]
pub(crate) fn link_trace(py: Python<'_>, path: PathBuf, interval_nanos: u64) -> PyResult<String> {
    let make = || {
        let (_, conversations, _) = conversations(&path)?;
        let bad = |error| CaptureError::Trace { path: path.clone(), error };
        let mut estimator = LinkEstimator::new(&conversations, Duration::from_nanos(interval_nanos)).map_err(bad)?;
        read(&path, |packet| estimator.take(packet.at, packet.ip, packet.original_len))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(estimator.finish().map_err(bad)?.to_csv(&name))
    };
    py.detach(make).map_err(|error: CaptureError| failed(py, error))
}
