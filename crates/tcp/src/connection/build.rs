//! Building segments: the ACK, the window and the options that each one carries.

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{Flags, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, UserTimeout};

use super::Connection;
use super::fields::Pending;

/// The content of a segment, without the fields that all segments have.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) seq: Seq,
    pub(super) flags: Flags,
    pub(super) payload: Bytes,
}

impl Content {
    /// An ACK without data.
    pub(super) const fn ack(seq: Seq) -> Self {
        Self { seq, flags: Flags::ACK, payload: Bytes::new() }
    }
}

/// Fields of a header that follow from the connection's state.
struct Fields {
    ack: Seq,
    window: u16,
    urgent: u16,
}

impl Connection {
    /// Writes to `place` a segment with everything that each one carries: the ACK, the window and the options.
    #[inline(never)]
    pub(super) fn build_any(&mut self, now: Instant, content: Content, place: &mut Segment) {
        self.build(now, content, place);
    }

    /// As [`Self::build_any`], where most segments are built: much of it is known there.
    #[inline(always)]
    pub(super) fn build(&mut self, now: Instant, content: Content, place: &mut Segment) {
        if content.flags.contains(Flags::SYN) || self.snd.urgent.is_some() || self.has_rare_options() {
            return self.build_with_rare_options(now, content, place);
        }
        let ack = self.ack_point();
        let window = self.announce_window(ack);
        place.options.set_timestamps_only(self.timestamps_option(now));
        self.assemble(content, Fields { ack, window, urgent: 0 }, place);
    }

    #[inline(never)]
    fn build_with_rare_options(&mut self, now: Instant, mut content: Content, place: &mut Segment) {
        let ack = self.ack_point();
        let options = self.options(now, &content);
        let is_syn = content.flags.contains(Flags::SYN);
        let window = if is_syn { self.syn_window() } else { self.announce_window(ack) };
        let urgent = match self.snd.urgent {
            Some(end) if end.gt(content.seq) && !content.flags.intersects(Flags::SYN | Flags::RST) => {
                content.flags |= Flags::URG;
                (end - content.seq).min(0xffff) as u16
            }
            _ => 0,
        };
        place.options = options;
        self.assemble(content, Fields { ack, window, urgent }, place);
    }

    /// Writes everything but the options.
    #[inline(always)]
    fn assemble(&mut self, content: Content, fields: Fields, place: &mut Segment) {
        let acks = content.flags.contains(Flags::ACK);
        if acks && !content.flags.contains(Flags::RST) {
            self.note_ack_sent(fields.ack);
        }
        // All fields are named, for none to be left as it was.
        let Segment { src_port, dst_port, seq, ack, flags, window, urgent, options: _, payload } = place;
        *src_port = self.local.port;
        *dst_port = self.remote.port;
        *seq = content.seq;
        *ack = if acks { fields.ack } else { Seq::default() };
        *flags = content.flags;
        *window = fields.window;
        *urgent = fields.urgent;
        *payload = content.payload;
    }

    /// RFC 7323 section 2.2: the window in a SYN is not scaled.
    fn syn_window(&mut self) -> u16 {
        let window = self.open_window();
        self.steering.window_clamp.map_or(window, |clamp| clamp.min(window)) as u16
    }

    /// The window that a SYN can advertise.
    pub(super) fn open_window(&mut self) -> u32 {
        let (window, _) = self.select_window(self.rcv.nxt);
        // The answer advertises the same window whether the peer's SYN had data or not, in every profile: RFC 9293 leaves the size to the
        // receiver, and Linux does so (`tcp_openreq_init_rwin`).
        let window = window.max(self.offerable_window()).min(0xffff);
        self.rcv.wup = self.rcv.nxt;
        self.rcv.wnd = window;
        window
    }

    fn announce_window(&mut self, ack: Seq) -> u16 {
        let (window, field) = self.select_window(ack);
        self.rcv.wup = ack;
        self.rcv.wnd = window;
        field
    }

    /// Bytes of data that fit into a segment besides the SACK blocks it has to carry and the room that the owner reserves.
    #[inline(always)]
    pub(super) fn data_room(&self) -> u32 {
        let room = self.snd.mss.saturating_sub(self.steering.option_room).max(1);
        if self.has_rare_options() { self.data_room_beside_options(room) } else { room }
    }

