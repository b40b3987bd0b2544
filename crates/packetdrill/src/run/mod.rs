//! Runs a script's events in order against the machine under test.

mod check;
mod flow;
mod inbound;
mod info;
mod outbound;
mod sent;
mod support;

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_tcp::Profile;

use crate::ast::{Action, Call, Event, EventTime, Script};
use crate::code::{CodeError, Variables};
use crate::constants::integer;
use crate::kernel::{Addresses, Attempt, Kernel, Progress, Returned};
use crate::report::{Difference, IpVersion, Report, Verdict};
use crate::settings::Settings;
use crate::shell::{self, ReadFile};
use flow::Flow;

/// Settings of a run, in addition to the script's own.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunOptions {
    /// The IP version, unless the script sets addresses.
    pub ip_version: IpVersion,
    /// The stack; `None` uses the Linux profile of the script's congestion control.
    pub profile: Option<Profile>,
    /// The tolerance of event times in microseconds, unless the script sets one.
    pub tolerance_usecs: Option<u64>,
}

/// The clock at a script's start, away from the wraparound of timestamps and sequence numbers.
const START: Instant = Instant::from_secs(1_000);
/// The limit of event times.
const MAX_SCRIPT_TIME: i64 = 24 * 3_600 * 1_000_000;
/// packetdrill's default tolerance.
const TOLERANCE_USECS: i64 = 4_000;
const TOLERANCE_PERCENT: f64 = 12.5;
/// The time to wait for an outbound packet after its due time.
const PATIENCE_USECS: i64 = 2_000_000;
/// The time to wait for a packet that may come at any time.
const ANY_TIME_PATIENCE: i64 = 3_600 * 1_000_000;
/// The number of differences after which a script is abandoned.
const MAX_DIFFERENCES: usize = 12;

/// Runs a script. `read` supplies the scripts named by its commands.
pub fn run(script: &Script, options: &RunOptions, read: &mut ReadFile<'_>) -> Report {
    let ip_version = script.option("ip_version").and_then(IpVersion::from_name).unwrap_or(options.ip_version);
    let mut settings = Settings::default();
    // packetdrill's own test runners use this MTU for IPv6, to have the same MSS.
    let default_mtu = if ip_version == IpVersion::V6 { "1520" } else { "1500" };
    settings.set_device_mtu(script.option("mtu").unwrap_or(default_mtu));
    settings.merged_segment = script.option("mss").and_then(|bytes| bytes.parse().ok());
    if let Some(init) = &script.init {
        shell::apply(&init.text, &mut settings, read);
    }
    let blocker = settings.blockers().first().cloned().or_else(|| support::missing(script, ip_version));
    if let Some(reason) = blocker {
        let notes = settings.notes().to_vec();
        return Report { ip_version, verdict: Verdict::NotRun, reason: Some(reason), differences: Vec::new(), notes };
    }
    let address = |name| script.option(name).and_then(|text| text.split('/').next()?.parse().ok());
    let addresses = Addresses::new(ip_version, address("local_ip"), address("remote_ip"));
    let mut runner = Runner::new(script, options, Kernel::new(START, addresses, settings, options.profile));
    let reason = runner.run(script, read).err().and_then(|stop| match stop {
        Stop::Unsupported(reason) => Some(reason),
        Stop::Difference => None,
    });
    let verdict = match (&reason, runner.differences.is_empty()) {
        (Some(_), true) => Verdict::NotRun,
        (None, true) => Verdict::Passed,
        _ => Verdict::Differs,
    };
    let notes = runner.kernel.settings_mut().notes().to_vec();
    Report { ip_version, verdict, reason, differences: runner.differences, notes }
}

/// The reason to stop a script early.
enum Stop {
    /// An unsupported feature.
    Unsupported(String),
    /// A difference after which continuing makes no sense.
    Difference,
}

type Step = Result<(), Stop>;

struct Runner {
    kernel: Kernel,
    flow: Option<Flow>,
    under_test: UnderTest,
    tolerance: i64,
    tolerance_percent: f64,
    timestamp_tick: i64,
    timestamp_echo_scaled: bool,
    strict_segments: bool,
    variables: Variables,
    differences: Vec<Difference>,
    blocked: Option<Blocked>,
    /// The previous event: its due time, and whether it was an inbound packet.
    last: Option<(i64, bool)>,
    next_remote_port: u16,
}

