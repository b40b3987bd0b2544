//! The differences between the simulator and real kernels in a run that has both.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::draw::escape;
use crate::error::RecordError;
use crate::kernel::Repetition;
use crate::median::median;
use crate::metrics::FlowMetrics;
use crate::quantity::{bytes, count, percent, seconds, significant};
use crate::summary::{Summary, VariantSummary};

/// One measure of a flow in the simulator and on kernels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The variant's name in the simulator.
    pub variant: String,
    /// The flow.
    pub flow: String,
    /// The measure.
    pub measure: Measure,
    /// The number of the value, from 1, for measures with several values (idle times).
    pub number: Option<usize>,
    /// The simulator's value; `None` if it did not occur.
    pub simulator: Option<f64>,
    /// The median of the kernel runs; `None` if it did not occur in most of them.
    pub kernel: Option<f64>,
    /// The minimum and maximum of the kernel runs.
    pub kernel_range: Option<(f64, f64)>,
}

/// A measure to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// From the flow's start to its last byte, in seconds.
    CompletionTime,
    /// From a reconnection of the path to the first new data, in seconds.
    IdleAfterReconnection,
    /// Retransmitted bytes.
    BytesRetransmitted,
    /// Expirations of the retransmission timer that caused a retransmission.
    Timeouts,
    /// The median response time, in seconds.
    ExchangeMedian,
    /// Bytes read by the application, for flows that last as long as the run.
    BytesReceived,
}

impl Measure {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompletionTime => "completion time",
            Self::IdleAfterReconnection => "idle after reconnection",
            Self::BytesRetransmitted => "sent again",
            Self::Timeouts => "timeouts",
            Self::ExchangeMedian => "exchange, median",
            Self::BytesReceived => "bytes read",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::CompletionTime | Self::IdleAfterReconnection | Self::ExchangeMedian => seconds(value),
            Self::BytesRetransmitted | Self::BytesReceived => bytes(value),
            Self::Timeouts if value.fract() == 0.0 => count(value as u64),
            Self::Timeouts => significant(value),
        }
    }
}

impl Difference {
    /// The simulator's deviation from the kernel, relative to the kernel's value; `None` if that is undefined.
    pub fn relative(&self) -> Option<f64> {
        let (simulator, kernel) = (self.simulator?, self.kernel.filter(|&kernel| kernel != 0.0)?);
        Some(simulator / kernel - 1.0)
    }

    /// The cells of a table's row, after the variant and the flow.
    fn cells(&self) -> [String; 5] {
        let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| self.measure.show(value));
        let name = match self.number {
            Some(number) => format!("{} {number}", self.measure.name()),
            None => self.measure.name().to_owned(),
        };
        let range = self.kernel_range.filter(|(least, most)| least != most);
        let spread = range.map_or_else(String::new, |(least, most)| {
            format!("{} to {}", self.measure.show(least), self.measure.show(most))
        });
        let difference = match (self.measure, self.relative()) {
            (Measure::Timeouts, _) => {
                let difference = self.simulator.zip(self.kernel).map(|(simulator, kernel)| simulator - kernel);
                difference.map_or_else(String::new, |by| if by == 0.0 { "same".to_owned() } else { format!("{by:+}") })
            }
            (_, Some(share)) if share >= 0.0 => format!("+{}", percent(share)),
            (_, Some(share)) => format!("−{}", percent(-share)),
            (_, None) => String::new(),
        };
        [name, show(self.simulator), show(self.kernel), spread, difference]
    }
}

/// The headings over [`Difference::cells`].
const HEADINGS: [&str; 5] = ["", "simulator", "kernel", "kernel's runs", "difference"];

impl Summary {
    /// The differences between simulator and kernels, for every variant and flow run in both.
    pub fn differences(&self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for on_kernel in &self.variants {
            let Some(kernel) = &on_kernel.kernel else { continue };
            let is_same = |other: &&VariantSummary| other.kernel.is_none() && other.variant == kernel.simulated;
            let Some(simulated) = self.variants.iter().find(is_same) else { continue };
            for flow in &simulated.flows {
                let of_flow =
                    |repetition: &'_ Repetition| repetition.flows.iter().find(|other| other.flow == flow.flow).cloned();
                let runs: Vec<FlowMetrics> = kernel.repetitions.iter().filter_map(of_flow).collect();
                differences.extend(compare(&simulated.variant, flow, &runs));
            }
        }
        differences
    }

