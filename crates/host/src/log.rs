//! Where what happens is written down: standard error, as lines for people or as JSON.

use std::io::{self, IsTerminal as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

/// What a daemon writes down, on its standard error.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How much.
    pub level: LogLevel,
    /// As what.
    pub format: LogFormat,
}

/// How much is written down. Nothing is written for each packet at any level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What fails.
    Error,
    /// And what is odd.
    Warn,
    /// And what happens to links, with a summary of what was done.
    #[default]
    Info,
    /// And what is done to each connection.
    Debug,
    /// And every signal, also those that changed nothing.
    Trace,
}

/// As what it is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Another log is in use already.
#[derive(Debug, thiserror::Error)]
#[error("a log is in use already")]
pub struct LogInUse;

/// Writes from now on. The service manager's journal has the time itself; wherever else lines go they begin with it.
///
/// # Errors
/// Something else has been writing.
pub fn start(config: &Log) -> Result<(), LogInUse> {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // `systemd.exec(5)`: set where standard error is the journal.
    let has_own_time = std::env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal();
    let lines = fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    let started = match (config.format, has_own_time) {
        (LogFormat::Json, _) => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
        (LogFormat::Text, false) => {
            tracing::subscriber::set_global_default(lines.with_ansi(io::stderr().is_terminal()).finish())
        }
        (LogFormat::Text, true) => tracing::subscriber::set_global_default(lines.without_time().finish()),
    };
    started.map_err(|_| LogInUse)
}

/// An error and everything that it comes from.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
