//! The log of a daemon: on standard error, as text or as JSON.

use std::io::{self, IsTerminal as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

/// The log of a daemon, on standard error.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The level.
    pub level: LogLevel,
    /// The format.
    pub format: LogFormat,
}

/// Log levels. No level logs each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// And anomalies.
    Warn,
    /// And link events, with a summary of the actions.
    #[default]
    Info,
    /// And the actions on each connection.
    Debug,
    /// And every signal, even without effect.
    Trace,
}

/// Log formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A logger is already installed.
#[derive(Debug, thiserror::Error)]
#[error("a logger is already installed")]
pub struct LogInUse;

/// Starts logging. Lines begin with the time, except in the service manager's journal, which adds it.
///
/// # Errors
/// Another logger is installed.
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
        (LogFormat::Text, false) => tracing::subscriber::set_global_default(lines.finish()),
        (LogFormat::Text, true) => tracing::subscriber::set_global_default(lines.without_time().finish()),
    };
    started.map_err(|_| LogInUse)
}

/// An error with its causes.
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
