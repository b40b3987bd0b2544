//! Interfaces that are gone. One of the same name may follow soon: a modem after a reset, a tunnel. It carries nothing
//! before it has an address and a default route again, if the former one had them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::Interface;
use crate::link_watch::{Families, Family};

/// How long an interface that is gone is remembered by its name.
pub const REMEMBERED: Duration = Duration::from_secs(600);

/// The most interfaces remembered; beyond that the one that went first is forgotten.
const MOST_REMEMBERED: usize = 64;

/// The addresses and leading routes of an interface that is gone.
#[derive(Debug)]
struct Former {
    gone_at: Instant,
    addresses: [BTreeSet<IpAddr>; 2],
    has_led: Families,
}

/// Interfaces that are gone, by name.
#[derive(Debug, Default)]
pub(super) struct FormerInterfaces(BTreeMap<Box<str>, Former>);

impl FormerInterfaces {
    /// Remembers an interface that is gone.
    pub(super) fn note_gone(&mut self, now: Instant, gone: &Interface) {
        let addresses = Family::BOTH.map(|family| gone.known_addresses(family));
        if addresses.iter().all(BTreeSet::is_empty) && gone.has_led.is_empty() {
            return;
        }
        self.0.retain(|_, former| now.saturating_since(former.gone_at) < REMEMBERED);
        if self.0.len() >= MOST_REMEMBERED
            && let Some((name, _)) = self.0.iter().min_by_key(|(_, former)| former.gone_at)
        {
            let name = name.clone();
            self.0.remove(&name);
        }
        self.0.insert(gone.name.clone(), Former { gone_at: now, addresses, has_led: gone.has_led });
    }

    /// A new interface, or one that udev has renamed, counts as lacking the addresses and routes that the former one of
    /// its name had, unless it has had its own.
    pub(super) fn recall(&mut self, now: Instant, new: &mut Interface) {
        let Some(former) = self.0.remove(&new.name) else { return };
        if now.saturating_since(former.gone_at) < REMEMBERED {
            for (known, addresses) in new.last_addresses.iter_mut().zip(former.addresses) {
                if known.is_empty() {
                    *known = addresses;
                }
            }
            new.has_led = new.has_led.or(former.has_led);
        }
    }
}
