//! `holdover hip top`: the host above, its peers below, with their rates, once a second.

use std::path::Path;
use std::process::ExitCode;

use holdover_hipd::control::status;
use holdover_hipd::status::{PeerStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Color;
use ratatui::widgets::Paragraph;

use super::text;
use crate::command_support::with_causes;
use crate::top::{self, Columns, KEYS, SortKey, Top, View};

/// The sort keys of peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    /// By bits to it and from it together.
    Rate,
    Moves,
    Name,
}

/// The host and its peers.
struct Host {
    status: Status,
    peers: Vec<Peer>,
}

/// A peer, with the bits per second to it and from it since the answer before.
struct Peer {
    status: PeerStatus,
    rates: [f64; 2],
}

pub(super) fn run(socket: &Path) -> ExitCode {
    let mut before = None;
    top::run("holdover hip status prints the same once", || {
        let now = status(socket).map_err(|error| with_causes(&error))?;
        let host = Host::since(before.as_ref(), now);
        before = Some(host.status.clone());
        Ok(host)
    })
}

impl Host {
    fn since(before: Option<&Status>, status: Status) -> Self {
        let peers = status.peers.iter();
        let peers = peers.map(|peer| Peer { status: peer.clone(), rates: rates(before, &status, peer) }).collect();
        Self { status, peers }
    }
}

/// Bits per second to and from a peer since the previous answer; zero for the first one, or if the daemon was restarted.
fn rates(before: Option<&Status>, now: &Status, peer: &PeerStatus) -> [f64; 2] {
    let Some(before) = before else { return [0.0; 2] };
    let seconds = now.running_s - before.running_s;
    let known = before.peers.iter().find(|known| known.hit == peer.hit);
    let (Some(known), true) = (known, seconds > 0.0) else { return [0.0; 2] };
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 * 8.0 / seconds;
    let (counters, known) = (&peer.counters, &known.counters);
    [rate(counters.bytes_out, known.bytes_out), rate(counters.bytes_in, known.bytes_in)]
}

impl Top for Host {
    type SortKey = SortBy;

    fn draw(&self, view: &mut View<SortBy>, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)]);
        let [head, below, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(text::summary(&self.status)), head);
        let mut sorted: Vec<&Peer> = self.peers.iter().collect();
        view.sort_key.sort(&mut sorted);
        let title = format!(" {} peers, by {} ", sorted.len(), view.sort_key.name());
        let shown = view.shown(sorted);
        let rows = shown.iter().map(|peer| {
            let colour = match (peer.status.is_moving, peer.status.state.as_str()) {
                (true, _) => Color::Yellow,
                (false, "ESTABLISHED") => Color::Green,
                (false, _) => Color::Red,
            };
            (text::peer_cells(&peer.status, peer.rates).to_vec(), view.style(colour))
        });
        PEERS.draw(frame, below, title, rows);
        frame.render_widget(Paragraph::new(KEYS), foot);
    }
}

/// The columns of addresses and moves are dropped first.
const PEERS: Columns<'_> = Columns { names: &text::PEER_COLUMNS, widths: &[20, 12, 24, 10, 10, 5], given_up: &[2, 5] };

impl SortKey for SortBy {
    const ALL: &'static [Self] = &[Self::Rate, Self::Moves, Self::Name];

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Moves => "moves",
            Self::Name => "name",
        }
    }
}

impl SortBy {
    fn sort(self, peers: &mut [&Peer]) {
        let rate = |peer: &Peer| peer.rates.iter().sum::<f64>();
        peers.sort_by(|a, b| match self {
            Self::Rate => rate(b).total_cmp(&rate(a)),
            Self::Moves => b.status.counters.readdressed.cmp(&a.status.counters.readdressed),
            Self::Name => text::name(&a.status).cmp(text::name(&b.status)),
        });
    }
}

#[cfg(test)]
mod tests {
    use holdover_hipd::status::PeerCounters;
    use ratatui::crossterm::event::KeyCode;

    use super::*;
    use crate::top::Screen;
    use crate::top::drawn::lines as drawn;

    fn peer(name: &str, bytes_out: u64, readdressed: u64) -> PeerStatus {
        PeerStatus {
            name: Some(name.to_owned()),
            hit: format!("2001:25::{}", name.len()),
            state: "ESTABLISHED".to_owned(),
            addresses: vec![[198, 51, 100, 1].into()],
            counters: PeerCounters { bytes_out, readdressed, ..PeerCounters::default() },
            ..PeerStatus::default()
        }
    }

    fn status(running_s: f64, peers: Vec<PeerStatus>) -> Status {
        let status = serde_json::json!({
            "version": "0.1.0", "hit": "2001:25::1", "interface": "hip0", "addresses": ["192.0.2.7"], "wake": true, "udp": false,
            "running_s": running_s, "peers": [], "counters": holdover_hipd::status::Counters::default(),
        });
        Status { peers, ..serde_json::from_value(status).unwrap() }
    }

    fn screen() -> Screen<Host> {
        let before = status(10.0, vec![peer("a", 0, 3), peer("busy", 1_000_000, 0)]);
        let now = status(12.0, vec![peer("a", 0, 3), peer("busy", 2_000_000, 0)]);
        Screen::new(Host::since(Some(&before), now))
    }

    fn place_of(lines: &[String], name: &str) -> usize {
        let is_of = |line: &String| line.split_whitespace().next() == Some(name);
        lines.iter().position(is_of).unwrap_or_else(|| panic!("{name}: {lines:#?}"))
    }

    #[test]
    fn peers_are_sorted_by_what_is_said() {
        let mut screen = screen();
        let lines = drawn(&mut screen, 120, 24);
        assert!(lines[0].contains("2001:25::1"), "{lines:#?}");
        let busy = place_of(&lines, "busy");
        assert!(busy < place_of(&lines, "a") && lines[busy].contains("4.000"), "{lines:#?}");
        screen.press(KeyCode::Char('s').into());
        let lines = drawn(&mut screen, 120, 24);
        assert!(place_of(&lines, "a") < place_of(&lines, "busy"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("2 peers, by moves")), "{lines:#?}");
    }

    #[test]
    fn there_is_no_rate_without_an_answer_before() {
        let peers = || vec![peer("busy", 2_000_000, 0)];
        assert_eq!(Host::since(None, status(12.0, peers())).peers[0].rates, [0.0; 2]);
        let later = status(100.0, vec![peer("busy", 1_000_000, 0)]);
        assert_eq!(Host::since(Some(&later), status(1.0, peers())).peers[0].rates, [0.0; 2], "it was started anew");
    }

    #[test]
    fn it_fits_into_any_terminal() {
        let mut screen = screen();
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut screen, width, height);
        }
    }
}
