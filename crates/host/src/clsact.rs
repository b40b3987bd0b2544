//! Programs as filters of the `clsact` qdisc (`tc-bpf(8)`), for kernels without tcx (before Linux 6.6).
//!
//! A tcx link ends with the process that holds it. A filter stays until it is removed, even after SIGKILL: programs
//! must do no harm without their daemon. The next daemon of the same kind on the interface replaces it. Filters of a
//! daemon are identified by handle and name together ([`Owner`]); others are never touched. An owner has at most one
//! filter on each hook: a new one replaces the old one in a single step of the kernel, so that no packet passes both.
//!
//! The qdisc is removed with the last filter on it if its owner has created it, as the filter's name shows.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Parseable as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption};

use crate::Requests;

/// The daemon that filters belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    handle: u32,
    name: &'static str,
    /// The name of a filter on a qdisc that its owner has created.
    name_made_qdisc: &'static str,
}

impl Owner {
    /// The agent of a mobile host. The handle is "HO".
    pub const AGENT: Self = Self { handle: 0x484f, name: "holdover", name_made_qdisc: "holdover-made-clsact" };
    /// The gateway. The handle is "HG".
    pub const GATEWAY: Self =
        Self { handle: 0x4847, name: "holdover-gateway", name_made_qdisc: "holdover-gateway-made-clsact" };

    fn owns(&self, filter: &Filter) -> bool {
        filter.handle == self.handle
            && filter.name.as_deref().is_some_and(|name| [self.name, self.name_made_qdisc].contains(&name))
    }

    fn has_made_qdisc(&self, filter: &Filter) -> bool {
        self.owns(filter) && filter.name.as_deref() == Some(self.name_made_qdisc)
    }
}

/// `ETH_P_ALL` in network byte order.
const ALL_PROTOCOLS: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;

/// The hook of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hook {
    Ingress,
    Egress,
}

const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

impl Hook {
    fn parent(self) -> TcHandle {
        let minor = if self == Self::Ingress { TcHandle::MIN_INGRESS } else { TcHandle::MIN_EGRESS };
        TcHandle { major: TcHandle::CLSACT.major, minor }
    }

    /// First on ingress and last on egress, as far as the priorities of others leave room.
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

/// The two filters of one engine, removed on drop.
#[derive(Debug)]
pub struct Filters {
    control: Control,
    owner: Owner,
    /// The interface index.
    index: u32,
    /// The ids of the two programs.
    programs: [u32; 2],
}

impl Filters {
    /// Attaches programs, given as descriptors and ids, to the ingress and the egress hook of an interface of the
    /// calling thread's network namespace, replacing those that their owner has left there.
    ///
    /// # Errors
    /// The kernel refuses the qdisc or a filter; then nothing is left behind.
    pub fn attach(owner: Owner, index: u32, programs: [(BorrowedFd<'_>, u32); 2]) -> Result<Self, io::Error> {
        let mut control = Control::open()?;
        let is_new = control.add_qdisc(index)?;
        // From here on, a failure removes everything added.
        let mut this = Self { control, owner, index, programs: programs.map(|(_, number)| number) };
        let before = [this.control.filters(index, HOOKS[0])?, this.control.filters(index, HOOKS[1])?];
        let made_qdisc = is_new || before.iter().flatten().any(|filter| owner.has_made_qdisc(filter));
        for ((hook, (program, _)), filters) in HOOKS.into_iter().zip(programs).zip(&before) {
            let mut ours = filters.iter().filter(|filter| owner.owns(filter));
            let priority = ours.next().map_or_else(|| hook.free_priority(filters), |filter| filter.priority);
            let name = if made_qdisc { owner.name_made_qdisc } else { owner.name };
            this.control.put(owner, (index, hook, priority), name, program)?;
            for other in ours {
                this.control.remove(owner, index, hook, other.priority)?;
            }
        }
        Ok(this)
    }

    /// Removes the filters that an owner has left on an interface; returns their number.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear(owner: Owner, index: u32) -> Result<usize, io::Error> {
        Control::open()?.clear(owner, index, &|filter| owner.owns(filter))
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        let (owner, programs) = (self.owner, self.programs);
        let is_own = |filter: &Filter| owner.owns(filter) && filter.program.is_some_and(|own| programs.contains(&own));
        // The interface, and its filters with it, may be gone.
        if let Err(error) = self.control.clear(owner, self.index, &is_own) {
            tracing::debug!(%error, "cannot remove filters");
        }
    }
}

/// Requests to the kernel about qdiscs and filters.
#[derive(Debug)]
struct Control(Requests);

impl Control {
    fn open() -> Result<Self, io::Error> {
        Requests::open().map(Self)
    }

