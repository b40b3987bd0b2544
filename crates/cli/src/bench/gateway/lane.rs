//! The ways of forwarding that are compared.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdover_gatewayd::bench::Baseline;
use holdover_gatewayd::control::{self, Request, Standing};
use holdover_host::Namespace;
use holdover_testbed::gateway::{GatewayProcess, Line, MOBILE_FACING};
use serde::Serialize;

use super::frames::{Frames, diverted, packets};
use super::pepsal::Pepsal;
use super::proxy::Proxy;
use super::streams::Streams;
use super::{BULK_BYTES, EXCHANGES, Failed, KEPT, Load, PACKETS, Proxies, place};
use crate::gateway_command::daemon;

/// The program or path between the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Lane {
    /// A veth pair.
    Direct,
    /// A router.
    Forwarding,
    /// A router with eBPF programs that return at once.
    Program,
    /// A router with the gateway, whose mode is `observe`.
    Observe,
    /// A router with the gateway, whose mode is `buffer`.
    Buffer,
    /// A router with the gateway, whose mode is `split`.
    Split,
    /// A router with the gateway, whose mode is `m-tcp`: beside the paper only.
    MTcp,
    /// A router with HAProxy, to which the mobile host connects.
    Haproxy,
    /// A router with PEPsal, which takes the mobile host's connections to the fixed host.
    Pepsal,
}

impl Lane {
    /// The ways that `holdover bench gateway` compares.
    pub(super) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Forwarding,
        Self::Program,
        Self::Observe,
        Self::Buffer,
        Self::Split,
        Self::Haproxy,
        Self::Pepsal,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Forwarding => "forwarding",
            Self::Program => "program",
            Self::Observe => "observe",
            Self::Buffer => "buffer",
            Self::Split => "split",
            Self::MTcp => "m-tcp",
            Self::Haproxy => "haproxy",
            Self::Pepsal => "pepsal",
        }
    }
}

/// Packets that are sent before the daemon has to take them, and the pause for it.
const KEPT_AT_ONCE: u64 = 250;
const KEPT_PAUSE: Duration = Duration::from_millis(2);
/// The bound on the wait for packets that were kept.
const ARRIVE_WITHIN: Duration = Duration::from_secs(10);

/// One of them, with its hosts.
#[derive(Debug)]
pub(super) struct Way {
    lane: Lane,
    // Connections first: a proxy or a gateway is not to see them end in another way.
    streams: Option<Streams>,
    frames: Option<Frames>,
    router: Router,
    processes: Vec<u32>,
    line: Line,
}

/// The program on the router, which ends when this is dropped.
#[derive(Debug)]
enum Router {
    Nothing,
    Programs { _programs: Baseline },
    Gateway { process: GatewayProcess },
    Haproxy { _proxy: Proxy },
    Pepsal { proxy: Pepsal },
}

impl Way {
    /// Makes hosts, and a router with its programs.
    pub(super) fn new(lane: Lane, round: usize, proxies: &Proxies) -> Result<Self, Failed> {
        let line = if lane == Lane::Direct { Line::direct()? } else { Line::routed()? };
        let (router, processes) = match (lane, line.router(), proxies.of(lane)) {
            (Lane::Program, Some(router), _) => {
                (Router::Programs { _programs: Baseline::pass(router, MOBILE_FACING)? }, Vec::new())
            }
            (Lane::Observe | Lane::Buffer | Lane::Split | Lane::MTcp, Some(router), _) => {
                let sections = format!("[mobiles]\nmode = \"{}\"\n[programs]\npinned = false\n", lane.name());
                let mut process = GatewayProcess::start(router, place(lane, round), &sections, daemon)?;
                let id = process.process().map(|process| process.id());
                (Router::Gateway { process }, id.into_iter().collect())
            }
            (Lane::Haproxy, Some(_), Some(program)) => {
                let proxy = Proxy::start(&line, program, place(lane, round))?;
                let id = proxy.process();
                (Router::Haproxy { _proxy: proxy }, vec![id])
            }
            (Lane::Pepsal, Some(_), Some(program)) => {
                let proxy = Pepsal::start(&line, program)?;
                let id = proxy.process();
                (Router::Pepsal { proxy }, vec![id])
            }
            _ => (Router::Nothing, Vec::new()),
        };
        Ok(Self { lane, streams: None, frames: None, router, processes, line })
    }

    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// The processes on its router.
    pub(super) fn processes(&self) -> &[u32] {
        &self.processes
    }

