//! Glyph outlines, for measuring text and for drawing it without system fonts.

use ttf_parser::{Face, OutlineBuilder};

use super::At;

/// A sans-serif font that covers Latin, Greek and Cyrillic.
fn face() -> Option<Face<'static>> {
    Face::parse(epaint_default_fonts::UBUNTU_LIGHT, 0).ok()
}

/// The width of `text` at `size`, in the unit of `size`. Readers' fonts differ, so callers leave some room.
pub(crate) fn width(text: &str, size: f32) -> f32 {
    let Some(face) = face() else { return text.chars().count() as f32 * size * 0.6 };
    let units: u32 = text.chars().map(|letter| u32::from(advance(&face, letter))).sum();
    units as f32 * size / f32::from(face.units_per_em())
}

/// How much wider than the measuring font readers' fonts may be.
pub(crate) const FONT_SLACK: f32 = 1.2;

/// Whether `text` fits into `room` in readers' fonts.
pub(crate) fn fits(text: &str, size: f32, room: f32) -> bool {
    width(text, size) * FONT_SLACK <= room
}

/// `text` on one line, shortened to fit into `room`.
pub(crate) fn fit(text: &str, size: f32, room: f32) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Bounds the measuring of very long texts: every letter has some width.
    let mut letters: Vec<char> = text.chars().take((room.max(0.0) as usize).max(1)).collect();
    if letters.len() == text.chars().count() && fits(&text, size, room) {
        return text;
    }
    while letters.pop().is_some() {
        let shortened: String = letters.iter().collect::<String>().trim_end().to_owned() + "…";
        if fits(&shortened, size, room) {
            return shortened;
        }
    }
    String::new()
}

/// `text` on at most `most` lines that fit into `room`, broken at spaces; the last line may be shortened.
pub(crate) fn wrap(text: &str, size: f32, room: f32, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let used = lines.len();
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if used == most || fits(&longer, size, room) {
                *line = longer;
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines.iter().map(|line| fit(line, size, room)).filter(|line| !line.is_empty()).collect()
}

fn advance(face: &Face<'_>, letter: char) -> u16 {
    face.glyph_index(letter).and_then(|glyph| face.glyph_hor_advance(glyph)).unwrap_or(face.units_per_em() / 2)
}

/// An outline segment.
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
    /// Converts coordinates: fonts count upwards, pictures downwards.
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
        for letter in ('!'..='~').chain("µ×–…≤éñßЖλ".chars()) {
            assert!(face.glyph_index(letter).is_some(), "{letter}");
        }
        assert!(width("mm", 10.0) > width("ii", 10.0));
        assert_eq!(width("abc", 20.0), 2.0 * width("abc", 10.0));
    }

    #[test]
    fn texts_are_shortened_and_wrapped() {
        assert_eq!(fit("short", 12.0, 100.0), "short");
        let cut = fit("a very long name of a series", 12.0, 80.0);
        assert!(cut.ends_with('…') && cut.starts_with("a very") && fits(&cut, 12.0, 80.0), "{cut}");
        assert_eq!(fit("anything", 12.0, 0.0), "");
        assert_eq!(wrap("one two three", 12.0, 40.0, 9), ["one", "two", "three"]);
        let lines = wrap("one two three four", 12.0, 40.0, 2);
        assert!(lines.len() == 2 && lines[1].ends_with('…'), "{lines:?}");
        assert!(wrap(" \n ", 12.0, 40.0, 2).is_empty());
    }
}
