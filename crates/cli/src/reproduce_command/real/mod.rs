//! `holdover reproduce PAPER --real`: the measurements of papers that have a counterpart on this machine's kernel, with Holdover's daemons.

mod hip_uto_rt;
mod m_tcp;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdover_base::{ByteCount, UnitError};
use holdover_testbed::Privilege;

use super::ReproduceArgs;
use crate::command_support::print_error;

/// The exit status if this machine cannot run it, as that of `holdover gateway`.
const CANNOT_WORK: u8 = 77;

/// Arguments of `--real` for transfers.
#[derive(Args, Debug)]
pub(super) struct TransferArgs {
    /// With --real of hip-uto-rt: what is transferred with periodic disconnections, 10 MB to 600 MB; default: 160 MB. The paper's 600 MB
    /// take four times as long.
    #[arg(long, value_name = "BYTES", requires = "real", value_parser = amount)]
    amount: Option<ByteCount>,
    /// With --real of hip-uto-rt: only transfers whose name contains this, as in "tcp-hip" or "37 s / 67 s".
    #[arg(long, value_name = "TEXT", requires = "real")]
    only: Option<String>,
    /// With --real of hip-uto-rt: append each finished run to this file. An interrupted call continues from it.
    #[arg(long, value_name = "FILE", requires = "real")]
    journal: Option<PathBuf>,
}

fn amount(text: &str) -> Result<ByteCount, String> {
    let amount: ByteCount = text.parse().map_err(|error: UnitError| error.to_string())?;
    let (least, most) = (ByteCount(10_000_000), ByteCount(600_000_000));
    if (least..=most).contains(&amount) { Ok(amount) } else { Err("not between 10 MB and 600 MB".to_owned()) }
}

/// Measures and prints it.
pub(super) fn run(args: &ReproduceArgs) -> ExitCode {
    let is_hip = match args.what.as_deref() {
        Some(m_tcp::PAPER) => false,
        Some(hip_uto_rt::PAPER) => true,
        _ => {
            print_error(&format_args!("--real measures {} or {}, as a whole", m_tcp::PAPER, hip_uto_rt::PAPER));
            return ExitCode::from(2);
        }
    };
    let TransferArgs { amount, only, journal } = &args.transfers;
    let has_transfers = amount.is_some() || only.is_some() || journal.is_some();
    if !is_hip && (args.jobs.is_some() || args.runs.is_some() || has_transfers) {
        let options = "--jobs, --runs, --amount, --only and --journal";
        print_error(&format_args!("{options} are for --real of {}", hip_uto_rt::PAPER));
        return ExitCode::from(2);
    }
    // Before the first thread.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("--real needs network namespaces: {error}"));
        return ExitCode::from(CANNOT_WORK);
    }
    if is_hip { hip_uto_rt::run(args) } else { m_tcp::run(args.json) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_amount_has_bounds() {
        assert_eq!(amount("100 MB"), Ok(ByteCount(100_000_000)));
        assert_eq!(amount("600MB"), Ok(ByteCount(600_000_000)));
        for text in ["9 MB", "601 MB"] {
            assert_eq!(amount(text).unwrap_err(), "not between 10 MB and 600 MB");
        }
        assert!(amount("100").is_err());
    }
}
