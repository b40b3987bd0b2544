//! For the fuzz targets: packets of a host that lies, with valid MACs and signatures, and sizes of a host's state.

use super::Host;
use super::association::{Association, SessionKeys};
use crate::codec::{HEADER_LEN, Parameter, kind};
use crate::crypto::{HipKeys, Rhash};
use crate::identity::Hit;

/// The length field of the header.
const LENGTH: usize = 1;
/// Bytes of a signature's algorithm.
const ALGORITHM_LEN: usize = 2;

/// A parameter as bytes, which need not be valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tlv {
    pub(crate) kind: u16,
    pub(crate) contents: Vec<u8>,
}

impl Tlv {
    /// With its type and length, padded.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.to_be_bytes());
        out.extend((self.contents.len() as u16).to_be_bytes());
        out.extend(&self.contents);
        out.resize(out.len().next_multiple_of(8), 0);
    }
}

/// The proofs that a lying host makes anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Proofs {
    /// None: anyone on the path.
    None,
    /// MACs.
    Macs,
    /// MACs and signatures.
    All,
}

/// Sizes of a host's state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Census {
    pub(crate) associations: usize,
    pub(crate) spis: usize,
    /// Signed R1s and Diffie-Hellman key pairs.
    pub(crate) kept: usize,
    pub(crate) opportunistic: usize,
    /// The most of one peer.
    pub(crate) addresses: usize,
    pub(crate) checks: usize,
    pub(crate) own_permissions: usize,
    /// Of a server.
    pub(crate) clients: usize,
    pub(crate) permissions: usize,
}

impl Host {
    /// The bytes of a packet with this header and these parameters, in this order. MACs and signatures of this host are made anew where the
    /// parameters have any, as far as `proofs` says and this host has the keys. Returns whether it has made one.
    pub(crate) fn forge(&mut self, header: [u8; HEADER_LEN], parameters: &[Tlv], proofs: Proofs) -> (Vec<u8>, bool) {
        let octets = |at: usize| core::array::from_fn::<u8, 16, _>(|index| header[at + index]);
        let (sender, receiver) = (Hit(octets(8).into()), Hit(octets(24).into()));
        let mut bytes = header.to_vec();
        bytes[4..6].fill(0);
        let (mut puzzle, mut has_proven) = (None, false);
        for parameter in parameters {
            if parameter.kind == kind::PUZZLE {
                puzzle = Some((bytes.len(), parameter.contents.len()));
            }
            let contents = self.proof(&bytes, parameter, (sender, receiver), puzzle, proofs);
            has_proven |= contents.is_some();
            let contents = contents.unwrap_or_else(|| parameter.contents.clone());
            Tlv { kind: parameter.kind, contents }.put(&mut bytes);
            bytes[LENGTH] = length_field(bytes.len());
        }
        bytes[LENGTH] = length_field(bytes.len());
        (bytes, has_proven)
    }

    /// The contents of a MAC or signature over `bytes`.
    fn proof(
        &mut self,
        bytes: &[u8],
        parameter: &Tlv,
        (sender, receiver): (Hit, Hit),
        puzzle: Option<(usize, usize)>,
        proofs: Proofs,
    ) -> Option<Vec<u8>> {
        let is_own = sender == self.local.hit;
        match parameter.kind {
            kind::HIP_MAC | kind::HIP_MAC_2 if is_own && proofs >= Proofs::Macs => {
                let mut covered = bytes.to_vec();
                if parameter.kind == kind::HIP_MAC_2 {
                    Parameter::HostId(self.local.host_id.clone()).put(&mut covered).ok()?;
                }
                covered[LENGTH] = length_field(covered.len());
                let (rhash, keys) = self.keys_to(receiver)?;
                Some(rhash.mac(&keys.integrity, &covered))
            }
            kind::RVS_HMAC | kind::RELAY_HMAC if proofs >= Proofs::Macs => {
                let to = if is_own { self.own_server()? } else { receiver };
                let (rhash, keys) = self.keys_to(to)?;
                Some(rhash.mac(&keys.integrity, bytes))
            }
            kind::HIP_SIGNATURE | kind::HIP_SIGNATURE_2 if is_own && proofs == Proofs::All => {
                let mut covered = bytes.to_vec();
                if parameter.kind == kind::HIP_SIGNATURE_2 {
                    covered[24..HEADER_LEN].fill(0);
                    if let Some((at, len)) = puzzle {
                        let end = at + 4 + len;
                        covered.get_mut(at + 6..end.max(at + 6)).into_iter().for_each(|field| field.fill(0));
                    }
                }
                let signature = self.local.keys.sign(&covered, &mut *self.local.rng);
                let mut contents = Vec::with_capacity(ALGORITHM_LEN + signature.signature.len());
                contents.extend(signature.algorithm.to_be_bytes());
                contents.extend(&signature.signature);
                Some(contents)
            }
            _ => None,
        }
    }

    /// ENCRYPTED with these parameters for a peer.
    pub(crate) fn encrypted(&mut self, peer: Hit, parameters: &[Tlv]) -> Option<Tlv> {
        let mut plain = Vec::new();
        parameters.iter().for_each(|parameter| parameter.put(&mut plain));
        let keys = session_keys(self.associations.get(&peer)?)?;
        let data = keys.cipher.encrypt(&keys.outbound.encryption, &plain, &mut *self.local.rng).ok()?;
        Some(Tlv { kind: kind::ENCRYPTED, contents: [&[0; 4][..], &data].concat() })
    }

    fn keys_to(&self, peer: Hit) -> Option<(Rhash, &HipKeys)> {
        session_keys(self.associations.get(&peer)?).map(|keys| (keys.rhash, &keys.outbound))
    }

    fn own_server(&self) -> Option<Hit> {
        self.associations.values().find(|it| it.client.is_some()).map(|it| it.peer)
    }

    pub(crate) fn census(&self) -> Census {
        let most = |of: fn(&Association) -> usize| self.associations.values().map(of).max().unwrap_or_default();
        let (clients, permissions) = self.clients();
        Census {
            associations: self.associations.len(),
            spis: self.local.spis.len(),
            kept: self.responder.kept(),
            opportunistic: self.opportunistic.len(),
            addresses: most(|it| it.peer_addresses.iter().count()),
            checks: most(|it| it.updates.checks.len()),
            own_permissions: most(|it| it.client.as_ref().map_or(0, |client| client.permissions.len())),
            clients,
            permissions,
        }
    }
}

fn session_keys(association: &Association) -> Option<&SessionKeys> {
    let prospect = association.prospect.as_ref().map(|prospect| &prospect.keys);
    prospect.or(association.secured.as_ref().map(|secured| &secured.keys))
}

fn length_field(len: usize) -> u8 {
    (len / 8).saturating_sub(1).min(255) as u8
}
