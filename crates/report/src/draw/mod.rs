//! Drawing: a chart is laid out once, as shapes on a plane, and written as SVG or PNG.

mod axis;
mod chart;
mod curve;
mod frame;
mod legend;
mod png;
mod ramp;
mod simplify;
mod svg;
pub(crate) mod text;
mod ticks;
mod unit;

use std::ops::Range;

pub use axis::{Axis, Scale};
pub(crate) use axis::{Reach, Span};
pub(crate) use chart::{Band, Chart};
pub(crate) use curve::{Curve, Kind, course, draw_curve};
pub(crate) use frame::{AXIS_CAPTION, AXIS_ROW, Frame, left_of};
pub(crate) use legend::{Entry, head};
pub use png::PngError;
pub(crate) use png::to_png;
pub(crate) use svg::{escape, style_sheet, to_svg, to_svg_file};
pub use unit::Unit;
pub(crate) use unit::plain;

/// The width of charts, in logical pixels.
pub(crate) const WIDTH: f32 = 960.0;
/// Margins of the plot area. The left one grows with wide numbers.
pub(crate) const LEFT: f32 = 58.0;
pub(crate) const RIGHT: f32 = 18.0;
pub(crate) const TEXT_SIZE: f32 = 12.0;

/// A colour by role. Each has a value for light and for dark paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ink {
    Paper,
    Text,
    Muted,
    Axis,
    Grid,
    Outage,
    Data,
    Ack,
    Timeout,
    FastRetransmit,
    LossRecovery,
    Probe,
    Requested,
    Quiet,
    /// The colours of series; see [`Ink::category`].
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    /// A step of the colour ramp, from least to greatest: the same on all paper, since readers compare it with the colour bar.
    Ramp(u8),
    /// Text on [`Ink::Ramp`] of that step.
    OnRamp(u8),
}

impl Ink {
    /// The colours with a name in style sheets.
    pub(crate) const ALL: [Self; 22] = [
        Self::Paper,
        Self::Text,
        Self::Muted,
        Self::Axis,
        Self::Grid,
        Self::Outage,
        Self::Data,
        Self::Ack,
        Self::Timeout,
        Self::FastRetransmit,
        Self::LossRecovery,
        Self::Probe,
        Self::Requested,
        Self::Quiet,
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
        Self::G,
        Self::H,
    ];

    /// The colour of series number `n`.
    pub(crate) fn category(n: usize) -> Self {
        [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::G, Self::H][n % 8]
    }

    /// The name in style sheets; empty for colours independent of the paper.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Ramp(_) | Self::OnRamp(_) => "",
            Self::Paper => "paper",
            Self::Text => "text",
            Self::Muted => "muted",
            Self::Axis => "axis",
            Self::Grid => "grid",
            Self::Outage => "outage",
            Self::Data => "data",
            Self::Ack => "ack",
            Self::Timeout => "timeout",
            Self::FastRetransmit => "fast",
            Self::LossRecovery => "recovery",
            Self::Probe => "probe",
            Self::Requested => "requested",
            Self::Quiet => "quiet",
            Self::A => "c1",
            Self::B => "c2",
            Self::C => "c3",
            Self::D => "c4",
            Self::E => "c5",
            Self::F => "c6",
            Self::G => "c7",
            Self::H => "c8",
        }
    }

    /// The colour on white paper, as 0xrrggbb.
    pub(crate) fn light(self) -> u32 {
        match self {
            Self::Ramp(step) => ramp::color(step),
            Self::OnRamp(step) => {
                if ramp::is_light(step) {
                    0x1c_1f23
                } else {
                    0xff_ffff
                }
            }
            Self::Paper => 0xff_ffff,
            Self::Text => 0x1c_1f23,
            Self::Muted => 0x5c_6470,
            Self::Axis => 0x9a_a1ab,
            Self::Grid => 0xe8_eaed,
            Self::Outage => 0xf3_e6d8,
            Self::Data | Self::A => 0x21_66ac,
            Self::Ack => 0x8a_96a3,
            Self::Timeout => 0xc1_272d,
            Self::FastRetransmit => 0xe0_8214,
            Self::LossRecovery => 0xc9_9a2e,
            Self::Probe | Self::D => 0x76_2a83,
            Self::Requested | Self::C => 0x1b_7837,
            Self::Quiet => 0x4d_4d4d,
            Self::B => 0xd6_604d,
            Self::E => 0xd9_8a1f,
            Self::F => 0x35_978f,
            Self::G => 0x8c_510a,
            Self::H => 0x6b_7280,
        }
    }

    /// The colour on dark paper.
    pub(crate) fn dark(self) -> u32 {
        match self {
            Self::Ramp(_) | Self::OnRamp(_) => self.light(),
            Self::Paper => 0x15_181c,
            Self::Text => 0xe6_e8eb,
            Self::Muted => 0xa0_a8b3,
            Self::Axis => 0x6b_7480,
            Self::Grid => 0x2a_2f36,
            Self::Outage => 0x3d_3128,
            Self::Data | Self::A => 0x6c_b0f5,
            Self::Ack => 0x8a_96a3,
            Self::Timeout => 0xff_6b6b,
            Self::FastRetransmit => 0xf5_a64a,
            Self::LossRecovery => 0xe0_c063,
            Self::Probe | Self::D => 0xc4_92d6,
            Self::Requested | Self::C => 0x6c_c986,
            Self::Quiet => 0xc8_ccd2,
            Self::B => 0xf2_917f,
            Self::E => 0xf0_b35c,
            Self::F => 0x74_cdc4,
            Self::G => 0xd0_a468,
            Self::H => 0x9a_a1ab,
        }
    }
}

