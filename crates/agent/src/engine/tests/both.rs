//! Both shells, side by side.

use super::*;

/// One end of the connection, for segments that make sense.
#[derive(Clone, Copy, Default)]
pub(super) struct End {
    pub(super) first: u32,
    pub(super) nxt: u32,
    pub(super) stamp: u32,
}

/// The kernel's shell, and the one of this process.
pub(super) struct Shells {
    pub(super) kernel: KernelPath,
    pub(super) native: Native,
}

pub(super) struct Both<'a> {
    pub(super) kernel: &'a mut KernelPath,
    pub(super) native: &'a mut Native,
    pub(super) expires_at: Instant,
    pub(super) control: WakeControl,
    pub(super) connections: [Connection; 2],
    pub(super) current: usize,
    pub(super) now: Instant,
    /// The host and the peer, for each of the connections.
    pub(super) ends: [[End; 2]; 2],
    pub(super) compared: usize,
    pub(super) passed: usize,
}

impl<'a> Both<'a> {
    pub(super) fn new(shells: &'a mut Shells, case: &Case) -> Self {
        let Shells { kernel, native } = shells;
        let connections = connections(case.ipv6);
        // Left over from the case before.
        for connection in connections {
            kernel.forget(connection);
            native.forget(connection);
        }
        while kernel.next_notice().is_some() {}
        let stamp = |first: u32| if first > u32::MAX / 2 { u32::MAX - 20 } else { 5_000 };
        let end = |first| End { first, nxt: first, stamp: stamp(first) };
        let mut both = Self {
            kernel,
            native,
            expires_at: FOREVER,
            control: WakeControl::new(configs()[case.config]),
            connections,
            current: case.is_other.into(),
            now: Instant::from_secs(100),
            ends: [[end(case.first.0), end(case.first.1)]; 2],
            compared: case.compared,
            passed: 0,
        };
        both.link();
        both
    }

    pub(super) fn connection(&self) -> Connection {
        self.connections[self.current]
    }

    /// The host or the peer of the current connection.
    pub(super) fn end(&mut self, is_host: bool) -> &mut End {
        &mut self.ends[self.current][usize::from(!is_host)]
    }

    /// The state of the current connection, for the control.
    pub(super) fn recorder(&self) -> Recorder {
        Recorder(self.native.flows.get(&self.connection()).copied(), self.connection())
    }

    pub(super) fn bare(&self, is_outgoing: bool, flags: u8, options: Vec<u8>) -> Raw {
        let [host, peer] = &self.ends[self.current];
        let (own, other) = if is_outgoing { (host, peer) } else { (peer, host) };
        Raw {
            is_outgoing,
            seq: own.nxt,
            ack: if flags & 0x10 == 0 { 0 } else { other.nxt },
            flags,
            window: 500,
            options,
            len: 0,
            gso_size: 0,
            extension_headers: 0,
            traffic_class: 0,
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Segment(shape) => {
                self.now += Duration::from_micros(shape.micros_later);
                let raw = self.raw(shape);
                self.pass(&raw);
            }
            Step::Link(event) => {
                let mut path = self.recorder();
                self.control.handle_link(self.now, *event, &mut path);
                self.link();
            }
            Step::Timeout => {
                let mut path = self.recorder();
                self.control.handle_timeout(self.now, &mut path);
                self.link();
            }
            Step::Order(is_outgoing, order) => {
                let direction = way(*is_outgoing);
                let connection = self.connection();
                self.native.order(connection, OrderRecord::new(self.now, connection, direction, *order));
                self.kernel.set_now(self.now);
                self.kernel.order(self.now, connection, direction, *order);
            }
            Step::Wait(millis) => self.now += Duration::from_millis(*millis),
            Step::Hang(hangs) => {
                self.expires_at = if *hangs { self.now + EXPIRES_AFTER } else { FOREVER };
                self.link();
            }
            Step::LeaveAlone(alone) => {
                let connection = self.connection();
                self.native.order(connection, OrderRecord::leave_alone(connection, *alone));
                self.kernel.set_now(self.now);
                self.kernel.leave_alone(connection, *alone);
            }
            Step::Switch => self.current ^= 1,
            Step::FreeIdle => {
                self.kernel.free_idle_predictions();
                self.native.free_idle_predictions();
            }
            Step::Forget => {
                let connection = self.connection();
                self.kernel.forget(connection);
                self.native.forget(connection);
            }
            Step::Reopen(first) => {
                let stamp = self.end(true).stamp;
                *self.end(true) = End { first: *first, nxt: *first, stamp };
                self.pass(&self.bare(true, 0x02, vec![3, 3, 7]));
                self.end(true).nxt = first.wrapping_add(1);
            }
        }
    }

