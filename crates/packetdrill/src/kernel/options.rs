//! The calls that set and read socket options.

use super::Kernel;
use super::attempt::{Attempt, Returned};
use super::fast_open::key;
use super::socket::Role;
use super::socket_options::{SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_TCP};
use crate::ast::Expr;
use crate::constants::{errno, integer};
use crate::settings::Settings;

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
            (SOL_TCP, 8, _) if integer(value).is_some_and(|seconds| seconds < 0) => {
                return Attempt::unsupported("TCP_LINGER2 below 0");
            }
            (SOL_TCP, 30, _) if !self.settings.has_fast_open(Settings::FAST_OPEN_CLIENT) => {
                return Attempt::failed("EOPNOTSUPP");
            }
            _ => {
                let Some(value) = integer(value) else {
                    return Attempt::unsupported(format!("the value of socket option {option} of level {level}"));
                };
                let value = match (level, option) {
                    // Linux `tcp_set_rcvlowat`: half of the receive buffer at most; a negative value asks for that.
                    (SOL_SOCKET, 18) => {
                        let buffer = socket.options.receive_buffer.unwrap_or(self.settings.rmem[2]);
                        let most = i64::from(buffer / 2);
                        if value < 0 { most } else { value.clamp(1, most.max(1)) }
                    }
                    // `TCP_FIN_TIMEOUT_MAX`.
                    (SOL_TCP, 8) => value.min(120),
                    _ => value,
                };
                if let Err(errno) = socket.options.set((level, option), value) {
                    return Attempt::failed(errno);
                }
            }
        }
        if (level, option) == (SOL_TCP, 12) {
            self.set_quick_ack(fd, integer(value).unwrap_or(0));
        }
        let pushes = level == SOL_TCP && (option == 1 || (option == 3 && integer(value) == Some(0)));
        self.reconfigure(fd, pushes)
    }

    /// `TCP_QUICKACK`: of an even value, only the ACK that is due is sent at once.
    fn set_quick_ack(&mut self, fd: i64, value: i64) {
        let id = self.sockets.get(&fd).and_then(|socket| socket.connection());
        if let Some(connection) = id.and_then(|id| self.endpoint.connection_mut(id)) {
            connection.set_quick_ack(value != 0);
            self.settle();
        }
        if let Some(connection) = id.and_then(|id| self.endpoint.connection_mut(id)).filter(|_| value & 1 == 0) {
            connection.set_quick_ack(false);
        }
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
            (SOL_SOCKET, 7) => {
                let of_connection = connection.map(|connection| connection.send_buffer_bytes());
                options.send_buffer.or(of_connection).unwrap_or(self.settings.wmem[1]).into()
            }
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
