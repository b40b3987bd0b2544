//! Interprets the commands between back quotes as settings of the machine under test.
//!
//! No command is run. Supported are kernel settings (`sysctl`, `set_sysctls.py`, `echo` into `/proc/sys`), routes, and scripts of such
//! commands; commands without effect on TCP are ignored, and all others are reported. The supported shell syntax is variables, and `if`
//! with a comparison of two texts, by which shared scripts distinguish systems: this one is Linux.

use std::collections::BTreeMap;

use crate::settings::Settings;

/// Reads a script named by a command; `None` if there is no such file.
pub type ReadFile<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// The maximum nesting of scripts in scripts.
const MAX_NESTING: u32 = 8;

/// Variables are replaced in a word up to this length, in bytes.
const MAX_EXPANSION: usize = 4_096;

/// Commands without effect on TCP.
const WITHOUT_EFFECT: &[&str] = &[
    "true", ":", "sleep", "rm", "/bin/rm", "dd", "/bin/dd", "nstat", "set", "cat", "mkdir", "touch", "modprobe",
    "exit", "ifconfig", "export",
];

/// Applies the commands of `text` to `settings`.
pub(crate) fn apply(text: &str, settings: &mut Settings, read: &mut ReadFile<'_>) {
    Shell { settings, read, variables: BTreeMap::new() }.run(text, 0);
}

/// A shell that runs nothing.
struct Shell<'a, 'b> {
    settings: &'a mut Settings,
    read: &'a mut ReadFile<'b>,
    variables: BTreeMap<String, String>,
}

/// The part of an `if` that the commands belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Branch {
    /// Its commands apply.
    Taken,
    /// A later part may apply.
    Pending,
    /// No part applies any more.
    Over,
}

impl Branch {
    fn of(condition: bool) -> Self {
        if condition { Self::Taken } else { Self::Pending }
    }
}

impl Shell<'_, '_> {
    fn run(&mut self, text: &str, depth: u32) {
        let mut branches: Vec<Branch> = Vec::new();
        for command in commands(text) {
            let words: Vec<String> = command.iter().map(|word| self.expand(word)).collect();
            let words = match self.take_keyword(&mut branches, &words) {
                Some(rest) if branches.iter().all(|&branch| branch == Branch::Taken) => rest,
                _ => continue,
            };
            self.run_command(words, depth);
        }
    }

