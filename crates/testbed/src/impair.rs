//! An impaired link in one direction: loss, outages, corruption, duplication, delay and reordering, all from one seed.
//!
//! Without I/O, like the endpoints: [`Impairment::handle_packet`] accepts a packet, [`Impairment::poll_packet`] returns packets that have
//! arrived at the other end (call it until `None`), [`Impairment::poll_timeout`] returns the time of the next arrival. It works on bytes,
//! as corruption does.
//!
//! Each effect draws from a separate random stream, once for each packet, so that a change of one probability does not affect the other
//! effects' choices.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant, Rng};

/// The impairments, in netem's terms; probabilities are from 0 to 1. The default is a perfect link.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ImpairmentConfig {
    /// The probability that a packet is lost.
    pub loss: f64,
    /// The probability that a packet arrives twice.
    pub duplicate: f64,
    /// The probability that one bit of a packet is flipped, anywhere in it.
    pub corrupt: f64,
    /// The delay of every packet.
    pub delay: Duration,
    /// The probability that a packet is delayed by [`ImpairmentConfig::reorder_delay`] more, so that later ones
    /// overtake it.
    pub reorder: f64,
    /// The additional delay of a reordered packet.
    pub reorder_delay: Duration,
    /// When the link is cut. Packets that enter during an outage, or would leave during one, are lost.
    pub outages: Vec<Outage>,
}

/// A time without connectivity: from `from` until just before `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Its start.
    pub from: Instant,
    /// Its end.
    pub until: Instant,
}

/// Counters of impairments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImpairmentCounters {
    /// Packets that entered.
    pub offered: u64,
    /// Packets that were delivered, duplicates included.
    pub delivered: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets (and duplicates) lost to outages.
    pub lost_in_outage: u64,
    /// Additional copies made.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets that were delayed more.
    pub reordered: u64,
}

/// The configuration is invalid.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ImpairmentError {
    /// A probability is not from 0 to 1.
    #[error("{field} = {value} is no probability: it must be from 0 to 1")]
    Probability {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// Packets are to be reordered with a delay of zero.
    #[error("reorder without reorder_delay has no effect")]
    ReorderWithoutDelay,
    /// An outage ends before it starts.
    #[error("the outage from {from} ends at {until}")]
    Outage {
        /// Its start.
        from: Instant,
        /// Its end.
        until: Instant,
    },
}

/// One direction of an impaired link.
#[derive(Clone, Debug)]
pub struct Impairment {
    config: ImpairmentConfig,
    loss: Rng,
    duplicate: Rng,
    corrupt: Rng,
    reorder: Rng,
    /// By the time of arrival; FIFO among equals.
    in_flight: BTreeMap<(Instant, u64), Bytes>,
    entered: u64,
    counters: ImpairmentCounters,
}

impl Impairment {
    /// A link whose choices are determined by `seed`. The two directions of a link need two seeds.
    pub fn new(config: ImpairmentConfig, seed: u64) -> Result<Self, ImpairmentError> {
        config.check()?;
        Ok(Self {
            config,
            loss: Rng::split(seed, "loss"),
            duplicate: Rng::split(seed, "duplicate"),
            corrupt: Rng::split(seed, "corrupt"),
            reorder: Rng::split(seed, "reorder"),
            in_flight: BTreeMap::new(),
            entered: 0,
            counters: ImpairmentCounters::default(),
        })
    }

    /// A link without impairments.
    pub fn none() -> Self {
        Self::new(ImpairmentConfig::default(), 0).expect("the default configuration is a perfect link")
    }

    /// A packet enters.
    pub fn handle_packet(&mut self, now: Instant, packet: Bytes) {
        self.counters.offered += 1;
        let is_lost = self.loss.chance(self.config.loss);
        let is_duplicated = self.duplicate.chance(self.config.duplicate);
        if self.is_cut(now) {
            self.counters.lost_in_outage += 1;
            return;
        }
        if is_lost {
            self.counters.lost += 1;
            return;
        }
        if is_duplicated {
            self.counters.duplicated += 1;
            self.enter(now, packet.clone());
        }
        self.enter(now, packet);
    }

