//! TCP Fast Open (RFC 7413): the cookies that this host issues, and those that it has received.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{FastOpen, Flags, Segment};
use siphasher::sip::SipHasher24;

use super::{ConnectError, ConnectionId, Endpoint, Handshake, write_address};
use crate::config::Config;
use crate::connection::Connection;
use crate::connection::fast_open::{FastOpenAnswer, FastOpenVerdict};

/// Maximum number of servers; the least recently updated one is evicted.
const MAX_SERVERS: usize = 1024;

/// Cookies and options of servers for Fast Open.
#[derive(Clone, Debug, Default)]
pub(super) struct CookieCache {
    servers: BTreeMap<IpAddr, Server>,
    /// Counts updates: the lowest is the oldest.
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    cookie: Option<FastOpen>,
    mss: Option<u16>,
    /// The experimental option: whether the server answers it.
    experiment: Experiment,
    heard_at: u64,
}

/// Whether a server that does not answer a request of kind 34 is asked with the experiment's option (Linux `try_exp`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Experiment {
    #[default]
    NotTried,
    Next,
    InVain,
}

impl CookieCache {
    /// The option for a SYN to this server: its cookie, or the request for one.
    fn option(&self, server: IpAddr) -> FastOpen {
        let known = self.servers.get(&server).copied().unwrap_or_default();
        known.cookie.unwrap_or(FastOpen::REQUEST.as_experiment(known.experiment == Experiment::Next))
    }

    fn mss(&self, server: IpAddr) -> Option<u16> {
        self.servers.get(&server)?.mss
    }

    /// Learns from a SYN-ACK (Linux `tcp_fastopen_cache_set`).
    pub(super) fn learn(&mut self, server: IpAddr, answer: FastOpenAnswer) {
        self.clock += 1;
        if !self.servers.contains_key(&server) && self.servers.len() >= MAX_SERVERS {
            let oldest = self.servers.iter().min_by_key(|(_, server)| server.heard_at).map(|(address, _)| *address);
            oldest.map(|oldest| self.servers.remove(&oldest));
        }
        let known = self.servers.entry(server).or_default();
        known.heard_at = self.clock;
        known.mss = answer.mss.or(known.mss);
        if answer.cookie.is_some() {
            known.cookie = answer.cookie;
        } else if let Some(asked) = answer.unanswered.filter(|_| known.cookie.is_none()) {
            let next = if asked.is_experiment() { Experiment::InVain } else { Experiment::Next };
            known.experiment = known.experiment.max(next);
        }
    }

    fn clear(&mut self) {
        self.servers.clear();
    }
}

/// A client.
impl Endpoint {
    /// Opens a connection as [`Self::connect`] does, with `data` in the SYN if the server has given a cookie for that (RFC 7413
    /// section 4.1.2), or if the configuration asks for no cookie. Otherwise the SYN asks for one. Returns how many bytes of `data`
    /// the SYN takes along: the others, and all of them without a cookie, are still to be written.
    ///
    /// Data in a SYN may be delivered twice to a server that restarts (section 6.1): send only idempotent requests so.
    pub fn connect_fast_open(
        &mut self,
        now: Instant,
        config: Arc<Config>,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        mut data: Bytes,
    ) -> Result<(ConnectionId, usize), ConnectError> {
        let option = (!config.fast_open.sends_without_cookie).then(|| self.cookies.option(remote.ip()));
        let mss = self.cookies.mss(remote.ip()).map_or(config.mss, |mss| mss.min(config.mss));
        let room = if self.may_send_syn_data(&config, remote.ip()) {
            mss.saturating_sub(Connection::SYN_DATA_HEADROOM).into()
        } else {
            0
        };
        data.truncate(room);
        let len = data.len();
        let id = self.connect(now, config, local, remote)?;
        if let Some(connection) = self.connection_mut(id) {
            connection.begin_fast_open(now, option, data);
        }
        Ok((id, len))
    }

    /// Whether the SYN of [`Self::connect_fast_open`] to this server would carry data.
    pub fn may_send_syn_data(&self, config: &Config, server: IpAddr) -> bool {
        config.fast_open.sends_without_cookie || !self.cookies.option(server).is_request()
    }

    /// Forgets the cookies and the MSS of all servers.
    pub fn forget_cookies(&mut self) {
        self.cookies.clear();
    }

    /// Learns from the SYN-ACK of a completed handshake.
    pub(super) fn learn_cookie(&mut self, index: u32) {
        if let Some(connection) = self.entries[index as usize].connection.as_deref_mut()
            && let Some(answer) = connection.take_answer()
        {
            self.cookies.learn(connection.remote().ip(), answer);
        }
    }
}

