//! Host identities: key pairs, public keys, and the tags that applications use as addresses (RFC 7401 section 3).

mod hit;
mod host_identity;
mod key_pair;
mod resource_record;

pub use hit::{Hit, HitSuite, drip_entity_tag};
pub use host_identity::{Algorithm, HostIdentity, IdentityError};
pub use key_pair::KeyPair;
pub use resource_record::RecordKeyError;
