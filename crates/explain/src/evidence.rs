//! The bounded state of one direction of a connection, for captures of any length.
//!
//! The evidence consists of three lists: *silences* of the sender with the event it waited for; *unanswered* stretches, in which it sent
//! without any response; and *bins*, short intervals with the data acknowledged, lost and outstanding. When a list grows too long, it is
//! coarsened: short silences and stretches are dropped, and neighbouring bins are merged.

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
    /// The shortest silence and unanswered stretch kept.
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

    /// Adds a silence if it is long enough; returns whether it did.
    pub(crate) fn silence(&mut self, silence: Silence) -> bool {
        if silence.len() < self.min_silence {
            return false;
        }
        self.silences.push(silence);
        if self.silences.len() > Self::MOST { !self.forget_short() } else { true }
    }

    pub(crate) fn unanswered(&mut self, stretch: Unanswered) {
        if stretch.len() >= self.min_silence && stretch.repeats > 0 {
            self.unanswered.push(stretch);
            if self.unanswered.len() > Self::MOST {
                self.forget_short();
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

    /// Coarsens lists with more than `short` entries by one step, and returns the memory that nothing uses; returns whether another step
    /// would coarsen them further.
    pub(crate) fn coarsen(&mut self, short: usize) -> bool {
        /// Of minimum and width: longer than any capture.
        const LONGEST: Duration = Duration::from_nanos(1 << 62);
        let forgets = self.silences.len() + self.unanswered.len() > short && self.min_silence < LONGEST;
        if forgets {
            self.forget_short();
        }
        let joins = self.bins.len() > short && self.bin_width < LONGEST;
        if joins {
            self.join_bins();
        }
        self.silences.shrink_to_fit();
        self.unanswered.shrink_to_fit();
        self.bins.shrink_to_fit();
        forgets || joins
    }

    /// Drops entries shorter than twice the current minimum; returns whether any were dropped.
    fn forget_short(&mut self) -> bool {
        let before = self.silences.len() + self.unanswered.len();
        self.min_silence = self.min_silence * 2;
        let least = self.min_silence;
        self.silences.retain(|silence| silence.len() >= least);
        self.unanswered.retain(|stretch| stretch.len() >= least);
        self.silences.len() + self.unanswered.len() < before
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