/// The owner of the script's packets: the newest socket, or its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnderTest {
    Nothing,
    Fresh,
    Listening,
    /// The socket with this descriptor, before its first packet.
    Connecting(i64),
    Flow,
}

impl UnderTest {
    /// Whether an incoming packet begins a new connection.
    fn takes_any_packet(self) -> bool {
        matches!(self, Self::Nothing | Self::Fresh | Self::Listening)
    }
}

/// A blocked call.
struct Blocked {
    line: u32,
    call: Call,
    progress: Progress,
    /// The time at which it must return.
    end: i64,
    started: i64,
}

/// The due time of an event, in microseconds of the script.
#[derive(Clone, Copy, Debug)]
struct Due {
    from: i64,
    until: i64,
    any: bool,
    /// The reference of relative times; 0 for absolute ones.
    base: i64,
}

impl Runner {
    fn new(script: &Script, options: &RunOptions, mut kernel: Kernel) -> Self {
        let strict_segments = script.option("strict_segments").is_some();
        if strict_segments {
            kernel.show_bursts();
        }
        let number = |name| script.option(name)?.parse::<f64>().ok().filter(|number| (0.0..1e12).contains(number));
        let tolerance = options.tolerance_usecs.map(|usecs| usecs.min(1 << 40) as f64);
        Self {
            kernel,
            flow: None,
            under_test: UnderTest::Nothing,
            tolerance: number("tolerance_usecs").or(tolerance).map_or(TOLERANCE_USECS, |usecs| usecs as i64),
            tolerance_percent: number("tolerance_percent").unwrap_or(TOLERANCE_PERCENT),
            timestamp_tick: number("tcp_ts_tick_usecs").map_or(0, |usecs| usecs as i64),
            timestamp_echo_scaled: script.option("tcp_ts_ecr_scaled").is_some(),
            strict_segments,
            variables: info::named_values(),
            differences: Vec::new(),
            blocked: None,
            last: None,
            next_remote_port: 40_000,
        }
    }

    fn run(&mut self, script: &Script, read: &mut ReadFile<'_>) -> Step {
        for event in &script.events {
            let due = self.due(event);
            if due.until > MAX_SCRIPT_TIME {
                return Err(Stop::Unsupported("an event more than a day away".to_owned()));
            }
            self.event(event, due, read)?;
            let inbound = matches!(&event.action, Action::Packet(packet) if packet.inbound);
            self.last = Some((due.from, inbound));
            if self.differences.len() >= MAX_DIFFERENCES || self.kernel.is_exhausted() {
                return Err(Stop::Difference);
            }
        }
        self.await_blocked()
    }

    fn event(&mut self, event: &Event, due: Due, read: &mut ReadFile<'_>) -> Step {
        match &event.action {
            Action::Packet(packet) if !packet.inbound => self.expect(event.line, due, packet),
            Action::Packet(packet) => {
                self.wait_for(event.line, due, "the packet arrives");
                self.inject(event.line, packet)
            }
            Action::Call(call) => {
                self.await_blocked()?;
                self.wait_for(event.line, due, "the system call begins");
                self.start_call(event.line, due, call)
            }
            Action::Command(text) => {
                self.wait_for(event.line, due, "the command runs");
                shell::apply(text, self.kernel.settings_mut(), read);
                self.kernel.apply_settings();
                match self.kernel.settings_mut().blockers().first().cloned() {
                    Some(reason) => Err(Stop::Unsupported(reason)),
                    None => Ok(()),
                }
            }
            Action::Code(text) => {
                self.wait_for(event.line, due, "the code runs");
                self.run_code(event.line, text)
            }
        }
    }

    /// The due time of an event. Relative times count from now; those of consecutive inbound packets count from the due
    /// time of the previous one.
    fn due(&self, event: &Event) -> Due {
        let inbound = matches!(&event.action, Action::Packet(packet) if packet.inbound);
        let base = match self.last {
            Some((at, true)) if inbound => at,
            _ => self.script_time(self.kernel.now()),
        };
        let is_absolute = matches!(event.time, EventTime::Absolute(_) | EventTime::AbsoluteRange(..));
        let base = if is_absolute { 0 } else { base };
        let (from, until, any) = match event.time {
            EventTime::Absolute(at) => (at, at, false),
            EventTime::Relative(after) => (base.saturating_add(after), base.saturating_add(after), false),
            EventTime::Any => (base, base, true),
            EventTime::AbsoluteRange(from, until) => (from, until, false),
            EventTime::RelativeRange(from, until) => (base.saturating_add(from), base.saturating_add(until), false),
        };
        // Later events are rejected elsewhere; this only prevents overflow.
        let bounded = |at: i64| at.min(2 * MAX_SCRIPT_TIME);
        Due { from: bounded(from), until: bounded(until), any, base }
    }

