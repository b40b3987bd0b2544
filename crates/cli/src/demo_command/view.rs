//! The live view: how much of each transfer arrives, over time, as one line of blocks each.

use std::fmt::Write as _;
use std::io::Write as _;

use holdover_base::{Duration, Instant};
use holdover_sim::FlowReport;
use holdover_transfers::{CUT_AT, Help, NetPath, Transfer, spaced};

use super::CUT;
use crate::command_support::print;

/// The interval between two looks at the transfers.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often the view is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(200);
/// The interval over which a rate is computed.
const RATE_SPAN_S: f64 = 1.0;
/// The columns left and right of the blocks.
const BESIDE: usize = 39;
/// How many blocks there are at most.
const BLOCKS: usize = 40;
/// How long one block is at first, in seconds; twice that whenever there is no more room.
const FIRST_BLOCK_S: f64 = 0.6;

/// The output device of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Medium {
    /// One picture that is drawn over itself.
    Screen {
        /// Blocks in a line.
        blocks: usize,
        colour: bool,
    },
    /// A line for each event, and the picture at the end.
    Lines,
    /// Nothing is shown.
    Nothing,
}

/// The transfers as they have been seen.
pub(super) struct View {
    medium: Medium,
    lanes: Vec<Lane>,
    drawn_at: Option<Instant>,
    lines_drawn: usize,
    /// The observed states of the link.
    phase: Phase,
}

struct Lane {
    transfer: Transfer,
    /// Times in seconds, and the bytes that had arrived.
    arrived: Vec<(f64, u64)>,
    resumed: Option<Duration>,
    completed: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Before,
    Cut,
    After,
}

impl Medium {
    /// Chooses by the kind of standard output.
    pub(super) fn of(is_terminal: bool, silent: bool) -> Self {
        let columns = || rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| usize::from(size.ws_col));
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if silent {
            return Self::Nothing;
        }
        if !is_terminal || is_dumb {
            return Self::Lines;
        }
        let blocks = columns().saturating_sub(BESIDE + 1).min(BLOCKS);
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if blocks < BLOCKS / 2 { Self::Lines } else { Self::Screen { blocks, colour } }
    }
}

impl View {
    pub(super) fn new(transfers: &[Transfer], medium: Medium) -> Self {
        let lanes = transfers.iter().map(|&transfer| Lane {
            transfer,
            arrived: vec![(0.0, 0)],
            resumed: None,
            completed: None,
        });
        Self { medium, lanes: lanes.collect(), drawn_at: None, lines_drawn: 0, phase: Phase::Before }
    }

    /// Records the progress of the transfers; `reports` begins with theirs.
    pub(super) fn note(&mut self, now: Instant, reports: &[FlowReport]) {
        let mut lines = Vec::new();
        let phase = Phase::at(now);
        if phase != std::mem::replace(&mut self.phase, phase) {
            lines.push(if phase == Phase::Cut {
                "the links are cut".to_owned()
            } else {
                "the links are back".to_owned()
            });
        }
        for (lane, report) in self.lanes.iter_mut().zip(reports) {
            lines.extend(lane.note(now, report));
        }
        if self.medium == Medium::Lines {
            for text in lines {
                // A reader such as `head` may close the pipe: the demo continues to its report.
                print(&format!("  {:5.1} s  {text}\n", now.as_secs_f64()));
            }
        }
    }

    /// Records the progress, and draws the view if it is time.
    pub(super) fn show(&mut self, now: Instant, reports: &[FlowReport]) {
        self.note(now, reports);
        let is_due = self.drawn_at.is_none_or(|at| now.saturating_since(at) >= DRAWN_EVERY);
        if let Medium::Screen { blocks, colour } = self.medium
            && is_due
        {
            self.drawn_at = Some(now);
            self.draw(now, blocks, colour);
        }
    }

    /// Draws the final view.
    pub(super) fn finish(&mut self, now: Instant, reports: &[FlowReport]) {
        self.note(now, reports);
        match self.medium {
            Medium::Screen { blocks, colour } => self.draw(now, blocks, colour),
            Medium::Lines => self.draw(now, BLOCKS, false),
            Medium::Nothing => {}
        }
    }

