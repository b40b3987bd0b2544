//! The order of a peer's packets while they change from one path to another.
//!
//! In a make before break, packets that waited in the queue of the former path arrive together with those of the new one, and after
//! packets that were sent later. A sender takes the reordering for loss, and its congestion control takes the sum of both paths' rates for
//! the new path's: it overfills the queue of the new path for ten round trips (BBR), whose losses then stop the program's data for a round
//! trip.
//!
//! So packets of the new path wait for the former path's: ESP's sequence numbers show when these are complete. Waiting packets are
//! delivered a little faster than they arrive, until none waits: delivered all at once, they would be a burst of the former path's whole
//! queue. A former path without a packet for 25 ms is over, so that a move that breaks the former path delays nothing for longer.

use std::collections::VecDeque;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

/// A path without a packet for this time carries no more: at 1 Mbit/s, two full packets.
const SILENCE: Duration = Duration::from_millis(25);
/// The longest wait of a packet. A longer queue makes the sender retransmit anyway.
const LONGEST: Duration = Duration::from_millis(300);
/// The most packets of a peer that wait.
const MOST: usize = 2048;
/// The most bytes of a peer that wait: more than [`MOST`] packets of an Ethernet's MTU.
const MOST_BYTES: usize = 4 << 20;
/// The most bytes of all peers that wait.
const MOST_BYTES_IN_ALL: usize = 64 << 20;
/// By how much packets are released faster than they arrive, as a fraction (1/16). BBR takes the greatest delivery rate of ten round trips for the
/// path's, and keeps two round trips of data at that rate in flight. With an eighth it would overfill the queues of the tests' paths.
const CATCH_UP: u64 = 16;

/// The bytes of the packets that wait, of all peers.
#[derive(Default, Debug)]
pub(super) struct InAll(usize);

/// Source and destination of a packet in ESP.
pub(super) type Path = (IpAddr, IpAddr);

/// See the module's documentation.
#[derive(Default, Debug)]
pub(super) struct PathOrder {
    /// The path of the latest packets, and the one before.
    latest: Option<Carrier>,
    change: Option<Change>,
    waiting: VecDeque<(Instant, Packet)>,
    waiting_bytes: usize,
}

/// A path that has carried packets.
#[derive(Clone, Copy, Debug)]
struct Carrier {
    path: Path,
    spi: u32,
    greatest: u64,
    at: Instant,
}

/// A change from one path to another.
#[derive(Clone, Copy, Debug)]
struct Change {
    former: Carrier,
    /// The first number of the new path.
    first: u64,
    /// The arrival of the first packet that waits, or of the new path's first one if nothing waits.
    began_at: Instant,
    /// How long the first packet waited, at most [`LONGEST`], once the former path is complete or over.
    lag: Option<Duration>,
}

impl Change {
    /// When a packet that arrived then is delivered; `None` as long as the former path's are awaited.
    fn delivers_at(&self, arrived: Instant) -> Option<Instant> {
        let gained = Duration::from_nanos(arrived.saturating_since(self.began_at).as_nanos() / CATCH_UP);
        Some(arrived + self.lag?.saturating_sub(gained))
    }

    /// When the former path counts as over, if nothing more arrives over it.
    fn gives_up_at(&self) -> Instant {
        (self.former.at + SILENCE).min(self.began_at + LONGEST)
    }

    const fn is_complete(&self) -> bool {
        self.former.greatest + 1 >= self.first
    }

    /// The former path is complete, or over. `oldest` is the arrival of the first packet that waits. The time of the call may be later
    /// than the deadline: after a stall of the daemon, or if nothing waited for it.
    fn end(&mut self, now: Instant, oldest: Option<Instant>) {
        if self.lag.is_none() {
            let at = now.min(self.gives_up_at());
            self.began_at = oldest.unwrap_or(at);
            self.lag = Some(at.saturating_since(self.began_at));
        }
    }
}

