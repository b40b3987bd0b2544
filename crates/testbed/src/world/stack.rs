//! Configures a kernel with the stack of a scenario: socket options, and parameters of the namespace.

use std::collections::BTreeMap;

use holdover_base::Duration;
use holdover_tcp::{AccurateEcnConfig, AccurateEcnOption, Algorithm, Config, Ecn, Profile, RetryLimit};

use crate::{Congestion, SocketOptions};

/// Kernel settings that configure its TCP as in a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelStack {
    /// For each socket of the flow.
    pub socket: SocketOptions,
    /// For the namespace of the host: name and value.
    pub sysctls: BTreeMap<&'static str, String>,
}

/// A stack that the kernel does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StackError {
    /// It differs from the profiles of Linux 6 in settings that no option or parameter of the kernel controls.
    #[error(
        "no Linux of today has this stack: its {differs} differ from linux-6-cubic and linux-6-reno in what a kernel does \
         not let one set"
    )]
    NotLinux {
        /// The groups of settings that differ, by their names in scenario files.
        differs: String,
    },
    /// Two flows of a host require different values of the same parameter of its namespace.
    #[error("its flows ask for different values of {name}, of which a host has one: {one} and {other}")]
    Conflict {
        /// The parameter.
        name: &'static str,
        /// One value.
        one: String,
        /// The other.
        other: String,
    },
}

impl KernelStack {
    /// The settings for `config`, or for `congestion` instead of its congestion control.
    pub fn of(config: &Config, congestion: Option<Congestion>) -> Result<Self, StackError> {
        let (profile, own) = match config.congestion.algorithm {
            Algorithm::Cubic => (Profile::Linux6Cubic, Congestion::Cubic),
            Algorithm::Reno => (Profile::Linux6Reno, Congestion::Reno),
            Algorithm::Bbr => (Profile::Linux6Bbr, Congestion::Bbr),
            Algorithm::Bbr3 => return Err(StackError::NotLinux { differs: "congestion".to_owned() }),
        };
        let differs = differences(config, &profile.config());
        if !differs.is_empty() {
            return Err(StackError::NotLinux { differs: differs.join(", ") });
        }
        let mut socket = SocketOptions::new(congestion.unwrap_or(own));
        socket.nodelay = !config.send.nagle;
        socket.user_timeout = config.user_timeout.timeout;
        socket.max_segment = Some(config.mss.into());
        Ok(Self { socket, sysctls: sysctls(config) })
    }
}

/// Adds `more` to the parameters of a namespace.
pub(crate) fn merge(
    sysctls: &mut BTreeMap<&'static str, String>,
    more: &BTreeMap<&'static str, String>,
) -> Result<(), StackError> {
    for (&name, value) in more {
        match sysctls.get(name) {
            Some(present) if present != value => {
                return Err(StackError::Conflict { name, one: present.clone(), other: value.clone() });
            }
            _ => _ = sysctls.insert(name, value.clone()),
        }
    }
    Ok(())
}

/// The parameters of Linux 6 as in the simulator.
pub(crate) fn linux() -> BTreeMap<&'static str, String> {
    sysctls(&Profile::Linux6Cubic.config())
}

