//! Endpoints of MPTCP (RFC 8684) in the network namespace of the calling thread, configured over generic netlink (`linux/mptcp_pm.h`) as
//! `ip mptcp` would.

use std::io;
use std::net::IpAddr;

use holdover_host::generic_netlink::{Generic, attribute, attributes, value};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};

/// `MPTCP_PM_CMD_ADD_ADDR`, `DEL_ADDR`, `GET_ADDR` and `SET_LIMITS`.
const ADD: u8 = 1;
const REMOVE: u8 = 2;
const GET: u8 = 3;
const SET_LIMITS: u8 = 5;
/// `MPTCP_PM_ATTR_ADDR`, `RCV_ADD_ADDRS` and `SUBFLOWS`.
const ENDPOINT: u16 = 1;
const ACCEPTED: u16 = 2;
const SUBFLOWS: u16 = 3;
/// `MPTCP_PM_ADDR_ATTR_FAMILY`, `ID`, `ADDR4`, `ADDR6` and `FLAGS`.
const FAMILY: u16 = 1;
const ID: u16 = 2;
const ADDRESS_V4: u16 = 3;
const ADDRESS_V6: u16 = 4;
const FLAGS: u16 = 6;
const NESTED: u16 = 0x8000;
/// `AF_INET` and `AF_INET6`.
const IPV4: u16 = 2;
const IPV6: u16 = 10;

/// The use of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// `MPTCP_PM_ADDR_FLAG_SIGNAL`: announced to peers, which may connect to it.
    Announced,
    /// `MPTCP_PM_ADDR_FLAG_SUBFLOW`: this host opens subflows from it.
    Connecting,
}

/// Sets the limits of further subflows and of announced addresses of the peer that a connection may use.
///
/// # Errors
/// The kernel has no MPTCP, or refuses.
pub fn set_limits(subflows: u32) -> io::Result<()> {
    let limits = [attribute(ACCEPTED, &subflows.to_ne_bytes()), attribute(SUBFLOWS, &subflows.to_ne_bytes())];
    open()?.ask(SET_LIMITS, NLM_F_ACK, &limits.concat()).map(drop)
}

/// Adds an endpoint.
///
/// # Errors
/// The kernel has no MPTCP, or refuses.
pub fn add_endpoint(address: IpAddr, role: Role) -> io::Result<()> {
    let flags: u32 = match role {
        Role::Announced => 1,
        Role::Connecting => 2,
    };
    let endpoint = [described(address), attribute(FLAGS, &flags.to_ne_bytes())].concat();
    open()?.ask(ADD, NLM_F_ACK, &attribute(ENDPOINT | NESTED, &endpoint)).map(drop)
}

/// Removes the endpoint with this address; connections close their subflows from there.
///
/// # Errors
/// There is none, or the kernel refuses.
pub fn remove_endpoint(address: IpAddr) -> io::Result<()> {
    let mut endpoints = open()?;
    let wanted: Vec<(u16, Vec<u8>)> = attributes(&described(address)).map(|(kind, it)| (kind, it.to_vec())).collect();
    let found = endpoints.ask(GET, NLM_F_DUMP, &[])?.into_iter().find_map(|message| {
        let endpoint = value(&message, ENDPOINT)?;
        let is_it = wanted.iter().all(|(kind, content)| value(endpoint, *kind) == Some(content));
        Some(value(endpoint, ID)?.to_vec()).filter(|_| is_it)
    });
    let id = found.ok_or(io::ErrorKind::NotFound)?;
    let endpoint = [described(address), attribute(ID, &id)].concat();
    endpoints.ask(REMOVE, NLM_F_ACK, &attribute(ENDPOINT | NESTED, &endpoint)).map(drop)
}

fn open() -> io::Result<Generic> {
    Generic::open(b"mptcp_pm\0")
}

fn described(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(it) => [attribute(FAMILY, &IPV4.to_ne_bytes()), attribute(ADDRESS_V4, &it.octets())].concat(),
        IpAddr::V6(it) => [attribute(FAMILY, &IPV6.to_ne_bytes()), attribute(ADDRESS_V6, &it.octets())].concat(),
    }
}
