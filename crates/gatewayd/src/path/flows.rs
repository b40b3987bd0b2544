//! The TCP connections of mobile hosts in the flow path of the programs.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use aya::Pod;
use aya::maps::{Array, HashMap, IterableMap as _, MapData, RingBuf};
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction};
use holdover_flow::eviction::{self, Candidate, Use};
use holdover_flow::{Entry, Flow, FlowTable, Key, Link, LinkState, NoticeRecord, Order, OrderRecord, Rules};
use holdover_gateway::prefixes::Prefixes;
use holdover_host::clock;
use holdover_host::ebpf::{LOCK, Object};
use holdover_host::map_batch;

use super::lists::ConnectionList;
use super::records::MobileOrder;
use super::{KernelPath, PathError};
use crate::config::FlowModes;

/// A key or value of a map, or a global.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Plain<T>(pub(super) T);

// SAFETY: `repr(C)` integers without padding, as `holdover_flow` asserts for each of its structures; any bytes are a
// value.
unsafe impl Pod for Plain<Key> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Flow> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Entry> {}
// SAFETY: as above.
unsafe impl Pod for Plain<Rules> {}

/// The maps of connections: an entry for each, and the details of some.
pub(super) struct Flows {
    pub(super) entries: HashMap<MapData, Plain<Key>, Plain<Entry>>,
    pub(super) details: HashMap<MapData, Plain<Key>, Plain<Flow>>,
    notices: RingBuf<MapData>,
    /// The connections of each mobile host, if queried since [`KernelPath::begin_turn`], or not long before.
    pub(super) of_mobiles: RefCell<Option<ConnectionList>>,
    /// When this turn began.
    pub(super) turn_at: Instant,
}

/// How long an idle connection keeps its details, unless something is held, or its mobile host is away.
const DETAILED_FOR: Duration = Duration::from_secs(10);

impl Flows {
    pub(super) fn open(object: &mut Object) -> Result<Self, PathError> {
        let mut blank: Array<_, Plain<Flow>> = object.take("blank_flows")?;
        blank.set(0, Plain(Flow::new()), 0)?;
        let mut blank: Array<_, Plain<Entry>> = object.take("blank_entries")?;
        blank.set(0, Plain(Entry::new()), 0)?;
        Ok(Self {
            entries: object.take("entries")?,
            details: object.take("flows")?,
            notices: object.take("flow_notices")?,
            of_mobiles: RefCell::new(None),
            turn_at: Instant::ZERO,
        })
    }

    fn get(&self, connection: Connection) -> Option<Flow> {
        self.get_with_details(connection).map(|(flow, _)| flow)
    }

    /// The same, and whether the connection has details.
    pub(super) fn get_with_details(&self, connection: Connection) -> Option<(Flow, bool)> {
        let key = Plain(Key::new(connection));
        let Plain(entry) = self.entries.get(&key, LOCK).ok()?;
        let details = if entry.is_detailed() { self.details.get(&key, LOCK).ok() } else { None };
        Some(details.map_or_else(|| (entry.expand(), false), |Plain(flow)| (flow, true)))
    }

    /// The connections of a mobile host whose last one has begun at `connected_at`, if that is known, by a list of all.
    pub(super) fn connections_of(
        &self,
        mobile: IpAddr,
        prefixes: &Prefixes,
        connected_at: Option<Instant>,
    ) -> Vec<Connection> {
        let mut of_mobiles = self.of_mobiles.borrow_mut();
        of_mobiles.take_if(|list| !list.serves(connected_at, self.turn_at));
        let of_mobiles = of_mobiles.get_or_insert_with(|| {
            let began_at = clock::now();
            let mut found = BTreeMap::<IpAddr, Vec<Connection>>::new();
            let host_of = |connection: Connection| prefixes.host_of(connection.remote.ip());
            self.for_each_entry(|connection, _| found.entry(host_of(connection)).or_default().push(connection));
            ConnectionList::new(found, began_at, clock::now())
        });
        of_mobiles.of(mobile).to_vec()
    }

