//! Integration tests of the endpoint: whole transfers, packet scripts for the rules of the RFCs, and properties.

mod rfc2018;
mod rfc5681;
mod rfc5682;
mod rfc5961;
mod rfc6298;
mod rfc6582;
mod rfc6675;
mod rfc7323;
mod rfc8985;
mod rfc9293_arrives;
mod rfc9293_arrives_ack;
mod rfc9293_calls;
mod rfc9293_endpoint;
mod rfc9293_syn_sent;
mod rfc9293_window;
mod script;
mod transfer;
mod world;
