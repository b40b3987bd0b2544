//! Packets that were in flight when their mobile host left.

use holdover_base::Duration;

/// How long such packets may still arrive after a report of absence or a handoff. A later packet shows that the host has returned.
pub const STRAGGLERS: Duration = Duration::from_millis(100);
