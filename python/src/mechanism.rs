//! A mechanism that is written in Python, in the path of packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Verdict};
use holdover_wire::Packet;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::packet::PyPacket;

/// The first exception of any mechanism of a run; it ends the run.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    error: Mutex<Option<PyErr>>,
    stop: AtomicBool,
}

impl Failure {
    /// What ends the run, once true.
    pub(crate) const fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether the run is over because of an exception.
    pub(crate) fn has_failed(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// An exception has come up.
    pub(crate) fn set(&self, error: PyErr) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The exception, if there is one.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The filter that stands for a `holdover.Mechanism`. After each call of a method it fetches what the object wants sent, noted and woken for.
#[derive(Debug)]
pub(crate) struct PythonFilter {
    object: Py<PyAny>,
    name: &'static str,
    failure: Arc<Failure>,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
    deadline: Option<Instant>,
    /// When it was last called for its deadline, and how often at that instant before.
    timeout_at: Instant,
    timeouts: u32,
}

/// A mechanism that is called more often than this at one instant would be called there for ever.
const MOST_AT_AN_INSTANT: u32 = 1000;

impl PythonFilter {
    /// The filter of a new object.
    pub(crate) fn new(object: Bound<'_, PyAny>, failure: Arc<Failure>) -> PyResult<Self> {
        let name = interned(&object.getattr("name")?.extract::<String>()?)?;
        let mut filter = Self {
            object: object.unbind(),
            name,
            failure,
            ready: VecDeque::new(),
            actions: VecDeque::new(),
            deadline: None,
            timeout_at: Instant::ZERO,
            timeouts: 0,
        };
        Python::attach(|py| filter.fetch(py, Instant::ZERO))?;
        Ok(filter)
    }

    /// Calls the object, unless the run is over because of an exception. An exception ends the run.
    fn call(&mut self, now: Instant, work: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<Verdict>) -> Verdict {
        if self.failure.stop.load(Ordering::Relaxed) {
            return Verdict::Pass;
        }
        let made = Python::try_attach(|py| {
            let verdict = work(py, self.object.bind(py))?;
            self.fetch(py, now)?;
            Ok(verdict)
        });
        match made {
            Some(Ok(verdict)) => verdict,
            Some(Err(error)) => {
                self.failure.set(error);
                Verdict::Pass
            }
            // The interpreter ends, and the run with it.
            None => {
                self.failure.stop.store(true, Ordering::Relaxed);
                Verdict::Pass
            }
        }
    }

    /// The requests of the object.
    fn fetch(&mut self, py: Python<'_>, now: Instant) -> PyResult<()> {
        let object = self.object.bind(py);
        let has = |list: &str| Ok::<bool, PyErr>(!object.getattr(list)?.is_none());
        let outbox = if has("_outbox")? { Some(object.call_method0("_take_outbox")?) } else { None };
        let notes = if has("_notes")? { Some(object.call_method0("_take_notes")?) } else { None };
        for entry in outbox.iter().map(|list| list.try_iter()).collect::<PyResult<Vec<_>>>()?.into_iter().flatten() {
            let (direction, packet): (String, PyRef<'_, PyPacket>) = {
                let entry = entry?;
                (entry.get_item(0)?.extract()?, entry.get_item(1)?.extract().map_err(PyErr::from)?)
            };
            self.ready.push_back(Injected { direction: direction_of(&direction)?, packet: packet.packet.clone() });
        }
        for entry in notes.iter().map(|list| list.try_iter()).collect::<PyResult<Vec<_>>>()?.into_iter().flatten() {
            let entry = entry?;
            let direction = direction_of(&entry.get_item(1)?.extract::<String>()?)?;
            let packet: PyRef<'_, PyPacket> = entry.get_item(2)?.extract().map_err(PyErr::from)?;
            if let Some(connection) = Connection::of(direction, &packet.packet) {
                let what = interned(&entry.get_item(0)?.extract::<String>()?)?;
                self.actions.push_back(Action { at: now, connection, mechanism: self.name, what });
            }
        }
        self.deadline = object.getattr("_wake_at")?.extract::<Option<u64>>()?.map(Instant::from_nanos);
        Ok(())
    }
}

impl SegmentFilter for PythonFilter {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        self.call(now, |py, object| {
            let passing = Bound::new(py, PyPacket::new(packet.clone()))?;
            let verdict = object.call_method1("handle_packet", (now.as_nanos(), name_of(direction), &passing))?;
            let passing = passing.borrow();
            if passing.changed {
                packet.clone_from(&passing.packet);
            }
            if verdict.is_none() {
                return Ok(Verdict::Pass);
            }
            match verdict.extract::<String>()?.as_str() {
                "pass" => Ok(Verdict::Pass),
                "drop" => Ok(Verdict::Drop),
                "keep" => Ok(Verdict::Keep),
                other => {
                    let message = format!(
                        "handle_packet has returned \"{other}\"; it returns None, \"pass\", \"drop\" or \"keep\""
                    );
                    Err(PyValueError::new_err(message))
                }
            }
        })
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        let (kind, lead, symmetric, moved) = match event {
            LinkEvent::Fading { lead } => ("fading", lead.map(|lead| lead.as_nanos()), false, false),
            LinkEvent::Recovered => ("recovered", None, false, false),
            LinkEvent::Down => ("down", None, false, false),
            LinkEvent::Up { symmetric, moved } => ("up", None, symmetric, moved),
        };
        let _ = self.call(now, |_, object| {
            object.call_method1("_handle_link", (now.as_nanos(), kind, lead, symmetric, moved))?;
            Ok(Verdict::Pass)
        });
    }

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let (kind, lead) = match presence {
            Presence::Present => ("present", None),
            Presence::Rebound => ("rebound", None),
            Presence::Fading { lead } => ("fading", lead.map(|lead| lead.as_nanos())),
            Presence::Away => ("away", None),
            Presence::Moved => ("moved", None),
        };
        let _ = self.call(now, |_, object| {
            object.call_method1("_handle_mobile", (now.as_nanos(), mobile.to_string(), kind, lead))?;
            Ok(Verdict::Pass)
        });
    }

