//! Buffers that are full while mobile hosts are away: the limits hold, and the hosts' transfers are exact afterwards.

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::demo::{Cut, Transfer, World};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("transfers_are_exact_after_full_buffers", |_| transfers("buffer")),
    ("transfers_are_exact_after_full_buffers_with_m_tcp", |_| transfers("m-tcp")),
    ("transfers_are_exact_after_full_buffers_with_buffer_freeze", |_| transfers("buffer-freeze")),
];

/// The limits for one mobile host, and for both.
const MOBILE_BYTES: u64 = 100_000;
const TOTAL_BYTES: u64 = 150_000;

/// Datagrams for a mobile host, which alone are more than its limit.
fn flood(world: &World, mobile: usize) {
    let bind = || UdpSocket::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap();
    let from = world.fixed().enter(bind).unwrap();
    for number in 0..200 {
        from.send_to(&[0; 1000], SocketAddr::new(world.mobile_address(mobile), 9)).unwrap();
        if number % 50 == 49 {
            sleep(Duration::from_millis(1));
        }
    }
}

// Claim: Buffers that are full during an absence of 2 s, by downloads and floods of datagrams to two mobile hosts: the bytes that
// wait never exceed the limits, what is dropped is counted, and downloads and an upload go on afterwards, byte-exact, with
// `buffer`, `m-tcp` and `buffer-freeze`; nothing is left behind.
fn transfers(mode: &str) {
    let world = World::with_round_trip(2, holdover_base::Duration::from_millis(40)).unwrap();
    let sections =
        format!("[mobiles]\nmode = \"{mode}\"\n[buffer]\nmobile_bytes = {MOBILE_BYTES}\ntotal_bytes = {TOTAL_BYTES}\n");
    let gateway = Gateway::start(world.router(), &sections);
    let mobiles = [0, 1].map(|number| world.mobile_address(number));
    let transfers = [(0, false), (1, false), (0, true)]
        .map(|(mobile, is_upload)| Transfer::start(&world, mobile, is_upload).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    world.set_cut(Cut::Carrier, true).unwrap();
    mobiles.into_iter().for_each(|mobile| _ = gateway.says(mobile, "away"));
    [0, 1].into_iter().for_each(|mobile| flood(&world, mobile));
    let away_at = Instant::now();
    let mut most = 0;
    while away_at.elapsed() < Duration::from_secs(2) {
        most = most.max(gateway.status().waiting_bytes);
        assert!(most <= TOTAL_BYTES, "{mode}: {most} bytes wait");
        for mobile in mobiles {
            let waiting = gateway.mobile(mobile).unwrap().waiting_bytes;
            assert!(waiting <= MOBILE_BYTES, "{mode}: {waiting} bytes wait for {mobile}");
        }
        sleep(Duration::from_millis(20));
    }
    let full = gateway.status().buffer;
    assert!(most > TOTAL_BYTES * 3 / 4, "{mode}: {most} bytes were the most");
    assert!(full.mobile_full + full.total_full + full.evicted >= 200, "{mode}: {full:?}");
    world.set_cut(Cut::Carrier, false).unwrap();
    mobiles.into_iter().for_each(|mobile| _ = gateway.says(mobile, "present"));
    let back_at = Instant::now();
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    eprintln!("{mode}: all go on within {:?}; {full:?}", back_at.elapsed());
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    wait_for("empty buffers", || (gateway.status().waiting == 0).then_some(()));
    let status = gateway.status();
    let buffer = status.buffer;
    assert_eq!(buffer.queued, buffer.released + buffer.evicted + buffer.aged + buffer.forgotten, "{mode}: {status:?}");
    assert_eq!(gateway.files(), 0, "{mode}");
}
