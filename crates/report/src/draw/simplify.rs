//! Removes invisible points from lines.

use super::At;

/// Simplifies a line: drops points within `tolerance` of the line through the others (Douglas and Peucker, 1973).
pub(crate) fn simplify(points: &[At], tolerance: f32) -> Vec<At> {
    if points.len() < 3 {
        return points.to_vec();
    }
    let mut keep = vec![false; points.len()];
    keep[0] = true;
    keep[points.len() - 1] = true;
    let mut open = vec![(0, points.len() - 1)];
    while let Some((first, last)) = open.pop() {
        let between = first + 1..last;
        let distance = |&index: &usize| distance(points[index], points[first], points[last]);
        let farthest = between.max_by(|a, b| distance(a).total_cmp(&distance(b)));
        if let Some(farthest) = farthest.filter(|index| distance(index) > tolerance) {
            keep[farthest] = true;
            open.extend([(first, farthest), (farthest, last)]);
        }
    }
    points.iter().zip(keep).filter_map(|(&point, keep)| keep.then_some(point)).collect()
}

/// The distance from `point` to the segment from `a` to `b`.
fn distance(point: At, a: At, b: At) -> f32 {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length_squared = dx * dx + dy * dy;
    let along = if length_squared > 0.0 {
        (((point.0 - a.0) * dx + (point.1 - a.1) * dy) / length_squared).clamp(0.0, 1.0)
    } else {
        0.0
    };
    (point.0 - a.0 - along * dx).hypot(point.1 - a.1 - along * dy)
}

/// Thins `points` to at most one, the first, per square of `side`.
pub(crate) fn spread(points: impl IntoIterator<Item = At>, side: f32) -> Vec<At> {
    let mut taken = std::collections::BTreeSet::new();
    points.into_iter().filter(|&(x, y)| taken.insert(((x / side) as i32, (y / side) as i32))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_needs_two_points_and_a_corner_three() {
        let line: Vec<At> = (0..100).map(|n| (n as f32, 2.0 * n as f32)).collect();
        assert_eq!(simplify(&line, 0.1), [line[0], line[99]]);
        let corner: Vec<At> = (0..100).map(|n| (n as f32, if n < 50 { 0.0 } else { n as f32 - 50.0 })).collect();
        assert_eq!(simplify(&corner, 0.1), [corner[0], corner[50], corner[99]]);
    }

    #[test]
    fn crowded_points_are_spread() {
        let crowd = (0..1000).map(|n| (n as f32 * 0.01, 5.0));
        assert_eq!(spread(crowd, 2.0).len(), 5);
    }
}
