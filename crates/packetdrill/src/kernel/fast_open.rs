//! Fast Open at sockets: `MSG_FASTOPEN`, `TCP_FASTOPEN_CONNECT`, and the global sysctls.

use bytes::Bytes;
use core::net::SocketAddr;
use std::sync::Arc;

use holdover_tcp::{Config, FastOpenConfig};

use super::Kernel;
use super::attempt::{Attempt, Progress};
use super::send::zeros;
use super::socket::Role;
use super::socket_options::SocketOptions;
use crate::settings::Settings;

/// The length of a key in bytes.
const KEY_LEN: usize = 16;

impl Settings {
    /// The Fast Open configuration of a socket with these options.
    pub(super) fn fast_open_config(&self, options: &SocketOptions) -> FastOpenConfig {
        let for_every_listener = self.has_fast_open(Self::FAST_OPEN_EVERY_LISTENER).then_some(u32::MAX);
        let max_pending = options.fast_open_queue.or(for_every_listener).unwrap_or(0);
        FastOpenConfig {
            max_pending: if self.has_fast_open(Self::FAST_OPEN_SERVER) { max_pending } else { 0 },
            takes_without_cookie: self.has_fast_open(Self::FAST_OPEN_SERVER_NO_COOKIE) || options.fast_open_no_cookie,
            sends_without_cookie: self.has_fast_open(Self::FAST_OPEN_CLIENT_NO_COOKIE) || options.fast_open_no_cookie,
            key: options.fast_open_key,
        }
    }
}

impl Kernel {
    /// Applies settings that take effect immediately, independent of sockets.
    pub(crate) fn apply_settings(&mut self) {
        if let Some(key) = self.settings.fast_open_key {
            self.endpoint.set_fast_open_key(key);
        }
        if core::mem::take(&mut self.settings.flush_metrics) {
            self.endpoint.forget_cookies();
        }
        let ids: Vec<_> = self.endpoint.connections().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                let config = self.settings.accurate_ecn(connection.config().accurate_ecn);
                connection.set_accurate_ecn(config);
            }
        }
        self.note_route();
    }

    /// `connect` with `TCP_FASTOPEN_CONNECT`: if the SYN may carry data, it waits for that data. `None` for an ordinary call.
    pub(super) fn put_off_connecting(&mut self, fd: i64, config: &Config) -> Option<Attempt> {
        let server = self.addresses.remote.ip();
        let socket = self.sockets.get_mut(&fd)?;
        let wanted = socket.options.fast_open_connect && self.settings.has_fast_open(Settings::FAST_OPEN_CLIENT);
        if !wanted || !self.endpoint.may_send_syn_data(config, server) {
            return None;
        }
        socket.put_off = true;
        Some(Attempt::done(0))
    }

    /// Sends a SYN, with data if allowed.
    pub(super) fn open(&mut self, fd: i64, config: Arc<Config>, data: Option<Bytes>) -> Result<usize, &'static str> {
        let socket = self.sockets.get_mut(&fd).ok_or("EBADF")?;
        let Role::Fresh { port } = socket.role else { return Err("EISCONN") };
        let local = port.map(|port| SocketAddr::new(self.addresses.local.ip(), port));
        let remote = self.addresses.remote;
        let opened = match data {
            Some(data) => self.endpoint.connect_fast_open(self.now, config, local, remote, data),
            None => self.endpoint.connect(self.now, config, local, remote).map(|id| (id, 0)),
        };
        let (id, len) = opened.map_err(|_| "EADDRINUSE")?;
        socket.role = Role::Connection(id);
        socket.connecting = true;
        socket.put_off = false;
        Ok(len)
    }

    /// A send that also connects.
    pub(super) fn send_with_syn(&mut self, fd: i64, len: usize, waits: bool, progress: &mut Progress) -> Attempt {
        if !self.settings.has_fast_open(Settings::FAST_OPEN_CLIENT) {
            return Attempt::failed("EOPNOTSUPP");
        }
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        let config = match self.config_for(socket) {
            Ok(config) => config,
            Err(reason) => return Attempt::Unsupported(reason),
        };
        match self.open(fd, config, Some(zeros(len))) {
            Err(errno) => Attempt::failed(errno),
            Ok(sent) => {
                (progress.started, progress.bytes) = (true, sent);
                match sent {
                    _ if waits => {
                        // The remaining data waits for the SYN-ACK.
                        progress.bytes += self.write_behind_syn(fd, len.saturating_sub(sent));
                        Attempt::Blocks
                    }
                    0 => Attempt::failed("EINPROGRESS"),
                    sent => Attempt::done(sent as i64),
                }
            }
        }
    }

    fn write_behind_syn(&mut self, fd: i64, len: usize) -> usize {
        let Some(id) = self.sockets.get(&fd).and_then(|socket| socket.connection()) else { return 0 };
        let mut written = 0;
        while let taken @ 1.. = self.write_some(id, len - written, usize::MAX, false) {
            written += taken;
        }
        written
    }
}

/// The key denoted by a script's escaped string; `None` if its length is wrong.
pub(super) fn key(text: &str, len: i64) -> Option<[u8; KEY_LEN]> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.strip_prefix(b"x").and_then(|after| after.split_at_checked(2)).filter(|_| first == b'\\');
        let value = escaped.and_then(|(digits, _)| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok());
        (rest, _) = match (escaped, value) {
            (Some((_, after)), Some(value)) => (after, bytes.push(value)),
            _ => (after, bytes.push(first)),
        };
    }
    let key = <[u8; KEY_LEN]>::try_from(bytes).ok()?;
    (len == KEY_LEN as i64).then_some(key)
}
