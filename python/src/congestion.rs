//! A congestion control that is written in Python, at a host's TCP.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};
use holdover_tcp::{ConnectionId, Endpoint, RecoveryState};
use holdover_wire::Packet;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::mechanism::Failure;

/// What a congestion control sees of its connection, and the two values that it may set.
#[pyclass(name = "SendState", module = "holdover")]
#[derive(Clone, Debug)]
pub(crate) struct PySendState {
    /// The congestion window in segments, at least 1.
    #[pyo3(get, set)]
    cwnd: u32,
    /// The slow-start threshold in segments; `None` while unlimited.
    #[pyo3(get, set)]
    ssthresh: Option<u32>,
    /// Segments that were delivered since the last call, by number or by SACK.
    #[pyo3(get)]
    acked: u32,
    /// Bytes that were acknowledged by number since the last call.
    #[pyo3(get)]
    bytes_acked: u64,
    /// Segments on their way: sent, and neither delivered nor held lost.
    #[pyo3(get)]
    in_flight: u32,
    /// The largest segment in bytes.
    #[pyo3(get)]
    mss: u32,
    /// Smoothed and least round trip in ns; `None` before the first sample.
    #[pyo3(get)]
    srtt: Option<u64>,
    #[pyo3(get)]
    min_rtt: Option<u64>,
    /// `"open"`, `"disorder"`, `"cwr"`, `"recovery"` or `"loss"`.
    #[pyo3(get)]
    state: &'static str,
    /// The state at the last call.
    #[pyo3(get)]
    previous_state: &'static str,
}

/// The endpoint mechanism that asks a `holdover.CongestionControl` of each connection.
#[derive(Debug)]
pub(crate) struct PythonCongestion {
    factory: Py<PyAny>,
    failure: Arc<Failure>,
    connections: BTreeMap<Connection, Controlled>,
}

/// A connection and its object.
#[derive(Debug)]
struct Controlled {
    object: Py<PyAny>,
    delivered: u32,
    bytes_acked: u64,
    timeouts: u32,
    undos: u32,
    state: RecoveryState,
    /// The window that holds outside of recovery.
    cwnd: u32,
}

impl PythonCongestion {
    pub(crate) fn new(factory: Py<PyAny>, failure: Arc<Failure>) -> Self {
        Self { factory, failure, connections: BTreeMap::new() }
    }

    fn control(&mut self, now: Instant, id: ConnectionId, endpoint: &mut Endpoint) -> PyResult<()> {
        let Some(connection) = endpoint.connection_mut(id) else { return Ok(()) };
        let name = Connection { local: connection.local(), remote: connection.remote() };
        let counters = connection.counters();
        let (delivered, timeouts, undos) = (counters.delivered, counters.timeouts, counters.undos);
        let bytes_acked = counters.bytes_acked.0;
        let state = connection.recovery_state();
        let Some(controlled) = self.connections.get_mut(&name) else {
            let object = Python::attach(|py| self.factory.bind(py).call0().map(Bound::unbind))?;
            let cwnd = connection.cwnd();
            self.connections.insert(name, Controlled { object, delivered, bytes_acked, timeouts, undos, state, cwnd });
            return Ok(());
        };
        let timed_out = timeouts != controlled.timeouts;
        let enters = state != controlled.state && state == RecoveryState::Recovery;
        if delivered == controlled.delivered && state == controlled.state && !timed_out {
            return Ok(());
        }
        // Outside of recovery the object controls the window, and the built-in algorithm's reaction to the ACK is discarded. An undo
        // is the stack's: it restores the former window.
        let undone = undos != controlled.undos;
        let is_own = |state| !matches!(state, RecoveryState::Recovery | RecoveryState::Cwr);
        if !timed_out && !undone && is_own(state) && is_own(controlled.state) && connection.cwnd() != controlled.cwnd {
            connection.set_cwnd(controlled.cwnd);
        }
        let seen = PySendState {
            cwnd: connection.cwnd(),
            ssthresh: connection.ssthresh(),
            acked: delivered.wrapping_sub(controlled.delivered),
            bytes_acked: bytes_acked - controlled.bytes_acked,
            in_flight: connection.in_flight(),
            mss: connection.snd_mss(),
            srtt: connection.srtt().map(Duration::as_nanos),
            min_rtt: connection.min_rtt().map(Duration::as_nanos),
            state: name_of(state),
            previous_state: name_of(controlled.state),
        };
        let (cwnd, ssthresh) = (seen.cwnd, seen.ssthresh);
        let asked = Python::attach(|py| {
            let object = controlled.object.bind(py);
            let shown = Bound::new(py, seen)?;
            if timed_out {
                object.call_method1("on_timeout", (now.as_nanos(), &shown))?;
            } else if enters {
                object.call_method1("on_recovery", (now.as_nanos(), &shown))?;
            }
            if shown.borrow().acked > 0 && !timed_out {
                object.call_method1("on_ack", (now.as_nanos(), &shown))?;
            }
            let asked = shown.borrow();
            Ok::<_, PyErr>((asked.cwnd, asked.ssthresh))
        });
        let (wanted, wanted_ssthresh) = asked?;
        if wanted == 0 {
            return Err(PyValueError::new_err("cwnd was set to 0; a window has one segment at least"));
        }
        if wanted != cwnd {
            connection.set_cwnd(wanted);
        }
        if let Some(segments) = wanted_ssthresh.filter(|_| wanted_ssthresh != ssthresh) {
            connection.set_ssthresh(segments);
        }
        let cwnd = connection.cwnd();
        controlled.delivered = delivered;
        controlled.bytes_acked = bytes_acked;
        (controlled.timeouts, controlled.undos) = (timeouts, undos);
        (controlled.state, controlled.cwnd) = (state, cwnd);
        Ok(())
    }
}

impl SegmentFilter for PythonCongestion {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}
}

impl EndpointMechanism for PythonCongestion {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let sends = |(_, connection): &(ConnectionId, &holdover_tcp::Connection)| {
            connection.counters().delivered > 0 && !connection.is_closed()
        };
        let live: Vec<(ConnectionId, Connection)> = endpoint
            .connections()
            .filter(sends)
            .map(|(id, connection)| (id, Connection { local: connection.local(), remote: connection.remote() }))
            .collect();
        if self.connections.len() > live.len() {
            self.connections.retain(|name, _| live.iter().any(|(_, other)| other == name));
        }
        for (id, _) in live {
            if self.failure.has_failed() {
                return;
            }
            if let Err(error) = self.control(now, id, endpoint) {
                self.failure.set(error);
            }
        }
    }
}

/// Linux's names.
const fn name_of(state: RecoveryState) -> &'static str {
    match state {
        RecoveryState::Open => "open",
        RecoveryState::Disorder => "disorder",
        RecoveryState::Cwr => "cwr",
        RecoveryState::Recovery => "recovery",
        RecoveryState::Loss => "loss",
    }
}
