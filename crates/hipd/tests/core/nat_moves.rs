//! Moves of hosts behind translators of addresses, after which both check their candidates again (RFC 9028 section 4.9).

use std::collections::BTreeMap;

use holdover_base::{Duration, Rng};
use holdover_hip::host::{Event, State};

use crate::nat::{Filtering, Mapping, RELAY, Translator, World, established_with};

/// A translator's mapping and filtering.
type Kind = (Mapping, Filtering);

const CONE: Kind = (Mapping::Independent, Filtering::AddressAndPort);
const KINDS: [Kind; 3] =
    [CONE, (Mapping::Independent, Filtering::Address), (Mapping::Dependent, Filtering::AddressAndPort)];
const MOVERS: [&[usize]; 3] = [&[0], &[1], &[0, 1]];

fn world(kinds: [Kind; 2]) -> World {
    established_with(kinds.map(|(mapping, _)| mapping), kinds.map(|(_, filtering)| filtering))
}

/// Moves a host to another network, behind a translator of this kind.
fn move_to(world: &mut World, index: usize, network: usize, (mapping, filtering): Kind) {
    let outside = format!("198.51.100.{}", 10 + 2 * network + index);
    let mut translator = Translator::new(&outside, mapping);
    translator.filtering = filtering;
    world.move_to(index, &format!("192.168.{}.2", 10 + 2 * network + index), translator);
}

/// Whether data of each host goes to the other one without the relay.
fn are_direct(world: &mut World) -> [bool; 2] {
    [0, 1].map(|from| {
        let before = world.relayed_esp();
        for _ in 0..3 {
            let number = world.count;
            world.talk(from, number);
        }
        world.relayed_esp() == before
    })
}

/// Data every 50 ms from both hosts, for some time. Returns the longest time without data at each host.
fn longest_gaps(world: &mut World, time: Duration) -> [Duration; 2] {
    let (end, step) = (world.now + time, Duration::from_millis(50));
    let (mut last, mut longest) = ([world.now; 2], [Duration::ZERO; 2]);
    let mut seen = [0, 1].map(|index| world.got[index].len());
    while world.now < end {
        for from in [0, 1] {
            let number = world.count;
            world.send(from, number);
        }
        world.run_for(step);
        for index in [0, 1] {
            if world.got[index].len() > seen[index] {
                (seen[index], last[index]) = (world.got[index].len(), world.now);
            }
            longest[index] = longest[index].max(world.now.saturating_since(last[index]));
        }
    }
    longest
}

fn nominations(world: &World, index: usize) -> usize {
    let of_host = world.notes.iter().filter(|(host, _)| *host == index);
    of_host.filter(|(_, note)| matches!(note.event, Event::Nominated { .. })).count()
}

// Claim: After a move of either host, or of both at once, behind translators of other kinds (endpoint-independent mapping with filtering by address,
// or by address and port; another port for each destination), both hosts check candidates again, and data of both directions is direct within 10 s
// if it would be after another exchange.
#[test]
fn a_move_finds_the_direct_paths_of_an_exchange() {
    let mut fresh: BTreeMap<usize, [bool; 2]> = BTreeMap::new();
    for (first, second, (former, movers)) in KINDS.into_iter().enumerate().flat_map(|(first, _)| {
        KINDS.into_iter().enumerate().flat_map(move |(second, _)| {
            [CONE, KINDS[2]]
                .into_iter()
                .flat_map(|former| MOVERS.map(|it| (former, it)))
                .map(move |it| (first, second, it))
        })
    }) {
        let kinds = [KINDS[first], KINDS[second]];
        let expected = *fresh.entry(first * KINDS.len() + second).or_insert_with(|| are_direct(&mut world(kinds)));
        let before = [0, 1].map(|index| if movers.contains(&index) { former } else { kinds[index] });
        let mut world = world(before);
        let nominated = [0, 1].map(|index| nominations(&world, index));
        for &index in movers {
            move_to(&mut world, index, 0, kinds[index]);
        }
        for number in 300..310 {
            world.try_talk(number as usize % 2, number);
        }
        let case = format!("{movers:?} from {before:?} to {kinds:?}");
        let direct = are_direct(&mut world);
        assert_eq!(direct, expected, "{case}");
        let is_checked = [0, 1].map(|index| nominations(&world, index) > nominated[index]);
        assert!(expected != [true; 2] || is_checked == [true; 2], "{case}: {is_checked:?}");
    }
}

// Claim: A move behind translators stops data for at most half a second, and takes at most 150 packets beside data within a minute.
#[test]
fn data_continues_while_candidates_are_checked() {
    for kinds in [[KINDS[0]; 2], [KINDS[1]; 2], [KINDS[2]; 2], [KINDS[0], KINDS[2]], [KINDS[2], KINDS[0]]] {
        for movers in MOVERS {
            let mut world = world(kinds);
            longest_gaps(&mut world, Duration::from_secs(2));
            for &index in movers {
                move_to(&mut world, index, 0, kinds[index]);
            }
            let gaps = longest_gaps(&mut world, Duration::from_secs(20));
            assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(500)), "{movers:?} behind {kinds:?}: {gaps:?}");
            let before = world.count;
            for &index in movers {
                move_to(&mut world, index, 1, kinds[index]);
            }
            world.run_for(Duration::from_secs(60));
            let packets = world.count - before;
            assert!(packets <= 150, "{movers:?} behind {kinds:?}: {packets}");
        }
    }
}

// Claim: Two hosts that move a dozen times within half a minute, during the checks, with and without losses, keep their association, and data takes
// the paths of another exchange in the end.
#[test]
fn moves_during_checks_never_lose_an_association() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let pick = |rng: &mut Rng| KINDS[rng.below(3) as usize];
        let mut kinds = [pick(&mut rng), pick(&mut rng)];
        let mut world = world(kinds);
        let begun = world.notes.len();
        world.loss = if seed % 3 == 0 { 0.1 } else { 0.0 };
        for network in 0..12 {
            for (index, kind) in kinds.iter_mut().enumerate() {
                if rng.chance(0.6) {
                    *kind = pick(&mut rng);
                    move_to(&mut world, index, network, *kind);
                }
            }
            let number = 1000 + network as u64;
            world.send(network % 2, number);
            world.run_for(Duration::from_millis(rng.below(4000)));
        }
        world.loss = 0.0;
        let mark = world.notes.len();
        world.run_for(Duration::from_secs(15));
        let expected = are_direct(&mut crate::nat_moves::world(kinds));
        let settled_at = world.now;
        while are_direct(&mut world) != expected {
            // The budget for unverified addresses is used up by so many moves.
            assert!(world.now < settled_at + Duration::from_secs(300), "seed {seed}: {:?}", &world.notes[mark..]);
            world.run_for(Duration::from_secs(10));
        }
        println!("seed {seed}: {:?}", world.now.saturating_since(settled_at));
        for index in 0..2 {
            let peer = world.hosts[1 - index].hit();
            assert_eq!(world.hosts[index].state(peer), State::Established, "seed {seed}");
        }
        let is_lost =
            |event: &Event| matches!(event, Event::Established { .. } | Event::Closed { .. } | Event::Failed { .. });
        let lost = world.notes[begun..].iter().filter(|(index, note)| *index != RELAY && is_lost(&note.event));
        assert_eq!(lost.count(), 0, "seed {seed}: {:?}", world.notes);
    }
}
