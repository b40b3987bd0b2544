//! The capabilities of a daemon: the necessary ones only, permanently.

use rustix::io::Errno;
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The effective capabilities of the calling thread; none if the kernel does not report them.
pub fn held() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Drops all capabilities except those to keep, also for executed programs. Call it before the first thread is started:
/// it applies to the calling thread, and to those that it starts.
///
/// # Errors
/// The kernel refuses; then the capabilities are unchanged or fewer.
pub fn drop_all_but(keep: CapabilitySet) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            // The kernel may not know every capability that we do.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    let kept = held.permitted.intersection(keep);
    // No program is executed any more, so none is inherited.
    clear_ambient_capability_set()?;
    // A service manager may have done the rest, and have forbidden to repeat it.
    if kept == held.permitted {
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

    // Claim: Unneeded privileges are dropped; the control socket is accessible to its user only.
    // Tests: `tests::the_socket_is_for_one_agent_and_one_user`
    #[test]
    fn dropped_capabilities_are_gone() {
        // Of this thread only: other tests keep theirs.
        let after = std::thread::spawn(|| {
            drop_all_but(KEPT).unwrap();
            let held = capabilities(None).unwrap();
            let bounded = capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap();
            let had_setpcap = capability_is_in_bounding_set(CapabilitySet::SETPCAP).unwrap();
            (held, bounded || had_setpcap)
        });
        let before = capabilities(None).unwrap();
        let (held, is_unbounded) = after.join().unwrap();
        assert!(KEPT.contains(held.permitted) && KEPT.contains(held.effective));
        assert_eq!(held.permitted, before.permitted.intersection(KEPT));
        assert_eq!(is_unbounded, !before.effective.contains(CapabilitySet::SETPCAP) && is_unbounded);
    }
}
