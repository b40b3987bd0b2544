//! PNG output, at twice the logical size to stay sharp on high-resolution screens.

use tiny_skia::{Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

use super::{Anchor, At, Figure, HOLLOW_SCALE, Ink, Shape, outline, text};

const SCALE: f32 = 2.0;
/// The font is light; outlines of this width make it regular or bold.
const REGULAR: f32 = 0.3;
const BOLD: f32 = 0.75;

/// Errors of drawing a PNG.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PngError {
    /// The size is zero or exceeds memory.
    #[error("{width} by {height} pixels are no picture")]
    Size {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
    /// The encoder refused.
    #[error("{0}")]
    Encode(String),
}

/// Renders a picture on white paper.
pub(crate) fn to_png(figure: &Figure) -> Result<Vec<u8>, PngError> {
    let (width, height) = ((figure.width * SCALE) as u32, (figure.height * SCALE) as u32);
    let mut canvas = Canvas { pixels: Pixmap::new(width, height).ok_or(PngError::Size { width, height })? };
    canvas.pixels.fill(color(Ink::Paper, 1.0));
    for shape in &figure.shapes {
        canvas.draw(shape);
    }
    canvas.pixels.encode_png().map_err(|error| PngError::Encode(error.to_string()))
}

struct Canvas {
    pixels: Pixmap,
}

impl Canvas {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Rect { at, size, ink } => {
                if let Some(rect) = Rect::from_xywh(at.0, at.1, size.0, size.1) {
                    self.pixels.fill_rect(rect, &paint(*ink, 1.0), scale(), None);
                }
            }
            Shape::Line { points, ink, width, dashed } => {
                if let Some(path) = polygon(points, false) {
                    let dash = dashed.then(|| StrokeDash::new(vec![5.0, 3.0], 0.0)).flatten();
                    self.stroke(&path, *ink, *width, dash);
                }
            }
            Shape::Area { points, ink, opacity } => {
                if let Some(path) = polygon(points, true) {
                    self.pixels.fill_path(&path, &paint(*ink, *opacity), FillRule::Winding, scale(), None);
                }
            }
            Shape::Marks { points, mark, ink, hollow } => {
                let (parts, filled) = outline(*mark);
                let scale = if *hollow { HOLLOW_SCALE } else { 1.0 };
                for &(x, y) in points {
                    for part in parts {
                        let placed: Vec<At> = part.iter().map(|&(dx, dy)| (x + scale * dx, y + scale * dy)).collect();
                        match polygon(&placed, filled) {
                            Some(path) if filled && *hollow => {
                                self.fill(&path, Ink::Paper);
                                self.stroke(&path, *ink, 1.5, None);
                            }
                            Some(path) if filled => self.fill(&path, *ink),
                            Some(path) => self.stroke(&path, *ink, 1.5, None),
                            None => {}
                        }
                    }
                }
            }
            Shape::Text { at, text, size, anchor, ink, bold, turned } => {
                let width = text::width(text, *size);
                let left = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => -width / 2.0,
                    Anchor::End => -width,
                };
                let placed = Transform::from_translate(at.0, at.1);
                let placed = if *turned { placed.pre_rotate(-90.0) } else { placed };
                if let Some(path) = letters(text, left, *size).and_then(|path| path.transform(placed)) {
                    self.fill(&path, *ink);
                    self.stroke(&path, *ink, if *bold { BOLD } else { REGULAR }, None);
                }
            }
        }
    }

    fn fill(&mut self, path: &Path, ink: Ink) {
        self.pixels.fill_path(path, &paint(ink, 1.0), FillRule::Winding, scale(), None);
    }

    fn stroke(&mut self, path: &Path, ink: Ink, width: f32, dash: Option<StrokeDash>) {
        let stroke = Stroke { width, line_join: LineJoin::Round, dash, ..Stroke::default() };
        self.pixels.stroke_path(path, &paint(ink, 1.0), &stroke, scale(), None);
    }
}

/// The outline of `text` on a baseline, starting at `left`.
fn letters(text: &str, left: f32, size: f32) -> Option<Path> {
    let mut path = PathBuilder::new();
    for stroke in text::outline(text, (left, 0.0), size) {
        match stroke {
            text::Stroke::Move((x, y)) => path.move_to(x, y),
            text::Stroke::Line((x, y)) => path.line_to(x, y),
            text::Stroke::Quad((x1, y1), (x, y)) => path.quad_to(x1, y1, x, y),
            text::Stroke::Cubic((x1, y1), (x2, y2), (x, y)) => path.cubic_to(x1, y1, x2, y2, x, y),
            text::Stroke::Close => path.close(),
        }
    }
    path.finish()
}

fn polygon(points: &[At], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    let (first, rest) = points.split_first()?;
    path.move_to(first.0, first.1);
    for &(x, y) in rest {
        path.line_to(x, y);
    }
    if closed {
        path.close();
    }
    path.finish()
}

fn scale() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

fn paint(ink: Ink, opacity: f32) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(color(ink, opacity));
    paint
}

fn color(ink: Ink, opacity: f32) -> Color {
    let [_, red, green, blue] = ink.light().to_be_bytes();
    let mut color = Color::from_rgba8(red, green, blue, u8::MAX);
    color.set_alpha(opacity);
    color
}
