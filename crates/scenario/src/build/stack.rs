//! TCP stacks: a profile with the changes of each level applied in order.

use holdover_base::{ByteCount, Duration};
use holdover_tcp::{AckPolicy, Config, FastOpenConfig, InitialWindow, KeepAlive, PacingConfig, Profile, RetryLimit};

use crate::error::ErrorKind;
use crate::file::{Ack, AckKind, FastOpen, ScenarioFile, Stack};
use crate::problem::{Problem, Under};
use crate::quantity::{Bytes, Retries, Time, Window};
use crate::word::{OrNone, Short, Word};

/// The default stack of hosts.
pub(crate) fn of_scenario(file: &ScenarioFile) -> Result<Config, Problem> {
    changed(&Profile::Linux6Cubic.config(), file.stack.as_ref()).under("stack")
}

/// `base`, or the profile that the table names, with the changes of the table. A problem lies below that table.
pub(crate) fn changed(base: &Config, changes: Option<&Short<Stack>>) -> Result<Config, Problem> {
    let Some(Short(stack)) = changes else { return Ok(base.clone()) };
    let mut config = stack.profile.map_or_else(|| base.clone(), |profile| profile.0.config());
    if let Some(Bytes(mss)) = stack.mss {
        config.mss = u16::try_from(mss.0).ok().filter(|mss| (48..=65_495).contains(mss)).ok_or_else(|| {
            Problem::unexpected(ErrorKind::BadValue, mss.to_string(), "48 to 65495 bytes").under("mss")
        })?;
    }
    put_option(&mut config.window_scale, &stack.window_scale);
    put(&mut config.sack, stack.sack);
    put(&mut config.dsack, stack.dsack);
    put_word(&mut config.paws, stack.paws);
    put_word(&mut config.ecn, stack.ecn);
    if let Some(changes) = &stack.accurate_ecn {
        let accurate = &mut config.accurate_ecn;
        put_word(&mut accurate.option, changes.option);
        put(&mut accurate.beacons, changes.beacons);
        put(&mut accurate.fallback, changes.fallback);
        put_word(&mut accurate.rules, changes.rules);
    }
    if let Some(Word(fast_open)) = stack.fast_open {
        config.fast_open = fast_open_config(fast_open);
    }
    if let Some(OrNone(tick)) = stack.timestamps {
        config.timestamps = tick.map(|tick| tick.0);
    }
    path_mtu(&mut config, stack).under("mtu_probing")?;
    send(&mut config, stack)?;
    receive(&mut config, stack)?;
    recovery(&mut config, stack);
    congestion(&mut config, stack);
    rto(&mut config, stack);
    persist(&mut config, stack);
    limits(&mut config, stack)?;
    user_timeout(&mut config, stack);
    check(&config)?;
    Ok(config)
}

fn put<T: Copy>(field: &mut T, change: Option<T>) {
    if let Some(value) = change {
        *field = value;
    }
}

fn put_word<T: Copy>(field: &mut T, change: Option<Word<T>>) {
    put(field, change.map(|word| word.0));
}

fn put_time(field: &mut Duration, change: Option<Time>) {
    put(field, change.map(|time| time.0));
}

fn put_option<T: Copy>(field: &mut Option<T>, change: &Option<OrNone<T>>) {
    if let Some(OrNone(value)) = change {
        *field = *value;
    }
}

/// Sets a buffer size, up to a gibibyte, the largest window (RFC 7323 section 2.3).
fn put_bytes(field: &mut u32, change: Option<Bytes>, key: &str) -> Result<(), Problem> {
    const MOST: ByteCount = ByteCount(1 << 30);
    match change {
        Some(Bytes(bytes)) if bytes > MOST => {
            Err(Problem::unexpected(ErrorKind::BadValue, bytes.to_string(), format!("at most {MOST}"))).under(key)
        }
        Some(Bytes(bytes)) => {
            *field = bytes.0 as u32;
            Ok(())
        }
        None => Ok(()),
    }
}

fn path_mtu(config: &mut Config, stack: &Stack) -> Result<(), Problem> {
    let Some(Short(changes)) = &stack.mtu_probing else { return Ok(()) };
    let path_mtu = &mut config.path_mtu;
    put_word(&mut path_mtu.probing, changes.when);
    for (field, change, key) in [
        (&mut path_mtu.base_mss, changes.base_mss, "base_mss"),
        (&mut path_mtu.floor_mss, changes.floor_mss, "floor_mss"),
        (&mut path_mtu.min_mss, changes.min_mss, "min_mss"),
        (&mut path_mtu.threshold, changes.threshold, "threshold"),
    ] {
        // Linux's least `tcp_min_snd_mss`; a threshold may be smaller.
        let least = if key == "threshold" { 1 } else { 48 };
        if let Some(Bytes(bytes)) = change {
            let fits = u16::try_from(bytes.0).ok().filter(|bytes| (least..=65_495).contains(bytes));
            *field = fits.ok_or_else(|| {
                let accepted = format!("{least} to 65495 bytes");
                Problem::unexpected(ErrorKind::BadValue, bytes.to_string(), accepted).under(key)
            })?;
        }
    }
    put_time(&mut path_mtu.interval, changes.interval);
    Ok(())
}

