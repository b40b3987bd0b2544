//! A fixed host, a router, a bridge whose ports are the link, and mobile hosts.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_testbed::{Namespace, Netlink, Route, sysctl};

/// The router's interface behind which the mobile hosts are.
pub(crate) const MOBILE_FACING: &str = "mob0";

/// Longer than anything takes on a slow machine that is not about waiting.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How the link is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Behind the bridge: the router's interface keeps its carrier.
    Silent,
    /// At the router's interface.
    Carrier,
}

pub(crate) struct World {
    pub(crate) fixed: Namespace,
    pub(crate) router: Namespace,
    bridge: Namespace,
    pub(crate) mobiles: Vec<Namespace>,
    is_v6: bool,
}

impl World {
    pub(crate) fn new(mobiles: u8) -> Self {
        Self::of_family(mobiles, false)
    }

    pub(crate) fn v6() -> Self {
        Self::of_family(1, true)
    }

    fn of_family(mobiles: u8, is_v6: bool) -> Self {
        let new = |name| Namespace::new(name).unwrap();
        let (fixed, router, bridge) = (new("fixed"), new("router"), new("bridge"));
        let mobiles = (0..mobiles).map(|_| new("mobile")).collect();
        let world = Self { fixed, router, bridge, mobiles, is_v6 };
        // The bridge comes first, so that the ends of a veth pair have different indices: Linux acts on the carrier of a pair with equal
        // ones once a second (`linkwatch_urgent_event`).
        world.inside(&world.bridge, |netlink| {
            netlink.add_bridge("br0").unwrap();
        });
        world.inside(&world.router, |netlink| {
            netlink.add_veth("fix0", "eth0", &world.fixed).unwrap();
            netlink.add_veth(MOBILE_FACING, "router0", &world.bridge).unwrap();
            netlink.set_up("fix0").unwrap();
            netlink.set_up(MOBILE_FACING).unwrap();
            netlink.add_address("fix0", world.address(1, 1), world.bits()).unwrap();
            netlink.add_address(MOBILE_FACING, world.address(2, 1), world.bits()).unwrap();
            let forwards = if is_v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
            sysctl::set(&world.router, forwards, "1").unwrap();
        });
        for (number, mobile) in world.mobiles.iter().enumerate() {
            world.inside(mobile, |netlink| {
                netlink.set_up("lo").unwrap();
                netlink.add_veth("eth0", &format!("mobile{number}"), &world.bridge).unwrap();
            });
            world.end_host(mobile, 2, 7 + number as u8);
        }
        world.end_host(&world.fixed, 1, 2);
        world.inside(&world.bridge, |netlink| {
            sysctl::set(&world.bridge, "net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            let ports = (0..world.mobiles.len()).map(|number| format!("mobile{number}"));
            for port in ports.chain(["router0".to_owned()]) {
                netlink.add_port("br0", &port).unwrap();
                netlink.set_up(&port).unwrap();
            }
            netlink.set_up("br0").unwrap();
        });
        world
    }

    fn bits(&self) -> u8 {
        if self.is_v6 { 64 } else { 24 }
    }

    fn address(&self, net: u8, host: u8) -> IpAddr {
        if self.is_v6 { format!("fd00:{net}::{host}").parse().unwrap() } else { [10, net, 0, host].into() }
    }

    pub(crate) fn fixed_address(&self) -> IpAddr {
        self.address(1, 2)
    }

    pub(crate) fn mobile_address(&self, number: usize) -> IpAddr {
        self.address(2, 7 + number as u8)
    }

    fn inside(&self, namespace: &Namespace, body: impl FnOnce(&mut Netlink) + Send) {
        namespace.enter(|| body(&mut Netlink::open(namespace).unwrap())).unwrap();
    }

    fn end_host(&self, host: &Namespace, net: u8, number: u8) {
        self.inside(host, |netlink| {
            netlink.set_up("eth0").unwrap();
            netlink.add_address("eth0", self.address(net, number), self.bits()).unwrap();
            let nowhere: IpAddr = if self.is_v6 { [0; 16].into() } else { [0; 4].into() };
            let gateway = Some(self.address(net, 1));
            netlink
                .add_route(&Route { destination: (nowhere, 0), gateway, link: "eth0".to_owned(), source: None })
                .unwrap();
        });
    }

    /// Cuts the link of the first mobile host, or of all with [`Cut::Carrier`], or makes it whole.
    pub(crate) fn set_cut(&self, cut: Cut, is_cut: bool) {
        let port = if cut == Cut::Silent { "mobile0" } else { "router0" };
        self.inside(
            &self.bridge,
            |netlink| {
                if is_cut { netlink.set_down(port).unwrap() } else { netlink.set_up(port).unwrap() }
            },
        );
    }

    pub(crate) fn set_mobile_mtu(&self, mtu: u32) {
        self.inside(&self.router, |netlink| netlink.set_mtu(MOBILE_FACING, mtu).unwrap());
    }
}

/// A transfer whose bytes are checked as they come.
pub(crate) struct Transfer {
    received: Arc<AtomicU64>,
    is_sending: Arc<AtomicBool>,
    wrong: Arc<Mutex<Option<String>>>,
    sender: Option<JoinHandle<u64>>,
    receiver: Option<JoinHandle<()>>,
}

/// The byte at a place of every transfer.
fn byte_at(place: u64) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

impl Transfer {
    /// Starts to send, some 4 MB/s: from the fixed host to a mobile host, or the other way round.
    pub(crate) fn start(world: &World, mobile: usize, is_upload: bool) -> Self {
        let bind = || TcpListener::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap();
        let listener = world.fixed.enter(bind).unwrap();
        let to = listener.local_addr().unwrap();
        let near = world.mobiles[mobile].enter(|| TcpStream::connect(to).unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let (mut from, mut into) = if is_upload { (near, far) } else { (far, near) };
        let (received, is_sending) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let wrong = Arc::new(Mutex::new(None));
        let sender = std::thread::spawn({
            let is_sending = Arc::clone(&is_sending);
            move || {
                let mut sent = 0;
                while is_sending.load(Ordering::SeqCst) {
                    let chunk: Vec<u8> = (sent..sent + 8000).map(byte_at).collect();
                    from.write_all(&chunk).unwrap();
                    sent += chunk.len() as u64;
                    sleep(Duration::from_millis(2));
                }
                sent
            }
        });
        let receiver = std::thread::spawn({
            let (received, wrong) = (Arc::clone(&received), Arc::clone(&wrong));
            move || {
                let mut buffer = [0; 65_536];
                let mut place = 0;
                loop {
                    match into.read(&mut buffer) {
                        Ok(0) => return,
                        Ok(read) => {
                            let is_right =
                                buffer[..read].iter().enumerate().all(|(at, &byte)| byte == byte_at(place + at as u64));
                            if !is_right {
                                *wrong.lock().unwrap() = Some(format!("wrong bytes from {place} on"));
                            }
                            place += read as u64;
                            received.store(place, Ordering::SeqCst);
                        }
                        Err(error) => {
                            *wrong.lock().unwrap() = Some(error.to_string());
                            return;
                        }
                    }
                }
            }
        });
        Self { received, is_sending, wrong, sender: Some(sender), receiver: Some(receiver) }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Waits until so much more has come.
    #[track_caller]
    pub(crate) fn goes_on(&self, bytes: u64) {
        let (began, before) = (Instant::now(), self.received());
        while self.received() < before + bytes {
            assert!(began.elapsed() < LIMIT, "nothing comes: {:?}", self.wrong.lock().unwrap());
            sleep(Duration::from_millis(2));
        }
    }

    /// How long after something was done more bytes have come.
    #[track_caller]
    pub(crate) fn resumes(&self, done: impl FnOnce()) -> Duration {
        let before = self.received();
        done();
        let began = Instant::now();
        while self.received() <= before {
            assert!(began.elapsed() < LIMIT, "nothing comes");
            sleep(Duration::from_micros(200));
        }
        began.elapsed()
    }

    /// Ends it: every byte that was sent has come, and as it was sent.
    #[track_caller]
    pub(crate) fn ends_exact(mut self) -> u64 {
        self.is_sending.store(false, Ordering::SeqCst);
        let sent = self.sender.take().unwrap().join().expect("it was sent");
        let began = Instant::now();
        while !self.receiver.as_ref().unwrap().is_finished() {
            assert!(began.elapsed() < LIMIT, "{} of {sent} bytes have come", self.received());
            sleep(Duration::from_millis(2));
        }
        assert_eq!(*self.wrong.lock().unwrap(), None);
        assert_eq!(self.received(), sent);
        sent
    }
}
