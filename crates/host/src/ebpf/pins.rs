//! Programs and maps that outlive the process, pinned in a BPF file system: their state survives a `kill -9`, and the next
//! process takes it over.
//!
//! Each owner (a kind of daemon) has a root directory of its own, since paths below it do not name the owner. In it is a
//! directory for each network namespace and interface, and in that one for the layout of the maps. A process of the same layout uses the
//! existing maps and replaces the attached programs by its own; one of another layout starts afresh, and then removes the former pins.
//!
//! Pins are removed with their [`Pins`], so that only a killed process leaves them behind. Those that are attached to no interface are
//! removed by the next process that starts, unless their process lives: it holds a lock on its directory, also while it starts and
//! while its interface is gone.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::SchedClassifierLink;
use rustix::fs::{FlockOperation, flock, statfs};

/// The pins of one interface, removed on drop.
#[derive(Debug)]
pub struct Pins {
    /// For this layout.
    directory: PathBuf,
    /// The interface's directory, with a shared lock.
    _lock: File,
    /// The pinned maps.
    maps: &'static [&'static str],
    is_taken_over: bool,
}

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS: u64 = 0xcafe_4a11;

/// Whether a directory is in a BPF file system.
pub fn is_bpf_fs(directory: &Path) -> bool {
    #[allow(clippy::unnecessary_cast, reason = "the type depends on the machine")]
    statfs(directory).is_ok_and(|found| found.f_type as u32 as u64 == BPF_FS)
}

impl Pins {
    /// The pins for an interface of this network namespace, below `root`; creates the directories. `layout` names the layout
    /// of the maps, with letters and digits.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn open(root: &Path, index: u32, layout: &str, maps: &'static [&'static str]) -> io::Result<Self> {
        let own = own_directory(root, index)?;
        let mut pins = Self { directory: own.join(layout), _lock: lock(&own)?, maps, is_taken_over: false };
        pins.is_taken_over = pins.are_whole();
        if !pins.is_taken_over {
            // Left by a process that was killed while starting or ending.
            remove(&pins.directory);
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&pins.directory)?;
        Ok(pins)
    }

    /// Where a map or link is pinned.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The names of the pinned maps.
    pub fn maps(&self) -> &'static [&'static str] {
        self.maps
    }

    /// Whether maps and links of an earlier process with this layout were found complete.
    pub fn are_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// A link that an earlier process has left attached.
    pub(super) fn former_link(&self, name: &str) -> Option<SchedClassifierLink> {
        let path = self.is_taken_over.then(|| self.path(name))?;
        let link = FdLink::from(PinnedLink::from_pin(path).ok()?);
        SchedClassifierLink::try_from(link).ok()
    }

    fn are_whole(&self) -> bool {
        ["ingress", "egress"].iter().chain(self.maps).all(|name| self.path(name).exists())
            && is_attached(&self.path("egress"))
    }

    /// The pinned maps are those of another interface from now on, to which no program is attached yet.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn rename(&mut self, index: u32) -> io::Result<()> {
        for link in ["ingress", "egress"] {
            match fs::remove_file(self.path(link)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let (Some(layout), Some(own)) = (self.directory.file_name(), self.directory.parent()) else { return Ok(()) };
        let renamed = own_directory(own.parent().unwrap_or(own), index)?;
        // Remove the pins of an interface that had this index before.
        remove(&renamed);
        fs::rename(own, &renamed)?;
        self.directory = renamed.join(layout);
        self.is_taken_over = false;
        Ok(())
    }

    /// The programs are attached: removes pins of other layouts, and those of killed processes on interfaces that are gone.
    pub fn handle_started(&self) {
        let Some(own) = self.directory.parent() else { return };
        entries(own).into_iter().filter(|other| *other != self.directory).for_each(|other| remove(&other));
        own.parent().map(entries).unwrap_or_default().into_iter().filter(|other| other != own).for_each(remove_unused);
    }
}

/// Removes all pins of this interface, of any layout: the programs end with the process.
impl Drop for Pins {
    fn drop(&mut self) {
        if let Some(parent) = self.directory.parent() {
            remove(parent);
        }
    }
}

/// The directory of an interface of this network namespace. A BPF file system allows no dots in names.
fn own_directory(root: &Path, index: u32) -> io::Result<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(root.join(format!("{namespace}-{index}")))
}

