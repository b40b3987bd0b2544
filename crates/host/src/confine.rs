//! Confined programs on a host of the test bed: in its network namespace, with process and mount namespaces of their
//! own.
//!
//! The children of a confined program end with it: when the program ends, the first process of its process namespace
//! ends, and the kernel kills all others in there, daemons included. All of them end when the process that has started
//! the program dies, even by SIGKILL.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::Namespace;

impl Namespace {
    /// Makes `command` run in this namespace, confined. Names in `hosts`, in the format of `/etc/hosts`, resolve if
    /// that file exists. The thread that starts it must outlive it.
    ///
    /// Its exit status is the program's, or, as in shells, 128 plus the number of the signal that ended it.
    pub fn confine<'a>(&self, command: &'a mut Command, hosts: String) -> &'a mut Command {
        let namespace = self.clone();
        let starter = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; `confine_this_process` makes system calls and
        // does not allocate.
        unsafe { command.pre_exec(move || confine_this_process(&namespace, starter, hosts.as_bytes())) }
    }
}

/// This process becomes three: the one that the starter waits for, the first one of the new process namespace, and the
/// program's, in which this function returns.
fn confine_this_process(namespace: &Namespace, starter: u32, hosts: &[u8]) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: system calls without pointers.
    if unsafe { libc::getppid() }.cast_unsigned() != starter {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // SAFETY: as above; the descriptor is open while the namespace is held.
    let entered = unsafe { libc::setns(namespace.link().as_raw_fd(), libc::CLONE_NEWNET) };
    check(entered)?;
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) })?;
    fork_and_wait()?;
    // Optional: without them names do not resolve, or `ps` shows too much.
    let _ = mount_private(hosts);
    fork_and_wait()
}

/// Continues in a child; the parent ends when the child does, with its status.
fn fork_and_wait() -> io::Result<()> {
    // SAFETY: this process has one thread, and the rest makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        return die_with_parent();
    }
    check(child)?;
    // SAFETY: this process uses no descriptor any more. (The exec pipe must be closed: its reader must not wait for
    // this process.)
    unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        let interrupted = ended < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if ended == child || ended < 0 && !interrupted {
            let code = match ended {
                _ if ended < 0 => 1,
                _ if libc::WIFEXITED(status) => libc::WEXITSTATUS(status),
                _ => 128 + libc::WTERMSIG(status),
            };
            // SAFETY: it does not return.
            unsafe { libc::_exit(code) };
        }
    }
}

pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: this option takes a number.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
}

/// Mounts for this process alone: `/proc` of its process namespace, and `/etc/hosts`.
fn mount_private(hosts: &[u8]) -> io::Result<()> {
    const WORKSHOP: &CStr = c"/tmp";
    const FILE: &CStr = c"/tmp/hosts";
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    let proc = mount(c"proc", c"/proc", c"proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // A file that never outlives this process: in a file system of its own, which is detached once the file is mounted.
    mount(c"hosts", WORKSHOP, c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV)?;
    let placed = write_file(FILE, hosts).and_then(|()| mount(FILE, c"/etc/hosts", c"", libc::MS_BIND));
    // SAFETY: the argument is a C string.
    check(unsafe { libc::umount2(WORKSHOP.as_ptr(), libc::MNT_DETACH) })?;
    proc.and(placed)
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the arguments are C strings, and no data is needed.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })
}

fn write_file(path: &CStr, content: &[u8]) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::from_raw_mode(0o644))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
