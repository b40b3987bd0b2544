//! Connections whose segments the gateway neither changes nor makes: transfers in every mode, over absences.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use holdover_gatewayd::path::PathCounters;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::process::Gateway;

/// Far beyond the first 150 kB, of which nothing is held.
const BULK: u64 = 2_000_000;

/// A kind of connections.
pub(crate) struct Kind {
    /// One from a mobile host to the fixed host: the mobile host's end first.
    pub connect: fn(&World, usize) -> io::Result<(TcpStream, TcpStream)>,
    /// Their packets.
    pub count: fn(&PathCounters) -> u64,
    /// What the kernels count if a segment was changed or made.
    pub faults: &'static [&'static str],
}

impl Kind {
    fn start(&self, world: &World, is_upload: bool) -> Transfer {
        let (near, far) = (self.connect)(world, 0).unwrap();
        let (from, into) = if is_upload { (near, far) } else { (far, near) };
        Transfer::between(from, into, Duration::from_millis(2))
    }

    /// Segments were seen, and neither changed nor made, and both hosts have accepted all that arrived.
    #[track_caller]
    fn is_untouched(&self, world: &World, path: &PathCounters) {
        eprintln!("{path:?}");
        assert!((self.count)(path) > 500, "{path:?}");
        let touched = [path.tcp, path.lowered, path.withheld, path.injected, path.limited, path.probed, path.detailed];
        assert_eq!(touched, [0; 7], "{path:?}");
        for namespace in [world.fixed(), world.mobile(0)] {
            let counters = namespace.enter(|| holdover_testbed::Counters::read(namespace).unwrap()).unwrap();
            for fault in self.faults {
                assert_eq!(counters.get(fault), Some(0), "{fault}");
            }
        }
    }

    /// Over a link on which ACKs of other transfers are held back ([`crate::hold_back`]).
    pub(crate) fn is_never_held_back(&self) {
        for mode in ["buffer", "m-tcp"] {
            let world = World::without_ethernet(crate::hold_back::ROUND_TRIP).unwrap();
            let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
            for is_upload in [false, true] {
                let transfer = self.start(&world, is_upload);
                transfer.await_more(BULK).unwrap();
                transfer.ends_exact().unwrap();
            }
            self.is_untouched(&world, &gateway.status().path);
        }
    }

    /// In every mode that terminates no connections.
    pub(crate) fn survives_absences(&self) {
        for (mode, is_v6) in
            [("buffer", false), ("buffer", true), ("freeze", false), ("buffer-freeze", false), ("m-tcp", false)]
        {
            let world = if is_v6 { World::v6() } else { World::new(1) }.unwrap();
            let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
            let mobile: IpAddr = world.mobile_address(0);
            let transfers = [false, true].map(|is_upload| self.start(&world, is_upload));
            transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
            world.set_cut(Cut::Carrier, true).unwrap();
            gateway.says(mobile, "away");
            sleep(Duration::from_millis(1500));
            world.set_cut(Cut::Carrier, false).unwrap();
            gateway.says(mobile, "present");
            for transfer in transfers {
                transfer.await_more(500_000).unwrap();
                transfer.ends_exact().unwrap();
            }
            let status = gateway.status();
            self.is_untouched(&world, &status.path);
            // They are kept as packets of any other kind.
            assert_eq!(status.buffer.queued > 0, mode != "freeze", "{mode}: {status:?}");
        }
    }
}
