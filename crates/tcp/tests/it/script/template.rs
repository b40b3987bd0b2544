//! Templates of segments: those that a script injects, and those that it expects.

use std::fmt::Write as _;

use holdover_tcp::Reason;
use holdover_wire::{AccurateEcn, AccurateEcnOrder, Flags, TcpOptions, UserTimeout};

/// A segment for the connection under test. Unset fields have the values of a well-behaved peer: the next sequence
/// number that the connection expects, the former acknowledgment number, and the former window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inject {
    pub(super) flags: Flags,
    pub(super) seq: Option<i64>,
    pub(super) ack: Option<i64>,
    pub(super) win: Option<u32>,
    pub(super) len: usize,
    pub(super) urgent: u16,
    pub(super) sack: Vec<(i64, i64)>,
    pub(super) timestamps: Option<Option<(u32, u32)>>,
    pub(super) options: TcpOptions,
}

/// A segment with ACK.
pub(crate) fn seg() -> Inject {
    Inject { flags: Flags::ACK, ..Inject::default() }
}

/// A segment with exactly these control bits.
pub(crate) fn flags(flags: Flags) -> Inject {
    Inject { flags, ..Inject::default() }
}

/// The peer's SYN, with an MSS option of 1000 and a window of 20,000.
pub(crate) fn syn() -> Inject {
    flags(Flags::SYN).seq(0).win(20_000).mss(1000)
}

/// The peer's SYN and ACK.
pub(crate) fn syn_ack() -> Inject {
    flags(Flags::SYN | Flags::ACK).seq(0).ack(1).win(20_000).mss(1000)
}

/// The peer's FIN, with ACK.
pub(crate) fn fin() -> Inject {
    flags(Flags::FIN | Flags::ACK)
}

/// A reset without ACK.
pub(crate) fn rst() -> Inject {
    flags(Flags::RST)
}

impl Inject {
    pub(crate) fn seq(mut self, seq: i64) -> Self {
        self.seq = Some(seq);
        self
    }

    pub(crate) fn ack(mut self, ack: i64) -> Self {
        self.ack = Some(ack);
        self.flags |= Flags::ACK;
        self
    }

    /// The window in bytes; what is written is scaled by what the peer offered.
    pub(crate) fn win(mut self, win: u32) -> Self {
        self.win = Some(win);
        self
    }

    pub(crate) fn data(mut self, len: usize) -> Self {
        self.len = len;
        self
    }

    /// Further control bits.
    pub(crate) fn and(mut self, more: Flags) -> Self {
        self.flags |= more;
        self
    }

    pub(crate) fn urgent(mut self, pointer: u16) -> Self {
        self.urgent = pointer;
        self.flags |= Flags::URG;
        self
    }

    pub(crate) fn sack(mut self, blocks: &[(i64, i64)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }

    pub(crate) fn mss(mut self, mss: u16) -> Self {
        self.options.mss = Some(mss);
        self
    }

    pub(crate) fn no_mss(mut self) -> Self {
        self.options.mss = None;
        self
    }

    pub(crate) fn wscale(mut self, shift: u8) -> Self {
        self.options.window_scale = Some(shift);
        self
    }

    pub(crate) fn sack_ok(mut self) -> Self {
        self.options.sack_permitted = true;
        self
    }

    pub(crate) fn ts(mut self, val: u32, ecr: u32) -> Self {
        self.timestamps = Some(Some((val, ecr)));
        self
    }

    pub(crate) fn no_ts(mut self) -> Self {
        self.timestamps = Some(None);
        self
    }

    /// The option of Accurate ECN: the fields in order 0.
    pub(crate) fn ecn_option(mut self, fields: &[u32]) -> Self {
        self.options.accurate_ecn = Some(AccurateEcn::new(AccurateEcnOrder::Zero, fields).unwrap());
        self
    }

    pub(crate) fn user_timeout(mut self, option: UserTimeout) -> Self {
        self.options.user_timeout = Some(option);
        self
    }
}

/// Expectations about the next segment. Unset fields are not checked, except that SACK blocks must be listed, and that
/// a segment without data begins at SND.NXT unless set otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    pub(super) flags: Flags,
    pub(super) seq: Option<i64>,
    pub(super) len: usize,
    pub(super) ack: Option<i64>,
    pub(super) win: Option<u16>,
    pub(super) reason: Option<Reason>,
    pub(super) sack: Vec<(i64, i64)>,
    pub(super) timestamps: Option<Option<(u32, u32)>>,
    pub(super) urgent: Option<u16>,
    pub(super) options: Option<TcpOptions>,
}