    fn script_time(&self, at: Instant) -> i64 {
        (at.saturating_since(START).as_micros()) as i64
    }

    fn instant(&self, script_time: i64) -> Instant {
        START + Duration::from_micros(script_time.clamp(0, 2 * MAX_SCRIPT_TIME) as u64)
    }

    /// The tolerance at `due`: at least a share of the time since the previous event, as in packetdrill.
    fn tolerance_at(&self, due: i64) -> i64 {
        let since_last = self.last.map_or(0, |(last, _)| due - last);
        self.tolerance.max((self.tolerance_percent / 100.0 * since_last as f64) as i64)
    }

    fn is_in_time(&self, due: Due, actual: i64) -> bool {
        let tolerance = self.tolerance_at(due.from);
        due.any || (actual >= due.from - tolerance && actual <= due.until + tolerance)
    }

    /// Advances to the time of an event, and records a difference if it is past already.
    fn wait_for(&mut self, line: u32, due: Due, what: &str) {
        self.advance(self.instant(due.from));
        let actual = self.script_time(self.kernel.now());
        if !self.is_in_time(due, actual) {
            let expected = format!("that {what} at {}", seconds(due.from));
            self.differ(line, expected, format!("the time {}", seconds(actual)));
        }
    }

    /// Advances time. A blocked call may return meanwhile.
    fn advance(&mut self, until: Instant) {
        while self.advance_once(until) {}
    }

    /// Advances to the next deadline; returns false once `until` is reached.
    fn advance_once(&mut self, until: Instant) -> bool {
        self.poll_blocked();
        let patience = self.blocked.as_ref().and_then(|blocked| blocked.progress.until);
        let limit = patience.filter(|&at| at > self.kernel.now()).map_or(until, |at| at.min(until));
        let stepped = self.kernel.step(limit);
        self.poll_blocked();
        (stepped || self.kernel.now() < until) && !self.kernel.is_exhausted()
    }

    fn start_call(&mut self, line: u32, due: Due, call: &Call) -> Step {
        self.note_role(call);
        let mut progress = Progress::default();
        let before = self.kernel.now();
        match self.kernel.call(call, &mut progress) {
            Attempt::Unsupported(reason) => return Err(Stop::Unsupported(reason)),
            Attempt::Done(returned) => {
                self.check_returned(line, call, &returned);
                if let Some(end) = call.end {
                    self.check_end(line, end.saturating_add(due.base), due.from, before);
                }
            }
            Attempt::Blocks => {
                let started = due.from;
                let end = call.end.map_or(i64::MAX, |end| end.saturating_add(due.base));
                self.blocked = Some(Blocked { line, call: call.clone(), progress, end, started });
                if call.end.is_none() {
                    self.await_blocked()?;
                }
            }
        }
        Ok(())
    }

    /// Assigns packets to the newest socket.
    fn note_role(&mut self, call: &Call) {
        let fd = call.args.first().and_then(integer).unwrap_or(-1);
        match call.name.as_str() {
            "socket" => self.under_test = UnderTest::Fresh,
            "listen" => self.under_test = UnderTest::Listening,
            "connect" if self.under_test == UnderTest::Fresh => self.under_test = UnderTest::Connecting(fd),
            // A socket that connects again, from another port.
            "connect" if self.under_test == UnderTest::Flow && self.kernel.is_unconnected(fd) => {
                self.under_test = UnderTest::Connecting(fd);
            }
            "sendto" | "sendmsg" if self.under_test == UnderTest::Fresh && crate::kernel::is_fast_open(call) => {
                self.under_test = UnderTest::Connecting(fd);
            }
            _ => {}
        }
    }

