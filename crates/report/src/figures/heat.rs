//! Heat maps: a grid of coloured cells, and a colour bar.

use super::crossed;
use crate::draw::{Anchor, At, Axis, Ink, RIGHT, Shape, Span, TEXT_SIZE, WIDTH, label, line, text};

const BAR_WIDTH: f32 = 14.0;
const BAR_STEPS: usize = 64;
/// The size of the triangles at the ends of a bar with values beyond its range.
const BEYOND: f32 = 9.0;

/// The number of values beyond a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Beyond {
    pub(super) below: usize,
    pub(super) above: usize,
}

impl Beyond {
    pub(super) fn of(values: impl Iterator<Item = f64>, span: Span) -> Self {
        values.fold(Self::default(), |beyond, value| Self {
            below: beyond.below + usize::from(value < span.from),
            above: beyond.above + usize::from(value > span.to),
        })
    }

    /// The note in the figure.
    pub(super) fn note(self, axis: &Axis, span: Span) -> Option<String> {
        let part = |count: usize, side: &str, end: f64| {
            (count > 0).then(|| format!("{} {side} {}", crate::quantity::count(count as u64), axis.unit.value(end)))
        };
        let parts = [part(self.below, "below", span.from), part(self.above, "above", span.to)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Values beyond the colours have those of the ends: {}.", parts.join(", ")))
    }
}

/// The colour step of `value`, clamped to the range.
pub(super) fn step(span: Span, value: f64) -> u8 {
    (span.share(value).clamp(0.0, 1.0) * 255.0).round() as u8
}

/// Draws a cell.
pub(super) fn draw_cell(at: At, size: At, value: Option<f64>, span: Span, shapes: &mut Vec<Shape>) {
    match value {
        Some(value) => shapes.push(Shape::Rect { at, size, ink: Ink::Ramp(step(span, value)) }),
        None => shapes.extend(crossed(at, size)),
    }
}

/// The width of a colour bar for `span` on the right.
pub(super) fn bar_room(axis: &Axis, span: Span, height: f32) -> f32 {
    let ticks = axis.ticks(span, f64::from(height) / 44.0);
    let labels = ticks.marks.iter().filter_map(|(_, label)| label.as_deref());
    let widest = labels.map(|label| text::width(label, TEXT_SIZE) * text::FONT_SLACK).fold(0.0, f32::max);
    BAR_WIDTH + 7.0 + widest + 24.0
}

/// Draws the colour bar of the plot area that ends at `right` and spans `top` to `bottom`; its caption, above, has `caption_room`.
pub(super) fn draw_bar(
    axis: &Axis,
    span: Span,
    beyond: Beyond,
    (top, bottom): (f32, f32),
    right: f32,
    caption_room: f32,
    shapes: &mut Vec<Shape>,
) {
    let left = right + 18.0;
    let end = left + BAR_WIDTH;
    let (high, low) = (top + BEYOND, bottom - BEYOND);
    let height = (low - high) / BAR_STEPS as f32;
    for index in 0..BAR_STEPS {
        let share = (index as f32 + 0.5) / BAR_STEPS as f32;
        let y = low - height * (index + 1) as f32;
        // Steps overlap to leave no gaps.
        let size = (BAR_WIDTH, height + if index > 0 { 0.6 } else { 0.0 });
        shapes.push(Shape::Rect { at: (left, y), size, ink: Ink::Ramp((share * 255.0) as u8) });
    }
    let mut outline = vec![(left, low)];
    if beyond.below > 0 {
        let points = vec![(left, low), (end, low), (left + BAR_WIDTH / 2.0, bottom)];
        shapes.push(Shape::Area { points, ink: Ink::Ramp(0), opacity: 1.0 });
        outline.push((left + BAR_WIDTH / 2.0, bottom));
    }
    outline.extend([(end, low), (end, high)]);
    if beyond.above > 0 {
        let points = vec![(left, high), (end, high), (left + BAR_WIDTH / 2.0, top)];
        shapes.push(Shape::Area { points, ink: Ink::Ramp(255), opacity: 1.0 });
        outline.push((left + BAR_WIDTH / 2.0, top));
    }
    outline.extend([(left, high), (left, low)]);
    shapes.push(line(outline, Ink::Axis));
    let ticks = axis.ticks(span, f64::from(low - high) / 44.0);
    for (value, text) in &ticks.marks {
        let y = low - span.share(*value).clamp(0.0, 1.0) * (low - high);
        let Some(text) = text else { continue };
        shapes.push(line(vec![(end, y), (end + 4.0, y)], Ink::Axis));
        shapes.push(label((end + 7.0, y + 4.0), text.clone(), Anchor::Start, Ink::Muted));
    }
    let caption = text::fit(&ticks.caption, TEXT_SIZE, caption_room);
    let (x, anchor) = match text::fits(&caption, TEXT_SIZE, WIDTH - left) {
        true => (left, Anchor::Start),
        false => (WIDTH - RIGHT, Anchor::End),
    };
    shapes.push(label((x, top - 8.0), caption, anchor, Ink::Muted));
}
