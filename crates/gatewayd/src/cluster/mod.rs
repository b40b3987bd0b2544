//! Several gateways agree in etcd which of them owns a mobile host ([`ownership`]). Requests to the store ([`etcd`])
//! block threads of their own; the engine exchanges requests and replies with them and never waits.

mod epoch;
mod etcd;
mod ownership;
mod store;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use holdover_base::Instant;
use holdover_host::log::with_causes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::config::{ClusterTable, Config};
use crate::presence::{SecretError, read_secret};
pub(crate) use epoch::Epoch;
use etcd::{Client, Settings, StoreError};
pub use ownership::OwnershipCounters;
pub(crate) use ownership::{Admission, Event, Evidence, Ownership};
use store::{Answer, Kind, Numbered, Registration, Reply, Request};

/// The state of a cluster, as this gateway knows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// This gateway's name.
    pub name: String,
    /// Whether the store answers, and all its keys are known.
    pub connected: bool,
    /// For how long requests to the store have failed.
    pub away_s: Option<f64>,
    /// The reason.
    pub failure: Option<String>,
    /// Whether this gateway's lease is valid.
    pub registered: bool,
    /// Whether another process has registered under this gateway's name.
    pub superseded: bool,
    /// The other gateways.
    pub gateways: Vec<GatewayLine>,
    /// Mobile hosts that this gateway owns.
    pub owned: u64,
    /// Mobile hosts with an unanswered claim of this gateway.
    pub claimed: u64,
    /// Mobile hosts that other gateways own.
    pub elsewhere: u64,
    /// Mobile hosts of gateways that have lost their leases, which this gateway is ready to take over.
    #[serde(default)]
    pub adopted: u64,
    /// Those for which it has no room: packets for them are not kept before they are heard here.
    #[serde(default)]
    pub not_adopted: u64,
    /// The latest epoch: the store's revision of the last change.
    pub epoch: u64,
    /// Counters.
    pub counters: OwnershipCounters,
}

/// Another gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GatewayLine {
    /// Its name.
    pub name: String,
    /// Its address for handoffs.
    pub address: SocketAddr,
    /// Whether its lease is valid.
    pub alive: bool,
}

/// The ownership, and the threads that send requests to the store.
pub(crate) struct Cluster {
    name: String,
    pub(crate) ownership: Ownership,
    /// By [`thread_of`].
    threads: [Sender<Numbered>; 3],
    replies: Receiver<Reply>,
    wakes: Arc<OwnedFd>,
}

/// The thread for requests of a kind: leases are renewed even while claims or a watch take long.
fn thread_of(kind: Kind) -> usize {
    match kind {
        Kind::Session | Kind::List => 0,
        Kind::Claims | Kind::Removal => 1,
        Kind::Watch => 2,
    }
}

/// The gateway cannot join the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The password cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A thread or a descriptor was refused.
    #[error("cannot start [cluster]")]
    Start(#[from] io::Error),
}

impl Cluster {
    /// `None` if it is not configured.
    pub(crate) fn open(now: Instant, all: &Config) -> Result<Option<Self>, ClusterError> {
        let config = &all.cluster;
        let (Some(name), Some(handoff)) = (&config.name, all.handoff.listen) else { return Ok(None) };
        let mut process = [0; 8];
        getrandom(&mut process[..], GetRandomFlags::empty()).map_err(io::Error::from)?;
        let registration = Registration { handoff, process: u64::from_ne_bytes(process) };
        let settings = Settings::new(config, registration.clone())?;
        let wakes = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let (tell, replies) = channel();
        let start = |name: &str| -> io::Result<Sender<Numbered>> {
            let (sender, requests) = channel();
            let outbox = Outbox { replies: tell.clone(), wakes: Arc::clone(&wakes) };
            let client = Client::new(settings.clone());
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(move || serve(client, &requests, &outbox))?;
            Ok(sender)
        };
        let threads = [start("etcd-session")?, start("etcd-claims")?, start("etcd-watch")?];
        if let Some(endpoint) = config.password_in_clear() {
            tracing::warn!(endpoint, "etcd's password crosses the network in clear: [cluster] password_file");
        }
        // Packets that an earlier process has stored may wait for this long.
        let keep = all.presence.forget_after.0.max(all.buffer.longest.0);
        let ownership = Ownership::new(now, name, registration, config.lease.0, keep);
        Ok(Some(Self { name: name.clone(), ownership, threads, replies, wakes }))
    }

