//! Retransmission timers of this host's connections, from the kernel.

use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_mobility::Connection;
use holdover_wire::TcpState;

use crate::sockets::{SocketDiag, TcpSocket, TimerKind};

/// The most connections to query: each takes some 10 us, before anything is woken.
const MOST: usize = 256;

/// When each peer's answer to the next retransmission would arrive: expiry of the retransmission timer plus a smoothed
/// round trip. Query before sending anything that restarts the timers. Connections without such a timer, or without a
/// socket on this host, are left out. So are zero-window probes: their peer waits for nothing.
pub(super) fn read(
    now: Instant,
    sockets: &mut SocketDiag,
    waiting: impl Iterator<Item = Connection>,
) -> BTreeMap<Connection, Instant> {
    let timer = |connection: Connection| {
        let socket = sockets.find(connection).ok().flatten()?;
        Some((connection, answered_at(now, &socket)?))
    };
    waiting.take(MOST).filter_map(timer).collect()
}

/// The same for the sockets whose timer has expired at least once.
pub(super) fn backed_off<'a>(
    now: Instant,
    sockets: impl Iterator<Item = &'a TcpSocket>,
) -> impl Iterator<Item = (Connection, Instant)> {
    // A SYN is no data, and an ICMP message about it ends the connection attempt.
    let is_open = |socket: &TcpSocket| socket.info.tcpi_state != TcpState::SynSent;
    let has_expired = move |socket: &&TcpSocket| is_open(socket) && socket.timer.is_some_and(|timer| timer.tries > 0);
    sockets.filter(has_expired).filter_map(move |socket| Some((socket.connection, answered_at(now, socket)?)))
}

fn answered_at(now: Instant, socket: &TcpSocket) -> Option<Instant> {
    let timer = socket.timer.filter(|timer| timer.kind == TimerKind::Retransmission)?;
    Some(now + timer.expires_in + socket.info.tcpi_rtt)
}
