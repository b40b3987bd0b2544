//! Figures: positions, texts, and robustness against any data.

use holdover_report::figures::{
    Axis, Bar, BarSeries, Bars, Density, DensityMap, Form, LinePoint, LineSeries, Lines, Pairs, Published, Samples,
    Scale, Surface, Unit, Words,
};
use proptest::prelude::*;

/// A text of a picture, with its position.
#[derive(Clone, PartialEq, Debug)]
struct Text {
    words: String,
    x: f64,
    y: f64,
    anchor: String,
    turned: bool,
}

fn attribute(element: &str, name: &str) -> Option<String> {
    let start = element.find(&format!(" {name}=\""))? + name.len() + 3;
    Some(element[start..start + element[start..].find('"')?].to_owned())
}

fn number(element: &str, name: &str) -> f64 {
    attribute(element, name).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} of {element}"))
}

fn texts(svg: &str) -> Vec<Text> {
    svg.split("<text")
        .skip(1)
        .map(|rest| {
            let (element, rest) = rest.split_once('>').unwrap();
            Text {
                words: rest[..rest.find("</text>").unwrap()].to_owned(),
                x: number(element, "x"),
                y: number(element, "y"),
                anchor: attribute(element, "text-anchor").unwrap_or_default(),
                turned: element.contains("rotate(-90"),
            }
        })
        .collect()
}

fn text(svg: &str, words: &str) -> Text {
    texts(svg).into_iter().find(|text| text.words == words).unwrap_or_else(|| panic!("{words:?} in {:?}", texts(svg)))
}

/// x, y, width and height of all boxes of a class, or of a colour.
fn boxes(svg: &str, paint: &str) -> Vec<[f64; 4]> {
    let elements = svg.split("<rect ").skip(1).filter(|element| element.starts_with(paint));
    elements.map(|element| ["x", "y", "width", "height"].map(|name| number(element, name))).collect()
}

/// Asserts that every text is within the picture and none overlaps another, assuming the least letter widths.
fn assert_readable(svg: &str) {
    let (width, height) = (number(svg, "width"), number(svg, "height"));
    let areas: Vec<([f64; 4], String)> = texts(svg)
        .into_iter()
        .map(|text| {
            let long = text.words.chars().count() as f64 * 5.0;
            let back = match text.anchor.as_str() {
                "middle" => long / 2.0,
                "end" => long,
                _ => 0.0,
            };
            let area = if text.turned {
                [text.x - 9.0, text.y + back - long, text.x, text.y + back]
            } else {
                [text.x - back, text.y - 9.0, text.x - back + long, text.y]
            };
            (area, text.words)
        })
        .collect();
    for (index, ([left, top, right, bottom], words)) in areas.iter().enumerate() {
        assert!(*left >= 0.0 && *right <= width && *top >= 0.0 && *bottom <= height, "{words:?} is cut off");
        for ([other_left, other_top, other_right, other_bottom], other) in &areas[index + 1..] {
            let apart = right <= other_left || other_right <= left || bottom <= other_top || other_bottom <= top;
            assert!(apart, "{words:?} and {other:?} overlap");
        }
    }
}

fn lines(points: &[(f64, f64, f64)], published: &[(f64, f64)]) -> Lines {
    let points = points.iter().map(|&(x, y, half)| LinePoint { x, y, half_width: Some(half) }).collect();
    Lines {
        title: "Transfer time".into(),
        x: Axis::new("disconnection", Unit::Seconds),
        y: Axis::new("goodput", Unit::BitsPerSecond),
        series: vec![LineSeries { name: "M-TCP".into(), points, published: published.to_vec() }],
        words: Words::default(),
    }
}

fn bars(series: &[&[Bar]]) -> Bars {
    Bars {
        title: "Net time".into(),
        y: Axis::new("net time", Unit::Seconds),
        groups_label: "connected / disconnected".into(),
        groups: vec!["37 s / 37 s".into(), "37 s / 67 s".into()],
        series: series
            .iter()
            .enumerate()
            .map(|(n, bars)| BarSeries { name: format!("stack {n}"), bars: bars.to_vec() })
            .collect(),
        show_values: true,
        words: Words::default(),
    }
}

fn bar(value: f64) -> Bar {
    Bar { value: Some(value), ..Bar::default() }
}

