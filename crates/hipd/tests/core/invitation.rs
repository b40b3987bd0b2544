//! Invitations of the daemon: they end with the command that made them.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::host::{Event, SECRET_LEN, State};
use holdover_hipd::core::{InvitationState, MAX_OPEN, Note};
use holdover_hipd::files::{Peers, Via};

use crate::world::World;

const SECRET: [u8; SECRET_LEN] = [3; SECRET_LEN];
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Host 0 knows host 1 and accepts its invitation. Returns its number.
fn joining() -> (World, u64) {
    let mut world = World::new(1, Via::Udp, [true, false]);
    let (now, peer) = (world.now, world.hit(1));
    let number = world.hosts[1].invite(now, SECRET, HOUR).unwrap();
    world.hosts[0].present(now, peer, SECRET, Bytes::from_static(b"hello")).unwrap();
    (world, number)
}

#[test]
fn a_host_that_joins_is_reported_and_stays_once_it_is_in_the_file() {
    let (mut world, number) = joining();
    world.run_for(SECOND * 3);
    let (now, peer) = (world.now, world.hit(0));
    let joined = InvitationState::Joined { peer, data: Bytes::from_static(b"hello") };
    assert_eq!(world.hosts[1].invitation(now, number), joined);
    world.knows = [true, true];
    let peers = world.peers(1);
    world.hosts[1].set_peers(now, &peers);
    world.hosts[1].withdraw(now, number);
    assert_eq!(world.hosts[1].invitation(now, number), InvitationState::Ended);
    world.run_for(SECOND * 30);
    world.send(0, 1);
    world.run_for(SECOND);
    world.send(1, 2);
    world.run_for(SECOND);
    assert_eq!((world.numbers(1), world.numbers(0)), (vec![1], vec![2]));
}

/// The command has ended before it has written the peer into the file.
#[test]
fn a_peer_missing_from_the_file_is_removed() {
    let (mut world, _) = joining();
    world.run_for(SECOND * 3);
    let peer = world.hit(0);
    assert!(matches!(world.hosts[1].state(peer), State::R2Sent | State::Established));
    world.run_for(SECOND * 10);
    assert!(world.hosts[1].peer_status().is_empty());
    world.send(0, 1);
    world.run_for(SECOND * 5);
    assert!(world.numbers(1).is_empty());
    assert_ne!(world.hosts[1].state(peer), State::Established);
}

#[test]
fn an_invitation_that_is_not_polled_ends() {
    for is_asked in [true, false] {
        let mut world = World::new(1, Via::Udp, [true, false]);
        let number = world.hosts[1].invite(world.now, SECRET, HOUR).unwrap();
        for _ in 0..12 {
            world.run_for(SECOND);
            if is_asked {
                assert_eq!(world.hosts[1].invitation(world.now, number), InvitationState::Open);
            }
        }
        let (now, peer) = (world.now, world.hit(1));
        // The exchange that began with the start gets no answer; the next one presents the secret.
        let presented = world.hosts[0].present(now, peer, SECRET, Bytes::new());
        world.run_for(SECOND * 5);
        assert!(presented.is_ok());
        let has_joined = |(_, host, note): &(_, usize, Note)| *host == 1 && matches!(note.event, Event::Joined { .. });
        assert_eq!(world.notes.iter().any(has_joined), is_asked);
    }
}

#[test]
fn the_number_of_open_invitations_is_bounded() {
    let mut world = World::new(1, Via::Udp, [true, false]);
    let now = world.now;
    assert!((0..MAX_OPEN).all(|_| world.hosts[1].invite(now, SECRET, HOUR).is_some()));
    assert_eq!(world.hosts[1].invite(now, SECRET, HOUR), None);
    world.hosts[1].set_peers(now, &Peers::default());
    world.run_for(SECOND * 11);
    assert!(world.hosts[1].invite(world.now, SECRET, HOUR).is_some());
}