/// A point on the plane, in logical pixels from the upper left corner.
pub(crate) type At = (f32, f32);

/// The end of a text that its point anchors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The mark of a single point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Cross,
    Triangle,
    Dot,
    Diamond,
    Square,
    Plus,
    Circle,
    TriangleDown,
}

impl Mark {
    /// The mark of series number `n`, large enough to be distinguished.
    pub(crate) fn category(n: usize) -> Self {
        [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::TriangleDown][n % 5]
    }
}

/// A shape to draw.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Shape {
    Rect {
        at: At,
        size: At,
        ink: Ink,
    },
    Line {
        points: Vec<At>,
        ink: Ink,
        width: f32,
        dashed: bool,
    },
    Area {
        points: Vec<At>,
        ink: Ink,
        opacity: f32,
    },
    /// Hollow marks are filled with the paper's colour.
    Marks {
        points: Vec<At>,
        mark: Mark,
        ink: Ink,
        hollow: bool,
    },
    /// A rotated text is read from below.
    Text {
        at: At,
        text: String,
        size: f32,
        anchor: Anchor,
        ink: Ink,
        bold: bool,
        turned: bool,
    },
}

impl Shape {
    /// The shape, moved right and down.
    pub(crate) fn moved(mut self, by: At) -> Self {
        let shift = |at: &mut At| *at = (at.0 + by.0, at.1 + by.1);
        match &mut self {
            Self::Rect { at, .. } | Self::Text { at, .. } => shift(at),
            Self::Line { points, .. } | Self::Area { points, .. } | Self::Marks { points, .. } => {
                points.iter_mut().for_each(shift);
            }
        }
        self
    }
}

/// A thin line.
pub(crate) fn line(points: Vec<At>, ink: Ink) -> Shape {
    Shape::Line { points, ink, width: 1.0, dashed: false }
}

/// A text of normal size.
pub(crate) fn label(at: At, text: String, anchor: Anchor, ink: Ink) -> Shape {
    Shape::Text { at, text, size: TEXT_SIZE, anchor, ink, bold: false, turned: false }
}

/// The plot area of a chart over time, from which a page's script reads values under the pointer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlotArea {
    /// Left, top, right and bottom.
    pub(crate) edges: [f32; 4],
    pub(crate) time: Span,
    pub(crate) value: Span,
    pub(crate) unit: Unit,
    /// The name of each curve, and the places of its shapes in the figure.
    pub(crate) curves: Vec<(String, Range<usize>)>,
}

/// A picture: shapes in drawing order, from back to front.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) width: f32,
    pub(crate) height: f32,
    /// Alternative text for readers who cannot see the picture.
    pub(crate) label: String,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) plots: Vec<PlotArea>,
}

impl Figure {
    /// Joins pictures vertically.
    pub(crate) fn stacked(figures: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self { width: 0.0, height: 0.0, label: String::new(), shapes: Vec::new(), plots: Vec::new() };
        for figure in figures {
            let below = (0.0, all.height);
            let shapes = all.shapes.len();
            all.plots.extend(figure.plots.into_iter().map(|mut plot| {
                plot.edges[1] += below.1;
                plot.edges[3] += below.1;
                for (_, places) in &mut plot.curves {
                    *places = places.start + shapes..places.end + shapes;
                }
                plot
            }));
            all.shapes.extend(figure.shapes.into_iter().map(|shape| shape.moved(below)));
            all.width = all.width.max(figure.width);
            all.height += figure.height;
            if !all.label.is_empty() {
                all.label.push_str("; ");
            }
            all.label.push_str(&figure.label);
        }
        all
    }
}

/// The enlargement of hollow marks, to be visible around others.
pub(crate) const HOLLOW_SCALE: f32 = 1.4;

/// The outline of a mark around its point: polygons to fill, or lines to stroke.
pub(crate) fn outline(mark: Mark) -> (&'static [&'static [At]], bool) {
    match mark {
        Mark::Cross => (&[&[(-3.2, -3.2), (3.2, 3.2)], &[(-3.2, 3.2), (3.2, -3.2)]], false),
        Mark::Plus => (&[&[(-3.6, 0.0), (3.6, 0.0)], &[(0.0, -3.6), (0.0, 3.6)]], false),
        Mark::Triangle => (&[&[(0.0, -3.8), (3.6, 2.8), (-3.6, 2.8)]], true),
        Mark::Diamond => (&[&[(0.0, -3.6), (3.6, 0.0), (0.0, 3.6), (-3.6, 0.0)]], true),
        Mark::Square => (&[&[(-2.6, -2.6), (2.6, -2.6), (2.6, 2.6), (-2.6, 2.6)]], true),
        Mark::TriangleDown => (&[&[(0.0, 3.8), (3.6, -2.8), (-3.6, -2.8)]], true),
        Mark::Circle => (
            &[&[
                (3.1, 0.8),
                (2.3, 2.3),
                (0.8, 3.1),
                (-0.8, 3.1),
                (-2.3, 2.3),
                (-3.1, 0.8),
                (-3.1, -0.8),
                (-2.3, -2.3),
                (-0.8, -3.1),
                (0.8, -3.1),
                (2.3, -2.3),
                (3.1, -0.8),
            ]],
            true,
        ),
        Mark::Dot => (
            &[&[
                (1.9, 0.8),
                (0.8, 1.9),
                (-0.8, 1.9),
                (-1.9, 0.8),
                (-1.9, -0.8),
                (-0.8, -1.9),
                (0.8, -1.9),
                (1.9, -0.8),
            ]],
            true,
        ),
    }
}
