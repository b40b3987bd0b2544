//! The flow path in the kernel: the eBPF programs of `bpf/path.bpf.c` on an interface, and their maps.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use aya::maps::{Array, HashMap, IterableMap as _, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::SchedClassifier;
use aya::sys::SyscallError;
use aya::{EbpfLoader, Pod};
use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_flow::{
    Counter, FRAME_LEN, Flow, FlowTable, Key, Link, LinkState, NoticeRecord, Order, OrderRecord, PREDICTIONS,
    Prediction, Rules, STATUS_CALM, STATUS_CALM_IPV6, STATUS_FRAMES, STATUS_LISTENS, STATUS_NUMBER,
};
use holdover_host::clsact::Owner;
use holdover_host::ebpf::{Attachment, LOCK, Object};
use holdover_host::map_batch;
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Connection, Direction};

use super::own_segments::SentSegment;
use super::{AttachError, AttachMode, AttachedBy, EngineError, Interface};
use crate::link_watch::Family;
use crate::link_watch::silence::Traffic;

/// The programs, for little-endian machines.
static OBJECT: &[u8] = include_bytes!("../../bpf/path.bpf.o.gz");

/// The program that applies orders.
const ORDER: &str = "order";

/// Without a renewal for this long, packets pass unchanged.
pub(super) const EXPIRES_AFTER: Duration = Duration::from_millis(1500);

/// The link of an IP version is up, without a change pending; in the order of [`Family::BOTH`].
const CALM: [u32; 2] = [STATUS_CALM, STATUS_CALM_IPV6];

/// The programs that handle packets.
const HOOKS: [&str; 2] = ["egress", "ingress"];

/// The programs and maps of one interface. They end with this value, or with the process.
pub(super) struct KernelPath {
    object: Object,
    flows: HashMap<MapData, Plain<Key>, Plain<Flow>>,
    links: Array<MapData, Plain<Link>>,
    status: Array<MapData, u64>,
    predictions: Array<MapData, Plain<Prediction>>,
    /// `predictions` at the last search for idle ones.
    predictions_before: Vec<Option<Prediction>>,
    counters: PerCpuArray<MapData, u64>,
    notices: RingBuf<MapData>,
    copies: RingBuf<MapData>,
    /// The current link of each IP version.
    of_families: [LinkState; 2],
    /// The index of each IP version's current link: the map has two.
    place: u32,
    /// `STATUS_FRAMES`, or 0 if packets have no link-layer header.
    frames: u32,
    now: Instant,
    /// The last call that the kernel has refused, to be reported later.
    refused: Cell<Option<EngineError>>,
    attachment: Option<Attachment>,
}

/// The programs' counters since they were loaded, in packets ([`Counter`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Counters {
    /// TCP packets, predicted ones included.
    pub seen: u64,
    /// ACKs that were lowered.
    pub lowered: u64,
    /// ACKs withheld.
    pub withheld: u64,
    /// Echoed timestamps that were replaced.
    pub refreshed: u64,
    /// Windows shrunk before a cut.
    pub shrunk: u64,
    /// Packets sent by the agent.
    pub injected: u64,
    /// Passed unchanged: fragments.
    pub alone_fragment: u64,
    /// Passed unchanged: with a VLAN tag.
    pub alone_vlan: u64,
    /// Passed unchanged: IPv6 with too many or unknown extension headers.
    pub alone_header: u64,
    /// Passed unchanged: with a signature (TCP-MD5, TCP-AO).
    pub alone_signed: u64,
    /// Passed unchanged: of Multipath TCP.
    pub alone_multipath: u64,
    /// Passed unchanged: malformed.
    pub alone_malformed: u64,
    /// Passed unchanged: of connections on which the host has not sent anything yet.
    pub alone_unknown: u64,
    /// Passed unchanged: of connections without room in the table.
    pub alone_full: u64,
    /// Passed unchanged: of connections exempted by a rule.
    pub alone_policy: u64,
    /// Notices lost because the agent had not read earlier ones.
    pub notice_lost: u64,
}

/// The run time of the programs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// The number of runs: one per packet, or per GSO/GRO packet.
    pub runs: u64,
    /// Their total time, in ns.
    pub nanos: u64,
}

/// A key or value of a map.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Plain<T>(T);

// SAFETY: `repr(C)` integers without padding, as `holdover_flow` asserts for each of its structures; any bytes are a
// value.
unsafe impl Pod for Plain<Key> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Flow> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Link> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Prediction> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Rules> {}

