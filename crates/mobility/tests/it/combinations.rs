//! Several mechanisms on one host.

use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::delayed_dupacks::DelayedDupacksConfig;
use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::new_cell_window::NewCellWindowConfig;
use holdover_mobility::probe::ProbeConfig;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::retransmission_trigger::{PeerTrigger, RetransmissionTriggerConfig};
use holdover_mobility::silence::SilenceOptions;
use holdover_mobility::timestamp_echo::TimestampEchoConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::user_timeout::UserTimeoutPolicyConfig;
use holdover_mobility::{CombinationError, LinkEvent, Mechanisms};
use holdover_sim::{World, WorldError};
use holdover_tcp::Profile;
use holdover_wire::{Flags, Seq};

use crate::script::*;
use crate::support::*;

const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

fn triggering(peer: PeerTrigger) -> Option<RetransmissionTriggerConfig> {
    Some(RetransmissionTriggerConfig { peer, ..RetransmissionTriggerConfig::default() })
}

/// Each of the ways to withhold ACKs, by its name.
fn withholding() -> [(&'static str, Mechanisms); 3] {
    let hold_back = Some(HoldBackConfig::default());
    let ack_stall = Some(AckStallConfig::default());
    [
        ("wake", Mechanisms { wake: true, ..Mechanisms::default() }),
        ("hold_back", Mechanisms { hold_back, ..Mechanisms::default() }),
        ("ack_stall", Mechanisms { ack_stall, ..Mechanisms::default() }),
    ]
}

/// The names of two mechanisms that interfere.
fn names(error: CombinationError) -> (&'static str, &'static str) {
    match error {
        CombinationError::Interference { one, other, .. } => (one, other),
        CombinationError::WithoutWake { .. } => panic!("{error}"),
    }
}

#[test]
fn options_of_wake_need_a_part_of_it() {
    let silence = Some(SilenceOptions::default());
    let [silence, own_data] = [(silence, false), (None, true)].map(|(silence, own_data)| Mechanisms {
        silence,
        own_data,
        ..Mechanisms::default()
    });
    for (option, mechanisms) in [("silence", silence), ("own_data", own_data)] {
        assert_eq!(mechanisms.check(), Err(CombinationError::WithoutWake { option }));
        let unreachable_poke = Some(UnreachablePokeConfig::default());
        assert_eq!(Mechanisms { unreachable_poke, ..mechanisms.clone() }.check(), Ok(()));
        for (name, withholding) in withholding() {
            let Mechanisms { wake, hold_back, ack_stall, .. } = withholding;
            assert_eq!(Mechanisms { wake, hold_back, ack_stall, ..mechanisms.clone() }.check(), Ok(()), "{name}");
        }
    }
}

#[test]
fn withholding_acks_excludes_mechanisms_that_rely_on_acks() {
    let duplicates = PeerTrigger::DuplicateAcks { segments: 4, piggyback: true };
    let clashes = [
        ("freeze", Mechanisms { freeze: Some(FreezeConfig::default()), ..Mechanisms::default() }),
        (
            "reconnect_acks",
            Mechanisms { reconnect_acks: Some(ReconnectAcksConfig::default()), ..Mechanisms::default() },
        ),
        (
            "fast_retransmit",
            Mechanisms { fast_retransmit: Some(FastRetransmitConfig::default()), ..Mechanisms::default() },
        ),
        (
            "retransmission_trigger",
            Mechanisms { retransmission_trigger: triggering(duplicates), ..Mechanisms::default() },
        ),
        ("probe", Mechanisms { probe: Some(ProbeConfig::default()), ..Mechanisms::default() }),
        (
            "delayed_dupacks",
            Mechanisms { delayed_dupacks: Some(DelayedDupacksConfig::default()), ..Mechanisms::default() },
        ),
    ];
    for (one, mechanisms) in clashes {
        assert_eq!(mechanisms.check(), Ok(()), "{one} alone");
        for (other, withholding) in withholding() {
            let Mechanisms { wake, hold_back, ack_stall, .. } = withholding;
            let error = Mechanisms { wake, hold_back, ack_stall, ..mechanisms.clone() }.check().unwrap_err();
            assert_eq!(names(error), (one, other));
        }
    }
}

#[test]
fn probe_excludes_other_restarts_of_the_sender() {
    let probe = Some(ProbeConfig::default());
    let fast_retransmit = Some(FastRetransmitConfig::default());
    let reconnect_acks = Some(ReconnectAcksConfig::default());
    let restarts = [
        ("fast_retransmit", Mechanisms { fast_retransmit, ..Mechanisms::default() }),
        (
            "retransmission_trigger",
            Mechanisms { retransmission_trigger: triggering(PeerTrigger::None), ..Mechanisms::default() },
        ),
        ("reconnect_acks", Mechanisms { reconnect_acks, ..Mechanisms::default() }),
    ];
    for (other, mechanisms) in restarts {
        let error = Mechanisms { probe, ..mechanisms }.check().unwrap_err();
        assert_eq!(names(error), ("probe", other));
    }
    let rest = Mechanisms {
        probe,
        freeze: Some(FreezeConfig::default()),
        timestamp_echo: Some(TimestampEchoConfig::default()),
        new_cell_window: Some(NewCellWindowConfig::default()),
        user_timeout: Some(UserTimeoutPolicyConfig::default()),
        unreachable_poke: Some(UnreachablePokeConfig::default()),
        ..Mechanisms::default()
    };
    assert_eq!(rest.check(), Ok(()));
}

#[test]
fn other_combinations_are_accepted() {
    for (name, withholding) in withholding() {
        let mechanisms = Mechanisms {
            retransmission_trigger: triggering(PeerTrigger::Option),
            fast_retransmit: Some(FastRetransmitConfig { copies: 0, ..FastRetransmitConfig::default() }),
            timestamp_echo: Some(TimestampEchoConfig::default()),
            new_cell_window: Some(NewCellWindowConfig::default()),
            user_timeout: Some(UserTimeoutPolicyConfig::default()),
            silence: Some(SilenceOptions::default()),
            own_data: true,
            ..withholding
        };
        assert_eq!(mechanisms.check(), Ok(()), "{name}");
    }
    let rest = Mechanisms {
        freeze: Some(FreezeConfig::default()),
        reconnect_acks: Some(ReconnectAcksConfig::default()),
        fast_retransmit: Some(FastRetransmitConfig::default()),
        unreachable_poke: Some(UnreachablePokeConfig::default()),
        ..Mechanisms::default()
    };
    assert_eq!(rest.check(), Ok(()));
}

#[test]
fn a_world_with_excluded_combinations_is_refused() {
    let mechanisms = Mechanisms { wake: true, freeze: Some(FreezeConfig::default()), ..Mechanisms::default() };
    let world = World::new(with(world(Way::Download, Profile::RenoBsd, 1_000, &[]), mechanisms, None));
    let error = world.expect_err("an error");
    assert!(matches!(&error, WorldError::Mechanisms { node, .. } if node == "mobile"), "{error}");
    assert!(error.to_string().contains("\"freeze\" cannot be combined with \"wake\""), "{error}");
}

/// For any first segment after a move: a released one, a window update, or one of the host's TCP.
#[test]
fn every_segment_in_a_new_cell_has_the_small_window() {
    let new_cell_window = Some(NewCellWindowConfig { initial_bytes: 2_000, growth_percent: 0 });
    let freeze = FreezeConfig { warning: WarningPeriod::WholeLead, update_at_up: true, ..FreezeConfig::default() };
    for mechanisms in [
        Mechanisms { wake: true, new_cell_window, ..Mechanisms::default() },
        Mechanisms { freeze: Some(freeze), new_cell_window, ..Mechanisms::default() },
    ] {
        let mut script = Script::new(mechanisms);
        // Windows are not scaled: the SYNs have no Window Scale option.
        let syn = |packet| change(packet, |segment| (segment.seq, segment.flags) = (Seq::new(0), Flags::SYN));
        script.peer(syn(from_peer(0, 0)));
        script.passes(flags(syn(from_host(1, 60_000)), Flags::ACK));
        for number in 0..200_u32 {
            script.at(u64::from(number)).peer(from_peer(number * 1_000 + 1, 1_000));
            script.passes(from_host(number * 1_000 + 1_001, 60_000));
        }
        script.link(LinkEvent::Fading { lead: Some(ms(50)) });
        script.passes(from_host(200_001, 60_000));
        script.at(250).link(LinkEvent::Down).at(3_000);
        script.sent();
        let sent = script.link(MOVED).at(3_100).sent();
        assert!(!sent.is_empty() && sent.iter().all(|segment| segment.window <= 2_000), "{sent:?}");
    }
}
