//! One run: a namespace, a TUN device, our TCP on one side of it and the kernel's on the other.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_tcp::{ConnectError, ConnectionId, Endpoint, EndpointConfig, ListenError};

use super::checks::{self, Evidence, KernelEnd};
use super::gate::Gate;
use super::{Application, Combination, Family, Opening, Path, Sink, Source};
use crate::{
    Counters, CountersError, Impairment, ImpairmentConfig, KernelListener, KernelStream, Namespace, NamespaceError,
    Shell, ShellError, SocketError, SocketOptions, Stopped, SysctlError, TcpInfo, TcpState, Tun, TunConfig,
    TunDirection, TunError, WallClock, sysctl,
};

/// The delay of every path, each way.
const DELAY: Duration = Duration::from_millis(2);
/// The outage begins when this fraction of the data is transferred: the windows are growing.
const OUTAGE_AFTER_PART: u64 = 4;
const OUTAGE: Duration = Duration::from_secs(2);
/// Longer than any run takes on a slow machine. The slowest recover from an outage with timers of seconds.
const LIMIT: Duration = Duration::from_secs(120);
/// The timeout of a call on the kernel's socket; several follow each other within [`LIMIT`].
const IO_TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 5001;
const BACKLOG: usize = 8;

/// The parameters of a run besides the combination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// The length of each stream in bytes.
    pub bytes: u64,
    /// The seed of the impairments and of the streams' contents.
    pub seed: u64,
    /// The file for a capture of the run (pcapng).
    pub capture: Option<PathBuf>,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// From the start of the run until both sides had closed in good order.
    pub took: Duration,
    /// The violated expectations; none in a run that passes.
    pub findings: Vec<String>,
    /// The kernel's `TCP_INFO` at the end.
    pub info: TcpInfo,
    /// The kernel's counters.
    pub counters: Counters,
}

