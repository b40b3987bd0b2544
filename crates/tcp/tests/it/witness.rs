//! A witness of all segments sent and received: it has each side's information, and panics when a side acknowledges, sends or
//! reports what it must not.

use std::sync::Arc;

use holdover_tcp::{Config, Connection, Reason, Transmit};
use holdover_wire::{Flags, Segment, Seq};

use crate::world::{Side, stream_byte};

/// Data that one side has sent and received so far.
#[derive(Debug)]
struct Account {
    config: Arc<Config>,
    /// The number of its SYN.
    iss: Option<Seq>,
    window_scale: Option<u8>,
    /// Received data, as ranges of offsets from the peer's ISS.
    received: Vec<(u32, u32)>,
    /// The furthest right edge of a window that has arrived here, as an offset from its ISS.
    edge: u32,
}

#[derive(Debug)]
pub(crate) struct Witness {
    client: Account,
    server: Account,
}

impl Account {
    fn new(config: Config) -> Self {
        Self { config: Arc::new(config), iss: None, window_scale: None, received: Vec::new(), edge: 0 }
    }

    fn receive(&mut self, start: u32, end: u32) {
        let at = self.received.partition_point(|&(_, e)| e < start);
        let upto = self.received.partition_point(|&(s, _)| s <= end);
        let merged = self.received[at..upto].iter().fold((start, end), |(s, e), &(s2, e2)| (s.min(s2), e.max(e2)));
        self.received.splice(at..upto, [merged]);
    }

    /// The length of received data without a gap.
    fn contiguous(&self) -> u32 {
        self.received.first().map_or(0, |&(start, end)| if start == 0 { end } else { 0 })
    }
}

impl Witness {
    pub(crate) fn new(client: Config, server: Config) -> Self {
        Self { client: Account::new(client), server: Account::new(server) }
    }

    fn accounts(&mut self, side: Side) -> (&mut Account, &mut Account) {
        match side {
            Side::Client => (&mut self.client, &mut self.server),
            Side::Server => (&mut self.server, &mut self.client),
        }
    }

    pub(crate) fn on_arrival(&mut self, to: Side, segment: &Segment) {
        let (own, peer) = self.accounts(to);
        let Some(peer_iss) = peer.iss else { return };
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let start = segment.seq - peer_iss;
        if segment.seq_len() > 0 {
            own.receive(start, start + segment.seq_len());
        }
        if let Some(iss) = own.iss.filter(|_| segment.flags.contains(Flags::ACK)) {
            let shift = match (own.window_scale, peer.window_scale) {
                (Some(_), Some(shift)) if !segment.flags.contains(Flags::SYN) => shift.min(14),
                _ => 0,
            };
            own.edge = own.edge.max(segment.ack - iss + (u32::from(segment.window) << shift));
        } else if segment.flags.contains(Flags::SYN) {
            own.edge = own.edge.max(1 + u32::from(segment.window));
        }
    }

    pub(crate) fn on_transmit(&mut self, from: Side, transmit: &Transmit, connection: &Connection) {
        let segment = &transmit.segment;
        let (own, peer) = self.accounts(from);
        if segment.flags.contains(Flags::SYN) {
            assert!(own.iss.is_none_or(|iss| iss == segment.seq), "the SYN has moved");
            own.iss = Some(segment.seq);
            own.window_scale = segment.options.window_scale;
        }
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if segment.flags.contains(Flags::ACK) {
            let acked = segment.ack - peer.iss.expect("an ACK before the SYN");
            assert!(acked <= own.contiguous(), "{from:?} acknowledges {acked}, has {:?}: {segment}", own.received);
        }
        own.check_sending(from, transmit, connection);
        own.check_size(&transmit.segment, &peer.config);
        check_connection(connection);
    }
}

impl Account {
    fn check_sending(&self, from: Side, transmit: &Transmit, connection: &Connection) {
        let Transmit { segment, reason, .. } = transmit;
        if segment.flags.contains(Flags::SYN) {
            return;
        }
        let start = segment.seq - self.iss.expect("a SYN came first");
        let exact = (start as usize..).zip(&segment.payload).all(|(n, &byte)| byte == stream_byte(n - 1));
        assert!(exact, "{from:?} sends something that was not written: {segment}");
        if segment.seq_len() > 0 {
            let beyond = u32::from(*reason == Reason::WindowProbe);
            let edge = self.edge + beyond;
            assert!(
                start + segment.seq_len() <= edge,
                "{from:?} sends beyond {edge} ({reason}): {segment} from {start}"
            );
        }
        if matches!(reason, Reason::NewData | Reason::LimitedTransmit | Reason::SillyWindowOverride)
            && !segment.payload.is_empty()
        {
            let (in_flight, cwnd) = (connection.in_flight(), connection.cwnd());
            assert!(
                in_flight <= cwnd,
                "{from:?} has {in_flight} segments in flight with a window of {cwnd}: {segment}"
            );
        }
    }

    fn check_size(&self, segment: &Segment, peer: &Config) {
        let options = segment.options.wire_len();
        assert!(options <= Segment::MAX_OPTIONS_LEN, "{options} bytes of options: {segment}");
        let mss = usize::from(self.config.mss.min(peer.mss));
        let len = segment.payload.len();
        assert!(len <= 1 || len + options <= mss, "{len} and {options} bytes with an MSS of {mss}: {segment}");
    }
}

/// Invariants of every connection at any time.
pub(crate) fn check_connection(connection: &Connection) {
    connection.assert_invariants();
    let config = connection.config();
    let held = connection.receive_buffer_len();
    assert!(held <= config.receive.max_buffer_bytes as usize, "{held} bytes are held");
    // Sequence numbers of SYN, FIN and the byte of a probe.
    let queued = connection.send_queue_len();
    assert!(queued <= config.send.max_buffer_bytes as usize + 3, "{queued} bytes are queued");
    assert!(connection.unacked() as usize <= queued + 1, "{} records for {queued} bytes", connection.unacked());
    let (rto, limits) = (connection.rto(), &config.rto);
    // Before the first sample the RTO is the initial one; RFC 6298 section 5.7 falls back to 3 s after a lost SYN.
    if connection.srtt().is_some() {
        assert!(rto >= limits.min.min(limits.max), "RTO of {rto}");
    }
    assert!(rto <= limits.max.max(limits.initial), "RTO of {rto}");
}
