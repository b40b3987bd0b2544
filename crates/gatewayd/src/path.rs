//! The gateway's eBPF programs (`bpf/gateway.bpf.c`) on the mobile-facing interface, and their maps.

mod attach;
mod flows;
mod handed_on;
mod lists;
mod networks;
mod records;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use aya::EbpfLoader;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::ProgramError;
use aya::sys::SyscallError;
use holdover_base::{Duration, Instant};
use holdover_flow::{Counter, LinkState, Rules};
use holdover_gateway::STRAGGLERS;
use holdover_gateway::WarningSign;
use holdover_gateway::divert::Course;
use holdover_gateway::prefixes::Prefixes;
pub use holdover_host::ebpf::AttachedBy;
use holdover_host::ebpf::pins::Pins;
use holdover_host::ebpf::{AttachError, Attachment, LOCK, Object, ObjectError};
use holdover_mobility::wake::WakeConfig;
use sha2::{Digest as _, Sha256};

use crate::config::{FlowModes, HostPrefixes, NO_PREFIXES};
use crate::network::Network;
use crate::split::SplitPlace;
pub(crate) use flows::MobileFlows;
use flows::{Flows, Plain};
#[cfg(test)]
pub(crate) use handed_on::testing;
pub(crate) use handed_on::{Taken, TakenIn};
use networks::Networks;
pub(crate) use records::Sign;
use records::{Address, FlowRule, Mobile, MobileCounter, MobileNotice, MobileOrder, SplitSetup};

/// The programs, for little-endian machines.
static OBJECT: &[u8] = include_bytes!("../bpf/gateway.bpf.o.gz");

/// Without a renewal for this long, packets pass unchanged.
pub const EXPIRES_AFTER: Duration = Duration::from_millis(1500);

/// The mark of the daemon's packets: "HG" and an arbitrary number.
pub(crate) const MARK: u32 = 0x4847_5231;
/// The mark of packets that the daemon makes on behalf of a mobile host.
pub(crate) const MARK_BACK: u32 = 0x4847_5232;

/// The programs.
const PROGRAMS: [&str; 5] = ["egress", "ingress", "order", "flow_order", "deliver"];

/// Linux's `BPF_NOEXIST`: creates a key, and fails if it exists.
const NO_EXIST: u64 = 1;

/// The pinned maps.
const PINNED: &[&str] = &[
    "mobiles",
    "blank_mobiles",
    "entries",
    "blank_entries",
    "flows",
    "blank_flows",
    "networks",
    "expiry",
    "notices",
    "flow_notices",
    "counters",
];

/// The sources that determine the layout of maps and the meaning of their members. A change of any word leads to other pins, and a fresh start.
const LAYOUT: [&str; 6] = [
    include_str!("../bpf/gateway/records.h"),
    include_str!("../bpf/gateway/state.h"),
    include_str!("../../flow/c/state.h"),
    include_str!("../../flow/c/half.h"),
    include_str!("../../flow/c/packet.h"),
    include_str!("../../flow/c/course.h"),
];

/// The programs are not attached.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The programs or their maps were not loaded.
    #[error(
        "the kernel does not load the gateway's eBPF programs: they need Linux 5.15, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Load(#[from] aya::EbpfError),
    /// The kernel refused a program, or an order to it.
    #[error(
        "the kernel refuses an eBPF program of the gateway: it needs Linux 5.15, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Program(#[from] ProgramError),
    /// A map was refused.
    #[error("the kernel refuses a map of the gateway's eBPF programs")]
    Map(#[from] MapError),
    /// The filters were refused.
    #[error("filters of the clsact qdisc (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")]
    Clsact(#[source] std::io::Error),
    /// The object that was built in is not the gateway's.
    #[error("the gateway's eBPF object has no {lacks}")]
    Object {
        /// Name of the missing map or program.
        lacks: &'static str,
    },
}

impl From<ObjectError> for PathError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Lacks { name } => Self::Object { lacks: name },
            ObjectError::Program { source, .. } => Self::Program(source),
            ObjectError::Map { source, .. } => Self::Map(source),
        }
    }
}

impl From<AttachError> for PathError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Tcx(error) => Self::Program(error),
            AttachError::Clsact(error) => Self::Clsact(error),
            AttachError::Object(error) => error.into(),
        }
    }
}

