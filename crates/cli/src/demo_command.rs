//! `holdover demo`: what an outage does to TCP, shown with what is here.
//!
//! Two parts: downloads and uploads across an outage of 7 s in the simulator, and Holdover's TCP against this machine's kernel
//! across one of 2 s. The agent that cures what the first part shows is not built yet, and the demo says so.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, LinkBetween, NoObserver, NodeConfig, NodeId, Opener, Role, Traffic, World,
    WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::matrix::{self, Combination, Family, Flow, Mtu, Opening, Path, RunOptions};
use holdover_testbed::{Congestion, Privilege};
use serde::Serialize;

const RATE: BitRate = BitRate::from_mbps(10);
const DELAY: Duration = Duration::from_millis(25);
const DOWN: Instant = Instant::from_secs(4);
const UP: Instant = Instant::from_secs(11);
/// Ten seconds' worth of data at the link's rate.
const AMOUNT: ByteCount = ByteCount(12_000_000);

/// Arguments of `holdover demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// What the demo has shown.
#[derive(Debug, Serialize)]
struct Demo {
    /// Where the transfers of `flows` took place.
    world: &'static str,
    flows: Vec<FlowRow>,
    kernel: Kernel,
}

/// One transfer across the outage.
#[derive(Debug, Serialize)]
struct FlowRow {
    direction: &'static str,
    sender: &'static str,
    /// Whether the agent was at work: it is not built yet.
    agent: bool,
    /// From the link's return to the first new data at the receiver.
    resume_ms: Option<f64>,
    completion_s: Option<f64>,
    /// The time that a perfect sender would have needed, over the time taken.
    ideal_share: Option<f64>,
    timeouts: u32,
}

/// Holdover's TCP and the kernel's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kernel {
    /// Why it could not be tried.
    NotTried(String),
    /// Each transfer.
    Transfers(Vec<KernelRow>),
}

#[derive(Debug, Serialize)]
struct KernelRow {
    what: &'static str,
    combination: String,
    seconds: Option<f64>,
    /// Why the transfer failed or what was wrong with it; empty if all is well.
    findings: Vec<String>,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    // Before the first thread: this may have to enter a user namespace.
    let privilege = Privilege::acquire();
    let flows: Vec<FlowRow> = [Opener::Receiver, Opener::Sender]
        .into_iter()
        .flat_map(|opener| [Profile::Linux6Cubic, Profile::Linux6Reno, Profile::RenoBsd].map(|p| simulate(opener, p)))
        .collect();
    if !args.json {
        print_flows(&flows);
    }
    let kernel = match privilege {
        Ok(_) => Kernel::Transfers(against_the_kernel()),
        Err(error) => Kernel::NotTried(error.to_string()),
    };
    let sound = match &kernel {
        Kernel::NotTried(_) => true,
        Kernel::Transfers(rows) => rows.iter().all(|row| row.findings.is_empty()),
    };
    if args.json {
        let demo = Demo { world: "simulator", flows, kernel };
        println!("{}", serde_json::to_string_pretty(&demo).expect("plain values"));
    } else {
        print_kernel(&kernel);
        print_outlook();
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A phone and a server, and a link that is away from [`DOWN`] to [`UP`].
fn simulate(opener: Opener, profile: Profile) -> FlowRow {
    let link = LinkConfig {
        rate: Rate::Fixed(RATE),
        delay: DELAY,
        queue_limit: QueueLimit::Packets(75),
        outages: Outages::List(vec![Outage { down: DOWN, up: UP }]),
        outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
        ..LinkConfig::default()
    };
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    let (phone, server) = (NodeId(0), NodeId(1));
    // The phone opens the connection: it receives, or it sends.
    let (from, to) = if opener == Opener::Receiver { (server, phone) } else { (phone, server) };
    let config = Arc::new(profile.config());
    let world = WorldConfig {
        seed: 1,
        nodes: vec![host("phone"), host("server")],
        links: vec![LinkBetween { name: "link".into(), a: phone, b: server, forward: link.clone(), backward: link }],
        flows: vec![FlowConfig {
            name: "transfer".into(),
            from,
            to,
            start: Instant::ZERO,
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(AMOUNT), opener }),
            ipv6: false,
        }],
        time_limit: Instant::from_secs(600),
        sample_every: None,
        ..WorldConfig::default()
    };
    let mut world = World::new(world).expect("a valid world");
    world.run(&mut NoObserver);
    row(opener, profile, &world.report()[0])
}