    /// Follows `if`, `then`, `elif`, `else` and `fi`. Returns the command after the keyword, if there can be one.
    fn take_keyword<'c>(&mut self, branches: &mut Vec<Branch>, words: &'c [String]) -> Option<&'c [String]> {
        let (keyword, rest) = words.split_first()?;
        let is_reached = |branches: &[Branch]| branches.iter().all(|&branch| branch == Branch::Taken);
        match (keyword.as_str(), branches.split_last_mut()) {
            ("if", _) => {
                let branch = if is_reached(branches) { Branch::of(self.condition(rest)) } else { Branch::Over };
                branches.push(branch);
                None
            }
            ("elif", Some((last, outer))) => {
                let may_hold = *last == Branch::Pending && is_reached(outer);
                *last = if may_hold { Branch::of(self.condition(rest)) } else { Branch::Over };
                None
            }
            ("else", Some((last, _))) => {
                *last = if *last == Branch::Pending { Branch::Taken } else { Branch::Over };
                Some(rest)
            }
            ("then", Some(_)) => Some(rest),
            ("fi", Some(_)) => {
                branches.pop();
                None
            }
            _ => Some(words),
        }
    }

    /// `[ A = B ]` and `[ A != B ]`; every other condition is reported.
    fn condition(&mut self, words: &[String]) -> bool {
        match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["[" | "[[", left, "=" | "==", right, "]" | "]]"] | ["test", left, "=" | "==", right] => left == right,
            ["[" | "[[", left, "!=", right, "]" | "]]"] | ["test", left, "!=", right] => left != right,
            _ => {
                self.settings.block(format!("command not understood: if {}", words.join(" ")));
                false
            }
        }
    }

    fn run_command(&mut self, words: &[String], depth: u32) {
        match words {
            [assignment] if assignment.split_once('=').is_some_and(|(name, _)| is_name(name)) => {
                let (name, value) = assignment.split_once('=').unwrap_or_default();
                if value.len() <= MAX_EXPANSION {
                    self.variables.insert(name.to_owned(), value.to_owned());
                }
            }
            [name, args @ ..] if matches!(name.as_str(), "bash" | "sh" | "source" | ".") && !args.is_empty() => {
                if depth < MAX_NESTING {
                    self.run_command(args, depth + 1);
                } else {
                    self.settings.block(format!("scripts are nested deeper than {MAX_NESTING}"));
                }
            }
            [name, ..] if name.ends_with(".sh") && !is_without_effect(name) => match (self.read)(name) {
                _ if depth >= MAX_NESTING => {
                    self.settings.block(format!("scripts are nested deeper than {MAX_NESTING}"));
                }
                Some(script) => self.run(&script, depth + 1),
                None => self.settings.block(format!("the script {name} is not there")),
            },
            _ => apply_one(words, self.settings),
        }
    }

    /// Replaces `$NAME`, `${NAME}` and `$(uname)`, up to a length that no command has.
    fn expand(&self, word: &str) -> String {
        let mut out = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('$').filter(|_| out.len() < MAX_EXPANSION) {
            out.push_str(before);
            let (name, after) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
                Some(braced) => braced,
                None if after.starts_with("(uname)") => ("(uname)", &after["(uname)".len()..]),
                None => after.split_at(after.find(|letter| !is_name_letter(letter)).unwrap_or(after.len())),
            };
            match self.variables.get(name) {
                Some(value) => out.push_str(value),
                None if name == "(uname)" => out.push_str("Linux"),
                // Unknown: as it stands.
                None => out.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            rest = after;
        }
        out + rest
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(is_name_letter) && text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_without_effect(name: &str) -> bool {
    WITHOUT_EFFECT.contains(&name) || name.starts_with("/tmp/sysctl_restore")
}

fn apply_one(command: &[String], settings: &mut Settings) {
    let Some((name, args)) = command.split_first() else { return };
    let redirected = args.iter().position(|arg| arg == ">").unwrap_or(args.len());
    let args = if name == "echo" { args } else { &args[..redirected] };
    let base = name.rsplit('/').next().unwrap_or(name);
    match base {
        _ if is_without_effect(name) => {}
        _ if name.starts_with('[') || name.contains('=') => {}
        "sysctl" => args.iter().filter(|arg| !arg.starts_with('-')).for_each(|arg| assign(arg, settings)),
        "set_sysctls.py" => args.iter().for_each(|arg| assign(arg, settings)),
        "grep" | "awk" | "sed" | "test" | "wc" | "ss" | "netstat" => {
            settings.note(format!("not looked at: {}", command.join(" ")))
        }
        "echo" => echo(args, settings),
        "ip" => ip(args, settings),
        "ethtool" => ethtool(args, settings),
        "tc" => tc(args, settings),
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

/// `ethtool -K tun0 tso off gso off`: scripts see the segments that the device would have cut.
fn ethtool(args: &[String], settings: &mut Settings) {
    for pair in args.windows(2).filter(|pair| matches!(pair[0].as_str(), "gso" | "generic-segmentation-offload")) {
        settings.no_offload = pair[1] == "off";
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
    fn the_branch_for_linux_is_taken() {
        let text = "UNAME=$(uname)\nif [ \"$UNAME\" = \"FreeBSD\" ] ; then\n  sysctl kern.ipv4.tcp_dsack=0\n\
                    elif [ $UNAME = Linux ]; then . ./defaults.sh\n  if [ a != b ]; then sysctl net.ipv4.tcp_retries2=5; else sysctl net.ipv4.tcp_dsack=0; fi\n\
                    else\n  sysctl net.ipv4.tcp_dsack=0\nfi\nsysctl -q net.ipv4.tcp_timestamps=0";
        let settings = applied(text);
        assert!(!settings.sack && settings.dsack && !settings.timestamps);
        assert_eq!((settings.retries2, settings.blockers()), (5, &[] as &[String]));
        let doubled = format!("A=aaaa\n{}", "A=$A$A\n".repeat(60));
        assert_eq!(applied(&doubled).blockers(), &[] as &[String]);
        let nested = "if [ a = b ]; then\n if [ a = a ]; then sysctl net.ipv4.tcp_sack=0; fi\nelse\n exit\nfi";
        assert!(applied(nested).sack);
        assert_eq!(applied("if ping peer; then exit; fi").blockers(), ["command not understood: if ping peer"]);
    }

    #[test]
    fn scripts_that_are_nested_too_deep_are_reported() {
        let nested = |depth: usize| format!("{}sysctl -q net.ipv4.tcp_sack=0", "bash ".repeat(depth));
        let settings = applied(&nested(8));
        assert!(!settings.sack && settings.blockers().is_empty());
        assert_eq!(applied(&nested(9)).blockers(), ["scripts are nested deeper than 8"]);
        let mut settings = Settings::default();
        apply("./again.sh", &mut settings, &mut |_| Some("./again.sh".to_owned()));
        assert_eq!(settings.blockers(), ["scripts are nested deeper than 8"]);
    }

    #[test]
    fn unknown_commands_are_reported() {
        assert!(applied("ethtool -K tun0 tso off gso off").no_offload);
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
