//! The measurements of a run.

use holdover_base::{ByteCount, Duration};
use holdover_filter::Stored;
use holdover_link::Statistics;
use holdover_link::cell::CellStatistics;

use super::World;
use crate::config::Traffic;
use crate::flow::{End, Flow, FlowReport, FlowStatus};
use crate::gateway::Gateway;
use crate::ids::{LinkId, NodeId};
use crate::mobility::CellId;
use crate::network::{capacity_of, config_of};

/// The memory use of a world, apart from its description. None of it grows with simulated time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Holdings {
    /// Packets queued or in flight.
    pub packets: u64,
    /// Connections, including closed ones that are still remembered.
    pub connections: u64,
    /// Bytes in the send and receive buffers of connections.
    pub buffered_bytes: u64,
}

impl World {
    /// The measurements of each flow.
    pub fn report(&self) -> Vec<FlowReport> {
        self.flows.iter().map(|flow| self.report_of(flow)).collect()
    }

    /// Bytes read by the applications of all flows, for shells that show progress.
    pub fn bytes_read(&self) -> u64 {
        self.flows.iter().map(|flow| flow.read_at_to + flow.read_at_from).sum()
    }

    /// The statistics of a link: from its first named node, and back.
    pub fn link_statistics(&self, link: LinkId) -> Option<[Statistics; 2]> {
        let at = link.0 as usize * 2;
        let of = |hop: &crate::network::Hop| hop.link.statistics(self.now);
        Some([of(self.network.hops.get(at)?), of(self.network.hops.get(at + 1)?)])
    }

    /// The statistics of a cell.
    pub fn cell_statistics(&self, cell: CellId) -> Option<CellStatistics> {
        Some(self.network.airs.get(cell.index())?.cell.statistics(self.now))
    }

    /// The most that the mechanisms of a router have stored at once; `None` for a node that has none.
    pub fn most_stored(&self, node: NodeId) -> Option<Stored> {
        Some(self.gateways[self.gateway_index(node)?].most_stored)
    }

    /// The current memory use.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for hop in &self.network.hops {
            holdings.packets += hop.link.statistics(self.now).under_way;
        }
        for air in &self.network.airs {
            let statistics = air.cell.statistics(self.now);
            holdings.packets += statistics.down.under_way + statistics.up.under_way;
        }
        holdings.packets += self.cpus.iter().map(|cpu| cpu.waiting() as u64).sum::<u64>();
        for host in &self.hosts {
            for (_, connection) in host.endpoint.connections() {
                holdings.connections += 1;
                holdings.buffered_bytes += (connection.send_queue_len() + connection.receive_buffer_len()) as u64;
            }
        }
        holdings
    }

    fn report_of(&self, flow: &Flow) -> FlowReport {
        let counters = |end: End| {
            let reported = flow.reported(end).map(|reported| reported.counters.clone());
            self.connection(flow, end).map(|connection| connection.counters().clone()).or(reported)
        };
        let status = match (flow.completed_at, flow.failure) {
            (Some(_), _) => FlowStatus::Completed,
            (None, Some((_, error))) => FlowStatus::Failed(error),
            (None, None) => FlowStatus::Unfinished,
        };
        let mut report = FlowReport {
            status,
            started_at: flow.config.start,
            connected_at: flow.connected_at,
            completed_at: flow.completed_at,
            failed_at: flow.failure.filter(|_| flow.completed_at.is_none()).map(|(at, _)| at),
            bytes_received: flow.read_at_to + flow.read_at_from,
            ideal: self.ideal(flow),
            outage: Duration::ZERO,
            reconnections: flow.reconnections.clone(),
            readdressings: flow.readdressings.clone(),
            longest_pause: None,
            exchanges: flow.exchange.times.clone(),
            sender: counters(End::From),
            receiver: counters(End::To),
            ended_at: self.now,
        };
        report.outage = flow.outage_until(report.over_at());
        report.longest_pause = flow.longest_pause_until(report.over_at());
        report
    }

    /// The ideal time for the bytes read by the receiver of a bulk transfer.
    fn ideal(&self, flow: &Flow) -> Option<Duration> {
        let Traffic::Bulk(_) = flow.config.traffic else { return None };
        let path = flow.path.as_ref().filter(|_| !flow.roams && flow.read_at_to > 0)?;
        // The compressed size of a packet is not known in general.
        let compresses = |&hop: &usize| config_of(&self.config, hop).compression.is_some();
        let at_router = |gateway: &Gateway| gateway.compression.is_some();
        if path.hops.iter().any(compresses) || self.gateways.iter().any(at_router) {
            return None;
        }
        let reported = flow.reported(End::From).map(|reported| reported.snd_mss);
        let snd_mss = self.connection(flow, End::From).map(|connection| connection.snd_mss()).or(reported);
        let mss = snd_mss.unwrap_or(flow.config.sender.mss.into());
        let ip_header = if flow.config.ipv6 { 40 } else { 20 };
        let options = u64::from(u32::from(flow.config.sender.mss).saturating_sub(mss));
        let segments = flow.read_at_to.div_ceil(u64::from(mss.max(1)));
        let wire = ByteCount(flow.read_at_to + segments * (ip_header + 20 + options));
        let time_on =
            |&hop: &usize| capacity_of(&self.config, hop, Some(flow.config.ipv6))?.time_for(wire, flow.config.start);
        let slowest = path.hops.iter().map(time_on).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let delay_of = |sum, &hop: &usize| sum + config_of(&self.config, hop).delay;
        Some(slowest + path.hops.iter().fold(Duration::ZERO, delay_of))
    }
}
