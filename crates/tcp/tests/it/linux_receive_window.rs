//! The window that the Linux profiles advertise: its growth, and segments that reach beyond it.

use holdover_tcp::{BeyondWindow, Config, Disposition, Reason, State};

use crate::linux_profiles::linux_6;
use crate::script::*;

/// The advertised window begins small and grows by two segments for each arriving one.
#[test]
fn linux_the_advertised_window_grows() {
    let mut config = linux_6();
    config.receive.initial_window_bytes = 10_000;
    let mut t = Script::established(config);
    let mut edge = 10_001;
    for n in 1..=10 {
        t.inject(seg().data(1000));
        t.read(1000);
        let sent = t.take_sent();
        let now = 1 + n * 1000 + i64::from(sent.window);
        assert_eq!(now - edge, 3000, "the segment that was read, and two more");
        edge = now;
        t.forget_sent();
    }
}

/// Segments of up to 1460 bytes and a window scale of 10.
fn scaled(sack: bool) -> Script {
    Script::established(Config { mss: 1460, window_scale: Some(10), sack, ..linux_6() })
}

/// The advertised window after `count` segments of `len` bytes, each of which is read at once, in units of 1024 bytes.
fn window_after(t: &mut Script, len: usize, count: usize) -> u16 {
    let mut window = 0;
    for _ in 0..count {
        t.inject(seg().data(len));
        t.read(len);
        window = t.take_sent().window;
        t.forget_sent();
    }
    window
}

/// The buffer counts memory: segments of 1448 bytes fill 160 256ths of it, so that 128 KiB of memory give a window of 81,920
/// bytes minus the segment that has not been read (the kernel's `rcv_ssthresh=80480`). A shorter segment before them has no
/// effect.
#[test]
fn linux_6_the_largest_segment_shows_how_much_data_the_buffer_holds() {
    let mut t = scaled(true);
    assert_eq!(window_after(&mut t, 1448, 8), (80_472_u32 >> 10) as u16);
    let mut t = scaled(true);
    window_after(&mut t, 700, 1);
    assert_eq!(window_after(&mut t, 1448, 8), (80_472_u32 >> 10) as u16);
}

/// Segments with less than 128 bytes of data leave the window unchanged (`tcp_event_data_recv`).
#[test]
fn linux_small_segments_do_not_open_the_window() {
    let mut t = Script::established(Config { mss: 1460, ..linux_6() });
    assert_eq!(window_after(&mut t, 127, 10), 64_240);
    assert_eq!(window_after(&mut t, 128, 1), 64_240 + 2 * 536, "two segments of the size that is assumed at first");
}

/// Data beyond a hole lets the buffer grow, and the window with it.
#[test]
fn linux_6_data_beyond_a_hole_lets_the_buffer_grow() {
    let mut t = scaled(true);
    let mut window = 0;
    for n in 0..4 {
        t.inject(seg().seq(50_001 + n * 1448).data(1448));
        window = t.take_sent().window;
        t.forget_sent();
    }
    assert!(window > 66, "{window} KiB");
}

/// ... but not segments out of order if SACK was not agreed: their ACKs would not count as duplicates.
#[test]
fn linux_without_sack_the_advertised_window_stays_beyond_a_hole() {
    for sack in [false, true] {
        let mut config = linux_6();
        config.sack = sack;
        config.receive.initial_window_bytes = 10_000;
        let mut t = Script::established(config);
        for n in 1..=4 {
            t.inject(seg().seq(1 + n * 1000).data(1000));
            let sent = t.take_sent();
            let grown = if sack { 2000 * n as u16 } else { 0 };
            assert_eq!((sent.ack, sent.window), (t.connection.rcv_nxt(), 10_000 + grown), "SACK {sack}");
        }
    }
}

fn with_a_window_of(bytes: u32) -> Config {
    let mut config = linux_6();
    config.receive.buffer_bytes = bytes;
    config.receive.max_buffer_bytes = bytes;
    config.receive.initial_window_bytes = bytes;
    config
}

/// `tcp_sequence`: a segment that reaches beyond the window is taken whole if nothing waits to be read, and refused otherwise.
#[test]
fn linux_6_takes_a_segment_beyond_the_window_whole() {
    let mut t = Script::established(with_a_window_of(10_000));
    t.inject(seg().data(12_000));
    assert_eq!(t.rcv_nxt(), 12_001);
    t.forget_sent();
    t.read(12_000);
    t.forget_sent();
    t.inject(seg().data(1000));
    t.forget_sent();
    t.inject_as(Disposition::OutsideWindow, seg().data(12_000));
    t.expect(ack(13_001).reason(Reason::ChallengeAck));
    t.inject_as(Disposition::OutsideWindow, seg().seq(14_001).data(12_000));
    t.expect(ack(13_001).reason(Reason::ChallengeAck));
    // Other stacks take what fits.
    let mut config = with_a_window_of(10_000);
    config.receive.beyond_window = BeyondWindow::Cut;
    let mut t = Script::established(config);
    t.inject(seg().data(1000));
    t.forget_sent();
    t.inject(seg().data(12_000));
    assert_eq!(t.rcv_nxt(), 10_001);
    t.forget_sent();
}

/// `tcp_data_queue`: a FIN alone is taken although the window is closed, and acknowledged at once.
#[test]
fn linux_6_takes_a_fin_into_a_closed_window() {
    let mut t = Script::established(with_a_window_of(10_000));
    t.inject(seg().data(12_000));
    t.forget_sent();
    t.inject(fin());
    t.expect(ack(12_002).win(0).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.read(12_000);
    t.forget_sent();
}
