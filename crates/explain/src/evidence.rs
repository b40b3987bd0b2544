//! The state kept for one direction of a connection, bounded for captures of any length.
//!
//! Three lists tell the story: *silences* of the sender, with what it waited for; *unanswered* stretches, in which it sent and
//! nothing came back; and *bins*, short spans of time with what was acknowledged, lost, and outstanding. When a list grows too
//! long, it is made coarser: short silences and stretches are forgotten, and neighbouring bins are joined.

use holdover_base::{Duration, Instant};

/// What a sender waits for, as far as the place of the capture shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The receiver's window is closed.
    Window,
    /// Everything that was seen is acknowledged.
    Nothing,
    /// Data is outstanding.
    Acknowledgment,
}

/// What ended a silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndedBy {
    /// Data that was sent again.
    Again,
    /// Data from beyond a hole: what is between was lost.
    Hole,
    /// New data.
    New,
    /// The end of the connection or of the capture.
    End,
}

/// A time in which the sender sent no data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Silence {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// What the sender waited for, from when on; the first begins with the silence.
    pub(crate) waits: Vec<(Instant, Wait)>,
    pub(crate) ended_by: EndedBy,
    /// The last segment before it was full.
    pub(crate) after_full: bool,
    /// That segment had PSH: the sender had no more data then, or a write ended there.
    pub(crate) after_push: bool,
    /// When the receiver's application sent something for the last time in it.
    pub(crate) asked: Option<Instant>,
    /// The data that ended it echoes an old timestamp: the sender lacks ACKs that have passed the place of the capture.
    pub(crate) stale_echo: bool,
    /// Full segments that ended it, before the next pause or the next that is not full; 0 if there are fewer than three and the
    /// next is not full.
    pub(crate) burst: u32,
}

impl Silence {
    /// More changes of what is waited for than this are not kept.
    pub(crate) const MAX_WAITS: usize = 16;

    pub(crate) fn len(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

/// A stretch in which the sender sent and sent again, and nothing came from the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unanswered {
    /// When something came from the receiver for the last time.
    pub(crate) heard: Instant,
    /// Whether data was outstanding then.
    pub(crate) outstanding: bool,
    /// The first segment without an answer.
    pub(crate) first: Instant,
    /// When the last three transmissions began, oldest first.
    pub(crate) last: [Option<Instant>; 3],
    /// How many transmissions there were, each a burst of segments.
    pub(crate) transmissions: u32,
    /// How many of them repeated something.
    pub(crate) repeats: u32,
    /// When something came from the receiver again; `None` if nothing did.
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
    /// Takes samples, if they are less than those so far.
    pub(crate) fn note(&mut self, other: Self) {
        let least = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.to_sender = least(self.to_sender, other.to_sender);
        self.to_receiver = least(self.to_receiver, other.to_receiver);
    }
}

/// A short span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bin {
    /// Its number, in widths since the connection's beginning.
    pub(crate) index: u64,
    /// Bytes acknowledged for the first time.
    pub(crate) acked: u64,
    /// Segments sent again, or sent to fill a hole.
    pub(crate) again: u32,
    /// The least samples of the round trips between the place of the capture and the sender, and the receiver.
    pub(crate) rtt: Halves,
    /// The most bytes that were outstanding.
    pub(crate) outstanding: u64,
    /// The last window of the receiver that was not zero, in bytes, if it is known.
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

/// The lists.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) silences: Vec<Silence>,
    pub(crate) unanswered: Vec<Unanswered>,
    /// In order; those with nothing in them are left out.
    pub(crate) bins: Vec<Bin>,
    pub(crate) bin_width: Duration,
    /// The shortest silence and unanswered stretch that is kept.
    pub(crate) min_silence: Duration,
}

impl Evidence {
    /// The longest lists that one direction of a connection may have.
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

    /// How much is kept.
    pub(crate) fn len(&self) -> usize {
        self.silences.len() + self.unanswered.len() + self.bins.len()
    }

    /// Keeps a silence that is long enough; returns whether it did.
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

    /// The bin of `since`, counted from the connection's beginning.
    pub(crate) fn bin(&mut self, since: Duration) -> &mut Bin {
        if self.bins.len() >= 2 * Self::MOST {
            self.join_bins();
        }
        let index = since.as_nanos() / self.bin_width.as_nanos();
        // A clock that steps back changes the latest bin.
        if self.bins.last().is_none_or(|last| last.index < index) {
            self.bins.push(Bin { index, ..Bin::default() });
        }
        let last = self.bins.len() - 1;
        &mut self.bins[last]
    }

    /// Makes long lists coarser.
    pub(crate) fn coarsen(&mut self) {
        const SHORT: usize = 64;
        if self.silences.len() + self.unanswered.len() > SHORT {
            self.forget_short();
        }
        if self.bins.len() > SHORT {
            self.join_bins();
        }
    }

    /// Forgets what is shorter than twice the least so far; returns whether anything went.
    fn forget_short(&mut self) -> bool {
        let before = self.silences.len() + self.unanswered.len();
        self.min_silence = self.min_silence * 2;
        let least = self.min_silence;
        self.silences.retain(|silence| silence.len() >= least);
        self.unanswered.retain(|stretch| stretch.len() >= least);
        self.silences.len() + self.unanswered.len() < before
    }

    /// Joins each two neighbouring bins.
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
