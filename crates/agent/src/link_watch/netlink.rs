//! Kernel notifications by rtnetlink (`rtnetlink(7)`): subscribes, dumps everything at the start and after an overrun,
//! and translates.

mod stacking;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_host::{Group, Notification};
use netlink_packet_core::{
    Emitable as _, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REPLACE, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::kernel::{DefaultRoute, Interfaces, KernelEvent, Part, Reachability, RouteChange};
use super::rules::{self, Rule};
use stacking::stacking_of;

/// The kernel's notifications are not available.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel did not answer in time.
    #[error("the kernel did not list its interfaces within 2 s")]
    Silent,
    /// A dump was inconsistent: state changed meanwhile, notifications were lost, or the request was refused.
    #[error("{SNAPSHOTS} consecutive dumps of the kernel's interfaces were inconsistent")]
    Torn,
}

/// A socket for notifications.
pub struct Monitor {
    socket: holdover_host::Monitor,
    /// When to dump again after a failure.
    ask_again_at: Option<Instant>,
}

/// The answer to a request so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    /// The request's sequence number.
    sequence: u32,
    is_done: bool,
    /// The answer may be incomplete.
    is_torn: bool,
}

/// The most consecutive attempts at a consistent dump; after that it is retried later.
const SNAPSHOTS: u32 = 3;

/// The time until the next dump after a failure.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The timeout for the kernel.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

impl Monitor {
    /// Subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> Result<Self, MonitorError> {
        let groups: Vec<Group> = [Group::Link, Group::Neighbour].into_iter().chain(Group::ADDRESSING).collect();
        Ok(Self { socket: holdover_host::Monitor::open(&groups)?, ask_again_at: None })
    }

    /// Dumps everything. Answers and notifications arrive on the same socket, and so in order.
    ///
    /// # Errors
    /// The socket fails, the kernel does not answer in time, or every dump is inconsistent. Then interfaces missing in
    /// the dump are not removed.
    pub fn take_snapshot(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        for _ in 0..SNAPSHOTS {
            interfaces.begin_snapshot();
            match self.ask_for_everything(now, interfaces) {
                Ok(true) => {
                    interfaces.end_snapshot(now);
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) => {
                    interfaces.abandon_snapshot(now);
                    return Err(error);
                }
            }
        }
        interfaces.abandon_snapshot(now);
        Err(MonitorError::Torn)
    }

    /// Dumps everything, and again later if that fails for a temporary reason.
    ///
    /// # Errors
    /// The socket fails.
    pub fn refresh(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        let was_tried = self.ask_again_at.take().is_some();
        match self.take_snapshot(now, interfaces) {
            Err(error @ (MonitorError::Silent | MonitorError::Torn)) => {
                if !was_tried {
                    tracing::warn!(%error, "retrying the dump");
                }
                self.ask_again_at = Some(now + ASK_AGAIN_AFTER);
                Ok(())
            }
            other => other,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.ask_again_at
    }

    /// Dumps everything again, if due.
    ///
    /// # Errors
    /// The socket fails.
    pub fn handle_timeout(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        if self.ask_again_at.is_some_and(|at| at <= now) { self.refresh(now, interfaces) } else { Ok(()) }
    }

    /// Reads pending notifications. After an overrun, everything is dumped again.
    ///
    /// # Errors
    /// The socket fails.
    pub fn handle_ready(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        while let Some(notification) = self.socket.receive()? {
            match notification {
                Notification::Messages(messages) => {
                    messages.into_iter().for_each(|message| tell(now, message, interfaces));
                }
                // The next dump makes up for it.
                Notification::Overrun if self.ask_again_at.is_some() => {}
                Notification::Overrun => self.refresh(now, interfaces)?,
            }
        }
        Ok(())
    }

    /// Whether the dump is consistent. A request is sent when the one before it has been answered: the kernel refuses
    /// it otherwise.
    fn ask_for_everything(&mut self, now: Instant, interfaces: &mut Interfaces) -> Result<bool, MonitorError> {
        let requests = [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            RouteNetlinkMessage::GetRule(RuleMessage::default()),
            RouteNetlinkMessage::GetRoute(RouteMessage::default()),
            RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        ];
        let mut is_whole = true;
        for request in requests {
            is_whole &= !self.ask(now, request, NLM_F_DUMP, interfaces)?.is_torn;
        }
        Ok(is_whole)
    }

    /// Queries one interface, and handles all notifications before the answer.
    ///
    /// # Errors
    /// The socket fails. Without an answer everything is asked for later: notifications may be lost as well.
    pub fn ask_link(&mut self, now: Instant, index: u32, interfaces: &mut Interfaces) -> Result<(), MonitorError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        // An acknowledgement ends the answer, even if the interface does not exist.
        match self.ask(now, RouteNetlinkMessage::GetLink(link), NLM_F_ACK, interfaces) {
            Ok(answer) if answer.is_torn => self.refresh(now, interfaces),
            Ok(_) => Ok(()),
            Err(MonitorError::Silent) => {
                self.ask_again_at = Some(now);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn ask(
        &mut self,
        now: Instant,
        request: RouteNetlinkMessage,
        flags: u16,
        interfaces: &mut Interfaces,
    ) -> Result<Answer, MonitorError> {
        let mut answer = Answer::to(self.socket.send(request, flags)?);
        while !answer.is_done {
            self.receive_answer(now, &mut answer, interfaces)?;
        }
        Ok(answer)
    }

    /// Reads one datagram.
    fn receive_answer(
        &mut self,
        now: Instant,
        answer: &mut Answer,
        interfaces: &mut Interfaces,
    ) -> Result<(), MonitorError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut ready, Some(&PATIENCE)) {
            Ok(0) => return Err(MonitorError::Silent),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(MonitorError::Socket(errno.into())),
        }
        match self.socket.receive()? {
            Some(Notification::Messages(messages)) => {
                for message in messages {
                    answer.note(&message);
                    tell(now, message, interfaces);
                }
            }
            Some(Notification::Overrun) => answer.note_overrun(),
            None => {}
        }
        Ok(())
    }
}

