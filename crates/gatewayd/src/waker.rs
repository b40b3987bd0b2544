//! Actions on the TCP connections of mobile hosts that leave or return: one [`Controller`] for each mobile host, over
//! the flow path of the programs, and one more for each other treatment that rules for single connections choose
//! ([`FlowModes`]).
//!
//! A gateway stands at the near end of the link, as an agent would on the fixed host: *outgoing* is towards the mobile
//! host, *incoming* is from it. So the ACKs of a download are incoming, and released to the fixed host; those of an
//! upload are outgoing, and released to the mobile host. Each mobile host has its own link, which is down while the
//! host is away.
//!
//! The order of calls: [`Waker::handle_notices`], [`Waker::handle_standing`], [`Waker::handle_silence`],
//! [`Waker::handle_heard`], [`Waker::handle_timeout`]; then [`Waker::poll_transmit`] until `None`, then
//! [`Waker::poll_timeout`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected};
use holdover_flow::{Flow, FlowRecord, FlowTable as _, Order, Report};
use holdover_gateway::daemon::{self, Controller, Treatment};
use holdover_gateway::divert::Standing;
use holdover_gateway::freeze;
use holdover_host::clock;
use holdover_wire::{Seq, ip_addresses};

use crate::config::{Config, FlowModes, Mode, OWN_LINK};
use crate::path::{KernelPath, TableFull, Taken, TakenIn};

/// Counters of actions on TCP connections of mobile hosts that returned.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Woken {
    /// Halves of connections whose held ACKs were released.
    pub released: u64,
    /// Halves of connections without held ACKs, whose senders were woken otherwise.
    pub poked: u64,
    /// Halves of connections whose senders were shown a window of zero.
    pub frozen: u64,
    /// Of these, those whose senders were shown the window again.
    pub reopened: u64,
    /// Zero-window probes that were answered.
    pub answered: u64,
    /// Packets made for it.
    pub packets: u64,
    /// Of these, packets that the interface did not accept.
    pub unsent: u64,
    /// TCP connections, as of the last pass through all of them.
    pub connections: u64,
}

impl Woken {
    /// Counts an action on half a connection.
    fn note(&mut self, action: &Action) {
        let counter = match (action.mechanism, action.what) {
            (freeze::NAME, "froze") => &mut self.frozen,
            (freeze::NAME, "reopened the window" | "thawed") => &mut self.reopened,
            (freeze::NAME, "answered a probe") => &mut self.answered,
            (freeze::NAME, _) => return,
            (_, "poked") => &mut self.poked,
            _ => &mut self.released,
        };
        *counter += 1;
    }
}

/// A mobile host, and the number of one of its links.
type Place = (IpAddr, u8);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Waker {
    config: Config,
    modes: FlowModes,
    controls: BTreeMap<Place, Controller>,
    /// The deadline of each control that has one.
    deadlines: BTreeSet<(Instant, Place)>,
    scheduled: BTreeMap<Place, Instant>,
    /// Controls that may have packets ready.
    touched: BTreeSet<Place>,
    /// ACKs of connections handed on from or to other gateways, to be sent without a controller.
    shown: VecDeque<(IpAddr, Injected)>,
    check_at: Instant,
    tend_at: Instant,
    seen_full: TableFull,
    woken: Woken,
}

/// How often closed connections are removed, if there is room.
const TEND_EVERY: Duration = Duration::from_secs(5);

/// How often it is checked whether connections had no room: then others are removed at once.
const CHECK_ROOM_EVERY: Duration = Duration::from_millis(500);

/// The next check comes after this many times the duration of the last one, so that making room takes at most a tenth of the processor's
/// time.
const TENDING_PART: u64 = 10;

