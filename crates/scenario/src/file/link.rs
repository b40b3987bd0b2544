//! `[[link]]`.

use holdover_link::{AtEnd, InFlightFate, JitterDistribution, QueuedFate};
use holdover_sim::{Families, LinkKind, OutageKind};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::file::{BitErrors, Compression};
use crate::quantity::{Bytes, DataRate, Percent, Quantity, QueueSize, Time};
use crate::word::{OrNone, Short, Shorthand, Word, vocabulary};

/// The fields of a link in either direction, defined once for both directions and for each.
macro_rules! with_direction {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
            /// The transmission rate. Without rate and trace, sending takes no time.
            pub(crate) rate: Option<DataRate>,
            /// Recorded conditions: a file of packet-delivery times (mahimahi's format), or a CSV table with the columns t, rate,
            /// delay, loss, up.
            pub(crate) trace: Option<Short<Trace>>,
            /// Bytes that the link adds to each packet, such as a link-layer header. They take transmission time but no room in the
            /// queue. The default is 0 bytes.
            pub(crate) overhead: Option<Bytes>,
            /// The propagation delay, one way. The default is 0 s.
            pub(crate) delay: Option<Time>,
            /// Random variation of the delay. The default is none.
            pub(crate) jitter: Option<Short<Jitter>>,
            /// How much may wait for transmission. The default is "unlimited".
            pub(crate) queue_limit: Option<QueueSize>,
            /// Limits queueing delay by CoDel (RFC 8289): a table, empty for the defaults. The default is no CoDel.
            pub(crate) codel: Option<CoDel>,
            /// ECN-capable packets that have waited longer than this are marked. The default is that none are.
            pub(crate) ce_threshold: Option<Time>,
            /// Random loss on the wire: a percentage, or a table for losses in bursts. The default is "0 %".
            pub(crate) loss: Option<Loss>,
            /// The share of packets that enter the queue twice. The default is "0 %".
            pub(crate) duplicate: Option<Percent>,
            /// The share of packets that arrive damaged, so that the receiver drops them. The default is "0 %".
            pub(crate) corrupt: Option<Percent>,
            /// The bit error rate: a number such as 1e-6, or a table for errors in bursts. One damaged bit damages the packet, so
            /// that long packets suffer more. The default is 0.
            pub(crate) bit_errors: Option<BitErrors>,
            /// The share of packets that skip the delay and so overtake others. The default is "0 %".
            pub(crate) reorder: Option<Short<Reorder>>,
            /// Compression of packets before they enter the queue. The default is none.
            pub(crate) compression: Option<Compression>,
        }

        impl $name {
            /// The fields of one direction.
            pub(crate) fn direction(&self) -> DirectionRef<'_> {
                DirectionRef {
                    rate: self.rate.as_ref(),
                    trace: self.trace.as_ref().map(|trace| &trace.0),
                    overhead: self.overhead.as_ref(),
                    delay: self.delay.as_ref(),
                    jitter: self.jitter.as_ref().map(|jitter| &jitter.0),
                    queue_limit: self.queue_limit.as_ref(),
                    codel: self.codel.as_ref(),
                    ce_threshold: self.ce_threshold.as_ref(),
                    loss: self.loss.as_ref(),
                    duplicate: self.duplicate.as_ref(),
                    corrupt: self.corrupt.as_ref(),
                    bit_errors: self.bit_errors.as_ref(),
                    reorder: self.reorder.as_ref().map(|reorder| &reorder.0),
                    compression: self.compression.as_ref(),
                }
            }
        }
    };
}

/// The fields of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectionRef<'a> {
    pub(crate) rate: Option<&'a DataRate>,
    pub(crate) trace: Option<&'a Trace>,
    pub(crate) overhead: Option<&'a Bytes>,
    pub(crate) delay: Option<&'a Time>,
    pub(crate) jitter: Option<&'a Jitter>,
    pub(crate) queue_limit: Option<&'a QueueSize>,
    pub(crate) codel: Option<&'a CoDel>,
    pub(crate) ce_threshold: Option<&'a Time>,
    pub(crate) loss: Option<&'a Loss>,
    pub(crate) duplicate: Option<&'a Percent>,
    pub(crate) corrupt: Option<&'a Percent>,
    pub(crate) bit_errors: Option<&'a BitErrors>,
    pub(crate) reorder: Option<&'a Reorder>,
    pub(crate) compression: Option<&'a Compression>,
}

