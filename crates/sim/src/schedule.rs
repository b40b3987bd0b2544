//! The schedule (event queue): the next deadline of every source, in total order.

use holdover_base::Instant;

/// The number of the first source of each kind, except links, which are first. The order is that of the crate's
/// documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    pub(crate) routing: usize,
    pub(crate) mobiles: usize,
    pub(crate) home_agents: usize,
    pub(crate) cells: usize,
    pub(crate) beacons: usize,
    pub(crate) hosts: usize,
    pub(crate) gateways: usize,
    pub(crate) cpus: usize,
    pub(crate) latencies: usize,
    pub(crate) flows: usize,
    pub(crate) sampler: usize,
}

/// An indexed binary heap of sources by their deadline; of equal deadlines, the source with the lowest number is first. Every source has at
/// most one entry, so the size does not depend on the number of packets in flight.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The deadline of each source; [`Instant::FAR_FUTURE`] for none.
    deadline: Vec<Instant>,
    /// The position of each source in `heap`; `ABSENT` if it is not in it.
    place: Vec<u32>,
    heap: Vec<Key>,
}

const ABSENT: u32 = u32::MAX;

/// A deadline and its source in one number, whose order is that of events: comparing two takes no branch and no look at `deadline`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key(u128);

impl Key {
    #[inline]
    fn new(deadline: Instant, source: usize) -> Self {
        Self(u128::from(deadline.as_nanos()) << 64 | source as u128)
    }

    #[inline]
    fn deadline(self) -> Instant {
        Instant::from_nanos((self.0 >> 64) as u64)
    }

    #[inline]
    fn source(self) -> usize {
        self.0 as u64 as usize
    }
}

impl Schedule {
    pub(crate) fn new(sources: usize) -> Self {
        Self {
            deadline: vec![Instant::FAR_FUTURE; sources],
            place: vec![ABSENT; sources],
            heap: Vec::with_capacity(sources),
        }
    }

    /// The next event: its time and its source.
    #[inline]
    pub(crate) fn next(&self) -> Option<(Instant, usize)> {
        self.heap.first().map(|key| (key.deadline(), key.source()))
    }

    /// Sets the deadline of `source`.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, deadline: Option<Instant>) {
        self.set_at(source, deadline.unwrap_or(Instant::FAR_FUTURE));
    }

    /// As [`Self::set`]; [`Instant::FAR_FUTURE`] is no deadline.
    #[inline]
    pub(crate) fn set_at(&mut self, source: usize, deadline: Instant) {
        if self.deadline[source] != deadline {
            self.change(source, deadline);
        }
    }

    fn change(&mut self, source: usize, deadline: Instant) {
        let before = core::mem::replace(&mut self.deadline[source], deadline);
        let place = self.place[source];
        let key = Key::new(deadline, source);
        if deadline == Instant::FAR_FUTURE {
            self.remove(place as usize);
        } else if place == ABSENT {
            self.heap.push(key);
            self.sift_up(self.heap.len() - 1, key);
        } else if deadline < before {
            self.sift_up(place as usize, key);
        } else {
            self.sift_down(place as usize, key);
        }
    }

    #[inline(never)]
    fn remove(&mut self, place: usize) {
        let removed = self.heap.swap_remove(place);
        self.place[removed.source()] = ABSENT;
        if let Some(&moved) = self.heap.get(place) {
            self.sift_down(place, moved);
            self.sift_up(self.place[moved.source()] as usize, moved);
        }
    }

    /// Puts `key` at `place` or above it.
    fn sift_up(&mut self, mut place: usize, key: Key) {
        while place > 0 {
            let parent = (place - 1) / 2;
            let above = self.heap[parent];
            if above < key {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, key);
    }

    /// Puts `key` at `place` or below it.
    #[inline(always)]
    fn sift_down(&mut self, mut place: usize, key: Key) {
        loop {
            let mut child = 2 * place + 1;
            let Some(&(mut below)) = self.heap.get(child) else { break };
            if let Some(&other) = self.heap.get(child + 1)
                && other < below
            {
                (child, below) = (child + 1, other);
            }
            if key < below {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, key);
    }

    #[inline]
    fn put(&mut self, place: usize, key: Key) {
        self.heap[place] = key;
        self.place[key.source()] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Rng;

    use super::*;

    #[test]
    fn it_agrees_with_a_sorted_list() {
        let mut rng = Rng::new(3);
        let mut schedule = Schedule::new(40);
        let mut model = vec![None; 40];
        for _ in 0..20_000 {
            let source = rng.below(40) as usize;
            let deadline = (!rng.chance(0.3)).then(|| Instant::from_nanos(rng.below(50)));
            schedule.set(source, deadline);
            model[source] = deadline;
            let expected = model.iter().enumerate().filter_map(|(source, at)| at.map(|at| (at, source))).min();
            assert_eq!(schedule.next(), expected);
        }
    }
}
