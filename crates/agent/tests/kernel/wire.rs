//! Two kernels and the link between them: a wire that can be cut and impaired, and that records the segments on it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use holdover_agent::sockets::TcpSocket;
use holdover_base::{Duration, Instant};
use holdover_host::clock;
use holdover_testbed::{
    Congestion, Forwarder, Impairment, ImpairmentConfig, KernelListener, KernelStream, Namespace, Netlink, SocketError,
    SocketOptions, Tun, TunConfig, TunError, sysctl,
};
use holdover_wire::{Checksums, Packet, Segment};

/// The limit for anything but waiting, on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) const NEAR: &str = "10.9.0.1";
pub(crate) const FAR: &str = "10.9.0.2";
pub(crate) const NEAR_V6: &str = "fd09::1";
pub(crate) const FAR_V6: &str = "fd09::2";

/// The interface of either end.
pub(crate) const INTERFACE: &str = "tun0";

/// Listens. A process that another test is starting has a copy of a closed listener for a moment, whose address is in use as long.
fn listen(namespace: &Namespace, address: SocketAddr, options: &SocketOptions) -> KernelListener {
    let until = clock::now() + LIMIT;
    loop {
        match KernelListener::bind(namespace, address, options) {
            Err(SocketError::Failed { source, .. })
                if source.kind() == ErrorKind::AddrInUse && clock::now() < until =>
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// This namespace, another one, and the wire.
pub(crate) struct Wire {
    pub(crate) far: Namespace,
    state: Arc<State>,
    forwarder: Forwarder,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    /// Segments sent by the near kernel, and by the far one; `None` without recording.
    segments: Option<Mutex<[Vec<Segment>; 2]>>,
}

impl Wire {
    /// Joins `near`, in which the calling thread must be, to a new namespace.
    pub(crate) fn new(near: &Namespace) -> Self {
        Self::joining(near, [Impairment::none(), Impairment::none()], true)
    }

    /// The same, with an impaired link both ways, and without recording.
    pub(crate) fn impaired(near: &Namespace, config: &ImpairmentConfig) -> Self {
        Self::joining(near, [1, 2].map(|seed| Impairment::new(config.clone(), seed).unwrap()), false)
    }

    fn joining(near: &Namespace, impairments: [Impairment; 2], remembers: bool) -> Self {
        Netlink::open(near).unwrap().set_up("lo").unwrap();
        let far = Namespace::new("far").unwrap();
        let device = |namespace: &Namespace, v4: &str, v6: &str| {
            let address = |text: &str| text.parse::<IpAddr>().unwrap();
            let config = TunConfig::new(INTERFACE, 1500).address(address(v4), 24).address(address(v6), 64);
            Tun::open(namespace, &config).unwrap()
        };
        let ours = device(near, NEAR, NEAR_V6);
        let theirs = far.enter(|| device(&far, FAR, FAR_V6)).unwrap();
        let state = Arc::new(State { segments: remembers.then(Mutex::default), ..State::default() });
        let forwarder = Forwarder::start("wire", [ours, theirs], {
            let (state, mut impairments) = (Arc::clone(&state), impairments);
            let mut scratch = vec![0; 65_536];
            move |devices| carry(devices, &mut scratch, &mut impairments, &state)
        });
        Self { far, state, forwarder: forwarder.unwrap() }
    }

    /// Drops everything from now on, or nothing.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Segments of the near kernel to or from a port.
    pub(crate) fn sent(&self, port: u16) -> Vec<Segment> {
        let segments = &self.state.segments.as_ref().expect("it remembers").lock().unwrap()[0];
        segments.iter().filter(|segment| segment.src_port == port || segment.dst_port == port).cloned().collect()
    }

    /// A connection from the near kernel to a port of the far one: both ends.
    pub(crate) fn connect(&self, near: &Namespace, port: u16) -> (KernelStream, KernelStream) {
        self.connect_with(near, (FAR.parse::<IpAddr>().unwrap(), port).into(), &options())
    }

    /// The same, to any address of the far kernel, and with options for both ends.
    pub(crate) fn connect_with(
        &self,
        near: &Namespace,
        to: SocketAddr,
        options: &SocketOptions,
    ) -> (KernelStream, KernelStream) {
        let listener = self.far.enter(|| listen(&self.far, to, options)).unwrap();
        let ours = KernelStream::connect(near, to, options, LIMIT).unwrap();
        let theirs = listener.accept(LIMIT).unwrap();
        (ours, theirs)
    }

    /// A connection from the far kernel to a port of the near one: both ends, the near one first.
    pub(crate) fn accept(&self, near: &Namespace, port: u16) -> (KernelStream, KernelStream) {
        let at = (NEAR.parse::<IpAddr>().unwrap(), port).into();
        let listener = listen(near, at, &options());
        let theirs = self.far.enter(|| KernelStream::connect(&self.far, at, &options(), LIMIT).unwrap()).unwrap();
        (listener.accept(LIMIT).unwrap(), theirs)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let ended = self.forwarder.end();
        assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
    }
}

/// Moves packets; returns when the next one arrives. A cut also drops packets in flight.
fn carry(
    devices: &[Tun],
    scratch: &mut [u8],
    impairments: &mut [Impairment; 2],
    state: &State,
) -> Result<Option<Instant>, TunError> {
    for (from, device) in devices.iter().enumerate() {
        while let Some(bytes) = device.recv(scratch).unwrap() {
            if state.is_cut.load(Ordering::SeqCst) {
                continue;
            }
            if let Some(segments) = &state.segments
                && let Ok(packet) = Packet::parse_with(bytes.clone(), Checksums::Ignore)
                && let Some(segment) = packet.tcp()
            {
                segments.lock().unwrap()[from].push(segment.clone());
            }
            impairments[from].handle_packet(clock::now(), bytes);
        }
    }
    for (from, impairment) in impairments.iter_mut().enumerate() {
        while let Some(bytes) = impairment.poll_packet(clock::now()) {
            if !state.is_cut.load(Ordering::SeqCst) {
                devices[1 - from].send(&bytes).unwrap();
            }
        }
    }
    Ok(impairments.iter().filter_map(Impairment::poll_timeout).min())
}

/// Plain sockets with long timeouts.
pub(crate) fn options() -> SocketOptions {
    SocketOptions { io_timeout: LIMIT, ..SocketOptions::new(Congestion::Reno) }
}

/// The option `TCP_USER_TIMEOUT`; `None` where it is 0.
pub(crate) fn user_timeout(stream: &KernelStream) -> Option<Duration> {
    let timeout = socket2::SockRef::from(stream).tcp_user_timeout().unwrap();
    timeout.map(|timeout| Duration::from_millis(timeout.as_millis() as u64)).filter(|timeout| !timeout.is_zero())
}

/// The socket as the kernel lists it.
pub(crate) fn socket(stream: &KernelStream) -> TcpSocket {
    let connection =
        holdover_mobility::Connection { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() };
    holdover_agent::sockets::SocketDiag::open().unwrap().find(connection).unwrap().unwrap()
}

/// Makes the kernel of a namespace give up soon: after 3 s and one more RTO.
pub(crate) fn make_impatient(namespace: &Namespace) {
    namespace.enter(|| sysctl::set(namespace, "net.ipv4.tcp_retries2", "3").unwrap()).unwrap();
}
