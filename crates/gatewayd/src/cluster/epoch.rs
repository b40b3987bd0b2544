//! The order of claims: the store's revisions.

/// The epoch in which a gateway owns a mobile host. The default belongs to no store: there is no cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Epoch {
    /// The cluster id of the store.
    pub(crate) store: u64,
    /// The store's revision.
    pub(crate) revision: u64,
}

impl Epoch {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.store) << 64 | u128::from(self.revision)).to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (store, revision) = bytes.split_first_chunk()?;
        let revision = u64::from_be_bytes(revision.try_into().ok()?);
        Some(Self { store: u64::from_be_bytes(*store), revision })
    }
}
