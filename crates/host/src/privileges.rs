//! What a daemon may do: only what it needs, and never more again.

use rustix::io::Errno;
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up all capabilities but those that are to be kept, also for programs that would be executed. To be called before the first thread is started: it holds for
/// the calling thread, and for those that it starts.
///
/// # Errors
/// The kernel refuses; then all is as it was, or less.
pub fn drop_all_but(keep: CapabilitySet) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            // Kernels do not know every capability that we do.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    let kept = held.permitted.intersection(keep);
    // Nothing is executed any more, so that nothing is to be handed on.
    clear_ambient_capability_set()?;
    // A service manager may have done the rest, and forbidden to do it again.
    if kept == held.permitted {
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

    #[test]
    fn dropped_capabilities_are_gone() {
        // Of this thread only: other tests go on with theirs.
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
