//! DHCP leases, from the server's file: a renewed lease means that the host is present, a released or expired one that
//! it is absent, and a lease to another host that buffered packets for the address are not for its new owner.
//!
//! The file is checked every [`LOOK_EVERY`]; both servers write it with every change. dnsmasq writes it in place, so
//! that it may be incomplete: its content counts if the file has not changed for [`SETTLES_WITHIN`], and does not
//! during the reading.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::clock;

use super::SourceReport;
use crate::config::LeaseFormat;

/// Follows the file of leases.
pub(super) struct LeaseWatch {
    file: PathBuf,
    format: LeaseFormat,
    look_at: Instant,
    /// The version last read.
    version: Option<Version>,
    /// The version last seen.
    looked_at: Option<Version>,
    table: LeaseTable,
    was_missing: bool,
}

/// A file's inode, length and time of change.
type Version = (u64, u64, i64, i64);

/// The interval between checks of the file.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A changed file is checked again after this time.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

/// The longest file that is read: some hundred bytes a lease are usual.
const LONGEST: u64 = 64 << 20;

impl LeaseWatch {
    /// Reads the leases that exist already, if the file has not changed for [`SETTLES_WITHIN`]. Changes are reported from then on. A
    /// file that does not exist has no leases.
    pub(super) fn new(now: Instant, file: &Path, format: LeaseFormat) -> Self {
        let mut watch = Self {
            file: file.to_owned(),
            format,
            look_at: now,
            version: None,
            looked_at: None,
            table: LeaseTable::default(),
            was_missing: false,
        };
        if fs::metadata(file).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            watch.table.known = Some(Leases::new());
        } else {
            // The first reading causes no reports.
            watch.handle_timeout(now, &mut Vec::new());
        }
        watch
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, reports: &mut Vec<SourceReport>) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        match self.read() {
            Ok(leases) => {
                self.was_missing = false;
                if self.version != self.looked_at {
                    self.look_at = now + SETTLES_WITHIN;
                }
                let changes = self.table.update(clock::utc().0.as_nanos() / 1_000_000_000, leases);
                reports.extend(changes.into_iter().flat_map(|(mobile, change)| change.reports(mobile)));
            }
            Err(error) if !self.was_missing => {
                self.was_missing = true;
                tracing::warn!(file = %self.file.display(), %error, "cannot read leases: [leases] file");
            }
            Err(_) => {}
        }
    }

    /// The leases, if the file has changed and is not being written.
    fn read(&mut self) -> std::io::Result<Option<Leases>> {
        let current = version_of(&self.file)?;
        let version = Some(current);
        let was_the_same = std::mem::replace(&mut self.looked_at, version) == version;
        // At the start only, the file's modification time counts as well.
        let is_old = || age(current).is_some_and(|age| age >= SETTLES_WITHIN);
        let is_settled = was_the_same || (self.version.is_none() && is_old());
        if version == self.version || !is_settled {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&fs::read(&self.file)?).into_owned();
        self.looked_at = Some(version_of(&self.file)?);
        if self.looked_at != version {
            return Ok(None);
        }
        self.version = version;
        Ok(Some(match self.format {
            LeaseFormat::Dnsmasq => dnsmasq(&text),
            LeaseFormat::Dhcpd => dhcpd(&text),
        }))
    }
}

fn version_of(file: &Path) -> std::io::Result<Version> {
    let found = fs::metadata(file)?;
    if found.len() > LONGEST {
        return Err(std::io::Error::other("the file is too long"));
    }
    Ok((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// The time since the last change; `None` if it lies in the future.
fn age((_, _, seconds, nanoseconds): Version) -> Option<Duration> {
    let changed_at =
        u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(nanoseconds).ok()?)?;
    clock::utc().0.as_nanos().checked_sub(changed_at).map(Duration::from_nanos)
}

type Leases = BTreeMap<IpAddr, Lease>;

/// A current or past lease.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lease {
    /// The Ethernet address or identifier of its host.
    host: String,
    /// In seconds since 1970; `None` for ever.
    until: Option<u64>,
}

/// A change of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Created or renewed: its host has contacted the server.
    Renewed,
    /// Released or expired.
    Ended,
    /// Assigned to another host.
    OtherHost,
}

