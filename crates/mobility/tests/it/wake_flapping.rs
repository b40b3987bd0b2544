//! Downloads over a link that is lost several times in quick succession.

use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::Profile;

use crate::support::*;
use crate::wake_script::{Script, UP};

/// Lengths of losses, and of the times between them, in ms: up to ten round trips.
const LENGTHS_MS: [(u64, u64); 3] = [(100, 100), (250, 250), (500, 500)];

fn wake() -> Mechanisms {
    Mechanisms { wake: true, ..Mechanisms::default() }
}

/// How long a transfer takes that loses the link `losses` times from 4 s on, in s.
fn takes(way: Way, profile: Profile, losses: u64, (down_ms, up_ms): (u64, u64), mechanisms: Mechanisms) -> f64 {
    let from_ms = |loss| 4_000 + loss * (down_ms + up_ms);
    let outages: Vec<(u64, u64)> = (0..losses).map(|loss| (from_ms(loss), from_ms(loss) + down_ms)).collect();
    run(with(world(way, profile, 12_500_000, &outages), mechanisms, None)).duration().as_secs_f64()
}

// Claim: A download that loses its link up to twenty times, with up to ten round trips between, takes no more than 3 % longer with `wake` than
// without, and 4 % less on average.
#[test]
fn a_download_over_a_link_that_flaps_is_not_slower() {
    let mut shares = Vec::new();
    for profile in [Profile::Linux6Cubic, Profile::Linux6Reno, Profile::Linux6Bbr] {
        for losses in [1, 2, 3, 5, 10, 20] {
            for lengths in LENGTHS_MS {
                let of = |mechanisms| takes(Way::Download, profile, losses, lengths, mechanisms);
                let share = of(wake()) / of(Mechanisms::default());
                assert!(share <= 1.03, "{profile}, {losses} losses, {lengths:?} ms: {share}");
                shares.push(share);
            }
        }
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean <= 0.96, "{mean}");
}

/// ACKs wait until the link has been up for longer than before the last loss.
// Claim: After a loss soon after another one a download is woken, and its ACKs pass, when the link has been up for longer than before that loss.
#[test]
fn a_link_that_is_lost_again_soon_releases_nothing() {
    let mut t = Script::of(&wake(), 200);
    for loss in 0..4 {
        t.link(LinkEvent::Down);
        t.wait(ms(300));
        t.link(UP);
        let acks = t.wait_for_acks(ms(99));
        assert_eq!(acks.is_empty(), loss > 0, "loss {loss}: {acks:?}");
        assert_eq!(t.exchange().is_none(), loss > 0, "loss {loss}");
    }
    assert!(t.wait_for_acks(ms(22)).is_empty());
    assert_eq!(
        t.wait_for_acks(ms(1)).last(),
        Some(&t.data_end),
        "it was up for 100 ms; an eighth and 10 ms more are over"
    );
    assert!(t.exchange().is_some());
}

/// The host's own data do not wait.
#[test]
fn an_upload_is_resumed_at_each_return() {
    for profile in [Profile::Linux6Cubic, Profile::Linux6Reno, Profile::Linux6Bbr] {
        let of = |mechanisms| takes(Way::Upload, profile, 3, (250, 250), mechanisms);
        let (plain, with) = (of(Mechanisms::default()), of(wake()));
        assert!(with <= 0.96 * plain, "{profile}: {plain} {with}");
    }
}
