//! One interface, and the signals of its sources.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_mobility::LinkEvent;

use super::{CarrierChecks, Change, Interface, Reachability};
use crate::link_watch::{Families, Family, LinkChange, Signal, Source};

impl Interface {
    pub(super) fn remove_address(&mut self, address: IpAddr) {
        let family = Family::of(address);
        if self.addresses.contains(&address) && self.of_family(family).len() == 1 {
            self.last_addresses[family.index()] = self.of_family(family);
            // The routes are lost with the last address; the kernel does not report those of IPv4.
            self.installed.retain(|route| route.is_ipv6 || address.is_ipv6());
        }
        self.addresses.remove(&address);
    }

    fn of_family(&self, family: Family) -> BTreeSet<IpAddr> {
        self.addresses.iter().filter(|&&address| Family::of(address) == family).copied().collect()
    }

    /// Its addresses of a family, or those that it had before it lost the last one.
    pub(super) fn known_addresses(&self, family: Family) -> BTreeSet<IpAddr> {
        let present = self.of_family(family);
        if present.is_empty() { self.last_addresses[family.index()].clone() } else { present }
    }

    /// The kernel reports losses of carrier once a second (`linkwatch_schedule_work`): a loss soon after another one, of any interface, may
    /// be over before it is reported, and then only the counter of losses shows it.
    pub(super) fn note_carrier(&mut self, now: Instant, can_carry: bool, losses: Option<u32>) {
        let before = std::mem::replace(&mut self.carrier_losses, losses);
        self.has_flickered |= self.can_carry && can_carry && before.is_some() && losses > before;
        if self.has_carried && (self.has_flickered || self.can_carry != can_carry) {
            self.carrier_checks = Some(CarrierChecks::begin(now));
        }
        self.can_carry = can_carry;
    }

    pub(super) fn note_neighbour(&mut self, now: Instant, address: IpAddr, state: Reachability) {
        if state != Reachability::Fixed {
            self.fixed.remove(&address);
        }
        match state {
            Reachability::Answers => {
                self.failed.remove(&address);
                self.answering.insert(address);
                if self.installed.iter().any(|route| route.next_hop == Some(address)) {
                    self.answered_at.insert(address, now);
                }
            }
            Reachability::Fixed => {
                self.failed.remove(&address);
                self.answering.insert(address);
                self.fixed.insert(address);
            }
            // After the carrier returns, the kernel's first probes may be lost on a path that does not forward yet:
            // connections are being woken on it anyway, and this is not a second outage.
            Reachability::Failed => {
                if self.answering.remove(&address) || !self.has_returned {
                    self.failed.insert(address);
                }
            }
            // It is being probed again: the former state stays until there is an answer.
            Reachability::Unknown => {}
            Reachability::Forgotten => {
                self.failed.remove(&address);
                self.answering.remove(&address);
            }
        }
    }

    pub(super) fn tell(&mut self, now: Instant, changes: &mut VecDeque<Change>) {
        self.has_had_route |= !self.routes.is_empty();
        self.has_led = self.has_led.or(self.leads);
        let is_eligible = self.may_be_uplink && self.has_had_route;
        if self.reported_eligible != Some(is_eligible) {
            self.reported_eligible = Some(is_eligible);
            changes.push_back(Change::Appeared { interface: self.name.clone(), is_eligible });
        }
        // Without a carrier the state of neighbours is unknown, and the next network may be another one.
        if self.can_carry {
            self.has_carried = true;
        } else {
            self.has_returned |= self.has_carried;
            self.failed.clear();
            self.answering.clear();
        }
        if std::mem::take(&mut self.has_flickered) && self.can_carry {
            self.has_returned = true;
            self.report_of(now, Source::Carrier, Families::BOTH, Families::NONE, changes);
        }
        let routes = &self.routes;
        let leads_to = |router: &IpAddr| routes.iter().any(|route| route.next_hop == Some(*router));
        self.answered_at.retain(|router, _| leads_to(router));
        let moved = self.note_move();
        for source in [Source::Carrier, Source::Lower, Source::Address, Source::Route, Source::Neighbour] {
            let is_down =
                self.shared(Family::BOTH.into_iter().filter(|&family| self.has_lost(source, family)).collect());
            if source == Source::Lower && std::mem::take(&mut self.lower.has_moved) && is_down.is_empty() {
                // Packets in flight were on the former link.
                self.report_of(now, source, Families::BOTH, Families::NONE, changes);
            }
            let moved = if source == Source::Address { self.shared(moved) } else { Families::NONE };
            self.report_of(now, source, is_down, moved, changes);
        }
    }

