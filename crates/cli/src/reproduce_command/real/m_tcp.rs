//! `holdover reproduce m-tcp --real`: what M-TCP's paper measured of its supervisor host (section 6.4), measured of the gateway's daemon in
//! network namespaces.

use std::process::ExitCode;

use holdover_conformance::About;
use holdover_gatewayd::config::Config;
use holdover_gatewayd::features;
use holdover_testbed::kernel_release;
use serde::Serialize;

use super::CANNOT_WORK;
use crate::bench::{Quartiles, RouterTimes, router_times};
use crate::command_support::{print, print_error, print_json, with_causes};
use crate::conformance::about;

/// The paper whose measurements have a counterpart.
pub(super) const PAPER: &str = "m-tcp";

/// Figure 17, in microseconds: packets of any size that are forwarded; the smallest packets with M-TCP.
const FORWARDED_US: f64 = 31.0;
const M_TCP_US: f64 = 91.0;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Counterpart {
    #[serde(skip)]
    made_by: About,
    cores: usize,
    kernel: String,
    paper_forwarding_us: f64,
    paper_m_tcp_us: f64,
    /// Between the hosts, in a slice.
    packets: f64,
    forwarding_us: Quartiles,
    m_tcp_us: Quartiles,
    ratio: Quartiles,
}

/// Measures it and prints it.
pub(super) fn run(json: bool) -> ExitCode {
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    if let Some(missing) = missing {
        print_error(&format_args!("--real needs what the gateway needs; {}: {}", missing.name, missing.found));
        return ExitCode::from(CANNOT_WORK);
    }
    match router_times() {
        Ok(times) => {
            let counterpart = Counterpart::new(about(), &times);
            if json { print_json(&counterpart) } else { print(&counterpart.page()) }
        }
        Err(error) => {
            print_error(&format_args!("--real: {}", with_causes(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

impl Counterpart {
    fn new(made_by: About, times: &RouterTimes) -> Self {
        let us = |nanos: Quartiles| nanos.map(|nanos| nanos / 1000.0);
        Self {
            made_by,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel_release(),
            paper_forwarding_us: FORWARDED_US,
            paper_m_tcp_us: M_TCP_US,
            packets: times.packets,
            forwarding_us: us(times.forwarding),
            m_tcp_us: us(times.m_tcp),
            ratio: times.ratio,
        }
    }

    /// The page, in Markdown.
    fn page(&self) -> String {
        let measured = |[low, median, high]: Quartiles| format!("{median:.2} ({low:.2} to {high:.2})");
        let paper_ratio = self.paper_m_tcp_us / self.paper_forwarding_us;
        let rows = [
            ("forwarded, µs", format!("{:.0}", self.paper_forwarding_us), measured(self.forwarding_us)),
            ("with M-TCP, µs", format!("{:.0}", self.paper_m_tcp_us), measured(self.m_tcp_us)),
            ("ratio", format!("{paper_ratio:.1}"), measured(self.ratio)),
        ];
        let Self { made_by: About { command, date }, cores, kernel, packets, .. } = self;
        let mut text = format!(
            "# Processing at the supervisor host, on this kernel\n\n\
             Made by `{command}` on {date} with {cores} cores; Linux {kernel}.\n\n\
             The time for a small packet at M-TCP's supervisor host (figure 17), and of `holdover gateway` with mode `m-tcp`. Medians and \
             quartiles of turns,\n{packets:.0} packets each: messages of 64 bytes and their answers.\n\n\
             | a small packet | paper | here |\n| --- | ---: | ---: |\n"
        );
        for (name, paper, here) in rows {
            text.push_str(&format!("| {name} | {paper} | {here} |\n"));
        }
        text.push_str(
            "\nThe paper timed packets between entry and exit of IP on a Pentium. Here it is processor time: that of hosts and router, without \
             that of hosts\nthat are joined directly. The daemon terminates no connection. Not measured here: packets of other sizes, and \
             transfers over the Internet.\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_both_figures_in_microseconds() {
        let times = RouterTimes {
            packets: 6000.0,
            forwarding: [1100.0, 1200.0, 1300.0],
            m_tcp: [2100.0, 2400.0, 2500.0],
            ratio: [1.9, 2.0, 2.1],
        };
        let made_by = About { command: "holdover reproduce m-tcp --real".to_owned(), date: "2026-11-29".to_owned() };
        let page = Counterpart::new(made_by, &times).page();
        assert!(page.contains("\nMade by `holdover reproduce m-tcp --real` on 2026-11-29 with "), "{page}");
        for row in [
            "| forwarded, µs | 31 | 1.20 (1.10 to 1.30) |",
            "| with M-TCP, µs | 91 | 2.40 (2.10 to 2.50) |",
            "| ratio | 2.9 | 2.00 (1.90 to 2.10) |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
    }
}