impl KernelPath {
    /// Loads the programs. They get no packets before [`Self::attach`].
    pub(super) fn load(rules: Rules, most_connections: u32) -> Result<Self, EngineError> {
        debug_assert!([0, FRAME_LEN].contains(&(rules.frame_len() as usize)));
        let frames = if rules.frame_len() == 0 { 0 } else { STATUS_FRAMES };
        let mut object = open_object(rules, most_connections)?;
        object.load(&HOOKS)?;
        object.load(&[ORDER])?;
        let mut blank: Array<_, Plain<Flow>> = object.take("blank_flows")?;
        blank.set(0, Plain(Flow::new()), 0)?;
        let mut path = Self {
            flows: object.take("flows")?,
            links: object.take("links")?,
            status: object.take("status")?,
            predictions: object.take("predictions")?,
            predictions_before: vec![None; PREDICTIONS as usize],
            counters: object.take("counters")?,
            notices: object.take("flow_notices")?,
            copies: object.take("copies")?,
            object,
            of_families: [LinkState::default(); 2],
            place: 0,
            frames,
            now: Instant::ZERO,
            refused: Cell::new(None),
            attachment: None,
        };
        // Programs keep their maps; no one else needs this one.
        drop(blank);
        path.write_link(Instant::ZERO);
        path.refused.take().map_or(Ok(path), Err)
    }

    /// The number of instructions that the verifier processed for each program, if the kernel reports it (Linux 5.16).
    #[cfg(test)]
    pub(super) fn verified_instructions(&self) -> [(&'static str, Option<u32>); 3] {
        ["egress", "ingress", ORDER].map(|name| {
            let program: &SchedClassifier = self.object.program(name).expect("it is loaded");
            let info = program.info().expect("the kernel knows it");
            (name, info.verified_instruction_count())
        })
    }

    /// Creates the maps, and loads the program that applies orders.
    pub(super) fn probe() -> Result<(), EngineError> {
        Ok(open_object(WakeConfig::all().rules(), 1)?.load(&[ORDER])?)
    }

    /// Attaches to an interface of the calling thread's network namespace: by tcx, or as filters of `clsact` if the
    /// kernel has no tcx. Removes filters that an earlier agent has left there.
    pub(super) fn attach(&mut self, interface: &Interface, mode: AttachMode) -> Result<(), EngineError> {
        // Attachments to an interface that is gone.
        self.attachment = None;
        let attached = self.object.attach(Owner::AGENT, (&interface.name, interface.index), mode, None);
        self.attachment = Some(attached.map_err(|error| match error {
            AttachError::Object(error) => error.into(),
            source => EngineError::Attach { interface: interface.name.clone(), source },
        })?);
        Ok(())
    }

    /// The last way of attaching.
    pub(super) fn attached_by(&self) -> Option<AttachedBy> {
        self.attachment.as_ref().map(Attachment::by)
    }

    /// Sets the time of subsequent calls.
    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Tells the programs that the agent is alive.
    pub(super) fn renew(&mut self) {
        self.write_link(self.now + EXPIRES_AFTER);
    }

    /// The last refusal of the kernel since the last call.
    pub(super) fn take_refused(&mut self) -> Option<EngineError> {
        self.refused.take()
    }

    /// The next notice.
    pub(super) fn next_notice(&mut self) -> Option<NoticeRecord> {
        loop {
            let item = self.notices.next()?;
            if let Some(notice) = NoticeRecord::from_bytes(&item) {
                return Some(notice);
            }
        }
    }

    /// The next copy of a short segment that the host has sent while the link was not calm, or has sent again: an IP packet,
    /// as it left but for the checksum.
    pub(super) fn next_copy(&mut self) -> Option<SentSegment> {
        let item = self.copies.next()?;
        let (len, rest) = item.split_first_chunk()?;
        let (is_retransmission, bytes) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_ne_bytes(*len)).min(bytes.len());
        let packet = Bytes::copy_from_slice(&bytes[..len]);
        Some(SentSegment { packet, is_retransmission: u16::from_ne_bytes(*is_retransmission) != 0 })
    }

    /// Whether nothing happens to the link of an IP version.
    pub(super) fn is_calm(&self, family: Family) -> bool {
        Link::new(&self.of_families[family.index()]).is_calm()
    }

