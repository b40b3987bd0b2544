//! Invitations: only a stranger that knows the secret becomes a peer, and only once.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{Builder, HipPacket, PacketType, Parameter, kind};
use holdover_hip::host::{CommandError, Event, HostConfig, SECRET_LEN, State};
use holdover_hip::identity::Algorithm;

use crate::world::{Network, World};

const SECRET: [u8; SECRET_LEN] = [7; SECRET_LEN];
const SECOND: Duration = Duration::from_secs(1);

/// Host 1 knows no peers; host 0 knows host 1.
fn strangers(seed: u64) -> World {
    let config = HostConfig { accept_unknown_peers: false, ..HostConfig::default() };
    let mut world = World::pair(seed, Network::CLEAN, &config);
    let (now, peer) = (world.now, world.hit(0));
    world.hosts[1].remove_peer(now, peer);
    world
}

fn joined(world: &World) -> Vec<(u64, Bytes)> {
    let joined = |(_, host, event): &(_, usize, Event)| match event {
        Event::Joined { invitation, data, .. } if *host == 1 => Some((*invitation, data.clone())),
        _ => None,
    };
    world.events.iter().filter_map(joined).collect()
}

/// Host 1 invites with `SECRET`, for a minute.
fn invite(world: &mut World, number: u64) {
    let now = world.now;
    world.hosts[1].invite(now, number, SECRET, now + SECOND * 60);
}

fn present(world: &mut World, secret: [u8; SECRET_LEN]) -> Result<(), CommandError> {
    let (now, peer) = (world.now, world.hit(1));
    world.hosts[0].present(now, peer, secret, Bytes::from_static(b"data"))
}

// Claim: A stranger with the secret of an open invitation becomes a peer, once; without it, too late, with another host's proof,
// or by replays it does not. A host that the command does not write down is removed; open invitations are bounded.
// Tests: `invitation::without_the_secret_or_too_late_a_stranger_stays_one`, `invitation::a_proof_is_of_no_use_to_another_host`,
// `invitation::a_lost_or_repeated_packet_changes_nothing`,
// `invitation::a_host_that_joins_is_reported_and_stays_once_it_is_in_the_file`,
// `invitation::a_peer_missing_from_the_file_is_removed`, `invitation::an_invitation_that_is_not_polled_ends`,
// `invitation::the_number_of_open_invitations_is_bounded`
#[test]
fn a_stranger_with_the_secret_becomes_a_peer_once() {
    let mut world = strangers(1);
    invite(&mut world, 5);
    present(&mut world, SECRET).unwrap();
    world.connect(0);
    world.run_for(SECOND * 2);
    assert_eq!((world.state(0), joined(&world)), (State::Established, vec![(5, Bytes::from_static(b"data"))]));
    assert!(present(&mut world, SECRET).is_err(), "there is an association");
    // As a configured peer: after the association's end it needs no invitation.
    let (now, peer) = (world.now, world.hit(1));
    world.hosts[0].close(now, peer).unwrap();
    world.run_for(SECOND * 2);
    world.connect(0);
    world.run_for(SECOND * 2);
    assert_eq!((world.state(0), joined(&world).len()), (State::Established, 1));
    // A second stranger with the same secret, at the same address, is refused.
    let config = HostConfig { accept_unknown_peers: false, ..HostConfig::default() };
    world.restart(0, Algorithm::Ed25519, 77, 78, &config);
    present(&mut world, SECRET).unwrap();
    world.connect(0);
    world.run_for(SECOND * 5);
    assert_eq!((world.state(0), joined(&world).len()), (State::I1Sent, 1));
}

