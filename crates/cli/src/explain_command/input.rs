//! Reading a capture to its end, with progress.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time;

use holdover_base::Instant;
use holdover_explain::{Analysis, Capture, CaptureReadError, Conversation};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{ExplainError, io};
use crate::command_support::print_note;

/// A capture that was read.
pub(super) struct Read {
    pub(super) conversations: Vec<Conversation>,
    /// When its first packet was captured.
    pub(super) first: Instant,
    /// Link types in it that cannot be read.
    pub(super) unsupported: Vec<i32>,
}

/// Reads a capture; packets before a damaged place count, and a warning reports the damage.
pub(super) fn read(path: &Path, show_progress: bool) -> Result<Read, ExplainError> {
    let read = Arc::new(AtomicU64::new(0));
    let (input, len): (Box<dyn io::Read + Send>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).map_err(|error| io(path, error))?;
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), len)
    };
    let input = Counted { input, read: Arc::clone(&read) };
    let failed = |error| ExplainError::Capture { path: path.to_owned(), error };
    let mut capture = Capture::new(input).map_err(failed)?;
    let mut analysis = Analysis::new();
    let mut bar = Bar::new(show_progress, len);
    let mut packets: u64 = 0;
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => analysis.take(packet.at, packet.ip, packet.original_len),
            Ok(None) => break,
            Err(error) if packets == 0 => return Err(failed(error)),
            Err(error) => {
                warn(path, &error);
                break;
            }
        }
        packets += 1;
        if packets.is_multiple_of(1 << 14) {
            bar.show(read.load(Ordering::Relaxed), packets);
        }
    }
    bar.finish();
    let left_out = analysis.counts().left_out;
    if left_out > 0 {
        print_note(&format_args!(
            "{}: {left_out} connections are left out: there are too many at a time",
            path.display()
        ));
    }
    let unsupported = capture.unsupported_links().to_vec();
    let first = analysis.first().unwrap_or(Instant::ZERO);
    Ok(Read { conversations: analysis.finish(), first, unsupported })
}

fn warn(path: &Path, error: &CaptureReadError) {
    print_note(&format_args!("{}: {error}; what comes before is explained", path.display()));
}

/// Counts the bytes of a file as they are read.
struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Progress on a terminal, for files that take longer than a second.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    since: time::Instant,
}

impl Bar {
    const PATIENCE: time::Duration = time::Duration::from_secs(1);

    /// For `len` bytes; without an end if it is 0.
    pub(super) fn new(wanted: bool, len: u64) -> Self {
        let bar = wanted.then(|| {
            let template = match len {
                0 => "  {msg}  {elapsed} so far",
                _ => "  {bar:40} {percent:>3} %  {msg}  {elapsed} so far, {eta} to go",
            };
            let bar = ProgressBar::with_draw_target((len > 0).then_some(len), ProgressDrawTarget::hidden());
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, since: time::Instant::now() }
    }

    pub(super) fn show(&mut self, position: u64, packets: u64) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(position);
        bar.set_message(format!("{packets} packets"));
        if bar.is_hidden() && self.since.elapsed() >= Self::PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
