//! **Releasing held ACKs.** When the link is back, the far sender has given its window up as lost, and waits for a retransmission timer
//! that has been doubled many times. An ACK of new data wakes it, and the order matters:
//!
//! 1. The first ACK acknowledges *one byte*, inside the segment that the sender has been retransmitting. It acknowledges no whole segment,
//!    so it gives no RTT sample as long as the outage and no reason to regard the timeout as spurious: an ACK of a segment that was sent
//!    only once would (F-RTO, RFC 5682), and the sender would take a window of lost segments for one in flight, and wait for another
//!    timeout. But it acknowledges new data, so F-RTO is over.
//! 2. The next acknowledges all the rest at once. Ordinary loss recovery begins, with room for as many segments as were held.
//!
//! Data that the receiver has beyond a hole is reported as well (SACK): otherwise the sender would retransmit it, and take the resulting
//! ACKs for the loss of its retransmissions. Without the first step it is not reported: it would be a reason to regard the timeout as
//! spurious.
//!
//! Both echo a *refreshed* timestamp. The echo of a TSval from before the outage is Eifel's proof (RFC 3522) that the original arrived
//! after all, with the same wrong conclusion. So TSecr is advanced by the elapsed time, as in the thesis behind Freeze-TCP (its timestamp
//! echo update), to a value that the peer's clock has certainly passed. The peer may never have sent that very value; the refresh can be
//! disabled. On a connection so young that the rate of the peer's clock is unknown, TSecr is 0, which Linux treats as no echo: to Linux,
//! the old one would also be a round trip as long as the outage.
//!
//! If the last ACKs before the cut were lost with the link, the sender's first segment is an earlier one: so a one-byte ACK is sent for
//! each of the last ACKs, in ascending order (the *ladder*). Those below the sender's SND.UNA are old to it; those above make it retransmit
//! data that has arrived. So the number of steps is limited to a few. If more ACKs may have been lost, there is one ACK, of everything: it
//! acknowledges segments that were sent once, so the sender undoes its timeout (F-RTO), and with so much acknowledged it has room for new
//! data, whose SACKs show it at once which of the remaining segments are lost.
//!
//! At a gateway the last ACKs of an upload are always lost, a round trip of them, and BBR has no room for new data after ten seconds. The
//! gateway has seen the sender's last data, after which ACKs were lost for certain, and those on the link at that time are few. If the
//! sender has answered a probe, its TSecr is the TSval of the last ACK that it has received (RFC 7323 section 4.3), or one of a
//! millisecond. Steps within such a range are a segment apart: the first one above SND.UNA acknowledges no second segment.
//!
//! All of it was measured on Linux 6.18 senders with CUBIC, Reno and BBR.

use holdover_base::{Duration, Instant};
use holdover_flow::Half;
use holdover_wire::{Packet, Seq};

use crate::Direction;
use crate::echo_clock::EchoClock;
use holdover_filter::{Connection, tcp_mut};

/// Added to half a round trip: an ACK is sent when its data have been processed, and round trips vary.
pub(crate) const LADDER_MARGIN: Duration = Duration::from_millis(5);

/// A TSecr without meaning.
pub(crate) const NO_ECHO: u32 = 0;

/// How held ACKs are released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseConfig {
    /// From link-up to the first ACK. If data arrives within that time, it flows by itself, and nothing is released.
    pub grace: Duration,
    /// ACKs sent within this time before the cut, or half a round trip and 5 ms if that is longer, may have been lost:
    /// a one-byte step is made for each, if they are few. Zero for half a round trip and 5 ms.
    pub ladder: Duration,
    /// Whether TSecr is advanced to the current value of the peer's clock, if known.
    pub refresh_timestamps: bool,
    /// For this long after link-up the host's own ACKs are refreshed too, while they echo a TSval from before the
    /// outage.
    pub refresh_for: Duration,
    /// Whether to make one-byte steps: without them, one ACK covers everything.
    pub two_steps: bool,
}

