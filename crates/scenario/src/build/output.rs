//! The recordings and plots of a scenario.

use holdover_base::Duration;

use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::output::{CaptureFormat, Captures, Output, Plot};
use crate::problem::{Problem, Under};
use crate::word::{OrNone, Vocabulary};

/// The default sampling interval.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The sampling interval. A problem lies below the root of the file.
pub(super) fn sample_every(output: Option<&file::Output>) -> Result<Option<Duration>, Problem> {
    let shortest = Duration::from_micros(1);
    match output.and_then(|output| output.sample_every.as_ref()) {
        None => Ok(Some(SAMPLE_EVERY)),
        Some(OrNone(None)) => Ok(None),
        Some(OrNone(Some(time))) if time.0 < shortest => {
            let found = format!("\"{}\"", time.0);
            Err(Problem::unexpected(ErrorKind::BadValue, found, "at least 1 us, or \"none\""))
                .under("sample_every")
                .under("output")
        }
        Some(OrNone(Some(time))) => Ok(Some(time.0)),
    }
}

/// The outputs of a scenario. A problem lies below the root of the file.
pub(crate) fn of_scenario(file: &ScenarioFile) -> Result<Output, Problem> {
    let default = file::Output::default();
    let output = file.output.as_ref().unwrap_or(&default);
    let nodes: Vec<&str> = file
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .chain(file.routers.iter().map(|router| router.name.as_str()))
        .collect();
    let captures = match &output.captures {
        None => Captures::All,
        Some(file::Captured::AllOrNone(word)) => match word.0 {
            file::AllOrNone::All => Captures::All,
            file::AllOrNone::None => Captures::None,
        },
        Some(file::Captured::Nodes(names)) => {
            for (index, name) in names.iter().enumerate() {
                if !nodes.contains(&name.as_str()) {
                    let problem = Problem::unknown_name("host or router", name, nodes.iter().copied());
                    return Err(problem.under_index(index).under("captures").under("output"));
                }
            }
            Captures::Nodes(names.clone())
        }
    };
    let snap_length = match &output.snap_length {
        None | Some(OrNone(None)) => None,
        Some(OrNone(Some(bytes))) => {
            let length = u32::try_from(bytes.0.0).ok().filter(|length| (64..=262_144).contains(length));
            let problem = || Problem::unexpected(ErrorKind::BadValue, bytes.0.to_string(), "64 bytes to 256 KiB");
            Some(length.ok_or_else(problem).under("snap_length").under("output")?)
        }
    };
    let plots = output.plots.as_ref();
    Ok(Output {
        captures,
        capture_format: output.capture_format.map_or(CaptureFormat::Pcapng, |format| format.0),
        snap_length,
        sample_every: sample_every(Some(output))?,
        events: output.events.unwrap_or(true),
        plots: plots.map_or_else(|| Plot::VALUES.to_vec(), |plots| plots.iter().map(|plot| plot.0).collect()),
    })
}
