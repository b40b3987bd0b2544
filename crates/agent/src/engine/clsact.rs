//! The programs as filters of the `clsact` qdisc (`tc-bpf(8)`): for kernels without tcx, which came with Linux 6.6.
//!
//! A tcx link goes with the process that holds it. A filter stays until it is removed, also after SIGKILL; what an agent has left
//! behind does no harm ([`path::EXPIRES_AFTER`](super::path::EXPIRES_AFTER): every packet passes as it is), and the next agent
//! on the interface replaces it. Filters of an agent are known by their handle and their name together; others are never touched. At
//! most one filter of an agent is on each hook: a new one takes the place of the old one in a single step of the kernel, so that no
//! packet passes both.
//!
//! The qdisc is removed with the last filter on it if an agent has made it, which the name of the filter says.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkMessage, Parseable as _,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// "HO".
const HANDLE: u32 = 0x484f;

/// The name of a filter on a qdisc that was there before, and on one that an agent has made.
const NAME: &str = "holdover";
/// See [`NAME`].
const NAME_MADE_QDISC: &str = "holdover-made-clsact";

/// `ETH_P_ALL` in the order of the wire.
const ALL_PROTOCOLS: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;

/// Where a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    Ingress,
    Egress,
}

const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

impl Hook {
    fn parent(self) -> TcHandle {
        let minor = if self == Self::Ingress { TcHandle::MIN_INGRESS } else { TcHandle::MIN_EGRESS };
        TcHandle { major: TcHandle::CLSACT.major, minor }
    }

    /// First on the way in and last on the way out, as far as the priorities of others leave room.
    fn free_priority(self, taken: &[Filter]) -> u16 {
        let is_free = |priority: &u16| taken.iter().all(|filter| filter.priority != *priority);
        let mut priorities = 1..=u16::MAX;
        let free = if self == Self::Ingress { priorities.find(is_free) } else { priorities.rfind(is_free) };
        free.unwrap_or(1)
    }
}

/// A filter on a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Filter {
    priority: u16,
    handle: u32,
    name: Option<String>,
    program: Option<u32>,
}

impl Filter {
    fn is_ours(&self) -> bool {
        self.handle == HANDLE && self.name.as_deref().is_some_and(|name| [NAME, NAME_MADE_QDISC].contains(&name))
    }

    fn has_made_qdisc(&self) -> bool {
        self.name.as_deref() == Some(NAME_MADE_QDISC)
    }
}

/// The two filters of one engine. They are removed when this is dropped.
#[derive(Debug)]
pub(super) struct Filters {
    control: Control,
    /// The kernel's number of the interface.
    index: u32,
    /// The kernel's numbers of the two programs.
    programs: [u32; 2],
}