fn surface(cells: Vec<Vec<Option<f64>>>) -> Surface {
    Surface {
        title: "Net time".into(),
        x: Axis::new("disconnection", Unit::Seconds),
        x_values: vec![10.0, 20.0, 40.0],
        y: Axis::new("rate", Unit::BitsPerSecond),
        y_values: vec![1e6, 10e6],
        value: Axis::new("net time", Unit::Seconds),
        cells,
        show_values: true,
        words: Words::default(),
    }
}

#[test]
fn lines_have_units_a_legend_and_published_values_in_the_same_colour() {
    let svg = lines(&[(0.0, 1e6, 1e5), (60.0, 4e6, 2e5), (120.0, 8e6, 0.0)], &[(0.0, 1e6), (120.0, 7e6)]).to_svg_file();
    assert_readable(&svg);
    for words in ["goodput (Mbit/s)", "disconnection (s)", "M-TCP", "published", "95 % confidence interval"] {
        text(&svg, words);
    }
    assert_eq!(svg.matches("<path class=\"line s-c1\" stroke-width=\"1.5\" stroke-dasharray").count(), 1);
    assert_eq!(svg.matches("<path class=\"mark f-paper s-c1\"").count(), 1, "open marks");
    // Ticks match their values: evenly spaced.
    let [low, middle, high] = ["0", "40", "80"]
        .map(|words| texts(&svg).into_iter().find(|text| text.words == words && text.anchor == "middle").unwrap().x);
    assert!((middle - low - (high - middle)).abs() < 0.3 && high > middle);
    assert!(svg.contains("prefers-color-scheme:dark"));
}

#[test]
fn a_logarithmic_axis_spreads_powers_of_ten_evenly_and_says_what_it_cannot_show() {
    let mut figure = lines(&[(0.001, 1e6, 0.0), (0.1, 2e6, 0.0), (10.0, 3e6, 0.0), (0.0, 3e6, 0.0)], &[]);
    figure.x = figure.x.logarithmic();
    let svg = figure.to_svg_file();
    assert_readable(&svg);
    let [first, second, third] = ["1 ms", "100 ms", "10 s"].map(|words| text(&svg, words).x);
    assert!((second - first - (third - second)).abs() < 0.3 && third > second);
    text(&svg, "1 value is not shown: not a number, or not within the axes.");
}

#[test]
fn bars_are_as_long_as_their_values() {
    let svg = bars(&[&[bar(100.0), bar(50.0)], &[bar(25.0), bar(-25.0)]]).to_svg_file();
    assert_readable(&svg);
    // The first box of each is the legend's.
    let (ours, theirs) = (boxes(&svg, "class=\"f-c1\""), boxes(&svg, "class=\"f-c2\""));
    assert_eq!((ours.len(), theirs.len()), (3, 3));
    let height = ours[1][3];
    for (bar, share) in [(ours[2], 0.5), (theirs[1], 0.25), (theirs[2], 0.25)] {
        assert!((bar[3] / height - share).abs() < 0.01, "{bar:?}");
    }
    let zero = ours[1][1] + height;
    assert!((ours[2][1] + ours[2][3] - zero).abs() < 0.2 && (theirs[2][1] - zero).abs() < 0.2, "a negative one hangs");
    assert!(ours[1][0] + ours[1][2] <= theirs[1][0] && theirs[1][0] < ours[2][0], "side by side in their group");
    for value in ["100", "50", "25", "-25"] {
        text(&svg, value);
    }
}

#[test]
fn aborted_runs_are_labelled_in_place_and_published_values_are_ticks() {
    let aborted = Bar { published: Some(Published::Value(80.0)), ..Bar::default() };
    let measured = Bar { half_width: Some(4.0), published: Some(Published::Between(90.0, 110.0)), ..bar(100.0) };
    let svg = bars(&[&[aborted, measured]]).to_svg_file();
    assert_readable(&svg);
    let [group, word] = ["37 s / 37 s", "aborted"].map(|words| text(&svg, words));
    assert!((group.x - word.x).abs() < 0.2 && word.y < group.y && !word.turned);
    text(&svg, "published");
    // One for the legend, one for the value, two for the interval.
    assert_eq!(svg.matches("<path class=\"line s-text\" stroke-width=\"2\"").count(), 4);
    let many: Vec<&[Bar]> = vec![&[Bar { value: None, half_width: None, published: None }]; 12];
    assert!(text(&bars(&many).to_svg_file(), "aborted").turned, "where there is no room, upwards");
}

