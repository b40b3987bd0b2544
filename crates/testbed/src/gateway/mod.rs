//! A gateway without hardware: its daemon on a router between a fixed host and mobile hosts, each in a network namespace.

mod crowd;
mod error;
mod etcd;
mod line;
mod process;
mod site;
mod transfer;
mod wire;
mod world;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

pub use crowd::{Crowd, Return};
pub use error::WorldError;
pub use etcd::{Etcd, find_etcd};
pub use line::Line;
pub use process::{GatewayProcess, MakeCommand};
pub use site::Site;
pub use transfer::{LIMIT, Transfer, TransferError};
pub use wire::Wire;
pub use world::{Cut, MOBILE_FACING, World};

/// Makes a directory that its owner alone can enter. It must not exist: another user could have made it.
///
/// # Errors
/// It exists, or cannot be made.
pub fn make_directory(directory: &Path) -> Result<(), WorldError> {
    let made = DirBuilder::new().mode(0o700).create(directory);
    made.map_err(|source| WorldError::Directory { directory: directory.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_exists_is_not_used() {
        let directory = std::env::temp_dir().join(format!("holdover-demo-{}", std::process::id()));
        make_directory(&directory).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        let again = make_directory(&directory);
        assert!(matches!(again, Err(WorldError::Directory { .. })), "{again:?}");
        std::fs::remove_dir(&directory).unwrap();
        // Nor where a link leads to.
        std::os::unix::fs::symlink(std::env::temp_dir().join("elsewhere"), &directory).unwrap();
        assert!(make_directory(&directory).is_err());
        std::fs::remove_file(&directory).unwrap();
    }
}
