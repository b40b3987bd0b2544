//! Covering arrays of strength two: few rows in which every pair of values of two settings occurs.
//!
//! Greedy and deterministic: as long as a pair is missing, one row is grown from each missing pair (each further setting takes the value
//! that adds most missing pairs; of equals, the one that is least frequent in the rows so far), and the row with most missing pairs is
//! kept.

use core::cmp::Reverse;

/// A row: one value for each of `N` settings.
pub(super) type Row<const N: usize> = [usize; N];
/// A row that is being filled.
pub(super) type Partial<const N: usize> = [Option<usize>; N];

/// Rows in which every pair of values occurs, where setting `n` has the values from 0 to `levels[n]`.
///
/// `meets(row, a, b)` returns whether the values of settings `a` and `b` count as a pair in that row; a pair that counts in no row is not
/// required. A pair that counts in a row with some values missing must count in some completion of it.
pub(super) fn pairwise<const N: usize>(
    levels: &[usize; N],
    meets: impl Fn(&Partial<N>, usize, usize) -> bool,
) -> Vec<Row<N>> {
    let mut missing = Missing::all(levels);
    let mut rows = Vec::new();
    while let Some(row) = best_row(levels, &missing, &meets) {
        missing.remove(&row, &meets);
        rows.push(row);
    }
    rows
}

/// The pairs of values that are in no row yet.
struct Missing<const N: usize> {
    levels: [usize; N],
    /// For each two settings and each two of their values, whether the pair is missing.
    pairs: Vec<Vec<bool>>,
    /// The number of rows with each value of each setting.
    uses: Vec<Vec<usize>>,
}

impl<const N: usize> Missing<N> {
    fn all(levels: &[usize; N]) -> Self {
        let all = |index| {
            let (a, b) = (index / N, index % N);
            vec![a < b; levels[a] * levels[b]]
        };
        let uses = levels.iter().map(|&levels| vec![0; levels]).collect();
        Self { levels: *levels, pairs: (0..N * N).map(all).collect(), uses }
    }

    fn has(&self, (a, value_a): (usize, usize), (b, value_b): (usize, usize)) -> bool {
        if a > b {
            return self.has((b, value_b), (a, value_a));
        }
        self.pairs[a * N + b][value_a * self.levels[b] + value_b]
    }

    /// The number of missing pairs that setting `a` makes with the others in `row`.
    fn gain(&self, row: &Partial<N>, a: usize, meets: &impl Fn(&Partial<N>, usize, usize) -> bool) -> usize {
        let Some(value_a) = row[a] else { return 0 };
        (0..N)
            .filter(|&b| b != a)
            .filter(|&b| row[b].is_some_and(|value_b| self.has((a, value_a), (b, value_b))) && meets(row, a, b))
            .count()
    }

    /// Adds `row`: its pairs are not missing any more.
    fn remove(&mut self, row: &Row<N>, meets: &impl Fn(&Partial<N>, usize, usize) -> bool) {
        let whole = row.map(Some);
        for a in 0..N {
            self.uses[a][row[a]] += 1;
            for b in a + 1..N {
                if meets(&whole, a, b) {
                    self.pairs[a * N + b][row[a] * self.levels[b] + row[b]] = false;
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = ((usize, usize), (usize, usize))> + '_ {
        self.pairs.iter().enumerate().flat_map(move |(index, values)| {
            let (a, b) = (index / N, index % N);
            let pair = move |(value, _)| ((a, value / self.levels[b]), (b, value % self.levels[b]));
            values.iter().enumerate().filter(|(_, is_missing)| **is_missing).map(pair)
        })
    }
}

/// The row with most missing pairs among those grown from each of them; of equals, the first.
fn best_row<const N: usize>(
    levels: &[usize; N],
    missing: &Missing<N>,
    meets: &impl Fn(&Partial<N>, usize, usize) -> bool,
) -> Option<Row<N>> {
    let mut best: Option<(usize, Row<N>)> = None;
    for (first, second) in missing.iter() {
        let Some((gain, row)) = grow(levels, missing, meets, first, second) else { continue };
        if best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, row));
        }
    }
    best.map(|(_, row)| row)
}

/// A complete row around one pair, and the number of its missing pairs. `None` if the pair counts in no row.
fn grow<const N: usize>(
    levels: &[usize; N],
    missing: &Missing<N>,
    meets: &impl Fn(&Partial<N>, usize, usize) -> bool,
    first: (usize, usize),
    second: (usize, usize),
) -> Option<(usize, Row<N>)> {
    let mut row: Partial<N> = [None; N];
    row[first.0] = Some(first.1);
    row[second.0] = Some(second.1);
    for setting in 0..N {
        if row[setting].is_some() {
            continue;
        }
        let mut best = None;
        for value in 0..levels[setting] {
            row[setting] = Some(value);
            let worth = (missing.gain(&row, setting, meets), Reverse(missing.uses[setting][value]));
            if meets(&row, first.0, second.0) && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, value));
            }
        }
        row[setting] = Some(best?.1);
    }
    if !meets(&row, first.0, second.0) {
        return None;
    }
    // Every pair was counted from both sides.
    let gain = (0..N).map(|setting| missing.gain(&row, setting, meets)).sum::<usize>() / 2;
    Some((gain, row.map(|value| value.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_covers<const N: usize>(levels: &[usize; N], rows: &[Row<N>]) {
        for a in 0..N {
            for b in a + 1..N {
                for value_a in 0..levels[a] {
                    for value_b in 0..levels[b] {
                        let found = rows.iter().any(|row| row[a] == value_a && row[b] == value_b);
                        assert!(found, "{a}={value_a} with {b}={value_b}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_pair_is_there_and_rows_are_few() {
        let levels = [7, 6, 2, 3, 3, 2, 2, 2, 2, 2];
        let rows = pairwise(&levels, |_, _, _| true);
        assert_covers(&levels, &rows);
        assert!((42..=50).contains(&rows.len()), "{}", rows.len());
        let levels = [2; 10];
        let rows = pairwise(&levels, |_, _, _| true);
        assert_covers(&levels, &rows);
        assert!((6..=12).contains(&rows.len()), "{}", rows.len());
        let levels = [3, 3, 3, 3];
        let rows = pairwise(&levels, |_, _, _| true);
        assert_covers(&levels, &rows);
        assert!((9..=12).contains(&rows.len()), "{}", rows.len());
    }

    #[test]
    fn a_pair_that_counts_only_sometimes_is_looked_for_where_it_counts() {
        // Values 1 of the second and third setting count together only where the first is 0.
        let meets = |row: &Partial<3>, a: usize, b: usize| {
            (a.min(b), a.max(b)) != (1, 2) || row[0].is_none_or(|first| first == 0)
        };
        let rows = pairwise(&[3, 3, 3], meets);
        for second in 0..3 {
            for third in 0..3 {
                assert!(rows.contains(&[0, second, third]), "{second} {third} in {rows:?}");
            }
        }
    }

    #[test]
    fn a_pair_that_never_counts_does_not_keep_the_search_going() {
        let rows = pairwise(&[2, 2], |row, _, _| row[1] != Some(1));
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), [0, 1]);
    }
}