    fn draw(&mut self, now: Instant, blocks: usize, colour: bool) {
        let picture = self.picture(now, blocks, colour);
        let mut text = String::new();
        if self.lines_drawn > 0 {
            // To the first line of the last picture.
            let _ = write!(text, "\x1b[{}F", self.lines_drawn);
        }
        let clear = if matches!(self.medium, Medium::Screen { .. }) { "\x1b[K" } else { "" };
        for line in &picture {
            let _ = writeln!(text, "{line}{clear}");
        }
        self.lines_drawn = picture.len();
        // The terminal is closed: nothing is shown.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn picture(&self, now: Instant, blocks: usize, colour: bool) -> Vec<String> {
        let link = match Phase::at(now) {
            Phase::Before => "the links are up".to_owned(),
            Phase::Cut => format!("the links are cut, for {}", spaced(CUT)),
            Phase::After => {
                format!("the links have been back for {:.1} s", now.saturating_since(back_at()).as_secs_f64())
            }
        };
        let mut lines = vec![String::new(), format!("  {:4.1} s   {link}", now.as_secs_f64()), String::new()];
        for lane in &self.lanes {
            let direction = if lane.transfer.help == Help::Plain { lane.transfer.direction.name() } else { "" };
            let ink = Ink { colour };
            let (blocks, status) = (lane.blocks(now, blocks, ink), lane.status(now, ink));
            lines.push(format!("  {direction:8}  {:5}  {blocks}  {status}", lane.transfer.help.name()));
        }
        lines.push(String::new());
        lines.push("  █ data arrives   ░ the link is cut   · the link is back, and nothing comes".to_owned());
        lines.push(String::new());
        lines
    }
}

impl Phase {
    fn at(now: Instant) -> Self {
        if now < CUT_AT {
            Self::Before
        } else if now < back_at() {
            Self::Cut
        } else {
            Self::After
        }
    }
}

fn back_at() -> Instant {
    CUT_AT + CUT
}

impl Lane {
    /// Records the transfer's progress, and returns the new lines.
    fn note(&mut self, now: Instant, report: &FlowReport) -> Vec<String> {
        if self.completed.is_some() {
            return Vec::new();
        }
        let at = report.completed_at.unwrap_or(now);
        self.arrived.push((at.as_secs_f64(), report.bytes_received));
        let name = format!("{}, {}", self.transfer.direction.name(), self.transfer.help.name());
        let mut lines = Vec::new();
        let resumed = report.reconnections.first().and_then(|back| back.idle);
        if let (None, Some(idle)) = (self.resumed, resumed) {
            lines.push(format!("{name}: data again, {:.2} s after the link's return", idle.as_secs_f64()));
        }
        if let Some(at) = report.completed_at {
            lines.push(format!("{name}: done after {:.2} s", at.as_secs_f64()));
        }
        (self.resumed, self.completed) = (resumed, report.completed_at);
        lines
    }

    /// The data received, one block for each interval.
    fn blocks(&self, now: Instant, most: usize, ink: Ink) -> String {
        let end_s = self.completed.unwrap_or(now).as_secs_f64();
        let now_s = now.as_secs_f64();
        let mut block_s = FIRST_BLOCK_S;
        // All lanes have the same scale, the one that fits the present time.
        while now_s > block_s * most as f64 {
            block_s *= 2.0;
        }
        let count = (end_s / block_s).ceil() as usize;
        let mut text = String::new();
        for block in 0..count.min(most) {
            let (from, to) = (block as f64 * block_s, (block + 1) as f64 * block_s);
            text.push_str(&self.block(from, to.min(end_s), ink));
        }
        text.extend(std::iter::repeat_n(' ', most - count.min(most)));
        text
    }