    /// A flow from the map, predicted packets included.
    pub(super) fn flow(&self, connection: Connection) -> Option<Flow> {
        let key = Key::new(connection);
        let mut numbers =
            [Direction::Outgoing, Direction::Incoming].map(|way| Prediction::number(&key, way)).into_iter();
        if numbers.any(|number| self.prediction(number).is_some_and(|prediction| prediction.is_active(&key))) {
            self.run_order(OrderRecord::fold(key));
        }
        self.flows.get(&Plain(key), LOCK).ok().map(|value| value.0)
    }

    /// Calls `look` for every flow.
    pub(super) fn for_each(&self, mut look: impl FnMut(Connection, &Flow)) {
        let predictions = (0..PREDICTIONS).filter_map(|number| self.prediction(number));
        for prediction in predictions.filter(|prediction| prediction.is_active(&prediction.key())) {
            self.run_order(OrderRecord::fold(prediction.key()));
        }
        let map = self.flows.map().fd().as_fd();
        // SAFETY: these are the map's key and value, integers without padding.
        let walked =
            unsafe { map_batch::for_each(map, LOCK, &mut |key: &Key, flow: &Flow| look(key.connection(), flow)) };
        if let Err(io_error) = walked {
            let call = "BPF_MAP_LOOKUP_BATCH";
            self.refused.set(Some(MapError::from(SyscallError { call, io_error }).into()));
        }
    }

    fn prediction(&self, number: u32) -> Option<Prediction> {
        self.predictions.get(&number, 0).ok().map(|value| value.0)
    }

    /// Frees the predictions without packets since the last call.
    pub(super) fn free_idle_predictions(&mut self) {
        for number in 0..PREDICTIONS {
            let prediction = self.prediction(number).filter(|prediction| !prediction.is_free());
            if let Some(idle) = prediction
                && self.predictions_before[number as usize] == prediction
            {
                self.run_order(OrderRecord::free_prediction(idle.key(), number));
            }
            self.predictions_before[number as usize] = prediction;
        }
    }

    /// Removes a connection, and its predictions, whose packets would pass unseen.
    pub(super) fn forget(&mut self, connection: Connection) {
        let key = Key::new(connection);
        // It may be gone.
        let _ = self.flows.remove(&Plain(key));
        for direction in [Direction::Outgoing, Direction::Incoming] {
            self.run_order(OrderRecord::free_prediction(key, Prediction::number(&key, direction)));
        }
    }

    /// Exempts a connection, or ends the exemption.
    pub(super) fn leave_alone(&mut self, connection: Connection, is_exempt: bool) {
        self.run_order(OrderRecord::leave_alone(connection, is_exempt));
    }

    /// Packets of connections without room in the table.
    pub(super) fn alone_full(&self) -> u64 {
        self.counter(Counter::AloneFull)
    }

    /// Predicted packets.
    pub(super) fn predicted(&self) -> u64 {
        self.counter(Counter::Predicted) + self.counter(Counter::PredictedIn)
    }

