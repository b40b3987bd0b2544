//! The bounded state of one direction of a connection, for captures of any length.
//!
//! The evidence consists of three lists: *silences* of the sender with the event it waited for; *unanswered* stretches, in which it sent
//! without any response; and *bins*, short intervals with the data acknowledged, lost and outstanding. When a list grows too long, it is
//! coarsened: the shortest silences and stretches are dropped (of equally long ones the latest), and neighbouring bins are merged.

use holdover_base::{Duration, Instant};

/// The event that a sender waits for, as far as the capture shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The receiver opens its window.
    Window,
    /// Nothing: all captured data is acknowledged.
    Nothing,
    /// An ACK for outstanding data.
    Acknowledgment,
}

/// The event that ended a silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndedBy {
    /// Retransmitted data.
    Again,
    /// Data beyond a hole: the data between was lost.
    Hole,
    /// New data.
    New,
    /// The end of the connection or of the capture.
    End,
}

/// A time without data from the sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Silence {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// The events waited for, each with its start; the first starts with the silence.
    pub(crate) waits: Vec<(Instant, Wait)>,
    pub(crate) ended_by: EndedBy,
    /// The last segment before the silence was full.
    pub(crate) after_full: bool,
    /// That segment had PSH: the sender had no more data, or a write ended there.
    pub(crate) after_push: bool,
    /// The last time within the silence at which the receiver's application sent data.
    pub(crate) asked: Option<Instant>,
    /// The data that ended the silence echoes an old timestamp: ACKs captured here have not reached the sender.
    pub(crate) stale_echo: bool,
    /// Full segments that ended the silence, up to the next pause or the next segment that is not full; 0 if there are fewer than three and
    /// the next is not full.
    pub(crate) burst: u32,
}

impl Silence {
    /// The limit of the waits kept.
    pub(crate) const MAX_WAITS: usize = 16;

    pub(crate) fn len(&self) -> Duration {
        self.to.saturating_since(self.from)
    }

    /// One without waits, ended by new data.
    #[cfg(test)]
    pub(crate) fn between(from: Instant, to: Instant) -> Self {
        Self {
            from,
            to,
            waits: Vec::new(),
            ended_by: EndedBy::New,
            after_full: false,
            after_push: false,
            asked: None,
            stale_echo: false,
            burst: 0,
        }
    }
}

/// A stretch of transmissions and retransmissions without a packet from the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unanswered {
    /// The time of the last packet from the receiver.
    pub(crate) heard: Instant,
    /// Whether data was outstanding at that time.
    pub(crate) outstanding: bool,
    /// The first unanswered segment.
    pub(crate) first: Instant,
    /// The times of the last three transmissions, oldest first.
    pub(crate) last: [Option<Instant>; 3],
    /// The number of transmissions, each a burst of segments.
    pub(crate) transmissions: u32,
    /// The number of retransmissions among them.
    pub(crate) repeats: u32,
    /// The time of the next packet from the receiver; `None` if there was none.
    pub(crate) answered: Option<Instant>,
}

impl Unanswered {
    pub(crate) fn len(&self) -> Duration {
        let end = self.answered.or(self.last[2]).unwrap_or(self.heard);
        end.saturating_since(self.heard)
    }
}

/// Round trips between the place of the capture and both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Halves {
    pub(crate) to_sender: Option<Duration>,
    pub(crate) to_receiver: Option<Duration>,
}

impl Halves {
    /// Takes smaller samples.
    pub(crate) fn note(&mut self, other: Self) {
        let least = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.to_sender = least(self.to_sender, other.to_sender);
        self.to_receiver = least(self.to_receiver, other.to_receiver);
    }
}

/// A short interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bin {
    /// Its index, in widths since the connection's start.
    pub(crate) index: u64,
    /// Bytes acknowledged for the first time.
    pub(crate) acked: u64,
    /// Retransmitted segments, including segments that fill a hole.
    pub(crate) again: u32,
    /// The minimum round trips between the place of the capture and each end.
    pub(crate) rtt: Halves,
    /// The maximum outstanding bytes.
    pub(crate) outstanding: u64,
    /// The receiver's last nonzero window in bytes, if known.
    pub(crate) window: Option<u32>,
}

impl Bin {
    fn join(&mut self, other: &Self) {
        self.acked += other.acked;
        self.again += other.again;
        self.rtt.note(other.rtt);
        self.outstanding = self.outstanding.max(other.outstanding);
        self.window = other.window.or(self.window);
    }
}

/// The evidence lists.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) silences: Vec<Silence>,
    pub(crate) unanswered: Vec<Unanswered>,
    /// The bins in order, without empty ones.
    pub(crate) bins: Vec<Bin>,
    pub(crate) bin_width: Duration,
    /// Shorter silences and unanswered stretches are not added.
    pub(crate) min_silence: Duration,
}

impl Evidence {
    /// The maximum length of the lists of one direction.
    const MOST: usize = 8192;

    pub(crate) const fn new() -> Self {
        Self {
            silences: Vec::new(),
            unanswered: Vec::new(),
            bins: Vec::new(),
            bin_width: Duration::from_millis(1),
            min_silence: Duration::from_millis(20),
        }
    }

