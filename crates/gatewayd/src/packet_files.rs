//! Packets on disk, in files of a directory that should be on tmpfs: buffered packets survive the process that diverted
//! them, however that ends.
//!
//! A mobile host has a file, named by its address, from its first buffered packet until the last one is removed. It
//! begins with [`MAGIC`] and the offset of the oldest record; records follow each other. A check at its end shows
//! whether a record is complete. Packets are appended at the end, and removed at the beginning (the space is returned
//! to the file system by punching holes) or at the end (the file is truncated).
//!
//! A packet that was sent just before the process was killed may still be in its file, and is sent again by the next
//! process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdover_base::Instant;
use holdover_host::Offload;
use holdover_host::lock_file::{LockError, LockFile};
use holdover_host::open_files;
use rustix::fs::{FallocateFlags, fallocate};

/// The beginning of a file; another layout has another one.
const MAGIC: u64 = u64::from_le_bytes(*b"HoldGW\x00\x01");

/// Bytes before the first record: [`MAGIC`], and the offset of the oldest record.
const FILE_HEADER: u64 = 16;

/// Bytes before a packet: a mark, its length, its time of arrival, and its offload header.
const RECORD_HEADER: usize = 32;

/// Bytes after a packet.
const RECORD_END: usize = 8;

/// The beginning of a record.
const MARK: u32 = 0x4850_4b54;

/// The longest packet of a TUN device.
const LONGEST: usize = 1 << 16;

/// The unit in which space of a file is returned.
const HOLE: u64 = 1 << 18;

/// The end of the name of a file that is to replace another one.
const ANEW: &str = ".new";

/// The buffered packets of all mobile hosts of one interface.
#[derive(Debug)]
pub(crate) struct PacketFiles {
    directory: PathBuf,
    logs: BTreeMap<IpAddr, Log>,
    open: usize,
    /// The most open files. Others are opened on use.
    most_open: usize,
    buffer: Vec<u8>,
    /// The lock of the directory, which is removed with it if it was created for it and is empty.
    _lock: LockFile,
}

/// The file of one mobile host.
#[derive(Debug)]
struct Log {
    file: Option<File>,
    /// The offset of the oldest record.
    head: u64,
    /// The offset after the newest record.
    tail: u64,
    /// The space before this offset was returned.
    given_back: u64,
}

/// The position of a packet in the file of its mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    at: u64,
    len: u32,
}

