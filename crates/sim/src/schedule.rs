//! The schedule: the next deadline of every source, in total order.

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
    heap: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Schedule {
    pub(crate) fn new(sources: usize) -> Self {
        Self {
            deadline: vec![Instant::FAR_FUTURE; sources],
            place: vec![ABSENT; sources],
            heap: Vec::with_capacity(sources),
        }
    }

    /// The next event: its time and its source.
    pub(crate) fn next(&self) -> Option<(Instant, usize)> {
        self.heap.first().map(|&source| (self.deadline[source as usize], source as usize))
    }

    /// Sets the deadline of `source`.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or(Instant::FAR_FUTURE);
        if self.deadline[source] != deadline {
            self.change(source, deadline);
        }
    }

    fn change(&mut self, source: usize, deadline: Instant) {
        let before = core::mem::replace(&mut self.deadline[source], deadline);
        let place = self.place[source];
        if deadline == Instant::FAR_FUTURE {
            self.remove(place as usize);
        } else if place == ABSENT {
            self.place[source] = self.heap.len() as u32;
            self.heap.push(source as u32);
            self.sift_up(self.heap.len() - 1);
        } else if deadline < before {
            self.sift_up(place as usize);
        } else {
            self.sift_down(place as usize);
        }
    }

    fn remove(&mut self, place: usize) {
        let source = self.heap.swap_remove(place);
        self.place[source as usize] = ABSENT;
        if let Some(&moved) = self.heap.get(place) {
            self.place[moved as usize] = place as u32;
            self.sift_down(place);
            self.sift_up(self.place[moved as usize] as usize);
        }
    }

    #[inline]
    fn comes_first(&self, a: u32, b: u32) -> bool {
        (self.deadline[a as usize], a) < (self.deadline[b as usize], b)
    }

    fn sift_up(&mut self, mut place: usize) {
        let source = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.comes_first(source, self.heap[parent]) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, source);
    }

    fn sift_down(&mut self, mut place: usize) {
        let Some(&source) = self.heap.get(place) else { return };
        let end = self.heap.len();
        loop {
            let mut child = 2 * place + 1;
            if child >= end {
                break;
            }
            if child + 1 < end && self.comes_first(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.comes_first(self.heap[child], source) {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, source);
    }

    fn put(&mut self, place: usize, source: u32) {
        self.heap[place] = source;
        self.place[source as usize] = place as u32;
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