impl Answer {
    const fn to(sequence: u32) -> Self {
        Self { sequence, is_done: false, is_torn: false }
    }

    fn note(&mut self, message: &NetlinkMessage<RouteNetlinkMessage>) {
        // In notifications this bit has another meaning, or none.
        if message.header.sequence_number != self.sequence {
            return;
        }
        self.is_torn |= message.header.flags & NLM_F_DUMP_INTR != 0;
        match &message.payload {
            NetlinkPayload::Done(done) => {
                self.is_done = true;
                self.is_torn |= done.code != 0;
            }
            // Without a code it is an acknowledgement. A kernel without the feature (rules) has no entries.
            NetlinkPayload::Error(error) => {
                self.is_done = true;
                self.is_torn |= error.code.is_some_and(|code| code.get() != -libc::EOPNOTSUPP);
            }
            _ => {}
        }
    }

    /// Notifications were lost: the answer so far may be outdated.
    const fn note_overrun(&mut self) {
        self.is_torn = true;
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn tell(now: Instant, message: NetlinkMessage<RouteNetlinkMessage>, interfaces: &mut Interfaces) {
    if let NetlinkPayload::InnerMessage(inner) = message.payload {
        for event in translate(&message.header, inner) {
            interfaces.handle(now, event);
        }
    }
}

fn translate(header: &NetlinkHeader, message: RouteNetlinkMessage) -> Vec<KernelEvent> {
    match message {
        RouteNetlinkMessage::NewLink(link) => translate_link(link).into_iter().collect(),
        RouteNetlinkMessage::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
            vec![KernelEvent::LinkGone { index: link.header.index }]
        }
        RouteNetlinkMessage::NewAddress(address) => translate_address(&address, true).into_iter().collect(),
        RouteNetlinkMessage::DelAddress(address) => translate_address(&address, false).into_iter().collect(),
        RouteNetlinkMessage::NewRoute(route) => {
            let is_instead = header.flags & NLM_F_REPLACE != 0;
            translate_route(route, if is_instead { RouteChange::Replaced } else { RouteChange::Added })
        }
        RouteNetlinkMessage::DelRoute(route) => translate_route(route, RouteChange::Removed),
        RouteNetlinkMessage::NewRule(rule) => translate_rule(&rule, true).into_iter().collect(),
        RouteNetlinkMessage::DelRule(rule) => translate_rule(&rule, false).into_iter().collect(),
        RouteNetlinkMessage::NewNeighbour(neighbour) => translate_neighbour(&neighbour, true).into_iter().collect(),
        RouteNetlinkMessage::DelNeighbour(neighbour) => translate_neighbour(&neighbour, false).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn translate_link(link: LinkMessage) -> Option<KernelEvent> {
    // Bridges report their ports by separate messages, without the state of the link.
    if link.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = link.header.flags;
    let stacking = stacking_of(&link);
    let (mut name, mut kind, mut state, mut carrier_losses) = (None, String::new(), None, None);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found),
            LinkAttribute::OperState(found) => state = Some(found),
            LinkAttribute::CarrierDownCount(count) => carrier_losses = Some(count),
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
    // A message without IFLA_OPERSTATE is a wireless extension event. It is queued apart from the link's own messages
    // and may have older flags, so it is ignored for the state of the link.
    let state = state?;
    // Drivers that do not report it leave the state unknown (RFC 2863); then the carrier decides. A Wi-Fi interface
    // that is not authenticated yet has a carrier and is dormant, and IFF_RUNNING is not set: `dev_get_flags` sets it
    // if the state is up or unknown.
    let is_fit = matches!(state, State::Up | State::Unknown)
        && flags.contains(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running)
        && !flags.contains(LinkFlags::Dormant);
    Some(KernelEvent::Link {
        index: link.header.index,
        name: name?.into(),
        kind: kind.into(),
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_set_up: flags.contains(LinkFlags::Up),
        can_carry: is_fit,
        carrier_losses,
        has_neighbours: !flags.intersects(LinkFlags::Noarp | LinkFlags::Pointopoint | LinkFlags::Loopback),
        stacking,
    })
}

fn translate_address(message: &AddressMessage, is_there: bool) -> Option<KernelEvent> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link the other attribute is the peer's address.
            AddressAttribute::Local(address) => found = Some(*address),
            AddressAttribute::Address(address) => found = found.or(Some(*address)),
            _ => {}
        }
    }
    let unfit = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    let is_usable = is_there && !message.header.flags.intersects(unfit);
    Some(KernelEvent::Address { index: message.header.index, address: found?, is_usable })
}

