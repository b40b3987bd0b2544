//! TCP Fast Open (RFC 7413): data in the SYN, and data of the server before the handshake is complete.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::{Cut, Transfer, World};
use socket2::{Domain, Socket, Type};

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::{SOON, counted, set, transfer};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("data_in_syns_pass_in_every_mode", |_| data_in_syns_pass()),
    ("a_host_that_leaves_after_its_syn_connects", |_| leaves_after_its_syn(Cut::Silent)),
    ("a_host_that_leaves_after_its_syn_connects_by_what_waits", |_| leaves_after_its_syn(Cut::Carrier)),
];

const REQUEST: &[u8; 8] = b"request\n";

/// A SYN takes half of it to the fixed host, which is more than it takes to cut the link.
const LONG: holdover_base::Duration = holdover_base::Duration::from_secs(2);

/// Connections that are opened at a time.
const CONNECTIONS: usize = 8;

/// Both hosts use Fast Open without cookies: clients may send data in any SYN (0x4), and servers accept it (0x200), on all
/// listeners (0x400).
fn enable(world: &World) {
    set(world.mobile(0), "net.ipv4.tcp_fastopen", "5");
    set(world.fixed(), "net.ipv4.tcp_fastopen", "1538");
}

fn listen(world: &World) -> TcpListener {
    world.fixed().enter(|| TcpListener::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap()).unwrap()
}

/// Sends a SYN with a request, and does not wait for the answer.
fn open(world: &World, to: SocketAddr) -> TcpStream {
    let open = || -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads one int, which lives during the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_FASTOPEN_CONNECT,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        socket.connect(&to.into())?;
        let mut stream = TcpStream::from(socket);
        // The first write goes into the SYN. Of a blocking socket it returns when the connection is established.
        stream.set_nonblocking(true)?;
        stream.write_all(REQUEST)?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    world.mobile(0).enter(open).unwrap().unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(SOON)).unwrap();
    let mut request = [0; REQUEST.len()];
    far.read_exact(&mut request).unwrap();
    assert_eq!(&request, REQUEST);
    far.set_read_timeout(None).unwrap();
    far
}

// Claim: Data in SYNs (TCP Fast Open) pass with `buffer`, `m-tcp` and `buffer-freeze`, and transfers over such connections survive
// an absence of 1.5 s. Eight connections whose mobile host leaves before the SYN-ACK arrives, while the server sends at once, are
// established when it is back, after a silent cut and with what was kept, and their data are byte-exact.
// Tests: `fast_open::leaves_after_its_syn`
fn data_in_syns_pass() {
    for mode in ["buffer", "m-tcp", "buffer-freeze"] {
        let world = World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap();
        enable(&world);
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let listener = listen(&world);
        let transfers = [false, true].map(|is_upload| {
            let near = open(&world, listener.local_addr().unwrap());
            transfer((near, accept(&listener)), is_upload)
        });
        assert_eq!(counted(world.fixed(), "TcpExtTCPFastOpenPassive"), 2, "{mode}");
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
        world.set_cut(Cut::Silent, true).unwrap();
        gateway.says(world.mobile_address(0), "away");
        sleep(Duration::from_millis(1500));
        world.set_cut(Cut::Silent, false).unwrap();
        transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
        transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    }
}

fn leaves_after_its_syn(cut: Cut) {
    let world = World::with_round_trip(1, LONG).unwrap();
    enable(&world);
    let mobile = world.mobile_address(0);
    let gateway = Gateway::start(world.router(), "");
    let listener = listen(&world);
    let to = listener.local_addr().unwrap();
    let began = Instant::now();
    let near: Vec<TcpStream> = (0..CONNECTIONS).map(|_| open(&world, to)).collect();
    let opened = began.elapsed();
    wait_for("the SYNs", || (gateway.status().path.tcp >= CONNECTIONS as u64).then_some(()));
    world.set_cut(cut, true).unwrap();
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(2),
        "too slow: SYNs after {opened:?}, cut after {took:?}: the SYN-ACK may have arrived"
    );
    // The server answers at once, before the handshake is complete.
    let transfers: Vec<Transfer> =
        near.into_iter().map(|near| Transfer::between(accept(&listener), near, Duration::from_millis(100))).collect();
    gateway.says(mobile, "away");
    if cut == Cut::Carrier {
        wait_for("answers that wait", || (gateway.status().waiting >= CONNECTIONS as u64).then_some(()));
    }
    let back_at = Instant::now();
    world.set_cut(cut, false).unwrap();
    for transfer in &transfers {
        transfer.await_more(8_000).unwrap();
    }
    eprintln!("{cut:?} cut after the SYNs: all {CONNECTIONS} have data {:?} after the return", back_at.elapsed());
    assert_eq!(counted(world.fixed(), "TcpExtTCPFastOpenPassive"), CONNECTIONS as i64);
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
}