impl Waker {
    pub(crate) fn new(now: Instant, config: &Config) -> Self {
        Self {
            config: config.clone(),
            modes: FlowModes::new(config),
            controls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            scheduled: BTreeMap::new(),
            touched: BTreeSet::new(),
            shown: VecDeque::new(),
            check_at: now + CHECK_ROOM_EVERY,
            tend_at: now + TEND_EVERY,
            seen_full: TableFull::default(),
            woken: Woken::default(),
        }
    }

    pub(crate) fn woken(&self) -> Woken {
        self.woken
    }

    pub(crate) fn note_unsent(&mut self) {
        self.woken.unsent += 1;
    }

    /// Handles the notices of the flow path.
    pub(crate) fn handle_notices(&mut self, now: Instant, path: &mut KernelPath) {
        while let Some(notice) = path.next_flow_notice() {
            match notice.report() {
                Some(Report::Notice(connection, direction, event)) => {
                    let at = notice.at().min(now);
                    let Some(link) = self.modes.link_of(connection) else { continue };
                    let mobile = path.host_of(connection.remote.ip());
                    self.with((mobile, link), path, |control, flows| {
                        control.handle_notice(at, connection, direction, event, flows);
                    });
                }
                // It shows that the path to the mobile host carries packets, whichever link its own connection has.
                Some(Report::Arrived(connection)) => {
                    let mobile = path.host_of(connection.remote.ip());
                    for link in self.modes.links() {
                        self.with((mobile, link), path, |control, flows| control.note_arrival(now, flows));
                    }
                }
                // The gateway hears mobile hosts by packets of any protocol.
                Some(Report::Incoming(_)) | None => {}
            }
        }
    }

    /// A mobile host has left, or returned.
    pub(crate) fn handle_standing(&mut self, now: Instant, mobile: IpAddr, standing: Standing, path: &mut KernelPath) {
        for link in self.modes.links() {
            self.with((mobile, link), path, |control, flows| control.handle_standing(now, standing, flows));
        }
    }

    /// A mobile host has not answered a probe: nothing has arrived from it since `since`. It is not regarded as absent
    /// yet.
    pub(crate) fn handle_silence(&mut self, mobile: IpAddr, since: Instant, path: &mut KernelPath) {
        for place in self.modes.links().map(|link| (mobile, link)) {
            let is_known = self.controls.get(&place).is_some_and(|control| control.silent_since().is_some());
            if !is_known {
                self.with(place, path, |control, flows| control.handle_silence(since, flows));
            }
        }
    }

    /// Handles a packet of a mobile host: wakes its connections if it was silent before.
    pub(crate) fn handle_heard(&mut self, now: Instant, mobile: IpAddr, path: &mut KernelPath) {
        for place in self.modes.links().map(|link| (mobile, link)) {
            if self.controls.get(&place).is_some_and(|control| control.silent_since().is_some()) {
                self.with(place, path, |control, flows| control.end_silence(now, flows));
            }
        }
    }

    /// Probes an absent mobile host, which answers with the newest ACK of a connection; in addition to address resolution.
    pub(crate) fn ask_receiver(&mut self, now: Instant, mobile: IpAddr, path: &mut KernelPath) {
        for place in self.modes.links().map(|link| (mobile, link)) {
            if self.controls.contains_key(&place) {
                self.with(place, path, |control, flows| control.ask_receiver(now, flows));
            }
        }
    }

    /// A mobile host has moved to another gateway: removes its connections, and returns records of those in use, at most `most`. Fixed hosts
    /// are shown the ACKs held on the others: no gateway knows of them any more. Split connections stay: their ends have other sequence
    /// numbers.
    ///
    /// Windows are opened before the connections leave, as [`Self::handle_standing`] does; a window that stays shut is recorded as shut.
    /// The other gateway wakes the senders.
    pub(crate) fn hand_on(
        &mut self,
        now: Instant,
        mobile: IpAddr,
        most: usize,
        path: &mut KernelPath,
    ) -> Vec<FlowRecord> {
        if path.seen(mobile).is_some() {
            self.handle_standing(now, mobile, Standing::Moved, path);
        }
        let own = self.config.mode_of(mobile);
        let is_split = |connection| self.modes.mode_of(connection).unwrap_or(own) == Mode::Split;
        let Taken { records, holding } = path.take_connections(now, mobile, most, is_split);
        for (connection, flow) in holding {
            self.show(mobile, connection, &flow, Direction::Incoming);
        }
        records
    }

