//! Checks of the requirements on kernel and user, with fixes.
//!
//! Each [`Check`] tries the operation itself if that leaves no traces (a namespace, a socket option), and otherwise reads files.

use std::fs;
use std::path::Path;

use crate::{Congestion, KernelListener, Namespace, Privilege, SocketOptions};

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The name of the check.
    pub name: &'static str,
    /// The uses that need it.
    pub need: Need,
    /// Whether the requirement is met.
    pub is_fine: bool,
    /// The result, in a few words.
    pub found: String,
    /// The fix; empty if none is needed.
    pub fix: String,
}

/// A use that needs a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Runs with this machine's kernel, including the demo.
    RealRuns,
    /// Some of these runs: one sender, or one way to set something.
    SomeRuns,
}

/// Runs all checks. Call it before the first thread is started: it may enter a user namespace, after which the process is root of that.
pub fn examine() -> Vec<Check> {
    // These checks concern the user before the process becomes another namespace's root.
    let mut checks = vec![kernel(), user_namespaces(), tun_device()];
    let privilege = Privilege::acquire();
    checks.push(namespaces(privilege.as_ref()));
    if privilege.is_ok() {
        checks.extend(inside());
    }
    checks.push(remains());
    checks
}

fn check(name: &'static str, need: Need, found: Result<String, (String, String)>) -> Check {
    match found {
        Ok(found) => Check { name, need, is_fine: true, found, fix: String::new() },
        Err((found, fix)) => Check { name, need, is_fine: false, found, fix },
    }
}

/// The kernel that the profiles model.
const COPIED: (u32, u32) = (6, 18);

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    let found = match version {
        Some(version) if version < COPIED => format!("Linux {release}; the profiles linux-6-* copy 6.18"),
        _ => format!("Linux {release}"),
    };
    check("kernel", Need::SomeRuns, Ok(found))
}

fn user_namespaces() -> Check {
    let is = |path: &str, value: &str| read(path).is_some_and(|text| text == value);
    let found = if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        Err(("forbidden to ordinary users", "sysctl kernel.unprivileged_userns_clone=1"))
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        Err(("AppArmor takes their capabilities", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"))
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        Err(("none are allowed", "sysctl user.max_user_namespaces=10000"))
    } else if !Path::new("/proc/self/ns/user").exists() {
        Err(("this kernel has none", "run as root, or a kernel with CONFIG_USER_NS"))
    } else {
        Ok("allowed to ordinary users".to_owned())
    };
    check("user namespaces", Need::SomeRuns, found.map_err(|(found, fix)| (found.to_owned(), fix.to_owned())))
}

fn tun_device() -> Check {
    let path = holdover_host::tun::DEVICE_NAME;
    let found = match holdover_host::tun::open_device() {
        Ok(_) => Ok(format!("{path} can be opened")),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            Err((format!("{path} may not be opened by this user"), format!("chmod 0666 {path}, or run as root")))
        }
        Err(_) => Err((
            format!("{path} is missing"),
            "modprobe tun; in a container: give it the device (--device /dev/net/tun)".to_owned(),
        )),
    };
    check("TUN devices", Need::RealRuns, found)
}

fn namespaces(privilege: Result<&Privilege, &crate::PrivilegeError>) -> Check {
    let found = match privilege {
        Ok(Privilege::UserNamespace) => Ok("in a user namespace".to_owned()),
        Ok(_) => Ok("as root".to_owned()),
        Err(error) => {
            let message = error.to_string();
            let (found, fix) = message.split_once(": ").unwrap_or((&message, "run as root"));
            Err((found.to_owned(), fix.to_owned()))
        }
    };
    check("network namespaces", Need::RealRuns, found)
}

/// Checks that need a namespace.
fn inside() -> Vec<Check> {
    let congestion = |congestion: Congestion| {
        let name = congestion.name();
        let need = if congestion == Congestion::Bbr { Need::SomeRuns } else { Need::RealRuns };
        let found = if congestion.is_usable() {
            Ok("can be used".to_owned())
        } else {
            Err((
                "this kernel does not have it, or not for this user".to_owned(),
                format!(
                    "modprobe tcp_{name}; for ordinary users: sysctl net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'"
                ),
            ))
        };
        check(name, need, found)
    };
    let body = |namespace: &Namespace| {
        let mut checks: Vec<Check> = Congestion::ALL.map(congestion).into();
        checks.push(rto_max(namespace));
        checks
    };
    Namespace::run("doctor", body).unwrap_or_else(|error| {
        vec![check("network namespace", Need::RealRuns, Err((error.to_string(), "run as root".to_owned())))]
    })
}

fn rto_max(namespace: &Namespace) -> Check {
    let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let tried = KernelListener::bind(namespace, address, &SocketOptions::new(Congestion::Reno))
        .and_then(|listener| listener.set_rto_max(holdover_base::Duration::from_secs(1)));
    let found = match tried {
        Ok(()) => Ok("can be set".to_owned()),
        Err(_) => Err(("this kernel does not know it".to_owned(), "Linux 6.15 or later".to_owned())),
    };
    check("TCP_RTO_MAX_MS", Need::SomeRuns, found)
}

/// Checks for leftovers. Namespaces, devices and sockets end with their process; only a process can remain.
fn remains() -> Check {
    let own = fs::read_link("/proc/self/exe").ok();
    let mut orphans: Vec<u32> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let is_ours = own.is_some() && fs::read_link(entry.path().join("exe")).ok() == own;
        if is_ours && process != std::process::id() && parent_of(process) == Some(1) {
            orphans.push(process);
        }
    }
    orphans.sort_unstable();
    let found = if orphans.is_empty() {
        Ok("none".to_owned())
    } else {
        let list: Vec<_> = orphans.iter().map(u32::to_string).collect();
        Err((format!("processes whose parent has ended: {}", list.join(", ")), format!("kill {}", list.join(" "))))
    };
    check("remains of runs", Need::SomeRuns, found)
}

/// The fourth field of `/proc/PID/stat`; the second, in parentheses, may contain anything.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_name_a_remedy() {
        for check in [kernel(), user_namespaces(), tun_device(), remains()] {
            assert_eq!(check.is_fine, check.fix.is_empty(), "{check:?}");
            assert!(!check.found.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn a_process_has_its_parent() {
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent_of(u32::MAX), None);
    }
}