    /// Sets the control's link in the kernel.
    pub(super) fn link(&mut self) {
        self.kernel.set_now(self.expires_at - EXPIRES_AFTER);
        let family = Family::of_connection(self.connections[0]);
        self.kernel.set_link(family, self.control.link_state());
        // The link of the other version does not matter to this connection.
        let others = LinkState { down_at: Some(self.now), ..LinkState::default() };
        self.kernel.set_link(family.other(), others);
        self.kernel.renew();
    }

    pub(super) fn raw(&mut self, shape: &Shape) -> Raw {
        let [host, peer] = &mut self.ends[self.current];
        let (own, other) = if shape.is_outgoing { (host, *peer) } else { (peer, *host) };
        let seq = own.nxt.wrapping_add_signed(shape.ahead);
        let end = seq.wrapping_add(shape.len.into());
        if end.wrapping_sub(own.first) > own.nxt.wrapping_sub(own.first) && end.wrapping_sub(own.first) < 1 << 30 {
            own.nxt = end;
        }
        own.stamp = own.stamp.wrapping_add_signed(shape.ticks);
        let mut options = Vec::new();
        for option in &shape.options {
            let bytes = option.bytes(own.stamp, other.stamp, other.nxt);
            if options.len() + bytes.len() <= 40 {
                options.extend(bytes);
            }
        }
        Raw {
            is_outgoing: shape.is_outgoing,
            seq,
            ack: other.nxt.wrapping_sub(shape.ack_short as u32),
            flags: shape.flags,
            window: shape.window,
            options,
            len: shape.len,
            gso_size: if shape.len > 1400 { shape.gso_size } else { 0 },
            extension_headers: shape.extension_headers,
            traffic_class: shape.traffic_class,
        }
    }

    /// Passes a segment through both, which must agree.
    pub(super) fn pass(&mut self, raw: &Raw) {
        let direction = way(raw.is_outgoing);
        let connection = self.connection();
        let bytes = raw.packet(connection);
        let mut packet = Packet::parse(Bytes::copy_from_slice(&bytes)).expect("a packet that is well-formed");
        let form = raw.form(connection.local.is_ipv6());
        let mut link = self.control.link_state();
        link.expires_at = self.expires_at;
        let (verdict, notice) = self.native.handle_packet(self.now, &link, connection, direction, &mut packet, form);

        let mut frame = frame(connection).to_vec();
        frame.extend(&bytes);
        let out = self.kernel.run(direction, &frame, self.now, raw.gso_size.into());

        let passed = out.map(|out| {
            let out = Bytes::from(out).split_off(FRAME_LEN);
            Packet::parse(out).expect("what passes is well-formed, with the right checksum")
        });
        let expected = (verdict == Verdict::Pass).then_some(packet);
        assert_eq!(passed, expected, "the verdict at {}", self.now);
        assert_eq!(self.noticed(), notice.map(|notice| (direction, notice)));
        self.passed += 1;
        if self.passed.is_multiple_of(self.compared) {
            self.compare();
        }
        if let Some(notice) = notice {
            let mut path = self.recorder();
            self.control.handle_notice(self.now, connection, direction, notice, &mut path);
        }
    }

    /// Compares the states.
    pub(super) fn compare(&mut self) {
        for connection in self.connections {
            assert_eq!(self.kernel.flow(connection).as_ref(), self.native.flows.get(&connection), "{connection}");
            self.native.compare_stage(connection);
        }
    }

    pub(super) fn noticed(&mut self) -> Option<(Direction, Notice)> {
        let mut noticed = None;
        while let Some(notice) = self.kernel.next_notice() {
            match notice.report().expect("a known notice") {
                Report::Incoming(_) | Report::Arrived(_) => {}
                Report::Notice(connection, direction, notice) => {
                    assert_eq!(connection, self.connection());
                    assert!(noticed.is_none(), "more than one notice for a packet");
                    noticed = Some((direction, notice));
                }
            }
        }
        noticed
    }
}