    /// Takes in connections of a mobile host by the records of its former gateway. Returns how many connections were added, and when data
    /// or an ACK last arrived on one of these.
    pub(crate) fn take_in(
        &mut self,
        now: Instant,
        mobile: IpAddr,
        records: &[FlowRecord],
        path: &mut KernelPath,
    ) -> (u64, Option<Instant>) {
        let (mut count, mut last) = (0, None);
        for record in records {
            let connection = record.connection();
            if path.host_of(connection.remote.ip()) != mobile {
                continue;
            }
            let link = self.modes.link_of(connection);
            let treatment = link.map(|link| self.modes.treatment(link, &self.config, mobile));
            // Other treatments do not answer probes for the mobile host, which shows its window itself.
            let record = match treatment {
                Some(Treatment::Freeze(_)) => record.clone(),
                _ => record.clone().opened(),
            };
            let (TakenIn::Anew, flow) = path.take_in(now, &record, link) else { continue };
            count += 1;
            last = Direction::BOTH
                .into_iter()
                .fold(last, |last, direction| last.max(flow.half(direction).progress_at(direction)));
            // Without room for details the flow table does not know that ACKs are held.
            let is_woken = matches!(treatment, Some(Treatment::Wake(_))) && path.holds_acks(connection);
            if !is_woken {
                self.show_held(now, connection, &flow, link, path);
            }
        }
        (count, last)
    }

    /// Shows senders the ACKs that a former gateway has held, each as its receiver has sent it: no controller here does that.
    fn show_held(
        &mut self,
        now: Instant,
        connection: Connection,
        flow: &Flow,
        link: Option<u8>,
        path: &mut KernelPath,
    ) {
        let mobile = path.host_of(connection.remote.ip());
        for direction in Direction::BOTH {
            let Some(acked) = self.show(mobile, connection, flow, direction) else { continue };
            // A connection without a link has no details, and its entry records the ACKs as shown.
            if let Some(link) = link {
                path.of_mobile((mobile, link), &self.modes).order(now, connection, direction, Order::Show(acked));
            }
        }
    }

    /// Sends the ACK that is held in this direction, as its receiver has sent it. Returns its number.
    fn show(&mut self, mobile: IpAddr, connection: Connection, flow: &Flow, direction: Direction) -> Option<Seq> {
        let half = flow.half(direction);
        let acked = half.acked().filter(|_| half.is_held())?;
        let packet = half.ack_up_to(acked, connection.of_sender_going(direction))?;
        self.shown.push_back((mobile, Injected { direction, packet }));
        Some(acked)
    }

    /// A mobile host has come from another gateway, where it was last heard at `since`: its connections are woken, except those that
    /// already carry data again.
    pub(crate) fn handle_moved_in(&mut self, now: Instant, mobile: IpAddr, since: Instant, path: &mut KernelPath) {
        for place in self.modes.links().map(|link| (mobile, link)) {
            self.with(place, path, |control, flows| {
                control.handle_silence(since, flows);
                control.end_silence(now, flows);
            });
        }
    }

    /// A mobile host is present: its mode applies to its connections from now on.
    pub(crate) fn apply_mode(&mut self, mobile: IpAddr, path: &mut KernelPath) {
        let own = (mobile, OWN_LINK);
        if !self.config.has_one_mode() && !self.controls.contains_key(&own) {
            self.with(own, path, |_, _| {});
        }
    }

