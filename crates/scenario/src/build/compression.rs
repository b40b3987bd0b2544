//! Compression on links and at supervisor hosts.

use holdover_link::Compression;

use crate::error::ErrorKind;
use crate::file;
use crate::problem::{Problem, Under};
use crate::quantity::Percent;

/// The compression of a table. A problem lies below its field.
pub(crate) fn of(table: &file::Compression) -> Result<Compression, Problem> {
    const MOST: u64 = 65_535;
    let share = |given: Option<Percent>| given.map_or(1.0, Percent::share);
    let header_bytes = match table.header {
        Some(bytes) if bytes.0.0 > MOST => {
            let accepted = format!("at most {MOST} bytes");
            return Err(Problem::unexpected(ErrorKind::BadValue, bytes.0.to_string(), accepted)).under("header");
        }
        given => given.map_or(0, |bytes| bytes.0.0 as u32),
    };
    let compression =
        Compression { tcp: share(table.tcp), udp: share(table.udp), other: share(table.other), header_bytes };
    if [compression.tcp, compression.udp, compression.other].iter().all(|&share| share >= 1.0) {
        return Err(Problem::conflict(
            "nothing becomes shorter; \"tcp\", \"udp\" or \"other\" says what remains, such as \"40 %\"",
        ));
    }
    Ok(compression)
}

/// The compression of a supervisor host, for TCP data only.
pub(crate) fn of_tcp(table: &file::Compression) -> Result<Compression, Problem> {
    for (given, key) in [(table.udp, "udp"), (table.other, "other")] {
        if given.is_some() {
            return Err(Problem::conflict("a supervisor host compresses TCP data only")).under(key);
        }
    }
    of(table)
}
