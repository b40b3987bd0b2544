//! Interprets the commands between back quotes as settings of the machine under test.
//!
//! No command is run. Supported are kernel settings (`sysctl`, `set_sysctls.py`, `echo` into `/proc/sys`), routes, and scripts of such
//! commands; commands without effect on TCP are ignored, and all others are reported.

use crate::settings::Settings;

/// Reads a script named by a command; `None` if there is no such file.
pub type ReadFile<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// The maximum nesting of scripts in scripts.
const MAX_NESTING: u32 = 8;

/// Commands without effect on TCP.
const WITHOUT_EFFECT: &[&str] = &[
    "true", ":", "sleep", "rm", "/bin/rm", "dd", "/bin/dd", "ethtool", "nstat", "set", "cat", "mkdir", "touch",
    "modprobe", "exit", "ifconfig", "export",
];

/// Applies the commands of `text` to `settings`.
pub(crate) fn apply(text: &str, settings: &mut Settings, read: &mut ReadFile<'_>) {
    apply_nested(text, settings, read, 0);
}

fn apply_nested(text: &str, settings: &mut Settings, read: &mut ReadFile<'_>, depth: u32) {
    for command in commands(text) {
        apply_one(&command, settings, read, depth);
    }
}

fn apply_one(command: &[String], settings: &mut Settings, read: &mut ReadFile<'_>, depth: u32) {
    let Some((name, args)) = command.split_first() else { return };
    let redirected = args.iter().position(|arg| arg == ">").unwrap_or(args.len());
    let args = if name == "echo" { args } else { &args[..redirected] };
    let base = name.rsplit('/').next().unwrap_or(name);
    match base {
        _ if WITHOUT_EFFECT.contains(&name.as_str()) || name.starts_with("/tmp/sysctl_restore") => {}
        _ if name.starts_with('[') || name.contains('=') => {}
        "sysctl" => args.iter().filter(|arg| !arg.starts_with('-')).for_each(|arg| assign(arg, settings)),
        "set_sysctls.py" => args.iter().for_each(|arg| assign(arg, settings)),
        "grep" | "awk" | "sed" | "test" | "wc" => settings.note(format!("not looked at: {}", command.join(" "))),
        "echo" => echo(args, settings),
        "ip" => ip(args, settings),
        "tc" => tc(args, settings),
        "bash" | "sh" | "source" | "." if depth < MAX_NESTING && !args.is_empty() => {
            apply_one(args, settings, read, depth + 1);
        }
        _ if base.ends_with(".sh") && depth < MAX_NESTING => match read(name) {
            Some(script) => apply_nested(&script, settings, read, depth + 1),
            None => settings.block(format!("the script {name} is not there")),
        },
        _ => settings.block(format!("command not understood: {}", command.join(" "))),
    }
}

/// `net.ipv4.tcp_sack=1` or `/proc/sys/net/ipv4/tcp_sack=1`.
fn assign(arg: &str, settings: &mut Settings) {
    match arg.split_once('=') {
        Some((name, value)) => settings.set_sysctl(&sysctl_name(name), value),
        None => settings.note(format!("not a setting: {arg}")),
    }
}

fn sysctl_name(name: &str) -> String {
    name.trim_start_matches("/proc/sys/").replace('/', ".")
}

/// `echo 3 > /proc/sys/...`
fn echo(args: &[String], settings: &mut Settings) {
    let Some(at) = args.iter().position(|arg| arg == ">") else { return };
    let Some(target) = args.get(at + 1) else { return };
    let value = args[..at].join(" ");
    if let Some(parameter) = target.strip_prefix("/sys/module/") {
        settings.set_module_parameter(parameter, &value);
    } else if target.starts_with("/proc/sys/") {
        settings.set_sysctl(&sysctl_name(target), &value);
    } else if target != "/dev/null" {
        settings.note(format!("not understood: echo > {target}"));
    }
}

/// Routes: the metrics used by TCP.
fn ip(args: &[String], settings: &mut Settings) {
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    match words.as_slice() {
        ["tcp_metrics" | "tcpmetrics", "flush", ..] => settings.flush_metrics = true,
        ["tcp_metrics" | "tcpmetrics", ..] | ["route" | "ro" | "r", "flush" | "show" | "get", ..] => {}
        ["route" | "ro" | "r", "add" | "change" | "replace" | "append", rest @ ..] => {
            let mut rest = rest.iter();
            while let Some(&word) = rest.next() {
                match word {
                    "via" | "dev" | "src" | "proto" | "table" | "metric" | "scope" => drop(rest.next()),
                    "lock" => {}
                    "mtu" | "advmss" | "initcwnd" | "initrwnd" | "quickack" | "rto_min" | "congctl" | "features"
                    | "cwnd" => {
                        let value = rest.find(|&&word| word != "lock").copied().unwrap_or_default();
                        settings.set_route_metric(word, value);
                    }
                    _ => {}
                }
            }
        }
        ["link", "set", rest @ ..] => {
            if let Some(at) = rest.iter().position(|&word| word == "mtu") {
                settings.set_device_mtu(rest.get(at + 1).copied().unwrap_or_default());
            }
        }
        ["addr" | "address", ..] => {}
        _ => settings.block(format!("command not understood: ip {}", args.join(" "))),
    }
}

