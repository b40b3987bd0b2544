//! Grouped bars: a few cases by a few variants.

use super::{Words, error_bar, error_bar_entry, finish, leaves_as_svg_and_png, left_out};
use crate::draw::{
    AXIS_CAPTION, AXIS_ROW, Anchor, Axis, Entry, Figure, Frame, Ink, Mark, Reach, Scale, Shape, Span, TEXT_SIZE, head,
    label, line, plain, text,
};

/// Groups of bars, one bar for each series.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The measured quantity. A linear axis includes zero, where bars begin.
    pub y: Axis,
    /// The label of the groups; may be empty.
    pub groups_label: String,
    /// The name of each group.
    pub groups: Vec<String>,
    /// The series, in the order of the legend.
    pub series: Vec<BarSeries>,
    /// Whether values are written above bars, if all fit.
    pub show_values: bool,
    /// The names of error bars, published values and missing bars.
    pub words: Words,
}

/// The bars of one variant.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// One bar per group; further groups have none and stay blank.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Bar {
    /// The value in the axis's base unit; `None` shows [`Words::missing`] instead.
    pub value: Option<f64>,
    /// Half the length of the error bar, in the same unit.
    pub half_width: Option<f64>,
    /// The published value for comparison, in the same unit.
    pub published: Option<Published>,
}

/// A published value, with its published precision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Published {
    /// An exact value.
    Value(f64),
    /// An interval.
    Between(f64, f64),
    /// A lower bound.
    Above(f64),
    /// An upper bound.
    Below(f64),
}

const HEIGHT: f32 = 320.0;
const WIDEST_BAR: f32 = 64.0;
/// The share of a group's width taken by bars; the rest separates groups.
const FILLED: f32 = 0.82;
const MOST_LABEL_LINES: usize = 3;
const LABEL_ROW: f32 = 15.0;

leaves_as_svg_and_png!(Bars);

/// The position of a bar.
#[derive(Clone, Copy)]
struct Place {
    left: f32,
    width: f32,
}

impl Place {
    fn middle(&self) -> f32 {
        self.left + self.width / 2.0
    }
}

impl Bars {
    fn draw(&self) -> Figure {
        let mut shapes = Vec::new();
        let top = head(&self.title, &self.entries(), &mut shapes) + 32.0;
        let y = self.span();
        let x = Span { from: 0.0, to: self.groups.len().max(1) as f64, scale: Scale::Linear };
        let frame = Frame::new(top, HEIGHT, x, &self.y, y);
        frame.draw_y_axis(&mut shapes);
        let zero =
            if self.y.scale == Scale::Linear { frame.y(0.0).clamp(frame.top, frame.bottom) } else { frame.bottom };
        let values = self.value_texts(&frame, y);
        let mut unseen = 0;
        for (series, group, bar) in self.bars() {
            let place = self.place(&frame, group, series);
            match bar.value {
                Some(value) if self.y.can_show(value) => {
                    draw_bar(value, series, place, zero, &frame, &mut shapes);
                    unseen += usize::from(!frame.shows(value));
                    if values {
                        self.draw_value(bar, value, place, &frame, &mut shapes);
                    }
                }
                Some(_) => unseen += 1,
                None => self.draw_missing(bar, place, zero, &frame, &mut shapes),
            }
            if let Some(published) = bar.published {
                draw_published(published, place, &frame, &mut shapes);
            }
            draw_error_bar(bar, place, &frame, &mut shapes);
        }
        shapes.push(line(vec![(frame.left, zero), (frame.right, zero)], Ink::Axis));
        let below = self.draw_groups(&frame, &mut shapes);
        let why = "not a number, or beyond the axis";
        finish(&self.title, self.description(), below, left_out(unseen, "value", why).into_iter().collect(), shapes)
    }

    /// The values of each group.
    fn description(&self) -> impl Iterator<Item = String> {
        let groups = self.groups.iter().enumerate().filter_map(|(group, name)| {
            let values = self.series.iter().filter_map(|series| {
                let value = match series.bars.get(group)?.value {
                    None => self.words.missing.clone(),
                    Some(value) if self.y.can_show(value) => self.y.unit.value(value),
                    // The note of values that are not shown counts it.
                    Some(_) => return None,
                };
                Some(format!("{} {value}", series.name))
            });
            let values: Vec<String> = values.collect();
            (!values.is_empty()).then(|| format!("{name}: {}", values.join(", ")))
        });
        std::iter::once(self.y.label.clone()).chain(groups)
    }

    /// The span of the axis; it leaves room for values beyond the ends of bars.
    fn span(&self) -> Span {
        let mut span = self.y.span(self.bars().flat_map(|(_, _, bar)| reached(bar, self.y.scale)), Reach::FromZero);
        if self.show_values && self.y.range.is_none() {
            const ROOM: f64 = 0.07;
            let (low, high) = (span.at(-ROOM), span.at(1.0 + ROOM));
            let upwards = self.y.scale == Scale::Logarithmic || span.to > 0.0;
            let downwards = self.y.scale == Scale::Linear && span.from < 0.0;
            span = Span {
                from: if downwards { low } else { span.from },
                to: if upwards { high } else { span.to },
                scale: span.scale,
            };
        }
        span
    }

