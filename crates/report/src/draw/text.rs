//! Letters as outlines, for measuring and for drawing where no font can be expected.

use ttf_parser::{Face, OutlineBuilder};

use super::At;

/// A sans-serif font that covers Latin, Greek and Cyrillic.
fn face() -> Option<Face<'static>> {
    Face::parse(epaint_default_fonts::UBUNTU_LIGHT, 0).ok()
}

/// How wide `text` is at `size`, in the unit of `size`. Fonts of readers differ: leave some room.
pub(crate) fn width(text: &str, size: f32) -> f32 {
    let Some(face) = face() else { return text.chars().count() as f32 * size * 0.6 };
    let units: u32 = text.chars().map(|letter| u32::from(advance(&face, letter))).sum();
    units as f32 * size / f32::from(face.units_per_em())
}

fn advance(face: &Face<'_>, letter: char) -> u16 {
    face.glyph_index(letter).and_then(|glyph| face.glyph_hor_advance(glyph)).unwrap_or(face.units_per_em() / 2)
}

/// A piece of an outline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Stroke {
    Move(At),
    Line(At),
    Quad(At, At),
    Cubic(At, At, At),
    Close,
}

/// The outline of `text`, from `at` on the baseline to the right.
pub(crate) fn outline(text: &str, at: At, size: f32) -> Vec<Stroke> {
    let Some(face) = face() else { return Vec::new() };
    let scale = size / f32::from(face.units_per_em());
    let mut pen = Pen { at, scale, strokes: Vec::new() };
    for letter in text.chars() {
        if let Some(glyph) = face.glyph_index(letter) {
            // A space has no outline.
            let _ = face.outline_glyph(glyph, &mut pen);
        }
        pen.at.0 += f32::from(advance(&face, letter)) * scale;
    }
    pen.strokes
}

struct Pen {
    at: At,
    scale: f32,
    strokes: Vec<Stroke>,
}

impl Pen {
    /// Fonts count upwards, pictures downwards.
    fn place(&self, x: f32, y: f32) -> At {
        (self.at.0 + x * self.scale, self.at.1 - y * self.scale)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.strokes.push(Stroke::Move(self.place(x, y)));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.strokes.push(Stroke::Line(self.place(x, y)));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.strokes.push(Stroke::Quad(self.place(x1, y1), self.place(x, y)));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.strokes.push(Stroke::Cubic(self.place(x1, y1), self.place(x2, y2), self.place(x, y)));
    }

    fn close(&mut self) {
        self.strokes.push(Stroke::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_the_letters_that_plots_use() {
        let face = face().unwrap();
        for letter in ('!'..='~').chain("µ×–éñßЖλ".chars()) {
            assert!(face.glyph_index(letter).is_some(), "{letter}");
        }
        assert!(width("mm", 10.0) > width("ii", 10.0));
        assert_eq!(width("abc", 20.0), 2.0 * width("abc", 10.0));
    }
}
