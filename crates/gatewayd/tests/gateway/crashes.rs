//! Daemons that are killed, hang, or are told to end.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;
use rustix::process::Signal;

use crate::Test;
use crate::process::Gateway;
use holdover_testbed::gateway::{Cut, Transfer, World};

pub(crate) const TESTS: &[Test] = &[
    ("killed_while_all_are_present", killed_while_all_are_present),
    ("killed_while_one_is_away", killed_while_one_is_away),
    ("state_of_connections_outlives_a_kill", state_of_connections_outlives_a_kill),
    ("freeze_leaves_no_link_down_after_a_kill", |_| killed_while_frozen("freeze")),
    ("buffer_freeze_leaves_no_link_down_after_a_kill", |_| killed_while_frozen("buffer-freeze")),
    ("m_tcp_leaves_no_link_down_after_a_kill", |_| killed_while_frozen("m-tcp")),
    ("frozen_connections_outlive_the_fixed_hosts_limit_and_a_kill", killed_while_frozen_for_long),
    ("another_mode_begins_anew_after_a_kill", another_mode),
    ("a_start_that_fails_leaves_no_programs_behind", a_start_that_fails),
    ("many_transfers_survive_kills_at_random_moments", many_transfers),
    ("another_layout_begins_anew_and_a_good_end_leaves_nothing", another_layout),
    ("a_daemon_that_hangs_lets_packets_pass", a_daemon_that_hangs_lets_packets_pass),
    ("draining_ends_when_the_last_packet_has_left", draining_ends_when_the_last_packet_has_left),
    ("told_to_end_while_one_is_away", told_to_end_while_one_is_away),
];