    /// Reports changes of a source.
    fn report_of(
        &mut self,
        now: Instant,
        source: Source,
        is_down: Families,
        moved: Families,
        changes: &mut VecDeque<Change>,
    ) {
        let was_down = self.reported_down.insert(source, is_down).unwrap_or_default();
        let event = |family| match (is_down.contains(family), was_down.contains(family)) {
            (true, false) => Some(LinkEvent::Down),
            (false, true) => Some(LinkEvent::Up { symmetric: false, moved: moved.contains(family) }),
            _ if moved.contains(family) => Some(LinkEvent::Up { symmetric: false, moved: true }),
            _ => None,
        };
        let events = Family::BOTH.map(|family| event(family).into_iter().collect::<Vec<_>>());
        for LinkChange { families, event } in LinkChange::join(events) {
            let signal = Signal { families, ..Signal::new(now, &self.name, event, source) };
            changes.push_back(Change::Signal(signal));
        }
        if is_down.is_empty() {
            self.reported_down.remove(&source);
        }
    }

    /// A report about some IP versions applies to the others, too, if the interface never had these.
    fn shared(&self, families: Families) -> Families {
        let is_unused = |family: Family| {
            let has_addresses = !self.last_addresses[family.index()].is_empty();
            !has_addresses && !self.has_led.contains(family) && self.routes.iter().all(|route| route.family() != family)
        };
        let unused = families.others().iter().filter(|&family| !families.is_empty() && is_unused(family));
        families.iter().chain(unused).collect()
    }

    /// Whether a source lacks something that an IP version has had.
    pub(super) fn has_lost(&self, source: Source, family: Family) -> bool {
        match source {
            Source::Carrier => !self.can_carry,
            Source::Lower => self.lower.is_cut,
            Source::Address => self.of_family(family).is_empty() && !self.last_addresses[family.index()].is_empty(),
            Source::Route => self.has_led.contains(family) && !self.leads.contains(family),
            Source::Neighbour => self.has_silent_routers(family),
            _ => false,
        }
    }

    /// The routers, if there are any and each can be probed.
    pub(super) fn askable_routers(&self) -> Option<BTreeSet<IpAddr>> {
        let routers: Option<BTreeSet<IpAddr>> = self.routes.iter().map(|route| route.next_hop).collect();
        routers.filter(|routers| !routers.is_empty() && routers.is_disjoint(&self.fixed))
    }

    /// Whether there are routers, none is known to answer, and at least one is known not to.
    fn has_silent_routers(&self, family: Family) -> bool {
        let of_family = self.routes.iter().filter(|route| route.family() == family);
        let mut routers = of_family.map(|route| route.next_hop).peekable();
        routers.peek().is_some() && routers.all(|router| router.is_some_and(|router| self.is_silent(router)))
    }

    pub(super) fn is_silent(&self, router: IpAddr) -> bool {
        self.failed.contains(&router)
    }

    /// The IP versions whose addresses were all replaced.
    fn note_move(&mut self) -> Families {
        let mut has_moved = |family: Family| {
            let now = self.of_family(family);
            if now.is_empty() {
                return false;
            }
            let before = std::mem::replace(&mut self.last_addresses[family.index()], now.clone());
            !before.is_empty() && before.is_disjoint(&now)
        };
        Family::BOTH.into_iter().filter(|&family| has_moved(family)).collect()
    }
}