impl Filters {
    /// Puts programs, given as descriptors and the kernel's numbers, on the ingress and the egress hook of an interface of the calling
    /// thread's network namespace, in the place of those that an agent before has left there.
    pub(super) fn attach(index: u32, programs: [(BorrowedFd<'_>, u32); 2]) -> Result<Self, io::Error> {
        let mut control = Control::open()?;
        let is_new = control.add_qdisc(index)?;
        // From here on, whatever fails takes away what is there.
        let mut this = Self { control, index, programs: programs.map(|(_, number)| number) };
        let before = [this.control.filters(index, HOOKS[0])?, this.control.filters(index, HOOKS[1])?];
        let made_qdisc = is_new || before.iter().flatten().any(|filter| filter.is_ours() && filter.has_made_qdisc());
        for ((hook, (program, _)), filters) in HOOKS.into_iter().zip(programs).zip(&before) {
            let mut ours = filters.iter().filter(|filter| filter.is_ours());
            let priority = ours.next().map_or_else(|| hook.free_priority(filters), |filter| filter.priority);
            let name = if made_qdisc { NAME_MADE_QDISC } else { NAME };
            this.control.put(index, hook, priority, name, program)?;
            for other in ours {
                this.control.remove(index, hook, other.priority)?;
            }
        }
        Ok(this)
    }

    /// Removes what agents before have left on an interface: how many filters that were.
    pub(super) fn clear(index: u32) -> Result<usize, io::Error> {
        Control::open()?.clear(index, &|filter| filter.is_ours())
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        let programs = self.programs;
        let is_own = |filter: &Filter| filter.is_ours() && filter.program.is_some_and(|own| programs.contains(&own));
        // The interface may have gone, and its filters with it.
        if let Err(error) = self.control.clear(self.index, &is_own) {
            tracing::debug!(%error, "filters are not removed");
        }
    }
}

/// A socket by which the kernel is asked, in the network namespace in which it was opened.
struct Control {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    fn open() -> Result<Self, io::Error> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes the qdisc: whether it was not there before. An error if there is another one in its place: `ingress` has the same handle,
    /// and no hook on the way out; a filter for that would see what comes in.
    fn add_qdisc(&mut self, index: u32) -> Result<bool, io::Error> {
        let message = qdisc(index);
        match self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.qdisc_kind(index)?.as_deref() {
                Some(CLSACT) => Ok(false),
                other => Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "the interface has a qdisc of kind {} where clsact would be (tc qdisc show); it has to go first",
                        other.unwrap_or("unknown")
                    ),
                )),
            },
            Err(error) => Err(error),
        }
    }

    /// The kind of the qdisc in the place of `clsact`; `None` if there is none.
    fn qdisc_kind(&mut self, index: u32) -> Result<Option<String>, io::Error> {
        self.send(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index as i32)), NLM_F_DUMP)?;
        let mut kind = None;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for answer in answers(&datagram, self.sequence) {
                match answer {
                    Answer::Qdisc(found) if found.header.index == index as i32 && is_clsact_place(&found) => {
                        kind = found.attributes.into_iter().find_map(|attribute| match attribute {
                            TcAttribute::Kind(kind) => Some(kind),
                            _ => None,
                        });
                    }
                    Answer::Qdisc(_) | Answer::Filter(_) => {}
                    Answer::End(result) => return result.map(|()| kind),
                }
            }
        }
    }

    /// The filters on a hook; none if there is no qdisc.
    fn filters(&mut self, index: u32, hook: Hook) -> Result<Vec<Filter>, io::Error> {
        let mut filters = Vec::new();
        self.send(RouteNetlinkMessage::GetTrafficFilter(message(index, hook.parent())), NLM_F_DUMP)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for answer in answers(&datagram, self.sequence) {
                match answer {
                    Answer::Filter(filter) => filters.push(filter),
                    Answer::Qdisc(_) => {}
                    Answer::End(result) => return result.map(|()| filters),
                }
            }
        }
    }

    /// Puts a program where the filter of a priority is or will be.
    fn put(
        &mut self,
        index: u32,
        hook: Hook,
        priority: u16,
        name: &str,
        program: BorrowedFd<'_>,
    ) -> Result<(), io::Error> {
        let mut message = filter(index, hook, priority);
        message.attributes = vec![
            TcAttribute::Kind("bpf".to_owned()),
            TcAttribute::Options(vec![
                TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32)),
                TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
                TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
            ]),
        ];
        self.request(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE)
    }

    fn remove(&mut self, index: u32, hook: Hook, priority: u16) -> Result<(), io::Error> {
        self.request(RouteNetlinkMessage::DelTrafficFilter(filter(index, hook, priority)), 0)
    }

    /// Removes filters, and the qdisc if an agent has made it and nothing else is on it: how many filters that were.
    fn clear(&mut self, index: u32, goes: &dyn Fn(&Filter) -> bool) -> Result<usize, io::Error> {
        let (mut gone, mut stays, mut made_qdisc) = (0, 0, false);
        for hook in HOOKS {
            let (ours, others): (Vec<_>, Vec<_>) = self.filters(index, hook)?.into_iter().partition(goes);
            for filter in &ours {
                self.remove(index, hook, filter.priority)?;
                made_qdisc |= filter.has_made_qdisc();
            }
            gone += ours.len();
            // Besides its filters, each priority is listed itself, with handle 0.
            let goes_too = |other: &&Filter| other.handle == 0 && ours.iter().any(|own| own.priority == other.priority);
            stays += others.iter().filter(|other| !goes_too(other)).count();
        }
        // Somebody may put a filter there just now: that cannot be excluded.
        if made_qdisc && stays == 0 {
            self.request(RouteNetlinkMessage::DelQueueDiscipline(qdisc(index)), 0)?;
        }
        Ok(gone)
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), io::Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Sends a request that is answered by success or failure.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), io::Error> {
        self.send(message, flags | NLM_F_ACK)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for answer in answers(&datagram, self.sequence) {
                if let Answer::End(result) = answer {
                    return result;
                }
            }
        }
    }
}