    /// A mobile host is removed.
    pub(crate) fn forget(&mut self, mobile: IpAddr) {
        for place in self.modes.links().map(|link| (mobile, link)) {
            if let Some(mut control) = self.controls.remove(&place) {
                // Packets that it has made, such as ACKs that open windows, are sent all the same.
                self.shown.extend(core::iter::from_fn(|| control.poll_transmit()).map(|made| (mobile, made)));
            }
            self.touched.remove(&place);
            if let Some(at) = self.scheduled.remove(&place) {
                self.deadlines.remove(&(at, place));
            }
        }
    }

    /// A deadline has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, path: &mut KernelPath) {
        while let Some(&(at, place)) = self.deadlines.first()
            && at <= now
        {
            self.with(place, path, |control, flows| control.handle_timeout(now, flows));
            // A control whose deadline has not moved is not called twice at one time.
            if self.scheduled.get(&place) == Some(&at) {
                break;
            }
        }
        if now >= self.check_at {
            let began_at = clock::now();
            self.tend(now, path);
            self.check_at = next_check(now, clock::now().saturating_since(began_at));
        }
    }

    /// Removes connections if some had no room, or if it is time.
    fn tend(&mut self, now: Instant, path: &mut KernelPath) {
        let full = path.table_full();
        let before = std::mem::replace(&mut self.seen_full, full);
        let is_full = full.entries != before.entries;
        if is_full || now >= self.tend_at {
            self.tend_at = now + TEND_EVERY;
            let most = self.config.hold_back.most_connections as usize;
            self.woken.connections = path.tend_flows(now, most, is_full) as u64;
        }
        if full.details != before.details {
            path.compact_idle(now);
        }
    }

    /// An earlier process was killed: the senders of these mobile hosts are shown their held ACKs, and windows that do not stay shut.
    pub(crate) fn handle_taken_over(
        &mut self,
        now: Instant,
        mobiles: impl Iterator<Item = IpAddr>,
        path: &mut KernelPath,
    ) {
        for mobile in mobiles {
            for link in self.modes.links() {
                self.with((mobile, link), path, |control, flows| control.take_over(now, flows));
            }
        }
    }

    /// The daemon ends: every sender is shown its held ACKs.
    pub(crate) fn handle_end(&mut self, now: Instant, path: &mut KernelPath) {
        let places: Vec<Place> = self.controls.keys().copied().collect();
        for place in places {
            self.with(place, path, |control, flows| control.handle_end(now, flows));
        }
    }

    /// The next packet to send: an outgoing one goes to the mobile host, an incoming one to the fixed host, as if from
    /// the mobile host.
    pub(crate) fn poll_transmit(&mut self) -> Option<(IpAddr, Injected)> {
        if let Some(shown) = self.shown.pop_front() {
            self.woken.packets += 1;
            return Some(shown);
        }
        while let Some(&place) = self.touched.first() {
            let control = self.controls.get_mut(&place);
            if let Some(injected) = control.and_then(Controller::poll_transmit) {
                self.woken.packets += 1;
                return Some((place.0, injected));
            }
            self.touched.pop_first();
        }
        None
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.deadlines.first().map_or(self.check_at, |&(at, _)| at.min(self.check_at))
    }

    fn with(
        &mut self,
        place: Place,
        path: &mut KernelPath,
        act: impl FnOnce(&mut Controller, &mut crate::path::MobileFlows<'_>),
    ) {
        let (config, modes) = (&self.config, &self.modes);
        let (mobile, link) = place;
        let mut flows = path.of_mobile(place, modes);
        let control = self.controls.entry(place).or_insert_with(|| {
            let control = Controller::new(modes.treatment(link, config, mobile));
            // The programs apply the default mode to new mobile hosts.
            if link == OWN_LINK && !config.has_one_mode() {
                flows.set_link(control.link_state());
            }
            control
        });
        act(control, &mut flows);
        while let Some(action) = control.poll_action() {
            tracing::debug!(connection = ?action.connection, mechanism = action.mechanism, what = action.what, "done");
            self.woken.note(&action);
        }
        while let Some(outcome) = control.poll_outcome() {
            tracing::debug!(?outcome, "outcome");
        }
        let deadline = control.poll_timeout();
        self.touched.insert(place);
        if self.scheduled.get(&place).copied() == deadline {
            return;
        }
        if let Some(at) = self.scheduled.remove(&place) {
            self.deadlines.remove(&(at, place));
        }
        if let Some(at) = deadline {
            self.scheduled.insert(place, at);
            self.deadlines.insert((at, place));
        }
    }
}