    /// The number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.silences.len() + self.unanswered.len() + self.bins.len()
    }

    /// The memory of the lists, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let waits = self.silences.iter().map(|silence| silence.waits.capacity()).sum::<usize>();
        self.silences.capacity() * size_of::<Silence>()
            + waits * size_of::<(Instant, Wait)>()
            + self.unanswered.capacity() * size_of::<Unanswered>()
            + self.bins.capacity() * size_of::<Bin>()
    }

    /// Adds a silence if it is long enough; returns whether it is the last of the list now.
    pub(crate) fn silence(&mut self, silence: Silence) -> bool {
        if silence.len() < self.min_silence {
            return false;
        }
        self.silences.push(silence);
        let is_full = self.silences.len() > Self::MOST;
        if is_full {
            // Half, so that a full list is not searched for each new entry.
            self.forget_short(Self::MOST, Self::MOST / 2);
        }
        !is_full
    }

    pub(crate) fn unanswered(&mut self, stretch: Unanswered) {
        if stretch.len() >= self.min_silence && stretch.repeats > 0 {
            self.unanswered.push(stretch);
            if self.unanswered.len() > Self::MOST {
                self.forget_short(Self::MOST, Self::MOST / 2);
            }
        }
    }

    /// The bin of time `since` the connection's start.
    pub(crate) fn bin(&mut self, since: Duration) -> &mut Bin {
        if self.bins.len() >= 2 * Self::MOST {
            self.join_bins();
        }
        let index = since.as_nanos() / self.bin_width.as_nanos();
        // After a step back of the clock the latest bin is used.
        if self.bins.last().is_none_or(|last| last.index < index) {
            self.bins.push(Bin { index, ..Bin::default() });
        }
        let last = self.bins.len() - 1;
        &mut self.bins[last]
    }

    /// The length of the longest list.
    pub(crate) fn longest(&self) -> usize {
        self.silences.len().max(self.unanswered.len()).max(self.bins.len())
    }

    /// Coarsens each list that has more than `most` entries to at most as many, and returns the memory that nothing uses.
    pub(crate) fn limit(&mut self, most: usize) {
        /// Wider than any capture.
        const WIDEST: Duration = Duration::from_nanos(1 << 62);
        self.forget_short(most, most);
        while self.bins.len() > most && self.bin_width < WIDEST {
            self.join_bins();
        }
        self.silences.shrink_to_fit();
        self.unanswered.shrink_to_fit();
        self.bins.shrink_to_fit();
    }

    /// Keeps the longest `most` silences and stretches of each list with more than `full`.
    fn forget_short(&mut self, full: usize, most: usize) {
        let mut least = [None; 2];
        if self.silences.len() > full {
            least[0] = keep_longest(&mut self.silences, most, Silence::len);
        }
        if self.unanswered.len() > full {
            least[1] = keep_longest(&mut self.unanswered, most, Unanswered::len);
        }
        self.min_silence = least.into_iter().flatten().fold(self.min_silence, Duration::max);
    }

    /// Merges pairs of neighbouring bins.
    fn join_bins(&mut self) {
        self.bin_width = self.bin_width * 2;
        let mut joined: Vec<Bin> = Vec::with_capacity(self.bins.len() / 2 + 1);
        for mut bin in self.bins.drain(..) {
            bin.index /= 2;
            match joined.last_mut() {
                Some(last) if last.index == bin.index => last.join(&bin),
                _ => joined.push(bin),
            }
        }
        self.bins = joined;
    }
}

/// Keeps the longest `most` entries in their order, the first of equally long ones; returns the length of the shortest kept, if any were
/// dropped.
fn keep_longest<T>(entries: &mut Vec<T>, most: usize, len: impl Fn(&T) -> Duration) -> Option<Duration> {
    let most = most.max(1);
    if entries.len() <= most {
        return None;
    }
    let mut lens: Vec<Duration> = entries.iter().map(&len).collect();
    let dropped = lens.len() - most;
    let (_, &mut least, longer) = lens.select_nth_unstable(dropped);
    let mut room = most - longer.iter().filter(|&&len| len > least).count();
    entries.retain(|entry| {
        let is_least = len(entry) == least;
        let is_kept = len(entry) > least || is_least && room > 0;
        room -= usize::from(is_kept && is_least);
        is_kept
    });
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_entries_are_kept_and_the_first_of_equal_ones() {
        let seconds = |numbers: &[u64]| -> Vec<(usize, Duration)> {
            numbers.iter().map(|number| Duration::from_secs(*number)).enumerate().collect()
        };
        let kept = |numbers: &[u64], most| {
            let mut entries = seconds(numbers);
            let least = keep_longest(&mut entries, most, |entry| entry.1);
            (entries.into_iter().map(|(index, _)| index).collect::<Vec<_>>(), least.map(|least| least.as_secs()))
        };
        assert_eq!(kept(&[5, 5, 5, 5, 5], 2), (vec![0, 1], Some(5)));
        assert_eq!(kept(&[1, 9, 5, 5, 7, 5], 4), (vec![1, 2, 3, 4], Some(5)));
        assert_eq!(kept(&[3, 1, 2], 1), (vec![0], Some(3)));
        assert_eq!(kept(&[3, 1, 2], 3), (vec![0, 1, 2], None));
        assert_eq!(kept(&[3, 1], 0), (vec![0], Some(3)), "one is always kept");
    }

    #[test]
    fn equally_long_silences_are_not_all_dropped() {
        let mut evidence = Evidence::new();
        for second in 0..2 * Evidence::MOST as u64 {
            let from = Instant::from_secs(6 * second);
            evidence.silence(Silence::between(from, from + Duration::from_secs(5)));
            assert!(second < 100 || (100..=Evidence::MOST).contains(&evidence.silences.len()));
        }
        evidence.limit(64);
        assert_eq!(evidence.silences.len(), 64);
    }
}
