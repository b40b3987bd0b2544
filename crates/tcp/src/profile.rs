//! Named stacks, each with the evidence for its differences from [`Config::rfc`].

mod bsd;
mod ns;

use core::fmt;
use core::str::FromStr;

use holdover_base::Duration;

use crate::config::{
    AccurateEcnConfig, AccurateEcnRules, AckCounting, AckPolicy, Algorithm, BeyondWindow, BufferGrowth, Config,
    CongestionConfig, Ecn, Estimator, HyStartVariant, InitialWindow, LimitConfig, LossDetection, PathMtuConfig, Paws,
    PersistConfig, ProbePayload, ReceiveConfig, RecoveryConfig, Reduction, RetryLimit, RtoConfig, SendConfig,
    SsthreshBasis, UserTimeoutConfig, WindowUpdate, ZeroWindow,
};

/// A named stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Profile {
    /// 4.3BSD-Tahoe (1988): slow start, fast retransmit, no fast recovery.
    TahoeBsd,
    /// 4.3BSD-Reno (1990): fast recovery, ended by the first ACK that advances.
    RenoBsd,
    /// The `Sack1` agent of ns-2.1b7, with the persist mode that the Freeze-TCP thesis added.
    Sack1Ns2,
    /// Linux 2.1.101, the kernel of the Freeze-TCP prototype.
    Linux2_1,
    /// Linux 2.4.20, the kernel of the HIP and user timeout test bed.
    Linux2_4,
    /// Linux 6.18 with `net.ipv4.tcp_congestion_control = reno`.
    Linux6Reno,
    /// Linux 6.18 with `net.ipv4.tcp_congestion_control = cubic`.
    Linux6Cubic,
    /// Linux 6.18 with `net.ipv4.tcp_congestion_control = bbr`: BBR version 1.
    Linux6Bbr,
    /// BBR version 3 as published, in everything else Linux 6.18.
    BbrV3,
    /// AIX 4.2, the distant sender of the Freeze-TCP paper.
    Aix4_2,
    /// NetBSD 1.1, the system of the M-TCP paper.
    NetBsd1_1,
    /// FreeBSD 2.2, the sender of the Freeze-TCP paper that sends nothing into a closed window.
    FreeBsd2_2,
    /// Solaris 2.6, the local sender of the Freeze-TCP paper.
    Solaris2_6,
    /// The Tahoe sender of LBL's ns, as the PROBE paper describes it.
    TahoeNs1,
    /// The Reno sender of LBL's ns, as the PROBE paper describes it.
    RenoNs1,
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 15] = [
        Self::TahoeBsd,
        Self::RenoBsd,
        Self::Sack1Ns2,
        Self::Linux2_1,
        Self::Linux2_4,
        Self::Linux6Reno,
        Self::Linux6Cubic,
        Self::Linux6Bbr,
        Self::BbrV3,
        Self::Aix4_2,
        Self::NetBsd1_1,
        Self::FreeBsd2_2,
        Self::Solaris2_6,
        Self::TahoeNs1,
        Self::RenoNs1,
    ];

    /// The name in scenario files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TahoeBsd => "tahoe-bsd",
            Self::RenoBsd => "reno-bsd",
            Self::Sack1Ns2 => "sack1-ns2",
            Self::Linux2_1 => "linux-2.1",
            Self::Linux2_4 => "linux-2.4",
            Self::Linux6Reno => "linux-6-reno",
            Self::Linux6Cubic => "linux-6-cubic",
            Self::Linux6Bbr => "linux-6-bbr",
            Self::BbrV3 => "bbr-v3",
            Self::Aix4_2 => "aix-4.2",
            Self::NetBsd1_1 => "netbsd-1.1",
            Self::FreeBsd2_2 => "freebsd-2.2",
            Self::Solaris2_6 => "solaris-2.6",
            Self::TahoeNs1 => "tahoe-ns1",
            Self::RenoNs1 => "reno-ns1",
        }
    }

    /// How a connection of this stack behaves.
    pub const fn config(self) -> Config {
        match self {
            Self::TahoeBsd => bsd::bsd(LossDetection::Tahoe),
            Self::RenoBsd => bsd::bsd(LossDetection::Reno),
            Self::Sack1Ns2 => ns::sack1_ns2(),
            Self::Linux2_1 => linux_2_1(),
            Self::Linux2_4 => linux_2_4(),
            Self::Linux6Reno => linux_6(Algorithm::Reno),
            Self::Linux6Cubic => linux_6(Algorithm::Cubic),
            Self::Linux6Bbr => linux_6(Algorithm::Bbr),
            Self::BbrV3 => linux_6(Algorithm::Bbr3),
            Self::Aix4_2 => bsd::aix_4_2(),
            Self::NetBsd1_1 => bsd::netbsd_1_1(),
            Self::FreeBsd2_2 => bsd::freebsd_2_2(),
            Self::Solaris2_6 => bsd::solaris_2_6(),
            Self::TahoeNs1 => ns::ns1(LossDetection::Tahoe),
            Self::RenoNs1 => ns::ns1(LossDetection::Reno),
        }
    }
}

