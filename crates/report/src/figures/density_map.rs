//! Distributions of pairs of samples.

use super::density::{bin, bin_count};
use super::heat::{Beyond, bar_room, draw_bar, draw_cell};
use super::{finish, leaves_as_svg_and_png, left_out};
use crate::draw::{
    Anchor, Axis, Figure, Frame, Ink, Reach, Shape, Span, TEXT_SIZE, Unit, WIDTH, head, label, line, text,
};

/// Two-dimensional histograms of several series, with the same axes and colours.
#[derive(Clone, PartialEq, Debug)]
pub struct DensityMap {
    /// The title.
    pub title: String,
    /// The first quantity of each pair.
    pub x: Axis,
    /// The second quantity of each pair.
    pub y: Axis,
    /// The number of bins along each axis; zero chooses a number.
    pub bins: (usize, usize),
    /// The series, each with its own plot area, up to three side by side.
    pub series: Vec<Pairs>,
}

/// The pairs of samples of one series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pairs {
    /// The name, above the plot area.
    pub name: String,
    /// x and y, in base units.
    pub pairs: Vec<(f64, f64)>,
}

const HEIGHT: f32 = 260.0;
/// From the lower edge of a plot area to the upper edge of the next.
const BETWEEN_ROWS: f32 = 82.0;
const BETWEEN_COLUMNS: f32 = 30.0;
const MOST_BINS: usize = 120;

leaves_as_svg_and_png!(DensityMap);

/// The share of one series' pairs in each bin; bins without pairs are empty.
struct Binned {
    shares: Vec<Option<f64>>,
    pairs: usize,
    beyond: usize,
}

impl DensityMap {
    fn draw(&self) -> Figure {
        let usable = |pair: &&(f64, f64)| self.x.can_show(pair.0) && self.y.can_show(pair.1);
        let all = || self.series.iter().flat_map(|series| series.pairs.iter().filter(usable));
        let x = self.x.span(all().map(|pair| pair.0), Reach::FromData);
        let y = self.y.span(all().map(|pair| pair.1), Reach::FromData);
        let most = self.series.iter().map(|series| series.pairs.len()).max().unwrap_or(0);
        let bins = |wanted| bin_count(wanted, most).min(MOST_BINS);
        let bins = (bins(self.bins.0), bins(self.bins.1));
        let binned: Vec<Binned> = self
            .series
            .iter()
            .map(|series| Binned::new(series.pairs.iter().filter(usable).copied(), x, y, bins))
            .collect();
        let share_axis = Axis::new("share of the pairs in each cell", Unit::Ratio);
        let shares = binned.iter().flat_map(|binned| &binned.shares).flatten().copied();
        let shares = share_axis.span(shares, Reach::FromZero);
        let mut shapes = Vec::new();
        let top = head(&self.title, &[], &mut shapes) + 50.0;
        let right = WIDTH - bar_room(&share_axis, shares, HEIGHT);
        let columns = self.series.len().clamp(1, 3);
        let mut bottom = top + HEIGHT;
        for (index, (series, binned)) in self.series.iter().zip(&binned).enumerate() {
            let row_top = top + (index / columns) as f32 * (HEIGHT + BETWEEN_ROWS);
            let mut frame = Frame::new(row_top, HEIGHT, x, &self.y, y);
            let left = frame.left;
            let width = (right - left - (columns - 1) as f32 * (BETWEEN_COLUMNS + left)) / columns as f32;
            frame.left = left + (index % columns) as f32 * (width + BETWEEN_COLUMNS + left);
            frame.right = frame.left + width;
            self.draw_plane(&frame, series, binned, bins, shares, &mut shapes);
            bottom = frame.bottom;
        }
        draw_bar(&share_axis, shares, Beyond::default(), (top, top + HEIGHT), right, WIDTH / 2.0, &mut shapes);
        let unusable = self.series.iter().map(|series| series.pairs.len()).sum::<usize>() - all().count();
        let beyond = binned.iter().map(|binned| binned.beyond).sum();
        let notes = [
            left_out(unusable, "pair", "not numbers, or without a place on the axes"),
            left_out(beyond, "pair", "beyond the axes, but counted in the shares"),
        ];
        let description = self.series.iter().map(|series| {
            let pairs = series.pairs.iter().filter(usable);
            let range = |axis: &Axis, values: &mut dyn Iterator<Item = f64>| {
                let ends =
                    values.fold((f64::MAX, f64::MIN), |(least, most), value| (value.min(least), value.max(most)));
                format!("{} from {} to {}", axis.label, axis.unit.value(ends.0), axis.unit.value(ends.1))
            };
            match pairs.clone().count() {
                0 => format!("{}: no pairs", series.name),
                count => format!(
                    "{} (n = {}): {}, {}",
                    series.name,
                    crate::quantity::count(count as u64),
                    range(&self.x, &mut pairs.clone().map(|pair| pair.0)),
                    range(&self.y, &mut pairs.map(|pair| pair.1))
                ),
            }
        });
        finish(&self.title, description, bottom, notes.into_iter().flatten().collect(), shapes)
    }

    fn draw_plane(
        &self,
        frame: &Frame,
        series: &Pairs,
        binned: &Binned,
        bins: (usize, usize),
        shares: Span,
        shapes: &mut Vec<Shape>,
    ) {
        frame.draw_y_axis(shapes);
        let edge_x = |bin: usize| (frame.left + (frame.right - frame.left) * bin as f32 / bins.0 as f32).round();
        let edge_y = |bin: usize| (frame.bottom - (frame.bottom - frame.top) * bin as f32 / bins.1 as f32).round();
        for (index, share) in binned.shares.iter().enumerate() {
            let (column, row) = (index % bins.0, index / bins.0);
            if share.is_some() {
                let at = (edge_x(column), edge_y(row + 1));
                let size = (edge_x(column + 1) - at.0, edge_y(row) - at.1);
                draw_cell(at, size, *share, shares, shapes);
            }
        }
        let (left, right, top, bottom) = (frame.left, frame.right, frame.top, frame.bottom);
        shapes.push(line(vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], Ink::Axis));
        frame.draw_x_axis(&self.x, f64::from(right - left) / 80.0, shapes);
        let name = format!("{} (n = {})", series.name, crate::quantity::count(binned.pairs as u64));
        let name = text::fit(&name, TEXT_SIZE, right - left);
        shapes.push(label((left, top - 26.0), name, Anchor::Start, Ink::Text));
    }
}

impl Binned {
    fn new(pairs: impl Iterator<Item = (f64, f64)>, x: Span, y: Span, bins: (usize, usize)) -> Self {
        let mut counts = vec![0_usize; bins.0 * bins.1];
        let (mut all, mut beyond) = (0, 0);
        for pair in pairs {
            all += 1;
            match (bin(x, pair.0, bins.0), bin(y, pair.1, bins.1)) {
                (Some(column), Some(row)) => counts[row * bins.0 + column] += 1,
                _ => beyond += 1,
            }
        }
        let shares = counts.into_iter().map(|count| (count > 0).then(|| count as f64 / all as f64)).collect();
        Self { shares, pairs: all, beyond }
    }
}
