//! Rules (`ip-rule(8)`) for the TUN device of this host's programs: only packets that this host itself sends reach it.
//!
//! A TUN device does not show who has sent a packet, and Linux forwards IPv6 packets with one of its own addresses as source: a stranger behind
//! a host that forwards could send to peers with this host's identity. So packets for peers' addresses that came on an interface are dropped
//! before the routes; those for this host itself are not, wherever the rule of the kernel's local table is (VRFs need it behind their own).
//! Hosts behind a proxy have rules of their own, which come first ([`proxy_routing`](super::proxy_routing)).
//!
//! The rules of a daemon that was killed stay, while its device and the routes over it are gone: this host's packets for peers are refused then,
//! and do not leave in the clear by a default route.

use std::io;

use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::proxy_routing::{FORGED, HITS, Kernel, MAIN, PROTOCOL, Prefix, TABLE, THIS_HOST, family};
use crate::core::LsiPrefix;

/// The priorities of rules: before those of the proxy, and after them.
const TO_THIS_HOST: u32 = TABLE - 1;
const OWN: u32 = FORGED + 1;
const REFUSED: u32 = FORGED + 2;
const FORWARDED: u32 = FORGED + 3;
const PRIORITIES: [u32; 4] = [TO_THIS_HOST, OWN, REFUSED, FORWARDED];
/// `RT_TABLE_LOCAL`.
const LOCAL: u32 = 255;

/// See the module's documentation. The rules go with it; those of a daemon that was killed stay until the next one starts.
#[derive(Debug)]
pub(super) struct ForwardedRules(());

impl ForwardedRules {
    /// In place of those of an earlier daemon. IPv4 and IPv6 are apart: a kernel may have the rules of one of them alone
    /// (`CONFIG_IP_MULTIPLE_TABLES`, `CONFIG_IPV6_MULTIPLE_TABLES`). For each address family without them a warning is logged.
    pub(super) fn install(lsis: Option<LsiPrefix>) -> Self {
        let installed = Self(());
        // Also those for LSIs, if this daemon has none.
        if let Ok(mut kernel) = Kernel::open() {
            let _ = kernel.remove_rules(&PRIORITIES);
        }
        for prefix in [Some(HITS), lsis.map(Prefix::of)].into_iter().flatten() {
            if let Err(error) = install_for(prefix) {
                let to = if prefix.network.is_ipv4() { "LSIs" } else { "HITs" };
                tracing::warn!(%error, "if this host forwards, others can send to peers' {to} with its identity (no ip rule)");
            }
        }
        installed
    }
}

impl Drop for ForwardedRules {
    fn drop(&mut self) {
        if let Err(error) = Kernel::open().and_then(|mut kernel| kernel.remove_rules(&PRIORITIES)) {
            tracing::warn!(%error, "rules {PRIORITIES:?} stay (ip rule)");
        }
    }
}

/// All rules for packets to these addresses, or none.
fn install_for(prefix: Prefix) -> io::Result<()> {
    let mut kernel = Kernel::open()?;
    kernel.remove_rules_of(family(prefix), &PRIORITIES)?;
    let result = PRIORITIES.into_iter().try_for_each(|priority| kernel.add_rule(rule(prefix, priority)));
    if result.is_err() {
        let _ = kernel.remove_rules_of(family(prefix), &PRIORITIES);
    }
    result
}

/// A rule for packets to these addresses.
fn rule(prefix: Prefix, priority: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(prefix);
    rule.header.dst_len = prefix.len;
    rule.header.action = match priority {
        REFUSED => RuleAction::Unreachable,
        FORWARDED => RuleAction::Blackhole,
        _ => RuleAction::ToTable,
    };
    rule.attributes.push(RuleAttribute::Destination(prefix.network));
    match priority {
        TO_THIS_HOST => rule.attributes.push(RuleAttribute::Table(LOCAL)),
        // Not by a default route.
        OWN => rule.attributes.extend([RuleAttribute::Table(MAIN), RuleAttribute::SuppressPrefixLen(0)]),
        _ => {}
    }
    if matches!(priority, OWN | REFUSED) {
        rule.attributes.push(RuleAttribute::Iifname(THIS_HOST.to_owned()));
    }
    rule.attributes.extend([RuleAttribute::Priority(priority), RuleAttribute::Protocol(PROTOCOL)]);
    rule
}
