//! Random cases: the beginning of a connection, and the steps after it.

use super::*;

/// A step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Segment(Shape),
    Link(LinkEvent),
    /// The release, and other due deadlines.
    Timeout,
    Order(bool, Order),
    Wait(u64),
    /// The agent hangs, or runs again.
    Hang(bool),
    /// A rule exempts the connection, or the exemption ends.
    LeaveAlone(bool),
    /// The steps that follow are about the other connection.
    Switch,
    /// The agent removes the connection.
    Forget,
    /// The agent frees idle predictions.
    FreeIdle,
    /// The host opens another connection with the same addresses and this initial sequence number.
    Reopen(u32),
}

/// A segment, relative to earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) is_outgoing: bool,
    pub(super) micros_later: u64,
    /// The sequence number relative to SND.NXT: negative for a retransmission, positive for a gap.
    pub(super) ahead: i32,
    pub(super) len: u16,
    /// The segment size of a GSO packet.
    pub(super) gso_size: u16,
    /// How far the ACK is below the end of the data received; negative: above it.
    pub(super) ack_short: i32,
    pub(super) window: u16,
    pub(super) flags: u8,
    pub(super) options: Vec<OptionShape>,
    pub(super) extension_headers: u8,
    pub(super) traffic_class: u8,
    /// Ticks of the timestamp clock since the last segment.
    pub(super) ticks: i32,
}

#[derive(Clone, Debug)]
pub(super) enum OptionShape {
    Stamps {
        age_ticks: u8,
    },
    /// As usual: after two no-operations.
    AlignedStamps,
    Sack(Vec<(u16, u16)>),
    NoOperation,
    UserTimeout,
    Unknown(u8),
    Malformed(u8),
}

pub(super) fn option() -> impl Strategy<Value = OptionShape> {
    prop_oneof![
        8 => (0_u8..4).prop_map(|age_ticks| OptionShape::Stamps { age_ticks }),
        2 => prop::collection::vec((1_u16..9000, 1_u16..3000), 1..=4).prop_map(OptionShape::Sack),
        2 => Just(OptionShape::NoOperation),
        1 => Just(OptionShape::UserTimeout),
        1 => (0_u8..6).prop_map(OptionShape::Unknown),
        1 => any::<u8>().prop_map(OptionShape::Malformed),
    ]
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
    let place = (any::<bool>(), 1_u64..20_000, prop_oneof![8 => Just(0), 1 => -3000..0, 1 => 1..3000]);
    let size = (prop_oneof![3 => Just(0_u16), 3 => Just(1000), 2 => 1_u16..1400, 1 => 1400_u16..2600], 100_u16..700);
    let ack =
        (prop_oneof![10 => Just(0), 2 => 0..4000, 1 => -5000..0], prop_oneof![9 => 200_u16..u16::MAX, 1 => 0_u16..20]);
    let flags = prop_oneof![40 => Just(0x10_u8), 4 => Just(0x18), 1 => Just(0x11), 1 => Just(0x14), 2 => Just(0x12), 1 => Just(0x02), 1 => Just(0)];
    let options = prop_oneof![
        4 => Just(vec![OptionShape::Stamps { age_ticks: 0 }]),
        2 => Just(vec![OptionShape::AlignedStamps]),
        4 => prop::collection::vec(option(), 0..4)
    ];
    (place, size, ack, flags, options, 0_u8..3, any::<u8>()).prop_map(
        |((is_outgoing, micros_later, ahead), (len, gso_size), (ack_short, window), flags, options, headers, class)| {
            Shape {
                is_outgoing,
                micros_later,
                ahead,
                len,
                gso_size,
                ack_short,
                window,
                flags,
                options,
                extension_headers: headers,
                traffic_class: class,
                ticks: [0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 300, -1, -4][usize::from(class % 16)],
            }
        },
    )
}

/// The next segment in order, with the current ACK and the usual options.
pub(super) fn in_order(is_outgoing: bool, (len, gso_size): (u16, u16), micros_later: u64, same_tick: bool) -> Step {
    Step::Segment(Shape {
        is_outgoing,
        micros_later,
        ahead: 0,
        len,
        gso_size,
        ack_short: 0,
        window: 60_000,
        flags: 0x10,
        options: vec![OptionShape::AlignedStamps],
        extension_headers: 0,
        traffic_class: 0,
        ticks: i32::from(!same_tick),
    })
}

