//! A flow: one application at each end of a path, and its measurements.

use core::net::IpAddr;
use std::sync::Arc;

use holdover_base::{Duration, Instant, Rng};
use holdover_tcp::{Connection, ConnectionError, ConnectionId, Counters};

use crate::config::{FlowConfig, OnOff, Opener, Traffic};
use crate::ids::{FlowId, NodeId};
use crate::network::Way;

/// The status of a flow at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStatus {
    /// All data arrived.
    Completed,
    /// The connection failed before.
    Failed(ConnectionError),
    /// The run ended before.
    Unfinished,
}

/// The flow's path came back while the flow was under way: all its links are up again, and packets reach the mobile hosts at its ends and
/// return (with registration: they are registered in their current cells).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reconnection {
    /// When the path was back.
    pub up_at: Instant,
    /// From then to the first new data at the receiving application; `None` if none arrived before the next outage or the end.
    pub idle: Option<Duration>,
    /// From the last new data at the receiving application to the break before; `None` if there was none.
    pub idle_before: Option<Duration>,
    /// The sender at that break; `None` without a connection of a simulated host.
    pub before: Option<SenderState>,
    /// The sender at the first new data after the return.
    pub after: Option<SenderState>,
}

/// The state of `from`'s connection at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderState {
    /// The congestion window in segments.
    pub cwnd: u32,
    /// The slow-start threshold in segments; `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// The retransmission timeout, backed off.
    pub rto: Duration,
}

impl SenderState {
    pub(crate) fn of(connection: &Connection) -> Self {
        Self { cwnd: connection.cwnd(), ssthresh: connection.ssthresh(), rto: connection.rto() }
    }
}

/// The measurements of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// Its status.
    pub status: FlowStatus,
    /// Its start.
    pub started_at: Instant,
    /// When its opener saw the connection established.
    pub connected_at: Option<Instant>,
    /// When the last byte was read.
    pub completed_at: Option<Instant>,
    /// When the connection failed, if it did before that.
    pub failed_at: Option<Instant>,
    /// Bytes read by the receiving application (by both, for requests and answers).
    pub bytes_received: u64,
    /// The duration from the start in which a perfect sender would put these bytes, with headers, on the wire and its path would deliver
    /// them: the capacity integral of the slowest link, and the propagation delay. `None` if the path never gets that far, or there was
    /// nothing to send; also if the path is not fixed (a mobile host, or a host with several links), as its capacity then depends on more
    /// than a schedule.
    pub ideal: Option<Duration>,
    /// How long its path was broken during the flow: a link in either direction was down, or packets did not reach a mobile host at one of
    /// its ends.
    pub outage: Duration,
    /// Every return of its path.
    pub reconnections: Vec<Reconnection>,
    /// Between identities: the times from a host's new attachment until its peer has verified the new address.
    pub readdressings: Vec<Duration>,
    /// The longest time without new data at an application, from the first to the last; to [`Self::over_at`] if the flow was not completed.
    /// `None` if none arrived.
    pub longest_pause: Option<Duration>,
    /// The times from request to answer.
    pub exchanges: Vec<Duration>,
    /// The counters of the connection of `from`.
    pub sender: Option<Counters>,
    /// The counters of the connection of `to`.
    pub receiver: Option<Counters>,
    /// When the run ended.
    pub ended_at: Instant,
}

impl FlowReport {
    /// When the last byte was read or the connection failed; else the end of the run.
    pub fn over_at(&self) -> Instant {
        self.completed_at.or(self.failed_at).unwrap_or(self.ended_at)
    }

    /// From the beginning to the last byte or the failure, or to the end of the run.
    pub fn duration(&self) -> Duration {
        self.over_at().saturating_since(self.started_at)
    }

    /// Net transmission time: the duration without the outages.
    pub fn net_duration(&self) -> Duration {
        self.duration() - self.outage
    }