    fn handle_failed_attempt(&mut self, now: Instant, packet: &Packet) {
        let _ = self.call(now, |py, object| {
            object.call_method1(
                "handle_failed_attempt",
                (now.as_nanos(), PyPacket::new(packet.clone()).into_pyobject(py)?),
            )?;
            Ok(Verdict::Pass)
        });
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.deadline = None;
        self.timeouts = if self.timeout_at == now { self.timeouts + 1 } else { 0 };
        self.timeout_at = now;
        if self.timeouts > MOST_AT_AN_INSTANT {
            let message = format!(
                "handle_timeout was called {MOST_AT_AN_INSTANT} times at one instant, since it asks by wake_at for no later one"
            );
            self.failure.set(PyValueError::new_err(message));
            return;
        }
        let _ = self.call(now, |_, object| {
            object.setattr("_wake_at", object.py().None())?;
            object.call_method1("handle_timeout", (now.as_nanos(),))?;
            Ok(Verdict::Pass)
        });
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
}

const fn name_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Outgoing => "out",
        Direction::Incoming => "in",
    }
}

fn direction_of(name: &str) -> PyResult<Direction> {
    match name {
        "out" => Ok(Direction::Outgoing),
        "in" => Ok(Direction::Incoming),
        _ => Err(PyValueError::new_err(format!("\"{name}\" is no direction; directions are \"out\" and \"in\""))),
    }
}

/// Names of mechanisms and actions live as long as the process: so many may there be.
const MOST_NAMES: usize = 1024;

/// A name that lives as long as the process, the same for the same text.
fn interned(name: &str) -> PyResult<&'static str> {
    static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let mut names: MutexGuard<'_, _> = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = names.get(name) {
        return Ok(known);
    }
    if names.len() >= MOST_NAMES {
        let message =
            format!("more than {MOST_NAMES} different names of mechanisms and actions; put what varies elsewhere");
        return Err(PyValueError::new_err(message));
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name.to_owned(), kept);
    Ok(kept)
}