#[test]
fn a_surface_has_a_cell_for_each_pair_and_crosses_out_what_is_missing() {
    let svg = surface(vec![vec![Some(1.0), Some(2.0), None], vec![Some(3.0), Some(4.0), Some(5.0)]]).to_svg_file();
    assert_readable(&svg);
    for words in ["disconnection (s)", "rate (Mbit/s)", "net time (s)", "aborted", "10", "20", "40"] {
        text(&svg, words);
    }
    let missing = boxes(&svg, "class=\"f-grid\"");
    assert_eq!(missing.len(), 2, "one in the legend");
    // To the right and below: the first row is the lowest.
    let (column, row) =
        (text(&svg, "40"), texts(&svg).into_iter().find(|text| text.words == "1" && text.anchor == "end").unwrap());
    let [x, y, width, height] = missing[1];
    assert!((x + width / 2.0 - column.x).abs() < 1.0 && (y + height / 2.0 + 4.0 - row.y).abs() < 1.0);
}

#[test]
fn values_beyond_the_colours_have_those_of_the_ends_and_the_figure_says_so() {
    let mut figure = surface(vec![vec![Some(1.0), Some(2.0), Some(500.0)], vec![Some(3.0), Some(4.0), Some(10.0)]]);
    figure.value = figure.value.between(1.5, 10.0);
    let svg = figure.to_svg_file();
    assert_readable(&svg);
    text(&svg, "Values beyond the colours have those of the ends: 1 below 1.5 s, 1 above 10 s.");
    let fills: Vec<&str> = svg.split("<rect fill=\"").skip(1).map(|rest| &rest[..7]).collect();
    assert_eq!(fills[2], fills[5], "500 s and 10 s");
    assert_ne!(fills[1], fills[3]);
}

#[test]
fn a_distribution_reaches_one_and_a_histogram_adds_up() {
    let samples = |name: &str, values: &[f64]| Samples { name: name.into(), values: values.to_vec() };
    let mut figure = Density {
        title: "Silence".into(),
        x: Axis::new("silence", Unit::Seconds).between(0.0, 10.0),
        form: Form::Cumulative,
        series: vec![samples("a", &[1.0, 2.0, 2.0, 9.0, 90.0]), samples("b", &[5.0, f64::NAN])],
    };
    let svg = figure.to_svg_file();
    assert_readable(&svg);
    for words in ["a (n = 5)", "b (n = 1)", "100", "silence (s)"] {
        text(&svg, words);
    }
    text(&svg, "1 sample is not shown: not a number, or without a place on the axis.");
    text(&svg, "1 sample is not shown: beyond the axis, but counted in the shares.");
    figure.form = Form::Histogram { bins: 5 };
    let svg = figure.to_svg_file();
    assert_readable(&svg);
    text(&svg, "share of the samples in each bin (%)");
}

#[test]
fn pairs_have_a_plane_for_each_series() {
    let pairs: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n), f64::from(n * n % 37))).collect();
    let series = ["one", "two", "three", "four"].map(|name| Pairs { name: name.into(), pairs: pairs.clone() });
    let svg = DensityMap {
        title: "Silence by outage".into(),
        x: Axis::new("outage", Unit::Seconds),
        y: Axis::new("silence", Unit::Seconds),
        bins: (0, 0),
        series: series.to_vec(),
    }
    .to_svg_file();
    let [one, two, four] = ["one (n = 100)", "two (n = 100)", "four (n = 100)"].map(|words| text(&svg, words));
    assert!(one.x < two.x && one.y == two.y && four.x == one.x && four.y > one.y);
    assert!(number(&svg, "height") > four.y + 260.0);
}

#[test]
fn long_names_and_many_groups_stay_within_the_picture() {
    let mut figure = bars(&[&[bar(1.0); 60]]);
    figure.title = "a very long title ".repeat(30);
    figure.groups = (0..60).map(|n| format!("group number {n} of many, with a name that is much too long")).collect();
    figure.series[0].name = "a very long name of a series ".repeat(20);
    figure.y.label = "what was measured in this figure ".repeat(10);
    assert_readable(&figure.to_svg_file());
    let mut figure = surface(Vec::new());
    figure.value.label = "the time that was left over ".repeat(10);
    figure.y.label = "what was varied upwards ".repeat(10);
    figure.x_values = (0..200).map(|n| 0.001 * f64::from(n)).collect();
    figure.y_values = figure.x_values.clone();
    assert_readable(&figure.to_svg_file());
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        Just(7.0),
        -100.0..100.0_f64,
        (-300..300_i32).prop_map(|power| 10_f64.powi(power)),
    ]
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let units =
        [Unit::Seconds, Unit::BitsPerSecond, Unit::Bytes, Unit::Ratio, Unit::Count, Unit::Segments, Unit::Packets];
    let range = proptest::option::of((any_number(), any_number()));
    let scale = prop_oneof![Just(Scale::Linear), Just(Scale::Logarithmic)];
    ("\\PC{0,12}", proptest::sample::select(units.to_vec()), scale, range)
        .prop_map(|(label, unit, scale, range)| Axis { label, unit, scale, range })
}