/// A run did not end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the variants are the parts of the test bed")]
pub enum RunError {
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Tun(#[from] TunError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    #[error(transparent)]
    Counters(#[from] CountersError),
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The kernel's socket failed.
    #[error("the kernel's side: {call}: {source} (our side: {ours})")]
    Kernel {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
        /// The state of our side.
        ours: String,
    },
    /// The two sides had not finished in time.
    #[error("not finished after {LIMIT} (our side: {ours})")]
    Deadline {
        /// The state of our side.
        ours: String,
    },
    /// The capture could not be written.
    #[error("the capture {} cannot be written: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl RunOptions {
    /// 2 MiB each way, no capture; everything random follows from the combination.
    pub fn new(combination: &Combination) -> Self {
        let mut sink = Sink::new(0);
        sink.take(combination.to_string().as_bytes());
        Self { bytes: 2 << 20, seed: sink.digest().hash as u64, capture: None }
    }
}

/// Transfers data under `combination`. An error means that the transfer did not end; other problems are in
/// [`Outcome::findings`].
pub fn run(combination: &Combination, options: &RunOptions) -> Result<Outcome, RunError> {
    Namespace::run("matrix", |namespace| run_inside(namespace, combination, options))?
}

fn run_inside(namespace: &Namespace, combination: &Combination, options: &RunOptions) -> Result<Outcome, RunError> {
    let (kernel, ours, prefix_len) = addresses(combination.family);
    set_kernel_options(namespace, combination)?;
    let mtu = u32::from(combination.mtu_bytes());
    let tun = Tun::open(namespace, &TunConfig::new("tun0", mtu).address(kernel, prefix_len))?;
    let before = Counters::read(namespace)?;
    let side = KernelSide::prepare(namespace, combination, options, kernel, ours)?;

    let mut endpoint =
        Endpoint::new(EndpointConfig { addresses: vec![ours], secret: u128::from(options.seed).to_le_bytes() });
    let mut shell = impaired_shell(&tun, combination, options)?;
    let connection = open(&mut endpoint, shell.clock().now(), combination, kernel)?;
    let source = Source::new(options.seed, if combination.flow.we_send() { options.bytes } else { 0 });
    let mut application = Application::new(connection, source, Sink::new(!options.seed));
    let mut gate = Gate::new(endpoint);
    let outage_from = (combination.path == Path::Outage).then_some(options.bytes / OUTAGE_AFTER_PART);
    let (kernel_end, done_at) = transfer(&mut shell, &mut gate, &mut application, side, outage_from)?;
    let counters = Counters::read(namespace)?.since(&before);
    let evidence = Evidence {
        combination,
        bytes: options.bytes,
        application: &application,
        connection: application.connection().and_then(|id| gate.endpoint.connection(id)),
        endpoint: &gate.endpoint,
        lost_in_outage: gate.lost(),
        kernel: &kernel_end,
        counters: &counters,
        shell: &shell,
    };
    Ok(Outcome {
        took: done_at.max(kernel_end.done_at).saturating_since(Instant::ZERO),
        findings: checks::findings(&evidence),
        info: kernel_end.info,
        counters,
    })
}

/// Sets the TCP options that the kernel negotiates.
fn set_kernel_options(namespace: &Namespace, combination: &Combination) -> Result<(), SysctlError> {
    for (name, is_on) in [
        ("net.ipv4.tcp_sack", combination.sack),
        ("net.ipv4.tcp_timestamps", combination.timestamps),
        ("net.ipv4.tcp_window_scaling", combination.window_scaling),
    ] {
        sysctl::set(namespace, name, if is_on { "1" } else { "0" })?;
    }
    Ok(())
}

/// Opens our side: its connection, or `None` if it listens.
fn open(
    endpoint: &mut Endpoint,
    now: Instant,
    combination: &Combination,
    kernel: IpAddr,
) -> Result<Option<ConnectionId>, RunError> {
    let config = Arc::new(combination.config());
    match combination.opening {
        Opening::Connect => Ok(Some(endpoint.connect(now, config, None, SocketAddr::new(kernel, PORT))?)),
        Opening::Listen => {
            endpoint.listen(PORT, config, BACKLOG)?;
            Ok(None)
        }
    }
}

/// Runs both sides until they have finished. If `outage_from` is given, the path is cut once, when so many bytes are transferred. Returns the
/// kernel's end, and when ours was done.
fn transfer(
    shell: &mut Shell<'_>,
    gate: &mut Gate,
    application: &mut Application,
    side: KernelSide<'_>,
    mut outage_from: Option<u64>,
) -> Result<(KernelEnd, Instant), RunError> {
    let clock = shell.clock();
    let turn = |now, gate: &mut Gate| {
        application.turn(now, &mut gate.endpoint);
        if outage_from.is_some_and(|from| application.progress(&gate.endpoint) >= from) {
            outage_from = None;
            gate.cut(now, OUTAGE);
        }
    };
    let stopped = shell.run_beside(gate, LIMIT, turn, || side.run(clock))?;
    let kernel_end = match stopped {
        Stopped::ByApplication(Ok(end)) => end,
        Stopped::ByApplication(Err((call, source))) => {
            return Err(RunError::Kernel { call, source, ours: describe(&gate.endpoint, application) });
        }
        Stopped::AtDeadline => return Err(RunError::Deadline { ours: describe(&gate.endpoint, application) }),
    };
    // The kernel has finished; the acknowledgment of our FIN may still be in flight.
    let ours_is_done = shell.run(gate, LIMIT, |now, gate| {
        application.turn(now, &mut gate.endpoint);
        match application.done_at() {
            Some(_) => std::ops::ControlFlow::Break(()),
            None => std::ops::ControlFlow::Continue(()),
        }
    })?;
    let Some(done_at) = application.done_at().filter(|_| ours_is_done == Stopped::ByApplication(())) else {
        return Err(RunError::Deadline { ours: describe(&gate.endpoint, application) });
    };
    Ok((kernel_end, done_at))
}

/// The kernel's address, ours, and the length of their prefix.
fn addresses(family: Family) -> (IpAddr, IpAddr, u8) {
    match family {
        Family::V4 => (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into(), 24),
        Family::V6 => {
            let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).into();
            (address(1), address(2), 64)
        }
    }
}

fn impaired_shell<'a>(tun: &'a Tun, combination: &Combination, options: &RunOptions) -> Result<Shell<'a>, RunError> {
    let mut shell = Shell::new(tun)?;
    if let Some(path) = &options.capture {
        let failed = |source| RunError::Capture { path: path.clone(), source };
        shell = shell.with_capture(io::BufWriter::new(File::create(path).map_err(failed)?))?;
    }
    for (direction, seed) in
        [(TunDirection::ToKernel, options.seed), (TunDirection::FromKernel, options.seed.rotate_left(32))]
    {
        let impairment =
            Impairment::new(impairment(combination.path), seed).expect("the configurations below are in order");
        shell = shell.with_impairment(direction, impairment);
    }
    Ok(shell)
}

fn impairment(path: Path) -> ImpairmentConfig {
    let clean = ImpairmentConfig { delay: DELAY, ..ImpairmentConfig::default() };
    match path {
        // The gate implements the outage.
        Path::Clean | Path::Outage => clean,
        Path::Loss => ImpairmentConfig { loss: 0.01, ..clean },
        Path::Reordering => ImpairmentConfig { reorder: 0.02, reorder_delay: Duration::from_millis(2), ..clean },
        Path::Duplication => ImpairmentConfig { duplicate: 0.02, ..clean },
        Path::Corruption => ImpairmentConfig { corrupt: 0.01, ..clean },
    }
}

