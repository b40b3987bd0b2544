//! What hosts do when their links come and go.

use holdover_mobility::Mechanisms;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_sim::{HostMechanisms, NodeId};

use super::above_zero;
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};

/// The mechanisms of all hosts that have any. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile) -> Result<Vec<HostMechanisms>, Problem> {
    let mut all = Vec::new();
    for (index, host) in file.hosts.iter().enumerate() {
        let mechanisms = host.mechanisms.as_ref().map_or_else(|| Ok(Mechanisms::default()), of_host);
        let mechanisms = mechanisms.under("mechanisms").under_index(index).under("host")?;
        let foresight = host.foresight.map(|lead| above_zero(lead, "foresight"));
        let foresight = foresight.transpose().under_index(index).under("host")?;
        if host.mechanisms.is_some() || foresight.is_some() {
            all.push(HostMechanisms { node: NodeId(index as u32), mechanisms, foresight });
        }
    }
    Ok(all)
}

fn of_host(file: &file::Mechanisms) -> Result<Mechanisms, Problem> {
    Ok(Mechanisms {
        reconnect_acks: file.reconnect_acks.as_ref().map(reconnect_acks).transpose().under("reconnect_acks")?,
        hold_back: file.hold_back.as_ref().map(hold_back).transpose().under("hold_back")?,
        ack_stall: file.ack_stall.as_ref().map(ack_stall).transpose().under("ack_stall")?,
        unreachable_poke: file.unreachable_poke.as_ref().map(unreachable_poke).transpose().under("unreachable_poke")?,
        wake: file.wake.is_some(),
        release: file.release.as_ref().map(release).unwrap_or_default(),
    })
}

fn reconnect_acks(table: &file::ReconnectAcks) -> Result<ReconnectAcksConfig, Problem> {
    let default = ReconnectAcksConfig::default();
    let copies = table.copies.unwrap_or(default.copies);
    if copies == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 to 255")).under("copies");
    }
    Ok(ReconnectAcksConfig {
        copies,
        restart_window_bytes: table.restart_window.map(|window| u32::try_from(window.0.0).unwrap_or(u32::MAX)),
        idle: table.idle.map_or(default.idle, |idle| idle.0),
    })
}

fn hold_back(table: &file::HoldBack) -> Result<HoldBackConfig, Problem> {
    let default = HoldBackConfig::default();
    let segments = table.segments.unwrap_or(default.segments);
    if !(1..=63).contains(&segments) {
        return Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {segments}"), "1 to 63"))
            .under("segments");
    }
    Ok(HoldBackConfig {
        segments,
        after_bytes: table.after.map_or(default.after_bytes, |after| after.0.0),
        pause: table.pause.map_or(default.pause, |pause| pause.0),
        flush: table.flush.map(|flush| above_zero(flush, "flush")).transpose()?.unwrap_or(default.flush),
    })
}

fn ack_stall(table: &file::AckStall) -> Result<AckStallConfig, Problem> {
    let default = AckStallConfig::default();
    Ok(AckStallConfig {
        lead: table.lead.map_or(default.lead, |lead| lead.0),
        most: table.most.map(|most| above_zero(most, "most")).transpose()?.unwrap_or(default.most),
    })
}

fn unreachable_poke(table: &file::UnreachablePoke) -> Result<UnreachablePokeConfig, Problem> {
    let default = UnreachablePokeConfig::default();
    let copies = table.copies.unwrap_or(default.copies);
    if copies == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 to 255")).under("copies");
    }
    Ok(UnreachablePokeConfig { copies, every: table.every.map_or(default.every, |every| every.0) })
}

fn release(table: &file::Release) -> ReleaseConfig {
    let default = ReleaseConfig::default();
    ReleaseConfig {
        grace: table.grace.map_or(default.grace, |grace| grace.0),
        ladder: table.ladder.map_or(default.ladder, |ladder| ladder.0),
        refresh_timestamps: table.refresh_timestamps.unwrap_or(default.refresh_timestamps),
        refresh_for: table.refresh_for.map_or(default.refresh_for, |span| span.0),
        two_steps: table.two_steps.unwrap_or(default.two_steps),
    }
}