with_direction! {
    /// A link between two nodes. The fields of the link apply to both directions; "forward" and "backward" override them for
    /// one.
    Link {
        /// Its name: letters, digits, "-", "_" and ".".
        name: String,
        /// The two hosts or routers that it joins.
        between: [String; 2],
        /// The layer below IP. The default is "wire": packets and nothing else.
        kind: Option<Word<LinkKind>>,
        /// How long a link with a second layer drops everything after each return, as a switch that listens and learns, an access
        /// point or a modem does. Up to 30 s; the default is 0 s.
        forwards_after: Option<Time>,
        /// Whether the router of a link with a second layer translates its host's IPv4 addresses on real kernels, and drops
        /// packets that belong to no connection. The default is false.
        nat: Option<bool>,
        /// Whether the host of an Ethernet makes its IPv6 address and default route from its router's advertisements on real
        /// kernels, with duplicate address detection, whenever it has lost them. The default is false: they are static.
        slaac: Option<bool>,
        /// The longest packet that the link carries, IP header included: 576 to 65535 bytes, with IPv6 flows at least 1280. Longer
        /// ones are dropped before they enter it. The default is no limit.
        mtu: Option<Bytes>,
        /// Whether routers report the MTU to the senders of longer packets, by ICMP errors; false for a black hole. Only with "mtu";
        /// the default is true.
        mtu_errors: Option<bool>,
        /// Retransmission on the link, in both directions: a table, empty for the defaults. The default is none.
        arq: Option<Arq>,
        /// Fields that differ from the first named node to the second.
        forward: Option<OneWay>,
        /// Fields that differ from the second named node to the first.
        backward: Option<OneWay>,
        /// When the link is down, and the fate of packets then. Both directions go down together.
        outages: Option<Outages>,
    }
}

with_direction! {
    /// Fields that differ in one direction of a link.
    OneWay {}
}

/// A queue with CoDel.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CoDel {
    /// The acceptable queueing delay. The default is 5 ms.
    pub(crate) target: Option<Time>,
    /// How long the delay must exceed the target before packets are marked or dropped: a long round trip. The default is 100
    /// ms.
    pub(crate) interval: Option<Time>,
    /// Whether ECN-capable packets are marked instead of dropped. The default is true.
    pub(crate) ecn: Option<bool>,
}

/// A link that retransmits its own losses.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arq {
    /// How often a packet is transmitted at most, including the first transmission; "none" for no limit. The default is 13.
    pub(crate) attempts: Option<OrNone<u32>>,
    /// The time from the end of a transmission after which a missing acknowledgement counts as a loss. The default is 20 ms.
    pub(crate) timeout: Option<Time>,
    /// Whether packets leave the link in the order in which they entered it, so that each waits for those before it. The
    /// default is true.
    pub(crate) in_order: Option<bool>,
}

/// A trace: the name of its file, or a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// The file, relative to the scenario's.
    pub(crate) file: String,
    /// Its format. The default is "csv" for a name that ends in .csv, and else "mahimahi".
    pub(crate) format: Option<Word<TraceFormat>>,
    /// The behaviour after the trace's end. The default is "repeat".
    pub(crate) at_end: Option<Word<AtEnd>>,
}

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TraceFormat {
    Mahimahi,
    Csv,
}

vocabulary!(TraceFormat as "TraceFormat" { Self::Mahimahi => "mahimahi", Self::Csv => "csv" });
vocabulary!(AtEnd as "AtEnd" { Self::Repeat => "repeat", Self::Stop => "stop" });

impl Trace {
    pub(crate) fn format(&self) -> TraceFormat {
        let by_name =
            if self.file.to_ascii_lowercase().ends_with(".csv") { TraceFormat::Csv } else { TraceFormat::Mahimahi };
        self.format.map_or(by_name, |format| format.0)
    }
}

