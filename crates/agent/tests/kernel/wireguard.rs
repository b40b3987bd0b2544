//! Configures WireGuard interfaces over generic netlink (`linux/wireguard.h`), as `wg` would.

use std::net::SocketAddr;

use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_GENERIC};

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `WG_CMD_GET_DEVICE`, `WG_CMD_SET_DEVICE`, and attributes of devices and peers.
const GET: u8 = 0;
const SET: u8 = 1;
const NAME: u16 = 2;
const PRIVATE_KEY: u16 = 3;
const PUBLIC_KEY: u16 = 4;
const LISTEN_PORT: u16 = 6;
const PEERS: u16 = 8;
const PEER_PUBLIC_KEY: u16 = 1;
const PEER_ENDPOINT: u16 = 4;
const PEER_ALLOWED: u16 = 9;
const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_BITS: u16 = 3;
const NESTED: u16 = 0x8000;

/// Sets an interface's key and port; returns the public key.
pub(crate) fn set_up(interface: &str, key: [u8; 32], port: u16) -> [u8; 32] {
    let mut socket = Generic::open();
    let name = name(interface);
    let private = attribute(PRIVATE_KEY, &key);
    socket.ask(SET, 0x4, &[name.clone(), private, attribute(LISTEN_PORT, &port.to_ne_bytes())].concat());
    let device = socket.ask(GET, 0x300, &name);
    find(&device, PUBLIC_KEY).unwrap().try_into().unwrap()
}

/// A peer with all of IPv4 as allowed addresses.
pub(crate) fn add_peer(interface: &str, key: [u8; 32], endpoint: SocketAddr) {
    let SocketAddr::V4(endpoint) = endpoint else { panic!("{endpoint}") };
    let address = [&2u16.to_ne_bytes()[..], &endpoint.port().to_be_bytes(), &endpoint.ip().octets(), &[0; 8]].concat();
    let anything = [
        attribute(ALLOWED_FAMILY, &2u16.to_ne_bytes()),
        attribute(ALLOWED_ADDRESS, &[0; 4]),
        attribute(ALLOWED_BITS, &[0]),
    ];
    let allowed = attribute(PEER_ALLOWED | NESTED, &attribute(NESTED, &anything.concat()));
    let peer = [attribute(PEER_PUBLIC_KEY, &key), attribute(PEER_ENDPOINT, &address), allowed].concat();
    let peers = attribute(PEERS | NESTED, &attribute(NESTED, &peer));
    Generic::open().ask(SET, 0x4, &[name(interface), peers].concat());
}

fn name(interface: &str) -> Vec<u8> {
    attribute(NAME, format!("{interface}\0").as_bytes())
}

struct Generic {
    socket: Socket,
    family: u16,
}

impl Generic {
    fn open() -> Self {
        let mut socket = Socket::new(NETLINK_GENERIC).unwrap();
        socket.bind_auto().unwrap();
        let mut generic = Self { socket, family: CONTROLLER };
        let description = generic.ask(GET_FAMILY, 0, &attribute(FAMILY_NAME, b"wireguard\0"));
        generic.family = u16::from_ne_bytes(find(&description, FAMILY_ID).unwrap().try_into().unwrap());
        generic
    }

    /// The attributes of the first message of the answer.
    fn ask(&mut self, command: u8, flags: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = ((20 + attributes.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(self.family.to_ne_bytes());
        bytes.extend((1 | flags).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(attributes);
        self.socket.send_to(&bytes, &NetlinkAddress::new(0, 0), 0).unwrap();
        let (answer, _) = self.socket.recv_from_full().unwrap();
        if u16::from_ne_bytes([answer[4], answer[5]]) == 2 {
            let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
            assert_eq!(code, 0, "{}", std::io::Error::from_raw_os_error(-code));
            return Vec::new();
        }
        let length = u32::from_ne_bytes(answer[..4].try_into().unwrap()) as usize;
        answer[20..length].to_vec()
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while let Some((header, _)) = bytes.split_at_checked(4) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) & 0x3fff == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}
