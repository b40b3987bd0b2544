//! A value over two parameters.

use super::heat::{Beyond, bar_room, draw_bar, draw_cell, step};
use super::{Words, crossed, finish, leaves_as_svg_and_png};
use crate::draw::{
    AXIS_CAPTION, AXIS_ROW, Anchor, Axis, Entry, Figure, Ink, Reach, Scale, Shape, Span, TEXT_SIZE, WIDTH, head, label,
    left_of, line, plain, text,
};

/// A heat map: one cell per pair of parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Surface {
    /// The title.
    pub title: String,
    /// The horizontal parameter. Cells have equal widths for all values: [`Axis::scale`] and [`Axis::range`] are
    /// ignored.
    pub x: Axis,
    /// The values of x, in base units.
    pub x_values: Vec<f64>,
    /// The vertical parameter, growing upwards.
    pub y: Axis,
    /// The values of y, in base units.
    pub y_values: Vec<f64>,
    /// The measured quantity. Values beyond a given range take the colours of its ends, and the figure notes them.
    pub value: Axis,
    /// One row per [`y_values`](Self::y_values), one cell per [`x_values`](Self::x_values), in base units. Cells that
    /// are `None`, not a number or absent are crossed out.
    pub cells: Vec<Vec<Option<f64>>>,
    /// Whether values are written into cells, if all fit.
    pub show_values: bool,
    /// The name of crossed-out cells.
    pub words: Words,
}

const HEIGHT: f32 = 360.0;
const TALLEST_CELL: f32 = 64.0;

leaves_as_svg_and_png!(Surface);

/// The positions of cells.
struct Grid {
    left: f32,
    top: f32,
    /// The width and height of a cell.
    cell: (f32, f32),
    columns: usize,
    rows: usize,
}

impl Grid {
    fn right(&self) -> f32 {
        self.left + self.cell.0 * self.columns as f32
    }

    fn bottom(&self) -> f32 {
        self.top + self.cell.1 * self.rows as f32
    }

    fn corner(&self, column: usize, row: usize) -> (f32, f32) {
        (self.left + self.cell.0 * column as f32, self.bottom() - self.cell.1 * (row + 1) as f32)
    }
}

impl Surface {
    fn draw(&self) -> Figure {
        let (columns, rows) = (self.x_values.len(), self.y_values.len());
        let values = || (0..rows).flat_map(|row| (0..columns).filter_map(move |column| self.cell(column, row)));
        let span = self.value.span(values(), Reach::FromData);
        let missing = values().count() < columns * rows;
        let size = (Entry::RIGHT_END - Entry::LEFT_END, 12.0);
        let entry = Entry::new(self.words.missing.as_str(), crossed((Entry::LEFT_END, -6.0), size));
        let mut shapes = Vec::new();
        let top = head(&self.title, if missing { std::slice::from_ref(&entry) } else { &[] }, &mut shapes) + 32.0;
        let (y_labels, y_caption) = labels(&self.y, &self.y_values);
        let left = left_of(y_labels.iter().map(String::as_str));
        let grid = whole_cells(left, top, WIDTH - bar_room(&self.value, span, HEIGHT), columns, rows);
        for row in 0..rows {
            for column in 0..columns {
                draw_cell(grid.corner(column, row), grid.cell, self.cell(column, row), span, &mut shapes);
            }
        }
        if self.show_values {
            self.write_values(&grid, span, &mut shapes);
        }
        let (right, bottom) = (grid.right(), grid.bottom());
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        shapes.push(line(corners, Ink::Axis));
        draw_labels(&grid, &y_labels, &labels(&self.x, &self.x_values), &mut shapes);
        let caption_room = (WIDTH - left) / 2.0 - 24.0;
        let caption = text::fit(&y_caption, TEXT_SIZE, caption_room);
        shapes.push(label((left, top - 8.0), caption, Anchor::Start, Ink::Muted));
        let beyond = Beyond::of(values(), span);
        draw_bar(&self.value, span, beyond, (top, bottom), right, caption_room, &mut shapes);
        finish(
            &self.title,
            self.description().into_iter(),
            bottom,
            beyond.note(&self.value, span).into_iter().collect(),
            shapes,
        )
    }