fn assert_drawn(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for nonsense in ["NaN", "inf\"", "inf ", "-inf"] {
        assert!(!svg.replace("information", "").contains(nonsense), "{nonsense}");
    }
    // Coordinates stay near the picture.
    for element in svg.split("d=\"").skip(1) {
        let path = &element[..element.find('"').unwrap()];
        for number in path.split(|letter: char| !(letter.is_ascii_digit() || letter == '.')).filter(|n| !n.is_empty()) {
            assert!(number.parse::<f64>().unwrap() < 20_000.0, "{path}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_data_is_too_bad_to_draw(
        (x, y) in (any_axis(), any_axis()),
        numbers in proptest::collection::vec((any_number(), any_number(), proptest::option::of(any_number())), 0..24),
        columns in 0..6_usize,
        bins in 0..9_usize,
        // Rendering pixels is slow: one kind of figure per case.
        as_png in 0..5_usize,
    ) {
        let pairs: Vec<(f64, f64)> = numbers.iter().map(|number| (number.0, number.1)).collect();
        let points = numbers.iter().map(|&(x, y, half_width)| LinePoint { x, y, half_width }).collect();
        let series = LineSeries { name: "a".into(), points, published: pairs.clone() };
        let figure = Lines {
            title: String::new(), x: x.clone(), y: y.clone(), series: vec![series, LineSeries::default()], words: Words::default(),
        };
        assert_drawn(&figure.to_svg_file());
        if as_png == 0 {
            prop_assert!(figure.to_png().is_ok());
        }

        let bars: Vec<Bar> = numbers.iter().enumerate().map(|(n, &(value, other, half_width))| Bar {
            value: (n % 3 > 0).then_some(value),
            half_width,
            published: [None, Some(Published::Value(other)), Some(Published::Between(other, value)), Some(Published::Above(other)), Some(Published::Below(value))][n % 5],
        }).collect();
        let series = bars.chunks(columns.max(1)).map(|bars| BarSeries { name: "b".into(), bars: bars.to_vec() });
        let groups = (0..columns).map(|n| format!("group {n}")).collect();
        let figure = Bars {
            title: "Bars".into(), y: y.clone(), groups_label: String::new(), groups, series: series.collect(), show_values: true, words: Words::default(),
        };
        assert_drawn(&figure.to_svg_file());
        if as_png == 1 {
            prop_assert!(figure.to_png().is_ok());
        }

        let cells = numbers.chunks(columns.max(1)).map(|row| row.iter().map(|number| number.2).collect()).collect();
        let figure = Surface {
            title: "Surface".into(),
            x: x.clone(),
            x_values: numbers.iter().take(columns).map(|number| number.0).collect(),
            y: y.clone(),
            y_values: numbers.iter().take(bins).map(|number| number.1).collect(),
            value: y.clone(), cells, show_values: true, words: Words::default(),
        };
        assert_drawn(&figure.to_svg_file());
        if as_png == 2 {
            prop_assert!(figure.to_png().is_ok());
        }

        for form in [Form::Cumulative, Form::Histogram { bins }] {
            let values = pairs.iter().map(|pair| pair.0).collect();
            let series = vec![Samples { name: "d".into(), values }, Samples::default()];
            let figure = Density { title: "Density".into(), x: x.clone(), form, series };
            assert_drawn(&figure.to_svg_file());
            if as_png == 3 {
                prop_assert!(figure.to_png().is_ok());
            }
        }
        let figure = DensityMap {
            title: "Pairs".into(), x, y, bins: (bins, columns), series: vec![Pairs { name: "e".into(), pairs }; columns],
        };
        assert_drawn(&figure.to_svg_file());
        if as_png == 4 {
            prop_assert!(figure.to_png().is_ok());
        }
    }
}
