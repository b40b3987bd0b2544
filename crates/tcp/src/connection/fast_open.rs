//! Data in the SYN: TCP Fast Open (RFC 7413).
//!
//! The endpoint keeps the cookies and decides on the use of Fast Open (`endpoint/fast_open.rs`); this module handles
//! one connection. A client's first SYN carries the option and the data given by the owner; data that the SYN-ACK does
//! not acknowledge is sent again at once. A server's application gets a connection whose SYN had a valid cookie before
//! the handshake ends: it can read the SYN's data, and send. Its FIN waits for the end of the handshake.

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{FastOpen, Flags, Segment, Seq};

use super::fields::Pending;
use super::{Connection, Event};
use crate::config::AckPolicy;
use crate::counters::Disposition;
use crate::recovery::sent::Sent;
use crate::state::State;

/// Fast Open state of a connection.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct FastOpenState {
    /// The option in our first SYN or SYN-ACK.
    option: Option<FastOpen>,
    /// A SYN-ACK's answer to our option, until the endpoint takes it.
    answer: Option<FastOpenAnswer>,
    /// Our SYN had an option or data.
    is_client: bool,
    /// Bytes of data in our SYN.
    syn_data: u32,
    /// The application has the connection although the handshake has not ended.
    is_early: bool,
    /// Such a connection is in the accept queue of its listener.
    is_queued: bool,
    /// All data in the SYN arrived with it.
    is_taken: bool,
    /// The MSS in a SYN whose data was too long for the path.
    mss: Option<u16>,
}

/// Result of the SYN-ACK at a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FastOpenAnswer {
    /// The requested cookie, if the server has sent one.
    pub(crate) cookie: Option<FastOpen>,
    /// The peer's MSS.
    pub(crate) mss: Option<u16>,
    /// This option requested a cookie, and the server sent none although no SYN was lost.
    pub(crate) unanswered: Option<FastOpen>,
}

/// A listener's decision on a SYN's option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastOpenVerdict {
    /// The SYN-ACK carries this cookie; data in the SYN is not taken.
    Grant(FastOpen),
    /// The connection is the application's at once, with the data in the SYN.
    Take,
}

/// A client.
impl Connection {
    /// Bytes of options that data in a SYN leaves room for (Linux `MAX_TCP_OPTION_SPACE`).
    pub(crate) const SYN_DATA_HEADROOM: u16 = Segment::MAX_OPTIONS_LEN as u16;

    /// Before the first SYN is sent: it carries `option` and `data`.
    pub(crate) fn begin_fast_open(&mut self, now: Instant, option: Option<FastOpen>, data: Bytes) {
        let syn_data = data.len() as u32;
        self.fast_open =
            Some(Box::new(FastOpenState { option, is_client: true, syn_data, ..FastOpenState::default() }));
        if data.is_empty() {
            return;
        }
        let seq = self.snd.nxt;
        self.snd.nxt += syn_data;
        self.counters.bytes_sent.0 += u64::from(syn_data);
        self.queue.push(Sent::new(now, seq, data).with_flags(Flags::PSH));
    }

    /// The additional content of the first SYN or SYN-ACK.
    pub(super) fn add_fast_open(&self, syn: &mut Segment) {
        let Some(state) = &self.fast_open else { return };
        syn.options.fast_open = state.option.map(Box::new);
        if syn.options.wire_len() > Segment::MAX_OPTIONS_LEN {
            // Without the cookie no data would be taken.
            syn.options.fast_open = None;
        } else if state.syn_data > 0 && self.state == State::SynSent {
            syn.payload = self.queue.get(1).payload.clone();
        }
    }

    /// A SYN with data was too long for the path (RFC 7413 section 4.1.3 asks for one without): it is sent again at
    /// once, with the path's MSS.
    pub(super) fn shrink_syn(&mut self, mss: u32) -> bool {
        if self.state != State::SynSent || self.queue.packets_out() < 2 {
            return false;
        }
        let Some(state) = &mut self.fast_open else { return false };
        state.mss = u16::try_from(mss).ok();
        self.pending.insert(Pending::HANDSHAKE);
        true
    }

    /// The MSS to put into a SYN.
    pub(super) fn syn_mss(&self) -> u16 {
        self.fast_open.as_deref().and_then(|state| state.mss).map_or(self.config.mss, |mss| mss.min(self.config.mss))
    }

    /// The SYN is acknowledged, and possibly its data. Sends unacknowledged data again at once (Linux
    /// `tcp_rcv_fastopen_synack`).
    fn take_fast_open_answer(&mut self, now: Instant, segment: &Segment, was_lost: bool) {
        let Some(state) = self.fast_open.as_deref_mut().filter(|state| state.is_client) else { return };
        let given = segment.options.fast_open.as_deref().copied().filter(|option| !option.is_request());
        let was_answered = given.is_some() || state.syn_data > 0 || was_lost;
        state.answer = Some(FastOpenAnswer {
            cookie: given.filter(|_| state.option.is_some()),
            mss: segment.options.mss,
            unanswered: state.option.filter(|_| !was_answered),
        });
        let acked = segment.ack.saturating_since(self.snd.una).min(state.syn_data);
        if acked > 0 {
            let ack = self.snd.una + acked;
            while self.queue.pop_acked(ack).is_some() {}
            self.queue.trim_front(ack);
            self.snd.una = ack;
            self.counters.bytes_acked.0 += u64::from(acked);
        }
        state.is_taken = state.syn_data > 0 && acked == state.syn_data;
        // More data waits, as for a writer that has connected by it: this is an exchange of questions and answers (Linux
        // `tcp_rcv_synsent_state_process`, `sk_write_pending`).
        if let AckPolicy::Adaptive { min, .. } = self.config.receive.ack
            && !self.unsent.is_empty()
        {
            self.ack.delay = min;
        }
        if !self.queue.is_empty() {
            self.queue.mark_all_lost(|_, _| false);
            self.repair_without_congestion();
            self.arm_retransmit(now, self.rtt.rto());
            self.arm_user_timeout(now);
        }
    }

