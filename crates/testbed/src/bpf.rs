//! Whether TC eBPF programs can be attached: by loading the smallest one and attaching it where nobody else is.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::{Namespace, NamespaceError};

/// Why no program could be attached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BpfError {
    /// The kernel does not load programs for this process.
    #[error("bpf(BPF_PROG_LOAD) was refused: {0}")]
    Load(io::Error),
    /// It does not attach them this way.
    #[error("bpf(BPF_LINK_CREATE) was refused: {0}")]
    Attach(io::Error),
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

// `linux/bpf.h`.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;

/// The loopback interface of every namespace.
const LOOPBACK: u32 = 1;

/// `r0 = TCX_NEXT; exit`, as `struct bpf_insn`s.
static PROGRAM: [u64; 2] = [insn(0xb7, -1), insn(0x95, 0)];

const fn insn(code: u8, imm: i32) -> u64 {
    // The first byte is the operation, the last four are the constant; registers and offset are 0.
    let imm = imm.to_ne_bytes();
    u64::from_ne_bytes([code, 0, 0, 0, imm[0], imm[1], imm[2], imm[3]])
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log: [u32; 4],
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE` to an interface.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    unused: u32,
    expected_revision: u64,
}

/// Attaches a program that does nothing to the loopback interface of `namespace`, in which the calling thread must be, and takes it
/// off again.
pub(crate) fn try_tcx(namespace: &Namespace) -> Result<(), BpfError> {
    use std::os::fd::AsRawFd as _;
    namespace.require_current()?;
    let load = ProgLoad {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: PROGRAM.len() as u32,
        insns: PROGRAM.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        expected_attach_type: BPF_TCX_INGRESS,
        ..ProgLoad::default()
    };
    let program = call(BPF_PROG_LOAD, &load).map_err(BpfError::Load)?;
    let link = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: LOOPBACK,
        attach_type: BPF_TCX_INGRESS,
        ..LinkCreate::default()
    };
    // The link, and the program with it, go with the descriptor.
    call(BPF_LINK_CREATE, &link).map(drop).map_err(BpfError::Attach)
}

fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `attributes`, a `repr(C)` beginning of its union; what these point to
    // is static.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