/// The programs' counters, in packets (a GSO packet counts once).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct PathCounters {
    /// For known mobile hosts, passed unchanged.
    pub passed: u64,
    /// For absent mobile hosts, diverted.
    pub diverted: u64,
    /// For absent mobile hosts, passed unchanged because the daemon hung, or was killed.
    pub expired: u64,
    /// Sent by the daemon.
    pub released: u64,
    /// From known mobile hosts.
    pub heard: u64,
    /// Of mobile hosts without room in the table.
    pub full: u64,
    /// Notices dropped for lack of room.
    pub notice_lost: u64,
    /// TCP packets handled by the flow path.
    pub tcp: u64,
    /// ACKs that were lowered.
    pub lowered: u64,
    /// ACKs withheld: superseded by a later one.
    pub withheld: u64,
    /// ACKs and probes made for fixed hosts.
    pub injected: u64,
    /// TCP packets of connections without room in the table.
    pub connections_full: u64,
    /// TCP packets with a signature (TCP-MD5, TCP-AO), passed unchanged.
    pub signed: u64,
    /// TCP packets of Multipath TCP, passed unchanged.
    pub multipath: u64,
    /// TCP packets of connections for which a rule chooses a mode that changes no packets.
    #[serde(default)]
    pub by_rule: u64,
    /// Windows limited by order.
    pub limited: u64,
    /// Zero-window probes answered for mobile hosts.
    pub probed: u64,
    /// Connections that got details: bulk, or packets during an absence.
    pub detailed: u64,
    /// SYNs handed to the daemon, with mode `split`.
    pub syns: u64,
    /// SYNs that passed instead, because the daemon hung, was stopping, or was gone.
    pub syns_expired: u64,
    /// Fragments of TCP segments of mobile hosts with mode `split`.
    pub fragments: u64,
}

/// TCP packets of connections without room in the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TableFull {
    /// No room for an entry.
    pub(crate) entries: u64,
    /// No room for details.
    pub(crate) details: u64,
}

/// The programs' state of a mobile host. Times are on the clock of [`holdover_host::clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) course: Course,
    /// Packets diverted so far.
    pub(crate) diverted: u64,
    /// The last packet from it; `None` before the first one.
    pub(crate) heard_at: Option<Instant>,
    /// The last packet from it in a frame to this router's own Ethernet address, or without Ethernet.
    pub(crate) addressed_at: Option<Instant>,
    /// The first packet to it since then.
    pub(crate) waiting_since: Option<Instant>,
    /// The source of its frames; `None` before the first one, or without Ethernet.
    pub(crate) mac: Option<[u8; 6]>,
    /// Since when its link is down for its connections, if that is so.
    pub(crate) down_at: Option<Instant>,
}

impl Seen {
    /// Whether a former process regarded the mobile host as absent, and it was not heard since.
    pub(crate) fn was_away(&self) -> bool {
        let is_heard = |down_at: Instant| self.heard_at.is_some_and(|at| at >= down_at + STRAGGLERS);
        self.course != Course::Pass || self.down_at.is_some_and(|at| !is_heard(at))
    }
}

/// Where the programs are attached, and where they divert to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    /// The mobile-facing interface.
    pub(crate) interface: &'a str,
    /// Its index.
    pub(crate) index: u32,
    /// Bytes before the IP header in its frames.
    pub(crate) frame_len: u32,
    /// The index of the interface to which packets are diverted.
    pub(crate) divert_to: u32,
    /// The most mobile hosts tracked.
    pub(crate) most_mobiles: u32,
    /// The most TCP connections tracked,
    pub(crate) most_connections: u32,
    /// The most of these with details.
    pub(crate) most_detailed: u32,
    /// The rules of the flow path. With [`Rules::default`] it handles nothing.
    pub(crate) rules: Rules,
    /// The link to a new mobile host, by its own mode.
    pub(crate) link: LinkState,
    /// With rules for single connections.
    pub(crate) flows: Option<&'a FlowPlace>,
    /// Mobile hosts that have a prefix each.
    pub(crate) prefixes: &'a HostPrefixes,
    /// The modes of mobile hosts, as a text: state from other modes is not used.
    pub(crate) modes: &'a str,
    /// With mode `thesis`.
    pub(crate) thesis: Option<&'a ThesisPlace>,
    /// With mode `split`.
    pub(crate) split: Option<&'a SplitPlace>,
    /// A directory of a BPF file system in which programs and maps outlive the process; `None` if they do not.
    pub(crate) pins: Option<&'a Path>,
}

