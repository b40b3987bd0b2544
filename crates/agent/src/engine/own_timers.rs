//! When connections of this host would send again by the kernel's own timers.

use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_mobility::Connection;

use crate::sockets::{SocketDiag, TimerKind};

/// The kernel is asked about so many connections: each question takes some 10 us, before anything is woken.
const MOST: usize = 256;

/// When the peer's answer to what each connection's retransmission timer would send again would come: its expiry and a smoothed round
/// trip. To be asked before anything is sent that would set the timers anew. Connections without such a timer, or without a socket on this
/// host, are left out. So are probes of a zero window: their peer waits for nothing.
pub(super) fn read(
    now: Instant,
    sockets: &mut SocketDiag,
    waiting: impl Iterator<Item = Connection>,
) -> BTreeMap<Connection, Instant> {
    let timer = |connection: Connection| {
        let socket = sockets.find(connection).ok().flatten()?;
        let timer = socket.timer.filter(|timer| timer.kind == TimerKind::Retransmission)?;
        Some((connection, now + timer.expires_in + socket.info.tcpi_rtt))
    };
    waiting.take(MOST).filter_map(timer).collect()
}