impl Change {
    fn reports(self, mobile: IpAddr) -> Vec<SourceReport> {
        let report = |presence| SourceReport::Mobile { mobile, source: Source::Lease, presence };
        match self {
            Self::Renewed => vec![report(Presence::Present)],
            Self::Ended => vec![report(Presence::Away)],
            Self::OtherHost => vec![SourceReport::OtherHost { mobile }, report(Presence::Present)],
        }
    }
}

/// The known leases. The first reading causes no reports.
#[derive(Default)]
struct LeaseTable {
    known: Option<Leases>,
    /// The last host of an address whose lease has ended.
    former: BTreeMap<IpAddr, String>,
}

/// The most former hosts of addresses remembered.
const MOST_FORMER: usize = 65_536;

impl LeaseTable {
    /// Handles the leases just read, or the passing of time.
    fn update(&mut self, now_s: u64, read: Option<Leases>) -> Vec<(IpAddr, Change)> {
        let mut changes = Vec::new();
        let is_over = |lease: &Lease| lease.until.is_some_and(|until| until <= now_s);
        let Some(known) = &self.known else {
            self.known = read.map(|leases| leases.into_iter().filter(|(_, lease)| !is_over(lease)).collect());
            return changes;
        };
        let next = match read {
            Some(read) => read,
            None if known.values().any(is_over) => known.clone(),
            None => return changes,
        };
        let next: Leases = next.into_iter().filter(|(_, lease)| !is_over(lease)).collect();
        for (&address, lease) in &next {
            let before = known.get(&address).map(|before| before.host.as_str());
            let is_same =
                before.or(self.former.get(&address).map(String::as_str)).is_none_or(|host| host == lease.host);
            match known.get(&address) {
                _ if !is_same => changes.push((address, Change::OtherHost)),
                Some(before) if before == lease => {}
                _ => changes.push((address, Change::Renewed)),
            }
            self.former.remove(&address);
        }
        for (&address, lease) in known.iter().filter(|(address, _)| !next.contains_key(address)) {
            changes.push((address, Change::Ended));
            if self.former.len() < MOST_FORMER {
                self.former.insert(address, lease.host.clone());
            }
        }
        self.known = Some(next);
        changes
    }
}

/// Parses dnsmasq's file: a lease a line, `EXPIRY MAC ADDRESS NAME IDENTIFIER`; after `duid`, IPv6 with the identifier
/// for the host.
fn dnsmasq(text: &str) -> Leases {
    let lease = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let until: u64 = words.next()?.parse().ok()?;
        let (mac, address, _name, identifier) = (words.next()?, words.next()?, words.next()?, words.next());
        let address: IpAddr = address.parse().ok()?;
        let host = if address.is_ipv4() { mac } else { identifier? };
        Some((address, Lease { host: host.to_owned(), until: (until != 0).then_some(until) }))
    };
    text.lines().filter_map(lease).collect()
}

/// Parses ISC's `dhcpd.leases(5)`: blocks; the last one about an address counts.
fn dhcpd(text: &str) -> Leases {
    let mut leases = Leases::new();
    let mut block: Option<(IpAddr, bool, Lease)> = None;
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match (words.as_slice(), &mut block) {
            (["lease", address, "{"], _) => {
                let lease = Lease { host: String::new(), until: None };
                block = address.parse().ok().map(|address| (address, false, lease));
            }
            (["}"], Some(_)) => {
                if let Some((address, is_active, lease)) = block.take() {
                    leases.remove(&address);
                    if is_active {
                        leases.insert(address, lease);
                    }
                }
            }
            (["binding", "state", state], Some((_, is_active, _))) => *is_active = *state == "active",
            (["hardware", _, mac], Some((.., lease))) => lease.host = (*mac).to_owned(),
            (["ends", "never"], Some((.., lease))) => lease.until = None,
            (["ends", "epoch", seconds, ..], Some((.., lease))) => lease.until = seconds.parse().ok(),
            (["ends", _weekday, date, time], Some((.., lease))) => lease.until = unix_time(date, time),
            _ => {}
        }
    }
    leases
}