/// A server.
impl Endpoint {
    /// Sets the key for this host's cookies; the initial one is derived from the endpoint's secret. Cookies of another
    /// key become invalid, and their clients get new ones.
    pub fn set_fast_open_key(&mut self, key: [u8; 16]) {
        self.cookie_key = key;
    }

    /// The decision on the option of a SYN to the listener at `port` (RFC 7413 section 4.2.2); `None` without Fast
    /// Open.
    pub(super) fn fast_open_verdict(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        syn: &Segment,
    ) -> Option<FastOpenVerdict> {
        let listener = self.listeners.get(&local.port())?;
        let config = listener.config.fast_open;
        let option = syn.options.fast_open.as_deref();
        let is_for_us = option.is_some() || !syn.payload.is_empty();
        // A FIN in the SYN has to wait for the end of the handshake.
        if !is_for_us || syn.flags.contains(Flags::FIN) || listener.early >= config.max_pending as usize {
            return None;
        }
        let valid = cookie(&config.key.unwrap_or(self.cookie_key), remote.ip(), local.ip());
        let has_valid = option.is_some_and(|option| option.cookie() == valid.cookie());
        if has_valid || config.takes_without_cookie {
            return Some(FastOpenVerdict::Take);
        }
        option.map(|option| FastOpenVerdict::Grant(valid.as_experiment(option.is_experiment())))
    }

    /// A SYN arrived at a listener: creates its connection, with the data in the SYN if that is acceptable.
    pub(super) fn insert_accepted(
        &mut self,
        now: Instant,
        mut connection: Connection,
        syn: &Segment,
        verdict: Option<FastOpenVerdict>,
    ) -> ConnectionId {
        if let Some(verdict) = verdict {
            connection.answer_fast_open(now, syn, verdict);
        }
        let handshake = if connection.is_early() { Handshake::Early } else { Handshake::HalfOpen };
        if let Some(listener) = self.listeners.get_mut(&connection.local().port()) {
            match handshake {
                Handshake::Early => listener.early += 1,
                _ => listener.half_open += 1,
            }
        }
        self.insert(connection, handshake)
    }
}

/// The cookie of a client: a keyed hash of both addresses (RFC 7413 section 4.1.2), as Linux makes it (SipHash-2-4), so that hosts
/// behind one address can share a key.
fn cookie(key: &[u8; 16], client: IpAddr, server: IpAddr) -> FastOpen {
    let mut hasher = SipHasher24::new_with_key(key);
    write_address(&mut hasher, client);
    write_address(&mut hasher, server);
    FastOpen::new(&hasher.finish().to_le_bytes()).unwrap_or(FastOpen::REQUEST)
}

/// A key for cookies derived from the endpoint's secret, which the key does not reveal.
pub(super) fn cookie_key(secret: &SipHasher24) -> [u8; 16] {
    let half = |label: &[u8]| {
        let mut hasher = *secret;
        hasher.write(label);
        hasher.finish().to_le_bytes()
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&half(b"fast open, first"));
    key[8..].copy_from_slice(&half(b"fast open, second"));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cookies that Linux has made: its selftests have some, others are from google/packetdrill's.
    #[test]
    fn cookies_are_those_of_linux() {
        let made = |key: [u32; 4], client: [u8; 4], server: [u8; 4]| {
            let mut bytes = [0; 16];
            for (to, word) in bytes.chunks_exact_mut(4).zip(key) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            cookie(&bytes, client.into(), server.into()).to_string()
        };
        let key = [0xa1a1_a1a1, 0xb2b2_b2b2, 0xc3c3_c3c3, 0xd4d4_d4d4];
        assert_eq!(made(key, [192, 0, 2, 1], [192, 168, 0, 1]), "FO 3021b9d889017eeb");
        assert_eq!(made([0; 4], [192, 0, 2, 1], [192, 168, 0, 1]), "FO b7c12350a90dc8f5");
        let key = [0xa0bf_63f7, 0xed80_3d81, 0xcd64_1d30, 0xcebc_4a90];
        assert_eq!(made(key, [10, 248, 0, 2], [192, 168, 0, 2]), "FO 00abaaabe8e954c2");
    }

    #[test]
    fn the_oldest_server_is_forgotten_first() {
        let mut cache = CookieCache::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let cookie = FastOpen::new(&[1; 8]);
        let answer = FastOpenAnswer { cookie, mss: Some(1000), unanswered: None };
        (0..MAX_SERVERS as u32).for_each(|n| cache.learn(address(n), answer));
        cache.learn(address(0), answer);
        cache.learn(address(70_000), answer);
        assert_eq!(cache.servers.len(), MAX_SERVERS);
        assert!(!cache.option(address(0)).is_request() && cache.option(address(1)).is_request());
    }
}
