//! TCP settings of the machine under test: sysctls, routes and the scripts' own options.

use holdover_base::Duration;
use holdover_tcp::{
    AccurateEcnConfig, AccurateEcnOption, Config, Ecn, InitialWindow, LossDetection, MtuProbing, PacingConfig,
    PathMtuConfig, Profile, RetryLimit,
};

/// The settings, initially Linux's defaults.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    pub(crate) congestion_control: String,
    pub(crate) rmem: [u32; 3],
    pub(crate) wmem: [u32; 3],
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) dsack: bool,
    pub(crate) window_scaling: bool,
    pub(crate) slow_start_after_idle: bool,
    pub(crate) frto: bool,
    pub(crate) loss_probe: bool,
    pub(crate) rack: bool,
    pub(crate) reordering: u32,
    pub(crate) max_reordering: u32,
    pub(crate) syn_retries: u32,
    pub(crate) syn_linear_timeouts: u32,
    /// `tcp_invalid_ratelimit`; zero for no limit.
    pub(crate) invalid_ack_interval: Duration,
    /// Whether `tcp_comp_sack_nr` is not 0.
    pub(crate) compress_sacks: bool,
    pub(crate) retries2: u32,
    pub(crate) fin_timeout: Duration,
    pub(crate) keep_alive: (u32, u32, u32),
    pub(crate) hystart: bool,
    pub(crate) notsent_lowat: u32,
    pub(crate) device_mtu: u32,
    pub(crate) route_mtu: Option<u32>,
    pub(crate) advertised_mss: Option<u16>,
    pub(crate) initial_window: Option<u32>,
    pub(crate) initial_receive_window: Option<u32>,
    pub(crate) quick_ack: bool,
    pub(crate) rto_min: Option<Duration>,
    pub(crate) rto_max: Option<Duration>,
    pub(crate) ecn: u32,
    pub(crate) ecn_option: u32,
    pub(crate) ecn_beacons: u32,
    pub(crate) ecn_fallback: bool,
    /// `tcp_mtu_probing` and the parameters of the search.
    pub(crate) path_mtu: PathMtuConfig,
    /// `tcp_fastopen`'s bits.
    pub(crate) fast_open: u32,
    pub(crate) fast_open_key: Option<[u8; 16]>,
    /// Whether to clear the cached metrics of peers (`ip tcp_metrics flush`).
    pub(crate) flush_metrics: bool,
    pub(crate) paced_by_fq: bool,
    /// The size of the segments that the device merges (packetdrill's `--mss`).
    pub(crate) merged_segment: Option<u16>,
    /// Whether segmentation offload of the device is off.
    pub(crate) no_offload: bool,
    /// `tcp_min_tso_segs`.
    pub(crate) least_burst: u32,
    /// `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`.
    pub(crate) pacing: PacingConfig,
    notes: Vec<String>,
    blockers: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            congestion_control: "cubic".to_owned(),
            rmem: [4_096, 131_072, 32 << 20],
            wmem: [4_096, 16_384, 4 << 20],
            timestamps: true,
            sack: true,
            dsack: true,
            window_scaling: true,
            slow_start_after_idle: true,
            frto: true,
            loss_probe: true,
            rack: true,
            reordering: 3,
            max_reordering: 300,
            syn_retries: 6,
            syn_linear_timeouts: 4,
            invalid_ack_interval: Duration::from_millis(500),
            compress_sacks: true,
            retries2: 15,
            fin_timeout: Duration::from_secs(60),
            keep_alive: (7_200, 75, 9),
            hystart: true,
            notsent_lowat: u32::MAX,
            device_mtu: 1_500,
            route_mtu: None,
            advertised_mss: None,
            initial_window: None,
            initial_receive_window: None,
            quick_ack: false,
            rto_min: None,
            rto_max: None,
            ecn: 2,
            ecn_option: 2,
            ecn_beacons: 3,
            ecn_fallback: true,
            path_mtu: PathMtuConfig::LINUX,
            fast_open: Self::FAST_OPEN_CLIENT,
            fast_open_key: None,
            flush_metrics: false,
            paced_by_fq: false,
            merged_segment: None,
            no_offload: false,
            least_burst: 2,
            pacing: PacingConfig::LINUX,
            notes: Vec::new(),
            blockers: Vec::new(),
        }
    }
}

