//! Values that gateways write into the store, and requests to it.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The value of a gateway's key, which is under its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    /// The address for handoffs.
    pub(crate) handoff: SocketAddr,
    /// Random for each process.
    pub(crate) process: u64,
}

/// The value of a mobile host's key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRecord {
    /// The name of the gateway that owns it.
    pub(crate) owner: String,
    /// Its Ethernet address, for a gateway that takes it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<[u8; 6]>,
}

/// A key with its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Gateway { name: String, registration: Option<Registration> },
    Mobile { address: IpAddr, record: Option<OwnerRecord> },
}

/// The new state of a key; `None` inside it if the key was deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) epoch: u64,
    pub(crate) subject: Subject,
}

/// A write that makes this gateway the owner, if the key has the revision `over` (0: if there is no such key).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) mobile: IpAddr,
    pub(crate) over: u64,
    pub(crate) mac: Option<[u8; 6]>,
}

/// A request to the store. At most one of each kind is unanswered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Requests a lease, and registers this gateway under it.
    Join,
    KeepAlive {
        lease: u64,
    },
    /// A page of all keys: from this key on (all, if it is empty), as of this revision (0: the present one).
    List {
        from: Vec<u8>,
        at: u64,
    },
    /// All changes after this revision, until [`Answer::WatchEnded`].
    Watch {
        after: u64,
    },
    Claims(Vec<Claim>),
    /// Removes keys with these revisions.
    Remove(Vec<(IpAddr, u64)>),
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Session,
    List,
    Watch,
    Claims,
    Removal,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Joined {
        lease: u64,
        epoch: u64,
    },
    KeptAlive,
    /// The lease has expired, and with it the registration.
    LeaseGone,
    /// A page of all keys, as of this revision; and the first key of the next page, if there is one.
    Listed {
        at: u64,
        changes: Vec<Change>,
        next: Option<Vec<u8>>,
    },
    /// The changes after one revision, up to another.
    Changed {
        after: u64,
        at: u64,
        changes: Vec<Change>,
    },
    /// The watch has ended. `is_compacted`: the store has dropped some of the requested changes.
    WatchEnded {
        is_compacted: bool,
    },
    /// The states of the keys after the claims.
    Claimed(Vec<Change>),
    Removed,
}

/// A request with a number that no other one of this process has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Numbered {
    pub(crate) id: u64,
    pub(crate) request: Request,
}

/// The reply to the request of this number by the store with this cluster id (0: none was sent), or the error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) result: Result<(u64, Answer), String>,
}

impl Request {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Join | Self::KeepAlive { .. } => Kind::Session,
            Self::List { .. } => Kind::List,
            Self::Watch { .. } => Kind::Watch,
            Self::Claims(_) => Kind::Claims,
            Self::Remove(_) => Kind::Removal,
        }
    }
}
