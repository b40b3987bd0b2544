//! Time-sequence graphs for xplot, as tcptrace draws them from a capture at the data sender.
//!
//! | drawn | meaning |
//! | --- | --- |
//! | white line between arrows | a segment with data |
//! | red line between arrows, `R` | a segment whose data was sent before |
//! | orange diamond, `SYN` or `FIN` | a segment that opens or closes |
//! | green line, ticks below | what is acknowledged; one tick for each ACK |
//! | yellow line, ticks above | the end of the receiver's window |
//! | purple line, `S` | a SACK block |

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use holdover_base::Instant;
use holdover_sim::{FlowId, Frame, Place, Transit, WorldConfig};
use holdover_wire::{Flags, Segment, Seq};

use crate::error::RecordError;
use crate::part_file::{PartFile, Written};
use crate::quantity::FileNames;
use crate::traffic::Owner;

/// The xplot files of a run.
#[derive(Debug)]
pub(crate) struct Xplot {
    dir: PathBuf,
    written: Written,
    names: FileNames,
    graphs: BTreeMap<(FlowId, bool), Graph>,
}

/// The graph of one direction of a flow.
#[derive(Debug)]
struct Graph {
    path: PathBuf,
    out: PartFile,
    numbers: Numbers,
    /// The end of all data sent; `None` before the first data.
    highest: Option<u64>,
    acked: Option<Acked>,
    /// The window shift offered by the receiver, and whether the sender offered one: scaling is used only if both did.
    receiver_shift: Option<u8>,
    sender_scales: bool,
    has_data: bool,
}

/// The latest acknowledgment at the sender.
#[derive(Clone, Copy, Debug)]
struct Acked {
    at: Instant,
    ack: u64,
    window_end: u64,
}

impl Xplot {
    pub(crate) fn new(dir: PathBuf, written: Written) -> Self {
        Self { dir, written, names: FileNames::default(), graphs: BTreeMap::new() }
    }

    pub(crate) fn packet(
        &mut self,
        at: Instant,
        place: Place,
        owner: Owner,
        frame: &Frame,
        config: &WorldConfig,
    ) -> Result<(), RecordError> {
        let Some(segment) = frame.packet().tcp() else { return Ok(()) };
        let flow = &config.flows[owner.flow.0 as usize];
        let is_out = place.transit == Transit::Out;
        // Packets sent by a host belong to the graph of its own direction; packets it receives acknowledge the same direction.
        let forward = if is_out { owner.forward } else { !owner.forward };
        if place.node != if forward { flow.from } else { flow.to } {
            return Ok(());
        }
        let key = (owner.flow, forward);
        if !self.graphs.contains_key(&key) {
            let name = if forward { flow.name.clone() } else { format!("{}-reverse", flow.name) };
            let packet = frame.packet();
            let mut ends = [(packet.src, segment.src_port), (packet.dst, segment.dst_port)];
            if !is_out {
                ends.reverse();
            }
            let [from, to] = ends.map(|(address, port)| std::net::SocketAddr::new(address, port));
            let path = self.dir.join(format!("{}.xpl", self.names.unique(&name)));
            let graph = Graph::begin(path, &self.written, &format!("{from}_==>_{to} (time sequence graph)"))?;
            self.graphs.insert(key, graph);
        }
        let Some(graph) = self.graphs.get_mut(&key) else { return Ok(()) };
        let drawn = if is_out { graph.sent(at, segment) } else { graph.heard(at, segment) };
        drawn.map_err(|error| RecordError::io(&graph.path, error))
    }

    /// Finishes the files; directions without data have none.
    pub(crate) fn finish(self) -> Result<(), RecordError> {
        for Graph { path, mut out, has_data, .. } in self.graphs.into_values() {
            if has_data {
                out.write_all(b"go\n").and_then(|()| out.commit()).map_err(|error| RecordError::io(&path, error))?;
            }
        }
        Ok(())
    }
}

impl Graph {
    fn begin(path: PathBuf, written: &Written, title: &str) -> Result<Self, RecordError> {
        let create = || {
            let mut out = written.create(&path)?;
            write!(out, "timeval double\ntitle\n{title}\nxlabel\ntime\nylabel\nsequence number\n")?;
            Ok(out)
        };
        let out = create().map_err(|error| RecordError::io(&path, error))?;
        Ok(Self {
            path,
            out,
            numbers: Numbers::default(),
            highest: None,
            acked: None,
            receiver_shift: None,
            sender_scales: false,
            has_data: false,
        })
    }