    /// Whether a connection has details.
    #[cfg(test)]
    pub(super) fn is_detailed(&self, connection: Connection) -> bool {
        let key = Plain(Key::new(connection));
        self.entries.get(&key, LOCK).is_ok_and(|entry| entry.0.is_detailed()) && self.details.get(&key, LOCK).is_ok()
    }

    fn for_each_entry(&self, mut look: impl FnMut(Connection, &Entry)) {
        let map = self.entries.map().fd().as_fd();
        // SAFETY: these are the map's key and value, integers without padding.
        let walked =
            unsafe { map_batch::for_each(map, LOCK, &mut |key: &Key, entry: &Entry| look(key.connection(), entry)) };
        warn_of(walked);
    }

    fn for_each_detailed(&self, mut look: impl FnMut(Connection, &Flow)) {
        let map = self.details.map().fd().as_fd();
        // SAFETY: as above.
        let walked =
            unsafe { map_batch::for_each(map, LOCK, &mut |key: &Key, flow: &Flow| look(key.connection(), flow)) };
        warn_of(walked);
    }
}

fn warn_of(walked: std::io::Result<()>) {
    if let Err(error) = walked {
        tracing::warn!(%error, "cannot list connections");
    }
}

/// Readable when there are notices about connections.
impl AsFd for Flows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

impl KernelPath {
    /// The next notice of the flow path.
    pub(crate) fn next_flow_notice(&mut self) -> Option<NoticeRecord> {
        loop {
            let item = self.flows.notices.next()?;
            if let Some(notice) = NoticeRecord::from_bytes(&item) {
                return Some(notice);
            }
        }
    }

    /// The current state of a connection.
    pub(crate) fn flow(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(connection)
    }

    /// The connections of a mobile host over one of its links, as a controller sees them.
    pub(crate) fn of_mobile<'a>(&'a mut self, (mobile, link): (IpAddr, u8), modes: &'a FlowModes) -> MobileFlows<'a> {
        MobileFlows { path: self, mobile, link, modes }
    }

    /// Takes the details of idle connections away, also of mobile hosts that are away, to make room for those of others.
    pub(crate) fn compact_idle(&mut self, now: Instant) {
        let mut idle = Vec::new();
        self.flows.for_each_detailed(|connection, flow| {
            if needs_no_details(now, flow) {
                idle.push(connection);
            }
        });
        idle.into_iter().for_each(|connection| self.order_flow(OrderRecord::compact(connection)));
    }

    /// Removes closed connections and the details of idle ones of present mobile hosts, and, without room for entries, unanswered ones and
    /// those idle for longest. Returns how many are left.
    pub(crate) fn tend_flows(&mut self, now: Instant, most: usize, is_full: bool) -> usize {
        let mut candidates = Vec::new();
        let mut note = |connection, flow: &Flow| {
            candidates.push(Candidate { connection, seen_at: flow.seen_at(), use_of: Use::between(flow) });
        };
        let (mut detailed, mut idle) = (HashSet::new(), Vec::new());
        self.flows.for_each_detailed(|connection, flow| {
            detailed.insert(connection);
            if needs_no_details(now, flow) {
                idle.push(connection);
            }
            note(connection, flow);
        });
        self.flows.for_each_entry(|connection, entry| {
            if !detailed.contains(&connection) {
                note(connection, &entry.expand());
            }
        });
        let all = candidates.len();
        let has_room = eviction::has_room(all, most, is_full);
        let removed = eviction::choose(now, candidates, has_room);
        let left = all - removed.len();
        let keys: Vec<Key> = removed.iter().map(|connection| Key::new(*connection)).collect();
        let with_details = removed.into_iter().filter(|connection| detailed.remove(connection));
        let with_details: Vec<Key> = with_details.map(Key::new).collect();
        for (map, keys) in [(self.flows.details.map(), with_details), (self.flows.entries.map(), keys)] {
            // SAFETY: it is the map's key.
            let removed = unsafe { map_batch::remove(map.fd().as_fd(), &keys) };
            if let Err(error) = removed {
                tracing::warn!(%error, "cannot remove connections");
            }
        }
        idle.retain(|connection| detailed.contains(connection));
        for connection in self.of_present(idle) {
            self.order_flow(OrderRecord::compact(connection));
        }
        left
    }

