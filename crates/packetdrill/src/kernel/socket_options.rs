//! The options set on a socket, and their effect on its connections.

use std::collections::BTreeMap;

use holdover_base::Duration;
use holdover_tcp::{Config, KeepAlive};

use crate::settings::Settings;

pub(super) const SOL_IP: i64 = 0;
pub(super) const SOL_SOCKET: i64 = 1;
pub(super) const SOL_TCP: i64 = 6;
pub(super) const SOL_IPV6: i64 = 41;

/// The options set on a socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketOptions {
    pub(super) no_delay: bool,
    pub(super) cork: bool,
    pub(super) send_buffer: Option<u32>,
    pub(super) receive_buffer: Option<u32>,
    pub(super) max_segment: Option<u16>,
    pub(super) window_clamp: Option<u32>,
    pub(super) user_timeout: Option<Duration>,
    pub(super) keep_alive: bool,
    pub(super) keep_alive_times: [Option<u32>; 3],
    pub(super) syn_retries: Option<u32>,
    pub(super) congestion_control: Option<String>,
    pub(super) notsent_lowat: Option<u32>,
    pub(super) tos: u8,
    pub(super) ttl: Option<u8>,
    pub(super) linger: Option<i64>,
    /// How long FIN-WAIT-2 lasts (`TCP_LINGER2`).
    pub(super) fin_wait_2: Option<Duration>,
    /// How long a connection without data is not accepted, in timeouts of the SYN-ACK (`TCP_DEFER_ACCEPT`).
    pub(super) deferred_timeouts: u32,
    /// How many bytes a reader waits for (`SO_RCVLOWAT`).
    pub(super) receive_low_water: usize,
    pub(super) tell_queue: bool,
    /// The maximum of pending Fast Open connections at a listener (`TCP_FASTOPEN`).
    pub(super) fast_open_queue: Option<u32>,
    pub(super) fast_open_connect: bool,
    pub(super) fast_open_no_cookie: bool,
    pub(super) fast_open_key: Option<[u8; 16]>,
    /// Options stored without effect.
    pub(super) others: BTreeMap<(i64, i64), i64>,
}

impl SocketOptions {
    /// Applies the options to the configuration of a connection.
    pub(super) fn apply(&self, config: &mut Config, settings: &Settings) {
        config.send.nagle &= !self.no_delay;
        if let Some(bytes) = self.send_buffer {
            config.send.fix_buffer(bytes);
        }
        if let Some(bytes) = self.receive_buffer {
            let space = bytes / 2;
            config.receive.buffer_bytes = space;
            config.receive.max_buffer_bytes = space;
            // Linux `tcp_select_initial_window`: the scale for the largest window possible with this buffer.
            let bits = space.max(1).ilog2().saturating_sub(15) as u8;
            config.window_scale = config.window_scale.map(|scale| scale.min(bits));
            config.receive.initial_window_bytes = settings.first_window(space, config.mss);
        }
        if let Some(clamp) = self.window_clamp {
            config.receive.initial_window_bytes = config.receive.initial_window_bytes.min(clamp);
        }
        if let Some(mss) = self.max_segment {
            config.mss = config.mss.min(mss);
        }
        if let Some(retries) = self.syn_retries {
            config.limits.syn_retries = retries;
        }
        if let Some(time) = self.fin_wait_2 {
            config.limits.fin_wait_2 = time;
        }
        config.limits.deferred_timeouts = self.deferred_timeouts;
        config.fast_open = settings.fast_open_config(self);
        config.user_timeout.timeout = self.user_timeout;
        config.user_timeout.changeable &= self.user_timeout.is_none();
        let (idle, interval, probes) = settings.keep_alive;
        let [own_idle, own_interval, own_probes] = self.keep_alive_times;
        let seconds = |own: Option<u32>, of_host: u32| Duration::from_secs(own.unwrap_or(of_host).into());
        config.limits.keep_alive = self.keep_alive.then(|| KeepAlive {
            idle: seconds(own_idle, idle),
            interval: seconds(own_interval, interval),
            probes: own_probes.unwrap_or(probes),
        });
    }

    /// Sets an option, or returns the error.
    pub(super) fn set(&mut self, option: (i64, i64), value: i64) -> Result<(), &'static str> {
        let on = value != 0;
        let bytes = || u32::try_from(value.clamp(0, 1 << 30)).unwrap_or_default();
        match option {
            (SOL_TCP, 1) => self.no_delay = on,
            (SOL_TCP, 3) => self.cork = on,
            (SOL_SOCKET, 7 | 32) => self.send_buffer = Some((2 * bytes()).max(4_608)),
            (SOL_SOCKET, 8 | 33) => self.receive_buffer = Some((2 * bytes()).max(2_304)),
            (SOL_TCP, 2) if value != 0 && !(88..=32_767).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 2) => self.max_segment = u16::try_from(value).ok().filter(|&mss| mss > 0),
            (SOL_TCP, 9) => self.deferred_timeouts = timeouts_within(bytes()),
            (SOL_TCP, 8) => self.fin_wait_2 = fin_wait_2(value),
            (SOL_SOCKET, 18) => self.receive_low_water = usize::try_from(value).unwrap_or(usize::MAX),
            (SOL_TCP, 10) => self.window_clamp = Some(bytes()).filter(|&clamp| clamp > 0),
            (SOL_TCP, 18) if value < 0 => return Err("EINVAL"),
            (SOL_TCP, 18) => self.user_timeout = Some(Duration::from_millis(value as u64)).filter(|_| on),
            (SOL_SOCKET, 9) => self.keep_alive = on,
            (SOL_TCP, 4 | 5) if !(1..=32_767).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 6) if !(1..=127).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 4..=6) => self.keep_alive_times[(option.1 - 4) as usize] = Some(bytes()),
            (SOL_TCP, 7) if !(1..=127).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 7) => self.syn_retries = Some(bytes()),
            (SOL_TCP, 23) if value < 0 => return Err("EINVAL"),
            (SOL_TCP, 23) => self.fast_open_queue = Some(bytes()),
            (SOL_TCP, 30 | 34) if !(0..=1).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 30) => self.fast_open_connect = on,
            (SOL_TCP, 34) => self.fast_open_no_cookie = on,
            (SOL_TCP, 25) => self.notsent_lowat = Some(value as u32),
            (SOL_TCP, 36) if !(0..=1).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 36) => self.tell_queue = on,
            // The ECN bits belong to TCP.
            (SOL_IP, 1) | (SOL_IPV6, 67) => self.tos = (value as u8) & !3,
            (SOL_IP, 2) | (SOL_IPV6, 16) => self.ttl = u8::try_from(value).ok().filter(|&ttl| ttl > 0),
            _ => {}
        }
        self.others.insert(option, value);
        Ok(())
    }
}

/// The time of `TCP_LINGER2`; zero restores that of the host.
fn fin_wait_2(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

/// The timeouts of a SYN-ACK that begin within so many seconds (Linux `secs_to_retrans`).
fn timeouts_within(seconds: u32) -> u32 {
    const MOST: u32 = 255;
    let (mut period, mut timeouts) = (0_u32, 0);
    while seconds > period && timeouts < MOST {
        period = period.saturating_add(1_u32.checked_shl(timeouts).map_or(120, |timeout| timeout.min(120)));
        timeouts += 1;
    }
    timeouts
}
