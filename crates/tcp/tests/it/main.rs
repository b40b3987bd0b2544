//! Integration tests of the endpoint: whole transfers, packet scripts for the rules of the RFCs, and properties.

mod transfer;
mod world;
