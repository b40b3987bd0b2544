//! Tests of the protocol's codec, cryptography and machines.

mod attacks;
mod base_exchange;
mod by_hand;
mod check_budget;
mod codec;
mod corpus;
mod crypto;
mod data_plane;
mod dead_address;
mod dead_pairs;
mod disorder;
mod esp;
mod identity;
mod invitation;
mod lossy;
mod mutations;
mod path_check;
mod rekey;
mod relay;
mod rendezvous;
mod rules;
mod support;
mod update;
mod update_rules;
mod vectors;
mod world;
