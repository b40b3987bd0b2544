//! SVG output. Colours are classes, so that a page can have a light and a dark set.

use std::fmt::Write;

use super::{Anchor, Figure, HOLLOW_SCALE, Ink, PlotArea, Scale, Shape, outline};

/// An SVG element for a page with [`style_sheet`], on the page's own background. With its plot areas, for the page's script.
pub(crate) fn to_svg(figure: &Figure) -> String {
    let mut svg = String::new();
    let plots = if figure.plots.is_empty() {
        String::new()
    } else {
        let plots: Vec<_> = figure.plots.iter().map(description).collect();
        format!(" data-plots=\"{}\"", escape(&serde_json::Value::from(plots).to_string()))
    };
    write_svg(&mut svg, figure, &plots, "");
    svg
}

/// A self-contained SVG file, with dark paper where the reader's screen is dark. Programs without support for CSS
/// variables draw it as well.
pub(crate) fn to_svg_file(figure: &Figure) -> String {
    let mut style = String::from("<style>");
    let colors = |style: &mut String, value: fn(Ink) -> u32| {
        for ink in Ink::ALL {
            let _ = write!(style, ".s-{0}{{stroke:#{1:06x}}}.f-{0}{{fill:#{1:06x}}}", ink.class(), value(ink));
        }
    };
    colors(&mut style, Ink::light);
    style.push_str("@media screen and (prefers-color-scheme:dark){");
    colors(&mut style, Ink::dark);
    style.push('}');
    style.push_str(COMMON_STYLE);
    style.push_str("</style>");
    let mut svg = String::new();
    let _ = write!(style, r#"<rect class="f-paper" width="{}" height="{}"/>"#, figure.width, figure.height);
    write_svg(&mut svg, figure, "", &style);
    svg.push('\n');
    svg
}

/// The style sheet with the colours of all pictures on a page.
pub(crate) fn style_sheet() -> String {
    let mut css = String::new();
    let variables = |css: &mut String, value: fn(Ink) -> u32| {
        for ink in Ink::ALL {
            let _ = write!(css, "--{}:#{:06x};", ink.class(), value(ink));
        }
    };
    css.push_str(":root{");
    variables(&mut css, Ink::light);
    css.push_str("}\n@media screen and (prefers-color-scheme:dark){:root{");
    variables(&mut css, Ink::dark);
    css.push_str("}}\n");
    for ink in Ink::ALL {
        let _ = write!(css, ".s-{0}{{stroke:var(--{0})}}.f-{0}{{fill:var(--{0})}}", ink.class());
    }
    css.push('\n');
    css.push_str(COMMON_STYLE);
    css
}

const COMMON_STYLE: &str = "svg text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;\
font-variant-numeric:tabular-nums}\
.line{fill:none;stroke-linejoin:round;stroke-linecap:butt}.mark{stroke-width:1.5}.open{fill:none}";

/// A plot area, for the page's script.
fn description(plot: &PlotArea) -> serde_json::Value {
    let curves = plot.curves.iter().map(|(name, places)| (name.as_str(), places.start, places.end));
    serde_json::json!({
        "box": plot.edges.map(|edge| (f64::from(edge) * 10.0).round() / 10.0),
        "x": [plot.time.from, plot.time.to],
        "y": [plot.value.from, plot.value.to],
        "log": plot.value.scale == Scale::Logarithmic,
        "unit": plot.unit.scaled(1.0).1,
        "curves": curves.collect::<Vec<_>>(),
    })
}

fn write_svg(svg: &mut String, figure: &Figure, attributes: &str, head: &str) {
    let (width, height) = (figure.width, figure.height);
    let label = escape(&figure.label);
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}"{attributes}>{head}"#,
    );
    for shape in &figure.shapes {
        write_shape(svg, shape);
    }
    svg.push_str("</svg>");
}

fn write_shape(svg: &mut String, shape: &Shape) {
    // Writing to a string does not fail.
    let _ = match shape {
        Shape::Rect { at, size, ink } => {
            let fill = fill(*ink);
            let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(number);
            write!(svg, r#"<rect {fill} x="{x}" y="{y}" width="{width}" height="{height}"/>"#)
        }
        Shape::Line { points, ink, width, dashed } => {
            let dash = if *dashed { r#" stroke-dasharray="5 3""# } else { "" };
            let class = ink.class();
            let path = path(points);
            write!(svg, r#"<path class="line s-{class}" stroke-width="{width}"{dash} d="{path}"/>"#)
        }
        Shape::Area { points, ink, opacity } => {
            write!(svg, r#"<path {} opacity="{opacity}" d="{}Z"/>"#, fill(*ink), path(points))
        }
        Shape::Marks { points, mark, ink, hollow } => {
            let (path, filled) = marks_path(points, *mark, if *hollow { HOLLOW_SCALE } else { 1.0 });
            let class = match (filled, hollow) {
                (true, false) => format!("f-{}", ink.class()),
                (true, true) => format!("mark f-paper s-{}", ink.class()),
                (false, _) => format!("open mark s-{}", ink.class()),
            };
            write!(svg, r#"<path class="{class}" d="{path}"/>"#)
        }
        Shape::Text { at, text, size, anchor, ink, bold, turned } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => r#" text-anchor="middle""#,
                Anchor::End => r#" text-anchor="end""#,
            };
            let weight = if *bold { r#" font-weight="600""# } else { "" };
            let (x, y) = (number(at.0), number(at.1));
            let (fill, text) = (fill(*ink), escape(text));
            let turn = if *turned { format!(r#" transform="rotate(-90 {x} {y})""#) } else { String::new() };
            write!(svg, r#"<text {fill} x="{x}" y="{y}" font-size="{size}"{anchor}{weight}{turn}>{text}</text>"#)
        }
    };
}

/// The attribute that fills a shape with `ink`.
fn fill(ink: Ink) -> String {
    match ink.class() {
        "" => format!("fill=\"#{:06x}\"", ink.light()),
        class => format!("class=\"f-{class}\""),
    }
}

/// The outlines of marks at `points`, and whether they are closed.
fn marks_path(points: &[super::At], mark: super::Mark, scale: f32) -> (String, bool) {
    let (parts, filled) = outline(mark);
    let mut path = String::new();
    for &(x, y) in points {
        for part in parts {
            let mut pen = (0.0, 0.0);
            for (index, &(dx, dy)) in part.iter().enumerate() {
                let (dx, dy) = (scale * dx, scale * dy);
                if index == 0 {
                    let _ = write!(path, "M{} {}", number(x + dx), number(y + dy));
                } else {
                    let separator = if index == 1 { "l" } else { " " };
                    let _ = write!(path, "{separator}{} {}", number(dx - pen.0), number(dy - pen.1));
                }
                pen = (dx, dy);
            }
            path.push_str(if filled { "z" } else { "" });
        }
    }
    (path, filled)
}

fn path(points: &[super::At]) -> String {
    let mut path = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        let separator = match index {
            0 => "M",
            1 => "L",
            _ => " ",
        };
        let _ = write!(path, "{separator}{} {}", number(x), number(y));
    }
    path
}

/// Formats a coordinate with one decimal; finer differences are invisible.
fn number(value: f32) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// Escapes text for HTML and XML, in elements and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML allows no other control characters.
            letter if letter.is_control() && !matches!(letter, '\n' | '\t') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