/// Common to all Linux profiles. Evidence: RFC 6298's floor lowered to 200 ms and the ceiling at 120 s
/// (`TCP_RTO_MIN`, `TCP_RTO_MAX` in every version from 2.1 on; confirmed for 6.18 by capture, see `docs/notes/linux-6.18.md`), the margin of
/// the RTO bounded from below (the HIP test bed's RTO schedule), probes without data.
const fn linux() -> Config {
    let rfc = Config::rfc();
    Config {
        paws: Paws::LinuxDuplicates,
        send: SendConfig { window_update: WindowUpdate::LargerOnly, silly_window_override: ms(200), ..rfc.send },
        rto: RtoConfig {
            initial: ms(3_000),
            min: ms(200),
            max: ms(120_000),
            tick: Duration::ZERO,
            estimator: Estimator::Linux,
            one_sample_per_window: false,
            samples_echo: false,
        },
        persist: PersistConfig {
            min: ms(200),
            max: ms(120_000),
            payload: ProbePayload::Empty,
            give_up_after: Some(15),
        },
        limits: LimitConfig {
            syn_retries: 5,
            r2: RetryLimit::Retries(15),
            // TCP_TIMEWAIT_LEN.
            time_wait: ms(60_000),
            ..rfc.limits
        },
        recovery: RecoveryConfig {
            repair_ahead: false,
            loss_probe: false,
            frto: false,
            zero_window: ZeroWindow::Retransmit,
            ..rfc.recovery
        },
        congestion: CongestionConfig {
            algorithm: Algorithm::Reno,
            syn_retransmissions_forgiven: 1,
            ssthresh_basis: SsthreshBasis::CongestionWindow,
            restart_after_idle: false,
            validate_after_idle: true,
            ..rfc.congestion
        },
        user_timeout: UserTimeoutConfig { covers_zero_window: true, ..rfc.user_timeout },
        ..rfc
    }
}

/// Linux 2.1.101. Evidence: the Freeze-TCP paper names it as its receiver. Its behaviour as a sender matters little there, and is assumed
/// to be Linux 2.2's: NewReno or SACK, a window of one segment at the start, no undo.
const fn linux_2_1() -> Config {
    let base = linux();
    Config {
        receive: ReceiveConfig {
            buffer_bytes: 32_767,
            max_buffer_bytes: 32_767,
            initial_window_bytes: u32::MAX,
            // The delay follows the arrivals, between 20 ms and half a second.
            ack: AckPolicy::Adaptive { quick_acks: 1, min: ms(20), max: ms(500) },
            ..base.receive
        },
        window_scale: Some(0),
        dsack: false,
        recovery: RecoveryConfig {
            with_sack: LossDetection::Sack,
            reduction: Reduction::Immediate,
            limited_transmit: false,
            undo: false,
            ..base.recovery
        },
        congestion: CongestionConfig {
            initial_window: InitialWindow::Segments(1),
            counting: AckCounting::PerAck,
            ssthresh_basis: SsthreshBasis::SendWindow,
            ..base.congestion
        },
        ..base
    }
}

/// Linux 2.4.20. Evidence: the HIP and user timeout paper's test bed (RTO ceiling 120 s, abort by a count of
/// retransmissions), Sarolahti and Kuznetsov, "Congestion Control in Linux TCP" (USENIX 2002): FACK, rate halving, undo by
/// timestamps and DSACK, quick ACKs.
const fn linux_2_4() -> Config {
    let base = linux();
    Config {
        receive: ReceiveConfig {
            // tcp_rmem's default of 87380 bytes; three quarters of it are window.
            buffer_bytes: 65_535,
            max_buffer_bytes: 131_070,
            initial_window_bytes: 5_840,
            ack: AckPolicy::Adaptive { quick_acks: 16, min: ms(40), max: ms(200) },
            ..base.receive
        },
        window_scale: Some(1),
        recovery: RecoveryConfig {
            with_sack: LossDetection::Fack,
            reduction: Reduction::RateHalving,
            max_reordering: 127,
            ..base.recovery
        },
        congestion: CongestionConfig {
            initial_window: InitialWindow::Rfc3390,
            counting: AckCounting::PerAck,
            ..base.congestion
        },
        ..base
    }
}