impl Default for ReleaseConfig {
    /// After 1 ms, with steps for the ACKs of the last 30 ms, and with timestamps refreshed for a second: tested on
    /// Linux 6.18.
    fn default() -> Self {
        Self {
            grace: Duration::from_millis(1),
            ladder: Duration::from_millis(30),
            refresh_timestamps: true,
            refresh_for: Duration::from_secs(1),
            two_steps: true,
        }
    }
}

/// How much of the receiver's acknowledgment a release shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Everything.
    All,
    /// All but the last byte, which can still wake the sender if this release is lost on the way, or the answer to it.
    AllButOneByte,
}

/// The ACKs that the sender may not have received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// ACKs shown since then may have been lost with the link.
    pub(crate) after: Instant,
    /// The last of them.
    pub(crate) last: Seq,
    /// For a gateway.
    pub(crate) beyond: Option<Beyond>,
}

/// A gateway's knowledge of a sender beyond the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    /// The TSecr of its answer to a probe since its return.
    pub(crate) echo: Option<u32>,
}

/// The ACKs that release this much, in order; `direction` is their direction. They echo `echo`, if given.
pub(crate) fn acks(
    config: &ReleaseConfig,
    half: Half<'_>,
    connection: Connection,
    direction: Direction,
    lost: Lost,
    extent: Extent,
    echo: Option<u32>,
) -> Vec<Packet> {
    let Some(acked) = half.acked() else { return Vec::new() };
    let end = match extent {
        Extent::All => acked,
        Extent::AllButOneByte => acked - 1,
    };
    let receiver = connection.of_sender_going(direction);
    let refreshed = |mut packet: Packet| {
        if let (Some(echo), Some(segment)) = (echo, tcp_mut(&mut packet))
            && let Some(timestamps) = &mut segment.options.timestamps
        {
            timestamps.ecr = echo;
        }
        packet
    };
    let mut packets: Vec<Packet> = steps(config, half, direction, lost)
        .into_iter()
        .filter(|ack| ack.lt(end))
        .filter_map(|ack| half.ack_up_to(ack, receiver))
        .collect();
    let last = if packets.is_empty() { half.ack_up_to(end, receiver) } else { half.ack_with_sack(end, receiver) };
    packets.extend(last);
    packets.into_iter().map(refreshed).collect()
}

/// One byte beyond each ACK that may be the last one the sender has received; beyond the very last one only, if these
/// are too many.
fn steps(config: &ReleaseConfig, half: Half<'_>, direction: Direction, lost: Lost) -> Vec<Seq> {
    if !config.two_steps {
        return Vec::new();
    }
    let received = match (direction, lost.beyond) {
        (Direction::Outgoing, Some(Beyond { echo })) => {
            Some(half.may_be_received(lost.after, echo)).filter(|acks| !acks.is_empty())
        }
        (Direction::Outgoing, None) => half.shown_since(lost.after),
        // The host's own TCP has received every ACK shown to it.
        (Direction::Incoming, _) => None,
    };
    received.unwrap_or_else(|| vec![lost.last]).into_iter().map(|ack| ack + 1).collect()
}

/// A TSecr from the time after the outage that the sender's clock has passed; `None` if its rate is unknown. `beyond`
/// is the round trip to the host, for a controller elsewhere.
pub(crate) fn fresh_echo(
    clock: &EchoClock,
    direction: Direction,
    latest_round_trip: Duration,
    beyond: Option<Duration>,
    now: Instant,
) -> Option<u32> {
    match (direction, beyond) {
        // The delay of the TSvals keeps the estimate behind.
        (Direction::Outgoing, None) => clock.at(now),
        // At a gateway that delay is shorter than at the host, which would send the ACK: by the round trip between the
        // two.
        (Direction::Outgoing, Some(beyond)) => clock.around(now - beyond),
        // An ACK that arrives now echoes a TSval of a round trip ago. A later one, of a retransmission into a path that
        // did not work yet, would be a round trip shorter than any: BBR would use it for ten seconds.
        (Direction::Incoming, _) => clock.around(now - latest_round_trip),
    }
}
