//! The programs and maps of `bpf/user_timeout.bpf.c` in the kernel.

use core::fmt;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::sock_ops::SockOpsLink;
use aya::programs::{CgroupAttachMode, Iter, ProgramError, SchedClassifier, SockOps};
use aya::util::KernelVersion;
use aya::{Btf, EbpfLoader};
use holdover_flow::Ends;
use holdover_host::ebpf::Object;
use holdover_mobility::Connection;

use super::kernel::{KernelRecord, KernelRule, KernelWish, MAX_RULES, Pass};
use super::{KernelVerdict, UserTimeoutCounters, UserTimeoutError, UserTimeoutOptions};
use crate::containers::Containers;
use crate::sockets::find_cgroup2_mount;

static OBJECT: &[u8] = include_bytes!("../../bpf/user_timeout.bpf.o.gz");

/// The loaded programs. They and their links end with this value.
pub(super) struct Program {
    object: Object,
    questions: RingBuf<MapData>,
    decisions: HashMap<MapData, u64, KernelWish>,
    /// `table_in_use`.
    generation: u32,
    link: Option<SockOpsLink>,
}

impl Program {
    /// Loads them, for the connections of the calling thread's network namespace, and those of containers if requested.
    pub(super) fn load(options: &UserTimeoutOptions) -> Result<Self, UserTimeoutError> {
        let (mut object, btf) = open_object(options)?;
        load_new(&mut object)?;
        load_open(&mut object, &btf)?;
        let (questions, decisions) = (object.take("questions")?, object.take("decisions")?);
        Ok(Self { questions, decisions, object, generation: 0, link: None })
    }

    /// Loads the program for new connections, and unloads it.
    pub(super) fn probe_new() -> Result<(), UserTimeoutError> {
        open_object(&UserTimeoutOptions::default()).and_then(|(mut object, _)| load_new(&mut object))
    }

    /// The same for the program for open ones.
    pub(super) fn probe_open() -> Result<(), UserTimeoutError> {
        open_object(&UserTimeoutOptions::default()).and_then(|(mut object, btf)| load_open(&mut object, &btf))
    }

    /// Attaches the program for new connections to a cgroup, or to the root of the hierarchy.
    pub(super) fn attach(&mut self, cgroup: Option<&Path>) -> Result<(), UserTimeoutError> {
        let path = match cgroup {
            Some(path) => path.to_owned(),
            None => find_cgroup2_mount()?,
        };
        let directory = File::open(&path).map_err(|source| UserTimeoutError::CgroupDirectory { path, source })?;
        let failed = |error| UserTimeoutError::program("new_connections", error);
        let sockops: &mut SockOps = self.object.program_mut("new_connections")?;
        // A link permits others beside it, and ends with the process that has it open.
        let link = sockops.attach(directory, CgroupAttachMode::Single).map_err(failed)?;
        self.link = Some(sockops.take_link(link).map_err(failed)?);
        Ok(())
    }

    /// Stops handling new connections.
    pub(super) fn detach(&mut self) {
        self.link = None;
    }

    /// Applies another table of rules: it is written completely before any connection uses it.
    pub(super) fn set_table(&mut self, table: &[KernelRule]) -> Result<(), UserTimeoutError> {
        let generation = self.generation.wrapping_add(1);
        let bank = generation & 1;
        let mut rules: Array<_, KernelRule> = self.object.map_mut("rules")?;
        for (index, rule) in table.iter().enumerate() {
            let index = bank * MAX_RULES + index as u32;
            rules.set(index, rule, 0).map_err(UserTimeoutError::map("rules"))?;
        }
        let mut counts: Array<_, u32> = self.object.map_mut("rule_counts")?;
        counts.set(bank, table.len() as u32, 0).map_err(UserTimeoutError::map("rule_counts"))?;
        let mut in_use: Array<_, u32> = self.object.map_mut("table_in_use")?;
        in_use.set(0, generation, 0).map_err(UserTimeoutError::map("table_in_use"))?;
        self.generation = generation;
        Ok(())
    }

    /// The cookie of a connection whose owner is needed.
    pub(super) fn next_question(&mut self) -> Option<u64> {
        let item = self.questions.next()?;
        item.first_chunk().map(|cookie| u64::from_ne_bytes(*cookie))
    }

    /// Stores answers for the next pass.
    pub(super) fn put_decisions(&mut self, wishes: &BTreeMap<u64, KernelWish>) -> Result<(), UserTimeoutError> {
        for (cookie, wish) in wishes {
            self.decisions.insert(cookie, wish, 0).map_err(UserTimeoutError::map("decisions"))?;
        }
        Ok(())
    }

