//! Replays the messages of a kernel with a real mac80211.

use holdover_base::Instant;
use holdover_host::messages;

use super::tell;
use crate::link_watch::kernel::{Change, Interfaces};

/// The recording; its head names its source.
const ACCESS_POINT_LOST: &str = include_str!("access_point_lost.hex");

/// The messages of a recording, with their times.
fn recorded(text: &str) -> Vec<(Instant, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let (millis, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (Instant::from_millis(millis.parse().unwrap()), (0..hex.len()).step_by(2).map(byte).collect())
    });
    parsed.collect()
}

/// The carrier's signals, each with the time of the message that caused it.
fn carrier_signals(recording: &[(Instant, Vec<u8>)]) -> Vec<(Instant, String)> {
    let mut interfaces = Interfaces::new();
    let mut signals = Vec::new();
    for (at, bytes) in recording {
        messages(bytes).for_each(|message| tell(*at, message, &mut interfaces));
        while let Some(change) = interfaces.poll_change() {
            if let Change::Signal(signal) = change {
                signals.push((*at, format!("{} {} {}", signal.interface, signal.source, signal.event)));
            }
        }
    }
    signals
}

// Claim: A dormant Wi-Fi interface is not up, whatever wireless extension events report: messages recorded from a real mac80211.
// Tests: `netlink::recorded::wireless_events_alone_say_nothing_of_the_link`
#[test]
fn a_dormant_interface_is_not_up_whatever_wireless_events_say() {
    let recording = recorded(ACCESS_POINT_LOST);
    let last = recording.last().unwrap().0;
    let down = (Instant::from_millis(1000), "wlan0 carrier down".to_owned());
    let up = (last, "wlan0 carrier up".to_owned());
    assert_eq!(carrier_signals(&recording), [down, up]);
}

#[test]
fn wireless_events_alone_say_nothing_of_the_link() {
    let is_event = |bytes: &[u8]| bytes.len() < 400;
    let recording: Vec<_> = recorded(ACCESS_POINT_LOST).into_iter().filter(|(_, bytes)| is_event(bytes)).collect();
    assert!(recording.len() >= 4);
    let mut interfaces = Interfaces::new();
    for (at, bytes) in &recording {
        messages(bytes).for_each(|message| tell(*at, message, &mut interfaces));
    }
    assert_eq!(interfaces.poll_change(), None);
}