    /// [`Self::differences`] as a table: times in seconds, amounts in bytes; values that did not occur are empty.
    pub(crate) fn differences_csv(&self, path: &Path) -> Result<Vec<u8>, RecordError> {
        let mut out = csv::Writer::from_writer(Vec::new());
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let write = |out: &mut csv::Writer<Vec<u8>>| {
            out.write_record([
                "variant",
                "flow",
                "measure",
                "number",
                "simulator",
                "kernel_median",
                "kernel_min",
                "kernel_max",
                "relative",
            ])?;
            for difference in self.differences() {
                let range = difference.kernel_range;
                out.write_record([
                    difference.variant.clone(),
                    difference.flow.clone(),
                    difference.measure.name().to_owned(),
                    difference.number.map_or_else(String::new, |number| number.to_string()),
                    number(difference.simulator),
                    number(difference.kernel),
                    number(range.map(|range| range.0)),
                    number(range.map(|range| range.1)),
                    number(difference.relative()),
                ])?;
            }
            Ok(())
        };
        write(&mut out).map_err(|error| RecordError::table(path, error))?;
        out.into_inner().map_err(|error| RecordError::io(path, error.into_error()))
    }

    /// [`Self::differences`] as text for a terminal; empty if there are none.
    pub fn differences_to_text(&self) -> String {
        let rows = self.rows();
        let mut text = String::new();
        for (index, (title, cells)) in rows.iter().enumerate() {
            if index == 0 || rows[index - 1].0 != *title {
                let _ = writeln!(text, "{}{title}: simulator and kernel", if index == 0 { "" } else { "\n" });
                let widths = widths(&rows, title);
                text.push_str(&line(&HEADINGS.map(str::to_owned), &widths));
            }
            text.push_str(&line(cells, &widths(&rows, title)));
        }
        text
    }

    /// [`Self::differences`] as a section of the page; empty if there are none.
    pub(crate) fn differences_to_html(&self) -> String {
        let rows = self.rows();
        let mut html = String::new();
        for (index, (title, cells)) in rows.iter().enumerate() {
            if index == 0 {
                html.push_str("<section>\n<h2>Simulator and kernel</h2>\n");
            }
            if index == 0 || rows[index - 1].0 != *title {
                if index > 0 {
                    html.push_str("</tbody>\n</table></div>\n");
                }
                let _ = write!(html, "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr>", escape(title));
                for heading in HEADINGS {
                    let _ = write!(html, "<th>{}</th>", escape(heading));
                }
                html.push_str("</tr></thead>\n<tbody>\n");
            }
            let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(&cells[0]));
            for cell in &cells[1..] {
                let _ = write!(html, "<td>{}</td>", escape(cell));
            }
            html.push_str("</tr>\n");
        }
        if !rows.is_empty() {
            html.push_str("</tbody>\n</table></div>\n</section>\n");
        }
        html
    }

    /// The rows of the tables by title.
    fn rows(&self) -> Vec<(String, [String; 5])> {
        let title = |difference: &Difference| format!("{}, {}", difference.variant, difference.flow);
        self.differences().iter().map(|difference| (title(difference), difference.cells())).collect()
    }
}

fn compare(variant: &str, flow: &FlowMetrics, runs: &[FlowMetrics]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut add = |measure, number, of: &dyn Fn(&FlowMetrics) -> Option<f64>| {
        let mut values: Vec<f64> = runs.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        let range = values.first().copied().zip(values.last().copied());
        let kernel = if values.len() * 2 > runs.len() { median(&values) } else { None };
        if of(flow).is_none() && range.is_none() {
            return;
        }
        differences.push(Difference {
            variant: variant.to_owned(),
            flow: flow.flow.clone(),
            measure,
            number,
            simulator: of(flow),
            kernel,
            kernel_range: range,
        });
    };
    let ends = |flow: &FlowMetrics| flow.completed_at_s.is_some();
    add(Measure::CompletionTime, None, &|flow| ends(flow).then_some(flow.duration_s));
    let unfinished = !ends(flow) || runs.iter().any(|run| !ends(run));
    add(Measure::BytesReceived, None, &|flow| unfinished.then_some(flow.bytes_received as f64));
    add(Measure::ExchangeMedian, None, &|flow| flow.exchanges.as_ref().map(|exchanges| exchanges.median_s));
    // With many reconnections their order is random; only the first ones are compared individually.
    const ONE_BY_ONE: usize = 8;
    for number in 0..flow.reconnections.len().min(ONE_BY_ONE) {
        add(Measure::IdleAfterReconnection, Some(number + 1), &|flow| flow.reconnections.get(number)?.idle_s);
    }
    add(Measure::BytesRetransmitted, None, &|flow| Some(flow.sender.as_ref()?.bytes_retransmitted as f64));
    add(Measure::Timeouts, None, &|flow| Some(flow.sender.as_ref()?.timeouts as f64));
    differences
}

/// The column widths of the table called `title`.
fn widths(rows: &[(String, [String; 5])], title: &str) -> [usize; 5] {
    let mut widths = HEADINGS.map(|heading| heading.chars().count());
    for (_, cells) in rows.iter().filter(|(other, _)| other == title) {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn line(cells: &[String; 5], widths: &[usize; 5]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width - cell.chars().count());
        let _ = if index == 0 { write!(line, "  {cell}{padding}") } else { write!(line, "  {padding}{cell}") };
    }
    format!("{}\n", line.trim_end())
}
