//! eBPF programs to compare the gateway's with (`bpf/baseline.bpf.c`).

use aya::EbpfLoader;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use holdover_host::Namespace;
use holdover_host::ebpf::Object;

use super::BenchError;
use crate::path::PathError;

static OBJECT: &[u8] = include_bytes!("../../bpf/baseline.bpf.o.gz");

/// Programs at an interface by tcx. They end with this value.
pub struct Baseline {
    _object: Object,
}

impl Baseline {
    /// A program that does nothing, at both hooks of an interface.
    ///
    /// # Errors
    /// The kernel refuses: it needs Linux 6.6, and what the gateway needs.
    pub fn pass(namespace: &Namespace, interface: &str) -> Result<Self, BenchError> {
        Self::attach(namespace, interface, "pass", &[TcAttachType::Ingress, TcAttachType::Egress])
    }

    /// A program that discards the IPv4 packets that come in at an interface, before the host receives them.
    ///
    /// # Errors
    /// See [`Self::pass`].
    pub fn discard(namespace: &Namespace, interface: &str) -> Result<Self, BenchError> {
        Self::attach(namespace, interface, "discard", &[TcAttachType::Ingress])
    }

    fn attach(
        namespace: &Namespace,
        interface: &str,
        name: &'static str,
        hooks: &[TcAttachType],
    ) -> Result<Self, BenchError> {
        let attach = || -> Result<Object, PathError> {
            let mut object = Object::open(&mut EbpfLoader::new(), OBJECT)?;
            object.load(&[name])?;
            let program: &mut SchedClassifier = object.program_mut(name)?;
            for &hook in hooks {
                program.attach_with_options(interface, hook, TcAttachOptions::TcxOrder(LinkOrder::default()))?;
            }
            Ok(object)
        };
        Ok(Self { _object: namespace.enter(attach)?? })
    }
}

impl std::fmt::Debug for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Baseline").finish_non_exhaustive()
    }
}