/// The programs' settings of rules for single connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlowPlace {
    pub(crate) modes: FlowModes,
    /// The links to a new mobile host after its own one, by their numbers.
    pub(crate) links: Vec<LinkState>,
}

/// The programs' settings of mode `thesis`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ThesisPlace {
    pub(crate) sign: WarningSign,
    /// Networks of mobile hosts in mode `thesis` (true) and in other modes.
    pub(crate) networks: Vec<(Network, bool)>,
}

impl Place<'_> {
    /// With the least tables: to find out whether the kernel accepts the programs.
    fn nowhere() -> Self {
        Self {
            interface: "",
            index: 0,
            frame_len: 14,
            divert_to: 0,
            most_mobiles: 1,
            most_connections: 1,
            most_detailed: 1,
            rules: WakeConfig::all().rules(),
            link: LinkState::default(),
            flows: None,
            prefixes: &NO_PREFIXES,
            modes: "",
            thesis: None,
            split: None,
            pins: None,
        }
    }

    /// A name for the layout of the maps and the modes of mobile hosts: state of other ones is not used.
    fn layout(&self) -> String {
        let mut layout = Sha256::new();
        LAYOUT.iter().for_each(|text| layout.update(text));
        layout.update(self.most_mobiles.to_ne_bytes());
        layout.update(self.most_connections.to_ne_bytes());
        layout.update(self.most_detailed.to_ne_bytes());
        layout.update(self.modes);
        layout.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The programs and maps. With tcx they end with this value, or with the process, unless they are pinned.
pub(crate) struct KernelPath {
    object: Object,
    mobiles: HashMap<MapData, Address, Mobile>,
    expiry: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    notices: RingBuf<MapData>,
    flows: Flows,
    networks: Networks,
    prefixes: Prefixes,
    /// The record of a new mobile host.
    unknown: Mobile,
    /// `None` before the programs are attached.
    attachment: Option<Attachment>,
    /// `None` if nothing is pinned.
    pins: Option<Pins>,
    is_taken_over: bool,
}

impl KernelPath {
    /// Loads the programs, without attaching them.
    fn load(place: &Place<'_>, networks: &[(Network, bool)], pins: Option<Pins>) -> Result<Self, PathError> {
        let is_taken_over = pins.as_ref().is_some_and(Pins::are_taken_over);
        let mut object = open_object(place, pins.as_ref())?;
        object.load(&PROGRAMS)?;
        let mut blank: Array<_, Mobile> = object.take("blank_mobiles")?;
        let of_flows = place.flows.iter().flat_map(|flows| &flows.links).copied();
        let unknown = Mobile::new(&std::iter::once(place.link).chain(of_flows).collect::<Vec<_>>());
        blank.set(0, unknown, 0)?;
        let networks_map = networks::set(&mut object, networks, place.prefixes)?;
        let of_split = place.split.iter().flat_map(|split| &split.networks);
        let of_split = of_split.map(|(network, splits)| (*network, records::split_kind(*splits)));
        networks::fill(&mut object, "split_networks", of_split)?;
        let of_thesis = place.thesis.iter().flat_map(|thesis| &thesis.networks);
        networks::fill(&mut object, "thesis_networks", of_thesis.map(|(network, is)| (*network, u32::from(*is))))?;
        let mut rules: Array<_, FlowRule> = object.take("flow_rules")?;
        for (rule, number) in flow_rules(place).into_iter().zip(0..) {
            rules.set(number, rule, 0)?;
        }
        Ok(Self {
            mobiles: object.take("mobiles")?,
            expiry: object.take("expiry")?,
            counters: object.take("counters")?,
            notices: object.take("notices")?,
            flows: Flows::open(&mut object)?,
            networks: networks_map,
            prefixes: place.prefixes.of(networks.iter().map(|(network, _)| *network)),
            object,
            unknown,
            attachment: None,
            pins,
            is_taken_over,
        })
    }

    /// There are more networks of mobile hosts: these, of `all`.
    pub(crate) fn add_networks(
        &mut self,
        more: &[(Network, bool)],
        all: &[(Network, bool)],
        prefixes: &HostPrefixes,
    ) -> Result<(), PathError> {
        networks::add(&mut self.networks, more, prefixes)?;
        self.prefixes = prefixes.of(all.iter().map(|(network, _)| *network));
        Ok(())
    }

    /// Whether the kernel accepts the programs. Attaches nothing.
    pub(crate) fn probe() -> Result<(), PathError> {
        Ok(open_object(&Place::nowhere(), None)?.load(&PROGRAMS)?)
    }

    /// Whether programs and maps of an earlier process were taken over.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Whether programs and maps outlive the process.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Makes programs and maps end with this value.
    pub(crate) fn unpin(&mut self) {
        self.pins = None;
    }

    pub(crate) fn attached_by(&self) -> AttachedBy {
        self.attachment.as_ref().map_or(AttachedBy::Tcx, Attachment::by)
    }

    /// Tells the programs that the daemon is alive.
    pub(crate) fn renew(&mut self, now: Instant) -> Result<(), PathError> {
        Ok(self.expiry.set(0, (now + EXPIRES_AFTER).as_nanos(), 0)?)
    }

    /// Tells the programs whether the daemon splits connections.
    pub(crate) fn renew_split(&mut self, now: Instant, is_splitting: bool) -> Result<(), PathError> {
        let until = if is_splitting { (now + EXPIRES_AFTER).as_nanos() } else { 0 };
        Ok(self.expiry.set(1, until, 0)?)
    }

    /// The next mobile host that has sent a packet although it is regarded as absent, or a packet with a sign.
    pub(crate) fn next_notice(&mut self) -> Option<(IpAddr, Option<Sign>)> {
        loop {
            let item = self.notices.next()?;
            if let Some(notice) = MobileNotice::from_bytes(&item) {
                return Some((notice.address.to_ip(), notice.sign()));
            }
        }
    }

    /// The name of the mobile host to which an address belongs.
    pub(crate) fn host_of(&self, address: IpAddr) -> IpAddr {
        self.prefixes.host_of(address)
    }

    /// The length of a mobile host's prefix, if it is not a single address.
    pub(crate) fn prefix_of(&self, mobile: IpAddr) -> Option<u8> {
        self.prefixes.bits_of(mobile)
    }

    /// The state of a mobile host.
    pub(crate) fn seen(&self, mobile: IpAddr) -> Option<Seen> {
        self.mobiles.get(&Address::new(mobile), LOCK).ok().map(Seen::from)
    }

    /// Adds a mobile host before its first packet. Does nothing if it is known.
    pub(crate) fn know(&mut self, mobile: IpAddr) -> Result<(), PathError> {
        match self.mobiles.insert(Address::new(mobile), self.unknown, NO_EXIST) {
            Err(MapError::SyscallError(SyscallError { io_error, .. }))
                if io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// Removes a mobile host.
    pub(crate) fn forget(&mut self, mobile: IpAddr) {
        // It may be gone already.
        let _ = self.mobiles.remove(&Address::new(mobile));
    }

    /// Diverts packets for a mobile host, by a course other than [`Course::Pass`].
    pub(crate) fn divert(&mut self, mobile: IpAddr, course: Course) -> Result<(), PathError> {
        self.run_known(mobile, MobileOrder::course(mobile, course, 0))
    }

    /// Runs an order that is refused only if its mobile host is unknown; then adds the mobile host and runs the order
    /// again.
    fn run_known(&mut self, mobile: IpAddr, order: MobileOrder) -> Result<(), PathError> {
        if !self.run(order)? {
            self.know(mobile)?;
            self.run(order)?;
        }
        Ok(())
    }

    /// Lets packets for a mobile host pass, if exactly `diverted` packets were diverted in total; returns whether that
    /// is so.
    pub(crate) fn pass(&mut self, mobile: IpAddr, diverted: u64) -> Result<bool, PathError> {
        self.run(MobileOrder::course(mobile, Course::Pass, diverted))
    }

    /// [`PathCounters::connections_full`] in its parts.
    pub(crate) fn table_full(&self) -> TableFull {
        let [full, entries] = [Counter::AloneFull as u32, MobileCounter::NoEntry as u32]
            .map(|index| self.counters.get(&index, 0).map_or(0, |values| values.iter().sum::<u64>()));
        TableFull { entries, details: full.saturating_sub(entries) }
    }

    /// All counters.
    pub(crate) fn counters(&self) -> PathCounters {
        let sum = |index: u32| self.counters.get(&index, 0).map_or(0, |values| values.iter().sum());
        let of_flows = |counter: Counter| sum(counter as u32);
        let own = |counter: MobileCounter| sum(counter as u32);
        PathCounters {
            passed: own(MobileCounter::Passed),
            diverted: own(MobileCounter::Diverted),
            expired: own(MobileCounter::Expired),
            released: own(MobileCounter::Released),
            heard: own(MobileCounter::Heard),
            full: own(MobileCounter::Full),
            notice_lost: of_flows(Counter::NoticeLost),
            tcp: of_flows(Counter::Seen) + of_flows(Counter::SeenIn),
            lowered: of_flows(Counter::Lowered),
            withheld: of_flows(Counter::Withheld),
            injected: of_flows(Counter::Injected),
            connections_full: of_flows(Counter::AloneFull),
            signed: of_flows(Counter::AloneSigned),
            multipath: of_flows(Counter::AloneMultipath),
            by_rule: of_flows(Counter::AlonePolicy),
            limited: of_flows(Counter::Limited),
            probed: of_flows(Counter::Probed),
            detailed: of_flows(Counter::Detailed),
            syns: own(MobileCounter::SplitSyn),
            syns_expired: own(MobileCounter::SplitExpired),
            fragments: own(MobileCounter::SplitFragment),
        }
    }

    /// Runs an order; false if it was refused.
    fn run(&self, order: MobileOrder) -> Result<bool, PathError> {
        Ok(self.object.run("order", order.as_bytes())? == 0)
    }
}

impl KernelPath {
    /// Readable when there are notices about connections.
    pub(crate) fn flow_notices(&self) -> BorrowedFd<'_> {
        self.flows.as_fd()
    }
}

/// Readable when there are notices about mobile hosts.
impl AsFd for KernelPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

impl std::fmt::Debug for KernelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelPath").field("attachment", &self.attachment).finish_non_exhaustive()
    }
}

