//! Connection states as CSV, with the names of `TCP_INFO` without `tcpi_`.

use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_sim::Sample;
use holdover_tcp::RecoveryState;

use crate::error::RecordError;
use crate::part_file::{PartFile, Written};

/// The columns. Times are in seconds (`t_s`) and, as in `TCP_INFO`, microseconds; `snd_cwnd`, `snd_ssthresh`, `unacked`, `sacked` and
/// `lost` count segments; `snd_ssthresh` is empty while it is unlimited. `app_bytes_received` counts the bytes read by the receiving
/// application.
const COLUMNS: [&str; 18] = [
    "t_s",
    "flow",
    "state",
    "ca_state",
    "snd_cwnd",
    "snd_ssthresh",
    "unacked",
    "sacked",
    "lost",
    "rto_us",
    "rtt_us",
    "rttvar_us",
    "backoff",
    "retransmits",
    "snd_wnd",
    "bytes_acked",
    "bytes_retrans",
    "app_bytes_received",
];

/// Writes `samples.csv`.
#[derive(Debug)]
pub(crate) struct SampleTable {
    path: PathBuf,
    out: csv::Writer<PartFile>,
}

impl SampleTable {
    pub(crate) fn create(path: PathBuf, written: &Written) -> Result<Self, RecordError> {
        let out = written.create(&path).map_err(|error| RecordError::io(&path, error))?;
        let mut out = csv::Writer::from_writer(out);
        out.write_record(COLUMNS).map_err(|error| RecordError::table(&path, error))?;
        Ok(Self { path, out })
    }

    pub(crate) fn write(&mut self, at: Instant, flow: &str, sample: &Sample) -> Result<(), RecordError> {
        let micros = |span: Duration| span.as_micros().to_string();
        self.out
            .write_record([
                &at.to_string(),
                flow,
                &sample.state.to_string(),
                ca_state(sample.ca_state),
                &sample.snd_cwnd.to_string(),
                &sample.snd_ssthresh.map_or(String::new(), |segments| segments.to_string()),
                &sample.unacked.to_string(),
                &sample.sacked.to_string(),
                &sample.lost.to_string(),
                &micros(sample.rto),
                &micros(sample.rtt),
                &micros(sample.rttvar),
                &sample.backoff.to_string(),
                &sample.retransmits.to_string(),
                &sample.snd_wnd.to_string(),
                &sample.bytes_acked.to_string(),
                &sample.bytes_retrans.to_string(),
                &sample.bytes_received.to_string(),
            ])
            .map_err(|error| RecordError::table(&self.path, error))
    }

    pub(crate) fn finish(self) -> Result<(), RecordError> {
        let Self { path, out } = self;
        let file = out.into_inner().map_err(|error| RecordError::io(&path, error.into_error()))?;
        file.commit().map_err(|error| RecordError::io(&path, error))
    }
}

/// Linux's names.
pub(crate) fn ca_state(state: RecoveryState) -> &'static str {
    match state {
        RecoveryState::Open => "open",
        RecoveryState::Disorder => "disorder",
        RecoveryState::Cwr => "cwr",
        RecoveryState::Recovery => "recovery",
        RecoveryState::Loss => "loss",
    }
}