    /// All bars with the index of their series and group.
    fn bars(&self) -> impl Iterator<Item = (usize, usize, &Bar)> {
        self.series.iter().enumerate().flat_map(|(number, series)| {
            series.bars.iter().take(self.groups.len()).enumerate().map(move |(group, bar)| (number, group, bar))
        })
    }

    fn entries(&self) -> Vec<Entry> {
        let series = self.series.iter().enumerate();
        let mut entries: Vec<Entry> =
            series.map(|(index, series)| Entry::block(series.name.as_str(), Ink::category(index))).collect();
        if self.bars().any(|(_, _, bar)| half_width(bar).is_some()) {
            entries.push(error_bar_entry(&self.words.interval));
        }
        if self.bars().any(|(_, _, bar)| bar.published.is_some()) {
            entries.push(Entry::new(self.words.published.as_str(), tick(Entry::LEFT_END, Entry::RIGHT_END, 0.0)));
        }
        entries
    }

    fn place(&self, frame: &Frame, group: usize, series: usize) -> Place {
        let room = (frame.right - frame.left) / self.groups.len().max(1) as f32;
        let slot = (room * FILLED / self.series.len().max(1) as f32).min(WIDEST_BAR);
        let first = frame.left + room * (group as f32 + 0.5) - slot * self.series.len() as f32 / 2.0;
        let gap = if slot >= 6.0 { 2.0 } else { 0.0 };
        Place { left: first + slot * series as f32 + gap / 2.0, width: slot - gap }
    }

    /// Whether there is room above every bar for its value.
    fn value_texts(&self, frame: &Frame, y: Span) -> bool {
        let room = self.place(frame, 0, 0).width + 2.0;
        let mut values = self.bars().filter_map(|(_, _, bar)| bar.value).filter(|value| y.covers(*value));
        self.show_values && values.all(|value| text::width(&self.value_text(value, y), TEXT_SIZE) * 1.1 <= room)
    }

    fn value_text(&self, value: f64, y: Span) -> String {
        match self.y.scale {
            Scale::Linear => plain(value / self.y.unit.scaled(y.from.abs().max(y.to.abs())).0),
            Scale::Logarithmic => self.y.unit.value(value),
        }
    }

    /// Writes a value beyond the end of its bar, the error bar, and the published value if that is near.
    fn draw_value(&self, bar: &Bar, value: f64, place: Place, frame: &Frame, shapes: &mut Vec<Shape>) {
        if !frame.shows(value) {
            return;
        }
        let half = half_width(bar).unwrap_or(0.0);
        let upwards = value >= 0.0;
        let end = frame.y(if upwards { value + half } else { value - half }).clamp(frame.top, frame.bottom);
        let mut baseline = if upwards { end - 5.0 } else { end + 14.0 };
        for tick in bar.published.into_iter().flat_map(ends).map(|value| frame.y(value)) {
            if tick > baseline - 13.0 && tick < baseline + 4.0 {
                baseline = if upwards { tick - 6.0 } else { tick + 15.0 };
            }
        }
        if baseline - TEXT_SIZE < frame.top || baseline > frame.bottom {
            return;
        }
        shapes.push(label((place.middle(), baseline), self.value_text(value, frame.y), Anchor::Middle, Ink::Text));
    }

    /// Writes the label of a missing bar, vertically if it does not fit otherwise.
    fn draw_missing(&self, bar: &Bar, place: Place, zero: f32, frame: &Frame, shapes: &mut Vec<Shape>) {
        let room = self.place(frame, 0, 0).width + 2.0;
        let turned = !text::fits(&self.words.missing, TEXT_SIZE, room);
        let (name, tall) = if turned {
            let name = text::fit(&self.words.missing, TEXT_SIZE, zero - frame.top - 8.0);
            let tall = text::width(&name, TEXT_SIZE) * text::FONT_SLACK;
            (name, tall)
        } else {
            (self.words.missing.clone(), 12.0)
        };
        // Omit labels that would overlap their neighbours.
        if room < 10.0 {
            return;
        }
        let mut start = zero - 6.0;
        let ticks = bar.published.into_iter().flat_map(ends).map(|value| frame.y(value));
        for tick in ticks {
            if tick < start + 4.0 && tick > start - tall - 4.0 && tick - 6.0 - tall > frame.top {
                start = tick - 6.0;
            }
        }
        let (at, anchor) = match turned {
            true => ((place.middle() + 4.0, start), Anchor::Start),
            false => ((place.middle(), start), Anchor::Middle),
        };
        let (size, ink) = (TEXT_SIZE, Ink::Muted);
        shapes.push(Shape::Text { at, text: name, size, anchor, ink, bold: false, turned });
    }