/// A message of an answer.
enum Answer {
    Filter(Filter),
    Qdisc(TcMessage),
    End(Result<(), io::Error>),
}

/// The messages of a datagram that answer a request.
fn answers(mut datagram: &[u8], sequence: u32) -> impl Iterator<Item = Answer> {
    std::iter::from_fn(move || {
        loop {
            let message = NetlinkBuffer::new_checked(datagram).ok()?;
            let length = (message.length() as usize).next_multiple_of(4);
            datagram = datagram.get(length..).unwrap_or(&[]);
            if message.sequence_number() != sequence {
                continue;
            }
            match message.message_type() {
                libc::RTM_NEWTFILTER => return filter_of(message.payload()).map(Answer::Filter),
                libc::RTM_NEWQDISC => {
                    if let Ok(qdisc) = TcMessage::parse(message.payload()) {
                        return Some(Answer::Qdisc(qdisc));
                    }
                }
                NLMSG_DONE | NLMSG_ERROR => {
                    let code = message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    let result = if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                    return Some(Answer::End(result));
                }
                _ => {}
            }
        }
    })
}

fn message(index: u32, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(index as i32);
    message.header.parent = parent;
    message
}

const CLSACT: &str = "clsact";

/// Whether a qdisc is where `clsact` or `ingress` would be.
fn is_clsact_place(found: &TcMessage) -> bool {
    found.header.parent == TcHandle::CLSACT
}

fn qdisc(index: u32) -> TcMessage {
    let mut message = message(index, TcHandle::CLSACT);
    message.header.handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
    message.attributes = vec![TcAttribute::Kind(CLSACT.to_owned())];
    message
}

fn filter(index: u32, hook: Hook, priority: u16) -> TcMessage {
    let mut message = message(index, hook.parent());
    message.header.handle = HANDLE.into();
    message.header.info = u32::from(priority) << 16 | ALL_PROTOCOLS;
    message
}

/// One that is not understood is still one, of somebody else's.
fn filter_of(payload: &[u8]) -> Option<Filter> {
    let header = TcHeader::parse(payload).ok()?;
    let priority = (header.info >> 16) as u16;
    let mut filter = Filter { priority, handle: header.handle.into(), name: None, program: None };
    let attributes = TcMessage::parse(payload).map(|message| message.attributes).unwrap_or_default();
    let options = attributes.into_iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    for option in options.flatten() {
        match option {
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => filter.name = Some(name),
            TcOption::Bpf(TcFilterBpfOption::ProgId(number)) => filter.program = Some(number),
            _ => {}
        }
    }
    Some(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(priority: u16, handle: u32, name: &str) -> Filter {
        Filter { priority, handle, name: Some(name.to_owned()), program: None }
    }

    #[test]
    fn an_agents_filter_has_its_handle_and_its_name() {
        assert!(filter(1, HANDLE, NAME).is_ours() && filter(1, HANDLE, NAME_MADE_QDISC).is_ours());
        assert!(!filter(1, 1, NAME).is_ours() && !filter(1, HANDLE, "holdovers").is_ours());
        assert!(!Filter { priority: 1, handle: HANDLE, name: None, program: None }.is_ours());
    }

    #[test]
    fn it_is_first_on_the_way_in_and_last_on_the_way_out() {
        let others = [filter(1, 1, "a"), filter(2, 1, "b"), filter(u16::MAX, 1, "c")];
        assert_eq!((Hook::Ingress.free_priority(&[]), Hook::Egress.free_priority(&[])), (1, u16::MAX));
        assert_eq!((Hook::Ingress.free_priority(&others), Hook::Egress.free_priority(&others)), (3, u16::MAX - 1));
    }
}
