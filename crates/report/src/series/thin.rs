//! Self-thinning series: memory is bounded for runs of any length.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};

/// A value at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Point {
    /// The time.
    pub at: Instant,
    /// The value.
    pub value: u64,
}

/// Points in a plane, at most one (the first) per cell of a grid. The grid is coarsened as the extent grows, always in
/// its finer dimension, so that it stays below visible resolution.
#[derive(Clone, PartialEq, Debug)]
pub struct Cells {
    limit: usize,
    time_shift: u32,
    value_shift: u32,
    last: (u64, u64),
    cells: BTreeMap<(u64, u64), Point>,
    count: u64,
}

impl Cells {
    /// Creates an empty set of at most `limit` points (at least 16).
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(16), time_shift: 0, value_shift: 0, last: (0, 0), cells: BTreeMap::new(), count: 0 }
    }

    /// Adds a point.
    pub fn add(&mut self, at: Instant, value: u64) {
        self.count += 1;
        self.last = (self.last.0.max(at.as_nanos()), self.last.1.max(value));
        let point = Point { at, value };
        self.cells.entry(self.cell(point)).or_insert(point);
        while self.cells.len() > self.limit {
            self.coarsen();
        }
    }

    /// The points kept, by time and then by value.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.cells.values().copied()
    }

    /// The number of points added.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn cell(&self, point: Point) -> (u64, u64) {
        (point.at.as_nanos() >> self.time_shift, point.value >> self.value_shift)
    }

    fn coarsen(&mut self) {
        if self.last.0 >> self.time_shift >= self.last.1 >> self.value_shift {
            self.time_shift += 1;
        } else {
            self.value_shift += 1;
        }
        for point in std::mem::take(&mut self.cells).into_values() {
            self.cells.entry(self.cell(point)).or_insert(point);
        }
    }
}

/// Keeps every item at first, then every second, every fourth and so on, within a limit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Strided<T> {
    limit: usize,
    stride: u64,
    seen: u64,
    items: Vec<T>,
}

impl<T: Copy> Strided<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(2), stride: 1, seen: 0, items: Vec::new() }
    }

    pub(crate) fn add(&mut self, item: T) {
        if self.seen.is_multiple_of(self.stride) {
            if self.items.len() == self.limit {
                let mut index = 0;
                self.items.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.items.push(item);
            }
        }
        self.seen += 1;
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }
}

/// Amounts in equal bins, which become ten times as long when there are too many of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bins {
    limit: usize,
    width: Duration,
    amounts: Vec<i64>,
}

impl Bins {
    pub(crate) fn new(limit: usize, width: Duration) -> Self {
        Self { limit: limit.max(10), width, amounts: Vec::new() }
    }

    pub(crate) fn add(&mut self, at: Instant, amount: i64) {
        let mut index = self.index(at);
        while index >= self.limit {
            self.width = self.width * 10;
            self.amounts = self.amounts.chunks(10).map(|chunk| chunk.iter().sum()).collect();
            index = self.index(at);
        }
        if self.amounts.len() <= index {
            self.amounts.resize(index + 1, 0);
        }
        self.amounts[index] += amount;
    }

    pub(crate) fn width(&self) -> Duration {
        self.width
    }

    pub(crate) fn amounts(&self) -> &[i64] {
        &self.amounts
    }

    fn index(&self, at: Instant) -> usize {
        (at.as_nanos() / self.width.as_nanos().max(1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cells_are_bounded_and_cover_what_was_added(
            limit in 16_usize..200,
            points in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 30), 1..2000),
        ) {
            let mut cells = Cells::new(limit);
            for &(at, value) in &points {
                cells.add(Instant::from_nanos(at), value);
            }
            let kept: Vec<Point> = cells.points().collect();
            prop_assert!(kept.len() <= limit);
            prop_assert_eq!(cells.count(), points.len() as u64);
            // Every added point has a kept point in its cell.
            let cell_width = (1_u64 << cells.time_shift, 1_u64 << cells.value_shift);
            for &(at, value) in &points {
                let near = |point: &Point| {
                    point.at.as_nanos().abs_diff(at) < cell_width.0 && point.value.abs_diff(value) < cell_width.1
                };
                prop_assert!(kept.iter().any(near));
            }
        }

        #[test]
        fn bins_keep_the_sum(amounts in prop::collection::vec((0_u64..1_000_000, -5_i64..100), 1..500)) {
            let mut bins = Bins::new(50, Duration::from_micros(100));
            for &(micros, amount) in &amounts {
                bins.add(Instant::from_micros(micros), amount);
            }
            prop_assert!(bins.amounts().len() <= 50);
            prop_assert_eq!(bins.amounts().iter().sum::<i64>(), amounts.iter().map(|&(_, amount)| amount).sum::<i64>());
        }
    }

    #[test]
    fn a_stride_doubles_and_stays_even() {
        let mut strided = Strided::new(8);
        for n in 0..1000 {
            strided.add(n);
        }
        assert!(strided.items().len() <= 8 && strided.items().len() >= 4, "{:?}", strided.items());
        let step = strided.items()[1] - strided.items()[0];
        assert!(strided.items().windows(2).all(|pair| pair[1] - pair[0] == step), "{:?}", strided.items());
    }
}
