//! Packet scripts of readdressing in the old model, and tests of the protocol's codec, cryptography and machines.

mod attacks;
mod base_exchange;
mod by_hand;
mod codec;
mod corpus;
mod crypto;
mod disorder;
mod esp;
mod exchange;
mod identity;
mod pair;
mod rekey;
mod relay;
mod rendezvous;
mod rules;
mod support;
mod update;
mod world;
