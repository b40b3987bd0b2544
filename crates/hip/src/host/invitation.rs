//! Invitations: a host that is no configured peer proves in its I2 that it knows a secret, and becomes one.
//!
//! The secret reaches the host on another channel, with this host's HIT. INVITATION in I2 is a MAC with the secret over both HITs, the puzzle
//! and its solution, and data for the owner. So it is valid in one exchange with one initiator: an eavesdropper on the path can neither
//! use it with another identity nor learn the secret, which is random. HIP_MAC and HIP_SIGNATURE cover it as well. The first valid one
//! uses up the invitation. While one is open, this host answers I1s of unknown hosts, without state as always, and checks the proof of
//! their I2s before the Diffie-Hellman exchange.

use core::fmt;

use bytes::Bytes;
use holdover_base::Instant;
use zeroize::Zeroizing;

use super::local::find;
use super::{CommandError, Host, State};
use crate::codec::{HipPacket, Parameter};
use crate::crypto::Rhash;
use crate::identity::Hit;

/// Bytes of an invitation's secret.
pub const SECRET_LEN: usize = 16;
/// Independent of the HIT suites of both hosts.
const HASH: Rhash = Rhash::Sha256;
/// Distinguishes the MAC from all other uses of the secret.
const LABEL: &[u8] = b"Holdover invitation 1";

type Secret = Zeroizing<[u8; SECRET_LEN]>;

/// The open invitations of this host.
#[derive(Clone, Default)]
pub(super) struct Invitations(Vec<Open>);

#[derive(Clone)]
struct Open {
    number: u64,
    secret: Secret,
    until: Instant,
}

/// A peer's invitation that this host accepts.
#[derive(Clone)]
pub(super) struct Presented {
    secret: Secret,
    data: Bytes,
}

/// Prints no secret.
impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").finish_non_exhaustive()
    }
}

impl Presented {
    pub(super) fn parameter(&self, own: Hit, peer: Hit, random: &[u8], solution: &[u8]) -> Parameter {
        let mac = HASH.mac(&*self.secret, &message(own, peer, random, solution, &self.data));
        Parameter::Invitation(Bytes::from([&mac[..], &self.data].concat()))
    }
}

impl Invitations {
    pub(super) fn is_any_open(&self, now: Instant) -> bool {
        self.0.iter().any(|open| now < open.until)
    }

    /// The open invitation whose secret the sender of an I2 has proved to know, and its data.
    pub(super) fn find(&self, now: Instant, i2: &HipPacket, own: Hit) -> Option<(u64, Bytes)> {
        let (proof, solution) = (find!(i2, Invitation)?, find!(i2, Solution)?);
        let (mac, data) = proof.split_at_checked(HASH.output_len())?;
        let message = message(i2.sender, own, &solution.random, &solution.solution, data);
        let mut open = self.0.iter().filter(|open| now < open.until);
        let open = open.find(|open| HASH.verify_mac(&*open.secret, &message, mac))?;
        Some((open.number, Bytes::copy_from_slice(data)))
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.0.retain(|open| open.number != number);
    }
}

impl Host {
    /// Lets one host become a peer that proves to know this secret before `until`; [`super::Event::Joined`] names it. `number` is the
    /// owner's, and unique.
    pub fn invite(&mut self, now: Instant, number: u64, secret: [u8; SECRET_LEN], until: Instant) {
        self.invitations.0.retain(|open| now < open.until);
        self.invitations.0.push(Open { number, secret: Zeroizing::new(secret), until });
    }

    /// Ends an invitation that was not accepted.
    pub fn withdraw(&mut self, number: u64) {
        self.invitations.remove(number);
    }

    /// Proves in the present or next exchange with a peer to know the secret of its invitation, and sends data with the proof, until an exchange
    /// succeeds.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if the peer was not added, or an association exists already.
    pub fn present(
        &mut self,
        now: Instant,
        peer: Hit,
        secret: [u8; SECRET_LEN],
        data: Bytes,
    ) -> Result<(), CommandError> {
        let association = self.associations.get_mut(&peer).ok_or(CommandError::NoAddress { peer })?;
        let state = association.state;
        if association.is_usable() {
            return Err(CommandError::State { state });
        }
        association.presented = Some(Presented { secret: Zeroizing::new(secret), data });
        if state == State::I2Sent {
            // Its I2 has no proof.
            association.begin_anew(&mut self.local, now);
        }
        Ok(())
    }
}

/// The bytes that the MAC covers.
fn message(initiator: Hit, responder: Hit, random: &[u8], solution: &[u8], data: &[u8]) -> Vec<u8> {
    // #I and #J have the same length, that of the responder's hash.
    [LABEL, &initiator.0.octets(), &responder.0.octets(), random, solution, data].concat()
}
