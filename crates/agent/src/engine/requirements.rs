//! The requirements of engines, and how to meet them.

use std::error::Error;
use std::fs;
use std::io;

use holdover_host::privileges::{CapabilitySet, held};

use super::error::{EngineError, MissingCapabilities};

/// The capabilities, and their purposes.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
];

/// Whether this process may load the programs, attach them, and send packets.
///
/// # Errors
/// [`EngineError::Capabilities`], or the kernel's reason for not loading the programs.
pub(super) fn check(probe: impl FnOnce() -> Result<(), EngineError>) -> Result<(), EngineError> {
    missing_of(held(), is_in_user_namespace()).map_or(Ok(()), |missing| Err(EngineError::Capabilities(missing)))?;
    probe().map_err(|error| match (is_refused(&error), is_in_user_namespace()) {
        // All capabilities, but not in the user namespace that counts for eBPF.
        (true, true) => EngineError::Capabilities(MissingCapabilities {
            names: vec!["CAP_BPF", "CAP_PERFMON"],
            is_in_user_namespace: true,
        }),
        (true, false) => EngineError::Forbidden { source: Box::new(error) },
        (false, _) => error,
    })
}

fn missing_of(held: CapabilitySet, is_in_user_namespace: bool) -> Option<MissingCapabilities> {
    let missing = NEEDED.iter().filter(|(capability, _)| !held.contains(*capability));
    let names: Vec<&str> = missing.map(|(_, name)| *name).collect();
    (!names.is_empty()).then_some(MissingCapabilities { names, is_in_user_namespace })
}

/// Whether the kernel returned `EPERM` or `EACCES`, without a verifier log.
fn is_refused(error: &EngineError) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error() == Some(libc::EPERM);
        }
        source = error.source();
    }
    false
}

/// Whether uids are mapped, unlike in the initial user namespace (`user_namespaces(7)`).
fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let numbers: Vec<&str> = map.split_whitespace().collect();
    !numbers.is_empty() && numbers != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let all = NEEDED.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
        assert_eq!(missing_of(all, false), None);
        let some = missing_of(all - CapabilitySet::NET_RAW - CapabilitySet::BPF, false).unwrap();
        let text = some.to_string();
        assert!(text.starts_with("it lacks CAP_BPF, CAP_NET_RAW. ") && text.contains("sudo setcap"), "{text}");
        let inside = missing_of(CapabilitySet::empty(), true).unwrap().to_string();
        assert!(inside.contains("CAP_PERFMON") && inside.contains("user namespace"), "{inside}");
    }

    #[test]
    fn a_refusal_is_told_from_other_errors() {
        let refused = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            is_refused(&EngineError::Socket { interface: "wlan0".into(), source })
        };
        assert!(refused(libc::EPERM) && !refused(libc::ENOMEM));
        assert!(!is_refused(&EngineError::Object { lacks: "x" }));
        let none = || Ok(());
        if held().contains(CapabilitySet::BPF) {
            assert!(check(none).is_ok());
        } else {
            assert!(matches!(check(none), Err(EngineError::Capabilities(_))));
        }
    }
}