/// When it is checked again whether connections had no room, after a check at `now` that took this long.
fn next_check(now: Instant, took: Duration) -> Instant {
    now + CHECK_ROOM_EVERY.max(took * TENDING_PART)
}

/// [`daemon::is_redundant`] for a buffered packet of a mobile host.
pub(crate) fn is_redundant(path: &KernelPath, packet: &[u8]) -> bool {
    let Some((connection, end)) = plain_data(packet) else { return false };
    path.flow(connection).is_some_and(|flow| daemon::is_redundant(&flow, end))
}

/// The connection of a packet for a mobile host, and the end of its data, if it is a TCP segment with data and without
/// SYN, FIN or RST.
fn plain_data(packet: &[u8]) -> Option<(Connection, Seq)> {
    const SYN_FIN_RST: u8 = 0x07;
    let word = |at: usize| packet.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let (source, destination) = ip_addresses(packet)?;
    let (tcp, end) = match packet[0] >> 4 {
        4 if packet[9] == 6 && word(6)? & 0x3fff == 0 => (usize::from(packet[0] & 0xf) * 4, usize::from(word(2)?)),
        6 if packet[6] == 6 => (40, 40 + usize::from(word(4)?)),
        _ => return None,
    };
    let header = packet.get(tcp..tcp + 20)?;
    let data = end.checked_sub(tcp + usize::from(header[12] >> 4) * 4).filter(|&len| len > 0)?;
    if header[13] & SYN_FIN_RST != 0 {
        return None;
    }
    let connection = Connection { local: (source, word(tcp)?).into(), remote: (destination, word(tcp + 2)?).into() };
    let start = Seq::new(u32::from_be_bytes(header[4..8].try_into().ok()?));
    Some((connection, start + data as u32))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_flow::{OrderRecord, Place, WindowLimit};
    use holdover_wire::{Flags, Packet, Segment};

    use super::*;
    use crate::path::testing::{self, MOBILE, Transfer};

    // Claim: The window of a connection that was shut during an absence is opened before the connection is handed on to another gateway, and
    // that ACK is sent although the mobile host is forgotten then.
    #[test]
    fn windows_are_opened_before_connections_leave() {
        let Ok(mut path) = testing::load() else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let now = Instant::from_secs(500);
        let transfer = Transfer::default();
        let record = FlowRecord::of(now, transfer.connection(), &transfer.until(now), true).unwrap();
        path.know(MOBILE).unwrap();
        assert_eq!(path.take_in(now, &record, Some(OWN_LINK)).0, TakenIn::Anew);
        let mut waker = Waker::new(now, &toml::from_str("[mobiles]\nmode = \"freeze\"\n").unwrap());
        waker.handle_standing(now, MOBILE, Standing::Away, &mut path);
        let windows = |waker: &mut Waker| {
            let made = std::iter::from_fn(|| waker.poll_transmit());
            made.map(|(_, made)| made.packet.tcp().unwrap().window).collect::<Vec<u16>>()
        };
        assert_eq!(windows(&mut waker), [0]);
        // The change of its presence is queued behind those of other hosts.
        let records = waker.hand_on(now + Duration::from_secs(1), MOBILE, 8, &mut path);
        // With nothing to wait for, the host is forgotten in the same turn.
        waker.forget(MOBILE);
        assert_eq!((records.len(), windows(&mut waker).as_slice()), (1, &[50_000][..]));
        assert_eq!((waker.woken().frozen, waker.woken().reopened), (1, 1));
    }

    // Claim: A window that stays shut until something new is acknowledged does so at the next gateway, if that freezes, too.
    #[test]
    fn windows_that_stay_shut_do_so_at_the_next_gateway() {
        let Ok(mut path) = testing::load() else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let now = Instant::from_secs(500);
        let transfer = Transfer::default();
        let connection = transfer.connection();
        let mut flow = transfer.until(now);
        let acked = flow.half(Direction::Incoming).acked().unwrap();
        for order in [Order::Show(acked), Order::LimitWindow(WindowLimit::UntilAcked(0))] {
            flow.handle_order(&mut Place::default(), &OrderRecord::new(now, connection, Direction::Incoming, order));
        }
        let known = |path: &KernelPath| path.flow(connection).unwrap().half(Direction::Incoming).is_shut_until_acked();
        path.know(MOBILE).unwrap();
        let mut records = vec![FlowRecord::of(now, connection, &flow, false).unwrap()];
        for (mode, is_shut) in [("freeze", true), ("m-tcp", true), ("buffer", false)] {
            let config = toml::from_str(&format!("[mobiles]\nmode = \"{mode}\"\n")).unwrap();
            let mut waker = Waker::new(now, &config);
            let bytes = records[0].to_bytes();
            let record = FlowRecord::from_bytes(&bytes).unwrap();
            assert_eq!((record.is_shut(), waker.take_in(now, MOBILE, &[record], &mut path).0), (true, 1));
            assert_eq!(known(&path), is_shut, "{mode}");
            records = waker.hand_on(now + Duration::from_secs(1), MOBILE, 8, &mut path);
            let shown = std::iter::from_fn(|| waker.poll_transmit()).count();
            assert_eq!((records.len(), records[0].is_shut(), shown), (1, is_shut, 0), "{mode}");
        }
    }

    #[test]
    fn making_room_takes_a_tenth_of_the_time_at_most() {
        let ms = Duration::from_millis;
        let checks = [0, 50, 51, 400].map(|took| next_check(Instant::ZERO, ms(took)));
        assert_eq!(checks, [500, 500, 510, 4000].map(Instant::from_millis));
    }

    // Claim: A retransmission is identified by the end of its data; records and orders have the layout that the programs expect.
    // Tests: `path::records::tests::an_order_is_laid_out_as_the_program_reads_it`
    #[test]
    fn data_of_a_packet_end_behind_its_headers() {
        for (from, to) in [("192.0.2.1", "10.0.0.7"), ("2001:db8::1", "fd00::7")] {
            let [from, to] = [from, to].map(|text| text.parse::<IpAddr>().unwrap());
            let segment = Segment {
                src_port: 80,
                dst_port: 4000,
                seq: Seq::new(u32::MAX - 9),
                flags: Flags::ACK,
                payload: Bytes::from_static(&[0; 100]),
                ..Segment::default()
            };
            let bytes = |segment: Segment| Packet::new(from, to, segment).emit().unwrap();
            let connection = Connection { local: (from, 80).into(), remote: (to, 4000).into() };
            let data = bytes(segment.clone());
            assert_eq!(plain_data(&data), Some((connection, Seq::new(90))));
            // A pure ACK, a FIN, and a truncated packet carry none.
            assert_eq!(plain_data(&bytes(Segment { payload: Bytes::new(), ..segment.clone() })), None);
            assert_eq!(plain_data(&bytes(Segment { flags: Flags::ACK | Flags::FIN, ..segment })), None);
            assert!((0..data.len()).all(|len| plain_data(&data[..len]).is_none_or(|found| found.1 == Seq::new(90))));
        }
    }
}