/// Data in one direction at full speed, with its ACKs and a few other segments.
pub(super) fn bulk() -> impl Strategy<Value = Vec<Step>> {
    let turn = (0_u8..4, prop_oneof![6 => Just(None), 1 => step().prop_map(Some)], 1_u64..6, 0_u8..8);
    let size = prop_oneof![Just((1000_u16, 0_u16)), Just((2400, 600)), Just((2500, 600))];
    (any::<bool>(), size, prop::collection::vec(turn, 1..80)).prop_map(|(is_outgoing, (len, gso_size), turns)| {
        let segment =
            |is_outgoing, len, micros_later, tick| in_order(is_outgoing, (len, gso_size), micros_later, tick > 0);
        let mut steps = Vec::new();
        for (segments, other, micros, tick) in turns {
            steps.extend((0..segments).map(|_| segment(is_outgoing, len, micros, tick)));
            steps.extend(other);
            steps.push(segment(!is_outgoing, 0, micros, tick.saturating_sub(3)));
        }
        steps
    })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let lead = prop::option::of((0_u64..800).prop_map(Duration::from_millis));
    let event = prop_oneof![
        lead.prop_map(|lead| LinkEvent::Fading { lead }),
        Just(LinkEvent::Recovered),
        Just(LinkEvent::Down),
        any::<bool>().prop_map(|moved| LinkEvent::Up { symmetric: false, moved }),
    ];
    let order = prop_oneof![
        (0_u32..40_000).prop_map(|ack| Order::Show(Seq::new(ack))),
        (0_u32..40_000, 0_u64..90_000).prop_map(|(ack, hold_from)| Order::Flush { ack: Seq::new(ack), hold_from }),
        Just(Order::Reopened),
        any::<bool>().prop_map(Order::Record),
        any::<bool>().prop_map(Order::Clock),
        (any::<u16>(), any::<u32>(), prop_oneof![Just(1000_u64), Just(1_000_000)])
            .prop_map(|(stale, value, ticks_per_sec)| Order::Refresh { stale: stale.into(), value, ticks_per_sec }),
        (0_u8..20).prop_map(Order::WindowShift),
    ];
    prop_oneof![
        60 => shape().prop_map(Step::Segment),
        3 => event.prop_map(Step::Link),
        2 => Just(Step::Timeout),
        2 => (any::<bool>(), order).prop_map(|(is_outgoing, order)| Step::Order(is_outgoing, order)),
        2 => (0_u64..2_000).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Hang),
        1 => any::<bool>().prop_map(Step::LeaveAlone),
        2 => Just(Step::Switch),
        1 => Just(Step::FreeIdle),
        1 => prop_oneof![Just(Step::Forget), any::<u32>().prop_map(Step::Reopen)],
    ]
}

/// A case: the beginning of the connection, and the steps.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The index in [`configs`].
    pub(super) config: usize,
    pub(super) ipv6: bool,
    pub(super) is_old: bool,
    pub(super) scales: (Option<u8>, Option<u8>),
    pub(super) first: (u32, u32),
    /// Begins with the second of two connections whose predictions share a place.
    pub(super) is_other: bool,
    /// The number of packets between comparisons of the states: reading folds predicted packets into the flow.
    pub(super) compared: usize,
    pub(super) steps: Vec<Step>,
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let first = prop_oneof![Just((1000, 2000)), Just((u32::MAX - 9000, u32::MAX - 20_000)), any::<(u32, u32)>()];
    let scale = || prop::option::of(0_u8..16);
    let config = prop_oneof![5 => Just(0), 3 => 1..configs().len()];
    let steps = prop_oneof![
        3 => prop::collection::vec(step(), 1..120),
        1 => prop::collection::vec(bulk(), 1..4).prop_map(|bulks| bulks.concat()),
    ];
    let compared = prop_oneof![Just(1), Just(3), Just(20), Just(1000)];
    (config, (any::<bool>(), any::<bool>(), any::<bool>()), (scale(), scale()), (first, compared), steps).prop_map(
        |(config, (ipv6, is_old, is_other), scales, (first, compared), steps)| Case {
            config,
            ipv6,
            is_old,
            scales,
            first,
            is_other,
            compared,
            steps,
        },
    )
}
