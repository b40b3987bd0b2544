//! mahimahi's packet-delivery traces.
//!
//! A line contains a time in whole milliseconds at which the link may deliver up to 1500 bytes: one large packet or
//! several small ones; a packet that does not fit continues with the bytes of the next opportunities. Bytes unused at
//! that moment are wasted. Several lines with the same time are several opportunities. At the end mahimahi starts over,
//! with time 0 at the time of the last line (mm-link(1)).

use holdover_base::{Duration, Instant};

use super::{AtEnd, TraceError, lines};

/// A packet-delivery trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryTrace {
    /// Nanoseconds since the start of the trace, in order; not empty.
    nanos: Vec<u64>,
    at_end: AtEnd,
}

impl DeliveryTrace {
    /// Bytes that one opportunity carries.
    pub const OPPORTUNITY_BYTES: u32 = 1500;

    /// Reads the text of a trace file.
    pub fn parse(text: &str, at_end: AtEnd) -> Result<Self, TraceError> {
        let mut nanos: Vec<u64> = Vec::new();
        let mut last_line = 0;
        for (line, found) in lines(text)? {
            let millis: u64 =
                found.trim().parse().ok().filter(|&millis| millis <= MAX_MILLIS).ok_or_else(|| TraceError::Value {
                    line,
                    column: "time",
                    found: found.into(),
                    expected: "whole milliseconds since the start",
                })?;
            let time = millis * 1_000_000;
            if let Some(&previous) = nanos.last()
                && time < previous
            {
                let previous = format!("{} ms", previous / 1_000_000);
                return Err(TraceError::OutOfOrder {
                    line,
                    found: format!("{millis} ms").into(),
                    previous: previous.into(),
                });
            }
            nanos.push(time);
            last_line = line;
        }
        if at_end == AtEnd::Repeat && nanos.last() == Some(&0) {
            return Err(TraceError::NoLength { line: last_line });
        }
        Ok(Self { nanos, at_end })
    }

    /// The time of the last opportunity, which is the period of a trace that repeats.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.period())
    }

    /// Opportunities in `[from, to)`.
    pub(crate) fn opportunities_between(&self, from: Instant, to: Instant) -> u128 {
        self.opportunities_before(to).saturating_sub(self.opportunities_before(from))
    }

    fn opportunities_before(&self, end: Instant) -> u128 {
        let at = self.seek(end);
        u128::from(at.lap) * self.nanos.len() as u128 + at.index as u128
    }

    /// The first opportunity at or after `from`, whole.
    pub(crate) fn seek(&self, from: Instant) -> Opportunity {
        let from = from.as_nanos();
        // The last opportunity of a lap falls together with the beginning of the next: look for it in the earlier lap.
        let lap = match self.at_end {
            AtEnd::Repeat => from.saturating_sub(1) / self.period(),
            AtEnd::Stop => 0,
        };
        let index = self.nanos.partition_point(|&time| time < from - lap * self.period());
        Opportunity { lap, index, left: Self::OPPORTUNITY_BYTES }
    }

    /// The time of an opportunity; [`Instant::FAR_FUTURE`] after the end.
    pub(crate) fn time(&self, at: Opportunity) -> Instant {
        match self.nanos.get(at.index) {
            Some(&nanos) => Instant::from_nanos(self.period().saturating_mul(at.lap).saturating_add(nanos)),
            None => Instant::FAR_FUTURE,
        }
    }

    /// The opportunity after `at`.
    pub(crate) fn after(&self, at: Opportunity) -> Opportunity {
        let (lap, index) = match self.at_end {
            AtEnd::Repeat if at.index + 1 == self.nanos.len() => (at.lap + 1, 0),
            _ => (at.lap, at.index + 1),
        };
        Opportunity { lap, index, left: Self::OPPORTUNITY_BYTES }
    }

    fn period(&self) -> u64 {
        self.nanos.last().copied().unwrap_or(0)
    }
}

/// Over thirty years; keeps the nanoseconds of a time, and a lap more, within 64 bits.
const MAX_MILLIS: u64 = 1_000_000_000_000;

/// A position in a trace that may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Opportunity {
    lap: u64,
    index: usize,
    /// Unused bytes of this opportunity.
    pub(crate) left: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(trace: &DeliveryTrace, from: u64, n: usize) -> Vec<u64> {
        let mut at = trace.seek(Instant::from_millis(from));
        let mut times = Vec::new();
        for _ in 0..n {
            times.push(trace.time(at).as_millis());
            at = trace.after(at);
        }
        times
    }

    #[test]
    fn a_trace_starts_over_at_the_time_of_its_last_line() {
        let trace = DeliveryTrace::parse("0\n2\n2\n5\n", AtEnd::Repeat).unwrap();
        assert_eq!(times(&trace, 0, 9), [0, 2, 2, 5, 5, 7, 7, 10, 10]);
        assert_eq!(times(&trace, 5, 4), [5, 5, 7, 7], "the end of one lap and the start of the next are both at 5");
        assert_eq!(times(&trace, 1_000_001, 3), [1_000_002, 1_000_002, 1_000_005]);
        assert_eq!(trace.opportunities_between(Instant::ZERO, Instant::from_millis(5)), 3);
        assert_eq!(trace.opportunities_between(Instant::from_millis(5), Instant::from_millis(10)), 4);
        let every_ms = DeliveryTrace::parse("1\n", AtEnd::Repeat).unwrap();
        assert_eq!(times(&every_ms, 0, 3), [1, 2, 3]);
    }

    #[test]
    fn a_trace_that_stops_delivers_nothing_more() {
        let trace = DeliveryTrace::parse("1\n3\n", AtEnd::Stop).unwrap();
        let end = trace.after(trace.after(trace.seek(Instant::ZERO)));
        assert_eq!(trace.time(end), Instant::FAR_FUTURE);
        assert_eq!(trace.opportunities_between(Instant::ZERO, Instant::FAR_FUTURE), 2);
    }

    #[test]
    fn malformed_traces_are_refused_with_the_line() {
        let error = |text: &str| DeliveryTrace::parse(text, AtEnd::Repeat).unwrap_err();
        assert_eq!(error(""), TraceError::Empty);
        assert_eq!(error("1\n2\n3"), TraceError::Truncated { line: 3 });
        assert_eq!(error("0\n0\n"), TraceError::NoLength { line: 2 });
        assert!(matches!(error("1\n5\n4\n"), TraceError::OutOfOrder { line: 3, .. }));
        for bad in ["x", "-1", "1.5", "", "99999999999999999999", "9999999999999"] {
            let text = format!("1\n{bad}\n3\n");
            assert!(matches!(error(&text), TraceError::Value { line: 2, .. }), "{bad}");
        }
        assert_eq!(error("1\nx\n").to_string(), "line 2: time is \"x\", expected whole milliseconds since the start");
    }
}
