//! A host: its TCP endpoint, and the flows of its connections.

use core::net::IpAddr;

use holdover_base::{Instant, Rng};
use holdover_mobility::Chain;
use holdover_tcp::{ConnectionId, Endpoint, EndpointConfig};

use crate::flow::End;
use crate::forewarning::Forewarning;
use crate::identity::Identity;
use crate::ids::{FlowId, LinkId, NodeId};

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: NodeId,
    pub(crate) endpoint: Endpoint,
    /// The link that it uses: the first one that is up. `None` for a mobile host.
    pub(crate) link: Option<LinkId>,
    /// The link that it used before it had none.
    pub(crate) last_link: Option<LinkId>,
    /// The mechanisms between its TCP and its links.
    pub(crate) chain: Option<Box<Chain>>,
    pub(crate) forewarning: Option<Forewarning>,
    /// Its identity.
    pub(crate) identity: Option<Box<Identity>>,
    /// Whether its TCP and its applications are elsewhere.
    pub(crate) external: bool,
    /// The flow of each connection, by the connection's index.
    owners: Vec<Option<(FlowId, End)>>,
}

impl Host {
    /// A host with these addresses.
    pub(crate) fn new(node: NodeId, name: &str, addresses: Vec<IpAddr>, seed: u64) -> Self {
        let mut rng = Rng::split(seed, &format!("host {name}"));
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        secret[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
        let endpoint = Endpoint::new(EndpointConfig { addresses, secret });
        Self {
            node,
            endpoint,
            link: None,
            last_link: None,
            chain: None,
            forewarning: None,
            identity: None,
            external: false,
            owners: Vec::new(),
        }
    }

    /// A copy that shares no state with this one; `None` if one of its mechanisms cannot be copied.
    pub(crate) fn fork(&self) -> Option<Self> {
        let chain = match &self.chain {
            Some(chain) => Some(Box::new(chain.fork()?)),
            None => None,
        };
        let identity = match &self.identity {
            Some(identity) => Some(Box::new(identity.fork()?)),
            None => None,
        };
        Some(Self {
            node: self.node,
            endpoint: self.endpoint.clone(),
            link: self.link,
            last_link: self.last_link,
            chain,
            forewarning: self.forewarning.clone(),
            identity,
            external: self.external,
            owners: self.owners.clone(),
        })
    }

    /// Whether nothing lies between its TCP and its links.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.chain.is_none() && self.identity.is_none()
    }

    /// Its next deadline.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let first = self.endpoint.poll_timeout();
        if self.is_plain() && self.forewarning.is_none() { first } else { self.earliest(first) }
    }

    /// The earliest of `first` and the deadlines of all but its TCP.
    fn earliest(&self, mut first: Option<Instant>) -> Option<Instant> {
        if let Some(chain) = &self.chain {
            first = earlier(first, chain.poll_timeout());
        }
        if let Some(forewarning) = &self.forewarning {
            first = earlier(first, forewarning.warn_at());
        }
        if let Some(identity) = &self.identity {
            first = earlier(first, identity.poll_timeout());
        }
        first
    }

    pub(crate) fn set_owner(&mut self, id: ConnectionId, flow: FlowId, end: End) {
        let index = id.index();
        if self.owners.len() <= index {
            self.owners.resize(index + 1, None);
        }
        self.owners[index] = Some((flow, end));
    }

    pub(crate) fn owner(&self, id: ConnectionId) -> Option<(FlowId, End)> {
        self.owners.get(id.index()).copied().flatten()
    }
}

/// The earlier of two deadlines.
fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
