//! The window, controlled by the reader and by the owner's verbs.

use std::io::Read as _;
use std::net::SocketAddr;

use holdover_base::{ByteCount, Duration, Instant};
use holdover_tcp::{Event, Reason};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{Counters, KernelListener, KernelStream, Namespace, Shell, SocketOptions, TcpInfo, Waker};

use super::{KERNEL, LIMIT, OURS, Ours, PORT, assert_equal, config, is_over, open, options, run, ticking, with_delay};
use crate::Test;

pub(super) const TESTS: &[Test] = &[
    ("the_kernels_reader_pauses", the_kernels_reader_pauses),
    ("our_reader_pauses", our_reader_pauses),
    ("our_window_shrinks_over_data_in_flight", our_window_shrinks_over_data_in_flight),
];

/// The kernel connects, sends all of `source` and waits for our side to close; our side is woken repeatedly.
fn connect_and_send(namespace: &Namespace, waker: &Waker, source: &mut Source) -> TcpInfo {
    let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
    ticking(waker, || {
        source.write_to(&mut stream).unwrap();
        stream.shutdown_write().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    stream.tcp_info().unwrap()
}

/// Our zero-window probes are answered, and the transfer resumes when the reader does.
fn the_kernels_reader_pauses(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let small = SocketOptions { recv_buffer: Some(ByteCount(16_384)), ..options() };
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &small).unwrap();
    let before = Counters::read(namespace).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(4, 400_000), Sink::new(4));
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        // Long enough for three probes, after about 0.2, 0.6 and 1.4 s.
        std::thread::sleep(std::time::Duration::from_millis(1_700));
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, |now, ours| ours.pump(now, &mut source), kernel_side, is_over);
    assert_equal(&source, &sink);
    let probes: Vec<_> = ours.sent_for(Reason::WindowProbe).map(|(at, ..)| *at).collect();
    assert!((2..=4).contains(&probes.len()), "{probes:?}");
    let waits: Vec<_> = probes.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
    assert!(waits.is_sorted() && waits[0] >= Duration::from_millis(350), "each wait is twice the last: {waits:?}");
    assert_eq!(ours.get().unwrap().counters().timeouts, 0, "a closed window is no loss");
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert_eq!(counted.get("TcpExtTCPZeroWindowDrop"), Some(0));
    assert!(counted.get("TcpExtTCPToZeroWindowAdv").unwrap() >= 1, "{counted:?}");
}

/// The kernel probes our zero window, and resumes when our reader does.
fn our_reader_pauses(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let mut config = config();
    config.receive.max_buffer_bytes = config.receive.buffer_bytes;
    let mut ours = Ours::listen(config);
    let before = Counters::read(namespace).unwrap();
    let (mut source, mut sink) = (Source::new(5, 400_000), Sink::new(5));
    let mut closed_at = None;
    let turn = |now: Instant, ours: &mut Ours| {
        if ours.get().is_some_and(|connection| connection.readable_len() >= 60_000) {
            closed_at.get_or_insert(now);
        }
        if closed_at.is_some_and(|at| now.saturating_since(at) > Duration::from_millis(1_700)) {
            ours.drain(now, &mut sink);
            if ours.has(Event::PeerClosed) {
                ours.connection().shutdown_write();
            }
        }
    };
    let waker = shell.waker();
    let kernel_side = || connect_and_send(namespace, &waker, &mut source);
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert!(counted.get("TcpExtTCPWinProbe").unwrap() >= 2, "{counted:?}");
    assert_eq!(counted.get("TcpExtTCPTimeouts"), Some(0), "a closed window is no loss");
}

/// The window is shrunk over data in flight: all of it is accepted nevertheless, and nothing is lost when the window
/// opens again.
fn our_window_shrinks_over_data_in_flight(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(40));
    let mut ours = Ours::listen(config());
    let (mut source, mut sink) = (Source::new(6, 1 << 20), Sink::new(6));
    let (mut acked_at, mut shrunk_at) = (None, None);
    let mut opened = false;
    let turn = |now: Instant, ours: &mut Ours| {
        ours.drain(now, &mut sink);
        if acked_at.is_none() && sink.digest().len > 100_000 {
            acked_at = Some(now);
        }
        // The ACKs of that data are in flight. They will make the kernel send before it sees the window close.
        if let Some(at) = acked_at.filter(|_| shrunk_at.is_none())
            && now.saturating_since(at) > Duration::from_millis(10)
        {
            shrunk_at = Some((now, ours.connection().rcv_nxt()));
            ours.connection().clamp_window(Some(0));
            ours.connection().send_acks(1);
        }
        if let Some((at, rcv_nxt)) = shrunk_at.filter(|_| !opened)
            && now.saturating_since(at) > Duration::from_millis(700)
        {
            opened = true;
            assert!(ours.connection().rcv_nxt().gt(rcv_nxt), "what was in flight has arrived");
            ours.connection().clamp_window(None);
            ours.connection().send_acks(1);
        }
        if ours.has(Event::PeerClosed) {
            ours.connection().shutdown_write();
        }
    };
    let waker = shell.waker();
    let kernel_side = || connect_and_send(namespace, &waker, &mut source);
    let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert!(opened, "the window was shrunk and opened");
    assert_equal(&source, &sink);
    assert_eq!(info.tcpi_probes, 0, "{info:?}");
}