fn fast_open_config(fast_open: FastOpen) -> FastOpenConfig {
    // Linux `net.core.somaxconn`.
    const MAX_PENDING: u32 = 4_096;
    let without = fast_open == FastOpen::NoCookie;
    match fast_open {
        FastOpen::Off => FastOpenConfig::OFF,
        FastOpen::Cookie | FastOpen::NoCookie => FastOpenConfig {
            max_pending: MAX_PENDING,
            takes_without_cookie: without,
            sends_without_cookie: without,
            key: None,
        },
    }
}

fn send(config: &mut Config, stack: &Stack) -> Result<(), Problem> {
    let Some(changes) = &stack.send else { return Ok(()) };
    let send = &mut config.send;
    put_bytes(&mut send.buffer_bytes, changes.buffer, "buffer").under("send")?;
    if changes.buffer.is_some() {
        send.fix_buffer(send.buffer_bytes);
    }
    put_bytes(&mut send.max_buffer_bytes, changes.max_buffer, "max_buffer").under("send")?;
    put(&mut send.nagle, changes.nagle);
    put(&mut send.minshall, changes.minshall);
    put_word(&mut send.window_update, changes.window_update);
    put_time(&mut send.silly_window_override, changes.silly_window_override);
    put(&mut send.defer_bursts, changes.defer_bursts);
    Ok(())
}

fn receive(config: &mut Config, stack: &Stack) -> Result<(), Problem> {
    let Some(changes) = &stack.receive else { return Ok(()) };
    let receive = &mut config.receive;
    put_bytes(&mut receive.buffer_bytes, changes.buffer, "buffer").under("receive")?;
    put_bytes(&mut receive.max_buffer_bytes, changes.max_buffer, "max_buffer").under("receive")?;
    put_word(&mut receive.growth, changes.growth);
    match changes.initial_window {
        Some(OrNone(None)) => receive.initial_window_bytes = u32::MAX,
        Some(OrNone(window)) => {
            put_bytes(&mut receive.initial_window_bytes, window, "initial_window").under("receive")?;
        }
        None => {}
    }
    put_word(&mut receive.beyond_window, changes.beyond_window);
    put(&mut receive.quick_while_growing, changes.quick_while_growing);
    put(&mut receive.compress_sacks, changes.compress_sacks);
    if let Some(Short(ack)) = &changes.ack {
        receive.ack = ack_policy(receive.ack, ack).under("ack").under("receive")?;
    }
    Ok(())
}

/// `base` with the changes of a table; a new policy starts from its usual values.
fn ack_policy(base: AckPolicy, changes: &Ack) -> Result<AckPolicy, Problem> {
    let kind = changes.policy.map_or_else(|| kind_of(base), |word| word.0);
    let (mut delay, mut tick) = match base {
        AckPolicy::Delayed { delay, tick } => (delay, tick),
        _ => (Duration::from_millis(200), Duration::ZERO),
    };
    let (mut quick_acks, mut min, mut max) = match base {
        AckPolicy::Adaptive { quick_acks, min, max } => (quick_acks, min, max),
        _ => (16, Duration::from_millis(40), Duration::from_millis(200)),
    };
    let foreign: [(bool, &str, AckKind); 5] = [
        (changes.delay.is_some(), "delay", AckKind::Delayed),
        (changes.tick.is_some(), "tick", AckKind::Delayed),
        (changes.quick_acks.is_some(), "quick_acks", AckKind::Adaptive),
        (changes.min.is_some(), "min", AckKind::Adaptive),
        (changes.max.is_some(), "max", AckKind::Adaptive),
    ];
    if let Some((_, key, owner)) = foreign.iter().find(|(given, _, owner)| *given && *owner != kind) {
        let message =
            format!("only the policy \"{}\" has \"{key}\", and this is \"{}\"", Word(*owner).name(), Word(kind).name());
        return Err(Problem::conflict(message)).under(key);
    }
    put_time(&mut delay, changes.delay);
    put_time(&mut tick, changes.tick);
    put(&mut quick_acks, changes.quick_acks);
    put_time(&mut min, changes.min);
    put_time(&mut max, changes.max);
    if min > max {
        return Err(order_problem("min", "max")).under("min");
    }
    Ok(match kind {
        AckKind::Immediate => AckPolicy::Immediate,
        AckKind::Delayed => AckPolicy::Delayed { delay, tick },
        AckKind::Adaptive => AckPolicy::Adaptive { quick_acks, min, max },
    })
}