    /// The pass is over: removes the answers.
    pub(super) fn drop_decisions<'a>(&mut self, cookies: impl Iterator<Item = &'a u64>) {
        for cookie in cookies {
            // A missing one was evicted for newer ones.
            let _ = self.decisions.remove(cookie);
        }
    }

    /// Passes through the open connections of the calling thread's network namespace and of the containers.
    pub(super) fn pass(
        &mut self,
        pass: Pass,
        containers: &mut Containers,
    ) -> Result<Vec<KernelRecord>, UserTimeoutError> {
        let mut in_progress: Array<_, u32> = self.object.map_mut("pass_in_progress")?;
        in_progress.set(0, pass as u32, 0).map_err(UserTimeoutError::map("pass_in_progress"))?;
        let mut records = Vec::new();
        self.pass_here(&mut records)?;
        containers.in_each(|_| self.pass_here(&mut records));
        Ok(records)
    }

    /// Passes through the calling thread's network namespace, and appends the records; those before an error, too.
    fn pass_here(&mut self, records: &mut Vec<KernelRecord>) -> Result<(), UserTimeoutError> {
        let failed = |error| UserTimeoutError::program("open_connections", error);
        let iterator: &mut Iter = self.object.program_mut("open_connections")?;
        let link = iterator.attach().map_err(failed)?;
        let link = iterator.take_link(link).map_err(failed)?;
        let mut file = link.into_file().map_err(|error| UserTimeoutError::Pass(io::Error::other(error)))?;
        // Reading it runs the program on one socket after the other.
        let mut bytes = Vec::new();
        let result = file.read_to_end(&mut bytes);
        // A read that fails may end within a record.
        let (whole, _) = bytes.as_chunks();
        records.extend(whole.iter().map(KernelRecord::from_bytes));
        result.map(drop).map_err(UserTimeoutError::Pass)
    }

    pub(super) fn counters(&self) -> Result<UserTimeoutCounters, UserTimeoutError> {
        let counters: Array<_, u64> = self.object.map("counters")?;
        let values = UserTimeoutCounters::read(|counter| counters.get(&(counter as u32), 0));
        values.map_err(UserTimeoutError::map("counters"))
    }

    /// The verdict of the table in use on a connection that need not exist.
    pub(super) fn decide(&mut self, connection: Connection) -> Result<KernelVerdict, UserTimeoutError> {
        const NAME: &str = "decide_for_test";
        match self.object.program_mut::<SchedClassifier>(NAME)?.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(UserTimeoutError::program(NAME, error)),
        }
        Ok(KernelVerdict::of(self.object.run(NAME, Ends::new(connection).to_bytes().as_ref())?))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, link, .. } = self;
        f.debug_struct("Program").field("generation", generation).field("link", link).finish_non_exhaustive()
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.questions.as_fd()
    }
}

/// `bpf_getsockopt` reads `TCP_KEEPIDLE` and the other keep-alive options.
const TELLS_KEEP_ALIVE: KernelVersion = KernelVersion::new(6, 1, 0);

/// The object and its maps, with the kernel's BTF.
fn open_object(options: &UserTimeoutOptions) -> Result<(Object, Btf), UserTimeoutError> {
    if KernelVersion::current().is_ok_and(|version| version < TELLS_KEEP_ALIVE) {
        return Err(UserTimeoutError::TooOld);
    }
    let btf = Btf::from_sys_fs().map_err(UserTimeoutError::NoBtf)?;
    let own = netns_cookie()
        .map_err(|source| UserTimeoutError::Namespace { what: "the network namespace's cookie", source })?;
    let netns_cookie = if options.containers { 0 } else { own };
    let pass_interval_ms = u32::try_from(options.pass_interval.as_millis()).unwrap_or(u32::MAX / 2);
    let mut loader = EbpfLoader::new();
    loader.btf(Some(&btf)).override_global("netns_cookie", &netns_cookie, true).override_global(
        "pass_interval_ms",
        &pass_interval_ms,
        true,
    );
    let object = Object::open(&mut loader, OBJECT).map_err(UserTimeoutError::load)?;
    drop(loader);
    Ok((object, btf))
}

fn load_new(object: &mut Object) -> Result<(), UserTimeoutError> {
    let sockops: &mut SockOps = object.program_mut("new_connections")?;
    sockops.load().map_err(|error| UserTimeoutError::program("new_connections", error))
}

fn load_open(object: &mut Object, btf: &Btf) -> Result<(), UserTimeoutError> {
    let iterator: &mut Iter = object.program_mut("open_connections")?;
    iterator.load("tcp", btf).map_err(|error| UserTimeoutError::program("open_connections", error))
}

/// `SO_NETNS_COOKIE` of `asm-generic/socket.h` (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The cookie that identifies the calling thread's network namespace to eBPF programs.
fn netns_cookie() -> io::Result<u64> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is what the value has.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, (&raw mut cookie).cast(), &raw mut len)
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
