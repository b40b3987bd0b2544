//! Probes next hops without changing the kernel's neighbour table: the agent's own ARP requests (RFC 826) and neighbour
//! solicitations (RFC 4861 section 4.3).
//!
//! Only replies are received. The kernel handles them, too, and refreshes its own entry, if there is one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
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

    /// Probes one neighbour, by its known Ethernet address, or by broadcast: from those of the host's addresses `from` that are of its IP
    /// version, and by broadcast from the one that the kernel prefers, too. The neighbour learns the Ethernet address of each
    /// address that a probe comes from, and forwards to it without resolving it first. A router's address is link-local in IPv6, and
    /// so is what the kernel prefers towards it, which no connection has.
    ///
    /// # Errors
    /// A probe was not sent: the process lacks `CAP_NET_RAW`, or the interface has no address towards the neighbour
    /// or accepts no frames.
    pub fn ask(&mut self, index: u32, next_hop: IpAddr, from: &BTreeSet<IpAddr>, is_broadcast: bool) -> io::Result<()> {
        let sent = self.send(index, next_hop, from, is_broadcast);
        if sent.is_err()
            && let Entry::Occupied(mut entry) = self.interfaces.entry(index)
        {
            let is_gone = |error: io::Error| error.raw_os_error() == Some(libc::ENXIO);
            if entry.get().socket.mac().is_err_and(is_gone) {
                // The index may be reused.
                entry.remove();
            } else {
                // The socket stays: the kernel takes 10 ms to close one, and probes follow one another as fast. The next network may be
                // another one.
                entry.get_mut().known.clear();
            }
        }
        sent
    }

    fn send(&mut self, index: u32, next_hop: IpAddr, from: &BTreeSet<IpAddr>, is_broadcast: bool) -> io::Result<()> {
        let locals = self.locals(index, next_hop, from, is_broadcast)?;
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
        let mac = interface.socket.mac()?;
        let known = interface.known.get(&next_hop).copied().filter(|_| !is_broadcast);
        for local in locals {
            let frame = Question { mac, local, hop: next_hop }.frame(known).ok_or(io::ErrorKind::AddrNotAvailable)?;
            interface.socket.send(&frame)?;
        }
        Ok(())
    }

    /// The host's own addresses that a neighbour is probed from: at least one.
    fn locals(
        &mut self,
        index: u32,
        next_hop: IpAddr,
        from: &BTreeSet<IpAddr>,
        is_broadcast: bool,
    ) -> io::Result<BTreeSet<IpAddr>> {
        let mut locals = BTreeSet::new();
        for &local in from.iter().filter(|local| local.is_ipv6() == next_hop.is_ipv6()) {
            locals.extend(self.neighbours.route(index, local, next_hop)?.map(|way| way.local));
        }
        if locals.is_empty() || is_broadcast {
            locals.extend(self.neighbours.own_way(index, next_hop)?.map(|way| way.local));
        }
        if locals.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(locals) }
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