    /// The axes, and the least and greatest value with their places.
    fn description(&self) -> Vec<String> {
        let mut sentences = vec![format!("{} over {} and {}", self.value.label, self.x.label, self.y.label)];
        let cells = (0..self.y_values.len()).flat_map(|row| (0..self.x_values.len()).map(move |column| (column, row)));
        let has_place =
            |&(column, row): &(usize, usize)| self.x_values[column].is_finite() && self.y_values[row].is_finite();
        let values = cells.filter(has_place).filter_map(|(column, row)| Some((self.cell(column, row)?, column, row)));
        let place = |name: &str, (value, column, row): (f64, usize, usize)| {
            let (x, y) = (self.x.unit.value(self.x_values[column]), self.y.unit.value(self.y_values[row]));
            format!("{name} {} at {x} and {y}", self.value.unit.value(value))
        };
        let by_value = |a: &(f64, usize, usize), b: &(f64, usize, usize)| a.0.total_cmp(&b.0);
        sentences.extend(values.clone().min_by(by_value).map(|least| place("least", least)));
        sentences.extend(values.max_by(by_value).map(|most| place("greatest", most)));
        sentences
    }

    /// The value of a cell, if it has a colour.
    fn cell(&self, column: usize, row: usize) -> Option<f64> {
        let value = self.cells.get(row)?.get(column).copied().flatten()?;
        self.value.can_show(value).then_some(value)
    }

    fn write_values(&self, grid: &Grid, span: Span, shapes: &mut Vec<Shape>) {
        if grid.cell.1 < TEXT_SIZE + 4.0 || grid.cell.0 < TEXT_SIZE {
            return;
        }
        let mut texts = Vec::new();
        for row in 0..grid.rows {
            for column in 0..grid.columns {
                let Some(value) = self.cell(column, row) else { continue };
                let text = match self.value.scale {
                    Scale::Linear => plain(value / self.value.unit.scaled(span.from.abs().max(span.to.abs())).0),
                    Scale::Logarithmic => self.value.unit.value(value),
                };
                if !text::fits(&text, TEXT_SIZE, grid.cell.0 - 4.0) {
                    return;
                }
                let corner = grid.corner(column, row);
                let at = (corner.0 + grid.cell.0 / 2.0, corner.1 + grid.cell.1 / 2.0 + 4.0);
                texts.push(label(at, text, Anchor::Middle, Ink::OnRamp(step(span, value))));
            }
        }
        shapes.extend(texts);
    }
}

/// Aligns cells to whole pixels where they are large enough, to avoid gaps between them.
fn whole_cells(left: f32, top: f32, right: f32, columns: usize, rows: usize) -> Grid {
    let whole = |side: f32| if side >= 4.0 { side.floor() } else { side };
    let width = whole((right - left) / columns.max(1) as f32);
    let height = whole((HEIGHT / rows.max(1) as f32).min(TALLEST_CELL));
    Grid { left: left.round(), top, cell: (width, height), columns: columns.max(1), rows: rows.max(1) }
}

/// The labels of an axis's values, and its caption.
fn labels(axis: &Axis, values: &[f64]) -> (Vec<String>, String) {
    let finite = values.iter().filter(|value| value.is_finite());
    let (divisor, unit) = axis.unit.scaled(finite.fold(0.0, |most: f64, value| most.max(value.abs())));
    let label = |value: &f64| if value.is_finite() { plain(value / divisor) } else { "?".to_owned() };
    (values.iter().map(label).collect(), axis.caption(unit))
}

fn draw_labels(grid: &Grid, y_labels: &[String], x: &(Vec<String>, String), shapes: &mut Vec<Shape>) {
    let widest = x.0.iter().map(|label| text::width(label, TEXT_SIZE) * text::FONT_SLACK).fold(1.0, f32::max);
    let every = ((widest + 8.0) / grid.cell.0).ceil().max(1.0) as usize;
    for (column, text) in x.0.iter().enumerate().step_by(every) {
        let middle = grid.left + grid.cell.0 * (column as f32 + 0.5);
        shapes.push(line(vec![(middle, grid.bottom()), (middle, grid.bottom() + 4.0)], Ink::Axis));
        shapes.push(label((middle, grid.bottom() + AXIS_ROW), text.clone(), Anchor::Middle, Ink::Muted));
    }
    let every = ((TEXT_SIZE + 4.0) / grid.cell.1).ceil().max(1.0) as usize;
    for (row, text) in y_labels.iter().enumerate().step_by(every) {
        let middle = grid.corner(0, row).1 + grid.cell.1 / 2.0;
        shapes.push(line(vec![(grid.left - 4.0, middle), (grid.left, middle)], Ink::Axis));
        shapes.push(label((grid.left - 7.0, middle + 4.0), text.clone(), Anchor::End, Ink::Muted));
    }
    let caption = text::fit(&x.1, TEXT_SIZE, grid.right() - grid.left);
    shapes.push(label((grid.right(), grid.bottom() + AXIS_CAPTION), caption, Anchor::End, Ink::Muted));
}