/// All parameters that the kernel has per namespace, so that the machine's own settings do not matter.
fn sysctls(config: &Config) -> BTreeMap<&'static str, String> {
    let receive = &config.receive;
    // The kernel counts the memory used by its buffers. Half of a receive buffer is window at first.
    let at_first = 2 * u64::from(receive.buffer_bytes);
    // The timestamps option takes 12 bytes, padding included.
    let len = config.mss.saturating_sub(if config.timestamps.is_some() { 12 } else { 0 });
    let rmem = format!("4096 {at_first} {}", receive.growth.memory_bytes(receive.max_buffer_bytes, len).max(at_first));
    let (at_first, most) = (config.send.buffer_bytes, config.send.max_buffer_bytes);
    let wmem = format!("4096 {} {}", at_first.min(16_384), most.max(at_first));
    let ecn = match config.ecn {
        Ecn::Off => "0",
        Ecn::Request => "1",
        Ecn::Accept => "2",
        Ecn::RequestAccurate => "3",
        Ecn::AcceptAccurateRequest => "4",
        Ecn::AcceptAccurate => "5",
    };
    let RetryLimit::LinuxTime(retries2) = config.limits.r2 else { return BTreeMap::new() };
    let mut sysctls = BTreeMap::from([
        ("net.ipv4.tcp_sack", switch(config.sack)),
        ("net.ipv4.tcp_dsack", switch(config.dsack)),
        ("net.ipv4.tcp_ecn", ecn.to_owned()),
        ("net.ipv4.tcp_timestamps", switch(config.timestamps.is_some())),
        ("net.ipv4.tcp_window_scaling", switch(config.window_scale.is_some())),
        ("net.ipv4.tcp_rmem", rmem),
        ("net.ipv4.tcp_wmem", wmem),
        ("net.ipv4.tcp_slow_start_after_idle", switch(config.congestion.validate_after_idle)),
        ("net.ipv4.tcp_frto", if config.recovery.frto { "2" } else { "0" }.to_owned()),
        ("net.ipv4.tcp_early_retrans", if config.recovery.loss_probe { "3" } else { "0" }.to_owned()),
        ("net.ipv4.tcp_syn_retries", config.limits.syn_retries.to_string()),
        ("net.ipv4.tcp_retries2", retries2.to_string()),
        // Metrics of one connection must not influence the next one.
        ("net.ipv4.tcp_no_metrics_save", switch(true)),
    ]);
    sysctls.extend(newer_sysctls(config));
    sysctls
}

/// A parameter's value.
fn switch(on: bool) -> String {
    u8::from(on).to_string()
}

/// Newer parameters where a scenario changes them, because older kernels lack them.
fn newer_sysctls(config: &Config) -> BTreeMap<&'static str, String> {
    let mut sysctls = BTreeMap::new();
    let linux = Profile::Linux6Cubic.config();
    if config.rto.min != linux.rto.min {
        sysctls.insert("net.ipv4.tcp_rto_min_us", (config.rto.min.as_nanos() / 1000).to_string());
    }
    if config.rto.max != linux.rto.max {
        sysctls.insert("net.ipv4.tcp_rto_max_ms", (config.rto.max.as_nanos() / 1_000_000).to_string());
    }
    let AccurateEcnConfig { option, beacons, fallback, .. } = config.accurate_ecn;
    if config.ecn.accepts_accurate() || config.ecn == Ecn::Request {
        sysctls.insert("net.ipv4.tcp_ecn_fallback", switch(fallback));
    }
    if config.ecn.accepts_accurate() {
        let option = match option {
            AccurateEcnOption::Off => "0",
            AccurateEcnOption::Minimum => "1",
            AccurateEcnOption::Full => "2",
            AccurateEcnOption::Persist => "3",
        };
        sysctls.insert("net.ipv4.tcp_ecn_option", option.to_owned());
        sysctls.insert("net.ipv4.tcp_ecn_option_beacon", beacons.to_string());
    }
    if config.limits.syn_linear_timeouts != linux.limits.syn_linear_timeouts {
        sysctls.insert("net.ipv4.tcp_syn_linear_timeouts", config.limits.syn_linear_timeouts.to_string());
    }
    if config.limits.invalid_ack_interval != linux.limits.invalid_ack_interval {
        let interval = config.limits.invalid_ack_interval.unwrap_or(Duration::ZERO);
        sysctls.insert("net.ipv4.tcp_invalid_ratelimit", interval.as_millis().to_string());
    }
    sysctls
}

