//! The report of the demo: a page that one would show to others.

use holdover_base::Instant;
use holdover_report::plots::{Panel, Plot, PlotKind, PlottedRun, plots, progress_of_flows};
use holdover_report::{
    Article, KernelSummary, LatenessMetrics, Manifest, RecordError, ResultsDir, Summary, VariantSummary,
};
use holdover_sim::FlowId;
use holdover_testbed::kernel_release;
use holdover_transfers::{CUT_AT, Help, NetPath, TransferDirection, spaced};

use super::story::{Story, megabytes};
use super::{CUT, Played, SHOWN, VARIANT};

/// Writes everything that a run leaves, with a page of its own.
pub(super) fn write(
    story: &Story,
    played: &Played,
    results: &ResultsDir,
    started_at: String,
    took: std::time::Duration,
) -> Result<(), RecordError> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let run = PlottedRun { variant: "", config: &played.world, record: &played.record };
    let figure = progress_of_flows(&run, &panels(story), "the link is cut");
    results.write_plot("", &figure)?;
    let end = played.record.ended_at;
    let more: Vec<Plot> =
        plots(&run, &[PlotKind::TimeSequence, PlotKind::Window], end).into_iter().take(2 * SHOWN).collect();
    results.write_summary(&summary(story, played, &version))?;
    let directory = &ResultsDir::variant_directories([VARIANT])[0];
    let mut files = vec!["summary.json".to_owned(), "flows.csv".to_owned()];
    files.extend(results.files_below(directory));
    let article = Article {
        title: &title(story),
        lead: &story.lesson(),
        figure: &figure,
        table: &story.table(),
        notes: &[story.what_the_ideal_is()],
        more: &more,
        facts: &facts(story, played),
        files: &files,
        directory,
    };
    results.write("report.html", article.to_html().as_bytes())?;
    results.write_manifest(&Manifest {
        version,
        seed: Some(played.world.seed),
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_at,
        took_s: took.as_secs_f64(),
    })
}

fn title(story: &Story) -> String {
    format!("A link is cut for {}: TCP ({}) without and with Holdover's agent", spaced(CUT), story.sender.name())
}

/// Download and upload, each plain and with the agent.
fn panels(story: &Story) -> Vec<Panel<'static>> {
    let panel = |direction: TransferDirection| {
        let named = |help: Help, name| {
            let is_it = |flow: &super::story::Flow| flow.transfer.direction == direction && flow.transfer.help == help;
            story.flows.iter().position(is_it).map(|index| (FlowId(index as u32), name))
        };
        let flows = [named(Help::Agent, "with the agent"), named(Help::Plain, "plain")];
        Panel { title: direction.headline(), flows: flows.into_iter().flatten().collect() }
    };
    TransferDirection::ALL.map(panel).to_vec()
}

fn facts(story: &Story, played: &Played) -> Vec<String> {
    let NetPath { rate, delay, queue } = NetPath::DEFAULT;
    let mut facts = vec![
        format!(
            "All transfers ran at the same time, {}, each over a link of its own: {rate}, {} each way, a queue of {queue} packets. \
             {} each, which takes about ten seconds without a cut. {} after the beginning the links are cut for {}; what is on \
             the way or queued then is lost. The senders use {}.",
            story.place(),
            spaced(delay),
            megabytes(),
            spaced(CUT_AT.saturating_since(Instant::ZERO)),
            spaced(CUT),
            story.sender.name(),
        ),
        format!(
            "{} It learns of the cut when it is there, and of the link's return when it is back. The servers, the \
             phones' own TCP and the applications are the same with it as without.",
            story.where_the_agent_is()
        ),
    ];
    if let Some(lateness) = &played.lateness {
        facts.push(format!(
            "99 of 100 packets reached their kernel within {:.1} ms of when they were due, the latest after {:.1} ms.",
            lateness.quantile(0.99).as_secs_f64() * 1e3,
            lateness.max().as_secs_f64() * 1e3
        ));
    }
    let command: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    facts.push(format!(
        "Holdover {}: {}. The files have every figure and every packet.",
        env!("CARGO_PKG_VERSION"),
        command.join(" ")
    ));
    facts
}

fn summary(story: &Story, played: &Played, version: &str) -> Summary {
    let directory = &ResultsDir::variant_directories([VARIANT])[0];
    let mut variant = VariantSummary::new(VARIANT, directory, &played.record);
    variant.kernel = played.lateness.as_ref().map(|lateness| KernelSummary {
        release: kernel_release(),
        simulated: VARIANT.to_owned(),
        lateness: LatenessMetrics::new(lateness.packets(), |share| lateness.quantile(share), lateness.max()),
        hosts: Vec::new(),
        repetitions: Vec::new(),
    });
    Summary {
        name: VARIANT.to_owned(),
        title: title(story),
        description: story.lesson(),
        version: version.to_owned(),
        seed: played.world.seed,
        variants: vec![variant],
    }
}
