//! `holdover hip ping`.

use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdover_hipd::files::Peers;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{DirectoryArgs, Failure, wrong};
use crate::command_support::{print, within};

/// Arguments of `holdover hip ping`.
#[derive(Args, Debug)]
pub(super) struct PingArgs {
    /// The peer's name or HIT.
    peer: String,
    /// The number of echo requests.
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = within(1..=u16::MAX))]
    count: u16,
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
    let _ = print(&format!("{} ({hit})\n", peer.name));
    let (mut sent, mut received) = (0_u16, 0_u16);
    let start = Instant::now();
    let mut sent_at = Vec::new();
    while usize::from(received) < usize::from(args.count) {
        let due = start + EVERY * u32::from(sent);
        let now = Instant::now();
        if sent < args.count && now >= due {
            sent_at.push(now);
            if let Err(error) = socket.send(&request(sent)) {
                let _ = print(&format!("{sent}: {error}\n"));
            }
            sent += 1;
            continue;
        }
        let until = if sent < args.count { due } else { start + EVERY * u32::from(sent - 1) + PATIENCE };
        if sent == args.count && now >= until {
            break;
        }
        if let Some(number) = answer(&socket, until.saturating_duration_since(now), answers)?
            && let Some(at) = sent_at.get(usize::from(number))
        {
            received += 1;
            let _ = print(&format!("{number}: {:.1} ms\n", at.elapsed().as_secs_f64() * 1e3));
        }
    }
    let _ = print(&format!("{received} of {sent} answered\n"));
    if received == 0 {
        let _ = print("see holdover hip status; on the peer the daemon has to run, with this host among its peers\n");
    }
    Ok(if received > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An unprivileged ICMP socket (`icmp(7)`), or a raw one for root; and whether it also receives replies for other
/// processes.
fn open(hit: Ipv6Addr) -> Result<(Socket, Option<u16>), Failure> {
    let to = SockAddr::from(SocketAddr::from((hit, 0)));
    let connected = |kind| {
        let socket = Socket::new(Domain::IPV6, kind, Some(Protocol::ICMPV6))?;
        socket.connect(&to)?;
        Ok::<_, std::io::Error>(socket)
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
fn answer(socket: &Socket, within: Duration, identifier: Option<u16>) -> Result<Option<u16>, Failure> {
    socket.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2 * LEN];
    let len = match socket.recv(&mut buffer) {
        Ok(len) => len,
        // Nothing came, or an ICMP error did: the next one may do better.
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => {
            let _ = print(&format!("{error}\n"));
            return Ok(None);
        }
    };
    // SAFETY: the kernel has written this number of bytes.
    let bytes = unsafe { buffer[..len].assume_init_ref() };
    let pair = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let is_ours = bytes.first() == Some(&ECHO_REPLY) && identifier.is_none_or(|own| pair(4) == Some(own));
    Ok(pair(6).filter(|_| is_ours))
}
