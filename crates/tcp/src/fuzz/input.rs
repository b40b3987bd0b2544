//! Fuzzer input as a program.

use holdover_base::{Duration, Instant};
use holdover_wire::SeqRange;

use crate::config::{
    AckPolicy, Config, KeepAlive, LossDetection, MtuProbing, ProbePayload, Reduction, RetryLimit, WindowUpdate,
    ZeroWindow,
};
use crate::connection::{AfterRetransmit, Connection};
use crate::profile::Profile;
use crate::timers::Timer;

/// Reads numbers from bytes; after the end everything is zero.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    pub(super) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(super) fn long(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }

    /// One of `choices`.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Whether the next byte is odd.
    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A length, most of them about a segment's.
    pub(super) fn len(&mut self) -> usize {
        let scale = self.pick(&[0, 1, 1, 10, 100]);
        (usize::from(self.byte()) * scale).max(1)
    }

    /// A span of time from a microsecond to minutes.
    pub(super) fn span(&mut self) -> Duration {
        let unit = self.pick(&[1, 1_000, 10_000, 100_000, 1_000_000]);
        Duration::from_micros(u64::from(self.byte()) * unit)
    }

    /// A stack with some of its fields changed. Nothing gives up on its own if `patient`.
    pub(super) fn config(&mut self, patient: bool) -> Config {
        let profile = usize::from(self.byte()) % (Profile::ALL.len() + 1);
        let mut config = Profile::ALL.get(profile).map_or(Config::rfc(), |profile| profile.config());
        for _ in 0..self.byte() % 6 {
            self.change(&mut config);
        }
        let needed = Config::window_scale_for(config.receive.max_buffer_bytes);
        config.window_scale = config.window_scale.map(|shift| shift.min(needed + 2));
        if patient {
            config.limits.r2 = RetryLimit::Never;
            config.limits.syn_retries = u32::MAX;
            config.persist.give_up_after = None;
            config.limits.keep_alive = None;
            config.user_timeout.timeout = None;
            config.user_timeout.changeable = false;
        }
        config
    }

    pub(super) fn change(&mut self, config: &mut Config) {
        let detections = [
            LossDetection::Tahoe,
            LossDetection::Reno,
            LossDetection::NewReno,
            LossDetection::Sack,
            LossDetection::Fack,
            LossDetection::Rack,
        ];
        match self.byte() % 16 {
            0 => config.sack = !config.sack,
            1 => config.timestamps = if config.timestamps.is_some() { None } else { Some(Duration::from_millis(1)) },
            2 => config.window_scale = self.pick(&[None, Some(0), Some(3), Some(14)]),
            3 => config.mss = self.pick(&[88, 200, 536, 1000, 1460, 8960]),
            4 => config.send.fix_buffer(self.pick(&[200, 2000, 10_000, 60_000])),
            5 => {
                config.receive.buffer_bytes = self.pick(&[300, 2000, 10_000, 60_000]);
                config.receive.max_buffer_bytes = config.receive.buffer_bytes * self.pick(&[1, 2, 3]);
            }
            6 => config.receive.initial_window_bytes = self.pick(&[500, 3000, u32::MAX]),
            7 => {
                config.receive.ack = self.pick(&[
                    AckPolicy::Immediate,
                    AckPolicy::Delayed { delay: Duration::from_millis(200), tick: Duration::ZERO },
                    AckPolicy::Adaptive {
                        quick_acks: 4,
                        min: Duration::from_millis(40),
                        max: Duration::from_millis(200),
                    },
                ]);
            }
            8 => config.recovery.with_sack = self.pick(&detections),
            9 => config.recovery.without_sack = self.pick(&detections[..3]),
            10 => {
                config.recovery.zero_window =
                    self.pick(&[ZeroWindow::Retransmit, ZeroWindow::Freeze, ZeroWindow::PullBack]);
            }
            11 => self.change_probes(config),
            12 => {
                config.recovery.reduction =
                    self.pick(&[Reduction::Immediate, Reduction::RateHalving, Reduction::Proportional]);
            }
            13 => self.change_bits(config),
            14 => {
                config.send.window_update =
                    self.pick(&[WindowUpdate::Rfc9293, WindowUpdate::LargerOnly, WindowUpdate::LargerOrZero]);
            }
            _ => {
                config.limits.keep_alive =
                    Some(KeepAlive { idle: Duration::from_secs(2), interval: Duration::from_secs(1), probes: 3 });
                config.user_timeout.timeout = Some(Duration::from_secs(30));
                config.user_timeout.lower_limit = Duration::from_secs(1);
            }
        }
    }

    /// Probes of windows, and of the path MTU in a part of the same byte, so that the corpus keeps its meaning.
    fn change_probes(&mut self, config: &mut Config) {
        let byte = self.byte();
        config.persist.payload = if byte & 1 == 0 { ProbePayload::Empty } else { ProbePayload::OneByte };
        config.path_mtu.probing = match byte >> 1 {
            112.. => MtuProbing::Always,
            96.. => MtuProbing::AfterBlackHole,
            _ => MtuProbing::Off,
        };
        config.path_mtu.base_mss = if byte & 2 == 0 { 300 } else { 1024 };
    }

    fn change_bits(&mut self, config: &mut Config) {
        let bits = self.byte();
        let bit = |n: u8| bits >> n & 1 == 1;
        config.send.nagle = bit(0);
        config.dsack = bit(1);
        config.recovery.limited_transmit = bit(2);
        config.recovery.repair_ahead = bit(2) != bit(5);
        config.recovery.loss_probe = bit(3);
        config.recovery.frto = bit(4);
        config.recovery.undo = bit(5);
        config.recovery.bar_after_timeout = bit(6);
        config.recovery.cut_on_each_timeout = bit(7);
    }

    /// Applies one of the owner's verbs.
    pub(super) fn verb(&mut self, now: Instant, connection: &mut Connection) {
        match self.byte() % 15 {
            0 => connection.clamp_window(Some(0)),
            1 => connection.clamp_window(Some(u32::from(self.word()))),
            2 => connection.clamp_window(None),
            3 => {
                let point = connection.rcv_nxt() + u32::from(self.byte());
                if connection.state().is_synchronized() {
                    connection.hold_ack_point(Some(point));
                }
            }
            4 => connection.hold_ack_point(None),
            5 => connection.send_acks(self.byte() % 8),
            6 => connection.shift_timestamp_echo(self.long()),
            7 => {
                let after = self.pick(&[AfterRetransmit::BackOff, AfterRetransmit::Keep, AfterRetransmit::Reset]);
                connection.retransmit_now(now, after);
            }
            8 => connection.set_cwnd(u32::from(self.byte())),
            9 => connection.set_ssthresh(u32::from(self.byte())),
            10 => connection.force_slow_start(),
            11 => connection.hold_timer(now, self.pick(&Timer::ALL)),
            12 => connection.release_timer(now, self.pick(&Timer::ALL)),
            13 => {
                let bar = self.flag().then_some(connection.snd_una() + u32::from(self.word()));
                connection.bar_fast_retransmit_below(bar);
            }
            _ => self.later_verb(now, connection),
        }
    }

    /// In a byte of their own, so that the corpus keeps its meaning.
    fn later_verb(&mut self, now: Instant, connection: &mut Connection) {
        match self.byte() {
            160..192 => {
                let range = self.outstanding_range(connection);
                let after = self.pick(&[AfterRetransmit::BackOff, AfterRetransmit::Keep, AfterRetransmit::Reset]);
                connection.presume_lost(now, range, after);
            }
            192..224 => {
                let range = self.outstanding_range(connection);
                connection.note_held_by_peer(range);
            }
            224.. => connection.reserve_option_room(u32::from(self.byte())),
            other => {
                connection.advertise_user_timeout(Some(Duration::from_secs(86_400 * u64::from(other % 16))));
            }
        }
    }

    /// A number near the outstanding data.
    fn outstanding_range(&mut self, connection: &Connection) -> SeqRange {
        let start = connection.snd_una() + u32::from(self.word());
        SeqRange::new(start, start + u32::from(self.word()))
    }
}

/// Undoes all effects of the verbs that would stop a connection for ever.
pub(super) fn lift_verbs(now: Instant, connection: &mut Connection) {
    connection.clamp_window(None);
    connection.hold_ack_point(None);
    connection.shift_timestamp_echo(0);
    connection.bar_fast_retransmit_below(None);
    connection.reserve_option_room(0);
    connection.set_user_timeout(now, None, false);
    for timer in Timer::ALL {
        connection.release_timer(now, timer);
    }
    connection.send_acks(1);
}