    /// Takes the result of the SYN-ACK, once.
    pub(crate) fn take_answer(&mut self) -> Option<FastOpenAnswer> {
        self.fast_open.as_deref_mut()?.answer.take()
    }
}

/// A server.
impl Connection {
    /// The listener's handling of the option of `syn`, right after [`Self::accept`].
    pub(crate) fn answer_fast_open(&mut self, now: Instant, syn: &Segment, verdict: FastOpenVerdict) {
        let state = self.fast_open.get_or_insert_default();
        match verdict {
            FastOpenVerdict::Grant(cookie) => state.option = Some(cookie),
            FastOpenVerdict::Take => {
                state.is_early = true;
                self.begin_transfer(now);
                let mut data = syn.payload.clone();
                data.truncate(self.open_window() as usize);
                let is_whole = data.len() == syn.payload.len();
                if !data.is_empty() {
                    self.take_data(syn.seq + 1, data);
                    self.fast_open.get_or_insert_default().is_taken = is_whole;
                }
            }
        }
    }

    /// Whether the application has the connection although the handshake has not ended.
    pub(crate) fn is_early(&self) -> bool {
        self.state == State::SynReceived && self.was_early()
    }

    /// Whether the application got the connection before the handshake ended (Linux `TCPI_OPT_TFO_CHILD`).
    pub fn was_early(&self) -> bool {
        self.fast_open.as_deref().is_some_and(|state| state.is_early)
    }

    /// For owners with a queue of connections that wait to be accepted: whether this one, which came early, is in it. Until it is
    /// accepted, an ICMP error ends it as it ends an attempt to connect (Linux `tcp_v4_err`).
    pub fn set_queued(&mut self, is_queued: bool) {
        if let Some(state) = self.fast_open.as_deref_mut() {
            state.is_queued = is_queued;
        }
    }

    /// Whether the application has the connection, although the handshake may not have ended.
    pub(super) fn is_in_use(&self) -> bool {
        self.fast_open.as_deref().is_some_and(|state| state.is_early && !state.is_queued)
    }

    /// Whether all data in the SYN, ours or the peer's, was taken with it (Linux `TCPI_OPT_SYN_DATA`).
    pub fn syn_data_taken(&self) -> bool {
        self.fast_open.as_deref().is_some_and(|state| state.is_taken)
    }

    /// The handshake of a connection that was early ends with `segment`, which may acknowledge data, too.
    fn end_early(&mut self, now: Instant, segment: &Segment) -> Result<(), Disposition> {
        self.process_ack(now, segment)?;
        if !self.queue.is_empty() && !self.is_retransmission_timed() {
            self.arm_retransmit(now, self.rtt.rto());
            self.arm_user_timeout(now);
        }
        Ok(())
    }
}

/// The end of the handshake, of any connection.
impl Connection {
    /// `segment` ends the handshake.
    pub(super) fn end_handshake(&mut self, now: Instant, segment: &Segment) -> Result<(), Disposition> {
        let is_early = self.is_early();
        let was_lost = self.recovery.retransmits > 0;
        self.acknowledge_syn(now, segment);
        self.establish(segment);
        self.respond_to_marked_handshake();
        if is_early {
            return self.end_early(now, segment);
        }
        self.begin_transfer(now);
        self.take_fast_open_answer(now, segment, was_lost);
        Ok(())
    }

    /// The application has the connection from now on, and data may flow.
    fn begin_transfer(&mut self, now: Instant) {
        self.events.insert(Event::Connected);
        self.snd.last_data_at = now;
        self.ack.last_data_at = now;
        self.begin_right_sizing(now);
        self.arm_keep_alive(now);
        self.start_pacing(now);
        self.start_model(now);
    }

    /// Whether data may be sent in this state.
    pub(super) fn may_send(&self) -> bool {
        self.state.may_send() || self.is_early()
    }

    /// Whether nothing is outstanding but, of a connection that is early, its SYN-ACK.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.packets_out() == self.syns_out()
    }

    /// The end of the window: a SYN-ACK that is outstanding takes no room of it.
    pub(super) fn window_edge(&self) -> Seq {
        self.snd.una + self.snd.wnd + self.syns_out()
    }

    /// The SYN-ACK of an early connection, which does not count as a segment in flight.
    pub(super) fn syns_out(&self) -> u32 {
        u32::from(self.state == State::SynReceived && self.queue.front().is_some_and(|front| front.is_syn()))
    }
}