    /// The next packet that has arrived at the other end by `now`.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Bytes> {
        loop {
            let entry = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
            let ((due, _), packet) = entry.remove_entry();
            if self.is_cut(due) {
                self.counters.lost_in_outage += 1;
                continue;
            }
            self.counters.delivered += 1;
            return Some(packet);
        }
    }

    /// When the next packet arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((due, _), _)| *due)
    }

    /// The counters so far.
    pub fn counters(&self) -> ImpairmentCounters {
        self.counters
    }

    fn enter(&mut self, now: Instant, mut packet: Bytes) {
        let mut due = now + self.config.delay;
        if self.reorder.chance(self.config.reorder) {
            self.counters.reordered += 1;
            due += self.config.reorder_delay;
        }
        if self.corrupt.chance(self.config.corrupt) && !packet.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.corrupt.below(packet.len() as u64 * 8);
            let mut bytes = BytesMut::from(packet);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            packet = bytes.freeze();
        }
        self.in_flight.insert((due, self.entered), packet);
        self.entered += 1;
    }

    fn is_cut(&self, at: Instant) -> bool {
        self.config.outages.iter().any(|outage| outage.from <= at && at < outage.until)
    }
}

impl ImpairmentConfig {
    fn check(&self) -> Result<(), ImpairmentError> {
        let probabilities =
            [("loss", self.loss), ("duplicate", self.duplicate), ("corrupt", self.corrupt), ("reorder", self.reorder)];
        for (field, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(ImpairmentError::Probability { field, value });
            }
        }
        if self.reorder > 0.0 && self.reorder_delay.is_zero() {
            return Err(ImpairmentError::ReorderWithoutDelay);
        }
        match self.outages.iter().find(|outage| outage.until < outage.from) {
            Some(&Outage { from, until }) => Err(ImpairmentError::Outage { from, until }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u64 = 20_000;

    /// Sends `PACKETS` packets, 1 ms apart, numbered in their first eight bytes; returns the arrivals with their times.
    fn run(config: ImpairmentConfig, seed: u64) -> (Vec<(Instant, Bytes)>, ImpairmentCounters) {
        let mut link = Impairment::new(config, seed).unwrap();
        let mut arrived = Vec::new();
        for number in 0..PACKETS {
            let now = Instant::from_millis(number);
            deliver_until(&mut link, now, &mut arrived);
            link.handle_packet(now, packet(number));
        }
        deliver_until(&mut link, Instant::FAR_FUTURE, &mut arrived);
        assert_eq!(link.poll_timeout(), None);
        (arrived, link.counters())
    }

    fn deliver_until(link: &mut Impairment, end: Instant, arrived: &mut Vec<(Instant, Bytes)>) {
        while let Some(now) = link.poll_timeout().filter(|due| *due <= end) {
            if now > Instant::ZERO {
                assert_eq!(link.poll_packet(now - Duration::from_nanos(1)), None, "nothing is early");
            }
            while let Some(packet) = link.poll_packet(now) {
                arrived.push((now, packet));
            }
        }
    }

    fn packet(number: u64) -> Bytes {
        [number.to_be_bytes(), [0; 8]].concat().into()
    }

    fn numbers(arrived: &[(Instant, Bytes)]) -> Vec<u64> {
        arrived.iter().map(|(_, packet)| u64::from_be_bytes(packet[..8].try_into().unwrap())).collect()
    }

    /// Whether `count` of `PACKETS` is consistent with `p`: within five standard deviations.
    fn is_likely(count: u64, p: f64) -> bool {
        let (n, count) = (PACKETS as f64, count as f64);
        (count - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt()
    }

    #[test]
    fn a_perfect_link_delivers_everything_at_once_and_in_order() {
        let (arrived, counters) = run(ImpairmentConfig::default(), 1);
        assert_eq!(numbers(&arrived), (0..PACKETS).collect::<Vec<_>>());
        assert!(arrived.iter().zip(0..).all(|((at, _), number)| *at == Instant::from_millis(number)));
        assert_eq!(
            counters,
            ImpairmentCounters { offered: PACKETS, delivered: PACKETS, ..ImpairmentCounters::default() }
        );
    }

    #[test]
    fn a_delay_is_kept_to_the_nanosecond() {
        let delay = Duration::from_nanos(25_000_001);
        let (arrived, _) = run(ImpairmentConfig { delay, ..Default::default() }, 1);
        assert!(arrived.iter().zip(0..).all(|((at, _), number)| *at == Instant::from_millis(number) + delay));
    }

    #[test]
    fn losses_are_as_frequent_as_asked_for() {
        let (arrived, counters) = run(ImpairmentConfig { loss: 0.01, ..Default::default() }, 2);
        assert!(is_likely(counters.lost, 0.01), "{counters:?}");
        assert_eq!(arrived.len() as u64, PACKETS - counters.lost);
        assert!(numbers(&arrived).is_sorted());
    }

    #[test]
    fn duplicates_follow_their_originals() {
        let (arrived, counters) = run(ImpairmentConfig { duplicate: 0.05, ..Default::default() }, 3);
        assert!(is_likely(counters.duplicated, 0.05), "{counters:?}");
        assert_eq!(arrived.len() as u64, PACKETS + counters.duplicated);
        assert_eq!(numbers(&arrived).windows(2).filter(|pair| pair[0] == pair[1]).count() as u64, counters.duplicated);
    }

    #[test]
    fn reordered_packets_are_overtaken() {
        let config = ImpairmentConfig {
            reorder: 0.02,
            reorder_delay: Duration::from_micros(3_500),
            delay: Duration::from_millis(10),
            ..Default::default()
        };
        let (arrived, counters) = run(config, 4);
        assert!(is_likely(counters.reordered, 0.02), "{counters:?}");
        let mut came: Vec<(u64, usize, Duration)> = numbers(&arrived)
            .into_iter()
            .zip(&arrived)
            .enumerate()
            .map(|(place, (number, (at, _)))| (number, place, at.saturating_since(Instant::from_millis(number))))
            .collect();
        came.sort_unstable();
        assert!(came.iter().map(|(number, ..)| *number).eq(0..PACKETS));
        let on_time = Duration::from_millis(10);
        let mut late = 0;
        for (index, (number, place, took)) in came.iter().enumerate() {
            if *took == on_time {
                continue;
            }
            late += 1;
            assert_eq!(*took, Duration::from_micros(13_500));
            // Packets sent in the 3.5 ms after it arrived first, unless they were delayed as well.
            let overtakers = came[index + 1..].iter().take(3).filter(|(.., took)| *took == on_time);
            assert!(overtakers.into_iter().all(|(_, earlier, _)| earlier < place), "{number}");
        }
        assert_eq!(late, counters.reordered);
    }

    #[test]
    fn corruption_flips_exactly_one_bit_anywhere() {
        let (arrived, counters) = run(ImpairmentConfig { corrupt: 0.1, ..Default::default() }, 5);
        assert!(is_likely(counters.corrupted, 0.1), "{counters:?}");
        let mut flipped = [0_u32; 128];
        for ((_, got), number) in arrived.iter().zip(0..) {
            let differing = got.iter().zip(packet(number)).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            assert!(differing <= 1);
            for (index, (a, b)) in got.iter().zip(packet(number)).enumerate() {
                if a != &b {
                    flipped[index * 8 + (a ^ b).trailing_zeros() as usize] += 1;
                }
            }
        }
        assert_eq!(u64::from(flipped.iter().sum::<u32>()), counters.corrupted);
        assert!(flipped.iter().all(|count| *count > 0), "every bit has its turn: {flipped:?}");
    }

    #[test]
    fn an_outage_drops_entering_and_leaving_packets() {
        let outage = Outage { from: Instant::from_secs(2), until: Instant::from_secs(4) };
        let config =
            ImpairmentConfig { delay: Duration::from_millis(500), outages: vec![outage], ..Default::default() };
        let (arrived, counters) = run(config, 6);
        // Packets 1500..2000 would leave during the outage, and 2000..4000 enter during it.
        assert_eq!(numbers(&arrived), (0..1500).chain(4000..PACKETS).collect::<Vec<_>>());
        assert_eq!(counters.lost_in_outage, 2500);
    }

    #[test]
    fn a_seed_determines_everything_and_effects_do_not_disturb_each_other() {
        let config = ImpairmentConfig {
            loss: 0.05,
            duplicate: 0.05,
            corrupt: 0.05,
            reorder: 0.05,
            reorder_delay: Duration::from_millis(2),
            ..Default::default()
        };
        assert_eq!(run(config.clone(), 7), run(config.clone(), 7));
        assert_ne!(run(config.clone(), 7), run(config.clone(), 8));
        let alone = run(ImpairmentConfig { loss: 0.05, ..Default::default() }, 7).1;
        assert_eq!(run(config, 7).1.lost, alone.lost);
    }

    #[test]
    fn nonsense_is_refused() {
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let config = ImpairmentConfig { loss: value, ..Default::default() };
            assert!(matches!(Impairment::new(config, 0), Err(ImpairmentError::Probability { field: "loss", .. })));
        }
        let config = ImpairmentConfig { reorder: 0.1, ..Default::default() };
        assert!(matches!(Impairment::new(config, 0), Err(ImpairmentError::ReorderWithoutDelay)));
        let outage = Outage { from: Instant::from_secs(2), until: Instant::from_secs(1) };
        let config = ImpairmentConfig { outages: vec![outage], ..Default::default() };
        assert!(matches!(Impairment::new(config, 0), Err(ImpairmentError::Outage { .. })));
    }
}
