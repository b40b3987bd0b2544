//! 4.3BSD and the systems that the papers' senders ran, each a change of it.

use super::ms;
use crate::config::{
    AckCounting, AckPolicy, Algorithm, Config, CongestionConfig, CwndIncrease, Estimator, InitialWindow, LimitConfig,
    LossDetection, PersistConfig, ProbePayload, ReceiveConfig, RecoveryConfig, Reduction, RetryLimit, RtoConfig,
    SendConfig, SsthreshBasis, ZeroWindow,
};

/// 4.3BSD. Evidence: Leffler and others, "The Design and Implementation of the 4.3BSD UNIX Operating System", and Wright and
/// Stevens, "TCP/IP Illustrated, Volume 2", which prints and explains the Net/3 sources (timers: chapter 25; input: chapters 28
/// and 29; persist: section 26.3).
///
/// Slow timer of 500 ms, fast timer of 200 ms for delayed ACKs; RTO between 1 s and 64 s, 6 s before the first sample; one
/// segment timed per window; twelve retransmissions; persist probes of one byte between 5 s and 60 s; the
/// congestion window grows with every ACK (`tcp_input`, up to `TCP_MAXWIN`); a stopped sender takes `snd_nxt` back to `snd_una`.
/// Windows are in segments here, in bytes there.
pub(super) const fn bsd(detection: LossDetection) -> Config {
    let rfc = Config::rfc();
    Config {
        window_scale: None,
        sack: false,
        dsack: false,
        timestamps: None,
        paws: rfc.paws,
        ecn: rfc.ecn,
        accurate_ecn: rfc.accurate_ecn,
        send: SendConfig { buffer_bytes: 16_384, max_buffer_bytes: 16_384, ..rfc.send },
        receive: ReceiveConfig {
            buffer_bytes: 16_384,
            max_buffer_bytes: 16_384,
            initial_window_bytes: u32::MAX,
            ack: AckPolicy::Delayed { delay: ms(200), tick: ms(200) },
            ..rfc.receive
        },
        recovery: RecoveryConfig {
            with_sack: detection,
            without_sack: detection,
            reduction: Reduction::Immediate,
            limited_transmit: false,
            repair_ahead: false,
            loss_probe: false,
            frto: false,
            undo: false,
            bar_after_timeout: false,
            cut_on_each_timeout: true,
            zero_window: ZeroWindow::PullBack,
            ..rfc.recovery
        },
        congestion: CongestionConfig {
            algorithm: Algorithm::Reno,
            initial_window: InitialWindow::Segments(1),
            counting: AckCounting::PerAck,
            increase: CwndIncrease::EveryAck,
            ssthresh_basis: SsthreshBasis::SendWindow,
            restart_after_idle: true,
            validate_after_idle: false,
            hystart: false,
            ..rfc.congestion
        },
        rto: RtoConfig {
            initial: ms(6_000),
            min: ms(1_000),
            max: ms(64_000),
            tick: ms(500),
            estimator: Estimator::Rfc6298,
            one_sample_per_window: true,
            samples_echo: false,
        },
        persist: PersistConfig { min: ms(5_000), max: ms(60_000), payload: ProbePayload::OneByte, give_up_after: None },
        limits: LimitConfig {
            // TCPTV_KEEP_INIT ends the attempt after 75 s: 6, 12, 24 and 48 s are the waits before it.
            syn_retries: 3,
            r2: RetryLimit::Retries(12),
            // 2 MSL of 30 s.
            time_wait: ms(60_000),
            ..rfc.limits
        },
        user_timeout: rfc.user_timeout,
        fast_open: rfc.fast_open,
        path_mtu: rfc.path_mtu,
        mss: rfc.mss,
    }
}

