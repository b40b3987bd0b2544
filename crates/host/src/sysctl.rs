//! The kernel parameters of one namespace: `net.*`, read and written through `/proc/sys` from inside it.
//!
//! Only part of `net.*` belongs to a namespace, above all `net.ipv4.*` and `net.ipv6.*`. Parameters of the machine
//! (such as `net.core.default_qdisc`) are missing in a new namespace and read as [`SysctlError::Unknown`], or are
//! read-only, depending on the kernel.
//!
//! `net.ipv4.tcp_congestion_control` accepts only the algorithms of the machine's
//! `net.ipv4.tcp_allowed_congestion_control` in a namespace; `SocketOptions::new` of the test bed sets any algorithm.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Namespace, NamespaceError};

/// A parameter could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The name is not a parameter of a namespace.
    #[error("\"{name}\" is not a parameter of a network namespace: names look like \"net.ipv4.tcp_sack\"")]
    Name {
        /// The name.
        name: Box<str>,
    },
    /// This kernel has no such parameter, or not per namespace.
    #[error("no parameter \"{name}\" in namespace \"{namespace}\"")]
    Unknown {
        /// The parameter.
        name: Box<str>,
        /// The namespace.
        namespace: Box<str>,
    },
    /// The kernel does not accept the value.
    #[error("invalid value \"{value}\" for {name}")]
    Value {
        /// The parameter.
        name: Box<str>,
        /// The value.
        value: Box<str>,
    },
    /// The kernel refused for another reason; in a container `/proc/sys` may be read-only.
    #[error("cannot access {name} in namespace \"{namespace}\"")]
    Refused {
        /// The parameter.
        name: Box<str>,
        /// The namespace.
        namespace: Box<str>,
        /// The kernel's reason.
        source: Arc<io::Error>,
    },
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Reads a parameter, without the newline; several values are separated by tabs, as the kernel prints them.
///
/// # Errors
/// The name is not of `net.*`, the kernel has no such parameter in a namespace, or the calling thread is in another one.
pub fn get(namespace: &Namespace, name: &str) -> Result<String, SysctlError> {
    namespace.require_current()?;
    let text = fs::read_to_string(path(name)?).map_err(|error| refused(namespace, name, "", error))?;
    Ok(text.trim_end().to_owned())
}

/// Writes a parameter. Several values (`tcp_rmem`) are separated by spaces.
///
/// # Errors
/// As for [`get`], or the kernel does not accept the value.
pub fn set(namespace: &Namespace, name: &str, value: &str) -> Result<(), SysctlError> {
    namespace.require_current()?;
    fs::write(path(name)?, value).map_err(|error| refused(namespace, name, value, error))
}

/// `/proc/sys` follows the calling thread's namespace, whichever process mounted it. As with sysctl(8), the names'
/// separator is a dot or a slash, whichever comes first, and the other is then an ordinary character.
fn path(name: &str) -> Result<PathBuf, SysctlError> {
    let separator = name.chars().find(|c| matches!(c, '.' | '/')).unwrap_or('.');
    let parts: Vec<String> = name
        .split(separator)
        .map(|part| if separator == '.' { part.replace('/', ".") } else { part.to_owned() })
        .collect();
    let is_part = |part: &String| !matches!(part.as_str(), "" | "." | "..") && !part.contains('\0');
    if parts.len() < 3 || parts[0] != "net" || !parts.iter().all(is_part) {
        return Err(SysctlError::Name { name: name.into() });
    }
    Ok([String::from("/proc/sys")].into_iter().chain(parts).collect())
}

fn refused(namespace: &Namespace, name: &str, value: &str, error: io::Error) -> SysctlError {
    match error.kind() {
        io::ErrorKind::NotFound => SysctlError::Unknown { name: name.into(), namespace: namespace.name().into() },
        io::ErrorKind::InvalidInput => SysctlError::Value { name: name.into(), value: value.into() },
        _ => SysctlError::Refused { name: name.into(), namespace: namespace.name().into(), source: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_below_net_only() {
        let ok = |name| path(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(ok("net.ipv4.tcp_sack"), "/proc/sys/net/ipv4/tcp_sack");
        assert_eq!(ok("net/ipv4/conf/eth0.5/forwarding"), "/proc/sys/net/ipv4/conf/eth0.5/forwarding");
        assert_eq!(ok("net.ipv4.conf.eth0/5.forwarding"), "/proc/sys/net/ipv4/conf/eth0.5/forwarding");
        for name in ["kernel.panic", "net", "net.ipv4", "net/../kernel/panic", "net//x", "", "net.ipv4.\0"] {
            assert!(matches!(path(name), Err(SysctlError::Name { .. })), "{name}");
        }
    }
}
