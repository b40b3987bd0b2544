//! The figures of an experiment.

use holdover_report::figures::{
    Axis, Bar, BarSeries, Bars, Density, Form, LinePoint, LineSeries, Lines, PngError, Published, Samples, Strip,
    Strips, Surface, Unit, Words,
};
use holdover_scenario::Metric;

use super::catalogue::{Catalogue, Experiment, Figure, FigureKind, PublishedValue};
use super::numbers::read;
use super::open::{Domain, Open, words as value_words};
use super::results::{Cell, Results};
use super::script::short;
use super::survey::{self, Over, Surveyed};
use crate::sweep::unit_suffix;

/// A drawn figure.
pub struct Drawn {
    /// Its experiment.
    pub experiment: String,
    /// The name of its file, without extension.
    pub name: String,
    /// The plot's title.
    pub title: String,
    /// The plot itself.
    pub picture: Picture,
}

/// A plot in each output format.
pub struct Picture {
    /// As an SVG file.
    pub svg: String,
    /// An element of a page in the common page style.
    pub inline: String,
    /// As a PNG file.
    pub png: Result<Vec<u8>, PngError>,
}

/// Renders a figure in each output format.
macro_rules! picture {
    ($figure:expr) => {{
        let figure = $figure;
        Picture { svg: figure.to_svg_file(), inline: figure.inline_svg(), png: figure.to_png() }
    }};
}

/// Draws the figures of an experiment.
pub fn of(experiment: &Experiment, results: &Results) -> Vec<Drawn> {
    let mut drawn = Vec::new();
    for figure in &experiment.figures {
        let Some(label) = &figure.each else {
            drawn.extend(Plot::new(experiment, figure, results.cells.iter().collect(), None).draw());
            continue;
        };
        for value in results.written(label) {
            let cells =
                results.cells.iter().filter(|cell| cell.words.get(label).map(String::as_str) == Some(value)).collect();
            drawn.extend(Plot::new(experiment, figure, cells, Some(value)).draw());
        }
    }
    drawn
}

/// The claims whose verdict depends on a single open input, with the values at which each holds. `None` if there are
/// none.
pub fn of_survey(catalogue: &Catalogue) -> Option<Drawn> {
    let survey = catalogue.survey.as_ref()?;
    let places: Vec<Vec<f64>> =
        survey.settings.iter().map(|setting| survey::places(setting, &catalogue.inputs)).collect();
    let strip = |claim: &str| {
        let Surveyed { verdict: Over::Some, decided_by: Some(split), .. } = survey.of(claim, &catalogue.inputs)? else {
            return None;
        };
        let index = catalogue.inputs.iter().position(|input| input.name == split.input)?;
        let input: &Open = &catalogue.inputs[index];
        let letters = survey.verdicts.get(claim)?.chars();
        let of_input: Vec<f64> = places.iter().map(|places| places[index]).collect();
        let is_range = matches!(input.domain, Domain::Range { .. });
        Some(Strip {
            name: claim.to_owned(),
            input: if is_range { input.name.clone() } else { format!("{}: {}", input.name, input.in_words()) },
            from: value_words(&input.at(0.0)),
            to: value_words(&input.at(1.0)),
            samples: spread(&of_input, input).into_iter().zip(letters.map(|letter| letter == '+')).collect(),
            border: split.border,
        })
    };
    let strips: Vec<Strip> = catalogue.claims.iter().filter_map(|claim| strip(&claim.id)).collect();
    if strips.is_empty() {
        return None;
    }
    let title = "Claims that one open input decides, over its values".to_owned();
    let figure = Strips { title: title.clone(), outcomes: ("holds".to_owned(), "fails".to_owned()), strips };
    Some(Drawn { experiment: String::new(), name: "open".to_owned(), title, picture: picture!(figure) })
}

/// Spreads overlapping marks: samples with the same alternative are distributed over its share of the strip.
fn spread(places: &[f64], input: &Open) -> Vec<f64> {
    let Domain::Alternatives(list) = &input.domain else { return places.to_vec() };
    let same = |place: f64| places.iter().filter(move |other| **other == place).count();
    let before = |index: usize| places[..index].iter().filter(|other| **other == places[index]).count();
    let spread = |(index, &place): (usize, &f64)| {
        // Offsets range from -0.4 to 0.4 of a share.
        let offset = (before(index) as f64 + 0.5) / same(place) as f64 - 0.5;
        place + 0.8 * offset / list.len() as f64
    };
    places.iter().enumerate().map(spread).collect()
}

struct Plot<'a> {
    experiment: &'a Experiment,
    figure: &'a Figure,
    cells: Vec<&'a Cell>,
    /// The value of the axis [`Figure::each`] in these cells.
    value: Option<&'a str>,
    title: String,
    variants: Vec<String>,
}

impl<'a> Plot<'a> {
    fn new(experiment: &'a Experiment, figure: &'a Figure, cells: Vec<&'a Cell>, value: Option<&'a str>) -> Self {
        let mut variants = figure.variants.clone();
        if variants.is_empty() {
            for cell in &cells {
                if !variants.contains(&cell.variant) {
                    variants.push(cell.variant.clone());
                }
            }
        }
        let title = value.map_or_else(|| figure.title.clone(), |value| format!("{}, {value}", figure.title));
        Self { experiment, figure, cells, value, title, variants }
    }

