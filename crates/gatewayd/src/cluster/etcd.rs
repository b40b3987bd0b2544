//! etcd's JSON gateway (`/v3/...`, etcd 3.4 and later) over HTTP. Every call blocks.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::Agent;

use super::store::{Answer, Change, Claim, OwnerRecord, Registration, Request, Subject};

/// A request has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// No connection, or no answer in time.
    #[error("{endpoint}: {source}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// The answer ended early.
    #[error("{endpoint}: {source}")]
    Broken {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: io::Error,
    },
    /// etcd refused the request.
    #[error("{endpoint}: {message}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// etcd's message.
        message: String,
        /// gRPC's status code.
        code: u32,
    },
    /// The answer has no cluster id.
    #[error("{endpoint}: no answer of etcd: no cluster id; is this the address of etcd's JSON gateway (/v3)?")]
    Foreign {
        /// The endpoint.
        endpoint: String,
    },
    /// The answer is not in etcd's format.
    #[error("{endpoint}: no answer of etcd: {source}; it needs its JSON gateway (--enable-grpc-gateway), without TLS")]
    Unintelligible {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: serde_json::Error,
    },
}

/// The store of a cluster, and this gateway's registration in it.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) name: String,
    pub(crate) registration: Registration,
    pub(crate) lease: Duration,
    pub(crate) user: Option<(String, String)>,
}

/// Sends requests over its own connections, to one endpoint until that fails.
pub(crate) struct Client {
    settings: Settings,
    calls: Agent,
    watches: Agent,
    endpoint: usize,
    token: Option<String>,
}

/// gRPC's status code for an invalid token.
const UNAUTHENTICATED: u32 = 16;

/// The most keys in an answer. Each is a few hundred bytes.
const PAGE: usize = 1000;

/// The longest answer, or line of a watch, in bytes.
const LONGEST: u64 = 256 << 20;

/// The longest time for a request.
const LONGEST_REQUEST: Duration = Duration::from_secs(2);

impl Client {
    pub(crate) fn new(settings: Settings) -> Self {
        let within = (settings.lease / 4).min(LONGEST_REQUEST);
        let config = || {
            let config = Agent::config_builder().http_status_as_error(false).proxy(None).timeout_connect(Some(within));
            config.timeout_recv_response(Some(within))
        };
        let calls = config().timeout_global(Some(within)).build().into();
        let watches = config().timeout_recv_body(Some(settings.lease)).build().into();
        Self { settings, calls, watches, endpoint: 0, token: None }
    }

    /// Handles a request other than a watch. The next one goes to another endpoint if this one fails.
    pub(crate) fn handle(&mut self, request: &Request) -> Result<(u64, Answer), StoreError> {
        let answer = match request {
            Request::Join => self.join(),
            Request::KeepAlive { lease } => self.keep_alive(*lease),
            Request::List { from, at } => self.list(from, *at),
            Request::Claims(claims) => self.claim(claims),
            Request::Remove(keys) => self.remove(keys),
            Request::Watch { .. } => return Ok((0, Answer::WatchEnded { is_compacted: false })),
        };
        let answer = answer.and_then(|(store, answer)| match store {
            0 => Err(StoreError::Foreign { endpoint: self.endpoint().to_owned() }),
            store => Ok((store, answer)),
        });
        self.note(answer)
    }

    /// Watches for the duration of a lease. Passes each answer but the last one to `tell`.
    pub(crate) fn watch(&mut self, after: u64, tell: &mut dyn FnMut(u64, Answer)) -> Result<(u64, Answer), StoreError> {
        let answer = self.watch_once(after, tell);
        self.note(answer)
    }