fn translate_route(message: RouteMessage, change: RouteChange) -> Vec<KernelEvent> {
    let header = &message.header;
    let part = part_of(&message).filter(|_| header.source_prefix_length == 0 && header.kind == RouteType::Unicast);
    let is_ipv6 = header.address_family == AddressFamily::Inet6;
    if !(is_ipv6 || header.address_family == AddressFamily::Inet) {
        return Vec::new();
    }
    let Some(part) = part else { return vec![KernelEvent::OtherRoute] };
    // Numbers beyond 255 are in an attribute only.
    let (mut table, mut metric) = (u32::from(header.table), 0);
    let (mut next_hop, mut interface, mut hops) = (None, None, Vec::new());
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Priority(found) => metric = found,
            RouteAttribute::Table(found) => table = found,
            RouteAttribute::Oif(found) => interface = Some(found),
            RouteAttribute::MultiPath(found) => hops = found,
            other => next_hop = next_hop.or_else(|| next_hop_of(&other)),
        }
    }
    if table == rules::LOCAL {
        return Vec::new();
    }
    let mut ways: Vec<(u32, Option<IpAddr>)> = interface.map(|index| (index, next_hop)).into_iter().collect();
    ways.extend(hops.into_iter().map(|hop| (hop.interface_index, hop.attributes.iter().find_map(next_hop_of))));
    let events = ways.into_iter().enumerate().map(|(position, (index, next_hop))| {
        // The second next hop of a route does not replace the first.
        let is_second = position > 0 && change == RouteChange::Replaced;
        let change = if is_second { RouteChange::Added } else { change };
        KernelEvent::DefaultRoute { index, route: DefaultRoute { is_ipv6, table, part, next_hop, metric }, change }
    });
    events.collect()
}