    fn draw(&self) -> Vec<Drawn> {
        let whole = |picture| vec![self.drawn(&self.title, "", picture)];
        match self.figure.kind {
            FigureKind::Surface => {
                let of = |variant: &String| {
                    self.drawn(&format!("{}, {variant}", self.title), variant, picture!(self.surface(variant)))
                };
                self.variants.iter().map(of).collect()
            }
            FigureKind::Lines => whole(picture!(self.lines())),
            FigureKind::Bars => whole(picture!(self.bars())),
            FigureKind::Density => whole(picture!(self.density())),
        }
    }

    fn drawn(&self, title: &str, part: &str, picture: Picture) -> Drawn {
        let Figure { metric, x, .. } = self.figure;
        // Several figures of an experiment may have the same metric and axis, for other variants.
        let of_value = self.value.map(|value| format!("{}-{value}", self.figure.title.to_lowercase()));
        let parts = [self.experiment.id.as_str(), metric, x, of_value.as_deref().unwrap_or_default(), part];
        let name = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("-");
        Drawn { experiment: self.experiment.id.clone(), name: file_name(&name), title: title.to_owned(), picture }
    }

    fn cells(&self, variant: &str) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().copied().filter(move |cell| cell.variant == variant)
    }

    /// The values on an axis, in order.
    fn places(&self, label: &str) -> Vec<f64> {
        let mut places: Vec<f64> = self.cells.iter().filter_map(|cell| cell.at.get(label).copied()).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    fn axis(&self, label: &str) -> Axis {
        let written = self.cells.iter().find_map(|cell| cell.words.get(label));
        let unit = match written.and_then(|written| unit_suffix(written)) {
            Some("s") => Unit::Seconds,
            Some("bps") => Unit::BitsPerSecond,
            Some("bytes") => Unit::Bytes,
            Some("share") => Unit::Ratio,
            Some("packets") => Unit::Packets,
            Some("segments") => Unit::Segments,
            _ => Unit::Count,
        };
        Axis::new(label, unit)
    }

    fn value_axis(&self) -> Axis {
        let name = &self.figure.metric;
        let metric = Metric::ALL.iter().filter(|metric| name.starts_with(metric.name())).max_by_key(|m| m.name().len());
        let unit = match metric.map(|metric| (metric, metric.unit())) {
            Some((_, "bit/s")) => Unit::BitsPerSecond,
            Some((_, "s")) => Unit::Seconds,
            Some((_, "bytes")) => Unit::Bytes,
            Some((Metric::IdealShare, _)) => Unit::Ratio,
            _ => Unit::Count,
        };
        Axis::new(name.replace('_', " "), unit)
    }

    fn surface(&self, variant: &str) -> Surface {
        let y_label = self.figure.y.as_deref().unwrap_or_default();
        let (x_values, y_values) = (self.places(&self.figure.x), self.places(y_label));
        let value = |x: f64, y: f64| {
            let is_there = |cell: &&Cell| cell.at.get(&self.figure.x) == Some(&x) && cell.at.get(y_label) == Some(&y);
            self.cells(variant).find(is_there)?.median(&self.figure.metric)
        };
        Surface {
            title: format!("{}: {variant}", self.title),
            x: self.axis(&self.figure.x),
            y: self.axis(y_label),
            value: self.value_axis(),
            cells: y_values.iter().map(|&y| x_values.iter().map(|&x| value(x, y)).collect()).collect(),
            x_values,
            y_values,
            show_values: true,
            words: words(),
        }
    }

    fn lines(&self) -> Lines {
        let point = |cell: &Cell| {
            let x = *cell.at.get(&self.figure.x)?;
            let mean = cell.statistics(&self.figure.metric)?;
            Some(LinePoint { x, y: mean.mean(), half_width: mean.half_width() })
        };
        let series = |variant: &String| LineSeries {
            name: variant.clone(),
            points: self.cells(variant).filter_map(point).collect(),
            published: self.published(variant),
        };
        let x = self.axis(&self.figure.x);
        Lines {
            title: self.title.clone(),
            x: if self.figure.log_x { x.logarithmic() } else { x },
            y: self.value_axis(),
            series: self.variants.iter().map(series).collect(),
            words: words(),
        }
    }

    /// The published values of a variant, if the experiment's table has them over the same axis.
    fn published(&self, variant: &str) -> Vec<(f64, f64)> {
        let Some(table) = self.experiment.table.as_ref().filter(|table| table.axis == self.figure.x) else {
            return Vec::new();
        };
        let is_it = |column: &&super::catalogue::Column| {
            column.variant == variant && column.metric == self.figure.metric && column.against.is_none()
        };
        let Some(column) = table.columns.iter().find(is_it) else { return Vec::new() };
        let rows = table.rows.iter();
        rows.filter_map(|row| Some((table.number(row, &table.key)?, table.number(row, &column.key)?))).collect()
    }

    fn bars(&self) -> Bars {
        let y_label = self.figure.y.as_deref();
        let mut groups: Vec<(String, f64, Option<f64>)> = Vec::new();
        for x in self.places(&self.figure.x) {
            match y_label {
                None => groups.push((short(x), x, None)),
                Some(label) => {
                    groups.extend(
                        self.places(label).into_iter().map(|y| (format!("{} / {}", short(x), short(y)), x, Some(y))),
                    );
                }
            }
        }
        let published = |variant: &str, x: f64, y: Option<f64>| {
            let is_it = |printed: &&PublishedValue| {
                let at = |label: &str| printed.at.get(label).copied();
                printed.variant == variant
                    && at(&self.figure.x) == Some(x)
                    && y_label.is_none_or(|label| at(label) == y)
            };
            let printed = self.figure.published.iter().find(is_it)?;
            Some(match read(&printed.value)? {
                (least, f64::INFINITY) => Published::Above(least),
                (0.0, most) => Published::Below(most),
                (low, high) if low == high => Published::Value(low),
                (low, high) => Published::Between(low, high),
            })
        };
        let bar = |variant: &str, x: f64, y: Option<f64>| {
            let is_there = |cell: &&Cell| {
                let at_y = y_label.is_none_or(|label| cell.at.get(label).copied() == y);
                cell.at.get(&self.figure.x) == Some(&x) && at_y
            };
            let statistics = self.cells(variant).find(is_there).and_then(|cell| cell.statistics(&self.figure.metric));
            let half_width = statistics.as_ref().and_then(holdover_scenario::statistics::Mean::half_width);
            Bar { value: statistics.map(|mean| mean.mean()), half_width, published: published(variant, x, y) }
        };
        let series = |variant: &String| BarSeries {
            name: variant.clone(),
            bars: groups.iter().map(|(_, x, y)| bar(variant, *x, *y)).collect(),
        };
        let label = |label: &str| self.axis(label).label;
        Bars {
            title: self.title.clone(),
            y: self.value_axis(),
            groups_label: match y_label {
                None => label(&self.figure.x),
                Some(y) => format!("{} / {}", label(&self.figure.x), label(y)),
            },
            series: self.variants.iter().map(series).collect(),
            groups: groups.into_iter().map(|(name, ..)| name).collect(),
            show_values: true,
            words: words(),
        }
    }

    fn density(&self) -> Density {
        let samples = |variant: &String| Samples {
            name: variant.clone(),
            values: self
                .cells(variant)
                .filter_map(|cell| cell.values.get(&self.figure.metric))
                .flatten()
                .copied()
                .collect(),
        };
        Density {
            title: self.title.clone(),
            x: self.value_axis(),
            form: Form::Cumulative,
            series: self.variants.iter().map(samples).collect(),
        }
    }
}

