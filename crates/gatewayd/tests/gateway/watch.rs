//! Compares the ACKs that a fixed host receives with those that its mobile host has sent.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use holdover_testbed::gateway::World;
use holdover_testbed::{FrameSocket, Namespace};
use holdover_wire::{Flags, Packet, Seq};

/// The observed packets.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Watched {
    /// ACKs that the fixed host got.
    pub(crate) acks: u64,
    /// Of these, those with a window of zero, except resets.
    pub(crate) shut: u64,
    /// Of these, those that the mobile host itself sent with a window of zero.
    pub(crate) shut_by_mobile: u64,
    /// Packets of the mobile host.
    pub(crate) of_mobile: u64,
}

/// A thread that captures at both ends of one connection's path.
pub(crate) struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Watched, String>>,
}

/// The next packet of a host on a socket: its ACK number and window, if it is TCP and has one.
fn next(socket: &FrameSocket, from: IpAddr) -> io::Result<Option<Option<(Seq, u16, Flags)>>> {
    let mut buffer = vec![0; 70_000];
    let Some((_, frame)) = socket.receive(&mut buffer)? else { return Ok(None) };
    Ok(Some(frame.get(14..).and_then(|ip| ack_of(ip, from))))
}

/// ACK number, window and flags of a packet, if it is TCP of this host and has an ACK.
fn ack_of(ip: &[u8], from: IpAddr) -> Option<(Seq, u16, Flags)> {
    // Parse headers only: the device may have to fill in checksums, and GSO packets hold several segments.
    let found = Packet::parse(Bytes::copy_from_slice(ip)).ok();
    let number = |at: usize| Some(u32::from_be_bytes(ip.get(at..at + 4)?.try_into().ok()?));
    let by_hand = || {
        let source = IpAddr::from(<[u8; 4]>::try_from(ip.get(12..16)?).ok()?);
        let tcp = usize::from(ip.first()? & 0xf) * 4;
        let flags = Flags::from_bits_truncate(u16::from(*ip.get(tcp + 13)?));
        let window = u16::from_be_bytes([*ip.get(tcp + 14)?, *ip.get(tcp + 15)?]);
        (ip[0] >> 4 == 4 && ip.get(9) == Some(&6) && source == from).then_some((
            Seq::new(number(tcp + 8)?),
            window,
            flags,
        ))
    };
    let parsed = found.as_ref().filter(|packet| packet.src == from).and_then(Packet::tcp);
    let seen = parsed.map(|segment| (segment.ack, segment.window, segment.flags)).or_else(by_hand);
    seen.filter(|(_, _, flags)| flags.contains(Flags::ACK))
}

impl Watcher {
    /// Watches the only connection of the first mobile host.
    pub(crate) fn start(world: &World) -> Self {
        Self::between(world, world.fixed())
    }

    /// The same for a connection to another host than [`World::fixed`].
    pub(crate) fn between(world: &World, fixed: &Namespace) -> Self {
        let mobile = world.mobile_address(0);
        let sockets = [world.mobile(0), fixed].map(|host| FrameSocket::listener(host, "eth0").unwrap());
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || watch(sockets, mobile, &ends));
        Self { is_over, thread }
    }

    /// Returns the observed packets. Fails if the fixed host ever received an ACK that the mobile host had not sent, or if frames
    /// were not captured.
    #[track_caller]
    pub(crate) fn ends(self) -> Watched {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap().unwrap()
    }
}

fn watch([near, far]: [FrameSocket; 2], mobile: IpAddr, is_over: &AtomicBool) -> Result<Watched, String> {
    let failed = |error: io::Error| error.to_string();
    let (mut watched, mut acked) = (Watched::default(), None::<Seq>);
    loop {
        let ends = is_over.load(Ordering::SeqCst);
        let mut shown = Vec::new();
        while let Some(seen) = next(&far, mobile).map_err(failed)? {
            shown.extend(seen);
        }
        // Packets received there were sent before, so they have been captured here by now.
        while let Some(seen) = next(&near, mobile).map_err(failed)? {
            if let Some((ack, window, flags)) = seen.filter(|(_, _, flags)| !flags.contains(Flags::RST)) {
                let begins = flags.contains(Flags::SYN);
                acked = Some(acked.filter(|_| !begins).map_or(ack, |acked| acked.max(ack)));
                watched.of_mobile += 1;
                watched.shut_by_mobile += u64::from(window == 0);
            }
        }
        for (ack, window, flags) in shown {
            watched.acks += 1;
            watched.shut += u64::from(window == 0 && !flags.contains(Flags::RST));
            if !flags.contains(Flags::RST) && acked.is_none_or(|acked| ack.gt(acked)) {
                return Err(format!("the fixed host got an ACK of {ack:?}, and the mobile host's last was {acked:?}"));
            }
        }
        if ends {
            let dropped = near.dropped().map_err(failed)? + far.dropped().map_err(failed)?;
            return if dropped == 0 { Ok(watched) } else { Err(format!("{dropped} frames were not captured")) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
