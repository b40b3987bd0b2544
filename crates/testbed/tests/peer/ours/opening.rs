//! Opening a connection.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::Duration;
use holdover_tcp::{ConnectionError, Event, State};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{KernelStream, Namespace, Shell, SocketError, SocketOptions, Stopped};

use super::{KERNEL, LIMIT, OURS, Ours, PORT, assert_equal, config, endpoint, is_over, open, options, run, with_delay};
use crate::Test;

pub(super) const TESTS: &[Test] = &[
    ("the_kernel_refuses_our_connection", the_kernel_refuses_our_connection),
    ("we_refuse_the_kernels_connection", we_refuse_the_kernels_connection),
    ("opened_by_both_at_once", opened_by_both_at_once),
];

fn the_kernel_refuses_our_connection(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours::connect(config(), SocketAddr::new(KERNEL, PORT));
    run(&mut shell, &mut ours, |_, _| {}, || (), is_over);
    assert_eq!(ours.get().unwrap().error(), Some(ConnectionError::Refused));
    assert_eq!(ours.sent.len(), 1, "a SYN and nothing else: {:?}", ours.sent);
}

fn we_refuse_the_kernels_connection(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let mut endpoint = endpoint();
    let connecting = || KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options(), LIMIT).unwrap_err();
    let stopped = shell.run_beside(&mut endpoint, LIMIT, |_, _| {}, connecting).unwrap();
    let Stopped::ByApplication(error) = stopped else { panic!("no answer") };
    assert!(
        matches!(&error, SocketError::Failed { call: "connect", source } if source.kind() == ErrorKind::ConnectionRefused),
        "{error:?}"
    );
}

/// The SYNs cross in flight (RFC 9293 section 3.5, figure 7). Then data flows both ways.
fn opened_by_both_at_once(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(300));
    let mut ours = Ours { id: None, ..Ours::listen(config()) };
    ours.endpoint.unlisten(PORT);
    let (our_address, kernel_address) = (SocketAddr::new(OURS, PORT), SocketAddr::new(KERNEL, 6001));
    let (mut source, mut sink) = (Source::new(3, 100_000), Sink::new(3));
    let has_begun = AtomicBool::new(false);
    let turn = |now, ours: &mut Ours| {
        // At this time the kernel's SYN is in flight.
        if ours.id.is_none() && has_begun.load(Ordering::SeqCst) {
            let id = ours.endpoint.connect(now, Arc::new(config()), Some(our_address), kernel_address).unwrap();
            ours.id = Some(id);
        }
        if ours.has(Event::Connected) {
            ours.pump(now, &mut source);
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let options = SocketOptions { local: Some(kernel_address), ..options() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                has_begun.store(true, Ordering::SeqCst);
                waker.wake();
            });
            let mut stream = KernelStream::connect(namespace, our_address, &options, LIMIT).unwrap();
            sink.read_from(&mut stream).unwrap();
        });
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    assert!(ours.states.starts_with(&[State::SynSent, State::SynReceived, State::Established]), "{:?}", ours.states);
}
