//! The result of a transfer.

use holdover_base::Duration;
use holdover_sim::FlowReport;
use serde::{Deserialize, Serialize};

use super::Transfer;

/// The result of a transfer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// From the link's return to the first new data at the application.
    #[serde(with = "crate::nanos::optional")]
    pub resume: Option<Duration>,
    /// From the beginning to the last byte.
    #[serde(with = "crate::nanos::optional")]
    pub completion: Option<Duration>,
}

impl Measured {
    /// The world's counters of its flow.
    pub fn of(report: &FlowReport) -> Self {
        Self {
            resume: report.reconnections.first().and_then(|back| back.idle),
            completion: report.completed_at.map(|at| at.saturating_since(report.started_at)),
        }
    }

    /// The ideal time over the time taken: the ideal is the same transfer without the cut, which took `uncut`, and the length
    /// of the cut.
    pub fn ideal_share(&self, transfer: &Transfer, uncut: Duration) -> Option<f64> {
        let ideal = uncut + transfer.cut.unwrap_or(Duration::ZERO);
        let taken = self.completion.filter(|taken| !taken.is_zero())?;
        Some(ideal.as_secs_f64() / taken.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Help, TransferDirection};

    #[test]
    fn the_ideal_is_the_uncut_transfer_and_the_cut() {
        let transfer =
            Transfer { direction: TransferDirection::Upload, help: Help::Plain, cut: Some(Duration::from_secs(7)) };
        let measured = Measured { resume: None, completion: Some(Duration::from_secs(20)) };
        assert_eq!(measured.ideal_share(&transfer, Duration::from_secs(10)), Some(0.85));
        let unfinished = Measured { completion: None, ..measured };
        assert_eq!(unfinished.ideal_share(&transfer, Duration::from_secs(10)), None);
    }
}