/// Settings without effect here: limits that no script reaches; pacing and segmentation offload, which a sender without queues below it
/// does not need; and details of Fast Open.
const WITHOUT_EFFECT: &[&str] = &[
    "tcp_fack",
    "tcp_tso_win_divisor",
    "tcp_syncookies",
    "tcp_no_metrics_save",
    "tcp_metrics_save",
    "tcp_limit_output_bytes",
    "tcp_autocorking",
    "tcp_fastopen_blackhole_timeout_sec",
    "tcp_challenge_ack_limit",
    "tcp_tso_rtt_log",
    "tcp_max_syn_backlog",
    "tcp_tw_reuse",
    "tcp_abort_on_overflow",
    "tcp_moderate_rcvbuf",
    "tcp_adv_win_scale",
    "tcp_app_win",
    "tcp_retries1",
    "tcp_synack_retries",
    "tcp_thin_linear_timeouts",
    "tcp_comp_sack_nr",
    "tcp_comp_sack_delay_ns",
    "tcp_comp_sack_slack_ns",
    "ip_local_port_range",
    "tcp_mem",
    "tcp_plb_enabled",
    "tcp_reflect_tos",
    "tcp_backlog_ack_defer",
    "tcp_shrink_window",
    "tcp_rfc1337",
    "tcp_fwmark_accept",
    "tcp_stdurg",
    "tcp_early_demux",
    "ip_no_pmtu_disc",
];

impl Settings {
    /// Bits of `tcp_fastopen`: client, server, client without cookie, server without cookie, and every listener even without the socket
    /// option.
    pub(crate) const FAST_OPEN_CLIENT: u32 = 1;
    pub(crate) const FAST_OPEN_SERVER: u32 = 2;
    pub(crate) const FAST_OPEN_CLIENT_NO_COOKIE: u32 = 4;
    pub(crate) const FAST_OPEN_SERVER_NO_COOKIE: u32 = 0x200;
    pub(crate) const FAST_OPEN_EVERY_LISTENER: u32 = 0x400;

    pub(crate) fn has_fast_open(&self, bits: u32) -> bool {
        self.fast_open & bits != 0
    }