#[test]
fn without_the_secret_or_too_late_a_stranger_stays_one() {
    // No secret, a wrong one, the right one after its time, and after it was withdrawn.
    for (secret, delay, is_withdrawn) in
        [(None, 0, false), (Some([8; SECRET_LEN]), 0, false), (Some(SECRET), 60, false), (Some(SECRET), 0, true)]
    {
        let mut world = strangers(2);
        invite(&mut world, 1);
        if is_withdrawn {
            world.hosts[1].withdraw(1);
        }
        world.run_for(SECOND * delay);
        if let Some(secret) = secret {
            present(&mut world, secret).unwrap();
        }
        world.connect(0);
        world.run_for(SECOND * 5);
        assert_ne!(world.state(0), State::Established, "{secret:?} {delay}");
        assert_eq!(world.state(1), State::Unassociated);
        assert!(joined(&world).is_empty() && world.hosts[1].inbound_spis() == 0);
        // While the invitation is open, I1s are answered, and cost no memory.
        let answers = world.count(1, PacketType::R1);
        assert_eq!(answers > 0, delay == 0 && !is_withdrawn, "{secret:?} {delay}");
    }
}

#[test]
fn a_proof_is_of_no_use_to_another_host() {
    // The I2 of the invited host is lost; another host has read its proof, and sends it in its own I2.
    let mut world = strangers(3);
    invite(&mut world, 1);
    present(&mut world, SECRET).unwrap();
    world.tamper =
        Some(Box::new(|packet| HipPacket::parse(packet).is_ok_and(|received| received.packet.kind != PacketType::I2)));
    world.connect(0);
    world.run_for(SECOND);
    let proof = |world: &World| {
        let packets = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
        let parameters = packets.flat_map(|received| received.packet.parameters);
        parameters.into_iter().find_map(|it| if let Parameter::Invitation(proof) = it { Some(proof) } else { None })
    };
    let stolen = proof(&world).unwrap();
    assert!(stolen.ends_with(b"data"));
    let config = HostConfig { accept_unknown_peers: false, ..HostConfig::default() };
    world.restart(0, Algorithm::Ed25519, 77, 78, &config);
    present(&mut world, [9; SECRET_LEN]).unwrap();
    // The proof is checked before HIP_MAC and HIP_SIGNATURE, so that these need not be right to see it refused.
    world.tamper = Some(Box::new(move |packet| {
        let Ok(received) = HipPacket::parse(packet) else { return true };
        let HipPacket { kind, sender, receiver, parameters, .. } = received.packet;
        if kind == PacketType::I2 {
            let mut builder = Builder::new(kind, sender, receiver);
            for parameter in parameters {
                let is_proof = parameter.kind() == kind::INVITATION;
                builder.push(&if is_proof { Parameter::Invitation(stolen.clone()) } else { parameter }).unwrap();
            }
            *packet = builder.finish(packet.src, packet.dst);
        }
        true
    }));
    world.dropped.clear();
    world.connect(0);
    world.run_for(SECOND * 5);
    assert!(world.dropped.contains(&(1, holdover_hip::host::Dropped::Policy)), "{:?}", world.dropped);
    assert!(world.state(1) == State::Unassociated && joined(&world).is_empty());
}

#[test]
fn a_lost_or_repeated_packet_changes_nothing() {
    let network = Network { loss: 0.3, duplication: 0.3, jitter: Duration::from_millis(80), ..Network::CLEAN };
    let mut established = 0;
    for seed in 10..30 {
        let mut world = strangers(seed);
        world.network = network;
        invite(&mut world, 1);
        present(&mut world, SECRET).unwrap();
        world.connect(0);
        world.run_for(SECOND * 55);
        if world.state(0) == State::Established {
            assert_eq!(joined(&world).len(), 1, "seed {seed}");
            established += 1;
        }
        assert!(joined(&world).len() <= 1, "seed {seed}");
        // Replays of all I2s open nothing.
        let packets: Vec<_> = world.packets.iter().map(|(_, packet)| packet.clone()).collect();
        for packet in packets {
            world.deliver(&packet);
            world.collect();
        }
        assert!(joined(&world).len() <= 1, "seed {seed}");
    }
    // Each of the two answers arrives at one of six attempts.
    assert!(established >= 15, "{established} of 20");
}
