//! Rules (`ip-rule(8)`) for the TUN device of this host's programs: only packets that this host itself sends reach it.
//!
//! A TUN device does not show who has sent a packet, and Linux forwards IPv6 packets with one of its own addresses as source: a stranger behind
//! a host that forwards could send to peers with this host's identity. So packets for peers' addresses that came on an interface are dropped
//! before the routes. Hosts behind a proxy have rules of their own, which come first ([`proxy_routing`](super::proxy_routing)).

use std::io;
use std::ops::RangeInclusive;

use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::proxy_routing::{FORGED, HITS, Kernel, MAIN, PROTOCOL, Prefix, THIS_HOST, family};
use crate::core::LsiPrefix;

/// The priorities of rules, after those of the proxy.
const OWN: u32 = FORGED + 1;
const FORWARDED: u32 = FORGED + 2;
const PRIORITIES: RangeInclusive<u32> = OWN..=FORWARDED;

/// See the module's documentation. The rules go with it; those of a daemon that was killed stay until the next one starts.
#[derive(Debug)]
pub(super) struct ForwardedRules(());

impl ForwardedRules {
    /// In place of those of an earlier daemon.
    ///
    /// # Errors
    /// The kernel refuses, or has no rules (`CONFIG_IPV6_MULTIPLE_TABLES`).
    pub(super) fn install(lsis: Option<LsiPrefix>) -> io::Result<Self> {
        let mut kernel = Kernel::open()?;
        kernel.remove_rules(&PRIORITIES)?;
        // Removes what is there after an error.
        let installed = Self(());
        for prefix in [Some(HITS), lsis.map(Prefix::of)].into_iter().flatten() {
            kernel.add_rule(rule(prefix, OWN))?;
            kernel.add_rule(rule(prefix, FORWARDED))?;
        }
        Ok(installed)
    }
}

impl Drop for ForwardedRules {
    fn drop(&mut self) {
        if let Err(error) = Kernel::open().and_then(|mut kernel| kernel.remove_rules(&PRIORITIES)) {
            tracing::warn!(%error, "rules {OWN} and {FORWARDED} stay (ip rule)");
        }
    }
}

/// A rule for packets to these addresses.
fn rule(prefix: Prefix, priority: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(prefix);
    rule.header.dst_len = prefix.len;
    rule.attributes.push(RuleAttribute::Destination(prefix.network));
    if priority == OWN {
        rule.header.action = RuleAction::ToTable;
        rule.attributes.extend([RuleAttribute::Table(MAIN), RuleAttribute::Iifname(THIS_HOST.to_owned())]);
    } else {
        rule.header.action = RuleAction::Blackhole;
    }
    rule.attributes.extend([RuleAttribute::Priority(priority), RuleAttribute::Protocol(PROTOCOL)]);
    rule
}
