//! Comparison of segments with what was expected, and the report of a script that fails.

use std::fmt::Write as _;

use holdover_tcp::Transmit;
use holdover_wire::{Flags, Segment, Seq, SeqRange};

use super::{Expect, START, Script};
use crate::world::stream;

impl Script {
    pub(super) fn compare(&self, template: &Expect, transmit: &Transmit) -> Result<(), String> {
        let segment = &transmit.segment;
        let shown = self.relative(segment);
        let wrong = |what: &str| Err(format!("{what} of this ({}) is wrong:\n{shown}", transmit.reason));
        if segment.flags - Flags::PSH != template.flags {
            return wrong("a control bit");
        }
        let default = if template.flags.contains(Flags::RST) { segment.seq } else { self.connection.snd_nxt() };
        if segment.seq != template.seq.map_or(default, |seq| self.iss + seq as u32) {
            return wrong("the sequence number");
        }
        if segment.payload.len() != template.len {
            return wrong("the length");
        }
        let position = (segment.seq - self.iss).wrapping_sub(1) as usize;
        if template.len > 0 && segment.payload != stream(position, template.len) {
            return wrong("the content");
        }
        if template.ack.is_some_and(|ack| segment.ack != self.irs + ack as u32) {
            return wrong("the acknowledgment");
        }
        if template.win.is_some_and(|win| segment.window != win) {
            return wrong("the window");
        }
        if template.reason.is_some_and(|reason| transmit.reason != reason) {
            return wrong("the reason");
        }
        if template.urgent.is_some_and(|urgent| segment.urgent != urgent) {
            return wrong("the urgent pointer");
        }
        let sack: Vec<_> = template
            .sack
            .iter()
            .map(|&(start, end)| SeqRange::new(self.irs + start as u32, self.irs + end as u32))
            .collect();
        if segment.options.sack.as_slice() != sack {
            return wrong("the SACK option");
        }
        let timestamps = segment.options.timestamps.map(|ts| (ts.val, ts.ecr));
        if template.timestamps.is_some_and(|expected| timestamps != expected) {
            return wrong("the timestamps option");
        }
        if template.options.as_ref().is_some_and(|options| segment.options != *options) {
            return wrong("an option");
        }
        Ok(())
    }

    /// The segment in relative numbers: ours if it came from the connection.
    pub(super) fn relative(&self, segment: &Segment) -> Segment {
        let (seq_base, ack_base) = if segment.src_port == 1000 { (self.iss, self.irs) } else { (self.irs, self.iss) };
        let relative = |seq: Seq, base: Seq| Seq::new(seq - base);
        let mut shown = segment.clone();
        shown.seq = relative(segment.seq, seq_base);
        if segment.flags.contains(Flags::ACK) {
            shown.ack = relative(segment.ack, ack_base);
        }
        shown.options.sack = segment
            .options
            .sack
            .iter()
            .map(|block| SeqRange::new(relative(block.start, ack_base), relative(block.end, ack_base)))
            .collect();
        shown
    }

    pub(super) fn clock(&self) -> String {
        format!("{:>12.3}", self.now.saturating_since(START).as_micros() as f64 / 1000.0)
    }

    pub(super) fn note(&mut self, direction: char, segment: &Segment, reason: &str) {
        let shown = self.relative(segment).to_string();
        let shown = shown.split_once(": ").map_or(&*shown, |(_, rest)| rest);
        let clock = self.clock();
        writeln!(self.trace, "{clock} {direction} {shown}  {reason}").unwrap();
    }

    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        let lines: Vec<_> = self.trace.lines().collect();
        let last = lines[lines.len().saturating_sub(200)..].join("\n");
        let clock = self.clock();
        panic!("at {} ms: {what}\n\nwhat happened (< to the connection, > from it; times in ms):\n{last}", clock.trim())
    }
}