const fn kind_of(policy: AckPolicy) -> AckKind {
    match policy {
        AckPolicy::Immediate => AckKind::Immediate,
        AckPolicy::Delayed { .. } => AckKind::Delayed,
        AckPolicy::Adaptive { .. } => AckKind::Adaptive,
    }
}

fn recovery(config: &mut Config, stack: &Stack) {
    let Some(changes) = &stack.recovery else { return };
    let recovery = &mut config.recovery;
    put_word(&mut recovery.with_sack, changes.with_sack);
    put_word(&mut recovery.without_sack, changes.without_sack);
    put(&mut recovery.dup_ack_threshold, changes.dup_ack_threshold);
    put_word(&mut recovery.reduction, changes.reduction);
    put(&mut recovery.limited_transmit, changes.limited_transmit);
    put(&mut recovery.repair_ahead, changes.repair_ahead);
    put(&mut recovery.loss_probe, changes.loss_probe);
    put(&mut recovery.frto, changes.frto);
    put(&mut recovery.undo, changes.undo);
    put(&mut recovery.bar_after_timeout, changes.bar_after_timeout);
    put(&mut recovery.cut_on_each_timeout, changes.cut_on_each_timeout);
    put(&mut recovery.dup_ack_needs_new_sack, changes.dup_ack_needs_new_sack);
    put(&mut recovery.max_reordering, changes.max_reordering);
    put_word(&mut recovery.zero_window, changes.zero_window);
}

fn congestion(config: &mut Config, stack: &Stack) {
    let Some(Short(changes)) = &stack.congestion else { return };
    let congestion = &mut config.congestion;
    put_word(&mut congestion.algorithm, changes.algorithm);
    let window = changes.initial_window.map(|window| match window {
        Window::Segments(segments) => InitialWindow::Segments(segments),
        Window::Rfc3390 => InitialWindow::Rfc3390,
        Window::Rfc6928 => InitialWindow::Rfc6928,
    });
    put(&mut congestion.initial_window, window);
    put_word(&mut congestion.counting, changes.counting);
    put_word(&mut congestion.increase, changes.increase);
    put(&mut congestion.syn_retransmissions_forgiven, changes.syn_retransmissions_forgiven);
    put_word(&mut congestion.ssthresh_basis, changes.ssthresh_basis);
    put(&mut congestion.validate_after_idle, changes.validate_after_idle);
    put(&mut congestion.restart_after_idle, changes.restart_after_idle);
    put(&mut congestion.hystart, changes.hystart);
    put_word(&mut congestion.hystart_variant, changes.hystart_variant);
    if let Some(OrNone(pacing)) = &changes.pacing {
        congestion.pacing = pacing.map(|pacing| PacingConfig {
            slow_start_percent: pacing.slow_start_percent.get(),
            avoidance_percent: pacing.avoidance_percent.get(),
        });
    }
    put(&mut congestion.max_window_segments, changes.max_window.map(|window| window.0));
}

fn rto(config: &mut Config, stack: &Stack) {
    let Some(changes) = &stack.rto else { return };
    let rto = &mut config.rto;
    put_time(&mut rto.initial, changes.initial);
    put_time(&mut rto.min, changes.min);
    put_time(&mut rto.max, changes.max);
    put_time(&mut rto.tick, changes.tick);
    put_word(&mut rto.estimator, changes.estimator);
    put(&mut rto.one_sample_per_window, changes.one_sample_per_window);
}

fn persist(config: &mut Config, stack: &Stack) {
    let Some(changes) = &stack.persist else { return };
    let persist = &mut config.persist;
    put_time(&mut persist.min, changes.min);
    put_time(&mut persist.max, changes.max);
    put_word(&mut persist.payload, changes.payload);
    put_option(&mut persist.give_up_after, &changes.give_up_after);
}