fn expectation(flags: Flags) -> Expect {
    Expect {
        flags,
        seq: None,
        len: 0,
        ack: None,
        win: None,
        reason: None,
        sack: Vec::new(),
        timestamps: None,
        urgent: None,
        options: None,
    }
}

/// Data from `start` up to, not including, `end`.
pub(crate) fn data(start: i64, end: i64) -> Expect {
    Expect { seq: Some(start), len: (end - start) as usize, ..expectation(Flags::ACK) }
}

/// A segment without data that acknowledges up to `point`.
pub(crate) fn ack(point: i64) -> Expect {
    expectation(Flags::ACK).ack(point)
}

/// Our SYN.
pub(crate) fn our_syn() -> Expect {
    expectation(Flags::SYN).seq(0)
}

/// Our SYN and ACK.
pub(crate) fn our_syn_ack() -> Expect {
    expectation(Flags::SYN | Flags::ACK).seq(0).ack(1)
}

/// Our FIN without data, at `seq`.
pub(crate) fn our_fin(seq: i64) -> Expect {
    expectation(Flags::FIN | Flags::ACK).seq(seq)
}

/// A reset without ACK, at `seq`.
pub(crate) fn our_rst(seq: i64) -> Expect {
    expectation(Flags::RST).seq(seq)
}

/// A reset with ACK, at `seq`.
pub(crate) fn our_rst_ack(seq: i64) -> Expect {
    expectation(Flags::RST | Flags::ACK).seq(seq)
}

impl Expect {
    pub(crate) fn seq(mut self, seq: i64) -> Self {
        self.seq = Some(seq);
        self
    }

    pub(crate) fn ack(mut self, ack: i64) -> Self {
        self.ack = Some(ack);
        self
    }

    /// The window field as on the wire.
    pub(crate) fn win(mut self, win: u16) -> Self {
        self.win = Some(win);
        self
    }

    pub(crate) fn reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    pub(crate) fn sack(mut self, blocks: &[(i64, i64)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }

    pub(crate) fn ts(mut self, val: u32, ecr: u32) -> Self {
        self.timestamps = Some(Some((val, ecr)));
        self
    }

    pub(crate) fn no_ts(mut self) -> Self {
        self.timestamps = Some(None);
        self
    }

    /// Further control bits.
    pub(crate) fn and(mut self, more: Flags) -> Self {
        self.flags |= more;
        self
    }

    pub(crate) fn and_fin(mut self) -> Self {
        self.flags |= Flags::FIN;
        self
    }

    pub(crate) fn urgent(mut self, pointer: u16) -> Self {
        self.urgent = Some(pointer);
        self.flags |= Flags::URG;
        self
    }

    /// All options, exactly.
    pub(crate) fn options(mut self, options: TcpOptions) -> Self {
        self.options = Some(options);
        self
    }
}

impl Expect {
    pub(super) fn describe(&self) -> String {
        let mut text = self.flags.to_string();
        if let Some(seq) = self.seq {
            write!(text, " {seq}:{}", seq + self.len as i64).unwrap();
        }
        if let Some(ack) = self.ack {
            write!(text, " ack {ack}").unwrap();
        }
        if let Some(win) = self.win {
            write!(text, " win {win}").unwrap();
        }
        if let Some(timestamps) = self.timestamps {
            write!(text, " timestamps {timestamps:?}").unwrap();
        }
        if !self.sack.is_empty() {
            write!(text, " sack {:?}", self.sack).unwrap();
        }
        if let Some(reason) = self.reason {
            write!(text, "  {reason}").unwrap();
        }
        text
    }
}