/// AIX 4.2, exactly as 4.3BSD Reno. Evidence: the Freeze-TCP paper names it as the distant sender of table III and says nothing else of
/// it. Stevens, "TCP/IP Illustrated, Volume 1", section E.5, has 4.3BSD's values for AIX 3.2.2: buffers of 16,384 bytes, keep-alives
/// in ticks of 500 ms. Open: the least time between probes, the restart after idle time and a bar on fast retransmits after a timeout
/// (experiments/freeze-tcp/paper.toml).
pub(super) const fn aix_4_2() -> Config {
    bsd(LossDetection::Reno)
}

/// NetBSD 1.1, exactly as 4.3BSD Reno. Evidence: the M-TCP paper: built in NetBSD's kernel, of 1996 or 1997 (no version is named);
/// a timeout that doubles up to 64 s, twelve retransmissions, a send buffer of 16 KB. The kernel descends from 4.4BSD-Lite, whose TCP is
/// Net/3's. That TCP can offer RFC 1323's options, which leave 1448 and 500 bytes for data in the paper's packets; the paper prints packets of
/// 1460 and 512 bytes, and headers of 40, so that they are not offered here. The systems of the senders are not named.
pub(super) const fn netbsd_1_1() -> Config {
    bsd(LossDetection::Reno)
}

/// FreeBSD 2.2. Evidence: the Freeze-TCP paper found FreeBSD (no version is named) to send nothing beyond a closed window (section IV.A),
/// as 4.4BSD's `tcp_output`, which takes SND.NXT back to SND.UNA. The paper (section II) and the thesis on it (section 2.1.2) say that its
/// window probes carry no data; the source of 4.4BSD-Lite sends one byte (`t_force` in `tcp_output`), and the papers decide here. RFC 1323
/// is on in that source (`tcp_do_rfc1323`): timestamps of the slow timer (`tcp_now`, 500 ms), from whose echo each RTT is taken
/// (`tcp_input`), and a window scale, 0 for buffers of 16 KiB.
pub(super) const fn freebsd_2_2() -> Config {
    let base = bsd(LossDetection::Reno);
    Config {
        window_scale: Some(0),
        timestamps: Some(ms(500)),
        rto: RtoConfig { samples_echo: true, ..base.rto },
        persist: PersistConfig { payload: ProbePayload::Empty, ..base.persist },
        ..base
    }
}

/// Solaris 2.6. Evidence: the Freeze-TCP paper names it as the local sender of table II, and says of senders that their timers
/// freeze at a closed window (section II). Stevens, "TCP/IP Illustrated, Volume 1", section E.4, has the tunables of Solaris 2.2: a timeout of
/// 500 ms at first (`tcp_rexmit_interval_initial`) and between 200 ms and 60 s (`_min`, `_max`), and send buffers of 8 KiB
/// (`tcp_xmit_hiwat`); Sun's manual of Solaris 8 has 3 s, 400 ms and 60 s. The clock has 100 ticks a second, and window probes use the
/// same timeouts. SACK came with Solaris 7, and SYNs carry no timestamps (`tcp_tstamp_always` is 0). As a receiver, in congestion control
/// and in giving up established connections (Solaris: after 8 minutes) it is 4.3BSD Reno here: the paper measures none of these. Open: the
/// closed window, the least timeout, the send buffer, the restart after idle time and a bar on fast retransmits after a timeout
/// (experiments/freeze-tcp/paper.toml).
pub(super) const fn solaris_2_6() -> Config {
    let base = bsd(LossDetection::Reno);
    Config {
        send: SendConfig { buffer_bytes: 8_192, max_buffer_bytes: 8_192, ..base.send },
        recovery: RecoveryConfig { zero_window: ZeroWindow::Freeze, ..base.recovery },
        rto: RtoConfig { initial: ms(500), min: ms(200), max: ms(60_000), tick: ms(10), ..base.rto },
        persist: PersistConfig { min: ms(200), max: ms(60_000), ..base.persist },
        // An attempt to connect ends after 3 minutes (`tcp_ip_abort_cinterval`): 0.5 to 32 s and twice 60 s are the waits before it.
        limits: LimitConfig { syn_retries: 8, ..base.limits },
        ..base
    }
}
