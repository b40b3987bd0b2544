//! Writes every kind of figure into a directory, to look at: `cargo run -p holdover-report --example figures -- DIR`.

// Writes files.
#![allow(clippy::disallowed_types)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use holdover_report::figures::{
    Axis, Bar, BarSeries, Bars, Density, DensityMap, Form, LinePoint, LineSeries, Lines, Pairs, PngError, Published,
    Samples, Surface, Unit, Words,
};

type Drawn = (&'static str, String, Result<Vec<u8>, PngError>);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).ok_or("give a directory to write to")?;
    fs::create_dir_all(&dir)?;
    for figure in
        [lines(), logarithmic_lines(), bars(), many_bars(), surface(), fine_surface(), histogram(), cumulative(), map()]
    {
        write(&dir, figure)?;
    }
    Ok(())
}

fn write(dir: &Path, (name, svg, png): Drawn) -> Result<(), Box<dyn Error>> {
    fs::write(dir.join(format!("{name}.svg")), svg)?;
    fs::write(dir.join(format!("{name}.png")), png?)?;
    Ok(())
}

fn lines() -> Drawn {
    let curve = |slope: f64, noise: f64| {
        let point = |n: u32| {
            let x = f64::from(n) * 10.0;
            LinePoint { x, y: 62.5 + slope * x + noise * (x / 7.0).sin(), half_width: Some(2.0 + noise) }
        };
        (0..=12).map(point).collect::<Vec<_>>()
    };
    let published = |slope: f64| (0..=6).map(|n| (f64::from(n) * 20.0, 66.0 + slope * f64::from(n) * 21.0)).collect();
    let figure = Lines {
        title: "Time to move 500 kB over 32 kbit/s with disconnections of normal length".into(),
        x: Axis::new("mean length of a disconnection", Unit::Seconds),
        y: Axis::new("transfer time, mean of 10 runs", Unit::Seconds),
        series: vec![
            LineSeries { name: "TCP".into(), points: curve(3.1, 9.0), published: published(3.3) },
            LineSeries { name: "M-TCP".into(), points: curve(1.3, 3.0), published: published(1.2) },
            LineSeries { name: "optimum".into(), points: curve(1.0, 0.0), published: Vec::new() },
        ],
        words: Words { published: "read off the paper's figure 7".into(), ..Words::default() },
    };
    ("lines", figure.to_svg_file(), figure.to_png())
}

fn logarithmic_lines() -> Drawn {
    let series = |name: &str, share: f64, rate: f64| {
        let point = |n: i32| {
            let x = 1e-4 * 2_f64.powi(n);
            LinePoint { x, y: rate / (1.0 + share * x.sqrt() * 100.0), half_width: Some(rate * 0.004) }
        };
        LineSeries { name: name.into(), points: (0..11).map(point).collect(), published: Vec::new() }
    };
    let figure = Lines {
        title: "Goodput under random loss".into(),
        x: Axis::new("segments lost", Unit::Ratio).logarithmic(),
        y: Axis::new("goodput", Unit::BitsPerSecond).logarithmic(),
        series: vec![
            series("tahoe-bsd", 4.0, 9.2e6),
            series("reno-bsd", 2.5, 9.3e6),
            series("linux-2.4", 1.5, 9.3e6),
            series("linux-6-reno", 0.9, 9.4e6),
            series("linux-6-cubic", 0.6, 9.5e6),
            series("linux-6-cubic with a retransmission trigger", 0.3, 9.5e6),
        ],
        words: Words::default(),
    };
    ("lines-logarithmic", figure.to_svg_file(), figure.to_png())
}

fn bars() -> Drawn {
    let bar = |value, half_width, published| Bar { value, half_width, published };
    let groups = ["17 s / 37 s", "17 s / 67 s", "37 s / 37 s", "37 s / 67 s", "67 s / 37 s", "67 s / 67 s"];
    let figure = Bars {
        title: "Net time to move 600 MB with periodic disconnections".into(),
        y: Axis::new("net transmission time, median of 10 runs", Unit::Seconds),
        groups_label: "connected / disconnected".into(),
        groups: groups.map(String::from).to_vec(),
        series: vec![
            BarSeries {
                name: "standard TCP".into(),
                bars: vec![
                    bar(None, None, None),
                    bar(None, None, Some(Published::Value(80.0))),
                    bar(Some(702.0), Some(21.0), Some(Published::Value(680.0))),
                    bar(Some(1247.0), Some(60.0), Some(Published::Above(1200.0))),
                    bar(Some(610.0), Some(12.0), Some(Published::Value(595.0))),
                    bar(Some(741.0), Some(25.0), Some(Published::Value(765.0))),
                ],
            },
            BarSeries {
                name: "with the retransmission trigger".into(),
                bars: vec![
                    bar(Some(628.0), Some(9.0), Some(Published::Between(640.0, 650.0))),
                    bar(Some(655.0), Some(11.0), Some(Published::Between(640.0, 650.0))),
                    bar(Some(588.0), Some(7.0), Some(Published::Value(585.0))),
                    bar(Some(589.0), Some(7.0), Some(Published::Value(590.0))),
                    bar(Some(551.0), Some(6.0), Some(Published::Value(558.0))),
                    bar(Some(562.0), Some(6.0), Some(Published::Below(600.0))),
                ],
            },
        ],
        show_values: true,
        words: Words { published: "published (figure 13)".into(), ..Words::default() },
    };
    ("bars", figure.to_svg_file(), figure.to_png())
}