    /// Packets on the router's mobile-facing interface so far.
    pub(super) fn forwarded(&self) -> Result<u64, Failed> {
        let Some(router) = self.line.router() else { return Ok(0) };
        Ok(packets(router, MOBILE_FACING)?.iter().sum())
    }

    /// Opens the connections of a load, and lets it run for a while.
    pub(super) fn begin(&mut self, load: Load) -> Result<(), Failed> {
        match load {
            Load::Bulk { connections } | Load::Messages { connections } => {
                self.streams = Some(Streams::open(&self.line, self.lane == Lane::Haproxy, connections)?);
                if let Router::Pepsal { proxy } = &self.router {
                    proxy.has_taken(connections)?;
                }
            }
            Load::Packets { .. } | Load::Kept => {
                let flows = if let Load::Packets { flows } = load { flows } else { 1 };
                let mut frames = Frames::new(&self.line, flows)?;
                // The router looks up the hosts' Ethernet addresses, and the gateway gets to know all connections.
                frames.send(flows)?;
                self.frames = Some(frames);
            }
        }
        self.carry(load)
    }

    /// Carries a slice of a load.
    pub(super) fn carry(&mut self, load: Load) -> Result<(), Failed> {
        match (load, &mut self.streams, &mut self.frames) {
            (Load::Bulk { connections }, Some(streams), _) => {
                streams.download(BULK_BYTES, if connections == 1 { 256 << 10 } else { 16 << 10 })
            }
            (Load::Messages { connections }, Some(streams), _) => streams.exchange(EXCHANGES / connections as u64),
            (Load::Packets { .. }, _, Some(frames)) => frames.send(PACKETS),
            (Load::Kept, _, Some(frames)) => {
                let gateway = match (&self.router, self.line.router()) {
                    (Router::Gateway { process }, Some(router)) => Some((process.socket(), router)),
                    _ => None,
                };
                keep(frames, gateway)
            }
            _ => Err("the load was not begun".into()),
        }
    }

    /// Sends `packets` without hosts in each direction.
    pub(super) fn send(&mut self, packets: u64) -> Result<(), Failed> {
        match &mut self.frames {
            Some(frames) => frames.send(packets),
            None => Err("the load was not begun".into()),
        }
    }

    /// Closes the connections of a load. All packets must have arrived.
    pub(super) fn end(&mut self, load: Load) -> Result<(), Failed> {
        self.streams = None;
        let Some(mut frames) = self.frames.take() else { return Ok(()) };
        let before = frames.received()?;
        frames.send(PACKETS)?;
        let arrived = frames.received()? - before;
        if arrived < 2 * PACKETS {
            let (way, load) = (self.lane.name(), load.name());
            return Err(format!("{way}, {load}: {arrived} of {} packets arrived", 2 * PACKETS).into());
        }
        Ok(())
    }
}

/// Sends packets to the mobile host, which a gateway takes for absent until all are sent, and waits for them.
fn keep(frames: &mut Frames, gateway: Option<(PathBuf, &Namespace)>) -> Result<(), Failed> {
    let report = |presence| -> Result<(), Failed> {
        let request = Request::Mobile { address: Line::MOBILE.into(), presence };
        gateway.as_ref().map_or(Ok(()), |(socket, _)| Ok(control::ask(socket, &request).map(drop)?))
    };
    let taken = || gateway.as_ref().map_or(Ok(0), |(_, router)| diverted(router));
    let before = [taken()?, frames.received_by_mobile()?];
    report(Standing::Away)?;
    for batch in 1..=KEPT / KEPT_AT_ONCE {
        frames.send_down(KEPT_AT_ONCE)?;
        // The queue of the daemon's device is short.
        let is_taken = || Ok(taken()? - before[0] + frames.received_by_mobile()? - before[1] >= batch * KEPT_AT_ONCE);
        await_packets("been kept", is_taken)?;
    }
    report(Standing::Present)?;
    await_packets("arrived", || Ok(frames.received_by_mobile()? - before[1] >= KEPT))
}

fn await_packets(what: &str, are_there: impl Fn() -> Result<bool, Failed>) -> Result<(), Failed> {
    let began = Instant::now();
    while !are_there()? {
        if began.elapsed() > ARRIVE_WITHIN {
            return Err(format!("packets for an absent mobile host have not {what}").into());
        }
        std::thread::sleep(KEPT_PAUSE);
    }
    Ok(())
}