    /// The traffic counters for silence detection.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            tcp_sent: self.counter(Counter::Seen) + self.counter(Counter::Predicted),
            tcp_received: self.counter(Counter::SeenIn) + self.counter(Counter::PredictedIn),
            others_received: self.counter(Counter::OthersIn),
        }
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u32), 0).map_or(0, |values| values.iter().copied().fold(0, u64::wrapping_add))
    }

    /// All counters.
    pub(super) fn counters(&self) -> Counters {
        Counters {
            seen: self.counter(Counter::Seen) + self.counter(Counter::SeenIn) + self.predicted(),
            lowered: self.counter(Counter::Lowered),
            withheld: self.counter(Counter::Withheld),
            refreshed: self.counter(Counter::Refreshed),
            shrunk: self.counter(Counter::Shrunk),
            injected: self.counter(Counter::Injected),
            alone_fragment: self.counter(Counter::AloneFragment),
            alone_vlan: self.counter(Counter::AloneVlan),
            alone_header: self.counter(Counter::AloneHeader),
            alone_signed: self.counter(Counter::AloneSigned),
            alone_multipath: self.counter(Counter::AloneMultipath),
            alone_malformed: self.counter(Counter::AloneMalformed),
            alone_unknown: self.counter(Counter::AloneUnknown),
            alone_full: self.alone_full(),
            alone_policy: self.counter(Counter::AlonePolicy),
            notice_lost: self.counter(Counter::NoticeLost),
        }
    }

    /// Number and total time of the programs' runs, while the kernel counts them (`bpf_enable_stats`).
    pub(super) fn cost(&mut self) -> Cost {
        let mut cost = Cost::default();
        for name in HOOKS {
            let program = self.object.program::<SchedClassifier>(name).ok();
            let fd = program.and_then(|program| Some(program.fd().ok()?.as_fd().as_raw_fd()));
            let text =
                fd.and_then(|fd| std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()).unwrap_or_default();
            let of = |name: &str| -> u64 {
                let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                lines.next().and_then(|value| value.trim().parse().ok()).unwrap_or(0)
            };
            cost.runs += of("run_cnt");
            cost.nanos += of("run_time_ns");
        }
        cost
    }

    /// Runs a program on a packet, for tests: returns the verdict (`None` for pass), and the packet.
    #[cfg(test)]
    pub(super) fn run(&mut self, direction: Direction, frame: &[u8], now: Instant, gso_size: u32) -> Option<Vec<u8>> {
        use aya::programs::{TestRun as _, TestRunOptions};

        let name = if direction == Direction::Outgoing { "egress" } else { "ingress" };
        let mut context = [0; 192];
        context[152..160].copy_from_slice(&now.as_nanos().to_ne_bytes());
        context[176..180].copy_from_slice(&gso_size.to_ne_bytes());
        let mut out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        };
        let program: &SchedClassifier = self.object.program(name).expect("loaded");
        let result = program.test_run(options).expect("the kernel runs it");
        out.truncate(result.data_size_out as usize);
        // TCX_NEXT
        (result.return_value as i32 == -1).then_some(out)
    }

    /// The part for one IP version.
    pub(super) fn of(&mut self, family: Family) -> FamilyPath<'_> {
        FamilyPath { path: self, family }
    }

    /// Changes the half of a connection whose ACKs go in `direction`.
    pub(super) fn order(&self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        self.run_order(OrderRecord::new(now, connection, direction, order));
    }

    /// Sets the state of the link for an IP version.
    pub(super) fn set_link(&mut self, family: Family, link: LinkState) {
        // Alternate the two places: a program may still read the other one.
        if self.of_families[family.index()] != link {
            self.of_families[family.index()] = link;
            self.renew();
        }
    }

    fn run_order(&self, order: OrderRecord) {
        if let Err(error) = self.object.run(ORDER, order.to_bytes().as_ref()) {
            self.refused.set(Some(error.into()));
        }
    }

    /// Writes the link to the unused place, and switches to it.
    fn write_link(&mut self, expires_at: Instant) {
        self.place ^= STATUS_NUMBER;
        let mut status = self.place | self.frames;
        let mut written = Ok(());
        for family in Family::BOTH {
            let mut link = self.of_families[family.index()];
            link.expires_at = expires_at;
            let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
            let record = Link::new(&link);
            status |= flag(record.is_calm(), CALM[family.index()]) | flag(link.listens, STATUS_LISTENS);
            let number = self.place | (family.index() as u32) << 1;
            written = written.and_then(|()| self.links.set(number, Plain(record), 0));
        }
        let written = written.and_then(|()| self.status.set(0, u64::from(status), 0));
        if let Err(error) = written {
            self.refused.set(Some(error.into()));
        }
    }
}

/// The connections of one IP version, and its link.
pub(super) struct FamilyPath<'a> {
    path: &'a mut KernelPath,
    family: Family,
}

impl FlowTable for FamilyPath<'_> {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.path.flow(connection)
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        self.path.for_each(|connection, flow| {
            if Family::of_connection(connection) == self.family && !flow.is_over() && !flow.is_exempt() {
                look(connection, flow);
            }
        });
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        self.path.order(now, connection, direction, order);
    }

    fn set_link(&mut self, link: LinkState) {
        self.path.set_link(self.family, link);
    }
}

impl std::fmt::Debug for KernelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelPath").field("of_families", &self.of_families).finish_non_exhaustive()
    }
}

/// Readable when there are notices.
impl AsFd for KernelPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

/// Creates the maps; the programs are not loaded yet.
fn open_object(rules: Rules, most_connections: u32) -> Result<Object, EngineError> {
    let rules = Plain(rules);
    let mut loader = EbpfLoader::new();
    loader.override_global("rules", &rules, true).map_max_entries("flows", most_connections.max(1));
    Ok(Object::open(&mut loader, OBJECT)?)
}

impl From<MapError> for EngineError {
    fn from(source: MapError) -> Self {
        Self::Map(source)
    }
}