/// Linux 6.18. Evidence: the kernel itself, as the peer of this endpoint and by its sysctls (`tcp_rmem`, `tcp_retries2` = 15,
/// `tcp_syn_retries` = 6, `tcp_syn_linear_timeouts` = 4, `tcp_frto` = 2, `tcp_early_retrans` = 3, `tcp_slow_start_after_idle` = 1), and the experiments in
/// `docs/notes/linux-6.18.md`.
const fn linux_6(algorithm: Algorithm) -> Config {
    let base = linux();
    Config {
        // tcp_rmem[2] of 32 MiB asks for a shift of 10.
        window_scale: Some(10),
        paws: Paws::LinuxOldAcks,
        ecn: Ecn::Accept,
        // `tcp_ecn_option`, `tcp_ecn_option_beacon` and `tcp_ecn_fallback` of Linux 7.2.
        accurate_ecn: AccurateEcnConfig { rules: AccurateEcnRules::Linux, ..base.accurate_ecn },
        send: SendConfig {
            // tcp_wmem.
            buffer_bytes: 16 << 10,
            max_buffer_bytes: 4 << 20,
            minshall: true,
            defer_bursts: true,
            window_update: WindowUpdate::LargerOrZero,
            ..base.send
        },
        receive: ReceiveConfig {
            // tcp_rmem's default of 131072 bytes (half of it is window until the first full segment) and maximum of 32 MiB (segments of
            // 1448 bytes use 160/256 of it).
            buffer_bytes: 65_536,
            max_buffer_bytes: 20 << 20,
            growth: BufferGrowth::Linux6_18,
            initial_window_bytes: 64_240,
            ack: AckPolicy::Adaptive { quick_acks: 16, min: ms(40), max: ms(200) },
            beyond_window: BeyondWindow::WholeIfRead,
            quick_while_growing: true,
            compress_sacks: true,
            merged_segment_bytes: None,
        },
        rto: RtoConfig { initial: ms(1_000), ..base.rto },
        limits: LimitConfig {
            syn_retries: 6,
            syn_linear_timeouts: 4,
            r2: RetryLimit::LinuxTime(15),
            // `tcp_invalid_ratelimit`.
            invalid_ack_interval: Some(ms(500)),
            // `tcp_v4_err` and `tcp_v6_err`, in SYN_SENT and SYN_RECV.
            unreachable_ends_connecting: true,
            icmp_may_quote_next: true,
            ..base.limits
        },
        recovery: RecoveryConfig {
            with_sack: LossDetection::Rack,
            reduction: Reduction::Proportional,
            loss_probe: true,
            frto: true,
            ..base.recovery
        },
        congestion: CongestionConfig {
            algorithm,
            hystart: true,
            hystart_variant: HyStartVariant::Linux,
            ..base.congestion
        },
        path_mtu: PathMtuConfig::LINUX,
        user_timeout: UserTimeoutConfig { from_retransmission: true, ..base.user_timeout },
        ..base
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of no known profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no stack profile \"{0}\"; expected one of tahoe-bsd, reno-bsd, sack1-ns2, linux-2.1, linux-2.4, linux-6-reno, linux-6-cubic, linux-6-bbr, bbr-v3, aix-4.2, netbsd-1.1, freebsd-2.2, solaris-2.6, tahoe-ns1, reno-ns1"
)]
pub struct UnknownProfile(Box<str>);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| UnknownProfile(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        let error = "linux-9".parse::<Profile>().unwrap_err().to_string();
        assert!(Profile::ALL.iter().all(|profile| error.contains(profile.name())), "{error}");
    }

    /// The papers do not distinguish them from 4.3BSD Reno.
    #[test]
    fn two_systems_of_the_papers_are_reno() {
        for profile in [Profile::Aix4_2, Profile::NetBsd1_1] {
            assert_eq!(profile.config(), Profile::RenoBsd.config(), "{profile}");
        }
    }
}
