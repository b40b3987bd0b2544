//! Extensions: the user timeout option (RFC 5482), long connectivity disruptions (RFC 6069), Fast Open (RFC 7413).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::Duration;
use holdover_tcp::{Reason, State, Timer};
use holdover_testbed::matrix::{Sink, Source};
use holdover_testbed::{KernelListener, KernelStream, Namespace, Shell, SocketOptions, Tun, TunConfig, sysctl};

use super::{KERNEL, LIMIT, OURS, Ours, PORT, assert_equal, config, endpoint, is_over, open, options, run, with_delay};
use crate::Test;

pub(super) const TESTS: &[Test] = &[
    ("the_user_timeout_option_does_no_harm", the_user_timeout_option_does_no_harm),
    ("the_kernels_unreachable_takes_our_backoff_back", the_kernels_unreachable_takes_our_backoff_back),
    ("the_kernel_takes_data_in_our_syn", the_kernel_takes_data_in_our_syn),
    ("we_take_data_in_the_kernels_syn", we_take_data_in_the_kernels_syn),
];

/// `tcp_info`: data in the SYN was accepted.
const TCPI_OPT_SYN_DATA: u8 = 32;

/// RFC 5482: Linux ignores the option, in SYNs and later.
fn the_user_timeout_option_does_no_harm(namespace: &Namespace) {
    let tun = open(namespace);
    let mut shell = Shell::new(&tun).unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut config = config();
    config.user_timeout.advertise = Some(Duration::from_secs(300));
    let mut ours = Ours::connect(config, SocketAddr::new(KERNEL, PORT));
    let (mut source, mut sink) = (Source::new(7, 200_000), Sink::new(7));
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        sink.read_from(&mut stream).unwrap();
        stream.tcp_info().unwrap()
    };
    let info = run(&mut shell, &mut ours, |now, ours| ours.pump(now, &mut source), kernel_side, is_over);
    assert_equal(&source, &sink);
    let with_option: Vec<_> = ours.sent.iter().filter(|(.., segment)| segment.options.user_timeout.is_some()).collect();
    assert_eq!(with_option.len(), 2, "the SYN and one segment after it: {with_option:?}");
    assert_eq!(with_option[0].1, Reason::Syn);
    assert_eq!(info.tcpi_options & 7, 7, "the other options are agreed on all the same");
}

/// RFC 6069: as long as the kernel, as a router without a route, reports the destination as unreachable, our
/// retransmissions do not back off.
fn the_kernels_unreachable_takes_our_backoff_back(namespace: &Namespace) {
    let behind: IpAddr = Ipv4Addr::new(10, 9, 0, 1).into();
    let tun = open(namespace);
    let open_behind = || Tun::open(namespace, &TunConfig::new("tun1", 1500).address(behind, 24)).unwrap();
    let mut behind_tun = Some(open_behind());
    sysctl::set(namespace, "net.ipv4.ip_forward", "1").unwrap();
    sysctl::set(namespace, "net.ipv4.icmp_ratelimit", "0").unwrap();
    let listener = KernelListener::bind(namespace, (behind, PORT).into(), &options()).unwrap();
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(2));
    let mut ours = Ours::connect(config(), SocketAddr::new(behind, PORT));
    let (is_down, is_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut source, mut sink) = (Source::new(8, 1_000), Sink::new(8));
    let mut backoffs = Vec::new();
    let turn = |now, ours: &mut Ours| {
        if is_down.load(Ordering::SeqCst) {
            ours.pump(now, &mut source);
            if !is_up.load(Ordering::SeqCst) {
                backoffs.push(ours.get().unwrap().backoff());
            }
        }
    };
    let waker = shell.waker();
    let kernel_side = || {
        let mut stream = listener.accept(LIMIT).unwrap();
        // The address is removed with its interface. (It would stay on an interface that is merely down.)
        behind_tun = None;
        is_down.store(true, Ordering::SeqCst);
        waker.wake();
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        behind_tun = Some(open_behind());
        is_up.store(true, Ordering::SeqCst);
        sink.read_from(&mut stream).unwrap();
    };
    run(&mut shell, &mut ours, turn, kernel_side, is_over);
    assert_equal(&source, &sink);
    let timeouts: Vec<_> = ours.sent_for(Reason::Timeout).map(|(at, ..)| *at).collect();
    // Doubling from 0.2 s leaves room for three timeouts in 1.5 s.
    assert!(timeouts.len() >= 4, "{timeouts:?}");
    // A router sends five such errors at once, and then one a second. On a slow machine one may arrive in the same turn as
    // the timeout, and is not visible here; that there were four timeouts shows that it arrived.
    assert!(backoffs.windows(2).any(|pair| pair[1] < pair[0]), "{backoffs:?}");
    assert_eq!(ours.get().unwrap().deadline(Timer::Retransmit), None);
}

