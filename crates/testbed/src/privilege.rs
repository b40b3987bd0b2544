//! The privileges of this process: it can create network namespaces directly, or after entering a user namespace, or
//! not at all; then with the reason and its remedy.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use holdover_host::interface_name::device_name;
use holdover_host::tun;

/// Whether and how this process can create network namespaces with TUN devices in them.
#[derive(Debug)]
pub enum Privilege {
    /// Directly: it is root, or root of a user namespace.
    Root,
    /// After [`enter_user_namespace`].
    UserNamespace,
    /// It cannot, for this reason.
    None(PrivilegeError),
}

/// Why no network namespace can be created. Every message contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// There is no TUN driver or no device node.
    #[error("{} is missing: load the module (modprobe tun), or give the container the device", tun::DEVICE_NAME)]
    TunMissing,
    /// This user has no access to the device node.
    #[error("{} may not be opened by this user: run as root, or let it (chmod 0666, as udev does)", tun::DEVICE_NAME)]
    TunNotPermitted,
    /// The administrator (or a Debian default) forbids user namespaces to ordinary users.
    #[error(
        "user namespaces are forbidden to ordinary users: run as root, or set sysctl kernel.unprivileged_userns_clone=1"
    )]
    UnprivilegedUserNamespacesOff,
    /// `AppArmor` lets ordinary programs create user namespaces, but removes every capability in them.
    #[error(
        "AppArmor takes the capabilities from user namespaces: run as root, or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    AppArmor,
    /// The number of namespaces is limited, and the limit is reached (or is 0).
    #[error("the limit on namespaces is reached: raise sysctl {sysctl}")]
    LimitReached {
        /// The sysctl that holds the limit.
        sysctl: &'static str,
    },
    /// A process that enters a user namespace must have one thread only (`unshare(2)`, EINVAL).
    #[error("this process has {threads} threads: enter the user namespace before the first thread is started")]
    NotSingleThreaded {
        /// The number of its threads.
        threads: usize,
    },
    /// A system call was refused for another reason, such as a container's seccomp profile.
    #[error("{call} was refused ({source}): run as root, outside of a container that forbids it")]
    Refused {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl Privilege {
    /// Tries the whole sequence (user namespace if needed, network namespace, TUN device) in a child process, so that
    /// this process is not changed. Works with any number of threads.
    pub fn detect() -> Self {
        if probe(None).is_ok() {
            return Self::Root;
        }
        match probe(Some(IdMaps::of_this_user())) {
            Ok(()) => Self::UserNamespace,
            Err(reason) => Self::None(reason),
        }
    }

    /// Detects the privilege, and enters a user namespace if needed. Afterwards every thread of this process can create
    /// namespaces. Call it before the first thread is started; the result is never [`Privilege::None`].
    pub fn acquire() -> Result<Self, PrivilegeError> {
        match Self::detect() {
            Self::None(reason) => Err(reason),
            Self::UserNamespace => enter_user_namespace().map(|()| Self::UserNamespace),
            Self::Root => Ok(Self::Root),
        }
    }
}

/// Moves this process into a new user namespace, in which it is root: its uid and gid appear as 0, and it has root's
/// privileges there (and in network namespaces created from there). The process must have one thread only.
pub fn enter_user_namespace() -> Result<(), PrivilegeError> {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads > 1 {
        return Err(PrivilegeError::NotSingleThreaded { threads });
    }
    IdMaps::of_this_user().enter().map_err(Failure::explain)
}

/// Makes `command` run in a new user namespace: for a process with several threads, which starts itself again. An error
/// of the namespace appears as the error of [`Command::spawn`].
pub fn run_in_user_namespace(command: &mut Command) -> &mut Command {
    let id_maps = IdMaps::of_this_user();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; `enter` makes system calls and does not
    // allocate.
    unsafe { command.pre_exec(move || id_maps.enter().map_err(|failure| failure.errno.into())) }
}

/// `/proc/self/uid_map` and `gid_map` of a user namespace in which the current user is root, prepared before any fork:
/// the child may not allocate.
struct IdMaps {
    uid_map: String,
    gid_map: String,
}

/// The steps to a TUN device in a namespace, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    NewUser,
    MapIds,
    NewNet,
    OpenTun,
    CreateTun,
}

/// The step that failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    step: Step,
    errno: Errno,
}

impl IdMaps {
    fn of_this_user() -> Self {
        // Without the right to map other ids, a process may map only its own effective ids (user_namespaces(7)).
        Self {
            uid_map: format!("0 {} 1", rustix::process::geteuid().as_raw()),
            gid_map: format!("0 {} 1", rustix::process::getegid().as_raw()),
        }
    }

    /// Only makes system calls: see [`run_in_user_namespace`].
    fn enter(&self) -> Result<(), Failure> {
        // SAFETY: the file descriptor table stays shared (no `UnshareFlags::FILES`).
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
            .map_err(|errno| Step::NewUser.failed(errno))?;
        // gid_map can be written only after setgroups(2) is given up (user_namespaces(7), CVE-2014-8989).
        write_proc(c"/proc/self/setgroups", "deny")
            .and_then(|()| write_proc(c"/proc/self/uid_map", &self.uid_map))
            .and_then(|()| write_proc(c"/proc/self/gid_map", &self.gid_map))
            .map_err(|errno| Step::MapIds.failed(errno))
    }
}