/// The seconds from 1970 to a date and time in UTC, such as `2026/11/25` and `01:02:03`.
fn unix_time(date: &str, time: &str) -> Option<u64> {
    let numbers = |text: &str, mark| text.split(mark).map(|word| word.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    let (date, time) = (numbers(date, '/')?, numbers(time, ':')?);
    let (&[year, month, day], &[hour, minute, second]) = (date.as_slice(), time.as_slice()) else { return None };
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day;
    /// The same for 1 January 1970.
    const EPOCH: u64 = 719_469;
    Some((days - EPOCH) * 86_400 + hour.min(23) * 3600 + minute.min(59) * 60 + second.min(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 2, 0, last].into()
    }

    #[test]
    fn the_file_of_dnsmasq_is_read() {
        let text = "1700000100 02:00:00:00:00:07 10.2.0.7 phone 01:02:00:00:00:00:07\n\
                    0 02:00:00:00:00:08 10.2.0.8 * *\n\
                    duid 00:01:00:01:2d:aa\n\
                    1700000200 7 fd00:2::7 phone 00:01:00:01:99\n\
                    this is no lease\n1700000100 02:00";
        let leases = dnsmasq(text);
        assert_eq!(leases.len(), 3, "{leases:?}");
        assert_eq!(leases[&address(7)], Lease { host: "02:00:00:00:00:07".into(), until: Some(1_700_000_100) });
        assert_eq!(leases[&address(8)].until, None);
        assert_eq!(leases[&"fd00:2::7".parse::<IpAddr>().unwrap()].host, "00:01:00:01:99");
    }

    #[test]
    fn the_last_block_of_dhcpd_holds() {
        let block = |state: &str, ends: &str| {
            format!(
                "lease 10.2.0.7 {{\n  starts 3 2026/11/25 01:00:00;\n  ends {ends};\n  binding state {state};\n  \
                 next binding state free;\n  hardware ethernet 02:00:00:00:00:07;\n}}\n"
            )
        };
        let active = block("active", "3 2026/11/25 01:10:00");
        let expected = Lease { host: "02:00:00:00:00:07".into(), until: Some(1_795_569_000) };
        assert_eq!(dhcpd(&active)[&address(7)], expected);
        assert_eq!(dhcpd(&block("active", "never"))[&address(7)].until, None);
        assert_eq!(dhcpd(&block("active", "epoch 12; # Thu Jan 1"))[&address(7)].until, Some(12));
        assert!(dhcpd(&[active.clone(), block("free", "never")].concat()).is_empty());
        // The server is writing it.
        for cut in 0..active.len() {
            assert!(dhcpd(&active[..cut]).len() <= usize::from(cut >= active.len() - 2), "{cut}");
        }
    }

    /// As dnsmasq writes it: rewound, truncated, and written in place.
    // Claim: Files of leases are read as they are and cut short at every byte; renewals, ends and new owners are news, and the
    // first reading is not. A file that is being written in place takes no host away, and a renewal outweighs no other source.
    // Tests: `divert::tests::a_lease_withdraws_its_own_objection_only`, `leases::the_file_of_dnsmasq_is_read`,
    // `leases::the_last_block_of_dhcpd_holds`, `leases::renewals_ends_and_new_owners_are_reported_and_the_first_reading_is_not`
    #[test]
    fn an_incomplete_file_ends_no_lease() {
        let file = std::env::temp_dir().join(format!("holdover-leases-{}", std::process::id()));
        let text = |until: u64| -> String {
            let line = |last| format!("{until} 02:00:00:00:00:{last:02} 10.2.0.{last} phone *\n");
            (1..=20).map(line).collect()
        };
        let mut now = Instant::from_secs(1);
        fs::write(&file, text(4_000_000_000)).unwrap();
        let mut watch = LeaseWatch::new(now, &file, LeaseFormat::Dnsmasq);
        let mut look = |wait: Duration| {
            now += wait;
            let mut reports = Vec::new();
            watch.handle_timeout(now, &mut reports);
            reports
        };
        for _ in 0..2 {
            assert_eq!(look(LOOK_EVERY), [], "the first reading causes no reports");
        }
        let after = text(4_000_000_100);
        for cut in (0..after.len()).step_by(97) {
            fs::write(&file, &after[..cut]).unwrap();
            assert_eq!(look(LOOK_EVERY), [], "{cut}");
            fs::write(&file, &after[..cut + 1]).unwrap();
            assert_eq!(look(SETTLES_WITHIN), [], "{cut}");
        }
        fs::write(&file, &after).unwrap();
        assert_eq!(look(LOOK_EVERY), []);
        let renewed = look(SETTLES_WITHIN);
        assert_eq!(renewed.len(), 20);
        assert!(
            renewed.iter().all(|report| matches!(report, SourceReport::Mobile { presence: Presence::Present, .. }))
        );
        // A removed lease is reported.
        fs::write(&file, &after[..after.len() / 20]).unwrap();
        assert_eq!(look(LOOK_EVERY), []);
        assert_eq!(look(SETTLES_WITHIN).len(), 19);
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_first_lease_of_a_server_that_starts_later_is_reported() {
        let file = std::env::temp_dir().join(format!("holdover-first-lease-{}", std::process::id()));
        let now = Instant::from_secs(1);
        let mut watch = LeaseWatch::new(now, &file, LeaseFormat::Dnsmasq);
        fs::write(&file, "4000000000 02:00:00:00:00:07 10.2.0.7 phone *\n").unwrap();
        let mut reports = Vec::new();
        for look in 1..=2 {
            watch.handle_timeout(now + LOOK_EVERY * look, &mut reports);
        }
        assert_eq!(reports.len(), 1);
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(unix_time("1970/01/01", "00:00:00"), Some(0));
        assert_eq!(unix_time("2000/02/29", "12:00:00"), Some(951_825_600));
        assert_eq!(unix_time("2026/11/25", "01:10:00"), Some(1_795_569_000));
        for (date, time) in
            [("2026/13/01", "00:00:00"), ("2026/11", "00:00:00"), ("1969/12/31", "00:00:00"), ("x", "y")]
        {
            assert_eq!(unix_time(date, time), None);
        }
    }

    #[test]
    fn renewals_ends_and_new_owners_are_reported_and_the_first_reading_is_not() {
        let lease = |host: &str, until| Lease { host: host.into(), until: Some(until) };
        let leases = |entries: &[(u8, &str, u64)]| -> Option<Leases> {
            Some(entries.iter().map(|&(last, host, until)| (address(last), lease(host, until))).collect())
        };
        let mut table = LeaseTable::default();
        assert_eq!(table.update(100, leases(&[(7, "a", 200), (8, "b", 200), (9, "c", 90)])), []);
        assert_eq!(table.update(110, None), []);
        assert_eq!(table.update(120, leases(&[(7, "a", 300), (8, "b", 200)])), [(address(7), Change::Renewed)]);
        assert_eq!(table.update(200, None), [(address(8), Change::Ended)]);
        assert_eq!(table.update(210, leases(&[(8, "b", 400), (7, "a", 300)])), [(address(8), Change::Renewed)]);
        assert_eq!(table.update(220, leases(&[(8, "b", 400)])), [(address(7), Change::Ended)]);
        // The address of a host that is gone, or still present, is assigned to another host.
        assert_eq!(
            table.update(230, leases(&[(7, "z", 500), (8, "y", 500)])),
            [(address(7), Change::OtherHost), (address(8), Change::OtherHost)]
        );
    }
}
