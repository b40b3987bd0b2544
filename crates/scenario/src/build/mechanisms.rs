//! Mechanisms of hosts with intermittent links.

use holdover_base::Duration;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::delayed_dupacks::DelayedDupacksConfig;
use holdover_mobility::ebsn::EbsnConfig;
use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::new_cell_window::NewCellWindowConfig;
use holdover_mobility::probe::ProbeConfig;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::retransmission_trigger::{PeerTrigger, RetransmissionTriggerConfig};
use holdover_mobility::silence::SilenceOptions;
use holdover_mobility::timestamp_echo::TimestampEchoConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::user_timeout::UserTimeoutPolicyConfig;
use holdover_mobility::{CombinationError, Mechanisms};
use holdover_sim::{HostMechanisms, NodeId};
use holdover_tcp::Config;

use super::{above_zero, gateways};
use crate::error::ErrorKind;
use crate::file::{self, PeerTriggerKind, ScenarioFile, WarningKind};
use crate::problem::{Problem, Under};
use crate::word::OrNone;

/// The mechanisms of all hosts that have any. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile, default_stack: &Config) -> Result<Vec<HostMechanisms>, Problem> {
    let mut all = Vec::new();
    for (index, host) in file.hosts.iter().enumerate() {
        let mechanisms =
            host.mechanisms.as_ref().map_or_else(|| Ok(Mechanisms::default()), |table| of_host(table, default_stack));
        let mechanisms = mechanisms.under("mechanisms").under_index(index).under("host")?;
        let foresight = host.foresight.map(|lead| above_zero(lead, "foresight"));
        let foresight = foresight.transpose().under_index(index).under("host")?;
        if host.mechanisms.is_some() || foresight.is_some() {
            all.push(HostMechanisms { node: NodeId(index as u32), mechanisms, foresight });
        }
    }
    Ok(all)
}

fn of_host(file: &file::Mechanisms, default_stack: &Config) -> Result<Mechanisms, Problem> {
    let mechanisms = Mechanisms {
        reconnect_acks: file.reconnect_acks.as_ref().map(reconnect_acks).transpose().under("reconnect_acks")?,
        freeze: file.freeze.as_ref().map(freeze).transpose().under("freeze")?,
        timestamp_echo: file.timestamp_echo.as_ref().map(timestamp_echo),
        retransmission_trigger: {
            let table = file.retransmission_trigger.as_ref();
            table.map(retransmission_trigger).transpose().under("retransmission_trigger")?
        },
        user_timeout: file.user_timeout.as_ref().map(user_timeout).transpose().under("user_timeout")?,
        new_cell_window: file.new_cell_window.as_ref().map(new_cell_window).transpose().under("new_cell_window")?,
        fast_retransmit: file.fast_retransmit.as_ref().map(fast_retransmit),
        ebsn: file.ebsn.as_ref().map(ebsn).transpose().under("ebsn")?,
        delayed_dupacks: file.delayed_dupacks.as_ref().map(delayed_dupacks).transpose().under("delayed_dupacks")?,
        srp: file.srp.as_ref().map(|table| gateways::srp(table, default_stack)).transpose().under("srp")?,
        probe: file.probe.as_ref().map(probe).transpose().under("probe")?,
        hold_back: file.hold_back.as_ref().map(hold_back).transpose().under("hold_back")?,
        ack_stall: file.ack_stall.as_ref().map(ack_stall),
        unreachable_poke: file.unreachable_poke.as_ref().map(unreachable_poke).transpose().under("unreachable_poke")?,
        wake: file.wake.is_some(),
        silence: {
            let table = file.wake.as_ref().and_then(|wake| wake.silence.as_ref());
            table.map(silence).transpose().under("silence").under("wake")?
        },
        own_data: file.wake.as_ref().is_some_and(|wake| wake.own_data.unwrap_or(wake.silence.is_some())),
        release: file.release.as_ref().map(release).unwrap_or_default(),
    };
    let clash = |error: CombinationError| Problem::conflict(error.to_string()).under(error.name());
    mechanisms.check().map_err(clash)?;
    Ok(mechanisms)
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
        marked: table.marked.unwrap_or(default.marked),
        idle: table.idle.map_or(default.idle, |idle| idle.0),
    })
}