fn write_proc(path: &CStr, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Takes all steps in a forked child that never executes a program. `Command` reports the errno of a failing `pre_exec`
/// hook to the parent; the hook always fails with one, which also encodes the step, counted from 1.
fn probe(id_maps: Option<IdMaps>) -> Result<(), PrivilegeError> {
    const SUCCESS: i32 = 1_000_000;
    const STEP: i32 = 10_000;
    const STEPS: [Step; 5] = [Step::NewUser, Step::MapIds, Step::NewNet, Step::OpenTun, Step::CreateTun];

    let mut command = Command::new("/proc/self/exe");
    let chain = move || {
        let code = match take_steps(id_maps.as_ref()) {
            Ok(()) => SUCCESS,
            Err(Failure { step, errno }) => (step as i32 + 1) * STEP + errno.raw_os_error(),
        };
        Err(io::Error::from_raw_os_error(code))
    };
    // SAFETY: `take_steps` only makes system calls and does not allocate; neither does an error from a number.
    unsafe { command.pre_exec(chain) };
    let refused = |source| PrivilegeError::Refused { call: "fork()", source };
    match command.spawn() {
        Err(error) => match error.raw_os_error() {
            Some(SUCCESS) => Ok(()),
            Some(code) => match STEPS.into_iter().find(|step| *step as i32 + 1 == code / STEP) {
                Some(step) => Err(step.failed(Errno::from_raw_os_error(code % STEP)).explain()),
                None => Err(refused(error)),
            },
            None => Err(refused(error)),
        },
        Ok(mut child) => {
            // The hook ends with an error, so no program can have started; if one has, do not leave it running.
            let _ = child.kill();
            let _ = child.wait();
            Err(refused(io::ErrorKind::Other.into()))
        }
    }
}

fn take_steps(id_maps: Option<&IdMaps>) -> Result<(), Failure> {
    if let Some(id_maps) = id_maps {
        id_maps.enter()?;
    }
    // SAFETY: the file descriptor table stays shared (no `UnshareFlags::FILES`).
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| Step::NewNet.failed(errno))?;
    let device = tun::open_device().map_err(|errno| Step::OpenTun.failed(errno))?;
    tun::attach(&device, &device_name("probe0"), false, false).map_err(|errno| Step::CreateTun.failed(errno))
}

impl Step {
    fn failed(self, errno: Errno) -> Failure {
        Failure { step: self, errno }
    }
}

impl Failure {
    /// Finds the setting behind the errno. Reads files: not for the child.
    fn explain(self) -> PrivilegeError {
        let denied = matches!(self.errno, Errno::PERM | Errno::ACCESS);
        match self.step {
            Step::NewUser if denied && sysctl_is("kernel/unprivileged_userns_clone", "0") => {
                PrivilegeError::UnprivilegedUserNamespacesOff
            }
            Step::MapIds | Step::NewNet if denied && sysctl_is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
                PrivilegeError::AppArmor
            }
            Step::NewUser if self.errno == Errno::NOSPC => {
                PrivilegeError::LimitReached { sysctl: "user.max_user_namespaces" }
            }
            Step::NewNet if self.errno == Errno::NOSPC => {
                PrivilegeError::LimitReached { sysctl: "user.max_net_namespaces" }
            }
            Step::OpenTun if denied => PrivilegeError::TunNotPermitted,
            Step::OpenTun if matches!(self.errno, Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
                PrivilegeError::TunMissing
            }
            step => PrivilegeError::Refused { call: step.call(), source: self.errno.into() },
        }
    }
}

impl Step {
    fn call(self) -> &'static str {
        match self {
            Self::NewUser => "unshare(CLONE_NEWUSER)",
            Self::MapIds => "write to /proc/self/uid_map or gid_map",
            Self::NewNet => "unshare(CLONE_NEWNET)",
            Self::OpenTun => "open(\"/dev/net/tun\")",
            Self::CreateTun => "ioctl(TUNSETIFF)",
        }
    }
}

fn sysctl_is(path: &str, value: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/{path}")).is_ok_and(|text| text.trim() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_remedy() {
        let explain = |step: Step, errno| step.failed(errno).explain().to_string();
        assert!(explain(Step::NewUser, Errno::NOSPC).contains("user.max_user_namespaces"));
        assert!(explain(Step::NewNet, Errno::NOSPC).contains("user.max_net_namespaces"));
        assert!(explain(Step::OpenTun, Errno::ACCESS).contains("chmod 0666"));
        assert!(explain(Step::OpenTun, Errno::NOENT).contains("modprobe tun"));
        assert!(explain(Step::OpenTun, Errno::NODEV).contains("modprobe tun"));
        assert!(explain(Step::CreateTun, Errno::BUSY).contains("ioctl(TUNSETIFF)"));
    }

    #[test]
    fn detection_leaves_the_process_as_it_was() {
        let namespaces = || ["user", "net"].map(|kind| fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap());
        let before = namespaces();
        let first = std::mem::discriminant(&Privilege::detect());
        assert_eq!(std::mem::discriminant(&Privilege::detect()), first);
        assert_eq!(namespaces(), before);
    }

    #[test]
    fn a_process_with_threads_gets_an_error() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || held.recv());
        let result = enter_user_namespace();
        drop(hold);
        assert!(other.join().unwrap().is_err());
        assert!(matches!(result, Err(PrivilegeError::NotSingleThreaded { threads: 2.. })), "{result:?}");
    }
}