    fn note<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.endpoint = (self.endpoint + 1) % self.settings.endpoints.len().max(1);
            self.token = None;
        }
        result
    }

    fn join(&mut self) -> Result<(u64, Answer), StoreError> {
        let seconds = self.settings.lease.as_secs().max(1).to_string();
        let granted: Granted = self.call("lease/grant", &json!({ "TTL": seconds }))?;
        let key = self.gateway_key(&self.settings.name);
        let value = encode(&self.settings.registration);
        let put: Put = self.call("kv/put", &json!({ "key": key, "value": value, "lease": granted.id.to_string() }))?;
        Ok((put.header.cluster_id, Answer::Joined { lease: granted.id, epoch: put.header.revision }))
    }

    fn keep_alive(&mut self, lease: u64) -> Result<(u64, Answer), StoreError> {
        let Streamed::<Kept> { result } = self.call("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        let answer = if result.ttl > 0 { Answer::KeptAlive } else { Answer::LeaseGone };
        Ok((result.header.cluster_id, answer))
    }

    fn list(&mut self, from: &[u8], at: u64) -> Result<(u64, Answer), StoreError> {
        let (prefix, range_end) = self.range();
        let key = if from.is_empty() { prefix } else { BASE64_STANDARD.encode(from) };
        // All pages are of one revision.
        let body = json!({ "key": key, "range_end": range_end, "limit": PAGE.to_string(), "revision": at.to_string() });
        let found: Range = self.call("kv/range", &body)?;
        let last = found.kvs.last().filter(|_| found.more).and_then(|pair| BASE64_STANDARD.decode(&pair.key).ok());
        // The least key after the last one.
        let next = last.map(|key| [&key[..], &[0]].concat());
        let changes = found.kvs.iter().filter_map(|pair| self.change(pair, false)).collect();
        let at = if at == 0 { found.header.revision } else { at };
        Ok((found.header.cluster_id, Answer::Listed { at, changes, next }))
    }

    fn claim(&mut self, claims: &[Claim]) -> Result<(u64, Answer), StoreError> {
        let owner = self.settings.name.clone();
        let operations = claims.iter().map(|claim| {
            let key = self.mobile_key(claim.mobile);
            let value = encode(&OwnerRecord { owner: owner.clone(), mac: claim.mac });
            let put = json!({ "request_put": { "key": key, "value": value } });
            conditional(&key, claim.over, &put)
        });
        let body = json!({ "success": operations.collect::<Vec<_>>() });
        let answer: Transaction = self.call("kv/txn", &body)?;
        let revision = answer.header.revision;
        let states = claims.iter().zip(answer.responses).map(|(claim, response)| {
            let inner = response.inner;
            let record = |record| Subject::Mobile { address: claim.mobile, record };
            if inner.succeeded {
                let own = OwnerRecord { owner: owner.clone(), mac: claim.mac };
                return Change { epoch: revision, subject: record(Some(own)) };
            }
            let found = inner.responses.iter().flat_map(|response| &response.found.kvs).next();
            found.and_then(|pair| self.change(pair, false)).unwrap_or(Change { epoch: revision, subject: record(None) })
        });
        Ok((answer.header.cluster_id, Answer::Claimed(states.collect())))
    }

    fn remove(&mut self, keys: &[(IpAddr, u64)]) -> Result<(u64, Answer), StoreError> {
        let operations = keys.iter().map(|&(mobile, epoch)| {
            let key = self.mobile_key(mobile);
            conditional(&key, epoch, &json!({ "request_delete_range": { "key": key } }))
        });
        let body = json!({ "success": operations.collect::<Vec<_>>() });
        let answer: Put = self.call("kv/txn", &body)?;
        Ok((answer.header.cluster_id, Answer::Removed))
    }

    fn watch_once(&mut self, after: u64, tell: &mut dyn FnMut(u64, Answer)) -> Result<(u64, Answer), StoreError> {
        let began = Instant::now();
        let (key, range_end) = self.range();
        let start = after.saturating_add(1).to_string();
        let body = json!({ "create_request": { "key": key, "range_end": range_end, "start_revision": start } });
        let response = self.post(true, "watch", &body)?;
        let mut lines = BufReader::new(response.into_body().into_reader());
        let (mut line, mut store, mut after) = (String::new(), 0, after);
        loop {
            line.clear();
            match lines.by_ref().take(LONGEST).read_line(&mut line) {
                // The watch has lasted for its full time.
                Err(_) if began.elapsed() >= self.settings.lease => {
                    return Ok((store, Answer::WatchEnded { is_compacted: false }));
                }
                Err(source) => return Err(StoreError::Broken { endpoint: self.endpoint().to_owned(), source }),
                Ok(0) => {
                    let source = io::ErrorKind::UnexpectedEof.into();
                    return Err(StoreError::Broken { endpoint: self.endpoint().to_owned(), source });
                }
                Ok(_) if line.trim().is_empty() => continue,
                Ok(_) => {}
            }
            let Streamed::<Watched> { result } = self.parse(&line)?;
            store = result.header.cluster_id;
            if result.compact_revision > 0 {
                return Ok((store, Answer::WatchEnded { is_compacted: true }));
            }
            if result.canceled {
                let message = format!("the watch was cancelled: {}", result.cancel_reason);
                return Err(StoreError::Refused { endpoint: self.endpoint().to_owned(), message, code: 0 });
            }
            // Not the header's revision: more events may follow up to that.
            let at = result.events.iter().map(|event| event.kv.mod_revision).max().unwrap_or(after).max(after);
            let changes = result.events.iter().filter_map(|event| self.change(&event.kv, event.kind == "DELETE"));
            tell(store, Answer::Changed { after, at, changes: changes.collect() });
            after = at;
        }
    }

    fn endpoint(&self) -> &str {
        self.settings.endpoints.get(self.endpoint).map_or("", String::as_str)
    }

    /// Calls a method, again with a new token if the former one was refused.
    fn call<T: DeserializeOwned>(&mut self, method: &str, body: &Value) -> Result<T, StoreError> {
        let mut response = self.post(false, method, body)?;
        let read = response.body_mut().with_config().limit(LONGEST).read_to_string();
        let endpoint = self.endpoint().to_owned();
        let text = read.map_err(|source| StoreError::Unreachable { endpoint, source: Box::new(source) })?;
        self.parse(&text)
    }

    fn post(
        &mut self,
        is_watch: bool,
        method: &str,
        body: &Value,
    ) -> Result<ureq::http::Response<ureq::Body>, StoreError> {
        self.authenticate()?;
        match self.post_once(is_watch, method, body) {
            Err(StoreError::Refused { code: UNAUTHENTICATED, .. }) if self.settings.user.is_some() => {
                self.token = None;
                self.authenticate()?;
                self.post_once(is_watch, method, body)
            }
            result => result,
        }
    }

    fn authenticate(&mut self) -> Result<(), StoreError> {
        let (None, Some((name, password))) = (&self.token, &self.settings.user) else { return Ok(()) };
        let body = json!({ "name": name, "password": password });
        let mut response = self.post_once(false, "auth/authenticate", &body)?;
        let endpoint = || self.endpoint().to_owned();
        let text = response.body_mut().read_to_string();
        let text = text.map_err(|source| StoreError::Unreachable { endpoint: endpoint(), source: Box::new(source) })?;
        let Token { token } = self.parse(&text)?;
        self.token = Some(token);
        Ok(())
    }

    fn post_once(
        &self,
        is_watch: bool,
        method: &str,
        body: &Value,
    ) -> Result<ureq::http::Response<ureq::Body>, StoreError> {
        let agent = if is_watch { &self.watches } else { &self.calls };
        let endpoint = self.endpoint();
        let mut request = agent.post(format!("{endpoint}/v3/{method}")).content_type("application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let unreachable = |source| StoreError::Unreachable { endpoint: endpoint.to_owned(), source: Box::new(source) };
        let mut response = request.send(body.to_string()).map_err(unreachable)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let text = response.body_mut().read_to_string().map_err(unreachable)?;
        let status = response.status();
        let refusal = serde_json::from_str(&text);
        let Refusal { message, code } = refusal.unwrap_or(Refusal { message: status.to_string(), code: 0 });
        Err(StoreError::Refused { endpoint: endpoint.to_owned(), message, code })
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, StoreError> {
        let endpoint = self.endpoint().to_owned();
        serde_json::from_str(text).map_err(|source| StoreError::Unintelligible { endpoint, source })
    }

    fn gateway_key(&self, name: &str) -> String {
        BASE64_STANDARD.encode(format!("{}gateways/{name}", self.settings.prefix))
    }

    fn mobile_key(&self, mobile: IpAddr) -> String {
        BASE64_STANDARD.encode(format!("{}mobiles/{mobile}", self.settings.prefix))
    }

    /// All keys with the prefix.
    fn range(&self) -> (String, String) {
        let prefix = self.settings.prefix.as_bytes();
        let mut end = prefix.to_vec();
        // The prefix is not empty, and ASCII.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (BASE64_STANDARD.encode(prefix), BASE64_STANDARD.encode(end))
    }

    /// The state of a key; `None` if it is neither a gateway's nor a mobile host's.
    fn change(&self, pair: &Pair, is_deleted: bool) -> Option<Change> {
        let key = String::from_utf8(BASE64_STANDARD.decode(&pair.key).ok()?).ok()?;
        let (kind, name) = key.strip_prefix(&self.settings.prefix)?.split_once('/')?;
        let value = BASE64_STANDARD.decode(&pair.value).unwrap_or_default();
        let subject = match kind {
            "gateways" => {
                let registration = serde_json::from_slice(&value).ok().filter(|_| !is_deleted);
                Subject::Gateway { name: name.to_owned(), registration }
            }
            "mobiles" => {
                // A value not written by a gateway names no owner. Its revision still counts: a claim needs a higher
                // one.
                let without_owner = || OwnerRecord { owner: String::new(), mac: None };
                let record = (!is_deleted).then(|| serde_json::from_slice(&value).unwrap_or_else(|_| without_owner()));
                Subject::Mobile { address: name.parse().ok()?, record }
            }
            _ => return None,
        };
        Some(Change { epoch: pair.mod_revision, subject })
    }
}

/// An operation on condition that the key has this revision (0: the key does not exist). Otherwise the key is read.
fn conditional(key: &str, revision: u64, operation: &Value) -> Value {
    json!({ "request_txn": {
        "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
        "success": [operation],
        "failure": [{ "request_range": { "key": key } }],
    } })
}

fn encode(value: &impl Serialize) -> String {
    // Serializing text and numbers does not fail.
    BASE64_STANDARD.encode(serde_json::to_vec(value).unwrap_or_default())
}

/// A number, which JSON represents as text; 0 if missing.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    cluster_id: u64,
    #[serde(deserialize_with = "number")]
    revision: u64,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
}

#[derive(Deserialize)]
struct Put {
    header: Header,
}

/// An answer in a stream.
#[derive(Deserialize)]
struct Streamed<T> {
    result: T,
}

#[derive(Deserialize)]
struct Kept {
    header: Header,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Range {
    header: Header,
    kvs: Vec<Pair>,
    /// Whether there are more keys than the limit.
    more: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pair {
    key: String,
    value: String,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Deserialize)]
struct Transaction {
    header: Header,
    #[serde(default)]
    responses: Vec<Operation>,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "response_txn")]
    inner: Inner,
}

#[derive(Deserialize)]
struct Inner {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "response_range", default)]
    found: Range,
}

#[derive(Deserialize)]
struct Watched {
    header: Header,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default, deserialize_with = "number")]
    compact_revision: u64,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    kv: Pair,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
    #[serde(default)]
    code: u32,
}
