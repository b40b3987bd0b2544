//! The settings of a run, their names, and selections of them.

use core::fmt;

use holdover_tcp::{Config, Profile};

use super::covering::{self, Row};
use crate::Congestion;

/// One set of settings. Its `Display` is its name, such as `connect-send-cubic-sack-ts-noscale-loss-1500-v6-linux-2.4`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combination {
    /// The side that opens the connection.
    pub opening: Opening,
    /// The side that sends data.
    pub flow: Flow,
    /// The kernel's congestion control.
    pub congestion: Congestion,
    /// The kernel's `net.ipv4.tcp_sack`.
    pub sack: bool,
    /// The kernel's `net.ipv4.tcp_timestamps`.
    pub timestamps: bool,
    /// The kernel's `net.ipv4.tcp_window_scaling`.
    pub window_scaling: bool,
    /// The impairment of packets.
    pub path: Path,
    /// The interface's MTU.
    pub mtu: Mtu,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The profile of our side.
    pub profile: Profile,
}

macro_rules! setting {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in reports and tests.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

setting! {
    /// The side that opens the connection.
    Opening {
        /// Our side connects, the kernel listens.
        Connect = "connect",
        /// Our side listens, the kernel connects.
        Listen = "listen",
    }
}

setting! {
    /// The side that sends data.
    Flow {
        /// Our side.
        Send = "send",
        /// The kernel.
        Receive = "receive",
        /// Both, at the same time.
        Both = "both",
    }
}

setting! {
    /// The impairment of packets, equal in both directions. Every path has the same delay.
    Path {
        /// None.
        Clean = "clean",
        /// One in a hundred is lost.
        Loss = "loss",
        /// One in fifty is overtaken by later ones.
        Reordering = "reordering",
        /// One in fifty arrives twice.
        Duplication = "duplication",
        /// One in a hundred has a bit flipped.
        Corruption = "corruption",
        /// Everything is lost for two seconds.
        Outage = "outage",
    }
}

setting! {
    /// The interface's MTU.
    Mtu {
        /// The least MTU that every host must support: 576 bytes over IPv4 (RFC 791), 1280 over IPv6 (RFC 8200).
        Least = "least",
        /// Ethernet's 1500 bytes.
        Ethernet = "1500",
    }
}

setting! {
    /// The version of IP.
    Family {
        /// IPv4.
        V4 = "v4",
        /// IPv6.
        V6 = "v6",
    }
}

impl Flow {
    /// Whether our side sends data.
    pub const fn we_send(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Whether the kernel sends data.
    pub const fn kernel_sends(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }
}

impl Combination {
    /// The number of settings.
    const SETTINGS: usize = 10;
    /// The number of values of each setting. The profile is the first: its options determine which combinations are
    /// effective.
    const LEVELS: [usize; Self::SETTINGS] = [
        Profile::ALL.len(),
        Path::ALL.len(),
        Opening::ALL.len(),
        Flow::ALL.len(),
        Congestion::ALL.len(),
        2,
        2,
        2,
        Mtu::ALL.len(),
        Family::ALL.len(),
    ];
    /// The positions of the TCP options among the settings.
    const SACK: usize = 5;
    const TIMESTAMPS: usize = 6;
    const WINDOW_SCALING: usize = 7;

    /// The MTU in bytes.
    pub const fn mtu_bytes(&self) -> u16 {
        match (self.mtu, self.family) {
            (Mtu::Least, Family::V4) => 576,
            (Mtu::Least, Family::V6) => 1280,
            (Mtu::Ethernet, _) => 1500,
        }
    }

    /// The configuration of our side: the profile, with segments that fit the MTU.
    pub fn config(&self) -> Config {
        let mut config = self.profile.config();
        let headers = match self.family {
            Family::V4 => 40,
            Family::V6 => 60,
        };
        config.mss = config.mss.min(self.mtu_bytes() - headers);
        config
    }

    /// Whether SACK is negotiated: both sides have to offer it.
    pub fn sack_agreed(&self) -> bool {
        self.sack && self.config().sack
    }

    /// Whether timestamps are negotiated.
    pub fn timestamps_agreed(&self) -> bool {
        self.timestamps && self.config().timestamps.is_some()
    }

    /// Whether window scaling is negotiated.
    pub fn window_scaling_agreed(&self) -> bool {
        self.window_scaling && self.config().window_scale.is_some()
    }

    fn from_row(row: &Row<{ Self::SETTINGS }>) -> Self {
        Self {
            profile: Profile::ALL[row[0]],
            path: Path::ALL[row[1]],
            opening: Opening::ALL[row[2]],
            flow: Flow::ALL[row[3]],
            congestion: Congestion::ALL[row[4]],
            sack: row[Self::SACK] == 0,
            timestamps: row[Self::TIMESTAMPS] == 0,
            window_scaling: row[Self::WINDOW_SCALING] == 0,
            mtu: Mtu::ALL[row[8]],
            family: Family::ALL[row[9]],
        }
    }

    /// Whether two settings are effective together under a profile: an option that the kernel offers and the profile does not is never in
    /// effect, so it is paired with the profile only.
    fn meet(profile: Option<usize>, (first, first_value): (usize, usize), second: usize) -> bool {
        let Some(profile) = profile.filter(|_| second != 0) else { return true };
        let config = Profile::ALL[profile].config();
        let is_offered = match first {
            Self::SACK => config.sack,
            Self::TIMESTAMPS => config.timestamps.is_some(),
            Self::WINDOW_SCALING => config.window_scale.is_some(),
            _ => true,
        };
        is_offered || first_value != 0
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = |is_on, on, off| if is_on { on } else { off };
        write!(
            f,
            "{}-{}-{}-{}-{}-{}-{}-{}-{}-{}",
            self.opening,
            self.flow,
            self.congestion.name(),
            option(self.sack, "sack", "nosack"),
            option(self.timestamps, "ts", "nots"),
            option(self.window_scaling, "scale", "noscale"),
            self.path,
            self.mtu_bytes(),
            self.family,
            self.profile,
        )
    }
}

/// A selection of combinations in which every pair of values occurs at least once, the same at each call.
pub fn every_pair() -> Vec<Combination> {
    let meets = |row: &covering::Partial<{ Combination::SETTINGS }>, a: usize, b: usize| match (row[a], row[b]) {
        (Some(value_a), Some(value_b)) => {
            Combination::meet(row[0], (a, value_a), b) && Combination::meet(row[0], (b, value_b), a)
        }
        _ => true,
    };
    covering::pairwise(&Combination::LEVELS, meets).iter().map(Combination::from_row).collect()
}

/// All combinations of the settings, with the given profile, or else each profile in turn.
pub fn every_combination(profile: Option<Profile>) -> Vec<Combination> {
    let mut rows = vec![[0; Combination::SETTINGS]];
    for (setting, &levels) in Combination::LEVELS.iter().enumerate().skip(1) {
        let with = |row: &Row<{ Combination::SETTINGS }>, value| {
            let mut row = *row;
            row[setting] = value;
            row
        };
        rows = rows.iter().flat_map(|row| (0..levels).map(move |value| with(row, value))).collect();
    }
    // Profiles take turns pseudo-randomly (Fibonacci hashing): in turn by the index alone, or by its digits, some of them would miss values
    // of settings with two values.
    let in_turn = |index: usize| {
        let hash = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (hash % Profile::ALL.len() as u64) as usize
    };
    let turn = |index: usize| profile.unwrap_or(Profile::ALL[in_turn(index)]);
    rows.iter()
        .enumerate()
        .map(|(index, row)| Combination { profile: turn(index), ..Combination::from_row(row) })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of the settings' values, and whether each is a value of an option that the profile does not offer.
    fn values(combination: &Combination) -> [(String, bool); Combination::SETTINGS] {
        let c = combination;
        let option = |name: &str, is_on: bool, is_agreed: bool| (format!("{name}={is_on}"), is_on && !is_agreed);
        let other = |name: &dyn fmt::Display| (name.to_string(), false);
        [
            other(&c.profile),
            other(&c.path),
            other(&c.opening),
            other(&c.flow),
            other(&c.congestion.name()),
            option("sack", c.sack, c.sack_agreed()),
            option("timestamps", c.timestamps, c.timestamps_agreed()),
            option("scaling", c.window_scaling, c.window_scaling_agreed()),
            other(&c.mtu),
            other(&c.family),
        ]
    }

    fn pairs_in(combinations: &[Combination]) -> BTreeSet<(String, String)> {
        let mut pairs = BTreeSet::new();
        for combination in combinations {
            let values = values(combination);
            for (a, (first, first_is_idle)) in values.iter().enumerate() {
                for (second, second_is_idle) in &values[a + 1..] {
                    // An option that is not in effect is paired only with the profile, which is the first value.
                    if a == 0 || !(*first_is_idle || *second_is_idle) {
                        pairs.insert((first.clone(), second.clone()));
                    }
                }
            }
        }
        pairs
    }

    #[test]
    fn the_selection_has_every_pair_that_the_product_has() {
        let product: Vec<_> = Profile::ALL.into_iter().flat_map(|profile| every_combination(Some(profile))).collect();
        assert_eq!(product.len(), Profile::ALL.len() * 3456);
        let selection = every_pair();
        assert_eq!(pairs_in(&selection), pairs_in(&product));
        // Each profile meets each path.
        let least = Profile::ALL.len() * Path::ALL.len();
        assert!((least..=least + 10).contains(&selection.len()), "{} combinations", selection.len());
        assert_eq!(selection, every_pair(), "the same at each call");
    }

    #[test]
    fn the_product_is_whole_and_names_are_unique() {
        let product = every_combination(None);
        assert_eq!(product.len(), 3456);
        let names: BTreeSet<_> = product.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 3456);
        assert_eq!(pairs_in(&product), pairs_in(&every_pair()), "profiles in turn miss no pair either");
    }

    #[test]
    fn the_name_says_everything() {
        let combination = Combination {
            opening: Opening::Connect,
            flow: Flow::Send,
            congestion: Congestion::Cubic,
            sack: true,
            timestamps: true,
            window_scaling: false,
            path: Path::Loss,
            mtu: Mtu::Least,
            family: Family::V6,
            profile: Profile::Linux2_4,
        };
        assert_eq!(combination.to_string(), "connect-send-cubic-sack-ts-noscale-loss-1280-v6-linux-2.4");
        assert_eq!(combination.config().mss, 1220);
    }
}
