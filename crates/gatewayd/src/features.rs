//! What this kernel and this user allow, each on its own.

use std::path::Path;

use holdover_host::log::with_causes;
use holdover_host::packet_socket::PacketSocket;
use rustix::fs::statfs;
use serde::Serialize;

use crate::path::KernelPath;

/// Something that the gateway needs or can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub fine: bool,
    /// What was found, or why it is not there.
    pub found: String,
    /// Whether the gateway works without it.
    pub needed: bool,
}

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;

/// Tries everything, and leaves nothing behind.
pub fn examine(directory: &Path) -> Vec<Feature> {
    let feature = |name, needed, result: Result<String, String>| {
        let fine = result.is_ok();
        Feature { name, fine, found: result.unwrap_or_else(|why| why), needed }
    };
    let programs = KernelPath::probe().map(|()| "the kernel takes the programs".to_owned());
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let socket = PacketSocket::open(0).and_then(PacketSocket::with_offload);
    vec![
        feature("eBPF", true, programs.map_err(|error| with_causes(&error))),
        feature(
            "TUN device",
            true,
            device.map(|_| "/dev/net/tun".to_owned()).map_err(|error| format!("/dev/net/tun: {error}")),
        ),
        feature("packet socket", true, socket.map(|_| "with offloads".to_owned()).map_err(|error| error.to_string())),
        feature("buffer in memory", false, is_tmpfs(directory)),
    ]
}

/// Whether everything that is needed is there.
pub fn can_work(features: &[Feature]) -> bool {
    features.iter().all(|feature| feature.fine || !feature.needed)
}

/// Whether packets that wait stay in memory. The directory need not be there yet.
fn is_tmpfs(directory: &Path) -> Result<String, String> {
    let existing = directory.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    match statfs(existing) {
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the machine")]
        Ok(found) if found.f_type as i64 == TMPFS => Ok(format!("{} is on tmpfs", existing.display())),
        Ok(_) => Err(format!("{} is not on tmpfs: packets that wait are written to a disk", existing.display())),
        Err(errno) => Err(format!("{}: {errno}", existing.display())),
    }
}