    /// Records an unsupported setting that may not matter.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Records an unsupported setting that the script depends on.
    pub(crate) fn block(&mut self, reason: String) {
        self.blockers.push(reason);
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn blockers(&self) -> &[String] {
        &self.blockers
    }

    pub(crate) fn set_sysctl(&mut self, name: &str, value: &str) {
        let value = value.trim();
        let key = name.rsplit('.').next().unwrap_or(name);
        let number = integer(value);
        let on = number != Some(0);
        match (key, number) {
            ("tcp_congestion_control", _) => self.congestion_control = value.to_owned(),
            ("tcp_rmem", _) => triple(value, &mut self.rmem),
            ("tcp_wmem", _) => triple(value, &mut self.wmem),
            ("tcp_notsent_lowat", Some(bytes)) => self.notsent_lowat = bytes,
            ("tcp_timestamps", Some(_)) => self.timestamps = on,
            ("tcp_sack", Some(_)) => self.sack = on,
            ("tcp_dsack", Some(_)) => self.dsack = on,
            ("tcp_comp_sack_nr", Some(0 | 44)) => self.compress_sacks = on,
            ("tcp_window_scaling", Some(_)) => self.window_scaling = on,
            ("tcp_slow_start_after_idle", Some(_)) => self.slow_start_after_idle = on,
            ("tcp_frto", Some(_)) => self.frto = on,
            ("tcp_early_retrans", Some(mode)) => self.loss_probe = mode >= 3,
            ("tcp_recovery", Some(mode)) => self.rack = mode & 1 != 0,
            ("tcp_reordering", Some(segments)) => self.reordering = segments.max(1),
            ("tcp_max_reordering", Some(segments)) => self.max_reordering = segments,
            ("tcp_syn_retries", Some(retries)) => self.syn_retries = retries,
            ("tcp_syn_linear_timeouts", Some(timeouts)) => self.syn_linear_timeouts = timeouts,
            ("tcp_invalid_ratelimit", Some(millis)) => {
                self.invalid_ack_interval = Duration::from_millis(millis.into());
            }
            ("tcp_retries2", Some(retries)) => self.retries2 = retries,
            ("tcp_fin_timeout", Some(seconds)) => self.fin_timeout = Duration::from_secs(seconds.into()),
            ("tcp_keepalive_time", Some(seconds)) => self.keep_alive.0 = seconds,
            ("tcp_keepalive_intvl", Some(seconds)) => self.keep_alive.1 = seconds,
            ("tcp_keepalive_probes", Some(probes)) => self.keep_alive.2 = probes,
            ("tcp_pacing_ss_ratio", Some(percent)) => self.pacing.slow_start_percent = percent.min(1_000),
            ("tcp_pacing_ca_ratio", Some(percent)) => self.pacing.avoidance_percent = percent.min(1_000),
            ("tcp_min_tso_segs", Some(segments)) => self.least_burst = segments.max(1),
            ("tcp_ecn", Some(mode)) => self.ecn = mode,
            ("tcp_ecn_option", Some(mode)) => self.ecn_option = mode,
            ("tcp_ecn_option_beacon", Some(times)) => self.ecn_beacons = times,
            ("tcp_ecn_fallback", Some(_)) => self.ecn_fallback = on,
            ("tcp_rto_min_us", Some(micros)) => self.rto_min = Some(Duration::from_micros(micros.into())),
            ("tcp_rto_max_ms", Some(millis)) => self.rto_max = Some(Duration::from_millis(millis.into())),
            ("tcp_fastopen", Some(bits)) => self.fast_open = bits,
            ("tcp_fastopen_key", _) => match fast_open_key(value) {
                Some(key) => self.fast_open_key = Some(key),
                None => self.block(format!("{name}={value} is no key")),
            },
            ("tcp_mtu_probing", Some(mode)) => {
                self.path_mtu.probing = match mode {
                    0 => MtuProbing::Off,
                    1 => MtuProbing::AfterBlackHole,
                    _ => MtuProbing::Always,
                };
            }
            ("tcp_base_mss", Some(bytes)) => self.path_mtu.base_mss = short(bytes),
            ("tcp_mtu_probe_floor", Some(bytes)) => self.path_mtu.floor_mss = short(bytes),
            ("tcp_min_snd_mss", Some(bytes)) => self.path_mtu.min_mss = short(bytes),
            ("tcp_probe_threshold", Some(bytes)) => self.path_mtu.threshold = short(bytes),
            ("tcp_probe_interval", Some(seconds)) => self.path_mtu.interval = Duration::from_secs(seconds.into()),
            _ if WITHOUT_EFFECT.contains(&key) => {}
            _ => self.note(format!("setting not understood: {name}={value}")),
        }
    }

    pub(crate) fn set_module_parameter(&mut self, parameter: &str, value: &str) {
        match parameter {
            "tcp_cubic/parameters/hystart" => self.hystart = value.trim() != "0",
            "tcp_cubic/parameters/hystart_detect" if value.trim() == "3" => {}
            _ => self.note(format!("setting not understood: {parameter}={value}")),
        }
    }

    pub(crate) fn set_route_metric(&mut self, metric: &str, value: &str) {
        let number = integer(value);
        match (metric, number) {
            ("mtu", Some(bytes)) => self.route_mtu = Some(bytes),
            ("advmss", Some(bytes)) => self.advertised_mss = u16::try_from(bytes).ok(),
            ("initcwnd", Some(segments)) => self.initial_window = Some(segments),
            ("initrwnd", Some(segments)) => self.initial_receive_window = Some(segments),
            ("quickack", Some(on)) => self.quick_ack = on != 0,
            ("rto_min", _) => self.rto_min = value.parse().ok(),
            ("congctl", _) => self.congestion_control = value.to_owned(),
            _ => self.note(format!("route metric not understood: {metric} {value}")),
        }
    }

    pub(crate) fn set_device_mtu(&mut self, value: &str) {
        match integer(value) {
            Some(bytes) => self.device_mtu = bytes,
            None => self.note(format!("MTU not understood: {value}")),
        }
    }

    /// The largest packet size towards the peer.
    pub(crate) fn mtu(&self) -> u32 {
        self.route_mtu.map_or(self.device_mtu, |route| route.min(self.device_mtu))
    }

    /// The configuration of a new connection, or the reason for none. `profile` is the user's choice; `None` uses the Linux profile of the
    /// congestion control.
    pub(crate) fn config(&self, profile: Option<Profile>, is_ipv6: bool) -> Result<Config, String> {
        let profile = match (profile, self.congestion_control.as_str()) {
            (Some(profile), _) => profile,
            (None, "cubic") => Profile::Linux6Cubic,
            (None, "reno") => Profile::Linux6Reno,
            (None, "bbr") => Profile::Linux6Bbr,
            (None, other) => return Err(format!("congestion control {other}")),
        };
        let mut config = profile.config();
        let is_linux = matches!(profile, Profile::Linux6Cubic | Profile::Linux6Reno | Profile::Linux6Bbr);
        let header = if is_ipv6 { 60 } else { 40 };
        let mss = self.mtu().saturating_sub(header).clamp(48, 65_495) as u16;
        config.mss = self.advertised_mss.map_or(mss, |advertised| advertised.min(mss));
        if is_linux {
            self.apply_to_linux(&mut config);
        }
        Ok(config)
    }

    fn apply_to_linux(&self, config: &mut Config) {
        let [_, default, max] = self.rmem;
        let window_bits = max.max(0xffff).ilog2().saturating_sub(15).min(14) as u8;
        config.window_scale = self.window_scaling.then_some(window_bits);
        config.sack = self.sack;
        config.dsack = self.dsack;
        config.timestamps = config.timestamps.filter(|_| self.timestamps);
        config.ecn = match self.ecn {
            0 => Ecn::Off,
            1 => Ecn::Request,
            3 => Ecn::RequestAccurate,
            4 => Ecn::AcceptAccurateRequest,
            5 => Ecn::AcceptAccurate,
            _ => Ecn::Accept,
        };
        config.accurate_ecn = self.accurate_ecn(config.accurate_ecn);
        config.send.buffer_bytes = self.wmem[1].max(4_608);
        config.send.max_buffer_bytes = self.wmem[2];
        config.receive.buffer_bytes = default / 2;
        config.receive.merged_segment_bytes = self.merged_segment;
        config.receive.max_buffer_bytes = (max / 2).max(default / 2);
        config.receive.initial_window_bytes = self.first_window(default / 2, config.mss);
        config.recovery.dup_ack_threshold = self.reordering;
        config.recovery.max_reordering = self.max_reordering;
        config.recovery.frto &= self.frto;
        config.recovery.loss_probe &= self.loss_probe;
        if !self.rack {
            config.recovery.with_sack = LossDetection::Sack;
            config.recovery.loss_probe = false;
        }
        config.congestion.validate_after_idle = self.slow_start_after_idle;
        config.congestion.hystart &= self.hystart;
        // `fq` spaces packets at the rate that TCP has computed, as TCP's own pacing does.
        if self.paced_by_fq {
            config.congestion.pacing = Some(self.pacing);
        }
        if let Some(segments) = self.initial_window {
            config.congestion.initial_window = InitialWindow::Segments(segments);
        }
        config.path_mtu = PathMtuConfig { link_mtu: Some(self.device_mtu), ..self.path_mtu };
        config.limits.syn_retries = self.syn_retries;
        config.limits.syn_linear_timeouts = self.syn_linear_timeouts;
        config.receive.compress_sacks &= self.compress_sacks;
        config.limits.invalid_ack_interval = Some(self.invalid_ack_interval).filter(|interval| !interval.is_zero());
        config.limits.r2 = RetryLimit::LinuxTime(self.retries2);
        config.limits.fin_wait_2 = self.fin_timeout;
        if let Some(min) = self.rto_min {
            config.rto.min = min;
        }
        if let Some(max) = self.rto_max {
            config.rto.max = max;
            config.rto.initial = config.rto.initial.min(max);
        }
    }

    /// Accurate ECN, which existing connections follow, too.
    pub(crate) fn accurate_ecn(&self, config: AccurateEcnConfig) -> AccurateEcnConfig {
        AccurateEcnConfig {
            option: match self.ecn_option {
                0 => AccurateEcnOption::Off,
                1 => AccurateEcnOption::Minimum,
                2 => AccurateEcnOption::Full,
                _ => AccurateEcnOption::Persist,
            },
            beacons: self.ecn_beacons,
            fallback: self.ecn_fallback,
            ..config
        }
    }

    /// Linux `tcp_select_initial_window`: whole segments, at most the maximum of an unscaled window field.
    pub(crate) fn first_window(&self, space: u32, mss: u16) -> u32 {
        let mss = u32::from(mss.max(1));
        let whole = if space > mss { space / mss * mss } else { space };
        let window = whole.min(0xffff);
        self.initial_receive_window.map_or(window, |segments| window.min(segments.saturating_mul(mss)))
    }
}

fn short(number: u32) -> u16 {
    number.try_into().unwrap_or(u16::MAX)
}

fn integer(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Four words in hexadecimal, in Linux's byte order; of two keys the first generates cookies.
fn fast_open_key(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut words = text.split(',').next()?.split('-');
    for place in key.chunks_exact_mut(4) {
        place.copy_from_slice(&u32::from_str_radix(words.next()?, 16).ok()?.to_le_bytes());
    }
    words.next().is_none().then_some(key)
}

fn triple(text: &str, values: &mut [u32; 3]) {
    for (value, part) in values.iter_mut().zip(text.split_whitespace()) {
        *value = integer(part).unwrap_or(*value);
    }
}