/// `None` for a route that is no part of a default route.
fn part_of(message: &RouteMessage) -> Option<Part> {
    let destination = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    });
    let first_octet = match destination {
        // The kernel leaves out addresses of zeros.
        None => 0,
        Some(IpAddr::V4(address)) => address.octets()[0],
        Some(IpAddr::V6(address)) => address.octets()[0],
    };
    match (message.header.address_family, message.header.destination_prefix_length, first_octet) {
        (_, 0, _) => Some(Part::All),
        (_, 1, 0) => Some(Part::First),
        (_, 1, 0x80) => Some(Part::Second),
        (AddressFamily::Inet6, 3, 0x20) => Some(Part::Global),
        (AddressFamily::Inet6, 4, 0x20) => Some(Part::FirstGlobal),
        (AddressFamily::Inet6, 4, 0x30) => Some(Part::SecondGlobal),
        _ => None,
    }
}

/// `None` for rules without effect on default routes.
fn translate_rule(message: &RuleMessage, is_there: bool) -> Option<KernelEvent> {
    let header = &message.header;
    let is_ipv6 = header.family == AddressFamily::Inet6;
    if header.action != RuleAction::ToTable || !(is_ipv6 || header.family == AddressFamily::Inet) {
        return None;
    }
    let mut table = u32::from(header.table);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Table(found) => table = *found,
            RuleAttribute::L3MDev(true) => return None,
            // The kernel reports -1 without suppression; any other length also suppresses default routes, whose length
            // is 0.
            RuleAttribute::SuppressPrefixLen(length) if *length != u32::MAX => return None,
            _ => {}
        }
    }
    if [0, rules::LOCAL].contains(&table) {
        return None;
    }
    let mut selector = vec![0; message.buffer_len()];
    message.emit(&mut selector);
    Some(KernelEvent::Rule { rule: Rule { is_ipv6, table, selector: selector.into() }, is_there })
}

fn next_hop_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) => Some((*address).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

fn translate_neighbour(message: &NeighbourMessage, is_there: bool) -> Option<KernelEvent> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::from(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    })?;
    let state = match message.header.state {
        _ if !is_there => Reachability::Forgotten,
        NeighbourState::Permanent | NeighbourState::Noarp => Reachability::Fixed,
        _ if is_of_others(message) => Reachability::Fixed,
        NeighbourState::Reachable => Reachability::Answers,
        NeighbourState::Failed => Reachability::Failed,
        // Its address is known, and it was not found to be silent.
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => Reachability::Unknown,
        _ => Reachability::Unknown,
    };
    Some(KernelEvent::Neighbour { index: message.header.ifindex, address, state })
}

/// Whether the entry is managed by others: a control plane (`NTF_EXT_LEARNED`), or the kernel on behalf of a process
/// (`NTF_EXT_MANAGED`).
fn is_of_others(message: &NeighbourMessage) -> bool {
    let is_managed = |attribute: &NeighbourAttribute| matches!(attribute, NeighbourAttribute::ExtFlags(flags) if flags.contains(NeighbourExtFlags::Managed));
    message.header.flags.contains(NeighbourFlags::ExtLearned) || message.attributes.iter().any(is_managed)
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests;