/// RFC 7413: the kernel sends us a cookie, and accepts data in a SYN with that cookie; it replaces an unknown cookie.
fn the_kernel_takes_data_in_our_syn(namespace: &Namespace) {
    let tun = open(namespace);
    // Client, server, and every listener.
    sysctl::set(namespace, "net.ipv4.tcp_fastopen", "0x403").unwrap();
    let listener = KernelListener::bind(namespace, (KERNEL, PORT).into(), &options()).unwrap();
    let mut shell = Shell::new(&tun).unwrap();
    let mut ours = Ours { endpoint: endpoint(), id: None, events: Vec::new(), sent: Vec::new(), states: Vec::new() };
    for (attempt, in_syn, is_taken) in
        [("first", 0, false), ("with a cookie", 500, true), ("with a stale cookie", 500, false)]
    {
        if attempt == "with a stale cookie" {
            sysctl::set(namespace, "net.ipv4.tcp_fastopen_key", "1-2-3-4").unwrap();
        }
        let (mut source, mut sink) = (Source::new(11, 500), Sink::new(11));
        ours.id = None;
        ours.events.clear();
        let turn = |now, ours: &mut Ours| {
            if ours.id.is_none() {
                let to = SocketAddr::new(KERNEL, PORT);
                let data = source.peek(500);
                let opened = ours.endpoint.connect_fast_open(now, Arc::new(config()), None, to, data.clone().into());
                let (id, taken) = opened.unwrap();
                assert_eq!(taken, in_syn, "{attempt}");
                source.advance(&data[..taken]);
                ours.id = Some(id);
            }
            ours.pump(now, &mut source);
        };
        let kernel_side = || {
            let mut stream = listener.accept(LIMIT).unwrap();
            sink.read_from(&mut stream).unwrap();
            stream.tcp_info().unwrap()
        };
        let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
        assert_equal(&source, &sink);
        assert_eq!(info.tcpi_options & TCPI_OPT_SYN_DATA != 0, is_taken, "{attempt}: {info:?}");
        assert_eq!(ours.get().unwrap().syn_data_taken(), is_taken, "{attempt}");
        let id = ours.id.unwrap();
        ours.endpoint.withdraw(id);
    }
}

/// The same with the roles reversed: our cookie, the kernel's data, and our answer before the handshake ends.
fn we_take_data_in_the_kernels_syn(namespace: &Namespace) {
    let tun = open(namespace);
    sysctl::set(namespace, "net.ipv4.tcp_fastopen", "1").unwrap();
    // The handshake takes a while to complete.
    let mut shell = with_delay(Shell::new(&tun).unwrap(), Duration::from_millis(20));
    let mut config = config();
    config.fast_open.max_pending = 5;
    let mut ours = Ours::listen(config);
    for (attempt, is_taken) in [("first", false), ("with a cookie", true)] {
        let (mut request, mut heard) = (Source::new(12, 300), Sink::new(12));
        let (mut answer, mut read) = (Source::new(13, 4_000), Sink::new(13));
        let mut is_answered_early = false;
        ours.id = None;
        ours.events.clear();
        let turn = |now, ours: &mut Ours| {
            ours.drain(now, &mut heard);
            let may_answer =
                ours.get().is_some_and(|connection| connection.was_early() || connection.state().may_send());
            if may_answer && heard.digest().len == 300 && answer.remaining() > 0 {
                let chunk = answer.peek(4_000);
                let written = ours.connection().write(now, chunk.clone().into());
                answer.advance(&chunk[..written]);
                ours.connection().shutdown_write();
                is_answered_early = ours.connection().state() == State::SynReceived;
            }
        };
        let kernel_side = || {
            let options = SocketOptions { fast_open_connect: true, ..options() };
            let mut stream = KernelStream::connect(namespace, SocketAddr::new(OURS, PORT), &options, LIMIT).unwrap();
            request.write_to(&mut stream).unwrap();
            stream.shutdown_write().unwrap();
            read.read_from(&mut stream).unwrap();
            stream.tcp_info().unwrap()
        };
        let info = run(&mut shell, &mut ours, turn, kernel_side, is_over);
        assert_equal(&request, &heard);
        assert_equal(&answer, &read);
        assert_eq!(info.tcpi_options & TCPI_OPT_SYN_DATA != 0, is_taken, "{attempt}: {info:?}");
        let connection = ours.get().unwrap();
        assert_eq!((connection.syn_data_taken(), connection.was_early()), (is_taken, is_taken), "{attempt}");
        assert_eq!(is_answered_early, is_taken, "{attempt}");
        let id = ours.id.unwrap();
        ours.endpoint.withdraw(id);
    }
}