    /// Goodput in bits per second over the duration.
    pub fn goodput_bps(&self) -> f64 {
        let seconds = self.duration().as_secs_f64();
        if seconds > 0.0 { self.bytes_received as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// Ideal time over the time taken: 1 is perfect.
    pub fn ideal_share(&self) -> Option<f64> {
        let taken = self.completed_at?.saturating_since(self.started_at).as_secs_f64();
        (taken > 0.0).then_some(self.ideal?.as_secs_f64() / taken)
    }
}

/// The port of the first flow; every flow has its own. Lower ports are well-known ones, including that of Mobile IP.
pub(crate) const FIRST_PORT: u16 = 1024;

/// The most flows of a world: their ports are below the dynamic ports (RFC 6335 section 6).
pub(crate) const MAX_FLOWS: usize = 49_152 - FIRST_PORT as usize;

/// One end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// [`FlowConfig::from`].
    From,
    /// [`FlowConfig::to`].
    To,
}

/// A flow in progress.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) config: FlowConfig,
    pub(crate) port: u16,
    /// The addresses of `from` and of `to`.
    pub(crate) addresses: (IpAddr, IpAddr),
    /// Whether it has begun.
    pub(crate) begun: bool,
    pub(crate) from: Option<ConnectionId>,
    pub(crate) to: Option<ConnectionId>,
    pub(crate) connected_at: Option<Instant>,
    pub(crate) completed_at: Option<Instant>,
    pub(crate) failure: Option<(Instant, ConnectionError)>,
    /// Bytes written by `from`.
    pub(crate) written: u64,
    /// Bytes read at `to`, and at `from`.
    pub(crate) read_at_to: u64,
    pub(crate) read_at_from: u64,
    pub(crate) reconnections: Vec<Reconnection>,
    pub(crate) readdressings: Vec<Duration>,
    /// When new data last arrived, and the longest time between two such arrivals.
    pub(crate) new_data_at: Option<Instant>,
    pub(crate) longest_pause: Duration,
    pub(crate) exchange: Exchange,
    /// For [`Traffic::OnOff`] only. Boxed, since a world may have very many flows.
    pub(crate) bursts: Option<Box<Bursts>>,
    /// The path from `from` to `to`, and back; `None` while there is none. Flows share it.
    pub(crate) path: Option<Arc<Way>>,
    pub(crate) return_path: Option<Arc<Way>>,
    /// Whether the path can change.
    pub(crate) roams: bool,
    /// Since when the path has been broken.
    pub(crate) down_since: Option<Instant>,
    /// The time without new data and the sender's state when the path broke.
    at_break: (Option<Duration>, Option<SenderState>),
    /// The first new data after a return has arrived, and the sender's state is not noted yet.
    resumes: bool,
    /// How long it was broken before that.
    pub(crate) outage: Duration,
    /// The reports of external hosts about their connections at the ends, if there are any.
    reported: Option<Box<[Option<ConnectionReport>; 2]>>,
}

/// A report of an external host about one of its connections.
#[derive(Clone, PartialEq, Debug)]
pub struct ConnectionReport {
    /// Its counters.
    pub counters: Counters,
    /// Bytes of data in its full-sized segments.
    pub snd_mss: u32,
}

/// The progress of an exchange of requests and answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) asked_at: Option<Instant>,
    pub(crate) ask_at: Option<Instant>,
    pub(crate) to_ask: u64,
    pub(crate) to_answer: u64,
    pub(crate) times: Vec<Duration>,
}

/// The state of a source of bursts.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    pub(crate) rng: Rng,
    pub(crate) send_at: Option<Instant>,
    pub(crate) burst_until: Instant,
}

