//! Properties of the detector after any history.

use proptest::prelude::*;

use super::super::*;
use super::world::*;

/// An event of a world.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Send(usize),
    Exchange(usize),
    Ack,
    Others,
    Wait(u64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..4usize).prop_map(Happening::Send),
        (0..4usize).prop_map(Happening::Exchange),
        Just(Happening::Ack),
        Just(Happening::Others),
        (5..900u64).prop_map(Happening::Wait),
        (5..30_000u64).prop_map(Happening::Wait),
    ]
}

fn happen(world: &mut World, happening: Happening) {
    match happening {
        Happening::Send(peer) => world.send(peer),
        Happening::Exchange(peer) => world.exchange(peer),
        Happening::Ack => world.traffic.tcp_sent += 1,
        Happening::Others => world.traffic.others_received += 1,
        Happening::Wait(millis) => world.run(millis, |_, _| {}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// While any peer is answered at least once in 0.9 s, nothing is ever suspected, whatever the others do: but once if the router no longer
    /// answers.
    #[test]
    fn one_that_is_answered_is_enough(
        happenings in prop::collection::vec(any_happening(), 1..60),
        has_router: bool,
        routers_answer: bool,
    ) {
        let mut world = World::behind(4, if has_router { &[ROUTER] } else { &[] });
        (world.routers_answer, world.peers_answer) = (routers_answer, false);
        for happening in happenings {
            if let Happening::Wait(millis) = happening {
                world.run(millis, |world, step| if step % 150 == 0 { world.exchange(3) });
            } else {
                happen(&mut world, happening);
            }
        }
        prop_assert_eq!(world.count(is_down), 0);
        prop_assert!(world.count(listens) <= usize::from(!routers_answer), "{:?}", world.acts);
    }

    /// A link that works except for peers that are gone is never down while its router and a probed peer answer.
    #[test]
    fn a_link_that_answers_is_never_down(
        happenings in prop::collection::vec(any_happening(), 1..60),
        has_router: bool,
    ) {
        let mut world = World::behind(4, if has_router { &[ROUTER] } else { &[] });
        happenings.into_iter().for_each(|happening| happen(&mut world, happening));
        prop_assert_eq!(world.count(is_down), 0);
    }

    /// After any history: a complete cut during transmission is noticed, and so is its end.
    #[test]
    fn a_cut_is_noticed_whatever_was_before(happenings in prop::collection::vec(any_happening(), 0..60)) {
        let mut world = World::new(4);
        happenings.into_iter().for_each(|happening| happen(&mut world, happening));
        // The peer exists when the cut comes.
        world.exchange(0);
        world.run(1000, |_, _| {});
        world.exchange(0);
        world.cut();
        world.run(5000, |world, step| upload(world, step, true));
        prop_assert!(world.is_listening);
        prop_assert!(world.watch.is_silent());
        world.mark();
        world.routers_answer = true;
        world.run(200, |_, _| {});
        prop_assert_eq!(world.count(|act| *act == Act::End), 1);
        prop_assert!(!world.watch.is_silent());
    }
}