fn words() -> Words {
    Words { published: "published".to_owned(), ..Words::default() }
}

/// A name without characters that trouble file systems or Markdown.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const EXPERIMENT: &str = r#"
id = "fig"
source = "Figure 1"
title = "Two axes"
scenario = "grid"
figure = [
    { kind = "lines", title = "All", x = "cut", metric = "duration" },
    { kind = "lines", title = "By stack", x = "cut", each = "stack", metric = "duration" },
]
"#;

    fn cell(stack: &str, cut: f64) -> Cell {
        let words = [("stack", stack.to_owned()), ("cut", format!("{cut} s"))];
        Cell {
            variant: "plain".to_owned(),
            at: BTreeMap::from([("cut".to_owned(), cut)]),
            words: words.map(|(label, word)| (label.to_owned(), word)).into(),
            values: BTreeMap::from([("duration".to_owned(), vec![cut])]),
            runs: 1,
            completed: 1,
        }
    }

    // Claim: A figure for each value of an axis has the cells of that value; a label that is no axis is an error.
    // Tests: `reproduce::open_tests::a_figure_for_each_value_of_no_axis_is_an_error`
    #[test]
    fn a_plot_for_each_value_of_an_axis_has_the_cells_of_that_value() {
        let experiment: Experiment = toml::from_str(EXPERIMENT).unwrap();
        let results =
            Results { cells: vec![cell("reno", 1.0), cell("reno", 3.0), cell("cubic", 1.0), cell("cubic", 3.0)] };
        let drawn = of(&experiment, &results);
        let said: Vec<(&str, &str)> = drawn.iter().map(|it| (it.name.as_str(), it.title.as_str())).collect();
        let expected = [
            ("fig-duration-cut", "All"),
            ("fig-duration-cut-by-stack-reno", "By stack, reno"),
            ("fig-duration-cut-by-stack-cubic", "By stack, cubic"),
        ];
        assert_eq!(said, expected);
        let points = |cells: &[Cell], value| {
            let plot = Plot::new(&experiment, &experiment.figures[1], cells.iter().collect(), value);
            plot.lines().series.iter().map(|series| series.points.len()).collect::<Vec<_>>()
        };
        assert_eq!(points(&results.cells, None), [4]);
        assert_eq!(points(&results.cells[..2], Some("reno")), [2]);
    }
}
