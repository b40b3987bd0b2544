//! The fate of one packet: it is damaged on the way, or replaced by another one that its sender, or the server that has
//! forwarded it, makes with its keys.

use bytes::Bytes;
use holdover_wire::{Packet, Payload};

use super::super::with_checksum_between;
use super::Input;
use super::world::{Flight, HOSTS, SERVER, World, elsewhere, home};
use crate::codec::{HEADER_LEN, PROTOCOL, PacketType, kind, map};
use crate::host::{Proofs, Tlv};

/// Values at the edges of fields.
const EDGES: [u32; 8] = [0, 1, 255, 256, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];
/// An address that no host has.
const NOBODY: core::net::IpAddr = core::net::IpAddr::V4(core::net::Ipv4Addr::new(203, 0, 113, 77));

/// A packet in place of another one, and whether a host has made it with its keys and says something else in it.
pub(super) struct Changed {
    pub(super) packet: Packet,
    pub(super) is_lie: bool,
}

impl Changed {
    /// A packet that nobody has made with keys now.
    pub(super) const fn on_the_way(packet: Packet) -> Self {
        Self { packet, is_lie: false }
    }
}

/// Another packet in place of the one in flight. `pool` has parameters of all exchanges.
pub(super) fn change(world: &mut World, flight: &Flight, pool: &[Tlv], input: &mut Input<'_>) -> Changed {
    let Flight { from, packet } = flight;
    let mut changed = match &packet.payload {
        Payload::Esp(esp) => change_data(world, *from, packet, esp, input),
        Payload::Other { protocol: PROTOCOL, payload } => change_hip(world, *from, packet, payload, pool, input),
        _ => Changed::on_the_way(packet.clone()),
    };
    if input.below(8) == 0 {
        let packet = &mut changed.packet;
        packet.src = place(input);
        if let Payload::Other { protocol: PROTOCOL, payload } = &mut packet.payload {
            *payload = with_checksum_between(packet.src, packet.dst, payload.to_vec()).into();
        }
    }
    changed
}

/// An address of a host, or one that no host has.
fn place(input: &mut Input<'_>) -> core::net::IpAddr {
    match input.below(2 * HOSTS + 1) {
        index if index < HOSTS => home(index),
        index if index < 2 * HOSTS => elsewhere(index - HOSTS),
        _ => NOBODY,
    }
}

fn change_data(world: &mut World, from: usize, packet: &Packet, esp: &Bytes, input: &mut Input<'_>) -> Changed {
    let to = world.owners.get(&packet.dst).copied().filter(|&to| from != SERVER && to != SERVER);
    if let Some(to) = to.filter(|_| input.below(2) == 0) {
        // The sender's program sends data that no program of another host would send. That is no lie of the host.
        let payload = Payload::Other { protocol: input.byte(), payload: input.bytes().into() };
        let inner = Packet::new(world.hit(from).0.into(), world.hit(to).0.into(), payload);
        if let Ok(packet) = world.hosts[from].seal(world.now, &inner) {
            return Changed { packet, is_lie: false };
        }
    }
    let mut bytes = esp.to_vec();
    damage(&mut bytes, input);
    Changed::on_the_way(Packet { payload: Payload::Esp(bytes.into()), ..packet.clone() })
}

fn damage(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..=input.below(4) {
        let at = input.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= input.byte().max(1);
        }
    }
    if input.below(8) == 0 {
        let len = input.below(bytes.len() + 1);
        bytes.truncate(len);
    }
}

fn change_hip(
    world: &mut World,
    from: usize,
    packet: &Packet,
    payload: &Bytes,
    pool: &[Tlv],
    input: &mut Input<'_>,
) -> Changed {
    let proofs = match input.below(8) {
        0 | 1 => {
            let mut bytes = payload.to_vec();
            damage(&mut bytes, input);
            return Changed::on_the_way(with_payload(packet, bytes));
        }
        2 => Proofs::None,
        3 => Proofs::Macs,
        _ => Proofs::All,
    };
    let Some((mut header, mut parameters)) = split(payload) else {
        return Changed::on_the_way(packet.clone());
    };
    let mut is_sorted = true;
    for _ in 0..=input.below(3) {
        is_sorted &= change_part(world, from, (&mut header, &mut parameters), pool, input);
    }
    if is_sorted {
        parameters.sort_by_key(|parameter| parameter.kind);
    }
    // Without a proof it is what anyone could send.
    let (bytes, has_proven) = world.hosts[from].forge(header, &parameters, proofs);
    let is_lie = has_proven && !says_the_same(&bytes, payload);
    Changed { packet: with_payload(packet, bytes), is_lie }
}

/// Whether two packets differ in proofs and checksums at most: changes may have changed nothing.
fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    let said = |bytes| {
        let (mut header, mut parameters) = split(bytes)?;
        header[4..6].fill(0);
        parameters.iter_mut().filter(|it| is_proof(it.kind)).for_each(|it| it.contents.clear());
        Some((header, parameters.into_iter().map(|it| (it.kind, it.contents)).collect::<Vec<_>>()))
    };
    said(one).is_some_and(|it| Some(it) == said(other))
}

