//! The plot area of a chart: mapping values to positions, and the axes around it.

use super::axis::{Axis, Span, Ticks};
use super::{Anchor, At, Ink, LEFT, RIGHT, Shape, TEXT_SIZE, WIDTH, label, line, text};

/// From the lower edge of the plot area to the baseline of the tick labels, and from there to that of the axis label.
pub(crate) const AXIS_ROW: f32 = 17.0;
pub(crate) const AXIS_CAPTION: f32 = 34.0;
/// From the upper edge of the plot area to the baseline of the vertical axis's label.
const CAPTION_ABOVE: f32 = 8.0;
/// The gap between a label and the thing it labels.
const GAP: f32 = 7.0;
/// Vertical space per label on a vertical axis.
const TICK_HEIGHT: f64 = 44.0;
/// Horizontal space between labels on a horizontal axis.
const BETWEEN_LABELS: f32 = 8.0;

/// The plot area of a chart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f32,
    pub(crate) right: f32,
    pub(crate) top: f32,
    pub(crate) bottom: f32,
    pub(crate) x: Span,
    pub(crate) y: Span,
    y_ticks: Ticks,
}

impl Frame {
    /// A frame of `height` below `top`; the labels of the vertical axis limit its width.
    pub(crate) fn new(top: f32, height: f32, x: Span, y_axis: &Axis, y: Span) -> Self {
        let y_ticks = y_axis.ticks(y, f64::from(height) / TICK_HEIGHT);
        let labels = y_ticks.marks.iter().filter_map(|(_, label)| label.as_deref());
        Self { left: left_of(labels), right: WIDTH - RIGHT, top, bottom: top + height, x, y, y_ticks }
    }

    pub(crate) fn x(&self, value: f64) -> f32 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    pub(crate) fn y(&self, value: f64) -> f32 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }

    pub(crate) fn at(&self, (x, y): (f64, f64)) -> At {
        (self.x(x), self.y(y))
    }

    /// Whether `value` is within the vertical axis.
    pub(crate) fn shows(&self, value: f64) -> bool {
        self.y.covers(value)
    }

    /// Draws the vertical axis: grid lines, tick labels, and the axis label above.
    pub(crate) fn draw_y_axis(&self, shapes: &mut Vec<Shape>) {
        for (value, text) in &self.y_ticks.marks {
            let y = self.y(*value);
            shapes.push(line(vec![(self.left, y), (self.right, y)], Ink::Grid));
            if let Some(text) = text {
                shapes.push(label((self.left - GAP, y + 4.0), text.clone(), Anchor::End, Ink::Muted));
            }
        }
        let caption = text::fit(&self.y_ticks.caption, TEXT_SIZE, self.right - self.left);
        shapes.push(label((self.left, self.top - CAPTION_ABOVE), caption, Anchor::Start, Ink::Muted));
    }

    /// Draws the lower edge.
    pub(crate) fn draw_base_line(&self, shapes: &mut Vec<Shape>) {
        shapes.push(line(vec![(self.left, self.bottom), (self.right, self.bottom)], Ink::Axis));
    }

    /// Draws the horizontal axis: ticks, as many labels as fit, and the axis label below at the end.
    pub(crate) fn draw_x_axis(&self, axis: &Axis, wanted: f64, shapes: &mut Vec<Shape>) {
        let ticks = axis.ticks(self.x, wanted);
        let mut taken = f32::MIN;
        for (value, text) in &ticks.marks {
            let x = self.x(*value);
            let long = if text.is_some() { 4.0 } else { 2.0 };
            shapes.push(line(vec![(x, self.bottom), (x, self.bottom + long)], Ink::Axis));
            let Some(text) = text else { continue };
            let half = text::width(text, TEXT_SIZE) * text::FONT_SLACK / 2.0;
            if x - half >= taken && x + half <= WIDTH {
                shapes.push(label((x, self.bottom + AXIS_ROW), text.clone(), Anchor::Middle, Ink::Muted));
                taken = x + half + BETWEEN_LABELS;
            }
        }
        let caption = text::fit(&ticks.caption, TEXT_SIZE, self.right - self.left);
        shapes.push(label((self.right, self.bottom + AXIS_CAPTION), caption, Anchor::End, Ink::Muted));
    }
}

/// The left edge of a plot area with `labels` on its left.
pub(crate) fn left_of<'a>(labels: impl Iterator<Item = &'a str>) -> f32 {
    let widest = labels.map(|label| text::width(label, TEXT_SIZE) * text::FONT_SLACK).fold(0.0, f32::max);
    LEFT.max(widest + GAP + 4.0)
}
