//! Expected outgoing packets.

use holdover_base::Instant;
use holdover_wire::{Flags, Packet, Segment};

use super::check::{compare, show_actual, show_expected};
use super::flow::Flow;
use super::sent::Sent;
use super::{ANY_TIME_PATIENCE, Due, PATIENCE_USECS, Runner, Step, Stop, UnderTest};
use crate::ast::{Body, PacketSpec, TcpSpec};

impl Runner {
    pub(super) fn expect(&mut self, line: u32, due: Due, spec: &PacketSpec) -> Step {
        let Body::Tcp(tcp) = &spec.body else {
            return Err(Stop::Unsupported("an outbound packet that is not TCP's".to_owned()));
        };
        let until = self.instant(
            due.until.max(self.script_time(self.kernel.now()))
                + if due.any { ANY_TIME_PATIENCE } else { PATIENCE_USECS },
        );
        if let UnderTest::Connecting(fd) = self.under_test
            && tcp.flags & (Flags::SYN | Flags::ACK) == Flags::SYN
        {
            self.take_up_connecting(fd, tcp);
        }
        if self.flow.is_none() {
            self.differ(line, show_expected(spec, tcp), "no connection that could send it".to_owned());
            return Err(Stop::Difference);
        }
        let Some(mut sent) = self.next_sent(until) else {
            self.differ(line, show_expected(spec, tcp), "nothing sent".to_owned());
            return Err(Stop::Difference);
        };
        self.learn_isn(tcp, &sent.segment);
        if !self.strict_segments && !self.gather(&mut sent, usize::from(tcp.len), until) {
            self.differ(line, show_expected(spec, tcp), "less data in segments of one size, then nothing".to_owned());
            return Err(Stop::Difference);
        }
        self.check_sent(line, due, spec, tcp, &sent);
        Ok(())
    }

    /// The first SYN of a connecting socket identifies the connection under test.
    fn take_up_connecting(&mut self, fd: i64, tcp: &TcpSpec) {
        let Some((local, remote)) = self.kernel.addresses_of(fd) else { return };
        let mut flow = Flow::new(local, remote);
        flow.script_isn = tcp.seq;
        self.flow = Some(flow);
        self.under_test = UnderTest::Flow;
    }

    /// Learns the local initial sequence number from a SYN.
    fn learn_isn(&mut self, tcp: &TcpSpec, segment: &Segment) {
        if let Some(flow) = &mut self.flow
            && flow.live_isn.is_none()
            && segment.flags.contains(Flags::SYN)
        {
            flow.live_isn = Some(segment.seq);
            flow.script_isn = tcp.seq;
        }
    }

    /// Takes the next outgoing segment of the connection under test, waiting for it up to `until`.
    fn next_sent(&mut self, until: Instant) -> Option<Sent> {
        loop {
            while let Some((at, packet)) = self.kernel.take_sent() {
                if let Some(segment) = self.flow.as_ref().and_then(|flow| flow.segment_of(&packet)) {
                    return Some(Sent::new(at, &packet, segment));
                }
            }
            if self.kernel.now() >= until || self.kernel.is_exhausted() {
                return None;
            }
            self.advance_once(until);
        }
    }

    /// Appends further segments to `sent` until it has `len` bytes. Returns false if they do not come.
    fn gather(&mut self, sent: &mut Sent, len: usize, until: Instant) -> bool {
        let size = sent.len;
        while sent.len < len {
            let Some(next) = self.next_sent(until) else { return false };
            let follows = next.segment.seq == sent.segment.seq + sent.len as u32;
            let whole = next.len == size || sent.len + next.len >= len;
            let alike = next.segment.ack == sent.segment.ack && next.segment.window == sent.segment.window;
            if !(follows && whole && alike) {
                // The comparison reports the remaining difference.
                self.kernel.put_back(
                    next.at,
                    Packet::new(self.kernel.addresses().local.ip(), self.kernel.addresses().remote.ip(), next.segment),
                );
                return true;
            }
            let seq = sent.segment.seq;
            let cwr = sent.segment.flags & Flags::CWR;
            let total = sent.len + next.len;
            *sent = next;
            sent.segment.seq = seq;
            sent.segment.flags = (sent.segment.flags - Flags::CWR) | cwr;
            sent.len = total;
            sent.gathered = true;
        }
        true
    }

    fn check_sent(&mut self, line: u32, due: Due, spec: &PacketSpec, tcp: &TcpSpec, sent: &Sent) {
        let actual_time = self.script_time(sent.at);
        let in_time = self.is_in_time(due, actual_time);
        let (tick, tolerance) =
            (self.timestamp_tick, self.tolerance.max((self.tolerance_percent / 100.0 * due.from as f64) as i64));
        let Some(flow) = &mut self.flow else { return };
        let mut wrong = compare(flow, spec, tcp, sent, tick, tolerance);
        if !in_time {
            wrong.push("time");
        }
        if wrong.is_empty() {
            return;
        }
        let when = if due.any { String::new() } else { format!("{:.6} ", due.from as f64 / 1e6) };
        let expected = format!("{when}{}", show_expected(spec, tcp));
        let actual = format!("{:.6} {} ({})", actual_time as f64 / 1e6, show_actual(flow, tcp, sent), wrong.join(", "));
        self.differ(line, expected, actual);
    }
}
