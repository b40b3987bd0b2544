//! `holdover hip between-hits`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use holdover_explain::{Capture, CaptureReadError};
use holdover_hipd::core::BetweenHits;
use holdover_wire::{Checksums, Packet, pcap};
use serde_json::json;

use super::{Failure, WRONG};
use crate::command_support::{print, print_json, print_note};

/// Arguments of `holdover hip between-hits`.
#[derive(Args, Debug)]
pub(super) struct BetweenHitsArgs {
    /// The capture, begun before the association: pcap or pcapng, also compressed by gzip or zstd.
    capture: PathBuf,
    /// Write the packets in ESP to this new file, a pcap.
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn between_hits(args: &BetweenHitsArgs) -> Result<ExitCode, Failure> {
    let of = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let failed = |status: u8, path: &Path, why: &dyn std::fmt::Display| Failure { text: of(path, why), status };
    let input = File::open(&args.capture).map_err(|error| failed(1, &args.capture, &error))?;
    let capture = Capture::new(BufReader::new(input)).map_err(|error| failed(WRONG, &args.capture, &error))?;
    let out = File::create_new(&args.out).map_err(|error| failed(1, &args.out, &error))?;
    let (mut hosts, mut cut) = (BetweenHits::default(), 0_u64);
    let written = write(out, capture.with_payloads(), &mut hosts, &mut cut);
    // What was not finished would be in the way of the next try.
    let damage = written.inspect_err(|_| drop(std::fs::remove_file(&args.out)))?;
    if let Some(damage) = damage {
        print_note(&format_args!("warning: {}", of(&args.capture, &damage)));
    }
    let counts = hosts.counts();
    if args.json {
        return Ok(print_json(
            &json!({ "hip": counts.hip, "esp": counts.esp, "unknown": counts.unknown, "fragments": counts.fragments, "cut": cut }),
        ));
    }
    let mut text = format!("{} packets in ESP between HITs: {}\n", counts.esp, args.out.display());
    if counts.unknown > 0 {
        let unknown = counts.unknown;
        text.push_str(&format!(
            "{unknown} packets in ESP left out: their SPIs are announced by no HIP packet of the capture\n"
        ));
    }
    if counts.fragments > 0 {
        text.push_str(&format!("{} fragments left out: they are not reassembled\n", counts.fragments));
    }
    if cut > 0 {
        text.push_str(&format!("{cut} packets left out: the capture has only a part of them, or they are damaged\n"));
    }
    Ok(print(&text))
}

/// Writes the packets in ESP. Returns the damage that ends the capture early.
fn write(
    out: File,
    mut capture: Capture<'_>,
    hosts: &mut BetweenHits,
    cut: &mut u64,
) -> Result<Option<CaptureReadError>, Failure> {
    let mut writer = pcap::Writer::new(BufWriter::new(out), u32::from(u16::MAX))?;
    let damage = loop {
        let captured = match capture.next_packet() {
            Ok(Some(captured)) => captured,
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        };
        let Ok(packet) = Packet::parse_with(Bytes::copy_from_slice(captured.ip), Checksums::Ignore) else {
            *cut += 1;
            continue;
        };
        if let Some(packet) = hosts.take(packet) {
            writer.write(captured.at, &packet)?;
        }
    };
    writer.into_inner().flush()?;
    Ok(damage)
}