    #[inline(never)]
    fn data_room_beside_options(&self, room: u32) -> u32 {
        if self.sends_ecn_option() {
            return room.saturating_sub(self.ecn_and_sack_len()).max(1);
        }
        if !self.reports_sack_blocks() {
            return room;
        }
        let options = TcpOptions { sack: self.sack_blocks(), ..TcpOptions::default() };
        room.saturating_sub(options.wire_len() as u32).max(1)
    }

    #[inline]
    fn timestamps_option(&self, now: Instant) -> Option<Timestamps> {
        self.timestamps.as_ref().map(|ts| Timestamps {
            val: self.timestamp_clock(now),
            ecr: ts.recent.wrapping_add(self.steering.echo_shift),
        })
    }

    /// Whether a segment may carry options besides timestamps: all that the fast path looks at.
    #[inline]
    pub(super) fn has_rare_options(&self) -> bool {
        self.received.has_gap()
            || self.rcv.dsack.is_some()
            || self.accurate_ecn.is_some()
            || self.pending.contains(Pending::USER_TIMEOUT_OPTION)
    }

    fn reports_sack_blocks(&self) -> bool {
        self.sack && (self.received.has_gap() || self.rcv.dsack.is_some())
    }

    fn options(&mut self, now: Instant, content: &Content) -> TcpOptions {
        let payload_len = content.payload.len();
        let options = if content.flags.contains(Flags::SYN) {
            self.syn_options(now)
        } else {
            let mut options = TcpOptions { timestamps: self.timestamps_option(now), ..TcpOptions::default() };
            if self.reports_sack_blocks() {
                options.sack = self.sack_blocks();
            }
            if self.user_timeout_option_fits(payload_len) {
                options.user_timeout = self.user_timeout_config().advertise.and_then(UserTimeout::from_duration);
                self.pending.remove(Pending::USER_TIMEOUT_OPTION);
            }
            if self.sends_ecn_option() {
                self.add_ecn_option(&mut options);
            }
            options
        };
        if self.accurate_ecn.is_some() {
            let data = SeqRange::new(content.seq, content.seq + payload_len as u32);
            self.note_ecn_option_sent(now, &options, data);
        }
        options
    }

    /// Whether a User Timeout option is due and a segment with so much data has room for it: where SACK blocks need all there
    /// is, it waits.
    #[inline]
    pub(super) fn user_timeout_option_fits(&self, payload_len: usize) -> bool {
        self.pending.contains(Pending::USER_TIMEOUT_OPTION) && self.has_room_for_user_timeout(payload_len)
    }

    #[cold]
    fn has_room_for_user_timeout(&self, payload_len: usize) -> bool {
        let mut options = TcpOptions {
            timestamps: self.timestamps.as_ref().map(|_| Timestamps { val: 0, ecr: 0 }),
            sack: if self.sack { self.sack_blocks() } else { SackBlocks::default() },
            ..TcpOptions::default()
        };
        options.user_timeout = self.user_timeout_config().advertise.and_then(UserTimeout::from_duration);
        if self.sends_ecn_option() {
            self.add_ecn_option(&mut options);
        }
        let room = self.snd.mss as usize + if self.timestamps.is_some() { 12 } else { 0 };
        options.wire_len() <= Segment::MAX_OPTIONS_LEN && payload_len + options.wire_len() <= room
    }

    /// As many blocks as fit besides the timestamps (RFC 2018 section 3). Under a held ACK point, only what lies above
    /// RCV.NXT is reported, as ever.
    pub(super) fn sack_blocks(&self) -> SackBlocks {
        let most = if self.timestamps.is_some() { 3 } else { 4 };
        let Some(duplicate) = self.rcv.dsack else { return self.received.sack_blocks(None, most) };
        let mut sack: SackBlocks = [duplicate].into_iter().collect();
        // RFC 2883 section 4.1.3: a duplicate above the ACK is followed by the block around it.
        let around = self.received.block_with(duplicate);
        let others = self.received.sack_blocks(None, most);
        for block in around.into_iter().chain(others.iter().filter(|&block| Some(block) != around)) {
            if sack.len() < most {
                sack.push(block);
            }
        }
        sack
    }

    pub(super) fn bare_reset(&self, seq: Seq) -> Segment {
        Segment { src_port: self.local.port, dst_port: self.remote.port, seq, flags: Flags::RST, ..Segment::default() }
    }
}