/// The state of our side, for a run that did not end.
fn describe(endpoint: &Endpoint, application: &Application) -> String {
    let Some(connection) = application.connection().and_then(|id| endpoint.connection(id)) else {
        return "no connection".to_owned();
    };
    let error = connection.error().map(|error| format!(": {error}")).unwrap_or_default();
    format!(
        "{}{error}, {} to write, {} unacknowledged, {} read, window {}, cwnd {}, {} timeouts",
        connection.state(),
        application.source().remaining(),
        connection.send_queue_len(),
        application.sink().digest().len,
        connection.snd_wnd(),
        connection.cwnd(),
        connection.counters().timeouts,
    )
}

/// The kernel's side.
struct KernelSide<'a> {
    namespace: &'a Namespace,
    /// Bound before our side connects.
    listener: Option<KernelListener>,
    connect_to: SocketAddr,
    options: SocketOptions,
    source: Source,
    sink: Sink,
}

/// A failed call, and the reason.
type Failure = (&'static str, io::Error);

impl<'a> KernelSide<'a> {
    fn prepare(
        namespace: &'a Namespace,
        combination: &Combination,
        run: &RunOptions,
        kernel: IpAddr,
        ours: IpAddr,
    ) -> Result<Self, RunError> {
        let options = SocketOptions { io_timeout: IO_TIMEOUT, ..SocketOptions::new(combination.congestion) };
        let bound = || KernelListener::bind(namespace, SocketAddr::new(kernel, PORT), &options);
        let listener = match combination.opening {
            Opening::Connect => Some(bound().map_err(|error| {
                let (call, source) = socket_failure(error);
                RunError::Kernel { call, source, ours: "not started".to_owned() }
            })?),
            Opening::Listen => None,
        };
        let sends = combination.flow.kernel_sends();
        Ok(Self {
            namespace,
            listener,
            connect_to: SocketAddr::new(ours, PORT),
            options,
            source: Source::new(!run.seed, if sends { run.bytes } else { 0 }),
            sink: Sink::new(run.seed),
        })
    }

    fn run(mut self, clock: WallClock) -> Result<KernelEnd, Failure> {
        let stream = match &self.listener {
            Some(listener) => listener.accept(IO_TIMEOUT),
            None => KernelStream::connect(self.namespace, self.connect_to, &self.options, IO_TIMEOUT),
        };
        let mut stream = stream.map_err(socket_failure)?;
        let (source, sink) = (&mut self.source, &mut self.sink);
        if source.remaining() > 0 {
            let writer = stream.try_clone().map_err(socket_failure)?;
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| write_all(writer, source));
                let reading = sink.read_from(&mut stream).map_err(|error| ("read", error));
                let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                reading.and(written)
            })?;
        } else {
            sink.read_from(&mut stream).map_err(|error| ("read", error))?;
        }
        let info_at_end = stream.tcp_info().map_err(socket_failure)?;
        let congestion = stream.congestion().map_err(socket_failure)?;
        if self.source.digest().len == 0 {
            stream.shutdown_write().map_err(socket_failure)?;
        }
        let info = wait_until_closed(&stream, clock)?;
        Ok(KernelEnd {
            sent: self.source.digest(),
            received: self.sink.digest(),
            first_difference: self.sink.first_difference(),
            congestion,
            info_at_end,
            info,
            done_at: clock.now(),
        })
    }
}

fn write_all(mut stream: KernelStream, source: &mut Source) -> Result<(), Failure> {
    source.write_to(&mut stream).map_err(|error| ("write", error))?;
    stream.shutdown_write().map_err(socket_failure)
}

/// Waits until both directions are closed; the last FIN has still to be acknowledged.
fn wait_until_closed(stream: &KernelStream, clock: WallClock) -> Result<TcpInfo, Failure> {
    let deadline = clock.now() + IO_TIMEOUT;
    loop {
        let info = stream.tcp_info().map_err(socket_failure)?;
        // The kernel reports a connection in TIME-WAIT as closed.
        if info.tcpi_state == TcpState::Closed {
            return Ok(info);
        }
        if clock.now() > deadline {
            return Err(("closing", io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn socket_failure(error: SocketError) -> Failure {
    match error {
        SocketError::TimedOut { call, .. } => (call, io::ErrorKind::TimedOut.into()),
        SocketError::Failed { call, source } => (call, source),
        SocketError::Namespace(error) => ("socket", io::Error::other(error)),
    }
}
