//! The TCP agents of the simulators ns and ns-2.

use super::bsd::bsd;
use super::ms;
use crate::config::{
    AckCounting, AckPolicy, Algorithm, Config, CongestionConfig, CwndIncrease, Estimator, InitialWindow, LimitConfig,
    LossDetection, PersistConfig, ProbePayload, ReceiveConfig, RecoveryConfig, Reduction, RetryLimit, RtoConfig,
    SendConfig, SsthreshBasis, ZeroWindow,
};

/// The senders of LBL's ns, Tahoe and Reno. Evidence: the PROBE paper, section IV: BSD's Reno and Tahoe (the version is lost in the scan) in
/// the network simulator, so that all but one field are 4.3BSD's; section III.B: at a closed window the sender's state and its timer
/// freeze. The paper gives no parameter of ns, whose clock has a tick of 0.1 s by default (`tcpTick_` in ns-2's manual); the clock here is
/// 4.3BSD's. In ns the sink is an agent of its own, and the paper does not say which one it used: the receiver here is 4.3BSD's. Open:
/// the closed window, and the sink (experiments/probe-buffer-freeze/paper.toml).
pub(super) const fn ns1(detection: LossDetection) -> Config {
    let base = bsd(detection);
    Config { recovery: RecoveryConfig { zero_window: ZeroWindow::Freeze, ..base.recovery }, ..base }
}

/// ns-2.1b7 `Agent/TCP/Sack1` and `Agent/TCPSink/Sack1`. Evidence: the Freeze-TCP thesis's description of its sender
/// (base TCP, window of 20 packets, RTO by two ticks at least, 64 s ceiling, no delayed ACKs, timestamps on, no fast retransmit on
/// duplicates without new SACK blocks, persist mode as in RFC 1122 with a 60 s ceiling and frozen timers; go-back-N after a timeout
/// and the RTT from the echo in the traces of its section 6.3.1), the ns manual's chapter on TCP agents (`tcpTick_` 0.1 s,
/// `windowInit_` 1), ns-2's `TcpAgent::recv_newack_helper` (every ACK opens the window, as `control_increase_` is 0), and Fall and Floyd's description of Sack1's pipe. ns-2 counts packets, so that a window probe has no byte.
pub(super) const fn sack1_ns2() -> Config {
    let rfc = Config::rfc();
    Config {
        // One packet of 1000 bytes is what ns-2 sends.
        mss: 1_012,
        send: SendConfig { nagle: false, ..rfc.send },
        receive: ReceiveConfig { ack: AckPolicy::Immediate, ..rfc.receive },
        recovery: RecoveryConfig {
            with_sack: LossDetection::Sack,
            without_sack: LossDetection::Reno,
            reduction: Reduction::Immediate,
            limited_transmit: false,
            repair_ahead: false,
            loss_probe: false,
            frto: false,
            undo: false,
            bar_after_timeout: true,
            cut_on_each_timeout: true,
            dup_ack_needs_new_sack: true,
            pipe_by_acks: true,
            timeout_forgets_sacks: true,
            zero_window: ZeroWindow::Freeze,
            ..rfc.recovery
        },
        congestion: CongestionConfig {
            algorithm: Algorithm::Reno,
            initial_window: InitialWindow::Segments(1),
            counting: AckCounting::PerAck,
            increase: CwndIncrease::EveryAck,
            ssthresh_basis: SsthreshBasis::SendWindow,
            restart_after_idle: false,
            validate_after_idle: false,
            hystart: false,
            max_window_segments: 20,
            ..rfc.congestion
        },
        rto: RtoConfig {
            initial: ms(3_000),
            min: ms(200),
            max: ms(64_000),
            tick: ms(100),
            estimator: Estimator::Ns2,
            one_sample_per_window: false,
            samples_echo: true,
        },
        persist: PersistConfig { min: ms(0), max: ms(60_000), payload: ProbePayload::Empty, give_up_after: None },
        limits: LimitConfig { r2: RetryLimit::Never, ..rfc.limits },
        ..rfc
    }
}