fn limits(config: &mut Config, stack: &Stack) -> Result<(), Problem> {
    let Some(changes) = &stack.limits else { return Ok(()) };
    let limits = &mut config.limits;
    put(&mut limits.syn_retries, changes.syn_retries);
    put(&mut limits.r1, changes.r1);
    let r2 = changes.r2.map(|retries| match retries {
        Retries::Count(count) => RetryLimit::Retries(count),
        Retries::LinuxTime(count) => RetryLimit::LinuxTime(count),
        Retries::Never => RetryLimit::Never,
    });
    put(&mut limits.r2, r2);
    if let Some(OrNone(keep_alive)) = &changes.keep_alive {
        limits.keep_alive = keep_alive.as_ref().map(|changes| KeepAlive {
            idle: changes.idle.0,
            interval: changes.interval.0,
            probes: changes.probes,
        });
        if limits.keep_alive.is_some_and(|keep| keep.idle.is_zero() || keep.interval.is_zero() || keep.probes == 0) {
            let message = "the times and the number of probes must be above 0";
            return Err(Problem::new(ErrorKind::BadValue, message)).under("keep_alive").under("limits");
        }
    }
    put_time(&mut limits.time_wait, changes.time_wait);
    put_time(&mut limits.fin_wait_2, changes.fin_wait_2);
    put(&mut limits.challenge_acks_per_second, changes.challenge_acks_per_second);
    if let Some(OrNone(interval)) = changes.invalid_ack_interval {
        limits.invalid_ack_interval = interval.map(|interval| interval.0);
    }
    Ok(())
}

fn user_timeout(config: &mut Config, stack: &Stack) {
    let Some(Short(changes)) = &stack.user_timeout else { return };
    let user_timeout = &mut config.user_timeout;
    if let Some(OrNone(timeout)) = changes.timeout {
        user_timeout.timeout = timeout.map(|timeout| timeout.0);
    }
    if let Some(OrNone(advertise)) = changes.advertise {
        user_timeout.advertise = advertise.map(|advertise| advertise.0);
    }
    put(&mut user_timeout.changeable, changes.changeable);
    put_time(&mut user_timeout.lower_limit, changes.lower_limit);
    put_time(&mut user_timeout.upper_limit, changes.upper_limit);
    put(&mut user_timeout.covers_zero_window, changes.covers_zero_window);
}

/// Checks for invalid values and contradictions.
fn check(config: &Config) -> Result<(), Problem> {
    let mss = u32::from(config.mss);
    let bad = |found: String, accepted: &str, table: &str, key: &str| {
        Err(Problem::unexpected(ErrorKind::BadValue, found, accepted)).under(key).under(table)
    };
    let too_small = |bytes: u32, table: &str, key: &str| {
        bad(ByteCount(bytes.into()).to_string(), &format!("at least one segment, {mss} bytes"), table, key)
    };
    if let Some(shift) = config.window_scale.filter(|&shift| shift > 14) {
        let problem = Problem::unexpected(ErrorKind::BadValue, format!("the number {shift}"), "0 to 14, or \"none\"");
        return Err(problem.under("window_scale"));
    }
    let ticks = Duration::from_micros(1)..=Duration::from_secs(1);
    if let Some(tick) = config.timestamps.filter(|tick| !ticks.contains(tick)) {
        let problem = Problem::unexpected(ErrorKind::BadValue, format!("\"{tick}\""), "1 us to 1 s, or \"none\"");
        return Err(problem.under("timestamps"));
    }
    if config.send.buffer_bytes < mss {
        return too_small(config.send.buffer_bytes, "send", "buffer");
    }
    if config.send.buffer_bytes > config.send.max_buffer_bytes {
        return Err(order_problem("buffer", "max_buffer")).under("buffer").under("send");
    }
    if config.receive.buffer_bytes < mss {
        return too_small(config.receive.buffer_bytes, "receive", "buffer");
    }
    if config.receive.initial_window_bytes < mss {
        return too_small(config.receive.initial_window_bytes, "receive", "initial_window");
    }
    if config.receive.buffer_bytes > config.receive.max_buffer_bytes {
        return Err(order_problem("buffer", "max_buffer")).under("buffer").under("receive");
    }
    if config.recovery.dup_ack_threshold == 0 {
        return bad("the number 0".to_owned(), "at least 1", "recovery", "dup_ack_threshold");
    }
    for (time, key) in [(config.rto.initial, "initial"), (config.rto.max, "max")] {
        if time.is_zero() {
            return bad("\"0 s\"".to_owned(), "a time above 0", "rto", key);
        }
    }
    if config.rto.min > config.rto.max {
        return Err(order_problem("min", "max")).under("min").under("rto");
    }
    if config.persist.max.is_zero() {
        return bad("\"0 s\"".to_owned(), "a time above 0", "persist", "max");
    }
    if config.persist.min > config.persist.max {
        return Err(order_problem("min", "max")).under("min").under("persist");
    }
    if config.user_timeout.timeout.is_some_and(Duration::is_zero) {
        return bad("\"0 s\"".to_owned(), "a time above 0, or \"none\"", "user_timeout", "timeout");
    }
    if config.user_timeout.lower_limit > config.user_timeout.upper_limit {
        return Err(order_problem("lower_limit", "upper_limit")).under("lower_limit").under("user_timeout");
    }
    Ok(())
}

fn order_problem(less: &str, more: &str) -> Problem {
    Problem::conflict(format!("\"{less}\" is above \"{more}\""))
}