fn is_proof(number: u16) -> bool {
    (kind::HIP_MAC..=kind::HIP_SIGNATURE).contains(&number) || [kind::RVS_HMAC, kind::RELAY_HMAC].contains(&number)
}

fn with_payload(packet: &Packet, bytes: Vec<u8>) -> Packet {
    let payload = with_checksum_between(packet.src, packet.dst, bytes).into();
    Packet { payload: Payload::Other { protocol: PROTOCOL, payload }, received: None, ..packet.clone() }
}

/// The header and the parameters of a valid packet.
pub(super) fn split(payload: &[u8]) -> Option<([u8; HEADER_LEN], Vec<Tlv>)> {
    let (header, mut rest) = payload.split_first_chunk::<HEADER_LEN>()?;
    let mut parameters = Vec::new();
    while let [high, low, len_high, len_low, ..] = rest {
        let kind = u16::from_be_bytes([*high, *low]);
        let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
        let contents = rest.get(4..4 + len)?.to_vec();
        parameters.push(Tlv { kind, contents });
        rest = rest.get((4 + len).next_multiple_of(8)..)?;
    }
    Some((*header, parameters))
}

/// Changes the header or a parameter; `false` if the order of parameters is to stay.
fn change_part(
    world: &mut World,
    from: usize,
    (header, parameters): (&mut [u8; HEADER_LEN], &mut Vec<Tlv>),
    pool: &[Tlv],
    input: &mut Input<'_>,
) -> bool {
    let index = input.below(parameters.len());
    let donor = pool.get(input.below_many(pool.len())).cloned();
    let operation = input.below(16);
    match (operation, parameters.get_mut(index)) {
        (0, Some(_)) => drop(parameters.remove(index)),
        (1, Some(parameter)) => {
            let copy = parameter.clone();
            parameters.push(copy);
        }
        (2, Some(parameter)) => damage(&mut parameter.contents, input),
        (3 | 4, Some(parameter)) => edge(&mut parameter.contents, input),
        (5, Some(parameter)) => parameter.contents.extend(input.bytes()),
        (6, Some(parameter)) => put_address(&mut parameter.contents, input),
        (7, Some(parameter)) => {
            let same = pool.iter().filter(|it| it.kind == parameter.kind).count();
            let nth = input.below_many(same);
            if let Some(other) = pool.iter().filter(|it| it.kind == parameter.kind).nth(nth) {
                parameter.contents.clone_from(&other.contents);
            }
        }
        (8, Some(parameter)) => {
            if let Some(donor) = donor {
                parameter.kind = donor.kind;
            }
        }
        (9, Some(_)) => {
            parameters.swap(0, index);
            return false;
        }
        (10, _) => header[2] = PacketType::ALL[input.below(PacketType::ALL.len())].number(),
        (11, _) => header[8..24].copy_from_slice(&world.hit(input.below(HOSTS)).0.octets()),
        (12, _) => header[24..40].copy_from_slice(&world.hit(input.below(HOSTS)).0.octets()),
        (13, _) => hide(world, from, header, parameters, donor, input),
        _ => parameters.extend(donor),
    }
    true
}

/// A field at its edge.
fn edge(contents: &mut [u8], input: &mut Input<'_>) {
    let value = EDGES[input.below(EDGES.len())].to_be_bytes();
    let len = [1, 2, 4][input.below(3)];
    let at = input.below((contents.len() + 1).saturating_sub(len)) / len * len;
    contents.iter_mut().skip(at).zip(&value[4 - len..]).for_each(|(byte, value)| *byte = *value);
}

/// Writes the address of another host, or one that no host has, where 16 bytes may be an address.
fn put_address(contents: &mut [u8], input: &mut Input<'_>) {
    let address = map(place(input)).octets();
    let places = contents.len().saturating_sub(15);
    let mapped = contents.windows(16).position(|bytes| bytes[..12] == address[..12]);
    let at = mapped.unwrap_or_else(|| input.below(places));
    if let Some(bytes) = contents.get_mut(at..at + 16) {
        bytes.copy_from_slice(&address);
    }
}

/// Moves a parameter, or another one, into ENCRYPTED.
fn hide(
    world: &mut World,
    from: usize,
    header: &[u8; HEADER_LEN],
    parameters: &mut Vec<Tlv>,
    donor: Option<Tlv>,
    input: &mut Input<'_>,
) {
    let receiver = (0..HOSTS).find(|&index| world.hit(index).0.octets() == header[24..40]);
    let index = input.below(parameters.len());
    let own = parameters.get(index).filter(|it| !is_proof(it.kind)).cloned().filter(|_| input.below(2) == 0);
    let Some((receiver, hidden)) = receiver.zip(own.clone().or(donor)) else { return };
    let peer = world.hit(receiver);
    if let Some(encrypted) = world.hosts[from].encrypted(peer, &[hidden]) {
        if own.is_some() {
            parameters.remove(index);
        }
        parameters.push(encrypted);
    }
}