impl PathOrder {
    /// An authentic packet of the peer, with its number under an SPI; without content if it is a dummy. Returns the packet if it is to be
    /// delivered now, before those of [`Self::poll_deliver`].
    pub(super) fn handle_packet(
        &mut self,
        now: Instant,
        path: Path,
        (spi, number): (u32, u64),
        packet: Option<Packet>,
        in_all: &mut InAll,
    ) -> Option<Packet> {
        self.handle_timeout(now);
        let arrived = Carrier { path, spi, greatest: number, at: now };
        // With new keys numbers begin anew.
        let Some(latest) = self.latest.as_mut().filter(|latest| latest.spi == spi) else {
            (self.latest, self.change) = (Some(arrived), None);
            return self.behind_waiting(now, packet, in_all);
        };
        if latest.path == path {
            (latest.greatest, latest.at) = (latest.greatest.max(number), now);
            return self.take_new(now, number, packet, in_all);
        }
        if let Some(change) = self.change.as_mut().filter(|it| it.former.path == path && number < it.first) {
            (change.former.greatest, change.former.at) = (change.former.greatest.max(number), now);
            self.end_if_complete(now);
        } else if number > latest.greatest {
            let former = core::mem::replace(latest, arrived);
            let is_over = number == former.greatest + 1 || now > former.at + SILENCE;
            // Another change does not extend the wait of packets that wait already.
            let began_at = self.oldest().unwrap_or(now);
            self.change = Some(Change { former, first: number, began_at, lag: None }).filter(|_| !is_over);
            return self.behind_waiting(now, packet, in_all);
        }
        packet
    }

    /// Every deadline at or before `now`.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let oldest = self.oldest();
        if let Some(change) = self.change.as_mut().filter(|change| change.gives_up_at() <= now) {
            change.end(now, oldest);
        }
    }

    /// The association is closed: nothing waits any longer.
    pub(super) fn close(&mut self) {
        (self.latest, self.change) = (None, None);
    }

    /// The peer is forgotten, with its packets.
    pub(super) fn discard(&mut self, in_all: &mut InAll) {
        in_all.0 -= self.waiting_bytes;
        *self = Self::default();
    }

    /// The next packet whose wait is over, in order of arrival.
    pub(super) fn poll_deliver(&mut self, now: Instant, in_all: &mut InAll) -> Option<Packet> {
        let arrived = self.oldest()?;
        let is_due = |change: &Change| change.delivers_at(arrived).is_some_and(|at| at <= now);
        if self.is_within_limits(in_all) && !self.change.as_ref().is_none_or(is_due) {
            return None;
        }
        let (_, packet) = self.waiting.pop_front()?;
        self.waiting_bytes -= memory(&packet);
        in_all.0 -= memory(&packet);
        Some(packet)
    }

    /// The next deadline, of [`Self::handle_timeout`] or [`Self::poll_deliver`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let change = self.change.as_ref()?;
        let arrived = self.oldest()?;
        Some(change.delivers_at(arrived).unwrap_or_else(|| change.gives_up_at()))
    }

    /// The arrival of the first packet that waits.
    fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|(arrived, _)| *arrived)
    }

    fn is_within_limits(&self, in_all: &InAll) -> bool {
        self.waiting.len() <= MOST && self.waiting_bytes <= MOST_BYTES && in_all.0 <= MOST_BYTES_IN_ALL
    }

    fn end_if_complete(&mut self, now: Instant) {
        let oldest = self.oldest();
        if let Some(change) = self.change.as_mut().filter(|change| change.is_complete()) {
            change.end(now, oldest);
        }
    }

    /// A packet of the newest path.
    fn take_new(&mut self, now: Instant, number: u64, packet: Option<Packet>, in_all: &mut InAll) -> Option<Packet> {
        if let Some(change) = &mut self.change {
            change.first = change.first.min(number);
        }
        self.end_if_complete(now);
        self.behind_waiting(now, packet, in_all)
    }

    /// The packet, unless it is to wait.
    fn behind_waiting(&mut self, now: Instant, packet: Option<Packet>, in_all: &mut InAll) -> Option<Packet> {
        if self.waiting.is_empty() {
            self.change.take_if(|change| change.delivers_at(now).is_some_and(|at| at <= now));
            if self.change.is_none() {
                return packet;
            }
        }
        let packet = packet?;
        self.waiting_bytes += memory(&packet);
        in_all.0 += memory(&packet);
        self.waiting.push_back((now, packet));
        None
    }
}

