//! Applications: their actions on events of their connection, and on timers.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{ByteCount, Instant};
use holdover_tcp::{Connection, Event};
use holdover_wire::{Packet, Udp};

use crate::config::{Amount, Bulk, FlowConfig, OnOff, RequestResponse, Traffic};
use crate::error::WorldError;
use crate::external::ShellCommand;
use crate::flow::{End, Flow};
use crate::frame::ZEROS;
use crate::host::Host;
use crate::ids::FlowId;
use crate::observer::{Observer, WorldEvent};

/// Whether a flow's description is valid.
pub(crate) fn check(flow: &FlowConfig) -> Result<(), WorldError> {
    let zero = |field| Err(WorldError::Zero { flow: flow.name.clone(), field });
    match flow.traffic {
        Traffic::Bulk(bulk) => match bulk.amount {
            Amount::Bytes(ByteCount(0)) => zero("the amount"),
            Amount::For(time) if time.is_zero() => zero("the duration"),
            _ => Ok(()),
        },
        Traffic::RequestResponse(exchange) => match exchange {
            RequestResponse { request: ByteCount(0), .. } => zero("the request"),
            RequestResponse { response: ByteCount(0), .. } => zero("the response"),
            RequestResponse { count: Some(0), .. } => zero("the count"),
            _ => Ok(()),
        },
        Traffic::OnOff(bursts) => {
            if bursts.shape.is_nan() || bursts.shape <= 1.0 {
                return Err(WorldError::Shape { flow: flow.name.clone(), shape: bursts.shape });
            }
            match bursts {
                OnOff { datagram: ByteCount(0), .. } => zero("the datagram"),
                OnOff { rate, .. } if rate.0 == 0 => zero("the rate"),
                OnOff { mean_on, .. } if mean_on.is_zero() => zero("mean_on"),
                _ => Ok(()),
            }
        }
    }
}

/// The turn of one end of a flow.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    pub(crate) flow_id: FlowId,
    pub(crate) flow: &'a mut Flow,
    pub(crate) host: &'a mut Host,
    pub(crate) shell_commands: &'a mut VecDeque<ShellCommand>,
}

