//! Names of cgroups (v2), which the kernel identifies by number.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The cgroups that exist, by number.
#[derive(Clone, Debug)]
pub struct Cgroups {
    mount: PathBuf,
    names: BTreeMap<u64, String>,
}

/// Cgroups could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is no cgroup v2 file system.
    #[error(
        "no cgroup v2 file system is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), or boot with \
         systemd.unified_cgroup_hierarchy=1"
    )]
    NotMounted,
    /// The list of mounts or a cgroup could not be read.
    #[error("{}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Cgroups {
    /// Lists the current cgroups.
    ///
    /// # Errors
    ///
    /// See [`CgroupError`].
    pub fn look() -> Result<Self, CgroupError> {
        let mut cgroups = Self { mount: find_cgroup2_mount()?, names: BTreeMap::new() };
        cgroups.refresh()?;
        Ok(cgroups)
    }

    /// The path of a cgroup from the root of the hierarchy, as in `/proc/PID/cgroup`: `/system.slice/ssh.service`.
    /// Lists them again if the number is unknown; `None` if it is gone.
    pub fn name(&mut self, number: u64) -> Option<&str> {
        if !self.names.contains_key(&number) {
            self.refresh().ok()?;
        }
        self.names.get(&number).map(String::as_str)
    }

    fn refresh(&mut self) -> Result<(), CgroupError> {
        self.names.clear();
        let mut waiting = vec![self.mount.clone()];
        while let Some(directory) = waiting.pop() {
            let is_root = directory == self.mount;
            let found = fs::metadata(&directory).and_then(|metadata| Ok((metadata.ino(), fs::read_dir(&directory)?)));
            let (number, entries) = match found {
                Ok(found) => found,
                // It was removed while its parent was read.
                Err(_) if !is_root => continue,
                Err(source) => return Err(CgroupError::Io { path: directory, source }),
            };
            let name = directory.strip_prefix(&self.mount).unwrap_or(Path::new(""));
            self.names.insert(number, format!("/{}", name.to_string_lossy()));
            let is_cgroup = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            waiting.extend(entries.flatten().filter(is_cgroup).map(|entry| entry.path()));
        }
        Ok(())
    }
}

/// The mount point of the cgroup v2 file system: `/sys/fs/cgroup`, or elsewhere beside the controllers of version 1.
///
/// # Errors
///
/// See [`CgroupError`].
pub fn find_cgroup2_mount() -> Result<PathBuf, CgroupError> {
    let path = Path::new("/proc/self/mountinfo");
    let mounts = fs::read_to_string(path).map_err(|source| CgroupError::Io { path: path.into(), source })?;
    cgroup2_mount_in(&mounts).ok_or(CgroupError::NotMounted)
}

/// The mount that shows most of the hierarchy: that of its root, if there is one. See `proc_pid_mountinfo(5)`.
fn cgroup2_mount_in(mounts: &str) -> Option<PathBuf> {
    let cgroup2 = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (source.split(' ').next() == Some("cgroup2")).then(|| (root.len(), PathBuf::from(unescaped(point))))
    });
    cgroup2.min_by_key(|(root_len, _)| *root_len).map(|(_, point)| point)
}

/// Blanks are escaped as octal numbers there.
fn unescaped(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_beside_version_1() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:7 - cgroup cgroup rw,cpu\n\
                      33 31 0:38 /a /mnt/part rw,relatime - cgroup2 cgroup2 rw\n\
                      41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:8 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2_mount_in(mounts), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        assert_eq!(cgroup2_mount_in(mounts.lines().next().unwrap()), None);
    }

    #[test]
    fn the_root_has_a_name_where_there_are_cgroups() {
        let Ok(mut cgroups) = Cgroups::look() else { return };
        let root = fs::metadata(find_cgroup2_mount().unwrap()).unwrap().ino();
        assert_eq!(cgroups.name(root), Some("/"));
        assert_eq!(cgroups.name(u64::MAX), None);
    }
}
