//! The head of a chart: its title and its legend.

use super::{Anchor, At, Ink, LEFT, Mark, RIGHT, Shape, TEXT_SIZE, WIDTH, label, text};

const TITLE_SIZE: f32 = 15.0;
const TITLE_ROW: f32 = 20.0;
const TITLE_BASELINE: f32 = 22.0;
const ROW: f32 = 19.0;

/// A legend entry.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    name: String,
    /// The sample, around the origin, between [`Entry::LEFT_END`] and [`Entry::RIGHT_END`].
    swatch: Vec<Shape>,
}

impl Entry {
    pub(crate) const LEFT_END: f32 = -9.0;
    pub(crate) const RIGHT_END: f32 = 9.0;

    pub(crate) fn new(name: impl Into<String>, swatch: Vec<Shape>) -> Self {
        Self { name: name.into(), swatch }
    }

    /// A filled box.
    pub(crate) fn block(name: impl Into<String>, ink: Ink) -> Self {
        let size = (Self::RIGHT_END - Self::LEFT_END, 12.0);
        Self::new(name, vec![Shape::Rect { at: (Self::LEFT_END, -6.0), size, ink }])
    }

    /// A line sample.
    pub(crate) fn line(name: impl Into<String>, ink: Ink, width: f32, dashed: bool) -> Self {
        let points = vec![(Self::LEFT_END, 0.0), (Self::RIGHT_END, 0.0)];
        Self::new(name, vec![Shape::Line { points, ink, width, dashed }])
    }

    /// The same, with a mark.
    pub(crate) fn marked(mut self, mark: Mark, ink: Ink, hollow: bool) -> Self {
        self.swatch.push(Shape::Marks { points: vec![(0.0, 0.0)], mark, ink, hollow });
        self
    }
}

/// Draws `title` and below it `entries`; returns the baseline of the last row.
pub(crate) fn head(title: &str, entries: &[Entry], shapes: &mut Vec<Shape>) -> f32 {
    let room = WIDTH - LEFT - RIGHT;
    let mut y = TITLE_BASELINE - TITLE_ROW;
    for line in text::wrap(title, TITLE_SIZE, room, 2) {
        y += TITLE_ROW;
        let at = (LEFT, y);
        shapes.push(Shape::Text {
            at,
            text: line,
            size: TITLE_SIZE,
            anchor: Anchor::Start,
            ink: Ink::Text,
            bold: true,
            turned: false,
        });
    }
    if entries.is_empty() {
        return y;
    }
    y += ROW + 2.0;
    let mut x = LEFT;
    for entry in entries {
        let swatch = Entry::RIGHT_END - Entry::LEFT_END;
        let name = text::fit(&entry.name, TEXT_SIZE, room - swatch - 6.0);
        let width = swatch + 6.0 + text::width(&name, TEXT_SIZE) * text::FONT_SLACK + 10.0;
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, y) = (LEFT, y + ROW);
        }
        let middle: At = (x - Entry::LEFT_END, y - 4.0);
        shapes.extend(entry.swatch.iter().map(|shape| shape.clone().moved(middle)));
        shapes.push(label((x + swatch + 6.0, y), name, Anchor::Start, Ink::Text));
        x += width;
    }
    y
}