impl From<Mobile> for Seen {
    fn from(record: Mobile) -> Self {
        let time = |nanos: u64| (nanos != 0).then(|| Instant::from_nanos(nanos));
        Self {
            course: record.course(),
            diverted: record.diverted,
            heard_at: time(record.heard_at),
            addressed_at: time(record.addressed_at),
            waiting_since: time(record.waiting_since),
            down_at: record.down_at(),
            mac: record.mac(),
        }
    }
}

/// The rules for single connections, one for each combination of their networks and ports, in their order.
fn flow_rules(place: &Place<'_>) -> Vec<FlowRule> {
    let rules = place.flows.iter().flat_map(|flows| flows.modes.rules());
    rules.flat_map(|rule| rule.selectors.iter().map(|selector| FlowRule::new(*selector, rule))).collect()
}

fn open_object(place: &Place<'_>, pins: Option<&Pins>) -> Result<Object, PathError> {
    let rules = place.rules.on_interface(place.frame_len, MARK, MARK_BACK);
    let rules = Plain(rules);
    let split = place.split.map_or_else(SplitSetup::default, SplitSetup::new);
    let sign_kind = records::sign_kind(place.thesis.map(|thesis| thesis.sign));
    let flow_rules_len = flow_rules(place).len() as u32;
    let has_prefixes = u32::from(!place.prefixes.is_empty());
    let mut loader = EbpfLoader::new();
    loader
        .override_global("rules", &rules, true)
        .override_global("divert_to", &place.divert_to, true)
        .override_global("flow_rules_len", &flow_rules_len, true)
        .override_global("sign_kind", &sign_kind, true)
        .override_global("has_prefixes", &has_prefixes, true)
        .override_global("split", &split, true)
        .map_max_entries("mobiles", place.most_mobiles.max(1))
        .map_max_entries("entries", place.most_connections.max(1))
        .map_max_entries("flows", place.most_detailed.max(1));
    if let Some(pins) = pins {
        for name in pins.maps() {
            loader.map_pin_path(name, pins.path(name));
        }
    }
    Ok(Object::open(&mut loader, OBJECT)?)
}

#[cfg(test)]
mod comparison;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod tests;
