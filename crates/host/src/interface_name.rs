//! Names of interfaces as the kernel's requests have them.

/// `linux/if.h`: the bytes of a name, with the zero at its end.
pub const IFNAMSIZ: usize = 16;

/// `name`, which has at most 15 bytes, as the kernel's array.
pub fn device_name(name: &str) -> [u8; IFNAMSIZ] {
    let mut array = [0; IFNAMSIZ];
    array[..name.len()].copy_from_slice(name.as_bytes());
    array
}