fn freeze(table: &file::Freeze) -> Result<FreezeConfig, Problem> {
    let default = FreezeConfig::default();
    Ok(FreezeConfig {
        warning: warning_period(table)?,
        at_once: table.zero_window_acks.unwrap_or(default.at_once),
        ask_after: table.ask_after.as_ref().map_or(default.ask_after, |OrNone(wait)| wait.map(|wait| wait.0)),
        flowing: table.flowing.map_or(default.flowing, |flowing| flowing.0),
        thaw_on_probe: table.thaw_on_probe.unwrap_or(default.thaw_on_probe),
        update_at_up: table.update_at_up.unwrap_or(default.update_at_up),
        ip_flag: table.ip_flag.unwrap_or(default.ip_flag),
        patience: table.patience.map_or(default.patience, |patience| patience.0),
    })
}

fn warning_period(table: &file::Freeze) -> Result<WarningPeriod, Problem> {
    let kind = table.warning.map_or(WarningKind::RoundTrips, |word| word.0);
    let given = [
        ("round_trips", table.round_trips.is_some(), WarningKind::RoundTrips),
        ("period", table.period.is_some(), WarningKind::Fixed),
        ("step", table.step.is_some(), WarningKind::Adaptive),
    ];
    if let Some((key, _, _)) = given.into_iter().find(|&(_, is_given, of)| is_given && of != kind) {
        let kind = table.warning.map_or("round-trips", |word| word.name());
        return Err(Problem::conflict(format!("a \"warning\" of \"{kind}\" has no \"{key}\""))).under(key);
    }
    Ok(match kind {
        WarningKind::RoundTrips => {
            let count = table.round_trips.unwrap_or(1.0);
            if !(count > 0.0 && count <= 1000.0) {
                let accepted = "a number above 0, to 1000";
                return Err(Problem::unexpected(ErrorKind::BadValue, count.to_string(), accepted)).under("round_trips");
            }
            WarningPeriod::RoundTrips(count)
        }
        WarningKind::Fixed => WarningPeriod::Fixed(match table.period {
            Some(period) => above_zero(period, "period")?,
            None => return Err(Problem::conflict("a \"warning\" of \"fixed\" needs a \"period\"")),
        }),
        WarningKind::WholeLead => WarningPeriod::WholeLead,
        WarningKind::Adaptive => WarningPeriod::Adaptive {
            step: table.step.map_or(Ok(Duration::from_millis(10)), |step| above_zero(step, "step"))?,
        },
    })
}

fn timestamp_echo(table: &file::TimestampEcho) -> TimestampEchoConfig {
    let default = TimestampEchoConfig::default();
    TimestampEchoConfig {
        since: table.since.map_or(default.since, |since| since.0),
        echo: table.echo.map_or(default.echo, |echo| echo.0),
    }
}

fn retransmission_trigger(table: &file::RetransmissionTrigger) -> Result<RetransmissionTriggerConfig, Problem> {
    let default = RetransmissionTriggerConfig::default();
    let kind = table.peer.map_or(PeerTriggerKind::Option, |word| word.0);
    if kind != PeerTriggerKind::DuplicateAcks {
        for (key, given) in [("copies", table.copies.is_some()), ("piggyback", table.piggyback.is_some())] {
            if given {
                let message = format!("\"{key}\" is for peer = \"duplicate-acks\"");
                return Err(Problem::conflict(message)).under(key);
            }
        }
    }
    let segments = table.copies.unwrap_or(4);
    if segments < 4 {
        let problem = Problem::unexpected(ErrorKind::BadValue, format!("the number {segments}"), "4 to 255");
        return Err(problem.under("copies"));
    }
    Ok(RetransmissionTriggerConfig {
        after: table.backoff.map_or(default.after, |word| word.0),
        counts: table.counts.unwrap_or(default.counts),
        peer: match kind {
            PeerTriggerKind::None => PeerTrigger::None,
            PeerTriggerKind::Option => PeerTrigger::Option,
            PeerTriggerKind::DuplicateAcks => {
                PeerTrigger::DuplicateAcks { segments, piggyback: table.piggyback.unwrap_or(true) }
            }
        },
        forced_slow_start: table.forced_slow_start.unwrap_or(default.forced_slow_start),
        min_interval: table.min_interval.map_or(default.min_interval, |time| time.0),
    })
}

