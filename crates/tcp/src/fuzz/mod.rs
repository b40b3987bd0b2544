//! Fuzz targets as ordinary functions, called by a fuzzer with its input and by the tests with the committed corpus in
//! `fuzz/corpus/`. They panic if an invariant is violated, or if a shortcut of a transfer does anything else than the steps that it stands for.
//!
//! Each target reads its input as a program: a configuration, then operations until the bytes end. Any bytes are a
//! valid program.

mod endpoint;
mod hostile;
mod input;
mod operations;
#[cfg(test)]
mod shortcuts;

pub use endpoint::hostile_packets;
pub use hostile::hostile_segments;
pub use operations::operations;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::Segment;

use crate::config::BeyondWindow;
use crate::connection::{Connection, Transmit};
use crate::timers::Timer;

/// More than this is never sent in answer to one thing, whatever the window: then something goes round in circles.
const MOST_SEGMENTS: usize = 20_000;

/// The byte at `position` of every stream.
fn stream_byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn stream(from: u64, len: usize) -> Bytes {
    (from..from + len as u64).map(stream_byte).collect::<Vec<u8>>().into()
}

/// Everything that `connection` wants to send now.
fn drain(connection: &mut Connection, now: Instant) -> Vec<Transmit> {
    let mut sent = Vec::new();
    while let Some(transmit) = connection.poll_transmit_both_ways(now) {
        check(connection);
        let options = transmit.segment.options.wire_len();
        assert!(options <= Segment::MAX_OPTIONS_LEN, "{options} bytes of options");
        sent.push(transmit);
        assert!(sent.len() < MOST_SEGMENTS, "sending never ends");
    }
    while connection.poll_event().is_some() {}
    sent
}

/// Handles the deadlines due at `now`, and checks that none stays in the past.
fn expire(connection: &mut Connection, now: Instant, mut sent: impl FnMut(Transmit)) {
    // Each round handles every timer at most once; a timer that is armed for at once by another takes one more.
    for _ in 0..=Timer::COUNT {
        connection.handle_timeout(now);
        check(connection);
        drain(connection, now).into_iter().for_each(&mut sent);
        if connection.poll_timeout().is_none_or(|(at, _)| at > now) {
            return;
        }
    }
    panic!("a deadline stays in the past: {:?} at {now}", connection.poll_timeout());
}

/// Checks the invariants of every connection.
fn check(connection: &Connection) {
    connection.assert_invariants();
    let config = connection.config();
    let held = connection.receive_buffer_len();
    let buffer = config.receive.max_buffer_bytes.max(config.receive.buffer_bytes) as usize;
    // The last segment may reach beyond the window.
    let beyond = if config.receive.beyond_window == BeyondWindow::WholeIfRead { usize::from(u16::MAX) } else { 0 };
    assert!(held <= buffer + beyond, "{held} bytes are held");
    let queued = connection.send_queue_len();
    // SYN, FIN and the byte of a probe.
    assert!(queued <= config.send.max_buffer_bytes as usize + 3, "{queued} bytes are queued");
    assert!(connection.unacked() as usize <= queued + 1, "{} records for {queued} bytes", connection.unacked());
    let (rto, limits) = (connection.rto(), &config.rto);
    assert!(connection.srtt().is_none() || rto >= limits.min.min(limits.max), "RTO of {rto}");
    assert!(rto <= limits.max.max(limits.initial), "RTO of {rto}");
}