fn many_bars() -> Drawn {
    let names = ["sack", "freeze", "block", "block + ts", "block + ts + limit"];
    let groups =
        ["mobile, two background sources", "stationary, two background sources", "mobile, four", "stationary, four"];
    let bar = |series: usize, group: usize| match (series, group) {
        (0, 2) => Bar { value: None, ..Bar::default() },
        (1, 3) => Bar { value: Some(-30e3), half_width: Some(9e3), published: None },
        _ => {
            let value = 300e3 + 40e3 * series as f64 - 25e3 * group as f64;
            Bar { value: Some(value), half_width: Some(9e3), published: Some(Published::Value(value * 1.05)) }
        }
    };
    let series = names.iter().enumerate().map(|(series, name)| BarSeries {
        name: (*name).into(),
        bars: (0..groups.len()).map(|group| bar(series, group)).collect(),
    });
    let figure = Bars {
        title: "Throughput of competing connections, difference to one alone".into(),
        y: Axis::new("throughput", Unit::BitsPerSecond),
        groups_label: String::new(),
        groups: groups.map(String::from).to_vec(),
        series: series.collect(),
        show_values: true,
        words: Words::default(),
    };
    ("bars-many", figure.to_svg_file(), figure.to_png())
}

fn surface() -> Drawn {
    let x_values: Vec<f64> = (0..12).map(|n| 13.0 * f64::from(n)).collect();
    let y_values: Vec<f64> = (0..7).map(|n| 2.0 + 4.0 * f64::from(n)).collect();
    let cell = |x: f64, y: f64| {
        (x <= 130.0 || y > 22.0).then(|| 22.0 + if y > 22.0 { 0.0 } else { (x * 0.6) * (1.0 + 0.3 * (x / 6.0).sin()) })
    };
    let figure = Surface {
        title: "One disconnection, standard TCP".into(),
        x: Axis::new("length of the disconnection", Unit::Seconds),
        y: Axis::new("connected before", Unit::Seconds),
        value: Axis::new("net transmission time", Unit::Seconds).between(20.0, 90.0),
        cells: y_values.iter().map(|y| x_values.iter().map(|x| cell(*x, *y)).collect()).collect(),
        x_values,
        y_values,
        show_values: true,
        words: Words::default(),
    };
    ("surface", figure.to_svg_file(), figure.to_png())
}

fn fine_surface() -> Drawn {
    let x_values: Vec<f64> = (0..80).map(|n| 1e-3 * 1.13_f64.powi(n)).collect();
    let y_values: Vec<f64> = (0..60).map(|n| 1e4 * 1.15_f64.powi(n)).collect();
    let cell = |x: f64, y: f64| (x * y < 4e8).then(|| y / (1.0 + x * 8.0));
    let figure = Surface {
        title: "Goodput by delay and rate".into(),
        x: Axis::new("round-trip time", Unit::Seconds),
        y: Axis::new("rate", Unit::BitsPerSecond),
        value: Axis::new("goodput", Unit::BitsPerSecond).logarithmic(),
        cells: y_values.iter().map(|y| x_values.iter().map(|x| cell(*x, *y)).collect()).collect(),
        x_values,
        y_values,
        show_values: true,
        words: Words { missing: "not finished within the hour".into(), ..Words::default() },
    };
    ("surface-fine", figure.to_svg_file(), figure.to_png())
}

/// Pseudo-random numbers between 0 and 1.
fn scattered(seed: u64, count: usize) -> impl Iterator<Item = f64> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(seed), next)
        .skip(1)
        .step_by(3)
        .map(|state| (state >> 11) as f64 / 2_f64.powi(53))
        .take(count)
}

/// Plausible delays until the end of an outage is noticed.
fn delays(seed: u64, count: usize, mean: f64) -> Vec<f64> {
    scattered(seed, count).zip(scattered(seed + 7, count)).map(|(a, b)| -mean * (1.0 - a * b).ln()).collect()
}

fn distribution(form: Form, x: Axis) -> Density {
    let samples = |name: &str, seed, mean| Samples { name: name.into(), values: delays(seed, 800, mean) };
    Density {
        title: "Silence after the path is back".into(),
        x,
        form,
        series: vec![
            samples("linux-6-cubic", 1, 9.0),
            samples("with the retransmission trigger", 2, 0.4),
            samples("Freeze-TCP", 3, 2.0),
        ],
    }
}

fn histogram() -> Drawn {
    let figure = distribution(Form::Histogram { bins: 40 }, Axis::new("silence", Unit::Seconds).between(0.0, 12.0));
    ("histogram", figure.to_svg_file(), figure.to_png())
}

fn cumulative() -> Drawn {
    let figure = distribution(Form::Cumulative, Axis::new("silence", Unit::Seconds).logarithmic());
    ("cumulative", figure.to_svg_file(), figure.to_png())
}

fn map() -> Drawn {
    let pairs = |name: &str, seed, mean: f64| {
        let outages = scattered(seed + 20, 4000).map(|share| share * 120.0);
        let pairs = outages.zip(delays(seed, 4000, mean)).map(|(outage, noise)| (outage, noise + outage * mean / 20.0));
        Pairs { name: name.into(), pairs: pairs.collect() }
    };
    let figure = DensityMap {
        title: "How long silence lasts after outages of different lengths".into(),
        x: Axis::new("outage", Unit::Seconds),
        y: Axis::new("silence afterwards", Unit::Seconds),
        bins: (40, 30),
        series: vec![pairs("linux-6-cubic", 1, 9.0), pairs("with the retransmission trigger", 2, 0.4)],
    };
    ("density-map", figure.to_svg_file(), figure.to_png())
}