    /// Creates the qdisc; returns whether it was missing. Fails if another one is in its place: `ingress` has the same
    /// handle, and no egress hook; an egress filter would see ingress packets there.
    fn add_qdisc(&mut self, index: u32) -> Result<bool, io::Error> {
        let message = qdisc(index);
        match self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.qdisc_kind(index)?.as_deref() {
                Some(CLSACT) => Ok(false),
                other => Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "the interface has a qdisc of kind {} in the place of clsact (tc qdisc show); remove it first",
                        other.unwrap_or("unknown")
                    ),
                )),
            },
            Err(error) => Err(error),
        }
    }

    /// The kind of the qdisc in the place of `clsact`; `None` without one.
    fn qdisc_kind(&mut self, index: u32) -> Result<Option<String>, io::Error> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index as i32));
        let qdiscs = self.0.request(request, NLM_F_DUMP)?.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) => Some(qdisc),
            _ => None,
        });
        let mut here = qdiscs.filter(|found| found.header.index == index as i32 && is_clsact_place(found));
        Ok(here.next().into_iter().flat_map(|found| found.attributes).find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        }))
    }

    /// The filters on a hook; empty without a qdisc.
    fn filters(&mut self, index: u32, hook: Hook) -> Result<Vec<Filter>, io::Error> {
        let mut filters = Vec::new();
        let request = RouteNetlinkMessage::GetTrafficFilter(message(index, hook.parent()));
        self.0.exchange(request, NLM_F_DUMP, |header, payload| {
            if header.message_type == libc::RTM_NEWTFILTER {
                filters.extend(filter_of(payload));
            }
        })?;
        Ok(filters)
    }

    /// Adds or replaces the filter of a priority.
    fn put(
        &mut self,
        owner: Owner,
        (index, hook, priority): (u32, Hook, u16),
        name: &str,
        program: BorrowedFd<'_>,
    ) -> Result<(), io::Error> {
        let mut message = filter(owner, index, hook, priority);
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

    fn remove(&mut self, owner: Owner, index: u32, hook: Hook, priority: u16) -> Result<(), io::Error> {
        self.request(RouteNetlinkMessage::DelTrafficFilter(filter(owner, index, hook, priority)), 0)
    }

    /// Removes filters, and the qdisc if their owner has created it and nothing else is on it; returns the number of
    /// filters.
    fn clear(&mut self, owner: Owner, index: u32, goes: &dyn Fn(&Filter) -> bool) -> Result<usize, io::Error> {
        let (mut gone, mut stays, mut made_qdisc) = (0, 0, false);
        for hook in HOOKS {
            let (ours, others): (Vec<_>, Vec<_>) = self.filters(index, hook)?.into_iter().partition(goes);
            for filter in &ours {
                self.remove(owner, index, hook, filter.priority)?;
                made_qdisc |= owner.has_made_qdisc(filter);
            }
            gone += ours.len();
            // Besides its filters, each priority is listed, with handle 0.
            let goes_too = |other: &&Filter| other.handle == 0 && ours.iter().any(|own| own.priority == other.priority);
            stays += others.iter().filter(|other| !goes_too(other)).count();
        }
        // Another process may add a filter at this moment: that race cannot be excluded.
        if made_qdisc && stays == 0 {
            self.request(RouteNetlinkMessage::DelQueueDiscipline(qdisc(index)), 0)?;
        }
        Ok(gone)
    }

    /// Sends a request whose answer is success or failure.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), io::Error> {
        self.0.request(message, flags).map(drop)
    }
}

fn message(index: u32, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(index as i32);
    message.header.parent = parent;
    message
}

const CLSACT: &str = "clsact";

/// Whether a qdisc occupies the place of `clsact` and `ingress`.
fn is_clsact_place(found: &TcMessage) -> bool {
    found.header.parent == TcHandle::CLSACT
}

fn qdisc(index: u32) -> TcMessage {
    let mut message = message(index, TcHandle::CLSACT);
    message.header.handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
    message.attributes = vec![TcAttribute::Kind(CLSACT.to_owned())];
    message
}

fn filter(owner: Owner, index: u32, hook: Hook, priority: u16) -> TcMessage {
    let mut message = message(index, hook.parent());
    message.header.handle = owner.handle.into();
    message.header.info = u32::from(priority) << 16 | ALL_PROTOCOLS;
    message
}

/// A filter that cannot be parsed still counts, as another owner's.
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
    fn a_filter_is_identified_by_handle_and_name() {
        for (owner, other) in [(Owner::AGENT, Owner::GATEWAY), (Owner::GATEWAY, Owner::AGENT)] {
            let (plain, made) = (filter(1, owner.handle, owner.name), filter(1, owner.handle, owner.name_made_qdisc));
            assert!(owner.owns(&plain) && owner.owns(&made) && !other.owns(&plain) && !other.owns(&made));
            assert!(owner.has_made_qdisc(&made) && !owner.has_made_qdisc(&plain) && !other.has_made_qdisc(&made));
            assert!(!owner.owns(&filter(1, 1, owner.name)) && !owner.owns(&filter(1, owner.handle, "holdovers")));
            assert!(!owner.owns(&Filter { priority: 1, handle: owner.handle, name: None, program: None }));
        }
    }

    #[test]
    fn it_is_first_on_ingress_and_last_on_egress() {
        let others = [filter(1, 1, "a"), filter(2, 1, "b"), filter(u16::MAX, 1, "c")];
        assert_eq!((Hook::Ingress.free_priority(&[]), Hook::Egress.free_priority(&[])), (1, u16::MAX));
        assert_eq!((Hook::Ingress.free_priority(&others), Hook::Egress.free_priority(&others)), (3, u16::MAX - 1));
    }
}
