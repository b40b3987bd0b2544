//! Interface names in requests to the kernel.

/// `linux/if.h`: bytes of a name, with the final zero.
pub const IFNAMSIZ: usize = 16;

/// `name`, of at most 15 bytes, as the kernel's array.
pub fn device_name(name: &str) -> [u8; IFNAMSIZ] {
    let mut array = [0; IFNAMSIZ];
    array[..name.len()].copy_from_slice(name.as_bytes());
    array
}
