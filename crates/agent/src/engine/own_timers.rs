//! Retransmission timers of this host's connections, from the kernel.

use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_mobility::Connection;
use holdover_mobility::wake::OwnData;
use holdover_wire::{TcpInfo, TcpState};

use crate::sockets::{SocketDiag, TcpSocket, TimerKind};

/// The most connections to query: each takes some 10 us, before anything is woken.
const MOST: usize = 256;

/// When each peer's answer to the next retransmission would arrive: expiry of the retransmission timer plus a smoothed
/// round trip. Query before sending anything that restarts the timers. Connections without such a timer, or without a
/// socket on this host, are left out. So are zero-window probes: their peer waits for nothing.
pub(super) fn read(
    now: Instant,
    sockets: &mut SocketDiag,
    interface: u32,
    waiting: impl Iterator<Item = Connection>,
) -> BTreeMap<Connection, Instant> {
    let timer = |connection: Connection| {
        let socket = sockets.find_over(connection, interface).ok().flatten()?;
        Some((connection, answered_at(now, &socket)?))
    };
    waiting.take(MOST).filter_map(timer).collect()
}

/// A socket whose data wait for its timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) data: OwnData,
    /// When the peer's answer to what the timer sends would arrive.
    pub(super) answered_at: Instant,
}

/// The sockets whose retransmission timer has expired at least once, and those whose data could not be sent.
pub(super) fn waiting<'a>(
    now: Instant,
    sockets: impl Iterator<Item = &'a TcpSocket>,
) -> impl Iterator<Item = (Connection, Waiting)> {
    sockets.filter_map(move |socket| {
        let data = match (has_expired(socket), is_unsent(socket)) {
            (true, _) => OwnData::Sent,
            (false, true) => OwnData::Unsent,
            (false, false) => return None,
        };
        let answered_at = now + socket.timer?.expires_in + socket.info.tcpi_rtt;
        Some((socket.connection, Waiting { data, answered_at }))
    })
}

fn has_expired(socket: &TcpSocket) -> bool {
    // A SYN is not data, and an ICMP message about it ends the connection attempt.
    let is_open = socket.info.tcpi_state != TcpState::SynSent;
    is_open && socket.timer.is_some_and(|timer| timer.kind == TimerKind::Retransmission && timer.tries > 0)
}

/// Whether nothing is outstanding, the peer's window is open, and there is data. A packet that the kernel refuses, as without a route to
/// the peer or without the own address, is left unsent, with the timer of window probes (`tcp_check_probe_timer`).
fn is_unsent(socket: &TcpSocket) -> bool {
    let TcpInfo { tcpi_unacked, tcpi_notsent_bytes, tcpi_snd_wnd, .. } = socket.info;
    let is_probing = socket.timer.is_some_and(|timer| timer.kind == TimerKind::ZeroWindowProbe);
    is_probing && tcpi_unacked == 0 && tcpi_notsent_bytes > 0 && tcpi_snd_wnd > 0
}

fn answered_at(now: Instant, socket: &TcpSocket) -> Option<Instant> {
    let timer = socket.timer.filter(|timer| timer.kind == TimerKind::Retransmission)?;
    Some(now + timer.expires_in + socket.info.tcpi_rtt)
}