/// Creates a directory and locks it, for as long as the file is open.
fn lock(directory: &Path) -> io::Result<File> {
    loop {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // A process that found it unused may remove it before it is locked.
        let opened = match File::open(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&opened, FlockOperation::LockShared)?;
        if fs::metadata(directory).is_ok_and(|there| opened.metadata().is_ok_and(|locked| locked.ino() == there.ino()))
        {
            return Ok(opened);
        }
    }
}

/// Removes an interface's directory unless a process has locked it or programs are attached.
fn remove_unused(directory: PathBuf) {
    // Locked until it is removed.
    let Ok(opened) = File::open(&directory) else { return };
    if flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    if entries(&directory).iter().all(|layout| !is_attached(&layout.join("egress"))) {
        remove(&directory);
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Removes a directory with its content. Failures are logged.
fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "cannot remove pinned programs");
    }
}

/// Whether a pinned link is attached to an existing interface: the kernel reports index 0 for a removed one.
fn is_attached(link: &Path) -> bool {
    interface_of(link).is_some_and(|index| index != 0)
}

/// `BPF_OBJ_GET` of `linux/bpf.h`.
#[repr(C)]
struct Get {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// `BPF_OBJ_GET_INFO_BY_FD` of `linux/bpf.h`.
#[repr(C)]
struct GetInfo {
    descriptor: u32,
    info_bytes: u32,
    info: u64,
}

/// The beginning of `struct bpf_link_info` of `linux/bpf.h`, for links of tcx.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    interface: u32,
    hook: u32,
}

/// `BPF_LINK_TYPE_TCX`.
const TCX: u32 = 11;

/// The index of the interface to which a pinned link is attached.
fn interface_of(link: &Path) -> Option<u32> {
    let path = CString::new(link.as_os_str().as_bytes()).ok()?;
    let mut get = Get { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the command reads a structure of this size, and the path in it, which live until it returns.
    let got = unsafe { libc::syscall(libc::SYS_bpf, 7, &raw mut get, size_of::<Get>()) };
    let descriptor = i32::try_from(got).ok().filter(|&descriptor| descriptor >= 0)?;
    // SAFETY: a new descriptor without another owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut info = LinkInfo::default();
    let mut get = GetInfo {
        descriptor: descriptor.as_raw_fd() as u32,
        info_bytes: size_of::<LinkInfo>() as u32,
        info: &raw mut info as u64,
    };
    // SAFETY: the command reads a structure of this size, and writes as many bytes of information as it names, into integers.
    let got = unsafe { libc::syscall(libc::SYS_bpf, 15, &raw mut get, size_of::<GetInfo>()) };
    (got == 0 && info.kind == TCX).then_some(info.interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, index: u32, layout: &str) -> Pins {
        Pins::open(root, index, layout, &["map"]).unwrap()
    }

    // Claim: Gateways leave each other's pins alone, also while one starts or its interface is gone, and remove what is left over.
    #[test]
    fn processes_keep_each_others_pins_and_remove_stale_ones() {
        let root = std::env::temp_dir().join(format!("holdover-pins-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let (first, second) = (open(&root, 1, "a"), open(&root, 2, "a"));
        let left_over = root.join("7-7");
        fs::create_dir_all(left_over.join("layout")).unwrap();
        first.handle_started();
        assert!(second.directory.exists(), "the second process is not attached yet");
        assert!(!left_over.exists());
        // The pins are removed with the value.
        let directory = second.directory.clone();
        drop(second);
        assert!(!directory.exists());
        // The interface is removed, another process starts, and the interface comes back with another index.
        let mut moved = open(&root, 8, "a");
        moved.handle_started();
        first.handle_started();
        assert!(moved.directory.exists());
        let left = moved.directory.clone();
        moved.rename(9).unwrap();
        first.handle_started();
        moved.handle_started();
        assert!(moved.directory.exists() && moved.directory != left && !left.exists());
        drop(moved);
        let other = open(&root, 2, "b");
        assert_ne!(other.directory, directory);
        fs::create_dir_all(&directory).unwrap();
        other.handle_started();
        assert!(other.directory.exists() && !directory.exists());
        drop(other);
        drop(first);
        assert_eq!(entries(&root), [] as [PathBuf; 0]);
        fs::remove_dir(&root).unwrap();
    }
}
