//! All entries of the map of flows, many with each system call.
//!
//! One at a time takes two calls for each: with tens of thousands of connections, whoever has to look at them all would be late
//! for everything else.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use holdover_flow::{Flow, Key};

use super::path::LOCK;

/// `enum bpf_cmd` of `linux/bpf.h`.
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;

/// So many entries are asked for at once: 600 kB.
const AT_ONCE: usize = 512;

/// The part of `union bpf_attr` that the call reads.
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Looks at each entry as it is when its turn comes. One that comes or goes in the meantime may be seen or not.
pub(super) fn for_each(map: BorrowedFd<'_>, look: &mut dyn FnMut(&Key, &Flow)) -> io::Result<()> {
    let mut keys = vec![Key::default(); AT_ONCE];
    let mut values = vec![Flow::default(); AT_ONCE];
    // The place where the next call begins: 4 bytes that are the kernel's own.
    let (mut from, mut next) = (None::<u64>, 0_u64);
    loop {
        let mut batch = Batch {
            in_batch: from.as_ref().map_or(0, |from| std::ptr::from_ref(from).addr() as u64),
            out_batch: std::ptr::from_mut(&mut next).expose_provenance() as u64,
            keys: keys.as_mut_ptr().expose_provenance() as u64,
            values: values.as_mut_ptr().expose_provenance() as u64,
            count: keys.len() as u32,
            map_fd: map.as_raw_fd().cast_unsigned(),
            elem_flags: LOCK,
            flags: 0,
        };
        // SAFETY: the kernel writes at most `count` keys and values of the map's sizes, which are those of the elements, and one
        // place; all of them live during the call. Any bytes are a key and a value.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, std::ptr::from_mut(&mut batch), size_of::<Batch>())
        };
        let error = (result < 0).then(io::Error::last_os_error);
        let is_last = match error.as_ref().map(io::Error::raw_os_error) {
            None => false,
            Some(Some(libc::ENOENT)) => true,
            // What has one hash does not fit.
            Some(Some(libc::ENOSPC)) => {
                keys.resize(2 * keys.len(), Key::default());
                values.resize(2 * values.len(), Flow::default());
                continue;
            }
            Some(_) => return Err(error.unwrap_or_else(|| io::ErrorKind::Other.into())),
        };
        keys.iter().zip(&values).take(batch.count as usize).for_each(|(key, value)| look(key, value));
        if is_last {
            return Ok(());
        }
        from = Some(next);
    }
}
