//! Figures of many runs, for sweeps and for comparison with published values. The course of a single run over time is plotted by
//! [`crate::plots`].
//!
//! - [`Lines`]: means over a parameter, with error bars and published values.
//! - [`Bars`]: a few cases by a few variants.
//! - [`Surface`]: one value over two parameters, as colours.
//! - [`Strips`]: outcomes of samples over one input each.
//! - [`Density`]: distributions of samples, as a histogram or cumulative; [`DensityMap`]: pairs of samples.
//!
//! All values are in base units, and an [`Axis`] writes them with a prefix that fits. Data that cannot be drawn (NaN, infinite, beyond a
//! given range, not positive on a logarithmic axis) is omitted, and the figure states how much.

mod bars;
mod density;
mod density_map;
mod heat;
mod lines;
mod strips;
mod surface;

pub use bars::{Bar, BarSeries, Bars, Published};
pub use density::{Density, Form, Samples};
pub use density_map::{DensityMap, Pairs};
pub use lines::{LinePoint, LineSeries, Lines};
pub use strips::{Strip, Strips};
pub use surface::Surface;

pub use crate::draw::{Axis, PngError, Scale, Unit};

use crate::draw::{AXIS_CAPTION, Anchor, Entry, Figure, Ink, LEFT, RIGHT, Shape, TEXT_SIZE, WIDTH, label, line, text};

/// Names of elements that any figure may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// Published values, such as `published`.
    pub published: String,
    /// Error bars.
    pub interval: String,
    /// Missing values.
    pub missing: String,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            published: "published".to_owned(),
            interval: "95 % confidence interval".to_owned(),
            missing: "aborted".to_owned(),
        }
    }
}

/// Implements the output formats of a figure.
macro_rules! leaves_as_svg_and_png {
    ($figure:ty) => {
        impl $figure {
            /// The figure as an SVG file, in light colours, or in dark ones where the reader's screen is dark.
            pub fn to_svg_file(&self) -> String {
                $crate::draw::to_svg_file(&self.draw())
            }

            /// The figure as an element of a page with [`crate::html`]'s style sheet.
            pub fn inline_svg(&self) -> String {
                $crate::draw::to_svg(&self.draw())
            }

            /// The figure as a PNG file on white paper, at twice its logical size.
            ///
            /// # Errors
            ///
            /// [`PngError`](crate::figures::PngError) if memory does not hold it.
            pub fn to_png(&self) -> Result<Vec<u8>, $crate::figures::PngError> {
                $crate::draw::to_png(&self.draw())
            }
        }
    };
}
use leaves_as_svg_and_png;

const ROW: f32 = 18.0;
const BELOW_AXIS: f32 = 42.0;

/// Completes a figure whose plot area ends at `bottom`; notes go below everything else. `shown` is a
/// description of the data in sentences, for screen readers.
fn finish(
    title: &str,
    shown: impl Iterator<Item = String>,
    bottom: f32,
    notes: Vec<String>,
    mut shapes: Vec<Shape>,
) -> Figure {
    /// The most that are read out.
    const SENTENCES: usize = 16;
    let mut shown: Vec<String> = shown.collect();
    if shown.len() > SENTENCES {
        let more = shown.len() - (SENTENCES - 1);
        shown.truncate(SENTENCES - 1);
        shown.push(format!("and {more} more"));
    }
    let title_sentence = title.trim_end_matches('.').to_owned();
    let sentences = std::iter::once(title_sentence).chain(shown).chain(notes.iter().cloned());
    let sentences = sentences.filter(|text| !text.is_empty()).map(|text| format!("{}.", text.trim_end_matches('.')));
    let description = sentences.collect::<Vec<_>>().join(" ");
    let mut y = bottom + AXIS_CAPTION;
    for note in notes {
        y += ROW;
        let note = text::fit(&note, TEXT_SIZE, WIDTH - LEFT - RIGHT);
        shapes.push(label((LEFT, y), note, Anchor::Start, Ink::Muted));
    }
    Figure { width: WIDTH, height: y + BELOW_AXIS - AXIS_CAPTION, label: description, shapes, plots: Vec::new() }
}

/// `1 value is not shown: WHY.`, if there are any.
fn left_out(count: usize, noun: &str, why: &str) -> Option<String> {
    let counted = crate::quantity::counted(count as u64, noun);
    (count > 0).then(|| format!("{counted} {} not shown: {why}.", if count == 1 { "is" } else { "are" }))
}

/// An error bar from `top` to `bottom` at `x`; an end beyond the plot area has no cap.
fn error_bar(x: f32, (top, top_cap): (f32, bool), (bottom, bottom_cap): (f32, bool), cap: f32, ink: Ink) -> Vec<Shape> {
    let stroke = |points| Shape::Line { points, ink, width: 1.3, dashed: false };
    let mut shapes = vec![stroke(vec![(x, top), (x, bottom)])];
    for (y, has_cap) in [(top, top_cap), (bottom, bottom_cap)] {
        if has_cap {
            shapes.push(stroke(vec![(x - cap, y), (x + cap, y)]));
        }
    }
    shapes
}

/// An error bar for a legend.
fn error_bar_entry(name: &str) -> Entry {
    Entry::new(name, error_bar(0.0, (-6.0, true), (6.0, true), 4.0, Ink::Muted))
}

/// A crossed-out cell, for a missing value.
fn crossed(at: (f32, f32), size: (f32, f32)) -> Vec<Shape> {
    let (right, bottom) = (at.0 + size.0, at.1 + size.1);
    let mut shapes = vec![Shape::Rect { at, size, ink: Ink::Grid }];
    if size.0 >= 3.0 && size.1 >= 3.0 {
        shapes.push(line(vec![at, (right, bottom)], Ink::Axis));
        shapes.push(line(vec![(at.0, bottom), (right, at.1)], Ink::Axis));
    }
    shapes
}