impl Shorthand for Trace {
    type Text = String;
    const EXPECTED: &'static str = "the name of a file, or a table with \"file\"";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self { file: text.to_owned(), format: None, at_end: None })
    }

    fn text(&self) -> Option<String> {
        (self.format.is_none() && self.at_end.is_none()).then(|| self.file.clone())
    }
}

/// Random variation of the delay: a time, or a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jitter {
    /// With "uniform" half of the width, with "normal" the standard deviation.
    pub(crate) amplitude: Time,
    /// The distribution. The default is "uniform".
    pub(crate) distribution: Option<Word<JitterDistribution>>,
    /// Whether a packet may overtake those before it. The default is false: it arrives no earlier than its predecessor.
    pub(crate) reorder: Option<bool>,
}

vocabulary!(JitterDistribution as "JitterDistribution" { Self::Uniform => "uniform", Self::Normal => "normal" });

impl Shorthand for Jitter {
    type Text = Time;
    const EXPECTED: &'static str = "a time with its unit, such as \"5 ms\", or a table with \"amplitude\"";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        let amplitude = Time::read(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &Self::EXPECTED))?;
        Ok(Self { amplitude, distribution: None, reorder: None })
    }

    fn text(&self) -> Option<String> {
        (self.distribution.is_none() && self.reorder.is_none()).then(|| self.amplitude.write())
    }
}

/// Random loss.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Loss {
    /// Each packet is lost with this probability, independently of the others.
    Independent(Percent),
    /// In bursts.
    Bursts(GilbertElliott),
}

/// Losses in bursts: the Gilbert-Elliott channel (netem's `loss gemodel p r 1-h 1-k`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GilbertElliott {
    /// netem's p: the probability of a change from the good to the bad state, at each packet.
    pub(crate) good_to_bad: Percent,
    /// netem's r: the probability of a change back. A bad period lasts 1/r packets on average.
    pub(crate) bad_to_good: Percent,
    /// netem's 1-h: the loss probability in the bad state. The default is "100 %".
    pub(crate) loss_in_bad: Option<Percent>,
    /// netem's 1-k: the loss probability in the good state. The default is "0 %".
    pub(crate) loss_in_good: Option<Percent>,
}

struct LossVisitor;

impl<'de> de::Visitor<'de> for LossVisitor {
    type Value = Loss;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a percentage such as \"2 %\", or a table with \"good_to_bad\" and \"bad_to_good\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Loss, E> {
        Percent::read(text).map(Loss::Independent).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
        GilbertElliott::deserialize(de::value::MapAccessDeserializer::new(map)).map(Loss::Bursts)
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LossVisitor)
    }
}

/// Packets that skip the delay: a percentage, or a table (netem's `reorder PERCENT gap DISTANCE`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reorder {
    /// The probability that a candidate is sent at once.
    pub(crate) probability: Percent,
    /// One packet in this many is a candidate. The default is 1: all are.
    pub(crate) gap: Option<u32>,
}

impl Shorthand for Reorder {
    type Text = Percent;
    const EXPECTED: &'static str = "a percentage such as \"2 %\", or a table with \"probability\"";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        let probability =
            Percent::read(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &Self::EXPECTED))?;
        Ok(Self { probability, gap: None })
    }

    fn text(&self) -> Option<String> {
        self.gap.is_none().then(|| self.probability.write())
    }
}