    /// Retries the blocked call.
    fn poll_blocked(&mut self) {
        let Some(mut blocked) = self.blocked.take() else { return };
        match self.kernel.call(&blocked.call, &mut blocked.progress) {
            Attempt::Blocks => self.blocked = Some(blocked),
            Attempt::Unsupported(_) => {}
            Attempt::Done(returned) => {
                self.check_returned(blocked.line, &blocked.call, &returned);
                if blocked.end != i64::MAX {
                    self.check_end(blocked.line, blocked.end, blocked.started, self.kernel.now());
                }
            }
        }
    }

    /// Waits until the blocked call has returned.
    fn await_blocked(&mut self) -> Step {
        let until = self.kernel.now() + Kernel::PATIENCE;
        while self.blocked.is_some() && self.kernel.now() < until && !self.kernel.is_exhausted() {
            self.advance_once(until);
        }
        match self.blocked.take() {
            None => Ok(()),
            Some(blocked) => {
                let expected = format!("that {}() returns", blocked.call.name);
                self.differ(blocked.line, expected, "it blocks".to_owned());
                Err(Stop::Difference)
            }
        }
    }

    fn check_end(&mut self, line: u32, end: i64, started: i64, at: Instant) {
        let actual = self.script_time(at);
        let tolerance = self.tolerance.max((self.tolerance_percent / 100.0 * (end - started) as f64) as i64);
        if (actual - end).abs() > tolerance {
            self.differ(
                line,
                format!("that the call returns at {}", seconds(end)),
                format!("the time {}", seconds(actual)),
            );
        }
    }

    fn run_code(&mut self, line: u32, text: &str) -> Step {
        let of_flow = self.flow.as_ref().map(|flow| (flow.local, flow.remote));
        let ends = match self.under_test {
            UnderTest::Connecting(fd) => self.kernel.addresses_of(fd),
            _ => of_flow,
        };
        let Some(id) = ends.and_then(|(local, remote)| self.kernel.find(local, remote)) else {
            self.differ(line, "a connection for tcp_info".to_owned(), "none".to_owned());
            return Ok(());
        };
        if let Some(connection) = self.kernel.connection(id) {
            info::set_variables(connection, self.kernel.now(), self.kernel.busy_times(id), &mut self.variables);
        }
        match self.variables.run(text) {
            Ok(()) => Ok(()),
            Err(CodeError::Assertion { text, message }) => {
                let values = info::mentioned(&text, &self.variables);
                let actual = if values.is_empty() { message } else { values };
                self.differ(line, text, actual);
                Ok(())
            }
            Err(CodeError::Unsupported { what }) => Err(Stop::Unsupported(format!("code with {what}"))),
            Err(CodeError::UnknownName { name }) => Err(Stop::Unsupported(format!("code with the variable {name}"))),
        }
    }

    fn check_returned(&mut self, line: u32, call: &Call, returned: &Returned) {
        check::returned(call, returned).into_iter().for_each(|(expected, actual)| self.differ(line, expected, actual));
    }

    fn differ(&mut self, line: u32, expected: String, actual: String) {
        let time_s = self.script_time(self.kernel.now()) as f64 / 1e6;
        self.differences.push(Difference { line, time_s, expected, actual });
    }

    fn next_port(&mut self) -> u16 {
        self.next_remote_port = self.next_remote_port.wrapping_add(1).max(1_024);
        self.next_remote_port
    }
}

fn seconds(micros: i64) -> String {
    format!("{:.6} s", micros as f64 / 1e6)
}

/// The predefined names of scripts under an IP version, as in the kernel's own tests.
pub fn default_defines(version: IpVersion) -> BTreeMap<String, String> {
    let (level, kind, code, cookie, cookie_zero) = match version {
        IpVersion::V6 => ("SOL_IPV6", "IPV6_RECVERR", "address_unreachable", "c1d1e9742a47a9bc", "82af1a8f9a205c34"),
        IpVersion::V4 | IpVersion::V4Mapped => {
            ("SOL_IP", "IP_RECVERR", "host_unreachable", "3021b9d889017eeb", "b7c12350a90dc8f5")
        }
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    BTreeMap::from([
        pair("CMSG_LEVEL_IP", level),
        pair("CMSG_TYPE_RECVERR", kind),
        pair("CODE", code),
        pair("TFO_COOKIE", cookie),
        pair("TFO_COOKIE_ZERO", cookie_zero),
    ])
}
