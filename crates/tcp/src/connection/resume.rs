//! Resumes a connection of another endpoint in a synchronized state, with empty buffers.

use core::net::SocketAddr;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use super::fields::{TIMESTAMPS_LEN, TimestampState};
use super::{Connection, Opening};
use crate::config::Config;
use crate::congestion::CongestionWindow;
use crate::state::State;

/// State to resume a connection in another endpoint. Unacknowledged data in either direction is not part of it: its
/// writer, respectively the peer, sends it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumption {
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// SND.UNA, and SND.NXT: nothing is outstanding.
    pub snd_una: Seq,
    /// RCV.NXT: everything below is acknowledged.
    pub rcv_nxt: Seq,
    /// SND.WND in bytes.
    pub snd_wnd: u32,
    /// Snd.Wind.Shift and Rcv.Wind.Shift, at most 14; `None` if scaling was not agreed.
    pub window_scales: Option<(u8, u8)>,
    /// The send MSS, in bytes of data.
    pub snd_mss: u16,
    /// The size of the peer's full segments, in bytes of data.
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
    /// Resumes a connection of another endpoint. The window that the peer knows may be larger than the one advertised
    /// from now on; data beyond the latter is dropped.
    ///
    /// The smoothed round-trip time counts as one sample. Without timestamps in `config` they stay enabled if they were
    /// negotiated, in ticks of a millisecond.
    pub fn resume(now: Instant, config: Arc<Config>, resumption: &Resumption) -> Self {
        let Resumption { local, remote, snd_una, rcv_nxt, .. } = *resumption;
        let opening = Opening { local, remote, iss: snd_una - 1, timestamp_offset: 0 };
        let own_mss = config.mss.saturating_sub(if resumption.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 });
        let mut connection = Self::new(now, config, opening, resumption.state(), false);
        let snd = &mut connection.snd;
        (snd.una, snd.nxt, snd.sml) = (snd_una, snd_una, snd_una);
        (snd.wnd, snd.max_wnd) = (resumption.snd_wnd, resumption.snd_wnd);
        (snd.wl1, snd.wl2) = (rcv_nxt, snd_una);
        // The links of the two endpoints may have different MTUs.
        snd.mss = u32::from(resumption.snd_mss.min(own_mss)).max(1);
        snd.handshake_sent = true;
        if resumption.is_sent_all {
            (snd.closing, snd.fin) = (true, Some(snd_una - 1));
        }
        let rcv = &mut connection.rcv;
        (rcv.irs, rcv.nxt, rcv.wup, rcv.last_ack_sent) = (rcv_nxt - 1, rcv_nxt, rcv_nxt, rcv_nxt);
        rcv.mss = u32::from(resumption.rcv_mss).max(1);
        // The peer may send into the last advertised window, which is unknown here.
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
        connection.note_share_of_data();
        connection.begin_right_sizing(now);
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

    /// The state to resume this connection elsewhere from SND.UNA, and from `rcv_nxt` on, which is at or below RCV.NXT.
    /// `None` in a handshake and after a failure. A connection that has ended in good order resumes in TIME-WAIT.
    pub fn resumption(&self, now: Instant, rcv_nxt: Seq) -> Option<Resumption> {
        let is_sent_all = self.snd.fin.is_some_and(|fin| self.snd.una.gt(fin));
        let has_ended = self.is_closed() && self.error().is_none() && is_sent_all && self.rcv.fin.is_some();
        if !self.state.is_synchronized() && !has_ended {
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
            is_sent_all,
            is_received_all: self.rcv.fin.is_some_and(|fin| rcv_nxt.gt(fin)),
            srtt: self.srtt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::connection::Event;
    use crate::endpoint::{ConnectionId, Endpoint, EndpointConfig};
    use crate::profile::Profile;

    fn endpoint(last: u8, secret: u8) -> Endpoint {
        Endpoint::new(EndpointConfig { addresses: vec![[10, 0, 0, last].into()], secret: [secret; 16] })
    }

    /// Exchanges packets until both endpoints are idle.
    fn converse(now: Instant, one: &mut Endpoint, other: &mut Endpoint) {
        loop {
            let mut is_quiet = true;
            while let Some(out) = one.poll_transmit(now) {
                other.handle_packet(now, &out.packet);
                is_quiet = false;
            }
            while let Some(out) = other.poll_transmit(now) {
                one.handle_packet(now, &out.packet);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }

    fn opened(profile: Profile) -> (Endpoint, ConnectionId, Endpoint, ConnectionId) {
        let config = Arc::new(profile.config());
        let (mut client, mut server) = (endpoint(1, 1), endpoint(2, 2));
        server.listen(80, Arc::clone(&config), 1).unwrap();
        let at = SocketAddr::new([10, 0, 0, 2].into(), 80);
        let of_client = client.connect(Instant::ZERO, config, None, at).unwrap();
        converse(Instant::ZERO, &mut client, &mut server);
        let of_server = core::iter::from_fn(|| server.poll_event()).find(|(_, event)| *event == Event::Connected);
        (client, of_client, server, of_server.expect("a connection").0)
    }

    fn say(now: Instant, endpoint: &mut Endpoint, id: ConnectionId, text: &str) {
        let written = endpoint.connection_mut(id).unwrap().write(now, Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(written, text.len());
    }

    fn heard(now: Instant, endpoint: &mut Endpoint, id: ConnectionId) -> Vec<u8> {
        let connection = endpoint.connection_mut(id).unwrap();
        core::iter::from_fn(|| connection.read(now)).flatten().collect()
    }

    /// The server's end moves to another endpoint twice, with data in both directions; options, windows and timestamps
    /// continue.
    #[test]
    fn a_connection_continues_in_another_endpoint() {
        for profile in [Profile::Linux6Cubic, Profile::RenoBsd] {
            let (mut client, of_client, mut server, mut of_server) = opened(profile);
            for round in 1..=3_u64 {
                let now = Instant::from_secs(round * 10);
                say(now, &mut client, of_client, "question");
                say(now, &mut server, of_server, "answer");
                converse(now, &mut client, &mut server);
                client.handle_timeout(now + Duration::from_millis(500));
                server.handle_timeout(now + Duration::from_millis(500));
                converse(now + Duration::from_millis(500), &mut client, &mut server);
                assert_eq!(heard(now, &mut server, of_server), b"question", "{profile}, {round}");
                assert_eq!(heard(now, &mut client, of_client), b"answer", "{profile}, {round}");
                let now = now + Duration::from_secs(1);
                let old = server.withdraw(of_server).expect("it was there");
                let resumption = old.resumption(now, old.rcv_nxt()).expect("it is open");
                server = endpoint(2, 10 + round as u8);
                of_server =
                    server.resume(now, Arc::new(profile.config()), &resumption).expect("it has no such connection");
                let new = server.connection(of_server).unwrap();
                new.assert_invariants();
                let again = new.resumption(now, new.rcv_nxt()).unwrap();
                // The round trip is rounded to the ticks of its clock.
                assert_eq!(Resumption { srtt: resumption.srtt, ..again }, resumption, "{profile}: nothing is lost");
                assert!(server.resume(now, Arc::new(profile.config()), &resumption).is_err(), "it is there already");
            }
            let now = Instant::from_secs(100);
            server.connection_mut(of_server).unwrap().shutdown_write();
            client.connection_mut(of_client).unwrap().shutdown_write();
            converse(now, &mut client, &mut server);
            let end =
                [(&client, of_client), (&server, of_server)].map(|(endpoint, id)| endpoint.connection(id).unwrap());
            assert!(end.iter().all(|connection| connection.error().is_none()), "{profile}");
            assert!(end.iter().any(|connection| connection.state() == State::TimeWait), "{profile}");
            for connection in end {
                let ended = connection.resumption(now, connection.rcv_nxt()).expect("it has ended in good order");
                assert_eq!(ended.state(), State::TimeWait, "{profile}");
            }
        }
    }

    /// The buffer of a resumed connection grows by the amount read per round trip, as before.
    #[test]
    fn the_buffer_continues_to_grow_from_the_data_of_a_round_trip() {
        let (client, of_client, mut server, of_server) = opened(Profile::Linux6Cubic);
        let old = server.withdraw(of_server).unwrap();
        let resumption = old.resumption(Instant::ZERO, old.rcv_nxt()).unwrap();
        let resumption = Resumption { rcv_mss: 1448, ..resumption };
        let mut next = endpoint(2, 3);
        let id = next.resume(Instant::ZERO, Arc::new(Profile::Linux6Cubic.config()), &resumption).unwrap();
        assert_eq!(next.connection(id).unwrap().rcv.capacity, 81_920, "segments of 1448 bytes fill 160 256ths");
        let mut client = client;
        for round in 1..=3 {
            let now = Instant::from_secs(round);
            for _ in 0..4 {
                say(now, &mut client, of_client, &"words ".repeat(400));
            }
            converse(now, &mut client, &mut next);
            heard(now, &mut next, id);
        }
        assert_eq!(next.connection(id).unwrap().rcv.capacity, 81_920, "9600 bytes a round trip are no reason to grow");
    }

    /// An endpoint whose link has a smaller MTU sends segments that fit it.
    #[test]
    fn segments_fit_the_link_of_the_new_endpoint() {
        let (_, _, mut server, of_server) = opened(Profile::Linux6Cubic);
        let old = server.withdraw(of_server).unwrap();
        let resumption = Resumption { snd_mss: 1448, ..old.resumption(Instant::ZERO, old.rcv_nxt()).unwrap() };
        for (mss, expected) in [(1460, 1448), (1360, 1348), (9_000, 1448), (10, 1)] {
            let config = Config { mss, ..Profile::Linux6Cubic.config() };
            let connection = Connection::resume(Instant::ZERO, Arc::new(config), &resumption);
            assert_eq!(connection.snd_mss(), expected, "with an MSS of {mss}");
        }
    }

    /// Each state after a FIN can be resumed: closed directions stay closed, the others can still be closed.
    #[test]
    fn ends_of_streams_move_with_the_connection() {
        for (is_client_first, state) in [(true, State::CloseWait), (false, State::FinWait2)] {
            let (mut client, of_client, mut server, of_server) = opened(Profile::Linux6Reno);
            let now = Instant::from_secs(1);
            let first =
                if is_client_first { client.connection_mut(of_client) } else { server.connection_mut(of_server) };
            first.unwrap().shutdown_write();
            converse(now, &mut client, &mut server);
            let old = server.withdraw(of_server).unwrap();
            assert_eq!(old.state(), state);
            let resumption = old.resumption(now, old.rcv_nxt()).unwrap();
            let mut next = endpoint(2, 3);
            let id = next.resume(now, Arc::new(Profile::Linux6Reno.config()), &resumption).unwrap();
            assert_eq!(next.connection(id).map(Connection::state), Some(state));
            let second = if is_client_first { next.connection_mut(id) } else { client.connection_mut(of_client) };
            second.unwrap().shutdown_write();
            converse(now, &mut client, &mut next);
            let states = [client.connection(of_client).unwrap().state(), next.connection(id).unwrap().state()];
            assert!(states.contains(&State::TimeWait) && states.contains(&State::Closed), "{states:?}");
        }
    }

    /// Connections in a handshake and invalid addresses are refused.
    #[test]
    fn connections_that_cannot_be_resumed_are_refused() {
        let config = Arc::new(Profile::Linux6Reno.config());
        let mut client = endpoint(1, 1);
        let at = SocketAddr::new([10, 0, 0, 2].into(), 80);
        let id = client.connect(Instant::ZERO, Arc::clone(&config), None, at).unwrap();
        let connection = client.connection(id).unwrap();
        assert_eq!(connection.resumption(Instant::ZERO, connection.rcv_nxt()), None);
        let (_, _, server, of_server) = opened(Profile::Linux6Reno);
        let connection = server.connection(of_server).unwrap();
        let resumption = connection.resumption(Instant::ZERO, connection.rcv_nxt()).unwrap();
        let mut elsewhere = endpoint(9, 1);
        assert!(elsewhere.resume(Instant::ZERO, Arc::clone(&config), &resumption).is_err(), "not its address");
        let mut other = endpoint(2, 1);
        let remote = SocketAddr::new([224, 0, 0, 1].into(), 80);
        assert!(other.resume(Instant::ZERO, config, &Resumption { remote, ..resumption }).is_err(), "a group");
    }
}
