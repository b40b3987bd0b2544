//! Calls: exchanges with whatever host answers at an address (RFC 7401 section 4.1.8).
//!
//! A call ends at its time, and a lease after the last question about it: the command that made it waits for the answer, and if the command
//! ends, no later answer opens an association. The command also writes the peer into the file of peers; an association that a call has opened
//! with a host that is in no file when the call ends is closed.

use std::collections::BTreeMap;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::host::{CommandError, State};
use holdover_hip::identity::Hit;

use super::peer::PeerState;
use super::{Core, PORT};
use crate::files::Via;

/// How long a call waits for an association.
const LASTS: Duration = Duration::from_secs(20);
/// How long it lasts after the last question about it.
const LEASE: Duration = Duration::from_secs(5);

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallState {
    /// There is no association yet.
    Open,
    /// There is an association with this host.
    Answered(Hit),
    /// It does not exist, any more or at all.
    Ended,
}

#[derive(Debug)]
pub(super) struct Call {
    address: IpAddr,
    /// The port of its packets, if in UDP.
    port: Option<u16>,
    until: Instant,
    leased_until: Instant,
    /// The host that has answered, and whether it had no association before.
    answer: Option<(Hit, bool)>,
    /// The owner knows of the association.
    is_reported: bool,
}

impl Call {
    fn ends_at(&self) -> Instant {
        if self.is_reported { self.leased_until } else { self.until.min(self.leased_until) }
    }
}

/// By the numbers that the host has given them.
#[derive(Default, Debug)]
pub(super) struct Calls(BTreeMap<u64, Call>);

impl Calls {
    pub(super) fn note_answered(&mut self, number: u64, peer: Hit, is_new: bool) {
        if let Some(call) = self.0.get_mut(&number) {
            call.answer = Some((peer, is_new));
        }
    }

    /// The port of packets to an address that is called, if they go in UDP.
    pub(super) fn port(&self, address: IpAddr) -> Option<u16> {
        self.0.values().rev().find(|call| call.address == address)?.port
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().map(Call::ends_at).min()
    }
}

impl Core {
    /// Whether this host calls, and answers, hosts that do not know each other's HITs (RFC 7401 section 4.1.8). If not, all calls end.
    pub fn set_opportunistic(&mut self, now: Instant, is_on: bool) {
        self.host.set_opportunistic(is_on);
        if !is_on {
            for number in self.calls.0.keys().copied().collect::<Vec<_>>() {
                self.end_call(now, number);
            }
            self.collect(now, None);
        }
    }

    /// Opens an association with whatever host answers at an address. Returns the number of the call.
    ///
    /// # Errors
    /// [`CommandError`] if opportunistic mode is off, or there is no address of this host to call from.
    pub fn call(&mut self, now: Instant, address: IpAddr, via: Via) -> Result<u64, CommandError> {
        let number = self.host.connect_opportunistic(now, address)?;
        let (until, leased_until) = (now + LASTS, now + LEASE);
        let port = (via == Via::Udp).then_some(PORT);
        let call = Call { address, port, until, leased_until, answer: None, is_reported: false };
        self.calls.0.insert(number, call);
        self.collect(now, None);
        Ok(number)
    }

    /// The state of a call, whose lease begins again.
    pub fn call_state(&mut self, now: Instant, number: u64) -> CallState {
        self.end_calls(now);
        let Some(call) = self.calls.0.get_mut(&number) else { return CallState::Ended };
        call.leased_until = now + LEASE;
        let Some((peer, _)) = call.answer else { return CallState::Open };
        match self.host.state(peer) {
            State::R2Sent | State::Established => {
                call.is_reported = true;
                CallState::Answered(peer)
            }
            State::I1Sent | State::I2Sent => CallState::Open,
            State::Unassociated | State::Closing | State::Closed | State::EFailed => {
                self.hang_up(now, number);
                CallState::Ended
            }
        }
    }

    /// Ends a call. An association that it has opened with a host that is in no file of peers is closed.
    pub fn hang_up(&mut self, now: Instant, number: u64) {
        self.end_call(now, number);
        self.collect(now, None);
    }

    pub(super) fn end_calls(&mut self, now: Instant) {
        let ended = self.calls.0.iter().filter(|(_, call)| call.ends_at() <= now);
        for number in ended.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.end_call(now, number);
        }
    }

    fn end_call(&mut self, now: Instant, number: u64) {
        self.host.cancel_opportunistic(number);
        let Some(Call { answer: Some((peer, true)), .. }) = self.calls.0.remove(&number) else { return };
        if !self.peers.get(&peer).is_some_and(PeerState::is_configured) {
            self.host.remove_peer(now, peer);
            self.forget_peer(peer);
        }
    }
}
