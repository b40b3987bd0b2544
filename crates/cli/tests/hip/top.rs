//! `holdover hip top`, on a terminal that the test reads.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use crate::Test;
use crate::daemon::{Host, PATIENCE, Place, pair};
use crate::network::{Network, SERVER, WIFI};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[("top_shows_peers_and_their_traffic", top_shows_peers_and_their_traffic)];

const ROWS: usize = 24;
const COLUMNS: usize = 120;

// Claim: `hip top` shows a peer with its state, its address and the rates of its traffic, follows them, and ends with `q`.
fn top_shows_peers_and_their_traffic() {
    let (place, network) = (Place::new("top"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "udp");
    mobile.up("");
    server.up("");
    mobile.wait_for("established", |peer| peer["state"] == "ESTABLISHED");
    let mut top = Top::start(&mobile);
    let hit = mobile.hit().to_string();
    top.wait_until("the host and its peer", |screen| {
        screen.line(0).contains(&hit) && screen.line(0).contains(WIFI.address) && screen.peer("server").is_some()
    });
    let transfer = Transfer::start(Way::FromMobile, &network.mobile, &network.server, server.hit());
    transfer.wait_for_more(200_000);
    top.wait_until("traffic", |screen| {
        let Some([state, address, out, back, moves]) = screen.peer("server") else { return false };
        let rates = [out, back].map(|rate| rate.parse::<f64>().unwrap_or_default());
        state == "ESTABLISHED" && address == SERVER[0] && moves == "0" && rates[0] > 1.0 && rates[1] > 0.0
    });
    transfer.end();
    top.wait_until("silence", |screen| {
        screen.peer("server").is_some_and(|[.., out, back, _]| out == "0.000" && back == "0.000")
    });
    top.quit();
}

/// The command, and its screen.
struct Top {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: Screen,
}

/// After a failed assertion.
impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Top {
    /// On a pseudo-terminal of `script`.
    fn start(host: &Host) -> Self {
        let holdover = env!("CARGO_BIN_EXE_holdover");
        let command = format!(
            "stty rows {ROWS} cols {COLUMNS}; exec {holdover} hip top --socket {}",
            host.socket().to_str().unwrap()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).env("TERM", "xterm");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = shown.read(&mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, output, screen: Screen::default() }
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, is_shown: impl Fn(&Screen) -> bool) {
        let patience = Instant::now() + PATIENCE;
        while !is_shown(&self.screen) {
            let left = patience.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.write(&bytes),
                Err(error) => panic!("never shown: {what} ({error})\n{}", self.screen.text()),
            }
        }
    }

    fn quit(mut self) {
        self.keys.write_all(b"q").unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.screen.text());
    }
}

/// As much of a terminal as the command uses: characters, and the sequence that moves the cursor.
#[derive(Default)]
struct Screen {
    cells: Vec<[char; COLUMNS]>,
    /// Row and column.
    cursor: (usize, usize),
    /// A sequence or a character that has not arrived completely.
    rest: Vec<u8>,
}

impl Screen {
    fn write(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        self.cells.resize(ROWS, [' '; COLUMNS]);
        let rest = std::mem::take(&mut self.rest);
        let complete = match std::str::from_utf8(&rest) {
            Ok(_) => rest.len(),
            Err(error) => error.valid_up_to(),
        };
        let mut text = std::str::from_utf8(&rest[..complete]).unwrap();
        while let Some(first) = text.chars().next() {
            let after = &text[first.len_utf8()..];
            if first != '\u{1b}' {
                self.put(first);
                text = after;
            } else if let Some(sequence) = after.strip_prefix('[') {
                // A control sequence ends with a letter.
                let Some(end) = sequence.find(|it: char| it.is_ascii_alphabetic()) else { break };
                self.control(&sequence[..end], &sequence[end..=end]);
                text = &sequence[end + 1..];
            } else if after.is_empty() {
                break;
            } else {
                text = &after[1..];
            }
        }
        self.rest = [text.as_bytes(), &rest[complete..]].concat();
    }

    fn control(&mut self, parameters: &str, command: &str) {
        if command == "H" {
            let mut numbers = parameters.split(';').map(|it| it.parse().unwrap_or(1_usize).saturating_sub(1));
            self.cursor = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        } else if command == "J" {
            self.cells.fill([' '; COLUMNS]);
        }
    }

    fn put(&mut self, character: char) {
        let (row, column) = self.cursor;
        if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = character;
            self.cursor.1 += 1;
        }
    }

    fn line(&self, row: usize) -> String {
        self.cells.get(row).into_iter().flatten().collect()
    }

    fn text(&self) -> String {
        (0..ROWS).map(|row| format!("{}\n", self.line(row).trim_end())).collect()
    }

    /// The cells of a peer after its name.
    fn peer(&self, name: &str) -> Option<[String; 5]> {
        let rows = (0..ROWS).map(|row| self.line(row));
        let mut cells = rows.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let cells = cells.find(|cells| cells.first().is_some_and(|first| first == name))?;
        cells.get(1..)?.to_vec().try_into().ok()
    }
}