fn user_timeout(table: &file::UserTimeoutPolicy) -> Result<UserTimeoutPolicyConfig, Problem> {
    let default = UserTimeoutPolicyConfig::default();
    let long = table.long.map_or(Ok(default.long), |long| above_zero(long, "long"))?;
    let afterwards = table.afterwards.map(|time| above_zero(time, "afterwards")).transpose()?;
    Ok(UserTimeoutPolicyConfig { long, afterwards, linger: table.linger.map_or(default.linger, |time| time.0) })
}

fn new_cell_window(table: &file::NewCellWindow) -> Result<NewCellWindowConfig, Problem> {
    let default = NewCellWindowConfig::default();
    let initial_bytes =
        table.initial.map_or(default.initial_bytes, |bytes| u32::try_from(bytes.0.0).unwrap_or(u32::MAX));
    if initial_bytes == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "\"0 bytes\"", "an amount above 0")).under("initial");
    }
    Ok(NewCellWindowConfig { initial_bytes, growth_percent: table.growth.unwrap_or(default.growth_percent) })
}

fn fast_retransmit(table: &file::FastRetransmit) -> FastRetransmitConfig {
    let default = FastRetransmitConfig::default();
    FastRetransmitConfig {
        copies: table.copies.unwrap_or(default.copies),
        own_data: table.own_data.unwrap_or(default.own_data),
        only_moved: table.only_moved.unwrap_or(default.only_moved),
    }
}

fn probe(table: &file::Probe) -> Result<ProbeConfig, Problem> {
    let default = ProbeConfig::default();
    let probes = table.probes.unwrap_or(default.probes);
    if probes == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 to 255")).under("probes");
    }
    Ok(ProbeConfig {
        nacks: table.nacks.unwrap_or(default.nacks),
        probes,
        own_data: table.own_data.unwrap_or(default.own_data),
        only_moved: table.only_moved.unwrap_or(default.only_moved),
        patience: table.patience.map_or(Ok(default.patience), |patience| above_zero(patience, "patience"))?,
        round_trip: table.round_trip.map_or(default.round_trip, |word| word.0),
    })
}

fn ebsn(table: &file::EbsnSender) -> Result<EbsnConfig, Problem> {
    let default = EbsnConfig::default();
    Ok(EbsnConfig { longest: table.longest.map_or(Ok(default.longest), |longest| above_zero(longest, "longest"))? })
}

fn delayed_dupacks(table: &file::DelayedDupacks) -> Result<DelayedDupacksConfig, Problem> {
    let default = DelayedDupacksConfig::default();
    Ok(DelayedDupacksConfig { delay: table.delay.map_or(Ok(default.delay), |delay| above_zero(delay, "delay"))? })
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

fn ack_stall(table: &file::AckStall) -> AckStallConfig {
    AckStallConfig {
        lead: table.lead.map(|lead| lead.0),
        overdue: table.overdue.map_or(AckStallConfig::default().overdue, |overdue| overdue.0),
    }
}

fn unreachable_poke(table: &file::UnreachablePoke) -> Result<UnreachablePokeConfig, Problem> {
    let default = UnreachablePokeConfig::default();
    let copies = table.copies.unwrap_or(default.copies);
    if copies == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 to 255")).under("copies");
    }
    Ok(UnreachablePokeConfig { copies, every: table.every.map_or(default.every, |every| every.0) })
}

fn silence(table: &file::Silence) -> Result<SilenceOptions, Problem> {
    let default = SilenceOptions::default();
    let after = table.after.map_or(Ok(default.after), |after| above_zero(after, "after"))?;
    Ok(SilenceOptions { after, asks: table.probes.unwrap_or(default.asks), ..default })
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