/// A packet of an earlier process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restored {
    pub(crate) mobile: IpAddr,
    pub(crate) came_at: Instant,
    pub(crate) len: u32,
    pub(crate) stored: Stored,
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PacketFileError {
    /// Another gateway uses it.
    #[error("{} is in use by another gateway: one process for each interface", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error("cannot store packets in {}: choose another [buffer] directory", path.display())]
    Refused {
        /// The directory or file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Stored {
    /// The offset after its record.
    fn end(self) -> u64 {
        self.at + (RECORD_HEADER + self.len as usize + RECORD_END) as u64
    }
}

impl PacketFiles {
    /// Opens the directory, created if missing, and reads its content: the packets of each mobile host in order. Files
    /// of other layouts are removed, and unrelated ones are ignored.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<Restored>), PacketFileError> {
        let refused = |source: io::Error| PacketFileError::Refused { path: directory.to_owned(), source };
        // Mode 0700: the directory holds packets of other hosts.
        let lock =
            LockFile::take(&directory.join("lock"), 0o700, std::time::Instant::now()).map_err(|error| match error {
                LockError::Held { .. } => PacketFileError::InUse { path: directory.to_owned() },
                LockError::Refused { source, .. } => refused(source),
            })?;
        let (logs, buffer) = (BTreeMap::new(), Vec::new());
        let most_open = open_files::most_kept(open_files::raise_limit()) as usize;
        let mut files = Self { directory: directory.to_owned(), logs, open: 0, most_open, buffer, _lock: lock };
        let mut restored = Vec::new();
        for entry in fs::read_dir(directory).map_err(refused)? {
            let name = entry.map_err(refused)?.file_name();
            let path = directory.join(&name);
            if name.to_str().is_some_and(is_half_written) {
                fs::remove_file(&path).map_err(refused)?;
            }
            let Some(mobile) = name.to_str().and_then(|name| name.parse::<IpAddr>().ok()) else { continue };
            files.restore(mobile, &path, &mut restored).map_err(|source| PacketFileError::Refused { path, source })?;
        }
        Ok((files, restored))
    }

    /// Appends a packet.
    pub(crate) fn append(
        &mut self,
        mobile: IpAddr,
        came_at: Instant,
        offload: Offload,
        packet: &[u8],
    ) -> io::Result<Stored> {
        if packet.len() > LONGEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.log(mobile, true).and_then(|log| {
            let stored = Stored { at: log.tail, len: packet.len() as u32 };
            write_record(&mut buffer, stored, came_at, offload, packet);
            log.file()?.write_all_at(&buffer, stored.at)?;
            log.tail = stored.end();
            Ok(stored)
        });
        self.buffer = buffer;
        if written.is_err() {
            // A file created for it, or its part before the file system was full.
            self.cut_off(mobile);
        }
        written
    }

    /// Puts packets before those of a mobile host. The positions of the latter change, so call it only before the end of the process. A
    /// half-written file never replaces the former one.
    pub(crate) fn prepend(&mut self, mobile: IpAddr, now: Instant, packets: &[(Offload, &[u8])]) -> io::Result<()> {
        let later = self.contents(mobile)?;
        // The oldest is the first to be dropped for its age.
        let came_at = later.first().map_or(now, |(came_at, ..)| *came_at);
        let mut bytes = [MAGIC.to_le_bytes(), FILE_HEADER.to_le_bytes()].concat();
        let mut record = std::mem::take(&mut self.buffer);
        let earlier = packets.iter().filter(|(_, packet)| packet.len() <= LONGEST);
        let earlier = earlier.map(|&(offload, packet)| (came_at, offload, packet));
        for (came_at, offload, packet) in
            earlier.chain(later.iter().map(|(at, offload, packet)| (*at, *offload, &packet[..])))
        {
            let stored = Stored { at: bytes.len() as u64, len: packet.len() as u32 };
            write_record(&mut record, stored, came_at, offload, packet);
            bytes.extend(&record);
        }
        self.buffer = record;
        let (file, anew) = (self.directory.join(mobile.to_string()), self.directory.join(format!("{mobile}{ANEW}")));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&anew).and_then(|file| file.write_all_at(&bytes, 0));
        let written = written.and_then(|()| fs::rename(&anew, &file));
        if written.is_err() {
            let _ = fs::remove_file(&anew);
        }
        if let Some(Log { file: Some(_), .. }) = self.logs.remove(&mobile) {
            self.open -= 1;
        }
        written
    }

    /// The packets of a mobile host, in order, with their times of arrival.
    fn contents(&mut self, mobile: IpAddr) -> io::Result<Vec<(Instant, Offload, Vec<u8>)>> {
        let Some(&Log { head, tail, .. }) = self.logs.get(&mobile) else { return Ok(Vec::new()) };
        let (mut contents, mut at, mut buffer) = (Vec::new(), head, Vec::new());
        while at < tail {
            let Some((stored, came_at)) = read_record(self.log(mobile, false)?.file()?, at, &mut buffer) else { break };
            let mut packet = Vec::new();
            let offload = self.read(mobile, stored, &mut packet)?;
            contents.push((came_at, offload, packet));
            at = stored.end();
        }
        Ok(contents)
    }

    /// Reads a packet into `packet`, which is cleared before.
    pub(crate) fn read(&mut self, mobile: IpAddr, stored: Stored, packet: &mut Vec<u8>) -> io::Result<Offload> {
        let log = self.log(mobile, false)?;
        let mut header = [0; RECORD_HEADER];
        log.file()?.read_exact_at(&mut header, stored.at)?;
        packet.clear();
        packet.resize(stored.len as usize, 0);
        log.file()?.read_exact_at(packet, stored.at + RECORD_HEADER as u64)?;
        Ok(Offload::from_bytes(&header[16..16 + Offload::LEN]))
    }

    /// Removes the oldest or the newest packet of a mobile host.
    pub(crate) fn remove(&mut self, mobile: IpAddr, stored: Stored) -> io::Result<()> {
        let log = self.log(mobile, false)?;
        if stored.end() >= log.tail {
            log.tail = stored.at;
            if log.tail > log.head {
                return log.file()?.set_len(log.tail);
            }
        } else {
            log.head = log.head.max(stored.end());
        }
        if log.head >= log.tail {
            return self.delete(mobile);
        }
        log.file()?.write_all_at(&log.head.to_le_bytes(), 8)?;
        log.give_back();
        Ok(())
    }

    /// The log of a mobile host with its file open, created if `make` is set.
    fn log(&mut self, mobile: IpAddr, make: bool) -> io::Result<&mut Log> {
        let is_closed = self.logs.get(&mobile).is_none_or(|log| log.file.is_none());
        if is_closed {
            if self.open >= self.most_open {
                self.logs.values_mut().for_each(|log| log.file = None);
                self.open = 0;
            }
            let is_new = !self.logs.contains_key(&mobile);
            if is_new && !make {
                return Err(io::ErrorKind::NotFound.into());
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).mode(0o600);
            let file = options.create(is_new).truncate(is_new).open(self.directory.join(mobile.to_string()))?;
            if is_new {
                file.write_all_at(&[MAGIC.to_le_bytes(), FILE_HEADER.to_le_bytes()].concat(), 0)?;
                let log = Log { file: None, head: FILE_HEADER, tail: FILE_HEADER, given_back: FILE_HEADER };
                self.logs.insert(mobile, log);
            }
            self.open += 1;
            if let Some(log) = self.logs.get_mut(&mobile) {
                log.file = Some(file);
            }
        }
        self.logs.get_mut(&mobile).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Truncates the file after the newest record.
    fn cut_off(&mut self, mobile: IpAddr) {
        let is_empty = self.logs.get(&mobile).is_none_or(|log| log.head >= log.tail);
        // There is an error already, which is reported.
        let _ = if is_empty {
            self.delete(mobile)
        } else {
            self.log(mobile, false).and_then(|log| log.file()?.set_len(log.tail))
        };
    }

    fn delete(&mut self, mobile: IpAddr) -> io::Result<()> {
        if let Some(Log { file: Some(_), .. }) = self.logs.remove(&mobile) {
            self.open -= 1;
        }
        fs::remove_file(self.directory.join(mobile.to_string()))
    }

    fn restore(&mut self, mobile: IpAddr, path: &Path, restored: &mut Vec<Restored>) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut header = [0; FILE_HEADER as usize];
        let is_ours = file.read_exact_at(&mut header, 0).is_ok() && u64_at(&header, 0) == MAGIC;
        let head = u64_at(&header, 8);
        if !is_ours || head < FILE_HEADER {
            tracing::warn!(path = %path.display(), "removed packets of another version");
            return fs::remove_file(path);
        }
        let mut log = Log { file: None, head, tail: head, given_back: FILE_HEADER };
        let mut packet = Vec::new();
        while let Some((stored, came_at)) = read_record(&file, log.tail, &mut packet) {
            restored.push(Restored { mobile, came_at, len: stored.len, stored });
            log.tail = stored.end();
        }
        if log.tail == log.head {
            return fs::remove_file(path);
        }
        file.set_len(log.tail)?;
        self.logs.insert(mobile, log);
        Ok(())
    }
}

