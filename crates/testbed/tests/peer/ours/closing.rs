//! Ending a connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::Duration;
use holdover_tcp::{ConnectionError, Event, State};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{Counters, KernelListener, KernelStream, Namespace, Shell, TcpState};

use super::{KERNEL, LIMIT, OURS, Ours, PORT, assert_equal, config, is_over, open, options, run, with_delay};
use crate::Test;

pub(super) const TESTS: &[Test] = &[
    ("the_kernel_takes_our_reset", the_kernel_takes_our_reset),
    ("we_take_the_kernels_reset", we_take_the_kernels_reset),
    ("half_closed_by_the_kernel", half_closed_by_the_kernel),
    ("half_closed_by_us", half_closed_by_us),
    ("closed_by_both_at_once", closed_by_both_at_once),
];

fn the_kernel_takes_our_reset(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let before = Counters::read(namespace).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let has_accepted = AtomicBool::new(false);
    let turn = |_, ours: &mut Ours| {
        if ours.has(Event::Connected) && has_accepted.load(Ordering::SeqCst) {
            ours.connection().abort();
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        has_accepted.store(true, Ordering::SeqCst);
        waker.wake();
        let error = stream.read(&mut [0]).unwrap_err().kind();
        (error, stream.tcp_info().unwrap().tcpi_state)
    };
    let (error, state) = run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_eq!((error, state), (ErrorKind::ConnectionReset, TcpState::Closed));
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Aborted));
    let counted = Counters::read(namespace).unwrap().since(&before);
    assert_eq!(counted.get("TcpEstabResets"), Some(1));
    assert_eq!(counted.get("TcpExtTCPChallengeACK"), Some(0), "at its left edge");
}

fn we_take_the_kernels_reset(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours::listen(config());
    let kernel_side = || {
        let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
        stream.write_all(b"before the reset").unwrap();
        stream.abort().unwrap();
    };
    run(&mut shell, &mut ours, |_, _| {}, kernel_side, is_over);
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Reset));
    assert!(ours.has(Event::Closed) && !ours.has(Event::PeerClosed), "{:?}", ours.events);
}

/// The kernel closes its side at once; our side continues to send.
fn half_closed_by_the_kernel(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(5));
    let mut ours = Ours::listen(config());
    let (mut source, mut sink) = (Source::new(1, 500_000), Sink::new(1));
    let turn = |now, ours: &mut Ours| {
        if ours.has(Event::PeerClosed) {
            ours.pump(now, &mut source);
        }
    };
    let kernel_side = || {
        let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap();
        stream.shutdown_write().unwrap();
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.ends_with(&[State::CloseWait, State::LastAck, State::Closed]), "{:?}", ours.states);
    assert_eq!(ours.get().unwrap().error(), None);
}

/// The same with the roles reversed.
fn half_closed_by_us(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(5));
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(2, 500_000), Sink::new(2));
    let turn = |now, ours: &mut Ours| {
        if ours.has(Event::Connected) {
            ours.connection().shutdown_write();
        }
        ours.drain(now, &mut sink);
    };
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "our side has closed");
        assert_eq!(stream.tcp_info().unwrap().tcpi_state, TcpState::CloseWait);
        source.write_to(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.ends_with(&[State::FinWait1, State::FinWait2, State::TimeWait]), "{:?}", ours.states);
}

/// The FINs cross in flight, as the delay is longer than the time until both have closed.
fn closed_by_both_at_once(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(300));
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    let has_closed = AtomicBool::new(false);
    let turn = |_, ours: &mut Ours| {
        if has_closed.load(Ordering::SeqCst) {
            ours.connection().shutdown_write();
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let stream = listener.accept(LIMIT).unwrap();
        stream.shutdown_write().unwrap();
        has_closed.store(true, Ordering::SeqCst);
        waker.wake();
        loop {
            if stream.tcp_info().unwrap().tcpi_state == TcpState::Closed {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    let passed = [State::FinWait1, State::Closing, State::TimeWait];
    assert!(ours.states.ends_with(&passed), "{:?}", ours.states);
}