/// When a link is down: a list of outages, or alternating connected and disconnected times; and the fate of packets then.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outages {
    /// The outages, in order of time and without overlap.
    pub(crate) list: Option<Vec<Outage>>,
    /// How long the link is up between two outages: a time, or a distribution.
    pub(crate) connected: Option<Length>,
    /// How long an outage lasts: a time, or a distribution.
    pub(crate) disconnected: Option<Length>,
    /// When the first outage begins. The default is after one "connected" time.
    pub(crate) first_at: Option<Time>,
    /// The number of outages. The default is as many as time allows.
    pub(crate) count: Option<u64>,
    /// The link with which this one alternates, in the order of the file: during the first "connected" time of the named link
    /// only that link is up, during the next one only the first of the links that alternate with it, and so on. Both times of
    /// the named link must be constant, and "disconnected" may be 0 s.
    pub(crate) take_turns_with: Option<String>,
    /// How the ends of an Ethernet or a modem detect an outage. The default is "silent": not at all.
    pub(crate) layer2: Option<Word<OutageKind>>,
    /// The family whose packets are lost. The default is "both" families.
    pub(crate) family: Option<Word<Families>>,
    /// The host's addresses and default routes during an outage. The default is "kept".
    pub(crate) addresses: Option<Word<LinkAddresses>>,
    /// The time from when the link forwards again until they are restored. The default is 0 s.
    pub(crate) addresses_after: Option<Time>,
    /// The fate of packets that are queued when the link goes down, or arrive while it is down. The default is "held", and
    /// "dropped" if an end loses its carrier.
    pub(crate) queued: Option<Word<QueuedFate>>,
    /// The fate of packets that are on the wire when the link goes down. The default is "delivered", and "dropped" if an end
    /// loses its carrier.
    pub(crate) in_flight: Option<Word<InFlightFate>>,
}

/// A host's addresses in an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkAddresses {
    Kept,
    Lost,
    Renewed,
}

vocabulary!(LinkKind as "LinkKind" {
    Self::Wire => "wire",
    Self::Ethernet => "ethernet",
    Self::RawIp => "raw-ip",
});
vocabulary!(Families as "Families" { Self::Both => "both", Self::Ipv4 => "ipv4", Self::Ipv6 => "ipv6" });
vocabulary!(LinkAddresses as "AddressLoss" { Self::Kept => "kept", Self::Lost => "lost", Self::Renewed => "renewed" });
vocabulary!(OutageKind as "OutageKind" {
    Self::Silent => "silent",
    Self::Carrier => "carrier",
    Self::CarrierNear => "carrier-near",
    Self::AdminDown => "admin-down",
    Self::HostDown => "host-down",
});

vocabulary!(QueuedFate as "QueuedFate" {
    Self::Held => "held",
    Self::Dropped => "dropped",
    Self::Lost => "lost",
    Self::Corrupted => "corrupted",
});
vocabulary!(InFlightFate as "InFlightFate" {
    Self::Delivered => "delivered",
    Self::Dropped => "dropped",
    Self::Corrupted => "corrupted",
});

/// One outage: its start, and either its length or its end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outage {
    /// When the outage begins.
    pub(crate) at: Time,
    /// How long the outage lasts. Without "for" and "until", it never ends.
    #[serde(rename = "for")]
    pub(crate) length: Option<Time>,
    /// When the outage ends.
    pub(crate) until: Option<Time>,
}

/// A length of time: constant, or drawn from a distribution.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Length {
    /// A constant time.
    Constant(Time),
    /// Drawn again each time.
    Drawn(LengthTable),
}

/// A distribution of a length of time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LengthTable {
    /// The distribution.
    pub(crate) distribution: Word<Distribution>,
    /// The mean of "exponential" or "normal".
    pub(crate) mean: Option<Time>,
    /// The standard deviation of "normal", which is cut off at zero.
    pub(crate) deviation: Option<Time>,
    /// The least value of "uniform".
    pub(crate) min: Option<Time>,
    /// The greatest value of "uniform".
    pub(crate) max: Option<Time>,
}

/// The kinds of distributions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Distribution {
    Exponential,
    Normal,
    Uniform,
}

vocabulary!(Distribution as "Distribution" {
    Self::Exponential => "exponential",
    Self::Normal => "normal",
    Self::Uniform => "uniform",
});

struct LengthVisitor;

impl<'de> de::Visitor<'de> for LengthVisitor {
    type Value = Length;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a time with its unit, such as \"5 s\", or a table with \"distribution\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Length, E> {
        Time::read(text).map(Length::Constant).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Length, A::Error> {
        LengthTable::deserialize(de::value::MapAccessDeserializer::new(map)).map(Length::Drawn)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LengthVisitor)
    }
}