    /// Draws the groups' names; returns the equivalent end of a plot area with an axis, for positioning the content
    /// below.
    fn draw_groups(&self, frame: &Frame, shapes: &mut Vec<Shape>) -> f32 {
        let room = (frame.right - frame.left) / self.groups.len().max(1) as f32;
        // With many groups, only every nth is named.
        let every = (46.0 / room).ceil().max(1.0) as usize;
        let mut most = 0;
        for (group, name) in self.groups.iter().enumerate().step_by(every) {
            let x = frame.left + room * (group as f32 + 0.5);
            let lines = text::wrap(name, TEXT_SIZE, room * every as f32 - 6.0, MOST_LABEL_LINES);
            most = most.max(lines.len());
            for (row, text) in lines.into_iter().enumerate() {
                let at = (x, frame.bottom + AXIS_ROW + row as f32 * LABEL_ROW);
                shapes.push(label(at, text, Anchor::Middle, Ink::Text));
            }
        }
        let below = frame.bottom + most.saturating_sub(1) as f32 * LABEL_ROW;
        if self.groups_label.is_empty() {
            return below - (AXIS_CAPTION - AXIS_ROW);
        }
        let caption = text::fit(&self.groups_label, TEXT_SIZE, frame.right - frame.left);
        shapes.push(label((frame.right, below + AXIS_CAPTION), caption, Anchor::End, Ink::Muted));
        below
    }
}

fn half_width(bar: &Bar) -> Option<f64> {
    bar.value.and(bar.half_width).filter(|half| half.is_finite() && *half > 0.0)
}

/// The values drawn for a published value.
fn ends(published: Published) -> impl Iterator<Item = f64> {
    let (one, other) = match published {
        Published::Value(value) | Published::Above(value) | Published::Below(value) => (value, None),
        Published::Between(low, high) => (low, Some(high)),
    };
    std::iter::once(one).chain(other)
}

/// The values that the axis must cover.
fn reached(bar: &Bar, scale: Scale) -> impl Iterator<Item = f64> {
    let half = half_width(bar).unwrap_or(0.0);
    // The lower end of an interval may be near zero, which is decades away on a logarithmic axis.
    let below = if scale == Scale::Linear { half } else { 0.0 };
    let own = bar.value.into_iter().flat_map(move |value| [value, value - below, value + half]);
    own.chain(bar.published.into_iter().flat_map(ends))
}

fn draw_bar(value: f64, series: usize, place: Place, zero: f32, frame: &Frame, shapes: &mut Vec<Shape>) {
    let end = frame.y(value).clamp(frame.top, frame.bottom);
    let (top, bottom) = (end.min(zero), end.max(zero));
    let size = (place.width, (bottom - top).max(0.5));
    shapes.push(Shape::Rect { at: (place.left, top), size, ink: Ink::category(series) });
}

fn draw_error_bar(bar: &Bar, place: Place, frame: &Frame, shapes: &mut Vec<Shape>) {
    let (Some(value), Some(half)) = (bar.value, half_width(bar)) else { return };
    if frame.shows(value) {
        let (low, high) = (value - half, value + half);
        let lower = (frame.y(low).min(frame.bottom), frame.shows(low));
        let upper = (frame.y(high).max(frame.top), frame.shows(high));
        shapes.extend(error_bar(place.middle(), upper, lower, (place.width / 4.0).clamp(1.0, 5.0), Ink::Text));
    }
}

fn draw_published(published: Published, place: Place, frame: &Frame, shapes: &mut Vec<Shape>) {
    let (left, right) = (place.left, place.left + place.width);
    for value in ends(published).filter(|value| frame.shows(*value)) {
        let y = frame.y(value);
        shapes.extend(tick(left, right, y));
        let arrow = match published {
            Published::Above(_) => Some((Mark::Triangle, y - 6.0)),
            Published::Below(_) => Some((Mark::TriangleDown, y + 6.0)),
            _ => None,
        };
        if let Some((mark, y)) = arrow {
            let points = vec![(place.middle(), y)];
            shapes.push(Shape::Marks { points, mark, ink: Ink::Text, hollow: false });
        }
    }
    if let Published::Between(low, high) = published
        && frame.shows(low)
        && frame.shows(high)
    {
        for x in [left + 1.0, right - 1.0] {
            let points = vec![(x, frame.y(low)), (x, frame.y(high))];
            shapes.push(Shape::Line { points, ink: Ink::Text, width: 1.0, dashed: false });
        }
    }
}

/// A line across a bar, visible on the bar and beside it.
fn tick(left: f32, right: f32, y: f32) -> Vec<Shape> {
    let stroke = |ink, width| Shape::Line { points: vec![(left, y), (right, y)], ink, width, dashed: false };
    vec![stroke(Ink::Paper, 4.0), stroke(Ink::Text, 2.0)]
}