fn row(opener: Opener, profile: Profile, report: &FlowReport) -> FlowRow {
    FlowRow {
        direction: if opener == Opener::Receiver { "download" } else { "upload" },
        sender: profile.name(),
        agent: false,
        resume_ms: report.reconnections.first().and_then(|back| back.idle).map(|idle| idle.as_secs_f64() * 1e3),
        completion_s: report.completed_at.map(|at| at.saturating_since(report.started_at).as_secs_f64()),
        ideal_share: report.ideal_share(),
        timeouts: report.sender.as_ref().map_or(0, |counters| counters.timeouts),
    }
}

/// Two transfers at the same time, each in a network namespace of its own.
fn against_the_kernel() -> Vec<KernelRow> {
    let combination = |flow| Combination {
        opening: Opening::Listen,
        flow,
        congestion: Congestion::Cubic,
        sack: true,
        timestamps: true,
        window_scaling: true,
        path: Path::Outage,
        mtu: Mtu::Ethernet,
        family: Family::V4,
        profile: Profile::Linux6Cubic,
    };
    let both =
        [("the kernel sends, Holdover receives", Flow::Receive), ("Holdover sends, the kernel receives", Flow::Send)];
    std::thread::scope(|scope| {
        let started = both.map(|(what, flow)| {
            let combination = combination(flow);
            scope.spawn(move || kernel_row(what, &combination))
        });
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn kernel_row(what: &'static str, combination: &Combination) -> KernelRow {
    match matrix::run(combination, &RunOptions::new(combination)) {
        Ok(outcome) => KernelRow {
            what,
            combination: combination.to_string(),
            seconds: Some(outcome.took.as_secs_f64()),
            findings: outcome.findings,
        },
        Err(error) => {
            KernelRow { what, combination: combination.to_string(), seconds: None, findings: vec![error.to_string()] }
        }
    }
}

fn print_flows(flows: &[FlowRow]) {
    println!("A phone loads and sends {} over a link of {RATE} and {} round trip.", megabytes(AMOUNT), DELAY * 2);
    println!(
        "From {} s to {} s the link is away, {} in all. It comes back; TCP does not notice:\n",
        DOWN.as_secs_f64(),
        UP.as_secs_f64(),
        UP.saturating_since(DOWN)
    );
    println!(
        "  {:9} {:14} {:>17} {:>13} {:>9}  time, one character = 0.5 s",
        "", "sender", "lost after return", "completed in", "of ideal"
    );
    for flow in flows {
        let seconds = |value: Option<f64>| value.map_or("never".into(), |value| format!("{value:.2} s"));
        println!(
            "  {:9} {:14} {:>17} {:>13} {:>9}  {}",
            flow.direction,
            flow.sender,
            seconds(flow.resume_ms.map(|ms| ms / 1e3)),
            seconds(flow.completion_s),
            flow.ideal_share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0)),
            bar(flow)
        );
    }
    println!("\n  = data moves   . the link is away   ~ the link is back, and the sender still waits for its timer\n");
}

/// The transfer as a line of characters, each for half a second.
fn bar(flow: &FlowRow) -> String {
    let end = flow.completion_s.unwrap_or(0.0);
    let resumed = UP.as_secs_f64() + flow.resume_ms.unwrap_or(0.0) / 1e3;
    let columns = (end * 2.0).ceil() as usize;
    (0..columns)
        .map(|column| match column as f64 / 2.0 + 0.25 {
            at if at < DOWN.as_secs_f64() => '=',
            at if at < UP.as_secs_f64() => '.',
            at if at < resumed => '~',
            _ => '=',
        })
        .collect()
}

fn print_kernel(kernel: &Kernel) {
    match kernel {
        Kernel::NotTried(why) => println!("Not tried against this machine's kernel: {why}\n"),
        Kernel::Transfers(rows) => {
            println!(
                "The same TCP against this machine's kernel, 2 MiB across an outage of 2 s, in namespaces of their own:\n"
            );
            for row in rows {
                let result = match (row.seconds, row.findings.is_empty()) {
                    (Some(seconds), true) => format!("every byte arrived, {seconds:.1} s"),
                    _ => row.findings.join("; "),
                };
                println!("  {:38} {result}", row.what);
            }
            println!();
        }
    }
}

fn print_outlook() {
    println!("This is the problem, measured in the simulator and checked against a real kernel.");
    println!("The mechanisms that end the wait are here; the agent that brings them to your own connections is");
    println!("not built yet, and this demo will show a transfer with and without it side by side. Until then:");
    println!("  holdover reproduce beyond  the same outages with and without the mechanisms, in about two minutes");
    println!("  holdover run train-tunnel  three TCPs and two tunnels, with captures, plots and a page to look at");
    println!("  holdover run train-tunnel --both  the same beside your own kernel, which takes as long as it takes");
    println!("  holdover kernel-matrix     our TCP against this kernel under every pair of settings");
}

fn megabytes(amount: ByteCount) -> String {
    format!("{} MB", amount.0 / 1_000_000)
}
