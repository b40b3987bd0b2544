//! The page and its plots.

use std::fs;

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::{Loss, Outage, Outages};
use holdover_report::html::Page;
use holdover_report::plots::{Plot, PlotKind, PlottedRun, plots, progress, time_axis_ends};
use holdover_report::{RecorderOptions, ResultsDir, Summary, VariantSummary};
use holdover_sim::{RequestResponse, Traffic};
use holdover_tcp::Profile;

use crate::worlds::{empty_dir, record, train};

/// The results of a variant.
fn files_of(variant: &str) -> Vec<String> {
    ["captures/phone-eth0.pcapng", "events.jsonl", "samples.csv"].map(|name| format!("{variant}/{name}")).to_vec()
}

/// The page of a run with three stacks.
fn page(name: &str) -> (String, Vec<Vec<Plot>>) {
    let dir = empty_dir(name);
    let profiles = [Profile::Linux6Cubic, Profile::RenoBsd, Profile::TahoeBsd];
    let records: Vec<_> = profiles
        .into_iter()
        .map(|profile| {
            let config = train(profile, 1);
            let record = record(config.clone(), &dir.join(profile.name()), &RecorderOptions::default());
            (profile.name(), config, record)
        })
        .collect();
    let runs: Vec<PlottedRun<'_>> =
        records.iter().map(|(variant, config, record)| PlottedRun { variant, config, record }).collect();
    let ends = time_axis_ends(&records.iter().map(|(_, _, record)| record.ended_at).collect::<Vec<_>>());
    let plots: Vec<Vec<Plot>> = runs.iter().zip(ends).map(|(run, end)| plots(run, &PlotKind::ALL, end)).collect();
    let progress = progress(&runs).unwrap();
    let summary = Summary {
        name: "train".into(),
        title: "A train & <two> tunnels".into(),
        description: "The link goes away twice.\n\nIt comes back.".into(),
        version: "0.1.0".into(),
        seed: 1,
        variants: records.iter().map(|(name, _, record)| VariantSummary::new(name, name, record)).collect(),
    };
    let files: Vec<Vec<String>> = profiles.iter().map(|profile| files_of(profile.name())).collect();
    let scenario = "title = \"<b>\"\n";
    let page = Page { summary: &summary, scenario, progress: Some(&progress), plots: &plots, files: &files }.to_html();
    fs::write(dir.join("report.html"), &page).unwrap();
    let results = ResultsDir::open(&dir).unwrap();
    results.write_plot("", &progress).unwrap();
    for (variant, plots) in profiles.iter().zip(&plots) {
        for plot in plots {
            results.write_plot(variant.name(), plot).unwrap();
        }
    }
    (page, plots)
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let (page, _) = page("page");
    let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in
        ["http:", "https:", "//", "src=", "url(", "@import", "<link", "<img", "<iframe", "fetch(", "import("]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    // Plots are complete without the script, which only reads data in the page.
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.find("</script>") < page.find("<body>"));
    // Links point to a place on the page, or to a file beside it.
    let links: Vec<&str> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() >= 8, "{links:?}");
    for file in files_of("reno-bsd") {
        assert!(links.contains(&file.as_str()), "{file} in {links:?}");
    }
    for link in links {
        let leads = match link.strip_prefix('#') {
            Some(id) => page.matches(&format!("id=\"{id}\"")).count() == 1,
            None => {
                let is_variants = |profile: &Profile| files_of(profile.name()).contains(&link.to_owned());
                let of_variants = [Profile::Linux6Cubic, Profile::RenoBsd, Profile::TahoeBsd].iter().any(is_variants);
                of_variants || link.ends_with('/') || ["summary.json", "flows.csv", "scenario.toml"].contains(&link)
            }
        };
        assert!(leads, "{link}");
    }
    assert!(page.contains("<title>A train &amp; &lt;two&gt; tunnels</title>"));
    assert!(page.contains("title = &quot;&lt;b&gt;&quot;"), "the scenario is text");
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
    for part in ["svg", "section", "details", "table", "figure", "div", "main", "p"] {
        let opened = page.matches(&format!("<{part}>")).count() + page.matches(&format!("<{part} ")).count();
        assert_eq!(opened, page.matches(&format!("</{part}>")).count(), "{part}");
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn a_page_says_in_words_what_happened() {
    let (page, _) = page("words");
    let page = page.replace('\u{a0}', " ");
    assert!(page.contains("<p>The link wifi was down from 10 s to 17 s and from 24 s to 26 s.</p>"));
    assert!(page.contains("<b>linux-6-cubic</b>: 6 MB arrived in "));
    assert!(page.contains("After the path was back it took "));
    assert!(page.contains("was the fastest with "));
}

/// Each flow has its paragraph, which begins with its name.
#[test]
fn a_page_says_of_each_flow_what_happened() {
    let dir = empty_dir("words-of-flows");
    let record = record(train(Profile::RenoBsd, 1), &dir.join("reno"), &RecorderOptions::default());
    let mut variant = VariantSummary::new("reno", "reno", &record);
    let mut other = variant.flows[0].clone();
    other.flow = "other".into();
    let first = std::mem::replace(&mut variant.flows[0].flow, "first".into());
    assert_ne!(first, "first");
    variant.flows.push(other);
    let summary = Summary {
        name: "train".into(),
        title: "A train".into(),
        description: String::new(),
        version: "0.1.0".into(),
        seed: 1,
        variants: vec![variant],
    };
    let page = Page { summary: &summary, scenario: "", progress: None, plots: &[Vec::new()], files: &[] }.to_html();
    for flow in ["first", "other"] {
        assert_eq!(page.matches(&format!("<p><b>{flow}</b>: ")).count(), 1, "{flow}");
    }
}

/// Exchanges over a link that goes away for good at `down`.
fn exchanges_until(down: Instant, count: Option<u64>) -> VariantSummary {
    let mut config = train(Profile::Linux6Cubic, 1);
    config.time_limit = Instant::from_secs(5);
    let link = &mut config.links[1];
    for direction in [&mut link.forward, &mut link.backward] {
        direction.loss = Loss::None;
        direction.outages = Outages::List(vec![Outage { down, up: Instant::from_secs(60) }]);
    }
    config.flows[0].traffic = Traffic::RequestResponse(RequestResponse {
        request: ByteCount(300),
        response: ByteCount(4_000),
        think: Duration::from_secs(1),
        count,
    });
    let dir = empty_dir(&format!("exchanges-{count:?}-{}", down.as_secs_f64()));
    VariantSummary::new("cubic", "cubic", &record(config, &dir, &RecorderOptions::default()))
}

// Claim: A flow with a number of exchanges that hangs is called unfinished; one without an end is not, even if no exchange was completed.
#[test]
fn a_flow_is_unfinished_if_it_has_an_end_that_it_has_not_reached() {
    let (later, at_once) = (Instant::from_millis(1_000), Instant::from_millis(100));
    for (down, count, exchanges, status, is_bad) in [
        (later, Some(5), 1, "unfinished", true),
        (at_once, Some(5), 0, "unfinished", true),
        (later, None, 1, "to the end", false),
        (at_once, None, 0, "to the end", false),
    ] {
        let variant = exchanges_until(down, count);
        let flow = &variant.flows[0];
        let completed = flow.exchanges.map_or(0, |exchanges| exchanges.count);
        assert_eq!((completed, flow.endless), (exchanges, count.is_none()), "{count:?}");
        let summary = Summary {
            name: "exchanges".into(),
            title: "Exchanges".into(),
            description: String::new(),
            version: "0.1.0".into(),
            seed: 1,
            variants: vec![variant],
        };
        let text = summary.to_text(200);
        assert!(text.contains(status), "{count:?}: {text}");
        let page = Page { summary: &summary, scenario: "", progress: None, plots: &[Vec::new()], files: &[] }.to_html();
        let class = if is_bad { " class=\"bad\"" } else { "" };
        assert!(page.contains(&format!("<td{class}>{status}</td>")), "{count:?}");
        assert_eq!(page.contains("; unfinished when the run ended"), is_bad && exchanges > 0, "{count:?}");
    }
}

/// Readable without colour, and without sight.
#[test]
fn curves_differ_in_more_than_colour_and_plots_are_described() {
    let (page, plots) = page("described");
    let figure = page.split("<figure>").nth(1).unwrap().split("</figure>").next().unwrap();
    let label = figure.split("aria-label=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(label.starts_with("Data received: ") && label.contains("Shaded: wifi down, 10 s to 17 s"), "{label}");
    assert!(label.contains("linux-6-cubic: ") && label.contains(", 6 MB at "), "{label}");
    // Curves have their own colours; grid lines and axes share theirs.
    let styles = |figure: &str| -> Vec<(String, bool)> {
        let lines = figure.split("<path ").filter_map(|path| path.strip_prefix("class=\"line s-"));
        let lines = lines.map(|line| {
            let ink = line.split('"').next().unwrap();
            let is_marked = figure.contains(&format!("class=\"f-{ink}\" d="));
            (ink.to_owned(), line.contains("stroke-dasharray") || is_marked)
        });
        lines.filter(|(ink, _)| !["grid", "axis"].contains(&ink.as_str())).collect()
    };
    let lines = styles(figure);
    assert!(lines.iter().any(|line| line.1) && lines.iter().any(|line| !line.1), "{lines:?}");
    for name in ["time-sequence", "rtt", "queues", "window"] {
        let plot = plots[0].iter().find(|plot| plot.name == name).unwrap().inline_svg();
        let mut lines = styles(&plot);
        lines.sort();
        lines.dedup();
        let plain = lines.iter().filter(|line| !line.1).count();
        // Of the window's two solid lines without marks, one is the edge of an area.
        assert!(plain <= if name == "window" { 2 } else { 1 }, "{name}: {lines:?}");
    }
}

/// The values that the script shows under the pointer: it finds curves by their places among the children of a picture.
#[test]
fn a_page_has_the_values_of_its_plots() {
    let (page, plots) = page("values");
    assert_eq!(page.matches(" data-plots=").count(), page.matches("<svg ").count());
    let plot = plots[0].iter().find(|plot| plot.name == "rtt").unwrap().inline_svg();
    let (_, rest) = plot.split_once(" data-plots=\"").unwrap();
    let (data, shapes) = rest.split_once("\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(&data.replace("&quot;", "\"")).unwrap();
    let data = &data[0];
    assert_eq!((data["unit"].as_str(), data["log"].as_bool()), (Some("s"), Some(true)), "{data}");
    let [left, top, right, bottom] = [0, 1, 2, 3].map(|edge| data["box"][edge].as_f64().unwrap());
    assert!(0.0 < left && left < right && 0.0 < top && top < bottom, "{data}");
    // Each shape is one element.
    let shapes: Vec<&str> = shapes.split("<").skip(1).filter(|element| !element.starts_with('/')).collect();
    let curve = &data["curves"][0];
    assert_eq!(curve[0], "RTO");
    let places = curve[1].as_u64().unwrap() as usize..curve[2].as_u64().unwrap() as usize;
    assert!(!places.is_empty());
    for shape in &shapes[places] {
        assert!(shape.starts_with("path class=\"line s-timeout\""), "{shape}");
    }
}

#[test]
fn plots_are_svg_and_png_and_show_outages_and_retransmissions() {
    let (page, plots) = page("plots");
    assert!(plots.iter().all(|plots| plots.len() == PlotKind::ALL.len()));
    assert_eq!(page.matches("<svg ").count(), 1 + 3 * PlotKind::ALL.len());
    let sequence = plots[0].iter().find(|plot| plot.name == "time-sequence").unwrap().inline_svg();
    // A swatch in the legend and two outages.
    assert_eq!(sequence.matches("<rect class=\"f-outage\"").count(), 3);
    assert!(sequence.contains("mark s-timeout") && sequence.contains("f-fast") && sequence.contains("wifi down"));
    let dir = empty_dir("plot-files");
    ResultsDir::open(&dir).unwrap().write_plot("", &plots[0][0]).unwrap();
    let png = fs::read(dir.join("time-sequence.png")).unwrap();
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let side = |at: usize| u32::from_be_bytes([png[at], png[at + 1], png[at + 2], png[at + 3]]);
    assert_eq!(side(16), 1920, "twice 960");
    let svg = fs::read_to_string(dir.join("time-sequence.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("<style>") && svg.ends_with("</svg>\n"));
}