/// The groups of settings in which `config` differs from `linux` beyond those that [`KernelStack`] sets.
fn differences(config: &Config, linux: &Config) -> Vec<&'static str> {
    let mut rest = config.clone();
    rest.send.nagle = linux.send.nagle;
    (rest.send.buffer_bytes, rest.send.max_buffer_bytes) = (linux.send.buffer_bytes, linux.send.max_buffer_bytes);
    rest.receive.buffer_bytes = linux.receive.buffer_bytes;
    rest.receive.max_buffer_bytes = linux.receive.max_buffer_bytes;
    rest.congestion.validate_after_idle = linux.congestion.validate_after_idle;
    rest.recovery.frto = linux.recovery.frto;
    rest.recovery.loss_probe = linux.recovery.loss_probe;
    (rest.rto.min, rest.rto.max) = (linux.rto.min, linux.rto.max);
    rest.limits.syn_retries = linux.limits.syn_retries;
    rest.limits.syn_linear_timeouts = linux.limits.syn_linear_timeouts;
    rest.limits.invalid_ack_interval = linux.limits.invalid_ack_interval;
    if let RetryLimit::LinuxTime(_) = rest.limits.r2 {
        rest.limits.r2 = linux.limits.r2;
    }
    rest.user_timeout.timeout = linux.user_timeout.timeout;
    // Linux has no user timeout option; refusing a peer's timeout therefore changes nothing.
    rest.user_timeout.changeable = linux.user_timeout.changeable;
    let whole_millis = |time: Duration| time.as_nanos().is_multiple_of(1_000_000);
    [
        ("paws", rest.paws != linux.paws),
        ("accurate_ecn", rest.accurate_ecn.rules != linux.accurate_ecn.rules && rest.ecn.accepts_accurate()),
        ("fast_open", rest.fast_open != linux.fast_open),
        ("mtu_probing", rest.path_mtu != linux.path_mtu),
        ("send", rest.send != linux.send),
        ("receive", rest.receive != linux.receive),
        ("recovery", rest.recovery != linux.recovery),
        ("congestion", rest.congestion != linux.congestion),
        ("rto", rest.rto != linux.rto || !whole_millis(config.rto.max)),
        ("persist", rest.persist != linux.persist),
        ("limits", rest.limits != linux.limits || !config.limits.invalid_ack_interval.is_none_or(whole_millis)),
        ("user_timeout", rest.user_timeout != linux.user_timeout),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_living_kernels_are_known_and_no_others() {
        for profile in Profile::ALL {
            let stack = KernelStack::of(&profile.config(), None);
            match profile {
                Profile::Linux6Cubic => assert_eq!(stack.unwrap().socket.congestion, Congestion::Cubic),
                Profile::Linux6Reno => assert_eq!(stack.unwrap().socket.congestion, Congestion::Reno),
                Profile::Linux6Bbr => assert_eq!(stack.unwrap().socket.congestion, Congestion::Bbr),
                Profile::BbrV3 => assert!(stack.unwrap_err().to_string().contains("congestion")),
                _ => {
                    let error = stack.unwrap_err().to_string();
                    assert!(error.contains("recovery") && error.contains("linux-6-cubic"), "{error}");
                }
            }
        }
    }

    #[test]
    fn settings_of_a_scenario_reach_the_kernel() {
        let mut config = Profile::Linux6Reno.config();
        config.rto.max = Duration::from_secs(1);
        config.sack = false;
        config.user_timeout.timeout = Some(Duration::from_secs(9));
        config.send.nagle = false;
        config.ecn = Ecn::Request;
        config.accurate_ecn.fallback = false;
        let stack = KernelStack::of(&config, Some(Congestion::Bbr)).unwrap();
        assert_eq!(stack.sysctls["net.ipv4.tcp_ecn_fallback"], "0");
        assert!(!stack.sysctls.contains_key("net.ipv4.tcp_ecn_option"));
        assert_eq!(stack.sysctls["net.ipv4.tcp_rto_max_ms"], "1000");
        assert_eq!(stack.sysctls["net.ipv4.tcp_sack"], "0");
        assert!(!stack.sysctls.contains_key("net.ipv4.tcp_rto_min_us"));
        assert_eq!(stack.socket.user_timeout, Some(Duration::from_secs(9)));
        assert_eq!((stack.socket.congestion, stack.socket.nodelay), (Congestion::Bbr, true));
        assert_eq!(stack.sysctls["net.ipv4.tcp_wmem"], "4096 16384 4194304");
        config.send.fix_buffer(1 << 20);
        assert_eq!(KernelStack::of(&config, None).unwrap().sysctls["net.ipv4.tcp_wmem"], "4096 16384 1048576");
    }

    #[test]
    fn one_host_has_one_value_of_each_parameter() {
        let mut config = Profile::Linux6Cubic.config();
        let one = KernelStack::of(&config, None).unwrap().sysctls;
        config.sack = false;
        let other = KernelStack::of(&config, None).unwrap().sysctls;
        let mut merged = one.clone();
        assert_eq!(merge(&mut merged, &one), Ok(()));
        assert!(merge(&mut merged, &other).unwrap_err().to_string().contains("tcp_sack"));
    }
}