impl Flow {
    pub(crate) fn new(id: FlowId, config: &FlowConfig, seed: u64) -> Self {
        Self {
            port: FIRST_PORT + id.0 as u16,
            addresses: (config.from.address(config.ipv6), config.to.address(config.ipv6)),
            begun: false,
            from: None,
            to: None,
            connected_at: None,
            completed_at: None,
            failure: None,
            written: 0,
            read_at_to: 0,
            read_at_from: 0,
            reconnections: Vec::new(),
            readdressings: Vec::new(),
            new_data_at: None,
            longest_pause: Duration::ZERO,
            exchange: Exchange::default(),
            bursts: matches!(config.traffic, Traffic::OnOff(_)).then(|| Box::new(Bursts::new(id, seed))),
            path: None,
            return_path: None,
            roams: false,
            down_since: None,
            at_break: (None, None),
            resumes: false,
            outage: Duration::ZERO,
            reported: None,
            config: config.clone(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.completed_at.is_some() || self.failure.is_some()
    }

    /// Whether the run waits for it.
    pub(crate) fn is_finite(&self) -> bool {
        self.config.is_finite()
    }

    /// TCP has taken this many bytes of the data of the application at `end`.
    pub(crate) fn note_written(&mut self, end: End, taken: u64) {
        self.written += if end == End::From { taken } else { 0 };
        match (self.config.traffic, end) {
            (Traffic::RequestResponse(_), End::From) => self.exchange.to_ask -= taken,
            (Traffic::RequestResponse(_), End::To) => self.exchange.to_answer -= taken,
            _ => {}
        }
    }

    /// The end that opens the connection.
    pub(crate) fn opener(&self) -> End {
        match self.config.traffic {
            Traffic::Bulk(bulk) if bulk.opener == Opener::Receiver => End::To,
            _ => End::From,
        }
    }

    pub(crate) fn node(&self, end: End) -> NodeId {
        match end {
            End::From => self.config.from,
            End::To => self.config.to,
        }
    }

    pub(crate) fn address(&self, end: End) -> IpAddr {
        match end {
            End::From => self.addresses.0,
            End::To => self.addresses.1,
        }
    }

    pub(crate) fn connection(&self, end: End) -> Option<ConnectionId> {
        match end {
            End::From => self.from,
            End::To => self.to,
        }
    }

    pub(crate) fn set_connection(&mut self, end: End, id: ConnectionId) {
        match end {
            End::From => self.from = Some(id),
            End::To => self.to = Some(id),
        }
    }

    /// The report of the external host at `end` about its connection.
    pub(crate) fn reported(&self, end: End) -> Option<&ConnectionReport> {
        self.reported.as_deref()?[end as usize].as_ref()
    }

    pub(crate) fn take_report(&mut self, end: End, report: ConnectionReport) {
        self.reported.get_or_insert_default()[end as usize] = Some(report);
    }

    /// The path is broken, or restored; `sender` is the state of its sender now.
    pub(crate) fn note_path(&mut self, at: Instant, whole: bool, sender: Option<SenderState>) {
        if self.is_over() {
            return;
        }
        match self.down_since {
            None if !whole => {
                self.down_since = Some(at);
                self.at_break = (self.new_data_at.map(|last| at.saturating_since(last)), sender);
            }
            Some(since) if whole => {
                self.down_since = None;
                self.outage += at.saturating_since(since.max(self.config.start));
                if self.config.start <= at {
                    let (idle_before, before) = self.at_break;
                    self.reconnections.push(Reconnection { up_at: at, idle: None, idle_before, before, after: None });
                }
            }
            _ => {}
        }
    }

    /// How long the path was broken from the start to `end`.
    pub(crate) fn outage_until(&self, end: Instant) -> Duration {
        let open = self.down_since.map_or(Duration::ZERO, |since| end.saturating_since(since.max(self.config.start)));
        self.outage + open
    }

    /// The longest time without new data, the time since the last included.
    pub(crate) fn longest_pause_until(&self, end: Instant) -> Option<Duration> {
        self.new_data_at.map(|at| self.longest_pause.max(end.saturating_since(at)))
    }

    /// New data has arrived: the first after a reconnection ends the idle time.
    pub(crate) fn note_new_data(&mut self, now: Instant) -> Option<Duration> {
        self.longest_pause = self.longest_pause_until(now).unwrap_or_default();
        self.new_data_at = Some(now);
        let last = self.reconnections.last_mut().filter(|last| last.idle.is_none())?;
        let idle = now.saturating_since(last.up_at);
        last.idle = Some(idle);
        self.resumes = true;
        Some(idle)
    }

    /// Whether [`Self::note_resumed`] is due.
    #[inline]
    pub(crate) const fn resumes(&self) -> bool {
        self.resumes
    }

    /// The state of the sender at the first new data after a return.
    pub(crate) fn note_resumed(&mut self, sender: Option<SenderState>) {
        self.resumes = false;
        if let Some(last) = self.reconnections.last_mut() {
            last.after = sender;
        }
    }
}

impl End {
    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::From => Self::To,
            Self::To => Self::From,
        }
    }
}

impl Bursts {
    fn new(id: FlowId, seed: u64) -> Self {
        Self { rng: Rng::split(seed, &format!("flow {}", id.0)), send_at: None, burst_until: Instant::ZERO }
    }

    /// When the datagram after one at `now` is sent.
    pub(crate) fn after(&mut self, now: Instant, config: &OnOff, wire_time: Duration) -> Instant {
        let next = now + wire_time;
        if next < self.burst_until {
            return next;
        }
        let start = next.max(self.burst_until) + self.pareto(config.mean_off, config.shape);
        self.burst_until = start + self.pareto(config.mean_on, config.shape);
        start
    }

    /// Pareto with the given mean: scale = mean (shape - 1) / shape.
    pub(crate) fn pareto(&mut self, mean: Duration, shape: f64) -> Duration {
        let scale = mean.as_secs_f64() * (shape - 1.0) / shape;
        let uniform = 1.0 - self.rng.next_f64();
        Duration::from_secs_f64(scale / uniform.powf(1.0 / shape))
    }
}
