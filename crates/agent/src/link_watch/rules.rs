//! The routing tables in use: those that a rule names (`ip-rule(8)`).
//!
//! A default route in a table other than `main` counts if a rule leads there: VPN clients, networks with several
//! uplinks and Android use separate tables. Rules that select by source, mark or user count, as they may select some
//! connection of this host. Rules that skip default routes (`suppress_prefixlength`) do not; neither do those with the
//! table of the device (`l3mdev`).

use std::collections::BTreeSet;

/// `RT_TABLE_MAIN` (`linux/rtnetlink.h`).
pub(super) const MAIN: u32 = 254;

/// `RT_TABLE_LOCAL`: this host's own addresses.
pub(super) const LOCAL: u32 = 255;

/// A rule that leads to a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// Whether it is one of IPv6.
    pub is_ipv6: bool,
    /// The table.
    pub table: u32,
    /// The rest of the rule, which identifies it.
    pub selector: Box<[u8]>,
}

/// The current rules.
#[derive(Debug, Default)]
pub(super) struct Rules(BTreeSet<Rule>);

impl Rules {
    /// Adds or removes a rule.
    pub(super) fn note(&mut self, rule: Rule, is_there: bool) {
        if is_there {
            self.0.insert(rule);
        } else {
            self.0.remove(&rule);
        }
    }

    /// Keeps only these rules.
    pub(super) fn retain(&mut self, rules: &BTreeSet<Rule>) {
        self.0.retain(|rule| rules.contains(rule));
    }

    /// Whether a rule leads to a table. A kernel without rules (`CONFIG_IP_MULTIPLE_TABLES=n`) uses `main`.
    pub(super) fn lead_to(&self, is_ipv6: bool, table: u32) -> bool {
        let mut of_family = self.0.iter().filter(|rule| rule.is_ipv6 == is_ipv6).peekable();
        if of_family.peek().is_none() { table == MAIN } else { of_family.any(|rule| rule.table == table) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(is_ipv6: bool, table: u32, priority: u8) -> Rule {
        Rule { is_ipv6, table, selector: [priority].into() }
    }

    // Claim: A default route counts in any table named by a rule; of several uplinks in one table, the one with the lowest metric
    // has the route; a tunnel does not take the route from the link that carries it.
    // Tests: `tests::a_default_route_counts_while_a_rule_leads_to_its_table`, `tests::the_best_route_moves_from_link_to_link`,
    // `tests::a_tunnel_does_not_take_the_route_from_the_link_that_carries_it`,
    // `tests::rules_by_which_default_routes_are_found_count`
    #[test]
    fn a_table_counts_while_a_rule_of_its_family_names_it() {
        let mut rules = Rules::default();
        assert!(rules.lead_to(false, MAIN) && !rules.lead_to(false, 100), "without rules there is one table");
        rules.note(rule(false, 100, 1), true);
        rules.note(rule(false, 100, 2), true);
        assert!(rules.lead_to(false, 100) && !rules.lead_to(false, MAIN));
        assert!(!rules.lead_to(true, 100) && rules.lead_to(true, MAIN));
        rules.note(rule(false, 100, 1), false);
        assert!(rules.lead_to(false, 100), "the other rule still names it");
        rules.retain(&BTreeSet::from([rule(false, MAIN, 3)]));
        assert!(!rules.lead_to(false, 100));
    }
}