/// Queueing disciplines: fq paces unless `nopacing` is set, plain queues do not, others are reported.
fn tc(args: &[String], settings: &mut Settings) {
    const PLAIN: &[&str] = &["pfifo", "pfifo_fast", "noqueue"];
    let has = |words: &[&str]| args.iter().any(|arg| words.contains(&arg.as_str()));
    if has(&["del", "delete"]) {
        settings.paced_by_fq = false;
    } else if args.windows(2).any(|pair| pair[0] == "limit" && pair[1] == "0") {
        settings.block("a queueing discipline that drops everything".to_owned());
    } else if has(&["fq"]) {
        settings.paced_by_fq = !has(&["nopacing"]);
    } else if has(PLAIN) {
        settings.paced_by_fq = false;
    } else {
        settings.block(format!("command not understood: tc {}", args.join(" ")));
    }
}

/// The commands of a text, split into words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') => words.extend(word.take()),
                Some(next) => word.get_or_insert_default().push(next),
                None => {}
            },
            '"' | '\'' => {
                let quoted: String = letters.by_ref().take_while(|&next| next != letter).collect();
                word.get_or_insert_default().push_str(&expand(&quoted));
            }
            '#' if word.is_none() => while letters.next_if(|&next| next != '\n').is_some() {},
            // Redirects both streams into a file.
            '&' if letters.peek() == Some(&'>') => words.extend(word.take()),
            '\n' | ';' | '&' | '|' => {
                words.extend(word.take());
                commands.push(core::mem::take(&mut words));
            }
            '>' => {
                words.extend(word.take().filter(|number| number.parse::<u8>().is_err()));
                if letters.next_if_eq(&'&').is_some() {
                    letters.next();
                } else {
                    words.push(">".to_owned());
                }
            }
            _ if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word.take());
    commands.push(words);
    commands.retain(|command| !command.is_empty());
    commands
}

/// Expands `$((15*1024*1024))`: products and sums; other expansions stay as they are.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$((") {
        out.push_str(before);
        let Some((expression, after)) = after.split_once("))") else {
            rest = after;
            break;
        };
        let term = |term: &str| {
            term.split('*').try_fold(1_u64, |product, factor| product.checked_mul(factor.trim().parse().ok()?))
        };
        let sum = expression.split('+').try_fold(0_u64, |sum, part| sum.checked_add(term(part)?));
        out.push_str(&sum.map_or_else(|| expression.to_owned(), |sum| sum.to_string()));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Settings {
        let mut settings = Settings::default();
        let mut read = |name: &str| name.ends_with("defaults.sh").then(|| "sysctl -q net.ipv4.tcp_sack=0\n".to_owned());
        apply(text, &mut settings, &mut read);
        settings
    }

    #[test]
    fn settings_reach_the_host_whatever_sets_them() {
        let text = "../common/defaults.sh\n../common/set_sysctls.py /proc/sys/net/ipv4/tcp_timestamps=0 \\\n \
                    /proc/sys/net/ipv4/tcp_rmem=\"4096 1000 $((2*1024))\"  # why\n\
                    echo 7 > /proc/sys/net/ipv4/tcp_syn_retries; ip route change 192.0.2.1 via 192.168.0.2 dev tun0 mtu lock 640 initcwnd 11";
        let settings = applied(text);
        assert!(!settings.sack && !settings.timestamps);
        assert_eq!((settings.rmem, settings.syn_retries), ([4096, 1000, 2048], 7));
        assert_eq!((settings.route_mtu, settings.initial_window), (Some(640), Some(11)));
        assert_eq!(settings.blockers(), &[] as &[String]);
    }

    #[test]
    fn unknown_commands_are_reported() {
        assert_eq!(applied("./other.sh").blockers(), ["the script ./other.sh is not there"]);
        assert_eq!(applied("iptables -A INPUT").blockers().len(), 1);
        assert_eq!(applied("sysctl -w net.ipv4.tcp_nothing=1").notes().len(), 1);
        assert!(applied("tc qdisc replace dev tun0 root fq").paced_by_fq);
        assert!(
            applied("tc qdisc change dev tun0 root fq nopacing\ntc qdisc change dev tun0 root fq pacing").paced_by_fq
        );
        for off in ["replace dev tun0 root fq nopacing", "del dev tun0 root fq", "replace dev tun0 root pfifo limit 9"]
        {
            assert!(!applied(&format!("tc qdisc add dev tun0 root fq\ntc qdisc {off}")).paced_by_fq, "{off}");
        }
        let quiet = applied(
            "ip tcp_metrics flush all > /dev/null 2>&1 || ip tcp_metrics flush all &> /dev/null\ntc qdisc add dev tun0 root pfifo",
        );
        assert_eq!((quiet.blockers().len(), quiet.notes().len()), (0, 0));
    }
}
