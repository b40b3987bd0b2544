//! Connections with signatures (TCP-MD5): a changed segment, or one that the gateway makes, would be dropped by its receiver.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use holdover_gatewayd::demo::{Cut, Transfer, World};
use holdover_gatewayd::status::Status;
use holdover_testbed::{Counters, Namespace, set_md5_key};
use socket2::{Domain, Socket, Type};

use crate::Test;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("nothing_of_signed_connections_is_held_back", nothing_is_held_back),
    ("signed_connections_survive_absences_in_every_mode", absences),
];

const SOON: Duration = Duration::from_secs(10);
/// Far beyond the first 150 kB, of which nothing is held.
const BULK: u64 = 2_000_000;

/// A connection from a mobile host to the fixed host, with a key at both ends: the mobile host's end first.
pub(crate) fn connect_signed(world: &World, mobile: usize) -> io::Result<(TcpStream, TcpStream)> {
    let (fixed, near) = (world.fixed_address(), world.mobile_address(mobile));
    let listen = || TcpListener::bind(SocketAddr::new(fixed, 0));
    let listener = world.fixed().enter(listen).map_err(io::Error::other)??;
    set_md5_key(&listener, near)?;
    let at = listener.local_addr()?;
    let connect = || -> io::Result<Socket> {
        let domain = if at.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        set_md5_key(&socket, at.ip())?;
        socket.connect_timeout(&at.into(), SOON)?;
        Ok(socket)
    };
    let near = world.mobile(mobile).enter(connect).map_err(io::Error::other)??;
    Ok((near.into(), listener.accept()?.0))
}

fn start(world: &World, is_upload: bool) -> Transfer {
    let (near, far) = connect_signed(world, 0).unwrap();
    let (from, into) = if is_upload { (near, far) } else { (far, near) };
    Transfer::between(from, into, Duration::from_millis(2))
}

/// Segments were seen, and neither changed nor made, and both hosts have accepted all that arrived.
#[track_caller]
fn is_untouched(world: &World, status: &Status) {
    let path = &status.path;
    eprintln!("{path:?}");
    assert!(path.signed > 500, "{path:?}");
    let touched = [path.tcp, path.lowered, path.withheld, path.injected, path.limited, path.probed, path.detailed];
    assert_eq!(touched, [0; 7], "{path:?}");
    for namespace in [world.fixed(), world.mobile(0)] {
        let counters = namespace.enter(|| Counters::read(namespace).unwrap()).unwrap();
        let refused = ["TcpExtTCPMD5Failure", "TcpExtTCPMD5NotFound"].map(|name| counters.get(name));
        assert_eq!(refused, [Some(0); 2]);
    }
}

/// Over a link on which ACKs of other transfers are held back ([`crate::hold_back`]).
fn nothing_is_held_back(_: &Namespace) {
    for mode in ["buffer", "m-tcp"] {
        let world = World::without_ethernet(crate::hold_back::ROUND_TRIP).unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        for is_upload in [false, true] {
            let transfer = start(&world, is_upload);
            transfer.goes_on(BULK).unwrap();
            transfer.ends_exact().unwrap();
        }
        is_untouched(&world, &gateway.status());
    }
}

fn absences(_: &Namespace) {
    for (mode, is_v6) in
        [("buffer", false), ("buffer", true), ("freeze", false), ("buffer-freeze", false), ("m-tcp", false)]
    {
        let world = if is_v6 { World::v6() } else { World::new(1) }.unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let mobile: IpAddr = world.mobile_address(0);
        let transfers = [false, true].map(|is_upload| start(&world, is_upload));
        transfers.iter().for_each(|transfer| transfer.goes_on(500_000).unwrap());
        world.set_cut(Cut::Carrier, true).unwrap();
        gateway.says(mobile, "away");
        sleep(Duration::from_millis(1500));
        world.set_cut(Cut::Carrier, false).unwrap();
        gateway.says(mobile, "present");
        for transfer in transfers {
            transfer.goes_on(500_000).unwrap();
            transfer.ends_exact().unwrap();
        }
        let status = gateway.status();
        is_untouched(&world, &status);
        // They are kept as packets of any other kind.
        assert_eq!(status.buffer.queued > 0, mode != "freeze", "{mode}: {status:?}");
    }
}