impl Turn<'_> {
    /// Opens the flow's connection.
    pub(crate) fn open<O: Observer>(&mut self, end: End, observer: &mut O) {
        let config = match end {
            End::From => Arc::clone(&self.flow.config.sender),
            End::To => Arc::clone(&self.flow.config.receiver),
        };
        let local = SocketAddr::new(self.flow.address(end), 0);
        let remote = SocketAddr::new(self.flow.address(end.other()), self.flow.port);
        if self.host.external {
            return self.shell_commands.push_back(ShellCommand::Connect {
                flow: self.flow_id,
                end,
                local: local.ip(),
                remote,
            });
        }
        let opened = if config.fast_open.max_pending > 0 {
            let data = self.first_data(end);
            self.host.endpoint.connect_fast_open(self.now, config, Some(local), remote, data)
        } else {
            self.host.endpoint.connect(self.now, config, Some(local), remote).map(|id| (id, 0))
        };
        match opened {
            Ok((id, taken)) => {
                self.flow.note_written(end, taken as u64);
                self.flow.set_connection(end, id);
                self.host.set_owner(id, self.flow_id, end);
            }
            Err(_) => self.fail(holdover_tcp::ConnectionError::Unreachable, observer),
        }
    }

    /// The data that `end` has when it opens the connection, for the SYN: an exchange begins with it.
    fn first_data(&mut self, end: End) -> Bytes {
        let len = match (self.flow.config.traffic, end) {
            (Traffic::Bulk(Bulk { amount: Amount::Bytes(total), .. }), End::From) => total.0,
            (Traffic::Bulk(_), End::From) => u64::MAX,
            (Traffic::RequestResponse(config), End::From) => {
                self.begin_exchange(&config);
                config.request.0
            }
            _ => 0,
        };
        Bytes::from_static(&ZEROS[..len.min(ZEROS.len() as u64) as usize])
    }

    fn begin_exchange(&mut self, config: &RequestResponse) {
        self.flow.exchange.to_ask = config.request.0;
        self.flow.exchange.asked_at = Some(self.now);
    }

    /// Handles an event of the connection at `end`.
    pub(crate) fn hear<O: Observer>(&mut self, end: End, event: Event, observer: &mut O) {
        match event {
            Event::Connected => self.connected(end, observer),
            Event::Writable => self.write(end),
            Event::Readable => {
                let now = self.now;
                let Some(id) = self.flow.connection(end) else { return };
                let mut read = 0;
                self.host.endpoint.read(now, id, |chunk| read += chunk.len() as u64);
                self.take_in(end, read, observer);
            }
            Event::PeerClosed => self.peer_closed(end, observer),
            Event::Closed => {
                let error = self.connection_mut(end).and_then(|connection| connection.error());
                if let Some(error) = error {
                    self.fail(error, observer);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn fail<O: Observer>(&mut self, error: holdover_tcp::ConnectionError, observer: &mut O) {
        if !self.flow.is_over() {
            self.flow.failure = Some((self.now, error));
            observer.event(self.now, &WorldEvent::FlowFailed(self.flow_id, error));
        }
    }

    fn complete<O: Observer>(&mut self, observer: &mut O) {
        if !self.flow.is_over() {
            self.flow.completed_at = Some(self.now);
            observer.event(self.now, &WorldEvent::FlowCompleted(self.flow_id));
        }
    }

    /// Handles an established connection.
    pub(crate) fn connected<O: Observer>(&mut self, end: End, observer: &mut O) {
        if end == self.flow.opener() {
            self.flow.connected_at = Some(self.now);
            observer.event(self.now, &WorldEvent::FlowConnected(self.flow_id));
        }
        if let Traffic::RequestResponse(config) = self.flow.config.traffic
            && end == End::From
            && self.flow.exchange.asked_at.is_none()
            && self.flow.exchange.times.is_empty()
        {
            self.begin_exchange(&config);
        }
        self.write(end);
    }

    /// The pause is over: sends the next request.
    pub(crate) fn ask(&mut self) {
        let Traffic::RequestResponse(config) = self.flow.config.traffic else { return };
        self.flow.exchange.ask_at = None;
        self.begin_exchange(&config);
        self.write(End::From);
    }

    /// Writes the pending data, as far as it fits.
    fn write(&mut self, end: End) {
        if self.host.external {
            return self.order_write(end);
        }
        let left = match (self.flow.config.traffic, end) {
            (Traffic::Bulk(bulk), End::From) => match bulk.amount {
                Amount::Bytes(total) => total.0 - self.flow.written,
                Amount::For(time) if self.now < self.flow.config.start + time => u64::MAX,
                Amount::For(_) => 0,
            },
            (Traffic::RequestResponse(_), End::From) => self.flow.exchange.to_ask,
            (Traffic::RequestResponse(_), End::To) => self.flow.exchange.to_answer,
            _ => return,
        };
        let bulk = matches!(self.flow.config.traffic, Traffic::Bulk(_));
        // Stacks wake a writer when a considerable part of the buffer is free (an eighth in 4.3BSD, a third in Linux), and it writes in
        // large chunks.
        let Some(id) = self.flow.connection(end) else { return };
        let Some(connection) = self.host.endpoint.connection(id) else { return };
        let worth_it = u64::from(connection.send_buffer_bytes() / 8).min(ZEROS.len() as u64).min(left);
        if (connection.write_room() as u64) < worth_it.max(1) && left > 0 {
            return;
        }
        let Some(connection) = self.host.endpoint.connection_mut(id) else { return };
        let mut left = left;
        while left > 0 {
            let len = left.min(ZEROS.len() as u64) as usize;
            let taken = connection.write(self.now, Bytes::from_static(&ZEROS[..len])) as u64;
            left -= taken;
            self.flow.note_written(end, taken);
            if taken == 0 {
                return;
            }
        }
        if bulk {
            connection.shutdown_write();
        }
    }

    /// The application at `end` has read this many bytes.
    pub(crate) fn take_in<O: Observer>(&mut self, end: End, read: u64, observer: &mut O) {
        if read == 0 {
            return;
        }
        match end {
            End::From => self.flow.read_at_from += read,
            End::To => self.flow.read_at_to += read,
        }
        if let Some(idle) = self.flow.note_new_data(self.now) {
            observer.event(self.now, &WorldEvent::FlowResumed(self.flow_id, idle));
        }
        match self.flow.config.traffic {
            Traffic::Bulk(bulk) if end == End::To && bulk.amount == Amount::Bytes(ByteCount(self.flow.read_at_to)) => {
                self.complete(observer);
            }
            Traffic::RequestResponse(config) => self.exchange(end, &config, observer),
            _ => {}
        }
    }

    /// Part of a request or of an answer has arrived.
    fn exchange<O: Observer>(&mut self, end: End, config: &RequestResponse, observer: &mut O) {
        let done = self.flow.exchange.times.len() as u64;
        match end {
            End::To => {
                if self.flow.read_at_to >= (done + 1) * config.request.0 {
                    self.flow.exchange.to_answer = config.response.0;
                    self.write(End::To);
                }
            }
            End::From => {
                if self.flow.read_at_from < (done + 1) * config.response.0 {
                    return;
                }
                if let Some(asked_at) = self.flow.exchange.asked_at.take() {
                    let took = self.now.saturating_since(asked_at);
                    self.flow.exchange.times.push(took);
                    observer.event(self.now, &WorldEvent::Exchange(self.flow_id, took));
                }
                if config.count == Some(done + 1) {
                    self.complete(observer);
                    self.shutdown(end);
                } else {
                    self.flow.exchange.ask_at = Some(self.now + config.think);
                }
            }
        }
    }

    /// The other end has closed.
    pub(crate) fn peer_closed<O: Observer>(&mut self, end: End, observer: &mut O) {
        if let Traffic::Bulk(bulk) = self.flow.config.traffic
            && end == End::To
            && matches!(bulk.amount, Amount::For(_))
        {
            self.complete(observer);
        }
        self.shutdown(end);
    }

    fn shutdown(&mut self, end: End) {
        if self.host.external {
            self.shell_commands.push_back(ShellCommand::Shutdown { flow: self.flow_id, end });
        } else if let Some(connection) = self.connection_mut(end) {
            connection.shutdown_write();
        }
    }

    /// Commands the rest of the data to be written elsewhere, at once.
    fn order_write(&mut self, end: End) {
        let exchange = &mut self.flow.exchange;
        let (bytes, until) = match (self.flow.config.traffic, end) {
            (Traffic::Bulk(Bulk { amount: Amount::Bytes(total), .. }), End::From) => {
                let left = total.0 - self.flow.written;
                self.flow.written = total.0;
                (left, None)
            }
            (Traffic::Bulk(Bulk { amount: Amount::For(time), .. }), End::From) => {
                (u64::MAX, Some(self.flow.config.start + time))
            }
            (Traffic::RequestResponse(_), End::From) => (core::mem::take(&mut exchange.to_ask), None),
            (Traffic::RequestResponse(_), End::To) => (core::mem::take(&mut exchange.to_answer), None),
            _ => return,
        };
        if bytes > 0 {
            self.shell_commands.push_back(ShellCommand::Write { flow: self.flow_id, end, bytes, until });
        }
        if let Traffic::Bulk(_) = self.flow.config.traffic {
            self.shutdown(end);
        }
    }

    fn connection_mut(&mut self, end: End) -> Option<&mut Connection> {
        self.host.endpoint.connection_mut(self.flow.connection(end)?)
    }
}

/// The next datagram of a source of bursts, and when the following one is due; `None` when the flow only begins.
pub(crate) fn datagram(flow: &mut Flow, now: Instant, config: &OnOff) -> Option<Packet> {
    let len = config.datagram.0.min(ZEROS.len() as u64 - 64) as usize;
    let bursts = flow.bursts.as_deref_mut()?;
    if bursts.send_at.is_none() {
        bursts.burst_until = now + bursts.pareto(config.mean_on, config.shape);
        bursts.send_at = Some(now);
        return None;
    }
    let wire_time = config.rate.transmission_time(ByteCount(len as u64));
    bursts.send_at = Some(bursts.after(now, config, wire_time));
    flow.written += len as u64;
    let udp = Udp { src_port: flow.port, dst_port: flow.port, payload: Bytes::from_static(&ZEROS[..len]) };
    Some(Packet::new(flow.addresses.0, flow.addresses.1, udp))
}