    fn block(&self, from_s: f64, to_s: f64, ink: Ink) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let middle = Instant::from_nanos(((from_s + to_s) / 2.0 * 1e9) as u64);
        let bits = (self.arrived_by(to_s) - self.arrived_by(from_s)) * 8.0;
        let share = bits / ((to_s - from_s) * NetPath::DEFAULT.rate.0 as f64);
        let code = if self.transfer.help == Help::Plain { YELLOW } else { GREEN };
        match Phase::at(middle) {
            Phase::Cut => ink.paint(DIM, '░'),
            // A block with less than a packet stays empty: the packet is a probe of the sender.
            _ if share * LEVELS.len() as f64 >= 0.5 => {
                let level = (share * LEVELS.len() as f64).round() as usize;
                ink.paint(code, LEVELS[level.clamp(1, LEVELS.len()) - 1])
            }
            Phase::After => ink.paint(RED, '·'),
            Phase::Before => " ".to_owned(),
        }
    }

    /// The state of the transfer in a few words.
    fn status(&self, now: Instant, ink: Ink) -> String {
        if let Some(at) = self.completed {
            return format!("done after {:.1} s", at.as_secs_f64());
        }
        match (Phase::at(now), self.resumed) {
            (Phase::Cut, _) => "cut off".to_owned(),
            (Phase::After, None) => {
                let waited = now.saturating_since(back_at()).as_secs_f64();
                ink.paint(RED, format!("still waits, {waited:.1} s"))
            }
            _ => {
                let now_s = now.as_secs_f64();
                let since = (now_s - RATE_SPAN_S).max(0.0);
                let bits = (self.arrived_by(now_s) - self.arrived_by(since)) * 8.0;
                format!("{:.1} Mbit/s", bits / (now_s - since).max(0.1) / 1e6)
            }
        }
    }

    /// The bytes that had arrived at a time, interpolated between two looks.
    fn arrived_by(&self, at_s: f64) -> f64 {
        let after = self.arrived.partition_point(|&(seen_s, _)| seen_s < at_s);
        let last = self.arrived.last().map_or(0.0, |last| last.1 as f64);
        let (Some(&(from_s, from)), Some(&(to_s, to))) =
            (self.arrived.get(after.wrapping_sub(1)), self.arrived.get(after))
        else {
            return if after == 0 { 0.0 } else { last };
        };
        from as f64 + (to - from) as f64 * (at_s - from_s) / (to_s - from_s)
    }
}

/// Whether and how letters are coloured.
#[derive(Clone, Copy)]
struct Ink {
    colour: bool,
}

/// SGR codes (ECMA-48 section 8.3.117).
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

impl Ink {
    fn paint(self, code: &str, text: impl std::fmt::Display) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::ByteCount;

    use super::*;
    use holdover_transfers::TransferDirection;

    fn lane(help: Help) -> Lane {
        let transfer = Transfer { direction: TransferDirection::Download, help, cut: Some(CUT) };
        Lane { transfer, arrived: vec![(0.0, 0)], resumed: None, completed: None }
    }

    /// Ten megabits a second until the cut, and again from some time after it.
    fn crossed(help: Help, resumed_s: f64) -> Lane {
        let mut lane = lane(help);
        let per_tick = NetPath::DEFAULT.rate.0 / 80;
        let mut arrived = 0;
        for tick in 1..=200_u64 {
            let at_s = tick as f64 / 10.0;
            if at_s <= 4.0 || at_s > resumed_s {
                arrived += per_tick;
            }
            lane.arrived.push((at_s, arrived));
        }
        assert!(ByteCount(arrived) > ByteCount(0));
        lane
    }

    #[test]
    fn a_lane_shows_data_then_the_cut_then_the_waiting_and_data_again() {
        let plain = Ink { colour: false };
        let lane = crossed(Help::Plain, 13.0);
        // Six blocks and two thirds of one, the cut, three blocks and a third of waiting.
        let blocks = lane.blocks(Instant::from_secs(18), BLOCKS, plain);
        assert_eq!(blocks.trim_end(), "██████▅░░░░░░░░░░░···▃████████");
        let soon = crossed(Help::Agent, 11.0).blocks(Instant::from_secs(18), BLOCKS, plain);
        assert_eq!(soon.trim_end(), "██████▅░░░░░░░░░░░▅███████████");
    }

    #[test]
    fn blocks_of_any_time_have_the_same_width() {
        let plain = Ink { colour: false };
        for now in [1, 5, 20, 21, 50] {
            let blocks = crossed(Help::Plain, 13.0).blocks(Instant::from_secs(now), BLOCKS, plain);
            assert_eq!(blocks.chars().count(), BLOCKS, "{now}: {blocks}");
        }
    }

    #[test]
    fn a_lane_says_how_it_stands() {
        let plain = Ink { colour: false };
        let mut lane = crossed(Help::Plain, 13.0);
        assert_eq!(lane.status(Instant::from_secs(3), plain), "10.0 Mbit/s");
        assert_eq!(lane.status(Instant::from_secs(5), plain), "cut off");
        assert_eq!(lane.status(Instant::from_millis(12_500), plain), "still waits, 1.5 s");
        lane.resumed = Some(Duration::from_secs(2));
        assert_eq!(lane.status(Instant::from_secs(15), plain), "10.0 Mbit/s");
        lane.completed = Some(Instant::from_millis(18_250));
        assert_eq!(lane.status(Instant::from_secs(19), plain), "done after 18.2 s");
        assert_eq!(Ink { colour: true }.paint(RED, "·"), "\x1b[31m·\x1b[0m");
    }
}
