//! A connection that was in the hands of another endpoint goes on in this one, in a synchronized state, with empty buffers.

use core::net::SocketAddr;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use super::fields::TimestampState;
use super::{Connection, Identity};
use crate::config::Config;
use crate::congestion::CongestionWindow;
use crate::state::State;

/// What an endpoint has to know of a connection to go on with it. What was sent and not acknowledged, and what was received and not
/// acknowledged, is not part of it: the one is sent again by its writer, the other by the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumption {
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// SND.UNA, and SND.NXT: nothing is outstanding.
    pub snd_una: Seq,
    /// RCV.NXT, which everything below was acknowledged up to.
    pub rcv_nxt: Seq,
    /// SND.WND in bytes.
    pub snd_wnd: u32,
    /// Snd.Wind.Shift and Rcv.Wind.Shift, at most 14; `None` if scaling was not agreed.
    pub window_scales: Option<(u8, u8)>,
    /// The largest segment that is sent, in bytes of data.
    pub snd_mss: u16,
    /// What counts as a full segment of the peer's, in bytes of data.
    pub rcv_mss: u16,
    /// Whether SACK was agreed.
    pub sack: bool,
    /// TS.Recent, and the next value of our own timestamp clock; `None` if timestamps were not agreed.
    pub timestamps: Option<(u32, u32)>,
    /// Our FIN was sent and is acknowledged.
    pub is_sent_all: bool,
    /// The peer's FIN was received and is acknowledged.
    pub is_received_all: bool,
    /// The smoothed round-trip time, if there was a sample.
    pub srtt: Option<Duration>,
}

impl Resumption {
    fn state(&self) -> State {
        match (self.is_sent_all, self.is_received_all) {
            (false, false) => State::Established,
            (false, true) => State::CloseWait,
            (true, false) => State::FinWait2,
            (true, true) => State::TimeWait,
        }
    }
}

impl Connection {
    /// Goes on with a connection that another endpoint has had. The window that the peer has been told may be larger than the one that
    /// is advertised from now on; what lies beyond is not taken.
    ///
    /// The smoothed round-trip time counts as one sample. Without timestamps in `config` they stay on if they were agreed, in ticks of a
    /// millisecond.
    pub fn resume(now: Instant, config: Arc<Config>, resumption: &Resumption) -> Self {
        let Resumption { local, remote, snd_una, rcv_nxt, .. } = *resumption;
        let identity = Identity { local, remote, iss: snd_una - 1, timestamp_offset: 0 };
        let mut connection = Self::new(now, config, identity, resumption.state(), false);
        let snd = &mut connection.snd;
        (snd.una, snd.nxt, snd.sml) = (snd_una, snd_una, snd_una);
        (snd.wnd, snd.max_wnd) = (resumption.snd_wnd, resumption.snd_wnd);
        (snd.wl1, snd.wl2) = (rcv_nxt, snd_una);
        snd.mss = u32::from(resumption.snd_mss).max(1);
        snd.handshake_sent = true;
        if resumption.is_sent_all {
            (snd.closing, snd.fin) = (true, Some(snd_una - 1));
        }
        let rcv = &mut connection.rcv;
        (rcv.irs, rcv.nxt, rcv.wup, rcv.last_ack_sent) = (rcv_nxt - 1, rcv_nxt, rcv_nxt, rcv_nxt);
        rcv.mss = u32::from(resumption.rcv_mss).max(1);
        // The peer may send into what it was told last, which is not known here.
        rcv.wnd = rcv.limit;
        rcv.fin = resumption.is_received_all.then_some(rcv_nxt - 1);
        if let Some((snd_scale, rcv_scale)) = resumption.window_scales {
            (snd.scale_agreed, snd.scale, rcv.scale) = (true, snd_scale.min(14), rcv_scale.min(14));
        }
        connection.sack = resumption.sack;
        let tick = connection.config.timestamps.unwrap_or(Duration::from_millis(1)).as_nanos().max(1);
        let clock = (now.as_nanos() / tick) as u32;
        connection.timestamps = resumption.timestamps.map(|(recent, next)| TimestampState {
            recent,
            recent_at: now,
            offset: next.wrapping_sub(clock),
        });
        connection.congestion = CongestionWindow::new(&connection.config.congestion, connection.snd.mss, now);
        if let Some(srtt) = resumption.srtt {
            connection.rtt.sample(&connection.config.rto, srtt, snd_una, snd_una);
        }
        connection.recovery.high_seq = snd_una;
        match resumption.state() {
            State::TimeWait => {
                connection.timers.arm(now, crate::timers::Timer::TimeWait, connection.config.limits.time_wait)
            }
            _ => connection.arm_keep_alive(now),
        }
        connection
    }

    /// What another endpoint has to know to go on with this connection from what the peer has acknowledged, and from `rcv_nxt` on, at
    /// or below RCV.NXT. `None` in a handshake and when the connection is over.
    pub fn resumption(&self, now: Instant, rcv_nxt: Seq) -> Option<Resumption> {
        if !self.state.is_synchronized() {
            return None;
        }
        let rcv_nxt = rcv_nxt.min(self.rcv.nxt);
        Some(Resumption {
            local: self.local(),
            remote: self.remote(),
            snd_una: self.snd.una,
            rcv_nxt,
            snd_wnd: self.snd.wnd,
            window_scales: self.window_scales(),
            snd_mss: u16::try_from(self.snd.mss).unwrap_or(u16::MAX),
            rcv_mss: u16::try_from(self.rcv.mss).unwrap_or(u16::MAX),
            sack: self.sack,
            timestamps: self.timestamps.as_ref().map(|state| (state.recent, self.timestamp_clock(now))),
            is_sent_all: self.snd.fin.is_some_and(|fin| self.snd.una.gt(fin)),
            is_received_all: self.rcv.fin.is_some_and(|fin| rcv_nxt.gt(fin)),
            srtt: self.srtt(),
        })
    }
}
