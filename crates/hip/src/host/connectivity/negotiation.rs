//! Which NAT traversal mode an exchange has, and how fast checks follow each other (RFC 9028 sections 4.3, 4.4 and 4.7.2).
//!
//! UDP-ENCAPSULATION is for exchanges between two hosts that reach each other: the exchange itself has shown the path. ICE-HIP-UDP is for all that
//! go through a relay, and for peers that offer nothing else.

use holdover_base::Duration;

use super::super::checklist::DEFAULT_TA;
use super::super::local::{find, value};
use super::super::{Arrival, Dropped, HostConfig};
use crate::codec::{HipPacket, NatTraversalMode, Parameter, kind};

/// The least Ta (RFC 9028 section 4.4).
const LEAST_TA: Duration = Duration::from_millis(5);

/// The modes that an R1 offers, and this host's Ta unless it is the default.
pub(in crate::host) fn offered(config: &HostConfig) -> impl Iterator<Item = Parameter> {
    let modes: Vec<u16> = config.nat_modes.iter().take(NatTraversalMode::MOST).map(|mode| mode.id()).collect();
    [(!modes.is_empty()).then_some(Parameter::NatTraversalMode(modes)), pacing_parameter(own_ta(config))]
        .into_iter()
        .flatten()
}

/// The mode to be named in I2, if any.
pub(in crate::host) fn select(config: &HostConfig, r1: &HipPacket, arrival: Arrival) -> Option<NatTraversalMode> {
    arrival.port?;
    let offered = find!(r1, NatTraversalMode)?;
    let is_offered = |mode: &NatTraversalMode| offered.iter().take(NatTraversalMode::MOST).any(|it| *it == mode.id());
    // RFC 9028 section 4.7.2: UDP-ENCAPSULATION may not be named in an I2 that goes through a relay, which RELAY_TO shows.
    let is_direct = arrival.via.is_none() && find!(r1, RelayTo).is_none();
    let direct = is_direct.then_some(NatTraversalMode::UdpEncapsulation);
    let candidates = direct.into_iter().chain([NatTraversalMode::IceHipUdp]);
    candidates.filter(|mode| config.nat_modes.contains(mode)).find(is_offered)
}

/// The mode that an I2 names: one that R1 offers, and UDP-ENCAPSULATION not through a relay.
pub(in crate::host) fn named(
    config: &HostConfig,
    i2: &HipPacket,
    arrival: Arrival,
) -> Result<Option<NatTraversalMode>, Dropped> {
    let Some(modes) = find!(i2, NatTraversalMode) else { return Ok(None) };
    let mode = config.nat_modes.iter().copied().find(|mode| modes[..] == [mode.id()]);
    let is_relayed = arrival.via.is_some_and(|via| via.is_relay);
    let is_valid = match mode {
        Some(NatTraversalMode::UdpEncapsulation) => !is_relayed,
        Some(NatTraversalMode::IceHipUdp) => arrival.port.is_some(),
        Some(NatTraversalMode::IceStunUdp) | None => false,
    };
    if is_valid { Ok(mode) } else { Err(value(kind::NAT_TRAVERSAL_MODE)) }
}

/// This host's own Ta.
fn own_ta(config: &HostConfig) -> Duration {
    config.check_pacing.max(LEAST_TA)
}

/// Ta of both hosts: the greater of theirs.
pub(in crate::host) fn ta(config: &HostConfig, packet: &HipPacket) -> Duration {
    let of_peer = find!(packet, TransactionPacing).map(|ms| Duration::from_millis(u64::from(*ms)));
    own_ta(config).max(of_peer.unwrap_or(DEFAULT_TA))
}

/// TRANSACTION_PACING with a Ta; none for the default.
pub(in crate::host) fn pacing_parameter(ta: Duration) -> Option<Parameter> {
    let ms = u32::try_from(ta.as_millis()).unwrap_or(u32::MAX);
    (ta != DEFAULT_TA).then_some(Parameter::TransactionPacing(ms))
}