    /// Handles a segment sent by the data sender.
    fn sent(&mut self, at: Instant, segment: &Segment) -> io::Result<()> {
        let is_syn = segment.flags.contains(Flags::SYN);
        if is_syn {
            self.sender_scales = segment.options.window_scale.is_some();
        }
        if segment.seq_len() == 0 || segment.flags.contains(Flags::RST) {
            return Ok(());
        }
        let (t, from) = (Seconds(at), self.numbers.of(segment.seq));
        let data = from + u64::from(is_syn) + segment.payload.len() as u64;
        let to = from + u64::from(segment.seq_len());
        let again = self.highest.is_some_and(|highest| from < highest);
        self.highest = Some(self.highest.unwrap_or(to).max(to));
        if is_syn {
            self.marker(t, (from, from + 1), "SYN", again)?;
        }
        if !segment.payload.is_empty() {
            self.has_data = true;
            let from = from + u64::from(is_syn);
            let colour = if again { "red" } else { "white" };
            writeln!(self.out, "{colour}\ndarrow {t} {from}\nuarrow {t} {data}\nline {t} {from} {t} {data}")?;
            if again {
                writeln!(self.out, "atext {t} {data}\nR")?;
            }
        }
        if segment.flags.contains(Flags::FIN) {
            self.marker(t, (data, to), "FIN", again)?;
        }
        Ok(())
    }

    /// Draws a SYN or FIN, which occupies one sequence number.
    fn marker(&mut self, t: Seconds, (from, to): (u64, u64), name: &str, again: bool) -> io::Result<()> {
        let text = if again { format!("R {name}") } else { name.to_owned() };
        writeln!(
            self.out,
            "orange\ndiamond {t} {from}\natext {t} {to}\n{text}\nuarrow {t} {to}\nline {t} {from} {t} {to}"
        )
    }

    /// Handles a segment received by the data sender.
    fn heard(&mut self, at: Instant, segment: &Segment) -> io::Result<()> {
        let is_syn = segment.flags.contains(Flags::SYN);
        if is_syn {
            self.receiver_shift = segment.options.window_scale.map(|shift| shift.min(14));
        }
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::RST) {
            return Ok(());
        }
        let scales = self.sender_scales && !is_syn;
        let shift = self.receiver_shift.filter(|_| scales).unwrap_or(0);
        let ack = self.numbers.of(segment.ack);
        let window_end = ack + (u64::from(segment.window) << shift);
        let t = Seconds(at);
        if let Some(Acked { at, ack: old, window_end: old_end }) = self.acked {
            let since = Seconds(at);
            writeln!(self.out, "green\nline {since} {old} {t} {old}")?;
            if ack == old {
                writeln!(self.out, "dtick {t} {ack}")?;
            } else {
                writeln!(self.out, "line {t} {old} {t} {ack}")?;
            }
            writeln!(self.out, "yellow\nline {since} {old_end} {t} {old_end}")?;
            if window_end == old_end {
                writeln!(self.out, "utick {t} {window_end}")?;
            } else {
                writeln!(self.out, "line {t} {old_end} {t} {window_end}")?;
            }
        }
        self.acked = Some(Acked { at, ack, window_end });
        for block in segment.options.sack.iter() {
            let (from, to) = (self.numbers.of(block.start), self.numbers.of(block.end));
            writeln!(self.out, "purple\nline {t} {from} {t} {to}\nrtext {t} {to}\nS")?;
        }
        Ok(())
    }
}

/// Wire sequence numbers extended above 2^32, so that curves continue across wraparound.
#[derive(Clone, Copy, Default, Debug)]
struct Numbers {
    latest: Option<(Seq, u64)>,
}

impl Numbers {
    fn of(&mut self, seq: Seq) -> u64 {
        let (latest, number) = *self.latest.get_or_insert((seq, u64::from(seq.value())));
        if seq.ge(latest) {
            let number = number + u64::from(seq - latest);
            self.latest = Some((seq, number));
            number
        } else {
            number.saturating_sub(u64::from(latest - seq))
        }
    }
}

/// A time in xplot's format: seconds with six digits.
#[derive(Clone, Copy, Debug)]
struct Seconds(Instant);

impl core::fmt::Display for Seconds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let micros = self.0.as_nanos() / 1000;
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_sequence_numbers_wrap() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.of(Seq::new(u32::MAX - 9)), u64::from(u32::MAX) - 9);
        assert_eq!(numbers.of(Seq::new(90)), u64::from(u32::MAX) + 91);
        assert_eq!(numbers.of(Seq::new(u32::MAX)), u64::from(u32::MAX), "a retransmission");
    }
}
