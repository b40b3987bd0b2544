//! All entries of an eBPF hash map, with many per system call.
//!
//! One at a time takes two calls per entry: with tens of thousands of entries, a process that reads them all would miss
//! its other deadlines.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `enum bpf_cmd` of `linux/bpf.h`.
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;

const BPF_MAP_DELETE_BATCH: libc::c_int = 27;

/// Entries requested at once.
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

/// Calls `look` for each entry, with its value at that moment. Entries added or removed meanwhile may be missed or
/// included. `flags` are those of a look-up (`BPF_F_LOCK`).
///
/// # Safety
/// Keys and values of the map have the sizes of `K` and `V`, and any bytes are a value of each type.
///
/// # Errors
/// The kernel refuses.
pub unsafe fn for_each<K: Copy + Default, V: Copy + Default>(
    map: BorrowedFd<'_>,
    flags: u64,
    look: &mut dyn FnMut(&K, &V),
) -> io::Result<()> {
    let mut keys = vec![K::default(); AT_ONCE];
    let mut values = vec![V::default(); AT_ONCE];
    // The position for the next call: 4 opaque bytes of the kernel.
    let (mut from, mut next) = (None::<u64>, 0_u64);
    loop {
        let mut batch = Batch {
            in_batch: from.as_ref().map_or(0, |from| std::ptr::from_ref(from).addr() as u64),
            out_batch: std::ptr::from_mut(&mut next).expose_provenance() as u64,
            keys: keys.as_mut_ptr().expose_provenance() as u64,
            values: values.as_mut_ptr().expose_provenance() as u64,
            count: keys.len() as u32,
            map_fd: map.as_raw_fd().cast_unsigned(),
            elem_flags: flags,
            flags: 0,
        };
        // SAFETY: the kernel writes at most `count` keys and values of the map's sizes, which are those of the elements, and one
        // place; all of them live during the call. Any bytes are a key and a value, as the caller promises.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, std::ptr::from_mut(&mut batch), size_of::<Batch>())
        };
        let error = (result < 0).then(io::Error::last_os_error);
        let is_last = match error.as_ref().map(io::Error::raw_os_error) {
            None => false,
            Some(Some(libc::ENOENT)) => true,
            // The entries of one hash bucket do not fit.
            Some(Some(libc::ENOSPC)) => {
                keys.resize(2 * keys.len(), K::default());
                values.resize(2 * values.len(), V::default());
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

/// Removes the entries of these keys. Those that are gone already are skipped.
///
/// # Safety
/// Keys of the map have the size of `K`.
///
/// # Errors
/// The kernel refuses.
pub unsafe fn remove<K: Copy>(map: BorrowedFd<'_>, keys: &[K]) -> io::Result<()> {
    let mut left = keys;
    while !left.is_empty() {
        let mut batch = Batch {
            in_batch: 0,
            out_batch: 0,
            keys: left.as_ptr().expose_provenance() as u64,
            values: 0,
            count: u32::try_from(left.len()).unwrap_or(u32::MAX),
            map_fd: map.as_raw_fd().cast_unsigned(),
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: the kernel reads at most `count` keys of the map's size, which live during the call.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_DELETE_BATCH, std::ptr::from_mut(&mut batch), size_of::<Batch>())
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
        // The kernel stops at a key without an entry: so many were removed before it.
        left = left.get(batch.count as usize + 1..).unwrap_or_default();
    }
    Ok(())
}
