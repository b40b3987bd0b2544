//! Socket options: their effects, and their values when read.

use std::collections::BTreeMap;

use holdover_base::Duration;
use holdover_tcp::{Config, KeepAlive};

use super::Kernel;
use super::call::{Attempt, Returned};
use super::fast_open::key;
use super::socket::Role;
use crate::ast::Expr;
use crate::constants::{errno, integer};
use crate::settings::Settings;

const SOL_IP: i64 = 0;
const SOL_SOCKET: i64 = 1;
const SOL_TCP: i64 = 6;
const SOL_IPV6: i64 = 41;

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
    pub(super) tell_queue: bool,
    /// The maximum of pending Fast Open connections at a listener (`TCP_FASTOPEN`).
    pub(super) fast_open_queue: Option<u32>,
    pub(super) fast_open_connect: bool,
    pub(super) fast_open_no_cookie: bool,
    pub(super) fast_open_key: Option<[u8; 16]>,
    /// Options stored without effect.
    others: BTreeMap<(i64, i64), i64>,
}

impl SocketOptions {
    /// Applies the options to the configuration of a connection.
    pub(super) fn apply(&self, config: &mut Config, settings: &Settings) {
        config.send.nagle &= !self.no_delay;
        if let Some(bytes) = self.send_buffer {
            config.send.buffer_bytes = bytes;
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
    fn set(&mut self, option: (i64, i64), value: i64) -> Result<(), &'static str> {
        let on = value != 0;
        let bytes = || u32::try_from(value.clamp(0, 1 << 30)).unwrap_or_default();
        match option {
            (SOL_TCP, 1) => self.no_delay = on,
            (SOL_TCP, 3) => self.cork = on,
            (SOL_SOCKET, 7 | 32) => self.send_buffer = Some((2 * bytes()).max(4_608)),
            (SOL_SOCKET, 8 | 33) => self.receive_buffer = Some((2 * bytes()).max(2_304)),
            (SOL_TCP, 2) if value != 0 && !(88..=32_767).contains(&value) => return Err("EINVAL"),
            (SOL_TCP, 2) => self.max_segment = u16::try_from(value).ok().filter(|&mss| mss > 0),
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

impl Kernel {
    pub(super) fn setsockopt(&mut self, args: &[Expr]) -> Attempt {
        let [fd, level, name, value, ..] = args else { return Attempt::malformed() };
        let (Some(fd), Some(level), Some(option)) = (integer(fd), integer(level), integer(name)) else {
            return Attempt::unsupported(format!("the socket option {name:?}"));
        };
        let Some(socket) = self.sockets.get_mut(&fd) else { return Attempt::failed("EBADF") };
        match (level, option, value) {
            (SOL_TCP, 13, Expr::Text(name)) => socket.options.congestion_control = Some(name.clone()),
            (SOL_TCP, 33, Expr::Text(text)) => {
                let Some(key) = key(text, args.get(4).and_then(integer).unwrap_or(0)) else {
                    return Attempt::failed("EINVAL");
                };
                socket.options.fast_open_key = Some(key);
            }
            (SOL_SOCKET, 13, Expr::Struct(fields)) => {
                let numbers: Vec<i64> = fields.iter().filter_map(|field| integer(&field.value)).collect();
                socket.options.linger =
                    matches!(numbers.first(), Some(on) if *on != 0).then(|| numbers.get(1).copied().unwrap_or(0));
            }
            (SOL_TCP, 30, _) if !self.settings.has_fast_open(Settings::FAST_OPEN_CLIENT) => {
                return Attempt::failed("EOPNOTSUPP");
            }
            _ => {
                let Some(value) = integer(value) else {
                    return Attempt::unsupported(format!("the value of socket option {option} of level {level}"));
                };
                if let Err(errno) = socket.options.set((level, option), value) {
                    return Attempt::failed(errno);
                }
            }
        }
        let pushes = level == SOL_TCP && (option == 1 || (option == 3 && integer(value) == Some(0)));
        self.reconfigure(fd, pushes)
    }

    /// Applies options set late to an existing connection, and to those a listener has not accepted yet.
    fn reconfigure(&mut self, fd: i64, pushes: bool) -> Attempt {
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        let config = match self.config_for(socket) {
            Ok(config) => config,
            Err(reason) => return Attempt::Unsupported(reason),
        };
        let (cork, user_timeout) = (socket.options.cork, socket.options.user_timeout);
        match &socket.role {
            Role::Connection(id) => {
                let (id, now) = (*id, self.now);
                if let Some(connection) = self.endpoint.connection_mut(id) {
                    if connection.user_timeout() != user_timeout {
                        connection.set_user_timeout(now, user_timeout, false);
                    }
                    connection.reconfigure(now, config);
                }
                if pushes {
                    // Linux pushes held data even if the socket stays corked.
                    self.endpoint.connection_mut(id).into_iter().for_each(|connection| connection.set_cork(false));
                    self.settle();
                    self.endpoint.connection_mut(id).into_iter().for_each(|connection| connection.set_cork(cork));
                }
                self.settle();
            }
            Role::Listener { port, .. } => {
                let port = *port;
                self.endpoint.unlisten(port);
                self.relisten(port, config);
            }
            Role::Fresh { .. } => {}
        }
        Attempt::done(0)
    }

    pub(super) fn getsockopt(&mut self, args: &[Expr]) -> Attempt {
        let [fd, level, name, expected, ..] = args else { return Attempt::malformed() };
        let (Some(fd), Some(level), Some(option)) = (integer(fd), integer(level), integer(name)) else {
            return Attempt::unsupported(format!("the socket option {name:?}"));
        };
        if !self.sockets.contains_key(&fd) {
            return Attempt::failed("EBADF");
        }
        let actual = match self.read_option(fd, level, option) {
            Ok(Some(value)) => value,
            Ok(None) => return Attempt::unsupported(format!("reading socket option {option} of level {level}")),
            Err(text) => {
                let mismatch = match expected {
                    Expr::Text(wanted) if *wanted != text => Some(format!("the value \"{text}\"")),
                    _ => None,
                };
                return Attempt::Done(Returned { mismatch, ..Returned::value(0) });
            }
        };
        let mismatch = integer(expected).filter(|&wanted| wanted != actual).map(|_| format!("the value {actual}"));
        Attempt::Done(Returned { mismatch, ..Returned::value(0) })
    }

    /// The numeric value of an option; the value of a text option is returned as an error.
    fn read_option(&mut self, fd: i64, level: i64, option: i64) -> Result<Option<i64>, String> {
        let Some(socket) = self.sockets.get(&fd) else { return Ok(None) };
        let connection = socket.connection().and_then(|id| self.endpoint.connection(id));
        let options = &socket.options;
        let value = match (level, option) {
            (SOL_SOCKET, 4) => self.take_error(fd).map_or(0, errno),
            (SOL_SOCKET, 7) => options.send_buffer.unwrap_or(self.settings.wmem[1]).into(),
            (SOL_SOCKET, 8) => options.receive_buffer.unwrap_or(self.settings.rmem[1]).into(),
            (SOL_TCP, 2) => match connection {
                Some(connection) if connection.state().is_synchronized() => connection.snd_mss().into(),
                _ => options.max_segment.map_or(536, i64::from),
            },
            (SOL_TCP, 13) => {
                return Err(options
                    .congestion_control
                    .clone()
                    .unwrap_or_else(|| self.settings.congestion_control.clone()));
            }
            (SOL_TCP, 25) => options.notsent_lowat.unwrap_or(0).into(),
            (SOL_IP, 14) | (SOL_IPV6, 24) => self.settings.mtu().into(),
            _ => return Ok(options.others.get(&(level, option)).copied()),
        };
        Ok(Some(value))
    }
}
