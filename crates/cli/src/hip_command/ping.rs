//! `holdover hip ping`.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use holdover_hipd::files::Peers;
use serde_json::json;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{DirectoryArgs, Failure, wrong};
use crate::command_support::{INTERRUPTED, print, stop_on_signals, within};

/// Arguments of `holdover hip ping`.
#[derive(Args, Debug)]
pub(super) struct PingArgs {
    /// The peer's name or HIT.
    peer: String,
    /// The number of echo requests.
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = within(1..=u16::MAX))]
    count: u16,
    /// Print a line of JSON for each reply, and one with the totals at the end.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    directory: DirectoryArgs,
}

/// The interval between echo requests.
const EVERY: Duration = Duration::from_secs(1);
/// The timeout of the last echo reply.
const PATIENCE: Duration = Duration::from_secs(5);
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const LEN: usize = 64;

pub(super) fn ping(args: &PingArgs) -> Result<ExitCode, Failure> {
    let peers = Peers::read(&args.directory.dir)?;
    let peer = peers.find(&args.peer).map_err(|error| wrong(&error))?;
    let hit = peer.hit().0;
    let (socket, answers) = open(hit)?;
    let stop = stop_on_signals()?;
    let output = Output { json: args.json };
    output.begin(&peer.name, hit);
    let (mut sent, mut received) = (0_u16, 0_u16);
    let start = Instant::now();
    let mut sent_at = Vec::new();
    while received < args.count && !stop.load(Ordering::Relaxed) {
        let due = start + EVERY * u32::from(sent);
        let now = Instant::now();
        if sent < args.count && now >= due {
            sent_at.push(now);
            if let Err(error) = socket.send(&request(sent)) {
                output.error(Some(sent), &error);
            }
            sent += 1;
            continue;
        }
        let until = if sent < args.count { due } else { start + EVERY * u32::from(sent - 1) + PATIENCE };
        if sent == args.count && now >= until {
            break;
        }
        match answer(&socket, until.saturating_duration_since(now), answers) {
            Ok(number) => {
                if let Some((number, at)) = number.and_then(|number| Some((number, sent_at.get(usize::from(number))?)))
                {
                    received += 1;
                    output.reply(number, at.elapsed());
                }
            }
            // An ICMP error: the next request may be answered.
            Err(error) => output.error(None, &error),
        }
    }
    output.end(&peer.name, hit, [sent, received]);
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if received > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The output, for people or for programs. A closed pipe does not end a measurement.
struct Output {
    json: bool,
}

impl Output {
    fn line(&self, text: &str, value: &serde_json::Value) {
        let _ = if self.json { print(&format!("{value}\n")) } else { print(&format!("{text}\n")) };
    }

    fn begin(&self, name: &str, hit: Ipv6Addr) {
        if !self.json {
            let _ = print(&format!("{name} ({hit})\n"));
        }
    }

    fn reply(&self, number: u16, after: Duration) {
        let seconds = after.as_secs_f64();
        self.line(&format!("{number}: {:.1} ms", seconds * 1e3), &json!({ "number": number, "round_trip_s": seconds }));
    }

    /// Prints an error of the request with this number, or of an unknown one.
    fn error(&self, number: Option<u16>, error: &io::Error) {
        let of = number.map(|number| format!("{number}: ")).unwrap_or_default();
        self.line(&format!("{of}{error}"), &json!({ "number": number, "error": error.to_string() }));
    }

    fn end(&self, name: &str, hit: Ipv6Addr, [sent, answered]: [u16; 2]) {
        self.line(
            &format!("{answered} of {sent} answered"),
            &json!({ "peer": name, "hit": hit.to_string(), "sent": sent, "answered": answered }),
        );
        if answered == 0 && !self.json {
            let _ =
                print("see holdover hip status; on the peer the daemon has to run, with this host among its peers\n");
        }
    }
}

/// An unprivileged ICMP socket (`icmp(7)`), or a raw one for root; and whether it also receives replies for other
/// processes.
fn open(hit: Ipv6Addr) -> Result<(Socket, Option<u16>), Failure> {
    let to = SockAddr::from(SocketAddr::from((hit, 0)));
    let connected = |kind| {
        let socket = Socket::new(Domain::IPV6, kind, Some(Protocol::ICMPV6))?;
        socket.connect(&to)?;
        Ok::<_, io::Error>(socket)
    };
    if let Ok(socket) = connected(Type::DGRAM) {
        return Ok((socket, None));
    }
    let socket = connected(Type::RAW).map_err(|error| Failure {
        text: format!("{hit} cannot be pinged: {error}\nis the daemon running? sudo holdover hip status"),
        status: 1,
    })?;
    Ok((socket, Some(std::process::id() as u16)))
}

fn request(number: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[0] = ECHO_REQUEST;
    // The kernel fills in the checksum, and on sockets without privileges the identifier.
    bytes[4..6].copy_from_slice(&(std::process::id() as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The sequence number of a reply within the timeout.
fn answer(socket: &Socket, within: Duration, identifier: Option<u16>) -> io::Result<Option<u16>> {
    socket.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2 * LEN];
    let len = match socket.recv(&mut buffer) {
        Ok(len) => len,
        // No answer came in time, or a signal interrupted the wait.
        Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has written this number of bytes.
    let bytes = unsafe { buffer[..len].assume_init_ref() };
    let pair = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let is_ours = bytes.first() == Some(&ECHO_REPLY) && identifier.is_none_or(|own| pair(4) == Some(own));
    Ok(pair(6).filter(|_| is_ours))
}