    /// Those of these connections whose mobile hosts are present. The release after an absence, however long, needs the ACKs that were
    /// shown before it.
    fn of_present(&self, mut connections: Vec<Connection>) -> Vec<Connection> {
        let mut away = BTreeMap::new();
        let is_away = |mobile| self.seen(mobile).is_some_and(|seen| seen.down_at.is_some());
        connections.retain(|connection| {
            let mobile = self.host_of(connection.remote.ip());
            !*away.entry(mobile).or_insert_with(|| is_away(mobile))
        });
        connections
    }

    /// Removes a connection.
    pub(super) fn remove_connection(&mut self, connection: Connection) {
        let key = Plain(Key::new(connection));
        // It may be gone.
        let _ = self.flows.details.remove(&key);
        let _ = self.flows.entries.remove(&key);
    }

    pub(super) fn order_flow(&self, order: OrderRecord) {
        if let Err(error) = self.object.run("flow_order", order.to_bytes().as_ref()) {
            tracing::warn!(%error, "the kernel refuses an order about a connection");
        }
    }
}

/// Whether an entry is enough for a connection.
fn needs_no_details(now: Instant, flow: &Flow) -> bool {
    now.saturating_since(flow.seen_at()) >= DETAILED_FOR && Entry::of(flow).is_some()
}

/// See [`KernelPath::of_mobile`].
pub(crate) struct MobileFlows<'a> {
    path: &'a mut KernelPath,
    mobile: IpAddr,
    /// The number of the link.
    link: u8,
    modes: &'a FlowModes,
}

impl FlowTable for MobileFlows<'_> {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.path.flow(connection)
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        let flows = &self.path.flows;
        let is_own = |connection: &Connection| self.modes.link_of(*connection) == Some(self.link);
        for connection in self.path.connections_of(self.mobile).into_iter().filter(is_own) {
            if let Some(flow) = flows.get(connection).filter(|flow| !flow.is_over() && !flow.is_exempt()) {
                look(connection, &flow);
            }
        }
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        self.path.order_flow(OrderRecord::new(now, connection, direction, order));
    }

    fn set_link(&mut self, link: LinkState) {
        let order = MobileOrder::link(self.mobile, self.link, Link::new(&link));
        // A mobile host that was removed has no connections.
        if let Err(error) = self.path.run_known(self.mobile, order) {
            tracing::warn!(%error, mobile = %self.mobile, "cannot update the link of a mobile host");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MOBILE, begin};
    use super::super::{Place, TableFull};
    use super::*;
    use crate::config::OWN_LINK;

    // Claim: Room that is missing for entries is counted apart from room for details, and idle connections give their details away.
    #[test]
    fn room_is_missing_for_entries_or_for_details_and_idle_details_make_some() {
        let place = Place { most_mobiles: 1, most_connections: 3, most_detailed: 1, ..Place::nowhere() };
        let Ok(mut path) = KernelPath::load(&place, &[], None) else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        path.know(MOBILE).unwrap();
        // Connections of an absent host have details.
        let now = clock::now();
        let link = LinkState { down_at: Some(now), ..LinkState::default() };
        path.of_mobile((MOBILE, OWN_LINK), &FlowModes::default()).set_link(link);
        let first = begin(&path, 1);
        assert!(path.flows.is_detailed(first) && path.table_full() == TableFull::default());
        begin(&path, 2);
        let full = path.table_full();
        assert!(full.entries == 0 && full.details > 0, "{full:?}");
        path.compact_idle(now + DETAILED_FOR - Duration::from_millis(1));
        assert!(path.flows.is_detailed(first));
        // With room in the table, details are kept during the absence.
        let later = now + DETAILED_FOR + Duration::from_secs(1);
        path.tend_flows(later, 3, false);
        assert!(path.flows.is_detailed(first));
        path.compact_idle(later);
        assert!(!path.flows.is_detailed(first) && path.flow(first).is_some());
        let third = begin(&path, 3);
        assert!(path.flows.is_detailed(third));
        assert_eq!(path.table_full(), full);
        begin(&path, 4);
        assert_eq!(path.table_full(), TableFull { entries: 1, ..full });
        assert_eq!(path.counters().connections_full, 1 + full.details);
    }
}
