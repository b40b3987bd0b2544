//! Outcomes over one input each: one strip per question, one mark per sample.

use super::{finish, leaves_as_svg_and_png};
use crate::draw::{Anchor, Entry, Figure, Ink, LEFT, Mark, RIGHT, Shape, TEXT_SIZE, WIDTH, head, label, line, text};

/// Strips below each other; the position of a sample on its strip is its input.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Strips {
    /// The title.
    pub title: String,
    /// The meaning of a filled mark and of a hollow one.
    pub outcomes: (String, String),
    /// The strips, from top to bottom.
    pub strips: Vec<Strip>,
}

/// A question and the input over which its outcome is shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Strip {
    /// The question.
    pub name: String,
    /// The input, with its least and greatest value in words.
    pub input: String,
    /// The least value, in words.
    pub from: String,
    /// The greatest value, in words.
    pub to: String,
    /// Each sample's position, from 0 for the least input to 1 for the greatest, and its outcome.
    pub samples: Vec<(f64, bool)>,
    /// The threshold between the outcomes, if there is one.
    pub border: Option<f64>,
}

const ROW: f32 = 50.0;
/// From the name of a strip to its line.
const BELOW_NAME: f32 = 19.0;
/// The offset of filled marks above the line and of hollow ones below it, so that none hides another.
const ASIDE: f32 = 5.0;
/// The room for the words at both ends of a line.
const ENDS: f32 = 130.0;
const GAP: f32 = 10.0;

leaves_as_svg_and_png!(Strips);

impl Strips {
    fn draw(&self) -> Figure {
        let mut shapes = Vec::new();
        let entry = |name: &str, ink, hollow| {
            Entry::new(name, vec![Shape::Marks { points: vec![(0.0, 0.0)], mark: Mark::Circle, ink, hollow }])
        };
        let entries = [entry(&self.outcomes.0, Ink::C, false), entry(&self.outcomes.1, Ink::B, true)];
        let mut y = head(&self.title, &entries, &mut shapes) + 30.0;
        for strip in &self.strips {
            draw_strip(strip, y, &mut shapes);
            y += ROW;
        }
        finish(&self.title, self.strips.iter().map(|strip| self.description(strip)), y - ROW, Vec::new(), shapes)
    }
}

impl Strips {
    /// How many samples of a strip have the first outcome.
    fn description(&self, strip: &Strip) -> String {
        let samples = strip.samples.iter().filter(|(place, _)| place.is_finite());
        let (all, first) = (samples.clone().count(), samples.filter(|(_, outcome)| *outcome).count());
        let Strip { name, input, from, to, .. } = strip;
        format!("{name}: {first} of {all} {}, over {input} from {from} to {to}", self.outcomes.0)
    }
}

fn draw_strip(strip: &Strip, y: f32, shapes: &mut Vec<Shape>) {
    let (left, right) = (LEFT + ENDS, WIDTH - RIGHT - ENDS);
    let name = text::fit(&strip.name, TEXT_SIZE, right - left);
    let input = text::fit(&strip.input, TEXT_SIZE, ENDS + right - left - text::width(&name, TEXT_SIZE) - 3.0 * GAP);
    shapes.push(label((LEFT, y), name, Anchor::Start, Ink::Text));
    shapes.push(label((WIDTH - RIGHT, y), input, Anchor::End, Ink::Muted));
    let axis = y + BELOW_NAME;
    shapes.push(line(vec![(left, axis), (right, axis)], Ink::Axis));
    let end = |words: &str| text::fit(words, TEXT_SIZE, ENDS - GAP);
    shapes.push(label((left - GAP, axis + 4.0), end(&strip.from), Anchor::End, Ink::Muted));
    shapes.push(label((right + GAP, axis + 4.0), end(&strip.to), Anchor::Start, Ink::Muted));
    let at = |place: f64| left + place.clamp(0.0, 1.0) as f32 * (right - left);
    if let Some(border) = strip.border {
        let points = vec![(at(border), axis - 10.0), (at(border), axis + 10.0)];
        shapes.push(Shape::Line { points, ink: Ink::Text, width: 1.5, dashed: true });
    }
    for (outcome, ink, aside) in [(true, Ink::C, -ASIDE), (false, Ink::B, ASIDE)] {
        let samples = strip.samples.iter().filter(|(place, is)| *is == outcome && place.is_finite());
        let points = samples.map(|(place, _)| (at(*place), axis + aside)).collect();
        shapes.push(Shape::Marks { points, mark: Mark::Circle, ink, hollow: !outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_marked_on_its_side() {
        let strip = Strip {
            name: "claim".to_owned(),
            from: "1 kB".to_owned(),
            to: "9 kB".to_owned(),
            samples: vec![(0.0, true), (0.5, false), (1.0, false), (f64::NAN, true)],
            border: Some(0.25),
            ..Strip::default()
        };
        let figure = Strips { strips: vec![strip.clone(), strip], ..Strips::default() }.draw();
        let marks = |wanted: bool| {
            let count = figure.shapes.iter().map(|shape| match shape {
                Shape::Marks { points, hollow, .. } if *hollow == wanted => points.len(),
                _ => 0,
            });
            count.sum::<usize>()
        };
        // One of each is in the legend.
        assert_eq!((marks(false), marks(true)), (1 + 2, 1 + 4), "what is not a number is left out");
        assert!(Strips::default().to_svg_file().contains("<svg"), "no strips are a figure too");
    }
}
