//! The kernel's news over rtnetlink (`rtnetlink(7)`): listens, asks for everything at the start and whenever something was lost,
//! and translates.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use holdover_base::Instant;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::kernel::{DefaultRoute, Interfaces, News, Presence, Reachability};

/// The kernel's news cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel did not answer in time.
    #[error("the kernel did not say what interfaces there are within 2 s")]
    Silent,
}

/// A socket on which the kernel tells of changes.
pub struct Monitor {
    socket: Socket,
    sequence: u32,
}

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_IFADDR` and `RTNLGRP_IPV6_ROUTE`
/// (`linux/rtnetlink.h`).
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];

/// Room for some thousand changes at once.
const RECEIVE_BUFFER_BYTES: u32 = 1 << 20;

/// So long the kernel is waited for.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

impl Monitor {
    /// Listens in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such socket for this process.
    pub fn open() -> Result<Self, MonitorError> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // Less room than wished for is no reason to do without.
        let _ = socket.set_rx_buf_sz(RECEIVE_BUFFER_BYTES);
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks for everything. Answers and news come by the same socket, so that they are in order.
    ///
    /// # Errors
    /// The socket fails, or nothing comes for a while.
    pub fn take_snapshot(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        interfaces.begin_snapshot();
        let requests = [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            RouteNetlinkMessage::GetRoute(RouteMessage::default()),
            RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        ];
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut message = NetlinkMessage::from(request);
            message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            message.header.sequence_number = self.sequence;
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
            while !self.receive_answer(now, interfaces)? {}
        }
        interfaces.end_snapshot(now);
        Ok(())
    }

    /// Takes what is there to be taken. Where something was lost, everything is asked for again.
    ///
    /// # Errors
    /// The socket fails.
    pub fn handle_ready(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, from)) if from.port_number() == 0 => {
                    messages(&datagram).for_each(|message| tell(now, message, interfaces));
                }
                // Not from the kernel.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_overrun(&error) => self.take_snapshot(now, interfaces)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes one datagram; whether the answer ends with it.
    fn receive_answer(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<bool, MonitorError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut ready, Some(&PATIENCE)) {
            Ok(0) => return Err(MonitorError::Silent),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(MonitorError::Socket(errno.into())),
        }
        let datagram = match self.socket.recv_from_full() {
            Ok((datagram, from)) if from.port_number() == 0 => datagram,
            Ok(_) => return Ok(false),
            // Lost news will be made up for by the rest of the answers; what was told before is right or newer.
            Err(error) if is_overrun(&error) || error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut is_done = false;
        for message in messages(&datagram) {
            let is_answer = message.header.sequence_number == self.sequence;
            let ends = matches!(message.payload, NetlinkPayload::Done(_) | NetlinkPayload::Error(_));
            is_done |= is_answer && ends;
            tell(now, message, interfaces);
        }
        Ok(is_done)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

/// The messages of one datagram, each of which begins with its length and is padded to a multiple of 4. What is not understood ends
/// it: nothing tells where the next one begins.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> {
    std::iter::from_fn(move || {
        while !datagram.is_empty() {
            let length = NetlinkBuffer::new_checked(datagram).ok()?.length() as usize;
            let (this, rest) = datagram.split_at_checked(length.next_multiple_of(4)).unwrap_or((datagram, &[]));
            datagram = rest;
            // A message of a kind that is not known is of no concern.
            if let Ok(message) = NetlinkMessage::deserialize(this) {
                return Some(message);
            }
        }
        None
    })
}

fn tell(now: Instant, message: NetlinkMessage<RouteNetlinkMessage>, interfaces: &mut Interfaces) {
    if let NetlinkPayload::InnerMessage(inner) = message.payload {
        for news in translate(&message.header, inner) {
            interfaces.handle(now, news);
        }
    }
}

fn translate(header: &NetlinkHeader, message: RouteNetlinkMessage) -> Vec<News> {
    match message {
        RouteNetlinkMessage::NewLink(link) => translate_link(link).into_iter().collect(),
        RouteNetlinkMessage::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
            vec![News::LinkGone { index: link.header.index }]
        }
        RouteNetlinkMessage::NewAddress(address) => translate_address(&address, true).into_iter().collect(),
        RouteNetlinkMessage::DelAddress(address) => translate_address(&address, false).into_iter().collect(),
        RouteNetlinkMessage::NewRoute(route) => {
            let is_instead = header.flags & NLM_F_REPLACE != 0;
            translate_route(route, if is_instead { Presence::Instead } else { Presence::There })
        }
        RouteNetlinkMessage::DelRoute(route) => translate_route(route, Presence::Gone),
        RouteNetlinkMessage::NewNeighbour(neighbour) => translate_neighbour(&neighbour, true).into_iter().collect(),
        RouteNetlinkMessage::DelNeighbour(neighbour) => translate_neighbour(&neighbour, false).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn translate_link(link: LinkMessage) -> Option<News> {
    // Bridges tell of their ports by messages of their own, which say nothing of the link.
    if link.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = link.header.flags;
    let (mut name, mut kind, mut state) = (None, String::new(), State::Unknown);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found),
            LinkAttribute::OperState(found) => state = found,
            LinkAttribute::LinkInfo(infos) => {
                let mut kinds = infos.into_iter().filter_map(|info| match info {
                    LinkInfo::Kind(found) => Some(found.to_string()),
                    _ => None,
                });
                kind = kinds.next_back().unwrap_or_default();
            }
            _ => {}
        }
    }
    // Drivers that do not say leave the state unknown (RFC 2863); then the carrier decides. A Wi-Fi interface that is not
    // authenticated yet has a carrier and is dormant.
    let is_fit = matches!(state, State::Up | State::Unknown);
    Some(News::Link {
        index: link.header.index,
        name: name?.into(),
        kind: kind.into(),
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_set_up: flags.contains(LinkFlags::Up),
        can_carry: flags.contains(LinkFlags::Up | LinkFlags::LowerUp) && is_fit,
    })
}

fn translate_address(message: &AddressMessage, is_there: bool) -> Option<News> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link the other one is the peer's.
            AddressAttribute::Local(address) => found = Some(*address),
            AddressAttribute::Address(address) => found = found.or(Some(*address)),
            _ => {}
        }
    }
    let unfit = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    let is_usable = is_there && !message.header.flags.intersects(unfit);
    Some(News::Address { index: message.header.index, address: found?, is_usable })
}

fn translate_route(message: RouteMessage, presence: Presence) -> Vec<News> {
    let header = &message.header;
    let is_default =
        header.destination_prefix_length == 0 && header.source_prefix_length == 0 && header.kind == RouteType::Unicast;
    let is_ipv6 = header.address_family == AddressFamily::Inet6;
    if !is_default
        || header.table != RouteHeader::RT_TABLE_MAIN
        || !(is_ipv6 || header.address_family == AddressFamily::Inet)
    {
        return Vec::new();
    }
    let mut metric = 0;
    let (mut gateway, mut interface, mut hops) = (None, None, Vec::new());
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Priority(found) => metric = found,
            RouteAttribute::Oif(found) => interface = Some(found),
            RouteAttribute::MultiPath(found) => hops = found,
            other => gateway = gateway.or_else(|| gateway_of(&other)),
        }
    }
    let mut ways: Vec<(u32, Option<IpAddr>)> = interface.map(|index| (index, gateway)).into_iter().collect();
    ways.extend(hops.into_iter().map(|hop| (hop.interface_index, hop.attributes.iter().find_map(gateway_of))));
    let news = ways.into_iter().enumerate().map(|(position, (index, gateway))| {
        // The second of several ways does not replace the first.
        let is_second = position > 0 && presence == Presence::Instead;
        let presence = if is_second { Presence::There } else { presence };
        News::DefaultRoute { index, route: DefaultRoute { is_ipv6, gateway, metric }, presence }
    });
    news.collect()
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) => Some((*address).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

fn translate_neighbour(message: &NeighbourMessage, is_there: bool) -> Option<News> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::from(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    })?;
    let state = match message.header.state {
        _ if !is_there => Reachability::Forgotten,
        NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp => Reachability::Answers,
        NeighbourState::Failed => Reachability::Failed,
        // Its address is known, and it was not found to be silent.
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => Reachability::Unknown,
        _ => Reachability::Unknown,
    };
    Some(News::Neighbour { index: message.header.ifindex, address, state })
}