    /// Readable when there are replies.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    /// Handles replies.
    pub(crate) fn handle_ready(&mut self, now: Instant) {
        let mut counter = [0; 8];
        // Cleared before the replies are read: a later reply sets it again.
        let _ = rustix::io::read(&self.wakes, &mut counter);
        while let Ok(reply) = self.replies.try_recv() {
            self.ownership.handle_reply(now, reply);
        }
    }

    /// Sends the requests that are due.
    pub(crate) fn flush(&mut self) {
        while let Some(numbered) = self.ownership.poll_request() {
            // A thread ends with this value only.
            let _ = self.threads[thread_of(numbered.request.kind())].send(numbered);
        }
    }

    pub(crate) fn status(&self, now: Instant) -> ClusterStatus {
        let ownership = &self.ownership;
        let (owned, claimed, elsewhere, epoch) = ownership.tally();
        let failure = ownership.failure();
        let line = |(name, gateway): (&str, &ownership::Gateway)| GatewayLine {
            name: name.to_owned(),
            address: gateway.address,
            alive: gateway.gone_at.is_none(),
        };
        ClusterStatus {
            name: self.name.clone(),
            connected: ownership.is_connected(),
            away_s: failure.map(|(since, _)| now.saturating_since(since).as_secs_f64()),
            failure: failure.map(|(_, reason)| reason.to_owned()),
            registered: ownership.is_registered(now),
            superseded: ownership.is_superseded(),
            gateways: ownership.gateways().map(line).collect(),
            owned,
            claimed,
            elsewhere,
            adopted: 0,
            not_adopted: 0,
            epoch,
            counters: ownership.counters(),
        }
    }
}

impl Settings {
    fn new(config: &ClusterTable, registration: Registration) -> Result<Self, SecretError> {
        let user = match (&config.user, &config.password_file) {
            (Some(user), Some(file)) => Some((user.clone(), read_secret(file)?.trim().to_owned())),
            _ => None,
        };
        Ok(Self {
            endpoints: config.endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_owned()).collect(),
            prefix: config.prefix.clone(),
            name: config.name.clone().unwrap_or_default(),
            registration,
            lease: std::time::Duration::from_nanos(config.lease.0.as_nanos()),
            user,
        })
    }
}

/// Where a thread puts its replies.
struct Outbox {
    replies: Sender<Reply>,
    wakes: Arc<OwnedFd>,
}

impl Outbox {
    fn put(&self, id: u64, kind: Kind, result: Result<(u64, Answer), String>) {
        // Without a receiver, the daemon is ending.
        let _ = self.replies.send(Reply { id, kind, result });
        let _ = rustix::io::write(&self.wakes, &1_u64.to_ne_bytes());
    }
}

fn serve(mut client: Client, requests: &Receiver<Numbered>, outbox: &Outbox) {
    for Numbered { id, request } in requests {
        let kind = request.kind();
        let result = match request {
            Request::Watch { after } => {
                client.watch(after, &mut |store, answer| outbox.put(id, kind, Ok((store, answer))))
            }
            request => client.handle(&request),
        };
        outbox.put(id, kind, result.map_err(|error| with_causes(&error)));
    }
}

/// Queries the members of the store until one answers. Returns the number of keys of gateways and of mobile hosts.
pub(crate) fn probe(config: &ClusterTable) -> Result<usize, String> {
    let nowhere = Registration { handoff: ([0, 0, 0, 0], 0).into(), process: 0 };
    let mut client = Client::new(Settings::new(config, nowhere).map_err(|error| with_causes(&error))?);
    let mut last = Err("there are no endpoints".to_owned());
    for _ in &config.endpoints {
        last = count_keys(&mut client).map_err(|error| with_causes(&error));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn count_keys(client: &mut Client) -> Result<usize, StoreError> {
    let (mut count, mut from, mut revision) = (0, Vec::new(), 0);
    loop {
        let (_, answer) = client.handle(&Request::List { from, at: revision })?;
        let Answer::Listed { at, changes, next } = answer else { return Ok(count) };
        count += changes.len();
        let Some(next) = next else { return Ok(count) };
        (from, revision) = (next, at);
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("ownership", &self.ownership).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