impl Log {
    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the space before the oldest record to the file system. Without support for holes it is returned with the
    /// file.
    fn give_back(&mut self) {
        if self.head - self.given_back < HOLE {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Some(file) = &self.file {
            let _ = fallocate(file, flags, self.given_back, self.head - self.given_back);
        }
        self.given_back = self.head;
    }
}

/// Whether a file of this name was being written when its process was killed.
fn is_half_written(name: &str) -> bool {
    name.strip_suffix(ANEW).is_some_and(|name| name.parse::<IpAddr>().is_ok())
}

/// The last word of a record, which a partly written record lacks.
fn check(stored: Stored, came_at: u64) -> u64 {
    let mixed = stored.at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(stored.len).rotate_left(40) ^ came_at;
    mixed | 1
}

fn write_record(buffer: &mut Vec<u8>, stored: Stored, came_at: Instant, offload: Offload, packet: &[u8]) {
    buffer.clear();
    buffer.extend(MARK.to_le_bytes());
    buffer.extend(stored.len.to_le_bytes());
    buffer.extend(came_at.as_nanos().to_le_bytes());
    buffer.extend(offload.to_bytes());
    buffer.resize(RECORD_HEADER, 0);
    buffer.extend(packet);
    buffer.extend(check(stored, came_at.as_nanos()).to_le_bytes());
}

/// The record at an offset, if it is complete.
fn read_record(file: &File, at: u64, packet: &mut Vec<u8>) -> Option<(Stored, Instant)> {
    let mut header = [0; RECORD_HEADER];
    file.read_exact_at(&mut header, at).ok()?;
    let len = u32::from_le_bytes(header[4..8].try_into().ok()?);
    if u32::from_le_bytes(header[..4].try_into().ok()?) != MARK || len as usize > LONGEST {
        return None;
    }
    packet.clear();
    packet.resize(len as usize + RECORD_END, 0);
    file.read_exact_at(packet, at + RECORD_HEADER as u64).ok()?;
    let (stored, came_at) = (Stored { at, len }, u64_at(&header, 8));
    (u64_at(packet, len as usize) == check(stored, came_at)).then_some((stored, Instant::from_nanos(came_at)))
}

/// The number at an offset; 0 if that is beyond `bytes`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("holdover-packet-files-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn host(number: u8) -> IpAddr {
        if number.is_multiple_of(2) { [10, 0, 0, number].into() } else { format!("fd00::{number}").parse().unwrap() }
    }

    fn offload(number: u8) -> Offload {
        Offload::from_bytes(&[1, 1, number, 0, 7, 5, 20, 0, 16, 0])
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(u8, u16),
        RemoveOldest(u8),
        RemoveNewest(u8),
        /// The process is killed, and another one takes over.
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = 1u8..4;
        let step = prop_oneof![
            6 => (number.clone(), 20u16..60_000).prop_map(|(number, len)| Step::Append(number, len)),
            3 => number.clone().prop_map(Step::RemoveOldest),
            1 => number.prop_map(Step::RemoveNewest),
            1 => Just(Step::Reopen),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        // Claim: Each process finds the packets left by its predecessor, in order; a partly written record ends the file; space
        // is reclaimed.
        // Tests: `packet_files::returned_packets_precede_waiting_packets`, `packet_files::a_partly_written_record_ends_the_file`,
        // `packet_files::more_hosts_than_open_files_and_space_is_given_back`
        #[test]
        fn every_process_finds_the_packets_of_its_predecessor(steps in steps()) {
            let scratch = Scratch::new("property");
            let (mut files, found) = PacketFiles::open(&scratch.0).unwrap();
            prop_assert!(found.is_empty());
            let mut model: BTreeMap<u8, VecDeque<(Stored, Vec<u8>, Instant)>> = BTreeMap::new();
            let mut read = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let came_at = Instant::from_millis(number as u64);
                match step {
                    Step::Append(mobile, len) => {
                        let packet: Vec<u8> = (0..len).map(|at| (at as usize + number) as u8).collect();
                        let stored = files.append(host(mobile), came_at, offload(mobile), &packet).unwrap();
                        model.entry(mobile).or_default().push_back((stored, packet, came_at));
                    }
                    Step::RemoveOldest(mobile) | Step::RemoveNewest(mobile) => {
                        let Some(queue) = model.get_mut(&mobile) else { continue };
                        let oldest = matches!(step, Step::RemoveOldest(_));
                        let Some((stored, ..)) = (if oldest { queue.pop_front() } else { queue.pop_back() }) else { continue };
                        files.remove(host(mobile), stored).unwrap();
                    }
                    Step::Reopen => {
                        drop(files);
                        let (anew, found) = PacketFiles::open(&scratch.0).unwrap();
                        files = anew;
                        for (&mobile, queue) in &model {
                            let found: Vec<_> = found.iter().filter(|found| found.mobile == host(mobile)).collect();
                            prop_assert_eq!(found.len(), queue.len());
                            for (found, (stored, packet, came_at)) in found.into_iter().zip(queue) {
                                prop_assert_eq!((found.stored, found.len as usize, found.came_at), (*stored, packet.len(), *came_at));
                            }
                        }
                    }
                }
            }
            for (mobile, queue) in model {
                prop_assert_eq!(scratch.0.join(host(mobile).to_string()).exists(), !queue.is_empty());
                for (stored, packet, _) in queue {
                    prop_assert_eq!(files.read(host(mobile), stored, &mut read).unwrap(), offload(mobile));
                    prop_assert_eq!(&read, &packet);
                }
            }
        }
    }

    #[test]
    fn returned_packets_precede_waiting_packets() {
        let scratch = Scratch::new("prepend");
        let (mut files, _) = PacketFiles::open(&scratch.0).unwrap();
        let at = Instant::from_millis;
        let gone = files.append(host(2), at(1), offload(1), &[1; 100]).unwrap();
        for number in 2..4 {
            files.append(host(2), at(number), offload(number as u8), &[number as u8; 70]).unwrap();
        }
        files.remove(host(2), gone).unwrap();
        files.prepend(host(2), at(9), &[(offload(8), &[8; 30]), (offload(9), &[9; 40])]).unwrap();
        files.prepend(host(3), at(9), &[(offload(7), &[7; 50])]).unwrap();
        drop(files);
        let half = scratch.0.join(format!("{}.new", host(2)));
        fs::write(&half, b"killed").unwrap();
        let (mut files, found) = PacketFiles::open(&scratch.0).unwrap();
        assert!(!half.exists());
        let mut packets: Vec<(IpAddr, Instant, Offload, Vec<u8>)> = Vec::new();
        for Restored { mobile, came_at, stored, .. } in found {
            let mut packet = Vec::new();
            let offload = files.read(mobile, stored, &mut packet).unwrap();
            packets.push((mobile, came_at, offload, packet));
        }
        packets.sort_by_key(|(mobile, ..)| *mobile);
        let packet = |mobile, ms, number: u8, len| (host(mobile), at(ms), offload(number), vec![number; len]);
        let earlier = [packet(2, 2, 8, 30), packet(2, 2, 9, 40)];
        let later = [packet(2, 2, 2, 70), packet(2, 3, 3, 70), packet(3, 9, 7, 50)];
        assert_eq!(packets, [&earlier[..], &later[..]].concat());
    }

    #[test]
    fn a_partly_written_record_ends_the_file() {
        let scratch = Scratch::new("torn");
        let (mut files, _) = PacketFiles::open(&scratch.0).unwrap();
        let first = files.append(host(2), Instant::from_millis(1), offload(1), &[1; 100]).unwrap();
        files.append(host(2), Instant::from_millis(2), offload(1), &[2; 100]).unwrap();
        drop(files);
        let path = scratch.0.join(host(2).to_string());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for cut in 1..=(RECORD_HEADER + 100 + RECORD_END) as u64 {
            file.set_len(first.end() + (RECORD_HEADER + 100 + RECORD_END) as u64 - cut).unwrap();
            let (_, found) = PacketFiles::open(&scratch.0).unwrap();
            assert_eq!(found.iter().map(|found| found.stored).collect::<Vec<_>>(), [first]);
            assert_eq!(file.metadata().unwrap().len(), first.end());
        }
    }

    #[test]
    fn other_layouts_are_removed_other_files_stay_and_one_process_has_the_directory() {
        let scratch = Scratch::new("others");
        fs::create_dir_all(&scratch.0).unwrap();
        for (name, content) in
            [("10.0.0.9", &b"HoldGW\x00\x02................"[..]), ("10.0.0.8", b""), ("notes", b"mine")]
        {
            fs::write(scratch.0.join(name), content).unwrap();
        }
        let (files, found) = PacketFiles::open(&scratch.0).unwrap();
        assert!(found.is_empty());
        assert!(!scratch.0.join("10.0.0.9").exists() && !scratch.0.join("10.0.0.8").exists());
        assert!(scratch.0.join("notes").exists());
        assert!(matches!(PacketFiles::open(&scratch.0), Err(PacketFileError::InUse { .. })));
        drop(files);
        PacketFiles::open(&scratch.0).unwrap();
    }

    #[test]
    fn more_hosts_than_open_files_and_space_is_given_back() {
        let scratch = Scratch::new("many");
        let (mut files, _) = PacketFiles::open(&scratch.0).unwrap();
        files.most_open = 512;
        let hosts: Vec<IpAddr> = (0..552).map(|number| [10, 1, (number >> 8) as u8, number as u8].into()).collect();
        let stored: Vec<Stored> =
            hosts.iter().map(|&host| files.append(host, Instant::ZERO, offload(0), &[5; 64]).unwrap()).collect();
        let mut packet = Vec::new();
        for (&host, &stored) in hosts.iter().zip(&stored) {
            files.read(host, stored, &mut packet).unwrap();
            assert_eq!(packet, [5; 64]);
            files.remove(host, stored).unwrap();
        }
        assert_eq!((files.open, files.logs.len()), (0, 0));
        assert_eq!(files.read(hosts[0], stored[0], &mut packet).unwrap_err().kind(), io::ErrorKind::NotFound);
        // A queue that never gets empty does not grow.
        let mut queue = VecDeque::new();
        for _ in 0..200 {
            queue.push_back(files.append(host(2), Instant::ZERO, offload(0), &[6; 50_000]).unwrap());
            if queue.len() > 2 {
                files.remove(host(2), queue.pop_front().unwrap()).unwrap();
            }
        }
        use std::os::unix::fs::MetadataExt as _;
        let metadata = fs::metadata(scratch.0.join(host(2).to_string())).unwrap();
        assert!(metadata.len() > 9_000_000 && metadata.blocks() * 512 < 1_500_000, "{} blocks", metadata.blocks());
    }
}