// Claim: `kill -9` three times during a download and an upload: both go on without the daemon and with the next, byte-exact.
// While a host is away: the next process takes over what waits and goes on diverting; also if the host returned in between.
// Tests: `crashes::killed_while_one_is_away`
fn killed_while_all_are_present(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let transfers = [false, true].map(|is_upload| Transfer::start(&world, 0, is_upload).unwrap());
    for _ in 0..3 {
        transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
        gateway.kill();
        let killed_at = Instant::now();
        transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
        assert!(killed_at.elapsed() < Duration::from_secs(5), "transfers go on without it: {:?}", killed_at.elapsed());
        gateway.restart();
    }
    for transfer in transfers {
        transfer.await_more(500_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}

fn killed_while_one_is_away(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(1_000_000).unwrap();
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(mobile, "away");
    sleep(Duration::from_millis(1500));
    let before = gateway.mobile(mobile).unwrap();
    assert!(before.waiting > 0 && gateway.files() == 1, "{before:?}");
    gateway.kill();
    sleep(Duration::from_millis(300));
    gateway.restart();
    let after = gateway.mobile(mobile).unwrap();
    assert!(after.waiting >= before.waiting && after.diverts && after.standing == "away", "{before:?} {after:?}");
    let took = transfer.resumes(|| world.set_cut(Cut::Carrier, false).unwrap()).unwrap();
    eprintln!("killed while away: {} packets were taken over; data {took:?} after the return", before.waiting);
    assert!(took < Duration::from_millis(2500), "{took:?}");
    transfer.await_more(1_000_000).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!(gateway.files(), 0);

    // The mobile host returns before the next process has started.
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    sleep(Duration::from_secs(1));
    gateway.kill();
    world.set_cut(Cut::Silent, false).unwrap();
    transfer.await_more(500_000).unwrap();
    gateway.restart();
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    gateway.says(mobile, "present");
    assert_eq!((gateway.status().waiting, gateway.files()), (0, 0));
}

// Claim: What is known of connections outlives a `kill -9`: the next process takes over the programs' counters, the host's
// Ethernet address and its absence, and an upload goes on within 1.5 s of a return, half a second or more before its own timer. 1,000 transfers over
// four mobile hosts, of which one comes and goes, and 8 kills at random moments: every byte as it was sent, and nothing left
// behind. Another layout begins anew, as another mode does, and neither a good end nor a start that fails leaves programs.
// Tests: `crashes::many_transfers`, `crashes::another_layout`, `crashes::another_mode`, `crashes::a_start_that_fails`
fn state_of_connections_outlives_a_kill(_: &Namespace) {
    let world = World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let upload = Transfer::start(&world, 0, true).unwrap();
    upload.await_more(2_000_000).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    let before = gateway.status();
    assert!(before.pinned && !before.taken_over && before.path.tcp > 0, "{before:?}");
    gateway.kill();
    sleep(Duration::from_millis(500));
    gateway.restart();
    let after = gateway.status();
    assert!(after.taken_over && after.path.tcp >= before.path.tcp, "{after:?}");
    let line = gateway.mobile(mobile).unwrap();
    assert!(line.diverts && line.standing == "away" && line.mac.is_some(), "{line:?}");
    // Without the gateway the mobile host would retransmit 2 s after its return.
    let waits_since = Instant::now();
    while upload.timer_left().unwrap() < Duration::from_secs(2) {
        assert!(waits_since.elapsed() < Duration::from_secs(30), "its timer is never that far off");
        sleep(Duration::from_millis(20));
    }
    let took = upload.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    eprintln!("killed during an absence: an upload goes on {took:?} after the return");
    assert!(took < Duration::from_millis(1500), "{took:?}, {:?}", gateway.status());
    upload.await_more(1_000_000).unwrap();
    upload.ends_exact().unwrap();
    // By an ACK that waited for the host, or by the controller.
    let status = gateway.status();
    let has_waited = status.path.released > after.path.released;
    assert!(has_waited || status.woken.released + status.woken.poked > 0, "{status:?}");
}

/// The daemon is killed while the mobile host is absent. The mobile host returns before the next process has started,
/// or after that.
// Claim: `kill -9` while a host is away, in `freeze`, `buffer-freeze` and `m-tcp`: the host returns before or after the next
// start, and a download and an upload go on, byte-exact. A controller opens windows that one before it has shut.
// Tests: `freeze::tests::another_controller_opens_windows_and_raises_a_link_that_the_one_before_has_left`
fn killed_while_frozen(mode: &str) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
    let mobile = world.mobile_address(0);
    let transfers = [false, true].map(|is_upload| Transfer::start(&world, 0, is_upload).unwrap());
    for returns_before in [true, false] {
        transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
        world.set_cut(Cut::Silent, true).unwrap();
        gateway.says(mobile, "away");
        sleep(Duration::from_millis(700));
        assert!(gateway.status().woken.frozen > 0, "{:?}", gateway.status());
        gateway.kill();
        if returns_before {
            world.set_cut(Cut::Silent, false).unwrap();
            sleep(Duration::from_millis(300));
            gateway.restart();
        } else {
            gateway.restart();
            assert_eq!(gateway.mobile(mobile).unwrap().standing, "away", "{mode}");
            world.set_cut(Cut::Silent, false).unwrap();
        }
        assert!(gateway.status().taken_over, "{mode}");
        gateway.says(mobile, "present");
        let back_at = Instant::now();
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
        eprintln!("{mode}, killed while away: both ways go on within {:?}", back_at.elapsed());
        assert!(back_at.elapsed() < Duration::from_secs(15), "{mode}: {:?}", back_at.elapsed());
    }
    // The mobile host is present all the time.
    gateway.kill();
    gateway.restart();
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    gateway.says(mobile, "present");
}

// Claim: With `freeze`, `buffer-freeze` and `m-tcp` a download also outlives a long absence in which the daemon is killed and started anew.
fn killed_while_frozen_for_long(_: &Namespace) {
    let modes = ["freeze", "buffer-freeze", "m-tcp"].map(|mode| {
        std::thread::spawn(move || {
            let world = World::new(1).unwrap();
            // Linux gives up after some 13 s. It retransmits before the kill, and not again before the return.
            let limit = || std::fs::write("/proc/sys/net/ipv4/tcp_retries2", "5").unwrap();
            world.fixed().enter(limit).unwrap();
            let mut gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
            let transfer = Transfer::start(&world, 0, false).unwrap();
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(Cut::Silent, true).unwrap();
            gateway.says(world.mobile_address(0), "away");
            sleep(Duration::from_secs(16));
            gateway.kill();
            gateway.restart();
            assert!(gateway.status().taken_over, "{mode}");
            gateway.says(world.mobile_address(0), "away");
            sleep(Duration::from_secs(4));
            let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
            eprintln!("{mode}: data {took:?} after an absence of 20 s, killed after 16 s");
            transfer.await_more(1_000_000).unwrap();
            transfer.ends_exact().unwrap();
        })
    });
    // All end before one's failure counts.
    let ended = modes.map(|mode| mode.join().is_ok());
    assert_eq!(ended, [true; 3]);
}

/// State left behind by one mode is not used by another.
fn another_mode(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "[hold_back]\n");
    let mobile = world.mobile_address(0);
    let transfers = [false, true].map(|is_upload| Transfer::start(&world, 0, is_upload).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    gateway.kill();
    gateway.configure("[mobiles]\nmode = \"m-tcp\"\n");
    gateway.restart();
    assert!(!gateway.status().taken_over);
    world.set_cut(Cut::Silent, false).unwrap();
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}

fn a_start_that_fails(_: &Namespace) {
    let world = World::new(1).unwrap();
    let key = std::env::temp_dir().join(format!("holdover-crash-key-{}", std::process::id()));
    let write_key = || std::fs::write(&key, "07".repeat(32)).unwrap();
    write_key();
    // The router's address that the mobile host knows.
    let IpAddr::V4(mobile) = world.mobile_address(0) else { panic!("IPv4") };
    let [a, b, c, _] = mobile.octets();
    let sections =
        format!("[handoff]\nlisten = \"{a}.{b}.{c}.1:4787\"\nkey_file = {key:?}\npeers = [\"192.0.2.1:4787\"]\n");
    let mut gateway = Gateway::start(world.router(), &sections);
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    gateway.kill();
    std::fs::remove_file(&key).unwrap();
    assert!(!gateway.try_restart(), "it has no key");
    write_key();
    gateway.restart();
    assert!(!gateway.status().taken_over);
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    std::fs::remove_file(&key).unwrap();
}

/// 1,000 at 8 kB/s each, over four mobile hosts; one of them comes and goes.
fn many_transfers(_: &Namespace) {
    let world = World::new(4).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let pause = Duration::from_secs(1);
    let transfers: Vec<Transfer> =
        (0..1000).map(|number| Transfer::start_paced(&world, number % 4, number % 3 == 0, pause).unwrap()).collect();
    let mut random = holdover_base::Rng::new(20);
    let mut is_cut = false;
    for _ in 0..8 {
        sleep(Duration::from_millis(random.below(700)));
        if random.below(2) == 0 {
            is_cut = !is_cut;
            world.set_cut(Cut::Silent, is_cut).unwrap();
        }
        sleep(Duration::from_millis(random.below(500)));
        gateway.kill();
        sleep(Duration::from_millis(random.below(300)));
        gateway.restart();
        assert!(gateway.status().taken_over);
    }
    world.set_cut(Cut::Silent, false).unwrap();
    gateway.says(world.mobile_address(0), "present");
    let before: Vec<u64> = transfers.iter().map(Transfer::received).collect();
    let goes_on = || transfers.iter().zip(&before).all(|(transfer, before)| transfer.received() > *before);
    let began = Instant::now();
    while !goes_on() {
        assert!(began.elapsed() < holdover_testbed::gateway::LIMIT, "some do not go on");
        sleep(Duration::from_millis(10));
    }
    transfers.iter().for_each(Transfer::stop);
    let bytes: u64 = transfers.into_iter().map(|transfer| transfer.ends_exact().unwrap()).sum();
    let status = gateway.status();
    eprintln!("1,000 transfers, 8 kills: {bytes} bytes, each as it was sent; {:?}", status.path);
    assert_eq!((status.waiting, gateway.files()), (0, 0), "{status:?}");
}

fn another_layout(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    gateway.kill();
    gateway.configure("[hold_back]\nmost_connections = 1000\n");
    gateway.restart();
    let status = gateway.status();
    assert!(status.pinned && !status.taken_over, "{status:?}");
    transfer.await_more(500_000).unwrap();
    // The first process's pins are gone: the third process finds those of the second.
    gateway.kill();
    gateway.restart();
    assert!(gateway.status().taken_over);
    transfer.await_more(500_000).unwrap();
    gateway.signal(Signal::TERM);
    assert!(gateway.ends(Duration::from_secs(10)));
    gateway.restart();
    assert!(!gateway.status().taken_over, "a good end leaves no programs behind");
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
}

// Claim: A daemon that hangs (SIGSTOP) lets packets pass; when it goes on, so does everything.
fn a_daemon_that_hangs_lets_packets_pass(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    gateway.hang();
    world.set_cut(Cut::Silent, false).unwrap();
    // For 1.5 s packets are still diverted to a daemon that does not read them.
    let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = world.fixed().enter(bind(world.fixed_address())).unwrap();
    into.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let began = Instant::now();
    while into.recv(&mut [0; 16]).is_err() {
        from.send_to(b"hello", into.local_addr().unwrap()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "nothing passes");
    }
    eprintln!("hung: packets pass after {:?}", began.elapsed());
    transfer.await_more(500_000).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    gateway.signal(Signal::CONT);
    gateway.says(mobile, "present");
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    let status = gateway.status();
    assert!(status.path.expired > 0 && status.waiting == 0, "{status:?}");
}

// Claim: Draining ends with the last packet; SIGTERM leaves what waits to the next process.
// Tests: `crashes::told_to_end_while_one_is_away`
fn draining_ends_when_the_last_packet_has_left(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(1));
    assert!(gateway.drain(Duration::from_secs(60)) > 0);
    sleep(Duration::from_millis(500));
    assert!(gateway.status().draining);
    world.set_cut(Cut::Carrier, false).unwrap();
    assert!(gateway.ends(Duration::from_secs(10)));
    assert_eq!(gateway.files(), 0);
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
}

fn told_to_end_while_one_is_away(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), "");
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(1));
    gateway.signal(Signal::TERM);
    assert!(gateway.ends(Duration::from_secs(10)));
    assert_eq!(gateway.files(), 1, "what waits is for the next process");
    gateway.restart();
    let took = transfer.resumes(|| world.set_cut(Cut::Carrier, false).unwrap()).unwrap();
    assert!(took < Duration::from_millis(2500), "{took:?}");
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
}