/// The bytes that a waiting packet takes.
fn memory(packet: &Packet) -> usize {
    size_of::<(Instant, Packet)>() + packet.wire_len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use holdover_wire::{Payload, Udp};

    use super::*;

    const START: Instant = Instant::from_secs(1000);
    const WIFI: Path = path(1);
    const LTE: Path = path(2);

    const fn path(network: u8) -> Path {
        (IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), IpAddr::V4(Ipv4Addr::new(10, network, 0, 2)))
    }

    /// A receiver, and the numbers that it has delivered, with their times.
    #[derive(Default)]
    struct Receiver {
        order: PathOrder,
        in_all: InAll,
        delivered: Vec<(Duration, u64)>,
    }

    impl Receiver {
        fn packet(number: u64) -> Packet {
            let payload = Bytes::copy_from_slice(&number.to_be_bytes());
            Packet::new(WIFI.0, WIFI.1, Udp { src_port: 1, dst_port: 2, payload })
        }

        fn deliver(&mut self, now: Instant, packet: &Packet) {
            let Payload::Udp(udp) = &packet.payload else { panic!("another packet") };
            self.delivered.push((now.saturating_since(START), u64::from_be_bytes(udp.payload[..].try_into().unwrap())));
        }

        /// All deadlines until then.
        fn wait_until(&mut self, end: Instant) {
            while let Some(at) = self.order.poll_timeout().filter(|at| *at <= end) {
                self.handle_timeout(at);
            }
        }

        fn handle_timeout(&mut self, at: Instant) {
            self.order.handle_timeout(at);
            self.deliver_waiting(at);
        }

        fn deliver_waiting(&mut self, at: Instant) {
            while let Some(packet) = self.order.poll_deliver(at, &mut self.in_all) {
                self.deliver(at, &packet);
            }
        }

        /// A packet without content.
        fn receive_dummy(&mut self, at: Instant, path: Path, numbered: (u32, u64)) {
            self.wait_until(at);
            assert!(self.order.handle_packet(at, path, numbered, None, &mut self.in_all).is_none());
            self.deliver_waiting(at);
        }

        fn receive(&mut self, at: Instant, path: Path, (spi, number): (u32, u64)) {
            self.wait_until(at);
            let packet = Some(Self::packet(number));
            if let Some(packet) = self.order.handle_packet(at, path, (spi, number), packet, &mut self.in_all) {
                self.deliver(at, &packet);
            }
            self.deliver_waiting(at);
        }

        /// Receives packets that arrive at these times, in milliseconds; returns the deliveries.
        fn after(mut arrivals: Vec<(u64, Path, u64)>) -> Vec<(Duration, u64)> {
            let mut receiver = Self::default();
            arrivals.sort_by_key(|(at, ..)| *at);
            for (at, path, number) in arrivals {
                receiver.receive(START + Duration::from_millis(at), path, (7, number));
            }
            receiver.wait_until(START + Duration::from_secs(100));
            assert!(receiver.order.waiting.is_empty(), "all that waits is delivered");
            assert_eq!((receiver.order.waiting_bytes, receiver.in_all.0), (0, 0));
            receiver.delivered
        }
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn numbers(delivered: &[(Duration, u64)]) -> Vec<u64> {
        delivered.iter().map(|(_, number)| *number).collect()
    }

    /// A packet each millisecond: 0 to 99 over a path whose queue takes 60 ms, the next ones over one without.
    fn make_before_break() -> Vec<(u64, Path, u64)> {
        let former = (0..100).map(|number| (60 + number, WIFI, number));
        former.chain((100..2000).map(|number| (number, LTE, number))).collect()
    }

    #[test]
    fn packets_of_two_paths_keep_their_order_and_rate() {
        let delivered = Receiver::after(make_before_break());
        assert_eq!(numbers(&delivered), (0..2000).collect::<Vec<_>>());
        for pair in delivered.windows(2) {
            assert!(pair[1].0.saturating_sub(pair[0].0) <= ms(2), "a pause before {}", pair[1].1);
        }
        for window in delivered.windows(33) {
            // 33 packets of 1 ms, a sixteenth faster.
            assert!(window[32].0.saturating_sub(window[0].0) >= ms(29), "a burst at {}", window[0].1);
        }
        let (at, number) = *delivered.last().unwrap();
        assert_eq!((at, number), (ms(1999), 1999), "in the end nothing waits");
    }

    #[test]
    fn a_former_path_that_is_over_delays_nothing_for_long() {
        // Broken, with 40 packets in its queue.
        let arrivals = make_before_break().into_iter().filter(|(at, path, _)| *path == LTE || *at < 120);
        let delivered = Receiver::after(arrivals.collect());
        let first = delivered.iter().find(|(_, number)| *number == 100).unwrap();
        assert_eq!(first.0, ms(119) + SILENCE);
        // Broken for longer than that before the new path.
        let arrivals = make_before_break().into_iter().filter(|(at, path, _)| *path == LTE || *at < 75);
        let delivered = Receiver::after(arrivals.collect());
        assert_eq!(delivered.last(), Some(&(ms(1999), 1999)));
        assert!(delivered.contains(&(ms(100), 100)));
    }

    #[test]
    fn packets_wait_for_a_limited_time_and_in_limited_number() {
        // A queue of a second.
        let former = (0..100).map(|number| (10 * number, WIFI, number));
        let arrivals = former.chain((100..1100).map(|number| (number, LTE, number)));
        let delivered = Receiver::after(arrivals.collect());
        assert!(delivered.contains(&(ms(100) + LONGEST, 100)));
        assert_eq!(delivered.len(), 1100, "late packets are delivered, too");
        let mut receiver = Receiver::default();
        receiver.receive(START, WIFI, (7, 1));
        for number in 10..10 + 2 * MOST as u64 {
            receiver.receive(START, LTE, (7, number));
        }
        assert_eq!(receiver.order.waiting.len(), MOST);
    }

    #[test]
    fn nothing_waits_without_a_gap() {
        let alternate = (0..50).map(|number| (number, [WIFI, LTE][number as usize % 2], number));
        let delivered = Receiver::after(alternate.collect());
        assert!(delivered.iter().all(|(at, number)| *at == ms(*number)));
        // Lost on one path, and late.
        let delivered = Receiver::after(vec![(0, WIFI, 1), (1, WIFI, 9), (2, WIFI, 5)]);
        assert_eq!(numbers(&delivered), [1, 9, 5]);
        assert_eq!(delivered.last().unwrap().0, ms(2));
    }

    #[test]
    fn new_keys_and_another_change_end_the_wait() {
        let mut receiver = Receiver::default();
        receiver.receive(START, WIFI, (7, 1));
        receiver.receive(START, LTE, (7, 5));
        assert_eq!(numbers(&receiver.delivered), [1]);
        receiver.receive(START, LTE, (8, 1));
        assert_eq!(numbers(&receiver.delivered), [1, 5, 1]);
        receiver.receive(START, WIFI, (8, 4));
        receiver.receive(START, path(3), (8, 5));
        assert_eq!(numbers(&receiver.delivered), [1, 5, 1, 4, 5]);
        // A dummy has a number as well.
        receiver.receive(START, WIFI, (8, 9));
        receiver.receive_dummy(START, path(3), (8, 6));
        receiver.receive_dummy(START, path(3), (8, 7));
        assert_eq!(receiver.order.waiting.len(), 1);
        receiver.receive(START, path(3), (8, 8));
        assert_eq!(numbers(&receiver.delivered), [1, 5, 1, 4, 5, 8, 9]);
    }

    /// The packet of the new path waits for the former one.
    fn waiting_receiver() -> Receiver {
        let mut receiver = Receiver::default();
        receiver.receive(START, WIFI, (7, 1));
        receiver.receive(START + ms(1), LTE, (7, 5));
        assert_eq!(numbers(&receiver.delivered), [1]);
        receiver
    }

    #[test]
    fn a_stall_of_the_daemon_delays_nothing_that_arrives_after_it() {
        let mut receiver = waiting_receiver();
        let late = START + Duration::from_secs(5);
        receiver.handle_timeout(late);
        for number in 6..100 {
            receiver.receive(late + ms(number), LTE, (7, number));
        }
        let expected = (6..100).map(|number| (ms(5000 + number), number));
        assert_eq!(receiver.delivered[1..], [(ms(5000), 5)].into_iter().chain(expected).collect::<Vec<_>>());
        // The packet itself is late, too, if another one is read before the deadline is handled.
        let mut receiver = waiting_receiver();
        receiver.order.handle_packet(late, LTE, (7, 6), None, &mut InAll::default());
        receiver.deliver_waiting(late);
        receiver.receive(late + ms(1), LTE, (7, 7));
        assert_eq!(receiver.delivered, [(ms(0), 1), (ms(5000), 5), (ms(5001), 7)]);
    }

    #[test]
    fn a_path_that_begins_with_a_dummy_delays_nothing_later() {
        for silence in [ms(30), ms(200), Duration::from_secs(10)] {
            let mut receiver = Receiver::default();
            receiver.receive(START, WIFI, (7, 1));
            receiver.receive_dummy(START, LTE, (7, 5));
            for number in 6..40 {
                receiver.receive(START + silence + ms(number), LTE, (7, number));
            }
            let expected = (6..40).map(|number| (silence + ms(number), number));
            assert_eq!(receiver.delivered[1..], expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_path_that_flaps_delays_no_packet_for_longer() {
        // The path changes every 200 ms, with a gap. All paths carry packets all the time, so that none counts as over.
        let paths = [WIFI, LTE, path(3)];
        let arrivals: Vec<_> = (0..300_u64)
            .flat_map(|step| {
                (0..3).map(move |index| {
                    // The turn at which the path was the newest for the last time.
                    let turn = step / 20 + 3 - (step / 20 + 3 - index) % 3;
                    (10 * step + index, paths[index as usize], 10_000 * turn + step)
                })
            })
            .collect();
        let arrived: BTreeMap<u64, u64> = arrivals.iter().map(|(at, _, number)| (*number, *at)).collect();
        let delivered = Receiver::after(arrivals);
        assert_eq!(delivered.len(), 900);
        let waits = delivered.iter().map(|(at, number)| at.saturating_sub(ms(arrived[number])));
        let longest = waits.max().unwrap();
        assert!(longest <= LONGEST && longest > ms(200), "{longest:?}");
    }

    #[test]
    fn packets_of_a_peer_and_of_all_peers_wait_in_limited_bytes() {
        let large = |number: u64| {
            let payload = Bytes::from(vec![number as u8; 60_000]);
            Packet::new(WIFI.0, WIFI.1, Udp { src_port: 1, dst_port: 2, payload })
        };
        let len = memory(&large(0));
        let mut in_all = InAll::default();
        let mut peers: Vec<PathOrder> = (0..20).map(|_| PathOrder::default()).collect();
        let (mut passed, mut sent) = (0, 0);
        for order in &mut peers {
            for number in 1..100 {
                let path = if number == 1 { WIFI } else { LTE };
                let packet = order.handle_packet(START, path, (7, number * number), Some(large(number)), &mut in_all);
                passed += usize::from(packet.is_some());
                while order.poll_deliver(START, &mut in_all).is_some() {
                    passed += 1;
                }
                sent += 1;
                assert!(order.waiting_bytes <= MOST_BYTES && in_all.0 <= MOST_BYTES_IN_ALL);
            }
        }
        let waiting: usize = peers.iter().map(|order| order.waiting.len()).sum();
        assert_eq!((passed + waiting, in_all.0), (sent, waiting * len), "none is lost");
        assert!(peers[0].waiting_bytes > MOST_BYTES - len && in_all.0 > MOST_BYTES_IN_ALL - 2 * len);
        // The association is closed: what waited is delivered. Or the peer is removed.
        peers[0].close();
        while peers[0].poll_deliver(START, &mut in_all).is_some() {}
        assert_eq!((peers[0].waiting_bytes, peers[0].waiting.len()), (0, 0));
        peers.iter_mut().for_each(|order| order.discard(&mut in_all));
        assert_eq!(in_all.0, 0);
    }
}
