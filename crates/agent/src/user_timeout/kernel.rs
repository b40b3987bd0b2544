//! The structures of `bpf/user_timeout/state.h` in Rust, and the table of rules for a policy.

use std::net::SocketAddr;

use holdover_mobility::Connection;

use super::UserTimeoutError;
use crate::policy::{Action, Decision, Policy, Ports, Prefix, mapped};

/// How many rules a table holds (`MAX_RULES`).
pub(super) const MAX_RULES: usize = 128;

/// The rule of a connection without a matching one.
const NO_RULE: u32 = u32::MAX;

const ACTION_LEAVE_ALONE: u8 = 0;
const ACTION_HOLD: u8 = 1;
const ACTION_FAIL_FAST: u8 = 2;

/// `enum pass`.
pub(super) const PASS_APPLY: u32 = 0;
pub(super) const PASS_RESTORE: u32 = 1;

/// `enum counter`.
pub(super) const COUNTERS: usize = 8;

/// `struct wish`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct KernelWish {
    pub(super) timeout_ms: u32,
    pub(super) accept_ms: u32,
    pub(super) advertise: u16,
    pub(super) action: u8,
    pub(super) replace: u8,
    pub(super) rule: u32,
}

/// `struct rule`. Addresses are in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct KernelRule {
    local: [u8; 16],
    local_mask: [u8; 16],
    remote: [u8; 16],
    remote_mask: [u8; 16],
    local_ports: [u16; 2],
    remote_ports: [u16; 2],
    needs_owner: u8,
    within_host: u8,
    unused: [u8; 2],
    wish: KernelWish,
}

/// `struct given`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KernelGiven {
    pub(super) wish: KernelWish,
    generation: u32,
    pub(super) set_ms: u32,
    before_ms: u32,
    pub(super) peer_ms: u32,
    shut_since: u64,
    advertised_to: u32,
    segments_with_option: u8,
    pub(super) is_applications: u8,
    unused: [u8; 2],
}

/// `struct record`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KernelRecord {
    pub(super) cookie: u64,
    pub(super) given: KernelGiven,
}

// SAFETY: `repr(C)` structures of integers without padding (checked below); any bits are valid.
unsafe impl aya::Pod for KernelWish {}
// SAFETY: as above.
unsafe impl aya::Pod for KernelRule {}

const _: () = assert!(size_of::<KernelWish>() == 16);
const _: () = assert!(size_of::<KernelRule>() == 4 * 16 + 4 * 2 + 4 + 16);
const _: () = assert!(size_of::<KernelGiven>() == 16 + 4 * 4 + 8 + 8);
const _: () = assert!(size_of::<KernelRecord>() == 8 + 48);

impl KernelWish {
    pub(super) fn of(decision: Decision) -> Self {
        let rule = decision.rule.map_or(NO_RULE, |rule| rule as u32);
        let Action::UserTimeout(wish) = decision.action else {
            return Self { timeout_ms: 0, accept_ms: 0, advertise: 0, action: ACTION_LEAVE_ALONE, replace: 0, rule };
        };
        // A policy has no times that are longer than 24 days.
        let ms = |time: holdover_base::Duration| u32::try_from(time.as_millis()).unwrap_or(i32::MAX as u32);
        Self {
            timeout_ms: ms(wish.timeout),
            accept_ms: ms(wish.accept),
            advertise: wish.advertise.map_or(0, holdover_wire::UserTimeout::wire),
            action: if wish.fails_fast { ACTION_FAIL_FAST } else { ACTION_HOLD },
            replace: wish.replace.into(),
            rule,
        }
    }

    /// The action for a connection without a matching rule.
    pub(super) fn leave_alone() -> Self {
        Self::of(Decision { rule: None, action: Action::LeaveAlone })
    }

    pub(super) fn rule(&self) -> Option<usize> {
        (self.rule != NO_RULE).then_some(self.rule as usize)
    }
}

impl KernelRecord {
    /// Reads what one `bpf_seq_write` wrote.
    pub(super) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        // SAFETY: the bytes are as many as the structure has, and it consists of integers, for which any bits are valid.
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }
}

/// The table of a policy: the action of each rule, once for each combination of addresses and ports.
pub(super) fn table(policy: &Policy) -> Result<Vec<KernelRule>, UserTimeoutError> {
    let mut table = Vec::new();
    for (index, rule) in policy.rules().iter().enumerate() {
        let wish = KernelWish::of(Decision { rule: Some(index), action: rule.action() });
        table.extend(rule.places.iter().map(|place| {
            let (local, local_mask) = bytes(place.local);
            let (remote, remote_mask) = bytes(place.remote);
            KernelRule {
                local,
                local_mask,
                remote,
                remote_mask,
                local_ports: range(place.local_ports),
                remote_ports: range(place.remote_ports),
                needs_owner: rule.needs_owner().into(),
                within_host: rule.within_host.into(),
                unused: [0; 2],
                wish,
            }
        }));
    }
    if table.len() > MAX_RULES {
        return Err(UserTimeoutError::TooManyRules { needed: table.len(), limit: MAX_RULES });
    }
    Ok(table)
}

fn bytes(prefix: Prefix) -> ([u8; 16], [u8; 16]) {
    let (bits, mask) = prefix.bits_and_mask();
    (bits.to_be_bytes(), mask.to_be_bytes())
}

const fn range(ports: Ports) -> [u16; 2] {
    [ports.first, ports.last]
}

/// `struct flow`, as the door for tests takes it.
pub(super) fn flow_bytes(connection: Connection) -> [u8; 36] {
    let mut bytes = [0; 36];
    let ends: [(SocketAddr, usize, usize); 2] = [(connection.local, 0, 32), (connection.remote, 16, 34)];
    for (end, address, port) in ends {
        bytes[address..address + 16].copy_from_slice(&mapped(end.ip()).to_be_bytes());
        bytes[port..port + 2].copy_from_slice(&end.port().to_ne_bytes());
    }
    bytes
}
