//! Probes next hops without changing the kernel's neighbour table: the agent's own ARP requests (RFC 826) and neighbour
//! solicitations (RFC 4861 section 4.3).
//!
//! Only replies are received. The kernel handles them, too, and refreshes its own entry, if there is one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_host::neighbour_frames::{Mac, Question};
use holdover_host::neighbours::Neighbours;
use holdover_host::resolution_socket::{ArpFilter, ResolutionSocket};

/// Probes on any interface of a network namespace, and receives the replies.
#[derive(Debug)]
pub struct NeighbourProbe {
    neighbours: Neighbours,
    /// By interface index, opened on first use.
    interfaces: BTreeMap<u32, Interface>,
}

#[derive(Debug)]
struct Interface {
    socket: ResolutionSocket,
    /// Neighbours' Ethernet addresses.
    known: BTreeMap<IpAddr, Mac>,
}

/// A neighbour that has replied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reply {
    /// The interface's index.
    pub index: u32,
    /// The neighbour.
    pub address: IpAddr,
}

impl NeighbourProbe {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses the netlink socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self { neighbours: Neighbours::open()?, interfaces: BTreeMap::new() })
    }

    /// Probes one neighbour, by its known Ethernet address, or by broadcast.
    ///
    /// # Errors
    /// The probe was not sent: the process lacks `CAP_NET_RAW`, or the interface has no address towards the neighbour
    /// or accepts no frames.
    pub fn ask(&mut self, index: u32, next_hop: IpAddr, is_broadcast: bool) -> io::Result<()> {
        let sent = self.send(index, next_hop, is_broadcast);
        if sent.is_err() {
            // The index may be reused, and the Ethernet address may change.
            self.interfaces.remove(&index);
        }
        sent
    }

    fn send(&mut self, index: u32, next_hop: IpAddr, is_broadcast: bool) -> io::Result<()> {
        let way = self.neighbours.own_way(index, next_hop)?.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let interface = match self.interfaces.entry(index) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Interface {
                socket: ResolutionSocket::open(index, ArpFilter::Replies)?,
                known: BTreeMap::new(),
            }),
        };
        if !interface.known.contains_key(&next_hop)
            && let Some(mac) = self.neighbours.mac(index, next_hop)?
        {
            interface.known.insert(next_hop, mac);
        }
        let question = Question { mac: interface.socket.mac()?, local: way.local, hop: next_hop };
        let known = interface.known.get(&next_hop).copied().filter(|_| !is_broadcast);
        let frame = question.frame(known).ok_or(io::ErrorKind::AddrNotAvailable)?;
        interface.socket.send(&frame)
    }

    /// The next reply.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.interfaces.iter_mut().find_map(|(&index, interface)| {
            let (address, mac) = interface.socket.receive()?;
            interface.known.insert(address, mac);
            Some(Reply { index, address })
        })
    }

    /// Readable when there is a reply.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.interfaces.values().flat_map(|interface| interface.socket.descriptors()).map(|socket| socket.as_fd())
    }
}
